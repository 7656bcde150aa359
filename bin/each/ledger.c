/*
 * The ledger of a shard, and running the script in it.
 *
 * The ledger is a table of the shard's own, so that it goes wherever the shard
 * goes: in a move, a dump, a copy.  Its row is written before the script runs, in
 * the same transaction: so a shard that is closed for a move refuses at once.
 *
 * Nobody waits for a lock of ours within a query.  Such a query has a snapshot, for
 * which whoever builds an index with CONCURRENTLY waits, in the end for himself.
 */
#include "each.h"

/* Of the two-key advisory locks: "EACH", and the shard; or this, for builds on a server. */
#define LOCK_CLASS	0x45414348
#define BUILDS		(-1)
#define SERVER		(MAX_SHARD + 1)

#define OTHER_SCRIPT	"another script was run under this name"

/* How often we ask again for a lock that we wait for. */
#define ASK_MS		50

/* How far the last standby is behind; -1 if the role may not see it. */
#define LAG \
	"(SELECT CASE WHEN bool_or(state IS NULL) THEN -1 ELSE coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)), 0) END " \
	"FROM pg_stat_replication WHERE pid NOT IN " \
	"(SELECT active_pid FROM pg_replication_slots WHERE slot_type = 'logical' AND active_pid IS NOT NULL))"

/* One of them, for a condition on pg_locks. */
#define OUR_LOCK \
	"locktype = 'advisory' AND classid = %d AND objid = CAST(%d AS oid) AND objsubid = 2 " \
	"AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"

/* Who holds locks, for a condition on pg_locks: the one whose transaction is the oldest. */
#define HOLDER \
	"(SELECT format('%%s%%s%%s holds %%s', coalesce('process ' || a.pid, 'a prepared transaction'), ' of ' || usename, " \
	"', ' || state || ' for ' || extract(epoch FROM clock_timestamp() - state_change)::int || ' s,', " \
	"mode || coalesce(' on ' || relation::regclass::text, '')) " \
	"FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid) WHERE granted AND pid IS DISTINCT FROM pg_backend_pid() AND %s " \
	"ORDER BY xact_start LIMIT 1)"

/*
 * Why the shard cannot be changed here and now, whether that is for good, its schema,
 * and the role's own path.
 */
#define LOOK \
	"SELECT CASE WHEN NOT got THEN 'another snowid-each is at it: ' || coalesce(%s, '') " \
	"WHEN lives IS NULL THEN 'its server does not know it' " \
	"WHEN lives <> 'here' THEN 'its server says where it is: ' || lives " \
	"WHEN EXISTS (SELECT FROM snowid.moves m WHERE m.shard = r.shard AND step NOT IN ('open', 'moved')) OR " \
	"EXISTS (SELECT FROM pg_publication p JOIN pg_publication_rel ON prpubid = p.oid JOIN pg_class c ON c.oid = prrelid " \
	"WHERE pubname ^@ 'snowid_' AND c.relnamespace = n.oid) " \
	"THEN 'it is under a move, or can be taken back until snowid-move finish' " \
	"WHEN lag < 0 THEN format('to see standbys, type there: GRANT pg_monitor TO %%I;', current_user) " \
	"WHEN lag > %lld THEN 'a standby is too far behind' " \
	"ELSE owner END, lag < 0 OR owner IS NOT NULL, schema, " PATH " " \
	"FROM (SELECT pg_try_advisory_lock(%d, %d) AS got, %s AS lag) l LEFT JOIN (SELECT r.*, n.oid, snowid_internal.lives(r), %s AS owner " \
	"FROM snowid.shard_registry r LEFT JOIN pg_namespace n ON nspname = schema) r ON shard = %d LEFT JOIN pg_namespace n ON n.oid = r.oid"

