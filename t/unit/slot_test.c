/*
 * Unit test of the pure decisions in layout.h and slot.h over their edge
 * values: which slots are next, wait or not, reserve or not.  No server; prints
 * TAP.
 */
#include "c.h"

#include <stdio.h>

#include "slot.h"

/* port.h has it come from a library that there is no need to link. */
#undef printf

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

#define NOW_MS		INT64CONST(480000000000)
#define NOW_US		(NOW_MS * 1000)
#define NOW_SLOT	(NOW_MS << 10)

static const SlotRules one = {1, PG_INT64_MAX, 1, 1, 0, 0};

static SlotState
called(int64 last)
{
	SlotState	state = {last, true, false};

	return state;
}

static SlotState
uncalled(int64 last)
{
	SlotState	state = {last, false, false};

	return state;
}

/* Without a floor. */
static SlotChoice
choose(SlotState state, SlotRules rules, int64 now_us, bool may_open)
{
	return slot_choose(state, rules, 0, now_us, may_open);
}

static bool
takes(SlotChoice choice, int64 first, int64 last)
{
	return choice.verdict == SLOT_TAKE &&
		choice.first == first && choice.last == last;
}

static bool
waits(SlotChoice choice, int64 us)
{
	return choice.verdict == SLOT_WAIT && choice.wait_us == us;
}

static void
test_choose_next(void)
{
	SlotRules	near = {1, PG_INT64_MAX, 1, NOW_SLOT + 5, 0, 0};

	ok(takes(choose(uncalled(1), one, NOW_US, false), NOW_SLOT, NOW_SLOT),
	   "a new sequence starts from now");
	ok(takes(choose(uncalled((INT64CONST(7) << 48) + 1), one, NOW_US, false), NOW_SLOT, NOW_SLOT),
	   "... whatever its START in the far future");
	ok(takes(choose(uncalled(NOW_SLOT + 5), near, NOW_US, false), NOW_SLOT, NOW_SLOT),
	   "... or in the near future");
	ok(takes(choose(uncalled(NOW_SLOT + 5), one, NOW_US, false), NOW_SLOT + 5, NOW_SLOT + 5),
	   "... but from what setval() names there");
	ok(takes(choose(uncalled(NOW_SLOT), one, NOW_US, false), NOW_SLOT, NOW_SLOT),
	   "... or right now");
	ok(takes(choose(called(3), one, NOW_US, false), NOW_SLOT, NOW_SLOT),
	   "an old counter starts from now");
	ok(takes(choose(called(-5), one, NOW_US, false), NOW_SLOT, NOW_SLOT),
	   "a negative one too");
	ok(takes(choose(called(NOW_SLOT - 1), one, NOW_US, false), NOW_SLOT, NOW_SLOT),
	   "the last slot of the last millisecond is followed by now");
	ok(takes(choose(called(NOW_SLOT), one, NOW_US, false), NOW_SLOT + 1, NOW_SLOT + 1),
	   "the first slot of now is followed by the second");
	ok(takes(choose(called(NOW_SLOT), one, NOW_US + 999, false), NOW_SLOT + 1, NOW_SLOT + 1),
	   "... until the millisecond's end");
	ok(takes(choose(called(NOW_SLOT), one, NOW_US + 1000, false), NOW_SLOT + 1024, NOW_SLOT + 1024),
	   "... and not after it");
	ok(takes(choose(called(NOW_SLOT + 1023), one, NOW_US, false), NOW_SLOT + 1024, NOW_SLOT + 1024),
	   "the 1025th of a millisecond is the first of the next");
	ok(takes(choose(called(NOW_SLOT + 5), one, NOW_US - 3000, false), NOW_SLOT + 6, NOW_SLOT + 6),
	   "a clock set back does not set the slots back");
	ok(takes(choose(uncalled(1), one, 0, false), 1, 1),
	   "slot 0 is never issued");
}

