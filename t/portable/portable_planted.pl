# What others plant in the search path is not run by the portable edition, whose
# bodies are SQL.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = new_node('planted');
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE owner LOGIN');
portable_database($node, 'app', 'owner');
$node->safe_psql('app', q{
CREATE SEQUENCE public.ended;
SELECT snowid.next_id(5, 'public.ended');
DO $$ BEGIN EXECUTE 'ALTER SEQUENCE public.ended MAXVALUE ' || (SELECT last_value FROM public.ended); END $$;});

# In a schema before pg_catalog, each operator for each pair of types, types, and
# namesakes of all of PostgreSQL's functions that the bodies name.  Whatever runs
# of them fails.
my $bodies = slurp_file("$FindBin::RealBin/../../portable/bodies.sql");
my $named = join ',', sort keys %{ { map { $_ => 1 } $bodies =~ /\b([a-z][a-z0-9_]+)\(/g } };
my ($status, $planted) = $node->psql('app', qq{
SET client_min_messages = error;
CREATE SCHEMA evil;
DO \$do\$
DECLARE
	f record;
	arguments text;
	left_type regtype;
	right_type regtype;
	operator text;
	type text;
BEGIN
	FOR f IN SELECT p.proname, pg_get_function_identity_arguments(p.oid) AS arguments, format_type(p.prorettype, NULL) AS result, p.proretset
		FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND p.proname = ANY ('{$named}')
		  AND p.prorettype <> ALL ('{internal,trigger,anyelement,anyarray,anyrange}'::regtype[]) AND p.pronargs < 6
		  AND NOT p.proargtypes::oid[] && '{internal,anyelement,anyarray,anyrange}'::regtype[]::oid[]
	LOOP
		CONTINUE WHEN f.arguments ~ 'OUT|VARIADIC|any';
		EXECUTE format('CREATE FUNCTION evil.%I(%s) RETURNS %s %s LANGUAGE plpgsql AS \$\$ BEGIN RAISE ''planted %s''; END \$\$',
			f.proname, f.arguments, CASE WHEN f.proretset THEN 'SETOF' END, f.result, f.proname);
	END LOOP;
	FOREACH left_type IN ARRAY '{int2,int4,int8,float8,numeric,text,name,oid,timestamptz,boolean,interval}'::regtype[] LOOP
		FOREACH right_type IN ARRAY '{int2,int4,int8,float8,numeric,text,name,oid,timestamptz,boolean,interval}'::regtype[] LOOP
			arguments := left_type || '_' || right_type;
			EXECUTE format('CREATE FUNCTION evil.%I(%s, %s) RETURNS boolean LANGUAGE plpgsql AS \$\$ BEGIN RAISE ''planted operator''; END \$\$', arguments, left_type, right_type);
			FOREACH operator IN ARRAY '{=,<>,<,>,<=,>=,+,-,*,/,%,<<,>>,&,|,||}'::text[] LOOP
				EXECUTE format('CREATE OPERATOR evil.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = evil.%I)', operator, left_type, right_type, arguments);
			END LOOP;
		END LOOP;
	END LOOP;
	FOREACH type IN ARRAY '{int2,int4,int8,float8,numeric,text,name,oid,regclass,timestamptz,bool,interval,pg_sequence}'::text[] LOOP
		EXECUTE format('CREATE DOMAIN evil.%I AS pg_catalog.%I CHECK (evil.text_text(''type'', %L) IS NULL)', type, type, type);
	END LOOP;
END \$do\$;
CREATE SEQUENCE public.mine;
CREATE SEQUENCE public.blocks INCREMENT 10;
SET search_path = evil, pg_catalog;
SET snowid.shard = 5;
SELECT 'called' FROM (SELECT
	snowid.next_id(5, 'public.mine') AS a, snowid.next_id(5, 'public.mine') AS b, snowid.next_id(5, 'public.mine', '2011-08-24 21:07:01.721+00') AS c,
	snowid.next_id(5, 'public.blocks') AS d, snowid.next_id() AS e, snowid.safe_upper_id('public.mine') AS f, snowid.advance('public.mine', 1) AS g,
	snowid.id_parts(1) AS h, snowid.id_parts(-1, '2026-01-01') AS i, snowid.make_id('2026-01-01', 5, 0) AS j, snowid.min_id('2026-01-01') AS k,
	snowid.max_id('2026-01-01') AS l, snowid.id_between(1, '2026-01-01', '2026-01-02') AS m, snowid.base62_to_id(snowid.id_to_base62(-1)) AS n,
	snowid.shard_of('x', 5) AS o, snowid.shard_of(7::bigint, 5) AS p, snowid.sequence_state('public.mine') AS q OFFSET 0) AS calls
WHERE (a, b, c, d, e, f, h, i, j, k, l, m, n, o, p, q) IS NOT NULL;
SELECT 1 OPERATOR(evil.=) 1;
SELECT snowid.next_id(8192, 'public.mine');
SELECT snowid.next_id(5, 'snowid.shards');
BEGIN;
SELECT pg_catalog.set_config('snowid_internal.seen', pg_catalog.concat(pg_catalog.pg_relation_filepath('public.ended'), ' ', pg_catalog.pg_current_xact_id()), false) AS forged \\gset
-- fails under the lock
SELECT snowid.next_id(5, 'public.ended');
}, on_error_stop => 0, stderr => \my $errors);
is($planted, 'called', 'all functions work with others before them in the search path');
is(join(' ', $errors =~ /ERROR:  ([^(\n]*[^( \n])/g), 'planted operator shard number 8192 is out of range "shards" is not a sequence '
	. 'nextval: reached maximum value of sequence "ended"',
	'nothing runs that was planted, but what is called by name');

$node->stop;
done_testing();
