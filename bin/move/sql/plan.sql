-- The checks of snowid-move plan, in their order: everything that would make a
-- move fail, or lose something silently, told before anything is touched.
--
-- A check gives rows of severity ('FAILED', 'warning', 'ok'), what was found, and
-- what to do about it, and the command for the source that does it, if there is
-- one; no row is good news.  The build makes the table of
-- precheck.c of this file (embed.awk says how), and psql runs it, but for what
-- only C can look at:
--
--	psql -X -d 'host=a dbname=app' -v source='host=a dbname=app' -v target='host=b dbname=app' \
--		-v shards='{5}' -v schemas='{insta5}' -v set_schemas='{insta5}' -v name=snowid_move_5_x -v home='host=b dbname=app' \
--		-v max_lag=1000000 -v max_wal=10000000000 -v pause_limit=1000 -v trust_owners=off -v reverse=off -f plan.sql
\ir common.sql
\set users_of :'schemas'
\set owned_in :in_shard

\echo versions of PostgreSQL
-- probe: check_versions

\echo pg_dump
-- probe: check_pg_dump

\echo earlier move
-- probe: check_earlier_move

\echo source is a primary
\c :source
:is_standby;

\echo target is a primary
\c :target
:is_standby;

\echo two databases
\c :source
SELECT concat(system_identifier, pg_postmaster_start_time(), current_database()) AS other FROM pg_control_system() \gset
\c :target
SELECT 'FAILED', 'source and target are the same', 'Look at --from and --to.' FROM pg_control_system()
WHERE concat(system_identifier, pg_postmaster_start_time(), current_database()) = :'other';

-- Of either edition; from a comment, since the function may not be there.
SELECT $$
substring(obj_description(to_regprocedure('snowid.version()'), 'pg_proc') FROM '\S+$')
$$ AS snowid_version \gset

\echo extension snowid
\c :source
SELECT coalesce(:snowid_version, '') AS other \gset
\c :target
SELECT 'FAILED', format('it is not in the %s''s database', server), 'There, type: CREATE EXTENSION snowid;'
FROM (VALUES ('source', :'other'), ('target', coalesce(:snowid_version, ''))) t (server, version) WHERE version = ''
UNION ALL
SELECT 'FAILED', format('it is version %s on the source and %s on the target', :'other', version),
 'On the older one, type: ALTER EXTENSION snowid UPDATE; or, of the portable edition, install the newer one.'
FROM (SELECT :snowid_version) t (version) WHERE :'other' NOT IN ('', version);

\echo shard on the source
\c :source
-- All else of it is known before.
SELECT 'FAILED', format('sequence "%s" of schema "%s" does not exist', r.sequence, r.schema),
 'SELECT * FROM snowid.shards; shows what is there and where shards live.'
FROM snowid.shard_registry r JOIN pg_namespace n ON nspname = r.schema
LEFT JOIN pg_class c ON relnamespace = n.oid AND relname = r.sequence AND relkind = 'S'
WHERE r.shard = ANY (:'shards'::int[]) AND c.oid IS NULL;

\echo not of Citus
SELECT 'FAILED', format('Citus has copied schema "%s" to its nodes', nspname),
 format('Let Citus move it. Type: SELECT citus_schema_move(%L, host, port);', nspname)
FROM pg_namespace WHERE nspname = ANY (:'schemas') AND oid IN (SELECT * FROM snowid_internal.citus_oids('copy'::text));

\echo number on the target
\c :target
WITH s AS (SELECT * FROM unnest(:'shards'::int[], :'schemas'::text[]) AS s (shard, schema))
SELECT 'FAILED', CASE WHEN r.schema <> s.schema THEN format('shard %s there is schema "%s"', shard, r.schema)
  ELSE format('shard %s is there already', shard) END,
 CASE WHEN r.schema <> s.schema THEN 'Two shards have one number, so their ids can be the same. Give one another number.'
  ELSE format('Look whether it was ever moved: SELECT * FROM snowid.shards WHERE shard = %s;', shard) END
FROM snowid.shard_registry r JOIN s USING (shard) WHERE r.schema <> s.schema OR snowid_internal.lives(r) = 'here'
UNION ALL
SELECT 'FAILED', format('schema "%s" there is shard %s', schema, r.shard), 'Rename one of the two.'
FROM snowid.shard_registry r JOIN s USING (schema) WHERE r.shard <> s.shard;

\echo schema on the target
SELECT 'FAILED', format('schema "%s" is there already%s', nspname, CASE WHEN foreign_only THEN ', with foreign tables' END),
 CASE WHEN foreign_only THEN
  format('If nothing reads them there any more, type: DROP SCHEMA %I CASCADE;', nspname)
 ELSE format('Rename or drop it. To rename it, type: ALTER SCHEMA %I RENAME TO %I;', nspname, nspname || '_old') END
FROM (SELECT nspname, (SELECT bool_and(relkind = 'f') FROM pg_class WHERE relnamespace = n.oid) IS TRUE AS foreign_only
 FROM pg_namespace n WHERE nspname = ANY (:'schemas') AND nspname NOT IN (SELECT schema FROM snowid.moves)) t;

-- The names that other moves of these shards have given, and those in the journal, which
-- moves that are under way use.
SELECT $$
(format('^snowid_(move|back)_(%s)_', array_to_string(:'shards'::int[], '|')))
$$ AS leftover \gset
SELECT $$
IN (SELECT coalesce(n, '') FROM snowid.moves, unnest(ARRAY[details ->> 'name', details ->> 'reverse_name']) n)
$$ AS in_use \gset

\echo leftovers on the target
SELECT 'FAILED', format('subscription "%s" is there already', subname),
 format('Type: ALTER SUBSCRIPTION %I DISABLE; ALTER SUBSCRIPTION %I SET (slot_name = NONE); DROP SUBSCRIPTION %I;',
  subname, subname, subname)
FROM pg_subscription JOIN pg_database d ON d.oid = subdbid WHERE datname = current_database() AND subname ~ :leftover AND subname NOT :in_use;

\echo leftovers on the source
\c :source
SELECT 'FAILED', format('publication "%s" is there already', pubname), format('Type: DROP PUBLICATION %I;', pubname)
FROM pg_publication WHERE pubname ~ :leftover AND pubname NOT :in_use
UNION ALL
SELECT 'FAILED', format('replication slot "%s" is there already', slot_name),
 format('Type: SELECT pg_drop_replication_slot(%L);', slot_name)
FROM pg_replication_slots WHERE database = current_database() AND slot_name ~ :leftover AND slot_name NOT :in_use
UNION ALL
SELECT 'warning', format('schema "%s" is there', nspname),
 format('It is the copy of an earlier move. If that move is complete, type: DROP SCHEMA %I CASCADE;', nspname)
FROM pg_namespace WHERE nspname IN (SELECT s || '_moved' FROM unnest(:'schemas'::text[]) s);

-- Until 16, only superusers make subscriptions.
SELECT $$
SELECT 'FAILED', format('role %I is no superuser, and may not make subscriptions', current_user),
 CASE WHEN p.oid IS NULL THEN 'Connect as a superuser: before PostgreSQL 16, no other role may.'
 ELSE format('As a superuser, type: GRANT pg_create_subscription TO %I;', current_user) END
FROM pg_roles r LEFT JOIN pg_roles p ON p.rolname = 'pg_create_subscription'
WHERE r.rolname = current_user AND NOT r.rolsuper AND pg_has_role(p.oid, 'USAGE') IS NOT TRUE
$$ AS may_subscribe \gset

SELECT $$
SELECT 'FAILED', 'role ' || quote_ident(current_user) || ' may not create replication slots',
 format('As a superuser, type: ALTER ROLE %I REPLICATION;', current_user)
FROM pg_roles WHERE rolname = current_user AND NOT rolsuper AND NOT rolreplication
$$ AS may_replicate \gset

-- A parameter that only superusers set, and roles that have been granted it.
SELECT $$
SELECT 'warning', format('role %I may not set deadlock_timeout: an autovacuum in the way makes writers wait longer, or stops the cut-over', current_user),
 format('As a superuser, type: GRANT SET ON PARAMETER deadlock_timeout TO %I;', current_user)
