-- adopt_shard: a schema that runs the published PL/pgSQL snippet becomes a
-- shard, and no table of it changes.
SET timezone = 'UTC';
SET datestyle = 'ISO';
\set SHOW_CONTEXT never

-- The snippet as it was published, with the schema's name filled in.
CREATE PROCEDURE public.snippet(schema text, shard int, epoch bigint DEFAULT 1314220021721,
	seq text DEFAULT NULL)
LANGUAGE plpgsql AS $outer$
BEGIN
	EXECUTE format('CREATE SCHEMA %I; CREATE SEQUENCE %1$I.table_id_seq', schema);
	EXECUTE format($$
CREATE OR REPLACE FUNCTION %1$I.next_id(OUT result bigint) AS $snippet$
DECLARE
    our_epoch bigint := %3$s;
    seq_id bigint;
    now_millis bigint;
    shard_id int := %2$s;
BEGIN
    SELECT nextval(%4$L) %% 1024 INTO seq_id;
    SELECT FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) INTO now_millis;
    result := (now_millis - our_epoch) << 23;
    result := result | (shard_id << 10);
    result := result | (seq_id);
END;
    $snippet$ LANGUAGE PLPGSQL$$, schema, shard, epoch, coalesce(seq, format('%I.table_id_seq', schema)));
	EXECUTE format('CREATE TABLE %I.photos (id bigint PRIMARY KEY DEFAULT %1$I.next_id(), n int)', schema);
	EXECUTE format('CREATE TABLE %I.likes (id bigint PRIMARY KEY DEFAULT %1$I.next_id(), n int)', schema);
END
$outer$;

CALL snippet('insta5', 5);
INSERT INTO insta5.photos (n) SELECT generate_series(1, 3000);
INSERT INTO insta5.likes (n) SELECT generate_series(1, 3000);
CREATE TABLE before AS
SELECT oid, proacl, proowner, pg_get_function_identity_arguments(oid) AS args FROM pg_proc WHERE oid = 'insta5.next_id'::regproc;

-- Wrong number, wrong epoch: each refused, with the id that disagrees.
CREATE FUNCTION public.adopt(text, OUT state text, OUT message text, OUT detail text, OUT hint text)
LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE $1;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	message := regexp_replace(message, 'id \d{15,}', 'id <id>');
	detail := regexp_replace(detail, 'of 20[^;]*;', 'of <time>;');
END
$$;
\x
SELECT * FROM adopt($$ SELECT snowid.adopt_shard(6, 'insta5') $$);
SELECT * FROM adopt($$ SELECT snowid.adopt_shard(5, 'insta5', epoch => '2020-01-01') $$);
SELECT * FROM adopt($$ SELECT snowid.adopt_shard(5, 'insta5', epoch => '2011-08-24 21:00+00') $$);
-- a row that the snippet did not make
INSERT INTO insta5.likes VALUES (snowid.make_id(clock_timestamp(), 4, 1), 0);
SELECT * FROM adopt($$ SELECT snowid.adopt_shard(5, 'insta5') $$);
DELETE FROM insta5.likes WHERE n = 0;
INSERT INTO insta5.likes VALUES (snowid.make_id('2041-01-01', 5, 1), 0);
SELECT * FROM adopt($$ SELECT snowid.adopt_shard(5, 'insta5') $$);
DELETE FROM insta5.likes WHERE n = 0;
\x
SELECT count(*) FROM snowid.shards;

-- Adopted: the function is the same one, now inlined, and ids go on above.
SELECT snowid.adopt_shard(5, 'insta5') = greatest((SELECT max(id) FROM insta5.photos), (SELECT max(id) FROM insta5.likes)) AS newest;
SELECT p.oid = b.oid AS same, p.proacl IS NOT DISTINCT FROM b.proacl AS acl, p.proowner = b.proowner AS owner,
	pg_get_function_identity_arguments(p.oid) = b.args AS args
FROM before b, pg_proc p WHERE p.oid = 'insta5.next_id'::regproc;
EXPLAIN (VERBOSE, COSTS OFF) INSERT INTO insta5.photos (n) VALUES (1);
SELECT * FROM insta5.next_id() WHERE result IS NULL;
SELECT shard, schema, epoch, tables, lives FROM snowid.shards;
INSERT INTO insta5.photos (n) SELECT -i FROM generate_series(1, 3000) i;
SELECT min(id) FILTER (WHERE n < 0) > max(id) FILTER (WHERE n > 0) AS above,
	bool_and(snowid.id_shard(id) = 5) AS shard FROM insta5.photos;
