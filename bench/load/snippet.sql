-- PL/pgSQL snippet
DROP TABLE IF EXISTS load_snippet;
CREATE TABLE load_snippet (
	id bigint PRIMARY KEY DEFAULT insta5.next_id(),
	user_id bigint NOT NULL
);
-- timed
INSERT INTO load_snippet (user_id) SELECT i FROM generate_series(1, :n) i;
