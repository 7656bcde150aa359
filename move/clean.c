/*
 * What comes after the cut-over, and the two ends of a move: finish, which
 * drops the copy that was left behind, and abort, which drops the new one.
 *
 * Everything here looks at what there is, and can be done again.
 */
#include "postgres_fe.h"

#include "snowid-move.h"

/* How long what uses a slot, or a name, may take to end. */
#define END_WAIT_MS		10000

/*
 * Drop a subscription, but not its slot, which the other server may be too
 * far away to drop now.
 */
void
drop_subscription(Side *side, const char *name)
{
	PGconn	   *conn = side->conn;

	if (!query_bool(conn,
					"SELECT EXISTS (SELECT FROM pg_subscription WHERE subname = %s AND subdbid = "
					"(SELECT oid FROM pg_database WHERE datname = current_database()))",
					literal(conn, name)))
		return;
	run(conn, "BEGIN");
	run(conn, "ALTER SUBSCRIPTION %s DISABLE", ident(conn, name));
	run(conn, "ALTER SUBSCRIPTION %s SET (slot_name = NONE)", ident(conn, name));
	run(conn, "DROP SUBSCRIPTION %s", ident(conn, name));
	run(conn, "COMMIT");
}

/*
 * Drop a slot if it is there.  Whoever reads it belongs to a subscription
 * that is gone, or to a program that is, and may not have noticed yet.
 */
void
drop_slot(const Side *side, const char *name)
{
	int64		until = now_ms() + END_WAIT_MS;

	while (query_bool(side->conn,
					  "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = %s)",
					  literal(side->conn, name)))
	{
		if (try_run(side->conn, "SELECT pg_drop_replication_slot(%s)",
					literal(side->conn, name)))
			break;
		if (strcmp(last_sqlstate, "55006") != 0 || now_ms() > until)
		{
			report_error("%s: %s", side->label, PQerrorMessage(side->conn));
			fail();
		}
		run(side->conn,
			"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
			"WHERE slot_name = %s AND active_pid IS NOT NULL",
			literal(side->conn, name));
		wait_ms(10);
	}
}

void
drop_publication(const Side *side, const char *name)
{
	run(side->conn, "DROP PUBLICATION IF EXISTS %s", ident(side->conn, name));
}

/*
 * The slots that the copy of single tables uses go with the subscription,
 * unless the target could not reach the source just then.
 */
static void
drop_table_slots(const Move *move, const Side *source)
{
	PGresult   *res;

	res = query(source->conn,
				"SELECT slot_name FROM pg_replication_slots, snowid.moves "
				"WHERE slot_name LIKE details ->> 'table_slots' AND shard = %d "
				"AND database = current_database()", move->options->shard);
	for (int i = 0; i < PQntuples(res); i++)
		drop_slot(source, PQgetvalue(res, i, 0));
	PQclear(res);
}

/*
 * Have the writes on the server that the shard has come to sent back to the
 * one that it has left, from the instant on when it was opened.
 */
static void
subscribe_back(Move *move, Side *from, Side *to)
{
	PGconn	   *conn = from->conn;
	const char *name = to->journal.reverse_name;
	char	   *oid;

	if (!query_bool(conn,
					"SELECT EXISTS (SELECT FROM pg_subscription WHERE subname = %s AND subdbid = "
					"(SELECT oid FROM pg_database WHERE datname = current_database()))",
					literal(conn, name)))
		run(conn,
			"CREATE SUBSCRIPTION %s CONNECTION %s PUBLICATION %s "
			"WITH (create_slot = false, slot_name = %s, copy_data = false, enabled = false)",
			ident(conn, name), literal(conn, to->conninfo), ident(conn, name),
			literal(conn, name));
	oid = query_text(conn,
					 "SELECT oid FROM pg_subscription WHERE subname = %s AND NOT subenabled",
					 literal(conn, name));
	if (oid == NULL)
		return;

	/*
	 * Until it is enabled, nobody has used its origin, and so the position
	 * can be set.  The slot is older: what it still holds from before is what
	 * has come from here.
	 */
	run(conn, "SELECT pg_replication_origin_advance(%s, %s)",
		literal(conn, text_of("pg_%s", oid)), literal(conn, to->journal.reverse_lsn));
	run(conn, "ALTER SUBSCRIPTION %s ENABLE", ident(conn, name));
}

/*
 * An expression: is somebody creating a relation in the schema?  He holds a
 * lock on it until his commit, since PostgreSQL 9.2
 * (RangeVarGetAndCheckCreationNamespace).
 */
