/*
 * The commands.
 *
 * Each goes on from what the journals of the two servers say, as far as it can,
 * and returns what the program exits with.
 */
#include "commands.h"

/*
 * A shard that is not registered, or not there, cannot be moved away: it is told
 * and marked.  False if that is so of all.
 */
static bool
check_source(const Move *move)
{
	for (int i = 0; i < move->nshards; i++)
	{
		Shard	   *shard = move->shards[i];
		char	   *home = shard->schema == NULL ? NULL :
		query_text(move->source.conn, "SELECT snowid.shard_home(%d)", shard->number);

		shard->failed = home == NULL || strcmp(home, "here") != 0;
		if (shard->failed)
			report_error("shard %d does not %s on the source", shard->number, home == NULL ? "exist" : "live");
		if (home == NULL)
			report_hint("%s", query_bool(move->source.conn, "SELECT to_regclass('snowid.shard_registry') IS NULL") ?
						"Its database has no snowid: give --from the one where the shard is." : "Type there: SELECT * FROM snowid.shards;");
		else if (shard->failed)
			report_detail("The source's registry says: %s", home);
	}
	return select_shards(move, has_not_failed, NULL)->nshards > 0;
}

/* Check shards that are in no move, and return those that can be moved, in the order of their batches. */
static const Move *
check_shards(const Move *move)
{
	const Move *good;

	tie_shards(move, false);
	run_prechecks(move);
	fail_whole_pools(move);
	good = by_pools(select_shards(move, has_not_failed, NULL));
	measure_shards(good, &move->source);
	return good;
}

static int
command_plan(Move *set)
{
	const Move *good;
	Move	   *part;
	Move	   *batch;

	if (is_standby_of_source(set))
		return plan_split(set);
	if (!check_source(set))
		return EXIT_USAGE;
	part = select_shards(set, has_not_failed, NULL);
	name_batch(part);
	good = check_shards(part);
	if (good->nshards < part->nshards && !set->options->json)
		printf("%s cannot be moved yet; nothing was changed\n", select_shards(part, has_failed, NULL)->title);
	for (int first = 0; first < good->nshards; first += batch->nshards)
	{
		int			tables = 0;
		int64		bytes = 0;

		batch = next_batch(good, first);
		for (int i = 0; i < batch->nshards; i++)
		{
			tables += batch->shards[i]->tables;
			bytes += batch->shards[i]->bytes;
		}
		if (set->options->json)
			print_object("#batch", text_of("[%s]", shard_list(batch)), "#tables", text_of("%d", tables), "#bytes", text_of(INT64_FORMAT, bytes),
						 "from", batch->source.home, "to", batch->target.home);
		else
			printf("%s, %d tables, %s, would move from %s to %s; nothing was changed\n", batch->title, tables,
				   query_text(set->source.conn, "SELECT pg_size_pretty(%lld::bigint)", (long long) bytes),
				   batch->source.home, batch->target.home);
	}
	if (set->options->json)
		print_object("#movable", text_of("%d", good->nshards), "#of", text_of("%d", set->nshards),
					 "#failures", text_of("%d", nfailures), "#warnings", text_of("%d", nwarnings));
	else
		printf("%d of %d shards can be moved; %d failures, %d warnings\n", good->nshards, set->nshards, nfailures, nwarnings);
	return good->nshards < set->nshards ? EXIT_FAILED : EXIT_DONE;
}

/*
 * Prepare for the way back, while the target is closed.  The fingerprint is of
 * what the publication has, or older, and is not taken twice, as the publication
 * is not made twice: so no table can come in between that back would not notice.
 */
static void
prepare_way_back(const Move *move)
{
	const Side *target = &move->target;
	char	  **notes = note_definitions(move, target);

	for (int i = 0; i < move->nshards; i++)
		if (journal_of(move->shards[i], target)->fingerprint == NULL)
			record_detail(select_range(move, i, 1), target->conn, "fingerprint", notes[i]);
	if (!query_bool(target->conn, "SELECT count(*) FROM pg_publication WHERE pubname = %s", literal(target->conn, move->reverse_name)))
	{
		run(target->conn, "BEGIN; CREATE PUBLICATION %s", ident(target->conn, move->reverse_name));
		if (!note_publishing(move, target->conn))
			fail_with(target->conn);
		run(target->conn, "COMMIT");
	}
	create_slot(target, move->reverse_name);
}

/* Of shards that are in one situation: say why something is not done with them now, and what can be. */
static int
refuse_part(const Move *part, const char *what)
{
	report_error("%s cannot be %s now: %s", part->title, what, outlook(part));
	for (int i = 0; what_to_type(part, i) != NULL; i++)
		report_hint("%s", what_to_type(part, i));
	return is_decided_in(situation_of(part->shards[0])) ? EXIT_INCOMPLETE : EXIT_FAILED;
}

