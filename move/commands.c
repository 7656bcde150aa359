/*
 * The commands.
 *
 * Each goes on from what the journals of the two servers say, as far as it can,
 * and returns what the program exits with.
 */
#include "commands.h"

/* A shard that is not registered, or not there, cannot be moved away. */
static bool
check_source(const Move *move)
{
	PGconn	   *conn = move->source.conn;

	for (int i = 0; i < move->nshards; i++)
	{
		const Shard *shard = move->shards[i];
		char	   *home;

		if (shard->schema == NULL)
		{
			report_error("shard %d does not exist on the source", shard->number);
			report_hint("Type there: SELECT * FROM snowid.shards;");
			return false;
		}
		home = query_text(conn, "SELECT snowid.shard_home(%d)", shard->number);
		if (strcmp(home, "here") != 0)
		{
			report_error("shard %d does not live on the source", shard->number);
			report_detail("The source's registry says: %s", home);
			return false;
		}
	}
	return true;
}

static int
command_plan(Move *move)
{
	PGconn	   *conn = move->source.conn;
	PGresult   *res;

	if (!check_source(move))
		return EXIT_USAGE;
	if (!run_prechecks(move))
	{
		printf("%s cannot be moved yet; nothing was changed\n", move->title);
		return EXIT_FAILED;
	}
	for (int i = 0; i < move->nshards; i++)
	{
		const Shard *shard = move->shards[i];

		res = query(conn,
					"SELECT count(*), pg_size_pretty(coalesce(sum(pg_table_size(c.oid)), 0)) "
					"FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
					"WHERE n.nspname = %s AND c.relkind = 'r'", literal(conn, shard->schema));
		printf("shard %d, schema \"%s\", %s tables, %s, would move from %s to %s; nothing was changed\n",
			   shard->number, shard->schema, PQgetvalue(res, 0, 0), PQgetvalue(res, 0, 1),
			   move->source.home, move->target.home);
		PQclear(res);
	}
	return EXIT_DONE;
}

/* What a stage that is not done means for the program. */
static int
exit_after(const Move *move, Status status)
{
	if (status == STATUS_DONE)
		return EXIT_DONE;
	if (status == STATUS_FAILED)
		return failure();
	report_info("undoing the move; if that fails, type: snowid-move abort");
	(void) abort_move(move);
	return EXIT_FAILED;
}

/* From the claim to a copy that follows. */
static Status
copy_and_follow(const Move *move)
{
	const Side *source = &move->source;
	const Side *target = &move->target;

	if (!has_reached(move, target, "schema") && copy_schema(move) != STATUS_DONE)
		return STATUS_FAILED;
	if (!has_reached(move, source, "published"))
		publish(move, source, move->name);
	if (!has_reached(move, target, "subscribed"))
	{
		await_turn(move);
		create_slot(source, move->name);
		subscribe(move);
		leave_turn(move);
	}
	return has_reached(move, source, "copied") ? STATUS_DONE : wait_for_copy(move);
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

	for (int i = 0; i < move->nshards; i++)
	{
		Shard	   *shard = move->shards[i];

		if (journal_of(shard, target)->fingerprint == NULL)
			record_fingerprint(target, shard->number,
							   query_text(target->conn, "%s", fingerprint_sql(target->conn, shard->schema)));
	}
	publish(move, target, move->reverse_name);
	create_slot(target, move->reverse_name);
}

static Status
verify_and_cut_over(const Move *move)
{
	const Side *source = &move->source;
	const Side *target = &move->target;
	Status		status;

	if (!has_reached(move, source, "verified") &&
		(status = verify(move)) != STATUS_DONE)
		return status;
	if (set_journal(move, source)->reverse)
		prepare_way_back(move);
	return cut_over(move, source, target, move->name);
}

static int
command_move(Move *move)
{
	Status		status;
	const Side *source = &move->source;
	const Side *target = &move->target;

	if ((is_role(move, source, "target") && is_at(move, source, "open") && is_at(move, target, "moved")))
	{
		report_error("%s has been moved to the source, and that move is not finished", move->title);
		report_hint("Type snowid-move finish, and then this command again.");
		return EXIT_FAILED;
	}
	if (is_role(move, source, "target") || is_role(move, target, "source"))
	{
		report_error("%s is not at the source", move->title);
		report_hint("A move back is under way; type: snowid-move status");
		return EXIT_FAILED;
	}
	if (is_at(move, source, "ready"))
	{
		report_error("a way back of %s was begun", move->title);
		report_hint("Type: snowid-move back, or abort");
		return EXIT_FAILED;
	}
	if (is_at(move, source, "aborted") || is_at(move, target, "aborted") ||
		(!is_known(move, source) && is_known(move, target)))
	{
		report_error("an abort of this move was begun");
		report_hint("Type: snowid-move abort");
		return is_at(move, source, "fenced") ? EXIT_INCOMPLETE : EXIT_FAILED;
	}
	if (is_at(move, source, "moved"))
	{
		report_info("%s has moved already; type: snowid-move finish", move->title);
		return EXIT_DONE;
	}

	/* It was not prepared for, nor checked. */
	if (move->options->reverse && is_known(move, source) && !set_journal(move, source)->reverse &&
		!is_at(move, source, "fenced"))
	{
		report_error("the move of %s was begun without --reverse", move->title);
		report_hint("Type the command without it; or type snowid-move abort, and begin again.");
		return EXIT_FAILED;
	}

	if (!is_known(move, source))
	{
		if (!check_source(move))
			return EXIT_USAGE;
		if (!run_prechecks(move))
		{
			report_error("%s cannot be moved yet; nothing was changed", move->title);
			return EXIT_FAILED;
		}
		claim_source(move);
	}
	else
		report_info("going on after step \"%s\"",
					has_reached(move, target, set_journal(move, source)->step)
					? set_journal(move, target)->step : set_journal(move, source)->step);
	if (!is_known(move, target) && !claim_target(move))
		return failure();
	if (move->options->keep_name && !set_journal(move, source)->keep_name)
	{
		record_detail(move, source->conn, "keep_name", "true");
		read_journal(move, source);
	}

	if (!is_at(move, source, "fenced"))
	{
		status = copy_and_follow(move);
		if (status == STATUS_DONE && move->options->stop_after == STOP_COPIED)
		{
			report_info("the copy is there and follows; the same command without --stop-after cuts over");
			return EXIT_DONE;
		}
		if (status == STATUS_DONE)
			status = verify_and_cut_over(move);
		if (status != STATUS_DONE)
			return exit_after(move, status);
	}

	failure_exit_code = EXIT_INCOMPLETE;
	if (!is_at(move, target, "open") && open_decided(move, source, target) != STATUS_DONE)
		return failure();
	if (clean_up_after(move, source, target, move->name) != STATUS_DONE)
		return failure();
	tell_publications(move);
	if (set_journal(move, source)->reverse)
		report_info("done; the source is kept current. Type snowid-move finish, or snowid-move back");
	else
		report_info("done; to drop the source's copy, type: snowid-move finish");
	return EXIT_DONE;
}

