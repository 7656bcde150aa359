/*
 * What is being waited for: whatever takes longer than some seconds is named,
 * with the server, the process, and how long it has been at it.
 */
#include "stages.h"

/* What process b is doing; for a query on pg_stat_activity. */
#define PROCESS_OF_B \
"CASE WHEN b.pid IS NULL THEN 'a prepared transaction' ELSE " \
"concat('process ', b.pid, ' of ', coalesce(b.usename, b.backend_type), " \
"', in a transaction since ', date_trunc('second', b.xact_start), ', now ', coalesce(b.state, 'at work')) END"

/* Tell each row of a query's only column. */
static void
tell_rows(const Side *side, PGresult *res)
{
	for (int i = 0; i < PQntuples(res); i++)
		report_info("%s: %s", side->label, PQgetvalue(res, i, 0));
	PQclear(res);
}

/* Who blocks the workers of a subscription, on the server that it is on; or why there are none. */
void
tell_workers(const Side *to, const char *name)
{
	name = literal(to->conn, name);
	tell_rows(to, query(to->conn,
						"SELECT DISTINCT 'replication waits for ' || " PROCESS_OF_B " FROM pg_stat_subscription s, "
						"unnest(pg_blocking_pids(s.pid)) p (pid) LEFT JOIN pg_stat_activity b ON b.pid = p.pid "
						"WHERE s.subname = %s AND s.pid IS NOT NULL "
						"UNION ALL "
						"SELECT CASE WHEN used >= total THEN "
						" format('no worker is free to follow: %%s of max_logical_replication_workers = %%s are at work', used, total) "
						"ELSE format('no worker has been started to follow: that is done %%s after the last one, or later if the clock was set back since. "
						"If its log has no error, type there: SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = ''logical replication launcher'';', "
						" current_setting('wal_retrieve_retry_interval')) END "
						"FROM (SELECT count(*) FILTER (WHERE backend_type LIKE 'logical replication %%' "
						" AND backend_type <> 'logical replication launcher') AS used, "
						" current_setting('max_logical_replication_workers')::int AS total FROM pg_stat_activity) t "
						"WHERE NOT EXISTS (SELECT FROM pg_stat_subscription WHERE subname = %s AND pid IS NOT NULL)",
						name, name));
}

/*
 * What the server has said last of an error, if it collects its log and we may
 * read it.
 */
void
tell_log_of(const Side *side)
{
	PGresult   *res = try_query(side->aux,
								"SELECT line FROM (SELECT pg_current_logfile('stderr') AS f) l, "
								"regexp_split_to_table(pg_read_file(f, greatest((pg_stat_file(f)).size - 65536, 0), 65536), E'\\n') "
								"WITH ORDINALITY x (line, n) WHERE line ~ '(ERROR|FATAL|PANIC):' ORDER BY n DESC LIMIT 1");

	if (res != NULL && PQntuples(res) > 0)
		report_detail("The last error in its log: %s", PQgetvalue(res, 0, 0));
	else
		report_detail("Its server log says why: a full disk, a connection refused, a row that is there already.");
	PQclear(res);
}

/* Whom a process waits for. */
void
tell_blockers(const Side *side, PGconn *observer, int pid)
{
	tell_rows(side, query(observer,
						  "SELECT DISTINCT 'waiting for ' || " PROCESS_OF_B " FROM unnest(pg_blocking_pids(%d)) p (pid) "
						  "LEFT JOIN pg_stat_activity b ON b.pid = p.pid", pid));
}

/* What sessions on the target have been at for long, in the shards, and whom that waits for. */
void
tell_statements(const Move *move)
{
	tell_rows(&move->target, query(move->target.aux,
								   "SELECT concat('at ', left(regexp_replace(a.query, '\\s+', ' ', 'g'), 100), ', since ', date_trunc('second', a.query_start), "
								   "', waiting for ' || string_agg(" PROCESS_OF_B ", ', ')) FROM pg_stat_activity a "
								   "LEFT JOIN LATERAL unnest(pg_blocking_pids(a.pid)) p (pid) ON true LEFT JOIN pg_stat_activity b ON b.pid = p.pid "
								   "WHERE a.datname = current_database() AND a.state = 'active' AND a.query_start < clock_timestamp() - interval '%d ms' AND EXISTS (SELECT FROM pg_locks l "
								   "JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace WHERE l.pid = a.pid AND l.database = a.datid AND nspname IN (%s)) "
								   "GROUP BY a.pid, a.query, a.query_start", SILENCE_MS, schema_list(move, move->target.aux)));
}

/*
 * Run a statement that may wait for others, and tell for whom: observer is
 * another connection to the same server.  NULL if it fails, as try_query().
 */
PGresult *
try_and_tell(const Side *side, PGconn *conn, PGconn *observer, const char *sql)
{
	int64		told = now_ms() + SILENCE_MS - TELL_MS;
	bool		goes_on = PQsendQuery(conn, sql);
	PGresult   *res;
	PGresult   *last = NULL;

	while (goes_on && PQisBusy(conn))
	{
		int			mark = mark_texts();

		if (now_ms() - told >= TELL_MS)
		{
			tell_blockers(side, observer, PQbackendPID(conn));
			told = now_ms();
		}
		free_texts(mark);
		wait_ms(5);
		goes_on = PQconsumeInput(conn);
	}
	while ((res = PQgetResult(conn)) != NULL)
	{
		PQclear(last);
		last = res;
	}
	if (has_succeeded(last))
		return last;
	PQclear(last);
	return NULL;
}

/* The same, but a failure ends the program. */
void
run_and_tell(const Side *side, PGconn *conn, PGconn *observer, const char *fmt,...)
{
	va_list		args;
	char	   *sql;
	PGresult   *res;

	va_start(args, fmt);
	sql = format_text(fmt, args);
	va_end(args);
	if ((res = try_and_tell(side, conn, observer, sql)) == NULL)
		fail_with(conn);
	PQclear(res);
	free(sql);
}
