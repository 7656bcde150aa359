-- What the programs have in common about what others own.

-- Whose code may run as the role that we have: superusers', ours, and the database's owner's, if he is one.
SELECT $$
SELECT r.oid FROM pg_roles r, pg_database d JOIN pg_roles o ON o.oid = datdba
WHERE datname = current_database() AND (r.rolsuper OR r.rolname = current_user OR (r.rolname = 'pg_database_owner' AND o.rolsuper))
$$ AS trusted_roles \gset

-- Why the tables in shared are not read: planning that would run what is constant in indexes of an owner, or of a
-- schema's owner, who is not trusted, or what they call of such; a lesser role trusts its groups.  So in all their trees: a
-- partitioned table's indexes are made in its partitions.
SELECT $$
part (oid) AS (TABLE shared UNION SELECT CASE part.oid WHEN inhparent THEN inhrelid ELSE inhparent END FROM part JOIN pg_inherits ON part.oid IN (inhparent, inhrelid)),
untrusted (what) AS (SELECT format('%s is not read: %s owns it, its schema, or what its indexes call, and is no superuser', part.oid::regclass, owner::regrole)
 FROM part JOIN pg_class c ON c.oid = part.oid JOIN pg_namespace n ON n.oid = relnamespace, LATERAL (SELECT unnest(ARRAY[relowner, nspowner]) UNION ALL
  SELECT unnest(ARRAY[proowner, oprowner]) FROM (SELECT 'pg_class'::regclass, indexrelid FROM pg_index WHERE indrelid = part.oid
   UNION ALL SELECT tableoid, oid FROM pg_statistic_ext WHERE stxrelid = part.oid UNION ALL SELECT tableoid, oid FROM pg_constraint WHERE conrelid = part.oid) i (classid, objid) JOIN pg_depend d USING (classid, objid),
  LATERAL (SELECT refclassid, refobjid UNION ALL SELECT 'pg_proc'::regclass, amproc FROM pg_opclass c JOIN pg_amproc ON amprocfamily = opcfamily WHERE (c.tableoid, c.oid) = (refclassid, refobjid)
   UNION ALL SELECT 'pg_operator'::regclass, amopopr FROM pg_opclass c JOIN pg_amop ON amopfamily = opcfamily WHERE (c.tableoid, c.oid) = (refclassid, refobjid)) x (class, code)
  LEFT JOIN pg_operator q ON (class, code) = (q.tableoid, q.oid)
  LEFT JOIN pg_proc p ON p.oid = CASE class WHEN 'pg_proc'::regclass THEN code ELSE oprcode END) o (owner)
 WHERE owner NOT IN (:trusted_roles) AND (NOT pg_has_role(owner, 'MEMBER') OR EXISTS (SELECT FROM pg_roles WHERE rolname = current_user AND rolsuper)) LIMIT 1)
$$ AS untrusted \gset

-- All that belongs to schemas, and that is not part of such; and event triggers.
SELECT $$
object (classid, objid, namespace) AS NOT MATERIALIZED (
 SELECT tableoid, oid, relnamespace FROM pg_class
 UNION ALL SELECT tableoid, oid, pronamespace FROM pg_proc
 UNION ALL SELECT tableoid, oid, typnamespace FROM pg_type
 UNION ALL SELECT tableoid, oid, connamespace FROM pg_constraint
 UNION ALL SELECT tableoid, oid, oprnamespace FROM pg_operator
 UNION ALL SELECT tableoid, oid, opcnamespace FROM pg_opclass
 UNION ALL SELECT tableoid, oid, opfnamespace FROM pg_opfamily
 UNION ALL SELECT tableoid, oid, collnamespace FROM pg_collation
 UNION ALL SELECT tableoid, oid, connamespace FROM pg_conversion
 UNION ALL SELECT tableoid, oid, cfgnamespace FROM pg_ts_config
 UNION ALL SELECT tableoid, oid, dictnamespace FROM pg_ts_dict
 UNION ALL SELECT tableoid, oid, prsnamespace FROM pg_ts_parser
 UNION ALL SELECT tableoid, oid, tmplnamespace FROM pg_ts_template
 UNION ALL SELECT tableoid, oid, stxnamespace FROM pg_statistic_ext
 UNION ALL SELECT a.tableoid, a.oid, relnamespace FROM pg_attrdef a JOIN pg_class c ON c.oid = adrelid
 UNION ALL SELECT w.tableoid, w.oid, relnamespace FROM pg_rewrite w JOIN pg_class c ON c.oid = ev_class
 UNION ALL SELECT l.tableoid, l.oid, relnamespace FROM pg_policy l JOIN pg_class c ON c.oid = polrelid
 UNION ALL SELECT g.tableoid, g.oid, relnamespace FROM pg_trigger g JOIN pg_class c ON c.oid = tgrelid WHERE NOT tgisinternal
 UNION ALL SELECT o.tableoid, o.oid, opfnamespace FROM pg_amop o JOIN pg_opfamily f ON f.oid = amopfamily
 UNION ALL SELECT o.tableoid, o.oid, opfnamespace FROM pg_amproc o JOIN pg_opfamily f ON f.oid = amprocfamily
 UNION ALL SELECT tableoid, oid, 0 FROM pg_event_trigger)
