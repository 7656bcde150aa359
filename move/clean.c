/*
 * What comes after the cut-over, and the two ends of a move: finish, which
 * drops the copy that was left behind, and abort, which drops the new one.
 *
 * Everything here looks at what there is, and can be done again.
 */
#include "stages.h"

#include "sql/queries.inc"

/* How long what uses the schema's name may take to end. */
#define END_WAIT_MS		10000

/*
 * Wait until nobody uses the names of the closed copies any more.
 *
 * Statements that were waiting when the shard was closed look up its tables by
 * name again.  They must have ended first, so that they get the error with the
 * new home.  A transaction that is creating a table must have ended, too, or the
 * schema would be renamed under it: not all minor releases make us wait there.
 */
static Status
wait_for_users_of_names(const Move *move, const Side *from)
{
	PGconn	   *conn = from->conn;
	int64		until = now_ms() + END_WAIT_MS;

	while (now_ms() < until &&
		   query_bool(conn,
					  "SELECT EXISTS (SELECT FROM pg_stat_activity a, snowid.moves m "
					  "WHERE m.shard IN (%s) AND a.state = 'active' AND a.query_start <= m.changed_at "
					  "AND a.backend_type = 'client backend' AND a.pid <> pg_backend_pid() "
					  "AND EXISTS (SELECT FROM pg_locks l JOIN pg_class c ON c.oid = l.relation "
					  "JOIN pg_namespace n ON n.oid = c.relnamespace "
					  "WHERE l.pid = a.pid AND n.nspname = m.schema "
					  "AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')))",
					  shard_list(move)))
		wait_ms(10);
	while (query_bool(conn, "SELECT %s", being_extended_sql(move, conn)))
	{
		if (now_ms() > until)
		{
			report_error("another transaction is creating objects in the closed copy of %s at %s",
						 move->title, from->home);
			report_hint("They will not be on the other server. When that transaction has ended, type the same command again.");
			return STATUS_FAILED;
		}
		wait_ms(10);
	}
	return STATUS_DONE;
}

/* Rename a copy that was left behind, in the transaction that is open. */
static void
rename_copy(const Side *from, const Shard *shard)
{
	PGconn	   *conn = from->conn;
	char	   *name = query_text(conn,
								  "SELECT s FROM generate_series(0, 1000) i, LATERAL "
								  "(SELECT (%s || '_moved' || CASE WHEN i > 0 THEN i::text ELSE '' END)) x (s) "
								  "WHERE octet_length(s) < 64 AND NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = s) "
								  "ORDER BY i LIMIT 1", literal(conn, shard->schema));

	if (name == NULL)
		return;
	run(conn, "ALTER SCHEMA %s RENAME TO %s", ident(conn, shard->schema), ident(conn, name));
	run(conn, "UPDATE snowid.moves SET schema = %s WHERE shard = %d",
		literal(conn, name), shard->number);
}

/*
 * Rename the copies that were left behind, so that nobody takes them for the
 * shards.
 */
static Status
rename_copies(const Move *move, const Side *from)
{
	PGconn	   *conn = from->conn;
	Status		status = wait_for_users_of_names(move, from);

	if (status != STATUS_DONE)
		return status;
	run(conn, "BEGIN");
	run(conn, "SET LOCAL lock_timeout = %d", END_WAIT_MS);
	for (int i = 0; i < move->nshards; i++)
		rename_copy(from, move->shards[i]);
	record_step(move, from, "moved");
	run(conn, "COMMIT");
	read_journal(move, from);
	for (int i = 0; i < move->nshards; i++)
	{
		const char *name = journal_of(move->shards[i], from)->schema;

		if (strcmp(name, move->shards[i]->schema) != 0)
			report_info("the closed copy at %s is now schema \"%s\"", from->home, name);
	}
	return STATUS_DONE;
}

/*
 * Tell the server that keeps the registry for all, if there is one.  The
 * shards are open whether it can be told now or not.
 */
