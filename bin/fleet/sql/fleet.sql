-- What snowid-fleet asks of each server, and makes of all answers.
\ir ../../common/shared.sql

\set this_database '(SELECT oid FROM pg_database WHERE datname = current_database())'

-- What logical replication cannot do with.
\set level '(SELECT setting FROM pg_settings WHERE name = $$wal_level$$ AND setting <> $$logical$$ AND current_setting($$server_version_num$$)::int < 190000)'

-- How far standbys lag; NULL if the role may not see it.
\set lag 'CASE WHEN count(state) = count(*) THEN coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)) FILTER (WHERE application_name !~ $$^snowid_$$), 0) END'

\echo fleet_standby_lag_sql
SELECT :lag FROM pg_stat_replication;

-- One server: which run it is, whatever address leads there, as identity_of() has it; its roles are those that a shard's schema and tables need.
-- arguments: period
\echo fleet_facts_sql
SELECT json_build_object('run', concat_ws(' ', (SELECT system_identifier FROM pg_control_system()), extract(epoch FROM pg_postmaster_start_time()), current_database()),
 'is_standby', pg_is_in_recovery(), 'standby_lag', (SELECT :lag FROM pg_stat_replication), 'role', current_user,
 'closed', ARRAY(SELECT shard FROM snowid.moves WHERE closed UNION ALL SELECT shard FROM snowid.copies JOIN pg_namespace ON nspname = schema),
 'follows', EXISTS (SELECT FROM pg_subscription_rel JOIN pg_subscription s ON s.oid = srsubid WHERE subenabled AND srrelid = 'snowid.shard_registry'::regclass),
 'shards', ARRAY(SELECT json_build_object('shard', l.shard, 'schema', l.schema, 'lives', snowid_internal.lives(r),
   'bytes', bytes, 'rows', rows, 'inserts', inserts_per_second) FROM snowid.shard_load(:'period'::interval) l JOIN snowid.shard_registry r ON r.shard = l.shard),
 'slots', ARRAY(SELECT json_build_object('name', slot_name, 'active', active, 'lost', wal_status = 'lost',
   'kept', pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, restart_lsn))
  FROM pg_replication_slots WHERE database = current_database() OR database IS NULL),
 'waits', ARRAY(SELECT DISTINCT format('shard %s is locked by process %s of %s, %s, in a transaction of %s s', shard, a.pid, usename, state,
   extract(epoch FROM clock_timestamp() - xact_start)::int) FROM snowid.moves m JOIN pg_namespace n ON nspname = m.schema JOIN pg_class c ON relnamespace = n.oid
  JOIN pg_locks l ON relation = c.oid AND l.database = :this_database JOIN pg_stat_activity a USING (pid)
  WHERE details ? 'move_id' AND step NOT IN ('moved', 'open') AND a.application_name !~ '^(snowid|pg_)' AND clock_timestamp() - xact_start > interval '1 s'),
 'roles', ARRAY(SELECT DISTINCT rolname FROM pg_shdepend JOIN pg_roles r ON r.oid = refobjid LEFT JOIN pg_class c ON c.oid = objid AND classid = 'pg_class'::regclass
  JOIN pg_namespace n ON n.oid = CASE classid WHEN 'pg_namespace'::regclass THEN objid ELSE relnamespace END JOIN snowid.shard_registry ON schema = nspname
  WHERE dbid = :this_database AND refclassid = 'pg_authid'::regclass), 'moves', ARRAY(SELECT json_build_object('shard', shard, 'role', role, 'step', step, 'peer', peer, 'id', details ->> 'move_id',
   'is_source', coalesce(details ->> 'begun_as', role) = 'source', 'since', changed_at, 'begun', started_at, 'keeps', coalesce((details ->> 'reverse')::bool, false),
   'goes_on', EXISTS (SELECT FROM pg_locks l WHERE locktype = 'advisory' AND (l.classid, l.objid) = (1397641047, m.shard) AND l.database = :this_database),
   'fleet_move', details ->> 'fleet_move', 'bytes', (SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
     AND nspname = m.schema WHERE relkind = 'r')) FROM snowid.moves m WHERE details ? 'move_id' AND NOT details ? 'split'));

-- The same server twice counts once: address leads from each to the first of its n, which is in known.  Their shards are in told; load is what to even out.
-- arguments: by
\echo fleet_told_sql
CREATE TEMP TABLE address AS SELECT n AS i, home, place, (SELECT min(b.n) FROM answer b WHERE b.place = a.place OR b.facts ->> 'run' = a.facts ->> 'run') AS n FROM answer a;
CREATE TEMP TABLE known AS SELECT n, coalesce(a.name, a.home, 'directory') AS shown, coalesce(a.home, a.place) AS typed, a.name, a.home, weight, state, note, facts, trouble
 FROM answer a JOIN address d USING (n) LEFT JOIN snowid.servers s ON s.name = a.name WHERE i = n;
