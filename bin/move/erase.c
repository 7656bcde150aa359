/*
 * snowid-move erase: a shard and its copies are dropped, on every server that one names
 * from which it begins: by its home, by their history, by journals, by snowid.servers.
 *
 * First it looks at all of them, and asks.  Then it drops: a server's row of the registry goes with what
 * is last there, once all were reached, and the first server, which names the others, comes last.  So the
 * same command goes on after whatever has ended it.
 */
#include "commands.h"
#include "sql/queries.inc"

/* How long a table of the shard is waited for: a vacuum lets go after deadlock_timeout. */
#define TABLE_WAIT_MS	10000

/* Each place is a set of the one shard, with the server as its source. */
typedef struct Erasure
{
	const MoveOptions *options;
	Move	  **places;
	int			nplaces;
	StringList	tried;			/* addresses */
	int			nmissing;		/* servers that were not reached */
	char	   *schema;			/* what the shard is called everywhere */
} Erasure;

/* One more server, unless it is known by another name; false if it is needed, or its facts do not fit. */
static bool
visit(Erasure *e, const char *address)
{
	Move	   *place = make_set(e->options);
	Side	   *side = &place->source;
	char	   *schema;

	for (int i = 0; i < e->tried.n; i++)
		if (strcmp(e->tried.items[i], address) == 0)
			return true;
	e->tried.items = pg_realloc(e->tried.items, (e->tried.n + 1) * sizeof(char *));
	e->tried.items[e->tried.n++] = side->label = address;
	if (!open_side(side, address, NULL, e->nplaces == 0))
	{
		e->nmissing++;
		return e->nplaces > 0;
	}
	side->label = side->home;
	set_label(side->conn, side->home);
	for (int i = 0; i < e->nplaces; i++)
		if (strcmp(identity_of(e->places[i]->source.conn), identity_of(side->conn)) == 0)
		{
			close_side(side);
			return true;
		}
	if (query_bool(side->conn, "SELECT to_regclass('snowid.moves') IS NULL"))
	{
		report_warning("%s has no extension snowid, and is not looked at", side->home);
		return e->nplaces > 0;
	}
	if (!knows_version(side->conn) || !check_journal_rights(side))
		return false;
	if (query_bool(side->conn, "SELECT pg_is_in_recovery()"))
		return refuse(false, "Give the connection of its primary.", "%s is a standby: nothing can be erased there", side->home);
	if (!lock_shards(place, side))
		return false;
	read_journal(place, side);
	schema = query_text(side->conn, "SELECT schema FROM snowid.shard_registry WHERE shard = %d", place->shards[0]->number);
	if (schema != NULL && e->schema != NULL && strcmp(schema, e->schema) != 0)
		return refuse(false, "Nothing was dropped. Erase each from its own servers, with --from.",
					  "%s is schema \"%s\" at %s, and \"%s\" elsewhere: another shard", place->title, schema, side->home, e->schema);
	e->schema = schema != NULL ? schema : e->schema;
	e->places = pg_realloc(e->places, (e->nplaces + 1) * sizeof(Move *));
	e->places[e->nplaces++] = place;
	return (schema == NULL || schemas_are_of(side, shard_list(place), literal(side->conn, schema), "snowid.shard_registry")) &&
		(!is_known(place, side) || schemas_are_of(side, shard_list(place), name_list(place, side), "snowid.moves"));
}

/* All that the servers name, and those which these name. */
static bool
visit_all(Erasure *e)
{
	const MoveOptions *options = e->options;

	if (!visit(e, options->registry != NULL ? options->registry : options->from) ||
		(options->registry != NULL && options->from != NULL && !visit(e, options->from)))
		return false;
	for (int i = 0; i < e->nplaces; i++)
	{
		PGconn	   *conn = e->places[i]->source.conn;
		PGresult   *homes = query(conn, "SELECT DISTINCT coalesce((SELECT s.home FROM snowid.servers s WHERE s.name = h.home), home) FROM ("
								  "SELECT r.home FROM snowid.shard_registry r WHERE shard = %1$s UNION SELECT peer FROM snowid.moves WHERE shard = %1$s "
								  "UNION SELECT x ->> 'home' FROM snowid.shard_registry, jsonb_array_elements(homes) x WHERE shard = %1$s "
								  "UNION SELECT s.home FROM snowid.servers s) h WHERE home IS NOT NULL", shard_list(e->places[i]));

		for (int row = 0; row < PQntuples(homes); row++)
			if (!visit(e, field(homes, row, 0)))
				return false;
		PQclear(homes);
	}
	return true;
}

