-- A thousand logical shards as the published design has them, each a schema
-- with a sequence, a function and one table, to see what a shard weighs.
DO $$
BEGIN
	FOR i IN 0 .. 999 LOOP
		EXECUTE pg_catalog.format($ddl$
			CREATE SCHEMA shard%1$s;
			CREATE SEQUENCE shard%1$s.id_seq;
			CREATE FUNCTION shard%1$s.next_id() RETURNS bigint LANGUAGE sql AS
				'SELECT snowid.next_id(%1$s, ''shard%1$s.id_seq'')';
			CREATE TABLE shard%1$s.photos (
				id bigint PRIMARY KEY DEFAULT shard%1$s.next_id(),
				user_id bigint NOT NULL
			);
		$ddl$, i);
	END LOOP;
END
$$;