CREATE TEMP TABLE told AS SELECT n, s.* FROM known, jsonb_to_recordset(facts -> 'shards') s (shard int, lives text, bytes float8, inserts float8, rows float8);
CREATE TEMP TABLE lives AS SELECT r.shard, r.schema, coalesce(r.pool, r.schema) AS pool, r.home, d.n AS server, t.lives, t.bytes, t.inserts, t.rows,
  CASE :'by' WHEN 'bytes' THEN coalesce(t.bytes, 0) WHEN 'inserts' THEN coalesce(t.inserts, 0) ELSE 1 END AS load
 FROM snowid.shard_registry r LEFT JOIN address d ON d.home IS NOT DISTINCT FROM r.home LEFT JOIN told t ON t.n = d.n AND t.shard = r.shard;
CREATE TEMP TABLE going AS SELECT DISTINCT ON (m.shard, id) m.*, CASE WHEN is_source THEN n ELSE p END AS source, CASE WHEN is_source THEN p ELSE n END AS target,
 CASE m.role WHEN 'source' THEN n ELSE p END AS leaves, CASE m.role WHEN 'source' THEN p ELSE n END AS enters, (m.role = 'source') <> is_source AS is_back,
 bool_or(goes_on) OVER w AS has_program, count(*) OVER w AS nsides
FROM known, jsonb_to_recordset(facts -> 'moves') m (shard int, role text, step text, peer text, id text, is_source bool, since timestamptz, begun timestamptz, keeps bool,
  goes_on bool, fleet_move text), LATERAL (SELECT coalesce((SELECT min(o.n) FROM address o WHERE m.peer IN (o.home, o.place)),
 (SELECT min(k.n) FROM known k, jsonb_array_elements(k.facts -> 'moves') e WHERE k.n <> known.n AND (e ->> 'id', e ->> 'shard') = (m.id, m.shard::text)), -1)) x (p)
WINDOW w AS (PARTITION BY m.shard, id) ORDER BY m.shard, id, (m.role = 'source') DESC;

-- The pools: what moves as a whole.  One that cannot be moved now stays.
-- arguments: drained
\echo fleet_pools_sql
DROP TABLE IF EXISTS pg_temp.pool, pg_temp.torn, pg_temp.job; CREATE TEMP TABLE pool AS WITH rule AS MATERIALIZED (SELECT row_number() OVER () AS n, p.* FROM snowid.placements p),
 ruled AS MATERIALIZED (SELECT l.pool, bool_or(rule = 'stay') AS stays, array_agg(DISTINCT n) FILTER (WHERE rule = 'only') AS rules,
   array_agg(DISTINCT n) FILTER (WHERE rule = 'apart') AS apart FROM rule r JOIN lives l ON r.shards @> l.shard GROUP BY 1),
 allowed AS MATERIALIZED (SELECT rules, string_agg(is_in, '' ORDER BY n) AS allowed FROM ( SELECT rules, a.n, CASE WHEN bool_and(coalesce(a.name = ANY (servers), false)) THEN '1' ELSE '0' END AS is_in
   FROM (SELECT DISTINCT rules FROM ruled WHERE rules IS NOT NULL) o JOIN rule r ON r.n = ANY (rules) CROSS JOIN answer a GROUP BY 1, 2) x GROUP BY 1)
SELECT (row_number() OVER (ORDER BY load DESC, pool) - 1)::int AS i, pool, server, load, bytes, shards, l.n, l.stays OR coalesce(r.stays, false) AS stays, allowed,
 CASE WHEN r.apart IS NOT NULL THEN (SELECT string_agg(CASE WHEN g.n = ANY (r.apart) THEN '1' ELSE '0' END, '' ORDER BY g.n) FROM rule g WHERE g.rule = 'apart') END AS apart,
 NULL::int AS target, false AS stuck
FROM (SELECT l.pool, coalesce(mode() WITHIN GROUP (ORDER BY l.server) FILTER (WHERE s.name IS NULL AND fits), mode() WITHIN GROUP (ORDER BY l.server) FILTER (WHERE fits),
   mode() WITHIN GROUP (ORDER BY l.server) FILTER (WHERE s.name IS NULL), min(l.server)) AS server, sum(l.load) AS load, coalesce(sum(l.bytes), 0) AS bytes, count(*) AS n,
   string_agg(l.shard::text, ',' ORDER BY l.shard) AS shards, count(DISTINCT l.server) > 1 OR bool_or(l.lives IS DISTINCT FROM 'here') OR bool_or(g.shard IS NOT NULL) AS stays
 FROM lives l LEFT JOIN (SELECT DISTINCT shard FROM going) g USING (shard)
  LEFT JOIN (SELECT d.n, min(name) AS name FROM snowid.servers JOIN address d USING (home) WHERE state = 'draining' OR name = :'drained' GROUP BY 1) s ON s.n = l.server
  LEFT JOIN ruled r USING (pool) LEFT JOIN allowed USING (rules), LATERAL (SELECT coalesce(substr(allowed, l.server + 1, 1), '1') = '1') f (fits)
 WHERE l.server IS NOT NULL GROUP BY l.pool) l LEFT JOIN ruled r USING (pool) LEFT JOIN allowed USING (rules);

