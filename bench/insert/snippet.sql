-- PL/pgSQL snippet
DROP TABLE IF EXISTS insert_snippet;
CREATE TABLE insert_snippet (
	id bigint PRIMARY KEY DEFAULT insta5.next_id(),
	user_id bigint NOT NULL
);
-- timed
INSERT INTO insert_snippet (user_id) VALUES (42);
