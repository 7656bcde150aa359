-- Parts of queries that more than one file needs.  :x stands for what
-- "AS x \gset" ends.
\ir ../../common/shared.sql

-- The shards' schemas; embedded, their OIDs, which a planner knows more of.
SELECT $$
IN (SELECT oid FROM pg_namespace WHERE nspname = ANY (:'schemas'))
$$ AS in_shard \gset

-- The name of a standby that runs this: as its primary's views show it.
SELECT $$
SELECT coalesce(substring(conninfo FROM '(?:^| )application_name=''?([^ '']+)'),
 nullif(current_setting('cluster_name'), ''), 'walreceiver') FROM pg_stat_wal_receiver
$$ AS standby_name \gset

-- The prepared transactions of this database that hold writers' locks of tables.
SELECT $$
SELECT t.transactionid FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
JOIN pg_locks t ON t.virtualtransaction = l.virtualtransaction AND t.pid IS NULL AND t.locktype = 'transactionid'
WHERE l.pid IS NULL AND l.mode NOT IN ('AccessShareLock', 'RowShareLock')
AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
$$ AS holding_locks \gset

-- What other schemas have that uses something of these schemas, and so would go
-- with them: views, defaults, foreign keys, columns of a type or a collation,
-- children of a table, and so on.  is_other_check: whether another check looks
-- for it.
SELECT $$
WITH shard AS (SELECT oid FROM pg_namespace WHERE nspname = ANY (:users_of)),
:objects,
part AS MATERIALIZED (SELECT classid, objid FROM object WHERE namespace IN (TABLE shard))
SELECT pg_describe_object(d.classid, d.objid, 0) AS user_name,
 min(pg_describe_object(refclassid, refobjid, 0)) AS used,
 coalesce(bool_or(k.contype = 'f'), false)
  OR bool_or(d.classid = 'pg_class'::regclass AND refclassid = 'pg_class'::regclass) AS is_other_check
FROM part o JOIN pg_depend d ON refclassid = o.classid AND refobjid = o.objid AND deptype IN ('n', 'a')
 AND (d.classid, d.objid) NOT IN (SELECT classid, objid FROM part)
CROSS JOIN LATERAL (SELECT namespace FROM object WHERE classid = d.classid AND objid = d.objid LIMIT 1) u
LEFT JOIN pg_constraint k ON d.classid = 'pg_constraint'::regclass AND k.oid = d.objid
WHERE u.namespace <> 'pg_toast'::regnamespace
GROUP BY d.classid, d.objid
$$ AS outside_users \gset

-- Those of the shards, but for foreign keys, which are looked at by themselves.
SELECT $$
:objects, inside (classid, objid) AS MATERIALIZED (SELECT classid, objid FROM object WHERE namespace :in_shard
 EXCEPT SELECT tableoid, oid FROM pg_constraint WHERE connamespace :in_shard AND contype = 'f')
$$ AS objects_inside \gset

-- Foreign keys from the shards to shared tables: those outside of all shards.
SELECT $$
SELECT k.* FROM pg_constraint k JOIN pg_class p ON p.oid = confrelid JOIN pg_namespace n ON n.oid = p.relnamespace
WHERE contype = 'f' AND conparentid = 0 AND connamespace :in_shard AND nspname NOT IN (SELECT schema FROM snowid.shard_registry)
$$ AS shared_keys \gset

-- Findings of both kinds of plan.
SELECT $$
SELECT 'FAILED', 'it is a standby', 'Give the connection of its primary.' WHERE pg_is_in_recovery()
$$ AS is_standby \gset

-- Else the server hides from it how far the other one is, and the copy.
SELECT $$
SELECT 'FAILED', format('role %I may not see what other sessions do', current_user),
 format('As a superuser, type: GRANT pg_read_all_stats TO %I;', current_user)
WHERE NOT pg_has_role('pg_read_all_stats', 'USAGE')
$$ AS may_see_sessions \gset

SELECT $$
SELECT 'FAILED', format('role %I may not write %s', current_user, name),
 format('Type: GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %I;', name, current_user)
FROM (VALUES ('snowid.moves'), ('snowid.shard_registry')) AS t (name)
WHERE to_regclass(name) IS NOT NULL AND NOT (
 SELECT bool_and(has_table_privilege(name, p)) FROM unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) p)
