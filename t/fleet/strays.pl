# Copies of which the directory knows nothing, or no more: of a server that was retired and then put back, of a clone, of a
# move whose other server has another address, or is lost.  What is told, typed as it stands, leads out, and a
# server that may have the only rows of a shard is not let go.
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
$s1->safe_psql('postgres', q{CALL snowid.create_shards(0, 3, ddl => 'CREATE TABLE t (id bigint PRIMARY KEY DEFAULT next_id()); INSERT INTO t DEFAULT VALUES')});
fleet_ok([ 'add', 's1', home_of($s1) ], 0, 'add s1');
fleet_ok([ 'add', 's2', home_of($s2) ], 0, 'add s2');

# A server is retired, and then put back: it is closed where it is, since nothing else looks at it.
$s1->stop;
$s1->backup_fs_cold('before');
$s1->start;
fleet_ok([ 'drain', 's1' ], 0, 'drained');
fleet_ok([ 'retire', 's1' ], 0, 'retired');
$s1->stop;
my $old = as_it_was($s1);
my $row = $old->safe_psql('postgres', 'INSERT INTO insta2.t DEFAULT VALUES RETURNING id');
my $said = fleet_ok([ 'add', 's1', home_of($old) ], 1, 'what was retired is put back', qr/^FAILED +shard 0 is there, and at s2\n/m);
$old->safe_psql('postgres', $_) for $said =~ /put back from a backup, type there: (SELECT snowid\.fence_shard\(.*?\);)/g;
fleet_ok([ 'add', 's1', home_of($old) ], 0, '... and added, once its copies are closed');
$dir->wait_for_catchup("snowid_registry_$_", 'replay', $dir->lsn('insert')) for qw(s1 s2);
homes_ok({ s1 => 0, s2 => 4 }, 'put back', s1 => $old, s2 => $s2);

# These may have rows that are nowhere else.
fleet_ok([ 'retire', 's1' ], 1, '... it is not retired with them', qr/closed copies of 4 shards are there, the first of shard 0\n.*type: snowid-move audit --registry /);
IPC::Run::run([ 'snowid-move', 'audit', '--registry', home_of($dir) ], '>&', \my $audited);
my ($diff) = $audited =~ /type: (snowid-move diff --shard 2 [^;]*);/;
like(`$diff 2>&1`, qr/insta2\.t/, '... which diff shows') or diag $audited;
is($old->safe_psql('postgres', "SELECT count(*) FROM insta2.t WHERE id = $row"), 1, '... and are there');
$old->safe_psql('postgres', $_) for $audited =~ /if none is needed, at .*, type: (SELECT snowid\.drop_shard\(\d+, true\);)/g;
fleet_ok([ 'status' ], 0, '... until they are dropped');

# Copies are kept, and their new server is another one now: its standby, at another address.
fleet_ok([ 'drain', 's2', '--keep' ], 0, 'copies are kept');
$old->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($old, 'base', has_streaming => 1);
$standby->start;
$old->wait_for_catchup($standby);
$old->stop;
$standby->promote;
$said = fleet_ok([ 'add', 's1', home_of($standby) ], 2, 'another address', qr/if s1 has another address now, at the directory: UPDATE /);
$dir->safe_psql('postgres', ($said =~ /at the directory: (UPDATE .*)/)[0]);
fleet_ok([ 'add', 's1' ], 0, '... is entered');
$dir->wait_for_catchup("snowid_registry_$_", 'replay', $dir->lsn('insert')) for qw(s1 s2);
$said = fleet_ok([ 'status' ], 0, '... all is well', qr/^copy .* of shards 0,1,2,3 at s2, .*, kept; to drop it, type: snowid-move finish --shard 0,1,2,3 --from 's2' --to 's1' --registry '/m);
IPC::Run::run([ 'snowid-move', 'audit', '--registry', home_of($dir) ], '>&', \$audited);
unlike($audited, qr/cannot be asked/, '... the old one is not missed');
like($audited, qr/^FAILED +the copy of shard 0 at .* can go\n/m, '... but the copies are seen');
like((fleet('drain', 's1'))[1], qr/^to end the earlier move of shards 0,1,2,3, type: snowid-move finish --shard 0,1,2,3 --from 's2' --to 's1' /m, '... and named');

# That one is lost, too, with all that it had: the copies are the last ones.  An empty one takes its place.
my $before = $standby->safe_psql('postgres', 'SELECT max(id) FROM insta0.t');
$standby->stop;
unlike(fleet_ok([ 'status' ], 1, 'lost', qr/^s1 .* NO ANSWER/m), qr/unfence/, '... while it may come back, nothing is opened');
$said = fleet_ok([ 'add', 's1', home_of($s3) ], 2, 'an empty one', qr/if s1 has another address now, at the directory: UPDATE /);
$dir->safe_psql('postgres', ($said =~ /at the directory: (UPDATE .*)/)[0]);
fleet_ok([ 'add', 's1' ], 0, '... is entered');
$said = fleet_ok([ 'status' ], 1, '... and what it lacks is told', qr/^FAILED shard 0 has moved to .*, which gives no answer; if that is lost for ever, the copy is the last at .*, type: UPDATE /m);
$s2->safe_psql('postgres', $_) for $said =~ /the copy is the last at .*, type: (UPDATE .*)$/mg;
is($s2->safe_psql('postgres', 'SELECT max(id) FROM insta0.t'), $before, '... its rows are there');
cmp_ok($s2->safe_psql('postgres', 'INSERT INTO insta0.t DEFAULT VALUES RETURNING id'), '>', $before, '... and ids go on');
IPC::Run::run([ 'snowid-move', 'audit', '--fix', '--registry', home_of($dir) ], '>&', \$audited);
$dir->wait_for_catchup("snowid_registry_$_", 'replay', $dir->lsn('insert')) for qw(s1 s2);
fleet_ok([ 'status' ], 0, 'all is well') or diag $audited;
homes_ok({ s1 => 0, s2 => 4 }, 'opened again', s1 => $s3, s2 => $s2);

$_->stop for $dir, $s2, $s3;
done_testing();
