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
#include "stages.h"
#include "sql/queries.inc"

/* How long the writers of some shards may wait, so that many go at once. */
#define GOOD_PAUSE_MS		100

/* How long to wait for rows that a target has lost. */
#define REPLAY_WAIT_MS		10000

/* What the sequences of closed shards have come to, by their journal. */
#define SEQUENCE_STATES		"SELECT jsonb_object_agg(shard, coalesce(details -> 'sequences', '{}')) FROM snowid.moves WHERE shard IN (%s)"

/* How an attempt stands. */
typedef enum Attempt
{
	ATTEMPT_GOES_ON,
	ATTEMPT_RETRY,				/* given up; another one may get through */
	ATTEMPT_FAILED,				/* none would; it has been told */
	ATTEMPT_UNCERTAIN,			/* decided, or perhaps; it has been told */
	ATTEMPT_DONE
} Attempt;

typedef struct CutOver
{
	const Move *move;
	const Side *from;
	const Side *to;
	bool		quiet;			/* do not tell: its shards get another chance */
	bool		again;			/* has an attempt failed? */
	int64		start;			/* of the pause */
	const char *reason;			/* for ATTEMPT_RETRY */
	const Move *changed;		/* a shard whose definitions are others */
	char	   *unpublished;	/* tables of which not all rows come */
	char	   *states;			/* of the sequences, when they were closed */
	PGresult   *shared;			/* tables that its shards lead to */
} CutOver;

static Attempt
retry(CutOver *cut, const char *reason)
{
	cut->reason = reason;
	return ATTEMPT_RETRY;
}

/* A statement has failed: a lock, a timeout, a deadlock, a lost session? */
static Attempt
retry_if_passing(CutOver *cut, const Side *side, const char *reason)
{
	if (PQstatus(side->conn) != CONNECTION_OK ||
		strcmp(last_sqlstate, "55P03") == 0 ||
		strcmp(last_sqlstate, "57014") == 0 ||
		strcmp(last_sqlstate, "40P01") == 0)
		return retry(cut, reason);
	if (cut->quiet)
		report_verbose("%s: %s", side->label, PQerrorMessage(side->conn));
	else
		report_error("%s: %s", side->label, PQerrorMessage(side->conn));
	return ATTEMPT_FAILED;
}

static bool
is_time_up(const CutOver *cut)
{
	return now_ms() >= pause_end(cut->move, cut->start);
}

static void
tell_time(const CutOver *cut, const char *what)
{
	report_verbose("%s after %d ms", what, (int) (now_ms() - cut->start));
}

/*
 * Put the sequences' states into the journal; unfence_shard sets them.  Both
 * servers must have the same sequences.
 */
static bool
carry_sequences(const Move *move, const Side *to, const char *states)
{
	char	   *odd = query_text(to->conn, CARRY_SEQUENCES_SQL, literal(to->conn, states));

	if (odd == NULL)
		return true;
	report_error("the two servers do not have the same sequences in shard %s", odd);
	report_hint("Type snowid-move abort, and begin again.");
	return false;
}

/*
 * Open the shards, in the transaction that is open there.  With it the
 * publication for the way back gets their tables: what is decoded from before is
 * what has come from there.
 */
static bool
open_shards(const Move *move, const Side *to)
{
	if (set_journal(move, to)->reverse &&
		!extend_publication(move, to, move->reverse_name))
		return false;
	return try_run(to->conn,
				   "UPDATE snowid.moves SET step = 'open', changed_at = clock_timestamp(), details = details || "
				   "jsonb_build_object('reverse_lsn', pg_current_wal_insert_lsn()) "
				   "WHERE shard IN (%s) AND step = 'ready' AND details ->> 'move_id' = %s",
				   shard_list(move), literal(to->conn, set_journal(move, to)->move_id)) &&
		try_run(to->conn, "SELECT snowid_internal.open_shards(ARRAY[%s], %s)",
				shard_list(move), literal(to->conn, to->home));
}

