/*
 * The errors of a sequence that gives no slot, and of a closed shard; see
 * seq_refusal.h.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "nodes/value.h"
#include "parser/parse_func.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "args.h"
#include "seq_refusal.h"

static char *sequence_name(Oid seqid);
static char *advance_to_type(Oid seqid, TimestampTz epoch);


/*
 * Say why there is no slot, and what to do about it.  The slot is the one that
 * is too late.
 */
void
refuse_slot(SlotVerdict verdict, Oid seqid, int64 slot,
			SlotRules rules, TimestampTz now, TimestampTz epoch)
{
	char	   *name = get_rel_name(seqid);
	char	   *clock_text = pstrdup(timestamptz_to_str(now));

	switch (verdict)
	{
		case SLOT_BEFORE_EPOCH:
			ereport(ERROR,
					(errcode(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE),
					 errmsg("the clock is before the epoch"),
					 errdetail("The clock shows %s, the epoch is %s.",
							   clock_text, timestamptz_to_str(epoch)),
					 errhint("Set the server's clock right, or pass an epoch that has begun.")));
			break;
		case SLOT_EXHAUSTED:
			ereport(ERROR,
					(errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
					 errmsg("sequence \"%s\" has used up the time of the id layout",
							name),
					 errdetail("With this epoch, the last id is of %s; the clock shows %s.",
							   timestamptz_to_str(ms_to_timestamp(MS_LAST_GENERATED, epoch)),
							   clock_text),
					 errhint("For new tables, pass a later epoch as the third argument of snowid.next_id().")));
			break;
		case SLOT_TOO_FAR_AHEAD:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("sequence \"%s\" is more than one day ahead of the clock",
							name),
					 errdetail("Its last id is of %s; the clock shows %s.",
							   timestamptz_to_str(ms_to_timestamp(slot_ms(slot), epoch)),
							   clock_text),
					 errhint("If the clock is wrong, set it right. If the sequence is called with different epochs, use one. "
							 "If something else set the sequence, and it has issued no id later than the clock, type: ALTER SEQUENCE %s RESTART;",
							 sequence_name(seqid))));
			break;
		case SLOT_SET_TOO_FAR:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("sequence \"%s\" was set to what is none of its ids", name),
					 errdetail("Read as an id, its value is of %s; the clock shows %s. Tools set a table's sequence to the largest id there.",
							   timestamptz_to_str(ms_to_timestamp(slot_ms(slot), epoch)),
							   clock_text),
					 errhint("Correct the rows with such ids, and type: %s",
							 advance_to_type(seqid, epoch))));
			break;
		case SLOT_OTHER_EPOCH:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the ids of sequence \"%s\" have a later epoch than %s",
							name, timestamptz_to_str(epoch)),
					 errdetail("With the default epoch, the next one would be of %s; the clock shows %s.",
							   timestamptz_to_str(ms_to_timestamp(slot_ms(slot), DEFAULT_EPOCH)),
							   clock_text),
					 errhint("Pass the epoch that its ids have. If it is this one, the owner can type: %s",
							 advance_to_type(seqid, epoch))));
			break;
		case SLOT_FLOOR_TOO_FAR:
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the database's ids are more than one day ahead of the clock"),
					 errdetail("Before the last recovery or RESTART, ids up to %s may have been issued; the clock shows %s.",
							   timestamptz_to_str(ms_to_timestamp(slot_ms(slot), epoch)),
							   clock_text),
					 errhint("If the clock is wrong, set it right. If it was wrong then, and no id later than now is in use, type: SELECT setval('snowid_internal.reservation', 1); and connect again.")));
			break;
		case SLOT_OVER_MAXVALUE:
			{
				bool		is_narrow = rules.max_slot <= PG_INT32_MAX;

				(void) refuse_if_fenced(seqid);
				ereport(ERROR,
						(errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
						 errmsg("reached maximum value of sequence \"%s\" (%lld)",
								name, (long long) rules.max_slot),
						 errdetail("The sequence keeps the time of its last id in last_value, which needs a bigint."),
						 errhint("Type: ALTER SEQUENCE %s%s NO MAXVALUE;",
								 sequence_name(seqid),
								 is_narrow ? " AS bigint" : "")));
				break;
			}
		case SLOT_UNDER_MINVALUE:
			ereport(ERROR,
					(errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
					 errmsg("minimum value of sequence \"%s\" (%lld) is later than now",
							name, (long long) rules.min_slot),
					 errdetail("A dump of a state below it could not be restored."),
					 errhint("Type: ALTER SEQUENCE %s MINVALUE 1 START 1;", sequence_name(seqid))));
			break;
		case SLOT_TAKE:
		case SLOT_WAIT:
			break;
	}
	elog(ERROR, "unexpected slot verdict: %d", (int) verdict);
}

