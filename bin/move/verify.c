/*
 * The comparison of the two copies, before the cut-over and without a pause
 * to speak of.
 *
 * It begins with a rehearsal of the cut-over: writers are held up until the
 * target has all that there is, a snapshot is taken on each side, and they go
 * on.  The two snapshots then show the same state of the shard, and are
 * compared at leisure.
 */
#include "stages.h"
#include "sql/queries.inc"

/* How long the comparison waits for somebody who has a table to himself. */
#define LOCK_LIMIT_MS	10000

/* The tables of the set, as a LOCK TABLE takes them: those first that others refer to. */
static char *
tables_to_lock(const Move *move)
{
	PGconn	   *conn = move->source.conn;
	char	   *tables = query_text(conn,
									"SELECT string_agg(format('ONLY %%I.%%I', n.nspname, c.relname), ', ' ORDER BY s.nspname, t.place) "
									"FROM pg_namespace s, snowid_internal.shard_tables(s.nspname) WITH ORDINALITY t (oid, place) "
									"JOIN pg_class c ON c.oid = t.oid JOIN pg_namespace n ON n.oid = c.relnamespace "
									"WHERE s.nspname IN (%s)", schema_list(move, conn));

	return tables != NULL ? tables : pg_strdup("ONLY snowid.moves");
}

/*
 * Hold writers up, and take the two snapshots, which *taken says.  They are
 * not if a lock or the target took too long; writers have gone on.
 */
