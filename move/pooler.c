/*
 * The registry behind PgBouncer: which server each pool leads to, and the pause
 * in which that changes without a client's noticing.
 *
 * A pool is an entry of PgBouncer's [databases], for a group of shards that live
 * in one place and move in one decision: those with the same "pool" in the
 * registry.  A hand-over with poolers goes in this order:
 *
 *		prepare_pools()		the journal names the poolers, before any is told
 *		pause_pools()		PAUSE on all of them: writers wait at the poolers, and
 *							none has a transaction open
 *		(the decision)		fence and opening, as without poolers
 *		route_pools()		the new file, RELOAD, RESUME; the journal forgets them
 *		resume_pools()		in place of that, if it was not decided
 *
 * So a journal that names poolers says that their pools are perhaps paused, or
 * lead to where the shards were.  settle_pools() ends that at the beginning of the next
 * command, but for shards that are open nowhere: those go on waiting at the
 * poolers, until the command has opened them.
 *
 * No pooler can endanger a move.  One that fails before the decision makes that
 * attempt fail; of one that fails later it is said that it has the old entries,
 * whose clients get SN001 from the fence.  No answer is awaited without a limit.
 */
#include "precheck.h"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_POOLERS			32

/* How long a console, and --pooler-command, may take where no writer's limit counts. */
#define CONSOLE_LIMIT_MS	5000
#define COMMAND_LIMIT_S		10

/* Between the registry and the time in the file's first line. */
#define AS_OF				" as of "

/* The locks of shards have the same class, and their numbers. */
#define FILE_LOCK			(-1)

typedef struct Console
{
	const char *conninfo;
	const char *name;			/* the same without password: for messages,
								 * the journal */
	PGconn	   *conn;			/* NULL: not connected */
	PGconn	   *spare;			/* takes the place of one that gives no answer */
	bool		pending;		/* it has been asked, and has not answered */
	PGresult   *answer;			/* the last one; NULL: none in time, or lost */
} Console;

static Console consoles[MAX_POOLERS];
static int	nconsoles = 0;

/* -------- consoles -------- */

/* Keepalives do not help here: nothing is sent that is not awaited. */
static PGconn *
open_console(const char *conninfo)
{
	const char *const keywords[] = {"connect_timeout", "dbname", "fallback_application_name", NULL};
	const char *const values[] = {"2", conninfo, progname, NULL};
	PGconn	   *conn = PQconnectdbParams(keywords, values, true);

	if (PQstatus(conn) == CONNECTION_OK)
		return conn;
	report_verbose("pooler: %s", PQerrorMessage(conn));
	PQfinish(conn);
	return NULL;
}

/* Connect, where we are not; the name of a pooler that cannot be reached, or NULL. */
static const char *
open_consoles(void)
{
	const char *missing = NULL;

	for (Console *c = consoles; c < consoles + nconsoles; c++)
	{
		if (c->conn == NULL || PQstatus(c->conn) != CONNECTION_OK)
		{
			PQfinish(c->conn);
			c->conn = open_console(c->conninfo);
		}
		if (c->spare == NULL && c->conn != NULL)
			c->spare = open_console(c->conninfo);
		if (c->conn == NULL || c->spare == NULL)
			missing = c->name;
	}
	return missing;
}

/* Name a pooler, once. */
static void
add_console(const char *conninfo)
{
	const char *name = without_password("--pooler", conninfo);

	for (int i = 0; i < nconsoles; i++)
		if (strcmp(consoles[i].name, name) == 0)
			return;
	if (nconsoles < MAX_POOLERS)
		consoles[nconsoles++] = (Console)
	{
		.conninfo = conninfo,.name = name
	};
}

/* Those that the command names; and of them, whether there are any. */
static bool
has_poolers(const Move *move)
{
	for (int i = 0; i < move->options->npoolers; i++)
		add_console(move->options->poolers[i]);
	return nconsoles > 0;
}

static void
ask_console(Console *c, const char *command)
{
	PQclear(c->answer);
	c->answer = NULL;
	c->pending = c->conn != NULL && PQsendQuery(c->conn, command);
}

