/*
 * Publications, slots and subscriptions: made, and dropped again.
 *
 * What drops looks at what there is, and can be done again.
 */
#include "stages.h"
#include "sql/queries.inc"

/* How long what uses a slot may take to end. */
#define END_WAIT_MS		20000

/* How often to look whether the target has errors. */
#define LOOK_MS			500

/* How often to ask for a slot. */
#define SLOT_WAIT_MS	500

/*
 * Note in the journal who publishes: what is taken out of the publication and added
 * again may have been written meanwhile.  False if a query failed, as try_run() does.
 */
bool
note_publishing(const Move *move, PGconn *conn)
{
	return try_run(conn, "UPDATE snowid.moves SET details = details || jsonb_build_object('published', "
				   "concat_ws(' ', details ->> 'published', pg_current_xact_id()::xid)) WHERE shard IN (%s)", shard_list(move));
}

/* Publish tables; false as above. */
bool
publish_tables(const Move *move, PGconn *conn, const char *name, const char *tables)
{
	return try_run(conn, "ALTER PUBLICATION %s ADD TABLE %s", ident(conn, name), tables) &&
		note_publishing(move, conn);
}

/*
 * Add the shards' tables to a publication that does not have them.  Partitions
 * one by one, since that is what a write to their parent comes to.
 */
bool
extend_publication(const Move *move, const Side *side, const char *name)
{
	PGresult   *res = try_query(side->conn,
								"SELECT string_agg(format('ONLY %%I.%%I', n.nspname, c.relname), ', ' ORDER BY c.oid) "
								"FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
								"WHERE n.nspname IN (%s) AND c.relkind = 'r' AND c.relpersistence = 'p'",
								schema_list(move, side->conn));
	bool		done = res != NULL && (PQgetisnull(res, 0, 0) || publish_tables(move, side->conn, name, PQgetvalue(res, 0, 0)));

	PQclear(res);
	return done;
}

static bool
has_subscription(PGconn *conn, const char *name)
{
	return query_bool(conn, "SELECT count(*) FROM pg_subscription WHERE subname = %s AND subdbid = "
					  "(SELECT oid FROM pg_database WHERE datname = current_database())", literal(conn, name));
}

/* On the source: with the tables, and the journal.  Whoever has a table locked is told. */
void
publish(const Move *move)
{
	const Side *source = &move->source;
	PGconn	   *conn = source->aux;
	char	   *tables = query_text(conn, "SELECT string_agg(format('ONLY %%I.%%I', nspname, relname), ', ' ORDER BY c.oid) FROM pg_class c "
									"JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname IN (%s) AND relkind = 'r' AND relpersistence = 'p'", schema_list(move, conn));

	run(source->conn, "BEGIN");
	if (tables != NULL)
		run_and_tell(source, source->conn, conn, "LOCK TABLE %s IN SHARE UPDATE EXCLUSIVE MODE", tables);
	run(source->conn, "CREATE PUBLICATION %s", ident(source->conn, move->name));
	if (!extend_publication(move, source, move->name))
		fail_with(source->conn);
	record_step(move, source, PUBLISHED);
	run(source->conn, "COMMIT");
}

/* Take tables, a list of OIDs or a query for them, out of the source's publication; true if some were in it. */
bool
unpublish(const Move *move, const char *tables)
{
	PGconn	   *conn = move->source.conn;
	char	   *published = query_text(conn, "SELECT string_agg(format('ONLY %%s', prrelid::regclass), ', ') FROM pg_publication_rel "
									   "JOIN pg_publication p ON p.oid = prpubid WHERE pubname = %s AND prrelid IN (%s)",
									   literal(conn, move->name), tables);

	if (published != NULL)
		run(conn, "ALTER PUBLICATION %s DROP TABLE %s", ident(conn, move->name), published);
	return published != NULL;
}

