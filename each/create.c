/*
 * create --like: new shards with an existing one's definitions and ledger, on
 * the same server.
 *
 * pg_dump's script makes the existing shard's schema.  So that it runs as it is,
 * that schema is called otherwise while it runs: in one transaction, which nobody
 * else sees, and which locks nothing that a session needs that uses the shard.
 */
#include "each.h"

/* What has the number of the shard in it: next_id(), DEFAULTs, guards. */
#define RENUMBER \
	"DO $$ DECLARE" \
	" s snowid.shard_registry := (SELECT r FROM snowid.shard_registry r WHERE shard = %d);" \
	" old text := %d; x record; BEGIN" \
	" FOR x IN SELECT oid, pg_get_function_arguments(oid) AS arguments, prosecdef FROM pg_proc" \
	"  WHERE pronamespace = quote_ident(s.schema)::regnamespace AND proname = 'next_id' LOOP" \
	"  PERFORM snowid_internal.define_next_id(s.schema, x.arguments, s.shard, s.sequence, s.epoch, x.prosecdef);" \
	" END LOOP;" \
	" FOR x IN SELECT attrelid::regclass AS t, attname, pg_get_expr(adbin, adrelid) AS call FROM pg_attrdef" \
	"  JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum JOIN pg_class c ON c.oid = adrelid" \
	"  WHERE relnamespace = quote_ident(s.schema)::regnamespace AND attgenerated = '' LOOP" \
	"  IF strpos(x.call, format('snowid.next_id(%%s, ', old)) > 0 THEN" \
	"   EXECUTE format('ALTER TABLE ONLY %%s ALTER %%I SET DEFAULT %%s', x.t, x.attname," \
	"    replace(x.call, format('snowid.next_id(%%s, ', old), format('snowid.next_id(%%s, ', s.shard)));" \
	"  END IF;" \
	" END LOOP;" \
	" FOR x IN SELECT conrelid::regclass AS t, conname, attname FROM pg_constraint k JOIN pg_attribute ON attrelid = conrelid AND attnum = conkey[1]" \
	"  WHERE connamespace = quote_ident(s.schema)::regnamespace AND contype = 'c' AND conislocal" \
	"  AND pg_get_constraintdef(k.oid) ^@ format('CHECK ((snowid.id_shard(%%I) = %%s))', attname, old) LOOP" \
	"  EXECUTE format('ALTER TABLE %%s DROP CONSTRAINT %%I', x.t, x.conname);" \
	"  PERFORM snowid_internal.add_guard(x.t, x.attname, s.shard);" \
	" END LOOP; END $$"

static void
create_shard(PGconn *conn, const char *like, const char *script, int number, const char *schema)
{
	char	   *l = ident(conn, like);
	char	   *s = ident(conn, schema);
	char	   *users;

	run(conn, "SELECT snowid_internal.claim_shard(%d, %s, sequence, epoch) FROM snowid.shard_registry WHERE shard = %d",
		number, literal(conn, schema), options.like);
	run(conn, "ALTER SCHEMA %s RENAME TO snowid_each_like", l);
	run(conn, "%s", script);
	run(conn, "SET search_path = pg_catalog, pg_temp; ALTER SCHEMA %s RENAME TO %s; ALTER SCHEMA snowid_each_like RENAME TO %s", l, s, l);
	run(conn, RENUMBER, number, options.like);
	run(conn, "INSERT INTO %s." LEDGER " SELECT * FROM %s." LEDGER " WHERE finished_at IS NOT NULL", s, l);
	users = query_text(conn, "SELECT string_agg(oid::regprocedure::text, ', ') FROM pg_proc "
					   "WHERE pronamespace = quote_ident(%s)::regnamespace AND strpos(prosrc, %s || '.') > 0",
					   literal(conn, schema), literal(conn, like));
	if (users != NULL)
		report_warning("functions of shard %d name the schema of shard %d: %s", number, options.like, users);
}

int
command_create(PGconn *registry)
{
	int		   *numbers = options.shards.numbers;
	int			n = options.shards.n;
	PGconn	   *conn;
	Side		side = {0};
	const char *home;
	char	   *like;
	char	   *ledger;
	char	   *script;

	options.shards = (ShardSet)
	{
		&options.like, 1
	};
	read_registry(registry);
	home = tasks[0].server == 0 ? NULL : servers[tasks[0].server];
	side.conn = conn = connect_server(tasks[0].server, true);
	side.version = PQserverVersion(conn);
	like = query_text(conn, "SELECT schema FROM snowid.shard_registry r WHERE shard = %d AND snowid_internal.lives(r) = 'here'", options.like);
	if (like == NULL)
	{
		report_error("shard %d is not where the registry says", options.like);
		fail();
	}

	/* A migration waits, so that the ledger says what the definitions are. */
	ledger = text_of("%s." LEDGER, ident(conn, like));
	run(conn, "BEGIN; SET LOCAL lock_timeout = %d", options.lock_timeout_ms);
	run(conn, CREATE_LEDGER "LOCK TABLE %s IN SHARE MODE", ledger, ledger);
	script = dump_definitions(conn, options.bindir, &like, 1);
	if (script == NULL)
		fail();
	strip_script(script, &side);
	for (int i = 0; i < n; i++)
	{
		/* "insta5" of shard 5 is "insta7" of shard 7. */
		char	   *schema = query_text(conn, "SELECT regexp_replace(%s, '(^|\\D)%d$', '\\1%d')", literal(conn, like), options.like, numbers[i]);

		if (query_bool(registry, "SELECT EXISTS (SELECT FROM snowid.shard_registry WHERE (shard = %d OR schema = %s) "
					   "AND (shard <> %d OR home IS DISTINCT FROM %s))", numbers[i], literal(registry, schema),
					   numbers[i], literal(registry, home)))
		{
			report_error("the registry has another shard %d, or schema \"%s\"", numbers[i], schema);
			fail();
		}

		/* After a kill, it may be there already, unknown to the registry. */
		if (!query_bool(conn, "SELECT EXISTS (SELECT FROM snowid.shard_registry WHERE shard = %d)", numbers[i]))
			create_shard(conn, like, script, numbers[i], schema);
	}
	run(conn, "COMMIT");
	for (int i = 0; i < n; i++)
	{
		/* If the registry is this server's own, it has the row. */
		run(registry, "%s", query_text(conn, "SELECT format('INSERT INTO snowid.shard_registry VALUES (%%s, %%L, %%L, %%L, %%L) "
									   "ON CONFLICT (shard) DO NOTHING', shard, schema, sequence, epoch, %s::text) "
									   "FROM snowid.shard_registry WHERE shard = %d", literal(conn, home), numbers[i]));
		report_info("shard %d is there", numbers[i]);
	}
	return EXIT_DONE;
}
