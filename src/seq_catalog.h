/*
 * What the catalogs say of a sequence: does it exist, what may the current
 * role do with it, what does its definition allow, and which epoch have its ids.
 *
 * Callers hold a lock on the sequence.  A sequence that next_id() can't use is
 * refused here, once for each reading of the catalogs and not on each call.
 */
#ifndef SNOWID_SEQ_CATALOG_H
#define SNOWID_SEQ_CATALOG_H

#include "utils/acl.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "slot.h"

/* The table of the shards, once it was read.  A trigger on it sends messages. */
extern Oid	shard_registry;

extern Relation open_sequence(Oid seqid);
extern void check_sequence_acl(Relation rel, AclMode mode);
extern SlotRules read_rules(Relation rel);
extern TimestampTz check_sequence_epoch(Relation rel, TimestampTz epoch, bool *is_known);

/*
 * Has the sequence got a new file since it was created?  ALTER SEQUENCE
 * RESTART and TRUNCATE RESTART IDENTITY give it one.
 */
static inline bool
is_rewritten(Relation rel)
{
	return rel->rd_rel->relfilenode != RelationGetRelid(rel);
}

#endif							/* SNOWID_SEQ_CATALOG_H */