/* A move must be where only its copy is left. */
static bool
is_at_rest(const Erasure *e)
{
	MoveOptions options = *e->options;
	Move	   *move = make_set(&options);
	Journal    *journals = move->shards[0]->journals;
	const char *homes[2] = {NULL, NULL};

	journals[0].at.role = journals[1].at.role = e->nmissing > 0 ? NOT_REACHED : NO_ROW;
	for (int i = 0; i < e->nplaces; i++)
	{
		const Journal *j = set_journal(e->places[i], &e->places[i]->source);
		int			n = j->begun_as == TARGET;

		if (j->move_id == NULL)
			continue;
		journals[n] = *j;
		homes[n] = e->places[i]->source.home;
		homes[1 - n] = homes[1 - n] != NULL ? homes[1 - n] : j->peer;
	}
	if (homes[0] == NULL || situation_of(move->shards[0]) == HAS_MOVED)
		return true;
	options.from = homes[0];
	options.to = homes[1];
	report_error("%s cannot be erased now: %s", move->title, outlook(move));
	for (int i = 0; what_to_type(move, i) != NULL; i++)
		report_hint("%s", what_to_type(move, i));
	return false;
}

/* The schemas there, as a list of literals; none is "NULL". */
static char *
schemas_at(const Erasure *e, const Move *place)
{
	return query_text(place->source.conn, ERASED_SCHEMAS_SQL, shard_list(place), literal(place->source.conn, e->schema));
}

static char *
users_of(PGconn *conn, const char *schemas)
{
	return query_text(conn, "SELECT string_agg(user_name, ', ' ORDER BY user_name) FROM (" OUTSIDE_USERS_SQL ") u", text_of("ARRAY[%s]::text[]", schemas));
}

/* What others have made of it goes only if that is asked for. */
static bool
refuse_users(const Erasure *e, const Side *side, PGconn *conn, const char *schemas)
{
	char	   *users = users_of(conn, schemas);

	if (users != NULL && e->options->cascade)
		report_warning("%s: is dropped with it: %s", side->home, users);
	return users != NULL && !e->options->cascade &&
		refuse(true, "Drop or change them and type the same command again, or type it with --cascade.",
			   "objects of other schemas at %s use it, and would be dropped with it: %s", side->home, users);
}

/* What there is, and what is in the way; false if anything is. */
static bool
tell(const Erasure *e)
{
	bool		is_free = true;

	for (int i = 0; i < e->nplaces; i++)
	{
		const Side *side = &e->places[i]->source;
		char	   *schemas = schemas_at(e, e->places[i]);

		printf("at %s: %s\n", side->home, without_controls(query_text(side->conn, ERASED_SIZES_SQL, schemas, shard_list(e->places[i]))));
		is_free = !refuse_users(e, side, side->conn, schemas) && is_free;
	}
	return is_free;
}

/* The number, typed again. */
static bool
is_meant(const Erasure *e)
{
	char		answer[64] = "";
	int			number = e->options->shards[0];

	if (e->options->yes)
		return true;
	printf("To erase shard %d, schema \"%s\", type its number again: ", number, e->schema != NULL ? printable(e->schema) : "");
	fflush(stdout);
	if (fgets(answer, sizeof(answer), stdin) == NULL)
		answer[0] = '\0';
	answer[strcspn(answer, "\r\n")] = '\0';
	return strcmp(answer, text_of("%d", number)) == 0 ||
		refuse(false, "Type the number, or the same command with --yes.", "shard %d was not confirmed, and nothing was dropped", number);
}

/*
 * A part, in a transaction of its own, so that nobody waits for long.  What others have made of it since
 * we looked is seen by the second session, as it was before the drop, which keeps
 * others from making more.
 */
