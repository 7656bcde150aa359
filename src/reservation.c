/*
 * The database's clock; see reservation.h.  What to reserve is decided in slot.h.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/resowner.h"

#include "compat.h"
#include "reservation.h"
#include "seq_page.h"

/* For so much time of slots, a session goes on before it looks again. */
#define CHECK_AGAIN_US		(RESERVE_EARLY_US / 10)

SessionReservation session_reservation;

static Oid	find_reservation(void);
static Reservation lock_reservation(Relation rel, SequencePage *page, int mode);
static void unlock_reservation(Relation rel, SequencePage *page);
static uint32 reservation_mark(const SequencePage *page);
static void remember(const SequencePage *page, Reservation state);
static void reserve(Relation rel, SequencePage *page, Reservation *state,
					TimestampTz wanted, TimestampTz now);


/*
 * Lock the clock to the end of the transaction, and read it unless the session
 * knows a reservation.  Before there is one, a restore may still set the clock.
 *
 * A session that uses a reservation holds the lock, so DROP EXTENSION waits
 * for it.
 */
void
reservation_open(void)
{
	for (;;)
	{
		ResourceOwner current = CurrentResourceOwner;
		Oid			relid = session_reservation.relid;
		Relation	rel;

		if (!OidIsValid(relid))
			relid = find_reservation();

		/* Owned by the top transaction, it outlives a rolled back savepoint. */
		CurrentResourceOwner = TopTransactionResourceOwner;
		LockRelationOid(relid, RowExclusiveLock);
		CurrentResourceOwner = current;

		/* Invalidation messages came with the lock: is it still this one? */
		if (session_reservation.relid == relid && session_reservation.reserved != 0)
		{
			session_reservation.lxid = MY_LXID;
			return;
		}
		rel = try_relation_open(relid, NoLock);
		if (rel != NULL)
		{
			SequencePage page;
			Reservation state;

			state = lock_reservation(rel, &page, BUFFER_LOCK_SHARE);
			remember(&page, state);
			session_reservation.relid = relid;
			session_reservation.lxid = MY_LXID;
			unlock_reservation(rel, &page);
			return;
		}
	}
}

/*
 * Forget the clock, if that is the relation: it may be gone, or have another
 * file.  The floor stays.
 */
void
reservation_forget(Oid relid)
{
	if (OidIsValid(relid) && relid != session_reservation.relid)
		return;
	session_reservation.relid = InvalidOid;
	session_reservation.lxid = InvalidLocalTransactionId;
	session_reservation.reserved = session_reservation.check_from = 0;
}

/*
 * Reserve slots of the time "last", by a record after the given one and after
 * the redo point; if need be, and remember it.
 *
 * False if the sequence must go alone.
 */
bool
reservation_move(TimestampTz last, TimestampTz now, XLogRecPtr after)
{
	Relation	rel;
	SequencePage page;
	Reservation state;

	ensure_reservation();
	rel = relation_open(session_reservation.relid, NoLock);
	state = lock_reservation(rel, &page, BUFFER_LOCK_EXCLUSIVE);

	/* In the transaction that has created it, it may have no log. */
	if (RelationNeedsWAL(rel) && reservation_may_move(state, last, now) &&
		!(state.is_live && last < state.reserved &&
		  PageGetLSN(page.page) > Max(after, GetRedoRecPtr())))
		reserve(rel, &page, &state, last, now);

	remember(&page, state);
	unlock_reservation(rel, &page);
	return reservation_covers(last, after);
}

/*
 * Reserve more before the last slots are used, or see what others have
 * reserved.
 *
 * A record that is not durable is left to time, so that nobody waits for it.
 */
void
reservation_move_early(TimestampTz last, TimestampTz now)
{
	Relation	rel;
	SequencePage page;
	Reservation state;

	ensure_reservation();
	rel = relation_open(session_reservation.relid, NoLock);
	state = lock_reservation(rel, &page, BUFFER_LOCK_EXCLUSIVE);

	if (state.is_live && last >= state.reserved - RESERVE_EARLY_US &&
		reservation_next(state, last, now) > state.reserved)
		reserve(rel, &page, &state, last, now);

	if (is_durable(PageGetLSN(page.page)))
		remember(&page, state);
	session_reservation.check_from = Max(session_reservation.check_from, last + CHECK_AGAIN_US);
	unlock_reservation(rel, &page);
}

