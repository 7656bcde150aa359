-- A sequence that a tool has set to the largest id of its table, or to the next one:
-- setval() as in Django's sqlsequencereset, Rails' reset_pk_sequence!, restore scripts.
SET timezone = 'UTC';
\set VERBOSITY terse
SELECT snowid.create_shard(43, 'set43');
CREATE TABLE set43.photos (id bigint PRIMARY KEY DEFAULT set43.next_id());
CREATE FUNCTION pg_temp.is_now(id bigint) RETURNS boolean
LANGUAGE sql RETURN abs(extract(epoch FROM snowid.id_timestamp(id) - clock_timestamp())) < 60;
INSERT INTO set43.photos DEFAULT VALUES;

SELECT setval('set43.id_seq', max(id)) = max(id) AS set, count(*) FROM set43.photos;
SELECT pg_temp.is_now(snowid.max_id(last_id_at)) AS state_is_now, last_id_at IS NOT NULL AS is_known FROM snowid.shards WHERE shard = 43;
INSERT INTO set43.photos DEFAULT VALUES;
SELECT setval('set43.id_seq', max(id) + 1, false) > max(id) AS set FROM set43.photos;
INSERT INTO set43.photos DEFAULT VALUES;
SELECT count(*), bool_and(pg_temp.is_now(id)) AS are_now FROM set43.photos;
SELECT last_value < 1::bigint << 50 AS is_a_slot FROM set43.id_seq;

-- It may have given later ids than that one: the next is above them all.
DO $$
DECLARE
	first bigint := set43.next_id();
	last bigint;
BEGIN
	FOR i IN 1 .. 5 LOOP
		SELECT max(set43.next_id()) INTO last FROM generate_series(1, 15000);
		PERFORM setval('set43.id_seq', first);
		IF set43.next_id() <= last THEN
			RAISE 'given twice';
		END IF;
		SELECT max(set43.next_id()) INTO last FROM generate_series(1, 15000);
		PERFORM setval('set43.id_seq', first);
		PERFORM snowid.advance('set43.id_seq', 0);
		IF set43.next_id() <= last THEN
			RAISE 'given twice after advance()';
		END IF;
	END LOOP;
END
$$;

-- Ahead of the clock, it goes on above that id.
SELECT snowid.make_id(now() + interval '1 hour', 8000, 5) AS ahead \gset
SELECT setval('set43.id_seq', :ahead) AS set \gset
SELECT last_id_at = snowid.id_timestamp(:ahead) AS is_of_id, ahead > interval '59 minutes' AS ahead FROM snowid.sequence_state('set43.id_seq');
SELECT set43.next_id() > :ahead AS above, set43.next_id() < :ahead + (10::bigint << 23) AS near;
SELECT setval('set43.id_seq', :ahead) AS set \gset
SELECT snowid.advance('set43.id_seq', 0);
SELECT last_value >> 10 = :ahead >> 23 AS is_of_id FROM set43.id_seq;

-- Over a day ahead, it was never an id of this sequence, and says so.
ALTER SEQUENCE set43.id_seq RESTART;
SELECT snowid.make_id('2040-01-01', 43, 0) AS far \gset
SELECT setval('set43.id_seq', :far);
SELECT set43.next_id();
SELECT snowid.safe_upper_id('set43.id_seq');
SELECT ahead > interval '1 year' AS ahead FROM snowid.shards WHERE shard = 43;
SELECT snowid.advance('set43.id_seq', 0);
-- What the hint says.
SELECT snowid.advance('set43.id_seq', snowid.min_id(now()));
INSERT INTO set43.photos DEFAULT VALUES;
SELECT count(*), bool_and(pg_temp.is_now(id)) AS are_now FROM set43.photos;
SELECT setval('set43.id_seq', :far);
SELECT snowid.set_default('set43.photos');
INSERT INTO set43.photos DEFAULT VALUES;
SELECT count(*), bool_and(pg_temp.is_now(id)) AS are_now FROM set43.photos;
SELECT count(*) FROM snowid.newest_rows(NULL::set43.photos, 10);

BEGIN;
DELETE FROM set43.photos;
SELECT setval('set43.id_seq', :far);
SELECT snowid.set_default('set43.photos');
INSERT INTO set43.photos DEFAULT VALUES;
SELECT count(*) FROM set43.photos;
ROLLBACK;

-- A START that large is none, and a plain counter is left alone.
CREATE SEQUENCE set43.start_seq START 4000000000000000000;
SELECT pg_temp.is_now(snowid.next_id(43, 'set43.start_seq'));
CREATE SEQUENCE set43.plain_seq START 1000000000000000000;
SELECT nextval('set43.plain_seq');
SELECT snowid.fence_shard(43);
SELECT snowid.unfence_shard(43);
SELECT nextval('set43.plain_seq');

-- Closed, it keeps a slot, so that it can be moved; one too far ahead is refused before.
SELECT setval('set43.id_seq', (SELECT max(id) FROM set43.photos)) > 0 AS set;
SELECT snowid.fence_shard(43);
SELECT last_value < 1::bigint << 50 AS is_a_slot FROM set43.id_seq;
SELECT snowid.unfence_shard(43);
SELECT setval('set43.id_seq', :far);
SELECT snowid.fence_shard(43);
SELECT last_value = :far AS is_as_it_was FROM set43.id_seq;

-- It can be dropped, without a word of 2040.
SELECT snowid.drop_shard(43, true);
