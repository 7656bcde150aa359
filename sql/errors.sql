-- Every error that a person can cause, with its SQLSTATE, message, detail and
-- hint; and that a call that fails takes nothing.
CREATE SCHEMA errors;
SET search_path = errors, public;
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET client_min_messages = warning;

-- Runs a statement, and shows its error with times masked.
CREATE FUNCTION try(statement text, OUT field text, OUT value text)
RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
	state text; message text; detail text; hint text; result text;
BEGIN
	EXECUTE statement INTO result;
	field := 'no error'; value := result;
	RETURN NEXT;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
		detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	FOR field, value IN VALUES (state, message), ('detail', detail), ('hint', hint) LOOP
		value := regexp_replace(value, '20(2[6-9]|3\d|4[0-5])-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?\+00', '<time>', 'g');
		value := regexp_replace(value, 'OID \d+', 'OID <oid>');
		IF value <> '' THEN
			RETURN NEXT;
		END IF;
	END LOOP;
END $$;

CREATE SEQUENCE seq;
CREATE TABLE "A table" (id bigint);
CREATE VIEW a_view AS SELECT 1;
SELECT snowid.next_id(5, 'seq') IS NOT NULL AS called;
SELECT last_value AS before FROM seq \gset

-- shard out of range
SELECT * FROM try($$ SELECT snowid.next_id(8192, 'seq') $$);
SELECT * FROM try($$ SELECT snowid.next_id(-1, 'seq') $$);

-- not a sequence
SELECT * FROM try($$ SELECT snowid.next_id(5, '"A table"') $$);
SELECT * FROM try($$ SELECT snowid.next_id(5, 'a_view') $$);
SELECT * FROM try($$ SELECT snowid.advance('a_view', 1) $$);
SELECT * FROM try($$ SELECT snowid.sequence_state('a_view') $$);

-- the reservation
SELECT * FROM try($$ SELECT snowid.next_id(5, 'snowid_internal.reservation') $$);
SELECT * FROM try($$ SELECT snowid.advance('snowid_internal.reservation', 1) $$);
SELECT * FROM try($$ SELECT snowid.sequence_state('snowid_internal.reservation') $$);

-- no such sequence, by name and by a stale OID
SELECT * FROM try($$ SELECT snowid.next_id(5, 'nowhere') $$);
CREATE SEQUENCE dropped;
SELECT 'dropped'::regclass::oid AS dropped \gset
BEGIN;
SELECT snowid.next_id(5, 'dropped') IS NOT NULL AS called;
DROP SEQUENCE dropped;
SELECT * FROM try('SELECT snowid.next_id(5, ' || :dropped || ')');
COMMIT;
SELECT * FROM try('SELECT snowid.next_id(5, ' || :dropped || ')');
SELECT * FROM try('SELECT snowid.sequence_state(' || :dropped || ')');

-- read-only
BEGIN READ ONLY;
SELECT * FROM try($$ SELECT snowid.next_id(5, 'seq') $$);
SELECT * FROM try($$ SELECT snowid.advance('seq', 1) $$);
COMMIT;

-- snowid.shard not set, out of range, or set by the wrong one: see privileges
SELECT * FROM try($$ SELECT snowid.next_id() $$);
SELECT * FROM try($$ SET snowid.shard = 8192 $$);
SELECT * FROM try($$ SET snowid.shard = 'insta5' $$);

-- its sequence is not where it was
BEGIN;
SET LOCAL snowid.shard = 5;
ALTER SEQUENCE snowid.id_seq RENAME TO elsewhere;
SELECT * FROM try($$ SELECT snowid.next_id() $$);
ROLLBACK;

-- over a day ahead of the clock: a slot, and a plain counter far too large
SELECT (extract(epoch FROM now() - '2011-08-24 21:07:01.721+00') * 1000)::bigint AS now_ms \gset
CREATE SEQUENCE ahead;
SELECT setval('ahead', (:now_ms + 86400000 + 60000) << 10) IS NOT NULL AS set;
SELECT * FROM try($$ SELECT snowid.next_id(5, 'ahead') $$);
SELECT setval('ahead', (:now_ms + 86400000 - 60000) << 10) IS NOT NULL AS set;
SELECT * FROM try($$ SELECT snowid.next_id(5, 'ahead') IS NOT NULL $$);
SELECT setval('ahead', 9223372036854775807) IS NOT NULL AS set;
SELECT * FROM try($$ SELECT snowid.next_id(5, 'ahead') $$);
-- another epoch on the same sequence
SELECT * FROM try($$ SELECT snowid.next_id(5, 'seq', '2026-01-01') $$);
SELECT * FROM try(format('SELECT snowid.advance(%L, %s)', 'seq',
	snowid.make_id(now() + interval '2 days', 5, 0)));

-- the layout's time is used up, or has not begun
SELECT * FROM try($$ SELECT snowid.next_id(5, 'seq', now() - interval '34 years 11 months') $$);
SELECT * FROM try($$ SELECT snowid.next_id(5, 'seq', '1970-01-01') $$);
SELECT * FROM try($$ SELECT snowid.advance('seq', -1) $$);
SELECT * FROM try($$ SELECT snowid.next_id(5, 'seq', now() + interval '1 day') $$);
SELECT * FROM try($$ SELECT snowid.advance('seq', 1, now() + interval '1 day') $$);

