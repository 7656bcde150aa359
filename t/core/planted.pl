# Nothing that a lesser role has planted runs as the superuser who calls the
# extension.  The planter is the owner of the database, who has installed it.
#
# The functions are read from pg_proc: of each, and of each function of
# PostgreSQL that their texts name, namesakes with types that fit a call as well
# or better are put into every schema that he may write to, with operators, and
# with tables, views and types in pg_temp.  All that is planted writes to the
# server's log as whom it runs.  Then a superuser calls every function; one
# that is not called fails the test, so a new one needs a call here.
use strict;
use warnings;

use FindBin;
use IPC::Run ();
use lib "$FindBin::RealBin/../lib";
use SnowidTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main');
$node->append_conf('postgresql.conf', 'track_functions = all');
$node->start;
$node->safe_psql('postgres', q(
CREATE ROLE planter LOGIN;
CREATE DATABASE app OWNER planter;
CREATE DATABASE early OWNER planter));

my $superuser = $node->safe_psql('postgres', 'SELECT current_user');

sub as_planter
{
	my ($sql, %params) = @_;
	my ($stdout, $stderr) = ('', '');
	my $status = $node->psql($params{db} // 'app', "\\set VERBOSITY verbose\n$sql", stdout => \$stdout, stderr => \$stderr,
		on_error_stop => $params{refused} ? 0 : 1, extra_params => [ '-q', '-U', 'planter' ]);
	return $stderr if $params{refused};
	is($status, 0, "the planter can: " . substr($sql =~ s/\s+/ /gr, 0, 60)) or diag($stderr);
	return $stdout;
}

# What a text of SQL logs of planted code that ran as the superuser.
sub planted_code
{
	my ($run) = @_;
	my $from = -s $node->logfile;
	$run->();
	return join "\n", slurp_file($node->logfile, $from) =~ /LOG:  (planted .* as $superuser)$/mg;
}

# Schemas of that name beforehand.
foreach my $schema ('snowid', 'snowid_internal')
{
	as_planter("CREATE SCHEMA $schema", db => 'early');
	my ($status, undef, $stderr) = $node->psql('early', "\\set VERBOSITY sqlstate\nCREATE EXTENSION snowid");
	like($stderr, qr/42P06/, "a schema $schema that is there is refused");
	as_planter("DROP SCHEMA $schema", db => 'early');
}

