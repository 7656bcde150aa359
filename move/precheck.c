/*
 * The prechecks: everything that would make a move fail, or lose something
 * silently, told before anything is touched.
 *
 * All are run and printed, whatever the ones before have found, so that one
 * sees at once all that there is to do.  Most are queries; precheck.h says what
 * they return.
 */
#include "precheck.h"

/* A transaction older than this is not about to end by itself. */
#define LONG_TRANSACTION	"interval '5 seconds'"

/* The shards' schemas. */
#define IN_SHARD	"IN (SELECT oid FROM pg_namespace WHERE nspname = ANY ($2))"

static const char is_standby[] =
"SELECT 'FAILED', 'it is a standby', 'Give the connection of its primary.'"
" WHERE pg_is_in_recovery()";

/* Until 16, only superusers make subscriptions. */
#define MAY_SUBSCRIBE \
"SELECT 'FAILED', format('role %I is no superuser, and may not make subscriptions', current_user)," \
" CASE WHEN p.oid IS NULL THEN 'Connect as a superuser: before PostgreSQL 16, no other role may.' ELSE" \
" format('As a superuser, type: GRANT pg_create_subscription TO %I;', current_user) END" \
" FROM pg_roles r LEFT JOIN pg_roles p ON p.rolname = 'pg_create_subscription'" \
" WHERE r.rolname = current_user AND NOT r.rolsuper AND pg_has_role(p.oid, 'USAGE') IS NOT TRUE"

#define MAY_REPLICATE \
"SELECT 'FAILED', 'role ' || quote_ident(current_user) || ' may not create replication slots'," \
" format('As a superuser, type: ALTER ROLE %I REPLICATION;', current_user)" \
" FROM pg_roles WHERE rolname = current_user AND NOT rolsuper AND NOT rolreplication"

/* From 19 on, the first slot switches decoding on, where the level is replica. */
static const char wal_level[] =
"SELECT 'FAILED', 'it is ' || setting,"
" 'Type: ALTER SYSTEM SET wal_level = logical; and restart that server.'"
" FROM pg_settings WHERE name = 'wal_level' AND setting <> 'logical'"
" AND NOT (setting = 'replica' AND EXISTS"
"  (SELECT FROM pg_settings WHERE name = 'effective_wal_level'))";

/*
 * What other moves, which are in the journal, will still take of something, with
 * what they need of it, less what they have: where they are at those steps.
 */
#define CLAIMED(role, steps, need, have) \
"(SELECT coalesce(sum(greatest(" need " - (" have "), 0)), 0)::int FROM (SELECT DISTINCT" \
" details ->> 'name' AS name, coalesce(details ->> 'table_slots', '') AS tables FROM snowid.moves" \
" WHERE role = '" role "' AND step IN (" steps ")) o)"

/*
 * Is enough free of what a setting limits?  used: the rows of those that are, with
 * a WHERE; few: what must be at least 2, or all that is wanted.
 */
#define IS_FREE(setting, used, claimed, few, wanted, or_else) \
"SELECT CASE WHEN " few " < least(wanted, 2) THEN 'FAILED' WHEN free < wanted THEN 'warning' ELSE 'ok' END," \
" format('%s of " setting " = %s are free', free, current_setting('" setting "'))" \
" || CASE WHEN claimed > 0 THEN format(', not counting %s that other moves have claimed', claimed) ELSE '' END," \
" CASE WHEN free < wanted THEN" \
" format('The move needs %s. Type: ALTER SYSTEM SET " setting " = %s; and restart that server" or_else ".'," \
"  wanted, current_setting('" setting "')::int + wanted - free) END" \
" FROM (SELECT greatest(current_setting('" setting "')::int - (SELECT count(*) FROM " used ") - claimed, 0) AS free," \
"  claimed, 1 + least($3::int, " wanted ") AS wanted FROM (SELECT " claimed " AS claimed) c) t"

#define CLAIMED_ON_SOURCE(used, name) \
	CLAIMED("source", "'claimed', 'published'", "1 + $3::int", \
	"SELECT count(*) FROM " used " AND (" name " = o.name OR " name " LIKE o.tables)")

#define COUNT_TABLES	"SELECT count(*) FROM pg_class WHERE relkind = 'r'" \
" AND relnamespace " IN_SHARD

#define MAX_SYNC_WORKERS	"current_setting('max_sync_workers_per_subscription')::int"

/* One for the subscription, and one for each table that is copied at once. */
#define SLOTS			"pg_replication_slots WHERE true"
static const char free_slots[] =
IS_FREE("max_replication_slots", SLOTS, CLAIMED_ON_SOURCE(SLOTS, "slot_name"), "free",
		"(" COUNT_TABLES ")", "; or drop slots that nothing uses");

#define SENDERS			"pg_stat_activity WHERE backend_type = 'walsender'"
static const char free_senders[] =
IS_FREE("max_wal_senders", SENDERS, CLAIMED_ON_SOURCE(SENDERS, "application_name"), "free",
		"(" COUNT_TABLES ")", "");

static const char free_origins[] =
"SELECT CASE WHEN free < least(wanted, 1 + workers) THEN 'FAILED'"
" WHEN free < wanted THEN 'warning' ELSE 'ok' END,"
" format('%s of %s = %s are free', free, s.name, s.setting),"
" CASE WHEN free < wanted THEN"
" format('The move needs %s%s. Type: ALTER SYSTEM SET %s = %s; and restart that server.', wanted,"
"  CASE WHEN wanted > 1 + workers THEN"
"   ', since each table that is copied keeps one while the target is behind' END,"
"  s.name, s.setting::int + wanted - free) END"
" FROM (SELECT name, setting FROM pg_settings"
"  WHERE name IN ('max_active_replication_origins', 'max_replication_slots')"
"  ORDER BY name LIMIT 1) s,"
" LATERAL (SELECT s.setting::int - (SELECT count(*) FROM pg_replication_origin) AS free,"
"  least($3::int, " MAX_SYNC_WORKERS ") AS workers,"
"  1 + CASE WHEN " DROPS_SYNC_ORIGINS_SQL " THEN least($3::int, " MAX_SYNC_WORKERS ")"
"   ELSE $3::int END"
"  AS wanted) t";

