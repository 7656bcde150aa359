# A schema of the PL/pgSQL snippet is adopted while sessions insert: none of
# them fails, none waits for more than the catalog lock, no id comes twice.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', 'fsync = off');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowid');

# A schema of the snippet, with a table.
sub snippet_shard
{
	my ($shard) = @_;
	$node->safe_psql('postgres', snippet("insta$shard", 'table_id_seq', $shard) . qq(
CREATE TABLE insta$shard.photos (id bigint PRIMARY KEY DEFAULT insta$shard.next_id(), n int);
));
}

my $script = "$PostgreSQL::Test::Utils::tmp_check/insert.sql";
for my $mode ('simple', 'prepared')
{
	my $shard = $mode eq 'simple' ? 5 : 6;
	snippet_shard($shard);
	append_to_file($script, "INSERT INTO insta$shard.photos (n) VALUES (1);\n");
	my ($out, $err) = ('', '');
	# At a rate that leaves time, however busy the machine is.
	my $bench = IPC::Run::start(
		[ 'pgbench', '-n', '-c', 4, '-t', 2000, '-R', 2000, '-M', $mode, '-f', $script, $node->connstr('postgres') ],
		'>', \$out, '2>', \$err);
	ok($node->poll_query_until('postgres', "SELECT count(*) > 500 FROM insta$shard.photos"), "$mode: inserts run");
	my $newest = $node->safe_psql('postgres', "SELECT snowid.adopt_shard($shard, 'insta$shard')");
	my $running = $node->safe_psql('postgres', "SELECT count(*) < 8000 FROM insta$shard.photos");
	$bench->finish;

	is($running, 't', "$mode: adopted while they ran");
	is($bench->result(0), 0, "$mode: no insert failed") or diag($err);
	is($node->safe_psql('postgres', "SELECT count(*) FROM insta$shard.photos"), 8000, "$mode: all rows are there");
	is( $node->safe_psql('postgres',
			"SELECT count(*) FROM insta$shard.photos WHERE id > $newest + (100 << 23) AND snowid.id_shard(id) = $shard") > 0,
		1, "$mode: and newer ids");
	is( $node->safe_psql('postgres',
			"SELECT bool_and(snowid.id_timestamp(id) < clock_timestamp() + interval '1010 ms') FROM insta$shard.photos"),
		't', "$mode: no id is more than the second ahead");
	unlink $script;
}

# A transaction that has an id of the snippet, not yet committed: adoption
# waits for it, and goes on above it.
snippet_shard(7);
my ($in, $out, $err) = ('', '', '');
my $open = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ], '<', \$in, '>', \$out, '2>', \$err);
$in = "BEGIN; INSERT INTO insta7.photos (n) VALUES (1); SELECT 'inserted';\n";
$open->pump until $out =~ /inserted/;
my ($aout, $aerr) = ('', '');
my $adopt = IPC::Run::start(
	[ 'psql', '-XAtq', '-d', $node->connstr('postgres') . ' application_name=adopt', '-c', "SELECT snowid.adopt_shard(7, 'insta7')" ],
	'>', \$aout, '2>', \$aerr);
ok( $node->poll_query_until('postgres',
		q(SELECT count(*) = 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		  WHERE a.application_name = 'adopt' AND NOT l.granted AND l.relation = 'insta7.table_id_seq'::regclass)),
	'adoption waits for the transaction that has an id');

# A call of the old function that comes meanwhile waits for the adoption.  The new
# function does not repeat its id.
my ($lout, $lerr) = ('', '');
my $late = IPC::Run::start(
	[ 'psql', '-XAtq', '-d', $node->connstr('postgres') . ' application_name=late', '-c', 'INSERT INTO insta7.photos (n) VALUES (2)' ],
	'>', \$lout, '2>', \$lerr);
ok( $node->poll_query_until('postgres',
		q(SELECT count(*) = 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		  WHERE a.application_name = 'late' AND NOT l.granted)),
	'a later insert waits behind it');
$in = "COMMIT;\n\\q\n";
$open->finish;
$adopt->finish;
$late->finish;
is($aerr . $lerr, '', 'both succeed');
$node->safe_psql('postgres', 'INSERT INTO insta7.photos (n) SELECT 3 FROM generate_series(1, 5000)');
is( $node->safe_psql('postgres',
		'SELECT min(id) FILTER (WHERE n = 3) > max(id) FILTER (WHERE n < 3) FROM insta7.photos'),
	't', 'all later ids are above both');

$node->stop;
done_testing();
