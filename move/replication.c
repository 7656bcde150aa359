/*
 * Publications, slots and subscriptions: made, and dropped again.
 *
 * What drops looks at what there is, and can be done again.
 */
#include "stages.h"

/* How long what uses a slot may take to end. */
#define END_WAIT_MS		10000

/* How long to wait for a worker to be started. */
#define HURRY_MS		2000

/* How often to ask whether it is our turn to copy; the lock's second key. */
#define TURN_MS			100
#define TURN_KEY		-1

/*
 * Add the shards' tables to a publication that does not have them.  Partitions
 * one by one, since that is what a write to their parent comes to.  False if a
 * query failed, as try_run() does.
 */
bool
extend_publication(const Move *move, const Side *side, const char *name)
{
	PGresult   *res = try_query(side->conn,
								"SELECT string_agg(format('ONLY %%I.%%I', n.nspname, c.relname), ', ' ORDER BY c.oid) "
								"FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
								"WHERE n.nspname IN (%s) AND c.relkind = 'r' AND c.relpersistence = 'p'",
								schema_list(move, side->conn));
	bool		done = res != NULL;

	if (done && !PQgetisnull(res, 0, 0))
		done = try_run(side->conn, "ALTER PUBLICATION %s ADD TABLE %s", ident(side->conn, name),
					   PQgetvalue(res, 0, 0));
	PQclear(res);
	return done;
}

static bool
has_subscription(PGconn *conn, const char *name)
{
	return query_bool(conn,
					  "SELECT EXISTS (SELECT FROM pg_subscription WHERE subname = %s AND subdbid = "
					  "(SELECT oid FROM pg_database WHERE datname = current_database()))",
					  literal(conn, name));
}

static bool
publication_exists(const Side *side, const char *name)
{
	return query_bool(side->conn,
					  "SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = %s)",
					  literal(side->conn, name));
}

/*
 * On the source: with the tables, and the journal.  On the target, for the way
 * back: it gets each shard's tables when that is opened.
 */
void
publish(const Move *move, const Side *side, const char *name)
{
	bool		on_source = is_source(move, side);

	if (!on_source && publication_exists(side, name))
		return;
	run(side->conn, "BEGIN");
	run(side->conn, "CREATE PUBLICATION %s", ident(side->conn, name));
	if (on_source)
	{
		if (!extend_publication(move, side, name))
		{
			report_error("%s: %s", side->label, PQerrorMessage(side->conn));
			fail();
		}
		record_step(move, side, "published");
	}
	run(side->conn, "COMMIT");
}

/*
 * Take shards out of the replication that others of their batch still need.  A
 * subscription follows its publication by names, so this comes before any of
 * theirs changes.  The slots that tables have go with it.
 */
void
take_out(const Move *move, const Side *from, const Side *to, const char *name)
{
	char	   *tables = query_text(from->conn,
									"SELECT string_agg(format('ONLY %%I.%%I', n.nspname, c.relname), ', ') "
									"FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid "
									"JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
									"WHERE p.pubname = %s AND n.nspname IN (%s)",
									literal(from->conn, name), schema_list(move, from->conn));

	if (tables != NULL)
		run(from->conn, "ALTER PUBLICATION %s DROP TABLE %s", ident(from->conn, name), tables);
	if (to->conn != NULL && has_subscription(to->conn, name))
		run_and_tell(to, to->conn, to->aux, "ALTER SUBSCRIPTION %s REFRESH PUBLICATION", ident(to->conn, name));
}

/*
 * Create a slot, unless it is there.  This waits for all transactions that
 * are writing on that server, whatever they write.
 */
void
create_slot(const Side *side, const char *name)
{
	char	   *oldest;

	if (query_bool(side->conn,
				   "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = %s)",
				   literal(side->conn, name)))
		return;
	oldest = query_text(side->conn,
						"SELECT format('%%s (process id %%s, since %%s)', count(*) OVER (), pid, xact_start) "
						"FROM pg_stat_activity WHERE backend_xid IS NOT NULL "
						"AND xact_start < clock_timestamp() - interval '1 s' AND pid <> pg_backend_pid() "
						"ORDER BY xact_start LIMIT 1");
	if (oldest != NULL)
		report_info("%s: waiting for transactions that are writing: %s", side->label, oldest);

	/* On the second connection: the wait is long, and the first looks on. */
	run_and_tell(side, side->aux, side->conn, "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')",
				 literal(side->aux, name));
}

