/*
 * A sequence as a clock: takes slots from its page, ahead of which the log
 * always is.
 *
 * This is nextval_internal() of PostgreSQL's sequence.c with other arithmetic,
 * and follows it step by step: relation lock to the end of the transaction,
 * permissions, page lock, decision, transaction id, critical section, dirty,
 * log, LSN.  It writes core's own WAL record, so crash recovery, standbys,
 * base backups and pg_rewind need to know nothing of this extension.
 *
 * What to take, whether to wait and what to log is decided in slot.h; this
 * file reads the catalogs, the page and the clock around that.
 *
 * It never returns a slot that it isn't sure of, and a call that fails leaves
 * the page as it was.
 */
#include "postgres.h"

#include <time.h>

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/pg_class.h"
#include "catalog/pg_sequence.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "snowid.h"

/* The special area of a sequence's page; sequence.c keeps these to itself. */
#define SEQ_MAGIC	0x1717

typedef struct sequence_magic
{
	uint32		magic;
} sequence_magic;

/*
 * What a session remembers of each sequence that it has called, like core's
 * SeqTable: entries live as long as the session.
 */
typedef struct SessionSequence
{
	Oid			relid;			/* hash key */
	LocalTransactionId lxid;	/* transaction that holds the relation lock */
	RelFileNumber logged_file;	/* file that this session has logged */
} SessionSequence;

static HTAB *session_sequences = NULL;

/* The page of a sequence, pinned and locked, and the tuple on it. */
typedef struct SequencePage
{
	Buffer		buffer;
	Page		page;
	HeapTupleData tuple;
	Form_pg_sequence_data data;
} SequencePage;

static SessionSequence *session_sequence(Oid seqid);
static Relation open_sequence(Oid seqid, SessionSequence *session);
static void check_sequence_acl(Relation rel, AclMode mode);
static SlotRules read_rules(Relation rel);
static SequencePage lock_page(Relation rel, int mode);
static SlotState page_state(const SequencePage *page);
static void write_page(Relation rel, SequencePage *page, int64 last,
					   const SlotCover *cover);
static void join_reservation(XLogRecPtr lsn);
static bool reservation_is_durable(XLogRecPtr lsn);
static bool is_rewritten(Relation rel);
static char *sequence_name(Relation rel);
static void wait_us(int64 us);
static void report_refusal(SlotVerdict verdict, Relation rel, SlotState state,
						   SlotRules rules, TimestampTz now,
						   TimestampTz epoch) pg_attribute_noreturn();


/*
 * Take the next slots of a sequence, as many as its INCREMENT says, and
 * return the first of them.
 *
 * Needs USAGE or UPDATE on the sequence, and a transaction that may write.
 */
