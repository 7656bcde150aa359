/*
 * The prechecks, of a move and of a split: everything that would make it fail, or
 * lose something silently, told before anything is touched.
 *
 * All are run and printed, whatever the ones before have found, so that one
 * sees at once all that there is to do.
 */
#include "precheck.h"

static const Check plan[] = {
#include "sql/plan.inc"
};

static const Check split[] = {
#include "sql/split.inc"
};

/* Mark those that make a check fail, by halves; returns how many. */
static int
mark_failing(const Move *part, const Check *check)
{
	int			half = part->nshards / 2;

	if (run_check(part, check, SHOW_NOTHING) != FOUND_FAILED)
		return 0;
	if (part->nshards == 1)
		part->shards[0]->failed = true;
	if (part->nshards <= 1)
		return 1;
	return mark_failing(select_range(part, 0, half), check) +
		mark_failing(select_range(part, half, part->nshards - half), check);
}

/*
 * Those that fail alone have failed; or all, if it is a matter of the servers,
 * which fails without any shard, or of all shards together.  A probe without a query
 * has said which.
 */
static void
mark_failed(const Move *move, const Check *check)
{
	Move		none = *move;

	none.nshards = 0;
	if (check->sql == NULL)
		return;
	if (move->nshards > 1 && mark_failing(&none, check) == 0 && mark_failing(move, check) > 0)
		return;
	for (int i = 0; i < move->nshards; i++)
		move->shards[i]->failed = true;
}

void
run_prechecks(const Move *move)
{
	if (!open_script(move->options->fix_script))
		exit(EXIT_USAGE);
	for (size_t i = 0; i < lengthof(plan); i++)
		if ((!plan[i].only_reverse || move->options->reverse) &&
			run_check(move, &plan[i], FOUND_OK) == FOUND_FAILED)
			mark_failed(move, &plan[i]);
	fflush(stdout);
	close_script(move->options->fix_script);
}

/* Does the check of owners find that definitions, or rows, would run a lesser role's code, as things are now? */
bool
is_code_trusted(const Move *move)
{
	Severity	severity = FOUND_OK;

	for (size_t i = 0; i < lengthof(plan); i++)
		if (strcmp(plan[i].name, "owners") == 0)
			severity = run_check(move, &plan[i], FOUND_FAILED);
	fflush(stdout);
	return severity != FOUND_FAILED;
}

/* The same of a copy from from, which makes no move. */
bool
owners_are_trusted(const Move *move, const char *schema, PGconn *from)
{
	Shard		shard = {.number = move->shards[0]->number,.schema = pg_strdup(schema)};
	Shard	   *shards[] = {&shard};
	Move		copied = *move;
	bool		is_trusted;

	copied.source.conn = from;
	copied.shards = shards;
	is_trusted = is_code_trusted(&copied);
	pg_free(shard.schema);
	return is_trusted;
}

bool
check_new_tables(const Move *single)
{
	bool		all_passed = true;

	for (size_t i = 0; i < lengthof(plan); i++)
		if (plan[i].of_tables && run_check(single, &plan[i], FOUND_FAILED) == FOUND_FAILED)
			all_passed = false;
	fflush(stdout);
	return all_passed;
}

/*
 * Run all, and print each with its result; false if one has failed.  Again,
 * just before what writers notice: only what has failed is printed.
 */
bool
run_split_checks(const Move *move, bool again)
{
	bool		all_passed = true;

	for (size_t i = 0; i < lengthof(split); i++)
		if (run_check(move, &split[i], again ? FOUND_FAILED : FOUND_OK) == FOUND_FAILED)
			all_passed = false;
	fflush(stdout);
	return all_passed;
}

/* Asked again before what cannot be undone: the first of split.sql. */
bool
has_manager(const Move *set)
{
	if (run_check(set, &split[0], SHOW_NOTHING) != FOUND_FAILED)
		return false;
	report_error("a fail-over manager runs the target; snowid-move plan says which");
	return true;
}
