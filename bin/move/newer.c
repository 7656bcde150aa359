/*
 * Tables that are made in a shard while it is copied, or while its copy follows: they
 * are made on the target, too, published, and brought by PostgreSQL's own table
 * synchronisation, with what was written to them before.
 *
 * The journals have two notes: of the definitions that were copied, and of those that
 * have been brought since.  If all that is newer than a note is tables, and they pass
 * the prechecks, they are brought.  No step of that is recorded: who comes after a
 * program that has died, or finds that a table has changed since it was brought,
 * drops what is newer on the target, and brings it anew.
 */
#include "stages.h"
#include "sql/queries.inc"

/* So often the target may fail to copy a table. */
#define ERRORS_MAX			3

typedef struct Newer
{
	const Move *single;			/* a shard */
	PGresult   *tables;			/* of the source, as new_tables() gives them */
	bool		from_copy;		/* newer than the copy, not only than what has
								 * been brought */
	char	   *note;			/* of the definitions, before these are read */
} Newer;

/* The source's tables that are newer, and nothing else is; NULL: there are none, or something is. */
static PGresult *
find_newer(const Move *move, Shard *shard, bool *from_copy)
{
	PGconn	   *conn = move->source.conn;
	const Journal *journal = journal_of(shard, &move->source);
	PGresult   *tables;

	*from_copy = false;
	if (is_way_back(shard) || journal->target_ddl_md5 != NULL || journal->fingerprint == NULL || journal->copied_fingerprint == NULL)
		return NULL;
	*from_copy = strcmp(journal->fingerprint, journal->copied_fingerprint) == 0;
	tables = new_tables(conn, shard->schema, journal->fingerprint);
	if (tables == NULL && !*from_copy)
	{
		/* Perhaps none: what was brought is dropped. */
		*from_copy = true;
		return new_tables(conn, shard->schema, journal->copied_fingerprint);
	}
	return PQntuples(tables) > 0 ? tables : NULL;
}

/* A column of some tables, separated by commas, those of some kinds. */
static char *
list_tables(PGresult *tables, int column, const char *kinds)
{
	PQExpBufferData list;

	initPQExpBuffer(&list);
	for (int row = 0; row < PQntuples(tables); row++)
		if (strchr(kinds, *PQgetvalue(tables, row, 0)) != NULL)
			appendPQExpBuffer(&list, "%s%s", list.len > 0 ? ", " : "", PQgetvalue(tables, row, column));
	return keep_text(list.data);
}

/* The same for messages; NULL: none. */
char *
newer_tables(const Move *move, Shard *shard)
{
	bool		from_copy;
	PGresult   *tables = find_newer(move, shard, &from_copy);
	char	   *list = tables == NULL ? NULL : list_tables(tables, 1, "rpS");

	PQclear(tables);
	return list;
}

/* Is all that is newer tables that can be brought?  If they cannot, the shard is told, and left. */
bool
may_be_brought(const Move *single)
{
	Shard	   *shard = single->shards[0];
	char	   *tables = newer_tables(single, shard);

	if (tables == NULL || check_new_tables(single))
		return tables != NULL;
	report_error("shard %d cannot be moved with what is new in it: %s", shard->number, tables);
	report_hint("Correct that, and type the same command again.");
	leave_shard(single, shard);
	return false;
}

/* Of the whole batch, those whose copy follows. */
static bool
is_following(const Move *move, Shard *shard, const void *name)
{
	const Journal *journal = journal_of(shard, &move->source);

	return journal->exists && journal->name != NULL && strcmp(journal->name, name) == 0 && situation_of(shard) == COPYING && !is_way_back(shard);
}

/*
 * Shards whose definitions have changed are followed no more, and never move so: the
 * others of their batch would wait behind what cannot be applied.  Of one that only has new
 * tables, these are not, and are brought anew.  True if some were followed.
 */
static bool
leave_changed(const Move *move)
{
	const Move *batch = select_shards(move->set, is_following, move->name);
	char	  **now = batch->nshards > 0 ? note_definitions(batch, &move->source) : NULL;
	bool		left = false;

	for (int i = 0; i < batch->nshards; i++)
	{
		Shard	   *shard = batch->shards[i];
		PGresult   *tables;
		bool		from_copy;
		char	   *oids;

		if (journal_of(shard, &move->source)->fingerprint == NULL || is_as_noted(journal_of(shard, &move->source)->fingerprint, now[i]))
			continue;
		tables = find_newer(batch, shard, &from_copy);
		oids = tables != NULL ? list_tables(tables, 4, "r") :
			text_of("SELECT oid FROM pg_class WHERE relnamespace = to_regnamespace(%s)", literal(move->source.conn, ident(move->source.conn, shard->schema)));
		if (*oids != '\0' && unpublish(move, oids))
			left = true;
		PQclear(tables);
	}
	return left;
}

