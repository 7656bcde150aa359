/*
 * What differs between the supported server versions, 13 to 18.
 */
#ifndef SNOWID_COMPAT_H
#define SNOWID_COMPAT_H

#include "utils/rel.h"

/* 16 moved the macros for variable-length values. */
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* 16 renamed relfilenodes; the WAL record's only field went with them. */
#if PG_VERSION_NUM >= 160000
#define SEQ_REC_LOCATOR(xlrec)	((xlrec).locator)
#define REL_LOCATOR(rel)		((rel)->rd_locator)
#define LOCATOR_FILE(locator)	((locator).relNumber)
#define LOCATOR_EQUALS(a, b)	RelFileLocatorEquals(a, b)
#else
#define SEQ_REC_LOCATOR(xlrec)	((xlrec).node)
#define REL_LOCATOR(rel)		((rel)->rd_node)
#define LOCATOR_FILE(locator)	((locator).relNode)
#define LOCATOR_EQUALS(a, b)	RelFileNodeEquals(a, b)
typedef RelFileNode RelFileLocator;
typedef Oid RelFileNumber;
#define InvalidRelFileNumber	InvalidOid
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

/* 14 can pin a buffer where it was before; in 13 it is always looked up. */
#if PG_VERSION_NUM < 140000
#define ReadRecentBuffer(locator, fork, block, buffer) false
#endif

/* 15 has the registration that also reserves the prefix of the settings. */
#if PG_VERSION_NUM < 150000
#define MarkGUCPrefixReserved(prefix) EmitWarningsOnPlaceholders(prefix)
#endif

/* 14 has it say why it failed, as it does in FIPS mode. */
#if PG_VERSION_NUM >= 140000
#define MD5_BINARY(data, len, digest, reason) \
	pg_md5_binary(data, len, digest, reason)
#else
#define MD5_BINARY(data, len, digest, reason) \
	(*(reason) = "not available", pg_md5_binary(data, len, digest))
#endif

#endif							/* SNOWID_COMPAT_H */
