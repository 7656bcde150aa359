/*
 * The set as a whole: what its shards are made of, how far it is, and which of
 * them are left where they are.
 */
#include "stages.h"

Shard *
shard_of_schema(const Move *move, const char *schema)
{
	for (int i = 0; i < move->nshards; i++)
		if (strcmp(move->shards[i]->schema, schema) == 0)
			return move->shards[i];
	return NULL;
}

/* Count what the shards have, where they live, and how large they are. */
void
measure_shards(const Move *move, const Side *side)
{
	PGresult   *res;

	if (move->nshards == 0)
		return;
	res = query(side->conn,
				"SELECT shard, count(*) FILTER (WHERE c.relkind = 'r'), count(*) FILTER (WHERE c.relkind = 'S'), "
				"coalesce(sum(pg_table_size(c.oid)) FILTER (WHERE c.relkind = 'r'), 0)::bigint "
				"FROM snowid.shard_registry r JOIN pg_namespace n ON n.nspname = r.schema "
				"JOIN pg_class c ON c.relnamespace = n.oid "
				"WHERE shard IN (%s) GROUP BY shard", shard_list(move));

	for (int row = 0; row < PQntuples(res); row++)
	{
		Shard	   *shard = find_shard(move, atoi(PQgetvalue(res, row, 0)));

		shard->tables = atoi(PQgetvalue(res, row, 1));
		shard->sequences = atoi(PQgetvalue(res, row, 2));
		shard->bytes = strtoll(PQgetvalue(res, row, 3), NULL, 10);
	}
	PQclear(res);
}

/* What clients waited, besides writes, if a pooler saw some. */
const char *
waits_at_poolers(const Move *move)
{
	return move->tally->client_wait_ms == 0 ? "" :
		text_of(", clients at the poolers %d ms at most", move->tally->client_wait_ms);
}

/* Say that shards are open at their new home; -1: nobody knows how long writes waited. */
void
tell_moved(const Move *move, const Side *to, int pause_ms)
{
	move->tally->last_pause_ms = pause_ms;
	move->tally->pause_ms = Max(move->tally->pause_ms, pause_ms);

	/* Of a set's parts, the end has the figures. */
	if (pause_ms < 0 || move == move->set || move->set->nshards == 1 || verbose)
		report_info("%s now live%s at %s%s", move->title, move->nshards == 1 ? "s" : "", to->home,
					pause_ms < 0 ? "" : text_of("; writes waited %d ms%s", pause_ms, waits_at_poolers(move)));
}

/*
 * How far the set is, and how long the rest will take if it goes on like this;
 * "" for a single shard.
 */
char *
progress_of_set(const Move *move)
{
	const		Tally *tally = move->tally;
	int64		elapsed = now_ms() - tally->start;

	if (move->set->nshards == 1)
		return "";
	if (tally->moved == 0)
		return text_of("0 of %d shards moved", tally->shards);
	return text_of("%d of %d shards moved, %d s left", tally->moved, tally->shards,
				   (int) (elapsed * (tally->shards - tally->moved) / tally->moved / 1000));
}

/* After its error was told: the others of the set go on without this one. */
void
leave_shard(const Move *move, Shard *shard)
{
	if (!shard->failed && move->set->nshards > 1)
		report_info("shard %d is left where it is", shard->number);
	shard->failed = true;
}
