-- safe_upper_id() alone: what it needs, what it refuses, and what the caller's
-- own transaction does to it.  With other sessions: specs/safe_upper.spec and
-- t/core/safe_upper.pl, t/core/safe_upper_bound.pl.
\set SHOW_CONTEXT never
CREATE SCHEMA safe_upper;
SET search_path = safe_upper, public;
CREATE SEQUENCE s;
CREATE TABLE ids (id bigint);

-- Above all that is there, and below all that comes.
INSERT INTO ids SELECT snowid.next_id(0, 's') FROM generate_series(1, 1000);
SELECT snowid.safe_upper_id('s') AS upper \gset
INSERT INTO ids VALUES (snowid.next_id(0, 's'));
SELECT count(*) FROM ids WHERE id < :upper;

-- Also when the sequence is ahead of the clock, which goes no further.
SELECT snowid.advance('s', snowid.make_id(now() + interval '1 hour', 0, 0));
SELECT snowid.safe_upper_id('s') AS upper \gset
SELECT snowid.id_timestamp(:upper) > now() + interval '59 minutes' AS ahead,
	snowid.next_id(0, 's') > :upper AS later_is_larger;

-- One's own transaction does not hold it back.
BEGIN;
INSERT INTO ids SELECT snowid.next_id(0, 's');
SELECT snowid.safe_upper_id('s') > max(id) AS above FROM ids;
COMMIT;

-- An own epoch.
CREATE SEQUENCE own;
SELECT snowid.next_id(0, 'own', '2026-01-01+00') AS id \gset
SELECT snowid.safe_upper_id('own', '2026-01-01+00') - :id BETWEEN 1 AND 10000 * 8388608::bigint AS just_above;

SELECT snowid.safe_upper_id(NULL) IS NULL AS strict;

-- Refused.
SELECT snowid.safe_upper_id('ids');
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.safe_upper_id(0);
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.safe_upper_id('own', 'infinity');
\echo :LAST_ERROR_SQLSTATE
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT snowid.safe_upper_id('s');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT snowid.safe_upper_id('s');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN READ ONLY;
SELECT snowid.safe_upper_id('s');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;

-- Privileges as next_id(): it takes a slot.
CREATE ROLE safe_upper_reader;
GRANT USAGE ON SCHEMA safe_upper TO safe_upper_reader;
GRANT SELECT ON SEQUENCE s TO safe_upper_reader;
SET ROLE safe_upper_reader;
SELECT snowid.safe_upper_id('s');
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
GRANT USAGE ON SEQUENCE s TO safe_upper_reader;
SET ROLE safe_upper_reader;
SELECT snowid.safe_upper_id('s') > :upper AS allowed;
RESET ROLE;

\set VERBOSITY terse
DROP SCHEMA safe_upper CASCADE;
DROP ROLE safe_upper_reader;
