/*
 * The decisions: which slots are next, must the caller wait, up to which time
 * slots are reserved in the log.
 *
 * These rules make ids unique and rising.  They are pure functions of plain
 * numbers: the state on the sequence's page, the sequence's definition, what is
 * reserved, and the time.  sequence.c and reservation.c hold the page's lock
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
 * How long a session may serve slots that it took ahead of use (CACHE), if they
 * are further ahead of the clock than pacing lets them be; else to the end of
 * their millisecond.  It bounds how far they can be out of order with other
 * sessions' slots.
 */
#define CACHED_FOR_US		((MS_AHEAD_MAX + 1) * 1000)

/* A state further ahead of the clock than this is refused. */
#define MS_AHEAD_SANE		INT64CONST(86400000)

/* A sequence that goes alone logs so many slots ahead of use. */
#define SLOTS_LOGGED_AHEAD	(INT64CONST(1000) * SLOTS_PER_MS)

/*
 * Times are reserved to so far beyond the clock.  More is reserved when less
 * than half a second is left, so that its record is durable before it is needed.
 */
#define US_PER_S			INT64CONST(1000000)
#define RESERVE_US			(2 * US_PER_S)
#define RESERVE_EARLY_US	(US_PER_S / 2)

/*
 * The reservation's page has milliseconds since 1970, a timestamptz microseconds
 * since 2000.  No reserved time is taken for later than the year 9999.
 */
#define UNIX_ZERO_MS		INT64CONST(946684800000)
#define RESERVED_LAST_MS	INT64CONST(253402300800000)

/* The bits of log_cnt that mark a reservation in use. */
#define MARK_BITS			24
#define MARK_MASK			((1 << MARK_BITS) - 1)
#define FLOOR_BACK_MAX_MS	((INT64CONST(1) << (63 - MARK_BITS)) - 2)

/* What the tuple on the sequence's page says; see slot_state(). */
typedef struct SlotState
{
	int64		last;			/* last slot issued */
	bool		is_called;		/* has any slot been issued? */
	bool		is_id;			/* was it set to an id, of whose time last is? */
} SlotState;

/* What the sequence's definition says. */
typedef struct SlotRules
{
	int64		increment;		/* slots a call reserves, 1 .. SLOTS_PER_MS */
	int64		max_slot;		/* MAXVALUE */
	int64		cache;			/* calls that a session may serve at once */
	int64		start;			/* START */
	int64		min_slot;		/* MINVALUE */
	int64		early_ms;		/* how long before the default the epoch is,
								 * if nothing but the caller says that it is
								 * this one */
} SlotRules;

/*
 * What a plain counter does not reach, nor a time of less than 12 days after
 * the epoch.
 */
#define SLOT_COUNTED		(INT64CONST(1) << 40)

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
	SLOT_SET_TOO_FAR,			/* the id that the sequence was set to is */
	SLOT_OTHER_EPOCH,			/* the slot would be far ahead by the default
								 * epoch */
	SLOT_FLOOR_TOO_FAR,			/* the floor is */
	SLOT_OVER_MAXVALUE,			/* the sequence's MAXVALUE is reached */
	SLOT_UNDER_MINVALUE			/* its MINVALUE is later than now */
} SlotVerdict;

typedef struct SlotChoice
{
	SlotVerdict verdict;
	int64		first;			/* or what is too far ahead */
	int64		last;
	int64		wait_us;
} SlotChoice;

/* What is reserved, as the reservation's page has it: times, as timestamptz. */
typedef struct Reservation
{
	int64		reserved;		/* the log holds this, above all slots issued */
	int64		floor;			/* no slot is issued below this */
	bool		is_live;		/* was it set since the last recovery, here? */
} Reservation;

/* What a session knows to be in the log: a bound, and where its record ends. */
typedef struct Logged
{
	int64		bound;
	uint64		lsn;
} Logged;

/*
 * What keeps the slots that are being taken from coming again after a crash.
 * None: they are to be reserved.
 */
typedef enum SlotCover
{
	COVER_NONE = 0,
	COVER_RESERVED = 1,			/* what is reserved for all sequences ... */
	COVER_FIRST = 2,			/* ... and a record: the page shows from then
								 * on that the sequence makes ids */
	COVER_OWN = 4,				/* the session's record of this sequence */
	COVER_ALONE = 8,			/* such a record, which is to be written */
	COVER_NO_LOG = 16			/* nothing: what is not reserved has no log */
} SlotCover;