static const char *
noted_there(const Newer *newer)
{
	const Journal *journal = set_journal(newer->single, &newer->single->target);

	return newer->from_copy ? journal->copied_fingerprint : journal->fingerprint;
}

/* What was brought may be in the target's note alone: it was made while that was, or the program died between both notes. */
static bool
has_newer_there(const Newer *newer)
{
	PGconn	   *conn = newer->single->target.conn;
	bool		has = !is_as_noted(noted_there(newer), note_definitions(newer->single, &newer->single->target)[0]);

	for (int row = 0; row < PQntuples(newer->tables) && !has; row++)
		has = query_bool(conn, "SELECT to_regclass(%s) IS NOT NULL", literal(conn, PQgetvalue(newer->tables, row, 1)));
	return has;
}

/* Drop that; false if it is not only what was brought. */
static bool
drop_newer_there(const Newer *newer)
{
	const Side *to = &newer->single->target;
	Shard	   *shard = newer->single->shards[0];
	PGresult   *tables = new_tables(to->conn, shard->schema, noted_there(newer));
	bool		ours = tables != NULL;
	const char *again = list_tables(newer->tables, 1, "rp");
	const char *there = list_tables(tables, 1, "rp");
	const char *list;

	for (int row = 0; row < PQntuples(tables); row++)
		ours = ours && (*PQgetvalue(tables, row, 0) == 'S' || *PQgetvalue(tables, row, 5) == 't');
	if (!ours)
	{
		tell_changes(newer->single, to, "on the target");
		leave_shard(newer->single, shard);
		return false;
	}
	run(to->conn, "BEGIN");
	if (*again != '\0' || *there != '\0')
		run_and_tell(to, to->conn, to->aux, "DROP TABLE IF EXISTS %s%s%s", again, *again != '\0' && *there != '\0' ? ", " : "", there);
	if (*(list = list_tables(tables, 1, "S")) != '\0')
		run(to->conn, "DROP SEQUENCE IF EXISTS %s", list);
	run(to->conn, FORGET_SEQUENCES_SQL, text_of("%d", shard->number));

	/* Should what follows fail, nothing is missing. */
	record_detail(newer->single, to->conn, newer->from_copy ? "fingerprint" : "brought", note_definitions(newer->single, to)[0]);
	run(to->conn, "COMMIT");
	read_journal(newer->single, to);
	PQclear(tables);
	return true;
}

/* What an earlier time has left of these tables is followed no more, and dropped. */
static Status
drop_what_is_left(const Move *move, Newer *newer, int n)
{
	bool		is_left = leave_changed(move);

	for (int i = 0; i < n; i++)
		is_left = is_left || has_newer_there(&newer[i]);
	if (!is_left)
		return STATUS_DONE;
	refresh(move, false);
	if (await_skipped(move) != STATUS_DONE)
		return STATUS_FAILED;
	for (int i = 0; i < n; i++)
		if (has_newer_there(&newer[i]) && !drop_newer_there(&newer[i]))
			return STATUS_FAILED;
	return STATUS_DONE;
}

/*
 * Publish the new tables of a shard.  Nobody may be writing to them: of a transaction
 * that was, servers can forget that a table is published (before 15.13, 16.9, 17.5).
 */
static Status
publish_newer(const Newer *newer)
{
	const Move *single = newer->single;
	PGconn	   *conn = single->source.conn;
	char	   *tables = list_tables(newer->tables, 2, "r");

	if (*tables == '\0')
		return STATUS_DONE;
	for (int attempt = 0;; attempt++)
	{
		begin_limited(single, conn, single->options->lock_timeout_ms);
		if (try_run(conn, "LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE", tables) &&
			publish_tables(single, conn, single->name, tables) &&
			try_run(conn, "COMMIT"))
			return STATUS_DONE;
		if (strcmp(last_sqlstate, "55P03") != 0 || attempt >= single->options->retries)
		{
			report_error("could not publish what is new in shard %d: %s", single->shards[0]->number, PQerrorMessage(conn));
			report_hint("Type the same command again at a quieter time, or with a longer --lock-timeout or --pause-limit.");
			if (PQstatus(conn) == CONNECTION_OK)
				run(conn, "ROLLBACK");
			return STATUS_FAILED;
		}
		run(conn, "ROLLBACK");
		tell_now_and_then("waiting for writers of %s", tables);
		back_off(attempt);
	}
}

/* Rows go in binary form only as long as those of all tables can. */
static void
check_binary(const Newer *newer)
{
	const Move *single = newer->single;
	PGconn	   *from = single->source.conn;
	PGconn	   *to = single->target.conn;

	if (query_bool(from, "SELECT count(*) FROM unnest(ARRAY[%s]::oid[]) t WHERE t NOT IN (%s)", list_tables(newer->tables, 4, "r"), binary_tables(single, from)) &&
		query_bool(to, "SELECT subbinary FROM pg_subscription WHERE subname = %s", literal(to, single->name)))
		run(to, "ALTER SUBSCRIPTION %s SET (binary = false)", ident(to, single->name));
}

