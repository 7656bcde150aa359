# What can go wrong, with real causes: writers that do not let go, a long
# transaction, a disk that fills up, a target that cannot reach the source, a
# change of the tables meanwhile, a slot that keeps too much.  Each ends with
# the shard where it was, written, and a message that says why.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use MoveTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $a = move_node('a');
# Small files of log, so that a limit on file size can spare them.
my $b = move_node('b', extra => ['--wal-segsize=1']);
$_->start for $a, $b;
my $s = make_shard($a, 5, 'insta5');
$b->safe_psql('postgres', 'CREATE EXTENSION snowid');

sub still_here_ok
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($a->safe_psql('postgres', "INSERT INTO $s.users (name) VALUES ('here') RETURNING name"), 'here', "$name: it is written");
	is(sqlstate($b, "INSERT INTO $s.users (name) VALUES ('there')") ? 'closed' : 'open', 'closed', "$name: and not there");
	return;
}

# A writer that keeps its lock: given up within the limits, and the others
# have only waited.  So it is with a prepared transaction.
moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
my $writer = $a->background_psql('postgres');
$writer->query_safe("BEGIN; INSERT INTO $s.users (name) VALUES ('slow')");
moves_ok($a, $b, 5, [ '--retries', 2, '--lock-timeout', 20 ], 1, 'a writer that does not let go', qr/could not/);
still_here_ok('a writer');
$writer->query_safe("COMMIT; BEGIN; SELECT $s.next_id()");
moves_ok($a, $b, 5, [ '--retries', 2, '--lock-timeout', 20, '--verify', 'none' ], 1, 'one that has taken an id', qr/could not lock the shard/);

# A session that is lost as it waits for the lock has not closed anything.
my $lost = '';
my $waiter = IPC::Run::start(
	[ move_command($a, $b, 5, '--verbose', '--retries', 0, '--pause-limit', 60000, '--lock-timeout', 60000, '--verify', 'none') ],
	'>&', \$lost);
$a->poll_query_until('postgres', qq{
SELECT bool_or(pg_terminate_backend(pid)) FROM pg_locks
WHERE mode = 'ShareUpdateExclusiveLock' AND relation = '$s.id_seq'::regclass})
  or die 'does not wait';
$waiter->finish;
is($? >> 8, 1, 'a session that waits is ended') or diag $lost;
like($lost, qr/source: connected again.*could not lock the shard/s, '... and given up as if it had waited too long');
still_here_ok('a lost session');

# Killed as it waits for the sequence, it leaves nobody in the queue for ever.
my $killed = IPC::Run::start(
	[ move_command($a, $b, 5, '--pause-limit', 3000, '--lock-timeout', 60000, '--verify', 'none') ], '>&', '/dev/null');
$a->poll_query_until('postgres', qq{
SELECT count(*) > 0 FROM pg_locks
WHERE mode = 'ShareRowExclusiveLock' AND NOT granted AND relation = '$s.id_seq'::regclass})
  or die 'does not wait';
$killed->kill_kill;
is(sqlstate($a, "SET statement_timeout = '60s'; INSERT INTO $s.users (name) VALUES ('next')"), '',
	'killed as it waits: others get through');
$writer->query_safe('COMMIT');

# Nor is it held closed while somebody locks a catalog.
$writer->query_safe('BEGIN; LOCK TABLE pg_enum');
moves_ok($a, $b, 5, [ '--retries', 0, '--verify', 'none' ], 1, 'a locked catalog', qr/the pause limit was reached/);
still_here_ok('a locked catalog');
$writer->query_safe('ROLLBACK');
$writer->quit;

# ... nor while the target takes long to note what it has come to.
my $log_end = -s $a->logfile;
my $slow = hold_at_step($b, 'ready', 0);
my $late = '';
my $slow_tool = IPC::Run::start(
	[ move_command($a, $b, 5, '--retries', 0, '--pause-limit', 1000, '--verify', 'none') ], '>&', \$late);