int64
sequence_next_slot(Oid seqid, TimestampTz epoch)
{
	SessionSequence *session = session_sequence(seqid);
	Relation	rel = open_sequence(seqid, session);
	SequencePage page;
	SlotRules	rules;
	SlotState	state;
	SlotChoice	choice;
	SlotCover	cover;
	bool		needs_wal = RelationNeedsWAL(rel);
	bool		is_opener = false;	/* do we hold the right to open? */
	bool		may_open = false;	/* ... and have we waited for it? */
	bool		may_start = false;	/* have we let forgotten ids pass? */

	check_sequence_acl(rel, ACL_USAGE | ACL_UPDATE);

	/* As for nextval: read-only transactions may use temporary sequences. */
	if (!rel->rd_islocaltemp)
		PreventCommandIfReadOnly("next_id()");
	PreventCommandIfParallelMode("next_id()");

	rules = read_rules(rel);

	/*
	 * Pacing.  Whoever must wait first gets the right to open the next
	 * millisecond, so that waiting sessions together open one each time, not
	 * one each; and looks again, since the session before may have opened
	 * enough.  The page is never locked meanwhile.
	 */
	for (;;)
	{
		TimestampTz now;

		page = lock_page(rel, BUFFER_LOCK_EXCLUSIVE);
		state = page_state(&page);

		/*
		 * The clock is read under the page's lock: read before, it could be
		 * older than the slot that another session takes meanwhile.  That
		 * would still be safe, but would waste the newer millisecond.
		 */
		now = GetCurrentTimestamp();
		choice = slot_choose(state, rules, now - epoch, may_open);

		if (choice.verdict == SLOT_TAKE &&
			(may_start || !is_rewritten(rel) ||
			 !slot_is_forgotten(state, now - epoch)))
			break;

		UnlockReleaseBuffer(page.buffer);

		if (choice.verdict == SLOT_TAKE)
		{
			wait_us((MS_AHEAD_MAX + 1) * 1000);
			may_start = true;
		}
		else if (choice.verdict != SLOT_WAIT)
			report_refusal(choice.verdict, rel, state, rules, now, epoch);
		else if (!is_opener)
		{
			/* Nothing else locks pages of a sequence in the lock manager. */
			LockPage(rel, 0, ExclusiveLock);
			is_opener = true;
		}
		else
		{
			wait_us(choice.wait_us);
			may_open = true;
		}
	}

	/*
	 * Dirty the page before asking for the redo point.  A checkpoint that
	 * moves its redo point after we asked then finds the page dirty, and
	 * waits for our lock to write what we leave there; one that moved it
	 * before makes us log.
	 */
	MarkBufferDirty(page.buffer);

	if (needs_wal)
	{
		/*
		 * We log when the last record is before the redo point, since
		 * recovery may start behind it.  And once for each session and file:
		 * the file may be a copy whose log_cnt tells of somebody else's log
		 * (CREATE DATABASE copies pages, ALTER SEQUENCE SET LOGGED tuples).
		 */
		cover = slot_cover(state, rules, choice.last,
						   session->logged_file != rel->rd_rel->relfilenode ||
						   PageGetLSN(page.page) <= GetRedoRecPtr());

		/*
		 * A transaction id makes our commit wait for the record's flush, and
		 * for synchronous standbys.  (Get it here, outside the critical
		 * section.)
		 */
		if (cover.must_log)
		{
			GetTopTransactionId();
			session->logged_file = rel->rd_rel->relfilenode;
		}
		else
			join_reservation(PageGetLSN(page.page));
	}
	else
	{
		/* Not logged: claim no cover, in case the file ever becomes logged. */
		memset(&cover, 0, sizeof(cover));
	}

	write_page(rel, &page, choice.last, &cover);
	UnlockReleaseBuffer(page.buffer);

	if (is_opener)
		UnlockPage(rel, 0, ExclusiveLock);
	relation_close(rel, NoLock);

	return choice.first;
}

/*
 * Make every later slot larger than the given one.  Never moves back.
 *
 * Needs UPDATE on the sequence, as setval does.
 */
void
sequence_advance(Oid seqid, int64 slot, TimestampTz epoch)
{
	Relation	rel = open_sequence(seqid, session_sequence(seqid));
	TimestampTz now = GetCurrentTimestamp();
	SequencePage page;
	SlotRules	rules;
	SlotState	state;

	check_sequence_acl(rel, ACL_UPDATE);
	if (!rel->rd_islocaltemp)
		PreventCommandIfReadOnly("advance()");
	PreventCommandIfParallelMode("advance()");

	/* What next_id() would refuse to go on from must not get there. */
	rules = read_rules(rel);
	state.last = slot;
	state.log_cnt = 0;
	state.is_called = true;
	if (slot_ms(slot) >= MS_LAST_GENERATED)
		report_refusal(SLOT_EXHAUSTED, rel, state, rules, now, epoch);
	if (now < epoch)
		report_refusal(SLOT_BEFORE_EPOCH, rel, state, rules, now, epoch);
	if (slot_ms(slot) > (now - epoch) / 1000 + MS_AHEAD_SANE)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot advance sequence \"%s\" to more than one day ahead of the clock",
						RelationGetRelationName(rel)),
				 errdetail("The id is of %s; the clock shows %s.",
						   pstrdup(timestamptz_to_str(ms_to_timestamp(slot_ms(slot), epoch))),
						   timestamptz_to_str(now)),
				 errhint("If the id has an own epoch, pass it as the third argument.")));
	if (slot > rules.max_slot)
		report_refusal(SLOT_OVER_MAXVALUE, rel, state, rules, now, epoch);

	page = lock_page(rel, BUFFER_LOCK_EXCLUSIVE);
	state = page_state(&page);

	/* The ids that a restart has forgotten must not be issued again. */
	if (is_rewritten(rel) && slot_is_forgotten(state, now - epoch))
		slot = Max(slot, slot_pack((now - epoch) / 1000 + MS_AHEAD_MAX, SEQ_MAX));

	if (!state.is_called || state.last < slot)
	{
		SlotCover	cover;

		/* Logged as it is, without cover: the next call will log again. */
		cover.must_log = RelationNeedsWAL(rel);
		cover.logged_last = slot;
		cover.log_cnt = 0;
		if (cover.must_log)
			GetTopTransactionId();

		MarkBufferDirty(page.buffer);
		write_page(rel, &page, slot, &cover);
	}
	else if (RelationNeedsWAL(rel))
		join_reservation(PageGetLSN(page.page));

	UnlockReleaseBuffer(page.buffer);
	relation_close(rel, NoLock);
}

