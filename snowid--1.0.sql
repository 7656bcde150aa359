/*
 * snowid--1.0.sql
 *
 * Sections in the order of doc/reference.md.  What users call is in schema
 * snowid, what serves it in snowid_internal.  Every name is qualified, so that
 * nothing planted in another schema can get in between.
 */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION snowid" to load this file. \quit

-- Until the end of this script.  A body of SQL is parsed now: what somebody has planted in
-- the path would be in it for ever.
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

-- The extension makes its schemas itself.  In a schema that exists already, its
-- owner could plant functions that match a call better than ours.
DO $$
DECLARE
	taken name;
BEGIN
	SELECT n.nspname INTO taken FROM pg_catalog.pg_namespace n
	WHERE n.nspname OPERATOR(pg_catalog.=) ANY ('{snowid,snowid_internal}'::pg_catalog.name[]);
	IF FOUND THEN
		RAISE EXCEPTION USING ERRCODE = 'duplicate_schema',
			MESSAGE = pg_catalog.format('schema "%s" already exists'::text, taken),
			DETAIL = 'The extension creates this schema itself, so that nobody else has objects in it.',
			HINT = CASE WHEN pg_catalog.to_regprocedure('snowid_internal.take_slots(regclass, timestamptz, int)') IS NULL
				THEN pg_catalog.format('If the schema is not needed, type: DROP SCHEMA %I;'::text, taken)
				ELSE 'It is the portable edition. Create the extension in another database, and bring the shards there by a dump or by snowid-move.' END;
	END IF;
END
$$;
CREATE SCHEMA snowid;
CREATE SCHEMA snowid_internal;

COMMENT ON SCHEMA snowid IS
'ids of logical shards';

COMMENT ON SCHEMA snowid_internal IS
'what the functions of schema snowid call; not for users';

CREATE FUNCTION snowid.version()
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '1.0';

-- snowid-move reads it here, also where there is no such function.
COMMENT ON FUNCTION snowid.version() IS
'version of snowid in this database: 1.0';


/* -------- generating ids -------- */

CREATE FUNCTION snowid.next_id(shard int, seq regclass)
RETURNS bigint
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'snowid_next_id';

COMMENT ON FUNCTION snowid.next_id(int, regclass) IS
'next id of a shard, from a sequence: larger than all earlier ids of that sequence and number';

CREATE FUNCTION snowid.next_id(shard int, seq regclass, epoch timestamptz)
RETURNS bigint
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'snowid_next_id';

COMMENT ON FUNCTION snowid.next_id(int, regclass, timestamptz) IS
'next id of a shard, from a sequence, in milliseconds since the given epoch';

-- The sequence of a database that is one shard.  A dump carries its state.
CREATE SEQUENCE snowid.id_seq;
SELECT pg_catalog.pg_extension_config_dump('snowid.id_seq', '');

COMMENT ON SEQUENCE snowid.id_seq IS
'sequence of next_id() without arguments';

-- Up to which time the log has reserved ids, in milliseconds since 1970.  The library
-- reads and writes it, and a dump carries it.
CREATE SEQUENCE snowid_internal.reservation;
SELECT pg_catalog.pg_extension_config_dump('snowid_internal.reservation', '');

COMMENT ON SEQUENCE snowid_internal.reservation IS
'the time up to which ids are reserved in the log; only the library uses it';

CREATE FUNCTION snowid.next_id()
RETURNS bigint
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'snowid_next_id_of_database';

COMMENT ON FUNCTION snowid.next_id() IS
'next id of a database that is one shard, from setting snowid.shard and sequence snowid.id_seq';


/* -------- reading ids -------- */

CREATE FUNCTION snowid.id_timestamp(id bigint,
	epoch timestamptz DEFAULT '2011-08-24 21:07:01.721+00')
RETURNS timestamptz
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'snowid_id_timestamp';

COMMENT ON FUNCTION snowid.id_timestamp(bigint, timestamptz) IS
'time at which an id was made, to the millisecond';

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

CREATE FUNCTION snowid.id_parts(id bigint, epoch timestamptz DEFAULT snowid.id_timestamp(0::bigint),
	OUT created_at timestamptz, OUT shard int, OUT seq int)
RETURNS record
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'snowid_id_parts';

COMMENT ON FUNCTION snowid.id_parts(bigint, timestamptz) IS
'time, shard and sequence number of an id';

-- Without an epoch, that of the sequence.
CREATE FUNCTION snowid.next_ids(shard int, seq regclass, n int,
	epoch timestamptz DEFAULT '-infinity')
RETURNS SETOF bigint
LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE
BEGIN ATOMIC
SELECT snowid.next_id($1, $2, $4) FROM generate_series(1, $3);
END;

COMMENT ON FUNCTION snowid.next_ids(int, regclass, int, timestamptz) IS
'the next n ids of a shard, from a sequence, for who loads many rows';


/* -------- composing ids and bounds -------- */

CREATE FUNCTION snowid.make_id(created_at timestamptz, shard int, seq int,
	epoch timestamptz DEFAULT snowid.id_timestamp(0::bigint))
RETURNS bigint
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'snowid_make_id';

COMMENT ON FUNCTION snowid.make_id(timestamptz, int, int, timestamptz) IS
'composes an id from its parts';

CREATE FUNCTION snowid.min_id(at timestamptz,
	epoch timestamptz DEFAULT snowid.id_timestamp(0::bigint))
RETURNS bigint
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'snowid_min_id';

COMMENT ON FUNCTION snowid.min_id(timestamptz, timestamptz) IS
'smallest id of a time: id >= min_id(t) means id_timestamp(id) >= t';

CREATE FUNCTION snowid.max_id(at timestamptz,
	epoch timestamptz DEFAULT snowid.id_timestamp(0::bigint))
RETURNS bigint
LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'snowid_max_id';

COMMENT ON FUNCTION snowid.max_id(timestamptz, timestamptz) IS
'largest id of a time: id <= max_id(t) means id_timestamp(id) <= t';

-- Not STRICT, and no SET: the planner inlines it only so, and only inlined it
-- can use an index.  NULLs come out as they do from the two comparisons.  Here
-- and below, a body of SQL is parsed now, under this script's search path.
CREATE FUNCTION snowid.id_between(id bigint, since timestamptz, until timestamptz,
	epoch timestamptz DEFAULT snowid.id_timestamp(0::bigint))
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN $1 >= snowid.min_id($2, $4) AND $1 < snowid.min_id($3, $4);

COMMENT ON FUNCTION snowid.id_between(bigint, timestamptz, timestamptz, timestamptz) IS
'was the id made at or after since, and before until? Can use an index on the id';


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

-- Without an epoch, that of the sequence.
CREATE FUNCTION snowid.advance(seq regclass, id bigint,
	epoch timestamptz DEFAULT '-infinity')
RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'snowid_advance';

COMMENT ON FUNCTION snowid.advance(regclass, bigint, timestamptz) IS
'makes every later id of a sequence larger than the given one';

CREATE FUNCTION snowid.sequence_state(seq regclass,
	epoch timestamptz DEFAULT '-infinity',
	OUT last_id_at timestamptz, OUT slots_left int, OUT ahead interval)
RETURNS record
LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED
AS 'MODULE_PATHNAME', 'snowid_sequence_state';

COMMENT ON FUNCTION snowid.sequence_state(regclass, timestamptz) IS
'time of a sequence''s last id, slots left in its millisecond, and how far it is ahead of the clock';

CREATE FUNCTION snowid.safe_upper_id(seq regclass,
	epoch timestamptz DEFAULT '-infinity')
RETURNS bigint
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'snowid_safe_upper_id';

COMMENT ON FUNCTION snowid.safe_upper_id(regclass, timestamptz) IS
'bound for readers: every smaller id of the sequence is of a transaction that has ended; read up to it in a later statement';


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

-- As libpq reads what is shown to everybody: a home, or all texts of a history.  Also what
-- is escaped in a URI.
CREATE FUNCTION snowid_internal.has_password(homes jsonb)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
SELECT coalesce(bool_or(h.home ~ '^postgres(ql)?://[^/@]*:[^/@]*@' OR d.home
	~ '(^|[[:space:]?&''])((ssl)?password|oauth_client_secret|scram_(client|server)_key)[[:space:]]*='), false)
FROM jsonb_path_query($1, '$.**') v (value), LATERAL (SELECT v.value #>> '{}') h (home), LATERAL (
	SELECT string_agg(CASE WHEN u.part ~ '^%[2-7][0-9A-Fa-f]' THEN chr(('x' || substr(u.part, 2, 2))::bit(8)::int) || substr(u.part, 4)
					  ELSE u.part END, '' ORDER BY u.n)
	FROM regexp_split_to_table(h.home, '(?=%)') WITH ORDINALITY u (part, n)) d (home)
WHERE jsonb_typeof(v.value) = 'string';
END;

COMMENT ON FUNCTION snowid_internal.has_password(jsonb) IS
'does a connection string, or one in a history, name a password?';

