/*
 * A sequence as a clock: takes slots from its page.  The log is always ahead
 * of the page, for all sequences of the database at once.
 *
 * sequence_next_slot() is nextval_internal() of PostgreSQL's sequence.c with
 * other arithmetic, and follows it step by step: relation lock to the end of
 * the transaction, permissions, page lock, decision, transaction id, critical
 * section, dirty, log, LSN.
 *
 * What to take and whether to wait is decided in slot.h.  This file reads the
 * time and does the steps in the order that the promise needs; what the log
 * has reserved is in reservation.c, what a session keeps between calls in
 * seq_session.c, the page and its log in seq_page.c, the errors in
 * seq_refusal.c.
 *
 * It returns no slot unless it is sure of it.  A call that fails leaves the
 * page as it was.
 */
#include "postgres.h"

#include <time.h>

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
#include "clock.h"
#include "compat.h"
#include "reservation.h"
#include "seq_catalog.h"
#include "seq_page.h"
#include "seq_refusal.h"
#include "seq_session.h"
#include "sequence.h"
#include "setting.h"
#include "xact_start.h"

/*
 * A session that opens one millisecond after the other sleeps so much longer than
 * it must, and opens several then without waiting.  Others open them meanwhile.
 */
#define NAP_US			4000

/* The longest sleep that no signal need end. */
#define SLEEP_MAX_US	10000

/* The LSN of no page, not even of one without a log. */
#define NO_RECORD		PG_UINT64_MAX

/* A call that takes slots: what it has read, and what it decides. */
typedef struct Taking
{
	TimestampTz floor;			/* no slot is below it */
	TimestampTz now;
	SequencePage page;			/* locked */
	SlotState	state;
	SlotChoice	choice;
	TimestampTz last;			/* when the last slot is */
	int			cover;			/* SlotCover */
	XLogRecPtr	redo;
} Taking;

static void choose_and_lock(SessionSequence *session, TimestampTz epoch, Taking *taking);
static TimestampTz floor_of(SessionSequence *session, TimestampTz epoch);
static TimestampTz forgotten_floor(bool is_local_temp);
static TimestampTz time_for_slots(SlotState state, SlotRules rules, TimestampTz epoch);
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
	Taking		taking;
	SlotState	next = {0, true, false};
	int64		logged_last;
	bool		must_log = false;
	int64		slot;

	if (session == NULL || session->relid != seqid)
		*call_cache = session = session_sequence(seqid);

	ensure_locked(session);
	epoch = ensure_catalog_state(session, shard, epoch);

	/* As for nextval: read-only transactions may use temporary sequences. */
	if (XactReadOnly && !session->is_local_temp)
		PreventCommandIfReadOnly("next_id()");
	PreventCommandIfParallelMode("next_id()");

	if (take_cached(session, epoch, &slot))
		return slot;

	choose_and_lock(session, epoch, &taking);
	next.last = logged_last = taking.choice.last;

	/*
	 * Our commit must wait for the record that covers our slots.  It does so
	 * if the transaction has an id; get it before the critical section.
	 */
	if (taking.cover & (COVER_FIRST | COVER_ALONE))
	{
		GetTopTransactionId();
		must_log = true;
		if (taking.cover & COVER_ALONE)
			logged_last = slot_ahead(session->rules, next.last);
	}
	else if (taking.cover & COVER_RESERVED)
	{
		join_record(reserved().lsn);
		/* The first change after a redo point is logged, as of any page. */
		must_log = session->needs_wal && PageGetLSN(taking.page.page) <= taking.redo;
	}
	else if (taking.cover & COVER_OWN)
		join_record(session->own.lsn);

	write_page(session->locator, &taking.page, next, must_log ? &logged_last : NULL);
	if (taking.cover & COVER_ALONE)
	{
		session->own.bound = logged_last;
		session->own.lsn = PageGetLSN(taking.page.page);
	}
	LockBuffer(taking.page.buffer, BUFFER_LOCK_UNLOCK);

	if ((taking.cover & COVER_RESERVED) && is_reserved_short(taking.last))
		reserve(taking.last, taking.now, InvalidXLogRecPtr, RESERVE_EARLY);

	cache_rest(session, taking.choice, taking.now, epoch);
	return taking.choice.first;
}

/* The epoch of the slots that a call site has taken. */
TimestampTz
sequence_last_epoch(void *call_cache)
{
	return ((SessionSequence *) call_cache)->epoch;
}

/*
 * Choose slots that may be taken now, and find what covers them; the page stays
 * locked.
 *
 * Pacing: a session that must wait first gets the right to open the next
 * millisecond of the sequence.  So the sessions that wait open one at a time, not
 * one each.  Then it looks again, since the session before may have opened enough.
 * The page is not locked while it waits, nor while it reserves.
 */
