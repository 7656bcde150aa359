-- gen_random_uuid
DROP TABLE IF EXISTS insert_gen_random_uuid;
CREATE TABLE insert_gen_random_uuid (
	id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
	user_id bigint NOT NULL
);
-- timed
INSERT INTO insert_gen_random_uuid (user_id) VALUES (42);
