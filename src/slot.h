/*
 * The decisions: which slots are next, must the caller wait, up to which time
 * slots are reserved in the log.
 *
 * These rules make ids unique and rising.  They are pure functions of plain
 * numbers: the state on the sequence's page, the sequence's definition, the
 * clock's page, and the time.  sequence.c and reservation.c hold the page's lock
 * around them, and do what they say; t/unit/slot_test.c calls them with every
 * edge value.  Like layout.h, this needs only c.h before it.
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
 * long, whatever the clock says: the bound for each call's wait.  Three
 * milliseconds for one, so that a lead that a crash has left shrinks.
 */
#define OPENING_WAIT_MAX_US 3000

/*
 * How long a session may serve slots that it took ahead of use (CACHE).  It
 * and the end of their millisecond bound how far they can be out of order with
 * other sessions' slots.
 */
#define CACHED_FOR_US		1000

/* A state further ahead of the clock than this is refused. */
#define MS_AHEAD_SANE		INT64CONST(86400000)

/*
 * A sequence without a log waits until the clock has reached the floor, if that
 * is no further than this.  What it issued beyond the clock would be forgotten
 * in the next crash, and the reservations of others need not be above it.
 */
#define FLOOR_WAIT_MAX_US	(10 * US_PER_S)

/*
 * A sequence that goes alone logs so many slots ahead of use.
 */
#define SLOTS_LOGGED_AHEAD	(INT64CONST(1000) * SLOTS_PER_MS)

/*
 * Times are reserved in whole seconds.  The next second is reserved when less
 * than half of one is left, so that its record is durable before it is needed.
 *
 * For slots that are ahead of the clock, no more is reserved than the end of
 * their second, and nothing if they are RESERVE_AHEAD_US or more beyond both the
 * clock and the floor: then the sequence goes alone.
 */
#define US_PER_S			INT64CONST(1000000)
#define RESERVE_EARLY_US	(US_PER_S / 2)
#define RESERVE_AHEAD_US		(5 * US_PER_S / 2)

/*
 * The clock's page has seconds since 1970, a timestamptz microseconds since
 * 2000.  No reserved time is taken for later than the year 9999.
 */
#define UNIX_ZERO_S		INT64CONST(946684800)
#define RESERVED_LAST_S		INT64CONST(253402300800)

/* The tuple on the sequence's page. */
typedef struct SlotState
{
	int64		last;			/* last slot issued */
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
	SLOT_FLOOR_TOO_FAR,			/* the floor is */
	SLOT_OVER_MAXVALUE			/* the sequence's MAXVALUE is reached */
} SlotVerdict;

typedef struct SlotChoice
{
	SlotVerdict verdict;
	int64		first;
	int64		last;
	int64		wait_us;
} SlotChoice;

/*
 * The database's clock, as its page has it, in microseconds of a timestamptz.
 */
typedef struct Reservation
{
	int64		reserved;		/* the log holds this, above all slots issued */
	int64		floor;			/* no slot is issued below this */
	bool		is_live;		/* was it set since the last recovery, here? */
} Reservation;

/*
 * The first slot that is not below a time, given in microseconds since the
 * epoch.
 */
static inline int64
slot_floor(int64 floor_us)
{
	if (floor_us <= 0)
		return 0;
	return slot_pack(Min((floor_us - 1) / 1000 + 1, MS_LAST_GENERATED + 1), 0);
}

/*
 * Do the next slots follow the last ones, at any time before the given one?
 * They do within a millisecond that has not begun then.
 */
static inline bool
slot_follows(SlotState state, SlotRules rules, int64 before_us)
{
	return state.is_called && slot_ms(state.last) * 1000 >= before_us &&
		slot_seq(state.last) + rules.increment <= SEQ_MAX;
}

/*
 * Has setval(seq, slot, false) named the next slot?  Its time may have passed.
 *
 * Any other sequence that was never called has its START there, which is no
 * time: 1 mostly.
 */
static inline bool
slot_is_named(SlotState state, SlotRules rules, int64 now_us)
{
	return !state.is_called && state.last != rules.start &&
		slot_ms(state.last) <= now_us / 1000 + MS_AHEAD_SANE;
}

/*
 * Choose the next slots, given the microseconds since the epoch of the time
 * and of the floor.
 *
 * may_open: the caller has waited, alone, for one millisecond to be opened
 * ahead of the clock.
 */