SELECT seqcycle, seqmax, seqcache, seqincrement FROM pg_sequence WHERE seqrelid = 'insta5.table_id_seq'::regclass;
SELECT * FROM adopt($$ SELECT snowid.adopt_shard(5, 'insta5') $$) \gx
SELECT snowid.create_shard(5);

-- An epoch of its own, hostile names, a sequence that wraps, empty tables.
CALL snippet('In"sta''6.%s', 6, 1700000000000);
ALTER SEQUENCE "In""sta'6.%s".table_id_seq MAXVALUE 1024 CYCLE CACHE 20;
SELECT snowid.adopt_shard(6, 'In"sta''6.%s');
SELECT epoch, lives FROM snowid.shards WHERE shard = 6;
INSERT INTO "In""sta'6.%s".photos (n) VALUES (1)
RETURNING snowid.id_shard(id), snowid.id_timestamp(id, '2023-11-14 22:13:20+00') BETWEEN now() AND now() + interval '2 s' AS recent;

-- A sequence that the text names without a schema, is the shard's own.
CALL snippet('insta7', 7, seq => 'table_id_seq');
BEGIN;
SELECT snowid.adopt_shard(7, 'insta7');
-- a second ahead, for calls of the snippet that wait for this transaction
SELECT snowid.id_timestamp(last_value >> 10 << 23) >= now() + interval '999 ms' AS ahead FROM insta7.table_id_seq;
COMMIT;
SELECT sequence FROM snowid.shard_registry WHERE shard = 7;

-- One that a serial column left behind: it no longer goes with that table.
CREATE SCHEMA insta11;
CREATE TABLE insta11.photos (id bigserial PRIMARY KEY);
CREATE FUNCTION insta11.next_id() RETURNS bigint LANGUAGE sql AS
'SELECT snowid.make_id(clock_timestamp(), 11, nextval(''insta11.photos_id_seq'')::int % 1024)';
ALTER TABLE insta11.photos ALTER COLUMN id SET DEFAULT insta11.next_id();
SELECT snowid.adopt_shard(11, 'insta11', epoch => '2011-08-24 21:07:01.721+00');
SELECT snowid.set_default('insta11.photos');
DROP TABLE insta11.photos;
SELECT snowid.id_shard(insta11.next_id());

-- One that another column counts with, whose numbers would leap.
CREATE TABLE insta11.invoices (no int DEFAULT nextval('insta11.photos_id_seq'));
DELETE FROM snowid.shard_registry WHERE shard = 11;
SELECT * FROM adopt($$ SELECT snowid.adopt_shard(11, 'insta11', 'insta11.photos_id_seq', '2011-08-24 21:07:01.721+00') $$) \gx
CREATE SEQUENCE insta11.id_seq;
SELECT snowid.adopt_shard(11, 'insta11', 'insta11.id_seq', '2011-08-24 21:07:01.721+00');

-- One that is elsewhere, or that the text does not name: told.
CREATE SEQUENCE public.global_seq;
CALL snippet('insta8', 8, seq => 'public.global_seq');
SELECT * FROM adopt($$ SELECT snowid.adopt_shard(8, 'insta8') $$) \gx
CREATE SEQUENCE insta8.id_seq;
SELECT snowid.adopt_shard(8, 'insta8', 'insta8.id_seq');
EXPLAIN (VERBOSE, COSTS OFF) SELECT insta8.next_id();
CALL snippet('insta9', 9);
CREATE OR REPLACE FUNCTION insta9.next_id(OUT result bigint) LANGUAGE sql SECURITY DEFINER
AS 'SELECT snowid.make_id(clock_timestamp(), 9, nextval((''insta9'' || ''.table_id_seq'')::regclass)::int % 1024)';
SELECT * FROM adopt($$ SELECT snowid.adopt_shard(9, 'insta9') $$) \gx
SELECT * FROM adopt($$ SELECT snowid.adopt_shard(9, 'insta9', 'insta9.table_id_seq') $$) \gx
SELECT * FROM adopt($$ SELECT snowid.adopt_shard(9, 'insta9', 'insta9.table_id_seq', 'infinity') $$) \gx
SELECT snowid.adopt_shard(9, 'insta9', 'insta9.table_id_seq', '2011-08-24 21:07:01.721+00');
-- whose rights it runs with stays
SELECT prosecdef FROM pg_proc WHERE oid = 'insta9.next_id'::regproc;
INSERT INTO insta9.photos DEFAULT VALUES RETURNING snowid.id_shard(id);