/*
 * Read the state of a sequence and change nothing; also on a standby.
 *
 * Needs any of SELECT, USAGE and UPDATE on the sequence.
 */
SlotState
sequence_read(Oid seqid)
{
	Relation	rel = open_sequence(seqid, NULL);
	SequencePage page;
	SlotState	state;

	check_sequence_acl(rel, ACL_SELECT | ACL_USAGE | ACL_UPDATE);

	if (RecoveryInProgress() && rel->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot access temporary or unlogged sequences during recovery")));

	page = lock_page(rel, BUFFER_LOCK_SHARE);
	state = page_state(&page);
	UnlockReleaseBuffer(page.buffer);
	relation_close(rel, AccessShareLock);

	return state;
}

/* Find or make the session's entry for a sequence. */
static SessionSequence *
session_sequence(Oid seqid)
{
	SessionSequence *session;
	bool		found;

	if (session_sequences == NULL)
	{
		HASHCTL		ctl;

		ctl.keysize = sizeof(Oid);
		ctl.entrysize = sizeof(SessionSequence);
		session_sequences = hash_create("snowid sequences", 16, &ctl,
										HASH_ELEM | HASH_BLOBS);
	}

	session = hash_search(session_sequences, &seqid, HASH_ENTER, &found);
	if (!found)
	{
		session->lxid = InvalidLocalTransactionId;
		session->logged_file = InvalidRelFileNumber;
	}
	return session;
}

/*
 * Lock and open a sequence, to the end of the transaction for a caller who
 * changes it (session given), as nextval does: an ALTER SEQUENCE waits for us,
 * and a reader can see who may still commit a smaller id.
 */
static Relation
open_sequence(Oid seqid, SessionSequence *session)
{
	Relation	rel;

	if (session == NULL)
		LockRelationOid(seqid, AccessShareLock);
	else if (session->lxid != MY_LXID)
	{
		/* The top transaction owns it: a rolled back savepoint keeps it. */
		ResourceOwner current = CurrentResourceOwner;

		CurrentResourceOwner = TopTransactionResourceOwner;
		LockRelationOid(seqid, RowExclusiveLock);
		CurrentResourceOwner = current;
		session->lxid = MY_LXID;
	}

	rel = try_relation_open(seqid, NoLock);
	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("sequence with OID %u does not exist", seqid)));
	if (rel->rd_rel->relkind != RELKIND_SEQUENCE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a sequence",
						RelationGetRelationName(rel))));
	return rel;
}

static void
check_sequence_acl(Relation rel, AclMode mode)
{
	if (pg_class_aclcheck(RelationGetRelid(rel), GetUserId(), mode) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for sequence %s",
						RelationGetRelationName(rel))));
}