WHERE NOT has_parameter_privilege('deadlock_timeout', 'SET')
$$ AS may_set \gset

-- Of what the shards' objects are made of; who owns their own schema may use it.
SELECT $$
WITH :objects_inside
SELECT coalesce(array_agg(DISTINCT nspname), '{}') AS other FROM pg_namespace n LEFT JOIN object o ON namespace = n.oid
WHERE nspname = 'snowid'
OR NOT namespace :in_shard AND (o.classid, o.objid) IN (SELECT refclassid, refobjid FROM pg_depend JOIN inside USING (classid, objid))
$$ AS used_schemas \gset

SELECT $$
SELECT 'FAILED', format('role %I may not create %s', current_user, :'made'),
 format('Type: GRANT CREATE ON DATABASE %I TO %I;', current_database(), current_user)
WHERE NOT has_database_privilege(current_database(), 'CREATE')
UNION ALL
SELECT 'FAILED', format('role %I may not use schema %I', current_user, nspname), format('Type: GRANT USAGE ON SCHEMA %I TO %I;', nspname, current_user)
FROM pg_namespace WHERE nspname = ANY (:'other'::name[]) AND NOT has_schema_privilege(oid, 'USAGE')
UNION ALL
SELECT 'FAILED', format('sessions of role %I go on as role %I', session_user, current_user),
 format('Connect as that role, or type: ALTER ROLE %I RESET role; ALTER ROLE %1$I IN DATABASE %I RESET role;', session_user, current_database())
WHERE session_user <> current_user
UNION ALL
:may_see_sessions
UNION ALL
:may_set
UNION ALL
:may_write
$$ AS may_move \gset

\echo rights on the source
\set made publications
:used_schemas \gset
:may_replicate
UNION ALL
:may_move;

\echo ownership on the source
-- of tables
WITH :owned
:owns_all;

\echo rights on the target
\set made schemas
:used_schemas \gset
\c :target
:may_subscribe
UNION ALL
:may_move;

\echo ownership on the target
-- of tables
\c :source
WITH :owned
SELECT coalesce(json_agg(t), '[]') AS other FROM (
 SELECT rolname, bool_or(command ~ '^ALTER SCHEMA') AS has_schema, json_agg(name) AS names, json_agg(command) AS commands
 FROM owned JOIN pg_roles r ON r.oid = owner GROUP BY 1) t \gset
\c :target
SELECT 'FAILED', format(CASE WHEN rolsuper THEN 'role %I may not make %s for %I, who is a superuser'
  ELSE 'role %I may not make objects for %3$I' END, current_user, name, rolname),
 CASE WHEN rolsuper THEN 'On the source, type: ' || fix ELSE format('Type: GRANT %I TO %I;', rolname, current_user) END, fix
FROM json_to_recordset(:'other'::json) o (rolname name, names json, commands json) JOIN pg_roles r USING (rolname),
LATERAL (SELECT name, CASE WHEN rolsuper THEN format('%s OWNER TO %I;', command, current_user) END
 FROM ROWS FROM (json_array_elements_text(names), json_array_elements_text(commands)) WITH ORDINALITY AS e (name, command, n)
 WHERE rolsuper OR n = 1) f (name, fix)
WHERE NOT pg_has_role(r.oid, 'MEMBER')
UNION ALL
SELECT 'FAILED', format('role %I may not own a schema', rolname),
 format('Type: GRANT CREATE ON DATABASE %I TO %I;', current_database(), rolname), NULL
FROM json_to_recordset(:'other'::json) o (rolname name, has_schema bool) JOIN pg_roles r USING (rolname)
WHERE has_schema AND NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
AND NOT has_database_privilege(r.oid, current_database(), 'CREATE');

\if :reverse
\echo rights on the source
\c :source
:may_subscribe
UNION ALL
-- The way back begins where an origin says.
SELECT 'FAILED', format('role %I may not call %s', current_user, f),
 format('As a superuser, type: GRANT EXECUTE ON FUNCTION %s TO %I;', f, current_user)
FROM CAST('pg_replication_origin_advance(text,pg_lsn)' AS text) f WHERE NOT has_function_privilege(f, 'EXECUTE');

\echo rights on the target
\c :target
:may_replicate;
\endif

\echo roles on the target
-- of tables
\c :source
-- All that own something in the shard, may use it, or are in a policy.
WITH :objects_inside, :owned
SELECT coalesce(string_agg(rolname, E'\n'), '') AS other FROM pg_roles WHERE oid IN (
 SELECT owner FROM owned
 UNION ALL SELECT refobjid FROM pg_shdepend JOIN (
  TABLE inside
  UNION ALL SELECT tableoid, oid FROM pg_namespace WHERE oid :in_shard
  UNION ALL SELECT tableoid, oid FROM pg_default_acl WHERE defaclnamespace :in_shard) o (classid, objid) USING (classid, objid)
 WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND refclassid = 'pg_authid'::regclass) \gset
\c :target
SELECT 'FAILED', format('role "%s" does not exist there', name),
 format('Type: CREATE ROLE %I; with the attributes that it has on the source (pg_dumpall --roles-only).', name)
FROM unnest(string_to_array(:'other', E'\n')) AS name WHERE name NOT IN (SELECT rolname FROM pg_roles);

\echo extensions on the target
-- of tables
-- A definition names what it uses with its schema.  An array's type is the extension's by that of its elements.
\c :source
WITH :objects_inside
SELECT coalesce(json_agg(x), '[]') AS other FROM (
 SELECT DISTINCT extname AS name, extversion AS version, extnamespace::regnamespace::text AS schema
 FROM (SELECT d.refclassid, d.refobjid FROM pg_depend d JOIN inside USING (classid, objid)
  UNION SELECT d.refclassid, typelem FROM pg_depend d JOIN inside USING (classid, objid)
  JOIN pg_type t ON refclassid = 'pg_type'::regclass AND t.oid = refobjid WHERE typelem <> 0) d
 JOIN pg_depend m ON (m.classid, m.objid, m.deptype) = (d.refclassid, d.refobjid, 'e')
 JOIN pg_extension e ON m.refobjid = e.oid WHERE e.extname <> 'snowid') x \gset
\c :target
SELECT CASE WHEN extversion <> version AND here = schema THEN 'warning' ELSE 'FAILED' END,
 CASE WHEN extname IS NULL THEN format('extension "%s" is missing', name)
 WHEN here <> schema THEN format('extension "%s" is in schema %s, and in %s on the source', name, here, schema)
 ELSE format('extension "%s" is version %s, and %s on the source', name, extversion, version) END,
 CASE WHEN extname IS NULL THEN format('Type: %sCREATE EXTENSION %I%s;',
  make_schema, name, CASE WHEN schema NOT IN ('public', 'pg_catalog') THEN ' SCHEMA ' || schema END)
 WHEN here <> schema AND extrelocatable THEN format('Type: %sALTER EXTENSION %I SET SCHEMA %s;', make_schema, name, schema)
 WHEN here <> schema THEN format('It cannot change its schema. If nothing needs it there, type: DROP EXTENSION %I; CREATE EXTENSION %I SCHEMA %s;', name, name, schema)
 ELSE format('On the older one, type: ALTER EXTENSION %I UPDATE;', name) END
FROM json_to_recordset(:'other'::json) x (name name, version text, schema text)
LEFT JOIN LATERAL (SELECT format('CREATE SCHEMA IF NOT EXISTS %s; ', schema) WHERE to_regnamespace(schema) IS NULL) m (make_schema) ON true
LEFT JOIN (SELECT *, extnamespace::regnamespace::text AS here FROM pg_extension) e ON extname = name
WHERE extname IS NULL OR here <> schema OR extversion <> version ORDER BY 2;

