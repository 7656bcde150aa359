/*
 * What differs between the supported server versions, 15 to 19.
 *
 * No other file of the module asks for a version.
 */
#ifndef SNOWID_COMPAT_H
#define SNOWID_COMPAT_H

#include "storage/buf_internals.h"
#include "utils/rel.h"

/* 16 moved the macros for variable-length values. */
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* 19 shows what a sequence's page and its WAL record look like in a header. */
#if PG_VERSION_NUM >= 190000
#include "commands/sequence_xlog.h"
#else
#define SEQ_MAGIC				0x1717

typedef struct sequence_magic
{
	uint32		magic;
} sequence_magic;
#endif

/* 16 renamed relfilenodes; the WAL record's only field went with them. */
#if PG_VERSION_NUM >= 160000
#define SEQ_REC_LOCATOR(xlrec)	((xlrec).locator)
#define REL_LOCATOR(rel)		((rel)->rd_locator)
#define LOCATOR_EQUALS(a, b)	RelFileLocatorEquals(a, b)
#else
#define SEQ_REC_LOCATOR(xlrec)	((xlrec).node)
#define REL_LOCATOR(rel)		((rel)->rd_node)
#define LOCATOR_EQUALS(a, b)	RelFileNodeEquals(a, b)
typedef RelFileNode RelFileLocator;
#endif

/*
 * 19 keeps the buffer's content lock in its state, which has 64 bits then.  After an
 * error such a lock lasts until the resource owner releases the pin, where before
 * it was gone when callbacks ran.
 */
#if PG_VERSION_NUM >= 190000
#define BUFFER_STATE(desc)		pg_atomic_read_u64(&(desc)->state)
#define HAS_CONTENT_LOCK(buffer) (!BufferIsLocal(buffer) && BufferIsLockedByMe(buffer))
#else
#define BUFFER_STATE(desc)		pg_atomic_read_u32(&(desc)->state)
#define HAS_CONTENT_LOCK(buffer) false
#endif

/* 16 asks for all kinds of objects alike who owns them. */
#if PG_VERSION_NUM >= 160000
#define OWNS_RELATION(relid, role) object_ownercheck(RelationRelationId, relid, role)
#else
#define OWNS_RELATION(relid, role) pg_class_ownercheck(relid, role)
#endif

/* 17 gathered the parts of a virtual transaction id. */
#if PG_VERSION_NUM >= 170000
#define MY_LXID					(MyProc->vxid.lxid)
#define LOCK_BACKEND(lock)		((lock)->vxid.procNumber)
#define LOCK_LXID(lock)			((lock)->vxid.localTransactionId)
#else
#define MY_LXID					(MyProc->lxid)
#define LOCK_BACKEND(lock)		((lock)->backend)
#define LOCK_LXID(lock)			((lock)->lxid)
#endif

/* 16 says in the name that the index is not a backend's number. */
#if PG_VERSION_NUM < 160000
#define pgstat_get_local_beentry_by_index(i) pgstat_fetch_stat_local_beentry(i)
#endif

/* 16 keeps what hooks of settings allocate in a context. */
#if PG_VERSION_NUM < 160000
#define guc_malloc(elevel, size) malloc(size)
#endif

#endif							/* SNOWID_COMPAT_H */
