/*
 * The database's clock: up to which time the log has reserved slots, for all
 * sequences of the database, and the floor that a recovery has left.
 *
 * Its state is on the page of the sequence snowid_internal.reservation.  The log
 * always holds a time after every slot issued.  A session remembers what it has
 * seen there, so most calls don't read that page.
 *
 * Callers mark the page of their own sequence dirty, and read the redo point
 * then: a reservation counts only if its record is after that, and after the
 * last record of that page.
 */
#ifndef SNOWID_RESERVATION_H
#define SNOWID_RESERVATION_H

#include "access/xlogdefs.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "slot.h"

/* What the session knows of the clock. */
typedef struct SessionReservation
{
	Oid			relid;			/* InvalidOid: nothing is known */
	LocalTransactionId lxid;	/* transaction that holds the lock on it, and
								 * has seen it */
	TimestampTz reserved;		/* slots before it may be issued, ... */
	XLogRecPtr	lsn;			/* ... as this record has it */
	TimestampTz floor;			/* and none before this */
	TimestampTz check_from;		/* slots from here on: reserve more, or see
								 * what others have reserved */
} SessionReservation;

#pragma GCC visibility push(hidden)

extern SessionReservation session_reservation;

extern void reservation_open(void);
extern void reservation_forget(Oid relid);
extern bool reservation_move(TimestampTz last, TimestampTz now, XLogRecPtr after);
extern void reservation_move_early(TimestampTz last, TimestampTz now);
extern TimestampTz reservation_floor(void);
extern bool is_reservation(Oid relid);

#pragma GCC visibility pop

/* Make sure that the transaction holds the lock, and that the floor is known. */
static inline void
ensure_reservation(void)
{
	if (session_reservation.lxid != MY_LXID)
		reservation_open();
}

/* Does a record that ends after this point reserve slots of this time? */
static inline bool
reservation_covers(TimestampTz last, XLogRecPtr after)
{
	return last < session_reservation.reserved && session_reservation.lsn > after;
}

#endif							/* SNOWID_RESERVATION_H */