/* Read what the sequence's definition says. */
static SlotRules
read_rules(Relation rel)
{
	SlotRules	rules;
	HeapTuple	tuple = SearchSysCache1(SEQRELID,
										ObjectIdGetDatum(RelationGetRelid(rel)));
	Form_pg_sequence form;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for sequence %u", RelationGetRelid(rel));
	form = (Form_pg_sequence) GETSTRUCT(tuple);
	rules.increment = form->seqincrement;
	rules.max_slot = form->seqmax;
	ReleaseSysCache(tuple);

	if (rules.increment < 1 || rules.increment > SLOTS_PER_MS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("increment %lld of sequence \"%s\" is out of range",
						(long long) rules.increment,
						RelationGetRelationName(rel)),
				 errdetail("The increment is the number of ids that a call reserves in one millisecond, between 1 and %d.",
						   SLOTS_PER_MS),
				 errhint("Type: ALTER SEQUENCE %s INCREMENT BY 1;",
						 sequence_name(rel))));
	return rules;
}

/* Pin and lock the page of a sequence, and find its tuple. */
static SequencePage
lock_page(Relation rel, int mode)
{
	SequencePage page;
	ItemId		item;
	sequence_magic *magic;

	page.buffer = ReadBuffer(rel, 0);
	LockBuffer(page.buffer, mode);
	page.page = BufferGetPage(page.buffer);

	magic = (sequence_magic *) PageGetSpecialPointer(page.page);
	if (magic->magic != SEQ_MAGIC)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("bad magic number in sequence \"%s\": %08X",
						RelationGetRelationName(rel), magic->magic)));

	item = PageGetItemId(page.page, FirstOffsetNumber);
	Assert(ItemIdIsNormal(item));
	page.tuple.t_data = (HeapTupleHeader) PageGetItem(page.page, item);
	page.tuple.t_len = ItemIdGetLength(item);
	page.data = (Form_pg_sequence_data) GETSTRUCT(&page.tuple);
	return page;
}

static SlotState
page_state(const SequencePage *page)
{
	SlotState	state;

	state.last = page->data->last_value;
	state.log_cnt = page->data->log_cnt;
	state.is_called = page->data->is_called;
	return state;
}

/*
 * Log if the cover says so, and put the new state on the page, which is
 * locked and marked dirty.
 */
static void
write_page(Relation rel, SequencePage *page, int64 last, const SlotCover *cover)
{
	START_CRIT_SECTION();

	if (cover->must_log)
	{
		xl_seq_rec	xlrec;
		XLogRecPtr	recptr;

		/*
		 * The record holds the state that recovery shall find: everything
		 * that it covers counts as issued.
		 */
		page->data->last_value = cover->logged_last;
		page->data->is_called = true;
		page->data->log_cnt = 0;

		SEQ_REC_LOCATOR(xlrec) = REL_LOCATOR(rel);

		XLogBeginInsert();
		XLogRegisterBuffer(0, page->buffer, REGBUF_WILL_INIT);
		XLogRegisterData((char *) &xlrec, sizeof(xl_seq_rec));
		XLogRegisterData((char *) page->tuple.t_data, page->tuple.t_len);
		recptr = XLogInsert(RM_SEQ_ID, XLOG_SEQ_LOG);
		PageSetLSN(page->page, recptr);
	}

	page->data->last_value = last;
	page->data->is_called = true;
	page->data->log_cnt = cover->log_cnt;

	END_CRIT_SECTION();
}

/*
 * Use a reservation that another transaction logged.  While its record is not
 * durable, our commit must wait for it as the other's will; else a crash
 * could forget a slot that a committed SELECT next_id() has shown.
 *
 * (Core's nextval leaves this open.  A commit flushes and waits up to
 * XactLastRecEnd if the transaction has an id.)
 */
static void
join_reservation(XLogRecPtr lsn)
{
	if (reservation_is_durable(lsn))
		return;
	GetTopTransactionId();
	if (XactLastRecEnd < lsn)
		XactLastRecEnd = lsn;
}

/*
 * Is everything up to lsn flushed, and confirmed by the synchronous standbys,
 * as far as this session's commits wait for that at all?
 */
