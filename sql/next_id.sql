-- What one session sees of next_id(): the rules of the generator, each in the
-- smallest case.  Several sessions: specs/ and t/.
CREATE SCHEMA insta5;
CREATE SEQUENCE insta5.id_seq;
SET search_path = insta5, public;

-- The id names the shard, and its time is now.
SELECT shard, seq < 1024 AS seq_in_range,
	created_at BETWEEN clock_timestamp() - interval '1 s' AND clock_timestamp() AS is_now
FROM snowid.id_parts(snowid.next_id(5, 'insta5.id_seq'));
SELECT snowid.id_shard(snowid.next_id(0, 'id_seq')) AS lowest,
	snowid.id_shard(snowid.next_id(8191, 'id_seq')) AS highest;

-- Strictly rising, many of them in a millisecond: a busy machine may not get to 1,024.
SELECT count(*), bool_and(id > before) AS rising, max(snowid.id_seq(id)) > 100 AS many,
	max(snowid.id_timestamp(id)) <= clock_timestamp() + interval '11 ms' AS not_ahead
FROM (
	SELECT id, lag(id) OVER (ORDER BY i) AS before
	FROM (
		SELECT i, snowid.next_id(5, 'id_seq') AS id
		FROM generate_series(1, 50000) AS i OFFSET 0) AS made) AS pairs
WHERE before IS NOT NULL;

-- An own epoch.
CREATE SEQUENCE own_epoch;
SELECT abs(extract(epoch FROM clock_timestamp()
	- snowid.id_timestamp(snowid.next_id(5, 'own_epoch', '2026-01-01'), '2026-01-01'))) < 1 AS is_now;

-- NULL in, NULL out, and nothing taken.
SELECT last_value AS before FROM own_epoch \gset
SELECT snowid.next_id(NULL, 'own_epoch') IS NULL AND
	snowid.next_id(5, NULL) IS NULL AND
	snowid.next_id(5, 'own_epoch', NULL) IS NULL AS all_null;
SELECT last_value = :before AS untouched FROM own_epoch;

-- A sequence that counted 1, 2, 3 goes on from now; nextval() then takes slots.
CREATE SEQUENCE old;
SELECT nextval('old'), nextval('old');
SELECT snowid.next_id(5, 'old') AS id \gset
SELECT snowid.id_timestamp(:id) > clock_timestamp() - interval '1 s' AS is_now;
SELECT nextval('old') = ((:id >> 23) << 10) + (:id & 1023) + 1 AS next_slot;

-- Forward by setval(), called or not, and not by a START in the future, whose MINVALUE
-- a dump could not go below.
SELECT (extract(epoch FROM clock_timestamp() - '2011-08-24 21:07:01.721+00') * 1000)::bigint + 60000 << 10 AS soon \gset
CREATE SEQUENCE forward;
SELECT setval('forward', :soon) = :soon AS set;
SELECT (snowid.next_id(5, 'forward') >> 23 << 10 | 1) = :soon + 1 AS after_it;
SELECT setval('forward', :soon + 1024, false) = :soon + 1024 AS set;
SELECT snowid.next_id(5, 'forward') >> 23 << 10 = :soon + 1024 AS it;
CREATE SEQUENCE start_far_away MINVALUE 8725724278030336 START 8725724278030336;
SELECT snowid.id_timestamp(snowid.next_id(5, 'start_far_away')) <= clock_timestamp() AS from_now;

-- INCREMENT k: blocks of k consecutive slots within one millisecond.
CREATE SEQUENCE blocks INCREMENT 300;
SELECT count(*), bool_and(snowid.id_seq(id) <= 1024 - 300) AS within_a_ms,
	bool_and(id - before >= 300) AS disjoint
FROM (
	SELECT id, lag(id) OVER (ORDER BY i) AS before
	FROM (
		SELECT i, snowid.next_id(0, 'blocks') AS id
		FROM generate_series(1, 50) AS i OFFSET 0) AS made) AS pairs;
ALTER SEQUENCE blocks INCREMENT 1024;
SELECT count(DISTINCT id), max(snowid.id_seq(id)) AS highest_seq
FROM (SELECT snowid.next_id(0, 'blocks') AS id FROM generate_series(1, 20)) AS made;
-- A smaller increment later does not go back into the last block.
ALTER SEQUENCE blocks INCREMENT 1;
SELECT last_value AS block_end FROM blocks \gset
SELECT snowid.next_id(0, 'blocks') >> 23 << 10 > :block_end AS after_block;

-- nextval() logs for itself: no cover is left, whatever it had.
CREATE SEQUENCE covered;
SELECT snowid.next_id(5, 'covered') IS NOT NULL AS called;
SELECT log_cnt FROM covered;
SELECT count(nextval('covered')) FROM generate_series(1, 10);
SELECT log_cnt > 0 AS covers FROM covered;
SELECT snowid.next_id(5, 'covered') IS NOT NULL AS called;
SELECT log_cnt FROM covered;

