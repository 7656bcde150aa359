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
	notes = pg_realloc(notes, (nnotes + 1) * sizeof(struct Note));
	notes[nnotes++] = (struct Note)
	{
		pg_strdup(subject), pg_strdup(what), shard
	};
}

static int
compare_texts(const struct Note *x, const struct Note *y)
{
	int			c = strcmp(x->subject, y->subject);

	return c != 0 ? c : strcmp(x->what, y->what);
}

static int
compare_notes(const void *x, const void *y)
{
	int			c = compare_texts(x, y);

	return c != 0 ? c : ((const struct Note *) x)->shard - ((const struct Note *) y)->shard;
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

		for (end = i; end < nnotes && compare_texts(&notes[end], &notes[i]) == 0; end++)
			if (n == 0 || shards[n - 1] != notes[end].shard)
				shards[n++] = notes[end].shard;
		if (n == all)
			continue;
		if (strcmp(notes[i].subject, subject) != 0)
			printf("%s\n", subject = notes[i].subject);
		printf("  %s: %d shard%s: %s\n", notes[i].what, n, n == 1 ? "" : "s", keep_text(ranges_of(shards, n)));
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
		PGresult   *res = query(conn, "SELECT shard, format('%%I." LEDGER "', schema), " TRUSTED
								" AND has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(n.oid, 'USAGE') "
								"FROM snowid.shard_registry r JOIN pg_namespace n ON nspname = schema "
								"JOIN pg_class c ON relnamespace = n.oid AND relname = '" LEDGER "' "
								"WHERE snowid_internal.lives(r) = 'here' ORDER BY shard");
		int			unread[MAX_SHARD + 1];
		int			nunread = 0;

		for (int row = 0; row < PQntuples(res);)
		{
			PQExpBufferData sql;

			initPQExpBuffer(&sql);
			do
			{
				const char *shard = PQgetvalue(res, row, 0);

				if (*PQgetvalue(res, row, 2) == 't')
					appendPQExpBuffer(&sql, "%sSELECT %s, %s FROM %s WHERE %s", sql.len > 0 ? " UNION ALL " : "",
									  columns, shard, PQgetvalue(res, row, 1), condition);
				else
					unread[nunread++] = atoi(shard);
			} while (++row < PQntuples(res) && row % AT_ONCE != 0);
			note_rows(query(conn, "%s", sql.data), taker);
			termPQExpBuffer(&sql);
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
	int			known;
	int			i = 0;

	read_ledgers("name, CASE WHEN finished_at IS NOT NULL THEN 'done' ELSE concat_ws(', ', 'not done', "
				 "'but the first ' || nullif(statements, 0) || ' statements', 'failed: ' || error) END", "true", note);
	sort_notes();
	for (known = nnotes; i < known;)
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
			note_rows(query(conn, DEFINITIONS, PQgetvalue(res, row, 0), PQgetvalue(res, row + k - 1, 0), literal(conn, dump)), note);
			free(dump);
		}
		n += PQntuples(res);
		PQclear(res);
		PQfinish(conn);
	}
	return tell_notes(n) ? EXIT_FAILED : EXIT_DONE;
}
