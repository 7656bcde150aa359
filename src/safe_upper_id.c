/*
 * Who may still commit an id of a sequence: safe_upper_id().
 *
 * The bound that it returns is below every id that a running transaction has
 * taken from the sequence, and below every id taken later.  So all rows with
 * smaller ids are of transactions that have ended, and the next snapshot shows
 * all of them that committed.  Four facts make it so:
 *
 * 1. next_id() locks the sequence before it takes its first slot, and the lock
 *	  is released only after the transaction's end is visible to others.
 *	  Savepoints don't release it, PREPARE TRANSACTION hands it on.
 * 2. We first take a slot, and then look which transactions hold the lock.  A
 *	  transaction that takes its slot after ours gets a larger one, whatever
 *	  the clock does.  One that took it before ours holds the lock when we
 *	  look, or has ended.  In the other order, a transaction could lock and
 *	  take a slot in between.
 * 3. A slot is not before the start of the transaction, as other sessions see
 *	  it.  It is not before the clock's reading; if the clock was set back
 *	  meanwhile, xact_start_check() lowers that start before the slot is taken.
 *	  Or it follows a slot that is not before that start; see time_for_slots().
 * 4. A holder without a known start makes the bound 0.
 *
 * Taking a slot also gets the last row of an idle sequence below the bound.
 * Without it, the next id could be of the same millisecond as that row's.
 *
 * The caller learns nothing of other sessions but the start of the oldest
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
#include "utils/timestamp.h"

#include "args.h"
#include "citus.h"
#include "compat.h"
#include "sequence.h"
#include "xact_start.h"

PG_FUNCTION_INFO_V1(snowid_safe_upper_id);

static int64 oldest_id(TimestampTz at, TimestampTz epoch);
static LockData *sequence_locks(Oid seqid);
static const LockInstanceData *find_lock(const LockData *locks, uint8 type,
										 const LockInstanceData *holder);
static TimestampTz running_since(int pid);


/* safe_upper_id(seq regclass [, epoch timestamptz]) → bigint */
Datum
snowid_safe_upper_id(PG_FUNCTION_ARGS)
{
	Oid			seqid = PG_GETARG_OID(0);
	TimestampTz epoch = sequence_epoch_argument(fcinfo, 1);
	int64		bound;
	LockData   *before;
	LockData   *after;

	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot execute safe_upper_id() during recovery"),
				 errdetail("A standby does not know which transactions are running on its primary."),
				 errhint("Call it on the primary, and then pg_current_wal_insert_lsn() there. Read here when pg_last_wal_replay_lsn() has reached that position.")));

	/*
	 * Its transactions end here before COMMIT PREPARED has reached the other
	 * nodes, and release their locks here.
	 */
	if (citus_is_here())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot execute safe_upper_id() in a database of Citus"),
				 errdetail("A transaction ends on the coordinator before all workers show its rows."),
				 errhint("Stay behind by more than your longest transaction: WHERE id < snowid.min_id(now() - interval '1 hour')")));
	PreventCommandIfReadOnly("safe_upper_id()");
	PreventCommandIfParallelMode("safe_upper_id()");

	/* Its snapshot is older than the bound and would not show all rows. */
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				 errmsg("cannot execute safe_upper_id() in a REPEATABLE READ or SERIALIZABLE transaction"),
				 errdetail("All statements of such a transaction see the rows that its first one sees, which is before the bound."),
				 errhint("Type: BEGIN ISOLATION LEVEL READ COMMITTED;")));

	bound = slot_to_id(sequence_next_slot(seqid, 0, epoch, &fcinfo->flinfo->fn_extra), 0);
	epoch = sequence_last_epoch(fcinfo->flinfo->fn_extra);

	before = sequence_locks(seqid);
	if (before->nelements == 0)
		PG_RETURN_INT64(bound);

	/*
	 * Starts are read between two looks at the locks.  A session's start is
	 * the holder's only if the same transaction holds the lock in both.  If
	 * not, the transaction has ended, or came after our slot, or was prepared
	 * meanwhile.
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
			since = xact_start_kept(find_lock(after, LOCKTAG_TUPLE, holder));
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

/*
 * The locks of a sequence that other transactions hold: on itself in the mode
 * of next_id(), and those of xact_start_keep().
 *
 * A transaction that has ended but has not yet released its locks shows no
 * transaction number there.
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

/* Find a lock of this type that the holder's transaction has; NULL if none. */
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

/* When did the session's transaction start?  0 if not known. */
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
