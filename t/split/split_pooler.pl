# Behind PgBouncer, clients notice nothing of a split: those of the set go on at the new
# primary, those of the rest where they are; also if the program is killed in the pause.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PoolerTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use SplitTest;
use Test::More;

plan skip_all => 'pgbouncer is not installed' unless have_pgbouncer();

my ($source, $target) = split_pair('pooler');
$source->safe_psql('postgres', q{UPDATE snowid.shard_registry SET pool = 'set' WHERE shard IN (1, 2)});
my $p = start_pooler($source);
my @options = pooler_options($p);
my ($set, $rest) = (clients($p, 'set', 0, 1, 2), clients($p, 'insta3', 0, 3));

sub killed_ok
{
	my ($name, @more) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $run = IPC::Run::start([ move_command($source, $target, '1-2', 'split', @options, @more) ], '>', \my $out, '2>', \my $err);

	if (!@more)
	{
		wait_until_held($source) or die "does not get there: $err";
		$run->signal('KILL');
		$run->finish;
		$source->safe_psql('postgres', q{
SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = 47 AND NOT granted});
	}
	else
	{
		$run->finish;
		is($? & 127, 9, "$name: killed") or diag $err;
	}
	like(led_to($p, 'set'), qr/ paused/, "$name: the pool stays paused");
	return;
}

like((snowid_move($source, $target, '1', 'plan', @options))[1], qr/FAILED +poolers: pool "set" has shards in two places/, 'plan: a part of a pool');
my $hold = hold_at_step($source, 'fenced', 0);
killed_ok('before the decision');
$hold->{run}->kill_kill;
let_go_steps($source);
my $pid = slurp_file("$p->{dir}/pid") + 0;
kill 'STOP', $pid;
moves_ok($source, $target, '1-2', ['abort'], 1, 'abort while the pooler gives no answer', qr/may be paused still at a pooler/);
kill 'CONT', $pid;
moves_ok($source, $target, '1-2', [ 'abort', @options ], 0, 'abort', qr/clients that were paused at the poolers go on/);
is(led_to($p, 'set'), $source->port, 'the pool leads to the source');

killed_ok('after the promotion', '--pooler-command', 'kill -9 $PPID; :');
moves_ok($source, $target, '1-2', [ 'split', @options ], 0, 'the same command');
is_deeply([ led_to($p, 'set'), led_to($p, 'insta3') ], [ $target->port, $source->port ], 'each pool leads to where its shards are');
clients_ok('the set', $target, [$set], qr/^$/);
clients_ok('the rest', $source, [$rest], qr/^$/);
moves_ok($source, $target, '1-2', [ 'finish', @options ], 0, 'finish');

$_->stop for $target, $source;
done_testing();
