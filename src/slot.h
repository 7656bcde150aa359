/*
 * The decisions: which slots are next, must the caller wait, what must be
 * logged.
 *
 * These rules make ids unique and rising.  They are pure functions of plain
 * numbers: the state on the sequence's page, the sequence's definition, and
 * the clock.  sequence.c holds the page's lock around them, and does what
 * they say; t/unit/slot_test.c calls them with every edge value.  Like
 * layout.h, this needs only c.h before it.
 *
 * The sequence is a hybrid logical clock (Kulkarni, Demirbas et al., "Logical
 * Physical Clocks", 2014) with the logical part in the low bits: each slot is
 * the larger of the clock and the last slot + 1.
 */
#ifndef SNOWID_SLOT_H
#define SNOWID_SLOT_H

#include "layout.h"

/*
 * How far the slots may run ahead of the clock.  It covers the jitter with
 * which waiting sessions wake up, so that an overloaded sequence still gives
 * 1024 slots a millisecond.  It is also how wrong an id's time can be under
 * overload.
 *
 * Without waiting, a millisecond is opened only up to one less than that
 * ahead.  The last one is for a session that has waited, and finds the
 * millisecond that it waited for used up by others.
 */
#define MS_AHEAD_MAX		10
#define MS_AHEAD_FREE		(MS_AHEAD_MAX - 1)

/*
 * One opening of a millisecond that is further ahead waits at most this
 * long, whatever the clock says: the bound for each call's wait.
 */
#define OPENING_WAIT_MAX_US 1000

/*
 * How long a session may serve slots that it took ahead of use (CACHE).  It
 * and the end of their millisecond bound how far they can be out of order with
 * other sessions' slots.
 */
#define CACHED_FOR_US		1000

/* A state further ahead of the clock than this is refused. */
#define MS_AHEAD_SANE		INT64CONST(86400000)

/* One second of slots is logged ahead of use: a record a second at most. */
#define SLOTS_LOGGED_AHEAD	(INT64CONST(1000) * SLOTS_PER_MS)

/* The tuple on the sequence's page. */
typedef struct SlotState
{
	int64		last;			/* last slot issued */
	int64		log_cnt;		/* increments beyond it that the log covers */
	bool		is_called;		/* has any slot been issued? */
} SlotState;

/* What the sequence's definition says. */
typedef struct SlotRules
{
	int64		increment;		/* slots a call reserves, 1 .. SLOTS_PER_MS */
	int64		max_slot;		/* MAXVALUE */
	int64		cache;			/* calls that a session may serve at once */
	int64		start;			/* START */
} SlotRules;

/*
 * The worker group of Citus whose copy a sequence is, 0 if it is none.
 *
 * Citus gives each worker's copy a START and MINVALUE of its own, (group << 48)
 * + 1, which no other sequence is likely to have both.
 */
static inline int32
slot_citus_group(int64 start, int64 min)
{
	if (start != min || min <= 0 || (min & ((INT64CONST(1) << 48) - 1)) != 1)
		return 0;
	return (int32) (min >> 48);
}

typedef enum SlotVerdict
{
	SLOT_TAKE,					/* first .. last are the session's */
	SLOT_WAIT,					/* first is too far ahead: wait wait_us */
	SLOT_BEFORE_EPOCH,			/* the clock is before the epoch */
	SLOT_EXHAUSTED,				/* the layout's time is used up */
	SLOT_TOO_FAR_AHEAD,			/* the state is over a day ahead of the clock */
	SLOT_OVER_MAXVALUE			/* the sequence's MAXVALUE is reached */
} SlotVerdict;

typedef struct SlotChoice
{
	SlotVerdict verdict;
	int64		first;
	int64		last;
	int64		wait_us;
} SlotChoice;

/* What goes to the log, and what to the page. */
typedef struct SlotCover
{
	bool		must_log;
	int64		logged_last;	/* last_value in the log record */
	int64		log_cnt;		/* log_cnt on the page */
} SlotCover;

/*
 * Choose the next slots, given the microseconds since the epoch.
 *
 * may_open: the caller has waited, alone, for one millisecond to be opened
 * ahead of the clock.
 */
