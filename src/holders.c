/*
 * Who may still commit an id of a sequence: safe_upper_id().
 *
 * The bound that it returns is below every id that a running transaction has
 * taken from the sequence, or will ever take.  So once it has returned, all
 * rows with smaller ids are of transactions that have ended, and the next
 * snapshot shows those that will ever be seen.  That rests on four facts:
 *
 * 1. next_id() locks the sequence before it takes its first slot, and the lock
 *	  is released only after the transaction's end is visible to others.
 *	  Savepoints don't release it, PREPARE TRANSACTION hands it on.
 * 2. We first take a slot ourselves, and then look who holds the lock.  Who
 *	  takes a slot after us gets a larger one, whatever the clock does; who
 *	  took one before us holds the lock when we look, or has ended.  In the
 *	  other order, one could lock and take a slot in between.
 * 3. A slot is never older than the clock's reading that it was taken with,
 *	  and that is not before the start of the transaction, as the others see
 *	  it: should the clock have been set back since, note_clock() corrects the
 *	  start that they see before the slot is taken.
 * 4. What can't be known counts as the worst.  A holder without a known start
 *	  makes the bound 0.
 *
 * That a slot is taken is also why an idle sequence's last row gets below the
 * bound at all: the next id could else have the same millisecond.
 *
 * It shows the caller nothing of other sessions but the start of the oldest
 * transaction among the holders.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "common/int.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "snowid.h"

PG_FUNCTION_INFO_V1(snowid_safe_upper_id);

/* The lowest that the clock has shown this transaction, its start included. */
TimestampTz lowest_clock;
static LocalTransactionId lowest_clock_lxid = InvalidLocalTransactionId;

static int64 oldest_id(TimestampTz at, TimestampTz epoch);
static LockData *sequence_locks(Oid seqid);
static const LockInstanceData *find_lock(const LockData *locks, uint8 type,
										 const LockInstanceData *holder);
static TimestampTz running_since(int pid);
static TimestampTz prepared_since(const LockInstanceData *left);


/* safe_upper_id(seq regclass [, epoch timestamptz]) → bigint */
Datum
snowid_safe_upper_id(PG_FUNCTION_ARGS)
{
	Oid			seqid = PG_GETARG_OID(0);
	TimestampTz epoch = epoch_argument(fcinfo, 1);
	int64		bound;
	LockData   *before;
	LockData   *after;

	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot execute safe_upper_id() during recovery"),
				 errdetail("A standby does not know which transactions are running on its primary."),
				 errhint("Call it on the primary, then pg_current_wal_insert_lsn(); read here when pg_last_wal_replay_lsn() has got there.")));
	PreventCommandIfReadOnly("safe_upper_id()");
	PreventCommandIfParallelMode("safe_upper_id()");

	/* Its snapshot is older than the bound: it would not see all rows. */
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				 errmsg("cannot execute safe_upper_id() in a REPEATABLE READ or SERIALIZABLE transaction"),
				 errdetail("All its statements see the rows of its first one, which is before the bound."),
				 errhint("Type: BEGIN ISOLATION LEVEL READ COMMITTED;")));

	bound = slot_to_id(sequence_next_slot(seqid, epoch, &fcinfo->flinfo->fn_extra), 0);

	before = sequence_locks(seqid);
	if (before->nelements == 0)
		PG_RETURN_INT64(bound);

	/*
	 * Starts are read between two looks at the locks.  A session's start is
	 * that of the holder only if it was in that transaction all the time;
	 * else it has ended, has come after our slot, or has been prepared since.
	 */
	pgstat_clear_snapshot();
	(void) pgstat_fetch_stat_numbackends();
	after = sequence_locks(seqid);

	for (int i = 0; i < after->nelements; i++)
	{
		LockInstanceData *holder = &after->locks[i];
		TimestampTz since;

		if (holder->locktag.locktag_type != LOCKTAG_RELATION)
			continue;
		if (holder->pid == 0)
			since = prepared_since(find_lock(after, LOCKTAG_TUPLE, holder));
		else if (find_lock(before, LOCKTAG_RELATION, holder) != NULL)
			since = running_since(holder->pid);
		else
			continue;

		bound = Min(bound, since == 0 ? 0 : oldest_id(since, epoch));
	}
	PG_RETURN_INT64(bound);
}