static int
refuse_to_move(Move *part)
{
	if (is_way_back(part->shards[0]) || (situation_of(part->shards[0]) & (HAS_MOVED | RETURNABLE)) == 0)
		return refuse_part(part, "moved");
	if (check_owner(part, &part->target, &part->source, false) != STATUS_DONE)
		return EXIT_FAILED;
	route_late(part, &part->source, &part->target);
	report_info("%s: moved already; type: %s", part->title, whole_command(part, "finish"));
	return EXIT_DONE;
}

/* Have definitions changed?  The pause looks again; a catalog that somebody has locked is not awaited before. */
static void
look_at_definitions(const Move *move, const Side *side)
{
	run(side->conn, "SET lock_timeout = %d", move->options->lock_timeout_ms);
	if (try_fingerprints(move, side) != NULL)
		(void) check_definitions(move, side);
	run(side->conn, "SET lock_timeout = 0");
}

/* From the claim to a copy that follows, and has been compared. */
static Status
copy_and_compare(const Move *move)
{
	const Side *source = &move->source;
	const Side *target = &move->target;
	bool		is_copied = false;
	Status		status;

	if (!is_known(move, target) && !claim_target(move))
		return STATUS_FAILED;

	/* What is new there since the move was not replicated back. */
	for (int i = 0; i < move->nshards && is_way_back(move->shards[i]); i++)
		if (check_definitions(select_range(move, i, 1), source) != STATUS_DONE)
			stay(select_range(move, i, 1));
	move = select_shards(move, has_not_failed, NULL);
	if (move->nshards == 0)
		return STATUS_DONE;
	if (!has_reached(move, target, SUBSCRIBED))
	{
		if ((status = copy_batch(move)) != STATUS_DONE)
			return status;
		is_copied = true;
	}
	move = select_shards(move, has_not_failed, NULL);
	if (move->nshards > 0 && (status = wait_for_lag(move)) != STATUS_DONE)
		return status;
	if (!has_reached(move, source, COPIED))
	{
		if (is_copied && move->shards[0]->journals[0].reader == NULL)
			record_reader(move, reader_of(move));
		record_step(move, target, COPIED);
		record_step(move, source, COPIED);
		move = select_shards(move, has_not_failed, NULL);
	}
	if (move->nshards > 0 && ((status = check_names(move)) != STATUS_DONE || (status = bring_new_tables(move)) != STATUS_DONE))
		return status;
	move = select_shards(move, has_not_failed, NULL);
	if (move->nshards > 0 && move->options->stop_after_copy)
		report_info("the copy is there and follows; the same command without --stop-after cuts over");
	else if (move->nshards > 0)
	{
		look_at_definitions(move, source);
		return verify(select_shards(move, has_not_failed, NULL));
	}
	return STATUS_DONE;
}

/*
 * Copy, compare, and hand over shards that are claimed on the source.  A copy that
 * a fail-over has spoilt is made anew.
 */
static Status
copy_and_hand_over(const Move *move)
{
	const Side *source = &move->source;
	const char *doubt;
	Status		status;

	while ((status = copy_and_compare(move)) == STATUS_UNDO && !is_way_back(move->shards[0]) && (doubt = why_doubtful(move)) != NULL)
	{
		report_info("%s: copied anew, since %s", move->title, doubt);
		if (failed_over(move, source) && !has_failover_slots(source))
			report_detail("Before PostgreSQL 17 a standby does not have the slots of its primary.");
		if ((status = forget_copy(move)) != STATUS_DONE)
			return status;
	}
	if (status != STATUS_DONE || move->options->stop_after_copy)
		return status;
	move = select_shards(move, has_not_failed, NULL);
	if (move->nshards == 0)
		return STATUS_DONE;
	if ((status = fill_views(move)) != STATUS_DONE)
		return status;
	if (set_journal(move, source)->target_ddl_md5 == NULL)
		look_at_definitions(move, &move->target);
	for (int i = 0; i < move->nshards; i++)
		if (move->shards[i]->failed && is_way_back(move->shards[i]))
			stay(select_range(move, i, 1));
	move = select_shards(move, has_not_failed, NULL);
	if (move->nshards == 0)
		return STATUS_DONE;
	if (set_journal(move, source)->reverse)
		prepare_way_back(move);
	return hand_over(move);
}

/*
 * What is to be done after the hand-over of a batch, or of the part of it that
 * could be handed over: this waits for the others only if the way back does.
 */