$$ AS may_write \gset

-- Clients keep the home, so it must outlive a fail-over.
SELECT $$
SELECT 'warning', format('clients will be told "%s", one host of a server that has standbys', :'home'),
 'If that is not a name that follows the primary, name all hosts: --to ''host=a,b target_session_attrs=read-write''.'
WHERE :'home' NOT LIKE '%,%' AND EXISTS (SELECT FROM pg_stat_replication WHERE replay_lsn IS NOT NULL
 AND pid NOT IN (SELECT active_pid FROM pg_replication_slots WHERE slot_type = 'logical' AND active))
$$ AS one_host \gset

-- The registry of all servers must be within reach, and know the shard.
SELECT $$
SELECT 'warning', format('it does not have shard %s, schema "%s"', s.shard, s.schema), 'Tell it where the shard lives before it moves.'
FROM unnest(:'shards'::int[], :'schemas'::text[]) AS s (shard, schema) WHERE NOT EXISTS (
 SELECT FROM snowid.shard_registry r WHERE r.shard = s.shard AND r.schema = s.schema)
UNION ALL
SELECT 'FAILED', format('role %I may not change it', current_user),
 format('Type there: GRANT SELECT, UPDATE ON snowid.shard_registry TO %I;', current_user)
WHERE NOT has_table_privilege('snowid.shard_registry', 'UPDATE')
$$ AS in_registry \gset

-- What has an owner, with the command that gives it another.  (Indexes and
-- sequences of columns go with their tables, arrays with their types.)
SELECT $$
owned (owner, name, command) AS (
 SELECT nspowner, 'schema ' || quote_ident(nspname), format('ALTER SCHEMA %I', nspname) FROM pg_namespace WHERE oid :owned_in
 UNION ALL SELECT relowner, kind || ' ' || c.oid::regclass, format('ALTER %s %s', upper(kind), c.oid::regclass)
 FROM pg_class c JOIN (VALUES ('r'::"char", 'table'), ('p', 'table'), ('v', 'view'), ('m', 'materialized view'),
  ('f', 'foreign table'), ('S', 'sequence')) k (relkind, kind) USING (relkind)
 LEFT JOIN pg_depend d ON relkind = 'S' AND d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i')
 WHERE relnamespace :owned_in AND d.objid IS NULL
 UNION ALL SELECT proowner, 'routine ' || oid::regprocedure, format('ALTER ROUTINE %s', oid::regprocedure)
 FROM pg_proc WHERE pronamespace :owned_in
 UNION ALL SELECT typowner, 'type ' || t.oid::regtype, format('ALTER TYPE %s', t.oid::regtype)
 FROM pg_type t LEFT JOIN pg_class c ON c.oid = typrelid
 WHERE typnamespace :owned_in AND (typrelid = 0 OR c.relkind = 'c') AND typtype <> 'm' AND (typtype <> 'b' OR typcategory <> 'A'))
$$ AS owned \gset

-- A superuser's role is granted to nobody: what it owns gets another owner.
SELECT $$
SELECT DISTINCT 'FAILED', CASE WHEN rolsuper THEN format('role %I does not own %s, and %I, who does, is a superuser', current_user, name, rolname)
 ELSE format('role %I does not own what %I has there', current_user, rolname) END,
 'Type: ' || coalesce(fix, format('GRANT %I TO %I;', rolname, current_user)), fix
FROM owned JOIN pg_roles r ON r.oid = owner,
LATERAL (SELECT CASE WHEN rolsuper THEN format('%s OWNER TO %I;', command, current_user) END) f (fix)
WHERE command !~ '^ALTER (ROUTINE|TYPE)' AND NOT pg_has_role(r.oid, 'USAGE')
$$ AS owns_all \gset

-- How far the target's clock is from the source's, which is asked just before.
SELECT $$
SELECT extract(epoch FROM clock_timestamp()) AS other
$$ AS clock \gset
SELECT $$
SELECT CASE WHEN s < -86400 THEN 'FAILED' WHEN abs(s) > 2 THEN 'warning' ELSE 'ok' END,
 format('the target''s is %s s %s', round(abs(s), 3), CASE WHEN s < 0 THEN 'behind' ELSE 'ahead' END),
 CASE WHEN s < -86400 THEN 'The target would refuse to go on above ids of more than a day ahead. Set its clock right.'
 WHEN s < -2 THEN 'Until it has caught up, ids there are ahead of it, at most 1024 a millisecond. Set the clocks right.'
 WHEN s > 2 THEN 'After a move back, ids would be ahead of the source''s clock. Set the clocks right.' END
