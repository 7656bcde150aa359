/*
 * Tasks, the servers they are at, and the workers that do them.
 */
#include "each.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Pauses before a task is tried again: they double, and are jittered. */
#define FIRST_PAUSE_MS		100
#define LONGEST_PAUSE_MS	10000

/* How often we look whether there is something to do. */
#define LOOK_MS				20

Task	   *tasks;
int			ntasks;
char	   *servers[MAX_SHARD + 2];
int			nservers;

static pid_t workers[lengthof(servers) * MAX_JOBS];
static pid_t parent;

PGconn *
connect_server(int server, bool needed)
{
	const char *label = server == 0 ? "registry" : servers[server];
	PGconn	   *conn = open_connection(label, servers[server]);

	/* Scripts run as the role would run them by itself. */
	if (PQstatus(conn) == CONNECTION_OK)
		run(conn, "SELECT set_config(name, reset_val, false) FROM pg_settings WHERE name IN "
			"('row_security', 'restrict_nonsystem_relation_kind', 'timezone', 'datestyle', 'intervalstyle')");
	else if (needed)
		refuse_call("%s: %s", label, PQerrorMessage(conn));
	return conn;
}

/* A shard without a home is where the registry is. */
static int
server_of(PGresult *res, int row)
{
	int			server = 0;

	while (!PQgetisnull(res, row, 1) && (server == 0 || strcmp(servers[server], PQgetvalue(res, row, 1)) != 0))
		if (++server == nservers)
			servers[nservers++] = field(res, row, 1);
	return server;
}

/* Which shards are to be done; and later, where those have gone that are not. */
void
read_registry(PGconn *registry)
{
	PGresult   *res = try_query(registry, "SELECT shard, home FROM snowid.shard_registry ORDER BY shard");
	bool		first = tasks == NULL;
	Task	   *task;
	int			of_server[lengthof(servers)] = {0};
	int			wanted = 0;

	if (first)
		tasks = mmap(NULL, (MAX_SHARD + 1) * sizeof(Task), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (first && (res == NULL || tasks == MAP_FAILED))
		refuse_call("registry: %s", res == NULL ? PQerrorMessage(registry) : strerror(errno));
	task = tasks;
	for (int row = 0; res != NULL && row < PQntuples(res); row++)
	{
		int			shard = atoi(PQgetvalue(res, row, 0));
		int			server = server_of(res, row);
		bool		is_wanted = options.shards.n == 0 || (wanted < options.shards.n && options.shards.numbers[wanted] == shard);

		wanted += is_wanted;
		if (first && is_wanted && (options.canary == 0 || of_server[server]++ < options.canary))
			tasks[ntasks++].shard = shard;
		while (task < tasks + ntasks && task->shard < shard)
			task++;
		if (task < tasks + ntasks && task->shard == shard && task->server != server)
		{
			task->server = server;
			task->due = 0;
		}
	}
	if (res == NULL)
		PQreset(registry);
	PQclear(res);
	if (first && wanted < options.shards.n)
		refuse_call("the registry does not know all of these shards");
}

/* The first line of an error, without its kind, and the shard that run_in_shard() names. */
void
set_message(Task *task, const char *message)
{
	const char *text = strncmp(message, "ERROR:  ", 8) == 0 ? message + 8 : message;
	const char *named = strncmp(text, "shard ", 6) == 0 ? strstr(text, "\": ") : NULL;
	size_t		n;

	if (named != NULL)
		text = named + 3;

	n = Min(strcspn(text, "\n"), sizeof(task->message) - 1);

	/* Not cut within a character of UTF-8. */
	while (n > 0 && (text[n] & 0xC0) == 0x80)
		n--;
	snprintf(task->message, n + 1, "%s", text);
}

/* A task that was left TODO is due again later; or has been tried for too long. */
static void
end_task(Task *task, State state)
{
	int			pause = Min(FIRST_PAUSE_MS << Min(task->attempts, 10), LONGEST_PAUSE_MS);

	if (task->attempts++ == 0)
		task->since = now_ms();
	if (state == TODO && now_ms() - task->since >= options.wait_s * INT64CONST(1000))
		state = FAILED;
	task->due = now_ms() + pause / 2 + random() % (pause / 2);
	__atomic_store_n(&task->state, state, __ATOMIC_RELEASE);
}

/* None is to do after a failure that stops us. */
int
count_tasks(State state)
{
	int			n = 0;

	if (state == TODO && options.stop_on_error && count_tasks(FAILED) > 0)
		return 0;
	for (Task *task = tasks; task < tasks + ntasks; task++)
		n += Max(task->state, RUNNING) == state;
	return n;
}

/* Is there work?  A task that runs may have to be done once more. */
static int
count_left(void)
{
	return count_tasks(RUNNING) + count_tasks(TODO);
}

static void
work(int server)
{
	PGconn	   *conn = NULL;

	srandom(getpid());
	while (count_left() > 0 && getppid() == parent)
	{
		int			mark = mark_texts();
		State		state = TODO;
		Task	   *task = tasks;

		while (task < tasks + ntasks && (task->state != TODO || task->server != server || task->due > now_ms() || count_tasks(TODO) == 0 ||
										 !__sync_bool_compare_and_swap(&task->state, TODO, -getpid())))
			task++;
		if (task == tasks + ntasks)
		{
			wait_ms(LOOK_MS);
			continue;
		}
		if (PQstatus(conn) != CONNECTION_OK)
		{
			PQfinish(conn);
			conn = connect_server(server, false);
		}
		if (PQstatus(conn) == CONNECTION_OK)
			state = migrate(conn, task);
		else
			set_message(task, PQerrorMessage(conn));
		end_task(task, state);
		free_texts(mark);
	}
	exit(0);
}

/* Start the workers of each server, again if they have ended. */
static void
tend_workers(void)
{
	pid_t		ended = waitpid(-1, NULL, WNOHANG);

	/* What it has left undone, the ledger tells the next one. */
	for (Task *task = tasks; ended > 0 && task < tasks + ntasks; task++)
		if (task->state == -ended)
			end_task(task, TODO);
	for (int i = 0; i < nservers * options.jobs && count_left() > 0; i++)
	{
		fflush(NULL);
		if ((workers[i] <= 0 || workers[i] == ended) && (workers[i] = fork()) == 0)
			work(i / options.jobs);
	}
}

/* Do all tasks. */
void
work_off(PGconn *registry)
{
	int64		start = now_ms();
	int			left;
	int			round = 0;

	parent = getpid();
	do
	{
		tend_workers();
		left = count_left();
		if (left < ntasks)
			tell_now_and_then("%d of %d shards, on %d servers; %d failed, %d s left", ntasks - left, ntasks, nservers,
							  count_tasks(FAILED), (int) ((now_ms() - start) * left / (ntasks - left) / 1000));
		wait_ms(LOOK_MS);

		/* Once a second: where have shards gone? */
		if (++round % (1000 / LOOK_MS) == 0)
			read_registry(registry);
	} while (left > 0);
	while (waitpid(-1, NULL, 0) > 0)
		;
}
