-- What snowid-fleet asks of each server, and makes of all answers.

-- Whom to ask: the servers, by name, and homes that only the registry has.  A shard without a
-- home lives where the directory is: NULL.
\echo fleet_servers_sql
SELECT name, home FROM snowid.servers UNION ALL (SELECT DISTINCT NULL, home FROM snowid.shard_registry r WHERE NOT EXISTS (SELECT FROM snowid.servers s WHERE s.home = r.home)) ORDER BY name NULLS LAST, home;

-- How far standbys lag; NULL if the role may not see it.
SELECT $$
SELECT CASE WHEN bool_or(state IS NULL) THEN NULL ELSE coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)) FILTER (WHERE application_name !~ '^snowid_'), 0) END FROM pg_stat_replication
$$ AS standby_lag \gset

\echo fleet_standby_lag_sql
:standby_lag;

-- One server.  A second address of it is told by when it was started: a clone has the identifier, too.
-- arguments: period
\echo fleet_facts_sql
SELECT json_build_object('run', concat_ws(' ', (SELECT system_identifier FROM pg_control_system()), extract(epoch FROM pg_postmaster_start_time()), current_database()),
 'is_standby', pg_is_in_recovery(), 'standby_lag', (:standby_lag), 'role', current_user,
 'follows', EXISTS (SELECT FROM pg_subscription_rel JOIN pg_subscription s ON s.oid = srsubid WHERE subenabled AND srrelid = 'snowid.shard_registry'::regclass),
 'shards', (SELECT json_agg(json_build_object('shard', l.shard, 'schema', l.schema, 'lives', snowid_internal.lives(r),
   'bytes', bytes, 'rows', rows, 'inserts', inserts_per_second)) FROM snowid.shard_load(:'period'::interval) l JOIN snowid.shard_registry r ON r.shard = l.shard),
 'slots', (SELECT json_agg(json_build_object('name', slot_name, 'active', active, 'lost', wal_status = 'lost',
   'kept', pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, restart_lsn))) FROM pg_replication_slots WHERE database = current_database() OR database IS NULL),
 'waits', (SELECT json_agg(DISTINCT format('shard %s is locked by process %s of %s, %s, in a transaction of %s s', shard, a.pid, usename, state, extract(epoch FROM clock_timestamp() - xact_start)::int))
   FROM snowid.moves m JOIN pg_namespace n ON nspname = m.schema JOIN pg_class c ON relnamespace = n.oid JOIN pg_locks l ON relation = c.oid AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) JOIN pg_stat_activity a USING (pid) WHERE details ? 'move_id' AND step NOT IN ('moved', 'open') AND a.application_name !~ '^(snowid|pg_)' AND clock_timestamp() - xact_start > interval '1 s'),
 'roles', (SELECT json_agg(rolname) FROM pg_roles WHERE rolname !~ '^pg_'), 'moves', (SELECT json_agg(json_build_object('shard', shard, 'role', role, 'step', step, 'peer', peer, 'id', details ->> 'move_id',
   'is_source', coalesce(details ->> 'begun_as', role) = 'source', 'since', changed_at, 'begun', started_at, 'keeps', coalesce((details ->> 'reverse')::bool, false), 'goes_on', EXISTS (SELECT FROM pg_locks l WHERE locktype = 'advisory' AND (l.classid, l.objid) = (1397641047, m.shard) AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())), 'fleet_move', details ->> 'fleet_move',
   'bytes', (SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace AND nspname = m.schema WHERE relkind = 'r'))) FROM snowid.moves m WHERE details ? 'move_id' AND NOT details ? 'split'));

-- All answers are in the temporary table answer.
\echo fleet_answer_sql
DROP TABLE IF EXISTS pg_temp.answer, pg_temp.address, pg_temp.told, pg_temp.lives, pg_temp.going;
CREATE TEMP TABLE answer AS SELECT NULL::int AS n, NULL::text AS name, NULL::text AS home, NULL::text AS place, NULL::jsonb AS facts, NULL::text AS trouble LIMIT 0;