FROM (SELECT extract(epoch FROM clock_timestamp()) - :'other'::numeric) t (s)
$$ AS clocks_apart \gset

-- What the copy runs as the role that we have: functions and operators of CHECKs, domains, exclusion constraints (whose operators
-- they do not depend on), generated columns, range types and partition bounds for each row, of types of other schemas, too;
-- of operator classes, and of casts, which a foreign key may need; when a query is planned, of index expressions and statistics; and all that is
-- behind a materialized view, if its owner is trusted, as whom it is filled.  An operator is also its owner's, who can
-- name a negator, and a type, also one that only a function returns, which can get a cast by which a text means another thing.  And what is elsewhere, where others
-- can give it such: parts of tables, and the tables and types of which these have what they have.
-- how: 0, it is only made again, with the constants that it has, of domains, too; 1, it is run; 2, it is read.
SELECT $$
RECURSIVE :objects,
used (classid, objid, how) AS (
 SELECT classid, objid, CASE WHEN EXISTS (SELECT FROM pg_rewrite w JOIN pg_class c ON c.oid = ev_class
   WHERE (w.tableoid, w.oid) = (classid, objid) AND relkind = 'm' AND relowner IN (:trusted_roles)) THEN 2
  WHEN classid IN ('pg_class'::regclass, 'pg_constraint'::regclass, 'pg_statistic_ext'::regclass, 'pg_type'::regclass)
   OR EXISTS (SELECT FROM pg_attrdef f JOIN pg_attribute a ON (attrelid, attnum) = (adrelid, adnum)
   WHERE (f.tableoid, f.oid) = (classid, objid) AND attgenerated <> '') THEN 1 ELSE 0 END
 FROM object WHERE namespace :in_shard
 UNION SELECT x.*, how FROM used u, LATERAL (
  SELECT refclassid, refobjid FROM pg_depend d WHERE (d.classid, d.objid) = (u.classid, u.objid)
   AND (refclassid IN ('pg_type'::regclass, 'pg_proc'::regclass, 'pg_operator'::regclass, 'pg_opclass'::regclass)
   OR u.classid = 'pg_rewrite'::regclass AND refclassid = 'pg_class'::regclass)
  UNION ALL SELECT tableoid, oid FROM pg_constraint WHERE u.classid = 'pg_type'::regclass AND contypid = u.objid
  UNION ALL SELECT tableoid, oid FROM pg_opclass WHERE u.classid = 'pg_type'::regclass AND opcdefault AND opcintype = u.objid
  UNION ALL SELECT 'pg_class'::regclass, typrelid FROM pg_type t WHERE (t.tableoid, t.oid) = (u.classid, u.objid) AND typrelid <> 0
  UNION ALL SELECT y.* FROM (
   SELECT tableoid, oid FROM pg_rewrite WHERE ev_class = u.objid AND ev_type = '1'
   UNION ALL SELECT 'pg_class'::regclass, indexrelid FROM pg_index WHERE indrelid = u.objid
   UNION ALL SELECT tableoid, oid FROM pg_statistic_ext WHERE stxrelid = u.objid
   UNION ALL SELECT tableoid, oid FROM pg_constraint WHERE conrelid = u.objid
   UNION ALL SELECT 'pg_class'::regclass, inhrelid FROM pg_inherits WHERE inhparent = u.objid) y
  WHERE how = 2 AND u.classid = 'pg_class'::regclass) x),
model (oid, child) AS (
 SELECT inhparent, inhrelid FROM pg_inherits UNION ALL SELECT typrelid, c.oid FROM pg_class c JOIN pg_type t ON t.oid = reloftype),
part (oid, parent) AS (
 SELECT inhrelid, inhparent FROM pg_inherits JOIN pg_class c ON c.oid = inhparent WHERE relnamespace :in_shard AND relkind IN ('r', 'p', 'f')
 UNION SELECT inhrelid, inhparent FROM part JOIN pg_inherits ON inhparent = part.oid),
