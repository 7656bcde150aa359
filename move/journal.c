/*
 * The journal: one row of snowid.moves for each shard on each server, written
 * in the same transaction as the step that it records, where the step is one.
 *
 * The rows of one move carry the same random move_id, so that neither server
 * takes another move's row for its own.  The steps, in order:
 *
 *		claimed		both		the shard belongs to this move
 *		schema		target		its definitions are there, closed
 *		published	source		publication, and then the slot
 *		subscribed	target		the copy runs
 *		copied		source		the target has it all, and follows
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

static const char *const steps[] = {
	"claimed", "schema", "published", "subscribed", "copied", "verified",
	"ready", "fenced", "open", "moved"
};

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

char *
schema_list(const Move *move, PGconn *conn)
{
	PQExpBufferData list;

	initPQExpBuffer(&list);
	for (int i = 0; i < move->nshards; i++)
		appendPQExpBuffer(&list, "%s%s", i > 0 ? ", " : "", literal(conn, move->shards[i]->schema));
	return list.data;
}

/* Its place in the order; -1 for none, as of "aborted". */
static int
place_of_step(const char *step)
{
	for (int i = 0; i < (int) lengthof(steps); i++)
		if (strcmp(steps[i], step) == 0)
			return i;
	return -1;
}

bool
is_known(const Move *move, const Side *side)
{
	for (int i = 0; i < move->nshards; i++)
		if (!journal_of(move->shards[i], side)->exists)
			return false;
	return true;
}

bool
has_reached(const Move *move, const Side *side, const char *step)
{
	if (!is_known(move, side))
		return false;
	for (int i = 0; i < move->nshards; i++)
		if (place_of_step(journal_of(move->shards[i], side)->step) < place_of_step(step))
			return false;
	return true;
}

bool
is_at(const Move *move, const Side *side, const char *step)
{
	if (!is_known(move, side))
		return false;
	for (int i = 0; i < move->nshards; i++)
		if (strcmp(journal_of(move->shards[i], side)->step, step) != 0)
			return false;
	return true;
}

bool
is_role(const Move *move, const Side *side, const char *role)
{
	if (!is_known(move, side))
		return false;
	for (int i = 0; i < move->nshards; i++)
		if (strcmp(journal_of(move->shards[i], side)->role, role) != 0)
			return false;
	return true;
}

bool
is_closed(const Move *move, const Side *side)
{
	for (int i = 0; i < move->nshards; i++)
		if (!journal_of(move->shards[i], side)->closed)
			return false;
	return true;
}

/*
 * Lock the shards on a server against other snowid-moves, as long as the
 * connection lasts.  A program that has just died may keep one for a moment.
 */
bool
lock_shards(const Move *move, const Side *side)
{
	int64		until = now_ms() + LOCK_WAIT_MS;

	for (int i = 0; i < move->nshards; i++)
	{
		int			shard = move->shards[i]->number;

		while (!query_bool(side->conn, "SELECT pg_try_advisory_lock(%d, %d)",
						   LOCK_CLASS, shard))
		{
			if (now_ms() > until)
			{
				report_error("another snowid-move is at work on shard %d", shard);
				report_detail("On the %s, it is the session with process id %s.", side->label,
							  query_text(side->conn,
										 "SELECT string_agg(pid::text, ', ') FROM pg_locks "
										 "WHERE locktype = 'advisory' AND classid = %d AND objid = %d "
										 "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
										 "AND granted", LOCK_CLASS, shard));
				return false;
			}
			wait_ms(100);
		}
	}
	return true;
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
	bool		has_table = query_bool(side->conn, "SELECT to_regclass('snowid.moves') IS NOT NULL");

	for (int i = 0; i < move->nshards; i++)
	{
		Journal    *j = journal_of(move->shards[i], side);
		PGresult   *res;

		memset(j, 0, sizeof(Journal));
		if (!has_table)
			continue;
		res = query(side->conn,
					"SELECT details ->> 'move_id', role, step, closed, schema, "
					"details ->> 'fingerprint', "
					"coalesce((details ->> 'reverse')::boolean, false), "
					"details ->> 'reverse_lsn', "
					"coalesce((details ->> 'keep_name')::boolean, false), "
					"details ->> 'name', details ->> 'reverse_name', details ->> 'registry', "
					"peer, date_trunc('second', changed_at), details -> 'sequences' "
					"FROM snowid.moves WHERE shard = %d", move->shards[i]->number);
		if (PQntuples(res) > 0)
		{
			j->exists = true;
			j->move_id = field(res, 0, 0);
			j->role = field(res, 0, 1);
			j->step = field(res, 0, 2);
			j->closed = *PQgetvalue(res, 0, 3) == 't';
			j->schema = field(res, 0, 4);
			j->fingerprint = field(res, 0, 5);
			j->reverse = *PQgetvalue(res, 0, 6) == 't';
			j->reverse_lsn = field(res, 0, 7);
			j->keep_name = *PQgetvalue(res, 0, 8) == 't';
			j->name = field(res, 0, 9);
			j->reverse_name = field(res, 0, 10);
			j->registry = field(res, 0, 11);
			j->peer = field(res, 0, 12);
			j->changed_at = field(res, 0, 13);
			j->sequences = field(res, 0, 14);
		}
		PQclear(res);
	}
}

