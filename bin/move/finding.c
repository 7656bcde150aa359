/*
 * The engine of the prechecks: asks the two servers, and prints what a check
 * has found.
 *
 * A check changes nothing.  One that cannot be made has failed.  No finding is
 * good news, too.
 */
#include "precheck.h"

#include <poll.h>

#include "catalog/pg_type_d.h"

/* Of more findings than this, with commands for a script, only the first are shown. */
#define MANY				10
#define SHOWN_OF_MANY		3

static FILE *script;			/* of --fix-script */
static int	ncommands;

static const Check *running;
static const Move *asked_for;	/* the shards that it is run for */
static Severity worst;			/* of the check that is running */
static bool printed;			/* has it printed its line? */
static Severity shown;			/* the severity from which on it is printed */
int			nfailures = 0;
int			nwarnings = 0;

/* Else a name of two lines could look like what is to be typed. */
static const char *
one_line(const char *given)
{
	char	   *line = text_of("%s", given != NULL ? given : "");

	for (char *p = line; *p != '\0'; p++)
		if (*p == '\n' || *p == '\t')
			*p = ' ';
	return without_controls(line);
}

/* Print a finding of the running check. */
static void
print_finding(const Check *check, Severity severity, const char *what, const char *to_do)
{
	if (severity > worst)
		worst = severity;
	printed = true;
	if (severity < shown)
		return;
	nfailures += severity == FOUND_FAILED;
	nwarnings += severity == FOUND_WARNING;
	if (asked_for->options->json)
	{
		print_object("severity", severity == FOUND_OK ? "ok" : severity == FOUND_WARNING ? "warning" : "failed",
					 "check", check->name, "what", what, "to_do", to_do);
		return;
	}
	printf("%-8s %s%s%s\n",
		   severity == FOUND_OK ? "ok" :
		   severity == FOUND_WARNING ? "warning" : "FAILED",
		   check->name, what != NULL && what[0] != '\0' ? ": " : "",
		   one_line(what));
	if (to_do != NULL && to_do[0] != '\0')
		printf("         %s\n", one_line(to_do));
}

/* Of a probe that has no query, which says for which shard, or for all. */
void
found(const Check *check, Severity severity, const char *what, const char *to_do)
{
	for (int i = 0; i < asked_for->nshards && severity == FOUND_FAILED && check->sql == NULL; i++)
		asked_for->shards[i]->failed = true;
	print_finding(check, severity, what, to_do);
}

void
found_of(const Check *check, Shard *shard, Severity severity, const char *to_do, const char *fmt,...)
{
	va_list		args;

	va_start(args, fmt);
	print_finding(check, severity, keep_text(format_text(fmt, args)), to_do);
	va_end(args);
	if (severity == FOUND_FAILED)
		shard->failed = true;
}

void
found_fmt(const Check *check, Severity severity, const char *to_do,
		  const char *fmt,...)
{
	va_list		args;
	char	   *text;

	va_start(args, fmt);
	text = format_text(fmt, args);

	va_end(args);
	found(check, severity, text, to_do);
	free(text);
}

void
found_error(const Check *check, PGconn *conn, const char *to_do)
{
	const char *message = PQerrorMessage(conn);

	found_fmt(check, FOUND_FAILED, to_do, "cannot be checked: %.*s", (int) strcspn(message, "\n"), message);
}

