/*
 * Unit test of the table of situations: all pairs of what two journals can say.  No
 * server; prints TAP, or, with an argument, the table as doc/situations.txt has it,
 * which a person is to check.
 */
#include "c.h"

#include <stdio.h>

#include "situation.h"

/* port.h has them come from a library that there is no need to link. */
#undef printf
#undef fprintf

static int	tests = 0;
static int	failures = 0;

static void
ok(bool condition, const char *what)
{
	tests++;
	if (!condition)
		failures++;
	printf("%sok %d - %s\n", condition ? "" : "not ", tests, what);
}

static const char *const commands[] = {"move", "split", "plan", "status", "abort", "back", "route", "finish"};

/* All that a server can say. */
static Stand stands[2 * (MOVED + 1) + 2];
static int	nstands = 0;

static void
print_stand(Stand stand)
{
	if (stand.role <= NO_ROW)
		printf("%-18s ", role_name(stand.role));
	else
		printf("%s %-11s ", role_name(stand.role), step_name(stand.step));
}

static void
print_pair(Stand first, Stand second, bool may_return)
{
	bool		turned = is_turned(first, second);
	Situation	situation = turned ? situation_of_pair(second, first, false) : situation_of_pair(first, second, may_return);
	int			allowed = commands_in(situation, turned);

	if (situation == CONTRADICTION)
		return;
	print_stand(first);
	print_stand(second);
	printf("%-8s", may_return ? "reverse" : turned ? "back" : "");
	for (int i = 0; i < (int) lengthof(commands); i++)
		if ((allowed & (1 << i)) != 0 && (1 << i) != OF_PLAN && (1 << i) != OF_SPLIT)
			printf(" %s", commands[i]);
	printf("%s %s\n", allowed == 0 ? " -:" : ":", outlook_of(situation, turned));
}

static void
print_all(void)
{
	printf("What the journals of both servers say, whether the move is with --reverse or on its way\n"
		   "back, what may be typed, and what is said.  All other pairs contradict each other.\n\n");
	for (int i = 0; i < nstands; i++)
		for (int j = 0; j < nstands; j++)
		{
			print_pair(stands[i], stands[j], false);
			if (!is_turned(stands[i], stands[j]) &&
				situation_of_pair(stands[i], stands[j], true) != situation_of_pair(stands[i], stands[j], false))
				print_pair(stands[i], stands[j], true);
		}
}

static Stand
at(Role role, Step step)
{
	Stand		stand = {role, step};

	return stand;
}

static Situation
of(Stand from, Stand to)
{
	return situation_of_pair(from, to, false);
}

int
main(int argc, char *argv[])
{
	const Stand none = {NO_ROW, NO_STEP};
	const Stand unreached = {NOT_REACHED, NO_STEP};
	bool		one_way = true;
	bool		told = true;
	bool		decided = true;
	bool		safe = true;

	stands[nstands++] = unreached;
	stands[nstands++] = none;
	for (Role role = SOURCE; role <= TARGET; role++)
		for (Step step = ABORTED; step <= MOVED; step++)
			stands[nstands++] = at(role, step);
	if (argc > 1)
	{
		print_all();
		return 0;
	}
	for (int i = 0; i < nstands; i++)
		for (int j = 0; j < nstands; j++)
		{
			Stand		from = stands[i];
			Stand		to = stands[j];
			Situation	situation = of(from, to);
			int			both = commands_in(situation, false) | commands_in(situation, true);
			bool		is_open_there = to.role == TARGET && to.step == OPEN;

			/* A way back is the same move with its sides swapped. */
			if (from.role == SOURCE && to.role == TARGET)
				one_way = one_way && !is_turned(from, to) && is_turned(to, from);
			told = told && outlook_of(situation, false)[0] != '\0' && outlook_of(situation, true)[0] != '\0';

			/* What is fenced, and not yet open, cannot be left so. */
			if (from.role == SOURCE && from.step == FENCED && (to.role == TARGET || to.role == NO_ROW) && situation != ABORTING)
				decided = decided && is_decided_in(situation);

			/*
			 * Nothing undoes what is open; nothing drops what is open nowhere
			 * else.
			 */
			if (is_open_there)
				safe = safe && (both & OF_ABORT) == 0;
			if ((both & OF_FINISH) != 0)
				safe = safe && (is_open_there || (from.step == MOVED && to.role == NO_ROW));
		}
	ok(one_way, "a way back is told by its roles");
	ok(told, "something is said of each pair");
	ok(decided, "a decided move cannot be left");
	ok(safe, "no abort of what is open there, no finish of what is not");
	ok(of(none, none) == NOT_BEGUN && of(unreached, none) == UNKNOWN_THERE, "nothing is known");
	ok(of(at(SOURCE, VERIFIED), at(TARGET, READY)) == COPYING, "ready is not yet the decision");
	ok(of(at(SOURCE, FENCED), at(TARGET, READY)) == DECIDED, "the decision");
	ok(of(at(SOURCE, FENCED), none) == ROW_LOST, "the target has forgotten it");
	ok(of(at(SOURCE, COPIED), at(TARGET, OPEN)) == OPEN_TWICE, "the source has forgotten it");
	ok(of(at(SOURCE, MOVED), at(TARGET, READY)) == UNOPENED, "the target has forgotten that it was open");
	ok(of(at(SOURCE, MOVED), at(TARGET, OPEN)) == HAS_MOVED &&
	   situation_of_pair(at(SOURCE, MOVED), at(TARGET, OPEN), true) == RETURNABLE, "moved");
	ok(of(at(SOURCE, MOVED), none) == HAS_MOVED && is_turned(none, at(SOURCE, MOVED)), "half of a finish");
	ok(of(at(SOURCE, MOVED), at(SOURCE, COPIED)) == TURNING && of(at(SOURCE, MOVED), at(SOURCE, FENCED)) == TURNING, "half of a turn");
	ok(of(at(SOURCE, ABORTED), at(TARGET, OPEN)) == CONTRADICTION, "undone, and open");
	ok(of(at(TARGET, OPEN), at(TARGET, OPEN)) == CONTRADICTION, "two targets");
	for (Step step = CLOSED; step <= MOVED; step++)
		ok(step_of(step_name(step)) == step, step_name(step));
	ok(step_of("later") == NO_STEP, "a step that this program does not know");
	printf("1..%d\n", tests);
	return failures > 0;
}
