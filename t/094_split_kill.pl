# kill -9 of the tool, of the source and of the standby, at each step of a split.
# Whatever dies, and wherever: no shard is open on both servers, and those that stay
# are open on the source; the same command again comes to the end, or abort to the
# beginning, until the promotion; no row that a client was told of is lost, ids
# go on rising, and nothing is left behind.  And others who promote.
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
use SplitTest;
use Test::More;

my @limits = ('--pause-limit', 60000, '--lock-timeout', 1000);
my $set = '1-2';
my $pairs = 0;
my (%newest, %rows);

# Where: side, step, whether in its commit, of which shard; and who is killed.
# "replayed" is between the fence's commit and its replay.
my @before = (
	[ [ 'source', 'claimed', 1 ], 'tool' ],
	[ [ 'source', 'fenced', 0 ], 'tool', 'source' ],
	[ [ 'source', 'fenced', 1 ], 'tool', 'source', 'target' ],
	[ [ 'source', 'replayed', 1 ], 'tool', 'source', 'target' ]);
my @after = (
	[ [ 'target', 'fenced', 0, 3 ], 'tool', 'source', 'target' ],
	[ [ 'target', 'open', 0 ], 'tool' ],
	[ [ 'target', 'open', 1 ], 'tool', 'source', 'target' ],
	[ [ 'source', 'moved', 0 ], 'tool', 'source' ]);
