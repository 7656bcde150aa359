/*
 * What the files of the module share: the epoch, and the sequence as a clock.
 *
 * Times are timestamptz, microseconds since 2000, as PostgreSQL has them; an
 * epoch is a timestamptz too.  Arguments of users pass a guard first.
 */
#ifndef SNOWID_H
#define SNOWID_H

#include "access/tupdesc.h"
#include "fmgr.h"
#include "utils/timestamp.h"

#include "layout.h"
#include "slot.h"

/* DEFAULT_EPOCH_UNIX_MS as a timestamptz. */
#define DEFAULT_EPOCH \
	((TimestampTz) (DEFAULT_EPOCH_UNIX_MS * 1000 - \
	 (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY))

/* snowid.c: the setting snowid.shard, -1 where it is not set. */
extern int	snowid_shard;
extern void report_unknown_definition(FunctionCallInfo fcinfo);

/* 22003 unless the shard number is in the layout. */
static inline void
check_shard(int32 shard)
{
	if (shard < 0 || shard > SHARD_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("shard number %d is out of range", shard),
				 errdetail("Shard numbers are between 0 and %d.", SHARD_MAX)));
}

/* 22008 unless the epoch is finite. */
static inline void
check_epoch(TimestampTz epoch)
{
	if (TIMESTAMP_NOT_FINITE(epoch))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("epoch must be finite")));
}

/*
 * The epoch that a function was given as its last argument, or the default.
 *
 * 0A000 if the SQL definition has other arguments than these: it can be of
 * another version than the library, on a standby that is not upgraded yet or
 * in a session that loaded the library before an upgrade.
 */
static inline TimestampTz
epoch_argument(FunctionCallInfo fcinfo, int argno)
{
	TimestampTz epoch;

	if (PG_NARGS() == argno)
		return DEFAULT_EPOCH;
	if (PG_NARGS() != argno + 1)
		report_unknown_definition(fcinfo);
	epoch = PG_GETARG_TIMESTAMPTZ(argno);
	check_epoch(epoch);
	return epoch;
}

/* decode.c */
extern TimestampTz ms_to_timestamp(int64 ms, TimestampTz epoch);
extern TupleDesc row_type(FunctionCallInfo fcinfo);

/* sequence.c */
extern int64 sequence_next_slot(Oid seqid, TimestampTz epoch, void **memo);
extern void sequence_advance(Oid seqid, int64 slot, TimestampTz epoch);
extern SlotState sequence_read(Oid seqid);

/* holders.c */
extern TimestampTz lowest_clock;
extern void watch_clock(void);
extern void clock_went_back(TimestampTz now);
extern void leave_start(Oid seqid);

/* next_id() is about to take a slot of this time. */
static inline void
note_clock(TimestampTz now)
{
	if (unlikely(now < lowest_clock))
		clock_went_back(now);
}

#endif							/* SNOWID_H */
