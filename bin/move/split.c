/*
 * split: a set of shards goes to a streaming standby of their server, which has
 * all of it already.  Nothing is copied: the standby is promoted, and each of
 * the two servers closes what lives on the other.
 *
 * The steps, in the journal of the set's shards:
 *
 *		claimed		the shards belong to this split.  The standby's own
 *					configuration says default_transaction_read_only
 *		fenced		one transaction on the source has closed the set, and its
 *					registry names the target.  The standby replays it
 *		(promotion)	this cannot be undone
 *		open		on the target: the shards that stay on the source are closed
 *					there, and then the set is open
 *		moved		on the source: the standby's slot is dropped, the registry of
 *					all is told
 *
 * On the source nothing is done to the shards that stay: no lock, no row.  On the
 * target they are closed once it is promoted, before the set is opened.  Until
 * then nobody writes there, since the server's own configuration has made every
 * transaction read-only; that file is the target's alone, stands since before the
 * promotion, and survives all crashes.  Only this program's sessions begin their
 * transactions as READ WRITE.  The rows of shards that are closed on the target
 * have "stays" in their details.
 *
 * Who promotes, or undoes, holds the advisory locks on both servers, and promotes
 * by the session that has the target's: so whoever has that lock after him knows
 * that he promotes no more.  But a standby that was told to become a primary stays
 * a standby for a moment, or for long if its archive does not answer.  A restart
 * makes it forget the order.  So before the program tells it, it writes into the
 * source's journal when that server was started.  Until the server is restarted,
 * abort is refused.
 *
 * A standby's journal is the source's, as it was a moment ago.  It is believed
 * only once the standby is a primary: then it says what has been replayed, and so
 * what is true of that server.
 */
#include "commands.h"

#include "sql/queries.inc"

/* How long the standby may take to replay, where nobody waits, and to become a primary. */
#define REPLAY_LIMIT_MS		60000
#define PROMOTE_LIMIT_MS	60000
/* How long a configuration may take to be in effect, and a lock on the target. */
#define RELOAD_LIMIT_MS		10000

/* So many shards are closed on the target in one transaction, for its locks' sake. */
#define CLOSE_GROUP			250

static bool
is_standby(const Side *side)
{
	return query_bool(side->conn, "SELECT pg_is_in_recovery()");
}

bool
is_split(const Move *set)
{
	const Side *sides[] = {&set->source, &set->target};

	for (int i = 0; i < 2; i++)
		if (is_any_known(set, sides[i]) &&
			query_bool(sides[i]->conn, "SELECT EXISTS (SELECT FROM snowid.moves WHERE details ? 'split' AND shard IN (%s))",
					   shard_list(set)))
			return true;
	return false;
}

/* A condition for the rows of the set, and for those of the shards that stay. */
#define OF_SET		"details ? 'split' AND NOT details ? 'stays'"
#define THAT_STAY	"details ? 'stays'"

/*
 * A split is one decision, so its set must be named as a whole.  With part, as
 * finish leaves it behind, shards may be gone already.
 */
static bool
is_whole_set(const Move *set, const Side *side, bool part)
{
	char	   *shards = shard_list(set);
	char	   *all = query_text(side->conn,
								 "SELECT string_agg(shard::text, ',' ORDER BY shard) FROM snowid.moves WHERE " OF_SET
								 " HAVING NOT (array_agg(shard) <@ ARRAY[%s] AND (array_agg(shard) @> ARRAY[%s] OR %s))",
								 shards, shards, part ? "true" : "false");

	return all == NULL || refuse(false, text_of("Name all of its shards, and no other: --shard=%s", all),
								 "the set is not that of the split that was begun");
}

/* What the split was begun with, as a server's journal has it. */
static char *
split_detail(const Move *set, const Side *side, const char *key)
{
	return query_text(side->conn, "SELECT nullif(details ->> %s, '') FROM snowid.moves WHERE " OF_SET " LIMIT 1",
					  literal(side->conn, key));
}

/* Is a server that of the split, as a journal names it? */
static bool
is_same_server(const Move *set, const Side *journal, const char *key, const Side *side)
{
	char	   *recorded = split_detail(set, journal, key);

	if (recorded == NULL || side->home == NULL || is_home_of(recorded, side->system, side))
		return true;
	report_error("the split was begun with another server than that of --%s", key);
	report_detail("The journal says: %s. Given was: %s.", recorded, side->home);
	return false;
}

/*
 * A source that has the rows is the source, or has taken its place; of one that
 * has not, the target's rows tell whether it is another one.
 */