as_planter(q(
SET client_min_messages = warning;
CREATE EXTENSION snowid;
CREATE SCHEMA evil;
CALL snowid.create_shards(0, 2, ddl => 'CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id(), n int)');
INSERT INTO insta0.photos (n) VALUES (1);
INSERT INTO insta1.photos (n) VALUES (1);
CREATE TABLE insta0.likes (id bigserial PRIMARY KEY);
CREATE TABLE insta0.marks (id bigint GENERATED ALWAYS AS IDENTITY);
CREATE TABLE insta0.visits (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
GRANT USAGE ON SCHEMA evil TO PUBLIC;
CREATE FUNCTION evil.bite(place pg_catalog.text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	RAISE LOG 'planted % as %', place, current_user;
	RETURN true;
END $$;
CREATE FUNCTION evil.bite() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE LOG 'planted trigger on % as %', TG_RELID::pg_catalog.regclass, current_user;
	RETURN NEW;
END $$;
-- The planter's own tables bite whoever writes to them, and who reads with less
-- than a superuser's rights.
CREATE TRIGGER bite BEFORE INSERT OR UPDATE ON insta0.photos FOR EACH ROW EXECUTE FUNCTION evil.bite();
ALTER TABLE insta0.photos ADD CHECK (evil.bite('check')), ENABLE ROW LEVEL SECURITY;
CREATE POLICY bite ON insta0.photos USING (evil.bite('policy'));
));

# What the planter may not do.
my $members = q(FROM pg_depend d WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
	AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowid'));
foreach my $schema ('snowid', 'snowid_internal')
{
	foreach my $sql ("CREATE FUNCTION $schema.planted() RETURNS int LANGUAGE sql AS 'SELECT 1'",
		"CREATE TABLE $schema.planted ()", "ALTER SCHEMA $schema RENAME TO other", "ALTER SCHEMA $schema OWNER TO planter")
	{
		like(as_planter($sql, refused => 1), qr/42501/, "refused: $sql");
	}
}
my @relations = split /\n/, $node->safe_psql('app', qq(
SELECT c.oid::regclass FROM pg_class c WHERE c.relkind IN ('r', 'v', 'S') AND c.oid IN (
	SELECT d.objid $members AND d.classid = 'pg_class'::regclass)));
cmp_ok(scalar(@relations), '>=', 4, 'there are relations: ' . join ' ', @relations);
foreach my $relation (@relations)
{
	foreach my $sql ("CREATE TRIGGER t BEFORE INSERT OR UPDATE ON $relation FOR EACH STATEMENT EXECUTE FUNCTION evil.bite()",
		"CREATE TRIGGER t INSTEAD OF INSERT ON $relation FOR EACH ROW EXECUTE FUNCTION evil.bite()",
		"CREATE RULE r AS ON UPDATE TO $relation DO ALSO SELECT evil.bite('rule')",
		"CREATE POLICY p ON $relation USING (evil.bite('policy'))",
		"ALTER TABLE $relation ADD CHECK (evil.bite('check'))", "ALTER TABLE $relation OWNER TO planter",
		"CREATE INDEX ON $relation ((1))")
	{
		# 42809 and the like: not for relations of that kind.
		like(as_planter($sql, refused => 1), qr/42501|42809|0A000/, "refused: $sql");
	}
}
is( as_planter(q(
DO $do$
DECLARE f regprocedure;
BEGIN
	FOR f IN SELECT p.oid FROM pg_proc p WHERE pronamespace IN ('snowid'::regnamespace, 'snowid_internal'::regnamespace) LOOP
		BEGIN
			EXECUTE format('ALTER %s %s OWNER TO planter', CASE prokind WHEN 'p' THEN 'PROCEDURE' ELSE 'FUNCTION' END, f)
			FROM pg_proc WHERE oid = f;
			RAISE LOG 'owned %', f;
		EXCEPTION WHEN insufficient_privilege THEN NULL;
		END;
		BEGIN
			EXECUTE pg_get_functiondef(f);
			RAISE LOG 'replaced %', f;
		EXCEPTION WHEN insufficient_privilege THEN NULL;
		END;
	END LOOP;
END $do$)), '', 'nor replace or own a function');
unlike(slurp_file($node->logfile), qr/LOG:  (owned|replaced)/, '... none of them');

# Namesakes.  A variant changes the type at one place, or at all of them, or
# leaves out arguments that have defaults.
my $planted = as_planter(<<'SQL');
SET client_min_messages = error;
SET search_path = pg_catalog;
CREATE TABLE evil.namesake (name name, args oid[], defaults int, prorettype oid, proretset bool, prokind "char");
INSERT INTO evil.namesake
SELECT p.proname, p.proargtypes, p.pronargdefaults,
	CASE WHEN p.prorettype IN ('record'::regtype, 'anyelement'::regtype) THEN 'bigint'::regtype ELSE p.prorettype END,
	p.proretset, p.prokind
FROM pg_proc p
WHERE p.pronamespace IN ('snowid'::regnamespace, 'snowid_internal'::regnamespace)
   OR p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND p.pronargs < 7 AND p.proname IN (
		SELECT m[1] FROM pg_proc o, regexp_matches(pg_get_functiondef(o.oid), '\m([a-z_0-9]+)\(', 'g') m
		WHERE o.pronamespace IN ('snowid'::regnamespace, 'snowid_internal'::regnamespace));
DO $do$
DECLARE
	n record;
	types text[];
	variant text[];
	place text;
	swap text[];
	swaps text[][] := '{{integer,bigint},{integer,oid},{integer,smallint},{integer,text},{bigint,integer},{bigint,numeric},
		{regclass,oid},{regclass,text},{regclass,name},{name,text},{text,name},{text,regclass},{timestamp with time zone,timestamp},
		{timestamp with time zone,date},{timestamp with time zone,text},{boolean,text},{anyelement,text},{"\"any\"",text},{"\"any\"",name}}';
	made int := 0;
	tried text[] := '{}';
BEGIN
	FOR n IN SELECT * FROM evil.namesake LOOP
		FOR k IN greatest(0, cardinality(n.args) - n.defaults) .. cardinality(n.args) LOOP
			types := ARRAY(SELECT format_type(t, NULL) FROM unnest(n.args) WITH ORDINALITY u (t, i) WHERE i <= k ORDER BY i);
			FOR variant IN
				SELECT types
				UNION SELECT array_fill(t, ARRAY[k]) FROM unnest('{text,name,oid,bigint,anyelement}'::text[]) t
				UNION SELECT ARRAY(SELECT CASE WHEN t = swaps[s][1] AND at IN (0, i) THEN swaps[s][2] ELSE t END
								   FROM unnest(types) WITH ORDINALITY u (t, i) ORDER BY i)
					FROM generate_subscripts(swaps, 1) s, generate_series(0, k) at
			LOOP
				CONTINUE WHEN n.name || variant::text = ANY (tried);
				tried := tried || (n.name || variant::text);
				-- Into the extension's schemas, too, if they let him.
				FOREACH place IN ARRAY '{public,evil,insta0,insta1,snowid,snowid_internal}'::text[] LOOP
					BEGIN
						EXECUTE format('CREATE %s %I.%I(%s) %s LANGUAGE plpgsql AS %L',
							CASE n.prokind WHEN 'p' THEN 'PROCEDURE' ELSE 'FUNCTION' END, place, n.name, array_to_string(variant, ', '),
							CASE WHEN n.prokind <> 'p' THEN 'RETURNS ' || CASE WHEN n.proretset THEN 'SETOF ' ELSE '' END
								|| format_type(n.prorettype, NULL) ELSE '' END,
							format('BEGIN RAISE LOG %L, current_user; %s; END',
								format('planted %s.%s(%s) as %%', place, n.name, replace(array_to_string(variant, ', '), '%', '%%')),
								CASE WHEN n.prokind = 'p' OR n.proretset OR n.prorettype = 'void'::regtype THEN 'RETURN'
									ELSE 'RETURN NULL' END));
						made := made + 1;
					EXCEPTION WHEN OTHERS THEN NULL;	-- pseudo-types, and next_id() of the shard
					END;
				END LOOP;
			END LOOP;
		END LOOP;
	END LOOP;
	PERFORM set_config('planted.functions', made::text, false);
END $do$;
-- Types.
DO $do$
DECLARE name text; place text;
BEGIN
	FOREACH name IN ARRAY '{text,name,regclass,regtype,regrole,oid,jsonb,timestamptz,int4,int8,bool,numeric,interval}'::text[] LOOP
		FOREACH place IN ARRAY '{public,evil,insta0,insta1}'::text[] LOOP
			EXECUTE format('CREATE DOMAIN %I.%I AS pg_catalog.%I CHECK (evil.bite(%L))', place, name, name, 'type ' || name);
		END LOOP;
	END LOOP;
END $do$;
-- Operators of the very types.
DO $do$
DECLARE
	made int := 0;
	o record;
	place text;
BEGIN
	FOR o IN
		SELECT oprname, oprleft::regtype AS l, oprright::regtype AS r, oprresult::regtype AS result FROM pg_operator
		WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprname IN ('=', '<>', '<', '>', '<=', '>=', '||', '+', '-', '*', '/',
				'%', '^', '~', '~~', '^@', '->', '->>')
			AND oprleft IN (0, 'int'::regtype, 'bigint'::regtype, 'numeric'::regtype, 'name'::regtype, 'text'::regtype, 'oid'::regtype,
				'"char"'::regtype, 'boolean'::regtype, 'timestamptz'::regtype, 'interval'::regtype, 'jsonb'::regtype, 'float8'::regtype)
			AND oprright IN ('int'::regtype, 'bigint'::regtype, 'numeric'::regtype, 'name'::regtype, 'text'::regtype, 'oid'::regtype,
				'"char"'::regtype, 'boolean'::regtype, 'timestamptz'::regtype, 'interval'::regtype, 'jsonb'::regtype, 'float8'::regtype)
	LOOP
		FOREACH place IN ARRAY '{public,evil,insta0,insta1}'::text[] LOOP
			EXECUTE format('CREATE FUNCTION %I.%I(%s%s) RETURNS %s LANGUAGE plpgsql AS %L', place, 'op ' || o.oprname,
				CASE WHEN o.l <> 0 THEN o.l || ', ' ELSE '' END, o.r, o.result,
				format('BEGIN RAISE LOG %L, current_user; RETURN NULL; END',
					format('planted %s.operator %s as %%', place, replace(o.oprname, '%', '%%'))));
			EXECUTE format('CREATE OPERATOR %I.%s (FUNCTION = %I.%I%s, RIGHTARG = %s)', place, o.oprname, place, 'op ' || o.oprname,
				CASE WHEN o.l <> 0 THEN ', LEFTARG = ' || o.l ELSE '' END, o.r);
			made := made + 1;
		END LOOP;
	END LOOP;
	PERFORM set_config('planted.operators', made::text, false);
END $do$;
CREATE FUNCTION evil.to_text(insta0.photos) RETURNS text LANGUAGE plpgsql AS
	$$ BEGIN RAISE LOG 'planted cast as %', current_user; RETURN 'photos'; END $$;
CREATE CAST (insta0.photos AS text) WITH FUNCTION evil.to_text(insta0.photos) AS IMPLICIT;
SELECT current_setting('planted.functions'), current_setting('planted.operators');
SQL
my ($functions, $operators) = split /\|/, $planted;
cmp_ok($functions, '>', 4000, "namesakes: $functions");
cmp_ok($operators, '>', 300, "operators: $operators");

# In pg_temp of the superuser's session, if he was somebody else there before.
my $in_pg_temp = <<'SQL';
SET ROLE planter;
DO $do$
DECLARE name text;
BEGIN
	FOR name IN
		SELECT DISTINCT m[1] FROM pg_catalog.pg_proc o,
			pg_catalog.regexp_matches(pg_catalog.pg_get_functiondef(o.oid), '\m(pg_[a-z_]+)\M(?!\()', 'g') m
		WHERE o.pronamespace IN ('snowid'::regnamespace, 'snowid_internal'::regnamespace)
			AND pg_catalog.to_regclass('pg_catalog.' || m[1]) IS NOT NULL
	LOOP
		EXECUTE (
			SELECT pg_catalog.format('CREATE VIEW pg_temp.%I AS SELECT %s FROM pg_catalog.%I WHERE evil.bite(%L)', name,
				pg_catalog.string_agg(a.attname || CASE WHEN a.atttypid = 'anyarray'::regtype THEN '::text' ELSE '' END, ', '),
				name, 'view ' || name)
			FROM pg_catalog.pg_attribute a
			WHERE a.attrelid = ('pg_catalog.' || name)::pg_catalog.regclass AND (a.attnum > 0 OR a.attname = 'oid'));
	END LOOP;
	FOREACH name IN ARRAY '{shard_registry,moves,copies,shards,shard_homes,servers,placements,poolers,fleet_moves}'::pg_catalog.text[] LOOP
		EXECUTE pg_catalog.format('CREATE VIEW pg_temp.%I AS SELECT * FROM snowid.%I WHERE evil.bite(%L)', name, name, 'view ' || name);
	END LOOP;
	FOREACH name IN ARRAY '{text,name,regclass,regtype,regrole,oid,jsonb,timestamptz,int4,int8,bool,numeric,interval}'::pg_catalog.text[] LOOP
		EXECUTE pg_catalog.format('CREATE DOMAIN pg_temp.%I AS pg_catalog.%I CHECK (evil.bite(%L))', name, name, 'type ' || name);
	END LOOP;
END $do$;
RESET ROLE;
SQL

# Every function, as one would call it; qualified, for what a caller leaves to
# his search path is his own affair.
my $calls = <<'SQL';
SET snowid.shard = 5;
CREATE SCHEMA super;
CREATE SEQUENCE super.seq;
CREATE SEQUENCE super.own;
SELECT snowid.next_id();
SELECT snowid.version(), snowid.next_ids(5, 'super.seq', 2), snowid.next_ids(5, 'super.own', 2, '2026-01-01 00:00:00+00');
SELECT snowid.next_id(5, 'super.seq'), snowid.next_id(5, 'super.own', '2026-01-01 00:00:00+00');
SELECT snowid.id_timestamp(1), snowid.id_timestamp(1, '2026-01-01'), snowid.id_shard(1), snowid.id_seq(1),
	snowid.id_parts(1), snowid.id_parts(1, '2026-01-01'), snowid.make_id('2026-01-01', 5, 0),
	snowid.make_id('2026-02-01', 5, 0, '2026-01-01'), snowid.min_id('2026-01-01'), snowid.min_id('2026-02-01', '2026-01-01'),
	snowid.max_id('2026-01-01'), snowid.max_id('2026-02-01', '2026-01-01'), snowid.id_to_base62(1),
	snowid.base62_to_id('00000000001'), snowid.shard_of(1, 5), snowid.shard_of('x', 5);
SELECT snowid.id_between(1, '2026-01-01', '2026-02-01'), snowid.id_between(1, '2026-01-01', '2026-02-01', '2026-01-01');
SELECT snowid.advance('super.seq', 1), snowid.advance('super.own', 1, '2026-01-01');
SELECT snowid.sequence_state('super.seq'), snowid.sequence_state('super.own', '2026-01-01');
SELECT snowid.safe_upper_id('super.seq'), snowid.safe_upper_id('super.own', '2026-01-01');
SELECT snowid.create_shard(100), snowid.create_shard(101, 'own', '2026-01-01');
CALL snowid.create_shards(110, 111, ddl => 'CREATE TABLE insta%s.photos (id bigint)');
CALL snowid.create_shards(110, 111, 'insta', 'CREATE TABLE photos (id bigint PRIMARY KEY, n int)');
CALL snowid.for_each_shard('SELECT');
CREATE TABLE insta100.photos (id bigint PRIMARY KEY, n int);
CREATE TABLE insta100.likes (id bigserial PRIMARY KEY);
CREATE TABLE insta100.marks (id bigint GENERATED BY DEFAULT AS IDENTITY);
SELECT snowid.set_default('insta100.photos', guard => true);
SELECT snowid.set_default('insta100.likes', own_sequence => true);
SELECT snowid.set_default('insta100.marks', 'id', true, true);
INSERT INTO insta100.photos VALUES (DEFAULT, 1);
INSERT INTO insta100.likes DEFAULT VALUES;
SELECT snowid.set_default('insta0.photos', 'id', false, true);
SELECT snowid_internal.keep_default_here('insta100.photos', 'n', '1');	-- for Citus
SELECT snowid.set_default('insta0.likes');
SELECT snowid.set_default('insta0.marks', own_sequence => true);
CREATE TABLE insta100.visits (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
SELECT snowid.create_partition('insta100.visits', '2026-01-01+00', '2026-02-01+00');
SELECT snowid.create_partition('insta0.visits', '2026-01-01+00', '2026-02-01+00');
SELECT snowid.shard_load(), snowid.shard_load('1 ms');
SELECT snowid.newest_rows(NULL::insta0.photos, 5);
SELECT snowid.newest_rows(NULL::insta100.photos, 5, 9223372036854775807, 'id');
CREATE SCHEMA snippet;
CREATE SEQUENCE snippet.table_id_seq;
CREATE FUNCTION snippet.next_id() RETURNS pg_catalog.int8 LANGUAGE sql RETURN
	((extract(epoch FROM pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000)::pg_catalog.int8
		OPERATOR(pg_catalog.-) 1314220021721::pg_catalog.int8) OPERATOR(pg_catalog.<<) 23
	OPERATOR(pg_catalog.|) (102::pg_catalog.int8 OPERATOR(pg_catalog.<<) 10)
	OPERATOR(pg_catalog.|) (pg_catalog.nextval('snippet.table_id_seq'::pg_catalog.regclass) OPERATOR(pg_catalog.%) 1024::pg_catalog.int8);
SELECT snowid.adopt_shard(102, 'snippet', 'snippet.table_id_seq', '2011-08-24 21:07:01.721+00');
SELECT snippet.next_id();
CREATE SCHEMA plain;
SELECT snowid.register_shard(103, 'plain'), snowid.drop_shard(103);
SELECT shard, schema, tables, lives FROM snowid.shards;
SELECT snowid.shard_home(100);
SELECT snowid_internal.prepare_table('insta100.photos'), snowid_internal.id_call(oid) FROM pg_catalog.pg_attrdef;
SELECT snowid.fence_shard(1), snowid.fence_shard(100, 'host=b');
BEGIN;
CREATE TRIGGER directory_is_right BEFORE INSERT OR DELETE ON snowid.shard_registry FOR EACH ROW EXECUTE FUNCTION snowid_internal.directory_is_right('host=c');
INSERT INTO snowid.shard_registry (shard, schema, home) VALUES (4001, 'nowhere', 'host=c');
ROLLBACK;
INSERT INTO insta100.photos VALUES (1);
SELECT snowid.next_id(100, 'insta100.id_seq');
SELECT snowid_internal.refuse_relation('insta100.id_seq');
SELECT snowid.shard_home(100);
SELECT snowid.unfence_shard(100), snowid.unfence_shard(1);
SELECT snowid.drop_shard(111, true), snowid.drop_shard(101);
SELECT snowid.drop_shard(7777);
SELECT snowid.drop_shard(100);
SELECT snowid.drop_shard(100, true), snowid.drop_shard(110, true), snowid.drop_shard(102, true);
TRUNCATE snowid.shard_registry;
DROP SCHEMA super CASCADE;
SQL

# The log tells of it if something does run.
like( planted_code(sub { $node->psql('app', q(SET search_path = evil, pg_catalog; SELECT quote_ident('x'::pg_catalog.name), 1 = 1)) }),
	qr/quote_ident\(name\).*operator =/s, 'planted code that runs is seen');

my %expected = ('0A000' => 1, '42601' => 1, 'SN001' => 3, '42704' => 1, '2BP01' => 1);
foreach my $path (undef, 'public, insta0, insta1', 'evil, public, insta0, pg_catalog', 'evil, pg_temp, pg_catalog, public')
{
	my ($stdout, $stderr);
	my $found = planted_code(sub {
		$node->psql('app', "\\set VERBOSITY sqlstate\n$in_pg_temp" . ($path ? "SET search_path = $path;" : '')
			. 'SET client_min_messages = error;' . $calls, stdout => \$stdout, stderr => \$stderr, on_error_stop => 0);
	});
	my %errors;
	$errors{$1}++ while $stderr =~ /ERROR:\s+(\w+)/g;
	is($found, '', 'nothing planted ran; search path: ' . ($path // 'the default one'));
	is_deeply(\%errors, \%expected, '... and all calls did what they should') or diag($stderr);
}

# What has the name of a sequence by the time that the superuser may lock it.
as_planter('SET client_min_messages = warning; SELECT snowid.create_shard(3)');
my $swap = $node->background_psql('app', extra_params => [ '-U', 'planter' ]);
$swap->query_safe(q(
SET client_min_messages = warning;
BEGIN;
DROP SEQUENCE insta3.id_seq CASCADE;
CREATE VIEW insta3.id_seq AS SELECT pg_catalog.int8 '1' AS last_value, true AS is_called WHERE evil.bite('view id_seq')));
my ($fence_out, $fence_err) = ('', '');
is( planted_code(sub {
		my $fence = IPC::Run::start(
			[ 'psql', '-XAtq', '-v', 'VERBOSITY=sqlstate', '-d', $node->connstr('app') . ' application_name=fence',
				'-c', 'SELECT snowid.fence_shard(3)' ], '>', \$fence_out, '2>', \$fence_err);
		ok( $node->poll_query_until('postgres',
				q(SELECT count(*) = 1 FROM pg_locks l JOIN pg_stat_activity a USING (pid)
				  WHERE a.application_name = 'fence' AND l.locktype = 'relation' AND NOT l.granted)),
			'fence_shard waits for the sequence');
		$swap->query_safe('COMMIT');
		$fence->finish;
	}), '', 'a view in its place is not read');
like($fence_err, qr/42P01/, '... and the fence fails');
$swap->quit;

# That was every function.  (SQL functions are inlined, and then not counted.)
$node->poll_query_until('app', q(SELECT count(*) > 0 FROM pg_stat_user_functions WHERE funcname = 'drop_shard')) or die 'no statistics';
is( $node->safe_psql('app', q(
SELECT p.oid::regprocedure FROM pg_proc p
WHERE p.pronamespace IN ('snowid'::regnamespace, 'snowid_internal'::regnamespace)
	AND p.prolang <> (SELECT oid FROM pg_language WHERE lanname = 'sql')
	AND p.oid NOT IN (SELECT funcid FROM pg_stat_user_functions))),
	'', 'no function was left out');

$node->stop;
done_testing();
