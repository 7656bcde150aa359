/*
 * The command line.
 */
#include "commands.h"

#include <fcntl.h>
#include <limits.h>

static MoveOptions given = {
	.pause_limit_ms = 1000,.lock_timeout_ms = 100,.retries = 20,
	.number = -1,.max_wal = INT64CONST(10) << 30,.max_lag = 1 << 20
};
static ShardSet shards;
static StringList poolers;
static const char *verify_depth = "counts";
static const char *stop_after;
static const char *target_ddl;

/* What move and plan have, and what hands shards over. */
#define COPIES			(OF_MOVE | OF_PLAN)
#define HANDS_OVER		(COPIES | OF_SPLIT | OF_BACK)

/* What gives another state the shard's place. */
#define SWAPS			(OF_RESTORE | OF_UNDO)

/* What does no harm if it is repeated with a command that goes on. */
#define OF_ANY_MOVE		(OF_MOVES & ~OF_SPLIT)

static const Option table[] = {
	{"shard", 's', "SET", "the shards: numbers and ranges, as in 0-999,1500",.shards = &shards,.commands = OF_SHARDS},
	{"from", 'f', "CONNSTR", "the server where they live, if not as the registry has it",.string = &given.from,.commands = ~OF_AUDIT},
	{"to", 't', "CONNSTR", "the server to move them to; with a registry, a name will do",.string = &given.to,.commands = OF_SHARDS & ~OF_ERASE},
	{"batch", 0, "N", "how many to copy together (default: by what the\nservers have free)",.number = &given.batch,.min = 1,.max = MAX_SHARD + 1,.commands = COPIES},
	{"jobs", 0, "N", "sessions that copy (default: by processors)",.number = &given.jobs,.min = 1,.max = 64,.commands = COPIES},
	{"target-ddl", 0, "FILE", "SQL to run in each new schema before the rows",.string = &target_ddl,.commands = COPIES},
	{"source-for-target", 0, "CONNSTR", "how the target reaches the source (default: as --from)",.string = &given.source_for_target,.commands = OF_ANY_MOVE},
	{"target-for-source", 0, "CONNSTR", "how the source reaches the target (default: as --to)",.string = &given.target_for_source,.commands = OF_ANY_MOVE},
	{"registry", 0, "CONNSTR", "a third server that keeps the registry of all",.string = &given.registry,.commands = ~(OF_ROUTE | OF_DIFF)},
	{"pooler", 0, "CONNSTR", "PgBouncer's admin console, to let its clients wait and\nfollow; may be given several times",.strings = &poolers,.commands = OF_MOVES | SWAPS},
	{"pooler-file", 0, "PATH", "the entries, which its configuration includes",.string = &given.pooler_file,.commands = OF_MOVES | SWAPS},
	{"pooler-command", 0, "CMD", "run with that path, to bring the file to other machines",.string = &given.pooler_command,.commands = OF_MOVES | SWAPS},
	{"pause-limit", 0, "MS", "longest time that writes may wait (default: 1000)",.number = &given.pause_limit_ms,.min = 1,.max = INT_MAX,.commands = OF_MOVES | SWAPS},
	{"lock-timeout", 0, "MS", "longest wait for a lock (default: 100)",.number = &given.lock_timeout_ms,.min = 1,.max = INT_MAX,.commands = OF_MOVES | SWAPS | OF_ERASE},
	{"retries", 0, "N", "how often to try again to cut over (default: 20)",.number = &given.retries,.max = INT_MAX,.commands = HANDS_OVER | SWAPS | OF_ERASE},
	{"verify", 0, "DEPTH", "compare none, counts or checksums (default: counts)",.string = &verify_depth,.commands = COPIES},
	{"max-wal", 0, "SIZE", "log that the source may keep for it (default: 10GB)",.size = &given.max_wal,.commands = COPIES | OF_BACK},
	{"max-lag", 0, "SIZE", "how close to follow before the cut-over (default: 1MB)",.size = &given.max_lag,.commands = HANDS_OVER},
	{"stop-after", 0, "copied", "copy now; the same command without it cuts over later",.string = &stop_after,.commands = COPIES},
	{"reverse", 0, NULL, "replicate back afterwards, so that \"back\" loses nothing",.flag = &given.reverse,.commands = COPIES},
	{"keep-name", 0, NULL, "don't rename the copy that is left behind",.flag = &given.keep_name,.commands = COPIES},
	{"trust-owners", 0, NULL, "let functions of the shard's owners run as superuser",.flag = &given.trust_owners,.commands = OF_ANY_MOVE | OF_COPY | SWAPS | OF_DIFF},
	{"cascade", 0, NULL, "finish, abort and erase also drop what other schemas have on the\ncopy, and a copy that was changed after it was closed",.flag = &given.cascade,.commands = OF_FINISH | OF_ABORT | OF_ERASE},
	{"dry-run", 0, NULL, "finish, erase and restore say what would be lost, and change nothing",.flag = &given.dry_run,.commands = OF_FINISH | OF_RESTORE | OF_ERASE},
	{"fix", 0, NULL, "audit mends what can lose nothing",.flag = &given.fix,.commands = OF_AUDIT},
	{"fix-script", 0, "FILE", "plan writes the commands for the source there",.string = &given.fix_script,.commands = OF_PLAN},
	{"as", 0, "SCHEMA", "copy into that schema; diff with it at --to",.string = &given.as,.commands = OF_DIFF | OF_COPY},
	{"number", 0, "N", "make the copy a shard of that number",.number = &given.number,.max = MAX_SHARD,.commands = OF_COPY},
	{"to-file", 0, "DIR", "copy into pg_dump's directory format",.string = &given.to_file,.commands = OF_COPY},
	{"definitions", 0, NULL, "copy a shard without rows, with registry and ledger",.flag = &given.definitions,.commands = OF_COPY},
	{"keys", 0, NULL, "diff and restore --dry-run name each row",.flag = &given.keys,.commands = OF_DIFF | OF_RESTORE},
	{"yes", 0, NULL, "erase without being asked again; restore what no server has",.flag = &given.yes,.commands = OF_ERASE | OF_RESTORE},
	{"json", 0, NULL, "plan and status as JSON, an object on each line",.flag = &given.json,.commands = OF_PLAN | OF_STATUS},
	{"bindir", 0, "DIR", "where pg_dump and pg_restore are",.string = &given.bindir,.commands = OF_ANY_MOVE | OF_COPY | OF_RESTORE},
	{"verbose", 'v', NULL, "show each step, with times",.flag = &verbose},
	{.name = NULL}
};