static void
test_choose_blocks(void)
{
	SlotRules	ten = {10, PG_INT64_MAX, 1, 1, 0, 0};
	SlotRules	all = {1024, PG_INT64_MAX, 1, 1, 0, 0};

	ok(takes(choose(called(NOW_SLOT), ten, NOW_US, false), NOW_SLOT + 1, NOW_SLOT + 10),
	   "a block follows the last slot");
	ok(takes(choose(called(NOW_SLOT + 1013), ten, NOW_US, false), NOW_SLOT + 1014, NOW_SLOT + 1023),
	   "a block may end with its millisecond");
	ok(takes(choose(called(NOW_SLOT + 1014), ten, NOW_US, false), NOW_SLOT + 1024, NOW_SLOT + 1033),
	   "... and not cross it");
	ok(takes(choose(called(NOW_SLOT - 1), all, NOW_US, false), NOW_SLOT, NOW_SLOT + 1023),
	   "a block of 1024 is a whole millisecond");
	ok(takes(choose(called(NOW_SLOT), all, NOW_US, false), NOW_SLOT + 1024, NOW_SLOT + 2047),
	   "... always a whole one");
}

static void
test_choose_pacing(void)
{
	int64		limit = NOW_SLOT + MS_AHEAD_FREE * 1024;

	ok(takes(choose(called(limit - 1), one, NOW_US, false), limit, limit),
	   "9 ms ahead of the clock is opened at once");
	ok(waits(choose(called(limit + 1023), one, NOW_US, false), 1000),
	   "10 ms ahead waits for a millisecond");
	ok(waits(choose(called(limit + 1023), one, NOW_US + 999, false), 1),
	   "... or until the clock is there");
	ok(takes(choose(called(limit + 1023), one, NOW_US + 1000, false), limit + 1024, limit + 1024),
	   "... when it is opened at once");
	ok(takes(choose(called(limit + 1023), one, NOW_US, true), limit + 1024, limit + 1024),
	   "whoever has waited opens it");
	ok(takes(choose(called(limit + 1024), one, NOW_US, false), limit + 1025, limit + 1025),
	   "an open millisecond is used up without waiting");
	ok(waits(choose(called(NOW_SLOT + 1023 + 3600 * INT64CONST(1024000)), one, NOW_US, false), 3000),
	   "an hour ahead waits no longer than three milliseconds");
	ok(waits(choose(uncalled(limit + 1024), one, NOW_US, false), 1000),
	   "what setval() names too far ahead waits, too");
}

static void
test_choose_cache(void)
{
	SlotRules	eight = {1, PG_INT64_MAX, 8, 1, 0, 0};
	SlotRules	huge = {1, PG_INT64_MAX, PG_INT64_MAX, 1, 0, 0};
	SlotRules	blocks = {100, PG_INT64_MAX, 64, 1, 0, 0};
	SlotRules	tight = {10, NOW_SLOT + 35, 64, 1, 0, 0};

	ok(takes(choose(called(NOW_SLOT), eight, NOW_US, false), NOW_SLOT + 1, NOW_SLOT + 8),
	   "a cache of 8 takes 8 slots");
	ok(takes(choose(called(NOW_SLOT + 1020), eight, NOW_US, false), NOW_SLOT + 1021, NOW_SLOT + 1023),
	   "... or what the millisecond has left");
	ok(takes(choose(called(NOW_SLOT + 1023), huge, NOW_US, false), NOW_SLOT + 1024, NOW_SLOT + 2047),
	   "the largest cache takes a millisecond");
	ok(takes(choose(called(NOW_SLOT - 1), blocks, NOW_US, false), NOW_SLOT, NOW_SLOT + 999),
	   "blocks are cached whole");
	ok(takes(choose(called(NOW_SLOT), tight, NOW_US, false), NOW_SLOT + 1, NOW_SLOT + 30),
	   "... and within MAXVALUE");
}

