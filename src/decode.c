/*
 * Reading, composing and bounding ids: pure functions of their arguments.
 *
 * Nothing here looks at the clock or a setting.  So all of it is IMMUTABLE,
 * and can be used in indexes, generated columns and partition bounds.  Every
 * id can be read, also negative ones and those made elsewhere; the only error
 * is a time that timestamptz can't hold.
 */
#include "postgres.h"

#include "common/int.h"
#include "fmgr.h"
#include "utils/timestamp.h"

#include "args.h"

PG_FUNCTION_INFO_V1(snowid_id_timestamp);
PG_FUNCTION_INFO_V1(snowid_id_shard);
PG_FUNCTION_INFO_V1(snowid_id_seq);
PG_FUNCTION_INFO_V1(snowid_id_parts);
PG_FUNCTION_INFO_V1(snowid_make_id);
PG_FUNCTION_INFO_V1(snowid_min_id);
PG_FUNCTION_INFO_V1(snowid_max_id);

static int64 clamped_ms(TimestampTz at, TimestampTz epoch, bool round_up);


/* id_timestamp(id bigint [, epoch timestamptz]) → timestamptz */
Datum
snowid_id_timestamp(PG_FUNCTION_ARGS)
{
	int64		id = PG_GETARG_INT64(0);

	PG_RETURN_TIMESTAMPTZ(ms_to_timestamp(id_ms(id), epoch_argument(fcinfo, 1)));
}

/* id_shard(id bigint) → int */
Datum
snowid_id_shard(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(id_shard(PG_GETARG_INT64(0)));
}

/* id_seq(id bigint) → int */
Datum
snowid_id_seq(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(id_seq(PG_GETARG_INT64(0)));
}

/* id_parts(id bigint [, epoch timestamptz]) → (created_at, shard, seq) */
Datum
snowid_id_parts(PG_FUNCTION_ARGS)
{
	int64		id = PG_GETARG_INT64(0);
	TimestampTz epoch = epoch_argument(fcinfo, 1);
	Datum		values[3];
	bool		nulls[3] = {false, false, false};

	values[0] = TimestampTzGetDatum(ms_to_timestamp(id_ms(id), epoch));
	values[1] = Int32GetDatum(id_shard(id));
	values[2] = Int32GetDatum(id_seq(id));
	PG_RETURN_DATUM(result_row(fcinfo, values, nulls));
}

/*
 * make_id(created_at timestamptz, shard int, seq int [, epoch timestamptz])
 * → bigint
 *
 * The inverse of id_parts() for all that 41 bits of milliseconds can hold;
 * fractions of a millisecond are cut off, as the generator cuts them.
 */
Datum
snowid_make_id(PG_FUNCTION_ARGS)
{
	TimestampTz at = PG_GETARG_TIMESTAMPTZ(0);
	int32		shard = PG_GETARG_INT32(1);
	int32		seq = PG_GETARG_INT32(2);
	TimestampTz epoch = epoch_argument(fcinfo, 3);
	int64		us;

	check_shard(shard);
	if (seq < 0 || seq > SEQ_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
				 errmsg("sequence number %d is out of range", seq),
				 errdetail("Sequence numbers within a millisecond are between 0 and %d.",
						   SEQ_MAX)));
	if (TIMESTAMP_NOT_FINITE(at) ||
		pg_sub_s64_overflow(at, epoch, &us) ||
		us < 0 || us / 1000 > MS_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("time %s is outside the id layout",
						pstrdup(timestamptz_to_str(at))),
				 errdetail("An id holds 41 bits of milliseconds, from the epoch %s on.",
						   timestamptz_to_str(epoch))));

	PG_RETURN_INT64(id_pack(us / 1000, shard, seq));
}

/*
 * min_id(at timestamptz [, epoch timestamptz]) → bigint
 *
 * id >= min_id(t) means id_timestamp(id) >= t.
 */
Datum
snowid_min_id(PG_FUNCTION_ARGS)
{
	int64		ms = clamped_ms(PG_GETARG_TIMESTAMPTZ(0),
								epoch_argument(fcinfo, 1), true);

	PG_RETURN_INT64(id_pack(ms, 0, 0));
}

/*
 * max_id(at timestamptz [, epoch timestamptz]) → bigint
 *
 * id <= max_id(t) means id_timestamp(id) <= t.
 */
Datum
snowid_max_id(PG_FUNCTION_ARGS)
{
	int64		ms = clamped_ms(PG_GETARG_TIMESTAMPTZ(0),
								epoch_argument(fcinfo, 1), false);

	PG_RETURN_INT64(id_pack(ms, SHARD_MAX, SEQ_MAX));
}

/*
 * A time as milliseconds since the epoch, clamped to what is generated: the
 * sign bit stays clear, so that bounds compare as bigint does.
 */
static int64
clamped_ms(TimestampTz at, TimestampTz epoch, bool round_up)
{
	int64		us;

	if (TIMESTAMP_IS_NOBEGIN(at))
		return 0;
	if (TIMESTAMP_IS_NOEND(at))
		return MS_LAST_GENERATED;
	if (pg_sub_s64_overflow(at, epoch, &us))
		return at < epoch ? 0 : MS_LAST_GENERATED;
	if (us <= 0)
		return 0;
	return Min(us / 1000 + (round_up && us % 1000 != 0 ? 1 : 0),
			   MS_LAST_GENERATED);
}
