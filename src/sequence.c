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
 * So often a call tries to have its slots reserved, while others log the page
 * of the sequence, before it goes alone.
 */
#define MAX_MOVES			3

static TimestampTz read_clock(SlotState state, SlotRules rules, TimestampTz epoch);
#ifdef __linux__
static int64 coarse_lag_us(void);
#endif
static void opening_tag(LOCKTAG *tag, Oid seqid);
static void wait_for_floor(TimestampTz floor);
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
	TimestampTz floor = epoch;
	TimestampTz now;
	TimestampTz last = 0;		/* when our last slot is */
	XLogRecPtr	redo = InvalidXLogRecPtr;
	XLogRecPtr	logged = InvalidXLogRecPtr; /* the page's last record */
	int64		slot;
	LOCKTAG		opening;
	bool		is_opener = false;	/* do we hold the right to open? */
	bool		may_open = false;	/* ... and have we waited for it? */
	bool		may_start = false;	/* have we let forgotten ids pass? */
	int			moves_left = MAX_MOVES; /* of the clock, by this call */
	bool		is_covered;		/* does the clock reserve our slots? */
	bool		is_logged;		/* ... or have we logged them for ourselves, */
	bool		must_log;		/* ... or do so now? */
	int64		logged_last;

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

	/* An unlogged sequence may have been a logged one before a crash. */
	if (!session->is_local_temp)
	{
		ensure_reservation();
		floor = session_reservation.floor;
		if (!session->needs_wal)
			wait_for_floor(floor);
	}

	/*
	 * Pacing.  A session that must wait first gets the right to open the next
	 * millisecond, so that the sessions that wait open one at a time, not one
	 * each.  Then it looks again, since the session before may have opened
	 * enough.  The page is not locked while it waits, nor while it moves the
	 * clock.
	 */
	for (;;)
	{
		bool		starts_early;

		lock_page(&page, ensure_pinned(session), BUFFER_LOCK_EXCLUSIVE);
		state = page_state(&page);

		/*
		 * The clock is read under the page's lock.  A reading from before the
		 * lock could be older than a slot that another session took
		 * meanwhile.  Ids would still be right, but would fall behind the
		 * clock.
		 */
		now = read_clock(state, session->rules, epoch);
		choice = slot_choose(state, session->rules, floor - epoch, now - epoch,
							 may_open);
		starts_early = !may_start && session->is_rewritten &&
			(choice.verdict == SLOT_TAKE || choice.verdict == SLOT_WAIT) &&
			slot_is_forgotten(state, now - epoch);

		if (choice.verdict == SLOT_TAKE && !starts_early)
		{
			/*
			 * Dirty the page before asking for the redo point.  A checkpoint
			 * that moves the redo point after we asked then finds the page
			 * dirty, waits for our lock, and writes what we leave there.  One
			 * that moved it before we asked makes us log.
			 */
			if (!page_is_dirty(&page))
				MarkBufferDirty(page.buffer);
			redo = GetRedoRecPtr();

			/*
			 * Replay of a later record of this page would set it back below
			 * what it issues from now on.  So the reservation must be after
			 * that record, too: the redo point that we see may be an old one,
			 * in whose place a checkpoint has already chosen another.
			 */
			last = epoch + slot_ms(choice.last) * 1000;
			is_covered = reservation_covers(last, Max(redo, PageGetLSN(page.page)));
			is_logged = choice.last <= session->logged_last &&
				PageGetLSN(page.page) == session->logged_lsn &&
				session->logged_lsn > redo;
			if (is_covered || is_logged || moves_left == 0 || !session->needs_wal)
				break;
			logged = PageGetLSN(page.page);
		}

		LockBuffer(page.buffer, BUFFER_LOCK_UNLOCK);

		if (starts_early)
		{
			wait_us(forgotten_until(floor, now) - now);
			may_start = true;
		}
		else if (choice.verdict == SLOT_TAKE)
		{
			if (!reservation_move(last, now, logged))
				moves_left = 0;
			else
				moves_left--;
			floor = session_reservation.floor;
		}
		else if (choice.verdict != SLOT_WAIT)
			refuse_slot(choice.verdict, seqid,
						choice.verdict == SLOT_FLOOR_TOO_FAR ? choice.first : state.last,
						session->rules, now, epoch);
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
	 * What the clock does not cover, the sequence logs for itself, ahead of
	 * use.  It does so, too, with its first id: from then on its page shows
	 * that it makes ids.  Our commit must wait for that record, or for the
	 * reservation that we rely on.  It does so if the transaction has an id;
	 * get it before the critical section.
	 *
	 * Without a log there is nothing to cover; the file may become logged
	 * later, and what is on the page then counts.
	 */
	must_log = session->needs_wal;
	logged_last = choice.last;
	if (!session->needs_wal)
		is_covered = false;
	else if (is_covered && !slot_is_forgotten(state, now - epoch))
	{
		join_record(session_reservation.lsn);

		/* The first change after a redo point is logged, as of any page. */
		must_log = PageGetLSN(page.page) <= redo;
	}
	else if (is_logged)
	{
		join_record(session->logged_lsn);
		must_log = false;
	}
	else
	{
		GetTopTransactionId();
		if (!is_covered)
			logged_last = slot_ahead(session->rules, choice.last);
	}

	write_page(session->locator, &page, choice.last, must_log ? &logged_last : NULL);
	if (!is_covered && must_log)
	{
		session->logged_last = logged_last;
		session->logged_lsn = PageGetLSN(page.page);
	}
	LockBuffer(page.buffer, BUFFER_LOCK_UNLOCK);

	if (is_opener)
		LockRelease(&opening, ExclusiveLock, false);
	if (is_covered && last >= session_reservation.check_from)
		reservation_move_early(last, now);

	cache_rest(session, choice, now, epoch);
	return choice.first;
}