/*
 * Have the subscription follow what the publication has; tables that are new to it are
 * copied, or not.  It goes by names.  What has another name by now, or has left its
 * schema, is published no more: the target could follow nothing, or would bring it to a
 * table of others.  Its shard never moves with the copy that it has.
 */
void
refresh(const Move *move, bool copies)
{
	const Side *to = &move->target;
	PGconn	   *conn = move->source.conn;
	char	   *tables = query_text(conn, PUBLISHED_SQL, literal(conn, move->name));

	if (check_following(move, PG_INT64_MAX) != STATUS_DONE)
		fail();
	unpublish(move, text_of("SELECT oid FROM pg_class WHERE oid NOT IN (%s)",
							query_text(to->conn, "SELECT coalesce(string_agg(key, ', '), '0') FROM json_each_text(%s) WHERE to_regclass(value) IS NOT NULL",
									   literal(to->conn, tables))));
	run_and_tell(to, to->conn, to->aux, "ALTER SUBSCRIPTION %s REFRESH PUBLICATION WITH (copy_data = %s)", ident(to->conn, move->name),
				 copies ? "true" : "false");
}

/*
 * What was sent of tables by names, or with columns, that the target lacks is not even
 * skipped there.  The log that the slot keeps tells what that is.  It gets room on the
 * target, and is published no more: its shard never moves with this copy, or is brought
 * anew.  False if the slot is in use: then the target follows.
 */
bool
make_room(const Move *move)
{
	PGconn	   *from = move->source.conn;
	PGconn	   *to = move->target.conn;
	PGresult   *sent = try_query(from, SENT_TABLES_SQL, literal(from, move->name));
	PGresult   *room;

	if (sent == NULL && strcmp(last_sqlstate, "55006") != 0)
		fail_with(from);
	if (sent == NULL)
		return false;
	room = query(to, MAKE_ROOM_SQL, literal(to, PQgetvalue(sent, 0, 0)), literal(to, move->name));
	if (!PQgetisnull(room, 0, 0))
	{
		if (unpublish(move, PQgetvalue(room, 0, 1)))
			report_info("followed no more, since the %s lacks the name or columns: %s", move->target.label, PQgetvalue(room, 0, 2));
		run(to, "%s", PQgetvalue(room, 0, 0));
		refresh(move, false);
	}
	PQclear(sent);
	PQclear(room);
	return true;
}

/* The tables that this has made. */
static void
drop_room(PGconn *conn, const char *name)
{
	char	   *statements = query_text(conn, DROP_ROOM_SQL, literal(conn, name));

	if (statements != NULL)
		run(conn, "%s", statements);
}

/* Wait until what was sent of tables that are published no more is applied, or skipped. */
Status
await_skipped(const Move *move)
{
	const Side *to = &move->target;
	int64		until = now_ms() + END_WAIT_MS;
	int64		seen = count_errors(to, move->name, "apply");

	while (!wait_for_replay(move, Min(until, now_ms() + LOOK_MS)))
		if (now_ms() >= until || mend_after_errors(move, &seen) != STATUS_DONE)
		{
			report_error("the %s does not follow: changes of %s are still on their way", to->label, move->title);
			tell_workers(to, move->name);
			report_hint("When it follows again, type the same command again; or abort all shards that were copied together.");
			return STATUS_FAILED;
		}
	return STATUS_DONE;
}

/*
 * Take shards out of the replication that others of their batch still need.  A
 * subscription follows its publication by names, so this comes before any of
 * theirs changes.  What was sent before is skipped, but needs them: that is awaited.
 */
Status
take_out(const Move *move)
{
	const Side *to = &move->target;

	unpublish(move, text_of("SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname IN (%s)",
							schema_list(move, move->source.conn)));
	if (to->conn == NULL || !has_subscription(to->conn, move->name))
		return STATUS_DONE;
	refresh(move, false);
	if (await_skipped(move) != STATUS_DONE)
		return STATUS_FAILED;
	drop_room(to->conn, move->name);
	return STATUS_DONE;
}