/* The same of a server, whose ledger is in a schema of its own. */
#define SERVERS_SCHEMA	"snowid_each"
#define LOOK_AT_SERVER \
	"SELECT CASE WHEN NOT got THEN 'another snowid-each is at it: ' || coalesce(%s, '') ELSE owner END, owner IS NOT NULL, '" SERVERS_SCHEMA "', " PATH " " \
	"FROM (SELECT pg_try_advisory_lock(%d, %d) AS got, (SELECT %s FROM coalesce(to_regnamespace('" SERVERS_SCHEMA "'), 0) n (oid)) AS owner) l"

/* The same of a schema of the path, which a script might take something from.  A lesser role trusts its groups. */
#define UNTRUSTED_PATH \
	"(SELECT concat('schema ', n.oid::regnamespace, ' of the search path is of another role: ', whose) FROM pg_namespace n, LATERAL (SELECT " \
	UNTRUSTED_BUT(" AND (owner = 0 OR NOT pg_has_role(session_user, owner, 'MEMBER') OR EXISTS (SELECT FROM pg_roles WHERE rolname = session_user AND rolsuper))") \
	") x (whose) WHERE nspname = ANY (%s) AND nspname NOT IN ('snowid', 'snowid_internal') AND whose IS NOT NULL LIMIT 1)"

/* The shard in which an attempt is made. */
typedef struct Place
{
	Task	   *task;
	char	   *schema;
	char	   *path;			/* the role's own */
	char	   *ledger;			/* NULL: not looked at yet */
} Place;

/*
 * The schemas of the role's own search path that are there, as a literal.  One that is made
 * later has not been looked at.
 */
char *
schemas_of_path(PGconn *conn)
{
	PGresult   *res = try_query(conn, "SELECT set_config('search_path', reset_val, false) FROM pg_settings WHERE name = 'search_path'; "
								"SELECT pg_catalog.current_schemas(false), pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)");
	char	   *schemas = res != NULL ? text_of("%s::name[]", literal(conn, PQgetvalue(res, 0, 0))) : NULL;

	PQclear(res);
	return schemas;
}

/* Whose code a script could run, as an expression: of the schema n, if it is called something, and of the path, if there is one. */
const char *
untrusted(const char *what, const char *schemas)
{
	if (options.trust_owners)
		return "NULL::text";
	return text_of("coalesce(%s, %s) || '; connect as that role, or say --trust-owners'",
				   what != NULL ? text_of("'%s is of another role: ' || " UNTRUSTED, what) : "NULL",
				   schemas != NULL ? text_of(UNTRUSTED_PATH, schemas) : "NULL");
}

/* Take the lock against others of us, if nobody has it. */
bool
lock_shard(PGconn *conn, int shard)
{
	return query_bool(conn, "SELECT pg_try_advisory_lock(%d, %d)", LOCK_CLASS, shard);
}

/* Who has that lock; or "". */
char *
holder_of_shard(PGconn *conn, int shard)
{
	return query_text(conn, "SELECT coalesce(%s, '')",
					  text_of(HOLDER, text_of(OUR_LOCK, LOCK_CLASS, shard)));
}

/*
 * Make the ledger, if it is not there, lock it, and do something in PL/pgSQL.  One that is
 * another role's is refused: with triggers and the like, its owner could have us run his code.
 */
static char *
open_ledger(PGconn *conn, const char *ledger, const char *then)
{
	char	   *open = text_of("BEGIN %sCREATE TABLE IF NOT EXISTS %s (name text PRIMARY KEY, checksum text NOT NULL, script text NOT NULL, "
							   "statements int NOT NULL DEFAULT 0, run_by name NOT NULL DEFAULT session_user, "
							   "started_at timestamptz NOT NULL DEFAULT clock_timestamp(), finished_at timestamptz, error text); "
							   "LOCK TABLE ONLY %s IN SHARE ROW EXCLUSIVE MODE; IF NOT (SELECT " TRUSTED " OR %s FROM pg_class WHERE oid = %s::regclass) THEN "
							   "RAISE 'its ledger and its schema are of %%; connect as that role, or say --trust-owners', "
							   "(SELECT concat_ws(' and ', relowner::regrole, nullif(nspowner, relowner)::regrole) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE c.oid = %s::regclass); "
							   "END IF; %s END", options.each_server ? "CREATE SCHEMA IF NOT EXISTS " SERVERS_SCHEMA "; " : "", ledger, ledger, options.trust_owners ? "true" : "false",
							   literal(conn, ledger), literal(conn, ledger), then);

	return text_of("DO %s", literal(conn, open));
}