/* Refuse to advance() to where next_id() would refuse to go on from. */
void
refuse_advance(Oid seqid, int64 slot, TimestampTz now, TimestampTz epoch)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot advance sequence \"%s\" to more than one day ahead of the clock",
					get_rel_name(seqid)),
			 errdetail("The id is of %s; the clock shows %s.",
					   pstrdup(timestamptz_to_str(ms_to_timestamp(slot_ms(slot), epoch))),
					   timestamptz_to_str(now)),
			 errhint("If the id has another epoch than the default, pass that as the third argument.")));
}

/* Refuse an epoch that the ids of a sequence have not. */
void
refuse_epoch(Oid seqid, TimestampTz epoch, TimestampTz known)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("epoch %s is not that of sequence \"%s\"",
					timestamptz_to_str(epoch), get_rel_name(seqid)),
			 errdetail("The shard of %s, or the DEFAULT of its column, has another one.",
					   sequence_name(seqid)),
			 errhint("Type as the last argument: '%s'", timestamptz_to_str(known))));
}

/* Refuse a definition whose calls would reserve no id, or too many. */
void
refuse_increment(Oid seqid, int64 increment)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("increment %lld of sequence \"%s\" is out of range",
					(long long) increment, get_rel_name(seqid)),
			 errdetail("The increment is the number of ids that a call reserves in one millisecond, between 1 and %d.",
					   SLOTS_PER_MS),
			 errhint("Type: ALTER SEQUENCE %s INCREMENT BY 1;",
					 sequence_name(seqid))));
}

/* The call of advance() to now. */
static char *
advance_to_type(Oid seqid, TimestampTz epoch)
{
	char	   *argument = epoch == DEFAULT_EPOCH ? "" :
	psprintf(", '%s'", timestamptz_to_str(epoch));

	return psprintf("SELECT snowid.advance(%s, snowid.min_id(now()%s)%s);",
					quote_literal_cstr(sequence_name(seqid)), argument, argument);
}

/* The sequence's name as one would type it. */
static char *
sequence_name(Oid seqid)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(seqid)),
									  get_rel_name(seqid));
}

/*
 * Raise the error of a closed shard, if the sequence or the table belongs to
 * one.  True if this session is the one that fills the shard.
 *
 * The journal is read with a new snapshot: the call may have waited for the
 * fence, and its own snapshot would not show it.
 */
bool
refuse_if_fenced(Oid relid)
{
	Oid			argtypes[1] = {REGCLASSOID};
	Oid			function = LookupFuncName(list_make2(makeString(pstrdup("snowid_internal")),
													 makeString(pstrdup("refuse_relation"))),
										  1, argtypes, true);
	bool		is_copy;

	if (!OidIsValid(function))
		return false;
	PushActiveSnapshot(GetLatestSnapshot());
	is_copy = DatumGetBool(OidFunctionCall1(function, ObjectIdGetDatum(relid)));
	PopActiveSnapshot();
	return is_copy;
}
