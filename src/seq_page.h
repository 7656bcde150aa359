/*
 * The page of a sequence, and its log.
 *
 * The record is core's own, so crash recovery, standbys, base backups and
 * pg_rewind need to know nothing of this extension.  Callers mark the page
 * dirty before write_page(), and get a transaction id if their commit must wait
 * for the record.
 */
#ifndef SNOWID_SEQ_PAGE_H
#define SNOWID_SEQ_PAGE_H

#include "access/htup.h"
#include "commands/sequence.h"
#include "storage/bufmgr.h"
#include "storage/lock.h"
#include "utils/resowner.h"

#include "compat.h"
#include "slot.h"

/* A page that is pinned and locked, and the tuple on it. */
typedef struct SequencePage
{
	Buffer		buffer;
	Page		page;
	HeapTupleData tuple;
	Form_pg_sequence_data data;
} SequencePage;

/* What one session at a time may do with a sequence; an error gives it back. */
typedef struct Right
{
	LOCKTAG		tag;
	bool		is_held;
} Right;

extern void lock_page(SequencePage *page, Buffer buffer, int mode);
extern void hold_relation(Oid relid, LOCKMODE mode, ResourceOwner owner);
extern void take_right(Right *right, Oid seqid);
extern void write_page(RelFileLocator locator, SequencePage *page, SlotState state,
					   const int64 *logged_last);
extern bool is_durable(XLogRecPtr lsn);
extern void join_record(XLogRecPtr lsn);

static inline void
give_back(Right *right)
{
	if (right->is_held)
		(void) LockRelease(&right->tag, ExclusiveLock, false);
	right->is_held = false;
}

/*
 * Is the exclusively locked page dirty already?  It stays dirty while we hold
 * our lock, since writing it out takes a lock that conflicts with ours.
 */
static inline bool
page_is_dirty(const SequencePage *page)
{
	return !BufferIsLocal(page->buffer) &&
		(BUFFER_STATE(GetBufferDescriptor(page->buffer - 1)) & BM_DIRTY) != 0;
}

static inline SlotState
page_state(const SequencePage *page, int64 start)
{
	return slot_state(page->data->last_value, page->data->is_called, start);
}

#endif							/* SNOWID_SEQ_PAGE_H */
