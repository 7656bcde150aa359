# What is in the way of a script for a while does not stop it: locks, servers that
# are down, a move, a standby that is behind, and whatever kills the program.  In
# the end each shard has it, once.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use EachTest;
use MoveTest qw(snowid_move);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my ($a, $b) = each_pair(allows_streaming => 1);
my $n = 0;

# Start the program with a script that leaves a row in runs in each shard.
sub start_each
{
	my (@args) = @_;
	my $run = { said => '' };

	$run->{name} = 'n' . ++$n;
	$_->safe_psql('postgres', 'SET synchronous_commit = local; TRUNCATE runs') for grep { $_->{_pid} } $a, $b;
	my @command = each_command($a, '--name', $run->{name}, '--file',
		script_file('ALTER TABLE photos ALTER n SET DEFAULT 1; INSERT INTO runs SELECT current_schema'), @args);
	$run->{run} = IPC::Run::start(\@command, '>', \$run->{said}, '2>&1');
	return $run;
}

sub ledgers
{
	my ($run) = @_;
	return each_ok($a, 1, qr//, 'status') =~ /^$run->{name}\n((?:  .*\n)+)/m ? $1 : '';
}

# Wait until the program has said that; it says what it waits for every ten seconds.
sub wait_for_said
{
	my ($run, $text) = @_;
	return pump_until($run->{run}, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default), \$run->{said}, $text);
}

sub wait_for_runs
{
	my ($node, $count) = @_;
	return $node->poll_query_until('postgres', "SELECT count(*) >= $count FROM runs");
}

subtest 'locked shards' => sub {
	my @holders = map { $_->background_psql('postgres') } $a, $b;
	$holders[0]->query_safe('BEGIN; LOCK TABLE insta3.photos IN ACCESS SHARE MODE');
	$holders[1]->query_safe('BEGIN; LOCK TABLE insta13.photos, insta14.photos IN ACCESS SHARE MODE');
	my $run = start_each('--lock-timeout', 100, '--jobs', 2);
	wait_for_runs($a, 9);
	wait_for_runs($b, 8);
	is(ledgers($run), "  done: 17 shards: 0-2,4-12,15-19\n  not begun: 3 shards: 3,13-14\n", 'the others go on');
	ok(wait_for_said($run, qr/: \d+ of 20 shards, on 2 servers; 0 failed, \d+ s left; waiting: shard (3|13|14): .*; process \d+ .*holds AccessShareLock/),
		'it tells how far it is, and what it waits for');
	$_->query_safe('COMMIT') for @holders;
	ok($run->{run}->finish, 'done when their holders end');
	is(runs($a, $b), '20 20', 'each once');

	$holders[0]->query_safe('BEGIN; LOCK TABLE insta3.photos IN ACCESS SHARE MODE');
	each_ok($a, 1, qr/failed\n  statement 1, line 1: canceling statement due to lock timeout; process \d+ of \S+, idle in transaction for \d+ s, holds AccessShareLock on insta3.photos: 1 shard: 3/, '--name', 'short', '--lock-timeout', 100,
		'--wait', 0, '--file', script_file('ALTER TABLE photos ALTER n SET DEFAULT 2'));
	each_ok($a, 1, qr/canceling statement due to statement timeout: 20 shards/, '--name', 'long', '--statement-timeout', 10,
		'--file', script_file(q{DO 'BEGIN LOOP END LOOP; END'}));
	$_->quit for @holders;

	# Deadlocks, and transactions that cannot be serialized.
	$_->safe_psql('postgres', 'CREATE SEQUENCE public.tries') for $a, $b;
	each_ok($a, 0, qr/20 shards done/, '--name', 'again', '--file', script_file(q{DO $$
DECLARE try bigint := nextval('public.tries') % 3;
BEGIN
	IF try > 0 THEN RAISE EXCEPTION USING ERRCODE = CASE try WHEN 1 THEN '40001' ELSE '40P01' END; END IF;
END $$}));
	is($_->safe_psql('postgres', 'SELECT last_value >= 30 FROM public.tries'), 't', 'other transient errors are tried again') for $a, $b;
};

subtest 'a server that is down' => sub {
	$b->safe_psql('postgres', 'TRUNCATE runs');
	$b->stop;
	my $run = start_each();
	wait_for_runs($a, 10);
	ok(wait_for_said($run, qr/waiting: shard 1\d: connection to server/), 'it says what it waits for');
	$b->start;
	ok($run->{run}->finish, 'done when it is up again');
	is(runs($a, $b), '20 20', 'each once');
	$b->stop;
	each_ok($a, 1, qr/10 shards done.*failed\n  connection to server .*: 10 shards: 10-19/s, '--name', 'down', '--wait', 0,
		'--file', script_file('SELECT 1'));
	each_ok($a, 1, qr/error: host=.*connection to server.*^down\n  done: 10 shards: 0-9\n  not known: 10 shards: 10-19$/ms, 'status');
	each_ok($a, 1, qr/error: host=.*connection to server/, 'diff');
	each_ok($a, 1, qr/0 shards done in .*, 10 had it before, 10 are left\nfailed\n  connection to server .*: 10 shards: 10-19/, '--name', 'down', '--wait', 0);
	$b->start;
};

