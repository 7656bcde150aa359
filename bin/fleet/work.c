/*
 * balance and drain: a plan out of what the servers say now, shown, and done by snowid-move.
 *
 * What an earlier run has left is ended first.  Then each pair of servers has its moves, in jobs of some shards; at
 * any time a server is in one job, or in --at-once, so that pairs go on beside each other.
 */
#include "fleet.h"
#include "sql/fleet.inc"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct Job
{
	char	   *shards;
	int			from,
				to;				/* of servers; -1: of none that we know */
	const char *source,
			   *target;			/* their homes */
	double		bytes;
	bool		finishes;		/* it has moved */
	bool		goes_on;		/* nobody knows for how long it has run */
	bool		failed;
	bool		begun;
	pid_t		pid;			/* of the program; 0: none runs */
	int			output;
	PQExpBufferData said;		/* not yet passed on */
	int64		start;
	char	   *logged;			/* its row's key in snowid.fleet_moves */
} Job;

static Job *jobs;
static int	njobs;
static PlanServer *plan_servers;
static PlanPool *pools;
static int	npools;
static time_t deadline;			/* of --until */

static void
stop(int unused)
{
	stopping = true;
}

/* What there is to plan with. */
static void
read_facts(const char *drained)
{
	PGresult   *res = query(directory, "SELECT n, CASE WHEN name IS NULL THEN 0 ELSE weight END, state = 'open' AND "
							"facts ->> 'is_standby' = 'false', state = 'draining' OR name = %s FROM known", here(drained));

	plan_servers = pg_malloc0((nservers + 1) * sizeof(PlanServer));
	for (int row = 0; row < PQntuples(res); row++)
		plan_servers[atoi(PQgetvalue(res, row, 0))] = (PlanServer)
	{
		.weight = atof(PQgetvalue(res, row, 1)),.takes = *PQgetvalue(res, row, 2) == 't',.drains = *PQgetvalue(res, row, 3) == 't'
	};
	PQclear(res);
	run(directory, FLEET_POOLS_SQL, here(drained));
	res = query(directory, "SELECT server, load, bytes, stays OR (substr(allowed, server + 1, 1) = '1' AND allowed !~ '1.*1'), allowed, apart "
				"FROM pool ORDER BY i");
	npools = PQntuples(res);
	pools = pg_malloc0((npools + 1) * sizeof(PlanPool));
	for (int i = 0; i < npools; i++)
		pools[i] = (PlanPool)
	{
		.server = atoi(PQgetvalue(res, i, 0)),.load = atof(PQgetvalue(res, i, 1)),.bytes = atof(PQgetvalue(res, i, 2)),
			.stays = *PQgetvalue(res, i, 3) == 't',.allowed = field(res, i, 4),.apart = field(res, i, 5)
	};
	PQclear(res);
}

/* The jobs of a query, but what has moved and is to be kept. */
static void
take_jobs(PGresult *res)
{
	jobs = pg_realloc(jobs, (PQntuples(res) + 1) * sizeof(Job));
	njobs = 0;
	for (int row = 0; row < PQntuples(res); row++)
		if (*PQgetvalue(res, row, 6) == 'f' || !options.keep)
			jobs[njobs++] = (Job)
		{
			.shards = field(res, row, 0),.from = atoi(PQgetvalue(res, row, 1)),.to = atoi(PQgetvalue(res, row, 2)),
				.source = field(res, row, 3),.target = field(res, row, 4),.bytes = atof(PQgetvalue(res, row, 5)),
				.finishes = *PQgetvalue(res, row, 6) == 't',.logged = field(res, row, 7),.goes_on = field(res, row, 7) != NULL
		};
	PQclear(res);
}

