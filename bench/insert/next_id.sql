-- next_id
DROP TABLE IF EXISTS insert_next_id;
DROP SEQUENCE IF EXISTS insert_next_id_seq;
CREATE SEQUENCE insert_next_id_seq;
CREATE TABLE insert_next_id (
	id bigint PRIMARY KEY DEFAULT snowid.next_id(5, 'insert_next_id_seq'),
	user_id bigint NOT NULL
);
-- timed
INSERT INTO insert_next_id (user_id) VALUES (42);