/* Let the clients of poolers wait, for at most half of the pause. */
static Attempt
pause_clients(CutOver *cut)
{
	const char *reason = pause_pools(cut->move, cut->from, cut->start + cut->move->options->pause_limit_ms / 2);

	return reason == NULL ? ATTEMPT_GOES_ON : retry(cut, reason);
}

/* Let the decision be only while they do wait. */
static Attempt
see_clients_paused(CutOver *cut)
{
	const char *reason = check_paused();

	return reason == NULL ? ATTEMPT_GOES_ON : retry(cut, reason);
}

/*
 * Lock the shards before they are closed.  Those that come again are locked by what
 * closes them, in one statement; who is in its way is not awaited as long.
 */
static bool
lock_group(const CutOver *cut, int64 until)
{
	const Move *move = cut->move;

	if (cut->quiet)
		return try_run(cut->from->conn, "SET LOCAL lock_timeout = %d", Max(move->options->lock_timeout_ms / 4, 1));
	for (int i = 0; i < move->nshards; i++)
		if (!lock_shard(move, cut->from, move->shards[i], cut->again, until))
			return false;
	return true;
}

/* Close the shards on the server that they leave. */
static Attempt
close_shards(CutOver *cut)
{
	int64		until = pause_end(cut->move, cut->start);

	if (!lock_group(cut, until))
		return retry_if_passing(cut, cut->from, strcmp(last_sqlstate, "40P01") == 0 ?
								"could not lock the shard on the server that it leaves, whose writers wait for each other's locks (deadlock)" :
								"could not lock the shard on the server that it leaves");
	tell_time(cut, "locked");
	if (!close_locked_shards(cut->move, cut->from, cut->to->home, until))
		return retry_if_passing(cut, cut->from, "could not close the shard on the server that it leaves");
	tell_time(cut, "closed");
	return ATTEMPT_GOES_ON;
}

/*
 * Look at the closed shards: how far have their sequences come, and has
 * somebody changed them since they were copied, or is about to?  A table that is
 * being created has no fence, and no copy.  Its creator's lock is asked for
 * first: if it has just been released, the query for the definitions sees what
 * he has created.
 */
static Attempt
read_closed_shards(CutOver *cut)
{
	const Move *move = cut->move;
	PGconn	   *conn = cut->from->conn;
	int64		left_ms = move->options->pause_limit_ms - (now_ms() - cut->start);
	char	  **fingerprints;
	PGresult   *res;

	/* From here on the server ends the transaction after what is left. */
	if (!try_run(conn, "SET LOCAL idle_in_transaction_session_timeout = %d", (int) Max(left_ms, 1)) ||
		(res = try_query(conn, "SELECT %s", being_extended_sql(move, conn))) == NULL)
		return retry_if_passing(cut, cut->from, "the pause limit was reached");
	if (PQgetvalue(res, 0, 0)[0] == 't')
		return retry(cut, "another transaction is creating objects in the shard's schema");
	PQclear(res);

	if ((fingerprints = try_fingerprints(move, cut->from)) == NULL ||
		(res = try_query(conn, "SELECT (" SEQUENCE_STATES "), (%s)", shard_list(move),
						 text_of(UNPUBLISHED_SQL, schema_list(move, conn), literal(conn, move->name)))) == NULL)
		return retry_if_passing(cut, cut->from, "the pause limit was reached");
	for (int i = 0; i < move->nshards; i++)
		if (!is_as_noted(journal_of(move->shards[i], cut->from)->fingerprint, fingerprints[i]))
			cut->changed = select_range(move, i, 1);
	pg_free(fingerprints);
	cut->states = field(res, 0, 0);
	cut->unpublished = field(res, 0, 1);
	PQclear(res);
	tell_time(cut, "definitions compared");
	return cut->changed == NULL && cut->unpublished == NULL ? ATTEMPT_GOES_ON : ATTEMPT_FAILED;
}

/* Somebody has changed a shard; its writers have gone on. */
static void
tell_why(const CutOver *cut)
{
	if (cut->changed != NULL)
		tell_changes(cut->changed, cut->from, "since they were copied");
	else
	{
		report_error("the copy can lack rows of what was not published all the time: %s", cut->unpublished);
		tell_to_begin_anew(cut->move, "");
	}
	if (is_way_back(cut->move->shards[0]))
		stay(cut->move);
}