/* Show the plan, and make its jobs. */
static void
take_plan(void)
{
	PQExpBufferData rows;

	initPQExpBuffer(&rows);
	appendPQExpBufferStr(&rows, "(-1, 0, false)");
	for (int i = 0; i < npools; i++)
		appendPQExpBuffer(&rows, ", (%d, %d, %s)", i, pools[i].to, pools[i].stuck ? "true" : "false");
	run(directory, "UPDATE pool SET target = v.t, stuck = v.s FROM (VALUES %s) v (i, t, s) WHERE v.i = pool.i", rows.data);
	termPQExpBuffer(&rows);
	run(directory, FLEET_JOBS_SQL);
	puts(query_text(directory, FLEET_PLAN_TEXT_SQL, here(query_text(directory, FLEET_SECONDS_SQL, "(SELECT count(*) FROM job)",
																	"(SELECT sum(bytes) FROM job)")), here(without_password("--registry", options.registry)), here(registry_option())));
	fflush(stdout);
	take_jobs(query(directory, "SELECT shards, server, target, f.typed, t.typed, bytes, false, NULL FROM job JOIN known f ON f.n = server "
					"JOIN known t ON t.n = target ORDER BY server, target, bytes DESC"));
}

/* Keep in the log what has become of a job, and for how long its move has run. */
static void
note_outcome(const Job *job, const char *outcome)
{
	run(directory, "UPDATE snowid.fleet_moves SET outcome = %s, seconds = CASE WHEN %s THEN seconds ELSE %f END WHERE at = %s",
		here(text_of("%s%s", outcome, options.keep && strcmp(outcome, "kept") != 0 ? ", to keep" : "")),
		job->finishes ? "true" : "false", job->goes_on ? 0 : (now_ms() - job->start) / 1000.0, here(job->logged));
}

/* Start snowid-move for a job: to move, or to finish what has moved. */
static void
start(Job *job)
{
	PGresult   *consoles = query(directory, "SELECT console FROM snowid.poolers ORDER BY 1");
	const char **argv = pg_malloc0((2 * PQntuples(consoles) + options.nfor_move + 20) * sizeof(char *));
	const char *given[] = {"snowid-move", job->finishes ? "finish" : "move", "--registry", options.registry,
	"--shard", job->shards, "--from", job->source, "--to", job->target};
	int			argc = lengthof(given);
	int			ends[2];

	memcpy(argv, given, sizeof(given));
	for (int row = 0; !job->finishes && row < PQntuples(consoles); row++)
	{
		argv[argc++] = "--pooler";
		argv[argc++] = PQgetvalue(consoles, row, 0);
	}
	for (int i = 0; !job->finishes && i < options.nfor_move; i++)
		argv[argc++] = options.for_move[i];
	if (job->logged == NULL)
		job->logged = query_text(directory, "INSERT INTO snowid.fleet_moves (shards, source, target, bytes, seconds, outcome) "
								 "VALUES (%s, %s, %s, %.0f, 0, 'begun%s') RETURNING at", here(job->shards), here(job->source),
								 here(job->target), job->bytes, options.keep ? ", to keep" : "");

	/* Its journal tells whose it is. */
	setenv("SNOWID_FLEET_MOVE", job->logged, 1);
	if (pipe2(ends, O_CLOEXEC) != 0 || (job->pid = start_program(NULL, argv, NULL, ends[1], ends[1])) == 0)
		fail();
	close(ends[1]);
	fcntl(ends[0], F_SETFL, O_NONBLOCK);
	job->output = ends[0];
	initPQExpBuffer(&job->said);
	job->begun = true;
	job->start = now_ms();
	PQclear(consoles);
	pg_free(argv);
}

/* Pass on what the program says, line by line, with the pair of servers before it; but what is in order. */
static void
pass_on(Job *job)
{
	char		part[2000];
	int			n;

	while ((n = read(job->output, part, sizeof(part))) > 0)
		appendBinaryPQExpBuffer(&job->said, part, n);
	for (char *end; (end = strchr(job->said.data, '\n')) != NULL; memmove(job->said.data, end + 1, job->said.len + 1))
	{
		job->said.len -= end + 1 - job->said.data;
		*end = '\0';
		if (strncmp(job->said.data, "ok ", 3) != 0)
			fprintf(stderr, "[%s -> %s] %s\n", job->from >= 0 ? servers[job->from].label : printable(job->source),
					job->to >= 0 ? servers[job->to].label : printable(job->target), printable(job->said.data));
	}
}

