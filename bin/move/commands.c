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
			report_hint("Type there: SELECT * FROM snowid.shards;");
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
	if (good->nshards < part->nshards)
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
		printf("%s, %d tables, %s, would move from %s to %s; nothing was changed\n", batch->title, tables,
			   query_text(set->source.conn, "SELECT pg_size_pretty(%lld::bigint)", (long long) bytes),
			   batch->source.home, batch->target.home);
	}
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
	publish(move, target, move->reverse_name);
	create_slot(target, move->reverse_name);
}

/* Say why something is not done now with a part of a batch, which is in one situation. */
static int
refuse_move(const Move *part, const char *what)
{
	report_error("%s cannot be %s now: %s", part->title, what, outlook(part));
	return situation_of(part, part->shards[0]) & (RETURN_OPENED | RETURN_DECIDED | RETURN_ABORTING) ||
		is_at(part, &part->source, "fenced") ? EXIT_INCOMPLETE : EXIT_FAILED;
}

static int
refuse_to_move(Move *part)
{
	if (situation_of(part, part->shards[0]) != MOVED)
		return refuse_move(part, "moved");
	report_info("%s: moved already; type: snowid-move finish", part->title);
	return EXIT_DONE;
}

/* From the claim to a copy that follows, and has been compared. */
static Status
copy_and_compare(const Move *move)
{
	const Side *source = &move->source;
	const Side *target = &move->target;
	Status		status;

	if (!is_known(move, target) && !claim_target(move))
		return STATUS_FAILED;
	if (!has_reached(move, target, "subscribed") && (status = copy_batch(move)) != STATUS_DONE)
		return status;
	move = select_shards(move, has_not_failed, NULL);
	if (!has_reached(move, source, "copied"))
	{
		if ((status = wait_for_lag(move, source, move->name)) != STATUS_DONE)
			return status;
		record_step(move, target, "copied");
		record_step(move, source, "copied");
		move = select_shards(move, has_not_failed, NULL);
	}
	if (move->nshards > 0 && move->options->stop_after_copy)
		report_info("the copy is there and follows; the same command without --stop-after cuts over");
	else if (move->nshards > 0)
	{
		(void) check_definitions(move, source);
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
	const Side *target = &move->target;
	const char *failed_over;
	Status		status;

	while ((status = copy_and_compare(move)) == STATUS_UNDO && (failed_over = who_failed_over(move)) != NULL)
	{
		report_info("%s: copied anew, since the %s has failed over", move->title, failed_over);
		if (failed_over == source->label && !has_failover_slots(source))
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
		(void) check_definitions(move, target);
	move = select_shards(move, has_not_failed, NULL);
	if (move->nshards == 0)
		return STATUS_DONE;
	if (set_journal(move, source)->reverse)
		prepare_way_back(move);
	return hand_over(move, source, target, move->name);
}

/*
 * What is to be done after the hand-over of a batch, or of the part of it that
 * could be handed over: this waits for the others only if the way back does.
 */
static Status
clean_up(const Move *batch, const Side *from, const Side *to, const char *name,
		 int handed_over, int waiting)
{
	const Move *done = select_situations(batch, handed_over);

	if (done->nshards == 0)
		return STATUS_DONE;
	close_again(done, from, to);
	return clean_up_after(done, from, to, name, select_situations(batch, waiting)->nshards == 0);
}

/* Of --target-ddl, as the journal has it; NULL without that. */
static char *
md5_of_ddl(const Move *move)
{
	PGconn	   *conn = move->source.conn;

	return query_text(conn, "SELECT md5(%s)", literal(conn, move->options->target_ddl));
}

/* Move a batch that is claimed on the source, or go on with it. */
static int
move_batch(Move *batch)
{
	const Side *source = &batch->source;
	const Side *target = &batch->target;
	Move	   *part = select_situations(batch, DECIDED);
	Status		status = STATUS_DONE;

	if (batch->options->keep_name)
		record_detail(batch, source->conn, "keep_name", "true");
	if (batch->options->target_ddl != NULL)
		record_detail(batch, source->conn, "target_ddl_md5", md5_of_ddl(batch));
	read_journal(batch, source);

	/* First what nobody can write. */
	if (select_situations(batch, DECIDED | OPENED)->nshards > 0)
		failure_exit_code = EXIT_INCOMPLETE;
	if (part->nshards > 0 && (status = open_decided(part, source, target)) != STATUS_DONE)
	{
		/* A fail-over can have left the target without the rows. */
		if (status == STATUS_UNDO && abort_move(part) == STATUS_DONE)
			failure_exit_code = EXIT_FAILED;
		return failure();
	}
	batch->tally->moved += select_situations(batch, OPENED)->nshards;

	part = select_situations(batch, COPYING);
	if (part->nshards > 0)
		status = copy_and_hand_over(part);
	if (status == STATUS_UNCERTAIN)
		return failure();
	part = select_situations(part, COPYING);
	if (status == STATUS_UNDO && part->nshards > 0)
	{
		report_info("undoing the move; if that fails, type: snowid-move abort");
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

	if (clean_up(batch, source, target, batch->name, OPENED, COPYING | DECIDED) != STATUS_DONE)
		return failure();
	part = select_situations(batch, MOVED);
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
	const int	open_to_move = COPYING | DECIDED | OPENED;
	Move	   *refused = select_situations(batch, ~open_to_move);
	Move	   *part = select_situations(batch, COPYING);
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
			ddl != NULL && has_reached(part, target, "rows") &&
			(begun->target_ddl_md5 == NULL || strcmp(begun->target_ddl_md5, ddl) != 0) ? "this --target-ddl" : NULL;
	}
	if (lacks != NULL)
	{
		report_error("the move of %s was begun without %s", part->title, lacks);
		report_hint("Type the command without it; or type snowid-move abort, and begin again.");
		return EXIT_FAILED;
	}
	code = for_each_situation(refused, refuse_to_move);
	if (refused->nshards == batch->nshards)
		return code;
	part = select_situations(batch, open_to_move);
	report_info("%s%sgoing on after step \"%s\"", batch->set->nshards > 1 ? part->title : "",
				batch->set->nshards > 1 ? ": " : "",
				has_reached(part, target, set_journal(part, source)->step)
				? set_journal(part, target)->step : set_journal(part, source)->step);
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

/*
 * Run a function for all batches, and tell what has become of the shards, which
 * are to come into this situation.
 */
static int
run_batches(Move *set, int (*run) (Move *batch), Situation done, const char *are_done)
{
	int			code;
	const Move *failed;

	set->tally->start = now_ms();
	set->tally->shards = set->nshards - select_situations(set, done)->nshards;
	code = for_each_batch(set, run);
	if (set->set->nshards > 1 && set->tally->shards > 0)
		report_info("%d of %d shards %s, %d of them now, in %.1f s; writes waited %d ms at most%s",
					select_situations(set, done)->nshards, set->set->nshards, are_done, set->tally->moved,
					(now_ms() - set->tally->start) / 1000.0, set->tally->pause_ms, waits_at_poolers(set));
	failed = select_shards(set->set, has_failed, NULL);
	if (failed->nshards == 0)
		return code;
	if (set->set->nshards > 1)
		report_error("left where they are: %s", failed->title);
	return code == EXIT_DONE ? EXIT_FAILED : code;
}

static int
command_move(Move *set)
{
	int			code = run_batches(set, move_one_batch, MOVED, "have moved");
	const Move *moved = select_situations(set, MOVED);

	if (set->tally->shards > 0 && moved->nshards > 0)
		report_info(set_journal(moved, &moved->source)->reverse
					? "done; the source is kept current. Type snowid-move finish, or snowid-move back"
					: "done; to drop what is left on the source, type: snowid-move finish");
	return code;
}

/*
 * The way back: the same cut-over with the servers' roles swapped, over the
 * replication that has kept the old one current.
 */
static int
back_batch(Move *batch)
{
	const Side *source = &batch->source;
	const Side *target = &batch->target;
	const int	can_return = MOVED | RETURNING | RETURN_DECIDED | RETURN_OPENED;
	Move	   *part = select_situations(batch, MOVED | RETURNING);
	Move	   *refused = select_situations(batch, ~(can_return | RETURNED | RETURN_ABORTING));
	Status		status = STATUS_DONE;

	if (!is_whole(batch))
		return EXIT_USAGE;
	if (refused->nshards == 0 && part->nshards > 0 && (who_failed_over(part) != NULL || !set_journal(part, source)->reverse))
		refused = part;
	if (refused->nshards > 0)
	{
		const char *why = refused != part ? "to see its state, type: snowid-move status" :
		!set_journal(part, source)->reverse ? "it was moved without --reverse" :
		text_of("the %s has failed over, and the other server may lack rows", who_failed_over(part));

		report_error("there is no way back for %s: %s", refused->title, why);
		if (refused == part)
			report_hint("Type snowid-move finish, and then move it with --from and --to exchanged. If snowid-move status says that the way back was begun, type before: snowid-move abort");
		return EXIT_FAILED;
	}
	refused = select_situations(batch, RETURN_ABORTING);
	if (refused->nshards > 0)
		return refuse_move(refused, "taken back");
	if (select_situations(batch, RETURNED)->nshards == batch->nshards)
	{
		report_info("%s: back already; type: snowid-move finish", batch->title);
		return EXIT_DONE;
	}

	part = select_situations(batch, RETURN_DECIDED);
	if (select_situations(batch, RETURN_DECIDED | RETURN_OPENED)->nshards > 0)
		failure_exit_code = EXIT_INCOMPLETE;
	if (part->nshards > 0 && open_decided(part, target, source) != STATUS_DONE)
		return failure();
	batch->tally->moved += select_situations(batch, RETURN_OPENED)->nshards;
	part = select_situations(batch, MOVED | RETURNING);
	if (part->nshards > 0)
		status = hand_over(part, target, source, batch->reverse_name);
	if (status == STATUS_UNCERTAIN)
		return failure();
	part = select_situations(batch, MOVED | RETURNING);
	for (int i = 0; i < part->nshards; i++)
		part->shards[i]->failed = true;
	if (clean_up(batch, target, source, batch->reverse_name, RETURN_OPENED, MOVED | RETURNING | RETURN_DECIDED) != STATUS_DONE)
		return failure();
	failure_exit_code = EXIT_FAILED;
	if (part->nshards < batch->nshards)
		report_info("done; to drop what is left on the other server, type: snowid-move finish");
	return part->nshards > 0 ? failure() : EXIT_DONE;
}

static int
command_back(Move *set)
{
	return run_batches(set, back_batch, RETURNED, "are back");
}

static int
finish_part(Move *move)
{
	const Side *source = &move->source;
	const Side *target = &move->target;

	if (!is_known(move, source) && !is_known(move, target))
	{
		report_info("%s: nothing to finish", move->title);
		return EXIT_DONE;
	}
	if (situation_of(move, move->shards[0]) == RETURNED)
		swap_sides(move);
	if (situation_of(move, move->shards[0]) != MOVED)
		return refuse_move(move, "finished");

	/* Its journal has what it takes to open it again. */
	for (int i = 0; i < move->nshards; i++)
		if (journal_of(move->shards[i], target)->closed)
		{
			report_error("shard %d is closed by hand at %s", move->shards[i]->number, target->home);
			report_hint("Type there: SELECT snowid.unfence_shard(%d);", move->shards[i]->number);
			return EXIT_FAILED;
		}
	failure_exit_code = EXIT_INCOMPLETE;
	if (finish(move) != STATUS_DONE)
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

/*
 * Undo a way back that has not opened the shard yet; or the second half of
 * that: first nothing opens it on the source any more, then it is open on the
 * target again.
 */
static int
abort_way_back(const Move *move)
{
	const Side *source = &move->source;
	const Side *target = &move->target;

	failure_exit_code = EXIT_INCOMPLETE;
	if (target->conn == NULL)
	{
		report_error("the target must be reachable, since it has the shard");
		return EXIT_INCOMPLETE;
	}
	record_step(move, source, "moved");
	if (is_role(move, target, "source"))
	{
		run(target->conn, "BEGIN");
		run(target->conn, "UPDATE snowid.moves SET role = 'target' WHERE shard IN (%s)", shard_list(move));
		record_step(move, target, "open");
		run(target->conn, "SELECT snowid_internal.open_shards(ARRAY[%s], NULL)", shard_list(move));
		run(target->conn, "COMMIT");
		resume_pools(move, target);
	}
	report_info("%s: the way back is undone; it lives at %s", move->title, target->home);
	return EXIT_DONE;
}

/*
 * A shard that has moved to a server that cannot be asked, and can come back:
 * an abort of its way back, which begins here, may be half done there.
 */
bool
may_be_on_way_back(const Move *move, const Side *reached)
{
	return is_role(move, reached, "source") && is_at(move, reached, "moved") &&
		set_journal(move, reached)->reverse;
}

static int
abort_part(Move *move)
{
	const Side *source = &move->source;
	const Side *target = &move->target;

	if (!is_known(move, source) && !is_known(move, target))
	{
		report_info("%s: nothing to abort", move->title);
		return EXIT_DONE;
	}
	if (is_role(move, source, "source") &&
		(is_at(move, source, "ready") || is_role(move, target, "source") ||
		 (target->conn == NULL && may_be_on_way_back(move, source))))
		return abort_way_back(move);
	if (situation_of(move, move->shards[0]) == RETURNED || is_role(move, source, "target") || is_at(move, source, "moved") || is_at(move, target, "open"))
	{
		report_error("%s has been opened on the server that it was moved to", move->title);
		report_hint("It cannot be undone by abort. To see what can be done, type: snowid-move status");
		return EXIT_FAILED;
	}
	if (target->conn == NULL && is_closed(move, source))
	{
		report_error("the target must be reachable, since the move is decided");
		report_detail("Only its journal can make sure that the shard is not opened there.");
		return EXIT_INCOMPLETE;
	}

	/*
	 * A target that knows nothing may have been told to forget it, and be
	 * open.
	 */
	if (is_at(move, source, "fenced") && target->conn != NULL && !is_known(move, target))
	{
		report_error("the move of %s is decided, but the target's journal has no row for it", move->title);
		report_hint("Look whether the shard is open at %s. If not, and it never will be, type on the source: UPDATE snowid.moves SET peer = NULL WHERE shard IN (%s); SELECT snowid.unfence_shard(shard) FROM snowid.moves WHERE shard IN (%s);",
					set_journal(move, source)->peer, shard_list(move), shard_list(move));
		return EXIT_INCOMPLETE;
	}
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
	return for_each_situation(batch, abort_part);
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
		{"status", OF_STATUS, command_status, status_of_split,.locks = false},
		{"abort", OF_ABORT, command_abort, abort_split,.locks = true,.needs_source = true},
		{"back", OF_BACK, command_back,.locks = true,.needs_source = true,.needs_target = true},
		{"route", OF_ROUTE,.run = NULL},
		{"finish", OF_FINISH, command_finish, finish_split,.locks = true,.needs_source = true,.needs_target = true},
	};

	for (int i = 0; i < (int) lengthof(commands); i++)
		if (strcmp(name, commands[i].name) == 0)
			return &commands[i];
	return NULL;
}
