-- A shard that is closed for writing: by hand, or by a move.
\set SHOW_CONTEXT never

CREATE ROLE regress_fence_writer;
SELECT snowid.create_shard(5);
SELECT snowid.create_shard(6, 'a "b" \c');
SET search_path = insta5, public;
CREATE TABLE insta5.users (id bigint PRIMARY KEY DEFAULT insta5.next_id(), name text);
CREATE TABLE insta5.photos (id bigint PRIMARY KEY DEFAULT insta5.next_id(),
	user_id bigint REFERENCES insta5.users, n serial);
CREATE TABLE insta5.logs (id int GENERATED ALWAYS AS IDENTITY, at date) PARTITION BY RANGE (at);
CREATE TABLE insta5.logs_2026 PARTITION OF insta5.logs FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
CREATE SEQUENCE insta5.down INCREMENT -3 CACHE 5;
CREATE SEQUENCE insta5.wheel AS smallint MINVALUE 10 MAXVALUE 20 START 12 CYCLE;
CREATE SEQUENCE insta5.unused;
CREATE SEQUENCE insta5.fresh;
CREATE SEQUENCE insta5.at_end AS smallint MINVALUE -32768 START -32768;
CREATE SEQUENCE insta5.down_at_end INCREMENT -1 MAXVALUE 9223372036854775807 START 9223372036854775807;
CREATE TABLE public.logs_of_all (kind text) PARTITION BY LIST (kind);
CREATE TABLE insta5.logs_a PARTITION OF public.logs_of_all FOR VALUES IN ('a');
INSERT INTO users (name) VALUES ('ann');
INSERT INTO photos (user_id) SELECT id FROM users;
INSERT INTO logs (at) VALUES ('2026-05-05');
SELECT nextval('down'), nextval('wheel');

-- Tables that others refer to come first.
SELECT * FROM snowid_internal.shard_tables('insta5') WITH ORDINALITY t (name, place);

CREATE VIEW public.definitions AS
SELECT c.relname, s.seqstart, s.seqmin, s.seqmax, s.seqincrement, s.seqcycle, s.seqcache
FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid
WHERE c.relnamespace = 'insta5'::regnamespace;
CREATE TABLE public.before AS TABLE definitions;
SELECT snowid.shard_home(5), snowid.shard_home(6);
SELECT snowid.fence_shard(5, 'host=b port=5432 dbname=app');
SELECT shard, schema, role, step, closed, peer FROM snowid.moves;
SELECT snowid.shard_home(5), snowid.shard_home(6);
SELECT shard, lives FROM snowid.shards ORDER BY shard;

-- No kind of write passes, and the error names the new home.
INSERT INTO users (name) VALUES ('bob');
\echo :LAST_ERROR_SQLSTATE
UPDATE users SET name = 'eve';
\echo :LAST_ERROR_SQLSTATE
DELETE FROM photos;
\echo :LAST_ERROR_SQLSTATE
TRUNCATE photos;
\echo :LAST_ERROR_SQLSTATE
COPY users (name) FROM stdin;
x
\.
\echo :LAST_ERROR_SQLSTATE
INSERT INTO logs (at) VALUES ('2026-05-06');
\echo :LAST_ERROR_SQLSTATE
INSERT INTO logs_2026 VALUES (DEFAULT, '2026-05-06');
\echo :LAST_ERROR_SQLSTATE
INSERT INTO users VALUES (1, 'x') ON CONFLICT DO NOTHING;
\echo :LAST_ERROR_SQLSTATE
SELECT next_id();
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.next_id(5, 'insta5.unused');
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.advance('insta5.id_seq', snowid.max_id(now()));
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.set_default('users');
\echo :LAST_ERROR_SQLSTATE
SELECT nextval('photos_n_seq');
\echo :LAST_ERROR_SQLSTATE
SELECT nextval('down');
\echo :LAST_ERROR_SQLSTATE
SELECT nextval('wheel');
\echo :LAST_ERROR_SQLSTATE
SELECT nextval('unused');
\echo :LAST_ERROR_SQLSTATE
SELECT nextval('at_end');
\echo :LAST_ERROR_SQLSTATE
SELECT nextval('down_at_end');
\echo :LAST_ERROR_SQLSTATE
-- By a parent in another schema, rows come past its triggers.
INSERT INTO public.logs_of_all VALUES ('a');
-- A reader is not disturbed.
SELECT name, n FROM users JOIN photos ON user_id = users.id;
-- Logical replication's workers run so, and pass.
SET session_replication_role = replica;
BEGIN;
UPDATE users SET name = 'from elsewhere';
ROLLBACK;
RESET session_replication_role;

