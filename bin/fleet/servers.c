/*
 * The servers: asked all at once, each with a limit; added to the fleet, and taken out.
 */
#include "fleet.h"
#include "sql/fleet.inc"

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
		return refuse(false, text_of("As a superuser, type there: %s", rights),
					  "role %s may not change the fleet at the directory", PQuser(directory));
	return try_run(directory, "SET LOCAL lock_timeout = %d; SELECT pg_advisory_lock(" FLEET_LOCK ")", ANSWER_MS / 4) ||
		refuse(false, "Wait until it has ended.", "another snowid-fleet is at work: %s", query_text(directory, FLEET_HOLDER_SQL));
}

/*
 * Ask the servers, by name, and homes that only the registry has, what they have, with their inserts for a period, or
 * without.  A shard without a home lives where the directory is: NULL.  The answers are put together at the directory, in
 * the temporary table answer.  Those that gave none are told.
 */
void
ask_servers(const char *period)
{
	PGresult   *res = query(directory, "SELECT name, home, coalesce(name, home, 'the directory''s own server') FROM (SELECT name, home "
							"FROM snowid.servers UNION ALL (SELECT DISTINCT NULL, home FROM snowid.shard_registry r WHERE NOT EXISTS "
							"(SELECT FROM snowid.servers s WHERE s.home = r.home))) s ORDER BY name NULLS LAST, home");

	nservers = PQntuples(res);
	servers = pg_malloc0((nservers + 1) * sizeof(Server));
	for (int i = 0; i < nservers; i++)
	{
		servers[i].name = field(res, i, 0);
		servers[i].home = field(res, i, 1);
		servers[i].label = printable(PQgetvalue(res, i, 2));
		servers[i].conninfo = servers[i].home != NULL ? servers[i].home : options.registry;
	}
	PQclear(res);
	ask_all(servers, nservers, text_of(FLEET_FACTS_SQL, period == NULL ? "NULL" : here(period)),
			period == NULL ? 0 : query_int64(directory, "SELECT extract(epoch FROM %s::interval) * 1000", here(period)), directory);
	run(directory, "DROP TABLE IF EXISTS pg_temp.answer, pg_temp.address, pg_temp.known, pg_temp.told, pg_temp.lives, pg_temp.going; "
		"CREATE TEMP TABLE answer (n int, name text, home text, place text, facts jsonb, trouble text)");
	for (int i = 0; i < nservers; i++)
	{
		const Server *asked = &servers[servers[i].at];

		if (asked == &servers[i] && asked->answer == NULL && !stopping)
			report_warning("%s: %s", asked->label, asked->trouble);
		run(directory, "INSERT INTO answer VALUES (%d, %s, %s, %s, %s::jsonb, %s)", i, here(servers[i].name), here(servers[i].home),
			here(servers[i].place), here(asked->answer == NULL ? NULL : PQgetvalue(asked->answer, 0, 0)), here(asked->trouble));
	}
	run(directory, FLEET_TOLD_SQL, here(options.by));
}

static void
tell_unreached(PGconn *conn, const char *name, const char *home, const char *other)
{
	char	   *why = PQstatus(conn) != CONNECTION_OK ? printable(PQerrorMessage(conn))
	: why_unreachable(conn, "snowid_fleet_tries", here(home), ANSWER_MS / 2);

	if (why != NULL)
		printf("warning  %s does not reach %s: %s\n         There, as who runs PostgreSQL, this must work: "
			   "psql -d %s -c ''; a password belongs into that one's ~/.pgpass.\n", name, other, why, shell_word(printable(home)));
}