-- Their shards are in told.  The same server twice counts once: address leads from each to the first of its n.
\echo fleet_told_sql
CREATE TEMP TABLE address AS SELECT n AS i, home, place, (SELECT min(b.n) FROM answer b WHERE b.place = a.place OR b.facts ->> 'run' = a.facts ->> 'run') AS n FROM answer a;
CREATE TEMP TABLE told AS SELECT n, s.* FROM answer JOIN address d USING (n), jsonb_to_recordset(CASE jsonb_typeof(facts -> 'shards') WHEN 'array' THEN facts -> 'shards' ELSE '[]' END) s (shard int, lives text, bytes float8, inserts float8, rows float8) WHERE i = n;
CREATE TEMP TABLE lives AS SELECT r.shard, r.schema, coalesce(r.pool, r.schema) AS pool, r.home, d.n AS server, t.lives, t.bytes, t.inserts, t.rows FROM snowid.shard_registry r LEFT JOIN address d ON d.home IS NOT DISTINCT FROM r.home LEFT JOIN told t ON t.n = d.n AND t.shard = r.shard;
CREATE TEMP TABLE going AS SELECT DISTINCT ON (m.shard, id) m.*, CASE WHEN is_source THEN n ELSE p END AS source, CASE WHEN is_source THEN p ELSE n END AS target,
 CASE m.role WHEN 'source' THEN n ELSE p END AS leaves, CASE m.role WHEN 'source' THEN p ELSE n END AS enters, (m.role = 'source') <> is_source AS is_back, bool_or(goes_on) OVER (PARTITION BY m.shard, id) AS has_program
FROM answer JOIN address d USING (n), jsonb_to_recordset(CASE jsonb_typeof(facts -> 'moves') WHEN 'array' THEN facts -> 'moves' ELSE '[]' END) m (shard int, role text, step text, peer text, id text, is_source bool, since timestamptz, begun timestamptz, keeps bool, goes_on bool, fleet_move text), LATERAL (SELECT coalesce((SELECT min(o.n) FROM address o WHERE m.peer IN (o.home, o.place)), -1)) x (p) WHERE i = n ORDER BY m.shard, id, (m.role = 'source') DESC;

-- The servers of the plan, in their order.
-- arguments: drained
\echo fleet_plan_servers_sql
SELECT a.n, CASE WHEN a.name IS NULL THEN 0 ELSE coalesce(s.weight, 1) END, s.state = 'open' AND a.facts ->> 'is_standby' = 'false', s.state = 'draining' OR s.name = :'drained' FROM answer a LEFT JOIN snowid.servers s ON s.name = a.name WHERE a.n = (SELECT d.n FROM address d WHERE d.home IS NOT DISTINCT FROM a.home) ORDER BY a.n;

-- The pools: what moves as a whole.  One that cannot be moved now stays.
-- arguments: by drained
\echo fleet_pools_sql
DROP TABLE IF EXISTS pg_temp.pool, pg_temp.torn, pg_temp.job;
CREATE TEMP TABLE pool AS WITH rule AS MATERIALIZED (SELECT row_number() OVER () AS n, p.* FROM snowid.placements p), ruled AS MATERIALIZED (SELECT l.pool, bool_or(rule = 'stay') AS stays, array_agg(DISTINCT n) FILTER (WHERE rule = 'only') AS rules, array_agg(DISTINCT n) FILTER (WHERE rule = 'apart') AS apart FROM rule r JOIN lives l ON r.shards @> l.shard GROUP BY 1),
 allowed AS MATERIALIZED (SELECT rules, string_agg(is_in, '' ORDER BY n) AS allowed FROM (SELECT rules, a.n, CASE WHEN bool_and(coalesce(a.name = ANY (servers), false)) THEN '1' ELSE '0' END AS is_in FROM (SELECT DISTINCT rules FROM ruled WHERE rules IS NOT NULL) o JOIN rule r ON r.n = ANY (rules) CROSS JOIN answer a GROUP BY 1, 2) x GROUP BY 1)
SELECT (row_number() OVER (ORDER BY load DESC, pool) - 1)::int AS i, pool, server, load, bytes, shards, l.n, l.stays OR coalesce(r.stays, false) AS stays, allowed,
 CASE WHEN r.apart IS NOT NULL THEN (SELECT string_agg(CASE WHEN g.n = ANY (r.apart) THEN '1' ELSE '0' END, '' ORDER BY g.n) FROM rule g WHERE g.rule = 'apart') END AS apart, NULL::int AS target, false AS stuck
