# Ranges of shards, and scripts over them, that are cancelled, killed and
# raced: each shard that exists is complete, and the same call makes the rest.
use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->append_conf('postgresql.conf', 'fsync = off');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowid');

# Start a psql on its own, with a name to find it by.
sub session
{
	my ($name, $sql) = @_;
	my %s = (out => '', err => '');
	$s{handle} = IPC::Run::start(
		[
			'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-v', 'VERBOSITY=verbose',
			'-d', $node->connstr('postgres') . " application_name=$name", '-c', $sql
		],
		'>', \$s{out}, '2>', \$s{err});
	return \%s;
}

my $ddl = 'CREATE TABLE a (id bigint PRIMARY KEY DEFAULT next_id());'
  . ' CREATE TABLE b (id bigint PRIMARY KEY DEFAULT next_id(), a bigint REFERENCES a);';

# Registered shards that lack something, and schemas that no shard has.
my $not_whole = q(
SELECT count(*) FROM snowid.shards s
WHERE lives <> 'here' OR tables <> 2
   OR to_regclass(schema || '.id_seq') IS NULL
   OR to_regprocedure(schema || '.next_id()') IS NULL);
my $not_registered = q(
SELECT count(*) FROM pg_namespace n
WHERE nspname ~ '^insta' AND NOT EXISTS (SELECT FROM snowid.shard_registry r WHERE r.schema = n.nspname));

# Progress.
my ($ret, $out, $err) =
  $node->psql('postgres', "CALL snowid.create_shards(0, 249, ddl => '$ddl')");
is($ret, 0, 'a range is made');
like($err, qr/NOTICE:  100 of 250 shards, \d+ a second, \d+ s left/, 'tells how far it is');
like($err, qr/NOTICE:  250 shards done in \d+\.\d s, \d+ a second/, 'tells the end');
($ret, $out, $err) = $node->psql('postgres', "CALL snowid.for_each_shard('ANALYZE a', 150)");
like($err, qr/NOTICE:  100 shards done in/, 'for_each_shard counts the shards that it visits');

# Cancelled and killed in the middle.
for my $how ('pg_cancel_backend', 'pg_terminate_backend')
{
	my $before = $node->safe_psql('postgres', 'SELECT count(*) FROM snowid.shard_registry');
	my $s = session('maker', "CALL snowid.create_shards(1000, 8191, ddl => '$ddl')");
	ok( $node->poll_query_until(
			'postgres', "SELECT count(*) > $before + 20 FROM snowid.shard_registry"),
		"$how: some shards are made");
	is($node->safe_psql('postgres',
			"SELECT $how(pid) FROM pg_stat_activity WHERE application_name = 'maker'"),
		't', "$how: the session is hit");
	$s->{handle}->finish;
	like($s->{err}, qr/57014|57P01/, "$how: the call ends");
	is($node->safe_psql('postgres', $not_whole), 0, "$how: what is there is whole");
	is($node->safe_psql('postgres', $not_registered), 0, "$how: nothing else is left");
}
my $last = $node->safe_psql('postgres', 'SELECT max(shard) + 5 FROM snowid.shard_registry');
$node->safe_psql('postgres', "CALL snowid.create_shards(1000, $last, ddl => '$ddl')");
is( $node->safe_psql('postgres',
		'SELECT count(*) = max(shard) - 999 FROM snowid.shard_registry WHERE shard >= 1000'),
	't', 'the same call goes on, with no gap');
is($node->safe_psql('postgres', $not_whole), 0, 'and all are whole');

# One that has waited for another session's shard skips it.
my ($made_in, $made_out, $made_err) = ('', '', '');
my $first = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ], '<', \$made_in, '>', \$made_out, '2>', \$made_err);
$made_in = "BEGIN; SELECT snowid.create_shard(5000); SELECT 'made';\n";
$first->pump until $made_out =~ /made/;
my $ranging = session('range', 'CALL snowid.create_shards(5000, 5002)');
ok($node->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
	WHERE a.application_name = 'range' AND NOT l.granted)), 'a range waits for a shard that is being made');
$made_in = "COMMIT;\n";
$first->finish;
$ranging->{handle}->finish;
like($ranging->{err}, qr/NOTICE:  .*3 shards done/, '... and skips it');
unlike($ranging->{err}, qr/ERROR/, '... without an error');
$node->psql('postgres', 'SELECT snowid.drop_shard(s) FROM generate_series(5000, 5002) s');

# Two sessions that make the same range share the work.
my @makers = map { session("maker$_", "CALL snowid.create_shards(6000, 6099, ddl => '$ddl')") } (1, 2);
$_->{handle}->finish for @makers;
$node->psql('postgres', "CALL snowid.create_shards(6000, 6099, ddl => '$ddl')");
is( $node->safe_psql('postgres', 'SELECT count(*) FROM snowid.shards WHERE shard BETWEEN 6000 AND 6099 AND tables = 2'),
	100, 'two makers of one range leave it whole');