static inline SlotChoice
slot_choose(SlotState state, SlotRules rules, int64 floor_us, int64 now_us,
			bool may_open)
{
	SlotChoice	choice = {SLOT_TAKE, 0, 0, 0};
	int64		now_ms = now_us / 1000;
	int64		now_slot = slot_pack(now_ms, 0);
	int64		floor;
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
	else if (slot_is_named(state, rules, now_us))
		first = Max(state.last, now_slot);

	/*
	 * A crash may have lost what was issued below the floor.  Mostly, now is
	 * long above it.
	 */
	if (floor_us > now_us - 1000)
	{
		floor = slot_floor(floor_us);
		if (slot_ms(floor) > now_ms + MS_AHEAD_SANE)
		{
			choice.verdict = SLOT_FLOOR_TOO_FAR;
			choice.first = floor;
			return choice;
		}
		first = Max(first, floor);
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
 * The last slot to log, for a sequence that goes alone up to the given one.  It
 * becomes last_value after a crash, and a dump with a last_value above MAXVALUE
 * could not be restored.
 */
static inline int64
slot_ahead(SlotRules rules, int64 last)
{
	return Min(last + SLOTS_LOGGED_AHEAD, Min(rules.max_slot, SLOT_LAST_GENERATED));
}

/*
 * How long must a sequence without a log wait for the clock, given the floor
 * and the time?  No longer than OPENING_WAIT_MAX_US at once; 0: not at all.
 */
static inline int64
floor_wait(int64 floor, int64 now)
{
	if (floor <= now || floor > now + FLOOR_WAIT_MAX_US)
		return 0;
	return Min(floor - now, OPENING_WAIT_MAX_US);
}

/*
 * Does this state show no ids?
 *
 * A restarted sequence looks like a new one, or like a plain counter that went
 * on from there.  If it has been rewritten, it may have issued ids before.
 */
static inline bool
slot_is_forgotten(SlotState state, int64 now_us)
{
	return !state.is_called || state.last < slot_pack(now_us / 1000, 0) / 2;
}

/*
 * From when on is a slot above all that a restart may have forgotten?
 *
 * They are at most MS_AHEAD_MAX ahead of a clock that is right.  But after a
 * recovery, ids start from the floor.  A sequence that is used to the full then
 * opens a millisecond in OPENING_WAIT_MAX_US, so a lead of 5 seconds has shrunk
 * to nothing when half of that has passed since the floor.
 */
static inline int64
forgotten_until(int64 floor, int64 now)
{
	int64		until = now + (MS_AHEAD_MAX + 1) * 1000;

	if (floor > now + FLOOR_WAIT_MAX_US)
		return until;
	return Max(until, floor + RESERVE_AHEAD_US);
}

/*
 * The last slot that may have been issued, as far as this page and the floor
 * know.  A state that is no recent time is left as it is: a plain counter, or
 * never called.
 */
static inline SlotState
slot_known(SlotState state, int64 floor_us, int64 now_us)
{
	if (!slot_is_forgotten(state, now_us))
		state.last = Max(state.last, slot_floor(floor_us) - 1);
	return state;
}

/*
 * Read the clock's page.
 *
 * last_value is the reserved time, in seconds since 1970.  log_cnt is 0 in the
 * log's record, so it is 0 after setval() and a restore, too.  On the page in
 * use it holds, above the mark, the seconds from the floor to the reserved time,
 * plus one.  The mark differs from that of any page which this one may have been
 * copied from.
 *
 * Whoever finds a page that is not live takes its time for the floor: up to
 * there, slots may have been issued that no page shows.
 */
static inline Reservation
reservation_read(int64 last_value, int64 log_cnt, uint32 mark)
{
	Reservation clock;
	int64		second = Min(Max(last_value, 0), RESERVED_LAST_S);

	clock.reserved = (second - UNIX_ZERO_S) * US_PER_S;
	clock.is_live = (log_cnt >> 32) > 0 && (uint32) log_cnt == mark;
	clock.floor = clock.reserved;
	if (clock.is_live)
		clock.floor -= ((log_cnt >> 32) - 1) * US_PER_S;
	return clock;
}

/* The last_value of a clock. */
static inline int64
reservation_last_value(Reservation clock)
{
	return clock.reserved / US_PER_S + UNIX_ZERO_S;
}

/* The log_cnt of a clock in use.  A floor that is too far back moves up. */
static inline int64
reservation_log_cnt(Reservation clock, uint32 mark)
{
	int64		seconds = (clock.reserved - clock.floor) / US_PER_S;

	return ((Min(seconds, PG_INT32_MAX - 1) + 1) << 32) | mark;
}

/* The begin of the second of a time. */
static inline int64
second_of(int64 us)
{
	return us - (us % US_PER_S + US_PER_S) % US_PER_S;
}

/*
 * May the clock be moved for slots of the time "last"?
 *
 * Not if they are far ahead: that would drag the others along.  But it may be
 * logged again as it is.
 */
static inline bool
reservation_may_move(Reservation clock, int64 last, int64 now)
{
	return last < Max(clock.reserved, Max(clock.floor, now) + RESERVE_AHEAD_US);
}

/*
 * The time to reserve, so that slots of the given time can be issued: the end
 * of the clock's second, and one more, or the end of the slots' second.
 */
static inline int64
reservation_next(Reservation clock, int64 wanted, int64 now)
{
	int64		next = second_of(now) + 2 * US_PER_S;

	if (wanted >= clock.reserved)
		next = Max(next, second_of(wanted) + US_PER_S);
	return Max(next, clock.reserved);
}

#endif							/* SNOWID_SLOT_H */
