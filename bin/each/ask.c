/*
 * query: a question to all shards, and a second one to all answers.
 *
 * One process asks, --jobs shards of each server at a time, by COPY.  Rows go on as
 * they come: to standard output, or into a temporary table at the registry, whose
 * session copies them in meanwhile.  Nothing is kept of them here.
 */
#include "each.h"

#include "fe_utils/mbprint.h"
#include "mb/pg_wchar.h"

#include <poll.h>

/* So many rows decide how wide a table is printed. */
#define MEASURED 1000

typedef struct Seat				/* a session that asks one shard after the
								 * other */
{
	PGconn	   *conn;
	int			server;
	Task	   *task;			/* NULL: none is left */
	bool		copies;
} Seat;

static Seat *seats;
static int	nseats;
static char *schemas[MAX_SHARD + 1];
static char *paths[MAX_SHARD + 2];	/* each server's role's own */
static char *question;
static const char *format;		/* of COPY */
static PGresult *columns;		/* their names and types, as the first shard
								 * tells them */
static PGconn *answers;			/* where rows go, or NULL: print them */

/* Rows that are not printed yet, since they are measured. */
static PQExpBufferData measured[MEASURED];
static int	nmeasured;
static int	widths[1666];		/* of as many columns as a query can have, and
								 * the shard */

/* A value of COPY's text format, which ends with a tab, newline or NUL, as it is. */
static const char *
append_value(PQExpBuffer out, const char *p)
{
	for (; *p != '\0' && *p != '\t' && *p != '\n'; p++)
	{
		const char *escape = *p == '\\' && p[1] != '\0' ? strchr("b\bf\fn\nr\rt\tv\v\\\\", p[1]) : NULL;

		if (escape != NULL)
			appendPQExpBufferChar(out, escape[1]);
		else if (*p != '\\')
			appendPQExpBufferChar(out, *p);
		p += *p == '\\';
		if (escape == NULL && *p == 'N')
			continue;
	}
	return p;
}

static void
print_aligned(const char *row, bool measures)
{
	PQExpBuffer value = createPQExpBuffer();
	int			column = 0;

	for (bool more = true; more; row++, column++)
	{
		int			width;

		resetPQExpBuffer(value);
		row = append_value(value, row);
		more = *row == '\t';
		width = pg_wcswidth(value->data, value->len, PG_UTF8);
		if (measures)
			widths[column] = Max(widths[column], width);
		else
			printf("%s%s%*s", column > 0 ? " | " : "", value->data, more ? Max(widths[column] - width, 0) : 0, "");
	}
	if (!measures)
		putchar('\n');
	destroyPQExpBuffer(value);
}

static void
print_measured(void)
{
	for (int i = 0; i < nmeasured; i++)
	{
		print_aligned(measured[i].data, false);
		termPQExpBuffer(&measured[i]);
	}
	nmeasured = MEASURED;
}

/* Print a row of COPY's, with its shard or without. */
static void
print_row(const char *shard, const char *row)
{
	PQExpBufferData line;

	initPQExpBuffer(&line);
	if (strcmp(options.format, "csv") == 0)
		appendPQExpBuffer(&line, "%s%s%s", shard, shard[0] != '\0' ? "," : "", row);
	else if (strcmp(options.format, "json") == 0)
	{
		if (shard[0] != '\0')
			appendPQExpBuffer(&line, "{\"shard\":%s%s", shard, row[1] == '}' ? "" : ",");
		(void) append_value(&line, row + (shard[0] != '\0'));
		appendPQExpBufferChar(&line, '\n');
	}
	else
		appendPQExpBuffer(&line, "%s%s%s", shard, shard[0] != '\0' ? "\t" : "", row);
	if (strcmp(options.format, "table") != 0)
		fputs(line.data, stdout);
	else if (nmeasured == MEASURED)
		print_aligned(line.data, false);
	else
	{
		print_aligned(line.data, true);
		measured[nmeasured++] = line;
		if (nmeasured == MEASURED)
			print_measured();
		return;
	}
	termPQExpBuffer(&line);
}

/* The names of columns, as a row. */
static void
print_header(PGconn *conn, const PGresult *of, const char *shard)
{
	bool		csv = strcmp(options.format, "csv") == 0;
	PQExpBuffer row = createPQExpBuffer();

	for (int i = 0; i < PQnfields(of); i++)
		appendPQExpBuffer(row, "%s%s", i == 0 ? "" : csv ? "," : "\t",
						  csv && strpbrk(PQfname(of, i), "\",\r\n") != NULL ? ident(conn, PQfname(of, i)) : PQfname(of, i));
	appendPQExpBufferChar(row, '\n');
	if (strcmp(options.format, "json") != 0)
		print_row(shard, row->data);
	destroyPQExpBuffer(row);
}

