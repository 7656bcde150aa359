# A shard as it was at a time, from a real repository of pgBackRest: by the commands of
# doc/one-shard.md, beside the server that goes on.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run ();
use MoveTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(usleep);

plan skip_all => 'no pgBackRest here' unless grep { -x "$_/pgbackrest" } split /:/, $ENV{PATH};

my $dir = PostgreSQL::Test::Utils::tempdir_short();
my $live = move_node('live');
my @pgbackrest = ('pgbackrest', '--stanza=main');
$ENV{PGBACKREST_CONFIG} = "$dir/pgbackrest.conf";
mkdir "$dir/repo";
append_to_file($ENV{PGBACKREST_CONFIG}, "[global]\nrepo1-path=$dir/repo\nlog-path=$dir\nlock-path=$dir\nspool-path=$dir\n"
	  . "start-fast=y\n[main]\npg1-path=" . $live->data_dir . "\npg1-port=" . $live->port . "\npg1-socket-path=" . $live->host . "\n");
$live->append_conf('postgresql.conf', "archive_mode = on\narchive_command = 'pgbackrest --config=$ENV{PGBACKREST_CONFIG} --stanza=main archive-push %p'\n");
$live->start;
make_shard($live, 5, 'insta5');
make_shard($live, 6, 'insta6');
my $said;
plan skip_all => "this pgBackRest does not know this server: $said" unless IPC::Run::run([ @pgbackrest, 'stanza-create' ], '>&', \$said);
ok(IPC::Run::run([ @pgbackrest, 'backup', '--type=full' ], '>&', \$said), 'a full backup') or diag $said;

# It takes a backup for one of before a time if that is seconds later.
my $stopped = $live->safe_psql('postgres', 'SELECT clock_timestamp()');
$live->poll_query_until('postgres', "SELECT clock_timestamp() > '$stopped'::timestamptz + interval '2 s'") or die;

# After the backup, before the mistake; the log of all is in the archive.
$live->safe_psql('postgres', q{INSERT INTO insta5.users (name) VALUES ('later')});
my $then = $live->safe_psql('postgres', q{SELECT clock_timestamp()});
$live->safe_psql('postgres', q{DELETE FROM insta5.photos WHERE n <= 10; UPDATE insta5.users SET name = 'x' WHERE name = 'later'; INSERT INTO insta6.users (name) VALUES ('theirs')});
my $segment = $live->safe_psql('postgres', 'SELECT pg_walfile_name(pg_switch_wal())');
$live->poll_query_until('postgres', "SELECT last_archived_wal >= '$segment' FROM pg_stat_archiver") or die 'is not archived';

# The block of the page, with a port that is free.
my ($block) = slurp_file("$FindBin::RealBin/../../doc/one-shard.md") =~ /one_pgbackrest\.pl runs it -->\n```sh\n(.*?)```/s;
my $port = PostgreSQL::Test::Cluster::get_free_port();
$block =~ s/5433/$port/g;
local %ENV = (%ENV, TIME => $then, PGHOST => $live->host, PGDATABASE => 'postgres');
ok(IPC::Run::run([ 'sh', '-euc', "cd '$dir'\n$block" ], '<', '/dev/null', '>', "$dir/said", '2>&1'), 'the commands of the page') or diag slurp_file("$dir/said");
my $pid = (split /\n/, slurp_file("$dir/recovered/postmaster.pid"))[0];
END { kill 'INT', $pid if $pid }

my $there = "port=$port";
my $is_open = sub { IPC::Run::run([ 'psql', '-XAtqd', $there, '-c', 'SELECT pg_is_in_recovery()' ], '>', \my $out); return ($out // '') eq "f\n" };
for (1 .. 1800)
{
	last if $is_open->();
	usleep(100_000);
}
ok($is_open->(), 'recovered to a time');

IPC::Run::run([ 'snowid-move', 'diff', '--shard', '5,6', '--from', $there, '--to', $live->connstr('postgres') ], '>', \$said, '2>&1');
is($? >> 8, 1, 'it differs') or diag $said;
like($said, qr/^insta5\.photos: 10 only at --from, 0 only at --to, 0 differ,/m, 'what would come back');
like($said, qr/^insta5\.users: 0 only at --from, 0 only at --to, 1 differ,/m, 'what would change');
like($said, qr/^insta6\.users: 0 only at --from, 1 only at --to, 0 differ,/m, 'what another shard would lose');

$live->stop;
done_testing();
