/*
 * The ledger of a shard, and running the script in it.
 *
 * The ledger is a table of the shard's own, so that it goes wherever the shard
 * goes: in a move, a dump, a copy.  Its row is written before the script runs, in
 * the same transaction: so a shard that is closed for a move refuses at once.
 */
#include "each.h"

/* Of the two-key advisory locks: "EACH", and the shard. */
#define LOCK_CLASS	0x45414348

/* How far the last standby is behind; -1 if the role may not see it. */
#define LAG \
	"(SELECT CASE WHEN bool_or(state IS NULL) THEN -1 ELSE coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)), 0) END " \
	"FROM pg_stat_replication WHERE pid NOT IN " \
	"(SELECT active_pid FROM pg_replication_slots WHERE slot_type = 'logical' AND active_pid IS NOT NULL))"

/*
 * Why the shard cannot be changed here and now, whether that is for good, its
 * schema, and the role's own search path.
 */
#define LOOK \
	"SELECT CASE WHEN lives IS NULL THEN 'its server does not know it' " \
	"WHEN lives <> 'here' THEN 'its server says where it is: ' || lives " \
	"WHEN EXISTS (SELECT FROM snowid.moves m WHERE m.shard = r.shard AND step NOT IN ('open', 'moved')) OR " \
	"EXISTS (SELECT FROM pg_publication p JOIN pg_publication_rel ON prpubid = p.oid JOIN pg_class c ON c.oid = prrelid " \
	"WHERE pubname ^@ 'snowid_' AND c.relnamespace = to_regnamespace(quote_ident(schema))) " \
	"THEN 'it is under a move, or can be taken back until snowid-move finish' " \
	"WHEN lag < 0 THEN format('to see standbys, type there: GRANT pg_monitor TO %%I;', current_user) " \
	"WHEN lag > %lld THEN 'a standby is too far behind' END, lag < 0, schema, " \
	"(SELECT reset_val FROM pg_settings WHERE name = 'search_path') " \
	"FROM (SELECT %s AS lag) l LEFT JOIN (SELECT *, snowid_internal.lives(r) FROM snowid.shard_registry r) r ON shard = %d"

/*
 * Make the ledger, if it is not there, and lock it.  A row says why it cannot be
 * used: with triggers and the like, its owner could have us run his own code.
 */
PGresult *
open_ledger(PGconn *conn, const char *ledger, const char *mode)
{
	return try_query(conn,
					 "CREATE TABLE IF NOT EXISTS %s (name text PRIMARY KEY, checksum text NOT NULL, script text NOT NULL, "
					 "statements int NOT NULL DEFAULT 0, run_by name NOT NULL DEFAULT session_user, "
					 "started_at timestamptz NOT NULL DEFAULT clock_timestamp(), finished_at timestamptz, error text); "
					 "LOCK TABLE ONLY %s IN %s MODE; SELECT 'its ledger is of another role: ' || relowner::regrole "
					 "FROM pg_class WHERE oid = %s::regclass AND NOT " TRUSTED, ledger, ledger, mode, literal(conn, ledger));
}

/* The row is written anew by each attempt; but statements stays. */
static bool
write_row(PGconn *conn, const char *ledger, const char *error)
{
	return try_run(conn,
				   "INSERT INTO %s (name, checksum, script, error) VALUES (%s, %s, %s, %s) ON CONFLICT (name) DO UPDATE "
				   "SET checksum = excluded.checksum, script = excluded.script, run_by = session_user, "
				   "started_at = clock_timestamp(), error = excluded.error", ledger,
				   literal(conn, options.name), literal(conn, script.checksum), literal(conn, script.text), literal(conn, error));
}

static bool
update_row(PGconn *conn, const char *ledger, const char *set)
{
	return try_run(conn, "UPDATE %s SET %s WHERE name = %s", ledger, set, literal(conn, options.name));
}

/*
 * Run what cannot be in a transaction, from the statement on that the ledger says.
 * Each is recorded after it, so one at which we were killed may have been done.
 */
