/*
 * The prechecks that are more than a query: other programs, the clocks, the
 * disk, other servers.
 */
#include "precheck.h"

#include <sys/statvfs.h>
#include <time.h>

/* Clocks further apart than this are worth a word, or forbid the move. */
#define CLOCKS_APART_US		INT64CONST(1000000)
#define CLOCKS_BROKEN_US	(INT64CONST(86400) * 1000000)
#define CLOCK_ROUNDS		7

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

void
check_versions(const Move *move, const Check *check)
{
	int			source = move->source.version / 10000;
	int			target = move->target.version / 10000;

	if (source < OLDEST_SERVER || target < OLDEST_SERVER)
		found_fmt(check, FOUND_FAILED, "Upgrade the older one.",
				  "the source is PostgreSQL %d, the target %d; both must be %d or later",
				  source, target, OLDEST_SERVER);
	else if (target < source)
		found_fmt(check, FOUND_WARNING,
				  "Definitions that it doesn't know will fail before any row is copied.",
				  "the target is PostgreSQL %d, older than the source, %d",
				  target, source);
	else
		found_fmt(check, FOUND_OK, "", "%d and %d", source, target);
}

void
check_pg_dump(const Move *move, const Check *check)
{
	int			source = move->source.version / 10000;
	char	   *pg_dump = find_pg_dump(move->options->bindir);
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

void
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
			  "The target would refuse to go on above ids of more than a day ahead. Set its clock"
			  " right.");
	else if (ahead < -(CLOCKS_APART_US + error))
		found(check, FOUND_WARNING, difference,
			  "Until it has caught up, ids there are ahead of it,"
			  " at most 1024 a millisecond. Set the clocks right.");
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
void
check_room(const Move *move, const Check *check)
{
	PGresult   *size;
	PGresult   *place;
	const char *host = PQhost(move->target.conn);
	struct statvfs room;

	size = ask(move, move->source.conn,
			   "SELECT s, pg_size_pretty(s) FROM ("
			   " SELECT coalesce(sum(pg_table_size(c.oid) + pg_indexes_size(c.oid)),"
			   " 0)::bigint AS s"
			   " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
			   " WHERE n.nspname = ANY ($2) AND c.relkind = 'r') AS t", NULL);
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
void
check_needs(const Move *move, const Check *check)
{
	PGresult   *needs;

	needs = ask_or_tell(move, check, move->source.conn,
						"WITH " OBJECTS_INSIDE ", outside AS ("
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
						" ORDER BY 4");
	for (int row = 0; needs != NULL && row < PQntuples(needs); row++)
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
 * Can this server reach the other one?  Creates the subscription, without slot
 * and copy, in a transaction that is rolled back.
 */
void
check_connection(const Move *move, const Check *check)
{
	const Side *side = check->where == ON_SOURCE ? &move->source : &move->target;
	const Side *other = side == &move->source ? &move->target : &move->source;
	PGconn	   *conn = side->conn;
	PGresult   *result;
	char	   *name = PQescapeIdentifier(conn, move->name, strlen(move->name));
	PQExpBufferData sql;

	initPQExpBuffer(&sql);
	appendPQExpBuffer(&sql, "CREATE SUBSCRIPTION %s CONNECTION %s PUBLICATION %s"
					  " WITH (create_slot = false, slot_name = NONE, enabled = false,"
					  " copy_data = false)",
					  name, literal_for_subscription(conn, other), name);
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
			  state != NULL && strcmp(state, "2F003") == 0 ?
			  text_of("A role that is no superuser must name a password, for which the %s asks: %s"
					  " 'CONNINFO password=...'. The subscription keeps it until the move is done.",
					  other->label,
					  side == &move->source ? "--target-for-source" : "--source-for-target") :
			  text_of("Look at listen_addresses and pg_hba.conf of the %s and at the"
					  " %s's password file, or say how the %s reaches it: %s CONNINFO.",
					  other->label, side->label, side->label,
					  side == &move->source ? "--target-for-source" : "--source-for-target"));
		pg_free(message);
	}
	PQclear(result);
	PQclear(PQexec(conn, "ROLLBACK"));
	PQfreemem(name);
	termPQExpBuffer(&sql);
}