char *
being_extended_sql(PGconn *conn, const char *schema)
{
	return text_of("EXISTS (SELECT FROM pg_locks WHERE locktype = 'object' "
				   "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
				   "AND classid = 'pg_namespace'::regclass "
				   "AND objid = (SELECT oid FROM pg_namespace WHERE nspname = %s) "
				   "AND pid IS DISTINCT FROM pg_backend_pid())",
				   literal(conn, schema));
}

/*
 * Rename the copy that was left behind, so that nobody takes it for the shard.
 *
 * Statements that were waiting when the shard was closed find its tables by
 * name once more, so they must have ended: they shall get the error that
 * tells them where to go.  Who is creating a table would find it renamed
 * under his hands; not all minor releases let him hold the renaming up.
 */
static void
rename_copy(Move *move, Side *from)
{
	PGconn	   *conn = from->conn;
	int64		until = now_ms() + END_WAIT_MS;
	char	   *name = NULL;

	while (now_ms() < until &&
		   query_bool(conn,
					  "SELECT EXISTS (SELECT FROM pg_stat_activity a, snowid.moves m "
					  "WHERE m.shard = %d AND a.state = 'active' AND a.query_start <= m.changed_at "
					  "AND a.backend_type = 'client backend' AND a.pid <> pg_backend_pid() "
					  "AND EXISTS (SELECT FROM pg_locks l JOIN pg_class c ON c.oid = l.relation "
					  "JOIN pg_namespace n ON n.oid = c.relnamespace "
					  "WHERE l.pid = a.pid AND n.nspname = m.schema "
					  "AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')))",
					  move->options->shard))
		wait_ms(10);
	while (query_bool(conn, "SELECT %s", being_extended_sql(conn, move->schema)))
	{
		if (now_ms() > until)
		{
			report_error("somebody is creating something in the closed copy of shard %d at %s",
						 move->options->shard, from->home);
			report_hint("It is not on the other server. When his transaction has ended, type the same command again.");
			fail();
		}
		wait_ms(10);
	}

	name = query_text(conn,
					  "SELECT s FROM generate_series(0, 1000) i, LATERAL "
					  "(SELECT (%s || '_moved' || CASE WHEN i > 0 THEN i::text ELSE '' END)) x (s) "
					  "WHERE octet_length(s) < 64 AND NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = s) "
					  "ORDER BY i LIMIT 1", literal(conn, move->schema));
	run(conn, "BEGIN");
	if (name != NULL)
	{
		run(conn, "SET LOCAL lock_timeout = %d", END_WAIT_MS);
		run(conn, "ALTER SCHEMA %s RENAME TO %s", ident(conn, move->schema), ident(conn, name));
		run(conn, "UPDATE snowid.moves SET schema = %s WHERE shard = %d",
			literal(conn, name), move->options->shard);
	}
	record_step(move, from, "moved");
	run(conn, "COMMIT");
	if (name != NULL)
		report_info("the closed copy at %s is now schema \"%s\"", from->home, name);
}

/*
 * Tell the server that keeps the registry for all, if there is one.  The
 * shard is open whether it can be told now or not.
 */
static void
tell_registry(const Move *move, const Side *from, const Side *to)
{
	const char *conninfo = move->options->registry != NULL ? move->options->registry : from->journal.registry;
	PGconn	   *conn;
	PGresult   *res;

	if (conninfo == NULL)
		return;
	conn = open_connection("registry", conninfo, false);
	if (conn == NULL)
		fail();
	res = query(conn, "UPDATE snowid.shard_registry SET home = %s WHERE shard = %d",
				literal(conn, to->home), move->options->shard);
	if (strcmp(PQcmdTuples(res), "0") == 0)
	{
		report_warning("the registry does not have shard %d", move->options->shard);
		report_hint("Type there: INSERT INTO snowid.shard_registry (shard, schema, home) VALUES (%d, %s, %s);",
					move->options->shard, literal(conn, move->schema), literal(conn, to->home));
	}
	PQclear(res);
	PQfinish(conn);
}

/*
 * After the cut-over: end the replication that has brought the shard, begin
 * the one back if wanted, and rename the copy that was left behind.
 */
void
clean_up_after(Move *move, Side *from, Side *to, const char *name)
{
	bool		is_first = from == &move->source;

	drop_subscription(to, name);
	drop_slot(from, name);
	drop_publication(from, name);
	tell_registry(move, from, to);

	/* Tables are found by name by replication too. */
	if (is_first && from->journal.reverse)
	{
		record_detail(move, to, "fingerprint",
					  query_text(to->conn, "%s", fingerprint_sql(to->conn, move->schema)));
		subscribe_back(move, from, to);
		record_step(move, from, "moved");
	}
	else
	{
		/* After a way back there is none again. */
		if (from->journal.reverse)
			run(from->conn, "UPDATE snowid.moves SET details = details - 'reverse' WHERE shard = %d",
				move->options->shard);
		if (from->journal.keep_name)
			record_step(move, from, "moved");
		else
			rename_copy(move, from);
	}
	read_journal(move, from);
	read_journal(move, to);
}

