/*
 * The copy: the schema by pg_dump, in one transaction; the data by
 * PostgreSQL's logical replication, which goes on following until the
 * cut-over.
 */
#include "postgres_fe.h"

#include <sys/wait.h>
#include <unistd.h>

#include "snowid-move.h"

/* How often the copy is looked at, and told of. */
#define POLL_MS				200
#define TELL_MS				10000
#define TELL_TERMINAL_MS	1000

/* The other server has to show so often that it has little left to do. */
#define PING_LIMIT_MS		50
#define PINGS_MAX			50

/* The subscription may fail so often without getting on in between. */
#define FAILURES_MAX		3

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
 * Run pg_dump for the shard's definitions, and return its script.  No shell
 * is involved, and a password goes through the environment.
 */
static char *
dump_schema(Move *move)
{
	char	   *program = find_pg_dump(move->options);
	char	   *dbname = text_of("--dbname=%s", conninfo_for_child(move->source.conn));
	char	   *schema = text_of("--schema=%s", pattern_of(move->schema));
	char	   *password = PQpass(move->source.conn);
	char	   *script;
	int			fds[2];
	int			status;
	pid_t		child;

	fflush(NULL);
	if (pipe(fds) < 0 || (child = fork()) < 0)
	{
		report_error("could not start \"%s\": %m", program);
		fail();
	}
	if (child == 0)
	{
		if (password != NULL && password[0] != '\0')
			setenv("PGPASSWORD", password, 1);
		dup2(fds[1], STDOUT_FILENO);
		close(fds[0]);
		close(fds[1]);
		execlp(program, "pg_dump", "--schema-only", "--no-publications",
			   "--no-subscriptions", "--no-password", "--lock-wait-timeout=60s",
			   "--encoding=UTF8",
			   schema, dbname, (char *) NULL);
		report_error("could not run \"%s\": %m", program);
		_exit(127);
	}
	close(fds[1]);
	script = read_all(fds[0]);
	if (waitpid(child, &status, 0) != child || status != 0)
	{
		report_error("\"%s\" has failed", program);
		fail();
	}
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
strip_script(char *script, int target_version)
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
	if (target_version < 170000)
	{
		line = strstr(script, "\nSET transaction_timeout = 0;\n");
		if (line != NULL)
			drop_line(line + 1);
	}
}

/*
 * A query for all that makes up a shard's definitions, as one hash: if it is
 * the same before and after, nobody has changed them.  To be asked of the same
 * server only, since versions print expressions differently.
 */
char *
fingerprint_sql(PGconn *conn, const char *schema)
{
	return text_of("WITH n AS (SELECT oid FROM pg_namespace WHERE nspname = %s), "
				   "c AS (SELECT * FROM pg_class WHERE relnamespace = (TABLE n)) "
				   "SELECT encode(sha256(convert_to(string_agg(d, E'\\n' ORDER BY d COLLATE \"C\"), 'UTF8')), 'hex') FROM ("
				   "SELECT concat_ws(' ', 'relation', relname, relkind, relpersistence, relreplident, relowner, relacl, relrowsecurity, relforcerowsecurity, reloptions) "
				   "FROM c WHERE relkind NOT IN ('i', 'I') "
				   "UNION ALL SELECT concat_ws(' ', 'schema', nspowner, nspacl) FROM pg_namespace WHERE oid = (TABLE n) "
				   "UNION ALL SELECT concat_ws(' ', 'rule', ev_enabled, pg_get_ruledef(r.oid)) FROM c JOIN pg_rewrite r ON r.ev_class = c.oid "
				   "UNION ALL SELECT concat_ws(' ', 'column', c.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), "
				   "a.attnotnull, a.attidentity, a.attgenerated, a.attacl, pg_get_expr(d.adbin, d.adrelid)) "
				   "FROM c JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum "
				   "WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p', 'f', 'c') "
				   "UNION ALL SELECT pg_get_indexdef(i.indexrelid) FROM c JOIN pg_index i ON i.indrelid = c.oid "
				   "UNION ALL SELECT concat_ws(' ', 'constraint', conrelid::regclass, conname, convalidated, pg_get_constraintdef(oid)) "
				   "FROM pg_constraint WHERE connamespace = (TABLE n) "
				   "UNION ALL SELECT concat_ws(' ', tgenabled, pg_get_triggerdef(t.oid)) FROM c JOIN pg_trigger t ON t.tgrelid = c.oid "
				   "WHERE NOT t.tgisinternal AND t.tgname <> 'snowid_fence' "
				   "UNION ALL SELECT concat_ws(' ', 'function', proname, pg_get_function_arguments(oid), proowner, proacl, proconfig, prosecdef, prosrc) "
				   "FROM pg_proc WHERE pronamespace = (TABLE n) "
				   "UNION ALL SELECT concat_ws(' ', 'view', relname, pg_get_viewdef(oid)) FROM c WHERE relkind IN ('v', 'm') "
				   "UNION ALL SELECT concat_ws(' ', 'partition', i.inhrelid::regclass, i.inhparent::regclass, pg_get_expr(c.relpartbound, c.oid)) "
				   "FROM c JOIN pg_inherits i ON i.inhrelid = c.oid "
				   "UNION ALL SELECT concat_ws(' ', 'sequence', relname, format_type(seqtypid, NULL), seqincrement, seqcache) "
				   "FROM c JOIN pg_sequence s ON s.seqrelid = c.oid "
				   "UNION ALL SELECT concat_ws(' ', 'type', typname, typtype, typowner, typacl) FROM pg_type "
				   "WHERE typnamespace = (TABLE n) AND typrelid = 0 AND typelem = 0 "
				   "UNION ALL SELECT concat_ws(' ', 'label', typname, enumlabel, enumsortorder) "
				   "FROM pg_type t JOIN pg_enum e ON e.enumtypid = t.oid WHERE typnamespace = (TABLE n) "
				   "UNION ALL SELECT concat_ws(' ', 'policy', c.relname, polname, polcmd, polroles, pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid)) "
				   "FROM c JOIN pg_policy p ON p.polrelid = c.oid "
				   ") x (d)",
				   literal(conn, schema));
}

