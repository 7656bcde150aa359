-- bigserial
DROP TABLE IF EXISTS load_bigserial;
DROP SEQUENCE IF EXISTS load_bigserial_seq;
CREATE SEQUENCE load_bigserial_seq;
CREATE TABLE load_bigserial (
	id bigint PRIMARY KEY DEFAULT nextval('load_bigserial_seq'),
	user_id bigint NOT NULL
);
-- timed
INSERT INTO load_bigserial (user_id) SELECT i FROM generate_series(1, :n) i;
