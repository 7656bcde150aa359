-- Who may make, fill and drop shards; call by call, each marked with whether
-- it must work.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
SELECT current_database() AS db \gset
CREATE ROLE snowid_maker;		-- CREATE on the database, and the registry
CREATE ROLE snowid_creator;		-- CREATE on the database only
CREATE ROLE snowid_app;			-- may insert
CREATE ROLE snowid_nobody;
GRANT CREATE ON DATABASE :"db" TO snowid_maker, snowid_creator;
GRANT CREATE ON SCHEMA public TO PUBLIC;
GRANT INSERT, UPDATE, DELETE ON snowid.shard_registry TO snowid_maker;

SET ROLE snowid_nobody;
SELECT snowid.create_shard(5);										-- fail
\echo :LAST_ERROR_SQLSTATE
CALL snowid.create_shards(5, 6);									-- fail
\echo :LAST_ERROR_SQLSTATE
SELECT count(*) FROM snowid.shards;									-- ok
INSERT INTO snowid.shard_registry VALUES (5, 'insta5');				-- fail

SET ROLE snowid_creator;
SELECT snowid.create_shard(5);										-- fail
\echo :LAST_ERROR_SQLSTATE

SET ROLE snowid_maker;
SELECT snowid.create_shard(5);										-- ok
CALL snowid.create_shards(5, 6, ddl => 'CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id(), n int)');
CREATE TABLE insta5.photos (id bigint PRIMARY KEY, n int);
SELECT snowid.set_default('insta5.photos', guard => true);			-- ok
GRANT USAGE ON SCHEMA insta5 TO snowid_app, snowid_nobody;
GRANT INSERT, SELECT ON insta5.photos TO snowid_app, snowid_nobody;
GRANT USAGE ON SEQUENCE insta5.id_seq TO snowid_app;
SELECT nspname, nspowner::regrole FROM pg_namespace WHERE nspname ~ '^insta' ORDER BY 1;
SELECT DISTINCT relowner::regrole FROM pg_class WHERE relnamespace IN ('insta5'::regnamespace, 'insta6'::regnamespace);
SELECT proowner::regrole FROM pg_proc WHERE oid = 'insta5.next_id'::regproc;

-- who inserts needs USAGE on the schema and on its sequence
SET ROLE snowid_app;
INSERT INTO insta5.photos (n) VALUES (1);							-- ok
SELECT snowid.id_shard(insta5.next_id());							-- ok
SELECT insta6.next_id();											-- fail
-- and sees only the state of what it may use
SELECT shard, last_id_at IS NOT NULL AS seen, tables FROM snowid.shards ORDER BY 1;
SELECT snowid.set_default('insta5.photos');							-- fail
SELECT snowid.drop_shard(5, true);									-- fail
\echo :LAST_ERROR_SQLSTATE
CALL snowid.for_each_shard('TRUNCATE photos');						-- fail
SELECT snowid.adopt_shard(7, 'insta5');								-- fail
\echo :LAST_ERROR_SQLSTATE
-- a shard that one may not use: the script does not run in another schema
CALL snowid.for_each_shard('CREATE TABLE photos ()', 6);			-- fail
\echo :LAST_ERROR_SQLSTATE
SELECT to_regclass('public.photos') AS nowhere_else;
SET ROLE snowid_nobody;
INSERT INTO insta5.photos (n) VALUES (1);							-- fail
SELECT snowid.register_shard(7, 'insta5');								-- fail
\echo :LAST_ERROR_SQLSTATE
SELECT snowid_internal.define_next_id('insta5', '', 5, 'id_seq', NULL, false);	-- fail
SELECT snowid_internal.run_in_shard(5, 'insta5', 'TRUNCATE photos', '', 'hint');	-- fail

