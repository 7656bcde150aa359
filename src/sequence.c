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

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/pg_class.h"
#include "catalog/pg_sequence.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
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
 * What a session remembers of a sequence.  Entries live as long as the
 * session, so that a call site may keep a pointer to one.
 *
 * The facts are what the catalogs said.  They are dropped by invalidation
 * messages, just as the catalog caches are that nextval asks on each call, so
 * no ALTER, DROP, GRANT or change of role is seen later than it would be there.
 */
typedef struct SessionSequence
{
	Oid			relid;			/* hash key */
	LocalTransactionId lxid;	/* transaction that holds the relation lock */
	RelFileNumber logged_file;	/* file that this session has logged */

	uint64		facts_from;		/* generation of the facts; 0: none */
	Oid			userid;			/* role that may take slots */
	RelFileLocator locator;
	SlotRules	rules;
	bool		is_local_temp;
	bool		needs_wal;
	bool		is_rewritten;	/* has it got a new file since its creation? */

	Buffer		buffer;			/* where its page was last */

	/* Slots taken ahead of use, because of CACHE; none if next > last. */
	int64		cached_next;
	int64		cached_last;
	TimestampTz cached_from;	/* the clock may show this ... */
	TimestampTz cached_until;	/* ... until before this */
	TimestampTz cached_epoch;
} SessionSequence;

static HTAB *session_sequences = NULL;

/* The sequence whose page this (sub)transaction keeps pinned, if any. */
static SessionSequence *pinned = NULL;

/* Facts of an earlier generation may be out of date. */
static uint64 catalog_generation = 1;

/* The page of a sequence, pinned and locked, and the tuple on it. */
typedef struct SequencePage
{
	Buffer		buffer;
	Page		page;
	HeapTupleData tuple;
	Form_pg_sequence_data data;
} SequencePage;

static SessionSequence *session_sequence(Oid seqid);
static void invalidate_facts(Datum arg, int cacheid, uint32 hashvalue);
static void invalidate_relation(Datum arg, Oid relid);
static void lock_sequence(SessionSequence *session);
static void learn_facts(SessionSequence *session);
static Relation open_sequence(Oid seqid);
static void check_sequence_acl(Relation rel, AclMode mode);
static SlotRules read_rules(Relation rel);
static bool is_rewritten(Relation rel);
static void drop_cached(SessionSequence *session);
static bool take_cached(SessionSequence *session, TimestampTz epoch, int64 *slot);
static Buffer pin_page(SessionSequence *session);
static void unpin_page(void);
static void at_xact_end(XactEvent event, void *arg);
static void at_subxact_event(SubXactEvent event, SubTransactionId id,
							 SubTransactionId parent, void *arg);
static void lock_page(SequencePage *page, Buffer buffer, int mode);
static SlotState page_state(const SequencePage *page);
static bool page_is_dirty(const SequencePage *page);
static void write_page(RelFileLocator locator, SequencePage *page, int64 last,
					   const SlotCover *cover);
static void join_reservation(XLogRecPtr lsn);
static bool reservation_is_durable(XLogRecPtr lsn);
static void opening_tag(LOCKTAG *tag, Oid seqid);
static void wait_us(int64 us);
static char *sequence_name(Oid seqid);
static void refuse_if_fenced(Oid seqid);
static void report_refusal(SlotVerdict verdict, Oid seqid, SlotState state,
						   SlotRules rules, TimestampTz now,
						   TimestampTz epoch);


/*
 * Take the next slots of a sequence, as many as its INCREMENT says, and
 * return the first of them.
 *
 * Needs USAGE or UPDATE on the sequence, and a transaction that may write.
 * *memo is the caller's to keep, from one call with the same session to the
 * next; it must start as NULL.
 */