/*
 * Make the shard's schema on the target, closed, in one transaction with the
 * journal.
 */
void
copy_schema(Move *move)
{
	Side	   *source = &move->source;
	Side	   *target = &move->target;
	char	   *sql = fingerprint_sql(source->conn, move->schema);
	char	   *before = query_text(source->conn, "%s", sql);
	char	   *script = dump_schema(move);
	char	   *after = query_text(source->conn, "%s", sql);
	Side		side = *target;

	if (before == NULL || after == NULL || strcmp(before, after) != 0)
	{
		report_error("the definitions of the shard have changed while they were read");
		report_hint("Type the same command again.");
		fail();
	}
	record_detail(move, source, "fingerprint", before);
	source->journal.fingerprint = before;
	strip_script(script, target->version);

	/* The script leaves its settings behind, so it has a session for itself. */
	side.conn = open_connection(target->label, move->options->to, true);
	run(side.conn, "BEGIN");
	if (!try_run(side.conn, "%s", script))
	{
		report_error("target: the shard's definitions cannot be created there: %s",
					 PQerrorMessage(side.conn));
		if (strcmp(last_sqlstate, "42704") == 0)
			report_hint("Create the role or the other object that is missing there, then type the same command again.");
		else
			report_hint("Put that right, then type the same command again.");
		fail();
	}
	run(side.conn, "SET search_path = pg_catalog, pg_temp");
	run(side.conn, "SELECT snowid.fence_shard(%d)", move->options->shard);
	record_detail(move, &side, "schema_made", "yes");
	record_step(move, &side, "schema");
	run(side.conn, "COMMIT");
	PQfinish(side.conn);
	target->journal.step = side.journal.step;
}

/*
 * Publish a shard's tables.  Partitions one by one, since that is what a
 * write to their parent comes to.
 */
static void
create_publication(const Move *move, const Side *side, const char *name)
{
	char	   *tables;

	tables = query_text(side->conn,
						"SELECT ' FOR TABLE ' || string_agg(format('ONLY %%I.%%I', n.nspname, c.relname), ', ' ORDER BY c.oid) "
						"FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
						"WHERE n.nspname = %s AND c.relkind = 'r' AND c.relpersistence = 'p'",
						literal(side->conn, move->schema));
	run(side->conn, "CREATE PUBLICATION %s%s", ident(side->conn, name),
		tables != NULL ? tables : "");
}

static bool
publication_exists(const Side *side, const char *name)
{
	return query_bool(side->conn,
					  "SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = %s)",
					  literal(side->conn, name));
}

