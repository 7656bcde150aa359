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

/*
 * Which shards make a check fail?  Those that fail alone; or all, if it is a
 * matter of the servers, or of all shards together.
 */
static void
mark_failing(const Move *move, const Check *check)
{
	int			failing = 0;

	for (int i = 0; i < move->nshards && move->nshards > 1; i++)
		if (run_check_silently(select_range(move, i, 1), check) == FOUND_FAILED)
		{
			move->shards[i]->failed = true;
			failing++;
		}
	for (int i = 0; i < move->nshards && failing == 0; i++)
		move->shards[i]->failed = true;
}

void
run_prechecks(const Move *move)
{
	for (size_t i = 0; i < lengthof(plan); i++)
		if ((!plan[i].only_reverse || move->options->reverse) &&
			run_check(move, &plan[i]) == FOUND_FAILED)
			mark_failing(move, &plan[i]);
	fflush(stdout);
}

/* Run all, and print each with its result; false if one has failed. */
bool
run_split_checks(const Move *move)
{
	bool		all_passed = true;

	for (size_t i = 0; i < lengthof(split); i++)
		if (run_check(move, &split[i]) == FOUND_FAILED)
			all_passed = false;
	fflush(stdout);
	return all_passed;
}

/* Asked again before what cannot be undone: the first of split.sql. */
bool
has_manager(const Move *set)
{
	if (run_check_silently(set, &split[0]) != FOUND_FAILED)
		return false;
	report_error("a fail-over manager runs the target; snowid-move plan says which");
	return true;
}
