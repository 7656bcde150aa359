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

/* What to type for shards that never move with the copy that they have; or is "", or what may be done before. */
void
tell_to_begin_anew(const Move *move, const char *or)
{
	if (is_way_back(move->shards[0]))
		report_hint("There is no way back any more. Type: %s; and then move it with --from and --to exchanged.", whole_command(move, "finish"));
	else
		report_hint("%sBegin again, after: %s", or, whole_command(move, "abort"));
}

/* A shard has been changed on a side. */
void
tell_changes(const Move *single, const Side *side, const char *since)
{
	const Side *other = side->place == single->source.place ? &single->target : &single->source;
	const char *schema = single->shards[0]->schema;
	const char *before = journal_of(single->shards[0], side)->fingerprint;

	report_error("the definitions of shard %d have changed %s: %s", single->shards[0]->number, since, name_changes(side->conn, other->conn, schema, before));
	tell_to_begin_anew(single, other == &single->source && new_tables(side->conn, schema, before) != NULL ?
					   "Drop what is new there, and type the same command again. Or: " : "");
}

/*
 * Are the definitions those that were noted: on the source when they were checked,
 * since what is new may call anything; on the target when they were compared?  New
 * tables of the source may be brought.  A shard that was changed is told, and left.
 */
Status
check_definitions(const Move *move, const Side *side)
{
	char	  **now = note_definitions(move, side);
	Status		status = STATUS_DONE;

	for (int i = 0; i < move->nshards; i++)
	{
		Shard	   *shard = move->shards[i];
		bool		is_source = side->place == move->source.place;

		if (is_as_noted(journal_of(shard, side)->fingerprint, now[i]) || (is_source && may_be_brought(select_range(move, i, 1))))
			continue;
		if (!shard->failed)
		{
			tell_changes(select_range(move, i, 1), side, text_of("%ssince they were %s", is_source ? "" : "on the target ",
																 !is_source ? "compared" : has_reached(move, side, COPIED) ? "copied" : "checked"));
			leave_shard(move, shard);
		}
		status = STATUS_FAILED;
	}
	return status;
}

/*
 * Take the schemas on the target from their owners, for as long as rows come, and what is made
 * of them: who may not use a schema can alter nothing in it.
 */
static void
take_schemas(const Move *move, PGconn *conn, bool again)
{
	char	   *notes = query_text(conn, NOTE_OWNERS_SQL, shard_list(move), schema_list(move, conn),
								   literal(conn, set_journal(move, &move->target)->move_id), again ? "true" : "false");

	if (notes != NULL)
		run(conn, "%s; %s", notes, query_text(conn, TAKE_SCHEMAS_SQL, schema_list(move, conn)));
}