static void
test_choose_refusals(void)
{
	int64		day = MS_AHEAD_SANE << 10;
	SlotRules	from_now = {1, PG_INT64_MAX, 1, 1, NOW_SLOT, 0};
	SlotRules	from_next = {1, PG_INT64_MAX, 1, 1, NOW_SLOT + 1, 0};
	SlotRules	narrow = {1, PG_INT32_MAX, 1, 1, 0, 0};
	SlotRules	tight = {10, NOW_SLOT + 10, 1, 1, 0, 0};
	int64		end_us = MS_LAST_GENERATED * 1000;

	ok(choose(uncalled(1), one, -1, false).verdict == SLOT_BEFORE_EPOCH,
	   "a clock before the epoch is refused");
	ok(choose(called(NOW_SLOT + day + 1023), one, NOW_US, true).verdict == SLOT_TAKE,
	   "a day ahead is believed");
	ok(choose(called(NOW_SLOT + day + 1024), one, NOW_US, true).verdict == SLOT_TOO_FAR_AHEAD,
	   "... more is not");
	ok(choose(called(PG_INT64_MAX), one, NOW_US, true).verdict == SLOT_TOO_FAR_AHEAD,
	   "the largest bigint neither");
	ok(choose(called(1), narrow, NOW_US, false).verdict == SLOT_OVER_MAXVALUE,
	   "an integer sequence is too narrow");
	ok(takes(choose(called(NOW_SLOT), tight, NOW_US, false), NOW_SLOT + 1, NOW_SLOT + 10),
	   "a block may end with MAXVALUE");
	ok(choose(called(NOW_SLOT + 1), tight, NOW_US, false).verdict == SLOT_OVER_MAXVALUE,
	   "... and not pass it");
	ok(choose(called(NOW_SLOT - 1000), from_now, NOW_US, false).verdict == SLOT_TAKE &&
	   choose(called(NOW_SLOT - 1000), from_next, NOW_US, false).verdict == SLOT_UNDER_MINVALUE,
	   "a slot under MINVALUE is refused");
	ok(takes(choose(called(SLOT_LAST_GENERATED - 1), one, end_us, false), SLOT_LAST_GENERATED, SLOT_LAST_GENERATED),
	   "the layout's last slot is issued");
	ok(slot_to_id(SLOT_LAST_GENERATED, SHARD_MAX) == PG_INT64_MAX,
	   "... and is the largest bigint");
	ok(choose(called(SLOT_LAST_GENERATED), one, end_us, true).verdict == SLOT_EXHAUSTED,
	   "... with none after it");
	ok(choose(uncalled(1), one, end_us + 1000, false).verdict == SLOT_EXHAUSTED,
	   "nor when the clock is past it");
}

static void
test_follows(void)
{
	SlotRules	ten = {10, PG_INT64_MAX, 1, 1, 0, 0};

	ok(slot_follows(called(NOW_SLOT + 5), one, NOW_US),
	   "in a millisecond that the time is not past, a slot follows the last");
	ok(!slot_follows(called(NOW_SLOT + 5), one, NOW_US + 1),
	   "... but not once that has begun, perhaps");
	ok(!slot_follows(uncalled(NOW_SLOT + 5), one, NOW_US - 5000),
	   "... nor for a sequence that was not called");
	ok(slot_follows(called(NOW_SLOT + 1022), one, NOW_US),
	   "... to the last one");
	ok(!slot_follows(called(NOW_SLOT + 1023), one, NOW_US),
	   "... but not beyond its millisecond");
	ok(slot_follows(called(NOW_SLOT + 1013), ten, NOW_US) &&
	   !slot_follows(called(NOW_SLOT + 1014), ten, NOW_US),
	   "... nor does a block");
	ok(takes(choose(called(NOW_SLOT + 5), one, NOW_US - 5000, false), NOW_SLOT + 6, NOW_SLOT + 6) &&
	   takes(choose(called(NOW_SLOT + 5), one, NOW_US - 1, false), NOW_SLOT + 6, NOW_SLOT + 6),
	   "... whatever the time is before it");
}

static void
test_forgotten(void)
{
	ok(slot_is_forgotten(uncalled(1), NOW_US), "a restarted sequence has forgotten");
	ok(slot_is_forgotten(called(2), NOW_US), "... also after plain nextval()");
	ok(!slot_is_forgotten(called(NOW_SLOT - 1), NOW_US), "one with a time has not");
}

