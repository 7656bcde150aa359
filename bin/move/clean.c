/*
 * What comes after the cut-over, and the two ends of a move: finish, which
 * drops the copy that was left behind, and abort, which drops the new one.
 *
 * Everything here looks at what there is, and can be done again.
 */
#include "stages.h"

#include "sql/queries.inc"

/* How long what uses the schema's name may take to end. */
#define END_WAIT_MS		10000

/*
 * Wait until nobody uses the names of the closed copies any more.
 *
 * Statements that were waiting when the shard was closed look up its tables by
 * name again.  They must have ended first, so that they get the error with the
 * new home.  A transaction that is creating a table must have ended, too, or the
 * schema would be renamed under it: not all minor releases make us wait there.
 */
static Status
wait_for_users_of_names(const Move *move, const Side *from)
{
	PGconn	   *conn = from->conn;
	int64		until = now_ms() + END_WAIT_MS;

	while (now_ms() < until &&
		   query_bool(conn, USERS_OF_NAMES_SQL, shard_list(move)))
		wait_ms(10);
	while (query_bool(conn, "SELECT %s", being_extended_sql(move, conn)))
	{
		if (now_ms() > until)
		{
			report_error("another transaction is creating objects in the closed copy of %s at %s",
						 move->title, from->home);
			report_hint("They will not be on the other server. When that transaction has ended, type the same command again.");
			return STATUS_FAILED;
		}
		wait_ms(10);
	}
	return STATUS_DONE;
}

/*
 * Rename the copies that were left behind, so that nobody takes them for the
 * shards.
 */
static Status
rename_copies(const Move *move, const Side *from)
{
	PGconn	   *conn = from->conn;
	Status		status = wait_for_users_of_names(move, from);
	PGresult   *names;

	if (status != STATUS_DONE)
		return status;
	names = query(conn, NEW_NAMES_SQL, schema_list(move, conn), shard_list(move));
	run(conn, "BEGIN");
	run(conn, "SET LOCAL lock_timeout = %d", END_WAIT_MS);
	for (int row = 0; row < PQntuples(names); row++)
		run(conn, "%s", PQgetvalue(names, row, 0));
	record_step(move, from, MOVED);
	run(conn, "COMMIT");
	for (int row = 0; row < PQntuples(names); row++)
		report_info("the closed copy at %s is now schema \"%s\"", from->home, PQgetvalue(names, row, 1));
	PQclear(names);
	read_journal(move, from);
	return STATUS_DONE;
}

/*
 * Tell the server that keeps the registry for all, if there is one.  The
 * shards are open whether it can be told now or not.
 */
Status
tell_registry(const Move *move)
{
	const Side *to = &move->target;
	const char *conninfo = move->options->registry != NULL
	? move->options->registry : set_journal(move, &move->source)->registry;
	PGconn	   *conn;
	PGresult   *res;

	if (conninfo == NULL)
		return STATUS_DONE;
	conn = open_connection("registry", conninfo);
	if (PQstatus(conn) != CONNECTION_OK)
	{
		report_warning("registry: %s", PQerrorMessage(conn));
		PQfinish(conn);
		return STATUS_FAILED;
	}
	res = query(conn, TELL_REGISTRY_SQL, literal(conn, registered_home(conn, to)), schema_list(move, conn), shard_list(move));
	for (int row = 0; row < PQntuples(res); row++)
	{
		report_warning("the registry does not have shard %s", PQgetvalue(res, row, 0));
		report_hint("Type there: %s", PQgetvalue(res, row, 1));
	}
	PQclear(res);
	PQfinish(conn);
	return STATUS_DONE;
}

/*
 * Publications of the source that have had tables of the shards: nothing
 * carries their membership over.
 */
void
tell_publications(const Move *move)
{
	PGconn	   *conn = move->source.conn;
	PGresult   *res = query(conn, OTHER_PUBLICATIONS_SQL, literal(conn, move->reverse_name), shard_list(move));

	for (int row = 0; row < PQntuples(res); row++)
	{
		report_warning("publication \"%s\" of the source has had tables of %s", PQgetvalue(res, row, 0), move->title);
		report_hint("If there is such a publication at %s, type there: ALTER PUBLICATION %s ADD %s;",
					move->target.home, ident(conn, PQgetvalue(res, row, 0)), PQgetvalue(res, row, 1));
	}
	PQclear(res);
}