\echo owners
-- of tables
-- Again where its parts are made, since the target's may have others' functions by then.
\c :source
WITH :called_code
SELECT coalesce(json_agg(jsonb_build_object('caller', caller, 'code', code, 'is_super', is_super)), '[]') AS other FROM called \gset
\c :target
WITH found AS (
 SELECT caller, code, is_super, CASE owner WHEN 'pg_database_owner'::regrole THEN datdba ELSE owner END AS owner, nspname, of_schema, extname
 FROM json_to_recordset(:'other'::json) x (caller text, code text, is_super bool) JOIN pg_database ON datname = current_database() LEFT JOIN (
  SELECT oid::regprocedure::text, proowner, pronamespace, tableoid, oid FROM pg_proc WHERE oid >= 16384
  UNION ALL SELECT oid::regoperator::text, oprowner, oprnamespace, tableoid, oid FROM pg_operator WHERE oid >= 16384
  UNION ALL SELECT o.oid::regoperator::text, proowner, pronamespace, p.tableoid, p.oid FROM pg_operator o JOIN pg_proc p ON p.oid = oprcode WHERE p.oid >= 16384
  UNION ALL SELECT oid::regtype::text, typowner, typnamespace, tableoid, oid FROM pg_type WHERE oid >= 16384
  UNION ALL SELECT t.oid::regclass::text, c.relowner, t.relnamespace, c.tableoid, c.oid FROM (SELECT * FROM pg_class
    WHERE oid >= 16384 AND oid::regclass::text IN (SELECT code FROM json_to_recordset(:'other'::json) x (caller text, code text) WHERE caller ^@ 'table ') OFFSET 0) t,
   LATERAL (SELECT t.oid UNION SELECT relid FROM pg_partition_tree(t.oid) UNION SELECT inhrelid FROM pg_inherits WHERE inhparent = t.oid) m (oid)
   JOIN pg_class c ON c.oid = m.oid) y (code, owned_by, place, classid, objid) USING (code)
 LEFT JOIN pg_namespace n ON n.oid = place LEFT JOIN pg_depend e ON (e.classid, e.objid, e.deptype) = (y.classid, y.objid, 'e') LEFT JOIN pg_extension ON pg_extension.oid = e.refobjid,
 LATERAL (VALUES (owned_by, false), (coalesce(extowner, nspowner), true)) o (owner, of_schema))
SELECT 'ok', 'trusted', '' WHERE :'trust_owners'::bool
UNION ALL
-- Who owns a schema, or an extension, can put another there.
SELECT 'FAILED', format(CASE WHEN of_schema THEN '%s %s, and %I, who owns that %s, is no superuser and could have the copy run another as one'
  ELSE '%s %s, whose owner is no superuser, and the copy could run it as one' END, caller, code, rolname, CASE WHEN extname IS NULL THEN 'schema' ELSE 'extension' END),
 'If you trust that role with both servers, say so: --trust-owners.'
FROM found LEFT JOIN pg_roles r ON r.oid = owner WHERE NOT :'trust_owners'::bool
AND CASE WHEN of_schema THEN is_super AND NOT rolsuper AND nspname <> ALL (:'schemas'::name[]) ELSE NOT (is_super AND coalesce(rolsuper, true)) END
ORDER BY 2;

SELECT $$
SELECT 'FAILED', what, format('As a superuser, type there: %s Or, if you trust that role with both servers, say so: --trust-owners.', to_do) FROM (:better_fits) x WHERE NOT :'trust_owners'::bool ORDER BY 2
$$ AS others_found \gset

\echo names on the source
-- of tables
\c :source
:code_looked_for \gset
:others_found;

\echo names on the target
-- of tables
\c :source
:code_looked_for \gset
\c :target
:others_found;

-- Until 16, replication applies rows as the owner of the subscription, with
-- whatever CHECKs, index expressions, generated columns and domains the shard has.
SELECT $$
EXISTS (SELECT FROM pg_roles WHERE rolname = 'pg_create_subscription')
$$ AS applies_as_owner \gset
SELECT $$
WITH :owned
SELECT coalesce(string_agg(DISTINCT owner::regrole::text, E'\n'), '') AS other FROM owned
$$ AS owners \gset
SELECT $$
SELECT 'FAILED', format('%s owns objects of the shard and is no superuser, but replication to PostgreSQL %s would run its'
 ' functions as one', name, current_setting('server_version_num')::int / 10000),
 'If you trust that role with the whole server, say so: --trust-owners.'
FROM unnest(string_to_array(:'other', E'\n')) AS name JOIN pg_roles r ON r.oid = to_regrole(name)
WHERE NOT rolsuper AND NOT :applies_as_owner AND NOT :'trust_owners'::bool ORDER BY name
$$ AS runs_as_superuser \gset

\echo owners on the target
-- of tables
\c :source
:owners \gset
\c :target
:runs_as_superuser;

-- What is read as it is in set_up_session(): that came with minor releases of August 2024.
SELECT $$
SELECT 'warning', format('%s could put a view in the place of a table, and PostgreSQL %s cannot refuse to run it', string_agg(name, ', ' ORDER BY name), current_setting('server_version')),
 'Update it, to 15.8, 16.4 or later; or let no such role connect meanwhile.'
FROM unnest(string_to_array(:'other', E'\n')) AS name JOIN pg_roles r ON r.oid = to_regrole(name)
WHERE NOT rolsuper AND NOT :'trust_owners'::bool AND NOT EXISTS (SELECT FROM pg_settings s WHERE s.name = 'restrict_nonsystem_relation_kind') HAVING count(*) > 0
$$ AS runs_views \gset

\echo views of owners on the source
-- of tables
\c :source
:owners \gset
:runs_views;

\echo views of owners on the target
-- of tables
\c :source
:owners \gset
\c :target
:runs_views;

\echo transforms
\c :source
SELECT 'FAILED', format('%s would be lost: pg_dump of a schema leaves it out', pg_describe_object(f.tableoid, f.oid, 0)),
 format('Type: DROP TRANSFORM FOR %s LANGUAGE %I; and make it again on the target after the move.', format_type(trftype, NULL), lanname)
FROM pg_transform f JOIN pg_type t ON t.oid = trftype JOIN pg_language l ON l.oid = trflang
WHERE t.typnamespace :in_shard ORDER BY 2;

-- All that the command names, also if one is looked at alone.
SELECT $$
SELECT oid FROM pg_namespace WHERE nspname = ANY (:'set_schemas')
$$ AS in_set \gset

\echo objects of other schemas
-- of tables
-- That the shard's depend on, and the target does not have.  (Those of extensions
-- come with them.)
-- probe: check_needs
WITH :objects_inside, outside AS (
 SELECT d.refclassid, d.refobjid, min(pg_describe_object(d.classid, d.objid, 0)) AS needed_by
 FROM pg_depend d JOIN inside i USING (classid, objid)
 WHERE d.deptype IN ('n', 'a') AND d.refobjid >= 12000
 AND (d.refclassid, d.refobjid) NOT IN (SELECT classid, objid FROM object WHERE namespace IN (:in_set))
 AND d.refclassid NOT IN ('pg_namespace'::regclass, 'pg_extension'::regclass)
 AND NOT EXISTS (SELECT FROM pg_depend e WHERE (e.classid, e.objid, e.deptype) = (d.refclassid, d.refobjid, 'e'))
 AND (d.classid, d.refclassid) <> ('pg_class'::regclass, 'pg_class'::regclass)
 GROUP BY 1, 2)
SELECT a.type, a.object_names, a.object_args, pg_describe_object(o.refclassid, o.refobjid, 0), o.needed_by
FROM outside o, pg_identify_object_as_address(o.refclassid, o.refobjid, 0) a ORDER BY 4;

-- Something that is called so, of a kind that texts of functions name.
SELECT $$
EXISTS (SELECT FROM pg_namespace n WHERE nspname = x[1] AND (
 EXISTS (SELECT FROM pg_proc WHERE pronamespace = n.oid AND proname = x[2])
 OR EXISTS (SELECT FROM pg_class WHERE relnamespace = n.oid AND relname = x[2])
 OR EXISTS (SELECT FROM pg_type WHERE typnamespace = n.oid AND typname = x[2])))
$$ AS is_there \gset

\echo sequences outside of the shard
-- of tables
SELECT DISTINCT CASE WHEN seqincrement > 1 THEN 'warning' ELSE 'FAILED' END,
 format('%s takes numbers from %s, which does not move', pg_describe_object(d.classid, d.objid, 0), s.oid::regclass),
 format('The target''s own would give the same numbers again. Give the shard one: ALTER SEQUENCE %s SET SCHEMA %I; or a DEFAULT of snowid: '
  'SELECT snowid.set_default(...);', s.oid::regclass, n.nspname)
