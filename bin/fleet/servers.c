/*
 * The servers: asked all at once, each with a limit; added to the fleet, and taken out.
 */
#include "fleet.h"
#include "sql/fleet.inc"

#include <unistd.h>

PGconn	   *directory;
Server	   *servers;
int			nservers;

const char *
registry_option(void)
{
	return text_of("--registry %s", shell_word(without_password("--registry", options.registry)));
}

/* One program at a time changes the fleet. */
bool
lock_fleet(bool makes_slots)
{
	char	   *rights = query_text(directory, FLEET_RIGHTS_SQL, makes_slots ? "'t'" : "'f'");

	if (rights == NULL && makes_slots)
		rights = query_text(directory, FLEET_READER_RIGHTS_SQL, "current_user");
	if (rights != NULL)
		return refuse(false, text_of("As a superuser, type there: %s", rights), "role %s may not change the fleet at the directory", PQuser(directory));
	if (!try_run(directory, "SET LOCAL lock_timeout = %d; SELECT pg_advisory_lock(" FLEET_LOCK ")", ANSWER_MS / 4))
		return refuse(false, "Wait until it has ended.", "another snowid-fleet is at work: %s", query_text(directory, "SELECT coalesce(string_agg(coalesce('process ' || pid || coalesce(' of ' || usename, ''), 'a prepared transaction, which pg_prepared_xacts has'), ', '), 'it has just ended') FROM pg_locks LEFT JOIN pg_stat_activity a USING (pid) WHERE locktype = 'advisory' AND granted AND (classid, objid) = (1397641047, 4294967293) AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"));
	return true;
}

/*
 * Ask the servers what they have, with their inserts for a period, or without; and put the answers together at the
 * directory.  Returns how many servers gave none, which are told.
 */
int
ask_servers(const char *period)
{
	PGresult   *res = query(directory, FLEET_SERVERS_SQL);
	int			nmissing = 0;

	nservers = PQntuples(res);
	servers = pg_malloc0((nservers + 1) * sizeof(Server));
	for (int i = 0; i < nservers; i++)
	{
		servers[i].name = field(res, i, 0);
		servers[i].home = field(res, i, 1);
		servers[i].conninfo = servers[i].home != NULL ? servers[i].home : options.registry;
		servers[i].label = printable(servers[i].name != NULL ? servers[i].name : servers[i].home != NULL ? servers[i].home : "the directory's own server");
	}
	PQclear(res);
	ask_all(servers, nservers, text_of(FLEET_FACTS_SQL, period == NULL ? "NULL" : literal(directory, period)),
			period == NULL ? 0 : (int) query_int64(directory, "SELECT extract(epoch FROM %s::interval) * 1000", literal(directory, period)), directory);
	run(directory, FLEET_ANSWER_SQL);
	for (int i = 0; i < nservers; i++)
	{
		const Server *asked = &servers[servers[i].at];

		if (asked == &servers[i] && asked->answer == NULL && !stopping)
		{
			report_warning("%s: %s", asked->label, asked->trouble);
			nmissing++;
		}
		run(directory, "INSERT INTO answer VALUES (%d, %s, %s, %s, %s::jsonb, %s)", i, literal(directory, servers[i].name), literal(directory, servers[i].home), literal(directory, servers[i].place),
			literal(directory, asked->answer == NULL ? NULL : PQgetvalue(asked->answer, 0, 0)), literal(directory, asked->trouble));
	}
	run(directory, FLEET_TOLD_SQL);
	return nmissing;
}

