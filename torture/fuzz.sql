/*
 * Random calls, made and run within the server; torture/fuzz sets it up, with
 * either edition, and reads the result.
 *
 * Schema fuzz belongs to the superuser, and all calls are role fuzzer's, who
 * may make shards: so that no call can break what counts the calls.
 * fuzz.outcome has a row for each function and SQLSTATE.
 *
 * A call is a text of constants, so that an error can be repeated by typing it.
 * The functions are those of the catalog: a new one needs nothing here, and an
 * argument of a new type fails until it has values.
 */
CREATE ROLE fuzzer LOGIN;
SELECT format('GRANT CREATE, TEMP ON DATABASE %I TO fuzzer', current_database()) \gexec
GRANT SELECT, INSERT, UPDATE, DELETE ON snowid.shard_registry, snowid.moves TO fuzzer;
GRANT ALL ON SEQUENCE snowid.id_seq TO fuzzer;
ALTER ROLE fuzzer SET snowid.shard = 7;
ALTER ROLE fuzzer SET client_min_messages = error;

CREATE SCHEMA fuzz;
GRANT USAGE ON SCHEMA fuzz TO fuzzer;
CREATE SEQUENCE fuzz.not_granted;

CREATE TABLE fuzz.outcome (
	call regprocedure,
	state text,
	calls bigint,
	example text,			-- one of the calls, and its message
	message text,
	PRIMARY KEY (call, state)
);
CREATE TABLE fuzz.relation (name text, oid oid);
GRANT SELECT, INSERT, UPDATE, DELETE ON fuzz.outcome, fuzz.relation TO fuzzer;

CREATE VIEW fuzz.function AS
SELECT p.oid, p.pronamespace::regnamespace AS schema, p.prokind, p.proname, p.pronargdefaults, p.proargtypes, p.provariadic
FROM pg_catalog.pg_proc p
WHERE p.pronamespace IN ('snowid'::regnamespace, 'snowid_internal'::regnamespace)
  AND p.prorettype <> 'trigger'::regtype
  -- they use the processor for as long as they are told
  AND p.proname NOT IN ('wait', 'next_ids');
GRANT SELECT ON fuzz.function TO fuzzer;

-- One of an array's elements.
CREATE FUNCTION fuzz.pick(VARIADIC choices text[]) RETURNS text
LANGUAGE sql VOLATILE
AS $$ SELECT $1[1 + floor(random() * cardinality($1))::int] $$;

CREATE FUNCTION fuzz.name() RETURNS text
LANGUAGE sql VOLATILE
AS $$ SELECT fuzz.pick('insta' || floor(random() * 10), 'fuzz_objects', 'fuzz_objects',
	'fuzz_snippet', 'fuzz_snippet', 'fuzz_snippet', 'fuzz_snippet', 'id', 'id_seq', 'next_id', 'plain', 'taken_seq',
	'pg_catalog', 'snowid', 'public', 'pg_temp', 'pg_fuzz', 'nowhere',
	'', ' ', '"', 'a"b', 'x''; DROP SCHEMA fuzz_objects; --', '%s%I%L', 'select', '$' || '$', '\',
	repeat('n', 63), repeat('ü', 31), repeat('"', 63), 'Größe', '数据', E'tab\tline\n', 'a.b') $$;

