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
  SELECT proowner FROM (SELECT 'pg_class'::regclass, indexrelid FROM pg_index WHERE indrelid = part.oid
   UNION ALL SELECT tableoid, oid FROM pg_statistic_ext WHERE stxrelid = part.oid) i (classid, objid)
  JOIN pg_depend d USING (classid, objid) JOIN pg_proc p ON (refclassid, refobjid) = (p.tableoid, p.oid)) o (owner)
 WHERE owner NOT IN (:trusted_roles) AND (NOT pg_has_role(owner, 'MEMBER') OR EXISTS (SELECT FROM pg_roles WHERE rolname = current_user AND rolsuper)) LIMIT 1)
$$ AS untrusted \gset
