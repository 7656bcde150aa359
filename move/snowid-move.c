/*
 * snowid-move: moves a logical shard from one server to another, while it is
 * written.
 *
 * This file has the options and the commands.  A command reads the two
 * journals, and goes on from where they are; so each can be repeated, after
 * whatever has ended it.
 */
#include "postgres_fe.h"

#include <getopt.h>
#include <limits.h>

#include "snowid-move.h"

#define SNOWID_MOVE_VERSION "1.0"

static void
usage(void)
{
	printf("%s moves a logical shard of snowid to another server.\n\n", progname);
	printf("Usage:\n");
	printf("  %s [COMMAND] --shard=NUMBER --from=CONNSTR --to=CONNSTR [OPTION]...\n\n", progname);
	printf("Commands:\n");
	printf("  plan                   check and say what would be done, and change nothing\n");
	printf("  move                   move the shard, or go on with it (default)\n");
	printf("  status                 show how far a move is\n");
	printf("  abort                  undo a move that has not been completed\n");
	printf("  back                   take the shard back, after a move with --reverse\n");
	printf("  finish                 drop the copy that a move has left behind\n\n");
	printf("Options:\n");
	printf("  -s, --shard=NUMBER     the shard\n");
	printf("  -f, --from=CONNSTR     the server where it lives\n");
	printf("  -t, --to=CONNSTR       the server to move it to\n");
	printf("      --source-for-target=CONNSTR\n");
	printf("                         how the target reaches the source (default: as --from)\n");
	printf("      --target-for-source=CONNSTR\n");
	printf("                         how the source reaches the target (default: as --to)\n");
	printf("      --registry=CONNSTR a third server that keeps the registry of all\n");
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
	printf("      --bindir=DIR       where pg_dump is\n");
	printf("  -v, --verbose          show each step\n");
	printf("  -V, --version          output version information, then exit\n");
	printf("  -?, --help             show this help, then exit\n\n");
	printf("Exit status: 0 done; 1 failed, and the shard is where it was; 2 wrong usage, or\n"
		   "no connection; 3 decided but not complete: type the same command again.\n");
}

static void
try_help(void)
{
	fprintf(stderr, "Try \"%s --help\" for more information.\n", progname);
	exit(EXIT_USAGE);
}

static int
parse_int(const char *option, const char *value, int min, int max)
{
	char	   *end;
	long		n;

	errno = 0;
	n = strtol(value, &end, 10);
	if (end == value || *end != '\0' || errno != 0 || n < min || n > max)
	{
		report_error("invalid value \"%s\" for option %s", value, option);
		report_detail("It must be a number from %d to %d.", min, max);
		exit(EXIT_USAGE);
	}
	return (int) n;
}

static int64
parse_size(const char *option, const char *value)
{
	static const struct
	{
		const char *unit;
		int			shift;
	}			units[] = {{"", 0}, {"B", 0}, {"kB", 10}, {"MB", 20}, {"GB", 30}, {"TB", 40}};
	char	   *end;
	long long	n;

	errno = 0;
	n = strtoll(value, &end, 10);
	if (end != value && errno == 0 && n >= 0)
		for (int i = 0; i < (int) lengthof(units); i++)
			if (strcmp(end, units[i].unit) == 0 && n <= (PG_INT64_MAX >> units[i].shift))
				return (int64) n << units[i].shift;
	report_error("invalid size \"%s\" for option %s", value, option);
	report_detail("Units are B, kB, MB, GB and TB.");
	exit(EXIT_USAGE);
}