CREATE FUNCTION fuzz.text() RETURNS text
LANGUAGE sql VOLATILE
AS $$
SELECT CASE floor(random() * 6)::int
	WHEN 0 THEN fuzz.name()
	-- so that define_next_id() succeeds at times
	WHEN 4 THEN fuzz.pick('', '1::bigint')
	-- base 62, nearly
	WHEN 1 THEN (SELECT coalesce(string_agg(fuzz.pick('0', '1', '9', 'A', 'H', 'L', 'Z', 'a', 'g', 'y', 'z',
											 'F', '7', 'z', '-', 'ß'), ''), '')
				 FROM generate_series(1, fuzz.pick('11', '11', '11', '10', '12', '0')::int))
	WHEN 2 THEN fuzz.pick('LygHa16AHYF', 'LygHa16AHYG', 'zzzzzzzzzzz', '00000000000',
						  '0000000000!', E'0000000000\x01', 'AzL8n0Y58m7')
	-- scripts, argument lists and calls
	WHEN 3 THEN fuzz.pick('SELECT 1', 'SELECT next_id()', 'CREATE TABLE t (id bigint DEFAULT next_id())',
						  'COMMIT', 'SELECT 1/0', 'RAISE', ';;', 'SELECT ''', 'SELECT $1', 'DO $x$ BEGIN ROLLBACK; END $x$',
						  'DROP SEQUENCE id_seq CASCADE', 'ALTER SEQUENCE id_seq INCREMENT -5',
						  'SELECT snowid.drop_shard(shard, true) FROM snowid.shard_registry',
						  'DO $x$ BEGIN RAISE query_canceled; END $x$', 'DO $x$ BEGIN ASSERT false; END $x$',
						  'x int', 'VARIADIC bigint[]', 'now()', '1::bigint', 'snowid_internal.next_id_of_shard', 'snowid.next_id')
	ELSE fuzz.pick(repeat('x', 8000), repeat('é', 40000), repeat('''', 70), '-1', '1e9', '\000', '''''',
				   chr(1114109), E'\u200b', 'https://example.org/?q=%00')
END $$;

CREATE FUNCTION fuzz.bigint() RETURNS text
LANGUAGE sql VOLATILE
AS $$
SELECT CASE floor(random() * 4)::int
	WHEN 0 THEN fuzz.pick('0', '1', '-1', '9223372036854775807', '-9223372036854775808',
						  '9223372036854775806', '-9223372036854775807', '2147483648', '-2147483649',
						  '1099511627775', '1099511627776', '8388607', '8388608', '1023', '1024')
	-- a bit set, and the number before and after it
	WHEN 1 THEN ((1::bigint << floor(random() * 63)::int) + floor(random() * 3)::int - 1)::text
	WHEN 2 THEN snowid.make_id(clock_timestamp() + fuzz.pick('0', '1 ms', '11 ms', '1 s', '-1 h', '23:59:59.99',
							   '1 day', '2 days')::interval, floor(random() * 8192)::int, floor(random() * 1024)::int)::text
	ELSE (floor(random() * 4294967296)::bigint << 32 | floor(random() * 4294967296)::bigint)::text
END $$;

CREATE FUNCTION fuzz.int() RETURNS text
LANGUAGE sql VOLATILE
AS $$
SELECT CASE WHEN random() < 0.1 THEN '5'		-- the number of the snippet's shard
	WHEN random() < 0.6 THEN floor(random() * 10)::text
	WHEN random() < 0.7 THEN fuzz.pick('-1', '1023', '1024', '8191', '8192', '8193', '2147483647',
									   '-2147483648', '65536', '-8191', '4096')
	ELSE (floor(random() * 4294967296)::bigint - 2147483648)::text
END $$;

CREATE FUNCTION fuzz.timestamp() RETURNS text
LANGUAGE sql VOLATILE
AS $$
SELECT CASE floor(random() * 4)::int
	WHEN 0 THEN fuzz.pick('infinity', '-infinity', '4714-11-24 00:00:00+00 BC', '4714-11-24 00:00:00.000001+00 BC',
						  '294276-12-31 23:59:59.999999+00', '294276-12-31 23:59:59.999+00', '2000-01-01 00:00+00', '1970-01-01 00:00+00',
						  '1999-12-31 23:59:59.999999+00', '0001-01-01 00:00+00')
	WHEN 1 THEN fuzz.pick('2011-08-24 21:07:01.721+00', '2011-08-24 21:07:01.720999+00', '2011-08-24 21:07:01.721001+00',
						  '2046-06-27 00:00:00+00', '2081-05-01 00:00:00+00', '2026-01-01 00:00:00+00')
	WHEN 2 THEN (clock_timestamp() + fuzz.pick('0', '1 ms', '-1 ms', '-1 day', '1 day', '-34 years',
											   '-35 years', '-70 years', '2 s')::interval)::text
	ELSE to_timestamp(random() * 9.4e12 - 2.1e11)::text
END $$;

/*
 * A call of a function, with random arguments; the last ones that have
 * defaults are left out at times.
 */
CREATE FUNCTION fuzz.call(f fuzz.function, relations oid[]) RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
	arguments text[] := '{}';
	given int := cardinality(f.proargtypes) - floor(random() * (f.pronargdefaults + 1))::int;
	value text;
BEGIN
	FOR i IN 0 .. given - 1 LOOP
		IF f.proargtypes[i] = 'anyelement'::regtype THEN
			arguments := arguments || fuzz.pick('NULL::fuzz.relation', 'NULL::snowid.shard_registry', '1', 'NULL::text');
			CONTINUE;
		END IF;
		value := CASE f.proargtypes[i]::regtype
			WHEN 'int'::regtype THEN fuzz.int()
			WHEN 'bigint'::regtype THEN fuzz.bigint()
			WHEN 'timestamptz'::regtype THEN fuzz.timestamp()
			WHEN 'name'::regtype THEN fuzz.name()
			WHEN 'text'::regtype THEN fuzz.text()
			WHEN 'jsonb'::regtype THEN fuzz.pick(to_jsonb(fuzz.text())::text, jsonb_build_array(jsonb_build_object('home', fuzz.text()))::text, '{}')
			WHEN 'boolean'::regtype THEN fuzz.pick('true', 'false')
			WHEN 'snowid.shard_registry'::regtype THEN jsonb_populate_record(NULL::snowid.shard_registry,
				fuzz.pick('{"shard": 3, "schema": "fuzz_objects", "sequence": "plain"}',
						  '{"shard": 4, "schema": "insta4", "sequence": "id_seq", "home": "elsewhere"}', '{}')::jsonb)::text
			WHEN 'regclass'::regtype THEN fuzz.pick(VARIADIC relations::text[])
			WHEN 'oid'::regtype THEN fuzz.pick(VARIADIC relations::text[])
			WHEN 'oid[]'::regtype THEN format('{%s,%s}', fuzz.pick(VARIADIC relations::text[]), fuzz.pick(VARIADIC relations::text[]))
			WHEN 'int[]'::regtype THEN format('{%s,%s}', fuzz.int(), fuzz.int())
			WHEN 'name[]'::regtype THEN ARRAY[fuzz.name(), fuzz.name()]::text
			WHEN 'interval'::regtype THEN fuzz.pick('0', '1 ms', '-1 day', '-178000000 years')	-- how long shard_load() sleeps
			WHEN 'text[]'::regtype THEN fuzz.pick('{}', '{UPDATE}', '{USAGE,"SELECT, UPDATE"}', '{NULL}', '{x}')
			WHEN 'regclass[]'::regtype THEN format('{%s}', fuzz.pick(VARIADIC relations::text[]))
		END;
		IF value IS NULL THEN
			RAISE EXCEPTION 'no values for arguments of type %', f.proargtypes[i]::regtype;
		END IF;
		arguments := arguments || format('%s%L::%s',
										 CASE WHEN f.provariadic <> 0 AND i = cardinality(f.proargtypes) - 1 THEN 'VARIADIC ' END,
										 CASE WHEN random() < 0.97 THEN value END,
										 f.proargtypes[i]::regtype);
	END LOOP;
	RETURN format('%s %s.%I(%s)', CASE f.prokind WHEN 'p' THEN 'CALL' ELSE 'SELECT' END,
				  f.schema, f.proname, array_to_string(arguments, ', '));
END
$$;

/*
 * fixture: what there is to call the functions with, all of it new, for the
 * calls before may have spoiled it.  Returns the OIDs of good and bad relations.
 */
CREATE FUNCTION fuzz.fixture() RETURNS oid[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
	relations oid[];
	epoch timestamptz := CASE WHEN random() < 0.5 THEN '2020-01-01'::timestamptz END;
BEGIN
	DROP SCHEMA IF EXISTS fuzz_objects CASCADE;
	CREATE SCHEMA fuzz_objects;
	CREATE SEQUENCE fuzz_objects.plain;
	CREATE SEQUENCE fuzz_objects.plain2;
	CREATE SEQUENCE fuzz_objects.small AS smallint;
	CREATE SEQUENCE fuzz_objects.narrow AS integer;
	CREATE SEQUENCE fuzz_objects.blocks INCREMENT 1024 CACHE 3;
	CREATE SEQUENCE fuzz_objects.too_wide INCREMENT 1025;
	CREATE SEQUENCE fuzz_objects.down INCREMENT -1 MINVALUE -9223372036854775808 CYCLE;
	CREATE SEQUENCE fuzz_objects.widest INCREMENT 9223372036854775807 CACHE 9223372036854775807;
	CREATE SEQUENCE fuzz_objects.cached CACHE 1000 CYCLE;
	CREATE SEQUENCE fuzz_objects.cached_blocks INCREMENT 7 CACHE 9223372036854775807;
	CREATE SEQUENCE fuzz_objects.at_end START 9223372036854775807;
	CREATE SEQUENCE fuzz_objects.at_start MINVALUE -9223372036854775808 START -9223372036854775808;
	CREATE SEQUENCE fuzz_objects.restarted;
	PERFORM nextval('fuzz_objects.restarted');
	ALTER SEQUENCE fuzz_objects.restarted RESTART;
	CREATE SEQUENCE fuzz_objects.set_to_end;
	PERFORM setval('fuzz_objects.set_to_end', 9223372036854775807);
	CREATE SEQUENCE fuzz_objects.set_to_start MINVALUE -9223372036854775808;
	PERFORM setval('fuzz_objects.set_to_start', -9223372036854775808);
	CREATE UNLOGGED SEQUENCE fuzz_objects.unlogged;
	CREATE TEMP SEQUENCE IF NOT EXISTS temporary;
	-- advance() with another epoch moves it by years.
	PERFORM setval('snowid.id_seq', 1, false);

	CREATE TABLE fuzz_objects.t (id bigint PRIMARY KEY, note text, odd int, "a""b" bigint);
	CREATE TABLE fuzz_objects.counted (id bigserial, plain bigint GENERATED ALWAYS AS IDENTITY);
	CREATE TABLE fuzz_objects.parts (id bigint) PARTITION BY RANGE (id);
	CREATE TABLE fuzz_objects.far (id bigint);
	INSERT INTO fuzz_objects.far VALUES (9223372036854775807), (-1), (NULL);
	CREATE VIEW fuzz_objects.v AS SELECT 1::bigint AS id;

	DROP SCHEMA IF EXISTS fuzz_snippet CASCADE;
	CREATE SCHEMA fuzz_snippet;
	CREATE SEQUENCE fuzz_snippet.taken_seq;
	CREATE FUNCTION fuzz_snippet.next_id(OUT result bigint) LANGUAGE plpgsql AS $f$
	DECLARE
		our_epoch bigint := 1314220021721;
		seq_id bigint;
		now_millis bigint;
		shard_id int := 5;
	BEGIN
		SELECT nextval('fuzz_snippet.taken_seq') % 1024 INTO seq_id;
		SELECT floor(extract(epoch FROM clock_timestamp()) * 1000) INTO now_millis;
		result := (now_millis - our_epoch) << 23;
		result := result | (shard_id << 10);
		result := result | (seq_id);
	END $f$;
	CREATE TABLE fuzz_snippet.t (id bigint DEFAULT fuzz_snippet.next_id());
	INSERT INTO fuzz_snippet.t SELECT FROM generate_series(1, 10);

	-- No sequences, sequences of others, dropped ones, and some that never existed.
	relations := ARRAY(SELECT c.oid FROM pg_class c
					   WHERE c.relnamespace IN (to_regnamespace('fuzz_objects'), to_regnamespace('fuzz_snippet')))
		|| ARRAY(SELECT r.oid FROM fuzz.relation r)
		|| ARRAY['temporary', 'snowid.id_seq', 'fuzz.not_granted', 'snowid.shard_registry',
				 'snowid.shards', 'pg_class', 'pg_authid']::regclass[]::oid[]
		|| (SELECT c.reltoastrelid FROM pg_class c WHERE c.oid = 'pg_proc'::regclass)
		|| ARRAY[0, 1, 4294967295]::oid[];
	DELETE FROM fuzz.relation;
	INSERT INTO fuzz.relation
	SELECT c.relname, c.oid FROM pg_class c
	WHERE c.relnamespace = to_regnamespace('fuzz_objects') AND c.relname IN ('plain', 'cached', 't');

	DELETE FROM snowid.moves;
	DELETE FROM snowid.shard_registry;
	IF random() < 0.5 THEN
		INSERT INTO snowid.shard_registry VALUES (3, 'fuzz_objects', 'plain', epoch);
		-- Without it, set_default() hardly ever succeeds.
		IF random() < 0.5 THEN
			PERFORM snowid_internal.define_next_id('fuzz_objects', '', 3, 'plain', epoch, false);
		END IF;
		IF random() < 0.3 THEN
			PERFORM snowid.fence_shard(3, fuzz.pick(NULL, 'elsewhere'));
		END IF;
	ELSE
		INSERT INTO snowid.shard_registry (shard, schema, home) VALUES (4, 'insta4', 'elsewhere');
	END IF;
	RETURN relations;
END
$$;

CREATE PROCEDURE fuzz.drop_shards()
LANGUAGE plpgsql
AS $$
DECLARE
	n int;
BEGIN
	DELETE FROM snowid.moves;
	FOR n IN SELECT shard FROM snowid.shard_registry LOOP
		BEGIN
			PERFORM snowid.drop_shard(n, true);
		EXCEPTION WHEN OTHERS THEN
			DELETE FROM snowid.shard_registry WHERE shard = n;
		END;
		IF n % 100 = 0 THEN
			COMMIT;
		END IF;
	END LOOP;
END
$$;

/*
 * run: makes that many calls, each caught, in batches of a transaction, of
 * which some are rolled back and some are read-only.
 */
CREATE PROCEDURE fuzz.run(seed double precision, calls int)
LANGUAGE plpgsql
AS $$
DECLARE
	batch CONSTANT int := 1000;
	functions fuzz.function[];
	f fuzz.function;
	relations oid[];
	call text;
	result text;
	state text;
	message text;
	o fuzz.outcome[];
BEGIN
	PERFORM setseed(seed);
	functions := ARRAY(SELECT x FROM fuzz.function x ORDER BY x.oid::regprocedure::text);
	FOR b IN 1 .. ceil(calls::float / batch) LOOP
		relations := fuzz.fixture();
		COMMIT;
		PERFORM set_config('transaction_read_only', (random() < 0.05)::text, true),
				set_config('TimeZone', fuzz.pick('UTC', 'Asia/Kolkata', 'America/New_York', '<-13>13'), true),
				set_config('DateStyle', fuzz.pick('ISO', 'SQL, DMY', 'German'), true);
		o := '{}';
		FOR i IN 1 .. batch LOOP
			f := functions[1 + floor(random() * cardinality(functions))::int];
			call := fuzz.call(f, relations);
			BEGIN
				-- Into a text, so that the result's output is made too.
				IF f.prokind = 'p' THEN
					EXECUTE call;
				ELSE
					EXECUTE call INTO result;
				END IF;
				state := '00000';
				message := NULL;
			EXCEPTION WHEN query_canceled OR assert_failure OR OTHERS THEN
				state := SQLSTATE;
				message := SQLERRM;
			END;
			o := array_append(o, (f.oid::regprocedure, state, 1, left(call, 300), left(message, 300))::fuzz.outcome);
		END LOOP;
		IF random() < 0.3 THEN
			ROLLBACK;
		ELSE
			COMMIT;
		END IF;

		INSERT INTO fuzz.outcome AS t
		SELECT x.call, x.state, count(*), min(x.example), min(x.message) FROM unnest(o) x GROUP BY 1, 2
		ON CONFLICT ON CONSTRAINT outcome_pkey DO UPDATE SET calls = t.calls + excluded.calls;
		COMMIT;
		IF EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = 1936617335) THEN
			RAISE EXCEPTION 'a lock of next_id() was left behind';
		END IF;
		CALL fuzz.drop_shards();
		COMMIT;
	END LOOP;
END
$$;
