/*
 * create --like: new shards with an existing one's definitions and ledger, on
 * the same server, each in a transaction of its own.
 *
 * pg_dump's script makes the existing shard's schema.  So that it runs as it is,
 * that schema is called otherwise while it runs: in a transaction, which nobody
 * else sees, and which locks nothing that a session needs that uses the shard.
 * What no renaming reaches is mapped, or refused.  Before the commit, the new shard
 * must prove that it makes and takes ids of its own number.
 */
#include "each.h"

#include "sql/create.inc"

/* pg_dump's script for another shard.  Refuses what names the old one in texts, unless they are to be kept. */
static char *
script_for(const char *dump, const ShardName *like, const ShardName *name)
{
	PQExpBuffer script = createPQExpBuffer();
	const char *p = dump;
	Entry		entry;

	(void) append_for(script, dump, dump + strlen(dump), like, name);
	while (!options.keep_texts && next_entry(&p, &entry))
	{
		PQExpBufferData unused;

		initPQExpBuffer(&unused);
		if (append_for(&unused, entry.text, entry.end, like, name) > 0)
			note(text_of("%s %s", entry.type, entry.name), "", name->shard);
		termPQExpBuffer(&unused);
	}
	for (int i = 0; i < nnotes; i++)
		report_error("%s: a text in it names \"%s\", which no renaming changes", notes[i].subject, like->forms[0]);
	if (nnotes > 0)
		exit(refuse(EXIT_USAGE, "Use names without a schema there; or say that they may stay as they are: --keep-texts.",
					"shard %d cannot be like shard %d", name->shard, like->shard));
	return keep_text(script->data);
}

/* The definitions are made again as texts, which look for functions by their names. */
static void
refuse_better_fits(PGconn *conn, const char *schema)
{
	PGresult   *res;

	if (options.trust_owners)
		return;
	res = query(conn, BETTER_FITS_SQL, literal(conn, query_text(conn, CODE_LOOKED_FOR_SQL, literal(conn, schema))));
	if (PQntuples(res) > 0)
		exit(refuse(EXIT_USAGE, text_of("Type there: %s Or say that it may run its code as you: --trust-owners.", PQgetvalue(res, 0, 1)),
					"%s", PQgetvalue(res, 0, 0)));
	PQclear(res);
}

/* False if somebody has a lock for too long; then we have none. */
static bool
create_shard(PGconn *conn, const char *dump, const ShardName *like, const ShardName *name)
{
	char	   *old = ident(conn, like->forms[0]);
	char	   *new = ident(conn, name->forms[0]);
	char	   *old_text = literal(conn, like->forms[0]);
	char	   *new_text = literal(conn, name->forms[0]);
	char	   *ledger = query_bool(conn, "SELECT to_regclass(%s) IS NOT NULL", literal(conn, text_of("%s." LEDGER, old))) ?
	text_of("INSERT INTO %s." LEDGER " SELECT * FROM %s." LEDGER " WHERE finished_at IS NOT NULL", new, old) : "";

	if (try_run(conn, "BEGIN; SET LOCAL lock_timeout = %d; SELECT snowid_internal.claim_shard(%d, %s, sequence, epoch) FROM snowid.shard_registry WHERE shard = %d; "
				"ALTER SCHEMA %s RENAME TO snowid_each_like", options.lock_timeout_ms, name->shard, new_text, like->shard, old) &&
		try_run(conn, "%s", script_for(dump, like, name)) &&
		try_run(conn, "SET search_path = pg_catalog, pg_temp; ALTER SCHEMA %s RENAME TO %s; ALTER SCHEMA snowid_each_like RENAME TO %s; "
				"%s", old, new, old, ledger) &&
		try_run(conn, "DO %s", literal(conn, text_of(SAME_RIGHTS_SQL, new_text, old_text))) &&
		try_run(conn, "DO %s", literal(conn, text_of(PROVE_SQL, new_text, text_of("%d", name->shard)))) &&
		try_run(conn, "COMMIT"))
		return true;
	if (strcmp(last_sqlstate, "55P03") != 0)
		fail_with(conn);
	run(conn, "ROLLBACK");
	return false;
}

