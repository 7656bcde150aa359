-- A time range on ids is a range of ids: it uses the primary key's index, and
-- prunes partitions.
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE SCHEMA planner;
SET search_path = planner, public;

-- A row each ten seconds from 2026-01-01 on.
CREATE TABLE photos (id bigint PRIMARY KEY, user_id bigint);
INSERT INTO photos
SELECT snowid.make_id('2026-01-01+00'::timestamptz + i * interval '10 s', 5, 0), i
FROM generate_series(0, 99999) AS i;
ANALYZE photos;

EXPLAIN (COSTS OFF)
SELECT count(*) FROM photos WHERE snowid.id_between(id, '2026-01-02', '2026-01-02 01:00');
SELECT count(*) FROM photos WHERE snowid.id_between(id, '2026-01-02', '2026-01-02 01:00');

-- also with times that are known only when it runs,
EXPLAIN (COSTS OFF)
SELECT count(*) FROM photos WHERE snowid.id_between(id, now() - interval '1 hour', now());
PREPARE hour (timestamptz) AS
SELECT count(*) FROM photos WHERE snowid.id_between(id, $1, $1 + interval '1 hour');
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE hour('2026-01-02');
EXECUTE hour('2026-01-02');
RESET plan_cache_mode;

-- with the bounds themselves, and with an own epoch.
EXPLAIN (COSTS OFF)
SELECT id FROM photos WHERE id >= snowid.min_id('2026-01-02') AND id <= snowid.max_id('2026-01-02') ORDER BY id LIMIT 5;
EXPLAIN (COSTS OFF)
SELECT count(*) FROM photos WHERE snowid.id_between(id, '2011-09-01', '2011-09-02', '2011-08-24 21:07:01.721+00');

-- Partitions by month of the id.
CREATE TABLE events (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE events_2026_01 PARTITION OF events
	FOR VALUES FROM (snowid.min_id('2026-01-01')) TO (snowid.min_id('2026-02-01'));
CREATE TABLE events_2026_02 PARTITION OF events
	FOR VALUES FROM (snowid.min_id('2026-02-01')) TO (snowid.min_id('2026-03-01'));
CREATE TABLE events_2026_03 PARTITION OF events
	FOR VALUES FROM (snowid.min_id('2026-03-01')) TO (snowid.min_id('2026-04-01'));
INSERT INTO events
SELECT snowid.make_id('2026-01-01+00'::timestamptz + i * interval '1 hour', 5, 0)
FROM generate_series(0, 24 * 89) AS i;
SELECT tableoid::regclass, count(*), min(snowid.id_timestamp(id)), max(snowid.id_timestamp(id))
FROM events GROUP BY 1 ORDER BY 1;
SET enable_bitmapscan = off;
SET enable_seqscan = off;
SET enable_indexonlyscan = off;
EXPLAIN (COSTS OFF)
SELECT * FROM events WHERE snowid.id_between(id, '2026-02-10', '2026-02-11');
-- pruned when it starts, too
EXPLAIN (COSTS OFF)
SELECT * FROM events WHERE snowid.id_between(id, '2026-03-10'::timestamptz, now());

-- Reading functions are immutable: in indexes, generated columns and checks.
CREATE TABLE derived (
	id bigint PRIMARY KEY CHECK (snowid.id_shard(id) = 5),
	created_at timestamptz GENERATED ALWAYS AS (snowid.id_timestamp(id)) STORED);
CREATE INDEX ON derived ((snowid.id_seq(id)));
INSERT INTO derived VALUES (snowid.make_id('2026-01-01', 5, 7));
INSERT INTO derived VALUES (snowid.make_id('2026-01-01', 6, 7));
SELECT * FROM derived;

-- next_id() keeps a query out of parallel plans.
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET enable_seqscan = on;
CREATE SEQUENCE seq;
EXPLAIN (COSTS OFF) SELECT count(snowid.next_id(5, 'seq')) FROM photos WHERE user_id % 2 = 0;
EXPLAIN (COSTS OFF) SELECT count(snowid.id_shard(id)) FROM photos WHERE user_id % 2 = 0;
-- Smuggled into one, it refuses.
CREATE FUNCTION smuggled() RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE
	AS $$ BEGIN RETURN snowid.next_id(5, 'planner.seq'); END $$;
SET parallel_leader_participation = off;
SELECT count(smuggled()) FROM photos WHERE user_id % 2 = 0;

RESET search_path;
\set VERBOSITY terse
SET client_min_messages = warning;
DROP SCHEMA planner CASCADE;
