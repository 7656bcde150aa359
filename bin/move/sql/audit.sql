-- What audit asks of each server, and what it finds in all answers.

-- One server, as a row: what it is, and lists of what it has.  A second address of a server
-- is told by when it was started: a clone has the system identifier, too.
\echo audit_facts_sql
SELECT json_build_object(
 'run', concat_ws(' ', (SELECT system_identifier FROM pg_control_system()), extract(epoch FROM pg_postmaster_start_time()), current_database()),
 'system', (SELECT system_identifier::text FROM pg_control_system()),
 'is_standby', pg_is_in_recovery(),
 -- What split has set, for who may see it; our own sessions have a setting of their own.
 'read_only', CASE WHEN has_table_privilege('pg_file_settings', 'SELECT') AND has_function_privilege('pg_show_all_file_settings()', 'EXECUTE') THEN
   query_to_xml($$SELECT 1 FROM pg_file_settings WHERE name = 'default_transaction_read_only' AND setting = 'on' AND sourcefile LIKE '%postgresql.auto.conf'$$, false, false, '')::text ~ '<row' END,
 'version', (SELECT substring(obj_description(oid) FROM '[0-9.]+$') FROM pg_proc WHERE oid = to_regprocedure('snowid.version()')),
 'servers', ARRAY(SELECT json_build_object('name', name, 'home', home) FROM snowid.servers),
 'shards', ARRAY(SELECT json_build_object('shard', r.shard, 'schema', r.schema, 'home', r.home, 'lives', snowid_internal.lives(r),
   'has_schema', to_regnamespace(quote_ident(r.schema)) IS NOT NULL, 'since', r.homes -> -1 ->> 'since', 'homes', jsonb_path_query_array(r.homes, '$[*].home')) FROM snowid.shard_registry r),
 'moves', ARRAY(SELECT json_build_object('shard', shard, 'schema', schema, 'role', role, 'step', step, 'closed', closed, 'peer', peer, 'since', changed_at,
   'is_source', coalesce(details ->> 'begun_as', role) = 'source', 'move_id', details ->> 'move_id', 'name_made', details ->> 'name', 'reverse_name', details ->> 'reverse_name') FROM snowid.moves WHERE NOT details ? 'stays'),
 'made', ARRAY(SELECT json_build_object('what', what, 'name', name) FROM (
   SELECT 'slot', slot_name FROM pg_replication_slots WHERE database = current_database()
   UNION ALL SELECT 'publication', pubname FROM pg_publication
   UNION ALL SELECT 'subscription', subname FROM pg_subscription WHERE subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())) x (what, name)
  WHERE name ~ '^snowid_(move|back)_\d+_[0-9a-f]{8}$'),
 -- A slot that is ahead of the log: that is a backup's.
 'ahead', ARRAY(SELECT slot_name FROM pg_replication_slots WHERE NOT pg_is_in_recovery() AND database = current_database()
   AND confirmed_flush_lsn > CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_lsn() END),
 'followers', ARRAY(SELECT json_build_object('name', s.subname, 'slot', subslotname, 'enabled', subenabled, 'works', pid IS NOT NULL,
   'lacks', ARRAY(SELECT srrelid::regclass FROM pg_subscription_rel l WHERE l.srsubid = s.oid AND srsubstate <> 'r'))
  FROM pg_subscription s JOIN pg_subscription_rel ON srsubid = s.oid
  LEFT JOIN pg_stat_subscription t ON t.subid = s.oid AND t.relid IS NULL AND t.pid IS NOT NULL
  WHERE srrelid = to_regclass('snowid.shard_registry')));

-- All answers are in a temporary table at the directory, with the addresses that were asked.
-- Those that were not asked yet:
\echo audit_homes_sql
SELECT home FROM snowid.shard_registry WHERE home IS NOT NULL UNION SELECT home FROM snowid.servers
UNION SELECT m ->> 'peer' FROM answer, jsonb_array_elements(facts -> 'moves') m WHERE m ->> 'peer' IS NOT NULL
-- A directory that was put back may not know a server, which those that followed it do.
UNION SELECT s ->> 'home' FROM answer JOIN snowid.servers ON home = address, jsonb_array_elements(facts -> 'servers') s WHERE s ->> 'name' NOT IN (SELECT name FROM snowid.servers)
EXCEPT SELECT address FROM answer ORDER BY 1;

