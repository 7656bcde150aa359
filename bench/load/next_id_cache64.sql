-- next_id, CACHE 64
DROP TABLE IF EXISTS load_next_id_cache64;
DROP SEQUENCE IF EXISTS load_next_id_cache64_seq;
CREATE SEQUENCE load_next_id_cache64_seq CACHE 64;
CREATE TABLE load_next_id_cache64 (
	id bigint PRIMARY KEY DEFAULT snowid.next_id(5, 'load_next_id_cache64_seq'),
	user_id bigint NOT NULL
);
-- timed
INSERT INTO load_next_id_cache64 (user_id) SELECT i FROM generate_series(1, :n) i;
