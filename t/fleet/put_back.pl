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

my ($dir, $s1, $s2, $s3, $s4) = fleet_nodes(qw(s1 s2 s3 s4));
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

# The directory is put back to before a server was added, which has shards now, and no journal names it; copies of
# others are kept.
$dir->safe_psql('postgres', q{UPDATE snowid.servers SET state = 'open'});
$dir->stop;
$dir->backup_fs_cold('before');
$dir->start;
fleet_ok([ 'add', 's3', home_of($s3) ], 0, 'add s3');
fleet_ok([ 'balance', '--by', 'shards', '--keep' ], 0, 'balanced');
homes_ok({ s1 => 2, s2 => 2, s3 => 2 }, 'balanced', s1 => $s1, s2 => $old, s3 => $s3);
my $new = $s3->safe_psql('postgres', q{SELECT string_agg(shard::text, ',') FROM snowid.shards WHERE lives = 'here'});
IPC::Run::run([ 'snowid-move', 'finish', '--shard', $new, '--from', 's1', '--to', 's3', '--registry', home_of($dir) ], '>&', \my $finished);
$dir->wait_for_catchup("snowid_registry_$_", 'replay', $dir->lsn('insert')) for qw(s1 s2 s3);
$dir->stop;
my $old_dir = as_it_was($dir, 'old_dir');
$said = fleet_ok([ 'status' ], 1, 'the directory put back', qr/^s1 .*NOT FOLLOWED: type: snowid-fleet add s1 /m, qr/^FAILED the directory does not know s3, which .* does type: snowid-fleet add s3 /m);
unlike($said, qr/Restore it|open nowhere/, '... no shard is called lost');
fleet_ok([ 'add', 's1' ], 1, 'what would forget it is refused', qr/^FAILED +it knows s3, and the directory does not\n +Type first: snowid-move audit --registry/m);
my @typed;
for (1 .. 20)
{
	my ($type) = (fleet('status'))[1] =~ /^FAILED .* type: (snowid-fleet add .*)$/m;
	last if !defined $type;
	push @typed, $type;
	my $added = `$type 2>&1`;
	system('sh', '-c', "$1 >/dev/null 2>&1") if $added =~ /(snowid-move audit --fix --registry '[^']*')/;
}
like($typed[0], qr/^snowid-fleet add s3 /, 'the server that is not known comes first');
my %can_go = map { ($_ => 1) } (fleet('status'))[1] =~ /can go type: (snowid-move finish .*)$/mg;
isnt(scalar(keys %can_go), 0, 'nobody knows any more that copies are kept');
is(system('sh', '-c', "$_ >/dev/null 2>&1"), 0, '... they can go') for keys %can_go;
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

# One to a server that is not in the fleet is told, too.
IPC::Run::run([ 'snowid-move', 'move', '--shard', $shard, '--from', 's1', '--to', home_of($s4), '--stop-after', 'copied', '--registry', home_of($dir) ], '>&', \$moved);
$said = fleet_ok([ 'status' ], 1, 'to a server of its own', qr/^FAILED no program goes on with the move of shards $shard: copied since .* type: snowid-move move /m);
IPC::Run::run([ 'snowid-move', 'abort', '--shard', $shard, '--from', 's1', '--to', home_of($s4), '--registry', home_of($dir) ], '>&', \$moved);
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

# A server and the directory are put back together: what has come to another server since is not closed.
$_->stop for $s1, $old_dir;
$_->backup_fs_cold('before') for $s1, $old_dir;
$_->start for $s1, $old_dir;
for my $command ('move', 'finish')
{
	IPC::Run::run([ 'snowid-move', $command, '--shard', $shard, '--from', 's1', '--to', 's2', '--registry', home_of($dir) ], '>&', \$moved);
	is($?, 0, $command) or diag $moved;
}
$old->safe_psql('postgres', "INSERT INTO insta$shard.t DEFAULT VALUES");
$old_dir->wait_for_catchup("snowid_registry_$_", 'replay', $old_dir->lsn('insert')) for qw(s1 s2 s3);
$_->stop for $s1, $old_dir;
my @put_back = (as_it_was($s1, 'old_s1'), as_it_was($old_dir, 'older_dir'));
IPC::Run::run([ 'snowid-move', 'audit', '--fix', '--registry', home_of($dir) ], '>&', \my $audited);
like($audited, qr/shard $shard is open at .*, and at .*\n.*snowid-move diff .*; that of .* may be newer; to keep it, /, 'both put back: it is told which may be newer');
is($old->safe_psql('postgres', "SELECT lives FROM snowid.shards WHERE shard = $shard"), 'here', '... and that stays open');
$_->stop for $s3, $s4, $old;
$_->stop('immediate') for @put_back;
done_testing();

# What is left, audit mends; then all is well, but for what is kept.
sub mended_ok
{
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	IPC::Run::run([ 'snowid-move', 'audit', '--fix', '--registry', home_of($dir) ], '>&', \my $told);
	fleet_ok([ 'status' ], 0, 'all is well') or diag $told;
	return;
}
