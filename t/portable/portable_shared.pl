# Sessions of the portable edition count by nextval() under a shared lock.  What
# that may not do: give an id behind the clock, run beside who sets the sequence, or
# show an id that a power cut takes back.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = new_node('shared');
$node->append_conf('postgresql.conf', "fsync = on\nwal_buffers = 64kB\n");
$node->{lossy_disk} = 1;
start_with_clock($node, '2026-01-01 12:00:00');
$node->safe_psql('postgres', slurp_file(portable_file('sql')));
my $take = q{SELECT snowid.next_id(5, 's')};

# Take ids until the session counts: of a new sequence, as the first to set it, and one that
# it logs.
sub counting
{
	my ($begin) = @_;
	my $session = $node->background_psql('postgres');
	$session->query_safe($begin) if $begin;
	$session->query_safe($take) for 1 .. 3;
	is($session->query_safe(q{SELECT coalesce(split_part(current_setting('snowid_internal.seen'), ' ', 2)
		= coalesce(pg_current_xact_id_if_assigned()::text, ''), false)}), 't', 'a session counts');
	is($session->query_safe(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()}),
		'0', 'and keeps no lock');
	return $session;
}

# In a transaction, and each in one of its own.
for my $begin ('BEGIN', '')
{
	subtest "the clock, and who sets the sequence $begin" => sub {
		$node->safe_psql('postgres', 'DROP SEQUENCE IF EXISTS s; CREATE SEQUENCE s');
		set_clock($node, '2026-01-01 12:00:00');
		my ($one, $other) = (counting($begin), counting($begin));
		my $seen = $node->safe_psql('postgres', 'SELECT log_cnt FROM s');
		$one->query_safe($take);
		is($node->safe_psql('postgres', 'SELECT log_cnt FROM s'), $seen - 1, 'it logs no id by itself');

		my $lock = q{(1936617335, 's'::regclass::oid::int)};
		$other->query_safe("SELECT pg_advisory_lock_shared$lock");
		cmp_ok($one->query_safe("SET statement_timeout = '60s'; $take"), '>', 0, 'with others it counts at the same time');
		$other->query_safe("SELECT pg_advisory_unlock_shared$lock, pg_advisory_lock$lock");
		my $last = $node->safe_psql('postgres', 'SELECT last_value FROM s');
		my $waits = q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted};
		$one->query_until(qr/asked/, "\\echo asked\n$take;\n");
		$node->poll_query_until('postgres', "SELECT ($waits) = 1 OR last_value > $last FROM s");
		is($node->safe_psql('postgres', $waits), '1', 'but not while one sets it');
		my $set = $other->query_safe(q{SELECT setval('s', (SELECT last_value + 100 FROM s))});
		$other->query_safe("SELECT pg_advisory_unlock$lock");
		cmp_ok($one->query_safe($take), '>', $set, 'and goes on above that');

		set_clock($node, '2026-01-01 12:00:01');
		is($one->query_safe("$take >= snowid.min_id('2026-01-01 12:00:01+00')"), 't', 'it follows the clock');
		# Who does not get the lock counts up to the clock.
		$one->query_safe($take);
		$other->query_safe("SELECT pg_advisory_lock_shared$lock");
		set_clock($node, '2026-01-01 12:00:01.001');
		is($one->query_safe("$take >= snowid.min_id('2026-01-01 12:00:01.001+00')"), 't', 'also while others count');
		$_->quit for $one, $other;
	};
}

# With a record that is written, and not flushed.
sub shown_before_a_power_cut
{
	my ($name, $statement) = @_;

	set_clock($node, '2026-01-01 12:00:10');
	my $reader = $node->background_psql('postgres');
	$reader->query_safe('CREATE TEMP TABLE mine (id bigint)');
	# Before: it has to have seen the sequence, and who first looks at a page of a catalog may
	# prune it, and log that.
	$reader->query_safe($statement) for 1 .. 2;
	stop_walwriter($node);
	my $holder = counting('BEGIN');
	# So many that the last record of the sequence is not flushed.
	$holder->query_safe("SELECT count(snowid.next_id(5, 's')) FROM generate_series(1, 33)");
	my $lsn = $node->lsn('insert');
	$holder->query_safe(q{SELECT pg_logical_emit_message(true, '', repeat('x', 200000))});
	is($node->safe_psql('postgres', qq{SELECT pg_current_wal_lsn() >= '$lsn', pg_current_wal_flush_lsn() >= '$lsn'}),
		't|f', "$name: what counts is written, not flushed");
	my $seen = $reader->query_safe($statement);
	is($node->safe_psql('postgres', "SELECT pg_current_wal_flush_lsn() >= '$lsn'"), 't', "$name: its commit flushes that");
	power_cut($node);
	start_with_clock($node, '2026-01-01 11:00:00');
	cmp_ok($node->safe_psql('postgres', $take), '>', $seen, "$name: its id does not come again");
	return;
}

