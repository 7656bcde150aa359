# kill -9 of the tool, of the source and of the target, at each step that the
# journal records.  Whatever dies, and wherever: never do two servers accept
# writes; the same command again, or abort, comes to one clean end; no row is
# lost, ids go on rising, and nothing is left behind.
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

if (($ENV{SNOWID_MOVE_KILL} // '') ne 'all')
{
	@steps = ([ 'target', 'subscribed', 1 ], [ 'source', 'fenced', 1 ], [ 'target', 'open', 1 ]);
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
		for my $end (@ends)
		{
			kill_at(@$step[ 0, 1 ], $step->[2] // 0, $victim, $end);
		}
	}
}
$_->stop for $source, $target;
done_testing();

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
