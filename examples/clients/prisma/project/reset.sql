-- Before "prisma migrate reset", which empties the schema public alone: all shards that
-- live here, and snowid, in either edition.
SELECT snowid.drop_shard(shard, cascade => true) FROM snowid.shards WHERE lives = 'here' AND schema <> 'public';
DROP EXTENSION IF EXISTS snowid CASCADE;
DROP SCHEMA IF EXISTS snowid, snowid_internal CASCADE;
