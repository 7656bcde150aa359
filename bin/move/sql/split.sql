-- The checks before a split, in their order: everything that would make it fail,
-- or go on differently on the two servers afterwards, told before anything is
-- touched.  plan.sql says what a query returns, and how psql runs it.
--
-- The target is a standby, so nothing can be written there, and what it shows of
-- the catalogs is the source's.
\ir common.sql

-- The shards that stay on the source: all that live there but the set.
SELECT $$
(SELECT r.shard, r.schema FROM snowid.shard_registry r
 WHERE r.shard <> ALL (:'shards') AND snowid_internal.lives(r) = 'here')
$$ AS staying \gset
SELECT $$
SELECT schema FROM :staying t
$$ AS schemas_staying \gset
SELECT $$
IN (SELECT oid FROM pg_namespace WHERE nspname IN (SELECT schema FROM :staying t UNION ALL SELECT unnest(:'schemas'::text[])))
$$ AS owned_in \gset

-- Who runs the target, and would make it a standby again once it is promoted.  All
-- that is looked at goes away when the standby is taken out of its cluster.  Asked
-- again, as the first, before what cannot be undone.
\echo manager of the target
\c :target
SELECT 'FAILED', format('%s runs it (%s)', manager, sign),
 'Once it is promoted, that would make it a standby again, and its rows would be lost.'
 ' First take it out of its cluster: see doc/splitting.md.'
FROM (SELECT DISTINCT ON (manager) * FROM (
 SELECT 'Patroni', 'it was started with cluster_name, wal_level and max_locks_per_transaction'
 FROM pg_settings WHERE source = 'command line'
 AND name IN ('cluster_name', 'wal_level', 'max_locks_per_transaction') HAVING count(*) = 3
 UNION ALL
 -- A query of its own, as rights to functions are asked for before any CASE.
 SELECT 'Patroni', 'patroni.dynamic.json is in its data directory'
 WHERE CASE WHEN has_function_privilege('pg_stat_file(text, boolean)', 'EXECUTE')
 THEN query_to_xml('SELECT size FROM pg_stat_file(''patroni.dynamic.json'', true)', true, true, '')::text ~ '<size>' END
 UNION ALL
 SELECT substring(application_name FROM '^(Patroni|repmgr)'), format('its session is called "%s"', application_name)
 FROM pg_stat_activity WHERE application_name ~ '^(Patroni|repmgr)' AND application_name <> 'Patroni ctl'
 UNION ALL
 SELECT CASE left(slot_name, 6) WHEN 'pgauto' THEN 'pg_auto_failover' WHEN 'stolon' THEN 'Stolon' ELSE 'CloudNativePG' END,
  format('it streams by slot "%s"', slot_name)
 FROM pg_stat_wal_receiver WHERE slot_name ~ '^(pgautofailover_standby_|stolon_|_cnpg_)'
 UNION ALL
 SELECT 'CloudNativePG', name FROM pg_settings
 WHERE name IN ('archive_command', 'restore_command') AND setting LIKE '/controller/manager%'
 UNION ALL
 SELECT 'a managed service', 'role ' || rolname FROM pg_roles
 WHERE rolname IN ('alloydbadmin', 'azuresu', 'cloud_admin', 'cloudsqladmin', 'rdsadmin')
) AS signs (manager, sign) ORDER BY manager, sign) one;

\echo versions of PostgreSQL
-- probe: check_versions

\echo source is a primary
\c :source
:is_standby;

\echo target is a standby of the source
SELECT system_identifier AS other FROM pg_control_system() \gset
\c :target
SELECT 'FAILED', 'it is another system', 'To another server, shards go with: snowid-move move'
FROM pg_control_system() WHERE system_identifier::text <> :'other'
UNION ALL
SELECT 'FAILED', 'it is a primary', 'Give the connection of a streaming standby of the source.' WHERE NOT pg_is_in_recovery();

\echo one database
\c :source
SELECT current_database() AS other \gset
\c :target
SELECT 'FAILED', format('database "%s" on the source, "%s" on the target', :'other', current_database()),
 'Give the same one in --from and --to.' WHERE current_database() <> :'other';

\echo streaming
\c :source
SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int AS other \gset
\c :target
SELECT CASE WHEN is_right THEN 'ok' ELSE 'FAILED' END, CASE WHEN status IS NULL THEN 'no WAL receiver is at work'
 ELSE format('the WAL receiver is %s, on timeline %s; the source is on %s', status, received_tli, :'other') END,
 CASE WHEN is_right THEN '' ELSE 'Let the target stream from the source: look at its primary_conninfo, and at its log.' END