Status
tell_registry(const Move *move, const Side *from, const Side *to)
{
	const char *conninfo = move->options->registry != NULL
	? move->options->registry : set_journal(move, from)->registry;
	PGconn	   *conn;

	if (conninfo == NULL)
		return STATUS_DONE;
	conn = open_connection("registry", conninfo);
	if (PQstatus(conn) != CONNECTION_OK)
	{
		report_warning("registry: %s", PQerrorMessage(conn));
		PQfinish(conn);
		return STATUS_FAILED;
	}
	for (int i = 0; i < move->nshards; i++)
	{
		const Shard *shard = move->shards[i];
		PGresult   *res = query(conn, "UPDATE snowid.shard_registry SET home = %s WHERE shard = %d",
								literal(conn, to->home), shard->number);

		if (strcmp(PQcmdTuples(res), "0") == 0)
		{
			report_warning("the registry does not have shard %d", shard->number);
			report_hint("Type there: INSERT INTO snowid.shard_registry (shard, schema, home) VALUES (%d, %s, %s);",
						shard->number, literal(conn, shard->schema), literal(conn, to->home));
		}
		PQclear(res);
	}
	PQfinish(conn);
	return STATUS_DONE;
}

/*
 * Publications of the source that have had tables of the shards: nothing
 * carries their membership over.
 */
void
tell_publications(const Move *move)
{
	PGconn	   *conn = move->source.conn;
	const char *theirs = text_of("FROM snowid.moves m JOIN snowid.shard_registry r USING (shard) JOIN pg_namespace n ON nspname = m.schema "
								 "AND m.shard IN (%s)", shard_list(move));
	PGresult   *res = query(conn,
							"SELECT pubname, format('TABLE %%s', string_agg(format('%%I.%%I', r.schema, relname), ', ' ORDER BY r.schema, relname)) "
							"%s JOIN pg_class c ON relnamespace = n.oid JOIN pg_publication_rel ON prrelid = c.oid "
							"JOIN pg_publication p ON p.oid = prpubid WHERE pubname <> %s GROUP BY pubname "
							"UNION ALL SELECT pubname, format('TABLES IN SCHEMA %%s', string_agg(quote_ident(r.schema), ', ' ORDER BY r.schema)) "
							"%s JOIN pg_publication_namespace ON pnnspid = n.oid JOIN pg_publication p ON p.oid = pnpubid GROUP BY pubname ORDER BY 1",
							theirs, literal(conn, move->reverse_name), theirs);

	for (int row = 0; row < PQntuples(res); row++)
	{
		report_warning("publication \"%s\" of the source has had tables of %s", PQgetvalue(res, row, 0), move->title);
		report_hint("If there is such a publication at %s, type there: ALTER PUBLICATION %s ADD %s;",
					move->target.home, ident(conn, PQgetvalue(res, row, 0)), PQgetvalue(res, row, 1));
	}
	PQclear(res);
}

/*
 * After the hand-over: end the replication that has brought the shards, if the
 * batch is complete; begin the one back, if wanted, for which it must be; and
 * rename the copies that were left behind.
 */