unlike($makers[0]{err} . $makers[1]{err}, qr/ERROR:/, 'and neither fails');

# Two that claim one number: the second waits, and then gives way or goes on.
my $waits = q(SELECT count(*) = 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
	WHERE a.application_name = 'second' AND NOT l.granted);
for my $end ('COMMIT', 'ROLLBACK')
{
	my ($in, $out, $err) = ('', '', '');
	my $first = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ],
		'<', \$in, '>', \$out, '2>', \$err);
	$in = "BEGIN; SELECT snowid.create_shard(7000); SELECT 'made';\n";
	$first->pump until $out =~ /made/;
	my $second = session('second', "SELECT snowid.create_shard(7000, 'other')");
	ok($node->poll_query_until('postgres', $waits), "before $end: the second waits");
	$in = "$end;\n";
	$first->finish;
	$second->{handle}->finish;
	if ($end eq 'COMMIT')
	{
		like($second->{err}, qr/ERROR:  42710: shard 7000 is already registered\nDETAIL:  It is schema "insta7000"/,
			'the number is taken');
		$node->safe_psql('postgres', 'SELECT snowid.drop_shard(7000)');
	}
	else
	{
		is($second->{out}, "other\n", 'the number is free');
	}
}

# A script that is cancelled says where, and the shards before it are done.
$node->safe_psql('postgres', 'CREATE TABLE done (schema name)');
my ($in, $o, $e) = ('', '', '');
my $holder = IPC::Run::start([ 'psql', '-XAtq', '-d', $node->connstr('postgres') ],
	'<', \$in, '>', \$o, '2>', \$e);
$in = "SELECT pg_advisory_lock(1), 'held';\n";
$holder->pump until $o =~ /held/;
my $script = 'INSERT INTO public.done SELECT current_schema;'
  . ' SELECT CASE WHEN current_schema = $$insta3$$ THEN pg_advisory_xact_lock(1) END';
my $s = session('migration', "CALL snowid.for_each_shard('$script')");
ok( $node->poll_query_until('postgres',
		"SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'migration' AND wait_event = 'advisory'"),
	'the script waits in shard 3');
$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'migration'");
$s->{handle}->finish;
like($s->{err}, qr/57014: shard 3, schema "insta3": canceling statement/, 'a cancel names the shard');
like($s->{err}, qr/CALL snowid\.for_each_shard\(\.\.\., 3\);/, 'and the call that goes on from it');
is($node->safe_psql('postgres', 'SELECT string_agg(schema, $$,$$ ORDER BY schema) FROM done'),
	'insta0,insta1,insta2', 'the shards before it are done');
$in = "SELECT pg_advisory_unlock(1);\n\\q\n";
$holder->finish;
$node->safe_psql('postgres', "CALL snowid.for_each_shard('$script', 3)");
is($node->safe_psql('postgres', 'SELECT count(*) = (SELECT count(*) FROM snowid.shards) FROM done'),
	't', 'the rest follows');

# From 256 shards on, a transaction makes several.  After an error, the shards
# before it exist and those after it do not, as with one shard a transaction.
$node->safe_psql('postgres', 'CREATE TABLE taken (schema name PRIMARY KEY)');
$node->safe_psql('postgres', 'CALL snowid.create_shards(2000, 2999); CREATE SCHEMA insta3005');
my $inserts = "$ddl INSERT INTO public.taken SELECT current_schema";
my $range = 'SELECT max(shard), count(*), sum(tables) FROM snowid.shards WHERE shard BETWEEN 3000 AND 3999';
my $schemas = q(SELECT count(*) FROM pg_namespace WHERE nspname ~ '^insta3\d\d\d$');
($ret, $out, $err) = $node->psql('postgres', "CALL snowid.create_shards(3000, 3040, ddl => '$inserts')");
like($err, qr/schema "insta3005" already exists/, 'a schema that exists is an error');
is($node->safe_psql('postgres', $range), '3004|5|10', 'those before it are there');
$node->safe_psql('postgres', q(DROP SCHEMA insta3005; INSERT INTO taken VALUES ('insta3017')));
($ret, $out, $err) = $node->psql('postgres', "CALL snowid.create_shards(3000, 3040, ddl => '$inserts')");
like($err, qr/shard 3017, schema "insta3017": duplicate key/, 'the script fails in one');
is($node->safe_psql('postgres', $range), '3016|17|34', 'those before it are there');
is($node->safe_psql('postgres', $schemas), 17, 'and no schema beyond');
$node->safe_psql('postgres', q(DELETE FROM taken WHERE schema = 'insta3017'));
$node->safe_psql('postgres', "CALL snowid.create_shards(3000, 3040, ddl => '$inserts')");
is($node->safe_psql('postgres', $range), '3040|41|82', 'mended, the same call goes on');
is($node->safe_psql('postgres', 'SELECT count(*) FROM taken'), 41, 'and the script ran once in each');

$node->stop;
done_testing();
