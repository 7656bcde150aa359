/*
 * The SQL functions around a generator: next_id(), advance(),
 * sequence_state() and sequence_value().
 *
 * They check their arguments and leave the sequence to sequence.c.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "args.h"
#include "citus.h"
#include "sequence.h"
#include "setting.h"

PG_FUNCTION_INFO_V1(snowid_next_id);
PG_FUNCTION_INFO_V1(snowid_next_id_of_database);
PG_FUNCTION_INFO_V1(snowid_advance);
PG_FUNCTION_INFO_V1(snowid_sequence_state);
PG_FUNCTION_INFO_V1(snowid_sequence_value);


/* next_id(shard int, seq regclass [, epoch timestamptz]) → bigint */
Datum
snowid_next_id(PG_FUNCTION_ARGS)
{
	int32		shard = PG_GETARG_INT32(0);
	Oid			seqid = PG_GETARG_OID(1);
	TimestampTz epoch = sequence_epoch_argument(fcinfo, 2);

	check_shard(shard);
	PG_RETURN_INT64(slot_to_id(sequence_next_slot(seqid, shard, epoch,
												  &fcinfo->flinfo->fn_extra),
							   shard));
}

/*
 * next_id() → bigint
 *
 * The whole database is one shard: number from snowid.shard, sequence
 * snowid.id_seq.
 */
Datum
snowid_next_id_of_database(PG_FUNCTION_ARGS)
{
	Oid			seqid;

	if (snowid_shard < 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("snowid.shard is not set"),
				 errdetail("next_id() without arguments takes the database's shard number from it."),
				 citus_is_here() ?
				 errhint("As a superuser, type on each node, with another number: ALTER SYSTEM SET snowid.shard = number; SELECT pg_reload_conf();") :
				 errhint("As a superuser, type: ALTER DATABASE %s SET snowid.shard = number; then connect again.",
						 quote_identifier(get_database_name(MyDatabaseId)))));

	seqid = get_relname_relid("id_seq", get_namespace_oid("snowid", false));
	if (!OidIsValid(seqid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("sequence \"snowid.id_seq\" does not exist"),
				 errhint("It belongs to the extension. To make it again, type: CREATE SEQUENCE snowid.id_seq; ALTER EXTENSION snowid ADD SEQUENCE snowid.id_seq; and advance() it beyond the largest id in use.")));

	PG_RETURN_INT64(slot_to_id(sequence_next_slot(seqid, snowid_shard, DEFAULT_EPOCH,
												  &fcinfo->flinfo->fn_extra),
							   snowid_shard));
}

/*
 * advance(seq regclass, id bigint [, epoch timestamptz]) → void
 *
 * Moves on to the end of the id's millisecond: the id may be of a higher
 * shard, whose ids are larger than ours of the same millisecond.
 */
Datum
snowid_advance(PG_FUNCTION_ARGS)
{
	Oid			seqid = PG_GETARG_OID(0);
	int64		id = PG_GETARG_INT64(1);

	sequence_advance(seqid, slot_pack(id_ms(id), SEQ_MAX),
					 sequence_epoch_argument(fcinfo, 2));
	PG_RETURN_VOID();
}

/*
 * sequence_state(seq regclass [, epoch timestamptz])
 * → (last_id_at timestamptz, slots_left int, ahead interval)
 *
 * All NULL for a sequence that was never called, or whose state is no time of
 * the layout.
 */
Datum
snowid_sequence_state(PG_FUNCTION_ARGS)
{
	Oid			seqid = PG_GETARG_OID(0);
	TimestampTz epoch = sequence_epoch_argument(fcinfo, 1);
	SlotState	state;
	Datum		values[3] = {0, 0, 0};
	bool		nulls[3] = {true, true, true};

	state = sequence_read(seqid, &epoch, true);
	if (state.is_called &&
		slot_ms(state.last) >= 0 && slot_ms(state.last) <= MS_MAX)
	{
		values[0] = TimestampTzGetDatum(ms_to_timestamp(slot_ms(state.last), epoch));
		values[1] = Int32GetDatum(SEQ_MAX - slot_seq(state.last));
		values[2] = DirectFunctionCall2(timestamp_mi, values[0],
										TimestampTzGetDatum(GetCurrentTimestamp()));
		nulls[0] = nulls[1] = nulls[2] = false;
	}
	PG_RETURN_DATUM(result_row(fcinfo, values, nulls));
}

/* sequence_value(seq regclass, epoch timestamptz) → (last bigint, called boolean) */
Datum
snowid_sequence_value(PG_FUNCTION_ARGS)
{
	TimestampTz epoch = epoch_argument(fcinfo, 1);
	SlotState	state = sequence_read(PG_GETARG_OID(0), &epoch, false);
	Datum		values[2];
	bool		nulls[2] = {false, false};

	values[0] = Int64GetDatum(state.last);
	values[1] = BoolGetDatum(state.is_called);
	PG_RETURN_DATUM(result_row(fcinfo, values, nulls));
}
