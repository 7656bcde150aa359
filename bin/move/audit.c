/*
 * audit: looks at every server of the registry, and names what contradicts itself.
 *
 * Each server is asked once for all that it has (audit.sql); one query at the directory
 * sees all answers together, in temporary tables, and makes of each contradiction
 * a line with what mends it.  Nothing is judged here.  --fix types what can lose nothing, and
 * looks again.
 */
#include "commands.h"
#include "sql/audit.inc"

typedef struct Server
{
	const char *name;			/* its address, as the directory has it */
	PGconn	   *conn;			/* NULL: not reached */
} Server;

typedef struct Audit
{
	const char *registry;
	PGconn	   *directory;
	Server	   *servers;		/* of which the first is the directory */
	int			nservers;
	int			nfound;
	int			nfixed;
} Audit;

static Server *
server_at(const Audit *audit, const char *name)
{
	for (int i = 0; i < audit->nservers; i++)
		if (strcmp(audit->servers[i].name, name) == 0)
			return &audit->servers[i];
	return NULL;
}

/* Is all there, and may we read it?  Else the server counts as one that is not reached. */
static bool
may_be_asked(PGconn *conn, const char *name)
{
	char	   *to_do = query_text(conn, "SELECT CASE WHEN to_regclass('snowid.moves') IS NULL THEN 'CREATE EXTENSION snowid;' "
								   "WHEN NOT has_table_privilege('snowid.moves', 'SELECT') THEN format('GRANT SELECT ON snowid.moves TO %%I;', current_user) END");

	if (to_do != NULL)
		report_error("%s cannot be asked what it has; type there: %s", name, to_do);
	return to_do == NULL;
}

/* One more, unless it is known.  Most homes name no role: if it is not ours, it is that of who told of it. */
static void
open_server(Audit *audit, const char *name, PGconn *teller)
{
	Server	   *server;

	if (server_at(audit, name) != NULL)
		return;
	audit->servers = pg_realloc(audit->servers, (audit->nservers + 1) * sizeof(Server));
	server = &audit->servers[audit->nservers++];
	server->name = name;
	server->conn = open_connection(name, name);
	if (PQstatus(server->conn) != CONNECTION_OK && strstr(PQerrorMessage(server->conn), "FATAL") != NULL)
	{
		PQfinish(server->conn);
		take_user_of(teller);
		server->conn = open_connection(name, name);
		take_user_of(NULL);
	}
	if (PQstatus(server->conn) != CONNECTION_OK)
		report_error("%s", PQerrorMessage(server->conn));
	else if (may_be_asked(server->conn, name))
		return;
	PQfinish(server->conn);
	server->conn = NULL;
	audit->nfound++;
}

/* Those that a query of a server names. */
static void
open_homes(Audit *audit, const char *sql, PGconn *conn)
{
	PGresult   *homes = conn == NULL ? NULL : query(conn, "%s", sql);

	for (int row = 0; row < PQntuples(homes); row++)
		open_server(audit, field(homes, row, 0), conn);
	PQclear(homes);
}

/* Connect to the directory, and to each server that it names, or that a move of one of these does. */
static bool
open_servers(Audit *audit)
{
	audit->directory = open_connection("directory", audit->registry);
	if (PQstatus(audit->directory) != CONNECTION_OK)
	{
		report_error("%s", PQerrorMessage(audit->directory));
		return false;
	}
	if (!may_be_asked(audit->directory, "the directory"))
		return false;
	audit->servers = pg_malloc(sizeof(Server));
	audit->servers[0].name = home_of_connection(audit->directory);
	audit->servers[0].conn = audit->directory;
	audit->nservers = 1;
	open_homes(audit, "SELECT home FROM snowid.shard_registry WHERE home IS NOT NULL UNION SELECT home FROM snowid.servers ORDER BY 1", audit->directory);
	for (int i = 0; i < audit->nservers; i++)
		open_homes(audit, "SELECT DISTINCT peer FROM snowid.moves WHERE peer IS NOT NULL ORDER BY 1", audit->servers[i].conn);
	return true;
}

