# The program is killed while the clients of PgBouncer wait, before the decision, after
# it, and before the pooler has the new file; the pooler and a server are killed, too.
# The clients wait, as no error says, until the same command, "abort" or "status" lets
# them go on.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PoolerTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(usleep);

plan skip_all => 'pgbouncer is not installed' unless have_pgbouncer();

my $a = move_node('a');
my $b = move_node('b');
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;
fresh_shard($a, $b);
my $p = start_pooler($a);
my @options = pooler_options($p);
my $none = qr/^$/;

# Run a command that is held at a step of a server, and kill it there; its clients wait.
sub kill_in_pause
{
	my ($name, $at, $in_commit, $step, $command, @more) = @_;
	my $hold = hold_at_step($at, $step, $in_commit);
	my $run = IPC::Run::start([ move_command($a, $b, 5, $command, @options, @more) ], '>', \my $out, '2>', \my $err);

	wait_until_held($at) or die "does not get there: $err";
	$run->signal('KILL');
	$run->finish;
	$at->safe_psql('postgres', q{
SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = 47 AND NOT granted});
	$hold->{run}->kill_kill;
	let_go_steps($at);
	like(led_to($p, 'insta5'), qr/ paused/, "$name: the pool stays paused");
	cmp_ok(login_retry($p), '<', 0.01, "$name: server_login_retry is not put back");
	return;
}

# That command makes the clients go on, on the server, without an error.
sub ends_ok
{
	my ($name, $clients, $node, $code, @command) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	moves_ok($a, $b, 5, \@command, $code, $name);
	is(led_to($p, 'insta5'), $node->port, "$name: the pool leads to where the shard is");
	is(login_retry($p), 15, "$name: server_login_retry is put back");
	clients_ok($name, $node, $clients, $none);
	return;
}

subtest 'before the decision' => sub {
	my @clients = clients($p, 'insta5', 0, 5);
	kill_in_pause('status', $a, 0, 'fenced', 'move');
	ends_ok('status', \@clients, $a, 1, 'status');
	@clients = clients($p, 'insta5', 0, 5);

	# Another pooler of the journal is dead, and so the pools are resumed twice.
	my $other = start_pooler($a, 'server_login_retry = 50', $p->{file});
	kill_in_pause('another', $a, 0, 'fenced', 'move', '--pooler', console($other));
	moves_ok($a, $b, 5, ['status'], 1, 'status');
	is(login_retry($other), 50, 'server_login_retry is what it was there');
	kill_in_pause('abort', $a, 0, 'fenced', 'move', '--pooler', console($other));
	stop_pooler($other, 'KILL');
	moves_ok($a, $b, 5, ['abort'], 3, 'abort', qr/warning: the pooler at .*$other->{dir} .*: its pools may be paused\n.*detail: connection .*: Connection refused\n.*hint: .* or there: RESUME "insta5"; SET server_login_retry = '15'; or.*error: the clients of shard 5 may be paused still at a pooler, or led elsewhere\n.*with the --pooler of each/s);
	my ($sql) = moves_ok($a, $b, 5, ['abort'], 3, 'again') =~ /gone for good, type at .*: (UPDATE .*); and then/ or die;
	$a->safe_psql('postgres', $sql);
	ends_ok('then', \@clients, $a, 0, 'abort');
};

# A journal keeps no password: whoever has none ends no pause, and forgets none.
subtest 'a console that needs a password' => sub {
	my @clients = clients($p, 'insta5', 0, 5);
	my ($ini, $users) = map { slurp_file("$p->{dir}/$_") } qw(ini users);
	my $write = sub { my ($file, $text) = @_; unlink "$p->{dir}/$file"; append_to_file("$p->{dir}/$file", $text) };
	kill_in_pause('password', $a, 0, 'fenced', 'move');
	$write->(ini => $ini . "auth_type = plain\n");
	$write->(users => $users =~ s/""$/"secret"/mr);
	system_or_bail('psql', '-Xqc', 'RELOAD', console($p));
	for (['status', 1], ['abort', 3])
	{
		my $said = moves_ok($a, $b, 5, [ $_->[0] ], $_->[1], "$_->[0] without it", qr/its pools may be paused\n.*detail: .*password.*hint: Type the command with its --pooler, and password/s);
		unlike($said, qr/clients .*go on/, '... does not say that clients go on');
		local $ENV{PGPASSWORD} = 'secret';
		like(led_to($p, 'insta5'), qr/ paused/, '... and they do not');
	}
	moves_ok($a, $b, 5, [ 'abort', '--pooler', console($p) . ' password=secret', '--pooler-file', $p->{file} ], 0, 'abort with it', qr/clients that were paused at the poolers go on/);
	clients_ok('password', $a, \@clients, $none);
	$write->(ini => $ini);
	$write->(users => $users);
	{
		local $ENV{PGPASSWORD} = 'secret';
		system_or_bail('psql', '-Xqc', 'RELOAD', console($p));
	}
	is(led_to($p, 'insta5'), $a->port, 'the pool is not paused');
};