-- Is that an address of old, of a server that a move has met and that answers at another one?
-- arguments: address
\echo audit_former_sql
SELECT bool_and(coalesce((m ->> 'move_id', m ->> 'shard') IN (SELECT o ->> 'move_id', o ->> 'shard' FROM answer b, jsonb_array_elements(b.facts -> 'moves') o
  GROUP BY 1, 2 HAVING count(DISTINCT o ->> 'role') > 1), false))
FROM answer a, jsonb_array_elements(a.facts -> 'moves') m WHERE m ->> 'peer' = :'address'
AND NOT EXISTS (SELECT FROM snowid.shard_registry WHERE home = :'address') AND NOT EXISTS (SELECT FROM snowid.servers WHERE home = :'address');

-- A server that has several addresses is there once, by the first: audit_address leads from each.
-- The result is sorted by what is worst: what is found, where to type, what; and whether that
-- loses nothing, so that --fix may.
-- arguments: registry
\echo audit_findings_sql
WITH audit AS MATERIALIZED (SELECT DISTINCT ON (facts ->> 'run') address AS name, n = 1 AS is_directory, facts
 FROM answer WHERE facts ->> 'is_standby' = 'false' ORDER BY facts ->> 'run', n),
audit_address AS MATERIALIZED (SELECT address, name FROM answer JOIN audit ON answer.facts ->> 'run' = audit.facts ->> 'run'),
-- What a standby has is its primary's, which may not be asked.
audit_missing AS MATERIALIZED (SELECT address, facts IS NOT NULL AS is_standby FROM answer WHERE (facts ->> 'is_standby' = 'false') IS NOT TRUE AND n > 0),
server AS MATERIALIZED (SELECT name, is_directory, f.* FROM audit, jsonb_to_record(facts) f (
  run text, system text, version text, read_only bool, servers jsonb, shards jsonb, moves jsonb, made jsonb, ahead jsonb, followers jsonb)),
-- As a shell takes it.
shell AS MATERIALIZED (SELECT replace(:'registry', $$'$$, $$'\''$$) AS registry),
follower AS MATERIALIZED (SELECT server.name AS server, f.*, EXISTS (SELECT FROM server d WHERE d.is_directory AND d.ahead ? f.slot) AS is_ahead,
  (SELECT format($$snowid-fleet add %s --registry '%s'$$, v.name, registry) FROM snowid.servers v, shell WHERE f.name = 'snowid_registry_' || v.name) AS anew
 FROM server, jsonb_to_recordset(followers) f (name text, slot text, enabled bool, works bool, lacks jsonb)),
shard AS MATERIALIZED (SELECT server.name, is_directory, s.* FROM server, jsonb_to_recordset(shards) s (shard int, schema text, home text, lives text, has_schema bool, since timestamptz, homes jsonb)),
move AS MATERIALIZED (SELECT server.name, m.* FROM server, jsonb_to_recordset(moves) m (
  shard int, schema text, role text, step text, closed bool, peer text, since timestamptz, is_source bool, move_id text, name_made text, reverse_name text)),
directory AS MATERIALIZED (SELECT shard, schema, coalesce((SELECT a.name FROM audit_address a WHERE a.address = s.home), s.home, s.name) AS home
 FROM shard s WHERE is_directory),
-- Where each shard is open, and what a command for its move is.
place AS MATERIALIZED (SELECT d.shard, d.schema, d.home, array_agg(s.name) FILTER (WHERE s.lives = 'here') AS open,
  bool_or(s.name = d.home AND s.lives = 'here') AS is_home, bool_or(m.move_id IS NOT NULL AND step NOT IN ('moved', 'open')) AS is_moving
 FROM directory d LEFT JOIN shard s USING (shard) LEFT JOIN move m ON m.shard = d.shard AND m.name = s.name GROUP BY 1, 2, 3),