FROM pg_depend d JOIN pg_class s ON d.refclassid = s.tableoid AND d.refobjid = s.oid AND s.relkind = 'S' JOIN pg_sequence ON seqrelid = s.oid
JOIN pg_attrdef a ON d.classid = a.tableoid AND d.objid = a.oid JOIN pg_class c ON c.oid = adrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relnamespace :in_shard AND s.relnamespace NOT IN (SELECT c.relnamespace UNION ALL :in_set)
AND NOT EXISTS (SELECT FROM pg_depend e WHERE (e.classid, e.objid, e.deptype) = (s.tableoid, s.oid, 'e')) ORDER BY 2;

\echo texts of functions
SELECT coalesce(string_agg(DISTINCT concat_ws(' ', x[1], x[2], oid::regprocedure), E'\n'), '') AS other
FROM pg_proc, regexp_matches(lower(prosrc), '\m([a-z_][a-z0-9_]*)\.([a-z_][a-z0-9_]*)', 'g') x
WHERE pronamespace :in_shard AND x[1] <> ALL (:'schemas') AND :is_there \gset
\c :target
SELECT 'warning', format('%I.%I is missing; the text of %s names it', x[1], x[2], x[3]),
 'Create it there, or the function may fail when it is called.'
FROM (SELECT regexp_match(line, '^(\S+) (\S+) (.*)$') FROM unnest(string_to_array(:'other', E'\n')) line) t (x)
WHERE NOT :is_there ORDER BY 2;

-- Is what d depends on a function or an operator that a lesser role owns, or can replace, or of which it can make another part?
SELECT $$
EXISTS (SELECT FROM (
 SELECT proowner, pronamespace FROM pg_proc f WHERE (f.tableoid, f.oid) = (d.refclassid, d.refobjid)
 UNION ALL SELECT x.* FROM pg_operator q JOIN pg_proc f ON f.oid = oprcode, LATERAL (VALUES (proowner, pronamespace), (oprowner, oprnamespace)) x
  WHERE (q.tableoid, q.oid) = (d.refclassid, d.refobjid)) f (owner, place) JOIN pg_namespace m ON m.oid = place
 WHERE owner NOT IN (TABLE trusted) OR nspowner NOT IN (TABLE trusted))
$$ AS calls_lesser \gset

\echo functions without a path
-- pg_restore and replication call functions with an empty search_path.  So what calls some is tried, on a
-- row; but nothing that a lesser role owns, or could put in the place of what we have read, if it is not trusted.
\c :source
-- probe: check_functions
WITH RECURSIVE trusted AS MATERIALIZED (SELECT oid FROM pg_roles WHERE oid IN (:trusted_roles) OR :'trust_owners'::bool),
-- A value of such a type, or cast to it, can run a lesser role's CHECK; cast from it, a lesser role's cast.
lesser_type (oid) AS (
 SELECT t.oid FROM pg_type t JOIN pg_namespace n ON n.oid = typnamespace WHERE typowner NOT IN (TABLE trusted) OR nspowner NOT IN (TABLE trusted)
 OR EXISTS (SELECT FROM pg_constraint k JOIN pg_depend d ON (d.classid, d.objid) = (k.tableoid, k.oid) WHERE contypid = t.oid AND :calls_lesser)
 UNION SELECT CASE d.classid WHEN 'pg_type'::regclass THEN d.objid ELSE c.reltype END FROM lesser_type l JOIN pg_depend d ON d.refclassid = 'pg_type'::regclass AND d.refobjid = l.oid
 LEFT JOIN pg_class c ON d.classid = c.tableoid AND c.oid = d.objid WHERE d.classid = 'pg_type'::regclass OR c.reltype <> 0),
rel AS MATERIALIZED (
 SELECT c.oid, relkind, relowner, relname, r.shard FROM pg_namespace n JOIN snowid.shard_registry r ON r.schema = nspname JOIN pg_class c ON relnamespace = n.oid
 WHERE relnamespace :in_shard AND relkind IN ('r', 'p', 'm') AND relowner IN (TABLE trusted) AND nspowner IN (TABLE trusted) AND (relkind <> 'm' OR :'trust_owners'::bool)),
expression AS MATERIALIZED (
 SELECT rel.*, format('constraint %I', conname) AS what, pg_get_expr(conbin, conrelid) AS text, k.tableoid AS classid, k.oid AS objid FROM rel JOIN pg_constraint k ON conrelid = rel.oid AND contype = 'c'
 UNION ALL SELECT rel.*, format('column %I', attname), pg_get_expr(adbin, adrelid), f.tableoid, f.oid
  FROM rel JOIN pg_attrdef f ON adrelid = rel.oid JOIN pg_attribute a ON (attrelid, attnum) = (adrelid, adnum) AND attgenerated <> ''
 UNION ALL SELECT rel.*, format('index %s', indexrelid::regclass), concat_ws(', ', pg_get_expr(indexprs, indrelid), pg_get_expr(indpred, indrelid)), 'pg_class'::regclass, indexrelid
  FROM rel JOIN pg_index ON indrelid = rel.oid WHERE coalesce(indexprs, indpred) IS NOT NULL
 UNION ALL SELECT rel.*, format('domain %s', t.oid::regtype), format('(%I::%s)::%s', attname, format_type(t.typbasetype, t.typtypmod), t.oid::regtype), k.tableoid, k.oid
  FROM pg_constraint k JOIN pg_type t ON t.oid = contypid JOIN pg_attribute a ON atttypid = t.oid AND NOT attisdropped AND attgenerated = '' JOIN rel ON rel.oid = attrelid
  WHERE contypid <> 0 AND relkind <> 'm'),
called AS MATERIALIZED (
 SELECT shard, relowner AS owner, what, format('SELECT %s FROM (SELECT * FROM %s UNION ALL SELECT (NULL::%2$s).* LIMIT 1) %I', text, oid::regclass, relname) AS statement, classid, objid FROM expression
 UNION ALL SELECT shard, relowner, 'its query', format('SELECT * FROM (%s) x LIMIT 1', rtrim(pg_get_viewdef(rel.oid), ';')), w.tableoid, w.oid
 FROM rel JOIN pg_rewrite w ON ev_class = rel.oid WHERE relkind = 'm')
SELECT shard, owner::regrole, what, statement,
 'Type: ' || string_agg(DISTINCT format('ALTER FUNCTION %s SET search_path = %I, public;', p.oid::regprocedure, nspname), ' ')
FROM called JOIN pg_depend d USING (classid, objid) JOIN pg_proc p ON d.refclassid = 'pg_proc'::regclass AND p.oid = d.refobjid
JOIN pg_namespace n ON n.oid = pronamespace JOIN pg_language l ON l.oid = prolang
WHERE p.oid >= 16384 AND lanname NOT IN ('c', 'internal') AND NOT EXISTS (SELECT FROM pg_depend d WHERE (d.classid, d.objid) = (called.classid, called.objid)
 AND (:calls_lesser OR d.refclassid = 'pg_type'::regclass AND d.refobjid IN (TABLE lesser_type)
 OR d.refclassid <> 'pg_class'::regclass AND EXISTS (SELECT FROM pg_depend e
  WHERE (e.classid, e.objid, e.refclassid) = (d.refclassid, d.refobjid, 'pg_type'::regclass) AND e.refobjid IN (TABLE lesser_type))
 OR d.refclassid = 'pg_class'::regclass AND EXISTS (SELECT FROM pg_attribute WHERE attrelid = d.refobjid AND d.refobjsubid IN (0, attnum) AND atttypid IN (TABLE lesser_type))))
AND NOT EXISTS (SELECT FROM unnest(proconfig) x WHERE x ^@ 'search_path=')
GROUP BY 1, 2, 3, 4 ORDER BY 1, 3;