wait_until_held($b) or die 'does not get there';
$a->wait_for_log(qr/terminating connection due to (idle-in-transaction|transaction) timeout/, $log_end);
still_here_ok('a slow journal');
$slow->quit;
$slow_tool->finish;
is($? >> 8, 1, 'too late for the decision') or diag $late;
like($late, qr/the pause limit was reached/, '... and it says so');
let_go_steps($b);

# A target that cannot apply what has been written is waited for, but not long.
my $blocker = $b->background_psql('postgres');
$blocker->query_safe("BEGIN; LOCK TABLE $s.users");
$a->safe_psql('postgres', "INSERT INTO $s.users (name) VALUES ('late')");
moves_ok($a, $b, 5, [ '--retries', 0, '--pause-limit', 200, '--verify', 'none' ], 1, 'a target that is behind', qr/did not catch up/);
$blocker->query_safe('COMMIT');
$blocker->quit;
still_here_ok('behind');

# A program that is held up itself, in either pause, loses its session: the
# others wait no longer than the limit, and it tries again.
for my $verify ('none', 'counts')
{
	my $said = '';
	my $blocker = $b->background_psql('postgres');
	my $log = -s $a->logfile;

	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	$blocker->query_safe("BEGIN; LOCK TABLE $s.users");
	$a->safe_psql('postgres', "INSERT INTO $s.users (name) VALUES ('late')");
	my $tool = IPC::Run::start([ move_command($a, $b, 5, '--verbose', '--pause-limit', 2000, '--verify', $verify) ], '>&', \$said);
	$a->poll_query_until('postgres', qq{
SELECT count(*) = 1 FROM pg_stat_activity JOIN pg_locks USING (pid)
WHERE state = 'idle in transaction' AND relation = '$s.users'::regclass AND mode IN ('ShareLock', 'ShareRowExclusiveLock')})
	  or die 'does not get there';
	$tool->signal('STOP');
	$a->wait_for_log(qr/terminating connection due to (idle-in-transaction|transaction) timeout/, $log);
	is(sqlstate($a, "INSERT INTO $s.users (name) VALUES ('here')"), '', "stopped, verify $verify: it is written");
	$blocker->query_safe('COMMIT');
	$blocker->quit;
	$tool->signal('CONT');
	$tool->finish;
	is($? >> 8, 0, "it goes on, verify $verify") or die $said;
	like($said, qr/source: connected again/, "... after another attempt, verify $verify");
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
	moves_ok($b, $a, 5, [$_], 0, "back: $_") for 'move', 'finish';
}