/* Show what the journals say. */
static void
show_side(const Move *move, const Side *side)
{
	const Journal *j = &side->journal;
	PGresult   *res;

	printf("%s (%s): ", side->label, side->home);
	if (!j->exists)
	{
		printf("no move of shard %d\n", move->options->shard);
		return;
	}
	printf("%s, %s, schema \"%s\", %s for writing, since %s\n", j->role, j->step, j->schema,
		   j->closed ? "closed" : "open",
		   query_text(side->conn, "SELECT date_trunc('second', changed_at) FROM snowid.moves WHERE shard = %d",
					  move->options->shard));
	res = query(side->conn,
				"SELECT slot_name, active, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint >> 20, "
				"coalesce((SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint::text || ' bytes behind' "
				"FROM pg_stat_replication r WHERE r.pid = s.active_pid), 'not connected') "
				"FROM pg_replication_slots s WHERE slot_name IN (%s, %s)",
				literal(side->conn, j->name), literal(side->conn, j->reverse_name));
	for (int i = 0; i < PQntuples(res); i++)
		printf("  slot %s keeps %s MB of log; the other server is %s\n",
			   PQgetvalue(res, i, 0), PQgetvalue(res, i, 2), PQgetvalue(res, i, 3));
	PQclear(res);
}

/* After a way back, the copy that is left behind is on the other side. */
static void
swap_sides(Move *move)
{
	Side		source = move->source;

	move->source = move->target;
	move->target = source;
	move->source.label = "source";
	move->target.label = "target";
}

static const char *
what_next(const Move *move)
{
	const Side *source = &move->source;
	const Side *target = &move->target;

	if (!source->journal.exists && !target->journal.exists)
		return "nothing is under way";
	if (is_role(source, "source") && is_role(target, "source") && is_at(source, "moved"))
		return "an abort of the way back was begun: type snowid-move abort";
	if (is_at(source, "ready"))
		return "a way back was begun: type snowid-move back to go on, or abort";
	if (is_at(source, "aborted") || is_at(target, "aborted") || !source->journal.exists)
		return "an abort was begun: type snowid-move abort";
	if (is_at(source, "moved"))
		return source->journal.reverse && is_at(target, "open")
			? "moved, and replicated back: type snowid-move finish, or back"
			: "moved: type snowid-move finish";
	if (is_at(source, "fenced"))
		return "decided, but not complete: type the same command again";
	return "under way: type snowid-move move to go on, or abort";
}

static void
command_status(Move *move)
{
	if (is_role(&move->source, "target"))
		swap_sides(move);
	printf("shard %d: %s\n", move->options->shard, what_next(move));
	show_side(move, &move->source);
	show_side(move, &move->target);
}

/* A shard that is not registered, or not there, cannot be moved away. */
static void
check_source(const Move *move)
{
	PGconn	   *conn = move->source.conn;
	char	   *home;

	if (move->schema == NULL)
	{
		report_error("shard %d does not exist on the source", move->options->shard);
		report_hint("Type there: SELECT * FROM snowid.shards;");
		exit(EXIT_USAGE);
	}
	home = query_text(conn, "SELECT snowid.shard_home(%d)", move->options->shard);
	if (strcmp(home, "here") != 0)
	{
		report_error("shard %d does not live on the source", move->options->shard);
		report_detail("The source's registry says: %s", home);
		exit(EXIT_USAGE);
	}
}

static void
command_plan(Move *move)
{
	PGresult   *res;

	check_source(move);

	if (!run_prechecks(move))
	{
		printf("shard %d cannot be moved yet; nothing was changed\n", move->options->shard);
		exit(EXIT_FAILED);
	}
	res = query(move->source.conn,
				"SELECT count(*), pg_size_pretty(coalesce(sum(pg_table_size(c.oid)), 0)) "
				"FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
				"WHERE n.nspname = %s AND c.relkind = 'r'", literal(move->source.conn, move->schema));
	printf("shard %d, schema \"%s\", %s tables, %s, would move from %s to %s; nothing was changed\n",
		   move->options->shard, move->schema, PQgetvalue(res, 0, 0), PQgetvalue(res, 0, 1),
		   move->source.home, move->target.home);
	PQclear(res);
}

/*
 * A server whose journal names another one than the one that we were given,
 * which knows nothing of the move: a wrong --from or --to.  To abort or finish
 * with it would leave the right one as it is, perhaps open.
 */
static void
check_peer(const Move *move, const Side *side, const Side *other, const char *option)
{
	if (!side->journal.exists || other->conn == NULL || other->journal.exists ||
		side->journal.peer == NULL || strcmp(side->journal.peer, other->home) == 0)
		return;
	report_error("the %s moves shard %d with another server than that of %s",
				 side->label, move->options->shard, option);
	report_detail("Its journal says: %s. Given was: %s.", side->journal.peer, other->home);
	exit(EXIT_USAGE);
}

