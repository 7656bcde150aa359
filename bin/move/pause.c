/*
 * Pauses: transactions that hold writers up, bounded by the server itself, and
 * what becomes of them when a session is lost.
 */
#include "stages.h"

/*
 * Begin a transaction that holds writers up, or has them queue.  The server
 * itself ends it after the limit, should we be gone.
 */
void
begin_limited(const Move *move, PGconn *conn, int lock_timeout_ms)
{
	int			limit = move->options->pause_limit_ms;

	run(conn, "BEGIN; SET LOCAL lock_timeout = %d; SET LOCAL statement_timeout = %d; "
		"SET LOCAL idle_in_transaction_session_timeout = %d", lock_timeout_ms, limit, limit);
}

/* The same for all that is done while writers wait. */
void
begin_pause(const Move *move, const Side *side)
{
	const MoveOptions *options = move->options;
	PGconn	   *conn = side->conn;

	begin_limited(move, conn, options->lock_timeout_ms);
	if (has_transaction_timeout(side))
		run(conn, "SET LOCAL transaction_timeout = %d", options->pause_limit_ms);

	/* An autovacuum in our way is cancelled when deadlocks are looked for. */
	run(conn, "SELECT set_config('deadlock_timeout', '%d', true) "
		"WHERE has_parameter_privilege('deadlock_timeout', 'SET')",
		Max(options->lock_timeout_ms / 10, 1));
}

/*
 * When to give a pause up that began at start: well before the limit, at which
 * the server would end not only the transaction but the session.
 */
int64
pause_end(const Move *move, int64 start)
{
	return start + (int64) move->options->pause_limit_ms * 9 / 10;
}

/* Somebody has changed the journal, though we had the lock when we could. */
void
tell_other_program(const Move *move)
{
	report_error("another snowid-move has been at work on %s", move->title);
	report_hint("To see the state of the move, type: snowid-move status");
}

/*
 * Connect again after the server has ended our session.  The lock against
 * other programs has gone with it; that we have it again says that the old
 * session is no more, and so what the journal says stays.  Returns false after
 * saying why it cannot go on.
 */
bool
resume_session(const Move *move, const Side *side)
{
	const char *move_id = set_journal(move, side)->move_id;

	if (PQstatus(side->conn) == CONNECTION_OK)
	{
		report_error("%s: %s", side->label, PQerrorMessage(side->conn));
		return false;
	}
	if (!reconnect(side->conn) || (!try_run(side->aux, "SELECT") && !reconnect(side->aux)))
		return false;

	/* A standby's locks say nothing, and its journal may be an old one. */
	if (query_bool(side->conn, "SELECT pg_is_in_recovery()"))
	{
		report_error("the %s is a standby now", side->label);
		return false;
	}
	if (strcmp(timeline_of(side->conn), side->timeline) != 0)
		return refuse(false, "Type the same command again.", "the %s has failed over", side->label);
	if (!lock_shards(move, side))
		return false;
	read_journal(move, side);
	if (!is_known(move, side) || strcmp(set_journal(move, side)->move_id, move_id) != 0)
	{
		tell_other_program(move);
		return false;
	}
	report_verbose("%s: connected again", side->label);
	return true;
}

/*
 * Undo what a pause has done on a server, if it has begun there.  If the server
 * has ended our session, because we were too slow, nothing is left to undo, but
 * others may have been at work since.  Returns false after saying why it
 * cannot go on.
 */
bool
end_pause(const Move *move, const Side *side)
{
	Step		step = set_journal(move, side)->at.step;

	if (PQtransactionStatus(side->conn) == PQTRANS_IDLE ||
		try_run(side->conn, "ROLLBACK"))
		return true;
	if (!resume_session(move, side))
		return false;
	if (is_at(move, side, step))
		return true;
	tell_other_program(move);
	return false;
}

/* Let those go on who have waited for us, before the next attempt. */
void
back_off(int attempt)
{
	wait_ms(Min(100 * (attempt + 1), 1000));
}
