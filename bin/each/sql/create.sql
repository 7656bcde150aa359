-- What create --like asks of the shard that it is like.

SELECT $$
= (SELECT oid FROM pg_namespace WHERE nspname = :'schema')
$$ AS in_shard \gset

-- As everywhere in this program: who would gain nothing if we ran his code.
SELECT $$
SELECT oid FROM pg_roles WHERE pg_has_role(oid, session_user, 'MEMBER')
$$ AS trusted_roles \gset

\ir ../../common/shared.sql

-- arguments: schema
\echo code_looked_for_sql
:code_looked_for;

-- arguments: other
\echo better_fits_sql
:better_fits ORDER BY 1 LIMIT 1;

-- The ids that next_id() and the DEFAULTs of a schema make, but of sequences elsewhere; and one of the number,
-- which all guards must take.
SELECT $$
DECLARE
 d record;
 id bigint;
 kept boolean;
BEGIN
 FOR d IN SELECT 'next_id()' AS what, format('%I.next_id()', nspname) AS call
  FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace WHERE nspname = :'schema' AND proname = 'next_id' AND pronargs = 0
  UNION ALL SELECT format('DEFAULT of %s.%I', adrelid::regclass, attname), pg_get_expr(adbin, adrelid)
  FROM pg_namespace n JOIN pg_depend r ON r.refobjid = n.oid AND r.refclassid = 'pg_namespace'::regclass AND r.classid = 'pg_class'::regclass
  JOIN pg_attrdef a ON adrelid = r.objid JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum AND attgenerated = ''
  WHERE nspname = :'schema' AND EXISTS (SELECT FROM pg_depend JOIN pg_proc p ON p.oid = refobjid AND refclassid = 'pg_proc'::regclass
   WHERE classid = 'pg_attrdef'::regclass AND objid = a.oid AND proname ^@ 'next_id')
  AND NOT EXISTS (SELECT FROM pg_depend JOIN pg_class s ON s.oid = refobjid AND refclassid = 'pg_class'::regclass AND s.relkind = 'S'
   WHERE classid = 'pg_attrdef'::regclass AND objid = a.oid AND s.relnamespace <> n.oid)
 LOOP
  EXECUTE 'SELECT ' || d.call INTO id;
  IF snowid.id_shard(id) IS DISTINCT FROM :'number' THEN
   RAISE '% makes ids of shard %', d.what, snowid.id_shard(id);
  END IF;
 END LOOP;
 FOR d IN SELECT format('constraint %I of %s', conname, conrelid::regclass) AS what, pg_get_expr(conbin, conrelid) AS test, attname
  FROM pg_namespace n JOIN pg_depend r ON r.refobjid = n.oid AND r.refclassid = 'pg_namespace'::regclass AND r.classid = 'pg_class'::regclass
  JOIN pg_constraint k ON conrelid = r.objid JOIN pg_attribute ON attrelid = conrelid AND ARRAY[attnum] = conkey
  WHERE nspname = :'schema' AND contype = 'c' AND EXISTS (SELECT FROM pg_depend
   WHERE classid = 'pg_constraint'::regclass AND objid = k.oid AND refobjid = 'snowid.id_shard(bigint)'::regprocedure)
 LOOP
  EXECUTE format('SELECT %s FROM (SELECT $1) x (%I)', d.test, d.attname) INTO kept USING snowid.make_id(now(), :'number', 0);
  IF NOT kept THEN
   RAISE '% refuses ids of shard %', d.what, :'number';
  END IF;
 END LOOP;
END
$$ AS prove \gset

-- arguments: schema number
\echo prove_sql
:prove;

-- Give what is in the schema the rights that the model's have, in the schema other; and take away others: what is
-- made has default privileges, with which pg_dump does not count.
SELECT $$
DECLARE
 command text;
BEGIN
 FOR command IN WITH o AS (
  SELECT n.nspname, c.* FROM pg_namespace n, LATERAL (
   SELECT 'SCHEMA', '', quote_ident(nspname), nspowner, coalesce(nspacl, acldefault('n', nspowner))
   UNION ALL SELECT CASE WHEN relkind = 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, relname, oid::regclass::text, relowner,
    coalesce(relacl, acldefault(CASE WHEN relkind = 'S' THEN 's' ELSE 'r' END::"char", relowner))
    FROM pg_class WHERE relnamespace = n.oid AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
   UNION ALL SELECT 'ROUTINE', format('%s(%s)', proname, replace(pg_get_function_identity_arguments(oid), quote_ident(nspname) || '.', '')),
    oid::regprocedure::text, proowner, coalesce(proacl, acldefault('f', proowner)) FROM pg_proc WHERE pronamespace = n.oid
   UNION ALL SELECT 'TYPE', typname, format_type(oid, NULL), typowner, coalesce(typacl, acldefault('T', typowner)) FROM pg_type WHERE typnamespace = n.oid
    AND typelem = 0 AND typtype <> 'm' AND (typrelid = 0 OR EXISTS (SELECT FROM pg_class WHERE oid = typrelid AND relkind = 'c'))) c (kind, name, ref, owner, acl)
  WHERE nspname IN (:'schema', :'other')),
 a AS (SELECT o.nspname, o.kind, o.name, grantee, privilege_type, is_grantable FROM o, aclexplode(acl)),
 wrong AS (SELECT kind, name, grantee, privilege_type, is_grantable, bool_or(nspname = :'other') AS has FROM a
  GROUP BY 1, 2, 3, 4, 5 HAVING count(DISTINCT nspname) = 1)
 SELECT format(CASE WHEN has THEN 'GRANT %1$s ON %2$s %3$s TO %4$s%5$s' ELSE 'REVOKE %1$s ON %2$s %3$s FROM %4$s CASCADE' END, privilege_type, kind, ref,
  CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END, CASE WHEN is_grantable THEN ' WITH GRANT OPTION' END)
 FROM wrong JOIN (SELECT * FROM o WHERE nspname = :'schema') made USING (kind, name) ORDER BY has
 LOOP
  EXECUTE command;
 END LOOP;
END
$$ AS same_rights \gset

-- arguments: schema other
\echo same_rights_sql
:same_rights;