-- The jobs of a plan: for each pair of servers, some pools at a time.  What was torn from its pool follows it.
\echo fleet_jobs_sql
CREATE TEMP TABLE torn AS SELECT l.*, p.server AS target FROM lives l JOIN pool p USING (pool) JOIN known k ON k.n = p.server AND facts IS NOT NULL
WHERE l.server <> p.server AND l.lives = 'here' AND l.shard NOT IN (SELECT shard FROM going) AND NOT EXISTS (SELECT FROM snowid.placements s WHERE rule = 'stay' AND s.shards @> l.shard);
CREATE TEMP TABLE job AS SELECT server, target, string_agg(shards, ',' ORDER BY i) AS shards, sum(bytes) AS bytes
FROM (SELECT *, floor(greatest((sum(n) OVER w - n) / 64, (sum(bytes) OVER w - bytes) / 8e9)) AS part FROM pool WHERE target <> server
 WINDOW w AS (PARTITION BY server, target ORDER BY i)) p GROUP BY server, target, part
UNION ALL SELECT server, target, string_agg(shard::text, ',' ORDER BY shard), sum(bytes) FROM torn GROUP BY pool, server, target;

-- How long jobs take, by the last moves: a small one its time, another by its bytes, which nobody knows before there was one.
-- arguments: jobs size
\echo fleet_seconds_sql
SELECT (:'jobs' * coalesce(each, 0) + :'size' / coalesce(rate, CASE WHEN each IS NOT NULL THEN 1e7 END))::int8 FROM
 (SELECT avg(seconds) FILTER (WHERE bytes < 64e6) AS each, sum(bytes) FILTER (WHERE bytes >= 64e6) / sum(seconds) FILTER (WHERE bytes >= 64e6) AS rate FROM
  (SELECT * FROM snowid.fleet_moves WHERE outcome IN ('moved', 'kept', 'finished') AND seconds > 0 ORDER BY at DESC LIMIT 20) l) m;

-- The plan, for people.
-- arguments: seconds directory registry
\echo fleet_plan_text_sql
WITH r AS MATERIALIZED (SELECT k.*, coalesce(b.load, 0) / total AS now, coalesce(t.load, 0) / total AS "then" FROM known k
  CROSS JOIN (SELECT greatest(sum(load), 1e-9) AS total FROM pool) x LEFT JOIN (SELECT l.server, sum(l.load) AS load FROM lives l JOIN pool USING (pool) GROUP BY 1) b ON b.server = k.n
  LEFT JOIN (SELECT target, sum(load) AS load FROM pool GROUP BY 1) t ON t.target = k.n), w AS (SELECT greatest(6, max(length(name))) AS w FROM r)
SELECT string_agg(regexp_replace(line, '[\u0001-\u001f\u007f-\u009f]', '?', 'g'), E'\n' ORDER BY part, n) FROM ( SELECT 1, 0, format('%s  %s  %s', rpad('server', w), rpad('now', 30), 'then') FROM w
 UNION ALL SELECT 2, n, format('%s  %s %s %%  %s %s %%', rpad(shown, greatest(w, length(shown))), rpad(repeat('#', round(now * 24)::int), 24), lpad(round(now * 100)::text, 3),
   rpad(repeat('#', round("then" * 24)::int), 24), lpad(round("then" * 100)::text, 3)) FROM r, w WHERE name IS NOT NULL OR now > 0
 UNION ALL SELECT 3, row_number() OVER (ORDER BY server, target), format('%s -> %s: %s, shards %s', f.shown, t.shown, pg_size_pretty(bytes::bigint), shards)
  FROM job JOIN known f ON f.n = server JOIN known t ON t.n = target
 UNION ALL SELECT 4, i, format('%s stays at %s: %s%s', pool, shown, CASE WHEN allowed !~ '1' THEN 'its rules "only" have no server of the fleet in common'
   WHEN 'stay' = ANY (rules) AND substr(allowed, server + 1, 1) = '0' THEN 'one rule has it stay, another one live elsewhere'
   WHEN pool IN (SELECT t.pool FROM torn t) THEN 'it first comes together there; then type the same command again'
   WHEN EXISTS (SELECT FROM lives l JOIN going g USING (shard) WHERE l.pool = pool.pool) THEN 'an earlier move of it has not ended'
   WHEN stays THEN 'it is pinned, moving, not whole, or its server is down' WHEN EXISTS (SELECT FROM generate_series(1, length(apart)) g WHERE substr(apart, g, 1) = '1'
     AND (SELECT count(*) FROM pool p WHERE substr(p.apart, g, 1) = '1') > (SELECT count(*) FROM snowid.servers))
   THEN 'more pools are to be apart than there are servers' ELSE 'no server may take it, or none within the limits' END,
   '; to see its rules, at the directory type: SELECT * FROM snowid.placements WHERE shards && ' || CASE WHEN rules IS NOT NULL THEN quote_literal(ranges::text) || ';' END)
  FROM pool JOIN known r ON r.n = server, LATERAL (SELECT range_agg(int4range(s, s + 1)) AS ranges FROM unnest(string_to_array(shards, ',')::int[]) s) x,
  LATERAL (SELECT array_agg(rule) AS rules FROM snowid.placements p WHERE p.shards && ranges) y WHERE stuck
 UNION ALL SELECT 4, -3, format($$to end the earlier move of shards %s, type: snowid-%s$$, shards, CASE WHEN has_moved THEN format($$move finish --shard %s --from '%s' --to '%s' $$,
   shards, replace(coalesce(a.name, a.home, CASE WHEN source < 0 THEN peer END, :'directory'), $$'$$, $$'\''$$),
   replace(coalesce(b.name, b.home, CASE WHEN target < 0 THEN peer END, :'directory'), $$'$$, $$'\''$$))
   ELSE 'fleet status ' END || :'registry') FROM (SELECT string_agg(shard::text, ',' ORDER BY shard) AS shards, bool_and(step IN ('moved', 'open')) AS has_moved,
   min(source) AS source, min(target) AS target, min(peer) AS peer FROM going GROUP BY id HAVING bool_or(shard IN (SELECT shard FROM lives l JOIN pool p USING (pool) WHERE stuck))) g
  LEFT JOIN answer a ON a.n = source LEFT JOIN answer b ON b.n = target
 UNION ALL SELECT 4, -1, format('pool %s moves whole, so its shards %s cannot be apart; give them pools of their own, or at the directory type: '
   'DELETE FROM snowid.placements WHERE rule = ''apart'' AND shards = ''%s'';', pool, string_agg(shard::text, ',' ORDER BY shard), p.shards)
  FROM snowid.placements p JOIN lives l ON p.shards @> l.shard WHERE rule = 'apart' GROUP BY pool, p.shards HAVING count(*) > 1
 UNION ALL SELECT 4, -2, format('the fleet has no %s, which the rule "only" of shards %s names', string_agg(s, ', '), p.shards)
  FROM snowid.placements p, unnest(servers) s WHERE s NOT IN (SELECT name FROM snowid.servers) GROUP BY p.shards
 UNION ALL SELECT 5, 0, format('%s jobs, %s%s', count(*), pg_size_pretty(coalesce(sum(bytes), 0)::bigint), CASE WHEN count(*) > 0 THEN
   coalesce(', about ' || round(:'seconds'::numeric) || ' s', ', for an unknown time: there was no move yet') END) FROM job) x (part, n, line);

