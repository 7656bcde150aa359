/*
 * snowid--1.0.sql
 *
 * Sections in the order of doc/reference.md.  Everything is in schema snowid,
 * and every name is qualified, so that nothing planted in another schema can
 * get in between.
 */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION snowid" to load this file. \quit

-- The functions check privileges on the objects they are given, and the rest
-- is arithmetic, so everybody may call them.
GRANT USAGE ON SCHEMA snowid TO PUBLIC;


/* -------- generating ids -------- */

CREATE FUNCTION snowid.next_id(shard int, seq regclass)
RETURNS bigint
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'snowid_next_id';

COMMENT ON FUNCTION snowid.next_id(int, regclass) IS
'next id of a shard, from a sequence: larger than all before from that sequence';

CREATE FUNCTION snowid.next_id(shard int, seq regclass, epoch timestamptz)
RETURNS bigint
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'snowid_next_id';

COMMENT ON FUNCTION snowid.next_id(int, regclass, timestamptz) IS
'next id of a shard, from a sequence, in milliseconds since an own epoch';

-- The sequence of a database that is one shard.  A dump carries its state, and
-- it belongs to whoever creates the extension, who can then grant its use.
CREATE SEQUENCE snowid.id_seq;
ALTER SEQUENCE snowid.id_seq OWNER TO @extowner@;
SELECT pg_catalog.pg_extension_config_dump('snowid.id_seq', '');

COMMENT ON SEQUENCE snowid.id_seq IS
'clock of next_id() without arguments';

CREATE FUNCTION snowid.next_id()
RETURNS bigint
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'snowid_next_id_of_database';

COMMENT ON FUNCTION snowid.next_id() IS
'next id of a database that is one shard, from setting snowid.shard and sequence snowid.id_seq';


/* -------- reading ids -------- */

CREATE FUNCTION snowid.id_timestamp(id bigint)
RETURNS timestamptz
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'snowid_id_timestamp';

COMMENT ON FUNCTION snowid.id_timestamp(bigint) IS
'time at which an id was made, to the millisecond';

CREATE FUNCTION snowid.id_timestamp(id bigint, epoch timestamptz)
RETURNS timestamptz
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'snowid_id_timestamp';

COMMENT ON FUNCTION snowid.id_timestamp(bigint, timestamptz) IS
'time at which an id of an own epoch was made, to the millisecond';

CREATE FUNCTION snowid.id_shard(id bigint)
RETURNS int
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'snowid_id_shard';

COMMENT ON FUNCTION snowid.id_shard(bigint) IS
'shard number that an id names, 0 to 8191';

CREATE FUNCTION snowid.id_seq(id bigint)
RETURNS int
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'snowid_id_seq';

COMMENT ON FUNCTION snowid.id_seq(bigint) IS
'sequence number of an id within its millisecond, 0 to 1023';

CREATE FUNCTION snowid.id_parts(id bigint,
	OUT created_at timestamptz, OUT shard int, OUT seq int)
RETURNS record
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'snowid_id_parts';

COMMENT ON FUNCTION snowid.id_parts(bigint) IS
'time, shard and sequence number of an id';

CREATE FUNCTION snowid.id_parts(id bigint, epoch timestamptz,
	OUT created_at timestamptz, OUT shard int, OUT seq int)
RETURNS record
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'snowid_id_parts';

COMMENT ON FUNCTION snowid.id_parts(bigint, timestamptz) IS
'time, shard and sequence number of an id of an own epoch';


/* -------- composing ids and bounds -------- */

CREATE FUNCTION snowid.make_id(created_at timestamptz, shard int, seq int)
RETURNS bigint
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'snowid_make_id';

COMMENT ON FUNCTION snowid.make_id(timestamptz, int, int) IS
'composes an id from its parts';

CREATE FUNCTION snowid.make_id(created_at timestamptz, shard int, seq int,
	epoch timestamptz)
RETURNS bigint
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'snowid_make_id';

COMMENT ON FUNCTION snowid.make_id(timestamptz, int, int, timestamptz) IS
'composes an id of an own epoch from its parts';

CREATE FUNCTION snowid.min_id(at timestamptz)
RETURNS bigint
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'snowid_min_id';

COMMENT ON FUNCTION snowid.min_id(timestamptz) IS
'smallest id of a time: id >= min_id(t) means id_timestamp(id) >= t';

CREATE FUNCTION snowid.min_id(at timestamptz, epoch timestamptz)
RETURNS bigint
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'snowid_min_id';

COMMENT ON FUNCTION snowid.min_id(timestamptz, timestamptz) IS
'smallest id of a time, with an own epoch';

CREATE FUNCTION snowid.max_id(at timestamptz)
RETURNS bigint
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'snowid_max_id';

COMMENT ON FUNCTION snowid.max_id(timestamptz) IS
'largest id of a time: id <= max_id(t) means id_timestamp(id) <= t';

CREATE FUNCTION snowid.max_id(at timestamptz, epoch timestamptz)
RETURNS bigint
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'snowid_max_id';

COMMENT ON FUNCTION snowid.max_id(timestamptz, timestamptz) IS
'largest id of a time, with an own epoch';

-- Not STRICT, and no SET: the planner inlines it only so, and only inlined it
-- can use an index.  NULLs come out as they do from the two comparisons.
CREATE FUNCTION snowid.id_between(id bigint, since timestamptz, until timestamptz)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
SELECT $1 OPERATOR(pg_catalog.>=) snowid.min_id($2)
   AND $1 OPERATOR(pg_catalog.<) snowid.min_id($3)
$$;

COMMENT ON FUNCTION snowid.id_between(bigint, timestamptz, timestamptz) IS
'was the id made at or after since, and before until? Uses an index on the id';

CREATE FUNCTION snowid.id_between(id bigint, since timestamptz, until timestamptz,
	epoch timestamptz)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
SELECT $1 OPERATOR(pg_catalog.>=) snowid.min_id($2, $4)
   AND $1 OPERATOR(pg_catalog.<) snowid.min_id($3, $4)
$$;

COMMENT ON FUNCTION snowid.id_between(bigint, timestamptz, timestamptz, timestamptz) IS
'was the id of an own epoch made at or after since, and before until? Uses an index on the id';


/* -------- the text form -------- */

CREATE FUNCTION snowid.id_to_base62(id bigint)
RETURNS text
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'snowid_id_to_base62';

COMMENT ON FUNCTION snowid.id_to_base62(bigint) IS
'text form of an id: 11 characters that sort under collation "C" as the id does';

CREATE FUNCTION snowid.base62_to_id(text)
RETURNS bigint
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'snowid_base62_to_id';

COMMENT ON FUNCTION snowid.base62_to_id(text) IS
'id of a text form';


/* -------- the state of a sequence -------- */

CREATE FUNCTION snowid.advance(seq regclass, id bigint)
RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'snowid_advance';

COMMENT ON FUNCTION snowid.advance(regclass, bigint) IS
'makes every later id of a sequence larger than the given one';

CREATE FUNCTION snowid.advance(seq regclass, id bigint, epoch timestamptz)
RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'snowid_advance';

COMMENT ON FUNCTION snowid.advance(regclass, bigint, timestamptz) IS
'makes every later id of a sequence larger than the given one of an own epoch';

CREATE FUNCTION snowid.sequence_state(seq regclass,
	OUT last_id_at timestamptz, OUT slots_left int, OUT ahead interval)
RETURNS record
LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'snowid_sequence_state';

COMMENT ON FUNCTION snowid.sequence_state(regclass) IS
'time of a sequence''s last id, slots left in its millisecond, and how far it is ahead of the clock';

CREATE FUNCTION snowid.sequence_state(seq regclass, epoch timestamptz,
	OUT last_id_at timestamptz, OUT slots_left int, OUT ahead interval)
RETURNS record
LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'snowid_sequence_state';

COMMENT ON FUNCTION snowid.sequence_state(regclass, timestamptz) IS
'time of the last id of a sequence of an own epoch, slots left, and how far it is ahead of the clock';

CREATE FUNCTION snowid.safe_upper_id(seq regclass)
RETURNS bigint
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'snowid_safe_upper_id';

COMMENT ON FUNCTION snowid.safe_upper_id(regclass) IS
'every smaller id of the sequence is of a transaction that has ended: read up to there in a later statement';

CREATE FUNCTION snowid.safe_upper_id(seq regclass, epoch timestamptz)
RETURNS bigint
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'snowid_safe_upper_id';

COMMENT ON FUNCTION snowid.safe_upper_id(regclass, timestamptz) IS
'every smaller id of a sequence of an own epoch is of a transaction that has ended';


/* -------- keys to logical shards -------- */

CREATE FUNCTION snowid.shard_of(key bigint, shards int)
RETURNS int
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'snowid_shard_of_bigint';

COMMENT ON FUNCTION snowid.shard_of(bigint, int) IS
'logical shard of a numeric key: key modulo shards, never negative';

CREATE FUNCTION snowid.shard_of(key text, shards int)
RETURNS int
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'snowid_shard_of_text';

COMMENT ON FUNCTION snowid.shard_of(text, int) IS
'logical shard of a text key: first 8 bytes of its MD5, unsigned and big-endian, modulo shards';


/* -------- logical shards -------- */

-- Which number is which schema.  The rows are the users' own and go with a
-- dump; by name, since a dump must find the schema again.  Registered is
-- whole: a shard's row is committed with all that was made in it.
CREATE TABLE snowid.shard_registry (
	shard int PRIMARY KEY CHECK (shard BETWEEN 0 AND 8191),
	schema name NOT NULL UNIQUE CHECK (schema <> '$user'),
	sequence name NOT NULL DEFAULT 'id_seq',
	epoch timestamptz CHECK (isfinite(epoch)),
	home text
);
ALTER TABLE snowid.shard_registry OWNER TO @extowner@;
SELECT pg_catalog.pg_extension_config_dump('snowid.shard_registry', '');

COMMENT ON TABLE snowid.shard_registry IS
'which shard number is which schema, its own epoch, and where it lives';

-- Absolute, not "elsewhere", so that all servers can have the same rows.
COMMENT ON COLUMN snowid.shard_registry.home IS
'connection string, without password, of the server where the shard lives; NULL if it never moved';

-- Everybody may look; the extension's owner may grant the rest to those who
-- make shards.
GRANT SELECT ON snowid.shard_registry TO PUBLIC;

