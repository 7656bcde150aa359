/*
 * The definitions: read by pg_dump, made on the target in one transaction, and
 * compared with what they were.
 */
#include "stages.h"

/*
 * An expression: is somebody creating a relation in one of the schemas?  He
 * holds a lock on it until his commit (RangeVarGetAndCheckCreationNamespace).
 */
char *
being_extended_sql(const Move *move, PGconn *conn)
{
	return text_of("EXISTS (SELECT FROM pg_locks WHERE locktype = 'object' "
				   "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
				   "AND classid = 'pg_namespace'::regclass "
				   "AND objid IN (SELECT oid FROM pg_namespace WHERE nspname IN (%s)) "
				   "AND pid IS DISTINCT FROM pg_backend_pid())",
				   schema_list(move, conn));
}

/*
 * What makes the casts from and to the shards' types, which pg_dump leaves out
 * unless it dumps the whole database.
 */
static char *
dump_casts(const Move *move)
{
	PGconn	   *conn = move->source.conn;
	char	   *script;

	script = query_text(conn,
						"SELECT string_agg(format(E'CREATE CAST (%%1$s AS %%2$s) %%3$s%%4$s;\nCOMMENT ON CAST (%%1$s AS %%2$s) IS %%5$L;\n', "
						"format_type(castsource, NULL), format_type(casttarget, NULL), "
						"CASE castmethod WHEN 'f' THEN 'WITH FUNCTION ' || castfunc::regprocedure "
						"WHEN 'i' THEN 'WITH INOUT' ELSE 'WITHOUT FUNCTION' END, "
						"CASE castcontext WHEN 'a' THEN ' AS ASSIGNMENT' WHEN 'i' THEN ' AS IMPLICIT' END, "
						"obj_description(oid, 'pg_cast')), '' ORDER BY oid) "
						"FROM pg_cast WHERE EXISTS (SELECT FROM pg_type t JOIN pg_namespace n ON n.oid = typnamespace "
						"WHERE t.oid IN (castsource, casttarget) AND nspname IN (%s)) "
						"AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_cast'::regclass AND objid = pg_cast.oid AND deptype IN ('e', 'i'))",
						schema_list(move, conn));
	return script != NULL ? script : pg_strdup("");
}

/*
 * Read the shards' definitions from the source, and their fingerprints into
 * its journal.
 */
static Status
read_definitions(const Move *move, char **script)
{
	const Side *source = &move->source;
	PGconn	   *conn = source->conn;
	char	  **schemas = pg_malloc(move->nshards * sizeof(char *));

	for (int i = 0; i < move->nshards; i++)
		journal_of(move->shards[i], source)->fingerprint =
			take_fingerprint(conn, move->shards[i]->schema);
	for (int i = 0; i < move->nshards; i++)
		schemas[i] = move->shards[i]->schema;
	*script = dump_definitions(conn, move->options->bindir, schemas, move->nshards);
	free(schemas);
	if (*script == NULL)
		return STATUS_FAILED;
	*script = text_of("%s%s", *script, dump_casts(move));
	for (int i = 0; i < move->nshards; i++)
	{
		const Shard *shard = move->shards[i];
		const char *before = journal_of(move->shards[i], source)->fingerprint;
		const char *after = take_fingerprint(conn, shard->schema);

		if (strcmp(before, after) != 0)
		{
			report_error("the definitions of the shard have changed while they were read");
			report_hint("Type the same command again.");
			return STATUS_FAILED;
		}
		record_fingerprint(source, shard->number, before);
	}
	return STATUS_DONE;
}

/*
 * Make the shards' schemas on the target, closed, in one transaction with the
 * journal.
 */
static Status
copy_schemas(const Move *move)
{
	const Side *target = &move->target;
	char	   *script;
	PGconn	   *conn;

	if (read_definitions(move, &script) != STATUS_DONE)
		return STATUS_FAILED;
	strip_script(script, target);

	/* The script leaves its settings behind, so it has a session for itself. */
	conn = open_connection(target->label, move->options->to);
	if (PQstatus(conn) != CONNECTION_OK)
	{
		report_error("%s: %s", target->label, PQerrorMessage(conn));
		return STATUS_FAILED;
	}
	run(conn, "BEGIN");
	if (!try_run(conn, "%s", script))
	{
		report_error("target: the shard's definitions cannot be created there: %s",
					 PQerrorMessage(conn));
		if (strcmp(last_sqlstate, "42704") == 0)
			report_hint("Create the role or the other object that is missing there, then type the same command again.");
		else
			report_hint("Correct that, then type the same command again.");
		PQfinish(conn);
		return STATUS_FAILED;
	}
	run(conn, "SET search_path = pg_catalog, pg_temp");
	run(conn, "SELECT snowid_internal.prepare_table(t) FROM snowid_internal.shard_tables(%s) t", schema_list(move, conn));
	run(conn, "SELECT snowid_internal.close_shards(ARRAY[%s], NULL)", shard_list(move));
	record_detail(move, conn, "schema_made", "yes");
	record_step_on(move, target, conn, "schema");
	run(conn, "COMMIT");
	PQfinish(conn);
	return STATUS_DONE;
}

/*
 * The same for a batch: all at once; or, if that fails, one by one.  A shard
 * that cannot be made there is left, and its move undone, unless it is alone.
 */
Status
copy_schema(const Move *move)
{
	if (copy_schemas(move) == STATUS_DONE)
		return STATUS_DONE;
	if (move->nshards == 1)
		return STATUS_FAILED;
	for (int i = 0; i < move->nshards; i++)
	{
		const Move *single = select_range(move, i, 1);

		if (copy_schemas(single) == STATUS_DONE)
			continue;
		leave_shard(move, move->shards[i]);
		if (abort_move(single) != STATUS_DONE)
			return STATUS_FAILED;
	}
	return STATUS_DONE;
}