/*
 * Who reads the slot for the way back from its beginning?  If that comes late, or is
 * another one when the way back begins, all rows are compared before.
 */
static void
await_reader(const Move *move)
{
	Move	   *back = select_range(move, 0, move->nshards);
	int64		until = now_ms() + END_WAIT_MS;
	char	   *reader;

	swap_sides(back);
	while ((reader = reader_of(back)) == NULL && now_ms() < until)
		wait_ms(20);
	if (reader != NULL)
		record_reader(back, reader);
}

/*
 * After the hand-over: end the replication that has brought the shards, if the
 * batch is complete; begin the one back, if wanted, for which it must be; and
 * rename the copies that were left behind.
 */
Status
clean_up_after(const Move *move, bool is_complete)
{
	const Side *from = &move->source;
	const Side *to = &move->target;
	const Journal *journal = set_journal(move, from);

	if (!wait_for_standbys(to, now_ms() + END_WAIT_MS))
	{
		report_error("a standby of %s does not have the shard yet", to->home);
		report_hint("If it were promoted, the copy that is left behind would be needed. When it follows again, or is gone, type the same command again.");
		return STATUS_FAILED;
	}
	if ((is_complete ? end_replication(from, to, move->name) : take_out(move)) != STATUS_DONE ||
		tell_registry(move) != STATUS_DONE)
		return STATUS_FAILED;

	/* Tables are found by name by replication too. */
	if (journal->reverse)
	{
		if (!is_complete)
			return STATUS_DONE;
		subscribe_back(move);
		await_reader(move);
		record_step(move, from, MOVED);
	}
	else if (journal->keep_name)
		record_step(move, from, MOVED);
	else if (rename_copies(move, from) != STATUS_DONE)
		return STATUS_FAILED;
	read_journal(move, from);
	read_journal(move, to);
	return STATUS_DONE;
}

/* Are these the shards' schemas, as the rows of that table say, which may be anybody's who was let write there? */
bool
schemas_are_of(const Side *side, const char *numbers, const char *names, const char *table)
{
	PGresult   *strange = query(side->conn, STRANGE_SCHEMAS_SQL, numbers, names);
	char	   *shard;
	char	   *schema;

	if (PQntuples(strange) == 0)
		return true;
	shard = field(strange, 0, 0);
	schema = field(strange, 0, 1);
	return refuse(false, text_of("Look at it. If it is, type there: COMMENT ON SCHEMA %s IS 'snowid: of shard %s'; else correct the row.", ident(side->conn, schema), shard),
				  "schema \"%s\" at %s does not say that it is of shard %s, as %s does; nothing was dropped", schema, side->home, shard, table);
}

/* What is only in the copies must not be lost with them. */
static Status
refuse_copies(const Side *source, const char *names, const char *error, const char *hint)
{
	if (names == NULL)
		return STATUS_DONE;
	report_error(error, source->home, names);
	report_hint("%s", hint);
	failure_exit_code = EXIT_FAILED;
	return STATUS_FAILED;
}

/*
 * Tables that were made in a copy after it was closed are nowhere else, and what
 * others have made of it would go with it: as that connection sees it.
 */
static Status
refuse_newer(const Move *move, const Side *source, PGconn *conn)
{
	if (!is_at(move, source, CLAIMED) && !schemas_are_of(source, shard_list(move), name_list(move, source), "snowid.moves"))
	{
		failure_exit_code = EXIT_FAILED;
		return STATUS_FAILED;
	}
	if (refuse_copies(source, query_text(conn, NEWER_TABLES_SQL, shard_list(move)),
					  "tables of the copy at %s were made after it was closed: %s",
					  "They are not on the other server. Copy them there, drop them here, and type the same command again.") != STATUS_DONE)
		return STATUS_FAILED;
	if (move->options->cascade)
		return STATUS_DONE;
	return refuse_copies(source, query_text(conn, "SELECT string_agg(user_name, ', ' ORDER BY user_name) FROM (" OUTSIDE_USERS_SQL ") u",
											text_of("ARRAY[%s]::text[]", name_list(move, source))),
						 "objects of other schemas at %s use the copy, and would be dropped with it: %s",
						 "Drop or change them and type the same command again. finish and abort drop them with --cascade.");
}

/*
 * What was changed in a closed copy is nowhere else, either.  A transaction that
 * was open then may have done it, such as one with ALTER FUNCTION, which no lock
 * tells of.
 */
