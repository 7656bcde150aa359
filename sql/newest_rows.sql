-- newest_rows(): the newest rows of a table over all shards, in id order,
-- however shards, sequences and privileges are.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE SCHEMA newest_rows;
SET search_path = newest_rows, public;
CALL snowid.create_shards(8000, 8009, 'newest_rows_', $$
	CREATE TABLE posts (id bigint PRIMARY KEY DEFAULT next_id(), n int, body text)
$$);
-- Nothing in them.
SELECT * FROM snowid.newest_rows(NULL::newest_rows_8000.posts, 5);

-- Round and round, with a millisecond at least in between.
DO $$
DECLARE
	last timestamptz;
BEGIN
	FOR i IN 1 .. 30 LOOP
		EXECUTE format('INSERT INTO newest_rows_%s.posts (n) VALUES (%s)', 8000 + i * 7 % 10, i);
		last := clock_timestamp();
		WHILE clock_timestamp() < last + interval '1.1 ms' LOOP END LOOP;
	END LOOP;
END $$;
SELECT snowid.id_shard(id), n FROM snowid.newest_rows(NULL::newest_rows_8000.posts, 12);
SELECT array_agg(n) FROM snowid.newest_rows(NULL::newest_rows_8000.posts, 1000);
SELECT count(*) FROM snowid.newest_rows(NULL::newest_rows_8000.posts, 0);

-- The next page.
SELECT min(id) AS least FROM snowid.newest_rows(NULL::newest_rows_8000.posts, 12) \gset
SELECT array_agg(n) FROM snowid.newest_rows(NULL::newest_rows_8000.posts, 12, :least);

-- All of them from one shard.
INSERT INTO newest_rows_8004.posts (n) SELECT generate_series(31, 40);
SELECT array_agg(n) FROM snowid.newest_rows(NULL::newest_rows_8000.posts, 12);

-- No more shards are visited than can have one of the newest: who may not
-- read the others does not notice.
CREATE ROLE newest_rows_reader;
GRANT USAGE ON SCHEMA newest_rows_8000, newest_rows_8004 TO newest_rows_reader;
GRANT SELECT ON newest_rows_8004.posts TO newest_rows_reader;
DO $$
BEGIN
	FOR i IN 8000 .. 8009 LOOP
		EXECUTE format('GRANT USAGE ON SEQUENCE newest_rows_%s.id_seq TO newest_rows_reader', i);
	END LOOP;
END $$;
SET ROLE newest_rows_reader;
SELECT array_agg(n) FROM snowid.newest_rows(NULL::newest_rows_8000.posts, 10);
SELECT array_agg(n) FROM snowid.newest_rows(NULL::newest_rows_8000.posts, 11);
RESET ROLE;

-- A shard whose sequence one may not ask is visited anyway.
REVOKE ALL ON SEQUENCE newest_rows_8004.id_seq FROM newest_rows_reader;
INSERT INTO newest_rows_8001.posts (n) VALUES (41);
GRANT USAGE ON SCHEMA newest_rows_8001 TO newest_rows_reader;
GRANT SELECT ON newest_rows_8001.posts TO newest_rows_reader;
SET ROLE newest_rows_reader;
SELECT array_agg(n) FROM snowid.newest_rows(NULL::newest_rows_8000.posts, 3);
RESET ROLE;

-- A table with a sequence to itself, ahead of the shard's own.
SELECT snowid.set_default('newest_rows_8002.posts', own_sequence => true);
INSERT INTO newest_rows_8002.posts (n) VALUES (42);
SELECT array_agg(n) FROM snowid.newest_rows(NULL::newest_rows_8000.posts, 2);

-- A sequence that the column owns, but has no ids from, says nothing.
CREATE SEQUENCE newest_rows_8003.posts_id_seq OWNED BY newest_rows_8003.posts.id;
INSERT INTO newest_rows_8003.posts (n) VALUES (43);
SELECT array_agg(n ORDER BY n) FROM snowid.newest_rows(NULL::newest_rows_8000.posts, 2);

-- Nor does one that was never called, where rows were loaded.
SELECT snowid.create_shard(8010, 'newest_rows_8010');
CREATE TABLE newest_rows_8010.posts (id bigint PRIMARY KEY, n int, body text);
INSERT INTO newest_rows_8010.posts VALUES (snowid.make_id(clock_timestamp() + '1 minute', 8010, 0), 44);
SELECT array_agg(n) FROM snowid.newest_rows(NULL::newest_rows_8000.posts, 1);
SELECT snowid.drop_shard(8010, true);

