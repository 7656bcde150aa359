# A script that cannot be in a transaction runs statement by statement.  After a
# failure or a kill it goes on where its ledger says, without the INVALID index
# that the try before has left.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use EachTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my ($a, $b) = each_pair();

# What a lexer must know to find where a statement ends.
my $script = <<'SQL';
-- no transaction
INSERT INTO runs VALUES (';' || $a$;$a$ || e'\';'); -- ; a comment
/* ; /* ; */ ; */
CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT 1; SELECT 2; END;
CREATE UNIQUE INDEX CONCURRENTLY "n;" ON photos (n);
VACUUM photos;
INSERT INTO runs SELECT current_schema
SQL
my $file = script_file($script);

$a->safe_psql('postgres', 'INSERT INTO insta3.photos (n) VALUES (1), (1)');
each_ok($a, 1, qr/19 shards done.*could not create unique index "n;": 1 shard: 3/s, '--name', 'n', '--file', $file);
is($a->safe_psql('postgres', "SELECT count(*), count(*) FILTER (WHERE s = ';;'';') FROM runs"), '19|10',
	'each statement was run as it is');
each_ok($a, 1, qr/not done, but the first 2 statements, failed: statement 3, line 5: could not create/, 'status');
is($a->safe_psql('postgres', q{SELECT indisvalid FROM pg_index WHERE indexrelid = 'insta3."n;"'::regclass}), 'f', 'an INVALID index is left');
each_ok($a, 1, qr/another script was run/, '--name', 'n', '--shard', 3, '--file', script_file($script =~ s/comment/remark/r =~ s/SELECT 2/SELECT 3/r));

# One that somebody builds is no leftover.
my $reader = $a->background_psql('postgres');
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT n FROM insta3.photos');
my $builder = $a->background_psql('postgres');
$builder->query_until(qr//, "CREATE INDEX CONCURRENTLY other ON insta3.photos (n);\n");
$a->poll_query_until('postgres', q{
SELECT count(*) = 1 FROM pg_index WHERE indexrelid = to_regclass('insta3.other') AND indisready AND NOT indisvalid});
each_ok($a, 1, qr/lock timeout.*: 1 shard: 3/, '--name', 'n', '--lock-timeout', 100, '--wait', 0);
$reader->query_safe('COMMIT');
$builder->query_safe('SELECT 1');
$a->safe_psql('postgres', 'DELETE FROM insta3.photos');
each_ok($a, 0, qr/1 shards done in .*, 19 had it/, '--name', 'n');
is($a->safe_psql('postgres', q{
SELECT string_agg(indexrelid::regclass::text || indisvalid, ' ' ORDER BY relname COLLATE "C") FROM pg_index JOIN pg_class c ON c.oid = indexrelid
WHERE relnamespace = 'insta3'::regnamespace AND indrelid = 'insta3.photos'::regclass AND NOT indisprimary}),
	'insta3."n;"true insta3.other' . 'true', 'both indexes are there, and valid');
is($a->safe_psql('postgres', "SELECT count(*), count(*) FILTER (WHERE s = ';;'';') FROM runs"), '20|10',
	'no statement was run again that was done');
is($a->safe_psql('postgres', 'SELECT DISTINCT statements, finished_at IS NOT NULL FROM insta3.snowid_migrations'), '5|t', 'what the ledger says');
$_->quit for $reader, $builder;

for ([ "-- no transaction\n\\d", qr/a command of psql's/ ], [ "-- no transaction\nSELECT 'x", qr/ends within a statement/ ])
{
	each_ok($a, 2, $_->[1], '--name', 'wrong', '--file', script_file($_->[0]));
}
each_ok($a, 1, qr/cannot (run inside a transaction block|be executed from a function): 20 shards/, '--name', 'vacuum', '--file', script_file('VACUUM photos'));

# A build waits for old transactions, and bothers nobody.  So each index is built once, whoever
# else reads, and if the same command was typed twice.
for ([ 'n', 2 ], [ '(n + 1)', 1 ])
{
	my ($column, $at_once) = @$_;
	for ($a, $b) { $_->append_conf('postgresql.conf', 'log_statement = ddl'); $_->reload }
	my $index = $column eq 'n' ? 'plain' : 'expression';
	my $old = $a->background_psql('postgres');
	$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
	my ($said, @runs) = ('');
	push @runs, IPC::Run::start([ each_command($a, '--name', $index, '--lock-timeout', 100, '--jobs', 3, '--file',
			script_file("-- no transaction\nSELECT 1; CREATE INDEX CONCURRENTLY $index ON photos ($column);")) ], '>&', \$said)
	  for 1, 2;
	$a->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_stat_activity WHERE query ^@ 'CREATE INDEX'
AND wait_event_type = 'Lock' AND clock_timestamp() - query_start > '1 second'});
	cmp_ok($a->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE query ^@ 'CREATE INDEX'}), $at_once == 1 ? '==' : '>=', $at_once,
		'builds that would wait for each other are one after the other');
	my $taken = $a->safe_psql('postgres', "SELECT min(objid::int) FROM pg_locks WHERE locktype = 'advisory' AND classid::int = x'45414348'::int AND objid::int BETWEEN 0 AND 9");
	each_ok($a, 1, qr/another snowid-each is at it: process \d+ of \S+, (active|idle) for \d+ s, holds ExclusiveLock: 1 shard: $taken$/,
		'--name', $index, '--wait', 0, '--shard', $taken, '--file', script_file("-- no transaction\nSELECT 1; CREATE INDEX CONCURRENTLY $index ON photos ($column);"));
	$old->quit;
	ok($_->finish, "$index: done") or diag $said for @runs;
	my $statements = join '', map { slurp_file($_->logfile) } $a, $b;
	is(() = $statements =~ /statement: CREATE INDEX CONCURRENTLY $index /g, 20, 'each is built once');
	unlike($statements, qr/deadlock detected/, 'there is no deadlock');
}