/*
 * Make a slot by a statement, and return a column of what that says.  It waits for
 * all transactions that are writing on that server, whatever they write; and for a
 * slot, if all are in use.
 */
static char *
make_slot(const Side *side, PGconn *conn, PGconn *observer, int column, const char *statement)
{
	int64		told = 0;
	PGresult   *res;
	char	   *value;

	while ((res = try_and_tell(side, conn, observer, statement)) == NULL)
	{
		if (strcmp(last_sqlstate, "53400") != 0)
		{
			report_error("%s: %s", side->label, PQerrorMessage(conn));
			fail();
		}
		if (told == 0 || now_ms() - told >= TELL_MS)
		{
			report_info("%s: waiting for a slot: %s", side->label, PQerrorMessage(conn));
			told = now_ms();
		}
		wait_ms(SLOT_WAIT_MS);
	}
	value = field(res, 0, column);
	PQclear(res);
	return value;
}

/* The slot for the way back, unless it is there. */
void
create_slot(const Side *side, const char *name)
{
	if (!query_bool(side->conn, "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = %s)",
					literal(side->conn, name)))
		free(make_slot(side, side->aux, side->conn, 0,
					   text_of("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", literal(side->aux, name))));
}

/* A slot whose snapshot lasts as long as that session, which does nothing else. */
char *
create_slot_with_snapshot(const Side *side, PGconn *conn, const char *name)
{
	return make_slot(side, conn, side->aux, 2,
					 text_of("CREATE_REPLICATION_SLOT %s LOGICAL pgoutput (SNAPSHOT 'export'%s)", ident(side->conn, name),
							 has_failover_slots(side) ? ", FAILOVER" : ""));
}

/* The tables whose rows can go in binary form from the source to the target, as a query. */
char *
binary_tables(const Move *move, PGconn *conn)
{
	char	   *extensions = query_text(move->target.conn, "SELECT array_agg(concat(extname, ' ', extversion)) FROM pg_extension");

	if (move->source.version / 10000 != move->target.version / 10000 || set_journal(move, &move->source)->target_ddl_md5 != NULL)
		return text_of("SELECT oid FROM pg_class WHERE false");
	return text_of(BINARY_TABLES_SQL, schema_list(move, conn), literal(conn, extensions));
}

/* A subscription of a slot that is there.  Rows are applied as the table's owner, where the server can do that. */
static bool
create_subscription(const Side *from, const Side *to, const char *name, const char *options)
{
	PGconn	   *conn = to->conn;

	return try_run(conn,
				   "CREATE SUBSCRIPTION %s CONNECTION %s PUBLICATION %s WITH (create_slot = false, slot_name = %s, copy_data = false, %s%s)",
				   ident(conn, name), literal_for_subscription(conn, from), ident(conn, name), literal(conn, name), options,
				   applies_as_owner(to) ? ", run_as_owner = false" : "");
}

static void
note_missing(void *missing, const PGresult *res)
{
	const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);

	*(bool *) missing |= state != NULL && strcmp(state, "42704") == 0;
}

/*
 * Is it this source that the target reaches?  Another server has no such publication, of which CREATE SUBSCRIPTION
 * warns; from this one it hears of tables that the target lacks as yet.
 */
Status
reach_publication(const Move *move)
{
	PGconn	   *conn = move->target.conn;
	bool		missing = false;
	PQnoticeReceiver before = PQsetNoticeReceiver(conn, note_missing, &missing);

	run(conn, "BEGIN");
	run(conn, "SET LOCAL client_min_messages = warning");
	if (!create_subscription(&move->source, &move->target, move->name, "enabled = false") && strstr("3F000 42P01", last_sqlstate) == NULL)
		fail_with(conn);
	run(conn, "ROLLBACK");
	PQsetNoticeReceiver(conn, before, NULL);
	return !missing ? STATUS_DONE :
		refuse(STATUS_FAILED, "Say how the target reaches the source: --source-for-target=CONNSTR.",
			   "the target reaches another server than the source, by: %s", move->source.conninfo);
}

