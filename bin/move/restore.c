/*
 * A shard through time: copied out of one snapshot, wherever that is, into a closed
 * schema beside what is there; and brought back, by giving such a copy the shard's
 * place.
 *
 * pg_dump's script has the shard's own name.  Each part of it runs in a transaction in
 * which the copy has that name, and the shard another one: nobody else sees either.
 * What takes a shard's place, and what it was, are of one database, so one COMMIT
 * decides; who dies before has changed nothing, and what a copy has left that did
 * not come to its end is dropped by the next.
 *
 * A row of snowid.copies may be anybody's who was let write there.  So a schema is only dropped,
 * or renamed, if its own comment says whose copy it is, which only its owner can have it say.
 */
#include "commands.h"
#include "sql/queries.inc"

/* How long something of no writer's may be waited for, and so often that may be tried. */
#define LIMIT_MS		10000
#define TRIES			100

/* Of snowid-each: its table, and its lock on a shard where it runs a script. */
#define LEDGER			"snowid_migrations"
#define EACH_CLASS		0x45414348

typedef struct Copy
{
	const Move *move;			/* of one shard; its target gets the copy */
	PGconn	   *conn;			/* there */
	PGconn	   *from;			/* has the snapshot */
	const char *schema;			/* of the shard at its source */
	const char *name;			/* of the copy */
	const char *facts;			/* its row of the registry there */
	const char *hide;			/* what takes its name from the shard, for a */
	const char *before;			/* transaction, and gives it to the copy; and */
	const char *after;			/* what gives both their own again */
	int64		newest;			/* the source's reservation */
} Copy;

/*
 * What one that was killed has paused goes on, whether or not that was decided: at poolers that the command
 * names, since snowid.copies may have anybody's.
 */
static void
resume_noted(const Move *move, char *noted)
{
	Journal    *journal = set_journal(move, &move->target);
	bool		are_named = true;

	for (char *line = noted == NULL ? NULL : strtok(noted, "\n"); line != NULL; line = strtok(NULL, "\n"))
	{
		bool		is_named = false;

		for (int i = 0; i < move->options->npoolers; i++)
			is_named |= strcmp(line, without_password("--pooler", move->options->poolers[i])) == 0;
		if (is_named)
			journal->poolers = text_of("%s%s\n", journal->poolers != NULL ? journal->poolers : "", line);
		are_named &= is_named;
	}
	journal->begun_as = TARGET;
	settle_pools(move, false);
	if (!are_named)
		report_warning("a program that was killed may have left the pool of %s paused: type the command with its --pooler", move->title);
}

/* A session with the server that has or gets the shard, and the lock against others of us. */
static Move *
join(const MoveOptions *options, int i)
{
	MoveOptions *one = pg_malloc(sizeof(MoveOptions));
	Move	   *move;
	Side	   *side;
	PGresult   *res;

	*one = *options;
	one->shards = &options->shards[i];
	one->nshards = 1;
	move = make_set(one);
	side = &move->target;
	if (!open_side(side, options->to, NULL, true))
		exit(EXIT_USAGE);
	if (!knows_version(side->conn) || !check_journal_rights(side) || !lock_shards(move, side))
		exit(EXIT_FAILED);
	read_journal(move, side);

	res = query(side->conn, "SELECT schema, coalesce(pool, schema) FROM snowid.shard_registry WHERE shard = %d", one->shards[0]);
	if (PQntuples(res) > 0)
	{
		move->shards[0]->schema = field(res, 0, 0);
		move->shards[0]->pool = field(res, 0, 1);
	}
	PQclear(res);

	if (!set_journal(move, side)->exists && move->shards[0]->schema != NULL)
		resume_noted(move, query_text(side->conn, "SELECT string_agg(details ->> 'poolers', '') FROM snowid.copies WHERE shard = %d", one->shards[0]));
	return move;
}

static void
leave(Move *move)
{
	close_side(&move->target);
}

/* What failed may pass: a lock, a deadlock, or another's change of the same row of a catalog. */
static bool
may_pass(void)
{
	return strcmp(last_sqlstate, "55P03") == 0 || strcmp(last_sqlstate, "40P01") == 0 ||
		(strcmp(last_sqlstate, "XX000") == 0 && strstr(last_message, "tuple concurrently updated") != NULL);
}

/* Run a part of the script, with the names that it expects. */
static bool
run_as_shard(const Copy *copy, const char *sql)
{
	for (int n = 0;; n++)
	{
		if (try_run(copy->conn, "BEGIN; SET LOCAL lock_timeout = %d; %s; %s; %s; %s; COMMIT",
					copy->move->options->lock_timeout_ms, copy->hide, copy->before, sql, copy->after))
			return true;
		if (PQstatus(copy->conn) != CONNECTION_OK || !may_pass() || n == TRIES)
			return false;
		run(copy->conn, "ROLLBACK");
		back_off(n);
	}
}

static bool
tell_failed(const Copy *copy, const char *what)
{
	report_error("target: %s of shard %d cannot be made there: %s", what, copy->move->shards[0]->number, PQerrorMessage(copy->conn));
	report_hint("Correct that, and type the same command again; it begins anew.");
	return false;
}

