-- What the programs have in common about shared tables.

-- Why the tables in shared are not read: planning that would run what is constant in indexes of an owner, or of a
-- schema's owner, who is no superuser, where we are one.  So in all their trees: a partitioned table's indexes are made in its partitions.
SELECT $$
part (oid) AS (TABLE shared UNION SELECT CASE part.oid WHEN inhparent THEN inhrelid ELSE inhparent END FROM part JOIN pg_inherits ON part.oid IN (inhparent, inhrelid)),
untrusted (what) AS (SELECT format('rows of %s are not compared: %I owns it, or its schema, and is no superuser', part.oid::regclass, r.rolname)
 FROM part JOIN pg_class c ON c.oid = part.oid JOIN pg_namespace n ON n.oid = relnamespace, unnest(ARRAY[relowner, nspowner]) owner, pg_database d, pg_roles r, pg_roles own
 WHERE r.oid = CASE owner WHEN 'pg_database_owner'::regrole THEN datdba ELSE owner END AND NOT r.rolsuper AND datname = current_database()
 AND own.rolname = current_user AND own.rolsuper LIMIT 1)
$$ AS untrusted \gset
