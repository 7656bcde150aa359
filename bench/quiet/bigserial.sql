-- bigserial
-- (One table stands for all shards: so the number of the shard is in its key.)
DROP TABLE IF EXISTS quiet_bigserial;
CREATE TABLE quiet_bigserial (id bigint PRIMARY KEY, user_id bigint NOT NULL);
-- A counter logs one call in 32: not all of them in the same pass.
SELECT count(nextval(cores)) FROM seqs, generate_series(1, i % 32)
WHERE i < current_setting('bench.shards')::int;
-- timed
DO $$
BEGIN
	FOR n IN 0 .. current_setting('bench.shards')::int - 1 LOOP
		INSERT INTO quiet_bigserial SELECT nextval(cores) << 13 | i, 42 FROM seqs WHERE i = n;
		COMMIT;
	END LOOP;
END
$$;
