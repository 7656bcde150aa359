/*
 * Connections, queries and messages.
 *
 * A connection is set up so that what it shows and does is the same whatever
 * the role's and the database's settings are.  A query that fails ends the
 * program, but for try_run()'s.  No message shows a connection string as it
 * was given: it may hold a password.
 */
#include "postgres_fe.h"

#include <time.h>
#include <unistd.h>

#include "snowid-move.h"

/* Of the two-key advisory locks: "SNOW", and the shard. */
#define LOCK_CLASS			0x534E4F57

/* How long a lock may be kept by a program that has just died. */
#define LOCK_WAIT_MS		10000

const char *progname = "snowid-move";
bool		verbose = false;
int			failure_exit_code = EXIT_FAILED;
char		last_sqlstate[6] = "";

/* Which server a connection leads to, for messages. */
static struct
{
	PGconn	   *conn;
	const char *label;
}			labels[8];

static void
remember_label(PGconn *conn, const char *label)
{
	for (int i = 0; i < (int) lengthof(labels); i++)
	{
		if (labels[i].conn == NULL || labels[i].conn == conn)
		{
			labels[i].conn = conn;
			labels[i].label = label;
			return;
		}
	}
}

static const char *
label_of(PGconn *conn)
{
	for (int i = 0; i < (int) lengthof(labels); i++)
		if (labels[i].conn == conn)
			return labels[i].label;
	return "server";
}

void
report(const char *kind, const char *fmt,...)
{
	va_list		args;

	fflush(stdout);
	fprintf(stderr, "%s: %s", progname, kind);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
}

static char *format(const char *fmt, va_list args) pg_attribute_printf(1, 0);

/* printf into new memory. */
static char *
format(const char *fmt, va_list args)
{
	va_list		again;
	char	   *text;
	int			len;

	va_copy(again, args);
	len = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	text = pg_malloc(len + 1);

	vsnprintf(text, len + 1, fmt, args);
	return text;
}

char *
text_of(const char *fmt,...)
{
	va_list		args;
	char	   *text;

	va_start(args, fmt);
	text = format(fmt, args);

	va_end(args);
	return text;
}