FROM (SELECT l.pool, coalesce(mode() WITHIN GROUP (ORDER BY l.server) FILTER (WHERE s.name IS NULL AND fits), mode() WITHIN GROUP (ORDER BY l.server) FILTER (WHERE fits), mode() WITHIN GROUP (ORDER BY l.server) FILTER (WHERE s.name IS NULL), min(l.server)) AS server, sum(CASE :'by' WHEN 'bytes' THEN coalesce(l.bytes, 0) WHEN 'inserts' THEN coalesce(l.inserts, 0) ELSE 1 END) AS load, coalesce(sum(l.bytes), 0) AS bytes,
  string_agg(l.shard::text, ',' ORDER BY l.shard) AS shards, count(*) AS n, count(DISTINCT l.server) > 1 OR bool_or(l.lives IS DISTINCT FROM 'here') OR bool_or(g.shard IS NOT NULL) AS stays
 FROM lives l LEFT JOIN (SELECT DISTINCT shard FROM going) g USING (shard) LEFT JOIN (SELECT d.n, min(name) AS name FROM snowid.servers JOIN address d USING (home) WHERE state = 'draining' OR name = :'drained' GROUP BY 1) s ON s.n = l.server LEFT JOIN ruled r USING (pool) LEFT JOIN allowed USING (rules), LATERAL (SELECT coalesce(substr(allowed, l.server + 1, 1), '1') = '1') f (fits) WHERE l.server IS NOT NULL GROUP BY l.pool) l LEFT JOIN ruled r USING (pool) LEFT JOIN allowed USING (rules);

-- The jobs of a plan: for each pair of servers, some pools at a time.  What was torn from its pool follows it.
\echo fleet_jobs_sql
CREATE TEMP TABLE torn AS SELECT l.*, p.server AS target FROM lives l JOIN pool p USING (pool)
WHERE l.server <> p.server AND l.lives = 'here' AND l.shard NOT IN (SELECT shard FROM going) AND EXISTS (SELECT FROM answer a WHERE a.n = p.server AND facts IS NOT NULL) AND NOT EXISTS (SELECT FROM snowid.placements s WHERE rule = 'stay' AND s.shards @> l.shard);
CREATE TEMP TABLE job AS SELECT server, target, string_agg(shards, ',' ORDER BY i) AS shards, sum(bytes) AS bytes FROM (SELECT *, floor(greatest((sum(n) OVER w - n) / 64, (sum(bytes) OVER w - bytes) / 8e9)) AS part FROM pool WHERE target <> server WINDOW w AS (PARTITION BY server, target ORDER BY i)) p GROUP BY server, target, part
UNION ALL SELECT server, target, string_agg(shard::text, ',' ORDER BY shard), sum(bytes) FROM torn GROUP BY pool, server, target;

