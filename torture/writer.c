/*
 * Sessions that take ids as fast as they get them, through every fault.
 *
 *		writer DIRECTORY SESSIONS SEED MODE SELDOM
 *
 * Each session is a process.  It connects to what DIRECTORY/target says
 * (a libpq connection string, read again for each connection), calls
 * torture.ids(n, k) and torture.nextvals(n, k) in transactions of many shapes,
 * and appends each id that it receives to DIRECTORY/ids.SESSION before doing
 * anything with it (see idlog.h).  It ends when DIRECTORY/stop exists, and
 * leaves its counts in DIRECTORY/counts.SESSION.
 *
 * An id counts as acknowledged when the command that committed it was reported
 * complete, without a warning: a canceled wait for a synchronous standby is
 * reported so.
 *
 * MODE "hot" makes all sessions ask sequence 0.  MODE "select" does, too, in
 * transactions that write nothing of their own, so that only what next_id()
 * does for durability protects those ids.  MODE "all" mixes everything, but for
 * every fourth session, which is as in "select".
 *
 * Beside the busy sequences there are SELDOM more.  Now and then a session takes
 * one id from one of them, in each mode but "hot", unless DIRECTORY/busy_only
 * exists.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <libpq-fe.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "idlog.h"
#include "session.h"

#define SEQUENCES		5
#define NEXTVAL_SEQUENCE 1		/* the one that nextval() is mixed in on */
#define BULK_MAX		4000
#define IDS_MAX			(BULK_MAX * 16)

typedef enum Mode
{
	MODE_ALL,
	MODE_SELECT,
	MODE_HOT
} Mode;

static const char *directory;
static int	session;
static Mode mode;
static uint32_t n_seldom;
static int64_t seldom_ns;		/* when the session next uses one of these */
static int	log_fd;
static PGconn *conn;
static bool warned;				/* by the server, since the last begin() */

/* What the session has received and not yet logged. */
static int64_t ids[IDS_MAX];
static uint32_t n_ids;
static int64_t call_ns;

typedef struct Counts
{
	long		connections;
	long		commits;
	long		errors;
	long		timeouts;
	long		duplicate_keys;
} Counts;

static Counts counts;

static bool
file_exists(const char *name)
{
	char		path[1024];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	return access(path, F_OK) == 0;
}

static void
append(const void *data, size_t length)
{
	while (length > 0)
	{
		ssize_t		written = write(log_fd, data, length);

		if (written < 0)
		{
			perror("cannot append to the id log");
			exit(1);
		}
		data = (const char *) data + written;
		length -= written;
	}
}

static void
log_header(IdLogKind kind, uint32_t n, int64_t ns)
{
	IdLogHeader header = {kind, n, ns};

	append(&header, sizeof(header));
}

static void
log_received(void)
{
	if (n_ids == 0)
		return;
	log_header(IDS_RECEIVED, n_ids, call_ns);
	append(ids, n_ids * sizeof(ids[0]));
	n_ids = 0;
}

/* The transaction of the ids logged so far has ended, and how. */
static void
log_outcome(bool committed)
{
	int64_t		now = monotonic_ns();

	committed = committed && !warned;
	log_header(committed ? IDS_ACKNOWLEDGED : IDS_ABANDONED, 0, now);
	if (committed)
		counts.commits++;
	warned = false;
}

static void
receive(int64_t id)
{
	if (n_ids == IDS_MAX)
	{
		fprintf(stderr, "more ids than asked for\n");
		exit(1);
	}
	ids[n_ids++] = id;
}

static int64_t
int64_at(const char *bytes)
{
	uint64_t	big_endian;

	memcpy(&big_endian, bytes, sizeof(big_endian));
	return (int64_t) be64toh(big_endian);
}

static void
note_warning(void *arg, const PGresult *res)
{
	const char *severity = PQresultErrorField(res, PG_DIAG_SEVERITY_NONLOCALIZED);

	(void) arg;
	if (severity != NULL && strcmp(severity, "WARNING") == 0)
		warned = true;
}

static bool
finish(PGresult *res, ExecStatusType expected)
{
	bool		ok = PQresultStatus(res) == expected;

	if (!ok)
	{
		const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);

		counts.errors++;
		if (state != NULL && strcmp(state, "57014") == 0)
			counts.timeouts++;
		if (state != NULL && strcmp(state, "23505") == 0)
		{
			counts.duplicate_keys++;
			fprintf(stderr, "session %d: %s", session, PQresultErrorMessage(res));
		}
	}
	PQclear(res);
	return ok;
}

static bool
command(const char *sql)
{
	return finish(PQexec(conn, sql), PGRES_COMMAND_OK);
}