static inline SlotChoice
slot_choose(SlotState state, SlotRules rules, int64 now_us, bool may_open)
{
	SlotChoice	choice = {SLOT_TAKE, 0, 0, 0};
	int64		now_ms = now_us / 1000;
	int64		now_slot = slot_pack(now_ms, 0);
	int64		first = now_slot;

	if (now_us < 0)
	{
		choice.verdict = SLOT_BEFORE_EPOCH;
		return choice;
	}
	if (now_ms > MS_LAST_GENERATED)
	{
		choice.verdict = SLOT_EXHAUSTED;
		return choice;
	}

	if (state.is_called)
	{
		if (slot_ms(state.last) > now_ms + MS_AHEAD_SANE)
		{
			choice.verdict = SLOT_TOO_FAR_AHEAD;
			return choice;
		}
		first = Max(state.last + 1, now_slot);
	}
	else if (state.last > now_slot && state.last != rules.start &&
			 slot_ms(state.last) <= now_ms + MS_AHEAD_SANE)
	{
		/*
		 * setval(seq, slot, false) names the next slot itself.  Any other
		 * sequence that was never called has its START here, which is no
		 * time: 1 mostly.
		 */
		first = state.last;
	}

	/* Slot 0 is below the usual MINVALUE 1. */
	first = Max(first, 1);

	/* A block never crosses a millisecond: its ids must be consecutive. */
	if (slot_seq(first) + rules.increment > SLOTS_PER_MS)
		first = slot_pack(slot_ms(first) + 1, 0);

	choice.first = first;
	choice.last = first + rules.increment - 1;

	if (slot_ms(first) > MS_LAST_GENERATED)
		choice.verdict = SLOT_EXHAUSTED;
	else if (choice.last > rules.max_slot)
		choice.verdict = SLOT_OVER_MAXVALUE;
	else if (!may_open &&
			 slot_ms(first) > now_ms + MS_AHEAD_FREE &&
			 !(state.is_called && slot_ms(first) == slot_ms(state.last)))
	{
		choice.verdict = SLOT_WAIT;
		choice.wait_us = Min((slot_ms(first) - MS_AHEAD_FREE) * 1000 - now_us,
							 OPENING_WAIT_MAX_US);
	}
	else if (rules.cache > 1)
	{
		/* As many blocks as are wanted, and left, of this millisecond. */
		int64		end = Min(slot_pack(slot_ms(first), SEQ_MAX), rules.max_slot);
		int64		blocks = Min((end - first + 1) / rules.increment, rules.cache);

		choice.last = first + blocks * rules.increment - 1;
	}
	return choice;
}

/*
 * Could ids have been issued that this state has forgotten?
 *
 * A restarted sequence looks like a new one, or like a plain counter that went
 * on from there.  What it issued before is at most MS_AHEAD_MAX ahead of the
 * clock, so it is enough to wait that long.  Call this only for a sequence that
 * has been rewritten: any other that looks like this never issued an id.
 */
static inline bool
slot_is_forgotten(SlotState state, int64 now_us)
{
	return !state.is_called || state.last < slot_pack(now_us / 1000, 0) / 2;
}

/*
 * Decide what must be logged before the slots up to new_last are issued.
 *
 * The log always holds a state at or beyond every slot issued, so that replay
 * ends above them.  log_cnt has core's meaning, how many increments beyond
 * last_value the log covers, so calls of nextval can be mixed in.
 *
 * must_log: log even if the last record covers the slots (a checkpoint's redo
 * point has passed that record).
 */
static inline SlotCover
slot_cover(SlotState state, SlotRules rules, int64 new_last, bool must_log)
{
	SlotCover	cover = {true, 0, 0};
	int64		covered = state.last;

	if (state.is_called && state.log_cnt > 0)
	{
		/* A huge CACHE lets nextval leave a huge log_cnt: saturate. */
		if (state.log_cnt > (PG_INT64_MAX - Max(state.last, 0)) / rules.increment)
			covered = PG_INT64_MAX;
		else
			covered = state.last + state.log_cnt * rules.increment;
	}

	if (!must_log && state.is_called && new_last <= covered)
	{
		cover.must_log = false;
		cover.log_cnt = (covered - new_last) / rules.increment;
		return cover;
	}

	/*
	 * What is logged becomes last_value after a crash.  A dump with a
	 * last_value above MAXVALUE could not be restored.
	 */
	cover.logged_last = Min(new_last + SLOTS_LOGGED_AHEAD,
							Min(rules.max_slot, SLOT_LAST_GENERATED));
	cover.log_cnt = (cover.logged_last - new_last) / rules.increment;
	return cover;
}

#endif							/* SNOWID_SLOT_H */