static bool
check_servers(const Move *set, bool part)
{
	const Side *source = &set->source;
	const Side *target = &set->target;
	const Side *sides[] = {source, target};

	if (!is_split(set))
		return true;
	for (int i = 0; i < 2; i++)
		if (is_any_known(set, sides[i]) &&
			(!is_whole_set(set, sides[i], part) ||
			 (!is_any_known(set, source) && !is_same_server(set, target, "from", source)) ||
			 !is_same_server(set, sides[i], "to", target)))
			return false;
	return true;
}

/*
 * The target's own configuration, which is not replicated: with "on", nobody
 * writes there who does not say that he will.  A new session that sees the
 * setting has been started after all others were told of it, and each of those
 * looks at it before its next statement.
 */
static bool
is_read_only(PGconn *conn)
{
	return query_bool(conn, "SELECT reset_val = 'on' FROM pg_settings WHERE name = 'default_transaction_read_only'");
}

static Status
set_read_only(const Side *target, bool on)
{
	int64		until = now_ms() + RELOAD_LIMIT_MS;

	run(target->aux, "ALTER SYSTEM %s", on ? "SET default_transaction_read_only = on" : "RESET default_transaction_read_only");
	run(target->aux, "SELECT pg_reload_conf()");
	do
	{
		if (!reconnect(target->aux))
			return STATUS_FAILED;
		if (is_read_only(target->aux) == on)
			return STATUS_DONE;
		wait_ms(2);
	} while (now_ms() < until);
	return refuse(STATUS_FAILED, "Look there at pg_settings and pg_file_settings, and at the server's command line.",
				  "%s: default_transaction_read_only is not %s, though ALTER SYSTEM has said so", target->label, on ? "on" : "off");
}

/* Do all shards live on the source? */
static bool
check_living(const Move *set)
{
	char	   *others = query_text(set->source.conn,
									"SELECT string_agg(u::text, ', ' ORDER BY u) FROM unnest(ARRAY[%s]) u "
									"LEFT JOIN snowid.shard_registry r ON r.shard = u "
									"WHERE r.shard IS NULL OR snowid_internal.lives(r) <> 'here'", shard_list(set));

	if (others == NULL)
		return true;
	return refuse(false, "Type there: SELECT * FROM snowid.shards;", "these shards do not live on the source: %s", others);
}

static void
claim_split(const Move *set)
{
	const Side *source = &set->source;
	PGconn	   *conn = source->conn;

	run(conn, "BEGIN");
	claim_source(set);
	run(conn, "UPDATE snowid.moves SET details = details || "
		"jsonb_build_object('split', true, 'from', %s::text, 'to', %s::text, 'slot', %s::text) WHERE shard IN (%s)",
		literal(conn, source->home), literal(conn, set->target.home),
		literal(conn, query_text(set->target.conn, "SELECT slot_name FROM pg_stat_wal_receiver")), shard_list(set));
	run(conn, "COMMIT");
}

/*
 * Have a session know the shards' tables and sequences before anybody waits: it
 * reads of each from the catalogs only once.
 */
static void
know_shards(PGconn *conn)
{
	(void) try_run(conn, "SELECT pg_relation_size(c.oid), CASE relkind WHEN 'S' THEN (snowid_internal.sequence_value(c.oid, now())).called END, "
				   "CASE relkind WHEN 'S' THEN pg_sequence_parameters(c.oid) END "
				   "FROM snowid.shard_registry r JOIN pg_namespace n ON nspname = r.schema "
				   "JOIN pg_class c ON relnamespace = n.oid AND relkind IN ('r', 'S')");
}

/* How far the standby has not replayed the source's log, in bytes. */
static int64
lag_of_standby(const Move *set)
{
	char	   *lsn = query_text(set->source.conn, "SELECT pg_current_wal_lsn()");

	return query_int64(set->target.conn, "SELECT pg_wal_lsn_diff(%s, pg_last_wal_replay_lsn())::bigint",
					   literal(set->target.conn, lsn));
}

static Status
wait_for_standby(const Move *set)
{
	int64		until = now_ms() + REPLAY_LIMIT_MS;
	int64		lag;

	while ((lag = lag_of_standby(set)) > set->options->max_lag)
	{
		if (now_ms() > until)
			return refuse(STATUS_FAILED, "Type the same command again at a quieter time, or with a larger --max-lag.",
						  "the target is %lld MB behind, and does not catch up", (long long) (lag >> 20));
		wait_ms(20);
	}
	return STATUS_DONE;
}

/*
 * Lock all of the set: shard by shard, tables and sequences at once, so that the
 * instant in which a writer can have the one and want the other is short.  Who
 * has is let go, and his shard is tried again in the other order, while the
 * shards before it stay locked.
 */