Status
clean_up_after(const Move *move, const Side *from, const Side *to, const char *name, bool is_complete)
{
	const Journal *journal = set_journal(move, from);
	bool		is_first = is_source(move, from);

	if (!wait_for_standbys(to, now_ms() + END_WAIT_MS))
	{
		report_error("a standby of %s does not have the shard yet", to->home);
		report_hint("If it were promoted, the copy that is left behind would be needed. When it follows again, or is gone, type the same command again.");
		return STATUS_FAILED;
	}
	if (is_complete)
	{
		drop_subscription(to, name);
		if (drop_slot(from, name) != STATUS_DONE)
			return STATUS_FAILED;
		drop_publication(from, name);
	}
	else
		take_out(move, from, to, name);
	if (tell_registry(move, from, to) != STATUS_DONE)
		return STATUS_FAILED;

	/* Tables are found by name by replication too. */
	if (is_first && journal->reverse)
	{
		if (!is_complete)
			return STATUS_DONE;
		subscribe_back(move, from, to);
		record_step(move, from, "moved");
	}
	else
	{
		/* After a way back there is none again. */
		if (journal->reverse)
			run(from->conn, "UPDATE snowid.moves SET details = details - 'reverse' WHERE shard IN (%s)",
				shard_list(move));
		if (journal->keep_name)
			record_step(move, from, "moved");
		else if (rename_copies(move, from) != STATUS_DONE)
			return STATUS_FAILED;
	}
	read_journal(move, from);
	read_journal(move, to);
	return STATUS_DONE;
}

/*
 * Tables that were made in a copy after it was closed, as that connection
 * sees it, are nowhere else.
 */
static Status
refuse_newer_tables(const Move *move, const Side *source, PGconn *conn)
{
	char	   *newer = query_text(conn,
								   "SELECT string_agg(format('%%I.%%I', n.nspname, c.relname), ', ') "
								   "FROM snowid.moves m JOIN pg_namespace n ON n.nspname = m.schema JOIN pg_class c ON c.relnamespace = n.oid "
								   "WHERE m.shard IN (%s) AND c.relkind IN ('r', 'p') AND NOT EXISTS "
								   "(SELECT FROM pg_trigger WHERE tgrelid = c.oid AND tgname = 'snowid_fence')", shard_list(move));

	if (newer == NULL)
		return STATUS_DONE;
	report_error("tables of the copy at %s were made after it was closed: %s", source->home, newer);
	report_hint("They are not on the other server. Copy them there, drop them here, and type the same command again.");
	failure_exit_code = EXIT_FAILED;
	return STATUS_FAILED;
}

/*
 * Has a definition of a copy been changed since it was closed?  A transaction
 * that was open then may have done it, such as one with ALTER FUNCTION, which no
 * lock tells of.
 */
static bool
is_copy_changed(const Side *source, Shard *shard)
{
	const Journal *j = journal_of(shard, source);
	char	   *now;
	bool		changed;

	if (j->fingerprint == NULL)
		return false;
	now = take_fingerprint(source->conn, j->schema);
	changed = !is_as_noted(j->fingerprint, now);
	free(now);
	return changed;
}

/* What was changed in a closed copy is nowhere else, either. */
static Status
refuse_changed_copies(const Move *move, const Side *source)
{
	for (int i = 0; i < move->nshards && !move->options->cascade; i++)
	{
		const char *schema = journal_of(move->shards[i], source)->schema;

		if (!is_copy_changed(source, move->shards[i]))
			continue;
		report_error("a definition in the copy at %s, schema \"%s\", was changed after it was closed", source->home, schema);
		report_hint("The other server does not have that change. Compare what pg_dump --schema-only says of both, change it there, and type: snowid-move finish --cascade");
		failure_exit_code = EXIT_FAILED;
		return STATUS_FAILED;
	}
	return STATUS_DONE;
}

/* What others have made of the copies would go with them. */
static Status
refuse_outside_users(const Move *move, const Side *source, PGconn *conn)
{
	PQExpBufferData schemas;
	char	   *users;

	if (move->options->cascade)
		return STATUS_DONE;
	initPQExpBuffer(&schemas);
	for (int i = 0; i < move->nshards; i++)
		appendPQExpBuffer(&schemas, "%s%s", i > 0 ? ", " : "",
						  literal(conn, journal_of(move->shards[i], source)->schema));
	users = query_text(conn, "SELECT string_agg(user_name, ', ' ORDER BY user_name) FROM (" OUTSIDE_USERS_SQL ") u",
					   text_of("ARRAY[%s]::text[]", schemas.data));
	if (users == NULL)
		return STATUS_DONE;
	report_error("objects of other schemas at %s use the copy, and would be dropped with it: %s", source->home, users);
	report_hint("Drop or change them and type the same command again; or let finish drop them: --cascade.");
	failure_exit_code = EXIT_FAILED;
	return STATUS_FAILED;
}

