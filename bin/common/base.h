/*
 * The lowest floor: messages, the clock, queries, and values of options.
 *
 * Knows libpq, but nothing of servers' roles, shards or moves.
 */
#ifndef BASE_H
#define BASE_H

#include "postgres_fe.h"

#include "common/logging.h"
#include "libpq-fe.h"
#include "pqexpbuffer.h"

/* PostgreSQL's own macro changed its place in version 18. */
#define NORETURN		__attribute__((noreturn))

/* Exit codes, as documented in doc/moving.md. */
#define EXIT_DONE		0
#define EXIT_FAILED		1		/* the shard is open where it was */
#define EXIT_USAGE		2		/* nothing was touched: options, connections */
#define EXIT_INCOMPLETE	3		/* decided, not complete: same command again */

/* message.c */

extern const char *progname;
extern bool verbose;			/* messages have times then */
extern void begin_messages(const char *name);

/* "snowid-move: error: ...", as PostgreSQL's programs have it. */
#define report_error(...)	report(PG_LOG_ERROR, PG_LOG_PRIMARY, __VA_ARGS__)
#define report_warning(...)	report(PG_LOG_WARNING, PG_LOG_PRIMARY, __VA_ARGS__)
#define report_detail(...)	report(PG_LOG_ERROR, PG_LOG_DETAIL, __VA_ARGS__)
#define report_hint(...)	report(PG_LOG_ERROR, PG_LOG_HINT, __VA_ARGS__)
#define report_info(...)	report(PG_LOG_INFO, PG_LOG_PRIMARY, __VA_ARGS__)
extern void report(enum pg_log_level level, enum pg_log_part part, const char *fmt,...) pg_attribute_printf(3, 4);

#define report_verbose(...) \
	do { \
		if (verbose) \
			report_info(__VA_ARGS__); \
	} while (0)

/* Say what keeps it from being done, and what to do; the value is the code. */
#define refuse(code, hint, ...) \
	(report_error(__VA_ARGS__), report_hint("%s", hint), code)
#define refuse_usage(...) \
	(report_error(__VA_ARGS__), try_help())

/*
 * What others have written, for a terminal, which would obey its control characters: with "?" in their place.  All
 * messages are; printable() is the first line of any other text.
 */
extern char *without_controls(char *text);
extern char *printable(const char *text);

/* How often it is told what is being waited for. */
#define TELL_MS			10000

/* How far we are, now and then; on a terminal, over the line before. */
extern void tell_now_and_then(const char *fmt,...) pg_attribute_printf(1, 2);

/* What a failure exits with: EXIT_FAILED until the move is decided. */
extern int	failure_exit_code;

/*
 * After an error was told: add the hint that all failures have in common, and
 * return the exit code.  fail() exits with it.  Only what cannot go on at all
 * calls fail(): a query that must not fail, no memory.  A stage returns its
 * status instead.
 */
extern int	failure(void);
extern void fail(void) NORETURN;

/*
 * Texts live as long as the program, which seldom makes many.  A loop that
 * waits gives back what it has made since a mark: texts, names and literals.
 */
extern char *text_of(const char *fmt,...) pg_attribute_printf(1, 2);
extern char *shell_word(const char *text);
extern char *format_of(const char *fmt,...) pg_attribute_printf(1, 2);	/* not kept: to be freed */
extern char *keep_text(char *text);
extern int	mark_texts(void);
extern void free_texts(int mark);
extern char *format_text(const char *fmt, va_list args) pg_attribute_printf(1, 0);

/* A text as JSON has it; and an object on a line: names and values by turns.  After "#" a value is JSON. */
extern char *json_text(const char *value);
extern void print_fields(const char *name,...);

#define print_object(...)	print_fields(__VA_ARGS__, (const char *) NULL)

/* Milliseconds of a clock that only goes forward. */
extern int64 now_ms(void);
extern void wait_ms(int ms);

/* file.c: with errno, if it fails */

extern bool replace_file(const char *path, const char *contents, bool to_write);
extern bool write_file(const char *path, const char *contents);

/* query.c */

/* The name of the server that a connection leads to, for messages. */
extern void set_label(PGconn *conn, const char *label);
extern const char *label_of(PGconn *conn);

/*
 * run() and the rest end the program if the query fails; try_query() returns
 * NULL and try_run() false, with the message in PQerrorMessage and the SQLSTATE
 * in last_sqlstate; last_message is the message alone, last_position the character
 * of the query that it means, or 0.
 *
 * The text of a query is made with printf's directives; names and literals go
 * through ident() and literal() first.
 */
extern PGresult *query(PGconn *conn, const char *fmt,...) pg_attribute_printf(2, 3);
extern PGresult *try_query(PGconn *conn, const char *fmt,...) pg_attribute_printf(2, 3);
extern void run(PGconn *conn, const char *fmt,...) pg_attribute_printf(2, 3);
extern bool try_run(PGconn *conn, const char *fmt,...) pg_attribute_printf(2, 3);

#define fail_with(conn) \
	(report_error("%s: %s", label_of(conn), PQerrorMessage(conn)), fail())

/* The first value; query_text() returns NULL for no row, or NULL. */
extern char *query_text(PGconn *conn, const char *fmt,...) pg_attribute_printf(2, 3);
extern int64 number_of(char *value);

#define query_int64(...)	number_of(query_text(__VA_ARGS__))
#define query_bool(...)		(query_int64(__VA_ARGS__) != 0)

extern char last_sqlstate[6];
extern char *last_message;

/* If it is set, it is called for each second of a query, and may ask another session. */
extern void (*while_waiting) (PGconn *conn);

extern int	last_position;
extern bool has_succeeded(PGresult *res);

extern char *ident(PGconn *conn, const char *name);
extern char *literal(PGconn *conn, const char *value);	/* NULL gives NULL */
extern char *field(PGresult *res, int row, int column); /* NULL gives NULL */

/* args.c: what is wrong ends the program */

#define PROGRAM_VERSION "1.0"
#define MAX_SHARD	8191

/* An option of the command line: for --help, and where its value goes. */
typedef struct Option
{
	const char *name;
	int			letter;			/* 0: it has none */
	const char *argument;		/* NULL: it is a flag */
	const char *help;			/* a second line begins after a newline */
	bool	   *flag;			/* one of these */
	const char **string;
	struct StringList *strings; /* may be given several times */
	int		   *number;			/* from min to max */
	int64	   *size;
	struct ShardSet *shards;
	int			min;
	int			max;
	int			commands;		/* that have it, as bits; 0: all */
} Option;

typedef struct StringList
{
	const char **items;
	int			n;
} StringList;

typedef struct ShardSet
{
	int		   *numbers;		/* rising, none twice */
	int			n;
} ShardSet;

/*
 * Read the options of a table, which ends with one that has no name, and --help
 * and --version.  Returns the first argument that is none, NULL if there is not any; those
 * after it are in more_arguments, which ends with NULL, and which most commands refuse.
 */
extern char *parse_command_line(int argc, char *argv[], const Option *table,
								const char *synopsis, const char *epilogue);
extern void refuse_options_but(const Option *table, int command, const char *name);
extern char **more_arguments;
extern void refuse_more_arguments(void);
extern void try_help(void) NORETURN;
extern time_t next_time(const char *option, const char *value); /* HH:MM */
extern char *ranges_of(const int *shards, int nshards);

#endif							/* BASE_H */
