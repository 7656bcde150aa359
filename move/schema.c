/*
 * The definitions: read by pg_dump, made on the target in one transaction, and
 * compared with what they were.
 */
#include "stages.h"

#include <sys/wait.h>
#include <unistd.h>

static char *
read_all(int fd)
{
	PQExpBufferData buf;
	char		chunk[65536];
	ssize_t		n;

	initPQExpBuffer(&buf);
	while ((n = read(fd, chunk, sizeof(chunk))) > 0)
		appendBinaryPQExpBuffer(&buf, chunk, n);
	close(fd);
	if (PQExpBufferDataBroken(buf))
	{
		report_error("out of memory");
		fail();
	}
	return buf.data;
}

/* Where pg_dump is: as told, beside this program, or in the PATH. */
char *
find_pg_dump(const MoveOptions *options)
{
	char		self[MAXPGPATH];
	ssize_t		len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char	   *slash;

	if (options->bindir != NULL)
		return text_of("%s/pg_dump", options->bindir);
	if (len > 0)
	{
		self[len] = '\0';
		slash = strrchr(self, '/');
		if (slash != NULL)
		{
			char	   *path;

			*slash = '\0';
			path = text_of("%s/pg_dump", self);
			if (access(path, X_OK) == 0)
				return path;
		}
	}
	return pg_strdup("pg_dump");
}

/* A name as a pattern of pg_dump's that matches it alone. */
static char *
pattern_of(const char *name)
{
	PQExpBufferData buf;

	initPQExpBuffer(&buf);
	appendPQExpBufferChar(&buf, '"');
	for (const char *p = name; *p; p++)
	{
		if (*p == '"')
			appendPQExpBufferChar(&buf, '"');
		appendPQExpBufferChar(&buf, *p);
	}
	appendPQExpBufferChar(&buf, '"');
	return buf.data;
}

/*
 * Run pg_dump for the shards' definitions, and return its script; NULL after
 * saying what has failed.  No shell is involved, and a password goes through
 * the environment.  As we do, pg_dump sets its search path before all else.
 */
static char *
dump_schemas(const Move *move)
{
	const char **argv = pg_malloc0(sizeof(char *) * (move->nshards + 12));
	int			argc = 0;
	char	   *program = find_pg_dump(move->options);
	char	   *password = PQpass(move->source.conn);
	char	   *script;
	int			fds[2];
	int			status;
	pid_t		child;

	argv[argc++] = "pg_dump";
	argv[argc++] = "--schema-only";
	argv[argc++] = "--no-publications";
	argv[argc++] = "--no-subscriptions";
	argv[argc++] = "--no-password";
	argv[argc++] = "--lock-wait-timeout=60s";
	argv[argc++] = "--encoding=UTF8";
	for (int i = 0; i < move->nshards; i++)
		argv[argc++] = text_of("--schema=%s", pattern_of(move->shards[i]->schema));
	argv[argc++] = text_of("--dbname=%s", conninfo_of_connection(move->source.conn));

	fflush(NULL);
	if (pipe(fds) < 0 || (child = fork()) < 0)
	{
		report_error("could not start \"%s\": %m", program);
		return NULL;
	}
	if (child == 0)
	{
		if (password != NULL && password[0] != '\0')
			setenv("PGPASSWORD", password, 1);
		dup2(fds[1], STDOUT_FILENO);
		close(fds[0]);
		close(fds[1]);
		execvp(program, (char *const *) argv);
		report_error("could not run \"%s\": %m", program);
		_exit(127);
	}
	close(fds[1]);
	script = read_all(fds[0]);
	if (waitpid(child, &status, 0) != child || status != 0)
	{
		report_error("\"%s\" has failed", program);
		return NULL;
	}
	pg_free(argv);
	return script;
}

/* Take out a line, in place, if it stands at the given spot. */
static void
drop_line(char *line)
{
	char	   *end = strchr(line, '\n');

	if (end == NULL)
		*line = '\0';
	else
		memmove(line, end + 1, strlen(end + 1) + 1);
}

/*
 * Make a script of pg_dump's what a server can run: without psql's \restrict
 * around it, and without a setting that an older target does not know.
 */
static void
strip_script(char *script, const Side *target)
{
	char	   *line;
	char	   *next;

	/* Only before the first statement and at the end, never within a body. */
	for (line = script; *line != '\0'; line = next)
	{
		if (strncmp(line, "\\restrict ", 10) == 0)
		{
			char	   *end = strchr(line, '\n');
			char	   *key = pg_strdup(line + 10);
			char	   *last = NULL;
			char	   *unrestrict;

			key[end ? end - line - 10 : 0] = '\0';
			drop_line(line);
			unrestrict = text_of("\n\\unrestrict %s", key);
			for (char *p = line; (p = strstr(p, unrestrict)) != NULL; p++)
				last = p;
			if (last != NULL)
				drop_line(last + 1);
			break;
		}
		if (strncmp(line, "--", 2) != 0 && *line != '\n')
			break;
		next = strchr(line, '\n');
		if (next == NULL)
			break;
		next++;
	}
	if (!has_transaction_timeout(target))
	{
		line = strstr(script, "\nSET transaction_timeout = 0;\n");
		if (line != NULL)
			drop_line(line + 1);
	}
}

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

	for (int i = 0; i < move->nshards; i++)
		journal_of(move->shards[i], source)->fingerprint =
			take_fingerprint(conn, move->shards[i]->schema);
	*script = dump_schemas(move);
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
