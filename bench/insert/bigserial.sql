-- bigserial
DROP TABLE IF EXISTS insert_bigserial;
DROP SEQUENCE IF EXISTS insert_bigserial_seq;
CREATE SEQUENCE insert_bigserial_seq;
CREATE TABLE insert_bigserial (
	id bigint PRIMARY KEY DEFAULT nextval('insert_bigserial_seq'),
	user_id bigint NOT NULL
);
-- timed
INSERT INTO insert_bigserial (user_id) VALUES (42);