call (classid, objid, function, operator) AS (
 SELECT u.classid, u.objid, CASE d.refclassid WHEN 'pg_proc'::regclass THEN d.refobjid END, CASE d.refclassid WHEN 'pg_operator'::regclass THEN d.refobjid END
 FROM used u, LATERAL (SELECT * FROM pg_depend d WHERE d.classid = u.classid AND d.objid = u.objid OFFSET 0) d
 WHERE (how > 0 OR u.classid = 'pg_constraint'::regclass) AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass)
 UNION ALL SELECT u.classid, u.objid, f.* FROM used u JOIN pg_opclass p ON (p.tableoid, p.oid) = (u.classid, u.objid), LATERAL (
  SELECT amproc::oid, NULL::oid FROM pg_amproc WHERE amprocfamily = opcfamily UNION ALL SELECT NULL, amopopr FROM pg_amop WHERE amopfamily = opcfamily) f
 WHERE how > 0
 UNION ALL SELECT x.tableoid, x.oid, castfunc, NULL FROM used u JOIN pg_cast x ON u.classid = 'pg_type'::regclass AND u.objid IN (castsource, casttarget)
 WHERE how > 0 AND castfunc <> 0
 UNION ALL SELECT k.tableoid, k.oid, NULL, o FROM pg_constraint k, unnest(conexclop) o WHERE connamespace :in_shard),
called (caller, code, is_super) AS (
 SELECT DISTINCT pg_describe_object(classid, objid, 0) || ' calls', p.oid::regprocedure::text, proowner IN (:trusted_roles)
 FROM call LEFT JOIN pg_operator q ON q.oid = operator LEFT JOIN pg_operator o ON o.oid IN (q.oid, q.oprnegate, q.oprcom) JOIN pg_proc p ON p.oid = coalesce(function, o.oprcode) WHERE p.oid >= 16384
 UNION ALL SELECT DISTINCT pg_describe_object(classid, objid, 0) || ' has the operator', o.oid::regoperator::text, oprowner IN (:trusted_roles)
 FROM call JOIN pg_operator o ON o.oid = operator WHERE o.oid >= 16384
 UNION ALL SELECT DISTINCT 'a table has values of', t.oid::regtype::text, typowner IN (:trusted_roles) FROM used JOIN pg_type t ON (classid, objid) = (t.tableoid, t.oid)
 WHERE NOT typnamespace :in_shard
 UNION ALL SELECT 'materialized views read', c.oid::regclass::text, false FROM used JOIN pg_class c ON (classid, objid) = (c.tableoid, c.oid)
 JOIN pg_namespace n ON n.oid = relnamespace WHERE how = 2 AND NOT relnamespace :in_shard AND (relowner NOT IN (:trusted_roles) OR nspowner NOT IN (:trusted_roles))
 UNION ALL SELECT concat('table ', parent::regclass, ' has the part'), c.oid::regclass::text, false FROM part JOIN pg_class c USING (oid)
 WHERE NOT relnamespace :in_shard AND relowner NOT IN (:trusted_roles)
 UNION ALL SELECT concat('table ', k.oid::regclass, ' has what it has of'), p.oid::regclass::text, p.relowner IN (:trusted_roles)
 FROM model m JOIN pg_class k ON k.oid = child JOIN pg_class p ON p.oid = m.oid
 WHERE k.relnamespace :in_shard AND k.relkind IN ('r', 'p') AND NOT p.relnamespace :in_shard
 UNION ALL SELECT format('%I may use all schemas, and alter', rolname), o.name, false FROM (
  SELECT relowner, oid::regclass::text FROM pg_class WHERE relnamespace :in_shard AND relkind IN ('r', 'p')
  UNION ALL SELECT typowner, oid::regtype::text FROM pg_type WHERE typnamespace :in_shard AND typtype IN ('c', 'd')) o (owner, name)
 JOIN pg_roles m ON pg_has_role(m.oid, owner, 'USAGE') AND (pg_has_role(m.oid, 'pg_read_all_data', 'USAGE') OR pg_has_role(m.oid, 'pg_write_all_data', 'USAGE'))
 WHERE m.oid NOT IN (:trusted_roles))
$$ AS called_code \gset
