/*
 * A sequence as a clock: takes slots from its page.  The log is always ahead
 * of the page.
 *
 * sequence_next_slot() is nextval_internal() of PostgreSQL's sequence.c with
 * other arithmetic, and follows it step by step: relation lock to the end of
 * the transaction, permissions, page lock, decision, transaction id, critical
 * section, dirty, log, LSN.
 *
 * What to take, whether to wait and what to log is decided in slot.h.  This
 * file reads the clock and does the steps in the order that the promise needs;
 * what a session keeps between calls is in seq_session.c, the page and its log
 * in seq_page.c, the errors in seq_refusal.c.
 *
 * It returns no slot unless it is sure of it.  A call that fails leaves the
 * page as it was.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "citus.h"
#include "compat.h"
#include "seq_catalog.h"
#include "seq_page.h"
#include "seq_refusal.h"
#include "seq_session.h"
#include "sequence.h"
#include "setting.h"
#include "xact_start.h"

static void opening_tag(LOCKTAG *tag, Oid seqid);
static void wait_us(int64 us);


/*
 * Take the next slots of a sequence, as many as its INCREMENT says, and
 * return the first of them.
 *
 * Needs USAGE or UPDATE on the sequence, and a transaction that may write.
 * *call_cache must be NULL on the first call; the caller keeps it for the next
 * one, as its fn_extra.  The shard matters on nodes of Citus only.
 */
int64
sequence_next_slot(Oid seqid, int32 shard, TimestampTz epoch, void **call_cache)
{
	SessionSequence *session = *call_cache;
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
		*call_cache = session = session_sequence(seqid);

	ensure_locked(session);
	ensure_catalog_state(session, shard);

	/* As for nextval: read-only transactions may use temporary sequences. */
	if (XactReadOnly && !session->is_local_temp)
		PreventCommandIfReadOnly("next_id()");
	PreventCommandIfParallelMode("next_id()");

	if (take_cached(session, epoch, &slot))
		return slot;

	/*
	 * Pacing.  A session that must wait first gets the right to open the next
	 * millisecond, so that the sessions that wait open one at a time, not one
	 * each.  Then it looks again, since the session before may have opened
	 * enough.  The page is not locked while it waits.
	 */
	for (;;)
	{
		lock_page(&page, ensure_pinned(session), BUFFER_LOCK_EXCLUSIVE);
		state = page_state(&page);

		/*
		 * The clock is read under the page's lock.  A reading from before the
		 * lock could be older than a slot that another session took
		 * meanwhile.  Ids would still be right, but would fall behind the
		 * clock.
		 */
		now = GetCurrentTimestamp();
		xact_start_check(now);
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
			refuse_slot(choice.verdict, seqid, state, session->rules, now, epoch);
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
	 * moves the redo point after we asked then finds the page dirty, waits
	 * for our lock, and writes what we leave there.  One that moved it before
	 * we asked makes us log.
	 */
	if (!page_is_dirty(&page))
		MarkBufferDirty(page.buffer);

	if (session->needs_wal)
	{
		/*
		 * Log when the last record is before the redo point, since recovery
		 * may start after that record.  And log once for each session and
		 * file: the file may be a copy, whose log_cnt is about the log of the
		 * original (CREATE DATABASE copies pages, ALTER SEQUENCE SET LOGGED
		 * tuples).
		 */
		cover = slot_cover(state, session->rules, choice.last,
						   session->logged_file != LOCATOR_FILE(session->locator) ||
						   PageGetLSN(page.page) <= GetRedoRecPtr());

		/*
		 * A transaction id makes our commit wait for the record's flush, and
		 * for synchronous standbys.  Get it here, before the critical
		 * section.
		 */
		if (cover.must_log)
			GetTopTransactionId();
		else
			join_reservation(PageGetLSN(page.page));
	}
	/* Without a log there is no cover; the file may become logged later. */

	write_page(session->locator, &page, choice.last, &cover);
	LockBuffer(page.buffer, BUFFER_LOCK_UNLOCK);

	if (cover.must_log)
		session->logged_file = LOCATOR_FILE(session->locator);
	if (is_opener)
		LockRelease(&opening, ExclusiveLock, false);

	cache_rest(session, choice, now, epoch);
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

	ensure_locked(session);
	rel = open_sequence(seqid);
	check_sequence_acl(rel, ACL_UPDATE);
	(void) citus_check_sequence(rel, snowid_shard);
	if (!rel->rd_islocaltemp)
		PreventCommandIfReadOnly("advance()");
	PreventCommandIfParallelMode("advance()");

	/*
	 * Read the clock after the wait for the lock.  What we waited for may be
	 * a restart, which forgets ids that are later than the begin of this
	 * call.
	 */
	now = GetCurrentTimestamp();

	/* Refuse a state that next_id() would then refuse to go on from. */
	rules = read_rules(rel);
	if (slot_ms(slot) >= MS_LAST_GENERATED)
		refuse_slot(SLOT_EXHAUSTED, seqid, state, rules, now, epoch);
	if (now < epoch)
		refuse_slot(SLOT_BEFORE_EPOCH, seqid, state, rules, now, epoch);
	if (slot_ms(slot) > (now - epoch) / 1000 + MS_AHEAD_SANE)
		refuse_advance(seqid, slot, now, epoch);
	if (slot > rules.max_slot)
		refuse_slot(SLOT_OVER_MAXVALUE, seqid, state, rules, now, epoch);

	drop_cached(session);
	lock_page(&page, ReadBuffer(rel, 0), BUFFER_LOCK_EXCLUSIVE);
	state = page_state(&page);

	/* Stay above the ids that a restart has forgotten. */
	if (is_rewritten(rel) && slot_is_forgotten(state, now - epoch))
		slot = Min(Max(slot, slot_pack((now - epoch) / 1000 + MS_AHEAD_MAX, SEQ_MAX)),
				   rules.max_slot);

	if (!state.is_called || state.last < slot)
	{
		/* Logged as it is, without cover, so the next call logs again. */
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
 * Needs any of SELECT, USAGE and UPDATE on the sequence; with makes_ids, also
 * that this node may make ids from it.
 */
SlotState
sequence_read(Oid seqid, bool makes_ids)
{
	Relation	rel;
	SequencePage page;
	SlotState	state;

	LockRelationOid(seqid, AccessShareLock);
	rel = open_sequence(seqid);
	check_sequence_acl(rel, ACL_SELECT | ACL_USAGE | ACL_UPDATE);
	if (makes_ids)
		(void) citus_check_sequence(rel, snowid_shard);

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

/*
 * The right to open a sequence's next millisecond is a lock on its page in the
 * lock manager, where nothing else locks pages of sequences.
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