static void
drop_schema(const Move *single, const Side *side)
{
	run(side->conn, "DROP SCHEMA IF EXISTS %s CASCADE", ident(side->conn, set_journal(single, side)->schema));
}

static void
forget_journal(const Move *move, const Side *side)
{
	run(side->conn, "DELETE FROM snowid.moves WHERE shard IN (%s)", shard_list(move));
}

/* A fail-over has opened a copy for some time. */
static Status
refuse_reopened(const Move *move, const Side *source)
{
	char	   *names = query_text(source->conn, "SELECT string_agg(quote_ident(schema), ', ') FROM snowid.moves WHERE shard IN (%s) AND details ? 'reopened'",
								   shard_list(move));

	if (names == NULL || move->options->cascade)
		return STATUS_DONE;
	report_error("the copy at %s was open after a fail-over, and may have rows that are nowhere else: schema %s", source->home, names);
	report_hint("Compare it, carry over what is missing, and type: snowid-move finish --cascade");
	failure_exit_code = EXIT_FAILED;
	return STATUS_FAILED;
}

/* Is nothing in the copies that would be lost with them? */
Status
check_copies(const Move *move, const Side *source)
{
	if (refuse_newer_tables(move, source, source->conn) != STATUS_DONE ||
		refuse_outside_users(move, source, source->conn) != STATUS_DONE ||
		refuse_reopened(move, source) != STATUS_DONE)
		return STATUS_FAILED;
	return refuse_changed_copies(move, source);
}

/*
 * Drop copies that were left behind and checked, with their rows in the journal.
 * Throttled, this works half of the time.
 */
Status
drop_copies(const Move *move, const Side *source, bool throttled)
{
	/* One by one, since dropping takes a lock for each thing. */
	for (int i = 0; i < move->nshards; i++)
	{
		const Move *single = select_range(move, i, 1);
		int64		start = now_ms();

		run(source->conn, "BEGIN");
		drop_schema(single, source);

		/*
		 * That has waited for transactions that were creating tables, and no
		 * new one can begin.  The other connection still sees what it has
		 * dropped.
		 */
		if (refuse_newer_tables(single, source, source->aux) != STATUS_DONE ||
			refuse_outside_users(single, source, source->aux) != STATUS_DONE)
		{
			run(source->conn, "ROLLBACK");
			return STATUS_FAILED;
		}
		forget_journal(single, source);
		run(source->conn, "COMMIT");
		if (throttled)
			wait_ms((int) (now_ms() - start));
	}
	report_info("%s: the cop%s at %s %s dropped", move->title, move->nshards == 1 ? "y" : "ies", source->home,
				move->nshards == 1 ? "is" : "are");
	return STATUS_DONE;
}

/* Drop what was left behind, and the journal. The registries stay. */
Status
finish(const Move *move)
{
	const Side *source = &move->source;
	const Side *target = &move->target;
	const char *reverse_name = set_journal(move, source)->reverse_name;

	if (check_copies(move, source) != STATUS_DONE)
		return STATUS_FAILED;
	drop_subscription(source, reverse_name);
	if (drop_slot(target, reverse_name) != STATUS_DONE)
		return STATUS_FAILED;
	drop_publication(target, reverse_name);
	remove_fence(move, target);
	forget_journal(move, target);
	return drop_copies(move, source, false);
}

