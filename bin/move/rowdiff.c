/*
 * Rows of a shard in two places: which are only in one, and which are others.
 *
 * Each side sorts its rows by their keys, and both lists are read side by side, a row
 * at a time: what this holds does not grow with them.  A row comes as its key and a
 * hash of the columns that both sides have, as texts, which open_connection()'s settings make the same
 * on all servers.
 */
#include "commands.h"
#include "sql/queries.inc"

/* How long it waits for somebody who has a table to himself. */
#define LOCK_LIMIT_MS	10000

#define TABLES_OF_SCHEMA_SQL \
	"SELECT array_agg(format('%%I.%%I', nspname, relname) ORDER BY c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace " \
	"WHERE nspname = %s AND relkind IN ('r', 'p')"

/* The next row of a side, or NULL; ends the program after an error. */
static PGresult *
next_row(PGconn *conn, PGresult *row)
{
	PQclear(row);
	row = PQgetResult(conn);
	if (row == NULL || PQresultStatus(row) == PGRES_SINGLE_TUPLE)
		return row;
	if (!has_succeeded(row))
		fail_with(conn);
	return next_row(conn, row);
}

static void
print_key(bool wanted, const char *name, const char *word, const PGresult *row)
{
	int			mark = mark_texts();

	if (wanted)
		printf("%s: %s %s\n", name, printable(PQgetvalue(row, 0, 0)), word);
	free_texts(mark);
}

/* Compare a table: its queries are a row of the result.  Says how many rows are no pairs. */
static int64
diff_table(PGconn *const conns[2], const PGresult *tables, int table, const char *const words[3], bool with_keys)
{
	const char *name = printable(PQgetvalue(tables, table, 0));
	PGresult   *rows[2] = {NULL, NULL};
	int64		found[3] = {0, 0, 0};
	int64		total = 0;

	for (int i = 0; i < 2; i++)
		if (!PQsendQuery(conns[i], PQgetvalue(tables, table, 2 + i)) || !PQsetSingleRowMode(conns[i]))
			fail_with(conns[i]);
	for (int i = 0; i < 2; i++)
		rows[i] = next_row(conns[i], NULL);
	while (rows[0] != NULL || rows[1] != NULL)
	{
		int			order = rows[0] == NULL ? 1 : rows[1] == NULL ? -1 :
		strcmp(PQgetvalue(rows[0], 0, 0), PQgetvalue(rows[1], 0, 0));
		int			what = order < 0 ? 0 : order > 0 ? 1 : 2;

		if (order != 0 || strcmp(PQgetvalue(rows[0], 0, 1), PQgetvalue(rows[1], 0, 1)) != 0)
		{
			found[what]++;
			print_key(with_keys, name, words[what], rows[what == 1]);
		}
		total++;
		for (int i = 0; i < 2; i++)
			if (what == i || what == 2)
				rows[i] = next_row(conns[i], rows[i]);
	}
	printf("%s: %lld %s, %lld %s, %lld %s, of %lld rows%s\n", name, (long long) found[0], words[0], (long long) found[1], words[1],
		   (long long) found[2], words[2], (long long) total, printable(PQgetvalue(tables, table, 1)));
	return found[0] + found[1] + found[2];
}

/*
 * The sessions are two, each in a transaction of its own, which may be of the same server, and
 * begin others; the words say what a row is that only the first has, only the second, and
 * one that they have otherwise.  Prints a line for each table, before it those keys, if
 * wanted.  Returns how many rows that are; reads, and changes nothing.
 */
int64
diff_rows(PGconn *const conns[2], const char *const schemas[2], const char *const words[3], const MoveOptions *options)
{
	char	   *facts[2];
	char	   *locks[2];
	bool		is_same;
	PGresult   *tables;
	int64		found = 0;

	for (int i = 0; i < 2; i++)
	{
		const char *schema = literal(conns[i], schemas[i]);
		const char *names;

		run(conns[i], "COMMIT");
		names = literal(conns[i], query_text(conns[i], TABLES_OF_SCHEMA_SQL, schema));
		locks[i] = lock_of_definitions(options, conns[i], schema, names);
		run(conns[i], "BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL lock_timeout = %d", LOCK_LIMIT_MS);

		/* If the two are the same, the first session has it. */
		is_same = i == 1 && locks[0] != NULL && locks[1] != NULL && query_text(conns[1], NOT_HELD_SQL, text_of("%d", PQbackendPID(conns[0])), names) == NULL;
		if (locks[i] != NULL && !is_same)
			run(conns[i], "%s", locks[i]);
		if (locks[i] != NULL && !names_are_held(options, conns[i], PQbackendPID(conns[is_same ? 0 : i]), schema, names))
			fail();
		run(conns[i], "SET TRANSACTION READ ONLY");
		facts[i] = query_text(conns[i], DIFF_FACTS_SQL, schema);
		if (!options->trust_owners && strcmp(names, literal(conns[i], query_text(conns[i], TABLES_OF_SCHEMA_SQL, schema))) != 0)
		{
			report_error("%s: a table of schema \"%s\" was made meanwhile", label_of(conns[i]), schemas[i]);
			report_hint("Type the same command again.");
			fail();
		}
	}
	tables = query(conns[0], DIFF_TABLES_SQL, literal(conns[0], schemas[0]), literal(conns[0], facts[0]),
				   literal(conns[0], schemas[1]), literal(conns[0], facts[1]));
	for (int table = 0; table < PQntuples(tables); table++)
	{
		/* Without locks, an index may have come since the last look. */
		for (int i = 0; i < 2; i++)
			if (locks[i] == NULL && !calls_are_trusted(options, conns[i], literal(conns[i], schemas[i])))
				fail();
		found += diff_table(conns, tables, table, words, options->keys);
	}
	PQclear(tables);
	return found;
}

/* The shard's schema there, or the one that was named. */
static const char *
schema_at(PGconn *conn, int shard, const char *name)
{
	if (name == NULL)
		name = query_text(conn, "SELECT schema FROM snowid.shard_registry WHERE shard = %d", shard);
	if (name != NULL && query_bool(conn, "SELECT count(*) FROM pg_namespace WHERE nspname = %s", literal(conn, name)))
		return name;
	report_error("%s: there is no shard %d%s%s", label_of(conn), shard, name != NULL ? ", schema " : "", name != NULL ? name : "");
	report_hint("To see what is there, type at that server: SELECT * FROM snowid.shards;");
	fail();
}

int
command_diff(const MoveOptions *options)
{
	static const char *const words[] = {"only at --from", "only at --to", "differ"};
	PGconn	   *conns[] = {open_connection("--from", options->from), open_connection("--to", options->to)};
	int64		found = 0;

	/* Its exit codes are those of diff. */
	failure_exit_code = EXIT_USAGE;
	for (int i = 0; i < 2; i++)
	{
		if (PQstatus(conns[i]) != CONNECTION_OK)
			fail_with(conns[i]);
		run(conns[i], "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
	}
	for (int i = 0; i < options->nshards; i++)
	{
		const char *schemas[] = {schema_at(conns[0], options->shards[i], NULL), schema_at(conns[1], options->shards[i], options->as)};

		found += diff_rows(conns, schemas, words, options);
	}
	PQfinish(conns[0]);
	PQfinish(conns[1]);
	return found > 0 ? EXIT_FAILED : EXIT_DONE;
}
