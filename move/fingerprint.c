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
		!try_run(conn, "PREPARE snowid_fingerprint (oid) AS " FINGERPRINTS_SQL, "ARRAY[$1]"))
		return false;
	prepared[next].conn = conn;
	prepared[next].pid = PQbackendPID(conn);
	next = (next + 1) % lengthof(prepared);
	return true;
}

/* The fingerprint of a schema; NULL if the query has failed, as try_query() does. */
char *
try_fingerprint(PGconn *conn, const char *schema)
{
	PGresult   *res;
	char	   *fingerprint;

	if (!prepare_fingerprint(conn) ||
		(res = try_query(conn, "EXECUTE snowid_fingerprint (to_regnamespace(%s))", literal(conn, ident(conn, schema)))) == NULL)
		return NULL;
	fingerprint = PQntuples(res) == 1 ? field(res, 0, 1) : pg_strdup("");
	PQclear(res);
	return fingerprint;
}

char *
take_fingerprint(PGconn *conn, const char *schema)
{
	char	   *fingerprint = try_fingerprint(conn, schema);

	if (fingerprint == NULL)
	{
		report_error("%s: %s", label_of(conn), PQerrorMessage(conn));
		fail();
	}
	return fingerprint;
}

/* The OIDs of schemas, as the queries take them. */
static char *
oids_of(PGconn *conn, const char *schemas)
{
	return literal(conn, query_text(conn, "SELECT ARRAY(SELECT oid FROM pg_namespace WHERE nspname IN (%s))", schemas));
}

/*
 * The fingerprints of all shards, in one query; after each the snapshot from before
 * it was taken, which tells later what is newer.
 */
char	  **
note_definitions(const Move *move, PGconn *conn)
{
	char	   *snapshot = query_text(conn, "SELECT pg_current_snapshot()");
	PGresult   *res = query(conn, FINGERPRINTS_SQL, oids_of(conn, schema_list(move, conn)));
	char	  **notes = pg_malloc0(sizeof(char *) * Max(move->nshards, 1));

	for (int row = 0; row < PQntuples(res); row++)
		for (int i = 0; i < move->nshards; i++)
			if (strcmp(PQgetvalue(res, row, 0), move->shards[i]->schema) == 0)
				notes[i] = psprintf("%s %s", PQgetvalue(res, row, 1), snapshot);
	PQclear(res);
	return notes;
}

/* Has this note the same fingerprint, or is this it? */
bool
is_as_noted(const char *noted, const char *now)
{
	return noted != NULL && now != NULL && strcspn(noted, " ") == strcspn(now, " ") &&
		strncmp(noted, now, strcspn(noted, " ")) == 0;
}

/* What has changed in a schema since it was noted; other is the server that may have a copy. */
char *
name_changes(PGconn *conn, PGconn *other, const char *schema, const char *noted)
{
	const char *since = noted != NULL ? strchr(noted, ' ') : NULL;
	char	   *names;

	if (since == NULL)
		return pg_strdup("what, is not known");
	names = query_text(other, NAMES_SQL, oids_of(other, literal(other, schema)));
	names = query_text(conn, CHANGES_SQL, oids_of(conn, literal(conn, schema)), literal(conn, since + 1),
					   literal(conn, names != NULL ? names : "{}"));
	return *names != '\0' ? names : pg_strdup("something was dropped");
}
