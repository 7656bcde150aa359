# The log is always ahead of the ids.  For each rule about what is logged, and
# when, there is a crash here that repeats ids without the rule.
#
# The clock stands still while ids are taken, so that nothing logs but the rule
# under test.  After the crash it is an hour behind.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = new_node('write_ahead');
$node->append_conf('postgresql.conf', 'max_prepared_transactions = 1');
start_with_clock($node, '2026-01-01 12:00:00');
$node->safe_psql('postgres', 'CREATE EXTENSION snowid');

# Take one id, each in its own transaction.
sub take
{
	my ($session, $seq) = @_;
	return $session->query_safe("SELECT snowid.next_id(5, '$seq')");
}

# Crash, and return the next id of the sequence after it.
sub next_after_crash
{
	my ($seq, $dbname) = @_;

	crash($node);
	start_with_clock($node, '2026-01-01 11:00:00');
	my $next = $node->safe_psql($dbname || 'postgres',
		"SELECT snowid.next_id(5, '$seq')");

	set_clock($node, '2026-01-01 12:00:00');
	return $next;
}

# Recovery starts after the last record if the redo point is after it.
$node->safe_psql('postgres', 'CREATE SEQUENCE checkpointed');
my $session = $node->background_psql('postgres');
take($session, 'checkpointed') for 1 .. 2;
$node->safe_psql('postgres', 'CHECKPOINT');
# The first id after it is logged with its page, but nobody waits for that.
stop_walwriter($node);
my $seen = take($session, 'checkpointed');
cmp_ok(next_after_crash('checkpointed'), '>', $seen,
	'the first call after a checkpoint logs again');

# Also if the record ends just where recovery starts.
$node->safe_psql('postgres', 'CREATE SEQUENCE at_redo');
my $taker = $node->background_psql('postgres');
take($taker, 'at_redo');
set_clock($node, '2026-01-01 12:00:10');
$session = $node->background_psql('postgres');
$session->query_safe(q{BEGIN; SELECT snowid.next_id(5, 'at_redo')});
$node->safe_psql('postgres', 'CHECKPOINT');
$session->query_safe('COMMIT');
stop_walwriter($node);
$seen = take($session, 'at_redo');
cmp_ok(next_after_crash('at_redo'), '>', $seen,
	'the record is the last one before the redo point');

# The file of a copied database has a log_cnt that is about the original's log.
$node->safe_psql('postgres', 'CREATE DATABASE template_db');
$node->safe_psql('template_db', q{
CREATE EXTENSION snowid;
CREATE SEQUENCE copied;
SELECT snowid.next_id(5, 'copied');
});
$node->safe_psql('postgres', 'CREATE DATABASE copy_db TEMPLATE template_db');
$seen = $node->safe_psql('copy_db', q{
SELECT max(snowid.next_id(5, 'copied')) FROM generate_series(1, 2)});
cmp_ok(next_after_crash('copied', 'copy_db'), '>', $seen,
	'the first call on a copied file logs again');

# So has a sequence that becomes logged, even for a session that logged before.
$node->safe_psql('postgres', 'CREATE UNLOGGED SEQUENCE unlogged');
$session = $node->background_psql('postgres');
take($session, 'unlogged');
$session->query_safe(q{SELECT nextval('unlogged')});
$session->query_safe('ALTER SEQUENCE unlogged SET LOGGED');
take($session, 'unlogged');
$seen = take($session, 'unlogged');
cmp_ok(next_after_crash('unlogged'), '>', $seen,
	'the first call on a sequence that became logged logs it');

# A transaction without an id of its own would commit without a flush.
$node->safe_psql('postgres', 'CREATE SEQUENCE flushed');
stop_walwriter($node);
$seen = $node->safe_psql('postgres', q{SELECT snowid.next_id(5, 'flushed')});
cmp_ok(next_after_crash('flushed'), '>', $seen,
	'the commit of a call that logs waits for the flush');