-- Which number is which schema.  The rows belong to the users and are dumped.
-- They have the schema's name, so that a restored row finds it.  A shard's row
-- is committed together with everything that was made in the shard.
CREATE TABLE snowid.shard_registry (
	shard int PRIMARY KEY CHECK (shard BETWEEN 0 AND 8191),
	schema name NOT NULL UNIQUE
		CHECK (schema !~ '^pg_' AND schema <> ALL ('{$user,information_schema,snowid,snowid_internal}')),
	sequence name NOT NULL DEFAULT 'id_seq',
	epoch timestamptz CHECK (isfinite(epoch)),
	home text CONSTRAINT home_without_password CHECK (NOT snowid_internal.has_password(to_jsonb(home))),
	pool text,
	entry_options text CHECK (entry_options !~* '[\r\n]|(^|[[:space:]''])(host|port|dbname|user|password|auth_[a-z]+)[[:space:]]*='
		AND length(replace(entry_options, '''', '')) % 2 = length(entry_options) % 2),
	homes jsonb CHECK (homes = jsonb_path_query_array(homes, 'strict $[*] ? (
			@.since like_regex "^[1-9][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|[1-3][0-9])T[0-9:.]+[+-][0-9:]+$" && (
				exists(@.since.datetime("YYYY-MM-DD\"T\"HH24:MI:SSTZH:TZM")) || exists(@.since.datetime("YYYY-MM-DD\"T\"HH24:MI:SS.USTZH:TZM"))))', silent => true))
		CONSTRAINT homes_without_password CHECK (NOT snowid_internal.has_password(homes)) NOT NULL DEFAULT '[]'
);
SELECT pg_catalog.pg_extension_config_dump('snowid.shard_registry', '');

COMMENT ON TABLE snowid.shard_registry IS
'which shard number is which schema, its own epoch, and where it lives';

-- Not "elsewhere" but the server itself, so that all servers can have the same
-- rows.
COMMENT ON COLUMN snowid.shard_registry.home IS
'connection string, without password, of the server where the shard lives; NULL if it never moved';

COMMENT ON COLUMN snowid.shard_registry.pool IS
'entry of PgBouncer that leads to the shard, and to others that move together with it; NULL for the schema''s name';

COMMENT ON COLUMN snowid.shard_registry.entry_options IS
'what that entry has besides host, port and database; %p in it is the entry''s name';

-- In the row, so that it goes wherever that does: replicated, dumped, carried by a move.
COMMENT ON COLUMN snowid.shard_registry.homes IS
'where the shard has lived, the oldest first: as shard_homes shows it';

CREATE FUNCTION snowid_internal.note_home()
RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NEW.homes = '[]' OR NEW.homes -> -1 ->> 'home' IS DISTINCT FROM NEW.home THEN
		NEW.homes := NEW.homes || jsonb_build_object('home', NEW.home, 'since', clock_timestamp());
	END IF;
	RETURN NEW;
END
$$;

COMMENT ON FUNCTION snowid_internal.note_home() IS
'trigger on the registry, which adds a new home to the history';

-- Not where a worker of logical replication writes: its row has the history.
CREATE OR REPLACE TRIGGER note_home BEFORE INSERT OR UPDATE OF home ON snowid.shard_registry
	FOR EACH ROW EXECUTE FUNCTION snowid_internal.note_home();

CREATE VIEW snowid.shard_homes AS
SELECT r.shard, h.home, h.since
FROM snowid.shard_registry r, pg_catalog.jsonb_to_recordset(r.homes) AS h (home text, since timestamptz);

COMMENT ON VIEW snowid.shard_homes IS
'where each shard has lived, and since when; home is NULL for the server that made it, until the shard moves';

-- Sessions remember which epoch a shard has.  Also where a worker of logical
-- replication writes.
CREATE FUNCTION snowid_internal.registry_changed()
RETURNS trigger
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'snowid_registry_changed';

COMMENT ON FUNCTION snowid_internal.registry_changed() IS
'trigger on the registry, after which all sessions read it again';

CREATE OR REPLACE TRIGGER registry_changed AFTER INSERT OR UPDATE OR DELETE ON snowid.shard_registry
	FOR EACH ROW EXECUTE FUNCTION snowid_internal.registry_changed();
ALTER TABLE snowid.shard_registry ENABLE ALWAYS TRIGGER registry_changed;

-- A fleet: what snowid-fleet keeps at the directory, which publishes it with the registry.  A
-- name has no hyphen, so that a slot's name tells the server.
CREATE TABLE snowid.servers (
	name text PRIMARY KEY CHECK (name ~ '^[a-z][a-z0-9_]{0,29}$'),
	home text NOT NULL UNIQUE CONSTRAINT home_without_password CHECK (NOT snowid_internal.has_password(to_jsonb(home))),
	weight float8 NOT NULL DEFAULT 1 CHECK (weight > 0 AND weight < 'Infinity'),
	state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'full', 'draining')),
	note text
);
SELECT pg_catalog.pg_extension_config_dump('snowid.servers', '');

COMMENT ON TABLE snowid.servers IS
'servers of a fleet: how much of the whole each should have, and whether it takes more';

CREATE TABLE snowid.placements (
	shards int4multirange NOT NULL CHECK (NOT isempty(shards) AND shards <@ int4range(0, 8192)),
	rule text NOT NULL CHECK (rule IN ('stay', 'only', 'apart')),
	servers text[],
	note text,
	CHECK ((rule = 'only') = (servers IS NOT NULL))
);
ALTER TABLE snowid.placements REPLICA IDENTITY FULL;
SELECT pg_catalog.pg_extension_config_dump('snowid.placements', '');

COMMENT ON TABLE snowid.placements IS
'which shards stay where they are, live only on some servers, or never two on one';

CREATE TABLE snowid.poolers (
	console text PRIMARY KEY CONSTRAINT console_without_password CHECK (NOT snowid_internal.has_password(to_jsonb(console)))
);
SELECT pg_catalog.pg_extension_config_dump('snowid.poolers', '');

COMMENT ON TABLE snowid.poolers IS
'admin consoles of the PgBouncers whose clients snowid-fleet leads along';

/*
 * directory_is_right: trigger on the registry of a server that subscribes to the directory's, which
 * fires for what replication brings.  The directory's row replaces one that is there, but not that of a
 * shard that was made here, if the directory says that another server has it.  Nor does it forget
 * a shard that lives here because the directory has.  Its argument is the server's own home.
 */
CREATE FUNCTION snowid_internal.directory_is_right()
RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF TG_OP = 'DELETE' THEN
		RETURN CASE WHEN pg_trigger_depth() > 1 OR snowid_internal.lives(OLD) <> 'here' THEN OLD END;
	END IF;
	DELETE FROM snowid.shard_registry r
	WHERE r.shard = NEW.shard AND r.schema = NEW.schema AND (r.home IS NOT NULL OR NEW.home = TG_ARGV[0]);
	RETURN NEW;
END
$$;

COMMENT ON FUNCTION snowid_internal.directory_is_right() IS
'trigger on a registry that follows the directory''s: its rows replace those that are there';

-- Each server that follows would forget its shards, and no row can be kept.
CREATE FUNCTION snowid_internal.refuse_truncate()
RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION 'the registry of shards cannot be truncated' USING ERRCODE = '0A000',
		HINT = 'To forget shards, type: DELETE FROM snowid.shard_registry WHERE shard IN (...);';
END
$$;
CREATE OR REPLACE TRIGGER refuse_truncate BEFORE TRUNCATE ON snowid.shard_registry EXECUTE FUNCTION snowid_internal.refuse_truncate();

COMMENT ON FUNCTION snowid_internal.refuse_truncate() IS
'trigger on the registry: TRUNCATE is an error';

-- Not published.
CREATE TABLE snowid.fleet_moves (
	at timestamptz NOT NULL DEFAULT clock_timestamp(),
	shards text NOT NULL,
	source text NOT NULL,
	target text NOT NULL,
	bytes bigint NOT NULL,
	seconds float8 NOT NULL,
	outcome text NOT NULL
);
SELECT pg_catalog.pg_extension_config_dump('snowid.fleet_moves', '');

COMMENT ON TABLE snowid.fleet_moves IS
'what snowid-fleet has moved, and how fast';

-- The journal of shards that are being moved, or that are closed by hand.  It is
-- not dumped, since it says what is true of this server now.
--
-- The keys of details.  Ours, of a closed shard; snowid-move carries the first over to
-- the other server:
--	sequences		states and definitions when it was closed, by name: close_shards
--					writes them, open_shards reads and removes them
--	home			what the registry said before: the same two
-- Written and read by snowid-move, on both servers:
--	move_id			the move, the same on both; without it, a shard is closed by hand
--	begun_as		the role when the move began; a way back has it turned
--	name, reverse_name	of publication, slot and subscription, there and back
--	reverse			whether it is replicated back
--	peer_system		the other server's system identifier
--	registry		connection string of the registry of all, without password
--	fleet_move		of a move that snowid-fleet began: which row of its log
--	fingerprint		of the definitions, and the snapshot from before it
--	schema_oid		of its schema at the source
-- On the server at which the move began:
--	published		transactions that have published its tables
--	timelines		of both servers, when both had the same rows
--	reader			the session that has read the slot since
--	poolers			consoles whose pools may be paused
--	keep_name, target_ddl_md5	options that must be the same when it goes on
--	reopened		a fail-over had opened it after the decision
-- On the other one:
--	registered		the registry's row is the move's
--	schema_made		the schema is the move's, and may be dropped
--	owner, rights	whose it is, while rows are copied
--	reverse_lsn		where its own changes begin
-- Of a split: split, from, to, slot, promoting; stays: of shards that are closed on the
-- new server.
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

COMMENT ON TABLE snowid.moves IS
'journal of the shards that are being moved, or closed for writing, on this server';

-- Closed schemas that are no shards: copies, and what a shard was before it was
-- brought back.  Nor is this dumped.
CREATE TABLE snowid.copies (
	schema name PRIMARY KEY,
	shard int NOT NULL CHECK (shard BETWEEN 0 AND 8191),
	kind text NOT NULL CHECK (kind IN ('copying', 'copy', 'before', 'undone')),
	details jsonb NOT NULL DEFAULT '{}',
	changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

COMMENT ON TABLE snowid.copies IS
'closed schemas of this server that are copies of shards, or what they were before a restore';

/*
 * citus_oids: what Citus has distributed: tables, the schemas that it keeps
 * each on one node (kind 'schema'), or all schemas that it has copied to its
 * nodes ('copy').  Nothing without Citus.
 *
 * What this server knows of such objects is not all.
 */
CREATE FUNCTION snowid_internal.citus_oids(kind text)
RETURNS SETOF oid
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	-- An older Citus has no pg_dist_schema.
	IF kind = 'table' AND to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL THEN
		RETURN QUERY EXECUTE 'SELECT logicalrelid::oid FROM pg_catalog.pg_dist_partition';
	ELSIF kind = 'schema' AND to_regclass('pg_catalog.pg_dist_schema') IS NOT NULL THEN
		RETURN QUERY EXECUTE 'SELECT schemaid::oid FROM pg_catalog.pg_dist_schema';
	ELSIF kind = 'copy' AND to_regclass('pg_catalog.pg_dist_object') IS NOT NULL THEN
		RETURN QUERY EXECUTE 'SELECT objid FROM pg_catalog.pg_dist_object WHERE classid = 2615';
	END IF;
END
$$;

COMMENT ON FUNCTION snowid_internal.citus_oids(text) IS
'tables or schemas that Citus has distributed';

/*
 * lives: where a registered shard is written, as shard_home() and the view
 * shards say it.
 *
 * A shard is where its sequence is, unless the journal has closed it.  A shard
 * that fence_shard has closed by hand is here, whatever home says: its step is
 * "closed", or still the "open" of a move.
 */
CREATE FUNCTION snowid_internal.lives(r snowid.shard_registry)
RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
SELECT CASE
	WHEN m.step IN ('closed', 'open') THEN 'closed'
	WHEN m.closed OR ($1.home IS NOT NULL AND NOT EXISTS (
		SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1.schema AND c.relname = $1.sequence AND c.relkind = 'S'))
		THEN coalesce($1.home, 'closed')
	WHEN NOT EXISTS (SELECT FROM pg_namespace n WHERE n.nspname = $1.schema) THEN 'missing'
	ELSE 'here' END
FROM (SELECT) one LEFT JOIN snowid.moves m ON m.shard = $1.shard AND m.closed;
END;

COMMENT ON FUNCTION snowid_internal.lives(snowid.shard_registry) IS
'where a registered shard is written: here, closed, missing, or a connection string';

-- Of a shard whose registry has no epoch of its own, the default one.
CREATE FUNCTION snowid_internal.epoch_of(r snowid.shard_registry)
RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce($1.epoch, snowid.id_timestamp(0::bigint));

COMMENT ON FUNCTION snowid_internal.epoch_of(snowid.shard_registry) IS
'epoch of a registered shard';

/*
 * state_of: sequence_state(), but NULLs for a sequence that is gone, is being
 * dropped, makes no ids here, or can't be read by this role or on this standby.
 */
CREATE FUNCTION snowid_internal.state_of(seq oid, epoch timestamptz,
	OUT last_id_at timestamptz, OUT ahead interval)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '100ms'
AS $$
BEGIN
	IF has_sequence_privilege(seq, 'SELECT, USAGE, UPDATE') THEN
		SELECT q.last_id_at, q.ahead INTO last_id_at, ahead FROM snowid.sequence_state(seq::regclass, epoch) q;
	END IF;
EXCEPTION WHEN OTHERS THEN
	-- XX000: it was dropped while its lock was waited for.  58P01: it is unlogged, and older
	-- minor releases look for its file on a standby.
	IF SQLSTATE <> ALL ('{42P01,42809,0A000,22023,55000,55P03,58P01,XX000}') THEN
		RAISE;
	END IF;
END
$$;

COMMENT ON FUNCTION snowid_internal.state_of(oid, timestamptz) IS
'time of a sequence''s last id, and how far it is ahead of the clock; NULLs if it can''t be read';

CREATE VIEW snowid.shards AS
SELECT r.shard, r.schema, r.epoch,
	   CASE WHEN n.oid IS NOT NULL THEN coalesce(t.tables, 0) END AS tables,
	   q.last_id_at,
	   q.ahead,
	   snowid_internal.lives(r) AS lives
FROM snowid.shard_registry r
LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = r.schema
LEFT JOIN pg_catalog.pg_class c
	   ON c.relnamespace = n.oid AND c.relname = r.sequence AND c.relkind = 'S'
LEFT JOIN (SELECT relnamespace, count(*)::int AS tables
		   FROM pg_catalog.pg_class
		   WHERE relkind IN ('r', 'p')
		   GROUP BY relnamespace) t ON t.relnamespace = n.oid
LEFT JOIN LATERAL snowid_internal.state_of(c.oid, snowid_internal.epoch_of(r)) q ON true;

COMMENT ON VIEW snowid.shards IS
'the logical shards: schema, epoch, number of tables, newest id''s time, how far it is ahead of the clock, where the shard lives';

-- One place for the error of a shard that the registry does not have: 42704.
CREATE FUNCTION snowid_internal.refuse_unknown(shard int)
RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = 'undefined_object',
		MESSAGE = format('shard %s does not exist', coalesce(shard::text, 'NULL')),
		HINT = 'SELECT * FROM snowid.shards; shows those that do.';
END
$$;

COMMENT ON FUNCTION snowid_internal.refuse_unknown(int) IS
'raises the error of a shard that does not exist';

-- One place for the error of who may not write to a table of ours: 42501.
CREATE FUNCTION snowid_internal.check_right(what text, "table" regclass, needed text)
RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	missing text := (SELECT string_agg(n, ', ') FROM unnest(string_to_array(needed, ', ')) n WHERE NOT has_table_privilege("table", n));
BEGIN
	IF missing IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
			MESSAGE = format('permission denied to %s shards', what),
			HINT = format('The extension''s owner can type: GRANT %s ON %s TO %I;', missing, "table", current_user);
	END IF;
END
$$;

COMMENT ON FUNCTION snowid_internal.check_right(text, regclass, text) IS
'refuses who lacks a right on a table of snowid''s, and names it';

/*
 * claim_shard: claims a number and a schema's name for a shard.
 *
 * Creates the row and nothing else; create_shard and its like do the rest.
 * Waits for another session that is claiming the same.
 *
 * Errors: 22004 a NULL, 22003 number out of range, 42939 schema "$user" or a
 * system schema, 22008 impossible epoch, 42501 not granted, 42710 number or
 * schema taken.
 */
CREATE FUNCTION snowid_internal.claim_shard(shard int, schema name, sequence name,
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
	IF schema ^@ 'pg_' OR schema IN ('$user', 'information_schema', 'snowid', 'snowid_internal') THEN
		RAISE EXCEPTION USING ERRCODE = 'reserved_name',
			MESSAGE = format('schema "%s" cannot be a shard', schema),
			DETAIL = CASE schema WHEN '$user' THEN 'In a search path, this name means the schema of the current user.'
					 ELSE 'The name is reserved for the system, or for the extension.' END;
	END IF;
	IF epoch > clock_timestamp() OR NOT isfinite(epoch)
	   OR snowid.min_id(clock_timestamp(), epoch) = snowid.min_id('infinity'::timestamptz)
	THEN
		RAISE EXCEPTION USING ERRCODE = 'datetime_field_overflow',
			MESSAGE = format('ids with epoch %s cannot be made now', epoch),
			DETAIL = 'An epoch must be in the past, and not more than 34 years ago.';
	END IF;
	PERFORM snowid_internal.check_right('create'::text, 'snowid.shard_registry'::regclass, 'SELECT, INSERT'::text);

	INSERT INTO snowid.shard_registry (shard, schema, sequence, epoch)
	VALUES (shard, schema, sequence, epoch)
	ON CONFLICT DO NOTHING;
	IF FOUND THEN
		RETURN;
	END IF;

	SELECT * INTO taken FROM snowid.shard_registry r
	WHERE r.shard = claim_shard.shard OR r.schema = claim_shard.schema
	ORDER BY r.shard = claim_shard.shard DESC LIMIT 1;
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
			THEN format('That schema is gone. To free the number, type: SELECT snowid.drop_shard(%s);', shard)
			ELSE 'To see the numbers that are taken, type: SELECT * FROM snowid.shards;' END;
END
$$;

COMMENT ON FUNCTION snowid_internal.claim_shard(int, name, name, timestamptz) IS
'claims a number and a schema''s name for a shard';

/*
 * next_id_of_shard: next_id() under a name that no shard has.
 *
 * PostgreSQL looks a function up in a list of all functions of that name, in
 * all schemas, and builds the list again after each CREATE FUNCTION.  If
 * next_id() of each new shard called next_id(), thousands of shards would be
 * slow to make.
 */
CREATE FUNCTION snowid_internal.next_id_of_shard(shard int, seq regclass)
RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL UNSAFE
RETURN snowid.next_id($1, $2);

COMMENT ON FUNCTION snowid_internal.next_id_of_shard(int, regclass) IS
'what next_id() of a shard calls: the planner inlines it to next_id(shard, seq)';

CREATE FUNCTION snowid_internal.next_id_of_shard(shard int, seq regclass,
	epoch timestamptz)
RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL UNSAFE
RETURN snowid.next_id($1, $2, $3);

COMMENT ON FUNCTION snowid_internal.next_id_of_shard(int, regclass, timestamptz) IS
'what next_id() of a shard with its own epoch calls';

/*
 * next_id_call: the text of a call that makes a shard's ids.
 *
 * Qualified and quoted, and the same under every DateStyle and TimeZone.
 */
CREATE FUNCTION snowid_internal.next_id_call(function text, shard int, schema name,
	sequence name, epoch timestamptz)
RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
RETURN format('%s(%s, %L::pg_catalog.regclass%s)', $1, $2,
			  format('%I.%I', $3, $4),
			  ', ' || quote_literal(to_char($5 AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US"+00"'))
				   || '::pg_catalog.timestamptz');

COMMENT ON FUNCTION snowid_internal.next_id_call(text, int, name, name, timestamptz) IS
'text of a call that makes a shard''s ids';

/*
 * define_next_id: creates or replaces next_id() of a shard.
 *
 * One expression, neither STRICT nor with a SET clause: the planner inlines it
 * only so.  One that runs as its owner it never inlines.  The body is stored parsed: it
 * follows a renamed schema, and DROP EXTENSION says what depends on it.
 *
 * A new one everybody may call, also where default privileges withhold it: what a
 * caller needs is the sequence.
 */
CREATE FUNCTION snowid_internal.define_next_id(schema name, arguments text,
	shard int, sequence name, epoch timestamptz, security_definer boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	is_new CONSTANT boolean := to_regprocedure(format('%I.next_id()', schema)) IS NULL;
BEGIN
	EXECUTE format('CREATE OR REPLACE FUNCTION %I.next_id(%s) RETURNS pg_catalog.int8 '
				   'LANGUAGE sql VOLATILE PARALLEL UNSAFE%s RETURN %s',
				   schema, arguments,
				   CASE WHEN security_definer THEN ' SECURITY DEFINER SET search_path = pg_catalog, pg_temp' END,
				   snowid_internal.next_id_call('snowid_internal.next_id_of_shard'::text,
												shard, schema, sequence, epoch));
	IF is_new AND NOT has_function_privilege('public', format('%I.next_id()', schema), 'EXECUTE') THEN
		EXECUTE format('GRANT EXECUTE ON FUNCTION %I.next_id() TO PUBLIC', schema);
	END IF;
END
$$;

COMMENT ON FUNCTION snowid_internal.define_next_id(name, text, int, name, timestamptz, boolean) IS
'creates or replaces next_id() of a shard';

/*
 * create_shard: a schema, its sequence, its next_id() and its registry row.
 *
 * Returns the schema's name.  The objects belong to the caller, who needs
 * CREATE on the database and INSERT on the registry.
 *
 * Errors: those of claim_shard, 42P06 schema exists.
 */
CREATE FUNCTION snowid.create_shard(shard int, schema name DEFAULT NULL,
	epoch timestamptz DEFAULT NULL)
RETURNS name
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	schema := coalesce(schema, ('insta' || shard)::name);
	PERFORM snowid_internal.claim_shard(shard, schema, 'id_seq'::name, epoch);

	IF to_regnamespace(quote_ident(schema)) IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'duplicate_schema',
			MESSAGE = format('schema "%s" already exists', schema),
			DETAIL = 'It is not registered as a shard.',
			HINT = format('To make it a shard as it is, type: SELECT snowid.register_shard(%s, %L); or, if it runs the PL/pgSQL snippet: SELECT snowid.adopt_shard(%1$s, %2$L);', shard, schema);
	END IF;

	EXECUTE format('CREATE SCHEMA %I', schema);
	EXECUTE format('CREATE SEQUENCE %I.id_seq', schema);
	PERFORM snowid_internal.define_next_id(schema, ''::text, shard, 'id_seq'::name, epoch, false);
	RETURN schema;
END
$$;

COMMENT ON FUNCTION snowid.create_shard(int, name, timestamptz) IS
'creates a logical shard: a schema with a sequence and its own next_id()';

/*
 * refuse_stray_table: raises an error if a schema of Citus has a table that is
 * not distributed, as those are which a function creates.
 *
 * Errors: 0A000 there is one.
 */
CREATE FUNCTION snowid_internal.refuse_stray_table(schema name)
RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	stray name;
BEGIN
	SELECT c.relname INTO stray FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE n.nspname = schema AND c.relkind IN ('r', 'p')
	  AND n.oid IN (SELECT * FROM snowid_internal.citus_oids('schema'::text))
	  AND c.oid NOT IN (SELECT * FROM snowid_internal.citus_oids('table'::text))
	LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
			MESSAGE = format('table "%s" would be on this node alone', stray),
			DETAIL = 'The schema belongs to Citus, which distributes no table that a function creates.',
			HINT = format('Create it by a statement of your own. For new shards, type: SET citus.enable_schema_based_sharding TO off; and when they are made: SELECT citus_schema_distribute(%L);', schema);
	END IF;
END
$$;

COMMENT ON FUNCTION snowid_internal.refuse_stray_table(name) IS
'raises an error if a schema of Citus has a table that is not distributed';

/*
 * run_in_shard: runs a script with the shard's schema first in the search
 * path, before the one given.
 *
 * An error is raised again with the shard's name before its message.  So is a
 * cancel, to show where it was.
 *
 * Errors: those of the script, 3F000 no such schema, 42501 no right to use it,
 * 0A000 a table that Citus would not distribute.
 */
CREATE FUNCTION snowid_internal.run_in_shard(shard int, schema name, script text,
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
	-- A search path skips a schema that the role may not use, or that has just
	-- been dropped.  The script would then change what is in the next schema.
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
	PERFORM snowid_internal.refuse_stray_table(schema);
	-- Deferred constraints fail here, where the shard is known.
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

COMMENT ON FUNCTION snowid_internal.run_in_shard(int, name, text, text, text) IS
'runs a script in a shard''s schema, and names the shard in its errors';

CREATE FUNCTION snowid_internal.report_progress(done int, total int, made int,
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

COMMENT ON FUNCTION snowid_internal.report_progress(int, int, int, timestamptz) IS
'reports how many shards create_shards or for_each_shard has done';

-- A session caches the catalog entries that it has used.  One that visits
-- thousands of shards empties these caches now and then, to keep its memory
-- small.
CREATE FUNCTION snowid_internal.forget_catalogs()
RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'snowid_forget_catalogs';

COMMENT ON FUNCTION snowid_internal.forget_catalogs() IS
'empties the session''s caches of the catalogs; create_shards and for_each_shard call it';

/*
 * create_shards: the shards first to last, each with what the script makes.
 *
 * A shard is made whole or not at all.  Shards that are there already are
 * skipped: call it again after an error or a cancel.
 *
 * A transaction makes one shard, and one more for each 256 that there are.
 * The script's next_id() is looked up in a list of the next_id() of all shards,
 * which PostgreSQL builds again after functions were created.  So a transaction
 * first creates its functions, and then runs the script in each shard.
 *
 * A procedure that commits can have no SET clause.  So the search path is set
 * again in each transaction, and names are qualified where it is not set yet.
 *
 * Errors: those of create_shard, 2D000 within a transaction block, 42622 too
 * long a prefix, and whatever the script raises, with the shard named.
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
	raced int;				-- the last one that could not be created
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
		-- shard.  In the next transaction that shard is the first, and the
		-- error is raised.
		fresh := '{}';
		FOR n IN low .. high LOOP
			-- If it is not the same shard, create_shard raises the error.
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
				-- Another session may just have made it: then it is there when we look again.
				IF n = low AND (SQLSTATE <> '42710' OR n = raced) THEN
					RAISE;
				END IF;
				raced := n;
				high := n - 1;
				EXIT;
			END;
		END LOOP;

		IF ddl IS NOT NULL THEN
			FOR i IN 1 .. cardinality(fresh) LOOP
				BEGIN
					PERFORM snowid_internal.run_in_shard(fresh[i], (prefix || fresh[i])::name, ddl, path,
						'The shards before it are there. To go on, make the same call again.'::text);
					-- A SET in the script outlasts the function that ran it.
					PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
				EXCEPTION WHEN assert_failure OR OTHERS THEN
					IF fresh[i] = low THEN
						RAISE;
					END IF;
					FOREACH k IN ARRAY fresh[i:] LOOP
						PERFORM snowid.drop_shard(k, false);
					END LOOP;
					high := fresh[i] - 1;
					fresh := fresh[:i - 1];
					EXIT;
				END;
			END LOOP;
		END IF;

		made := made + cardinality(fresh);
		IF high = last OR (high - first + 1) / 100 > (low - first) / 100 THEN
			PERFORM snowid_internal.report_progress(high - first + 1, last - first + 1, made, started);
			PERFORM snowid_internal.forget_catalogs();
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
 * Errors: 22004 a NULL, 2D000 within a transaction block, and whatever the
 * script raises, with the shard named and the call that goes on from it.
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
	WHERE r.shard >= from_shard AND snowid_internal.lives(r) IN ('here', 'missing', 'closed');

	-- One by one, to see a shard that was made or dropped meanwhile.
	target.shard := from_shard - 1;
	LOOP
		PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
		SELECT * INTO target FROM snowid.shard_registry r
		WHERE r.shard > target.shard AND snowid_internal.lives(r) IN ('here', 'missing', 'closed')
		ORDER BY r.shard LIMIT 1;
		EXIT WHEN NOT FOUND;

		IF to_regnamespace(quote_ident(target.schema)) IS NULL THEN
			RAISE WARNING 'shard % is missing: schema "%" does not exist',
				target.shard, target.schema;
		ELSIF snowid_internal.lives(target) = 'closed' THEN
			RAISE WARNING USING
				MESSAGE = format('shard %s is closed: the script has not run there', target.shard),
				HINT = 'When it is open again, run the script there.';
		ELSE
			IF EXISTS (SELECT FROM snowid.moves m WHERE m.shard = target.shard AND m.role = 'source' AND NOT m.closed) THEN
				RAISE NOTICE USING
					MESSAGE = format('shard %s is being moved', target.shard),
					DETAIL = 'New tables go with it; any other change of a definition stops the move.';
			END IF;
			PERFORM snowid_internal.run_in_shard(target.shard, target.schema, script, path,
				format('The shards before it are done. To go on from it, type: CALL snowid.for_each_shard(..., %s);', target.shard));
			PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
		END IF;

		done := done + 1;
		IF done >= total OR done % 100 = 0 THEN
			PERFORM snowid_internal.report_progress(done, greatest(total, done), done, started);
			PERFORM snowid_internal.forget_catalogs();
		END IF;
		COMMIT;
	END LOOP;
	COMMIT;
END
$$;

COMMENT ON PROCEDURE snowid.for_each_shard(text, int) IS
'runs a script in every logical shard, each in a transaction of its own';

/*
 * drop_shard: drops a shard's schema and frees its number.
 *
 * Without cascade only a shard whose schema holds nothing but what
 * create_shard made.  If the schema is gone already, just the number.  With cascade
 * also a copy that fence_shard has closed for good, since the shard lives elsewhere:
 * its number stays.
 *
 * Errors: 42704 unknown shard, 2BP01 not empty, 55000 closed, or lives elsewhere.
 */
CREATE FUNCTION snowid.drop_shard(shard int, cascade boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	r snowid.shard_registry;
	ahead interval;
	is_known boolean;
	e_detail text;
	is_copy boolean := EXISTS (SELECT FROM snowid.moves m WHERE m.shard = drop_shard.shard AND m.closed AND m.step = 'fenced');
BEGIN
	PERFORM snowid_internal.check_right('drop'::text, 'snowid.shard_registry'::regclass, 'SELECT, DELETE'::text);
	-- A move has a name; only its writers may read the details.
	IF is_copy THEN
		PERFORM snowid_internal.check_right('drop'::text, 'snowid.moves'::regclass, 'SELECT, DELETE'::text);
		SELECT NOT m.details ? 'move_id' INTO is_copy FROM snowid.moves m WHERE m.shard = drop_shard.shard;
	END IF;
	IF is_copy AND cascade THEN
		EXECUTE (SELECT format('DROP SCHEMA IF EXISTS %I CASCADE', m.schema) FROM snowid.moves m WHERE m.shard = drop_shard.shard);
		DELETE FROM snowid.moves m WHERE m.shard = drop_shard.shard;
		RETURN;
	END IF;
	DELETE FROM snowid.shard_registry d
	WHERE d.shard = drop_shard.shard RETURNING * INTO r;
	IF NOT FOUND THEN
		PERFORM snowid_internal.refuse_unknown(shard);
	END IF;
	IF EXISTS (SELECT FROM snowid.moves m WHERE m.shard = drop_shard.shard) THEN
		RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
			MESSAGE = format('shard %s is being moved, or closed for writing', shard),
			HINT = format(CASE WHEN is_copy THEN 'It lives elsewhere. To drop what is here, type: SELECT snowid.drop_shard(%s, true);'
						  ELSE 'To see how far it is, type: SELECT * FROM snowid.moves; Then type snowid-move finish or abort, or SELECT snowid.unfence_shard(%s);' END, shard);
	END IF;
	IF snowid_internal.lives(r) NOT IN ('here', 'missing') THEN
		RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
			MESSAGE = format('shard %s has moved to %s', shard, r.home),
			DETAIL = 'Its number must stay registered here.';
	END IF;

	-- A new shard of the same number starts from the clock, so the clock must
	-- have passed the last id, as it does soon after a crash.  Until we have the
	-- lock, ids may be taken, up to 10 ms ahead.  Tables can have sequences of
	-- their own; one that no DEFAULT makes ids with, and that is further ahead, may be no clock.
	SELECT max(q.ahead), coalesce(bool_and(has_sequence_privilege(c.oid, 'SELECT, USAGE, UPDATE')) AND bool_or(c.relname = r.sequence), false)
	INTO ahead, is_known
	FROM pg_class c, LATERAL (
		-- One that was set to an id may have given all up to now, and to what is reserved.
		SELECT CASE WHEN v.last >> 50 > 0 THEN greatest(clock_timestamp(),
						to_timestamp(pg_sequence_last_value('snowid_internal.reservation'::regclass) / 1000.0),
						(SELECT t FROM snowid.id_timestamp(v.last, e.epoch) t WHERE t <= clock_timestamp() + interval '1 day'))
					WHEN v.called THEN snowid.id_timestamp(v.last >> 10 << 23, e.epoch) END - clock_timestamp()
		FROM snowid_internal.epoch_of(r) e (epoch), snowid_internal.sequence_value(
			CASE WHEN has_sequence_privilege(c.oid, 'SELECT, USAGE, UPDATE') THEN c.oid END, e.epoch) v) AS q(ahead)
	WHERE c.relkind = 'S' AND c.relnamespace = to_regnamespace(quote_ident(r.schema))
	  AND (c.relname = r.sequence OR q.ahead <= interval '5 seconds' OR EXISTS (
		SELECT FROM pg_depend d WHERE d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass
		  AND d.refobjid = c.oid AND snowid_internal.makes_ids(d.objid)));
	BEGIN
		IF to_regnamespace(quote_ident(r.schema)) IS NULL THEN
			NULL;
		ELSIF cascade THEN
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
	IF ahead > interval '5 seconds' OR NOT is_known THEN
		RAISE WARNING USING
			MESSAGE = format('the ids of shard %s %s ahead of the clock', shard,
							 CASE WHEN is_known THEN 'are' ELSE 'may be' END),
			DETAIL = 'Until the clock has passed them, a new shard of that number could make some of them again.',
			HINT = 'Wait until then before you create it, or move its sequence on with snowid.advance().';
	ELSIF ahead > interval '-1 s' THEN
		PERFORM pg_sleep(greatest(extract(epoch FROM ahead), 0) + 0.011);
	END IF;
END
$$;

COMMENT ON FUNCTION snowid.drop_shard(int, boolean) IS
'drops a logical shard, only with cascade if it holds tables';

-- A cast to name clips between characters; padding makes it clip where the
-- suffix still fits.
CREATE FUNCTION snowid_internal.clip_name(base text, suffix text)
RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN substr((repeat('-', octet_length($2)) || $1)::name::text, octet_length($2) + 1) || $2;

COMMENT ON FUNCTION snowid_internal.clip_name(text, text) IS
'base and suffix, the base clipped so that both are within the 63 bytes of a name';

/*
 * free_name: a name in a schema that no relation has.  It is made like the
 * names of serial sequences: base and suffix, then a number.
 */
CREATE FUNCTION snowid_internal.free_name(schema name, base text, suffix text)
RETURNS name
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	candidate text := snowid_internal.clip_name(base, suffix);
BEGIN
	FOR n IN 1 .. 1000 LOOP
		IF to_regclass(format('%I.%I', schema, candidate)) IS NULL THEN
			RETURN candidate;
		END IF;
		candidate := snowid_internal.clip_name(base, suffix || n);
	END LOOP;
	RAISE EXCEPTION USING ERRCODE = 'duplicate_table',
		MESSAGE = format('relation "%s" already exists', candidate);
END
$$;

COMMENT ON FUNCTION snowid_internal.free_name(name, text, text) IS
'name for a sequence in a schema, of at most 63 bytes, that no relation has';

CREATE FUNCTION snowid_internal.is_bigint(type oid)
RETURNS boolean
LANGUAGE sql STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
WITH RECURSIVE base (oid) AS (
	SELECT $1 UNION ALL SELECT t.typbasetype FROM base b JOIN pg_type t ON t.oid = b.oid AND t.typtype = 'd')
SELECT 'bigint'::regtype IN (SELECT oid FROM base);
END;

COMMENT ON FUNCTION snowid_internal.is_bigint(oid) IS
'is the type bigint, or a domain over it?';

/*
 * lock_table: locks a table that was found in the catalogs, to the end of the
 * transaction.  Of one that is gone it returns false, if that is ok.
 *
 * While we wait, the schema's owner can put a view or a foreign table in the
 * place of the name; what these call would run as our caller.  So this looks
 * again, not by a query, whose snapshot may be old.  Then nobody drops the
 * table, renames it, or changes a column's type.
 *
 * Errors: 42P01 it is gone, 42501 no right to lock it, 55P03 lock_timeout.
 */
CREATE FUNCTION snowid_internal.lock_table("table" regclass, mode text,
	missing_ok boolean DEFAULT false)
RETURNS boolean
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	name CONSTANT text := "table";
BEGIN
	-- A number is the OID of one that is gone; from 16 on, to_regclass() takes it.
	IF name !~ '^[0-9]' AND to_regclass(name) = "table" THEN
		EXECUTE format('LOCK TABLE ONLY %s IN %s MODE', name, mode);
	END IF;
	IF to_regclass(name) = "table"
	   AND coalesce(pg_get_partkeydef("table"), pg_relation_filenode("table")::text) IS NOT NULL
	THEN
		RETURN true;
	END IF;
	RAISE undefined_table;
EXCEPTION WHEN undefined_table OR invalid_schema_name OR wrong_object_type THEN
	IF NOT missing_ok THEN
		RAISE EXCEPTION USING ERRCODE = 'undefined_table',
			MESSAGE = format('table "%s" was dropped or replaced meanwhile', name);
	END IF;
	RETURN false;
END
$$;

COMMENT ON FUNCTION snowid_internal.lock_table(regclass, text, boolean) IS
'locks a table, and sees that its name still leads to it';

/*
 * read_ids: the ids of a column, which must be of type bigint: the owner of
 * another type may have made a cast, which runs as the caller.  The caller has
 * locked the table.  In the condition, %1$I is the column.
 *
 * Errors: 42703 no such column, 42804 not bigint.
 */
CREATE FUNCTION snowid_internal.read_ids("table" regclass, "column" name,
	condition text)
RETURNS bigint[]
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	type oid;
	ids bigint[];
BEGIN
	EXECUTE format('SELECT pg_typeof((NULL::%s).%I)', "table", "column") INTO type;
	IF snowid_internal.is_bigint(type) IS NOT TRUE THEN
		RAISE EXCEPTION USING ERRCODE = 'datatype_mismatch',
			MESSAGE = format('column "%s" of table %s is %s, not bigint', "column", "table", format_type(type, NULL));
	END IF;
	EXECUTE format('SELECT ARRAY(SELECT %1$I::bigint FROM %2$s WHERE ' || condition || ')', "column", "table") INTO ids;
	RETURN ids;
END
$$;

COMMENT ON FUNCTION snowid_internal.read_ids(regclass, name, text) IS
'ids of a column of a table that is locked';

/*
 * newest_id: the largest id in a column, NULL if there is none.
 *
 * Errors: those of read_ids, 55000 it is too far ahead of the clock for ids to
 * go on above it.
 */
CREATE FUNCTION snowid_internal.newest_id("table" regclass, "column" name,
	epoch timestamptz)
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	t record;
	newest bigint;
BEGIN
	newest := (snowid_internal.read_ids("table", "column", '%1$I IS NOT NULL ORDER BY %1$I DESC LIMIT 1'))[1];
	IF newest > 0 AND snowid.id_timestamp(newest, epoch) > clock_timestamp() + interval '1 day' THEN
		SELECT c.relname, n.nspname INTO t
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = "table";
		RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
			MESSAGE = format('id %s in table "%s" is more than one day ahead of the clock', newest, t.relname),
			DETAIL = format('Read as an id, it is of %s.', snowid.id_timestamp(newest, epoch)),
			HINT = 'New ids must be larger than all ids in the table, and they follow the clock. Give that row a smaller id.',
			TABLE = t.relname, SCHEMA = t.nspname, COLUMN = "column";
	END IF;
	RETURN newest;
END
$$;

COMMENT ON FUNCTION snowid_internal.newest_id(regclass, name, timestamptz) IS
'largest id in a column, unless it is too far ahead of the clock';

/*
 * add_guard: adds the guard, and validates it if the table is small.
 *
 * The lock to add it is short.  Validating a large table is left to the caller:
 * here, the lock would last as long as the scan.
 */
CREATE FUNCTION snowid_internal.add_guard("table" regclass, "column" name,
	shard int)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	small_table CONSTANT bigint := 8 * 1024 * 1024;
	guard CONSTANT name := snowid_internal.clip_name(
		(SELECT c.relname FROM pg_class c WHERE c.oid = "table") || '_' || "column", '_shard_check'::text);
	validate CONSTANT text := format('ALTER TABLE %s VALIDATE CONSTRAINT %I', "table", guard);
BEGIN
	EXECUTE format('ALTER TABLE %s ADD CONSTRAINT %I CHECK (snowid.id_shard(%I) = %s) NOT VALID',
				   "table", guard, "column", shard);
	IF coalesce((SELECT sum(pg_relation_size(p.relid)) FROM pg_partition_tree("table") p),
				pg_relation_size("table")) <= small_table
	THEN
		EXECUTE validate;
	ELSE
		RAISE NOTICE USING
			MESSAGE = format('constraint "%s" holds for new rows, but is not validated for the old ones yet', guard),
			HINT = format('Type: %s;', validate);
	END IF;
END
$$;

COMMENT ON FUNCTION snowid_internal.add_guard(regclass, name, int) IS
'adds the constraint that ids of a column name the shard';

/*
 * refuse_strays: refuses a column with an id that does not name the shard.
 *
 * Rows with ids of other shards could not even be updated.
 *
 * Errors: 23514 there is one.
 */
CREATE FUNCTION snowid_internal.refuse_strays("table" regclass, "column" name,
	shard int)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	t record;
	stray bigint;
BEGIN
	stray := (snowid_internal.read_ids("table", "column", format('snowid.id_shard(%%1$I) <> %s LIMIT 1', shard)))[1];
	IF stray IS NOT NULL THEN
		SELECT c.relname, n.nspname INTO t
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = "table";
		RAISE EXCEPTION USING ERRCODE = 'check_violation',
			MESSAGE = format('id %s in table "%s" does not name shard %s', stray, t.relname, shard),
			DETAIL = format('Read as an id, it names shard %s.', snowid.id_shard(stray)),
			HINT = 'If the table must keep such ids, call set_default without guard.',
			TABLE = t.relname, SCHEMA = t.nspname, COLUMN = "column";
	END IF;
END
$$;

COMMENT ON FUNCTION snowid_internal.refuse_strays(regclass, name, int) IS
'refuses a column with an id that does not name the shard';

/*
 * release_sequences: the column's own sequences, but not those that something
 * else uses, too: these it disowns.
 *
 * Also the largest id that they and the shard's sequence may have issued: it
 * may have been committed since the table was read, or deleted, and can be far
 * ahead of a clock that was set back.  A state more than a day ahead is a plain
 * counter's, or an id that something has set it to: 0.
 */
CREATE FUNCTION snowid_internal.release_sequences("table" regclass, "column" name,
	s snowid.shard_registry, epoch timestamptz, OUT owned regclass[], OUT newest bigint)
RETURNS record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	shard_sequence CONSTANT regclass := to_regclass(format('%I.%I', s.schema, s.sequence));
	seq regclass;
	last_id_at timestamptz;
BEGIN
	owned := ARRAY(
		SELECT d.objid FROM pg_depend d JOIN pg_class c ON c.oid = d.objid AND c.relkind = 'S'
		JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
		WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
		  AND d.refobjid = "table" AND a.attname = "column" AND d.deptype = 'a');
	FOREACH seq IN ARRAY owned || CASE WHEN shard_sequence = ANY (owned) THEN NULL ELSE shard_sequence END LOOP
		CONTINUE WHEN seq IS NULL;
		IF has_sequence_privilege(seq, 'SELECT, USAGE, UPDATE') THEN
			SELECT q.last_id_at INTO last_id_at FROM snowid.sequence_state(seq, epoch) q;
			IF last_id_at IS NOT NULL THEN
				newest := greatest(newest, CASE WHEN last_id_at < clock_timestamp() + interval '1 day'
												THEN snowid.max_id(last_id_at, epoch) ELSE 0 END);
			END IF;
		END IF;
		IF seq = ANY (owned) AND (seq = shard_sequence OR EXISTS (
			SELECT FROM pg_depend d
			WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = seq AND d.deptype <> 'i'))
		THEN
			EXECUTE format('ALTER SEQUENCE %s OWNED BY NONE', seq);
			owned := array_remove(owned, seq);
		END IF;
	END LOOP;
END
$$;

COMMENT ON FUNCTION snowid_internal.release_sequences(regclass, name, snowid.shard_registry, timestamptz) IS
'a column''s own sequences, and the largest id that they may have issued';

/*
 * own_sequence: makes a sequence the column's own clock: the first of those
 * given that is in the table's schema, or a new one.
 */
CREATE FUNCTION snowid_internal.own_sequence("table" regclass, "column" name,
	owned regclass[])
RETURNS regclass
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	t pg_class;
	seq regclass;
	schema name;
	qualified text;
BEGIN
	SELECT * INTO t FROM pg_class c WHERE c.oid = "table";
	SELECT c.oid INTO seq FROM pg_class c
	WHERE c.oid = ANY (owned) AND c.relnamespace = t.relnamespace
	LIMIT 1;
	IF FOUND THEN
		-- INCREMENT stays: there are clients that allocate in blocks of it.
		EXECUTE format('ALTER SEQUENCE %s AS bigint INCREMENT BY %s NO MAXVALUE CACHE 1 NO CYCLE', seq,
					   (SELECT CASE WHEN q.seqincrement BETWEEN 1 AND 1024 THEN q.seqincrement ELSE 1 END
						FROM pg_sequence q WHERE q.seqrelid = seq));
		RETURN seq;
	END IF;
	SELECT n.nspname INTO schema FROM pg_namespace n WHERE n.oid = t.relnamespace;
	qualified := format('%I.%I', schema,
						snowid_internal.free_name(schema, t.relname || '_' || "column", '_seq'::text));
	EXECUTE format('CREATE SEQUENCE %s', qualified);
	EXECUTE format('ALTER SEQUENCE %s OWNER TO %s', qualified, t.relowner::regrole);
	EXECUTE format('ALTER SEQUENCE %s OWNED BY %s.%I', qualified, "table", "column");
	RETURN qualified;
END
$$;

COMMENT ON FUNCTION snowid_internal.own_sequence(regclass, name, regclass[]) IS
'makes a sequence a column''s own, or a new one for it';

/*
 * keep_default_here: sets a DEFAULT of a table of Citus on this node alone.
 *
 * Citus keeps an expression with nextval() on the node of the client; it is
 * never called, since next_id() is never NULL.  The workers keep the DEFAULT
 * that they have, which they refuse: of this one they would be sent the
 * nextval() alone.
 */
CREATE FUNCTION snowid_internal.keep_default_here("table" regclass, "column" name,
	expression text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	propagation CONSTANT text := current_setting('citus.enable_ddl_propagation', true);
BEGIN
	PERFORM set_config('citus.enable_ddl_propagation', 'off', true);
	EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s', "table", "column", expression);
	PERFORM set_config('citus.enable_ddl_propagation', propagation, true);
END
$$;

COMMENT ON FUNCTION snowid_internal.keep_default_here(regclass, name, text) IS
'sets a DEFAULT of a table of Citus on this node alone';

-- Identity columns need no grant, and a serial's was for another sequence.
CREATE FUNCTION snowid_internal.warn_of_grants("table" regclass, sequence regclass)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	grantee text;
BEGIN
	FOR grantee IN
		SELECT DISTINCT CASE WHEN g.oid = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.oid)) END
		FROM (SELECT c.relowner FROM pg_class c WHERE c.oid = "table"
			  UNION ALL
			  SELECT x.grantee FROM pg_class c, aclexplode(c.relacl) x
			  WHERE c.oid = "table" AND x.privilege_type = 'INSERT') g (oid)
		WHERE NOT has_sequence_privilege(g.oid, sequence, 'USAGE, UPDATE')
	LOOP
		RAISE WARNING USING
			MESSAGE = format('%s may insert into %s, but may not use its sequence', grantee, "table"),
			HINT = format('Type: GRANT USAGE ON SEQUENCE %s TO %s;', sequence, grantee);
	END LOOP;
END
$$;

COMMENT ON FUNCTION snowid_internal.warn_of_grants(regclass, regclass) IS
'warns of roles that may insert into a table, but not use its sequence';

/*
 * check_column: refuses a column that cannot have a shard's ids; returns the
 * shard of its table.
 *
 * Errors: of set_default, 42809, 42704, 42703, 428C9, 42804, 0A000.
 */
CREATE FUNCTION snowid_internal.check_column("table" regclass, "column" name,
	by_citus boolean)
RETURNS snowid.shard_registry
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	t record;
	s snowid.shard_registry;
	a record;
BEGIN
	SELECT c.relname, c.relkind, n.nspname INTO t
	FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE c.oid = "table";
	IF t.relkind IS NULL OR t.relkind NOT IN ('r', 'p') THEN
		RAISE EXCEPTION USING ERRCODE = 'wrong_object_type',
			MESSAGE = format('"%s" is not a table', coalesce(t.relname, "table"::text));
	END IF;

	SELECT * INTO s FROM snowid.shard_registry r WHERE r.schema = t.nspname;
	IF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = 'undefined_object',
			MESSAGE = format('table "%s" is not in a shard', t.relname),
			DETAIL = format('Its schema "%s" is not registered as one.', t.nspname),
			HINT = format('To move it into a shard, type: ALTER TABLE %I.%I SET SCHEMA shard_schema;', t.nspname, t.relname);
	END IF;

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
	IF NOT snowid_internal.is_bigint(a.atttypid) THEN
		RAISE EXCEPTION USING ERRCODE = 'datatype_mismatch',
			MESSAGE = format('column "%s" of table "%s" is %s, not bigint',
							 "column", t.relname, format_type(a.atttypid, NULL)),
			-- It, and what refers to it, or to that.
			HINT = 'Type:' || (WITH RECURSIVE narrow (rel, att) AS (
					SELECT "table"::oid, a.attnum
					UNION SELECT k.conrelid, u.referencing
					FROM narrow n JOIN pg_constraint k ON k.contype = 'f' AND k.conparentid = 0 AND k.confrelid = n.rel,
						unnest(k.conkey, k.confkey) AS u (referencing, referenced) WHERE u.referenced = n.att)
				SELECT string_agg(format(' ALTER TABLE %s ALTER COLUMN %I TYPE bigint;', rel::regclass, attname),
								  '' ORDER BY rel <> "table", rel::regclass::text, attname)
					|| coalesce((SELECT ' Before that, drop what uses the column, and create it again afterwards: '
							|| string_agg(DISTINCT pg_describe_object(CASE WHEN w.oid IS NULL AND g.oid IS NULL THEN d.classid ELSE 'pg_class'::regclass END,
								coalesce(w.ev_class, g.adrelid, d.objid), coalesce(g.adnum, 0)), ', ') || '.'
						FROM narrow n JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = n.rel AND d.refobjsubid = n.att
							JOIN pg_attribute b ON (b.attrelid, b.attnum) = (n.rel, n.att) AND NOT snowid_internal.is_bigint(b.atttypid)
							LEFT JOIN pg_rewrite w ON d.classid = 'pg_rewrite'::regclass AND w.oid = d.objid AND w.rulename = '_RETURN'
							LEFT JOIN pg_attrdef g ON d.classid = 'pg_attrdef'::regclass AND g.oid = d.objid AND (g.adrelid, g.adnum) <> (n.rel, n.att)
						WHERE g.oid IS NOT NULL OR d.classid IN ('pg_rewrite'::regclass, 'pg_trigger'::regclass, 'pg_policy'::regclass,
							'pg_proc'::regclass, 'pg_publication_rel'::regclass)), '')
				FROM narrow JOIN pg_attribute ON attrelid = rel AND attnum = att WHERE NOT snowid_internal.is_bigint(atttypid));
	END IF;

	IF by_citus AND a.attidentity <> '' THEN
		RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
			MESSAGE = format('column "%s" of table "%s" is an identity column of a distributed table', "column", t.relname),
			DETAIL = 'Citus cannot take the identity away.',
			HINT = format('Type: CREATE TABLE %I.new_name (LIKE %s INCLUDING ALL EXCLUDING IDENTITY); then call set_default() for the new table, and copy the rows.', t.nspname, "table");
	END IF;
	RETURN s;
END
$$;

COMMENT ON FUNCTION snowid_internal.check_column(regclass, name, boolean) IS
'refuses a column that cannot have the ids of its table''s shard';

/*
 * set_default: gives a column of a table in a shard the shard's ids.
 *
 * Sets the DEFAULT.  Of an identity or serial column, the sequence is dropped
 * unless something else uses it.  own_sequence: the table gets its own sequence
 * (that of a serial is kept for it, unless something else uses it).  New ids are
 * larger than those in the table.
 *
 * guard: adds a CHECK that ids name the shard, unless it is there.
 *
 * Errors: 22004 a NULL, 42809 not a table, 42704 in no shard, 42703 no such
 * column, 42804 not bigint, 428C9 generated, 55000 an id too far ahead of the
 * clock, 0A000 identity column of a table of Citus, 23514 an id of another
 * shard, with guard, 42P01 no sequence of the shard, those of advance.
 */
CREATE FUNCTION snowid.set_default("table" regclass, "column" name DEFAULT 'id',
	own_sequence boolean DEFAULT false, guard boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	s snowid.shard_registry;
	by_citus boolean;	-- Citus has distributed the table
	new_guard boolean;
	epoch timestamptz;
	newest bigint;
	released record;
	sequence regclass;
	old regclass;
	call text;			-- that makes an id
BEGIN
	IF "table" IS NULL OR "column" IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed',
			MESSAGE = 'set_default needs a table and a column';
	END IF;
	by_citus := "table"::oid IN (SELECT * FROM snowid_internal.citus_oids('table'::text));
	s := snowid_internal.check_column("table", "column", by_citus);
	epoch := snowid_internal.epoch_of(s);
	-- The same mode for all who alter the table, so that none waits for another in a circle.
	PERFORM snowid_internal.lock_table("table", 'SHARE UPDATE EXCLUSIVE'::text);

	-- The very condition, in either notation; its name can be another.  Not one that children have
	-- not, or that is not enforced.
	new_guard := guard AND NOT EXISTS (
		SELECT FROM pg_constraint c
		WHERE c.conrelid = "table" AND c.contype = 'c' AND NOT c.connoinherit AND pg_get_constraintdef(c.oid) !~ ' NOT ENFORCED$'
		  AND pg_get_expr(c.conbin, c.conrelid) IN (
			SELECT format('(%I.%I(' || f || ') = %5$s)', 'snowid', 'id_shard', 'id', "column", s.shard)
			FROM unnest('{%4$I,(%4$I)::bigint,%3$I => %4$I,%3$I => (%4$I)::bigint}'::text[]) f));
	IF new_guard THEN
		PERFORM snowid_internal.refuse_strays("table", "column", s.shard);
	END IF;

	-- Read this before writers have to wait: without an index it may take long.
	newest := snowid_internal.newest_id("table", "column", epoch);

	-- From here on they wait.
	IF EXISTS (SELECT FROM pg_attribute a
			   WHERE a.attrelid = "table" AND a.attname = "column" AND a.attidentity <> '') THEN
		EXECUTE format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', "table", "column");
	END IF;
	EXECUTE format('ALTER TABLE %s ALTER COLUMN %I DROP DEFAULT', "table", "column");
	SELECT * INTO released FROM snowid_internal.release_sequences("table", "column", s, epoch);
	newest := greatest(newest, released.newest);

	IF own_sequence THEN
		-- Citus alters no distributed sequence.
		sequence := snowid_internal.own_sequence("table", "column",
			CASE WHEN by_citus THEN '{}'::regclass[] ELSE released.owned END);
	ELSE
		sequence := format('%I.%I', s.schema, s.sequence)::regclass;
	END IF;
	call := snowid_internal.next_id_call('snowid.next_id'::text, s.shard, s.schema,
		(SELECT c.relname FROM pg_class c WHERE c.oid = sequence), s.epoch);
	EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s', "table", "column",
				   CASE WHEN own_sequence THEN call ELSE format('%I.next_id()', s.schema) END);
	FOREACH old IN ARRAY CASE WHEN own_sequence THEN '{}' ELSE released.owned END LOOP
		EXECUTE format('DROP SEQUENCE %s', old);
	END LOOP;
	IF by_citus THEN
		PERFORM snowid_internal.keep_default_here("table", "column",
			format('coalesce(%s, nextval(%L::regclass))', call, sequence));
	END IF;

	-- Rows may also have come since from another sequence.  Their ids are at
	-- most 10 ms ahead of the clock, but for seconds after a crash.
	IF newest IS NOT NULL THEN
		PERFORM snowid.advance(sequence,
			greatest(newest, snowid.make_id(clock_timestamp() + interval '11 milliseconds', 0, 0, epoch)),
			epoch);
	END IF;

	IF new_guard THEN
		PERFORM snowid_internal.add_guard("table", "column", s.shard);
	END IF;
	PERFORM snowid_internal.warn_of_grants("table", sequence);
END
$$;

COMMENT ON FUNCTION snowid.set_default(regclass, name, boolean, boolean) IS
'gives a column of a table in a shard the shard''s ids as its DEFAULT';

-- By what it depends on, since how names read is a matter of settings.
CREATE FUNCTION snowid_internal.makes_ids(attrdef oid)
RETURNS boolean
LANGUAGE sql STABLE STRICT PARALLEL SAFE
RETURN EXISTS (SELECT FROM pg_depend d JOIN pg_proc p ON p.oid = d.refobjid
			   WHERE d.classid = 'pg_attrdef'::regclass AND d.objid = $1 AND d.refclassid = 'pg_proc'::regclass
				 AND p.pronamespace = 'snowid'::regnamespace AND p.proname = 'next_id');

COMMENT ON FUNCTION snowid_internal.makes_ids(oid) IS
'does a DEFAULT call snowid.next_id()?';

/*
 * id_call: the arguments of the call of snowid.next_id() in a DEFAULT, in whatever
 * notation; NULL for one that is no constant.
 */
CREATE FUNCTION snowid_internal.id_call(attrdef oid,
	OUT shard int, OUT seq regclass, OUT epoch timestamptz)
RETURNS record
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
SET quote_all_identifiers = off
SET datestyle = 'ISO'
AS $$
DECLARE
	token text;
	before text := '';
	depth int := 0;				-- of parentheses, the call's own being the first
	argument text := '';
	arguments int := 0;
	a text[];
BEGIN
	FOR token IN
		SELECT m[1] FROM pg_attrdef e, regexp_matches(pg_get_expr(e.adbin, e.adrelid),
			'''(?:[^'']|'''')*''|"(?:[^"]|"")*"|[][(),]|[^][(),''"]+', 'g') m WHERE e.oid = attrdef
	LOOP
		IF depth = 0 THEN
			depth := (token = '(' AND before ~ '\msnowid[.]next_id$')::int;
			before := token;
			CONTINUE;
		END IF;
		depth := depth + CASE WHEN token IN ('(', '[') THEN 1 WHEN token IN (')', ']') THEN -1 ELSE 0 END;
		IF depth > 1 OR depth = 1 AND token <> ',' THEN
			argument := argument || token;
			CONTINUE;
		END IF;
		arguments := arguments + 1;
		a := regexp_match(argument, '^ ?(?:([a-z]+) => )?(.*)$');
		CASE coalesce(a[1], ('{shard,seq,epoch}'::text[])[arguments])
			WHEN 'shard' THEN shard := substring(a[2] FROM '^[0-9]+$');
			WHEN 'seq' THEN seq := to_regclass(replace(substring(a[2] FROM '^''((?:[^'']|'''')*)''::regclass$'), '''''', ''''));
			ELSE epoch := substring(a[2] FROM '^''([^'']*)''::timestamp with time zone$');
		END CASE;
		EXIT WHEN depth = 0;
		argument := '';
	END LOOP;
	IF arguments = 2 THEN
		epoch := snowid.id_timestamp(0::bigint);
	END IF;
END
$$;

COMMENT ON FUNCTION snowid_internal.id_call(oid) IS
'arguments of a DEFAULT''s call of snowid.next_id()';

/*
 * check_sequence: refuses a sequence that cannot be a shard's.
 *
 * Errors: 42704 it is elsewhere, or no sequence, 55006 a DEFAULT counts with it.
 */
CREATE FUNCTION snowid_internal.check_sequence(sequence regclass, schema name)
RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	hint CONSTANT text := format('Type: CREATE SEQUENCE %I.%I; grant its use to the roles that insert; and name it in the call.',
								 schema, snowid_internal.free_name(schema, 'id'::text, '_seq'::text));
	s record;
	user_table text;
BEGIN
	SELECT q.relname, n.nspname, q.relkind INTO s
	FROM pg_class q JOIN pg_namespace n ON n.oid = q.relnamespace WHERE q.oid = sequence;
	IF s.relkind IS DISTINCT FROM 'S' OR s.nspname <> schema THEN
		RAISE EXCEPTION USING ERRCODE = 'undefined_object',
			MESSAGE = format('"%s" is not a sequence in schema "%s"', s.relname, schema),
			DETAIL = 'A shard''s sequence must be in its schema, since both move together.',
			HINT = hint;
	END IF;

	SELECT format('%I.%I', n.nspname, t.relname) INTO user_table
	FROM pg_depend d
	JOIN pg_attrdef ad ON d.classid = 'pg_attrdef'::regclass AND ad.oid = d.objid
	JOIN pg_class t ON t.oid = ad.adrelid
	JOIN pg_namespace n ON n.oid = t.relnamespace
	WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = sequence AND NOT snowid_internal.makes_ids(ad.oid)
	LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION USING ERRCODE = 'object_in_use',
			MESSAGE = format('sequence "%s" also numbers rows of table %s', s.relname, user_table),
			DETAIL = 'A shard''s sequence counts time, so those numbers would jump.',
			HINT = hint;
	END IF;
	-- The portable edition looks at privileges here.
END
$$;

COMMENT ON FUNCTION snowid_internal.check_sequence(regclass, name) IS
'refuses a sequence that cannot be a shard''s';

/*
 * register_shard: makes a schema a shard as it is.
 *
 * Registers it, and creates its sequence and its next_id() if they are not
 * there.  Of a shard that was made elsewhere, next_id() is replaced by the
 * same; any other is refused.
 *
 * Errors: those of claim_shard, 3F000 no such schema, 42723 a next_id() that
 * is no shard's, 55000 a DEFAULT of another number, those of check_sequence.
 */
CREATE FUNCTION snowid.register_shard(shard int, schema name,
	epoch timestamptz DEFAULT NULL, sequence name DEFAULT 'id_seq')
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	f record;
	copied record;
BEGIN
	PERFORM snowid_internal.claim_shard(shard, schema, sequence, epoch);
	IF to_regnamespace(quote_ident(schema)) IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'invalid_schema_name',
			MESSAGE = format('schema "%s" does not exist', schema),
			HINT = format('For a new shard, type: SELECT snowid.create_shard(%s, %L);', shard, schema);
	END IF;

	SELECT p.prosecdef,
		   EXISTS (SELECT FROM pg_depend d JOIN pg_proc c ON c.oid = d.refobjid
				   WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid
					 AND d.refclassid = 'pg_proc'::regclass
					 AND c.pronamespace = 'snowid_internal'::regnamespace) AS is_shards INTO f
	FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
	WHERE n.nspname = schema AND p.proname = 'next_id' AND p.pronargs = 0;
	IF NOT f.is_shards THEN
		RAISE EXCEPTION USING ERRCODE = 'duplicate_function',
			MESSAGE = format('schema "%s" has a function next_id() of its own', schema),
			HINT = format('If it is the PL/pgSQL snippet, type: SELECT snowid.adopt_shard(%s, %L);', shard, schema);
	END IF;

	-- In a copy of another shard, DEFAULTs can have that one's number.
	SELECT t.oid::regclass AS name, a.attname, n.nspname = 'snowid' AS is_own, q.number INTO copied
	FROM pg_class t JOIN pg_attrdef ad ON ad.adrelid = t.oid
	JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = ad.adnum
	JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = ad.oid AND d.refclassid = 'pg_proc'::regclass
	JOIN pg_proc p ON p.oid = d.refobjid AND p.proname = 'next_id' JOIN pg_namespace n ON n.oid = p.pronamespace
	LEFT JOIN snowid.shard_registry r ON r.schema = n.nspname,
	LATERAL (SELECT CASE n.nspname WHEN 'snowid' THEN (snowid_internal.id_call(ad.oid)).shard ELSE r.shard END) q (number)
	WHERE t.relkind IN ('r', 'p') AND t.relnamespace = to_regnamespace(quote_ident(register_shard.schema))
	  AND q.number <> register_shard.shard
	ORDER BY 1, 2 LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
			MESSAGE = format('column "%s" of table %s makes ids of shard %s', copied.attname, copied.name, copied.number),
			HINT = format('Type: ALTER TABLE %s ALTER COLUMN %I DROP DEFAULT; Then repeat the call, and type: SELECT snowid.set_default(%1$L, %2$L, %3$L);',
						  copied.name, copied.attname, copied.is_own);
	END IF;

	IF to_regclass(format('%I.%I', schema, sequence)) IS NULL THEN
		EXECUTE format('CREATE SEQUENCE %I.%I', schema, sequence);
	END IF;
	PERFORM snowid_internal.check_sequence(format('%I.%I', schema, sequence)::regclass, schema);
	PERFORM snowid_internal.define_next_id(schema, ''::text, shard, sequence, epoch,
										   coalesce(f.prosecdef, false));
END
$$;

COMMENT ON FUNCTION snowid.register_shard(int, name, timestamptz, name) IS
'makes a schema a logical shard as it is, with the tables and the sequence that it has';

/*
 * check_snippet: 22023 unless an id that the snippet has just made, and the
 * newest 100 of each column that has it as DEFAULT, are of that shard and epoch.
 * Returns the newest.
 */
CREATE FUNCTION snowid_internal.check_snippet(shard int, schema name,
	function oid, epoch timestamptz)
RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	snippet_call text;
	c record;
	ids bigint[];
	id bigint;
	newest bigint;
	origin text;
BEGIN
	-- A new id of the snippet shows its epoch, layout and shard, also if the
	-- tables are empty.
	snippet_call := format('SELECT %I.next_id()', schema);
	PERFORM set_config('search_path', format('%I, public, pg_temp', schema), true);
	EXECUTE snippet_call INTO id;
	PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
	IF snowid.id_shard(id) <> shard
	   OR abs(extract(epoch FROM snowid.id_timestamp(id, epoch) - clock_timestamp())) > 60
	THEN
		origin := format('function %I.next_id() has just made it', schema);
	ELSE
		FOR c IN
			SELECT DISTINCT a.attname, t.oid::regclass AS "table", t.oid::regclass::text
			FROM pg_depend d
			JOIN pg_attrdef ad ON d.classid = 'pg_attrdef'::regclass AND ad.oid = d.objid
			JOIN pg_attribute a ON a.attrelid = ad.adrelid AND a.attnum = ad.adnum
			JOIN pg_class t ON t.oid = ad.adrelid AND t.relkind IN ('r', 'p')
			WHERE d.refclassid = 'pg_proc'::regclass AND d.refobjid = function
			  AND snowid_internal.is_bigint(a.atttypid)
			ORDER BY 3, 1
		LOOP
			PERFORM snowid_internal.lock_table(c."table", 'ACCESS SHARE'::text);
			ids := snowid_internal.read_ids(c."table", c.attname, '%1$I IS NOT NULL ORDER BY %1$I DESC LIMIT 100');
			newest := greatest(newest, ids[1]);
			FOREACH id IN ARRAY ids LOOP
				IF snowid.id_shard(id) <> shard
				   OR snowid.id_timestamp(id, epoch) > clock_timestamp() + interval '1 day'
				THEN
					origin := format('it is in column %I of table %s', c.attname, c."table");
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
			HINT = 'Pass the snippet''s shard number and epoch, or correct the rows that the snippet did not make.';
	END IF;
	RETURN newest;
END
$$;

COMMENT ON FUNCTION snowid_internal.check_snippet(int, name, oid, timestamptz) IS
'refuses a PL/pgSQL snippet whose ids are not of that shard and epoch; returns the newest';

/*
 * adopt_shard: takes over a schema whose next_id() is the PL/pgSQL snippet.
 *
 * Replaces that function in place, so that no table changes.  New ids are above
 * those that are there.  The sequence and the epoch are read from the
 * function's text unless given.  Returns the newest id found, NULL if none.
 *
 * Errors: those of claim_shard, check_sequence and check_snippet, 42883 no
 * function next_id(), 42P13 one whose sequence or epoch can't be read.
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
	sequence_name name;
	found_texts text[];
	used regclass;			-- the sequence that the snippet uses
	newest bigint;
BEGIN
	-- First, so that numbers and rights are checked before the rest.
	PERFORM snowid_internal.claim_shard(shard, schema, 'id_seq'::name, epoch),
		snowid_internal.check_right('create'::text, 'snowid.shard_registry'::regclass, 'UPDATE'::text);

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
				ELSE format('To make it a shard as it is, type: SELECT snowid.register_shard(%s, %L%s); and then snowid.set_default() for each table.',
							shard, schema, ', ' || quote_literal(epoch)) END;
	END IF;

	found_texts := ARRAY(SELECT DISTINCT replace(m[1], '''''', '''')
						 FROM regexp_matches(f.prosrc, 'nextval[[:space:]]*[(][[:space:]]*''((?:[^'']|'''')+)''', 'gi') m);
	IF cardinality(found_texts) = 1 THEN
		-- A name without a schema is looked up in the shard first.
		PERFORM set_config('search_path', format('%I, public, pg_temp', schema), true);
		used := pg_catalog.to_regclass(found_texts[1]);
		PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
	END IF;
	sequence := coalesce(sequence, used);

	IF epoch IS NULL THEN
		found_texts := ARRAY(SELECT DISTINCT m[1]
							 FROM regexp_matches(f.prosrc, '[[:<:]]([0-9]{12,13})[[:>:]]', 'g') m);
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

	PERFORM snowid_internal.check_sequence(sequence, schema);
	SELECT q.relname INTO sequence_name FROM pg_class q WHERE q.oid = sequence;
	UPDATE snowid.shard_registry r
	SET sequence = sequence_name, epoch = nullif(adopt_shard.epoch, default_epoch)
	WHERE r.shard = adopt_shard.shard;

	newest := snowid_internal.check_snippet(shard, schema, f.oid, epoch);

	-- Every call of the snippet holds a lock on its sequence to the end of its
	-- transaction.  So this waits for ids that are not committed yet, and later
	-- calls wait until next_id() is the new one.  OWNED BY NONE, since a serial's
	-- sequence must not be dropped with its table any more.
	EXECUTE format('ALTER SEQUENCE %s AS bigint INCREMENT BY 1 NO MAXVALUE CACHE 1 NO CYCLE OWNED BY NONE', sequence);
	IF used <> sequence THEN
		EXECUTE format('ALTER SEQUENCE %s CACHE 1', used);
	END IF;

	-- One second ahead: a call of the snippet that waits for us still makes its
	-- id, just after our commit.  That id must not be one of ours.
	PERFORM snowid.advance(sequence,
		greatest(newest, snowid.make_id(clock_timestamp() + interval '1 second', shard, 0, epoch)),
		epoch);
	PERFORM snowid_internal.define_next_id(schema, f.arguments, shard, sequence_name,
										   nullif(epoch, default_epoch), f.prosecdef);
	RETURN newest;
END
$$;

COMMENT ON FUNCTION snowid.adopt_shard(int, name, regclass, timestamptz) IS
'takes over a schema that runs the PL/pgSQL snippet, as a logical shard';


/* -------- tables by time -------- */

/*
 * create_partition: the partition of a table for the ids of a time range.
 *
 * Returns it, also if it is there already, so that a timer can repeat the
 * call.  It is made beside the table and then attached, since CREATE TABLE ...
 * PARTITION OF blocks all readers and writers of the table.
 *
 * Without an epoch it takes that of the table's shard, or the default one.  The
 * name shows since, in the session's time zone.  An hour is in UTC, since one
 * hour of the year comes twice.
 *
 * Errors: 22004 a NULL, 42809 not partitioned, 42P17 by another key, or it
 * would overlap, 22023 since not before until, 22008 times that no id has,
 * SN001 and SN002 of a closed shard.
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
	SELECT c.relname, n.nspname, c.relowner, k.partstrat, k.partnatts, a.atttypid, s.spcname, r.epoch
	INTO t
	FROM pg_class c
	JOIN pg_namespace n ON n.oid = c.relnamespace
	LEFT JOIN snowid.shard_registry r ON r.schema = n.nspname
	LEFT JOIN pg_partitioned_table k ON k.partrelid = c.oid
	LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.partattrs[0]
	LEFT JOIN pg_tablespace s ON s.oid = c.reltablespace
	WHERE c.oid = parent;
	IF t.partstrat IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'wrong_object_type',
			MESSAGE = format('"%s" is not a partitioned table', coalesce(t.relname, parent::text)),
			HINT = 'Create the table with PARTITION BY RANGE (id).';
	END IF;
	IF t.partstrat <> 'r' OR t.partnatts <> 1 OR snowid_internal.is_bigint(t.atttypid) IS NOT TRUE THEN
		RAISE EXCEPTION USING ERRCODE = 'invalid_object_definition',
			MESSAGE = format('table "%s" is not partitioned by range of one bigint column', t.relname),
			DETAIL = format('It is partitioned by %s.', pg_get_partkeydef(parent));
	END IF;

	epoch := coalesce(epoch, t.epoch, snowid.id_timestamp(0::bigint));
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

	-- If two sessions make the same one, the second waits and then finds it.  A shard that
	-- has moved meanwhile gets none here.
	PERFORM snowid_internal.lock_table(parent, 'SHARE UPDATE EXCLUSIVE'::text);
	PERFORM snowid_internal.refuse_relation(parent);
	FOR p IN
		SELECT c.oid, c.relname, nullif(b[1], 'MINVALUE')::bigint AS low, nullif(b[2], 'MAXVALUE')::bigint AS high
		FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid,
			 regexp_match(pg_get_expr(c.relpartbound, c.oid),
						  '^FOR VALUES FROM [(]''?([^'')]+)''?[)] TO [(]''?([^'')]+)''?[)]$') b
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
	partition := snowid_internal.clip_name(t.relname::text, suffix);

	EXECUTE format('CREATE TABLE %I.%I (LIKE %s INCLUDING ALL EXCLUDING IDENTITY)%s',
				   t.nspname, partition, parent, ' TABLESPACE ' || quote_ident(t.spcname));
	IF pg_get_userbyid(t.relowner) <> current_user THEN
		EXECUTE format('ALTER TABLE %I.%I OWNER TO %s', t.nspname, partition, t.relowner::regrole);
	END IF;
	EXECUTE format('ALTER TABLE %s ATTACH PARTITION %I.%I FOR VALUES FROM (%s) TO (%s)',
				   parent, t.nspname, partition, low, high);
	RETURN format('%I.%I', t.nspname, partition)::regclass;
END
$$;

COMMENT ON FUNCTION snowid.create_partition(regclass, timestamptz, timestamptz, timestamptz) IS
'makes the partition of a table for the ids of a time range, unless it exists';

/*
 * shards_with: the tables of that name in the shards that live here, those with
 * the newest ids first.  last_id: no row has a larger id; NULL if there could be
 * any, since the sequence can't be read, all rows were loaded, or Citus has them.
 * mixed: they have different epochs.
 */
CREATE FUNCTION snowid_internal.shards_with(table_name name, "column" name,
	distributed oid[], OUT "table" regclass, OUT last_id bigint, OUT mixed boolean)
RETURNS SETOF record
LANGUAGE sql STABLE PARALLEL UNSAFE
BEGIN ATOMIC
	SELECT c.oid::regclass AS "table",
		   CASE WHEN c.oid <> ALL (distributed)
				THEN (SELECT coalesce(snowid.max_id(state.last_id_at, e.epoch),
									  CASE WHEN c.relkind = 'r' AND pg_relation_size(c.oid) = 0 THEN 0 END)
					  FROM snowid_internal.state_of(q.oid, e.epoch) state)
		   END AS last_id,
		   min(e.epoch) OVER () <> max(e.epoch) OVER () AS mixed
	FROM snowid.shard_registry r
	JOIN pg_namespace ns ON ns.nspname = r.schema
	JOIN pg_class c ON c.relnamespace = ns.oid AND c.relname = table_name AND c.relkind IN ('r', 'p')
	CROSS JOIN LATERAL snowid_internal.epoch_of(r) e (epoch)
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
	ORDER BY last_id DESC;
END;

COMMENT ON FUNCTION snowid_internal.shards_with(name, name, oid[]) IS
'tables of a name in the shards that live here, those with the newest ids first';

/*
 * newest_rows: the newest rows of a table over all shards of this server, the
 * newest first.
 *
 * The first argument is a NULL of a row type.  It gives the table's name and
 * the columns.  before: only smaller ids, for the next page.
 *
 * No row of a shard has a larger id than the last one of its sequence (or of
 * the sequence that the column's DEFAULT names).  So shards are visited in the
 * order of their last ids, until no other shard can have one of the n newest.
 * Each is asked only for rows that are newer than the n-th so far.
 *
 * STABLE, so that all shards are read in one snapshot.
 *
 * Errors: 22004 a NULL, 42809 not a row type, 42703 no such column, 42804 a
 * column that is not bigint, 2201W n is negative, 0A000 shards of different
 * epochs, or registered on another node of Citus.
 */
CREATE FUNCTION snowid.newest_rows(row_type anyelement, n int,
	before bigint DEFAULT NULL, "column" name DEFAULT 'id')
RETURNS SETOF anyelement
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	distributed CONSTANT oid[] := ARRAY(SELECT * FROM snowid_internal.citus_oids('table'::text));
	t record;
	s record;
	news bigint[];				-- of one shard
	ids bigint[] := '{}';		-- the newest so far
	tables regclass[] := '{}';	-- and where they are
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
	SELECT c.relname, c.oid, n.nspname,
		   (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)
			FROM pg_attribute a
			WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns
	INTO t
	FROM pg_type y JOIN pg_class c ON c.oid = y.typrelid
	JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE y.oid = pg_typeof(row_type);
	IF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = 'wrong_object_type',
			MESSAGE = format('type %s is not the row type of a table', pg_typeof(row_type)),
			HINT = 'Name a table of any shard, as in: SELECT * FROM snowid.newest_rows(NULL::insta0.photos, 50);';
	END IF;

	-- Citus copies tables to its workers, but not the registry.
	IF t.oid = ANY (distributed)
	   AND NOT EXISTS (SELECT FROM snowid.shard_registry r WHERE r.schema = t.nspname)
	THEN
		RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
			MESSAGE = format('the shards with a table "%s" are not registered on this node of Citus', t.relname),
			HINT = 'Connect to the node where they were created, which is the coordinator.';
	END IF;

	FOR s IN
		SELECT * FROM snowid_internal.shards_with(t.relname, "column", distributed)
	LOOP
		IF s.mixed THEN
			RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
				MESSAGE = format('shards with a table "%s" have different epochs', t.relname),
				DETAIL = 'Their ids do not sort by time together.',
				HINT = 'Read each shard, and sort by snowid.id_timestamp(id, epoch). The view snowid.shards has the epochs.';
		END IF;
		EXIT WHEN n = 0 OR s.last_id <= least_id;
		CONTINUE WHEN NOT snowid_internal.lock_table(s."table", 'ACCESS SHARE'::text, true);
		news := snowid_internal.read_ids(s."table", "column",
			format('%%1$I > %L AND %%1$I < %L ORDER BY %%1$I DESC LIMIT %s',
				   coalesce(least_id, -9223372036854775808), coalesce(before, 9223372036854775807), n));
		CONTINUE WHEN news = '{}';

		SELECT array_agg(m.id ORDER BY m.id DESC), array_agg(m.name ORDER BY m.id DESC)
		INTO ids, tables
		FROM (SELECT u.id, u.name
			  FROM (SELECT * FROM unnest(ids, tables)
					UNION ALL
					SELECT f.id, s."table" FROM unnest(news) f (id)) u (id, name)
			  ORDER BY u.id DESC LIMIT n) m;
		least_id := ids[n];
	END LOOP;

	-- If the column is not unique, an id can have several rows, or too many.
	FOR s IN SELECT u.id, u.name, count(*) AS n FROM unnest(ids, tables) u (id, name) GROUP BY 1, 2 ORDER BY 1 DESC LOOP
		RETURN QUERY EXECUTE format('SELECT %s FROM %s WHERE %I = $1 LIMIT $2', t.columns, s.name, "column")
		USING s.id, s.n;
	END LOOP;
END
$$;

COMMENT ON FUNCTION snowid.newest_rows(anyelement, int, bigint, name) IS
'newest rows of a table over all shards of this server, as in newest_rows(NULL::insta0.photos, 50)';

/*
 * shard_load: how large the shards of this server are, and how fast they grow.
 *
 * For whoever balances servers or drains one.  It reads no table: sizes are
 * those of the files, rows an estimate of ANALYZE, or counted before one, and inserts are counted by
 * the server, at the beginning of the period and at its end.  Of a shard with
 * tables that Citus has distributed only the number of tables is known here.
 *
 * Errors: 22023 period not positive, or over an hour; 55000 a period where the
 * server does not count.
 */
CREATE FUNCTION snowid.shard_load(period interval DEFAULT NULL)
RETURNS TABLE (shard int, schema name, tables int, bytes bigint, rows bigint, inserts_per_second float8)
LANGUAGE plpgsql VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	distributed CONSTANT oid[] := ARRAY(SELECT * FROM snowid_internal.citus_oids('table'::text));
	before jsonb;				-- inserts until then, by table
	start timestamptz;
	seconds float8;
BEGIN
	IF period <= interval '0' OR period > interval '1 hour' THEN
		RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
			MESSAGE = 'period must be more than 0, and at most an hour';
	END IF;
	IF period IS NOT NULL AND (pg_is_in_recovery() OR NOT current_setting('track_counts')::boolean) THEN
		RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
			MESSAGE = 'this server does not count inserts',
			HINT = 'Ask a primary, with track_counts = on.';
	END IF;
	IF period IS NOT NULL THEN
		PERFORM pg_stat_clear_snapshot();
		start := clock_timestamp();
		SELECT jsonb_object_agg(c.oid, pg_stat_get_tuples_inserted(c.oid)) INTO before
		FROM snowid.shard_registry r
		JOIN pg_namespace n ON n.nspname = r.schema
		JOIN pg_class c ON c.relnamespace = n.oid AND c.relkind = 'r';
		PERFORM pg_sleep(extract(epoch FROM period));
		PERFORM pg_stat_clear_snapshot();
		seconds := extract(epoch FROM clock_timestamp() - start);
	END IF;
	RETURN QUERY
	SELECT r.shard, r.schema, count(c.oid)::int,
		   CASE WHEN k.known THEN coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint END,
		   CASE WHEN k.known THEN coalesce(sum(CASE WHEN c.reltuples < 0 THEN pg_stat_get_live_tuples(c.oid) ELSE c.reltuples END) FILTER (WHERE c.relkind = 'r'), 0)::bigint END,
		   CASE WHEN k.known AND seconds > 0 THEN
				greatest(coalesce(sum(pg_stat_get_tuples_inserted(c.oid) - coalesce((before ->> c.oid::text)::bigint, 0))
									FILTER (WHERE c.relkind = 'r'), 0)::float8 / seconds, 0) END
	FROM snowid.shard_registry r
	JOIN pg_namespace n ON n.nspname = r.schema
	LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relkind IN ('r', 'p')
	CROSS JOIN LATERAL (SELECT NOT EXISTS (SELECT FROM pg_class d WHERE d.relnamespace = n.oid
										   AND d.oid = ANY (distributed))) k (known)
	WHERE snowid_internal.lives(r) IN ('here', 'closed')
	GROUP BY r.shard, r.schema, k.known
	ORDER BY r.shard;
END
$$;

COMMENT ON FUNCTION snowid.shard_load(interval) IS
'size of each shard of this server, and its inserts a second over a period';


/* -------- moving shards -------- */

/*
 * shard_home: tells clients where to write a shard.
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
		PERFORM snowid_internal.refuse_unknown(shard);
	END IF;
	RETURN snowid_internal.lives(r);
END
$$;

COMMENT ON FUNCTION snowid.shard_home(int) IS
'where to write a shard: here, or a connection string';

/*
 * refuse_relation: raises the error of a shard that is closed here, if the
 * sequence or table belongs to one, and else returns: true to the sessions that
 * fill it from another server.
 *
 * next_id() calls it when a sequence has reached its MAXVALUE, and the fence's
 * trigger on each statement.  They see to it that it reads the journal as it is
 * now.
 *
 * Errors: SN001 it lives elsewhere, SN002 it is closed, or not open yet.
 */
CREATE FUNCTION snowid_internal.refuse_relation(relation regclass)
RETURNS boolean
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	m record;
	home text;
BEGIN
	SELECT j.shard, j.role, j.step, r.home INTO m
	FROM snowid.moves j
	JOIN pg_namespace n ON n.nspname = j.schema
	JOIN pg_class c ON c.relnamespace = n.oid
	LEFT JOIN snowid.shard_registry r ON r.shard = j.shard
	WHERE j.closed AND c.oid = relation;
	IF NOT FOUND THEN
		SELECT o.shard, o.kind, o.schema INTO m
		FROM snowid.copies o JOIN pg_namespace n ON n.nspname = o.schema JOIN pg_class c ON c.relnamespace = n.oid
		WHERE c.oid = relation;
		IF FOUND THEN
			RAISE EXCEPTION USING ERRCODE = 'SN002',
				MESSAGE = format('schema "%s" is closed for writing', m.schema),
				DETAIL = format(CASE WHEN m.kind LIKE 'cop%' THEN 'It is a copy of shard %s.' ELSE 'It is what shard %s was before another state of it took its place.' END, m.shard),
				HINT = 'Write to the shard: repeat the transaction.';
		END IF;
		RETURN false;
	END IF;
	-- The copy may read all of the journal; writers need not.
	IF m.role = 'target' AND m.step = 'schema' AND current_setting('snowid_move.copies', true) <> '' THEN
		IF current_setting('snowid_move.copies') = (SELECT j.details ->> 'move_id' FROM snowid.moves j WHERE j.shard = m.shard) THEN
			RETURN true;
		END IF;
	END IF;

	-- As lives() has it.
	home := CASE WHEN m.step NOT IN ('closed', 'open') THEN m.home END;
	IF m.role = 'target' AND m.step <> 'open' THEN
		RAISE EXCEPTION USING ERRCODE = 'SN002',
			MESSAGE = format('shard %s is not open here yet', m.shard),
			DETAIL = format('It is being moved here from "%s".', home),
			HINT = 'Write there until the move is complete, and then here.';
	END IF;
	IF nullif(home, '') IS NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'SN002',
			MESSAGE = format('shard %s is closed for writing', m.shard),
			HINT = format('The extension''s owner can type: SELECT snowid.unfence_shard(%s);', m.shard);
	END IF;
	RAISE EXCEPTION USING ERRCODE = 'SN001',
		MESSAGE = format('shard %s has moved', m.shard),
		DETAIL = 'This server only keeps a copy, which is closed.',
		HINT = format('Write to its new home: %s', home);
END
$$;

COMMENT ON FUNCTION snowid_internal.refuse_relation(regclass) IS
'raises the fence''s error if a sequence or table belongs to a closed shard';

/*
 * refuse_write: the fence, a statement trigger on each table of a closed
 * shard.
 *
 * It does not stop apply workers of logical replication, which run with
 * session_replication_role = replica.  It is a trigger, and not privileges,
 * since it must also stop owners, superusers, and statements that have been
 * waiting for a lock or were prepared long ago.
 *
 * Errors: those of refuse_relation; SN002 also if the journal knows nothing.
 */
CREATE FUNCTION snowid_internal.refuse_write()
RETURNS trigger
LANGUAGE c VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'snowid_refuse_write';

COMMENT ON FUNCTION snowid_internal.refuse_write() IS
'trigger on the tables of a shard that is closed for writing';

/*
 * shard_tables: the tables of schemas, those first that others refer to or
 * are partitions of.
 *
 * Most transactions write in this order.  So a lock on all of them, taken in
 * this order, seldom leads to a deadlock.
 */
CREATE FUNCTION snowid_internal.shard_tables(VARIADIC schemas name[])
RETURNS SETOF regclass
LANGUAGE sql STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
WITH RECURSIVE t AS (
	SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE n.nspname = ANY ($1) AND c.relkind IN ('r', 'p')
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
SELECT oid::regclass FROM below GROUP BY oid ORDER BY max(depth), oid;
END;

COMMENT ON FUNCTION snowid_internal.shard_tables(name[]) IS
'tables of schemas, those first that others refer to';

/*
 * prepare_table: makes the fence's trigger, disabled, so that to close the table
 * is to enable it.  Does nothing then if the table has a trigger of that name.
 *
 * Its argument says that it stays when the shard is opened, disabled.  If the table
 * is to be closed, the trigger is enabled, and has none.
 *
 * Errors: 42501 not the owner, 55P03 lock_timeout, 42710 there is one to be closed.
 */
CREATE FUNCTION snowid_internal.prepare_table("table" regclass, closed boolean DEFAULT false)
RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF NOT closed AND EXISTS (SELECT FROM pg_trigger WHERE tgrelid = "table" AND tgname = 'snowid_fence') THEN
		RETURN;
	END IF;
	PERFORM snowid_internal.lock_table("table", 'SHARE ROW EXCLUSIVE'::text);
	EXECUTE format('CREATE TRIGGER snowid_fence '
				   'BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s '
				   'FOR EACH STATEMENT EXECUTE FUNCTION snowid_internal.refuse_write(%s)',
				   "table", CASE WHEN NOT closed THEN 'prepared' END);
	IF NOT closed THEN
		EXECUTE format('ALTER TABLE %s DISABLE TRIGGER snowid_fence', "table");
	END IF;
END
$$;

COMMENT ON FUNCTION snowid_internal.prepare_table(regclass, boolean) IS
'makes the fence''s trigger on a table, disabled or enabled';

/*
 * lock_relations: locks tables and sequences, in this order, against all who
 * write there or take ids, to the end of the transaction.
 *
 * Errors: 42501 not the owner, 42P01 dropped meanwhile, 55P03 lock_timeout,
 * 40P01 deadlock.
 */
CREATE FUNCTION snowid_internal.lock_relations(relations oid[])
RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'snowid_lock_relations';

COMMENT ON FUNCTION snowid_internal.lock_relations(oid[]) IS
'locks tables and sequences against writers';

/*
 * enable_fence: enables the triggers of tables, or disables them.
 *
 * Returns the tables that need more: to be closed, those that have not such a
 * trigger; to be opened, those whose trigger was not prepared.
 *
 * Errors: as lock_relations.
 */
CREATE FUNCTION snowid_internal.enable_fence(tables oid[], closed boolean)
RETURNS oid[]
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'snowid_enable_fence';

COMMENT ON FUNCTION snowid_internal.enable_fence(oid[], boolean) IS
'enables or disables the fence''s triggers on tables';

/*
 * sequence_value: last_value and is_called of a sequence.  If its ids have the
 * epoch, no slot is after last, although a crash can have set the page back.
 *
 * By OID: whoever owns the schema can put a view in the place of a name, and
 * what a view calls runs as its reader.  The portable edition has a subtransaction,
 * which PostgreSQL 15 and 16 refuse beside parallel workers.
 *
 * Errors: 42P01 no such sequence, 42501 no right to read it.
 */
CREATE FUNCTION snowid_internal.sequence_value(seq regclass, epoch timestamptz,
	OUT last bigint, OUT called boolean)
RETURNS record
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'snowid_sequence_value';

COMMENT ON FUNCTION snowid_internal.sequence_value(regclass, timestamptz) IS
'last_value and is_called of a sequence';

-- In the instant between a look and the reading, a schema can still be renamed, and
-- another come in its place.  Where the server can, these functions then refuse
-- views and foreign tables: PostgreSQL 15.8, 16.4, 17 and later.
DO $$
DECLARE
	f pg_catalog.regprocedure;
BEGIN
	IF pg_catalog.current_setting('restrict_nonsystem_relation_kind', true) IS NOT NULL THEN
		FOR f IN
			SELECT p.oid FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid OPERATOR(pg_catalog.=) p.prolang
			WHERE p.oid OPERATOR(pg_catalog.=) ANY ('{snowid.newest_rows,snowid_internal.read_ids,snowid_internal.sequence_value}'::pg_catalog.regproc[]::pg_catalog.oid[])
			  AND l.lanname OPERATOR(pg_catalog.=) 'plpgsql'::pg_catalog.name
		LOOP
			EXECUTE pg_catalog.format('ALTER FUNCTION %s SET restrict_nonsystem_relation_kind = %L', f, 'view, foreign-table');
		END LOOP;
	END IF;
END
$$;

-- If an earlier installation of the extension has made ids here, its reservation
-- is gone.  A crash can have set sequences back, or will do so.  With a clock that
-- was right, it was 2 seconds ahead at most; if it was not, sequences show it.  So
-- new ids start above both.
-- (2^40 is a time, if the epoch is over 12 days ago, and no plain counter.)
SELECT pg_catalog.setval('snowid_internal.reservation', pg_catalog.ceil(1000 * extract(epoch FROM
	greatest(pg_catalog.clock_timestamp() + interval '2 seconds',
			 pg_catalog.max(u.at) FILTER (WHERE u.at <= pg_catalog.clock_timestamp() + interval '1 day'))))::bigint)
FROM pg_catalog.pg_sequence q JOIN pg_catalog.pg_class c ON c.oid = q.seqrelid,
	 snowid_internal.sequence_value(
		CASE WHEN c.relpersistence <> 't' AND q.seqmax > 1::bigint << 40 AND has_sequence_privilege(c.oid, 'SELECT') THEN c.oid END,
		snowid.id_timestamp(0::bigint)) v,
	 snowid.id_timestamp((v.last >> 10) + 1 << 23) AS u(at)
WHERE v.last BETWEEN 1::bigint << 40 AND 1::bigint << 50
HAVING pg_catalog.count(*) > 0;

/*
 * define_sequence: changes the definition of a sequence, not its state.
 *
 * With new_file, the state is unset, and to be set by setval(), which a
 * rollback then takes back; and what sessions have cached is void.
 *
 * Errors: as lock_relations; 42809 not a sequence, 22023 a definition that no
 * sequence of its type can have.
 */
CREATE FUNCTION snowid_internal.define_sequence(seq oid, min bigint, max bigint,
	start bigint, cycle boolean, new_file boolean)
RETURNS void
LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'snowid_define_sequence';

COMMENT ON FUNCTION snowid_internal.define_sequence(oid, bigint, bigint, bigint, boolean, boolean) IS
'changes the definition of a sequence';

/*
 * close_sequences: each of these sequences, which must be locked, ends at its
 * last value.  Returns their states and definitions, by schema, for
 * open_shards.
 *
 * setval() logs the state as it is, so that a crash does not leave one beyond
 * the end: a dump of that could not be restored.  A sequence that was never
 * called would give its first number whatever its end is; so it has to be called,
 * and as that cannot be undone, in a new file.
 */
CREATE FUNCTION snowid_internal.close_sequences(sequences oid[])
RETURNS TABLE (schema name, states jsonb)
LANGUAGE sql VOLATILE STRICT PARALLEL UNSAFE
BEGIN ATOMIC
WITH v AS (
	-- In a list of results, so that it is called for these sequences alone.
	SELECT c.oid, c.relname, n.nspname,
		snowid_internal.sequence_value(c.oid, snowid_internal.epoch_of(r)) AS value
	FROM unnest($1) u (oid)
	JOIN pg_class c ON c.oid = u.oid JOIN pg_namespace n ON n.oid = c.relnamespace
	LEFT JOIN snowid.shard_registry r ON r.schema = n.nspname
), s AS (
	SELECT v.nspname, v.relname, q.*, p.*, q.seqincrement > 0 AS rises,
		-- MINVALUE must be below MAXVALUE, so the last number of the type, in the
		-- wrong direction, is one that no sequence ends at.
		CASE WHEN q.seqincrement > 0 AND p.last = -y.top - 1 THEN p.last + 1
			 WHEN q.seqincrement < 0 AND p.last = y.top THEN p.last - 1
			 ELSE p.last END AS ending
	FROM v
	JOIN pg_sequence q ON q.seqrelid = v.oid
	JOIN (VALUES ('int2'::regtype, 32767), ('int4'::regtype, 2147483647),
				 ('int8'::regtype, 9223372036854775807)) y (type, top) ON y.type = q.seqtypid,
	LATERAL (SELECT (v.value).last, (v.value).called) p
), closed AS (
	SELECT s.*,
		snowid_internal.define_sequence(seqrelid, ending - rises::int, ending + (NOT rises)::int, ending,
										false, NOT called OR seqcache > 1 OR ending <> last),
		setval(seqrelid::regclass, ending, true)
	FROM s
)
SELECT nspname, jsonb_object_agg(relname, jsonb_build_object(
	-- next_id() ignores MINVALUE, but setval() checks it.
	'last', last, 'called', called, 'min', least(seqmin, last), 'max', greatest(seqmax, last),
	'start', seqstart, 'cycle', seqcycle))
FROM closed GROUP BY nspname;
END;

COMMENT ON FUNCTION snowid_internal.close_sequences(oid[]) IS
'closes sequences of shards, and returns their states';

/*
 * close_shards: closes shards for writing on this server, from the commit on;
 * see fence_shard.
 *
 * What is found before the locks is done with before any writer waits.  Under
 * them, prepared triggers are enabled; what has none yet gets one.
 *
 * A writer by DEFAULT locks the table and then the sequence; one that asks for
 * its id first, the other way round.  So does this, by turns: who holds what it
 * waits for, and waits for what it holds, is let go.  The second wait is short,
 * so that no writer is the one who is cancelled for the deadlock.
 */
CREATE FUNCTION snowid_internal.close_shards(shards int[], home text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	wait int := (SELECT setting FROM pg_settings WHERE name = 'lock_timeout');
	give_up_at timestamptz := clock_timestamp() + make_interval(secs => nullif(wait, 0) / 1000.0);
	short_wait text := least(nullif(wait, 0), 100);
	attempt int := 1;
	s int;
	schemas name[];
	n name;
	t oid;
	tables oid[];
	sequences oid[];
BEGIN
	FOR s IN SELECT u FROM unnest(shards) u WHERE NOT EXISTS (SELECT FROM snowid.shard_registry r WHERE r.shard = u) LOOP
		PERFORM snowid_internal.refuse_unknown(s);
	END LOOP;
	schemas := ARRAY(SELECT r.schema FROM snowid.shard_registry r WHERE r.shard = ANY (shards));

	SELECT r.shard, r.schema INTO s, n
	FROM snowid.shard_registry r JOIN pg_namespace p ON p.nspname = r.schema
	WHERE r.shard = ANY (shards) AND p.oid IN (SELECT * FROM snowid_internal.citus_oids('copy'::text)) LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
			MESSAGE = format('shard %s cannot be closed, since Citus has copied schema "%s" to its nodes', s, n),
			DETAIL = 'What closes it here would not close it there.',
			HINT = format('To move it, type: SELECT citus_schema_move(%L, host, port);', n);
	END IF;

	-- First, before anybody has to wait.
	PERFORM snowid_internal.check_right('close'::text, 'snowid.moves'::regclass, 'SELECT, INSERT, UPDATE'::text),
		snowid_internal.check_right('close'::text, 'snowid.shard_registry'::regclass, 'SELECT, UPDATE'::text);
	WITH i AS (
		INSERT INTO snowid.moves AS m (shard, schema, role, step, closed)
		SELECT r.shard, r.schema, 'source', CASE WHEN close_shards.home IS NULL THEN 'closed' ELSE 'fenced' END, true
		FROM snowid.shard_registry r WHERE r.shard = ANY (shards) ORDER BY r.shard
		ON CONFLICT ON CONSTRAINT moves_pkey DO UPDATE
		SET closed = true, changed_at = clock_timestamp()
		WHERE NOT m.closed
		RETURNING m.shard
	)
	SELECT min(u) INTO s FROM unnest(shards) u WHERE u NOT IN (SELECT i.shard FROM i);
	IF s IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
			MESSAGE = format('shard %s is closed already', s);
	END IF;

	LOOP
		tables := ARRAY(SELECT * FROM snowid_internal.shard_tables(VARIADIC schemas));
		sequences := ARRAY(SELECT c.oid FROM pg_class c JOIN pg_namespace p ON p.oid = c.relnamespace
						   WHERE p.nspname = ANY (schemas) AND c.relkind = 'S' ORDER BY c.oid);
		-- For the session's caches.
		PERFORM snowid_internal.sequence_value(u, snowid.id_timestamp(0::bigint)), pg_sequence_parameters(u)
		FROM unnest(sequences) u;
		BEGIN
			PERFORM snowid_internal.lock_relations(CASE attempt % 2 WHEN 1 THEN tables ELSE sequences END);
			PERFORM set_config('lock_timeout', short_wait, true);
			PERFORM snowid_internal.lock_relations(CASE attempt % 2 WHEN 1 THEN sequences ELSE tables END);
			EXIT;
		EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
			IF attempt = 20 OR clock_timestamp() > give_up_at THEN
				RAISE;
			END IF;
			attempt := attempt + 1;
		END;
	END LOOP;

	-- A sequence of ids that something has set to an id has a slot again before it
	-- is moved; advance() refuses one that is none of its ids.
	PERFORM CASE WHEN c.oid = ANY (sequences)
				 THEN CASE WHEN (snowid_internal.sequence_value(c.oid, snowid.id_timestamp(0::bigint))).last >> 50 > 0
						   THEN snowid.advance(c.oid, 0, snowid_internal.epoch_of(r)) END END
	FROM pg_class c JOIN pg_namespace p ON p.oid = c.relnamespace JOIN snowid.shard_registry r ON r.schema = p.nspname
	WHERE c.oid = ANY (sequences) AND (c.relname = r.sequence OR EXISTS (
		SELECT FROM pg_depend d WHERE d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass
		  AND d.refobjid = c.oid AND snowid_internal.makes_ids(d.objid)));

	FOREACH t IN ARRAY snowid_internal.enable_fence(tables, true) LOOP
		PERFORM snowid_internal.prepare_table(t::regclass, true);
	END LOOP;
	UPDATE snowid.moves m
	SET details = m.details || jsonb_build_object('sequences', coalesce(c.states, '{}'), 'home', r.home)
	FROM snowid.shard_registry r LEFT JOIN snowid_internal.close_sequences(sequences) c ON c.schema = r.schema
	WHERE r.shard = ANY (shards) AND m.shard = r.shard;
	UPDATE snowid.shard_registry r SET home = close_shards.home
	WHERE r.shard = ANY (shards) AND close_shards.home IS NOT NULL AND r.home IS DISTINCT FROM close_shards.home;
	PERFORM set_config('lock_timeout', wait::text, true);
END
$$;

COMMENT ON FUNCTION snowid_internal.close_shards(int[], text) IS
'closes shards for writing on this server';

/*
 * fence_shard: closes a shard for writing on this server, from the commit on.
 *
 * Enables a trigger on each table and closes each sequence at its last value;
 * unfence_shard takes both back.  Waits, within lock_timeout, for all
 * transactions that have written in the shard or taken ids; those that come
 * meanwhile wait for this one's end, and are then refused, or go on if it is
 * rolled back.  With home, the registry says that the shard lives there.
 *
 * Errors: 42704 unknown shard, 0A000 Citus has copied it, 55000 closed already,
 * 42501 not the owner of the tables or no right to the journal, 42P01 a
 * table or sequence dropped meanwhile, 55P03 lock_timeout, 40P01 deadlock, again
 * and again, 42710 a trigger of the fence's name that is not the fence's.
 */
CREATE FUNCTION snowid.fence_shard(shard int, home text DEFAULT NULL)
RETURNS void
LANGUAGE sql VOLATILE PARALLEL UNSAFE
RETURN snowid_internal.close_shards(ARRAY[shard], home);

COMMENT ON FUNCTION snowid.fence_shard(int, text) IS
'closes a shard for writing on this server';

/*
 * open_shards: opens shards that are closed; see unfence_shard.
 *
 * What a move has called ..._moved gets its name again.  Prepared triggers stay,
 * disabled; others are dropped.  A state that goes on from where the sequence is
 * can be set in place: rolled back, it is beyond the end of a closed sequence.
 */
CREATE FUNCTION snowid_internal.open_shards(shards int[], home text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
	m record;
	t oid;
	tables oid[];
BEGIN
	PERFORM snowid_internal.check_right('open'::text, 'snowid.moves'::regclass, 'SELECT, UPDATE, DELETE'::text),
		snowid_internal.check_right('open'::text, 'snowid.shard_registry'::regclass, 'SELECT, UPDATE'::text);
	PERFORM FROM snowid.moves j WHERE j.shard = ANY (shards) AND j.closed ORDER BY j.shard FOR UPDATE;
	FOR m IN
		SELECT u AS shard, j.shard AS found, j.peer, j.step, j.schema, r.schema AS own,
			   EXISTS (SELECT FROM snowid.shard_registry o WHERE o.schema = j.schema AND o.shard <> u)
			   OR j.schema <> r.schema AND j.schema <> snowid_internal.clip_name(r.schema, coalesce(substring(j.schema FROM '_moved[0-9]*$'), '')) AS is_strange
		FROM unnest(shards) u LEFT JOIN snowid.moves j ON j.shard = u AND j.closed
		LEFT JOIN snowid.shard_registry r ON r.shard = u ORDER BY u
	LOOP
		IF m.found IS NULL THEN
			RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
				MESSAGE = format('shard %s is not closed', coalesce(m.shard::text, 'NULL'));
		END IF;
		IF m.peer IS NOT NULL AND m.step NOT IN ('open', 'aborted') THEN
			RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
				MESSAGE = format('shard %s is being moved', m.shard),
				DETAIL = format('It may be open on the other server: %s', m.peer),
				HINT = format('Type snowid-move to go on, or snowid-move abort. Only if that server is lost for ever, type: UPDATE snowid.moves SET peer = NULL WHERE shard = %s; and repeat this call.', m.shard);
		END IF;
		IF m.own IS NULL THEN
			PERFORM snowid_internal.refuse_unknown(m.shard);
		END IF;
		-- It is what is opened: sequences get the states that the journal has.
		IF m.is_strange THEN
			RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
				MESSAGE = format('schema "%s", which the journal has closed, is not called as shard %s', m.schema, m.shard),
				HINT = CASE WHEN EXISTS (SELECT FROM snowid.shard_registry o WHERE o.schema = m.schema)
					THEN format('It is another shard''s. Correct the row of shard %s in snowid.moves.', m.shard)
					ELSE format('If it is the shard, type: ALTER SCHEMA %I RENAME TO %I; UPDATE snowid.moves SET schema = %2$L WHERE shard = %3$s; and repeat this call.',
								m.schema, m.own, m.shard) END;
		END IF;
	END LOOP;

	FOR m IN
		SELECT j.shard, j.schema AS called, r.schema
		FROM snowid.moves j JOIN snowid.shard_registry r ON r.shard = j.shard JOIN pg_namespace n ON n.nspname = j.schema
		WHERE j.shard = ANY (shards) AND j.closed AND j.schema <> r.schema
	LOOP
		EXECUTE format('ALTER SCHEMA %I RENAME TO %I', m.called, m.schema);
		UPDATE snowid.moves j SET schema = m.schema WHERE j.shard = m.shard;
	END LOOP;

	tables := ARRAY(SELECT g.tgrelid
					FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid
					JOIN pg_namespace n ON n.oid = c.relnamespace
					JOIN snowid.moves j ON j.schema = n.nspname
					WHERE j.shard = ANY (shards) AND g.tgname = 'snowid_fence' ORDER BY c.oid);
	FOREACH t IN ARRAY snowid_internal.enable_fence(tables, false) LOOP
		EXECUTE format('DROP TRIGGER snowid_fence ON %s', t::regclass);
	END LOOP;

	WITH v AS (
		-- In a list of results, so that it is called for these sequences alone.
		SELECT q.seqrelid AS oid, x.*, e.key = r.sequence OR EXISTS (
				SELECT FROM pg_depend d WHERE d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass
				  AND d.refobjid = q.seqrelid AND snowid_internal.makes_ids(d.objid)) AS makes_ids,
			(snowid_internal.sequence_value(q.seqrelid, snowid_internal.epoch_of(r))).last AS "at"
		FROM snowid.moves j JOIN pg_namespace n ON n.nspname = j.schema
		LEFT JOIN snowid.shard_registry r ON r.schema = n.nspname
		CROSS JOIN jsonb_each(j.details -> 'sequences') e
		CROSS JOIN jsonb_to_record(e.value) x (last bigint, called boolean, min bigint, max bigint,
											   start bigint, cycle boolean)
		-- By itself, so that it is looked up by both, and no plan walks the index by
		-- schema alone: once for each shard, all of the database.
		JOIN pg_sequence q ON q.seqrelid = (SELECT c.oid FROM pg_class c
											WHERE c.relname = e.key AND c.relnamespace = n.oid AND c.relkind = 'S')
		WHERE j.shard = ANY (shards)
	), s AS (
		SELECT v.*, v.at = q.seqstart AND v.makes_ids IS NOT TRUE AS at_end,
			CASE WHEN q.seqincrement > 0 THEN v.last >= v.at ELSE v.last <= v.at END AS goes_on
		FROM v JOIN pg_sequence q ON q.seqrelid = v.oid
	), state AS (
		-- What was taken after an opening that was rolled back stays taken; and ids never go back.
		SELECT s.oid, s.min, s.max, s.start, s.cycle, goes_on OR is_kept AS goes_on,
			CASE WHEN is_kept THEN "at" ELSE last END AS last, called OR is_kept AS called
		FROM (SELECT *, NOT (goes_on OR at_end OR cycle AND makes_ids IS NOT TRUE) AS is_kept FROM s) s
	), opened AS (
		SELECT snowid_internal.define_sequence(oid, least(min, last), greatest(max, last), start, cycle,
											   NOT called OR NOT goes_on),
			setval(oid::regclass, last, called)
		FROM state
	)
	SELECT count(*) INTO m FROM opened;

	UPDATE snowid.shard_registry r
	SET home = coalesce(open_shards.home, j.details ->> 'home')
	FROM snowid.moves j
	WHERE j.shard = ANY (shards) AND r.shard = j.shard
	  AND r.home IS DISTINCT FROM coalesce(open_shards.home, j.details ->> 'home');
	DELETE FROM snowid.moves j WHERE j.shard = ANY (shards) AND j.peer IS NULL;
	UPDATE snowid.moves j
	SET closed = false, details = j.details - 'sequences' - 'home', changed_at = clock_timestamp()
	WHERE j.shard = ANY (shards);
END
$$;

COMMENT ON FUNCTION snowid_internal.open_shards(int[], text) IS
'opens shards that are closed';

/*
 * unfence_shard: opens a shard that fence_shard closed.
 *
 * The registry says again what it said before, or home.  Of a shard that
 * snowid-move has closed, only that program knows whether it is open on the
 * other server; so this refuses, unless the program has said so in the journal.
 *
 * Errors: 42704 unknown shard; 55000 not closed, closed by a move, or called
 * otherwise in the journal; 42501 not the owner of the tables or no right to the
 * journal, 55P03 lock_timeout.
 */
CREATE FUNCTION snowid.unfence_shard(shard int, home text DEFAULT NULL)
RETURNS void
LANGUAGE sql VOLATILE PARALLEL UNSAFE
RETURN snowid_internal.open_shards(ARRAY[shard], home);

COMMENT ON FUNCTION snowid.unfence_shard(int, text) IS
'opens a shard that fence_shard closed';


/* -------- rights -------- */

/*
 * All belongs to the superuser who runs this script.  The owner of a database,
 * who may install it, is granted what he needs, with the right to grant it on.
 * As the tables' owner he could put triggers on them, which run as whoever
 * writes there.  Both the extension's owner and the database's are granted it:
 * restored by a superuser, the extension is his, and the database is not.
 */

-- What default privileges have granted: somebody could plant functions, or shards.
DO $rights$
DECLARE
	g record;
BEGIN
	FOR g IN
		SELECT o.object, CASE WHEN x.grantee = 0 THEN 'PUBLIC' ELSE x.grantee::regrole::text END AS grantee
		FROM (SELECT format('SCHEMA %I', nspname), nspacl, nspowner
			  FROM pg_namespace WHERE nspname IN ('snowid', 'snowid_internal')
			  UNION ALL
			  SELECT format('%s %s', CASE relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, oid::regclass), relacl, relowner
			  FROM pg_class WHERE relkind IN ('r', 'v', 'S')
				AND relnamespace IN ('snowid'::regnamespace, 'snowid_internal'::regnamespace)) o (object, acl, owner),
			aclexplode(o.acl) x
		WHERE x.grantee <> o.owner
	LOOP
		EXECUTE format('REVOKE ALL ON %s FROM %s', g.object, g.grantee);
	END LOOP;
END
$rights$;

-- Everybody may call the functions: they check privileges on the objects that
-- they are given, and the rest is arithmetic.  They run with the caller's
-- rights, so the caller needs snowid_internal, too.
GRANT USAGE ON SCHEMA snowid, snowid_internal TO PUBLIC;

-- Also where default privileges withhold it.
GRANT EXECUTE ON ALL ROUTINES IN SCHEMA snowid, snowid_internal TO PUBLIC;

-- Everybody may look; the owners may grant the rest to those who make shards.
GRANT SELECT ON snowid.shards, snowid.shard_homes, snowid.shard_registry, snowid.servers, snowid.placements, snowid.poolers,
	snowid.fleet_moves, snowid_internal.reservation TO PUBLIC;
GRANT SELECT, INSERT, UPDATE, DELETE ON snowid.shard_registry, snowid.moves, snowid.copies, snowid.servers, snowid.placements, snowid.poolers, snowid.fleet_moves
	TO @extowner@, pg_database_owner WITH GRANT OPTION;
GRANT USAGE, SELECT, UPDATE ON SEQUENCE snowid.id_seq
	TO @extowner@, pg_database_owner WITH GRANT OPTION;

-- A role that writes must learn why it may not, but nothing of other servers'
-- users.
GRANT SELECT (shard, schema, role, step, closed, started_at, changed_at)
	ON snowid.moves TO PUBLIC;
GRANT SELECT (schema, shard, kind, changed_at) ON snowid.copies TO PUBLIC;

-- A dump carries it, so the database's owner must be able to read it, and to set
-- it where it is restored.
GRANT SELECT, UPDATE ON SEQUENCE snowid_internal.reservation
	TO @extowner@, pg_database_owner WITH GRANT OPTION;
