/*
 * Connections.
 *
 * Each is set up so that what it shows and does is the same whatever the
 * role's and the database's settings are.
 */
#include "connection.h"

/*
 * What changes how a definition or a value is written, or how it is read: alike in
 * each session of ours, and of pg_dump and pg_restore.  Theirs set for themselves
 * what concerns floats; a time zone and a DateStyle go through the environment.
 */
#define SETTINGS_OF_ALL \
	"('array_nulls', 'on'), ('backslash_quote', 'safe_encoding'), ('bytea_output', 'hex'), " \
	"('default_transaction_isolation', 'read committed'), ('default_transaction_read_only', 'off'), " \
	"('event_triggers', 'on'), ('exit_on_error', 'off'), ('gin_fuzzy_search_limit', '0'), " \
	"('idle_in_transaction_session_timeout', '0'), ('idle_session_timeout', '0'), " \
	"('ignore_checksum_failure', 'off'), ('intervalstyle', 'postgres'), ('lc_monetary', 'C'), ('lock_timeout', '0'), " \
	"('quote_all_identifiers', 'off'), ('session_replication_role', 'origin'), ('standard_conforming_strings', 'on'), " \
	"('statement_timeout', '0'), ('timezone_abbreviations', 'Default'), ('transaction_timeout', '0'), " \
	"('transform_null_equals', 'off'), ('xmlbinary', 'base64'), ('xmloption', 'content'), ('zero_damaged_pages', 'off')"

/*
 * The options that a program of PostgreSQL's needs, to have these settings in its
 * session; none is sent in vain, since poolers refuse them.  The locale of money
 * is none that somebody has left as it is, so it takes a column that has some.
 */
char *
options_for_programs(PGconn *conn)
{
	return query_text(conn, "SELECT coalesce(string_agg(format('-c %%s=%%s', v.name, replace(value, ' ', '\\ ')), ' '), '') "
					  "FROM (VALUES " SETTINGS_OF_ALL ") v (name, value) JOIN pg_settings s ON lower(s.name) = v.name "
					  "WHERE reset_val <> value AND (v.name <> 'lc_monetary' OR EXISTS ("
					  "SELECT FROM pg_attribute WHERE atttypid IN ('money'::regtype, 'money[]'::regtype)))");
}

bool		runs_others = false;

/*
 * Prepare a session; false if the connection breaks.  The search path comes first and alone, as PostgreSQL's
 * own programs do it.  Else a role that may create objects in a schema of the
 * path could put its own function or operator in the place of one that we name.
 * It is not sent at the connection's start, since poolers refuse that.
 *
 * Timeouts would hit at the wrong places, a query of ours could take minutes in place of milliseconds
 * as others would have theirs planned, and an asynchronous commit
 * could forget a step.  Keepalives free our locks if the network is gone.
 * An owner who puts a view in the place of his table, whose name we have
 * just read, does not have us run it: as in pg_dump, where minor releases
 * since August 2024 can tell.
 */
bool
set_up_session(PGconn *conn)
{
	if (try_run(conn, "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)") &&
		try_run(conn,
				"SELECT set_config(name, value, false) FROM (VALUES " SETTINGS_OF_ALL ", "
				"('client_encoding', 'UTF8'), ('client_min_messages', 'warning'), ('datestyle', 'ISO, MDY'), "
				"('timezone', 'UTC'), ('extra_float_digits', '3'), ('jit', 'off'), "
				"('row_security', 'off'), ('restrict_nonsystem_relation_kind', 'view, foreign-table'), "
				"('tcp_keepalives_idle', '10'), "
				"('tcp_keepalives_interval', '5'), ('tcp_keepalives_count', '3') "
				"UNION ALL SELECT name, boot_val FROM pg_settings WHERE %s AND name ~ '^(enable|geqo)|_(collapse_limit|cost)$'"
				") v (name, value) WHERE current_setting(name, true) <> value", runs_others ? "false" : "true") &&
		try_run(conn,
				"SELECT set_config('synchronous_commit', 'on', false) "
				"WHERE current_setting('synchronous_commit') IN ('off', 'local')"))
		return true;
	if (PQstatus(conn) == CONNECTION_OK)
		fail_with(conn);
	return false;
}