-- What is no snippet's schema.
SELECT * FROM adopt($$ SELECT snowid.adopt_shard(10, 'nowhere') $$) \gx
SELECT * FROM adopt($$ SELECT snowid.adopt_shard(10, 'public', epoch => '2026-01-01 00:00+00') $$) \gx
SELECT * FROM adopt($$ SELECT snowid.adopt_shard(NULL, 'insta9') $$) \gx
CALL snippet('insta10', 10);
SELECT * FROM adopt($$ SELECT snowid.adopt_shard(10, 'insta10', 'insta10.photos') $$) \gx

-- A schema as it is.  What a shard needs beside its tables is made.
CREATE SCHEMA plain;
CREATE TABLE plain.photos (id bigint PRIMARY KEY, n int);
INSERT INTO plain.photos VALUES (1, 1);
SELECT snowid.register_shard(12, 'plain');
SELECT snowid.set_default('plain.photos');
INSERT INTO plain.photos (n) VALUES (2) RETURNING snowid.id_shard(id);
-- A shard that has lost its row keeps what it has.
DELETE FROM snowid.shard_registry WHERE shard = 12;
SELECT snowid.register_shard(12, 'plain');
INSERT INTO plain.photos (n) VALUES (3);
SELECT array_agg(n ORDER BY id) FROM plain.photos;
CREATE SCHEMA other;
CREATE SEQUENCE other.clock;
SELECT snowid.register_shard(13, 'other', '2026-01-01 00:00+00', 'clock');
EXPLAIN (VERBOSE, COSTS OFF) SELECT other.next_id();
-- what it refuses
CREATE SCHEMA counted;
CREATE SEQUENCE counted.id_seq;
CREATE TABLE counted.photos (id int DEFAULT nextval('counted.id_seq'));
SELECT * FROM adopt($$ SELECT snowid.register_shard(12, 'counted') $$) \gx
SELECT * FROM adopt($$ SELECT snowid.register_shard(14, 'counted') $$) \gx
SELECT * FROM adopt($$ SELECT snowid.register_shard(14, 'counted', sequence => 'photos') $$) \gx
SELECT * FROM adopt($$ SELECT snowid.register_shard(14, 'nowhere') $$) \gx
-- A sequence that counts for snowid.next_id() alone, however names are shown.
CREATE SCHEMA quoted;
CREATE SEQUENCE quoted.clock;
CREATE TABLE quoted.photos (id bigint DEFAULT snowid.next_id(14, 'quoted.clock'));
SET quote_all_identifiers = on;
SELECT snowid.register_shard(14, 'quoted', sequence => 'clock');
RESET quote_all_identifiers;
DELETE FROM snowid.shard_registry WHERE shard = 14;
-- A copy under another number.
SELECT * FROM adopt($$ SELECT snowid.register_shard(15, 'quoted', sequence => 'clock') $$) \gx
ALTER TABLE quoted.photos ALTER id SET DEFAULT snowid.next_id(seq => 'quoted.clock', shard => 14);
SELECT * FROM adopt($$ SELECT snowid.register_shard(15, 'quoted', sequence => 'clock') $$) \gx
ALTER TABLE quoted.photos ALTER id SET DEFAULT snowid.next_id(seq => ('quoted.' || 'clock')::regclass, shard => 14);
SELECT * FROM adopt($$ SELECT snowid.register_shard(15, 'quoted', sequence => 'clock') $$) \gx
ALTER TABLE quoted.photos ALTER id SET DEFAULT plain.next_id();
SELECT * FROM adopt($$ SELECT snowid.register_shard(15, 'quoted', sequence => 'clock') $$) \gx
ALTER TABLE quoted.photos ALTER id DROP DEFAULT;
SELECT snowid.register_shard(15, 'quoted', sequence => 'clock');
SELECT snowid.drop_shard(15, true);
SELECT * FROM adopt($$ SELECT snowid.register_shard(14, 'snowid') $$) \gx
SELECT * FROM adopt($$ SELECT snowid.register_shard(10, 'insta10') $$) \gx

SET client_min_messages = warning;
DROP SCHEMA insta10, counted CASCADE;
SELECT count(snowid.drop_shard(shard, true)) FROM snowid.shards;
DROP FUNCTION adopt;
DROP PROCEDURE snippet;
DROP TABLE before;
DROP SEQUENCE global_seq;