int64
sequence_next_slot(Oid seqid, TimestampTz epoch, void **memo)
{
	SessionSequence *session = *memo;
	SequencePage page;
	SlotState	state;
	SlotChoice	choice;
	SlotCover	cover = {false, 0, 0};
	TimestampTz now;
	int64		slot;
	LOCKTAG		opening;
	bool		is_opener = false;	/* do we hold the right to open? */
	bool		may_open = false;	/* ... and have we waited for it? */
	bool		may_start = false;	/* have we let forgotten ids pass? */

	if (session == NULL || session->relid != seqid)
		*memo = session = session_sequence(seqid);

	if (session->lxid != MY_LXID)
		lock_sequence(session);
	if (session->facts_from != catalog_generation ||
		session->userid != GetUserId())
		learn_facts(session);

	/* As for nextval: read-only transactions may use temporary sequences. */
	if (XactReadOnly && !session->is_local_temp)
		PreventCommandIfReadOnly("next_id()");
	PreventCommandIfParallelMode("next_id()");

	if (take_cached(session, epoch, &slot))
		return slot;

	/*
	 * Pacing.  Whoever must wait first gets the right to open the next
	 * millisecond, so that waiting sessions together open one each time, not
	 * one each; and looks again, since the session before may have opened
	 * enough.  The page is never locked meanwhile.
	 */
	for (;;)
	{
		lock_page(&page, pin_page(session), BUFFER_LOCK_EXCLUSIVE);
		state = page_state(&page);

		/*
		 * The clock is read under the page's lock: read before, it could be
		 * older than the slot that another session takes meanwhile.  That
		 * would still be safe, but would waste the newer millisecond.
		 */
		now = GetCurrentTimestamp();
		note_clock(now);
		choice = slot_choose(state, session->rules, now - epoch, may_open);

		if (choice.verdict == SLOT_TAKE &&
			(may_start || !session->is_rewritten ||
			 !slot_is_forgotten(state, now - epoch)))
			break;

		LockBuffer(page.buffer, BUFFER_LOCK_UNLOCK);

		if (choice.verdict == SLOT_TAKE)
		{
			wait_us((MS_AHEAD_MAX + 1) * 1000);
			may_start = true;
		}
		else if (choice.verdict != SLOT_WAIT)
			report_refusal(choice.verdict, seqid, state, session->rules, now, epoch);
		else if (!is_opener)
		{
			opening_tag(&opening, seqid);
			(void) LockAcquire(&opening, ExclusiveLock, false, false);
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
	 * moves it after we asked then finds the page dirty, and waits for our
	 * lock to write what we leave there; one that moved it before makes us
	 * log.
	 */
	if (!page_is_dirty(&page))
		MarkBufferDirty(page.buffer);

	if (session->needs_wal)
	{
		/*
		 * Log when the last record is before the redo point, since recovery
		 * may start behind it.  And once for each session and file: the file
		 * may be a copy whose log_cnt tells of another file's log (CREATE
		 * DATABASE copies pages, ALTER SEQUENCE SET LOGGED tuples).
		 */
		cover = slot_cover(state, session->rules, choice.last,
						   session->logged_file != LOCATOR_FILE(session->locator) ||
						   PageGetLSN(page.page) <= GetRedoRecPtr());

		/*
		 * A transaction id makes our commit wait for the record's flush, and
		 * for synchronous standbys.  (Get it here, outside the critical
		 * section.)
		 */
		if (cover.must_log)
			GetTopTransactionId();
		else
			join_reservation(PageGetLSN(page.page));
	}
	/* Else claim no cover, in case the file ever becomes logged. */

	write_page(session->locator, &page, choice.last, &cover);
	LockBuffer(page.buffer, BUFFER_LOCK_UNLOCK);

	if (cover.must_log)
		session->logged_file = LOCATOR_FILE(session->locator);
	if (is_opener)
		LockRelease(&opening, ExclusiveLock, false);

	session->cached_next = choice.first + session->rules.increment;
	session->cached_last = choice.last;
	session->cached_from = now;
	session->cached_until = Min(now + CACHED_FOR_US,
								epoch + (slot_ms(choice.first) + 1) * 1000);
	session->cached_epoch = epoch;

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
	SessionSequence *session = session_sequence(seqid);
	Relation	rel;
	TimestampTz now;
	SequencePage page;
	SlotRules	rules;
	SlotState	state = {slot, 0, true};

	if (session->lxid != MY_LXID)
		lock_sequence(session);
	rel = open_sequence(seqid);
	check_sequence_acl(rel, ACL_UPDATE);
	if (!rel->rd_islocaltemp)
		PreventCommandIfReadOnly("advance()");
	PreventCommandIfParallelMode("advance()");

	/*
	 * The clock is read after the wait for the lock: behind it, a restart may
	 * have forgotten ids that are later than the call's begin.
	 */
	now = GetCurrentTimestamp();

	/* What next_id() would refuse to go on from must not get there. */
	rules = read_rules(rel);
	if (slot_ms(slot) >= MS_LAST_GENERATED)
		report_refusal(SLOT_EXHAUSTED, seqid, state, rules, now, epoch);
	if (now < epoch)
		report_refusal(SLOT_BEFORE_EPOCH, seqid, state, rules, now, epoch);
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
		report_refusal(SLOT_OVER_MAXVALUE, seqid, state, rules, now, epoch);

	drop_cached(session);
	lock_page(&page, ReadBuffer(rel, 0), BUFFER_LOCK_EXCLUSIVE);
	state = page_state(&page);

	/* The ids that a restart has forgotten must not be issued again. */
	if (is_rewritten(rel) && slot_is_forgotten(state, now - epoch))
		slot = Min(Max(slot, slot_pack((now - epoch) / 1000 + MS_AHEAD_MAX, SEQ_MAX)),
				   rules.max_slot);

	if (!state.is_called || state.last < slot)
	{
		/* Logged as it is, without cover: the next call will log again. */
		SlotCover	cover = {RelationNeedsWAL(rel), slot, 0};

		if (cover.must_log)
			GetTopTransactionId();
		MarkBufferDirty(page.buffer);
		write_page(REL_LOCATOR(rel), &page, slot, &cover);
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
	Relation	rel;
	SequencePage page;
	SlotState	state;

	LockRelationOid(seqid, AccessShareLock);
	rel = open_sequence(seqid);
	check_sequence_acl(rel, ACL_SELECT | ACL_USAGE | ACL_UPDATE);

	if (RecoveryInProgress() && rel->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot access temporary or unlogged sequences during recovery")));

	lock_page(&page, ReadBuffer(rel, 0), BUFFER_LOCK_SHARE);
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

		/* All that acl.c, the sequence and its rules depend on. */
		CacheRegisterRelcacheCallback(invalidate_relation, (Datum) 0);
		CacheRegisterSyscacheCallback(SEQRELID, invalidate_facts, (Datum) 0);
		CacheRegisterSyscacheCallback(AUTHOID, invalidate_facts, (Datum) 0);
		CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, invalidate_facts, (Datum) 0);
		CacheRegisterSyscacheCallback(DATABASEOID, invalidate_facts, (Datum) 0);

		RegisterXactCallback(at_xact_end, NULL);
		RegisterSubXactCallback(at_subxact_event, NULL);
	}

	session = hash_search(session_sequences, &seqid, HASH_ENTER, &found);
	if (!found)
	{
		MemSet(session, 0, sizeof(SessionSequence));
		session->relid = seqid;
		drop_cached(session);
	}
	return session;
}

static void
invalidate_facts(Datum arg, int cacheid, uint32 hashvalue)
{
	catalog_generation++;
}

static void
invalidate_relation(Datum arg, Oid relid)
{
	SessionSequence *session;

	if (!OidIsValid(relid))
	{
		catalog_generation++;
		return;
	}
	session = hash_search(session_sequences, &relid, HASH_FIND, NULL);
	if (session != NULL)
		session->facts_from = 0;
}

/*
 * Lock a sequence to the end of the transaction, as nextval does: an ALTER
 * SEQUENCE waits for us, and a reader can see who may still commit a smaller
 * id.  Taking the lock also reads the invalidation messages.
 */
static void
lock_sequence(SessionSequence *session)
{
	ResourceOwner current;

	/* The top transaction owns it: a rolled back savepoint keeps it. */
	current = CurrentResourceOwner;
	CurrentResourceOwner = TopTransactionResourceOwner;
	LockRelationOid(session->relid, RowExclusiveLock);
	CurrentResourceOwner = current;
	watch_clock();
	session->lxid = MY_LXID;

	/* Another transaction's cached slots: it waits for their log, not we. */
	drop_cached(session);
}

/* Read from the catalogs what a call needs, and check the privilege. */
static void
learn_facts(SessionSequence *session)
{
	Relation	rel = open_sequence(session->relid);

	/*
	 * Set first, so that a message that arrives while we read is not lost: a
	 * REVOKE takes no lock.  Facts without a user are never used.
	 *
	 * With wal_level = minimal, needs_wal changes at the end of the
	 * transaction that created the file, and no message tells.
	 */
	session->userid = InvalidOid;
	session->facts_from = XLogIsNeeded() ? catalog_generation : 0;

	check_sequence_acl(rel, ACL_USAGE | ACL_UPDATE);

	if (!LOCATOR_EQUALS(session->locator, REL_LOCATOR(rel)))
	{
		if (pinned == session)
			unpin_page();
		session->locator = REL_LOCATOR(rel);
		session->buffer = InvalidBuffer;
		drop_cached(session);
	}
	session->rules = read_rules(rel);
	session->is_local_temp = rel->rd_islocaltemp;
	session->needs_wal = RelationNeedsWAL(rel);
	session->is_rewritten = is_rewritten(rel);
	session->userid = GetUserId();

	relation_close(rel, NoLock);
}

/* Open a sequence that is locked already. */
static Relation
open_sequence(Oid seqid)
{
	Relation	rel = try_relation_open(seqid, NoLock);

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
	rules.cache = form->seqcache;
	rules.start = form->seqstart;
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
						 sequence_name(RelationGetRelid(rel)))));
	return rules;
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

