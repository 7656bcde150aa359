# A server, and then the directory, are put back from a backup: what status tells, typed as it stands, leads out, and
# nothing is lost that is somewhere.
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

my ($dir, $s1, $s2, $s3) = fleet_nodes(qw(s1 s2 s3));
$s1->safe_psql('postgres', q{CALL snowid.create_shards(0, 5, ddl => 'CREATE TABLE t (id bigint PRIMARY KEY DEFAULT next_id()); INSERT INTO t DEFAULT VALUES')});
fleet_ok([ 'add', 's1', home_of($s1) ], 0, 'add s1');
fleet_ok([ 'add', 's2', home_of($s2) ], 0, 'add s2');
my $ids = q{SELECT string_agg(max::text, ' ' ORDER BY n) FROM (SELECT 0, max(id) FROM insta0.t UNION ALL SELECT 1, max(id) FROM insta1.t) m (n, max)};
my $before = $s1->safe_psql('postgres', $ids);

# The copies that a drain has kept are the only ones.
$s2->stop;
$s2->backup_fs_cold('before');
$s2->start;
fleet_ok([ 'drain', 's1', '--keep' ], 0, 'drained, with copies');
fleet_ok([ 'status' ], 0, 'as long as the shards are open', qr/^copy .* of shards 0,1,2,3,4,5 at s1, .*, kept; to drop it, type: snowid-move finish /m);
$s2->stop;
my $old = as_it_was($s2);
$old->poll_query_until('postgres', q{SELECT count(*) = 6 FROM snowid.shard_registry}) or die 'no shards';
my $said = fleet_ok([ 'status' ], 1, 'put back', qr/^copy .* of shards 0,1,2,3,4,5 at s1, closed since \S+ \S+$/m, qr/^FAILED shard 0 is open nowhere at .*, type: UPDATE /m);
unlike($said, qr/snowid-move abort|of which .* knows nothing/, '... without a way that leads nowhere');
my @sides = ('--shard', '0-5', '--from', 's1', '--to', 's2', '--registry', home_of($dir));
for my $command ('finish', 'abort', 'back', 'move')
{
	IPC::Run::run([ 'snowid-move', $command, @sides ], '>&', \my $told);
	isnt($?, 0, "$command is refused");
	like($told, $command =~ /abort|back/ ? qr/type: snowid-move finish /i : qr/UPDATE snowid.moves SET peer = NULL WHERE shard IN \(0, 1, 2, 3, 4, 5\); SELECT snowid.unfence_shard/, "$command tells the way");
}
$s1->safe_psql('postgres', $1) while $said =~ /^FAILED shard \d+ is open nowhere at [^,]*, type: (UPDATE .*)$/mg;
is($s1->safe_psql('postgres', q{SELECT string_agg(nspname, ' ' ORDER BY 1) FROM pg_namespace WHERE nspname ~ '^insta'}), 'insta0 insta1 insta2 insta3 insta4 insta5', 'open again, by their names');
is($s1->safe_psql('postgres', $ids), $before, '... with their rows');
cmp_ok($s1->safe_psql('postgres', 'INSERT INTO insta0.t DEFAULT VALUES RETURNING id'), '>', (split / /, $before)[0], '... and ids go on');
mended_ok();
homes_ok({ s1 => 6, s2 => 0 }, 'put back', s1 => $s1, s2 => $old);