/* The setting is as it was, as far as we are concerned. */
static void
forget_hurry(const Move *move)
{
	run(move->target.conn, "UPDATE snowid.moves SET details = details - 'hurried' WHERE shard IN (%s)",
		shard_list(move));
}

/*
 * Undo hurry_launcher(), also after another run of this program that did not
 * get to it.
 */
void
calm_launcher(const Move *move)
{
	PGconn	   *conn = move->target.conn;

	if (!query_bool(conn, "SELECT bool_or(details ? 'hurried') FROM snowid.moves WHERE shard IN (%s)",
					shard_list(move)))
		return;
	if (!try_run(conn, "ALTER SYSTEM RESET wal_retrieve_retry_interval") ||
		!try_run(conn, "SELECT pg_reload_conf()"))
	{
		report_warning("%s: could not reset wal_retrieve_retry_interval, which stays at 100ms: %s",
					   move->target.label, PQerrorMessage(conn));
		report_hint("On the target, type: ALTER SYSTEM RESET wal_retrieve_retry_interval; SELECT pg_reload_conf();");
	}
	forget_hurry(move);
}

/*
 * Have the new subscription's worker started now.
 *
 * An older launcher starts one worker in wal_retrieve_retry_interval, 5 s by
 * default, so who moves one shard after the other would wait for it each time.
 * Where the server does not let us, it is waited for.
 */
static void
hurry_launcher(const Move *move)
{
	PGconn	   *conn = move->target.conn;
	int64		until = now_ms() + HURRY_MS;

	if (starts_workers_at_once(&move->target) ||
		query_bool(conn,
				   "SELECT s.setting::int <= 1000 OR EXISTS (SELECT FROM pg_file_settings f "
				   "WHERE f.name = s.name AND f.sourcefile LIKE '%%/postgresql.auto.conf') "
				   "FROM pg_settings s WHERE s.name = 'wal_retrieve_retry_interval'"))
		return;
	record_detail(move, conn, "hurried", "yes");
	if (!try_run(conn, "ALTER SYSTEM SET wal_retrieve_retry_interval = '100ms'"))
	{
		report_verbose("%s: %s", move->target.label, PQerrorMessage(conn));
		forget_hurry(move);
		return;
	}
	(void) try_run(conn, "SELECT pg_reload_conf()");
	while (now_ms() < until &&
		   !query_bool(conn, "SELECT EXISTS (SELECT FROM pg_stat_subscription WHERE subname = %s AND pid IS NOT NULL)",
					   literal(conn, move->name)))
		wait_ms(10);
	calm_launcher(move);
}

/*
 * May one more subscription be made here?  Each enabled one has a worker for
 * as long as it is there; of moves that copy, each may need another one, or all
 * have a worker and wait for ever for one that copies a table.
 */
#define HAS_WORKERS \
"SELECT count(*) + count(*) FILTER (WHERE EXISTS (SELECT FROM pg_subscription_rel " \
" WHERE srsubid = s.oid AND srsubstate NOT IN ('r', 's'))) + 2 " \
" <= current_setting('max_logical_replication_workers')::int " \
"FROM pg_subscription s WHERE subenabled"

/*
 * Wait until there are workers for us.  Other moves wait until leave_turn(), so
 * that no two of them see the same workers.
 */
void
await_turn(const Move *move)
{
	PGconn	   *conn = move->target.conn;
	int64		told = now_ms() + SILENCE_MS - TELL_MS;

	for (;;)
	{
		bool		is_turn = query_bool(conn, "SELECT pg_try_advisory_lock(%d, %d)", LOCK_CLASS, TURN_KEY);

		if (is_turn && query_bool(conn, HAS_WORKERS))
			return;
		if (is_turn)
			leave_turn(move);
		if (now_ms() - told >= TELL_MS)
		{
			char	   *reason = is_turn ?
			query_text(conn, "SELECT format('%%s subscriptions have those of max_logical_replication_workers = %%s', "
					   "count(*), current_setting('max_logical_replication_workers')) FROM pg_subscription WHERE subenabled") :
			pg_strdup("another move begins its copy");

			report_info("%s: waiting for a worker: %s", move->target.label, reason);
			free(reason);
			told = now_ms();
		}
		wait_ms(TURN_MS);
	}
}

void
leave_turn(const Move *move)
{
	run(move->target.conn, "SELECT pg_advisory_unlock(%d, %d)", LOCK_CLASS, TURN_KEY);
}