$$ AS objects \gset

-- What calls a function or an operator, so that definitions made again as texts look for it in a schema, and may find one
-- that fits better: such texts have casts to the types that it takes, but where these are polymorphic, of rows, or left out;
-- where an aggregate names it; and where a subquery is compared.
SELECT $$
WITH :objects, inside AS MATERIALIZED (SELECT classid, objid FROM object WHERE namespace :in_shard),
dep AS MATERIALIZED (SELECT classid, objid, refclassid, refobjid FROM inside JOIN pg_depend USING (classid, objid)
 WHERE refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass) AND refobjid >= 16384)
SELECT coalesce(json_agg(DISTINCT jsonb_build_object('caller', pg_describe_object(classid, objid, 0), 'code', p.oid::regprocedure, 'place', place::regnamespace,
 'name', x.name, 'is_operator', is_operator)), '[]') AS other
FROM dep d, LATERAL (SELECT oprcode, oprnamespace, oprname, true FROM pg_operator o WHERE d.refclassid = o.tableoid AND o.oid = d.refobjid
 UNION ALL SELECT f.oid, pronamespace, proname, false FROM pg_proc f WHERE d.refclassid = f.tableoid AND f.oid = d.refobjid) x (code, place, name, is_operator)
JOIN pg_proc p ON p.oid = code
WHERE p.proowner IN (:trusted_roles) AND (provariadic <> 0 OR pronargdefaults > 0 OR EXISTS (SELECT FROM pg_type y WHERE y.oid = ANY (proargtypes) AND typtype IN ('p', 'c'))
 OR EXISTS (SELECT FROM pg_aggregate g WHERE d.classid = 'pg_proc'::regclass AND aggfnoid = d.objid)
 OR is_operator AND coalesce((SELECT concat(ev_qual, ev_action) FROM pg_rewrite w WHERE (d.classid, d.objid) = (w.tableoid, w.oid)),
  (SELECT concat(polqual, polwithcheck) FROM pg_policy w WHERE (d.classid, d.objid) = (w.tableoid, w.oid)),
  (SELECT prosqlbody::text FROM pg_proc w WHERE (d.classid, d.objid) = (w.tableoid, w.oid))) ~ 'SUBLINK')
$$ AS code_looked_for \gset

-- Where somebody who is not trusted has put another, or may.
SELECT $$
SELECT DISTINCT format('%s calls %s; %s %s in schema %s one that fits better, which would run instead', caller, code, who, does, place) AS what, to_do
FROM json_to_recordset(:'other'::json) x (caller text, code text, place text, name name, is_operator bool) JOIN pg_namespace n ON quote_ident(nspname) = place
JOIN pg_database ON datname = current_database(), LATERAL (
 SELECT CASE nspowner WHEN 'pg_database_owner'::regrole THEN datdba ELSE nspowner END, 'may put', format('ALTER SCHEMA %s OWNER TO %I;', place, current_user)
 UNION ALL SELECT grantee, 'may put', CASE grantor WHEN nspowner THEN format('REVOKE CREATE ON SCHEMA %s FROM %s CASCADE;', place, CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END)
   ELSE format('%sREVOKE GRANT OPTION FOR CREATE ON SCHEMA %s FROM %s CASCADE;',
    (SELECT format('ALTER ROLE %s NOSUPERUSER; ', grantor::regrole) FROM pg_roles r WHERE r.oid = grantor AND rolsuper), place, (SELECT string_agg(g.grantee::regrole::text, ', ')
    FROM aclexplode(nspacl) g WHERE g.privilege_type = 'CREATE' AND g.is_grantable AND g.grantor = nspowner AND g.grantee <> nspowner)) END
  FROM aclexplode(nspacl) WHERE privilege_type = 'CREATE' AND grantee <> nspowner
 UNION ALL SELECT proowner, 'may have', format('DROP ROUTINE %s;', f.oid::regprocedure) FROM pg_proc f WHERE pronamespace = n.oid AND proname = name AND NOT is_operator
 UNION ALL SELECT oprowner, 'may have', format('DROP OPERATOR %s;', f.oid::regoperator) FROM pg_operator f WHERE oprnamespace = n.oid AND oprname = name AND is_operator) y (owner, does, to_do),
LATERAL (SELECT CASE owner WHEN 0 THEN 'PUBLIC' ELSE owner::regrole::text END) w (who)
WHERE owner NOT IN (:trusted_roles)
$$ AS better_fits \gset