static Status
refuse_changed(const Move *move, const Side *source)
{
	char	  **now = note_definitions(move, source);
	const char *changed = NULL;

	for (int i = 0; i < move->nshards; i++)
	{
		const Journal *j = journal_of(move->shards[i], source);

		if (j->fingerprint != NULL && !is_as_noted(j->fingerprint, now[i]))
			changed = j->schema;
	}
	return refuse_copies(source, changed, "a definition in the copy at %s, schema \"%s\", was changed after it was closed",
						 "The other server does not have that change. Compare what pg_dump --schema-only says of both, change it there, and type: snowid-move finish --cascade");
}

/*
 * With a foreign key goes a lock on the table that it leads to.  Those who use a shared
 * table are not to queue behind us while we wait for somebody.
 */
static void
drop_schema(const Move *single, const Side *side)
{
	PGconn	   *conn = side->conn;
	char	   *schema = ident(conn, set_journal(single, side)->schema);
	bool		leads_out = query_bool(conn, "SELECT count(*) FROM pg_constraint JOIN pg_class c ON c.oid = confrelid "
									   "WHERE contype = 'f' AND connamespace = to_regnamespace(%s) AND relnamespace <> connamespace", literal(conn, schema));

	if (!schemas_are_of(side, shard_list(single), name_list(single, side), "snowid.moves"))
		fail();
	for (int n = 0; leads_out; n++)
	{
		run(conn, "SAVEPOINT keys; SET LOCAL lock_timeout = %d", single->options->lock_timeout_ms);
		if (try_run(conn, "DROP SCHEMA %s CASCADE", schema))
			break;
		if (strcmp(last_sqlstate, "55P03") != 0 && strcmp(last_sqlstate, "40P01") != 0)
			fail_with(conn);
		if (n % 10 == 0)
			report_info("%s: waiting: %s", side->label, PQerrorMessage(conn));
		run(conn, "ROLLBACK TO keys; RELEASE keys");
		back_off(n);
	}
	run(conn, "DROP SCHEMA IF EXISTS %s CASCADE; SET LOCAL lock_timeout = 0", schema);
}

static void
forget_journal(const Move *move, const Side *side)
{
	run(side->conn, "DELETE FROM snowid.moves WHERE shard IN (%s)", shard_list(move));
}

/* Is nothing in the copies that would be lost with them? */
Status
check_copies(const Move *move, const Side *source)
{
	if (refuse_newer(move, source, source->conn) != STATUS_DONE)
		return STATUS_FAILED;
	if (move->options->cascade)
		return STATUS_DONE;

	/* A fail-over has opened some for a while. */
	if (refuse_copies(source, query_text(source->conn, "SELECT string_agg(quote_ident(schema), ', ') FROM snowid.moves WHERE shard IN (%s) AND details ? 'reopened'",
										 shard_list(move)),
					  "the copy at %s was open after a fail-over, and may have rows that are nowhere else: schema %s",
					  "Compare it, carry over what is missing, and type: snowid-move finish --cascade") != STATUS_DONE)
		return STATUS_FAILED;
	return refuse_changed(move, source);
}

/* With a copy go foreign keys from others to it, or back: that is no change of these. */
static void
note_anew(const Move *move, const Side *source)
{
	char	  **now = note_definitions(move, source);

	for (int i = 0; i < move->nshards; i++)
		if (journal_of(move->shards[i], source)->fingerprint != NULL)
			record_detail(select_range(move, i, 1), source->conn, "fingerprint", now[i]);
}

/*
 * Drop copies that were left behind and checked, with their rows in the journal.
 * Throttled, this works half of the time.
 */
