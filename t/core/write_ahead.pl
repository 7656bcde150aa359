# The log is always ahead of the ids.  For each rule about what is logged, and
# when, there is a crash here that repeats ids without the rule.
#
# The clock stands still while ids are taken, so that nothing logs but the rule
# under test.  After the crash it is an hour behind.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use ReservationTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

start_at_noon('write_ahead');

# Take one id in a session, in a transaction of its own.
sub take_in
{
	my ($session, $seq) = @_;
	return $session->query_safe("SELECT snowid.next_id(5, '$seq')");
}

# Recovery starts after the last record if the redo point is after it.
subject 'the first call after a checkpoint logs again' => ['s'], sub {
	my $session = session();

	take_in($session, 's') for 1 .. 2;
	sql('CHECKPOINT');
	# The first id after it is logged with its page, but nobody waits for that.
	stop_walwriter($node);
	my $seen = take_in($session, 's');
	cmp_ok(next_after_crash('s'), '>', $seen, 'no repetition');
};

subject '... also if its record ends just where recovery starts' => ['s'], sub {
	my $taker = session();

	take_in($taker, 's');
	set_clock($node, '2026-01-01 12:00:10');
	my $session = session();
	$session->query_safe(q{BEGIN; SELECT snowid.next_id(5, 's')});
	sql('CHECKPOINT');
	$session->query_safe('COMMIT');
	stop_walwriter($node);
	my $seen = take_in($session, 's');
	cmp_ok(next_after_crash('s'), '>', $seen, 'no repetition');
};

# Its file has a log_cnt that is about the original's log.
subject 'a copied database' => ['s'], sub {
	take('s');
	sql("CREATE DATABASE copy_db TEMPLATE $db", 'postgres');
	my $seen = sql(q{SELECT max(snowid.next_id(5, 's')) FROM generate_series(1, 2)}, 'copy_db');
	cmp_ok(next_after_crash('s', 'copy_db'), '>', $seen, 'its first call logs again');
};

# Even for a session that logged before.
subject 'a sequence that becomes logged' => [], sub {
	sql('CREATE UNLOGGED SEQUENCE s');
	my $session = session();
	take_in($session, 's');
	$session->query_safe(q{SELECT nextval('s')});
	$session->query_safe('ALTER SEQUENCE s SET LOGGED');
	take_in($session, 's');
	my $seen = take_in($session, 's');
	cmp_ok(next_after_crash('s'), '>', $seen, 'its first call then logs it');
};

# A transaction without an id of its own would commit without a flush.
subject 'the commit of a call that logs waits for the flush' => ['s'], sub {
	stop_walwriter($node);
	my $seen = take('s');
	cmp_ok(next_after_crash('s'), '>', $seen, 'no repetition');
};

subject 'a transaction id' => ['s'], sub {
	is(sql(q{
BEGIN;
SELECT snowid.next_id(5, 's') IS NULL, pg_current_xact_id_if_assigned() IS NULL;
SELECT FROM snowid.next_id(5, 's');
COMMIT;
BEGIN;
SELECT snowid.next_id(5, 's') IS NULL, pg_current_xact_id_if_assigned() IS NULL;
COMMIT;
BEGIN;
SELECT snowid.advance('s', snowid.make_id('2026-01-01 13:00', 5, 0)) IS NULL,
	pg_current_xact_id_if_assigned() IS NULL;
COMMIT;
}), "f|f\nf|t\nf|f", 'is for a call that logs, and not for a covered one');
};

# The reservation of an open transaction: its record is only in memory, until
# another transaction that uses it commits.
subject q{who uses another's reservation waits for its flush} => ['s'], sub {
	my $reader = session();

	take_in($reader, 's');
	stop_walwriter($node);
	set_clock($node, '2026-01-01 12:00:30');
	my $session = session();
	$session->query_safe(q{BEGIN; SELECT snowid.next_id(5, 's')});
	my $seen = take_in($reader, 's');
	cmp_ok(next_after_crash('s'), '>', $seen, 'no repetition');
};

# The promise of advance() holds also where it changes nothing.
subject q{who relies on another's advance() waits for its flush} => ['s'], sub {
	my $seen = sql(q{SELECT snowid.make_id('2026-01-01 12:00:50', 5, 0)});
	my $reader = session();

	stop_walwriter($node);
	my $session = session();
	$session->query_safe("BEGIN; SELECT snowid.advance('s', $seen)");
	$reader->query_safe("SELECT snowid.advance('s', $seen)");
	cmp_ok(next_after_crash('s'), '>', $seen, 'no repetition');
};

# Neither relies on what the other has logged.
subject 'nextval() and next_id() on one sequence' => ['next_id_first'], sub {
	sql('CREATE SEQUENCE nextval_first');
	sql('ALTER SEQUENCE next_id_first INCREMENT 1024');
	my $session = session();
	take_in($session, 'next_id_first');
	my $seen = $session->query_safe(
		q{SELECT max(nextval('next_id_first')) FROM generate_series(1, 2000)});
	cmp_ok((next_after_crash('next_id_first') >> 23 << 10), '>', $seen,
		'nextval() logs again after next_id()');

	$session = session();
	take_in($session, 'nextval_first');
	sql(q{CHECKPOINT; SELECT nextval('nextval_first')});
	$seen = $session->query_safe(q{
SELECT max(snowid.next_id(5, 'nextval_first')) FROM generate_series(1, 100)});
	cmp_ok(next_after_crash('nextval_first'), '>', $seen,
		'next_id() logs again after nextval()');
};

# All this may cost one record a second.  The server has its real clock here.  Who
# reads the catalogs of a new database first logs their hint bits.
subject 'bulk use' => ['s'], sub {
	my $bulk = q{
SELECT (extract(epoch FROM clock_timestamp() - began) * 1000)::int
FROM (
	SELECT began, count(snowid.next_id(5, 's'))
	FROM (SELECT clock_timestamp() AS began) AS b, generate_series(1, %d)
	GROUP BY began) AS t};

	$node->stop;
	$node->start;
	sql(sprintf $bulk, 1);
	my $start = $node->lsn('insert');
	my $ms = sql(sprintf $bulk, 2_000_000);
	my $bytes = sql("SELECT pg_current_wal_insert_lsn() - '$start'");
	my ($stdout, $stderr) = run_command([
		'pg_waldump', '--rmgr=Sequence', "--start=$start",
		'--path=' . $node->data_dir . '/pg_wal',
		'--end=' . $node->lsn('flush') ]);
	my $records = () = $stdout =~ /^rmgr: Sequence/mg;
	ok($records >= 1 && $records <= 3 + $ms / 1000, 'logs one record a second')
	  or diag "$records records in $ms ms";
	cmp_ok($bytes / 2_000_000, '<', 0.02, 'and under 0.02 bytes for each id');
};

$node->stop;
done_testing();
