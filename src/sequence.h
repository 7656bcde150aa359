/*
 * A sequence as a clock: take slots, move it forward, read it.
 */
#ifndef SNOWID_SEQUENCE_H
#define SNOWID_SEQUENCE_H

#include "utils/timestamp.h"

#include "slot.h"

extern int64 sequence_next_slot(Oid seqid, int32 shard, TimestampTz epoch,
								void **call_cache);
extern TimestampTz sequence_last_epoch(void *call_cache);
extern void sequence_advance(Oid seqid, int64 slot, TimestampTz epoch);
extern SlotState sequence_read(Oid seqid, TimestampTz *epoch, bool makes_ids);

#endif							/* SNOWID_SEQUENCE_H */