/*
 * Is snowid there, if it is, of the version that the program knows?  What they have agreed
 * on (functions, the journal) goes by version.  It is read from a comment, which runs nothing.
 */
bool
knows_version(PGconn *conn)
{
	char	   *version = query_text(conn, "SELECT substring(obj_description(p.oid, 'pg_proc') FROM '[0-9.]+$') FROM pg_proc p "
									 "WHERE proname = 'version' AND pronargs = 0 AND pronamespace = "
									 "(SELECT oid FROM pg_namespace WHERE nspname = 'snowid')");

	return version == NULL || strcmp(version, PROGRAM_VERSION) == 0 ||
		refuse(false, "Use the program of that version; or there, type: ALTER EXTENSION snowid UPDATE;",
			   "%s has snowid %s, and this is %s %s", label_of(conn), version, progname, PROGRAM_VERSION);
}

bool		waits_for_start = false;

PGconn *
connect_to(const char *label, const char *conninfo, const char *replication)
{
	/* A lost network is noticed in half a minute; conninfo may say otherwise. */
	const char *const keywords[] = {"keepalives_idle", "keepalives_interval", "keepalives_count",
	"tcp_user_timeout", "dbname", "fallback_application_name", "replication", NULL};
	const char *const values[] = {"10", "5", "3", "25000", conninfo, progname, replication, NULL};
	PGconn	   *conn = PQconnectdbParams(keywords, values, true);
	PGPing		ping = PQPING_REJECT;

	set_label(conn, label);

	/*
	 * Only PQping() can tell a server that is starting from other refusals.
	 * One that has just become ready is tried once more.
	 */
	for (int64 told = 0; waits_for_start && PQstatus(conn) != CONNECTION_OK && ping == PQPING_REJECT; PQreset(conn))
	{
		ping = PQping(conninfo);
		if (ping == PQPING_OK)
			continue;
		if (ping != PQPING_REJECT)
			break;
		if (told == 0 || now_ms() - told > TELL_MS)
		{
			report_info("%s: waiting: %s", label, PQerrorMessage(conn));
			told = now_ms();
		}
		wait_ms(200);
	}
	if (PQstatus(conn) == CONNECTION_OK)
		(void) set_up_session(conn);
	return conn;
}

/* Connect again after the server has ended the session. */
bool
reconnect(PGconn *conn)
{
	PQreset(conn);
	if (PQstatus(conn) == CONNECTION_OK && set_up_session(conn))
		return true;
	report_error("%s: %s", label_of(conn), PQerrorMessage(conn));
	return false;
}

/*
 * Can a server reach another one, as its subscription of that name does?  One is made, without slot and copy, in a
 * transaction that is rolled back.  NULL, or what is said.
 */
char *
why_unreachable(PGconn *conn, const char *name, const char *conninfo, int limit_ms)
{
	char	   *why = NULL;

	/* From 15 on, it warns that there is no such publication yet. */
	run(conn, "BEGIN; SET LOCAL client_min_messages = error; SET LOCAL statement_timeout = %d", limit_ms);
	if (!try_run(conn, "CREATE SUBSCRIPTION %s CONNECTION %s PUBLICATION %s WITH (create_slot = false, slot_name = NONE, enabled = false, copy_data = false)",
				 name, conninfo, name))
		why = printable(last_message);
	/* The caller may ask for the SQLSTATE. */
	PQclear(PQexec(conn, "ROLLBACK"));
	return why;
}

/* Connect from here on as the role of that connection, where nothing says as whom; NULL: as before. */
void
take_user_of(PGconn *conn)
{
	static char *own = NULL;
	static bool is_known = false;

	if (!is_known && getenv("PGUSER") != NULL)
		own = pg_strdup(getenv("PGUSER"));
	is_known = true;
	if (conn != NULL)
		setenv("PGUSER", PQuser(conn), 1);
	else if (own != NULL)
		setenv("PGUSER", own, 1);
	else
		unsetenv("PGUSER");
}

/*
 * Wait for the first copies of the tables of a subscription, for as long as they go on or wait for a lock.  NULL, or the
 * tables of which nothing has come for so long.
 */