/* Rows are applied as the table's owner, where the server can do that. */
static const char *
as_table_owner(const Side *side)
{
	return applies_as_owner(side) ? ", run_as_owner = false" : "";
}

/* Start copying and following, with the journal. */
void
subscribe(const Move *move)
{
	const Side *target = &move->target;
	PGconn	   *conn = target->conn;
	char	   *slots;

	run(conn, "BEGIN");
	run(conn,
		"CREATE SUBSCRIPTION %s CONNECTION %s PUBLICATION %s "
		"WITH (create_slot = false, slot_name = %s, copy_data = true, enabled = true%s)",
		ident(conn, move->name), literal_for_subscription(conn, &move->source),
		ident(conn, move->name), literal(conn, move->name), as_table_owner(target));

	/*
	 * What the slots are called that the copy of single tables uses.  The
	 * source is told as well, since it must drop them if the target is gone;
	 * and with the target's identifier, since other targets have the same
	 * OIDs.
	 */
	slots = query_text(conn,
					   "SELECT format('pg\\_%%s\\_sync\\_%%%%\\_%%s', s.oid, c.system_identifier) "
					   "FROM pg_subscription s, pg_control_system() c WHERE subname = %s",
					   literal(conn, move->name));
	record_detail(move, conn, "table_slots", slots);
	record_detail(move, move->source.conn, "table_slots", slots);
	record_step(move, target, "subscribed");
	run(conn, "COMMIT");
	hurry_launcher(move);
}

/*
 * Have the writes on the server that the shards have come to sent back to the
 * one that they have left, from the instant on when the first was opened.
 */
void
subscribe_back(const Move *move, const Side *from, const Side *to)
{
	PGconn	   *conn = from->conn;
	const char *name = set_journal(move, to)->reverse_name;
	char	   *oid;

	if (!has_subscription(conn, name))
		run(conn,
			"CREATE SUBSCRIPTION %s CONNECTION %s PUBLICATION %s "
			"WITH (create_slot = false, slot_name = %s, copy_data = false, enabled = false%s)",
			ident(conn, name), literal_for_subscription(conn, to), ident(conn, name),
			literal(conn, name), as_table_owner(from));
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
void
drop_subscription(const Side *side, const char *name)
{
	PGconn	   *conn = side->conn;

	if (!has_subscription(conn, name))
		return;
	run(conn, "BEGIN");
	run(conn, "ALTER SUBSCRIPTION %s DISABLE", ident(conn, name));
	run(conn, "ALTER SUBSCRIPTION %s SET (slot_name = NONE)", ident(conn, name));
	run_and_tell(side, conn, side->aux, "DROP SUBSCRIPTION %s", ident(conn, name));
	run(conn, "COMMIT");
}

/*
 * Stop the copy of tables that has not come to its end.  To drop the
 * subscription would wait for their slots, which wait for all transactions that
 * are writing on the source.
 */
void
end_table_copies(const Move *move)
{
	const Side *source = &move->source;
	const Side *target = &move->target;

	if (!has_subscription(target->conn, move->name))
		return;
	run(target->conn, "ALTER SUBSCRIPTION %s DISABLE", ident(target->conn, move->name));
	if (!try_run(source->conn,
				 "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots, snowid.moves "
				 "WHERE slot_name LIKE details ->> 'table_slots' AND shard IN (%s) AND active_pid IS NOT NULL",
				 shard_list(move)))
		report_warning("%s: %s", source->label, PQerrorMessage(source->conn));
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
					  "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = %s)",
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

/*
 * The slots that the copy of single tables uses go with the subscription,
 * unless the target could not reach the source just then.
 */
Status
drop_table_slots(const Move *move, const Side *source)
{
	Status		status = STATUS_DONE;
	PGresult   *res = query(source->conn,
							"SELECT DISTINCT slot_name FROM pg_replication_slots, snowid.moves "
							"WHERE slot_name LIKE details ->> 'table_slots' AND shard IN (%s) "
							"AND database = current_database()", shard_list(move));

	for (int i = 0; i < PQntuples(res) && status == STATUS_DONE; i++)
		status = drop_slot(source, PQgetvalue(res, i, 0));
	PQclear(res);
	return status;
}

void
drop_publication(const Side *side, const char *name)
{
	run(side->conn, "DROP PUBLICATION IF EXISTS %s", ident(side->conn, name));
}
