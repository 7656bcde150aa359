# kill -9 of the tool, of the source and of the target, at each step that the
# journal records, and of the target while it copies many tables.  Whatever dies,
# and wherever: never do two servers accept writes; the same command again, or
# abort, comes to one clean end; no row is lost, ids go on rising, and nothing is
# left behind.
#
# All of it with SNOWID_MOVE_KILL=all, which takes minutes; else as kills() says.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run;
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

# Side, step, and whether to stop in the COMMIT that records it.
my @steps = (
	[ 'source', 'claimed' ], [ 'target', 'claimed' ], [ 'source', 'published' ], [ 'target', 'schema' ], [ 'target', 'rows' ], [ 'target', 'rows', 1 ],
	[ 'target', 'subscribed' ], [ 'target', 'subscribed', 1 ], [ 'target', 'copied' ], [ 'source', 'copied' ],
	[ 'source', 'verified' ], [ 'target', 'ready' ], [ 'target', 'open' ], [ 'source', 'fenced' ],
	[ 'source', 'fenced', 1 ], [ 'target', 'open', 1 ], [ 'source', 'moved' ], [ 'source', 'moved', 1 ]);
my @cases;				# with victim and end
for my $step (@steps)
{
	for my $victim ('tool', 'source', 'target')
	{
		push @cases, [ @$step[ 0, 1 ], $step->[2] // 0, $victim, $_ ] for 'move', 'abort';
	}
}
my @few = ([ 'target', 'subscribed', 1, 'tool', 'abort' ], [ 'source', 'fenced', 1, 'tool', 'abort' ], [ 'target', 'open', 1, 'tool', 'move' ]);

my $a = move_node('a');
my $b = move_node('b');
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;
my $s = 'insta5';		# each case begins with shard 5 on a, and nothing on b

# Where the shard is and where it goes to, its rows, and its newest id.
my ($source, $target, $rows, $newest);

kill_at(@$_) for kills(\@cases, \@few);

# The target dies when so many tables are there: once at one of them, or with
# all at each third.
kill_in_copy($_) for kills([ map { 3 * $_ } 1 .. 12 ], [9]);

done_testing();

# Each case stands alone.
sub begin
{
	($source, $target) = ($a, $b);
	fresh_shard($source, $target);
	$rows = $source->safe_psql('postgres', "SELECT count(*) FROM $s.users");
	$newest = $source->safe_psql('postgres', "SELECT max(id) FROM $s.users");
	return;
}

sub kill_in_copy
{
	my ($count) = @_;

	return subtest "target killed with $count tables copied" => sub {
		begin();
		$source->safe_psql('postgres', qq{
SELECT format('CREATE TABLE $s.t%s AS SELECT $s.next_id() AS id, 1 AS n FROM generate_series(1, 3)', i),
	format('ALTER TABLE $s.t%s ADD PRIMARY KEY (id)', i) FROM generate_series(1, 40) i \\gexec});
		my $tool = IPC::Run::start([ move_command($source, $target, 5, '--stop-after', 'copied') ], '>&', '/dev/null');

		$target->poll_query_until('postgres', qq{
SELECT count(*) >= $count FROM pg_class WHERE relnamespace = to_regnamespace('insta5') AND relkind = 'r' AND pg_relation_size(oid) > 0}) or die 'does not get there';
		crash($target);
		$target->start;
		$tool->finish;
		ok(!accepts_writes($target), 'it is closed');
		write_to($source, 'killed');
		moves_ok($source, $target, 5, [ '--verify', 'checksums' ], 0, 'it comes to an end', qr/no difference/);
		moves_ok($source, $target, 5, ['finish'], 0, 'finished');
		($source, $target) = ($target, $source);
		nothing_left_ok($_, 'finished') for $source, $target;
		write_to($source, 'finished');
	};
}

sub kill_at
{
	my ($side, $step, $in_commit, $victim, $end) = @_;

	return subtest "$victim killed at \"$step\" of the $side" . ($in_commit ? "'s commit" : '') . ", then $end" => sub {
		begin();
		my $held = $side eq 'source' ? $source : $target;
		my $hold = hold_at_step($held, $step, $in_commit);
		my $said = '';

		# No limit is to end what the test holds up.
		my $tool = IPC::Run::start(
			[ move_command($source, $target, 5, '--pause-limit', 60000, '--lock-timeout', 60000, '--retries', 0) ],
			'>', \$said, '2>&1');
		wait_until_held($held) or die 'does not get there';

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
		cmp_ok(scalar @open, '<=', 1, 'one server accepts writes, if any');
		write_to($open[0], 'killed') if @open;

		my ($code, $out) = snowid_move($source, $target, 5, $end);
		if ($end eq 'abort' && $out =~ /cannot be aborted now: (decided|moved)/ && $code == ($1 eq 'moved' ? 1 : 3))
		{
			ok(1, 'too late to abort');
			($code, $out) = snowid_move($source, $target, 5);
		}
		is($code, 0, 'it comes to an end') or diag "$said\n-- then:\n$out";

		my $is_moved = $out !~ /is undone|nothing to abort/;
		if ($is_moved)
		{
			moves_ok($source, $target, 5, ['finish'], 0, 'finished');
			($source, $target) = ($target, $source);
		}
		nothing_left_ok($_, 'the end') for $source, $target;
		ok(!accepts_writes($target), 'the one server is closed');
		write_to($source, 'the end');
		is($source->safe_psql('postgres', "SELECT count(*) FROM $s.users"), $rows, 'no row is lost, or more');
	};
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
