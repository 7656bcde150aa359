# What somebody has mistyped at a fleet: a row deleted at the directory whose shard is written, all of them, a shard of
# one number made by hand on two servers, a server retired that has a copy, a home without a database.  Nothing is lost, or closed.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use FleetTest;
use IPC::Run ();
use MoveTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my ($dir, $s1, $s2) = fleet_nodes(qw(s1 s2));
$s1->safe_psql('postgres', 'SELECT snowid.create_shard(1)');
$s2->safe_psql('postgres', 'SELECT snowid.create_shard(2)');
fleet_ok([ 'add', "s$_->[0]", home_of($_->[1]) ], 0, "add s$_->[0]") for [ 1, $s1 ], [ 2, $s2 ];

$dir->safe_psql('postgres', 'DELETE FROM snowid.shard_registry WHERE shard = 2');
$dir->wait_for_catchup("snowid_registry_$_", 'replay', $dir->lsn('insert')) for qw(s1 s2);
is($s2->safe_psql('postgres', 'SELECT lives FROM snowid.shards WHERE shard = 2'), 'here', 'who has the shard keeps its row');
is($s1->safe_psql('postgres', 'SELECT count(*) FROM snowid.shard_registry WHERE shard = 2'), '0', '... and nobody else');
fleet_ok([ 'status' ], 1, 'it is told', qr/^FAILED shard 2 is open at .*, and the directory does not know it.* type: snowid-fleet add s2 /m);
fleet_ok([ 'add', 's2' ], 0, '... and what is told');
fleet_ok(['status'], 0, 'all is well');

my ($code, $out, $err) = $dir->psql('postgres', 'TRUNCATE snowid.shard_registry');
like($err, qr/the registry of shards cannot be truncated\n.*HINT: .*DELETE FROM/s, 'nor is the registry emptied at once');

# In the documented order it goes; until the last step, what to do is told.
$s2->safe_psql('postgres', 'SELECT snowid.drop_shard(2)');
fleet_ok(['status'], 1, 'a shard that was dropped', qr/FAILED shard 2 is open nowhere .*if it was dropped on purpose, at the directory: DELETE FROM snowid.shard_registry WHERE shard = 2;/);
$dir->safe_psql('postgres', 'DELETE FROM snowid.shard_registry WHERE shard = 2');
$dir->wait_for_catchup("snowid_registry_$_", 'replay', $dir->lsn('insert')) for qw(s1 s2);
is($_->safe_psql('postgres', 'SELECT count(*) FROM snowid.shard_registry WHERE shard = 2'), '0', 'dropped, and forgotten') for $s1, $s2;
fleet_ok(['status'], 0, 'all is well');

$_->safe_psql('postgres', 'SELECT snowid.create_shard(60); CREATE TABLE insta60.t (id bigint PRIMARY KEY DEFAULT insta60.next_id()); INSERT INTO insta60.t DEFAULT VALUES') for $s1, $s2;
fleet_ok([ 'add', 's1' ], 0, 'one of the two');
for my $fix ([], ['--fix'])
{
	IPC::Run::run([ 'snowid-move', 'audit', '--registry', home_of($dir), @$fix ], '>&', \my $said);
	like($said, qr/shard 60 is open at .*, and at .*\n.*snowid-move diff --shard 60 /, "audit @$fix: a person decides");
}
is($_->safe_psql('postgres', 'SELECT lives FROM snowid.shards WHERE shard = 60'), 'here', 'neither is closed') for $s1, $s2;

# A copy of a shard is no shard, and its server is not retired; nor does what stays at another one keep it from being drained.
$s2->safe_psql('postgres', q{SELECT snowid.drop_shard(60, true); CREATE SCHEMA insta1_copy; INSERT INTO snowid.copies VALUES ('insta1_copy', 1, 'copy')});
fleet_ok([ 'retire', 's2' ], 1, 'a copy', qr/closed copies of 1 shards are there, the first of shard 1\n.*those of snowid.copies there go with DROP SCHEMA/);
$dir->safe_psql('postgres', q{INSERT INTO snowid.placements VALUES ('{[1,1]}', 'stay'); UPDATE snowid.servers SET state = 'draining' WHERE name = 's1'});
fleet_ok([ 'drain', 's2' ], 0, 'drained, though another one is not', qr/s2 has nothing any more/);
fleet_ok([ 'add', 's3', home_of($s2) =~ s/dbname=\S+ ?//r ], 2, 'no database', qr/the home names no database.*\n.*Type: snowid-fleet add s3 '.* dbname=postgres' --registry/);
$_->stop for $dir, $s1, $s2;

done_testing();