/* Take an answer that has come, or the end of the connection. */
static void
take_answer(Console *c)
{
	PGresult   *res;

	while ((res = PQgetResult(c->conn)) != NULL)
	{
		PQclear(c->answer);
		c->answer = res;
	}
	c->pending = false;
}

/* The next console that has answered, of those that were asked, or that one; NULL: none in time. */
static Console *
next_answer(const Console *only, int64 until)
{
	for (;;)
	{
		struct pollfd waiting[MAX_POOLERS];
		int			n = 0;
		int64		left = until - now_ms();

		for (Console *c = consoles; c < consoles + nconsoles; c++)
		{
			if (!c->pending || (only != NULL && c != only))
				continue;
			if (!PQconsumeInput(c->conn) || !PQisBusy(c->conn))
			{
				take_answer(c);
				return c;
			}
			waiting[n++] = (struct pollfd)
			{
				.fd = PQsocket(c->conn),.events = POLLIN
			};
		}
		if (n == 0 || left <= 0)
			return NULL;
		(void) poll(waiting, n, (int) left);
	}
}

/* Who gives no answer is given up; the other connection takes its place. */
static void
give_up(Console *c)
{
	PQfinish(c->conn);
	c->conn = c->spare;
	c->spare = NULL;
	c->pending = false;
}