static void
choose_and_lock(SessionSequence *session, TimestampTz epoch, Taking *taking)
{
	Right		opening;		/* the right to open a millisecond */
	Right		pushing;		/* ... to reserve beyond the clock */
	bool		has_napped = false;
	bool		may_open = false;	/* have we waited, with the right to? */
	bool		has_reserved = false;
	XLogRecPtr	set_at = NO_RECORD; /* the floor is above all before it */

	opening.is_held = pushing.is_held = false;
	taking->floor = floor_of(session, epoch);

	for (;;)
	{
		XLogRecPtr	page_lsn;

		lock_page(&taking->page, ensure_pinned(session), BUFFER_LOCK_EXCLUSIVE);
		taking->state = page_state(&taking->page, session->rules.start);
		page_lsn = PageGetLSN(taking->page.page);

		if (unlikely(taking->state.is_id) && set_at != page_lsn)
		{
			LockBuffer(taking->page.buffer, BUFFER_LOCK_UNLOCK);
			taking->floor = Max(taking->floor, forgotten_floor(session->is_local_temp));
			set_at = page_lsn;
			continue;
		}

		/*
		 * The clock is read under the page's lock.  A reading from before the
		 * lock could be older than a slot that another session took
		 * meanwhile.  Ids would still be right, but would fall behind the
		 * clock.
		 */
		taking->now = time_for_slots(taking->state, session->rules, epoch);
		taking->choice = slot_choose(taking->state, session->rules, taking->floor - epoch,
									 taking->now - epoch, may_open);
		taking->last = epoch + slot_ms(taking->choice.last) * 1000;

		if (taking->choice.verdict == SLOT_TAKE)
		{
			/*
			 * Dirty the page before asking for the redo point.  A checkpoint
			 * that moves the redo point after we asked then finds the page
			 * dirty, waits for our lock, and writes what we leave there.  One
			 * that moved it before we asked makes us log.
			 */
			if (!page_is_dirty(&taking->page))
				MarkBufferDirty(taking->page.buffer);
			taking->redo = GetRedoRecPtr();
			taking->cover = session->is_local_temp ? COVER_NO_LOG :
				slot_cover(session->needs_wal &&
						   slot_is_forgotten(taking->state, taking->now - epoch),
						   taking->choice.last, taking->last, page_lsn, taking->redo,
						   reserved(), session->own);
			if (taking->cover == COVER_NONE && has_reserved)
				taking->cover = session->needs_wal ? COVER_ALONE : COVER_NO_LOG;
			if (taking->cover != COVER_NONE)
				break;
		}

		LockBuffer(taking->page.buffer, BUFFER_LOCK_UNLOCK);

		if (taking->choice.verdict == SLOT_TAKE)
		{
			reserve(taking->last, taking->now, page_lsn,
					pushing.is_held ? RESERVE_PUSH : RESERVE_NOW);
			taking->floor = Max(taking->floor, reserved_floor());
			has_reserved = true;
		}
		else if (taking->choice.verdict != SLOT_WAIT)
			refuse_slot(taking->choice.verdict, session->relid, taking->choice.first,
						session->rules, taking->now, epoch);
		else if (!has_napped && taking->state.last == session->last_taken &&
				 taking->choice.wait_us <= 1000)
		{
			wait_us(taking->choice.wait_us + NAP_US);
			has_napped = true;
		}
		else if (!opening.is_held)
			take_right(&opening, session->relid);
		else
		{
			if (!session->is_local_temp && !pushing.is_held &&
				taking->last >= reserved().bound)
				take_push(&pushing, taking->last, taking->now);
			wait_us(taking->choice.wait_us);
			may_open = true;
		}
	}
	give_back(&pushing);
	give_back(&opening);
}

/*
 * The time below which a sequence gives no slot: all that a crash or a restart
 * may have forgotten.
 *
 * A restarted sequence is looked at once, when its catalog state has been read:
 * what was reserved by then is above all that it gave before.
 */
static TimestampTz
floor_of(SessionSequence *session, TimestampTz epoch)
{
	TimestampTz floor = session->is_local_temp ? epoch : reserved_floor();

	if (unlikely(session->is_rewritten))
	{
		SequencePage page;
		TimestampTz now = GetCurrentTimestamp();
		bool		is_forgotten;

		lock_page(&page, ensure_pinned(session), BUFFER_LOCK_SHARE);
		is_forgotten = slot_is_forgotten(page_state(&page, session->rules.start), now - epoch);
		LockBuffer(page.buffer, BUFFER_LOCK_UNLOCK);
		if (is_forgotten)
			session->floor = forgotten_floor(session->is_local_temp);
		session->is_rewritten = now < epoch;
	}
	return Max(floor, session->floor);
}

/*
 * A time above all that a sequence may have issued, by what is known after its
 * page was seen.
 */
static TimestampTz
forgotten_floor(bool is_local_temp)
{
	TimestampTz now = GetCurrentTimestamp();

	return forgotten_until(is_local_temp ? now : reservation_see().reserved, now);
}

/*
 * Make every later slot larger than the given one.  Never moves back.
 *
 * It is logged with all that is known of the sequence.  So whoever reads its
 * page then, as pg_dump does, needs no reservation.
 *
 * Needs UPDATE on the sequence, as setval does.
 */
