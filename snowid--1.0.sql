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
'the same for a sequence of an own epoch';