-- What looks after shards leaves it alone.
SELECT snowid.fence_shard(5);
\echo :LAST_ERROR_SQLSTATE
BEGIN;
SELECT snowid.drop_shard(5);
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
SET client_min_messages = warning;
CREATE TABLE public.visited (schema name);
CALL snowid.for_each_shard('INSERT INTO public.visited SELECT current_schema');
TABLE visited;
CALL snowid.create_shards(5, 5);
RESET client_min_messages;

-- A home is shown to everybody, so it has no password.
\set VERBOSITY terse
SELECT snowid.unfence_shard(5, 'host=b password=secret');
\echo :LAST_ERROR_SQLSTATE
UPDATE snowid.shard_registry SET home = 'postgresql://app:secret@b/app' WHERE shard = 5;
\echo :LAST_ERROR_SQLSTATE
UPDATE snowid.shard_registry SET home = 'postgres://b/app?sslpassword=secret' WHERE shard = 5;
\echo :LAST_ERROR_SQLSTATE
UPDATE snowid.shard_registry SET home = $$host='b'password=secret$$ WHERE shard = 5;
\echo :LAST_ERROR_SQLSTATE
-- libpq reads what is escaped in a URI, and its "?" is of the password.
CREATE TABLE public.homes (n serial, home text, has_password boolean);
INSERT INTO public.homes (home, has_password) VALUES
	('postgres://app:se?cret@b/app', true), ('postgres://a?x:secret@b', true), ('postgres://b/app?pass%77ord=secret', true),
	('postgres://b?x=1&%70%61%73%73%77%6f%72%64=secret', true), ('postgres://b/app?scram_client_key=secret', true),
	('host=b scram_server_key = secret', true), (E'host=b\npassword\n=secret', true), (E'postgresql://app:se\ncret@b/app', true),
	(E'host=b\foauth_client_secret=x', true), ('postgres://b/app?application_name=a%00', false), ('host=b dbname=password', false),
	('postgres://app@b:5432,[::1]:5433/a:b@c', false), ('host=b sslkey=/password=', false), ('s1', false), ('100%', false);
DO $$
DECLARE
	h record;
	found text;
BEGIN
	FOR h IN TABLE public.homes ORDER BY n LOOP
		FOREACH found IN ARRAY '{home_without_password,homes_without_password}'::text[] LOOP
			BEGIN
				IF found = 'home_without_password' THEN
					UPDATE snowid.shard_registry SET home = h.home WHERE shard = 5;
				ELSE
					UPDATE snowid.shard_registry SET homes = jsonb_build_array(jsonb_build_object('home', h.home, 'since', now())) WHERE shard = 5;
				END IF;
				RAISE undefined_object;
			EXCEPTION
				WHEN undefined_object THEN
					IF h.has_password THEN RAISE NOTICE 'a password is let in: %', h.home; END IF;
				WHEN check_violation THEN
					GET STACKED DIAGNOSTICS found = CONSTRAINT_NAME;
					IF NOT h.has_password OR found !~ 'without_password' THEN RAISE NOTICE '% refuses %', found, h.home; END IF;
			END;
		END LOOP;
	END LOOP;
END $$;
DROP TABLE public.homes;
\set VERBOSITY default
BEGIN;
UPDATE snowid.shard_registry SET home = 'postgresql://app@b:5432,[::1]:5433/app?passfile=/p' WHERE shard = 5;
ROLLBACK;

