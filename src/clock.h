/*
 * The time of day, and a cheap look whether it has come.
 *
 * Reading it costs a third of an id.  The kernel's coarse time costs an eighth of
 * that, and changes at each tick and whenever the clock is set (clock_gettime(2),
 * timekeeping_advance()).  So as long as it is what it was at the last reading, no
 * more than a tick has passed since.  Where a tick comes late, ids may fall behind
 * the clock, until their millisecond is used up.
 */
#ifndef SNOWID_CLOCK_H
#define SNOWID_CLOCK_H

#include <time.h>

#include "utils/timestamp.h"

typedef struct ClockReading
{
	TimestampTz at;
	TimestampTz before;			/* the time is, until a tick comes */
	struct timespec coarse;		/* changes with the tick */
} ClockReading;

/* The last one of this session. */
extern ClockReading clock_reading;

extern TimestampTz clock_read(void);

/* Has no tick come, and is the time before that, therefore?  If not, read it. */
static inline bool
clock_is_before(TimestampTz limit)
{
#ifdef CLOCK_REALTIME_COARSE
	struct timespec coarse;

	return clock_reading.before <= limit &&
		clock_gettime(CLOCK_REALTIME_COARSE, &coarse) == 0 &&
		coarse.tv_nsec == clock_reading.coarse.tv_nsec &&
		coarse.tv_sec == clock_reading.coarse.tv_sec;
#else
	return false;
#endif
}

#endif							/* SNOWID_CLOCK_H */