-- What a plan cannot be made with; others can be drained while a server is down.
-- arguments: drained max_lag registry
\echo fleet_doubts_sql
(SELECT format('shard %s is open nowhere: the registry says %s', shard, coalesce(l.home, 'nothing')) FROM lives l LEFT JOIN known ON n = server
 WHERE (server IS NULL OR (lives IS DISTINCT FROM 'here' AND facts IS NOT NULL)) AND shard NOT IN (SELECT shard FROM going) ORDER BY shard LIMIT 5)
UNION ALL (SELECT format(CASE WHEN l.shard IS NULL THEN 'shard %1$s lives at %2$s, and the directory does not know it; type: snowid-fleet add %4$s %5$s'
   ELSE 'shard %1$s is open at %2$s, and the directory says %3$s' END, t.shard, shown, coalesce(l.home, 'its own server'), coalesce(name, 'NAME HOME'), :'registry')
 FROM told t JOIN known USING (n) LEFT JOIN lives l USING (shard) WHERE t.lives = 'here' AND l.server IS DISTINCT FROM n AND t.shard NOT IN (SELECT shard FROM going) ORDER BY t.shard LIMIT 5)
UNION ALL SELECT format('%s are one server: retire, or delete from snowid.servers, all but one', string_agg(name, ' and '))
FROM answer JOIN address ON i = answer.n WHERE name IS NOT NULL GROUP BY address.n HAVING count(*) > 1
UNION ALL SELECT format('%s ' || CASE WHEN trouble ^@ 'it answers: ' THEN 'cannot be asked: %3$s' ELSE 'gives no answer, so nobody knows how much it has; bring it back; or promote its standby, '
  'or restore it, and type: snowid-fleet add %1$s NEWHOME %2$s' END, shown, :'registry', trouble) FROM known WHERE facts IS NULL AND coalesce(name = :'drained', :'drained' IS NULL)
UNION ALL SELECT format('nobody knows how far the standbys of %s are behind, for which --max-lag waits; type there: GRANT pg_monitor TO %I;', shown, facts ->> 'role')
FROM known WHERE :'max_lag'::int8 >= 0 AND facts IS NOT NULL AND facts ->> 'standby_lag' IS NULL;

-- Moves that an earlier run has begun and not ended, oldest first, and which only want to be finished: by the row of the
-- log that their journals name, so never a person's own.  What has moved and is to be kept is done.
\echo fleet_unfinished_sql
SELECT string_agg(g.shard::text, ',' ORDER BY g.shard), g.source, g.target, coalesce(min(s.typed), min(peer)), coalesce(min(t.typed), min(peer)), coalesce(sum(l.bytes), 0),
 bool_and(step IN ('moved', 'open') AND lives = 'here'), f.at FROM going g JOIN snowid.fleet_moves f ON f.at::text = g.fleet_move LEFT JOIN lives l USING (shard)
