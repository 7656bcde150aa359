-- Making and dropping one logical shard: what there is afterwards, that the
-- planner inlines its next_id(), and that nothing is left of what fails.
SET timezone = 'UTC';
SET datestyle = 'ISO';
\set SHOW_CONTEXT never

SELECT snowid.create_shard(5);
SELECT snowid.create_shard(6, 'photos of Ünal', '2026-01-01');

-- The DDL of the published design works word for word in every shard.
SET search_path = insta5;
CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id(), user_id bigint NOT NULL);
CREATE TABLE likes (id bigint PRIMARY KEY DEFAULT next_id(), photo_id bigint REFERENCES photos);
SET search_path = "photos of Ünal";
CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id(), user_id bigint NOT NULL);
RESET search_path;
INSERT INTO insta5.photos (user_id) VALUES (1), (2), (3);
INSERT INTO "photos of Ünal".photos (user_id) VALUES (1), (2), (3);
SELECT snowid.id_shard(id), snowid.id_timestamp(id) BETWEEN now() - interval '1 minute' AND clock_timestamp() AS recent
FROM insta5.photos;
SELECT snowid.id_shard(id), snowid.id_timestamp(id, '2026-01-01') BETWEEN now() - interval '1 minute' AND clock_timestamp() AS recent
FROM "photos of Ünal".photos;

-- One sequence for all tables of the shard.
INSERT INTO insta5.likes (photo_id) SELECT id FROM insta5.photos;
SELECT count(*), count(DISTINCT id) FROM (SELECT id FROM insta5.photos UNION ALL SELECT id FROM insta5.likes) i;

-- The wrapper costs what the call costs: there is none left in the plan.
EXPLAIN (VERBOSE, COSTS OFF) SELECT insta5.next_id();
EXPLAIN (VERBOSE, COSTS OFF) INSERT INTO insta5.photos (user_id) VALUES (1);
EXPLAIN (VERBOSE, COSTS OFF) SELECT "photos of Ünal".next_id();

-- The view.
SELECT shard, schema, epoch, tables, last_id_at BETWEEN now() - interval '1 minute' AND clock_timestamp() AS recent,
	ahead < interval '20 ms' AS not_ahead, lives
FROM snowid.shards ORDER BY shard;

-- Numbers and names are taken once.
SELECT snowid.create_shard(5);
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.create_shard(6, 'another');
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.create_shard(7, 'insta5');
\echo :LAST_ERROR_SQLSTATE
CREATE SCHEMA insta7;
SELECT snowid.create_shard(7);
\echo :LAST_ERROR_SQLSTATE
DROP SCHEMA insta7;

-- Outside the layout, or nothing at all.
SELECT snowid.create_shard(8192);
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.create_shard(-1);
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.create_shard(NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.create_shard(7, 'pg_mine');
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.create_shard(7, epoch => '2101-01-01');
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.create_shard(7, epoch => '1980-01-01');
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.create_shard(7, epoch => '-infinity');
\echo :LAST_ERROR_SQLSTATE
SELECT nspname FROM pg_namespace WHERE nspname IN ('insta7', 'pg_mine', 'another');
SELECT shard FROM snowid.shard_registry ORDER BY 1;

-- Dropping takes cascade where there are tables.
SELECT snowid.drop_shard(5);
\echo :LAST_ERROR_SQLSTATE
SELECT count(*) AS still_there FROM insta5.photos;
SET client_min_messages = warning;
SELECT snowid.drop_shard(5, cascade => true);
RESET client_min_messages;
SELECT snowid.drop_shard(5);
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.drop_shard(NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT to_regnamespace('insta5') AS gone;

-- An empty one goes without, and its number can be used again.
SELECT snowid.create_shard(5);
SELECT snowid.drop_shard(5);
SELECT snowid.create_shard(5);

-- The new one goes on above the ids of the old one, if that ran ahead a little;
-- if it ran far ahead, there is a warning.
SELECT max(insta5.next_id()) AS before FROM generate_series(1, 20000) \gset
SELECT snowid.drop_shard(5);
SELECT snowid.create_shard(5);
SELECT insta5.next_id() > :before AS above;
SELECT snowid.advance('insta5.id_seq', snowid.make_id(clock_timestamp() + interval '1 hour', 5, 0));
SELECT snowid.drop_shard(5);
SELECT snowid.create_shard(5);

-- ... also of a table's own sequence, and if the shard's is gone, when nobody knows.
CREATE TABLE insta5.own (id bigint PRIMARY KEY);
SELECT snowid.set_default('insta5.own', own_sequence => true);
SELECT snowid.advance('insta5.own_id_seq', snowid.make_id(clock_timestamp() + interval '1 hour', 5, 0));
SET client_min_messages = warning;
SELECT snowid.drop_shard(5, true);
SELECT snowid.create_shard(5);
DROP SEQUENCE insta5.id_seq CASCADE;
SELECT snowid.drop_shard(5);
SELECT snowid.create_shard(5);
RESET client_min_messages;

-- A table of another schema keeps a shard, too.
CREATE TABLE public.outside (id bigint DEFAULT insta5.next_id());
SELECT snowid.drop_shard(5);
\echo :LAST_ERROR_SQLSTATE
DROP TABLE public.outside;

-- A schema that went another way is shown as missing, its number can be given back.
SET client_min_messages = warning;
DROP SCHEMA insta5 CASCADE;
RESET client_min_messages;
SELECT shard, schema, tables, last_id_at, ahead, lives FROM snowid.shards WHERE shard = 5;
SELECT snowid.create_shard(5);
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.drop_shard(5);

-- A shard that has moved keeps its number taken here.
ALTER SCHEMA "photos of Ünal" RENAME TO away;
UPDATE snowid.shard_registry SET home = 'host=b dbname=app' WHERE shard = 6;
SELECT shard, lives FROM snowid.shards WHERE shard = 6;
SELECT snowid.drop_shard(6, true);
\echo :LAST_ERROR_SQLSTATE
-- It is here if its sequence is, whatever the registry of all servers says.
ALTER SCHEMA away RENAME TO "photos of Ünal";
SELECT shard, lives FROM snowid.shards WHERE shard = 6;
UPDATE snowid.shard_registry SET home = NULL WHERE shard = 6;

-- What depends on the extension is not dropped unasked.
\set VERBOSITY terse
DROP EXTENSION snowid;
SET client_min_messages = warning;
SELECT snowid.drop_shard(6, true);
RESET client_min_messages;
SELECT count(*) FROM snowid.shards;
