# A set of shards in one command: moved in batches, handed over some at a time,
# while clients write to them.  A shard that cannot be moved is left where it is,
# and the others go on; the same command goes on after whatever has ended it.
# Nothing is lost and no id comes twice, by the ids that clients were told.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run;
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b');
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;

# Small shards, besides those that have all that a shard can have.
sub small_shards
{
	my ($node, $first, $last) = @_;
	$node->safe_psql('postgres', qq{
CALL snowid.create_shards($first, $last, ddl => \$\$
CREATE TABLE users (id bigint PRIMARY KEY DEFAULT next_id(), name text);
INSERT INTO users (name) VALUES ('a'), ('b'), ('c');
\$\$)});
	return;
}

# What is not a set.
for my $set ('5-3', '9000', '1-8192', 'x', '1,', ',1', '', '-1', '1-', '1-2-3', '1 2', '99999999999')
{
	moves_ok($a, $b, $set, [], 2, "set \"$set\"", qr/invalid value ".*" for option --shard.*ranges/s);
}
moves_ok($a, $b, 5, [ '--batch', 0 ], 2, 'a batch of none', qr/invalid value "0" for option --batch/);

# Two batches, with writers; and shard 3 cannot be moved.
make_shard($a, $_, "insta$_") for 1, 7;
small_shards($a, 2, 6);
small_shards($a, 8, 8);
$a->safe_psql('postgres', 'CREATE TABLE insta3.no_key (a int)');
my $said = moves_ok($a, $b, '1-4,6', ['plan'], 1, 'plan',
	qr/FAILED +replica identity: table insta3\.no_key.*shard 3 cannot be moved yet.*shards 1-2,4,6, 7 tables/s);
unlike($said, qr/FAILED.*FAILED/s, 'plan: one reason');
unlike(moves_ok($a, $b, 3, [$_], 1, "$_ of none that can be moved", qr/shard 3 cannot be moved yet/), qr/ERROR/, 'and no more') for 'plan', 'move';

my @before = map { start_writers("insta$_", $a) } 1, 7;
my @after = map { start_writers("insta$_", $b) } 1, 7;
await_writers(@before);
$said = moves_ok($a, $b, '1-8', [ '--batch', 3, '--verify', 'checksums', '--retries', 100 ], 1, 'moved, but for one',
	qr/shard 3 cannot be moved yet.*7 of 8 shards have moved.*left where they are: shard 3\n/s);
await_writers(@after);
is(living($a), '3', 'it is where it was');
is(living($b), '1,2,4,5,6,7,8', 'the others are there');
stop_writers(@before, @after);
for my $i (0, 1)
{
	my $shard = (1, 7)[$i];
	writers_ok("shard $shard", [ $before[$i] ], [ $after[$i] ]);
	copies_equal_ok($a, "insta${shard}_moved", $b, "insta$shard", "shard $shard");
}
moves_ok($a, $b, '1-8', ['status'], 0, 'status', qr/^shards 1-2,4: moved: .*^shard 3: nothing is under way/ms);
moves_ok($a, $b, '1', [], 2, 'a part of a batch', qr/shard 1 belongs to a batch with others: 2,4\n.*--shard=1,2,4/);

$a->safe_psql('postgres', 'ALTER TABLE insta3.no_key ADD PRIMARY KEY (a)');
moves_ok($a, $b, '1-8', [], 0, 'the same command goes on', qr/8 of 8 shards have moved, 1 of them now/);
moves_ok($a, $b, '1-8', [], 0, 'and then has nothing to do', qr/shards 1-2,4 have moved already/);
moves_ok($a, $b, '1-8', ['finish'], 0, 'finish', qr/shards 1-2,4: the copies at .* are dropped/);
nothing_left_ok($_, 'a set') for $a, $b;

# One that cannot be locked, one that was changed, one whose copy differs: the
# others of their batch are handed over.
$a->safe_psql('postgres', 'DELETE FROM snowid.shard_registry');
($a, $b) = ($b, $a);
moves_ok($a, $b, '1-7', [ '--stop-after', 'copied' ], 0, 'copied', qr/the copy is there and follows/);
my $writer = $a->background_psql('postgres');
$writer->query_safe(q{BEGIN; INSERT INTO insta4.users (name) VALUES ('slow')});
$a->safe_psql('postgres', 'ALTER TABLE insta5.users ADD COLUMN more text');
$b->safe_psql('postgres', q{SET session_replication_role = replica; DELETE FROM insta6.users WHERE name = 'a'});
moves_ok($a, $b, '1-7', [ '--retries', 1, '--lock-timeout', 50 ], 1, 'three that cannot', qr/4 of 7 shards have moved.*left where they are: shards 4-6\n/s);
is(living($a), '4,5,6,8', 'they are where they were');
$writer->query_safe('COMMIT');
$writer->quit;
moves_ok($a, $b, '1-7', ['status'], 0, 'status of the rest', qr/^shards 1-3,7: moved.*^shards 4-6: under way.*slot snowid_move_1_/ms);
moves_ok($a, $b, '5-6', ['abort'], 0, 'two of them are given up', qr/shards 5-6: the move is undone/);
is(living($a), '4,5,6,8', 'they are open');
moves_ok($a, $b, '1-4,7', [], 0, 'one is moved', qr/5 of 5 shards have moved, 1 of them now/);
is($b->safe_psql('postgres', q{SELECT count(*) FROM insta4.users WHERE name = 'slow'}), '1', 'with what was written last');
moves_ok($a, $b, '1-7', ['finish'], 0, 'finished', qr/shards 5-6: nothing to finish/);
nothing_left_ok($_, 'after that') for $a, $b;