/* What neither server's journal explains is not touched. */
static void
check_journals(const Move *move)
{
	const Journal *s = &move->source.journal;
	const Journal *t = &move->target.journal;
	int			shard = move->options->shard;

	if ((s->exists && s->move_id == NULL) || (t->exists && t->move_id == NULL))
	{
		report_error("shard %d is closed by hand on the %s", shard,
					 s->exists && s->move_id == NULL ? "source" : "target");
		report_hint("Type there: SELECT snowid.unfence_shard(%d);", shard);
		exit(EXIT_FAILED);
	}
	if (s->exists && t->exists && strcmp(s->move_id, t->move_id) != 0)
	{
		report_error("the two servers have shard %d in different moves", shard);
		report_hint("Each knows its other server: SELECT * FROM snowid.moves; Finish or abort those first.");
		exit(EXIT_FAILED);
	}
	check_peer(move, &move->source, &move->target, "--to");
	check_peer(move, &move->target, &move->source, "--from");
}

static void
command_move(Move *move)
{
	Side	   *source = &move->source;
	Side	   *target = &move->target;

	if (is_role(source, "target") || is_role(target, "source"))
	{
		report_error("shard %d is not at the source", move->options->shard);
		report_hint("A move back is under way or done; type: snowid-move status");
		exit(EXIT_FAILED);
	}
	if (is_at(source, "ready"))
	{
		report_error("a way back of shard %d was begun", move->options->shard);
		report_hint("Type: snowid-move back, or abort");
		exit(EXIT_FAILED);
	}
	if (is_at(source, "aborted") || is_at(target, "aborted") ||
		(!source->journal.exists && target->journal.exists))
	{
		report_error("an abort of this move was begun");
		report_hint("Type: snowid-move abort");
		exit(is_at(source, "fenced") ? EXIT_INCOMPLETE : EXIT_FAILED);
	}
	if (is_at(source, "moved"))
	{
		report_info("shard %d has moved already; type: snowid-move finish", move->options->shard);
		return;
	}

	/* It was not prepared for, nor checked. */
	if (move->options->reverse && source->journal.exists && !source->journal.reverse &&
		!is_at(source, "fenced"))
	{
		report_error("the move of shard %d was begun without --reverse", move->options->shard);
		report_hint("Type the command without it; or snowid-move abort, and begin anew.");
		exit(EXIT_FAILED);
	}

	if (!source->journal.exists)
	{
		check_source(move);
		if (!run_prechecks(move))
		{
			report_error("shard %d cannot be moved yet; nothing was changed", move->options->shard);
			exit(EXIT_FAILED);
		}
		fflush(stdout);
		claim_source(move);
	}
	else
		report_info("going on after step \"%s\"",
					target->journal.exists && has_reached(target, source->journal.step)
					? target->journal.step : source->journal.step);
	if (!target->journal.exists)
		claim_target(move);
	if (move->options->keep_name && !source->journal.keep_name)
	{
		record_detail(move, source, "keep_name", "true");
		source->journal.keep_name = true;
	}

	if (!is_at(source, "fenced"))
	{
		if (!has_reached(target, "schema"))
			copy_schema(move);
		if (!has_reached(source, "published"))
			publish(move, source, move->name);
		if (!has_reached(target, "subscribed"))
		{
			create_slot(source, move->name);
			subscribe(move);
		}
		if (!has_reached(source, "copied"))
			wait_for_copy(move);
		if (move->options->stop_after == STOP_COPIED)
		{
			report_info("the copy is there and follows; the same command without --stop-after cuts over");
			return;
		}
		if (!has_reached(source, "verified"))
			verify(move);
		if (source->journal.reverse)
		{
			publish(move, target, move->reverse_name);
			create_slot(target, move->reverse_name);
		}
		cut_over(move, source, target, move->name);
	}

	failure_exit_code = EXIT_INCOMPLETE;
	if (!is_at(target, "open"))
		open_decided(move, source, target);
	clean_up_after(move, source, target, move->name);
	if (source->journal.reverse)
		report_info("done; the source is kept current. Type snowid-move finish, or snowid-move back");
	else
		report_info("done; to drop the source's copy, type: snowid-move finish");
}