static Status
clean_up(const Move *batch)
{
	const Move *done = select_situations(batch, OPENED | OPEN_TWICE);
	int			waiting = COPYING | DECIDED | UNOPENED;

	if (batch->source.place == 1)
		waiting |= RETURNABLE | TURNING;
	if (done->nshards == 0)
		return STATUS_DONE;
	close_again(done);
	return clean_up_after(done, select_situations(batch, waiting)->nshards == 0);
}

/* Of --target-ddl, as the journal has it; NULL without that. */
static char *
md5_of_ddl(const Move *move)
{
	PGconn	   *conn = move->source.conn;

	return query_text(conn, "SELECT md5(%s)", literal(conn, move->options->target_ddl));
}

/* Move a batch that is claimed on the source, or go on with it; also on its way back. */
static int
move_batch(Move *batch)
{
	const Side *source = &batch->source;
	Move	   *part = select_situations(batch, DECIDED | UNOPENED);
	Status		status = STATUS_DONE;

	if (batch->options->keep_name)
		record_detail(batch, source->conn, "keep_name", "true");
	if (batch->options->target_ddl != NULL)
		record_detail(batch, source->conn, "target_ddl_md5", md5_of_ddl(batch));
	read_journal(batch, source);

	/* First what nobody can write. */
	if (select_situations(batch, DECIDED | UNOPENED | OPENED | OPEN_TWICE)->nshards > 0)
		failure_exit_code = EXIT_INCOMPLETE;
	if (part->nshards > 0 && (status = open_decided(part)) != STATUS_DONE)
	{
		/* A fail-over can have left the target without the rows. */
		if (status == STATUS_UNDO && abort_move(part) == STATUS_DONE)
			failure_exit_code = EXIT_FAILED;
		return failure();
	}
	batch->tally->moved += select_situations(batch, OPENED | OPEN_TWICE)->nshards;

	part = select_situations(batch, COPYING);
	if (part->nshards > 0)
		status = copy_and_hand_over(part);
	if (status == STATUS_UNCERTAIN)
		return failure();
	part = select_situations(part, COPYING);
	if (status == STATUS_UNDO && part->nshards > 0)
	{
		report_info("undoing the move; if that fails, type: %s", whole_command(part, "abort"));
		(void) abort_move(part);
	}
	for (int i = 0; i < part->nshards && status != STATUS_DONE; i++)
		leave_shard(part, part->shards[i]);

	/*
	 * The way back is for the whole batch: who has not moved is no part of
	 * it.
	 */
	part = select_situations(batch, COPYING);
	if (part->nshards > 0 && part->nshards < batch->nshards && set_journal(part, source)->reverse &&
		select_situations(batch, OPENED)->nshards > 0)
	{
		report_info("%s: undone: the way back of the other shards cannot begin while this one is unfinished", part->title);
		(void) abort_move(part);
	}

	if (clean_up(batch) != STATUS_DONE)
		return failure();
	part = select_situations(batch, batch->source.place == 1 ? HAS_MOVED : HAS_MOVED | RETURNABLE);
	if (part->nshards > 0)
		tell_publications(part);
	failure_exit_code = EXIT_FAILED;
	return select_shards(batch, has_failed, NULL)->nshards > 0 ? failure() : EXIT_DONE;
}

/* Go on with a batch that has been begun. */
static int
resume_batch(Move *batch)
{
	const Side *source = &batch->source;
	const Side *target = &batch->target;
	Move	   *refused = select_allowed(batch, OF_MOVE, false);
	Move	   *part = select_situations(select_allowed(batch, OF_MOVE, true), COPYING);
	const char *lacks = NULL;
	int			code;

	if (!is_whole(batch))
		return EXIT_USAGE;

	/* It was not prepared for, nor checked; or the copy is made. */
	if (part->nshards > 0)
	{
		const Journal *begun = set_journal(part, source);
		const char *ddl = md5_of_ddl(batch);

		lacks = batch->options->reverse && !begun->reverse ? "--reverse" :
			ddl != NULL && has_reached(part, target, ROWS) &&
			(begun->target_ddl_md5 == NULL || strcmp(begun->target_ddl_md5, ddl) != 0) ? "this --target-ddl" : NULL;
	}
	if (lacks != NULL)
	{
		report_error("the move of %s was begun without %s", part->title, lacks);
		report_hint("Type the command without it; or begin again, after: %s", whole_command(part, "abort"));
		return EXIT_FAILED;
	}
	code = for_each_situation(refused, refuse_to_move);
	if (refused->nshards == batch->nshards)
		return code;
	part = select_allowed(batch, OF_MOVE, true);
	report_info("%s%sgoing on after step \"%s\"", batch->set->nshards > 1 ? part->title : "",
				batch->set->nshards > 1 ? ": " : "",
				step_name(has_reached(part, target, set_journal(part, source)->at.step)
						  ? set_journal(part, target)->at.step : set_journal(part, source)->at.step));
	return combine(code, move_batch(batch));
}

