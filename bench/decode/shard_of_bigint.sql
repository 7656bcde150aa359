-- shard_of(bigint, int)
-- calls: 20
-- timed
SELECT count(num_nulls(
	snowid.shard_of(id, 2000), snowid.shard_of(id, 2000), snowid.shard_of(id, 2000), snowid.shard_of(id, 2000),
	snowid.shard_of(id, 2000), snowid.shard_of(id, 2000), snowid.shard_of(id, 2000), snowid.shard_of(id, 2000),
	snowid.shard_of(id, 2000), snowid.shard_of(id, 2000), snowid.shard_of(id, 2000), snowid.shard_of(id, 2000),
	snowid.shard_of(id, 2000), snowid.shard_of(id, 2000), snowid.shard_of(id, 2000), snowid.shard_of(id, 2000),
	snowid.shard_of(id, 2000), snowid.shard_of(id, 2000), snowid.shard_of(id, 2000), snowid.shard_of(id, 2000)
)) FROM generate_series(1, :n::bigint) id;