static const char synopsis[] =
"snowid-move moves logical shards of snowid to another server.\n\n"
"Usage:\n"
"  snowid-move [COMMAND] --shard=SET --from=CONNSTR --to=CONNSTR [OPTION]...\n\n"
"Commands:\n"
"  plan                   check and say what would be done, and change nothing\n"
"  move                   move the shards, or go on with it (default)\n"
"  split                  split the shards off to a standby of their server\n"
"  route                  print the entries of PgBouncer; needs only --from\n"
"  status                 show how far a move is; without --shard, all that\n"
"                         a server or the --registry knows of\n"
"  abort                  undo a move that has not been completed\n"
"  back                   take the shards back, after a move with --reverse\n"
"  finish                 drop the copies that a move has left behind\n"
"  audit                  look at every server of the --registry for what\n"
"                         contradicts itself, and say what mends it\n"
"  copy                   copy a shard into a closed schema, a shard or a file\n"
"  restore                bring a shard back as it is at --from\n"
"  undo                   undo a restore; needs only --to\n"
"  diff                   count the rows that are only at --from, only at --to,\n"
"                         or differ\n"
"  erase                  drop a shard and its copies on all servers that --from or\n"
"                         the --registry knows of\n";

static const char epilogue[] =
"Exit status: 0 done; 1 failed, and the shard is where it was; 2 wrong usage, or\n"
"no connection; 3 decided but not complete: type the same command again.\n";

static const char *const depths[] = {"none", "counts", "checksums", NULL};
static const char *const steps[] = {"copied", NULL};

/* Which of some words, in the order of their enum, an option says. */
static int
parse_word(const char *option, const char *value, const char *const *words, const char *all)
{
	for (int i = 0; words[i] != NULL; i++)
		if (strcmp(value, words[i]) == 0)
			return i;
	report_error("invalid value \"%s\" for option %s", value, option);
	report_detail("It must be %s.", all);
	exit(EXIT_USAGE);
}

/* What a file has; without it, nothing is done. */
static char *
read_file(const char *path)
{
	int			fd = open(path, O_RDONLY);

	if (fd < 0)
	{
		report_error("could not open file \"%s\": %m", path);
		exit(EXIT_USAGE);
	}
	return read_all(fd);
}

