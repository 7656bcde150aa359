# The way back of a set, and two moves beside each other.
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

# With what was written meanwhile; one cannot go at first, and so is no part of the
# way back.
subtest 'there and back' => sub {
	fresh_set($a, $b);
	moves_ok($a, $b, '1-8', [ '--stop-after', 'copied', '--reverse' ], 0, 'copied, to come back');
	my $writer = $a->background_psql('postgres');
	$writer->query_safe(q{BEGIN; INSERT INTO insta4.users (name) VALUES ('slow')});
	moves_ok($a, $b, '1-8', [ '--retries', 0, '--verify', 'none' ], 1, 'moved, but for one', qr/shard 4: undone: the way back.*7 of 8/s);
	$writer->query_safe('COMMIT');
	$writer->quit;
	$b->safe_psql('postgres', "INSERT INTO insta$_.users (name) VALUES ('there')") for 1, 2, 3, 5, 6, 7, 8;
	moves_ok($a, $b, '1-8', ['back'], 1, 'back', qr/there is no way back for shard 4.*7 of 8 shards are back, 7 of them now, in/s);
	moves_ok($a, $b, '1-8', ['back'], 1, 'back once more', qr/7 of 8 shards are back, 0 of them now/);
	is(living($a), '1,2,3,4,5,6,7,8', 'all are back');
	is($a->safe_psql('postgres', "SELECT count(*) FROM insta$_.users WHERE name = 'there'"), 1, "$_ with what was written") for 1, 2, 3, 5, 6, 7, 8;
	moves_ok($a, $b, '1-8', ['finish'], 0, 'finished');
	nothing_left_ok($_, 'there and back') for $a, $b;
};

# While one move is at work, another one of the same shard is refused.
subtest 'two at once' => sub {
	fresh_set($a, $b);
	my $hold = hold_at_step($b, 'schema', 0);
	my $out = '';
	my $tool = IPC::Run::start([ move_command($a, $b, '1') ], '>', \$out, '2>&1');
	wait_until_held($b) or die 'does not get there';
	moves_ok($a, $b, '1-2', [], 1, 'a set, of which another one has a shard', qr/another snowid-move is at work on shard 1\n/);
	$hold->quit;
	$tool->finish;
	let_go_steps($b);
	moves_ok($a, $b, '1', ['finish'], 0, 'finished');
	$a->safe_psql('postgres', 'DELETE FROM snowid.shard_registry WHERE shard = 1');
	moves_ok($b, $a, '1', [], 0, 'and back again');
	moves_ok($b, $a, '1', ['finish'], 0, 'finished');
};

done_testing();
