/* The time of day; see clock.h. */
#include "postgres.h"

#include "clock.h"
#include "slot.h"

/* A tick may come so much too late. */
#define TICK_LATE_US	1000

ClockReading clock_reading = {.before = DT_NOEND};

/* Read the time; the coarse one first, so that no tick is missed. */
TimestampTz
clock_read(void)
{
#ifdef CLOCK_REALTIME_COARSE
	static int64 tick_us = -1;	/* 0: too long to be of use */
	struct timespec tick;

	if (unlikely(tick_us < 0))
		tick_us = clock_getres(CLOCK_REALTIME_COARSE, &tick) == 0 && tick.tv_sec == 0 &&
			tick.tv_nsec < MS_AHEAD_MAX * 1000 * 1000 / 2 ? tick.tv_nsec / 1000 : 0;
	(void) clock_gettime(CLOCK_REALTIME_COARSE, &clock_reading.coarse);
#endif
	clock_reading.at = GetCurrentTimestamp();
#ifdef CLOCK_REALTIME_COARSE
	clock_reading.before = tick_us > 0 ? clock_reading.at + tick_us + TICK_LATE_US : DT_NOEND;
#endif
	return clock_reading.at;
}
