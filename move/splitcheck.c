/*
 * The checks before a split: everything that would make it fail, or go on
 * differently on the two servers afterwards, told before anything is touched.
 *
 * The target is a standby, so nothing can be written there, and what it shows of
 * the catalogs is the source's.  precheck.h says what a query returns.
 */
#include "precheck.h"

/* The shards that stay on the source: all that live there but the set. */
#define STAYING \
"(SELECT r.shard, r.schema FROM snowid.shard_registry r" \
" WHERE r.shard <> ALL ($1) AND snowid_internal.lives(r) = 'here')"

/* What a primary needs, and a standby may have otherwise without being noticed. */
#define SETTINGS \
"SELECT string_agg(name || '=' || setting, E'\\n' ORDER BY name) FROM pg_settings WHERE name IN" \
" ('wal_level', 'fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum', 'max_connections'," \
" 'max_wal_senders', 'max_replication_slots', 'max_worker_processes', 'max_prepared_transactions'," \
" 'max_locks_per_transaction', 'shared_preload_libraries', 'shared_buffers')"

/* Users of schemas elsewhere: they would be in the way of finish. */
#define IN_THE_WAY(schemas, server) \
"SELECT 'warning', format('%s uses %s', user_name, used)," \
" 'The two part. Drop it on the " server " before finish, or let it be dropped: finish --cascade.'" \
" FROM (" OUTSIDE_USERS(schemas) ") u"

/*
 * Who runs the target, and would make it a standby again once it is promoted.
 * All that is looked at goes away when the standby is taken out of its cluster.
 */
static const Check manager_check = {
	.name = "manager of the target",.where = ON_TARGET,
	.sql = "SELECT 'FAILED', format('%s runs it (%s)', manager, sign),"
	" 'Once it is promoted, that would make it a standby again, and its rows would be lost."
	" First take it out of its cluster: see doc/moving.md.' FROM ("
	"SELECT DISTINCT ON (manager) * FROM ("
	"SELECT 'Patroni', 'it was started with cluster_name, wal_level and max_locks_per_transaction'"
	" FROM pg_settings WHERE source = 'command line'"
	" AND name IN ('cluster_name', 'wal_level', 'max_locks_per_transaction') HAVING count(*) = 3"
	" UNION ALL "
	"SELECT initcap(split_part(application_name, ' ', 1)), format('its session is called \"%s\"', application_name)"
	" FROM pg_stat_activity WHERE application_name ~ '^(Patroni|repmgr)' AND application_name <> 'Patroni ctl'"
	" UNION ALL "
	"SELECT CASE left(slot_name, 6) WHEN 'pgauto' THEN 'pg_auto_failover' WHEN 'stolon' THEN 'Stolon' ELSE 'CloudNativePG' END,"
	"  format('it streams by slot \"%s\"', slot_name)"
	" FROM pg_stat_wal_receiver WHERE slot_name ~ '^(pgautofailover_standby_|stolon_|_cnpg_)'"
	" UNION ALL "
	"SELECT 'CloudNativePG', name FROM pg_settings"
	" WHERE name IN ('archive_command', 'restore_command') AND setting LIKE '/controller/manager%'"
	" UNION ALL "
	"SELECT 'a managed service', 'role ' || rolname FROM pg_roles"
	" WHERE rolname IN ('alloydbadmin', 'azuresu', 'cloud_admin', 'cloudsqladmin', 'rdsadmin')"
	") AS signs (manager, sign) ORDER BY manager, sign) one"
};

/* Asked again before what cannot be undone. */
bool
has_manager(const Move *set)
{
	if (run_check_silently(set, &manager_check) != FOUND_FAILED)
		return false;
	report_error("a fail-over manager runs the target; snowid-move plan says which");
	return true;
}

