-- create_partition(): what it makes, that a timer can repeat it, and what it
-- refuses; and that time ranges on the id prune what it made.
\set SHOW_CONTEXT never
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE SCHEMA partitions;
SET search_path = partitions, public;
CREATE SEQUENCE s;
CREATE TABLE users (id bigint PRIMARY KEY);
CREATE TABLE photos (
	id bigint PRIMARY KEY DEFAULT snowid.next_id(5, 's'),
	user_id bigint NOT NULL REFERENCES users,
	place text CHECK (place <> ''),
	created_at timestamptz GENERATED ALWAYS AS (snowid.id_timestamp(id)) STORED
) PARTITION BY RANGE (id);
CREATE INDEX ON photos (user_id);

-- Named by what they span.
SELECT snowid.create_partition('photos', '2024-01-01', '2025-01-01');
SELECT snowid.create_partition('photos', '2026-11-01', '2026-12-01');
SELECT snowid.create_partition('photos', '2026-12-01', '2026-12-08');
SELECT snowid.create_partition('photos', '2026-12-08', '2026-12-08 12:00');
SELECT snowid.create_partition('photos', '2026-12-08 12:00', '2026-12-09');

-- As the session's time zone has it; but hours as UTC has them, which has none
-- twice.
SET timezone = 'Europe/Berlin';
SELECT snowid.create_partition('photos', '2027-02-01', '2027-03-01');
CREATE TABLE hourly (id bigint) PARTITION BY RANGE (id);
SELECT hour, snowid.create_partition('hourly', hour, hour + interval '1 hour')
FROM generate_series('2027-10-31 00:00'::timestamptz, '2027-10-31 03:00', '1 hour') AS hour;
SET timezone = 'UTC';

-- Once more does nothing.
SELECT snowid.create_partition('photos', '2026-11-01', '2026-12-01');

