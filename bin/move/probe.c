/*
 * The prechecks that are more than a query: other programs, the disk, other
 * servers.
 */
#include "precheck.h"

#include "sql/queries.inc"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

/* The version number of a program of PostgreSQL's; 0 if it cannot be run.  An image has no shell. */
static int
program_version(const char *bindir, const char *name)
{
	const char *argv[] = {name, "--version", NULL};
	int			major = 0;
	int			ends[2];
	int			status;
	pid_t		child;

	if (pipe2(ends, O_CLOEXEC) != 0 ||
		(child = start_program(bindir, argv, NULL, ends[1], open(DEVNULL, O_WRONLY | O_CLOEXEC))) == 0)
		return 0;
	close(ends[1]);
	(void) sscanf(read_all(ends[0]), "%*s (PostgreSQL) %d", &major);
	return waitpid(child, &status, 0) == child && status == 0 ? major : 0;
}

void
check_versions(const Move *move, const Check *check)
{
	int			source = move->source.version / 10000;
	int			target = move->target.version / 10000;

	if (source < OLDEST_SERVER || target < OLDEST_SERVER)
		found_fmt(check, FOUND_FAILED, "Upgrade the older one.",
				  "the source is PostgreSQL %d, the target %d; both must be %d or later", source, target, OLDEST_SERVER);
	else if (target < source)
		found_fmt(check, FOUND_WARNING, "Definitions that it doesn't know will fail before any row is copied.",
				  "the target is PostgreSQL %d, older than the source, %d", target, source);
	else
		found_fmt(check, FOUND_OK, "", "%d and %d", source, target);
}

void
check_pg_dump(const Move *move, const Check *check)
{
	int			source = move->source.version / 10000;
	char	   *pg_dump = find_program(move->options->bindir, "pg_dump");
	int			version = program_version(move->options->bindir, "pg_dump");

	if (version == 0)
		found_fmt(check, FOUND_FAILED, "Say where it is: --bindir DIRECTORY.", "cannot run \"%s\"", pg_dump);
	else if (version < source)
		found_fmt(check, FOUND_FAILED, "Say where a newer one is: --bindir DIRECTORY.",
				  "\"%s\" is of PostgreSQL %d, older than the source, %d", pg_dump, version, source);
}

/*
 * Room on the target's disk.  No SQL tells it; but a server that we reach
 * through a socket in the file system shares it with us.
 */
void
check_room(const Move *move, const Check *check)
{
	PGresult   *size = ask(move, move->source.conn, check->sql, NULL);
	PGresult   *place = try_query(move->target.conn,
								  "SELECT current_setting('data_directory', true) FROM pg_database d "
								  "JOIN pg_tablespace t ON t.oid = dattablespace AND spcname = 'pg_default' WHERE datname = current_database()");
	const char *host = PQhost(move->target.conn);
	struct statvfs room;

	if (PQresultStatus(size) != PGRES_TUPLES_OK)
		found_error(check, move->source.conn, "");
	else if (PQntuples(place) == 1 && host != NULL && host[0] == '/' && statvfs(PQgetvalue(place, 0, 0), &room) == 0)
	{
		int64		available = (int64) room.f_bavail * room.f_frsize;
		bool		fits = available > strtoll(PQgetvalue(size, 0, 0), NULL, 10);

		found_fmt(check, fits ? FOUND_OK : FOUND_FAILED, fits ? "" : "Make room, or add a disk.",
				  "%s with indexes; the target has %.1f GB free", PQgetvalue(size, 0, 1), available / 1e9);
	}
	else
		found_fmt(check, FOUND_WARNING, "On the target's machine, look with: df",
				  "%s with indexes, and WAL; how much is free on the target, SQL does not tell", PQgetvalue(size, 0, 1));
	PQclear(size);
	PQclear(place);
}

/*
 * Objects of other schemas that the shard's depend on, and that the target
 * does not have.  (Those of extensions come with them.)
 */
void
check_needs(const Move *move, const Check *check)
{
	PGresult   *needs = ask(move, move->source.conn, check->sql, NULL);
	PGconn	   *conn = move->target.conn;

	if (PQresultStatus(needs) != PGRES_TUPLES_OK)
		found_error(check, move->source.conn, "");
	for (int row = 0; row < PQntuples(needs); row++)
		if (!try_run(conn, "SELECT pg_get_object_address(%s, %s, %s)", literal(conn, PQgetvalue(needs, row, 0)),
					 literal(conn, PQgetvalue(needs, row, 1)), literal(conn, PQgetvalue(needs, row, 2))))
			found_fmt(check, FOUND_FAILED, "Create it there, or move it into the shard with ALTER ... SET SCHEMA.",
					  "%s is missing on the target; %s needs it", PQgetvalue(needs, row, 3), PQgetvalue(needs, row, 4));
	PQclear(needs);
}