/*
 * Begin an attempt: its row, and how many statements those before have done.  No row:
 * it is done.  Or write an error into it.
 */
static PGresult *
take_row(PGconn *conn, const char *begin, const char *ledger, const char *error, bool corrected)
{
	char	   *name = literal(conn, options.name);
	char	   *text = literal(conn, script.text);
	char	   *take = text_of("INSERT INTO %s AS l (name, checksum, script, error) "
							   "VALUES (%s, encode(sha256(convert_to(%s, 'UTF8')), 'hex'), %s, %s) ON CONFLICT (name) DO UPDATE "
							   "SET checksum = excluded.checksum, script = excluded.script, run_by = session_user, "
							   "started_at = clock_timestamp(), error = excluded.error "
							   "WHERE l.finished_at IS NULL AND (l.statements = 0 OR l.checksum = excluded.checksum OR %s); "
							   "IF EXISTS (SELECT FROM %s WHERE name = %s AND script <> %s) THEN "
							   "RAISE '" OTHER_SCRIPT "'; END IF; ",
							   ledger, name, text, text, literal(conn, error), corrected ? "true" : "false", ledger, name, text);

	return try_query(conn, "%s%s; SELECT statements FROM %s WHERE name = %s AND finished_at IS NULL",
					 begin, open_ledger(conn, ledger, take), ledger, name);
}

/* Of the row that take_row() has made: another ledger may be in its place. */
static char *
update_of(PGconn *conn, const char *ledger, const char *set)
{
	return text_of("DO %s", literal(conn, text_of("BEGIN UPDATE %s SET %s WHERE name = %s; IF NOT FOUND THEN "
												  "RAISE 'its ledger has lost the row of this script'; END IF; END", ledger, set, literal(conn, options.name))));
}

/* What the ledger has, if we may believe it: the script, the statements that are done, and whether it is finished. */
static PGresult *
read_row(PGconn *conn, const char *ledger)
{
	if (!query_bool(conn, "SELECT " TRUSTED " OR %s FROM pg_class WHERE oid = to_regclass(%s)", options.trust_owners ? "true" : "false", literal(conn, ledger)))
		return query(conn, "SELECT WHERE false");
	return query(conn, "SELECT script, statements, finished_at IS NOT NULL FROM %s WHERE name = %s", ledger, literal(conn, options.name));
}

/* Is what was done of another script the beginning of ours, too? */
static bool
is_corrected(PGresult *row)
{
	int			done = PQntuples(row) > 0 ? atoi(PQgetvalue(row, 0, 1)) : 0;
	Script		old;

	if (done == 0 || *PQgetvalue(row, 0, 2) == 't' || script.whole || done > script.nstatements)
		return false;
	old = split_script(field(row, 0, 0));
	for (int i = 0; i < done; i++)
		if (old.whole || i >= old.nstatements || strcmp(old.statements[i], script.statements[i]) != 0)
			return false;
	return true;
}