/* Append a keyword and its value, quoted, to a connection string. */
static void
append_conninfo(PQExpBuffer buf, const char *keyword, const char *value)
{
	if (value == NULL || value[0] == '\0')
		return;
	if (buf->len > 0)
		appendPQExpBufferChar(buf, ' ');
	appendPQExpBuffer(buf, "%s=", keyword);
	if (strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:") == strlen(value))
		appendPQExpBufferStr(buf, value);
	else
	{
		appendPQExpBufferChar(buf, '\'');
		for (const char *p = value; *p; p++)
		{
			if (*p == '\'' || *p == '\\')
				appendPQExpBufferChar(buf, '\\');
			appendPQExpBufferChar(buf, *p);
		}
		appendPQExpBufferChar(buf, '\'');
	}
}

/*
 * The connection string of some options, without passwords and the like, and
 * without what concerns this program alone.
 *
 * If they are those of a connection, they have what a service file has said,
 * and our own password file: neither means anything on another machine.
 */
static char *
conninfo_of(PQconninfoOption *options, bool connected)
{
	static const char *const ours[] = {"password", "application_name",
		"fallback_application_name", "client_encoding", "options", "replication",
	"scram_client_key", "scram_server_key"};
	PQExpBufferData buf;

	initPQExpBuffer(&buf);
	for (PQconninfoOption *o = options; o->keyword != NULL; o++)
	{
		bool		is_ours = o->dispchar[0] == '*' ||
		(connected && (strncmp(o->keyword, "service", 7) == 0 ||
					   strcmp(o->keyword, "passfile") == 0));

		for (int i = 0; i < (int) lengthof(ours); i++)
			if (strcmp(o->keyword, ours[i]) == 0)
				is_ours = true;
		if (is_ours || o->val == NULL ||
			(o->compiled != NULL && strcmp(o->val, o->compiled) == 0 &&
			 strcmp(o->keyword, "port") != 0))
			continue;
		append_conninfo(&buf, o->keyword, o->val);
	}
	return buf.data;
}

/* A connection string, as given in an option, for others to keep. */
char *
without_password(const char *what, const char *conninfo)
{
	char	   *message = NULL;
	PQconninfoOption *options = PQconninfoParse(conninfo, &message);
	char	   *result;

	if (options == NULL)
	{
		report_error("option %s: %s", what, message);
		exit(EXIT_USAGE);
	}
	result = conninfo_of(options, false);
	PQconninfoFree(options);
	return result;
}

/* How a program that we start gets to the same server. */
char *
conninfo_for_child(PGconn *conn)
{
	PQconninfoOption *options = PQconninfo(conn);
	char	   *result = conninfo_of(options, true);

	PQconninfoFree(options);
	return result;
}

static void set_up_session(PGconn *conn);

/*
 * Connect.  If it fails: exit with EXIT_USAGE if it must, else return NULL
 * after a warning.
 */
PGconn *
open_connection(const char *label, const char *conninfo, bool must)
{
	/* A lost network is noticed in half a minute; conninfo may say otherwise. */
	const char *const keywords[] = {"keepalives_idle", "keepalives_interval", "keepalives_count",
	"tcp_user_timeout", "dbname", "fallback_application_name", NULL};
	const char *const values[] = {"10", "5", "3", "25000", conninfo, progname, NULL};
	PGconn	   *conn = PQconnectdbParams(keywords, values, true);

	if (PQstatus(conn) != CONNECTION_OK)
	{
		if (must)
			report_error("%s: %s", label, PQerrorMessage(conn));
		else
			report_warning("%s: %s", label, PQerrorMessage(conn));
		PQfinish(conn);
		if (must)
			exit(EXIT_USAGE);
		return NULL;
	}
	remember_label(conn, label);
	set_up_session(conn);
	return conn;
}

/* Connect again after the server has ended the session. */
void
reconnect(PGconn *conn)
{
	PQreset(conn);
	if (PQstatus(conn) != CONNECTION_OK)
	{
		report_error("%s: %s", label_of(conn), PQerrorMessage(conn));
		fail();
	}
	set_up_session(conn);
}

static void
set_up_session(PGconn *conn)
{
	/*
	 * Timeouts would hit at the wrong places, and an asynchronous commit
	 * could forget a step.  Keepalives free our locks if the network is gone.
	 */
	run(conn,
		"SELECT pg_catalog.set_config(name, value, false) FROM (VALUES "
		"('search_path', 'pg_catalog, pg_temp'), ('client_encoding', 'UTF8'), ('datestyle', 'ISO'), "
		"('intervalstyle', 'postgres'), ('timezone', 'UTC'), "
		"('extra_float_digits', '3'), ('bytea_output', 'hex'), "
		"('standard_conforming_strings', 'on'), ('client_min_messages', 'warning'), "
		"('statement_timeout', '0'), ('lock_timeout', '0'), "
		"('idle_in_transaction_session_timeout', '0'), "
		"('idle_session_timeout', '0'), ('transaction_timeout', '0'), "
		"('default_transaction_read_only', 'off'), "
		"('default_transaction_isolation', 'read committed'), "
		"('row_security', 'off'), ('tcp_keepalives_idle', '10'), "
		"('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '3')"
		") v (name, value) WHERE pg_catalog.current_setting(name, true) IS NOT NULL");
	run(conn,
		"SELECT pg_catalog.set_config('synchronous_commit', 'on', false) "
		"WHERE pg_catalog.current_setting('synchronous_commit') IN ('off', 'local')");
}

/*
 * Connect to a server, and find out what others are told about it.
 */
void
open_side(Side *side, const char *label, const char *conninfo,
		  const char *for_other_server)
{
	PQExpBufferData home;
	PQconninfoOption *options;

	side->label = label;
	side->conn = open_connection(label, conninfo, true);
	side->version = PQserverVersion(side->conn);

	initPQExpBuffer(&home);
	append_conninfo(&home, "host", PQhost(side->conn));
	append_conninfo(&home, "port", PQport(side->conn));
	append_conninfo(&home, "dbname", PQdb(side->conn));
	side->home = home.data;

	if (for_other_server != NULL)
	{
		side->conninfo = without_password(strcmp(label, "source") == 0 ?
										  "--source-for-target" : "--target-for-source",
										  for_other_server);
		return;
	}
	options = PQconninfo(side->conn);
	side->conninfo = conninfo_of(options, true);
	PQconninfoFree(options);
}

/*
 * The second connection, for what must not wait for the first, or must not be
 * in its transaction.
 */
void
open_aux(Side *side, const char *conninfo)
{
	side->aux = open_connection(side->label, conninfo, true);
}

/*
 * Lock a shard on a server against other snowid-moves, as long as the
 * connection lasts.  A program that has just died may keep it for a moment.
 */
bool
lock_shard(Side *side, int shard)
{
	int64		until = now_ms() + LOCK_WAIT_MS;

	while (!query_bool(side->conn, "SELECT pg_try_advisory_lock(%d, %d)",
					   LOCK_CLASS, shard))
	{
		if (now_ms() > until)
		{
			report_error("another snowid-move is at work on shard %d", shard);
			report_detail("On the %s, it is the session with process id %s.", side->label,
						  query_text(side->conn,
									 "SELECT string_agg(pid::text, ', ') FROM pg_locks "
									 "WHERE locktype = 'advisory' AND classid = %d AND objid = %d "
									 "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
									 "AND granted", LOCK_CLASS, shard));
			return false;
		}
		wait_ms(100);
	}
	return true;
}

static PGresult *execute(PGconn *conn, bool may_fail, const char *fmt,
						 va_list args) pg_attribute_printf(3, 0);

/* Run a query; NULL if it fails and may. */
static PGresult *
execute(PGconn *conn, bool may_fail, const char *fmt, va_list args)
{
	char	   *sql = format(fmt, args);
	PGresult   *res = PQexec(conn, sql);
	ExecStatusType status = PQresultStatus(res);
	const char *sqlstate;

	last_sqlstate[0] = '\0';
	if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)
	{
		free(sql);
		return res;
	}

	sqlstate = PQresultErrorField(res, PG_DIAG_SQLSTATE);
	strlcpy(last_sqlstate, sqlstate ? sqlstate : "08006", sizeof(last_sqlstate));
	if (!may_fail)
	{
		char	   *message = pg_strdup(PQerrorMessage(conn));

		for (char *end = message + strlen(message); end > message && end[-1] == '\n';)
			*--end = '\0';
		report_error("%s: %s", label_of(conn), message);
		report_verbose("the query was: %s", sql);
		fail();
	}
	free(sql);
	PQclear(res);
	return NULL;
}

