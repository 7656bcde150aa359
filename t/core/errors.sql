-- Sessions s, which meets the errors, and o, another one.  Every call is made with
-- an error at its first call of the server, then at its second, until it passes.

CREATE EXTENSION dblink;
CREATE EXTENSION snowid;
UPDATE pg_proc SET probin = :'library' WHERE probin = '$libdir/snowid';
\c
CREATE FUNCTION inject(n int, cancel boolean) RETURNS int LANGUAGE c STRICT AS :'library', 'snowid_inject';

CREATE SEQUENCE s;
CREATE SEQUENCE restarted;
CREATE SEQUENCE ahead;
CREATE SEQUENCE cached CACHE 10;
CREATE UNLOGGED SEQUENCE unlogged;
CREATE SEQUENCE narrow MAXVALUE 1000;
CREATE SEQUENCE defined;
CREATE SEQUENCE set;
CREATE SEQUENCE own;
CREATE TABLE owner (id bigint DEFAULT snowid.next_id(5, 'own', '2020-01-01'));
ALTER SEQUENCE own OWNED BY owner.id;
SELECT snowid.create_shard(9);
CREATE TABLE closed (id bigint);
CREATE TRIGGER snowid_fence BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON closed
	FOR EACH STATEMENT EXECUTE FUNCTION snowid_internal.refuse_write('prepared');
SELECT snowid.next_id(5, s::regclass) FROM unnest('{s,restarted,cached,unlogged}'::text[]) AS s;
SELECT snowid.advance('ahead', snowid.make_id(now() + interval '1 h', 5, 0));
ALTER DATABASE postgres SET snowid.shard = 5;

-- By number where it matters: to find a name would fill caches that the call must fill.
CREATE TABLE cases (call text, before text, is_short boolean);
INSERT INTO cases
SELECT format(c.call, 's'::regclass::oid), c.before, c.is_short FROM (VALUES
	('SELECT snowid.next_id(5, %s::oid::regclass)', '', false),
	('SELECT snowid.next_id(5, %s::oid::regclass)', 'CHECKPOINT', true),
	('SELECT snowid.next_id(5, %s::oid::regclass, ''2011-08-24 21:07:01.721+00'')', '', true),
	('SELECT snowid.next_id(5, ''restarted'')', 'ALTER SEQUENCE restarted RESTART', true),
	('SELECT snowid.next_id(5, ''ahead'')', '', true),
	('SELECT snowid.next_id(5, ''cached'')', '', true),
	('SELECT snowid.next_id(5, ''unlogged'')', '', true),
	('SELECT snowid.next_id(5, ''narrow'')', '', true),
	('SELECT snowid.next_id(5, ''set'')', 'DO $$BEGIN PERFORM setval(''set'', snowid.make_id(now(), 5, 0)); END$$', true),
	('INSERT INTO owner DEFAULT VALUES', '', false),
	('SELECT snowid.next_id(5, ''own'', ''2021-01-01'')', '', true),
	('UPDATE snowid.shard_registry SET epoch = epoch', '', true),
	('SELECT snowid.next_id()', '', true),
	('SELECT snowid.advance(%s::oid::regclass, 1)', '', false),
	('SELECT snowid.sequence_state(%s::oid::regclass)', '', false),
	('SELECT snowid_internal.sequence_value(%s::oid::regclass, now())', '', true),
	('SELECT snowid.safe_upper_id(%s::oid::regclass)', '', false),
	('SELECT snowid_internal.lock_relations(ARRAY[''closed''::regclass])', '', true),
	('SELECT snowid_internal.enable_fence(ARRAY[''closed''::regclass], false)', '', true),
	('SELECT snowid_internal.define_sequence(''defined''::regclass, 1, 1000, 1, false, true)', '', true),
	('INSERT INTO closed VALUES (1)', 'ALTER TABLE closed ENABLE TRIGGER snowid_fence', true),
	('SELECT snowid_internal.forget_catalogs()', '', true),
	('SELECT row(snowid.id_timestamp(1), snowid.id_shard(1), snowid.id_seq(1), snowid.id_parts(1), snowid.make_id(now(), 1, 1),
		snowid.min_id(now()), snowid.max_id(now()), snowid.id_to_base62(1), snowid.base62_to_id(''00000000001''),
		snowid.shard_of(1, 1), snowid.shard_of(''a'', 1))', '', true)) AS c (call, before, is_short);

CREATE FUNCTION take(session text) RETURNS bigint LANGUAGE sql
RETURN (SELECT id FROM dblink(session, format('SELECT snowid.next_id(5, %s::oid::regclass)', 's'::regclass::oid)) AS t (id bigint));

CREATE FUNCTION connect(session text) RETURNS int LANGUAGE sql
BEGIN ATOMIC
	SELECT dblink_disconnect(session) WHERE session = ANY (dblink_get_connections());
	SELECT dblink_connect(session, format('dbname=postgres port=%s host=%s', current_setting('port'), current_setting('unix_socket_directories')));
	SELECT pid FROM dblink(session, 'SELECT pg_backend_pid()') AS t (pid int);
END;

-- Look at what is wrong after an error: ids of both sessions rise, and are on the page.
CREATE FUNCTION look(call text, n int, top bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	id bigint;
	session text;
BEGIN
	FOREACH session IN ARRAY '{s,o,s}'::text[] LOOP
		id := take(session);
		IF id <= top THEN
			RAISE WARNING 'fault: call % of %: session % got % after %', n, call, session, id, top;
		END IF;
		top := id;
	END LOOP;
	IF (SELECT last_value <> ((top >> 23) << 10 | (top & 1023)) OR NOT is_called FROM s) THEN
		RAISE WARNING 'fault: call % of %: the page is behind', n, call;
	END IF;
	RETURN top;
END $$;

-- Returns how many calls of the server were made to fail.
CREATE FUNCTION try(call text, before text, is_first boolean, is_sub boolean, is_cancel boolean) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	disarm text := 'SELECT inject(0, false)';
	n int := 0;
	rest int := 0;
	s_pid int := connect('s');
	top bigint := take('s');
BEGIN
	PERFORM * FROM dblink('s', call, false) AS t (x text);
	WHILE rest = 0 LOOP
		n := n + 1;
		IF is_first THEN
			s_pid := connect('s');
		END IF;
		PERFORM dblink_exec('o', before) WHERE before <> '';
		PERFORM dblink_exec('s', 'BEGIN; SAVEPOINT a') WHERE is_sub;
		PERFORM * FROM dblink('s', format('SELECT inject(%s, %L)', n, is_cancel)) AS t (x int);
		PERFORM * FROM dblink('s', call, false) AS t (x text);
		PERFORM dblink_exec('s', 'ROLLBACK TO a') WHERE is_sub;
		SELECT x INTO rest FROM dblink('s', disarm) AS t (x int);
		IF is_sub THEN
			top := look(call, n, top);
			PERFORM dblink_exec('s', 'COMMIT');
		END IF;
		top := look(call, n, top);
		PERFORM * FROM dblink('s', disarm) AS t (x int);
		IF EXISTS (SELECT FROM pg_locks AS l WHERE l.pid = s_pid) THEN
			RAISE WARNING 'fault: call % of %: a lock is left', n, call;
		END IF;
	END LOOP;
	RETURN n - 1;
END $$;