static bool
lock_set(const Move *set)
{
	return try_run(set->source.conn,
				   "DO $$ DECLARE s record; n int; BEGIN "
				   "FOR s IN SELECT r.shard, array_agg(c.oid ORDER BY c.oid) FILTER (WHERE relkind <> 'S') AS t, "
				   "array_agg(c.oid ORDER BY c.oid) FILTER (WHERE relkind = 'S') AS q "
				   "FROM snowid.shard_registry r JOIN pg_namespace n ON nspname = r.schema "
				   "JOIN pg_class c ON relnamespace = n.oid AND relkind IN ('r', 'p', 'S') "
				   "WHERE r.shard IN (%s) GROUP BY r.shard ORDER BY r.shard LOOP n := 0; LOOP BEGIN "
				   "PERFORM snowid_internal.lock_relations(CASE n %% 2 WHEN 0 THEN s.t ELSE s.q END); "
				   "PERFORM snowid_internal.lock_relations(CASE n %% 2 WHEN 0 THEN s.q ELSE s.t END); EXIT; "
				   "EXCEPTION WHEN lock_not_available OR deadlock_detected THEN n := n + 1; IF n = 4 THEN RAISE; END IF; "
				   "END; END LOOP; END LOOP; END $$", shard_list(set));
}

/* Of a pause that began at start; of another program's, 0, nobody knows. */
static void
tell_time(int64 start, const char *what)
{
	if (start > 0)
		report_verbose("%s after %d ms", what, (int) (now_ms() - start));
}

/* All of the fence but its COMMIT; NULL, or why not. */
static const char *
try_fence(const Move *set, int64 start)
{
	PGconn	   *conn = set->source.conn;
	int64		until = pause_end(set, start);

	if (!lock_set(set))
		return "could not lock the set";
	tell_time(start, "locked");
	if (!close_locked_shards(set, &set->source, set->target.home, until))
		return "could not close the set";
	if (query_bool(conn, "SELECT %s", being_extended_sql(set, conn)))
		return "another transaction is creating objects in the set's schemas";
	if (!try_run(conn, "UPDATE snowid.moves SET step = 'fenced', changed_at = clock_timestamp() "
				 "WHERE shard IN (%s) AND " OF_SET, shard_list(set)))
		return "the pause limit was reached";
	tell_time(start, "closed");
	return now_ms() < until ? NULL : "closing the set took nearly all of the pause limit";
}

/*
 * Close the set on the source.  Writers wait for the locks, and after the COMMIT
 * they are refused.
 */
static Status
fence_set(const Move *set, int64 *start)
{
	const Side *source = &set->source;

	for (int n = 0;; n++)
	{
		const char *reason = prepare_pools(set, source, &set->target);

		begin_pause(set, source);
		*start = now_ms();
		if (reason == NULL)
			reason = pause_pools(set, source, *start + set->options->pause_limit_ms / 2);
		if (reason == NULL)
			reason = try_fence(set, *start);
		failure_exit_code = EXIT_INCOMPLETE;
		if (reason == NULL)
			keep_paused();
		if (reason == NULL && try_run(source->conn, "COMMIT"))
			break;
		if (reason == NULL)
			reason = "the source did not commit";
		if (PQstatus(source->conn) == CONNECTION_OK)
			run(source->conn, "ROLLBACK");
		/* What has become of it?  The journal says. */
		else if (!resume_session(set, source))
			return STATUS_UNCERTAIN;
		else if (is_at(set, source, FENCED))
			break;
		failure_exit_code = EXIT_FAILED;
		(void) resume_pools(set, source);
		if (n >= set->options->retries)
		{
			report_error("%s", reason);
			report_detail("The set is where it was, after %d attempts.", n + 1);
			report_hint("Type the same command again at a quieter time, or with a longer --lock-timeout or --pause-limit; or snowid-move abort.");
			return STATUS_FAILED;
		}
		tell_time(*start, reason);
		back_off(n);
	}
	read_journal(set, source);
	tell_time(*start, "fenced");
	return STATUS_DONE;
}

/* Does that server's journal, as it is now, have all of the set closed by this split? */
static bool
is_set_fenced(const Move *set, const Side *side)
{
	return query_bool(side->conn,
					  "SELECT count(*) = %d FROM snowid.moves WHERE step = 'fenced' AND closed AND shard IN (%s) "
					  "AND details ->> 'move_id' = %s", set->nshards, shard_list(set),
					  literal(side->conn, set_journal(set, &set->source)->move_id));
}

/*
 * Wait until the standby has replayed the fence, and until other standbys have
 * it: should one of them take the source's place, it must not have the set open.
 */
