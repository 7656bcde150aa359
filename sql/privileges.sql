-- Who may do what, call by call: each is marked with whether it must work.
CREATE ROLE snowid_owner;
CREATE ROLE snowid_user;		-- USAGE on the sequence
CREATE ROLE snowid_updater;		-- UPDATE on the sequence
CREATE ROLE snowid_reader;		-- SELECT on the sequence
CREATE ROLE snowid_nobody;
CREATE SCHEMA priv AUTHORIZATION snowid_owner;
GRANT USAGE ON SCHEMA priv TO PUBLIC;
SET ROLE snowid_owner;
CREATE SEQUENCE priv.seq;
GRANT USAGE ON SEQUENCE priv.seq TO snowid_user;
GRANT UPDATE ON SEQUENCE priv.seq TO snowid_updater;
GRANT SELECT ON SEQUENCE priv.seq TO snowid_reader;
RESET ROLE;

SET ROLE snowid_owner;
SELECT snowid.next_id(5, 'priv.seq') IS NOT NULL AS ok;
SELECT snowid.advance('priv.seq', 1);								-- ok
SELECT count(*) AS ok FROM snowid.sequence_state('priv.seq');
SELECT snowid.next_id();											-- fail: not set

SET ROLE snowid_user;
SELECT snowid.next_id(5, 'priv.seq') IS NOT NULL AS ok;
SELECT snowid.next_id(5, 'priv.seq', '2011-08-24 21:07:01.721+00') IS NOT NULL AS ok;
SELECT snowid.advance('priv.seq', 1);								-- fail
SELECT count(*) AS ok FROM snowid.sequence_state('priv.seq');

SET ROLE snowid_updater;
SELECT snowid.next_id(5, 'priv.seq') IS NOT NULL AS ok;
SELECT snowid.advance('priv.seq', 1);								-- ok
SELECT count(*) AS ok FROM snowid.sequence_state('priv.seq');

SET ROLE snowid_reader;
SELECT snowid.next_id(5, 'priv.seq');								-- fail
SELECT snowid.advance('priv.seq', 1);								-- fail
SELECT count(*) AS ok FROM snowid.sequence_state('priv.seq');

SET ROLE snowid_nobody;
SELECT snowid.next_id(5, 'priv.seq');								-- fail
SELECT snowid.advance('priv.seq', 1);								-- fail
SELECT * FROM snowid.sequence_state('priv.seq');					-- fail
SELECT snowid.id_shard(snowid.make_id(now(), 5, 0)) AS ok;			-- arithmetic is free
SET snowid.shard = 5;												-- fail

-- A privilege that goes is gone with the next call, and one that comes is there.
RESET ROLE;
REVOKE USAGE ON SEQUENCE priv.seq FROM snowid_user;
GRANT USAGE ON SEQUENCE priv.seq TO snowid_nobody;
SET ROLE snowid_user;
SELECT snowid.next_id(5, 'priv.seq');								-- fail
SET ROLE snowid_nobody;
SELECT snowid.next_id(5, 'priv.seq') IS NOT NULL AS ok;

-- The database's own sequence is used by whom its owner grants it to.
RESET ROLE;
SET snowid.shard = 5;
SET ROLE snowid_nobody;
SELECT snowid.next_id();											-- fail
RESET ROLE;
GRANT USAGE ON SEQUENCE snowid.id_seq TO snowid_nobody;
SET ROLE snowid_nobody;
SELECT snowid.id_shard(snowid.next_id()) AS ok;
CREATE SEQUENCE snowid.mine;										-- fail
RESET ROLE;

-- A DEFAULT runs with the rights of who inserts.
CREATE TABLE priv.photos (id bigint DEFAULT snowid.next_id(5, 'priv.seq'), who text);
GRANT INSERT ON priv.photos TO snowid_user, snowid_updater;
SET ROLE snowid_user;
INSERT INTO priv.photos (who) VALUES ('user');						-- fail
SET ROLE snowid_updater;
INSERT INTO priv.photos (who) VALUES ('updater');					-- ok
RESET ROLE;
SELECT who FROM priv.photos;

REVOKE USAGE ON SEQUENCE snowid.id_seq FROM snowid_nobody;
RESET snowid.shard;
\set VERBOSITY terse
SET client_min_messages = warning;
DROP SCHEMA priv CASCADE;
DROP ROLE snowid_owner, snowid_user, snowid_updater, snowid_reader, snowid_nobody;
