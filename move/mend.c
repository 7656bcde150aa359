/*
 * Tables whose copy cannot go on by itself, copied anew.
 *
 * The worker that copies a table drops its slot on the source, and commits
 * that it is done, without waiting for the disk.  If the target crashes just
 * then, the slot is gone and the commit, too: a worker asks for the slot again
 * and again, for ever, and the server does not count that as a failure.
 *
 * The only way out that PostgreSQL has is to take the table out of the
 * publication and put it in again.  What is under way stands in the source's
 * journal, so that another run of this program goes on with it.
 */
#include "stages.h"

/* For how long a slot has to be gone. */
#define GONE_MS				1000

static char *
table_in_journal(const Move *move)
{
	return query_text(move->source.conn,
					  "SELECT details ->> 'copied_anew' FROM snowid.moves "
					  "WHERE shard IN (%s) AND details ? 'copied_anew' LIMIT 1", shard_list(move));
}

/*
 * A table whose rows are all there, but whose slot is not; NULL if there is none.
 * A worker that lives may only be slow to commit: if the table left the
 * publication now, what workers know of its state could outlive that.
 */
static char *
find_stuck_table(const Move *move)
{
	PGresult   *res = query(move->target.conn,
							"SELECT r.srrelid::regclass, format('pg_%%s_sync_%%s_%%s', s.oid, r.srrelid, c.system_identifier) "
							"FROM pg_subscription s JOIN pg_subscription_rel r ON r.srsubid = s.oid, pg_control_system() c "
							"WHERE s.subname = %s AND s.subdbid = (SELECT oid FROM pg_database WHERE datname = current_database()) "
							"AND r.srsubstate = 'f' AND NOT EXISTS ("
							"SELECT FROM pg_stat_subscription w WHERE w.subid = s.oid AND w.relid = r.srrelid AND w.pid IS NOT NULL)",
							literal(move->target.conn, move->name));
	char	   *table = NULL;

	for (int i = 0; i < PQntuples(res) && table == NULL; i++)
		if (query_bool(move->source.conn,
					   "SELECT NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = %s)",
					   literal(move->source.conn, PQgetvalue(res, i, 1))))
			table = pg_strdup(PQgetvalue(res, i, 0));
	PQclear(res);
	return table;
}

/* Have the target's subscription follow the publication. */
static void
refresh_subscription(const Move *move)
{
	run(move->target.conn, "ALTER SUBSCRIPTION %s REFRESH PUBLICATION",
		ident(move->target.conn, move->name));
}

/*
 * Begin a transaction in which the table is published again.  Older minor
 * releases do not tell transactions that are writing to the table that it is
 * published now: so they are waited for, as long as it takes, but newcomers do
 * not queue behind us for longer than --lock-timeout.
 */
static void
begin_publishing(const Move *move, const char *table)
{
	PGconn	   *source = move->source.conn;

	for (int n = 0;; n++)
	{
		run(source, "BEGIN");
		run(source, "SET LOCAL lock_timeout = %d", move->options->lock_timeout_ms);
		if (try_run(source, "LOCK TABLE ONLY %s IN SHARE ROW EXCLUSIVE MODE", table))
			return;
		if (strcmp(last_sqlstate, "55P03") != 0 && strcmp(last_sqlstate, "40P01") != 0)
		{
			report_error("%s: %s", move->source.label, PQerrorMessage(source));
			fail();
		}
		run(source, "ROLLBACK");
		if (n == 0)
			report_info("%s: waiting for transactions that are writing to table %s",
						move->source.label, table);
		back_off(n);
	}
}

static void
copy_anew(const Move *move, const char *table)
{
	PGconn	   *source = move->source.conn;
	PGconn	   *target = move->target.conn;

	refresh_subscription(move);
	run(target, "BEGIN");
	run(target, "SET LOCAL session_replication_role = replica");
	run(target, "DELETE FROM ONLY %s", table);
	run(target, "COMMIT");
	begin_publishing(move, table);
	run(source, "ALTER PUBLICATION %s ADD TABLE ONLY %s", ident(source, move->name), table);
	run(source, "UPDATE snowid.moves SET details = details - 'copied_anew' WHERE shard IN (%s)",
		shard_list(move));
	run(source, "COMMIT");
	refresh_subscription(move);
}

/* Go on with what another run of this program has left half done. */
void
resume_mending(const Move *move)
{
	char	   *table = table_in_journal(move);
	int64		published;
	int64		subscribed;

	if (table != NULL)
	{
		copy_anew(move, table);
		return;
	}
	published = query_int64(move->source.conn,
							"SELECT count(*) FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid "
							"WHERE pubname = %s", literal(move->source.conn, move->name));
	subscribed = query_int64(move->target.conn,
							 "SELECT count(*) FROM pg_subscription_rel r JOIN pg_subscription s ON s.oid = r.srsubid "
							 "WHERE s.subname = %s AND s.subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())",
							 literal(move->target.conn, move->name));
	if (published != subscribed)
		refresh_subscription(move);
}

/*
 * Copy a table anew if its copy cannot go on.  To be asked when nothing has
 * got on for a while: that a slot is gone may also be the normal end of a copy.
 */
void
mend_copy(const Move *move)
{
	PGconn	   *source = move->source.conn;
	char	   *table = find_stuck_table(move);
	char	   *again;

	if (table == NULL)
		return;
	wait_ms(GONE_MS);
	again = find_stuck_table(move);
	if (again == NULL || strcmp(again, table) != 0)
		return;
	report_info("copying table %s again: the target has crashed as its copy ended", table);
	run(source, "BEGIN");
	run(source, "ALTER PUBLICATION %s DROP TABLE ONLY %s", ident(source, move->name), table);
	run(source,
		"UPDATE snowid.moves SET details = details || jsonb_build_object('copied_anew', %s::text) "
		"WHERE shard IN (%s) AND schema = (SELECT nspname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
		"WHERE c.oid = %s::regclass)",
		literal(source, table), shard_list(move), literal(source, table));
	run(source, "COMMIT");
	copy_anew(move, table);
}
