/*
 * What the journals say, for people.
 */
#include "commands.h"
#include "sql/queries.inc"

/* After a way back, the copy that is left behind is on the other side. */
void
swap_sides(Move *move)
{
	Side		source = move->source;

	move->source = move->target;
	move->target = source;
	move->source.label = "source";
	move->target.label = "target";
}

/* What the connection to a server shows of the replication from there. */
static void
show_slots(const Side *side, const Journal *j)
{
	PGresult   *res;

	if (side->conn == NULL || !j->exists)
		return;
	res = query(side->conn, SHOWN_SLOTS_SQL, literal(side->conn, j->name), literal(side->conn, j->reverse_name));
	for (int i = 0; i < PQntuples(res); i++)
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
	if (strcmp(j->role, "target") == 0 && strcmp(j->step, "claimed") == 0)
		return "not there yet";
	return "open for writing";
}

static void
show_side(const Move *move, Shard *shard, const Side *side)
{
	const Journal *j = journal_of(shard, side);

	if (side->conn == NULL)
		printf("%s: not reached\n", side->label);
	else if (!j->exists)
		printf("%s (%s): no move of shard %d\n", side->label, side->home, shard->number);
	else
		printf("%s (%s): %s, %s, schema \"%s\", %s, since %s\n", side->label, side->home,
			   j->role, j->step, j->schema, openness(j), j->changed_at);
}

/* What one server tells of a move, if the other cannot be asked. */
static const char *
what_one_tells(const Move *move, const Side *side)
{
	if (!is_known(move, side))
		return "that server knows of no move; the other one was not reached";
	if (is_at(move, side, "fenced"))
		return "decided; nobody can write until the other server is reached: then type the same command again";
	if (is_at(move, side, "ready"))
		return "about to be decided, or decided: only the other server knows";
	if (is_at(move, side, "open"))
		return "decided, and open here";
	if (is_at(move, side, "moved"))
		return "moved";
	if (is_at(move, side, "aborted"))
		return "an abort was begun: type snowid-move abort";
	return "under way, and not decided";
}

/* What is true of shards that are in one situation, and what to type. */
const char *
outlook(const Move *move)
{
	static const struct
	{
		int			situations;
		const char *text;
	}			outlooks[] = {
		{NOT_BEGUN, "nothing is under way"},
		{COPYING, "under way: type snowid-move move to go on, or abort"},
		{ABORTING, "an abort was begun: type snowid-move abort"},
		{DECIDED | OPENED, "decided, but not complete: type the same command again"},
		{MOVED, "moved: type snowid-move finish"},
		{RETURNING | RETURN_DECIDED | RETURN_OPENED, "a way back was begun: type snowid-move back to go on, or abort"},
		{RETURNED, "moved to the source, and not finished: type snowid-move finish"},
		{RETURN_ABORTING, "an abort of the way back was begun: type snowid-move abort"}
	};
	const Side *source = &move->source;
	const Side *target = &move->target;
	Situation	situation = situation_of(move, move->shards[0]);
	int			i = 0;

	if (source->conn == NULL || target->conn == NULL)
		return what_one_tells(move, source->conn != NULL ? source : target);
	if (situation == DECIDED && is_at(move, source, "moved"))
		return "decided, but the target has failed over and is closed: type the same command again";
	if (situation == OPENED && !is_closed(move, source))
		return "open on both servers, since the source has failed over: type the same command again, which closes it there";
	if (situation == MOVED && set_journal(move, source)->reverse && is_known(move, target))
		return "moved, and replicated back: type snowid-move finish, or back";
	while ((outlooks[i].situations & situation) == 0)
		i++;
	return outlooks[i].text;
}

static int
status_of_part(Move *part)
{
	bool		in_detail = part->set->nshards == 1 || verbose;

	if (is_role(part, &part->source, "target"))
		swap_sides(part);
	printf("%s: %s\n", part->title, outlook(part));
	for (int i = 0; i < part->nshards && in_detail; i++)
	{
		show_side(part, part->shards[i], &part->source);
		show_side(part, part->shards[i], &part->target);
	}
	return EXIT_DONE;
}

static int
status_of_batch(Move *batch)
{
	int			code = for_each_situation(batch, status_of_part);

	show_slots(&batch->source, set_journal(batch, &batch->source));
	show_slots(&batch->target, set_journal(batch, &batch->target));
	return code;
}

int
command_status(Move *set)
{
	return for_each_batch(set, status_of_batch);
}
