-- snowid, portable edition.  One statement of plain SQL: run it as the database's
-- owner, with any client.
DO $snowid$
DECLARE
	version CONSTANT pg_catalog.text := '@version@';
	path CONSTANT pg_catalog.text := pg_catalog.current_setting('search_path');
	strings CONSTANT pg_catalog.text := pg_catalog.current_setting('standard_conforming_strings');
	quotes CONSTANT pg_catalog.text := pg_catalog.current_setting('quote_all_identifiers');
	known pg_catalog.text[];	-- what is there
	installed pg_catalog.text;	-- NULL, if there is none
	hindering pg_catalog.text;	-- rows
	s pg_catalog.record;
BEGIN
	-- To the end of this statement; the strings below are parsed under it.
	PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
	PERFORM pg_catalog.set_config('standard_conforming_strings', 'on', true);
	-- Names are compared as they are written here.
	PERFORM pg_catalog.set_config('quote_all_identifiers', 'off', true);

	-- In a schema that somebody else owns, he could plant functions.
	FOR s IN SELECT n.oid, n.nspname, n.nspowner FROM pg_namespace n WHERE n.nspname IN ('snowid', 'snowid_internal') LOOP
		IF to_regprocedure('snowid.version()') IS NULL OR to_regprocedure('snowid_internal.take_slots(regclass, timestamptz, int)') IS NULL
		   OR EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_namespace'::regclass AND d.objid = s.oid AND d.deptype = 'e')
		THEN
			RAISE EXCEPTION USING ERRCODE = 'duplicate_schema',
				MESSAGE = format('schema "%s" already exists', s.nspname),
				DETAIL = 'The portable edition creates this schema itself, so that nobody else has objects in it.',
				HINT = 'If the extension is installed, its functions are those of the portable edition, and faster.';
		ELSIF EXISTS (SELECT WHERE s.nspowner <> quote_ident(current_user)::regrole
					  UNION ALL SELECT FROM pg_proc p WHERE p.pronamespace = s.oid AND p.proowner <> s.nspowner
					  UNION ALL SELECT FROM pg_class c WHERE c.relnamespace = s.oid AND c.relowner <> s.nspowner)
		THEN
			RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
				MESSAGE = format('must be owner of schema %s, and of all that is in it', s.nspname),
				HINT = format('Type: SET ROLE %I;', pg_get_userbyid(s.nspowner));
		END IF;
	END LOOP;
	-- Both are ours, and all that is in them, but for triggers: whoever was granted that can have
	-- planted some, which would run with our rights.
	IF FOUND THEN
		EXECUTE 'SELECT snowid.version()' INTO installed;
		FOR s IN SELECT c.oid::regclass AS name FROM pg_class c WHERE c.relnamespace = 'snowid'::regnamespace AND c.relkind = 'r' ORDER BY c.oid LOOP
			EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', s.name);
		END LOOP;
		FOR s IN
			SELECT g.tgname AS name, c.oid::regclass AS "table", c.relacl AS acl, c.relowner AS owner
			FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid
			WHERE c.relnamespace IN (to_regnamespace('snowid'), to_regnamespace('snowid_internal')) AND NOT g.tgisinternal
			  -- Its function, and what its WHEN calls or casts to.
			  AND EXISTS (
				SELECT FROM pg_depend d, LATERAL (
					SELECT p.proowner FROM pg_proc p WHERE d.refclassid = 'pg_proc'::regclass AND p.oid = d.refobjid
					UNION ALL SELECT unnest(ARRAY[q.oprowner, p.proowner]) FROM pg_operator q JOIN pg_proc p ON p.oid = q.oprcode
					WHERE d.refclassid = 'pg_operator'::regclass AND q.oid = d.refobjid
					UNION ALL SELECT y.typowner FROM pg_type y WHERE d.refclassid = 'pg_type'::regclass AND y.oid = d.refobjid) o (role)
				JOIN pg_roles r ON r.oid = o.role
				WHERE d.classid = 'pg_trigger'::regclass AND d.objid = g.oid AND o.role <> c.relowner AND NOT r.rolsuper)
			ORDER BY name
		LOOP
			RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
				MESSAGE = format('trigger "%s" on %s is not snowid''s', s.name, s."table"),
				DETAIL = 'It would run with your rights.',
				HINT = concat_ws(' ', format('Type: DROP TRIGGER %I ON %s;', s.name, s."table"),
					(SELECT string_agg(format('REVOKE TRIGGER ON %s FROM %s;', s."table", CASE WHEN x.grantee = 0 THEN 'PUBLIC' ELSE x.grantee::regrole::text END),
									   ' ' ORDER BY x.grantee)
					 FROM aclexplode(s.acl) x WHERE x.privilege_type = 'TRIGGER' AND x.grantee <> s.owner));
		END LOOP;
	END IF;
	known := ARRAY(SELECT nspname FROM pg_namespace WHERE nspname IN ('snowid', 'snowid_internal')
				   UNION ALL SELECT oid::regclass::text FROM pg_class
				   WHERE relnamespace IN (to_regnamespace('snowid'), to_regnamespace('snowid_internal'))
				   UNION ALL SELECT oid::regprocedure::text FROM pg_proc
				   WHERE pronamespace IN (to_regnamespace('snowid'), to_regnamespace('snowid_internal')));
	IF string_to_array(installed, '.')::int[] > string_to_array(version, '.')::int[] THEN
		RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
			MESSAGE = format('version %s is installed, which is newer than %s', installed, version);
	END IF;
