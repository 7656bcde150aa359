# The queries of examples/monitoring, as Debian's prometheus-postgres-exporter
# runs them: all values arrive, and tell of a sequence that is ahead of its
# clock.  The exporter's role may do nothing else.
use strict;
use warnings;

use File::Basename;
use HTTP::Tiny;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my ($exporter) = grep { -x } map { "$_/prometheus-postgres-exporter" } split /:/, $ENV{PATH};
plan skip_all => 'package prometheus-postgres-exporter is not installed' unless $exporter;

my $queries = dirname(__FILE__) . '/../../examples/monitoring/queries.yaml';
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
$node->safe_psql('postgres', q{
CREATE EXTENSION snowid;
CALL snowid.create_shards(0, 4);
SELECT insta0.next_id();
SELECT snowid.advance('insta3.id_seq', snowid.make_id(now() + interval '1 hour', 3, 0));
SELECT snowid.fence_shard(4, 'elsewhere');
CREATE ROLE exporter LOGIN;
GRANT SELECT ON ALL SEQUENCES IN SCHEMA insta0, insta1, insta2, insta3 TO exporter;
GRANT SELECT (peer) ON snowid.moves TO exporter;
});

my $port = PostgreSQL::Test::Cluster::get_free_port();
my $log = '';
my $run;
{
	local $ENV{DATA_SOURCE_NAME} = 'user=exporter dbname=postgres host=' . $node->host . ' port=' . $node->port;
	local $ENV{PG_EXPORTER_AUTO_DISCOVER_DATABASES};
	$run = IPC::Run::start(
		[ $exporter, "--extend.query-path=$queries", "--web.listen-address=127.0.0.1:$port" ],
		'>', \$log, '2>&1');
}

# It answers, and has read the queries, once it is up.
my $page = '';
for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	$page = HTTP::Tiny->new(timeout => 60)->get("http://127.0.0.1:$port/metrics")->{content};
	last if $page =~ /^snowid_/m;
	$run->pumpable or last;
	usleep(100_000);
}
$run->kill_kill;

my %value;
$value{$1} = $2 while $page =~ /^(snowid_[^{ ]+)(?:\{[^}]*\})? (\S+)$/mg;
is($value{snowid_shards_here}, 4, 'shards that are here') or diag($log);
is($value{snowid_shards_missing}, 0, 'missing');
is($value{snowid_shards_moved}, 1, 'moved');
is($value{snowid_sequences_at_limit}, 1, 'sequences not behind the clock');
is($value{snowid_sequences_ahead}, 1, 'sequences ahead of it');
cmp_ok($value{snowid_ahead_seconds}, '>', 3500, 'how far');
cmp_ok($value{snowid_left_seconds}, '>', 86400 * 365, 'time left');
cmp_ok($value{snowid_left_seconds}, '<', 86400 * 366 * 20, 'until 2046');
is($value{snowid_sessions_waiting}, 0, 'no session waits');
is("@value{qw(snowid_moves_under_way snowid_moves_unattended snowid_load_weight)}", '0 0 1', 'no move but a shard closed by hand, no fleet');
cmp_ok($value{snowid_load_bytes}, '>=', 0, 'the size of the shards');
like($page, qr/^snowid_sequence_ahead_seconds\{[^}]*schema="insta3"[^}]*\} 3\.\d+e\+03$|^snowid_sequence_ahead_seconds\{[^}]*schema="insta3"[^}]*\} 3\d\d\d/m,
	'and which it is');

done_testing();
