/*
 * What the three files of the prechecks share: finding.c runs a check and
 * prints what it finds, probe.c has the checks that are more than a query, and
 * precheck.c the table of all of them.
 */
#ifndef PRECHECK_H
#define PRECHECK_H

#include "stages.h"

typedef enum Severity
{
	FOUND_OK,
	FOUND_WARNING,
	FOUND_FAILED
} Severity;

typedef enum Where
{
	ON_SOURCE,
	ON_TARGET
} Where;

typedef struct Check Check;

/*
 * name: what is checked, as printed
 * where: the server that sql is asked on
 * other: asked on the other server first, a single value
 * sql: findings.  Rows of severity ('FAILED', 'warning', 'ok'), what was found,
 *		and what to do about it.  $1 is the array of the shards' numbers, $2 that
 *		of their schemas, $3 what the other server said, $4 the name of
 *		publication, slot and subscription
 * probe: makes the findings in place of sql
 * only_reverse: only matters if the target is to replicate back
 */
struct Check
{
	const char *name;
	Where		where;
	const char *other;
	const char *sql;
	void		(*probe) (const Move *move, const Check *check);
	bool		only_reverse;
};

/* The names of table c and of its schema n, as one types them. */
#define NAME		"format('%I.%I', n.nspname, c.relname)"
#define TABLES		"pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"

/* Common table expressions: inside has all objects of the shards, by class and OID. */
#define OBJECTS_INSIDE \
"s AS (" \
"SELECT oid FROM pg_namespace WHERE nspname = ANY ($2)" \
"), inside AS (" \
"SELECT 'pg_class'::regclass AS classid, c.oid AS objid FROM pg_class c, s" \
" WHERE relnamespace = s.oid" \
" UNION ALL SELECT 'pg_attrdef'::regclass, a.oid FROM pg_attrdef a" \
" JOIN pg_class c ON c.oid = adrelid, s WHERE relnamespace = s.oid" \
" UNION ALL SELECT 'pg_rewrite'::regclass, r.oid FROM pg_rewrite r" \
" JOIN pg_class c ON c.oid = ev_class, s WHERE relnamespace = s.oid" \
" UNION ALL SELECT 'pg_trigger'::regclass, t.oid FROM pg_trigger t" \
" JOIN pg_class c ON c.oid = tgrelid, s WHERE relnamespace = s.oid" \
" AND NOT tgisinternal" \
" UNION ALL SELECT 'pg_policy'::regclass, p.oid FROM pg_policy p" \
" JOIN pg_class c ON c.oid = polrelid, s WHERE relnamespace = s.oid" \
" UNION ALL SELECT 'pg_constraint'::regclass, k.oid FROM pg_constraint k, s" \
" WHERE connamespace = s.oid AND contype <> 'f'" \
" UNION ALL SELECT 'pg_proc'::regclass, p.oid FROM pg_proc p, s" \
" WHERE pronamespace = s.oid" \
" UNION ALL SELECT 'pg_type'::regclass, t.oid FROM pg_type t, s" \
" WHERE typnamespace = s.oid" \
" UNION ALL SELECT 'pg_operator'::regclass, o.oid FROM pg_operator o, s" \
" WHERE oprnamespace = s.oid" \
" UNION ALL SELECT 'pg_opclass'::regclass, o.oid FROM pg_opclass o, s" \
" WHERE opcnamespace = s.oid" \
" UNION ALL SELECT 'pg_opfamily'::regclass, o.oid FROM pg_opfamily o, s" \
" WHERE opfnamespace = s.oid" \
" UNION ALL SELECT 'pg_collation'::regclass, o.oid FROM pg_collation o, s" \
" WHERE collnamespace = s.oid" \
" UNION ALL SELECT 'pg_ts_config'::regclass, o.oid FROM pg_ts_config o, s" \
" WHERE cfgnamespace = s.oid" \
" UNION ALL SELECT 'pg_conversion'::regclass, o.oid FROM pg_conversion o, s" \
" WHERE connamespace = s.oid" \
" UNION ALL SELECT 'pg_ts_dict'::regclass, o.oid FROM pg_ts_dict o, s" \
" WHERE dictnamespace = s.oid" \
" UNION ALL SELECT 'pg_statistic_ext'::regclass, o.oid FROM pg_statistic_ext o, s" \
" WHERE stxnamespace = s.oid" \
" UNION ALL SELECT 'pg_ts_parser'::regclass, o.oid FROM pg_ts_parser o, s" \
" WHERE prsnamespace = s.oid" \
" UNION ALL SELECT 'pg_ts_template'::regclass, o.oid FROM pg_ts_template o, s" \
" WHERE tmplnamespace = s.oid)"

/* finding.c */

/* Run a check and print its findings, at least one line; returns the worst. */
extern Severity run_check(const Move *move, const Check *check);
extern Severity run_check_silently(const Move *move, const Check *check);

/* Findings of the check that is running. */
extern void found(const Check *check, Severity severity, const char *what, const char *to_do);
extern void found_fmt(const Check *check, Severity severity, const char *to_do,
					  const char *fmt,...) pg_attribute_printf(4, 5);
extern void found_error(const Check *check, PGconn *conn, const char *to_do);
extern void print_findings(const Check *check, PGconn *conn, PGresult *result);

/* Ask with the parameters of Check's sql; the result may be an error. */
extern PGresult *ask(const Move *move, PGconn *conn, const char *sql, const char *other);

/* The same without other; NULL after telling an error. */
extern PGresult *ask_or_tell(const Move *move, const Check *check, PGconn *conn, const char *sql);

/* probe.c */

extern void check_versions(const Move *move, const Check *check);
extern void check_pg_dump(const Move *move, const Check *check);
extern void check_clocks(const Move *move, const Check *check);
extern void check_room(const Move *move, const Check *check);
extern void check_needs(const Move *move, const Check *check);
extern void check_connection(const Move *move, const Check *check);
extern void check_reader(const Move *move, const Check *check);
extern void check_registry(const Move *move, const Check *check);
extern void check_home(const Move *move, const Check *check);
extern void check_lag(const Move *move, const Check *check);
extern void check_owners(const Move *move, const Check *check);
extern void check_earlier_move(const Move *move, const Check *check);
extern void check_closing_time(const Move *move, const Check *check);

#endif							/* PRECHECK_H */
