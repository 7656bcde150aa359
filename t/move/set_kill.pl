# The move of a set is killed, or one of its servers, at each step, with shards in two
# batches, of which the first is handed over by turns.  Each shard accepts writes on
# one server at most; the same command, or abort, comes to an end; and each row that
# a client was told of is there, once.
#
# All of it with SNOWID_MOVE_KILL=all, which takes minutes; else as kills() says.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run;
use MoveTest;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b');
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;

my $rows;				# of all shards that clients were told of
my @shards = (1, 2, 5, 6, 7, 8);
my $set = '1-2,5-8';
my @steps = (
	[ 'source', 'claimed' ], [ 'target', 'schema' ], [ 'target', 'rows' ], [ 'target', 'subscribed', 1 ], [ 'source', 'copied' ], [ 'source', 'verified', 1 ],
	[ 'target', 'ready', 1 ], [ 'source', 'fenced', 1 ], [ 'target', 'open', 1 ], [ 'source', 'moved', 1 ]);
my @victims = ('tool', 'source', 'target');
my @ends = ([ 1, 'move' ], [ 5, 'move' ], [ 6, 'move' ], [ 2, 'abort' ]);
my @cases;
for my $i (0 .. $#steps)
{
	my ($side, $step, $in_commit) = @{ $steps[$i] };

	# By turns, each victim dies at each shard.
	push @cases, [ $side, $step, $in_commit // 0, $ends[$_][0], $victims[ ($i + $_) % 3 ], $ends[$_][1] ] for 0 .. $#ends;
}
kill_at(@$_) for kills(\@cases, [ @cases[ 13, 29, 33 ] ]);
done_testing();

# The shards are moved from a to b, whatever happens, and back by the next case.
sub kill_at
{
	my ($side, $step, $in_commit, $shard, $victim, $end) = @_;
	my $name = "$victim killed as shard $shard is \"$step\" on the $side" . ($in_commit ? ' for the others' : '') . ", then $end";

	return subtest $name => sub {
		begin();
		my $held = $side eq 'source' ? $a : $b;
		my $hold = hold_at_step($held, $step, $in_commit, $shard);
		my $said = '';
		my $tool = IPC::Run::start(
			[ move_command($a, $b, $set, '--batch', 3, '--pause-limit', 60000, '--lock-timeout', 60000, '--retries', 0) ], '>&', \$said);
		wait_until_held($held) or die 'does not get there';
		if ($victim eq 'tool')
		{
			$tool->kill_kill;
			$hold->{run}->kill_kill;
		}
		else
		{
			my $node = $victim eq 'source' ? $a : $b;

			crash($node);
			$hold->{run}->kill_kill;
			$tool->finish;
			isnt($? >> 8, 0, 'it says so') or diag $said;
			$node->start;
		}
		let_go_steps($held);

		# Each shard accepts writes on one server at most.
		my %open;
		for my $node ($a, $b)
		{
			my $script = join "\n", "SET lock_timeout = '10s';", map { "INSERT INTO insta$_.users (name) VALUES ('$step');\n\\echo $_ :SQLSTATE" } @shards;
			my ($stdout, $stderr) = ('', '');
			$node->psql('postgres', $script, stdout => \$stdout, stderr => \$stderr, on_error_stop => 0);
			$open{$_}++ for $stdout =~ /^(\d+) 00000$/mg;
			is(scalar(() = $stdout =~ /^\d+ \w{5}$/mg), scalar(@shards), 'each is asked');
		}
		cmp_ok($open{$_} // 0, '<=', 1, "shard $_ is open once at most") for @shards;
		$rows += $_ for values %open;

		# What is given late holds for the shards that are decided already, too.
		my $keeps = $end eq 'move' && $shard == 1 && $step ne 'moved';
		(my $code, $said) = snowid_move($a, $b, $set, $end, $keeps ? '--keep-name' : ());
		is($a->safe_psql('postgres', q{SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'insta%\_moved'}), 0, 'the copies keep their names') if $keeps;
		is($code, $said =~ /cannot be aborted now: decided/ ? 3 : $said =~ /cannot be aborted now/ ? 1 : 0, 'it comes to an end') or diag $said;
		moves_ok($a, $b, $set, [ '--batch', 3 ], 0, 'all are moved', qr/6 of 6 shards have moved/) if $end eq 'abort';
		is(living($b), join(',', @shards), 'all are there');
		moves_ok($a, $b, $set, ['finish'], 0, 'finished');
		nothing_left_ok($_, 'finished') for $a, $b;
		is($b->safe_psql('postgres', join ' UNION ALL ', map { "SELECT $_ WHERE insta$_.next_id() <= (SELECT max(id) FROM insta$_.users)" } @shards),
			'', 'ids rise');
		is(count_rows($b), $rows, 'each row that a client was told of is there, once');
		($a, $b) = ($b, $a);
	};
}

# All shards live on a, and nothing of them is on b.
sub begin
{
	if (living($a) ne join ',', @shards)
	{
		fresh_set($a, $b);
		$a->safe_psql('postgres', 'SELECT snowid.drop_shard(shard, cascade => true) FROM generate_series(3, 4) shard');
	}
	$b->safe_psql('postgres', 'DELETE FROM snowid.shard_registry');
	$rows = count_rows($a);
	return;
}

sub count_rows
{
	my ($node) = @_;
	return $node->safe_psql('postgres', 'SELECT ' . join(' + ', map { "(SELECT count(*) FROM insta$_.users)" } @shards));
}