static void
test_floor(void)
{
	int64		day_us = MS_AHEAD_SANE * 1000;
	SlotState	known;

	ok(slot_floor(0) == 0 && slot_floor(-1) == 0 && slot_floor(PG_INT64_MIN) == 0,
	   "a floor before the epoch is none");
	ok(slot_floor(NOW_US) == NOW_SLOT, "a floor is the first slot at its time");
	ok(slot_floor(NOW_US + 1) == NOW_SLOT + 1024 && slot_floor(NOW_US + 1000) == NOW_SLOT + 1024,
	   "... or after it, since a slot has the time at which its millisecond began");
	ok(slot_ms(slot_floor(PG_INT64_MAX)) == MS_LAST_GENERATED + 1,
	   "the highest floor is above all slots");

	ok(takes(slot_choose(called(NOW_SLOT), one, NOW_US + 5000, NOW_US, false),
			 NOW_SLOT + 5 * 1024, NOW_SLOT + 5 * 1024),
	   "no slot is below the floor");
	ok(takes(slot_choose(uncalled(1), one, NOW_US + 5000, NOW_US, false),
			 NOW_SLOT + 5 * 1024, NOW_SLOT + 5 * 1024),
	   "... of a new sequence either");
	ok(takes(slot_choose(called(NOW_SLOT), one, NOW_US + 1, NOW_US + 999, false),
			 NOW_SLOT + 1024, NOW_SLOT + 1024),
	   "... also of one within this millisecond");
	ok(takes(slot_choose(called(NOW_SLOT + 5 * 1024), one, NOW_US + 5000, NOW_US, false),
			 NOW_SLOT + 5 * 1024 + 1, NOW_SLOT + 5 * 1024 + 1),
	   "above it, the last slot counts");
	ok(takes(slot_choose(called(NOW_SLOT), one, NOW_US - 5000, NOW_US, false),
			 NOW_SLOT + 1, NOW_SLOT + 1),
	   "a floor that is passed does not matter");
	ok(waits(slot_choose(called(NOW_SLOT), one, NOW_US + 1000000, NOW_US, false), 3000),
	   "the floor of a crash is opened slowly");
	ok(slot_choose(called(NOW_SLOT), one, NOW_US + day_us, NOW_US, true).verdict == SLOT_TAKE,
	   "a floor a day ahead is believed");
	ok(slot_choose(called(NOW_SLOT), one, NOW_US + day_us + 1, NOW_US, true).verdict == SLOT_FLOOR_TOO_FAR,
	   "... more is not");

	known = slot_known(called(NOW_SLOT), NOW_US + 1000, NOW_US);
	ok(known.last == NOW_SLOT + 1023, "what may have been issued is below the floor");
	known = slot_known(called(NOW_SLOT + 2000), NOW_US + 1000, NOW_US);
	ok(known.last == NOW_SLOT + 2000, "... or what the page has");
	known = slot_known(called(33), NOW_US + 1000, NOW_US);
	ok(known.last == 33, "a plain counter has issued no slots");
	known = slot_known(uncalled(1), NOW_US + 1000, NOW_US);
	ok(known.last == 1 && !known.is_called, "nor has who was never called");
}

static void
test_alone(void)
{
	SlotRules	tight = {10, NOW_SLOT + 505, 1, 1, 0, 0};

	ok(slot_ahead(one, NOW_SLOT) == NOW_SLOT + SLOTS_LOGGED_AHEAD,
	   "who goes alone logs a second ahead");
	ok(slot_ahead(tight, NOW_SLOT) == NOW_SLOT + 505, "... not beyond MAXVALUE");
	ok(slot_ahead(one, SLOT_LAST_GENERATED - 7) == SLOT_LAST_GENERATED,
	   "... nor the layout's end");

	ok(forgotten_until(NOW_US + 11001, NOW_US) == NOW_US + 11001,
	   "a restart may have forgotten all that was reserved");
	ok(forgotten_until(NOW_US - 1, NOW_US) == NOW_US + 11000,
	   "... and what nothing covered, ahead of the clock");
}

/* Where advance() leads, with a floor, and no MAXVALUE. */
static SlotAdvance
advance(SlotState state, bool is_rewritten, int64 slot, int64 floor_us)
{
	return slot_advance(state, one, is_rewritten, slot, floor_us, NOW_US);
}

static bool
leads(SlotAdvance next, int64 last, bool is_called)
{
	return next.verdict == SLOT_TAKE && next.state.last == last &&
		next.state.is_called == is_called;
}