-- The journal of shards that are on the way, or that are closed by hand.  Not
-- dumped: it tells what is true of this server now.
CREATE TABLE snowid.moves (
	shard int PRIMARY KEY CHECK (shard BETWEEN 0 AND 8191),
	schema name NOT NULL UNIQUE,
	role text NOT NULL CHECK (role IN ('source', 'target')),
	step text NOT NULL,
	closed boolean NOT NULL DEFAULT false,
	peer text,
	details jsonb NOT NULL DEFAULT '{}',
	started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
ALTER TABLE snowid.moves OWNER TO @extowner@;

COMMENT ON TABLE snowid.moves IS
'journal of the shards that are being moved, or closed for writing, on this server';

-- Whoever writes must be told why he may not, but not of other servers' users.
GRANT SELECT (shard, schema, role, step, closed, started_at, changed_at)
	ON snowid.moves TO PUBLIC;

/*
 * lives: where a registered shard is written, as shard_home() and the view
 * shards say it.
 *
 * A shard is where its sequence is, unless the journal has closed it.  What
 * fence_shard has closed by hand is here, whatever home says: its step is
 * "closed", or still the "open" of a move.
 */
CREATE FUNCTION snowid.lives(r snowid.shard_registry)
RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
SELECT CASE
	WHEN m.step IN ('closed', 'open') THEN 'closed'
	WHEN m.closed OR ($1.home IS NOT NULL AND NOT EXISTS (
		SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1.schema AND c.relname = $1.sequence AND c.relkind = 'S'))
		THEN coalesce($1.home, 'closed')
	WHEN NOT EXISTS (SELECT FROM pg_namespace n WHERE n.nspname = $1.schema) THEN 'missing'
	ELSE 'here' END
FROM (SELECT) one LEFT JOIN snowid.moves m ON m.shard = $1.shard AND m.closed
$$;

COMMENT ON FUNCTION snowid.lives(snowid.shard_registry) IS
'where a registered shard is written: here, closed, missing, or a connection string';

-- The view must work for everybody, so a sequence that one may not read is
-- left out: a strict function of NULL gives NULLs.
CREATE VIEW snowid.shards AS
SELECT r.shard, r.schema, r.epoch,
	   CASE WHEN n.oid IS NOT NULL THEN coalesce(t.tables, 0) END AS tables,
	   q.last_id_at,
	   q.ahead,
	   snowid.lives(r) AS lives
FROM snowid.shard_registry r
LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = r.schema
LEFT JOIN pg_catalog.pg_class c
	   ON c.relnamespace = n.oid AND c.relname = r.sequence AND c.relkind = 'S'
LEFT JOIN (SELECT relnamespace, count(*)::int AS tables
		   FROM pg_catalog.pg_class
		   WHERE relkind IN ('r', 'p')
		   GROUP BY relnamespace) t ON t.relnamespace = n.oid
LEFT JOIN LATERAL snowid.sequence_state(
	CASE WHEN has_sequence_privilege(c.oid, 'SELECT, USAGE, UPDATE') THEN c.oid END,
	coalesce(r.epoch, snowid.id_timestamp(0::bigint))) q ON true;
GRANT SELECT ON snowid.shards TO PUBLIC;

COMMENT ON VIEW snowid.shards IS
'the logical shards: schema, epoch, number of tables, newest id''s time, how far it is ahead of the clock, where the shard lives';

/*
 * register_shard: claims a number and a schema's name for a shard.
 *
 * Creates the row and nothing else; create_shard and adopt_shard do the rest.
 * Waits for another session that is claiming the same.
 *
 * Errors: 22004 a NULL, 22003 number out of range, 42939 schema "$user",
 * 22008 epoch that cannot be, 42501 not granted, 42710 number or schema taken.
 */
CREATE FUNCTION snowid.register_shard(shard int, schema name, sequence name,
	epoch timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	taken snowid.shard_registry;
BEGIN
	IF shard IS NULL OR schema IS NULL OR sequence IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed',
			MESSAGE = 'a shard needs a number, a schema and a sequence';
	END IF;
	IF shard NOT BETWEEN 0 AND 8191 THEN
		RAISE EXCEPTION USING ERRCODE = 'numeric_value_out_of_range',
			MESSAGE = format('shard number %s is out of range', shard),
			DETAIL = 'Shard numbers are between 0 and 8191.';
	END IF;
	IF schema = '$user' THEN
		RAISE EXCEPTION USING ERRCODE = 'reserved_name',
			MESSAGE = format('schema "%s" cannot be a shard', schema),
			DETAIL = 'In a search path, this name means the schema of the current user.';
	END IF;
	IF epoch > clock_timestamp() OR NOT isfinite(epoch)
	   OR snowid.min_id(clock_timestamp(), epoch) = snowid.min_id('infinity'::timestamptz)
	THEN
		RAISE EXCEPTION USING ERRCODE = 'datetime_field_overflow',
			MESSAGE = format('ids with epoch %s cannot be made now', epoch),
			DETAIL = 'An epoch must have begun, and ids last for 34 years from it.';
	END IF;
	IF NOT has_table_privilege('snowid.shard_registry', 'INSERT') THEN
		RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
			MESSAGE = 'permission denied to create shards',
			HINT = format('The extension''s owner can type: GRANT INSERT, UPDATE, DELETE ON snowid.shard_registry TO %I;', current_user);
	END IF;

	INSERT INTO snowid.shard_registry (shard, schema, sequence, epoch)
	VALUES (shard, schema, sequence, epoch)
	ON CONFLICT DO NOTHING;
	IF FOUND THEN
		RETURN;
	END IF;

	SELECT * INTO taken FROM snowid.shard_registry r
	WHERE r.shard = register_shard.shard OR r.schema = register_shard.schema
	ORDER BY r.shard = register_shard.shard DESC LIMIT 1;
	IF taken.shard <> shard THEN
		RAISE EXCEPTION USING ERRCODE = 'duplicate_object',
			MESSAGE = format('schema "%s" is already shard %s', schema, taken.shard);
	END IF;
	RAISE EXCEPTION USING ERRCODE = 'duplicate_object',
		MESSAGE = format('shard %s is already registered', shard),
		DETAIL = format('It is schema "%s"%s.', taken.schema,
						', with epoch ' || taken.epoch),
		HINT = CASE WHEN to_regnamespace(quote_ident(taken.schema)) IS NULL
					 AND taken.home IS NULL
			THEN format('That schema is gone. To give the number back, type: SELECT snowid.drop_shard(%s);', shard)
			ELSE 'SELECT * FROM snowid.shards; shows the numbers taken.' END;
END
$$;

COMMENT ON FUNCTION snowid.register_shard(int, name, name, timestamptz) IS
'claims a number and a schema''s name for a shard; create_shard and adopt_shard call it';

/*
 * next_id_of_shard: next_id() under a name that no shard has.
 *
 * PostgreSQL looks a function up among all of its name, in whatever schema,
 * and builds the list anew after each CREATE FUNCTION.  Were next_id() of each
 * new shard to name next_id(), thousands of shards would be slow to make.
 * Parsed bodies (from 14 on) are inlined without looking up anything.
 *
 * Qualified, since this runs as a superuser in a schema that can be there
 * already: a function planted in it, of the very types of a call, would win.
 */
DO $do$
DECLARE
	parsed boolean := pg_catalog.current_setting('server_version_num')::int
					  OPERATOR(pg_catalog.>=) 140000;
	call text;
BEGIN
	FOREACH call IN ARRAY ARRAY['(shard int, seq regclass)',
								'(shard int, seq regclass, epoch timestamptz)']
	LOOP
		EXECUTE pg_catalog.format(
			'CREATE FUNCTION snowid.next_id_of_shard%s RETURNS bigint '
			'LANGUAGE sql VOLATILE PARALLEL UNSAFE %s',
			call,
			pg_catalog.format(CASE WHEN parsed THEN 'RETURN snowid.next_id($1, $2%s)'
								   ELSE 'AS ''SELECT snowid.next_id($1, $2%s)''' END,
							  CASE WHEN call OPERATOR(pg_catalog.~~) '%epoch%' THEN ', $3' END));
	END LOOP;
END
$do$;

COMMENT ON FUNCTION snowid.next_id_of_shard(int, regclass) IS
'what next_id() of a shard calls: the planner inlines it to next_id(shard, seq)';

COMMENT ON FUNCTION snowid.next_id_of_shard(int, regclass, timestamptz) IS
'what next_id() of a shard with an own epoch calls';

/*
 * next_id_call: the text of a call that makes a shard's ids.
 *
 * Qualified and quoted, and the same under every DateStyle and TimeZone.
 */
CREATE FUNCTION snowid.next_id_call(function text, shard int, schema name,
	sequence name, epoch timestamptz)
RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
SELECT format('snowid.%I(%s, %L::pg_catalog.regclass%s)', $1, $2,
			  format('%I.%I', $3, $4),
			  ', ' || quote_literal(to_char($5 AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US"+00"'))
				   || '::pg_catalog.timestamptz')
$$;

COMMENT ON FUNCTION snowid.next_id_call(text, int, name, name, timestamptz) IS
'text of a call that makes a shard''s ids';

/*
 * define_next_id: creates or replaces next_id() of a shard.
 *
 * One SELECT, neither STRICT nor with a SET clause: the planner inlines it
 * only so.  From 14 on the body is stored parsed: it then follows a renamed
 * schema, and DROP EXTENSION says what depends on it.  On 13 it is made to go
 * with the extension, so that a DEFAULT that calls it stands in the way.
 */
CREATE FUNCTION snowid.define_next_id(schema name, arguments text, call text,
	security_definer boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	parsed CONSTANT boolean := current_setting('server_version_num')::int >= 140000;
BEGIN
	EXECUTE format('CREATE OR REPLACE FUNCTION %I.next_id(%s) RETURNS bigint '
				   'LANGUAGE sql VOLATILE PARALLEL UNSAFE%s %s',
				   schema, arguments,
				   CASE WHEN security_definer THEN ' SECURITY DEFINER' END,
				   CASE WHEN parsed THEN 'RETURN ' || call
						ELSE 'AS ' || quote_literal('SELECT ' || call) END);
	IF NOT parsed THEN
		EXECUTE format('ALTER FUNCTION %I.next_id() DEPENDS ON EXTENSION snowid', schema);
	END IF;
END
$$;

COMMENT ON FUNCTION snowid.define_next_id(name, text, text, boolean) IS
'creates or replaces next_id() of a shard';

/*
 * create_shard: a schema, its sequence, its next_id() and its registry row.
 *
 * Returns the schema's name.  All belongs to the caller, who needs CREATE on
 * the database and INSERT on the registry.
 *
 * Errors: those of register_shard, 42P06 schema exists.
 */
CREATE FUNCTION snowid.create_shard(shard int, schema name DEFAULT NULL,
	epoch timestamptz DEFAULT NULL)
RETURNS name
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	schema := coalesce(schema, ('insta' || shard)::name);
	PERFORM snowid.register_shard(shard, schema, 'id_seq'::name, epoch);

	IF to_regnamespace(quote_ident(schema)) IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'duplicate_schema',
			MESSAGE = format('schema "%s" already exists', schema),
			DETAIL = 'It is not registered as a shard.',
			HINT = format('If it runs the PL/pgSQL snippet, type: SELECT snowid.adopt_shard(%s, %L);', shard, schema);
	END IF;

	EXECUTE format('CREATE SCHEMA %I', schema);
	EXECUTE format('CREATE SEQUENCE %I.id_seq', schema);
	PERFORM snowid.define_next_id(schema, '',
		snowid.next_id_call('next_id_of_shard', shard, schema, 'id_seq', epoch), false);
	RETURN schema;
END
$$;

COMMENT ON FUNCTION snowid.create_shard(int, name, timestamptz) IS
'creates a logical shard: a schema with a sequence and its own next_id()';

/*
 * run_in_shard: runs a script with the shard's schema first in the search
 * path, before the one given.
 *
 * An error is raised again with the shard's name before its message.  A
 * cancel too, so that one sees where it was.
 */
CREATE FUNCTION snowid.run_in_shard(shard int, schema name, script text,
	path text, hint text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	e_state text;
	e_message text;
	e_detail text;
	e_hint text;
	e_column text;
	e_constraint text;
	e_type text;
	e_table text;
	e_schema text;
BEGIN
	PERFORM set_config('search_path',
					   concat_ws(', ', quote_ident(schema), nullif(path, '')), true);
	-- A search path passes over a schema that one may not use, or that has just
	-- gone, and the script would change what is in the next one.
	IF (pg_catalog.current_schema() OPERATOR(pg_catalog.=) schema) IS NOT TRUE THEN
		PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
		IF to_regnamespace(quote_ident(schema)) IS NULL THEN
			RAISE EXCEPTION USING ERRCODE = 'invalid_schema_name',
				MESSAGE = 'the schema does not exist';
		END IF;
		RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
			MESSAGE = 'permission denied for the schema',
			HINT = format('Type: GRANT USAGE ON SCHEMA %I TO %I;', schema, current_user);
	END IF;
	EXECUTE script;
	-- What it has deferred to the end fails here, where the shard is known.
	SET CONSTRAINTS ALL IMMEDIATE;
	SET CONSTRAINTS ALL DEFERRED;
EXCEPTION WHEN query_canceled OR assert_failure OR OTHERS THEN
	GET STACKED DIAGNOSTICS
		e_state = RETURNED_SQLSTATE, e_message = MESSAGE_TEXT,
		e_detail = PG_EXCEPTION_DETAIL, e_hint = PG_EXCEPTION_HINT,
		e_column = COLUMN_NAME, e_constraint = CONSTRAINT_NAME,
		e_type = PG_DATATYPE_NAME, e_table = TABLE_NAME, e_schema = SCHEMA_NAME;
	RAISE EXCEPTION USING ERRCODE = e_state,
		MESSAGE = format('shard %s, schema "%s": %s', shard, schema, e_message),
		DETAIL = concat_ws(' ', nullif(e_detail, ''), 'Nothing was changed in this shard.'),
		HINT = concat_ws(' ', nullif(e_hint, ''), hint),
		COLUMN = e_column, CONSTRAINT = e_constraint, DATATYPE = e_type,
		TABLE = e_table, SCHEMA = e_schema;
END
$$;

COMMENT ON FUNCTION snowid.run_in_shard(int, name, text, text, text) IS
'runs a script in a shard''s schema, and names the shard in its errors';

CREATE FUNCTION snowid.report_progress(done int, total int, made int,
	started timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	-- Not 0, which a coarse clock can show.
	seconds numeric := greatest(extract(epoch FROM clock_timestamp() - started), 0.001);
	rate numeric := made / seconds;
BEGIN
	IF done = total THEN
		RAISE NOTICE '% shards done in % s, % a second', done,
			round(seconds, 1), round(rate);
	ELSE
		RAISE NOTICE '% of % shards, % a second, % s left', done, total,
			round(rate), coalesce(round((total - done) / nullif(rate, 0))::text, '?');
	END IF;
END
$$;

COMMENT ON FUNCTION snowid.report_progress(int, int, int, timestamptz) IS
'tells how far create_shards or for_each_shard has got';

-- A session keeps what it has looked up, so one that visits thousands of
-- shards forgets it now and then: its memory stays what it was.
CREATE FUNCTION snowid.forget_catalogs()
RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'snowid_forget_catalogs';

COMMENT ON FUNCTION snowid.forget_catalogs() IS
'empties the session''s caches of the catalogs; create_shards and for_each_shard call it';

/*
 * create_shards: the shards first to last, each with what the script makes.
 *
 * A shard is there whole or not at all.  Shards that are there already are
 * passed over: call it again after an error or a cancel.
 *
 * A transaction makes one shard, and one more for each 256 that there are.
 * For the script's next_id() is looked up among those of all shards, in a
 * list that is built anew once functions have been created: so a transaction
 * first creates its functions, and then runs the script in each shard.
 *
 * A procedure that commits may have no SET clause, so the search path is
 * fixed anew in each transaction; what runs before is qualified.
 *
 * Errors: those of create_shard, 2D000 within a transaction block, and
 * whatever the script raises, with the shard named.
 */
CREATE PROCEDURE snowid.create_shards(first int, last int,
	prefix text DEFAULT 'insta', ddl text DEFAULT NULL,
	epoch timestamptz DEFAULT NULL)
LANGUAGE plpgsql
AS $$
DECLARE
	started CONSTANT pg_catalog.timestamptz := pg_catalog.clock_timestamp();
	path CONSTANT pg_catalog.text := pg_catalog.current_setting('search_path');
	low int := first;		-- the shards of one transaction
	high int;
	fresh int[];			-- those of them that it has created
	k int;
	made int := 0;
BEGIN
	-- Within a transaction block this fails, before anything is done.
	COMMIT;

	PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
	IF first IS NULL OR last IS NULL OR prefix IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed',
			MESSAGE = 'create_shards needs a first and a last number, and a prefix';
	END IF;
	IF first < 0 OR last > 8191 OR first > last THEN
		RAISE EXCEPTION USING ERRCODE = 'numeric_value_out_of_range',
			MESSAGE = format('shard numbers %s to %s are out of range', first, last),
			DETAIL = 'Shard numbers are between 0 and 8191, the first not after the last.';
	END IF;
	IF octet_length(prefix || last) > 63 THEN
		RAISE EXCEPTION USING ERRCODE = 'name_too_long',
			MESSAGE = format('schema name "%s" is too long', prefix || last),
			DETAIL = 'Names have 63 bytes at most.';
	END IF;

	LOOP
		PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
		high := least(last, low + (SELECT count(*) FROM snowid.shard_registry) / 256);

		-- An error in any but the first shard ends the transaction before that
		-- shard; the next one meets it first, and raises it.
		fresh := '{}';
		FOR n IN low .. high LOOP
			-- Anything but the same shard is create_shard's to refuse.
			CONTINUE WHEN EXISTS (
				SELECT FROM snowid.shard_registry r
				WHERE r.shard = n AND r.schema = prefix || n
				  AND r.epoch IS NOT DISTINCT FROM create_shards.epoch
				  AND (r.home IS NOT NULL OR
					   to_regnamespace(quote_ident(r.schema)) IS NOT NULL));
			BEGIN
				PERFORM snowid.create_shard(n, (prefix || n)::name, epoch);
				fresh := fresh || n;
			EXCEPTION WHEN OTHERS THEN
				IF n = low THEN
					RAISE;
				END IF;
				high := n - 1;
				EXIT;
			END;
		END LOOP;

		IF ddl IS NOT NULL THEN
			FOR i IN 1 .. cardinality(fresh) LOOP
				BEGIN
					PERFORM snowid.run_in_shard(fresh[i], (prefix || fresh[i])::name, ddl, path,
						'The shards before it are there. To go on, make the same call again.');
					-- A SET in the script outlasts the function that ran it.
					PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
				EXCEPTION WHEN assert_failure OR OTHERS THEN
					IF fresh[i] = low THEN
						RAISE;
					END IF;
					FOREACH k IN ARRAY fresh[i:] LOOP
						PERFORM snowid.drop_shard(k);
					END LOOP;
					high := fresh[i] - 1;
					fresh := fresh[:i - 1];
					EXIT;
				END;
			END LOOP;
		END IF;

		made := made + cardinality(fresh);
		IF high = last OR (high - first + 1) / 100 > (low - first) / 100 THEN
			PERFORM snowid.report_progress(high - first + 1, last - first + 1, made, started);
			PERFORM snowid.forget_catalogs();
		END IF;
		low := high + 1;
		COMMIT;
		EXIT WHEN low OPERATOR(pg_catalog.>) last;
	END LOOP;
END
$$;

COMMENT ON PROCEDURE snowid.create_shards(int, int, text, text, timestamptz) IS
'creates a range of logical shards, each in a transaction of its own, and runs a script in each';

/*
 * for_each_shard: runs a script in every shard that lives here, in order,
 * each in a transaction of its own.
 *
 * Errors: 2D000 within a transaction block, and whatever the script raises,
 * with the shard named and the call that goes on from it.
 */
CREATE PROCEDURE snowid.for_each_shard(script text, from_shard int DEFAULT 0)
LANGUAGE plpgsql
AS $$
DECLARE
	started CONSTANT pg_catalog.timestamptz := pg_catalog.clock_timestamp();
	path CONSTANT pg_catalog.text := pg_catalog.current_setting('search_path');
	total int;
	done int := 0;
	target snowid.shard_registry;
BEGIN
	COMMIT;

	PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
	IF script IS NULL OR from_shard IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed',
			MESSAGE = 'for_each_shard needs a script and a shard to start from';
	END IF;
	SELECT count(*) INTO total FROM snowid.shard_registry r
	WHERE r.shard >= from_shard AND snowid.lives(r) IN ('here', 'missing');

	-- One by one, so that a shard made or dropped meanwhile is seen.
	target.shard := from_shard - 1;
	LOOP
		PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
		SELECT * INTO target FROM snowid.shard_registry r
		WHERE r.shard > target.shard AND snowid.lives(r) IN ('here', 'missing')
		ORDER BY r.shard LIMIT 1;
		EXIT WHEN NOT FOUND;

		IF to_regnamespace(quote_ident(target.schema)) IS NULL THEN
			RAISE WARNING 'shard % is missing: schema "%" does not exist',
				target.shard, target.schema;
		ELSE
			PERFORM snowid.run_in_shard(target.shard, target.schema, script, path,
				format('The shards before it are done. To go on from it, type: CALL snowid.for_each_shard(..., %s);', target.shard));
			PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
		END IF;

		done := done + 1;
		IF done >= total OR done % 100 = 0 THEN
			PERFORM snowid.report_progress(done, greatest(total, done), done, started);
			PERFORM snowid.forget_catalogs();
		END IF;
		COMMIT;
	END LOOP;
	COMMIT;
END
$$;

COMMENT ON PROCEDURE snowid.for_each_shard(text, int) IS
'runs a script in every logical shard, each in a transaction of its own';

/*
 * drop_shard: drops a shard's schema and gives its number back.
 *
 * Without cascade only a shard whose schema holds nothing but what
 * create_shard made.  If the schema is gone already, just the number.
 *
 * Errors: 42704 unknown shard, 2BP01 not empty, 55000 lives elsewhere.
 */
CREATE FUNCTION snowid.drop_shard(shard int, cascade boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	r snowid.shard_registry;
	ahead interval;
	e_detail text;
BEGIN
	DELETE FROM snowid.shard_registry d
	WHERE d.shard = drop_shard.shard RETURNING * INTO r;
	IF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = 'undefined_object',
			MESSAGE = format('shard %s does not exist', coalesce(shard::text, 'NULL')),
			HINT = 'SELECT * FROM snowid.shards; shows those that do.';
	END IF;
	IF EXISTS (SELECT FROM snowid.moves m WHERE m.shard = drop_shard.shard) THEN
		RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
			MESSAGE = format('shard %s is being moved, or closed for writing', shard),
			HINT = 'SELECT * FROM snowid.moves; shows how far it is. Type snowid-move finish or abort, or SELECT snowid.unfence_shard().';
	END IF;
	IF snowid.lives(r) NOT IN ('here', 'missing') THEN
		RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
			MESSAGE = format('shard %s has moved to %s', shard, r.home),
			DETAIL = 'Its number must stay taken here.';
	END IF;
	IF to_regnamespace(quote_ident(r.schema)) IS NULL THEN
		RETURN;
	END IF;

	-- A shard of the same number starts from the clock, so the clock must have
	-- passed the last id, which may also be taken until the lock is ours.
	SELECT q.ahead INTO ahead
	FROM snowid.sequence_state(to_regclass(format('%I.%I', r.schema, r.sequence)),
							   coalesce(r.epoch, snowid.id_timestamp(0::bigint))) q;
	BEGIN
		IF cascade THEN
			EXECUTE format('DROP SCHEMA %I CASCADE', r.schema);
		ELSE
			EXECUTE format('DROP FUNCTION IF EXISTS %I.next_id()', r.schema);
			EXECUTE format('DROP SEQUENCE IF EXISTS %I.%I', r.schema, r.sequence);
			EXECUTE format('DROP SCHEMA %I', r.schema);
		END IF;
	EXCEPTION WHEN dependent_objects_still_exist THEN
		GET STACKED DIAGNOSTICS e_detail = PG_EXCEPTION_DETAIL;
		RAISE EXCEPTION USING ERRCODE = 'dependent_objects_still_exist',
			MESSAGE = format('shard %s, schema "%s", is not empty', shard, r.schema),
			DETAIL = e_detail,
			HINT = format('To drop it with all that is in it, type: SELECT snowid.drop_shard(%s, true);', shard);
	END;
	IF ahead > interval '1 second' THEN
		RAISE WARNING USING
			MESSAGE = format('the ids of shard %s are ahead of the clock', shard),
			DETAIL = 'Until the clock has passed them, a new shard of that number would make some of them again.',
			HINT = 'Move its sequence on with snowid.advance(), or wait before you create it.';
	ELSIF ahead > interval '-11 ms' THEN
		PERFORM pg_sleep(greatest(extract(epoch FROM ahead), 0) + 0.011);
	END IF;
END
$$;

COMMENT ON FUNCTION snowid.drop_shard(int, boolean) IS
'drops a logical shard, only with cascade if it holds tables';

/*
 * free_name: a name in a schema that no relation has, made as PostgreSQL
 * makes those of sequences: base and suffix within 63 bytes, then numbered.
 */
CREATE FUNCTION snowid.free_name(schema name, base text, suffix text)
RETURNS name
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	ending text := suffix;
	candidate text;
BEGIN
	FOR n IN 1 .. 1000 LOOP
		-- The cast to name clips between characters; padding makes it clip
		-- where the ending still fits.
		candidate := substr((repeat('-', octet_length(ending)) || base)::name::text,
							octet_length(ending) + 1) || ending;
		IF to_regclass(format('%I.%I', schema, candidate)) IS NULL THEN
			RETURN candidate;
		END IF;
		ending := suffix || n;
	END LOOP;
	RAISE EXCEPTION USING ERRCODE = 'duplicate_table',
		MESSAGE = format('relation "%s" already exists', candidate);
END
$$;

COMMENT ON FUNCTION snowid.free_name(name, text, text) IS
'name for a sequence in a schema, of at most 63 bytes, that no relation has';

/*
 * set_default: gives a column of a table in a shard the shard's ids.
 *
 * Sets the DEFAULT; an identity or serial column is turned over, its own
 * sequence dropped if nothing else uses it.  own_sequence: the table gets a
 * sequence to itself (a serial's is kept for it, unless something else uses
 * it).  Ids that are in the table are stepped over.
 *
 * guard: adds a CHECK that ids name the shard.  The lock to add it is short;
 * validating a large table is left to the next call, since only then does the
 * lock not last as long as the scan.
 *
 * Errors: 42809 not a table, 42704 in no shard, 42703 no such column,
 * 42804 not bigint, 428C9 generated, 55000 an id too far ahead of the clock,
 * 23514 an id of another shard, with guard.
 */
CREATE FUNCTION snowid.set_default("table" regclass, "column" name DEFAULT 'id',
	own_sequence boolean DEFAULT false, guard boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	small_table CONSTANT bigint := 8 * 1024 * 1024;
	t record;
	s snowid.shard_registry;
	a record;
	qualified text;		-- the table, as one types it
	guard_name name;
	guard_valid boolean;	-- of the guard that is there
	sequence name;
	epoch timestamptz;
	newest bigint;
	stray bigint;
	owned regclass[];	-- the column's own sequences
	old regclass;
	is_shared boolean;	-- something else uses it
	last_id_at timestamptz;
	grantee text;
BEGIN
	IF "table" IS NULL OR "column" IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed',
			MESSAGE = 'set_default needs a table and a column';
	END IF;
	SELECT c.relname, c.relkind, c.relowner, c.relacl, c.relnamespace, n.nspname INTO t
	FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE c.oid = "table";
	IF t.relkind IS NULL OR t.relkind NOT IN ('r', 'p') THEN
		RAISE EXCEPTION USING ERRCODE = 'wrong_object_type',
			MESSAGE = format('"%s" is not a table', coalesce(t.relname, "table"::text));
	END IF;
	qualified := format('%I.%I', t.nspname, t.relname);

	SELECT * INTO s FROM snowid.shard_registry r WHERE r.schema = t.nspname;
	IF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = 'undefined_object',
			MESSAGE = format('table "%s" is not in a shard', t.relname),
			DETAIL = format('Its schema "%s" is not registered as one.', t.nspname),
			HINT = format('Move it into one; type: ALTER TABLE %s SET SCHEMA shard_schema;', qualified);
	END IF;
	epoch := coalesce(s.epoch, snowid.id_timestamp(0::bigint));

	SELECT att.attnum, att.atttypid, att.attidentity, att.attgenerated INTO a
	FROM pg_attribute att
	WHERE att.attrelid = "table" AND att.attname = "column"
	  AND att.attnum > 0 AND NOT att.attisdropped;
	IF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = 'undefined_column',
			MESSAGE = format('column "%s" of table "%s" does not exist', "column", t.relname);
	END IF;
	IF a.attgenerated <> '' THEN
		RAISE EXCEPTION USING ERRCODE = 'generated_always',
			MESSAGE = format('column "%s" of table "%s" is generated', "column", t.relname);
	END IF;
	IF a.atttypid <> 'bigint'::regtype THEN
		RAISE EXCEPTION USING ERRCODE = 'datatype_mismatch',
			MESSAGE = format('column "%s" of table "%s" is %s, not bigint',
							 "column", t.relname, format_type(a.atttypid, NULL)),
			HINT = format('Type: ALTER TABLE %s ALTER COLUMN %I TYPE bigint;', qualified, "column");
	END IF;

	-- The second call for a guard only validates: it must not take the lock
	-- that changing the DEFAULT takes.
	guard_name := substr((repeat('-', 12) || t.relname || '_' || "column")::name::text, 13)
				  || '_shard_check';
	IF guard THEN
		-- By its text too: validating runs it, so it must not be somebody's.
		SELECT c.convalidated INTO guard_valid FROM pg_constraint c
		WHERE c.conrelid = "table" AND c.conname = guard_name
		  AND pg_get_constraintdef(c.oid) ^@
			  format('CHECK ((snowid.id_shard(%I) = %s))', "column", s.shard);
		IF NOT guard_valid THEN
			EXECUTE format('ALTER TABLE %s VALIDATE CONSTRAINT %I', qualified, guard_name);
			RETURN;
		END IF;

		-- With ids of elsewhere in it, rows there could not even be updated.
		IF guard_valid IS NULL THEN
			EXECUTE format('SELECT %1$I FROM %2$s WHERE snowid.id_shard(%1$I) <> %3$s LIMIT 1',
						   "column", qualified, s.shard) INTO stray;
		END IF;
		IF stray IS NOT NULL THEN
			RAISE EXCEPTION USING ERRCODE = 'check_violation',
				MESSAGE = format('id %s in table "%s" does not name shard %s', stray, t.relname, s.shard),
				DETAIL = format('Read as an id, it names shard %s.', snowid.id_shard(stray)),
				HINT = 'For a table with ids of elsewhere, leave out guard.',
				TABLE = t.relname, SCHEMA = t.nspname, COLUMN = "column";
		END IF;
	END IF;

	-- Read before the lock below, for it may take a while without an index.
	EXECUTE format('SELECT max(%I) FROM %s', "column", qualified) INTO newest;
	IF snowid.id_timestamp(newest, epoch) > clock_timestamp() + interval '1 day'
	   AND newest > 0 THEN
		RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
			MESSAGE = format('id %s in table "%s" is more than one day ahead of the clock', newest, t.relname),
			DETAIL = format('Read as an id, it is of %s.', snowid.id_timestamp(newest, epoch)),
			HINT = 'New ids must be larger than all that are there, and follow the clock.',
			TABLE = t.relname, SCHEMA = t.nspname, COLUMN = "column";
	END IF;

	owned := ARRAY(
		SELECT d.objid FROM pg_depend d JOIN pg_class c ON c.oid = d.objid AND c.relkind = 'S'
		WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
		  AND d.refobjid = "table" AND d.refobjsubid = a.attnum AND d.deptype = 'a');
	IF a.attidentity <> '' THEN
		EXECUTE format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', qualified, "column");
	END IF;
	EXECUTE format('ALTER TABLE %s ALTER COLUMN %I DROP DEFAULT', qualified, "column");

	-- From here on the table is locked.  What its sequences have issued may
	-- have been committed since, or deleted; and it can be far ahead of a clock
	-- that was set back.  More than a day ahead is one that counted 1, 2, 3.
	FOR old, is_shared IN
		SELECT c.oid,
			   (c.relnamespace = t.relnamespace AND c.relname = s.sequence) OR
			   EXISTS (SELECT FROM pg_depend d
					   WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid
						 AND d.deptype <> 'i')
		FROM pg_class c
		WHERE c.oid = ANY (owned) OR
			  (c.relkind = 'S' AND c.relnamespace = t.relnamespace AND c.relname = s.sequence)
	LOOP
		IF has_sequence_privilege(old, 'SELECT, USAGE, UPDATE') THEN
			SELECT q.last_id_at INTO last_id_at FROM snowid.sequence_state(old, epoch) q;
			IF last_id_at < clock_timestamp() + interval '1 day' THEN
				newest := greatest(newest, snowid.max_id(last_id_at, epoch));
			END IF;
		END IF;
		IF old = ANY (owned) AND is_shared THEN
			EXECUTE format('ALTER SEQUENCE %s OWNED BY NONE', old);
			owned := array_remove(owned, old);
		END IF;
	END LOOP;

	IF own_sequence THEN
		SELECT c.relname INTO sequence FROM pg_class c
		WHERE c.oid = ANY (owned) AND c.relnamespace = t.relnamespace
		LIMIT 1;
		IF FOUND THEN
			-- INCREMENT stays: there are clients that allocate in blocks of it.
			EXECUTE format('ALTER SEQUENCE %I.%I AS bigint INCREMENT BY %s NO MAXVALUE CACHE 1 NO CYCLE',
						   t.nspname, sequence,
						   (SELECT CASE WHEN q.seqincrement BETWEEN 1 AND 1024 THEN q.seqincrement ELSE 1 END
							FROM pg_sequence q
							WHERE q.seqrelid = format('%I.%I', t.nspname, sequence)::regclass));
		ELSE
			sequence := snowid.free_name(t.nspname, t.relname || '_' || "column", '_seq');
			EXECUTE format('CREATE SEQUENCE %I.%I', t.nspname, sequence);
			EXECUTE format('ALTER SEQUENCE %I.%I OWNER TO %s', t.nspname, sequence, t.relowner::regrole);
			EXECUTE format('ALTER SEQUENCE %I.%I OWNED BY %s.%I', t.nspname, sequence, qualified, "column");
		END IF;
		EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s', qualified, "column",
					   snowid.next_id_call('next_id', s.shard, s.schema, sequence, s.epoch));
	ELSE
		sequence := s.sequence;
		EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %I.next_id()',
					   qualified, "column", s.schema);
		FOREACH old IN ARRAY owned LOOP
			EXECUTE format('DROP SEQUENCE %s', old);
		END LOOP;
	END IF;

	-- Rows that came since from a sequence that is neither have ids of at most
	-- 10 ms ahead of the clock.
	IF newest IS NOT NULL THEN
		PERFORM snowid.advance(format('%I.%I', t.nspname, sequence)::regclass,
			greatest(newest, snowid.make_id(clock_timestamp() + interval '11 milliseconds', 0, 0, epoch)),
			epoch);
	END IF;

	IF guard THEN
		IF guard_valid IS NULL THEN
			EXECUTE format('ALTER TABLE %s ADD CONSTRAINT %I '
						   'CHECK (snowid.id_shard(%I) OPERATOR(pg_catalog.=) %s) NOT VALID',
						   qualified, guard_name, "column", s.shard);
			IF coalesce((SELECT sum(pg_relation_size(p.relid)) FROM pg_partition_tree("table") p),
						pg_relation_size("table")) <= small_table
			THEN
				EXECUTE format('ALTER TABLE %s VALIDATE CONSTRAINT %I', qualified, guard_name);
			ELSE
				RAISE NOTICE USING
					MESSAGE = format('constraint "%s" holds for new rows, and has yet to be validated', guard_name),
					HINT = format('Make the same call again, or type: ALTER TABLE %s VALIDATE CONSTRAINT %I;', qualified, guard_name);
			END IF;
		END IF;
	END IF;

	-- Identity columns need no grant, and serial's was for another sequence.
	FOR grantee IN
		SELECT DISTINCT CASE WHEN g.oid = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.oid)) END
		FROM (SELECT t.relowner
			  UNION ALL
			  SELECT x.grantee FROM aclexplode(t.relacl) x WHERE x.privilege_type = 'INSERT') g (oid)
		WHERE NOT has_sequence_privilege(g.oid, format('%I.%I', t.nspname, sequence)::regclass, 'USAGE, UPDATE')
	LOOP
		RAISE WARNING USING
			MESSAGE = format('%s may insert into %s, but not use its sequence', grantee, qualified),
			HINT = format('Type: GRANT USAGE ON SEQUENCE %I.%I TO %s;', t.nspname, sequence, grantee);
	END LOOP;
END
$$;

COMMENT ON FUNCTION snowid.set_default(regclass, name, boolean, boolean) IS
'gives a column of a table in a shard the shard''s ids as its DEFAULT';

/*
 * adopt_shard: takes over a schema whose next_id() is the PL/pgSQL snippet.
 *
 * Replaces that function in place, so that no table changes, and goes on
 * above the ids that are there.  The sequence and the epoch are read from the
 * function's text unless given.  Returns the newest id found, NULL if none.
 *
 * Refuses unless an id that the snippet has just made, and the newest 100 of
 * each column that it is the DEFAULT of, are of that shard and epoch.
 *
 * Errors: those of register_shard, 42883 no function next_id(), 42P13 one
 * whose sequence or epoch can't be read, 42704 a sequence elsewhere, 55006
 * one that a DEFAULT counts with, 22023 an id that disagrees.
 */
CREATE FUNCTION snowid.adopt_shard(shard int, schema name,
	sequence regclass DEFAULT NULL, epoch timestamptz DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	default_epoch CONSTANT timestamptz := snowid.id_timestamp(0::bigint);
	f record;
	s record;
	c record;
	found_texts text[];
	used regclass;			-- the sequence that the snippet uses
	ids bigint[];
	id bigint;
	newest bigint;
	user_table text;
	origin text;
BEGIN
	-- First of all, so that numbers and rights are checked before the rest.
	PERFORM snowid.register_shard(shard, schema, 'id_seq'::name, NULL::timestamptz);

	SELECT p.oid, p.prosrc, p.prosecdef,
		   pg_get_function_arguments(p.oid) AS arguments INTO f
	FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
	WHERE n.nspname = schema AND p.proname = 'next_id' AND p.pronargs = 0
	  AND p.prorettype = 'bigint'::regtype AND p.prokind = 'f' AND NOT p.proretset;
	IF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = 'undefined_function',
			MESSAGE = format('schema "%s" has no function next_id() that returns a bigint', schema),
			HINT = CASE WHEN to_regnamespace(quote_ident(schema)) IS NULL
				THEN format('For a new shard, type: SELECT snowid.create_shard(%s, %L);', shard, schema)
				ELSE format('To make it a shard as it is, type: CREATE SEQUENCE IF NOT EXISTS %1$I.id_seq; '
							'SELECT snowid.register_shard(%2$s, %1$L, ''id_seq'', %3$L), '
							'snowid.define_next_id(%1$L, '''', snowid.next_id_call(''next_id_of_shard'', %2$s, %1$L, ''id_seq'', %3$L), false); '
							'and then snowid.set_default() for each table.',
							schema, shard, epoch) END;
	END IF;

	found_texts := ARRAY(SELECT DISTINCT replace(m[1], '''''', '''')
						 FROM regexp_matches(f.prosrc, 'nextval\s*\(\s*''((?:[^'']|'''')+)''', 'gi') m);
	IF cardinality(found_texts) = 1 THEN
		-- What it names without a schema is the shard's own.
		PERFORM set_config('search_path', format('%I, public, pg_temp', schema), true);
		used := to_regclass(found_texts[1]);
		PERFORM set_config('search_path', 'pg_catalog, pg_temp', true);
	END IF;
	sequence := coalesce(sequence, used);

	IF epoch IS NULL THEN
		found_texts := ARRAY(SELECT DISTINCT m[1]
							 FROM regexp_matches(f.prosrc, '\y(\d{12,13})\y', 'g') m);
		IF cardinality(found_texts) = 1 THEN
			epoch := 'epoch'::timestamptz + found_texts[1]::bigint * interval '1 millisecond';
		END IF;
	END IF;
	IF sequence IS NULL OR epoch IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'invalid_function_definition',
			MESSAGE = format('cannot read the %s from the text of function %I.next_id()',
							 CASE WHEN sequence IS NULL THEN 'sequence' ELSE 'epoch' END, schema),
			HINT = format('Name both; type: SELECT snowid.adopt_shard(%s, %L, sequence, epoch);', shard, schema);
	END IF;

	SELECT q.relname, n.nspname, q.relkind INTO s
	FROM pg_class q JOIN pg_namespace n ON n.oid = q.relnamespace WHERE q.oid = sequence;
	IF s.relkind IS DISTINCT FROM 'S' OR s.nspname <> schema THEN
		RAISE EXCEPTION USING ERRCODE = 'undefined_object',
			MESSAGE = format('"%s" is not a sequence in schema "%s"', s.relname, schema),
			DETAIL = 'A shard''s sequence is in its schema, since both move together.',
			HINT = format('Type: CREATE SEQUENCE %I.id_seq; grant its use to the roles that insert; and give it as the third argument.', schema);
	END IF;

	SELECT format('%I.%I', n.nspname, t.relname) INTO user_table
	FROM pg_depend d
	JOIN pg_attrdef ad ON d.classid = 'pg_attrdef'::regclass AND ad.oid = d.objid
	JOIN pg_class t ON t.oid = ad.adrelid
	JOIN pg_namespace n ON n.oid = t.relnamespace
	WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = sequence
	LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION USING ERRCODE = 'object_in_use',
			MESSAGE = format('sequence "%s" also numbers rows of table %s', s.relname, user_table),
			DETAIL = 'A shard''s sequence counts time, so those numbers would leap.',
			HINT = format('Type: CREATE SEQUENCE %I.id_seq; grant its use to the roles that insert; and give it as the third argument.', schema);
	END IF;
	IF NOT isfinite(epoch) THEN
		RAISE EXCEPTION USING ERRCODE = 'datetime_field_overflow',
			MESSAGE = format('ids with epoch %s cannot be made now', epoch);
	END IF;
	UPDATE snowid.shard_registry r
	SET sequence = s.relname, epoch = nullif(adopt_shard.epoch, default_epoch)
	WHERE r.shard = adopt_shard.shard;

	-- An id fresh from the snippet tells of epoch, layout and shard, also
	-- where the tables are empty.
	PERFORM set_config('search_path', format('%I, public, pg_temp', schema), true);
	EXECUTE format('SELECT %I.next_id()', schema) INTO id;
	PERFORM set_config('search_path', 'pg_catalog, pg_temp', true);
	IF snowid.id_shard(id) <> shard
	   OR abs(extract(epoch FROM snowid.id_timestamp(id, epoch) - clock_timestamp())) > 60
	THEN
		origin := format('function %I.next_id() has just made it', schema);
	ELSE
		FOR c IN
			SELECT DISTINCT a.attname, format('%I.%I', n.nspname, t.relname) AS qualified
			FROM pg_depend d
			JOIN pg_attrdef ad ON d.classid = 'pg_attrdef'::regclass AND ad.oid = d.objid
			JOIN pg_attribute a ON a.attrelid = ad.adrelid AND a.attnum = ad.adnum
			JOIN pg_class t ON t.oid = ad.adrelid AND t.relkind IN ('r', 'p')
			JOIN pg_namespace n ON n.oid = t.relnamespace
			WHERE d.refclassid = 'pg_proc'::regclass AND d.refobjid = f.oid
			  AND a.atttypid = 'bigint'::regtype
			ORDER BY 2, 1
		LOOP
			EXECUTE format('SELECT ARRAY(SELECT %1$I FROM %2$s WHERE %1$I IS NOT NULL '
						   'ORDER BY %1$I DESC LIMIT 100)', c.attname, c.qualified) INTO ids;
			newest := greatest(newest, ids[1]);
			FOREACH id IN ARRAY ids LOOP
				IF snowid.id_shard(id) <> shard
				   OR snowid.id_timestamp(id, epoch) > clock_timestamp() + interval '1 day'
				THEN
					origin := format('it is in column %I of table %s', c.attname, c.qualified);
					EXIT;
				END IF;
			END LOOP;
			EXIT WHEN origin IS NOT NULL;
		END LOOP;
	END IF;
	IF origin IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
			MESSAGE = format('id %s does not agree with shard %s and epoch %s', id, shard, epoch),
			DETAIL = format('Read with this epoch, it names shard %s and is of %s; %s.',
							snowid.id_shard(id), snowid.id_timestamp(id, epoch), origin),
			HINT = 'Pass the shard number and the epoch that the snippet has, or correct the rows that it did not make.';
	END IF;

	-- Every call of the snippet holds a lock on its sequence to the end of its
	-- transaction.  So this waits for the ids that are not committed yet, and
	-- keeps later calls out until next_id() is the new one.  A serial's may no
	-- longer go with its table.
	EXECUTE format('ALTER SEQUENCE %s AS bigint INCREMENT BY 1 NO MAXVALUE CACHE 1 NO CYCLE OWNED BY NONE', sequence);
	IF used <> sequence THEN
		EXECUTE format('ALTER SEQUENCE %s CACHE 1', used);
	END IF;

	-- One second ahead: a call of the snippet that waits for us still makes
	-- its id, of the instant after our commit, and must not meet ours.
	PERFORM snowid.advance(sequence,
		greatest(newest, snowid.make_id(clock_timestamp() + interval '1 second', shard, 0, epoch)),
		epoch);
	PERFORM snowid.define_next_id(schema, f.arguments,
		snowid.next_id_call('next_id_of_shard', shard, schema, s.relname,
							nullif(epoch, default_epoch)),
		f.prosecdef);
	RETURN newest;
END
$$;

COMMENT ON FUNCTION snowid.adopt_shard(int, name, regclass, timestamptz) IS
'takes over a schema that runs the PL/pgSQL snippet, as a logical shard';


/* -------- tables by time -------- */

/*
 * create_partition: the partition of a table for the ids of a time range.
 *
 * Returns it, also if it is there already, so that a timer can repeat its
 * call.  It is made beside the table and then attached, since CREATE TABLE ...
 * PARTITION OF locks out all that read or write the table.
 *
 * Without an epoch it takes that of the shard that the table is in, or the
 * default one.  The name tells since, in the session's time zone; but an hour
 * in UTC, as there is one that comes twice in the year.
 *
 * Errors: 22004 a NULL, 42809 not partitioned, 42P17 by another key, or it
 * would overlap, 22023 since not before until, 22008 times that no id has.
 */
CREATE FUNCTION snowid.create_partition(parent regclass, since timestamptz,
	until timestamptz, epoch timestamptz DEFAULT NULL)
RETURNS regclass
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	t record;
	p record;
	low bigint;
	high bigint;
	suffix text;
	partition name;
BEGIN
	IF parent IS NULL OR since IS NULL OR until IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed',
			MESSAGE = 'create_partition needs a table and two times';
	END IF;
	SELECT c.relname, n.nspname, c.relowner, k.partstrat, k.partnatts, a.atttypid, s.spcname
	INTO t
	FROM pg_class c
	JOIN pg_namespace n ON n.oid = c.relnamespace
	LEFT JOIN pg_partitioned_table k ON k.partrelid = c.oid
	LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.partattrs[0]
	LEFT JOIN pg_tablespace s ON s.oid = c.reltablespace
	WHERE c.oid = parent;
	IF t.partstrat IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'wrong_object_type',
			MESSAGE = format('"%s" is not a partitioned table', coalesce(t.relname, parent::text)),
			HINT = 'Only a table made with PARTITION BY RANGE (id) has partitions by time.';
	END IF;
	IF t.partstrat <> 'r' OR t.partnatts <> 1 OR t.atttypid IS DISTINCT FROM 'bigint'::regtype THEN
		RAISE EXCEPTION USING ERRCODE = 'invalid_object_definition',
			MESSAGE = format('table "%s" is not partitioned by range of one bigint column', t.relname),
			DETAIL = format('It is partitioned by %s.', pg_get_partkeydef(parent));
	END IF;

	epoch := coalesce(epoch,
					  (SELECT r.epoch FROM snowid.shard_registry r WHERE r.schema = t.nspname),
					  snowid.id_timestamp(0::bigint));
	IF NOT isfinite(since) OR NOT isfinite(until) THEN
		RAISE EXCEPTION USING ERRCODE = 'datetime_field_overflow',
			MESSAGE = 'times of a partition must be finite';
	END IF;
	IF since >= until THEN
		RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
			MESSAGE = 'a partition must begin before it ends',
			DETAIL = format('It would be from %s until %s.', since, until);
	END IF;
	low := snowid.min_id(since, epoch);
	high := snowid.min_id(until, epoch);
	IF low = high THEN
		RAISE EXCEPTION USING ERRCODE = 'datetime_field_overflow',
			MESSAGE = format('no ids are made from %s until %s', since, until),
			DETAIL = format('With this epoch, ids are of %s until %s, in whole milliseconds.', epoch,
							snowid.id_timestamp(snowid.min_id('infinity'::timestamptz), epoch));
	END IF;

	-- Two that make the same one: the second waits, and finds it.
	EXECUTE format('LOCK TABLE ONLY %I.%I IN SHARE UPDATE EXCLUSIVE MODE', t.nspname, t.relname);
	FOR p IN
		SELECT c.oid, c.relname, nullif(b[1], 'MINVALUE')::bigint AS low, nullif(b[2], 'MAXVALUE')::bigint AS high
		FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid,
			 regexp_match(pg_get_expr(c.relpartbound, c.oid),
						  '^FOR VALUES FROM \(''?([^'')]+)''?\) TO \(''?([^'')]+)''?\)$') b
		WHERE i.inhparent = parent AND b IS NOT NULL
		ORDER BY 3 NULLS FIRST
	LOOP
		IF p.low = low AND p.high = high THEN
			RETURN p.oid;
		END IF;
		IF p.low < high IS NOT FALSE AND p.high > low IS NOT FALSE THEN
			RAISE EXCEPTION USING ERRCODE = 'invalid_object_definition',
				MESSAGE = format('a partition from %s until %s would overlap partition "%s"', since, until, p.relname),
				DETAIL = format('That one is from %s until %s.',
								coalesce(snowid.id_timestamp(p.low, epoch)::text, 'the beginning'),
								coalesce(snowid.id_timestamp(p.high, epoch)::text, 'the end'));
		END IF;
	END LOOP;

	suffix := '_p' ||
		CASE WHEN since = date_trunc('year', since) AND until = since + interval '1 year' THEN to_char(since, 'YYYY')
			 WHEN since = date_trunc('month', since) AND until = since + interval '1 month' THEN to_char(since, 'YYYY_MM')
			 WHEN since = date_trunc('day', since) AND until = date_trunc('day', until) THEN to_char(since, 'YYYY_MM_DD')
			 ELSE to_char(since AT TIME ZONE 'UTC', 'YYYY_MM_DD_HH24MISS')
		END;
	partition := substr((repeat('-', length(suffix)) || t.relname)::name::text, length(suffix) + 1) || suffix;

	EXECUTE format('CREATE TABLE %I.%I (LIKE %I.%I INCLUDING ALL EXCLUDING IDENTITY)%s',
				   t.nspname, partition, t.nspname, t.relname,
				   ' TABLESPACE ' || quote_ident(t.spcname));
	IF pg_get_userbyid(t.relowner) <> current_user THEN
		EXECUTE format('ALTER TABLE %I.%I OWNER TO %s', t.nspname, partition, t.relowner::regrole);
	END IF;
	EXECUTE format('ALTER TABLE %I.%I ATTACH PARTITION %I.%I FOR VALUES FROM (%s) TO (%s)',
				   t.nspname, t.relname, t.nspname, partition, low, high);
	RETURN format('%I.%I', t.nspname, partition)::regclass;
END
$$;

COMMENT ON FUNCTION snowid.create_partition(regclass, timestamptz, timestamptz, timestamptz) IS
'makes the partition of a table for the ids of a time range, unless it is there';

/*
 * newest_rows: the newest rows of a table over all shards of this server, the
 * newest first.
 *
 * The first argument is a NULL of a row type, and says the table's name and
 * the columns.  before: only smaller ids, for the next page.
 *
 * A shard's last id, which its sequence (or the one that the column's DEFAULT
 * names) knows, is the most that its rows can have.  So shards are visited in
 * the order of their last ids, until no other can have one of the n newest; and
 * each is asked only for those that are newer than the n-th so far.
 *
 * STABLE, so that all shards are read in one snapshot.
 *
 * Errors: 22004 a NULL, 42809 not a row type, 42703 no such column, 2201W n
 * is negative, 0A000 shards of different epochs.
 */
CREATE FUNCTION snowid.newest_rows(row_type anyelement, n int,
	before bigint DEFAULT NULL, "column" name DEFAULT 'id')
RETURNS SETOF anyelement
LANGUAGE plpgsql STABLE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	default_epoch CONSTANT timestamptz := snowid.id_timestamp(0::bigint);
	t record;
	s record;
	news bigint[];				-- of one shard
	ids bigint[] := '{}';		-- the newest so far
	tables text[] := '{}';		-- and where they are
	least_id bigint;			-- the n-th of them, once there are n
BEGIN
	IF n IS NULL OR "column" IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed',
			MESSAGE = 'newest_rows needs a number of rows and a column';
	END IF;
	IF n < 0 THEN
		RAISE EXCEPTION USING ERRCODE = 'invalid_row_count_in_limit_clause',
			MESSAGE = 'number of rows must not be negative';
	END IF;
	SELECT c.relname, (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)
					   FROM pg_attribute a
					   WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns
	INTO t
	FROM pg_type y JOIN pg_class c ON c.oid = y.typrelid
	WHERE y.oid = pg_typeof(row_type);
	IF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = 'wrong_object_type',
			MESSAGE = format('type %s is not the row type of a table', pg_typeof(row_type)),
			HINT = 'Name a table of one shard, as in: snowid.newest_rows(NULL::insta0.photos, 50)';
	END IF;

	FOR s IN
		SELECT format('%I.%I', r.schema, t.relname) AS name,
			   -- Where nothing is known there could be any id: one may not ask
			   -- the sequence, or all rows were loaded.
			   CASE WHEN has_sequence_privilege(q.oid, 'SELECT, USAGE, UPDATE')
					THEN (SELECT coalesce(snowid.max_id(state.last_id_at, e.epoch),
										  CASE WHEN c.relkind = 'r' AND pg_relation_size(c.oid) = 0 THEN 0 END)
						  FROM snowid.sequence_state(q.oid, e.epoch) state)
			   END AS last_id,
			   min(e.epoch) OVER () <> max(e.epoch) OVER () AS mixed
		FROM snowid.shard_registry r
		JOIN pg_namespace ns ON ns.nspname = r.schema
		JOIN pg_class c ON c.relnamespace = ns.oid AND c.relname = t.relname AND c.relkind IN ('r', 'p')
		CROSS JOIN LATERAL (SELECT coalesce(r.epoch, default_epoch)) e (epoch)
		LEFT JOIN LATERAL (
			SELECT coalesce(
				-- Nested, since a join is slow until the catalogs are analyzed.
				(SELECT d.refobjid FROM pg_depend d
				 WHERE d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass
				   AND d.refobjsubid = 0
				   AND d.objid = (SELECT ad.oid FROM pg_attrdef ad
								  WHERE ad.adrelid = c.oid
									AND ad.adnum = (SELECT a.attnum FROM pg_attribute a
													WHERE a.attrelid = c.oid AND a.attname = "column"))
				   AND (SELECT k.relkind FROM pg_class k WHERE k.oid = d.refobjid) = 'S' LIMIT 1),
				(SELECT k.oid FROM pg_class k
				 WHERE k.relnamespace = ns.oid AND k.relname = r.sequence AND k.relkind = 'S'))) q (oid) ON true
		WHERE NOT EXISTS (SELECT FROM snowid.moves m
						  WHERE m.shard = r.shard AND m.closed AND r.home IS NOT NULL
							AND m.step NOT IN ('closed', 'open'))
		ORDER BY last_id DESC
	LOOP
		IF s.mixed THEN
			RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
				MESSAGE = format('shards with a table "%s" have different epochs', t.relname),
				DETAIL = 'Their ids do not sort by time together.',
				HINT = 'Sort by snowid.id_timestamp(id, epoch) what you read from each; the view snowid.shards has the epochs.';
		END IF;
		EXIT WHEN n = 0 OR s.last_id <= least_id;
		EXECUTE format('SELECT ARRAY(SELECT %1$I FROM %2$s WHERE %1$I > $1 AND %1$I < $2 ORDER BY %1$I DESC LIMIT $3)',
					   "column", s.name)
		INTO news
		USING coalesce(least_id, -9223372036854775808), coalesce(before, 9223372036854775807), n;
		CONTINUE WHEN news = '{}';

		SELECT array_agg(m.id ORDER BY m.id DESC), array_agg(m.name ORDER BY m.id DESC)
		INTO ids, tables
		FROM (SELECT u.id, u.name
			  FROM (SELECT * FROM unnest(ids, tables)
					UNION ALL
					SELECT f.id, s.name FROM unnest(news) f (id)) u (id, name)
			  ORDER BY u.id DESC LIMIT n) m;
		least_id := ids[n];
	END LOOP;

	-- A column that is not unique has several rows of an id, or too many.
	FOR s IN SELECT u.id, u.name, count(*) AS n FROM unnest(ids, tables) u (id, name) GROUP BY 1, 2 ORDER BY 1 DESC LOOP
		RETURN QUERY EXECUTE format('SELECT %s FROM %s WHERE %I = $1 LIMIT $2', t.columns, s.name, "column")
		USING s.id, s.n;
	END LOOP;
END
$$;

COMMENT ON FUNCTION snowid.newest_rows(anyelement, int, bigint, name) IS
'newest rows of a table over all shards of this server, as in newest_rows(NULL::insta0.photos, 50)';


/* -------- moving shards -------- */

/*
 * shard_home: where to write a shard, for clients to ask.
 *
 * 'here', or a connection string without password.  'closed' while it may be
 * written nowhere, 'missing' if its schema is gone; as in the view shards.
 *
 * Errors: 42704 unknown shard.
 */
CREATE FUNCTION snowid.shard_home(shard int)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	r snowid.shard_registry;
BEGIN
	SELECT * INTO r FROM snowid.shard_registry g WHERE g.shard = shard_home.shard;
	IF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = 'undefined_object',
			MESSAGE = format('shard %s does not exist', coalesce(shard::text, 'NULL')),
			HINT = 'SELECT * FROM snowid.shards; shows those that do.';
	END IF;
	RETURN snowid.lives(r);
END
$$;

COMMENT ON FUNCTION snowid.shard_home(int) IS
'where to write a shard: here, or a connection string';

/*
 * refuse: raises the error of a write to a shard that is closed here.
 *
 * home is what the fence was told; the registry knows better, unless the
 * snapshot is from before the fence.
 *
 * Errors: SN001 it lives elsewhere, SN002 it is closed, or not open yet.
 */
CREATE FUNCTION snowid.refuse(shard int, home text)
RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	m record;
BEGIN
	SELECT j.role, j.step, r.home INTO m
	FROM snowid.moves j JOIN snowid.shard_registry r ON r.shard = j.shard
	WHERE j.shard = refuse.shard AND j.closed;
	IF FOUND THEN
		-- As lives() has it.
		home := CASE WHEN m.step NOT IN ('closed', 'open') THEN m.home END;
	END IF;
	IF m.role = 'target' AND m.step <> 'open' THEN
		RAISE EXCEPTION USING ERRCODE = 'SN002',
			MESSAGE = format('shard %s is not open here yet', shard),
			DETAIL = format('It is being moved here from "%s".', home),
			HINT = 'Until it has arrived, write there; then here.';
	END IF;
	IF nullif(home, '') IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'SN002',
			MESSAGE = format('shard %s is closed for writing', shard),
			HINT = format('The extension''s owner can type: SELECT snowid.unfence_shard(%s);', shard);
	END IF;
	RAISE EXCEPTION USING ERRCODE = 'SN001',
		MESSAGE = format('shard %s has moved', shard),
		DETAIL = 'This server only keeps a copy, which is closed.',
		HINT = format('Write to its new home: %s', home);
END
$$;

COMMENT ON FUNCTION snowid.refuse(int, text) IS
'raises the error of a write to a shard that is closed here';

/*
 * refuse_write: the fence, a statement trigger on each table of a closed
 * shard.
 *
 * Apply workers of logical replication pass, since they run with
 * session_replication_role = replica.  A trigger, and not privileges: owners
 * and superusers are stopped too, and so is a statement that has been waiting
 * for a lock, or was prepared long ago.
 */
CREATE FUNCTION snowid.refuse_write()
RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	PERFORM snowid.refuse(TG_ARGV[0]::int, TG_ARGV[1]);
	RETURN NULL;
END
$$;

COMMENT ON FUNCTION snowid.refuse_write() IS
'trigger on the tables of a shard that is closed for writing';

/*
 * refuse_id: what next_id() asks when a sequence has reached its MAXVALUE:
 * returns if that is all, and raises the fence's error if it is closed.
 */
CREATE FUNCTION snowid.refuse_id(seq regclass)
RETURNS void
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	closed_shard int;
BEGIN
	SELECT m.shard INTO closed_shard
	FROM snowid.moves m
	JOIN pg_namespace n ON n.nspname = m.schema
	JOIN pg_class c ON c.relnamespace = n.oid
	WHERE m.closed AND c.oid = seq;
	IF FOUND THEN
		PERFORM snowid.refuse(closed_shard, NULL);
	END IF;
END
$$;

COMMENT ON FUNCTION snowid.refuse_id(regclass) IS
'raises the fence''s error if a sequence belongs to a closed shard';

/*
 * shard_tables: the tables of a schema, those first that others refer to or
 * are partitions of.
 *
 * In this order most transactions write, so a lock on all of them taken in it
 * meets few that hold one and want another.
 */
CREATE FUNCTION snowid.shard_tables(schema name)
RETURNS SETOF regclass
LANGUAGE sql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
WITH RECURSIVE t AS (
	SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE n.nspname = $1 AND c.relkind IN ('r', 'p')
), edge (parent, child) AS (
	SELECT confrelid, conrelid FROM pg_constraint
	WHERE contype = 'f' AND conrelid <> confrelid AND conrelid IN (SELECT oid FROM t)
	UNION
	SELECT inhparent, inhrelid FROM pg_inherits WHERE inhrelid IN (SELECT oid FROM t)
), below (oid, depth) AS (
	SELECT oid, 0 FROM t
	UNION
	SELECT e.child, b.depth + 1 FROM below b JOIN edge e ON e.parent = b.oid
	WHERE b.depth < 16			-- tables can refer to each other in a circle
)
SELECT oid::regclass FROM below GROUP BY oid ORDER BY max(depth), oid
$$;

COMMENT ON FUNCTION snowid.shard_tables(name) IS
'tables of a schema, those first that others refer to';

/*
 * fence_shard: closes a shard for writing on this server, from the commit on.
 *
 * Creates a trigger on each table and closes each sequence at its last value;
 * unfence_shard takes both back.  Waits, within lock_timeout, for all
 * transactions that have written in the shard or taken ids; those that come
 * meanwhile wait for this one's end, and are then refused, or go on if it is
 * rolled back.  With home, the registry says that the shard lives there.
 *
 * Errors: 42704 unknown shard, 55000 closed already, 42501 not the owner of
 * the tables or of the extension, 55P03 lock_timeout.
 */
CREATE FUNCTION snowid.fence_shard(shard int, home text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	r snowid.shard_registry;
	tables text[];
	t text;
	s record;
	d pg_sequence;
	p record;
	ending bigint;
	states jsonb := '{}';
BEGIN
	SELECT * INTO r FROM snowid.shard_registry g WHERE g.shard = fence_shard.shard;
	IF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = 'undefined_object',
			MESSAGE = format('shard %s does not exist', coalesce(shard::text, 'NULL')),
			HINT = 'SELECT * FROM snowid.shards; shows those that do.';
	END IF;

	-- First, so that rights are checked before anybody has to wait.
	INSERT INTO snowid.moves AS m (shard, schema, role, step, closed)
	VALUES (shard, r.schema, 'source', CASE WHEN home IS NULL THEN 'closed' ELSE 'fenced' END, true)
	ON CONFLICT ON CONSTRAINT moves_pkey DO UPDATE
	SET closed = true, changed_at = clock_timestamp()
	WHERE NOT m.closed;
	IF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
			MESSAGE = format('shard %s is closed already', shard);
	END IF;

	tables := ARRAY(SELECT format('%I.%I', r.schema, c.relname)
					FROM snowid.shard_tables(r.schema) WITH ORDINALITY x (oid, place)
					JOIN pg_class c ON c.oid = x.oid ORDER BY place);
	IF tables <> '{}' THEN
		EXECUTE 'LOCK TABLE ONLY ' || array_to_string(tables, ', ONLY ')
				|| ' IN SHARE ROW EXCLUSIVE MODE';
	END IF;
	FOREACH t IN ARRAY tables LOOP
		EXECUTE format('CREATE TRIGGER snowid_fence '
					   'BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s '
					   'FOR EACH STATEMENT EXECUTE FUNCTION snowid.refuse_write(%L, %L)',
					   t, shard, coalesce(home, ''));
	END LOOP;

	-- ALTER SEQUENCE is also what locks one.  It gives the sequence a new file,
	-- so what sessions have cached of it is void, and a rollback takes all back.
	FOR s IN
		SELECT c.oid, c.relname, q.seqmin, q.seqmax, 8 * y.typlen::numeric AS bits
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		JOIN pg_sequence q ON q.seqrelid = c.oid
		JOIN pg_type y ON y.oid = q.seqtypid
		WHERE n.nspname = r.schema ORDER BY c.oid
	LOOP
		-- A node of Citus has a MINVALUE that next_id() does not heed, and ALTER does.
		EXECUTE format('SELECT last_value AS last FROM %I.%I', r.schema, s.relname) INTO p;
		EXECUTE format('ALTER SEQUENCE %I.%I MINVALUE %s MAXVALUE %s', r.schema, s.relname,
					   least(s.seqmin, p.last), greatest(s.seqmax, p.last));
		SELECT * INTO d FROM pg_sequence g WHERE g.seqrelid = s.oid;
		EXECUTE format('SELECT last_value AS last, is_called AS called FROM %I.%I',
					   r.schema, s.relname) INTO p;
		states := states || jsonb_build_object(s.relname, jsonb_build_object(
			'last', p.last, 'called', p.called, 'min', d.seqmin, 'max', d.seqmax,
			'start', d.seqstart, 'cycle', d.seqcycle));
		-- MINVALUE must be below MAXVALUE, so the last number of the type, in the
		-- wrong direction, is one that no sequence ends at.
		ending := p.last;
		IF d.seqincrement > 0 AND ending::numeric = -(2 ^ (s.bits - 1)) THEN
			ending := ending + 1;
		ELSIF d.seqincrement < 0 AND ending::numeric = 2 ^ (s.bits - 1) - 1 THEN
			ending := ending - 1;
		END IF;
		EXECUTE format('ALTER SEQUENCE %I.%I MINVALUE %s MAXVALUE %s START %s RESTART %s NO CYCLE',
					   r.schema, s.relname,
					   ending - (d.seqincrement > 0)::int,
					   ending + (d.seqincrement < 0)::int, ending, ending);
		PERFORM setval(s.oid::regclass, ending, true);
	END LOOP;

	UPDATE snowid.moves m
	SET details = m.details || jsonb_build_object('sequences', states, 'home', r.home)
	WHERE m.shard = fence_shard.shard;
	IF home IS DISTINCT FROM r.home AND home IS NOT NULL THEN
		UPDATE snowid.shard_registry g SET home = fence_shard.home
		WHERE g.shard = fence_shard.shard;
	END IF;
END
$$;

COMMENT ON FUNCTION snowid.fence_shard(int, text) IS
'closes a shard for writing on this server';

/*
 * unfence_shard: opens a shard that fence_shard closed.
 *
 * The registry says again what it said before, or home.  Of a shard that
 * snowid-move has closed, only that program knows whether it is open on the
 * other server; so this refuses, unless the program has said so in the journal.
 *
 * Errors: 55000 not closed, or closed by a move; 42501 not the owner of the
 * tables or of the extension, 55P03 lock_timeout.
 */
CREATE FUNCTION snowid.unfence_shard(shard int, home text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	m snowid.moves;
	t regclass;
	s record;
BEGIN
	SELECT * INTO m FROM snowid.moves j
	WHERE j.shard = unfence_shard.shard AND j.closed FOR UPDATE;
	IF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
			MESSAGE = format('shard %s is not closed', coalesce(shard::text, 'NULL'));
	END IF;
	IF m.peer IS NOT NULL AND m.step NOT IN ('open', 'aborted') THEN
		RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
			MESSAGE = format('shard %s is being moved', shard),
			DETAIL = format('It may be open on the other server: %s', m.peer),
			HINT = format('Use snowid-move, or its command abort. Only if that server is lost for ever, type: UPDATE snowid.moves SET peer = NULL WHERE shard = %s; and then this again.', shard);
	END IF;

	FOR t IN
		SELECT g.tgrelid FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid
		JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = m.schema AND g.tgname = 'snowid_fence' ORDER BY c.oid
	LOOP
		EXECUTE format('DROP TRIGGER snowid_fence ON %s', t);
	END LOOP;
	FOR s IN
		SELECT c.oid, c.relname, x.*
		FROM jsonb_each(m.details -> 'sequences') e,
			 jsonb_to_record(e.value) x (last bigint, called boolean, min bigint,
										 max bigint, start bigint, cycle boolean),
			 pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = m.schema AND c.relname = e.key AND c.relkind = 'S'
		ORDER BY c.oid
	LOOP
		EXECUTE format('ALTER SEQUENCE %I.%I MINVALUE %s MAXVALUE %s START %s %s CYCLE',
					   m.schema, s.relname, least(s.min, s.last), greatest(s.max, s.last), s.start,
					   CASE WHEN NOT s.cycle THEN 'NO' END);
		PERFORM setval(s.oid::regclass, s.last, s.called);
	END LOOP;

	UPDATE snowid.shard_registry g
	SET home = coalesce(unfence_shard.home, m.details ->> 'home')
	WHERE g.shard = unfence_shard.shard
	  AND g.home IS DISTINCT FROM coalesce(unfence_shard.home, m.details ->> 'home');
	IF m.peer IS NULL THEN
		DELETE FROM snowid.moves j WHERE j.shard = unfence_shard.shard;
	ELSE
		UPDATE snowid.moves j
		SET closed = false, details = j.details - 'sequences' - 'home',
			changed_at = clock_timestamp()
		WHERE j.shard = unfence_shard.shard;
	END IF;
END
$$;

COMMENT ON FUNCTION snowid.unfence_shard(int, text) IS
'opens a shard that fence_shard closed';
