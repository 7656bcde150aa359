-- Run once before the measures: what several variants share.
CREATE EXTENSION IF NOT EXISTS snowid;

-- The PL/pgSQL function as it was published, and is copied ever since.
CREATE SCHEMA IF NOT EXISTS insta5;
CREATE SEQUENCE IF NOT EXISTS insta5.table_id_seq;
CREATE OR REPLACE FUNCTION insta5.next_id(OUT result bigint) AS $$
DECLARE
    our_epoch bigint := 1314220021721;
    seq_id bigint;
    now_millis bigint;
    shard_id int := 5;
BEGIN
    SELECT nextval('insta5.table_id_seq') % 1024 INTO seq_id;
    SELECT FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) INTO now_millis;
    result := (now_millis - our_epoch) << 23;
    result := result | (shard_id << 10);
    result := result | (seq_id);
END;
$$ LANGUAGE PLPGSQL;
