# A set of shards in one command: moved in batches, handed over some at a time,
# while clients write to them.  A shard that cannot be moved is left where it is,
# and the others go on; the same command goes on after that.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b');
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;

subtest 'what is not a set' => sub {
	for my $set ('5-3', '9000', '1-8192', 'x', '1,', ',1', '', '-1', '1-', '1-2-3', '1 2', '99999999999')
	{
		moves_ok($a, $b, $set, [], 2, "set \"$set\"", qr/invalid value ".*" for option --shard.*ranges/s);
	}
	moves_ok($a, $b, 5, [ '--batch', 0 ], 2, 'a batch of none', qr/invalid value "0" for option --batch/);
};

subtest 'two batches, with writers, and a shard that cannot be moved' => sub {
	fresh_set($a, $b);
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
	moves_ok($a, $b, '1-8', ['status'], 1, 'status', qr/^shards 1-2,4: moved\n.*^shard 3: nothing is under way/ms);
	moves_ok($a, $b, '1', [], 2, 'a part of a batch', qr/shard 1 belongs to a batch with others: 2,4\n.*--shard=1,2,4/);

	$a->safe_psql('postgres', 'ALTER TABLE insta3.no_key ADD PRIMARY KEY (a)');
	moves_ok($a, $b, '1-8', [], 0, 'the same command goes on', qr/8 of 8 shards have moved, 1 of them now/);
	moves_ok($a, $b, '1-8', [], 0, 'and then has nothing to do', qr/shards 1-2,4: moved already/);
	moves_ok($a, $b, '1-8', ['finish'], 0, 'finish', qr/shards 1-2,4: the copies at .* are dropped/);
	nothing_left_ok($_, 'a set') for $a, $b;
};

# A function takes 100 arguments.
subtest 'a batch of many' => sub {
	$a->safe_psql('postgres', 'CALL snowid.create_shards(1001, 1101)');
	moves_ok($a, $b, '1001-1101', [ '--batch', 101 ], 0, 'moved', qr/101 of 101 shards have moved/);
	moves_ok($a, $b, '1001-1101', ['finish'], 0, 'finish');
	nothing_left_ok($_, 'many') for $a, $b;
};

done_testing();