/* On the source: with the journal. On the target, for the way back: without. */
void
publish(const Move *move, Side *side, const char *name)
{
	bool		is_source = side == &move->source;

	if (!is_source && publication_exists(side, name))
		return;
	run(side->conn, "BEGIN");
	create_publication(move, side, name);
	if (is_source)
		record_step(move, side, "published");
	run(side->conn, "COMMIT");
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

	/* On the second connection: the wait is long, and the first has the lock. */
	run(side->aux, "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')",
		literal(side->aux, name));
}

/* Start copying and following, with the journal. */
void
subscribe(Move *move)
{
	Side	   *target = &move->target;
	PGconn	   *conn = target->conn;
	char	   *slots;

	run(conn, "BEGIN");
	run(conn,
		"CREATE SUBSCRIPTION %s CONNECTION %s PUBLICATION %s "
		"WITH (create_slot = false, slot_name = %s, copy_data = true, enabled = true)",
		ident(conn, move->name), literal(conn, move->source.conninfo),
		ident(conn, move->name), literal(conn, move->name));

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
	record_detail(move, target, "table_slots", slots);
	record_detail(move, &move->source, "table_slots", slots);
	record_step(move, target, "subscribed");
	run(conn, "COMMIT");
}

/*
 * Undo the move, which cannot get on.  On the way back there is nothing to
 * undo: the shard is open on the server that it would leave.
 */
static void
give_up_from(Move *move, const Side *from)
{
	if (from == &move->source)
		give_up(move);
	report_hint("The shard stays where it is. Type the same command again, with a larger --max-wal if that was too little; if the slot is lost, the way back is closed: type snowid-move abort, if status says that it was begun, and then finish.");
	fail();
}

/*
 * Give up if the slot is lost, or keeps more log than it may.  A full disk
 * on the source would be worse than no move.
 */
static void
check_slot(Move *move, const Side *from, const char *name)
{
	PGresult   *res = query(from->aux,
							"SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint, "
							"wal_status IS NOT DISTINCT FROM 'lost' "
							"FROM pg_replication_slots WHERE slot_name = %s",
							literal(from->aux, name));

	if (PQntuples(res) == 0 || *PQgetvalue(res, 0, 1) == 't')
	{
		report_error("replication slot \"%s\" of the %s is lost", name, from->label);
		give_up_from(move, from);
	}
	if (strtoll(PQgetvalue(res, 0, 0), NULL, 10) > move->options->max_wal)
	{
		report_error("the move keeps %s MB of the %s's log, more than --max-wal allows",
					 text_of("%lld", strtoll(PQgetvalue(res, 0, 0), NULL, 10) >> 20), from->label);
		give_up_from(move, from);
	}
	PQclear(res);
}

/* How often has the subscription failed?  From 15 on the server counts. */
static int64
failures(const Side *to, const char *name)
{
	if (to->version < 150000)
		return 0;
	return query_int64(to->aux,
					   "SELECT coalesce(sum(apply_error_count + sync_error_count), 0) "
					   "FROM pg_stat_subscription_stats WHERE subname = %s",
					   literal(to->aux, name));
}

/* Give up if the subscription fails again and again. */
static void
check_failures(Move *move, int64 *counted, bool getting_on)
{
	static int64 base = -1;

	*counted = failures(&move->target, move->name);
	if (base < 0 || getting_on)
		base = *counted;
	if (*counted - base >= FAILURES_MAX)
	{
		report_error("the target fails to take the copy, again and again");
		report_detail("Its server log says why: a full disk, a connection refused, a row that is there already.");
		give_up(move);
	}
}