-- Nor have temporary and unlogged sequences one.
CREATE TEMP SEQUENCE temporary;
SELECT snowid.next_id(5, 'temporary') < snowid.next_id(5, 'temporary') AS rising;
SELECT log_cnt, is_called FROM temporary;

-- Read-only transactions may use temporary sequences, and the others not.
BEGIN READ ONLY;
SELECT snowid.next_id(5, 'temporary') IS NOT NULL AS ok;
SELECT snowid.next_id(5, 'id_seq');
ROLLBACK;

-- RESTART forgets what was issued; the ids rise all the same.
SELECT max(snowid.next_id(5, 'id_seq')) AS before FROM generate_series(1, 20000) \gset
ALTER SEQUENCE id_seq RESTART;
SELECT snowid.next_id(5, 'id_seq') > :before AS rising;
CREATE TABLE truncated (id bigint GENERATED ALWAYS AS IDENTITY);
SELECT max(snowid.next_id(5, 'truncated_id_seq')) AS before FROM generate_series(1, 20000) \gset
TRUNCATE truncated RESTART IDENTITY;
SELECT nextval('truncated_id_seq');
SELECT snowid.next_id(5, 'truncated_id_seq') > :before AS rising;

-- Rolled back calls are not given again.
BEGIN;
SELECT snowid.next_id(5, 'id_seq') AS lost \gset
SAVEPOINT a;
SELECT snowid.next_id(5, 'id_seq') AS lost_too \gset
ROLLBACK TO a;
SELECT snowid.next_id(5, 'id_seq') > :lost_too AND :lost_too > :lost AS rising;
ROLLBACK;
SELECT snowid.next_id(5, 'id_seq') > :lost_too AS rising;

-- advance(): later ids are larger than the given one, of whatever shard.
SELECT snowid.make_id(clock_timestamp() + interval '1 hour', 8191, 1000) AS ahead \gset
SELECT snowid.advance('id_seq', :ahead);
SELECT snowid.next_id(0, 'id_seq') > :ahead AS larger;
-- It never goes back.
SELECT snowid.advance('id_seq', 1);
SELECT snowid.next_id(0, 'id_seq') > :ahead AS still_larger;
CREATE SEQUENCE not_called;
SELECT snowid.advance('not_called', snowid.make_id(clock_timestamp(), 5, 0));
SELECT is_called, log_cnt FROM not_called;
-- Nor below the slot that setval() has named.
CREATE SEQUENCE named;
SELECT setval('named', :ahead >> 23 << 10, false) > 0 AS named;
SELECT snowid.advance('named', 1);
SELECT snowid.next_id(0, 'named') >> 23 >= :ahead >> 23 AS not_below;
CREATE SEQUENCE named_past;
SELECT setval('named_past', snowid.min_id(now() - interval '1 hour') >> 23 << 10, false) AS named_past \gset
SELECT snowid.advance('named_past', 1);
SELECT last_value >= :named_past - 1 AS not_below FROM named_past;
CREATE SEQUENCE named_far;
SELECT setval('named_far', snowid.make_id(now() + interval '3 days', 0, 0) >> 23 << 10, false) > 0 AS named;
SELECT snowid.advance('named_far', 1);
SELECT snowid.id_timestamp(snowid.next_id(0, 'named_far')) < now() + interval '1 minute' AS from_now;

-- sequence_state()
SELECT last_id_at - snowid.id_timestamp(:ahead) AS after_that, slots_left,
	ahead BETWEEN '59 min' AND '1 hour' AS ahead
FROM snowid.sequence_state('id_seq');
CREATE SEQUENCE fresh;
SELECT * FROM snowid.sequence_state('fresh');
CREATE SEQUENCE no_time MINVALUE -5 START -5;
SELECT nextval('no_time');
SELECT * FROM snowid.sequence_state('no_time');
SELECT abs(extract(epoch FROM ahead)) < 60 AS own_epoch_is_near
FROM snowid.sequence_state('own_epoch', '2026-01-01');

-- The whole database as one shard.
SELECT snowid.next_id();
SET snowid.shard = 1341;
SELECT snowid.id_shard(snowid.next_id()), snowid.next_id() < snowid.next_id() AS rising;
RESET snowid.shard;

-- In a DEFAULT, as the published design has it: word for word.
CREATE FUNCTION next_id() RETURNS bigint LANGUAGE sql
	AS $$ SELECT snowid.next_id(5, 'insta5.id_seq') $$;
CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id(), user_id bigint NOT NULL);
INSERT INTO photos (user_id) SELECT i FROM generate_series(1, 5) AS i;
SELECT user_id, snowid.id_shard(id), id > lag(id) OVER (ORDER BY user_id) AS rising
FROM photos ORDER BY id;

RESET search_path;
\set VERBOSITY terse
SET client_min_messages = warning;
DROP SCHEMA insta5 CASCADE;
