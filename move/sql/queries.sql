-- Long queries that are no checks.
\ir common.sql

\echo standby_name_sql
:standby_name;

-- arguments: schemas
\set users_of :'schemas'
\echo outside_users_sql
:outside_users;

-- What comes after the rows: how many indexes, constraints and so on each schema has.
\echo after_rows_sql
SELECT nspname, (SELECT count(*) FROM pg_index x JOIN pg_class c ON c.oid = indexrelid WHERE relnamespace = n.oid AND indisvalid)
 + (SELECT count(*) FROM pg_constraint WHERE connamespace = n.oid AND contype <> 'n' AND conparentid = 0)
 + (SELECT count(*) FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid
  WHERE relnamespace = n.oid AND NOT tgisinternal AND tgparentid = 0 AND tgname <> 'snowid_fence')
 + (SELECT count(*) FROM pg_rewrite JOIN pg_class c ON c.oid = ev_class WHERE relnamespace = n.oid)
 + (SELECT count(*) FROM pg_policy JOIN pg_class c ON c.oid = polrelid WHERE relnamespace = n.oid)
 + (SELECT count(*) FROM pg_statistic_ext WHERE stxnamespace = n.oid)
FROM pg_namespace n WHERE nspname = ANY (:'schemas') ORDER BY nspname;

-- Materialized views, each after those that it reads: it reaches all that they do.
\echo filled_views_sql
WITH RECURSIVE reach (view, read) AS (
 SELECT c.oid, c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
 WHERE nspname = ANY (:'schemas') AND relkind = 'm' AND relispopulated
 UNION
 SELECT view, refobjid FROM reach JOIN pg_rewrite r ON ev_class = read
 JOIN pg_depend ON classid = r.tableoid AND objid = r.oid AND refclassid = 'pg_class'::regclass)
SELECT format('REFRESH MATERIALIZED VIEW %s', view::regclass) FROM reach GROUP BY view ORDER BY count(*), view;

-- Makes the statements that give schemas back to those whose they are.
\echo give_back_sql
SELECT string_agg(format('ALTER SCHEMA %I OWNER TO %I', schema, details ->> 'owner') || coalesce((
 SELECT string_agg(format('; GRANT %s ON SCHEMA %I TO %s%s', CASE r ->> 'right' WHEN 'CREATE' THEN 'CREATE' ELSE 'USAGE' END, schema,
  coalesce(quote_ident(r ->> 'to'), 'PUBLIC'), CASE WHEN (r ->> 'further')::boolean THEN ' WITH GRANT OPTION' END), '')
 FROM jsonb_array_elements(details -> 'rights') r), ''), '; ') FROM snowid.moves WHERE schema = ANY (:'schemas');
