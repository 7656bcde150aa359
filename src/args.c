/*
 * What the SQL functions share of their arguments and results; see args.h.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "common/int.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/regproc.h"
#include "utils/timestamp.h"

#include "args.h"


/* The time of a millisecond since the epoch; 22008 if timestamptz can't hold it. */
TimestampTz
ms_to_timestamp(int64 ms, TimestampTz epoch)
{
	TimestampTz at;

	if (pg_mul_s64_overflow(ms, 1000, &at) ||
		pg_add_s64_overflow(epoch, at, &at) ||
		!IS_VALID_TIMESTAMP(at))
		ereport(ERROR,
				(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
				 errmsg("timestamp out of range"),
				 errdetail("The epoch %s and %lld milliseconds are more than a timestamp can hold.",
						   timestamptz_to_str(epoch), (long long) ms)));
	return at;
}

/*
 * The row that a function returns.  Its type is looked up once for each place
 * in a query that calls it, since that costs more than all the rest.
 */
Datum
result_row(FunctionCallInfo fcinfo, Datum *values, bool *nulls)
{
	TupleDesc	tupdesc = fcinfo->flinfo->fn_extra;

	if (tupdesc == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(fcinfo->flinfo->fn_mcxt);

		if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
			elog(ERROR, "return type must be a row type");
		fcinfo->flinfo->fn_extra = BlessTupleDesc(tupdesc);
		MemoryContextSwitchTo(old);
	}
	return HeapTupleGetDatum(heap_form_tuple(fcinfo->flinfo->fn_extra, values, nulls));
}

/* Refuse a call by an SQL definition that this library does not know. */
void
refuse_definition(FunctionCallInfo fcinfo)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("the library of snowid does not know function %s",
					format_procedure_qualified(fcinfo->flinfo->fn_oid)),
			 errdetail("Its arguments are those of another version."),
			 errhint("Install the version of snowid that pg_extension names, and connect again.")));
}
