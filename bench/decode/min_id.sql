-- min_id
-- calls: 20
-- timed
SELECT count(num_nulls(
	snowid.min_id(t), snowid.min_id(t), snowid.min_id(t), snowid.min_id(t),
	snowid.min_id(t), snowid.min_id(t), snowid.min_id(t), snowid.min_id(t),
	snowid.min_id(t), snowid.min_id(t), snowid.min_id(t), snowid.min_id(t),
	snowid.min_id(t), snowid.min_id(t), snowid.min_id(t), snowid.min_id(t),
	snowid.min_id(t), snowid.min_id(t), snowid.min_id(t), snowid.min_id(t)
)) FROM (SELECT timestamptz '2026-01-01 00:00:00+00' + id * interval '1 ms' AS t
	FROM generate_series(1, :n::bigint) id OFFSET 0) AS a;