/*
 * May the role of that connection read all rows?  Without SELECT the copy
 * fails; under row security it would leave rows out and say nothing.
 */
void
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
				 "SELECT 'FAILED', format('role %I may not read %I.%I', r.rolname, n.nspname,"
				 " c.relname),"
				 " format('Type: GRANT SELECT ON ALL TABLES IN SCHEMA %I TO %I; GRANT USAGE ON"
				 " SCHEMA %I TO %I;', n.nspname, r.rolname, n.nspname, r.rolname)"
				 " FROM pg_roles r, pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
				 " WHERE r.rolname = $3 AND n.nspname = ANY ($2) AND c.relkind = 'r'"
				 " AND NOT (has_schema_privilege(r.oid, n.oid, 'USAGE')"
				 " AND has_table_privilege(r.oid, c.oid, 'SELECT'))"
				 " UNION ALL "
				 "SELECT 'FAILED',"
				 " format('row security hides rows of %I.%I from role %I, so they would be lost',"
				 " n.nspname, c.relname, r.rolname),"
				 " format('As a superuser, type: ALTER ROLE %I BYPASSRLS;', r.rolname)"
				 " FROM pg_roles r, pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
				 " WHERE r.rolname = $3 AND n.nspname = ANY ($2) AND c.relkind = 'r'"
				 " AND c.relrowsecurity"
				 " AND NOT r.rolsuper AND NOT r.rolbypassrls"
				 " AND (c.relforcerowsecurity OR NOT pg_has_role(r.oid, c.relowner,"
				 " 'USAGE'))"
				 " UNION ALL "
				 "SELECT 'warning',"
				 " format('role %I may not end sessions of role %I, so an abort may have to wait for them',"
				 " current_user, r.rolname),"
				 " CASE WHEN r.rolsuper THEN 'Name a role that is no superuser: --source-for-target CONNINFO.'"
				 " ELSE format('As a superuser, type: GRANT %I TO %I;', r.rolname, current_user) END"
				 " FROM pg_roles r JOIN pg_roles c ON c.rolname = current_user"
				 " WHERE r.rolname = $3 AND NOT c.rolsuper AND (r.rolsuper OR"
				 " NOT (pg_has_role(r.oid, 'USAGE') OR pg_has_role('pg_signal_backend', 'USAGE')))", user);
	print_findings(check, move->source.conn, result);
	PQclear(result);
	PQconninfoFree(options);
}

/* The registry of all servers must be within reach, and know the shard. */
void
check_registry(const Move *move, const Check *check)
{
	const char *conninfo = move->options->registry;
	PGconn	   *conn;
	PGresult   *result;

	if (conninfo == NULL)
		return;
	conn = open_connection("registry", conninfo);
	if (PQstatus(conn) != CONNECTION_OK)
		found_error(check, conn, "Look at --registry.");
	else
	{
		result = ask(move, conn,
					 "SELECT 'warning', format('it does not have shard %s, schema \"%s\"',"
					 " s.shard, s.schema),"
					 " 'Tell it where the shard lives before it moves.'"
					 " FROM unnest($1, $2) AS s (shard, schema)"
					 " WHERE NOT EXISTS (SELECT FROM snowid.shard_registry r"
					 " WHERE r.shard = s.shard AND r.schema = s.schema)"
					 " UNION ALL "
					 "SELECT 'FAILED', format('role %I may not change it', current_user),"
					 " format('Type there: GRANT SELECT, UPDATE ON snowid.shard_registry TO %I;',"
					 " current_user)"
					 " WHERE NOT has_table_privilege('snowid.shard_registry', 'UPDATE')", NULL);
		print_findings(check, conn, result);
		PQclear(result);
	}
	PQfinish(conn);
}

