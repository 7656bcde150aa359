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
	char		message[256];	/* why it has failed, or waits */
} Task;

/* What is wrong before anything was touched ends the program. */
#define refuse_call(...) (report_error(__VA_ARGS__), exit(EXIT_USAGE))

/* task.c */

#define MAX_JOBS 100

extern Task *tasks;
extern int	ntasks;

/* Connection strings; the first server is the registry's own. */
extern char *servers[];
extern int	nservers;

extern PGconn *connect_server(int server, bool needed);
extern void read_registry(PGconn *registry);
extern void set_message(Task *task, const char *message);
extern int	count_tasks(State state);
extern void work_off(PGconn *registry);

/* script.c: what is to be run */

extern struct Script
{
	const char *text;
	char	  **statements;		/* if it cannot be in a transaction, else NULL */
	int			nstatements;
}			script;

extern void read_script(PGconn *registry);

/* ledger.c */

#define LEDGER "snowid_migrations"

/* Of a ledger's row in pg_class: its owner gains nothing if we run his code. */
#define TRUSTED "pg_has_role(relowner, current_user, 'MEMBER')"

extern char *open_ledger(PGconn *conn, const char *ledger, const char *then);
extern State migrate(PGconn *conn, Task *task);

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
extern int	command_diff(void);

extern int	command_create(PGconn *registry);	/* create.c */

#endif							/* EACH_H */
