/*
 * The command line.
 */
#include "commands.h"

#include <fcntl.h>
#include <getopt.h>
#include <limits.h>

enum
{
	OPT_SOURCE_FOR_TARGET = 256, OPT_TARGET_FOR_SOURCE, OPT_REGISTRY, OPT_PAUSE_LIMIT,
	OPT_LOCK_TIMEOUT, OPT_RETRIES, OPT_VERIFY, OPT_MAX_WAL, OPT_MAX_LAG,
	OPT_STOP_AFTER, OPT_REVERSE, OPT_KEEP_NAME, OPT_BINDIR, OPT_TRUST_OWNERS, OPT_CASCADE, OPT_BATCH,
	OPT_FIX_SCRIPT, OPT_JOBS, OPT_TARGET_DDL,
	OPT_POOLER, OPT_POOLER_FILE, OPT_POOLER_COMMAND, OPT_ENTRY_OPTIONS
};

static const struct option long_options[] = {
	{"shard", required_argument, NULL, 's'},
	{"from", required_argument, NULL, 'f'},
	{"to", required_argument, NULL, 't'},
	{"source-for-target", required_argument, NULL, OPT_SOURCE_FOR_TARGET},
	{"target-for-source", required_argument, NULL, OPT_TARGET_FOR_SOURCE},
	{"registry", required_argument, NULL, OPT_REGISTRY},
	{"pooler", required_argument, NULL, OPT_POOLER},
	{"pooler-file", required_argument, NULL, OPT_POOLER_FILE},
	{"pooler-command", required_argument, NULL, OPT_POOLER_COMMAND},
	{"entry-options", required_argument, NULL, OPT_ENTRY_OPTIONS},
	{"pause-limit", required_argument, NULL, OPT_PAUSE_LIMIT},
	{"lock-timeout", required_argument, NULL, OPT_LOCK_TIMEOUT},
	{"retries", required_argument, NULL, OPT_RETRIES},
	{"verify", required_argument, NULL, OPT_VERIFY},
	{"max-wal", required_argument, NULL, OPT_MAX_WAL},
	{"max-lag", required_argument, NULL, OPT_MAX_LAG},
	{"stop-after", required_argument, NULL, OPT_STOP_AFTER},
	{"reverse", no_argument, NULL, OPT_REVERSE},
	{"keep-name", no_argument, NULL, OPT_KEEP_NAME},
	{"bindir", required_argument, NULL, OPT_BINDIR},
	{"trust-owners", no_argument, NULL, OPT_TRUST_OWNERS},
	{"cascade", no_argument, NULL, OPT_CASCADE},
	{"batch", required_argument, NULL, OPT_BATCH},
	{"fix-script", required_argument, NULL, OPT_FIX_SCRIPT},
	{"jobs", required_argument, NULL, OPT_JOBS},
	{"target-ddl", required_argument, NULL, OPT_TARGET_DDL},
	{"verbose", no_argument, NULL, 'v'},
	{"version", no_argument, NULL, 'V'},
	{"help", no_argument, NULL, '?'},
	{NULL, 0, NULL, 0}
};