-- The plan, for people; how long it takes, by the last moves.
-- arguments: rate by directory registry
\echo fleet_plan_text_sql
WITH r AS MATERIALIZED (SELECT a.n, coalesce(a.name, a.home, 'directory') AS name, coalesce(b.load, 0) / total AS now, coalesce(t.load, 0) / total AS "then", a.name IS NOT NULL AS is_named FROM answer a JOIN address d ON d.home IS NOT DISTINCT FROM a.home AND d.n = a.n CROSS JOIN (SELECT greatest(sum(load), 1e-9) AS total FROM pool) x LEFT JOIN (SELECT l.server, sum(CASE :'by' WHEN 'bytes' THEN coalesce(l.bytes, 0) WHEN 'inserts' THEN coalesce(l.inserts, 0) ELSE 1 END) AS load FROM lives l JOIN pool USING (pool) GROUP BY 1) b ON b.server = a.n LEFT JOIN (SELECT target, sum(load) AS load FROM pool GROUP BY 1) t ON t.target = a.n)
SELECT string_agg(regexp_replace(line, '[\u0001-\u001f\u007f-\u009f]', '?', 'g'), E'\n' ORDER BY part, n) FROM ( SELECT 1, 0, format('%s  %s  %s', rpad('server', w), rpad('now', 30), 'then') FROM (SELECT greatest(6, max(length(name))) AS w FROM r WHERE is_named) x
 UNION ALL SELECT 2, n, format('%s  %s %s %%  %s %s %%', rpad(name, greatest(w, length(name))), rpad(repeat('#', round(now * 24)::int), 24), lpad(round(now * 100)::text, 3),
  rpad(repeat('#', round("then" * 24)::int), 24), lpad(round("then" * 100)::text, 3)) FROM r, (SELECT greatest(6, max(length(name))) AS w FROM r WHERE is_named) x WHERE is_named OR now > 0
 UNION ALL SELECT 3, row_number() OVER (ORDER BY server, target), format('%s -> %s: %s, shards %s', f.name, t.name, pg_size_pretty(bytes::bigint), shards) FROM job JOIN r f ON f.n = server JOIN r t ON t.n = target
 UNION ALL SELECT 4, i, format('%s stays at %s: %s%s', pool, name, CASE WHEN allowed !~ '1' THEN 'its rules "only" have no server of the fleet in common'
   WHEN 'stay' = ANY (rules) AND substr(allowed, server + 1, 1) = '0' THEN 'one rule has it stay, another one live elsewhere'
   WHEN pool IN (SELECT t.pool FROM torn t) THEN 'it first comes together there; then type the same command again'
   WHEN EXISTS (SELECT FROM lives l JOIN going g USING (shard) WHERE l.pool = pool.pool) THEN 'an earlier move of it has not ended'
   WHEN stays THEN 'it is pinned, moving, not whole, or its server is down'
   WHEN EXISTS (SELECT FROM generate_series(1, length(apart)) g WHERE substr(apart, g, 1) = '1' AND (SELECT count(*) FROM pool p WHERE substr(p.apart, g, 1) = '1') > (SELECT count(*) FROM snowid.servers))
   THEN 'more pools are to be apart than there are servers' ELSE 'no server may take it, or none within the limits' END,
  '; to see its rules, at the directory type: SELECT * FROM snowid.placements WHERE shards && ' || CASE WHEN rules IS NOT NULL THEN quote_literal(ranges::text) || ';' END)
 FROM pool JOIN r ON r.n = server, LATERAL (SELECT range_agg(int4range(s, s + 1)) AS ranges FROM unnest(string_to_array(shards, ',')::int[]) s) x, LATERAL (SELECT array_agg(rule) AS rules FROM snowid.placements p WHERE p.shards && ranges) y WHERE stuck
 UNION ALL SELECT 4, -3, format($$to end the earlier move of shards %s, type: snowid-%s$$, shards, CASE WHEN has_moved THEN format($$move finish --shard %s --from '%s' --to '%s' $$, shards, replace(coalesce(a.name, a.home, :'directory', peer), $$'$$, $$'\''$$), replace(coalesce(b.name, b.home, :'directory', peer), $$'$$, $$'\''$$)) ELSE 'fleet status ' END || :'registry')
 FROM (SELECT string_agg(shard::text, ',' ORDER BY shard) AS shards, bool_and(step IN ('moved', 'open')) AS has_moved, min(source) AS source, min(target) AS target, min(peer) AS peer FROM going GROUP BY id HAVING bool_or(shard IN (SELECT shard FROM lives l JOIN pool p USING (pool) WHERE stuck))) g LEFT JOIN answer a ON a.n = source LEFT JOIN answer b ON b.n = target
 UNION ALL SELECT 4, -1, format('pool %s moves whole, so its shards %s cannot be apart; give them pools of their own, or at the directory type: DELETE FROM snowid.placements WHERE rule = ''apart'' AND shards = ''%s'';', pool, string_agg(shard::text, ',' ORDER BY shard), p.shards) FROM snowid.placements p JOIN lives l ON p.shards @> l.shard WHERE rule = 'apart' GROUP BY pool, p.shards HAVING count(*) > 1
 UNION ALL SELECT 4, -2, format('the fleet has no %s, which the rule "only" of shards %s names', string_agg(s, ', '), p.shards) FROM snowid.placements p, unnest(servers) s WHERE s NOT IN (SELECT name FROM snowid.servers) GROUP BY p.shards
 UNION ALL SELECT 5, 0, format('%s jobs, %s%s', count(server), pg_size_pretty(coalesce(sum(bytes), 0)::bigint), CASE WHEN count(server) = 0 THEN '' ELSE coalesce(
  ', about ' || round((sum(bytes) / nullif(min(rate), 0))::numeric) || ' s', ', for an unknown time: there was no move yet') END) FROM job RIGHT JOIN (SELECT :'rate'::float8 AS rate) x ON true WHERE server IS NOT NULL OR NOT EXISTS (SELECT FROM job)) x (part, n, line);

