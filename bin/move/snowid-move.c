/*
 * snowid-move: moves a logical shard from one server to another, while it is
 * written.
 *
 * main() reads the command line, connects, reads the two journals, and runs the
 * command, which goes on from where they are; so each can be repeated, after
 * whatever has ended it.
 */
#include "commands.h"

#include <signal.h>

typedef enum Joined
{
	JOINED,
	NOT_JOINED,
	NOT_ALLOWED					/* by its version, our role's rights, or
								 * another program */
} Joined;

/* Connect to a server, and read its journal under the lock that the command needs. */
static Joined
join_side(const Move *move, const Command *command, Side *side)
{
	bool		is_source = side == &move->source;
	const MoveOptions *options = move->options;

	if (!open_side(side, is_source ? options->from : options->to,
				   is_source ? options->source_for_target : options->target_for_source,
				   is_source ? command->needs_source : command->needs_target))
		return NOT_JOINED;

	/* plan tells more of it. */
	if (command->bit != OF_PLAN && !knows_version(side->conn))
		return NOT_ALLOWED;
	if (!check_journal_rights(side))
		return NOT_ALLOWED;
	if (command->locks && !lock_shards(move, side))
		return NOT_ALLOWED;
	read_journal(move, side);
	return JOINED;
}

/*
 * Without one of the servers, what the other one's journal says decides on the
 * exit code: has something been touched, and can the decision have been made?
 */
static int
exit_without(const Move *move, const Side *reached)
{
	if (!is_any_known(move, reached))
		return EXIT_USAGE;
	for (int i = 0; i < move->nshards; i++)
		if (is_decided_in(situation_of(move->shards[i])))
			failure_exit_code = EXIT_INCOMPLETE;
	return failure();
}

/* Join both servers, or those that the command needs, and at least one. */
static bool
join_sides(Move *move, const Command *command, int *exit_code)
{
	Joined		source = join_side(move, command, &move->source);
	Joined		target = source == NOT_ALLOWED ? NOT_ALLOWED : join_side(move, command, &move->target);

	if (source == NOT_ALLOWED || target == NOT_ALLOWED)
		*exit_code = EXIT_FAILED;
	else if (source == NOT_JOINED && target == NOT_JOINED)
		*exit_code = EXIT_USAGE;
	else if (source == NOT_JOINED && command->needs_source)
		*exit_code = exit_without(move, &move->target);
	else if (target == NOT_JOINED && command->needs_target)
		*exit_code = exit_without(move, &move->source);
	else
		return true;
	return false;
}

/* Is that the other server of a move, as far as can be told? */
static bool
is_peer(const Journal *journal, const Side *other)
{
	return other->conn == NULL || journal->peer == NULL || is_home_of(journal->peer, journal->peer_system, other);
}

/*
 * A server whose journal names another one than the one that we were given,
 * which knows nothing of the move: a wrong --from or --to.  To abort or finish
 * with it would leave the right one as it is, perhaps open.
 */
static bool
check_peer(const Journal *journal, const Side *side, const Journal *other_journal,
		   const Side *other, const char *option, int shard)
{
	if (!journal->exists || other_journal->exists || is_peer(journal, other))
		return true;
	report_error("the %s moves shard %d with another server than that of %s",
				 side->label, shard, option);
	report_detail("Its journal says: %s. Given was: %s.", journal->peer, other->home);
	return false;
}

/* What neither server's journal explains is not touched. */
static bool
check_journals(const Move *move, Shard *shard, int *exit_code)
{
	const Journal *s = journal_of(shard, &move->source);
	const Journal *t = journal_of(shard, &move->target);

	*exit_code = EXIT_FAILED;
	if ((s->exists && s->move_id == NULL) || (t->exists && t->move_id == NULL))
		return refuse(false, text_of((s->exists && s->move_id == NULL ? s : t)->at.step == FENCED ?
									 "What is there is an old copy, perhaps with rows of its own: see what snowid-move diff finds. To drop it, type there: SELECT snowid.drop_shard(%d, true);" :
									 "Type there: SELECT snowid.unfence_shard(%d);", shard->number),
					  "shard %d is closed by hand on the %s", shard->number, s->exists && s->move_id == NULL ? "source" : "target");
	if (s->exists && t->exists && strcmp(s->move_id, t->move_id) != 0)
		return refuse(false, is_peer(s, &move->target) && is_peer(t, &move->source) ?
					  text_of("One of the two was put back to a time before. See where it is open: SELECT * FROM snowid.shards; compare: snowid-move diff; and on the other server, if nothing is missing, type: "
							  "DROP SCHEMA ... CASCADE; DELETE FROM snowid.moves WHERE shard = %d;", shard->number) :
					  "Each knows its other server: SELECT * FROM snowid.moves; Finish or abort those first.",
					  "the two servers have shard %d in different moves", shard->number);
	*exit_code = EXIT_USAGE;
	return check_peer(s, &move->source, t, &move->target, "--to", shard->number) &&
		check_peer(t, &move->target, s, &move->source, "--from", shard->number);
}

