-- Hostile names, a hostile search path, and functions and operators planted
-- where an unqualified name would find them.
\set SHOW_CONTEXT never
SET client_min_messages = warning;

-- Everything that can be planted, in public and first in the search path.
CREATE FUNCTION public.planted() RETURNS void LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'planted code was run'; END $$;
CREATE FUNCTION public.plant(sig text, ret text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE FUNCTION %s RETURNS %s LANGUAGE plpgsql AS %L', sig, ret,
		'BEGIN PERFORM public.planted(); RETURN NULL; END');
END $$;
CREATE SCHEMA evil;
SELECT count(public.plant(sig, ret)) FROM (VALUES
	('evil.next_id()', 'bigint'), ('evil.next_id(int, regclass)', 'bigint'),
	('evil.next_id(int, text)', 'bigint'), ('public.next_id()', 'bigint'),
	('public.next_id(int, regclass)', 'bigint'),
	('evil.format(text, text)', 'text'), ('evil.format(text, name)', 'text'),
	('evil.format(text, int)', 'text'), ('evil.quote_ident(name)', 'text'), ('evil.quote_ident(text)', 'text'),
	('evil.concat_ws(text, text, text)', 'text'), ('evil.set_config(text, text, boolean)', 'text'),
	('evil.current_setting(text)', 'text'), ('evil.clock_timestamp()', 'timestamptz'),
	('evil.to_regnamespace(text)', 'regnamespace'), ('evil.octet_length(text)', 'int'),
	('evil.id_shard(bigint)', 'int'), ('evil.create_shard(int, name, timestamptz)', 'name'),
	('evil.run_in_shard(int, name, text, text, text)', 'boolean'),
	('evil.eq(int, int)', 'boolean'), ('evil.plus(int, int)', 'int'), ('evil.cat(text, int)', 'text'),
	('evil.current_schema()', 'name'), ('evil.namesame(name, name)', 'boolean'),
	('evil.nameeq(name, text)', 'boolean'), ('evil.gt(int, int)', 'boolean')) p (sig, ret) \g /dev/null
