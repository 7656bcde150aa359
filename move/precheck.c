/*
 * The prechecks: everything that would make a move fail, or lose something
 * silently, told before anything is touched.
 *
 * Each check asks the two servers and changes nothing.  All are run and
 * printed, whatever the ones before have found, so that one sees at once all
 * that there is to do.  A check that cannot be made has failed.
 *
 * Most are queries in the table below.  Their rows are findings: 'FAILED',
 * 'warning' or 'ok', what was found, and what to do about it.  No row is
 * good news, too.
 */
#include "postgres_fe.h"

#include <sys/statvfs.h>
#include <time.h>

#include "catalog/pg_type_d.h"
#include "snowid-move.h"

/* A transaction older than this is not about to end by itself. */
#define LONG_TRANSACTION	"interval '5 seconds'"

/* Clocks further apart than this are worth a word, or forbid the move. */
#define CLOCKS_APART_US		INT64CONST(1000000)
#define CLOCKS_BROKEN_US	(INT64CONST(86400) * 1000000)
#define CLOCK_ROUNDS		7

typedef enum Severity
{
	FOUND_OK,
	FOUND_WARNING,
	FOUND_FAILED
} Severity;

typedef enum Where
{
	ON_SOURCE,
	ON_TARGET
} Where;

typedef struct Check Check;

/*
 * name: what is checked, as printed
 * where: the server that sql is asked on
 * other: asked on the other server first, a single value
 * sql: findings; $1 is the shard's number, $2 its schema, $3 what the other
 *		server said, $4 the name of publication, slot and subscription
 * function: makes the findings in place of sql
 * only_reverse: only matters if the target is to replicate back
 */
struct Check
{
	const char *name;
	Where		where;
	const char *other;
	const char *sql;
	void		(*function) (const Move *move, const Check *check);
	bool		only_reverse;
};

static Severity worst;			/* of the check that is running */
static bool printed;			/* has it printed its line? */

/* Print a finding of the running check. */
static void
found(const Check *check, Severity severity, const char *what, const char *to_do)
{
	printf("%-8s %s%s%s\n",
		   severity == FOUND_OK ? "ok" :
		   severity == FOUND_WARNING ? "warning" : "FAILED",
		   check->name, what != NULL && what[0] != '\0' ? ": " : "",
		   what != NULL ? what : "");
	if (to_do != NULL && to_do[0] != '\0')
		printf("         %s\n", to_do);
	if (severity > worst)
		worst = severity;
	printed = true;
}

static void found_fmt(const Check *check, Severity severity, const char *to_do,
					  const char *fmt,...) pg_attribute_printf(4, 5);

static void
found_fmt(const Check *check, Severity severity, const char *to_do,
		  const char *fmt,...)
{
	char		buffer[1024];
	va_list		args;

	va_start(args, fmt);
	vsnprintf(buffer, sizeof(buffer), fmt, args);
	va_end(args);
	found(check, severity, buffer, to_do);
}

static void
found_error(const Check *check, PGconn *conn, const char *to_do)
{
	char	   *message = pg_strdup(PQerrorMessage(conn));

	message[strcspn(message, "\n")] = '\0';
	found_fmt(check, FOUND_FAILED, to_do, "cannot be checked: %s", message);
	pg_free(message);
}

static PGresult *
ask(const Move *move, PGconn *conn, const char *sql, const char *other)
{
	const Oid	types[4] = {INT4OID, TEXTOID, TEXTOID, TEXTOID};
	char		shard[16];
	const char *values[4] = {shard, move->schema, other, move->name};

	snprintf(shard, sizeof(shard), "%d", move->options->shard);
	return PQexecParams(conn, sql, lengthof(values), types, values, NULL, NULL, 0);
}

/* Print the findings that a query returned. */
static void
print_findings(const Check *check, PGconn *conn, PGresult *result)
{
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		found_error(check, conn, "");
	else
		for (int row = 0; row < PQntuples(result); row++)
		{
			const char *severity = PQgetvalue(result, row, 0);

			found(check,
				  strcmp(severity, "ok") == 0 ? FOUND_OK :
				  strcmp(severity, "warning") == 0 ? FOUND_WARNING : FOUND_FAILED,
				  PQgetvalue(result, row, 1), PQgetvalue(result, row, 2));
		}
}

static void
run_query(const Move *move, const Check *check)
{
	bool		on_source = check->where == ON_SOURCE;
	PGconn	   *conn = on_source ? move->source.conn : move->target.conn;
	PGconn	   *other_conn = on_source ? move->target.conn : move->source.conn;
	PGresult   *other = NULL;
	PGresult   *result;

	if (check->other != NULL)
	{
		other = ask(move, other_conn, check->other, NULL);
		if (PQresultStatus(other) != PGRES_TUPLES_OK)
		{
			found_error(check, other_conn, "");
			PQclear(other);
			return;
		}
	}

	result = ask(move, conn, check->sql,
				 other != NULL && PQntuples(other) > 0 && !PQgetisnull(other, 0, 0) ?
				 PQgetvalue(other, 0, 0) : NULL);
	print_findings(check, conn, result);
	PQclear(result);
	PQclear(other);
}

/* -------- checks that are more than a query -------- */

/* The version number of a program of PostgreSQL's; 0 if it cannot be run. */
static int
program_version(const char *path)
{
	PQExpBufferData command;
	FILE	   *pipe;
	int			major = 0;
	char		line[256];

	initPQExpBuffer(&command);
	appendPQExpBuffer(&command, "\"%s\" --version 2>%s", path, DEVNULL);
	fflush(NULL);
	pipe = popen(command.data, "r");
	if (pipe != NULL)
	{
		if (fgets(line, sizeof(line), pipe) != NULL)
			(void) sscanf(line, "%*s (PostgreSQL) %d", &major);
		if (pclose(pipe) != 0)
			major = 0;
	}
	termPQExpBuffer(&command);
	return major;
}

static void
check_versions(const Move *move, const Check *check)
{
	int			source = move->source.version / 10000;
	int			target = move->target.version / 10000;

	if (source < 13 || target < 13)
		found_fmt(check, FOUND_FAILED, "Upgrade the older one.",
				  "the source is PostgreSQL %d, the target %d; both must be 13 or later",
				  source, target);
	else if (target < source)
		found_fmt(check, FOUND_WARNING,
				  "Definitions that it doesn't know will fail before any row is copied.",
				  "the target is PostgreSQL %d, older than the source, %d",
				  target, source);
	else
		found_fmt(check, FOUND_OK, "", "%d and %d", source, target);
}

static void
check_pg_dump(const Move *move, const Check *check)
{
	int			source = move->source.version / 10000;
	char	   *pg_dump = find_pg_dump(move->options);
	int			version = program_version(pg_dump);

	if (version == 0)
		found_fmt(check, FOUND_FAILED, "Say where it is: --bindir DIRECTORY.",
				  "cannot run \"%s\"", pg_dump);
	else if (version < source)
		found_fmt(check, FOUND_FAILED, "Say where a newer one is: --bindir DIRECTORY.",
				  "\"%s\" is of PostgreSQL %d, older than the source, %d",
				  pg_dump, version, source);
}

/*
 * How far a server's clock is from ours, in microseconds, and how wrong that
 * can be: the answer was given at some time between question and reception.
 * The shortest of some rounds is taken.
 */
