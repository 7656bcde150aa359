/*
 * The fingerprint of a shard's definitions: if it is the same before and after,
 * nobody has changed them.
 *
 * It looks at no property by its name.  PostgreSQL never changes a row of a
 * catalog in place but for statistics, so each change of a definition leaves
 * rows of another transaction; the fingerprint is made of the number of rows
 * in each catalog that belong to the schema, and of who has made them.
 * t/move/objects.pl sees to it that no catalog is forgotten.
 *
 * Four catalogs are read by their contents, since what is no change of a
 * definition makes new rows there: pg_class (TRUNCATE, REFRESH MATERIALIZED
 * VIEW), pg_sequence (the fence), pg_description (we, see lock.c) and
 * pg_namespace (the copy that is left behind gets another name).
 *
 * To be compared on one server only, and not across an upgrade of it.
 */
#include "stages.h"

/* Which rows of a catalog belong to the schema. */
typedef struct Catalog
{
	const char *name;
	const char *condition;
} Catalog;

/* Objects of the schema, and what belongs to these. */
static const Catalog objects[] = {
	{"pg_type", "typnamespace = (TABLE n)"},
	{"pg_proc", "pronamespace = (TABLE n)"},
	{"pg_operator", "oprnamespace = (TABLE n)"},
	{"pg_opclass", "opcnamespace = (TABLE n)"},
	{"pg_opfamily", "opfnamespace = (TABLE n)"},
	{"pg_collation", "collnamespace = (TABLE n)"},
	{"pg_conversion", "connamespace = (TABLE n)"},
	{"pg_ts_config", "cfgnamespace = (TABLE n)"},
	{"pg_ts_dict", "dictnamespace = (TABLE n)"},
	{"pg_ts_parser", "prsnamespace = (TABLE n)"},
	{"pg_ts_template", "tmplnamespace = (TABLE n)"},
	{"pg_statistic_ext", "stxnamespace = (TABLE n)"},
	{"pg_constraint", "connamespace = (TABLE n)"},
	{"pg_default_acl", "defaclnamespace = (TABLE n)"},
	{"pg_attrdef", "adrelid IN (SELECT oid FROM c)"},
	{"pg_trigger", "tgrelid IN (SELECT oid FROM c) AND tgname <> 'snowid_fence'"},
	{"pg_rewrite", "ev_class IN (SELECT oid FROM c)"},
	{"pg_policy", "polrelid IN (SELECT oid FROM c)"},
	{"pg_cast", "castsource IN (SELECT oid FROM t) OR casttarget IN (SELECT oid FROM t)"},
	{"pg_transform", "trftype IN (SELECT oid FROM t)"},
	{"pg_enum", "enumtypid IN (SELECT oid FROM t)"},
	{"pg_amop", "amopfamily IN (SELECT oid FROM pg_opfamily WHERE opfnamespace = (TABLE n))"},
	{"pg_amproc", "amprocfamily IN (SELECT oid FROM pg_opfamily WHERE opfnamespace = (TABLE n))"}
};

/* What has no OID of its own. */
static const Catalog rows[] = {
	{"pg_attribute", "attrelid IN (SELECT oid FROM c)"},
	{"pg_index", "indrelid IN (SELECT oid FROM c)"},
	{"pg_inherits", "inhrelid IN (SELECT oid FROM c)"},
	{"pg_partitioned_table", "partrelid IN (SELECT oid FROM c)"},
	{"pg_foreign_table", "ftrelid IN (SELECT oid FROM c)"},
	{"pg_range", "rngtypid IN (SELECT oid FROM t)"},
	{"pg_aggregate", "aggfnoid IN (SELECT oid FROM pg_proc WHERE pronamespace = (TABLE n))"},
	{"pg_ts_config_map", "mapcfg IN (SELECT oid FROM pg_ts_config WHERE cfgnamespace = (TABLE n))"},
	{"pg_depend", "(classid, objid) IN (SELECT classid, objid FROM o)"},
	{"pg_seclabel", "(classoid, objoid) IN (SELECT classid, objid FROM o)"}
};