/*
 * The way back: the same cut-over with the servers' roles swapped, over the
 * replication that has kept the old one current.
 */
static int
command_back(Move *move)
{
	const Side *source = &move->source;
	const Side *target = &move->target;
	bool		is_decided = is_role(move, target, "source");

	if (!is_known(move, source) || !is_known(move, target) || !set_journal(move, source)->reverse ||
		!(is_decided || (is_at(move, target, "open") &&
						 (is_at(move, source, "moved") || is_at(move, source, "ready")))))
	{
		report_error("there is no way back for %s", move->title);
		if (is_at(move, source, "moved"))
			report_hint("It was moved without --reverse. Type snowid-move finish, and then move it with --from and --to exchanged.");
		else
			report_hint("To see the state of the move, type: snowid-move status");
		return EXIT_FAILED;
	}
	if (is_decided && is_role(move, source, "source") && is_at(move, source, "moved"))
	{
		report_error("an abort of the way back was begun");
		report_hint("Type: snowid-move abort");
		return EXIT_INCOMPLETE;
	}
	if (is_decided && is_at(move, target, "moved"))
	{
		report_info("%s is back already; type: snowid-move finish", move->title);
		return EXIT_DONE;
	}
	if (!is_decided && cut_over(move, target, source, move->reverse_name) != STATUS_DONE)
		return failure();
	failure_exit_code = EXIT_INCOMPLETE;
	if (!is_at(move, source, "open") && open_decided(move, target, source) != STATUS_DONE)
		return failure();
	if (clean_up_after(move, target, source, move->reverse_name) != STATUS_DONE)
		return failure();
	report_info("done; to drop the copy on the server that it has left, type: snowid-move finish");
	return EXIT_DONE;
}

static int
command_finish(Move *move)
{
	const Side *source = &move->source;
	const Side *target = &move->target;

	if (!is_known(move, source) && !is_known(move, target))
	{
		report_info("%s: nothing to finish", move->title);
		return EXIT_DONE;
	}
	if (is_role(move, source, "target"))
		swap_sides(move);
	if (!is_at(move, source, "moved") || is_role(move, target, "source"))
	{
		report_error("the move of %s is not complete", move->title);
		report_hint("Type snowid-move status");
		return is_at(move, source, "fenced") || is_role(move, target, "source") ? EXIT_INCOMPLETE : EXIT_FAILED;
	}

	/* Its journal has what it takes to open it again. */
	for (int i = 0; i < move->nshards; i++)
		if (journal_of(move->shards[i], target)->closed)
		{
			report_error("shard %d is closed by hand at %s", move->shards[i]->number, target->home);
			report_hint("Type there: SELECT snowid.unfence_shard(%d);", move->shards[i]->number);
			return EXIT_FAILED;
		}
	failure_exit_code = EXIT_INCOMPLETE;
	return exit_after(move, finish(move));
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
		for (int i = 0; i < move->nshards; i++)
			run(target->conn, "SELECT snowid.unfence_shard(%d)", move->shards[i]->number);
		run(target->conn, "COMMIT");
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
command_abort(Move *move)
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
	if (is_role(move, source, "target") || is_at(move, source, "moved") || is_at(move, target, "open"))
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
	return EXIT_DONE;
}

const Command *
find_command(const char *name)
{
	static const Command commands[] = {
		{"move", command_move,.locks = true,.needs_source = true,.needs_target = true},
		{"plan", command_plan,.needs_source = true,.needs_target = true},
		{"status", command_status,.locks = false},
		{"abort", command_abort,.locks = true,.needs_source = true},
		{"back", command_back,.locks = true,.needs_source = true,.needs_target = true},
		{"finish", command_finish,.locks = true,.needs_source = true,.needs_target = true},
	};

	for (int i = 0; i < (int) lengthof(commands); i++)
		if (strcmp(name, commands[i].name) == 0)
			return &commands[i];
	return NULL;
}