/* Begin with shards that are in no move: check them, and move them batch by batch. */
static int
begin_batches(Move *move)
{
	const Move *good;
	Move	   *batch;
	char	  **notes;
	int			code = EXIT_DONE;

	if (!check_source(move))
		return EXIT_USAGE;
	move = select_shards(move, has_not_failed, NULL);

	/* Only what is checked now is copied. */
	notes = note_definitions(move, &move->source);
	for (int i = 0; i < move->nshards; i++)
		journal_of(move->shards[i], &move->source)->fingerprint = notes[i];
	good = check_shards(move);
	if (good->nshards < move->nshards)
		report_error("%s cannot be moved yet; nothing was changed", select_shards(move, has_failed, NULL)->title);
	for (int first = 0; first < good->nshards && code != EXIT_INCOMPLETE; first += batch->nshards)
	{
		batch = next_batch(good, first);
		claim_source(batch);
		code = combine(code, move_batch(batch));
	}
	return code;
}

static int
move_one_batch(Move *batch)
{
	return is_any_known(batch, &batch->source) || is_any_known(batch, &batch->target)
		? resume_batch(batch) : begin_batches(batch);
}

/* Tell what has become of the shards: so many are done now. */
static int
tell_end(const Move *set, int code, int done, const char *are_done)
{
	const Move *failed = select_shards(set->set, has_failed, NULL);

	if (set->set->nshards > 1 && set->tally->shards > 0)
		report_info("%d of %d shards %s, %d of them now, in %.1f s; writes waited %d ms at most%s",
					done, set->set->nshards, are_done, set->tally->moved,
					(now_ms() - set->tally->start) / 1000.0, set->tally->pause_ms, waits_at_poolers(set));
	if (failed->nshards == 0)
		return code;
	if (set->set->nshards > 1)
		report_error("left where they are: %s", failed->title);
	return code == EXIT_DONE ? EXIT_FAILED : code;
}

static bool
has_moved(const Move *move, Shard *shard, const void *unused)
{
	return !is_way_back(shard) && (situation_of(shard) & (HAS_MOVED | RETURNABLE)) != 0;
}

static int
command_move(Move *set)
{
	int			code;
	const Move *moved;

	set->tally->start = now_ms();
	set->tally->shards = set->nshards - select_shards(set, has_moved, NULL)->nshards;
	code = for_each_batch(set, move_one_batch);
	moved = select_shards(set, has_moved, NULL);
	code = tell_end(set, code, moved->nshards, "have moved");
	if (set->tally->unrouted)
		return code;
	if (set->tally->shards > 0 && moved->nshards > 0 && select_situations(moved, RETURNABLE)->nshards > 0)
		report_info("done; the source is kept current. To end that, type: %s; to take the shards back: %s",
					whole_command(moved, "finish"), whole_command(moved, "back"));
	else if (set->tally->shards > 0 && moved->nshards > 0)
		report_info("done; to drop what is left on the source, type: %s", whole_command(moved, "finish"));
	return code;
}

static bool
has_returned(const Move *move, Shard *shard, const void *unused)
{
	return is_way_back(shard) && situation_of(shard) == HAS_MOVED;
}

/* The way back: a move from the server that has the shards, to that which is kept current. */
static int
back_batch(Move *batch)
{
	const Move *refused = select_allowed(batch, OF_BACK, false);
	const Move *back = select_shards(batch, has_returned, NULL);
	const Move *turning;
	int			code;

	if (!is_whole(batch))
		return EXIT_USAGE;
	if (back->nshards == batch->nshards)
	{
		report_info("%s: back already; type: %s", batch->title, whole_command(batch, "finish"));
		return EXIT_DONE;
	}
	if (refused->nshards > back->nshards)
	{
		bool		is_moved = select_situations(refused, HAS_MOVED)->nshards == refused->nshards;

		report_error("there is no way back for %s: %s", refused->title, is_moved ? "it was moved without --reverse" : outlook(refused));
		if (is_moved)
			report_hint("Type: %s; and then move it with --from and --to exchanged.", whole_command(refused, "finish"));
		return EXIT_FAILED;
	}
	turning = select_situations(batch, TURNING);
	if (turning->nshards > 0)
		stay(turning);
	turning = select_situations(batch, RETURNABLE);
	if (turning->nshards > 0)
		turn(turning);
	turn_sides(batch);
	code = move_batch(batch);
	back = select_shards(batch, has_returned, NULL);
	if (back->nshards > 0)
		report_info("done; to drop what is left on the other server, type: %s", whole_command(back, "finish"));
	return code;
}