\echo extensions within the shard
-- of tables
\c :source
SELECT 'FAILED', format('extension "%s" is in schema "%s", and pg_dump of a schema leaves extensions out', extname, nspname),
 CASE WHEN NOT extrelocatable THEN 'It cannot change its schema. Give the tables and the rest another one, with ALTER ... SET SCHEMA.'
 WHEN nspname = 'public' THEN format('Type: CREATE SCHEMA IF NOT EXISTS extensions; ALTER EXTENSION %I SET SCHEMA extensions;', extname)
 ELSE format('Type: ALTER EXTENSION %I SET SCHEMA public;', extname) END
FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE nspname = ANY (:'schemas')
UNION ALL
SELECT 'FAILED', format('table %s belongs to extension "%s", so pg_dump leaves it out', c.oid::regclass, e.extname),
 format('Type: ALTER EXTENSION %I DROP TABLE %s;', e.extname, c.oid::regclass)
FROM pg_class c JOIN pg_depend d ON d.classid = c.tableoid AND d.objid = c.oid AND d.deptype = 'e'
JOIN pg_extension e ON e.oid = d.refobjid WHERE relnamespace :in_shard AND c.relkind IN ('r', 'p');

\echo schema of initdb
SELECT 'FAILED', format('schema "%s" was "public", or another that initdb made, and pg_dump leaves out privileges that it has had ever since', nspname),
 'As a superuser, type: ' || fix || ' Or give what is in it another schema.', fix
FROM pg_init_privs JOIN pg_namespace n ON objoid = n.oid, LATERAL format('SET allow_system_table_mods = on; DELETE FROM pg_init_privs'
 ' WHERE classoid = ''pg_namespace''::regclass AND objoid = %L::regnamespace; RESET allow_system_table_mods;', quote_ident(nspname)) fix
WHERE classoid = 'pg_namespace'::regclass AND nspname = ANY (:'schemas') ORDER BY 2;

\echo tablespaces on the target
-- of tables
SELECT coalesce(string_agg(DISTINCT spcname, E'\n'), '') AS other
FROM pg_class c JOIN pg_tablespace t ON t.oid = c.reltablespace WHERE relnamespace :in_shard \gset
\c :target
SELECT 'FAILED', format('tablespace "%s" is missing', name), format('Type: CREATE TABLESPACE %I LOCATION ''...'';', name)
FROM unnest(string_to_array(:'other', E'\n')) AS name WHERE name NOT IN (SELECT spcname FROM pg_tablespace);

\echo event triggers on the target
SELECT 'warning', format('"%s" fires when the shard''s tables are made', evtname),
 format('If it should not, type: ALTER EVENT TRIGGER %I DISABLE; until the move is done.', evtname)
FROM pg_event_trigger WHERE evtenabled IN ('O', 'A');

-- Columns of tables without a primary key by which no row can be found again.
SELECT $$
RECURSIVE part (relid, attname, typ) AS (
 SELECT c.oid, attname, atttypid FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relnamespace :in_shard AND c.relkind = 'r' AND attnum > 0 AND NOT attisdropped
 AND NOT EXISTS (SELECT FROM pg_index x WHERE x.indrelid = c.oid AND x.indisprimary)
 UNION
 SELECT relid, attname, CASE typtype WHEN 'd' THEN typbasetype ELSE typelem END
 FROM part JOIN pg_type t ON t.oid = typ WHERE typtype = 'd' OR typtype = 'b' AND typcategory = 'A' AND typelem <> 0),
unequal AS (SELECT relid, attname, typ FROM part JOIN pg_type t ON t.oid = typ WHERE typtype = 'b' AND NOT (typcategory = 'A' AND typelem <> 0)
 AND NOT EXISTS (SELECT FROM pg_opclass o JOIN pg_am m ON m.oid = opcmethod
  WHERE opcdefault AND amname IN ('btree', 'hash') AND (opcintype = typ OR EXISTS (SELECT FROM pg_cast
   WHERE castsource = typ AND casttarget = opcintype AND castmethod = 'b' AND castcontext = 'i'))))
$$ AS unequal_columns \gset

\echo replica identity
-- of tables
\c :source
WITH :unequal_columns
SELECT 'FAILED', format('table %s has none, so its UPDATEs and DELETEs would fail as soon as it is published', c.oid::regclass),
 format('Type: ALTER TABLE %s %s', c.oid::regclass, coalesce('REPLICA IDENTITY USING INDEX ' || quote_ident(u.relname) || ';',
  'ADD PRIMARY KEY (...);' || CASE WHEN full_will_do THEN ' or, if large numbers of rows are never updated at once, REPLICA IDENTITY FULL;' ELSE '' END)),
 format('ALTER TABLE %s REPLICA IDENTITY ', c.oid::regclass) || coalesce('USING INDEX ' || quote_ident(u.relname) || ';',
  CASE WHEN full_will_do THEN 'FULL; -- a key is better where large numbers of rows are updated at once' END)
FROM pg_class c JOIN LATERAL (SELECT c.oid NOT IN (SELECT relid FROM unequal)) f (full_will_do) ON true LEFT JOIN LATERAL (
 SELECT i.relname FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
 WHERE x.indrelid = c.oid AND x.indisunique AND x.indimmediate AND x.indisvalid AND x.indpred IS NULL AND x.indexprs IS NULL
 AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = ANY (x.indkey) AND NOT a.attnotnull)
 ORDER BY x.indnkeyatts, i.relname LIMIT 1) u ON true
WHERE c.relnamespace :in_shard AND c.relkind = 'r' AND c.relpersistence = 'p' AND c.relreplident <> 'f'
AND NOT EXISTS (SELECT FROM pg_index x WHERE x.indrelid = c.oid AND x.indimmediate AND x.indisvalid
 AND CASE c.relreplident WHEN 'd' THEN x.indisprimary WHEN 'i' THEN x.indisreplident END)
-- Partitions get their table's key, but not its replica identity.
UNION ALL SELECT 'warning', format('a partition of table %s that is made during the move has none, and stops it', partrelid::regclass),
 CASE WHEN array_position(needed, NULL) IS NOT NULL OR keys > 1 OR NOT needed <@ own THEN 'Make none until it is done, or with ADD PRIMARY KEY in the same transaction.'
 ELSE format('Type: ALTER TABLE %s ADD PRIMARY KEY (%s);', partrelid::regclass, array_to_string(coalesce(own, needed || text '...'), ', ')) END, NULL
FROM pg_partitioned_table JOIN pg_class c ON c.oid = partrelid,
-- A key of its own that a partition has must be the same.
LATERAL (SELECT array_agg(DISTINCT quote_ident(attname)) AS needed FROM pg_partition_tree(partrelid) JOIN pg_partitioned_table s ON s.partrelid = relid
 CROSS JOIN unnest(s.partattrs) k LEFT JOIN pg_attribute ON attnum = k AND attrelid = relid) n,
LATERAL (SELECT count(DISTINCT k) + count(*) FILTER (WHERE indnatts > indnkeyatts) AS keys, min(k) AS own FROM pg_partition_tree(partrelid) JOIN pg_index ON indrelid = relid AND indisprimary,
 LATERAL (SELECT array_agg(quote_ident(attname) ORDER BY n) AS k FROM unnest(indkey) WITH ORDINALITY u (a, n) JOIN pg_attribute ON attnum = a AND attrelid = relid) i) o
WHERE relnamespace :in_shard AND NOT relispartition AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = partrelid AND indisprimary) ORDER BY 2;

\echo rows without a key
-- of tables
WITH :unequal_columns
SELECT 'FAILED', format('column %I of table %s has type %s, which has no equality, so rows cannot be found again on the target',
 attname, relid::regclass, format_type(typ, NULL)),
 format('Type: ALTER TABLE %s ADD PRIMARY KEY (...);', relid::regclass)
FROM unequal JOIN pg_class c ON c.oid = relid WHERE relreplident = 'f' ORDER BY 2;

\echo unlogged tables
-- of tables
SELECT 'FAILED', format('the rows of table %s would be lost: replication leaves them out', oid::regclass), 'Type: ' || fix, fix
FROM pg_class, LATERAL format('ALTER TABLE %s SET LOGGED;', oid::regclass) fix WHERE relnamespace :in_shard AND relkind = 'r' AND relpersistence = 'u' ORDER BY 2;