/*
 * The way back: the same cut-over with the servers' roles swapped, over the
 * replication that has kept the old one current.
 */
static void
command_back(Move *move)
{
	Side	   *source = &move->source;
	Side	   *target = &move->target;
	bool		is_decided = is_role(target, "source");

	if (!source->journal.exists || !target->journal.exists || !source->journal.reverse ||
		!(is_decided || (is_at(target, "open") &&
						 (is_at(source, "moved") || is_at(source, "ready")))))
	{
		report_error("there is no way back for shard %d", move->options->shard);
		if (is_at(source, "moved"))
			report_hint("It was moved without --reverse. Type snowid-move finish, and then move it with --from and --to exchanged.");
		else
			report_hint("To see how things stand, type: snowid-move status");
		exit(EXIT_FAILED);
	}
	if (is_decided && is_role(source, "source") && is_at(source, "moved"))
	{
		report_error("an abort of the way back was begun");
		report_hint("Type: snowid-move abort");
		exit(EXIT_INCOMPLETE);
	}
	if (is_decided && is_at(target, "moved"))
	{
		report_info("shard %d is back already; type: snowid-move finish", move->options->shard);
		return;
	}
	if (!is_decided)
		cut_over(move, target, source, move->reverse_name);
	failure_exit_code = EXIT_INCOMPLETE;
	if (!is_at(source, "open"))
		open_decided(move, target, source);
	clean_up_after(move, target, source, move->reverse_name);
	report_info("done; to drop the copy on the server that it has left, type: snowid-move finish");
}

static void
command_finish(Move *move)
{
	Side	   *source = &move->source;
	Side	   *target = &move->target;

	if (!source->journal.exists && !target->journal.exists)
	{
		report_info("shard %d: nothing to finish", move->options->shard);
		return;
	}
	if (is_role(source, "target"))
		swap_sides(move);
	if (!is_at(source, "moved") || is_role(target, "source"))
	{
		report_error("the move of shard %d is not complete", move->options->shard);
		report_hint("Type snowid-move status");
		exit(is_at(source, "fenced") || is_role(target, "source") ? EXIT_INCOMPLETE : EXIT_FAILED);
	}

	/* Its journal has what it takes to open it again. */
	if (target->journal.closed)
	{
		report_error("shard %d is closed by hand at %s", move->options->shard, target->home);
		report_hint("Type there: SELECT snowid.unfence_shard(%d);", move->options->shard);
		exit(EXIT_FAILED);
	}
	failure_exit_code = EXIT_INCOMPLETE;
	finish(move);
}

static void
command_abort(Move *move)
{
	Side	   *source = &move->source;
	Side	   *target = &move->target;
	int			shard = move->options->shard;

	if (!source->journal.exists && !target->journal.exists)
	{
		report_info("shard %d: nothing to abort", shard);
		return;
	}

	/*
	 * A way back that has not opened the shard yet; or the second half of its
	 * abort.
	 */
	if (is_role(source, "source") && (is_at(source, "ready") || is_role(target, "source")))
	{
		if (target->conn == NULL)
		{
			report_error("the target must be reachable, since it has the shard");
			exit(EXIT_INCOMPLETE);
		}
		failure_exit_code = EXIT_INCOMPLETE;
		record_step(move, source, "moved");
		if (is_role(target, "source"))
		{
			run(target->conn, "BEGIN");
			run(target->conn, "UPDATE snowid.moves SET role = 'target' WHERE shard = %d", shard);
			record_step(move, target, "open");
			run(target->conn, "SELECT snowid.unfence_shard(%d)", shard);
			run(target->conn, "COMMIT");
		}
		report_info("shard %d: the way back is undone; it lives at %s", shard, target->home);
		return;
	}
	if (is_role(source, "target") || is_at(source, "moved") || is_at(target, "open"))
	{
		report_error("shard %d has been opened on the server that it went to", shard);
		report_hint("It cannot be undone by abort. To see what can be done, type: snowid-move status");
		exit(EXIT_FAILED);
	}
	if (target->conn == NULL && source->journal.closed)
	{
		report_error("the target must be reachable, since the move is decided");
		report_detail("Only its journal can make sure that the shard is not opened there.");
		exit(EXIT_INCOMPLETE);
	}

	/*
	 * A target that knows nothing may have been told to forget it, and be
	 * open.
	 */
	if (is_at(source, "fenced") && target->conn != NULL && !target->journal.exists)
	{
		report_error("the move of shard %d is decided, and the target's journal knows nothing of it", shard);
		report_hint("Look whether the shard is open at %s. If not, and it never will be, type on the source: UPDATE snowid.moves SET peer = NULL WHERE shard = %d; SELECT snowid.unfence_shard(%d);",
					source->journal.peer, shard, shard);
		exit(EXIT_INCOMPLETE);
	}
	failure_exit_code = EXIT_INCOMPLETE;
	abort_move(move);
	if (target->conn == NULL)
	{
		report_warning("the target could not be reached, and may have a copy of the shard, closed");
		report_hint("When it is back, type the same command again.");
	}
}