/* A row has come from a shard. */
static void
take_answer(const Seat *seat, const char *row, int len)
{
	char		shard[16];

	snprintf(shard, sizeof(shard), "%d", seat->task->shard);
	if (answers == NULL)
		print_row(shard, row);
	else if (PQputCopyData(answers, text_of("%s\t", shard), strlen(shard) + 1) < 0 || PQputCopyData(answers, row, len) < 0)
		fail_with(answers);
}

/* Rows of what cannot be copied, such as EXPLAIN. */
static void
take_rows(const Seat *seat, const PGresult *res)
{
	PQExpBuffer line = createPQExpBuffer();

	for (int row = 0; row < PQntuples(res); row++)
	{
		resetPQExpBuffer(line);
		for (int i = 0; i < PQnfields(res); i++)
		{
			appendPQExpBufferStr(line, i > 0 ? "\t" : "");
			for (const char *p = PQgetvalue(res, row, i); *p != '\0'; p++)
			{
				if (strchr("\t\n\r\\", *p) != NULL)
					appendPQExpBufferChar(line, '\\');
				appendPQExpBufferChar(line, *p == '\t' ? 't' : *p == '\n' ? 'n' : *p == '\r' ? 'r' : *p);
			}
			if (PQgetisnull(res, row, i))
				appendPQExpBufferStr(line, "\\N");
		}
		appendPQExpBufferChar(line, '\n');
		take_answer(seat, line->data, line->len);
	}
	destroyPQExpBuffer(line);
}

/* Ask the next shard of the server. */
static void
ask_next(Seat *seat)
{
	Task	   *task = tasks;
	char	   *path;

	while (task < tasks + ntasks && (task->state != TODO || task->server != seat->server))
		task++;
	seat->task = task < tasks + ntasks ? task : NULL;
	seat->copies = false;
	if (seat->task == NULL)
		return;
	task->state = RUNNING;
	path = text_of("%s%s%s", ident(seat->conn, schemas[task->shard]), paths[seat->server][0] != '\0' ? ", " : "", paths[seat->server]);
	if (!PQsendQuery(seat->conn, text_of("%sSET search_path = %s; %s", options.snapshot ? "ROLLBACK TO SAVEPOINT s; " : "", path,
										 format != NULL ? text_of(format, question) : question)))
	{
		set_message(task, "%s", PQerrorMessage(seat->conn));
		task->state = FAILED;
		seat->task = NULL;
	}
}

static void
fail_task(Task *task, const char *message)
{
	set_message(task, "%s", message);
	task->state = FAILED;
}

/* A result of a session's: has its question been answered as the first shard would? */
static void
take_result(Seat *seat, const PGresult *res)
{
	Task	   *task = seat->task;
	int			n = PQresultStatus(res) == PGRES_COPY_OUT || PQresultStatus(res) == PGRES_TUPLES_OK ? PQnfields(res) : 0;

	seat->copies = PQresultStatus(res) == PGRES_COPY_OUT;
	if (!seat->copies && !has_succeeded(unconstify(PGresult *, res)))
		fail_task(task, last_message[0] != '\0' ? last_message : PQerrorMessage(seat->conn));
	else if (n > 0 && n != PQnfields(columns) && strcmp(options.format, "json") != 0)
		fail_task(task, text_of("it has %d columns, where others have %d", n, PQnfields(columns)));
	else if (n > 0 && !seat->copies)
		take_rows(seat, res);
}

/* Take what a session has received. */
static void
listen_to(Seat *seat)
{
	int			mark = mark_texts();
	PGresult   *res = NULL;
	char	   *row;
	int			len;

	if (!PQconsumeInput(seat->conn))
		fail_task(seat->task, PQerrorMessage(seat->conn));
	while (seat->task != NULL && (seat->copies || !PQisBusy(seat->conn)))
		if (seat->copies)
		{
			len = PQgetCopyData(seat->conn, &row, 1);
			if (len == 0)
				break;
			seat->copies = len > 0;
			if (len > 0 && seat->task->state == RUNNING)
				take_answer(seat, row, len);
			if (len > 0)
				PQfreemem(row);
		}
		else if ((res = PQgetResult(seat->conn)) != NULL)
		{
			take_result(seat, res);
			PQclear(res);
		}
		else
		{
			seat->task->state = seat->task->state == FAILED ? FAILED : DONE;
			seat->task = NULL;
			if (PQstatus(seat->conn) == CONNECTION_OK)
				ask_next(seat);
		}
	free_texts(mark);
}