# What the program can still do, it does: a signal waits until the pause is over, and
# an error ends it.
subtest 'ended before the decision' => sub {
	# Whoever runs the tests in the background may ignore it.
	local $SIG{INT} = 'DEFAULT';
	my @clients = clients($p, 'insta5', 0, 5);
	my $hold = hold_at_step($a, 'fenced', 0);
	my $run = IPC::Run::start([ move_command($a, $b, 5, @options) ], '>', \my $out, '2>', \my $err);
	wait_until_held($a) or die "does not get there: $err";
	$run->signal('INT');
	$a->safe_psql('postgres', q{
SELECT pg_cancel_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = 47 AND NOT granted});
	$run->finish;
	is($? & 127, 2, 'Ctrl-C') or diag $err;
	is(led_to($p, 'insta5'), $a->port, '... lets the clients go on first');
	$hold->{run}->kill_kill;
	let_go_steps($a);
	$hold = hold_at_step($b, 'ready', 0);
	$run = IPC::Run::start([ move_command($a, $b, 5, @options) ], '>', \$out, '2>', \$err);
	wait_until_held($b) or die "does not get there: $err";
	crash($b);
	$hold->{run}->kill_kill;
	$run->finish;
	is($? >> 8, 1, 'the target crashes') or diag $err;
	is(led_to($p, 'insta5'), $a->port, '... and the clients go on');
	$b->start;
	let_go_steps($b);
	ends_ok('the same command', \@clients, $b, 0, @options);
	moves_ok($a, $b, 5, [ 'finish', @options ], 0, 'finish');
	fresh_shard($a, $b);
	write_entries($p, $a);
	system_or_bail('psql', '-Xqc', 'RELOAD', console($p));
};

subtest 'after the decision' => sub {
	my @clients = clients($p, 'insta5', 0, 5);
	kill_in_pause('decided', $b, 1, 'open', 'move', '--reverse');
	moves_ok($a, $b, 5, ['status'], 1, 'status', qr/decided, but not complete/);
	like(led_to($p, 'insta5'), qr/ paused/, 'status does not send clients to a closed shard');
	ends_ok('move', \@clients, $b, 0, 'move', @options);
};

subtest 'the way back' => sub {
	my @clients = clients($p, 'insta5', 0, 5);
	kill_in_pause('undecided', $b, 0, 'fenced', 'back');
	ends_ok('status', \@clients, $b, 1, 'status');
	@clients = clients($p, 'insta5', 0, 5);
	my $run = IPC::Run::start([ move_command($a, $b, 5, 'back', @options, '--pooler-command', 'kill -9 $PPID; :') ], '>', \my $out, '2>', \my $err);
	$run->finish;
	is($? & 127, 9, 'killed when the shard was open, and the pooler not led there') or diag $err;
	like(led_to($p, 'insta5'), qr/ paused/, 'the clients wait');
	ends_ok('back', \@clients, $a, 0, 'back', @options);
	moves_ok($a, $b, 5, [ 'finish', @options ], 0, 'finish');
};

subtest 'the pooler is killed' => sub {
	stop_pooler($p, 'KILL');
	moves_ok($a, $b, 5, [ 'plan', @options ], 1, 'plan', qr/FAILED +poolers: no connection to .*: connection to server .* failed: .*admin_users/s);
	restart_pooler($p);
	my $pid = slurp_file("$p->{dir}/pid") + 0;
	moves_ok($a, $b, 5, [ @options, '--pooler-command', "kill -9 $pid; :" ], 3, 'in the pause',
		qr/warning: the pooler at .* gives no answer: its pools may be paused, and not lead to .*hint: Type the command with its --pooler.*now lives at/s);
	lives_on_ok($b, $a, 'the decision stands');
	moves_ok($a, $b, 5, ['finish'], 1, 'finish does not forget it', qr/error: the clients of shard 5 may be paused still at a pooler, or led elsewhere.*gone for good, type at/s);
	restart_pooler($p);
	ends_ok('the same command', [ clients($p, 'insta5', 0, 5) ], $b, 0, @options);
	moves_ok($a, $b, 5, [ 'finish', @options ], 0, 'finish');
};

