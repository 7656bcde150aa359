-- The extension makes its own schemas, and refuses those that are there: what
-- their owners have planted in them could run as a superuser.
-- (From 18 on the server quotes the script in the context of an error.)
\set SHOW_CONTEXT never
CREATE SCHEMA snowid;
CREATE EXTENSION snowid;
\echo :LAST_ERROR_SQLSTATE
ALTER SCHEMA snowid RENAME TO snowid_internal;
CREATE EXTENSION snowid;
DROP SCHEMA snowid_internal;
CREATE EXTENSION snowid SCHEMA public;
CREATE EXTENSION snowid;
SELECT extversion, extrelocatable, nspname
FROM pg_extension e
JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
JOIN pg_namespace n ON d.classid = 'pg_namespace'::regclass AND n.oid = d.objid
WHERE extname = 'snowid' ORDER BY nspname;
-- what a second one says
CREATE EXTENSION snowid;
ALTER EXTENSION snowid SET SCHEMA public;
