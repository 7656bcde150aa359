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
tell_rows(const Side *side, const char *what, PGresult *res)
{
	for (int i = 0; i < PQntuples(res); i++)
		report_info("%s: %s %s", side->label, what, PQgetvalue(res, i, 0));
	PQclear(res);
}

/* Who blocks the workers of a subscription, on the server that it is on. */
void
tell_blocked_workers(const Side *to, const char *name)
{
	tell_rows(to, "replication waits for",
			  query(to->conn,
					"SELECT DISTINCT " PROCESS_OF_B " FROM pg_stat_subscription s, "
					"unnest(pg_blocking_pids(s.pid)) p (pid) LEFT JOIN pg_stat_activity b ON b.pid = p.pid "
					"WHERE s.subname = %s AND s.pid IS NOT NULL", literal(to->conn, name)));
}

/*
 * The slot for a table can only be made when all transactions have ended that
 * were writing on that server.
 */
static void
tell_blocked_senders(const Move *move)
{
	const Side *source = &move->source;

	tell_rows(source, "the copy of a table waits for",
			  query(source->conn,
					"SELECT DISTINCT " PROCESS_OF_B " FROM snowid.moves m, pg_stat_activity w, "
					"unnest(pg_blocking_pids(w.pid)) p (pid) LEFT JOIN pg_stat_activity b ON b.pid = p.pid "
					"WHERE m.shard IN (%s) AND w.backend_type = 'walsender' "
					"AND w.application_name LIKE m.details ->> 'table_slots'", shard_list(move)));
}

/* Are there workers for all? */
static void
tell_missing_workers(const Move *move)
{
	const Side *target = &move->target;

	tell_rows(target, "no worker is free for the copy:",
			  query(target->conn,
					"SELECT format('%%s of max_logical_replication_workers = %%s are at work, for %%s subscriptions; "
					"another move may have them', used, total, subscriptions) "
					"FROM (SELECT count(*) FILTER (WHERE backend_type LIKE 'logical replication %%' "
					" AND backend_type <> 'logical replication launcher') AS used, "
					" current_setting('max_logical_replication_workers')::int AS total, "
					" (SELECT count(*) FROM pg_subscription WHERE subenabled) AS subscriptions "
					" FROM pg_stat_activity) t "
					"WHERE used >= total AND NOT EXISTS (SELECT FROM pg_stat_subscription "
					" WHERE subname = %s AND pid IS NOT NULL AND relid IS NOT NULL)",
					literal(target->conn, move->name)));
}

/* Why does the copy not get on? */
void
tell_reason_of_copy(const Move *move)
{
	tell_missing_workers(move);
	tell_blocked_senders(move);
	tell_blocked_workers(&move->target, move->name);
}

/*
 * What the server has said last of an error, if it collects its log and we may
 * read it.
 */
void
tell_log_of_target(const Side *target)
{
	PGresult   *res = try_query(target->aux,
								"SELECT line FROM (SELECT pg_current_logfile('stderr') AS f) l, "
								"regexp_split_to_table(pg_read_file(f, greatest((pg_stat_file(f)).size - 65536, 0), 65536), E'\\n') "
								"WITH ORDINALITY x (line, n) WHERE line ~ '(ERROR|FATAL|PANIC):' ORDER BY n DESC LIMIT 1");

	if (res != NULL && PQntuples(res) > 0)
		report_detail("The last error in its log: %s", PQgetvalue(res, 0, 0));
	else
		report_detail("Its server log says why: a full disk, a connection refused, a row that is there already.");
	PQclear(res);
}

/*
 * Run a statement that may wait for others, and tell for whom: observer is
 * another connection to the same server.
 */
void
run_and_tell(const Side *side, PGconn *conn, PGconn *observer, const char *fmt,...)
{
	va_list		args;
	char	   *sql;
	int64		told = now_ms() + SILENCE_MS - TELL_MS;
	PGresult   *res;
	bool		failed = false;

	va_start(args, fmt);
	sql = format_text(fmt, args);
	va_end(args);
	if (!PQsendQuery(conn, sql))
		failed = true;
	while (!failed && PQisBusy(conn))
	{
		int			mark = mark_texts();

		if (now_ms() - told >= TELL_MS)
		{
			tell_rows(side, "waiting for",
					  query(observer,
							"SELECT DISTINCT " PROCESS_OF_B " FROM unnest(pg_blocking_pids(%d)) p (pid) "
							"LEFT JOIN pg_stat_activity b ON b.pid = p.pid", PQbackendPID(conn)));
			told = now_ms();
		}
		free_texts(mark);
		wait_ms(5);
		failed = !PQconsumeInput(conn);
	}
	while ((res = PQgetResult(conn)) != NULL)
	{
		if (PQresultStatus(res) != PGRES_COMMAND_OK && PQresultStatus(res) != PGRES_TUPLES_OK)
			failed = true;
		PQclear(res);
	}
	if (failed)
	{
		report_error("%s: %s", side->label, PQerrorMessage(conn));
		fail();
	}
	free(sql);
}