/* Clients keep the home, so it must outlive a fail-over. */
void
check_home(const Move *move, const Check *check)
{
	const Side *target = &move->target;

	if (strchr(target->home, ',') == NULL &&
		query_bool(target->conn, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE replay_lsn IS NOT NULL"
				   " AND pid NOT IN (SELECT active_pid FROM pg_replication_slots WHERE slot_type = 'logical' AND active))"))
		found_fmt(check, FOUND_WARNING,
				  "If that is not a name that follows the primary, name all hosts: --to 'host=a,b target_session_attrs=read-write'.",
				  "clients will be told \"%s\", one host of a server that has standbys", target->home);
}

/*
 * A copy makes WAL faster than most other work, so a standby that is behind
 * already falls back further.
 */
void
check_lag(const Move *move, const Check *check)
{
	PGconn	   *conn = check->where == ON_SOURCE ? move->source.conn : move->target.conn;
	char		sql[512];
	PGresult   *result;

	snprintf(sql, sizeof(sql),
			 "SELECT 'warning', format('\"%%s\" is %%s behind', application_name,"
			 " pg_size_pretty(lag)),"
			 " 'Wait until it has caught up, or raise --max-lag.' FROM ("
			 " SELECT application_name, pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn) AS lag"
			 " FROM pg_stat_replication) t WHERE lag > " INT64_FORMAT,
			 move->options->max_lag);
	result = PQexec(conn, sql);
	print_findings(check, conn, result);
	PQclear(result);
}

/*
 * Owners whose functions would run as a superuser: where replication does not
 * apply rows as the owner of the table, it does so as the owner of the
 * subscription, with whatever CHECKs, index expressions, generated columns and
 * domains the shard has.
 */
static void
check_owners_on(const Move *move, const Check *check, const Side *side)
{
	PGresult   *owners;
	PGresult   *result;

	if (applies_as_owner(side))
		return;
	owners = ask_or_tell(move, check, move->source.conn,
						 "SELECT string_agg(DISTINCT owner::regrole::text, E'\\n') FROM ("
						 " SELECT relowner FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
						 "  WHERE nspname = ANY ($2)"
						 " UNION ALL SELECT proowner FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace"
						 "  WHERE nspname = ANY ($2)"
						 " UNION ALL SELECT typowner FROM pg_type t JOIN pg_namespace n ON n.oid = typnamespace"
						 "  WHERE nspname = ANY ($2)"
						 " UNION ALL SELECT nspowner FROM pg_namespace WHERE nspname = ANY ($2)) o (owner)");
	if (owners == NULL)
		return;
	result = ask(move, side->conn,
				 "SELECT 'FAILED', format('%s owns objects of the shard and is no superuser,"
				 " but replication to PostgreSQL %s would run its functions as one',"
				 "  name, current_setting('server_version_num')::int / 10000),"
				 " 'If you trust that role with the whole server, say so: --trust-owners.'"
				 " FROM unnest(string_to_array($3, E'\\n')) AS name"
				 " JOIN pg_roles r ON r.oid = to_regrole(name) WHERE NOT rolsuper ORDER BY name",
				 field(owners, 0, 0));
	print_findings(check, side->conn, result);
	PQclear(result);
	PQclear(owners);
}

/*
 * Expressions that PostgreSQL simplifies when it plans a query, or attaches a
 * partition.  Called with constants, an immutable function runs at that time,
 * as the role that we have.  (What a later index build, row or write runs is
 * run as the table's owner.)
 */