-- script
	-- What is new, also where default privileges withhold it.
	FOR s IN
		SELECT p.oid::regprocedure AS name FROM pg_proc p
		WHERE p.pronamespace IN ('snowid'::regnamespace, 'snowid_internal'::regnamespace) AND p.oid::regprocedure::text <> ALL (known)
	LOOP
		EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO PUBLIC', s.name);
	END LOOP;
	-- A table that was there has the CHECKs of its namesake, which goes again.
	FOR s IN
		SELECT t.oid::regclass AS name, (SELECT attname FROM pg_attribute WHERE attrelid = t.oid AND attnum = 1) AS first,
			k.conname, pg_get_constraintdef(k.oid) AS definition, pg_get_expr(k.conbin, k.conrelid) AS condition, o.oid IS NOT NULL AS is_there
		FROM pg_class n JOIN pg_class t ON t.relname = n.relname AND t.relnamespace = 'snowid'::regnamespace
		JOIN pg_constraint k ON k.conrelid = n.oid AND k.contype = 'c'
		LEFT JOIN pg_constraint o ON o.conrelid = t.oid AND o.conname = k.conname
		WHERE n.relnamespace = 'snowid_internal'::regnamespace AND n.relkind = 'r'
		  AND pg_get_constraintdef(o.oid) IS DISTINCT FROM pg_get_constraintdef(k.oid)
	LOOP
		EXECUTE format('SELECT string_agg(to_jsonb(t) ->> %L, %L ORDER BY t) FROM %s t WHERE NOT %s', s.first, ', ', s.name, s.condition) INTO hindering;
		IF hindering IS NOT NULL THEN
			RAISE EXCEPTION USING ERRCODE = 'check_violation',
				MESSAGE = format('rows of %s are not as version %s has them: %s %s', s.name, version, s.first, hindering),
				HINT = format('Change them; to see them, type: SELECT * FROM %s WHERE NOT %s;', s.name, s.condition);
		END IF;
		EXECUTE format('ALTER TABLE %s %sADD CONSTRAINT %I %s', s.name, CASE WHEN s.is_there THEN format('DROP CONSTRAINT %I, ', s.conname) END,
					   s.conname, s.definition);
	END LOOP;
	FOR s IN
		SELECT n.oid::regclass AS name FROM pg_class n JOIN pg_class t ON t.relname = n.relname AND t.relnamespace = 'snowid'::regnamespace
		WHERE n.relnamespace = 'snowid_internal'::regnamespace AND n.relkind = 'r'
	LOOP
		EXECUTE format('DROP TABLE %s', s.name);
	END LOOP;
	PERFORM set_config('standard_conforming_strings', strings, true), set_config('quote_all_identifiers', quotes, true), set_config('search_path', path, true);
END
$snowid$;
