-- id_parts
-- calls: 20
-- share: 0.1
-- timed
SELECT count(num_nulls(
	snowid.id_parts(id), snowid.id_parts(id), snowid.id_parts(id), snowid.id_parts(id),
	snowid.id_parts(id), snowid.id_parts(id), snowid.id_parts(id), snowid.id_parts(id),
	snowid.id_parts(id), snowid.id_parts(id), snowid.id_parts(id), snowid.id_parts(id),
	snowid.id_parts(id), snowid.id_parts(id), snowid.id_parts(id), snowid.id_parts(id),
	snowid.id_parts(id), snowid.id_parts(id), snowid.id_parts(id), snowid.id_parts(id)
)) FROM generate_series(1, :n::bigint) id;
