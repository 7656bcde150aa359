# Ten shards move at the same time, each with its own tool, while all are
# written.  For that many, the servers have slots and workers.
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
$_->append_conf('postgresql.conf', q{
max_worker_processes = 40
max_logical_replication_workers = 30
max_replication_slots = 40
max_wal_senders = 40
}) for $a, $b;
if ((`postgres --version` =~ /(\d+)/)[0] >= 18)
{
	$_->append_conf('postgresql.conf', 'max_active_replication_origins = 40') for $a, $b;
}
$_->append_conf('postgresql.conf', 'wal_retrieve_retry_interval = 5s') for $a, $b;
$_->start for $a, $b;
my @shards = (1 .. 10);
make_shard($a, $_, "insta$_") for @shards;
$b->safe_psql('postgres', 'CREATE EXTENSION snowid');

# Each client writes to all of the shards, one after the other.
my $script = $a->basedir . '/write.sql';
append_to_file($script, q{
\set shard random(1, 10)
INSERT INTO insta:shard.users (name) VALUES ('pgbench');
});
my $load = IPC::Run::start([ 'pgbench', '-n', '-c', 4, '-R', 400, '-T', 100, '-f', $script, $a->connstr('postgres') ],
	'>', '/dev/null', '2>&1');
$a->poll_query_until('postgres', q{SELECT count(*) > 10 FROM insta1.users WHERE name = 'pgbench'}) or die 'no load';

my %said;
my %tools = map {
	my $shard = $_;
	$shard => IPC::Run::start([ move_command($a, $b, $shard, '--verify', 'checksums', '--retries', 50) ], '>', \$said{$shard}, '2>&1')
} @shards;
for my $shard (@shards)
{
	$tools{$shard}->finish;
	is($? >> 8, 0, "shard $shard moved") or diag $said{$shard};
}
$load->finish;

is($b->safe_psql('postgres', q{SELECT count(*) FROM snowid.shards WHERE lives = 'here'}), 10, 'all live there');
is($a->safe_psql('postgres', q{SELECT count(*) FROM snowid.shards WHERE lives = 'here'}), 0, 'and not here');
for my $shard (@shards)
{
	copies_equal_ok($a, "insta${shard}_moved", $b, "insta$shard", "shard $shard");
	my $newest = $b->safe_psql('postgres', "SELECT max(id) FROM insta$shard.users");
	cmp_ok($b->safe_psql('postgres', "INSERT INTO insta$shard.users DEFAULT VALUES RETURNING id"), '>', $newest, "shard $shard: ids rise");
	moves_ok($a, $b, $shard, ['finish'], 0, "shard $shard finished");
}
nothing_left_ok($_, 'ten shards') for $a, $b;

done_testing();