/* Look at a server that is to be added.  Each thing is told; true if nothing forbids it. */
static bool
may_be_added(Side *server, const char *name, const char *identity)
{
	PGresult   *res = query(server->conn, FLEET_ADD_CHECKS_SQL, literal(server->conn, name),
							literal(server->conn, query_text(directory, FLEET_ADD_FACTS_SQL, literal(directory, identity), literal(directory, name))), literal(server->conn, registry_option()));
	bool		failed = *PQgetvalue(res, 0, 1) == 't';
	static const char unreached[] = "warning  %s does not reach %s: %s\n         There, as who runs PostgreSQL, this must work: psql -d %s -c ''; a password belongs into that one's ~/.pgpass.\n";

	printf("%s", PQgetvalue(res, 0, 0));
	PQclear(res);
	for (int i = 0; i < nservers && !failed; i++)
	{
		PGconn	   *other = servers[servers[i].at].answer != NULL && servers[i].at == i ? open_connection(servers[i].label, servers[i].conninfo) : NULL;
		char	   *there = other != NULL && servers[i].home != NULL ? why_unreachable(server->conn, "snowid_fleet_tries", literal(server->conn, servers[i].home), ANSWER_MS / 2) : NULL;
		char	   *back = other == NULL ? NULL : PQstatus(other) == CONNECTION_OK ? why_unreachable(other, "snowid_fleet_tries", literal(other, server->conninfo), ANSWER_MS / 2) : printable(PQerrorMessage(other));

		if (there != NULL)
			printf(unreached, name, servers[i].label, there, shell_word(printable(servers[i].home)));
		if (back != NULL)
			printf(unreached, servers[i].label, name, back, shell_word(printable(server->conninfo)));
		PQfinish(other);
	}
	return !failed;
}

/* Not with its slot: the server may reach the directory no more. */
static void
drop_subscription(PGconn *conn, const char *subscription)
{
	if (query_bool(conn, "SELECT EXISTS (SELECT FROM pg_subscription WHERE subname = %s)", literal(conn, subscription)))
		run(conn, "ALTER SUBSCRIPTION %s DISABLE; ALTER SUBSCRIPTION %s SET (slot_name = NONE); DROP SUBSCRIPTION %s", subscription, subscription, subscription);
}

/* Does a server have all rows of the registry, and of the shared tables that have come? */
static bool
has_rows(PGconn *conn, const char *subscription)
{
	char	   *rows = query_text(directory, "SELECT coalesce(jsonb_object_agg(shard, home), '{}') FROM snowid.shard_registry");
	char	   *sums = query_text(directory, FLEET_SUMS_SQL, literal(directory, query_text(conn, "SELECT coalesce(jsonb_agg(srrelid::regclass), '[]') FROM pg_subscription_rel JOIN pg_subscription s ON s.oid = srsubid WHERE srsubstate = 'r' AND subname = %s", literal(conn, subscription))));

	return query_bool(conn, "SELECT (SELECT coalesce(jsonb_object_agg(shard, home), '{}') FROM snowid.shard_registry) @> %s", literal(conn, rows)) &&
		strcmp(query_text(conn, "%s", sums), query_text(directory, "%s", sums)) == 0;
}

/* Does a server follow?  Its worker may first have to start; and as long as it goes on, which only it may know, or waits for a lock, it may be far behind. */
static bool
follows(PGconn *conn, const char *name, const char *subscription)
{
	const char *failures = text_of(FLEET_ERRORS_SQL, literal(conn, subscription));
	int64		nfailures = query_int64(conn, "%s", failures);
	char	   *lsn = query_text(directory, "SELECT pg_current_wal_lsn()");
	char	   *seen = "";
	char	   *furthest = "0/0";
	bool		has_come = false;

	for (int64 begun = now_ms(), end = begun + ANSWER_MS / 2; now_ms() < end; wait_ms(100))
	{
		char	   *now = query_text(directory, "SELECT concat_ws(' ', confirmed_flush_lsn >= %s, confirmed_flush_lsn, write_lsn) FROM pg_replication_slots LEFT JOIN pg_stat_replication ON pid = active_pid WHERE slot_name = %s",
									 literal(directory, lsn), literal(directory, subscription));
		char	   *further = query_text(conn, "SELECT max(received_lsn) FROM pg_stat_subscription WHERE subname = %s AND received_lsn > %s", literal(conn, subscription), literal(conn, furthest));

		if (now != NULL && *now == 't')
		{
			if (has_rows(conn, subscription))
				return true;
			has_come = true;
			lsn = query_text(directory, "SELECT pg_current_wal_lsn()");
		}
		else if (now != NULL && !has_come && query_int64(conn, "%s", failures) == nfailures &&
				 (strcmp(now, seen) != 0 || further != NULL || query_bool(conn, "SELECT EXISTS (SELECT FROM pg_stat_subscription JOIN pg_stat_activity USING (pid) WHERE subname = %s AND wait_event_type = 'Lock')", literal(conn, subscription))))
		{
			end = now_ms() + ANSWER_MS / 2;
			if (now_ms() > begun + ANSWER_MS / 4)
				tell_now_and_then("waiting: %s follows the directory, and is behind", name);
		}
		seen = now != NULL ? now : "";
		furthest = further != NULL ? further : furthest;
	}
	return false;
}

