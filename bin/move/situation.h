/*
 * Where a shard stands: one table of what the journals of both servers say.
 *
 * Pure: knows no server, so that t/unit/situation_test.c can ask for all pairs;
 * doc/situations.txt is what it prints.  Everything that asks where a shard is, what may
 * be typed, and what is said of it, asks here.
 */
#ifndef SITUATION_H
#define SITUATION_H

#include "c.h"

/* A row of snowid.moves, without a server that could be asked, or without a row. */
typedef enum Role
{
	NOT_REACHED,
	NO_ROW,
	SOURCE,
	TARGET
} Role;

/*
 * The steps, in their order; journal.c says what each means.  Nothing goes on from an
 * abort but that, and from what was closed by hand.
 */
typedef enum Step
{
	NO_STEP,
	CLOSED,
	ABORTED,
	CLAIMED,
	PUBLISHED,
	SCHEMA,
	ROWS,
	SUBSCRIBED,
	COPIED,
	VERIFIED,
	READY,
	FENCED,
	OPEN,
	MOVED
} Step;

typedef struct Stand
{
	Role		role;
	Step		step;
} Stand;

/* The commands, as sets: of those that have an option, or that may be typed. */
#define OF_MOVE		(1 << 0)
#define OF_SPLIT	(1 << 1)
#define OF_PLAN		(1 << 2)
#define OF_STATUS	(1 << 3)
#define OF_ABORT	(1 << 4)
#define OF_BACK		(1 << 5)
#define OF_ROUTE	(1 << 6)
#define OF_FINISH	(1 << 7)
#define OF_AUDIT	(1 << 8)
#define OF_DIFF		(1 << 9)
#define OF_ERASE	(1 << 10)
#define OF_COPY		(1 << 11)
#define OF_RESTORE	(1 << 12)
#define OF_UNDO		(1 << 13)
#define OF_SHARDS	~(OF_ROUTE | OF_AUDIT)

/* What hands shards over, and what goes with it. */
#define OF_MOVES	(OF_SHARDS & ~(OF_DIFF | OF_ERASE | OF_COPY | OF_RESTORE | OF_UNDO))

/* Also as sets. */
typedef enum Situation
{
	NOT_BEGUN = 1 << 0,
	COPYING = 1 << 1,			/* under way, not decided */
	DECIDED = 1 << 2,			/* open nowhere yet */
	ROW_LOST = 1 << 3,			/* decided, and the target has forgotten it */
	UNOPENED = 1 << 4,			/* the target has forgotten that it was open */
	OPENED = 1 << 5,			/* the source is not cleaned up yet */
	OPEN_TWICE = 1 << 6,		/* the source has forgotten the decision */
	HAS_MOVED = 1 << 7,
	RETURNABLE = 1 << 8,		/* the same, and replicated back */
	TURNING = 1 << 9,			/* a way back is begun, or undone, by half */
	ABORTING = 1 << 10,
	SOURCE_GONE = 1 << 11,		/* open, and the source knows nothing */
	CONTRADICTION = 1 << 12,
	/* One of the servers is not reached. */
	UNKNOWN_THERE = 1 << 13,	/* and the other one knows nothing */
	UNDECIDED_THERE = 1 << 14,
	MAYBE_DECIDED = 1 << 15,
	DECIDED_THERE = 1 << 16,
	OPEN_THERE = 1 << 17,
	MOVED_THERE = 1 << 18,
	MAYBE_RETURNING = 1 << 19
} Situation;

#define ANY_SITUATION	(~0)

/*
 * A move goes from one server to the other, and a way back is a move with its sides
 * swapped: this says that the first of the two is the target now.
 */
extern bool is_turned(Stand first, Stand second);

/* Of a move from one to the other; can it be replicated back when it has moved? */
extern Situation situation_of_pair(Stand from, Stand to, bool may_return);

/* What may be typed then, what is said of it, and whether it cannot be left so. */
extern int	commands_in(Situation situation, bool turned);
extern const char *outlook_of(Situation situation, bool turned);
extern bool is_decided_in(Situation situation);

/* Their names in the journal. */
extern const char *step_name(Step step);
extern const char *role_name(Role role);
extern Step step_of(const char *name);
extern Role role_of(const char *name);

#endif							/* SITUATION_H */