PGresult *
ask(const Move *move, PGconn *conn, const char *sql, const char *other)
{
	PGresult   *names = query(conn, "SELECT ARRAY(SELECT oid FROM pg_namespace WHERE nspname = ANY (n)), n, CAST(ARRAY[%s] AS text[]) FROM CAST(ARRAY[%s] AS text[]) n",
							  schema_list(move->set, conn), schema_list(move, conn));

	/* In the order of the parameters in embed.awk. */
	const char *values[] = {
		text_of("{%s}", shard_list(move)),
		PQgetvalue(names, 0, 1),
		other,
		move->name,
		text_of(INT64_FORMAT, move->options->max_lag),
		text_of("%d", move->options->pause_limit_ms),
		move->options->trust_owners ? "on" : "off",
		PQgetvalue(names, 0, 0),
		text_of(INT64_FORMAT, move->options->max_wal),
		move->target.home,
		PQgetvalue(names, 0, 2)
	};
	const Oid	types[lengthof(values)] = {
		INT4ARRAYOID, TEXTARRAYOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, OIDARRAYOID, TEXTOID, TEXTOID, TEXTARRAYOID
	};
	PGresult   *result;

	PQsendQueryParams(conn, sql, lengthof(values), types, values, NULL, NULL, 0);
	for (int silence = 1000; PQisBusy(conn);)
	{
		struct pollfd answer = {.fd = PQsocket(conn),.events = POLLIN};

		if (poll(&answer, 1, silence) == 0)
		{
			if (shown == FOUND_OK)
				report_info("still looking: %s", running->name);
			silence = -1;
		}
		else if (!PQconsumeInput(conn))
			break;
	}
	PQclear(names);
	result = PQgetResult(conn);
	for (PGresult *rest; (rest = PQgetResult(conn)) != NULL;)
		PQclear(rest);
	return result;
}

static PGconn *
connection_at(const Move *move, Where where)
{
	return where == ON_SOURCE ? move->source.conn : move->target.conn;
}

void
print_findings(const Move *move, const Check *check, PGconn *conn)
{
	PGresult   *other = NULL;
	PGresult   *result = NULL;

	if (check->other != NULL)
		other = ask(move, connection_at(move, check->other_where), check->other, NULL);
	if (check->other != NULL && PQresultStatus(other) != PGRES_TUPLES_OK)
		found_error(check, connection_at(move, check->other_where), "");
	else if (PQresultStatus(result = ask(move, conn, check->sql,
										 PQntuples(other) > 0 && !PQgetisnull(other, 0, 0) ?
										 PQgetvalue(other, 0, 0) : NULL)) != PGRES_TUPLES_OK)
		found_error(check, conn, "");
	for (int row = 0; row < PQntuples(result); row++)
	{
		const char *severity = PQgetvalue(result, row, 0);
		bool		has_command = PQnfields(result) > 3 && !PQgetisnull(result, row, 3);
		bool		is_hidden = has_command && PQntuples(result) > MANY && row >= SHOWN_OF_MANY;

		if (has_command && script != NULL && shown == FOUND_OK)
			ncommands += fprintf(script, "%s\n", PQgetvalue(result, row, 3)) > 0;
		if (!is_hidden || row == SHOWN_OF_MANY)
			found(check,
				  strcmp(severity, "ok") == 0 ? FOUND_OK :
				  strcmp(severity, "warning") == 0 ? FOUND_WARNING : FOUND_FAILED,
				  is_hidden ? text_of("and %d more", PQntuples(result) - row) : PQgetvalue(result, row, 1),
				  !is_hidden ? PQgetvalue(result, row, 2) :
				  "Write the commands for all of them to a file, to run it on the source: plan --fix-script=FILE.");
	}
	PQclear(result);
	PQclear(other);
}

Severity
run_check(const Move *move, const Check *check, Severity show)
{
	running = check;
	asked_for = move;
	shown = show;
	worst = FOUND_OK;
	printed = false;
	if (check->probe != NULL)
		check->probe(move, check);
	else
		print_findings(move, check, connection_at(move, check->where));
	if (!printed)
		found(check, FOUND_OK, NULL, NULL);
	return worst;
}

bool
open_script(const char *path)
{
	if (path == NULL || (script = fopen(path, "w")) != NULL)
		return true;
	report_error("could not write \"%s\": %s", path, strerror(errno));
	return false;
}

void
close_script(const char *path)
{
	if (script == NULL)
		return;
	fclose(script);
	script = NULL;
	report_info("%d commands for the source are in %s; read it, and run it with: psql -f %s", ncommands, path, path);
}