-- What a plan cannot be made with; without sizes, servers can be drained, or evened out by shards.
-- arguments: needs_sizes drained max_lag registry
\echo fleet_doubts_sql
SELECT regexp_replace(what, '[\u0001-\u001f\u007f-\u009f]', '?', 'g') FROM ( (SELECT format('shard %s is open nowhere: the registry says %s', shard, coalesce(home, 'nothing')) FROM lives l WHERE (server IS NULL OR (lives IS DISTINCT FROM 'here' AND (SELECT facts FROM answer WHERE n = server) IS NOT NULL)) AND NOT EXISTS (SELECT FROM going g WHERE g.shard = l.shard) ORDER BY shard LIMIT 5)
UNION ALL (SELECT format(CASE WHEN l.shard IS NULL THEN 'shard %1$s lives at %2$s, and the directory does not know it; type: snowid-fleet add %4$s %5$s'
  ELSE 'shard %1$s is open at %2$s, and the directory says %3$s' END, t.shard, coalesce(name, a.home), coalesce(l.home, 'its own server'), coalesce(name, 'NAME HOME'), :'registry') FROM told t JOIN answer a USING (n) LEFT JOIN lives l USING (shard) WHERE t.lives = 'here' AND l.server IS DISTINCT FROM n AND t.shard NOT IN (SELECT shard FROM going) ORDER BY t.shard LIMIT 5)
UNION ALL SELECT format('%s are one server: retire, or delete from snowid.servers, all but one', string_agg(name, ' and ')) FROM answer JOIN address ON i = answer.n WHERE name IS NOT NULL GROUP BY address.n HAVING count(*) > 1
UNION ALL SELECT format('%s gives no answer, so nobody knows how much it has; bring it back; or promote its standby, or restore it, and type: snowid-fleet add %1$s NEWHOME %2$s', coalesce(name, a.home), :'registry') FROM answer a JOIN address d USING (n) WHERE i = n AND facts IS NULL AND (:'needs_sizes'::bool OR name = :'drained')
UNION ALL SELECT format('nobody knows how far the standbys of %s are behind, for which --max-lag waits; type there: GRANT pg_monitor TO %I;', coalesce(name, a.home, 'the directory'), facts ->> 'role') FROM answer a JOIN address d USING (n) WHERE i = n AND :'max_lag'::int8 >= 0 AND facts IS NOT NULL AND facts ->> 'standby_lag' IS NULL) x (what);

-- Moves that an earlier run has begun and not ended, oldest first, and which only want to be finished: by the row of the
-- log that their journals name, so never a person's own.  What has moved and is to be kept is done.
\echo fleet_unfinished_sql
SELECT string_agg(g.shard::text, ',' ORDER BY g.shard), g.source, g.target, coalesce(sum(l.bytes), 0), min(peer), bool_and(step IN ('moved', 'open') AND lives = 'here'), f.at FROM going g JOIN snowid.fleet_moves f ON f.at::text = g.fleet_move LEFT JOIN lives l USING (shard) WHERE outcome <> 'kept' AND NOT (step IN ('moved', 'open') AND (keeps OR outcome ~ 'to keep$')) GROUP BY f.at, g.source, g.target ORDER BY min(since);

-- What lets a role read what is published.
-- arguments: role
\echo fleet_reader_rights_sql
SELECT string_agg(to_do, ' ') FROM (SELECT format('GRANT USAGE ON SCHEMA %1$I TO %2$I; GRANT SELECT ON %3$s TO %2$I;', schemaname, role, string_agg(c.oid::regclass::text, ', ')) FROM (SELECT :'role' AS role) r, pg_publication_tables JOIN pg_namespace n ON nspname = schemaname JOIN pg_class c ON relnamespace = n.oid AND relname = tablename WHERE pubname = 'shard_registry' AND NOT (has_table_privilege(role, c.oid, 'SELECT') AND has_schema_privilege(role, n.oid, 'USAGE')) GROUP BY role, schemaname) x (to_do);

-- arguments: subscription
\echo fleet_errors_sql
SELECT sum(n::int8) FROM pg_stat_subscription_stats s, jsonb_each_text(to_jsonb(s)) e (kind, n) WHERE kind ~ '_error_count$' AND subname = :'subscription';

-- What lets the role change the fleet at the directory, if it may not; a slot is a replica's to make and drop.
-- arguments: makes_slots
\echo fleet_rights_sql
SELECT string_agg(to_do, ' ') FROM (SELECT format('GRANT %s ON %s TO %I;', string_agg(p, ', ' ORDER BY p), t, current_user) FROM (VALUES ('snowid.servers', 'INSERT'), ('snowid.servers', 'UPDATE'), ('snowid.servers', 'DELETE'),
  ('snowid.shard_registry', 'INSERT'), ('snowid.shard_registry', 'UPDATE'), ('snowid.fleet_moves', 'INSERT'), ('snowid.fleet_moves', 'UPDATE')) v (t, p) WHERE NOT has_table_privilege(t, p) GROUP BY t
 UNION ALL SELECT format('ALTER ROLE %I REPLICATION;', rolname) FROM pg_roles WHERE rolname = current_user AND NOT rolsuper AND NOT rolreplication AND :'makes_slots'::bool) x (to_do);

