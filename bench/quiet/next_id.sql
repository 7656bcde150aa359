-- next_id
DROP TABLE IF EXISTS quiet_next_id;
CREATE TABLE quiet_next_id (id bigint PRIMARY KEY, user_id bigint NOT NULL);
-- timed
DO $$
BEGIN
	FOR n IN 0 .. current_setting('bench.shards')::int - 1 LOOP
		INSERT INTO quiet_next_id SELECT snowid.next_id(i, ours), 42 FROM seqs WHERE i = n;
		COMMIT;
	END LOOP;
END
$$;
