-- What status makes of all answers: one document, as which --json and the page show it.
-- arguments: directory findings registry identity
\echo status_document_sql
CREATE TEMP TABLE document AS WITH shard_at AS MATERIALIZED (SELECT n, s.* FROM known, jsonb_to_recordset(facts -> 'moves') s (shard int, bytes float8)),
 move AS MATERIALIZED (SELECT id, array_agg(g.shard ORDER BY g.shard) AS shards, min(leaves) AS leaves, min(enters) AS enters, min(step) AS step, min(since) AS since,
   bool_or(has_program OR (nsides = 1 AND least(g.source, g.target) >= 0 AND NOT EXISTS (SELECT FROM known WHERE facts IS NULL))) AS is_told, bool_or(is_back) AS is_back,
   bool_or(step IN ('moved', 'open')) AS is_moved, bool_or(NOT is_back AND (keeps OR outcome ~ 'kept|to keep$')) AND bool_and(g.shard IN (SELECT shard FROM lives WHERE lives = 'here')) AS is_kept,
   sum(x.bytes) AS bytes, sum(y.bytes) AS done, min(begun) AS begun, min(f.shown) FILTER (WHERE f.facts IS NULL) AS away, min(t.shown) FILTER (WHERE t.facts IS NULL) AS lost,
   format($$--shard %s --from '%s' --to '%s' $$, string_agg(g.shard::text, ',' ORDER BY g.shard), replace(coalesce(min(f.name), min(f.home), CASE WHEN min(g.source) < 0 THEN min(peer) END,
     :'directory'), $$'$$, $$'\''$$), replace(coalesce(min(t.name), min(t.home), CASE WHEN min(g.target) < 0 THEN min(peer) END, :'directory'), $$'$$, $$'\''$$)) || :'registry' AS sides
  FROM going g LEFT JOIN shard_at x ON x.n = g.leaves AND x.shard = g.shard LEFT JOIN shard_at y ON y.n = g.enters AND y.shard = g.shard LEFT JOIN known f ON f.n = g.source
  LEFT JOIN known t ON t.n = g.target LEFT JOIN snowid.fleet_moves l ON l.at::text = fleet_move GROUP BY id)
SELECT jsonb_build_object('at', date_trunc('second', clock_timestamp()), 'directory', :'directory',
 'servers', ARRAY(SELECT jsonb_build_object('name', shown, 'home', home, 'weight', weight, 'state', state, 'note', note, 'trouble', trouble,
   'shards', l.shards, 'bytes', l.bytes, 'rows', l.rows, 'inserts', l.inserts, 'standby_lag', facts -> 'standby_lag', 'slots', coalesce(facts -> 'slots', '[]'),
   'follows', weight IS NULL OR facts ->> 'run' = :'identity' OR (facts -> 'follows' IS DISTINCT FROM 'false' AND active AND confirmed_flush_lsn <= pg_current_wal_lsn()
    AND EXISTS (SELECT FROM pg_publication_tables WHERE pubname = 'shard_registry' AND schemaname = 'snowid' AND tablename = 'shard_registry')) IS TRUE,
   'waits', coalesce(facts -> 'waits', '[]'), 'registry_lag', pg_wal_lsn_diff(greatest(current_setting('snowid_fleet.wal')::pg_lsn, confirmed_flush_lsn), confirmed_flush_lsn))
  FROM known k LEFT JOIN pg_replication_slots ON slot_name = 'snowid_registry_' || k.name, LATERAL (SELECT CASE WHEN k.facts IS NOT NULL THEN 0 END) z (z),
  LATERAL (SELECT count(*) AS shards, coalesce(sum(bytes), z) AS bytes, coalesce(sum(rows), z) AS rows, sum(inserts) AS inserts FROM lives WHERE server = k.n) l ORDER BY k.n),
 'shards', ARRAY(SELECT jsonb_build_object('shard', shard, 'schema', schema, 'pool', pool, 'server', coalesce(shown, lives.home), 'lives',
   CASE WHEN facts IS NULL THEN 'no answer' ELSE coalesce(lives.lives, 'nowhere') END, 'bytes', bytes, 'rows', rows, 'inserts', inserts) FROM lives LEFT JOIN known k ON k.n = server ORDER BY shard),
 'moves', ARRAY(SELECT jsonb_build_object('shards', shards, 'from', f.shown, 'to', t.shown, 'step', step, 'since', since, 'bytes', bytes, 'done', done,
   'seconds_left', CASE WHEN done > 0 AND bytes > 0 THEN round(extract(epoch FROM clock_timestamp() - begun) * greatest(bytes - done, 0) / done) END)
  FROM move LEFT JOIN known f ON f.n = leaves LEFT JOIN known t ON t.n = enters WHERE NOT is_moved ORDER BY since),
 'copies', ARRAY(SELECT jsonb_build_object('shards', shards, 'at', shown, 'since', since, 'kept', is_kept, 'finish', 'snowid-move finish ' || sides)
  FROM move LEFT JOIN known ON n = leaves WHERE is_moved ORDER BY since), 'findings', ARRAY(SELECT f FROM jsonb_array_elements_text(:'findings') WITH ORDINALITY e (f, n) WHERE NOT EXISTS (
    SELECT FROM move WHERE is_kept AND is_moved AND substring(f FROM '^FAILED the copy of shard (\d+) at .* can go')::int = ANY (shards)) ORDER BY n)
  || ARRAY(SELECT format('FAILED no program goes on with the move of shards %s: %s since %s%s type: snowid-move %s %s%s%s', array_to_string(shards, ','), step,
    date_trunc('second', since), '; bring ' || coalesce(away, lost) || ' back, and', CASE WHEN is_back THEN 'back' ELSE 'move' END, sides,
    (SELECT string_agg(format($$ --pooler '%s'$$, replace(console, $$'$$, $$'\''$$)), '') || ' --pooler-file PATH' FROM snowid.poolers),
    CASE WHEN NOT is_back AND step NOT IN ('fenced', 'ready') THEN '; or, if ' || lost || ' is lost for ever: snowid-move abort ' || sides END)
   FROM move WHERE NOT is_moved AND NOT is_told ORDER BY since)
  || ARRAY(SELECT format('slot %s of the directory is that of no %s, and keeps %s of log; type there: SELECT pg_drop_replication_slot(%1$L);', slot_name,
    CASE WHEN slot_name ^@ 'pg_' THEN 'copy that goes on' ELSE 'server' END, pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)))
   FROM pg_replication_slots WHERE slot_name ~ '^(snowid_registry_|pg_\d+_sync_\d+_\d+$)' AND NOT active
    AND database = current_database() AND NOT EXISTS (SELECT FROM snowid.servers WHERE slot_name = 'snowid_registry_' || name))) AS document;

