/*
 * A lower bound of the times at which a transaction takes slots, where other
 * sessions can read it.
 *
 * That bound is the transaction's start, which PostgreSQL shows to all, unless
 * the clock is set back in the transaction or the transaction is prepared.
 * Both cases are repaired here, before they can mislead safe_upper_id().
 */
#ifndef SNOWID_XACT_START_H
#define SNOWID_XACT_START_H

#include "storage/lock.h"
#include "utils/timestamp.h"

/*
 * Rows that no sequence has, for locks in the lock manager: the start of a
 * prepared transaction, whose page is a time, and a right (seq_page.h).
 */
#define ROW_OF_START		1
#define ROW_OF_RIGHT		2

/* The lowest that the clock has shown this transaction, its start included. */
extern TimestampTz lowest_clock;

extern void xact_start_watch(void);
extern void xact_start_lower(TimestampTz now);
extern void xact_start_keep(Oid seqid);
extern TimestampTz xact_start_kept(const LockInstanceData *lock);

/* Call it with the clock's reading, before a slot is taken that it bounds. */
static inline void
xact_start_check(TimestampTz now)
{
	if (unlikely(now < lowest_clock))
		xact_start_lower(now);
}

#endif							/* SNOWID_XACT_START_H */