\echo partitions and inheritance
-- of tables
SELECT 'FAILED', format('table %s is a %s of %s; they must be in one schema', child,
 CASE WHEN c.relispartition THEN 'partition' ELSE 'child' END, parent),
 format('Type: ALTER TABLE %s SET SCHEMA %I; or ALTER TABLE %s %s %s;',
  CASE WHEN inside THEN parent ELSE child END, CASE WHEN inside THEN cn.nspname ELSE pn.nspname END,
  CASE WHEN c.relispartition THEN parent ELSE child END,
  CASE WHEN c.relispartition THEN 'DETACH PARTITION' ELSE 'NO INHERIT' END,
  CASE WHEN c.relispartition THEN child ELSE parent END)
FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid JOIN pg_class p ON p.oid = inhparent
JOIN pg_namespace cn ON cn.oid = c.relnamespace JOIN pg_namespace pn ON pn.oid = p.relnamespace,
LATERAL (SELECT c.oid::regclass, p.oid::regclass, cn.nspname = ANY (:'schemas')) t (child, parent, inside)
WHERE c.relkind IN ('r', 'p', 'f') AND cn.oid <> pn.oid AND (inside OR pn.nspname = ANY (:'schemas')) ORDER BY 2;

\echo foreign tables
SELECT 'warning', format('%s: its rows stay on server "%s"', c.oid::regclass, s.srvname),
 'User mappings are not copied: create them on the target.'
FROM pg_class c JOIN pg_foreign_table f ON f.ftrelid = c.oid JOIN pg_foreign_server s ON s.oid = f.ftserver
WHERE relnamespace :in_shard ORDER BY 2;

\echo foreign keys
-- of tables
SELECT 'FAILED', format('%s leads from %s to %s, %s', quote_ident(conname), conrelid::regclass, confrelid::regclass,
 CASE WHEN p.relnamespace :in_shard THEN 'into the shard' ELSE 'in another shard' END),
 format('Type: ALTER TABLE %s DROP CONSTRAINT %I;', conrelid::regclass, conname)
FROM pg_constraint k JOIN pg_class c ON c.oid = conrelid JOIN pg_class p ON p.oid = confrelid
WHERE contype = 'f' AND conparentid = 0 AND c.relnamespace <> p.relnamespace AND (c.relnamespace :in_shard OR p.relnamespace :in_shard)
AND NOT (c.relnamespace = ANY (ARRAY(:in_set)) AND p.relnamespace = ANY (ARRAY(:in_set)))
AND k.oid NOT IN (SELECT oid FROM (:shared_keys) s) ORDER BY 2;

\echo shared tables
-- of tables
SELECT coalesce(json_agg(x), '[]') AS other FROM (
 SELECT confrelid::regclass::text AS name, columns, min(format('%s of %s', quote_ident(conname), conrelid::regclass)) AS key
 FROM (:shared_keys) k, LATERAL (SELECT array_agg(format('%I %s', attname, format_type(atttypid, atttypmod)) ORDER BY attname)
  FROM pg_attribute WHERE attrelid = confrelid AND attnum = ANY (confkey)) a (columns) GROUP BY 1, 2) x \gset
\c :target
SELECT 'FAILED', CASE WHEN t IS NULL THEN format('%s is missing, to which %s leads', name, key)
 WHEN NOT is_key THEN format('%s has no such key as %s leads to: (%s)', name, key, array_to_string(columns, ', '))
 ELSE format('role %I may not refer to %s, as %s does', current_user, name, key) END,
 CASE WHEN t IS NOT NULL AND is_key THEN format('Type there: GRANT SELECT, REFERENCES ON %s TO %I;', name, current_user)
 ELSE 'Make it there as it is on the source, with the same rows: see "Shared tables" in doc/across.md.' END
FROM json_to_recordset(:'other'::json) x (name text, columns text[], key text), CAST(to_regclass(name) AS oid) t,
LATERAL (SELECT EXISTS (SELECT FROM pg_index WHERE indrelid = t AND indisunique AND indimmediate AND indisvalid AND indpred IS NULL AND indexprs IS NULL
 AND columns = ARRAY(SELECT format('%I %s', attname, format_type(atttypid, atttypmod)) FROM unnest(indkey) WITH ORDINALITY k (attnum, n)
  JOIN pg_attribute a USING (attnum) WHERE attrelid = t AND n <= indnkeyatts ORDER BY attname))) i (is_key)
WHERE NOT is_key OR NOT has_table_privilege(t, 'SELECT') OR NOT has_table_privilege(t, 'REFERENCES') ORDER BY 2;

\echo rows of shared tables
-- of tables
-- probe: check_shared_rows

\echo users in other schemas
\c :source
SELECT 'warning', format('%s uses %s', user_name, used),
 'After the move it would use the closed copy, and finish would refuse to drop that. Drop or change it.'
FROM (:outside_users) u WHERE NOT is_other_check ORDER BY 2;

\echo triggers that always fire
-- of tables
SELECT 'FAILED', format('%I on %s would fire a second time, on the target, for each change that is replicated', tgname, c.oid::regclass),
 format('Type: ALTER TABLE %s ENABLE TRIGGER %I; and set it back after the move.', c.oid::regclass, tgname)
FROM pg_trigger g JOIN pg_class c ON c.oid = tgrelid
WHERE relnamespace :in_shard AND NOT tgisinternal AND tgenabled IN ('A', 'R') ORDER BY 2;

\echo row security on the source
-- of tables
SELECT 'FAILED', format('it hides rows of %s from role %I', c.oid::regclass, current_user),
 format('As a superuser, type: ALTER ROLE %I BYPASSRLS;', current_user)
FROM pg_class c JOIN pg_roles r ON r.rolname = current_user
WHERE relnamespace :in_shard AND c.relkind = 'r' AND c.relrowsecurity AND NOT r.rolsuper AND NOT r.rolbypassrls
AND (c.relforcerowsecurity OR NOT pg_has_role(c.relowner, 'USAGE')) ORDER BY 2;

\echo row security
-- of tables
SELECT coalesce(string_agg(c.oid::regclass::text, ', '), '') AS other FROM pg_class c JOIN pg_roles o ON o.oid = c.relowner
WHERE relnamespace :in_shard AND c.relkind IN ('r', 'p') AND c.relrowsecurity AND c.relforcerowsecurity
AND NOT o.rolsuper AND NOT o.rolbypassrls \gset
\c :target
SELECT 'FAILED', 'forced even on the owner: ' || :'other',
 'For the time of the move, type: ALTER TABLE ... NO FORCE ROW LEVEL SECURITY;'
FROM pg_roles WHERE rolname = current_user AND :'other' <> '' AND (:applies_as_owner OR NOT rolsuper);

\echo large objects
\c :source
SELECT 'warning', format('column %I of table %s may name large objects, which are not replicated', attname, c.oid::regclass),
 'If it does, carry them over yourself, or store them as bytea.'
FROM pg_attribute a JOIN pg_type t ON t.oid = atttypid JOIN pg_class c ON c.oid = attrelid
WHERE relnamespace :in_shard AND c.relkind = 'r' AND attnum > 0 AND NOT attisdropped
AND (atttypid = 'oid'::regtype OR typname = 'lo') ORDER BY 2;

\echo other subscriptions
SELECT 'FAILED', format('%s is filled by replication from elsewhere, which would not follow', srrelid::regclass),
 'End that subscription first.'
FROM pg_subscription_rel s JOIN pg_class c ON c.oid = srrelid WHERE relnamespace :in_shard ORDER BY 2;

\echo other publications
SELECT 'warning', format('subscribers of "%s" will hear no more of the shard once it has moved', pubname),
 'Let them subscribe to the target as well.'
FROM pg_publication p WHERE pubname <> :'name' AND EXISTS (
 SELECT FROM pg_publication_tables t WHERE t.pubname = p.pubname AND t.schemaname = ANY (:'schemas')) ORDER BY 2;

\echo other slots
-- pgoutput shows a publication's tables, others show all.
SELECT 'warning', format('who reads slot "%s" (%s) will hear no more of the shard once it has moved', slot_name, plugin),
 'Make a slot on the target, too, before the move; see doc/moves.md.'