Status
drop_copies(const Move *move, const Side *source, bool throttled)
{
	/* One by one, since dropping takes a lock for each thing. */
	for (int i = 0; i < move->nshards; i++)
	{
		const Move *single = select_range(move, i, 1);
		char	   *schema = literal(source->conn, ident(source->conn, set_journal(single, source)->schema));
		bool		has_keys = query_bool(source->conn, "SELECT count(*) FROM pg_constraint JOIN pg_class c ON c.oid = confrelid WHERE contype = 'f' "
										  "AND relnamespace <> connamespace AND to_regnamespace(%s) IN (relnamespace, connamespace)", schema);
		int64		start = now_ms();

		run(source->conn, "BEGIN");
		drop_schema(single, source);
		if (has_keys && i + 1 < move->nshards)
			note_anew(select_range(move, i + 1, move->nshards - i - 1), source);

		/*
		 * That has waited for transactions that were creating tables, and no
		 * new one can begin.  The other connection still sees what it has
		 * dropped; copies that are to be dropped may use each other.
		 */
		if (refuse_newer(select_range(move, i, move->nshards - i), source, source->aux) != STATUS_DONE)
		{
			run(source->conn, "ROLLBACK");
			return STATUS_FAILED;
		}
		forget_journal(single, source);
		run(source->conn, "COMMIT");
		if (throttled)
			wait_ms((int) (now_ms() - start));
	}
	report_info("%s: the cop%s at %s %s dropped", move->title, move->nshards == 1 ? "y" : "ies", source->home,
				move->nshards == 1 ? "is" : "are");
	return STATUS_DONE;
}

/*
 * Before copies are dropped: do the shards live on the server that has them, and is
 * that the one that they came to?  It may have been restored to a time before, or be
 * another one at the same address.  Or may they have gone on from there since?
 */
Status
check_owner(const Move *move, const Side *owner, const Side *copies, bool may_be_gone)
{
	char	   *missing = query_text(owner->conn, "SELECT string_agg(u::text, ', ' ORDER BY u) FROM unnest(ARRAY[%s]) u "
									 "LEFT JOIN snowid.shard_registry r ON r.shard = u "
									 "WHERE r.shard IS NULL OR snowid_internal.lives(r) %s", shard_list(move),
									 may_be_gone ? "IN ('closed', 'missing')" : "<> 'here'");
	char	   *elsewhere = query_text(owner->conn, "SELECT min(l) FROM snowid.shard_registry r, snowid_internal.lives(r) l "
									   "WHERE shard IN (%s) AND l NOT IN ('here', 'closed', 'missing')", shard_list(move));
	const char *system = set_journal(move, copies)->peer_system;

	failure_exit_code = EXIT_FAILED;
	if (system != NULL && strcmp(system, owner->system) != 0 && !is_known(move, owner))
		return refuse(STATUS_FAILED, "Look for the server that has the shards. Nothing was dropped.",
					  "the server at %s is not that which %s came to: its system identifier is %s, and was %s",
					  owner->home, move->title, owner->system, system);
	if (elsewhere != NULL && !is_home_of(elsewhere, owner->system, owner) && !is_home_of(elsewhere, copies->system, copies))
		return refuse(STATUS_FAILED, text_of("Compare them with what is there, snowid-move diff with --as. If nothing is missing, for each, type at %s: DROP SCHEMA ... CASCADE; DELETE FROM snowid.moves WHERE shard = ...;",
											 copies->home),
					  "%s has gone on from %s, which says where: %s; the copies at %s were not dropped",
					  move->title, owner->home, elsewhere, copies->home);
	if (missing != NULL)
		return refuse(STATUS_FAILED, set_journal(move, copies)->at.role == TARGET ? "Find the shards before you drop anything." :
					  text_of("What it has lost is in these copies, as it was when the shards left. To open them again, if no server has newer ones, type at %s: "
							  "UPDATE snowid.moves SET peer = NULL WHERE shard IN (%s); SELECT snowid.unfence_shard(u) FROM unnest(ARRAY[%s]) u; "
							  "if the shards were dropped on purpose, for each: DROP SCHEMA ... CASCADE; DELETE FROM snowid.moves WHERE shard = ...;",
							  copies->home, missing, missing),
					  "shard %s does not live at %s, and the copies at %s may be the last; nothing was dropped",
					  missing, owner->home, copies->home);
	return STATUS_DONE;
}

/*
 * Does the target know that the shards came to it?  It forgets that last; else it may have been restored
 * to a time before, at which it had them once already: what it has is older than the copies.
 */
Status
check_came(const Move *move)
{
	const Side *source = &move->source;
	const Side *target = &move->target;

	if (move->options->cascade || is_known(move, target))
		return STATUS_DONE;
	return refuse(STATUS_FAILED, text_of("Compare each; rows only at --to are nowhere else: snowid-move diff --shard %d --from %s --to %s --as %s; if none is needed, type: %s",
										 move->shards[0]->number, shell_word(target->home), shell_word(source->home),
										 shell_word(set_journal(move, source)->schema), whole_command(move, "finish --cascade")),
				  "the server at %s does not know that %s came to it: it may have been restored to a time before; the copies at %s may be newer, and nothing was dropped",
				  target->home, move->title, source->home);
}

