/*
 * snowid-each: runs a script once in every shard, wherever it lives.
 *
 * Each shard is a task.  The tasks are in memory that this process shares with
 * its workers, --jobs for each server, which take tasks by themselves.  A worker
 * has one connection, and can be killed: the truth is the ledger in each shard.
 */
#ifndef EACH_H
#define EACH_H

#include "connection.h"

extern struct Options
{
	const char *name;			/* of the migration */
	const char *file;			/* its script; NULL: as a ledger has it */
	const char *registry;
	const char *bindir;
	ShardSet	shards;			/* n is 0: all */
	int			like;
	int			jobs;
	int			canary;			/* 0: all shards */
	int			lock_timeout_ms;
	int			statement_timeout_ms;
	int			wait_s;
	int64		max_lag;		/* -1: don't look */
	bool		stop_on_error;
	bool		dry_run;
	bool		each_server;	/* tasks are servers: their shard is a
								 * server's number */
	bool		trust_owners;
	bool		keep_texts;
	bool		snapshot;		/* query: each server in one */
	bool		partial;
	bool		json;
	const char *then;
	const char *format;
}			options;

typedef enum State
{
	RUNNING = -1,
	TODO,
	DONE,
	HAD,						/* done before */
	FAILED
} State;

typedef struct Task
{
	int			shard;
	int			server;
	int			state;			/* RUNNING: the pid of its worker, negated */
	int			attempts;
	int64		since;			/* the first attempt that did not work */
	int64		due;			/* of the next one */
	char		message[512];	/* why it has failed, or waits */
} Task;

/* What is wrong before anything was touched ends the program. */
#define refuse_call(...) (report_error(__VA_ARGS__), exit(EXIT_USAGE))

/* task.c */

#define MAX_JOBS 100

extern Task *tasks;
extern int	ntasks;

/* The first server is the registry's own; no two are the same. */
extern int	nservers;

/* A worker's own, with its connection. */
typedef State (*Action) (PGconn *conn, Task *task);

extern void add_registry(const char *conninfo);
extern PGconn *connect_server(int server);
extern PGconn *reach_server(int server);
extern bool is_down(const Task *task);
extern void read_registry(PGconn *registry);
extern void take_servers(PGconn *registry);
extern const char *names_of_tasks(const int *numbers, int n);
extern PGresult *shards_here(PGconn *conn, const char *columns, const char *join);
extern void set_message(Task *task, const char *fmt,...) pg_attribute_printf(2, 3);
extern int	count_tasks(State state);
extern void work_off(PGconn *registry, Action action);
extern bool goes_on(void);

/* script.c: what is to be run */

typedef struct Script
{
	char	   *text;
	bool		whole;			/* in one transaction */
	bool		runs;			/* it is the command line of a program */
	char	  **statements;
	int		   *lines;			/* where they begin */
	int			nstatements;
} Script;

extern Script script;

extern Script split_script(char *text);
extern void read_script(PGconn *registry);
extern int	line_of_error(int statement, int position);
extern bool is_first_word(const char *statement, const char *words);
extern char *without_semicolon(const char *statement);
extern bool blocks_nobody(const char *statement);
extern int	build_of(const char *statement);

/* exec.c */

#define EXEC "-- exec"			/* so begins what a ledger has of a command */

extern State run_program(PGconn *conn, Task *task, const char *schema, const char *path);
extern void take_command(char **argv);

#define KNOWN_SHARDS	"There, SELECT * FROM snowid.shards; shows those that it knows."

/* ledger.c */

#define LEDGER "snowid_migrations"

/*
 * Of a ledger's row in pg_class: its owner, and its schema's, who can put another in its place,
 * gain nothing if we run their code.
 */
#define TRUSTED \
	"(SELECT bool_and(pg_has_role(coalesce(CASE f WHEN 'pg_database_owner'::regrole THEN datdba END, f), session_user, 'MEMBER')) " \
	"FROM pg_database, pg_namespace s, unnest(ARRAY[relowner, nspowner]) f WHERE datname = current_database() AND s.oid = relnamespace)"

/* Of a role f, whose it is and its name. */
#define WHO \
	"coalesce(CASE f WHEN 'pg_database_owner'::regrole THEN datdba END, f) owner, " \
	"CAST(CASE owner WHEN 0 THEN 'PUBLIC' ELSE owner::regrole::text END AS text) who"

/*
 * Who owns something in the schema n, or what its triggers, constraints, defaults,
 * indexes, exclusions, policies, domains, views, children and cascades call, or has the right to put
 * a trigger, a function or a cascade there meanwhile, also on what we shall make; and
 * would gain if we ran his code; NULL if nobody.  What a function calls is its owner's
 * affair; snowid's own, we call ourselves.  pg_shdepend does not have what a predefined
 * role owns.
 */
