# The alerts of examples/monitoring: promtool accepts them, and each fires in a real Prometheus, which asks
# the exporter, once its state is made.  Only the times and sizes that a test cannot wait for are less.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use FleetTest;
use HTTP::Tiny;
use IPC::Run ();
use JSON::PP;
use MoveTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(usleep);

my %program = map { my $p = $_; ($p => (grep { -x } map { "$_/$p" } split /:/, $ENV{PATH})[0]) } qw(prometheus promtool prometheus-postgres-exporter);
for (sort keys %program)
{
	plan skip_all => "$_ is not installed" unless $program{$_};
}

my $examples = "$FindBin::RealBin/../../examples/monitoring";
command_ok([ $program{promtool}, 'check', 'rules', "$examples/alerts.yaml" ], 'promtool accepts the rules');

# One state for each alert.
my ($dir, $s1, $s2, $s3) = fleet_nodes(qw(s1 s2 s3));
$s1->safe_psql('postgres', q{
CALL snowid.create_shards(1, 5, ddl => 'CREATE TABLE t (id bigint PRIMARY KEY DEFAULT next_id(), pad text); INSERT INTO t (pad) SELECT repeat(''x'', 1000) FROM generate_series(1, 300)')});
fleet_ok([ 'add', $_->name, home_of($_) ], 0, 'add ' . $_->name) for $s1, $s2;
moves_ok($s1, $s2, 1, [], 0, 'one has moved: a copy is left');
moves_ok($s1, $s2, 2, [ '--stop-after', 'copied' ], 0, 'one is under way, with a slot');
$s1->safe_psql('postgres', q{
SELECT snowid.advance('insta3.id_seq', snowid.make_id(now() + interval '1 hour', 3, 0));
SELECT snowid.create_shard(6, epoch => '1992-06-01')});
$dir->safe_psql('postgres', q{INSERT INTO snowid.shard_registry (shard, schema) VALUES (7, 'gone')});
$s2->safe_psql('postgres', 'ALTER SUBSCRIPTION snowid_registry_s2 DISABLE');

my (@runs, @targets);
my $log = '';
for my $node ($dir, $s1, $s2, $s3)
{
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	local $ENV{DATA_SOURCE_NAME} = 'dbname=postgres host=' . $node->host . ' port=' . $node->port;
	local $ENV{PG_EXPORTER_AUTO_DISCOVER_DATABASES};
	push @runs, IPC::Run::start([ $program{'prometheus-postgres-exporter'}, "--extend.query-path=$examples/queries.yaml", "--web.listen-address=127.0.0.1:$port" ], '>', \$log, '2>&1');
	push @targets, "'127.0.0.1:$port'";
}
my $work = PostgreSQL::Test::Utils::tempdir();
my $rules = slurp_file("$examples/alerts.yaml");
$rules =~ s/^(\s+for:) .*/$1 0s/mg;
$rules =~ s/> 3600/> 0.1/;
$rules =~ s/> 10e9/> 1/;
append_to_file("$work/alerts.yaml", $rules);
append_to_file("$work/prometheus.yaml", "global: { scrape_interval: 1s, evaluation_interval: 1s }\nrule_files: [ alerts.yaml ]\n"
	  . "scrape_configs: [ { job_name: snowid, static_configs: [ { targets: [ " . join(', ', @targets) . " ] } ] } ]\n");
my $port = PostgreSQL::Test::Cluster::get_free_port();
push @runs, IPC::Run::start([ $program{prometheus}, "--config.file=$work/prometheus.yaml", "--storage.tsdb.path=$work/data", "--web.listen-address=127.0.0.1:$port" ], '>', \$log, '2>&1');

my @wanted = $rules =~ /alert: (\w+)/g;
my %fires;
for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
{
	my $answer = HTTP::Tiny->new(timeout => 60)->get("http://127.0.0.1:$port/api/v1/alerts");
	if ($answer->{success})
	{
		$fires{ $_->{labels}{alertname} } = $_->{annotations}{summary} for grep { $_->{state} eq 'firing' } @{ decode_json($answer->{content})->{data}{alerts} };
	}
	last if !grep { !$fires{$_} } @wanted;
	$_->pump_nb for @runs;
	usleep(100_000);
}
ok($fires{$_}, "$_ fires") or diag substr($log, -3000) for @wanted;
like($fires{SnowidRegistryNotFollowed}, qr/nobody reads snowid_registry_s2/, 'it says which server');

$_->signal('KILL') for @runs;
$_->finish for @runs;
$_->stop for $dir, $s1, $s2, $s3;
done_testing();