static const Check checks[] = {
	{.name = "versions of PostgreSQL",.probe = check_versions},
	{
		.name = "source is a primary",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', 'it is a standby', 'Give the connection of its primary.'"
		" WHERE pg_is_in_recovery()"
	},
	{
		.name = "target is a standby of the source",.where = ON_TARGET,
		.other = "SELECT system_identifier FROM pg_control_system()",
		.sql = "SELECT 'FAILED', 'it is another system', 'To another server, shards go with: snowid-move move'"
		" FROM pg_control_system() WHERE system_identifier::text <> $3"
		" UNION ALL "
		"SELECT 'FAILED', 'it is a primary', 'Give the connection of a streaming standby of the source.'"
		" WHERE NOT pg_is_in_recovery()"
	},
	{
		.name = "one database",.where = ON_TARGET,.other = "SELECT current_database()",
		.sql = "SELECT 'FAILED', format('database \"%s\" on the source, \"%s\" on the target', $3, current_database()),"
		" 'Give the same one in --from and --to.' WHERE current_database() <> $3"
	},
	{
		.name = "streaming",.where = ON_TARGET,
		.other = "SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int",
		.sql = "SELECT CASE WHEN status = 'streaming' AND received_tli = $3::int THEN 'ok' ELSE 'FAILED' END,"
		" CASE WHEN status IS NULL THEN 'no WAL receiver is at work'"
		"  ELSE format('the WAL receiver is %s, on timeline %s; the source is on %s', status, received_tli, $3) END,"
		" CASE WHEN status = 'streaming' AND received_tli = $3::int THEN ''"
		"  ELSE 'Let the target stream from the source: look at its primary_conninfo, and at its log.' END"
		" FROM (SELECT) one LEFT JOIN pg_stat_wal_receiver ON true"
	},
	{
		.name = "seen by the source",.where = ON_SOURCE,.other = STANDBY_NAME,
		.sql = "SELECT 'FAILED', format('no walsender of the source streams to \"%s\"', $3),"
		" 'Let the target stream from the source itself, and not from another standby.'"
		" WHERE $3 IS NOT NULL AND NOT EXISTS (SELECT FROM pg_stat_replication"
		" WHERE application_name = $3 AND state = 'streaming')"
	},
	{
		.name = "how far behind",.where = ON_TARGET,.other = "SELECT pg_current_wal_lsn()",
		.sql = "SELECT CASE WHEN behind < -16777216 OR behind > 1073741824 THEN 'FAILED' ELSE 'ok' END,"
		" CASE WHEN behind < -16777216 THEN format('it is ahead of the source by %s', pg_size_pretty(-behind))"
		"  ELSE pg_size_pretty(greatest(behind, 0)) END,"
		" CASE WHEN behind < -16777216 THEN 'It has what the source has lost: it is no standby of it.'"
		"  WHEN behind > 1073741824 THEN 'Wait until it has caught up.' END"
		" FROM (SELECT pg_wal_lsn_diff($3::pg_lsn, pg_last_wal_replay_lsn())) t (behind)"
	},
	{
		.name = "settings of the standby",.where = ON_TARGET,
		.sql = "SELECT 'FAILED', 'replay is paused', 'Type there: SELECT pg_wal_replay_resume();'"
		" FROM (SELECT) one WHERE CASE WHEN pg_is_in_recovery() THEN pg_is_wal_replay_paused() END"
		" UNION ALL "
		"SELECT 'FAILED', format('%s is %s', name, setting),"
		" format('Type there: ALTER SYSTEM RESET %s; SELECT pg_reload_conf();', name)"
		" FROM pg_settings WHERE name = 'recovery_min_apply_delay' AND setting <> '0'"
		" UNION ALL "
		"SELECT 'FAILED', format('%s is set', name),"
		" 'It would not be promoted when asked to. Remove it, and restart that server.'"
		" FROM pg_settings WHERE name IN ('recovery_target', 'recovery_target_lsn', 'recovery_target_name',"
		" 'recovery_target_time', 'recovery_target_xid') AND setting <> ''"
		" UNION ALL "
		"SELECT 'FAILED', 'synchronous_standby_names is ' || setting,"
		" 'Its commits would wait for standbys that it has not. Type there: ALTER SYSTEM SET"
		" synchronous_standby_names = ''''; SELECT pg_reload_conf();'"
		" FROM pg_settings WHERE name = 'synchronous_standby_names' AND setting <> ''"
		" UNION ALL "
		"SELECT 'FAILED', 'default_transaction_read_only is on',"
		" 'The split sets that itself, and resets it. Take it out of the configuration there.'"
		" FROM pg_settings WHERE name = 'default_transaction_read_only' AND reset_val = 'on'"
		" AND NOT EXISTS (SELECT FROM snowid.moves WHERE details ? 'split')"
		" UNION ALL "
		"SELECT 'FAILED', 'allow_alter_system is off', 'Switch it on there until the split is done.'"
		" FROM pg_settings WHERE name = 'allow_alter_system' AND setting = 'off'"
		" UNION ALL "
		"SELECT 'warning', 'archive_mode is ' || setting,"
		" 'Once it is promoted, it archives a timeline of its own. Give it an archive of its own.'"
		" FROM pg_settings WHERE name = 'archive_mode' AND setting <> 'off'"
	},
	{
		.name = "settings of sessions",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', format('%s sets default_transaction_read_only',"
		" concat_ws(' in ', 'role ' || rolname, 'database ' || datname)),"
		" 'Its sessions could write on the target before the shards that stay are closed there. Reset it, by ALTER ROLE or"
		" ALTER DATABASE, until the split is done.'"
		" FROM pg_db_role_setting LEFT JOIN pg_roles r ON r.oid = setrole LEFT JOIN pg_database d ON d.oid = setdatabase"
		" WHERE EXISTS (SELECT FROM unnest(setconfig) c WHERE c LIKE 'default\\_transaction\\_read\\_only=%')"
	},
	{
		.name = "settings of both",.where = ON_TARGET,.other = SETTINGS,
		.sql = "SELECT 'warning', format('%s is %s on the source, %s on the target', split_part(line, '=', 1),"
		"  substr(line, strpos(line, '=') + 1), current_setting(split_part(line, '=', 1))),"
		" 'The target is about to be a primary. Make them equal, if that is not on purpose.'"
		" FROM unnest(string_to_array($3, E'\\n')) line WHERE line NOT IN (SELECT unnest(string_to_array((" SETTINGS "), E'\\n')))"
	},
	{
		.name = "collation",.where = ON_TARGET,
		.sql = "SELECT 'warning', format('version %s made the indexes, %s is there', datcollversion,"
		" pg_database_collation_actual_version(oid)), 'Once it is promoted, type there: REINDEX DATABASE.'"
		" FROM pg_database WHERE datname = current_database()"
		" AND datcollversion <> pg_database_collation_actual_version(oid)"
	},
	{
		.name = "extension snowid",.where = ON_TARGET,
		.sql = "SELECT 'FAILED', format('version %s is not installed there', extversion),"
		" 'Install the same version as on the source.'"
		" FROM pg_extension WHERE extname = 'snowid' AND extversion NOT IN"
		" (SELECT version FROM pg_available_extension_versions WHERE name = 'snowid')"
		/* Loads the library; the portable edition has none. */
		" UNION ALL SELECT 'FAILED', 'it does not work there', '' WHERE snowid.id_shard(0::bigint) <> 0"
	},
	{
		.name = "rights on the source",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', format('role %I does not own all of schema %I', current_user, nspname),"
		" format('Type: GRANT %I TO %I;', owner, current_user)"
		" FROM (SELECT DISTINCT n.nspname, o.rolname AS owner FROM " TABLES
		"  JOIN pg_roles o ON o.oid = c.relowner"
		"  WHERE n.nspname IN (SELECT schema FROM " STAYING " t UNION ALL SELECT unnest($2))"
		"  AND c.relkind IN ('r', 'p', 'S') AND NOT pg_has_role(c.relowner, 'USAGE')) t"
		" UNION ALL "
		"SELECT 'FAILED', format('role %I may not see what other sessions do', current_user),"
		" format('As a superuser, type: GRANT pg_read_all_stats TO %I;', current_user)"
		" WHERE NOT pg_has_role('pg_read_all_stats', 'USAGE')"
		" UNION ALL "
		"SELECT 'FAILED', format('role %I may not write %s', current_user, name),"
		" format('Type: GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %I;', name, current_user)"
		" FROM (VALUES ('snowid.moves'), ('snowid.shard_registry')) AS t (name) WHERE NOT ("
		" SELECT bool_and(has_table_privilege(name, p)) FROM unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) p)"
		" UNION ALL "
		"SELECT 'FAILED', format('role %I may not drop the standby''s slot', current_user),"
		" format('As a superuser, type: ALTER ROLE %I REPLICATION;', current_user)"
		" FROM pg_roles WHERE rolname = current_user AND NOT rolsuper AND NOT rolreplication"
	},
	{
		.name = "rights on the target",.where = ON_TARGET,
		.sql = "SELECT 'FAILED', format('role %I may not call %s', current_user, f),"
		" format('As a superuser, type on the source: GRANT EXECUTE ON FUNCTION %s TO %I;', f, current_user)"
		" FROM unnest('{\"pg_promote(boolean,integer)\",pg_reload_conf()}'::text[]) f"
		" WHERE NOT has_function_privilege(f, 'EXECUTE')"
		" UNION ALL "
		"SELECT 'FAILED', format('role %I may not change default_transaction_read_only', current_user),"
		" format('As a superuser, type on the source: GRANT ALTER SYSTEM ON PARAMETER default_transaction_read_only TO %I;', current_user)"
		" WHERE NOT has_parameter_privilege('default_transaction_read_only', 'ALTER SYSTEM')"
	},
	{
		.name = "synchronous replication",.where = ON_SOURCE,.other = STANDBY_NAME,
		.sql = "SELECT CASE sync_state WHEN 'potential' THEN 'warning' ELSE 'FAILED' END,"
		" format('the target is a %s standby of the source', CASE sync_state WHEN 'potential' THEN 'potential synchronous' ELSE 'synchronous' END),"
		" 'Commits on the source would wait for it for ever. Take it out of synchronous_standby_names there, and type: SELECT pg_reload_conf();'"
		" FROM pg_stat_replication WHERE application_name = $3 AND sync_state <> 'async'"
	},
	{
		.name = "slots of the source",.where = ON_SOURCE,
		.other = "SELECT slot_name FROM pg_stat_wal_receiver",
		.sql = "SELECT 'ok', format('\"%s\", of the target, keeps %s of log, and will be dropped', slot_name,"
		" pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn))), ''"
		" FROM pg_replication_slots WHERE slot_name = $3"
		" UNION ALL "
		"SELECT 'warning', format('who reads slot \"%s\" (%s) will hear no more of the set', slot_name, plugin),"
		" 'Once the set lives on the target, make a slot there, too; see doc/moving.md.'"
		" FROM pg_replication_slots WHERE slot_type = 'logical' AND NOT temporary"
	},
	{
		.name = "disk room",.where = ON_SOURCE,
		.other = "SELECT slot_name FROM pg_stat_wal_receiver",
		.sql = "SELECT 'warning', format('nobody reads slot \"%s\", which keeps %s of log', slot_name,"
		" pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn))),"
		" format('Look on both machines how much is free: df. If nothing will read it, type: SELECT pg_drop_replication_slot(%L);', slot_name)"
		" FROM pg_replication_slots WHERE NOT active AND restart_lsn IS NOT NULL AND slot_name IS DISTINCT FROM $3"
		" UNION ALL "
		"SELECT 'ok', format('nothing is copied; each server keeps up to %s of log, and what slots need', current_setting('max_wal_size')), ''"
	},
	{
		.name = "slots of the target",.where = ON_TARGET,
		.sql = "SELECT 'warning', format('slot \"%s\" keeps log there, also once it is a primary', slot_name),"
		" format('If nothing reads it, type there: SELECT pg_drop_replication_slot(%L);', slot_name)"
		" FROM pg_replication_slots WHERE NOT active"
	},
	{
		.name = "subscriptions",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', format('subscription \"%s\" of database \"%s\" is enabled', subname, datname),"
		" format('Both servers would read its slot. In that database, type: ALTER SUBSCRIPTION %I DISABLE; and"
		" enable it on one of them after the split.', subname)"
		" FROM pg_subscription s JOIN pg_database d ON d.oid = s.subdbid WHERE subenabled"
	},
	{
		.name = "other standbys",.where = ON_SOURCE,.other = STANDBY_NAME,
		.sql = "SELECT 'ok', format('\"%s\" goes on to follow the source', application_name), ''"
		" FROM pg_stat_replication WHERE application_name <> $3"
		" AND pid NOT IN (SELECT active_pid FROM pg_replication_slots WHERE slot_type = 'logical' AND active)"
	},
	{
		.name = "standbys of the target",.where = ON_TARGET,
		.sql = "SELECT 'ok', format('\"%s\" goes on to follow the target', application_name), '' FROM pg_stat_replication"
	},
	{
		.name = "unlogged tables",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', format('%s %s is unlogged, and would be empty on the target',"
		" CASE c.relkind WHEN 'S' THEN 'sequence' ELSE 'table' END, " NAME "),"
		" format('Type: ALTER %s %s SET LOGGED;', CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, " NAME ")"
		" FROM " TABLES " WHERE n.nspname = ANY ($2) AND c.relkind IN ('r', 'S')"
		" AND c.relpersistence = 'u' ORDER BY 2"
	},
	{
		.name = "prepared transactions",.where = ON_SOURCE,
		.sql = "SELECT CASE WHEN holds THEN 'FAILED' ELSE 'warning' END,"
		" format('%L of database \"%s\" has been prepared for %s', gid, database, date_trunc('second', clock_timestamp() - prepared)),"
		" CASE WHEN holds THEN format('It holds locks in the set. Type: COMMIT PREPARED %L; or ROLLBACK PREPARED %L;', gid, gid)"
		"  ELSE 'The target would have a copy of it: end it before the split; where it holds a shard that stays, the split rolls the copy back.' END"
		" FROM (SELECT *, EXISTS (SELECT FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace"
		"  JOIN pg_locks t ON t.virtualtransaction = l.virtualtransaction AND t.pid IS NULL AND t.locktype = 'transactionid'"
		"  WHERE l.pid IS NULL AND t.transactionid = x.transaction AND n.nspname = ANY ($2)"
		"  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS holds"
		"  FROM pg_prepared_xacts x) t ORDER BY prepared"
	},
	{
		.name = "other moves",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', format('shard %s is in a move, or closed by hand', string_agg(shard::text, ', ' ORDER BY shard)),"
		" 'The target would have a copy of that move. Finish or abort it first.'"
		" FROM snowid.moves WHERE NOT (details ? 'split' AND shard = ANY ($1)) HAVING count(*) > 0"
	},
	{
		.name = "users in other schemas",.where = ON_SOURCE,
		.sql = IN_THE_WAY("$2", "source") " UNION ALL "
		IN_THE_WAY("coalesce((SELECT array_agg(schema) FROM " STAYING " r), '{}')", "target")
	},
	{
		.name = "other databases",.where = ON_SOURCE,
		.sql = "SELECT 'warning', format('%s is on both servers afterwards, and goes its own way on each', string_agg(quote_ident(datname), ', ')),"
		" 'Nothing closes it on the target. Let its clients stay with one server, and drop it on the other.'"
		" FROM pg_database WHERE NOT datistemplate AND datname NOT IN (current_database(), 'postgres') HAVING count(*) > 0"
	},
	{
		.name = "ids outside of shards",.where = ON_TARGET,
		.other = "SELECT CASE WHEN has_sequence_privilege('snowid.id_seq', 'SELECT')"
		" THEN (snowid_internal.sequence_value('snowid.id_seq', now())).called ELSE number <> '' END || ' ' || number"
		" FROM coalesce(nullif(current_setting('snowid.shard', true), '-1'), '') number",
		.sql = "SELECT 'FAILED', 'snowid.id_seq makes ids, and the target would make the same',"
		" 'The target needs a number of its own, in its postgresql.conf: snowid.shard = ...; and the source the same way, not by ALTER DATABASE.'"
		" WHERE $3 = 'true ' || coalesce(nullif(current_setting('snowid.shard', true), '-1'), '')"
	},
	{
		.name = "tables outside of shards",.where = ON_SOURCE,
		.sql = "SELECT 'warning', format('%s table%s, as %s, on both servers afterwards', count(*), CASE WHEN count(*) > 1 THEN 's' END, min(" NAME ")),"
		" 'Nothing closes them on the target. What is written there or here is on that server alone, and sequences give the same numbers on both.'"
		" FROM " TABLES " WHERE c.relkind IN ('r', 'p') AND NOT relispartition"
		" AND nspname NOT IN ('pg_catalog', 'information_schema', 'snowid', 'snowid_internal')"
		" AND nspname !~ '^pg_(toast|temp)' AND nspname NOT IN (SELECT schema FROM snowid.shard_registry) HAVING count(*) > 0"
	},
	{
		.name = "locks",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', format('closing the set takes %s locks in one transaction, and there is room for %s', wanted, room),"
		" format('Type on both servers: ALTER SYSTEM SET max_locks_per_transaction = %s; and restart them, the target first.',"
		"  ceil(1.1 * wanted * each / room))"
		" FROM (SELECT (SELECT count(*) FROM " TABLES " WHERE n.nspname = ANY ($2) AND c.relkind IN ('r', 'p', 'S')) AS wanted, each,"
		"  each * (current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int) AS room"
		"  FROM CAST(current_setting('max_locks_per_transaction') AS int) each) t WHERE wanted > room"
	},
	{.name = "clocks",.probe = check_clocks},
	{.name = "registry",.probe = check_registry},
	{.name = "home of the target",.probe = check_home},
};

/* Run all, and print each with its result; false if one has failed. */
bool
run_split_checks(const Move *move)
{
	bool		all_passed = run_check(move, &manager_check) != FOUND_FAILED;

	for (size_t i = 0; i < lengthof(checks); i++)
		if (run_check(move, &checks[i]) == FOUND_FAILED)
			all_passed = false;
	fflush(stdout);
	return all_passed;
}