# The directory is put back to before a server was added, which has shards now; one copy of them is kept.
$dir->safe_psql('postgres', q{UPDATE snowid.servers SET state = 'open'});
$dir->stop;
$dir->backup_fs_cold('before');
$dir->start;
fleet_ok([ 'add', 's3', home_of($s3) ], 0, 'add s3');
fleet_ok([ 'balance', '--by', 'shards', '--keep' ], 0, 'balanced');
homes_ok({ s1 => 2, s2 => 2, s3 => 2 }, 'balanced', s1 => $s1, s2 => $old, s3 => $s3);
$dir->wait_for_catchup("snowid_registry_$_", 'replay', $dir->lsn('insert')) for qw(s1 s2 s3);
$dir->stop;
my $old_dir = as_it_was($dir, 'old_dir');
$said = fleet_ok([ 'status' ], 1, 'the directory put back', qr/^FAILED the directory does not know s3, which .* does/m);
unlike($said, qr/Restore it|open nowhere/, '... no shard is called lost');
for (1 .. 8)
{
	$said = (fleet('status'))[1];
	my ($type) = $said =~ /type: (snowid-fleet add .*)$/m;
	last if !defined $type;
	my $added = `$type 2>&1`;
	system('sh', '-c', "$1 >/dev/null 2>&1") if $added =~ /type: (snowid-move audit --fix --registry '[^']*')/;
}
for my $command (keys %{ { map { ($_ => 1) } (fleet('status'))[1] =~ /can go type: (snowid-move finish .*)$/mg } })
{
	is(system('sh', '-c', "$command >/dev/null 2>&1"), 0, 'a copy that nobody knows to be kept can go');
}
mended_ok();
homes_ok({ s1 => 2, s2 => 2, s3 => 2 }, 'put back', s1 => $s1, s2 => $old, s3 => $s3);

# A server is down, to which a move was begun: nothing is planned, and status has what works without it.
my ($shard) = split /,/, $s1->safe_psql('postgres', q{SELECT min(shard) FROM snowid.shards WHERE lives = 'here'});
IPC::Run::run([ 'snowid-move', 'move', '--shard', $shard, '--to', 's3', '--stop-after', 'copied', '--registry', home_of($dir) ], '>&', \my $moved);
$s3->stop;
fleet_ok([ 'balance', '--by', 'shards' ], 1, 'a server is down', qr/s3 gives no answer, so nobody knows how much it has/);
$said = fleet_ok([ 'status' ], 1, 'a target is down', qr/^FAILED no program goes on .*; bring s3 back, and type: snowid-move move .*; or, if s3 is lost for ever: snowid-move abort /m);
is(system('sh', '-c', ($said =~ /if s3 is lost for ever: (.*)/)[0] . ' >/dev/null 2>&1'), 0, '... which ends it');
$s3->start;
$said = fleet_ok([ 'status' ], 1, 'it is back', qr/^moving +shards $shard from s1 to s3: copied since .*, \d+ kB of \?$/m, qr/of which .* knows nothing type: snowid-move abort /);
unlike($said, qr/no program goes on/, '... told once');
is(system('sh', '-c', ($said =~ /knows nothing type: (.*)/)[0] . ' >/dev/null 2>&1'), 0, '... and ends there, too');
mended_ok();

# A slot of a copy that was given up.
$old_dir->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('pg_1_sync_2_3', 'pgoutput')});
$said = fleet_ok([ 'status' ], 1, 'a slot of a copy', qr/^slot pg_1_sync_2_3 of the directory is that of no copy that goes on/m);
$old_dir->safe_psql('postgres', ($said =~ /slot pg_1_sync_2_3 .* type there: (SELECT .*;)/)[0]);
fleet_ok([ 'status' ], 0, '... is dropped');

# Wrong words.
unlike(fleet_ok([ 'add', 's2', home_of($dir) ], 2, 'a name that another has, which answers', qr/the name s2 is that of another server/), qr/UPDATE/, '... has no new address');
fleet_ok([ 'balance', '--', '--pooler-file', '/x' ], 2, 'no poolers', qr/the directory has no poolers, for --pooler-file\n.*type: INSERT INTO snowid.poolers/);
like(($old_dir->psql('postgres', q{INSERT INTO snowid.placements VALUES ('{[8192,8192]}', 'stay')}))[2], qr/violates check constraint/, 'a rule for no shard');
$_->stop for $s1, $s3, $old, $old_dir;
done_testing();

# What is left, audit mends; then all is well, but for what is kept.
sub mended_ok
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	IPC::Run::run([ 'snowid-move', 'audit', '--fix', '--registry', home_of($dir) ], '>&', \my $told);
	fleet_ok([ 'status' ], 0, 'all is well') or diag $told;
	return;
}