/* Of a query that has failed: why, and which statement of the script it was, if it was one. */
static State
failed(PGconn *conn, Place *place, int statement)
{
	const char *message = last_message != NULL && last_message[0] != '\0' ? last_message : PQerrorMessage(conn);
	const char *named = strncmp(message, "shard ", 6) == 0 ? strstr(message, "\": ") : NULL;
	bool		transient = strstr("55P03 40P01 40001 SN001 SN002", last_sqlstate) != NULL;
	bool		locked = strcmp(last_sqlstate, "55P03") == 0;
	char	   *where = statement >= 0 ? text_of("statement %d, line %d: ", statement + 1, line_of_error(statement, last_position)) : "";
	char	   *why = text_of("%s%s", where, named != NULL ? named + 3 : message);

	set_message(place->task, "%s", why);
	if (PQstatus(conn) != CONNECTION_OK)
		return TODO;
	if (PQtransactionStatus(conn) != PQTRANS_IDLE)
		(void) try_run(conn, "ROLLBACK");
	if (locked)
	{
		char	   *holder = query_text(conn, "SELECT " HOLDER,
										text_of("relation IN (SELECT objid FROM pg_depend WHERE classid = 'pg_class'::regclass "
												"AND refclassid = 'pg_namespace'::regclass AND refobjid = quote_ident(%s)::regnamespace)",
												literal(conn, place->schema)));

		set_message(place->task, "%s%s%s", why, holder != NULL ? "; " : "", holder != NULL ? holder : "");
	}
	return transient ? TODO : FAILED;
}

#define TRY(what, statement) \
	do { \
		if (!(what)) \
			return failed(conn, place, statement); \
	} while (0)

/* Let the next statement take no longer than what is left of the script's time; or, without a start, as long as it likes. */
static bool
limit_time(PGconn *conn, int64 start)
{
	int64		left = start > 0 ? Max(options.statement_timeout_ms - (now_ms() - start), 1) : 0;

	return options.statement_timeout_ms == 0 || try_run(conn, "SET statement_timeout = %d", (int) left);
}

/* Run all of it in the transaction that we are in. */
static State
run_whole(PGconn *conn, Place *place)
{
	int64		start = now_ms();
	const char *schema = options.each_server ? NULL : place->schema;
	char	   *check = schema == NULL ? "SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED" :
	text_of("SELECT snowid_internal.run_in_shard(%d, %s, '', '', NULL)", place->task->shard, literal(conn, schema));

	TRY(try_run(conn, "%s; SELECT set_config('search_path', concat_ws(', ', quote_ident(%s), nullif(%s, '')), true)",
				check, literal(conn, schema), literal(conn, place->path)), -1);
	for (int i = 0; i < script.nstatements; i++)
		TRY(limit_time(conn, start) && try_run(conn, "%s", script.statements[i]), i);
	TRY(limit_time(conn, 0) && try_run(conn, "RESET SESSION AUTHORIZATION; RESET ROLE; SET LOCAL search_path = pg_catalog, pg_temp; %s; %s; COMMIT",
									   check, update_of(conn, place->ledger, "finished_at = clock_timestamp()")), -1);
	return DONE;
}

/* Wait until nobody builds an index on this server for whose snapshot this one would wait, or that waits for ours. */
static void
await_builds(PGconn *conn, Task *task, const char *shared)
{
	char	   *holder = text_of(HOLDER, text_of(OUR_LOCK, LOCK_CLASS, BUILDS));

	while (goes_on() && !query_bool(conn, "SELECT pg_try_advisory_lock%s(%d, %d)", shared, LOCK_CLASS, BUILDS))
	{
		set_message(task, "%s", query_text(conn, "SELECT coalesce(%s, '')", holder));
		wait_ms(ASK_MS);
	}
}

/* Of a statement that may wait as long as it likes: how far it is, and for whom it waits, as another session sees it. */
static Task *watched;

static void
tell_wait(PGconn *conn)
{
	static PGconn *watcher = NULL;
	int			pid = PQbackendPID(conn);
	PGresult   *res;

	while_waiting = NULL;
	if (PQstatus(watcher) != CONNECTION_OK)
	{
		PQfinish(watcher);
		watcher = connect_server(watched->server);
	}
	if (PQstatus(watcher) == CONNECTION_OK &&
		(res = try_query(watcher, "SELECT concat_ws(': ', (SELECT phase FROM pg_stat_progress_create_index WHERE pid = %d), %s)", pid,
						 text_of(HOLDER, text_of("coalesce(l.pid, 0) = ANY (pg_blocking_pids(%d))", pid)))) != NULL)
	{
		set_message(watched, "%s", PQgetvalue(res, 0, 0));
		PQclear(res);
	}
	while_waiting = tell_wait;
}