/* What the shards are called. */
static void
find_schemas(const Move *move)
{
	PGconn	   *conn = move->source.conn != NULL ? move->source.conn : move->target.conn;
	PGresult   *res;

	if (!query_bool(conn, "SELECT to_regclass('snowid.shard_registry') IS NOT NULL"))
		return;
	res = query(conn, "SELECT shard, schema, coalesce(pool, schema) FROM snowid.shard_registry WHERE shard IN (%s)", shard_list(move));
	for (int row = 0; row < PQntuples(res); row++)
	{
		Shard	   *shard = find_shard(move, atoi(PQgetvalue(res, row, 0)));

		shard->schema = field(res, row, 1);
		shard->pool = field(res, row, 2);
	}
	PQclear(res);
}

/* No other program is at work, and none can begin: status may end what one has left. */
static bool
lock_if_free(const Move *set)
{
	const Side *sides[] = {&set->source, &set->target};
	bool		is_free = true;

	for (int i = 0; i < 2; i++)
		is_free = is_free && (sides[i]->conn == NULL ||
							  query_bool(sides[i]->conn, "SELECT bool_and(pg_try_advisory_lock(%d, shard)) FROM unnest(ARRAY[%s]) shard",
										 LOCK_CLASS, shard_list(set)));
	return is_free;
}

/* Did the move begin at the server that is given as its target? */
static bool
is_exchanged(const Move *move, Shard *shard, const void *unused)
{
	const Journal *s = journal_of(shard, &move->source);
	const Journal *t = journal_of(shard, &move->target);

	if (s->move_id != NULL && t->move_id != NULL)
		return strcmp(s->move_id, t->move_id) == 0 && s->begun_as == TARGET;
	if (s->move_id != NULL)
		return s->begun_as == TARGET && is_peer(s, &move->target);
	return t->move_id != NULL && t->begun_as == SOURCE && is_peer(t, &move->source);
}

/* A registry that has lost shards under their move says no more what these are. */
static bool
is_unregistered(const Move *move, Shard *shard, const void *unused)
{
	return shard->schema == NULL && journal_of(shard, move->source.conn != NULL ? &move->source : &move->target)->exists;
}

static bool
refuse_sides(const Command *command, const Move *set)
{
	const Move *exchanged = select_shards(set, is_exchanged, NULL);
	const Move *lost = select_shards(set, is_unregistered, NULL);

	if (exchanged->nshards > 0 && command->bit != OF_PLAN)
		return refuse(true, text_of("Type: %s", whole_command(exchanged, command->name)),
					  "--from and --to are exchanged: the move of %s began at %s", exchanged->title, set->target.home != NULL ? set->target.home : set->options->to);
	if (lost->nshards > 0 && command->locks)
		return refuse(true, "Type there, with the schema's name: INSERT INTO snowid.shard_registry (shard, schema) VALUES (...); the other server's has the row, too.",
					  "the registry of the %s has lost %s, which %s in a move", set->source.conn != NULL ? "source" : "target",
					  lost->title, lost->nshards == 1 ? "is" : "are");
	return false;
}