/* Wait until all tables of the subscription are followed as the others. */
static Status
await_tables(const Move *move)
{
	const Side *to = &move->target;
	int64		errors = count_errors(to, move->name, "sync");
	int64		seen = count_errors(to, move->name, "apply");
	int64		told = now_ms() + SILENCE_MS - TELL_MS;
	Status		status;

	for (;;)
	{
		int			mark = mark_texts();
		char	   *waiting = query_text(to->aux, "SELECT string_agg(srrelid::regclass::text, ', ') FROM pg_subscription_rel "
										 "JOIN pg_subscription s ON s.oid = srsubid WHERE subname = %s AND srsubstate <> 'r'", literal(to->aux, move->name));

		if (waiting == NULL)
			return STATUS_DONE;
		if (now_ms() - told >= TELL_MS)
		{
			report_info("waiting: the %s copies %s", to->label, waiting);
			tell_workers(to, move->name);
			told = now_ms();
		}
		if (count_errors(to, move->name, "sync") >= errors + ERRORS_MAX)
		{
			report_error("the %s cannot copy what is new: %s", to->label, waiting);
			tell_log_of(to);
			report_hint("Correct that, and type the same command again; or: %s", whole_command(move, "abort"));
			return STATUS_FAILED;
		}
		if ((status = check_following(move, move->options->max_wal)) != STATUS_DONE ||
			(status = mend_after_errors(move, &seen)) != STATUS_DONE)
			return status;

		/* A worker says that a table is done when it hears of a later commit. */
		flush_log(&move->source);
		free_texts(mark);
		wait_ms(20);
	}
}

/* The target has them; what is newer now is newer than these. */
static void
note_brought(const Newer *newer)
{
	const Move *single = newer->single;

	record_detail(single, single->target.conn, "brought", note_definitions(single, &single->target)[0]);
	record_detail(single, single->source.conn, "brought", newer->note);
	read_journal(single, &single->target);
	read_journal(single, &single->source);
	report_info("brought what is new in shard %d: %s", single->shards[0]->number,
				PQntuples(newer->tables) > 0 ? list_tables(newer->tables, 1, "rpS") : "nothing; what was brought is dropped");
}

/* The shards that have nothing but new tables, that can be brought.  A catalog that is locked is not awaited. */
static int
find_all_newer(const Move *move, Newer *newer)
{
	PGconn	   *conn = move->source.conn;
	char	  **now;
	int			n = 0;

	run(conn, "SET lock_timeout = %d", move->options->lock_timeout_ms);
	now = try_fingerprints(move, &move->source);
	run(conn, "SET lock_timeout = 0");
	for (int i = 0; now != NULL && i < move->nshards; i++)
	{
		const Move *single = select_range(move, i, 1);
		Newer		found = {.single = single,.note = now[i]};

		if (is_as_noted(journal_of(move->shards[i], &move->source)->fingerprint, now[i]) || !may_be_brought(single))
			continue;
		if ((found.tables = find_newer(single, move->shards[i], &found.from_copy)) != NULL)
			newer[n++] = found;
	}
	return n;
}

/*
 * Bring the tables that are new in some shards of a batch, whose copy follows.  A shard
 * for which that cannot be done is left; one that has other changes is looked at elsewhere.
 */
Status
bring_new_tables(const Move *move)
{
	Newer	   *newer = pg_malloc(sizeof(Newer) * Max(move->nshards, 1));
	int			n = find_all_newer(move, newer);
	Status		status = STATUS_DONE;

	if (n > 0)
		status = drop_what_is_left(move, newer, n);
	for (int i = 0; i < n && status == STATUS_DONE; i++)
		if (!make_missing(newer[i].single, NULL))
			status = STATUS_FAILED;
	for (int i = 0; i < n && status == STATUS_DONE; i++)
	{
		check_binary(&newer[i]);
		status = publish_newer(&newer[i]);
	}
	if (n > 0 && status == STATUS_DONE)
	{
		refresh(move, true);
		status = await_tables(move);
	}
	for (int i = 0; i < n && status == STATUS_DONE; i++)
		note_brought(&newer[i]);
	for (int i = 0; i < n; i++)
		PQclear(newer[i].tables);
	pg_free(newer);
	return status;
}

/* If the target has had errors since these were seen: is it for want of its own schemas, of a shard as it was, or of room? */
Status
mend_after_errors(const Move *move, int64 *seen)
{
	int64		count = count_errors(&move->target, move->name, "apply");
	Status		status = count == *seen ? STATUS_DONE : check_names(move);

	if (count == *seen || status != STATUS_DONE)
		return status;
	if (leave_changed(move))
		refresh(move, false);
	if (make_room(move))
		*seen = count;
	return STATUS_DONE;
}