int
main(int argc, char *argv[])
{
	enum
	{
		OPT_SOURCE_FOR_TARGET = 256, OPT_TARGET_FOR_SOURCE, OPT_REGISTRY, OPT_PAUSE_LIMIT,
		OPT_LOCK_TIMEOUT, OPT_RETRIES, OPT_VERIFY, OPT_MAX_WAL, OPT_MAX_LAG,
		OPT_STOP_AFTER, OPT_REVERSE, OPT_KEEP_NAME, OPT_BINDIR
	};
	static const struct option long_options[] = {
		{"shard", required_argument, NULL, 's'},
		{"from", required_argument, NULL, 'f'},
		{"to", required_argument, NULL, 't'},
		{"source-for-target", required_argument, NULL, OPT_SOURCE_FOR_TARGET},
		{"target-for-source", required_argument, NULL, OPT_TARGET_FOR_SOURCE},
		{"registry", required_argument, NULL, OPT_REGISTRY},
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
		{"verbose", no_argument, NULL, 'v'},
		{"version", no_argument, NULL, 'V'},
		{"help", no_argument, NULL, '?'},
		{NULL, 0, NULL, 0}
	};
	static const struct
	{
		const char *name;
		void		(*run) (Move *move);
		bool		locks;
	}			commands[] = {
		{"move", command_move, true},
		{"plan", command_plan, false},
		{"status", command_status, false},
		{"abort", command_abort, true},
		{"back", command_back, true},
		{"finish", command_finish, true},
	};
	MoveOptions options = {.shard = -1,.pause_limit_ms = 1000,.lock_timeout_ms = 100,
		.retries = 20,.verify = VERIFY_COUNTS,.max_wal = INT64CONST(10) << 30,
	.max_lag = 1 << 20};
	Move		move = {.options = &options};
	int			command = 0;
	int			c;
	const Journal *j;

	if (argc > 1 && strcmp(argv[1], "-?") == 0)
	{
		usage();
		exit(0);
	}
	while ((c = getopt_long(argc, argv, "s:f:t:vV", long_options, NULL)) != -1)
	{
		switch (c)
		{
			case 's':
				options.shard = parse_int("--shard", optarg, 0, 8191);
				break;
			case 'f':
				options.from = optarg;
				break;
			case 't':
				options.to = optarg;
				break;
			case OPT_SOURCE_FOR_TARGET:
				options.source_for_target = optarg;
				break;
			case OPT_TARGET_FOR_SOURCE:
				options.target_for_source = optarg;
				break;
			case OPT_REGISTRY:
				options.registry = optarg;
				(void) without_password("--registry", optarg);
				break;
			case OPT_PAUSE_LIMIT:
				options.pause_limit_ms = parse_int("--pause-limit", optarg, 1, INT_MAX);
				break;
			case OPT_LOCK_TIMEOUT:
				options.lock_timeout_ms = parse_int("--lock-timeout", optarg, 1, INT_MAX);
				break;
			case OPT_RETRIES:
				options.retries = parse_int("--retries", optarg, 0, INT_MAX);
				break;
			case OPT_VERIFY:
				if (strcmp(optarg, "none") == 0)
					options.verify = VERIFY_NONE;
				else if (strcmp(optarg, "counts") == 0)
					options.verify = VERIFY_COUNTS;
				else if (strcmp(optarg, "checksums") == 0)
					options.verify = VERIFY_CHECKSUMS;
				else
				{
					report_error("invalid value \"%s\" for option --verify", optarg);
					report_detail("It must be none, counts or checksums.");
					exit(EXIT_USAGE);
				}
				break;
			case OPT_MAX_WAL:
				options.max_wal = parse_size("--max-wal", optarg);
				break;
			case OPT_MAX_LAG:
				options.max_lag = parse_size("--max-lag", optarg);
				break;
			case OPT_STOP_AFTER:
				if (strcmp(optarg, "copied") != 0)
				{
					report_error("invalid value \"%s\" for option --stop-after", optarg);
					report_detail("It must be copied.");
					exit(EXIT_USAGE);
				}
				options.stop_after = STOP_COPIED;
				break;
			case OPT_REVERSE:
				options.reverse = true;
				break;
			case OPT_KEEP_NAME:
				options.keep_name = true;
				break;
			case OPT_BINDIR:
				options.bindir = optarg;
				break;
			case 'v':
				options.verbose = verbose = true;
				break;
			case 'V':
				printf("%s (snowid) %s\n", progname, SNOWID_MOVE_VERSION);
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
	if (optind < argc)
	{
		command = -1;
		for (int i = 0; i < (int) lengthof(commands); i++)
			if (strcmp(argv[optind], commands[i].name) == 0)
				command = i;
		if (command < 0 || optind + 1 < argc)
		{
			report_error("unknown argument \"%s\"",
						 command < 0 ? argv[optind] : argv[optind + 1]);
			try_help();
		}
	}
	if (options.shard < 0 || options.from == NULL || options.to == NULL)
	{
		report_error("--shard, --from and --to are needed");
		try_help();
	}

	open_side(&move.source, "source", options.from, options.source_for_target);
	if (commands[command].run == command_abort)
	{
		/*
		 * The source can be cleaned up without the target, until the
		 * decision.
		 */
		PGconn	   *probe = open_connection("target", options.to, false);

		if (probe != NULL)
		{
			PQfinish(probe);
			open_side(&move.target, "target", options.to, options.target_for_source);
		}
		else
			move.target.label = "target";
	}
	else
		open_side(&move.target, "target", options.to, options.target_for_source);

	if (commands[command].locks &&
		(!lock_shard(&move.source, options.shard) ||
		 (move.target.conn != NULL && !lock_shard(&move.target, options.shard))))
		exit(EXIT_FAILED);
	open_aux(&move.source, options.from);
	read_journal(&move, &move.source);
	if (move.target.conn != NULL)
	{
		open_aux(&move.target, options.to);
		read_journal(&move, &move.target);
	}
	check_journals(&move);

	j = move.source.journal.exists ? &move.source.journal : &move.target.journal;
	if (query_bool(move.source.conn, "SELECT to_regclass('snowid.shard_registry') IS NOT NULL"))
		move.schema = query_text(move.source.conn,
								 "SELECT schema FROM snowid.shard_registry WHERE shard = %d", options.shard);
	if (j->exists)
	{
		move.name = j->name;
		move.reverse_name = j->reverse_name;
	}
	else
	{
		/* A slot's name must be free in the whole cluster, on both sides. */
		char	   *suffix = query_text(move.source.conn,
										"SELECT left(gen_random_uuid()::text, 8)");

		move.name = text_of("snowid_move_%d_%s", options.shard, suffix);
		move.reverse_name = text_of("snowid_back_%d_%s", options.shard, suffix);
	}

	commands[command].run(&move);
	PQfinish(move.source.conn);
	PQfinish(move.source.aux);
	if (move.target.conn != NULL)
	{
		PQfinish(move.target.conn);
		PQfinish(move.target.aux);
	}
	return EXIT_DONE;
}
