/*
 * The journal: one row of snowid.moves on each server, written in the same
 * transaction as the step that it records, where the step is one.
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
#include "postgres_fe.h"

#include "snowid-move.h"

static const char *const steps[] = {
	"claimed", "schema", "published", "subscribed", "copied", "verified",
	"ready", "fenced", "open", "moved"
};

/* Has this server's journal got to a step, or beyond? */
bool
has_reached(const Side *side, const char *step)
{
	int			have = -1;
	int			want = lengthof(steps);

	if (!side->journal.exists)
		return false;
	for (int i = 0; i < (int) lengthof(steps); i++)
	{
		if (strcmp(steps[i], side->journal.step) == 0)
			have = i;
		if (strcmp(steps[i], step) == 0)
			want = i;
	}
	return have >= want;
}

bool
is_at(const Side *side, const char *step)
{
	return side->journal.exists && strcmp(side->journal.step, step) == 0;
}

bool
is_role(const Side *side, const char *role)
{
	return side->journal.exists && strcmp(side->journal.role, role) == 0;
}

static char *
field(PGresult *res, int column)
{
	return PQgetisnull(res, 0, column) ? NULL : pg_strdup(PQgetvalue(res, 0, column));
}

void
read_journal(const Move *move, Side *side)
{
	PGresult   *res;
	Journal    *j = &side->journal;

	memset(j, 0, sizeof(Journal));
	if (!query_bool(side->conn, "SELECT to_regclass('snowid.moves') IS NOT NULL"))
		return;
	res = query(side->conn,
				"SELECT details ->> 'move_id', role, step, closed, schema, "
				"details ->> 'fingerprint', "
				"coalesce((details ->> 'reverse')::boolean, false), "
				"details ->> 'reverse_lsn', "
				"coalesce((details ->> 'keep_name')::boolean, false), "
				"details ->> 'name', details ->> 'reverse_name', details ->> 'registry', peer "
				"FROM snowid.moves WHERE shard = %d", move->options->shard);
	if (PQntuples(res) > 0)
	{
		j->exists = true;
		j->move_id = field(res, 0);
		j->role = field(res, 1);
		j->step = field(res, 2);
		j->closed = *PQgetvalue(res, 0, 3) == 't';
		j->schema = field(res, 4);
		j->fingerprint = field(res, 5);
		j->reverse = *PQgetvalue(res, 0, 6) == 't';
		j->reverse_lsn = field(res, 7);
		j->keep_name = *PQgetvalue(res, 0, 8) == 't';
		j->name = field(res, 9);
		j->reverse_name = field(res, 10);
		j->registry = field(res, 11);
		j->peer = field(res, 12);
	}
	PQclear(res);
}

/*
 * Record a step on a server, in the transaction that its connection has open,
 * if any.
 */
void
record_step(const Move *move, Side *side, const char *step)
{
	PGresult   *res;

	res = query(side->conn,
				"UPDATE snowid.moves SET step = %s, changed_at = clock_timestamp() "
				"WHERE shard = %d AND details ->> 'move_id' = %s",
				literal(side->conn, step), move->options->shard,
				literal(side->conn, side->journal.move_id));
	if (strcmp(PQcmdTuples(res), "1") != 0)
	{
		report_error("the journal of the %s has lost the row of shard %d",
					 side->label, move->options->shard);
		fail();
	}
	PQclear(res);
	side->journal.step = pg_strdup(step);
	report_verbose("%s: %s", side->label, step);
}

/* Keep a text in the journal's details. */
void
record_detail(const Move *move, Side *side, const char *key, const char *value)
{
	run(side->conn,
		"UPDATE snowid.moves SET details = details || jsonb_build_object(%s, %s::text) "
		"WHERE shard = %d",
		literal(side->conn, key), literal(side->conn, value), move->options->shard);
}

/*
 * Claim the shard: first on the source, where two moves of a shard must meet,
 * then on the target, which also learns that there is such a shard.
 */
void
claim_source(Move *move)
{
	Side	   *source = &move->source;
	PGconn	   *conn = source->conn;

	run(conn,
		"INSERT INTO snowid.moves (shard, schema, role, step, peer, details) "
		"SELECT %d, %s, 'source', 'claimed', %s, jsonb_build_object("
		"'move_id', gen_random_uuid(), 'reverse', %s, 'keep_name', %s, "
		"'name', %s::text, 'reverse_name', %s::text, 'registry', %s::text)",
		move->options->shard, literal(conn, move->schema),
		literal(conn, move->target.home),
		move->options->reverse ? "true" : "false",
		move->options->keep_name ? "true" : "false",
		literal(conn, move->name), literal(conn, move->reverse_name),
		literal(conn, move->options->registry == NULL ? NULL :
				without_password("--registry", move->options->registry)));
	read_journal(move, source);
	report_verbose("%s: claimed", source->label);
}

void
claim_target(Move *move)
{
	Side	   *target = &move->target;
	PGconn	   *conn = target->conn;
	PGresult   *res;
	int			shard = move->options->shard;

	res = query(move->source.conn,
				"SELECT schema, sequence, epoch FROM snowid.shard_registry WHERE shard = %d",
				shard);
	run(conn, "BEGIN");
	run(conn,
		"WITH added AS (INSERT INTO snowid.shard_registry (shard, schema, sequence, epoch, home) "
		"VALUES (%d, %s, %s, %s, %s) ON CONFLICT DO NOTHING RETURNING shard) "
		"INSERT INTO snowid.moves (shard, schema, role, step, peer, details) "
		"SELECT %d, %s, 'target', 'claimed', %s, jsonb_build_object("
		"'move_id', %s::text, 'reverse', %s, "
		"'name', %s::text, 'reverse_name', %s::text, 'registry', %s::text, "
		"'registered', EXISTS (SELECT FROM added))",
		shard, literal(conn, PQgetvalue(res, 0, 0)), literal(conn, PQgetvalue(res, 0, 1)),
		literal(conn, PQgetisnull(res, 0, 2) ? NULL : PQgetvalue(res, 0, 2)),
		literal(conn, move->source.home),
		shard, literal(conn, move->schema), literal(conn, move->source.home),
		literal(conn, move->source.journal.move_id),
		move->source.journal.reverse ? "true" : "false",
		literal(conn, move->name), literal(conn, move->reverse_name),
		literal(conn, move->source.journal.registry));
	if (!query_bool(conn,
					"SELECT schema = %s AND sequence = %s AND epoch IS NOT DISTINCT FROM %s::timestamptz "
					"FROM snowid.shard_registry WHERE shard = %d",
					literal(conn, PQgetvalue(res, 0, 0)), literal(conn, PQgetvalue(res, 0, 1)),
					literal(conn, PQgetisnull(res, 0, 2) ? NULL : PQgetvalue(res, 0, 2)), shard))
	{
		report_error("the target's registry has another shard %d, or schema \"%s\"",
					 shard, move->schema);
		report_hint("Compare SELECT * FROM snowid.shards; of both servers. To forget this move, type: snowid-move abort");
		fail();
	}
	run(conn, "COMMIT");
	PQclear(res);
	read_journal(move, target);
	report_verbose("%s: claimed", target->label);
}
