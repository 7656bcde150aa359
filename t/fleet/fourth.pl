# A fourth server is added to three, under clients of PgBouncer: two commands, no error at any client, no
# row lost, no id twice, and nobody waits for long.  Then one of the four is drained, while the program
# is killed five times, and one server restarted: the same command ends it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use FleetTest;
use IPC::Run ();
use MoveTest;
use PoolerTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(usleep);

plan skip_all => 'pgbouncer is not installed' unless have_pgbouncer();

my ($dir, $s1, $s2, $s3, $s4) = fleet_nodes(qw(s1 s2 s3 s4));
my @nodes = ($s1, $s2, $s3, $s4);
my %first = (s1 => 0, s2 => 24, s3 => 44, s4 => 64);

for ([ $s1, 0, 23 ], [ $s2, 24, 43 ], [ $s3, 44, 63 ])
{
	my ($node, $first, $last) = @$_;
	$node->safe_psql('postgres', qq{
CALL snowid.create_shards($first, $last, ddl => 'CREATE TABLE t (id bigint PRIMARY KEY DEFAULT next_id(), pad text DEFAULT repeat(''x'', 100)); INSERT INTO t SELECT FROM generate_series(1, 200)');
UPDATE snowid.shard_registry SET pool = 'p' || shard / 4});
	fleet_ok([ 'add', $node->name, home_of($node) ], 0, 'add ' . $node->name);
}
my $pooler = start_pooler($dir);
my %shards_of = map { my $p = $_; ("p$p" => [ map { 4 * $p + $_ } 0 .. 3 ]) } 0 .. 15;
$dir->safe_psql('postgres', q{INSERT INTO snowid.poolers VALUES ('} . console($pooler) . q{')});

my @clients = paced_clients($pooler, map { ("p$_" => $shards_of{"p$_"}) } 0, 2, 4, 5, 6, 9, 11, 13, 15);

# A client of the directory's server, which no move concerns: what it waits for is this machine.
$dir->safe_psql('postgres', 'CREATE TABLE noise (id bigint GENERATED ALWAYS AS IDENTITY)');
my $unconcerned = paced_client($dir->connstr('postgres'), 'noise');
more_ids($unconcerned);
fleet_ok([ 'balance' ], 2, 'without its file', qr/Add at the end: -- --pooler-file PATH/);
my @for_move = ('--', '--pooler-file', $pooler->{file}, '--pause-limit', 20000, '--lock-timeout', 1000, '--verify', 'counts');
fleet_ok([ 'add', 's4', home_of($s4) ], 0, 'add s4');
fleet_ok([ 'balance', '--by', 'shards', @for_move ], 0, 'balance');
homes_ok({ map { ($_->name => 16) } @nodes }, 'balanced', map { ($_->name => $_) } @nodes);
my $longest = longest_wait(@clients);
my $noise = longest_wait($unconcerned);
stop_clients($unconcerned);
note "longest wait $longest ms; of who is not concerned, $noise ms";
cmp_ok($longest, '<=', 500 + ($noise > 100 ? $noise : 0), 'nobody waits for longer than half a second, and what a busy machine takes from who is not concerned');
rows_ok('four servers');

# Drained, in spite of everything.
my @expected = qr/57P01|57P02|57P03|08006|08P01|08003|lost|closed the connection|SSL|25P02|query_wait_timeout|server_login|no more connections/;
@clients = paced_clients($pooler, map { ("p$_" => $shards_of{"p$_"}) } 0, 5, 6, 10, 12, 15);
srand(7);
for my $n (1 .. 5)
{
	my $run = IPC::Run::start([ fleet_command('drain', 's2', @for_move) ], '>', \my $out, '2>', \my $err);
	usleep(100_000 + int(rand(1_000_000)));
	kill_all();
	$run->finish;
	next unless $n == 3;
	$s3->stop('immediate');
	$s3->start;
}
my ($code, $said);
for (1 .. 3) { ($code, $said) = fleet('drain', 's2', @for_move); last if $code == 0 }
is($code, 0, 'the same command ends it') or diag $said;
fleet_ok([ 'retire', 's2' ], 0, 'retired');
homes_ok({ s2 => 0 }, 'drained', map { ($_->name => $_) } @nodes);
is(join('', map { $_->safe_psql('postgres', 'SELECT count(*) FROM snowid.moves') } @nodes), '0000', 'no journal is left');
is(join('', map { $_->safe_psql('postgres', q{SELECT count(*) FROM pg_namespace WHERE nspname ~ '_moved'}) } @nodes), '0000', 'no copy is left');
rows_ok('drained', @expected);

$_->stop for $dir, @nodes;
done_testing();

# Each row that a client was told of is there, once, on one of the servers.
sub rows_ok
{
	my ($name, $expected) = @_;
	my ($ids, $errors) = stop_clients(@clients);
	my %there;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	for my $node (@nodes)
	{
		my $tables = $node->safe_psql('postgres', q{SELECT string_agg(format('SELECT id FROM %I.t', schema), ' UNION ALL ') FROM snowid.shards WHERE lives = 'here'});
		next unless $tables;
		$there{$_}++ for split /\n/, $node->safe_psql('postgres', $tables);
	}
	cmp_ok(scalar @$ids, '>', 100, "$name: clients have written");
	is_deeply([ grep { ($there{$_} // 0) != 1 } @$ids ], [], "$name: each of " . @$ids . ' rows is there once');
	is_deeply([ grep { $there{$_} > 1 } keys %there ], [], "$name: no id is there twice");
	is_deeply([ grep { !defined $expected || !/$expected/ } @$errors ], [], "$name: no error at a client");
	return;
}

# The program and what it has started, as a power switch would.
sub kill_all
{
	my $mark = home_of($dir);
	for my $file (glob '/proc/[0-9]*/cmdline')
	{
		open my $f, '<', $file or next;
		my $line = do { local $/; <$f> } // '';
		kill 'KILL', $file =~ /(\d+)/ if $line =~ /^(\S*\/)?snowid-(fleet|move)\0/ && index($line, $mark) >= 0;
	}
	return;
}