my $all = ($ENV{SNOWID_MOVE_KILL} // '') eq 'all';
if (!$all)
{
	@before = ([ [ 'source', 'fenced', 1 ], 'source' ], [ [ 'source', 'replayed', 1 ], 'target' ]);
	@after = ([ [ 'target', 'fenced', 0, 3 ], 'tool' ]);
}

my ($a, $b) = fresh_pair();

# What can be undone: both ends.  The pair stays one after abort.
for my $point (@before)
{
	my ($where, @victims) = @$point;

	for my $victim (@victims)
	{
		for my $end ($all ? ('abort', 'split') : $victim eq 'source' ? 'abort' : 'split')
		{
			my $name = kill_at($where, $victim);
			end_with($name, $end);
		}
	}
}
for my $point (@after)
{
	my ($where, @victims) = @$point;

	for my $victim (@victims)
	{
		my $name = kill_at($where, $victim);
		my ($code, $said) = snowid_move($a, $b, $set, 'abort');
		like($said, qr/has been promoted, and this cannot be undone/, "$name: too late to abort") or diag $code;
		end_with($name, 'split');
	}
}

# The source ends the session that closes the set: the split goes on.
{
	my $hold = hold_at_step($a, 'fenced', 1);
	my $said = '';
	my $tool = IPC::Run::start([ move_command($a, $b, $set, 'split', @limits) ], '>', \$said, '2>&1');
	wait_until_held($a) or die "does not get there: $said";
	is($a->safe_psql('postgres', q{SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND objid = 47 AND NOT granted}),
		'1', 'session ended');
	$hold->quit;
	$tool->finish;
	is($? >> 8, 0, 'session ended: exit status') or diag $said;
	like($said, qr/now live at/, 'session ended: the set is on the target');
	let_go_steps($_) for $a, $b;
	end_with('session ended', 'split');
}

# The source is gone when the target has been promoted: the target gets its set.
my $name = kill_at([ 'target', 'fenced', 0, 3 ], 'tool');
crash($a);
is(sqlstate($b, q{INSERT INTO insta3.users (name) VALUES ('x')}), '25006', 'source gone: nobody writes what stays on the target');
moves_ok($a, $b, $set, ['status'], 0, 'source gone: status', qr/promoted, but the split is not complete/);
moves_ok($a, $b, $set, [ 'split', @limits ], 3, 'source gone: the set is opened', qr/now live at .*the source cannot be reached/s);
is(living($b), '1,2', 'source gone: there is nothing else');
is(sqlstate($b, q{SELECT insta3.next_id()}), 'SN001', 'source gone: nor ids of what stays');
$a->start;
end_with($name, 'split');

# Somebody else promotes the standby: before the decision ...
$name = kill_at([ 'source', 'fenced', 0 ], 'tool');
is(read_only($b), 'on', 'promoted by others: it is read-only');
$b->promote;
is(sqlstate($b, q{INSERT INTO insta1.users (name) VALUES ('x')}), '25006', 'promoted by others: it takes no writes');
moves_ok($a, $b, $set, ['split'], 1, 'promoted by others: split', qr/FAILED +target is a standby of the source: it is a primary/);
moves_ok($a, $b, $set, ['abort'], 0, 'promoted by others: abort', qr/the split is undone/);
write_to($a, $_, 'promoted by others') for 1 .. 4;
new_standby();

# ... or with the decision undone, of which it has not heard: an old copy is not opened.
$name = kill_at([ 'source', 'replayed', 1 ], 'tool');
$a->wait_for_catchup($b);
$b->append_conf('postgresql.conf', "primary_conninfo = ''");
$b->reload;
$b->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_stat_wal_receiver') or die 'it streams';
moves_ok($a, $b, $set, ['abort'], 0, 'promoted with an old decision: abort', qr/the split is undone/);
crash($a);
$b->promote;
moves_ok($a, $b, $set, ['split'], 3, 'promoted with an old decision: split', qr/was not promoted by this program/);
is(sqlstate($b, q{INSERT INTO insta1.users (name) VALUES ('x')}), 'SN001', 'promoted with an old decision: the set is closed there');
$a->start;
write_to($a, $_, 'promoted with an old decision') for 1 .. 4;
moves_ok($a, $b, $set, ['status'], 0, 'promoted with an old decision: status');
new_standby();

# The source fails over, with the set closed, to another standby, which has that.
my $c = make_standby($a, 'c');
$name = kill_at([ 'source', 'replayed', 1 ], 'tool');
$a->wait_for_catchup($_) for $b, $c;
crash($a);
$c->promote;
moves_ok($c, $b, $set, [ 'split', @limits ], 0, 'fail-over of the source: the split goes on with the new one', qr/now live at/);
is(living($c) . ' ' . living($b), '3,4 1,2', 'fail-over of the source: each has its own');
moves_ok($c, $b, $set, ['finish'], 0, 'fail-over of the source: finish');
write_to($c, 3, 'fail-over of the source');
write_to($b, 1, 'fail-over of the source');
$_->stop for $b, $c;
done_testing();

# A server with shards 1 to 4, its standby; and what clients were told of them.
sub fresh_pair
{
	my ($primary, $standby) = split_pair('kill' . $pairs++);

	%newest = map { $_ => $primary->safe_psql('postgres', "SELECT max(id) FROM insta$_.users") } 1 .. 4;
	%rows = map { $_ => 0 } 1 .. 4;
	return ($primary, $standby);
}

# The set comes back, as new shards, and there is a new standby.
sub new_standby
{
	$b->stop('immediate');
	$a->safe_psql('postgres', q{SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots});
	$b = make_standby($a, 'kill' . $pairs++);
	return;
}

sub renew
{
	$a->safe_psql('postgres', 'DELETE FROM snowid.shard_registry WHERE shard IN (1, 2)');
	for (1, 2)
	{
		make_shard($a, $_, "insta$_");
		$newest{$_} = $a->safe_psql('postgres', "SELECT max(id) FROM insta$_.users");
		$rows{$_} = 0;
	}
	new_standby();
	return;
}

# Run the split and kill somebody at a step; then start who was killed.
sub kill_at
{
	my ($where, $victim) = @_;
	my ($side, $step, $in_commit, $shard) = @$where;
	my $name = "$victim killed at \"$step\" of the $side" . ($in_commit ? "'s commit" : '');
	my $held = $side eq 'source' ? $a : $b;
	my $hold = hold_at_step($a, $step eq 'replayed' ? 'fenced' : $step, $in_commit, $shard);
	my $said = '';

	# What is held on the target is held by a lock that is taken there.
	if ($side eq 'target')
	{
		$hold->quit;
		$a->wait_for_catchup($b);
		$hold = $b->background_psql('postgres');
		$hold->query_safe('SELECT pg_advisory_lock(47)');
	}
	my $tool = IPC::Run::start([ move_command($a, $b, $set, 'split', @limits) ], '>', \$said, '2>&1');
	wait_until_held($held) or die "$name: does not get there: $said";
	if ($step eq 'replayed')
	{
		$b->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
		$b->poll_query_until('postgres', q{SELECT pg_get_wal_replay_pause_state() = 'paused'}) or die 'not paused';
		$hold->quit;
		$a->poll_query_until('postgres', q{SELECT bool_and(step = 'fenced') FROM snowid.moves}) or die 'not fenced';
	}
	if ($victim eq 'tool')
	{
		$tool->kill_kill;
	}
	else
	{
		crash($victim eq 'source' ? $a : $b);
	}
	$hold->{run}->kill_kill;
	if ($victim ne 'tool')
	{
		$tool->finish;
		my $code = $? >> 8;

		# Only the source knows whether the set is closed there.
		is($code . read_only($b), '3on', "$name: the target is left read-only") if $victim eq 'source' && "$side $step" eq 'source fenced';
		($victim eq 'source' ? $a : $b)->start;
		my $is_closed = $a->safe_psql('postgres', 'SELECT count(*) FROM snowid.moves WHERE closed') > 0;
		ok($code == 3 || ($code == 1 && !$is_closed) || ($code == 0 && $side eq 'target'), "$name: exit status $code") or diag $said;
	}
	$b->safe_psql('postgres', 'SELECT CASE WHEN pg_is_in_recovery() THEN pg_wal_replay_resume()::text END');
	for my $node ($a, $b)
	{
		let_go_steps($node) if $node->safe_psql('postgres', 'SELECT pg_is_in_recovery()') eq 'f';
	}

	if ($b->safe_psql('postgres', 'SELECT pg_is_in_recovery()') eq 't')
	{
		$b->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_stat_wal_receiver WHERE status = 'streaming'}) or die 'does not stream';
	}

	# Who is open where.
	for my $shard (1 .. 4)
	{
		my @open = grep { accepts_writes($_, $shard) } $a, $b;
		cmp_ok(scalar @open, '<=', 1, "$name: shard $shard is open on one server, if any");
		ok(@open == 1 && $open[0] == $a, "$name: shard $shard stays open on the source") if $shard > 2;
		write_to($open[0], $shard, $name) if @open;
	}
	moves_ok($a, $b, $set, ['status'], 0, "$name: status");
	return $name;
}

