# What a thousand shards add to the catalogs, to the disk, and to a session
# that has used each of them.
use strict;
use warnings;

use Bench;

measure
	unit => 'KiB',
	title => 'What a logical shard with one table weighs',
	rounds => [ undef, 1 ],
	run => sub {
		my ($name) = @_;
		my $catalogs = q{SELECT sum(pg_total_relation_size(oid)) FROM pg_class
			WHERE relnamespace = 'pg_catalog'::regnamespace};
		my $disk = 'CHECKPOINT; SELECT pg_database_size(current_database())';
		my $memory = 'SELECT sum(total_bytes) FROM pg_backend_memory_contexts';
		my $each = q{DO $$ BEGIN FOR i IN 0 .. 999 LOOP
			EXECUTE pg_catalog.format('STATEMENT', i); END LOOP; END $$};
		my %now;
		my $weigh = sub {
			my ($what, $session, $query) = @_;
			my ($bytes) = $session->run($query);
			record($name, { name => $what, label => $what }, '', ($bytes - $now{$what}) / 1024 / 1000)
			  if defined $now{$what};
			$now{$what} = $bytes;
		};

		say_progress($name);
		for my $turn (0, 1)
		{
			$weigh->('catalogs', $session, $catalogs);
			$weigh->('disk', $session, $disk);
			run_setup("$here/shards.sql") unless $turn;
		}
		if (($session->run("SELECT to_regclass('pg_backend_memory_contexts') IS NOT NULL"))[0] eq 't')
		{
			my $user = Bench::Session->new;
			for my $turn (0, 1)
			{
				$weigh->('memory of a session that used it', $user, $memory);
				$user->run($each =~ s/STATEMENT/INSERT INTO shard%s.photos (user_id) VALUES (1)/r) unless $turn;
			}
		}
		$session->run($each =~ s/STATEMENT/DROP SCHEMA shard%s CASCADE/r);
	};

1;
