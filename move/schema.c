/*
 * The definitions: read by pg_dump, made on the target as far as rows need them,
 * in one transaction, and compared with what they were.
 */
#include "stages.h"
#include "sql/queries.inc"

#include <unistd.h>

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
dump_casts(const Move *move, PGconn *conn)
{
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

/* Are the definitions those that were checked?  What is new may call anything. */
Status
check_definitions(const Move *move)
{
	const Side *source = &move->source;
	char	  **now = note_definitions(move, source);

	for (int i = 0; i < move->nshards; i++)
	{
		Shard	   *shard = move->shards[i];
		const char *before = journal_of(shard, source)->fingerprint;

		if (!is_as_noted(before, now[i]))
		{
			report_error("the definitions of shard %d have changed since they were checked: %s", shard->number,
						 name_changes(source->conn, move->target.conn, shard->schema, before));
			report_hint("Type snowid-move abort, and begin again.");
			return STATUS_FAILED;
		}
	}
	return STATUS_DONE;
}

/*
 * Take the schemas on the target from their owners, for as long as rows come:
 * who may not use a schema can alter nothing in it.  Whose they are goes into
 * the journal; not as statements, since its writers need not have our rights.
 */
static void
take_schemas(const Move *move, PGconn *conn)
{
	const char *theirs = text_of("FROM pg_namespace n WHERE nspname IN (%s)", schema_list(move, conn));
	char	   *taking;

	run(conn,
		"UPDATE snowid.moves SET details = details || (SELECT jsonb_build_object('owner', pg_get_userbyid(nspowner), 'rights', "
		"(SELECT coalesce(jsonb_agg(jsonb_build_object('right', privilege_type, 'to', pg_get_userbyid(nullif(grantee, 0)), 'further', is_grantable)), '[]') "
		" FROM aclexplode(nspacl) WHERE grantee <> nspowner)) FROM pg_namespace WHERE nspname = moves.schema) WHERE shard IN (%s)",
		shard_list(move));
	taking = query_text(conn,
						"SELECT string_agg(what, '; ') FROM (SELECT DISTINCT format('REVOKE ALL ON SCHEMA %%I FROM %%s CASCADE', nspname, "
						"CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END) "
						"FROM (SELECT *, nspowner AS owner %s) n, aclexplode(nspacl) WHERE grantee <> owner "
						"UNION ALL SELECT format('ALTER SCHEMA %%I OWNER TO CURRENT_USER', nspname) %s) t (what)", theirs, theirs);
	run(conn, "%s", taking);
}

/* What the target has of a table must take what the source has; texts that differ cannot be compared. */
static Status
check_columns(const Move *move, PGconn *keeper, PGconn *conn)
{
	char	   *columns = query_text(keeper, COLUMNS_SQL, schema_list(move, keeper));
	char	   *misfits = query_text(conn, MISFITS_SQL, literal(conn, columns), schema_list(move, conn),
									 move->options->verify == VERIFY_CHECKSUMS ? "false" : "true");

	if (misfits == NULL)
		return STATUS_DONE;
	report_error("after --target-ddl, columns on the target cannot take what the source has: %s", misfits);
	report_hint("Correct the file, and type the same command again.%s", move->options->verify == VERIFY_CHECKSUMS ?
				" What has another text with another type can be moved with --verify=counts." : "");
	return STATUS_FAILED;
}

/* In each shard, what the user wants to be otherwise on the target. */
static Status
alter_target(const Move *move, PGconn *keeper, PGconn *conn)
{
	const char *ddl = move->options->target_ddl;

	if (ddl == NULL && set_journal(move, &move->source)->target_ddl_md5 != NULL)
	{
		report_error("the move of %s was begun with --target-ddl", move->title);
		report_hint("Type the same command again, with that file.");
		return STATUS_FAILED;
	}
	if (ddl == NULL)
		return STATUS_DONE;
	for (int i = 0; i < move->nshards; i++)
	{
		run(conn, "SET search_path = pg_catalog, %s, pg_temp", ident(conn, move->shards[i]->schema));
		/* In a function, it cannot end the transaction. */
		if (try_run(conn, "DO %s", literal(conn, text_of("BEGIN EXECUTE %s; END", literal(conn, ddl)))))
			continue;
		report_error("target: --target-ddl, for %s: %s", select_range(move, i, 1)->title, PQerrorMessage(conn));
		report_hint("Correct the file, and type the same command again.");
		return STATUS_FAILED;
	}
	run(conn, "SET search_path = pg_catalog, pg_temp");
	return check_columns(move, keeper, conn);
}

/*
 * Make what rows need on the target, closed, in one transaction with the
 * journal.
 */
static Status
make_schemas(const Move *move, PGconn *keeper, int archive)
{
	const Side *target = &move->target;
	char	   *script = script_before_rows(target->conn, move->options->bindir, archive);
	PGconn	   *conn;
	Status		status;

	if (script == NULL)
		return STATUS_FAILED;
	strip_script(script, target);
	script = text_of("%s%s", script, dump_casts(move, keeper));

	/* The script leaves its settings behind, so it has a session for itself. */
	conn = open_connection(target->label, move->options->to);
	if (PQstatus(conn) != CONNECTION_OK)
	{
		report_error("%s: %s", target->label, PQerrorMessage(conn));
		PQfinish(conn);
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
	status = alter_target(move, keeper, conn);
	if (status == STATUS_DONE)
	{
		take_schemas(move, conn);
		run(conn, "SELECT snowid_internal.prepare_table(t) FROM snowid_internal.shard_tables(%s) t", schema_list(move, conn));
		run(conn, "SELECT snowid_internal.close_shards(ARRAY[%s], NULL)", shard_list(move));
		record_detail(move, conn, "schema_made", "yes");
		record_step_on(move, target, conn, "schema");
		run(conn, "COMMIT");
	}
	PQfinish(conn);
	return status;
}

static Status
dump_and_make(const Move *move, PGconn *keeper, const char *snapshot, int archive, bool has_rows)
{
	char	  **schemas = pg_malloc(move->nshards * sizeof(char *));
	bool		done;

	for (int i = 0; i < move->nshards; i++)
		schemas[i] = move->shards[i]->schema;
	done = ftruncate(archive, 0) == 0 && lseek(archive, 0, SEEK_SET) == 0 &&
		dump_archive(move->source.conn, move->options->bindir, schemas, move->nshards, snapshot, archive);
	free(schemas);
	if (!done || check_definitions(move) != STATUS_DONE)
		return STATUS_FAILED;
	return has_rows ? STATUS_DONE : make_schemas(move, keeper, archive);
}

/*
 * The definitions of a batch, out of the snapshot: into the archive, and on the
 * target those that rows need, unless these are there.  If that fails, it is tried
 * with one shard after the other, to find out which are to be left.
 */
Status
copy_schemas(const Move *move, PGconn *keeper, const char *snapshot, int archive, bool has_rows)
{
	if (dump_and_make(move, keeper, snapshot, archive, has_rows) == STATUS_DONE)
		return STATUS_DONE;
	for (int i = 0; i < move->nshards && move->nshards > 1 && !has_rows; i++)
		if (dump_and_make(select_range(move, i, 1), keeper, snapshot, archive, false) != STATUS_DONE)
			leave_shard(move, move->shards[i]);
	return STATUS_FAILED;
}
