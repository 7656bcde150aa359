/*
 * The cut-over, in either direction.
 *
 * The decision is one COMMIT on the server that the shard leaves.  Before it,
 * everything is prepared so that nothing can fail any more, and all of it is
 * rolled back if a limit is reached: the writers, who have only waited for
 * locks, go on as if nothing had been.  After it that server refuses writes,
 * and then, not before, the other one's transaction that opens the shard is
 * committed.  So at no instant do both accept writes.
 *
 * If this program dies in between, both refuse, and the same command goes on
 * from the journals.
 */
#include "postgres_fe.h"

#include "snowid-move.h"

/*
 * Begin a transaction that holds writers up.  The server itself ends it after
 * the limit, should we be gone.
 */
void
begin_bounded(const Move *move, const Side *side)
{
	const MoveOptions *options = move->options;
	PGconn	   *conn = side->conn;
	const char *is_superuser = PQparameterStatus(conn, "is_superuser");

	run(conn, "BEGIN");
	run(conn, "SET LOCAL lock_timeout = %d", options->lock_timeout_ms);
	run(conn, "SET LOCAL statement_timeout = %d", options->pause_limit_ms);
	run(conn, "SET LOCAL idle_in_transaction_session_timeout = %d", options->pause_limit_ms);
	if (side->version >= 170000)
		run(conn, "SET LOCAL transaction_timeout = %d", options->pause_limit_ms);

	/* An autovacuum in our way is cancelled when deadlocks are looked for. */
	if (is_superuser != NULL && strcmp(is_superuser, "on") == 0)
		run(conn, "SET LOCAL deadlock_timeout = %d", Max(options->lock_timeout_ms / 10, 1));
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

/*
 * Have the log flushed up to now, since only that is sent: by a commit that
 * writes something.  It waits for synchronous standbys, too, which may not have
 * a commit whose session has ended.
 */
void
flush_log(const Side *side)
{
	run(side->aux, "SELECT pg_logical_emit_message(true, 'snowid', '')");
}

/* Let those go on who have waited for us, before the next attempt. */
void
back_off(int attempt)
{
	wait_ms(Min(100 * (attempt + 1), 1000));
}

/* Put the sequences' states into the journal; unfence_shard sets them. */
static void
carry_sequences(const Move *move, const Side *to, const char *states)
{
	run(to->conn,
		"UPDATE snowid.moves SET details = jsonb_set(details, '{sequences}', ("
		"SELECT coalesce(jsonb_object_agg(h.key, h.value || jsonb_build_object("
		"'last', s.state -> h.key -> 'last', 'called', s.state -> h.key -> 'called')), '{}') "
		"FROM jsonb_each(details -> 'sequences') h)) "
		"FROM (SELECT %s::jsonb) s (state) WHERE shard = %d",
		literal(to->conn, states), move->options->shard);
	if (!query_bool(to->conn,
					"SELECT NOT EXISTS (SELECT FROM jsonb_each(%s::jsonb) e "
					"FULL JOIN jsonb_each(details -> 'sequences') h USING (key) "
					"WHERE e.key IS NULL OR h.key IS NULL OR jsonb_typeof(h.value -> 'last') = 'null') "
					"FROM snowid.moves WHERE shard = %d",
					literal(to->conn, states), move->options->shard))
	{
		report_error("the two servers do not have the same sequences in the shard");
		report_hint("Type snowid-move abort, and begin anew.");
		fail();
	}
}

/*
 * What has to be known of a closed shard: is somebody creating something in
 * it, how far have its sequences come, and what are its definitions?  A table
 * that is being created has no fence, and no copy.  Who no longer holds the
 * schema's lock is seen by the query that follows, not by one before.
 *
 * The server ends the transaction in so many milliseconds, should we be gone.
 * False if it did not answer in time.
 */
static bool
look_at_closed(const Move *move, const Side *from, int64 left_ms, bool *extended,
			   char **states, char **print)
{
	PGconn	   *conn = from->conn;
	PGresult   *res;

	if (!try_run(conn, "SET LOCAL idle_in_transaction_session_timeout = %d",
				 (int) Max(left_ms, 1)))
		return false;

	res = try_query(conn, "SELECT %s", being_extended_sql(conn, move->schema));
	if (res == NULL)
		return false;
	*extended = PQgetvalue(res, 0, 0)[0] == 't';
	PQclear(res);

	res = try_query(conn, "SELECT (SELECT details -> 'sequences' FROM snowid.moves WHERE shard = %d), (%s)",
					move->options->shard, fingerprint_sql(conn, move->schema));
	if (res == NULL)
		return false;
	*states = pg_strdup(PQgetvalue(res, 0, 0));
	*print = pg_strdup(PQgetvalue(res, 0, 1));
	PQclear(res);
	return true;
}

/* Open the shard, in the transaction that is open there. */
static bool
open_shard(const Move *move, Side *to)
{
	return try_run(to->conn,
				   "UPDATE snowid.moves SET role = 'target', step = 'open', "
				   "changed_at = clock_timestamp(), details = details || "
				   "jsonb_build_object('reverse_lsn', pg_current_wal_insert_lsn()) "
				   "WHERE shard = %d AND step = 'ready' AND details ->> 'move_id' = %s",
				   move->options->shard, literal(to->conn, to->journal.move_id)) &&
		try_run(to->conn, "SELECT snowid.unfence_shard(%d, %s)",
				move->options->shard, literal(to->conn, to->home));
}

/* Is it worth trying again: a lock, a timeout, a deadlock, a lost session? */
static bool
is_passing(const Side *side)
{
	return PQstatus(side->conn) != CONNECTION_OK ||
		strcmp(last_sqlstate, "55P03") == 0 ||
		strcmp(last_sqlstate, "57014") == 0 ||
		strcmp(last_sqlstate, "40P01") == 0;
}

static void
complain(const Side *side)
{
	report_error("%s: %s", side->label, PQerrorMessage(side->conn));
	fail();
}

static void
not_alone(const Move *move)
{
	report_error("another snowid-move has been at work on shard %d", move->options->shard);
	report_hint("To see how things stand, type: snowid-move status");
	fail();
}

/*
 * Connect again after the server has ended our session.  The lock against
 * other programs has gone with it; that we have it again says that the old
 * session is no more, and so what the journal says stays.
 */
static void
resume_session(const Move *move, Side *side)
{
	const char *move_id = side->journal.move_id;

	if (PQstatus(side->conn) == CONNECTION_OK)
		complain(side);
	reconnect(side->conn);
	if (!try_run(side->aux, "SELECT"))
		reconnect(side->aux);

	/* A standby's locks say nothing, and its journal may be an old one. */
	if (query_bool(side->conn, "SELECT pg_is_in_recovery()"))
	{
		report_error("the %s is a standby now", side->label);
		fail();
	}
	if (!lock_shard(side, move->options->shard))
		fail();
	read_journal(move, side);
	if (!side->journal.exists || strcmp(side->journal.move_id, move_id) != 0)
		not_alone(move);
	report_verbose("%s: connected again", side->label);
}

/*
 * Undo an attempt on a server.  If it has ended our session, because we were
 * too slow, nothing is left to undo, but others may have been at work since.
 */
void
roll_back(const Move *move, Side *side)
{
	const char *step = side->journal.step;

	if (try_run(side->conn, "ROLLBACK"))
		return;
	resume_session(move, side);
	if (!is_at(side, step))
		not_alone(move);
}

/* Has the decision been made, though its COMMIT has not come back? */
static bool
is_decided(const Move *move, Side *from)
{
	const char *step = from->journal.step;

	if (PQstatus(from->conn) == CONNECTION_OK)
		failure_exit_code = EXIT_FAILED;
	resume_session(move, from);
	if (is_at(from, "fenced"))
	{
		flush_log(from);
		return true;
	}
	if (!is_at(from, step))
		not_alone(move);
	return false;
}

/*
 * Go on after the decision, if opening was interrupted.  What the shard's
 * sequences came to stands in the journal of the server that it has left.
 */
void
open_decided(Move *move, Side *from, Side *to)
{
	char	   *states = query_text(from->conn, "SELECT details -> 'sequences' FROM snowid.moves WHERE shard = %d",
									move->options->shard);

	flush_log(from);
	run(to->conn, "BEGIN");
	carry_sequences(move, to, states);
	if (!open_shard(move, to))
		complain(to);
	read_journal(move, to);
	if (!is_at(to, "open"))
	{
		report_error("the journal of the %s does not allow to open shard %d", to->label, move->options->shard);
		report_hint("If an abort was begun, type: snowid-move abort");
		fail();
	}
	run(to->conn, "COMMIT");
	report_info("shard %d now lives at %s", move->options->shard, to->home);
}

/*
 * One attempt.  Returns NULL once it is decided and the shard is open, or why
 * it was given up, with everything as before.
 */
static const char *
try_cut_over(Move *move, Side *from, Side *to, const char *name, int *pause_ms)
{
	const MoveOptions *options = move->options;
	int			shard = options->shard;
	char	   *states;
	char	   *print;
	bool		extended;
	int64		start;

#define TIME_IS_UP (now_ms() >= pause_end(move, start))
#define TELL_TIME(what) \
	report_verbose("%s after %d ms", what, (int) (now_ms() - start))

	begin_bounded(move, from);
	start = now_ms();
	if (!try_run(from->conn, "SELECT snowid.fence_shard(%d, %s)", shard,
				 literal(from->conn, to->home)))
	{
		if (!is_passing(from))
			complain(from);
		roll_back(move, from);
		*pause_ms = (int) (now_ms() - start);
		return "could not lock the shard on the server that it leaves";
	}

	TELL_TIME("closed");

	if (!look_at_closed(move, from, options->pause_limit_ms - (now_ms() - start),
						&extended, &states, &print))
	{
		if (!is_passing(from))
			complain(from);
		roll_back(move, from);
		*pause_ms = (int) (now_ms() - start);
		return "the pause limit was reached";
	}
	if (extended)
	{
		roll_back(move, from);
		*pause_ms = (int) (now_ms() - start);
		return "somebody is creating something in the shard's schema";
	}
	if (from->journal.fingerprint == NULL || print == NULL ||
		strcmp(from->journal.fingerprint, print) != 0)
	{
		roll_back(move, from);
		report_error("the definitions of the shard have changed since they were copied");
		report_hint("Type snowid-move abort, and begin anew. No table, column, index, function or grant of the shard may be changed during a move.");
		fail();
	}

	TELL_TIME("definitions compared");

	if (!wait_for_replay(from, to, name, pause_end(move, start)))
	{
		roll_back(move, from);
		*pause_ms = (int) (now_ms() - start);
		return "the other server did not catch up";
	}

	TELL_TIME("all is replicated");

	/*
	 * This commit also makes durable there what replication has applied:
	 * those commits did not wait for the disk.
	 */
	run(to->conn, "BEGIN");
	carry_sequences(move, to, states);
	record_step(move, to, "ready");
	run(to->conn, "COMMIT");

	/* All locks that opening needs, so that only a COMMIT is left. */
	begin_bounded(move, to);
	if (!open_shard(move, to))
	{
		if (!is_passing(to))
		{
			roll_back(move, from);
			complain(to);
		}
		roll_back(move, to);
		roll_back(move, from);
		*pause_ms = (int) (now_ms() - start);
		return "could not lock the shard on the server that it goes to";
	}

	if (TIME_IS_UP ||
		!try_run(from->conn,
				 "UPDATE snowid.moves SET role = 'source', step = 'fenced', "
				 "changed_at = clock_timestamp() WHERE shard = %d AND details ->> 'move_id' = %s",
				 shard, literal(from->conn, from->journal.move_id)))
	{
		roll_back(move, to);
		roll_back(move, from);
		*pause_ms = (int) (now_ms() - start);
		return "the pause limit was reached";
	}

	TELL_TIME("all is prepared");

	/* The decision. From here on the only way is forward. */
	failure_exit_code = EXIT_INCOMPLETE;
	if (!try_run(from->conn, "COMMIT") && !is_decided(move, from))
	{
		failure_exit_code = EXIT_FAILED;
		roll_back(move, to);
		*pause_ms = (int) (now_ms() - start);
		return text_of("the %s has ended the session", from->label);
	}
	if (!try_run(to->conn, "COMMIT"))
	{
		resume_session(move, to);
		if (!is_at(to, "open"))
			open_decided(move, from, to);
	}
	*pause_ms = (int) (now_ms() - start);
	return NULL;
}

/* Move the shard's writers from one server to the other. */
void
cut_over(Move *move, Side *from, Side *to, const char *name)
{
	for (int attempt = 0;; attempt++)
	{
		const char *reason;
		int			pause_ms = 0;

		wait_for_lag(move, from, name);
		reason = try_cut_over(move, from, to, name, &pause_ms);
		if (reason == NULL)
		{
			report_info("shard %d now lives at %s; writes waited %d ms",
						move->options->shard, to->home, pause_ms);
			break;
		}
		if (attempt >= move->options->retries)
		{
			report_error("%s", reason);
			report_detail("The shard is where it was, after %d attempts; writes waited %d ms for the last.",
						  attempt + 1, pause_ms);
			report_hint("The copy is kept and follows. Type the same command again at a quieter time, or with a longer --lock-timeout or --pause-limit; or snowid-move abort.");
			fail();
		}
		report_verbose("cut-over: %s, after %d ms", reason, pause_ms);
		back_off(attempt);
	}
	read_journal(move, from);
	read_journal(move, to);
}
