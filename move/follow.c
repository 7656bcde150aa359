/*
 * Following: how far the other server is, and when to give up on it.
 */
#include "stages.h"

#include <unistd.h>

/* How often the copy is looked at, and told of on a terminal. */
#define POLL_MS				200
#define TELL_TERMINAL_MS	1000

/* Without getting on for so long, the copy may be stuck. */
#define STUCK_MS			3000

/* The other server has to show so often that it has little left to do. */
#define PING_LIMIT_MS		50
#define PINGS_MAX			50

/* The subscription may fail so often without getting on in between. */
#define FAILURES_MAX		3

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

/*
 * Give up if the slot is lost, or keeps more log than it may.  A full disk on
 * the source would be worse than no move.
 *
 * On the way back there is nothing to undo: the shard is open on the server
 * that it would leave.
 */
static Status
check_slot(const Move *move, const Side *from, const char *name)
{
	PGresult   *res = query(from->aux,
							"SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint, "
							"wal_status IS NOT DISTINCT FROM 'lost' "
							"FROM pg_replication_slots WHERE slot_name = %s",
							literal(from->aux, name));
	bool		lost = PQntuples(res) == 0 || *PQgetvalue(res, 0, 1) == 't';
	int64		kept = lost ? 0 : strtoll(PQgetvalue(res, 0, 0), NULL, 10);

	PQclear(res);
	if (!lost && kept <= move->options->max_wal)
		return STATUS_DONE;

	if (lost)
		report_error("replication slot \"%s\" of the %s is lost", name, from->label);
	else
		report_error("the move keeps %lld MB of the %s's log, more than --max-wal allows",
					 (long long) kept >> 20, from->label);
	if (is_source(move, from))
		return STATUS_UNDO;
	if (lost)
		report_hint("The shard stays where it is, and there is no way back any more. If snowid-move status says that the way back was begun, type: snowid-move abort. Then type: snowid-move finish");
	else
		report_hint("The shard stays where it is. Type the same command again, with a larger --max-wal.");
	return STATUS_FAILED;
}

/* How often the subscription has failed, and how often when it last got on. */
typedef struct Failures
{
	int64		now;
	int64		base;
} Failures;

static int64
count_failures(const Side *to, const char *name)
{
	return query_int64(to->aux,
					   "SELECT coalesce(sum(apply_error_count + %s), 0) "
					   "FROM pg_stat_subscription_stats WHERE subname = %s",
					   counts_table_sync_errors(to) ? "sync_table_error_count" : "sync_error_count",
					   literal(to->aux, name));
}

/*
 * The copy fails: undo it for the shards whose tables are being copied, if there
 * are others.  False if it cannot be told whose fault it is.
 */
static bool
undo_failing_shards(const Move *move)
{
	PGresult   *res = query(move->target.conn,
							"SELECT DISTINCT n.nspname FROM pg_subscription_rel r JOIN pg_subscription s ON s.oid = r.srsubid "
							"JOIN pg_class c ON c.oid = r.srrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
							"WHERE s.subname = %s AND r.srsubstate = 'd' AND n.nspname IN (%s)",
							literal(move->target.conn, move->name), schema_list(move, move->target.conn));
	int			failing = PQntuples(res);

	for (int row = 0; row < failing && failing < move->nshards; row++)
		for (int i = 0; i < move->nshards; i++)
			if (strcmp(move->shards[i]->schema, PQgetvalue(res, row, 0)) == 0)
			{
				(void) abort_move(select_range(move, i, 1));
				leave_shard(move, move->shards[i]);
			}
	PQclear(res);
	return failing > 0 && failing < move->nshards;
}

/* Give up if the subscription fails again and again. */
static Status
check_failures(const Move *move, Failures *failures, bool getting_on)
{
	failures->now = count_failures(&move->target, move->name);
	if (getting_on)
		failures->base = failures->now;
	if (failures->now - failures->base < FAILURES_MAX)
		return STATUS_DONE;
	report_error("the target fails to copy the rows, again and again");
	tell_log_of_target(&move->target);
	return STATUS_UNDO;
}

