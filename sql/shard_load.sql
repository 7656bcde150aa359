-- shard_load(): how large the shards are.  (How fast they grow needs a server
-- with writers: t/shards/shard_load.pl.)
\set SHOW_CONTEXT never
CREATE ROLE regress_load_reader;
SELECT snowid.create_shard(8000, 'load_a'), snowid.create_shard(8001, 'load_b'), snowid.create_shard(8002, 'load_c');
CREATE TABLE load_a.posts (id bigint PRIMARY KEY DEFAULT load_a.next_id(), body text) PARTITION BY RANGE (id);
CREATE TABLE load_a.posts_1 PARTITION OF load_a.posts DEFAULT;
INSERT INTO load_a.posts (body) SELECT repeat('x', 100) FROM generate_series(1, 1000);
ANALYZE load_a.posts;
CREATE TABLE load_b.empty (id bigint);
CREATE VIEW load_b.view AS TABLE load_b.empty;
SELECT snowid.fence_shard(8001);
SELECT snowid.fence_shard(8002, 'host=elsewhere');

-- All bytes of a shard, and no shard that lives elsewhere.
SELECT pg_total_relation_size('load_a.posts_1') AS size \gset
SET ROLE regress_load_reader;
SELECT shard, schema, tables, bytes = CASE shard WHEN 8000 THEN :size ELSE 0 END AS all_bytes, rows, inserts_per_second
FROM snowid.shard_load() WHERE shard >= 8000;
SELECT inserts_per_second FROM snowid.shard_load('1 ms') WHERE shard = 8001;
SELECT snowid.shard_load('0');
SELECT snowid.shard_load('-1 s');
SELECT snowid.shard_load('1 hour 1 s');
RESET ROLE;
SET track_counts = off;
SELECT snowid.shard_load('1 ms');
RESET track_counts;

SELECT snowid.unfence_shard(8001), snowid.unfence_shard(8002);
SET client_min_messages = warning;
SELECT snowid.drop_shard(shard, true) FROM generate_series(8000, 8002) shard;
DROP ROLE regress_load_reader;