FROM (SELECT) one LEFT JOIN pg_stat_wal_receiver ON true,
LATERAL (SELECT status = 'streaming' AND received_tli = :'other'::int) r (is_right);

\echo seen by the source
SELECT coalesce((:standby_name), '') AS other \gset
\c :source
SELECT 'FAILED', format('no walsender of the source streams to "%s"', :'other'),
 'Let the target stream from the source itself, and not from another standby.'
WHERE :'other' <> '' AND NOT EXISTS (
 SELECT FROM pg_stat_replication WHERE application_name = :'other' AND state = 'streaming');

\echo how far behind
SELECT pg_current_wal_lsn() AS other \gset
\c :target
SELECT CASE WHEN behind < -16777216 OR behind > 1073741824 THEN 'FAILED' ELSE 'ok' END,
 CASE WHEN behind < -16777216 THEN format('it is ahead of the source by %s', pg_size_pretty(-behind))
 ELSE pg_size_pretty(greatest(behind, 0)) END,
 CASE WHEN behind < -16777216 THEN 'It has what the source has lost: it is no standby of it.'
 WHEN behind > 1073741824 THEN 'Wait until it has caught up.' END
FROM (SELECT pg_wal_lsn_diff(:'other'::pg_lsn, pg_last_wal_replay_lsn())) t (behind);