void
sequence_advance(Oid seqid, int64 slot, TimestampTz epoch)
{
	SessionSequence *session = session_sequence(seqid);
	Relation	rel;
	TimestampTz floor;
	TimestampTz now;
	SequencePage page;
	SlotRules	rules;
	SlotState	state;
	SlotAdvance next;
	XLogRecPtr	set_at = NO_RECORD;

	ensure_locked(session);
	rel = open_sequence(seqid);
	check_sequence_acl(rel, ACL_UPDATE);
	(void) citus_check_sequence(rel, snowid_shard);
	if (!rel->rd_islocaltemp)
		PreventCommandIfReadOnly("advance()");
	PreventCommandIfParallelMode("advance()");
	rules = read_rules(rel);
	epoch = check_sequence_epoch(rel, epoch, NULL);
	floor = rel->rd_islocaltemp ? epoch : reserved_floor();
	drop_cached(session);
	if (RelationNeedsWAL(rel))
		GetTopTransactionId();

	/* What we have waited for may have set the sequence ahead meanwhile. */
	for (;;)
	{
		now = GetCurrentTimestamp();
		lock_page(&page, ReadBuffer(rel, 0), BUFFER_LOCK_EXCLUSIVE);
		state = page_state(&page, rules.start);
		if (!state.is_id || set_at == PageGetLSN(page.page))
			break;
		set_at = PageGetLSN(page.page);
		UnlockReleaseBuffer(page.buffer);
		floor = Max(floor, forgotten_floor(rel->rd_islocaltemp));
	}
	next = slot_advance(state, rules, is_rewritten(rel), slot,
						floor - epoch, now - epoch);
	if (next.verdict == SLOT_TAKE)
	{
		MarkBufferDirty(page.buffer);
		write_page(REL_LOCATOR(rel), &page, next.state,
				   RelationNeedsWAL(rel) ? &next.state.last : NULL);
	}
	UnlockReleaseBuffer(page.buffer);
	if (next.verdict == SLOT_TOO_FAR_AHEAD)
		refuse_advance(seqid, slot, now, epoch);
	if (next.verdict != SLOT_TAKE)
		refuse_slot(next.verdict, seqid,
					next.verdict == SLOT_FLOOR_TOO_FAR ? slot_floor(floor - epoch) :
					next.verdict == SLOT_SET_TOO_FAR ? state.last : slot,
					rules, now, epoch);
	relation_close(rel, NoLock);
}

/*
 * Read the state of a sequence and change nothing; also on a standby.
 *
 * Its last slot may never have been issued: a crash can have forgotten which
 * was the last, and a standby does not know it.
 *
 * Needs any of SELECT, USAGE and UPDATE on the sequence; with makes_ids, also
 * that this node may make ids of the epoch from it.  OWN_EPOCH becomes the
 * sequence's.
 */
SlotState
sequence_read(Oid seqid, TimestampTz *epoch, bool makes_ids)
{
	Relation	rel;
	SequencePage page;
	SlotState	state;

	LockRelationOid(seqid, AccessShareLock);
	rel = open_sequence(seqid);
	check_sequence_acl(rel, ACL_SELECT | ACL_USAGE | ACL_UPDATE);
	if (makes_ids)
	{
		refuse_reservation(seqid);
		(void) citus_check_sequence(rel, snowid_shard);
		*epoch = check_sequence_epoch(rel, *epoch, NULL);
	}
	if (RecoveryInProgress() && rel->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot access temporary or unlogged sequences during recovery")));

	lock_page(&page, ReadBuffer(rel, 0), BUFFER_LOCK_SHARE);
	state.last = page.data->last_value;
	state.is_called = page.data->is_called;
	state.is_id = false;
	if (makes_ids)
		state = slot_state(state.last, state.is_called, state.last);
	UnlockReleaseBuffer(page.buffer);
	if (!rel->rd_islocaltemp || state.is_id)
	{
		TimestampTz now = GetCurrentTimestamp();
		TimestampTz floor = state.is_id ? forgotten_floor(rel->rd_islocaltemp) :
		reservation_see().floor;

		state = slot_known(state, floor - *epoch, now - *epoch);
	}
	relation_close(rel, AccessShareLock);

	return state;
}

/*
 * Read the time at which the next slots are taken.
 *
 * In bulk, slots are ahead of the clock, and follow the last ones whatever the
 * time is.  But none is taken below the time that safe_upper_id() relies on.
 */
static TimestampTz
time_for_slots(SlotState state, SlotRules rules, TimestampTz epoch)
{
	TimestampTz now;

	if (slot_follows(state, rules, lowest_clock - epoch) &&
		clock_is_before(epoch + slot_ms(state.last) * 1000))
		return clock_reading.at;
	now = clock_read();
	xact_start_check(now);
	return now;
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
		pg_usleep(Min(left, SLEEP_MAX_US));
		pgstat_report_wait_end();
	}
}