static void
listen_to_all(void)
{
	struct pollfd *fds = pg_malloc(Max(nseats, 1) * sizeof(struct pollfd));
	int64		start = now_ms();
	int			n;

	do
	{
		n = 0;
		for (int i = 0; i < nseats; i++)
			if (seats[i].task != NULL)
				fds[n++] = (struct pollfd)
			{
				.fd = PQsocket(seats[i].conn),.events = POLLIN
			};
		if (n > 0 && poll(fds, n, -1) > 0)
			for (int i = 0, k = 0; i < nseats; i++)
				if (seats[i].task != NULL && fds[k++].revents != 0)
					listen_to(&seats[i]);
		if (now_ms() - start > 2000)
			tell_now_and_then("%d of %d shards, on %d servers", count_tasks(DONE), ntasks, nservers);
	} while (n > 0);
	free(fds);
}

/* Find out which of the shards live there, and seat sessions, in one snapshot if that is wanted. */
static void
seat_server(int server)
{
	PGconn	   *conn = reach_server(server);
	PGresult   *res;
	char	   *schemas_there;
	char	   *snapshot = NULL;
	int			n = 0;

	if (conn == NULL)
		return;
	schemas_there = schemas_of_path(conn);
	if (schemas_there == NULL)
		fail_with(conn);
	res = shards_here(conn, text_of("shard, schema, CASE WHEN NOT has_schema_privilege(n.oid, 'USAGE') THEN 'permission denied for its schema' "
									"ELSE %s END", untrusted("what is in it", schemas_there)), "");
	for (int row = 0, i = 0; row < PQntuples(res); row++)
	{
		int			shard = atoi(PQgetvalue(res, row, 0));

		while (i < ntasks && tasks[i].shard < shard)
			i++;
		if (i == ntasks || tasks[i].shard != shard)
			continue;
		if (schemas[shard] != NULL)
			fail_task(&tasks[i], "two servers have it");
		else if (!PQgetisnull(res, row, 2))
			fail_task(&tasks[i], PQgetvalue(res, row, 2));
		schemas[shard] = field(res, row, 1);
		tasks[i].server = server;
		n++;
	}
	PQclear(res);
	paths[server] = query_text(conn, "SELECT " PATH, schemas_there);
	for (int i = 0; i < Min(n, options.jobs) && conn != NULL; i++, conn = i < Min(n, options.jobs) ? reach_server(server) : NULL)
	{
		if (!options.snapshot)
			run(conn, "SET default_transaction_read_only = on");
		else
		{
			run(conn, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; %s",
				snapshot != NULL ? text_of("SET TRANSACTION SNAPSHOT %s", literal(conn, snapshot)) : "");
			if (snapshot == NULL)
				snapshot = query_text(conn, "SELECT pg_export_snapshot()");
			run(conn, "SAVEPOINT s");
		}
		seats = pg_realloc(seats, (nseats + 1) * sizeof(Seat));
		seats[nseats++] = (Seat)
		{
			.conn = conn,.server = server
		};
	}
}

/* The columns of the question, in the first shard that knows them. */
static void
describe(void)
{
	for (int i = 0; i < nseats && columns == NULL; i++)
		for (Task *task = tasks; task < tasks + ntasks && columns == NULL; task++)
		{
			PGconn	   *conn = seats[i].conn;
			PGresult   *res;

			if (task->server != seats[i].server || schemas[task->shard] == NULL || task->state != TODO)
				continue;
			run(conn, "%sSET search_path = %s%s%s", options.snapshot ? "ROLLBACK TO SAVEPOINT s; " : "",
				ident(conn, schemas[task->shard]), paths[task->server][0] != '\0' ? ", " : "", paths[task->server]);
			res = PQprepare(conn, "", question, 0, NULL);
			if (has_succeeded(res))
			{
				columns = PQdescribePrepared(conn, "");
				if (PQnfields(columns) == 0)
					refuse_call("the query has no columns");
			}
			PQclear(res);
		}
	if (columns == NULL)
		refuse_call("no shard can answer: %s", last_message != NULL ? last_message :
					ntasks > 0 && tasks->message[0] != '\0' ? tasks->message : "none is here");
}

/* Make the table of answers, and begin to copy into it. */
static void
open_answers(PGconn *registry)
{
	PQExpBuffer list = createPQExpBuffer();

	for (int i = 0; i < PQnfields(columns); i++)
		appendPQExpBuffer(list, ", %s %s", ident(registry, PQfname(columns, i)),
						  query_text(registry, "SELECT coalesce((SELECT oid::regtype::text FROM pg_type WHERE oid = %u AND oid < 16384), 'text')", PQftype(columns, i)));
	run(registry, "CREATE TEMPORARY TABLE answers (shard int%s)", list->data);
	PQclear(PQexec(registry, "COPY answers FROM STDIN"));
	answers = registry;
	destroyPQExpBuffer(list);
}

