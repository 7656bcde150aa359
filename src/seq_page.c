/*
 * The page of a sequence, and its log; see seq_page.h.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"

#include "compat.h"
#include "seq_page.h"
#include "xact_start.h"


/*
 * Lock a relation.  Owned by the top transaction, the lock outlives a savepoint
 * that is rolled back.
 */
void
hold_relation(Oid relid, LOCKMODE mode, ResourceOwner owner)
{
	ResourceOwner current = CurrentResourceOwner;

	CurrentResourceOwner = owner;
	LockRelationOid(relid, mode);
	CurrentResourceOwner = current;
}

/*
 * Take a right, and wait for it if need be: a lock on a row that no sequence has.
 *
 * Not on a page: until 15.4, the deadlock detector did not see such locks, and
 * their holder could lock nothing else.
 */
void
take_right(Right *right, Oid seqid)
{
	SET_LOCKTAG_TUPLE(right->tag, MyDatabaseId, seqid, 0, ROW_OF_RIGHT);
	(void) LockAcquire(&right->tag, ExclusiveLock, false, false);
	right->is_held = true;
}

/* Lock the page in a pinned buffer, and find its tuple. */
void
lock_page(SequencePage *page, Buffer buffer, int mode)
{
	ItemId		item;
	sequence_magic *magic;

	LockBuffer(buffer, mode);
	page->buffer = buffer;
	page->page = BufferGetPage(buffer);

	magic = (sequence_magic *) PageGetSpecialPointer(page->page);
	if (magic->magic != SEQ_MAGIC)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("bad magic number in a sequence: %08X", magic->magic)));

	item = PageGetItemId(page->page, FirstOffsetNumber);
	Assert(ItemIdIsNormal(item));
	page->tuple.t_data = (HeapTupleHeader) PageGetItem(page->page, item);
	page->tuple.t_len = ItemIdGetLength(item);
	page->data = (Form_pg_sequence_data) GETSTRUCT(&page->tuple);
}

/*
 * Put the new state on the page, and log it if told so, with a last_value for
 * the record.  The page must be locked exclusively and marked dirty.
 *
 * The record has log_cnt 0, as core's has, and so has the page: nextval then logs
 * for itself.
 */
void
write_page(RelFileLocator locator, SequencePage *page, SlotState state,
		   const int64 *logged_last)
{
	START_CRIT_SECTION();

	page->data->is_called = state.is_called;
	page->data->log_cnt = 0;

	if (logged_last != NULL)
	{
		xl_seq_rec	xlrec;
		XLogRecPtr	recptr;

		page->data->last_value = *logged_last;
		SEQ_REC_LOCATOR(xlrec) = locator;

		XLogBeginInsert();
		XLogRegisterBuffer(0, page->buffer, REGBUF_WILL_INIT);
		XLogRegisterData((char *) &xlrec, sizeof(xl_seq_rec));
		XLogRegisterData((char *) page->tuple.t_data, page->tuple.t_len);
		recptr = XLogInsert(RM_SEQ_ID, XLOG_SEQ_LOG);
		PageSetLSN(page->page, recptr);
	}

	page->data->last_value = state.last;

	END_CRIT_SECTION();
}

/*
 * Rely on a record that another transaction may have written.  While it is not
 * durable, our commit must wait for it.  Without this, a crash could forget
 * a slot that a committed SELECT next_id() has shown.  (Core's nextval does
 * not do it.)
 *
 * A commit flushes and waits up to XactLastRecEnd if the transaction has an id.
 */
void
join_record(XLogRecPtr lsn)
{
	/* Our commit waits already, as for a record of our own. */
	if (XactLastRecEnd >= lsn && TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return;
	if (is_durable(lsn))
		return;
	GetTopTransactionId();
	if (XactLastRecEnd < lsn)
		XactLastRecEnd = lsn;
}

/*
 * Is everything up to lsn flushed, and confirmed by the synchronous standbys?
 * synchronous_commit does not count here: the commit asks for it.
 */
bool
is_durable(XLogRecPtr lsn)
{
	static XLogRecPtr flushed = InvalidXLogRecPtr;
	static XLogRecPtr confirmed = InvalidXLogRecPtr;

	if (lsn > flushed)
	{
		if (XLogNeedsFlush(lsn))
			return false;
		flushed = lsn;
	}

	if (lsn > confirmed && max_wal_senders > 0 &&
		SyncRepStandbyNames != NULL && SyncRepStandbyNames[0] != '\0')
	{
		LWLockAcquire(SyncRepLock, LW_SHARED);
		confirmed = WalSndCtl->lsn[SYNC_REP_WAIT_FLUSH];
		LWLockRelease(SyncRepLock);
		return lsn <= confirmed;
	}
	return true;
}