-- What a server must be like; what the directory knows is in facts.
-- arguments: name facts registry
\echo fleet_add_checks_sql
WITH d AS MATERIALIZED (SELECT * FROM CAST(:'facts' AS jsonb) f, jsonb_to_record(f) x (is_same bool, level text, used jsonb, shards jsonb, roles jsonb, shared jsonb, columns jsonb))
SELECT string_agg(format(E'%-8s %s\n', severity, regexp_replace(what, '[\u0001-\u001f\u007f-\u009f]', '?', 'g')) || coalesce(format(E'%-8s %s\n', '', to_do), ''), '' ORDER BY n, what), bool_or(severity = 'FAILED') FROM ( SELECT 1, 'FAILED', 'it is a standby', 'Give the primary, or all hosts and target_session_attrs=read-write.' WHERE pg_is_in_recovery()
 UNION ALL SELECT 2, 'FAILED', 'it has servers of its own', 'Is it a directory? If it was one and is no more, type there: TRUNCATE snowid.servers, snowid.placements, snowid.poolers;' FROM d WHERE NOT is_same AND EXISTS (SELECT FROM snowid.servers) AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'snowid.shard_registry'::regclass AND tgname = 'directory_is_right')
 UNION ALL SELECT 2, 'FAILED', format('role %s does not own the tables of snowid there', current_user), format('As a superuser, type there: GRANT %I TO %I; or give a HOME with that role.', relowner::regrole, current_user) FROM pg_class WHERE oid = 'snowid.shard_registry'::regclass AND NOT pg_has_role(relowner, 'USAGE')
 UNION ALL SELECT 2, 'FAILED', format('role %s may not make subscriptions there', current_user), CASE WHEN p.oid IS NULL THEN 'Give a HOME with a superuser: before PostgreSQL 16, no other role may.'
  ELSE format('As a superuser, type there: GRANT pg_create_subscription TO %I; GRANT CREATE ON DATABASE %I TO %1$I;', current_user, current_database()) END FROM pg_roles r LEFT JOIN pg_roles p ON p.rolname = 'pg_create_subscription' WHERE r.rolname = current_user AND NOT r.rolsuper AND (pg_has_role(p.oid, 'USAGE') AND has_database_privilege(current_database(), 'CREATE')) IS NOT TRUE
 UNION ALL SELECT 3, 'FAILED', format('it is a directory: its publication %s has the registry', pubname), 'Are HOME and --registry exchanged?' FROM pg_publication_tables, d WHERE schemaname = 'snowid' AND tablename = 'shard_registry' AND NOT is_same
 UNION ALL SELECT 3, 'FAILED', format('it subscribes to a directory already: %s', subname), format('If that is not yours, type there: ALTER SUBSCRIPTION %1$I DISABLE; ALTER SUBSCRIPTION %1$I SET (slot_name = NONE); DROP SUBSCRIPTION %1$I;', subname) FROM pg_subscription_rel JOIN pg_subscription s ON s.oid = srsubid
 WHERE srrelid = to_regclass('snowid.shard_registry') AND subname <> 'snowid_registry_' || :'name' AND subname !~ '^snowid_(move|back)_'
 UNION ALL SELECT 4, 'FAILED', 'wal_level is ' || current_setting('wal_level'), 'There, type: ALTER SYSTEM SET wal_level = logical; and restart it.' WHERE current_setting('wal_level') <> 'logical' AND current_setting('server_version_num')::int < 190000
 UNION ALL SELECT 4, 'FAILED', 'wal_level of the directory is ' || level, 'There, type: ALTER SYSTEM SET wal_level = logical; and restart it.' FROM d WHERE level IS NOT NULL AND NOT is_same
 UNION ALL SELECT 5, CASE WHEN setting::int < CASE name WHEN 'max_worker_processes' THEN 3 ELSE 2 END THEN 'FAILED' ELSE 'warning' END, format('%s is %s; moves need some', name, setting), format('There, type: ALTER SYSTEM SET %s = 10; and restart it.', name)
 FROM pg_settings WHERE name IN ('max_replication_slots', 'max_wal_senders', 'max_logical_replication_workers', 'max_worker_processes', 'max_active_replication_origins') AND setting::int < 4
 UNION ALL SELECT 5, 'FAILED', format('%s of the directory are in use: it has less than 2 more of its %s', s ->> 'used', s ->> 'name'), format('There, type: ALTER SYSTEM SET %s = %s; and restart it.', s ->> 'name', 2 * (s ->> 'used')::int + 10)
 FROM d, jsonb_array_elements(CASE jsonb_typeof(used) WHEN 'array' THEN used ELSE '[]' END) s WHERE NOT is_same AND NOT EXISTS (SELECT FROM pg_subscription WHERE subname = 'snowid_registry_' || :'name')
 UNION ALL SELECT 6, 'FAILED', CASE WHEN r.shard <> s.shard OR r.schema <> s.schema THEN format('shard %s is %s there, and shard %s is %s at %s', r.shard, r.schema, s.shard, s.schema, s.server) ELSE format('shard %s is there, and at %s', r.shard, s.server) END,
  CASE WHEN snowid_internal.lives(r) = 'here' AND r.shard = s.shard AND r.schema = s.schema THEN format('If one is an old one, as of a server that was put back from a backup, type: snowid-move audit --fix %s; else drop the one that has no rows (snowid-move diff compares them), or give it another number.', :'registry') WHEN snowid_internal.lives(r) = 'here' THEN 'Drop one of the two, or give it another name or number.' ELSE format('There, type: DELETE FROM snowid.shard_registry WHERE shard = %s;', r.shard) END
 FROM d, jsonb_to_recordset(CASE jsonb_typeof(shards) WHEN 'array' THEN shards ELSE '[]' END) s (shard int, schema name, server text, is_there bool) JOIN snowid.shard_registry r ON r.shard = s.shard OR r.schema = s.schema WHERE r.shard <> s.shard OR r.schema <> s.schema OR (is_there IS NOT TRUE AND snowid_internal.lives(r) = 'here')
 UNION ALL SELECT 7, 'FAILED', format('the directory publishes table %s, which is not there', t), 'Make it, as it is on the directory.' FROM d, jsonb_array_elements_text(CASE jsonb_typeof(shared) WHEN 'array' THEN shared ELSE '[]' END) t WHERE to_regclass(t) IS NULL
 UNION ALL SELECT 7, 'FAILED', format('table %s lacks column %s of the directory''s', t, a), 'Add it, as it is on the directory.' FROM d, jsonb_to_recordset(CASE jsonb_typeof(columns) WHEN 'array' THEN columns ELSE '[]' END) c (t text, a name) WHERE to_regclass(t) IS NOT NULL AND NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass(t) AND attname = a AND NOT attisdropped)
 UNION ALL SELECT 7, 'FAILED', format('table %s is not empty, so the directory''s rows cannot come', t), format('If the directory has all of them, type there: SET session_replication_role = replica; DELETE FROM %s;', t) FROM d, jsonb_array_elements_text(CASE jsonb_typeof(shared) WHEN 'array' THEN shared ELSE '[]' END) t WHERE NOT is_same AND query_to_xml('SELECT 1 FROM ' || to_regclass(t) || ' LIMIT 1', false, false, '')::text ~ '<row' AND NOT EXISTS (SELECT FROM pg_subscription_rel WHERE srrelid = to_regclass(t))
 UNION ALL SELECT 8, 'warning', 'roles of other servers are not there: ' || string_agg(r, ', ' ORDER BY r), 'Make them, as they are there: pg_dumpall --roles-only.' FROM d, jsonb_array_elements_text(CASE jsonb_typeof(roles) WHEN 'array' THEN roles ELSE '[]' END) r WHERE r NOT IN (SELECT rolname FROM pg_roles) HAVING count(*) > 0 ) x (n, severity, what, to_do);