/* What finish would drop. */
Status
tell_copies(const Move *move, const Side *source)
{
	report_info("%s: schemas %s at %s would be dropped; nothing was changed", move->title, name_list(move, source), source->home);
	return STATUS_DONE;
}

/* Drop what was left behind, and the journal. The registries stay. */
Status
finish(const Move *move)
{
	const Side *source = &move->source;
	const Side *target = &move->target;

	if (!move->options->dry_run)
		route_late(move, source, target);
	if (check_owner(move, target, source, false) != STATUS_DONE || check_came(move) != STATUS_DONE ||
		!are_settled(move, source) ||
		(move->options->dry_run && check_copies(move, source) != STATUS_DONE))
		return STATUS_FAILED;
	if (move->options->dry_run)
		return tell_copies(move, source);
	failure_exit_code = EXIT_INCOMPLETE;
	if (check_copies(move, source) != STATUS_DONE ||
		end_replication(target, source, move->reverse_name) != STATUS_DONE)
		return STATUS_FAILED;
	remove_fence(move, target);
	if (drop_copies(move, source, false) != STATUS_DONE)
		return STATUS_FAILED;
	forget_journal(move, target);
	return STATUS_DONE;
}

/* Does none of the shards live on a server, as far as that knows? */
Status
check_gone(const Move *move, const Side *side)
{
	char	   *living = query_text(side->conn, "SELECT string_agg(shard::text, ', ' ORDER BY shard) FROM snowid.shard_registry r "
									"WHERE shard IN (%s) AND snowid_internal.lives(r) = 'here'", shard_list(move));

	return living == NULL ? STATUS_DONE :
		refuse(STATUS_FAILED, text_of("One of the two copies is old: look which. To close that one, and to drop it, type on its server: SELECT snowid.fence_shard(shard, 'home of the other one'); SELECT snowid.drop_shard(shard, true); to forget the move on the other one: DELETE FROM snowid.moves WHERE shard = ...;"),
			   "shard %s lives at %s, whose journal has no row of it", living, side->home);
}

/* The source has no row, since it was finished there, or is another one. */
Status
finish_alone(const Move *move)
{
	const Side *target = &move->target;

	if (check_gone(move, &move->source) != STATUS_DONE)
		return STATUS_FAILED;
	if (move->options->dry_run)
		return STATUS_DONE;
	remove_fence(move, target);
	forget_journal(move, target);
	report_info("%s: lives at %s; the source had nothing of it", move->title, target->home);
	return STATUS_DONE;
}

/*
 * Begin the way back: the journals of shards that have moved become those of a move from
 * there, which follows.  First that of the server that has them.
 */
void
turn(const Move *move)
{
	const Side *sides[] = {&move->target, &move->source};
	const char *const roles[] = {"source", "target"};

	for (int i = 0; i < 2; i++)
	{
		run(sides[i]->conn, "UPDATE snowid.moves SET role = '%s', step = '%s', changed_at = clock_timestamp() WHERE shard IN (%s)",
			roles[i], step_name(COPIED), shard_list(move));
		read_journal(move, sides[i]);
		report_verbose("%s: turned", sides[i]->label);
	}
}

/*
 * Undo that, if nothing has been opened, or go on with it: first nothing opens the shards
 * on the server that they have left any more, then they are open on the other one.
 */
void
stay(const Move *move)
{
	const Side *first = first_side(move);
	const Side *home = first == &move->source ? &move->target : &move->source;

	run(first->conn, "UPDATE snowid.moves SET role = 'source', step = '%s' WHERE shard IN (%s)", step_name(MOVED), shard_list(move));
	run(home->conn, "BEGIN");
	run(home->conn, "UPDATE snowid.moves SET role = 'target', step = '%s', changed_at = clock_timestamp() WHERE shard IN (%s)",
		step_name(OPEN), shard_list(move));
	run(home->conn, "SELECT snowid_internal.open_shards(ARRAY(SELECT shard FROM snowid.moves WHERE closed AND shard IN (%s)), NULL)", shard_list(move));
	run(home->conn, "COMMIT");
	(void) resume_pools(move, home);
	read_journal(move, first);
	read_journal(move, home);
	report_info("%s: the way back is undone; it lives at %s", move->title, home->home);
}

