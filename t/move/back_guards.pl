# A way back that cannot be finished, or that is stopped half-way, leaves the
# shard where it is, or comes to one clean end.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b');
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;
my $s = 'insta5';		# each subject begins with it moved from a to b, with a way back

sub subject
{
	my ($name, $code) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return subtest $name => sub {
		fresh_shard($a, $b);
		moves_ok($a, $b, 5, ['--reverse'], 0, 'moved');
		$code->();
		moves_ok($a, $b, 5, ['finish'], 0, 'finished');
		lives_on_ok($b, $a, 'finished');
		nothing_left_ok($_, 'finished') for $a, $b;
	};
}

subject 'too much log' => sub {
	my $subscription = $a->safe_psql('postgres', 'SELECT subname FROM pg_subscription');
	$a->safe_psql('postgres', "ALTER SUBSCRIPTION $subscription DISABLE");
	$b->safe_psql('postgres', 'CREATE TABLE big AS SELECT repeat(md5(i::text), 10) FROM generate_series(1, 20000) i');
	moves_ok($a, $b, 5, [ 'back', '--max-wal', '2MB' ], 1, 'back, with too much log', qr/more than --max-wal allows.*The shard stays where it is\. Type the same command again, with a larger --max-wal.*the way back is undone/s);
	lives_on_ok($b, $a, 'too much log');
	$a->safe_psql('postgres', "ALTER SUBSCRIPTION $subscription ENABLE");
};

# Without the slot, what was written since the move cannot come.
subject 'a slot that is gone' => sub {
	my $subscription = $a->safe_psql('postgres', 'SELECT subname FROM pg_subscription');
	$a->safe_psql('postgres', "ALTER SUBSCRIPTION $subscription DISABLE");
	$b->poll_query_until('postgres', 'SELECT NOT active FROM pg_replication_slots') or die 'the slot stays active';
	$b->safe_psql('postgres', 'SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots');
	moves_ok($a, $b, 5, ['back'], 1, 'back, without the slot', qr/is lost.*There is no way back any more.*type: snowid-move finish .*the way back is undone/s);
	lives_on_ok($b, $a, 'a slot that is gone');
};

# Begun, it must be ended first.
subject 'a lock in the way' => sub {
	my $locker = $a->background_psql('postgres');
	$locker->query_safe("BEGIN; LOCK TABLE $s.users IN SHARE MODE");
	moves_ok($a, $b, 5, [ 'back', '--retries', 0 ], 1, 'back, with a lock in the way', qr/could not lock/);
	$locker->query_safe('COMMIT');
	$locker->quit;
	moves_ok($a, $b, 5, ['status'], 1, 'status', qr/a way back was begun, and is not decided\n.*type: snowid-move back.*type: snowid-move abort/s);
	moves_ok($a, $b, 5, [], 1, 'no move goes on from there', qr/shard 5 cannot be moved now: a way back was begun, and is not decided\n.*type: snowid-move back/);
	lives_on_ok($b, $a, 'a way back that was begun');
	moves_ok($a, $b, 5, ['finish'], 1, 'no finish either', qr/shard 5 cannot be finished now: a way back was begun/);
	moves_ok($a, $b, 5, ['abort'], 0, 'but an abort', qr/way back is undone/);
	lives_on_ok($b, $a, 'an abort of the way back');
};

subject 'an abort that is stopped half-way' => sub {
	hold_and_kill($a, 'open', 1, 'back', $a, $b);
	moves_ok($a, $b, 5, [], 3, 'no move while a way back is decided', qr/shard 5 cannot be moved now: the way back is decided, but not complete\n.*type: snowid-move back/);
	hold_and_kill($b, 'open', 0, 'abort', $a, $b);
	moves_ok($a, $b, 5, [], 3, 'no move, half-way through an abort', qr/shard 5 cannot be moved now: a way back was begun, or undone, by half\n.*type: snowid-move abort/s);
	moves_ok($a, $b, 5, ['status'], 1, 'status', qr/a way back was begun, or undone, by half/);
	moves_ok($a, $b, 5, ['finish'], 3, 'no finish, half-way through an abort');
	moves_ok($a, $b, 5, ['abort'], 0, 'the abort goes on', qr/way back is undone/);
	lives_on_ok($b, $a, 'an abort in two halves');
};

# The journals become those of a move back one after the other.
subject 'a way back that is begun by half' => sub {
	for my $command ('abort', 'back')
	{
		hold_and_kill($a, 'copied', 0, 'back', $a, $b);
		moves_ok($a, $b, 5, ['status'], 1, 'status', qr/a way back was begun, or undone, by half\n.*type: snowid-move back.*type: snowid-move abort/s);
		lives_on_ok($b, $a, 'a way back by half');
		moves_ok($a, $b, 5, [$command], 0, $command, $command eq 'abort' ? qr/the way back is undone/ : qr/now lives at/);
	}
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
	moves_ok($a, $b, 5, ['--reverse'], 0, 'moved again');
};

# What a shard was closed with stands in the journal, which finish drops.
subject 'a shard that is closed by hand' => sub {
	$b->safe_psql('postgres', 'SELECT snowid.fence_shard(5)');
	moves_ok($a, $b, 5, ['finish'], 1, 'no finish while it is closed by hand', qr/unfence_shard/);
	$b->safe_psql('postgres', 'SELECT snowid.unfence_shard(5)');
};

# What was not asked for at the beginning is not there.
subtest 'a way back that comes late' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	moves_ok($a, $b, 5, ['--reverse'], 1, 'a way back that comes late', qr/--reverse/);
	moves_ok($a, $b, 5, ['abort'], 0, 'aborted');
};

done_testing();
