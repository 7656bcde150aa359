# Behind PgBouncer with TLS to the servers, clients notice nothing of a move, either.  Before
# 1.24 each RELOAD closes the connections of all its pools: plan says so, and a batch has
# one, however many pools it has.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PoolerTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'pgbouncer is not installed' unless have_pgbouncer();
plan skip_all => 'openssl is not installed' unless grep { -x "$_/openssl" } split /:/, $ENV{PATH};

$MoveTest::host = '127.0.0.1';
my $a = move_node('a');
my $b = move_node('b');
for my $node ($a, $b)
{
	my $dir = $node->data_dir;
	my ($out, $err) = run_command([ qw(openssl req -x509 -nodes -newkey rsa:2048 -days 2 -subj /CN=127.0.0.1), '-keyout', "$dir/server.key", '-out', "$dir/server.crt" ]);
	chmod 0600, "$dir/server.key";
	$node->append_conf('postgresql.conf', "ssl = on\nlisten_addresses = '127.0.0.1'");
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION snowid');
}
fresh_set($a, $b);
$a->safe_psql('postgres', q{UPDATE snowid.shard_registry SET pool = 'p' || shard % 2 WHERE shard < 7});
my $p = start_pooler($a, 'server_tls_sslmode = require');
my @options = pooler_options($p);
my $old = pgbouncer_version() < 1024;
my $reloads = sub { return scalar(() = slurp_file("$p->{dir}/log") =~ /RELOAD command issued/g) };

is((run_command([ 'psql', '-XAtq', '-d', pooled($p, 'p0'), '-c', 'SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()' ]))[0], 't',
	'the pooler has TLS to the server');
moves_ok($a, $b, '1-6', [ 'plan', @options ], 0, 'plan',
	$old ? qr/warning +poolers: .* has TLS to the servers: before 1\.24, RELOAD closes the connections of all pools/ : qr/ok +poolers/);

my @clients = map { (clients($p, $_->[0], 0, @{ $_->[1] }), clients($p, $_->[0], 1, @{ $_->[1] })) } [ p0 => [ 2, 4, 6 ] ], [ p1 => [ 1, 3, 5 ] ];
my @others = map { clients($p, 'insta7', $_, 7) } 0, 1;
moves_ok($a, $b, '1-6', [ @options, '--reverse' ], 0, 'moved');
is(living($b), '1,2,3,4,5,6', 'all are there');
is($reloads->(), $old ? 1 : 2, $old ? 'by one RELOAD for both pools' : 'by a RELOAD for each pool, which closes nothing');
is_deeply([ map { led_to($p, $_) } qw(p0 p1 insta7) ], [ $b->port, $b->port, $a->port ], 'each pool leads to where its shards are');
clients_ok('move', $b, \@clients, qr/^$/);
clients_ok('move', $a, \@others, qr/^$/);

@clients = map { (clients($p, $_->[0], 0, @{ $_->[1] }), clients($p, $_->[0], 1, @{ $_->[1] })) } [ p0 => [ 2, 4, 6 ] ], [ p1 => [ 1, 3, 5 ] ];
moves_ok($a, $b, '1-6', [ 'back', @options ], 0, 'back');
is($reloads->(), $old ? 2 : 4, 'as many on the way back');
clients_ok('back', $a, \@clients, qr/^$/);

# Clients come to one port, on which four processes listen.
moves_ok($a, $b, '1-6', [ 'finish', @options ], 0, 'finish');
stop_pooler($p);
my $port = PostgreSQL::Test::Cluster::get_free_port();
my @four = map { start_pooler($a, "server_tls_sslmode = require\nlisten_addr = 127.0.0.1\nso_reuseport = 1", $p->{file}, $port) } 1 .. 4;
@clients = map { clients({ dir => '127.0.0.1', port => $port }, 'p' . $_ % 2, $_ > 3, $_ % 2 ? 3 : 2) } 1 .. 6;
moves_ok($a, $b, '1-6', [ pooler_options(@four) ], 0, 'moved behind four processes');
is_deeply([ map { led_to($_, 'p0') } @four ], [ ($b->port) x 4 ], 'each leads there');
clients_ok('four processes', $b, \@clients, qr/^$/);

$_->stop for $a, $b;
done_testing();
