-- CACHE n: a session takes n slots of a millisecond at a time, and serves them
-- only while they are fresh.  And what a session keeps of a sequence, its
-- pinned page too, follows transactions, savepoints and DDL.
CREATE SCHEMA cache;
SET search_path = cache, public;

CREATE SEQUENCE eight CACHE 8;
SELECT count(*), bool_and(id > before) AS rising, max(snowid.id_timestamp(id)) <= clock_timestamp() + interval '11 ms' AS not_ahead
FROM (
	SELECT id, lag(id) OVER (ORDER BY i) AS before
	FROM (
		SELECT i, snowid.next_id(5, 'eight') AS id
		FROM generate_series(1, 50000) AS i OFFSET 0) AS made) AS pairs
WHERE before IS NOT NULL;

-- What is taken ahead is on the page, and is not kept for another transaction.
CREATE SEQUENCE fresh CACHE 8;
BEGIN;
SELECT snowid.next_id(5, 'fresh') AS first \gset
SELECT last_value - ((:first >> 23 << 10) | (:first & 1023)) AS taken_ahead FROM fresh;
COMMIT;
DO $$
DECLARE
	id bigint; last bigint; reused int := 0;
BEGIN
	FOR i IN 1 .. 100 LOOP
		PERFORM snowid.next_id(5, 'cache.fresh');
		SELECT last_value INTO last FROM cache.fresh;
		COMMIT;
		id := snowid.next_id(5, 'cache.fresh');
		reused := reused + (((id >> 23 << 10) | (id & 1023)) <= last)::int;
	END LOOP;
	RAISE NOTICE '% kept over a commit', reused;
END $$;

-- Nor for a later millisecond.
BEGIN;
SELECT snowid.next_id(5, 'eight') AS id \gset
DO $$ DECLARE t timestamptz := clock_timestamp() + interval '20 ms';
BEGIN WHILE clock_timestamp() < t LOOP END LOOP; END $$;
SELECT snowid.id_timestamp(snowid.next_id(5, 'eight')) > snowid.id_timestamp(:id) + interval '5 ms' AS is_later;
COMMIT;

-- INCREMENT and CACHE together: blocks, still within a millisecond.
CREATE SEQUENCE blocks INCREMENT 50 CACHE 1000;
SELECT count(*), bool_and(snowid.id_seq(id) <= 1024 - 50) AS within_a_ms, bool_and(id - before >= 50) AS disjoint
FROM (
	SELECT id, lag(id) OVER (ORDER BY i) AS before
	FROM (
		SELECT i, snowid.next_id(0, 'blocks') AS id
		FROM generate_series(1, 500) AS i OFFSET 0) AS made) AS pairs;

-- Each of these makes a session forget what it took ahead, or knew.
BEGIN;
SELECT snowid.next_id(5, 'eight') AS a \gset
SELECT snowid.advance('eight', :a);
SELECT snowid.id_timestamp(snowid.next_id(5, 'eight')) > snowid.id_timestamp(:a) AS after_advance;
SELECT snowid.next_id(5, 'eight', '2011-08-24 21:07:01.721+00') > :a AS same_epoch_given;
ALTER SEQUENCE eight INCREMENT 100;
SELECT snowid.next_id(5, 'eight') <= snowid.next_id(5, 'eight') - 100 AS new_increment;
SAVEPOINT a;
ALTER SEQUENCE eight RESTART INCREMENT 1 CACHE 1;
SELECT snowid.next_id(5, 'eight') > :a AS restarted;
ROLLBACK TO a;
SELECT snowid.next_id(5, 'eight') > :a AS rolled_back;
SAVEPOINT b;
SELECT snowid.next_id(5, 'eight') > :a AS in_savepoint;
RELEASE b;
SELECT snowid.next_id(5, 'eight') > :a AS after_it;
COMMIT;

-- The page is pinned when an error, a rolled back file or a DROP comes.
BEGIN;
CREATE SEQUENCE short_lived;
SELECT snowid.next_id(5, 'short_lived') IS NOT NULL AS called;
DROP SEQUENCE short_lived;
COMMIT;
BEGIN;
SAVEPOINT a;
CREATE SEQUENCE rolled_back;
SELECT snowid.next_id(5, 'rolled_back') IS NOT NULL AS called;
ROLLBACK TO a;
SELECT snowid.next_id(5, 'eight') > :a AS goes_on;
SELECT 1 / 0;
ROLLBACK;
CREATE TEMP SEQUENCE temporary CACHE 8;
BEGIN;
SELECT snowid.next_id(5, 'temporary') < snowid.next_id(5, 'temporary') AS rising;
SELECT count(snowid.next_id(5, 'eight')) + count(snowid.next_id(5, 'blocks')) AS other_pages;
SELECT snowid.next_id(5, 'temporary') < snowid.next_id(5, 'temporary') AS rising;
DROP SEQUENCE temporary;
COMMIT;
DO $$
BEGIN
	FOR i IN 1 .. 100 LOOP
		BEGIN
			PERFORM snowid.next_id(5, 'cache.eight');
			RAISE division_by_zero;
		EXCEPTION WHEN division_by_zero THEN
			PERFORM snowid.next_id(5, 'cache.blocks');
		END;
		IF i % 10 = 0 THEN
			COMMIT;
		END IF;
	END LOOP;
END $$;
BEGIN;
DECLARE held CURSOR WITH HOLD FOR
	SELECT snowid.next_id(5, 'eight') > i AS rising FROM generate_series(1, 3) AS i;
FETCH 1 FROM held;
COMMIT;
FETCH ALL FROM held;
CLOSE held;

-- A change of role within a statement is a change of rights.
CREATE ROLE snowid_other;
GRANT USAGE ON SCHEMA cache TO snowid_other;
CREATE FUNCTION as_other() RETURNS bigint LANGUAGE sql SECURITY DEFINER
	AS $$ SELECT snowid.next_id(5, 'cache.eight') $$;
ALTER FUNCTION as_other() OWNER TO snowid_other;
SELECT snowid.next_id(5, 'eight') IS NOT NULL, as_other();
GRANT USAGE ON SEQUENCE eight TO snowid_other;
SELECT snowid.next_id(5, 'eight') < as_other() AS granted;
BEGIN;
SET LOCAL ROLE snowid_other;
SELECT snowid.next_id(5, 'eight') IS NOT NULL AS granted;
RESET ROLE;
REVOKE USAGE ON SEQUENCE eight FROM snowid_other;
SET LOCAL ROLE snowid_other;
SELECT snowid.next_id(5, 'eight');
ROLLBACK;
-- Through membership, too.
CREATE ROLE snowid_group;
GRANT snowid_group TO snowid_other;
REVOKE USAGE ON SEQUENCE eight FROM snowid_other;
GRANT USAGE ON SEQUENCE eight TO snowid_group;
SELECT as_other() IS NOT NULL AS member;
REVOKE snowid_group FROM snowid_other;
SELECT as_other();

RESET search_path;
\set VERBOSITY terse
SET client_min_messages = warning;
DROP SCHEMA cache CASCADE;
DROP ROLE snowid_other, snowid_group;
