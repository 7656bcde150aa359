/*
 * Clients of shards that move between two homes, whose servers fail over: they
 * write and read, and note each call and its answer.
 *
 *		client DIRECTORY WRITERS READERS SHARDS SEED
 *
 * libpq's service file has A and B, the homes, and "standby", of A.  Each client is a
 * process, and ends when DIRECTORY/stop exists.  It looks for a shard where it last
 * was, and in the other home if that says that it lives elsewhere.  Times are
 * nanoseconds of CLOCK_MONOTONIC.
 *
 * A writer inserts rows into the table "rows" of a shard, or only takes ids.  A
 * line in DIRECTORY/ids.N is a call:
 *
 *		begin end shard outcome kind id ...
 *
 * Outcome: ok, of an acknowledged transaction; no, of one that was rolled
 * back; ?, if no answer came, or a warning with it.  Kind: r for rows, s for a SELECT
 * of ids alone.
 *
 * A reader follows safe_upper_id(), those with odd numbers on a standby.  A line in
 * DIRECTORY/read.N is a step of it, from its bookmark up to the bound:
 *
 *		begin end shard from upper id ...
 */
#include <libpq-fe.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "session.h"

#define SHARDS_MAX		64
#define ANSWER_MS		15000	/* how long to wait for an answer */
#define STANDBY			2		/* the third service */

static const char *directory;
static int	n_shards;
static const char *const services[] = {"service=A", "service=B", "service=standby"};
static PGconn *conns[3];
static int	home_of[SHARDS_MAX];
static int64_t bookmarks[SHARDS_MAX];
static bool warned;				/* by the server, since run() began */
static FILE *history;

static bool
is_stopped(void)
{
	char		path[1024];

	snprintf(path, sizeof(path), "%s/stop", directory);
	return access(path, F_OK) == 0;
}

static void
note_warning(void *arg, const PGresult *res)
{
	const char *severity = PQresultErrorField(res, PG_DIAG_SEVERITY_NONLOCALIZED);

	(void) arg;
	if (severity != NULL && strcmp(severity, "WARNING") == 0)
		warned = true;
}

static void
disconnect(int where)
{
	PQfinish(conns[where]);
	conns[where] = NULL;
}

static bool
is_connected(int where)
{
	if (conns[where] != NULL && random_below(200) != 0)
		return true;
	disconnect(where);
	conns[where] = PQconnectdb(services[where]);
	if (PQstatus(conns[where]) == CONNECTION_OK)
	{
		PQsetNoticeReceiver(conns[where], note_warning, NULL);
		return true;
	}
	disconnect(where);
	usleep(200000);
	return false;
}

/*
 * Run a statement, and return its result.  NULL: no answer came, and the
 * connection is gone.
 */
static PGresult *
run(int where, const char *format,...)
{
	char		sql[500];
	va_list		args;
	PGconn	   *conn = conns[where];
	PGresult   *res = NULL;
	PGresult   *next;
	int64_t		end = monotonic_ns() + ANSWER_MS * INT64_C(1000000);

	va_start(args, format);
	vsnprintf(sql, sizeof(sql), format, args);
	va_end(args);

	warned = false;
	if (PQsendQuery(conn, sql) == 0)
	{
		disconnect(where);
		return NULL;
	}
	for (;;)
	{
		while (PQisBusy(conn))
		{
			struct pollfd fd = {PQsocket(conn), POLLIN, 0};
			int64_t		left = (end - monotonic_ns()) / 1000000;

			if (left <= 0 || poll(&fd, 1, left) < 0 || PQconsumeInput(conn) == 0)
			{
				PQclear(res);
				disconnect(where);
				return NULL;
			}
		}
		next = PQgetResult(conn);
		if (next == NULL)
			break;
		PQclear(res);
		res = next;
	}
	if (PQstatus(conn) != CONNECTION_OK)
	{
		PQclear(res);
		disconnect(where);
		return NULL;
	}
	return res;
}

/* The statement failed; if the shard is not here, look in the other home. */
static void
failed(int shard, PGresult *res)
{
	static const char *const elsewhere[] = {"SN001", "SN002", "3F000", "42P01"};
	const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);

	for (int i = 0; state != NULL && i < 4; i++)
		if (strcmp(state, elsewhere[i]) == 0)
			home_of[shard] ^= 1;
	PQclear(res);
	usleep(20000);
}

static void
log_ids(int64_t begin, int64_t end, int shard, const char *what, const PGresult *ids)
{
	fprintf(history, "%lld %lld %d %s", (long long) begin, (long long) end, shard, what);
	for (int row = 0; row < PQntuples(ids); row++)
		fprintf(history, " %s", PQgetvalue(ids, row, 0));
	fprintf(history, "\n");
	fflush(history);
}

