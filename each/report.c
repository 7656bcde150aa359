/*
 * What is true of which shards: notes, each told once with all its shards; and
 * the commands that only read.
 */
#include "each.h"

/* How many ledgers one query reads, and one pg_dump shards: it locks their tables. */
#define AT_ONCE 100

static struct Note
{
	char	   *subject;
	char	   *what;
	int			shard;
}		   *notes;
static int	nnotes = 0;

void
note(const char *subject, const char *what, int shard)
{
	/* Grown at each power of two. */
	if (nnotes == 0)
		notes = pg_malloc(sizeof(struct Note));
	else if ((nnotes & (nnotes - 1)) == 0)
		notes = pg_realloc(notes, 2 * nnotes * sizeof(struct Note));
	notes[nnotes++] = (struct Note)
	{
		pg_strdup(subject), pg_strdup(what), shard
	};
}

static int
compare_notes(const void *a, const void *b)
{
	const struct Note *x = a;
	const struct Note *y = b;
	int			c = strcmp(x->subject, y->subject);

	if (c == 0)
		c = strcmp(x->what, y->what);
	return c != 0 ? c : x->shard - y->shard;
}

static void
sort_notes(void)
{
	if (nnotes > 0)
		qsort(notes, nnotes, sizeof(struct Note), compare_notes);
}

/* Tell what is not true of so many shards, which are all.  False if there is nothing. */
bool
tell_notes(int all)
{
	const char *subject = "";
	int			end;

	sort_notes();
	for (int i = 0; i < nnotes; i = end)
	{
		int			shards[MAX_SHARD + 1];
		int			n = 0;
		char	   *ranges;

		for (end = i; end < nnotes && strcmp(notes[end].subject, notes[i].subject) == 0 &&
			 strcmp(notes[end].what, notes[i].what) == 0; end++)
			if (n == 0 || shards[n - 1] != notes[end].shard)
				shards[n++] = notes[end].shard;
		if (n == all)
			continue;
		if (strcmp(notes[i].subject, subject) != 0)
			printf("%s\n", subject = notes[i].subject);
		ranges = ranges_of(shards, n);
		printf("  %s: %d shard%s: %s\n", notes[i].what, n, n == 1 ? "" : "s", ranges);
		free(ranges);
	}
	return subject[0] != '\0';
}

static void
note_rows(PGresult *res, NoteTaker *taker)
{
	for (int row = 0; row < PQntuples(res); row++)
		taker(PQgetvalue(res, row, 0), PQgetvalue(res, row, 1), atoi(PQgetvalue(res, row, 2)));
	PQclear(res);
}

/* Take note of two columns of all ledgers. */
void
read_ledgers(const char *columns, const char *condition, NoteTaker *taker)
{
	for (int server = 0; server < nservers; server++)
	{
		PGconn	   *conn = connect_server(server, true);
		PGresult   *res = query(conn, "SELECT shard, format('%%I." LEDGER "', schema) FROM snowid.shard_registry r "
								"WHERE snowid_internal.lives(r) = 'here' AND to_regclass(format('%%I." LEDGER "', schema)) IS NOT NULL");

		for (int row = 0; row < PQntuples(res);)
		{
			PQExpBufferData sql;

			initPQExpBuffer(&sql);
			do
				appendPQExpBuffer(&sql, "%sSELECT %s, %s FROM %s WHERE %s", sql.len > 0 ? " UNION ALL " : "",
								  columns, PQgetvalue(res, row, 0), PQgetvalue(res, row, 1), condition);
			while (++row < PQntuples(res) && row % AT_ONCE != 0);
			note_rows(query(conn, "%s", sql.data), taker);
			termPQExpBuffer(&sql);
		}
		PQclear(res);
		PQfinish(conn);
	}
}

int
command_status(void)
{
	int			known;
	int			end;

	read_ledgers("name, CASE WHEN finished_at IS NOT NULL THEN 'done' ELSE concat_ws(', ', 'not done', "
				 "'but the first ' || nullif(statements, 0) || ' statements', 'failed: ' || error) END", "true", note);
	sort_notes();
	known = nnotes;
	for (int i = 0; i < known; i = end)
	{
		bool		has[MAX_SHARD + 1] = {false};

		for (end = i; end < known && strcmp(notes[end].subject, notes[i].subject) == 0; end++)
			has[notes[end].shard] = true;
		for (Task *task = tasks; task < tasks + ntasks; task++)
			if (!has[task->shard])
				note(notes[i].subject, "not begun", task->shard);
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
	" line AS (SELECT shard, n, k, replace(m[2] || ' ' || regexp_replace(m[1], schema || '$', '#'), name || '.', '') AS subject," \
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
			note_rows(query(conn, DEFINITIONS, PQgetvalue(res, row, 0), PQgetvalue(res, row + k - 1, 0), literal(conn, dump)), note);
			free(dump);
		}
		n += PQntuples(res);
		PQclear(res);
		PQfinish(conn);
	}
	return tell_notes(n) ? EXIT_FAILED : EXIT_DONE;
}