static Status
take_snapshots(const Move *move, bool *taken, int *pause_ms)
{
	const Side *source = &move->source;
	const Side *target = &move->target;
	char	   *tables = tables_to_lock(move);
	int64		start;

	*taken = false;
	begin_pause(move, source);
	start = now_ms();
	if (try_run(source->conn, "LOCK TABLE %s IN SHARE MODE", tables) &&
		wait_for_replay(move, pause_end(move, start)))
	{
		run(source->aux, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
		run(source->aux, "SELECT FROM snowid.moves; SET LOCAL lock_timeout = %d", LOCK_LIMIT_MS);
		run(target->aux, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
		run(target->aux, "SELECT FROM snowid.moves; SET LOCAL lock_timeout = %d", LOCK_LIMIT_MS);

		/* They show the same state only if the locks were held until now. */
		*taken = try_run(source->conn, "COMMIT");
		if (!*taken)
		{
			run(source->aux, "ROLLBACK");
			run(target->aux, "ROLLBACK");
		}
	}
	*pause_ms = (int) (now_ms() - start);
	return end_pause(move, source) ? STATUS_DONE : STATUS_FAILED;
}

/* What a shard's tables have, or had: a row for each; ends the program after an error. */
static PGresult *
receive(const Side *side)
{
	PGresult   *res = PQgetResult(side->aux);

	if (PQresultStatus(res) != PGRES_TUPLES_OK)
	{
		report_error("%s: %s%s", side->label, !has_succeeded(res) && strcmp(last_sqlstate, "55P03") == 0 ?
					 "could not lock a table to compare it: " : "", PQerrorMessage(side->aux));
		fail();
	}
	PQclear(PQgetResult(side->aux));
	return res;
}

/* The snapshot may be older than what a table has: the first session looks at that. */
static void
hold_definitions(const Move *move, const Side *side, const Shard *shard, const char *tables)
{
	const char *schema = literal(side->conn, shard->schema);
	char	   *lock = lock_of_definitions(move->options, side->conn, schema, tables);
	PGresult   *res = lock == NULL ? NULL : try_and_tell(side, side->aux, side->conn, lock);

	if (lock == NULL)
		return;
	if (res == NULL)
	{
		report_error("%s: could not lock a table to compare it: %s", side->label, PQerrorMessage(side->aux));
		report_hint("The copy stays, and is kept current. Type the same command again.");
		fail();
	}
	PQclear(res);
	run(side->conn, "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = %d", LOCK_LIMIT_MS);
	if (!names_are_held(move->options, side->conn, PQbackendPID(side->aux), schema, tables))
		fail();
}

/*
 * Compare the copies of a shard, both at the same time; says whether they are equal.  Its
 * tables are locked no longer than that.
 */
static bool
compare_shard(const Move *move, const Shard *shard, const char *sql, const char *tables)
{
	const Side *sides[] = {&move->source, &move->target};
	PGresult   *states[2];
	bool		is_equal = true;

	for (int i = 0; i < 2; i++)
		hold_definitions(move, sides[i], shard, literal(sides[i]->conn, tables));
	for (int i = 0; i < 2; i++)
		(void) PQsendQuery(sides[i]->aux, sql);
	for (int i = 0; i < 2; i++)
		states[i] = receive(sides[i]);
	for (int i = 0; i < 2; i++)
	{
		run(sides[i]->aux, "ROLLBACK TO free");
		if (PQtransactionStatus(sides[i]->conn) == PQTRANS_INTRANS)
			run(sides[i]->conn, "COMMIT");
	}
	for (int row = 0; row < PQntuples(states[0]); row++)
	{
		const char *name = PQgetvalue(states[0], row, 0);
		const char *here = PQgetvalue(states[0], row, 1);
		const char *there = PQgetvalue(states[1], row, 1);

		if (strcmp(here, there) == 0)
			report_verbose("table \"%s\": %s", name, here);
		else
		{
			report_error("table \"%s\" differs: source %s, target %s", name, here, there);
			is_equal = false;
		}
	}
	PQclear(states[0]);
	PQclear(states[1]);
	return is_equal;
}

/*
 * Compare all tables, within the two snapshots, or closed.  A shard with a table
 * that differs is told, and left; false if a server's fail-over is why.
 */
bool
compare_tables(const Move *move, bool is_doubtful)
{
	const Side *sides[] = {&move->source, &move->target};
	PGconn	   *conn = move->source.aux;
	bool		all_equal = true;
	int			ntables = 0;
	const char *what = move->options->verify != VERIFY_CHECKSUMS && !is_doubtful ? "count" :
	strcmp(PQparameterStatus(conn, "server_encoding"), PQparameterStatus(move->target.aux, "server_encoding")) == 0 ?
	"checksum" : "checksum in UTF8";
	PGresult   *shards;

	for (int i = 0; i < 2; i++)
		run(sides[i]->aux, "%sSAVEPOINT free", PQtransactionStatus(sides[i]->aux) == PQTRANS_IDLE ?
			text_of("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL lock_timeout = %d; ", LOCK_LIMIT_MS) : "");
	shards = query(conn, COMPARISONS_SQL, schema_list(move, conn), literal(conn, what), literal(conn, move->name));
	for (int i = 0; i < PQntuples(shards); i++)
	{
		Shard	   *shard = shard_of_schema(move, PQgetvalue(shards, i, 0));

		ntables += atoi(PQgetvalue(shards, i, 1));
		if (compare_shard(move, shard, PQgetvalue(shards, i, 2), PQgetvalue(shards, i, 3)))
			continue;
		all_equal = false;
		if (!is_doubtful)
		{
			report_hint("The shard is where it was. To drop the copy, type: snowid-move abort");
			leave_shard(move, shard);
		}
	}
	PQclear(shards);
	for (int i = 0; i < 2; i++)
		run(sides[i]->aux, "COMMIT");
	if (all_equal)
		report_info("%d tables compared, no difference", ntables);
	return all_equal || !is_doubtful;
}

/*
 * Compare the copies of some shards at the same instant.  Says whether writers
 * could be held up for that.
 */
static Status
verify_some(const Move *move, int retries, bool *taken)
{
	int			pause_ms = 0;
	const char *doubt = NULL;
	char	   *reader = NULL;
	bool		is_right;
	Status		status;

	*taken = false;
	for (int attempt = 0; attempt <= retries; attempt++)
	{
		if (attempt > 0)
		{
			report_verbose("comparison: the locks took too long, attempt %d", attempt);
			back_off(attempt - 1);
		}
		if ((status = wait_for_lag(move)) != STATUS_DONE)
			return status;
		doubt = why_doubtful(move);
		reader = reader_of(move);
		if ((status = take_snapshots(move, taken, &pause_ms)) != STATUS_DONE)
			return status;
		if (*taken)
			break;
	}
	if (!*taken)
		return STATUS_DONE;
	move->tally->pause_ms = Max(move->tally->pause_ms, pause_ms);
	report_info("comparing; writes waited %d ms for it", pause_ms);
	if (doubt != NULL)
		report_info("all rows are compared: %s", doubt);
	is_right = compare_tables(move, doubt != NULL);
	if (!is_right)
		return STATUS_UNDO;
	move = select_shards(move, has_not_failed, NULL);
	if (move->nshards > 0)
	{
		record_step(move, &move->source, VERIFIED);
		if (doubt != NULL)
		{
			record_timelines(move);
			record_reader(move, reader);
		}
	}
	return STATUS_DONE;
}

static bool
is_not_verified(const Move *move, Shard *shard, const void *doubt)
{
	/* On the way back, all that was there has been compared on the way there. */
	return !shard->failed && (doubt != NULL || (journal_of(shard, &move->source)->at.step == COPIED && !is_way_back(shard)));
}

/*
 * Compare the copies as deep as the options say: all together; or, if they
 * cannot be locked at once, one by one.  Who differs or cannot be locked is told
 * and left.
 */
Status
verify(const Move *move)
{
	const char *doubt;
	bool		taken;
	Status		status;

	if ((status = wait_for_lag(move)) != STATUS_DONE)
		return status;
	doubt = why_doubtful(move);
	move = select_shards(move, is_not_verified, doubt);
	if (move->nshards == 0 || (move->options->verify == VERIFY_NONE && doubt == NULL))
		return STATUS_DONE;
	if (move->nshards > 1 &&
		((status = verify_some(move, 0, &taken)) != STATUS_DONE || taken))
		return status;
	for (int i = 0; i < move->nshards; i++)
	{
		if ((status = verify_some(select_range(move, i, 1), move->options->retries, &taken)) != STATUS_DONE)
			return status;
		if (taken)
			continue;
		report_error("could not lock the shard's tables against writers within the limits");
		report_hint("The copy stays, and is kept current. Type the same command again at a quieter time, with a longer --lock-timeout or --pause-limit, or with --verify=none; or snowid-move abort.");
		leave_shard(move, move->shards[i]);
	}
	return STATUS_DONE;
}