static const char free_workers[] =
IS_FREE("max_logical_replication_workers",
		"pg_stat_activity WHERE backend_type LIKE 'logical replication %'"
		" AND backend_type <> 'logical replication launcher'",
		CLAIMED("target", "'claimed', 'schema', 'subscribed'", "1 + " MAX_SYNC_WORKERS,
				"SELECT count(*) FROM pg_stat_subscription WHERE subname = o.name AND pid IS NOT NULL"),
		"free + claimed", MAX_SYNC_WORKERS, "");

static const char free_processes[] =
IS_FREE("max_worker_processes",
		"pg_stat_activity WHERE backend_type NOT IN ("
		"'client backend', 'walsender', 'autovacuum launcher', 'autovacuum worker', 'background writer',"
		" 'checkpointer', 'walwriter', 'startup', 'walreceiver', 'archiver', 'logger', 'walsummarizer',"
		" 'slotsync worker', 'io worker', 'standalone backend')",
		"0", "free", MAX_SYNC_WORKERS, "");

/*
 * To drop a schema takes a lock for each thing in it, in one transaction: finish
 * does it, or abort.  The server has shared memory for some more locks than it
 * promises; half as many more were there.
 */
#define COUNT_LOCKS \
"SELECT max((SELECT coalesce(sum(CASE WHEN relkind IN ('r', 'p') THEN 2 ELSE 1 END" \
" + CASE WHEN reltoastrelid <> 0 THEN 2 ELSE 0 END), 0) FROM pg_class WHERE relnamespace = n.oid)" \
" + (SELECT count(*) FROM pg_type WHERE typnamespace = n.oid)" \
" + (SELECT count(*) FROM pg_proc WHERE pronamespace = n.oid)" \
" + (SELECT count(*) FROM pg_constraint WHERE connamespace = n.oid)" \
" + (SELECT count(*) FROM pg_attrdef JOIN pg_class c ON c.oid = adrelid WHERE relnamespace = n.oid)" \
" + (SELECT count(*) FROM pg_trigger JOIN pg_class c ON c.oid = tgrelid WHERE relnamespace = n.oid))" \
" FROM pg_namespace n WHERE nspname = ANY ($2)"

static const char room_for_locks[] =
"SELECT CASE WHEN wanted > 1.5 * room THEN 'FAILED' ELSE 'warning' END,"
" format('dropping the shard takes some %s locks in one transaction, and there is room for %s',"
"  wanted, room),"
" format('Type: ALTER SYSTEM SET max_locks_per_transaction = %s; and restart that server.',"
"  ceil(wanted * each / room))"
" FROM (SELECT coalesce($3::numeric, (" COUNT_LOCKS ")) AS wanted, each, each * (SELECT sum(setting::int)"
"  FROM pg_settings WHERE name IN ('max_connections', 'max_prepared_transactions',"
"  'autovacuum_max_workers', 'max_worker_processes', 'max_wal_senders')) AS room"
"  FROM CAST(current_setting('max_locks_per_transaction') AS int) each) t WHERE wanted > room";

#define SYNC_WORKERS	"SELECT " MAX_SYNC_WORKERS

#define MAY_WRITE \
"SELECT 'FAILED', format('role %I may not write %s', current_user, name)," \
" format('Type: GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %I;', name, current_user)" \
" FROM (VALUES ('snowid.moves'), ('snowid.shard_registry')) AS t (name)" \
" WHERE to_regclass(name) IS NOT NULL AND NOT (" \
" SELECT bool_and(has_table_privilege(name, p))" \
" FROM unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) p)"

/* Else the server hides from it how far the other one is, and the copy. */
#define MAY_SEE_SESSIONS \
"SELECT 'FAILED', format('role %I may not see what other sessions do', current_user)," \
" format('As a superuser, type: GRANT pg_read_all_stats TO %I;', current_user)" \
" WHERE NOT pg_has_role('pg_read_all_stats', 'USAGE')"

/* A parameter that only superusers set, and roles that have been granted it. */
#define MAY_SET(name, why) \
"SELECT 'warning', format('role %I may not set " name ": " why "', current_user)," \
" format('As a superuser, type: GRANT SET ON PARAMETER " name " TO %I;', current_user)" \
" WHERE NOT has_parameter_privilege('" name "', 'SET')"

/* The names that other moves of these shards have given. */
#define LEFTOVER		"format('^snowid_(move|back)_(%s)_', array_to_string($1, '|'))"

/* All roles that own something in the shard, may use it, or are in a policy. */
#define ROLES \
"SELECT DISTINCT r.rolname FROM (" \
" SELECT relowner, relacl FROM pg_class WHERE relnamespace " IN_SHARD \
" UNION ALL SELECT proowner, proacl FROM pg_proc WHERE pronamespace " IN_SHARD \
" UNION ALL SELECT typowner, typacl FROM pg_type WHERE typnamespace " IN_SHARD \
" UNION ALL SELECT nspowner, nspacl FROM pg_namespace WHERE nspname = ANY ($2)" \
" UNION ALL SELECT defaclrole, defaclacl FROM pg_default_acl WHERE defaclnamespace " IN_SHARD \
" UNION ALL SELECT c.relowner, a.attacl FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid" \
"  WHERE relnamespace " IN_SHARD " AND attacl IS NOT NULL) AS o (owner, acl)" \
" CROSS JOIN LATERAL (SELECT owner UNION SELECT x.grantee FROM aclexplode(acl) x" \
"  UNION SELECT x.grantor FROM aclexplode(acl) x) AS w (who)" \
" JOIN pg_roles r ON r.oid = w.who" \
" UNION " \
"SELECT r.rolname FROM pg_policy p JOIN pg_class c ON c.oid = polrelid, pg_roles r" \
" WHERE relnamespace " IN_SHARD " AND r.oid = ANY (polroles)"

