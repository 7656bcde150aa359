/*
 * Connection strings.
 *
 * None is shown, kept or passed on as it was given: it may hold a password.  Only
 * a subscription may need that, and keeps it as long as it lasts.
 */
#include "connection.h"

/* Append a keyword and its value, quoted, to a connection string. */
static void
append_conninfo(PQExpBuffer buf, const char *keyword, const char *value)
{
	if (value == NULL || value[0] == '\0')
		return;
	if (buf->len > 0)
		appendPQExpBufferChar(buf, ' ');
	appendPQExpBuffer(buf, "%s=", keyword);
	if (strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,") == strlen(value))
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

static const char *
value_of_option(PQconninfoOption *options, const char *keyword)
{
	for (PQconninfoOption *o = options; o != NULL && o->keyword != NULL; o++)
		if (strcmp(o->keyword, keyword) == 0)
			return o->val;
	return NULL;
}

/* All hosts, if several were given; NULL if not. */
static const char *
host_list(PQconninfoOption *options)
{
	const char *host = value_of_option(options, "host");

	if (host == NULL)
		host = value_of_option(options, "hostaddr");
	return host != NULL && strchr(host, ',') != NULL ? host : NULL;
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

	/* Of several hosts, whoever connects later wants the primary. */
	if (connected && host_list(options) != NULL && strcmp(value_of_option(options, "target_session_attrs"), "any") == 0)
		append_conninfo(&buf, "target_session_attrs", "read-write");
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

/*
 * A connection string for a subscription, as a literal of that connection.  A role
 * that is no superuser must name a password in it, so that the server does not
 * connect with its own rights; no other gets one.
 */
char *
literal_for_subscription(PGconn *conn, const Side *publisher)
{
	const char *is_superuser = PQparameterStatus(conn, "is_superuser");
	PQExpBufferData buf;
	char	   *result;

	initPQExpBuffer(&buf);
	appendPQExpBufferStr(&buf, publisher->conninfo);
	if (is_superuser == NULL || strcmp(is_superuser, "on") != 0)
		append_conninfo(&buf, "password", publisher->password);
	result = literal(conn, buf.data);
	termPQExpBuffer(&buf);
	return result;
}

/* What a connection string names, such as its password; NULL if it does not. */
char *
option_of(const char *conninfo, const char *keyword)
{
	PQconninfoOption *options = PQconninfoParse(conninfo, NULL);
	const char *value = value_of_option(options, keyword);
	char	   *option = value != NULL ? pg_strdup(value) : NULL;

	PQconninfoFree(options);
	return option;
}

/* The hosts and ports that a connection string leads to, as a query. */
static char *
hosts_query(PGconn *conn, const char *conninfo)
{
	PQconninfoOption *options = PQconninfoParse(conninfo, NULL);
	const char *hosts = value_of_option(options, "hostaddr");
	const char *ports = value_of_option(options, "port");
	const char *port = getenv("PGPORT");
	char	   *result;

	if (hosts == NULL)
		hosts = value_of_option(options, "host");
	result = text_of("SELECT host, coalesce(nullif(coalesce(port[i], port[1]), ''), %s) FROM regexp_split_to_table(%s, ',') WITH ORDINALITY h (host, i), string_to_array(%s, ',') port",
					 literal(conn, port != NULL ? port : DEF_PGPORT_STR), literal(conn, hosts != NULL ? hosts : ""), literal(conn, ports != NULL ? ports : ""));
	PQconninfoFree(options);
	return result;
}

/* Does a connection string lead to no other host and port than that one does?  One that names none does. */
bool
leads_only_to(PGconn *conn, const char *conninfo, const char *known)
{
	return query_bool(conn, "SELECT NOT EXISTS (%s EXCEPT %s)", hosts_query(conn, conninfo), hosts_query(conn, known));
}

/* How the other server gets to the same server ... */
char *
conninfo_of_connection(PGconn *conn)
{
	PQconninfoOption *options = PQconninfo(conn);
	char	   *result = conninfo_of(options, true);

	PQconninfoFree(options);
	return result;
}

/* ... and how a program that we start does, in a session with our settings. */
char *
conninfo_for_programs(PGconn *conn)
{
	PQconninfoOption *options = PQconninfo(conn);
	const char *given = value_of_option(options, "options");
	PQExpBufferData buf;

	initPQExpBuffer(&buf);
	appendPQExpBufferStr(&buf, conninfo_of(options, true));
	append_conninfo(&buf, "options", text_of("%s%s%s", given != NULL ? given : "", given != NULL ? " " : "", options_for_programs(conn)));
	PQconninfoFree(options);
	return buf.data;
}

/*
 * What clients are told of the server: all of its hosts, if several were given,
 * of which the one that can be written is theirs.
 */
char *
home_of_connection(PGconn *conn)
{
	PQconninfoOption *options = PQconninfo(conn);
	const char *hosts = host_list(options);
	PQExpBufferData home;

	initPQExpBuffer(&home);
	append_conninfo(&home, "host", hosts != NULL ? hosts : PQhost(conn));
	append_conninfo(&home, "port", hosts != NULL ? value_of_option(options, "port") : PQport(conn));
	append_conninfo(&home, "dbname", PQdb(conn));
	if (hosts != NULL)
		append_conninfo(&home, "target_session_attrs", "read-write");
	PQconninfoFree(options);
	return home.data;
}
