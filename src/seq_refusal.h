/*
 * The errors of a sequence that gives no slot, and of a closed shard: why, and
 * what to type.
 *
 * All of them end the call.  None decides anything: slot.h does.
 */
#ifndef SNOWID_SEQ_REFUSAL_H
#define SNOWID_SEQ_REFUSAL_H

#include "utils/timestamp.h"

#include "slot.h"

extern void refuse_slot(SlotVerdict verdict, Oid seqid, int64 slot,
						SlotRules rules, TimestampTz now, TimestampTz epoch);
extern void refuse_advance(Oid seqid, int64 slot, TimestampTz now,
						   TimestampTz epoch);
extern void refuse_epoch(Oid seqid, TimestampTz epoch, TimestampTz known);
extern void refuse_increment(Oid seqid, int64 increment);
extern bool refuse_if_fenced(Oid relid);

#endif							/* SNOWID_SEQ_REFUSAL_H */
