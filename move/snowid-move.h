/*
 * What the files of snowid-move share: the options, the two servers, the
 * journal, and what each stage offers to main().
 *
 * Every function either does its work or ends the program: with its message
 * on stderr and one of the exit codes below.  It can, since all that is
 * decided stands in the journals of the two servers, from which the same
 * command goes on.  Open transactions are rolled back by their servers.
 */
#ifndef SNOWID_MOVE_H
#define SNOWID_MOVE_H

#include "postgres_fe.h"

#include "libpq-fe.h"
#include "pqexpbuffer.h"

/* PostgreSQL's own macro changed its place in version 18. */
#define NORETURN		__attribute__((noreturn))

/* Exit codes, as documented in doc/moving.md. */
#define EXIT_DONE		0
#define EXIT_FAILED		1		/* the shard is open where it was */
#define EXIT_USAGE		2		/* nothing was touched: options, connections */
#define EXIT_INCOMPLETE	3		/* decided, not complete: same command again */

typedef enum Verify
{
	VERIFY_NONE,
	VERIFY_COUNTS,
	VERIFY_CHECKSUMS
} Verify;

typedef enum StopAfter
{
	STOP_NEVER,
	STOP_COPIED					/* copy now, cut over later */
} StopAfter;

typedef struct MoveOptions
{
	int			shard;
	const char *from;			/* connection strings, as given */
	const char *to;
	const char *source_for_target;	/* how the servers reach each other; NULL: */
	const char *target_for_source;	/* as we do, without password */
	const char *registry;		/* server with the registry of all; or NULL */
	const char *bindir;			/* of pg_dump; NULL: our own, or the PATH */
	int			pause_limit_ms;
	int			lock_timeout_ms;
	int			retries;
	Verify		verify;
	int64		max_wal;		/* bytes that the slot may keep */
	int64		max_lag;		/* bytes behind at which to cut over */
	StopAfter	stop_after;
	bool		reverse;		/* replicate back afterwards */
	bool		keep_name;		/* don't rename the source's copy */
	bool		verbose;
} MoveOptions;

/* The row of snowid.moves on one server. */
typedef struct Journal
{
	bool		exists;
	char	   *move_id;		/* the same on both servers */
	char	   *peer;			/* the other server, as its Side's home */
	char	   *role;			/* "source" or "target" */
	char	   *step;
	bool		closed;
	char	   *schema;			/* its name there now */
	char	   *fingerprint;	/* of the source's definitions */
	bool		reverse;		/* replicate back afterwards */
	char	   *reverse_lsn;	/* ... from here on */
	bool		keep_name;
	char	   *name;			/* of publication, slot and subscription */
	char	   *reverse_name;
	char	   *registry;		/* as the option, without password */
} Journal;

/* One of the two servers. */
typedef struct Side
{
	const char *label;			/* "source" or "target", for messages */
	PGconn	   *conn;			/* holds the lock against other snowid-moves */
	PGconn	   *aux;			/* for what must not wait for conn */
	int			version;		/* as PQserverVersion */
	char	   *home;			/* host, port, dbname: what clients use */
	char	   *conninfo;		/* for the other server; never a password */
	Journal		journal;
} Side;

typedef struct Move
{
	const MoveOptions *options;
	Side		source;
	Side		target;
	char	   *schema;			/* the shard's */
	char	   *name;			/* of publication, slot and subscription */
	char	   *reverse_name;	/* the same for the way back */
} Move;

/* precheck.c */

/*
 * Run all prechecks and print each with its result.  Returns false if one
 * has failed.  Needs both connections, move->schema and the names; no journal
 * row is there yet.
 */
extern bool run_prechecks(const Move *move);

/* conn.c: queries and messages */

extern const char *progname;
extern bool verbose;

/* "snowid-move: error: ...", as PostgreSQL's programs have it. */
extern void report(const char *kind, const char *fmt,...) pg_attribute_printf(2, 3);