/*
 * Make every later slot larger than the given one.  Never moves back.
 *
 * It is logged with all that is known of the sequence.  So whoever reads its
 * page then, as pg_dump does, needs no clock.
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
	SlotState	state;
	TimestampTz floor = epoch;

	ensure_locked(session);
	rel = open_sequence(seqid);
	check_sequence_acl(rel, ACL_UPDATE);
	(void) citus_check_sequence(rel, snowid_shard);
	if (!rel->rd_islocaltemp)
		PreventCommandIfReadOnly("advance()");
	PreventCommandIfParallelMode("advance()");
	if (!rel->rd_islocaltemp)
	{
		ensure_reservation();
		floor = session_reservation.floor;
	}

	/*
	 * Read the clock after the wait for the lock.  What we waited for may be
	 * a restart, which forgets ids that are later than the begin of this
	 * call.
	 */
	now = GetCurrentTimestamp();

	/* Refuse a state that next_id() would then refuse to go on from. */
	rules = read_rules(rel);
	if (slot_ms(slot) >= MS_LAST_GENERATED)
		refuse_slot(SLOT_EXHAUSTED, seqid, slot, rules, now, epoch);
	if (now < epoch)
		refuse_slot(SLOT_BEFORE_EPOCH, seqid, slot, rules, now, epoch);
	if (slot_ms(slot) > (now - epoch) / 1000 + MS_AHEAD_SANE)
		refuse_advance(seqid, slot, now, epoch);
	if (floor > now + MS_AHEAD_SANE * 1000)
		refuse_slot(SLOT_FLOOR_TOO_FAR, seqid, slot_floor(floor - epoch), rules, now, epoch);
	if (slot > rules.max_slot)
		refuse_slot(SLOT_OVER_MAXVALUE, seqid, slot, rules, now, epoch);

	drop_cached(session);
	lock_page(&page, ReadBuffer(rel, 0), BUFFER_LOCK_EXCLUSIVE);
	state = page_state(&page);

	/* Stay above the ids that a restart has forgotten. */
	if (is_rewritten(rel) && slot_is_forgotten(state, now - epoch))
		slot = Min(Max(slot, slot_floor(forgotten_until(floor, now) - epoch) - 1),
				   rules.max_slot);

	if (state.is_called)
	{
		int64		known = slot_known(state, floor - epoch, now - epoch).last;

		slot = Max(Max(slot, state.last), Min(known, rules.max_slot));
	}
	else if (slot_is_named(state, rules, now - epoch))
		slot = Max(slot, state.last - 1);

	if (RelationNeedsWAL(rel))
		GetTopTransactionId();
	MarkBufferDirty(page.buffer);
	write_page(REL_LOCATOR(rel), &page, slot, RelationNeedsWAL(rel) ? &slot : NULL);

	UnlockReleaseBuffer(page.buffer);
	relation_close(rel, NoLock);
}