static int
command_back(Move *set)
{
	int			code;

	set->tally->start = now_ms();
	set->tally->shards = set->nshards - select_shards(set, has_returned, NULL)->nshards;
	code = for_each_batch(set, back_batch);
	return tell_end(set, code, select_shards(set, has_returned, NULL)->nshards, "are back");
}

static int
finish_part(Move *move)
{
	const Side *source = &move->source;
	const Side *target = &move->target;
	Situation	situation = situation_of(move->shards[0]);

	if (situation == NOT_BEGUN)
	{
		report_info("%s: nothing to finish", move->title);
		return EXIT_DONE;
	}
	if ((commands_in(situation, is_way_back(move->shards[0])) & OF_FINISH) == 0)
		return refuse_part(move, "finished");

	/* Its journal has what it takes to open it again. */
	for (int i = 0; i < move->nshards; i++)
		if (journal_of(move->shards[i], target)->closed)
		{
			report_error("shard %d is closed by hand at %s", move->shards[i]->number, target->home);
			report_hint("Type there: SELECT snowid.unfence_shard(%d);", move->shards[i]->number);
			return EXIT_FAILED;
		}
	if ((is_known(move, source) ? finish(move) : finish_alone(move)) != STATUS_DONE)
		return failure();
	failure_exit_code = EXIT_FAILED;
	return EXIT_DONE;
}

static int
finish_batch(Move *batch)
{
	return is_whole(batch) ? for_each_situation(batch, finish_part) : EXIT_USAGE;
}

static int
command_finish(Move *set)
{
	return for_each_batch(set, finish_batch);
}

static int
abort_part(Move *move)
{
	const Side *target = &move->target;
	Situation	situation = situation_of(move->shards[0]);

	if (situation & (NOT_BEGUN | UNKNOWN_THERE))
	{
		report_info("%s: nothing to abort", move->title);
		return EXIT_DONE;
	}
	if ((commands_in(situation, is_way_back(move->shards[0])) & OF_ABORT) == 0)
		return refuse_part(move, "aborted");

	/*
	 * Without its row the target opens nothing any more; but it may have done
	 * so.
	 */
	if (situation == ROW_LOST && check_gone(move, target) != STATUS_DONE)
		return EXIT_INCOMPLETE;
	failure_exit_code = EXIT_INCOMPLETE;
	if (abort_move(move) != STATUS_DONE)
		return failure();
	if (target->conn == NULL)
	{
		report_warning("the target could not be reached, and may have a copy of the shard, closed");
		report_hint("When it is back, type the same command again.");
	}
	failure_exit_code = EXIT_FAILED;
	return EXIT_DONE;
}

static int
abort_batch(Move *batch)
{
	return has_our_names(batch) ? for_each_situation(batch, abort_part) : EXIT_USAGE;
}

static int
command_abort(Move *set)
{
	return for_each_batch(set, abort_batch);
}

const Command *
find_command(const char *name)
{
	static const Command commands[] = {
		{"move", OF_MOVE, command_move,.locks = true,.needs_source = true,.needs_target = true},
		{"split", OF_SPLIT, command_split, command_split,.locks = true},
		{"plan", OF_PLAN, command_plan, plan_split,.needs_source = true,.needs_target = true},
		{"status", OF_STATUS, command_status, status_of_split,.run_alone = status_of_all},
		{"abort", OF_ABORT, command_abort, abort_split,.locks = true,.needs_source = true},
		{"back", OF_BACK, command_back,.locks = true,.needs_source = true,.needs_target = true},
		{"route", OF_ROUTE,.run_alone = print_route},
		{"audit", OF_AUDIT,.run_alone = command_audit},
		{"copy", OF_COPY,.run_alone = command_copy},
		{"restore", OF_RESTORE,.run_alone = command_restore},
		{"undo", OF_UNDO,.run_alone = command_undo},
		{"diff", OF_DIFF,.run_alone = command_diff},
		{"erase", OF_ERASE,.run_alone = command_erase},
		{"finish", OF_FINISH, command_finish, finish_split,.locks = true,.needs_source = true,.needs_target = true,.run_alone = finish_restore},
	};

	for (int i = 0; i < (int) lengthof(commands); i++)
		if (strcmp(name, commands[i].name) == 0)
			return &commands[i];
	return NULL;
}
