-- Keys to shards: rows are stored by what this returns, so it may never
-- change, and any client must be able to do the same.
SELECT snowid.shard_of(31341, 2000) AS "1341";
SELECT key, snowid.shard_of(key, 2000), mod(mod(key::numeric, 2000) + 2000, 2000) AS by_numeric
FROM (VALUES (0::bigint), (1), (1999), (2000), (-1), (-2000), (-2001), (31341),
	(9223372036854775807), (-9223372036854775808), (-9223372036854775807)) k (key);
SELECT count(*) AS wrong FROM generate_series(-20000, 20000) key, unnest('{1,2,3,2000,8191,8192}'::int[]) shards
WHERE snowid.shard_of(key, shards) <> mod(mod(key, shards) + shards, shards);

-- Text: the first 8 bytes of the MD5 of its UTF-8, unsigned, big-endian.
SELECT key, snowid.shard_of(key, 2000),
	mod((SELECT sum(get_byte(decode(md5(convert_to(key, 'UTF8')), 'hex'), b) * 256::numeric ^ (7 - b)) FROM generate_series(0, 7) b), 2000)::int AS by_hand
FROM (VALUES (''), ('a'), ('user@example.com'), ('31341'), ('Ünal'), ('日本語'), (repeat('x', 5000))) k (key)
WHERE length(key) < 100;
SELECT count(*) AS wrong FROM generate_series(1, 2000) i, LATERAL (SELECT 'key ' || i) k (key)
WHERE snowid.shard_of(key, 8192) <>
	mod((SELECT sum(get_byte(decode(md5(key), 'hex'), b) * 256::numeric ^ (7 - b)) FROM generate_series(0, 7) b), 8192);
-- keys spread: each of 8 shards gets near 250 of 2,000
SELECT min(n) > 200 AS enough, max(n) < 300 AS not_too_many
FROM (SELECT snowid.shard_of('key ' || i, 8) AS shard, count(*) AS n FROM generate_series(1, 2000) i GROUP BY 1) s;

-- One shard, all shards, and what there cannot be.
SELECT snowid.shard_of(42, 1), snowid.shard_of('42', 1), snowid.shard_of(-42, 8192), snowid.shard_of('42', 8192);
SELECT snowid.shard_of(NULL::bigint, 2000), snowid.shard_of(NULL::text, 2000), snowid.shard_of(1, NULL);
SELECT snowid.shard_of(1, 0);
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.shard_of(1, 8193);
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.shard_of('1', -5);
\echo :LAST_ERROR_SQLSTATE

-- Usable where only IMMUTABLE is.
CREATE TABLE shard_of_t (key bigint, shard int GENERATED ALWAYS AS (snowid.shard_of(key, 2000)) STORED);
INSERT INTO shard_of_t VALUES (31341), (-1) RETURNING *;
DROP TABLE shard_of_t;