/* Wait until the target has all tables, and follows. */
void
wait_for_copy(Move *move)
{
	Side	   *target = &move->target;
	bool		terminal = isatty(STDERR_FILENO);
	int64		start = now_ms();
	int64		told = start;
	int64		counted = 0;
	int64		last_bytes = -1;
	int			last_done = -1;
	int64		total_bytes;

	total_bytes = query_int64(move->source.conn,
							  "SELECT coalesce(sum(pg_table_size(c.oid)), 0)::bigint FROM pg_class c "
							  "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relkind = 'r'",
							  literal(move->source.conn, move->schema));
	for (;;)
	{
		int			tables;
		int			done;
		int64		bytes;
		int64		now = now_ms();
		PGresult   *res = query(target->conn,
								"SELECT count(*), count(*) FILTER (WHERE srsubstate = 'r'), "
								"coalesce(sum(pg_table_size(srrelid)), 0)::bigint "
								"FROM pg_subscription_rel WHERE srsubid = "
								"(SELECT oid FROM pg_subscription WHERE subname = %s AND subdbid = "
								"(SELECT oid FROM pg_database WHERE datname = current_database()))",
								literal(target->conn, move->name));

		tables = atoi(PQgetvalue(res, 0, 0));
		done = atoi(PQgetvalue(res, 0, 1));
		bytes = strtoll(PQgetvalue(res, 0, 2), NULL, 10);
		PQclear(res);

		if (done == tables || now - told >= (terminal ? TELL_TERMINAL_MS : TELL_MS))
		{
			double		seconds = Max(now - start, 1) / 1000.0;
			double		rate = bytes / seconds / 1048576.0;
			int64		left = Max(total_bytes - bytes, 0) >> 20;

			if (terminal)
				fputc('\r', stderr);
			fprintf(stderr, "%s: %d of %d tables, %lld of about %lld MB, %.1f MB/s",
					progname, done, tables, (long long) (bytes >> 20),
					(long long) (total_bytes >> 20), rate);
			if (done < tables && rate > 0)
				fprintf(stderr, ", %d s left", (int) (left / rate));
			fputs(terminal && done < tables ? "   " : "\n", stderr);
			told = now;
		}
		if (done == tables)
			break;

		check_slot(move, &move->source, move->name);
		check_failures(move, &counted, done > last_done || bytes > last_bytes);
		last_done = done;
		last_bytes = Max(bytes, last_bytes);
		wait_ms(POLL_MS);
	}

	run(target->conn, "BEGIN");
	record_step(move, target, "copied");
	run(target->conn, "COMMIT");
	record_step(move, &move->source, "copied");
}

/*
 * Wait until the other server has replayed all that was written here up to
 * now; returns false after a limit.
 *
 * It does not say so by itself at once: it waits until what it has applied is
 * on its disk, which nobody hurries for, and then for the next message.  So
 * both sides get a commit to flush, again and again.
 */
bool
wait_for_replay(const Side *from, const Side *to, const char *name, int64 until)
{
	char	   *lsn = query_text(from->aux, "SELECT pg_current_wal_insert_lsn()");
	bool		done = false;

	while (!done && now_ms() < until)
	{
		flush_log(from);
		done = query_bool(from->aux,
						  "SELECT r.replay_lsn >= %s::pg_lsn FROM pg_replication_slots s "
						  "JOIN pg_stat_replication r ON r.pid = s.active_pid WHERE s.slot_name = %s",
						  literal(from->aux, lsn), literal(from->aux, name));
		if (!done)
		{
			flush_log(to);
			wait_ms(1);
		}
	}
	free(lsn);
	return done;
}

/*
 * Wait until the other server is so close behind that the rest is quick: by
 * bytes, and then by what it shows.  A server that is always slow is tried
 * all the same.
 */
void
wait_for_lag(Move *move, const Side *from, const char *name)
{
	int64		told = now_ms();
	int64		counted = 0;
	int64		last_lag = PG_INT64_MAX;
	int			slow = 0;
	const Side *to = from == &move->source ? &move->target : &move->source;

	for (;;)
	{
		char	   *lag = query_text(from->aux,
									 "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), r.replay_lsn)::bigint "
									 "FROM pg_replication_slots s JOIN pg_stat_replication r ON r.pid = s.active_pid "
									 "WHERE s.slot_name = %s", literal(from->aux, name));
		int64		bytes = lag != NULL ? strtoll(lag, NULL, 10) : PG_INT64_MAX;

		if (bytes <= move->options->max_lag &&
			(wait_for_replay(from, to, name, now_ms() + PING_LIMIT_MS) ||
			 ++slow >= PINGS_MAX))
			return;
		if (now_ms() - told >= TELL_MS)
		{
			if (lag != NULL)
				report_info("waiting: the %s is %lld MB behind", to->label,
							(long long) (bytes >> 20));
			else
				report_info("waiting: the %s is not connected", to->label);
			told = now_ms();
		}
		free(lag);
		check_slot(move, from, name);
		if (from == &move->source)
			check_failures(move, &counted, bytes < last_lag);
		last_lag = bytes;
		wait_ms(20);
	}
}