/* On the target: drop a copy, and what the move has registered there. */
static void
drop_new_copy(const Move *single, const Side *target)
{
	PGconn	   *conn = target->conn;

	run(conn, "BEGIN");
	if (query_bool(conn, "SELECT details ? 'schema_made' FROM snowid.moves WHERE shard IN (%s)",
				   shard_list(single)))
		drop_schema(single, target);
	run(conn,
		"DELETE FROM snowid.shard_registry r USING snowid.moves m "
		"WHERE r.shard IN (%s) AND m.shard = r.shard AND (m.details ->> 'registered')::boolean",
		shard_list(single));
	forget_journal(single, target);
	run(conn, "COMMIT");
}

/* Before a batch is copied: drop what a copy has left that did not come to its end. */
Status
forget_copy(const Move *move)
{
	const Side *target = &move->target;

	if (end_replication(&move->source, target, move->name) != STATUS_DONE)
		return STATUS_FAILED;
	if (is_at(move, target, CLAIMED))
		return STATUS_DONE;
	if (refuse_newer(move, target, target->conn) != STATUS_DONE)
		return STATUS_FAILED;
	run(move->source.conn, "UPDATE snowid.moves SET details = details || jsonb_build_object('fingerprint', coalesce(details -> 'brought', details -> 'fingerprint')) - 'brought' "
		"WHERE shard IN (%s)", shard_list(move));
	read_journal(move, &move->source);
	remove_fence(move, &move->source);
	report_info("%s: what an unfinished copy has left at %s is dropped", move->title, target->home);
	for (int i = 0; i < move->nshards; i++)
		drop_new_copy(select_range(move, i, 1), target);
	return claim_target(move) ? STATUS_DONE : STATUS_FAILED;
}

/* Does the batch have other shards that are still replicated? */
static bool
others_need_replication(const Move *move, const char *move_id)
{
	const Side *source = &move->source;

	return query_bool(source->conn,
					  "SELECT EXISTS (SELECT FROM snowid.moves WHERE details ->> 'move_id' = %s "
					  "AND shard NOT IN (%s) AND step <> 'moved')",
					  literal(source->conn, move_id), shard_list(move));
}

/*
 * What tells a source that has aborted a move, while the target was away, from one that was put back to a time before
 * it: a publication of nothing, which goes when the target has been told.
 */
static char *
name_of_abort(const Move *move)
{
	return text_of("snowid_aborted_%s", move->name + strlen("snowid_move_"));
}

static bool
is_noted_as_aborted(const Move *move)
{
	return query_bool(move->source.conn, "SELECT count(*) FROM pg_publication WHERE pubname = %s",
					  literal(move->source.conn, name_of_abort(move)));
}

/*
 * Does the source have what is to be dropped on the target?  It may have been restored to a time before the move, or
 * somebody may have dropped the shard there in the middle of it; not only renamed it.
 */
static Status
check_left(const Move *move)
{
	const Side *source = &move->source;
	const Side *target = &move->target;
	bool		knows = is_known(move, source);
	char	   *gone = knows ? query_text(source->conn, DROPPED_IN_MOVE_SQL, shard_list(move)) : NULL;
	bool		may_ask = query_bool(target->conn, "SELECT has_function_privilege('pg_show_replication_origin_status()', 'EXECUTE')");
	char	   *come = !may_ask ? NULL :
	query_text(target->conn, "SELECT max(remote_lsn) FROM pg_show_replication_origin_status() JOIN pg_subscription s "
			   "ON external_id = 'pg_' || s.oid WHERE subname = %s", literal(target->conn, move->name));
	bool		is_behind = query_bool(source->conn, "SELECT CASE WHEN NOT pg_is_in_recovery() THEN %s::pg_lsn > pg_current_wal_lsn() END", literal(source->conn, come));

	if (!knows && check_owner(move, source, target, false) != STATUS_DONE)
		return STATUS_FAILED;
	if (move->options->cascade || (knows ? gone == NULL && !is_behind :
								   is_noted_as_aborted(move)))
		return STATUS_DONE;
	failure_exit_code = EXIT_FAILED;
	if (gone != NULL)
		return refuse(STATUS_FAILED, text_of("Bring it back from there with pg_dump --schema, and there type: DROP TRIGGER snowid_fence ON each table; ALTER SEQUENCE NO MAXVALUE and setval() of each sequence; or, if it was dropped on purpose, type: %s",
											 whole_command(move, "abort --cascade")),
					  "schema %s is not at %s any more, and the copy at %s may be the last; nothing was dropped", gone, source->home, target->home);
	return refuse(STATUS_FAILED, text_of("Compare each; rows only at --from are nowhere else: snowid-move diff --shard %d --from %s --to %s; if none is needed, type: %s",
										 move->shards[0]->number, shell_word(target->home), shell_word(source->home), whole_command(move, "abort --cascade")),
				  "the server at %s %s %s: it was put back to a time before; the copies at %s may be newer, and nothing was dropped",
				  source->home, knows ? "has lost changes of" : "does not know the move of", move->title, target->home);
}