LEFT JOIN known s ON s.n = g.source LEFT JOIN known t ON t.n = g.target
WHERE outcome <> 'kept' AND NOT (step IN ('moved', 'open') AND (keeps OR outcome ~ 'to keep$')) GROUP BY f.at, g.source, g.target ORDER BY min(since);

-- What lets a role read what is published.
-- arguments: role
\echo fleet_reader_rights_sql
SELECT string_agg(to_do, ' ') FROM (SELECT format('GRANT USAGE ON SCHEMA %1$I TO %2$I; GRANT SELECT ON %3$s TO %2$I;', schemaname, role, string_agg(c.oid::regclass::text, ', '))
 FROM (SELECT :'role' AS role) r, pg_publication_tables JOIN pg_namespace n ON nspname = schemaname JOIN pg_class c ON relnamespace = n.oid AND relname = tablename
 WHERE pubname = 'shard_registry' AND NOT (has_table_privilege(role, c.oid, 'SELECT') AND has_schema_privilege(role, n.oid, 'USAGE')) GROUP BY role, schemaname) x (to_do);

-- What lets the role change the fleet at the directory, if it may not; a slot is a replica's to make and drop.
-- arguments: makes_slots
\echo fleet_rights_sql
SELECT string_agg(to_do, ' ') FROM (SELECT format('GRANT %s ON %s TO %I;', string_agg(p, ', ' ORDER BY p), t, current_user)
 FROM (VALUES ('snowid.servers', 'INSERT'), ('snowid.servers', 'UPDATE'), ('snowid.servers', 'DELETE'), ('snowid.shard_registry', 'INSERT'), ('snowid.shard_registry', 'UPDATE'),
  ('snowid.fleet_moves', 'INSERT'), ('snowid.fleet_moves', 'UPDATE')) v (t, p) WHERE NOT has_table_privilege(t, p) GROUP BY t
 UNION ALL SELECT format('ALTER ROLE %I REPLICATION;', rolname) FROM pg_roles WHERE rolname = current_user AND NOT rolsuper AND NOT rolreplication AND :'makes_slots'::bool) x (to_do);

-- Who has the lock of the fleet.
\echo fleet_holder_sql
SELECT coalesce(string_agg(coalesce('process ' || pid || coalesce(' of ' || usename, ''), 'a prepared transaction, which pg_prepared_xacts has'), ', '), 'it has just ended')
FROM pg_locks LEFT JOIN pg_stat_activity a USING (pid) WHERE locktype = 'advisory' AND granted AND (classid, objid) = (1397641047, 4294967293) AND database = :this_database;

-- What a server must be like; what the directory knows is in facts: reads, whether rows of shared tables are read whose owners are not trusted.
-- arguments: name facts registry
\echo fleet_add_checks_sql
WITH RECURSIVE d AS (SELECT * FROM jsonb_to_record(:'facts'::jsonb) x (is_same bool, reads bool, untrusted text, level text, used jsonb, shards jsonb, roles jsonb, columns jsonb, servers jsonb)),
 c AS MATERIALIZED (SELECT c.*, to_regclass(t) AS oid FROM d, jsonb_to_recordset(columns) c (t text, a name)),
 shared (oid) AS (SELECT c.oid FROM d, c WHERE reads UNION SELECT srrelid FROM d, pg_subscription_rel JOIN pg_subscription s ON s.oid = srsubid
   WHERE reads AND subname = 'snowid_registry_' || :'name' AND srrelid::regclass::text !~ '^snowid\.'),
 :untrusted, refused (what) AS MATERIALIZED (SELECT untrusted FROM d WHERE untrusted IS NOT NULL UNION TABLE untrusted)