/* The smallest id of the millisecond that a time is in. */
static int64
oldest_id(TimestampTz at, TimestampTz epoch)
{
	int64		us;

	if (pg_sub_s64_overflow(at, epoch, &us) || us < 0)
		return 0;
	return id_pack(Min(us / 1000, MS_LAST_GENERATED), 0, 0);
}

/* The transaction has locked a sequence: note_clock() needs its start. */
void
watch_clock(void)
{
	if (lowest_clock_lxid == MY_LXID)
		return;
	lowest_clock = GetCurrentTransactionStartTimestamp();
	lowest_clock_lxid = MY_LXID;
}

/*
 * The clock was set back since the transaction's start: correct that where the
 * others see it.  (Without track_activities they see none.)
 */
void
clock_went_back(TimestampTz now)
{
	lowest_clock = now;
	pgstat_report_xact_timestamp(now);
}

/*
 * Leave word of this transaction's start before it is prepared: nobody could
 * tell it afterwards.
 *
 * It is a lock that nobody else ever takes, on a row that no sequence has; its
 * number is the second of the start.  A lock survives all that the prepared
 * transaction survives, and goes with it.
 */
void
leave_start(Oid seqid)
{
	ResourceOwner current = CurrentResourceOwner;
	LOCKTAG		tag;

	SET_LOCKTAG_TUPLE(tag, MyDatabaseId, seqid,
					  (uint32) (Max(lowest_clock, 0) / USECS_PER_SEC), 1);
	CurrentResourceOwner = TopTransactionResourceOwner;
	(void) LockAcquire(&tag, ShareLock, false, false);
	CurrentResourceOwner = current;
}

/*
 * The locks of a sequence that other transactions hold: on itself in the mode
 * of next_id(), and those of leave_start().
 *
 * A lock of a transaction that has ended, but not released it yet, has no
 * transaction's number any more.
 */
static LockData *
sequence_locks(Oid seqid)
{
	LockData   *locks = GetLockStatusData();
	int			n = 0;

	for (int i = 0; i < locks->nelements; i++)
	{
		LockInstanceData *lock = &locks->locks[i];

		if (lock->locktag.locktag_field1 != MyDatabaseId ||
			lock->locktag.locktag_field2 != seqid ||
			lock->pid == MyProcPid ||
			!LocalTransactionIdIsValid(LOCK_LXID(lock)))
			continue;
		if ((lock->locktag.locktag_type == LOCKTAG_RELATION &&
			 (lock->holdMask & LOCKBIT_ON(RowExclusiveLock)) != 0) ||
			(lock->locktag.locktag_type == LOCKTAG_TUPLE &&
			 (lock->holdMask & LOCKBIT_ON(ShareLock)) != 0))
			locks->locks[n++] = *lock;
	}
	locks->nelements = n;
	return locks;
}

/* Find a lock of the type that the same transaction holds; NULL if none. */
static const LockInstanceData *
find_lock(const LockData *locks, uint8 type, const LockInstanceData *holder)
{
	for (int i = 0; i < locks->nelements; i++)
	{
		const LockInstanceData *lock = &locks->locks[i];

		if (lock->locktag.locktag_type == type &&
			lock->pid == holder->pid &&
			LOCK_BACKEND(lock) == LOCK_BACKEND(holder) &&
			LOCK_LXID(lock) == LOCK_LXID(holder))
			return lock;
	}
	return NULL;
}

/* When did the session's transaction start?  0 if it doesn't tell. */
static TimestampTz
running_since(int pid)
{
	for (int i = 1; i <= pgstat_fetch_stat_numbackends(); i++)
	{
		PgBackendStatus *session = &pgstat_get_local_beentry_by_index(i)->backendStatus;

		if (session->st_procpid == pid)
			return session->st_xact_start_timestamp;
	}
	return 0;
}

/* When did a prepared transaction start?  0 if it has left no word. */
static TimestampTz
prepared_since(const LockInstanceData *left)
{
	return left == NULL ? 0 : left->locktag.locktag_field3 * USECS_PER_SEC;
}
