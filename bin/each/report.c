/*
 * What is true of which shards: notes, each told once with all its shards; and
 * the commands that only read.
 */
#include "each.h"

/* How many shards one pg_dump reads: it locks their tables. */
#define AT_ONCE 100

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

/* Tell what is not true of so many shards, which are all.  False if there is nothing. */
bool
tell_notes(int all)
{
	const char *subject = "";
	int			shards[MAX_SHARD + 1];
	int			n = 0;

	qsort(notes, nnotes, sizeof(Note), compare_notes);
	for (Note *x = notes; x < notes + nnotes; x++)
	{
		if (n == 0 || shards[n - 1] != x->shard)
			shards[n++] = x->shard;
		if (x + 1 < notes + nnotes && strcmp(x[1].subject, x->subject) == 0 && strcmp(x[1].what, x->what) == 0)
			continue;
		if (n != all)
		{
			if (strcmp(x->subject, subject) != 0)
				printf("%s\n", subject = x->subject);
			printf("  %s: %d shard%s: %s\n", x->what, n, n == 1 ? "" : "s", keep_text(ranges_of(shards, n)));
		}
		n = 0;
	}
	return subject[0] != '\0';
}

static void
note_rows(PGresult *res)
{
	for (int row = 0; row < PQntuples(res); row++)
		note(PQgetvalue(res, row, 0), PQgetvalue(res, row, 1), atoi(PQgetvalue(res, row, 2)));
	PQclear(res);
}

/* Take note of two columns of all ledgers. */
void
read_ledgers(const char *columns, const char *condition)
{
	for (int server = 0; server < nservers; server++)
	{
		PGconn	   *conn = connect_server(server, true);
		PGresult   *res = query(conn, "SELECT shard, format('%%I." LEDGER "', schema), " TRUSTED
								" AND has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE') "
								"FROM snowid.shard_registry r JOIN pg_namespace n ON nspname = schema "
								"JOIN pg_class c ON relnamespace = n.oid AND relname = '" LEDGER "' "
								"WHERE snowid_internal.lives(r) = 'here' ORDER BY shard");
		int			unread[MAX_SHARD + 1];
		int			nunread = 0;

		for (int row = 0; row < PQntuples(res); row++)
		{
			const char *shard = PQgetvalue(res, row, 0);

			if (*PQgetvalue(res, row, 2) == 't')
				note_rows(query(conn, "SELECT %s, %s FROM %s WHERE %s", columns, shard, PQgetvalue(res, row, 1), condition));
			else
				unread[nunread++] = atoi(shard);
		}
		if (nunread > 0)
			report_warning("ledgers of other roles are not read: shards %s", ranges_of(unread, nunread));
		PQclear(res);
		PQfinish(conn);
	}
}

int
command_status(void)
{
	read_ledgers("name, CASE WHEN finished_at IS NOT NULL THEN 'done' ELSE concat_ws(', ', 'not done', "
				 "'but the first ' || nullif(statements, 0) || ' statements', 'failed: ' || error) END", "true");
	qsort(notes, nnotes, sizeof(Note), compare_notes);
	for (int i = 0, known = nnotes; i < known;)
	{
		const char *name = notes[i].subject;
		bool		has[MAX_SHARD + 1] = {false};

		for (; i < known && strcmp(notes[i].subject, name) == 0; i++)
			has[notes[i].shard] = true;
		for (Task *task = tasks; task < tasks + ntasks; task++)
			if (!has[task->shard])
				note(name, "not begun", task->shard);
	}
	(void) tell_notes(-1);
	return EXIT_DONE;
}

/*
 * What pg_dump says of shards, line by line, without the shard's schema; and,
 * where ids are made or checked, its number.  At last the sum of all of it, which
 * also has the order.
 */
#define DEFINITIONS \
	"WITH shard AS (SELECT shard, schema, quote_ident(schema) AS name FROM snowid.shard_registry WHERE shard BETWEEN %s AND %s)," \
	" entry AS (SELECT n, regexp_match(e, E'^([^\\n]*); Type: ([^\\n;]*); Schema: ([^\\n;]*); Owner: [^\\n]*(.*)$') AS m" \
	"  FROM regexp_split_to_table(%s, E'\\n--\n-- Name: ') WITH ORDINALITY x (e, n))," \
	" line AS (SELECT shard, n, k, replace(m[2] || ' ' || CASE WHEN right(m[1], length(schema)) = schema THEN left(m[1], -length(schema)) || '#' ELSE m[1] END, name || '.', '') AS subject," \
	"  regexp_replace(replace(replace(rtrim(line, ','), name || '.', ''), 'SCHEMA ' || name, 'SCHEMA #')," \
	"   CASE WHEN line ~ 'next_id|id_shard' THEN '\\m' || shard || '\\M' ELSE '^$' END, '#', 'g') AS line" \
	"  FROM entry JOIN shard ON schema = CASE WHEN m[3] = '-' THEN regexp_replace(m[1], '^SCHEMA ', '') ELSE m[3] END," \
	"  regexp_split_to_table(m[4], E'\\n') WITH ORDINALITY l (line, k)" \
	"  WHERE line !~ '^(--|SET default_table|\\\\|$)')" \
	" SELECT subject, line, shard FROM line" \
	" UNION ALL SELECT 'definitions', md5(string_agg(subject || line, ' ' ORDER BY n, k)), shard FROM line GROUP BY shard"

int
command_diff(void)
{
	int			n = 0;

	for (int server = 0; server < nservers; server++)
	{
		PGconn	   *conn = connect_server(server, true);
		PGresult   *res = query(conn, "SELECT shard, schema FROM snowid.shard_registry r "
								"WHERE snowid_internal.lives(r) = 'here' ORDER BY shard");
		int			k;

		for (int row = 0; row < PQntuples(res); row += k)
		{
			char	   *schemas[AT_ONCE];
			char	   *dump;

			for (k = 0; k < AT_ONCE && row + k < PQntuples(res); k++)
				schemas[k] = PQgetvalue(res, row + k, 1);
			dump = dump_definitions(conn, options.bindir, schemas, k);
			if (dump == NULL)
				fail();
			note_rows(query(conn, DEFINITIONS, PQgetvalue(res, row, 0), PQgetvalue(res, row + k - 1, 0), literal(conn, dump)));
			free(dump);
		}
		n += PQntuples(res);
		PQclear(res);
		PQfinish(conn);
	}
	return tell_notes(n) ? EXIT_FAILED : EXIT_DONE;
}