static bool
drop_part(const Erasure *e, const Move *place, const char *schemas, const char *sql, int lock_timeout_ms)
{
	const Side *side = &place->source;

	for (int attempt = 0; attempt <= e->options->retries; attempt++)
	{
		PGresult   *res;

		run(side->conn, "BEGIN; SET LOCAL lock_timeout = %d", lock_timeout_ms);
		if ((res = try_and_tell(side, side->conn, side->aux, sql)) != NULL)
		{
			PQclear(res);
			if (!e->options->cascade && refuse_users(e, side, side->aux, schemas))
			{
				run(side->conn, "ROLLBACK");
				return false;
			}
			run(side->conn, "COMMIT");
			return true;
		}
		if (strcmp(last_sqlstate, "55P03") != 0 && strcmp(last_sqlstate, "40P01") != 0)
			fail_with(side->conn);
		run(side->conn, "ROLLBACK");
		back_off(attempt);
	}
	return refuse(false, "Type the same command again at a quieter time, or with a longer --lock-timeout.", "%s: could not lock what is to be dropped: %s", side->home, sql);
}

/* All of a server: closed, table by table, and at last the rest, with the rows that say so. */
static bool
erase_at(const Erasure *e, const Move *place)
{
	const Side *side = &place->source;
	char	   *schemas = schemas_at(e, place);
	char	   *shard = shard_list(place);
	PGresult   *parts;
	bool		done = true;

	run(side->conn, "SET lock_timeout = %d", TABLE_WAIT_MS);
	run_and_tell(side, side->conn, side->aux, "SELECT snowid.fence_shard(shard) FROM snowid.shard_registry r WHERE shard = %s AND schema = %s AND snowid_internal.lives(r) = 'here'",
				 shard, literal(side->conn, e->schema));
	parts = query(side->conn, ERASED_PARTS_SQL, schemas);
	for (int row = 0; row < PQntuples(parts) && done; row++)
		done = drop_part(e, place, schemas, PQgetvalue(parts, row, 0), PQgetvalue(parts, row, 1)[0] == 't' ? e->options->lock_timeout_ms : TABLE_WAIT_MS);
	PQclear(parts);
	return done && drop_part(e, place, schemas, query_text(side->conn, ERASED_REST_SQL, shard, schemas, e->nmissing > 0 ? "true" : "false", literal(side->conn, e->schema)), TABLE_WAIT_MS);
}

int
command_erase(const MoveOptions *options)
{
	Erasure		e = {.options = options};
	const char *homes = "";
	bool		is_there;

	if (!visit_all(&e))
		return e.nplaces == 0 ? EXIT_USAGE : EXIT_FAILED;
	is_there = e.schema != NULL;
	for (int i = 0; i < e.nplaces; i++)
		is_there |= strcmp(schemas_at(&e, e.places[i]), "NULL") != 0;
	if (!is_there)
	{
		report_info("shard %d: no server has it%s", options->shards[0], e.nmissing > 0 ? " that was reached" : "");
		return e.nmissing > 0 ? EXIT_FAILED : EXIT_DONE;
	}
	if (!is_at_rest(&e) || !tell(&e) || (!options->dry_run && !is_meant(&e)))
		return EXIT_FAILED;
	if (options->dry_run)
		return EXIT_DONE;
	failure_exit_code = EXIT_INCOMPLETE;
	for (int i = 0; i < e.nplaces; i++)
	{
		const Side *side = &e.places[i]->source;

		homes = text_of("%s%s%s", homes, i > 0 ? " and " : "", side->home);
		printf("%s", without_controls(query_text(side->conn, ERASED_REMAINS_SQL, schemas_at(&e, e.places[i]), literal(side->conn, side->home),
												 literal(side->conn, e.schema), shard_list(e.places[i]))));
	}
	for (int i = e.nplaces - 1; i >= 0; i--)
		if (!erase_at(&e, e.places[i]))
			return failure();
	if (e.nmissing > 0)
		return refuse(failure(), text_of("When all are reached, type the same command again. If one is gone for ever, type at %s: DELETE FROM snowid.shard_registry WHERE shard = %d;",
										 homes, options->shards[0]),
					  "shard %d is erased, but on servers that were not reached", options->shards[0]);
	printf("shard %d is erased\n", options->shards[0]);
	return EXIT_DONE;
}