-- Other order of columns, a dropped one, another name of the id.
ALTER TABLE newest_rows_8002.posts DROP COLUMN body, DROP COLUMN n;
ALTER TABLE newest_rows_8002.posts ADD body text, ADD n int DEFAULT 42;
SELECT array_agg(n ORDER BY n) FROM snowid.newest_rows(NULL::newest_rows_8000.posts, 2);
SELECT array_agg(n ORDER BY n) FROM snowid.newest_rows(NULL::newest_rows_8002.posts, 2);
CREATE TYPE posts AS (n int, id bigint);
SELECT n FROM snowid.newest_rows(NULL::posts, 2) ORDER BY n;

-- As many rows as asked for, also of an id that is there twice.
CREATE TABLE newest_rows_8000.twice (id bigint);
CREATE TABLE newest_rows_8001.twice (id bigint);
INSERT INTO newest_rows_8000.twice VALUES (1), (1), (1), (2);
INSERT INTO newest_rows_8001.twice VALUES (1);
SELECT array_agg(id) FROM snowid.newest_rows(NULL::newest_rows_8000.twice, 3);
SELECT array_agg(id) FROM snowid.newest_rows(NULL::newest_rows_8000.twice, 100);

-- Moved and missing shards are left out.
SELECT snowid.fence_shard(8002, 'elsewhere');
DROP SCHEMA newest_rows_8001 CASCADE;
SELECT array_agg(n) FROM snowid.newest_rows(NULL::newest_rows_8000.posts, 2);

-- Refused.
SELECT snowid.newest_rows(NULL::newest_rows_8000.posts, NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.newest_rows(NULL::newest_rows_8000.posts, -1);
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.newest_rows(1, 1);
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.newest_rows(NULL::newest_rows_8000.posts, 1, "column" => 'missing');
\echo :LAST_ERROR_SQLSTATE
-- A cast of the owner's would run as the caller.
CREATE TYPE letter AS ENUM ('a', 'b');
CREATE FUNCTION letter_to_bigint(letter) RETURNS bigint LANGUAGE plpgsql AS
	$$ BEGIN RAISE WARNING 'the cast runs'; RETURN 1; END $$;
CREATE CAST (letter AS bigint) WITH FUNCTION letter_to_bigint(letter) AS IMPLICIT;
CREATE TABLE newest_rows_8000.letters (id bigint);
CREATE TABLE newest_rows_8003.letters (id letter);
INSERT INTO newest_rows_8003.letters VALUES ('a'), ('b');
SELECT snowid.newest_rows(NULL::newest_rows_8000.letters, 1);
\echo :LAST_ERROR_SQLSTATE
-- A domain over bigint is as good.
CREATE DOMAIN post_id AS bigint;
CREATE TABLE newest_rows_8000.views (id post_id PRIMARY KEY);
CREATE TABLE newest_rows_8003.views (id post_id PRIMARY KEY);
INSERT INTO newest_rows_8000.views VALUES (1), (3);
INSERT INTO newest_rows_8003.views VALUES (2), (4);
SELECT id, pg_typeof(id) FROM snowid.newest_rows(NULL::newest_rows_8000.views, 3);
-- Ids of different epochs do not sort by time.
SELECT snowid.create_shard(8011, 'newest_rows_8011', '2026-01-01+00');
CREATE TABLE newest_rows_8011.posts (id bigint PRIMARY KEY DEFAULT newest_rows_8011.next_id(), n int, body text);
SELECT snowid.newest_rows(NULL::newest_rows_8000.posts, 1);
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.drop_shard(8011, true);
DROP TYPE posts;
CREATE TYPE posts AS (id bigint, missing int);
SELECT snowid.newest_rows(NULL::posts, 1);
\echo :LAST_ERROR_SQLSTATE

\set VERBOSITY terse
SELECT snowid.unfence_shard(8002);
SELECT count(snowid.drop_shard(shard, true)) FROM snowid.shards WHERE shard BETWEEN 8000 AND 8009;
DROP SCHEMA newest_rows CASCADE;
DROP ROLE newest_rows_reader;
