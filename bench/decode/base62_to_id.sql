-- base62_to_id
-- calls: 20
-- timed
SELECT count(num_nulls(
	snowid.base62_to_id(text), snowid.base62_to_id(text), snowid.base62_to_id(text), snowid.base62_to_id(text),
	snowid.base62_to_id(text), snowid.base62_to_id(text), snowid.base62_to_id(text), snowid.base62_to_id(text),
	snowid.base62_to_id(text), snowid.base62_to_id(text), snowid.base62_to_id(text), snowid.base62_to_id(text),
	snowid.base62_to_id(text), snowid.base62_to_id(text), snowid.base62_to_id(text), snowid.base62_to_id(text),
	snowid.base62_to_id(text), snowid.base62_to_id(text), snowid.base62_to_id(text), snowid.base62_to_id(text)
)) FROM (SELECT 'AAAA' || to_char(id, 'FM0000000') AS text
	FROM generate_series(1, :n::bigint) id OFFSET 0) AS a;
