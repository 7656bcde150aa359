# The alerts of examples/monitoring: promtool accepts them; in a real Prometheus, which asks the exporter, none
# is up while all is well, and each fires once its state is made.  Only the times and sizes that a test cannot
# wait for are less.
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
use POSIX 'strftime';
use Time::HiRes qw(usleep);

my %program = map { my $p = $_; ($p => (grep { -x } map { "$_/$p" } split /:/, $ENV{PATH})[0]) } qw(prometheus promtool prometheus-postgres-exporter);
for (sort keys %program)
{
	plan skip_all => "$_ is not installed" unless $program{$_};
}

my $examples = "$FindBin::RealBin/../../examples/monitoring";
command_ok([ $program{promtool}, 'check', 'rules', "$examples/alerts.yaml" ], 'promtool accepts the rules');

my ($dir, $s1, $s2, $s3) = fleet_nodes(qw(s1 s2 s3));
my $shards = q{CALL snowid.create_shards(%d, %d, ddl => 'CREATE TABLE t (id bigint PRIMARY KEY DEFAULT next_id(), pad text); INSERT INTO t (pad) SELECT repeat(''x'', 1000) FROM generate_series(1, 300)')};
$s1->safe_psql('postgres', sprintf $shards, 1, 5);
$s2->safe_psql('postgres', sprintf $shards, 11, 30);
fleet_ok([ 'add', 's1', home_of($s1) ], 0, 'add s1');
fleet_ok([ 'add', 's2', home_of($s2), '--weight', 4 ], 0, 'add s2');
$_->poll_query_until('postgres', 'SELECT count(*) = 25 FROM snowid.shard_registry') or die 'no registry' for $s1, $s2;

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
$rules =~ s/> 10e9/> 30e6/;
append_to_file("$work/alerts.yaml", $rules);
append_to_file("$work/prometheus.yaml", "global: { scrape_interval: 1s, evaluation_interval: 1s }\nrule_files: [ alerts.yaml ]\n"
	  . "scrape_configs: [ { job_name: snowid, static_configs: [ { targets: [ " . join(', ', @targets) . " ] } ] } ]\n");
my $port = PostgreSQL::Test::Cluster::get_free_port();
push @runs, IPC::Run::start([ $program{prometheus}, "--config.file=$work/prometheus.yaml", "--storage.tsdb.path=$work/data", "--web.listen-address=127.0.0.1:$port" ], '>', \$log, '2>&1');

my @wanted = $rules =~ /alert: (\w+)/g;
my %fires;

# Nothing is up while all is well: after each server was asked, the rules were looked at.
my $healthy = wait_for(sub { @{ asked('query?query=snowid_load_weight')->{result} // [] } == 4 && @{ asked('query?query=snowid_slot_behind_bytes')->{result} // [] } == 2 }) && time;
ok($healthy, 'all servers were asked');
ok(looked_at_after($healthy), 'and all rules looked at');
is(join(' ', map { "$_->{labels}{alertname}: $_->{annotations}{summary}" } @{ asked('alerts')->{alerts} // [] }), '', 'nothing is up while all is well');

# One state for each alert.
moves_ok($s1, $s2, 1, [], 0, 'one has moved: a copy is left');
moves_ok($s1, $s2, 2, [ '--stop-after', 'copied' ], 0, 'one is under way, with a slot');
$s1->safe_psql('postgres', q{
SELECT snowid.advance('insta3.id_seq', snowid.make_id(now() + interval '1 hour', 3, 0));
SELECT snowid.create_shard(6, epoch => '1992-06-01');
INSERT INTO insta4.t (pad) SELECT repeat('x', 1000) FROM generate_series(1, 20000)});
my $subscription = $s2->safe_psql('postgres', q{SELECT subname FROM pg_subscription WHERE subname ^@ 'snowid_move_'});
$s2->safe_psql('postgres', "ALTER SUBSCRIPTION $_ DISABLE") for $subscription, 'snowid_registry_s2';
$dir->safe_psql('postgres', q{INSERT INTO snowid.shard_registry (shard, schema) VALUES (7, 'gone'); ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'});
$dir->reload;
for my $server ($dir, $s1)
{
	$server->safe_psql('postgres', q{SELECT pg_logical_emit_message(false, '', 'x'); SELECT pg_switch_wal()}) for 1 .. 4;
	$server->safe_psql('postgres', 'CHECKPOINT');
}

# What was up while the programs were at work is not counted.
ok(looked_at_after(time), 'all rules looked at again');
wait_for(sub {
	$fires{ $_->{labels}{alertname} }{ $_->{annotations}{summary} } = 1 for grep { $_->{state} eq 'firing' } @{ asked('alerts')->{alerts} // [] };
	return !grep { !$fires{$_} } @wanted;
});
ok($fires{$_}, "$_ fires") or diag substr($log, -3000) for @wanted;
like(join("\n", keys %{ $fires{SnowidRegistryNotFollowed} }), qr/nobody reads snowid_registry_s2/, 'it says which server');

$_->signal('KILL') for @runs;
$_->finish for @runs;
$_->stop for $dir, $s1, $s2, $s3;
done_testing();

# What Prometheus answers.
sub asked
{
	my ($what) = @_;
	my $answer = HTTP::Tiny->new(timeout => 60)->get("http://127.0.0.1:$port/api/v1/$what");

	return $answer->{success} ? decode_json($answer->{content})->{data} : {};
}

sub wait_for
{
	my ($condition) = @_;
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return 1 if $condition->();
		$_->pump_nb for @runs;
		usleep(100_000);
	}
	return 0;
}

# Were all rules looked at after that time, with what servers said after it?
sub looked_at_after
{
	my ($time) = @_;

	return wait_for(sub { all_of(map { $_->{lastEvaluation} gt strftime('%Y-%m-%dT%H:%M:%S', gmtime($time + 2)) } map { @{ $_->{rules} } } @{ asked('rules')->{groups} // [] }) });
}

sub all_of
{
	return @_ > 0 && !grep { !$_ } @_;
}
