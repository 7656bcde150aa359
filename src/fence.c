/*
 * The fence around a closed shard: its triggers and the ends of its sequences.
 *
 * What stands in the catalogs already is changed in place: a trigger that was
 * made beforehand is enabled, a sequence's limits are set without a new file.
 * ALTER would do the same, and take many times as long; and here, all the
 * shard's writers wait.  As with ALTER, each change is made under a lock that
 * no writer shares, and told to all sessions: who has waited for the lock, by
 * whatever snapshot, sees it when he gets it.  A rollback takes it back.
 *
 * Which shard, and in what order, is said in SQL: fence_shard().
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_sequence.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "parser/parse_func.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "compat.h"
#include "seq_refusal.h"

#define FENCE_NAME		"snowid_fence"

/* Before each statement that writes. */
#define FENCE_TYPE		(TRIGGER_TYPE_BEFORE | TRIGGER_TYPE_INSERT | TRIGGER_TYPE_UPDATE | \
						 TRIGGER_TYPE_DELETE | TRIGGER_TYPE_TRUNCATE)

PG_FUNCTION_INFO_V1(snowid_refuse_write);
PG_FUNCTION_INFO_V1(snowid_lock_relations);
PG_FUNCTION_INFO_V1(snowid_enable_fence);
PG_FUNCTION_INFO_V1(snowid_define_sequence);

static void check_owned(Oid relid);
static void lock_owned(Oid relid);
static bool enable_trigger(Relation triggers, Oid relid, Oid function, bool is_closed);


/*
 * refuse_write() → trigger
 *
 * Raises the error of a closed shard.  The trigger fires only while it is
 * enabled, and then nothing but a move's copy may pass, whatever the journal says.
 */
Datum
snowid_refuse_write(PG_FUNCTION_ARGS)
{
	Relation	rel;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("refuse_write() can only be called as a trigger")));
	rel = ((TriggerData *) fcinfo->context)->tg_relation;
	if (refuse_if_fenced(RelationGetRelid(rel)))
		return (Datum) 0;
	ereport(ERROR,
			(errcode(MAKE_SQLSTATE('S', 'N', '0', '0', '2')),
			 errmsg("table \"%s\" is closed for writing", RelationGetRelationName(rel)),
			 errdetail("Its trigger %s is enabled, but the journal snowid.moves has no closed shard with its schema.",
					   FENCE_NAME),
			 errhint("If its shard lives here and nowhere else, the table's owner can type: DROP TRIGGER %s ON %s;",
					 FENCE_NAME,
					 quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
												RelationGetRelationName(rel)))));
	return (Datum) 0;			/* not reached */
}

/*
 * lock_relations(relations oid[]) → void
 *
 * Locks tables and sequences, in this order, as CREATE TRIGGER and ALTER
 * SEQUENCE do: against all who write there or take ids.
 */
Datum
snowid_lock_relations(PG_FUNCTION_ARGS)
{
	Datum	   *oids;
	int			n;

	deconstruct_array(PG_GETARG_ARRAYTYPE_P(0), OIDOID, sizeof(Oid), true, TYPALIGN_INT,
					  &oids, NULL, &n);
	/* What is read from the catalogs is better read while nobody waits. */
	for (int i = 0; i < n; i++)
		check_owned(DatumGetObjectId(oids[i]));
	for (int i = 0; i < n; i++)
		lock_owned(DatumGetObjectId(oids[i]));
	PG_RETURN_VOID();
}

/*
 * enable_fence(tables oid[], closed boolean) → oid[]
 *
 * Enables or disables the triggers that were prepared, and returns the tables
 * that need more: to be closed, those without the fence's trigger; to be
 * opened, those whose trigger was not prepared, and is to be dropped.
 */
Datum
snowid_enable_fence(PG_FUNCTION_ARGS)
{
	Datum	   *oids;
	int			n;
	bool		is_closed = PG_GETARG_BOOL(1);
	Oid			function = LookupFuncName(list_make2(makeString(pstrdup("snowid_internal")),
													 makeString(pstrdup("refuse_write"))),
										  0, NULL, false);
	Relation	triggers = table_open(TriggerRelationId, RowExclusiveLock);
	int			nrest = 0;

	PreventCommandIfReadOnly("enable_fence()");
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(0), OIDOID, sizeof(Oid), true, TYPALIGN_INT,
					  &oids, NULL, &n);
	for (int i = 0; i < n; i++)
	{
		lock_owned(DatumGetObjectId(oids[i]));
		if (!enable_trigger(triggers, DatumGetObjectId(oids[i]), function, is_closed))
			oids[nrest++] = oids[i];
	}
	table_close(triggers, RowExclusiveLock);
	PG_RETURN_ARRAYTYPE_P(construct_array(oids, nrest, OIDOID, sizeof(Oid), true, TYPALIGN_INT));
}

