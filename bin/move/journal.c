/*
 * The journal: one row of snowid.moves for each shard on each server, written
 * in the same transaction as the step that it records, where the step is one.
 *
 * The rows of one move carry the same random move_id, so that neither server
 * takes another move's row for its own.  The steps, in order:
 *
 *		claimed		both		the shard belongs to this move
 *		published	source		publication, and then the slot
 *		schema		target		what rows need is there, closed
 *		rows		target		the rows are, too
 *		subscribed	target		it follows
 *		copied		both		it has caught up once
 *		verified	source		compared, if asked for
 *		ready		target		it could open: this is not yet the decision
 *		fenced		source		the decision: the shard is the target's
 *		open		target		it takes writes
 *		moved		source		the source is cleaned up, its copy renamed
 *
 * "aborted" takes the place of any of them but the last three: nothing but
 * abort goes on from it.
 */
#include "journal.h"

/* How long a lock may be kept by a program that has just died. */
#define LOCK_WAIT_MS		10000

static void
give_title(Move *move)
{
	int		   *numbers = pg_malloc((move->nshards + 1) * sizeof(int));
	char	   *ranges;

	for (int i = 0; i < move->nshards; i++)
		numbers[i] = move->shards[i]->number;
	ranges = ranges_of(numbers, move->nshards);
	move->title = text_of("shard%s %s", move->nshards == 1 ? "" : "s", ranges);
	free(ranges);
	free(numbers);
}

/* The set that the command line names. */
Move *
make_set(const MoveOptions *options)
{
	Move	   *set = pg_malloc0(sizeof(Move));

	set->options = options;
	set->source.label = "source";
	set->target.label = "target";
	set->target.place = 1;
	set->set = set;
	set->tally = pg_malloc0(sizeof(Tally));
	set->nshards = options->nshards;
	set->shards = pg_malloc(sizeof(Shard *) * set->nshards);
	for (int i = 0; i < set->nshards; i++)
	{
		set->shards[i] = pg_malloc0(sizeof(Shard));
		set->shards[i]->number = options->shards[i];
		set->shards[i]->pool = "";
	}
	give_title(set);
	return set;
}

Move *
select_shards(const Move *move, ShardTest test, const void *argument)
{
	Move	   *part = pg_malloc(sizeof(Move));

	*part = *move;
	part->nshards = 0;
	part->shards = pg_malloc(sizeof(Shard *) * Max(move->nshards, 1));
	for (int i = 0; i < move->nshards; i++)
		if (test(move, move->shards[i], argument))
			part->shards[part->nshards++] = move->shards[i];
	give_title(part);
	return part;
}

Move *
select_range(const Move *move, int first, int count)
{
	Move	   *part = pg_malloc(sizeof(Move));

	*part = *move;
	part->shards = move->shards + first;
	part->nshards = Min(count, move->nshards - first);
	give_title(part);
	return part;
}

bool
has_failed(const Move *move, Shard *shard, const void *unused)
{
	return shard->failed;
}

bool
has_not_failed(const Move *move, Shard *shard, const void *unused)
{
	return !shard->failed;
}

const Side *
first_side(const Move *move)
{
	return move->source.place == 0 ? &move->source : &move->target;
}

/* What brings a way back has the other name. */
void
swap_sides(Move *move)
{
	Side		source = move->source;
	char	   *name = move->name;

	move->source = move->target;
	move->target = source;
	move->source.label = "source";
	move->target.label = "target";
	move->name = move->reverse_name;
	move->reverse_name = name;
}

void
turn_sides(Move *move)
{
	if (move->nshards > 0 && is_way_back(move->shards[0]) != (move->source.place == 1))
		swap_sides(move);
}

Journal *
journal_of(Shard *shard, const Side *side)
{
	return &shard->journals[side->place];
}

Journal *
set_journal(const Move *move, const Side *side)
{
	return journal_of(move->shards[0], side);
}

char *
shard_list(const Move *move)
{
	PQExpBufferData list;

	initPQExpBuffer(&list);
	for (int i = 0; i < move->nshards; i++)
		appendPQExpBuffer(&list, "%s%d", i > 0 ? ", " : "", move->shards[i]->number);
	return list.data;
}

/* What a shard's schema is called on a server now. */
const char *
name_on(const Side *side, Shard *shard)
{
	const char *name = journal_of(shard, side)->schema;

	return name != NULL ? name : shard->schema;
}

char *
name_list(const Move *move, const Side *side)
{
	PQExpBufferData list;

	initPQExpBuffer(&list);
	for (int i = 0; i < move->nshards; i++)
		appendPQExpBuffer(&list, "%s%s", i > 0 ? ", " : "", literal(side->conn, name_on(side, move->shards[i])));
	return list.data;
}