-- Open again, all is as it was, and ids go on rising.
SELECT max(id) AS last_id FROM photos \gset
SELECT snowid.unfence_shard(5);
TABLE definitions EXCEPT TABLE before;
SELECT count(*) FROM snowid.moves;
SELECT snowid.shard_home(5);
SELECT snowid.next_id(5, 'insta5.id_seq') > :last_id AS rising;
SELECT u.last_value, u.is_called, e.last_value, e.is_called, d.last_value, d.is_called FROM insta5.unused u, insta5.at_end e, insta5.down_at_end d;
SELECT nextval('photos_n_seq'), nextval('down'), nextval('wheel'), nextval('unused');
INSERT INTO users (name) VALUES ('bob');
INSERT INTO logs (at) VALUES ('2026-05-06') RETURNING id;
SELECT count(*) FROM pg_trigger WHERE tgname = 'snowid_fence';
SELECT snowid.unfence_shard(5);
\echo :LAST_ERROR_SQLSTATE

-- Prepared, nobody notices, and to close and to open is less work: the trigger
-- stays, disabled.  A table that was not prepared is closed, too.
SELECT snowid_internal.prepare_table('users'), snowid_internal.prepare_table('logs');
SELECT snowid_internal.prepare_table('users');
CREATE VIEW public.fence AS
SELECT tgrelid::regclass AS "table", tgenabled, tgnargs FROM pg_trigger WHERE tgname = 'snowid_fence';
TABLE fence ORDER BY 1;
INSERT INTO users (name) VALUES ('bea');
SELECT pg_relation_filenode('photos_n_seq') AS file \gset
ALTER TABLE users ENABLE ALWAYS TRIGGER snowid_fence;
SELECT snowid_internal.close_shards('{5,6}', NULL);
TABLE fence ORDER BY 1;
INSERT INTO users (name) VALUES ('eve');
\echo :LAST_ERROR_SQLSTATE
INSERT INTO photos DEFAULT VALUES;
\echo :LAST_ERROR_SQLSTATE
SELECT snowid_internal.close_shards('{6,5}', NULL);
\echo :LAST_ERROR_SQLSTATE
BEGIN;
SELECT snowid_internal.open_shards('{5,6}', NULL);
INSERT INTO users (name) VALUES ('rolled back');
SELECT nextval('photos_n_seq');
ROLLBACK;
INSERT INTO users (name) VALUES ('eve');
\echo :LAST_ERROR_SQLSTATE
SELECT nextval('photos_n_seq');
\echo :LAST_ERROR_SQLSTATE
SELECT snowid_internal.open_shards('{5,6,7}', NULL);
\echo :LAST_ERROR_SQLSTATE
SELECT snowid_internal.open_shards('{5,6}', NULL);
TABLE fence ORDER BY 1;
TABLE definitions EXCEPT TABLE before;
INSERT INTO users (name) VALUES ('dan');
SELECT nextval('photos_n_seq');
-- To close a sequence that is in use takes no new file.
SELECT pg_relation_filenode('photos_n_seq') = :file AS same_file;
-- An enabled trigger that the journal does not explain lets nobody pass.
ALTER TABLE users ENABLE TRIGGER snowid_fence;
INSERT INTO users (name) VALUES ('eve');
\echo :LAST_ERROR_SQLSTATE
DROP TRIGGER snowid_fence ON users;
DROP TRIGGER snowid_fence ON logs;
-- A trigger of that name that is not the fence's is not taken for it.
CREATE TRIGGER snowid_fence BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON users
	FOR EACH STATEMENT WHEN (false) EXECUTE FUNCTION snowid_internal.refuse_write(prepared);
SELECT snowid.fence_shard(5);
\echo :LAST_ERROR_SQLSTATE
DROP TRIGGER snowid_fence ON users;
CREATE TRIGGER snowid_fence BEFORE UPDATE OF name ON users
	FOR EACH STATEMENT EXECUTE FUNCTION snowid_internal.refuse_write(prepared);
SELECT snowid.fence_shard(5);
\echo :LAST_ERROR_SQLSTATE
DROP TRIGGER snowid_fence ON users;
SELECT snowid_internal.define_sequence('users'::regclass, 1, 2, 1, false, false);
\echo :LAST_ERROR_SQLSTATE
-- A definition that ALTER would not give, and no writing where it would not.
\set VERBOSITY sqlstate
SELECT snowid_internal.define_sequence('wheel'::regclass, 5, 5, 5, false, false);
SELECT snowid_internal.define_sequence('wheel'::regclass, -32769, 5, 5, false, false);
SELECT snowid_internal.define_sequence('wheel'::regclass, 1, 32768, 5, false, false);
SELECT snowid_internal.define_sequence('logs_id_seq'::regclass, 1, 2147483648, 5, false, false);
SELECT snowid_internal.define_sequence('wheel'::regclass, 1, 5, 0, false, false);
SELECT snowid_internal.define_sequence('wheel'::regclass, 1, 5, 6, false, false);
SELECT snowid_internal.prepare_table('users');
-- A table that is named twice.
SELECT snowid_internal.enable_fence(ARRAY['users', 'users']::regclass[]::oid[], true),
	snowid_internal.enable_fence(ARRAY['users', 'users']::regclass[]::oid[], false);