# One whose definitions the target refuses, and one whose rows it refuses: each
# is undone, and the others go on.
$b->safe_psql('postgres', q{
DELETE FROM snowid.shard_registry WHERE shard IN (5, 6, 8);
CREATE FUNCTION public.refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
	IF EXISTS (SELECT FROM pg_event_trigger_ddl_commands() WHERE object_identity = 'insta5.users') THEN
		RAISE 'not here';
	END IF;
END $$;
CREATE EVENT TRIGGER refuse ON ddl_command_end EXECUTE FUNCTION public.refuse()});
my $hold = hold_at_step($b, 'subscribed', 0);
my $out = '';
my $tool = IPC::Run::start([ move_command($a, $b, '5-6,8') ], '>', \$out, '2>&1');
wait_until_held($b) or die 'does not get there';
$b->safe_psql('postgres', q{SET session_replication_role = replica;
INSERT INTO insta6.users VALUES (} . $a->safe_psql('postgres', 'SELECT max(id) FROM insta6.users') . ')');
$hold->quit;
$tool->finish;
is($? >> 8, 1, 'two that the target refuses') or diag $out;
like($out, qr/not here.*shard 5 is left.*again and again.*shard 6 is left.*left where they are: shards 5-6/s, 'it says why');
let_go_steps($b);
is(living($a), '5,6', 'they are where they were');
is($b->safe_psql('postgres', q{SELECT count(*) FROM pg_namespace WHERE nspname IN ('insta5', 'insta6')}), '0', 'nothing of them is there');
$b->safe_psql('postgres', 'DROP EVENT TRIGGER refuse');
moves_ok($a, $b, '5-6,8', [], 0, 'without the reason', qr/3 of 3 shards have moved, 2 of them now/);
moves_ok($a, $b, '5-6,8', ['finish'], 0, 'finished');
nothing_left_ok($_, 'refused') for $a, $b;

# There and back, with what was written meanwhile; one cannot go at first, and so
# is no part of the way back.
$a->safe_psql('postgres', 'DELETE FROM snowid.shard_registry');
($a, $b) = ($b, $a);
moves_ok($a, $b, '1-8', [ '--stop-after', 'copied', '--reverse' ], 0, 'copied, to come back');
$writer = $a->background_psql('postgres');
$writer->query_safe(q{BEGIN; INSERT INTO insta4.users (name) VALUES ('slow')});
moves_ok($a, $b, '1-8', [ '--retries', 0, '--verify', 'none' ], 1, 'moved, but for one', qr/shard 4: undone: the way back.*7 of 8/s);
$writer->query_safe('COMMIT');
$writer->quit;
$b->safe_psql('postgres', "INSERT INTO insta$_.users (name) VALUES ('there')") for 1, 2, 3, 5, 6, 7, 8;
moves_ok($a, $b, '1-8', ['back'], 1, 'back', qr/there is no way back for shard 4.*7 of 8 shards are back/s);
is(living($a), '1,2,3,4,5,6,7,8', 'all are back');
is($a->safe_psql('postgres', "SELECT count(*) FROM insta$_.users WHERE name = 'there'"), 1, "$_ with what was written") for 1, 2, 3, 5, 6, 7, 8;
moves_ok($a, $b, '1-8', ['finish'], 0, 'finished');
nothing_left_ok($_, 'there and back') for $a, $b;
$a->safe_psql('postgres', 'SELECT snowid.drop_shard(shard, cascade => true) FROM generate_series(3, 4) shard');

# While one move is about to take slots and workers, another one counts them.
$hold = hold_at_step($b, 'schema', 0);
$out = '';
$tool = IPC::Run::start([ move_command($a, $b, '1') ], '>', \$out, '2>&1');
wait_until_held($b) or die 'does not get there';
moves_ok($a, $b, '2', ['plan'], 0, 'a plan beside a move',
	qr/slots on the source: 7 of max_replication_slots = 10 are free, not counting 3 .*walsenders on the source: 7 of .*workers on the target: 1 of max_logical_replication_workers = 4 are free, not counting 3 /s);
moves_ok($a, $b, '1-2', [], 1, 'a set, of which another one has a shard', qr/another snowid-move is at work on shard 1\n/);
$hold->quit;
$tool->finish;
let_go_steps($b);
moves_ok($a, $b, '1', ['finish'], 0, 'finished');
$a->safe_psql('postgres', 'DELETE FROM snowid.shard_registry WHERE shard = 1');
moves_ok($b, $a, '1', [], 0, 'and back again');
moves_ok($b, $a, '1', ['finish'], 0, 'finished');

# The program is killed, or a server, at each step, with shards in two batches, of
# which the first is handed over by turns.
my $rows = 0;
my $newest = 0;
my @shards = (1, 2, 5, 6, 7, 8);
my $set = '1-2,5-8';
my @steps = (
	[ 'source', 'claimed' ], [ 'target', 'schema' ], [ 'target', 'subscribed', 1 ], [ 'source', 'copied' ], [ 'source', 'verified', 1 ],
	[ 'target', 'ready', 1 ], [ 'source', 'fenced', 1 ], [ 'target', 'open', 1 ], [ 'source', 'moved', 1 ]);
my @victims = ('tool', 'source', 'target');
my @cases = ([ 1, 'move' ], [ 5, 'move' ], [ 6, 'move' ], [ 2, 'abort' ]);
if (($ENV{SNOWID_MOVE_KILL} // '') ne 'all')
{
	@steps = @steps[ 2, 6, 7 ];
	@cases = ($cases[1]);
}
for my $i (0 .. $#steps)
{
	my ($side, $step, $in_commit) = @{ $steps[$i] };

	# By turns, each victim dies at each shard.
	kill_at($side, $step, $in_commit // 0, $cases[$_][0], $victims[ ($i + $_) % 3 ], $cases[$_][1]) for 0 .. $#cases;
}
done_testing();

sub kill_at
{
	my ($side, $step, $in_commit, $shard, $victim, $end) = @_;
	my $name = "$victim killed as shard $shard is \"$step\" on the $side" . ($in_commit ? ' for the others' : '') . ", then $end";
	my $held = $side eq 'source' ? $a : $b;

	for my $node ($a, $b)
	{
		$node->safe_psql('postgres', q{DELETE FROM snowid.shard_registry}) if living($node) eq '';
	}
	my $hold = hold_at_step($held, $step, $in_commit, $shard);
	my $said = '';
	my $tool = IPC::Run::start(
		[ move_command($a, $b, $set, '--batch', 3, '--pause-limit', 60000, '--lock-timeout', 60000, '--retries', 0) ], '>&', \$said);
	wait_until_held($held) or die "$name: does not get there";
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
		isnt($? >> 8, 0, "$name: it says so") or diag $said;
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
		is(scalar(() = $stdout =~ /^\d+ \w{5}$/mg), scalar(@shards), "$name: each is asked");
	}
	cmp_ok($open{$_} // 0, '<=', 1, "$name: shard $_ is open once at most") for @shards;
	$rows += $_ for values %open;

	# What is given late holds for the shards that are decided already, too.
	my $keeps = $end eq 'move' && $shard == 1 && $step ne 'moved';
	(my $code, $said) = snowid_move($a, $b, $set, $end, $keeps ? '--keep-name' : ());
	is($a->safe_psql('postgres', q{SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'insta%\_moved'}), 0, "$name: the copies keep their names") if $keeps;
	is($code, $said =~ /has been opened|have been opened/ ? 1 : 0, "$name: it comes to an end") or diag $said;
	moves_ok($a, $b, $set, [ '--batch', 3 ], 0, "$name: all are moved", qr/6 of 6 shards have moved/) if $end eq 'abort';
	is(living($b), '1,2,5,6,7,8', "$name: all are there");
	moves_ok($a, $b, $set, ['finish'], 0, "$name: finished");
	nothing_left_ok($_, $name) for $a, $b;
	is($b->safe_psql('postgres', join ' UNION ALL ', map { "SELECT $_ WHERE insta$_.next_id() <= (SELECT max(id) FROM insta$_.users)" } @shards),
		'', "$name: ids rise");
	is($b->safe_psql('postgres', 'SELECT ' . join(' + ', map { "(SELECT count(*) FROM insta$_.users WHERE name NOT IN ('new', 'there', 'slow', 'a', 'b', 'c') AND name NOT LIKE 'user %')" } @shards)),
		$rows, "$name: each row that a client was told of is there, once");
	($a, $b) = ($b, $a);
	return;
}