static void
test_advance(void)
{
	int64		day = MS_AHEAD_SANE << 10;
	int64		day_us = MS_AHEAD_SANE * 1000;
	int64		old = NOW_SLOT - 5 * day;
	SlotRules	narrow = {1, NOW_SLOT + 1000, 1, 1, 0, 0};
	SlotRules	begins = {1, PG_INT64_MAX, 1, 1024, 0, 0};

	ok(leads(advance(called(NOW_SLOT), false, NOW_SLOT + 7, 0), NOW_SLOT + 7, true),
	   "advance() goes to the slot");
	ok(leads(advance(called(NOW_SLOT), false, 1023, 0), NOW_SLOT, true), "... never back");
	ok(leads(advance(uncalled(1), false, 1023, 0), 1023, true), "... from a START");
	ok(leads(advance(uncalled(NOW_SLOT + 5), false, 1023, 0), NOW_SLOT + 4, true),
	   "... and keeps the slot that setval() has named");
	ok(leads(advance(called(33), false, 1023, NOW_US), 1023, true), "a plain counter stays one");
	ok(leads(advance(called(NOW_SLOT), false, 1023, NOW_US + 1000), NOW_SLOT + 1023, true),
	   "it writes what is below the floor");
	ok(leads(advance(called(NOW_SLOT - day + 1024), false, 1023, NOW_US + 1000), NOW_SLOT + 1023, true),
	   "... if the page can be behind");
	ok(leads(advance(called(old), false, 1023, NOW_US + 1000), old, true),
	   "... and not for an id of another epoch");
	ok(leads(slot_advance(called(NOW_SLOT), narrow, false, 1023, NOW_US + 5000, NOW_US), NOW_SLOT + 1000, true),
	   "... nor beyond MAXVALUE");

	ok(leads(advance(uncalled(1), true, 1023, 0), 1024, false) &&
	   leads(advance(called(7), true, 1023, 0), 1024, false),
	   "a restarted sequence stays one");
	ok(slot_is_forgotten(advance(uncalled(1), true, NOW_SLOT, 0).state, NOW_US),
	   "... which next_id() starts above what it has forgotten");
	ok(leads(advance(uncalled(NOW_SLOT + 5), true, 1023, 0), NOW_SLOT + 5, false),
	   "... and which keeps the slot that is named");
	ok(leads(slot_advance(uncalled(1), begins, true, 1023, 0, NOW_US), 1025, false),
	   "... and is not taken for its START");
	ok(leads(advance(called(old), true, 1023, 0), old, true),
	   "one that has made ids since is none");

	ok(advance(called(NOW_SLOT), false, MS_LAST_GENERATED << 10, 0).verdict == SLOT_EXHAUSTED,
	   "the last millisecond is refused, since none is after it");
	ok(slot_advance(called(NOW_SLOT), one, false, 0, 0, -1).verdict == SLOT_BEFORE_EPOCH,
	   "a clock before the epoch is refused");
	ok(advance(called(NOW_SLOT), false, NOW_SLOT + day + 1023, 0).verdict == SLOT_TAKE &&
	   advance(called(NOW_SLOT), false, NOW_SLOT + day + 1024, 0).verdict == SLOT_TOO_FAR_AHEAD,
	   "more than a day ahead is refused");
	ok(advance(called(NOW_SLOT), false, 0, NOW_US + day_us).verdict == SLOT_TAKE &&
	   advance(called(NOW_SLOT), false, 0, NOW_US + day_us + 1).verdict == SLOT_FLOOR_TOO_FAR,
	   "... of a floor, too");
	ok(slot_advance(called(NOW_SLOT), narrow, false, NOW_SLOT + 1001, 0, NOW_US).verdict == SLOT_OVER_MAXVALUE,
	   "a slot above MAXVALUE is refused");
}

static void
test_cover(void)
{
	Logged		reserved = {NOW_US, 50};
	Logged		own = {NOW_SLOT, 60};

	ok(slot_cover(false, NOW_SLOT, NOW_US - 1, 40, 49, reserved, own) == COVER_RESERVED,
	   "below what is reserved, a slot is covered");
	ok(slot_cover(true, NOW_SLOT, NOW_US - 1, 40, 49, reserved, own) == (COVER_RESERVED | COVER_FIRST),
	   "... and the first one is logged");
	ok(slot_cover(false, NOW_SLOT, NOW_US, 40, 49, reserved, own) == COVER_NONE,
	   "at what is reserved, it is not");
	ok(slot_cover(false, NOW_SLOT, NOW_US - 1, 40, 50, reserved, own) == COVER_NONE,
	   "... nor by a record before the redo point");
	ok(slot_cover(false, NOW_SLOT, NOW_US - 1, 50, 40, reserved, own) == COVER_NONE,
	   "... or before the page's last record");
	ok(slot_cover(false, NOW_SLOT, NOW_US, 60, 59, reserved, own) == COVER_OWN,
	   "alone, it is covered by the session's record");
	ok(slot_cover(false, NOW_SLOT + 1, NOW_US, 60, 59, reserved, own) == COVER_NONE,
	   "... up to there");
	ok(slot_cover(false, NOW_SLOT, NOW_US, 60, 60, reserved, own) == COVER_NONE,
	   "... if the redo point has not passed it");
	ok(slot_cover(false, NOW_SLOT, NOW_US, 61, 59, reserved, own) == COVER_NONE,
	   "... and nobody else has logged the page");
}