SELECT string_agg(format(E'%-8s %s\n', severity, regexp_replace(what, '[\u0001-\u001f\u007f-\u009f]', '?', 'g')) || coalesce(format(E'%-8s %s\n', '', to_do), ''), '' ORDER BY n, what),
 bool_or(severity = 'FAILED') FROM ( SELECT 1, 'FAILED', 'it is a standby', 'Give the primary, or all hosts and target_session_attrs=read-write.' WHERE pg_is_in_recovery()
 UNION ALL SELECT 2, 'FAILED', 'it has servers of its own', 'Is it a directory? If it was one and is no more, type there: TRUNCATE snowid.servers, snowid.placements, snowid.poolers;'
  FROM d WHERE NOT is_same AND EXISTS (SELECT FROM snowid.servers) AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'snowid.shard_registry'::regclass AND tgname = 'directory_is_right')
 UNION ALL SELECT 2, 'FAILED', format('it knows %s, and the directory does not', string_agg(v.name, ', ')), 'Type first: snowid-move audit ' || :'registry' ||
  '; or, if that was retired, type there: DELETE FROM snowid.servers WHERE name = …;' FROM d, snowid.servers v WHERE NOT is_same AND servers ? :'name' AND NOT servers ? v.name HAVING count(*) > 0
 UNION ALL SELECT 2, 'FAILED', format('role %s does not own the tables of snowid there', current_user), format('As a superuser, type there: GRANT %I TO %I; or give a HOME with that role.',
   relowner::regrole, current_user) FROM pg_class WHERE oid = 'snowid.shard_registry'::regclass AND NOT pg_has_role(relowner, 'USAGE')
 UNION ALL SELECT 2, 'FAILED', format('role %s may not make subscriptions there', current_user), CASE WHEN p.oid IS NULL THEN 'Give a HOME with a superuser: before PostgreSQL 16, no other role may.'
   ELSE format('As a superuser, type there: GRANT pg_create_subscription TO %I; GRANT CREATE ON DATABASE %I TO %1$I;', current_user, current_database()) END
  FROM pg_roles r LEFT JOIN pg_roles p ON p.rolname = 'pg_create_subscription' WHERE r.rolname = current_user AND NOT r.rolsuper
  AND (pg_has_role(p.oid, 'USAGE') AND has_database_privilege(current_database(), 'CREATE')) IS NOT TRUE
 UNION ALL SELECT 3, 'FAILED', format('it is a directory: its publication %s has the registry', pubname), 'Are HOME and --registry exchanged?'
  FROM pg_publication_tables, d WHERE schemaname = 'snowid' AND tablename = 'shard_registry' AND NOT is_same
 UNION ALL SELECT 3, 'FAILED', format('it subscribes to a directory already: %s', subname),
   format('If that is not yours, type there: ALTER SUBSCRIPTION %1$I DISABLE; ALTER SUBSCRIPTION %1$I SET (slot_name = NONE); DROP SUBSCRIPTION %1$I;', subname)
  FROM pg_subscription_rel JOIN pg_subscription s ON s.oid = srsubid
  WHERE srrelid = to_regclass('snowid.shard_registry') AND subname <> 'snowid_registry_' || :'name' AND subname !~ '^snowid_(move|back)_'
 UNION ALL SELECT 4, 'FAILED', format('wal_level%s is %s', whose, l), 'There, type: ALTER SYSTEM SET wal_level = logical; and restart it.'
  FROM d, LATERAL (VALUES ('', :level), (' of the directory', CASE WHEN NOT is_same THEN level END)) v (whose, l) WHERE l IS NOT NULL
 UNION ALL SELECT 5, CASE WHEN setting::int < CASE name WHEN 'max_worker_processes' THEN 3 ELSE 2 END THEN 'FAILED' ELSE 'warning' END,
   format('%s is %s; moves need some', name, setting), format('There, type: ALTER SYSTEM SET %s = 10; and restart it.', name)
  FROM pg_settings WHERE name IN ('max_replication_slots', 'max_wal_senders', 'max_logical_replication_workers', 'max_worker_processes', 'max_active_replication_origins') AND setting::int < 4
 UNION ALL SELECT 5, 'FAILED', format('%s of the directory are in use: it has less than 2 more of its %s', s.used, name),
   format('There, type: ALTER SYSTEM SET %s = %s; and restart it.', name, 2 * s.used + 10)
  FROM d, jsonb_to_recordset(d.used) s (name text, used int) WHERE NOT is_same AND NOT EXISTS (SELECT FROM pg_subscription WHERE subname = 'snowid_registry_' || :'name')
 UNION ALL SELECT 6, 'FAILED', CASE WHEN is_alike THEN format('shard %s is there, and at %s', r.shard, s.server)
   ELSE format('shard %s is %s there, and shard %s is %s at %s', r.shard, r.schema, s.shard, s.schema, s.server) END,
   CASE WHEN NOT is_here THEN format('There, type: DELETE FROM snowid.shard_registry WHERE shard = %s;', r.shard) WHEN NOT is_alike THEN 'Drop one of the two, or give it another name or number.'
   ELSE format('If that one is old, as of a clone, or a server that was put back from a backup, type%s; else drop the one that has no rows (snowid-move diff compares them), '
     'or give it another number.', coalesce(' there: SELECT snowid.fence_shard(' || s.shard || closes || ')', ': snowid-move audit --fix ' || :'registry')) END
  FROM d, jsonb_to_recordset(shards) s (shard int, schema name, closes text, server text, is_there bool) JOIN snowid.shard_registry r ON r.shard = s.shard OR r.schema = s.schema,
  LATERAL (SELECT r.shard = s.shard AND r.schema = s.schema, snowid_internal.lives(r) = 'here') x (is_alike, is_here) WHERE NOT is_alike OR (is_there IS NOT TRUE AND is_here)
 UNION ALL SELECT DISTINCT 7, 'FAILED', CASE WHEN oid IS NULL THEN format('the directory publishes table %s, which is not there', t)
   ELSE format('table %s lacks column %s of the directory''s', t, a) END, CASE WHEN oid IS NULL THEN 'Make' ELSE 'Add' END || ' it, as it is on the directory.'
  FROM c WHERE NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = oid AND attname = a AND NOT attisdropped)
 UNION ALL SELECT 7, 'FAILED', what, 'If you trust that role with both servers, say so: --trust-owners.' FROM refused
 UNION ALL SELECT DISTINCT 7, 'FAILED', format('table %s is not empty, so the directory''s rows cannot come', t),
   format('If the directory has all of them, type there: SET session_replication_role = replica; DELETE FROM %s;', t)
  FROM d, c WHERE NOT is_same AND CASE WHEN NOT EXISTS (TABLE refused) THEN query_to_xml('SELECT 1 FROM ' || oid || ' LIMIT 1', false, false, '')::text ~ '<row' END
  AND oid NOT IN (SELECT srrelid FROM pg_subscription_rel)
 UNION ALL SELECT 8, 'warning', 'roles of shards of other servers are not there: ' || string_agg(r, ', ' ORDER BY r), 'Make them, as they are there: pg_dumpall --roles-only.'
  FROM d, jsonb_array_elements_text(roles) r WHERE r NOT IN (SELECT rolname FROM pg_roles) HAVING count(*) > 0 ) x (n, severity, what, to_do);

