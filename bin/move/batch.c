/*
 * The batches of a set, and where each shard of them is.
 *
 * Shards that have rows in the journal belong to the batch that their move_id
 * names; others get into new ones.  The shards of a batch can be in different
 * situations, since they are handed over some at a time.
 */
#include "commands.h"

/* Fewer are copied together if they have so many bytes, */
#define BATCH_BYTES			(INT64CONST(1) << 30)

/* or fewer, so that most of the lock table is free for others. */
#define BATCH_LOCKS			"current_setting('max_locks_per_transaction')::int * " \
	"(current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int) / 4"

/*
 * How many locks it takes to create, or to drop, a shard: for its tables, with
 * index and TOAST, its sequences and functions.
 */
static int
count_locks(const Shard *shard)
{
	return shard->tables * 5 + shard->sequences + 5;
}

/* Exit codes of two parts: what cannot be left so, what has failed, what is done. */
int
combine(int code, int other)
{
	if (code == other)
		return code;
	return code == EXIT_INCOMPLETE || other == EXIT_INCOMPLETE ? EXIT_INCOMPLETE : EXIT_FAILED;
}

static bool
is_allowed(const Move *move, Shard *shard, const void *command)
{
	return (commands_in(situation_of(shard), is_way_back(shard)) & *(const int *) command) != 0;
}

static bool
is_not_allowed(const Move *move, Shard *shard, const void *command)
{
	return !is_allowed(move, shard, command);
}

/* Those of which a command may be typed, or may not. */
Move *
select_allowed(const Move *move, int command, bool allowed)
{
	return select_shards(move, allowed ? is_allowed : is_not_allowed, &command);
}

/* The same situation, with rows on the same servers. */
static bool
is_alike(const Move *move, Shard *shard, const void *argument)
{
	const Shard *other = argument;

	return situation_of(shard) == situation_of(other) && is_way_back(shard) == is_way_back(other) &&
		shard->journals[0].exists == other->journals[0].exists &&
		shard->journals[1].exists == other->journals[1].exists;
}

/*
 * The shards in groups of those that are alike, in the order of their first ones.  They
 * are chosen before any of them changes.
 */
static Move **
group_shards(const Move *move, ShardTest is_alike, int *ngroups)
{
	Move	  **groups = pg_malloc(sizeof(Move *) * Max(move->nshards, 1));

	*ngroups = 0;
	for (int i = 0; i < move->nshards; i++)
	{
		int			n = 0;

		while (n < *ngroups && !is_alike(move, move->shards[i], groups[n]->shards[0]))
			n++;
		if (n == *ngroups)
			groups[(*ngroups)++] = select_shards(move, is_alike, move->shards[i]);
	}
	return groups;
}

/* Run a function for the shards that are in the same situation, by turns, with the sides as they move. */
int
for_each_situation(const Move *move, int (*run) (Move *part))
{
	int			code = -1;
	int			nparts;
	Move	  **parts = group_shards(move, is_alike, &nparts);

	for (int i = 0; i < nparts; i++)
	{
		int			result;

		turn_sides(parts[i]);
		result = run(parts[i]);
		code = code < 0 ? result : combine(code, result);
	}
	return Max(code, EXIT_DONE);
}

/* The id of the move that a shard is in; NULL if it is in none. */
static const char *
move_id_of(const Shard *shard)
{
	return shard->journals[0].exists ? shard->journals[0].move_id : shard->journals[1].move_id;
}

static bool
is_of_batch(const Move *move, Shard *shard, const void *other)
{
	const char *id = move_id_of(shard);
	const char *its = move_id_of(other);

	return id == NULL || its == NULL ? id == its : strcmp(id, its) == 0;
}

/*
 * Run a function for each batch that has been begun, in the order of the first
 * shards, and then for all shards that are in none; until one is left
 * incomplete.
 */
