-- Long queries that are no checks.
\ir common.sql

\echo standby_name_sql
:standby_name;

-- arguments: schemas
\set users_of :'schemas'
\echo outside_users_sql
:outside_users;

-- Code of lesser roles, but for our own, that rows would run.
-- arguments: schemas
\echo lesser_code_sql
WITH :called_code
SELECT concat_ws(' ', caller, code) FROM called WHERE NOT is_super ORDER BY 1 LIMIT 1;

-- What makes definitions again in another place could find other code by the names that they have.
-- arguments: schemas
\echo code_looked_for_sql
:code_looked_for;

-- arguments: other
\echo better_fits_sql
:better_fits ORDER BY 1 LIMIT 1;

\echo trusted_roles_sql
:trusted_roles;

-- What keeps owners who are no superusers from adding an index or statistics, of which planning runs what is
-- constant; NULL if there are none, or we are none.  On a standby it cannot be locked, but nothing changes while
-- replay is paused.
-- arguments: schema names
\echo definitions_lock_sql
SELECT CASE WHEN NOT pg_is_in_recovery() THEN format('LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE', array_to_string(:'names'::text[], ', ONLY ')) ELSE '' END
WHERE cardinality(:'names'::text[]) > 0 AND CASE WHEN pg_is_in_recovery() THEN pg_get_wal_replay_pause_state() <> 'paused' ELSE true END AND EXISTS (SELECT FROM pg_roles WHERE rolname = current_user AND rolsuper)
AND EXISTS (SELECT FROM pg_namespace n JOIN pg_class c ON relnamespace = n.oid WHERE nspname = :'schema'
 AND (relowner NOT IN (:trusted_roles) OR nspowner NOT IN (:trusted_roles)));

-- Names that do not lead to a table which that session has locked so.
-- arguments: process names
\echo not_held_sql
SELECT string_agg(t, ', ') FROM unnest(:'names'::text[]) t LEFT JOIN (pg_locks l JOIN pg_class c ON c.oid = l.relation AND relkind IN ('r', 'p'))
 ON c.oid = to_regclass(t) AND pid = :'process' AND mode = 'ShareUpdateExclusiveLock' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
WHERE c.oid IS NULL;

-- What slots keep, and how far who reads them is.
-- arguments: name reverse_name
\echo shown_slots_sql
SELECT slot_name, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint >> 20,
 coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint || ' bytes behind', 'not connected')
FROM pg_replication_slots LEFT JOIN pg_stat_replication ON pid = active_pid
WHERE slot_name IN (:'name', :'reverse_name');

-- The journal's shards: the id of the move, and its sides as it was begun; no id if closed by hand.
-- arguments: home
\echo journal_moves_sql
SELECT details ->> 'move_id', coalesce(details ->> 'from', CASE WHEN is_source THEN :'home' ELSE peer END),
 coalesce(details ->> 'to', CASE WHEN is_source THEN peer ELSE :'home' END), shard
FROM snowid.moves, LATERAL (SELECT coalesce(details ->> 'begun_as', role) = 'source') x (is_source)
WHERE NOT details ? 'stays'
ORDER BY min(shard) OVER (PARTITION BY details ->> 'move_id'), 1, shard;

-- Schemas that are gone in the middle of their move, and have no other name.
-- arguments: numbers
\echo dropped_in_move_sql
SELECT string_agg(quote_ident(schema), ', ' ORDER BY shard) FROM snowid.moves WHERE shard IN (:'numbers')
AND NOT EXISTS (SELECT FROM pg_namespace WHERE oid = coalesce((details ->> 'schema_oid')::oid, to_regnamespace(quote_ident(schema))));

-- Takes away what the role's default privileges would give to what it makes, and gives
-- them back: pg_dump counts on those of PostgreSQL.
\echo default_privileges_sql
SELECT string_agg(plain, '; '), string_agg(own, '; ') FROM pg_default_acl,
CAST((CASE defaclobjtype WHEN 'r' THEN 'TABLES' WHEN 'S' THEN 'SEQUENCES' WHEN 'f' THEN 'ROUTINES' WHEN 'T' THEN 'TYPES' WHEN 'n' THEN 'SCHEMAS'
 ELSE 'LARGE OBJECTS' END) AS text) kind, LATERAL (
 SELECT concat_ws('; ', string_agg(take, '; ') FILTER (WHERE is_own), string_agg(give, '; ') FILTER (WHERE NOT is_own)),
  concat_ws('; ', string_agg(take, '; ') FILTER (WHERE NOT is_own), string_agg(give, '; ') FILTER (WHERE is_own))
 FROM (SELECT true, (aclexplode(defaclacl)).* UNION ALL SELECT false, (aclexplode(acldefault(CASE defaclobjtype WHEN 'S' THEN 's' ELSE defaclobjtype END, defaclrole))).*)
  a (is_own, grantor, grantee, right_, further), CAST(CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END AS text) who,
 LATERAL (SELECT format('ALTER DEFAULT PRIVILEGES REVOKE ALL ON %s FROM %s', kind, who),
  format('ALTER DEFAULT PRIVILEGES GRANT %s ON %s TO %s%s', right_, kind, who, CASE WHEN further THEN ' WITH GRANT OPTION' END)) c (take, give)) x (plain, own)
WHERE defaclnamespace = 0 AND defaclrole = (SELECT oid FROM pg_roles WHERE rolname = current_user);

-- Tables of which rows can go in binary form to a server of the same version: each type, and
-- what that is made of, can be sent, is no name of an object nor XML, whose texts say more,
-- and is built in, made of such, or of an extension whose version is the same there.
-- arguments: schemas extensions
\echo binary_tables_sql
WITH RECURSIVE made_of (rel, typ) AS (
 SELECT attrelid, atttypid FROM pg_attribute JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = relnamespace
 WHERE nspname IN (:'schemas') AND relkind = 'r' AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
 UNION
 SELECT rel, x FROM made_of JOIN pg_type t ON t.oid = typ, LATERAL (
  VALUES (typbasetype), (typelem) UNION ALL SELECT rngsubtype FROM pg_range WHERE t.oid IN (rngtypid, rngmultitypid)
  UNION ALL SELECT atttypid FROM pg_attribute WHERE attrelid = typrelid AND attnum > 0 AND NOT attisdropped) o (x) WHERE x <> 0)
SELECT rel FROM made_of JOIN pg_type t ON t.oid = typ
LEFT JOIN pg_depend d ON d.classid = 'pg_type'::regclass AND d.objid = typ AND d.deptype = 'e' LEFT JOIN pg_extension e ON e.oid = d.refobjid
GROUP BY rel HAVING bool_and(typsend <> 0 AND typreceive <> 0
 AND NOT (typnamespace = 'pg_catalog'::regnamespace AND (typname LIKE 'reg%' OR typname = 'xml'))
 AND (typ < 16384 OR typtype <> 'b' OR typcategory = 'A' OR concat(extname, ' ', extversion) = ANY (:'extensions'::text[])));

-- Materialized views, each after those that it reads: it reaches all that they do.
\echo filled_views_sql
WITH RECURSIVE reach (view, read) AS (
 SELECT c.oid, c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
 WHERE nspname = ANY (:'schemas') AND relkind = 'm' AND relispopulated
 UNION
 SELECT view, refobjid FROM reach JOIN pg_rewrite r ON ev_class = read
 JOIN pg_depend ON classid = r.tableoid AND objid = r.oid AND refclassid = 'pg_class'::regclass)
SELECT format('REFRESH MATERIALIZED VIEW %1$s; ANALYZE %1$s', view::regclass) FROM reach GROUP BY view ORDER BY count(*), view;

-- Names for closed copies that are called as their shards, and statements that give
-- them.
-- arguments: schemas numbers
\echo new_names_sql
SELECT format('ALTER SCHEMA %I RENAME TO %I; UPDATE snowid.moves SET schema = %L WHERE shard = %s', old, new, new, shard), new
FROM unnest(ARRAY[:'numbers']::int[], ARRAY[:'schemas']) s (shard, old), LATERAL (
 SELECT name FROM generate_series(0, 1000) i, LATERAL (SELECT snowid_internal.clip_name(old, '_moved' || coalesce(nullif(i, 0)::text, ''))) n (name)
 WHERE NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = name) ORDER BY i LIMIT 1) x (new) ORDER BY shard;