-- What the directory has under that name, or that home under another; and how it learns of a new address.
-- arguments: name place identity home
\echo fleet_other_sql
SELECT format(CASE name WHEN :'name' THEN 'the name %s is that of another server' ELSE 'that server is in the fleet, as %s' END, name), (SELECT
 format('; or, if %2$s has another address now, at the directory: UPDATE snowid.servers SET home = %1$L WHERE name = %2$L; '
  'UPDATE snowid.shard_registry SET home = %1$L, homes = jsonb_set(homes, ''{-1,home}'', to_jsonb(%1$L::text)) WHERE home IN (',
  :'home', :'name') || string_agg(quote_literal(d.home), ', ') || ');' FROM address d JOIN address e ON e.n = d.n
 JOIN answer a ON a.n = e.i WHERE a.name = :'name' AND coalesce(a.facts ->> 'is_standby', 'true') = 'true' AND NOT coalesce(trouble ^@ 'it answers: ', false)
  AND NOT EXISTS (SELECT FROM answer o WHERE o.name <> a.name AND o.facts ->> 'run' = :'identity')) FROM answer
WHERE name IS NOT NULL AND (name = :'name') <> (CASE WHEN facts IS NULL THEN place = :'place' ELSE facts ->> 'run' = :'identity' END) ORDER BY name = :'name';

-- arguments: identity name own trusts
\echo fleet_add_facts_sql
WITH RECURSIVE shared (oid) AS (SELECT c.oid FROM pg_publication_tables JOIN pg_namespace n ON nspname = schemaname JOIN pg_class c ON relnamespace = n.oid AND relname = tablename
 WHERE pubname = 'shard_registry' AND schemaname <> 'snowid' AND NOT (:'identity' = :'own' OR :'trusts'::bool)), :untrusted
SELECT jsonb_build_object('is_same', :'identity' = :'own', 'reads', NOT (:'identity' = :'own' OR :'trusts'::bool), 'untrusted', (TABLE untrusted), 'level', :level,
 'used', ARRAY(SELECT to_jsonb(v) FROM (VALUES ('max_replication_slots', (SELECT count(*) FROM pg_replication_slots)), ('max_wal_senders', (SELECT count(*) FROM pg_stat_replication)))
  v (name, used) WHERE used + 2 > current_setting(name)::int),
 'shards', ARRAY(SELECT jsonb_build_object('shard', shard, 'schema', schema, 'server', coalesce(a.name, l.home, 'the directory'), 'is_there', a.facts ->> 'run' = :'identity' OR a.name = :'name',
   'closes', CASE WHEN lives = 'here' AND NOT EXISTS (SELECT FROM snowid.servers s WHERE s.name = :'name') THEN ', ' || quote_literal(coalesce(l.home, a.place)) END)
  FROM lives l LEFT JOIN answer a ON a.n = l.server), 'servers', ARRAY(SELECT name FROM snowid.servers), 'roles', ARRAY(SELECT DISTINCT r FROM answer, jsonb_array_elements(facts -> 'roles') r),
 'columns', ARRAY(SELECT jsonb_build_object('t', format('%I.%I', schemaname, tablename), 'a', a) FROM pg_publication_tables, unnest(attnames) a
  WHERE pubname = 'shard_registry' AND schemaname <> 'snowid'));

-- What the directory does not publish yet does not come.
\echo fleet_publish_sql
SELECT CASE WHEN EXISTS (SELECT FROM pg_publication WHERE pubname = 'shard_registry') THEN 'ALTER PUBLICATION shard_registry ADD TABLE '
  ELSE 'CREATE PUBLICATION shard_registry FOR TABLE ' END || string_agg('snowid.' || t, ', ') || ';' FROM unnest(ARRAY['shard_registry', 'servers', 'placements', 'poolers']) t
WHERE NOT EXISTS (SELECT FROM pg_publication_tables WHERE pubname = 'shard_registry' AND schemaname = 'snowid' AND tablename = t);

-- What empties those tables of a subscription that have rows.
-- arguments: subscription
\echo fleet_full_sql
SELECT string_agg('DELETE FROM ' || t, '; ') FROM pg_subscription_rel JOIN pg_subscription s ON s.oid = srsubid, LATERAL (SELECT srrelid::regclass::text) x (t)
WHERE subname = :'subscription' AND t !~ '^snowid\.' AND query_to_xml('SELECT 1 FROM ' || t || ' LIMIT 1', false, false, '')::text ~ '<row';