/*
 * Run what cannot be in a transaction, from the statement on that the ledger says.
 * Each is recorded after it, so one at which we were killed may have been done.
 */
static State
run_statements(PGconn *conn, Place *place, int done)
{
	char	   *schema = literal(conn, place->schema);
	int64		start = now_ms();

	/* Whoever still builds an index has that lock on its table. */
	TRY(try_run(conn, "DO %s",
				literal(conn, text_of("DECLARE i record; BEGIN "
									  "FOR i IN SELECT indexrelid, indrelid FROM pg_index JOIN pg_class c ON c.oid = indexrelid "
									  "WHERE NOT indisvalid AND relkind = 'i' AND relnamespace = to_regnamespace(quote_ident(%s)) LOOP "
									  "EXECUTE format('LOCK TABLE %%s IN SHARE UPDATE EXCLUSIVE MODE', i.indrelid::regclass); "
									  "IF EXISTS (SELECT FROM pg_index WHERE indexrelid = i.indexrelid AND NOT indisvalid) THEN "
									  "EXECUTE format('DROP INDEX %%s', i.indexrelid::regclass); END IF; END LOOP; END",
									  schema))), -1);
	for (; done < script.nstatements; done++)
	{
		const char *statement = script.statements[done];
		int			build = build_of(statement);
		const char *shared = build == 1 ? "_shared" : "";
		bool		fine;

		if (build > 0)
			await_builds(conn, place->task, shared);
		TRY(try_run(conn, "SET lock_timeout = %d; SELECT set_config('search_path', concat_ws(', ', quote_ident(%s), nullif(%s, '')), false)",
					blocks_nobody(statement) ? 0 : options.lock_timeout_ms, options.each_server ? "NULL" : schema, literal(conn, place->path)), -1);
		set_message(place->task, "%s", "");
		TRY(limit_time(conn, start), done);
		watched = place->task;
		while_waiting = blocks_nobody(statement) ? tell_wait : NULL;
		fine = try_run(conn, "%s", statement);
		while_waiting = NULL;
		TRY(fine, done);
		TRY(limit_time(conn, 0) && try_run(conn, "SET search_path = pg_catalog, pg_temp; %s; %s", update_of(conn, place->ledger, text_of("statements = %d", done + 1)),
										   build > 0 ? text_of("SELECT pg_advisory_unlock%s(%d, %d)", shared, LOCK_CLASS, BUILDS) : ""), -1);
	}
	TRY(try_run(conn, "%s", update_of(conn, place->ledger, "finished_at = clock_timestamp()")), -1);
	return DONE;
}

/* Look at the shard, and take the lock against others of us.  DONE: it can be changed here and now. */
static State
look(PGconn *conn, Place *place)
{
	/*
	 * Where nobody else could put something, a session need not look again
	 * for a while: only who is trusted could let him.
	 */
	static char *looked_at = NULL;
	static int64 looked_until = 0;
	Task	   *task = place->task;
	int			key = options.each_server ? SERVER : task->shard;
	char	   *holder = text_of(HOLDER, text_of(OUR_LOCK, LOCK_CLASS, key));
	char	   *schemas = schemas_of_path(conn);
	char	   *path = text_of("%d %s %s", PQbackendPID(conn), label_of(conn), schemas != NULL ? schemas : "");
	char	   *to_look = looked_at == NULL || strcmp(path, looked_at) != 0 || now_ms() > looked_until ? schemas : NULL;
	PGresult   *res = schemas == NULL ? NULL :
	options.each_server ? try_query(conn, "SET lock_timeout = %d; " LOOK_AT_SERVER, options.lock_timeout_ms, holder, schemas, LOCK_CLASS, key,
									untrusted("schema " SERVERS_SCHEMA, to_look)) :
	try_query(conn, "SET lock_timeout = %d; " LOOK, options.lock_timeout_ms, holder,
			  (long long) Max(options.max_lag, 0), schemas, LOCK_CLASS, task->shard,
			  options.max_lag < 0 ? "0" : LAG, untrusted("what is in it", to_look), task->shard);
	State		state = DONE;

	if (res == NULL)
		return failed(conn, place, -1);
	set_message(task, "%s", PQgetvalue(res, 0, 0));
	if (task->message[0] != '\0')
		state = *PQgetvalue(res, 0, 1) == 't' ? FAILED : TODO;
	else if (to_look != NULL)
	{
		pg_free(looked_at);
		looked_at = format_of("%s", path);
		looked_until = now_ms() + 5000;
	}
	place->schema = keep_text(field(res, 0, 2));
	place->path = keep_text(field(res, 0, 3));
	PQclear(res);
	return state;
}