typed AS MATERIALIZED (SELECT m.*, o.name AS other,
  format($$--shard %s --from '%s' --to '%s' --registry '%s'$$, (SELECT string_agg(n.shard::text, ',' ORDER BY n.shard) FROM move n WHERE n.name = m.name AND n.move_id = m.move_id),
   replace(CASE WHEN is_source THEN m.name ELSE coalesce(o.name, m.peer) END, $$'$$, $$'\''$$),
   replace(CASE WHEN is_source THEN coalesce(o.name, m.peer) ELSE m.name END, $$'$$, $$'\''$$), registry) AS sides,
  EXISTS (SELECT FROM move n WHERE n.shard = m.shard AND n.name <> m.name AND n.move_id = m.move_id) AS is_told
 FROM shell, move m LEFT JOIN LATERAL (SELECT coalesce((SELECT a.name FROM audit_address a WHERE a.address = m.peer),
   (SELECT min(n.name) FROM move n WHERE n.shard = m.shard AND n.move_id = m.move_id AND n.name <> m.name)) AS name) o ON true WHERE move_id IS NOT NULL),
untold AS MATERIALIZED (SELECT shard, array_agg(name ORDER BY name) AS open FROM shard
 WHERE lives = 'here' AND shard NOT IN (SELECT shard FROM directory) GROUP BY 1)
