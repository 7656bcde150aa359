-- The bits of an id: decoding is total, and composing is its inverse.
SET timezone = 'UTC';
SET datestyle = 'ISO';

-- The corners of each field, taken as unsigned.
SELECT label, id, p.*
FROM (VALUES
	('zero', 0),
	('one', 1),
	('seq full', 1023),
	('shard 1', 1024),
	('shard full', 8387584),
	('first millisecond', 8388608),
	('largest positive', 9223372036854775807),
	('sign bit', -9223372036854775808),
	('all bits', -1)) AS v (label, id),
	snowid.id_parts(id) AS p;

-- The epoch is the published one; an own epoch only moves the time.
SELECT snowid.id_timestamp(0),
	snowid.id_timestamp(0, '2026-01-01'),
	snowid.id_timestamp(8388608 * 1000::bigint, '2026-01-01');
SELECT * FROM snowid.id_parts(8388608 * 1000::bigint + 5 * 1024 + 7, '2026-01-01');

-- make_id() of id_parts() is the id, whatever the bits.
SELECT count(*) AS ids,
	count(*) FILTER (WHERE snowid.make_id(created_at, shard, seq) = id) AS round_trips,
	count(*) FILTER (WHERE snowid.make_id(created_at_2, shard, seq, '2020-02-02 02:02:02.000002') = id) AS with_epoch
FROM (
	SELECT ('x' || md5(i::text))::bit(64)::bigint AS id
	FROM generate_series(1, 10000) AS i) AS random_bits,
	snowid.id_parts(id) AS p,
	snowid.id_timestamp(id, '2020-02-02 02:02:02.000002') AS created_at_2;

-- Fractions of a millisecond are cut off.
SELECT snowid.make_id('2026-01-01 00:00:00.000999+00', 5, 0)
	= snowid.make_id('2026-01-01 00:00:00+00', 5, 0) AS cut;

-- Bounds: id >= min_id(t) means id_timestamp(id) >= t, id <= max_id(t) means
-- id_timestamp(id) <= t; fractions of a millisecond, too.
WITH ids AS (
	SELECT snowid.make_id('2026-01-01+00'::timestamptz + ms * interval '1 ms', shard, seq) AS id
	FROM generate_series(0, 5) AS ms,
		(VALUES (0), (1), (8191)) AS s (shard),
		(VALUES (0), (1023)) AS q (seq)),
times AS (
	SELECT '2026-01-01+00'::timestamptz + us * interval '1 us' AS t
	FROM generate_series(-1000, 6000, 250) AS us)
SELECT count(*) AS pairs,
	count(*) FILTER (WHERE (id >= snowid.min_id(t)) = (snowid.id_timestamp(id) >= t)) AS min_id_right,
	count(*) FILTER (WHERE (id <= snowid.max_id(t)) = (snowid.id_timestamp(id) <= t)) AS max_id_right,
	count(*) FILTER (WHERE snowid.id_between(id, t, t + interval '2 ms')
		= (snowid.id_timestamp(id) >= t AND snowid.id_timestamp(id) < t + interval '2 ms')) AS id_between_right
FROM ids, times;

-- Times outside the layout clamp to it.
SELECT at, snowid.min_id(at), snowid.max_id(at)
FROM (VALUES ('-infinity'::timestamptz), ('4713-01-01 BC'), ('2011-08-24 21:07:01.72+00'),
	('2011-08-24 21:07:01.721+00'), ('2046-06-27 17:00:49.496+00'), ('2046-06-27 17:00:49.497+00'),
	('294276-01-01'), ('infinity')) AS v (at);
SELECT snowid.min_id('294276-01-01', '4713-01-01 BC') AS far_after,
	snowid.min_id('4713-01-01 BC', '294276-01-01') AS far_before;

-- The text form sorts as the unsigned number does.
SELECT count(*) AS ids,
	bool_and(length(text) = 11) AS all_11,
	bool_and(snowid.base62_to_id(text) = id) AS round_trip,
	bool_and(text > before COLLATE "C") AS sorted
FROM (
	SELECT id, snowid.id_to_base62(id) AS text,
		lag(snowid.id_to_base62(id)) OVER (ORDER BY id < 0, id) AS before
	FROM (
		SELECT ('x' || md5(i::text))::bit(64)::bigint AS id
		FROM generate_series(1, 10000) AS i) AS random_bits) AS texts;

-- Ids in JSON are exact as text.
SELECT snowid.id_to_base62(9007199254740993), to_json(snowid.id_to_base62(9007199254740993));
