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
int			nservers;

static struct Server
{
	char	   *home;
	const char *label;
	char	   *identity;		/* of what it leads to; NULL: not known */
	int			same_as;		/* the first one that leads there */
	bool		down;
}			servers[MAX_SHARD + 2];

static pid_t workers[lengthof(servers) * MAX_JOBS];
static pid_t parent;
static const Task *running;		/* a worker's own */

/* A warning that a script raises names its shard. */
static void
tell_notice(void *unused, const PGresult *res)
{
	const char *severity = PQresultErrorField(res, PG_DIAG_SEVERITY);

	if (running != NULL)
		report_warning("shard %d: %s: %s", running->shard, severity, PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY));
	else
		report_warning("%s", PQresultErrorMessage(res));
}

/* Make a session one in which a script runs as the role would run it by itself. */
static void
set_up_for_scripts(PGconn *conn)
{
	run(conn, "SELECT set_config(name, reset_val, false) FROM pg_settings WHERE name IN "
		"('row_security', 'restrict_nonsystem_relation_kind', 'timezone', 'datestyle', 'intervalstyle')");
}

/* A connection; it may have failed. */
PGconn *
connect_server(int server)
{
	PGconn	   *conn = open_connection(servers[server].label, servers[server].home);

	servers[server].down = PQstatus(conn) != CONNECTION_OK;
	if (!servers[server].down)
	{
		PQsetNoticeReceiver(conn, tell_notice, NULL);
		set_up_for_scripts(conn);
	}
	return conn;
}

/* Is the server of a task down; or for none, that of any? */
bool
is_down(const Task *task)
{
	if (task != NULL)
		return servers[task->server].down;
	for (task = tasks; task < tasks + ntasks && !is_down(task);)
		task++;
	return task < tasks + ntasks;
}

/* For who can go on without it: NULL after saying that it is down, or if we have it under another name. */
PGconn *
reach_server(int server)
{
	PGconn	   *conn = servers[server].same_as == server ? connect_server(server) : NULL;

	if (conn == NULL)
		return NULL;
	if (PQstatus(conn) == CONNECTION_OK)
		return conn;
	report_error("%s: %s", servers[server].label, PQerrorMessage(conn));
	PQfinish(conn);
	return NULL;
}

/*
 * Find out whether a server is one that we have under another name: its own home
 * is the registry's, after a move back, or two host names lead there.  A clone is another.
 */
static void
identify(int server, PGconn *conn)
{
	struct Server *s = &servers[server];

	s->same_as = server;
	if (PQstatus(conn) != CONNECTION_OK)
		return;
	s->identity = query_text(conn, "SELECT concat_ws(' ', system_identifier, pg_postmaster_start_time(), current_database()) FROM pg_control_system()");
	for (int i = server - 1; i >= 0; i--)
		if (servers[i].identity != NULL && strcmp(servers[i].identity, s->identity) == 0)
			s->same_as = servers[i].same_as;
}

void
add_registry(const char *conninfo)
{
	servers[nservers++] = (struct Server)
	{
		.home = unconstify(char *, conninfo),.label = "registry"
	};
}