/*
 * Undo a move that has not been completed, of a batch or of a part of one.
 *
 * The target's journal first: from then on nothing opens the shards there, so
 * that the source may, if they had been closed.
 */
Status
abort_move(const Move *move)
{
	const Side *source = &move->source;
	const Side *target = &move->target;
	bool		on_source = is_known(move, source);
	bool		on_target = is_known(move, target);
	const Journal *journal = set_journal(move, on_source ? source : target);
	bool		is_shared = others_need_replication(move, journal->move_id);

	/* What has moved before stays there; and follows, so that it can go back. */
	if (is_way_back(move->shards[0]) || situation_of(move->shards[0]) == TURNING)
	{
		stay(move);
		return STATUS_DONE;
	}

	/* For every caller: what is dropped below must never be the shard itself. */
	if (is_any_at(move, target, OPEN))
	{
		report_error("%s has been opened on the server that it was moved to", move->title);
		return STATUS_FAILED;
	}

	if (on_target && !is_at(move, target, CLAIMED) && check_left(move) != STATUS_DONE)
		return STATUS_FAILED;
	if (on_target && (check_names(move) != STATUS_DONE || refuse_newer(move, target, target->conn) != STATUS_DONE))
	{
		failure_exit_code = EXIT_FAILED;
		return STATUS_FAILED;
	}
	if (on_target)
		record_step(move, target, ABORTED);
	if (on_source)
	{
		run(source->conn, "BEGIN");
		record_step(move, source, ABORTED);
		run(source->conn, "SELECT snowid_internal.open_shards(ARRAY(SELECT shard FROM snowid.moves WHERE closed AND shard IN (%s)), NULL)",
			shard_list(move));
		run(source->conn, "COMMIT");
		if (!are_resumed(move, source))
			return STATUS_FAILED;
	}

	if (is_shared && take_out(move) != STATUS_DONE)
		return STATUS_FAILED;

	/* Nor do those go on from their rows whose slot has changes of these. */
	if (is_shared && target->conn != NULL)
		run(target->conn, "UPDATE snowid.moves SET step = 'schema' WHERE step = 'rows' AND details ->> 'move_id' = %s",
			literal(target->conn, journal->move_id));
	if (!is_shared &&
		(end_replication(source, target, move->name) != STATUS_DONE ||
		 end_replication(target, source, move->reverse_name) != STATUS_DONE))
		return STATUS_FAILED;
	for (int i = 0; i < move->nshards && on_target; i++)
		drop_new_copy(select_range(move, i, 1), target);
	if (on_source)
	{
		remove_fence(move, source);
		run(source->conn, "BEGIN");
		if (target->conn == NULL && !is_noted_as_aborted(move) &&
			query_bool(source->conn, "SELECT has_database_privilege(current_database(), 'CREATE')"))
		{
			run(source->conn, "CREATE PUBLICATION %s", ident(source->conn, name_of_abort(move)));
			report_info("%s: publication %s at %s says so until the target is told; if that is lost for ever, drop it",
						move->title, name_of_abort(move), source->home);
		}
		forget_journal(move, source);
		run(source->conn, "COMMIT");
	}
	if (target->conn != NULL && !query_bool(target->conn, "SELECT count(*) FROM snowid.moves WHERE details ->> 'move_id' = %s", literal(target->conn, journal->move_id)) &&
		is_noted_as_aborted(move) && !try_run(source->conn, "DROP PUBLICATION %s", ident(source->conn, name_of_abort(move))))
		report_warning("%s: publication %s at %s is not needed any more, and could not be dropped: %s", move->title, name_of_abort(move), source->home, last_message);
	report_info("%s: the move is undone", move->title);
	return STATUS_DONE;
}