/*
 * Bring the target up to date, and do all there that opening needs but its
 * COMMIT.
 */
static Attempt
prepare_target(CutOver *cut)
{
	const Move *move = cut->move;
	const Side *to = cut->to;
	char	   *lacking;

	if (is_time_up(cut))
		return retry(cut, "closing the shard took nearly all of the pause limit");
	if (!wait_for_replay(move, pause_end(move, cut->start)))
		return retry(cut, "the other server did not catch up");
	if (!has_reader(move))
		return retry(cut, "the target has connected anew, so what it has is to be compared");
	tell_time(cut, "all is replicated");
	if ((lacking = any_lacking_rows(move, cut->shared, pause_end(move, cut->start), true)) != NULL)
		return retry(cut, text_of("on the other server, %s", lacking));

	/*
	 * This commit also makes durable there what replication has applied:
	 * those commits did not wait for the disk.
	 */
	run(to->conn, "BEGIN");
	if (!carry_sequences(move, to, cut->states))
		return ATTEMPT_FAILED;
	record_step(move, to, READY);
	run(to->conn, "COMMIT");

	/* All locks that opening needs, so that only a COMMIT is left. */
	begin_pause(move, to);
	if (!open_shards(move, to))
		return retry_if_passing(cut, to, "could not lock the shard on the server that it goes to");
	return ATTEMPT_GOES_ON;
}

/* Write the decision into the journal, in the transaction that has closed the shards. */
static Attempt
prepare_decision(CutOver *cut)
{
	const Move *move = cut->move;
	PGconn	   *conn = cut->from->conn;

	if (is_time_up(cut) ||
		!try_run(conn,
				 "UPDATE snowid.moves SET step = 'fenced', changed_at = clock_timestamp() WHERE shard IN (%s) AND details ->> 'move_id' = %s",
				 shard_list(move), literal(conn, set_journal(move, cut->from)->move_id)))
		return retry(cut, "the pause limit was reached");
	tell_time(cut, "all is prepared");
	return ATTEMPT_GOES_ON;
}

/*
 * The decision's COMMIT has not come back.  Connect again, and see in the
 * journal what has become of it.
 */
static Attempt
find_decision(CutOver *cut, int exit_code_before)
{
	const Move *move = cut->move;
	const Side *from = cut->from;
	Step		step = set_journal(move, from)->at.step;

	/* An answer is an error: it is not decided. */
	if (PQstatus(from->conn) == CONNECTION_OK)
	{
		failure_exit_code = exit_code_before;
		report_error("%s: %s", from->label, PQerrorMessage(from->conn));
		return ATTEMPT_FAILED;
	}
	if (!resume_session(move, from))
		return ATTEMPT_UNCERTAIN;
	if (is_at(move, from, FENCED))
	{
		flush_log(from);
		return ATTEMPT_GOES_ON;
	}
	if (!is_at(move, from, step))
	{
		tell_other_program(move);
		return ATTEMPT_UNCERTAIN;
	}
	failure_exit_code = exit_code_before;
	return retry(cut, text_of("the %s has ended the session", from->label));
}

/*
 * The two commits: first the decision, from which on the only way is forward,
 * then what opens the shards.
 */
static Attempt
decide(CutOver *cut)
{
	const Move *move = cut->move;
	int			exit_code_before = failure_exit_code;
	Attempt		found;

	failure_exit_code = EXIT_INCOMPLETE;
	keep_paused();
	if (!try_run(cut->from->conn, "COMMIT") &&
		(found = find_decision(cut, exit_code_before)) != ATTEMPT_GOES_ON)
		return found;

	/* Else a fail-over could bring the open shard back. */
	(void) wait_for_standbys(cut->from, pause_end(move, cut->start));
	if (!try_run(cut->to->conn, "COMMIT"))
	{
		if (!resume_session(move, cut->to))
			return ATTEMPT_UNCERTAIN;
		if (!is_at(move, cut->to, OPEN) &&
			open_decided(move) != STATUS_DONE)
			return ATTEMPT_UNCERTAIN;
	}
	return ATTEMPT_DONE;
}

