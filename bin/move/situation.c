/*
 * The table of situations.
 */
#include "situation.h"

#include <string.h>

static const char *const steps[] = {
	"none", "closed", "aborted", "claimed", "published", "schema", "rows", "subscribed", "copied",
	"verified", "ready", "fenced", "open", "moved"
};
static const char *const roles[] = {"not reached", "none", "source", "target"};

const char *
step_name(Step step)
{
	return steps[step];
}

const char *
role_name(Role role)
{
	return roles[role];
}

/* One that this program does not know is none that it goes on from. */
Step
step_of(const char *name)
{
	for (int i = 0; i < (int) lengthof(steps); i++)
		if (strcmp(steps[i], name) == 0)
			return (Step) i;
	return NO_STEP;
}

Role
role_of(const char *name)
{
	return strcmp(name, roles[SOURCE]) == 0 ? SOURCE : TARGET;
}

/* What is said of each situation, of a move and of a way back, and what may be typed. */
static const struct
{
	char		letter;			/* in the table below */
	Situation	situation;
	bool		is_decided;		/* or may be: it cannot be left so */
	int			commands;
	int			commands_turned;
	const char *text;
	const char *text_turned;	/* NULL: the same */
}			situations[] = {
	{'.', NOT_BEGUN, false, OF_PLAN | OF_MOVE | OF_SPLIT, 0, "nothing is under way", NULL},
	{'c', COPYING, false, OF_MOVE | OF_ABORT, OF_BACK | OF_ABORT, "under way, not decided", "a way back was begun, and is not decided"},
	{'d', DECIDED, true, OF_MOVE | OF_ABORT, OF_BACK | OF_ABORT, "decided, but not complete", "the way back is decided, but not complete"},
	{'l', ROW_LOST, true, OF_ABORT, OF_ABORT, "decided, but the other server has lost its row of it", NULL},
	{'u', UNOPENED, true, OF_MOVE, OF_BACK, "decided, but the target has failed over and is closed", NULL},
	{'o', OPENED, true, OF_MOVE, OF_BACK, "decided, but not complete", "the way back is decided, but not complete"},
	{'2', OPEN_TWICE, true, OF_MOVE, OF_BACK, "open on both servers, since one has failed over", NULL},
	{'m', HAS_MOVED, false, OF_FINISH, OF_FINISH, "moved", "back, and not finished"},
	{'r', RETURNABLE, false, OF_BACK | OF_FINISH, 0, "moved, and replicated back", NULL},
	{'t', TURNING, true, OF_BACK | OF_ABORT, 0, "a way back was begun, or undone, by half", NULL},
	{'a', ABORTING, false, OF_ABORT, OF_ABORT, "an abort was begun", NULL},
	{'g', SOURCE_GONE, false, OF_FINISH, OF_FINISH, "open on the target, and the source has no row of it", NULL},
	{'!', CONTRADICTION, true, 0, 0, "the journals contradict each other, as after a restore: see on both servers where it is open", NULL},
	{'-', UNKNOWN_THERE, false, 0, 0, "that server knows of no move; the other one was not reached", NULL},
	{'n', UNDECIDED_THERE, false, OF_ABORT, 0, "under way, and not decided", "a way back was begun, and is not decided"},
	{'?', MAYBE_DECIDED, true, 0, 0, "about to be decided, or decided: only the other server knows", NULL},
	{'f', DECIDED_THERE, true, 0, 0, "decided; nobody can write until the other server is reached: then type the same command again", NULL},
	{'p', OPEN_THERE, true, 0, 0, "decided, and open here", NULL},
	{'h', MOVED_THERE, false, 0, 0, "moved", NULL},
	{'b', MAYBE_RETURNING, true, 0, 0, "moved, and replicated back: only the other server knows whether it is on its way back", NULL},
};

/*
 * The letter of each pair: a line for what the server says that the shard leaves, a
 * column for the other one, in the order of columns[].
 */
static const Stand columns[] = {
	{NOT_REACHED, NO_STEP}, {NO_ROW, NO_STEP}, {TARGET, CLAIMED}, {TARGET, SCHEMA}, {TARGET, ROWS},
	{TARGET, SUBSCRIBED}, {TARGET, COPIED}, {TARGET, READY}, {TARGET, OPEN}, {TARGET, ABORTED}
};
static const struct
{
	Stand		from;
	const char *letters;
}			lines[] = {
	{{NOT_REACHED, NO_STEP}, "--nnnnn?pa"},
	{{NO_ROW, NO_STEP}, "-.aaaaaaga"},
	{{SOURCE, CLAIMED}, "nccccccc2a"},
	{{SOURCE, PUBLISHED}, "nccccccc2a"},
	{{SOURCE, COPIED}, "nccccccc2a"},
	{{SOURCE, VERIFIED}, "nccccccc2a"},
	{{SOURCE, FENCED}, "fldddddd" "oa"},
	{{SOURCE, MOVED}, "hmuuuuuuma"},
	{{SOURCE, ABORTED}, "aaaaaaaa!a"},
};

static bool
is_same(Stand a, Stand b)
{
	return a.role == b.role && a.step == b.step;
}

static int
index_of(char letter)
{
	int			i = 0;

	while (situations[i].letter != letter)
		i++;
	return i;
}

static int
index_of_situation(Situation situation)
{
	int			i = 0;

	while (situations[i].situation != situation)
		i++;
	return i;
}

bool
is_turned(Stand first, Stand second)
{
	return first.role == TARGET || (second.role == SOURCE && first.role != SOURCE);
}

Situation
situation_of_pair(Stand from, Stand to, bool may_return)
{
	char		letter = '!';

	for (int i = 0; i < (int) lengthof(lines); i++)
		for (int j = 0; j < (int) lengthof(columns); j++)
			if (is_same(from, lines[i].from) && is_same(to, columns[j]))
				letter = lines[i].letters[j];

	/*
	 * Who turns the journals begins with that of the server that has the
	 * shard.
	 */
	if (from.step == MOVED && to.role == SOURCE && (to.step == COPIED || to.step == VERIFIED || to.step == FENCED))
		letter = 't';
	if (may_return && to.role != NO_ROW && (letter == 'm' || letter == 'h'))
		letter = letter == 'm' ? 'r' : 'b';
	return situations[index_of(letter)].situation;
}

int
commands_in(Situation situation, bool turned)
{
	int			i = index_of_situation(situation);

	return turned ? situations[i].commands_turned : situations[i].commands;
}

const char *
outlook_of(Situation situation, bool turned)
{
	int			i = index_of_situation(situation);

	return turned && situations[i].text_turned != NULL ? situations[i].text_turned : situations[i].text;
}

bool
is_decided_in(Situation situation)
{
	return situations[index_of_situation(situation)].is_decided;
}