BEGIN READ ONLY;
SELECT snowid_internal.enable_fence(ARRAY['users'::regclass::oid], true);
ROLLBACK;
BEGIN READ ONLY;
SELECT snowid_internal.define_sequence('wheel'::regclass, 1, 5, 1, false, false);
ROLLBACK;
DROP TRIGGER snowid_fence ON users;
\set VERBOSITY default
SELECT snowid_internal.refuse_write();
\echo :LAST_ERROR_SQLSTATE
DROP VIEW public.fence;

-- Closed without a new home: for maintenance.
SELECT snowid.fence_shard(6);
SELECT snowid.next_id(6, '"a ""b"" \c".id_seq');
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.shard_home(6);
SELECT snowid.unfence_shard(6);
SELECT snowid.next_id(6, '"a ""b"" \c".id_seq') > 0 AS works;

-- The same of one that has come from another server: it is not to be found
-- where its home says, which is here.
UPDATE snowid.shard_registry SET home = 'host=here dbname=app' WHERE shard = 5;
SELECT snowid.fence_shard(5);
SELECT snowid.shard_home(5), (SELECT lives FROM snowid.shards WHERE shard = 5);
INSERT INTO users (name) VALUES ('bob');
\echo :LAST_ERROR_SQLSTATE
SELECT next_id();
\echo :LAST_ERROR_SQLSTATE
SELECT name FROM snowid.newest_rows(NULL::insta5.users, 1);
SELECT snowid.unfence_shard(5);
SELECT snowid.shard_home(5);
UPDATE snowid.shard_registry SET home = NULL WHERE shard = 5;

-- Rolled back, nothing has happened.
BEGIN;
SELECT snowid.fence_shard(5, 'elsewhere');
ROLLBACK;
SELECT last_value, is_called FROM insta5.fresh;
INSERT INTO users (name) VALUES ('carl');
TABLE definitions EXCEPT TABLE before;
SELECT snowid.shard_home(5);

-- A statement that was prepared, and has run, before.
PREPARE ins AS INSERT INTO insta5.users (name) VALUES ('dora');
EXECUTE ins;
SELECT snowid.fence_shard(5, 'host=c dbname=app');
EXECUTE ins;
\echo :LAST_ERROR_SQLSTATE

-- What a move has closed is not opened by hand, or while the other server may be open.
UPDATE snowid.moves SET peer = 'host=c dbname=app' WHERE shard = 5;
SELECT snowid.unfence_shard(5);
\echo :LAST_ERROR_SQLSTATE
-- On the server that it is to come to, it is not open yet.
UPDATE snowid.moves SET role = 'target', step = 'schema' WHERE shard = 5;
INSERT INTO users (name) VALUES ('emil');
\echo :LAST_ERROR_SQLSTATE
UPDATE snowid.moves SET step = 'open' WHERE shard = 5;
SELECT snowid.unfence_shard(5, 'host=here dbname=app');
-- It has come; closed by hand, it is neither on the way nor elsewhere.
SELECT snowid.fence_shard(5);
SELECT snowid.shard_home(5);
INSERT INTO users (name) VALUES ('emil');
\echo :LAST_ERROR_SQLSTATE
SET client_min_messages = warning;
CALL snowid.for_each_shard('SELECT', 5);
RESET client_min_messages;
SELECT snowid.unfence_shard(5);
SELECT closed, details FROM snowid.moves WHERE shard = 5;
SELECT home FROM snowid.shard_registry WHERE shard = 5;
SELECT snowid.shard_home(5);
DELETE FROM snowid.moves;