/* Look at a server that is to be added.  Each thing is told; true if nothing forbids it. */
static bool
may_be_added(Side *server, const char *name, const char *identity)
{
	char	   *facts = query_text(directory, FLEET_ADD_FACTS_SQL, here(identity), here(name), here(identity_of(directory)),
								   options.trust_owners ? "'t'" : "'f'");
	PGresult   *res = query(server->conn, FLEET_ADD_CHECKS_SQL, here(name), here(facts), here(registry_option()));
	bool		failed = *PQgetvalue(res, 0, 1) == 't';

	printf("%s", PQgetvalue(res, 0, 0));
	PQclear(res);
	for (int i = 0; i < nservers && !failed; i++)
	{
		PGconn	   *other;

		if (servers[i].at != i || servers[i].answer == NULL)
			continue;
		other = open_connection(servers[i].label, servers[i].conninfo);
		if (servers[i].home != NULL)
			tell_unreached(server->conn, name, servers[i].home, servers[i].label);
		tell_unreached(other, servers[i].label, server->conninfo, name);
		PQfinish(other);
	}
	return !failed;
}

/* Not with its slot: the server may reach the directory no more. */
static void
drop_subscription(PGconn *conn, const char *subscription, const char *and)
{
	run(conn, "BEGIN");
	if (query_bool(conn, "SELECT count(*) FROM pg_subscription WHERE subname = %s", here(subscription)))
		run(conn, "ALTER SUBSCRIPTION %s DISABLE; ALTER SUBSCRIPTION %s SET (slot_name = NONE); DROP SUBSCRIPTION %s",
			subscription, subscription, subscription);
	run(conn, "TRUNCATE snowid.servers, snowid.placements, snowid.poolers; %s; COMMIT", and);
}

