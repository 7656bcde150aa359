-- What all these clients use: four of 2,000 logical shards, 1340 to 1343, and
-- a role that may read and insert.  Run it once, as the database's owner:
--
--		psql -d app -f schema.sql
--
-- For the portable edition, run portable/snowid.sql before.
SELECT to_regnamespace('snowid') IS NOT NULL AS portable \gset
\if :portable
\else
	CREATE EXTENSION snowid;
\endif
CREATE ROLE app LOGIN;

CALL snowid.create_shards(1340, 1343, ddl => $$
	CREATE TABLE photos (
		id      bigint PRIMARY KEY DEFAULT next_id(),
		user_id bigint NOT NULL,
		caption text NOT NULL
	);

	-- For clients that take ids in blocks of 50: a sequence to itself, whose
	-- INCREMENT is the block.
	CREATE TABLE events (
		id      bigint PRIMARY KEY,
		user_id bigint NOT NULL,
		what    text NOT NULL
	);
	SELECT snowid.set_default('events', own_sequence => true);
	ALTER SEQUENCE events_id_seq INCREMENT 50;

	DO 'BEGIN EXECUTE format(''GRANT USAGE ON SCHEMA %I TO app'', current_schema); END';
	GRANT SELECT, INSERT ON photos, events TO app;
	GRANT USAGE ON SEQUENCE id_seq, events_id_seq TO app;
$$);
\if :portable
	CALL snowid.for_each_shard('GRANT UPDATE ON SEQUENCE id_seq, events_id_seq TO app');
\endif