-- What the directory has under that name, or that home under another; and how it learns of a new address.
-- arguments: name place identity
\echo fleet_other_sql
SELECT format(CASE name WHEN :'name' THEN 'the name %s is that of another server' ELSE 'that server is in the fleet, as %s' END, name) FROM answer WHERE name IS NOT NULL AND (name = :'name') <> (CASE WHEN facts IS NULL THEN place = :'place' ELSE facts ->> 'run' = :'identity' END) ORDER BY name = :'name';

-- arguments: name home identity
\echo fleet_new_home_sql
SELECT CASE WHEN count(*) > 0 THEN format('; or, if %2$s has another address now, at the directory: UPDATE snowid.servers SET home = %1$L WHERE name = %2$L; UPDATE snowid.shard_registry SET home = %1$L WHERE home IN (%3$s);', :'home', :'name', string_agg(quote_literal(d.home), ', ')) ELSE '' END
FROM address d JOIN address e ON e.n = d.n JOIN answer a ON a.n = e.i WHERE a.name = :'name' AND NOT EXISTS (SELECT FROM answer o WHERE o.name <> a.name AND o.facts ->> 'run' = :'identity');

-- arguments: identity name
\echo fleet_add_facts_sql
SELECT jsonb_build_object('is_same', concat_ws(' ', (SELECT system_identifier FROM pg_control_system()), extract(epoch FROM pg_postmaster_start_time()), current_database()) = :'identity',
 'level', (SELECT setting FROM pg_settings WHERE name = 'wal_level' AND setting <> 'logical' AND current_setting('server_version_num')::int < 190000),
 'used', (SELECT jsonb_agg(v) FROM (VALUES ('max_replication_slots', (SELECT count(*) FROM pg_replication_slots)), ('max_wal_senders', (SELECT count(*) FROM pg_stat_replication))) v (name, used) WHERE used + 2 > current_setting(name)::int),
 'shards', (SELECT jsonb_agg(jsonb_build_object('shard', shard, 'schema', schema, 'server', coalesce(a.name, l.home, 'the directory'), 'is_there', a.facts ->> 'run' = :'identity' OR a.name = :'name')) FROM lives l LEFT JOIN answer a ON a.n = l.server),
 'roles', (SELECT jsonb_agg(DISTINCT r) FROM answer, jsonb_array_elements(facts -> 'roles') r),
 'columns', (SELECT jsonb_agg(jsonb_build_object('t', format('%I.%I', schemaname, tablename), 'a', a)) FROM pg_publication_tables, unnest(attnames) a WHERE pubname = 'shard_registry' AND schemaname <> 'snowid'),
 'shared', (SELECT jsonb_agg(format('%I.%I', schemaname, tablename)) FROM pg_publication_tables WHERE pubname = 'shard_registry' AND schemaname <> 'snowid'));

