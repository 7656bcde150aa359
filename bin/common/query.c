/*
 * Queries.
 *
 * One that fails ends the program, but for those of try_query() and try_run().
 */
#include "base.h"

#include "libpq-events.h"

#include <poll.h>

char		last_sqlstate[6] = "";
char	   *last_message = NULL;
int			last_position = 0;
void		(*while_waiting) (PGconn *conn) = NULL;

/* A label is kept with its connection; this identifies it. */
static int
label_event(PGEventId id, void *info, void *unused)
{
	return true;
}

void
set_label(PGconn *conn, const char *label)
{
	(void) PQregisterEventProc(conn, label_event, "label", NULL);
	(void) PQsetInstanceData(conn, label_event, unconstify(char *, label));
}

const char *
label_of(PGconn *conn)
{
	const char *label = PQinstanceData(conn, label_event);

	return label != NULL ? label : "server";
}

/* If not, last_sqlstate and its like are what it says. */
bool
has_succeeded(PGresult *res)
{
	ExecStatusType status = PQresultStatus(res);
	const char *sqlstate = PQresultErrorField(res, PG_DIAG_SQLSTATE);
	const char *message = PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY);
	const char *position = PQresultErrorField(res, PG_DIAG_STATEMENT_POSITION);

	last_sqlstate[0] = '\0';
	if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK || status == PGRES_EMPTY_QUERY)
		return true;
	strlcpy(last_sqlstate, sqlstate ? sqlstate : "08006", sizeof(last_sqlstate));
	pg_free(last_message);
	last_message = pg_strdup(message != NULL ? message : PQresultErrorMessage(res));
	last_position = position != NULL ? atoi(position) : 0;
	return false;
}

/* Whoever copies has nothing to read here, and nobody reads what he writes. */
static PGresult *
without_copy(PGconn *conn, PGresult *res)
{
	char	   *row;

	if (PQresultStatus(res) == PGRES_COPY_IN)
		(void) PQputCopyEnd(conn, "a script has no rows to read");
	else if (PQresultStatus(res) == PGRES_COPY_OUT)
		while (PQgetCopyData(conn, &row, 0) > 0)
			PQfreemem(row);
	else
		return res;
	for (PGresult *next; (next = PQgetResult(conn)) != NULL; res = next)
		PQclear(res);
	return res;
}

/* As PQexec(), but while_waiting is called once a second. */
static PGresult *
execute_and_tell(PGconn *conn, const char *sql)
{
	struct pollfd socket = {.fd = PQsocket(conn),.events = POLLIN};
	PGresult   *res = NULL;
	PGresult   *next;

	if (PQsendQuery(conn, sql) == 0)
		return NULL;
	do
	{
		while (PQisBusy(conn))
			if (poll(&socket, 1, 1000) == 0)
				while_waiting(conn);
			else if (PQconsumeInput(conn) == 0)
				break;
		if ((next = PQgetResult(conn)) != NULL)
		{
			PQclear(res);
			res = next;
		}
	} while (next != NULL && PQresultStatus(res) != PGRES_COPY_IN && PQresultStatus(res) != PGRES_COPY_OUT);
	return res;
}

static PGresult *execute(PGconn *conn, bool may_fail, const char *fmt,
						 va_list args) pg_attribute_printf(3, 0);

/* Run a query; NULL if it fails and may. */
static PGresult *
execute(PGconn *conn, bool may_fail, const char *fmt, va_list args)
{
	char	   *sql = format_text(fmt, args);
	PGresult   *res = without_copy(conn, while_waiting != NULL ? execute_and_tell(conn, sql) : PQexec(conn, sql));

	if (has_succeeded(res))
	{
		free(sql);
		return res;
	}
	if (!may_fail)
	{
		report_error("%s: %s", label_of(conn), PQerrorMessage(conn));
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

char *
query_text(PGconn *conn, const char *fmt,...)
{
	PGresult   *res;
	char	   *value;

	EXECUTE(res, false);
	value = PQntuples(res) > 0 ? field(res, 0, 0) : NULL;
	PQclear(res);
	return value;
}

/* A value as a number, and done with: a truth is 1, NULL is 0. */
int64
number_of(char *value)
{
	int64		number = value == NULL ? 0 : *value == 't' ? 1 : strtoll(value, NULL, 10);

	pg_free(value);
	return number;
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
