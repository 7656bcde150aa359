# Which node of Citus may make ids, and what is refused.  No Citus is needed:
# a worker's copy of a sequence is known by its START and MINVALUE, (group <<
# 48) + 1, a node by pg_dist_local_group, and what is distributed by Citus's
# other tables; here those are made by hand.  torture/citus is for the real one.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SnowidTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Else a session reads the catalogs on each call, and would see all of it.
my $node = new_node('node');
$node->append_conf('postgresql.conf', 'wal_level = replica');

sub sql
{
	return $node->safe_psql('postgres', join ';', @_);
}

# SQLSTATE and message of a call; nothing if it works.
sub error_of
{
	my ($call) = @_;
	my ($ret, $stdout, $stderr) = $node->psql('postgres', "SELECT $call",
		extra_params => [ '-v', 'VERBOSITY=verbose' ]);
	return $stderr;
}

# As worker_apply_sequence_command() of Citus does on a worker.
sub distribute
{
	my ($name, $group) = @_;
	my $start = ($group << 48) + 1;
	my $max = $start + (1 << 48);

	sql("ALTER SEQUENCE $name START $start MINVALUE $start MAXVALUE $max RESTART $start");
	return;
}

# What the error says to type.
sub hinted
{
	my ($command) = error_of($_[0]) =~ /(ALTER SEQUENCE.*?;)/;
	return $command;
}

$node->start;
sql('CREATE EXTENSION snowid', 'SELECT snowid.create_shard(5)', 'CREATE SEQUENCE plain');

# A copy makes no ids, whatever its group, and a session that has used the
# sequence before sees it at once.
my $session = $node->background_psql('postgres', on_error_stop => 0);
$session->query_safe('SELECT insta5.next_id()');
foreach my $group (1, 2, 3, 32766)
{
	distribute('insta5.id_seq', $group);
	like(error_of('insta5.next_id()'),
		qr/55000: sequence "id_seq" is a copy that makes no ids/, "a copy of group $group");
}
$session->query('SELECT insta5.next_id()');
like($session->{stderr}, qr/is a copy that makes no ids/, '... in a session that knew it before');
$session->quit;
foreach my $call ("snowid.next_id(5, 'insta5.id_seq')", "snowid.advance('insta5.id_seq', 1)",
	"snowid.sequence_state('insta5.id_seq')", "snowid.safe_upper_id('insta5.id_seq')")
{
	like(error_of($call), qr/55000: sequence "id_seq" is a copy/, "... for $call");
}
is(sql('SELECT shard, last_id_at FROM snowid.shards'), '5|', 'the view shards goes on');

# Who has been told to, takes over, from the time and not from the range; until
# Citus sets the range again.
my $last = sql("SELECT snowid.make_id(clock_timestamp(), 5, 0)");
sql(hinted('insta5.next_id()'));
cmp_ok(sql('SELECT insta5.next_id()'), '>', $last, 'typing what the error says takes over');
$last = sql("SELECT max(insta5.next_id()) FROM generate_series(1, 3000)");
distribute('insta5.id_seq', 2);
like(error_of('insta5.next_id()'), qr/55000/, 'the range comes back');
sql(hinted('insta5.next_id()'));
cmp_ok(sql('SELECT insta5.next_id()'), '>', $last, '... and ids rise when it goes again');

# Sequences like it that are no copies.
foreach my $option ('START 281474976710657', 'MINVALUE 281474976710656 START 281474976710656',
	'MINVALUE -281474976710655 START -281474976710655')
{
	sql("CREATE SEQUENCE other $option");
	is(error_of("snowid.next_id(5, 'other')"), '', "no copy: $option");
	sql('DROP SEQUENCE other');
}

# The coordinator: snowid.id_seq is on each node, so its ids need the number
# that is the database's.
sql('ALTER DATABASE postgres SET snowid.shard = 7');
$session = $node->background_psql('postgres', on_error_stop => 0);
$session->query_safe('SELECT snowid.next_id()');
sql('SET allow_system_table_mods = on',
	'CREATE TABLE pg_catalog.pg_dist_local_group (groupid int)',
	'CREATE TABLE pg_catalog.pg_dist_object (classid oid, objid oid)',
	'CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass)',
	'INSERT INTO pg_catalog.pg_dist_local_group VALUES (0)');
is(error_of("snowid.next_id(5, 'plain')"), '', 'the coordinator makes ids');
is(sql('SELECT snowid.id_shard(snowid.next_id())'), 7, '... of the database');
like(error_of("snowid.next_id(8, 'snowid.id_seq')"),
	qr/55000: this node cannot make ids of shard 8 from sequence "id_seq"/,
	'... but not of another number');
like(error_of("snowid.safe_upper_id('plain')"),
	qr/0A000: cannot execute safe_upper_id\(\) in a database of Citus/, '... nor safe_upper_id()');