char *
schema_list(const Move *move, PGconn *conn)
{
	PQExpBufferData list;

	initPQExpBuffer(&list);
	for (int i = 0; i < move->nshards; i++)
		appendPQExpBuffer(&list, "%s%s", i > 0 ? ", " : "", literal(conn, move->shards[i]->schema));
	return list.data;
}

bool
row_exists(const Journal *row, Step unused)
{
	return row->exists;
}

bool
row_is_at(const Journal *row, Step step)
{
	return row->exists && row->at.step == step;
}

bool
row_has_reached(const Journal *row, Step step)
{
	return row->exists && row->at.step >= step;
}

bool
row_is_closed(const Journal *row, Step unused)
{
	return row->closed;
}

bool
any_row(const Move *move, const Side *side, RowTest test, Step step)
{
	for (int i = 0; i < move->nshards; i++)
		if (test(journal_of(move->shards[i], side), step))
			return true;
	return false;
}

bool
all_rows(const Move *move, const Side *side, RowTest test, Step step)
{
	for (int i = 0; i < move->nshards; i++)
		if (!test(journal_of(move->shards[i], side), step))
			return false;
	return true;
}

bool
is_way_back(const Shard *shard)
{
	return is_turned(shard->journals[0].at, shard->journals[1].at);
}

Situation
situation_of(const Shard *shard)
{
	const Journal *first = &shard->journals[0];
	const Journal *second = &shard->journals[1];

	return is_way_back(shard) ? situation_of_pair(second->at, first->at, false) :
		situation_of_pair(first->at, second->at, first->reverse);
}

static bool
is_in_situation(const Move *move, Shard *shard, const void *situations)
{
	return (*(const int *) situations & situation_of(shard)) != 0;
}

Move *
select_situations(const Move *move, int situations)
{
	return select_shards(move, is_in_situation, &situations);
}

/*
 * Lock all shards of the command on a server against other snowid-moves, as
 * long as the connection lasts.  A program that has just died may keep one for
 * a moment.
 */
bool
lock_shards(const Move *move, const Side *side)
{
	int64		until = now_ms() + LOCK_WAIT_MS;
	char	   *wanted = shard_list(move->set);

	/* One that we have, we can have again: it is the session's. */
	for (;;)
	{
		char	   *locked = query_text(side->conn,
										"SELECT string_agg(shard::text, ', ') FROM unnest(ARRAY[%s]) shard "
										"WHERE NOT pg_try_advisory_lock(%d, shard)", wanted, LOCK_CLASS);

		if (locked == NULL)
			return true;
		if (now_ms() > until)
		{
			char	   *holders = query_text(side->conn,
											 "SELECT string_agg(DISTINCT coalesce('the session with process id ' || pid, 'a prepared transaction, which pg_prepared_xacts has'), ', ') FROM pg_locks "
											 "WHERE locktype = 'advisory' AND classid = %d AND objid IN (%s) "
											 "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
											 "AND granted AND pid IS DISTINCT FROM pg_backend_pid()", LOCK_CLASS, locked);

			if (side == &move->target && holders != NULL && strcmp(holders, text_of("the session with process id %d", PQbackendPID(move->source.conn))) == 0 &&
				strcmp(identity_of(side->conn), identity_of(move->source.conn)) == 0)
				return refuse(false, "Give --to the other server.", "source and target are the same database");
			report_error("another snowid-move is at work on shard %s", locked);
			if (holders != NULL)
				report_detail("On the %s, it is %s.", side->label, holders);
			return false;
		}
		wanted = locked;
		wait_ms(100);
	}
}

Shard *
find_shard(const Move *move, int number)
{
	for (int i = 0; i < move->nshards; i++)
		if (move->shards[i]->number == number)
			return move->shards[i];
	return NULL;
}

/* May our role read it?  If not, says so. */
bool
check_journal_rights(const Side *side)
{
	char	   *role = query_text(side->conn, "SELECT quote_ident(current_user) WHERE to_regclass('snowid.moves') IS NOT NULL "
								  "AND NOT has_table_privilege('snowid.moves', 'SELECT')");

	if (role == NULL)
		return true;
	report_error("%s: role %s may not read snowid.moves", side->label, role);
	report_hint("There, as the owner of the database, type: GRANT SELECT, INSERT, UPDATE, DELETE ON snowid.moves TO %s;", role);
	return false;
}