\echo settings of the standby
\c :source
SELECT count(*) AS other FROM snowid.moves WHERE details ? 'split' \gset
\c :target
SELECT 'FAILED', 'replay is paused', 'Type there: SELECT pg_wal_replay_resume();'
FROM (SELECT) one WHERE CASE WHEN pg_is_in_recovery() THEN pg_is_wal_replay_paused() END
UNION ALL
SELECT severity, format('%s is %s', name, reset_val), to_do FROM pg_settings JOIN (VALUES
 ('recovery_min_apply_delay', '0', 'FAILED', 'Type there: ALTER SYSTEM RESET recovery_min_apply_delay; SELECT pg_reload_conf();'),
 ('recovery_target(_lsn|_name|_time|_xid)?', '', 'FAILED',
  'It would not be promoted when asked to. Remove it, and restart that server.'),
 ('synchronous_standby_names', '', 'FAILED', 'Its commits would wait for standbys that it has not. Type there: ALTER SYSTEM SET'
  ' synchronous_standby_names = ''''; SELECT pg_reload_conf();'),
 ('default_transaction_read_only', 'off', 'FAILED', 'The split sets that itself, and resets it. Take it out of the configuration there.'),
 ('allow_alter_system', 'on', 'FAILED', 'Switch it on there until the split is done.'),
 ('archive_mode', 'off', 'warning', 'Once it is promoted, it archives a timeline of its own. Give it an archive of its own.')
) AS v (pattern, wanted, severity, to_do) ON name ~ ('^' || pattern || '$')
WHERE reset_val <> wanted AND NOT (name = 'default_transaction_read_only' AND :'other' <> '0');

\echo settings of sessions
\c :source
SELECT 'FAILED', format('%s sets default_transaction_read_only', concat_ws(' in ', 'role ' || rolname, 'database ' || datname)),
 'Its sessions could write on the target before the shards that stay are closed there. Reset it, by ALTER ROLE or'
 ' ALTER DATABASE, until the split is done.'
FROM pg_db_role_setting LEFT JOIN pg_roles r ON r.oid = setrole LEFT JOIN pg_database d ON d.oid = setdatabase
WHERE EXISTS (SELECT FROM unnest(setconfig) c WHERE c LIKE 'default\_transaction\_read\_only=%');

-- What a primary needs, and a standby may have otherwise without being noticed.
SELECT $$
SELECT string_agg(name || '=' || setting, E'\n' ORDER BY name) AS other FROM pg_settings WHERE name IN
 ('wal_level', 'fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum', 'max_connections',
 'max_wal_senders', 'max_replication_slots', 'max_worker_processes', 'max_prepared_transactions',
 'max_locks_per_transaction', 'shared_preload_libraries', 'shared_buffers')
$$ AS settings \gset

\echo settings of both
:settings \gset
\c :target
SELECT 'warning', format('%s is %s on the source, %s on the target', split_part(line, '=', 1),
  substr(line, strpos(line, '=') + 1), current_setting(split_part(line, '=', 1))),
 'The target is about to be a primary. Make them equal, if that is not on purpose.'
FROM unnest(string_to_array(:'other', E'\n')) line WHERE line NOT IN (SELECT unnest(string_to_array((:settings), E'\n')));

\echo collation
SELECT 'warning', format('version %s made the indexes, %s is there', datcollversion, pg_database_collation_actual_version(oid)),
 'Once it is promoted, type there: REINDEX DATABASE.'
FROM pg_database WHERE datname = current_database() AND datcollversion <> pg_database_collation_actual_version(oid);

\echo extension snowid
SELECT 'FAILED', format('version %s is not installed there', extversion), 'Install the same version as on the source.'
FROM pg_extension WHERE extname = 'snowid'
AND extversion NOT IN (SELECT version FROM pg_available_extension_versions WHERE name = 'snowid')
UNION ALL
-- Loads the library; the portable edition has none.
SELECT 'FAILED', 'it does not work there', '' WHERE snowid.id_shard(0::bigint) <> 0;

\echo ownership
\c :source
WITH :owned
:owns_all;

\echo rights on the source
:may_see_sessions
UNION ALL
:may_write
UNION ALL
SELECT 'FAILED', format('role %I may not drop the standby''s slot', current_user),
 format('As a superuser, type: ALTER ROLE %I REPLICATION;', current_user)
FROM pg_roles WHERE rolname = current_user AND NOT rolsuper AND NOT rolreplication;

\echo rights on the target
\c :target
SELECT 'FAILED', format('role %I may not call %s', current_user, f),
 format('As a superuser, type on the source: GRANT EXECUTE ON FUNCTION %s TO %I;', f, current_user)
FROM unnest('{"pg_promote(boolean,integer)",pg_reload_conf()}'::text[]) f WHERE NOT has_function_privilege(f, 'EXECUTE')
UNION ALL
SELECT 'FAILED', format('role %I may not change %s', current_user, name),
 format('As a superuser, type on the source: GRANT ALTER SYSTEM ON PARAMETER %s TO %I;', name, current_user)
FROM CAST('default_transaction_read_only' AS text) name WHERE NOT has_parameter_privilege(name, 'ALTER SYSTEM');

\echo synchronous replication
SELECT coalesce((:standby_name), '') AS other \gset
\c :source
SELECT CASE sync_state WHEN 'potential' THEN 'warning' ELSE 'FAILED' END,
 format('the target is a %s standby of the source', CASE sync_state WHEN 'potential' THEN 'potential synchronous' ELSE 'synchronous' END),
 'Commits on the source would wait for it for ever. Take it out of synchronous_standby_names there, and type: SELECT pg_reload_conf();'
FROM pg_stat_replication WHERE application_name = :'other' AND sync_state <> 'async';

-- The standby's slot on the source, if it has one.
SELECT $$
SELECT coalesce((SELECT slot_name FROM pg_stat_wal_receiver), '') AS other
$$ AS own_slot \gset

\echo slots of the source
\c :target
:own_slot \gset
\c :source
SELECT 'ok', format('"%s", of the target, keeps %s of log, and will be dropped', slot_name,
  pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn))), ''
FROM pg_replication_slots WHERE slot_name = :'other'
UNION ALL
SELECT 'warning', format('who reads slot "%s" (%s) will hear no more of the set', slot_name, plugin),
 'Once the set lives on the target, make a slot there, too; see doc/moves.md.'
FROM pg_replication_slots WHERE slot_type = 'logical' AND NOT temporary;

\echo disk room
\c :target
:own_slot \gset
\c :source
SELECT 'warning', format('nobody reads slot "%s", which keeps %s of log', slot_name,
  pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn))),
 format('Look on both machines how much is free: df. If nothing will read it, type: SELECT pg_drop_replication_slot(%L);', slot_name)
FROM pg_replication_slots WHERE NOT active AND restart_lsn IS NOT NULL AND slot_name <> :'other'
UNION ALL
SELECT 'ok', format('nothing is copied; each server keeps up to %s of log, and what slots need', current_setting('max_wal_size')), '';

\echo slots of the target
\c :target
SELECT 'warning', format('slot "%s" keeps log there, also once it is a primary', slot_name),
 format('If nothing reads it, type there: SELECT pg_drop_replication_slot(%L);', slot_name)
FROM pg_replication_slots WHERE NOT active;

\echo subscriptions
\c :source
SELECT 'FAILED', format('subscription "%s" of database "%s" is enabled', subname, datname),
 format('Both servers would read its slot. In that database, type: ALTER SUBSCRIPTION %I DISABLE; and'
 ' enable it on one of them after the split.', subname)
FROM pg_subscription s JOIN pg_database d ON d.oid = s.subdbid WHERE subenabled;

\echo other standbys
\c :target
SELECT coalesce((:standby_name), '') AS other \gset
\c :source
SELECT 'ok', format('"%s" goes on to follow the source', application_name), ''
FROM pg_stat_replication WHERE :'other' NOT IN ('', application_name) AND replay_lsn IS NOT NULL
AND pid NOT IN (SELECT active_pid FROM pg_replication_slots WHERE slot_type = 'logical' AND active);

\echo standbys of the target
\c :target
SELECT 'ok', format('"%s" goes on to follow the target', application_name), '' FROM pg_stat_replication WHERE replay_lsn IS NOT NULL;

\echo unlogged tables
\c :source
SELECT 'FAILED', format('%s %s is unlogged, and would be empty on the target', kind, name),
 format('Type: ALTER %s %s SET LOGGED;', upper(kind), name)
FROM (SELECT oid::regclass AS name, CASE relkind WHEN 'S' THEN 'sequence' ELSE 'table' END AS kind FROM pg_class
 WHERE relnamespace :in_shard AND relkind IN ('r', 'S') AND relpersistence = 'u') t ORDER BY 2;

\echo prepared transactions
SELECT CASE WHEN holds THEN 'FAILED' ELSE 'warning' END,
 format('%L of database "%s" has been prepared for %s', gid, database, date_trunc('second', clock_timestamp() - prepared)),
 CASE WHEN holds THEN format('It holds locks in the set. Type: COMMIT PREPARED %L; or ROLLBACK PREPARED %L;', gid, gid)
 ELSE 'The target would have a copy of it: end it before the split; where it holds a shard that stays, the split rolls the copy back.' END
FROM (SELECT *, transaction IN (:holding_locks AND relnamespace :in_shard) AS holds FROM pg_prepared_xacts) x ORDER BY prepared;

\echo other moves
SELECT 'FAILED', format('shard %s is in a move, or closed by hand', string_agg(shard::text, ', ' ORDER BY shard)),
 'The target would have a copy of that move. Finish or abort it first.'
FROM snowid.moves WHERE NOT (details ? 'split' AND shard = ANY (:'shards')) HAVING count(*) > 0;

-- They would be in the way of finish.
SELECT $$
SELECT 'warning', format('%s uses %s', user_name, used),
 format('The two part. Drop it on the %s before finish, or let it be dropped: finish --cascade.', :'dropped_on')
FROM (:outside_users) u
$$ AS in_the_way \gset

\echo users in other schemas
\set users_of :'schemas'
\set dropped_on source
:in_the_way;

\echo users in other schemas
\set users_of :schemas_staying
\set dropped_on target
:in_the_way;

\echo other databases
SELECT 'warning', format('%s is on both servers afterwards, and goes its own way on each', string_agg(quote_ident(datname), ', ')),
 'Nothing closes it on the target. Let its clients stay with one server, and drop it on the other.'
FROM pg_database WHERE NOT datistemplate AND datname NOT IN (current_database(), 'postgres') HAVING count(*) > 0;

\echo ids outside of shards
SELECT CASE WHEN has_sequence_privilege('snowid.id_seq', 'SELECT')
 THEN (snowid_internal.sequence_value('snowid.id_seq', now())).called ELSE number <> '' END || ' ' || number AS other
FROM coalesce(nullif(current_setting('snowid.shard', true), '-1'), '') number \gset
\c :target
SELECT 'FAILED', 'snowid.id_seq makes ids, and the target would make the same',
 'The target needs a number of its own, in its postgresql.conf: snowid.shard = ...; and the source the same way, not by ALTER DATABASE.'
WHERE :'other' = 'true ' || coalesce(nullif(current_setting('snowid.shard', true), '-1'), '');

\echo tables outside of shards
\c :source
SELECT 'warning', format('%s table%s, as %s, on both servers afterwards', count(*), CASE WHEN count(*) > 1 THEN 's' END, min(c.oid::regclass::text)),
 'Nothing closes them on the target. What is written there or here is on that server alone, and sequences give the same numbers on both.'
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p') AND NOT relispartition
AND nspname NOT IN ('pg_catalog', 'information_schema', 'snowid', 'snowid_internal')
AND nspname !~ '^pg_(toast|temp)' AND nspname NOT IN (SELECT schema FROM snowid.shard_registry) HAVING count(*) > 0;

\echo locks
SELECT 'FAILED', format('closing the set takes %s locks in one transaction, and there is room for %s', needed, room),
 format('Type on both servers: ALTER SYSTEM SET max_locks_per_transaction = %s; and restart them, the target first.',
  ceil(1.1 * needed * each / room))
FROM (SELECT (SELECT count(*) FROM pg_class WHERE relnamespace :in_shard AND relkind IN ('r', 'p', 'S')) AS needed, each,
 each * (current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int) AS room
 FROM CAST(current_setting('max_locks_per_transaction') AS int) each) t WHERE needed > room;

\echo clocks
:clock \gset
\c :target
:clocks_apart;

\echo registry
-- probe: check_registry
:in_registry;

\echo poolers
-- probe: check_poolers

\echo home of the target
:one_host;