\echo fleet_errors_sql
SELECT sum(n::int8) FROM pg_stat_subscription_stats s, jsonb_each_text(to_jsonb(s)) e (kind, n) WHERE kind ~ '_error_count$' AND subname = :'subscription';

-- The query that tells, on both servers, what rows the published tables have: of these, what is published.
-- arguments: tables
\echo fleet_sums_sql
SELECT 'SELECT coalesce(jsonb_agg(x), ''[]'') FROM (' || coalesce(string_agg(format($$SELECT %L, count(*), sum(('x' || left(md5(textin(record_out(r))), 15))::bit(60)::bigint)
 FROM (SELECT %s FROM %I.%I WHERE %s) r$$, tablename, columns, schemaname, tablename, coalesce(rowfilter, 'true')), ' UNION ALL '), 'SELECT') || ') x'
FROM pg_publication_tables, LATERAL (SELECT string_agg(quote_ident(a), ', ') AS columns FROM unnest(attnames) a) c
WHERE pubname = 'shard_registry' AND schemaname <> 'snowid' AND CAST(:'tables' AS jsonb) ? format('%I.%I', schemaname, tablename);

-- Enter a server, and the shards that live there.
-- arguments: name home weight note shards
\echo fleet_enter_sql
INSERT INTO snowid.servers AS s (name, home, weight, note) VALUES (:'name', :'home', coalesce(:'weight'::float8, 1), :'note')
ON CONFLICT (name) DO UPDATE SET home = excluded.home, weight = coalesce(:'weight'::float8, s.weight), note = coalesce(excluded.note, s.note);
INSERT INTO snowid.shard_registry AS r (shard, schema, sequence, epoch, pool, entry_options, home) SELECT shard, schema, sequence, epoch, pool, entry_options, :'home' FROM jsonb_populate_recordset(
 NULL::snowid.shard_registry, :'shards') ON CONFLICT (shard) DO UPDATE SET home = excluded.home, homes = jsonb_set(r.homes, '{-1,home}', to_jsonb(excluded.home)) WHERE r.home IS NULL
 OR r.home IN (SELECT d.home FROM address d JOIN address e ON e.n = d.n JOIN answer a ON a.n = e.i WHERE a.name = :'name' AND a.home <> excluded.home);

-- Why a server cannot go, and what to do; no row if it can.
-- arguments: name registry
\echo fleet_retire_doubts_sql
WITH s AS MATERIALIZED (SELECT k.* FROM snowid.servers v JOIN address d USING (home) JOIN known k USING (n) WHERE v.name = :'name') SELECT what, to_do FROM (
 SELECT 1, format('%s shards live there, the first is %s', count(*), min(shard)), format(CASE WHEN min(s.trouble) IS NULL THEN 'Type first: snowid-fleet drain %s %s'
 WHEN min(s.trouble) ^@ 'it answers: ' THEN 'First clear why it cannot be.' ELSE 'It gives no answer. Bring it back; or promote its standby, or restore it, and type: snowid-fleet add %s NEWHOME %s'
  END, :'name', :'registry') FROM s JOIN (SELECT server AS n, shard FROM lives UNION SELECT n, shard FROM told WHERE lives = 'here') l USING (n) HAVING count(*) > 0
 UNION ALL SELECT 2, format('%s shards are open nowhere, the first is %s', count(*), min(shard)), 'To see more, type: snowid-move audit ' || :'registry'
  FROM lives LEFT JOIN known ON n = server WHERE server IS NULL OR (lives IS DISTINCT FROM 'here' AND facts IS NOT NULL) HAVING count(*) > 0
 UNION ALL SELECT 3, format('moves of %s shards are not finished there, the first is %s', count(*), min(shard)), 'To see what ends each, type: snowid-fleet status ' || :'registry'
  FROM going JOIN s ON s.n IN (source, target) HAVING count(*) > 0
 UNION ALL SELECT 7, format('closed copies of %s shards are there, the first of shard %s', count(*), min(c::int)), 'To see what is only in them, type: snowid-move audit '
  || :'registry' || '; those of snowid.copies there go with DROP SCHEMA' FROM s, jsonb_array_elements_text(facts -> 'closed') c HAVING count(*) > 0
 UNION ALL SELECT 4, 'a row of snowid.placements names it', format('At the directory, type: UPDATE snowid.placements SET servers = array_remove(servers, %1$L) WHERE %1$L = ANY (servers);', :'name')
  FROM snowid.placements WHERE :'name' = ANY (servers)
 UNION ALL SELECT 5, 'its home leads to a standby', format('With the hosts of all, type first: snowid-fleet add %s ''HOSTS target_session_attrs=read-write'' %s', name, :'registry')
  FROM answer WHERE name = :'name' AND facts ->> 'is_standby' = 'true'
 UNION ALL SELECT 6, CASE WHEN trouble ^@ 'it answers: ' THEN trouble ELSE 'it gives no answer, so nobody knows what it has' END,
  format('If it is lost for ever, type at the directory: DELETE FROM snowid.servers WHERE name = %L; '
  'SELECT pg_drop_replication_slot(%L);', :'name', 'snowid_registry_' || :'name') FROM s WHERE facts IS NULL) x (n, what, to_do) ORDER BY n LIMIT 1;
