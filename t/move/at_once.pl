# Moves at once to a target with the settings of initdb: max_logical_replication_workers
# is 4.  One of them begins its copy at a time, and who waits for his turn, or for
# a worker, says so.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run;
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

# Without more walsenders on the source, the fourth is refused if the others have
# claimed theirs before it looks.
my $a = move_node('a');
my $b = move_node('b');
$a->append_conf('postgresql.conf', "max_wal_senders = 20\nmax_replication_slots = 20");
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;

# Who dies as he begins his copy leaves the turn to the others.
subtest 'two, of which one dies' => sub {
	fresh_shard($a, $b);
	$a->safe_psql('postgres', q{CALL snowid.create_shards(6, 7, ddl => 'CREATE TABLE t (id bigint PRIMARY KEY DEFAULT next_id())')});
	my $hold = hold_at_step($b, 'subscribed', 0, 6);
	my $first = IPC::Run::start([ move_command($a, $b, 6) ], '>&', '/dev/null');
	wait_until_held($b) or die 'does not get there';
	my $waits = '';
	my $second = IPC::Run::start([ move_command($a, $b, 7) ], '>&', \$waits,
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	ok(eval { $second->pump until $waits =~ /target: waiting for a worker: another move begins its copy/; 1 },
		'who waits for his turn says so')
	  or diag $waits;
	$first->kill_kill;
	$hold->quit;
	ok(eval { $second->finish; $? == 0 }, 'it comes once the other has died') or diag $waits;
	let_go_steps($b);
	moves_ok($a, $b, 6, [], 0, 'who has died goes on', qr/going on after step "published"/);
	moves_ok($a, $b, '6-7', ['finish'], 0, 'finished');
};

# If each subscription had a worker, none would be left to copy a table; and each
# would have, after a launcher that is late.
subtest 'four' => sub {
	fresh_shard($a, $b);
	for my $shard (1 .. 4)
	{
		make_shard($a, $shard, "insta$shard");
		$a->safe_psql('postgres', "SELECT format('CREATE TABLE insta$shard.t%s (id int PRIMARY KEY)', n) FROM generate_series(1, 6) n \\gexec");
	}

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
	like(join('', values %said), qr/target: waiting for a worker: 2 subscriptions have those of max_logical_replication_workers = 4/,
		'who waits for a worker says so');
	moves_ok($a, $b, '1-4', ['finish'], 0, 'finished');
};

done_testing();
