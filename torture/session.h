/*
 * What the processes of the torture's clients have in common.
 */
#ifndef TORTURE_SESSION_H
#define TORTURE_SESSION_H

#include <stdint.h>
#include <time.h>

static uint64_t random_state;	/* never 0 */

/* xorshift64 (Marsaglia, "Xorshift RNGs", 2003) */
static inline uint32_t
random_below(uint32_t limit)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (random_state >> 32) % limit;
}

static inline int64_t
monotonic_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

#endif							/* TORTURE_SESSION_H */
