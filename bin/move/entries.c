/*
 * Entries of PgBouncer from the registry, and the file that has them.
 *
 * A pool is an entry of [databases], for a group of shards that live in one place
 * and move in one decision: those with the same "pool" in the registry.  The file is
 * made of one registry, named in its first line, and is replaced as a whole.
 */
#include "stages.h"

#include <fcntl.h>

#include "sql/queries.inc"

/* Between the registry and the time in the file's first line. */
#define AS_OF				" as of "

#define FILE_LOCK_MS		5000

const char *connect_error = "";

/* Keepalives do not help here: nothing is sent that is not awaited. */
PGconn *
connect_briefly_to(const char *conninfo, const char *user, const char *host, const char *port)
{
	const char *const keywords[] = {"connect_timeout", "user", "dbname", "host", "port", "fallback_application_name", NULL};
	const char *const values[] = {"2", user, conninfo, host, port, progname, NULL};
	PGconn	   *conn = PQconnectdbParams(keywords, values, true);

	if (PQstatus(conn) == CONNECTION_OK)
		return conn;
	connect_error = text_of("%.*s", (int) strcspn(PQerrorMessage(conn), "\n"), PQerrorMessage(conn));
	report_verbose("pooler: %s", connect_error);
	PQfinish(conn);
	return NULL;
}

static const char *const address[] = {"host", "port", "dbname"};

static struct
{
	const char *home;
	const char *entry;
}		   *known = NULL;
static int	nknown = 0;

/* What an entry has after its name: host, port, dbname. */
char *
entry_of(const char *const *values)
{
	PQExpBufferData entry;

	initPQExpBuffer(&entry);
	for (int i = 0; i < (int) lengthof(address); i++)
	{
		appendPQExpBuffer(&entry, " %s='", address[i]);
		for (const char *v = values[i]; *v; v++)
		{
			if (*v == '\'')
				appendPQExpBufferChar(&entry, '\'');
			appendPQExpBufferChar(&entry, *v);
		}
		appendPQExpBufferChar(&entry, '\'');
	}
	return keep_text(entry.data);
}

/*
 * The same for a home; NULL if that leads nowhere.  A pooler would take several
 * hosts by turns, so it gets the one that is the primary now.
 */
static char *
entry_of_home(const char *home, const char *user)
{
	PQconninfoOption *options = PQconninfoParse(home, NULL);
	PGconn	   *primary = NULL;
	const char *values[] = {"", "5432", ""};
	char	   *entry = NULL;

	for (PQconninfoOption *o = options; o != NULL && o->keyword != NULL; o++)
		for (int i = 0; i < (int) lengthof(address); i++)
			if (strcmp(o->keyword, address[i]) == 0 && o->val != NULL)
				values[i] = o->val;
	if (strchr(values[0], ',') != NULL)
	{
		primary = connect_briefly(home, user);
		values[0] = primary != NULL ? PQhost(primary) : "";
		values[1] = primary != NULL ? PQport(primary) : "";
	}
	/* A line's end would begin a line that nobody has checked. */
	if (values[0][0] != '\0' && values[2][0] != '\0' && home[strcspn(home, "\r\n")] == '\0')
		entry = entry_of(values);
	PQfinish(primary);
	PQconninfoFree(options);
	return entry;
}

/* The same, but each home is looked for once: no primary while writers wait. */
const char *
known_entry(const char *home, const char *user)
{
	for (int i = 0; i < nknown; i++)
		if (strcmp(known[i].home, home) == 0)
			return known[i].entry;
	known = pg_realloc(known, (nknown + 1) * sizeof(*known));
	known[nknown].home = pg_strdup(home);
	known[nknown].entry = entry_of_home(home, user);
	return known[nknown++].entry;
}

/*
 * Has a pool's entry in the file, looked for from *at on, these options?  A pooler
 * could refuse what it has not read yet, and after the decision that is too late.
 */
static bool
is_read(const char *file, const char **at, const char *pool, const char *options)
{
	const char *wanted = text_of("' %s", options);
	const char *name = text_of("\n%s =", pool);
	const char *line;
	const char *end;

	if (file == NULL || options[0] == '\0')
		return true;
	if ((line = strstr(*at, name)) == NULL && (line = strstr(file, name)) == NULL)
		return false;
	*at = line;
	end = line + 1 + strcspn(line + 1, "\n");
	return end - line > (ptrdiff_t) strlen(wanted) && strncmp(end - strlen(wanted), wanted, strlen(wanted)) == 0;
}

