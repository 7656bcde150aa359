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
		wait_for_replay(source, target, move->name, pause_end(move, start)))
	{
		run(source->aux, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
		run(source->aux, "SELECT FROM snowid.moves");
		run(target->aux, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
		run(target->aux, "SELECT FROM snowid.moves");

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

/*
 * One table's count, and checksum if wanted; it does not depend on the order.  Of
 * the columns that the source has, as texts, since the target may have wider types,
 * and more of them.
 *
 * Not by a cast to text: a table's owner can make that a function of his own,
 * which a superuser would run.  Two encodings are compared in one.
 */
static char *
table_state_query(const Move *move, const char *table, const char *columns)
{
	bool		one_encoding =
	strcmp(PQparameterStatus(move->source.aux, "server_encoding"),
		   PQparameterStatus(move->target.aux, "server_encoding")) == 0;

	if (move->options->verify != VERIFY_CHECKSUMS && who_failed_over(move) == NULL)
		return text_of("SELECT count(*) FROM ONLY %s t", table);
	return text_of(one_encoding
				   ? "SELECT count(*), sum(hashtextextended(textin(record_out(ROW(%s))) COLLATE \"C\", 0)::numeric) FROM ONLY %s t"
				   : "SELECT count(*), sum(hashtextextended(encode(convert_to(textin(record_out(ROW(%s))), 'UTF8'), 'hex') COLLATE \"C\", 0)::numeric) FROM ONLY %s t",
				   columns, table);
}

static bool
send_query(const Side *side, const char *sql)
{
	if (PQsendQuery(side->aux, sql))
		return true;
	report_error("%s: %s", side->label, PQerrorMessage(side->aux));
	return false;
}

/* What table_state_query() says; NULL after telling an error. */
static char *
receive(const Side *side)
{
	PGconn	   *conn = side->aux;
	PGresult   *res = PQgetResult(conn);
	char	   *state = NULL;

	if (PQresultStatus(res) == PGRES_TUPLES_OK)
		state = text_of("%s rows%s%s", PQgetvalue(res, 0, 0),
						PQnfields(res) > 1 ? ", checksum " : "",
						PQnfields(res) > 1 ? PQgetvalue(res, 0, 1) : "");
	else
		report_error("%s: %s", side->label, PQerrorMessage(conn));
	PQclear(res);
	while ((res = PQgetResult(conn)) != NULL)
		PQclear(res);
	return state;
}

/* Compare the copies of a table, both at the same time. */
static Status
compare_table(const Move *move, const char *name, const char *sql, bool *differs)
{
	const Side *source = &move->source;
	const Side *target = &move->target;
	int			mark = mark_texts();
	char	   *here;
	char	   *there;

	if (!send_query(source, sql) || !send_query(target, sql) ||
		(here = receive(source)) == NULL || (there = receive(target)) == NULL)
		return STATUS_FAILED;
	*differs = strcmp(here, there) != 0;
	if (*differs)
		report_error("table \"%s\" differs: source %s, target %s", name, here, there);
	else
		report_verbose("table \"%s\": %s", name, here);
	free_texts(mark);
	return STATUS_DONE;
}

/*
 * Compare all tables, within the two snapshots, or closed.  A shard with a table
 * that differs is told, and left; false if a server's fail-over is why.
 */
bool
compare_tables(const Move *move)
{
	PGconn	   *conn = move->source.aux;
	bool		all_equal = true;
	PGresult   *tables = query(conn,
							   "SELECT n.nspname, c.relname, format('%%I.%%I', n.nspname, c.relname), "
							   "coalesce((SELECT string_agg('t.' || quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute "
							   " WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped), '') "
							   "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
							   "WHERE n.nspname IN (%s) AND c.relkind = 'r' ORDER BY 1, 2",
							   schema_list(move, conn));

	for (int i = 0; i < PQntuples(tables); i++)
	{
		bool		differs;

		if (compare_table(move, PQgetvalue(tables, i, 1),
						  table_state_query(move, PQgetvalue(tables, i, 2), PQgetvalue(tables, i, 3)), &differs) != STATUS_DONE)
			fail();
		if (differs)
		{
			Shard	   *shard = shard_of_schema(move, PQgetvalue(tables, i, 0));

			if (!shard->failed && who_failed_over(move) == NULL)
			{
				report_hint("The shard is where it was. To drop the copy, type: snowid-move abort");
				leave_shard(move, shard);
			}
			all_equal = false;
		}
	}
	if (all_equal)
		report_info("%d tables compared, no difference", PQntuples(tables));
	PQclear(tables);
	return all_equal || who_failed_over(move) == NULL;
}

/*
 * Compare the copies of some shards at the same instant.  Says whether writers
 * could be held up for that.
 */
static Status
verify_some(const Move *move, int retries, bool *taken)
{
	int			pause_ms = 0;
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
		if ((status = wait_for_lag(move, &move->source, move->name)) != STATUS_DONE ||
			(status = take_snapshots(move, taken, &pause_ms)) != STATUS_DONE)
			return status;
		if (*taken)
			break;
	}
	if (!*taken)
		return STATUS_DONE;
	move->tally->pause_ms = Max(move->tally->pause_ms, pause_ms);
	report_info("comparing; writes waited %d ms for it", pause_ms);
	is_right = compare_tables(move);
	run(move->source.aux, "COMMIT");
	run(move->target.aux, "COMMIT");
	if (!is_right)
		return STATUS_UNDO;
	move = select_shards(move, has_not_failed, NULL);
	if (move->nshards > 0)
	{
		record_step(move, &move->source, "verified");
		if (who_failed_over(move) != NULL)
			record_timelines(move);
	}
	return STATUS_DONE;
}

static bool
is_not_verified(const Move *move, Shard *shard, const void *unused)
{
	return !shard->failed && (who_failed_over(move) != NULL || strcmp(journal_of(shard, &move->source)->step, "copied") == 0);
}

/*
 * Compare the copies as deep as the options say: all together; or, if they
 * cannot be locked at once, one by one.  Who differs or cannot be locked is told
 * and left.
 */
Status
verify(const Move *move)
{
	bool		taken;
	Status		status;

	move = select_shards(move, is_not_verified, NULL);
	if (move->nshards == 0 || (move->options->verify == VERIFY_NONE && who_failed_over(move) == NULL))
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
