# The directory and a server are both put back, the server at another address: what it has is older than what has left it
# since, and audit --fix closes neither.
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
$s1->safe_psql('postgres', q{CALL snowid.create_shards(0, 3, ddl => 'CREATE TABLE t (id bigint PRIMARY KEY DEFAULT next_id()); INSERT INTO t DEFAULT VALUES')});
fleet_ok([ 'add', 's1', home_of($s1) ], 0, 'add s1');
fleet_ok([ 'add', 's2', home_of($s2) ], 0, 'add s2');
$_->stop for $s1, $dir;
$_->backup_fs_cold('before') for $s1, $dir;
$_->start for $s1, $dir;
for my $command ('move', 'finish')
{
	IPC::Run::run([ 'snowid-move', $command, '--shard', 0, '--from', 's1', '--to', 's2', '--registry', home_of($dir) ], '>&', \my $told);
	is($?, 0, $command) or diag $told;
}
my $id = $s2->safe_psql('postgres', 'INSERT INTO insta0.t DEFAULT VALUES RETURNING id');
$dir->wait_for_catchup("snowid_registry_$_", 'replay', $dir->lsn('insert')) for qw(s1 s2);
$_->stop for $s1, $dir;
my $old_dir = as_it_was($dir, 'old_dir');
my $new_s1 = PostgreSQL::Test::Cluster->new('new_s1');
$new_s1->init_from_backup($s1, 'before');
$new_s1->append_conf('postgresql.conf', 'port = ' . $new_s1->port . "\nunix_socket_directories = '" . $new_s1->host . "'\nlisten_addresses = ''");
$new_s1->start;

my $said = fleet_ok([ 'add', 's1', home_of($new_s1) ], 2, 'another address');
like($said, qr/at the directory: (UPDATE .*;)$/m, '... with what to type') or diag $said;
$old_dir->safe_psql('postgres', ($said =~ /at the directory: (UPDATE .*;)$/m)[0]);
is($old_dir->safe_psql('postgres', q{SELECT jsonb_array_length(homes) FROM snowid.shard_registry WHERE shard = 0}), '1', 'which is no move');
fleet_ok([ 'add', 's1', home_of($new_s1) ], 0, 'and again');
for my $fix ([], ['--fix'])
{
	IPC::Run::run([ 'snowid-move', 'audit', '--registry', home_of($dir), @$fix ], '>&', \$said);
	like($said, qr/shard 0 is open at .*, and at .*\n.*snowid-move diff --shard 0 .* may be newer; to keep it, /, "audit @$fix: told");
}
is($s2->safe_psql('postgres', "SELECT lives || ' ' || (SELECT count(*) FROM insta0.t WHERE id = $id) FROM snowid.shards WHERE shard = 0"), 'here 1', 'and nothing is closed');
$_->stop for $old_dir, $new_s1, $s2;

done_testing();