/* What would be done. */
static State
foretell(Place *place, PGresult *row, bool corrected)
{
	bool		has = PQntuples(row) > 0;
	int			done = has ? atoi(PQgetvalue(row, 0, 1)) : 0;
	bool		finished = has && *PQgetvalue(row, 0, 2) == 't';
	bool		same = has && strcmp(PQgetvalue(row, 0, 0), script.text) == 0;

	set_message(place->task, "from statement %d on", done + 1);
	if ((finished || done > 0) && !same && !corrected)
	{
		set_message(place->task, OTHER_SCRIPT);
		return FAILED;
	}
	return finished ? HAD : DONE;
}

static State
attempt(PGconn *conn, Place *place)
{
	State		state = look(conn, place);
	bool		corrected = false;
	PGresult   *row;
	int			done;

	if (state != DONE)
		return state;
	place->ledger = text_of("%s." LEDGER, ident(conn, place->schema));
	if (!script.whole || options.dry_run)
	{
		row = read_row(conn, place->ledger);
		corrected = is_corrected(row);
		state = options.dry_run ? foretell(place, row, corrected) : DONE;
		PQclear(row);
		if (options.dry_run)
			return state;
	}
	row = take_row(conn, script.whole ? "BEGIN; " : "", place->ledger, NULL, corrected);
	TRY(row != NULL, -1);
	done = PQntuples(row) > 0 ? atoi(PQgetvalue(row, 0, 0)) : -1;
	PQclear(row);
	if (done < 0)
		return HAD;
	if (script.runs)
	{
		state = run_program(conn, place->task, place->schema, place->path);
		TRY(state != DONE || try_run(conn, "%s", update_of(conn, place->ledger, "finished_at = clock_timestamp()")), -1);
		return state;
	}
	return script.whole ? run_whole(conn, place) : run_statements(conn, place, done);
}

/* Run the script in a shard.  TODO, with its message: it is to be tried again. */
State
migrate(PGconn *conn, Task *task)
{
	Place		place = {.task = task};
	State		state = attempt(conn, &place);

	if (PQtransactionStatus(conn) != PQTRANS_IDLE)
		(void) try_run(conn, "ROLLBACK");
	if (state == FAILED && place.ledger != NULL)
	{
		(void) try_run(conn, "RESET SESSION AUTHORIZATION; RESET ROLE; SET search_path = pg_catalog, pg_temp; SET lock_timeout = %d", options.lock_timeout_ms);
		PQclear(take_row(conn, "", place.ledger, task->message, false));
	}
	return state;
}

/* Let the ledger of a shard know nothing of a name. */
State
forget(PGconn *conn, Task *task)
{
	Place		where = {.task = task};
	Place	   *place = &where;
	State		state = look(conn, place);
	PGresult   *row;

	if (state != DONE)
		return state;
	place->ledger = text_of("%s." LEDGER, ident(conn, place->schema));
	row = read_row(conn, place->ledger);
	state = PQntuples(row) > 0 ? DONE : HAD;
	PQclear(row);
	TRY(state == HAD || try_run(conn, "DELETE FROM %s WHERE name = %s", place->ledger, literal(conn, options.name)), -1);
	return state;
}
