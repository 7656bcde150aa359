# Who holds a move up: writers that do not let go, a locked catalog, a slow
# journal, a target that is behind, the program itself.  Each ends within its
# limits, with the shard where it was, written, and a message that says why.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b');
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;
my $s = 'insta5';		# each subject begins with its copy on b, and ends with an abort

sub subject
{
	my ($name, $code) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return subtest $name => sub {
		fresh_shard($a, $b);
		moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
		$code->();
		moves_ok($a, $b, 5, ['abort'], 0, 'aborted');
	};
}

# Given up within the limits, and the others have only waited.
subject 'a writer that does not let go' => sub {
	my $writer = $a->background_psql('postgres');
	$writer->query_safe("BEGIN; INSERT INTO $s.users (name) VALUES ('slow')");
	moves_ok($a, $b, 5, [ '--retries', 2, '--lock-timeout', 20 ], 1, 'a writer that does not let go', qr/could not/);
	lives_on_ok($a, $b, 'a writer');
	$writer->query_safe("COMMIT; BEGIN; SELECT $s.next_id()");
	moves_ok($a, $b, 5, [ '--retries', 2, '--lock-timeout', 20, '--verify', 'none' ], 1, 'one that has taken an id', qr/could not lock the shard/);
	$writer->query_safe('COMMIT');
	$writer->quit;
};

# It has not closed anything.
subject 'a session that is lost as it waits for the lock' => sub {
	my $writer = $a->background_psql('postgres');
	my $lost = '';

	$writer->query_safe("BEGIN; SELECT $s.next_id()");
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
	lives_on_ok($a, $b, 'a lost session');
	$writer->query_safe('COMMIT');
	$writer->quit;
};

# Killed as it waits for the sequence, it leaves nobody in the queue for ever.
subject 'a program that is killed as it waits' => sub {
	my $writer = $a->background_psql('postgres');

	$writer->query_safe("BEGIN; SELECT $s.next_id()");
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
	$writer->quit;
};

# The shard is not held closed while somebody locks a catalog ...
subject 'a locked catalog' => sub {
	my $locker = $a->background_psql('postgres');

	$locker->query_safe('BEGIN; LOCK TABLE pg_enum');
	moves_ok($a, $b, 5, [ '--retries', 0, '--verify', 'none' ], 1, 'a locked catalog', qr/the pause limit was reached/);
	lives_on_ok($a, $b, 'a locked catalog');
	$locker->query_safe('ROLLBACK');
	$locker->quit;
};

# ... nor while the target takes long to note what it has come to.
subject 'a slow journal' => sub {
	my $log_end = -s $a->logfile;
	my $slow = hold_at_step($b, 'ready', 0);
	my $late = '';
	my $slow_tool = IPC::Run::start(
		[ move_command($a, $b, 5, '--retries', 0, '--pause-limit', 5000, '--verify', 'none') ], '>&', \$late);
	wait_until_held($b) or die 'does not get there';
	$a->wait_for_log(qr/terminating connection due to (idle-in-transaction|transaction) timeout/, $log_end);
	lives_on_ok($a, $b, 'a slow journal');
	$slow->quit;
	$slow_tool->finish;
	is($? >> 8, 1, 'too late for the decision') or diag $late;
	like($late, qr/the pause limit was reached/, '... and it says so');
	let_go_steps($b);
};

# A target that cannot apply what has been written is waited for, but not long.
subject 'a target that is behind' => sub {
	my $blocker = $b->background_psql('postgres');

	$blocker->query_safe("BEGIN; LOCK TABLE $s.users");
	$a->safe_psql('postgres', "INSERT INTO $s.users (name) VALUES ('late')");
	moves_ok($a, $b, 5, [ '--retries', 0, '--pause-limit', 2000, '--verify', 'none' ], 1, 'a target that is behind', qr/did not catch up/);
	$blocker->query_safe('COMMIT');
	$blocker->quit;
	lives_on_ok($a, $b, 'behind');
};

# A program that is held up itself, in either pause, loses its session: the
# others wait no longer than the limit, and it tries again.
for my $verify ('none', 'counts')
{
	subtest "a stopped program, verify $verify" => sub {
		fresh_shard($a, $b);
		my $said = '';
		my $blocker = $b->background_psql('postgres');
		my $log = -s $a->logfile;

		moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
		$blocker->query_safe("BEGIN; LOCK TABLE $s.users");
		$a->safe_psql('postgres', "INSERT INTO $s.users (name) VALUES ('late')");
		my $tool = IPC::Run::start([ move_command($a, $b, 5, '--verbose', '--pause-limit', 2000, '--verify', $verify) ], '>&', \$said);

		# It may give up just before it is stopped, and is then let go.
		my $holds = qq{
SELECT count(*) = 1 FROM pg_stat_activity JOIN pg_locks USING (pid)
WHERE state = 'idle in transaction' AND relation = '$s.users'::regclass AND mode IN ('ShareLock', 'ShareRowExclusiveLock')};
		for (;;)
		{
			$a->poll_query_until('postgres', $holds) or die 'does not get there';
			$tool->signal('STOP');
			last if $a->safe_psql('postgres', $holds) eq 't';
			$tool->signal('CONT');
		}
		$a->wait_for_log(qr/terminating connection due to (idle-in-transaction|transaction) timeout/, $log);
		is(sqlstate($a, "INSERT INTO $s.users (name) VALUES ('here')"), '', 'stopped: it is written');
		$blocker->query_safe('COMMIT');
		$blocker->quit;
		$tool->signal('CONT');
		$tool->finish;
		is($? >> 8, 0, 'it goes on') or diag $said;
		like($said, qr/source: connected again/, '... after another attempt');
		moves_ok($a, $b, 5, ['finish'], 0, 'finished');
		nothing_left_ok($_, 'finished') for $a, $b;
	};
}

# A transaction elsewhere in the source's cluster holds the slot up.
subtest 'a long transaction' => sub {
	fresh_shard($a, $b);
	my $long = $a->background_psql('postgres');
	$long->query_safe('BEGIN; CREATE TABLE elsewhere ()');
	my $said = '';
	my $tool = IPC::Run::start([ move_command($a, $b, 5) ], '>', \$said, '2>&1');
	$a->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'CREATE_REPLICATION_SLOT%' AND state = 'active' AND wait_event_type = 'Lock'})
	  or die 'does not wait';
	lives_on_ok($a, $b, 'a long transaction');
	$long->query_safe('COMMIT');
	$long->quit;
	$tool->finish;
	is($? >> 8, 0, 'it goes on after a long transaction') or diag $said;
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
	nothing_left_ok($_, 'a long transaction') for $a, $b;
};

done_testing();