void
read_journal(const Move *move, const Side *side)
{
	PGresult   *res;

	for (int i = 0; i < move->nshards; i++)
	{
		memset(journal_of(move->shards[i], side), 0, sizeof(Journal));
		journal_of(move->shards[i], side)->at.role = NO_ROW;
	}
	if (!query_bool(side->conn, "SELECT to_regclass('snowid.moves') IS NOT NULL"))
		return;
	res = query(side->conn,
				"SELECT shard, details ->> 'move_id', role, step, closed, schema, "
				"coalesce(details ->> 'brought', details ->> 'fingerprint'), "
				"coalesce((details ->> 'reverse')::boolean, false), "
				"coalesce((details ->> 'keep_name')::boolean, false), "
				"details ->> 'name', details ->> 'reverse_name', details ->> 'registry', "
				"peer, date_trunc('second', changed_at), details ->> 'peer_system', "
				"details ->> 'poolers', details ->> 'target_ddl_md5', details ->> 'timelines', coalesce(details ->> 'begun_as', role), details ->> 'reader', details ->> 'fingerprint', details ->> 'fleet_move' "
				"FROM snowid.moves WHERE shard IN (%s)", shard_list(move));
	for (int row = 0; row < PQntuples(res); row++)
	{
		Journal    *j = journal_of(find_shard(move, atoi(PQgetvalue(res, row, 0))), side);

		j->exists = true;
		j->move_id = field(res, row, 1);
		j->at.role = role_of(PQgetvalue(res, row, 2));
		j->at.step = step_of(PQgetvalue(res, row, 3));
		j->closed = *PQgetvalue(res, row, 4) == 't';
		j->schema = field(res, row, 5);
		j->fingerprint = field(res, row, 6);
		j->keep_name = *PQgetvalue(res, row, 8) == 't';
		j->name = field(res, row, 9);
		j->reverse_name = field(res, row, 10);
		j->registry = field(res, row, 11);
		j->peer = field(res, row, 12);
		j->changed_at = field(res, row, 13);
		j->peer_system = field(res, row, 14);
		j->poolers = field(res, row, 15);
		j->target_ddl_md5 = field(res, row, 16);
		j->timelines = field(res, row, 17);
		j->begun_as = role_of(PQgetvalue(res, row, 18));
		j->reader = field(res, row, 19);
		j->copied_fingerprint = field(res, row, 20);
		j->fleet_move = field(res, row, 21);
		j->reverse = *PQgetvalue(res, row, 7) == 't' && j->begun_as == j->at.role;
	}
	PQclear(res);
}

/* On another connection than the side's own. */
void
record_step_on(const Move *move, const Side *side, PGconn *conn, Step step)
{
	PGresult   *res;

	res = query(conn,
				"UPDATE snowid.moves SET step = %s, changed_at = clock_timestamp() "
				"WHERE shard IN (%s) AND details ->> 'move_id' = %s",
				literal(conn, step_name(step)), shard_list(move),
				literal(conn, set_journal(move, side)->move_id));
	if (atoi(PQcmdTuples(res)) != move->nshards)
	{
		report_error("the journal of the %s has lost the row of %s", side->label, move->title);
		fail();
	}
	PQclear(res);
	for (int i = 0; i < move->nshards; i++)
		journal_of(move->shards[i], side)->at.step = step;
	report_verbose("%s: %s", side->label, step_name(step));
}

void
record_step(const Move *move, const Side *side, Step step)
{
	record_step_on(move, side, side->conn, step);
}

/* Keep a text in the journal's details. */
void
record_detail(const Move *move, PGconn *conn, const char *key, const char *value)
{
	run(conn,
		"UPDATE snowid.moves SET details = details || jsonb_build_object(%s, %s::text) "
		"WHERE shard IN (%s)",
		literal(conn, key), literal(conn, value), shard_list(move));
}

/*
 * Has a server failed over since the copy was known to have the rows of the
 * source?  What was committed last may be lost with that, on either side, though
 * the slot takes it for replicated.
 */
bool
failed_over(const Move *move, const Side *side)
{
	for (int i = 0; i < move->nshards; i++)
	{
		const char *then = move->shards[i]->journals[0].timelines;

		if (then == NULL || strncmp(then + 9 * side->place, side->timeline, 8) != 0)
			return true;
	}
	return false;
}

/* For messages; NULL if none has. */
const char *
who_failed_over(const Move *move)
{
	return failed_over(move, &move->target) ? move->target.label : failed_over(move, &move->source) ? move->source.label : NULL;
}

/* From here on the copy has what the source has, or gets it. */
void
record_timelines(const Move *move)
{
	const Side *first = first_side(move);
	const Side *second = first == &move->source ? &move->target : &move->source;

	record_detail(move, first->conn, "timelines", text_of("%s %s", first->timeline, second->timeline));
	read_journal(move, first);
}