SELECT what, place, type, is_safe FROM (
 -- A directory that was put back: first what only the others know, which following it would overwrite.
 SELECT -1, format('the directory does not know %s, which %s does%s', v.name, string_agg(s.name, ' and '), CASE WHEN min(a.name) IS NULL THEN ', and which gives no answer: bring it back first' END), NULL,
  format($$snowid-fleet add %s '%s' --registry '%s'$$, v.name, replace(v.home, $$'$$, $$'\''$$), min(registry)), false
 FROM shell, server s JOIN audit_address m ON m.name = s.name JOIN snowid.servers k ON k.home = m.address, jsonb_to_recordset(servers) v (name text, home text) LEFT JOIN audit_address a ON a.address = v.home
 WHERE v.name NOT IN (SELECT name FROM snowid.servers) AND v.home NOT IN (SELECT home FROM snowid.servers) AND v.name ~ '^[a-z][a-z0-9_]{0,29}$'
 AND (a.name IS NULL OR EXISTS (SELECT FROM shard WHERE shard.name = a.name AND lives = 'here')) GROUP BY v.name, v.home
 -- What it writes until it is where it was comes to nobody.
 UNION ALL SELECT 0, format('%s does not follow the directory, which was put back: slot %s is ahead of its log', server, slot), CASE WHEN anew IS NULL THEN server END,
  coalesce(anew, format('drop subscription %I there and the slot at the directory, and create both again.', name)), false
 FROM follower WHERE is_ahead
 UNION ALL SELECT 1, format('shard %s is open at %s, and the directory does not know it', shard, array_to_string(open, ' and ')), NULL,
  format($$snowid-move diff --shard %s --from '%s' --to '%s'; to keep that of %4$s, at %5$s, type: SELECT snowid.fence_shard(%1$s, %4$L); or the other way round$$,
   shard, replace(open[1], $$'$$, $$'\''$$), replace(open[2], $$'$$, $$'\''$$), open[2], open[1]), false
 FROM untold WHERE cardinality(open) > 1
 -- Close what the directory knows elsewhere, if it is open there; unless a move has opened it, which the directory may not know yet.
 -- Nor if it has come there later than the directory knows, which may have been put back, too.
 UNION ALL SELECT 1, format('shard %s is open at %s, and at %s', p.shard, s.name, p.home), CASE WHEN NOT is_newer THEN s.name END,
  CASE WHEN NOT is_newer THEN format('SELECT snowid.fence_shard(%s, %L);', p.shard, p.home)
   ELSE format($$snowid-move diff --shard %s --from '%s' --to '%s'; that of %4$s may be newer; to keep it, at %5$s, type: SELECT snowid.fence_shard(%1$s, %4$L); or the other way round$$,
    p.shard, replace(p.home, $$'$$, $$'\''$$), replace(s.name, $$'$$, $$'\''$$), s.name, p.home) END, NOT is_newer
 FROM place p JOIN shard d ON d.shard = p.shard AND d.is_directory JOIN shard s ON s.shard = p.shard AND s.lives = 'here' AND s.name <> p.home,
  LATERAL (SELECT s.home IS NOT NULL AND s.since > d.since OR NOT EXISTS (SELECT FROM audit_address a WHERE a.name = s.name AND d.homes ? a.address)
   OR EXISTS (SELECT FROM move m WHERE m.shard = p.shard AND m.name = s.name AND role = 'target' AND step = 'open'
    AND NOT EXISTS (SELECT FROM move o WHERE o.shard = m.shard AND o.name = p.home AND o.move_id = m.move_id AND o.role = 'target' AND o.is_source)) AS is_newer) n
 WHERE cardinality(open) > 1 AND is_home
 UNION ALL SELECT 1, format('shard %s is open at %s, and the directory names %s', shard, array_to_string(open, ' and '), home), NULL,
  format('Close all but the right one there: SELECT snowid.fence_shard(%s, ''HOME OF THE RIGHT ONE'');', shard), false
 FROM place WHERE cardinality(open) > 1 AND NOT is_home
 -- The closed copy of a move may be the last one.
 UNION ALL SELECT 2, format('shard %s is open nowhere', p.shard), coalesce(kept, p.home),
  coalesce(CASE WHEN kept IS NOT NULL THEN format('UPDATE snowid.moves SET peer = NULL WHERE shard = %s; SELECT snowid.unfence_shard(%1$s);', p.shard) END,
   (SELECT 'snowid-move ' || CASE WHEN bool_or(step = 'ready') OR bool_or(role = 'target' AND step = 'open') THEN 'move ' ELSE 'abort ' END || min(sides)
   FROM typed t WHERE t.shard = p.shard), (SELECT format('SELECT snowid.unfence_shard(%s);', p.shard) FROM move m WHERE m.shard = p.shard AND m.name = p.home AND m.closed),
   format('Restore it: no server has it. Or, if it was dropped on purpose, at the directory: DELETE FROM snowid.shard_registry WHERE shard = %s;', p.shard)), false
 FROM place p LEFT JOIN LATERAL (SELECT (array_agg(name ORDER BY since DESC))[1] AS kept FROM move m WHERE m.shard = p.shard AND move_id IS NOT NULL HAVING bool_and(role = 'source' AND step = 'moved' AND move_id IS NOT NULL)) k ON true WHERE open IS NULL AND NOT EXISTS (SELECT FROM audit_missing)
 -- Only who knows that the other server will never come back may open its copy; not while the one that the directory names may have it.
 UNION ALL SELECT 2, format('shard %s has moved to %s, which gives no answer; if that is lost for ever, the copy is the last', m.shard, m.peer), m.name,
  format('UPDATE snowid.moves SET peer = NULL WHERE shard = %s; SELECT snowid.unfence_shard(%1$s);', m.shard), false
 FROM place p JOIN move m USING (shard) WHERE open IS NULL AND role = 'source' AND step = 'moved' AND move_id IS NOT NULL AND m.peer IN (SELECT address FROM audit_missing WHERE NOT is_standby)
 AND p.home NOT IN (SELECT address FROM audit_missing) AND NOT EXISTS (SELECT FROM move n WHERE n.shard = m.shard AND n.since > m.since)
 -- What the directory, and other servers, say of a shard that is open in one place.
 UNION ALL SELECT 3, format('shard %s is open at %s, and the directory names %s', shard, open[1], home), (SELECT name FROM server WHERE is_directory),
  format('UPDATE snowid.shard_registry SET home = %L WHERE shard = %s;', open[1], shard), true
 FROM place WHERE cardinality(open) = 1 AND open[1] <> home AND NOT is_moving AND NOT EXISTS (SELECT FROM audit_missing)
 UNION ALL SELECT 3, format('shard %s is open at %s, and %s names %s', p.shard, open[1], s.name, s.home), s.name,
  format('UPDATE snowid.shard_registry SET home = %L WHERE shard = %s;', open[1], p.shard), true
 FROM place p JOIN shard s ON s.shard = p.shard LEFT JOIN audit_address a ON a.address = s.home
 WHERE is_home AND cardinality(open) = 1 AND NOT is_moving AND NOT s.is_directory AND s.name <> open[1] AND s.home IS NOT NULL AND coalesce(a.name, s.home) <> open[1]
 AND s.name NOT IN (SELECT server FROM follower WHERE is_ahead)
 UNION ALL SELECT 3, format('shard %s is open at %s, and the directory does not know it', shard, open[1]), NULL, format($$snowid-fleet add %s --registry '%s'$$, min(v.name), min(registry)), false
 FROM shell, untold JOIN audit_address a ON a.name = open[1] JOIN snowid.servers v ON v.home = a.address WHERE cardinality(open) = 1 GROUP BY shard, open
 -- Copies that are closed by hand, as of a server that was restored.  Only who knows what was written to one drops it.
 UNION ALL SELECT 4, format('%s has a closed copy of shard %s, which is open at %s', m.name, m.shard, open[1]), NULL,
  format($$snowid-move diff --shard %s --from '%s' --to '%s'; rows only at --from are nowhere else; if none is needed, at %s, type: SELECT snowid.drop_shard(%1$s, true);$$,
   m.shard, replace(m.name, $$'$$, $$'\''$$), replace(open[1], $$'$$, $$'\''$$), m.name), false
 FROM move m JOIN place p ON p.shard = m.shard AND cardinality(open) = 1 AND open[1] <> m.name WHERE m.closed AND move_id IS NULL
 -- Moves: one that is done, and one of which the other server knows nothing.
 UNION ALL SELECT 5, format('the copy of shard %s at %s can go', m.shard, m.name), NULL, 'snowid-move finish ' || sides, false
 FROM typed m JOIN place p ON p.shard = m.shard AND cardinality(open) = 1 AND open[1] = other WHERE role = 'source' AND step = 'moved' AND is_told
 UNION ALL SELECT 6, format('the journal of %s has a move of shard %s (%s, %s), of which %s knows nothing', m.name, m.shard, role, step, coalesce(other, peer)), NULL,
  CASE WHEN role = 'source' AND step = 'moved' AND p.open IS NOT NULL THEN
    format($$snowid-move diff --shard %s --from '%s' --to '%s' --as '%6$s'; rows only at --to are nowhere else; if none is needed, at %5$s, type: DROP SCHEMA %4$I CASCADE; DELETE FROM snowid.moves WHERE shard = %1$s;$$,
     m.shard, replace(p.open[1], $$'$$, $$'\''$$), replace(m.name, $$'$$, $$'\''$$), m.schema, m.name, replace(m.schema, $$'$$, $$'\''$$))
   WHEN role = 'target' AND step = 'open' AND p.open[1] <> m.name AND EXISTS (SELECT FROM shard s WHERE s.name = m.name AND s.shard = m.shard AND NOT has_schema) THEN
    format('at %s: DELETE FROM snowid.moves WHERE shard = %s;', m.name, m.shard)
   ELSE format('snowid-move %s %s', CASE WHEN role = 'target' AND step = 'open' THEN 'finish' ELSE 'abort' END, sides) END, false
 FROM typed m LEFT JOIN place p USING (shard)
 WHERE NOT is_told AND NOT EXISTS (SELECT FROM audit_missing) AND (role <> 'source' OR step <> 'moved' OR p.shard IS NULL OR p.open IS NOT NULL)
 -- What no move uses any more.
 UNION ALL SELECT 7, format('%s has a %s that no move uses: %s', server.name, x.what, x.name), server.name, CASE x.what
  WHEN 'slot' THEN format('SELECT pg_drop_replication_slot(%L);', x.name)
  WHEN 'publication' THEN format('DROP PUBLICATION %I;', x.name)
  ELSE format('ALTER SUBSCRIPTION %1$I DISABLE; ALTER SUBSCRIPTION %1$I SET (slot_name = NONE); DROP SUBSCRIPTION %1$I;', x.name) END, true
 FROM server, jsonb_to_recordset(made) x (what text, name text)
 WHERE NOT EXISTS (SELECT FROM audit_missing) AND NOT EXISTS (SELECT FROM move WHERE x.name IN (name_made, reverse_name))
 UNION ALL SELECT 7, format('%s is read-only by ALTER SYSTEM, and is not being split off', name), name,
  'ALTER SYSTEM RESET default_transaction_read_only; SELECT pg_reload_conf();', false
 FROM server WHERE read_only AND NOT EXISTS (SELECT FROM move m WHERE m.step IN ('fenced', 'ready'))
 -- Servers.
 UNION ALL SELECT 8, format('%s is a standby', address), (SELECT name FROM server WHERE is_directory),
  format('UPDATE snowid.shard_registry SET home = ''host=… target_session_attrs=read-write'' WHERE home = %L; with the hosts of all', address) || CASE WHEN address IN (SELECT home FROM snowid.servers) THEN '; and the same in snowid.servers' ELSE '' END, false FROM audit_missing WHERE is_standby
 UNION ALL SELECT 8, format('%s has snowid %s, and the directory %s', s.name, coalesce(s.version, 'without a version'), d.version), s.name, 'ALTER EXTENSION snowid UPDATE;', false
 FROM server s JOIN server d ON d.is_directory WHERE s.version IS DISTINCT FROM d.version
 UNION ALL SELECT 9, format('pool %s leads to shards on several servers: %s', pool, string_agg(DISTINCT home, ' and ')), (SELECT name FROM server WHERE is_directory),
  format('UPDATE snowid.shard_registry SET pool = … WHERE shard IN (%s);', string_agg(shard::text, ', ' ORDER BY shard)), false
 FROM snowid.shard_registry r WHERE pool IS NOT NULL GROUP BY pool HAVING count(DISTINCT coalesce((SELECT a.name FROM audit_address a WHERE a.address = r.home), r.home, '')) > 1
 UNION ALL SELECT 10, format('subscription %s of %s, to the registry, is %s', name, server, CASE WHEN enabled THEN 'not at work' ELSE 'disabled' END),
  CASE WHEN anew IS NULL OR NOT enabled THEN server END, CASE WHEN NOT enabled THEN format('ALTER SUBSCRIPTION %I ENABLE;', name)
  ELSE coalesce(anew, 'See the server log for the reason; if its slot is lost, drop and create it again.') END, false
 FROM follower WHERE NOT (enabled AND works)
 UNION ALL SELECT 10, format('%s has not yet got all of %s from the directory', server, tables), CASE WHEN anew IS NULL THEN server END,
  coalesce(anew, 'See the server log for the reason.'), false
 FROM follower, LATERAL (SELECT string_agg(t, ', ' ORDER BY t) FROM jsonb_array_elements_text(lacks) t) l (tables) WHERE tables IS NOT NULL AND NOT is_ahead
 UNION ALL SELECT 10, format('the registry of %s lacks shards of the directory: %s', server, string_agg(d.shard::text, ', ')), CASE WHEN min(anew) IS NULL THEN server END,
  coalesce(min(anew), format('ALTER SUBSCRIPTION %I REFRESH PUBLICATION;', min(f.name))), false
 FROM follower f, directory d
 WHERE server NOT IN (SELECT name FROM server WHERE is_directory) AND NOT is_ahead AND NOT EXISTS (SELECT FROM shard s WHERE s.name = server AND s.shard = d.shard) GROUP BY server) found (rank, what, place, type, is_safe)
ORDER BY rank, what;