static void
check_planned(const Move *move, const Check *check)
{
	PGresult   *result;

	result = ask(move, move->source.conn,
				 "SELECT 'FAILED', format('%s calls %s, whose owner is no superuser, and could run it as"
				 " one when tables are compared or partitions attached',"
				 "  pg_describe_object(classid, objid, 0), code::regprocedure),"
				 " 'If you trust that role with both servers, say so: --trust-owners.'"
				 " FROM (SELECT d.classid, d.objid, coalesce(o.oprcode, d.refobjid) AS code"
				 "  FROM pg_depend d LEFT JOIN pg_operator o"
				 "   ON d.refclassid = 'pg_operator'::regclass AND o.oid = d.refobjid"
				 "  LEFT JOIN pg_class i ON d.classid = 'pg_class'::regclass AND i.oid = d.objid"
				 "  LEFT JOIN pg_constraint k ON d.classid = 'pg_constraint'::regclass AND k.oid = d.objid"
				 "  LEFT JOIN pg_class c ON c.oid = k.conrelid"
				 "  LEFT JOIN pg_statistic_ext s ON d.classid = 'pg_statistic_ext'::regclass AND s.oid = d.objid"
				 "  JOIN pg_namespace n ON n.oid = coalesce(i.relnamespace, k.connamespace, s.stxnamespace)"
				 "  WHERE n.nspname = ANY ($2) AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass)"
				 "  AND (i.relkind IN ('i', 'I') OR k.contype = 'c' AND (c.relispartition OR c.relkind = 'p')"
				 "   OR s.oid IS NOT NULL)) t"
				 " JOIN pg_proc p ON p.oid = code JOIN pg_roles r ON r.oid = p.proowner"
				 " WHERE NOT rolsuper ORDER BY 2", NULL);
	print_findings(check, move->source.conn, result);
	PQclear(result);
}

void
check_owners(const Move *move, const Check *check)
{
	if (move->options->trust_owners)
	{
		found(check, FOUND_OK, "trusted", "");
		return;
	}
	check_planned(move, check);
	check_owners_on(move, check, &move->target);
	if (move->options->reverse)
		check_owners_on(move, check, &move->source);
}

/* A journal with a row of the shard: a move that has not come to its end. */
void
check_earlier_move(const Move *move, const Check *check)
{
	for (int i = 0; i < move->nshards; i++)
	{
		Shard	   *shard = move->shards[i];
		const Journal *s = journal_of(shard, &move->source);
		const Journal *t = journal_of(shard, &move->target);
		bool		complete = s->exists && t->exists &&
		((strcmp(s->step, "moved") == 0 && strcmp(t->step, "open") == 0) ||
		 (strcmp(s->step, "open") == 0 && strcmp(t->step, "moved") == 0));

		if (complete)
			found_fmt(check, FOUND_FAILED, "Type: snowid-move finish",
					  "one of shard %d is complete, but not finished", shard->number);
		else if (s->exists || t->exists)
			found_fmt(check, FOUND_FAILED, "Type: snowid-move status",
					  "one of shard %d is under way", shard->number);
	}
}

/*
 * Closing takes some time for each table and sequence, while writers wait.  The
 * figures are twice those of a machine of two cores, in ms.
 */
void
check_closing_time(const Move *move, const Check *check)
{
	int			limit = move->options->pause_limit_ms;
	PGresult   *res = ask_or_tell(move, check, move->source.conn,
								  "SELECT tables, sequences, ceil(tables * 0.3 + sequences) AS ms FROM"
								  " (SELECT count(*) FILTER (WHERE relkind = 'r') AS tables,"
								  "  count(*) FILTER (WHERE relkind = 'S') AS sequences"
								  "  FROM " TABLES " WHERE n.nspname = ANY ($2) GROUP BY n.nspname) s"
								  " ORDER BY ms DESC LIMIT 1");

	for (int row = 0; res != NULL && row < PQntuples(res); row++)
	{
		int			ms = atoi(PQgetvalue(res, row, 2));

		if (ms > limit / 2)
			found_fmt(check, ms > limit * 9 / 10 ? FOUND_FAILED : FOUND_WARNING,
					  text_of("Writers wait for it. If they may, say so: --pause-limit=%d.", 3 * ms),
					  "%s tables and %s sequences take about %d ms to close, and --pause-limit is %d ms",
					  PQgetvalue(res, row, 0), PQgetvalue(res, row, 1), ms, limit);
	}
	PQclear(res);
}