/*
 * Claim the shards: first on the source, where two moves of a shard must meet,
 * then on the target, which also learns that there are such shards.
 */
void
claim_source(const Move *move)
{
	const Side *source = &move->source;
	PGconn	   *conn = source->conn;
	const char *registry = move->options->registry;
	PQExpBufferData shards;

	/* For others, the server that made a shard has a name. */
	run(conn, "UPDATE snowid.shard_registry SET homes = (SELECT jsonb_agg(CASE WHEN h ->> 'home' IS NULL "
		"THEN h || jsonb_build_object('home', %s::text) ELSE h END ORDER BY n) FROM jsonb_array_elements(homes) WITH ORDINALITY e (h, n)) "
		"WHERE shard IN (%s) AND homes <> '[]'", literal(conn, source->home), shard_list(move));
	initPQExpBuffer(&shards);
	for (int i = 0; i < move->nshards; i++)
		appendPQExpBuffer(&shards, "%s(%d, %s, %s)", i > 0 ? ", " : "", move->shards[i]->number,
						  literal(conn, move->shards[i]->schema), literal(conn, journal_of(move->shards[i], source)->fingerprint));
	run(conn,
		"INSERT INTO snowid.moves (shard, schema, role, step, peer, details) "
		"SELECT shard, schema, 'source', 'claimed', %s, jsonb_build_object("
		"'begun_as', 'source', 'move_id', move_id::text, 'reverse', %s, 'name', %s::text, 'reverse_name', %s::text, 'registry', %s::text, "
		"'peer_system', %s::text, 'fingerprint', fingerprint::text, 'fleet_move', %s::text, 'schema_oid', to_regnamespace(quote_ident(schema))::oid) "
		"FROM gen_random_uuid() move_id, (VALUES %s) v (shard, schema, fingerprint)",
		literal(conn, move->target.home), move->options->reverse ? "true" : "false",
		literal(conn, move->name), literal(conn, move->reverse_name),
		literal(conn, registry == NULL ? NULL : without_password("--registry", registry)),
		literal(conn, move->target.system), literal(conn, getenv("SNOWID_FLEET_MOVE")), shards.data);
	termPQExpBuffer(&shards);
	read_journal(move, source);
	report_verbose("%s: claimed", source->label);
}

/* As the source's registry has them; false if the target's knows other such shards. */
bool
claim_target(const Move *move)
{
	const Side *target = &move->target;
	PGconn	   *conn = target->conn;
	const Journal *claimed = set_journal(move, &move->source);
	char	   *given = query_text(move->source.conn,
								   "SELECT jsonb_agg('{\"homes\": []}'::jsonb || to_jsonb(r) || jsonb_build_object('home', %s::text)) FROM snowid.shard_registry r WHERE shard IN (%s)",
								   literal(move->source.conn, move->source.home), shard_list(move));
	char	   *others;

	given = text_of("jsonb_populate_recordset(NULL::snowid.shard_registry, %s) g", literal(conn, given));
	run(conn, "BEGIN");
	run(conn,
		"WITH added AS (INSERT INTO snowid.shard_registry SELECT * FROM %s ON CONFLICT DO NOTHING RETURNING shard) "
		"INSERT INTO snowid.moves (shard, schema, role, step, peer, details) "
		"SELECT shard, schema, 'target', 'claimed', %s, jsonb_build_object('begun_as', 'target', 'move_id', %s::text, 'reverse', %s, "
		"'name', %s::text, 'reverse_name', %s::text, 'registry', %s::text, 'fleet_move', %s::text, "
		"'registered', shard IN (SELECT shard FROM added), 'peer_system', %s::text) FROM %s",
		given, literal(conn, move->source.home), literal(conn, claimed->move_id), claimed->reverse ? "true" : "false",
		literal(conn, move->name), literal(conn, move->reverse_name),
		literal(conn, claimed->registry), literal(conn, claimed->fleet_move), literal(conn, move->source.system), given);
	others = query_text(conn, "SELECT string_agg(shard::text, ', ') FROM %s LEFT JOIN snowid.shard_registry r USING (shard) "
						"WHERE (r.schema, r.sequence) IS DISTINCT FROM (g.schema, g.sequence) OR r.epoch IS DISTINCT FROM g.epoch", given);
	if (others != NULL)
	{
		report_error("the target's registry has other shards %s, or their schemas", others);
		report_hint("Compare SELECT * FROM snowid.shards; of both servers. To forget this move, type: snowid-move abort");
		run(conn, "ROLLBACK");
		return false;
	}
	run(conn, "COMMIT");
	read_journal(move, target);
	report_verbose("%s: claimed", target->label);
	return true;
}