# The servers end sessions around the decision.  It has been made or it hasn't:
# the tool finds out, and goes on.
my $end_held = q{
SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = 47 AND NOT granted};
my $end_idle = q{
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'};
my $end_second = q{
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle' AND query ~ 'replay_lsn|emit_message';};
my $undecided = qr/source: connected again.*cut-over: the source has ended the session/s;
my ($from, $to) = ($a, $b);
for my $case (
	[ 'not decided', $undecided, sub { $from->safe_psql('postgres', $end_held) } ],
	[
		'not decided, no session at all', $undecided,
		sub { $_->safe_psql('postgres', $end_second . $end_idle) for $to, $from; $from->safe_psql('postgres', $end_held) }
	],
	[ 'not opened', qr/target: connected again/, sub { $to->safe_psql('postgres', $end_idle) } ],
	[
		'not replicated',
		qr/source: connected again/,
		sub {
			$from->safe_psql('postgres', q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'});
			$from->reload;

			# Until a commit waits, not all of the server knows of it.
			my $script = PostgreSQL::Test::Utils::tempdir() . '/probe';
			append_to_file($script, "SELECT pg_logical_emit_message(true, 'probe', '') \\watch 0.02\n");
			my $probe = IPC::Run::start([ 'psql', '-X', '-f', $script, $from->connstr('postgres') ], '>&', '/dev/null');
			$from->poll_query_until('postgres', q{
SELECT bool_or(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'}) or die 'does not wait';
			$probe->finish;
		}
	])
{
	my ($name, $message, $trouble) = @$case;
	my $said = '';
	my $hold = hold_at_step($from, 'fenced', 1);
	my $tool = IPC::Run::start(
		[ move_command($from, $to, 5, '--verbose', '--pause-limit', 60000, '--lock-timeout', 60000) ],
		'>&', \$said);

	wait_until_held($from) or die 'does not get there';
	$trouble->();
	$hold->quit;
	if ($name eq 'not replicated')
	{
		# Who has decided waits for the standby; and who goes on in his place.
		my $waiting = q{FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query};
		$from->poll_query_until('postgres', qq{
SELECT bool_or(pg_terminate_backend(pid)) $waiting = 'COMMIT'}) or die 'does not wait';
		$from->poll_query_until('postgres', qq{
SELECT count(*) > 0 $waiting LIKE '%emit_message%'}) or die 'does not wait again';
		is(journal_step($to), 'ready', "$name: not opened yet");
		$from->safe_psql('postgres', 'ALTER SYSTEM RESET synchronous_standby_names');
		$from->reload;
	}
	$tool->finish;
	is($? >> 8, 0, "$name: it goes on") or die $said;
	like($said, $message, "$name: says so");
	is(sqlstate($to, "INSERT INTO $s.users (name) VALUES ('there')"), '', "$name: it is written there");
	isnt(sqlstate($from, "INSERT INTO $s.users (name) VALUES ('here')"), '', "$name: and not here");
	let_go_steps($from);
	moves_ok($from, $to, 5, ['finish'], 0, "$name: finished");
	($from, $to) = ($to, $from);
}
moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');

# Tables that are changed meanwhile would not be the same there.
$a->safe_psql('postgres', "ALTER TABLE $s.users ADD COLUMN born date");
moves_ok($a, $b, 5, [], 1, 'a change of the tables', qr/definitions of the shard have changed/);
still_here_ok('a change');
moves_ok($a, $b, 5, ['abort'], 0, 'aborted');
nothing_left_ok($_, 'a change') for $a, $b;

# A row there that should not be: the copy differs.
moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
$b->safe_psql('postgres', "SET session_replication_role = replica; UPDATE $s.users SET name = 'other' WHERE id = (SELECT min(id) FROM $s.users)");
moves_ok($a, $b, 5, [ '--verify', 'checksums' ], 1, 'a copy that differs', qr/table "users" differs/);
still_here_ok('a difference');
moves_ok($a, $b, 5, ['abort'], 0, 'aborted');

# The log that a slot keeps has a limit, beyond which the move undoes itself.
moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
$b->safe_psql('postgres', 'ALTER SUBSCRIPTION ' . $b->safe_psql('postgres', 'SELECT subname FROM pg_subscription') . ' DISABLE');
my $idle = '';
my $waiting_tool = IPC::Run::start([ move_command($a, $b, 5) ], '>&', \$idle, IPC::Run::timeout(120));
$waiting_tool->pump until $idle =~ /waiting: the target is not connected/;
ok($waiting_tool->pumpable, 'it waits for the target, and says so');
$waiting_tool->kill_kill;
$a->safe_psql('postgres', 'CREATE TABLE big AS SELECT repeat(md5(i::text), 10) FROM generate_series(1, 20000) i');
moves_ok($a, $b, 5, [ '--max-wal', '2MB' ], 1, 'too much log', qr/more than --max-wal allows/);
nothing_left_ok($_, 'too much log') for $a, $b;
still_here_ok('too much log');

# A target whose settings cannot be written, of which the move changes one on 15.
my $in_the_way = $b->data_dir . '/postgresql.auto.conf.tmp';
mkdir $in_the_way or die "$in_the_way: $!";
moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'settings that cannot be written');
$b->safe_psql('postgres', q{UPDATE snowid.moves SET details = details || '{"hurried": "yes"}'});
moves_ok($a, $b, 5, ['abort'], 0, '... nor set back', qr/warning: target: could not reset.*ALTER SYSTEM RESET/s);
nothing_left_ok($_, 'settings that cannot be written') for $a, $b;
rmdir $in_the_way;

# A table without a primary key says so, and moves once it has another identity.
$a->safe_psql('postgres', "CREATE TABLE $s.notes (line text); INSERT INTO $s.notes VALUES ('same'), ('same'), (NULL)");
moves_ok($a, $b, 5, [], 1, 'a table without a primary key', qr/notes.*REPLICA IDENTITY/s);
nothing_left_ok($_, 'without a primary key') for $a, $b;
$a->safe_psql('postgres', "ALTER TABLE $s.notes REPLICA IDENTITY FULL");
moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
$a->safe_psql('postgres', "UPDATE $s.notes SET line = 'changed' WHERE line IS NULL; INSERT INTO $s.notes VALUES ('same')");
moves_ok($a, $b, 5, [ '--verify', 'checksums' ], 0, 'moved');
is($b->safe_psql('postgres', "SELECT string_agg(line, ' ' ORDER BY line) FROM $s.notes"), 'changed same same same', 'with all its rows');
moves_ok($a, $b, 5, ['finish'], 0, 'finished');
moves_ok($b, $a, 5, [], 0, 'and back');
moves_ok($b, $a, 5, ['finish'], 0, 'finished');

# A transaction elsewhere in the source's cluster that holds the slot up.
my $long = $a->background_psql('postgres');
$long->query_safe('BEGIN; CREATE TABLE elsewhere ()');
my $said = '';
my $tool = IPC::Run::start([ move_command($a, $b, 5) ], '>', \$said, '2>&1');
$a->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'SELECT pg_create_logical%' AND state = 'active' AND wait_event_type = 'Lock'})
  or die 'does not wait';
still_here_ok('a long transaction');
$long->query_safe('COMMIT');
$long->quit;
$tool->finish;
is($? >> 8, 0, 'it goes on after a long transaction') or diag $said;
moves_ok($a, $b, 5, ['finish'], 0, 'finished');
moves_ok($b, $a, 5, [], 0, 'back at the source');
moves_ok($b, $a, 5, ['finish'], 0, 'finished');

# The target cannot reach the source, or we cannot reach the target.
moves_ok($a, $b, 5, [ '--source-for-target', 'host=/nowhere dbname=postgres' ], 1, 'the target does not reach the source',
	qr/from the target to the source: .*could not connect/);
nothing_left_ok($_, 'not reached') for $a, $b;
moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
$b->stop;
moves_ok($a, $b, 5, [], 1, 'the target refuses connections', qr/target/);
is($a->safe_psql('postgres', "INSERT INTO $s.users (name) VALUES ('here') RETURNING name"), 'here', 'the shard is written');
moves_ok($a, $b, 5, ['abort'], 0, 'aborted without the target', qr/could not be reached/);
nothing_left_ok($a, 'without the target');

# The target fills up: no file may be larger than 8 MB there.
my $limit = sub {
	my ($blocks) = @_;
	system_or_bail('bash', '-c', "ulimit -f $blocks; exec pg_ctl -w -s -D '" . $b->data_dir . "' -l '" . $b->logfile . "' start");
	$b->_update_pid(1);
};
$limit->('unlimited');
moves_ok($a, $b, 5, ['abort'], 0, 'aborted there, too', qr/is undone/);
nothing_left_ok($b, 'with the target again');
$b->stop;
$a->safe_psql('postgres', "INSERT INTO $s.users (name) SELECT repeat('x', 1000) FROM generate_series(1, 12000)");
$limit->(8192);
moves_ok($a, $b, 5, [], 1, 'the target fills up', qr/again and again/);
nothing_left_ok($_, 'fills up') for $a, $b;
still_here_ok('fills up');

done_testing();