static bool
wait_for_fence(const Move *set, int64 until)
{
	if (!wait_for_standbys(&set->source, until))
		return false;
	while (!is_set_fenced(set, &set->target))
	{
		if (now_ms() > until)
			return false;
		wait_ms(2);
	}
	return true;
}

/*
 * Has the target been promoted for this split?  If the source's set is open, what
 * a promoted target has replayed is of the past.
 */
static bool
is_promoted(const Move *set)
{
	const Side *source = &set->source;
	const Side *target = &set->target;

	return is_known(set, target) && !is_standby(target) &&
		(is_at(set, target, FENCED) || is_at(set, target, OPEN)) &&
		(source->conn == NULL || is_at(set, source, FENCED) || is_at(set, source, MOVED));
}

/*
 * Open the set on the source again, if it was closed.  We have the target's lock,
 * so nobody is about to promote it for this split.  The order matters: first the
 * target's file, without which nothing is opened there if somebody else promotes
 * it and the source cannot be asked; then a look at what the target is; then the
 * source.
 */
static Status
undo_fence(const Move *set, Step step)
{
	const Side *source = &set->source;
	const Side *target = &set->target;

	if (is_read_only(target->conn) && set_read_only(target, false) != STATUS_DONE)
		return STATUS_FAILED;
	if (!is_standby(target))
	{
		read_journal(set, target);
		if (is_promoted(set))
			return refuse(STATUS_UNCERTAIN, "Type: snowid-move status", "the target has been promoted meanwhile");
	}
	run(source->conn, "BEGIN");
	record_step(set, source, ABORTED);
	run(source->conn, "SELECT snowid_internal.open_shards(ARRAY(SELECT shard FROM snowid.moves WHERE closed AND shard IN (%s)), NULL)",
		shard_list(set));
	record_step(set, source, step);
	run(source->conn, "COMMIT");
	(void) resume_pools(set, source);
	read_journal(set, source);
	return STATUS_DONE;
}

/* Of a server that was told to become a primary. */
#define START_TIME		"SELECT pg_postmaster_start_time()"
#define WHEN_PROMOTING \
"Look at its log. The same command goes on when it has become one. If it will never be one, restart it as a standby, and type: snowid-move abort"

/* Can the target become a primary without anybody's doing, or has it done so? */
static bool
is_promoting(const Move *set)
{
	const Side *target = &set->target;
	char	   *told = split_detail(set, &set->source, "promoting");

	return told != NULL && strcmp(told, query_text(target->conn, START_TIME)) == 0;
}

/*
 * The promotion.  We have the locks of both servers, by sessions that live, and
 * the source's journal says that the set is closed there.
 */
static Status
promote(const Move *set)
{
	const Side *source = &set->source;
	const Side *target = &set->target;
	int64		until = now_ms() + PROMOTE_LIMIT_MS;

	if (!is_set_fenced(set, source) || is_standby(source))
	{
		tell_other_program(set);
		return STATUS_UNCERTAIN;
	}
	record_detail(set, source->conn, "promoting", query_text(target->conn, START_TIME));
	if (!wait_for_fence(set, until))
		return refuse(STATUS_UNCERTAIN, "Type the same command again when they have caught up.",
					  "the standbys of the source do not follow");
	run(target->conn, "SELECT pg_promote(false)");
	while (is_standby(target))
	{
		if (now_ms() > until)
			return refuse(STATUS_UNCERTAIN, WHEN_PROMOTING, "the target does not become a primary");
		wait_ms(2);
	}
	report_verbose("%s: promoted", target->label);
	read_journal(set, target);
	return STATUS_DONE;
}

/*
 * Transactions that were prepared on the source are on the target, too.  There
 * they are copies that hold locks of shards that stay with the source.
 */
static void
roll_back_copies(const Side *target)
{
	PGconn	   *conn = target->conn;
	PGresult   *res = query(conn, COPIES_OF_PREPARED_SQL);

	for (int row = 0; row < PQntuples(res); row++)
	{
		report_warning("rolling back the target's copy of the prepared transaction %s", PQgetvalue(res, row, 0));
		run(conn, "ROLLBACK PREPARED %s", literal(conn, PQgetvalue(res, row, 0)));
	}
	PQclear(res);
}

/*
 * On the target: close what stays on the source.  Each group is a transaction,
 * and who comes again finds those that are left.
 */
