/*
 * snowid-each: the command line, and the report at the end.
 */
#include "each.h"

#include <limits.h>

struct Options options = {
	.like = -1,.jobs = 4,.lock_timeout_ms = 1000,.wait_s = 600,.max_lag = -1,.format = "table"
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
	{"each-server", 0, NULL, "run: once on each server, not in its shards",.flag = &options.each_server},
	{"dry-run", 0, NULL, "only tell in which shards the script would run",.flag = &options.dry_run},
	{"trust-owners", 0, NULL, "let code of the shards' owners run with your rights",.flag = &options.trust_owners},
	{"keep-texts", 0, NULL, "create: keep texts that name the other schema",.flag = &options.keep_texts},
	{"then", 0, "SQL", "query: ask this of the answers",.string = &options.then},
	{"format", 0, "FORMAT", "query: table, csv or json (default: table)",.string = &options.format},
	{"partial", 0, NULL, "query: tell what there is, though not all answer",.flag = &options.partial},
	{"snapshot", 0, NULL, "query: all shards of a server in one snapshot",.flag = &options.snapshot},
	{"json", 0, NULL, "status, diff, the report of run: as JSON",.flag = &options.json},
	{"like", 0, "SHARD", "create: the shard that the new ones are like",.number = &options.like,.max = MAX_SHARD},
	{"bindir", 0, "DIR", "where pg_dump is",.string = &options.bindir},
	{"verbose", 'v', NULL, "show queries that fail, with times",.flag = &verbose},
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
"  create                 make shards as another one is\n"
"  query SQL              ask all shards, and all answers by --then\n"
"  exec -- PROGRAM ...    run a program once for each shard\n"
"  forget                 let ledgers know nothing of a name\n";

static const char epilogue[] =
"Exit status: 0 done; 1 not in all shards, or not alike; 2 wrong usage, or no\n"
"connection.\n";

/* Do in each shard what is to be done, and report. */
static int
command_run(PGconn *registry, Action action, const char *done)
{
	int64		start = now_ms();
	int			left = 0;

	work_off(registry, action);
	for (Task *task = tasks; task < tasks + ntasks; task++)
		if (task->state != DONE && task->state != HAD)
		{
			note(task->state == FAILED ? "failed" : "not done", task->message[0] != '\0' ? task->message : "not begun", task->shard);
			left++;
		}
		else if (task->state == DONE && options.dry_run)
			note("would run", task->message, task->shard);
		else if (options.json)
			note("done", task->state == DONE ? "now" : "before", task->shard);
	report_info("%d %s %s in %.1f s, %d had it before, %d are left",
				count_tasks(DONE), options.each_server ? "servers" : "shards", done, (now_ms() - start) / 1000.0, count_tasks(HAD), left);
	(void) tell_notes(-1);
	return left == 0 ? EXIT_DONE : EXIT_FAILED;
}

int
main(int argc, char *argv[])
{
	static const char *const commands[] = {"run", "status", "diff", "create", "forget", "query", "exec"};
	const char *command;
	PGconn	   *registry;
	int			i = 0;

	begin_messages("snowid-each");
	command = parse_command_line(argc, argv, table, synopsis, epilogue);
	command = command != NULL ? command : "run";
	while (i < (int) lengthof(commands) && strcmp(command, commands[i]) != 0)
		i++;
	if (i == (int) lengthof(commands))
		refuse_usage("unknown argument \"%s\"", command);
	if (*command == 'e' && (more_arguments[0] == NULL || options.name == NULL))
		refuse_usage("to exec, --name and a program are needed");
	if (*command != 'q' && *command != 'e')
		refuse_more_arguments();
	else if (*command == 'q' && (more_arguments[0] == NULL || more_arguments[1] != NULL))
		refuse_usage("to query, one argument is needed, the query");
	if (strcmp(options.format, "table") != 0 && strcmp(options.format, "csv") != 0 && strcmp(options.format, "json") != 0)
		refuse_usage("invalid value \"%s\" for option --format", options.format);
	if (options.registry == NULL)
		refuse_usage("--registry is needed");
	if (((*command == 'r' || *command == 'f') && (options.name == NULL || *options.name == '\0')) ||
		(*command == 'f' && options.shards.n == 0) || (*command == 'c' && (options.like < 0 || options.shards.n == 0)))
		refuse_usage("what is missing: to run, --name; to create, --like and --shard; to forget, --name and --shard");
	if (options.each_server && (*command != 'r' || options.file == NULL || options.shards.n > 0 || options.canary > 0))
		refuse_usage("--each-server is for run, with --file, without --shard and --canary");
	runs_others = strchr("erq", *command) != NULL;
	add_registry(options.registry);
	registry = connect_server(0);
	if (PQstatus(registry) != CONNECTION_OK)
		refuse_call("registry: %s", PQerrorMessage(registry));
	if (!knows_version(registry))
		return EXIT_USAGE;

	/* A home names no role. */
	setenv("PGUSER", PQuser(registry), 1);
	if (*command == 'c')
		return command_create(registry);
	read_registry(registry);
	if (options.each_server)
		take_servers(registry);
	if (*command == 's')
		return command_status();
	if (*command == 'd')
		return command_diff();
	if (*command == 'q')
		return command_query(registry, more_arguments[0]);
	if (*command == 'f')
		return command_run(registry, forget, "have forgotten it");
	if (*command == 'e')
		take_command(more_arguments);
	else
		read_script(registry);
	return command_run(registry, migrate, options.dry_run ? "would run it" : "done");
}