$node->safe_psql('postgres', 'CREATE SEQUENCE with_xid');
is($node->safe_psql('postgres', q{
BEGIN;
SELECT snowid.next_id(5, 'with_xid') IS NULL,
	pg_current_xact_id_if_assigned() IS NULL;
SELECT FROM snowid.next_id(5, 'with_xid');
COMMIT;
BEGIN;
SELECT snowid.next_id(5, 'with_xid') IS NULL,
	pg_current_xact_id_if_assigned() IS NULL;
COMMIT;
BEGIN;
SELECT snowid.advance('with_xid', snowid.make_id('2026-01-01 13:00', 5, 0))
	IS NULL, pg_current_xact_id_if_assigned() IS NULL;
COMMIT;
}), "f|f\nf|t\nf|f",
	'a call that logs gets a transaction id, a covered one does not');

# The reservation of an open transaction: its record is only in memory, until
# another transaction that uses it commits.
$node->safe_psql('postgres', 'CREATE SEQUENCE joined');
my $reader = $node->background_psql('postgres');
take($reader, 'joined');
stop_walwriter($node);
set_clock($node, '2026-01-01 12:00:30');
$session = $node->background_psql('postgres');
$session->query_safe(q{BEGIN; SELECT snowid.next_id(5, 'joined')});
$seen = take($reader, 'joined');
cmp_ok(next_after_crash('joined'), '>', $seen,
	q{who uses another's reservation waits for its flush});

# The same for advance(), whose promise holds also where it changes nothing.
$node->safe_psql('postgres', 'CREATE SEQUENCE advanced');
$seen = $node->safe_psql('postgres',
	q{SELECT snowid.make_id('2026-01-01 12:00:50', 5, 0)});
$reader = $node->background_psql('postgres');
stop_walwriter($node);
$session = $node->background_psql('postgres');
$session->query_safe("BEGIN; SELECT snowid.advance('advanced', $seen)");
$reader->query_safe("SELECT snowid.advance('advanced', $seen)");
cmp_ok(next_after_crash('advanced'), '>', $seen,
	q{who relies on another's advance waits for its flush});

# log_cnt counts increments, as nextval does, so that both can use it.
$node->safe_psql('postgres', 'CREATE SEQUENCE mixed INCREMENT 1024');
$session = $node->background_psql('postgres');
take($session, 'mixed');
$seen = $session->query_safe(
	q{SELECT max(nextval('mixed')) FROM generate_series(1, 2000)});
cmp_ok((next_after_crash('mixed') >> 23 << 10), '>', $seen,
	'nextval logs again when the cover of next_id is used up');

$node->safe_psql('postgres', 'CREATE SEQUENCE mixed_too');
$session = $node->background_psql('postgres');
take($session, 'mixed_too');
$node->safe_psql('postgres', q{CHECKPOINT; SELECT nextval('mixed_too')});
$seen = $session->query_safe(q{
SELECT max(snowid.next_id(5, 'mixed_too')) FROM generate_series(1, 100)});
cmp_ok(next_after_crash('mixed_too'), '>', $seen,
	'next_id logs again when the cover of nextval is used up');

# All this may cost one record a second.
$node->stop;
$node->start;
$node->safe_psql('postgres', 'CREATE SEQUENCE bulk');
my $start = $node->lsn('insert');
my ($ms, $bytes) = split /\|/, $node->safe_psql('postgres', qq{
SELECT (extract(epoch FROM clock_timestamp() - began) * 1000)::int,
	pg_current_wal_insert_lsn() - '$start'
FROM (
	SELECT began, count(snowid.next_id(5, 'bulk'))
	FROM (SELECT clock_timestamp() AS began) AS b, generate_series(1, 2000000)
	GROUP BY began) AS t});
my ($stdout, $stderr) = run_command([
	'pg_waldump', '--rmgr=Sequence', "--start=$start",
	'--path=' . $node->data_dir . '/pg_wal',
	'--end=' . $node->lsn('flush') ]);
my $records = () = $stdout =~ /^rmgr: Sequence/mg;
ok($records >= 1 && $records <= 3 + $ms / 1000,
	"bulk use logs one record a second")
  or diag "$records records in $ms ms";
cmp_ok($bytes / 2_000_000, '<', 0.02, 'and under 0.02 bytes for each id');

$node->stop;
done_testing();