/* It may still be read for a moment. */
static bool
drop_slot(const char *name, const char *slot, const char *what)
{
	int64		end = now_ms() + ANSWER_MS;

	while (!try_run(directory, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", here(slot)))
		if (wait_ms(100), now_ms() > end)
			return refuse(false, "End what reads it, and type the same command again.", "%s %s yet: %s", name, what, last_message);
	return true;
}

/* Does a server have all rows of the registry, and of the shared tables that have come? */
static bool
has_rows(PGconn *conn, const char *subscription)
{
	static const char registry[] = "(SELECT coalesce(jsonb_object_agg(k, home), '{}') FROM (SELECT shard::text, home FROM "
	"snowid.shard_registry UNION ALL SELECT name, home FROM snowid.servers) r (k))";
	char	   *tables = query_text(conn, "SELECT coalesce(jsonb_agg(srrelid::regclass), '[]') FROM pg_subscription_rel JOIN pg_subscription s "
									"ON s.oid = srsubid WHERE srsubstate = 'r' AND subname = %s", here(subscription));
	char	   *sums = query_text(directory, FLEET_SUMS_SQL, here(tables));

	return query_bool(conn, "SELECT %s @> %s", registry, here(query_text(directory, "SELECT %s", registry))) &&
		strcmp(query_text(conn, "%s", sums), query_text(directory, "%s", sums)) == 0;
}

/*
 * Does a server follow?  Its worker may first have to start; and as long as it goes on, which only it may know, or waits
 * for a lock, it may be far behind.
 */
static bool
follows(PGconn *conn, const char *name, const char *subscription)
{
	const char *of = here(subscription);
	int64		nfailures = query_int64(conn, FLEET_ERRORS_SQL, of);
	char	   *lsn = query_text(directory, "SELECT pg_current_wal_lsn()");
	char	   *seen = "";
	char	   *furthest = "0/0";
	bool		has_come = false;

	for (int64 begun = now_ms(), end = begun + ANSWER_MS / 2; now_ms() < end; wait_ms(100))
	{
		char	   *now = query_text(directory, "SELECT concat_ws(' ', confirmed_flush_lsn >= %s, confirmed_flush_lsn, write_lsn) "
									 "FROM pg_replication_slots LEFT JOIN pg_stat_replication ON pid = active_pid WHERE slot_name = %s", here(lsn), of);
		char	   *further = query_text(conn, "SELECT max(received_lsn) FROM pg_stat_subscription WHERE subname = %s AND received_lsn > %s",
										 of, here(furthest));

		if (now != NULL && *now == 't')
		{
			if (has_rows(conn, subscription))
				return true;
			has_come = true;
			lsn = query_text(directory, "SELECT pg_current_wal_lsn()");
		}
		else if (now != NULL && !has_come && query_int64(conn, FLEET_ERRORS_SQL, of) == nfailures &&
				 (strcmp(now, seen) != 0 || further != NULL ||
				  query_bool(conn, "SELECT count(*) FROM pg_stat_subscription JOIN pg_stat_activity USING (pid) "
							 "WHERE subname = %s AND wait_event_type = 'Lock'", of)))
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
	char	   *to_do;

	if (lacks == NULL)
		return true;
	to_do = query_text(directory, FLEET_READER_RIGHTS_SQL,
					   text_of("(SELECT usename FROM pg_replication_slots JOIN pg_stat_activity ON pid = active_pid WHERE slot_name = %s)",
							   here(subscription)));
	return refuse(false, to_do != NULL ? text_of("At the directory, as a superuser, type: %s And then the same command again.", to_do)
				  : text_of("For the reason, see the log of the server of %s; then type the same command again.", name),
				  "%s follows the directory, but does not get all of %s: %s errors so far", name, lacks,
				  query_text(conn, FLEET_ERRORS_SQL, here(subscription)));
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
	const char *of = here(subscription);
	Side		publisher = {.conn = directory,.label = "registry",.place = 0};

	publisher.conninfo = options.for_servers == NULL ? conninfo_of_connection(directory)
		: without_password("--directory-for-servers", options.for_servers);
	publisher.password = options.for_servers == NULL ? NULL : password_of(options.for_servers);
	run(conn, "CREATE OR REPLACE TRIGGER directory_is_right BEFORE INSERT OR DELETE ON snowid.shard_registry FOR EACH ROW "
		"EXECUTE FUNCTION snowid_internal.directory_is_right(%s)", here(home));
	run(conn, "ALTER TABLE snowid.shard_registry ENABLE REPLICA TRIGGER directory_is_right");
	if (query_bool(directory, "SELECT count(*) FROM pg_replication_slots "
				   "WHERE slot_name = %s AND wal_status <> 'lost' AND confirmed_flush_lsn <= pg_current_wal_lsn()", of) &&
		query_bool(conn, "SELECT count(*) FROM pg_subscription WHERE subname = %s AND subenabled", of))
	{
		if (!try_run(conn, "ALTER SUBSCRIPTION %s CONNECTION %s", subscription, literal_for_subscription(conn, &publisher)) ||
			!try_run(conn, "ALTER SUBSCRIPTION %s REFRESH PUBLICATION", subscription))
			return report_error("%s: %s", name, last_message), false;
		if (follows(conn, name, subscription))
			return has_all(conn, name, subscription);
		report_info("%s has not followed the directory for %d s: it begins anew", name, ANSWER_MS / 2000);
	}
	full = query_text(conn, FLEET_FULL_SQL, of);
	if (full != NULL)
		return refuse(false, text_of("If the directory has them all, type there: SET session_replication_role = replica; %s; "
									 "and the same command again.", full),
					  "%s does not follow the directory, and cannot begin anew while its copies of shared tables have rows", name);
	drop_subscription(conn, subscription, "");
	if (!drop_slot(name, subscription, "cannot begin anew"))
		return false;
	run(directory, "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", of);
	if (try_run(conn, "CREATE SUBSCRIPTION %s CONNECTION %s PUBLICATION shard_registry WITH (create_slot = false)",
				subscription, literal_for_subscription(conn, &publisher)))
		return has_all(conn, name, subscription);
	report_error("%s cannot subscribe to the directory: %s", name, last_message);
	run(directory, "SELECT pg_drop_replication_slot(%s)", of);
	report_hint("If it reaches the directory in another way than you do, say how: --directory-for-servers=CONNSTR.");
	return false;
}

/* Take a server into the fleet, or put right what is missing of that. */
int
command_add(const char *name, const char *home)
{
	Side		server = {.label = name,.place = 1};
	char	   *known = query_text(directory, "SELECT home FROM snowid.servers WHERE name = %s", here(name));
	Server		asked = {.label = name,.conninfo = home == NULL || *home == '\0' ? known : home};
	PGresult   *others;
	char	   *identity;
	char	   *doubt;

	if (strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != strlen(name) || name[0] < 'a' || strlen(name) > 30)
		return refuse(EXIT_USAGE, "Such as s4: letters, digits and _, at most 30.", "invalid name of a server: \"%s\"", name);
	if ((home = asked.conninfo) == NULL)
		refuse_usage("to add a server, its name and home are needed");
	if (password_of(home) != NULL)
		return refuse(EXIT_USAGE, "Type the same command without it, after it is in the password file of all who connect there: "
					  "yours, and that of each server.", "a home holds no password");
	home = without_password("HOME", home);
	ask_all(&asked, 1, "SELECT to_regclass('snowid.servers')", 0, directory);
	if (asked.answer == NULL)
		return report_error("%s: %s", name, asked.trouble), EXIT_USAGE;
	if (PQgetisnull(asked.answer, 0, 0))
		return refuse(EXIT_USAGE, "There, type: CREATE EXTENSION snowid;", "the database of %s does not have snowid", name);
	if (!open_side(&server, home, NULL, true) || !knows_version(server.conn))
		return EXIT_USAGE;
	if (option_of(home, "dbname") == NULL && option_of(home, "service") == NULL)
		return refuse(EXIT_USAGE, text_of("Type: snowid-fleet add %s %s %s", name,
										  shell_word(text_of("%s dbname=%s", home, PQdb(server.conn))), registry_option()), "the home names no database");
	identity = identity_of(server.conn);
	ask_servers(NULL);
	others = query(directory, FLEET_OTHER_SQL, here(name), here(home_of_connection(server.conn)), here(identity), here(home));
	if (PQntuples(others) > 0)
		return refuse(EXIT_USAGE, text_of("Type: snowid-fleet status %s%s", registry_option(), PQgetvalue(others, 0, 1)),
					  "%s", PQgetvalue(others, 0, 0));
	if (!may_be_added(&server, name, identity))
		return refuse(EXIT_FAILED, "Correct that, and type the same command again.", "%s is not added; nothing was changed", name);
	if (options.dry_run)
		return EXIT_DONE;

	/* First the directory: what it does not publish does not come. */
	doubt = query_text(directory, FLEET_PUBLISH_SQL);
	if (doubt != NULL && !try_run(directory, "%s", doubt))
		return refuse(EXIT_FAILED, text_of("As a superuser, type there: %s", doubt),
					  "the directory does not publish the registry: %s", last_message);
	if (strcmp(identity, identity_of(directory)) != 0 && !subscribe(&server, name, home))
		return EXIT_FAILED;
	run(directory, FLEET_ENTER_SQL, here(name), here(home), here(options.weight), here(options.note),
		here(query_text(server.conn, "SELECT coalesce(jsonb_agg(r), '[]') FROM snowid.shard_registry r "
						"WHERE snowid_internal.lives(r) = 'here'")));
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
	ask_servers(NULL);
	doubts = query(directory, FLEET_RETIRE_DOUBTS_SQL, here(name), here(registry_option()));
	if (PQntuples(doubts) > 0)
		return refuse(EXIT_FAILED, PQgetvalue(doubts, 0, 1), "%s cannot be retired: %s", name, PQgetvalue(doubts, 0, 0));
	if (options.dry_run)
		return EXIT_DONE;
	conn = open_connection(name, home);
	if (strcmp(identity_of(conn), identity_of(directory)) != 0)
		drop_subscription(conn, subscription, "DROP TRIGGER IF EXISTS directory_is_right ON snowid.shard_registry");
	PQfinish(conn);
	if (!drop_slot(name, subscription, "is not retired"))
		return EXIT_FAILED;
	run(directory, "DELETE FROM snowid.servers WHERE name = %s", here(name));
	report_info("%s is no more in the fleet", name);
	return EXIT_DONE;
}
