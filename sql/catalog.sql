-- Audit of what the extension puts into the catalogs: each of these queries
-- looks for offenders, and finds none, or lists what there is.

CREATE VIEW pg_temp.members AS
SELECT p.*
FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
	AND d.refclassid = 'pg_extension'::regclass
	AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowid');

-- Nothing without a comment, or outside the two schemas.
SELECT oid::regprocedure AS uncommented FROM pg_temp.members
WHERE obj_description(oid, 'pg_proc') IS NULL;
SELECT c.oid::regclass AS uncommented
FROM pg_depend d JOIN pg_class c ON c.oid = d.objid
WHERE d.classid = 'pg_class'::regclass AND d.deptype = 'e'
	AND d.refclassid = 'pg_extension'::regclass
	AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowid')
	AND c.relkind IN ('r', 'v', 'S')
	AND obj_description(c.oid, 'pg_class') IS NULL;
SELECT oid::regprocedure AS outside FROM pg_temp.members
WHERE pronamespace NOT IN ('snowid'::regnamespace, 'snowid_internal'::regnamespace);

-- Nothing but ASCII, so that it installs whatever the database's encoding.
SELECT oid::regprocedure AS not_ascii FROM pg_temp.members
WHERE octet_length(prosrc) <> length(prosrc);

-- Nothing runs with its owner's rights.
SELECT oid::regprocedure AS security_definer FROM pg_temp.members WHERE prosecdef;

-- PL/pgSQL has a fixed search path; procedures that commit can't have one, and
-- qualify every name instead.  SQL has a body that was parsed under the script's.
SELECT oid::regprocedure AS open_search_path FROM pg_temp.members
WHERE prolang = (SELECT oid FROM pg_language WHERE lanname = 'plpgsql')
	AND prokind <> 'p'
	AND (proconfig IS NULL OR NOT 'search_path=pg_catalog, pg_temp' = ANY (proconfig));
SELECT oid::regprocedure AS parsed_at_each_call FROM pg_temp.members
WHERE prolang = (SELECT oid FROM pg_language WHERE lanname = 'sql') AND prosqlbody IS NULL;

-- The markings.
SELECT replace(oid::regprocedure::text, 'timestamp with time zone', 'timestamptz') AS function,
	CASE provolatile WHEN 'i' THEN 'immutable' WHEN 's' THEN 'stable' ELSE 'volatile' END AS volatility,
	CASE WHEN proisstrict THEN 'strict' ELSE '' END AS strict,
	CASE proparallel WHEN 's' THEN 'safe' WHEN 'r' THEN 'restricted' ELSE 'unsafe' END AS parallel
FROM pg_temp.members ORDER BY provolatile, oid::regprocedure::text COLLATE "C";

-- What PUBLIC may do beyond calling functions: look into the schemas.
SELECT n AS schema, has_schema_privilege('public', n, 'USAGE') AS usage,
	has_schema_privilege('public', n, 'CREATE') AS "create"
FROM unnest('{snowid, snowid_internal}'::text[]) n;

-- The setting, once the library is loaded.
LOAD 'snowid';
SELECT name, setting, context, vartype, min_val, max_val FROM pg_settings WHERE name LIKE 'snowid.%';
