/*
 * Connections: how a server is reached, by us and by the other server, and how
 * a session is set up.
 */
#ifndef CONNECTION_H
#define CONNECTION_H

#include "base.h"

/* One of the two servers. */
typedef struct Side
{
	const char *label;			/* "source" or "target", for messages */
	int			place;			/* of its row in a shard's journals */
	PGconn	   *conn;			/* holds the lock against other snowid-moves */
	PGconn	   *aux;			/* for what must not wait for conn */
	int			version;		/* as PQserverVersion */
	char	   *home;			/* hosts, ports, dbname: what clients use */
	char	   *system;			/* its identifier: the same on all hosts */
	char	   *timeline;		/* ... but not this, after a fail-over */
	char	   *conninfo;		/* for the other server; never a password */
	char	   *password;		/* ... which a subscription may need; or NULL */
} Side;

/*
 * What a server of this version does.  No other file compares a server's version
 * with a number.
 */
#define OLDEST_SERVER				15

static inline bool
applies_as_owner(const Side *side)
{
	return side->version >= 160000;
}

static inline bool
has_failover_slots(const Side *side)
{
	return side->version >= 170000;
}

static inline bool
has_transaction_timeout(const Side *side)
{
	return side->version >= 170000;
}

/* conninfo.c */

extern char *without_password(const char *what, const char *conninfo);
extern char *conninfo_of_connection(PGconn *conn);
extern char *conninfo_for_programs(PGconn *conn);
extern char *literal_for_subscription(PGconn *conn, const Side *publisher);
extern char *option_of(const char *conninfo, const char *keyword);
#define password_of(conninfo)	option_of(conninfo, "password")
extern bool leads_only_to(PGconn *conn, const char *conninfo, const char *known);
extern char *home_of_connection(PGconn *conn);

/* servers_by_name.c */

extern PGconn *open_directory(const char *conninfo);
extern bool can_gather(PGconn *directory);
extern char *identity_of(PGconn *conn);
extern bool is_server_name(const char *name);
extern char *home_of_server(PGconn *directory, const char *name);

/* connection.c */

/*
 * Each connection of the program is made by open_connection().  It returns one
 * that may have failed, as PQstatus() tells.
 */
extern bool knows_version(PGconn *conn);
extern bool waits_for_start;	/* a server that is starting is waited for */
extern PGconn *connect_to(const char *label, const char *conninfo, const char *replication);

#define open_connection(label, conninfo)	connect_to(label, conninfo, NULL)
#define open_replication(label, conninfo)	connect_to(label, conninfo, "database")
extern char *options_for_programs(PGconn *conn);
extern bool runs_others;		/* what a session runs is not ours: how it is
								 * planned is left to others, too */
extern bool set_up_session(PGconn *conn);
extern bool reconnect(PGconn *conn);
extern char *why_unreachable(PGconn *conn, const char *name, const char *conninfo, int limit_ms);
extern void take_user_of(PGconn *conn);
extern char *tables_not_come(PGconn *conn, const char *subscription, int limit_ms);
extern bool open_side(Side *side, const char *conninfo, const char *for_other_server, bool needed);
extern void close_side(Side *side);
extern char *timeline_of(PGconn *conn);
extern bool is_home_of(const char *home, const char *system, const Side *side);

/* dump.c */

extern char *read_all(int fd);
extern char *find_program(const char *bindir, const char *name);
extern bool programs_are_apart; /* Ctrl-C does not reach them */
extern char *said_by(const char **argv, int64 limit_ms, int *status);
extern pid_t start_program(const char *bindir, const char **argv, PGconn *conn, int output, int errors);
extern char *dump_definitions(PGconn *conn, const char *bindir, char *const *schemas, int nschemas);
extern bool dump_archive(PGconn *conn, const char *bindir, char *const *schemas, int nschemas,
						 const char *snapshot, int archive);
extern bool dump_directory(PGconn *conn, const char *bindir, const char *schema, const char *path);
extern char *script_of(PGconn *conn, const char *bindir, int archive, const char *option, const char *other);
extern pid_t start_after_rows(PGconn *conn, const char *bindir, int archive, int jobs, int list, int errors);
extern void strip_script(char *script, const Side *target);

#endif							/* CONNECTION_H */
