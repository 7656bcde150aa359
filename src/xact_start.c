/*
 * The start of a transaction, repaired where safe_upper_id() reads it; see
 * xact_start.h.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "xact_start.h"

TimestampTz lowest_clock;
static LocalTransactionId lowest_clock_lxid = InvalidLocalTransactionId;


/* The transaction has locked a sequence: remember its start for the checks. */
void
xact_start_watch(void)
{
	if (lowest_clock_lxid == MY_LXID)
		return;
	lowest_clock = GetCurrentTransactionStartTimestamp();
	lowest_clock_lxid = MY_LXID;
}

/*
 * The clock was set back since the transaction's start: lower the start that
 * others see.  (Without track_activities they see none.)
 */
void
xact_start_lower(TimestampTz now)
{
	lowest_clock = now;
	pgstat_report_xact_timestamp(now);
}

/*
 * Keep the start of a transaction that is being prepared: afterwards no view
 * shows it.
 *
 * It is kept in a lock, since a prepared transaction keeps its locks through
 * restarts and releases them at its end.  The lock is on a row that no
 * sequence has, so nobody else takes it; the row's number is the second of the
 * start.
 */
void
xact_start_keep(Oid seqid)
{
	ResourceOwner current = CurrentResourceOwner;
	LOCKTAG		tag;

	SET_LOCKTAG_TUPLE(tag, MyDatabaseId, seqid,
					  (uint32) (Max(lowest_clock, 0) / USECS_PER_SEC), ROW_OF_START);
	CurrentResourceOwner = TopTransactionResourceOwner;
	(void) LockAcquire(&tag, ShareLock, false, false);
	CurrentResourceOwner = current;
}

/* The start that xact_start_keep() has put into a lock; 0 without one. */
TimestampTz
xact_start_kept(const LockInstanceData *lock)
{
	return lock == NULL ? 0 : lock->locktag.locktag_field3 * USECS_PER_SEC;
}
