/*
 * How writers are locked out, whichever lock they take first.
 *
 * A writer by DEFAULT locks its table and then the sequence; one that asks
 * for its id first locks the sequence and then the table.  Whoever takes the
 * two locks in either order, and waits, gathers writers of the other kind who
 * hold what he wants and want what he holds.
 *
 * So both are stopped at their first lock.  A second session waits for the
 * sequence, behind a lock that the first session holds and no writer minds: no
 * newcomer gets past who waits, and those who had the sequence before go on
 * to their tables and end.  Then the first session locks the tables.  Who has
 * one of them, and waits for the sequence, waits behind the second session,
 * which waits for the first, which waits for him.  But that circle has a wait
 * that nobody holds a lock for: the server's search for deadlocks lets him
 * pass the queue, and nobody is cancelled (src/backend/storage/lmgr/README,
 * "soft edges").  At last the first session takes the sequence, for which it
 * passes the queue by itself.
 */
#include "stages.h"
#include "sql/queries.inc"

/*
 * Have the second session wait for the sequence; nothing is altered by it.  A
 * session that waits does not notice that we are gone, and newcomers would wait
 * behind it for as long as anybody holds the sequence: so it has a limit, too.
 */
static void
queue_for_sequence(const Move *move, const Side *side, const char *sequence)
{
	begin_limited(move, side->aux, move->options->pause_limit_ms);
	if (!PQsendQuery(side->aux, text_of("ALTER SEQUENCE %s INCREMENT 1", sequence)))
	{
		report_error("%s: %s", side->label, PQerrorMessage(side->aux));
		fail();
	}
}

static void
leave_queue(const Side *side)
{
	char		error[256];
	PGcancel   *cancel = PQgetCancel(side->aux);
	PGresult   *res;
	char		sqlstate[sizeof(last_sqlstate)];

	strlcpy(sqlstate, last_sqlstate, sizeof(sqlstate));
	if (cancel != NULL)
		(void) PQcancel(cancel, error, sizeof(error));
	PQfreeCancel(cancel);
	while ((res = PQgetResult(side->aux)) != NULL)
		PQclear(res);
	if (!try_run(side->aux, "ROLLBACK") && !reconnect(side->aux))
		fail();
	strlcpy(last_sqlstate, sqlstate, sizeof(last_sqlstate));
}

/* Wait until those who had taken ids have ended, and newcomers wait. */
static bool
wait_for_holders(const Move *move, const Side *side, const char *sequence)
{
	int64		until = now_ms() + move->options->lock_timeout_ms;

	do
	{
		PGresult   *res = try_query(side->conn,
									"SELECT bool_or(pid = %d AND NOT granted) AND "
									"NOT bool_or(granted AND mode = 'RowExclusiveLock') "
									"FROM pg_locks WHERE locktype = 'relation' AND relation = %s::regclass "
									"AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
									PQbackendPID(side->aux), literal(side->conn, sequence));
		bool		done;

		if (res == NULL)
			return false;
		done = *PQgetvalue(res, 0, 0) == 't';
		PQclear(res);
		if (done)
			return true;
		wait_ms(1);
	} while (now_ms() < until);
	strlcpy(last_sqlstate, "55P03", sizeof(last_sqlstate));
	return false;
}

/* The next statement may take what is left of the pause, and no longer. */
static bool
limit_statement(PGconn *conn, int64 until)
{
	return try_run(conn, "SET LOCAL statement_timeout = %d", (int) Max(until - now_ms(), 1));
}

/* Lock the sequences; who is still in our way is not awaited as long. */
static bool
lock_sequences(const Move *move, PGconn *conn, const Shard *shard, int64 until)
{
	return try_run(conn, "SET LOCAL lock_timeout = %d", Max(move->options->lock_timeout_ms / 4, 1)) &&
		limit_statement(conn, until) &&
		try_run(conn, "SELECT snowid_internal.lock_relations(ARRAY(SELECT c.oid FROM pg_class c "
				"JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = %s AND relkind = 'S' ORDER BY c.oid))",
				literal(conn, shard->schema)) &&
		try_run(conn, "SET LOCAL lock_timeout = %d", move->options->lock_timeout_ms);
}

/*
 * Close the shards, which are locked, in the transaction that is open on the
 * side's first connection, by the given time.
 */
bool
close_locked_shards(const Move *move, const Side *side, const char *home, int64 until)
{
	return limit_statement(side->conn, until) &&
		try_run(side->conn, "SELECT snowid_internal.close_shards(ARRAY[%s], %s)",
				shard_list(move), literal(side->conn, home));
}

/*
 * Lock the shard's tables and sequences in the transaction that is open on the
 * side's first connection, by the given time.  False if a query failed, as
 * try_run() does.
 */
bool
lock_shard(const Move *move, const Side *side, const Shard *shard, bool again, int64 until)
{
	PGconn	   *conn = side->conn;
	PGresult   *relations = try_query(conn, FIRST_LOCK_SQL, text_of("%d", shard->number), again ? "true" : "false");
	const char *sequence;
	const char *tables;
	bool		done;

	if (relations == NULL)
		return false;
	if (PQntuples(relations) == 0)
	{
		/* All sequences have been dropped, and nobody takes ids. */
		PQclear(relations);
		return true;
	}
	sequence = PQgetvalue(relations, 0, 0);
	tables = PQgetvalue(relations, 0, 2);

	/* COMMENT takes a lock that no writer minds, and the other session does. */
	done = try_run(conn, "COMMENT ON SEQUENCE %s IS %s", sequence, PQgetvalue(relations, 0, 1));
	if (done)
	{
		queue_for_sequence(move, side, sequence);
		done = wait_for_holders(move, side, sequence) &&
			limit_statement(conn, until) &&
			(tables[0] == '\0' || try_run(conn, "LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE", tables)) &&
			lock_sequences(move, conn, shard, until);
		leave_queue(side);
	}
	PQclear(relations);
	return done;
}