/* What the target has of the copy; rows, of those tables that it is copying now. */
typedef struct CopyState
{
	int			tables;
	int			synced;
	int			done;
	int64		bytes;
	int64		rows;
} CopyState;

static CopyState
read_copy_state(const Move *move)
{
	PGconn	   *conn = move->target.conn;
	CopyState	state;
	PGresult   *res = query(conn,
							"SELECT count(*), count(*) FILTER (WHERE srsubstate IN ('s', 'r')), "
							"count(*) FILTER (WHERE srsubstate = 'r'), "
							"coalesce(sum(pg_table_size(srrelid)), 0)::bigint, "
							"coalesce(sum(tuples_processed), 0)::bigint "
							"FROM pg_subscription_rel LEFT JOIN pg_stat_progress_copy p ON p.relid = srrelid "
							"AND p.datname = current_database() WHERE srsubid = "
							"(SELECT oid FROM pg_subscription WHERE subname = %s AND subdbid = "
							"(SELECT oid FROM pg_database WHERE datname = current_database()))",
							literal(conn, move->name));

	state.tables = atoi(PQgetvalue(res, 0, 0));
	state.synced = atoi(PQgetvalue(res, 0, 1));
	state.done = atoi(PQgetvalue(res, 0, 2));
	state.bytes = strtoll(PQgetvalue(res, 0, 3), NULL, 10);
	state.rows = strtoll(PQgetvalue(res, 0, 4), NULL, 10);
	PQclear(res);
	return state;
}

/*
 * Has the copy got further than ever?  A copy that fails begins again at the
 * table's first row, though the table may grow, by dead rows.
 */
static bool
has_got_on(const CopyState *last, const CopyState *state)
{
	return state->done > last->done || state->synced > last->synced || state->rows > last->rows;
}

/* Tell how far the copy is; on a terminal, over the line before. */
static void
tell_progress(const Move *move, const CopyState *state, int64 total_bytes, int64 elapsed_ms, bool terminal)
{
	const char *set = progress_of_set(move);
	double		rate = state->bytes / (Max(elapsed_ms, 1) / 1000.0) / 1048576.0;
	int64		left = Max(total_bytes - state->bytes, 0) >> 20;
	bool		goes_on = state->done < state->tables;

	if (terminal)
		fputc('\r', stderr);
	fprintf(stderr, "%s: %s%s%d of %d tables, %lld of about %lld MB, %.1f MB/s",
			progname, set, *set != '\0' ? "; copying: " : "", state->done, state->tables, (long long) (state->bytes >> 20),
			(long long) (total_bytes >> 20), rate);
	if (goes_on && rate > 0)
		fprintf(stderr, ", %d s left", (int) (left / rate));
	fputs(terminal && goes_on ? "   " : "\n", stderr);
}

/* Wait until the target has all tables, and follows. */
Status
wait_for_copy(const Move *move)
{
	const Side *source = &move->source;
	const Side *target = &move->target;
	bool		terminal = isatty(STDERR_FILENO);
	int64		start = now_ms();
	int64		told = start;
	int64		got_on = start;
	int64		reason_told = 0;
	CopyState	last = {.done = -1};
	Failures	failures = {.base = count_failures(target, move->name)};
	int64		total_bytes;

	total_bytes = query_int64(source->conn,
							  "SELECT coalesce(sum(pg_table_size(c.oid)), 0)::bigint FROM pg_class c "
							  "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname IN (%s) AND c.relkind = 'r'",
							  schema_list(move, source->conn));
	calm_launcher(move);
	resume_mending(move);
	for (;;)
	{
		int			mark = mark_texts();
		CopyState	state = read_copy_state(move);
		int64		now = now_ms();
		bool		is_getting_on = has_got_on(&last, &state);
		Status		status;

		if (state.done == state.tables || now - told >= (terminal ? TELL_TERMINAL_MS : TELL_MS))
		{
			tell_progress(move, &state, total_bytes, now - start, terminal);
			told = now;
		}
		if (state.done == state.tables)
			break;

		if ((status = check_slot(move, source, move->name)) != STATUS_DONE)
			return status;
		if ((status = check_failures(move, &failures, is_getting_on)) != STATUS_DONE)
		{
			if (!undo_failing_shards(move))
				return status;
			move = select_shards(move, has_not_failed, NULL);
			failures.base = failures.now;
		}
		if (is_getting_on)
			got_on = now;
		else if (now - got_on >= STUCK_MS)
		{
			if (reason_told == 0 || now - reason_told >= TELL_MS)
			{
				if (terminal)
					fputc('\n', stderr);
				tell_reason_of_copy(move);
				reason_told = now;
			}
			mend_copy(move);
			got_on = now;
		}

		/* A table that is complete is taken for that with the next message. */
		flush_log(source);
		if (is_getting_on)
			last = state;
		free_texts(mark);
		wait_ms(POLL_MS);
	}

	record_step(move, target, "copied");
	record_step(move, source, "copied");
	return STATUS_DONE;
}