-- The query that tells, on both servers, what rows the published tables have: of these, what is published.
-- arguments: tables
\echo fleet_sums_sql
SELECT 'SELECT coalesce(jsonb_agg(x), ''[]'') FROM (' || coalesce(string_agg(format($$SELECT %L, count(*), sum(('x' || left(md5(to_jsonb(r)::text), 15))::bit(60)::bigint) FROM (SELECT %s FROM %I.%I WHERE %s) r$$, tablename, columns, schemaname, tablename, coalesce(rowfilter, 'true')), ' UNION ALL '), 'SELECT') || ') x'
FROM pg_publication_tables, LATERAL (SELECT string_agg(quote_ident(a), ', ') AS columns FROM unnest(attnames) a) c WHERE pubname = 'shard_registry' AND schemaname <> 'snowid' AND CAST(:'tables' AS jsonb) ? format('%I.%I', schemaname, tablename);

-- Why a server cannot go, and what to do; no row if it can.
-- arguments: name registry
\echo fleet_retire_doubts_sql
WITH s AS MATERIALIZED (SELECT d.n FROM snowid.servers JOIN address d USING (home) WHERE name = :'name') SELECT what, to_do FROM ( SELECT 1, format('%s shards live there, the first is %s', count(*), min(shard)), format(CASE WHEN (SELECT facts FROM answer WHERE n = (SELECT n FROM s)) IS NULL THEN 'It gives no answer. Bring it back; or promote its standby, or restore it, and type: snowid-fleet add %s NEWHOME %s' ELSE 'Type first: snowid-fleet drain %s %s' END, :'name', :'registry') FROM (SELECT shard FROM lives WHERE server = (SELECT n FROM s) UNION SELECT shard FROM told WHERE n = (SELECT n FROM s) AND lives = 'here') l HAVING count(*) > 0
 UNION ALL SELECT 2, format('%s shards are open nowhere, the first is %s', count(*), min(shard)), 'To see more, type: snowid-move audit ' || :'registry' FROM lives WHERE server IS NULL OR (lives IS DISTINCT FROM 'here' AND (SELECT facts FROM answer WHERE n = server) IS NOT NULL) HAVING count(*) > 0
 UNION ALL SELECT 3, format('moves of %s shards are not finished there, the first is %s', count(*), min(shard)), 'To see what ends each, type: snowid-fleet status ' || :'registry' FROM going WHERE (SELECT n FROM s) IN (source, target) HAVING count(*) > 0
 UNION ALL SELECT 4, 'a row of snowid.placements names it', format('At the directory, type: UPDATE snowid.placements SET servers = array_remove(servers, %1$L) WHERE %1$L = ANY (servers);', :'name') FROM snowid.placements WHERE :'name' = ANY (servers)
 UNION ALL SELECT 5, 'its home leads to a standby', format('With the hosts of all, type first: snowid-fleet add %s ''HOSTS target_session_attrs=read-write'' %s', name, :'registry') FROM answer WHERE name = :'name' AND facts ->> 'is_standby' = 'true') x (n, what, to_do) ORDER BY n LIMIT 1;