/* Something that is called so, of a kind that texts of functions name. */
#define IS_THERE(schema, name) \
"EXISTS (SELECT FROM pg_namespace n WHERE nspname = " schema " AND (" \
"EXISTS (SELECT FROM pg_proc WHERE pronamespace = n.oid AND proname = " name ")" \
" OR EXISTS (SELECT FROM pg_class WHERE relnamespace = n.oid AND relname = " name ")" \
" OR EXISTS (SELECT FROM pg_type WHERE typnamespace = n.oid AND typname = " name ")))"

/* Those who own the schemas, and what is in them. */
#define OWNERS \
"SELECT string_agg(DISTINCT kind || rolname, E'\\n') FROM (" \
" SELECT 'schema ', nspowner FROM pg_namespace WHERE nspname = ANY ($2)" \
" UNION ALL SELECT 'object ', relowner FROM pg_class WHERE relnamespace " IN_SHARD \
" UNION ALL SELECT 'object ', proowner FROM pg_proc WHERE pronamespace " IN_SHARD \
" UNION ALL SELECT 'object ', typowner FROM pg_type WHERE typnamespace " IN_SHARD \
" ) o (kind, owner) JOIN pg_roles r ON r.oid = owner"

/* The locale of a database; what a version doesn't know is left out. */
#define LOCALE \
"SELECT concat_ws(', ', 'LC_COLLATE ' || datcollate, 'LC_CTYPE ' || datctype," \
" 'provider ' || (d ->> 'datlocprovider')," \
" 'locale ' || coalesce(d ->> 'datlocale', d ->> 'daticulocale')," \
" 'version ' || (d ->> 'datcollversion'))" \
" FROM (SELECT datcollate, datctype, to_jsonb(b) AS d FROM pg_database b" \
" WHERE datname = current_database()) t"

/* The portable edition is no extension; or it is one of pg_tle. */
#define SNOWID_VERSION \
"SELECT coalesce((SELECT extversion FROM pg_extension WHERE extname = 'snowid'), portable)" \
" AS extversion FROM (SELECT substring(obj_description(" \
"to_regprocedure('snowid_internal.portable_version()'), 'pg_proc') FROM '\\S+$')) AS t (portable)" \
" WHERE portable IS NOT NULL OR EXISTS (SELECT FROM pg_extension WHERE extname = 'snowid')"

