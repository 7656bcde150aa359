-- The epoch of a sequence's ids: that of its shard, or of its column's DEFAULT.
-- USAGE must not be enough to move a sequence years ahead, nor a slip.
\set SHOW_CONTEXT never
SET timezone = 'UTC';
SELECT snowid.create_shard(40, 'europe', '2020-01-01 00:00:00+00'),
	   snowid.create_shard(41, 'insta41');

-- Of a shard, without an epoch its own one is taken.
SELECT europe.next_id() AS id \gset
SELECT snowid.advance('europe.id_seq', :id);
SELECT abs(extract(epoch FROM last_id_at - now())) < 60 AS state_is_now FROM snowid.sequence_state('europe.id_seq');
SELECT abs(extract(epoch FROM snowid.id_timestamp(snowid.safe_upper_id('europe.id_seq'), '2020-01-01 00:00:00+00') - now())) < 60 AS bound_is_now;
SELECT europe.next_id() > :id AND europe.next_id() < snowid.min_id(now() + interval '1 minute', '2020-01-01 00:00:00+00') AS goes_on;

SELECT bool_and(abs(extract(epoch FROM snowid.id_timestamp(id, '2020-01-01 00:00:00+00') - now())) < 60) AS ids_are_now FROM snowid.next_ids(40, 'europe.id_seq', 3) id;
SELECT snowid.next_id(40, 'europe.id_seq') > :id AS goes_on;

-- Another one is refused, by all, and moves nothing.
SELECT snowid.next_id(41, 'insta41.id_seq', '1994-01-01 00:00:00+00');
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.next_ids(41, 'insta41.id_seq', 2, '1994-01-01 00:00:00+00');
SELECT snowid.safe_upper_id('insta41.id_seq', '1994-01-01 00:00:00+00');
SELECT snowid.advance('europe.id_seq', 0, '2011-08-24 21:07:01.721+00');
SELECT snowid.sequence_state('europe.id_seq', '2011-08-24 21:07:01.721+00');
SELECT snowid.next_ids(40, 'europe.id_seq', 1, '2011-08-24 21:07:01.721+00');
SELECT snowid.id_timestamp(insta41.next_id()) < now() + interval '1 minute' AS goes_on;

-- Every sequence of the shard, a table's own too.
CREATE TABLE europe.photos (id bigint PRIMARY KEY);
SELECT snowid.set_default('europe.photos', own_sequence => true);
SELECT snowid.next_id(40, 'europe.photos_id_seq', '1994-01-01 00:00:00+00');
INSERT INTO europe.photos DEFAULT VALUES;

-- A schema that becomes a shard, ceases to be one, or is renamed.
CREATE SCHEMA asia;
CREATE SEQUENCE asia.id_seq;
SELECT snowid.next_id(42, 'asia.id_seq', '2015-01-01 00:00:00+00') AS id \gset
SELECT snowid.register_shard(42, 'asia', '2015-01-01 00:00:00+00');
SELECT asia.next_id() > :id AS goes_on;
SELECT snowid.next_id(42, 'asia.id_seq', '2014-01-01 00:00:00+00');
SELECT abs(extract(epoch FROM last_id_at - now())) < 60 AS state_is_now FROM snowid.sequence_state('asia.id_seq');
UPDATE snowid.shard_registry SET schema = 'orient', epoch = '2015-01-02 00:00:00+00' WHERE shard = 42;
SELECT snowid.next_id(42, 'asia.id_seq', '2015-01-01 00:00:00+00') > :id AS is_free_again;
ALTER SCHEMA asia RENAME TO orient;
SELECT snowid.next_id(42, 'orient.id_seq', '2015-01-01 00:00:00+00') > 0 AS id;
UPDATE snowid.shard_registry SET epoch = '2015-01-01 00:00:00+00' WHERE shard = 42;
SELECT orient.next_id() > :id AS goes_on;
UPDATE snowid.shard_registry SET epoch = '2015-01-02 00:00:00+00' WHERE shard = 42;
SELECT orient.next_id() > 0 AS id;
BEGIN;
DELETE FROM snowid.shard_registry WHERE shard = 42;
SELECT orient.next_id() > :id AS goes_on;
ROLLBACK;
SELECT orient.next_id() > 0 AS id;

-- The number of the database has the default epoch.
SELECT snowid.next_id(0, 'snowid.id_seq', '1994-01-01 00:00:00+00');

