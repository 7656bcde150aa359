/*
 * What the journals say, for people.
 */
#include "commands.h"
#include "sql/queries.inc"

/* What the connection to a server shows of the replication from there. */
static void
show_slots(const Side *side, const Journal *j, bool as_json)
{
	PGresult   *res;

	if (side->conn == NULL || !j->exists)
		return;
	res = query(side->conn, SHOWN_SLOTS_SQL, literal(side->conn, j->name), literal(side->conn, j->reverse_name));
	for (int i = 0; i < PQntuples(res); i++)
		if (as_json)
			print_object("slot", PQgetvalue(res, i, 0), "at", side->home, "#kept_mb", PQgetvalue(res, i, 1), "reader", PQgetvalue(res, i, 2));
		else
			printf("  slot %s keeps %s MB of log; the other server is %s\n",
				   PQgetvalue(res, i, 0), PQgetvalue(res, i, 1), PQgetvalue(res, i, 2));
	PQclear(res);
}

/* Can the shard be written there, as far as the journal tells? */
static const char *
openness(const Journal *j)
{
	if (j->closed)
		return "closed for writing";
	if (j->at.role == TARGET && j->at.step == CLAIMED)
		return "not there yet";
	return "open for writing";
}

static void
show_side(const Move *move, Shard *shard, const Side *side)
{
	const Journal *j = journal_of(shard, side);

	if (move->options->json)
		print_object("#shard", text_of("%d", shard->number), "server", side->label, "home", side->home, "#reached", side->conn != NULL ? "true" : "false",
					 "role", j->exists ? role_name(j->at.role) : NULL, "step", j->exists ? step_name(j->at.step) : NULL, "schema", j->schema,
					 "state", j->exists ? openness(j) : NULL, "since", j->changed_at);
	else if (side->conn == NULL)
		printf("%s: not reached\n", side->label);
	else if (!j->exists)
		printf("%s (%s): no move of shard %d\n", side->label, printable(side->home), shard->number);
	else
		printf("%s (%s): %s, %s, schema \"%s\", %s, since %s\n", side->label, printable(side->home),
			   role_name(j->at.role), step_name(j->at.step), printable(j->schema), openness(j), j->changed_at);
}

/* What is true of shards that are in one situation. */
const char *
outlook(const Move *move)
{
	return outlook_of(situation_of(move->shards[0]), is_way_back(move->shards[0]));
}

/* What can be typed then: one after the other, whole; NULL for no more. */
const char *
what_to_type(const Move *move, int i)
{
	static const struct
	{
		int			bit;
		const char *verb;
		const char *why;
	}			typed[] = {
		{OF_MOVE, "move", "To go on"},
		{OF_BACK, "back", "To have it back where it was"},
		{OF_ABORT, "abort", "To undo it"},
		{OF_FINISH, "finish", "To drop the copy that is left behind"}
	};
	int			commands = commands_in(situation_of(move->shards[0]), is_way_back(move->shards[0]));

	if (situation_of(move->shards[0]) == NOT_BEGUN)
		return NULL;
	for (int n = 0; n < (int) lengthof(typed); n++)
		if ((commands & typed[n].bit) != 0 && i-- == 0)
			return text_of("%s, type: %s", typed[n].why, whole_command(move, typed[n].verb));
	return NULL;
}

/* The same, as an array of JSON. */
static const char *
commands_to_type(const Move *move)
{
	const char *all = "";

	for (int i = 0; what_to_type(move, i) != NULL; i++)
		all = text_of("%s%s%s", all, i > 0 ? ", " : "", json_text(strstr(what_to_type(move, i), ": ") + 2));
	return text_of("[%s]", all);
}

/* Have definitions changed since the copy, which goes on? */
static void
show_changes(const Move *part)
{
	const Side *source = &part->source;
	char	  **now;

	if (situation_of(part->shards[0]) != COPYING || source->conn == NULL)
		return;
	now = note_definitions(part, source);
	for (int i = 0; i < part->nshards; i++)
	{
		Shard	   *shard = part->shards[i];
		const char *noted = journal_of(shard, source)->fingerprint;
		char	   *tables;
		char	   *changes;

		if (is_as_noted(noted, now[i]))
			continue;
		tables = newer_tables(part, shard);
		changes = tables != NULL ? tables :
			name_changes(source->conn, part->target.conn != NULL ? part->target.conn : source->conn, journal_of(shard, source)->schema, noted);
		if (part->options->json)
			print_object("#shard", text_of("%d", shard->number), tables != NULL ? "new_tables" : "changed", changes);
		else if (tables != NULL)
			printf("  shard %d: made since it was copied, and brought before it moves: %s\n", shard->number, *tables != '\0' ? printable(tables) : "nothing; what was brought is dropped");
		else
			printf("  shard %d: definitions have changed since they were copied: %s\n  It will not move so. To begin again, type: %s\n", shard->number,
				   printable(changes), whole_command(select_range(part, i, 1), is_way_back(shard) ? "finish" : "abort"));
	}
}

