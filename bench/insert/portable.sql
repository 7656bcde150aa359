-- next_id, portable edition
DROP TABLE IF EXISTS insert_portable;
DROP SEQUENCE IF EXISTS insert_portable_seq;
CREATE SEQUENCE insert_portable_seq;
CREATE TABLE insert_portable (
	id bigint PRIMARY KEY DEFAULT portable.next_id(5, 'insert_portable_seq'),
	user_id bigint NOT NULL
);
-- timed
INSERT INTO insert_portable (user_id) VALUES (42);