\d photos_p2026_11
SELECT c.relname, snowid.id_timestamp(b[1]::bigint) AS since, snowid.id_timestamp(b[2]::bigint) AS until
FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid,
	regexp_match(pg_get_expr(relpartbound, c.oid), '\((.*)\) TO \((.*)\)') m,
	LATERAL (SELECT ARRAY[trim(m[1], ''''), trim(m[2], '''')] AS b) b
WHERE inhparent = 'photos'::regclass ORDER BY 2;

-- Rows get where their time is, the first and last of a month too.
INSERT INTO users VALUES (1);
INSERT INTO photos (id, user_id) VALUES
	(snowid.make_id('2026-11-01', 0, 0), 1),
	(snowid.make_id('2026-11-30 23:59:59.999', 8191, 1023), 1),
	(snowid.make_id('2026-12-01', 0, 0), 1);
SELECT tableoid::regclass AS partition, id, created_at FROM photos ORDER BY id;
INSERT INTO photos (id, user_id) VALUES (snowid.make_id('2026-11-02', 0, 0), 2);

-- Ranges of time prune.
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT place FROM photos
WHERE snowid.id_between(id, '2026-11-20', '2026-11-21');
EXPLAIN (COSTS OFF) SELECT place FROM photos WHERE id >= snowid.min_id('2027-01-01');
RESET enable_seqscan;
RESET enable_bitmapscan;

-- In a shard the epoch is the shard's.
SELECT snowid.create_shard(8100, 'partitions_shard', '2026-01-01+00');
CREATE TABLE partitions_shard.t (id bigint) PARTITION BY RANGE (id);
SELECT snowid.create_partition('partitions_shard.t', '2026-01-01', '2026-02-01');
SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = 'partitions_shard.t_p2026_01'::regclass;
SELECT snowid.create_partition('partitions_shard.t', '2011-09-01', '2011-10-01', snowid.id_timestamp(0));
SELECT snowid.create_partition('partitions_shard.t', '2011-09-01', '2011-10-01');

-- A name of 63 bytes keeps its end.
CREATE TABLE "Größe, und so weiter, bis der Name dreiundsechzig Bytes hat" (id bigint) PARTITION BY RANGE (id);
SELECT snowid.create_partition('"Größe, und so weiter, bis der Name dreiundsechzig Bytes hat"', '2026-11-01', '2026-12-01');

-- Made by a superuser, it is the owner's all the same; others may not.
CREATE ROLE partitions_owner;
CREATE ROLE partitions_other;
GRANT ALL ON SCHEMA partitions TO partitions_owner, partitions_other;
CREATE TABLE owned (id bigint) PARTITION BY RANGE (id);
ALTER TABLE owned OWNER TO partitions_owner;
SELECT snowid.create_partition('owned', '2026-11-01', '2026-12-01');
SELECT relowner::regrole FROM pg_class WHERE oid = 'owned_p2026_11'::regclass;
SET ROLE partitions_owner;
SELECT snowid.create_partition('owned', '2026-12-01', '2027-01-01');
SET ROLE partitions_other;
SELECT snowid.create_partition('owned', '2027-01-01', '2027-02-01');
RESET ROLE;

-- Refused.
SELECT snowid.create_partition(NULL, '2026-11-01', '2026-12-01');
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.create_partition('photos', NULL, '2026-12-01');
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.create_partition('users', '2026-11-01', '2026-12-01');
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.create_partition(0, '2026-11-01', '2026-12-01');
\echo :LAST_ERROR_SQLSTATE
CREATE TABLE by_list (id bigint) PARTITION BY LIST (id);
SELECT snowid.create_partition('by_list', '2026-11-01', '2026-12-01');
\echo :LAST_ERROR_SQLSTATE
CREATE TABLE by_int (id int) PARTITION BY RANGE (id);
SELECT snowid.create_partition('by_int', '2026-11-01', '2026-12-01');
\echo :LAST_ERROR_SQLSTATE
CREATE TABLE by_two (id bigint, n bigint) PARTITION BY RANGE (id, n);
SELECT snowid.create_partition('by_two', '2026-11-01', '2026-12-01');
\echo :LAST_ERROR_SQLSTATE
CREATE TABLE by_expression (id bigint) PARTITION BY RANGE ((id + 1));
SELECT snowid.create_partition('by_expression', '2026-11-01', '2026-12-01');
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.create_partition('photos', '2026-12-01', '2026-11-01');
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.create_partition('photos', '2026-12-01', '2026-12-01');
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.create_partition('photos', '-infinity', '2026-12-01');
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.create_partition('photos', '2050-01-01', '2050-02-01');
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.create_partition('photos', '2000-01-01', '2000-02-01');
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.create_partition('photos', '2027-06-01 00:00:00.0001', '2027-06-01 00:00:00.0009');
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.create_partition('photos', '2026-11-15', '2026-12-15');
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.create_partition('photos', '2026-01-01', '2027-01-01');
\echo :LAST_ERROR_SQLSTATE
CREATE TABLE photos_pold PARTITION OF photos FOR VALUES FROM (MINVALUE) TO (0);
SELECT snowid.create_partition('photos', '2011-01-01', '2012-01-01');
CREATE TABLE photos_p2027_07 ();
SELECT snowid.create_partition('photos', '2027-07-01', '2027-08-01');
\echo :LAST_ERROR_SQLSTATE
CREATE TABLE photos_default PARTITION OF photos DEFAULT;
INSERT INTO photos (id, user_id) VALUES (snowid.make_id('2027-08-15', 0, 0), 1);
SELECT snowid.create_partition('photos', '2027-09-01', '2027-10-01');
SELECT snowid.create_partition('photos', '2027-08-01', '2027-09-01');
\echo :LAST_ERROR_SQLSTATE

-- A domain over bigint is as good.
CREATE DOMAIN visit_id AS bigint;
CREATE TABLE visits (id visit_id PRIMARY KEY) PARTITION BY RANGE (id);
SELECT snowid.create_partition('visits', '2026-01-01', '2026-02-01');
SELECT snowid.create_partition('visits', '2026-01-01', '2026-02-01');

\set VERBOSITY terse
SET client_min_messages = warning;
SELECT snowid.drop_shard(8100, true);
DROP SCHEMA partitions CASCADE;
DROP ROLE partitions_owner, partitions_other;