static bool
run_statements(PGconn *conn, const char *schema, const char *ledger, const char *path, int done)
{
	/* Whoever still builds an index has that lock on its table. */
	bool		ok = try_run(conn,
							 "DO $$ DECLARE i record; BEGIN "
							 "FOR i IN SELECT indexrelid, indrelid FROM pg_index JOIN pg_class c ON c.oid = indexrelid "
							 "WHERE NOT indisvalid AND relkind = 'i' AND relnamespace = quote_ident(%s)::regnamespace LOOP "
							 "EXECUTE format('LOCK TABLE %%s IN SHARE UPDATE EXCLUSIVE MODE', i.indrelid::regclass); "
							 "IF EXISTS (SELECT FROM pg_index WHERE indexrelid = i.indexrelid AND NOT indisvalid) THEN "
							 "EXECUTE format('DROP INDEX %%s', i.indexrelid::regclass); END IF; END LOOP; END $$",
							 literal(conn, schema)) && write_row(conn, ledger, NULL);

	for (; ok && done < script.nstatements; done++)
		ok = try_run(conn, "SELECT set_config('search_path', concat_ws(', ', quote_ident(%s), nullif(%s, '')), false)",
					 literal(conn, schema), literal(conn, path)) &&
			try_run(conn, "%s", script.statements[done]) &&
			try_run(conn, "SET search_path = pg_catalog, pg_temp") &&
			update_row(conn, ledger, text_of("statements = %d", done + 1));
	return ok && update_row(conn, ledger, "finished_at = clock_timestamp()");
}

/* Is nothing in the way?  The first value of a row says what is. */
static bool
is_free(PGresult *res, Task *task)
{
	set_message(task, PQntuples(res) > 0 ? PQgetvalue(res, 0, 0) : "");
	return res != NULL && task->message[0] == '\0';
}

/* FAILED without a message: a query has failed. */
static State
attempt(PGconn *conn, Task *task, char **schema, char **ledger)
{
	bool		whole = script.statements == NULL;
	PGresult   *res = try_query(conn, "SET lock_timeout = %d; SET statement_timeout = %d; %s(%d, %d); " LOOK,
								options.lock_timeout_ms, options.statement_timeout_ms,
								whole ? "BEGIN; SELECT pg_advisory_xact_lock" : "SELECT pg_advisory_lock", LOCK_CLASS, task->shard,
								(long long) Max(options.max_lag, 0), options.max_lag < 0 ? "0" : LAG, task->shard);
	char	   *table;
	char	   *path;
	int			done;

	if (!is_free(res, task))
		return res == NULL || *PQgetvalue(res, 0, 1) == 't' ? FAILED : TODO;
	*schema = keep_text(field(res, 0, 2));
	table = text_of("%s." LEDGER, ident(conn, *schema));
	path = keep_text(field(res, 0, 3));
	PQclear(res);
	res = open_ledger(conn, table, "ROW EXCLUSIVE");
	if (!is_free(res, task))
		return FAILED;
	PQclear(res);
	*ledger = table;
	res = try_query(conn, "SELECT CASE WHEN checksum <> %s AND done <> 0 THEN 'another script was run under this name' END, done "
					"FROM %s, LATERAL (SELECT CASE WHEN finished_at IS NOT NULL THEN -1 ELSE statements END AS done) d WHERE name = %s",
					literal(conn, script.checksum), table, literal(conn, options.name));
	if (!is_free(res, task))
		return FAILED;
	done = PQntuples(res) > 0 ? atoi(PQgetvalue(res, 0, 1)) : 0;
	PQclear(res);
	if (done < 0)
		return HAD;
	if (whole ? write_row(conn, table, NULL) &&
		try_run(conn, "SELECT snowid_internal.run_in_shard(%d, %s, %s, %s, NULL)",
				task->shard, literal(conn, *schema), literal(conn, script.text), literal(conn, path)) &&
		update_row(conn, table, "finished_at = clock_timestamp()") && try_run(conn, "COMMIT")
		: run_statements(conn, *schema, table, path, done))
		return DONE;
	return FAILED;
}

State
migrate(PGconn *conn, Task *task)
{
	char	   *schema = "";
	char	   *ledger = NULL;
	State		state = attempt(conn, task, &schema, &ledger);
	bool		by_query = state == FAILED && task->message[0] == '\0';

	if (by_query)
	{
		const char *message = PQerrorMessage(conn);
		char	   *prefix = text_of("ERROR:  shard %d, schema \"%s\": ", task->shard, schema);

		/* Locked; closed; or out of reach. */
		if (strstr("55P03 40P01 40001 SN001 SN002", last_sqlstate) != NULL || PQstatus(conn) != CONNECTION_OK)
			state = TODO;
		set_message(task, message + (strncmp(message, prefix, strlen(prefix)) == 0 ? strlen(prefix) : 0));
	}
	if (PQtransactionStatus(conn) != PQTRANS_IDLE)
		(void) try_run(conn, "ROLLBACK");
	(void) try_run(conn, "SET search_path = pg_catalog, pg_temp; SELECT pg_advisory_unlock_all()");
	if (by_query && state == FAILED && ledger != NULL)
	{
		PGresult   *res = open_ledger(conn, ledger, "ROW EXCLUSIVE");

		if (res != NULL && PQntuples(res) == 0)
			(void) write_row(conn, ledger, task->message);
		PQclear(res);
	}
	return state;
}