# Whom it waits for is said while it waits.  If not, the other one ends by itself, so that we do.
my $old = $a->background_psql('postgres');
$old->query_safe(q{SET idle_in_transaction_session_timeout = '60s'});
my $pid = $old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_backend_pid()');
my $said = '';
my $timer = IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default);
my $run = IPC::Run::start([ each_command($a, '--name', 'told', '--shard', 3, '--file', script_file("-- no transaction\nCREATE INDEX CONCURRENTLY told ON photos (n);")) ], '>&', \$said,
	$timer);
pump_until($run, $timer, \$said, qr/waiting: .*\n/);
like($said, qr/waiting: shard 3: waiting for [a-z ]+: process $pid of \S+, idle in transaction for \d+ s, holds /, 'and says whom it waits for');
$old->quit;
ok($run->finish, 'it is done') or diag $said;

# Also who has taken the lock of those who build, as any role could.
$a->safe_psql('postgres', 'CREATE ROLE stranger LOGIN');
my $stranger = $a->background_psql('postgres', extra_params => [ '-U', 'stranger' ]);
$pid = $stranger->query_safe('SELECT pg_backend_pid() FROM pg_advisory_lock(x\'45414348\'::int, -1)');
$run = IPC::Run::start([ each_command($a, '--name', 'alone', '--shard', 3, '--file', script_file("-- no transaction\nCREATE INDEX CONCURRENTLY alone ON photos (n);")) ], '>&', \($said = ''),
	$timer);
pump_until($run, $timer, \$said, qr/waiting: .*\n/);
like($said, qr/waiting: shard 3: process $pid of stranger, idle for \d+ s, holds ExclusiveLock/, 'and who has taken that lock');
ok($stranger->query_safe('SELECT pg_advisory_unlock_all() IS NOT NULL') ne '' && $run->finish, 'it is done') or diag $said;

# Or a shard's, also in the way of who copies it.  In another database it is in nobody's way.
$a->safe_psql('postgres', 'CREATE DATABASE elsewhere');
my $elsewhere = $a->background_psql('elsewhere');
$elsewhere->query_safe('BEGIN');
$_->query_safe('SELECT pg_advisory_lock(x\'45414348\'::int, 3)') for $elsewhere, $stranger;
my $holder = qr/another snowid-each is at (?:it|shard 3): process $pid of stranger, idle for \d+ s, holds ExclusiveLock/;
each_ok($a, 1, $holder, '--name', 'held', '--wait', 0, '--shard', 3, '--file', script_file('SELECT 1'));
each_ok($a, 2, $holder, 'create', '--like', 3, '--shard', 30, '--wait', 0);
$_->quit for $elsewhere, $stranger;

done_testing();