subtest 'the server with the registry restarts' => sub {
	my $holder = $b->background_psql('postgres');
	$holder->query_safe('BEGIN; LOCK TABLE insta13.photos IN ACCESS SHARE MODE');
	my $run = start_each('--lock-timeout', 100);
	wait_for_runs($a, 10);
	$a->restart;
	$a->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query ^@ 'SELECT shard, home FROM snowid'});
	$holder->quit;
	ok($run->{run}->finish, 'it goes on');
	is(runs($a, $b), '20 20', 'each once');
};

# The workers; the program, which they outlive; and all, in their commits.
subtest 'kill -9' => sub {
	my $end = sub {
		my ($run, $case, $let_go) = @_;
		my $program = $run->{run}->{KIDS}->[0]->{PID};
		my @workers = split ' ', `ps -o pid= --ppid $program`;

		is(scalar @workers, 4, "$case: there are workers");
		kill 'KILL', $case eq 'the program' ? () : @workers, $case eq 'workers' ? () : $program;

		# Their sessions may commit after all.
		$let_go->();
		$run->{run}->finish;
		my ($code, $said) = snowid_each(each_args($a), '--name', $run->{name});
		is($code, 0, "$case: the same command goes on") or diag $said;
		is(runs($a, $b), '20 20', "$case: each once");
	};

	$_->safe_psql('postgres', q{
CREATE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.s IN ('insta4', 'insta14') THEN PERFORM pg_advisory_xact_lock_shared(47); END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER hold BEFORE INSERT ON runs FOR EACH ROW EXECUTE FUNCTION hold()}) for $a, $b;
	for my $case ('workers', 'the program')
	{
		my @hold = map { my $h = $_->background_psql('postgres'); $h->query_safe('SELECT pg_advisory_lock(47)'); $h } $a, $b;
		my $run = start_each('--lock-timeout', 60000, '--jobs', 2);
		$_->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND objid = 47 AND NOT granted}) for $a, $b;
		$end->($run, $case, sub { $_->quit for @hold });
	}
	$_->safe_psql('postgres', 'DROP TRIGGER hold ON runs') for $a, $b;

	my $standbys = sub {
		my ($names) = @_;
		for ($a, $b) { $_->append_conf('postgresql.conf', "synchronous_standby_names = '$names'"); $_->reload }
	};
	$standbys->('none');
	my $run = start_each('--jobs', 2);
	$_->poll_query_until('postgres', q{SELECT count(*) = 2 FROM pg_stat_activity WHERE wait_event = 'SyncRep'}) for $a, $b;
	$end->($run, 'all', sub { $standbys->('') });
};

subtest 'a move' => sub {
	my @move = ($a, $b, 7);
	is((snowid_move(@move, '--stop-after', 'copied'))[0], 0, 'a move is under way');
	my $run = start_each();
	wait_for_runs($a, 9);
	wait_for_runs($b, 10);
	is(ledgers($run), "  done: 19 shards: 0-6,8-19\n  not begun: 1 shard: 7\n", 'its shard is left for later');
	my ($code, $said) = snowid_move(@move);
	is($code, 0, 'the move goes on') or diag $said;
	ok($run->{run}->finish, 'done when it has arrived') or diag $run->{said};
	is(runs($a, $b), '20 20', 'each once');
	is($b->safe_psql('postgres', "SELECT count(*) FROM insta7.snowid_migrations WHERE name = '$run->{name}'"), 1, 'where it is now');
	is((snowid_move(@move, 'finish'))[0], 0, 'the copy is dropped');

	$a->safe_psql('postgres', 'SELECT snowid.fence_shard(2)');
	each_ok($a, 1, qr/19 shards done.*its server says where it is: closed: 1 shard: 2/s, '--name', 'closed', '--wait', 0,
		'--file', script_file('SELECT 1'));
	$a->safe_psql('postgres', 'SELECT snowid.unfence_shard(2)');
	each_ok($a, 0, qr/1 shards done/, '--name', 'closed');
};

subtest 'a standby that is behind' => sub {
	$a->backup('copy');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($a, 'copy', has_streaming => 1);
	$standby->start;
	$a->wait_for_catchup($standby);
	$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
	my $run = start_each('--max-lag', '1kB', '--jobs', 1);
	wait_for_runs($b, 11);
	cmp_ok($a->safe_psql('postgres', 'SELECT count(*) FROM runs'), '<', 9, 'it waits for it');
	$standby->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
	ok($run->{run}->finish, 'done when it follows');
	is(runs($a, $b), '20 20', 'each once');
	$_->safe_psql('postgres', 'CREATE ROLE lesser LOGIN') for $a, $b;
	my ($code, $said) = snowid_each('--registry', $a->connstr('postgres') . ' user=lesser', '--name', 'lag', '--max-lag', '1GB',
		'--file', script_file('SELECT 1'));
	is($code, 1, 'who may not see standbys');
	like($said, qr/GRANT pg_monitor TO lesser/, '... is told how');
	$standby->stop;
};

done_testing();