/* Does an owner gain something by what we run there?  Else he has his schema as soon as the rows are there. */
bool
is_kept_from_owners(const Move *move)
{
	return !move->options->trust_owners && query_bool(move->target.conn, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user");
}

/* Give the schemas back to those whose they are; the fence stands. */
void
give_back(const Move *move)
{
	PGconn	   *conn = move->target.conn;
	char	   *statements = query_text(conn, GIVE_BACK_SQL, schema_list(move, conn), literal(conn, set_journal(move, &move->target)->move_id));

	if (statements != NULL)
		run(conn, "BEGIN; %s; COMMIT", statements);
}

/*
 * Before something is made of the rows: the schemas are ours, maybe again, and nothing has come that this
 * would run.  Whoever was at it has ended, or is waited for.
 */
bool
hold_schemas(const Move *move)
{
	const Side *target = &move->target;
	PGconn	   *conn = target->conn;
	char	   *tables;
	bool		done;

	if (!is_kept_from_owners(move))
	{
		give_back(move);
		return true;
	}
	run(conn, "BEGIN");
	take_schemas(move, conn, true);
	run(conn, "COMMIT; BEGIN");
	tables = query_text(conn, "SELECT string_agg('ONLY ' || t, ', ') FROM snowid_internal.shard_tables(VARIADIC ARRAY[%s]::name[]) t", schema_list(move, conn));
	if (tables != NULL)
		run_and_tell(target, conn, target->aux, "LOCK TABLE %s IN SHARE UPDATE EXCLUSIVE MODE", tables);
	done = calls_are_trusted(move->options, conn, schema_list(move, conn));
	run(conn, "COMMIT");
	return done;
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

/*
 * Has what the prechecks have seen come to call a lesser role's code?  In a schema of
 * its own, such a role can put a function in the place of another's.
 */
bool
calls_are_trusted(const MoveOptions *options, PGconn *conn, const char *schemas)
{
	char	   *call = options->trust_owners ? NULL : query_text(conn, LESSER_CODE_SQL, text_of("ARRAY[%s]::name[]", schemas));

	return call == NULL ||
		refuse(false, TO_TRUST, "%s: %s, whose owner is no superuser", label_of(conn), call);
}

/* Nor may such a role have definitions find another, as they are made again. */
bool
names_are_trusted(const MoveOptions *options, PGconn *from, PGconn *conn, const char *schemas)
{
	PGconn	   *conns[] = {from, conn};
	char	   *called = options->trust_owners ? "[]" : query_text(from, CODE_LOOKED_FOR_SQL, text_of("ARRAY[%s]::name[]", schemas));

	for (int i = 0; i < 2; i++)
	{
		PGresult   *fits = query(conns[i], BETTER_FITS_SQL, literal(conns[i], called));

		if (PQntuples(fits) > 0)
			return refuse(false, text_of("As a superuser, type there: %s " TO_TRUST, PQgetvalue(fits, 0, 1)), "%s: %s", label_of(conns[i]), PQgetvalue(fits, 0, 0));
		PQclear(fits);
	}
	return true;
}

/*
 * What keeps whoever is not trusted, to the end of a transaction, from giving these tables of a schema
 * what planning a query would run; NULL if nobody has to be.  They are locked by their names: then
 * names_are_held() says, maybe in another session, whether these still lead to them.
 */
char *
lock_of_definitions(const MoveOptions *options, PGconn *conn, const char *schema, const char *tables)
{
	char	   *lock = options->trust_owners ? NULL : query_text(conn, DEFINITIONS_LOCK_SQL, schema, tables);

	if (lock == NULL || *lock != '\0')
		return lock;
	report_error("%s: on a standby, nothing keeps a lesser owner from adding an index that this would run", label_of(conn));
	report_hint("Type there: SELECT pg_wal_replay_pause(); then the same command, then: SELECT pg_wal_replay_resume(); "
				"or, if you trust that role with both servers: --trust-owners.");
	fail();
}

/*
 * From here on to the end of the transaction, nobody can give the schema's name to another.
 * A lock of its row is a transaction's number, which others' slots wait for: only where
 * somebody who is not trusted could, or could let another.
 */
bool
names_are_held(const MoveOptions *options, PGconn *conn, int pid, const char *schema, const char *tables)
{
	char	   *others;

	run(conn, "SELECT FROM pg_namespace WHERE nspname = %s AND nspowner NOT IN (" TRUSTED_ROLES_SQL ") "
		"AND EXISTS (SELECT FROM pg_roles WHERE NOT rolsuper AND has_database_privilege(oid, current_database(), 'CREATE')) FOR SHARE", schema);
	others = query_text(conn, NOT_HELD_SQL, text_of("%d", pid), tables);
	return others == NULL ? calls_are_trusted(options, conn, schema) :
		refuse(false, "Type the same command again.", "%s: others have come in the place of tables: %s", label_of(conn), others);
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

/* In a transaction: run a script of definitions, as if the role had no default privileges. */
static bool
run_script(PGconn *conn, const char *script, const char *casts)
{
	PGresult   *privileges;
	bool		done;

	/* One at a time, since these are rows that all moves of the role change. */
	run(conn, ONE_AT_A_TIME);
	privileges = query(conn, DEFAULT_PRIVILEGES_SQL);
	done = try_run(conn, "%s", PQgetvalue(privileges, 0, 0)) && try_run(conn, "%s%s", script, casts) &&
		try_run(conn, "SET search_path = pg_catalog, pg_temp; %s", PQgetvalue(privileges, 0, 1));
	PQclear(privileges);
	if (!done)
	{
		report_error("target: the shard's definitions cannot be created there: %s",
					 PQerrorMessage(conn));
		report_hint("%s, then type the same command again.", strcmp(last_sqlstate, "42704") == 0 ?
					"Create the role or the other object that is missing there" : "Correct that");
	}
	return done;
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
	char	   *script = script_of(conn, move->options->bindir, archive, "--section=pre-data", NULL);
	Status		status = STATUS_FAILED;

	if (script == NULL)
		return STATUS_FAILED;
	strip_script(script, target);
	run(conn, "BEGIN");

	/* The slot may have been waited for, for as long as somebody wished. */
	if (is_code_trusted(move) && run_script(conn, script, query_text(keeper, CASTS_SQL, schema_list(move, keeper))))
		status = alter_target(move, keeper, conn);
	if (status == STATUS_DONE && !calls_are_trusted(move->options, conn, schema_list(move, conn)))
		status = STATUS_FAILED;
	if (status == STATUS_DONE)
	{
		take_schemas(move, conn, false);
		run(conn, "SELECT snowid_internal.prepare_table(t) FROM snowid_internal.shard_tables(VARIADIC ARRAY[%s]::name[]) t", schema_list(move, conn));
		run(conn, "SELECT snowid_internal.close_shards(ARRAY[%s], NULL)", shard_list(move));
		record_detail(move, conn, "schema_made", "yes");
		record_step_on(move, target, conn, SCHEMA);
		run(conn, "COMMIT");
	}

	/* The script leaves its settings behind. */
	return reconnect(conn) ? status : STATUS_FAILED;
}

static char **
schemas_of(const Move *move)
{
	char	  **schemas = pg_malloc(move->nshards * sizeof(char *));

	for (int i = 0; i < move->nshards; i++)
		schemas[i] = move->shards[i]->schema;
	return schemas;
}

static Status
dump_and_make(const Move *move, PGconn *keeper, const char *snapshot, int archive, bool has_rows)
{
	char	  **schemas = schemas_of(move);
	bool		done;

	done = ftruncate(archive, 0) == 0 && lseek(archive, 0, SEEK_SET) == 0 &&
		dump_archive(move->source.conn, move->options->bindir, schemas, move->nshards, snapshot, archive);
	free(schemas);
	if (!done || check_definitions(move, &move->source) != STATUS_DONE)
		return STATUS_FAILED;
	if (!has_rows)
		return make_schemas(move, keeper, archive);

	/* What is new since must be there before what is made of its rows. */
	for (int i = 0; i < move->nshards; i++)
		if (newer_tables(move, move->shards[i]) != NULL && !make_missing(select_range(move, i, 1), "--section=pre-data"))
			return STATUS_FAILED;
	return STATUS_DONE;
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

static int
compare_lines(const void *a, const void *b)
{
	return strcmp(*(char *const *) a, *(char *const *) b);
}

/* What is in an archive, as pg_restore lists it: the entry of a line, after its numbers. */
static char *
listed_entry(char *line)
{
	line += strcspn(line, ";");
	for (int i = 0; i < 3 && *line != '\0'; i++)
		line += strcspn(line, " ") + 1;
	return line;
}

/*
 * Of the source's entries those that the target lacks, but for a fence; sorted are the target's.
 * A partition of a table that is there has its own indexes before it becomes one, which else
 * would make others.
 */
static bool
write_missing(char *here, char **sorted, int n, const char *late, int list)
{
	PQExpBufferData lines[3];
	bool		done;

	for (int i = 0; i < 3; i++)
		initPQExpBuffer(&lines[i]);
	for (char *line = strtok(here, "\n"); line != NULL; line = strtok(NULL, "\n"))
	{
		char	   *entry = listed_entry(line);
		int			turn = 0;

		if (*line == ';' || strstr(entry, " snowid_fence ") != NULL ||
			bsearch(&entry, sorted, n, sizeof(char *), compare_lines) != NULL)
			continue;
		if (strncmp(entry, "INDEX ATTACH ", strlen("INDEX ATTACH ")) == 0)
			turn = 2;
		else if (strncmp(entry, "TABLE ATTACH ", strlen("TABLE ATTACH ")) == 0)
			turn = strstr(late, text_of("\n%s\n", entry)) != NULL;
		appendPQExpBuffer(&lines[turn], "%s\n", line);
	}
	done = dprintf(list, "%s%s%s", lines[0].data, lines[1].data, lines[2].data) >= 0;
	for (int i = 0; i < 3; i++)
		termPQExpBuffer(&lines[i]);
	return done;
}

/* As entries, on lines of their own: the partitions of tables that the target has. */
static const char *
late_partitions(const Move *move)
{
	PGconn	   *conn = move->target.conn;
	char	   *pairs = query_text(move->source.conn, "SELECT coalesce(json_agg(json_build_object('parent', inhparent::regclass, 'entry', "
								   "concat_ws(' ', 'TABLE ATTACH', nspname, relname, pg_get_userbyid(relowner)))), '[]') "
								   "FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid JOIN pg_namespace n ON n.oid = relnamespace "
								   "WHERE relispartition AND nspname IN (%s)", schema_list(move, move->source.conn));

	return query_text(conn, "SELECT concat(E'\n', string_agg(entry, E'\n'), E'\n') FROM json_to_recordset(%s) p (parent text, entry text) "
					  "WHERE to_regclass(parent) IS NOT NULL", literal(conn, pairs));
}

/*
 * What the target lacks of an archive of the source's definitions: a file that pg_restore takes
 * as --use-list; NULL after saying what has failed.
 */
FILE *
list_missing(const Move *move, int archive)
{
	const Side *target = &move->target;
	const char *bindir = move->options->bindir;
	char	  **schemas = schemas_of(move);
	FILE	   *files[] = {tmpfile(), tmpfile()};
	char	   *here = NULL;
	char	   *there = NULL;
	char	  **sorted;
	int			n = 0;
	bool		done = false;

	if (files[0] == NULL || files[1] == NULL)
		report_error("could not make a temporary file: %m");
	else if (dump_archive(target->conn, bindir, schemas, move->nshards, NULL, fileno(files[0])) &&
			 (here = script_of(target->conn, bindir, archive, "--list", NULL)) != NULL &&
			 (there = script_of(target->conn, bindir, fileno(files[0]), "--list", NULL)) != NULL)
	{
		sorted = pg_malloc(sizeof(char *) * (strlen(there) / 2 + 1));
		for (char *line = strtok(there, "\n"); line != NULL; line = strtok(NULL, "\n"))
			sorted[n++] = listed_entry(line);
		qsort(sorted, n, sizeof(char *), compare_lines);
		if (!(done = write_missing(here, sorted, n, late_partitions(move), fileno(files[1]))))
			report_error("could not write a temporary file: %m");
		pg_free(sorted);
	}
	pg_free(schemas);
	free(here);
	free(there);
	if (files[0] != NULL)
		fclose(files[0]);
	if (done || files[1] == NULL)
		return files[1];
	fclose(files[1]);
	return NULL;
}

/* The script of the definitions of a shard that the target lacks, of a section or all; NULL after saying what has failed. */
static char *
script_of_missing(const Move *single, const char *section)
{
	FILE	   *archive = tmpfile();
	FILE	   *list = NULL;
	char	   *script = NULL;

	if (archive == NULL)
		report_error("could not make a temporary file: %m");
	else if (dump_archive(single->source.conn, single->options->bindir, &single->shards[0]->schema, 1, NULL, fileno(archive)) &&
			 (list = list_missing(single, fileno(archive))) != NULL)
		script = script_of(single->target.conn, single->options->bindir, fileno(archive), text_of("--use-list=/dev/fd/%d", fileno(list)), section);
	if (archive != NULL)
		fclose(archive);
	if (list != NULL)
		fclose(list);
	return script;
}

/*
 * From here on to the end of the transaction, whoever is not trusted gives the shard's tables nothing that the
 * script would run: a table that becomes a partition has the default one's CHECKs looked at.
 */
static bool
definitions_are_held(const Move *single, PGconn *conn)
{
	char	   *schema = schema_list(single, conn);
	char	   *tables = query_text(conn, "SELECT coalesce(array_agg(format('%%I.%%I', nspname, relname) ORDER BY c.oid), '{}') FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
									"WHERE nspname = %s AND relkind IN ('r', 'p')", schema);
	char	   *lock = lock_of_definitions(single->options, conn, schema, literal(conn, tables));

	if (lock == NULL)
		return true;
	run_and_tell(&single->target, conn, single->target.conn, "%s", lock);
	return names_are_held(single->options, conn, PQbackendPID(conn), schema, literal(conn, tables));
}

/*
 * Make what the target lacks of a shard there, closed, in one transaction; of a section,
 * as pg_restore's option has it, or all.  False after saying what has failed.
 */
bool
make_missing(const Move *single, const char *section)
{
	const Side *target = &single->target;
	PGconn	   *conn = target->aux;
	const Shard *shard = single->shards[0];
	char	   *script = script_of_missing(single, section);
	bool		done;

	if (script == NULL)
		return false;
	strip_script(script, target);
	run(conn, "BEGIN");
	done = definitions_are_held(single, conn);
	if (done && (done = run_script(conn, script, "") && calls_are_trusted(single->options, conn, schema_list(single, conn))))
	{
		run(conn, CLOSE_NEW_SEQUENCES_SQL, text_of("%d", shard->number));
		run(conn, CLOSE_NEW_TABLES_SQL, literal(conn, shard->schema));
		run(conn, "COMMIT");
	}
	free(script);

	/* The script leaves its settings behind. */
	return reconnect(conn) && done;
}

/* What pg_dump says of an object, by its header. */
typedef struct Entry
{
	const char *header;			/* "NAME; Type: TYPE; Schema: SCHEMA; Owner:
								 * OWNER" */
	char	   *body;			/* statements, without comments and settings */
} Entry;

static int
compare_entries(const void *a, const void *b)
{
	const Entry *x = a;
	const Entry *y = b;
	int			order = strcmp(x->header, y->header);

	return order != 0 ? order : strcmp(x->body, y->body);
}

/* Privileges have no order; comments, settings and empty lines say nothing. */
static char *
normal_body(char *text, bool is_acl)
{
	char	  **lines = pg_malloc(sizeof(char *) * (strlen(text) / 2 + 2));
	int			n = 0;
	PQExpBufferData body;

	for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
		if (strncmp(line, "--", 2) != 0 && strncmp(line, "SET ", 4) != 0 && *line != '\\')
			lines[n++] = line;
	if (is_acl)
		qsort(lines, n, sizeof(char *), compare_lines);
	initPQExpBuffer(&body);
	for (int i = 0; i < n; i++)
		appendPQExpBuffer(&body, "%s\n", lines[i]);
	pg_free(lines);
	return body.data;
}

/* Past what is quoted, if that begins here. */
static const char *
skip_quoted(const char *p)
{
	size_t		n = *p == '$' ? strcspn(p + 1, "$ ,)\n") + 2 : 1;
	const char *end;

	if (*p != '\'' && *p != '"' && (*p != '$' || p[n - 1] != '$'))
		return p;
	end = strstr(p + n, text_of("%.*s", (int) n, p));
	return end == NULL ? p + strlen(p) : end + n;
}

/* The header of the next entry of pg_dump's script; what looks like one in a text that is quoted is none. */
char *
next_header(char *p)
{
	while (*p != '\0' && strncmp(p, ENTRY_START, strlen(ENTRY_START)) != 0)
		if (p[0] == '-' && p[1] == '-')
			p += strcspn(p, "\n");
		else
			p += Max(skip_quoted(p) - p, 1);
	return *p != '\0' ? p + strlen(ENTRY_START) : NULL;
}

/*
 * The entries of a script, sorted; after them one without a header.  Our fence is none, and what
 * a closed sequence is, is in the journal.  Without details, only privileges have a body.
 */
static Entry *
entries_of(char *script, bool details)
{
	Entry	   *entries = pg_malloc0(sizeof(Entry));
	int			n = 0;

	for (char *header = next_header(script), *next; header != NULL; header = next)
	{
		char	   *end = strchr(header, '\n');
		bool		is_acl;

		if ((next = next_header(end)) != NULL)
			next[-(int) strlen(ENTRY_START)] = '\0';
		*end = '\0';
		if (strstr(header, " snowid_fence; Type: TRIGGER") != NULL)
			continue;
		is_acl = strstr(header, "; Type: ACL;") != NULL || strstr(header, "; Type: DEFAULT ACL;") != NULL;
		entries[n++] = (Entry)
		{
			header, is_acl || (details && strstr(header, "; Type: SEQUENCE;") == NULL) ? normal_body(end + 1, is_acl) : ""
		};
		entries = pg_realloc(entries, sizeof(Entry) * (n + 1));
		entries[n].header = NULL;
	}
	qsort(entries, n, sizeof(Entry), compare_entries);
	return entries;
}

/* Past an element of a list. */
static const char *
skip_element(const char *p)
{
	int			depth = 0;

	while (*p != '\0' && (depth > 0 || strchr(",)]", *p) == NULL))
	{
		const char *next = skip_quoted(p);

		depth += (*p == '(' || *p == '[') - (*p == ')' || *p == ']');
		p = next > p ? next : p + 1;
	}
	return p;
}

/* The elements of an array, each with a cast; returns their end. */
static const char *
cast_elements(PQExpBuffer out, const char *p, const char *cast, bool enclosed)
{
	for (const char *end;; p = end)
	{
		appendPQExpBufferStr(out, *p == ',' ? ", " : "ARRAY[");
		p += *p == ',' ? 2 : strlen("ARRAY[");
		end = skip_element(p);
		if (strncmp(p, "ARRAY[", strlen("ARRAY[")) == 0)
			cast_elements(out, p, cast, enclosed);
		else
			appendPQExpBuffer(out, enclosed ? "(%.*s)%s" : "%.*s%s", (int) (end - p), p, cast);
		if (*end != ',')
		{
			appendPQExpBufferChar(out, ']');
			return end;
		}
	}
}

/* As a server says it once it has read its own text: of arrays that are cast, the elements are. */
static char *
normal_casts(const char *p)
{
	PQExpBufferData out;

	initPQExpBuffer(&out);
	while (*p != '\0')
	{
		const char *next = skip_quoted(p);
		bool		enclosed = *p == '(';
		const char *end = p + enclosed;
		size_t		n;

		if (strncmp(end, "ARRAY[", strlen("ARRAY[")) == 0)
		{
			for (end += strlen("ARRAY["); *(end = skip_element(end)) == ',';)
				end++;
			end += strncmp(end, "])", 1 + enclosed) == 0 ? 1 + enclosed : 0;
			n = strncmp(end, "::", 2) == 0 ? strcspn(end, "[,\n") : 0;
			if (n > 0 && strncmp(end + n, "[]", 2) == 0)
			{
				cast_elements(&out, p + enclosed, text_of("%.*s", (int) n, end), enclosed);
				p = end + n + 2;
				continue;
			}
		}
		next = next > p ? next : p + 1;
		appendBinaryPQExpBuffer(&out, p, next - p);
		p = next;
	}
	return out.data;
}

/* In a subselect, it gives a name then to what has none. */
static const char *
skip_name(const char *p)
{
	return strncmp(p, " AS ", 4) == 0 ? p + strcspn(p, ",\n)") : p;
}

/* Are they the same but for that?  What is quoted is literal. */
static bool
is_same_body(const Entry *a, const Entry *b)
{
	const char *x = a->body;
	const char *y = b->body;
	int			depth = 0;

	if (strcmp(x, y) == 0)
		return true;
	for (x = normal_casts(x), y = normal_casts(y);; x++, y++)
	{
		for (const char *next; (next = skip_quoted(x)) > x; y += next - x, x = next)
			if (strncmp(x, y, next - x) != 0)
				return false;
		if (*x != *y && depth > 0)
			y = skip_name(y);
		if (*x != *y || *x == '\0')
			return *x == *y;
		depth += (*x == '(') - (*x == ')');
	}
}

/* Tell what an object lacks, and leave its shard: all of them, if it belongs to none. */
static void
tell_difference(const Move *move, const Entry *entry, const char *what)
{
	const char *schema = strstr(entry->header, "; Schema: ");
	char	   *name = pg_strdup(schema == NULL ? "" : schema + strlen("; Schema: "));

	name[strcspn(name, ";")] = '\0';
	report_error("the copy is not as the shard is: on the target, %s: %s", what, entry->header);
	for (int i = 0; i < move->nshards; i++)
		if (shard_of_schema(move, name) == NULL || strcmp(move->shards[i]->schema, name) == 0)
			move->shards[i]->failed = true;
}

/*
 * Has the target all that the archive, of the source's definitions, has, and nothing
 * else?  All is compared that pg_dump says; of another version, or after
 * --target-ddl, what there is, and its privileges.
 */
Status
compare_definitions(const Move *move, int archive)
{
	const Side *target = &move->target;
	bool		has_ddl = set_journal(move, &move->source)->target_ddl_md5 != NULL;
	bool		details = !has_ddl && move->source.version / 10000 == target->version / 10000;
	char	  **schemas = schemas_of(move);
	char	   *wanted = script_of(target->conn, move->options->bindir, archive, NULL, NULL);
	char	   *made = wanted == NULL ? NULL : dump_definitions(target->conn, move->options->bindir, schemas, move->nshards);
	Entry	   *w;
	Entry	   *m;
	char	  **notes;

	if (made == NULL || !calls_are_trusted(move->options, target->conn, schema_list(move, target->conn)))
		return STATUS_FAILED;
	w = entries_of(wanted, details);
	m = entries_of(made, details);
	while (w->header != NULL || m->header != NULL)
	{
		int			order = w->header == NULL ? 1 : m->header == NULL ? -1 : strcmp(w->header, m->header);

		if (order < 0)
			tell_difference(move, w, "this is missing");
		else if (order > 0 && !has_ddl)
			tell_difference(move, m, "there is also");
		else if (order == 0 && !is_same_body(w, m))
		{
			tell_difference(move, w, "this is another");
			report_verbose("%s, and on the target %s", w->body, m->body);
		}
		w += order <= 0;
		m += order >= 0;
	}
	free(wanted);
	free(made);
	notes = note_definitions(move, target);
	for (int i = 0; i < move->nshards; i++)
		record_detail(select_range(move, i, 1), target->conn, "fingerprint", notes[i]);
	read_journal(move, target);
	return select_shards(move, has_failed, NULL)->nshards > 0 ? STATUS_FAILED : STATUS_DONE;
}
