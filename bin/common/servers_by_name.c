/*
 * The directory of a fleet, and its servers by name.
 */
#include "connection.h"

/*
 * Connect to the directory.  NULL after saying why not: one that subscribes to another's registry is
 * a member, and what is written there is lost.
 */
PGconn *
open_directory(const char *conninfo)
{
	PGconn	   *conn = open_connection("registry", conninfo);
	char	   *publisher;

	if (PQstatus(conn) != CONNECTION_OK)
	{
		report_error("registry: %s", PQerrorMessage(conn));
		return NULL;
	}
	if (!knows_version(conn))
		return NULL;
	if (!query_bool(conn, "SELECT to_regclass('snowid.shard_registry') IS NOT NULL"))
		return refuse(NULL, "There, type: CREATE EXTENSION snowid;", "the registry's database does not have snowid");
	publisher = query_text(conn, "SELECT subname FROM pg_subscription_rel JOIN pg_subscription s ON s.oid = srsubid "
						   "WHERE srrelid = 'snowid.shard_registry'::regclass AND subname !~ '^snowid_(move|back)_'");
	if (publisher != NULL)
		return refuse(NULL, text_of("Give the directory as --registry; in psql, \\dRs+ %s shows where it is.", publisher),
					  "the server of --registry is not the directory: it subscribes to one");
	return conn;
}

/* May what servers answer be gathered there? */
bool
can_gather(PGconn *directory)
{
	char	   *rights = query_text(directory, "SELECT format('GRANT TEMP ON DATABASE %%I TO %%I;', d, current_user) FROM current_database() d "
									"WHERE NOT has_database_privilege(d, 'TEMP')");

	return rights == NULL || refuse(false, text_of("There, type: %s", rights), "at the directory you may make no temporary tables");
}

/* What identifies a database of a server, whatever address leads there; a clone has another. */
char *
identity_of(PGconn *conn)
{
	return query_text(conn, "SELECT concat_ws(' ', system_identifier, extract(epoch FROM pg_postmaster_start_time()), current_database()) FROM pg_control_system()");
}

/* Is that the name of a server, and no connection string? */
bool
is_server_name(const char *name)
{
	return name != NULL && name[0] != '\0' && strpbrk(name, "=:/ ") == NULL;
}

/* The home that the directory has for a name; NULL after saying that there is none. */
char *
home_of_server(PGconn *directory, const char *name)
{
	char	   *home = query_text(directory, "SELECT home FROM snowid.servers WHERE name = %s", literal(directory, name));

	if (home == NULL)
		return refuse(NULL, text_of("It has: %s", query_text(directory, "SELECT coalesce(string_agg(name, ', ' ORDER BY name), 'none') FROM snowid.servers")),
					  "the directory has no server \"%s\"", name);
	return home;
}