int
for_each_batch(const Move *set, int (*run) (Move *batch))
{
	int			code = -1;
	int			nbatches;
	Move	  **batches = group_shards(set, is_of_batch, &nbatches);

	for (int i = 0; i < 2 * nbatches && code != EXIT_INCOMPLETE; i++)
	{
		Move	   *batch = batches[i % nbatches];
		int			result;

		if ((move_id_of(batch->shards[0]) == NULL) != (i >= nbatches))
			continue;
		name_batch(batch);
		result = run(batch);
		code = code < 0 ? result : combine(code, result);
	}
	return Max(code, EXIT_DONE);
}

/* What replicates a batch: as its journal says, or a new name. */
void
name_batch(Move *batch)
{
	PGconn	   *conn = batch->source.conn != NULL ? batch->source.conn : batch->target.conn;
	const Journal *journal = set_journal(batch, &batch->source)->exists
	? set_journal(batch, &batch->source) : set_journal(batch, &batch->target);
	int			number = batch->shards[0]->number;
	char	   *suffix;

	if (journal->exists)
	{
		batch->name = journal->name;
		batch->reverse_name = journal->reverse_name;
		return;
	}

	/* A slot's name must be free in the whole cluster, on both sides. */
	suffix = query_text(conn, "SELECT left(gen_random_uuid()::text, 8)");
	batch->name = text_of("snowid_move_%d_%s", number, suffix);
	batch->reverse_name = text_of("snowid_back_%d_%s", number, suffix);
}

/* The next batch of shards that have been measured. */
Move *
next_batch(const Move *move, int first)
{
	int			max = move->options->batch;
	int64		locks = Min(query_int64(move->source.conn, "SELECT " BATCH_LOCKS),
							query_int64(move->target.conn, "SELECT " BATCH_LOCKS));
	int64		bytes = BATCH_BYTES;
	int			n = 0;
	Move	   *batch;

	for (; first + n < move->nshards && n < (max > 0 ? max : BATCH_MAX); n++)
	{
		const Shard *shard = move->shards[first + n];

		locks -= count_locks(shard);
		bytes -= shard->bytes;
		if (max == 0 && n > 0 && (locks < 0 || bytes < 0))
			break;
	}
	batch = select_range(move, first, whole_pools(move, first, n));
	name_batch(batch);
	return batch;
}

static bool
is_our_name(const char *name)
{
	int			end = 0;

	if (name == NULL)
		return false;
	(void) sscanf(name, "snowid_%*[a-z]_%*[0-9]_%*8[0-9a-f]%n", &end);
	return end > 0 && name[end] == '\0';
}

/* What replicates a batch is dropped by its name: is that one of ours, whoever was let write the journal? */
bool
has_our_names(const Move *batch)
{
	const char *strange = is_our_name(batch->name) ? batch->reverse_name : batch->name;

	return move_id_of(batch->shards[0]) == NULL || is_our_name(strange) ||
		refuse(false, "Look at the details there: name and reverse_name are of what replicates it. Nothing was changed.",
			   "snowid.moves has a name for %s that snowid-move does not give: \"%s\"", batch->title, strange != NULL ? strange : "");
}

/*
 * A batch shares what replicates it, so it must be named as a whole.  Says which
 * shards are missing.
 */
bool
is_whole(const Move *batch)
{
	const Side *sides[] = {&batch->source, &batch->target};

	if (!has_our_names(batch))
		return false;
	for (int i = 0; i < 2; i++)
	{
		char	   *others;

		if (sides[i]->conn == NULL || !is_any_known(batch, sides[i]))
			continue;
		others = query_text(sides[i]->conn,
							"SELECT string_agg(shard::text, ',' ORDER BY shard) FROM snowid.moves "
							"WHERE details ->> 'move_id' = %s AND shard NOT IN (%s)",
							literal(sides[i]->conn, move_id_of(batch->shards[0])), shard_list(batch->set));
		if (others == NULL)
			continue;
		report_error("%s belong%s to a batch with others: %s", batch->title,
					 batch->nshards == 1 ? "s" : "", others);
		report_hint("Name them all: --shard=%s,%s", batch->title + strcspn(batch->title, "0123456789"), others);
		return false;
	}
	return true;
}