FROM pg_replication_slots s WHERE database = current_database() AND NOT temporary
AND slot_name NOT LIKE 'snowid\_move\_%' AND slot_name !~ '^pg_[0-9]+_sync_[0-9]+_[0-9]+$'
AND (plugin <> 'pgoutput' OR EXISTS (
 SELECT FROM pg_publication_tables t WHERE t.schemaname = ANY (:'schemas') AND t.pubname <> :'name')) ORDER BY 2;

\echo jobs
-- probe: check_jobs

\echo settings of replication workers
-- of tables
-- Its worker reads arrays, XML and money, and the source's writes money, as the role's
-- or the database's settings have it.  All else that changes values, they set themselves.
SELECT concat(CASE WHEN bool_or(b.typcategory = 'A') THEN 'array_nulls=on' END, ' ',
 CASE WHEN bool_or(b.oid IN ('xml'::regtype, 'xml[]'::regtype)) THEN 'xmloption=content' END, ' ',
 CASE WHEN bool_or(b.oid IN ('money'::regtype, 'money[]'::regtype)) THEN 'lc_monetary=' || min(l.reset_val) END) AS other
FROM pg_settings l, pg_attribute a JOIN pg_class c ON c.oid = attrelid JOIN pg_type t ON t.oid = atttypid
JOIN pg_type b ON b.oid = CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END
WHERE l.name = 'lc_monetary' AND relnamespace :in_shard AND relkind = 'r' AND attnum > 0 AND NOT attisdropped \gset
\c :target
SELECT 'FAILED', format('%s is %s for role %I on the target; the copy needs %s', name, reset_val, current_user, wanted),
 format('Type there: ALTER ROLE %I IN DATABASE %I SET %s = %L;', current_user, current_database(), name, wanted)
FROM pg_settings JOIN (SELECT split_part(w, '=', 1), substr(w, strpos(w, '=') + 1) FROM unnest(string_to_array(:'other', ' ')) w) w (name, wanted)
 USING (name) WHERE reset_val <> wanted;

\echo encoding
\c :source
SELECT current_setting('server_encoding') AS other \gset
\c :target
SELECT CASE WHEN here = 'UTF8' AND :'other' <> 'SQL_ASCII' THEN 'warning' ELSE 'FAILED' END, format('%s on the source, %s on the target', :'other', here),
 CASE WHEN :'other' = 'SQL_ASCII' THEN 'Nobody knows the encoding of its texts. Move it to a database with the same encoding: CREATE DATABASE name ENCODING ''SQL_ASCII'' LOCALE ''C'' TEMPLATE template0;'
 WHEN here = 'UTF8' THEN 'Texts are converted on the way; UTF8 has a place for all of them.'
 ELSE 'Move it to a database with the same encoding, or UTF8.' END
FROM current_setting('server_encoding') AS here WHERE here <> :'other';

-- Whoever connects to the database gets these, and applications count on them.
SELECT $$
SELECT s FROM pg_db_role_setting, unnest(setconfig) s
WHERE setrole = 0 AND setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
$$ AS settings_of_database \gset

\echo settings of the database
\c :source
SELECT coalesce(string_agg(s, E'\n' ORDER BY s), '') AS other FROM (:settings_of_database) s \gset
\c :target
SELECT 'warning', format('the source has %s by ALTER DATABASE, which the target lacks', name),
 format('Type there: ALTER DATABASE %I SET %s = %s;', current_database(), name,
  CASE WHEN name ~ '^(search_path|temp_tablespaces|.*_preload_libraries)$' THEN value ELSE quote_literal(value) END)
FROM unnest(string_to_array(:'other', E'\n')) s, LATERAL (SELECT split_part(s, '=', 1), substr(s, strpos(s, '=') + 1)) v (name, value)
WHERE s NOT IN (:settings_of_database)
UNION ALL
SELECT 'warning', 'default_transaction_read_only is on at the target: applications could not write there',
 format('Type there: ALTER DATABASE %I RESET default_transaction_read_only; or look for where it is set: pg_file_settings.', current_database())
FROM pg_settings WHERE name = 'default_transaction_read_only' AND reset_val = 'on';

-- What a version doesn't know of the locale of a database is left out.
SELECT $$
SELECT concat_ws(', ', 'LC_COLLATE ' || datcollate, 'LC_CTYPE ' || datctype, 'provider ' || (d ->> 'datlocprovider'),
 'locale ' || coalesce(d ->> 'datlocale', d ->> 'daticulocale'), 'version ' || (d ->> 'datcollversion'))
FROM (SELECT datcollate, datctype, to_jsonb(b) AS d FROM pg_database b WHERE datname = current_database()) t
$$ AS locale \gset

\echo collation
\c :source
SELECT (:locale) AS other \gset
\c :target
SELECT 'warning', format('%s on the source; %s on the target', :'other', here),
 'Texts may sort differently there; partition bounds and CHECKs that compare texts may refuse rows.'
FROM (:locale) AS t (here) WHERE here <> :'other';

-- From 19 on, the first slot switches decoding on, where the level is replica.
SELECT $$
SELECT 'FAILED', 'it is ' || setting, 'Type: ALTER SYSTEM SET wal_level = logical; and restart that server.'
FROM pg_settings WHERE name = 'wal_level' AND setting <> 'logical'
AND NOT (setting = 'replica' AND EXISTS (SELECT FROM pg_settings WHERE name = 'effective_wal_level'))
$$ AS wal_level \gset

\echo wal_level on the source
\c :source
:wal_level;

-- Is one free of what each setting limits?  Other moves give theirs back, which is
-- waited for.
SELECT $$
SELECT CASE WHEN free > 0 THEN 'ok' WHEN total > 0 AND EXISTS (SELECT FROM snowid.moves) THEN 'warning' ELSE 'FAILED' END,
 format('%s of %s = %s are free', greatest(free, 0), name, total),
 CASE WHEN free < 1 THEN format('The move needs one. Type: ALTER SYSTEM SET %s = %s; and restart that server.', name, total + 1 - free) END
FROM (SELECT DISTINCT ON (n) name, current_setting(name)::int AS total, current_setting(name)::int - used AS free
 FROM (:in_use) u (n, names, used) JOIN pg_settings ON name = ANY (names) ORDER BY n, name) t
