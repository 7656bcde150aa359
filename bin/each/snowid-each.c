/*
 * snowid-each: the command line, and the report at the end.
 */
#include "each.h"

#include <limits.h>

struct Options options = {
	.like = -1,.jobs = 4,.lock_timeout_ms = 1000,.wait_s = 600,.max_lag = -1
};

static const Option table[] = {
	{"registry", 0, "CONNSTR", "a server whose registry knows all shards",.string = &options.registry},
	{"shard", 's', "SET", "the shards: numbers and ranges, as in 0-999,1500",.shards = &options.shards},
	{"name", 'n', "NAME", "what the ledgers call the script",.string = &options.name},
	{"file", 'f', "FILE", "the script; without it, as it has worked",.string = &options.file},
	{"jobs", 'j', "N", "shards at a time, on each server (default: 4)",.number = &options.jobs,.min = 1,.max = MAX_JOBS},
	{"lock-timeout", 0, "MS", "longest wait for a lock (default: 1000)",.number = &options.lock_timeout_ms,.min = 1,.max = INT_MAX},
	{"statement-timeout", 0, "MS", "longest time of the script in a shard (default: 0)",.number = &options.statement_timeout_ms,.max = INT_MAX},
	{"wait", 0, "SECONDS", "how long to try again in a shard that is locked, moved\nor out of reach (default: 600)",.number = &options.wait_s,.max = INT_MAX},
	{"canary", 0, "N", "only the first N shards of each server",.number = &options.canary,.min = 1,.max = MAX_SHARD + 1},
	{"max-lag", 0, "SIZE", "wait while a standby is further behind",.size = &options.max_lag},
	{"stop-on-error", 0, NULL, "begin no other shard after a failure",.flag = &options.stop_on_error},
	{"like", 0, "SHARD", "create: the shard that the new ones are like",.number = &options.like,.max = MAX_SHARD},
	{"bindir", 0, "DIR", "where pg_dump is",.string = &options.bindir},
	{"verbose", 'v', NULL, "show queries that fail",.flag = &verbose},
	{.name = NULL}
};

static const char synopsis[] =
"snowid-each runs a script once in every shard of snowid, wherever it lives.\n\n"
"Usage:\n"
"  snowid-each [COMMAND] --registry=CONNSTR [OPTION]...\n\n"
"Commands:\n"
"  run                    run a script in each shard that does not have it (default)\n"
"  status                 show which shards have which scripts\n"
"  diff                   show whose definitions differ, and in what\n"
"  create                 make shards as another one is\n";

static const char epilogue[] =
"Exit status: 0 done; 1 not in all shards, or not alike; 2 wrong usage, or no\n"
"connection.\n";

static int
command_run(PGconn *registry)
{
	int64		start = now_ms();

	read_script(registry);
	work_off(registry);
	for (Task *task = tasks; task < tasks + ntasks; task++)
		if (task->state != DONE && task->state != HAD)
			note(task->state == FAILED ? "failed" : "not done", task->message[0] != '\0' ? task->message : "not begun", task->shard);
	report_info("%d shards done in %.1f s, %d had it before, %d are left",
				count_tasks(DONE), (now_ms() - start) / 1000.0, count_tasks(HAD), nnotes);
	(void) tell_notes(-1);
	return nnotes == 0 ? EXIT_DONE : EXIT_FAILED;
}

int
main(int argc, char *argv[])
{
	char	   *command;
	PGconn	   *registry;

	pg_logging_init(progname = "snowid-each");
	command = parse_command_line(argc, argv, table, synopsis, epilogue);
	command = command != NULL ? command : "run";
	if (strcmp(command, "run") != 0 && strcmp(command, "status") != 0 && strcmp(command, "diff") != 0 && strcmp(command, "create") != 0)
	{
		report_error("unknown argument \"%s\"", command);
		try_help();
	}
	if (options.registry == NULL || (*command == 'r' && options.name == NULL) ||
		(*command == 'c' && (options.like < 0 || options.shards.n == 0)))
	{
		report_error("--registry is needed; to run, --name; to create, --like and --shard");
		try_help();
	}
	servers[nservers++] = (char *) options.registry;
	registry = connect_server(0, true);

	/* A home names no role. */
	setenv("PGUSER", PQuser(registry), 1);
	if (*command == 'c')
		return command_create(registry);
	if (*command != 'r')
		options.shards.n = 0;
	read_registry(registry);
	return *command == 'r' ? command_run(registry) : *command == 's' ? command_status() : command_diff();
}