#define report_error(...)	report("error: ", __VA_ARGS__)
#define report_warning(...)	report("warning: ", __VA_ARGS__)
#define report_detail(...)	report("detail: ", __VA_ARGS__)
#define report_hint(...)	report("hint: ", __VA_ARGS__)
#define report_info(...)	report("", __VA_ARGS__)
#define report_verbose(...) \
	do { \
		if (verbose) \
			report("", __VA_ARGS__); \
	} while (0)

/* What a failed query exits with: EXIT_FAILED until the move is decided. */
extern int	failure_exit_code;

extern void fail(void) NORETURN;

extern PGconn *open_connection(const char *label, const char *conninfo, bool must);
extern void reconnect(PGconn *conn);
extern void open_side(Side *side, const char *label, const char *conninfo,
					  const char *for_other_server);
extern void open_aux(Side *side, const char *conninfo);
extern bool lock_shard(Side *side, int shard);

/*
 * run() and the rest end the program if the query fails; try_query() returns
 * NULL and try_run() false, with the message in PQerrorMessage and the SQLSTATE
 * in last_sqlstate.
 * The text of a query is made with printf's directives; names and literals go
 * through ident() and literal() first.
 */
extern PGresult *query(PGconn *conn, const char *fmt,...) pg_attribute_printf(2, 3);
extern PGresult *try_query(PGconn *conn, const char *fmt,...) pg_attribute_printf(2, 3);
extern void run(PGconn *conn, const char *fmt,...) pg_attribute_printf(2, 3);
extern bool try_run(PGconn *conn, const char *fmt,...) pg_attribute_printf(2, 3);
extern char *query_text(PGconn *conn, const char *fmt,...) pg_attribute_printf(2, 3);	/* NULL for no row, or
																						 * NULL */
extern bool query_bool(PGconn *conn, const char *fmt,...) pg_attribute_printf(2, 3);
extern int64 query_int64(PGconn *conn, const char *fmt,...) pg_attribute_printf(2, 3);
extern char last_sqlstate[6];

extern char *ident(PGconn *conn, const char *name);
extern char *literal(PGconn *conn, const char *value);	/* NULL gives NULL */
extern char *text_of(const char *fmt,...) pg_attribute_printf(1, 2);
extern char *conninfo_for_child(PGconn *conn);
extern char *without_password(const char *what, const char *conninfo);

/* Milliseconds of a clock that only goes forward. */
extern int64 now_ms(void);
extern void wait_ms(int ms);

/* journal.c */

extern void read_journal(const Move *move, Side *side);
extern bool has_reached(const Side *side, const char *step);
extern bool is_at(const Side *side, const char *step);
extern bool is_role(const Side *side, const char *role);
extern void record_step(const Move *move, Side *side, const char *step);
extern void record_detail(const Move *move, Side *side, const char *key, const char *value);
extern void claim_source(Move *move);
extern void claim_target(Move *move);

/* copy.c */

extern char *find_pg_dump(const MoveOptions *options);
extern char *fingerprint_sql(PGconn *conn, const char *schema);
extern void copy_schema(Move *move);
extern void publish(const Move *move, Side *side, const char *name);
extern void create_slot(const Side *side, const char *name);
extern void subscribe(Move *move);
extern void wait_for_copy(Move *move);
extern void wait_for_lag(Move *move, const Side *from, const char *name);
extern bool wait_for_replay(const Side *from, const Side *to, const char *name, int64 until);

/* verify.c */

extern void verify(Move *move);

/* cutover.c */

extern void begin_bounded(const Move *move, const Side *side);
extern void roll_back(const Move *move, Side *side);
extern int64 pause_end(const Move *move, int64 start);
extern void flush_log(const Side *side);
extern void back_off(int attempt);
extern void cut_over(Move *move, Side *from, Side *to, const char *name);
extern void open_decided(Move *move, Side *from, Side *to);

/* clean.c */

extern void drop_subscription(Side *side, const char *name);
extern void drop_slot(const Side *side, const char *name);
extern char *being_extended_sql(PGconn *conn, const char *schema);
extern void drop_publication(const Side *side, const char *name);
extern void clean_up_after(Move *move, Side *from, Side *to, const char *name);
extern void finish(Move *move);
extern void abort_move(Move *move);
extern void give_up(Move *move) NORETURN;

#endif							/* SNOWID_MOVE_H */
