-- The extension installs into its own schema, and nowhere else.
CREATE EXTENSION snowid;
SELECT extversion, extrelocatable, nspname
FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace
WHERE extname = 'snowid';
-- what a second one says
CREATE EXTENSION snowid;
ALTER EXTENSION snowid SET SCHEMA public;