static void
drop_cached(SessionSequence *session)
{
	session->cached_next = 1;
	session->cached_last = 0;
}

/*
 * Serve a call from the slots that this transaction took ahead, if their
 * millisecond isn't over and they aren't old.  A clock that went back makes
 * them old, too.
 */
static bool
take_cached(SessionSequence *session, TimestampTz epoch, int64 *slot)
{
	TimestampTz now;

	if (session->cached_next > session->cached_last)
		return false;

	now = GetCurrentTimestamp();
	if (now < session->cached_from || now >= session->cached_until ||
		epoch != session->cached_epoch)
	{
		drop_cached(session);
		return false;
	}

	*slot = session->cached_next;
	session->cached_next += session->rules.increment;
	return true;
}

/*
 * Pin the page of a sequence.  The page of the last one used stays pinned
 * until the (sub)transaction ends, since pinning is much of a call's cost; one
 * page, however many sequences a transaction uses.
 */
static Buffer
pin_page(SessionSequence *session)
{
	ResourceOwner current = CurrentResourceOwner;

	if (pinned == session)
		return session->buffer;

	unpin_page();
	if (!BufferIsValid(session->buffer) ||
		!ReadRecentBuffer(session->locator, MAIN_FORKNUM, 0, session->buffer))
	{
		Relation	rel = relation_open(session->relid, NoLock);

		session->buffer = InvalidBuffer;
		session->buffer = ReadBuffer(rel, 0);
		relation_close(rel, NoLock);
	}

	/* Read for the subtransaction, which would clean up; kept for the top. */
	CurrentResourceOwner = TopTransactionResourceOwner;
	IncrBufferRefCount(session->buffer);
	CurrentResourceOwner = current;
	ReleaseBuffer(session->buffer);
	pinned = session;

	return session->buffer;
}