# What a signal means depends on the version: to end at once, or when servers or clients have ended.
subtest 'the pooler is told to end' => sub {
	for my $signal ('INT', 'TERM')
	{
		fresh_shard($a, $b);
		write_entries($p, $a);
		system_or_bail('psql', '-Xqc', 'RELOAD', console($p));
		moves_ok($a, $b, 5, [ @options, '--stop-after', 'copied' ], 0, 'copied');
		my $pid = slurp_file("$p->{dir}/pid") + 0;
		my ($in, $out) = ("BEGIN;\nINSERT INTO insta5.users (name) VALUES ('slow') RETURNING 'open';\n", '');
		my $slow = IPC::Run::start([ 'psql', '-XAtq', '-d', pooled($p, 'insta5') ], '<', \$in, '>', \$out, '2>', \my $lost);
		$slow->pump until $out =~ /open/;
		kill $signal, $pid;
		moves_ok($a, $b, 5, [ @options, '--verify', 'none', '--pause-limit', 300 ], 1, "$signal: a client goes on", 
			qr/error: (the pooler at .*: connection to |.* does not pause pool "insta5": already .*paused; .* told it to end: .*type there: RESUME; or start it again|pool "insta5" .* is held by client)/);
		$in .= "COMMIT;\n";
		finish $slow;
		kill 'KILL', $pid;
		usleep(10_000) while kill 0, $pid;
		restart_pooler($p);
		$pid = slurp_file("$p->{dir}/pid") + 0;
		my ($code, $said) = snowid_move($a, $b, 5, @options, '--pooler-command', "kill -$signal $pid; :");
		like("$code $said", qr/^(0|3 .*hint: (Its clients get SN001|Type the command with its --pooler)).*now lives at/s, "$signal: in the pause");
		kill 'KILL', $pid;
		usleep(10_000) while kill 0, $pid;
		restart_pooler($p);
		ends_ok("$signal: the same command", [ clients($p, 'insta5', 0, 5) ], $b, 0, @options);
		moves_ok($a, $b, 5, [ 'finish', @options ], 0, 'finish');
	}
};

subtest 'who reads the messages goes' => sub {
	fresh_shard($a, $b);
	write_entries($p, $a);
	system_or_bail('psql', '-Xqc', 'RELOAD', console($p));
	moves_ok($a, $b, 5, [ @options, '--stop-after', 'copied' ], 0, 'copied');
	unlike(moves_ok($a, $b, 5, [ 'abort', @options ], 0, 'abort'), qr/may be paused/, 'no word of a pause that was none');
	IPC::Run::run([ 'sh', '-c', q("$@" 2>&1 | sed '/locked after/q'), 'sh', 'perl', '-e', '$SIG{PIPE} = "DEFAULT"; exec @ARGV', move_command($a, $b, 5, '-v', @options) ], '>', \my $out);
	like($out, qr/locked after/, 'in the pause');
	is(led_to($p, 'insta5'), $b->port, 'the move goes on, and the pool with it');
	moves_ok($a, $b, 5, [ 'finish', @options ], 0, 'finish');
};

subtest 'a server is killed' => sub {
	fresh_shard($a, $b);
	write_entries($p, $a);
	system_or_bail('psql', '-Xqc', 'RELOAD', console($p));
	my $hold = hold_at_step($a, 'fenced', 0);
	my @clients = clients($p, 'insta5', 0, 5);
	my $run = IPC::Run::start([ move_command($a, $b, 5, @options) ], '>', \my $out, '2>', \my $err);
	wait_until_held($a) or die "does not get there: $err";
	crash($a);
	$hold->{run}->kill_kill;
	$run->finish;
	isnt($? >> 8, 0, 'the program gives up') or diag $err;
	$a->start;
	let_go_steps($a);
	moves_ok($a, $b, 5, [@options], 0, 'the same command');
	is(led_to($p, 'insta5'), $b->port, 'the pool leads to where the shard is');
	# What a crash of that server does to a connection, and no more.
	clients_ok('crash', $b, \@clients, qr/server conn crashed|terminating connection|server closed the connection|exit 2|connect(ion)? failed|08P01|57P01/);
};

$_->stop for $a, $b;
done_testing();