/* Begin at the source, which may be a standby: only read. */
static bool
open_source(Copy *copy)
{
	int			shard = copy->move->shards[0]->number;
	Side		side = {.label = "source"};
	PGresult   *res;

	copy->from = open_connection("source", copy->move->options->from);
	if (PQstatus(copy->from) != CONNECTION_OK)
	{
		report_error("source: %s", PQerrorMessage(copy->from));
		exit(EXIT_USAGE);
	}
	side.conn = copy->from;
	if (!knows_version(copy->from) || !check_journal_rights(&side))
		exit(EXIT_FAILED);
	run(copy->from, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL lock_timeout = %d", LIMIT_MS);
	res = query(copy->from, COPIED_SHARD_SQL, text_of("%d", shard));
	if (PQntuples(res) == 0)
		return refuse(false, "To see what is there, type at that server: SELECT * FROM snowid.shards;", "shard %d is not on the source", shard);
	copy->schema = field(res, 0, 0);
	copy->facts = field(res, 0, 2);
	copy->newest = strtoll(PQgetvalue(res, 0, 3), NULL, 10);
	if (!PQgetisnull(res, 0, 4))
		run(copy->from, "LOCK TABLE %s IN ACCESS SHARE MODE", PQgetvalue(res, 0, 4));
	PQclear(res);
	return true;
}

static char *
free_schema(PGconn *conn, const char *schema, const char *suffix)
{
	return query_text(conn, FREE_SCHEMA_SQL, literal(conn, schema), literal(conn, suffix));
}

/* What a copy of the shard says of itself. */
static char *
mark_of(int shard)
{
	return text_of("snowid: of shard %d", shard);
}

static char *
mark_schema(PGconn *conn, const char *name, const char *then, const char *mark)
{
	return query_text(conn, MARK_SCHEMA_SQL, literal(conn, name), literal(conn, then), literal(conn, mark));
}

/* Is a schema what snowid.copies says of it, and none that a shard is open in? */
static bool
is_marked(const Move *move, const char *name)
{
	PGconn	   *conn = move->target.conn;
	char	   *mark = mark_of(move->shards[0]->number);

	if (query_bool(conn, "SELECT count(*) FROM snowid.shard_registry WHERE schema = %s", literal(conn, name)))
		return refuse(false, text_of("Type there: DELETE FROM snowid.copies WHERE schema = %s;", literal(conn, name)),
					  "schema \"%s\" is a shard's, and no copy, as snowid.copies says; nothing was changed", name);
	return !query_bool(conn, "SELECT count(*) FROM pg_namespace WHERE nspname = %s AND split_part(obj_description(oid, 'pg_namespace'), E'\n', 1) IS DISTINCT FROM %s",
					   literal(conn, name), literal(conn, mark)) ||
		refuse(false, text_of("Look at it. If it is, type there: COMMENT ON SCHEMA %s IS '%s'; else: DELETE FROM snowid.copies WHERE schema = %s;", ident(conn, name), mark, literal(conn, name)),
			   "schema \"%s\" does not say that it is of shard %d, as snowid.copies does; nothing was changed", name, move->shards[0]->number);
}

/* Is nothing in it that is nowhere else, or that others have made of it, as that connection sees it? */
static bool
may_be_lost(const Move *move, PGconn *conn, const char *name)
{
	char	   *newer = query_text(conn, "SELECT string_agg(t::text, ', ') FROM snowid_internal.shard_tables(%s) t WHERE NOT EXISTS ("
								   "SELECT FROM pg_trigger WHERE tgrelid = t AND tgname = 'snowid_fence' AND tgenabled <> 'D')", literal(conn, name));
	char	   *users = move->options->cascade ? NULL :
	query_text(conn, "SELECT string_agg(user_name, ', ' ORDER BY user_name) FROM (" OUTSIDE_USERS_SQL ") u", text_of("ARRAY[%s]::text[]", literal(conn, name)));

	if (newer != NULL)
		return refuse(false, "They are not in the shard. Copy them there, drop them here, and type the same command again.",
					  "tables of schema \"%s\" were made after it was closed: %s", name, newer);
	return users == NULL || refuse(false, "Drop or change them, and type the same command again; or drop them with --cascade.",
								   "objects of other schemas use \"%s\", and would be dropped with it: %s", name, users);
}

/*
 * Drop a schema of ours, with its row.  If it is closed, that has waited for transactions that were creating
 * tables there; the other connection still sees what is dropped.
 */
static bool
drop_copy(const Move *move, const char *name, bool is_closed)
{
	PGconn	   *conn = move->target.conn;

	if (!is_marked(move, name))
		return false;
	if (!try_run(conn, "BEGIN; SET LOCAL lock_timeout = %d; DROP SCHEMA IF EXISTS %s CASCADE; DELETE FROM snowid.copies WHERE schema = %s",
				 LIMIT_MS, ident(conn, name), literal(conn, name)))
	{
		report_error("schema \"%s\" cannot be dropped: %s", name, PQerrorMessage(conn));
		report_hint("When nobody uses it, type the same command again.");
		run(conn, "ROLLBACK");
		return false;
	}
	if (is_closed && !may_be_lost(move, move->target.aux, name))
	{
		run(conn, "ROLLBACK");
		return false;
	}
	run(conn, "COMMIT");
	report_info("schema \"%s\" is dropped", name);
	return true;
}

/* The name must be free, but for what an unfinished copy has left. */
static bool
claim_name(Copy *copy)
{
	PGconn	   *conn = copy->conn;
	char	   *left = query_text(conn, "SELECT schema FROM snowid.copies WHERE schema = %s AND kind = 'copying'", literal(conn, copy->name));
	char	   *hidden = ident(conn, text_of("snowid_move_%d", copy->move->shards[0]->number));
	bool		is_there;

	if (left != NULL && !drop_copy(copy->move, left, false))
		return false;
	if (query_bool(conn, "SELECT count(*) FROM pg_namespace WHERE nspname = %s", literal(conn, copy->name)))
		return refuse(false, "Drop it, or name another one: --as NAME.", "there is a schema \"%s\" at %s already", copy->name, copy->move->target.home);
	is_there = strcmp(copy->name, copy->schema) != 0 &&
		query_bool(conn, "SELECT count(*) FROM pg_namespace WHERE nspname = %s", literal(conn, copy->schema));
	copy->before = strcmp(copy->name, copy->schema) == 0 ? "" :
		text_of("ALTER SCHEMA %s RENAME TO %s", ident(conn, copy->name), ident(conn, copy->schema));
	copy->hide = is_there ? text_of("ALTER SCHEMA %s RENAME TO %s", ident(conn, copy->schema), hidden) : "";
	copy->after = text_of("%s%s%s", strcmp(copy->name, copy->schema) == 0 ? "" :
						  text_of("ALTER SCHEMA %s RENAME TO %s", ident(conn, copy->schema), ident(conn, copy->name)),
						  is_there ? "; " : "",
						  is_there ? text_of("ALTER SCHEMA %s RENAME TO %s", hidden, ident(conn, copy->schema)) : "");
	return true;
}

/* What rows need, in a schema that is ours until they are there; says whose it is to be. */
static bool
make_tables(Copy *copy, int archive, char **owner)
{
	PGconn	   *conn = copy->conn;
	char	   *script = script_of(conn, copy->move->options->bindir, archive, "--section=pre-data", NULL);
	PGresult   *privileges = query(conn, DEFAULT_PRIVILEGES_SQL);
	bool		done = false;

	if (script == NULL || !names_are_trusted(copy->move->options, copy->from, conn, literal(copy->from, copy->schema)))
		return false;
	strip_script(script, &copy->move->target);
	for (int n = 0; !done; n++)
	{
		run(conn, "BEGIN; " ONE_AT_A_TIME "; SET LOCAL lock_timeout = %d", copy->move->options->lock_timeout_ms);
		done = try_run(conn, "%s", PQgetvalue(privileges, 0, 0)) &&
			try_run(conn, "%s", copy->hide) && try_run(conn, "%s", script) &&
			try_run(conn, "SET search_path = pg_catalog, pg_temp; %s; %s", copy->after, PQgetvalue(privileges, 0, 1));
		if (!done && (n == TRIES || PQstatus(conn) != CONNECTION_OK || !may_pass()))
			return tell_failed(copy, "definitions");
		if (!done)
		{
			run(conn, "ROLLBACK");
			back_off(n);
		}
	}
	if (!calls_are_trusted(copy->move->options, conn, literal(conn, copy->name)))
		return false;
	*owner = query_text(conn, OWNER_OF_COPY_SQL, literal(conn, copy->name));
	run(conn, "%s", query_text(conn, TAKE_SCHEMAS_SQL, literal(conn, copy->name)));
	run(conn, "INSERT INTO snowid.copies (schema, shard, kind) VALUES (%s, %d, 'copying') "
		"ON CONFLICT (schema) DO UPDATE SET shard = excluded.shard, kind = 'copying', details = '{}', changed_at = clock_timestamp(); %s",
		literal(conn, copy->name), copy->move->shards[0]->number, mark_schema(conn, copy->name, copy->name, mark_of(copy->move->shards[0]->number)));
	run(conn, "COMMIT");
	PQclear(privileges);

	/* The script leaves its settings behind. */
	return reconnect(conn);
}

/* The rows of a table; false after an error, which has been told. */
static bool
copy_rows_of(const Copy *copy, const char *rows, const char *table)
{
	PGresult   *begun[] = {PQexec(copy->from, copy_of(copy->conn, text_of("COPY %s TO STDOUT", rows))),
	PQexec(copy->conn, copy_of(copy->conn, text_of("COPY %s FROM STDIN", table)))};
	bool		done = PQresultStatus(begun[0]) == PGRES_COPY_OUT && PQresultStatus(begun[1]) == PGRES_COPY_IN;
	PGresult   *res;
	char	   *row;
	int			length = -2;

	while (done && (length = PQgetCopyData(copy->from, &row, 0)) > 0)
	{
		done = PQputCopyData(copy->conn, row, length) == 1;
		PQfreemem(row);
	}
	if (PQresultStatus(begun[1]) == PGRES_COPY_IN)
		(void) PQputCopyEnd(copy->conn, done && length == -1 ? NULL : "the rows ended too early");
	while ((res = PQgetResult(copy->conn)) != NULL)
	{
		done = done && PQresultStatus(res) == PGRES_COMMAND_OK;
		PQclear(res);
	}
	if (!done || length != -1)
		report_error("the rows of %s cannot be copied: %s%s", table, PQerrorMessage(copy->from), PQerrorMessage(copy->conn));
	while (length == -1 && (res = PQgetResult(copy->from)) != NULL)
	{
		done = done && has_succeeded(res);
		PQclear(res);
	}
	PQclear(begun[0]);
	PQclear(begun[1]);
	return done && length == -1;
}

static bool
copy_all_rows(const Copy *copy, bool ledger_only)
{
	PGresult   *tables = query(copy->from, COPIED_TABLES_SQL, literal(copy->from, copy->schema), literal(copy->from, copy->name),
							   ledger_only ? "'" LEDGER "'" : "'%'");
	bool		done = true;

	for (int i = 0; i < PQntuples(tables) && done; i++)
		done = copy_rows_of(copy, PQgetvalue(tables, i, 0), PQgetvalue(tables, i, 1));
	PQclear(tables);
	return done;
}

/*
 * What comes after the rows, each in a transaction of its own: a foreign key to a shared
 * table, made with a look at all rows, would hold that table's writers.
 */
static bool
make_after_rows(const Copy *copy, int archive, const char *unvalidated)
{
	char	   *script = script_of(copy->conn, copy->move->options->bindir, archive, "--section=post-data", NULL);
	PGresult   *keys;

	if (script == NULL)
		return false;
	strip_script(script, &copy->move->target);
	for (char *header = next_header(script), *next; header != NULL; header = next)
	{
		char	   *body = strchr(header, '\n');
		char	   *end;
		bool		done;

		if ((next = next_header(body)) != NULL)
			next[-(int) strlen(ENTRY_START)] = '\0';
		*body++ = '\0';
		if (strstr(header, " snowid_fence; Type: TRIGGER") != NULL)
			continue;
		end = strstr(header, "; Type: FK CONSTRAINT") == NULL ? NULL : strstr(body, ";\n");
		if (end != NULL)
			*end = '\0';
		done = run_as_shard(copy, end == NULL || strcmp(end - Min(end - body, 9), "NOT VALID") == 0 ? body : text_of("%s NOT VALID", body));

		/* There is none of a partitioned table. */
		if (!done && end != NULL && (strcmp(last_sqlstate, "42809") == 0 || strcmp(last_sqlstate, "0A000") == 0))
		{
			run(copy->conn, "ROLLBACK");
			done = run_as_shard(copy, body);
		}
		if (!done)
			return tell_failed(copy, header);
	}
	keys = query(copy->conn, "SELECT format('ALTER TABLE %%s VALIDATE CONSTRAINT %%I', conrelid::regclass, conname) FROM pg_constraint "
				 "WHERE connamespace = %s::regnamespace AND contype = 'f' AND NOT convalidated AND conname <> ALL (%s::name[])",
				 literal(copy->conn, ident(copy->conn, copy->name)), literal(copy->conn, unvalidated));
	for (int i = 0; i < PQntuples(keys); i++)
		if (!try_run(copy->conn, "%s", PQgetvalue(keys, i, 0)))
			return tell_failed(copy, "a foreign key");
	PQclear(keys);
	return true;
}

static bool
fill_copied_views(const Copy *copy)
{
	PGresult   *views = query(copy->from, FILLED_VIEWS_SQL, text_of("ARRAY[%s]::name[]", literal(copy->from, copy->schema)));
	PGresult   *tables = query(copy->conn, "SELECT format('ANALYZE %%s', oid::regclass) FROM pg_class WHERE relkind = 'r' AND relnamespace = %s::regnamespace",
							   literal(copy->conn, ident(copy->conn, copy->name)));

	/*
	 * What an index calls may look for the shard's name, which is another's
	 * again.
	 */
	for (int i = 0; i < PQntuples(tables); i++)
		if (!try_run(copy->conn, "%s", PQgetvalue(tables, i, 0)))
			report_warning("target: %s: %s", PQgetvalue(tables, i, 0), PQerrorMessage(copy->conn));
	for (int i = 0; i < PQntuples(views); i++)
		if (!run_as_shard(copy, text_of(SETTINGS_OF_VIEWS "; %s", "true", PQgetvalue(views, i, 0))))
			return tell_failed(copy, PQgetvalue(views, i, 0));
	PQclear(tables);
	PQclear(views);
	return true;
}

/* Make the copy a shard of its own; old rows keep their ids, and can be changed. */
static bool
number_copy(const Copy *copy, int number)
{
	PGconn	   *conn = copy->conn;
	PGresult   *res;
	bool		done = true;

	run(conn, "BEGIN");
	res = query(conn, OWN_IDS_SQL, literal(conn, ident(conn, copy->name)), text_of("%d", number));
	for (int i = 0; i < PQntuples(res) && done; i++)
		done = try_run(conn, "%s", PQgetvalue(res, i, 0));
	done = done && try_run(conn, "SELECT snowid.register_shard(%d, %s, (f ->> 'epoch')::timestamptz, f ->> 'sequence') FROM CAST(%s AS jsonb) f",
						   number, literal(conn, copy->name), literal(conn, copy->facts));
	for (int i = 0; i < PQntuples(res) && done; i++)
		done = try_run(conn, "%s", PQgetvalue(res, i, 1));
	PQclear(res);
	return done || tell_failed(copy, text_of("shard %d", number));
}

/* To make a foreign key plans a query of the table that it leads to. */
static bool
keys_are_trusted(const Copy *copy)
{
	PGresult   *tables = query(copy->from, "SELECT DISTINCT confrelid::regclass FROM pg_constraint k JOIN pg_class c ON c.oid = confrelid "
							   "WHERE contype = 'f' AND connamespace = %s::regnamespace AND relnamespace <> connamespace",
							   literal(copy->from, ident(copy->from, copy->schema)));
	char	   *owner = NULL;

	for (int i = 0; i < PQntuples(tables) && owner == NULL && !copy->move->options->trust_owners; i++)
		owner = query_text(copy->conn, UNTRUSTED_OWNER_SQL, literal(copy->conn, PQgetvalue(tables, i, 0)));
	PQclear(tables);
	return owner == NULL || refuse(false, TO_TRUST, "target: %s", owner);
}

/* All of a shard but the place that it gets. */
static bool
make_copy(Copy *copy, bool definitions_only, int number)
{
	PGconn	   *conn = copy->conn;
	FILE	   *file = tmpfile();
	int			archive = file == NULL ? -1 : fileno(file);
	char	   *schema = pg_strdup(copy->schema);
	char	   *owner = NULL;
	char	   *states;
	bool		done = false;

	if (file == NULL)
		report_error("could not make a temporary file: %m");
	else if (owners_are_trusted(copy->move, copy->schema, copy->from) && keys_are_trusted(copy))
		done = dump_archive(copy->from, copy->move->options->bindir, &schema, 1, query_text(copy->from, "SELECT pg_export_snapshot()"), archive) &&
			claim_name(copy) && make_tables(copy, archive, &owner) && copy_all_rows(copy, definitions_only) &&
			(is_kept_from_owners(copy->move) || try_run(conn, "%s", owner) || tell_failed(copy, "the owner")) &&
			make_after_rows(copy, archive, query_text(copy->from, "SELECT coalesce(array_agg(conname), '{}') FROM pg_constraint "
													  "WHERE connamespace = %s::regnamespace AND contype = 'f' AND NOT convalidated",
													  literal(copy->from, ident(copy->from, copy->schema)))) &&
			calls_are_trusted(copy->move->options, conn, literal(conn, copy->name)) && fill_copied_views(copy);
	pg_free(schema);
	if (file != NULL)
		fclose(file);
	if (!done)
		return false;

	/* Read after the rows: none of theirs is beyond these. */
	states = query_text(copy->from, COPIED_SEQUENCES_SQL, text_of("%d", copy->move->shards[0]->number));
	if (number >= 0 && !number_copy(copy, number))
		return false;
	if (number < 0)
	{
		run(conn, "BEGIN");
		(void) query_text(conn, SET_SEQUENCES_SQL, literal(conn, ident(conn, copy->name)), literal(conn, states));
		(void) query_text(conn, CLOSE_COPY_SQL, literal(conn, copy->name));
	}
	if (number >= 0)
		run(conn, "DELETE FROM snowid.copies WHERE schema = %s; %s", literal(conn, copy->name), mark_schema(conn, copy->name, copy->name, NULL));
	else
		run(conn, "UPDATE snowid.copies SET kind = 'copy', changed_at = clock_timestamp(), "
			"details = jsonb_build_object('sequences', %s::jsonb, 'sequence', %s::jsonb -> 'sequence') WHERE schema = %s",
			literal(conn, states), literal(conn, copy->facts), literal(conn, copy->name));
	run(conn, "%s; COMMIT", owner);
	return true;
}

int
command_copy(const MoveOptions *options)
{
	int			number = options->number >= 0 ? options->number : options->definitions && options->as == NULL ? options->shards[0] : -1;
	Copy		copy = {0};

	if (options->to_file != NULL)
	{
		MoveOptions to = *options;

		copy.move = make_set(&to);
		return open_source(&copy) && dump_directory(copy.from, options->bindir, copy.schema, options->to_file) ? EXIT_DONE : EXIT_FAILED;
	}
	copy.move = join(options, 0);
	copy.conn = copy.move->target.aux;
	if (!open_source(&copy))
		return failure();
	copy.name = options->as != NULL ? options->as : number == options->shards[0] ? copy.schema :
		number >= 0 ? text_of("insta%d", number) : query_text(copy.conn, "SELECT snowid_internal.clip_name(%s, '_copy')", literal(copy.conn, copy.schema));
	if (!make_copy(&copy, options->definitions, number))
		return failure();
	report_info("shard %d is copied into schema \"%s\" at %s, %s", options->shards[0], copy.name, copy.move->target.home,
				number >= 0 ? text_of("which is shard %d there", number) : "closed");
	return EXIT_DONE;
}

/* -------- giving a schema the shard's place -------- */

typedef struct Swap
{
	const Move *move;
	const char *schema;			/* of the shard */
	const char *name;			/* of what takes its place */
	const char *former;			/* what the shard is called from then on */
	const char *kind;			/* and what that is */
	const char *from;			/* what was brought back; NULL: a former */
}			Swap;

/* All of it but the COMMIT, in the pause; false if a query failed. */
static bool
try_swap(const Swap * swap, int64 start)
{
	const Side *side = &swap->move->target;
	PGconn	   *conn = side->conn;
	int			shard = swap->move->shards[0]->number;
	int64		until = pause_end(swap->move, start);
	char	   *mark = mark_schema(conn, swap->schema, swap->former, mark_of(shard));
	char	   *unmark = mark_schema(conn, swap->name, swap->schema, NULL);
	bool		is_there = query_bool(conn, "SELECT count(*) FROM pg_namespace WHERE nspname = %s", literal(conn, swap->schema));
	PGresult   *states;
	bool		done;

	if ((is_there && !lock_shard(swap->move, side, swap->move->shards[0], false, until)) ||
		!close_locked_shards(swap->move, side, NULL, until) ||
		(states = try_query(conn, JOINED_SEQUENCES_SQL, text_of("%d", shard), literal(conn, swap->name))) == NULL)
		return false;
	done = try_run(conn, "%s", PQgetvalue(states, 0, 1)) &&
		(!is_there || try_run(conn, "ALTER SCHEMA %s RENAME TO %s; %s; INSERT INTO snowid.copies AS c SELECT %s, shard, %s, jsonb_build_object('sequences', "
							  "m.details -> 'sequences', 'sequence', r.sequence, 'from', %s::text) || (SELECT jsonb_strip_nulls(jsonb_build_object('poolers', details -> 'poolers')) FROM snowid.copies WHERE schema = %s) "
							  "FROM snowid.moves m JOIN snowid.shard_registry r USING (shard) WHERE shard = %d "
							  "ON CONFLICT (schema) DO UPDATE SET shard = excluded.shard, kind = excluded.kind, details = excluded.details, changed_at = clock_timestamp()",
							  ident(conn, swap->schema), ident(conn, swap->former), mark, literal(conn, swap->former), literal(conn, swap->kind), literal(conn, swap->from), literal(conn, swap->name), shard)) &&
		try_run(conn, "ALTER SCHEMA %s RENAME TO %s; %s; UPDATE snowid.moves SET details = details || jsonb_build_object('sequences', %s::jsonb) WHERE shard = %d; "
				"UPDATE snowid.shard_registry r SET sequence = coalesce(details ->> 'sequence', sequence) FROM snowid.copies c WHERE r.shard = %d AND c.schema = %s; "
				"DELETE FROM snowid.copies WHERE schema = %s; SELECT snowid_internal.open_shards(ARRAY[%d], NULL)",
				ident(conn, swap->name), ident(conn, swap->schema), unmark, literal(conn, PQgetvalue(states, 0, 0)), shard,
				shard, literal(conn, swap->name), literal(conn, swap->name), shard);
	PQclear(states);

	/* What had to be lost with the shard may have given all that is reserved. */
	if (done && !is_there)
		done = try_run(conn, "SELECT snowid.advance(c.oid, snowid.make_id(greatest(clock_timestamp(), to_timestamp(v.last_value / 1000.0)), shard, 1023, snowid_internal.epoch_of(r)), "
					   "snowid_internal.epoch_of(r)) FROM snowid_internal.reservation v, snowid.shard_registry r JOIN pg_namespace n ON nspname = r.schema JOIN pg_class c ON relnamespace = n.oid "
					   "AND relkind = 'S' WHERE shard = %d AND (relname = r.sequence OR EXISTS (SELECT FROM pg_depend d WHERE d.refobjid = c.oid AND d.refclassid = 'pg_class'::regclass "
					   "AND d.classid = 'pg_attrdef'::regclass AND snowid_internal.makes_ids(d.objid)))", shard);
	return done;
}

static bool
has_swapped(const Swap * swap)
{
	PGconn	   *conn = swap->move->target.conn;

	return query_bool(conn, "SELECT count(*) FROM pg_namespace WHERE nspname = %s", literal(conn, swap->schema)) &&
		!query_bool(conn, "SELECT count(*) FROM snowid.copies WHERE schema = %s", literal(conn, swap->name));
}

/* Its writers wait for one transaction, and that has a limit, as a cut-over. */
static bool
swap_schemas(const Swap * swap)
{
	const Move *move = swap->move;
	const Side *side = &move->target;

	prepare_fence(move, side);
	for (int n = 0;; n++)
	{
		int64		start = now_ms();
		const char *reason = prepare_pools(move, side, side);
		bool		done = false;

		if (reason == NULL)
		{
			begin_pause(move, side);
			start = now_ms();
			reason = !query_bool(side->conn, "SELECT pg_try_advisory_xact_lock(%d, %d)", EACH_CLASS, move->shards[0]->number) ?
				text_of("snowid-each is at work on %s", move->title) : pause_pools(move, side, start + move->options->pause_limit_ms / 2);
		}
		if (reason == NULL && !try_swap(swap, start))
			reason = *PQerrorMessage(side->conn) != '\0' ? text_of("%s", PQerrorMessage(side->conn)) : "a transaction that has taken ids there did not end in time";
		if (reason == NULL)
			reason = check_paused();
		if (reason == NULL)
		{
			keep_paused();
			failure_exit_code = EXIT_INCOMPLETE;
			done = try_run(side->conn, "COMMIT");
			if (!done)
				reason = text_of("%s", PQerrorMessage(side->conn));
		}

		/* An answer that is lost says nothing: look. */
		if (!done && PQstatus(side->conn) != CONNECTION_OK)
		{
			if (!reconnect(side->conn) || !reconnect(side->aux) || !lock_shards(move, side))
				return false;
			done = has_swapped(swap);
		}
		else if (!done && PQtransactionStatus(side->conn) != PQTRANS_IDLE)
			run(side->conn, "ROLLBACK");
		failure_exit_code = EXIT_FAILED;
		(void) resume_pools(move, side);
		if (done)
		{
			report_info("%s: its writers waited %d ms", move->title, (int) (now_ms() - start));
			return true;
		}
		if (n >= move->options->retries)
		{
			report_error("%s", reason);
			report_hint("The shard is as it was. Type the same command again at a quieter time, or with a longer --lock-timeout or --pause-limit.");
			return false;
		}
		report_verbose("%s", reason);
		back_off(n);
	}
}

/* What has the shard been, the newest first; NULL: none. */
static char *
former_of(const Move *move, const char *kinds)
{
	return query_text(move->target.conn, "SELECT schema FROM snowid.copies JOIN pg_namespace ON nspname = schema WHERE shard = %d AND kind IN (%s) ORDER BY changed_at DESC LIMIT 1",
					  move->shards[0]->number, kinds);
}

/* A command for this shard, whole; from may be NULL. */
static char *
command_there(const Move *move, const char *verb, const char *from, const char *to)
{
	MoveOptions options = *move->options;
	Move		there = *move;

	options.from = from;
	options.to = to;
	there.options = &options;
	return whole_command(&there, verb);
}

/* Is that the home of a shard that should be here, whatever it is called? */
static bool
leads_here(const Side *side, const char *home)
{
	PGconn	   *there;
	bool		here = is_home_of(home, side->system, side);

	if (!here && strchr(home, '=') != NULL && (there = connect_briefly(home, PQuser(side->conn))) != NULL)
	{
		here = set_up_session(there) && strcmp(identity_of(there), identity_of(side->conn)) == 0;
		PQfinish(there);
	}
	return here;
}

/* May another state take the shard's place? */
static bool
check_place(const Move *move, const char *schema)
{
	PGconn	   *conn = move->target.conn;
	int			shard = move->shards[0]->number;
	char	   *lives = query_text(conn, "SELECT snowid_internal.lives(r) FROM snowid.shard_registry r WHERE shard = %d", shard);
	char	   *keys = query_text(conn, REFERRERS_SQL, literal(conn, schema));

	if (is_any_known(move, &move->target) || (lives != NULL && strcmp(lives, "here") != 0 && strcmp(lives, "missing") != 0 && !leads_here(&move->target, lives)))
		return refuse(false, "To see that, type there: SELECT * FROM snowid.moves; SELECT * FROM snowid.shards; Give the server where it lives as --to.",
					  "shard %d is not open at %s: it is being moved, closed, or lives elsewhere: %s", shard, move->target.home, lives != NULL ? lives : "");
	if (keys != NULL)
		return refuse(false, "They would go on to lead to the former rows. Drop them, and make them again afterwards.",
					  "foreign keys of other schemas lead into shard %d: %s", shard, keys);
	return true;
}

/* A server that does not know the shard gets it only if none has it: as the registry of all says, or who types. */
static bool
is_lost(const Move *move)
{
	const MoveOptions *options = move->options;
	PGconn	   *registry;
	char	   *home;

	if (move->shards[0]->schema != NULL || options->yes)
		return true;
	registry = options->registry == NULL ? NULL : open_connection("registry", options->registry);
	if (registry != NULL && PQstatus(registry) != CONNECTION_OK)
		fail_with(registry);
	home = registry == NULL ? NULL : query_text(registry, "SELECT home FROM snowid.shard_registry WHERE shard = %d", move->shards[0]->number);
	PQfinish(registry);
	return (home != NULL && leads_here(&move->target, home)) ||
		refuse(false, text_of("If no server has it, type: %s --yes", command_there(move, "restore", options->from, options->to)),
			   "%s does not know shard %d, which may live elsewhere%s%s", move->target.home, move->shards[0]->number, home != NULL ? ": " : "", home != NULL ? home : "");
}

static int
restore_one(const MoveOptions *options, int i)
{
	Move	   *move = join(options, i);
	Copy		copy = {.move = move,.conn = move->target.aux};
	PGconn	   *conn = move->target.conn;
	int			shard = options->shards[i];
	Swap		swap = {.move = move,.kind = "before",.from = without_password("--from", options->from)};
	char	   *former = former_of(move, "'before'");

	if (former != NULL && query_bool(conn, "SELECT count(*) FROM pg_namespace WHERE nspname = %s", literal(conn, move->shards[0]->schema)))
	{
		const char *was = query_text(conn, "SELECT details ->> 'from' FROM snowid.copies WHERE schema = %s", literal(conn, former));

		if (!is_marked(move, former))
			return failure();

		if (was != NULL && strcmp(was, swap.from) != 0)
			return refuse(EXIT_FAILED, text_of("Type before: %s; or: %s", command_there(move, "finish", NULL, move->options->to), command_there(move, "undo", NULL, move->options->to)),
						  "shard %d is brought back already, as it is at: %s", shard, was);
		report_info("shard %d is brought back already; what it was before is schema \"%s\". To drop that, type: %s; to undo it: %s",
					shard, former, command_there(move, "finish", NULL, move->options->to), command_there(move, "undo", NULL, move->options->to));
		return EXIT_DONE;
	}
	if (!open_source(&copy))
		return failure();
	swap.schema = copy.schema;
	if (strcmp(identity_of(copy.from), identity_of(conn)) == 0)
		return refuse(EXIT_FAILED, "Give --from the server that was recovered.", "--from and --to are the same database");
	if (copy.newest > query_int64(conn, "SELECT last_value FROM snowid_internal.reservation"))
		return refuse(EXIT_FAILED, text_of("Type: %s", command_there(move, "restore", options->to, options->from)),
					  "--from and --to are exchanged: the server at --from has made newer ids");
	if (move->shards[0]->schema != NULL && strcmp(move->shards[0]->schema, copy.schema) != 0)
		return refuse(EXIT_FAILED, "Rename one of them.", "shard %d is schema \"%s\" at --to, and \"%s\" at --from", shard, move->shards[0]->schema, copy.schema);
	if (!check_place(move, copy.schema) || !is_lost(move))
		return failure();
	if (options->dry_run)
	{
		static const char *const words[] = {"would come back", "would be lost", "would change"};
		PGconn	   *conns[] = {copy.from, copy.conn};
		const char *schemas[] = {copy.schema, copy.schema};

		run(copy.conn, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
		if (query_bool(copy.conn, "SELECT count(*) FROM pg_namespace WHERE nspname = %s", literal(conn, copy.schema)))
			(void) diff_rows(conns, schemas, words, options);
		report_info("nothing was changed");
		return EXIT_DONE;
	}
	copy.name = query_text(conn, "SELECT snowid_internal.clip_name(%s, '_restoring')", literal(conn, copy.schema));
	former = query_text(conn, "SELECT schema FROM snowid.copies WHERE schema = %s", literal(conn, copy.name));
	if ((former != NULL && !drop_copy(move, former, false)) || !make_copy(&copy, false, -1))
		return failure();
	if (move->shards[0]->schema == NULL)
	{
		run(conn, "INSERT INTO snowid.shard_registry SELECT r.* FROM CAST(%s AS jsonb) f, "
			"jsonb_populate_record(NULL::snowid.shard_registry, '{\"homes\": []}'::jsonb || f || CASE WHEN f ->> 'home' IS NULL THEN '{}' ELSE jsonb_build_object('home', %s::text) END) r",
			literal(conn, copy.facts), literal(conn, move->target.home));
		move->shards[0]->schema = pg_strdup(copy.schema);
		move->shards[0]->pool = query_text(conn, "SELECT coalesce(pool, schema) FROM snowid.shard_registry WHERE shard = %d", shard);
	}
	swap.name = copy.name;
	swap.former = free_schema(conn, copy.schema, query_text(conn, "SELECT to_char(clock_timestamp(), '\"_before_\"YYYYMMDD')"));
	if (!check_place(move, copy.schema) || !swap_schemas(&swap))
		return failure();
	report_info("shard %d is as it was at --from; what it was before is schema \"%s\". To drop that, type: %s; to undo it: %s",
				shard, swap.former, command_there(move, "finish", NULL, move->options->to), command_there(move, "undo", NULL, move->options->to));
	leave(move);
	PQfinish(copy.from);
	return EXIT_DONE;
}

static int
undo_one(const MoveOptions *options, int i)
{
	Move	   *move = join(options, i);
	Swap		swap = {.move = move,.kind = "undone",.schema = move->shards[0]->schema,.name = former_of(move, "'before'")};
	char	   *owner;

	if (swap.schema == NULL || swap.name == NULL)
		return refuse(EXIT_FAILED, "To see what is there, type at that server: SELECT * FROM snowid.copies;", "shard %d has no restore to undo at %s", options->shards[i], move->target.home);
	swap.former = free_schema(move->target.conn, swap.schema, "_undone");
	owner = options->trust_owners ? NULL : query_text(move->target.conn, "SELECT nspowner::regrole FROM pg_namespace n WHERE nspname = %s AND NOT pg_has_role(nspowner, session_user, 'MEMBER') "
													  "AND NOT EXISTS (SELECT FROM pg_namespace o WHERE o.nspname = %s AND o.nspowner = n.nspowner)",
													  literal(move->target.conn, swap.name), literal(move->target.conn, swap.schema));
	if (owner != NULL)
		return refuse(EXIT_FAILED, "If that is right, type the same command with --trust-owners.", "schema \"%s\", which would take the place of shard %d, is %s's", swap.name, options->shards[i], owner);
	if (!is_marked(move, swap.name) || !check_place(move, swap.schema) || !swap_schemas(&swap))
		return failure();
	report_info("shard %d is as it was before the restore; what that had brought is schema \"%s\". To drop that, type: %s",
				options->shards[i], swap.former, command_there(move, "finish", NULL, move->options->to));
	leave(move);
	return EXIT_DONE;
}

/* Does the shard stand where the registry says, also if it has moved on?  Else the former may be the last. */
static bool
has_home(const Move *move)
{
	PGconn	   *conn = move->target.conn;
	int			shard = move->shards[0]->number;
	char	   *lives = query_text(conn, "SELECT snowid_internal.lives(r) FROM snowid.shard_registry r WHERE shard = %d", shard);
	PGconn	   *there;
	PGresult   *res = NULL;
	bool		found = lives != NULL && strcmp(lives, "here") == 0;

	if (!found && lives != NULL && strchr(lives, '=') != NULL && (there = connect_briefly(lives, PQuser(conn))) != NULL)
	{
		res = try_query(there, "SET statement_timeout = %d; SELECT FROM snowid.shard_registry r JOIN pg_catalog.pg_namespace ON nspname = schema "
						"WHERE shard = %d AND snowid_internal.lives(r) = 'here'", LIMIT_MS, shard);
		found = res != NULL && PQntuples(res) > 0;
		PQclear(res);
		PQfinish(there);
	}
	return found || refuse(false, text_of("To put back what it was before, type: %s", command_there(move, "undo", NULL, move->options->to)),
						   "shard %d is not found where the registry says (%s); nothing was dropped", shard, lives != NULL ? lives : "nothing");
}

static int
finish_one(const MoveOptions *options, int i)
{
	Move	   *move = join(options, i);
	PGconn	   *conn = move->target.conn;
	char	   *former = former_of(move, "'before', 'undone'");

	if (former == NULL)
		report_info("%s: nothing to finish at %s", move->title, move->target.home);
	for (; former != NULL; former = options->dry_run ? NULL : former_of(move, "'before', 'undone'"))
	{
		if (!is_marked(move, former) || !has_home(move) || !may_be_lost(move, conn, former))
			return failure();
		if (options->dry_run)
			report_info("schema \"%s\" would be dropped; nothing was changed", former);
		else if (!drop_copy(move, former, true))
			return failure();
	}
	leave(move);
	return EXIT_DONE;
}

static int
for_each_shard(const MoveOptions *options, int (*run_one) (const MoveOptions *options, int i))
{
	int			code = EXIT_DONE;

	for (int i = 0; i < options->nshards; i++)
		code = combine(code, run_one(options, i));
	return code;
}

int
command_restore(const MoveOptions *options)
{
	return for_each_shard(options, restore_one);
}

int
command_undo(const MoveOptions *options)
{
	return for_each_shard(options, undo_one);
}

int
finish_restore(const MoveOptions *options)
{
	return for_each_shard(options, finish_one);
}
