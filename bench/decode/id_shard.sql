-- id_shard
-- calls: 20
-- timed
SELECT count(num_nulls(
	snowid.id_shard(id), snowid.id_shard(id), snowid.id_shard(id), snowid.id_shard(id), snowid.id_shard(id),
	snowid.id_shard(id), snowid.id_shard(id), snowid.id_shard(id), snowid.id_shard(id), snowid.id_shard(id),
	snowid.id_shard(id), snowid.id_shard(id), snowid.id_shard(id), snowid.id_shard(id), snowid.id_shard(id),
	snowid.id_shard(id), snowid.id_shard(id), snowid.id_shard(id), snowid.id_shard(id), snowid.id_shard(id)
)) FROM generate_series(1, :n::bigint) id;