static void
unpin_page(void)
{
	ResourceOwner current = CurrentResourceOwner;

	if (pinned == NULL)
		return;

	CurrentResourceOwner = TopTransactionResourceOwner;
	ReleaseBuffer(pinned->buffer);
	CurrentResourceOwner = current;

	/* A local buffer can't be found again by its number in all versions. */
	if (pinned->is_local_temp)
		pinned->buffer = InvalidBuffer;
	pinned = NULL;
}

static void
at_xact_end(XactEvent event, void *arg)
{
	unpin_page();
	if (event == XACT_EVENT_PRE_PREPARE)
	{
		HASH_SEQ_STATUS scan;
		SessionSequence *session;

		hash_seq_init(&scan, session_sequences);
		while ((session = hash_seq_search(&scan)) != NULL)
			if (session->lxid == MY_LXID)
				leave_start(session->relid);
	}
}

/* The file can be one that only this subtransaction has made. */
static void
at_subxact_event(SubXactEvent event, SubTransactionId id,
				 SubTransactionId parent, void *arg)
{
	if (event != SUBXACT_EVENT_START_SUB)
		unpin_page();
}

/* Lock the pinned page of a sequence, and find its tuple. */
static void
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
 * Is the exclusively locked page dirty already?  A page is written under a
 * share lock, so it stays dirty while we hold ours.
 */
