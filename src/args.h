/*
 * What the SQL functions share: guards of their arguments, the epoch, the
 * time of a millisecond, and the row type of a result.
 *
 * Times are timestamptz, microseconds since 2000, as PostgreSQL has them; an
 * epoch is a timestamptz too.  An argument passes its guard before anything
 * is computed from it.
 */
#ifndef SNOWID_ARGS_H
#define SNOWID_ARGS_H

#include "fmgr.h"
#include "utils/timestamp.h"

#include "layout.h"

/* DEFAULT_EPOCH_UNIX_MS as a timestamptz. */
#define DEFAULT_EPOCH \
	((TimestampTz) (DEFAULT_EPOCH_UNIX_MS * 1000 - \
	 (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY))

/* What stands for the epoch of the sequence's ids, if the caller names none. */
#define OWN_EPOCH			DT_NOBEGIN

extern TimestampTz ms_to_timestamp(int64 ms, TimestampTz epoch);
extern Datum result_row(FunctionCallInfo fcinfo, Datum *values, bool *nulls);
extern void refuse_definition(FunctionCallInfo fcinfo);

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
 * The epoch that a function was given as its last argument.
 *
 * 0A000 if the SQL definition has other arguments: it can be of another
 * version than the library, on a standby that is not upgraded yet or in a
 * session that loaded the library before an upgrade.
 */
static inline TimestampTz
epoch_argument(FunctionCallInfo fcinfo, int argno)
{
	TimestampTz epoch;

	if (PG_NARGS() != argno + 1)
		refuse_definition(fcinfo);
	epoch = PG_GETARG_TIMESTAMPTZ(argno);
	check_epoch(epoch);
	return epoch;
}

/* The same for a sequence, whose epoch the catalogs may know. */
static inline TimestampTz
sequence_epoch_argument(FunctionCallInfo fcinfo, int argno)
{
	if (PG_NARGS() == argno ||
		(PG_NARGS() == argno + 1 && PG_GETARG_TIMESTAMPTZ(argno) == OWN_EPOCH))
		return OWN_EPOCH;
	return epoch_argument(fcinfo, argno);
}

#endif							/* SNOWID_ARGS_H */
