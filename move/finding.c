/*
 * The engine of the prechecks: asks the two servers, and prints what a check
 * has found.
 *
 * A check changes nothing.  One that cannot be made has failed.  No finding is
 * good news, too.
 */
#include "precheck.h"

#include "catalog/pg_type_d.h"

static Severity worst;			/* of the check that is running */
static bool printed;			/* has it printed its line? */
static bool is_silent;			/* is only its severity asked for? */

/* Print a finding of the running check. */
void
found(const Check *check, Severity severity, const char *what, const char *to_do)
{
	if (severity > worst)
		worst = severity;
	printed = true;
	if (is_silent)
		return;
	printf("%-8s %s%s%s\n",
		   severity == FOUND_OK ? "ok" :
		   severity == FOUND_WARNING ? "warning" : "FAILED",
		   check->name, what != NULL && what[0] != '\0' ? ": " : "",
		   what != NULL ? what : "");
	if (to_do != NULL && to_do[0] != '\0')
		printf("         %s\n", to_do);
}

void
found_fmt(const Check *check, Severity severity, const char *to_do,
		  const char *fmt,...)
{
	char		buffer[1024];
	va_list		args;

	va_start(args, fmt);
	vsnprintf(buffer, sizeof(buffer), fmt, args);
	va_end(args);
	found(check, severity, buffer, to_do);
}

void
found_error(const Check *check, PGconn *conn, const char *to_do)
{
	char	   *message = pg_strdup(PQerrorMessage(conn));

	message[strcspn(message, "\n")] = '\0';
	found_fmt(check, FOUND_FAILED, to_do, "cannot be checked: %s", message);
	pg_free(message);
}

PGresult *
ask(const Move *move, PGconn *conn, const char *sql, const char *other)
{
	const Oid	types[4] = {INT4ARRAYOID, TEXTARRAYOID, TEXTOID, TEXTOID};
	char	   *shards = text_of("{%s}", shard_list(move));
	char	   *schemas = query_text(conn, "SELECT ARRAY[%s]::text[]", schema_list(move, conn));
	const char *values[4] = {shards, schemas, other, move->name};

	return PQexecParams(conn, sql, lengthof(values), types, values, NULL, NULL, 0);
}

PGresult *
ask_or_tell(const Move *move, const Check *check, PGconn *conn, const char *sql)
{
	PGresult   *result = ask(move, conn, sql, NULL);

	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		return result;
	found_error(check, conn, "");
	PQclear(result);
	return NULL;
}

/* Print the findings that a query returned. */
void
print_findings(const Check *check, PGconn *conn, PGresult *result)
{
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		found_error(check, conn, "");
	else
		for (int row = 0; row < PQntuples(result); row++)
		{
			const char *severity = PQgetvalue(result, row, 0);

			found(check,
				  strcmp(severity, "ok") == 0 ? FOUND_OK :
				  strcmp(severity, "warning") == 0 ? FOUND_WARNING : FOUND_FAILED,
				  PQgetvalue(result, row, 1), PQgetvalue(result, row, 2));
		}
}

static void
run_query(const Move *move, const Check *check)
{
	bool		on_source = check->where == ON_SOURCE;
	PGconn	   *conn = on_source ? move->source.conn : move->target.conn;
	PGconn	   *other_conn = on_source ? move->target.conn : move->source.conn;
	PGresult   *other = NULL;
	PGresult   *result;

	if (check->other != NULL && (other = ask_or_tell(move, check, other_conn, check->other)) == NULL)
		return;
	result = ask(move, conn, check->sql,
				 other != NULL && PQntuples(other) > 0 && !PQgetisnull(other, 0, 0) ?
				 PQgetvalue(other, 0, 0) : NULL);
	print_findings(check, conn, result);
	PQclear(result);
	PQclear(other);
}

Severity
run_check(const Move *move, const Check *check)
{
	worst = FOUND_OK;
	printed = false;
	if (check->probe != NULL)
		check->probe(move, check);
	else
		run_query(move, check);
	if (!printed)
		found(check, FOUND_OK, NULL, NULL);
	return worst;
}

Severity
run_check_silently(const Move *move, const Check *check)
{
	Severity	severity;

	is_silent = true;
	severity = run_check(move, check);
	is_silent = false;
	return severity;
}
