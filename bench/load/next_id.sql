-- next_id
DROP TABLE IF EXISTS load_next_id;
DROP SEQUENCE IF EXISTS load_next_id_seq;
CREATE SEQUENCE load_next_id_seq;
CREATE TABLE load_next_id (
	id bigint PRIMARY KEY DEFAULT snowid.next_id(5, 'load_next_id_seq'),
	user_id bigint NOT NULL
);
-- timed
INSERT INTO load_next_id (user_id) SELECT i FROM generate_series(1, :n) i;
