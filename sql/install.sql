-- The extension installs into its own schema, and nowhere else.
-- What is planted in that schema beforehand is not run: a role that may create
-- schemas may create the extension, whose script runs as a superuser.
CREATE SCHEMA snowid;
CREATE FUNCTION snowid.format(text, text, text) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'planted code was run'; END $$;
CREATE FUNCTION snowid.format(text, text) RETURNS text LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'planted code was run'; END $$;
CREATE EXTENSION snowid;
DROP EXTENSION snowid;
DROP FUNCTION snowid.format(text, text, text), snowid.format(text, text);
DROP SCHEMA snowid;
CREATE EXTENSION snowid;
SELECT extversion, extrelocatable, nspname
FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace
WHERE extname = 'snowid';
-- what a second one says
CREATE EXTENSION snowid;
ALTER EXTENSION snowid SET SCHEMA public;