/* Run a prepared statement of (sequence, how many), and log the ids. */
static bool
call(const char *statement, uint32_t seq, uint32_t how_many)
{
	uint32_t	values[2] = {htonl(seq), htonl(how_many)};
	const char *params[2] = {(char *) &values[0], (char *) &values[1]};
	int			lengths[2] = {4, 4};
	int			formats[2] = {1, 1};
	PGresult   *res;

	call_ns = monotonic_ns();
	res = PQexecPrepared(conn, statement, 2, params, lengths, formats, 1);
	for (int row = 0; row < PQntuples(res); row++)
		receive(int64_at(PQgetvalue(res, row, 0)));
	log_received();
	return finish(res, PGRES_TUPLES_OK);
}

/*
 * Take many ids with COPY, which hands them over while the statement runs: of
 * one that dies in the middle, we have the ids that came.
 */
static bool
bulk(uint32_t seq, uint32_t how_many)
{
	char		sql[200];
	char	   *row;
	int			length;
	bool		first = true;
	bool		ok;
	PGresult   *res;

	snprintf(sql, sizeof(sql),
			 "COPY (SELECT torture.ids(%u, %u)) TO STDOUT (FORMAT binary)",
			 seq, how_many);
	call_ns = monotonic_ns();
	res = PQexec(conn, sql);
	if (!finish(res, PGRES_COPY_OUT))
		return false;
	while ((length = PQgetCopyData(conn, &row, 0)) > 0)
	{
		const char *at = row;

		/* The file header comes along with the first row. */
		if (first)
			at += 19;
		first = false;
		if (row + length - at >= 14)
			receive(int64_at(at + 6));
		PQfreemem(row);
	}
	log_received();
	ok = finish(PQgetResult(conn), PGRES_COMMAND_OK);
	while ((res = PQgetResult(conn)) != NULL)
		PQclear(res);
	return ok;
}

/* Half of the time any of them, else rather the first ones. */
static uint32_t
seldom(void)
{
	return SEQUENCES + random_below(random_below(2) ? n_seldom : 1 + random_below(n_seldom));
}

/*
 * Take an id from a sequence that is used seldom, or one each from some of them
 * in one transaction.  All sessions together do it up to 100 times a second, so
 * each sequence is used less than once a second, most far less.
 */
static void
use_seldom(void)
{
	uint32_t	what = random_below(100);

	seldom_ns = monotonic_ns() + (100 + random_below(100)) * INT64_C(1000000);
	if (mode == MODE_SELECT || what < 60)
		log_outcome(call("select", seldom(), 1));
	else if (what < 85)
		log_outcome(call("insert", seldom(), 1));
	else
	{
		bool		ok = command("BEGIN");

		for (uint32_t i = 0; ok && i <= what % 4; i++)
			ok = call("select", seldom(), 1);
		ok = command(ok && what < 97 ? "COMMIT" : "ROLLBACK") && ok && what < 97;
		log_outcome(ok);
	}
}

/* A transaction block with rows, savepoints, and each way to end. */
static void
transaction(uint32_t seq)
{
	static int	prepared = 0;
	bool		ok = command("BEGIN");

	if (ok && random_below(3) == 0)
		ok = command("SAVEPOINT s") &&
			call("insert", seq, 1 + random_below(20)) &&
			command(random_below(2) ? "ROLLBACK TO s" : "RELEASE s");
	if (ok)
		ok = call("insert", seq, 1 + random_below(20));
	if (ok && random_below(3) == 0)
		ok = call("select", seq, 1 + random_below(20));

	if (ok && random_below(5) == 0)
	{
		char		sql[100];

		snprintf(sql, sizeof(sql), "PREPARE TRANSACTION 'w%d.%d'", session, ++prepared);
		log_outcome(command(sql));
		snprintf(sql, sizeof(sql), "%s PREPARED 'w%d.%d'",
				 random_below(2) ? "COMMIT" : "ROLLBACK", session, prepared);
		(void) command(sql);
	}
	else if (ok && random_below(5) > 0)
		log_outcome(command("COMMIT"));
	else
	{
		(void) command("ROLLBACK");
		log_outcome(false);
	}
}

static bool
prepare(void)
{
	return
		finish(PQprepare(conn, "select",
						 "SELECT torture.ids($1, $2)", 0, NULL), PGRES_COMMAND_OK) &&
		finish(PQprepare(conn, "insert",
						 "INSERT INTO torture.rows SELECT torture.ids($1, $2) RETURNING id",
						 0, NULL), PGRES_COMMAND_OK) &&
		finish(PQprepare(conn, "nextval",
						 "INSERT INTO torture.rows SELECT torture.nextvals($1, $2) RETURNING id",
						 0, NULL), PGRES_COMMAND_OK);
}