/* Append an argument, as a shell takes it. */
static void
append_argument(PQExpBuffer line, const char *option, const char *value)
{
	if (value == NULL)
		return;
	appendPQExpBuffer(line, " %s %s", option, shell_word(value));
}

/* A command for these shards, whole, as it is to be typed: with the sides as their move was begun. */
char *
whole_command(const Move *move, const char *verb)
{
	const MoveOptions *options = move->options;
	bool		is_exchanged = move->nshards > 0 &&
	(move->shards[0]->journals[0].begun_as == TARGET || move->shards[0]->journals[1].begun_as == SOURCE);
	const char *from = is_exchanged ? options->to : options->from;
	const char *to = is_exchanged ? options->from : options->to;
	PQExpBufferData line;

	initPQExpBuffer(&line);
	appendPQExpBuffer(&line, "snowid-move %s --shard %s", verb, move->title + strcspn(move->title, "0123456789"));
	append_argument(&line, "--from", from == NULL ? NULL : without_password("--from", from));
	append_argument(&line, "--to", without_password("--to", to));
	append_argument(&line, "--registry", options->registry == NULL ? NULL : without_password("--registry", options->registry));
	for (int i = 0; i < options->npoolers; i++)
		append_argument(&line, "--pooler", without_password("--pooler", options->poolers[i]));
	append_argument(&line, "--pooler-file", options->pooler_file);
	append_argument(&line, "--pooler-command", options->pooler_command);
	return keep_text(line.data);
}

const Command *
parse_options(int argc, char *argv[], MoveOptions *options)
{
	const char *name = parse_command_line(argc, argv, table, synopsis, epilogue);
	const Command *command = find_command(name != NULL ? name : "move");

	refuse_more_arguments();
	if (command == NULL)
		refuse_usage("unknown argument \"%s\"", name);
	refuse_options_but(table, command->bit, command->name);
	given.verify = parse_word("--verify", verify_depth, depths, "none, counts or checksums");
	if (stop_after != NULL)
		given.stop_after_copy = parse_word("--stop-after", stop_after, steps, "copied") == 0;
	if (target_ddl != NULL)
		given.target_ddl = read_file(target_ddl);
	if (given.registry != NULL)
		(void) without_password("--registry", given.registry);
	for (int i = 0; i < poolers.n; i++)
		(void) without_password("--pooler", poolers.items[i]);
	given.shards = shards.numbers;
	given.nshards = shards.n;
	given.poolers = poolers.items;
	given.npoolers = poolers.n;
	*options = given;
	if (command->run_alone != NULL && (command->bit & (OF_DIFF | OF_ERASE | OF_COPY | SWAPS | OF_FINISH)) == 0 && given.nshards == 0 && (given.registry != NULL || given.from != NULL || given.to != NULL))
		return command;
	if (command->bit == OF_AUDIT)
		refuse_usage("--registry is needed");
	if (given.npoolers > 0 && given.pooler_file == NULL)
		refuse_usage("--pooler needs --pooler-file");
	if (given.npoolers == 0 && (given.pooler_file != NULL || given.pooler_command != NULL) && (command->bit & (HANDS_OVER | SWAPS)) != 0)
		refuse_usage("--pooler-file and --pooler-command need --pooler");
	if (given.target_ddl != NULL && given.reverse)
		refuse_usage("--target-ddl and --reverse cannot be used together: the source could not take what the target then has");
	if (command->bit == OF_ERASE)
		return given.nshards == 1 && (given.from != NULL || given.registry != NULL) ? command :
			(refuse_usage("--from or --registry is needed, and --shard with one number"), NULL);
	if (given.nshards > 0 && given.to != NULL && (command->bit == OF_UNDO || (command->bit == OF_FINISH && given.from == NULL && given.registry == NULL)))
		return command;
	if (given.nshards > 0 && given.from != NULL && given.to_file != NULL)
		return command;
	if (given.nshards == 0 || (given.from == NULL && (given.registry == NULL || (command->bit & (OF_COPY | OF_RESTORE)) != 0)) || given.to == NULL)
		refuse_usage("--shard, --from and --to are needed");
	if ((given.as != NULL || given.number >= 0) && given.nshards > 1)
		refuse_usage("--as and --number are for one shard");
	if (given.registry == NULL && (is_server_name(given.from) || is_server_name(given.to)))
		refuse_usage("the name of a server needs --registry, which has its home");
	return command;
}