char *
tables_not_come(PGconn *conn, const char *subscription, int limit_ms)
{
	const char *of = literal(conn, subscription);
	int64		furthest = -1;
	int			mark = mark_texts();
	char	   *lacks;

	for (int64 end = now_ms() + limit_ms; (lacks = query_text(conn, "SELECT string_agg(srrelid::regclass::text, ', ' ORDER BY srrelid::regclass::text) FROM pg_subscription_rel JOIN pg_subscription s ON s.oid = srsubid "
															  "WHERE srsubstate <> 'r' AND subname = %s", of)) != NULL && now_ms() < end; wait_ms(100))
	{
		/* One that fails again and again comes to where it was. */
		int64		now = query_int64(conn, "SELECT (SELECT count(*) FILTER (WHERE srsubstate = 'r') * 1e15 FROM pg_subscription_rel JOIN pg_subscription s ON s.oid = srsubid WHERE subname = %s)::int8 + "
									  "(SELECT coalesce(sum(tuples_processed), 0)::int8 FROM pg_stat_progress_copy JOIN pg_stat_subscription USING (pid) WHERE subname = %s)", of, of);

		if (now > furthest || query_bool(conn, "SELECT EXISTS (SELECT FROM pg_stat_subscription JOIN pg_stat_activity USING (pid) WHERE subname = %s AND wait_event_type = 'Lock')", of))
			end = now_ms() + limit_ms;
		furthest = Max(furthest, now);
		free_texts(mark);
	}
	return lacks;
}

static bool
open_or_tell(PGconn **conn, const char *label, const char *conninfo, bool needed)
{
	*conn = open_connection(label, conninfo);
	if (PQstatus(*conn) == CONNECTION_OK)
		return true;
	report(needed ? PG_LOG_ERROR : PG_LOG_WARNING, PG_LOG_PRIMARY, "%s: %s", label, PQerrorMessage(*conn));
	PQfinish(*conn);
	*conn = NULL;
	return false;
}

void
close_side(Side *side)
{
	PQfinish(side->conn);
	PQfinish(side->aux);
	side->conn = side->aux = NULL;
}

/* Of a primary; the control file has the old one until a checkpoint. */
char *
timeline_of(PGconn *conn)
{
	return query_text(conn, "SELECT CASE WHEN pg_is_in_recovery() THEN 'standby' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END");
}

/*
 * Connect to a server, twice, and find out what others are told about it.
 * Returns false after saying why it cannot be reached: an error if it is needed.
 *
 * The second connection is for what must not wait for the first, or must not be
 * in its transaction.
 */
bool
open_side(Side *side, const char *conninfo, const char *for_other_server, bool needed)
{
	if (!open_or_tell(&side->conn, side->label, conninfo, needed))
		return false;
	if (!open_or_tell(&side->aux, side->label, conninfo, needed))
	{
		close_side(side);
		return false;
	}
	side->version = PQserverVersion(side->conn);
	side->home = home_of_connection(side->conn);
	side->system = query_text(side->conn, "SELECT system_identifier FROM pg_control_system()");
	side->timeline = timeline_of(side->conn);
	side->conninfo = for_other_server != NULL
		? without_password(side->place == 0 ? "--source-for-target" : "--target-for-source",
						   for_other_server)
		: conninfo_of_connection(side->conn);
	side->password = for_other_server != NULL ? password_of(for_other_server) : NULL;
	return true;
}

/*
 * Is that a home of the server that we are connected to?  A server has as many
 * homes as one can name its hosts: these share a host, and the system says that
 * it is not by mistake.
 */
bool
is_home_of(const char *home, const char *system, const Side *side)
{
	if (strcmp(home, side->home) == 0)
		return true;
	return system != NULL && strcmp(system, side->system) == 0 &&
		query_bool(side->conn,
				   "SELECT EXISTS (SELECT FROM (VALUES (1, %s), (2, %s)) v (n, home), "
				   "LATERAL unnest(string_to_array(substring(home FROM 'host=(\\S+)'), ',')) WITH ORDINALITY h (host, i), "
				   "string_to_array(substring(home FROM 'port=(\\S+)'), ',') port "
				   "GROUP BY host, coalesce(port[i], port[1]), substring(home FROM 'dbname=(\\S+)') HAVING count(DISTINCT n) = 2)",
				   literal(side->conn, home), literal(side->conn, side->home));
}