/*
 * One attempt.  Unless it is decided, everything is as before when it returns:
 * first on the server where writers wait.
 */
static Attempt
try_cut_over(CutOver *cut)
{
	Attempt		attempt;

	cut->start = now_ms();
	cut->changed = NULL;
	cut->unpublished = NULL;
	if ((cut->reason = prepare_pools(cut->move, cut->from, cut->to)) != NULL)
		return ATTEMPT_RETRY;
	begin_pause(cut->move, cut->from);
	cut->start = now_ms();
	if ((attempt = pause_clients(cut)) == ATTEMPT_GOES_ON &&
		(attempt = close_shards(cut)) == ATTEMPT_GOES_ON &&
		(attempt = read_closed_shards(cut)) == ATTEMPT_GOES_ON &&
		(attempt = prepare_target(cut)) == ATTEMPT_GOES_ON &&
		(attempt = prepare_decision(cut)) == ATTEMPT_GOES_ON &&
		(attempt = see_clients_paused(cut)) == ATTEMPT_GOES_ON)
		attempt = decide(cut);

	if (attempt == ATTEMPT_DONE)
		route_pools(cut->move, cut->from, cut->to);
	if (attempt == ATTEMPT_RETRY || attempt == ATTEMPT_FAILED)
	{
		if (!end_pause(cut->move, cut->from) || !end_pause(cut->move, cut->to))
			attempt = ATTEMPT_FAILED;
		(void) resume_pools(cut->move, cut->from);
	}
	return attempt;
}

/* What may not be torn would be if one stays. */
static bool
is_torn(const Move *move, bool quiet)
{
	PGresult   *keys = query(move->source.conn, KEYS_SQL, shard_list(move));
	bool		torn = false;

	for (int row = 0; row < PQntuples(keys) && !torn; row++)
	{
		torn = find_shard(move, atoi(PQgetvalue(keys, row, 0))) == NULL || find_shard(move, atoi(PQgetvalue(keys, row, 1))) == NULL;
		if (torn && !quiet)
			(void) refuse(0, text_of("Move both at once, after: %s Or drop that.", whole_command(move, "abort")),
						  "%s leads from shard %s to shard %s, and only one would move", PQgetvalue(keys, row, 2), PQgetvalue(keys, row, 0), PQgetvalue(keys, row, 1));
	}
	PQclear(keys);
	return torn;
}

