/*
 * What a session keeps of a sequence between calls; see seq_session.h.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/syscache.h"

#include "citus.h"
#include "compat.h"
#include "reservation.h"
#include "seq_catalog.h"
#include "seq_page.h"
#include "seq_session.h"
#include "xact_start.h"

uint64		catalog_generation = 1;
SessionSequence *pinned_sequence = NULL;

static HTAB *session_sequences = NULL;

static void register_callbacks(void);
static void invalidate_all(Datum arg, int cacheid, uint32 hashvalue);
static void invalidate_citus(Datum arg, int cacheid, uint32 hashvalue);
static void invalidate_relation(Datum arg, Oid relid);
static void unpin_page(void);
static void at_xact_end(XactEvent event, void *arg);
static void at_subxact_event(SubXactEvent event, SubTransactionId id,
							 SubTransactionId parent, void *arg);


/* Find or make the session's entry for a sequence. */
SessionSequence *
session_sequence(Oid seqid)
{
	SessionSequence *session;
	bool		found;

	register_callbacks();
	session = hash_search(session_sequences, &seqid, HASH_ENTER, &found);
	if (!found)
	{
		MemSet(session, 0, sizeof(SessionSequence));
		session->relid = seqid;
		drop_cached(session);
	}
	return session;
}

/*
 * Register what keeps a session's state right, before there is any.
 *
 * If it fails half-way, the next call does it all again.  So the callbacks of the
 * caches, which can't be taken back and have few places, come when nothing can
 * fail any more.
 */
static void
register_callbacks(void)
{
	static bool is_done = false;
	uint32		citus;

	if (is_done)
		return;
	citus = citus_hash_value();
	if (session_sequences == NULL)
	{
		HASHCTL		ctl;

		ctl.keysize = sizeof(Oid);
		ctl.entrysize = sizeof(SessionSequence);
		session_sequences = hash_create("snowid sequences", 16, &ctl,
										HASH_ELEM | HASH_BLOBS);
	}
	UnregisterXactCallback(at_xact_end, NULL);
	RegisterXactCallback(at_xact_end, NULL);
	RegisterSubXactCallback(at_subxact_event, NULL);

	/* All that acl.c, the sequence and its rules depend on. */
	CacheRegisterRelcacheCallback(invalidate_relation, (Datum) 0);
	CacheRegisterSyscacheCallback(SEQRELID, invalidate_all, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHOID, invalidate_all, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, invalidate_all, (Datum) 0);
	CacheRegisterSyscacheCallback(DATABASEOID, invalidate_all, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, invalidate_all, (Datum) 0);
	CacheRegisterSyscacheCallback(RELNAMENSP, invalidate_citus, UInt32GetDatum(citus));
	is_done = true;
}

static void
invalidate_all(Datum arg, int cacheid, uint32 hashvalue)
{
	catalog_generation++;
}

/* Citus has come to the database, or gone, if that is the relation. */
static void
invalidate_citus(Datum arg, int cacheid, uint32 hashvalue)
{
	if (hashvalue == 0 || hashvalue == DatumGetUInt32(arg))
		catalog_generation++;
}

static void
invalidate_relation(Datum arg, Oid relid)
{
	SessionSequence *session;

	reservation_forget(relid);
	if (!OidIsValid(relid) || relid == citus_group_table || relid == shard_registry)
	{
		catalog_generation++;
		return;
	}
	session = hash_search(session_sequences, &relid, HASH_FIND, NULL);
	if (session != NULL)
		session->generation = 0;
}

/*
 * Lock a sequence to the end of the transaction, as nextval does.  ALTER
 * SEQUENCE waits for the lock, and safe_upper_id() sees by it which
 * transactions may still commit an id.  Taking it also reads the invalidation
 * messages.
 */
void
session_lock(SessionSequence *session)
{
	hold_relation(session->relid, RowExclusiveLock, TopTransactionResourceOwner);
	xact_start_watch();
	session->lxid = MY_LXID;

	/* What an earlier transaction took ahead, only its commit waits for. */
	drop_cached(session);
}

/* Read from the catalogs what a call needs, and check the privilege. */
void
session_read_catalogs(SessionSequence *session, int32 shard, TimestampTz epoch)
{
	Relation	rel = open_sequence(session->relid);
	bool		is_known;

	/*
	 * Set the generation first.  A message that arrives while we read, as of
	 * a REVOKE, which takes no lock, then still drops what we read.  State
	 * without a user is never used.
	 */
	session->userid = InvalidOid;
	session->generation = catalog_generation;

	check_sequence_acl(rel, ACL_USAGE | ACL_UPDATE);
	if (!citus_check_sequence(rel, shard))
		session->generation = 0;

	if (!LOCATOR_EQUALS(session->locator, REL_LOCATOR(rel)))
	{
		if (pinned_sequence == session)
			unpin_page();
		session->locator = REL_LOCATOR(rel);
		session->buffer = InvalidBuffer;
		drop_cached(session);
	}
	session->rules = read_rules(rel);
	session->epoch = check_sequence_epoch(rel, epoch, &is_known);
	session->own_epoch = is_known ? session->epoch : DEFAULT_EPOCH;
	session->rules.early_ms = is_known ? 0 : (DEFAULT_EPOCH - session->epoch) / 1000;
	session->is_local_temp = rel->rd_islocaltemp;
	session->needs_wal = RelationNeedsWAL(rel);
	session->is_rewritten = is_rewritten(rel);
	session->floor = DT_NOBEGIN;
	session->userid = GetUserId();

	relation_close(rel, NoLock);
}

/*
 * Pin the page of a sequence, and unpin that of the one before.  Pinning is
 * much of a call's cost; so the last page used stays pinned.
 */
Buffer
session_pin_page(SessionSequence *session)
{
	ResourceOwner current = CurrentResourceOwner;

	unpin_page();
	if (!BufferIsValid(session->buffer) ||
		!ReadRecentBuffer(session->locator, MAIN_FORKNUM, 0, session->buffer))
	{
		Relation	rel = relation_open(session->relid, NoLock);

		session->buffer = InvalidBuffer;
		session->buffer = ReadBuffer(rel, 0);
		relation_close(rel, NoLock);
	}

	/* The subtransaction owns the pin that was read; give it to the top. */
	CurrentResourceOwner = TopTransactionResourceOwner;
	IncrBufferRefCount(session->buffer);
	CurrentResourceOwner = current;
	pinned_sequence = session;
	ReleaseBuffer(session->buffer);

	return session->buffer;
}

/* Unpin the page.  An error may have come while it was locked. */
static void
unpin_page(void)
{
	ResourceOwner current = CurrentResourceOwner;

	if (pinned_sequence == NULL)
		return;

	if (HAS_CONTENT_LOCK(pinned_sequence->buffer))
	{
		/* The error has forgotten that interrupts were held off. */
		HOLD_INTERRUPTS();
		LockBuffer(pinned_sequence->buffer, BUFFER_LOCK_UNLOCK);
	}
	CurrentResourceOwner = TopTransactionResourceOwner;
	ReleaseBuffer(pinned_sequence->buffer);
	CurrentResourceOwner = current;

	/* Not all versions can find a local buffer again by its number. */
	if (pinned_sequence->is_local_temp)
		pinned_sequence->buffer = InvalidBuffer;
	pinned_sequence = NULL;
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
				xact_start_keep(session->relid);
	}
}

/* A rolled back subtransaction may have made the file that is pinned. */
static void
at_subxact_event(SubXactEvent event, SubTransactionId id,
				 SubTransactionId parent, void *arg)
{
	if (event != SUBXACT_EVENT_START_SUB)
		unpin_page();
}
