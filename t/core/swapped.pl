# What a shard's owner puts in the place of a name while a superuser's call waits is
# neither read nor run: the owner has locked the tables and the sequence that the
# call has found in the catalogs, and swaps them before the lock is given up.
#
# Each call meets each swap: another table, a view, a foreign table, a column of a
# type with a cast, a function, in the sequence's place a table, a view, a foreign table or
# a type, and a schema for the shard's.  All of them tell the server's log as whom they run.
# An index does when a query that names its table is planned.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SnowidTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
$node->append_conf('postgresql.conf', "track_functions = all\ndeadlock_timeout = 100ms");
$node->start;
my $superuser = $node->safe_psql('postgres', 'SELECT current_user');
my ($host, $port) = ($node->host, $node->port);
my $has_fdw = $node->safe_psql('postgres', q(SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'));

$node->safe_psql('postgres', q(
CREATE EXTENSION snowid;
CREATE ROLE planter LOGIN;
GRANT CREATE ON DATABASE postgres TO planter;
GRANT INSERT, UPDATE, DELETE ON snowid.shard_registry TO planter;
SELECT snowid.create_shard(4);
CREATE TABLE insta4.photos (id bigint PRIMARY KEY DEFAULT insta4.next_id(), n int)));
$node->safe_psql('postgres', q(CREATE EXTENSION postgres_fdw; GRANT USAGE ON FOREIGN DATA WRAPPER postgres_fdw TO planter)) if $has_fdw;

my $owner = $node->background_psql('postgres', on_error_stop => 0, extra_params => [ '-U', 'planter' ]);
my $caller = $node->background_psql('postgres', on_error_stop => 0);
$caller->query_safe('\set VERBOSITY sqlstate');
my $caller_pid = $caller->query_safe('SELECT pg_backend_pid()');
$owner->query_safe(q(
SET client_min_messages = error;
CREATE SCHEMA evil;
GRANT USAGE ON SCHEMA evil TO PUBLIC;
CREATE FUNCTION evil.bite(place text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	RAISE LOG 'planted % as %', place, current_user;
	RETURN 1;
END $$;
CREATE FUNCTION evil.fold(place text) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT evil.bite(place)';
CREATE VIEW evil.photos AS SELECT evil.bite('view') AS id, 1 AS n, evil.bite('tableoid') AS tableoid;
CREATE TYPE evil.number AS (v bigint);
CREATE FUNCTION evil.to_bigint(evil.number) RETURNS bigint LANGUAGE sql AS $$ SELECT evil.bite('cast') $$;
CREATE CAST (evil.number AS bigint) WITH FUNCTION evil.to_bigint(evil.number) AS IMPLICIT;
) . ($has_fdw ? qq(
CREATE SERVER loop FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'postgres');
CREATE USER MAPPING FOR PUBLIC SERVER loop) : ''));

my @tables = ('insta5.photos', 'insta5.visits');
my $drop = join ' ', map { "DROP TABLE $_ CASCADE;" } @tables;
my %swaps = (
	table => $drop . join(' ', map { "CREATE TABLE $_ (id bigint CHECK (evil.bite('check') > 0), n int); CREATE INDEX ON $_ (evil.fold('index'));" } @tables),
	view => $drop . join(' ', map { "CREATE VIEW $_ AS SELECT * FROM evil.photos;" } @tables),
	'foreign table' => $drop
	  . join(' ', map { "CREATE FOREIGN TABLE $_ (id bigint, n int) SERVER loop OPTIONS (schema_name 'evil', table_name 'photos');" } @tables),
	type => $drop . join(' ', map { "CREATE TABLE $_ (id evil.number, n int); INSERT INTO $_ VALUES (ROW(1), 1);" } @tables),
	'type of the column' => q(ALTER TABLE insta5.photos DROP CONSTRAINT photos_pkey, ALTER id DROP DEFAULT,
		ALTER id TYPE evil.number USING ROW(id)::evil.number;),
	function => q(CREATE OR REPLACE FUNCTION insta5.next_id() RETURNS bigint LANGUAGE plpgsql AS
		$$ BEGIN RETURN evil.bite('next_id'); END $$;),
	schema => 'ALTER SCHEMA insta5 RENAME TO gone5; ALTER SCHEMA evil5 RENAME TO insta5;',
);
my %in_its_place = (
	'is a table' => q(CREATE TABLE insta5.id_seq (last_value bigint, is_called boolean); CREATE INDEX ON insta5.id_seq (evil.fold('index'));),
	'is a view' => q(CREATE VIEW insta5.id_seq AS SELECT bigint '1' AS last_value, evil.bite('sequence') > 0 AS is_called, evil.bite('tableoid') AS tableoid;),
	'is a foreign table' => q(CREATE FOREIGN TABLE insta5.id_seq (last_value bigint, is_called bigint) SERVER loop OPTIONS (schema_name 'evil', table_name 'photos');),
	'is a type' => 'CREATE TYPE insta5.id_seq AS (last_value evil.number, is_called evil.number);',
);
$swaps{"sequence that $_"} = "DROP SEQUENCE insta5.id_seq CASCADE; $in_its_place{$_}" for keys %in_its_place;
delete @swaps{ grep { /foreign/ } keys %swaps } if !$has_fdw;

# In each schema that the owner makes, by what it is called with, as the superuser.
my @calls = (
	'SELECT * FROM snowid.newest_rows(NULL::insta4.photos, 5)',
	"SELECT snowid.set_default('insta5.photos')",
	"SELECT snowid.set_default('insta5.photos', own_sequence => true)",
	"SELECT snowid.set_default('insta5.photos', guard => true)",
	"SELECT snowid.create_partition('insta5.visits', '2026-01-01+00', '2026-02-01+00')",
	'SELECT * FROM snowid.shards',
	'SELECT * FROM snowid.shard_load()',
	'SELECT snowid.fence_shard(5)',
	'SELECT snowid.unfence_shard(5)',
	"SELECT snowid_internal.prepare_table('insta5.photos')",
	"CALL snowid.for_each_shard('SELECT FROM snowid.shard_registry')",
	"SELECT snowid.next_ids(5, 'insta5.id_seq', 3)",
	"SELECT snowid.advance('insta5.id_seq', 1)",
	"SELECT snowid.advance('insta5.id_seq', snowid.make_id(clock_timestamp() + interval '2 days', 5, 0))",
	"SELECT snowid_internal.refuse_relation('insta5.photos')",
	"SELECT snowid.sequence_state('insta5.id_seq')",
	"SELECT snowid.safe_upper_id('insta5.id_seq')",
	"SELECT snowid.next_id(5, 'insta5.id_seq')",
	'SELECT snowid.drop_shard(5, true)',
	"SELECT snowid.adopt_shard(5, 'insta5', 'insta5.id_seq', '2011-08-24 21:07:01.721+00')",
	"SELECT snowid.register_shard(5, 'insta5')",
	"SELECT snowid_internal.id_call(oid) FROM pg_attrdef WHERE adrelid = 'insta5.photos'::regclass",
);
my %waited;

foreach my $call (@calls)
{
	foreach my $what (sort keys %swaps)
	{
		# adopt_shard calls that function: its callers are to trust the owner.
		next if $call =~ /adopt_shard/ && $what eq 'function';
		$caller->query_safe(q(SET client_min_messages = error; DELETE FROM snowid.moves; DROP SCHEMA IF EXISTS insta5, gone5, evil5 CASCADE;
			DELETE FROM snowid.shard_registry WHERE shard = 5));
		$owner->query_safe(q(CREATE SCHEMA evil5;
CREATE TABLE evil5.photos (id bigint, n int); CREATE INDEX ON evil5.photos (evil.fold('index'));
CREATE TABLE evil5.visits () INHERITS (evil5.photos);
CREATE TABLE evil5.id_seq (last_value bigint, is_called boolean); CREATE INDEX ON evil5.id_seq (evil.fold('index'));
SELECT snowid.create_shard(5);
CREATE TABLE insta5.photos (id bigint PRIMARY KEY DEFAULT insta5.next_id(), n int);
CREATE TABLE insta5.visits (id bigint) PARTITION BY RANGE (id);
INSERT INTO insta5.photos (n) SELECT 1 FROM generate_series(1, 10);)
			. ($call =~ /adopt_shard|register_shard/ ? 'DELETE FROM snowid.shard_registry WHERE shard = 5;' : '')
			. ($call =~ /adopt_shard/ ? 'DROP FUNCTION insta5.next_id() CASCADE;'
				. SnowidTest::snippet_function('insta5.next_id', 'insta5.id_seq', 5)
				. 'ALTER TABLE insta5.photos ALTER id SET DEFAULT insta5.next_id();' : ''));
		$caller->query_safe('SELECT snowid.fence_shard(5)') if $call =~ /unfence|refuse/;
		# Who only reads a sequence waits for the second.
		$owner->query_safe('BEGIN; LOCK TABLE insta5.photos, insta5.visits IN ACCESS EXCLUSIVE MODE; ALTER SEQUENCE insta5.id_seq '
			. ($what =~ /schema|sequence that is a (?!view)/ ? 'OWNER TO planter' : 'CACHE 1'));

		my $from = -s $node->logfile;
		$caller->query_until(qr/begun/, "\\echo begun\n$call;\n");
		$node->poll_query_until('postgres', qq(
SELECT wait_event_type IS NOT DISTINCT FROM 'Lock' OR state LIKE 'idle%' FROM pg_stat_activity
WHERE pid = $caller_pid AND (query LIKE '%5%' OR query LIKE '%shard%'))) or die "$call neither waits nor ends";
		$waited{$call} += $node->safe_psql('postgres', qq(SELECT count(*) FROM pg_locks WHERE pid = $caller_pid AND NOT granted));
		# drop_shard can be what the owner waits for in a circle; one of the two goes on.
		$owner->query("$swaps{$what} COMMIT");
		unlike($owner->{stderr}, qr/\A(?!.*deadlock).*ERROR/s, "swapped: $what");
		$owner->query('ROLLBACK');
		$caller->query('SELECT');

		my @bites = slurp_file($node->logfile, $from) =~ /LOG:  (planted .* as $superuser)$/mg;
		is(join('; ', @bites), '', "another $what: $call");
		if ($call =~ /newest_rows/)
		{
			my ($code) = ($caller->{stderr} =~ /ERROR:\s+(\w+)/);
			is($code, $what =~ /column/ ? '42804' : undef, '... whose other shards are read');
		}
		$_->{stderr} = '' foreach $caller, $owner;
	}
}
ok($waited{$_}, "has waited: $_") foreach grep { /newest_rows|set_default|create_partition|adopt_shard|fence_shard/ } @calls;

# The setting is the last line: without a look before, too.
SKIP:
{
	skip 'this server has no such setting', 2
	  if $node->safe_psql('postgres', q(SELECT current_setting('restrict_nonsystem_relation_kind', true) IS NULL)) eq 't';
	is(sqlstate($node, "SELECT snowid_internal.read_ids('evil.photos', 'id', 'true')"), '55000', 'no view is read by name');
	is($node->safe_psql('postgres', q(
SELECT p.proname FROM pg_proc p WHERE p.proname IN ('newest_rows', 'read_ids', 'sequence_value')
	AND p.prolang <> (SELECT oid FROM pg_language WHERE lanname = 'c')
	AND NOT coalesce('restrict_nonsystem_relation_kind=view, foreign-table' = ANY (p.proconfig), false))), '', 'so it is wherever one could be');
}

# A planted view that somebody does read is seen.
my $from = -s $node->logfile;
$caller->query('SELECT * FROM evil.photos');
like(slurp_file($node->logfile, $from), qr/LOG:  planted view as $superuser$/m, 'what bites is seen');

$owner->quit;
$caller->quit;

# That was every function that is given, or looks up, what it then names.  (SQL functions
# are inlined, and then not counted; the one that is left out is for Citus.)
my $left_out = q(
SELECT coalesce(string_agg(p.oid::regprocedure::text, ' '), '') FROM pg_proc p
WHERE p.pronamespace IN ('snowid'::regnamespace, 'snowid_internal'::regnamespace)
	AND p.prolang <> (SELECT oid FROM pg_language WHERE lanname = 'sql')
	AND (p.prosrc ~ 'EXECUTE ' OR p.proargtypes::oid[] && '{regclass,oid,oid[],name,anyelement}'::regtype[]::oid[])
	AND p.proname <> 'keep_default_here'
	AND p.oid NOT IN (SELECT funcid FROM pg_stat_user_functions));
# Whoever has left has told what he called.
$node->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'client backend')) or die 'they stay';
is($node->safe_psql('postgres', $left_out), '', 'no function was left out');
$node->stop;
done_testing();