/* A page in use: milliseconds of reserved time and floor. */
static Reservation
page_of(int64 reserved, int64 floor)
{
	Reservation page = {reserved * 1000, floor * 1000, true};

	return page;
}

static bool
survives(Reservation page, uint32 mark)
{
	Reservation read = reservation_read(reservation_last_value(page),
										reservation_log_cnt(page, mark), mark);

	return read.is_live && read.reserved == page.reserved && read.floor == page.floor;
}

static void
test_reservation_page(void)
{
	Reservation page = page_of(1000, 900);
	Reservation read;

	ok(survives(page, 7) && survives(page_of(1000, 1000), 7) && survives(page, 0) &&
	   survives(page, PG_UINT32_MAX) && survives(page_of(-5, -7), 7),
	   "what is written is read");
	ok(survives(page_of(FLOOR_BACK_MAX_MS, 0), PG_UINT32_MAX),
	   "... also if the floor is 17 years back");
	ok(reservation_last_value(page) == UNIX_ZERO_MS + 1000, "last_value is the time, from 1970");
	read = reservation_read(UNIX_ZERO_MS + 1000, 0, 0);
	ok(!read.is_live && read.floor == read.reserved && read.reserved == US_PER_S,
	   "after a recovery, the floor is what was reserved");
	read = reservation_read(UNIX_ZERO_MS + 1000, reservation_log_cnt(page, 7), 8);
	ok(!read.is_live && read.floor == read.reserved, "... and in a copy");
	read = reservation_read(UNIX_ZERO_MS + 1000, 7, 7);
	ok(!read.is_live && read.floor == read.reserved, "a mark alone says nothing");
	read = reservation_read(UNIX_ZERO_MS + 1000, -1, PG_UINT32_MAX);
	ok(!read.is_live, "nor does a negative number");
	page.floor = page.reserved - (FLOOR_BACK_MAX_MS + 5) * 1000;
	read = reservation_read(UNIX_ZERO_MS + 1000, reservation_log_cnt(page, 7), 7);
	ok(read.is_live && read.floor == page.floor + 5000, "a floor of long ago moves up");
	ok(reservation_read(PG_INT64_MAX, 0, 0).reserved == (RESERVED_LAST_MS - UNIX_ZERO_MS) * 1000 &&
	   reservation_read(-1, 0, 0).reserved == -UNIX_ZERO_MS * 1000,
	   "what setval() may leave does not overflow");
}

static void
test_reserve(void)
{
	Reservation page = page_of(5000, 900);
	int64		back = -3600 * US_PER_S;
	int64		w = 5000 * 1000;
	int64		lead = 0;

	ok(reservation_next(page, w, w, false) == w + RESERVE_US &&
	   reservation_next(page, w, w + 999, false) == w + RESERVE_US,
	   "two seconds beyond the clock are reserved, in whole milliseconds");
	ok(reservation_next(page_of(-9000, -9000), -3 * US_PER_S - 1, -3 * US_PER_S - 1, false) == -US_PER_S - 1000,
	   "... also before 2000");
	ok(reservation_next(page, 0, back, false) == w && reservation_next(page, 0, back, true) == w,
	   "never less than before");
	ok(reservation_next(page, w, back, false) == w,
	   "no more than the clock allows");
	ok(reservation_next(page, w, back, true) == w + 1000 &&
	   reservation_next(page, w + 999, back, true) == w + 1000,
	   "... but the next millisecond, for who has waited");
	ok(reservation_next(page, w + 1000, back, true) == w,
	   "... and no other: who is further ahead drags nobody along");

	/* Crashes 40 ms apart: each begins at the floor. */
	page = page_of(0, 0);
	for (int64 now = 0; now < 20 * US_PER_S; now += 40000)
	{
		page.reserved = reservation_next(page, page.reserved, now, true);
		lead = Max(lead, page.reserved - now);
	}
	ok(lead <= RESERVE_US, "no crash adds to the lead");

	/* Restarts, each after the wait for one millisecond. */
	for (int64 now = 20 * US_PER_S; now < 40 * US_PER_S; now += 3000)
	{
		page.reserved = reservation_next(page, page.reserved, now, true);
		lead = Max(lead, page.reserved - now);
	}
	ok(lead <= RESERVE_US, "nor does a restart");
}