static bool
is_done(const Console *c)
{
	ExecStatusType status = PQresultStatus(c->answer);

	return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

static const char *
error_of(const Console *c)
{
	const char *message = c->answer != NULL ? PQresultErrorField(c->answer, PG_DIAG_MESSAGE_PRIMARY) : NULL;

	return message != NULL ? message : "no answer";
}

/* Ask one console, and wait; the answer stays there. */
static bool
ask_and_wait(Console *c, const char *command)
{
	ask_console(c, command);
	if (c->pending && next_answer(c, now_ms() + CONSOLE_LIMIT_MS) == NULL)
		give_up(c);
	return is_done(c);
}

/* A field of an answer by its name, since versions differ; "" for none. */
static const char *
answer_field(const Console *c, int row, const char *name)
{
	int			column = PQfnumber(c->answer, name);

	return column < 0 ? "" : PQgetvalue(c->answer, row, column);
}

/* The first row of what a console shows that has a value; -1: none, or no answer. */
static int
find_row(Console *c, const char *command, const char *column, const char *value)
{
	if (ask_and_wait(c, command))
		for (int row = 0; row < PQntuples(c->answer); row++)
			if (strcmp(answer_field(c, row, column), value) == 0)
				return row;
	return -1;
}

/* -------- pools -------- */

static int
compare_pools(const void *a, const void *b)
{
	const Shard *x = *(Shard *const *) a;
	const Shard *y = *(Shard *const *) b;
	int			order = strcmp(x->pool, y->pool);

	return order != 0 ? order : x->number - y->number;
}

/* The same shards, those of a pool beside each other. */
const Move *
by_pools(const Move *move)
{
	Move	   *sorted;

	if (!has_poolers(move))
		return move;
	sorted = select_range(move, 0, move->nshards);
	sorted->shards = pg_malloc(sizeof(Shard *) * Max(move->nshards, 1));
	memcpy(sorted->shards, move->shards, sizeof(Shard *) * move->nshards);
	qsort(sorted->shards, sorted->nshards, sizeof(Shard *), compare_pools);
	return sorted;
}

/* Is the shard at this place the first one of its pool? */
static bool
is_first_of_pool(const Move *move, int i)
{
	return i == 0 || strcmp(move->shards[i]->pool, move->shards[i - 1]->pool) != 0;
}

/* So many shards from there on, or some more, so that no pool is cut. */
int
whole_pools(const Move *move, int first, int count)
{
	if (has_poolers(move))
		while (first + count < move->nshards && !is_first_of_pool(move, first + count))
			count++;
	return count;
}

/* -------- the file -------- */

static const char *const address[] = {"host", "port", "dbname"};

/* Append a value to an entry. */
static void
append_value(PQExpBuffer entry, const char *key, const char *value)
{
	appendPQExpBuffer(entry, " %s='", key);
	for (; *value; value++)
	{
		if (*value == '\'')
			appendPQExpBufferChar(entry, '\'');
		appendPQExpBufferChar(entry, *value);
	}
	appendPQExpBufferChar(entry, '\'');
}

/*
 * What an entry has after its name; NULL if that home is not found.  A pooler would
 * take several hosts by turns, so it gets the one that is the primary now.
 */
static char *
entry_of_home(const char *home)
{
	static struct
	{
		char	   *home;
		char	   *entry;
	}			known[MAX_POOLERS];
	static int	n = 0;
	PQconninfoOption *options;
	PGconn	   *primary = NULL;
	const char *values[] = {"", "5432", ""};
	PQExpBufferData entry;

	for (int i = 0; i < Min(n, MAX_POOLERS); i++)
		if (strcmp(known[i].home, home) == 0)
			return known[i].entry;
	options = PQconninfoParse(home, NULL);
	for (PQconninfoOption *o = options; o != NULL && o->keyword != NULL; o++)
		for (int i = 0; i < (int) lengthof(address); i++)
			if (strcmp(o->keyword, address[i]) == 0 && o->val != NULL)
				values[i] = o->val;
	if (strchr(values[0], ',') != NULL)
	{
		primary = open_console(home);
		values[0] = primary != NULL ? PQhost(primary) : "";
		values[1] = primary != NULL ? PQport(primary) : "";
	}
	initPQExpBuffer(&entry);
	for (int i = 0; i < (int) lengthof(address); i++)
		append_value(&entry, address[i], values[i]);
	known[n % MAX_POOLERS].home = pg_strdup(home);
	known[n++ % MAX_POOLERS].entry = values[0][0] != '\0' && values[2][0] != '\0' ? entry.data : NULL;
	PQfinish(primary);
	PQconninfoFree(options);
	return known[(n - 1) % MAX_POOLERS].entry;
}

/*
 * The entries as a registry has them, but for some shards that live elsewhere: at
 * home.  NULL, after saying why, or keeping the reason.
 */
static char *
entries_of(PGconn *conn, const MoveOptions *options, const Move *moved, const char *home, const char **reason)
{
	PQExpBufferData text;
	char	   *here = home_of_connection(conn);
	PGresult   *res = query(conn,
							"SELECT coalesce(r.pool, r.schema), h.home, string_agg(shard::text, ', ' ORDER BY shard) "
							"FROM snowid.shard_registry r LEFT JOIN snowid.moves m USING (shard) "
							"LEFT JOIN pg_namespace n ON nspname = r.schema "
							"LEFT JOIN pg_class c ON relnamespace = n.oid AND relname = r.sequence AND relkind = 'S', "
							"LATERAL (SELECT CASE WHEN shard = ANY (ARRAY[%s]::int[]) THEN %s "
							"WHEN r.home IS NULL AND n.oid IS NULL THEN NULL "
							"WHEN r.home IS NULL OR c.oid IS NOT NULL AND NOT coalesce(closed AND step NOT IN ('closed', 'open'), false) "
							"THEN %s ELSE r.home END) h "
							"GROUP BY 1, 2 ORDER BY coalesce(r.pool, r.schema) COLLATE \"C\", h.home COLLATE \"C\"",
							moved != NULL ? shard_list(moved) : "", literal(conn, home != NULL ? home : here),
							literal(conn, here));
	char	   *entry = NULL;

	*reason = NULL;
	initPQExpBuffer(&text);
	appendPQExpBuffer(&text, "; entries of PgBouncer, from the registry at %s" AS_OF "%s\n[databases]\n", here,
					  query_text(conn, "SELECT date_trunc('second', now())"));
	for (int row = 0; row < PQntuples(res) && *reason == NULL; row++)
	{
		const char *pool = PQgetvalue(res, row, 0);
		const char *where = PQgetisnull(res, row, 1) ? NULL : PQgetvalue(res, row, 1);
		char	   *last = entry;

		if (where == NULL)
			*reason = text_of("shard %s has no home, and is not at %s", PQgetvalue(res, row, 2), here);
		else if (pool[strspn(pool, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")] != '\0')
			*reason = text_of("pool \"%s\" of shard %s cannot be the name of an entry: letters, digits, _, . and - can", pool, PQgetvalue(res, row, 2));
		else if ((entry = entry_of_home(where)) == NULL)
			*reason = text_of("the home of shard %s leads nowhere: %s", PQgetvalue(res, row, 2), where);
		else if (row > 0 && strcmp(pool, PQgetvalue(res, row - 1, 0)) == 0)
		{
			if (last == NULL || strcmp(entry, last) != 0)
				*reason = text_of("pool \"%s\" has shards in two places: %s at %s; %s at %s", pool,
								  PQgetvalue(res, row - 1, 2), PQgetvalue(res, row - 1, 1), PQgetvalue(res, row, 2), where);
		}
		else
		{
			appendPQExpBuffer(&text, "%s =%s ", pool, entry);
			for (const char *o = options->entry_options; o != NULL && *o; o++)
				if (strncmp(o, "%p", 2) == 0)
					appendPQExpBufferStr(&text, (o++, pool));
				else
					appendPQExpBufferChar(&text, *o);
			appendPQExpBufferChar(&text, '\n');
		}
	}
	PQclear(res);
	if (*reason != NULL)
		return NULL;
	return keep_text(text.data);
}

/* The connection to the registry that has all: the --registry, or a server of the move. */
static PGconn *
open_registry(const Move *move)
{
	const Side *side = move->source.conn != NULL ? &move->source : &move->target;
	const char *conninfo = move->options->registry != NULL ? move->options->registry
	: is_known(move, side) ? set_journal(move, side)->registry : NULL;

	return conninfo != NULL ? open_connection("registry", conninfo) : side->conn;
}

/* Put a text in the place of the file, which keeps its owner and mode. */
static bool
replace_file(const char *path, const char *text)
{
	char	   *beside = text_of("%s.new", path);
	FILE	   *file = fopen(beside, "w");
	struct stat st;
	bool		done = file != NULL;

	if (done && stat(path, &st) == 0)
		done = fchmod(fileno(file), st.st_mode & 0777) == 0 &&
			(fchown(fileno(file), st.st_uid, st.st_gid) == 0 || errno == EPERM);
	done = done && fputs(text, file) >= 0 && fflush(file) == 0 && fsync(fileno(file)) == 0;
	if (file != NULL)
		done = fclose(file) == 0 && done;
	return done && rename(beside, path) == 0;
}

/* Run --pooler-command with the file's path; it ends, or is ended. */
static bool
run_pooler_command(const MoveOptions *options)
{
	int			status = -1;
	pid_t		pid;

	if (options->pooler_command == NULL)
		return true;
	fflush(NULL);
	if ((pid = fork()) == 0)
	{
		alarm(COMMAND_LIMIT_S);
		execl("/bin/sh", "sh", "-c", text_of("%s \"$1\"", options->pooler_command), "sh", options->pooler_file, NULL);
		_exit(127);
	}
	if (pid > 0 && waitpid(pid, &status, 0) == pid && status == 0)
		return true;
	report_warning("--pooler-command failed, or took longer than %d s", COMMAND_LIMIT_S);
	return false;
}

/*
 * What keeps the entries from being made, with the shards at home, and from being
 * written if they are to be; or NULL.  Two programs at once write one after the other, so
 * that the last one's file has what both have moved.  A file of another registry may
 * have entries that this one does not know.
 */
static const char *
why_not_routed(const Move *move, const char *home, bool to_write)
{
	PGconn	   *conn = open_registry(move);
	const char *path = move->options->pooler_file;
	char		line[4096] = "";
	const char *reason = NULL;
	char	   *text = NULL;
	FILE	   *file = NULL;

	if (PQstatus(conn) != CONNECTION_OK || !try_run(conn, "SET lock_timeout = %d", CONSOLE_LIMIT_MS) ||
		(to_write && !try_run(conn, "SELECT pg_advisory_lock(%d, %d)", LOCK_CLASS, FILE_LOCK)))
		reason = text_of("registry: %s", PQerrorMessage(conn));
	else if ((text = entries_of(conn, move->options, move, home, &reason)) !=NULL)
	{
		if ((file = fopen(path, "r")) == NULL)
			reason = text_of("file \"%s\": %m", path);
		else if (fgets(line, sizeof(line), file) == NULL || strncmp(line, text, strstr(text, AS_OF) - text) != 0)
			reason = text_of("file \"%s\" is not of the registry at %s; let snowid-move route write it, or name its --registry",
							 path, home_of_connection(conn));
		else if (to_write && !replace_file(path, text))
			reason = text_of("file \"%s.new\": %m", path);
		if (file != NULL)
			fclose(file);
	}
	if (to_write)
		(void) try_run(conn, "SELECT pg_advisory_unlock(%d, %d)", LOCK_CLASS, FILE_LOCK);
	(void) try_run(conn, "SET lock_timeout = 0");
	if (conn != move->source.conn && conn != move->target.conn)
		PQfinish(conn);
	return reason;
}

/* Have the registry of all, and the file, say where the shards are open now. */
static bool
write_entries(const Move *move, const Side *from, const Side *to)
{
	const char *reason = "no --pooler-file was given";

	if (tell_registry(move, from, to) == STATUS_DONE && move->options->pooler_file != NULL)
		reason = why_not_routed(move, to->home, true);
	if (reason != NULL)
		report_warning("%s", reason);
	return reason == NULL && run_pooler_command(move->options);
}

/* -------- the pause -------- */

/* What a move with poolers needs before writers wait, at each attempt; NULL, or why it has it not. */
const char *
prepare_pools(const Move *move, const Side *from, const Side *to)
{
	PQExpBufferData names;
	const char *reason;

	if (!has_poolers(move))
		return NULL;
	if ((reason = open_consoles()) != NULL)
		return text_of("the pooler at %s cannot be reached", reason);
	if ((reason = why_not_routed(move, to->home, false)) != NULL)
		return reason;
	initPQExpBuffer(&names);
	for (int i = 0; i < nconsoles; i++)
		appendPQExpBuffer(&names, "%s\n", consoles[i].name);
	record_detail(move, from->conn, "poolers", names.data);
	termPQExpBuffer(&names);
	return NULL;
}

/* Who keeps a pool's server, so that PAUSE gets no answer: for a message. */
static const char *
holder_of(Console *c, const Side *side, const char *pool)
{
	const char *pid = "0";
	const char *link = "";
	const char *does;
	int			row;

	if (ask_and_wait(c, "SHOW SERVERS"))
		for (row = 0; row < PQntuples(c->answer); row++)
			if (strcmp(answer_field(c, row, "database"), pool) == 0 && answer_field(c, row, "link")[0] != '\0')
			{
				link = text_of("%s", answer_field(c, row, "link"));
				pid = text_of("%d", atoi(answer_field(c, row, "remote_pid")));
			}
	row = find_row(c, "SHOW CLIENTS", "ptr", link);
	does = query_text(side->aux, "SELECT format(', process %%s of %%s since %%s: %%s', pid, usename, date_trunc('second', coalesce(xact_start, query_start)), "
					  "left(translate(query, E'\\n\\t', '  '), 100)) FROM pg_stat_activity WHERE pid = %s", pid);
	return row < 0 ? "a client" : text_of("client %s:%s %s%s", answer_field(c, row, "addr"), answer_field(c, row, "port"),
										  answer_field(c, row, "application_name"), does != NULL ? does : "");
}

/*
 * Let the writers wait at the poolers; NULL, or why not all do by then.  Clients
 * in session mode that keep their sessions are no reason: they meet the fence.
 */
const char *
pause_pools(const Move *move, const Side *from, int64 until)
{
	Console    *c;
	int			row;

	for (int i = 0; i < move->nshards && has_poolers(move); i++)
	{
		const char *pool = move->shards[i]->pool;

		if (!is_first_of_pool(move, i))
			continue;
		for (c = consoles; c < consoles + nconsoles; c++)
			ask_console(c, text_of("PAUSE \"%s\"", pool));
		while ((c = next_answer(NULL, until)) != NULL)
			if (!is_done(c))
				return text_of("the pooler at %s does not pause pool \"%s\": %s", c->name, pool, error_of(c));
		for (c = consoles; c < consoles + nconsoles; c++)
		{
			if (!c->pending)
				continue;
			give_up(c);
			row = c->conn != NULL ? find_row(c, "SHOW POOLS", "database", pool) : -1;
			if (row < 0 || strcmp(answer_field(c, row, "pool_mode"), "session") != 0)
				return text_of("pool \"%s\" at the pooler at %s is held by %s", pool, c->name, holder_of(c, from, pool));
			report_verbose("pool \"%s\": clients keep their sessions at the pooler at %s", pool, c->name);
			c->spare = open_console(c->conninfo);
		}
	}
	return NULL;
}

static void
forget_poolers(const Move *move, const Side *from)
{
	(void) try_run(from->conn, "UPDATE snowid.moves SET details = details - 'poolers' WHERE shard IN (%s)", shard_list(move));
	for (int i = 0; i < move->nshards; i++)
		journal_of(move->shards[i], from)->poolers = NULL;
}

/* Let the clients of one pooler go on; what it does not pause is no error. */
static void
resume_at(Console *c, const Move *move)
{
	if (c->pending)
		give_up(c);
	for (int i = 0; i < move->nshards && c->conn != NULL; i++)
		if (is_first_of_pool(move, i))
			(void) ask_and_wait(c, text_of("RESUME \"%s\"", move->shards[i]->pool));
}

/* Let the writers go on where the shards were. */
void
resume_pools(const Move *move, const Side *from)
{
	if (!has_poolers(move))
		return;
	move = by_pools(move);
	for (Console *c = consoles; c < consoles + nconsoles; c++)
		resume_at(c, move);
	forget_poolers(move, from);
}

/* Does a pooler lead there?  It reads the file as a whole: one pool tells of all. */
static bool
leads_to(Console *c, const char *pool, const char *home)
{
	int			row = find_row(c, "SHOW DATABASES", "name", pool);
	char	   *wanted = entry_of_home(home);
	PQExpBufferData entry;
	bool		done;

	if (row < 0 || wanted == NULL)
		return false;
	initPQExpBuffer(&entry);
	for (int i = 0; i < (int) lengthof(address); i++)
		append_value(&entry, address[i], answer_field(c, row, i < 2 ? address[i] : "database"));
	done = strcmp(entry.data, wanted) == 0;
	termPQExpBuffer(&entry);
	return done;
}

/* One pooler has read its file again, or gives no answer; false if it has the old entries. */
static bool
end_pause_at(Console *c, const Move *move, const char *home)
{
	bool		done = !c->pending && is_done(c) && leads_to(c, move->shards[0]->pool, home);

	resume_at(c, move);
	if (done)
		return true;
	report_warning("the pooler at %s does not lead %s to %s", c->name, move->title, home);
	report_hint("Its clients get SN001. When it can read the new file, type the same command again.");
	return false;
}

/*
 * Let the writers go on where the shards are open now.  Who still has the old
 * entries is told, and stays in the journal.
 */
void
route_pools(const Move *move, const Side *from, const Side *to)
{
	bool		done;
	int64		until;
	Console    *c;

	if (!has_poolers(move))
		return;
	move = by_pools(move);
	(void) open_consoles();
	done = write_entries(move, from, to);
	until = now_ms() + CONSOLE_LIMIT_MS;
	for (c = consoles; c < consoles + nconsoles; c++)
		ask_console(c, "RELOAD");
	while ((c = next_answer(NULL, until)) != NULL)
		done = end_pause_at(c, move, to->home) && done;
	for (c = consoles; c < consoles + nconsoles; c++)
		if (c->pending || c->conn == NULL)
			done = end_pause_at(c, move, to->home) && done;
	if (done)
		forget_poolers(move, from);
	else
		move->tally->unrouted = true;
}

/*
 * Shards whose journal names poolers: not decided; or open at their new home.  What
 * a standby has of its source's journal is no journal of its own.
 */
static bool
is_left_behind(const Move *move, Shard *shard, const void *from)
{
	const Journal *j = journal_of(shard, from);

	return j->poolers != NULL && strcmp(j->step, "fenced") != 0 && strcmp(j->step, "moved") != 0 &&
		(is_source(move, from) || strcmp(j->role, "target") == 0);
}

static bool
is_left_open(const Move *move, Shard *shard, const void *from)
{
	const Journal *to = &shard->journals[1 - ((const Side *) from)->place];

	return journal_of(shard, from)->poolers != NULL && !is_left_behind(move, shard, from) &&
		to->exists && strcmp(to->step, "open") == 0;
}

/*
 * End what a program that was killed has left: the pools of shards that were not
 * decided go on where they were, and those of shards that are open are led there.  A
 * split that goes on does that itself, once its target takes writes.
 */
void
settle_pools(const Move *set, bool is_split)
{
	const Side *sides[] = {&set->source, &set->target};

	for (int i = 0; i < 2; i++)
	{
		const Side *from = sides[i];
		const Move *behind;
		const Move *open;

		if (from->conn == NULL)
			continue;
		behind = select_shards(set, is_left_behind, from);
		open = select_shards(set, is_left_open, from);
		if (behind->nshards + open->nshards > 0 && !has_poolers(set))
			for (char *name = strtok(pg_strdup(set_journal(behind->nshards > 0 ? behind : open, from)->poolers), "\n");
				 name != NULL; name = strtok(NULL, "\n"))
				add_console(name);
		if (behind->nshards > 0)
		{
			(void) open_consoles();
			report_info("%s: clients that were paused at the poolers go on", behind->title);
			resume_pools(behind, from);
		}
		if (open->nshards > 0 && (!is_split || is_at(open, from, "moved")))
			route_pools(open, from, sides[1 - i]);
	}
}

/* -------- the checks -------- */

/* Does its configuration include the file?  Only if it can be read here. */
static void
check_include(const Check *check, const Console *c, const char *conffile, const char *path)
{
	FILE	   *file = fopen(conffile, "r");
	char		line[4096];
	char		name[1001];
	bool		found_it = false;

	while (file != NULL && fgets(line, sizeof(line), file) != NULL)
		found_it |= sscanf(line, " %%include %1000s", name) == 1 && strcmp(name, path) == 0;
	if (file == NULL)
		found_fmt(check, FOUND_WARNING, "Look there for the line %include.", "%s reads %s, which cannot be read here", c->name, conffile);
	else if (!found_it)
		found_fmt(check, FOUND_FAILED, text_of("Add the line: %%include %s", path), "%s reads %s, which does not include %s", c->name, conffile, path);
	if (file != NULL)
		fclose(file);
}

/* Its version and its configuration; the mode of pools that have none of their own. */
static const char *
check_config(const Check *check, Console *c, const MoveOptions *options)
{
	int			v[3] = {0, 0, 0};
	const char *version = ask_and_wait(c, "SHOW VERSION") && PQntuples(c->answer) > 0 ? text_of("%s", PQgetvalue(c->answer, 0, 0)) : error_of(c);
	const char *mode = "";
	int			rows;

	(void) sscanf(version, "PgBouncer %d.%d.%d", &v[0], &v[1], &v[2]);
	if (v[0] * 1000 + v[1] < 1018)
		found_fmt(check, FOUND_FAILED, "It takes PgBouncer 1.18 or later.", "%s says: %s", c->name, version);
	rows = ask_and_wait(c, "SHOW CONFIG") ? PQntuples(c->answer) : 0;
	for (int row = 0; row < rows; row++)
	{
		const char *key = answer_field(c, row, "key");
		const char *value = text_of("%s", answer_field(c, row, "value"));

		if (strcmp(key, "pool_mode") == 0)
			mode = value;
		else if (strcmp(key, "conffile") == 0)
			check_include(check, c, value, options->pooler_file);
		else if (strcmp(key, "query_wait_timeout") == 0 && atof(value) * 1000 <= options->pause_limit_ms)
			found_fmt(check, atof(value) == 0 ? FOUND_WARNING : FOUND_FAILED, "Set it well above --pause-limit, to 120 s, say.",
					  atof(value) == 0 ? "%s has query_wait_timeout = %s: should this program be killed, nothing would end a pause"
					  : "%s ends clients that wait for %s s (query_wait_timeout)", c->name, value);
		else if (strcmp(key, "track_extra_parameters") == 0 && strstr(value, "search_path") != NULL &&
				 (v[0] * 1000 + v[1]) * 1000 + v[2] < 1025001)
			found_fmt(check, FOUND_FAILED, "Take PgBouncer 1.25.1 or later.",
					  "%s has search_path in track_extra_parameters: clients can run SQL before they log in (CVE-2025-12819)", c->name);
	}
	return mode;
}

/* Does it have the set's pools, as the registry has them, and in which mode? */
static void
check_entries(const Check *check, Console *c, const Move *move, const char *default_mode)
{
	int			connections = 0;
	int			allowed = atoi(query_text(move->target.conn, "SHOW max_connections"));

	for (int i = 0; i < move->nshards; i++)
	{
		const char *pool = move->shards[i]->pool;
		const char *mode;
		int			row;
		int			limit;

		if (!is_first_of_pool(move, i))
			continue;
		row = leads_to(c, pool, move->source.home) ? find_row(c, "SHOW DATABASES", "name", pool) : -1;
		if (row < 0)
		{
			found_fmt(check, FOUND_FAILED, "It has not read the file, or that was not written from where --from leads. Type snowid-move route, and RELOAD.",
					  "%s does not lead pool \"%s\" to %s", c->name, pool, move->source.home);
			continue;
		}
		limit = atoi(answer_field(c, row, "max_connections"));
		connections += limit > 0 ? Min(limit, atoi(answer_field(c, row, "pool_size"))) : atoi(answer_field(c, row, "pool_size"));
		mode = answer_field(c, row, "pool_mode")[0] != '\0' ? answer_field(c, row, "pool_mode") : default_mode;
		if (strcmp(mode, "session") == 0)
			found_fmt(check, FOUND_WARNING, "Clients that keep a session get SN001; new ones wait for the cut-over, and notice nothing.",
					  "pool \"%s\" is in session mode at %s; now kept by: %s", pool, c->name, holder_of(c, &move->source, pool));
	}
	if (connections > allowed)
		found_fmt(check, FOUND_WARNING, "Lower pool_size or max_db_connections, by --entry-options, or raise max_connections there.",
				  "%s may open %d connections to the target, for each user; that allows %d in all", c->name, connections, allowed);
}

void
check_poolers(const Move *move, const Check *check)
{
	const char *reason;

	/* One shard's pool has others of the set: what fails, fails for all. */
	if (!has_poolers(move) || (move->nshards == 1 && move->set->nshards > 1))
		return;
	move = by_pools(move);
	if ((reason = open_consoles()) != NULL)
		found_fmt(check, FOUND_FAILED, "Look whether it runs, and whether the role is one of its admin_users.", "no connection to %s", reason);
	else if ((reason = why_not_routed(move, move->target.home, false)) != NULL)
		found(check, FOUND_FAILED, reason, "All shards of a pool move together. To look at the entries, type: snowid-move route");
	else
		for (Console *c = consoles; c < consoles + nconsoles; c++)
			check_entries(check, c, move, check_config(check, c, move->options));
}

/* route: print the entries. */
int
print_route(const MoveOptions *options)
{
	PGconn	   *conn = open_connection("source", options->from);
	const char *reason;
	char	   *text;

	if (PQstatus(conn) != CONNECTION_OK)
	{
		report_error("%s", PQerrorMessage(conn));
		return EXIT_USAGE;
	}
	text = entries_of(conn, options, NULL, NULL, &reason);

	if (text == NULL)
		report_error("%s", reason);
	else
		printf("%s", text);
	PQfinish(conn);
	return text !=NULL ? EXIT_DONE : EXIT_FAILED;
}