/* A call in a transaction of its own, or two in one that may be rolled back. */
static void
write_once(void)
{
	int			shard = random_below(n_shards);
	int			where = home_of[shard];
	bool		has_rows = random_below(4) != 0;
	bool		is_block = random_below(4) == 0;
	bool		rolls_back = is_block && random_below(10) == 0;
	const char *outcome = "?";
	int64_t		begin[2];
	PGresult   *res[2];
	PGresult   *end = NULL;
	int			n;

	if (!is_connected(where))
		return;
	if (is_block)
	{
		end = run(where, "BEGIN");
		if (end == NULL)
			return;
		PQclear(end);
	}
	for (n = 0; n < (is_block ? 2 : 1); n++)
	{
		begin[n] = monotonic_ns();
		res[n] = n == 0 && has_rows
			? run(where, "INSERT INTO insta%d.rows (n) SELECT generate_series(1, %u) RETURNING id",
				  shard, 1 + random_below(5))
			: run(where, "SELECT insta%d.next_id() FROM generate_series(1, %u)",
				  shard, 1 + random_below(3));
		if (PQresultStatus(res[n]) != PGRES_TUPLES_OK)
		{
			failed(shard, res[n]);
			break;
		}
	}
	if (is_block && conns[where] != NULL)
	{
		end = run(where, n < 2 || rolls_back ? "ROLLBACK" : "COMMIT");
		if (end != NULL && !warned)
			outcome = strcmp(PQcmdStatus(end), "COMMIT") == 0 ? "ok" : "no";
		PQclear(end);
	}
	else if (!is_block && !warned)
		outcome = "ok";
	for (int i = 0; i < n; i++)
	{
		char		what[16];

		snprintf(what, sizeof(what), "%s %s", outcome, i == 0 && has_rows ? "r" : "s");
		log_ids(begin[i], monotonic_ns(), shard, what, res[i]);
		PQclear(res[i]);
	}
	usleep(5000 + random_below(60000));
}

/* Wait until the standby has replayed so far; false: it does not. */
static bool
has_replayed(const char *lsn)
{
	int64_t		end = monotonic_ns() + ANSWER_MS * INT64_C(1000000);

	while (monotonic_ns() < end)
	{
		PGresult   *res = run(STANDBY, "SELECT pg_last_wal_replay_lsn() >= '%s'", lsn);
		bool		done = PQntuples(res) == 1 && strcmp(PQgetvalue(res, 0, 0), "t") == 0;

		PQclear(res);
		if (done || conns[STANDBY] == NULL)
			return done;
		usleep(20000);
	}
	disconnect(STANDBY);
	return false;
}

static void
read_once(bool on_standby)
{
	int			shard = random_below(n_shards);
	int			where = home_of[shard];
	int64_t		begin = monotonic_ns();
	long long	upper;
	bool		ready = true;
	PGresult   *res;

	usleep(20000 + random_below(100000));
	if (!is_connected(where))
		return;
	res = run(where, "SELECT snowid.safe_upper_id('insta%d.id_seq'), pg_current_wal_insert_lsn()", shard);
	if (res == NULL)
		return;
	if (PQntuples(res) != 1)
	{
		failed(shard, res);
		return;
	}
	upper = atoll(PQgetvalue(res, 0, 0));
	if (on_standby && where == 0)
	{
		where = STANDBY;
		ready = is_connected(STANDBY) && has_replayed(PQgetvalue(res, 0, 1));
	}
	PQclear(res);
	if (!ready || upper <= bookmarks[shard])
		return;
	res = run(where, "SELECT id FROM insta%d.rows WHERE id >= %lld AND id < %lld ORDER BY id",
			  shard, (long long) bookmarks[shard], upper);
	if (res == NULL)
		return;
	if (PQresultStatus(res) == PGRES_TUPLES_OK)
	{
		char		what[64];

		snprintf(what, sizeof(what), "%lld %lld", (long long) bookmarks[shard], upper);
		log_ids(begin, monotonic_ns(), shard, what, res);
		bookmarks[shard] = upper;
	}
	PQclear(res);
}

static void
run_client(int number, bool is_writer)
{
	char		path[1024];

	snprintf(path, sizeof(path), "%s/%s.%d", directory, is_writer ? "ids" : "read", number);
	history = fopen(path, "w");
	if (history == NULL)
	{
		perror(path);
		exit(1);
	}
	while (!is_stopped())
	{
		if (is_writer)
			write_once();
		else
			read_once(number % 2 == 1);
	}
	for (int i = 0; i < 3; i++)
		disconnect(i);
	fclose(history);
}

int
main(int argc, char **argv)
{
	int			writers;
	int			readers;
	int			status;
	int			any_failed = 0;

	if (argc != 6 || atoi(argv[4]) < 1 || atoi(argv[4]) > SHARDS_MAX)
	{
		fprintf(stderr, "usage: client DIRECTORY WRITERS READERS SHARDS SEED\n");
		return 2;
	}
	directory = argv[1];
	writers = atoi(argv[2]);
	readers = atoi(argv[3]);
	n_shards = atoi(argv[4]);

	for (int i = 0; i < writers + readers; i++)
	{
		pid_t		pid = fork();

		if (pid < 0)
		{
			perror("fork");
			return 1;
		}
		if (pid == 0)
		{
			random_state = (strtoull(argv[5], NULL, 10) * 1000 + i + 1) *
				UINT64_C(0x9E3779B97F4A7C15);
			run_client(i < writers ? i : i - writers, i < writers);
			return 0;
		}
	}
	while (wait(&status) > 0)
		any_failed |= status != 0;
	return any_failed;
}