/* The file's beginning. */
static const char *
title_of(const char *home)
{
	return text_of("; entries of PgBouncer, from the registry at %s" AS_OF, home);
}

/*
 * The entries as a registry has them, but for some shards that live elsewhere: at
 * home; with the options that the file has, if one is given.  NULL, and the reason.
 */
static char *
entries_of(PGconn *conn, const Move *moved, const char *home, const char *file, const char **reason)
{
	PQExpBufferData text;
	char	   *here = home_of_connection(conn);
	PGresult   *res = query(conn, ENTRIES_SQL, moved != NULL ? shard_list(moved) : "",
							literal(conn, home != NULL ? home : here), literal(conn, here));
	const char *last = NULL;
	const char *at = file;

	*reason = NULL;
	initPQExpBuffer(&text);
	appendPQExpBuffer(&text, "%s%s\n[databases]\n", title_of(here), query_text(conn, "SELECT date_trunc('second', now())"));
	for (int row = 0; row < PQntuples(res) && *reason == NULL; row++)
	{
		const char *pool = PQgetvalue(res, row, 0);
		const char *where = PQgetvalue(res, row, 1);
		const char *shards = PQgetvalue(res, row, 2);
		const char *entry = known_entry(where, PQuser(conn));

		if (where[0] == '\0')
			*reason = text_of("shard %s has no home, and is not at %s", shards, here);
		else if (PQgetvalue(res, row, 3)[0] != 't')
			*reason = text_of("pool \"%s\" of shard %s cannot be the name of an entry: letters, digits, _, . and - can", pool, shards);
		else if (entry == NULL)
			*reason = text_of("the home of shard %s leads nowhere: %s", shards, where);
		else if (PQgetisnull(res, row, 4))
			*reason = text_of("the shards of pool \"%s\" have different entry_options in the registry", pool);
		else if (!is_read(file, &at, pool, PQgetvalue(res, row, 4)))
			*reason = text_of("pool \"%s\" has other entry_options in the registry than in the file: type snowid-move route --from CONNSTR, and RELOAD, of which PgBouncer's log has the errors", pool);
		else if (row == 0 || strcmp(pool, PQgetvalue(res, row - 1, 0)) != 0)
			appendPQExpBuffer(&text, "%s =%s %s\n", pool, entry, PQgetvalue(res, row, 4));
		else if (last == NULL || strcmp(entry, last) != 0)
			*reason = text_of("pool \"%s\" has shards in two places: %s at %s; %s at %s", pool,
							  PQgetvalue(res, row - 1, 2), PQgetvalue(res, row - 1, 1), shards, where);
		last = entry;
	}
	PQclear(res);
	return *reason != NULL ? NULL : keep_text(text.data);
}

/*
 * The home of a server as snowid.servers of the registry has it, whichever way has led us there; our own, if it is not
 * there.  It is looked for once, before writers wait: among those that lead to hosts of ours alone, which get our
 * password, and then among all: whoever may write that table could name a host of his.
 */
const char *
registered_home(PGconn *registry, const Side *side)
{
	static const char *known[2];
	const char **found = &known[side->place];
	PGresult   *res = *found != NULL ? NULL : try_query(registry, "SELECT home FROM snowid.servers ORDER BY home <> %s, name", literal(registry, side->home));

	for (int i = 0; i < 2 * PQntuples(res) && *found == NULL; i++)
	{
		const char *home = field(res, i % PQntuples(res), 0);
		bool		is_near = i < PQntuples(res);
		const char *const keywords[] = {"connect_timeout", "user", "password", "dbname", "fallback_application_name", NULL};
		const char *const values[] = {"2", PQuser(side->conn), is_near ? PQpass(side->conn) : NULL, home, progname, NULL};
		PGconn	   *conn = leads_only_to(side->aux, home, side->home) == is_near ? PQconnectdbParams(keywords, values, true) : NULL;

		if (PQstatus(conn) == CONNECTION_OK && set_up_session(conn) && strcmp(identity_of(conn), identity_of(side->aux)) == 0)
			*found = home;
		PQfinish(conn);
	}
	if (res != NULL && *found == NULL)
		*found = side->home;
	PQclear(res);
	return *found != NULL ? *found : side->home;
}

