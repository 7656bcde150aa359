/*
 * The reservation: up to which time the log has reserved slots, for all
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
#include "seq_page.h"
#include "slot.h"

/* What the session knows; nobody else reads or writes it. */
typedef struct SessionReservation
{
	Oid			relid;			/* InvalidOid: nothing is known */
	LocalTransactionId lxid;	/* transaction that holds the lock on it, and
								 * has seen it */
	Logged		reserved;		/* slots before it may be issued, ... */
	TimestampTz floor;			/* ... and none before this */
	TimestampTz check_from;		/* slots from here on: reserve more, or see
								 * what others have reserved */
} SessionReservation;

typedef enum Reserve
{
	RESERVE_NOW,				/* for slots that are about to be taken */
	RESERVE_PUSH,				/* ... by who has take_push() */
	RESERVE_EARLY				/* before the last ones are used */
} Reserve;

extern SessionReservation session_reservation;

extern void reservation_open(void);
extern void reservation_forget(Oid relid);
extern void reserve(TimestampTz last, TimestampTz now, XLogRecPtr after, Reserve how);
extern Reservation reservation_see(void);
extern void refuse_reservation(Oid relid);
extern void take_push(Right *right, TimestampTz last, TimestampTz now);

/*
 * The time below which no slot is issued.  The transaction then holds the lock.
 */
static inline TimestampTz
reserved_floor(void)
{
	if (session_reservation.lxid != MY_LXID)
		reservation_open();
	return session_reservation.floor;
}

/* What is reserved, and by which record; after reserved_floor(). */
static inline Logged
reserved(void)
{
	return session_reservation.reserved;
}

/* Is it time to reserve more, before the last slots are used? */
static inline bool
is_reserved_short(TimestampTz last)
{
	return last >= session_reservation.check_from;
}

#endif							/* SNOWID_RESERVATION_H */