/*
 * Wait until the other server has replayed all that was written here up to
 * now; returns false after a limit.
 *
 * It does not say so by itself at once: it waits until what it has applied is
 * on its disk, which nobody hurries for, and then for the next message.  So
 * both sides get a commit to flush, again and again.
 */
bool
wait_for_replay(const Side *from, const Side *to, const char *name, int64 until)
{
	char	   *lsn = query_text(from->aux, "SELECT pg_current_wal_insert_lsn()");
	bool		done = false;

	while (!done && now_ms() < until)
	{
		int			mark = mark_texts();

		flush_log(from);
		done = query_bool(from->aux,
						  "SELECT r.replay_lsn >= %s::pg_lsn FROM pg_replication_slots s "
						  "JOIN pg_stat_replication r ON r.pid = s.active_pid WHERE s.slot_name = %s",
						  literal(from->aux, lsn), literal(from->aux, name));
		if (!done)
		{
			flush_log(to);
			wait_ms(1);
		}
		free_texts(mark);
	}
	free(lsn);
	return done;
}

/* How many bytes is the other server behind?  -1: it is not connected. */
static int64
read_lag(const Side *from, const char *name)
{
	char	   *lag = query_text(from->aux,
								 "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), r.replay_lsn)::bigint "
								 "FROM pg_replication_slots s JOIN pg_stat_replication r ON r.pid = s.active_pid "
								 "WHERE s.slot_name = %s", literal(from->aux, name));
	int64		bytes = lag != NULL ? strtoll(lag, NULL, 10) : -1;

	free(lag);
	return bytes;
}

/*
 * Wait until the other server is so close behind that the rest is quick: by
 * bytes, and then by a wait for its replay.  If it is always slow, the cut-over
 * is tried nevertheless.
 */
Status
wait_for_lag(const Move *move, const Side *from, const char *name)
{
	const Side *to = is_source(move, from) ? &move->target : &move->source;
	int64		told = now_ms();
	int64		last_lag = PG_INT64_MAX;
	int			slow = 0;
	Failures	failures = {.base = count_failures(&move->target, move->name)};

	for (;;)
	{
		int			mark = mark_texts();
		int64		lag = read_lag(from, name);
		Status		status;

		if (lag >= 0 && lag <= move->options->max_lag &&
			(wait_for_replay(from, to, name, now_ms() + PING_LIMIT_MS) ||
			 ++slow >= PINGS_MAX))
			return STATUS_DONE;
		if (now_ms() - told >= TELL_MS)
		{
			if (lag >= 0)
				report_info("waiting: the %s is %lld MB behind", to->label,
							(long long) (lag >> 20));
			else
				report_info("waiting: the %s is not connected", to->label);
			tell_blocked_workers(to, name);
			told = now_ms();
		}
		if ((status = check_slot(move, from, name)) != STATUS_DONE)
			return status;
		if (is_source(move, from) &&
			(status = check_failures(move, &failures, lag >= 0 && lag < last_lag)) != STATUS_DONE)
			return status;
		last_lag = lag >= 0 ? lag : PG_INT64_MAX;
		free_texts(mark);
		wait_ms(20);
	}
}
