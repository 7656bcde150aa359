/*
 * What the fence needs beforehand: a trigger on each table, disabled, so that
 * while writers wait it is only enabled; and its removal.
 *
 * Each table is a transaction of its own, which waits for its lock only
 * shortly, since whoever wants to write waits behind it.  A table that could not
 * be prepared is closed nevertheless; it only takes longer.
 */
#include "stages.h"

/* So often a table is tried again. */
#define FENCE_TRIES		10

/*
 * Run a statement for each table of a query, each in a transaction of its own.  Not
 * one waits for the disk: whatever is decided later does.
 */
static bool
for_each_table(const Move *move, const Side *side, PGresult *tables, const char *statement)
{
	PGconn	   *conn = side->conn;
	bool		all_done = true;

	for (int row = 0; row < PQntuples(tables); row++)
	{
		bool		done = false;

		for (int n = 0; n < FENCE_TRIES && !done; n++)
		{
			if (n > 0)
				back_off(0);
			done = try_run(conn, "SET LOCAL lock_timeout = %d; SET LOCAL synchronous_commit = off; %s",
						   move->options->lock_timeout_ms, text_of(statement, PQgetvalue(tables, row, 0)));
		}
		all_done = all_done && done;
	}
	PQclear(tables);
	return all_done;
}

/* Prepare the tables of the shards for the fence, as far as they are not. */
void
prepare_fence(const Move *move, const Side *side)
{
	PGresult   *tables = query(side->conn,
							   "SELECT quote_literal(t::oid::text) FROM snowid_internal.shard_tables(VARIADIC ARRAY[%s]::name[]) t "
							   "WHERE NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = t AND tgname = 'snowid_fence')",
							   schema_list(move, side->conn));

	if (!for_each_table(move, side, tables, "SELECT snowid_internal.prepare_table(%s::oid)"))
		report_verbose("%s: not all tables could be prepared to be closed", side->label);
}

/*
 * Remove from open shards what was prepared.  What has not that shape is not
 * ours.
 */
void
remove_fence(const Move *move, const Side *side)
{
	const char *left = text_of("SELECT tgrelid::regclass FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid "
							   "JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname IN (%s) AND tgname = 'snowid_fence' "
							   "AND tgenabled = 'D' AND tgnargs > 0 AND tgfoid = 'snowid_internal.refuse_write()'::regprocedure",
							   schema_list(move, side->conn));

	if (for_each_table(move, side, query(side->conn, "%s", left), "DROP TRIGGER IF EXISTS snowid_fence ON %s"))
		return;
	report_warning("disabled triggers snowid_fence are left on tables of %s at %s, which were in use: %s", move->title, side->home,
				   query_text(side->conn, "SELECT string_agg(tgrelid::regclass::text, ', ' ORDER BY tgrelid) FROM (%s) t", left));
	report_hint("They do nothing. When nobody uses the table, type there for each: DROP TRIGGER snowid_fence ON table;");
}
