-- Shards by the range: whole shards or none, skipped when they are there,
-- and a script over all of them.  Cancelling is tested in t/shards/create_shards.pl.
\set SHOW_CONTEXT never
SET client_min_messages = warning;

CALL snowid.create_shards(10, 13, ddl => $$
	CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id(), user_id bigint NOT NULL);
	CREATE TABLE likes (id bigint PRIMARY KEY DEFAULT next_id(), photo_id bigint NOT NULL REFERENCES photos);
	CREATE INDEX ON likes (photo_id);
	INSERT INTO photos (user_id) VALUES (1);
$$);
SELECT shard, schema, tables, lives FROM snowid.shards ORDER BY 1;
SELECT snowid.id_shard(id) FROM insta13.photos;

-- Again, with more: what is there is left alone.
CALL snowid.create_shards(9, 14, ddl => 'CREATE TABLE other ()');
SELECT shard, schema, tables FROM snowid.shards ORDER BY 1;

-- No script, another prefix, an own epoch.
CALL snowid.create_shards(100, 101, 'Küche ', epoch => '2026-01-01 00:00:00+00');
SELECT shard, schema, epoch AT TIME ZONE 'UTC' AS epoch, tables FROM snowid.shards WHERE shard >= 100 ORDER BY 1;
EXPLAIN (VERBOSE, COSTS OFF) SELECT "Küche 101".next_id() IS NULL;

-- An error in the middle: that shard is absent, those before it are there.
CREATE SCHEMA insta22;
CALL snowid.create_shards(20, 29);
\echo :LAST_ERROR_SQLSTATE
SELECT shard FROM snowid.shards WHERE shard BETWEEN 20 AND 29 ORDER BY 1;
DROP SCHEMA insta22;
CREATE TABLE only_23 (n int PRIMARY KEY);
INSERT INTO only_23 VALUES (23);
CALL snowid.create_shards(20, 29, ddl => $$
	CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id());
	INSERT INTO public.only_23 SELECT substr(current_schema, 6)::int;
	CREATE TABLE likes (id bigint PRIMARY KEY DEFAULT next_id());
$$);
\echo :LAST_ERROR_SQLSTATE
SELECT shard, tables FROM snowid.shards WHERE shard BETWEEN 20 AND 29 ORDER BY 1;
SELECT nspname FROM pg_namespace WHERE nspname ~ '^insta2[2-9]' ORDER BY 1;
TABLE only_23;
-- mended, the same call goes on
TRUNCATE only_23;
CALL snowid.create_shards(20, 29, ddl => $$
	CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id());
	INSERT INTO public.only_23 SELECT substr(current_schema, 6)::int;
	CREATE TABLE likes (id bigint PRIMARY KEY DEFAULT next_id());
$$);
SELECT min(shard), max(shard), count(*), sum(tables) FROM snowid.shards WHERE shard BETWEEN 20 AND 29;
SELECT min(n), count(*) FROM only_23;
CALL snowid.create_shards(30, 30, ddl => 'CREATE TABEL photos ()');
\echo :LAST_ERROR_SQLSTATE

-- What a script defers to the end fails in its shard, too.
CALL snowid.create_shards(30, 31, ddl => $$
	CREATE TABLE a (id int PRIMARY KEY);
	CREATE TABLE b (a int REFERENCES a DEFERRABLE INITIALLY DEFERRED);
	INSERT INTO b VALUES (1);
$$);
CALL snowid.create_shards(30, 30, ddl => 'DO $x$ BEGIN ASSERT false; END $x$');
\echo :LAST_ERROR_SQLSTATE

-- Not the same shard: another name, another epoch, a schema that is gone.
CALL snowid.create_shards(9, 10, 'other');
\echo :LAST_ERROR_SQLSTATE
CALL snowid.create_shards(9, 10, epoch => '2026-01-01 00:00:00+00');
\echo :LAST_ERROR_SQLSTATE
DROP SCHEMA insta9 CASCADE;
CALL snowid.create_shards(9, 10);
\echo :LAST_ERROR_SQLSTATE
-- but one that has moved is no gap
UPDATE snowid.shard_registry SET home = 'db2' WHERE shard = 9;
CALL snowid.create_shards(9, 10);

-- What cannot be is refused before anything is done.
CALL snowid.create_shards(8000, 8192);
\echo :LAST_ERROR_SQLSTATE
CALL snowid.create_shards(-1, 5);
\echo :LAST_ERROR_SQLSTATE
CALL snowid.create_shards(6, 5);
\echo :LAST_ERROR_SQLSTATE
CALL snowid.create_shards(1, NULL);
\echo :LAST_ERROR_SQLSTATE
CALL snowid.create_shards(1, 5, NULL);
\echo :LAST_ERROR_SQLSTATE
CALL snowid.create_shards(1, 5, repeat('x', 63));
\echo :LAST_ERROR_SQLSTATE
BEGIN;
CALL snowid.create_shards(1, 5);
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
SELECT count(*) FROM snowid.shards WHERE shard < 9 OR shard > 1000;

-- for_each_shard: the shard's schema first, then the caller's search path;
-- the one that has moved is left out.
CREATE TABLE visited (schema name, path text);
CALL snowid.for_each_shard('INSERT INTO visited SELECT current_schema, current_setting(''search_path'')');
SELECT count(*), min(path) FROM visited;
SELECT count(*) FROM visited WHERE schema = 'insta9';
TRUNCATE visited;
SET search_path = public, pg_temp;
CALL snowid.for_each_shard('INSERT INTO visited SELECT current_schema, current_setting(''search_path'')', 100);
SHOW search_path;
RESET search_path;
TABLE visited;
SELECT count(*) AS back_to_usual FROM visited WHERE current_setting('search_path') = '"$user", public';

-- An error stops there, and says how to go on.
CALL snowid.for_each_shard('ALTER TABLE photos ADD COLUMN place text');
\echo :LAST_ERROR_SQLSTATE
SELECT count(*) FROM pg_attribute WHERE attname = 'place' AND attrelid::regclass::text ~ '^insta';
CALL snowid.for_each_shard('ALTER TABLE photos ADD COLUMN IF NOT EXISTS place text', 15);
\echo :LAST_ERROR_SQLSTATE
SELECT count(*) FROM pg_attribute WHERE attname = 'place' AND attrelid::regclass::text ~ '^insta';

-- A missing one is told of.
UPDATE snowid.shard_registry SET home = NULL WHERE shard = 9;
TRUNCATE visited;
CALL snowid.for_each_shard('INSERT INTO visited SELECT current_schema');
SELECT count(*) FROM visited;

CALL snowid.for_each_shard(NULL);
\echo :LAST_ERROR_SQLSTATE
BEGIN;
CALL snowid.for_each_shard('SELECT 1');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;

SELECT count(snowid.drop_shard(shard, true)) FROM snowid.shards;
DROP TABLE visited, only_23;
