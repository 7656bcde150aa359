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
 * Make the ledger, if it is not there, lock it, and do something in PL/pgSQL.  One that is
 * another role's is refused: with triggers and the like, its owner could have us run his code.
 */
char *
open_ledger(PGconn *conn, const char *ledger, const char *then)
{
	char	   *open = text_of("BEGIN CREATE TABLE IF NOT EXISTS %s (name text PRIMARY KEY, checksum text NOT NULL, script text NOT NULL, "
							   "statements int NOT NULL DEFAULT 0, run_by name NOT NULL DEFAULT session_user, "
							   "started_at timestamptz NOT NULL DEFAULT clock_timestamp(), finished_at timestamptz, error text); "
							   "LOCK TABLE ONLY %s IN SHARE ROW EXCLUSIVE MODE; IF NOT (SELECT " TRUSTED " FROM pg_class WHERE oid = %s::regclass) THEN "
							   "RAISE 'its ledger is of another role: %%', (SELECT relowner::regrole FROM pg_class WHERE oid = %s::regclass); "
							   "END IF; %s END", ledger, ledger, literal(conn, ledger), literal(conn, ledger), then);

	return text_of("DO %s", literal(conn, open));
}

/*
 * Begin an attempt: its row, and how many statements those before have done.  No row:
 * it is done.  Or write an error into it.
 */
static PGresult *
take_row(PGconn *conn, const char *ledger, const char *error)
{
	char	   *name = literal(conn, options.name);
	char	   *text = literal(conn, script.text);
	char	   *take = text_of("INSERT INTO %s AS l (name, checksum, script, error) "
							   "VALUES (%s, encode(sha256(convert_to(%s, 'UTF8')), 'hex'), %s, %s) ON CONFLICT (name) DO UPDATE "
							   "SET checksum = excluded.checksum, script = excluded.script, run_by = session_user, "
							   "started_at = clock_timestamp(), error = excluded.error "
							   "WHERE l.finished_at IS NULL AND (l.statements = 0 OR l.checksum = excluded.checksum); "
							   "IF EXISTS (SELECT FROM %s WHERE name = %s AND script <> %s) THEN "
							   "RAISE 'another script was run under this name'; END IF; ",
							   ledger, name, text, text, literal(conn, error), ledger, name, text);

	return try_query(conn, "%s; SELECT statements FROM %s WHERE name = %s AND finished_at IS NULL",
					 open_ledger(conn, ledger, take), ledger, name);
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
	bool		ok = try_run(conn, "DO %s",
							 literal(conn, text_of("DECLARE i record; BEGIN "
												   "FOR i IN SELECT indexrelid, indrelid FROM pg_index JOIN pg_class c ON c.oid = indexrelid "
												   "WHERE NOT indisvalid AND relkind = 'i' AND relnamespace = quote_ident(%s)::regnamespace LOOP "
												   "EXECUTE format('LOCK TABLE %%s IN SHARE UPDATE EXCLUSIVE MODE', i.indrelid::regclass); "
												   "IF EXISTS (SELECT FROM pg_index WHERE indexrelid = i.indexrelid AND NOT indisvalid) THEN "
												   "EXECUTE format('DROP INDEX %%s', i.indexrelid::regclass); END IF; END LOOP; END",
												   literal(conn, schema))));

	for (; ok && done < script.nstatements; done++)
		ok = try_run(conn, "SELECT set_config('search_path', concat_ws(', ', quote_ident(%s), nullif(%s, '')), false)",
					 literal(conn, schema), literal(conn, path)) &&
			try_run(conn, "%s", script.statements[done]) &&
			try_run(conn, "SET search_path = pg_catalog, pg_temp") &&
			update_row(conn, ledger, text_of("statements = %d", done + 1));
	return ok;
}

/*
 * *ledger is the shard's, when we have it.  Without a message, a query has failed
 * or there was nothing in the way.
 */
static State
attempt(PGconn *conn, Task *task, char **ledger)
{
	bool		whole = script.statements == NULL;
	PGresult   *res = try_query(conn, "SET lock_timeout = %d; SET statement_timeout = %d; %sSELECT pg_advisory_lock(%d, %d); " LOOK,
								options.lock_timeout_ms, options.statement_timeout_ms, whole ? "BEGIN; " : "", LOCK_CLASS, task->shard,
								(long long) Max(options.max_lag, 0), options.max_lag < 0 ? "0" : LAG, task->shard);
	char	   *schema;
	char	   *path;
	bool		ok;

	set_message(task, res != NULL ? PQgetvalue(res, 0, 0) : "");
	if (res == NULL || task->message[0] != '\0')
		return res == NULL || *PQgetvalue(res, 0, 1) == 't' ? FAILED : TODO;
	schema = keep_text(field(res, 0, 2));
	path = keep_text(field(res, 0, 3));
	*ledger = text_of("%s." LEDGER, ident(conn, schema));
	PQclear(res);
	res = take_row(conn, *ledger, NULL);
	if (res != NULL && PQntuples(res) == 0)
		return HAD;
	ok = res != NULL &&
		(whole ? try_run(conn, "SELECT snowid_internal.run_in_shard(%d, %s, %s, %s, NULL)",
						 task->shard, literal(conn, schema), literal(conn, script.text), literal(conn, path))
		 : run_statements(conn, schema, *ledger, path, atoi(PQgetvalue(res, 0, 0)))) &&
		update_row(conn, *ledger, "finished_at = clock_timestamp()") && (!whole || try_run(conn, "COMMIT"));
	PQclear(res);
	return ok ? DONE : FAILED;
}

/* Run the script in a shard.  TODO, with its message: it is to be tried again. */
State
migrate(PGconn *conn, Task *task)
{
	char	   *ledger = NULL;
	State		state = attempt(conn, task, &ledger);

	if (state == FAILED && task->message[0] == '\0')
	{
		set_message(task, PQerrorMessage(conn));

		/* Locked; closed; or out of reach. */
		if (strstr("55P03 40P01 40001 SN001 SN002", last_sqlstate) != NULL || PQstatus(conn) != CONNECTION_OK)
			state = TODO;
	}
	if (PQtransactionStatus(conn) != PQTRANS_IDLE)
		(void) try_run(conn, "ROLLBACK");
	(void) try_run(conn, "SET search_path = pg_catalog, pg_temp; SELECT pg_advisory_unlock_all()");
	if (state == FAILED && ledger != NULL)
		PQclear(take_row(conn, ledger, task->message));
	return state;
}