static void
test_layout(void)
{
	ok(id_ms(-1) == MS_MAX && id_shard(-1) == SHARD_MAX && id_seq(-1) == SEQ_MAX,
	   "all bits are read as unsigned");
	ok(id_pack(MS_MAX, SHARD_MAX, SEQ_MAX) == -1, "... and written so");
	ok(id_pack(MS_LAST_GENERATED + 1, 0, 0) == PG_INT64_MIN,
	   "the millisecond after the last one has the sign bit");
	ok(slot_ms(-1) == -1, "a negative slot is before the epoch");
	ok(slot_to_id(slot_pack(NOW_MS, 77), 5) == id_pack(NOW_MS, 5, 77),
	   "a slot and a shard make an id");
}

/* A worker's copy of a sequence, as AlterSequenceMinMax() of Citus makes it. */
static void
test_citus_group(void)
{
	int64		first = (INT64CONST(1) << 48) + 1;

	ok(slot_citus_group(first, first) == 1, "the range of group 1");
	ok(slot_citus_group(2 * first - 1, 2 * first - 1) == 2, "... of group 2");
	ok(slot_citus_group((INT64CONST(32767) << 48) + 1, (INT64CONST(32767) << 48) + 1) == 32767,
	   "... of the last group");
	ok(slot_citus_group(1, 1) == 0, "a plain sequence has no group");
	ok(slot_citus_group(first - 1, first - 1) == 0, "nor has one from another number");
	ok(slot_citus_group(first + 1, first + 1) == 0, "... or the next");
	ok(slot_citus_group(first, 1) == 0, "nor one that only starts there");
	ok(slot_citus_group(1, first) == 0, "nor one that only ends there");
	ok(slot_citus_group(-(INT64CONST(1) << 48) + 1, -(INT64CONST(1) << 48) + 1) == 0,
	   "nor one below 0");
}