/*
 * Read the state of a sequence and change nothing; also on a standby.
 *
 * Its last slot may never have been issued: a crash can have forgotten which
 * was the last, and a standby does not know it.
 *
 * Needs any of SELECT, USAGE and UPDATE on the sequence; with makes_ids, also
 * that this node may make ids from it.
 */
SlotState
sequence_read(Oid seqid, TimestampTz epoch, bool makes_ids)
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
	if (!rel->rd_islocaltemp)
		state = slot_known(state, reservation_floor() - epoch,
						   GetCurrentTimestamp() - epoch);
	relation_close(rel, AccessShareLock);

	return state;
}

/*
 * Read the time at which the next slots are taken.
 *
 * In bulk, slots are ahead of the clock, and follow the last ones whatever the
 * time is.  The kernel's coarse time is enough to see that they are ahead, and
 * costs an eighth.  But slots to be cached are kept by the time.
 */
static TimestampTz
read_clock(SlotState state, SlotRules rules, TimestampTz epoch)
{
	static TimestampTz last_read = 0;
#ifdef __linux__
	struct timespec coarse;

	if (rules.cache == 1 && slot_follows(state, rules, last_read - epoch) &&
		coarse_lag_us() > 0 && clock_gettime(CLOCK_REALTIME_COARSE, &coarse) == 0)
	{
		TimestampTz now;

		now = (coarse.tv_sec - UNIX_ZERO_S) * US_PER_S + coarse.tv_nsec / 1000;

		/* No slot is taken below the time that safe_upper_id() relies on. */
		if (slot_follows(state, rules,
						 Max(now + coarse_lag_us(), lowest_clock) - epoch))
			return now;
	}
#endif
	last_read = GetCurrentTimestamp();
	xact_start_check(last_read);
	return last_read;
}

#ifdef __linux__
/*
 * The coarse time is less than this behind; 0: it is of no use.
 *
 * At each tick, the kernel adds whole ticks to it (clock_gettime(2),
 * timekeeping_advance()), so that is less than two.  Where a tick comes late,
 * ids may fall behind the clock, until their millisecond is used up.
 */
static int64
coarse_lag_us(void)
{
	static int64 lag_us = -1;

	if (unlikely(lag_us < 0))
	{
		struct timespec tick;

		lag_us = 0;
		if (clock_getres(CLOCK_REALTIME_COARSE, &tick) == 0 &&
			tick.tv_sec == 0 && tick.tv_nsec < MS_AHEAD_MAX * 1000 * 1000 / 2)
			lag_us = 2 * tick.tv_nsec / 1000;
	}
	return lag_us;
}
#endif

/*
 * The right to open a sequence's next millisecond is a lock on its page in the
 * lock manager, where nothing else locks pages of sequences.
 */
static void
opening_tag(LOCKTAG *tag, Oid seqid)
{
	SET_LOCKTAG_PAGE(*tag, MyDatabaseId, seqid, 0);
}

/* Let an unlogged sequence not run ahead of the clock. */
static void
wait_for_floor(TimestampTz floor)
{
	int64		us;

	while ((us = floor_wait(floor, GetCurrentTimestamp())) > 0)
		wait_us(us);
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
