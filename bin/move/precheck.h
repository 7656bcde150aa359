/*
 * What the files of the prechecks share: sql/plan.sql and sql/split.sql are the
 * table of all checks, finding.c runs a check and prints what it finds, probe.c
 * has what is more than a query.
 */
#ifndef PRECHECK_H
#define PRECHECK_H

#include "stages.h"

typedef enum Severity
{
	FOUND_OK,
	FOUND_WARNING,
	FOUND_FAILED,
	SHOW_NOTHING				/* is none */
} Severity;

typedef enum Where
{
	ON_SOURCE,
	ON_TARGET
} Where;

typedef struct Check Check;

/*
 * A check of plan.sql or split.sql.
 *
 * where: the server that sql is asked on
 * other: asked on other_where first, a single value
 * sql: findings, as plan.sql says
 * probe: makes the findings in place of sql, or with it
 * only_reverse: only matters if the target is to replicate back
 * of_tables: what is made in a shard during its move must pass it, too
 */
struct Check
{
	const char *name;
	Where		where;
	Where		other_where;
	const char *other;
	const char *sql;
	void		(*probe) (const Move *move, const Check *check);
	bool		only_reverse;
	bool		of_tables;
};

/* finding.c */

/* Run a check and print its findings, but lesser ones; returns the worst. */
extern Severity run_check(const Move *move, const Check *check, Severity show);

/* The file for the commands that findings come with; NULL for none. */
extern bool open_script(const char *path);
extern void close_script(const char *path);

/* Findings of the check that is running. */
extern void found(const Check *check, Severity severity, const char *what, const char *to_do);
extern void found_fmt(const Check *check, Severity severity, const char *to_do,
					  const char *fmt,...) pg_attribute_printf(4, 5);
extern void found_of(const Check *check, Shard *shard, Severity severity, const char *to_do,
					 const char *fmt,...) pg_attribute_printf(5, 6);
extern void found_error(const Check *check, PGconn *conn, const char *to_do);

/* Ask with the parameters that plan.sql names; the result may be an error. */
extern PGresult *ask(const Move *move, PGconn *conn, const char *sql, const char *other);

/* Print what a check's sql finds, with what its other says, or on conn. */
extern void print_findings(const Move *move, const Check *check, PGconn *conn);

/* probe.c */

extern void check_versions(const Move *move, const Check *check);
extern void check_pg_dump(const Move *move, const Check *check);
extern void check_room(const Move *move, const Check *check);
extern void check_needs(const Move *move, const Check *check);
extern void check_shared_rows(const Move *move, const Check *check);
extern void check_functions(const Move *move, const Check *check);
extern void check_connection(const Move *move, const Check *check);
extern void check_registry(const Move *move, const Check *check);
extern void check_jobs(const Move *move, const Check *check);
extern void check_earlier_move(const Move *move, const Check *check);

/* pooler.c */

extern void check_poolers(const Move *move, const Check *check);

#endif							/* PRECHECK_H */