static void
test_set_to_id(void)
{
	int64		id = id_pack(NOW_MS - 5000, 7, 3);
	int64		slot = slot_pack(NOW_MS - 5000, SEQ_MAX);
	int64		day = MS_AHEAD_SANE;
	int64		far = id_pack(NOW_MS + day + 1, 0, 0);
	int64		highest = SLOT_LAST_GENERATED;
	SlotState	state = slot_state(id, true, 1);
	SlotRules	narrow = {1, NOW_SLOT + 1000, 1, 1, 0, 0};

	ok(state.last == slot && state.is_called && state.is_id,
	   "an id is read as the last slot of its millisecond");
	state = slot_state(id, false, 1);
	ok(state.last == slot && state.is_called && state.is_id, "... uncalled, too");
	ok(!slot_state(id, false, id).is_called && !slot_state(id, false, id).is_id,
	   "... but not as a START");
	ok(slot_state(id, true, id).is_id, "... which was called");
	ok(slot_state(highest, true, 1).last == highest && !slot_state(highest, true, 1).is_id,
	   "the last slot is one");
	ok(slot_state(highest + 1, true, 1).last == ((INT64CONST(1) << 27 << 10) | SEQ_MAX),
	   "... and the next number an id of the 38th hour");
	ok(slot_state(PG_INT64_MAX, true, 1).last == highest, "the largest id has the last slot");
	ok(slot_state(-5, true, 1).last == -5 && !slot_state(0, false, 1).is_id, "a small number is none");

	/* As a slot, an id of the first hours goes on above itself. */
	for (int64 ms = 0; ms < (INT64CONST(1) << 27); ms = ms * 3 + 1)
	{
		int64		early = id_pack(ms, SHARD_MAX, SEQ_MAX);
		SlotChoice	choice = choose(slot_state(early, true, 1), one, NOW_US, true);

		if (choice.verdict != SLOT_TOO_FAR_AHEAD &&
			!(choice.verdict == SLOT_TAKE && slot_to_id(choice.first, 0) > early &&
			  slot_ms(choice.first) <= NOW_MS + day + 1))
			ok(false, "an early id goes on above itself, and at most a day ahead");
	}
	ok(true, "an early id goes on above itself, and at most a day ahead");

	state = slot_state(id, true, 1);
	ok(takes(choose(state, one, NOW_US, false), NOW_SLOT, NOW_SLOT), "an older id goes on from now");
	ok(slot_is_forgotten(state, NOW_US), "... above what may have been issued since");
	state = slot_state(id_pack(NOW_MS + day, 7, 3), true, 1);
	ok(takes(choose(state, one, NOW_US, true), slot_pack(NOW_MS + day + 1, 0), slot_pack(NOW_MS + day + 1, 0)),
	   "one that is a day ahead from there");
	state = slot_state(far, true, 1);
	ok(choose(state, one, NOW_US, true).verdict == SLOT_SET_TOO_FAR &&
	   choose(state, one, NOW_US, true).first == state.last, "one that is further ahead is refused");
	ok(slot_known(slot_state(id, true, 1), NOW_US + 1000, NOW_US).last == NOW_SLOT + 1023 &&
	   slot_known(slot_state(id, true, 1), 0, NOW_US).last == slot, "who reads it takes the floor");

	ok(leads(slot_advance(slot_state(id, true, 1), one, false, 1023, NOW_US + 5000, NOW_US), slot_pack(NOW_MS + 5, 0) - 1, true),
	   "advance() makes it a slot, above what may have been issued since");
	ok(leads(slot_advance(slot_state(id, true, 1), one, true, 1023, 0, NOW_US), slot, true), "... and the id");
	ok(leads(slot_advance(slot_state(id, true, 1), one, false, NOW_SLOT, 0, NOW_US), NOW_SLOT, true), "... and the given one");
	ok(leads(slot_advance(slot_state(id, true, 1), narrow, false, 1023, NOW_US + 5000, NOW_US), NOW_SLOT + 1000, true),
	   "... but not beyond MAXVALUE");
	ok(leads(slot_advance(slot_state(far, true, 1), one, false, NOW_SLOT, 0, NOW_US), NOW_SLOT, true),
	   "an id too far ahead gives way to one that is known");
	ok(slot_advance(slot_state(far, true, 1), one, false, 1023, 0, NOW_US).verdict == SLOT_SET_TOO_FAR,
	   "... and not to none");
}

static void
test_other_epoch(void)
{
	int64		day = MS_AHEAD_SANE;
	SlotRules	early = {1, PG_INT64_MAX, 1, 1, 0, 10 * MS_AHEAD_SANE};
	SlotRules	near = {1, PG_INT64_MAX, 1, 1, 0, MS_AHEAD_SANE};

	ok(choose(called(slot_pack(NOW_MS - 9 * day, 0)), early, NOW_US, false).verdict == SLOT_OTHER_EPOCH,
	   "ids of the default epoch do not go on as those of one ten days earlier");
	ok(takes(choose(called(slot_pack(NOW_MS - 9 * day + 1, 0)), early, NOW_US, false), NOW_SLOT, NOW_SLOT),
	   "... unless they are a day ahead already");
	ok(takes(choose(called(SLOT_COUNTED - 1), early, NOW_US, false), NOW_SLOT, NOW_SLOT) &&
	   choose(called(SLOT_COUNTED), early, NOW_US, false).verdict == SLOT_OTHER_EPOCH,
	   "... or a plain counter's numbers");
	ok(takes(choose(uncalled(NOW_SLOT - (20 * day << 10)), early, NOW_US, false), NOW_SLOT, NOW_SLOT),
	   "... or were never called");
	ok(takes(choose(called(slot_pack(NOW_MS - 9 * day, 0)), near, NOW_US, false), NOW_SLOT, NOW_SLOT),
	   "an epoch that is a day earlier makes no difference");
}

int
main(void)
{
	test_choose_next();
	test_choose_blocks();
	test_choose_pacing();
	test_choose_cache();
	test_choose_refusals();
	test_follows();
	test_forgotten();
	test_floor();
	test_alone();
	test_advance();
	test_set_to_id();
	test_other_epoch();
	test_cover();
	test_reservation_page();
	test_reserve();
	test_citus_group();
	test_layout();
	printf("1..%d\n", tests);
	return failures == 0 ? 0 : 1;
}