static void
close_staying(const Move *set, const char *from)
{
	const Side *target = &set->target;
	PGconn	   *conn = target->conn;
	PGresult   *groups;

	roll_back_copies(target);
	groups = query(conn,
				   "SELECT string_agg(shard::text, ', ') FROM (SELECT shard, (row_number() OVER (ORDER BY shard) - 1) / %d AS n "
				   "FROM snowid.shard_registry r WHERE shard NOT IN (%s) AND snowid_internal.lives(r) = 'here') t GROUP BY n",
				   CLOSE_GROUP, shard_list(set));
	for (int row = 0; row < PQntuples(groups); row++)
	{
		const char *group = PQgetvalue(groups, row, 0);

		run(conn, "BEGIN READ WRITE");
		run(conn, "SET LOCAL lock_timeout = %d", RELOAD_LIMIT_MS);

		/* The COMMIT that opens the set flushes this one's record, too. */
		run(conn, "SET LOCAL synchronous_commit = off");
		run(conn, "SELECT snowid_internal.close_shards(ARRAY[%s], %s)", group, literal(conn, from));
		run(conn, "UPDATE snowid.moves SET peer = %s, details = details || "
			"jsonb_build_object('split', true, 'stays', true, 'move_id', %s::text, 'from', %s::text, 'to', %s::text) WHERE shard IN (%s)",
			literal(conn, from), literal(conn, set_journal(set, target)->move_id), literal(conn, from),
			literal(conn, target->home), group);
		run(conn, "COMMIT");
	}
	PQclear(groups);
}

/*
 * Open the set, on the second session and all but its COMMIT, while the first one
 * closes the others.
 */
static void
begin_opening(const Move *set, const char *from)
{
	const Side *target = &set->target;
	PGconn	   *conn = target->aux;

	(void) PQsendQuery(conn, text_of("BEGIN READ WRITE; "
									 "UPDATE snowid.moves SET role = 'target', step = 'open', peer = %s, "
									 "changed_at = clock_timestamp(), details = details - 'poolers' || '{\"begun_as\": \"target\"}' WHERE shard IN (%s) AND " OF_SET "; "
									 "SELECT snowid_internal.open_shards(ARRAY[%s], %s)",
									 literal(conn, from), shard_list(set), shard_list(set), literal(conn, target->home)));
}

static void
open_set(const Move *set)
{
	const Side *target = &set->target;
	PGresult   *res;

	while ((res = PQgetResult(target->aux)) != NULL)
	{
		if (!has_succeeded(res))
			fail_with(target->aux);
		PQclear(res);
	}
	run(target->aux, "COMMIT");
	read_journal(set, target);
	report_verbose("%s: open", target->label);
}

/*
 * All that follows the promotion; the pause began at start, or before we came
 * if that is 0.
 */
static int
complete_split(const Move *set, int64 start)
{
	const Side *source = &set->source;
	const Side *target = &set->target;
	char	   *slot;

	failure_exit_code = EXIT_INCOMPLETE;
	if (is_at(set, target, FENCED))
	{
		char	   *from = source->conn != NULL ? source->home : split_detail(set, target, "from");
		bool		is_prepared = is_read_only(target->conn);

		/*
		 * Without the source, only the target's own file tells that it was
		 * promoted for this split, and no abort is under way.
		 */
		if (!is_prepared && source->conn == NULL)
			return refuse(failure(), "Only the source knows whether the set is closed there. When it can be reached, type the same command again.",
						  "the target is a primary, but was not promoted by this program");
		if (!is_prepared && set_read_only(target, true) != STATUS_DONE)
			return failure();
		begin_opening(set, from);
		close_staying(set, from);
		tell_time(start, "the others are closed on the target");
		open_set(set);
	}
	if (!is_at(set, target, OPEN))
	{
		report_error("the target has been promoted, but not for this split");
		report_detail("Its journal does not say that the set is closed on the source.");
		report_hint("It is a second copy of all shards: let no client write there. To open the set on the source, type: snowid-move abort");
		return failure();
	}
	if (is_read_only(target->conn) && set_read_only(target, false) != STATUS_DONE)
		return failure();
	route_pools(set, source, target);
	tell_moved(set, target, start > 0 ? (int) (now_ms() - start) : -1);
	if (source->conn == NULL)
	{
		report_error("the source cannot be reached, and keeps the target's slot until it is told");
		return failure();
	}

	/* Whoever demotes it ends our session; then it needs its slot. */
	run(target->conn, "SELECT");
	slot = split_detail(set, source, "slot");
	if (slot != NULL && !query_bool(target->conn, "SELECT current_setting('primary_slot_name') = %s", literal(target->conn, slot)))
	{
		/* Who was let write the journal chooses no other's. */
		report_warning("slot \"%s\" at %s is not what the target calls its own, and stays", slot, source->home);
		report_hint("If nobody needs it, type there: SELECT pg_drop_replication_slot(%s);", literal(source->conn, slot));
		slot = NULL;
	}
	if ((slot != NULL && drop_slot(source, slot) != STATUS_DONE) || tell_registry(set) != STATUS_DONE)
		return failure();
	record_step(set, source, MOVED);
	failure_exit_code = EXIT_FAILED;
	report_info("done; to drop the set's copies on the source and the others' on the target, type: snowid-move finish");
	return EXIT_DONE;
}

