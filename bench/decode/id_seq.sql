-- id_seq
-- calls: 20
-- timed
SELECT count(num_nulls(
	snowid.id_seq(id), snowid.id_seq(id), snowid.id_seq(id), snowid.id_seq(id), snowid.id_seq(id),
	snowid.id_seq(id), snowid.id_seq(id), snowid.id_seq(id), snowid.id_seq(id), snowid.id_seq(id),
	snowid.id_seq(id), snowid.id_seq(id), snowid.id_seq(id), snowid.id_seq(id), snowid.id_seq(id),
	snowid.id_seq(id), snowid.id_seq(id), snowid.id_seq(id), snowid.id_seq(id), snowid.id_seq(id)
)) FROM generate_series(1, :n::bigint) id;
