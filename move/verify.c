/*
 * The comparison of the two copies, before the cut-over and without a pause
 * to speak of.
 *
 * It begins with a rehearsal of the cut-over: writers are held up until the
 * target has all that there is, a snapshot is taken on each side, and they go
 * on.  The two snapshots then show the same state of the shard, and are
 * compared at leisure.
 */
#include "postgres_fe.h"

#include "snowid-move.h"

/*
 * Hold writers up, and take the two snapshots.  Returns false if a lock or
 * the target took too long; writers have gone on.
 */
static bool
take_snapshots(Move *move, int *pause_ms)
{
	Side	   *source = &move->source;
	Side	   *target = &move->target;
	char	   *tables;
	int64		start;
	bool		caught_up;

	tables = query_text(source->conn,
						"SELECT string_agg(format('ONLY %%I.%%I', n.nspname, c.relname), ', ' ORDER BY t.place) "
						"FROM snowid.shard_tables(%s) WITH ORDINALITY t (oid, place) "
						"JOIN pg_class c ON c.oid = t.oid JOIN pg_namespace n ON n.oid = c.relnamespace",
						literal(source->conn, move->schema));
	if (tables == NULL)
		tables = pg_strdup("ONLY snowid.moves");

	begin_bounded(move, source);
	start = now_ms();
	if (!try_run(source->conn, "LOCK TABLE %s IN SHARE MODE", tables))
	{
		roll_back(move, source);
		return false;
	}
	caught_up = wait_for_replay(source, target, move->name,
								pause_end(move, start));
	if (caught_up)
	{
		run(source->aux, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
		run(source->aux, "SELECT FROM snowid.moves");
		run(target->aux, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
		run(target->aux, "SELECT FROM snowid.moves");
		if (!try_run(source->conn, "SELECT"))
			caught_up = false;
	}
	*pause_ms = (int) (now_ms() - start);
	if (!try_run(source->conn, "COMMIT"))
	{
		caught_up = false;
		roll_back(move, source);
	}
	if (!caught_up)
	{
		run(source->aux, "ROLLBACK");
		run(target->aux, "ROLLBACK");
	}
	return caught_up;
}

/*
 * One table's count, and checksum if wanted; it does not depend on the order.
 *
 * Not t::text: t may be a column, too, and a table's owner can make that cast a
 * function of his own, which a superuser would run.  Two encodings are compared
 * in one.
 */
static char *
table_state_query(const Move *move, PGconn *conn, const char *table)
{
	bool		one_encoding =
	strcmp(PQparameterStatus(move->source.aux, "server_encoding"),
		   PQparameterStatus(move->target.aux, "server_encoding")) == 0;

	return text_of("SELECT count(*)%s FROM ONLY %s.%s t",
				   move->options->verify != VERIFY_CHECKSUMS ? "" :
				   one_encoding
				   ? ", sum(hashtextextended(textin(record_out(t.*)) COLLATE \"C\", 0)::numeric)"
				   : ", sum(hashtextextended(encode(convert_to(textin(record_out(t.*)), 'UTF8'), 'hex') COLLATE \"C\", 0)::numeric)",
				   ident(conn, move->schema), ident(conn, table));
}

static void
send_query(PGconn *conn, const char *sql)
{
	if (!PQsendQuery(conn, sql))
	{
		report_error("%s", PQerrorMessage(conn));
		fail();
	}
}

static char *
receive(PGconn *conn)
{
	PGresult   *res = PQgetResult(conn);
	char	   *state;

	if (PQresultStatus(res) != PGRES_TUPLES_OK)
	{
		report_error("%s", PQerrorMessage(conn));
		fail();
	}
	state = text_of("%s rows%s%s", PQgetvalue(res, 0, 0),
					PQnfields(res) > 1 ? ", checksum " : "",
					PQnfields(res) > 1 ? PQgetvalue(res, 0, 1) : "");
	PQclear(res);
	while ((res = PQgetResult(conn)) != NULL)
		PQclear(res);
	return state;
}

/* Compare the copies as deep as the options say; fails if they differ. */
void
verify(Move *move)
{
	Side	   *source = &move->source;
	Side	   *target = &move->target;
	Verify		depth = move->options->verify;
	PGresult   *tables;
	int			pause_ms = 0;
	int			differ = 0;

	if (depth == VERIFY_NONE)
		return;
	for (int attempt = 0;; attempt++)
	{
		wait_for_lag(move, source, move->name);
		if (take_snapshots(move, &pause_ms))
			break;
		if (attempt >= move->options->retries)
		{
			report_error("could not hold up the writers of the shard within the limits");
			report_hint("The copy is kept and follows. Type the same command again at a quieter time, with a longer --lock-timeout or --pause-limit, or with --verify=none; or snowid-move abort.");
			fail();
		}
		report_verbose("comparison: the locks took too long, attempt %d", attempt + 1);
		back_off(attempt);
	}
	report_info("comparing; writes waited %d ms for it", pause_ms);

	tables = query(source->aux,
				   "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
				   "WHERE n.nspname = %s AND c.relkind = 'r' ORDER BY c.relname",
				   literal(source->aux, move->schema));
	for (int i = 0; i < PQntuples(tables); i++)
	{
		const char *table = PQgetvalue(tables, i, 0);
		char	   *here;
		char	   *there;

		send_query(source->aux, table_state_query(move, source->aux, table));
		send_query(target->aux, table_state_query(move, target->aux, table));
		here = receive(source->aux);
		there = receive(target->aux);
		if (strcmp(here, there) != 0)
		{
			report_error("table \"%s\" differs: source %s, target %s", table, here, there);
			differ++;
		}
		else
			report_verbose("table \"%s\": %s", table, here);
		free(here);
		free(there);
	}
	run(source->aux, "COMMIT");
	run(target->aux, "COMMIT");
	if (differ > 0)
	{
		report_hint("The shard is where it was. To drop the copy, type: snowid-move abort");
		fail();
	}
	report_info("%d tables compared, no difference", PQntuples(tables));
	PQclear(tables);
	record_step(move, source, "verified");
}