/* Go on after the fence. */
static int
promote_and_complete(const Move *set, int64 start)
{
	bool		is_replayed;

	failure_exit_code = EXIT_INCOMPLETE;
	is_replayed = wait_for_fence(set, start > 0 ? pause_end(set, start) : now_ms() + REPLAY_LIMIT_MS);
	if (!is_replayed || has_manager(set))
	{
		if (!is_replayed)
			report_error("the standbys did not replay the decision in time");
		if (start == 0)
		{
			report_hint("Type the same command again when that is mended; or snowid-move abort");
			return failure();
		}
		if (undo_fence(set, CLAIMED) != STATUS_DONE)
			return failure();
		failure_exit_code = EXIT_FAILED;
		report_detail("The set is open on the source again.");
		report_hint("Type the same command again at a quieter time, or with a longer --pause-limit; or snowid-move abort.");
		return failure();
	}
	tell_time(start, "replayed");
	if (promote(set) != STATUS_DONE)
		return failure();
	tell_time(start, "promoted");
	return complete_split(set, start);
}

static int
begin_split(const Move *set)
{
	const Side *source = &set->source;
	const Side *target = &set->target;
	Status		status;
	int64		start;

	if (!check_living(set))
		return EXIT_USAGE;
	if (!run_split_checks(set, false))
	{
		report_error("%s cannot be split off yet; nothing was changed", set->title);
		return failure();
	}
	if (!is_known(set, source))
		claim_split(set);
	prepare_fence(set, source);
	if (set_read_only(target, true) != STATUS_DONE)
		return failure();
	know_shards(source->conn);
	know_shards(target->conn);
	know_shards(target->aux);
	status = wait_for_standby(set);
	if (status == STATUS_DONE && !run_split_checks(set, true))
	{
		report_error("%s can no longer be split off", set->title);
		report_hint("Mend that and type the same command again; or snowid-move abort.");
		status = STATUS_FAILED;
	}
	if (status == STATUS_DONE)
		status = fence_set(set, &start);
	if (status == STATUS_DONE)
		return promote_and_complete(set, start);

	/* So that whoever promotes it has a primary. */
	if (status == STATUS_FAILED)
		(void) set_read_only(target, false);
	return failure();
}

/* Without the source, only what follows the promotion can be done; without the target, nothing. */
static int
split_with_one(const Move *set, const Side *reached)
{
	bool		is_target = reached == &set->target;

	if (!is_any_known(set, reached))
		return EXIT_USAGE;
	if (is_target && !is_standby(reached))
		return complete_split(set, 0);
	if (is_at(set, reached, FENCED))
		failure_exit_code = EXIT_INCOMPLETE;
	report_error(is_target ? "the source must be reachable until the target is promoted" : "the target must be reachable");
	return failure();
}

int
command_split(Move *set)
{
	const Side *source = &set->source;
	const Side *target = &set->target;

	set->tally->start = now_ms();
	if (!check_servers(set, false))
		return EXIT_USAGE;
	if (source->conn == NULL || target->conn == NULL)
		return split_with_one(set, source->conn == NULL ? target : source);
	if (is_any_known(set, source) && !is_split(set))
		return refuse(EXIT_FAILED, "Type: snowid-move status", "%s: a move was begun, or it is closed by hand", set->title);
	if (is_any_at(set, source, ABORTED))
		return refuse(EXIT_FAILED, "Type: snowid-move abort", "an abort of this split was begun");
	if (is_at(set, source, MOVED))
	{
		report_info("%s: split off already; type: snowid-move finish", set->title);
		return EXIT_DONE;
	}
	if (is_at(set, source, FENCED))
	{
		report_info("going on after step \"fenced\"");
		return is_standby(target) ? promote_and_complete(set, 0) : complete_split(set, 0);
	}
	return begin_split(set);
}

/* Is it a split that is to be planned: does the target stream from the source? */
bool
is_standby_of_source(const Move *set)
{
	const Side *source = &set->source;
	const Side *target = &set->target;
	char	   *name = query_text(target->conn, STANDBY_NAME_SQL);

	return name != NULL && is_standby(target) && strcmp(source->system, target->system) == 0 &&
		query_bool(source->conn, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE application_name = %s)",
				   literal(source->conn, name));
}