-- Everybody may ask, and see that it is closed, but not of whom and by whom.
SELECT snowid.fence_shard(5, 'host=b dbname=app');
GRANT USAGE ON SCHEMA insta5 TO regress_fence_writer;
GRANT ALL ON ALL TABLES IN SCHEMA insta5 TO regress_fence_writer;
GRANT ALL ON ALL SEQUENCES IN SCHEMA insta5 TO regress_fence_writer;
SET ROLE regress_fence_writer;
SELECT snowid.shard_home(5);
SELECT shard, role, step, closed FROM snowid.moves;
INSERT INTO users (name) VALUES ('frida');
\echo :LAST_ERROR_SQLSTATE
SELECT next_id();
\echo :LAST_ERROR_SQLSTATE
SELECT peer FROM snowid.moves;
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.unfence_shard(5);
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.fence_shard(6);
\echo :LAST_ERROR_SQLSTATE
SELECT snowid_internal.lock_relations(ARRAY['users'::regclass::oid]);
\echo :LAST_ERROR_SQLSTATE
SELECT snowid_internal.enable_fence(ARRAY['users'::regclass::oid], false);
\echo :LAST_ERROR_SQLSTATE
SELECT snowid_internal.define_sequence('id_seq'::regclass, 1, 2, 1, false, false);
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
SELECT snowid.shard_home(77);
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.fence_shard(77);
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.unfence_shard(NULL);
\echo :LAST_ERROR_SQLSTATE

-- It waits less long for some locks, and leaves the setting as it was.
BEGIN;
SET LOCAL lock_timeout = '7s';
SELECT snowid.fence_shard(6);
SHOW lock_timeout;
ROLLBACK;

-- The journal has no other schema opened, nor ids go back, whoever may write there.
RESET search_path;
UPDATE snowid.moves SET schema = 'insta6' WHERE shard = 5;
SELECT snowid.unfence_shard(5);
\echo :LAST_ERROR_SQLSTATE
INSERT INTO snowid.shard_registry (shard, schema) VALUES (66, 'insta6');
SELECT snowid.unfence_shard(5);
DELETE FROM snowid.shard_registry WHERE shard = 66;
UPDATE snowid.moves SET schema = 'public' WHERE shard = 5;
SELECT snowid.unfence_shard(5);
UPDATE snowid.moves SET schema = 'insta5', details = jsonb_set(details, '{sequences,id_seq}', '{"last": 1, "called": true, "min": 1, "max": 9223372036854775807, "start": 1, "cycle": true}')
WHERE shard = 5;
CREATE TABLE ended AS SELECT last_value FROM insta5.id_seq;

-- Nor of a number that is no shard's; nor another one's ids, that a table makes from a sequence of its own.
INSERT INTO snowid.moves (shard, schema, role, step, closed, details) SELECT 4000, 'public', 'source', 'closed', true, details FROM snowid.moves WHERE shard = 5;
SELECT snowid.unfence_shard(4000);
\echo :LAST_ERROR_SQLSTATE
DELETE FROM snowid.moves WHERE shard = 4000;
SELECT snowid.create_shard(9, 'europe_moved');
CREATE TABLE europe_moved.own (id bigint PRIMARY KEY);
SET client_min_messages = warning;
SELECT snowid.set_default('europe_moved.own', own_sequence => true);
RESET client_min_messages;
INSERT INTO europe_moved.own DEFAULT VALUES;
SELECT snowid.fence_shard(9);
UPDATE snowid.moves SET details = jsonb_set(details, '{sequences,own_id_seq}', '{"last": 1, "called": true, "min": 1, "max": 9223372036854775807, "start": 1, "cycle": true}')
WHERE shard = 9;
SELECT snowid.unfence_shard(9);
SELECT last_value >= (id >> 23) << 10 AS stays FROM europe_moved.own, europe_moved.own_id_seq;
SELECT count(*) FROM snowid.moves WHERE shard = 9;

SET client_min_messages = warning;
SELECT snowid.unfence_shard(5);
SELECT e.last_value > 1 AND s.last_value = e.last_value AS stays FROM ended e, insta5.id_seq s;
SELECT snowid.drop_shard(5, true), snowid.drop_shard(6, true), snowid.drop_shard(9, true);
DROP TABLE visited, before, logs_of_all, ended;
DROP ROLE regress_fence_writer;