#define UNTRUSTED_BUT(trusted) \
	"(WITH RECURSIVE o (classid, objid) AS (SELECT 'pg_namespace'::regclass::oid, n.oid " \
	"UNION SELECT x.* FROM o, LATERAL (SELECT classid, objid FROM pg_depend d " \
	"WHERE (refclassid, refobjid) = (o.classid, o.objid) AND (refclassid = 'pg_namespace'::regclass OR " \
	"refclassid IN ('pg_class'::regclass, 'pg_type'::regclass) AND deptype IN ('a', 'i') OR " \
	"(refclassid, classid) = ('pg_class'::regclass, 'pg_class'::regclass) OR " \
	"(refclassid, classid) = ('pg_constraint'::regclass, 'pg_class'::regclass)) " \
	"UNION ALL SELECT 'pg_proc'::regclass, castfunc FROM pg_cast WHERE o.classid = 'pg_type'::regclass AND o.objid IN (castsource, casttarget) AND castfunc <> 0 " \
	"UNION ALL SELECT tableoid, oid FROM pg_opclass WHERE o.classid = 'pg_type'::regclass AND opcdefault AND opcintype = o.objid " \
	"UNION ALL SELECT f.* FROM pg_opclass p, LATERAL (SELECT 'pg_proc'::regclass, amproc FROM pg_amproc WHERE amprocfamily = opcfamily " \
	"UNION ALL SELECT 'pg_operator'::regclass, amopopr FROM pg_amop WHERE amopfamily = opcfamily) f WHERE (p.tableoid, p.oid) = (o.classid, o.objid) " \
	"UNION ALL SELECT 'pg_class'::regclass, inhparent FROM pg_inherits WHERE o.classid = 'pg_class'::regclass AND inhrelid = o.objid " \
	"UNION ALL SELECT 'pg_class'::regclass, conrelid FROM pg_depend d JOIN pg_constraint k ON (classid, objid) = (k.tableoid, k.oid) " \
	"WHERE (refclassid, refobjid) = (o.classid, o.objid) AND confrelid = refobjid " \
	"UNION ALL SELECT refclassid, refobjid FROM pg_depend d WHERE (classid, objid) = (o.classid, o.objid) AND (classid <> 'pg_proc'::regclass OR refclassid = 'pg_type'::regclass OR EXISTS (SELECT FROM pg_aggregate WHERE aggfnoid = objid)) " \
	"AND (refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass, 'pg_opclass'::regclass) OR " \
	"classid IN ('pg_rewrite'::regclass, 'pg_constraint'::regclass) AND refclassid = 'pg_class'::regclass)) x) " \
	"SELECT concat(who, ', by ' || by || ' FROM ' || coalesce(givers || ' CASCADE', who) || ';)', CASE WHEN by IS NULL THEN " \
	"(SELECT concat(', who owns ', givers, type, ' ', identity) FROM pg_identify_object(o.classid, o.objid, 0) WHERE schema <> n.oid::regnamespace::text) END) FROM o JOIN pg_database d ON datname = current_database() " \
	"LEFT JOIN pg_shdepend s ON (s.classid, s.objid, s.deptype, s.dbid) = (o.classid, o.objid, 'o', d.oid), " \
	"LATERAL (SELECT coalesce(s.refobjid, (SELECT nspowner FROM pg_namespace WHERE (tableoid, oid) = (o.classid, o.objid)), " \
	"(SELECT relowner FROM pg_class WHERE (tableoid, oid) = (o.classid, o.objid)), " \
	"(SELECT proowner FROM pg_proc WHERE (tableoid, oid) = (o.classid, o.objid)), " \
	"(SELECT oprowner FROM pg_operator WHERE (tableoid, oid) = (o.classid, o.objid)), " \
	"(SELECT typowner FROM pg_type WHERE (tableoid, oid) = (o.classid, o.objid))), NULL, NULL " \
	"UNION ALL SELECT coalesce(extowner, nspowner), NULL, 'the schema or extension of ' FROM (SELECT tableoid, oid, pronamespace FROM pg_proc UNION ALL SELECT tableoid, oid, oprnamespace FROM pg_operator " \
	"UNION ALL SELECT tableoid, oid, typnamespace FROM pg_type) y (class, object, place) JOIN pg_namespace s ON s.oid = place LEFT JOIN pg_depend e ON (e.classid, e.objid, e.deptype) = (class, object, 'e') " \
	"LEFT JOIN pg_extension x ON x.oid = e.refobjid WHERE (class, object) = (o.classid, o.objid) " \
	"UNION ALL SELECT grantee, concat('GRANT (type: ', CASE WHEN grantor <> owner THEN " \
	"(SELECT concat('ALTER ROLE ', grantor::regrole, ' NOSUPERUSER; ') FROM pg_roles r WHERE r.oid = grantor AND rolsuper) END, " \
	"'REVOKE ', CASE WHEN grantor <> owner THEN 'GRANT OPTION FOR ' END, privilege_type, ' ON ', CASE WHEN privilege_type <> 'CREATE' THEN 'ALL TABLES IN ' END, 'SCHEMA ', s.oid::regnamespace), " \
	"CASE WHEN grantor <> owner THEN (SELECT string_agg(g.grantee::regrole::text, ', ') FROM aclexplode(acl) g WHERE g.privilege_type = a.privilege_type AND g.is_grantable AND g.grantor = owner AND g.grantee <> owner) END " \
	"FROM (SELECT nspacl, oid, nspowner FROM pg_namespace WHERE (tableoid, oid) = (o.classid, o.objid) " \
	"UNION ALL SELECT relacl, relnamespace, relowner FROM pg_class WHERE (tableoid, oid) = (o.classid, o.objid) " \
	"UNION ALL SELECT attacl, relnamespace, relowner FROM pg_attribute JOIN pg_class c ON c.oid = attrelid WHERE (c.tableoid, c.oid) = (o.classid, o.objid)) s (acl, oid, owner), aclexplode(acl) a " \
	"WHERE privilege_type IN ('CREATE', 'TRIGGER', 'REFERENCES') " \
	"UNION ALL SELECT grantee, concat('default (type: ALTER DEFAULT PRIVILEGES FOR ROLE ', defaclrole::regrole, ' IN SCHEMA ' || nullif(defaclnamespace, 0)::regnamespace, " \
	"' REVOKE ', privilege_type, CASE privilege_type WHEN 'CREATE' THEN ' ON SCHEMAS' ELSE ' ON TABLES' END), NULL FROM pg_default_acl, aclexplode(defaclacl) " \
	"WHERE o.classid = 'pg_namespace'::regclass AND defaclnamespace IN (0, o.objid) AND pg_get_userbyid(defaclrole) IN (session_user, current_user) " \
	"AND privilege_type IN ('CREATE', 'TRIGGER', 'REFERENCES')) f (f, by, givers), " \
	WHO " WHERE (o.classid, o.objid) NOT IN (SELECT tableoid, oid FROM pg_proc " \
	"WHERE pronamespace IN ('snowid'::regnamespace, 'snowid_internal'::regnamespace)) AND NOT pg_has_role(owner, session_user, 'MEMBER')" trusted " LIMIT 1)"