/*
 * Read the tuple on a sequence's page.
 *
 * No slot of any epoch is above SLOT_LAST_GENERATED, 2^50 - 1.  What is, is an id:
 * the largest one of a table, to which tools set the sequence of a table, or the
 * one after it, uncalled.  It counts as the last slot of its millisecond, since
 * the id may be of a higher shard.
 *
 * An id below that is of the first 37 hours of its epoch, and taken for a slot:
 * one that is 8,192 times as late.  So what goes on from there is above it, too, and
 * not over a day ahead, which slot_choose() refuses.
 */
static inline SlotState
slot_state(int64 last_value, bool is_called, int64 start)
{
	SlotState	state = {last_value, is_called, false};

	if (last_value > SLOT_LAST_GENERATED && (is_called || last_value != start))
	{
		state.last = slot_pack(id_ms(last_value), SEQ_MAX);
		state.is_called = true;
		state.is_id = true;
	}
	return state;
}

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
			choice.verdict = state.is_id ? SLOT_SET_TOO_FAR : SLOT_TOO_FAR_AHEAD;
			choice.first = state.last;
			return choice;
		}

		/*
		 * Ids of the default epoch have come so far, and would not go on from
		 * here.  What only counts, or was restarted, may begin with any
		 * epoch.
		 */
		if (rules.early_ms > MS_AHEAD_SANE && state.last >= SLOT_COUNTED &&
			slot_ms(state.last) <= now_ms - rules.early_ms + MS_AHEAD_SANE)
		{
			choice.verdict = SLOT_OTHER_EPOCH;
			choice.first = now_slot;
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
	else if (choice.last < rules.min_slot)
		choice.verdict = SLOT_UNDER_MINVALUE;
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
 * Does this state show no ids, or not which was the last?
 *
 * A restarted sequence looks like a new one, or like a plain counter that went
 * on from there.  If it has been rewritten, it may have issued ids before.  One
 * that was set to an id may have issued later ones.
 */
static inline bool
slot_is_forgotten(SlotState state, int64 now_us)
{
	return !state.is_called || state.is_id ||
		state.last < slot_pack(now_us / 1000, 0) / 2;
}

/*
 * From when on is a slot above all that a restart may have forgotten?
 *
 * All that was ever covered is below what is reserved.  What nothing covered is
 * at most MS_AHEAD_MAX ahead of the clock.
 */
static inline int64
forgotten_until(int64 reserved, int64 now)
{
	return Max(reserved, now + (MS_AHEAD_MAX + 1) * 1000);
}

/*
 * The last slot that may have been issued, as far as this page and the floor
 * know; forgotten_until() is the floor of a sequence that was set to an id.  A
 * state that is no recent time is left as it is: a plain counter, or never called.
 */
static inline SlotState
slot_known(SlotState state, int64 floor_us, int64 now_us)
{
	if (state.is_id || !slot_is_forgotten(state, now_us))
		state.last = Max(state.last, slot_floor(floor_us) - 1);
	return state;
}

typedef struct SlotAdvance
{
	SlotVerdict verdict;
	SlotState	state;
} SlotAdvance;

/*
 * The state from which every later slot is larger than the given one; never
 * back.  SLOT_TAKE, or why next_id() could not go on from there.
 *
 * The caller may have named another epoch than the sequence has.  So nothing is
 * written that another epoch would put into the time to come: a page can be
 * behind the floor by the time between two checkpoints, a day at most, and who
 * seems further behind is not behind.  A restarted sequence stays one: it is
 * left to next_id() to start above what it has forgotten.  For one that was set to
 * an id, the floor is above that.
 */
static inline SlotAdvance
slot_advance(SlotState state, SlotRules rules, bool is_rewritten, int64 slot,
			 int64 floor_us, int64 now_us)
{
	SlotAdvance next = {SLOT_TAKE, {slot, true, false}};
	int64		floor = slot_floor(floor_us);

	if (slot_ms(slot) >= MS_LAST_GENERATED)
		next.verdict = SLOT_EXHAUSTED;
	else if (now_us < 0)
		next.verdict = SLOT_BEFORE_EPOCH;
	else if (slot_ms(slot) > now_us / 1000 + MS_AHEAD_SANE)
		next.verdict = SLOT_TOO_FAR_AHEAD;
	else if (slot_ms(floor) > now_us / 1000 + MS_AHEAD_SANE)
		next.verdict = SLOT_FLOOR_TOO_FAR;
	else if (slot > rules.max_slot)
		next.verdict = SLOT_OVER_MAXVALUE;

	if (state.is_id)
	{
		/*
		 * An id too far ahead is none that it has issued.  It gives way to
		 * one that the caller knows, which is not 0.
		 */
		if (slot_ms(state.last) <= now_us / 1000 + MS_AHEAD_SANE)
			next.state.last = Max(slot, state.last);
		else if (slot_ms(slot) == 0 && next.verdict == SLOT_TAKE)
			next.verdict = SLOT_SET_TOO_FAR;
		next.state.last = Min(Max(next.state.last, floor - 1), rules.max_slot);
	}
	else if (slot_is_named(state, rules, now_us))
		next.state.last = Max(slot, state.last - 1);
	else if (state.is_called)
	{
		next.state.last = Max(slot, state.last);
		if (!slot_is_forgotten(state, now_us) &&
			slot_ms(floor) - slot_ms(state.last) <= MS_AHEAD_SANE)
			next.state.last = Max(next.state.last, Min(floor - 1, rules.max_slot));
	}
	if (is_rewritten && (!state.is_called || state.last < SLOT_COUNTED) &&
		next.state.last < rules.max_slot - 1)
	{
		next.state.is_called = false;
		next.state.last += next.state.last + 1 == rules.start ? 2 : 1;
	}
	return next;
}

/*
 * What covers the slots up to "last", which is at a time, on a page with this
 * state and record?
 *
 * Replay of a later record of the page would set it back below what it issues
 * from now on.  So what covers them must be after that record, too, and not only
 * after the redo point: that may be an old one, in whose place a checkpoint has
 * already chosen another.
 */
static inline int
slot_cover(bool is_first, int64 last, int64 at, uint64 page_lsn, uint64 redo,
		   Logged reserved, Logged own)
{
	if (at < reserved.bound && reserved.lsn > Max(redo, page_lsn))
		return COVER_RESERVED | (is_first ? COVER_FIRST : 0);
	if (last <= own.bound && own.lsn == page_lsn && own.lsn > redo)
		return COVER_OWN;
	return COVER_NONE;
}

/*
 * Read the reservation's page.
 *
 * last_value is the reserved time, in milliseconds since 1970.  log_cnt is 0 in
 * the log's record, so it is 0 after setval() and a restore, too.  On the page in
 * use it holds, above the mark, the time from the floor to the reserved time, plus
 * one.  The mark differs from that of any page which this one may have been
 * copied from.
 *
 * Whoever finds a page that is not live takes its time for the floor: up to
 * there, slots may have been issued that no page shows.
 */
static inline Reservation
reservation_read(int64 last_value, int64 log_cnt, uint32 mark)
{
	Reservation page;
	int64		ms = Min(Max(last_value, 0), RESERVED_LAST_MS);

	page.reserved = (ms - UNIX_ZERO_MS) * 1000;
	page.is_live = (log_cnt >> MARK_BITS) > 0 &&
		(log_cnt & MARK_MASK) == (mark & MARK_MASK);
	page.floor = page.reserved;
	if (page.is_live)
		page.floor -= ((log_cnt >> MARK_BITS) - 1) * 1000;
	return page;
}

static inline int64
reservation_last_value(Reservation page)
{
	return page.reserved / 1000 + UNIX_ZERO_MS;
}

/* The log_cnt of a page in use.  A floor of 17 years ago moves up. */
static inline int64
reservation_log_cnt(Reservation page, uint32 mark)
{
	int64		ms = (page.reserved - page.floor) / 1000;

	return ((Min(ms, FLOOR_BACK_MAX_MS) + 1) << MARK_BITS) | (mark & MARK_MASK);
}

/* The begin of the millisecond of a time. */
static inline int64
begin_of_ms(int64 us)
{
	return us - (us % 1000 + 1000) % 1000;
}

/*
 * The time to reserve, so that slots of the time "last" can be issued.  If it is
 * not beyond that, they cannot: the sequence must go alone.
 *
 * It follows the clock, whatever is asked for.  Only who has waited for that
 * (may_push), alone in the database, moves it by the next millisecond.  So what is
 * reserved is never further ahead of a clock that is right, and comes back to it,
 * however many crashes, restarts and sequences ask for more.
 */
static inline int64
reservation_next(Reservation page, int64 last, int64 now, bool may_push)
{
	int64		next = Max(page.reserved, begin_of_ms(now) + RESERVE_US);

	if (may_push && last >= next && last < next + 1000)
		next = begin_of_ms(last) + 1000;
	return next;
}

#endif							/* SNOWID_SLOT_H */