/* A shard without a home is where the registry is. */
static int
server_of(PGresult *res, int row)
{
	int			server = 0;

	while (!PQgetisnull(res, row, 1) && (server == 0 || strcmp(servers[server].home, PQgetvalue(res, row, 1)) != 0))
		if (++server == nservers)
		{
			PGconn	   *conn;

			servers[server].home = field(res, row, 1);
			servers[server].label = servers[server].home;
			nservers++;
			conn = connect_server(server);
			identify(server, conn);
			PQfinish(conn);
		}
	return servers[server].same_as;
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

	if (first && res == NULL)
		exit(refuse(EXIT_USAGE, "Name a database that has the registry; to make one there, type: CREATE EXTENSION snowid;",
					"registry: %s", last_message));
	if (first)
	{
		tasks = mmap(NULL, (MAX_SHARD + 1) * sizeof(Task), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		identify(0, registry);
	}
	if (first && tasks == MAP_FAILED)
		refuse_call("registry: %m");
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
		exit(refuse(EXIT_USAGE, KNOWN_SHARDS, "the registry does not know all of these shards"));
}

/* Let the servers be the tasks: also those of the fleet that have no shard. */
void
take_servers(PGconn *registry)
{
	PGresult   *res = try_query(registry, "SELECT name, home FROM snowid.servers ORDER BY name");

	if (res == NULL)
		refuse_call("registry: %s", last_message);
	for (int row = 0; row < PQntuples(res) && nservers < (int) lengthof(servers); row++)
		(void) server_of(res, row);
	PQclear(res);
	ntasks = 0;
	for (int i = 0; i < nservers; i++)
		if (servers[i].same_as == i)
			tasks[ntasks++] = (Task)
		{
			.shard = i,.server = i
		};
}

/* So many tasks, for people: "2 shards: 3-4", or each server's name. */
const char *
names_of_tasks(const int *numbers, int n)
{
	PQExpBufferData names;

	if (!options.each_server)
		return text_of("%d shard%s: %s", n, n == 1 ? "" : "s", keep_text(ranges_of(numbers, n)));
	initPQExpBuffer(&names);
	appendPQExpBuffer(&names, "%d server%s: ", n, n == 1 ? "" : "s");
	for (int i = 0; i < n; i++)
		appendPQExpBuffer(&names, "%s%s", i > 0 ? "; " : "", servers[numbers[i]].label);
	return keep_text(names.data);
}

/* Of the shards that are wanted: those that live on this server.  n is the schema. */
PGresult *
shards_here(PGconn *conn, const char *columns, const char *join)
{
	PQExpBuffer wanted = createPQExpBuffer();
	PGresult   *res;

	for (int i = 0; i < options.shards.n; i++)
		appendPQExpBuffer(wanted, "%s%d", i == 0 ? "AND shard IN (" : ", ", options.shards.numbers[i]);
	res = query(conn, "SELECT %s FROM snowid.shard_registry r JOIN pg_namespace n ON nspname = schema %s "
				"WHERE snowid_internal.lives(r) = 'here' %s%s ORDER BY shard", columns, join, wanted->data, options.shards.n > 0 ? ")" : "");
	destroyPQExpBuffer(wanted);
	return res;
}

/* What is to be told of a shard, as far as there is room. */
void
set_message(Task *task, const char *fmt,...)
{
	char text[	sizeof(task->message) + 3];
	size_t		n = sizeof(task->message) - 1;
	va_list		args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	n = Min(strcspn(text, "\n"), n);

	/* Not cut within a character of UTF-8. */
	while (n > 0 && (text[n] & 0xC0) == 0x80)
		n--;
	text[		n] = '\0';

	memcpy(task->message, text, n + 1);
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

/* Shall a worker that waits go on to wait? */
bool
goes_on(void)
{
	return getppid() == parent;
}

static void
work(int server, Action action)
{
	PGconn	   *conn = NULL;

	srandom(getpid());
	while (count_left() > 0 && goes_on())
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
		running = task;
		if (PQstatus(conn) != CONNECTION_OK)
		{
			PQfinish(conn);
			conn = connect_server(server);
		}
		if (PQstatus(conn) == CONNECTION_OK)
			state = action(conn, task);
		else
			set_message(task, "%s", PQerrorMessage(conn));

		/* Whatever a script has set or made is its shard's own. */
		if (PQstatus(conn) == CONNECTION_OK && try_run(conn, "DISCARD ALL") && try_run(conn, "RESET ROLE") && set_up_session(conn))
			set_up_for_scripts(conn);
		running = NULL;
		end_task(task, state);
		free_texts(mark);
	}
	exit(0);
}

/* Start the workers of each server, again if they have ended. */
static void
tend_workers(Action action)
{
	pid_t		ended = waitpid(-1, NULL, WNOHANG);

	/* What it has left undone, the ledger tells the next one. */
	for (Task *task = tasks; ended > 0 && task < tasks + ntasks; task++)
		if (task->state == -ended)
			end_task(task, TODO);
	for (int i = 0; i < nservers * options.jobs && count_left() > 0; i++)
	{
		fflush(NULL);
		if (servers[i / options.jobs].same_as == i / options.jobs &&
			(workers[i] <= 0 || workers[i] == ended) && (workers[i] = fork()) == 0)
			work(i / options.jobs, action);
	}
}

/* How far we are; and what the first of those waits for that are not done at once. */
static void
tell_progress(int left, int64 start)
{
	const Task *task = tasks;
	const char *waits = "";

	while (task < tasks + ntasks && (task->state > TODO || task->message[0] == '\0'))
		task++;
	if (task < tasks + ntasks)
		waits = text_of("; waiting: %s %d: %s", options.each_server ? "server" : "shard", task->shard, task->message);
	else if (now_ms() - start < 2000)
		return;
	tell_now_and_then("%d of %d shards, on %d servers; %d failed, %d s left%s", ntasks - left, ntasks, nservers,
					  count_tasks(FAILED), (int) ((now_ms() - start) * left / Max(ntasks - left, 1) / 1000), waits);
}

/* Do all tasks. */
void
work_off(PGconn *registry, Action action)
{
	int64		start = now_ms();
	int			left;
	int			round = 0;

	parent = getpid();
	do
	{
		int			mark = mark_texts();

		tend_workers(action);
		left = count_left();
		tell_progress(left, start);
		wait_ms(LOOK_MS);

		/* Once a second: where have shards gone? */
		if (!options.each_server && ++round % (1000 / LOOK_MS) == 0)
			read_registry(registry);
		free_texts(mark);
	} while (left > 0);
	while (waitpid(-1, NULL, 0) > 0)
		;
}