static void
usage(void)
{
	printf("%s moves logical shards of snowid to another server.\n\n", progname);
	printf("Usage:\n");
	printf("  %s [COMMAND] --shard=SET --from=CONNSTR --to=CONNSTR [OPTION]...\n\n", progname);
	printf("Commands:\n");
	printf("  plan                   check and say what would be done, and change nothing\n");
	printf("  move                   move the shards, or go on with it (default)\n");
	printf("  split                  split the shards off to a standby of their server\n");
	printf("  route                  print the entries of PgBouncer; needs only --from\n");
	printf("  status                 show how far a move is\n");
	printf("  abort                  undo a move that has not been completed\n");
	printf("  back                   take the shards back, after a move with --reverse\n");
	printf("  finish                 drop the copies that a move has left behind\n\n");
	printf("Options:\n");
	printf("  -s, --shard=SET        the shards: numbers and ranges, as in 0-999,1500\n");
	printf("  -f, --from=CONNSTR     the server where they live\n");
	printf("  -t, --to=CONNSTR       the server to move them to\n");
	printf("      --batch=N          how many to copy together (default: by what the\n"
		   "                         servers have free)\n");
	printf("      --jobs=N           sessions that copy (default: by processors)\n");
	printf("      --target-ddl=FILE  SQL to run in each new schema before the rows\n");
	printf("      --source-for-target=CONNSTR\n");
	printf("                         how the target reaches the source (default: as --from)\n");
	printf("      --target-for-source=CONNSTR\n");
	printf("                         how the source reaches the target (default: as --to)\n");
	printf("      --registry=CONNSTR a third server that keeps the registry of all\n");
	printf("      --pooler=CONNSTR   PgBouncer's admin console, to let its clients wait and\n"
		   "                         follow; may be given several times\n");
	printf("      --pooler-file=PATH the entries, which its configuration includes\n");
	printf("      --pooler-command=CMD\n");
	printf("                         run with that path, to bring the file to other machines\n");
	printf("      --entry-options=TEXT\n");
	printf("                         what each entry has besides (%%p: its pool)\n");
	printf("      --pause-limit=MS   longest time that writes may wait (default: 1000)\n");
	printf("      --lock-timeout=MS  longest wait for a lock (default: 100)\n");
	printf("      --retries=N        how often to try again to cut over (default: 20)\n");
	printf("      --verify=DEPTH     compare none, counts or checksums (default: counts)\n");
	printf("      --max-wal=SIZE     log that the source may keep for it (default: 10GB)\n");
	printf("      --max-lag=SIZE     how close to follow before the cut-over (default: 1MB)\n");
	printf("      --stop-after=copied\n");
	printf("                         copy now; the same command without it cuts over later\n");
	printf("      --reverse          replicate back afterwards, so that \"back\" loses nothing\n");
	printf("      --keep-name        don't rename the copy that is left behind\n");
	printf("      --trust-owners     let functions of the shard's owners run as superuser\n");
	printf("      --cascade          finish also drops what other schemas have on the copy,\n"
		   "                         and a copy that was changed after it was closed\n");
	printf("      --fix-script=FILE  plan writes the commands for the source there\n");
	printf("      --bindir=DIR       where pg_dump and pg_restore are\n");
	printf("  -v, --verbose          show each step\n");
	printf("  -V, --version          output version information, then exit\n");
	printf("  -?, --help             show this help, then exit\n\n");
	printf("Exit status: 0 done; 1 failed, and the shard is where it was; 2 wrong usage, or\n"
		   "no connection; 3 decided but not complete: type the same command again.\n");
}

static Verify
parse_verify(const char *value)
{
	if (strcmp(value, "none") == 0)
		return VERIFY_NONE;
	if (strcmp(value, "counts") == 0)
		return VERIFY_COUNTS;
	if (strcmp(value, "checksums") == 0)
		return VERIFY_CHECKSUMS;
	report_error("invalid value \"%s\" for option --verify", value);
	report_detail("It must be none, counts or checksums.");
	exit(EXIT_USAGE);
}