# Come to an end, and look that all is there, and nothing else.
sub end_with
{
	my ($name, $end) = @_;

	$name .= ", then $end";
	if ($end eq 'abort')
	{
		moves_ok($a, $b, $set, ['abort'], 0, $name, qr/the split is undone|nothing to abort/);
		is(living($a), '1,2,3,4', "$name: all live on the source");
		is(read_only($b), 'off', "$name: the standby is as before");
		write_to($a, $_, $name) for 1 .. 4;
		check_rows($a, $_, $name) for 1 .. 4;
		$a->wait_for_catchup($b);
		return;
	}
	moves_ok($a, $b, $set, [ 'split', @limits ], 0, $name);
	is(living($a) . ' ' . living($b), '3,4 1,2', "$name: each has its own");
	is(read_only($b), 'off', "$name: the target takes writes");
	moves_ok($a, $b, $set, ['finish'], 0, "$name: finished");
	nothing_left_ok($_, $name) for $a, $b;
	write_to($b, $_, $name) for 1, 2;
	write_to($a, $_, $name) for 3, 4;
	check_rows($b, $_, $name) for 1, 2;
	check_rows($a, $_, $name) for 3, 4;
	renew();
	return;
}

# Does the server accept a write now?
sub accepts_writes
{
	my ($node, $shard) = @_;
	return sqlstate($node, "SET lock_timeout = '2s'; BEGIN; INSERT INTO insta$shard.users (name) VALUES ('probe'); ROLLBACK") eq '';
}

# A row whose id must be above all before.
sub write_to
{
	my ($node, $shard, $name) = @_;
	my $id = $node->safe_psql('postgres', "INSERT INTO insta$shard.users (name) VALUES ('row') RETURNING id");

	cmp_ok($id, '>', $newest{$shard}, "$name: ids of shard $shard rise");
	$newest{$shard} = $id;
	$rows{$shard}++;
	return;
}

sub check_rows
{
	my ($node, $shard, $name) = @_;
	is($node->safe_psql('postgres', "SELECT count(*) FROM insta$shard.users WHERE name = 'row'"), $rows{$shard}, "$name: all rows of shard $shard are there");
	return;
}
