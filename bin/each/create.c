/*
 * create --like: new shards with an existing one's definitions and ledger, on
 * the same server.
 *
 * pg_dump's script makes the existing shard's schema.  So that it runs as it is,
 * that schema is called otherwise while it runs: in one transaction, which nobody
 * else sees, and which locks nothing that a session needs that uses the shard.
 */
#include "each.h"

/* Where pg_dump's script has the number of the shard: next_id(), DEFAULTs, guards. */
#define NUMBERED "(\\msnowid(_internal)?\\.(next_id\\w*\\(|id_shard\\(([^()\"]*|\"[^\"]*\")\\) = ))%d\\M"

static void
create_shard(PGconn *conn, const char *like, const char *script, int number, const char *schema)
{
	char	   *l = ident(conn, like);
	char	   *s = ident(conn, schema);

	run(conn, "SELECT snowid_internal.claim_shard(%d, %s, sequence, epoch) FROM snowid.shard_registry WHERE shard = %d",
		number, literal(conn, schema), options.like);
	run(conn, "ALTER SCHEMA %s RENAME TO snowid_each_like", l);
	run(conn, "%s", query_text(conn, "SELECT regexp_replace(%s, '" NUMBERED "', '\\1%d', 'g')", literal(conn, script), options.like, number));
	run(conn, "SET search_path = pg_catalog, pg_temp; ALTER SCHEMA %s RENAME TO %s; ALTER SCHEMA snowid_each_like RENAME TO %s", l, s, l);
	run(conn, "INSERT INTO %s." LEDGER " SELECT * FROM %s." LEDGER " WHERE finished_at IS NOT NULL", s, l);
}

int
command_create(PGconn *registry)
{
	int		   *numbers = options.shards.numbers;
	char	   *home = query_text(registry, "SELECT home FROM snowid.shard_registry WHERE shard = %d", options.like);
	PGconn	   *conn;
	Side		side = {0};
	char	   *like;
	char	   *ledger;
	char	   *script;

	if (home != NULL)
		servers[nservers++] = home;
	conn = connect_server(nservers - 1, true);
	side.version = PQserverVersion(conn);
	like = query_text(conn, "SELECT schema FROM snowid.shard_registry r WHERE shard = %d AND snowid_internal.lives(r) = 'here'", options.like);
	if (like == NULL)
		refuse_call("shard %d is not where the registry says", options.like);

	/* Migrations wait, so that the ledger, which pg_dump shall see, is right. */
	ledger = open_ledger(conn, text_of("%s." LEDGER, ident(conn, like)), "");
	run(conn, "SET lock_timeout = %d", options.lock_timeout_ms);
	run(conn, "%s", ledger);
	run(conn, "BEGIN; %s", ledger);
	script = dump_definitions(conn, options.bindir, &like, 1);
	if (script == NULL)
		fail();
	strip_script(script, &side);
	for (int i = 0; i < options.shards.n; i++)
	{
		/* "insta5" of shard 5 is "insta7" of shard 7, and "app" is "app7". */
		char	   *schema = query_text(conn, "SELECT regexp_replace(%s, '(^|\\D)%d$|$', '\\1%d')", literal(conn, like), options.like, numbers[i]);

		if (query_bool(registry, "SELECT EXISTS (SELECT FROM snowid.shard_registry WHERE (shard = %d OR schema = %s) "
					   "AND (shard <> %d OR home IS DISTINCT FROM %s))", numbers[i], literal(registry, schema),
					   numbers[i], literal(registry, home)))
			refuse_call("the registry has another shard %d, or schema \"%s\"", numbers[i], schema);

		/* After a kill, it may be there already, unknown to the registry. */
		if (!query_bool(conn, "SELECT EXISTS (SELECT FROM snowid.shard_registry WHERE shard = %d)", numbers[i]))
			create_shard(conn, like, script, numbers[i], schema);
	}
	run(conn, "COMMIT");
	for (int i = 0; i < options.shards.n; i++)
	{
		/* If the registry is this server's own, it has the row. */
		run(registry, "%s", query_text(conn, "SELECT format('INSERT INTO snowid.shard_registry VALUES (%%s, %%L, %%L, %%L, %%L) "
									   "ON CONFLICT (shard) DO NOTHING', shard, schema, sequence, epoch, %s::text) "
									   "FROM snowid.shard_registry WHERE shard = %d", literal(conn, home), numbers[i]));
		report_info("shard %d is there", numbers[i]);
	}
	return EXIT_DONE;
}