static bool
clock_offset(PGconn *conn, int64 *offset, int64 *error)
{
	*error = PG_INT64_MAX;
	for (int i = 0; i < CLOCK_ROUNDS; i++)
	{
		struct timespec before;
		struct timespec after;
		PGresult   *result;
		int64		sent;
		int64		round;

		clock_gettime(CLOCK_REALTIME, &before);
		result = PQexec(conn, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint");
		clock_gettime(CLOCK_REALTIME, &after);
		if (PQresultStatus(result) != PGRES_TUPLES_OK)
		{
			PQclear(result);
			return false;
		}
		sent = before.tv_sec * INT64CONST(1000000) + before.tv_nsec / 1000;
		round = after.tv_sec * INT64CONST(1000000) + after.tv_nsec / 1000 - sent;
		if (round / 2 < *error)
		{
			*offset = strtoll(PQgetvalue(result, 0, 0), NULL, 10) - sent - round / 2;
			*error = round / 2;
		}
		PQclear(result);
	}
	return true;
}

static void
check_clocks(const Move *move, const Check *check)
{
	int64		source;
	int64		target;
	int64		source_error;
	int64		target_error;
	int64		ahead;
	int64		error;
	char		difference[128];

	if (!clock_offset(move->source.conn, &source, &source_error))
	{
		found_error(check, move->source.conn, "");
		return;
	}
	if (!clock_offset(move->target.conn, &target, &target_error))
	{
		found_error(check, move->target.conn, "");
		return;
	}
	ahead = target - source;
	error = source_error + target_error;
	snprintf(difference, sizeof(difference), "the target's is %.3f s %s (to within %.3f s)",
			 (ahead < 0 ? -ahead : ahead) / 1e6, ahead < 0 ? "behind" : "ahead",
			 error / 1e6);

	if (ahead < -(CLOCKS_BROKEN_US - error))
		found(check, FOUND_FAILED, difference,
			  "The target would refuse to go on above ids of more than a day ahead. Set its clock right.");
	else if (ahead < -(CLOCKS_APART_US + error))
		found(check, FOUND_WARNING, difference,
			  "Until it has caught up, ids there are ahead of it, at most 1024 a millisecond. Set the clocks right.");
	else if (ahead > CLOCKS_APART_US + error)
		found(check, FOUND_WARNING, difference,
			  "After a move back, ids would be ahead of the source's clock. Set the clocks right.");
	else
		found(check, FOUND_OK, difference, "");
}

/*
 * Room on the target's disk.  No SQL tells it; but a server that we reach
 * through a socket in the file system shares it with us.
 */
static void
check_room(const Move *move, const Check *check)
{
	PGresult   *size;
	PGresult   *place;
	const char *host = PQhost(move->target.conn);
	struct statvfs room;

	size = ask(move, move->source.conn,
			   "SELECT s, pg_size_pretty(s) FROM ("
			   " SELECT coalesce(sum(pg_table_size(c.oid) + pg_indexes_size(c.oid)), 0)::bigint AS s"
			   " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
			   " WHERE n.nspname = $2 AND c.relkind = 'r') AS t", NULL);
	place = PQexec(move->target.conn,
				   "SELECT current_setting('data_directory', true),"
				   " spcname = 'pg_default'"
				   " FROM pg_database d JOIN pg_tablespace t ON t.oid = d.dattablespace"
				   " WHERE datname = current_database()");
	if (PQresultStatus(size) != PGRES_TUPLES_OK)
		found_error(check, move->source.conn, "");
	else if (PQresultStatus(place) == PGRES_TUPLES_OK && PQntuples(place) == 1 &&
			 !PQgetisnull(place, 0, 0) && strcmp(PQgetvalue(place, 0, 1), "t") == 0 &&
			 host != NULL && host[0] == '/' &&
			 statvfs(PQgetvalue(place, 0, 0), &room) == 0)
	{
		int64		available = (int64) room.f_bavail * room.f_frsize;
		bool		fits = available > strtoll(PQgetvalue(size, 0, 0), NULL, 10);

		found_fmt(check, fits ? FOUND_OK : FOUND_FAILED,
				  fits ? "" : "Make room, or add a disk.",
				  "%s with indexes; the target has %.1f GB free",
				  PQgetvalue(size, 0, 1), available / 1e9);
	}
	else
		found_fmt(check, FOUND_WARNING,
				  "On the target's machine, look with: df",
				  "%s with indexes, and WAL; how much is free on the target, SQL does not tell",
				  PQgetvalue(size, 0, 1));
	PQclear(size);
	PQclear(place);
}

/*
 * Objects of other schemas that the shard's depend on, and that the target
 * does not have.  (Those of extensions come with them.)
 */
static void
check_needs(const Move *move, const Check *check)
{
	PGresult   *needs;

	needs = ask(move, move->source.conn,
				"WITH s AS ("
				"SELECT oid FROM pg_namespace WHERE nspname = $2"
				"), inside AS ("
				"SELECT 'pg_class'::regclass AS classid, c.oid AS objid FROM pg_class c, s WHERE relnamespace = s.oid"
				" UNION ALL SELECT 'pg_attrdef'::regclass, a.oid FROM pg_attrdef a JOIN pg_class c ON c.oid = adrelid, s WHERE relnamespace = s.oid"
				" UNION ALL SELECT 'pg_rewrite'::regclass, r.oid FROM pg_rewrite r JOIN pg_class c ON c.oid = ev_class, s WHERE relnamespace = s.oid"
				" UNION ALL SELECT 'pg_trigger'::regclass, t.oid FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid, s WHERE relnamespace = s.oid AND NOT tgisinternal"
				" UNION ALL SELECT 'pg_policy'::regclass, p.oid FROM pg_policy p JOIN pg_class c ON c.oid = polrelid, s WHERE relnamespace = s.oid"
				" UNION ALL SELECT 'pg_constraint'::regclass, k.oid FROM pg_constraint k, s WHERE connamespace = s.oid AND contype <> 'f'"
				" UNION ALL SELECT 'pg_proc'::regclass, p.oid FROM pg_proc p, s WHERE pronamespace = s.oid"
				" UNION ALL SELECT 'pg_type'::regclass, t.oid FROM pg_type t, s WHERE typnamespace = s.oid"
				" UNION ALL SELECT 'pg_operator'::regclass, o.oid FROM pg_operator o, s WHERE oprnamespace = s.oid"
				" UNION ALL SELECT 'pg_opclass'::regclass, o.oid FROM pg_opclass o, s WHERE opcnamespace = s.oid"
				" UNION ALL SELECT 'pg_opfamily'::regclass, o.oid FROM pg_opfamily o, s WHERE opfnamespace = s.oid"
				" UNION ALL SELECT 'pg_collation'::regclass, o.oid FROM pg_collation o, s WHERE collnamespace = s.oid"
				" UNION ALL SELECT 'pg_ts_config'::regclass, o.oid FROM pg_ts_config o, s WHERE cfgnamespace = s.oid"
				" UNION ALL SELECT 'pg_ts_dict'::regclass, o.oid FROM pg_ts_dict o, s WHERE dictnamespace = s.oid"
				" UNION ALL SELECT 'pg_statistic_ext'::regclass, o.oid FROM pg_statistic_ext o, s WHERE stxnamespace = s.oid"
				"), outside AS ("
				"SELECT d.refclassid, d.refobjid,"
				" min(pg_describe_object(d.classid, d.objid, 0)) AS needed_by"
				" FROM pg_depend d JOIN inside i USING (classid, objid)"
				" WHERE d.deptype IN ('n', 'a') AND d.refobjid >= 12000"
				" AND (d.refclassid, d.refobjid) NOT IN (SELECT classid, objid FROM inside)"
				" AND d.refclassid NOT IN ('pg_namespace'::regclass, 'pg_extension'::regclass)"
				" AND NOT EXISTS (SELECT FROM pg_depend e"
				"  WHERE (e.classid, e.objid, e.deptype) = (d.refclassid, d.refobjid, 'e'))"
				" AND (d.classid, d.refclassid) <> ('pg_class'::regclass, 'pg_class'::regclass)"
				" GROUP BY 1, 2)"
				"SELECT a.type, a.object_names, a.object_args,"
				" pg_describe_object(o.refclassid, o.refobjid, 0), o.needed_by"
				" FROM outside o, pg_identify_object_as_address(o.refclassid, o.refobjid, 0) a"
				" ORDER BY 4", NULL);
	if (PQresultStatus(needs) != PGRES_TUPLES_OK)
		found_error(check, move->source.conn, "");
	else
		for (int row = 0; row < PQntuples(needs); row++)
		{
			const char *values[3] = {
				PQgetvalue(needs, row, 0), PQgetvalue(needs, row, 1),
				PQgetvalue(needs, row, 2)
			};
			PGresult   *there;

			there = PQexecParams(move->target.conn,
								 "SELECT pg_get_object_address($1::text, $2::text[], $3::text[])",
								 3, NULL, values, NULL, NULL, 0);
			if (PQresultStatus(there) != PGRES_TUPLES_OK)
				found_fmt(check, FOUND_FAILED,
						  "Create it there, or move it into the shard with ALTER ... SET SCHEMA.",
						  "%s is missing on the target; %s needs it",
						  PQgetvalue(needs, row, 3), PQgetvalue(needs, row, 4));
			PQclear(there);
		}
	PQclear(needs);
}

/*
 * Can the target reach the source?  Creates the subscription, without slot
 * and copy, in a transaction that is rolled back.
 */
static void
check_connection(const Move *move, const Check *check)
{
	PGconn	   *conn = move->target.conn;
	PGresult   *result;
	char	   *name = PQescapeIdentifier(conn, move->name, strlen(move->name));
	char	   *source = PQescapeLiteral(conn, move->source.conninfo,
										 strlen(move->source.conninfo));
	PQExpBufferData sql;

	initPQExpBuffer(&sql);
	appendPQExpBuffer(&sql, "CREATE SUBSCRIPTION %s CONNECTION %s PUBLICATION %s"
					  " WITH (create_slot = false, slot_name = NONE, enabled = false, copy_data = false)",
					  name, source, name);
	PQclear(PQexec(conn, "BEGIN"));
	/* From 15 on, it warns that there is no such publication yet. */
	PQclear(PQexec(conn, "SET LOCAL client_min_messages = error"));
	result = PQexec(conn, sql.data);
	if (PQresultStatus(result) != PGRES_COMMAND_OK)
	{
		const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
		char	   *message = pg_strdup(PQresultErrorMessage(result));
		char	   *reason = strstr(message, ":  ");

		message[strcspn(message, "\n")] = '\0';
		found(check, FOUND_FAILED, reason != NULL ? reason + 3 : message,
			  state != NULL && (strcmp(state, "42501") == 0 || strcmp(state, "42710") == 0) ? "" :
			  "Look at listen_addresses and pg_hba.conf of the source and at the target's password file, or say how the target reaches it: --source-for-target CONNINFO.");
		pg_free(message);
	}
	PQclear(result);
	PQclear(PQexec(conn, "ROLLBACK"));
	PQfreemem(name);
	PQfreemem(source);
	termPQExpBuffer(&sql);
}

/*
 * May the role of that connection read all rows?  Without SELECT the copy
 * fails; under row security it would leave rows out and say nothing.
 */
static void
check_reader(const Move *move, const Check *check)
{
	PQconninfoOption *options = PQconninfoParse(move->source.conninfo, NULL);
	const char *user = NULL;
	PGresult   *result;

	for (PQconninfoOption *o = options; o != NULL && o->keyword != NULL; o++)
		if (strcmp(o->keyword, "user") == 0)
			user = o->val;
	if (user == NULL)
		user = PQuser(move->source.conn);
	result = ask(move, move->source.conn,
				 "SELECT 'FAILED', format('role %I may not read %I.%I', r.rolname, n.nspname, c.relname),"
				 " format('Type: GRANT SELECT ON ALL TABLES IN SCHEMA %I TO %I; GRANT USAGE ON SCHEMA %I TO %I;', $2, r.rolname, $2, r.rolname)"
				 " FROM pg_roles r, pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
				 " WHERE r.rolname = $3 AND n.nspname = $2 AND c.relkind = 'r'"
				 " AND NOT (has_schema_privilege(r.oid, n.oid, 'USAGE') AND has_table_privilege(r.oid, c.oid, 'SELECT'))"
				 " UNION ALL "
				 "SELECT 'FAILED', format('row security hides rows of %I.%I from role %I, so they would be lost', n.nspname, c.relname, r.rolname),"
				 " format('As a superuser, type: ALTER ROLE %I BYPASSRLS;', r.rolname)"
				 " FROM pg_roles r, pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
				 " WHERE r.rolname = $3 AND n.nspname = $2 AND c.relkind = 'r' AND c.relrowsecurity"
				 " AND NOT r.rolsuper AND NOT r.rolbypassrls"
				 " AND (c.relforcerowsecurity OR NOT pg_has_role(r.oid, c.relowner, 'USAGE'))", user);
	print_findings(check, move->source.conn, result);
	PQclear(result);
	PQconninfoFree(options);
}

/* The registry of all servers must be within reach, and know the shard. */
static void
check_registry(const Move *move, const Check *check)
{
	const char *conninfo = move->options->registry;
	PGconn	   *conn;
	PGresult   *result;

	if (conninfo == NULL)
		return;
	conn = PQconnectdb(conninfo);
	if (PQstatus(conn) != CONNECTION_OK)
		found_error(check, conn, "Look at --registry.");
	else
	{
		result = ask(move, conn,
					 "SELECT 'warning', format('it does not have shard %s, schema \"%s\"', $1, $2),"
					 " 'Tell it where the shard lives before it moves.'"
					 " WHERE NOT EXISTS (SELECT FROM snowid.shard_registry WHERE shard = $1 AND schema = $2)"
					 " UNION ALL "
					 "SELECT 'FAILED', format('role %I may not change it', current_user),"
					 " format('Type there: GRANT SELECT, UPDATE ON snowid.shard_registry TO %I;', current_user)"
					 " WHERE NOT has_table_privilege('snowid.shard_registry', 'UPDATE')", NULL);
		print_findings(check, conn, result);
		PQclear(result);
	}
	PQfinish(conn);
}

/*
 * A copy makes WAL faster than most other work, so a standby that is behind
 * already falls back further.
 */
static void
check_lag(const Move *move, const Check *check)
{
	PGconn	   *conn = check->where == ON_SOURCE ? move->source.conn : move->target.conn;
	char		sql[512];
	PGresult   *result;

	snprintf(sql, sizeof(sql),
			 "SELECT 'warning', format('\"%%s\" is %%s behind', application_name, pg_size_pretty(lag)),"
			 " 'Wait until it has caught up, or raise --max-lag.' FROM ("
			 " SELECT application_name, pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn) AS lag"
			 " FROM pg_stat_replication) t WHERE lag > " INT64_FORMAT,
			 move->options->max_lag);
	result = PQexec(conn, sql);
	print_findings(check, conn, result);
	PQclear(result);
}

/* -------- checks that are queries -------- */

/* The shard's schema. */
#define IN_SHARD	"= (SELECT oid FROM pg_namespace WHERE nspname = $2)"

/* The names of table c and of its schema n, as one types them. */
#define NAME		"format('%I.%I', n.nspname, c.relname)"
#define TABLES		"pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"

static const char is_standby[] =
"SELECT 'FAILED', 'it is a standby', 'Give the connection of its primary.'"
" WHERE pg_is_in_recovery()";

static const char wal_level[] =
"SELECT 'FAILED', 'it is ' || setting, 'Type: ALTER SYSTEM SET wal_level = logical; and restart that server.'"
" FROM pg_settings WHERE name = 'wal_level' AND setting <> 'logical'";

/* One for the subscription, and one for each table that is copied at once. */
static const char free_slots[] =
"SELECT CASE WHEN free < least(wanted, 2) THEN 'FAILED' WHEN free < wanted THEN 'warning' ELSE 'ok' END,"
" format('%s of max_replication_slots = %s are free', free, current_setting('max_replication_slots')),"
" CASE WHEN free < wanted THEN format('Wanted are %s. Type: ALTER SYSTEM SET max_replication_slots = %s; and restart that server; or drop slots that nothing uses.', wanted, current_setting('max_replication_slots')::int + wanted - free) END"
" FROM (SELECT current_setting('max_replication_slots')::int - (SELECT count(*) FROM pg_replication_slots) AS free,"
" 1 + least($3::int, (SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relnamespace " IN_SHARD ")) AS wanted) t";

static const char free_senders[] =
"SELECT CASE WHEN free < least(wanted, 2) THEN 'FAILED' WHEN free < wanted THEN 'warning' ELSE 'ok' END,"
" format('%s of max_wal_senders = %s are free', free, current_setting('max_wal_senders')),"
" CASE WHEN free < wanted THEN format('Wanted are %s. Type: ALTER SYSTEM SET max_wal_senders = %s; and restart that server.', wanted, current_setting('max_wal_senders')::int + wanted - free) END"
" FROM (SELECT current_setting('max_wal_senders')::int - (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender') AS free,"
" 1 + least($3::int, (SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relnamespace " IN_SHARD ")) AS wanted) t";

#define COUNT_TABLES	"SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relnamespace " IN_SHARD
#define SYNC_WORKERS	"SELECT current_setting('max_sync_workers_per_subscription')"

#define MAY_WRITE \
"SELECT 'FAILED', format('role %I may not write %s', current_user, name)," \
" format('Type: GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %I;', name, current_user)" \
" FROM (VALUES ('snowid.moves'), ('snowid.shard_registry')) AS t (name)" \
" WHERE to_regclass(name) IS NOT NULL AND NOT (" \
" SELECT bool_and(has_table_privilege(name, p)) FROM unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) p)"

/* The names that other moves of this shard have given. */
#define LEFTOVER		"format('^snowid_(move|back)_%s_', $1)"

/* Everybody who owns, may use, or is named in a policy of the shard. */
#define ROLES \
"SELECT DISTINCT r.rolname FROM (" \
" SELECT relowner, relacl FROM pg_class WHERE relnamespace " IN_SHARD \
" UNION ALL SELECT proowner, proacl FROM pg_proc WHERE pronamespace " IN_SHARD \
" UNION ALL SELECT typowner, typacl FROM pg_type WHERE typnamespace " IN_SHARD \
" UNION ALL SELECT nspowner, nspacl FROM pg_namespace WHERE nspname = $2" \
" UNION ALL SELECT defaclrole, defaclacl FROM pg_default_acl WHERE defaclnamespace " IN_SHARD \
" UNION ALL SELECT c.relowner, a.attacl FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid" \
"  WHERE relnamespace " IN_SHARD " AND attacl IS NOT NULL) AS o (owner, acl)" \
" CROSS JOIN LATERAL (SELECT owner UNION SELECT x.grantee FROM aclexplode(acl) x" \
"  UNION SELECT x.grantor FROM aclexplode(acl) x) AS w (who)" \
" JOIN pg_roles r ON r.oid = w.who" \
" UNION " \
"SELECT r.rolname FROM pg_policy p JOIN pg_class c ON c.oid = polrelid, pg_roles r" \
" WHERE relnamespace " IN_SHARD " AND r.oid = ANY (polroles)"

/* The locale of a database; what a version doesn't know is left out. */
#define LOCALE \
"SELECT concat_ws(', ', 'LC_COLLATE ' || datcollate, 'LC_CTYPE ' || datctype," \
" 'provider ' || (d ->> 'datlocprovider')," \
" 'locale ' || coalesce(d ->> 'datlocale', d ->> 'daticulocale'), 'version ' || (d ->> 'datcollversion'))" \
" FROM (SELECT datcollate, datctype, to_jsonb(b) AS d FROM pg_database b WHERE datname = current_database()) t"

static const Check checks[] =
{
	{.name = "versions of PostgreSQL",.function = check_versions},
	{.name = "pg_dump",.function = check_pg_dump},
	{.name = "source is a primary",.where = ON_SOURCE,.sql = is_standby},
	{.name = "target is a primary",.where = ON_TARGET,.sql = is_standby},
	{
		.name = "two databases",.where = ON_TARGET,
		.other = "SELECT concat(system_identifier, pg_postmaster_start_time(), current_database()) FROM pg_control_system()",
		.sql = "SELECT 'FAILED', 'source and target are the same', 'Look at --from and --to.'"
		" FROM pg_control_system()"
		" WHERE concat(system_identifier, pg_postmaster_start_time(), current_database()) = $3"
	},
	{
		.name = "extension snowid",.where = ON_TARGET,
		.other = "SELECT extversion FROM pg_extension WHERE extname = 'snowid'",
		.sql = "SELECT 'FAILED', 'it is not in the source''s database', 'There, type: CREATE EXTENSION snowid;' WHERE $3 IS NULL"
		" UNION ALL "
		"SELECT 'FAILED', 'it is not in the target''s database', 'There, type: CREATE EXTENSION snowid;'"
		" WHERE NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'snowid')"
		" UNION ALL "
		"SELECT 'FAILED', format('it is version %s on the source and %s on the target', $3, extversion),"
		" 'On the older one, type: ALTER EXTENSION snowid UPDATE;'"
		" FROM pg_extension WHERE extname = 'snowid' AND extversion <> $3"
	},
	{
		.name = "shard on the source",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', CASE WHEN r.shard IS NULL THEN format('shard %s is not registered', $1)"
		" WHEN n.oid IS NULL THEN format('schema \"%s\" does not exist', r.schema)"
		" WHEN c.oid IS NULL THEN format('sequence \"%s\" of schema \"%s\" does not exist', r.sequence, r.schema)"
		" ELSE format('shard %s is closed', $1) END,"
		" 'SELECT * FROM snowid.shards; shows what is there and where shards live.'"
		" FROM (SELECT $1) x (shard) LEFT JOIN snowid.shard_registry r USING (shard)"
		" LEFT JOIN pg_namespace n ON n.nspname = r.schema"
		" LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = r.sequence AND c.relkind = 'S'"
		" WHERE c.oid IS NULL OR snowid.lives(r) NOT IN ('here', 'missing')"
	},
	{
		.name = "number on the target",.where = ON_TARGET,
		.sql = "SELECT 'FAILED', format('shard %s there is schema \"%s\"', shard, schema),"
		" 'Two shards have one number, so their ids can be the same. Give one another number.'"
		" FROM snowid.shard_registry WHERE shard = $1 AND schema <> $2"
		" UNION ALL "
		"SELECT 'FAILED', format('schema \"%s\" there is shard %s', schema, shard), 'Rename one of the two.'"
		" FROM snowid.shard_registry WHERE shard <> $1 AND schema = $2"
		" UNION ALL "
		"SELECT 'FAILED', format('shard %s is there already', shard), 'Look whether it was ever moved: SELECT * FROM snowid.shards WHERE shard = ' || shard || ';'"
		" FROM snowid.shard_registry r WHERE shard = $1 AND schema = $2 AND snowid.lives(r) IN ('here', 'missing')"
		" AND EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
		"  WHERE n.nspname = r.schema AND c.relname = r.sequence)"
	},
	{
		.name = "schema on the target",.where = ON_TARGET,
		.sql = "SELECT 'FAILED', format('schema \"%s\" is there already%s', $2,"
		"  CASE WHEN foreign_only THEN ', with foreign tables' END),"
		" CASE WHEN foreign_only THEN format('If nothing reads them there any more, type: DROP SCHEMA %I CASCADE;', $2)"
		" ELSE format('Rename or drop it. To rename it, type: ALTER SCHEMA %I RENAME TO %I;', $2, $2 || '_old') END"
		" FROM (SELECT (SELECT bool_and(relkind = 'f') FROM pg_class WHERE relnamespace = n.oid) IS TRUE AS foreign_only"
		"  FROM pg_namespace n WHERE nspname = $2) t"
	},
	{
		.name = "leftovers on the target",.where = ON_TARGET,
		.sql = "SELECT 'FAILED', format('subscription \"%s\" is there already', subname),"
		" format('Type: ALTER SUBSCRIPTION %I DISABLE; ALTER SUBSCRIPTION %I SET (slot_name = NONE); DROP SUBSCRIPTION %I;', subname, subname, subname)"
		" FROM pg_subscription WHERE subname ~ (" LEFTOVER ") AND subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
	},
	{
		.name = "leftovers on the source",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', format('publication \"%s\" is there already', pubname), format('Type: DROP PUBLICATION %I;', pubname)"
		" FROM pg_publication WHERE pubname ~ (" LEFTOVER ")"
		" UNION ALL "
		"SELECT 'FAILED', format('replication slot \"%s\" is there already', slot_name), format('Type: SELECT pg_drop_replication_slot(%L);', slot_name)"
		" FROM pg_replication_slots WHERE slot_name ~ (" LEFTOVER ")"
		" UNION ALL "
		"SELECT 'warning', format('schema \"%s\" is there', nspname), format('It is the copy of an earlier move. If it has ended well, type: DROP SCHEMA %I CASCADE;', nspname)"
		" FROM pg_namespace WHERE nspname = ($2 || '_moved')::name"
	},
	{
		.name = "rights on the source",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', 'role ' || quote_ident(current_user) || ' may not create replication slots', format('As a superuser, type: ALTER ROLE %I REPLICATION;', current_user)"
		" FROM pg_roles WHERE rolname = current_user AND NOT rolsuper AND NOT rolreplication"
		" UNION ALL "
		"SELECT 'FAILED', 'role ' || quote_ident(current_user) || ' may not create publications', format('Type: GRANT CREATE ON DATABASE %I TO %I;', current_database(), current_user)"
		" WHERE NOT has_database_privilege(current_database(), 'CREATE')"
		" UNION ALL "
		"SELECT DISTINCT 'FAILED', format('role %I does not own what %I has there', current_user, rolname), format('Type: GRANT %I TO %I;', rolname, current_user)"
		" FROM pg_roles r WHERE NOT pg_has_role(oid, 'USAGE') AND oid IN ("
		"  SELECT relowner FROM pg_class WHERE relnamespace " IN_SHARD
		"  UNION SELECT nspowner FROM pg_namespace WHERE nspname = $2)"
		" UNION ALL " MAY_WRITE
	},
	{
		.name = "rights on the target",.where = ON_TARGET,
		.other = "SELECT string_agg(rolname, E'\\n') FROM (" ROLES ") AS t",
		.sql = "SELECT 'FAILED', 'role ' || quote_ident(current_user) || ' may not create subscriptions',"
		" CASE WHEN p.oid IS NULL THEN 'Connect as a superuser.' ELSE format('As a superuser, type: GRANT pg_create_subscription TO %I;', current_user) END"
		" FROM pg_roles r LEFT JOIN pg_roles p ON p.rolname = 'pg_create_subscription'"
		" WHERE r.rolname = current_user AND NOT r.rolsuper AND pg_has_role(p.oid, 'USAGE') IS NOT TRUE"
		" UNION ALL "
		"SELECT 'FAILED', 'role ' || quote_ident(current_user) || ' may not create schemas', format('Type: GRANT CREATE ON DATABASE %I TO %I;', current_database(), current_user)"
		" WHERE NOT has_database_privilege(current_database(), 'CREATE')"
		" UNION ALL "
		"SELECT 'FAILED', format('role %I may not make objects for %I', current_user, rolname), format('Type: GRANT %I TO %I;', rolname, current_user)"
		" FROM pg_roles WHERE NOT pg_has_role(oid, 'USAGE')"
		" AND rolname = ANY (string_to_array($3, E'\\n'))"
		" UNION ALL " MAY_WRITE
	},
	{
		.name = "roles on the target",.where = ON_TARGET,
		.other = "SELECT string_agg(rolname, E'\\n') FROM (" ROLES ") AS t",
		.sql = "SELECT 'FAILED', format('role \"%s\" does not exist there', name), format('Type: CREATE ROLE %I; with the attributes that it has on the source (pg_dumpall --roles-only).', name)"
		" FROM unnest(string_to_array($3, E'\\n')) AS name WHERE name NOT IN (SELECT rolname FROM pg_roles)"
	},
	{
		.name = "extensions on the target",.where = ON_TARGET,
		.other = "SELECT string_agg(DISTINCT extname || ' ' || extversion, E'\\n')"
		" FROM pg_depend d JOIN pg_depend m ON (m.classid, m.objid, m.deptype) = (d.refclassid, d.refobjid, 'e')"
		" JOIN pg_extension e ON m.refobjid = e.oid"
		" WHERE e.extname <> 'snowid' AND ("
		"  d.classid = 'pg_class'::regclass AND d.objid IN (SELECT oid FROM pg_class WHERE relnamespace " IN_SHARD ")"
		"  OR d.classid = 'pg_attrdef'::regclass AND d.objid IN (SELECT a.oid FROM pg_attrdef a JOIN pg_class c ON c.oid = adrelid WHERE relnamespace " IN_SHARD ")"
		"  OR d.classid = 'pg_rewrite'::regclass AND d.objid IN (SELECT w.oid FROM pg_rewrite w JOIN pg_class c ON c.oid = ev_class WHERE relnamespace " IN_SHARD ")"
		"  OR d.classid = 'pg_trigger'::regclass AND d.objid IN (SELECT g.oid FROM pg_trigger g JOIN pg_class c ON c.oid = tgrelid WHERE relnamespace " IN_SHARD ")"
		"  OR d.classid = 'pg_constraint'::regclass AND d.objid IN (SELECT oid FROM pg_constraint WHERE connamespace " IN_SHARD ")"
		"  OR d.classid = 'pg_proc'::regclass AND d.objid IN (SELECT oid FROM pg_proc WHERE pronamespace " IN_SHARD ")"
		"  OR d.classid = 'pg_type'::regclass AND d.objid IN (SELECT oid FROM pg_type WHERE typnamespace " IN_SHARD "))",
		.sql = "SELECT CASE WHEN extname IS NULL THEN 'FAILED' ELSE 'warning' END,"
		" CASE WHEN extname IS NULL THEN format('extension \"%s\" is missing', x[1])"
		"  ELSE format('extension \"%s\" is version %s, and %s on the source', x[1], extversion, x[2]) END,"
		" format(CASE WHEN extname IS NULL THEN 'Type: CREATE EXTENSION %I;' ELSE 'On the older one, type: ALTER EXTENSION %I UPDATE;' END, x[1])"
		" FROM (SELECT regexp_match(line, '^(.*) (\\S+)$') FROM unnest(string_to_array($3, E'\\n')) line) AS t (x)"
		" LEFT JOIN pg_extension ON extname = x[1] WHERE extversion IS DISTINCT FROM x[2]"
	},
	{.name = "objects of other schemas",.function = check_needs},
	{
		.name = "extensions within the shard",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', format('extension \"%s\" is in schema \"%s\", and pg_dump of a schema leaves extensions out', extname, $2),"
		" format('Type: ALTER EXTENSION %I SET SCHEMA public;', extname)"
		" FROM pg_extension WHERE extnamespace " IN_SHARD
		" UNION ALL "
		"SELECT 'FAILED', format('table %s belongs to extension \"%s\", so pg_dump leaves it out', " NAME ", e.extname),"
		" format('Type: ALTER EXTENSION %I DROP TABLE %s;', e.extname, " NAME ")"
		" FROM " TABLES " JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'"
		" JOIN pg_extension e ON e.oid = d.refobjid"
		" WHERE n.nspname = $2 AND c.relkind IN ('r', 'p')"
	},
	{
		.name = "tablespaces on the target",.where = ON_TARGET,
		.other = "SELECT string_agg(DISTINCT spcname, E'\\n') FROM pg_class c JOIN pg_tablespace t ON t.oid = c.reltablespace WHERE relnamespace " IN_SHARD,
		.sql = "SELECT 'FAILED', format('tablespace \"%s\" is missing', name), format('Type: CREATE TABLESPACE %I LOCATION ''...'';', name)"
		" FROM unnest(string_to_array($3, E'\\n')) AS name WHERE name NOT IN (SELECT spcname FROM pg_tablespace)"
	},
	{
		.name = "event triggers on the target",.where = ON_TARGET,
		.sql = "SELECT 'warning', format('\"%s\" fires when the shard''s tables are made', evtname), format('If it should not, type: ALTER EVENT TRIGGER %I DISABLE; until the move is done.', evtname)"
		" FROM pg_event_trigger WHERE evtenabled IN ('O', 'A')"
	},
	{
		.name = "replica identity",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', format('table %s has none, so its UPDATEs and DELETEs would fail as soon as it is published', " NAME "),"
		" format('Type: ALTER TABLE %s %s', " NAME ", coalesce('REPLICA IDENTITY USING INDEX ' || quote_ident(u.relname) || ';',"
		"  'ADD PRIMARY KEY (...); or, if large numbers of rows are never updated at once, REPLICA IDENTITY FULL;'))"
		" FROM " TABLES
		" LEFT JOIN LATERAL (SELECT i.relname FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid"
		"  WHERE x.indrelid = c.oid AND x.indisunique AND x.indimmediate AND x.indisvalid AND x.indpred IS NULL AND x.indexprs IS NULL"
		"  AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = ANY (x.indkey) AND NOT a.attnotnull)"
		"  ORDER BY x.indnkeyatts, i.relname LIMIT 1) u ON true"
		" WHERE n.nspname = $2 AND c.relkind = 'r' AND c.relpersistence = 'p' AND c.relreplident <> 'f' AND NOT EXISTS ("
		"  SELECT FROM pg_index x WHERE x.indrelid = c.oid AND x.indimmediate AND x.indisvalid"
		"  AND CASE c.relreplident WHEN 'd' THEN x.indisprimary WHEN 'i' THEN x.indisreplident END)"
		" ORDER BY 2"
	},
	{
		.name = "unlogged tables",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', format('the rows of table %s would be lost: replication leaves them out', " NAME "), format('Type: ALTER TABLE %s SET LOGGED;', " NAME ")"
		" FROM " TABLES " WHERE n.nspname = $2 AND c.relkind = 'r' AND c.relpersistence = 'u' ORDER BY 2"
	},
	{
		.name = "partitions and inheritance",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', format('table %I.%I is a %s of %I.%I; they must be in one schema', cn.nspname, c.relname,"
		"  CASE WHEN c.relispartition THEN 'partition' ELSE 'child' END, pn.nspname, p.relname),"
		" format('Type: ALTER TABLE %I.%I SET SCHEMA %I; or ALTER TABLE %I.%I %s %I.%I;',"
		"  CASE WHEN cn.nspname = $2 THEN pn.nspname ELSE cn.nspname END, CASE WHEN cn.nspname = $2 THEN p.relname ELSE c.relname END, $2,"
		"  CASE WHEN c.relispartition THEN pn.nspname ELSE cn.nspname END, CASE WHEN c.relispartition THEN p.relname ELSE c.relname END,"
		"  CASE WHEN c.relispartition THEN 'DETACH PARTITION' ELSE 'NO INHERIT' END,"
		"  CASE WHEN c.relispartition THEN cn.nspname ELSE pn.nspname END, CASE WHEN c.relispartition THEN c.relname ELSE p.relname END)"
		" FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace cn ON cn.oid = c.relnamespace"
		" JOIN pg_class p ON p.oid = i.inhparent JOIN pg_namespace pn ON pn.oid = p.relnamespace"
		" WHERE c.relkind IN ('r', 'p', 'f') AND (cn.nspname = $2) <> (pn.nspname = $2) ORDER BY 2"
	},
	{
		.name = "foreign tables",.where = ON_SOURCE,
		.sql = "SELECT 'warning', format('%s: its rows stay on server \"%s\"', " NAME ", s.srvname), 'User mappings are not copied: create them on the target.'"
		" FROM " TABLES " JOIN pg_foreign_table f ON f.ftrelid = c.oid JOIN pg_foreign_server s ON s.oid = f.ftserver"
		" WHERE n.nspname = $2 ORDER BY 2"
	},
	{
		.name = "materialized views",.where = ON_SOURCE,
		.sql = "SELECT 'warning', format('%s will be empty on the target', " NAME "), format('After the move, type: REFRESH MATERIALIZED VIEW %s;', " NAME ")"
		" FROM " TABLES " WHERE n.nspname = $2 AND c.relkind = 'm' ORDER BY 2"
	},
	{
		.name = "foreign keys",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', format('%s leads from %s to %s, out of the shard or into it', quote_ident(conname), conrelid::regclass, confrelid::regclass),"
		" format('Type: ALTER TABLE %s DROP CONSTRAINT %I;', conrelid::regclass, conname)"
		" FROM pg_constraint k JOIN pg_class c ON c.oid = conrelid JOIN pg_class p ON p.oid = confrelid"
		" WHERE contype = 'f' AND conparentid = 0 AND (c.relnamespace " IN_SHARD ") <> (p.relnamespace " IN_SHARD ") ORDER BY 2"
	},
	{
		.name = "users in other schemas",.where = ON_SOURCE,
		.sql = "WITH inside AS ("
		" SELECT 'pg_class'::regclass AS refclassid, oid AS refobjid FROM pg_class WHERE relnamespace " IN_SHARD
		" UNION ALL SELECT 'pg_proc'::regclass, oid FROM pg_proc WHERE pronamespace " IN_SHARD
		" UNION ALL SELECT 'pg_type'::regclass, oid FROM pg_type WHERE typnamespace " IN_SHARD ")"
		" SELECT 'warning', format('%s uses %s', pg_describe_object(classid, objid, 0), min(pg_describe_object(refclassid, refobjid, 0))),"
		" 'After the move it would use the closed copy, and finish drops it with that. Drop or change it.'"
		" FROM pg_depend d JOIN inside USING (refclassid, refobjid) LEFT JOIN pg_class r ON d.classid = 'pg_class'::regclass AND r.oid = d.objid"
		" LEFT JOIN pg_attrdef a ON d.classid = 'pg_attrdef'::regclass AND a.oid = d.objid"
		" LEFT JOIN pg_rewrite w ON d.classid = 'pg_rewrite'::regclass AND w.oid = d.objid"
		" LEFT JOIN pg_trigger g ON d.classid = 'pg_trigger'::regclass AND g.oid = d.objid"
		" LEFT JOIN pg_policy l ON d.classid = 'pg_policy'::regclass AND l.oid = d.objid"
		" LEFT JOIN pg_constraint k ON d.classid = 'pg_constraint'::regclass AND k.oid = d.objid"
		" LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid"
		" LEFT JOIN pg_type t ON d.classid = 'pg_type'::regclass AND t.oid = d.objid"
		" LEFT JOIN pg_class c ON c.oid = coalesce(r.oid, a.adrelid, w.ev_class, g.tgrelid, l.polrelid)"
		" WHERE d.deptype IN ('n', 'a') AND coalesce(c.relnamespace, k.connamespace, p.pronamespace, t.typnamespace)"
		" NOT IN (SELECT oid FROM pg_namespace WHERE nspname IN ($2, 'pg_toast'))"
		" AND k.contype IS DISTINCT FROM 'f' AND g.tgisinternal IS NOT TRUE"
		" AND (r.oid IS NULL OR d.refclassid <> 'pg_class'::regclass)"
		" GROUP BY classid, objid ORDER BY 2"
	},
	{
		.name = "triggers that always fire",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', format('%I on %s would fire a second time, on the target, for each change that is replicated', tgname, " NAME "),"
		" format('Type: ALTER TABLE %s ENABLE TRIGGER %I; and set it back after the move.', " NAME ", tgname)"
		" FROM pg_trigger g JOIN pg_class c ON c.oid = tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
		" WHERE n.nspname = $2 AND NOT tgisinternal AND tgenabled IN ('A', 'R') ORDER BY 2"
	},
	{
		.name = "row security",.where = ON_TARGET,
		.other = "SELECT string_agg(" NAME ", ', ') FROM " TABLES " JOIN pg_roles o ON o.oid = c.relowner"
		" WHERE n.nspname = $2 AND c.relkind IN ('r', 'p') AND c.relrowsecurity AND c.relforcerowsecurity"
		" AND NOT o.rolsuper AND NOT o.rolbypassrls",
		.sql = "SELECT CASE WHEN current_setting('server_version_num')::int >= 160000 OR NOT rolsuper THEN 'FAILED' ELSE 'ok' END,"
		" 'forced even on the owner: ' || $3, 'For the time of the move, type: ALTER TABLE ... NO FORCE ROW LEVEL SECURITY;'"
		" FROM pg_roles WHERE rolname = current_user AND $3 IS NOT NULL"
		" AND (current_setting('server_version_num')::int >= 160000 OR NOT rolsuper)"
	},
	{
		.name = "large objects",.where = ON_SOURCE,
		.sql = "SELECT 'warning', format('column %I of table %s may name large objects, which are not replicated', attname, " NAME "),"
		" 'If it does, carry them over yourself, or store them as bytea.'"
		" FROM pg_attribute a JOIN pg_type t ON t.oid = atttypid JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
		" WHERE n.nspname = $2 AND c.relkind = 'r' AND attnum > 0 AND NOT attisdropped"
		" AND (atttypid = 'oid'::regtype OR typname = 'lo') ORDER BY 2"
	},
	{
		.name = "other subscriptions",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', format('%s is filled by replication from elsewhere, which would not follow', " NAME "), 'End that subscription first.'"
		" FROM pg_subscription_rel s JOIN pg_class c ON c.oid = srrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
		" WHERE n.nspname = $2 ORDER BY 2"
	},
	{
		.name = "other publications",.where = ON_SOURCE,
		.sql = "SELECT 'warning', format('subscribers of \"%s\" will hear no more of the shard once it has moved', pubname), 'Let them subscribe to the target as well.'"
		" FROM pg_publication p WHERE pubname <> $4 AND EXISTS ("
		"  SELECT FROM pg_publication_tables t WHERE t.pubname = p.pubname AND t.schemaname = $2) ORDER BY 2"
	},
	{
		.name = "encoding",.where = ON_TARGET,
		.other = "SELECT current_setting('server_encoding')",
		.sql = "SELECT CASE WHEN current_setting('server_encoding') = 'UTF8' THEN 'warning' ELSE 'FAILED' END,"
		" format('%s on the source, %s on the target', $3, current_setting('server_encoding')),"
		" CASE WHEN current_setting('server_encoding') = 'UTF8' THEN 'Texts are converted on the way; UTF8 has a place for all of them.'"
		" ELSE 'Move it to a database with the same encoding, or UTF8.' END"
		" WHERE current_setting('server_encoding') <> $3"
	},
	{
		.name = "collation",.where = ON_TARGET,.other = LOCALE,
		.sql = "SELECT 'warning', format('%s on the source; %s on the target', $3, here), 'Texts may sort differently there; partition bounds and CHECKs that compare texts may refuse rows.'"
		" FROM (" LOCALE ") AS t (here) WHERE here <> $3"
	},
	{.name = "wal_level on the source",.where = ON_SOURCE,.sql = wal_level},
	{.name = "replication slots on the source",.where = ON_SOURCE,.other = SYNC_WORKERS,.sql = free_slots},
	{.name = "walsenders on the source",.where = ON_SOURCE,.other = SYNC_WORKERS,.sql = free_senders},
	{
		.name = "replication origins on the target",.where = ON_TARGET,.other = COUNT_TABLES,
		.sql = "SELECT CASE WHEN free < least(wanted, 2) THEN 'FAILED' WHEN free < wanted THEN 'warning' ELSE 'ok' END,"
		" format('%s of %s = %s are free', free, s.name, s.setting),"
		" CASE WHEN free < wanted THEN format('Wanted are %s. Type: ALTER SYSTEM SET %s = %s; and restart that server.', wanted, s.name, s.setting::int + wanted - free) END"
		" FROM (SELECT name, setting FROM pg_settings WHERE name IN ('max_active_replication_origins', 'max_replication_slots') ORDER BY name LIMIT 1) s,"
		" LATERAL (SELECT s.setting::int - (SELECT count(*) FROM pg_replication_origin) AS free,"
		"  1 + least($3::int, current_setting('max_sync_workers_per_subscription')::int) AS wanted) t"
	},
	{
		.name = "replication workers on the target",.where = ON_TARGET,.other = COUNT_TABLES,
		.sql = "SELECT CASE WHEN free < least(wanted, 2) THEN 'FAILED' WHEN free < wanted THEN 'warning' ELSE 'ok' END,"
		" format('%s of max_logical_replication_workers = %s are free', free, current_setting('max_logical_replication_workers')),"
		" CASE WHEN free < wanted THEN format('Wanted are %s. Type: ALTER SYSTEM SET max_logical_replication_workers = %s; and restart that server.', wanted,"
		"  current_setting('max_logical_replication_workers')::int + wanted - free) END"
		" FROM (SELECT current_setting('max_logical_replication_workers')::int"
		"  - (SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'logical replication %' AND backend_type <> 'logical replication launcher') AS free,"
		"  1 + least($3::int, current_setting('max_sync_workers_per_subscription')::int) AS wanted) t"
	},
	{
		.name = "background workers on the target",.where = ON_TARGET,.other = COUNT_TABLES,
		.sql = "SELECT CASE WHEN free < least(wanted, 2) THEN 'FAILED' WHEN free < wanted THEN 'warning' ELSE 'ok' END,"
		" format('%s of max_worker_processes = %s are free', free, current_setting('max_worker_processes')),"
		" CASE WHEN free < wanted THEN format('Wanted are %s. Type: ALTER SYSTEM SET max_worker_processes = %s; and restart that server.', wanted,"
		"  current_setting('max_worker_processes')::int + wanted - free) END"
		" FROM (SELECT current_setting('max_worker_processes')::int - (SELECT count(*) FROM pg_stat_activity WHERE backend_type NOT IN ("
		"  'client backend', 'walsender', 'autovacuum launcher', 'autovacuum worker', 'background writer', 'checkpointer', 'walwriter',"
		"  'startup', 'walreceiver', 'archiver', 'logger', 'walsummarizer', 'slotsync worker', 'io worker', 'standalone backend')) AS free,"
		"  1 + least($3::int, current_setting('max_sync_workers_per_subscription')::int) AS wanted) t"
	},
	{
		.name = "copying workers on the target",.where = ON_TARGET,
		.sql = "SELECT 'FAILED', 'max_sync_workers_per_subscription is 0, so no table would ever be copied', 'Type: ALTER SYSTEM SET max_sync_workers_per_subscription = 2; SELECT pg_reload_conf();'"
		" WHERE current_setting('max_sync_workers_per_subscription')::int = 0"
	},
	{.name = "connection from the target to the source",.function = check_connection},
	{.name = "rights of that connection",.where = ON_SOURCE,.function = check_reader},
	{
		.name = "WAL kept by slots on the source",.where = ON_SOURCE,
		.sql = "SELECT 'warning', 'max_slot_wal_keep_size is -1, so a slot that nobody reads can fill the disk', 'Should snowid-move die, nothing else would stop it. Type: ALTER SYSTEM SET max_slot_wal_keep_size = ''50GB''; or what there is room for; SELECT pg_reload_conf();'"
		" WHERE current_setting('max_slot_wal_keep_size') = '-1'"
	},
	{
		.name = "replication settings",.where = ON_SOURCE,
		.sql = "SELECT 'warning', name || ' is ' || current_setting(name), CASE name"
		" WHEN 'wal_sender_timeout' THEN 'A lost connection would not be noticed. Type: ALTER SYSTEM RESET wal_sender_timeout; SELECT pg_reload_conf();'"
		" ELSE 'Large transactions go through files then, and are slow. Type: ALTER SYSTEM RESET logical_decoding_work_mem; SELECT pg_reload_conf();' END"
		" FROM pg_settings WHERE name = 'wal_sender_timeout' AND setting = '0'"
		" OR name = 'logical_decoding_work_mem' AND setting::int < 65536"
	},
	{.name = "disk room on the target",.function = check_room},
	{.name = "clocks",.function = check_clocks},
	{
		.name = "long transactions",.where = ON_SOURCE,
		.sql = "SELECT 'warning', format('process %s%s has had one open for %s', a.pid, ' of ' || usename, date_trunc('second', clock_timestamp() - xact_start)),"
		" format('The copy and the cut-over wait for its end. To end it, type: SELECT pg_terminate_backend(%s);', a.pid)"
		" FROM pg_stat_activity a"
		" WHERE a.pid <> pg_backend_pid() AND xact_start < clock_timestamp() - " LONG_TRANSACTION
		" AND (backend_xid IS NOT NULL OR EXISTS (SELECT FROM pg_locks l JOIN pg_class c ON c.oid = l.relation"
		"  WHERE l.pid = a.pid AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
		"  AND c.relnamespace " IN_SHARD " AND l.mode NOT IN ('AccessShareLock', 'RowShareLock'))) ORDER BY xact_start"
	},
	{
		.name = "prepared transactions",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', format('%L of database \"%s\" has been prepared for %s', gid, database, date_trunc('second', clock_timestamp() - prepared)),"
		" format('The copy cannot begin before its end. In that database, type: COMMIT PREPARED %L; or ROLLBACK PREPARED %L;', gid, gid)"
		" FROM pg_prepared_xacts WHERE prepared < clock_timestamp() - " LONG_TRANSACTION " ORDER BY prepared"
	},
	{.name = "registry",.function = check_registry},
	{.name = "standbys of the source",.function = check_lag,.where = ON_SOURCE},
	{.name = "standbys of the target",.function = check_lag,.where = ON_TARGET},
	{.name = "wal_level on the target",.where = ON_TARGET,.sql = wal_level,.only_reverse = true},
	{
		.name = "replication slots on the target",.where = ON_TARGET,.other = "SELECT 0",
		.sql = free_slots,.only_reverse = true
	},
	{
		.name = "walsenders on the target",.where = ON_TARGET,.other = "SELECT 0",
		.sql = free_senders,.only_reverse = true
	},
};

bool
run_prechecks(const Move *move)
{
	Severity	all = FOUND_OK;

	for (size_t i = 0; i < lengthof(checks); i++)
	{
		const Check *check = &checks[i];

		if (check->only_reverse && !move->options->reverse)
			continue;
		worst = FOUND_OK;
		printed = false;
		if (check->function != NULL)
			check->function(move, check);
		else
			run_query(move, check);
		if (!printed)
			found(check, FOUND_OK, NULL, NULL);
		all = Max(all, worst);
	}
	fflush(stdout);
	return all != FOUND_FAILED;
}
