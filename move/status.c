/*
 * What the journals say, for people.
 */
#include "commands.h"

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
	PGresult   *res = query(side->conn,
							"SELECT slot_name, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint >> 20, "
							"coalesce((SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint::text || ' bytes behind' "
							"FROM pg_stat_replication r WHERE r.pid = s.active_pid), 'not connected') "
							"FROM pg_replication_slots s WHERE slot_name IN (%s, %s)",
							literal(side->conn, j->name), literal(side->conn, j->reverse_name));

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
	{
		printf("%s (%s): %s, %s, schema \"%s\", %s, since %s\n", side->label, side->home,
			   j->role, j->step, j->schema, openness(j), j->changed_at);
	}
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

static const char *
what_next(const Move *move)
{
	const Side *source = &move->source;
	const Side *target = &move->target;

	if (source->conn == NULL || target->conn == NULL)
		return what_one_tells(move, source->conn != NULL ? source : target);
	if (!is_known(move, source) && !is_known(move, target))
		return "nothing is under way";
	if (is_role(move, source, "source") && is_role(move, target, "source") && is_at(move, source, "moved"))
		return "an abort of the way back was begun: type snowid-move abort";
	if (is_at(move, source, "ready"))
		return "a way back was begun: type snowid-move back to go on, or abort";
	if (is_at(move, source, "aborted") || is_at(move, target, "aborted") || !is_known(move, source))
		return "an abort was begun: type snowid-move abort";
	if (is_at(move, source, "moved") && is_known(move, target) && !is_at(move, target, "open"))
		return "decided, but the target has failed over and is closed: type the same command again";
	if (is_at(move, source, "moved"))
		return set_journal(move, source)->reverse && is_at(move, target, "open")
			? "moved, and replicated back: type snowid-move finish, or back"
			: "moved: type snowid-move finish";
	if (is_at(move, target, "open") && !is_closed(move, source))
		return "open on both servers, since the source has failed over: type the same command again, which closes it there";
	if (is_at(move, source, "fenced"))
		return "decided, but not complete: type the same command again";
	return "under way: type snowid-move move to go on, or abort";
}

static int
status_of_part(Move *part)
{
	bool		in_detail = part->set->nshards == 1 || verbose;

	if (is_role(part, &part->source, "target"))
		swap_sides(part);
	printf("%s: %s\n", part->title, what_next(part));
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
	const Side *sides[] = {&batch->source, &batch->target};
	int			code = for_each_situation(batch, status_of_part);

	for (int i = 0; i < 2; i++)
		if (sides[i]->conn != NULL && set_journal(batch, sides[i])->exists)
			show_slots(sides[i], set_journal(batch, sides[i]));
	return code;
}

int
command_status(Move *set)
{
	return for_each_batch(set, status_of_batch);
}