/*
 * Put the answers of all servers together.  One that has several addresses is there once,
 * by the first: audit_address leads from each.
 */
static void
collect(const Audit *audit)
{
	PGconn	   *conn = audit->directory;

	run(conn, "DROP TABLE IF EXISTS pg_temp.audit, pg_temp.audit_address, pg_temp.audit_missing; "
		"CREATE TEMP TABLE audit (name text, is_directory bool, facts jsonb); "
		"CREATE TEMP TABLE audit_address (address text, name text); CREATE TEMP TABLE audit_missing (name text)");
	for (int i = 0; i < audit->nservers; i++)
	{
		const Server *server = &audit->servers[i];
		char	   *name = literal(conn, server->name);
		PGresult   *res;
		char	   *facts;

		if (server->conn == NULL)
		{
			run(conn, "INSERT INTO audit_missing VALUES (%s)", name);
			continue;
		}
		facts = literal(conn, query_text(server->conn, AUDIT_FACTS_SQL));
		res = try_query(server->conn, AUDIT_READ_ONLY_SQL);
		run(conn, "INSERT INTO audit_address SELECT %s, coalesce((SELECT name FROM audit WHERE facts ->> 'run' = %s::jsonb ->> 'run'), %s)",
			name, facts, name);
		run(conn, "INSERT INTO audit SELECT name, %s, %s::jsonb || jsonb_build_object('read_only', %s) FROM audit_address "
			"WHERE address = %s AND name = address",
			i == 0 ? "true" : "false", facts, res != NULL && PQgetvalue(res, 0, 0)[0] == 't' ? "true" : "false", name);
		PQclear(res);
	}
}

/* Type what mends it.  What is in its way is told. */
static bool
fix(const Audit *audit, const char *place, const char *command)
{
	const Server *server = server_at(audit, place);

	if (server == NULL || server->conn == NULL)
		return false;

	/* Not in one transaction: that cannot drop a subscription or a slot. */
	for (const char *next; *command != '\0'; command = next)
	{
		next = strstr(command, "; ");
		next = next == NULL ? command + strlen(command) : next + 2;
		if (!try_run(server->conn, "%.*s", (int) (next - command), command))
		{
			report_warning("%s: %s", place, PQerrorMessage(server->conn));
			return false;
		}
	}
	return true;
}

/* Tell what is found, or mend it. */
static void
look(Audit *audit, bool is_to_fix)
{
	PGresult   *found;

	collect(audit);
	found = query(audit->directory, AUDIT_FINDINGS_SQL, literal(audit->directory, without_password("--registry", audit->registry)));
	for (int row = 0; row < PQntuples(found); row++)
	{
		const char *what = PQgetvalue(found, row, 0);
		const char *place = field(found, row, 1);
		const char *command = PQgetvalue(found, row, 2);
		bool		is_safe = PQgetvalue(found, row, 3)[0] == 't';

		if (is_to_fix && is_safe && fix(audit, place, command))
		{
			printf("mended: %s\n", what);
			audit->nfixed++;
		}
		else if (!is_to_fix)
		{
			printf("FAILED  %s\n", what);
			printf("        %s%s%s%s\n", place != NULL ? "at " : "type: ", place != NULL ? place : "", place != NULL ? ", type: " : "", command);
			audit->nfound++;
		}
	}
	PQclear(found);
}

int
command_audit(const MoveOptions *options)
{
	Audit		audit = {.registry = options->registry};
	int			nreached = 0;

	if (!open_servers(&audit))
		return EXIT_USAGE;

	/* What is mended shows what else there is: a closed copy can go. */
	for (int before = -1; options->fix && before < audit.nfixed;)
	{
		before = audit.nfixed;
		look(&audit, true);
	}
	look(&audit, false);
	for (int i = 0; i < audit.nservers; i++)
	{
		nreached += audit.servers[i].conn != NULL;
		PQfinish(audit.servers[i].conn);
	}
	printf("%d servers looked at, %d contradictions%s\n", nreached, audit.nfound, options->fix ? text_of(", %d mended", audit.nfixed) : "");
	return audit.nfound == 0 ? EXIT_DONE : EXIT_FAILED;
}
