/*
 * snowid-fleet: the command line.
 */
#include "fleet.h"

#include <limits.h>

struct Options options = {
	.by = "bytes",.limits.threshold = 5,.limits.max_bytes = -1,.max_lag = -1,.at_once = 1
};

#define OF_ADD		(1 << 0)
#define OF_RETIRE	(1 << 1)
#define OF_BALANCE	(1 << 2)
#define OF_DRAIN	(1 << 3)
#define OF_STATUS	(1 << 4)
#define OF_PLAN		(OF_BALANCE | OF_DRAIN)

static const Option table[] = {
	{"registry", 'r', "CONNSTR", "the directory",.string = &options.registry},
	{"directory-for-servers", 0, "CONNSTR", "how servers reach it, if not as --registry",.string = &options.for_servers,.commands = OF_ADD},
	{"weight", 0, "NUMBER", "how much of the whole the server should have (default: 1)",.string = &options.weight,.commands = OF_ADD},
	{"note", 0, "TEXT", "what status shows beside it",.string = &options.note,.commands = OF_ADD},
	{"trust-owners", 0, NULL, "read shared tables whose owners are no superusers",.flag = &options.trust_owners,.commands = OF_ADD},
	{"by", 0, "WHAT", "what to even out: bytes, inserts or shards (default: bytes)",.string = &options.by,.commands = OF_PLAN},
	{"period", 0, "INTERVAL", "for which inserts are counted (by inserts: 10s)",.string = &options.period,.commands = OF_PLAN | OF_STATUS},
	{"threshold", 0, "PERCENT", "nothing moves for less (default: 5)",.number = &options.limits.threshold,.max = 1000,.commands = OF_BALANCE},
	{"max-bytes", 0, "SIZE", "move no more",.size = &options.limits.max_bytes,.commands = OF_PLAN},
	{"max-moves", 0, "N", "move no more pools",.number = &options.limits.max_moves,.min = 1,.max = INT_MAX,.commands = OF_PLAN},
	{"at-once", 0, "N", "moves of a server at the same time (default: 1)",.number = &options.at_once,.min = 1,.max = 64,.commands = OF_PLAN},
	{"until", 0, "HH:MM", "begin nothing that would not end by then",.string = &options.until,.commands = OF_PLAN},
	{"max-lag", 0, "SIZE", "wait for standbys that are further behind",.size = &options.max_lag,.commands = OF_PLAN},
	{"keep", 0, NULL, "leave the closed copies where the shards were",.flag = &options.keep,.commands = OF_PLAN},
	{"dry-run", 0, NULL, "only look, and show",.flag = &options.dry_run,.commands = ~OF_STATUS},
	{"json", 0, NULL, "status as JSON",.flag = &options.json,.commands = OF_STATUS},
	{"html", 0, "FILE", "status as a page",.string = &options.html,.commands = OF_STATUS},
	{"verbose", 'v', NULL, "show queries that fail, with times",.flag = &verbose},
	{.name = NULL}
};

static const char synopsis[] =
"snowid-fleet decides which logical shards live on which servers, and moves them.\n\n"
"Usage:\n"
"  snowid-fleet COMMAND [NAME [HOME]] --registry=CONNSTR [OPTION]... [-- OPTION...]\n\n"
"Commands:\n"
"  add                    take a server into the fleet: its name and home\n"
"  balance                give each server its share\n"
"  drain                  move all shards of a server away\n"
"  retire                 take a server that has nothing out of the fleet\n"
"  status                 show all servers, and what moves\n";

static const char epilogue[] =
"What follows -- is given to snowid-move.\n\n"
"Exit status: 0 done; 1 not all was done, or something is to be looked at; 2 wrong\n"
"usage, or no connection; 3 ended before all was done: type the same again.\n";