/* On the target: drop a copy, and what the move has registered there. */
static void
drop_new_copy(const Move *single, const Side *target)
{
	PGconn	   *conn = target->conn;

	run(conn, "BEGIN");
	if (query_bool(conn, "SELECT details ? 'schema_made' FROM snowid.moves WHERE shard IN (%s)",
				   shard_list(single)))
		drop_schema(single, target);
	run(conn,
		"DELETE FROM snowid.shard_registry r USING snowid.moves m "
		"WHERE r.shard IN (%s) AND m.shard = r.shard AND (m.details ->> 'registered')::boolean",
		shard_list(single));
	forget_journal(single, target);
	run(conn, "COMMIT");
}

/* Before a batch is copied: drop what a copy has left that did not come to its end. */
Status
forget_copy(const Move *move)
{
	const Side *target = &move->target;

	drop_subscription(target, move->name);
	if (drop_slot(&move->source, move->name) != STATUS_DONE)
		return STATUS_FAILED;
	drop_publication(&move->source, move->name);
	if (is_at(move, target, "claimed"))
		return STATUS_DONE;
	remove_fence(move, &move->source);
	report_info("%s: what an unfinished copy has left at %s is dropped", move->title, target->home);
	for (int i = 0; i < move->nshards; i++)
		drop_new_copy(select_range(move, i, 1), target);
	return claim_target(move) ? STATUS_DONE : STATUS_FAILED;
}

/* Does the batch have other shards that are still replicated? */
static bool
others_need_replication(const Move *move, const char *move_id)
{
	const Side *source = &move->source;

	return query_bool(source->conn,
					  "SELECT EXISTS (SELECT FROM snowid.moves WHERE details ->> 'move_id' = %s "
					  "AND shard NOT IN (%s) AND step <> 'moved')",
					  literal(source->conn, move_id), shard_list(move));
}

/*
 * Undo a move that has not been completed, of a batch or of a part of one.
 *
 * The target's journal first: from then on nothing opens the shards there, so
 * that the source may, if they had been closed.
 */
Status
abort_move(const Move *move)
{
	const Side *source = &move->source;
	const Side *target = &move->target;
	bool		on_source = is_known(move, source);
	bool		on_target = is_known(move, target);
	const Journal *journal = set_journal(move, on_source ? source : target);
	const char *name = journal->name;
	const char *reverse_name = journal->reverse_name;
	bool		is_shared = others_need_replication(move, journal->move_id);

	/* For every caller: what is dropped below must never be the shard itself. */
	if (is_at(move, target, "open") || is_role(move, target, "source") || is_role(move, source, "target"))
	{
		report_error("%s has been opened on the server that it was moved to", move->title);
		return STATUS_FAILED;
	}

	if (on_target)
		record_step(move, target, "aborted");
	if (on_source)
	{
		run(source->conn, "BEGIN");
		record_step(move, source, "aborted");
		run(source->conn, "SELECT snowid_internal.open_shards(ARRAY(SELECT shard FROM snowid.moves WHERE closed AND shard IN (%s)), NULL)",
			shard_list(move));
		run(source->conn, "COMMIT");
		resume_pools(move, source);
	}

	if (is_shared)
		take_out(move, source, target, name);

	/* Nor do those go on from their rows whose slot has changes of these. */
	if (is_shared && target->conn != NULL)
		run(target->conn, "UPDATE snowid.moves SET step = 'schema' WHERE step = 'rows' AND details ->> 'move_id' = %s",
			literal(target->conn, journal->move_id));
	if (on_target && !is_shared)
	{
		drop_subscription(target, name);
		if (drop_slot(target, reverse_name) != STATUS_DONE)
			return STATUS_FAILED;
		drop_publication(target, reverse_name);
	}
	if (on_source && !is_shared)
	{
		if (drop_slot(source, name) != STATUS_DONE)
			return STATUS_FAILED;
		drop_publication(source, name);
	}
	for (int i = 0; i < move->nshards && on_target; i++)
		drop_new_copy(select_range(move, i, 1), target);
	if (on_source)
	{
		remove_fence(move, source);
		forget_journal(move, source);
	}
	report_info("%s: the move is undone", move->title);
	return STATUS_DONE;
}
