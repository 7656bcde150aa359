/*
 * What is true of which shards: notes, each told once with all its shards; and
 * the command that only reads ledgers.
 */
#include "each.h"

Note	   *notes;
int			nnotes = 0;

void
note(const char *subject, const char *what, int shard)
{
	notes = pg_realloc(notes, (nnotes + 1) * sizeof(Note));
	notes[nnotes++] = (Note)
	{
		pg_strdup(subject), pg_strdup(what), shard
	};
}

static int
compare_notes(const void *a, const void *b)
{
	const Note *x = a;
	const Note *y = b;
	int			c = strcmp(x->subject, y->subject);

	c = c != 0 ? c : strcmp(x->what, y->what);
	return c != 0 ? c : x->shard - y->shard;
}

/* A fact as an object; the page of the manual has what is in it. */
static void
print_fact(const Note *x, const int *shards, int n, bool first)
{
	printf("%s\n{\"subject\": %s, \"what\": %s", first ? "" : ",", json_text(x->subject), json_text(x->what));
	for (int i = 0; i < n; i++)
		printf(i == 0 ? ", \"shards\": [%d" : ", %d", shards[i]);
	printf("]}");
}

/* Tell what is not true of so many shards, which are all.  False if there is nothing. */
bool
tell_notes(int all)
{
	const char *subject = "";
	int			shards[MAX_SHARD + 1];
	int			n = 0;

	qsort(notes, nnotes, sizeof(Note), compare_notes);
	if (options.json)
		printf("{\"facts\": [");
	for (Note *x = notes; x < notes + nnotes; x++)
	{
		if (n == 0 || shards[n - 1] != x->shard)
			shards[n++] = x->shard;
		if (x + 1 < notes + nnotes && strcmp(x[1].subject, x->subject) == 0 && strcmp(x[1].what, x->what) == 0)
			continue;
		if (n != all && options.json)
		{
			print_fact(x, shards, n, subject[0] == '\0');
			subject = "told";
		}
		else if (n != all)
		{
			if (strcmp(x->subject, subject) != 0)
				printf("%s\n", without_controls(pg_strdup(subject = x->subject)));
			printf("  %s: %s\n", without_controls(pg_strdup(x->what)), names_of_tasks(shards, n));
		}
		n = 0;
	}
	if (options.json)
		printf("]}\n");
	return subject[0] != '\0';
}

static void
note_rows(PGresult *res)
{
	for (int row = 0; row < PQntuples(res); row++)
		note(PQgetvalue(res, row, 0), PQgetvalue(res, row, 1), atoi(PQgetvalue(res, row, 2)));
	PQclear(res);
}

/* Take note of two columns of all ledgers that can be read. */
void
read_ledgers(const char *columns, const char *condition)
{
	for (int server = 0; server < nservers; server++)
	{
		PGconn	   *conn = reach_server(server);
		PGresult   *res;
		int			unread[MAX_SHARD + 1];
		int			nunread = 0;

		if (conn == NULL)
			continue;
		res = shards_here(conn, text_of("shard, format('%%I." LEDGER "', schema), %s "
										"AND has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE')", options.trust_owners ? "true" : TRUSTED),
						  "JOIN pg_class c ON relnamespace = n.oid AND relname = '" LEDGER "'");
		for (int row = 0; row < PQntuples(res); row++)
		{
			const char *shard = PQgetvalue(res, row, 0);

			if (*PQgetvalue(res, row, 2) == 't')
				note_rows(query(conn, "SELECT %s, %s FROM %s WHERE %s", columns, shard, PQgetvalue(res, row, 1), condition));
			else
				unread[nunread++] = atoi(shard);
		}
		if (nunread > 0)
			report_warning("ledgers of other roles are not read; connect as that role, or say --trust-owners: shards %s", ranges_of(unread, nunread));
		PQclear(res);
		PQfinish(conn);
	}
}

int
command_status(void)
{
	int			code = EXIT_DONE;

	read_ledgers("name, CASE WHEN finished_at IS NOT NULL THEN 'done' ELSE concat_ws(', ', 'not done', "
				 "'but the first ' || nullif(statements, 0) || ' statements', 'failed: ' || error) END", "true");
	qsort(notes, nnotes, sizeof(Note), compare_notes);
	for (int i = 0, known = nnotes; i < known;)
	{
		const char *name = notes[i].subject;
		bool		has[MAX_SHARD + 1] = {false};

		for (; i < known && strcmp(notes[i].subject, name) == 0; i++)
		{
			has[notes[i].shard] = true;
			code = strcmp(notes[i].what, "done") != 0 ? EXIT_FAILED : code;
		}
		for (Task *task = tasks; task < tasks + ntasks; task++)
			if (!has[task->shard])
			{
				note(name, is_down(task) ? "not known" : "not begun", task->shard);
				code = EXIT_FAILED;
			}
	}
	(void) tell_notes(-1);
	return is_down(NULL) ? EXIT_FAILED : code;
}