/* Do functions find by an empty path what they name?  Called as the tables' owners, in a transaction that can write nothing. */
void
check_functions(const Move *move, const Check *check)
{
	PGconn	   *conn = move->source.conn;
	PGresult   *called = ask(move, conn, check->sql, NULL);

	if (PQresultStatus(called) != PGRES_TUPLES_OK)
		found_error(check, conn, "");
	run(conn, "BEGIN READ ONLY");
	for (int row = 0; row < PQntuples(called); row++)
	{
		/* Those that have failed may have done so for their owners. */
		if (!move->options->trust_owners && find_shard(move, atoi(PQgetvalue(called, row, 0)))->failed)
			continue;
		run(conn, "SAVEPOINT tried");

		/* A function, a table, a type, or a schema that is not there. */
		if (!try_run(conn, "SET LOCAL ROLE %s; SET LOCAL search_path = ''; SET LOCAL row_security = off; SET LOCAL statement_timeout = 5000; %s",
					 PQgetvalue(called, row, 1), PQgetvalue(called, row, 3)) &&
			strstr("42883 42P01 42704 3F000", last_sqlstate) != NULL)
			found_fmt(check, FOUND_FAILED, PQgetvalue(called, row, 4),
					  "%s fails with an empty search_path, as in the copy: %s", PQgetvalue(called, row, 2), last_message);
		run(conn, "ROLLBACK TO tried");
	}
	run(conn, "ROLLBACK");
	PQclear(called);
}

/* Can this server reach the other one? */
void
check_connection(const Move *move, const Check *check)
{
	const Side *side = check->where == ON_SOURCE ? &move->source : &move->target;
	const Side *other = side == &move->source ? &move->target : &move->source;
	const char *option = side == &move->source ? "--target-for-source" : "--source-for-target";
	PGconn	   *conn = side->conn;
	char	   *why = why_unreachable(conn, ident(conn, move->name), literal_for_subscription(conn, other), 0);

	if (why != NULL)
		found(check, FOUND_FAILED, why,
			  strcmp(last_sqlstate, "42501") == 0 || strcmp(last_sqlstate, "42710") == 0 ? "" :
			  strcmp(last_sqlstate, "2F003") == 0 ?
			  text_of("A role that is no superuser must name a password, for which the %s asks: %s"
					  " 'CONNINFO password=...'. The subscription keeps it until the move is done.", other->label, option) :
			  text_of("Look at listen_addresses and pg_hba.conf of the %s and at the %s's password file,"
					  " or say how the %s reaches it: %s CONNINFO.", other->label, side->label, side->label, option));
}

/*
 * The home that the registry has of a shard, if it is not the source: one of the two is
 * a copy that is out of date, as after a restore, and has the shard open, too.
 */
static void
check_home(const Move *move, const Check *check, Shard *shard, const char *home)
{
	const Side *source = &move->source;
	PGconn	   *conn;

	if (is_home_of(home, source->system, source))
		return;
	conn = open_connection("home", home);
	if (PQstatus(conn) != CONNECTION_OK)
		found_of(check, shard, FOUND_WARNING, text_of("Look whether it is open there, too. If that is --from, type at the registry: UPDATE snowid.shard_registry SET home = %s WHERE shard = %d;",
													  literal(source->conn, source->home), shard->number),
				 "it says that shard %d lives at %s, which cannot be asked", shard->number, home);
	else if (strcmp(identity_of(conn), identity_of(source->conn)) != 0 &&
			 query_bool(conn, "SELECT EXISTS (SELECT FROM snowid.shard_registry r WHERE shard = %d AND snowid_internal.lives(r) = 'here')", shard->number))
		found_of(check, shard, FOUND_FAILED, "Move it from there. What --from has is an old copy: see \"A restore\" in doc/moving.md.",
				 "shard %d lives at %s, as it says, and there is open, too", shard->number, home);
	PQfinish(conn);
}

/* What other tools do in the shard, and will not do on the target. */
void
check_jobs(const Move *move, const Check *check)
{
	PGconn	   *conn = move->source.conn;
	PGresult   *queries = query(conn, JOBS_SQL, schema_list(move, conn));

	for (int i = 0; i < PQntuples(queries); i++)
	{
		PGresult   *jobs = try_query(conn, "%s", PQgetvalue(queries, i, 0));

		for (int row = 0; row < PQntuples(jobs); row++)
			found(check, FOUND_WARNING, PQgetvalue(jobs, row, 0), PQgetvalue(jobs, row, 1));
		PQclear(jobs);
	}
	PQclear(queries);
}

/* The registry of all servers must be within reach, and know the shard, at the source. */
void
check_registry(const Move *move, const Check *check)
{
	const char *conninfo = move->options->registry;
	PGconn	   *conn;

	if (conninfo == NULL)
		return;
	conn = open_connection("registry", conninfo);
	if (PQstatus(conn) != CONNECTION_OK)
		found_error(check, conn, "Look at --registry.");
	else
	{
		PGresult   *homes = query(conn, "SELECT shard, home FROM snowid.shard_registry WHERE home IS NOT NULL AND shard = ANY (ARRAY[%s]::int[])", shard_list(move));

		print_findings(move, check, conn);
		for (int i = 0; i < PQntuples(homes); i++)
			check_home(move, check, find_shard(move, atoi(PQgetvalue(homes, i, 0))), PQgetvalue(homes, i, 1));
		PQclear(homes);
	}
	PQfinish(conn);
}

/* A journal with a row of the shard: a move that has not come to its end. */
void
check_earlier_move(const Move *move, const Check *check)
{
	for (int i = 0; i < move->nshards; i++)
	{
		Shard	   *shard = move->shards[i];
		const Move *single = select_range(move, i, 1);
		Situation	situation = situation_of(shard);

		if (situation & (HAS_MOVED | RETURNABLE))
			found_of(check, shard, FOUND_FAILED, text_of("Type: %s", whole_command(single, "finish")), "one of shard %d is complete, but not finished", shard->number);
		else if (situation != NOT_BEGUN)
			found_of(check, shard, FOUND_FAILED, text_of("Type: %s", whole_command(single, "status")), "one of shard %d is under way", shard->number);
	}
}