/* The columns of pg_class that are not part of a definition. */
#define VOLATILE_COLUMNS \
	"'relfilenode', 'relpages', 'reltuples', 'relallvisible', 'relallfrozen', 'relfrozenxid', 'relminmxid', " \
	"'relhasindex', 'relhastriggers', 'relhasrules', 'relhassubclass', 'relispopulated', 'reltoastrelid', 'relrewrite'"

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
	PGresult   *columns;
	PQExpBufferData sql;
	bool		done;

	for (int i = 0; i < (int) lengthof(prepared); i++)
		if (prepared[i].conn == conn && prepared[i].pid == PQbackendPID(conn))
			return true;
	columns = try_query(conn,
						"SELECT string_agg(format('c.%%I', attname), ', ' ORDER BY attnum) FROM pg_attribute "
						"WHERE attrelid = 'pg_class'::regclass AND attnum > 0 AND attname NOT IN (" VOLATILE_COLUMNS ")");
	if (columns == NULL || !try_run(conn, "SET plan_cache_mode = force_generic_plan"))
		return false;
	initPQExpBuffer(&sql);
	appendPQExpBuffer(&sql,
					  "PREPARE snowid_fingerprint (name) AS "
					  "WITH n AS MATERIALIZED (SELECT oid FROM pg_namespace WHERE nspname = $1), "
					  "c AS MATERIALIZED (SELECT * FROM pg_class WHERE relnamespace = (TABLE n)), "
					  "t AS MATERIALIZED (SELECT oid FROM pg_type WHERE typnamespace = (TABLE n)), "
					  "o (classid, objid, made_by) AS MATERIALIZED (SELECT 'pg_class'::regclass::oid, oid, NULL FROM c "
					  "UNION ALL SELECT tableoid, oid, NULL FROM pg_namespace WHERE oid = (TABLE n)");
	for (int i = 0; i < (int) lengthof(objects); i++)
		appendPQExpBuffer(&sql, " UNION ALL SELECT tableoid, oid, xmin::text FROM %s WHERE %s",
						  objects[i].name, objects[i].condition);
	appendPQExpBufferStr(&sql, "), r (classid, what) AS (SELECT classid, made_by FROM o");
	for (int i = 0; i < (int) lengthof(rows); i++)
		appendPQExpBuffer(&sql, " UNION ALL SELECT tableoid, xmin::text FROM %s WHERE %s",
						  rows[i].name, rows[i].condition);
	appendPQExpBuffer(&sql,
					  " UNION ALL SELECT 'pg_class'::regclass, ROW(%s)::text FROM c"
					  " UNION ALL SELECT tableoid, ROW(oid, nspowner, nspacl)::text FROM pg_namespace WHERE oid = (TABLE n)"
					  " UNION ALL SELECT tableoid, ROW(objoid, classoid, objsubid, description)::text FROM pg_description "
					  "WHERE (classoid, objoid) IN (SELECT classid, objid FROM o)"

	/* The options toast.* of a table. */
					  " UNION ALL SELECT x.tableoid, ROW(c.oid, x.reloptions)::text FROM c "
					  "JOIN pg_class x ON x.oid = c.reltoastrelid WHERE x.reloptions IS NOT NULL"

	/* What a closed sequence was before is in the journal. */
					  " UNION ALL SELECT s.tableoid, ROW(seqrelid, seqtypid, seqincrement, seqcache, "
					  "coalesce(d ->> 'min', seqmin::text), coalesce(d ->> 'max', seqmax::text), "
					  "coalesce(d ->> 'start', seqstart::text), coalesce(d ->> 'cycle', seqcycle::text))::text "
					  "FROM pg_sequence s JOIN c ON c.oid = s.seqrelid "
					  "LEFT JOIN snowid.moves m ON m.closed AND m.schema = $1 "
					  "LEFT JOIN LATERAL (SELECT m.details -> 'sequences' -> c.relname::text) x (d) ON true) "
					  "SELECT md5(string_agg(format('%%s %%s %%s', classid, rows, hash), ' ' ORDER BY classid)) FROM "
					  "(SELECT classid, count(*), sum(hashtextextended(what, 0)::numeric) FROM r GROUP BY classid) x (classid, rows, hash)",
					  PQgetvalue(columns, 0, 0));
	done = try_run(conn, "%s", sql.data);
	termPQExpBuffer(&sql);
	PQclear(columns);
	if (!done)
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
		(res = try_query(conn, "EXECUTE snowid_fingerprint (%s)", literal(conn, schema))) == NULL)
		return NULL;
	fingerprint = field(res, 0, 0);
	PQclear(res);
	return fingerprint != NULL ? fingerprint : pg_strdup("");
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