/* What the fleet decides is none of snowid-move's options that can be given.  Any beginning of a name says it, too. */
static void
take_options_for_move(char **given)
{
	static const char *const ours[] = {"--shard", "--from", "--to", "--registry", "--pooler", "--stop-after", "--dry-run", "--help",
	"--version"};

	for (options.for_move = given; *given != NULL; given++, options.nfor_move++)
	{
		size_t		length = strcspn(*given, "=");

		if ((*given)[0] != '-' && (given == options.for_move || given[-1][0] != '-' || strchr(given[-1], '=') != NULL))
			refuse_usage("\"%s\" after -- is no option of snowid-move", *given);
		options.has_pooler_file |= strncmp(*given, "--pooler-file", 13) == 0;
		for (int i = 0; i < (int) lengthof(ours) && length > 2; i++)
			if (strncmp(*given, ours[i], length) == 0)
				refuse_usage("%s is decided by snowid-fleet", ours[i]);
		if (length > 4 && strncmp(*given, "--reverse", length) == 0 && !options.keep)
			refuse_usage("--reverse needs --keep: to finish a move ends it");
		if ((*given)[0] == '-' && (*given)[1] != '-')
			refuse_usage("write %s out: snowid-fleet decides on some options", *given);
	}
}

int
main(int argc, char *argv[])
{
	static const struct
	{
		const char *name;
		int			bit;
		int			min,
					max;		/* arguments */
		int			(*run) (const char *name, const char *home);
	}			commands[] = {
		{"add", OF_ADD, 1, 2, command_add}, {"retire", OF_RETIRE, 1, 1, command_retire}, {"balance", OF_BALANCE, 0, 0, command_balance},
		{"drain", OF_DRAIN, 1, 1, command_balance}, {"status", OF_STATUS, 0, 0, command_status}
	};
	const char *command;
	char	  **for_move = argv + 1;
	int			i = 0,
				nargs;

	begin_messages("snowid-fleet");
	signal(SIGPIPE, SIG_IGN);
	setenv("PGCONNECT_TIMEOUT", "10", 0);
	while (*for_move != NULL && strcmp(*for_move, "--") != 0)
		for_move++;
	for_move += *for_move != NULL;
	command = parse_command_line(argc, argv, table, synopsis, epilogue);
	if (command == NULL)
		refuse_usage("a command is needed");
	while (i < (int) lengthof(commands) && strcmp(command, commands[i].name) != 0)
		i++;
	if (i == (int) lengthof(commands))
		refuse_usage("unknown argument \"%s\"", command);
	nargs = for_move - more_arguments;	/* what follows -- keeps its place */
	if (*for_move != NULL && (commands[i].bit & OF_PLAN) == 0)
		refuse_usage("the command %s gives no options to snowid-move", command);
	if (nargs < commands[i].min || nargs > commands[i].max)
		refuse_usage("%s takes %s%s", command, commands[i].max == 0 ? "no name" : "the name of a server",
					 commands[i].max == 2 ? ", and its home" : "");
	refuse_options_but(table, commands[i].bit, command);
	take_options_for_move(for_move);
	if (options.registry == NULL)
		return refuse(EXIT_USAGE, "Type the same command with --registry=CONNSTR, which leads to the directory.", "--registry is needed");
	if (strcmp(options.by, "bytes") != 0 && strcmp(options.by, "inserts") != 0 && strcmp(options.by, "shards") != 0)
		refuse_usage("invalid value \"%s\" for option --by: it must be bytes, inserts or shards", options.by);
	if (options.limits.max_bytes == 0)
		refuse_usage("invalid value \"0\" for option --max-bytes: it must be over 0");
	if ((directory = open_directory(options.registry)) == NULL)
		return EXIT_USAGE;
	if (options.weight != NULL &&
		!try_run(directory, "SELECT 1 / (0 < w AND w < 'Infinity')::int FROM CAST(%s AS float8) w", here(options.weight)))
		refuse_usage("invalid value \"%s\" for option --weight: it must be a number over 0", options.weight);
	if (query_bool(directory, "SELECT pg_is_in_recovery()"))
		return refuse(EXIT_USAGE, "Give the primary, or all hosts and target_session_attrs=read-write.", "the server of --registry is a standby");
	if (!can_gather(directory))
		return EXIT_USAGE;
	if (options.period != NULL && !try_run(directory, "SELECT 1 / (%s::interval BETWEEN '1 ms' AND '1 hour')::int", here(options.period)))
		refuse_usage("invalid value \"%s\" for option --period: it must be an interval up to an hour, such as 10s", options.period);
	if (commands[i].bit != OF_STATUS && !options.dry_run && !lock_fleet((commands[i].bit & OF_PLAN) == 0))
		return EXIT_FAILED;
	return commands[i].run(nargs > 0 ? more_arguments[0] : NULL, nargs > 1 ? more_arguments[1] : NULL);
}