/* Connect to the present target, however long that takes; false: stop. */
static bool
reconnect(void)
{
	for (;; usleep(5000))
	{
		char		path[1024];
		char		conninfo[1024];
		FILE	   *file;
		bool		read;
		PGresult   *res;

		PQfinish(conn);
		conn = NULL;
		if (file_exists("stop"))
			return false;
		snprintf(path, sizeof(path), "%s/target", directory);
		file = fopen(path, "r");
		if (file == NULL)
			continue;
		read = fgets(conninfo, sizeof(conninfo), file) != NULL;
		fclose(file);
		if (!read)
			continue;

		conn = PQconnectdb(conninfo);
		if (PQstatus(conn) != CONNECTION_OK)
			continue;
		PQsetNoticeReceiver(conn, note_warning, NULL);

		/* What we prepared before a crash would keep its locks for ever. */
		snprintf(path, sizeof(path),
				 "SELECT format('ROLLBACK PREPARED %%L', gid)"
				 "  FROM pg_prepared_xacts"
				 " WHERE database = current_database() AND gid LIKE 'w%d.%%'",
				 session);
		res = PQexec(conn, path);
		for (int row = 0; row < PQntuples(res); row++)
			(void) command(PQgetvalue(res, row, 0));
		if (finish(res, PGRES_TUPLES_OK) && prepare())
		{
			/*
			 * nextval() trusts a page that is a copy, and looks at no clock:
			 * it must not be the first on a new server.
			 */
			bool		ok = call("select", NEXTVAL_SEQUENCE, 1);

			warned = false;
			log_outcome(ok);
			counts.connections++;
			if (ok)
				return true;
		}
	}
}

static void
work(void)
{
	uint32_t	seq = mode != MODE_ALL || random_below(3) == 0 ? 0 : random_below(SEQUENCES);
	uint32_t	what = random_below(100);

	if (n_seldom > 0 && monotonic_ns() >= seldom_ns && !file_exists("busy_only"))
		use_seldom();
	else if (what < 40 || (mode == MODE_HOT && what < 95))
		log_outcome(bulk(seq, 1 + random_below(BULK_MAX)));
	else if (what < 55 || mode == MODE_SELECT)
	{
		for (int i = 0; i < 20; i++)
			log_outcome(call("select", seq, 1));
	}
	else if (what < 75)
		transaction(seq);
	else if (what < 85)
		log_outcome(call("insert", seq, 1 + random_below(50)));
	else if (what < 93)
		log_outcome(call("nextval", NEXTVAL_SEQUENCE, 1 + random_below(50)));
	else if (what < 97)
	{
		/* Most of these are cut off in the middle. */
		if (command("SET statement_timeout = 3"))
		{
			log_outcome(bulk(seq, BULK_MAX));
			(void) command("SET statement_timeout = 0");
		}
	}
	else if (command(random_below(2) ? "DISCARD ALL" : "DISCARD SEQUENCES"))
	{
		(void) command("DEALLOCATE ALL");
		(void) prepare();
	}
}

static void
run_session(void)
{
	char		path[1024];
	FILE	   *file;

	snprintf(path, sizeof(path), "%s/ids.%d", directory, session);
	log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (log_fd < 0)
	{
		perror(path);
		exit(1);
	}
	while (!file_exists("stop"))
	{
		if (conn == NULL || PQstatus(conn) != CONNECTION_OK)
		{
			if (!reconnect())
				break;
		}
		if (PQtransactionStatus(conn) != PQTRANS_IDLE)
			(void) command("ROLLBACK");
		work();
	}
	PQfinish(conn);

	snprintf(path, sizeof(path), "%s/counts.%d", directory, session);
	file = fopen(path, "w");
	if (file == NULL ||
		fprintf(file, "connections %ld\ncommits %ld\nerrors %ld\ntimeouts %ld\nduplicate_keys %ld\n",
				counts.connections, counts.commits, counts.errors,
				counts.timeouts, counts.duplicate_keys) < 0 ||
		fclose(file) != 0)
	{
		perror(path);
		exit(1);
	}
}

int
main(int argc, char **argv)
{
	int			sessions;
	int			failed = 0;
	int			status;

	if (argc != 6)
	{
		fprintf(stderr, "usage: writer DIRECTORY SESSIONS SEED all|select|hot SELDOM\n");
		return 2;
	}
	directory = argv[1];
	sessions = atoi(argv[2]);
	mode = strcmp(argv[4], "select") == 0 ? MODE_SELECT :
		strcmp(argv[4], "hot") == 0 ? MODE_HOT : MODE_ALL;
	n_seldom = mode == MODE_HOT ? 0 : atoi(argv[5]);

	for (session = 0; session < sessions; session++)
	{
		pid_t		pid = fork();

		if (pid < 0)
		{
			perror("fork");
			return 1;
		}
		if (pid == 0)
		{
			random_state = (strtoull(argv[3], NULL, 10) * 1000 + session + 1) *
				UINT64_C(0x9E3779B97F4A7C15);
			if (mode == MODE_ALL && session % 4 == 0)
				mode = MODE_SELECT;
			run_session();
			return 0;
		}
	}
	while (wait(&status) > 0)
		failed |= status != 0;
	return failed;
}