/* End the program after an error, and say how things stand. */
void
fail(void)
{
	if (failure_exit_code == EXIT_INCOMPLETE)
		report_hint("This is not complete. Type the same command again.");
	exit(failure_exit_code);
}

#define EXECUTE(res, may_fail) \
	do { \
		va_list		args; \
		va_start(args, fmt); \
		res = execute(conn, may_fail, fmt, args); \
		va_end(args); \
	} while (0)

PGresult *
query(PGconn *conn, const char *fmt,...)
{
	PGresult   *res;

	EXECUTE(res, false);
	return res;
}

PGresult *
try_query(PGconn *conn, const char *fmt,...)
{
	PGresult   *res;

	EXECUTE(res, true);
	return res;
}

void
run(PGconn *conn, const char *fmt,...)
{
	PGresult   *res;

	EXECUTE(res, false);
	PQclear(res);
}

bool
try_run(PGconn *conn, const char *fmt,...)
{
	PGresult   *res;

	EXECUTE(res, true);
	PQclear(res);
	return res != NULL;
}

/* The first value of a result, which is done with; NULL if there is none. */
static char *
value_of(PGresult *res)
{
	char	   *value = NULL;

	if (PQntuples(res) > 0 && !PQgetisnull(res, 0, 0))
		value = pg_strdup(PQgetvalue(res, 0, 0));
	PQclear(res);
	return value;
}

char *
query_text(PGconn *conn, const char *fmt,...)
{
	PGresult   *res;

	EXECUTE(res, false);
	return value_of(res);
}

bool
query_bool(PGconn *conn, const char *fmt,...)
{
	PGresult   *res;
	char	   *value;
	bool		result;

	EXECUTE(res, false);
	value = value_of(res);
	result = value != NULL && value[0] == 't';
	free(value);
	return result;
}

int64
query_int64(PGconn *conn, const char *fmt,...)
{
	PGresult   *res;
	char	   *value;
	int64		result;

	EXECUTE(res, false);
	value = value_of(res);
	result = value != NULL ? strtoll(value, NULL, 10) : 0;
	free(value);
	return result;
}

char *
ident(PGconn *conn, const char *name)
{
	char	   *escaped = PQescapeIdentifier(conn, name, strlen(name));
	char	   *result;

	if (escaped == NULL)
	{
		report_error("%s: %s", label_of(conn), PQerrorMessage(conn));
		fail();
	}
	result = pg_strdup(escaped);
	PQfreemem(escaped);
	return result;
}

char *
literal(PGconn *conn, const char *value)
{
	char	   *escaped;
	char	   *result;

	if (value == NULL)
		return pg_strdup("NULL");
	escaped = PQescapeLiteral(conn, value, strlen(value));
	if (escaped == NULL)
	{
		report_error("%s: %s", label_of(conn), PQerrorMessage(conn));
		fail();
	}
	result = pg_strdup(escaped);
	PQfreemem(escaped);
	return result;
}

int64
now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64) t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The pause between two looks at a condition on a server. */
void
wait_ms(int ms)
{
	struct timespec t = {ms / 1000, (long) (ms % 1000) * 1000000};

	nanosleep(&t, NULL);
}
