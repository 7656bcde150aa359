# kill -9 of the tool, of the source and of the target, at each step that the
# journal records, and of the target while it copies many tables.  Whatever dies,
# and wherever: never do two servers accept writes; the same command again, or
# abort, comes to one clean end; no row is lost, ids go on rising, and nothing is
# left behind.
#
# All of it with SNOWID_MOVE_KILL=all, which takes minutes; else a few.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run;
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

# Side, step, and whether to stop in the COMMIT that records it.
my @steps = (
	[ 'source', 'claimed' ], [ 'target', 'claimed' ], [ 'target', 'schema' ], [ 'source', 'published' ],
	[ 'target', 'subscribed' ], [ 'target', 'subscribed', 1 ], [ 'target', 'copied' ], [ 'source', 'copied' ],
	[ 'source', 'verified' ], [ 'target', 'ready' ], [ 'target', 'open' ], [ 'source', 'fenced' ],
	[ 'source', 'fenced', 1 ], [ 'target', 'open', 1 ], [ 'source', 'moved' ], [ 'source', 'moved', 1 ]);
my @victims = ('tool', 'source', 'target');
my @ends = ('move', 'abort');

my $all = ($ENV{SNOWID_MOVE_KILL} // '') eq 'all';
if (!$all)
{
	@steps = ([ 'target', 'subscribed', 1, 'abort' ], [ 'source', 'fenced', 1, 'abort' ], [ 'target', 'open', 1, 'move' ]);
	@victims = ('tool');
}

my $source = move_node('a');
my $target = move_node('b');
$_->start for $source, $target;
$target->safe_psql('postgres', 'CREATE EXTENSION snowid');
my $s = make_shard($source, 5, 'insta5');
my $rows = $source->safe_psql('postgres', "SELECT count(*) FROM $s.users");
my $newest = $source->safe_psql('postgres', "SELECT max(id) FROM $s.users");

for my $step (@steps)
{
	for my $victim (@victims)
	{
		for my $end ($all ? @ends : $step->[3])
		{
			kill_at(@$step[ 0, 1 ], $step->[2] // 0, $victim, $end);
		}
	}
}

# The target dies when so many tables are there: once at one of them, or with
# all at each third.
$source->safe_psql('postgres', qq{
SELECT format('CREATE TABLE $s.t%s AS SELECT $s.next_id() AS id, 1 AS n FROM generate_series(1, 3)', i),
	format('ALTER TABLE $s.t%s ADD PRIMARY KEY (id)', i) FROM generate_series(1, 40) i \\gexec});
my @counts = map { 3 * $_ } 1 .. 12;
@counts = (9) if !$all;
kill_in_copy($_) for @counts;

# A crash loses the commit that says that a table is complete, and the table's
# slot on the source is dropped already.  What is then under way is noted for its
# shard alone, since the others of its batch may go on without it.  That is a matter of microseconds, so it
# is made: the table waits to be complete behind a row that is locked.
$source->safe_psql('postgres', q{CALL snowid.create_shards(6, 6, ddl => 'CREATE TABLE users (id bigint PRIMARY KEY DEFAULT next_id())')});
my $hold = $target->background_psql('postgres');
my $said = '';
my $tool = IPC::Run::start([ move_command($source, $target, '5-6', '--stop-after', 'copied') ], '>&', \$said);
my $state = q{(SELECT srsubstate FROM pg_subscription_rel WHERE srrelid = 'insta5.%s'::regclass)};
$target->poll_query_until('postgres', q{SELECT to_regclass('insta5.t40') IS NOT NULL}) or die 'no schema';
$hold->query_safe("BEGIN; LOCK TABLE $s.t40 IN SHARE ROW EXCLUSIVE MODE");
$target->poll_query_until('postgres', 'SELECT ' . sprintf($state, 'users') . q{ = 'r'}) or die 'not copied';
my $second = $target->background_psql('postgres');
$second->query_safe("BEGIN; LOCK TABLE $s.users IN SHARE ROW EXCLUSIVE MODE");
$source->safe_psql('postgres', "UPDATE $s.users SET photos = 1");
$hold->query_safe('COMMIT');
$target->poll_query_until('postgres', 'SELECT ' . sprintf($state, 't40') . q{ = 'f'}) or die 'not in between';

# While a worker lives that can still commit that, the table is not copied anew,
# however often the tool looks.
my $table = $target->safe_psql('postgres', "SELECT '$s.t40'::regclass::oid");
my $slot = $source->safe_psql('postgres', qq{SELECT slot_name FROM pg_replication_slots WHERE slot_name LIKE 'pg\\_%\\_sync\\_${table}\\_%'});
my $log = -s $target->logfile;
$target->safe_psql('postgres', $_) for 'ALTER SYSTEM SET log_min_duration_statement = 0', 'SELECT pg_reload_conf()';
$source->safe_psql('postgres', "SELECT pg_drop_replication_slot('$slot')");
$target->wait_for_log(qr/srsubstate = 'f'.*srsubstate = 'f'/s, $log);
$tool->pump_nb;
unlike($said, qr/copying table .* again/, 'a worker lives whose slot is gone: it is waited for');
$target->safe_psql('postgres', 'ALTER SYSTEM RESET log_min_duration_statement');

# What the worker commits is flushed later: by this at the latest.
$target->safe_psql('postgres', q{SELECT pg_logical_emit_message(true, 'flush', '')});
$tool->kill_kill;
crash($target);
$_->{run}->kill_kill for $hold, $second;
$target->start;

# That others write to a table that is copied already is no progress.
my $script = PostgreSQL::Test::Utils::tempdir() . '/insert';
append_to_file($script, "INSERT INTO $s.users (name) VALUES (repeat('x', 1000));\n");
my $inserter = IPC::Run::start(
	[ 'pgbench', '-n', '-R', 200, '-T', 600, '-f', $script, $source->connstr('postgres') ], '>&', '/dev/null');
my $open = $source->background_psql('postgres');
$open->query_safe("BEGIN; UPDATE $s.t40 SET n = 2");
$said = '';
my $copy_until = sub {
	my ($message, $name) = @_;

	$tool = IPC::Run::start([ move_command($source, $target, '5-6', '--stop-after', 'copied') ], '>&', \$said,
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	ok(eval { $tool->pump until $said =~ $message; 1 }, "a slot that is gone: $name") or diag $said;
};
$copy_until->(qr/copying table insta5\.t40 again.*waiting for transactions that are writing to table insta5\.t40/s,
	'the table is copied anew, when nobody is writing to it');
$tool->kill_kill;
is($source->safe_psql('postgres', q{SELECT string_agg(shard::text, ',') FROM snowid.moves WHERE details ? 'copied_anew'}),
	5, 'a slot that is gone: noted for its shard');
$said = '';
$copy_until->(qr/waiting for transactions that are writing to table insta5\.t40/, 'the same command goes on');
$open->query_safe('COMMIT');
$open->quit;
$tool->finish;
is($? >> 8, 0, 'a slot that is gone: copied') or diag $said;
is($source->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'INSERT %'}),
	1, 'a slot that is gone: while others write');
$inserter->kill_kill;
moves_ok($source, $target, '5-6', [ '--verify', 'checksums' ], 0, 'a slot that is gone: moved', qr/no difference/);
moves_ok($source, $target, '5-6', ['finish'], 0, 'finished');
nothing_left_ok($_, 'a slot that is gone') for $source, $target;
$_->stop for $source, $target;
done_testing();

sub kill_in_copy
{
	my ($count) = @_;
	my $name = "target killed with $count tables copied";
	my $tool = IPC::Run::start([ move_command($source, $target, 5, '--stop-after', 'copied') ], '>&', '/dev/null');

	$target->poll_query_until('postgres', qq{
SELECT count(*) >= $count FROM pg_subscription_rel WHERE srsubstate IN ('s', 'r')}) or die "$name: does not get there";
	crash($target);
	$tool->finish;
	$target->start;
	ok(!accepts_writes($target), "$name: it is closed");
	write_to($source, $name);
	moves_ok($source, $target, 5, [ '--verify', 'checksums' ], 0, "$name: it comes to an end", qr/no difference/);
	moves_ok($source, $target, 5, ['finish'], 0, "$name: finished");
	($source, $target) = ($target, $source);
	nothing_left_ok($_, $name) for $source, $target;
	write_to($source, $name);
	$target->safe_psql('postgres', 'DELETE FROM snowid.shard_registry');
	return;
}

sub kill_at
{
	my ($side, $step, $in_commit, $victim, $end) = @_;
	my $name = "$victim killed at \"$step\" of the $side" . ($in_commit ? "'s commit" : '') . ", then $end";
	my $held = $side eq 'source' ? $source : $target;
	my $hold = hold_at_step($held, $step, $in_commit);
	my $said = '';

	# No limit is to end what the test holds up.
	my $tool = IPC::Run::start(
		[ move_command($source, $target, 5, '--pause-limit', 60000, '--lock-timeout', 60000, '--retries', 0) ],
		'>', \$said, '2>&1');
	wait_until_held($held) or die "$name: does not get there";

	if ($victim eq 'tool')
	{
		$tool->kill_kill;
	}
	else
	{
		crash($victim eq 'source' ? $source : $target);
	}
	$hold->{run}->kill_kill;
	$tool->finish if $victim ne 'tool';
	($victim eq 'source' ? $source : $target)->start if $victim ne 'tool';
	let_go_steps($held);

	my @open = grep { accepts_writes($_) } $source, $target;
	cmp_ok(scalar @open, '<=', 1, "$name: one server accepts writes, if any");
	write_to($open[0], $name) if @open;

	my ($code, $out) = snowid_move($source, $target, 5, $end);
	if ($end eq 'abort' && $code == 1 && $out =~ /has been opened/)
	{
		ok(1, "$name: too late to abort");
		($code, $out) = snowid_move($source, $target, 5);
	}
	is($code, 0, "$name: it comes to an end") or diag "$said\n-- then:\n$out";

	my $is_moved = $out !~ /is undone|nothing to abort/;
	if ($is_moved)
	{
		moves_ok($source, $target, 5, ['finish'], 0, "$name: finished");
		($source, $target) = ($target, $source);
	}
	nothing_left_ok($_, $name) for $source, $target;
	ok(!accepts_writes($target), "$name: the one server is closed");
	write_to($source, $name);
	is($source->safe_psql('postgres', "SELECT count(*) FROM $s.users"), $rows, "$name: no row is lost, or more");

	# Nothing is to be found there but what a new move brings.
	$target->safe_psql('postgres', 'DELETE FROM snowid.shard_registry');
	return;
}

# Does the server accept a write now?  Waiting for a lock is not accepting.
sub accepts_writes
{
	my ($node) = @_;
	return sqlstate($node, "SET lock_timeout = '2s'; BEGIN; INSERT INTO $s.users (name) VALUES ('probe'); ROLLBACK") eq '';
}

# A row whose id must be above all before.
sub write_to
{
	my ($node, $name) = @_;
	my $id = $node->safe_psql('postgres', "INSERT INTO $s.users (name) VALUES ('row') RETURNING id");

	cmp_ok($id, '>', $newest, "$name: ids rise");
	$newest = $id;
	$rows++;
	return;
}