/*
 * The time below which sequences may have issued slots that their pages don't
 * show.  On a standby that is all that is reserved: its clock is that of the
 * last record, as after a recovery.
 */
TimestampTz
reservation_floor(void)
{
	Oid			relid = find_reservation();
	Relation	rel = relation_open(relid, AccessShareLock);
	SequencePage page;
	Reservation state = lock_reservation(rel, &page, BUFFER_LOCK_SHARE);

	unlock_reservation(rel, &page);
	UnlockRelationOid(relid, AccessShareLock);
	return state.floor;
}

/* Is it the clock, which itself makes no ids? */
bool
is_reservation(Oid relid)
{
	return relid == find_reservation();
}

static Oid
find_reservation(void)
{
	Oid			relid = get_relname_relid("reservation",
										  get_namespace_oid("snowid_internal", false));

	if (!OidIsValid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("sequence \"snowid_internal.reservation\" does not exist"),
				 errhint("It belongs to the extension. To make it again, type: CREATE SEQUENCE snowid_internal.reservation; ALTER EXTENSION snowid ADD SEQUENCE snowid_internal.reservation; and SELECT setval('snowid_internal.reservation', extract(epoch FROM now())::bigint + 2);")));
	return relid;
}

/* Lock the clock's page, and read it. */
static Reservation
lock_reservation(Relation rel, SequencePage *page, int mode)
{
	if (rel->rd_rel->relkind != RELKIND_SEQUENCE ||
		rel->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"snowid_internal.reservation\" is not a logged sequence"),
				 errhint("Type: ALTER SEQUENCE snowid_internal.reservation SET LOGGED;")));

	lock_page(page, ReadBuffer(rel, 0), mode);

	/*
	 * What is as a recovery has left it is not live.  A page that pg_rewind
	 * or an incremental backup has brought was live on another server, and
	 * the pages of sequences here can be older.
	 */
	if (RecoveryInProgress() || PageGetLSN(page->page) <= GetXLogReplayRecPtr(NULL))
		return reservation_read(page->data->last_value, 0, 0);
	return reservation_read(page->data->last_value, page->data->log_cnt, reservation_mark(page));
}

static void
unlock_reservation(Relation rel, SequencePage *page)
{
	UnlockReleaseBuffer(page->buffer);
	relation_close(rel, NoLock);
}

/*
 * What a live page has, and no copy of it: the database, the timeline, and the
 * page's record.  CREATE DATABASE may copy the page as it is, pg_rewind brings
 * it to a server that is promoted later.  A copy of the tuple, or a logged
 * image of the page, has another LSN than the mark says.
 */
static uint32
reservation_mark(const SequencePage *page)
{
	return hash_combine(MyDatabaseId,
						GetWALInsertionTimeLine() ^ (uint32) PageGetLSN(page->page));
}

/* Keep what the page shows.  One that is not live reserves nothing. */
static void
remember(const SequencePage *page, Reservation state)
{
	session_reservation.floor = state.floor;
	session_reservation.reserved = state.is_live ? state.reserved : 0;
	session_reservation.lsn = PageGetLSN(page->page);
	session_reservation.check_from = session_reservation.reserved - RESERVE_EARLY_US;
}

/* Move the clock, and log that.  The page stays locked. */
static void
reserve(Relation rel, SequencePage *page, Reservation *state, TimestampTz wanted,
		TimestampTz now)
{
	int64		last_value;

	state->reserved = reservation_next(*state, wanted, now);
	state->is_live = true;
	last_value = reservation_last_value(*state);
	MarkBufferDirty(page->buffer);
	write_page(REL_LOCATOR(rel), page, last_value, &last_value);
	page->data->log_cnt = reservation_log_cnt(*state, reservation_mark(page));
}