-- One maker's shards are not another's to drop or to change.
RESET ROLE;
GRANT INSERT, UPDATE, DELETE ON snowid.shard_registry TO snowid_creator;
SET ROLE snowid_creator;
SELECT snowid.drop_shard(5, true);									-- fail
SELECT snowid.set_default('insta5.photos');							-- fail
SELECT count(*) FROM snowid.shards;									-- both are there
SELECT snowid.create_shard(7);										-- ok
-- a table's owner who is not the sequence's is told what is missing
SET client_min_messages = warning;
RESET ROLE;
GRANT CREATE, USAGE ON SCHEMA insta7 TO snowid_app;
SET ROLE snowid_app;
CREATE TABLE insta7.mine (id bigint PRIMARY KEY);
RESET ROLE;
SELECT snowid.set_default('insta7.mine');							-- ok, with a warning
SELECT snowid.set_default('insta7.mine', own_sequence => true);		-- ok
SET ROLE snowid_app;
INSERT INTO insta7.mine DEFAULT VALUES;								-- ok
-- what makes something in a schema needs CREATE on it
CREATE TABLE insta7.other (id bigint PRIMARY KEY);
RESET ROLE;
GRANT USAGE, UPDATE ON SEQUENCE insta7.id_seq TO snowid_app;
GRANT INSERT, UPDATE ON snowid.shard_registry TO snowid_app;
REVOKE CREATE ON SCHEMA insta7 FROM snowid_app;
CREATE SCHEMA old8;
CREATE SEQUENCE old8.table_id_seq;
CREATE FUNCTION old8.next_id(OUT result bigint) LANGUAGE plpgsql AS $$
DECLARE
	our_epoch bigint := 1314220021721;
	seq_id bigint;
	now_millis bigint;
	shard_id int := 8;
BEGIN
	SELECT nextval('old8.table_id_seq') % 1024 INTO seq_id;
	SELECT FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) INTO now_millis;
	result := (now_millis - our_epoch) << 23;
	result := result | (shard_id << 10);
	result := result | (seq_id);
END $$;
ALTER FUNCTION old8.next_id() OWNER TO snowid_app;
ALTER SEQUENCE old8.table_id_seq OWNER TO snowid_app;
GRANT USAGE ON SCHEMA old8 TO snowid_app;
SET ROLE snowid_app;
SELECT snowid.set_default('insta7.other', own_sequence => true);	-- fail
\echo :LAST_ERROR_SQLSTATE
SELECT snowid.adopt_shard(8, 'old8');								-- fail
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
GRANT CREATE ON SCHEMA insta7, old8 TO snowid_app;
SET ROLE snowid_app;
SELECT snowid.set_default('insta7.other', own_sequence => true);	-- ok
SELECT snowid.adopt_shard(8, 'old8') IS NULL AS adopted;			-- ok

RESET ROLE;
ALTER SEQUENCE insta5.id_seq OWNER TO CURRENT_USER;
CREATE TABLE insta6.own (id bigint PRIMARY KEY);
SELECT snowid.set_default('insta6.own', own_sequence => true);
SET ROLE snowid_maker;
-- its ids may be ahead of the clock
SELECT snowid.drop_shard(5, true);									-- ok, with a warning
SELECT snowid.drop_shard(6, true);									-- ok, so may those of a table
RESET ROLE;
SELECT snowid.drop_shard(7, true);
SELECT snowid.drop_shard(8, true);

-- What is missing is told, until nothing is.
CREATE ROLE snowid_keeper;
GRANT CREATE ON DATABASE :"db" TO snowid_keeper;
CREATE FUNCTION public.typed(call text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE hint text;
BEGIN
	FOR i IN 1 .. 9 LOOP
		BEGIN
			SET ROLE snowid_keeper;
			EXECUTE call;
			RESET ROLE;
			RETURN NEXT call;
			EXIT;
		EXCEPTION WHEN insufficient_privilege THEN
			GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
			hint := substring(hint FROM 'can type: (.*)');
			EXECUTE hint;
			RETURN NEXT hint;
		END;
	END LOOP;
END $$;
SELECT typed FROM unnest(ARRAY['SELECT snowid.create_shard(9)', 'SELECT snowid.fence_shard(9)', 'SELECT snowid.unfence_shard(9)',
	'SELECT snowid.drop_shard(9)']) call, public.typed(call);
DROP FUNCTION public.typed(text);
REVOKE ALL ON snowid.shard_registry, snowid.moves FROM snowid_keeper;
REVOKE CREATE ON DATABASE :"db" FROM snowid_keeper;
DROP ROLE snowid_keeper;
REVOKE INSERT, UPDATE ON snowid.shard_registry FROM snowid_app;
REVOKE INSERT, UPDATE, DELETE ON snowid.shard_registry FROM snowid_maker, snowid_creator;
REVOKE CREATE ON DATABASE :"db" FROM snowid_maker, snowid_creator;
DROP ROLE snowid_maker, snowid_creator, snowid_app, snowid_nobody;