/* Has all come that it is to have? */
static bool
has_all(PGconn *conn, const char *name, const char *subscription)
{
	char	   *lacks = tables_not_come(conn, subscription, ANSWER_MS / 2);
	char	   *to_do = lacks == NULL ? NULL : query_text(directory, FLEET_READER_RIGHTS_SQL, text_of("(SELECT usename FROM pg_replication_slots JOIN pg_stat_activity ON pid = active_pid WHERE slot_name = %s)", literal(directory, subscription)));

	return lacks == NULL || refuse(false, to_do != NULL ? text_of("At the directory, as a superuser, type: %s And then the same command again.", to_do) : text_of("For the reason, see the log of the server of %s; then type the same command again.", name),
								   "%s follows the directory, but does not get all of %s: %s errors so far", name, lacks, query_text(conn, FLEET_ERRORS_SQL, literal(conn, subscription)));
}

/*
 * Have a server subscribe to the directory.  What it has of its own stays, if the directory knows it; a
 * subscription that is dead is made anew.  Its slot comes first: on the directory's own server it would wait for itself.
 */
static bool
subscribe(Side *server, const char *name, const char *home)
{
	PGconn	   *conn = server->conn;
	char	   *subscription = text_of("snowid_registry_%s", name);
	char	   *full;
	Side		publisher = {.conn = directory,.label = "registry",.place = 0};

	publisher.conninfo = options.for_servers != NULL ? without_password("--directory-for-servers", options.for_servers) : conninfo_of_connection(directory);
	publisher.password = options.for_servers != NULL ? password_of(options.for_servers) : NULL;
	run(conn, "CREATE OR REPLACE TRIGGER directory_is_right BEFORE INSERT ON snowid.shard_registry FOR EACH ROW EXECUTE FUNCTION snowid_internal.directory_is_right(%s)", literal(conn, home));
	run(conn, "ALTER TABLE snowid.shard_registry ENABLE REPLICA TRIGGER directory_is_right");
	if (query_bool(directory, "SELECT EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = %s AND wal_status <> 'lost' AND confirmed_flush_lsn <= pg_current_wal_lsn())", literal(directory, subscription)) &&
		query_bool(conn, "SELECT EXISTS (SELECT FROM pg_subscription WHERE subname = %s AND subenabled)", literal(conn, subscription)))
	{
		if (!try_run(conn, "ALTER SUBSCRIPTION %s CONNECTION %s", subscription, literal_for_subscription(conn, &publisher)) ||
			!try_run(conn, "ALTER SUBSCRIPTION %s REFRESH PUBLICATION", subscription))
			return report_error("%s: %s", name, last_message), false;
		if (follows(conn, name, subscription))
			return has_all(conn, name, subscription);
		report_info("%s has not followed the directory for %d s: it begins anew", name, ANSWER_MS / 2000);
	}
	if ((full = query_text(conn, "SELECT string_agg('DELETE FROM ' || t, '; ') FROM jsonb_array_elements_text(%s) t WHERE query_to_xml('SELECT 1 FROM ' || t || ' LIMIT 1', false, false, '')::text ~ '<row'",
						   literal(conn, query_text(directory, "SELECT coalesce(jsonb_agg(format('%%I.%%I', schemaname, tablename)), '[]') FROM pg_publication_tables WHERE pubname = 'shard_registry' AND schemaname <> 'snowid'")))) != NULL)
		return refuse(false, text_of("If the directory has them all, type there: SET session_replication_role = replica; %s; and the same command again.", full), "%s does not follow the directory, and cannot begin anew while its copies of shared tables have rows", name);
	run(conn, "BEGIN");
	drop_subscription(conn, subscription);
	run(conn, "TRUNCATE snowid.servers, snowid.placements, snowid.poolers; COMMIT");
	for (int64 end = now_ms() + ANSWER_MS; !try_run(directory, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", literal(directory, subscription)); wait_ms(100))
		if (now_ms() > end)
			return refuse(false, "End what reads it, and type the same command again.", "%s cannot begin anew yet: %s", name, last_message);
	run(directory, "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", literal(directory, subscription));
	if (try_run(conn, "CREATE SUBSCRIPTION %s CONNECTION %s PUBLICATION shard_registry WITH (create_slot = false)", subscription, literal_for_subscription(conn, &publisher)))
		return has_all(conn, name, subscription);
	report_error("%s cannot subscribe to the directory: %s", name, last_message);
	run(directory, "SELECT pg_drop_replication_slot(%s)", literal(directory, subscription));
	report_hint("If it reaches the directory in another way than you do, say how: --directory-for-servers=CONNSTR.");
	return false;
}

/* A server that is to be added has let us in, and says nothing. */
static void
too_late(int unused)
{
	static const char text[] = "snowid-fleet: error: the server that is to be added gives no answer\n";

	_exit(write(STDERR_FILENO, text, strlen(text)) > 0 ? EXIT_USAGE : EXIT_FAILED);
}

/* Take a server into the fleet, or put right what is missing of that. */
int
command_add(const char *name, const char *home)
{
	Side		server = {.label = name,.place = 1};
	char	   *identity;
	char	   *text;

	if (strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(name) || name[0] < 'a' || strlen(name) > 30)
		return refuse(EXIT_USAGE, "Such as s4: letters, digits and _, at most 30.", "invalid name of a server: \"%s\"", name);
	if ((home == NULL || *home == '\0') && (home = query_text(directory, "SELECT home FROM snowid.servers WHERE name = %s", literal(directory, name))) == NULL)
		refuse_usage("to add a server, its name and home are needed");
	if (password_of(home) != NULL)
		return refuse(EXIT_USAGE, "Type the same command without it, after it is in the password file of all who connect there: yours, and that of each server.", "a home holds no password");
	home = without_password("HOME", home);
	signal(SIGALRM, too_late);
	alarm(2 * ANSWER_MS / 1000);
	if (!open_side(&server, home, NULL, true) || !knows_version(server.conn))
		return EXIT_USAGE;
	if (!query_bool(server.conn, "SELECT to_regclass('snowid.servers') IS NOT NULL"))
		return refuse(EXIT_USAGE, "There, type: CREATE EXTENSION snowid;", "the database of %s does not have snowid", name);
	identity = identity_of(server.conn);
	alarm(0);
	(void) ask_servers(NULL);
	if ((text = query_text(directory, FLEET_OTHER_SQL, literal(directory, name), literal(directory, home_of_connection(server.conn)), literal(directory, identity))) !=NULL)
		return refuse(EXIT_USAGE, text_of("Type: snowid-fleet status %s%s", registry_option(),
										  query_text(directory, FLEET_NEW_HOME_SQL, literal(directory, name), literal(directory, home), literal(directory, identity))), "%s", text);
	if (!may_be_added(&server, name, identity))
		return refuse(EXIT_FAILED, "Correct that, and type the same command again.", "%s is not added; nothing was changed", name);
	if (options.dry_run)
		return EXIT_DONE;

	/* First the directory: what it does not publish does not come. */
	if ((text = query_text(directory, "SELECT string_agg('snowid.' || t, ', ') FROM unnest(ARRAY['shard_registry', 'servers', 'placements', 'poolers']) t WHERE NOT EXISTS (SELECT FROM pg_publication_tables WHERE pubname = 'shard_registry' AND schemaname = 'snowid' AND tablename = t)")) !=NULL)
	{
		text = text_of("%s %s", query_bool(directory, "SELECT EXISTS (SELECT FROM pg_publication WHERE pubname = 'shard_registry')")
					   ? "ALTER PUBLICATION shard_registry ADD TABLE" : "CREATE PUBLICATION shard_registry FOR TABLE", text);

		if (!try_run(directory, "%s", text))
			return refuse(EXIT_FAILED, text_of("As a superuser, type there: %s;", text), "the directory does not publish the registry: %s", last_message);
	}
	if (strcmp(identity, identity_of(directory)) != 0 && !subscribe(&server, name, home))
		return EXIT_FAILED;
	run(directory, "BEGIN");
	run(directory, "INSERT INTO snowid.servers AS s (name, home, weight, note) VALUES (%s, %s, coalesce(%s::float8, 1), %s) ON CONFLICT (name) DO UPDATE SET home = excluded.home, weight = coalesce(%s::float8, s.weight), note = coalesce(excluded.note, s.note)",
		literal(directory, name), literal(directory, home), literal(directory, options.weight), literal(directory, options.note), literal(directory, options.weight));
	run(directory, "INSERT INTO snowid.shard_registry (shard, schema, sequence, epoch, pool, entry_options, home) SELECT shard, schema, sequence, epoch, pool, entry_options, %s FROM jsonb_populate_recordset(NULL::snowid.shard_registry, %s) r ON CONFLICT (shard) DO UPDATE SET home = excluded.home WHERE shard_registry.home IS NULL OR shard_registry.home IN (SELECT d.home FROM address d JOIN address e ON e.n = d.n JOIN answer a ON a.n = e.i WHERE a.name = %s AND a.home <> excluded.home)",
		literal(directory, home), literal(directory, query_text(server.conn, "SELECT coalesce(jsonb_agg(r), '[]') FROM snowid.shard_registry r WHERE snowid_internal.lives(r) = 'here'")), literal(directory, name));
	run(directory, "COMMIT");
	report_info("%s is in the fleet; to give it its share, type: snowid-fleet balance %s", name, registry_option());
	return EXIT_DONE;
}

/* Take a server that has nothing any more out of the fleet. */
int
command_retire(const char *name, const char *unused)
{
	char	   *home = home_of_server(directory, name);
	char	   *subscription = text_of("snowid_registry_%s", name);
	PGresult   *doubts;
	PGconn	   *conn;

	if (home == NULL)
		return EXIT_USAGE;
	(void) ask_servers(NULL);
	doubts = query(directory, FLEET_RETIRE_DOUBTS_SQL, literal(directory, name), literal(directory, registry_option()));
	if (PQntuples(doubts) > 0)
		return refuse(EXIT_FAILED, PQgetvalue(doubts, 0, 1), "%s cannot be retired: %s", name, PQgetvalue(doubts, 0, 0));
	if (options.dry_run)
		return EXIT_DONE;
	conn = open_connection(name, home);
	if (PQstatus(conn) != CONNECTION_OK || !query_bool(directory, "SELECT bool_or(e.facts IS NOT NULL) FROM answer a JOIN address d ON d.i = a.n JOIN answer e ON e.n = d.n WHERE a.name = %s", literal(directory, name)))
		return refuse(EXIT_FAILED, text_of("If it is lost for ever, type at the directory: DELETE FROM snowid.servers WHERE name = '%s'; SELECT pg_drop_replication_slot('%s');", name, subscription),
					  "%s gives no answer, so nobody knows what it has", name);
	if (strcmp(identity_of(conn), identity_of(directory)) != 0)
	{
		run(conn, "BEGIN");
		drop_subscription(conn, subscription);
		run(conn, "DROP TRIGGER IF EXISTS directory_is_right ON snowid.shard_registry; TRUNCATE snowid.servers, snowid.placements, snowid.poolers; COMMIT");
	}
	PQfinish(conn);
	for (int64 end = now_ms() + ANSWER_MS; !try_run(directory, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", literal(directory, subscription)); wait_ms(100))
		if (now_ms() > end)
			return refuse(EXIT_FAILED, "End what reads it, and type the same command again.", "%s is not yet retired: %s", name, last_message);
	run(directory, "DELETE FROM snowid.servers WHERE name = %s", literal(directory, name));
	report_info("%s is no more in the fleet", name);
	return EXIT_DONE;
}