-- MAXVALUE, and a sequence too narrow
CREATE SEQUENCE narrow AS integer;
SELECT * FROM try($$ SELECT snowid.next_id(5, 'narrow') $$);
SELECT * FROM try($$ SELECT snowid.advance('narrow', 8388608 * 4194304::bigint) $$);
ALTER SEQUENCE narrow AS bigint NO MAXVALUE;
SELECT * FROM try($$ SELECT snowid.next_id(5, 'narrow') IS NOT NULL $$);
CREATE SEQUENCE "Limited" MAXVALUE 1000000000000 CYCLE;
SELECT * FROM try($$ SELECT snowid.next_id(5, '"Limited"') $$);
CREATE SEQUENCE nearly;
SELECT snowid.next_id(5, 'nearly') IS NOT NULL AS called;
SELECT last_value + 2 AS max FROM nearly \gset
ALTER SEQUENCE nearly MAXVALUE :max;
SELECT count(*) FROM try($$ SELECT count(snowid.next_id(5, 'nearly')) FROM generate_series(1, 3) $$) WHERE field = '2200H';
SELECT last_value <= :max AS within FROM nearly;

-- INCREMENT
CREATE SEQUENCE wide INCREMENT 1025;
SELECT * FROM try($$ SELECT snowid.next_id(5, 'wide') $$);
CREATE SEQUENCE down INCREMENT -1;
SELECT * FROM try($$ SELECT snowid.next_id(5, 'down') $$);
SELECT is_called FROM wide UNION ALL SELECT is_called FROM down;

-- parts out of range
SELECT * FROM try($$ SELECT snowid.make_id('2026-01-01', 8192, 0) $$);
SELECT * FROM try($$ SELECT snowid.make_id('2026-01-01', -1, 0) $$);
SELECT * FROM try($$ SELECT snowid.make_id('2026-01-01', 0, 1024) $$);
SELECT * FROM try($$ SELECT snowid.make_id('2026-01-01', 0, -1) $$);
SELECT * FROM try($$ SELECT snowid.make_id('2011-08-24 21:07:01.72+00', 0, 0) $$);
SELECT * FROM try($$ SELECT snowid.make_id('2081-04-30 12:54:37.273+00', 0, 0) $$);
SELECT * FROM try($$ SELECT snowid.make_id('infinity', 0, 0) $$);
SELECT * FROM try($$ SELECT snowid.make_id('-infinity', 0, 0) $$);
SELECT * FROM try($$ SELECT snowid.make_id('294276-01-01', 0, 0, '4713-01-01 BC') $$);

-- epochs
SELECT * FROM try($$ SELECT snowid.next_id(5, 'seq', 'infinity') $$);
SELECT * FROM try($$ SELECT snowid.id_timestamp(1, '-infinity') $$);
SELECT * FROM try($$ SELECT snowid.id_parts(1, 'infinity') $$);
SELECT * FROM try($$ SELECT snowid.make_id(now(), 1, 1, 'infinity') $$);
SELECT * FROM try($$ SELECT snowid.min_id(now(), 'infinity') $$);
SELECT * FROM try($$ SELECT snowid.max_id(now(), '-infinity') $$);
SELECT * FROM try($$ SELECT snowid.id_between(1, now(), now(), 'infinity') $$);
SELECT * FROM try($$ SELECT snowid.advance('seq', 1, 'infinity') $$);
SELECT * FROM try($$ SELECT snowid.sequence_state('seq', 'infinity') $$);
SELECT * FROM try($$ SELECT snowid.id_timestamp(-1, '294276-01-01') $$);

-- base 62: length, alphabet, value
SELECT * FROM try($$ SELECT snowid.base62_to_id('') $$);
SELECT * FROM try($$ SELECT snowid.base62_to_id('4o4tFh70Ix') $$);
SELECT * FROM try($$ SELECT snowid.base62_to_id('4o4tFh70IxU0') $$);
SELECT * FROM try($$ SELECT snowid.base62_to_id('4o4tFh70Ix-') $$);
SELECT * FROM try($$ SELECT snowid.base62_to_id('4o4tFh70Ié') $$);
SELECT * FROM try($$ SELECT snowid.base62_to_id(' 4o4tFh70Ix') $$);
SELECT * FROM try($$ SELECT snowid.base62_to_id('LygHa16AHYG') $$);
SELECT * FROM try($$ SELECT snowid.base62_to_id('zzzzzzzzzzz') $$);

-- NULLs give NULL
SELECT snowid.id_timestamp(NULL) IS NULL AND snowid.id_timestamp(1, NULL) IS NULL AND
	snowid.id_shard(NULL) IS NULL AND snowid.id_seq(NULL) IS NULL AND
	snowid.id_parts(NULL) IS NULL AND snowid.make_id(NULL, 1, 1) IS NULL AND
	snowid.min_id(NULL) IS NULL AND snowid.max_id(NULL) IS NULL AND
	snowid.id_between(NULL, now(), now()) IS NULL AND
	snowid.id_to_base62(NULL) IS NULL AND snowid.base62_to_id(NULL) IS NULL AND
	snowid.advance(NULL, 1) IS NULL AND snowid.sequence_state(NULL) IS NULL AS all_null;

-- After all that, the sequence is where it was.
SELECT last_value = :before AS untouched FROM seq;

RESET search_path;
RESET client_min_messages;
\set VERBOSITY terse
SET client_min_messages = warning;
DROP SCHEMA errors CASCADE;
