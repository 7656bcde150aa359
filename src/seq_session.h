/*
 * What a session keeps of a sequence between calls, so that a call need not
 * ask the catalogs, look for the page or lock anything again.
 *
 * - Catalog state.  Invalidation messages drop it, as they drop entries of the
 *	 catalog caches.  So a call sees each ALTER, DROP, GRANT and change of role
 *	 as early as nextval does, which asks those caches on each call.
 * - The relation lock, held to the end of the transaction.
 * - The page's pin: one page, however many sequences a transaction uses, until
 *	 the (sub)transaction ends.
 * - Slots taken ahead of use, because of CACHE, and up to which slot it has logged.
 *
 * An entry lives as long as the session, so a call site may keep a pointer to
 * it.  What each call asks is inline.
 */
#ifndef SNOWID_SEQ_SESSION_H
#define SNOWID_SEQ_SESSION_H

#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

#include "args.h"
#include "clock.h"
#include "compat.h"
#include "slot.h"

typedef struct SessionSequence
{
	Oid			relid;			/* hash key */
	LocalTransactionId lxid;	/* transaction that holds the relation lock */

	/* Catalog state */
	uint64		generation;		/* catalog_generation when read; 0: none */
	Oid			userid;			/* role that may take slots */
	RelFileLocator locator;
	SlotRules	rules;
	TimestampTz epoch;			/* its ids may have this one ... */
	TimestampTz own_epoch;		/* ... and have this one if the caller names
								 * none */
	bool		is_local_temp;
	bool		needs_wal;
	bool		is_rewritten;	/* may it have been restarted? */
	TimestampTz floor;			/* no slot below this, because of that */

	Buffer		buffer;			/* where its page was last */

	/* Slots that this session has logged for the sequence alone. */
	Logged		own;			/* up to here, if it is the page's last record */

	int64		last_taken;		/* from the page, by this session */

	/* Of these, the first that is not used yet; none if it is later. */
	int64		cached_next;
	TimestampTz cached_from;	/* the clock may show this ... */
	TimestampTz cached_until;	/* ... until before this */
	TimestampTz cached_epoch;
} SessionSequence;

/* Catalog state of an earlier generation may be out of date. */
extern uint64 catalog_generation;

/* The sequence whose page this (sub)transaction keeps pinned, if any. */
extern SessionSequence *pinned_sequence;

extern SessionSequence *session_sequence(Oid seqid);
extern void session_lock(SessionSequence *session);
extern void session_read_catalogs(SessionSequence *session, int32 shard,
								  TimestampTz epoch);
extern Buffer session_pin_page(SessionSequence *session);

/* Make sure that the transaction holds the relation lock. */
static inline void
ensure_locked(SessionSequence *session)
{
	if (session->lxid != MY_LXID)
		session_lock(session);
}

/*
 * Make sure that the catalog state is valid, and read as the current role.  Returns
 * the epoch.  Another one than before is looked at as if nothing was known: so
 * what is remembered is only what was right once.
 */
static inline TimestampTz
ensure_catalog_state(SessionSequence *session, int32 shard, TimestampTz epoch)
{
	if (session->generation != catalog_generation ||
		session->userid != GetUserId() ||
		session->epoch != (epoch == OWN_EPOCH ? session->own_epoch : epoch))
		session_read_catalogs(session, shard, epoch);
	return session->epoch;
}

/* Make sure that the page is pinned. */
static inline Buffer
ensure_pinned(SessionSequence *session)
{
	return pinned_sequence == session ? session->buffer : session_pin_page(session);
}

static inline void
drop_cached(SessionSequence *session)
{
	session->cached_next = session->last_taken + 1;
}

/*
 * Serve a call from the slots that this transaction took ahead, if their
 * millisecond is not over and they are not old.  A clock that went back makes
 * them old, too.
 */
static inline bool
take_cached(SessionSequence *session, TimestampTz epoch, int64 *slot)
{
	if (session->cached_next > session->last_taken)
		return false;

	if (epoch != session->cached_epoch ||
		(!clock_is_before(session->cached_until) &&
		 (clock_read() < session->cached_from || clock_reading.at >= session->cached_until)))
	{
		drop_cached(session);
		return false;
	}

	*slot = session->cached_next;
	session->cached_next += session->rules.increment;
	return true;
}

/* Keep what a call has taken beyond its first block. */
static inline void
cache_rest(SessionSequence *session, SlotChoice choice, TimestampTz now,
		   TimestampTz epoch)
{
	session->cached_next = choice.first + session->rules.increment;
	session->last_taken = choice.last;
	session->cached_from = now;
	session->cached_until = Min(now + CACHED_FOR_US,
								epoch + (slot_ms(choice.first) + 1) * 1000);
	session->cached_epoch = epoch;
}

#endif							/* SNOWID_SEQ_SESSION_H */