/* The program has ended.  What has moved is to be finished. */
static void
end_step(Job *job, int status)
{
	int			code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
	bool		done = code == EXIT_DONE;
	bool		moved;

	pass_on(job);
	close(job->output);
	job->pid = 0;
	job->failed = job->failed || !done;
	if (job->finishes && done)
	{
		note_outcome(job, job->failed ? "in part" : "finished");
		report_info("shards %s: finished%s", job->shards, job->failed ? ", as far as they have moved" : "");
	}
	if (job->finishes)
		return;
	moved = query_bool(directory, "SELECT count(*) FROM snowid.shard_registry r WHERE shard IN (%s) "
					   "AND NOT EXISTS (SELECT FROM address a WHERE a.home IS NOT DISTINCT FROM r.home AND a.n = %d)", job->shards, job->from);
	if (!done)
		report_error("not all of shards %s have moved; snowid-move ended with %s %d", job->shards,
					 code > 0 ? "exit status" : "signal", abs(code));
	note_outcome(job, !done ? moved ? "in part" : "failed" : options.keep ? "kept" : "moved");

	/* All of it; exit status 3: what is not complete is not finished. */
	if (options.keep || !moved || code == EXIT_INCOMPLETE)
		return;
	job->finishes = true;
	start(job);
}

/* Does a standby of that server lag behind?  Then its next job waits.  What is down is snowid-move's to tell. */
static bool
lags(int server)
{
	Server	   *asked = &servers[server];
	PGconn	   *conn;
	PGresult   *res;

	if (options.max_lag < 0 || server < 0)
		return false;
	if (now_ms() < asked->lags_until)
		return true;
	conn = open_connection(asked->label, asked->conninfo);
	res = try_query(conn, "SELECT WHERE coalesce((" FLEET_STANDBY_LAG_SQL ") > " INT64_FORMAT ", true)", options.max_lag);
	asked->lags_until = PQntuples(res) > 0 ? now_ms() + 2000 : 0;
	PQclear(res);
	PQfinish(conn);
	if (asked->lags_until > 0)
		tell_now_and_then("waiting for the standbys of %s", asked->label);
	return asked->lags_until > 0;
}

static bool
is_busy(int server)
{
	int			n = 0;

	for (int i = 0; i < njobs; i++)
		n += jobs[i].pid > 0 && (jobs[i].from == server || jobs[i].to == server);
	return n >= options.at_once;
}

/* Do the jobs, side by side.  Returns how many were not done. */
static int
do_jobs(void)
{
	int			running,
				waiting,
				nfailed;
	bool		told = false;

	for (;; wait_ms(50))
	{
		running = waiting = nfailed = 0;
		for (int i = 0; i < njobs; i++)
		{
			Job		   *job = &jobs[i];
			int			status;

			if (!job->begun && !stopping && !is_busy(job->from) && !is_busy(job->to))
			{
				if (options.until != NULL && time(NULL) + query_int64(directory, FLEET_SECONDS_SQL, "1", text_of("%f", job->bytes)) >= deadline)
				{
					report_warning("shards %s: not begun, to be done at %s", job->shards, options.until);
					job->begun = job->failed = true;
				}
				else if (!lags(job->from) && !lags(job->to))
					start(job);
			}
			if (job->pid > 0)
				pass_on(job);
			if (job->pid > 0 && waitpid(job->pid, &status, WNOHANG) > 0)
				end_step(job, status);
			running += job->pid > 0;
			waiting += !job->begun;
			nfailed += job->failed || !job->begun;
		}
		if (stopping && !told && (told = true))
			report_info("no further move is begun; %d are being ended", running);
		if (running == 0 && (waiting == 0 || told))
			return nfailed;
	}
}

/* What is there now.  False after saying why there can be no plan. */
static bool
look(const char *drained)
{
	PGresult   *doubts;

	ask_servers(strcmp(options.by, "inserts") != 0 ? NULL : options.period != NULL ? options.period : "10s");
	if (stopping)
		return refuse(false, "Nothing is planned; to go on, type the same command again.", "interrupted while the servers were asked");
	doubts = query(directory, FLEET_DOUBTS_SQL, here(drained), text_of("'" INT64_FORMAT "'", options.max_lag), here(registry_option()));
	for (int row = 0; row < PQntuples(doubts); row++)
		report_error("%s", PQgetvalue(doubts, row, 0));
	if (PQntuples(doubts) > 0)
		report_hint("Nothing is planned before that is cleared; to see more, type: snowid-move audit %s", registry_option());
	return PQntuples(doubts) == 0;
}

