-- id_to_base62
-- calls: 20
-- timed
SELECT count(num_nulls(
	snowid.id_to_base62(id), snowid.id_to_base62(id), snowid.id_to_base62(id), snowid.id_to_base62(id),
	snowid.id_to_base62(id), snowid.id_to_base62(id), snowid.id_to_base62(id), snowid.id_to_base62(id),
	snowid.id_to_base62(id), snowid.id_to_base62(id), snowid.id_to_base62(id), snowid.id_to_base62(id),
	snowid.id_to_base62(id), snowid.id_to_base62(id), snowid.id_to_base62(id), snowid.id_to_base62(id),
	snowid.id_to_base62(id), snowid.id_to_base62(id), snowid.id_to_base62(id), snowid.id_to_base62(id)
)) FROM generate_series(1, :n::bigint) id;
