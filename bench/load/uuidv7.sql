-- uuidv7 (PostgreSQL 18)
-- needs: to_regprocedure('uuidv7()') IS NOT NULL
DROP TABLE IF EXISTS load_uuidv7;
CREATE TABLE load_uuidv7 (
	id uuid PRIMARY KEY DEFAULT uuidv7(),
	user_id bigint NOT NULL
);
-- timed
INSERT INTO load_uuidv7 (user_id) SELECT i FROM generate_series(1, :n) i;