-- Does a statement that was waiting when a shard was closed still use its tables' names?
-- arguments: numbers
\echo users_of_names_sql
SELECT EXISTS (SELECT FROM pg_stat_activity a, snowid.moves m
 WHERE m.shard IN (:'numbers') AND a.state = 'active' AND a.query_start <= m.changed_at
 AND a.backend_type = 'client backend' AND a.pid <> pg_backend_pid()
 AND EXISTS (SELECT FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE l.pid = a.pid AND n.nspname = m.schema
  AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')));

-- Tables of closed copies that the fence does not have.
\echo newer_tables_sql
SELECT string_agg(format('%I.%I', n.nspname, c.relname), ', ')
FROM snowid.moves m JOIN pg_namespace n ON n.nspname = m.schema JOIN pg_class c ON c.relnamespace = n.oid
WHERE m.shard IN (:'numbers') AND c.relkind IN ('r', 'p')
AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND tgname = 'snowid_fence' AND tgenabled <> 'D');

-- Writes a home into the registry of all servers, and says which shards it lacks.
-- arguments: home schemas numbers
\echo tell_registry_sql
WITH told AS (UPDATE snowid.shard_registry SET home = :'home' WHERE shard IN (:'numbers') RETURNING shard)
SELECT shard, format('INSERT INTO snowid.shard_registry (shard, schema, home) VALUES (%s, %L, %L);', shard, schema, :'home')
FROM unnest(ARRAY[:'numbers']::int[], ARRAY[:'schemas']) s (shard, schema) WHERE shard NOT IN (SELECT shard FROM told);

-- Publications that have had tables of the shards, and what they had.
-- arguments: reverse_name numbers
\echo other_publications_sql
WITH theirs AS (
 SELECT n.oid, r.schema FROM snowid.moves m JOIN snowid.shard_registry r USING (shard) JOIN pg_namespace n ON nspname = m.schema
 WHERE m.shard IN (:'numbers'))
SELECT pubname, format('TABLE %s', string_agg(format('%I.%I', schema, relname), ', ' ORDER BY schema, relname))
FROM theirs n JOIN pg_class c ON relnamespace = n.oid JOIN pg_publication_rel ON prrelid = c.oid
JOIN pg_publication p ON p.oid = prpubid WHERE pubname <> :'reverse_name' GROUP BY pubname
UNION ALL SELECT pubname, format('TABLES IN SCHEMA %s', string_agg(quote_ident(schema), ', ' ORDER BY schema))
FROM theirs n JOIN pg_publication_namespace ON pnnspid = n.oid JOIN pg_publication p ON p.oid = pnpubid GROUP BY pubname ORDER BY 1;

-- What schemas say of themselves while a move has them, which nobody else can have them say: whose they are.  What
-- one had them say before, to whom they belonged, is of no such move.
SELECT $$
pg_namespace n JOIN pg_roles o ON o.oid = nspowner AND (rolsuper OR rolname = current_user),
LATERAL (SELECT obj_description(n.oid, 'pg_namespace'), format('snowid: owner at move %s ', :'move')) d (said, mark),
LATERAL (SELECT CASE WHEN starts_with(split_part(said, E'\n', 2), mark) THEN substr(split_part(said, E'\n', 2), length(mark) + 1)::jsonb END) x (noted)
$$ AS our_schemas \gset

-- Makes the statements that give schemas back to those.
-- arguments: schemas move
\echo give_back_sql
SELECT string_agg(format('COMMENT ON SCHEMA %1$I IS %2$L; ALTER SCHEMA %1$I OWNER TO %3$I', nspname, nullif(regexp_replace(said, '^[^\n]*\n[^\n]*\n?', ''), ''), noted ->> 'owner') || coalesce((
 SELECT string_agg(format('; GRANT %s ON SCHEMA %I TO %s%s', CASE r ->> 'right' WHEN 'USAGE' THEN 'USAGE' ELSE 'CREATE' END, nspname,
  coalesce(quote_ident(r ->> 'to'), 'PUBLIC'), CASE WHEN (r ->> 'further')::boolean THEN ' WITH GRANT OPTION' END), '')
 FROM jsonb_array_elements(noted -> 'rights') r), ''), '; ')
FROM :our_schemas WHERE nspname IN (:'schemas') AND noted IS NOT NULL;

-- Carries the states of sequences into the journal of the server that opens them, and
-- says which shards have not the same sequences there.
-- arguments: states
\echo carry_sequences_sql
WITH carried AS (
 UPDATE snowid.moves m SET details = jsonb_set(details, '{sequences}', (
  SELECT coalesce(jsonb_object_agg(key, value || jsonb_build_object('last', s.value -> key -> 'last', 'called', s.value -> key -> 'called')), '{}')
  FROM jsonb_each(details -> 'sequences') e))
 FROM jsonb_each(:'states') s WHERE m.shard = s.key::int RETURNING m.shard, details -> 'sequences' AS here, s.value AS there)
SELECT string_agg(shard::text, ', ') FROM carried WHERE EXISTS (
 SELECT FROM jsonb_each(there) t FULL JOIN jsonb_each(here) h USING (key)
 WHERE t.key IS NULL OR h.key IS NULL OR jsonb_typeof(h.value -> 'last') = 'null');

-- Pairs of shards of which neither may be open without the other, one of them given: foreign keys, and
-- columns that take their numbers from another's sequence.
-- arguments: numbers
\echo keys_sql
SELECT f.shard, t.shard, min(what) FROM (
 SELECT connamespace, relnamespace, format('foreign key %s of %s', quote_ident(conname), conrelid::regclass)
 FROM pg_constraint JOIN pg_class p ON p.oid = confrelid WHERE contype = 'f' AND conparentid = 0
 UNION ALL SELECT c.relnamespace, s.relnamespace, pg_describe_object(a.tableoid, a.oid, 0)
 FROM pg_class s JOIN pg_depend ON refclassid = s.tableoid AND refobjid = s.oid AND relkind = 'S'
 JOIN pg_attrdef a ON (classid, objid) = (a.tableoid, a.oid) JOIN pg_class c ON c.oid = adrelid) k (leads_from, leads_to, what)
JOIN pg_namespace fn ON fn.oid = leads_from JOIN pg_namespace tn ON tn.oid = leads_to
JOIN snowid.shard_registry f ON f.schema = fn.nspname JOIN snowid.shard_registry t ON t.schema = tn.nspname
WHERE f.shard <> t.shard AND (f.shard IN (:'numbers') OR t.shard IN (:'numbers')) GROUP BY 1, 2 ORDER BY 1, 2;

-- Pairs of shards of which one has what needs the other: such keys first, then views, triggers, types and so on.
-- arguments: numbers
\echo ties_sql
WITH :objects, part AS MATERIALIZED (
 SELECT classid, objid, shard FROM object JOIN pg_namespace n ON n.oid = namespace JOIN snowid.shard_registry ON schema = nspname WHERE shard IN (:'numbers'))
SELECT f.shard, t.shard, bool_or(refclassid = 'pg_class'::regclass AND f.classid IN ('pg_constraint'::regclass, 'pg_attrdef'::regclass)) AS is_key
FROM part f JOIN pg_depend d ON (f.classid, f.objid) = (d.classid, d.objid) JOIN part t ON (t.classid, t.objid) = (refclassid, refobjid)
WHERE f.shard <> t.shard GROUP BY 1, 2 ORDER BY is_key DESC, 1, 2;

-- The shared tables of shards, with a query for what foreign keys lead to, and the shards.
-- arguments: schemas
\echo shared_tables_sql
SELECT confrelid::regclass, format('SELECT textin(record_out(ROW(%s))) FROM %s t', columns, confrelid::regclass), array_agg(DISTINCT shard)
FROM (:shared_keys) k JOIN pg_namespace n ON n.oid = connamespace JOIN snowid.shard_registry ON schema = nspname,
LATERAL (SELECT string_agg('t.' || quote_ident(attname), ', ' ORDER BY attname)
 FROM pg_attribute WHERE attrelid = confrelid AND attnum = ANY (confkey)) a (columns) GROUP BY confrelid, columns ORDER BY 1, 2;

-- Why a table is not read.
-- arguments: table
\echo untrusted_owner_sql
WITH RECURSIVE shared (oid) AS (SELECT to_regclass(:'table')::oid), :untrusted SELECT what || ' (--trust-owners)' FROM untrusted;

-- A query for each shard that says what each of its tables has: a count, and perhaps
-- a checksum, which does not depend on the order.  Of the columns that the source has,
-- as texts, since the target may have wider types, and more of them.
--
-- Not by a cast to text: a table's owner can make that a function of his own, which a
-- superuser would run.  Two encodings are compared in one.
-- arguments: schemas what name
\echo comparisons_sql
SELECT nspname, count(*), string_agg(format($$SELECT %L COLLATE "C", concat(count(*), ' rows'%s) FROM ONLY %I.%I t$$, relname,
 CASE :'what' WHEN 'count' THEN ''
 WHEN 'checksum' THEN format($$, ', checksum ', sum(hashtextextended(textin(record_out(ROW(%s))) COLLATE "C", 0)::numeric)$$, columns)
 ELSE format($$, ', checksum ', sum(hashtextextended(encode(convert_to(textin(record_out(ROW(%s))), 'UTF8'), 'hex') COLLATE "C", 0)::numeric)$$,
  columns) END, nspname, relname), ' UNION ALL ') || ' ORDER BY 1', array_agg(format('%I.%I', nspname, relname) ORDER BY oid)
FROM (SELECT c.oid, nspname, relname, (SELECT string_agg('t.' || quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
  WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped) AS columns
 FROM pg_publication p JOIN pg_publication_rel ON prpubid = p.oid JOIN pg_class c ON c.oid = prrelid JOIN pg_namespace n ON n.oid = relnamespace
 WHERE pubname = :'name' AND nspname IN (:'schemas') ORDER BY 2, 3) t
GROUP BY nspname ORDER BY nspname;

-- Is somebody creating a relation in one of the schemas?  He holds a lock on it until
-- his commit (RangeVarGetAndCheckCreationNamespace).
-- arguments: schemas
\echo being_extended_sql
SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'object' AND classid = 'pg_namespace'::regclass
 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
 AND objid IN (SELECT oid FROM pg_namespace WHERE nspname IN (:'schemas')) AND pid IS DISTINCT FROM pg_backend_pid());

-- The sequence of a shard at which to stop newcomers, with its comment, and the tables
-- to be locked.  It is the shard's own; in another attempt, the one that most
-- transactions have locked before any table.
-- arguments: shard again
\echo first_lock_sql
SELECT c.oid::regclass, quote_nullable(obj_description(c.oid, 'pg_class')),
 (SELECT string_agg(format('ONLY %s', oid), ', ' ORDER BY place) FROM snowid_internal.shard_tables(r.schema) WITH ORDINALITY t (oid, place))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN snowid.shard_registry r ON r.schema = n.nspname
LEFT JOIN pg_locks l ON l.relation = c.oid AND l.granted AND l.mode = 'RowExclusiveLock'
 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
 AND NOT EXISTS (SELECT FROM pg_locks t JOIN pg_class k ON k.oid = t.relation
  WHERE t.virtualtransaction = l.virtualtransaction AND t.database = l.database AND t.granted AND t.mode = 'RowExclusiveLock'
  AND k.relnamespace = c.relnamespace AND k.relkind IN ('r', 'p'))
WHERE r.shard = :'shard' AND c.relkind = 'S' GROUP BY c.oid, c.relname, r.schema, r.sequence
ORDER BY CASE WHEN :'again' THEN count(l.pid) END DESC, c.relname = r.sequence DESC LIMIT 1;

-- What makes the casts from and to the shards' types, which pg_dump leaves out
-- unless it dumps the whole database.
-- arguments: schemas
\echo casts_sql
SELECT coalesce(string_agg(format(E'CREATE CAST (%1$s AS %2$s) %3$s%4$s;\nCOMMENT ON CAST (%1$s AS %2$s) IS %5$L;\n',
 format_type(castsource, NULL), format_type(casttarget, NULL),
 CASE castmethod WHEN 'f' THEN 'WITH FUNCTION ' || castfunc::regprocedure WHEN 'i' THEN 'WITH INOUT' ELSE 'WITHOUT FUNCTION' END,
 CASE castcontext WHEN 'a' THEN ' AS ASSIGNMENT' WHEN 'i' THEN ' AS IMPLICIT' END, obj_description(oid, 'pg_cast')), '' ORDER BY oid), '')
FROM pg_cast WHERE EXISTS (SELECT FROM pg_type t JOIN pg_namespace n ON n.oid = typnamespace
 WHERE t.oid IN (castsource, casttarget) AND nspname IN (:'schemas'))
AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_cast'::regclass AND objid = pg_cast.oid AND deptype IN ('e', 'i'));

-- Makes the statements that have schemas say whose they are, and who may use them, unless they may do so already.
-- arguments: numbers schemas move again
\echo note_owners_sql
SELECT string_agg(format('COMMENT ON SCHEMA %I IS %L', nspname, concat_ws(E'\n', 'snowid: of shard ' || shard, format('snowid: owner at move %s %s', :'move', jsonb_build_object('owner', pg_get_userbyid(nspowner), 'rights',
 (SELECT coalesce(jsonb_agg(jsonb_build_object('right', privilege_type, 'to', pg_get_userbyid(nullif(grantee, 0)), 'further', is_grantable)), '[]')
  FROM aclexplode(nspacl) WHERE grantee <> nspowner))), obj_description(n.oid, 'pg_namespace'))), '; ')
FROM unnest(ARRAY[:'numbers']::int[], ARRAY[:'schemas']::name[]) s (shard, name) JOIN pg_namespace n ON nspname = name
WHERE NOT (:'again' AND EXISTS (SELECT FROM :our_schemas WHERE nspname = name AND noted IS NOT NULL));

-- Makes the statements that take schemas from those.
-- arguments: schemas
\echo take_schemas_sql
SELECT string_agg(what, '; ') FROM pg_namespace n, LATERAL (
 SELECT DISTINCT format('REVOKE ALL ON SCHEMA %I FROM %s CASCADE', nspname,
  CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END) FROM aclexplode(nspacl) WHERE grantee <> nspowner
 UNION ALL SELECT format('ALTER SCHEMA %I OWNER TO CURRENT_USER', nspname)) t (what) WHERE nspname IN (:'schemas');

\echo columns_sql
SELECT coalesce(json_agg(json_build_object('name', format('%I.%I.%I', nspname, relname, attname), 'type', atttypid::regtype)), '[]')
FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = relnamespace
WHERE nspname IN (:'schemas') AND relkind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped AND attgenerated = '';

-- What --target-ddl has made that cannot take the rows.  Replication and COPY carry
-- texts, so a column can have a type of the same kind, or one that there is a cast to.
-- arguments: columns schemas may_differ
\echo misfits_sql
SELECT string_agg(name || why, ', ' ORDER BY name) FROM (
 SELECT name, CASE WHEN there.type IS NULL THEN ' (is missing)' WHEN here.type IS NULL THEN ' (is NOT NULL, without a DEFAULT)'
  ELSE format(' (%s to %s)', here.type, there.type) END AS why
 FROM json_to_recordset(:'columns') here (name text, type text)
 FULL JOIN (SELECT format('%I.%I.%I', nspname, relname, attname) AS name, atttypid::regtype AS type,
   attnotnull AND NOT atthasdef AND attidentity = '' AS needs_value
  FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = relnamespace
  WHERE nspname IN (:'schemas') AND relkind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped AND attgenerated = '') there USING (name)
 LEFT JOIN pg_type h ON h.oid = to_regtype(here.type) LEFT JOIN pg_type t ON t.oid = there.type
 WHERE there.type IS NULL OR here.type IS NULL AND needs_value
 OR h.oid <> t.oid AND (h.typcategory <> t.typcategory OR h.typcategory NOT IN ('N', 'S', 'A'))
 AND (NOT :'may_differ' OR t.typcategory <> 'S' AND h.typcategory <> 'S' AND NOT EXISTS (
  SELECT FROM pg_cast WHERE castsource = h.oid AND casttarget = t.oid AND castcontext <> 'e'))) x;

-- All that belongs to some schemas: rows of catalogs with an OID of their own, and
-- those that are part of another's; with the transaction that made them.
SELECT $$
WITH c AS MATERIALIZED (SELECT *, xmin::text AS made_by FROM pg_class WHERE relnamespace = ANY (:'oids')),
t AS MATERIALIZED (SELECT oid, typnamespace FROM pg_type WHERE typnamespace = ANY (:'oids')),
f AS MATERIALIZED (SELECT oid, opfnamespace FROM pg_opfamily WHERE opfnamespace = ANY (:'oids')),
o (namespace, classid, objid, made_by) AS MATERIALIZED (
 SELECT relnamespace, 'pg_class'::regclass::oid, oid, NULL FROM c
 UNION ALL SELECT oid, tableoid, oid, NULL FROM pg_namespace WHERE oid = ANY (:'oids')
 UNION ALL SELECT typnamespace, tableoid, oid, xmin::text FROM pg_type WHERE typnamespace = ANY (:'oids')
 UNION ALL SELECT pronamespace, tableoid, oid, xmin::text FROM pg_proc WHERE pronamespace = ANY (:'oids')
 UNION ALL SELECT oprnamespace, tableoid, oid, xmin::text FROM pg_operator WHERE oprnamespace = ANY (:'oids')
 UNION ALL SELECT opcnamespace, tableoid, oid, xmin::text FROM pg_opclass WHERE opcnamespace = ANY (:'oids')
 UNION ALL SELECT opfnamespace, tableoid, oid, xmin::text FROM pg_opfamily WHERE opfnamespace = ANY (:'oids')
 UNION ALL SELECT collnamespace, tableoid, oid, xmin::text FROM pg_collation WHERE collnamespace = ANY (:'oids')
 UNION ALL SELECT connamespace, tableoid, oid, xmin::text FROM pg_conversion WHERE connamespace = ANY (:'oids')
 UNION ALL SELECT cfgnamespace, tableoid, oid, xmin::text FROM pg_ts_config WHERE cfgnamespace = ANY (:'oids')
 UNION ALL SELECT dictnamespace, tableoid, oid, xmin::text FROM pg_ts_dict WHERE dictnamespace = ANY (:'oids')
 UNION ALL SELECT prsnamespace, tableoid, oid, xmin::text FROM pg_ts_parser WHERE prsnamespace = ANY (:'oids')
 UNION ALL SELECT tmplnamespace, tableoid, oid, xmin::text FROM pg_ts_template WHERE tmplnamespace = ANY (:'oids')
 UNION ALL SELECT stxnamespace, tableoid, oid, xmin::text FROM pg_statistic_ext WHERE stxnamespace = ANY (:'oids')
 UNION ALL SELECT connamespace, tableoid, oid, xmin::text FROM pg_constraint WHERE connamespace = ANY (:'oids')
 UNION ALL SELECT defaclnamespace, tableoid, oid, xmin::text FROM pg_default_acl WHERE defaclnamespace = ANY (:'oids')
 UNION ALL SELECT relnamespace, x.tableoid, x.oid, x.xmin::text FROM pg_attrdef x JOIN c ON c.oid = adrelid
 UNION ALL SELECT relnamespace, x.tableoid, x.oid, x.xmin::text FROM pg_trigger x JOIN c ON c.oid = tgrelid AND tgname <> 'snowid_fence'
 UNION ALL SELECT relnamespace, x.tableoid, x.oid, x.xmin::text FROM pg_rewrite x JOIN c ON c.oid = ev_class
 UNION ALL SELECT relnamespace, x.tableoid, x.oid, x.xmin::text FROM pg_policy x JOIN c ON c.oid = polrelid
 UNION ALL SELECT typnamespace, x.tableoid, x.oid, x.xmin::text FROM pg_cast x JOIN t ON t.oid IN (castsource, casttarget)
 UNION ALL SELECT typnamespace, x.tableoid, x.oid, x.xmin::text FROM pg_transform x JOIN t ON t.oid = trftype
 UNION ALL SELECT opfnamespace, x.tableoid, x.oid, x.xmin::text FROM pg_amop x JOIN f ON f.oid = amopfamily
 UNION ALL SELECT opfnamespace, x.tableoid, x.oid, x.xmin::text FROM pg_amproc x JOIN f ON f.oid = amprocfamily),
p (namespace, classid, objid, made_by, catalog) AS (
 SELECT relnamespace, 'pg_class'::regclass, attrelid, x.xmin::text, x.tableoid FROM pg_attribute x JOIN c ON c.oid = attrelid
 UNION ALL SELECT relnamespace, 'pg_class'::regclass, indexrelid, x.xmin::text, x.tableoid FROM pg_index x JOIN c ON c.oid = indrelid
 UNION ALL SELECT relnamespace, 'pg_class'::regclass, inhrelid, x.xmin::text, x.tableoid FROM pg_inherits x JOIN c ON c.oid = inhrelid
 UNION ALL SELECT relnamespace, 'pg_class'::regclass, partrelid, x.xmin::text, x.tableoid FROM pg_partitioned_table x JOIN c ON c.oid = partrelid
 UNION ALL SELECT relnamespace, 'pg_class'::regclass, ftrelid, x.xmin::text, x.tableoid FROM pg_foreign_table x JOIN c ON c.oid = ftrelid
 UNION ALL SELECT typnamespace, 'pg_type'::regclass, t.oid, x.xmin::text, x.tableoid FROM pg_enum x JOIN t ON t.oid = enumtypid
 UNION ALL SELECT typnamespace, 'pg_type'::regclass, t.oid, x.xmin::text, x.tableoid FROM pg_range x JOIN t ON t.oid = rngtypid
 UNION ALL SELECT pronamespace, 'pg_proc'::regclass, aggfnoid, x.xmin::text, x.tableoid
  FROM pg_aggregate x JOIN pg_proc r ON r.oid = aggfnoid WHERE pronamespace = ANY (:'oids')
 UNION ALL SELECT cfgnamespace, 'pg_ts_config'::regclass, mapcfg, x.xmin::text, x.tableoid
  FROM pg_ts_config_map x JOIN pg_ts_config g ON g.oid = mapcfg WHERE cfgnamespace = ANY (:'oids')
 UNION ALL SELECT namespace, o.classid, o.objid, x.xmin::text, x.tableoid FROM pg_depend x JOIN o USING (classid, objid)
 UNION ALL SELECT namespace, o.classid, o.objid, x.xmin::text, x.tableoid FROM pg_seclabel x JOIN o ON (classid, objid) = (classoid, objoid))
$$ AS parts \gset

-- The fingerprint of each schema's definitions: if it is the same before and after,
-- nobody has changed them.
--
-- It looks at no property by its name.  PostgreSQL never changes a row of a catalog
-- in place but for statistics, so each change of a definition leaves rows of another
-- transaction; the fingerprint is made of the number of rows in each catalog, and of
-- who has made them.  t/move/objects.pl sees to it that no catalog is forgotten.
--
-- Four catalogs are read by their contents, since what is no change of a definition
-- makes new rows there: pg_class (TRUNCATE, REFRESH MATERIALIZED VIEW), pg_sequence
-- (the fence; what a closed sequence was before is in the journal), pg_description
-- (we, see lock.c) and pg_namespace (the copy that is left behind gets another name).
--
-- To be compared on one server only, and not across an upgrade of it.
SELECT $$
:parts, r (namespace, catalog, what, classid, objid) AS (
 SELECT namespace, classid, made_by, classid, objid FROM o
 UNION ALL SELECT namespace, catalog, made_by, classid, objid FROM p
 UNION ALL SELECT relnamespace, 'pg_class'::regclass, (to_jsonb(c) - '{made_by,relfilenode,relpages,reltuples,relallvisible,relallfrozen,
  relfrozenxid,relminmxid,relhasindex,relhastriggers,relhasrules,relhassubclass,relispopulated,reltoastrelid,relrewrite}'::text[])::text,
  'pg_class'::regclass, oid FROM c
 UNION ALL SELECT oid, tableoid, ROW(oid, nspowner, nspacl)::text, tableoid, oid FROM pg_namespace WHERE oid = ANY (:'oids')
 UNION ALL SELECT namespace, x.tableoid, ROW(objoid, classoid, objsubid, description)::text, classid, objid
  FROM pg_description x JOIN o ON (classid, objid) = (classoid, objoid)
 -- The options toast.* of a table.
 UNION ALL SELECT c.relnamespace, x.tableoid, ROW(c.oid, x.reloptions)::text, 'pg_class'::regclass, c.oid
  FROM c JOIN pg_class x ON x.oid = c.reltoastrelid WHERE x.reloptions IS NOT NULL
 UNION ALL SELECT relnamespace, s.tableoid, ROW(seqrelid, seqtypid, seqincrement, seqcache, coalesce(d ->> 'min', seqmin::text),
  coalesce(d ->> 'max', seqmax::text), coalesce(d ->> 'start', seqstart::text), coalesce(d ->> 'cycle', seqcycle::text))::text,
  'pg_class'::regclass, seqrelid
  FROM pg_sequence s JOIN c ON c.oid = s.seqrelid JOIN pg_namespace n ON n.oid = relnamespace
  LEFT JOIN snowid.moves m ON m.closed AND m.schema = nspname
  LEFT JOIN LATERAL (SELECT m.details -> 'sequences' -> c.relname::text) x (d) ON true)
$$ AS all_rows \gset
SELECT $$
md5(string_agg(concat_ws(' ', catalog, rows, hash), ' ' ORDER BY catalog))
$$ AS fingerprint \gset

-- With the snapshot that tells what is newer.
-- arguments: oids
\echo fingerprints_sql
:all_rows
SELECT nspname, :fingerprint, pg_current_snapshot() FROM
 (SELECT namespace, catalog, count(*) AS rows, sum(hashtextextended(what, 0)::numeric) AS hash FROM r GROUP BY 1, 2) x
JOIN pg_namespace n ON n.oid = namespace GROUP BY 1;

-- The tables and sequences of one schema that were made since a snapshot, which rows of
-- system columns tell, that nothing changes; with the fingerprint of all else.  If that is
-- what was noted, nothing else has changed.
-- arguments: oids since
\echo new_tables_sql
:all_rows, new_table (oid) AS MATERIALIZED (
 SELECT attrelid FROM pg_attribute a JOIN c ON c.oid = attrelid, CAST(:'since' AS pg_snapshot) s, CAST(pg_snapshot_xmin(s)::xid AS xid) x
 WHERE attnum = -1 AND relkind IN ('r', 'p', 'S')
 AND NOT pg_visible_in_snapshot(greatest(3, pg_snapshot_xmin(s)::text::bigint + age(x) - age(a.xmin))::text::xid8, s)),
new_type (oid) AS (
 SELECT oid FROM pg_type WHERE typrelid IN (TABLE new_table)
 UNION ALL SELECT typarray FROM pg_type WHERE typrelid IN (TABLE new_table)),
-- Also of a partition's part in a foreign key to its table.
new_constraint (oid) AS MATERIALIZED (
 SELECT oid FROM pg_constraint WHERE conrelid IN (TABLE new_table) OR confrelid IN (TABLE new_table) AND conparentid <> 0),
new (classid, objid) AS MATERIALIZED (
 SELECT 'pg_class'::regclass::oid, oid FROM new_table
 UNION ALL SELECT 'pg_class'::regclass, indexrelid FROM pg_index WHERE indrelid IN (TABLE new_table)
 UNION ALL SELECT 'pg_type'::regclass, oid FROM new_type
 UNION ALL SELECT 'pg_constraint'::regclass, oid FROM new_constraint
 UNION ALL SELECT tableoid, oid FROM pg_attrdef WHERE adrelid IN (TABLE new_table)
 UNION ALL SELECT tableoid, oid FROM pg_trigger WHERE tgrelid IN (TABLE new_table) OR tgconstraint IN (TABLE new_constraint)
 UNION ALL SELECT tableoid, oid FROM pg_rewrite WHERE ev_class IN (TABLE new_table)
 UNION ALL SELECT tableoid, oid FROM pg_policy WHERE polrelid IN (TABLE new_table)
 UNION ALL SELECT tableoid, oid FROM pg_statistic_ext WHERE stxrelid IN (TABLE new_table))
SELECT relkind, format('%I.%I', nspname, relname), format('ONLY %I.%I', nspname, relname), others, c.oid, EXISTS (
 SELECT FROM pg_trigger WHERE tgrelid = c.oid AND tgname = 'snowid_fence')
FROM new_table JOIN c USING (oid) JOIN pg_namespace n ON n.oid = relnamespace, LATERAL (
 SELECT :fingerprint FROM (SELECT catalog, count(*) AS rows, sum(hashtextextended(what, 0)::numeric) AS hash FROM r
  WHERE NOT EXISTS (SELECT FROM new WHERE (new.classid, new.objid) = (r.classid, r.objid)) GROUP BY 1) x) f (others)
ORDER BY c.oid;

-- Close what is new in a closed shard: each sequence is in its journal, each table has a fence.
-- arguments: shard
\echo close_new_sequences_sql
WITH s AS MATERIALIZED (
 SELECT array_agg(c.oid) AS oids, count(snowid_internal.lock_relations(ARRAY[c.oid])::text) FROM snowid.moves m
 JOIN pg_namespace n ON nspname = schema JOIN pg_class c ON relnamespace = n.oid
 WHERE shard = :'shard' AND relkind = 'S' AND NOT details -> 'sequences' ? relname::text)
UPDATE snowid.moves SET details = jsonb_set(details, '{sequences}', details -> 'sequences' || states)
FROM s, snowid_internal.close_sequences(oids) x WHERE shard = :'shard';

-- arguments: schema
\echo close_new_tables_sql
WITH t AS MATERIALIZED (SELECT t, snowid_internal.prepare_table(t)::text AS prepared FROM snowid_internal.shard_tables(:'schema') t)
SELECT snowid_internal.enable_fence(array_agg(t::oid), true) FROM t WHERE prepared IS NOT NULL;

-- Takes sequences out of the journal that are no more.
-- arguments: shard
\echo forget_sequences_sql
UPDATE snowid.moves SET details = jsonb_set(details, '{sequences}', (SELECT coalesce(jsonb_object_agg(key, value), '{}')
 FROM jsonb_each(details -> 'sequences') WHERE key IN (SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
  WHERE nspname = schema AND relkind = 'S'))) WHERE shard = :'shard';

-- Tables of shards of which not all rows come, by a publication: one is not in it, not with all that it has,
-- or not since we have published it.
-- arguments: schemas name
\echo unpublished_sql
SELECT string_agg(c.oid::regclass::text, ', ' ORDER BY c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
JOIN snowid.moves m ON m.schema = nspname
WHERE nspname IN (:'schemas') AND relkind = 'r' AND relpersistence = 'p' AND NOT EXISTS (
 SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = prpubid WHERE prrelid = c.oid AND pubname = :'name'
 AND ARRAY[r.xmin::text, p.xmin::text] <@ string_to_array(details ->> 'published', ' ')
 AND pubinsert AND pubupdate AND pubdelete AND pubtruncate AND prqual IS NULL AND prattrs IS NULL);

-- What a publication has of the schemas of its move.
-- arguments: name
\echo published_sql
SELECT coalesce(json_object_agg(prrelid, format('%I.%I', nspname, relname)), '{}')
FROM pg_publication_rel JOIN pg_publication p ON p.oid = prpubid JOIN pg_class c ON c.oid = prrelid JOIN pg_namespace n ON n.oid = relnamespace
JOIN snowid.moves m ON schema = nspname AND :'name' IN (details ->> 'name', details ->> 'reverse_name') WHERE pubname = :'name';

-- The tables that the log tells of which a slot keeps: names, and columns, of pgoutput's relation messages.  Each
-- text has a zero after it, in the client's encoding; then, after the schema's, nothing; after the table's, four bytes; after a column's, nine.
-- arguments: name
\echo sent_tables_sql
WITH RECURSIVE part (message, n, value, rest) AS (
 SELECT DISTINCT data, 0, '\x'::bytea, substr(data, 6)
 FROM pg_replication_slots, pg_logical_slot_peek_binary_changes(slot_name, NULL, 1000000, 'proto_version', '1', 'publication_names', quote_ident(slot_name))
 WHERE slot_name = :'name' AND get_byte(data, 0) = ascii('R')
 UNION ALL
 SELECT message, n + 1, substr(rest, 1, zero - 1), substr(rest, zero + CASE n WHEN 0 THEN 1 WHEN 1 THEN 5 ELSE 10 END)
 FROM part, LATERAL position('\x00'::bytea IN rest) zero WHERE rest <> '\x'),
sent AS (SELECT ('x' || encode(substr(message, 2, 4), 'hex'))::bit(32)::bigint AS oid,
 array_agg(convert_from(value, pg_client_encoding()) ORDER BY n) FILTER (WHERE n > 0) AS names FROM part GROUP BY message)
SELECT coalesce(json_agg(json_build_object('oid', oid, 'schema', names[1], 'name', names[2], 'columns', names[3:])), '[]') FROM sent;

-- Statements for the tables and columns of these that are missing, of whatever type; the tables
-- of the source, and the names.  No table of others gets any.
-- arguments: sent name
\echo make_room_sql
WITH sent AS (
 SELECT schema, name, array_agg(DISTINCT oid) AS oids, coalesce(array_agg(DISTINCT u) FILTER (WHERE u IS NOT NULL), '{}') AS columns
 FROM json_to_recordset(:'sent') s (oid text, schema text, name text, columns text[]) LEFT JOIN LATERAL unnest(columns) u ON true GROUP BY 1, 2),
lacking AS (
 SELECT s.*, x, t.oid, m.schema IS NOT NULL AS inside, missing FROM sent s LEFT JOIN snowid.moves m USING (schema), format('%I.%I', s.schema, name) x, LATERAL to_regclass(x) t (oid),
 LATERAL (SELECT string_agg(format('ADD COLUMN %I text', u), ', ') FROM unnest(columns) u WHERE NOT EXISTS (
  SELECT FROM pg_attribute WHERE attrelid = t.oid AND attname = u AND NOT attisdropped)) c (missing)
 WHERE CASE WHEN t.oid IS NULL THEN closed IS NOT FALSE ELSE missing IS NOT NULL AND (closed OR obj_description(t.oid, 'pg_class') = :'name') END)
SELECT coalesce((SELECT string_agg(DISTINCT format('CREATE SCHEMA %I; COMMENT ON SCHEMA %1$I IS %L; ', schema, :'name'), '')
 FROM lacking WHERE to_regnamespace(quote_ident(schema)) IS NULL), '') ||
string_agg(CASE WHEN oid IS NULL
 THEN format('CREATE TABLE %s (%s); ', x, (SELECT string_agg(format('%I text', u), ', ') FROM unnest(columns) u)) ||
  CASE WHEN inside THEN format('SELECT snowid_internal.prepare_table(%L); ', x) ELSE '' END || format('COMMENT ON TABLE %s IS %L', x, :'name')
 ELSE format('ALTER TABLE %s %s', x, missing) END, '; '),
(SELECT string_agg(u, ', ') FROM lacking, unnest(oids) u), string_agg(x, ', ' ORDER BY x) FROM lacking;

-- What gives copies of shards their names again, of which a subscription follows tables.
-- arguments: numbers
\echo renamed_sql
SELECT string_agg(DISTINCT format('ALTER SCHEMA %I RENAME TO %I;', nspname, schema), ' or ') FROM snowid.moves
JOIN pg_subscription s ON subname IN (details ->> 'name', details ->> 'reverse_name') JOIN pg_subscription_rel ON srsubid = s.oid
JOIN pg_class c ON c.oid = srrelid JOIN pg_namespace n ON n.oid = relnamespace
WHERE shard IN (:'numbers') AND to_regnamespace(quote_ident(schema)) IS NULL AND nspname NOT IN (SELECT schema FROM snowid.moves);

-- Statements that drop the tables that were made so, and none of a lesser role that has the comment, too.
-- arguments: name
\echo drop_room_sql
SELECT string_agg(statement, '; ' ORDER BY classoid) FROM (
 SELECT classoid, format('DROP TABLE %s', objoid::regclass) FROM pg_description WHERE classoid = 'pg_class'::regclass AND description = :'name'
  AND EXISTS (SELECT FROM pg_class JOIN pg_roles r ON r.oid = relowner WHERE pg_class.oid = objoid AND relkind = 'r' AND (rolsuper OR rolname = current_user))
 UNION ALL SELECT classoid, format('DROP SCHEMA %s', objoid::regnamespace) FROM pg_description WHERE classoid = 'pg_namespace'::regclass AND description = :'name'
  AND EXISTS (SELECT FROM pg_namespace n JOIN pg_roles r ON r.oid = nspowner WHERE n.oid = objoid AND (rolsuper OR rolname = current_user))
  AND NOT EXISTS (SELECT FROM pg_class c WHERE relnamespace = objoid AND obj_description(c.oid, 'pg_class') IS DISTINCT FROM :'name')) x (classoid, statement);

-- A table and its schema are of roles that gain nothing if we run their code.
SELECT $$
relkind = 'r' AND pg_has_role(relowner, session_user, 'MEMBER') AND pg_has_role((
 SELECT CASE nspowner WHEN 'pg_database_owner'::regrole THEN datdba ELSE nspowner END
 FROM pg_namespace n, pg_database WHERE n.oid = relnamespace AND datname = current_database()), session_user, 'MEMBER')
$$ AS is_trusted \gset

-- Queries for what other tools know of schemas, if their tables are there: what it is, and what to type.
-- arguments: schemas
\echo jobs_sql
SELECT format($$SELECT format('pg_cron''s job %%s names the shard: %%s', jobid, command),
 format('After the move, make it on the target, too, and type here: SELECT cron.unschedule(%%s);', jobid)
FROM cron.job WHERE database = current_database() AND command ~ %L ORDER BY jobid$$,
 (SELECT concat('(^|\W)(', string_agg(regexp_replace(s, '\W', '\\\&', 'g'), '|'), ')(\W|$)') FROM unnest(ARRAY[:'schemas']::text[]) s))
FROM pg_class c WHERE oid = to_regclass('cron.job') AND :is_trusted
UNION ALL
SELECT format($$SELECT format('pg_partman makes partitions of %%s', parent_table),
 format('After the move, carry its row of %%s to the target, and type here: DELETE FROM %%s WHERE parent_table = %%L;', %1$L, %1$L, parent_table)
FROM %1$s WHERE parse_ident(parent_table, false) && ARRAY[%2$s]::text[] ORDER BY parent_table$$, c.oid::regclass,
 (SELECT string_agg(quote_literal(s), ', ') FROM unnest(ARRAY[:'schemas']::text[]) s))
FROM pg_class c JOIN pg_attribute ON attrelid = c.oid WHERE relname = 'part_config' AND attname = 'parent_table' AND :is_trusted;

-- Objects that somebody has made as such: no command names a key's triggers, a table's or an array's type, NOT NULL.
SELECT $$
NOT EXISTS (SELECT FROM pg_constraint k WHERE (k.tableoid, k.oid, contype) = (classid, objid, 'n'))
AND NOT EXISTS (SELECT FROM pg_depend d WHERE (d.classid, d.objid, deptype) = (x.classid, x.objid, 'i') AND d.classid IN ('pg_type'::regclass, 'pg_trigger'::regclass))
$$ AS has_name \gset

-- The names of a schema's objects.
-- arguments: oids
\echo names_sql
:parts
SELECT array_agg(pg_describe_object(classid, objid, 0)) FROM o x WHERE :has_name;

-- What has changed since a snapshot: objects that rows of a later transaction belong
-- to, relations first.  What was dropped has none, and is what only the other server
-- has, if there is a copy.
--
-- Triggers that close a table make a row of it new, too, and no change.
-- arguments: oids since names
\echo changes_sql
:parts, r (classid, objid, made_by) AS (
 SELECT classid, objid, made_by FROM o
 UNION ALL SELECT classid, objid, made_by FROM p
 UNION ALL SELECT 'pg_class'::regclass, oid, made_by FROM c
  WHERE made_by NOT IN (SELECT xmin::text FROM pg_trigger WHERE tgname = 'snowid_fence')
 UNION ALL SELECT tableoid, oid, xmin::text FROM pg_namespace WHERE oid = ANY (:'oids')
 UNION ALL SELECT classid, objid, x.xmin::text FROM pg_description x JOIN o ON (classid, objid) = (classoid, objoid))
SELECT array_to_string(coalesce(
 (SELECT array_agg(pg_describe_object(classid, objid, 0) ORDER BY classid <> 'pg_class'::regclass) FROM (SELECT DISTINCT classid, objid
  FROM r x, CAST(:'since' AS pg_snapshot) s, CAST(pg_snapshot_xmin(s)::xid AS xid) oldest
  WHERE :has_name AND NOT pg_visible_in_snapshot(greatest(3, pg_snapshot_xmin(s)::text::bigint + age(oldest) - age(made_by::xid))::text::xid8, s)) d),
 ARRAY(SELECT unnest(:'names'::text[]) EXCEPT SELECT pg_describe_object(classid, objid, 0) FROM o)), ', ');

-- Of prepared transactions, whose shards stay with another server.
\echo copies_of_prepared_sql
SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND transaction IN (:holding_locks
 AND relnamespace IN (SELECT oid FROM pg_namespace WHERE nspname IN (SELECT schema FROM snowid.shard_registry)));

-- The entries for PgBouncer: each pool once for each place, with its shards there,
-- whether it can be the name of an entry, and of a pool on the console, and what its
-- entry has besides.
-- arguments: moved home here
\echo entries_sql
SELECT p.pool, h.home, string_agg(shard::text, ', ' ORDER BY shard), p.pool ~ '^[a-zA-Z0-9_.-]{1,63}$' AND p.pool <> 'pgbouncer',
 CASE WHEN min(min(entry_options)) OVER w IS NOT DISTINCT FROM max(max(entry_options)) OVER w THEN coalesce(replace(max(max(entry_options)) OVER w, '%p', p.pool), '') END
FROM snowid.shard_registry r LEFT JOIN snowid.moves m USING (shard)
LEFT JOIN pg_namespace n ON nspname = r.schema
LEFT JOIN pg_class c ON relnamespace = n.oid AND relname = r.sequence AND relkind = 'S',
LATERAL (SELECT coalesce(r.pool, r.schema) COLLATE "C") p (pool),
LATERAL (SELECT CASE WHEN shard = ANY (ARRAY[:'moved']::int[]) THEN :'home'
 WHEN r.home IS NULL AND n.oid IS NULL THEN NULL
 WHEN r.home IS NULL OR c.oid IS NOT NULL AND NOT coalesce(closed AND step NOT IN ('closed', 'open'), false) THEN :'here'
 ELSE r.home END COLLATE "C") h (home)
GROUP BY p.pool, h.home WINDOW w AS (PARTITION BY p.pool) ORDER BY p.pool, h.home;

-- Tables of a schema, with their columns, and those of what names a row: partitions are
-- read with their table.
-- arguments: schema
\echo diff_facts_sql
SELECT coalesce(json_agg(json_build_object('name', relname, 'part', CASE WHEN relkind = 'r' THEN 'ONLY ' ELSE '' END,
 'columns', ARRAY(SELECT attname FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped ORDER BY attnum),
 'key', ARRAY(SELECT attname FROM (SELECT indkey, indnkeyatts FROM pg_index WHERE indrelid = c.oid AND (indisprimary OR indisreplident)
   ORDER BY indisprimary DESC LIMIT 1) i, unnest(indkey) WITH ORDINALITY k (attnum, n) JOIN pg_attribute a USING (attnum)
  WHERE n <= indnkeyatts AND attrelid = c.oid ORDER BY n))), '[]')
FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = :'schema' AND relkind IN ('r', 'p') AND NOT relispartition;

-- A query for each of two sides and each table: rows as key and hash, in the order of the bytes of
-- the keys.  Without a key that both have, the row is the key.  Texts are made as in comparisons_sql.
-- arguments: schema facts other_schema other_facts
\echo diff_tables_sql
SELECT format('%I.%I', CASE WHEN h.name IS NULL THEN :'other_schema' ELSE :'schema' END, name), CASE
 WHEN h.name IS NULL OR t.name IS NULL THEN ', all of the table'
 WHEN differ IS NOT NULL THEN ', without columns that one side lacks: ' || differ ELSE '' END,
 CASE WHEN h.name IS NULL THEN 'SELECT WHERE false' ELSE concat(rows, h.part, format('%I.%I', :'schema', name), sorted) END,
 CASE WHEN t.name IS NULL THEN 'SELECT WHERE false' ELSE concat(rows, t.part, format('%I.%I', :'other_schema', name), sorted) END
FROM json_to_recordset(:'facts') h (name text, part text, columns text[], key text[])
FULL JOIN json_to_recordset(:'other_facts') t (name text, part text, columns text[], key text[]) USING (name),
LATERAL (SELECT array_agg(c) FILTER (WHERE is_common), string_agg(c, ', ') FILTER (WHERE NOT is_common)
 FROM (SELECT c, (c = ANY (h.columns) AND c = ANY (t.columns)) IS NOT FALSE AS is_common
  FROM unnest(coalesce(h.columns, '{}') || coalesce(t.columns, '{}')) WITH ORDINALITY u (c, n) GROUP BY c ORDER BY min(n)) u) u (common, differ),
LATERAL (SELECT CASE WHEN of_one <@ common AND of_one <> '{}' THEN of_one ELSE common END FROM (SELECT coalesce(nullif(h.key, '{}'), t.key)) o (of_one)) k (named),
LATERAL (SELECT (SELECT string_agg('t.' || quote_ident(c), ', ') FROM unnest(common) c),
 (SELECT string_agg('t.' || quote_ident(c), ', ') FROM unnest(named) c), (SELECT string_agg(quote_ident(c), ', ') FROM unnest(named) c)) x (texts, keys, names),
LATERAL (SELECT format($$SELECT concat('(', %L, ')=', k), h FROM (SELECT textin(record_out(ROW(%s))) AS k, sha256(convert_to(textin(record_out(ROW(%s))), 'UTF8')) AS h
 FROM $$, names, keys, texts), $$ t) x ORDER BY convert_to(k, 'UTF8')$$) r (rows, sorted)
ORDER BY name COLLATE "C";

-- Has a schema what only its owner can have made: the comment that says whose copy it is, or next_id() of
-- the shard?  That must be the owner's, a superuser's, or ours.
SELECT $$
(split_part(obj_description(n.oid, 'pg_namespace'), E'\n', 1) = 'snowid: of shard ' || number
 OR EXISTS (SELECT FROM pg_proc JOIN pg_roles o ON o.oid = proowner WHERE pronamespace = n.oid AND proname = 'next_id' AND (rolsuper OR proowner = nspowner OR rolname = current_user)
  AND starts_with(pg_get_function_sqlbody(pg_proc.oid), concat('RETURN snowid_internal.next_id_of_shard(', number, ', ')))) IS TRUE
$$ AS of_shard \gset

-- Those of some schemas, of which journals or registries say so, that have not.
-- arguments: numbers names
\echo strange_schemas_sql
SELECT DISTINCT number, nspname FROM unnest(ARRAY[:'numbers']::int[], ARRAY[:'names']::name[]) s (number, name) JOIN pg_namespace n ON nspname = name WHERE NOT :of_shard;

-- The schemas that a shard has on a server, by registry, journal, what copies say of themselves, and names that
-- moves and restores give: of those, what only the shard's owner can have made.
-- arguments: shard schema
\echo erased_schemas_sql
SELECT coalesce(string_agg(quote_literal(nspname), ', '), 'NULL') FROM pg_namespace n, CAST(:'shard' AS int) number
WHERE (nspname IN (SELECT schema FROM snowid.shard_registry WHERE shard = number UNION ALL SELECT schema FROM snowid.moves WHERE shard = number
  UNION ALL SELECT schema FROM snowid.copies WHERE shard = number)
 OR starts_with(nspname, :'schema' || '_') AND substr(nspname, length(:'schema') + 1) ~ '^_(moved\d*|before_.*)$')
AND nspname NOT IN (SELECT schema FROM snowid.shard_registry WHERE shard <> number) AND :of_shard;

-- arguments: schemas shard
\echo erased_sizes_sql
SELECT translate(concat_ws(', ', string_agg(format('schema %I with %s tables, %s', nspname, tables, pg_size_pretty(bytes)), ', ' ORDER BY nspname),
 (SELECT 'its row in the registry' || coalesce(', with pool ' || pool, '') FROM snowid.shard_registry WHERE shard = :'shard')), E'\n', ' ')
FROM pg_namespace n, LATERAL (SELECT count(*) FILTER (WHERE relkind IN ('r', 'p')) AS tables, coalesce(sum(pg_total_relation_size(oid)) FILTER (WHERE relkind IN ('r', 'm')), 0)::bigint AS bytes
 FROM pg_class WHERE relnamespace = n.oid) c WHERE nspname IN (:'schemas');

-- The parts, and whether each locks what others use.  Sequences of ids stay to the end: drop_shard() looks at them.
-- arguments: schemas
\echo erased_parts_sql
WITH part AS (SELECT c.* FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname IN (:'schemas'))
SELECT format('ALTER TABLE %s DROP CONSTRAINT IF EXISTS %I', conrelid::regclass, conname), true, 0
FROM pg_constraint JOIN part p ON p.oid = conrelid WHERE contype = 'f' AND conparentid = 0 AND confrelid NOT IN (SELECT oid FROM part)
UNION ALL SELECT concat((SELECT string_agg(format('ALTER SEQUENCE %s OWNED BY NONE; ', d.objid::regclass), '')
  FROM pg_depend d JOIN part s ON s.oid = d.objid AND s.relkind = 'S' WHERE d.refobjid = p.oid AND d.classid = 'pg_class'::regclass AND d.deptype = 'a'),
 format('DROP %s IF EXISTS %s CASCADE', CASE relkind WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'f' THEN 'FOREIGN TABLE' ELSE 'TABLE' END, oid::regclass)),
 false, CASE WHEN relispartition THEN 1 ELSE 2 END
FROM part p WHERE relkind IN ('r', 'p', 'm', 'f') ORDER BY 3;

-- With what is left, its rows; but for that of the registry, which names the others, while it is needed.  By then it may
-- name another schema, which nobody has looked at.
-- arguments: shard schemas keep schema
\echo erased_rest_sql
SELECT concat_ws('; ', format('DELETE FROM snowid.moves WHERE shard = %1$s; DELETE FROM snowid.copies WHERE shard = %1$s', :'shard'),
 CASE WHEN NOT :'keep' THEN format('SELECT FROM snowid.shard_registry WHERE shard = %1$s FOR UPDATE; SELECT snowid.drop_shard(shard, true) FROM snowid.shard_registry r WHERE shard = %1$s
  AND schema = %2$L AND snowid_internal.lives(r) IN (''here'', ''missing''); DELETE FROM snowid.shard_registry WHERE shard = %1$s', :'shard', :'schema') END,
 (SELECT format('DROP SCHEMA IF EXISTS %s CASCADE', string_agg(quote_ident(s), ', ')) FROM unnest(ARRAY[:'schemas']::text[]) s WHERE s IS NOT NULL HAVING count(*) > 0));

-- What remains, in lines: what can be seen, and what not.
-- arguments: schemas home schema shard
\echo erased_remains_sql
SELECT coalesce(string_agg(format(E'remains at %s: %s\n', :'home', translate(what, E'\n', ' ')), '' ORDER BY what), '') FROM (
 SELECT DISTINCT format('what publication %I has sent of it to its subscribers', pubname) FROM pg_publication p WHERE puballtables
  OR EXISTS (SELECT FROM pg_publication_tables t WHERE t.pubname = p.pubname AND schemaname IN (:'schemas'))
 UNION ALL SELECT format('log since %s, which slot %I keeps', restart_lsn, slot_name) FROM pg_replication_slots
 UNION ALL SELECT format('schema %I, perhaps a copy; to drop it, type: DROP SCHEMA %1$I CASCADE;', nspname) FROM pg_namespace
  WHERE (starts_with(nspname, :'schema' || '_') OR nspname IN (SELECT schema FROM snowid.copies WHERE shard = :'shard')) AND nspname NOT IN (:'schemas') AND nspname NOT IN (SELECT schema FROM snowid.shard_registry)
 UNION ALL SELECT format('routine %s, which mentions it', f.oid::regprocedure) FROM pg_proc f JOIN pg_namespace n ON n.oid = pronamespace
  WHERE nspname NOT IN (:'schemas') AND prosrc ~ ('\m' || regexp_replace(:'schema', '(\W)', '\\\1', 'g') || '\M')
 UNION ALL SELECT format('a setting of %s, which mentions it: %s', coalesce('role ' || nullif(setrole, 0)::regrole::text, 'the database'), s)
  FROM pg_db_role_setting, unnest(setconfig) s WHERE s ~ ('\m' || regexp_replace(:'schema', '(\W)', '\\\1', 'g') || '\M')
 UNION ALL SELECT format('not seen: backups and archived log up to %s, each until its retention ends%s; dumps, server logs, standbys that lag', date_trunc('second', now()),
  CASE WHEN current_setting('archive_mode') <> 'off' THEN format(' (it archives: %s)', coalesce(nullif(current_setting('archive_command'), ''), current_setting('archive_library', true))) END)) r (what);

-- A shard on the server that it is copied from.
-- arguments: number
\echo copied_shard_sql
SELECT r.schema, r.sequence, to_jsonb(r)::text, (SELECT last_value FROM snowid_internal.reservation),
 (SELECT string_agg(format('ONLY %I.%I', nspname, relname), ', ' ORDER BY c.oid) FROM pg_class c WHERE relnamespace = n.oid AND relkind = 'r')
FROM snowid.shard_registry r JOIN pg_namespace n ON nspname = r.schema WHERE shard = :'number';

-- What its sequences have come to: as they were, if it is closed; unlogged ones, which a standby has not, begin anew.
-- arguments: number
\echo copied_sequences_sql
SELECT coalesce((SELECT details -> 'sequences' FROM snowid.moves WHERE shard = :'number' AND closed), jsonb_object_agg(relname, jsonb_build_object(
 'last', coalesce((v).last, seqstart), 'called', coalesce((v).called, false), 'min', least(seqmin, (v).last), 'max', greatest(seqmax, (v).last), 'start', seqstart, 'cycle', seqcycle)), '{}')
FROM (SELECT relname, q.*, snowid_internal.sequence_value(CASE WHEN relpersistence <> 'u' OR NOT pg_is_in_recovery() THEN seqrelid END, snowid_internal.epoch_of(r)) AS v
 FROM snowid.shard_registry r JOIN pg_namespace n ON nspname = r.schema JOIN pg_class c ON relnamespace = n.oid AND relkind = 'S'
 JOIN pg_sequence q ON seqrelid = c.oid WHERE shard = :'number' OFFSET 0) s;

-- Its tables as COPY takes them: there, and in the copy.
-- arguments: schema name only
\echo copied_tables_sql
SELECT format('%I.%I %s', :'schema', relname, columns), format('%I.%I %s', :'name', relname, columns)
FROM pg_class c, LATERAL (SELECT coalesce('(' || string_agg(quote_ident(attname), ', ' ORDER BY attnum) || ')', '') AS columns
 FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = '') a
WHERE relnamespace = to_regnamespace(quote_ident(:'schema')) AND relkind = 'r' AND relpersistence = 'p' AND relname LIKE :'only' ORDER BY c.oid;

-- A name that no schema has.
-- arguments: schema suffix
\echo free_schema_sql
SELECT name FROM generate_series(1, 1 + (SELECT count(*) FROM pg_namespace)) i,
 LATERAL (SELECT snowid_internal.clip_name(:'schema', :'suffix' || CASE WHEN i > 1 THEN '_' || i ELSE '' END) AS name) n
WHERE NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = name) ORDER BY i LIMIT 1;

-- What a schema says of itself, which only its owner can have it say, as a statement: under the
-- name that it has by then, whose copy it is, or no more, and after that its own comment.
-- arguments: name then mark
\echo mark_schema_sql
SELECT format('COMMENT ON SCHEMA %I IS %L', :'then', nullif(concat_ws(E'\n', :'mark',
 nullif(regexp_replace(obj_description(to_regnamespace(quote_ident(:'name')), 'pg_namespace'), '^snowid: of shard \d+(\n|$)', ''), '')), ''));

-- Whose a schema is, as statements.
-- arguments: name
\echo owner_of_copy_sql
SELECT format('ALTER SCHEMA %I OWNER TO %I', nspname, pg_get_userbyid(nspowner)) || coalesce((
 SELECT string_agg(format('; GRANT %s ON SCHEMA %I TO %s%s', privilege_type, nspname, CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END,
  CASE WHEN is_grantable THEN ' WITH GRANT OPTION' END), '') FROM aclexplode(nspacl) WHERE grantee <> nspowner), '')
FROM pg_namespace WHERE nspname = :'name';

-- arguments: name states
\echo set_sequences_sql
SELECT count(*) FROM (
 SELECT snowid_internal.define_sequence(c.oid, min, max, start, cycle, true), setval(c.oid::regclass, last, called)
 FROM jsonb_each(:'states') e JOIN pg_class c ON relname = key AND relnamespace = :'name'::regnamespace AND relkind = 'S',
 jsonb_to_record(value) x (last bigint, called boolean, min bigint, max bigint, start bigint, cycle boolean)) s;

-- arguments: name
\echo close_copy_sql
SELECT (SELECT count(snowid_internal.prepare_table(t, true)::text) FROM snowid_internal.shard_tables(:'name') t),
 (SELECT count(*) FROM snowid_internal.close_sequences(ARRAY(SELECT oid FROM pg_class WHERE relnamespace = to_regnamespace(quote_ident(:'name')) AND relkind = 'S' ORDER BY oid)));

-- The states from which the sequences of a copy go on in the place of a shard that is closed: those
-- of the same column, or name, and all that make ids, whatever they are called; and
-- what makes them large enough.
-- arguments: number name
\echo joined_sequences_sql
WITH side AS (
 SELECT n.oid, false AS is_new, m.details -> 'sequences' AS states, r.sequence AS main
 FROM snowid.moves m JOIN snowid.shard_registry r USING (shard) JOIN pg_namespace n ON nspname = m.schema WHERE m.shard = :'number'
 UNION ALL SELECT n.oid, true, details -> 'sequences', details ->> 'sequence' FROM snowid.copies o JOIN pg_namespace n ON nspname = o.schema WHERE o.schema = :'name'
), q AS MATERIALIZED (
 SELECT c.oid, relname, is_new, x.*, seqincrement > 0 AS rises, 2::numeric ^ (8 * typlen - 1) AS top,
  relname = main OR EXISTS (SELECT FROM pg_depend d WHERE d.refobjid = c.oid AND d.refclassid = 'pg_class'::regclass
   AND d.classid = 'pg_attrdef'::regclass AND snowid_internal.makes_ids(d.objid)) AS makes_ids,
  ARRAY(SELECT format('%s.%s', t.relname, attname) FROM pg_depend d LEFT JOIN pg_attrdef f ON d.classid = 'pg_attrdef'::regclass AND f.oid = d.objid
   JOIN pg_attribute a ON (attrelid, attnum) = (coalesce(f.adrelid, d.refobjid), coalesce(f.adnum, d.refobjsubid)) JOIN pg_class t ON t.oid = attrelid
   WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.refobjsubid > 0 OR d.classid = 'pg_attrdef'::regclass AND d.refobjid = c.oid) AS users
 FROM side JOIN pg_class c ON relnamespace = side.oid AND relkind = 'S' JOIN pg_sequence ON seqrelid = c.oid JOIN pg_type y ON y.oid = seqtypid,
 jsonb_to_record(states -> relname::text) x (last bigint, called boolean, min bigint, max bigint, start bigint, cycle boolean)
)
SELECT coalesce(jsonb_object_agg(i.relname, jsonb_build_object('last', w.last, 'called', w.called, 'min', least(i.min, w.min, w.last), 'max', greatest(i.max, w.max, w.last),
 'start', i.start, 'cycle', i.cycle)), '{}'),
 coalesce(string_agg(format('ALTER SEQUENCE %s AS bigint', i.oid::regclass), '; ') FILTER (WHERE greatest(w.last, w.max) >= i.top OR least(w.last, w.min) < -i.top), '')
FROM q i, LATERAL (SELECT o.last, o.called, o.min, o.max FROM q o
 WHERE o.oid = i.oid OR NOT o.is_new AND o.rises = i.rises AND o.makes_ids = i.makes_ids AND (i.makes_ids OR o.relname = i.relname OR o.users && i.users)
 ORDER BY CASE WHEN i.rises THEN o.last ELSE -o.last END DESC, o.called DESC LIMIT 1) w WHERE i.is_new;

-- What of other schemas refers to rows of one.
-- arguments: schema
\echo referrers_sql
SELECT string_agg(format('%s of table %s', quote_ident(conname), conrelid::regclass), ', ' ORDER BY conname)
FROM pg_constraint k JOIN pg_class t ON t.oid = confrelid JOIN pg_namespace n ON n.oid = t.relnamespace
WHERE contype = 'f' AND conparentid = 0 AND nspname = :'schema' AND connamespace <> n.oid;

-- What gives a copy's columns ids of another number: first, and then.  Where a guard was,
-- rows with older ids can still be changed.
-- arguments: name number
\echo own_ids_sql
SELECT format('ALTER TABLE %s ALTER COLUMN %I DROP DEFAULT', t.oid::regclass, attname) || coalesce((
  SELECT string_agg(format(', DROP CONSTRAINT %I, ADD CONSTRAINT %1$I %s', conname, regexp_replace(def, ' = ([0-9]+)[)][)]$', ' IN (\1, ' || :'number' || ')))')), '')
  FROM pg_constraint k, pg_get_constraintdef(k.oid) def WHERE conrelid = t.oid AND contype = 'c' AND conkey = ARRAY[attnum] AND coninhcount = 0
  AND def ~ 'id_shard[(].* = [0-9]+[)][)]$'), ''),
 format('SELECT snowid.set_default(%L, %L, %L)', t.oid::regclass, attname, is_own)
FROM pg_class t JOIN pg_attrdef ad ON adrelid = t.oid JOIN pg_attribute a ON attrelid = t.oid AND attnum = adnum,
LATERAL (SELECT bool_or(pronamespace = 'snowid'::regnamespace) AS is_own FROM pg_depend d JOIN pg_proc p ON p.oid = refobjid
 WHERE d.classid = 'pg_attrdef'::regclass AND d.objid = ad.oid AND refclassid = 'pg_proc'::regclass AND proname = 'next_id'
 AND pronamespace IN ('snowid'::regnamespace, :'name'::regnamespace)) o
WHERE relnamespace = :'name'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition AND is_own IS NOT NULL ORDER BY t.oid;