/* Run the command for those shards whose journals make sense. */
static int
run_command(const Command *command, Move *set)
{
	Move	   *good;
	int			exit_code = -1;
	bool		of_split = command->run == command_split || is_split(set);

	find_schemas(set);
	if (!of_split && refuse_sides(command, set))
		return EXIT_USAGE;
	if (command->locks || lock_if_free(set))
		settle_pools(set, is_split(set));
	if (of_split)
		return command->run_split != NULL ? command->run_split(set) : refuse_split(set);
	for (int i = 0; i < set->nshards; i++)
	{
		int			code;

		if (!check_journals(set, set->shards[i], &code))
		{
			exit_code = exit_code < 0 ? code : combine(exit_code, code);
			set->shards[i]->failed = true;
		}
	}
	good = select_shards(set, has_not_failed, NULL);
	if (good->nshards > 0)
	{
		int			code = command->run(good);

		exit_code = exit_code < 0 ? code : combine(exit_code, code);
	}
	return exit_code;
}

/* What identifies a database of a server; NULL after saying that it is not reached. */
static char *
identity_at(const char *home)
{
	PGconn	   *conn = open_connection(home, home);
	char	   *identity = NULL;

	if (PQstatus(conn) != CONNECTION_OK)
		report_error("%s: %s", home, PQerrorMessage(conn));
	else
		identity = identity_of(conn);
	PQfinish(conn);
	return identity;
}

/*
 * Without --from, the shards leave the server where the registry has them; those that are at
 * --to have nothing to do.
 */
static bool
find_source(MoveOptions *options, PGconn *directory)
{
	Move	   *set = make_set(options);
	PGresult   *homes = query(directory, "SELECT coalesce(home, %s), array_agg(shard ORDER BY shard) FROM snowid.shard_registry WHERE shard IN (%s) GROUP BY 1",
							  literal(directory, home_of_connection(directory)), shard_list(set));
	char	   *target = identity_at(options->to);
	int			nknown = 0;

	options->nshards = 0;
	for (int row = 0; row < PQntuples(homes) && target != NULL; row++)
	{
		const char *home = field(homes, row, 0);
		const char *shards = PQgetvalue(homes, row, 1);
		char	   *identity = identity_at(home);
		bool		is_there = identity != NULL && strcmp(identity, target) == 0;

		if (identity == NULL)
			return false;
		if (is_there)
			report_info("shards %s live there already", shards);
		else if (options->from != NULL)
			return refuse(false, "Move those of one server after the other.", "the shards live on several servers: %s and %s", options->from, home);
		else
			options->from = home;
		for (const char *p = shards + 1; *p != '\0'; p += strcspn(p, ",}") + 1, nknown++)
			if (!is_there)
				options->shards[options->nshards++] = atoi(p);
	}
	PQclear(homes);
	return target != NULL && (nknown == set->nshards ||
							  refuse(false, "There, type: SELECT shard, home FROM snowid.shard_registry;", "the registry does not know all of these shards"));
}

/* Servers that are given by their names in the directory.  False after saying what is wrong. */
static bool
find_servers(MoveOptions *options)
{
	bool		found = true;
	PGconn	   *directory;

	if (options->registry == NULL || (options->from != NULL && !is_server_name(options->from) && !is_server_name(options->to)))
		return true;
	if ((directory = open_directory(options->registry)) == NULL)
		return false;
	if (is_server_name(options->from))
		found = (options->from = home_of_server(directory, options->from)) != NULL;
	if (found && is_server_name(options->to))
		found = (options->to = home_of_server(directory, options->to)) != NULL;
	if (found && options->from == NULL)
		found = find_source(options, directory);
	PQfinish(directory);
	return found;
}

int
run_on_sides(const Command *command, const MoveOptions *options)
{
	Move	   *set = make_set(options);
	int			exit_code;

	if (join_sides(set, command, &exit_code))
		exit_code = run_command(command, set);
	if (set->tally->unrouted && exit_code == EXIT_DONE)
		exit_code = EXIT_INCOMPLETE;
	close_side(&set->source);
	close_side(&set->target);
	return exit_code;
}

int
main(int argc, char *argv[])
{
	MoveOptions options;
	const Command *command;

	begin_messages("snowid-move");

	/* Who reads our messages may go; a move in the middle does not. */
	signal(SIGPIPE, SIG_IGN);
	waits_for_start = true;
	command = parse_options(argc, argv, &options);
	if (command->run_alone != NULL && (options.nshards == 0 || command->run == NULL ||
									   (command->bit == OF_FINISH && options.from == NULL && options.registry == NULL)))
		return command->run_alone(&options);
	if (!find_servers(&options))
		return EXIT_USAGE;
	return options.nshards == 0 ? EXIT_DONE : run_on_sides(command, &options);
}
