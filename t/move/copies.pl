# Copies of servers that come alive: one of the target takes changes from the source's slot
# in its place; one of the source says that it has the shard.  Neither costs a row, and no
# shard is moved from an old copy.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $a = move_node('a', allows_streaming => 1);
my $b = move_node('b', allows_streaming => 1);
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;
my $copies = 0;

# A copy of a server, as it is now, which is not started.
sub copy_of
{
	my ($node) = @_;
	my $copy = PostgreSQL::Test::Cluster->new('copy' . ++$copies);

	$node->backup("backup$copies");
	$copy->init_from_backup($node, "backup$copies");
	return $copy;
}

# While a server that follows is down, a copy of it takes what the other one writes.
sub taken_by_copy
{
	my ($copy, $from, $follows) = @_;

	$follows->stop;
	$copy->start;
	$from->safe_psql('postgres', q{UPDATE insta5.users SET name = 'changed'; INSERT INTO insta5.users (name) VALUES ('taken')});
	my $written = $from->safe_psql('postgres', 'SELECT pg_current_wal_lsn()');
	$from->poll_query_until('postgres', "SELECT confirmed_flush_lsn >= '$written' FROM pg_replication_slots WHERE active") or die 'the copy does not follow';
	$copy->stop;
	$follows->start;
	return;
}

subtest 'a copy of the target' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	taken_by_copy(copy_of($b), $a, $b);
	moves_ok($a, $b, 5, [ '--verify', 'none' ], 0, 'the gap is found, and copied anew', qr/all rows are compared: the target was not connected all the time.*table "users" differs.*copied anew/s);
	is($b->safe_psql('postgres', q{SELECT count(*) FROM insta5.users WHERE name NOT IN ('changed', 'taken')}), '0', 'all changes are there');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
	nothing_left_ok($_, 'a copy of the target') for $a, $b;
};

# Who was only restarted is compared, and goes on.
subtest 'a target that was restarted' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	$b->restart;
	my $said = moves_ok($a, $b, 5, [], 0, 'moved', qr/all rows are compared.*no difference/s);
	unlike($said, qr/anew, since/, 'with the same copy');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
};

subtest 'a copy of the source, on the way back' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, ['--reverse'], 0, 'moved');
	taken_by_copy(copy_of($a), $b, $a);
	moves_ok($a, $b, 5, ['back'], 1, 'no way back', qr/table "users" differs.*the way back is undone/s);
	lives_on_ok($b, $a, 'it stays');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
	nothing_left_ok($_, 'a copy of the source') for $a, $b;
};

# The registry of all knows which one is the shard.
subtest 'an old copy of the source' => sub {
	fresh_shard($a, $b);
	my $old = copy_of($a);
	moves_ok($a, $b, 5, [], 0, 'moved');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
	$old->start;
	$a->safe_psql('postgres', 'CREATE DATABASE dir');
	$a->safe_psql('dir', 'CREATE EXTENSION snowid');
	my $registry = $a->connstr('dir');
	my $home = sprintf 'host=%s port=%s dbname=postgres', $b->host, $b->port;
	$a->safe_psql('dir', qq{INSERT INTO snowid.shard_registry (shard, schema, home) VALUES (5, 'insta5', '$home')});
	$a->safe_psql('postgres', 'DELETE FROM snowid.shard_registry');
	moves_ok($old, $a, 5, [ $_, '--registry', $registry ], 1, $_, qr/FAILED +registry: shard 5 lives at \Q$home\E, as it says, and there is open, too/) for 'plan', 'move';
	is($a->safe_psql('dir', 'SELECT home FROM snowid.shard_registry'), $home, 'the registry is as before');
	$a->safe_psql('dir', q{UPDATE snowid.shard_registry SET home = 'host=/nowhere dbname=x'});
	moves_ok($b, $a, 5, [ 'plan', '--registry', $registry ], 0, 'a home that cannot be asked', qr/warning +registry: .*which cannot be asked\n.*UPDATE snowid.shard_registry SET home/);
	$a->safe_psql('dir', qq{UPDATE snowid.shard_registry SET home = '$home'});
	moves_ok($b, $a, 5, [ 'plan', '--registry', $registry ], 0, 'from where it lives');

	# Closed, it is dropped, and knows where the shard lives.
	$old->safe_psql('postgres', "SELECT snowid.fence_shard(5, '$home')");
	moves_ok($old, $a, 5, [], 1, 'closed', qr/closed by hand on the source.*drop_shard\(5, true\)/s);
	like(($old->psql('postgres', 'SELECT snowid.drop_shard(5)'))[2], qr/drop_shard\(5, true\)/, 'what is in it must be meant');
	$old->safe_psql('postgres', 'SELECT snowid.drop_shard(5, true)');
	is($old->safe_psql('postgres', 'SELECT lives FROM snowid.shards WHERE shard = 5'), $home, 'dropped');
	nothing_left_ok($old, 'an old copy');
	$old->stop;
};

$_->stop for $a, $b;
done_testing();