static StopAfter
parse_stop_after(const char *value)
{
	if (strcmp(value, "copied") == 0)
		return STOP_COPIED;
	report_error("invalid value \"%s\" for option --stop-after", value);
	report_detail("It must be copied.");
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

/* What one option says. */
static void
parse_option(int option, char *argv[], MoveOptions *options)
{
	switch (option)
	{
		case 's':
			options->nshards = parse_shards(optarg, &options->shards);
			break;
		case 'f':
			options->from = optarg;
			break;
		case 't':
			options->to = optarg;
			break;
		case OPT_SOURCE_FOR_TARGET:
			options->source_for_target = optarg;
			break;
		case OPT_TARGET_FOR_SOURCE:
			options->target_for_source = optarg;
			break;
		case OPT_REGISTRY:
			options->registry = optarg;
			(void) without_password("--registry", optarg);
			break;
		case OPT_POOLER:
			options->poolers = options->npoolers == 0 ? pg_malloc(sizeof(char *))
				: pg_realloc(options->poolers, (options->npoolers + 1) * sizeof(char *));
			options->poolers[options->npoolers++] = optarg;
			break;
		case OPT_POOLER_FILE:
			options->pooler_file = optarg;
			break;
		case OPT_POOLER_COMMAND:
			options->pooler_command = optarg;
			break;
		case OPT_ENTRY_OPTIONS:
			options->entry_options = optarg;
			break;
		case OPT_PAUSE_LIMIT:
			options->pause_limit_ms = parse_int("--pause-limit", optarg, 1, INT_MAX);
			break;
		case OPT_LOCK_TIMEOUT:
			options->lock_timeout_ms = parse_int("--lock-timeout", optarg, 1, INT_MAX);
			break;
		case OPT_RETRIES:
			options->retries = parse_int("--retries", optarg, 0, INT_MAX);
			break;
		case OPT_VERIFY:
			options->verify = parse_verify(optarg);
			break;
		case OPT_MAX_WAL:
			options->max_wal = parse_size("--max-wal", optarg);
			break;
		case OPT_MAX_LAG:
			options->max_lag = parse_size("--max-lag", optarg);
			break;
		case OPT_STOP_AFTER:
			options->stop_after = parse_stop_after(optarg);
			break;
		case OPT_REVERSE:
			options->reverse = true;
			break;
		case OPT_KEEP_NAME:
			options->keep_name = true;
			break;
		case OPT_BINDIR:
			options->bindir = optarg;
			break;
		case OPT_TRUST_OWNERS:
			options->trust_owners = true;
			break;
		case OPT_BATCH:
			options->batch = parse_int("--batch", optarg, 1, MAX_SHARD + 1);
			break;
		case OPT_FIX_SCRIPT:
			options->fix_script = optarg;
			break;
		case OPT_JOBS:
			options->jobs = parse_int("--jobs", optarg, 1, 64);
			break;
		case OPT_TARGET_DDL:
			options->target_ddl = read_file(optarg);
			break;
		case OPT_CASCADE:
			options->cascade = true;
			break;
		case 'v':
			verbose = true;
			break;
		case 'V':
			printf("%s (snowid) %s\n", progname, PROGRAM_VERSION);
			exit(0);
		case '?':
			if (optopt == 0 && strcmp(argv[optind - 1], "--help") == 0)
			{
				usage();
				exit(0);
			}
			try_help();
	}
}

const Command *
parse_options(int argc, char *argv[], MoveOptions *options)
{
	const Command *command;
	int			option;

	*options = (MoveOptions)
	{
		.pause_limit_ms = 1000,.lock_timeout_ms = 100,
			.retries = 20,.verify = VERIFY_COUNTS,.max_wal = INT64CONST(10) << 30,
			.max_lag = 1 << 20
	};
	if (argc > 1 && strcmp(argv[1], "-?") == 0)
	{
		usage();
		exit(0);
	}
	while ((option = getopt_long(argc, argv, "s:f:t:vV", long_options, NULL)) != -1)
		parse_option(option, argv, options);

	command = find_command(optind < argc ? argv[optind] : "move");
	if (command == NULL || optind + 1 < argc)
	{
		report_error("unknown argument \"%s\"", argv[command == NULL ? optind : optind + 1]);
		try_help();
	}
	if (command->run == NULL && options->from != NULL)
		return command;
	if (options->npoolers > 0 && options->pooler_file == NULL)
	{
		report_error("--pooler needs --pooler-file");
		try_help();
	}
	if (options->nshards == 0 || options->from == NULL || options->to == NULL)
	{
		report_error("--shard, --from and --to are needed");
		try_help();
	}
	return command;
}