/* Begin to follow, from the slot's snapshot on, with the journal. */
void
subscribe(const Move *move)
{
	const Side *target = &move->target;
	PGconn	   *conn = target->conn;
	bool		is_binary = query_bool(move->source.aux, "SELECT NOT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
									   "WHERE nspname IN (%s) AND relkind = 'r' AND c.oid NOT IN (%s))",
									   schema_list(move, move->source.aux), binary_tables(move, move->source.aux));

	run(conn, "BEGIN");
	if (!create_subscription(&move->source, target, move->name,
							 text_of("enabled%s%s", has_failover_slots(target) && has_failover_slots(&move->source) ? ", failover" : "",
									 is_binary ? ", binary" : "")))
		fail_with(conn);
	record_step(move, target, SUBSCRIBED);
	run(conn, "COMMIT");
}

/*
 * Have the writes on the server that the shards have come to sent back to the
 * one that they have left, from the instant on when the first was opened.
 */
void
subscribe_back(const Move *move)
{
	const Side *from = &move->source;
	const Side *to = &move->target;
	PGconn	   *conn = from->conn;
	const char *name = move->reverse_name;
	char	   *oid;

	if (!has_subscription(conn, name))
		create_subscription(to, from, name, "enabled = false");
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
	run(conn, "SELECT pg_replication_origin_advance(%s, %s)", literal(conn, text_of("pg_%s", oid)),
		literal(conn, query_text(to->conn,
								 "SELECT min((details ->> 'reverse_lsn')::pg_lsn) FROM snowid.moves WHERE shard IN (%s)",
								 shard_list(move))));
	run(conn, "ALTER SUBSCRIPTION %s ENABLE", ident(conn, name));
}

/*
 * Drop a subscription, but not its slot, which the other server may be too
 * far away to drop now.
 */
static void
drop_subscription(const Side *side, const char *name)
{
	PGconn	   *conn = side->conn;

	if (!has_subscription(conn, name))
		return;
	run(conn, "BEGIN");
	run(conn, "ALTER SUBSCRIPTION %s DISABLE", ident(conn, name));
	run(conn, "ALTER SUBSCRIPTION %s SET (slot_name = NONE)", ident(conn, name));
	run_and_tell(side, conn, side->aux, "DROP SUBSCRIPTION %s", ident(conn, name));
	drop_room(conn, name);
	run(conn, "COMMIT");
}

/*
 * Drop a slot if it is there.  A process that still reads it serves a
 * subscription or a program that is gone, and may not have noticed yet.
 */
Status
drop_slot(const Side *side, const char *name)
{
	int64		until = now_ms() + END_WAIT_MS;

	while (query_bool(side->conn,
					  "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = %s AND coalesce(database = current_database(), true))",
					  literal(side->conn, name)))
	{
		if (try_run(side->conn, "SELECT pg_drop_replication_slot(%s)",
					literal(side->conn, name)))
			break;
		if (strcmp(last_sqlstate, "55006") != 0 || now_ms() > until)
		{
			report_error("%s: %s", side->label, PQerrorMessage(side->conn));
			return STATUS_FAILED;
		}
		(void) try_run(side->conn,
					   "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
					   "WHERE slot_name = %s AND active_pid IS NOT NULL",
					   literal(side->conn, name));
		wait_ms(10);
	}
	return STATUS_DONE;
}

/* Drop all that has brought rows from one server to the other, where that is reached. */
Status
end_replication(const Side *from, const Side *to, const char *name)
{
	if (to->conn != NULL)
		drop_subscription(to, name);
	if (from->conn == NULL)
		return STATUS_DONE;
	if (drop_slot(from, name) != STATUS_DONE)
		return STATUS_FAILED;
	run(from->conn, "DROP PUBLICATION IF EXISTS %s", ident(from->conn, name));
	return STATUS_DONE;
}
