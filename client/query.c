/*
 * Queries.
 *
 * One that fails ends the program, but for those of try_query() and try_run().
 */
#include "base.h"

char		last_sqlstate[6] = "";

/* Which server a connection leads to, for messages. */
static struct
{
	PGconn	   *conn;
	const char *label;
}			labels[64];

void
set_label(PGconn *conn, const char *label)
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

const char *
label_of(PGconn *conn)
{
	for (int i = 0; i < (int) lengthof(labels); i++)
		if (labels[i].conn == conn)
			return labels[i].label;
	return "server";
}

/* If not, last_sqlstate is what it says. */
bool
has_succeeded(PGresult *res)
{
	ExecStatusType status = PQresultStatus(res);
	const char *sqlstate = PQresultErrorField(res, PG_DIAG_SQLSTATE);

	last_sqlstate[0] = '\0';
	if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK || status == PGRES_EMPTY_QUERY)
		return true;
	strlcpy(last_sqlstate, sqlstate ? sqlstate : "08006", sizeof(last_sqlstate));
	return false;
}

static PGresult *execute(PGconn *conn, bool may_fail, const char *fmt,
						 va_list args) pg_attribute_printf(3, 0);

/* Run a query; NULL if it fails and may. */
static PGresult *
execute(PGconn *conn, bool may_fail, const char *fmt, va_list args)
{
	char	   *sql = format_text(fmt, args);
	PGresult   *res = PQexec(conn, sql);

	if (has_succeeded(res))
	{
		free(sql);
		return res;
	}
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

/* Keep what libpq has quoted. */
static char *
keep_escaped(PGconn *conn, char *escaped)
{
	char	   *result;

	if (escaped == NULL)
		fail_with(conn);
	result = keep_text(pg_strdup(escaped));
	PQfreemem(escaped);
	return result;
}

char *
ident(PGconn *conn, const char *name)
{
	return keep_escaped(conn, PQescapeIdentifier(conn, name, strlen(name)));
}

char *
literal(PGconn *conn, const char *value)
{
	if (value == NULL)
		return keep_text(pg_strdup("NULL"));
	return keep_escaped(conn, PQescapeLiteral(conn, value, strlen(value)));
}

char *
field(PGresult *res, int row, int column)
{
	return PQgetisnull(res, row, column) ? NULL : pg_strdup(PQgetvalue(res, row, column));
}
