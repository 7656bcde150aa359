/*
 * Unit test of the pure decisions in layout.h and slot.h over their edge
 * values: which slots are next, wait or not, log or not.  No server; prints
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

static const SlotRules one = {1, PG_INT64_MAX, 1, 1};

static SlotState
called(int64 last)
{
	SlotState	state = {last, 0, true};

	return state;
}

static SlotState
uncalled(int64 last)
{
	SlotState	state = {last, 0, false};

	return state;
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
	SlotRules	near = {1, PG_INT64_MAX, 1, NOW_SLOT + 5};

	ok(takes(slot_choose(uncalled(1), one, NOW_US, false), NOW_SLOT, NOW_SLOT),
	   "a new sequence starts from now");
	ok(takes(slot_choose(uncalled((INT64CONST(7) << 48) + 1), one, NOW_US, false), NOW_SLOT, NOW_SLOT),
	   "... whatever its START in the far future");
	ok(takes(slot_choose(uncalled(NOW_SLOT + 5), near, NOW_US, false), NOW_SLOT, NOW_SLOT),
	   "... or in the near future");
	ok(takes(slot_choose(uncalled(NOW_SLOT + 5), one, NOW_US, false), NOW_SLOT + 5, NOW_SLOT + 5),
	   "... but from what setval() names there");
	ok(takes(slot_choose(uncalled(NOW_SLOT), one, NOW_US, false), NOW_SLOT, NOW_SLOT),
	   "... or right now");
	ok(takes(slot_choose(called(3), one, NOW_US, false), NOW_SLOT, NOW_SLOT),
	   "an old counter starts from now");
	ok(takes(slot_choose(called(-5), one, NOW_US, false), NOW_SLOT, NOW_SLOT),
	   "a negative one too");
	ok(takes(slot_choose(called(NOW_SLOT - 1), one, NOW_US, false), NOW_SLOT, NOW_SLOT),
	   "the last slot of the last millisecond is followed by now");
	ok(takes(slot_choose(called(NOW_SLOT), one, NOW_US, false), NOW_SLOT + 1, NOW_SLOT + 1),
	   "the first slot of now is followed by the second");
	ok(takes(slot_choose(called(NOW_SLOT), one, NOW_US + 999, false), NOW_SLOT + 1, NOW_SLOT + 1),
	   "... until the millisecond's end");
	ok(takes(slot_choose(called(NOW_SLOT), one, NOW_US + 1000, false), NOW_SLOT + 1024, NOW_SLOT + 1024),
	   "... and not after it");
	ok(takes(slot_choose(called(NOW_SLOT + 1023), one, NOW_US, false), NOW_SLOT + 1024, NOW_SLOT + 1024),
	   "the 1025th of a millisecond is the first of the next");
	ok(takes(slot_choose(called(NOW_SLOT + 5), one, NOW_US - 3000, false), NOW_SLOT + 6, NOW_SLOT + 6),
	   "a clock set back does not set the slots back");
	ok(takes(slot_choose(uncalled(1), one, 0, false), 1, 1),
	   "slot 0 is never issued");
}

static void
test_choose_blocks(void)
{
	SlotRules	ten = {10, PG_INT64_MAX, 1, 1};
	SlotRules	all = {1024, PG_INT64_MAX, 1, 1};

	ok(takes(slot_choose(called(NOW_SLOT), ten, NOW_US, false), NOW_SLOT + 1, NOW_SLOT + 10),
	   "a block follows the last slot");
	ok(takes(slot_choose(called(NOW_SLOT + 1013), ten, NOW_US, false), NOW_SLOT + 1014, NOW_SLOT + 1023),
	   "a block may end with its millisecond");
	ok(takes(slot_choose(called(NOW_SLOT + 1014), ten, NOW_US, false), NOW_SLOT + 1024, NOW_SLOT + 1033),
	   "... and not cross it");
	ok(takes(slot_choose(called(NOW_SLOT - 1), all, NOW_US, false), NOW_SLOT, NOW_SLOT + 1023),
	   "a block of 1024 is a whole millisecond");
	ok(takes(slot_choose(called(NOW_SLOT), all, NOW_US, false), NOW_SLOT + 1024, NOW_SLOT + 2047),
	   "... always a whole one");
}

static void
test_choose_pacing(void)
{
	int64		limit = NOW_SLOT + MS_AHEAD_FREE * 1024;

	ok(takes(slot_choose(called(limit - 1), one, NOW_US, false), limit, limit),
	   "9 ms ahead of the clock is opened at once");
	ok(waits(slot_choose(called(limit + 1023), one, NOW_US, false), 1000),
	   "10 ms ahead waits for a millisecond");
	ok(waits(slot_choose(called(limit + 1023), one, NOW_US + 999, false), 1),
	   "... or until the clock is there");
	ok(takes(slot_choose(called(limit + 1023), one, NOW_US + 1000, false), limit + 1024, limit + 1024),
	   "... when it is opened at once");
	ok(takes(slot_choose(called(limit + 1023), one, NOW_US, true), limit + 1024, limit + 1024),
	   "whoever has waited opens it");
	ok(takes(slot_choose(called(limit + 1024), one, NOW_US, false), limit + 1025, limit + 1025),
	   "an open millisecond is used up without waiting");
	ok(waits(slot_choose(called(NOW_SLOT + 1023 + 3600 * INT64CONST(1024000)), one, NOW_US, false), 1000),
	   "an hour ahead waits no longer than a millisecond");
	ok(waits(slot_choose(uncalled(limit + 1024), one, NOW_US, false), 1000),
	   "what setval() names too far ahead waits, too");
}

static void
test_choose_cache(void)
{
	SlotRules	eight = {1, PG_INT64_MAX, 8, 1};
	SlotRules	huge = {1, PG_INT64_MAX, PG_INT64_MAX, 1};
	SlotRules	blocks = {100, PG_INT64_MAX, 64, 1};
	SlotRules	tight = {10, NOW_SLOT + 35, 64, 1};

	ok(takes(slot_choose(called(NOW_SLOT), eight, NOW_US, false), NOW_SLOT + 1, NOW_SLOT + 8),
	   "a cache of 8 takes 8 slots");
	ok(takes(slot_choose(called(NOW_SLOT + 1020), eight, NOW_US, false), NOW_SLOT + 1021, NOW_SLOT + 1023),
	   "... or what the millisecond has left");
	ok(takes(slot_choose(called(NOW_SLOT + 1023), huge, NOW_US, false), NOW_SLOT + 1024, NOW_SLOT + 2047),
	   "the largest cache takes a millisecond");
	ok(takes(slot_choose(called(NOW_SLOT - 1), blocks, NOW_US, false), NOW_SLOT, NOW_SLOT + 999),
	   "blocks are cached whole");
	ok(takes(slot_choose(called(NOW_SLOT), tight, NOW_US, false), NOW_SLOT + 1, NOW_SLOT + 30),
	   "... and within MAXVALUE");
}

static void
test_choose_refusals(void)
{
	int64		day = MS_AHEAD_SANE << 10;
	SlotRules	narrow = {1, PG_INT32_MAX, 1, 1};
	SlotRules	tight = {10, NOW_SLOT + 10, 1, 1};
	int64		end_us = MS_LAST_GENERATED * 1000;

	ok(slot_choose(uncalled(1), one, -1, false).verdict == SLOT_BEFORE_EPOCH,
	   "a clock before the epoch is refused");
	ok(slot_choose(called(NOW_SLOT + day + 1023), one, NOW_US, true).verdict == SLOT_TAKE,
	   "a day ahead is believed");
	ok(slot_choose(called(NOW_SLOT + day + 1024), one, NOW_US, true).verdict == SLOT_TOO_FAR_AHEAD,
	   "... more is not");
	ok(slot_choose(called(PG_INT64_MAX), one, NOW_US, true).verdict == SLOT_TOO_FAR_AHEAD,
	   "the largest bigint neither");
	ok(slot_choose(called(1), narrow, NOW_US, false).verdict == SLOT_OVER_MAXVALUE,
	   "an integer sequence is too narrow");
	ok(takes(slot_choose(called(NOW_SLOT), tight, NOW_US, false), NOW_SLOT + 1, NOW_SLOT + 10),
	   "a block may end with MAXVALUE");
	ok(slot_choose(called(NOW_SLOT + 1), tight, NOW_US, false).verdict == SLOT_OVER_MAXVALUE,
	   "... and not pass it");
	ok(takes(slot_choose(called(SLOT_LAST_GENERATED - 1), one, end_us, false), SLOT_LAST_GENERATED, SLOT_LAST_GENERATED),
	   "the layout's last slot is issued");
	ok(slot_to_id(SLOT_LAST_GENERATED, SHARD_MAX) == PG_INT64_MAX,
	   "... and is the largest bigint");
	ok(slot_choose(called(SLOT_LAST_GENERATED), one, end_us, true).verdict == SLOT_EXHAUSTED,
	   "... with none after it");
	ok(slot_choose(uncalled(1), one, end_us + 1000, false).verdict == SLOT_EXHAUSTED,
	   "nor when the clock is past it");
}

static void
test_forgotten(void)
{
	ok(slot_is_forgotten(uncalled(1), NOW_US), "a restarted sequence has forgotten");
	ok(slot_is_forgotten(called(2), NOW_US), "... also after plain nextval()");
	ok(!slot_is_forgotten(called(NOW_SLOT - 1), NOW_US), "one with a time has not");
}

static bool
logs(SlotCover cover, int64 logged_last, int64 log_cnt)
{
	return cover.must_log && cover.logged_last == logged_last &&
		cover.log_cnt == log_cnt;
}

static bool
is_covered(SlotCover cover, int64 log_cnt)
{
	return !cover.must_log && cover.log_cnt == log_cnt;
}

static void
test_cover(void)
{
	SlotState	state = {NOW_SLOT, 100, true};
	SlotState	huge = {NOW_SLOT, PG_INT64_MAX, true};
	SlotState	below = {-100, 50, true};
	SlotRules	ten = {10, PG_INT64_MAX, 1, 1};
	SlotRules	tight = {1, NOW_SLOT + 500, 1, 1};
	SlotRules	tight_ten = {10, NOW_SLOT + 505, 1, 1};

	ok(is_covered(slot_cover(state, one, NOW_SLOT + 1, false), 99),
	   "a covered slot is not logged");
	ok(is_covered(slot_cover(state, one, NOW_SLOT + 100, false), 0),
	   "nor is the last covered one");
	ok(logs(slot_cover(state, one, NOW_SLOT + 101, false),
			NOW_SLOT + 101 + SLOTS_LOGGED_AHEAD, SLOTS_LOGGED_AHEAD),
	   "the first one beyond logs a second ahead");
	ok(logs(slot_cover(state, one, NOW_SLOT + 1, true),
			NOW_SLOT + 1 + SLOTS_LOGGED_AHEAD, SLOTS_LOGGED_AHEAD),
	   "a redo point behind the last record logs again");
	ok(logs(slot_cover(uncalled(1), one, NOW_SLOT, false),
			NOW_SLOT + SLOTS_LOGGED_AHEAD, SLOTS_LOGGED_AHEAD),
	   "the first call of a sequence logs");
	state.is_called = false;
	ok(slot_cover(state, one, NOW_SLOT + 1, false).must_log,
	   "... whatever its log_cnt");
	state.is_called = true;
	ok(is_covered(slot_cover(state, ten, NOW_SLOT + 1000, false), 0),
	   "log_cnt counts increments, as in core");
	ok(is_covered(slot_cover(state, ten, NOW_SLOT + 10, false), 99),
	   "... exactly");
	ok(is_covered(slot_cover(state, ten, NOW_SLOT + 11, false), 98),
	   "... and never more than are left");
	ok(slot_cover(state, ten, NOW_SLOT + 1001, false).must_log,
	   "... nor a part of one");
	ok(!slot_cover(huge, ten, NOW_SLOT + 10, false).must_log,
	   "a huge log_cnt does not overflow");
	ok(slot_cover(below, one, NOW_SLOT, false).must_log,
	   "nor does a negative last_value");
	ok(logs(slot_cover(called(1), tight, NOW_SLOT, false), NOW_SLOT + 500, 500),
	   "what is logged does not pass MAXVALUE");
	ok(logs(slot_cover(called(1), tight_ten, NOW_SLOT, false), NOW_SLOT + 505, 50),
	   "... and the cover is what was logged");
	ok(logs(slot_cover(called(1), one, SLOT_LAST_GENERATED - 7, false), SLOT_LAST_GENERATED, 7),
	   "nor the layout's end");
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

int
main(void)
{
	test_choose_next();
	test_choose_blocks();
	test_choose_pacing();
	test_choose_cache();
	test_choose_refusals();
	test_forgotten();
	test_cover();
	test_citus_group();
	test_layout();
	printf("1..%d\n", tests);
	return failures == 0 ? 0 : 1;
}