-- arguments: registry
\echo status_text_sql
SELECT string_agg(regexp_replace(line, '[\u0001-\u001f\u007f-\u009f]', '?', 'g'), E'\n' ORDER BY part, n) FROM document, LATERAL ( SELECT 1, row_number() OVER (), CASE WHEN s ->> 'trouble' IS NULL
   THEN format('%-12s  %5s shards  %9s  %10s rows  %6s/s  %s%s', s ->> 'name', s ->> 'shards', pg_size_pretty((s ->> 'bytes')::numeric), s ->> 'rows',
    coalesce(round((s ->> 'inserts')::numeric)::text, '-'), coalesce(s ->> 'state', 'no name'), CASE WHEN NOT (s ->> 'follows')::bool THEN '  registry NOT FOLLOWED: type: snowid-fleet add '
     || (s ->> 'name') || ' ' || :'registry' ELSE '  registry ' || pg_size_pretty((s ->> 'registry_lag')::numeric) || ' behind' END)
   ELSE format('%-12s  %5s shards  %s', s ->> 'name', s ->> 'shards', replace('NO ANSWER: ' || (s ->> 'trouble'), 'NO ANSWER: it answers', 'NOT KNOWN')) END
   || coalesce('  (' || (s ->> 'note') || ')', '') FROM jsonb_array_elements(document -> 'servers') s
 UNION ALL SELECT 2, row_number() OVER (), format('moving   shards %s from %s to %s: %s since %s%s%s', (SELECT string_agg(x, ',') FROM jsonb_array_elements_text(m -> 'shards') x),
   m ->> 'from', m ->> 'to', m ->> 'step', date_trunc('second', (m ->> 'since')::timestamptz),
   format(', %s of %s', coalesce(pg_size_pretty((m ->> 'done')::numeric), '?'), coalesce(pg_size_pretty((m ->> 'bytes')::numeric), '?')), ', about ' || (m ->> 'seconds_left') || ' s left')
  FROM jsonb_array_elements(document -> 'moves') m
 UNION ALL SELECT 3, row_number() OVER (), format('waiting  at %s: %s', s ->> 'name', w) FROM jsonb_array_elements(document -> 'servers') s, jsonb_array_elements_text(s -> 'waits') w
 UNION ALL SELECT 4, row_number() OVER (), format('copy     of shards %s at %s, closed since %s%s', (SELECT string_agg(x, ',') FROM jsonb_array_elements_text(c -> 'shards') x),
   c ->> 'at', date_trunc('second', (c ->> 'since')::timestamptz), CASE WHEN (c ->> 'kept')::bool THEN ', kept; to drop it, type: ' || (c ->> 'finish') END)
  FROM jsonb_array_elements(document -> 'copies') c
 UNION ALL SELECT 5, row_number() OVER (), format('slot     %s at %s keeps %s of log%s', l ->> 'name', s ->> 'name', pg_size_pretty((l ->> 'kept')::numeric),
   CASE WHEN (l ->> 'lost')::bool THEN ', and has lost some' WHEN NOT (l ->> 'active')::bool THEN '; nobody reads it' END)
  FROM jsonb_array_elements(document -> 'servers') s, jsonb_array_elements(s -> 'slots') l
 UNION ALL SELECT 0, 0, 'no servers and no shards; to begin, type: snowid-fleet add NAME HOME ' || :'registry' WHERE document -> 'servers' = '[]'
 UNION ALL SELECT 6, row_number() OVER (), f FROM jsonb_array_elements_text(document -> 'findings') f) x (part, n, line);
