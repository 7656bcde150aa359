# A split whose standby does not do what it is told: it does not replay the decision
# in time, or does not become a primary.  Then the set is closed or open, but never
# in two places, and what may happen later is reckoned with.
#
# With SNOWID_MOVE_KILL=all, the promotion's limit is waited for: a minute.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run;
use MoveTest;
use POSIX qw(mkfifo);
use PostgreSQL::Test::Utils;
use SnowidTest;
use SplitTest;
use Test::More;

my ($a, $b) = split_pair('slow');
my $set = '1-2';
my $said = '';

# The decision is not replayed within the pause limit.
my $hold = hold_at_step($a, 'fenced', 1);
my $tool = IPC::Run::start([ move_command($a, $b, $set, 'split', '--pause-limit', 8000) ], '>', \$said, '2>&1');
wait_until_held($a) or die "does not get there: $said";
is(read_only($b), 'on', 'the target would take no writes if somebody promoted it');
$b->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
$b->poll_query_until('postgres', q{SELECT pg_get_wal_replay_pause_state() = 'paused'}) or die 'not paused';
$hold->quit;
$tool->finish;
is($? >> 8, 1, 'not replayed in time: exit status');
like($said, qr/did not replay the decision in time.*The set is open on the source again/s, 'not replayed in time: said');
let_go_steps($a);
is(living($a), '1,2,3,4', 'not replayed in time: all live on the source');
is($b->safe_psql('postgres', 'SELECT pg_is_in_recovery()') . read_only($b), 'toff', 'not replayed in time: the target is as before');
$b->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
moves_ok($a, $b, $set, ['status'], 1, 'not replayed in time: status', qr/under way, and not decided/);

# The target is told to become a primary, and does not, for now: its archive is a
# FIFO that nobody writes to.  It may become one at any time.
my $block = $b->basedir . '/block';
mkfifo($block, 0700) or die "no FIFO: $!";
$b->append_conf('postgresql.conf', "restore_command = 'cat $block; false'");
$b->reload;
$tool = IPC::Run::start([ move_command($a, $b, $set, 'split', '--pause-limit', 60000) ], '>', \$said, '2>&1');
$b->wait_for_log(qr/received promote request/);
if (($ENV{SNOWID_MOVE_KILL} // '') eq 'all')
{
	$tool->finish;
	is($? >> 8, 3, 'no primary: exit status');
	like($said, qr/the target does not become a primary.*restart it as a standby/s, 'no primary: said');
}
$tool->kill_kill;
moves_ok($a, $b, $set, ['status'], 1, 'no primary: status', qr/told to become a primary, and is still a standby/);
moves_ok($a, $b, $set, ['abort'], 3, 'no primary: no abort, since it may be one later', qr/can do so at any time.*restart it as a standby/s);
is(living($a) . read_only($b), '3,4on', 'no primary: the set is closed, and the target would take no writes');

# Restarted, it is a standby that nobody has told anything.  With one of the two
# servers only, the exit status says that the set is closed.
$b->append_conf('postgresql.conf', "restore_command = ''");
$b->stop;
unlink $block;
moves_ok($a, $b, $set, [$_], 3, "no target: $_", qr/the target must be reachable/) for 'split', 'abort';
moves_ok($a, $b, $set, ['status'], 1, 'no target: status', qr/the set is closed on the source; only the target knows whether it is promoted/);
$b->start;
$a->stop;
moves_ok($a, $b, $set, ['split'], 3, 'no source: split', qr/the source must be reachable until the target is promoted/);
$a->start;
moves_ok($a, $b, $set, ['abort'], 0, 'restarted: abort', qr/the split is undone/);
is(living($a), '1,2,3,4', 'restarted: all live on the source');
is($b->safe_psql('postgres', 'SELECT pg_is_in_recovery()') . read_only($b), 'toff', 'restarted: the target is as before');
nothing_left_but($a, 'standby_slow', 'restarted');

# Somebody promotes it before it has got the decision: it has all shards open, but
# takes no writes until the abort.
$a->wait_for_catchup($b);
$hold = hold_at_step($a, 'fenced', 1);
$tool = IPC::Run::start([ move_command($a, $b, $set, 'split', '--pause-limit', 60000) ], '>', \$said, '2>&1');
wait_until_held($a) or die "does not get there: $said";
$b->append_conf('postgresql.conf', "primary_conninfo = ''");
$b->reload;
$b->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_stat_wal_receiver') or die 'it streams';
$hold->quit;
$a->poll_query_until('postgres', q{SELECT bool_and(step = 'fenced') FROM snowid.moves}) or die 'not fenced';
$tool->kill_kill;
$b->promote;
moves_ok($a, $b, $set, ['status'], 1, 'promoted by others: status', qr/promoted without this decision, type: snowid-move abort --shard/);
moves_ok($a, $b, $set, ['split'], 3, 'promoted by others: split', qr/has been promoted, but not for this split.*It is a second copy of all shards/s);
is(sqlstate($b, q{INSERT INTO insta1.users (name) VALUES ('x')}), '25006', 'promoted by others: it takes no writes');
let_go_steps($a);
moves_ok($a, $b, $set, ['abort'], 0, 'promoted by others: abort', qr/the split is undone/);
is(living($a), '1,2,3,4', 'promoted by others: all live on the source');
done_testing();