$$ AS is_free \gset
SELECT $$
VALUES (1, '{max_replication_slots}'::text[], (SELECT count(*) FROM pg_replication_slots)),
 (2, '{max_wal_senders}', (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender'))
$$ AS senders \gset
SELECT $$
VALUES (1, '{max_active_replication_origins,max_replication_slots}'::text[], (SELECT count(*) FROM pg_replication_origin)),
 (2, '{max_logical_replication_workers}', (SELECT count(*) FROM pg_stat_activity
  WHERE backend_type LIKE 'logical replication %' AND backend_type <> 'logical replication launcher')),
 (3, '{max_worker_processes}', (SELECT count(*) FROM pg_stat_activity
  WHERE backend_type NOT IN ('client backend', 'walsender', 'autovacuum launcher', 'autovacuum worker', 'background writer',
   'checkpointer', 'walwriter', 'startup', 'walreceiver', 'archiver', 'logger', 'walsummarizer', 'slotsync worker', 'io worker',
   'standalone backend')))
$$ AS receivers \gset

\echo slots and walsenders on the source
\set in_use :senders
:is_free;

\echo origins and workers on the target
\c :target
\set in_use :receivers
:is_free;

\echo connection from the target to the source
-- probe: check_connection

\echo WAL kept by slots on the source
-- The slot of a copy keeps what is written meanwhile, at the rate of late; a copy with
-- its indexes makes some 30 MB a second on two cores.
\c :source
SELECT CASE WHEN kept > :'max_wal'::bigint THEN 'warning' ELSE 'ok' END,
 format('about %s, while rows are copied and indexes are made', pg_size_pretty(kept::bigint)),
 CASE WHEN kept > :'max_wal'::bigint THEN 'At --max-wal the move would be undone. If there is room, allow more.' END
FROM (SELECT wal_bytes / greatest(extract(epoch FROM clock_timestamp() - stats_reset), 1)
  * (SELECT coalesce(sum(pg_total_relation_size(oid)), 0) FROM pg_class WHERE relnamespace :in_shard AND relkind = 'r')
  / (30 << 20) FROM pg_stat_wal) t (kept)
UNION ALL
SELECT 'warning', 'max_slot_wal_keep_size is -1, so a slot that nobody reads can fill the disk',
 'Should snowid-move die, nothing else would stop it. Type: ALTER SYSTEM SET'
 ' max_slot_wal_keep_size = ''50GB''; or what there is room for; SELECT pg_reload_conf();'
WHERE current_setting('max_slot_wal_keep_size') = '-1';

\echo settings of walsenders
SELECT 'warning', format('idle_replication_slot_timeout is %s: a slot that nobody reads for so long is lost', current_setting(name)),
 'Nobody reads it during the copy, nor while the target is down. If that may take as long: ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();'
FROM pg_settings WHERE name = 'idle_replication_slot_timeout' AND setting <> '0'
UNION ALL
SELECT 'warning', format('%s is %s for sessions like this one: it ends a walsender %s', name, concat(reset_val, unit),
  CASE name WHEN 'exit_on_error' THEN 'for errors that it would get over' ELSE 'that sends a transaction for longer' END),
 format('For the role that the target connects with, type: ALTER ROLE %I IN DATABASE %I SET %s = %s; and set it back after the move.', current_user, current_database(), name, boot_val)
FROM pg_settings WHERE name IN ('transaction_timeout', 'exit_on_error') AND reset_val <> boot_val;

\echo replication settings
SELECT 'warning', name || ' is ' || current_setting(name), CASE name
 WHEN 'wal_sender_timeout' THEN 'A lost connection would not be noticed.'
 ELSE 'Large transactions go through files then, and are slow.' END
 || format(' Type: ALTER SYSTEM RESET %s; SELECT pg_reload_conf();', name)
FROM pg_settings WHERE name = 'wal_sender_timeout' AND setting = '0'
OR name = 'logical_decoding_work_mem' AND setting::int < 65536;

-- To drop a schema takes a lock for each thing in it, in one transaction: finish
-- does it, or abort.  Half as many more as the server promises were there; with 19,
-- whose default is twice as large, only those for what is left out here.
SELECT $$
SELECT coalesce(max(locks), 0) AS other FROM (SELECT sum(locks) AS locks FROM (
 SELECT relnamespace, CASE WHEN relkind IN ('r', 'p') THEN 2 ELSE 1 END + CASE WHEN reltoastrelid <> 0 THEN 2 ELSE 0 END FROM pg_class
 UNION ALL SELECT typnamespace, 1 FROM pg_type
 UNION ALL SELECT pronamespace, 1 FROM pg_proc
 UNION ALL SELECT connamespace, 1 FROM pg_constraint
 UNION ALL SELECT relnamespace, 1 FROM pg_attrdef JOIN pg_class c ON c.oid = adrelid
 UNION ALL SELECT relnamespace, 1 FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid) o (namespace, locks)
WHERE namespace :in_shard GROUP BY namespace) t
$$ AS count_locks \gset
SELECT $$
SELECT CASE WHEN needed > spare * room THEN 'FAILED' ELSE 'warning' END,
 format('dropping the shard takes some %s locks in one transaction, and there is room for %s', needed, room),
 format('Type: ALTER SYSTEM SET max_locks_per_transaction = %s; and restart that server.', ceil(needed * each / room))
FROM (SELECT (:needed)::numeric AS needed, each, spare, each * (SELECT sum(current_setting(n)::int) FROM unnest(
 '{max_connections,max_prepared_transactions,autovacuum_max_workers,max_worker_processes,max_wal_senders}'::text[]) n) AS room
 FROM (SELECT current_setting(name)::int, CASE (SELECT boot_val FROM pg_settings WHERE pg_settings.name = l.name) WHEN '64' THEN 1.5 ELSE 1.1 END
  FROM CAST('max_locks_per_transaction' AS text) l (name)) s (each, spare)) t WHERE needed > room
$$ AS room_for_locks \gset

\echo locks on the source
\set needed :count_locks
:room_for_locks;

\echo locks on the target
:count_locks \gset
\c :target
\set needed :'other'
:room_for_locks;

\echo disk room on the target
-- probe: check_room
\c :source
SELECT s, pg_size_pretty(s) FROM (
 SELECT coalesce(sum(pg_table_size(oid) + pg_indexes_size(oid)), 0)::bigint AS s
 FROM pg_class WHERE relnamespace :in_shard AND relkind = 'r') AS t;

\echo clocks
:clock \gset
\c :target
:clocks_apart;

\echo time to close
-- Takes some time for each table and sequence, while writers wait.  The figures are
-- twice those of a machine of two cores, in ms.
\c :source
SELECT CASE WHEN ms > pause * 0.9 THEN 'FAILED' ELSE 'warning' END,
 format('%s tables and %s sequences take about %s ms to close, and --pause-limit is %s ms', tables, sequences, ms, pause),
 format('Writers wait for it. If they may, say so: --pause-limit=%s.', 3 * ms)
FROM (SELECT tables, sequences, ceil(tables * 0.3 + sequences)::int AS ms, :'pause_limit'::int AS pause FROM (
  SELECT count(*) FILTER (WHERE relkind = 'r') AS tables, count(*) FILTER (WHERE relkind = 'S') AS sequences
  FROM pg_class WHERE relnamespace :in_shard GROUP BY relnamespace) s ORDER BY ms DESC LIMIT 1) t WHERE ms > pause / 2;

\echo long transactions
SELECT 'warning', format('process %s%s has had one open for %s', a.pid, ' of ' || usename,
  date_trunc('second', clock_timestamp() - xact_start)),
 format('The copy and the cut-over wait for its end. To end it, type: SELECT pg_terminate_backend(%s);', a.pid)
FROM pg_stat_activity a
WHERE a.pid <> pg_backend_pid() AND xact_start < clock_timestamp() - interval '5 seconds'
AND (backend_xid IS NOT NULL OR EXISTS (
 SELECT FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
 WHERE l.pid = a.pid AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
 AND c.relnamespace :in_shard AND l.mode NOT IN ('AccessShareLock', 'RowShareLock'))) ORDER BY xact_start;

\echo prepared transactions
SELECT 'FAILED', format('%L of database "%s" has been prepared for %s', gid, database,
  date_trunc('second', clock_timestamp() - prepared)),
 format('The copy cannot begin before its end. In that database, type: COMMIT PREPARED %L; or ROLLBACK PREPARED %L;', gid, gid)
FROM pg_prepared_xacts WHERE prepared < clock_timestamp() - interval '5 seconds' ORDER BY prepared;

\echo registry
-- probe: check_registry
:in_registry;

\echo poolers
-- probe: check_poolers

\echo home of the target
\c :target
:one_host;

-- A copy makes WAL faster than most other work, so a standby that is behind
-- already falls back further.
SELECT $$
SELECT 'warning', format('"%s" is %s behind', application_name, pg_size_pretty(lag)),
 'Wait until it has caught up, or raise --max-lag.'
FROM (SELECT application_name, pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn) AS lag FROM pg_stat_replication) t
WHERE lag > :'max_lag'::bigint
$$ AS standbys_behind \gset

\echo standbys of the source
\c :source
:standbys_behind;

\echo standbys of the target
\c :target
:standbys_behind;

\echo synchronous standbys of the target
SELECT 'FAILED', format('synchronous_standby_names is %s, and none of these is connected: each commit would wait', setting),
 'Start it, or type there: ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf();'
FROM pg_settings WHERE name = 'synchronous_standby_names' AND setting <> '' AND pg_has_role('pg_read_all_stats', 'USAGE')
AND EXISTS (SELECT FROM pg_settings WHERE name = 'synchronous_commit' AND reset_val NOT IN ('off', 'local'))
AND NOT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'));

\if :reverse
\echo wal_level on the target
:wal_level;

\echo owners on the source
\c :source
:owners \gset
:runs_as_superuser;

\echo slots and walsenders on the target
\c :target
\set in_use :senders
:is_free;

\echo origins and workers on the source
\c :source
\set in_use :receivers
:is_free;

\echo connection from the source to the target
-- probe: check_connection
\endif
