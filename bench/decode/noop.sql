-- a C function that does nothing (int8up)
-- calls: 20
-- timed
SELECT count(num_nulls(
	int8up(id), int8up(id), int8up(id), int8up(id), int8up(id),
	int8up(id), int8up(id), int8up(id), int8up(id), int8up(id),
	int8up(id), int8up(id), int8up(id), int8up(id), int8up(id),
	int8up(id), int8up(id), int8up(id), int8up(id), int8up(id)
)) FROM generate_series(1, :n::bigint) id;