-- Outside of shards, that of the DEFAULT of the column that owns the sequence.
CREATE TABLE orders (id bigserial PRIMARY KEY);
ALTER TABLE orders ALTER COLUMN id SET DEFAULT snowid.next_id(0, 'orders_id_seq', '2020-01-01 00:00:00+00');
INSERT INTO orders DEFAULT VALUES;
SELECT snowid.next_id(0, 'orders_id_seq', '2019-01-01 00:00:00+00');
SELECT abs(extract(epoch FROM last_id_at - now())) < 60 AS state_is_now FROM snowid.sequence_state('orders_id_seq');
-- however names are shown
SET quote_all_identifiers = on;
\set VERBOSITY terse
SELECT snowid.sequence_state('orders_id_seq', '2019-01-01 00:00:00+00');
\set VERBOSITY default
RESET quote_all_identifiers;
-- in whatever notation
\set VERBOSITY terse
ALTER TABLE orders ALTER COLUMN id SET DEFAULT snowid.next_id(epoch => '2020-01-01 00:00:00+00', shard => 0, seq => 'orders_id_seq');
SELECT snowid.sequence_state('orders_id_seq', '2019-01-01 00:00:00+00');
ALTER TABLE orders ALTER COLUMN id SET DEFAULT coalesce(snowid.next_id(0, epoch => '2020-01-01 00:00:00+00', seq => 'orders_id_seq'), 1);
SELECT snowid.sequence_state('orders_id_seq', '2019-01-01 00:00:00+00');
ALTER TABLE orders ALTER COLUMN id SET DEFAULT snowid.next_id(seq => 'orders_id_seq', shard => 0);
SELECT snowid.sequence_state('orders_id_seq', '2019-01-01 00:00:00+00');
-- whatever the shard is
ALTER TABLE orders ALTER COLUMN id SET DEFAULT snowid.next_id(coalesce(current_setting('app), (shard', true), '0')::int, 'orders_id_seq', '2020-01-01 00:00:00+00');
SELECT snowid.sequence_state('orders_id_seq', '2019-01-01 00:00:00+00');
ALTER TABLE orders ALTER COLUMN id SET DEFAULT (0 + snowid.next_id(seq => 'orders_id_seq', shard => abs(0)));
SELECT snowid.sequence_state('orders_id_seq', '2019-01-01 00:00:00+00');
-- nothing is known of what is no constant
ALTER TABLE orders ALTER COLUMN id SET DEFAULT snowid.next_id(0, 'orders_id_seq', '-infinity');
SELECT last_id_at IS NOT NULL AS may_be_any FROM snowid.sequence_state('orders_id_seq', '1970-01-01 00:00:00+00');
ALTER TABLE orders ALTER COLUMN id SET DEFAULT snowid.next_id(0, 'orders_id_seq', now() - interval '1 year');
SELECT last_id_at IS NOT NULL AS may_be_any FROM snowid.sequence_state('orders_id_seq', '1970-01-01 00:00:00+00');
\set VERBOSITY default
ALTER TABLE orders ALTER COLUMN id SET DEFAULT snowid.next_id(0, 'orders_id_seq');
SELECT snowid.next_id(0, 'orders_id_seq', '2019-01-01 00:00:00+00');
DROP TABLE orders;

-- Without one, ids of the default epoch do not go on as those of an earlier one ...
CREATE SEQUENCE free_seq;
SELECT snowid.next_id(0, 'free_seq') > 0 AS id;
\set VERBOSITY terse
SELECT snowid.next_id(0, 'free_seq', '2011-08-23 00:00:00+00');
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.next_id(0, 'free_seq', '1994-01-01 00:00:00+00');
SELECT snowid.safe_upper_id('free_seq', '1994-01-01 00:00:00+00');
SELECT snowid.id_timestamp(snowid.next_id(0, 'free_seq')) < now() + interval '1 minute' AS goes_on;
-- ... until its owner says so.  A new one may begin with any.
SELECT snowid.advance('free_seq', snowid.min_id(now(), '1994-01-01 00:00:00+00'), '1994-01-01 00:00:00+00');
SELECT snowid.next_id(0, 'free_seq', '1994-01-01 00:00:00+00') > 0 AS id;
CREATE SEQUENCE early_seq;
SELECT snowid.next_id(0, 'early_seq', '1994-01-01 00:00:00+00') > 0 AS id;
DROP SEQUENCE free_seq, early_seq;

DROP SCHEMA orient CASCADE;
SELECT snowid.drop_shard(40, true), snowid.drop_shard(41), snowid.drop_shard(42);
