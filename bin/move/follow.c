/*
 * Following: how far the other server is.  One that does not follow is waited for;
 * only what the log costs in the meantime has a limit.
 */
#include "stages.h"
#include "sql/queries.inc"

/* So often rows may be refused after a fail-over, before they are copied anew. */
#define ERRORS_MAX			3

/* The other server has to show so often that it has little left to do. */
#define PING_LIMIT_MS		50
#define PINGS_MAX			50

/* The longest time between two commits that let it answer. */
#define FLUSH_PAUSE_MS		32

/* How often to look whether it has errors. */
#define LOOK_MS				1000

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
 * Wait until no standby that streams from a server could be promoted without what
 * is committed there now; returns false after a limit, or an error.  An archiver
 * streams, too, but replays nothing, and is none.
 */
bool
wait_for_standbys(const Side *side, int64 until)
{
	char	   *lsn = NULL;
	PGresult   *res;
	bool		done;

	do
	{
		if (lsn != NULL)
			wait_ms(1);
		res = try_query(side->aux,
						"SELECT lsn, NOT EXISTS (SELECT FROM pg_stat_replication r WHERE state = 'streaming' AND replay_lsn IS NOT NULL AND flush_lsn < lsn "
						"AND NOT EXISTS (SELECT FROM pg_replication_slots WHERE active_pid = r.pid AND slot_type = 'logical')) "
						"FROM (SELECT coalesce(%s::pg_lsn, pg_current_wal_flush_lsn())) l (lsn)", literal(side->aux, lsn));
		if (res == NULL)
			return false;
		lsn = lsn != NULL ? lsn : field(res, 0, 0);
		done = *PQgetvalue(res, 0, 1) == 't';
		PQclear(res);
	} while (!done && now_ms() < until);
	return done;
}

/* What no repetition brings back is gone. */
static Status
tell_lost(const Move *move, const char *lost)
{
	report_error("%s", lost);
	if (is_way_back(move->shards[0]))
		report_hint("The shard stays where it is. There is no way back any more; type: %s", whole_command(move, "finish"));
	return STATUS_UNDO;
}

/*
 * Give up if the slot is lost, its publication, without which it sends nothing, or
 * keeps more log than it may.  A full disk on the source would be worse than no move.
 */
Status
check_slot(const Move *move, int64 max_wal)
{
	const Side *from = &move->source;
	const char *name = move->name;
	PGresult   *res = query(from->aux,
							"SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint, CASE WHEN slot_name IS NULL THEN 'somebody has dropped it' "
							"WHEN wal_status = 'lost' THEN coalesce(to_jsonb(s) ->> 'invalidation_reason', 'its log is gone') "
							"WHEN NOT EXISTS (SELECT FROM pg_publication WHERE pubname = name) THEN 'somebody has dropped its publication' END "
							"FROM (SELECT %s) n (name) LEFT JOIN pg_replication_slots s ON slot_name = name", literal(from->aux, name));
	int64		kept = strtoll(PQgetvalue(res, 0, 0), NULL, 10);
	char	   *lost = field(res, 0, 1);

	PQclear(res);
	if (lost != NULL)
		return tell_lost(move, text_of("replication slot \"%s\" of the %s is lost: %s", name, from->label, lost));
	if (kept <= max_wal)
		return STATUS_DONE;
	report_error("the move keeps %lld MB of the %s's log, more than --max-wal allows", (long long) kept >> 20, from->label);
	if (is_way_back(move->shards[0]))
		report_hint("The shard stays where it is. Type the same command again, with a larger --max-wal; or: %s", whole_command(move, "finish"));
	return STATUS_UNDO;
}

/* The same once the target follows, or with another limit: has somebody ended that there? */
Status
check_following(const Move *move, int64 max_wal)
{
	PGconn	   *conn = move->target.aux;
	Status		status = check_slot(move, max_wal);
	char	   *enabled = query_text(conn, "SELECT subenabled::int FROM pg_subscription WHERE subname = %s", literal(conn, move->name));

	if (status != STATUS_DONE)
		return status;
	if (enabled == NULL)
		return tell_lost(move, text_of("subscription \"%s\" of the %s is lost: somebody has dropped it", move->name, move->target.label));
	return *enabled == '1' ? STATUS_DONE :
		refuse(STATUS_FAILED, text_of("Type there, and then the same command again: ALTER SUBSCRIPTION %s ENABLE;", ident(conn, move->name)),
			   "subscription \"%s\" of the %s is disabled", move->name, move->target.label);
}

/* Has somebody renamed a copy on the target?  Its tables are still the subscription's. */
Status
check_names(const Move *move)
{
	char	   *renamed = query_text(move->target.conn, RENAMED_SQL, shard_list(move));

	return renamed == NULL ? STATUS_DONE :
		refuse(STATUS_FAILED, text_of("Type there, and then the same command again: %s", renamed), "the copy of %s has another name on the %s", move->title, move->target.label);
}

/*
 * The session that reads the slot; NULL: none.  A slot has one reader at a time, so as
 * long as this is the same, nobody else has taken changes from it.
 */
char *
reader_of(const Move *move)
{
	return query_text(move->source.aux, "SELECT concat(r.pid, ' ', extract(epoch FROM r.backend_start)) "
					  "FROM pg_replication_slots s JOIN pg_stat_replication r ON r.pid = s.active_pid WHERE s.slot_name = %s",
					  literal(move->source.aux, move->name));
}

/* From here on the target has what that reader has read. */
void
record_reader(const Move *move, const char *reader)
{
	const Side *first = first_side(move);

	record_detail(move, first->conn, "reader", reader);
	read_journal(move, first);
}