/*
 * define_sequence(seq oid, min bigint, max bigint, start bigint, cycle boolean,
 * new_file boolean) → void
 *
 * Changes a sequence's definition.  Its state stays; with new_file, it is
 * unset, and to be set by setval(), which a rollback then takes back; and the
 * numbers that sessions have cached are void.
 *
 * Any owner can call it, so it allows no definition that ALTER would not.
 */
Datum
snowid_define_sequence(PG_FUNCTION_ARGS)
{
	Oid			seqid = PG_GETARG_OID(0);
	int64		min = PG_GETARG_INT64(1);
	int64		max = PG_GETARG_INT64(2);
	int64		start = PG_GETARG_INT64(3);
	int64		top;
	Relation	sequences;
	HeapTuple	tuple;
	Form_pg_sequence form;

	PreventCommandIfReadOnly("define_sequence()");
	lock_owned(seqid);
	sequences = table_open(SequenceRelationId, RowExclusiveLock);
	tuple = SearchSysCacheCopy1(SEQRELID, ObjectIdGetDatum(seqid));
	if (!HeapTupleIsValid(tuple))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a sequence", get_rel_name(seqid))));
	form = (Form_pg_sequence) GETSTRUCT(tuple);
	top = form->seqtypid == INT2OID ? PG_INT16_MAX :
		form->seqtypid == INT4OID ? PG_INT32_MAX : PG_INT64_MAX;
	if (min < -top - 1 || min >= max || max > top || start < min || start > max)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("sequence \"%s\" cannot go from " INT64_FORMAT " to " INT64_FORMAT ", and start at " INT64_FORMAT,
						get_rel_name(seqid), min, max, start),
				 errdetail("MINVALUE must be less than MAXVALUE, both within the range of the type, and START not outside of them."),
				 errhint("This function serves fence_shard() and unfence_shard(). Use ALTER SEQUENCE.")));
	form->seqmin = min;
	form->seqmax = max;
	form->seqstart = start;
	form->seqcycle = PG_GETARG_BOOL(4);
	CatalogTupleUpdate(sequences, &tuple->t_self, tuple);
	heap_freetuple(tuple);
	table_close(sequences, RowExclusiveLock);

	/* setval() is to see it. */
	CommandCounterIncrement();
	if (PG_GETARG_BOOL(5))
		ResetSequence(seqid);
	PG_RETURN_VOID();
}

/* 42501 for another one's relation: nobody else may have others wait there. */
static void
check_owned(Oid relid)
{
	char	   *name = get_rel_name(relid);

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	if (!OWNS_RELATION(relid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER,
					   get_relkind_objtype(get_rel_relkind(relid)), name);
	pfree(name);
}

/*
 * Lock a relation to the end of the transaction.  It may have been dropped
 * while we waited, or be another one's by now.
 */
static void
lock_owned(Oid relid)
{
	check_owned(relid);
	LockRelationOid(relid, ShareRowExclusiveLock);
	check_owned(relid);
}

/* False if the table's trigger is not one to be enabled or disabled. */
static bool
enable_trigger(Relation triggers, Oid relid, Oid function, bool is_closed)
{
	ScanKeyData keys[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		is_done = false;

	ScanKeyInit(&keys[0], Anum_pg_trigger_tgrelid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(relid));
	ScanKeyInit(&keys[1], Anum_pg_trigger_tgname, BTEqualStrategyNumber,
				F_NAMEEQ, CStringGetDatum(FENCE_NAME));
	scan = systable_beginscan(triggers, TriggerRelidNameIndexId, true, NULL, 2, keys);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_trigger form = (Form_pg_trigger) GETSTRUCT(tuple);
		char		state = is_closed ? TRIGGER_FIRES_ON_ORIGIN : TRIGGER_DISABLED;

		is_done = form->tgfoid == function && form->tgtype == FENCE_TYPE &&
			form->tgattr.dim1 == 0 &&
			heap_attisnull(tuple, Anum_pg_trigger_tgqual, RelationGetDescr(triggers)) &&
			(is_closed || form->tgnargs > 0);
		if (is_done && form->tgenabled != state)
		{
			tuple = heap_copytuple(tuple);
			((Form_pg_trigger) GETSTRUCT(tuple))->tgenabled = state;
			CatalogTupleUpdate(triggers, &tuple->t_self, tuple);
			heap_freetuple(tuple);
			CacheInvalidateRelcacheByRelid(relid);
			/* A command updates a tuple once, and may name the table twice. */
			CommandCounterIncrement();
		}
	}
	systable_endscan(scan);
	return is_done;
}
