/*
 * The definitions: read by pg_dump, made on the target as far as rows need them,
 * in one transaction, and compared with what they were.
 */
#include "stages.h"
#include "sql/queries.inc"

#include <unistd.h>

/* Is somebody creating a relation in one of the schemas? */
char *
being_extended_sql(const Move *move, PGconn *conn)
{
	return text_of("(" BEING_EXTENDED_SQL ")", schema_list(move, conn));
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
 * who may not use a schema can alter nothing in it.
 */
static void
take_schemas(const Move *move, PGconn *conn)
{
	run(conn, NOTE_OWNERS_SQL, schema_list(move, conn));
	run(conn, "%s", query_text(conn, TAKE_SCHEMAS_SQL, schema_list(move, conn)));
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
	PGconn	   *conn = target->aux;
	char	   *script = script_before_rows(conn, move->options->bindir, archive);
	Status		status = STATUS_FAILED;

	if (script == NULL)
		return STATUS_FAILED;
	strip_script(script, target);
	run(conn, "BEGIN");
	if (try_run(conn, "%s%s", script, query_text(keeper, CASTS_SQL, schema_list(move, keeper))))
	{
		run(conn, "SET search_path = pg_catalog, pg_temp");
		status = alter_target(move, keeper, conn);
	}
	else
	{
		report_error("target: the shard's definitions cannot be created there: %s",
					 PQerrorMessage(conn));
		report_hint("%s, then type the same command again.", strcmp(last_sqlstate, "42704") == 0 ?
					"Create the role or the other object that is missing there" : "Correct that");
	}
	if (status == STATUS_DONE)
	{
		take_schemas(move, conn);
		run(conn, "SELECT snowid_internal.prepare_table(t) FROM snowid_internal.shard_tables(VARIADIC ARRAY[%s]::name[]) t", schema_list(move, conn));
		run(conn, "SELECT snowid_internal.close_shards(ARRAY[%s], NULL)", shard_list(move));
		record_detail(move, conn, "schema_made", "yes");
		record_step_on(move, target, conn, "schema");
		run(conn, "COMMIT");
	}

	/* The script leaves its settings behind. */
	return reconnect(conn) ? status : STATUS_FAILED;
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