static const Check checks[] =
{
	{.name = "versions of PostgreSQL",.probe = check_versions},
	{.name = "pg_dump",.probe = check_pg_dump},
	{.name = "earlier move",.probe = check_earlier_move},
	{.name = "source is a primary",.where = ON_SOURCE,.sql = is_standby},
	{.name = "target is a primary",.where = ON_TARGET,.sql = is_standby},
	{
		.name = "two databases",.where = ON_TARGET,
		.other = "SELECT concat(system_identifier, pg_postmaster_start_time(),"
		" current_database()) FROM pg_control_system()",
		.sql = "SELECT 'FAILED', 'source and target are the same', 'Look at --from and --to.'"
		" FROM pg_control_system()"
		" WHERE concat(system_identifier, pg_postmaster_start_time(), current_database()) = $3"
	},
	{
		.name = "extension snowid",.where = ON_TARGET,
		.other = SNOWID_VERSION,
		.sql = "SELECT 'FAILED', 'it is not in the source''s database',"
		" 'There, type: CREATE EXTENSION snowid;' WHERE $3 IS NULL"
		" UNION ALL "
		"SELECT 'FAILED', 'it is not in the target''s database',"
		" 'There, type: CREATE EXTENSION snowid;'"
		" WHERE NOT EXISTS (" SNOWID_VERSION ")"
		" UNION ALL "
		"SELECT 'FAILED', format('it is version %s on the source and %s on the target', $3,"
		" extversion),"
		" 'On the older one, type: ALTER EXTENSION snowid UPDATE;'"
		" FROM (" SNOWID_VERSION ") AS here WHERE extversion <> $3"
	},
	{
		.name = "shard on the source",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', CASE WHEN r.shard IS NULL THEN"
		" format('shard %s is not registered', x.shard)"
		" WHEN n.oid IS NULL THEN format('schema \"%s\" does not exist', r.schema)"
		" WHEN c.oid IS NULL THEN format('sequence \"%s\" of schema \"%s\" does not exist',"
		" r.sequence, r.schema)"
		" ELSE format('shard %s is closed', x.shard) END,"
		" 'SELECT * FROM snowid.shards; shows what is there and where shards live.'"
		" FROM unnest($1) x (shard) LEFT JOIN snowid.shard_registry r USING (shard)"
		" LEFT JOIN pg_namespace n ON n.nspname = r.schema"
		" LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = r.sequence"
		" AND c.relkind = 'S'"
		" WHERE c.oid IS NULL OR snowid_internal.lives(r) NOT IN ('here', 'missing')"
	},
	{
		.name = "not of Citus",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', format('Citus has copied schema \"%s\" to its nodes', nspname),"
		" format('Let Citus move it. Type: SELECT citus_schema_move(%L, host, port);', nspname)"
		" FROM pg_namespace WHERE nspname = ANY ($2)"
		" AND oid IN (SELECT * FROM snowid_internal.citus_oids('copy'::text))"
	},
	{
		.name = "number on the target",.where = ON_TARGET,
		.sql = "WITH s AS (SELECT * FROM unnest($1, $2) AS s (shard, schema))"
		" SELECT 'FAILED', format('shard %s there is schema \"%s\"', shard, r.schema),"
		" 'Two shards have one number, so their ids can be the same. Give one another number.'"
		" FROM snowid.shard_registry r JOIN s USING (shard) WHERE r.schema <> s.schema"
		" UNION ALL "
		"SELECT 'FAILED', format('schema \"%s\" there is shard %s', r.schema, r.shard),"
		" 'Rename one of the two.'"
		" FROM snowid.shard_registry r JOIN s ON r.schema = s.schema WHERE r.shard <> s.shard"
		" UNION ALL "
		"SELECT 'FAILED', format('shard %s is there already', r.shard),"
		" format('Look whether it was ever moved: SELECT * FROM snowid.shards WHERE shard = %s;',"
		" r.shard)"
		" FROM snowid.shard_registry r JOIN s ON r.shard = s.shard AND r.schema = s.schema"
		" WHERE snowid_internal.lives(r) IN ('here', 'missing')"
		" AND EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
		"  WHERE n.nspname = r.schema AND c.relname = r.sequence)"
	},
	{
		.name = "schema on the target",.where = ON_TARGET,
		.sql = "SELECT 'FAILED', format('schema \"%s\" is there already%s', nspname,"
		"  CASE WHEN foreign_only THEN ', with foreign tables' END),"
		" CASE WHEN foreign_only THEN"
		"  format('If nothing reads them there any more, type: DROP SCHEMA %I CASCADE;', nspname)"
		" ELSE format('Rename or drop it. To rename it, type: ALTER SCHEMA %I RENAME TO %I;',"
		"  nspname, nspname || '_old') END"
		" FROM (SELECT nspname, (SELECT bool_and(relkind = 'f') FROM pg_class"
		"   WHERE relnamespace = n.oid) IS TRUE AS foreign_only"
		"  FROM pg_namespace n WHERE nspname = ANY ($2)) t"
	},
	{
		.name = "leftovers on the target",.where = ON_TARGET,
		.sql = "SELECT 'FAILED', format('subscription \"%s\" is there already', subname),"
		" format('Type: ALTER SUBSCRIPTION %I DISABLE; ALTER SUBSCRIPTION %I SET (slot_name ="
		" NONE); DROP SUBSCRIPTION %I;', subname, subname, subname)"
		" FROM pg_subscription WHERE subname ~ (" LEFTOVER ") AND subdbid = (SELECT oid"
		" FROM pg_database WHERE datname = current_database())"
	},
	{
		.name = "leftovers on the source",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', format('publication \"%s\" is there already', pubname),"
		" format('Type: DROP PUBLICATION %I;', pubname)"
		" FROM pg_publication WHERE pubname ~ (" LEFTOVER ")"
		" UNION ALL "
		"SELECT 'FAILED', format('replication slot \"%s\" is there already', slot_name),"
		" format('Type: SELECT pg_drop_replication_slot(%L);', slot_name)"
		" FROM pg_replication_slots WHERE slot_name ~ (" LEFTOVER ")"
		" UNION ALL "
		"SELECT 'warning', format('schema \"%s\" is there', nspname),"
		" format('It is the copy of an earlier move. If that move is complete, type: DROP SCHEMA %I"
		" CASCADE;', nspname)"
		" FROM pg_namespace WHERE nspname IN (SELECT s || '_moved' FROM unnest($2) s)"
	},
	{
		.name = "rights on the source",.where = ON_SOURCE,
		.sql = MAY_REPLICATE
		" UNION ALL "
		"SELECT 'FAILED', 'role ' || quote_ident(current_user) || ' may not create publications',"
		" format('Type: GRANT CREATE ON DATABASE %I TO %I;', current_database(), current_user)"
		" WHERE NOT has_database_privilege(current_database(), 'CREATE')"
		" UNION ALL "
		"SELECT DISTINCT 'FAILED', format('role %I does not own what %I has there', current_user,"
		" rolname), format('Type: GRANT %I TO %I;', rolname, current_user)"
		" FROM pg_roles r WHERE NOT pg_has_role(oid, 'USAGE') AND oid IN ("
		"  SELECT relowner FROM pg_class WHERE relnamespace " IN_SHARD
		"  UNION SELECT nspowner FROM pg_namespace WHERE nspname = ANY ($2))"
		" UNION ALL " MAY_SEE_SESSIONS
		" UNION ALL " MAY_SET("deadlock_timeout", "an autovacuum in the way makes writers wait longer, or stops the cut-over")
		" UNION ALL " MAY_WRITE
	},
	{
		.name = "rights on the target",.where = ON_TARGET,
		.other = OWNERS,
		.sql = MAY_SUBSCRIBE
		" UNION ALL "
		"SELECT 'FAILED', format('role %I may not create schemas', current_user),"
		" format('Type: GRANT CREATE ON DATABASE %I TO %I;', current_database(), current_user)"
		" WHERE NOT has_database_privilege(current_database(), 'CREATE')"
		" UNION ALL "
		"SELECT 'FAILED', format('role %I may not make objects for %I', current_user, rolname),"
		" format('Type: GRANT %I TO %I;', rolname, current_user)"
		" FROM pg_roles WHERE NOT pg_has_role(oid, 'MEMBER')"
		" AND ARRAY['schema ' || rolname, 'object ' || rolname] && string_to_array($3, E'\\n')"
		" UNION ALL "
		"SELECT 'FAILED', format('role %I may not own a schema', o.rolname),"
		" format('Type: GRANT CREATE ON DATABASE %I TO %I;', current_database(), o.rolname)"
		" FROM pg_roles o, pg_roles r WHERE r.rolname = current_user AND NOT r.rolsuper"
		" AND 'schema ' || o.rolname = ANY (string_to_array($3, E'\\n'))"
		" AND NOT has_database_privilege(o.oid, current_database(), 'CREATE')"
		" UNION ALL " MAY_SEE_SESSIONS
		" UNION ALL " MAY_SET("deadlock_timeout", "an autovacuum in the way makes writers wait longer, or stops the cut-over")
		" UNION ALL " MAY_SET("session_replication_role", "after a crash there, a table may not be copied again")
		" UNION ALL " MAY_WRITE
	},
	{
		.name = "rights on the source",.where = ON_SOURCE,
		/* The way back begins where an origin says. */
		.sql = MAY_SUBSCRIBE
		" UNION ALL "
		"SELECT 'FAILED', format('role %I may not call %s', current_user, f),"
		" format('As a superuser, type: GRANT EXECUTE ON FUNCTION %s TO %I;', f, current_user)"
		" FROM CAST('pg_replication_origin_advance(text,pg_lsn)' AS text) f"
		" WHERE NOT has_function_privilege(f, 'EXECUTE')",
		.only_reverse = true
	},
	{
		.name = "rights on the target",.where = ON_TARGET,.sql = MAY_REPLICATE,.only_reverse = true
	},
	{
		.name = "roles on the target",.where = ON_TARGET,
		.other = "SELECT string_agg(rolname, E'\\n') FROM (" ROLES ") AS t",
		.sql = "SELECT 'FAILED', format('role \"%s\" does not exist there', name),"
		" format('Type: CREATE ROLE %I; with the attributes that it has on the source (pg_dumpall"
		" --roles-only).', name)"
		" FROM unnest(string_to_array($3, E'\\n')) AS name WHERE name NOT IN (SELECT rolname"
		" FROM pg_roles)"
	},
	{
		.name = "extensions on the target",.where = ON_TARGET,
		.other = "WITH " OBJECTS_INSIDE
		" SELECT string_agg(DISTINCT extname || ' ' || extversion, E'\\n')"
		" FROM pg_depend d JOIN inside USING (classid, objid)"
		" JOIN pg_depend m"
		" ON (m.classid, m.objid, m.deptype) = (d.refclassid, d.refobjid, 'e')"
		" JOIN pg_extension e ON m.refobjid = e.oid"
		" WHERE e.extname <> 'snowid'",
		.sql = "SELECT CASE WHEN extname IS NULL THEN 'FAILED' ELSE 'warning' END,"
		" CASE WHEN extname IS NULL THEN format('extension \"%s\" is missing', x[1])"
		"  ELSE format('extension \"%s\" is version %s, and %s on the source', x[1], extversion,"
		" x[2]) END,"
		" format(CASE WHEN extname IS NULL THEN 'Type: CREATE EXTENSION %I;'"
		" ELSE 'On the older one, type: ALTER EXTENSION %I UPDATE;' END, x[1])"
		" FROM (SELECT regexp_match(line, '^(.*) (\\S+)$') FROM unnest(string_to_array($3,"
		" E'\\n')) line) AS t (x)"
		" LEFT JOIN pg_extension ON extname = x[1] WHERE extversion IS DISTINCT FROM x[2]"
	},
	{.name = "owners",.probe = check_owners},
	{
		.name = "transforms",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', format('%s would be lost: pg_dump of a schema leaves it out',"
		"  pg_describe_object('pg_transform'::regclass, f.oid, 0)),"
		" format('Type: DROP TRANSFORM FOR %s LANGUAGE %I; and make it again on the target after the"
		" move.', format_type(trftype, NULL), lanname)"
		" FROM pg_transform f JOIN pg_type t ON t.oid = trftype JOIN pg_language l ON l.oid = trflang"
		" WHERE t.typnamespace " IN_SHARD " ORDER BY 2"
	},
	{.name = "objects of other schemas",.probe = check_needs},
	{
		.name = "texts of functions",.where = ON_TARGET,
		.other = "SELECT string_agg(DISTINCT concat_ws(' ', x[1], x[2], oid::regprocedure), E'\\n')"
		" FROM pg_proc, regexp_matches(lower(prosrc), '\\m([a-z_][a-z0-9_]*)\\.([a-z_][a-z0-9_]*)', 'g') x"
		" WHERE pronamespace " IN_SHARD " AND x[1] <> ALL ($2) AND " IS_THERE("x[1]", "x[2]"),
		.sql = "SELECT 'warning', format('%I.%I is missing; the text of %s names it', x[1], x[2], x[3]),"
		" 'Create it there, or the function may fail when it is called.'"
		" FROM (SELECT regexp_match(line, '^(\\S+) (\\S+) (.*)$') FROM unnest(string_to_array($3, E'\\n')) line) t (x)"
		" WHERE NOT " IS_THERE("x[1]", "x[2]") " ORDER BY 2"
	},
	{
		.name = "extensions within the shard",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED',"
		" format('extension \"%s\" is in schema \"%s\", and pg_dump of a schema leaves extensions"
		" out', extname, nspname),"
		" format('Type: ALTER EXTENSION %I SET SCHEMA public;', extname)"
		" FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace WHERE nspname = ANY ($2)"
		" UNION ALL "
		"SELECT 'FAILED',"
		" format('table %s belongs to extension \"%s\", so pg_dump leaves it"
		" out', " NAME ", e.extname),"
		" format('Type: ALTER EXTENSION %I DROP TABLE %s;', e.extname, " NAME ")"
		" FROM " TABLES " JOIN pg_depend d ON d.classid = 'pg_class'::regclass"
		" AND d.objid = c.oid AND d.deptype = 'e'"
		" JOIN pg_extension e ON e.oid = d.refobjid"
		" WHERE n.nspname = ANY ($2) AND c.relkind IN ('r', 'p')"
	},
	{
		.name = "tablespaces on the target",.where = ON_TARGET,
		.other = "SELECT string_agg(DISTINCT spcname, E'\\n') FROM pg_class c"
		" JOIN pg_tablespace t ON t.oid = c.reltablespace WHERE relnamespace " IN_SHARD,
		.sql = "SELECT 'FAILED', format('tablespace \"%s\" is missing', name),"
		" format('Type: CREATE TABLESPACE %I LOCATION ''...'';', name)"
		" FROM unnest(string_to_array($3, E'\\n')) AS name WHERE name NOT IN (SELECT spcname"
		" FROM pg_tablespace)"
	},
	{
		.name = "event triggers on the target",.where = ON_TARGET,
		.sql = "SELECT 'warning', format('\"%s\" fires when the shard''s tables are made',"
		" evtname), format('If it should not, type: ALTER EVENT TRIGGER %I DISABLE; until the"
		" move is done.', evtname)"
		" FROM pg_event_trigger WHERE evtenabled IN ('O', 'A')"
	},
	{
		.name = "replica identity",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED',"
		" format('table %s has none, so its UPDATEs and DELETEs would fail as soon as it is"
		" published', " NAME "),"
		" format('Type: ALTER TABLE %s %s', " NAME ", coalesce('REPLICA IDENTITY USING INDEX ' ||"
		" quote_ident(u.relname) || ';',"
		"  'ADD PRIMARY KEY (...); or, if large numbers of rows are never updated at once,"
		" REPLICA IDENTITY FULL;'))"
		" FROM " TABLES
		" LEFT JOIN LATERAL (SELECT i.relname FROM pg_index x"
		" JOIN pg_class i ON i.oid = x.indexrelid"
		"  WHERE x.indrelid = c.oid AND x.indisunique AND x.indimmediate AND x.indisvalid"
		" AND x.indpred IS NULL AND x.indexprs IS NULL"
		"  AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid"
		" AND a.attnum = ANY (x.indkey) AND NOT a.attnotnull)"
		"  ORDER BY x.indnkeyatts, i.relname LIMIT 1) u ON true"
		" WHERE n.nspname = ANY ($2) AND c.relkind = 'r' AND c.relpersistence = 'p'"
		" AND c.relreplident <> 'f' AND NOT EXISTS ("
		"  SELECT FROM pg_index x WHERE x.indrelid = c.oid AND x.indimmediate AND x.indisvalid"
		"  AND CASE c.relreplident WHEN 'd' THEN x.indisprimary WHEN 'i' THEN x.indisreplident END)"
		" ORDER BY 2"
	},
	{
		.name = "rows without a key",.where = ON_SOURCE,
		.sql = "WITH RECURSIVE part (relid, attname, typ) AS ("
		" SELECT c.oid, attname, atttypid FROM " TABLES " JOIN pg_attribute a ON a.attrelid = c.oid"
		"  WHERE n.nspname = ANY ($2) AND c.relkind = 'r' AND c.relreplident = 'f'"
		"  AND attnum > 0 AND NOT attisdropped"
		"  AND NOT EXISTS (SELECT FROM pg_index x WHERE x.indrelid = c.oid AND x.indisprimary)"
		" UNION "
		"SELECT relid, attname, CASE typtype WHEN 'd' THEN typbasetype ELSE typelem END"
		" FROM part JOIN pg_type t ON t.oid = typ"
		" WHERE typtype = 'd' OR typtype = 'b' AND typcategory = 'A' AND typelem <> 0)"
		" SELECT 'FAILED', format('column %I of table %s has type %s, which has no equality, so rows"
		" cannot be found again on the target', attname, " NAME ", format_type(typ, NULL)),"
		" format('Type: ALTER TABLE %s ADD PRIMARY KEY (...);', " NAME ")"
		" FROM part JOIN pg_type t ON t.oid = typ JOIN pg_class c ON c.oid = relid"
		" JOIN pg_namespace n ON n.oid = c.relnamespace"
		" WHERE typtype = 'b' AND NOT (typcategory = 'A' AND typelem <> 0)"
		" AND NOT EXISTS (SELECT FROM pg_opclass o JOIN pg_am m ON m.oid = opcmethod"
		"  WHERE opcdefault AND amname IN ('btree', 'hash') AND (opcintype = typ"
		"   OR EXISTS (SELECT FROM pg_cast WHERE castsource = typ AND casttarget = opcintype"
		"    AND castmethod = 'b' AND castcontext = 'i')))"
		" ORDER BY 2"
	},
	{
		.name = "unlogged tables",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED',"
		" format('the rows of table %s would be lost: replication leaves them"
		" out', " NAME "), format('Type: ALTER TABLE %s SET LOGGED;', " NAME ")"
		" FROM " TABLES " WHERE n.nspname = ANY ($2) AND c.relkind = 'r'"
		" AND c.relpersistence = 'u' ORDER BY 2"
	},
	{
		.name = "partitions and inheritance",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED',"
		" format('table %I.%I is a %s of %I.%I; they must be in one schema', cn.nspname, c.relname,"
		"  CASE WHEN c.relispartition THEN 'partition' ELSE 'child' END, pn.nspname, p.relname),"
		" format('Type: ALTER TABLE %I.%I SET SCHEMA %I; or ALTER TABLE %I.%I %s %I.%I;',"
		"  CASE WHEN cn.nspname = ANY ($2) THEN pn.nspname ELSE cn.nspname END, CASE"
		" WHEN cn.nspname = ANY ($2) THEN p.relname ELSE c.relname END,"
		"  CASE WHEN cn.nspname = ANY ($2) THEN cn.nspname ELSE pn.nspname END,"
		"  CASE WHEN c.relispartition THEN pn.nspname ELSE cn.nspname END, CASE"
		" WHEN c.relispartition THEN p.relname ELSE c.relname END,"
		"  CASE WHEN c.relispartition THEN 'DETACH PARTITION' ELSE 'NO INHERIT' END,"
		"  CASE WHEN c.relispartition THEN cn.nspname ELSE pn.nspname END, CASE"
		" WHEN c.relispartition THEN c.relname ELSE p.relname END)"
		" FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
		" JOIN pg_namespace cn ON cn.oid = c.relnamespace"
		" JOIN pg_class p ON p.oid = i.inhparent JOIN pg_namespace pn ON pn.oid = p.relnamespace"
		" WHERE c.relkind IN ('r', 'p', 'f') AND cn.oid <> pn.oid"
		" AND (cn.nspname = ANY ($2) OR pn.nspname = ANY ($2)) ORDER BY 2"
	},
	{
		.name = "foreign tables",.where = ON_SOURCE,
		.sql = "SELECT 'warning',"
		" format('%s: its rows stay on server \"%s\"', " NAME ", s.srvname),"
		" 'User mappings are not copied: create them on the target.'"
		" FROM " TABLES " JOIN pg_foreign_table f ON f.ftrelid = c.oid"
		" JOIN pg_foreign_server s ON s.oid = f.ftserver"
		" WHERE n.nspname = ANY ($2) ORDER BY 2"
	},
	{
		.name = "materialized views",.where = ON_SOURCE,
		.sql = "SELECT 'warning',"
		" format('%s will be empty on the target', " NAME "), format('After the move, type:"
		" REFRESH MATERIALIZED VIEW %s;', " NAME ")"
		" FROM " TABLES " WHERE n.nspname = ANY ($2) AND c.relkind = 'm' ORDER BY 2"
	},
	{
		.name = "foreign keys",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', format('%s leads from %s to %s, out of the shard or into it',"
		" quote_ident(conname), conrelid::regclass, confrelid::regclass),"
		" format('Type: ALTER TABLE %s DROP CONSTRAINT %I;', conrelid::regclass, conname)"
		" FROM pg_constraint k JOIN pg_class c ON c.oid = conrelid"
		" JOIN pg_class p ON p.oid = confrelid"
		" WHERE contype = 'f' AND conparentid = 0"
		" AND c.relnamespace <> p.relnamespace"
		" AND (c.relnamespace " IN_SHARD " OR p.relnamespace " IN_SHARD ") ORDER BY 2"
	},
	{
		.name = "users in other schemas",.where = ON_SOURCE,
		.sql = "SELECT 'warning', format('%s uses %s', user_name, used),"
		" 'After the move it would use the closed copy, and finish would refuse to drop that. Drop or"
		" change it.'"
		" FROM (" OUTSIDE_USERS("$2") ") u WHERE NOT is_other_check ORDER BY 2"
	},
	{
		.name = "triggers that always fire",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED',"
		" format('%I on %s would fire a second time, on the target, for each change that is"
		" replicated', tgname, " NAME "),"
		" format('Type: ALTER TABLE %s ENABLE TRIGGER %I; and set it back after the"
		" move.', " NAME ", tgname)"
		" FROM pg_trigger g JOIN pg_class c ON c.oid = tgrelid"
		" JOIN pg_namespace n ON n.oid = c.relnamespace"
		" WHERE n.nspname = ANY ($2) AND NOT tgisinternal AND tgenabled IN ('A', 'R') ORDER BY 2"
	},
	{
		.name = "row security",.where = ON_TARGET,
		.other = "SELECT string_agg(" NAME ", ', ') FROM " TABLES " JOIN pg_roles o ON o.oid ="
		" c.relowner"
		" WHERE n.nspname = ANY ($2) AND c.relkind IN ('r', 'p') AND c.relrowsecurity"
		" AND c.relforcerowsecurity"
		" AND NOT o.rolsuper AND NOT o.rolbypassrls",
		.sql = "SELECT 'FAILED',"
		" 'forced even on the owner: ' || $3,"
		" 'For the time of the move, type: ALTER TABLE ... NO FORCE ROW LEVEL SECURITY;'"
		" FROM pg_roles WHERE rolname = current_user AND $3 IS NOT NULL"
		" AND (" APPLIES_AS_OWNER_SQL " OR NOT rolsuper)"
	},
	{
		.name = "large objects",.where = ON_SOURCE,
		.sql = "SELECT 'warning',"
		" format('column %I of table %s may name large objects, which are not replicated',"
		" attname, " NAME "),"
		" 'If it does, carry them over yourself, or store them as bytea.'"
		" FROM pg_attribute a JOIN pg_type t ON t.oid = atttypid"
		" JOIN pg_class c ON c.oid = attrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
		" WHERE n.nspname = ANY ($2) AND c.relkind = 'r' AND attnum > 0 AND NOT attisdropped"
		" AND (atttypid = 'oid'::regtype OR typname = 'lo') ORDER BY 2"
	},
	{
		.name = "other subscriptions",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED',"
		" format('%s is filled by replication from elsewhere, which would not"
		" follow', " NAME "), 'End that subscription first.'"
		" FROM pg_subscription_rel s JOIN pg_class c ON c.oid = srrelid"
		" JOIN pg_namespace n ON n.oid = c.relnamespace"
		" WHERE n.nspname = ANY ($2) ORDER BY 2"
	},
	{
		.name = "other publications",.where = ON_SOURCE,
		.sql = "SELECT 'warning',"
		" format('subscribers of \"%s\" will hear no more of the shard once it has moved',"
		" pubname), 'Let them subscribe to the target as well.'"
		" FROM pg_publication p WHERE pubname <> $4 AND EXISTS ("
		"  SELECT FROM pg_publication_tables t WHERE t.pubname = p.pubname"
		" AND t.schemaname = ANY ($2)) ORDER BY 2"
	},
	{
		/* pgoutput shows a publication's tables, others show all. */
		.name = "other slots",.where = ON_SOURCE,
		.sql = "SELECT 'warning',"
		" format('who reads slot \"%s\" (%s) will hear no more of the shard once it has moved',"
		" slot_name, plugin), 'Make a slot on the target, too, before the move; see doc/moving.md.'"
		" FROM pg_replication_slots s WHERE database = current_database() AND NOT temporary"
		" AND slot_name NOT LIKE 'snowid\\_move\\_%'"
		" AND slot_name !~ '^pg_[0-9]+_sync_[0-9]+_[0-9]+$'"
		" AND (plugin <> 'pgoutput' OR EXISTS ("
		"  SELECT FROM pg_publication_tables t WHERE t.schemaname = ANY ($2)"
		" AND t.pubname <> $4)) ORDER BY 2"
	},
	{
		.name = "encoding",.where = ON_TARGET,
		.other = "SELECT current_setting('server_encoding')",
		.sql = "SELECT CASE WHEN current_setting('server_encoding') = 'UTF8' THEN 'warning'"
		" ELSE 'FAILED' END,"
		" format('%s on the source, %s on the target', $3, current_setting('server_encoding')),"
		" CASE WHEN current_setting('server_encoding') = 'UTF8' THEN"
		" 'Texts are converted on the way; UTF8 has a place for all of them.'"
		" ELSE 'Move it to a database with the same encoding, or UTF8.' END"
		" WHERE current_setting('server_encoding') <> $3"
	},
	{
		.name = "collation",.where = ON_TARGET,.other = LOCALE,
		.sql = "SELECT 'warning', format('%s on the source; %s on the target', $3, here),"
		" 'Texts may sort differently there; partition bounds and CHECKs that compare texts may"
		" refuse rows.'"
		" FROM (" LOCALE ") AS t (here) WHERE here <> $3"
	},
	{.name = "wal_level on the source",.where = ON_SOURCE,.sql = wal_level},
	{.name = "replication slots on the"
	" source",.where = ON_SOURCE,.other = SYNC_WORKERS,.sql = free_slots},
	{.name = "walsenders on the"
	" source",.where = ON_SOURCE,.other = SYNC_WORKERS,.sql = free_senders},
	{.name = "replication origins on the target",.where = ON_TARGET,.other = COUNT_TABLES,.sql = free_origins},
	{.name = "replication workers on the target",.where = ON_TARGET,.other = COUNT_TABLES,.sql = free_workers},
	{.name = "background workers on the target",.where = ON_TARGET,.other = COUNT_TABLES,.sql = free_processes},
	{
		.name = "copying workers on the target",.where = ON_TARGET,
		.sql = "SELECT 'FAILED',"
		" 'max_sync_workers_per_subscription is 0, so no table would ever be copied',"
		" 'Type: ALTER SYSTEM SET max_sync_workers_per_subscription = 2; SELECT pg_reload_conf();'"
		" WHERE current_setting('max_sync_workers_per_subscription')::int = 0"
	},
	{.name = "connection from the target to the source",.where = ON_TARGET,.probe = check_connection},
	{.name = "rights of that connection",.where = ON_SOURCE,.probe = check_reader},
	{
		.name = "WAL kept by slots on the source",.where = ON_SOURCE,
		.sql = "SELECT 'warning',"
		" 'max_slot_wal_keep_size is -1, so a slot that nobody reads can fill the disk',"
		" 'Should snowid-move die, nothing else would stop it. Type: ALTER SYSTEM SET"
		" max_slot_wal_keep_size = ''50GB''; or what there is room for; SELECT pg_reload_conf();'"
		" WHERE current_setting('max_slot_wal_keep_size') = '-1'"
	},
	{
		.name = "replication settings",.where = ON_SOURCE,
		.sql = "SELECT 'warning', name || ' is ' || current_setting(name), CASE name"
		" WHEN 'wal_sender_timeout' THEN 'A lost connection would not be noticed. Type: ALTER"
		" SYSTEM RESET wal_sender_timeout; SELECT pg_reload_conf();'"
		" ELSE 'Large transactions go through files then, and are slow. Type: ALTER SYSTEM RESET"
		" logical_decoding_work_mem; SELECT pg_reload_conf();' END"
		" FROM pg_settings WHERE name = 'wal_sender_timeout' AND setting = '0'"
		" OR name = 'logical_decoding_work_mem' AND setting::int < 65536"
	},
	{.name = "locks on the source",.where = ON_SOURCE,.sql = room_for_locks},
	{.name = "locks on the target",.where = ON_TARGET,.other = COUNT_LOCKS,.sql = room_for_locks},
	{.name = "disk room on the target",.probe = check_room},
	{.name = "clocks",.probe = check_clocks},
	{.name = "time to close",.probe = check_closing_time},
	{
		.name = "long transactions",.where = ON_SOURCE,
		.sql = "SELECT 'warning', format('process %s%s has had one open for %s', a.pid,"
		" ' of ' || usename, date_trunc('second', clock_timestamp() - xact_start)),"
		" format('The copy and the cut-over wait for its end. To end it, type: SELECT"
		" pg_terminate_backend(%s);', a.pid)"
		" FROM pg_stat_activity a"
		" WHERE a.pid <> pg_backend_pid() AND xact_start < clock_timestamp() - " LONG_TRANSACTION
		" AND (backend_xid IS NOT NULL OR EXISTS (SELECT FROM pg_locks l"
		" JOIN pg_class c ON c.oid = l.relation"
		"  WHERE l.pid = a.pid AND l.database = (SELECT oid FROM pg_database"
		" WHERE datname = current_database())"
		"  AND c.relnamespace " IN_SHARD " AND l.mode NOT IN ('AccessShareLock',"
		" 'RowShareLock'))) ORDER BY xact_start"
	},
	{
		.name = "prepared transactions",.where = ON_SOURCE,
		.sql = "SELECT 'FAILED', format('%L of database \"%s\" has been prepared for %s', gid,"
		" database, date_trunc('second', clock_timestamp() - prepared)),"
		" format('The copy cannot begin before its end. In that database, type: COMMIT PREPARED"
		" %L; or ROLLBACK PREPARED %L;', gid, gid)"
		" FROM pg_prepared_xacts"
		" WHERE prepared < clock_timestamp() - " LONG_TRANSACTION " ORDER BY prepared"
	},
	{.name = "registry",.probe = check_registry},
	{.name = "home of the target",.probe = check_home},
	{.name = "standbys of the source",.probe = check_lag,.where = ON_SOURCE},
	{.name = "standbys of the target",.probe = check_lag,.where = ON_TARGET},
	{.name = "wal_level on the target",.where = ON_TARGET,.sql = wal_level,.only_reverse = true},
	{
		.name = "replication slots on the target",.where = ON_TARGET,.other = "SELECT 0",
		.sql = free_slots,.only_reverse = true
	},
	{
		.name = "walsenders on the target",.where = ON_TARGET,.other = "SELECT 0",
		.sql = free_senders,.only_reverse = true
	},
	{
		.name = "replication origins on the source",.where = ON_SOURCE,.other = "SELECT 0",
		.sql = free_origins,.only_reverse = true
	},
	{
		.name = "replication workers on the source",.where = ON_SOURCE,.other = "SELECT 0",
		.sql = free_workers,.only_reverse = true
	},
	{
		.name = "background workers on the source",.where = ON_SOURCE,.other = "SELECT 0",
		.sql = free_processes,.only_reverse = true
	},
	{
		.name = "connection from the source to the target",.where = ON_SOURCE,
		.probe = check_connection,.only_reverse = true
	},
};

/*
 * Which shards make a check fail?  Those that fail alone; or all, if it is a
 * matter of the servers, or of all shards together.
 */
static void
mark_failing(const Move *move, const Check *check)
{
	int			failing = 0;

	for (int i = 0; i < move->nshards && move->nshards > 1; i++)
		if (run_check_silently(select_range(move, i, 1), check) == FOUND_FAILED)
		{
			move->shards[i]->failed = true;
			failing++;
		}
	for (int i = 0; i < move->nshards && failing == 0; i++)
		move->shards[i]->failed = true;
}

void
run_prechecks(const Move *move)
{
	for (size_t i = 0; i < lengthof(checks); i++)
		if ((!checks[i].only_reverse || move->options->reverse) &&
			run_check(move, &checks[i]) == FOUND_FAILED)
			mark_failing(move, &checks[i]);
	fflush(stdout);
}
