-- id_timestamp
-- calls: 20
-- timed
SELECT count(num_nulls(
	snowid.id_timestamp(id), snowid.id_timestamp(id), snowid.id_timestamp(id), snowid.id_timestamp(id), snowid.id_timestamp(id),
	snowid.id_timestamp(id), snowid.id_timestamp(id), snowid.id_timestamp(id), snowid.id_timestamp(id), snowid.id_timestamp(id),
	snowid.id_timestamp(id), snowid.id_timestamp(id), snowid.id_timestamp(id), snowid.id_timestamp(id), snowid.id_timestamp(id),
	snowid.id_timestamp(id), snowid.id_timestamp(id), snowid.id_timestamp(id), snowid.id_timestamp(id), snowid.id_timestamp(id)
)) FROM generate_series(1, :n::bigint) id;