/* Without a name: give each server its share.  With one: let it have nothing. */
int
command_balance(const char *drained, const char *unused)
{
	int			nleft,
				nstuck;
	const char *stay;

	if (options.until != NULL)
		deadline = next_time("until", options.until);
	if (drained != NULL && home_of_server(directory, drained) == NULL)
		return EXIT_USAGE;
	if (!options.dry_run && options.has_pooler_file != query_bool(directory, "SELECT count(*) FROM snowid.poolers"))
		return refuse(EXIT_USAGE, options.has_pooler_file ? "Leave it out; or there, type: INSERT INTO snowid.poolers VALUES ('CONSOLE');"
					  : "Add at the end: -- --pooler-file PATH",
					  "the directory has %s", options.has_pooler_file ? "no poolers, for --pooler-file" : "poolers, whose file of entries is not said");
	signal(SIGINT, stop);
	signal(SIGTERM, stop);
	programs_are_apart = true;
	if (!look(drained))
		return stopping ? EXIT_INCOMPLETE : EXIT_FAILED;
	if (query_int64(directory, "SELECT count(*) FROM snowid.servers") == 0)
		return refuse(EXIT_USAGE, text_of("Type: snowid-fleet add NAME HOME %s", registry_option()), "the directory has no servers");
	if (!options.dry_run)
		failure_exit_code = EXIT_INCOMPLETE;

	/* First what an earlier run, or somebody, has left. */
	take_jobs(query(directory, FLEET_UNFINISHED_SQL));
	if (njobs > 0)
		report_info("first, what an earlier move has left: %d jobs", njobs);
	nleft = options.dry_run ? 0 : do_jobs();
	if (njobs > 0 && !options.dry_run && (stopping || !look(drained)))
		return stopping ? EXIT_INCOMPLETE : EXIT_FAILED;

	read_facts(drained);
	make_plan(plan_servers, nservers, pools, npools, &options.limits, drained == NULL);
	take_plan();
	nstuck = query_int64(directory, "SELECT sum(stuck::int) FROM pool, known k WHERE k.n = server AND coalesce(name = %s, 't')", here(drained));
	stay = nstuck == 1 ? "1 pool has to stay" : text_of("%d pools have to stay", nstuck);
	if (options.dry_run)
		return nstuck > 0 ? EXIT_FAILED : EXIT_DONE;
	if (njobs == 0 && nstuck > 0)
		return refuse(EXIT_FAILED, query_bool(directory, "SELECT count(*) FROM pool JOIN lives USING (pool) JOIN going USING (shard) WHERE stuck")
					  ? "First end the moves that are named above."
					  : text_of("Let a server take it, or type: snowid-fleet add NAME HOME %s", registry_option()),
					  "%s; nothing was changed", stay);

	/* Not before it is known that something can go. */
	if (drained != NULL)
		run(directory, "UPDATE snowid.servers SET state = 'draining' WHERE name = %s AND state <> 'draining'", here(drained));
	nleft += do_jobs();
	if (nleft == 0 && nstuck == 0 && drained != NULL)
		report_info("%s has %s %s", drained, options.keep || query_bool(directory, "SELECT count(*) FROM going JOIN address a ON n = source "
																		"JOIN snowid.servers USING (home) WHERE name = %s", here(drained))
					? "only closed copies; to see what ends each, type: snowid-fleet status"
					: text_of("nothing any more; to take it out, type: snowid-fleet retire %s", drained), registry_option());
	if (nleft == 0 && nstuck == 0)
		return EXIT_DONE;
	report_error("%s%s%s", nleft == 0 ? "" : nleft == 1 ? "1 job was not done" : text_of("%d jobs were not done", nleft),
				 nleft > 0 && nstuck > 0 ? ", and " : "", nstuck > 0 ? stay : "");
	report_hint("To go on, type the same command again.%s", drained == NULL ? "" :
				text_of(" %s stays draining; if it is to be used again, at the directory: "
						"UPDATE snowid.servers SET state = 'open' WHERE name = '%s';", drained, drained));
	return stopping ? EXIT_INCOMPLETE : EXIT_FAILED;
}
