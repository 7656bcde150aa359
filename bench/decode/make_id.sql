-- make_id
-- calls: 20
-- timed
SELECT count(num_nulls(
	snowid.make_id(t, 5, 7), snowid.make_id(t, 5, 7), snowid.make_id(t, 5, 7), snowid.make_id(t, 5, 7),
	snowid.make_id(t, 5, 7), snowid.make_id(t, 5, 7), snowid.make_id(t, 5, 7), snowid.make_id(t, 5, 7),
	snowid.make_id(t, 5, 7), snowid.make_id(t, 5, 7), snowid.make_id(t, 5, 7), snowid.make_id(t, 5, 7),
	snowid.make_id(t, 5, 7), snowid.make_id(t, 5, 7), snowid.make_id(t, 5, 7), snowid.make_id(t, 5, 7),
	snowid.make_id(t, 5, 7), snowid.make_id(t, 5, 7), snowid.make_id(t, 5, 7), snowid.make_id(t, 5, 7)
)) FROM (SELECT timestamptz '2026-01-01 00:00:00+00' + id * interval '1 ms' AS t
	FROM generate_series(1, :n::bigint) id OFFSET 0) AS a;
