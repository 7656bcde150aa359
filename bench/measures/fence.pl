# What it costs to close and to open a thousand shards in one transaction: shard by
# shard, whose triggers are made and dropped; and as a set whose triggers were prepared.
# And what a prepared table costs its writers.
use strict;
use warnings;

use Bench;

my $all = 'ARRAY(SELECT generate_series(0, 999))';
my @steps = (
	fence_shard => 'SELECT snowid.fence_shard(s) FROM generate_series(0, 999) s',
	unfence_shard => 'SELECT snowid.unfence_shard(s) FROM generate_series(0, 999) s',
	prepare => 'SELECT snowid_internal.prepare_table(t)
		FROM snowid_internal.shard_tables(VARIADIC ARRAY(SELECT schema FROM snowid.shard_registry)) t',
	close_set => "SELECT snowid_internal.close_shards($all, NULL)",
	open_set => "SELECT snowid_internal.open_shards($all, NULL)");

measure
	unit => 'ms',
	title => 'Time to close or open 1,000 shards of two tables',
	rounds => [ undef, 5 ],
	run => sub {
		my ($name, $now) = @_;

		say_progress($name);
		$session->run(q{CALL snowid.create_shards(0, 999, prefix => 'fenced', ddl => '
	CREATE TABLE users (id bigint PRIMARY KEY DEFAULT next_id(), n int);
	CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id(), user_id bigint REFERENCES users)');
CALL snowid.for_each_shard('INSERT INTO users (n) VALUES (1)');
CREATE TABLE plain (id bigint PRIMARY KEY DEFAULT snowid.next_id(1, 'snowid.id_seq'), n int);
CREATE TABLE prepared (LIKE plain INCLUDING ALL);
SELECT snowid_internal.prepare_table('prepared');
VACUUM ANALYZE;});
		for my $round (1 .. $now->{rounds})
		{
			say_progress("$name, round $round of $now->{rounds}");
			for (my $i = 0; $i < @steps; $i += 2)
			{
				my $cost = $session->cost("BEGIN; $steps[$i + 1]; COMMIT");
				my $variant = { name => $steps[$i], label => $steps[$i] };
				record($name, $variant, '', $cost->{wall} / 1e6);
				record('fence_cpu', $variant, '', $cost->{cpu} / 1e6, 'ms');
			}
			$session->run(q{DO $$ DECLARE t regclass; BEGIN
	FOR t IN SELECT tgrelid FROM pg_trigger WHERE tgname = 'snowid_fence' AND tgrelid <> 'prepared'::regclass LOOP
		EXECUTE format('DROP TRIGGER snowid_fence ON %s', t);
	END LOOP;
END $$;
CHECKPOINT;});
			for my $table (in_turn($round, map { { name => $_, label => $_ } } qw(plain prepared)))
			{
				my $cost = $session->cost("DO 'BEGIN FOR i IN 1 .. 100000 LOOP INSERT INTO $table->{name} (n) VALUES (i); END LOOP; END'");
				record('fence_insert', $table, '', $cost->{cpu} / 100_000, 'ns');
			}
		}
		$session->run(q{DROP TABLE plain, prepared;
DO $$ BEGIN FOR i IN 0 .. 999 LOOP PERFORM snowid.drop_shard(i, true); END LOOP; END $$;});
	};

1;