/* On another connection than the side's own. */
void
record_step_on(const Move *move, const Side *side, PGconn *conn, const char *step)
{
	PGresult   *res;

	res = query(conn,
				"UPDATE snowid.moves SET step = %s, changed_at = clock_timestamp() "
				"WHERE shard IN (%s) AND details ->> 'move_id' = %s",
				literal(conn, step), shard_list(move),
				literal(conn, set_journal(move, side)->move_id));
	if (atoi(PQcmdTuples(res)) != move->nshards)
	{
		report_error("the journal of the %s has lost the row of %s", side->label, move->title);
		fail();
	}
	PQclear(res);
	for (int i = 0; i < move->nshards; i++)
		journal_of(move->shards[i], side)->step = pg_strdup(step);
	report_verbose("%s: %s", side->label, step);
}

void
record_step(const Move *move, const Side *side, const char *step)
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

/* The same for what each shard has of its own. */
void
record_fingerprint(const Side *side, int shard, const char *fingerprint)
{
	run(side->conn,
		"UPDATE snowid.moves SET details = details || jsonb_build_object('fingerprint', %s::text) "
		"WHERE shard = %d",
		literal(side->conn, fingerprint), shard);
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
	char	   *move_id = query_text(conn, "SELECT gen_random_uuid()");
	const char *registry = move->options->registry;

	run(conn, "BEGIN");
	for (int i = 0; i < move->nshards; i++)
		run(conn,
			"INSERT INTO snowid.moves (shard, schema, role, step, peer, details) "
			"SELECT %d, %s, 'source', 'claimed', %s, jsonb_build_object("
			"'move_id', %s::text, 'reverse', %s, 'keep_name', %s, "
			"'name', %s::text, 'reverse_name', %s::text, 'registry', %s::text)",
			move->shards[i]->number, literal(conn, move->shards[i]->schema),
			literal(conn, move->target.home), literal(conn, move_id),
			move->options->reverse ? "true" : "false",
			move->options->keep_name ? "true" : "false",
			literal(conn, move->name), literal(conn, move->reverse_name),
			literal(conn, registry == NULL ? NULL : without_password("--registry", registry)));
	run(conn, "COMMIT");
	read_journal(move, source);
	report_verbose("%s: claimed", source->label);
}

/* One shard's row on the target; false if its registry knows another such. */
static bool
claim_shard_on_target(const Move *move, Shard *shard)
{
	PGconn	   *conn = move->target.conn;
	const Journal *claimed = journal_of(shard, &move->source);
	char	   *schema;
	char	   *sequence;
	char	   *epoch;
	PGresult   *res = query(move->source.conn,
							"SELECT schema, sequence, epoch FROM snowid.shard_registry WHERE shard = %d",
							shard->number);

	schema = literal(conn, field(res, 0, 0));
	sequence = literal(conn, field(res, 0, 1));
	epoch = literal(conn, field(res, 0, 2));
	PQclear(res);
	run(conn,
		"WITH added AS (INSERT INTO snowid.shard_registry (shard, schema, sequence, epoch, home) "
		"VALUES (%d, %s, %s, %s, %s) ON CONFLICT DO NOTHING RETURNING shard) "
		"INSERT INTO snowid.moves (shard, schema, role, step, peer, details) "
		"SELECT %d, %s, 'target', 'claimed', %s, jsonb_build_object("
		"'move_id', %s::text, 'reverse', %s, "
		"'name', %s::text, 'reverse_name', %s::text, 'registry', %s::text, "
		"'registered', EXISTS (SELECT FROM added))",
		shard->number, schema, sequence, epoch, literal(conn, move->source.home),
		shard->number, literal(conn, shard->schema), literal(conn, move->source.home),
		literal(conn, claimed->move_id), claimed->reverse ? "true" : "false",
		literal(conn, move->name), literal(conn, move->reverse_name),
		literal(conn, claimed->registry));
	return query_bool(conn,
					  "SELECT schema = %s AND sequence = %s AND epoch IS NOT DISTINCT FROM %s::timestamptz "
					  "FROM snowid.shard_registry WHERE shard = %d",
					  schema, sequence, epoch, shard->number);
}

bool
claim_target(const Move *move)
{
	const Side *target = &move->target;

	run(target->conn, "BEGIN");
	for (int i = 0; i < move->nshards; i++)
		if (!claim_shard_on_target(move, move->shards[i]))
		{
			report_error("the target's registry has another shard %d, or schema \"%s\"",
						 move->shards[i]->number, move->shards[i]->schema);
			report_hint("Compare SELECT * FROM snowid.shards; of both servers. To forget this move, type: snowid-move abort");
			return false;
		}
	run(target->conn, "COMMIT");
	read_journal(move, target);
	report_verbose("%s: claimed", target->label);
	return true;
}