static const char *
format_of_copy(void)
{
	return strcmp(options.format, "csv") == 0 ? "COPY (%s) TO STDOUT (FORMAT csv)" :
		strcmp(options.format, "json") == 0 ? "COPY (SELECT row_to_json(q) FROM (%s) q) TO STDOUT" : "COPY (%s) TO STDOUT";
}

/* Ask the second question, and print what it answers. */
static void
tell_answer(PGconn *registry, const char *then, char *path)
{
	PGresult   *res;
	PGresult   *described;
	char	   *row;

	run(registry, "SET search_path = pg_temp%s%s", path[0] != '\0' ? ", " : "", path);
	PQclear(query(registry, "ANALYZE answers"));
	res = PQprepare(registry, "", then, 0, NULL);
	if (!has_succeeded(res))
		fail_with(registry);
	described = PQdescribePrepared(registry, "");
	print_header(registry, described, "");
	PQclear(res);
	res = PQexec(registry, text_of(format_of_copy(), then));
	if (PQresultStatus(res) != PGRES_COPY_OUT)
		fail_with(registry);
	while (PQgetCopyData(registry, &row, 0) > 0)
	{
		print_row("", row);
		PQfreemem(row);
	}
	PQclear(res);
	res = PQgetResult(registry);
	if (!has_succeeded(res))
		fail_with(registry);
	PQclear(res);
}

/* Whoever was moved meanwhile may have been asked where he was no more. */
static void
look_again(int server)
{
	PGconn	   *conn = reach_server(server);
	PGresult   *res = conn != NULL ? shards_here(conn, "shard", "") : NULL;
	int			row = 0;

	for (Task *task = tasks; task < tasks + ntasks; task++)
	{
		while (row < PQntuples(res) && atoi(PQgetvalue(res, row, 0)) < task->shard)
			row++;
		if (task->server == server && task->state == DONE && (row == PQntuples(res) || atoi(PQgetvalue(res, row, 0)) != task->shard))
			fail_task(task, "it was moved meanwhile");
	}
	PQclear(res);
	PQfinish(conn);
}

int
command_query(PGconn *registry, char *text)
{
	bool		copies = !is_first_word(text, "EXPLAIN|SHOW");
	const char *then = options.then != NULL || copies ? options.then : "TABLE answers";
	PQExpBuffer failed = createPQExpBuffer();
	PGresult   *res;
	char	   *schemas_there = schemas_of_path(registry);
	char	   *path;
	char	   *whose;

	if (schemas_there == NULL)
		fail_with(registry);
	path = query_text(registry, "SELECT " PATH, schemas_there);
	if ((whose = query_text(registry, "SELECT %s", untrusted(NULL, schemas_there))) != NULL)
		refuse_call("registry: %s", whose);
	if (split_script(text).nstatements != 1 || (then != NULL && split_script(pg_strdup(then)).nstatements != 1))
		refuse_call("a query is one statement");
	question = without_semicolon(text);
	then = then != NULL ? without_semicolon(then) : NULL;
	for (int server = 0; server < nservers; server++)
		seat_server(server);
	for (Task *task = tasks; task < tasks + ntasks; task++)
		if (schemas[task->shard] == NULL)
			fail_task(task, is_down(task) ? "its server is down" : "no server has it");
	describe();
	format = !copies ? NULL : then != NULL ? "COPY (%s) TO STDOUT" : format_of_copy();
	if (then != NULL)
		open_answers(registry);
	else
		print_header(registry, columns, "shard");
	for (int i = 0; i < nseats; i++)
		ask_next(&seats[i]);
	listen_to_all();
	for (int server = 0; server < nservers; server++)
		if (paths[server] != NULL)
			look_again(server);
	for (Task *task = tasks; task < tasks + ntasks; task++)
	{
		if (task->state == DONE)
			continue;
		note("no answer", task->message[0] != '\0' ? task->message : "its server went down", task->shard);
		appendPQExpBuffer(failed, "%s%d", failed->len > 0 ? "," : "", task->shard);
	}
	if (then != NULL && (failed->len == 0 || options.partial))
	{
		if (PQputCopyEnd(registry, NULL) < 0)
			fail_with(registry);
		res = PQgetResult(registry);
		if (!has_succeeded(res))
			fail_with(registry);
		PQclear(res);
		PQclear(PQgetResult(registry));
		if (failed->len > 0)
			run(registry, "DELETE FROM answers WHERE shard IN (%s)", failed->data);
		tell_answer(registry, then, path);
	}
	print_measured();
	fflush(stdout);
	if (failed->len == 0)
		return EXIT_DONE;
	for (int i = 0; i < nnotes; i++)
		report_error("shard %d: %s", notes[i].shard, notes[i].what);
	return refuse(EXIT_FAILED, "Ask again; or take what there is: --partial.", options.partial || then == NULL ? "the answer is not whole" : "there is no answer");
}
