-- shard_of(text, int)
-- calls: 20
-- share: 0.1
-- timed
SELECT count(num_nulls(
	snowid.shard_of(text, 2000), snowid.shard_of(text, 2000), snowid.shard_of(text, 2000), snowid.shard_of(text, 2000),
	snowid.shard_of(text, 2000), snowid.shard_of(text, 2000), snowid.shard_of(text, 2000), snowid.shard_of(text, 2000),
	snowid.shard_of(text, 2000), snowid.shard_of(text, 2000), snowid.shard_of(text, 2000), snowid.shard_of(text, 2000),
	snowid.shard_of(text, 2000), snowid.shard_of(text, 2000), snowid.shard_of(text, 2000), snowid.shard_of(text, 2000),
	snowid.shard_of(text, 2000), snowid.shard_of(text, 2000), snowid.shard_of(text, 2000), snowid.shard_of(text, 2000)
)) FROM (SELECT 'AAAA' || to_char(id, 'FM0000000') AS text
	FROM generate_series(1, :n::bigint) id OFFSET 0) AS a;