subtest 'a power cut' => sub {
	$node->safe_psql('postgres', 'DROP SEQUENCE s; CREATE SEQUENCE s');
	shown_before_a_power_cut('who only reads', $take);
	$node->safe_psql('postgres', 'DROP SEQUENCE s; CREATE SEQUENCE s');
	shown_before_a_power_cut('who writes what is not logged', "BEGIN; INSERT INTO mine VALUES (1); $take; COMMIT");
};

# PostgreSQL's nextval() would give its next ids again.
subtest 'a copy of the database, and a crash' => sub {
	set_clock($node, '2026-01-01 12:00:20');
	my $many = "SELECT count(snowid.next_id(5, 's')) FROM generate_series(1, 10)";
	$node->safe_psql('postgres', "DROP SEQUENCE s; CREATE SEQUENCE s; $take; $take; $many");
	cmp_ok($node->safe_psql('postgres', 'SELECT log_cnt FROM s'), '>', 0, 'some values are logged');
	$node->safe_psql('template1', 'CREATE DATABASE copied TEMPLATE postgres');
	my @ids = map { $node->safe_psql('copied', $take) } 1 .. 2;
	crash($node);
	start_with_clock($node, '2026-01-01 12:00:20');
	cmp_ok($node->safe_psql('copied', $take), '>', $ids[1], 'the ids of the copy do not come again');
	cmp_ok($ids[1], '>', $ids[0], 'and rise');
};

# What everybody may set: the sequence that a commit waits for, and the setting that
# says what a session has seen.
subtest 'a hostile role' => sub {
	$node->safe_psql('postgres', q{
DROP SEQUENCE s; CREATE SEQUENCE s;
CREATE SCHEMA guarded; CREATE SEQUENCE guarded.ids; CREATE SEQUENCE guarded.blocks INCREMENT 10;
CREATE FUNCTION guarded.next_id(seq regclass) RETURNS bigint LANGUAGE sql SECURITY DEFINER RETURN snowid.next_id(5, seq);
CREATE ROLE hostile LOGIN; GRANT USAGE ON SCHEMA guarded TO hostile;});
	my @hostile = (connstr => $node->connstr('postgres') . ' user=hostile');
	for my $statement ('ALTER SEQUENCE snowid_internal.flushed MAXVALUE 1', 'DROP SEQUENCE snowid_internal.flushed',
		'ALTER SEQUENCE snowid_internal.flushed RENAME TO gone', 'CREATE SEQUENCE snowid_internal.other',
		q{SELECT setval('guarded.ids', 1)}, q{SELECT nextval('guarded.ids')})
	{
		is(sqlstate($node, $statement, extra_params => [ '-U', 'hostile' ]), '42501', "$statement is refused");
	}
	my $holder = $node->background_psql('postgres', extra_params => [ '-U', 'hostile' ]);
	$holder->query_safe(q{BEGIN; SELECT setval('snowid_internal.flushed', 9223372036854775807)});
	my $one = counting('BEGIN');
	cmp_ok($one->query_safe("SET statement_timeout = '60s'; $take"), '>', 0, 'set to its end, and in use, it stops nobody');
	$_->quit for $holder, $one;

	# He says that he has seen each of these, and logged.
	for my $seq ('guarded.ids', 'guarded.blocks')
	{
		my @ids = map {
			my $own = "SELECT guarded.next_id('$seq')";
			my $forge = qq{BEGIN; SELECT set_config('snowid_internal.seen', pg_relation_filepath('$seq')
				|| ' ' || pg_current_xact_id()::text, false) IS NULL; $own; $own; COMMIT};
			($node->safe_psql('postgres', $own), grep { /\d/ } split /\n/, $node->safe_psql('postgres', $forge, @hostile));
		} 1 .. 5;
		is(scalar(@ids), 15, "$seq: ids of him and of others");
		ok(!(grep { $ids[$_] <= $ids[ $_ - 1 ] } 1 .. $#ids), "$seq: none comes again, and all rise");
	}
};

$node->stop;
done_testing();
