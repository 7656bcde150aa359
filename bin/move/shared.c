/*
 * Shared tables: outside of every shard, alike on all servers, and led to by
 * foreign keys of shards.
 *
 * PostgreSQL makes such a key on the target, after the rows; replication does not
 * look at it.  So before the decision the target has each row that the source has, by
 * what keys lead to: all rows are compared once, and then only those that are new on
 * the source, which is quick enough while writers wait.
 */
#include "precheck.h"

#include "sql/queries.inc"

/* How long the target may take to have what the source has. */
#define SHARED_WAIT_MS		10000
#define PLAN_WAIT_MS		2000

#define TO_BRING	"Shared tables have the same rows on all servers. If replication brings them, type there: SELECT * FROM pg_stat_subscription;"

/* What the target is known to have, as long as both sessions last: the source's rows from before a transaction. */
typedef struct Known
{
	int			sessions[2];
	char	   *rows;			/* a query for their keys */
	char	   *since;
} Known;

static Known *
find_known(const Move *move, const char *rows)
{
	static Known *known;
	static int	nknown;
	int			from = PQbackendPID(move->source.aux);
	int			to = PQbackendPID(move->target.aux);

	for (int i = 0; i < nknown; i++)
		if (known[i].sessions[0] == from && known[i].sessions[1] == to && strcmp(known[i].rows, rows) == 0)
			return &known[i];
	known = pg_realloc(known, (nknown + 1) * sizeof(Known));
	known[nknown] = (Known)
	{
		{
			from, to
		}, pg_strdup(rows), NULL
	};
	return &known[nknown++];
}

/* The tables, as sql/queries.sql says. */
PGresult *
shared_tables(const Move *move)
{
	PGconn	   *conn = move->source.conn;

	return query(conn, SHARED_TABLES_SQL, text_of("ARRAY[%s]::name[]", schema_list(move, conn)));
}

/*
 * What the target lacks until then of what the source has now, or why that is not known;
 * NULL: nothing.  To be freed.  A subtransaction is younger than what the snapshot says of
 * it: so all that is as young as its oldest transaction is looked at again.
 */
static char *
lacking_of(PGconn *from, PGconn *to, const char *table, Known *known, int64 until)
{
	PGresult   *keys = try_query(from, "SELECT pg_snapshot_xmin(pg_current_snapshot())::xid, (SELECT json_agg(key) FROM (%s WHERE %s) k (key))", known->rows,
								 known->since == NULL ? "true" : text_of("age(t.xmin) <= age('%s'::xid)", known->since));
	PGresult   *lacking = NULL;
	char	   *what = NULL;

	if (keys == NULL)
		return format_of("rows of %s cannot be compared: %s", table, PQerrorMessage(from));

	/* Of what comes all the time, the newest is always on its way. */
	while (!PQgetisnull(keys, 0, 1))
	{
		lacking = try_query(to, "SELECT string_agg(key, ', ' ORDER BY n), max(total) FROM (SELECT key, row_number() OVER () AS n, count(*) OVER () AS total "
							"FROM (SELECT json_array_elements_text(%s) EXCEPT %s) k (key)) x WHERE n <= 3", literal(to, PQgetvalue(keys, 0, 1)), known->rows);
		if (lacking == NULL || PQgetisnull(lacking, 0, 0) || now_ms() >= until)
			break;
		PQclear(lacking);
		wait_ms(10);
	}
	if (lacking == NULL && !PQgetisnull(keys, 0, 1))
		what = format_of("rows of %s cannot be compared: %s", table, PQerrorMessage(to));
	else if (lacking != NULL && !PQgetisnull(lacking, 0, 0))
		what = format_of("%s lacks rows that the source has: %s%s", table, PQgetvalue(lacking, 0, 0),
						 atoi(PQgetvalue(lacking, 0, 1)) > 3 ? text_of(", and %d more", atoi(PQgetvalue(lacking, 0, 1)) - 3) : "");
	else
	{
		free(known->since);
		known->since = field(keys, 0, 0);
	}
	PQclear(keys);
	PQclear(lacking);
	return what;
}

/* Why it is not read: that would run what is constant in its owner's indexes; NULL: it is trusted. */
static char *
untrusted_owner(const Move *move, const char *table)
{
	PGconn	   *conns[] = {move->source.aux, move->target.aux};
	char	   *what = NULL;

	for (int i = 0; i < 2 && what == NULL && !move->options->trust_owners; i++)
		what = query_text(conns[i], UNTRUSTED_OWNER_SQL, literal(conns[i], table));
	return what;
}

static char *
lacking_rows(const Move *move, PGresult *tables, int row, int64 until)
{
	int			mark = mark_texts();
	char	   *table = PQgetvalue(tables, row, 0);
	char	   *what = untrusted_owner(move, table);

	if (what == NULL)
		what = lacking_of(move->source.aux, move->target.aux, table, find_known(move, PQgetvalue(tables, row, 1)), until);
	free_texts(mark);
	return what != NULL ? keep_text(what) : NULL;
}

/* What the target lacks of any of them until then; NULL: nothing.  No statement takes longer than the pause. */
char *
any_lacking_rows(const Move *move, PGresult *tables, int64 until, bool is_pause)
{
	PGconn	   *conns[] = {move->source.aux, move->target.aux};
	char	   *what = NULL;

	if (PQntuples(tables) == 0)
		return NULL;
	for (int i = 0; i < 2 && is_pause; i++)
		(void) try_run(conns[i], "SET statement_timeout = %d", (int) Max(until - now_ms(), 1));
	for (int row = 0; row < PQntuples(tables) && what == NULL; row++)
		what = lacking_rows(move, tables, row, until);
	for (int i = 0; i < 2 && is_pause; i++)
		(void) try_run(conns[i], "SET statement_timeout = 0");
	return what;
}

/* Wait until the target has all rows; what replication brings may be on its way. */
Status
await_shared_rows(const Move *move, PGresult *tables)
{
	char	   *what = NULL;

	for (int row = 0; row < PQntuples(tables); row++)
		if ((what = untrusted_owner(move, PQgetvalue(tables, row, 0))) != NULL)
			return refuse(STATUS_FAILED, TO_TRUST, "%s", what);
	what = any_lacking_rows(move, tables, now_ms() + SHARED_WAIT_MS, false);
	return what == NULL ? STATUS_DONE :
		refuse(STATUS_FAILED, TO_BRING " Then type the same command again; the copy stays.", "%s: %s", move->target.label, what);
}

/* The check of plan: shards that lead to what is lacking have failed. */
void
check_shared_rows(const Move *move, const Check *check)
{
	PGresult   *tables = shared_tables(move);

	for (int row = 0; row < PQntuples(tables); row++)
	{
		const char *owner = untrusted_owner(move, PQgetvalue(tables, row, 0));
		char	   *what = NULL;

		/* Else the check before has told that. */
		if (query_bool(move->target.conn, "SELECT count(to_regclass(%s))", literal(move->target.conn, PQgetvalue(tables, row, 0))))
			what = lacking_rows(move, tables, row, now_ms() + PLAN_WAIT_MS);
		if (what == NULL)
			continue;
		for (char *number = strtok(PQgetvalue(tables, row, 2), "{,}"); number != NULL; number = strtok(NULL, "{,}"))
		{
			if (what != NULL)
				found_of(check, find_shard(move, atoi(number)), FOUND_FAILED, owner != NULL ? TO_TRUST : TO_BRING, "%s", what);
			find_shard(move, atoi(number))->failed = true;
			what = NULL;
		}
	}
	PQclear(tables);
}