/* Move the writers of some shards from one server to the other, in one decision. */
static Status
cut_over(const Move *move, bool quiet)
{
	const Side *from = &move->source;
	const Side *to = &move->target;
	CutOver		cut = {.move = move,.from = from,.to = to,.quiet = quiet,.shared = shared_tables(move)};

	/* A pooler that does not answer is waited for by the first of many. */
	static bool gave_up = false;
	bool		is_of_pooler;

	if (is_torn(move, quiet))
		return STATUS_FAILED;
	for (int n = 0;; n++)
	{
		Status		status = wait_for_lag(move);
		Attempt		attempt;
		int			pause_ms;

		/* Who was connected anew since the comparison may lack rows. */
		if (status == STATUS_DONE && !has_reader(move))
			status = verify(move);
		if (status == STATUS_DONE && quiet && any_lacking_rows(move, cut.shared, now_ms() + GOOD_PAUSE_MS, false) != NULL)
			return STATUS_FAILED;
		if (status == STATUS_DONE)
			status = await_shared_rows(move, cut.shared);
		if (status != STATUS_DONE || select_shards(move, has_failed, NULL)->nshards > 0)
			return status != STATUS_DONE ? status : STATUS_FAILED;
		cut.again = n > 0;
		attempt = try_cut_over(&cut);
		pause_ms = (int) ((move->tally->resumed_at > cut.start ? move->tally->resumed_at : now_ms()) - cut.start);
		if (attempt == ATTEMPT_DONE)
		{
			tell_moved(move, to, pause_ms);
			read_journal(move, from);
			read_journal(move, to);
			return STATUS_DONE;
		}
		if (attempt == ATTEMPT_UNCERTAIN)
			return STATUS_UNCERTAIN;
		if (attempt == ATTEMPT_RETRY && quiet)
			report_verbose("cut-over of %s: %s, after %d ms", move->title, cut.reason, pause_ms);
		if (attempt == ATTEMPT_FAILED && cut.changed != NULL && !quiet && newer_tables(move, cut.changed->shards[0]) != NULL && n < move->options->retries)
		{
			if ((status = bring_new_tables(move)) != STATUS_DONE)
				return status;
			prepare_fence(move, from);
			cut.shared = shared_tables(move);
			continue;
		}
		if (attempt == ATTEMPT_FAILED && (cut.changed != NULL || cut.unpublished != NULL) && !quiet)
			tell_why(&cut);
		if (attempt != ATTEMPT_RETRY || quiet)
			return STATUS_FAILED;
		is_of_pooler = strncmp(cut.reason, "the pooler", 10) == 0;
		if (n >= move->options->retries || (is_of_pooler && gave_up))
		{
			gave_up = is_of_pooler;
			report_error("%s", cut.reason);
			report_detail("The shard is where it was, after %d attempts; writes waited %d ms for the last.",
						  n + 1, pause_ms);
			report_hint("The copy stays, and is kept current. Type the same command again %s; or snowid-move abort.", is_of_pooler ?
						"when it answers" : "at a quieter time, or with a longer --lock-timeout or --pause-limit");
			return STATUS_FAILED;
		}
		report_verbose("cut-over: %s, after %d ms", cut.reason, pause_ms);
		back_off(n);
	}
}

/*
 * How many shards to hand over in the next decision: as many as will take about
 * the time that is a good pause, by what the last took.  A slow machine has longer
 * ones, whatever their number: at most twice the shortest is good there.
 */
static int
next_group(int count, int pause_ms, int *shortest)
{
	int			good;

	*shortest = Min(*shortest, pause_ms);
	good = Max(GOOD_PAUSE_MS, 2 * *shortest);
	if (pause_ms > good)
		return Max(count / 2, 1);
	if (pause_ms < good / 2)
		return 2 * count;
	return pause_ms < good * 3 / 4 ? count + (count + 1) / 2 : count;
}

static bool
is_handed_over(const Shard *shard, const Side *from)
{
	return shard->journals[from->place].at.step == FENCED;
}

/*
 * Hand the shards over: a few in one decision, so that each writer waits only
 * for these.  Those that cannot be had at once come again at the end, each for
 * itself and with all --retries.  What then fails is told, and left.
 */
Status
hand_over(const Move *move)
{
	const Side *from = &move->source;
	int			count = first_group(move);
	int			shortest = move->options->pause_limit_ms;
	const Move *group;

	tie_shards(move, false);
	move = by_pools(move);

	/*
	 * The query for it is better planned before writers wait, but never
	 * awaited.
	 */
	run(from->conn, "SET lock_timeout = %d", move->options->lock_timeout_ms);
	pg_free(try_fingerprints(select_range(move, 0, 1), from));
	run(from->conn, "SET lock_timeout = 0");
	prepare_fence(move, from);
	for (int i = 0; i < move->nshards && move->nshards > 1; i += group->nshards)
	{
		Status		status;

		group = select_range(move, i, whole_pools(move, i, count));
		status = cut_over(group, true);
		if (status == STATUS_UNDO || status == STATUS_UNCERTAIN)
			return status;
		if (status == STATUS_DONE)
		{
			move->tally->moved += group->nshards;
			count = next_group(group->nshards, move->tally->last_pause_ms, &shortest);
		}
		else
			count = Max(count / 2, 1);
		tell_now_and_then("%s", progress_of_set(move));
	}
	tie_shards(move, true);
	move = by_pools(move);
	for (int i = 0; i < move->nshards; i++)
	{
		Status		status;

		if (is_handed_over(move->shards[i], from))
			continue;
		group = select_range(move, i, whole_pools(move, i, 1));
		i += group->nshards - 1;
		status = cut_over(group, false);
		if (status == STATUS_UNDO || status == STATUS_UNCERTAIN)
			return status;
		for (int n = 0; n < group->nshards && status == STATUS_FAILED; n++)
			leave_shard(move, group->shards[n]);
		if (status == STATUS_DONE)
			move->tally->moved += group->nshards;
	}
	return STATUS_DONE;
}

