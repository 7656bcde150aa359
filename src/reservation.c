/*
 * The reservation; see reservation.h.  What to reserve is decided in slot.h.
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
static Relation open_reservation(LOCKMODE mode, ResourceOwner owner);
static Reservation lock_reservation(Relation rel, SequencePage *page, int mode);
static uint32 reservation_mark(const SequencePage *page);
static void remember(const SequencePage *page, Reservation state);


/*
 * Lock the reservation to the end of the transaction, and read it unless the
 * session knows one that is in use.  Before there is one, a restore may still
 * set it.
 *
 * A session that uses a reservation holds the lock, so DROP EXTENSION waits
 * for it.
 */
void
reservation_open(void)
{
	SessionReservation *known = &session_reservation;

	if (OidIsValid(known->relid))
		hold_relation(known->relid, RowExclusiveLock, TopTransactionResourceOwner);

	/* Invalidation messages came with the lock: is it still this one? */
	if (!OidIsValid(known->relid) || known->reserved.bound == 0)
	{
		Relation	rel = open_reservation(RowExclusiveLock, TopTransactionResourceOwner);
		SequencePage page;
		Reservation state = lock_reservation(rel, &page, BUFFER_LOCK_SHARE);

		remember(&page, state);
		known->relid = RelationGetRelid(rel);
		UnlockReleaseBuffer(page.buffer);
		relation_close(rel, NoLock);
	}
	known->lxid = MY_LXID;
}

/*
 * Forget the reservation, if that is the relation: it may be gone, or have
 * another file.  The floor stays.
 */
void
reservation_forget(Oid relid)
{
	if (OidIsValid(relid) && relid != session_reservation.relid)
		return;
	session_reservation.relid = InvalidOid;
	session_reservation.lxid = InvalidLocalTransactionId;
	session_reservation.reserved.bound = session_reservation.check_from = 0;
}

/*
 * Reserve slots of the time "last", by a record after the given one and after
 * the redo point; if need be, and if they can be.
 *
 * Early: before the last slots are used.  Then a record that is not durable is
 * left to time, so that nobody waits for it.
 */
void
reserve(TimestampTz last, TimestampTz now, XLogRecPtr after, Reserve how)
{
	bool		is_early = how == RESERVE_EARLY;
	Relation	rel;
	SequencePage page;
	Reservation state;
	int64		next;
	bool		is_enough;

	(void) reserved_floor();
	rel = relation_open(session_reservation.relid, NoLock);
	state = lock_reservation(rel, &page, BUFFER_LOCK_EXCLUSIVE);
	next = reservation_next(state, last, now, how == RESERVE_PUSH);
	is_enough = is_early ?
		!state.is_live || last < state.reserved - RESERVE_EARLY_US || next == state.reserved :
		state.is_live && last < state.reserved &&
		PageGetLSN(page.page) > Max(after, GetRedoRecPtr());

	/* In the transaction that has created it, it may have no log. */
	if (!is_enough && last < next && RelationNeedsWAL(rel))
	{
		SlotState	logged = {0, true, false};

		state.reserved = next;
		state.is_live = true;
		logged.last = reservation_last_value(state);
		MarkBufferDirty(page.buffer);
		write_page(REL_LOCATOR(rel), &page, logged, &logged.last);
		page.data->log_cnt = reservation_log_cnt(state, reservation_mark(&page));
	}
	if (!is_early || is_durable(PageGetLSN(page.page)))
		remember(&page, state);
	if (is_early)
		session_reservation.check_from = Max(session_reservation.check_from, last + CHECK_AGAIN_US);
	UnlockReleaseBuffer(page.buffer);
	relation_close(rel, NoLock);
}

/*
 * See what the page has now.  On a standby, all that is reserved is the floor:
 * its page is that of the last record, as after a recovery.
 */
Reservation
reservation_see(void)
{
	Relation	rel = open_reservation(AccessShareLock, CurrentResourceOwner);
	SequencePage page;
	Reservation state = lock_reservation(rel, &page, BUFFER_LOCK_SHARE);

	UnlockReleaseBuffer(page.buffer);
	relation_close(rel, AccessShareLock);
	return state;
}

/* 42809 for the reservation itself: it is no slot, and all sequences would follow. */
void
refuse_reservation(Oid relid)
{
	if (relid == find_reservation())
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("sequence \"snowid_internal.reservation\" makes no ids"),
				 errdetail("It holds what is reserved for all other sequences."),
				 errhint("Name a sequence of your own, such as insta5.id_seq.")));
}

/*
 * Take the right to reserve slots of the time "last" that the clock does not
 * allow yet, if that is needed, and possible.
 */
void
take_push(Right *right, TimestampTz last, TimestampTz now)
{
	Reservation state;

	(void) reserved_floor();
	take_right(right, session_reservation.relid);
	state = reservation_see();
	if (reservation_next(state, last, now, false) > last ||
		reservation_next(state, last, now, true) <= last)
		give_back(right);
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
				 errhint("It belongs to the extension. To make it again, type: CREATE SEQUENCE snowid_internal.reservation; ALTER EXTENSION snowid ADD SEQUENCE snowid_internal.reservation; and SELECT setval('snowid_internal.reservation', (extract(epoch FROM now()) * 1000)::bigint + 3000);")));
	return relid;
}

/*
 * Find the reservation, lock it, and open it.  Who has waited for the lock may
 * find another one in its place.
 */
static Relation
open_reservation(LOCKMODE mode, ResourceOwner owner)
{
	Relation	rel;

	do
	{
		Oid			relid = find_reservation();

		hold_relation(relid, mode, owner);
		rel = try_relation_open(relid, NoLock);
	} while (rel == NULL);
	return rel;
}

/* Lock the page, and read it. */
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
	session_reservation.reserved.bound = state.is_live ? state.reserved : 0;
	session_reservation.reserved.lsn = PageGetLSN(page->page);
	session_reservation.check_from = session_reservation.reserved.bound - RESERVE_EARLY_US;
}
