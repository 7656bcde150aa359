/*
 * The database's clock: up to which time the log has reserved slots, for all
 * sequences of the database, and the floor that a recovery has left.
 *
 * Its state is on the page of the sequence snowid_internal.clock.  The log
 * always holds a time after every slot issued.  A session remembers what it has
 * seen there, so most calls don't read that page.
 *
 * Callers mark the page of their own sequence dirty, and read the redo point
 * then: a reservation counts only if its record is after that, and after the
 * last record of that page.
 */
#ifndef SNOWID_CLOCK_H
#define SNOWID_CLOCK_H

#include "access/xlogdefs.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "slot.h"

/* What the session knows of the clock. */
typedef struct Clock
{
	Oid			relid;			/* InvalidOid: nothing is known */
	LocalTransactionId lxid;	/* transaction that holds the lock on it, and
								 * has seen it */
	TimestampTz reserved;		/* slots before it may be issued, ... */
	XLogRecPtr	lsn;			/* ... as this record has it */
	TimestampTz floor;			/* and none before this */
	TimestampTz check_from;		/* slots from here on: reserve more, or see
								 * what others have reserved */
} Clock;

#pragma GCC visibility push(hidden)

extern Clock database_clock;

extern void clock_open(void);
extern void clock_forget(Oid relid);
extern bool clock_move(TimestampTz last, TimestampTz now, XLogRecPtr after);
extern void clock_move_early(TimestampTz last, TimestampTz now);
extern TimestampTz clock_floor(void);
extern bool is_clock(Oid relid);

#pragma GCC visibility pop

/* Make sure that the transaction holds the lock, and that the floor is known. */
static inline void
ensure_clock(void)
{
	if (database_clock.lxid != MY_LXID)
		clock_open();
}

/* Does a record that ends after this point reserve slots of this time? */
static inline bool
clock_covers(TimestampTz last, XLogRecPtr after)
{
	return last < database_clock.reserved && database_clock.lsn > after;
}

#endif							/* SNOWID_CLOCK_H */