/* Is it still the one by whom the target is known to have all? */
static bool
is_known_reader(const Move *move, const char *reader)
{
	for (int i = 0; i < move->nshards; i++)
	{
		const char *known = move->shards[i]->journals[0].reader;

		if (reader == NULL || known == NULL || strcmp(known, reader) != 0)
			return false;
	}
	return true;
}

bool
has_reader(const Move *move)
{
	return is_known_reader(move, reader_of(move));
}

/*
 * Why the target may lack rows, though the source takes them for replicated: only a
 * comparison of all rows tells.  NULL: it does not.
 */
const char *
why_doubtful(const Move *move)
{
	const char *failed_over = who_failed_over(move);
	const char *reader = reader_of(move);

	if (failed_over != NULL)
		return text_of("the %s has failed over", failed_over);
	if (is_known_reader(move, REWRITTEN))
		return "a table was emptied or rewritten before it was copied";
	return reader == NULL || is_known_reader(move, reader) ? NULL : "the target was not connected all the time, and a copy of it can have taken changes";
}

/*
 * Wait until the other server has replayed all that was written here up to
 * now; returns false after a limit.  That it is this server, and no copy of it, its own
 * worker tells: only who has the slot is sent so much.
 *
 * It does not say so by itself at once: it waits until what it has applied is
 * on its disk, which nobody hurries for, and then for the next message.  So
 * both sides get a commit to flush, again and again, but not so many that these
 * are what it cannot follow.
 */
bool
wait_for_replay(const Move *move, int64 until)
{
	const Side *from = &move->source;
	const Side *to = &move->target;
	const char *name = move->name;
	char	   *lsn = query_text(from->aux, "SELECT pg_current_wal_insert_lsn()");
	bool		done = false;
	int64		next = 0;
	int			pause = 1;

	while (!done && now_ms() < until)
	{
		int			mark = mark_texts();
		bool		is_due = now_ms() >= next;

		if (is_due)
		{
			flush_log(from);
			next = now_ms() + pause;
			pause = Min(2 * pause, FLUSH_PAUSE_MS);
		}
		done = query_bool(from->aux,
						  "SELECT r.replay_lsn >= %s::pg_lsn FROM pg_replication_slots s "
						  "JOIN pg_stat_replication r ON r.pid = s.active_pid WHERE s.slot_name = %s",
						  literal(from->aux, lsn), literal(from->aux, name)) &&
			query_bool(to->aux, "SELECT bool_or(received_lsn >= %s::pg_lsn) FROM pg_stat_subscription WHERE subname = %s",
					   literal(to->aux, lsn), literal(to->aux, name));
		if (!done && is_due)
			flush_log(to);
		if (!done)
			wait_ms(1);
		free_texts(mark);
	}
	free(lsn);
	return done;
}

/*
 * How many bytes is the other server behind?  -1: it is not connected.  After a
 * fail-over of this one, it may be ahead.
 */
static int64
read_lag(const Side *from, const char *name)
{
	char	   *lag = query_text(from->aux,
								 "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), r.replay_lsn)::bigint "
								 "FROM pg_replication_slots s JOIN pg_stat_replication r ON r.pid = s.active_pid "
								 "WHERE s.slot_name = %s", literal(from->aux, name));
	int64		bytes = lag != NULL ? Max(strtoll(lag, NULL, 10), 0) : -1;

	free(lag);
	return bytes;
}

/* How often a worker had one, by what it was at: to apply, or to copy a table ("sync"). */
int64
count_errors(const Side *to, const char *name, const char *kind)
{
	return query_int64(to->aux, "SELECT coalesce(sum(coalesce(to_jsonb(s) ->> '%s_error_count', to_jsonb(s) ->> '%s_table_error_count')::bigint), 0) "
					   "FROM pg_stat_subscription_stats s WHERE subname = %s", kind, kind, literal(to->aux, name));
}

/*
 * Wait until the other server is so close behind that the rest is quick: by
 * bytes, and then by a wait for its replay.  If it is always slow, the cut-over
 * is tried nevertheless.  From 18 on a publication that is dropped stops nothing.
 */
Status
wait_for_lag(const Move *move)
{
	const Side *from = &move->source;
	const Side *to = &move->target;
	const char *name = move->name;
	int64		told = now_ms() + SILENCE_MS - TELL_MS;
	int64		errors = count_errors(to, name, "apply");
	int64		seen = errors;
	int64		looked = now_ms();
	int			slow = 0;

	for (;;)
	{
		int			mark = mark_texts();
		int64		lag = read_lag(from, name);
		Status		status;

		if (lag >= 0 && lag <= move->options->max_lag &&
			(wait_for_replay(move, now_ms() + PING_LIMIT_MS) ||
			 ++slow >= PINGS_MAX))
			return check_following(move, PG_INT64_MAX);
		if (now_ms() - looked >= LOOK_MS)
		{
			if ((status = mend_after_errors(move, &seen)) != STATUS_DONE)
				return status;
			looked = now_ms();
		}
		if (now_ms() - told >= TELL_MS)
		{
			if (lag >= 0)
				report_info("waiting: the %s is %lld MB behind", to->label,
							(long long) (lag >> 20));
			else
			{
				report_info("waiting: the %s is not connected", to->label);
				tell_log_of(to);
			}
			tell_workers(to, name);
			told = now_ms();
		}
		if ((status = check_following(move, move->options->max_wal)) != STATUS_DONE)
			return status;
		if (lag < 0 && who_failed_over(move) != NULL && count_errors(to, name, "apply") >= errors + ERRORS_MAX)
		{
			report_error("the target cannot apply what has come since the fail-over");
			tell_log_of(to);
			return STATUS_UNDO;
		}
		free_texts(mark);
		wait_ms(20);
	}
}