static int
status_of_part(Move *part)
{
	bool		in_detail = part->set->nshards == 1 || verbose || part->options->json;

	if (part->options->json)
		print_object("#shards", text_of("[%s]", shard_list(part)), "outlook", outlook(part), "#to_type", commands_to_type(part));
	else
		printf("%s: %s\n", part->title, outlook(part));
	for (int i = 0; what_to_type(part, i) != NULL && !part->options->json; i++)
		printf("  %s\n", printable(what_to_type(part, i)));
	show_changes(part);
	for (int i = 0; i < part->nshards && in_detail; i++)
	{
		show_side(part, part->shards[i], &part->source);
		show_side(part, part->shards[i], &part->target);
	}
	return situation_of(part->shards[0]) == NOT_BEGUN ? EXIT_DONE : EXIT_FAILED;
}

static int
status_of_batch(Move *batch)
{
	int			code = for_each_situation(batch, status_of_part);

	show_slots(&batch->source, set_journal(batch, &batch->source), batch->options->json);
	show_slots(&batch->target, set_journal(batch, &batch->target), batch->options->json);
	return code;
}

int
command_status(Move *set)
{
	return for_each_batch(set, status_of_batch);
}

static const char **seen;		/* ids of moves */
static int	nseen = 0;

/* Is that move new?  Both of its servers have it. */
static bool
is_new(const char *id)
{
	for (int i = 0; i < nseen; i++)
		if (strcmp(seen[i], id) == 0)
			return false;
	seen = pg_realloc(seen, (nseen + 1) * sizeof(char *));
	seen[nseen++] = id;
	return true;
}

/* Of each move that a server's journal has, with the sides that it was begun with; and what was closed by hand. */
static int
status_of_server(const MoveOptions *options, PGconn *conn)
{
	char	   *home = home_of_connection(conn);
	PGresult   *rows = query(conn, JOURNAL_MOVES_SQL, literal(conn, home));
	int			code = EXIT_DONE;

	for (int row = 0, last; row < PQntuples(rows); row = last)
	{
		const char *id = field(rows, row, 0);
		MoveOptions its = *options;
		int			found;

		its.shards = pg_malloc(PQntuples(rows) * sizeof(int));
		its.nshards = 0;
		for (last = row; last < PQntuples(rows) && strcmp(PQgetvalue(rows, last, 0), PQgetvalue(rows, row, 0)) == 0; last++)
			its.shards[its.nshards++] = atoi(PQgetvalue(rows, last, 3));
		its.from = field(rows, row, 1);
		its.to = field(rows, row, 2);
		if (id != NULL && !is_new(id))
			continue;
		if (id == NULL || its.from == NULL || its.to == NULL)
		{
			if (options->json)
				print_object("#shards", text_of("[%s]", shard_list(make_set(&its))), "outlook", "closed by hand", "home", home);
			else
				printf("%s: closed by hand at %s\n  To open it, if it is open nowhere else, type there: SELECT snowid.unfence_shard(N);\n",
					   make_set(&its)->title, printable(home));
			found = EXIT_FAILED;
		}
		else
			found = run_on_sides(find_command("status"), &its);
		code = code == EXIT_DONE ? found : combine(code, found);
	}
	if (PQntuples(rows) == 0)
		report_info("no move at %s", home);
	PQclear(rows);
	return code;
}

/* Without --shard: of all moves at --from, at --to, and at the servers that the --registry names. */
int
status_of_all(const MoveOptions *options)
{
	const char *given[] = {options->from, options->to, options->registry};
	int			code = EXIT_DONE;

	for (int i = 0; i < (int) lengthof(given); i++)
	{
		PGresult   *homes = NULL;
		PGconn	   *conn;

		if (given[i] == NULL)
			continue;
		for (int row = -1; row < PQntuples(homes); row++)
		{
			const char *home = row < 0 ? given[i] : PQgetvalue(homes, row, 0);
			int			found = EXIT_USAGE;

			conn = open_connection(row < 0 ? "server" : home, home);

			/* What a journal has names no role. */
			take_user_of(conn);
			if (PQstatus(conn) != CONNECTION_OK)
				report_error("%s", PQerrorMessage(conn));
			else if (knows_version(conn))
				found = status_of_server(options, conn);
			take_user_of(NULL);
			if (row < 0 && given[i] == options->registry && found != EXIT_USAGE)
				homes = query(conn, "SELECT home FROM snowid.shard_registry WHERE home IS NOT NULL UNION SELECT home FROM snowid.servers ORDER BY 1");
			PQfinish(conn);
			code = code == EXIT_DONE ? found : combine(code, found);
		}
		PQclear(homes);
	}
	return code;
}
