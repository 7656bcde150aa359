# doc/fleet.md, each of its commands as it stands there, on a directory and four servers.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use FleetTest;
use IPC::Run ();
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my ($dir, @servers) = fleet_nodes(qw(s1 s2 s3 s4));
my %nodes = map { ($_->name => $_) } @servers;
$servers[0]->safe_psql('postgres', q{CALL snowid.create_shards(0, 11, ddl => 'CREATE TABLE t (id bigint PRIMARY KEY DEFAULT next_id(), pad text); INSERT INTO t (pad) SELECT repeat(''x'', 100) FROM generate_series(1, 500)')});
local $ENV{DIR} = home_of($dir);
local ($ENV{S1}, $ENV{S2}, $ENV{S3}, $ENV{S4}) = map { home_of($_) } @servers;

my $work = PostgreSQL::Test::Utils::tempdir();
my @blocks = slurp_file("$FindBin::RealBin/../../doc/fleet.md") =~ /^```sh\n(.*?)^```\n/gms;
my @after = (
	sub { homes_ok({ s1 => 12, s2 => 0 }, 'two servers', map { ($_ => $nodes{$_}) } qw(s1 s2)) },
	sub { homes_ok({ s1 => 4, s2 => 8 }, 'by weight', map { ($_ => $nodes{$_}) } qw(s1 s2)) },
	sub { cmp_ok(-s "$work/fleet.html", '>', 1000, 'a page') },
	sub { homes_ok({ s3 => 1 }, 'the huge one alone', map { ($_ => $nodes{$_}) } qw(s1 s2 s3));
		is($nodes{s3}->safe_psql('postgres', q{SELECT shard FROM snowid.shards WHERE lives = 'here'}), '7', 'it is the right one') },
	sub { ok($nodes{$_}->poll_query_until('postgres', 'SELECT count(*) = 2 FROM countries'), "$_ has the table's rows") for qw(s1 s2 s3) },
	sub { homes_ok({ s1 => 0 }, 'drained', %nodes);
		is($dir->safe_psql('postgres', q{SELECT string_agg(name, ' ' ORDER BY name) FROM snowid.servers}), 's2 s3 s4', 'retired') });
is(scalar @blocks, scalar @after, 'each block has its check');
for my $i (0 .. $#blocks)
{
	my $all = '';
	IPC::Run::run([ 'sh', '-eu' ], '<', \$blocks[$i], '>&', \$all, init => sub { chdir $work });
	is($?, 0, 'block ' . ($i + 1)) or diag $blocks[$i], $all;
	$after[$i]->();
}
my ($code, $said) = fleet('drain', 's2', '--dry-run', '--', '--reverse');
is($code, 2, '--reverse without --keep');
fleet_ok([ 'drain', 's2', '--keep', '--', '--reverse', '--verify', 'none' ], 0, 'with it', qr/snowid-move back/);
$dir->wait_for_catchup("snowid_registry_$_", 'replay', $dir->lsn('insert')) for qw(s2 s3 s4);
fleet_ok([ 'status' ], 0, 'the copies are told', qr/^copy +of shards .* at s2, closed since .*; to drop it, type: snowid-move finish/m);

$_->stop for $dir, @servers;
done_testing();
