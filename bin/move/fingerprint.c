/*
 * Has anybody changed the definitions of a shard?  sql/queries.sql says how that is
 * seen: by a fingerprint of what the catalogs have of its schema.
 */
#include "stages.h"
#include "sql/queries.inc"

/*
 * Prepare the query, which takes longer to plan than to run, in a session.  False
 * if that has failed, as try_run() does.
 */
static bool
prepare_fingerprint(PGconn *conn)
{
	static struct
	{
		PGconn	   *conn;
		int			pid;
	}			prepared[4];
	static int	next;

	for (int i = 0; i < (int) lengthof(prepared); i++)
		if (prepared[i].conn == conn && prepared[i].pid == PQbackendPID(conn))
			return true;
	if (!try_run(conn, "SET plan_cache_mode = force_generic_plan") ||
		!try_run(conn, "PREPARE snowid_fingerprints (oid[]) AS " FINGERPRINTS_SQL, "$1"))
		return false;
	prepared[next].conn = conn;
	prepared[next].pid = PQbackendPID(conn);
	next = (next + 1) % lengthof(prepared);
	return true;
}

/* Fingerprints in the order of the shards, each with the snapshot that tells what is newer. */
static char **
in_order(const Move *move, const Side *side, PGresult *res)
{
	char	  **fingerprints = pg_malloc0(sizeof(char *) * Max(move->nshards, 1));

	for (int row = 0; row < PQntuples(res); row++)
		for (int i = 0; i < move->nshards; i++)
			if (name_on(side, move->shards[i]) != NULL && strcmp(PQgetvalue(res, row, 0), name_on(side, move->shards[i])) == 0)
				fingerprints[i] = psprintf("%s %s", PQgetvalue(res, row, 1), PQgetvalue(res, row, 2));
	PQclear(res);
	return fingerprints;
}

/* The fingerprints of some shards; NULL if the query has failed, as try_query() does. */
char	  **
try_fingerprints(const Move *move, const Side *side)
{
	PQExpBufferData oids;
	PGresult   *res;

	if (!prepare_fingerprint(side->conn))
		return NULL;
	initPQExpBuffer(&oids);
	for (int i = 0; i < move->nshards; i++)
		appendPQExpBuffer(&oids, "%sto_regnamespace(%s)", i > 0 ? ", " : "",
						  literal(side->conn, ident(side->conn, move->shards[i]->schema)));
	res = try_query(side->conn, "EXECUTE snowid_fingerprints (ARRAY[%s]::oid[])", oids.data);
	termPQExpBuffer(&oids);
	return res != NULL ? in_order(move, side, res) : NULL;
}

/* The OIDs of schemas, as the queries take them. */
static char *
oids_of(PGconn *conn, const char *schemas)
{
	return literal(conn, query_text(conn, "SELECT ARRAY(SELECT oid FROM pg_namespace WHERE nspname IN (%s))", schemas));
}

/* The fingerprints of all shards, in one query. */
char	  **
note_definitions(const Move *move, const Side *side)
{
	return in_order(move, side, query(side->conn, FINGERPRINTS_SQL, oids_of(side->conn, name_list(move, side))));
}

/* Has this note the same fingerprint, or is this it? */
bool
is_as_noted(const char *noted, const char *now)
{
	return noted != NULL && now != NULL && strcspn(noted, " ") == strcspn(now, " ") &&
		strncmp(noted, now, strcspn(noted, " ")) == 0;
}

/*
 * The tables and sequences of a schema that were made since it was noted, as
 * new_tables_sql gives them, perhaps none; NULL if anything else has changed.
 */
PGresult *
new_tables(PGconn *conn, const char *schema, const char *noted)
{
	const char *since = noted != NULL ? strchr(noted, ' ') : NULL;
	PGresult   *res;

	if (since == NULL)
		return NULL;
	res = query(conn, NEW_TABLES_SQL, oids_of(conn, literal(conn, schema)), literal(conn, since + 1));
	if (is_as_noted(noted, PQntuples(res) > 0 ? PQgetvalue(res, 0, 3) :
					query_text(conn, "SELECT f FROM (" FINGERPRINTS_SQL ") x (n, f, s)", oids_of(conn, literal(conn, schema)))))
		return res;
	PQclear(res);
	return NULL;
}

/* What has changed in a schema since it was noted; other is the server that may have a copy. */
char *
name_changes(PGconn *conn, PGconn *other, const char *schema, const char *noted)
{
	const char *since = noted != NULL ? strchr(noted, ' ') : NULL;
	char	   *names;

	if (since == NULL)
		return pg_strdup("what, is not known");
	if (query_bool(conn, "SELECT to_regnamespace(%s) IS NULL", literal(conn, ident(conn, schema))))
		return format_of("there is no schema %s", ident(conn, schema));
	names = query_text(other, NAMES_SQL, oids_of(other, literal(other, schema)));
	names = query_text(conn, CHANGES_SQL, oids_of(conn, literal(conn, schema)), literal(conn, since + 1),
					   literal(conn, names != NULL ? names : "{}"));
	return *names != '\0' ? names : pg_strdup("something was dropped");
}