static bool
reservation_is_durable(XLogRecPtr lsn)
{
	static XLogRecPtr durable = InvalidXLogRecPtr;

	if (lsn <= durable || synchronous_commit == SYNCHRONOUS_COMMIT_OFF)
		return true;
	if (XLogNeedsFlush(lsn))
		return false;
	if (SyncRepRequested() &&
		SyncRepStandbyNames != NULL && SyncRepStandbyNames[0] != '\0')
	{
		XLogRecPtr	confirmed;

		LWLockAcquire(SyncRepLock, LW_SHARED);
		confirmed = WalSndCtl->lsn[SYNC_REP_WAIT_FLUSH];
		LWLockRelease(SyncRepLock);
		if (confirmed < lsn)
			return false;
		durable = lsn;
	}
	return true;
}

/*
 * Has the sequence got a new file since it was created?  ALTER SEQUENCE
 * RESTART and TRUNCATE RESTART IDENTITY give it one.
 */
static bool
is_rewritten(Relation rel)
{
	return rel->rd_rel->relfilenode != RelationGetRelid(rel);
}

/* Sleep, precisely, whatever signals arrive; a cancel ends it. */
static void
wait_us(int64 us)
{
	instr_time	start;

	INSTR_TIME_SET_CURRENT(start);
	for (;;)
	{
		instr_time	elapsed;
		int64		left;

		CHECK_FOR_INTERRUPTS();
		INSTR_TIME_SET_CURRENT(elapsed);
		INSTR_TIME_SUBTRACT(elapsed, start);
		left = us - (int64) INSTR_TIME_GET_MICROSEC(elapsed);
		if (left <= 0)
			break;
		pgstat_report_wait_start(PG_WAIT_EXTENSION);
		pg_usleep(Min(left, OPENING_WAIT_MAX_US));
		pgstat_report_wait_end();
	}
}

/* The sequence's name as one would type it. */
static char *
sequence_name(Relation rel)
{
	return quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
									  RelationGetRelationName(rel));
}

/* Say why there is no slot, and what to do about it. */
static void
report_refusal(SlotVerdict verdict, Relation rel, SlotState state,
			   SlotRules rules, TimestampTz now, TimestampTz epoch)
{
	char	   *name = RelationGetRelationName(rel);
	char	   *clock_text = pstrdup(timestamptz_to_str(now));

	switch (verdict)
	{
		case SLOT_BEFORE_EPOCH:
			ereport(ERROR,
					(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
					 errmsg("the clock is before the epoch"),
					 errdetail("The clock shows %s, the epoch is %s.",
							   clock_text, timestamptz_to_str(epoch)),
					 errhint("Set the server's clock right, or pass an epoch that has begun.")));
			break;
		case SLOT_EXHAUSTED:
			ereport(ERROR,
					(errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
					 errmsg("sequence \"%s\" has used up the time of the id layout",
							name),
					 errdetail("With this epoch, the last id is of %s; the clock shows %s.",
							   timestamptz_to_str(ms_to_timestamp(MS_LAST_GENERATED, epoch)),
							   clock_text),
					 errhint("For new tables, pass a later epoch as the third argument of snowid.next_id().")));
			break;
		case SLOT_TOO_FAR_AHEAD:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("sequence \"%s\" is more than one day ahead of the clock",
							name),
					 errdetail("Its last id is of %s; the clock shows %s.",
							   timestamptz_to_str(ms_to_timestamp(slot_ms(state.last), epoch)),
							   clock_text),
					 errhint("If the clock is wrong, set it right. If the sequence is called with different epochs, use one. "
							 "If something else set the sequence, and it has issued no id later than the clock, type: ALTER SEQUENCE %s RESTART;",
							 sequence_name(rel))));
			break;
		case SLOT_OVER_MAXVALUE:
			{
				bool		is_narrow = rules.max_slot <= PG_INT32_MAX;

				ereport(ERROR,
						(errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
						 errmsg("reached maximum value of sequence \"%s\" (%lld)",
								name, (long long) rules.max_slot),
						 errdetail("The sequence keeps the time of its last id in last_value, which needs a bigint."),
						 errhint("Type: ALTER SEQUENCE %s%s NO MAXVALUE;",
								 sequence_name(rel),
								 is_narrow ? " AS bigint" : "")));
				break;
			}
		case SLOT_TAKE:
		case SLOT_WAIT:
			break;
	}
	elog(ERROR, "unexpected slot verdict: %d", (int) verdict);
}