/* What plan says then. */
int
plan_split(Move *set)
{
	if (!check_living(set))
		return EXIT_USAGE;
	if (!run_split_checks(set, false))
	{
		if (!set->options->json)
			printf("%s cannot be split off yet; nothing was changed\n", set->title);
		return EXIT_FAILED;
	}
	if (set->options->json)
		print_object("#split", text_of("[%s]", shard_list(set)), "from", set->source.home, "to", set->target.home);
	else
		printf("%s would be split off from %s to its standby %s, and %s would stay; nothing was changed\n", set->title,
			   set->source.home, set->target.home,
			   query_text(set->source.conn, "SELECT count(*) || ' shards' FROM snowid.shard_registry r "
						  "WHERE shard NOT IN (%s) AND snowid_internal.lives(r) = 'here'", shard_list(set)));
	return EXIT_DONE;
}

/* Undo a split whose target has not been promoted for it. */
int
abort_split(Move *set)
{
	const Side *source = &set->source;
	const Side *target = &set->target;

	if (!check_servers(set, false))
		return EXIT_USAGE;
	if (is_at(set, source, MOVED) || is_promoted(set))
		return refuse(is_at(set, source, MOVED) ? EXIT_FAILED : EXIT_INCOMPLETE,
					  "To complete it, type the command split again. Shards come back by: snowid-move move",
					  "the target has been promoted, and this cannot be undone");
	if (!is_known(set, source))
	{
		report_info("%s: nothing to abort", set->title);
		return EXIT_DONE;
	}
	failure_exit_code = is_closed(set, source) ? EXIT_INCOMPLETE : EXIT_FAILED;
	if (target->conn == NULL)
	{
		report_error("the target must be reachable");
		report_detail("Its own configuration has been changed, and only it can tell that it was not promoted.");
		return failure();
	}
	if (is_promoting(set))
		return refuse(failure(), WHEN_PROMOTING, "the target was told to become a primary, and can do so at any time");
	if (undo_fence(set, ABORTED) != STATUS_DONE || !are_resumed(set, source))
		return failure();
	failure_exit_code = EXIT_FAILED;
	remove_fence(set, source);
	run(source->conn, "DELETE FROM snowid.moves WHERE " OF_SET " AND shard IN (%s)", shard_list(set));
	report_info("%s: the split is undone", set->title);
	return EXIT_DONE;
}

static void
show_split_side(const Move *set, const Side *side)
{
	const Journal *j = set_journal(set, side);

	if (set->options->json)
		print_object("server", side->label, "home", side->home, "#reached", side->conn != NULL ? "true" : "false",
					 "#standby", side->conn != NULL && is_standby(side) ? "true" : "false",
					 "step", side->conn != NULL && is_any_known(set, side) ? step_name(j->at.step) : NULL, "since", j->changed_at);
	else if (side->conn == NULL)
		printf("%s: not reached\n", side->label);
	else if (!is_any_known(set, side))
		printf("%s (%s): no split of %s\n", side->label, side->home, set->title);
	else if (is_standby(side))
		printf("%s (%s): a standby, has replayed step %s\n", side->label, side->home, step_name(j->at.step));
	else
		printf("%s (%s): %s, %s for writing, since %s\n", side->label, side->home, step_name(j->at.step),
			   j->closed ? "closed" : "open", j->changed_at);
}

/* What to type next. */
static const char *
next_of_split(const Move *set)
{
	const Side *source = &set->source;
	const Side *target = &set->target;

	if (is_any_at(set, source, ABORTED))
		return text_of("an abort was begun, type: %s", whole_command(set, "abort"));
	if (is_at(set, source, MOVED))
		return text_of("split off, type: %s", whole_command(set, "finish"));
	if (is_promoted(set))
		return text_of("the target is promoted, but the split is not complete, type: %s", whole_command(set, "split"));
	if (is_at(set, source, FENCED))
		return target->conn == NULL ? "the set is closed on the source; only the target knows whether it is promoted"
			: is_promoting(set) ? text_of("the target was told to become a primary, and is still a standby, type: %s", whole_command(set, "split"))
			: is_standby(target) ? text_of("the set is closed, and the target not yet promoted, type: %s; or abort in place of split", whole_command(set, "split"))
			: text_of("the target was promoted without this decision, type: %s", whole_command(set, "abort"));
	if (source->conn == NULL)
		return "not promoted yet; only the source knows more";
	return is_any_known(set, source) ? text_of("under way, and not decided, type: %s; or abort in place of split", whole_command(set, "split")) : "nothing is under way";
}