/*
 * Tables that were made in the copy after it was closed, as that connection
 * sees it, are nowhere else.
 */
static void
refuse_newer_tables(const Side *source, PGconn *conn)
{
	char	   *newer;

	newer = query_text(conn,
					   "SELECT string_agg(format('%%I.%%I', n.nspname, c.relname), ', ') "
					   "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
					   "WHERE n.nspname = %s AND c.relkind IN ('r', 'p') AND NOT EXISTS "
					   "(SELECT FROM pg_trigger WHERE tgrelid = c.oid AND tgname = 'snowid_fence')",
					   literal(conn, source->journal.schema));
	if (newer != NULL)
	{
		report_error("tables of the copy at %s were made after it was closed: %s", source->home, newer);
		report_hint("They are not on the other server. Carry them over yourself, drop them, and type the same command again.");
		exit(EXIT_FAILED);
	}
}

/* Drop what was left behind, and the journal. The registries stay. */
void
finish(Move *move)
{
	Side	   *source = &move->source;
	Side	   *target = &move->target;
	PGconn	   *conn = source->conn;
	const char *reverse_name = source->journal.reverse_name;

	refuse_newer_tables(source, conn);
	drop_subscription(source, reverse_name);
	if (target->conn != NULL)
	{
		drop_slot(target, reverse_name);
		drop_publication(target, reverse_name);
		run(target->conn, "DELETE FROM snowid.moves WHERE shard = %d", move->options->shard);
	}
	run(conn, "BEGIN");
	run(conn, "DROP SCHEMA IF EXISTS %s CASCADE", ident(conn, source->journal.schema));

	/*
	 * That has waited for those who were creating tables, and nobody else can
	 * begin.  The other connection still sees what it has dropped.
	 */
	refuse_newer_tables(source, source->aux);
	run(conn, "DELETE FROM snowid.moves WHERE shard = %d", move->options->shard);
	run(conn, "COMMIT");
	report_info("shard %d: the copy at %s is dropped", move->options->shard, source->home);
}

/*
 * Undo a move that has not been completed.
 *
 * The target's journal first: from then on nothing opens the shard there, so
 * that the source may, if it had been closed.
 */
void
abort_move(Move *move)
{
	Side	   *source = &move->source;
	Side	   *target = &move->target;
	int			shard = move->options->shard;
	const char *name = source->journal.exists ? source->journal.name : target->journal.name;
	const char *reverse_name = source->journal.exists ? source->journal.reverse_name : target->journal.reverse_name;

	/* Whoever calls: what is dropped below must never be the shard itself. */
	if (is_at(target, "open") || is_role(target, "source") || is_role(source, "target"))
	{
		report_error("shard %d has been opened on the server that it went to", shard);
		fail();
	}

	if (target->journal.exists)
		record_step(move, target, "aborted");
	if (source->journal.exists)
	{
		run(source->conn, "BEGIN");
		record_step(move, source, "aborted");
		if (source->journal.closed)
			run(source->conn, "SELECT snowid.unfence_shard(%d)", shard);
		run(source->conn, "COMMIT");
	}

	if (target->journal.exists)
	{
		drop_subscription(target, name);
		drop_slot(target, reverse_name);
		drop_publication(target, reverse_name);
	}
	if (source->journal.exists)
	{
		drop_table_slots(move, source);
		drop_slot(source, name);
		drop_publication(source, name);
	}
	if (target->journal.exists)
	{
		PGconn	   *conn = target->conn;

		run(conn, "BEGIN");
		if (query_bool(conn, "SELECT details ? 'schema_made' FROM snowid.moves WHERE shard = %d", shard))
			run(conn, "DROP SCHEMA IF EXISTS %s CASCADE", ident(conn, target->journal.schema));
		run(conn,
			"DELETE FROM snowid.shard_registry r USING snowid.moves m "
			"WHERE r.shard = %d AND m.shard = r.shard AND (m.details ->> 'registered')::boolean",
			shard);
		run(conn, "DELETE FROM snowid.moves WHERE shard = %d", shard);
		run(conn, "COMMIT");
	}
	if (source->journal.exists)
		run(source->conn, "DELETE FROM snowid.moves WHERE shard = %d", shard);
	report_info("shard %d: the move is undone", shard);
}

/* Undo the move by ourselves, after an error that no repetition would cure. */
void
give_up(Move *move)
{
	report_info("undoing the move");
	abort_move(move);
	exit(EXIT_FAILED);
}
