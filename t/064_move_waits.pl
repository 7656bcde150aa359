# Whatever snowid-move waits for longer than some seconds it names, and an abort
# does not wait for it: a transaction that began to write after the move had its
# slot and before the tables have theirs, a lock on the target, other moves that
# have all the workers.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b');
$_->start for $a, $b;
my $s = make_shard($a, 5, 'insta5');
$b->safe_psql('postgres', 'CREATE EXTENSION snowid');

# Start a move, and wait until it says something.
sub says_ok
{
	my ($pattern, $name, $meanwhile, @options) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $said = '';
	my $tool = IPC::Run::start([ move_command($a, $b, 5, @options) ], '>&', \$said,
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));

	$meanwhile->() if $meanwhile;
	ok(eval { $tool->pump until $said =~ $pattern; 1 }, $name) or diag $said;
	return ($tool, \$said);
}

# A transaction that writes, elsewhere in that server, as the tables are copied.
my $hold = hold_at_step($b, 'subscribed', 1);
my $writer = $a->background_psql('postgres');
my ($tool) = says_ok(qr/source: the copy of a table waits for process \d+ of \S+, in a transaction since/, 'a transaction is named',
	sub {
		wait_until_held($b) or die 'does not get there';
		$writer->query_safe('BEGIN; SELECT pg_current_xact_id()');
		$hold->quit;
		let_go_steps($b);
	});
$tool->kill_kill;
moves_ok($a, $b, 5, ['abort'], 0, 'an abort does not wait for it', qr/is undone/);
is($writer->query_safe('SELECT 1'), '1', 'which is still open');
nothing_left_ok($_, 'aborted') for $a, $b;

# The slot itself waits for it, too.
($tool) = says_ok(qr/source: waiting for process \d+ of \S+, in a transaction since/, 'it is named before the copy');
$writer->query_safe('COMMIT');
$tool->finish;
is($? >> 8, 0, 'and then it goes on');
moves_ok($a, $b, 5, ['finish'], 0, 'finished');
($a, $b) = ($b, $a);

# A lock on the target.
moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
my $locker = $b->background_psql('postgres');
$locker->query_safe("BEGIN; LOCK TABLE $s.users");
$a->safe_psql('postgres', "INSERT INTO $s.users (name) SELECT repeat('x', 1000) FROM generate_series(1, 2000)");
($tool) = says_ok(qr/target: replication waits for process \d+ of \S+, in a transaction since/, 'a lock on the target is named',
	undef, '--max-lag', '1kB', '--verify', 'none');
$locker->query_safe('COMMIT');
$tool->finish;
is($? >> 8, 0, 'and then it goes on');
moves_ok($a, $b, 5, ['finish'], 0, 'finished');
($a, $b) = ($b, $a);
$_->quit for $writer, $locker;

# No worker is left: while the move was about to begin, others took them all.
$b->append_conf('postgresql.conf', q{
max_logical_replication_workers = 3
wal_retrieve_retry_interval = 100ms
});
$b->restart;
$a->safe_psql('postgres', 'CREATE TABLE other (id int PRIMARY KEY); CREATE PUBLICATION other FOR TABLE other');
$b->safe_psql('postgres', 'CREATE TABLE other (id int PRIMARY KEY)');
my $from = $a->connstr('postgres') =~ s/'/''/gr;
$hold = hold_at_step($b, 'subscribed', 0);
($tool) = says_ok(qr/target: no worker is free for the copy: 3 of max_logical_replication_workers = 3 are at work, for 4 subscriptions/,
	'missing workers are named',
	sub {
		wait_until_held($b) or die 'does not get there';
		$b->safe_psql('postgres', "CREATE SUBSCRIPTION o$_ CONNECTION '$from' PUBLICATION other WITH (copy_data = false)") for 1 .. 3;
		$b->poll_query_until('postgres', q{SELECT count(*) = 3 FROM pg_stat_subscription WHERE pid IS NOT NULL})
		  or die 'they do not start';
		$hold->quit;
	});
let_go_steps($b);
$b->safe_psql('postgres', "DROP SUBSCRIPTION o$_") for 1 .. 3;
$tool->finish;
is($? >> 8, 0, 'and then it goes on');

$_->stop for $a, $b;

# Four moves at once, on a target with the settings of initdb: max_logical_replication_workers
# is 4.  If each subscription had a worker, none would be left to copy a table; and
# each would have, after a launcher that is late.  Without more walsenders on the
# source, the fourth is refused if the others have claimed theirs before it looks.
($a, $b) = map { move_node($_) } 'c', 'd';
$a->append_conf('postgresql.conf', "max_wal_senders = 20\nmax_replication_slots = 20");
$_->start for $a, $b;
make_shard($a, $_, "insta$_") for 1 .. 4;
$b->safe_psql('postgres', 'CREATE EXTENSION snowid');
for my $shard (1 .. 4)
{
	$a->safe_psql('postgres', "SELECT format('CREATE TABLE insta$shard.t%s (id int PRIMARY KEY)', n) FROM generate_series(1, 6) n \\gexec");
}

# One of them begins its copy at a time; who dies as he does that leaves the turn to the others.
$a->safe_psql('postgres', q{CALL snowid.create_shards(6, 7, ddl => 'CREATE TABLE t (id bigint PRIMARY KEY DEFAULT next_id())')});
$hold = hold_at_step($b, 'subscribed', 0, 6);
my $first = IPC::Run::start([ move_command($a, $b, 6) ], '>&', '/dev/null');
wait_until_held($b) or die 'does not get there';
my $waits = '';
my $second = IPC::Run::start([ move_command($a, $b, 7) ], '>&', \$waits, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
ok(eval { $second->pump until $waits =~ /target: waiting for a worker: another move begins its copy/; 1 }, 'who waits for his turn says so') or diag $waits;
$first->kill_kill;
$hold->quit;
ok(eval { $second->finish; $? == 0 }, 'it comes once the other has died') or diag $waits;
let_go_steps($b);
moves_ok($a, $b, 6, [], 0, 'who has died goes on', qr/going on after step "published"/);
moves_ok($a, $b, '6-7', ['finish'], 0, 'finished');

my ($launcher) = $b->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'logical replication launcher'});
kill STOP => $launcher;
my %said = map { $_ => '' } 1 .. 4;
my %tools = map {
	$_ => IPC::Run::start([ move_command($a, $b, $_, '--retries', 50) ], '>&', \$said{$_},
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default))
} 1 .. 4;
$b->poll_query_until('postgres', 'SELECT count(*) > 1 FROM pg_subscription') or die 'they do not begin';
ok(eval { $tools{$_}->pump until $said{$_} =~ /waiting for a worker|waiting for process|worker is free|0 of \d+ tables/; 1 }, "move $_ is under way")
  or diag $said{$_}
  for 1 .. 4;
kill CONT => $launcher;
for (1 .. 4)
{
	ok(eval { $tools{$_}->finish; $? == 0 }, "move $_ has ended well") or diag $said{$_};
}
is($b->safe_psql('postgres', q{SELECT count(*) FROM snowid.shards WHERE lives = 'here' AND shard <= 4}), 4, 'all live there');
like(join('', values %said), qr/target: waiting for a worker: 2 subscriptions have those of max_logical_replication_workers = 4/, 'who waits for a worker says so');

done_testing();
