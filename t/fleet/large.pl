# The queries of a plan for 8,192 shards on 256 servers under 100 rules: seconds, and what the rules say.  The
# servers' answers are numbers.  (The plan itself, of as many: t/unit/plan_test.c.)
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $text = slurp_file("$FindBin::RealBin/../../bin/fleet/sql/fleet.sql");
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
$node->safe_psql('postgres', q{
CREATE EXTENSION snowid;
INSERT INTO snowid.shard_registry (shard, schema, home) SELECT n, 'insta' || n, 'host=s' || n % 256 || ' dbname=x' FROM generate_series(0, 8191) n;
INSERT INTO snowid.servers (name, home) SELECT 's' || n, 'host=s' || n || ' dbname=x' FROM generate_series(0, 255) n;
INSERT INTO snowid.placements (shards, rule, servers)
SELECT int4multirange(int4range(n * 80, n * 80 + 80)), (ARRAY['stay', 'only', 'apart'])[n % 3 + 1],
	CASE WHEN n % 3 = 1 THEN ARRAY(SELECT 's' || m FROM generate_series(0, 200) m) END
FROM generate_series(0, 99) n});

my $answers = q{INSERT INTO answer SELECT n, 's' || n, 'host=s' || n || ' dbname=x', 's' || n, jsonb_build_object('run', n::text, 'shards',
(SELECT jsonb_agg(jsonb_build_object('shard', m, 'lives', 'here', 'bytes', (1e12 / (1 + m))::bigint)) FROM generate_series(n, 8191, 256) m)) FROM generate_series(0, 255) n;};
my $plan = 'UPDATE pool SET target = CASE WHEN i % 10 = 0 THEN (server + 1) % 256 ELSE server END;';
my @parts = ('SET search_path = pg_catalog, pg_temp; SET client_min_messages = warning;', $text =~ /^(\\set .*?\n|SELECT \$\$\n.*?\\gset\n)/msg,
	'CREATE TEMP TABLE answer (n int, name text, home text, place text, facts jsonb, trouble text);', $answers, (map { query_of($_) } qw(told pools)), $plan, query_of('jobs'),
	q{SELECT 'found', count(*), count(allowed), min(length(allowed)), count(DISTINCT allowed), count(apart), min(length(apart)), count(*) FILTER (WHERE stays) FROM pool;},
	q{SELECT 'peak', (regexp_match(pg_read_file('/proc/self/status'), 'VmHWM:\\s+(\\d+)'))[1]::int / 1024;}, q{SELECT 'jobs', sum(cardinality(string_to_array(shards, ','))) FROM job;}, query_of('doubts'), query_of('plan_text'));
my $start = time;
my ($code, $out, $err) = $node->psql('postgres', join("\n", "\\set by bytes", "\\set seconds 0", "\\set jobs 1", "\\set size 0", "\\set drained x", "\\set max_lag -1", "\\set registry x", "\\set directory x", @parts), timeout => $PostgreSQL::Test::Utils::timeout_default);
my $took = time - $start;
is($err, '', 'no error');
cmp_ok($took, '<=', 30, "in $took s");
cmp_ok($out =~ /^peak\|(\d+)$/m ? $1 : 1e9, '<=', 200, 'MB of memory in the session');
like($out, qr/^found\|8192\|2640\|256\|1\|2640\|33\|2720$/m, 'pools, and their rules');
like($out, qr/^jobs\|820$/m, 'all that moves is in a job');
is(() = $out =~ /^s\d+ +#* +\d+ % /mg, 256, 'a line for each server');

$node->stop;
done_testing();

sub query_of
{
	my ($name) = @_;
	return ($text =~ /^\\echo fleet_${name}_sql\n(.*?;)$(?!\n\S)/ms)[0];
}