/* Call the closed copies again what the shards are called. */
static void
take_back_names(const Move *move, const Side *from)
{
	PGconn	   *conn = from->conn;

	for (int i = 0; i < move->nshards; i++)
	{
		const Shard *shard = move->shards[i];
		const char *name = journal_of(move->shards[i], from)->schema;

		if (strcmp(name, shard->schema) == 0)
			continue;
		if (!schemas_are_of(from, text_of("%d", shard->number), literal(conn, name), "snowid.moves"))
			fail();
		run(conn, "BEGIN");
		run(conn, "ALTER SCHEMA %s RENAME TO %s", ident(conn, name), ident(conn, shard->schema));
		run(conn, "UPDATE snowid.moves SET schema = %s, step = 'fenced' WHERE shard = %d", literal(conn, shard->schema), shard->number);
		run(conn, "COMMIT");
	}
	read_journal(move, from);
}

/*
 * Go on after the decision, if opening was interrupted.  What the shards'
 * sequences came to stands in the journal of the server that they have left.
 */
Status
open_decided(const Move *move)
{
	const Side *from = &move->source;
	const Side *to = &move->target;

	flush_log(from);

	/* Has it all rows that it had when it was decided?  Both are closed. */
	if (failed_over(move, to) && is_known(move, to))
	{
		take_back_names(move, from);
		if (is_at(move, to, READY))
			(void) wait_for_replay(move, now_ms() + REPLAY_WAIT_MS);
		if (!is_at(move, to, READY) || !compare_tables(move, true))
		{
			report_error("the %s has failed over, and lacks what it had of %s when the move was decided", to->label, move->title);
			return STATUS_UNDO;
		}
	}
	run(to->conn, "BEGIN");
	if (!carry_sequences(move, to, query_text(from->conn, SEQUENCE_STATES, shard_list(move))))
		return STATUS_FAILED;
	if (!open_shards(move, to))
	{
		report_error("%s: %s", to->label, PQerrorMessage(to->conn));
		return STATUS_FAILED;
	}
	read_journal(move, to);
	if (!is_at(move, to, OPEN))
	{
		report_error("the journal of the %s does not allow %s to be opened", to->label, move->title);
		report_hint("If an abort was begun, type: %s", whole_command(move, "abort"));
		return STATUS_FAILED;
	}
	run(to->conn, "COMMIT");
	route_pools(move, from, to);
	tell_moved(move, to, -1);
	return STATUS_DONE;
}

/*
 * Close shards that are open where they have been, though they are open at their
 * new home: that server has failed over to one that did not have the decision.
 */
void
close_again(const Move *move)
{
	const Side *from = &move->source;
	const Side *to = &move->target;
	PGconn	   *conn = from->conn;

	for (int i = 0; i < move->nshards; i++)
	{
		int			shard = move->shards[i]->number;

		if (journal_of(move->shards[i], from)->closed)
			continue;
		run(conn, "BEGIN");
		run(conn, "SET LOCAL lock_timeout = %d", REPLAY_WAIT_MS);
		run(conn, "SELECT snowid_internal.close_shards(ARRAY[%d], %s)", shard, literal(conn, to->home));
		run(conn, "UPDATE snowid.moves SET step = 'fenced', details = details || '{\"reopened\": true}' WHERE shard = %d", shard);
		run(conn, "COMMIT");
		report_warning("shard %d was open at %s, too, since that has failed over to a server without the decision", shard, from->home);
		report_detail("It is closed there again. What was written to it meanwhile is in that copy alone.");
	}
	read_journal(move, from);
}