# An older Citus has no pg_dist_schema.
is(sql("SELECT count(*) FROM snowid_internal.citus_oids('schema')"), 0, 'a catalog of Citus that is not there');
sql('SET allow_system_table_mods = on', 'CREATE TABLE pg_catalog.pg_dist_schema (schemaid oid)');

# A worker: Citus carries ALTER DATABASE to it, so only its own configuration
# file says which number is its own.
sql('UPDATE pg_catalog.pg_dist_local_group SET groupid = 1',
	'SET allow_system_table_mods = on',
	'ALTER TABLE pg_catalog.pg_dist_local_group SET (fillfactor = 90)');
$session->query('SELECT snowid.next_id()');
like($session->{stderr}, qr/this node cannot make ids of shard 7/,
	'a session from before Citus came sees that');
$session->quit;
foreach my $call ('snowid.next_id()', "snowid.next_id(7, 'snowid.id_seq')")
{
	like(error_of($call), qr/55000: this node cannot make ids of shard 7/,
		"a worker with a number of all nodes: $call");
}
sql('ALTER DATABASE postgres RESET snowid.shard');
like(error_of('snowid.next_id()'), qr/HINT:  .* on each node, .*ALTER SYSTEM/, 'without a number');
$node->append_conf('postgresql.conf', 'snowid.shard = 9');
$node->reload;
$node->poll_query_until('postgres', "SHOW snowid.shard", '9');
is(sql('SELECT snowid.id_shard(snowid.next_id())'), 9, 'with a number of its own');
like(error_of("snowid.next_id(8, 'snowid.id_seq')"), qr/55000/, '... and no other');
is(sql("SELECT snowid.id_shard(snowid.next_id(8, 'plain'))"), 8, 'a sequence of its own');
sql('CREATE SEQUENCE small AS int');
like(error_of("snowid.next_id(8, 'small')"), qr/55000: .* is a copy/, 'Citus closes small ones otherwise');
sql('SELECT snowid.create_shard(6)', 'ALTER SEQUENCE insta6.id_seq AS int');
is(sql('SELECT shard, last_id_at FROM snowid.shards WHERE shard = 6'), '6|', 'the view shards goes on');
sql('ALTER SEQUENCE insta6.id_seq AS bigint', 'CREATE TABLE insta6.counted (n serial)', 'SELECT snowid.drop_shard(6, true)');

# What is distributed is not all here.
sql("CREATE TABLE insta5.photos (id bigint DEFAULT insta5.next_id(), numbered bigint GENERATED ALWAYS AS IDENTITY)",
	"INSERT INTO insta5.photos DEFAULT VALUES",
	"INSERT INTO pg_dist_object VALUES ('pg_namespace'::regclass, 'insta5'::regnamespace)",
	"INSERT INTO pg_dist_schema VALUES ('insta5'::regnamespace)",
	"INSERT INTO pg_dist_partition VALUES ('insta5.photos')",
	"SELECT snowid.set_default('insta5.photos')");
is(sql("SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'insta5.photos'::regclass"),
	"COALESCE(snowid.next_id(5, 'insta5.id_seq'::regclass), nextval('insta5.id_seq'::regclass))",
	'a DEFAULT that Citus evaluates on the coordinator');
like(error_of("snowid.set_default('insta5.photos', 'numbered')"), qr/0A000: column "numbered"/,
	'an identity column');
like(error_of('snowid.fence_shard(5)'), qr/0A000: shard 5 cannot be closed.*citus_schema_move/s,
	'fence_shard');
my ($ret, $stdout, $stderr) = $node->psql('postgres',
	"CALL snowid.for_each_shard('CREATE TABLE x (k int)')", extra_params => [ '-v', 'VERBOSITY=verbose' ]);
like($stderr, qr/0A000: .*table "x" would be on this node alone/, 'a table that a function creates');
sql("INSERT INTO insta5.photos (id) VALUES (snowid.max_id('2040-01-01'))");
is(sql("SELECT id_timestamp >= '2040-01-01' FROM (SELECT * FROM snowid.newest_rows(NULL::insta5.photos, 1)) r, snowid.id_timestamp(id)"),
	't', 'newest_rows looks at all rows');
is(sql("SELECT count(*) FROM snowid.newest_rows(NULL::insta5.photos, 5)"), 2, '... and finds them');
sql("CREATE SCHEMA elsewhere", "CREATE TABLE elsewhere.photos (id bigint)",
	"INSERT INTO pg_dist_partition VALUES ('elsewhere.photos')");
like(error_of('snowid.newest_rows(NULL::elsewhere.photos, 1)'), qr/0A000: .* not registered on this node/,
	'... unless its shards are registered elsewhere');


# snowid-move says what moves it; that its two servers are one is another matter.
($stdout, $stderr) = run_command([ 'snowid-move', 'plan', '--shard', '5',
	'--from', $node->connstr('postgres'), '--to', $node->connstr('postgres') ]);
like("$stdout$stderr", qr/FAILED.*Citus has copied schema "insta5".*citus_schema_move/s, 'snowid-move plan');

$node->stop;
done_testing();