/*
 * The connection to the registry that has all: the --registry, or a server of the
 * move.  It stays, so that nobody connects while writers wait.
 */
static PGconn *
open_registry(const Move *move, bool again)
{
	static PGconn *registry = NULL;
	const Side *first = first_side(move);
	const Side *side = first->conn != NULL ? first : first == &move->source ? &move->target : &move->source;
	const char *conninfo = move->options->registry != NULL ? move->options->registry
	: is_known(move, side) ? set_journal(move, side)->registry : NULL;

	if (conninfo == NULL)
		return side->aux;
	if (registry == NULL || (again && PQstatus(registry) != CONNECTION_OK))
		registry = open_connection("registry", conninfo);
	return registry;
}

/* An error of the registry, with who has the lock that was waited for. */
static const char *
registry_error(PGconn *conn)
{
	const char *message = PQerrorMessage(conn);
	char	   *error = text_of("registry: %.*s", (int) strcspn(message, "\n"), message);
	PGresult   *res = strcmp(last_sqlstate, "55P03") != 0 ? NULL :
	try_query(conn, "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = %d AND objid = %d AND granted", LOCK_CLASS, FILE_LOCK);

	if (PQntuples(res) > 0)
		error = text_of("%s: the file is locked by the session with process id %s", error, PQgetvalue(res, 0, 0));
	PQclear(res);
	return error;
}

/* The same of the file alone.  That of another registry may have entries that this one does not know. */
static const char *
why_not_replaced(PGconn *conn, const Move *move, const char *home, bool to_write)
{
	const char *path = move->options->pooler_file;
	const char *title = title_of(home_of_connection(conn));
	const char *reason;
	const char *file;
	char	   *text;
	int			fd = open(path, O_RDONLY);

	if (fd < 0)
		return text_of("file \"%s\": %m", path);
	file = keep_text(read_all(fd));
	if (strncmp(file, title, strlen(title)) != 0)
		return text_of("file \"%s\" is not of the registry at %s; let snowid-move route write it, or name its --registry",
					   path, home_of_connection(conn));
	if ((text = entries_of(conn, move, home, to_write ? NULL : file, &reason)) !=NULL && !replace_file(path, text, to_write))
		return text_of("could not write file \"%s.new\" with the owner and mode of \"%s\": %m", path, path);
	return reason;
}

/*
 * What keeps the entries from being made, with the shards at their new home, and from being
 * written; or NULL.  Two programs at once write one after the other, so that the
 * last one's file has what both have moved.
 */
const char *
why_not_written(const Move *move, const Side *to, bool to_write)
{
	PGconn	   *conn = open_registry(move, !to_write);
	const char *home = conn != move->source.aux && conn != move->target.aux && PQstatus(conn) == CONNECTION_OK ? registered_home(conn, to) : NULL;
	const char *reason = NULL;

	if (move->options->pooler_file == NULL)
		return "no --pooler-file was given";
	if (!to_write)
		nknown = 0;
	if (PQstatus(conn) != CONNECTION_OK || !try_run(conn, "SET lock_timeout = %d", FILE_LOCK_MS) ||
		!try_run(conn, "SELECT pg_advisory_lock(%d, %d)", LOCK_CLASS, FILE_LOCK) ||
		(to_write && home != NULL &&
		 !try_run(conn, "UPDATE snowid.shard_registry SET home = %s WHERE shard IN (%s)", literal(conn, home), shard_list(move))))
		reason = registry_error(conn);
	else
		reason = why_not_replaced(conn, move, to->home, to_write);
	(void) try_run(conn, "SELECT pg_advisory_unlock(%d, %d)", LOCK_CLASS, FILE_LOCK);
	(void) try_run(conn, "SET lock_timeout = 0");
	return reason;
}

/* route: print the entries. */
int
print_route(const MoveOptions *options)
{
	PGconn	   *conn = open_connection("source", options->from);
	const char *reason = PQerrorMessage(conn);
	bool		is_reached = PQstatus(conn) == CONNECTION_OK;
	char	   *text = is_reached ? entries_of(conn, NULL, NULL, NULL, &reason) : NULL;

	if (text == NULL)
		report_error("%s", reason);
	else
		printf("%s", text);
	PQfinish(conn);
	return text !=NULL ? EXIT_DONE : is_reached ? EXIT_FAILED : EXIT_USAGE;
}
