-- gen_random_uuid
DROP TABLE IF EXISTS load_gen_random_uuid;
CREATE TABLE load_gen_random_uuid (
	id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
	user_id bigint NOT NULL
);
-- timed
INSERT INTO load_gen_random_uuid (user_id) SELECT i FROM generate_series(1, :n) i;