int
command_create(PGconn *registry)
{
	char	   *home = query_text(registry, "SELECT home FROM snowid.shard_registry WHERE shard = %d", options.like);
	PGconn	   *conn = open_connection("server", home != NULL ? home : options.registry);
	Side		side = {.version = PQserverVersion(conn)};
	PGresult   *model;
	ShardName	like;
	char	   *schema;
	char	   *dump;
	char	   *line;
	int64		start = now_ms();

	if (PQstatus(conn) != CONNECTION_OK)
		refuse_call("shard %d: %s", options.like, PQerrorMessage(conn));
	model = query(conn, "SELECT schema, %s FROM snowid.shard_registry r JOIN pg_namespace n ON nspname = schema "
				  "WHERE shard = %d AND snowid_internal.lives(r) = 'here'", options.trust_owners ? "NULL" : UNTRUSTED,
				  options.like);
	if (PQntuples(model) == 0)
		exit(refuse(EXIT_USAGE, KNOWN_SHARDS, "shard %d is not where the registry says", options.like));
	if (!PQgetisnull(model, 0, 1))
		exit(refuse(EXIT_USAGE, "Connect as that role; or say that it may run its code as you: --trust-owners.",
					"what is in shard %d is of another role: %s", options.like, PQgetvalue(model, 0, 1)));
	schema = field(model, 0, 0);
	like = name_of(conn, schema, options.like);
	PQclear(model);
	refuse_better_fits(conn, schema);

	/* Migrations wait, so that the ledger, which pg_dump shall see, is right. */
	for (; !lock_shard(conn, options.like); wait_ms(100))
		if (now_ms() - start > options.wait_s * INT64CONST(1000))
			refuse_call("another snowid-each is at shard %d: %s", options.like, holder_of_shard(conn, options.like));
	dump = dump_shards(conn, &schema, 1);
	strip_script(dump, &side);

	/*
	 * It begins with settings, one of which is to wait for locks without a
	 * limit.
	 */
	if ((line = strstr(dump, "\nSET lock_timeout = 0;\n")) != NULL)
		memcpy(line + 1, "--", 2);
	for (int i = 0; i < options.shards.n; i++)
	{
		int			mark = mark_texts();
		int			number = options.shards.numbers[i];

		/* "insta5" of shard 5 is "insta7" of shard 7, and "app" is "app7". */
		ShardName	name = name_of(conn, query_text(conn, "SELECT regexp_replace(%s, '(^|\\D)%d$|$', '\\1%d')",
													literal(conn, schema), options.like, number), number);

		if (query_bool(registry, "SELECT EXISTS (SELECT FROM snowid.shard_registry WHERE (shard = %d OR schema = %s) "
					   "AND (shard <> %d OR home IS DISTINCT FROM %s))", number, literal(registry, name.forms[0]),
					   number, literal(registry, home)))
			refuse_call("the registry has another shard %d, or schema \"%s\"", number, name.forms[0]);

		/* After a kill, it may be there already, unknown to the registry. */
		if (!query_bool(conn, "SELECT EXISTS (SELECT FROM snowid.shard_registry WHERE shard = %d)", number))
			for (start = now_ms(); !create_shard(conn, dump, &like, &name); wait_ms(100))
				if (now_ms() - start > options.wait_s * INT64CONST(1000))
					exit(refuse(EXIT_FAILED, "Try again when nobody changes what these shards share; or wait longer: --wait.",
								"shard %d could not be made: %s", number, last_message));

		/* If the registry is this server's own, it has the row. */
		run(registry, "%s", query_text(conn, "SELECT format('INSERT INTO snowid.shard_registry VALUES (%%s, %%L, %%L, %%L, %%L) "
									   "ON CONFLICT (shard) DO NOTHING', shard, schema, sequence, epoch, %s::text) "
									   "FROM snowid.shard_registry WHERE shard = %d", literal(conn, home), number));
		report_info("shard %d is there", number);
		free_texts(mark);
	}
	return EXIT_DONE;
}