int
status_of_split(Move *set)
{
	if (!check_servers(set, true))
		return EXIT_USAGE;
	if (set->options->json)
		print_object("#shards", text_of("[%s]", shard_list(set)), "outlook", next_of_split(set));
	else
		printf("%s: %s\n", set->title, next_of_split(set));
	show_split_side(set, &set->source);
	show_split_side(set, &set->target);
	if (set->source.conn != NULL && set->target.conn != NULL && is_standby(&set->target) && !set->options->json)
		printf("  the target is %lld kB behind\n", (long long) (lag_of_standby(set) >> 10));
	return is_any_known(set, &set->source) || is_any_known(set, &set->target) ? EXIT_FAILED : EXIT_DONE;
}

/* The shards that stay, whose closed copies are on the target. */
static Move *
staying_shards(const Move *set)
{
	MoveOptions *options = pg_malloc(sizeof(MoveOptions));
	PGresult   *res = query(set->target.conn, "SELECT shard, schema FROM snowid.moves WHERE " THAT_STAY " ORDER BY shard");
	Move	   *staying;

	*options = *set->options;
	options->nshards = PQntuples(res);
	options->shards = pg_malloc(sizeof(int) * Max(options->nshards, 1));
	for (int row = 0; row < options->nshards; row++)
		options->shards[row] = atoi(PQgetvalue(res, row, 0));
	staying = make_set(options);
	for (int row = 0; row < options->nshards; row++)
		staying->shards[row]->schema = field(res, row, 1);
	PQclear(res);

	/* Seen from there, the target is what they have left. */
	staying->source = set->target;
	staying->target = set->source;
	staying->source.label = set->source.label;
	staying->target.label = set->target.label;
	if (staying->nshards > 0)
		read_journal(staying, &staying->source);
	return staying;
}

static bool
is_in_journal(const Move *set, Shard *shard, const void *side)
{
	return journal_of(shard, side)->exists;
}

/*
 * Drop what each server has of the other's shards: first the target's, whose
 * rows the set's rows stand for.
 */
int
finish_split(Move *set)
{
	const Side *source = &set->source;
	const Side *target = &set->target;
	Move	   *staying;
	Move	   *told;

	if (!check_servers(set, true))
		return EXIT_USAGE;
	told = select_shards(set, is_in_journal, target);
	set = select_shards(set, is_in_journal, source);
	if (set->nshards == 0 && told->nshards > 0 && is_at(told, target, OPEN) && !is_standby(target) && check_gone(told, source) == STATUS_DONE)
	{
		if (!set->options->dry_run)
			run(target->conn, "DELETE FROM snowid.moves WHERE " OF_SET " AND shard IN (%s)", shard_list(told));
		report_info("%s: lives at %s; the source had nothing of it", told->title, target->home);
		return EXIT_DONE;
	}
	if (set->nshards == 0 || !is_at(set, source, MOVED) || is_standby(target))
		return refuse(set->nshards > 0 && is_at(set, source, FENCED) ? EXIT_INCOMPLETE : EXIT_FAILED,
					  "Type: snowid-move status", "the split is not complete");
	failure_exit_code = EXIT_INCOMPLETE;
	staying = staying_shards(set);
	if (check_owner(set, target, source, false) != STATUS_DONE || check_came(set) != STATUS_DONE ||
		(staying->nshards > 0 && check_owner(staying, source, target, true) != STATUS_DONE))
		return failure();
	if (set->options->dry_run)
	{
		if (check_copies(set, source) != STATUS_DONE ||
			(staying->nshards > 0 && (check_copies(staying, target) != STATUS_DONE || tell_copies(staying, target) != STATUS_DONE)))
			return failure();
		return tell_copies(set, source) == STATUS_DONE ? EXIT_DONE : failure();
	}
	failure_exit_code = EXIT_INCOMPLETE;
	if (check_copies(set, source) != STATUS_DONE ||
		(staying->nshards > 0 && (check_copies(staying, &staying->source) != STATUS_DONE ||
								  drop_copies(staying, &staying->source, true) != STATUS_DONE)))
		return failure();
	remove_fence(set, target);
	if (drop_copies(set, source, true) != STATUS_DONE)
		return failure();
	run(target->conn, "DELETE FROM snowid.moves WHERE " OF_SET " AND shard IN (%s)", shard_list(told));
	failure_exit_code = EXIT_FAILED;
	return EXIT_DONE;
}

/* A command that a split's shards do not have. */
int
refuse_split(Move *set)
{
	return refuse(EXIT_FAILED, "To see how far it is, type: snowid-move status. The commands are split, abort and finish.",
				  "%s: a split was begun, and is not finished", set->title);
}
