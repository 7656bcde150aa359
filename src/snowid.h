/*
 * What the files of the module share: the epoch, and the sequence as a clock.
 *
 * Times are timestamptz, microseconds since 2000, as PostgreSQL has them; an
 * epoch is a timestamptz too.  Whoever takes one from a user passes it
 * through check_epoch() first.
 */
#ifndef SNOWID_H
#define SNOWID_H

#include "fmgr.h"
#include "datatype/timestamp.h"

#include "layout.h"
#include "slot.h"

/* DEFAULT_EPOCH_UNIX_MS as a timestamptz. */
#define DEFAULT_EPOCH \
	((TimestampTz) (DEFAULT_EPOCH_UNIX_MS * 1000 - \
	 (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY))

/* snowid.c: the setting snowid.shard, -1 where it is not set. */
extern int	snowid_shard;

/* decode.c */
extern void check_shard(int32 shard);
extern TimestampTz check_epoch(TimestampTz epoch);
extern TimestampTz epoch_argument(FunctionCallInfo fcinfo, int argno);
extern TimestampTz ms_to_timestamp(int64 ms, TimestampTz epoch);

/* sequence.c */
extern int64 sequence_next_slot(Oid seqid, TimestampTz epoch);
extern void sequence_advance(Oid seqid, int64 slot, TimestampTz epoch);
extern SlotState sequence_read(Oid seqid);

#endif							/* SNOWID_H */