#define UNTRUSTED	UNTRUSTED_BUT("")

/* Of an array of schemas' names. */
#define PATH "(SELECT coalesce(string_agg(quote_ident(s), ', ' ORDER BY i), '') FROM unnest(%s) WITH ORDINALITY u (s, i))"

extern char *schemas_of_path(PGconn *conn);
extern const char *untrusted(const char *what, const char *schemas);
extern bool lock_shard(PGconn *conn, int shard);
extern char *holder_of_shard(PGconn *conn, int shard);
extern State migrate(PGconn *conn, Task *task);
extern State forget(PGconn *conn, Task *task);

/* report.c: what is true of which shards, and the commands that only tell it */

typedef struct Note
{
	char	   *subject;
	char	   *what;
	int			shard;
} Note;

extern Note *notes;
extern int	nnotes;

extern void note(const char *subject, const char *what, int shard);
extern bool tell_notes(int all);
extern void read_ledgers(const char *columns, const char *condition);
extern int	command_status(void);

/* names.c: SQL, token by token, and what pg_dump's names */

typedef enum TokenKind
{
	SPACE, COMMENT, WORD, NUMBER, STRING, OTHER
} TokenKind;

typedef struct ShardName
{
	const char *schema;			/* as pg_dump writes it */
	const char *forms[3];		/* as it may stand in a text; the first is as
								 * it is */
	bool		folds;			/* in whatever case it is written */
	int			shard;
} ShardName;

extern const char *end_of_token(const char *p, TokenKind *kind);
extern bool is_word(const char *p, const char *end, const char *word);
extern ShardName name_of(PGconn *conn, const char *schema, int shard);
extern int	append_for(PQExpBuffer out, const char *p, const char *end, const ShardName *name, const ShardName *other);

/* diff.c */

typedef struct Entry			/* of pg_dump's script */
{
	const char *name;
	const char *type;
	const char *schema;
	const char *text;
	const char *end;
} Entry;

extern char *dump_shards(PGconn *conn, char *const *schemas, int n);
extern bool next_entry(const char **p, Entry *entry);
extern int	command_diff(void);

extern int	command_create(PGconn *registry);	/* create.c */
extern int	command_query(PGconn *registry, char *text);	/* ask.c */

#endif							/* EACH_H */
