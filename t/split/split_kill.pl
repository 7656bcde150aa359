# kill -9 of the tool, of the source and of the standby, at each step of a split.
# Whatever dies, and wherever: no shard is open on both servers, and those that stay
# are open on the source; the same command again comes to the end, or abort to the
# beginning, until the promotion; no row that a client was told of is lost, ids
# go on rising, and nothing is left behind.  Others who promote: split_promoted.pl.
#
# All of it with SNOWID_MOVE_KILL=all, which takes minutes; else as kills() says.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run;
use MoveTest;
use SplitTest;
use Test::More;

# Where, as kill_at() says; who is killed; and what is typed then.
my @points = (
	[ [ 'source', 'claimed', 1 ], ['tool'], 'abort', 'split' ],
	[ [ 'source', 'fenced', 0 ], [ 'tool', 'source' ], 'abort', 'split' ],
	[ [ 'source', 'fenced', 1 ], [ 'tool', 'source', 'target' ], 'abort', 'split' ],
	[ [ 'source', 'replayed', 1 ], [ 'tool', 'source', 'target' ], 'abort', 'split' ],
	[ [ 'target', 'fenced', 0, 3 ], [ 'tool', 'source', 'target' ], 'abort, too late' ],
	[ [ 'target', 'open', 0 ], ['tool'], 'abort, too late' ],
	[ [ 'target', 'open', 1 ], [ 'tool', 'source', 'target' ], 'abort, too late' ],
	[ [ 'source', 'moved', 0 ], [ 'tool', 'source' ], 'abort, too late' ]);
my @cases;
for my $point (@points)
{
	my ($where, $victims, @ends) = @$point;
	for my $victim (@$victims)
	{
		push @cases, [ $where, $victim, $_ ] for @ends;
	}
}
my @few = ([ $points[2][0], 'source', 'abort' ], [ $points[3][0], 'target', 'split' ], [ $points[4][0], 'tool', 'abort, too late' ]);
for my $case (kills(\@cases, \@few))
{
	my ($where, $victim, $end) = @$case;
	my ($side, $step, $in_commit) = @$where;

	subtest "$victim killed at \"$step\" of the $side" . ($in_commit ? "'s commit" : '') . ", then $end" => sub {
		my ($a, $b) = fresh_split();
		kill_at($where, $victim);
		if ($end eq 'abort, too late')
		{
			my ($code, $said) = snowid_move($a, $b, '1-2', 'abort');
			like($said, qr/has been promoted, and this cannot be undone/, 'too late to abort') or diag $code;
			$end = 'split';
		}
		end_with($end);
	};
}

# The source ends the session that closes the set: the split goes on.
subtest 'session ended' => sub {
	my ($a, $b) = fresh_split();
	my $hold = hold_at_step($a, 'fenced', 1);
	my $said = '';
	my $tool = IPC::Run::start([ move_command($a, $b, '1-2', 'split', @limits) ], '>', \$said, '2>&1');
	wait_until_held($a) or die "does not get there: $said";
	is($a->safe_psql('postgres', q{SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND objid = 47 AND NOT granted}),
		'1', 'session ended');
	$hold->quit;
	$tool->finish;
	is($? >> 8, 0, 'exit status') or diag $said;
	like($said, qr/now live at/, 'the set is on the target');
	let_go_steps($_) for $a, $b;
	end_with('split');
};

done_testing();