static bool
page_is_dirty(const SequencePage *page)
{
	return !BufferIsLocal(page->buffer) &&
		(pg_atomic_read_u32(&GetBufferDescriptor(page->buffer - 1)->state) & BM_DIRTY) != 0;
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
write_page(RelFileLocator locator, SequencePage *page, int64 last,
		   const SlotCover *cover)
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

		SEQ_REC_LOCATOR(xlrec) = locator;

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
 * Is everything up to lsn flushed, and confirmed by the synchronous standbys?
 * Whether our commit waits for that is decided by synchronous_commit then, not
 * now.
 */
static bool
reservation_is_durable(XLogRecPtr lsn)
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

/*
 * The right to open a sequence's next millisecond, as a lock: nothing else
 * locks pages of a sequence in the lock manager.
 */
static void
opening_tag(LOCKTAG *tag, Oid seqid)
{
	SET_LOCKTAG_PAGE(*tag, MyDatabaseId, seqid, 0);
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
sequence_name(Oid seqid)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(seqid)),
									  get_rel_name(seqid));
}

/*
 * Raise the error of a closed shard, if the sequence belongs to one:
 * fence_shard() closes a sequence by its MAXVALUE.
 *
 * The journal is read as it is now: the caller's snapshot may be from before
 * the fence that it has waited for.
 */
static void
refuse_if_fenced(Oid seqid)
{
	Oid			argtypes[1] = {REGCLASSOID};
	Oid			function = LookupFuncName(list_make2(makeString(pstrdup("snowid")),
													 makeString(pstrdup("refuse_id"))),
										  1, argtypes, true);

	if (!OidIsValid(function))
		return;
	PushActiveSnapshot(GetLatestSnapshot());
	(void) OidFunctionCall1(function, ObjectIdGetDatum(seqid));
	PopActiveSnapshot();
}

/* Say why there is no slot, and what to do about it. */
static void
report_refusal(SlotVerdict verdict, Oid seqid, SlotState state,
			   SlotRules rules, TimestampTz now, TimestampTz epoch)
{
	char	   *name = get_rel_name(seqid);
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
							 sequence_name(seqid))));
			break;
		case SLOT_OVER_MAXVALUE:
			{
				bool		is_narrow = rules.max_slot <= PG_INT32_MAX;

				refuse_if_fenced(seqid);
				ereport(ERROR,
						(errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
						 errmsg("reached maximum value of sequence \"%s\" (%lld)",
								name, (long long) rules.max_slot),
						 errdetail("The sequence keeps the time of its last id in last_value, which needs a bigint."),
						 errhint("Type: ALTER SEQUENCE %s%s NO MAXVALUE;",
								 sequence_name(seqid),
								 is_narrow ? " AS bigint" : "")));
				break;
			}
		case SLOT_TAKE:
		case SLOT_WAIT:
			break;
	}
	elog(ERROR, "unexpected slot verdict: %d", (int) verdict);
}