CREATE OPERATOR evil.= (FUNCTION = evil.eq, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR evil.+ (FUNCTION = evil.plus, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR evil.% (FUNCTION = evil.plus, LEFTARG = int, RIGHTARG = int);
CREATE OPERATOR evil.|| (FUNCTION = evil.cat, LEFTARG = text, RIGHTARG = int);
CREATE OPERATOR evil.= (FUNCTION = evil.nameeq, LEFTARG = name, RIGHTARG = text);
CREATE OPERATOR evil.= (FUNCTION = evil.namesame, LEFTARG = name, RIGHTARG = name);
CREATE OPERATOR evil.> (FUNCTION = evil.gt, LEFTARG = int, RIGHTARG = int);
CREATE DOMAIN evil.text AS int;
CREATE DOMAIN evil.timestamptz AS int;
CREATE DOMAIN evil.name AS int;
CREATE DOMAIN evil.regclass AS int;
CREATE TABLE evil.shard_registry (shard int);
CREATE TABLE evil.pg_class (oid int);
-- in our schema, too, which a role that made it beforehand owns
SELECT count(public.plant(sig, ret)) FROM (VALUES
	('snowid_internal.claim_shard(int, name, text, timestamptz)', 'bigint'), ('snowid_internal.claim_shard(int, name, text, text)', 'bigint'),
	('snowid.min_id(text)', 'bigint'), ('snowid.id_timestamp(int)', 'timestamptz')) p (sig, ret) \g /dev/null
SET search_path = evil, pg_catalog, public;

SELECT snowid.create_shard(1, 'plain');
CALL snowid.create_shards(2, 3, ddl => 'CREATE TABLE t (id pg_catalog.int8 PRIMARY KEY)');
CALL snowid.for_each_shard('CREATE TABLE u (id pg_catalog.int8 PRIMARY KEY)');
-- a script's own SET, too, is in force no longer than the script
CALL snowid.create_shards(4, 4, ddl => 'SET search_path = evil, pg_catalog, public');
CALL snowid.for_each_shard('SET search_path = evil, pg_catalog, public');
SELECT snowid.drop_shard(4);
SELECT snowid.set_default('insta2.u', guard => true);
SELECT snowid.set_default('insta2.t', own_sequence => true);
INSERT INTO insta2.u DEFAULT VALUES RETURNING snowid.id_shard(id);
INSERT INTO insta2.t DEFAULT VALUES RETURNING snowid.id_shard(id);
SELECT snowid.id_shard(plain.next_id()), snowid.shard_of(31341, 2000);
SELECT shard, schema, tables, lives FROM snowid.shards ORDER BY 1;
SELECT snowid.drop_shard(3, true);
-- the snippet's next_id() runs with the shard first, as it always has
RESET search_path;
CREATE SCHEMA adopted;
CREATE SEQUENCE adopted.s;
CREATE FUNCTION adopted.next_id() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE our_epoch bigint := 1314220021721;
BEGIN
	RETURN ((floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - our_epoch) << 23) | (9 << 10) | (nextval('adopted.s') % 1024);
END $$;
SET search_path = evil, pg_catalog, public;
SELECT snowid.adopt_shard(9, 'adopted') IS NULL AS adopted;
SELECT snowid.id_shard(adopted.next_id());

-- With the same names planted in the shard itself: the wrapper calls ours.
RESET search_path;
CREATE FUNCTION plain.next_id(int, regclass) RETURNS bigint LANGUAGE sql AS 'SELECT public.planted(); SELECT 1::bigint';
CREATE SCHEMA trap;
SELECT public.plant('plain.id_shard(bigint)', 'int'), public.plant('plain.planted_eq(int, int)', 'boolean') \g /dev/null
CREATE OPERATOR plain.= (FUNCTION = plain.planted_eq, LEFTARG = int, RIGHTARG = int);
SET search_path = plain, pg_catalog;
CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id());
SELECT snowid.set_default('photos', guard => true);
INSERT INTO photos DEFAULT VALUES RETURNING snowid.id_shard(id);
RESET search_path;
SELECT snowid.drop_shard(shard, true) FROM snowid.shards WHERE schema = 'adopted';
DROP FUNCTION snowid_internal.claim_shard(int, name, text, timestamptz), snowid_internal.claim_shard(int, name, text, text),
	snowid.min_id(text), snowid.id_timestamp(int);
DROP FUNCTION public.planted() CASCADE;
DROP SCHEMA evil CASCADE;
DROP SCHEMA trap;
DROP FUNCTION public.next_id(), public.next_id(int, regclass), public.plant(text, text);
SELECT count(snowid.drop_shard(shard, true)) FROM snowid.shards;

-- Names: each as a shard's schema, a table's and a column's.
CREATE TABLE public.hostile (n int, name text);
INSERT INTO public.hostile VALUES
	(10, 'Photos'), (11, 'with space'), (12, 'quo"te'), (13, 'apos''trophe'), (14, 'dot.ted'),
	(15, '%s %I %1$s'), (16, 'select'), (17, repeat('x', 63)), (18, repeat('ü', 31)), (19, '日本語'),
	(20, 'back\slash'), (21, '$$'), (22, 'semi; DROP TABLE public.hostile; --'), (23, '"'), (24, ''''''), (25, 'new
line'), (26, '"$user"'), (27, '{}'), (28, 'pg-catalog'), (29, E'tab\t');
-- a search path has no way to say this one
SELECT snowid.create_shard(30, '$user');
\echo :LAST_ERROR_SQLSTATE
\set VERBOSITY terse
INSERT INTO snowid.shard_registry VALUES (30, '$user');
-- nor has a row of one's own what create_shard() refuses, or a history that cannot be read
CREATE FUNCTION public.refused(column_name text, value text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('INSERT INTO snowid.shard_registry (shard, schema, %I) VALUES (30, %L, %L)', column_name, 'plain', value);
	RAISE SQLSTATE 'KEPT0';
EXCEPTION
	WHEN check_violation THEN RETURN 'refused';
	WHEN SQLSTATE 'KEPT0' THEN RETURN 'kept';
END $$;
CREATE FUNCTION public.refused(schema text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO snowid.shard_registry (shard, schema) VALUES (30, refused.schema);
	RAISE SQLSTATE 'KEPT0';
EXCEPTION
	WHEN check_violation THEN RETURN 'refused';
	WHEN SQLSTATE 'KEPT0' THEN RETURN 'kept';
END $$;
SELECT schema, public.refused(schema) FROM unnest('{snowid,snowid_internal,information_schema,pg_catalog,pg_toast,pgx,public}'::text[]) schema;
SELECT homes, public.refused('homes', homes) FROM (VALUES ('{}'), ('"x"'), ('null'), ('[1]'), ('[[]]'), ('[{}]'), ('[{"home": "x"}]'),
	('[{"home": "x", "since": "x"}]'), ('[[{"since": "2026-01-01T00:00:00+00:00"}]]'), ('[{"since": "9T9"}]'),
	('[{"since": "2026-02-29T00:00:00+00:00"}]'), ('[{"since": "2026-01-00T00:00:00+00:00"}]'), ('[{"since": "2026-01-01T00:00:00.5+24:00"}]'),
	('[{"home": null, "since": "2026-01-01T00:00:00.5+00:00"}]'), ('[{"since": "2028-02-29T23:59:59-03:30"}]'), ('[]')) h (homes);
DROP FUNCTION public.refused(text, text), public.refused(text);
\set VERBOSITY default
DO $$
DECLARE h record; id bigint;
BEGIN
	FOR h IN SELECT * FROM public.hostile ORDER BY n LOOP
		PERFORM snowid.create_shard(h.n, h.name);
		EXECUTE format('CREATE TABLE %1$I.%1$I (%1$I bigserial PRIMARY KEY, n int)', h.name);
		EXECUTE format('CREATE TABLE %1$I.own (%1$I bigint PRIMARY KEY)', h.name);
		EXECUTE format('CREATE TABLE %1$I.%2$I (%1$I bigint GENERATED ALWAYS AS IDENTITY)', h.name, ('z' || h.name || h.name)::name);
		EXECUTE format('INSERT INTO %1$I.%1$I (n) VALUES (1)', h.name);
		PERFORM snowid.set_default(format('%1$I.%1$I', h.name)::regclass, h.name);
		PERFORM snowid.set_default(format('%I.own', h.name)::regclass, h.name, true, true);
		PERFORM snowid.set_default(format('%I.%I', h.name, ('z' || h.name || h.name)::name)::regclass, h.name, own_sequence => true);
		EXECUTE format('INSERT INTO %1$I.%1$I (n) VALUES (2)', h.name);
		EXECUTE format('INSERT INTO %I.own DEFAULT VALUES', h.name);
		EXECUTE format('SELECT max(%1$I) FROM %1$I.%1$I', h.name) INTO id;
		IF snowid.id_shard(id) <> h.n THEN RAISE EXCEPTION '%', h; END IF;
		EXECUTE format('SELECT max(%1$I) FROM %1$I.own', h.name) INTO id;
		IF snowid.id_shard(id) <> h.n THEN RAISE EXCEPTION '%', h; END IF;
	END LOOP;
END
$$;
SELECT count(*), count(*) FILTER (WHERE tables = 3 AND lives = 'here' AND last_id_at IS NOT NULL) AS whole FROM snowid.shards;
CREATE TABLE public.visited (schema name);
CALL snowid.for_each_shard('INSERT INTO visited SELECT current_schema');
SELECT count(*) AS not_visited FROM public.hostile h WHERE h.name::name NOT IN (SELECT schema FROM visited);
-- generated names end within 63 bytes
SELECT max(octet_length(relname)) FROM pg_class WHERE relkind = 'S' AND relname ~ '_seq\d*$';
SELECT count(snowid.drop_shard(shard, true)) FROM snowid.shards;
SELECT count(*) AS left_over FROM pg_namespace WHERE nspname IN (SELECT name FROM public.hostile);
-- as a prefix
CALL snowid.create_shards(5, 6, '"; DROP TABLE public.hostile; %s $$ ');
SELECT schema FROM snowid.shards ORDER BY 1;
SELECT count(snowid.drop_shard(shard)) FROM snowid.shards;
DROP TABLE public.hostile, public.visited;
