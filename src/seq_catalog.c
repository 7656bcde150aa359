/*
 * What the catalogs say of a sequence; see seq_catalog.h.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_attrdef.h"
#include "catalog/pg_class.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_sequence.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "args.h"
#include "reservation.h"
#include "seq_catalog.h"
#include "seq_refusal.h"

#define REGISTRY_SCHEMA		2	/* columns of snowid.shard_registry */
#define REGISTRY_EPOCH		4

/* A search for the call of next_id() that a DEFAULT makes. */
typedef struct EpochSearch
{
	Oid			seqid;
	TimestampTz epoch;
} EpochSearch;

PG_FUNCTION_INFO_V1(snowid_registry_changed);

Oid			shard_registry = InvalidOid;

static bool epoch_of_schema(Oid namespace, TimestampTz *epoch);
static bool epoch_of_default(Oid seqid, TimestampTz *epoch);
static HeapTuple find_row(Relation rel, Oid index, Snapshot snapshot, int nkeys,
						  ScanKeyData *keys);
static void *find_argument(List *args, int n);
static bool find_epoch(Node *node, EpochSearch *search);


/* Open a sequence that is locked already. */
Relation
open_sequence(Oid seqid)
{
	Relation	rel = try_relation_open(seqid, NoLock);

	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("sequence with OID %u does not exist", seqid)));
	if (rel->rd_rel->relkind != RELKIND_SEQUENCE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a sequence",
						RelationGetRelationName(rel))));
	return rel;
}

/* 42501 unless the current role has one of the privileges. */
void
check_sequence_acl(Relation rel, AclMode mode)
{
	if (pg_class_aclcheck(RelationGetRelid(rel), GetUserId(), mode) != ACLCHECK_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for sequence %s",
						RelationGetRelationName(rel))));
}

/* Read what the definition allows; an error if next_id() can't use it. */
SlotRules
read_rules(Relation rel)
{
	SlotRules	rules;
	HeapTuple	tuple;
	Form_pg_sequence form;

	refuse_reservation(RelationGetRelid(rel));
	tuple = SearchSysCache1(SEQRELID, ObjectIdGetDatum(RelationGetRelid(rel)));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for sequence %u", RelationGetRelid(rel));
	form = (Form_pg_sequence) GETSTRUCT(tuple);
	rules.increment = form->seqincrement;
	rules.max_slot = form->seqmax;
	rules.cache = form->seqcache;
	rules.start = form->seqstart;
	rules.min_slot = form->seqmin;
	rules.early_ms = 0;
	ReleaseSysCache(tuple);

	if (rules.increment < 1 || rules.increment > SLOTS_PER_MS)
		refuse_increment(RelationGetRelid(rel), rules.increment);
	return rules;
}

/*
 * The epoch of the ids of a sequence: the one given, or for OWN_EPOCH what the
 * catalogs know, else the default.  22023 if they know another one.
 *
 * All sequences of a shard have its epoch, snowid.id_seq has the default one, and
 * others that of the DEFAULT of the column that owns them.
 */
TimestampTz
check_sequence_epoch(Relation rel, TimestampTz epoch, bool *is_known)
{
	TimestampTz known;
	bool		found = epoch_of_schema(RelationGetNamespace(rel), &known) ||
	epoch_of_default(RelationGetRelid(rel), &known);

	if (is_known)
		*is_known = found;
	if (found && epoch != OWN_EPOCH && epoch != known)
		refuse_epoch(RelationGetRelid(rel), epoch, known);
	if (epoch == OWN_EPOCH)
		return found ? known : DEFAULT_EPOCH;
	return epoch;
}

/*
 * Has the schema's shard an epoch, or the extension's schema?
 *
 * Who has waited for the registry's lock may find another one in its place.  Both
 * names are read at one moment, since a shard is renamed here and there at once.
 */
static bool
epoch_of_schema(Oid namespace, TimestampTz *epoch)
{
	Relation	rel;
	Relation	namespaces;
	Snapshot	snapshot;
	ScanKeyData key;
	HeapTuple	schema;
	HeapTuple	row = NULL;

	*epoch = DEFAULT_EPOCH;
	do
	{
		Oid			snowid = get_namespace_oid("snowid", false);

		shard_registry = get_relname_relid("shard_registry", snowid);
		if (namespace == snowid || !OidIsValid(shard_registry))
			return namespace == snowid;
		rel = try_relation_open(shard_registry, AccessShareLock);
	} while (rel == NULL);

	namespaces = table_open(NamespaceRelationId, AccessShareLock);
	snapshot = RegisterSnapshot(GetCatalogSnapshot(shard_registry));
	ScanKeyInit(&key, Anum_pg_namespace_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(namespace));
	schema = find_row(namespaces, NamespaceOidIndexId, snapshot, 1, &key);
	if (schema != NULL)
	{
		ScanKeyInit(&key, REGISTRY_SCHEMA, BTEqualStrategyNumber, F_NAMEEQ,
					NameGetDatum(&((Form_pg_namespace) GETSTRUCT(schema))->nspname));
		row = find_row(rel, get_relname_relid("shard_registry_schema_key", RelationGetNamespace(rel)),
					   snapshot, 1, &key);
	}
	if (row != NULL)
	{
		bool		is_null;
		Datum		value = heap_getattr(row, REGISTRY_EPOCH, RelationGetDescr(rel), &is_null);

		if (!is_null)
			*epoch = DatumGetTimestampTz(value);
	}
	UnregisterSnapshot(snapshot);
	table_close(namespaces, AccessShareLock);
	relation_close(rel, AccessShareLock);
	return row != NULL;
}

/*
 * Does the DEFAULT of the column that owns the sequence call next_id() with an
 * epoch?
 *
 * The table is not locked: who alters it may wait for our lock on the sequence.
 */
static bool
epoch_of_default(Oid seqid, TimestampTz *epoch)
{
	EpochSearch search = {seqid, OWN_EPOCH};
	Oid			table;
	int32		column;
	Relation	rel;
	ScanKeyData keys[2];
	HeapTuple	row;

	if (!sequenceIsOwned(seqid, DEPENDENCY_AUTO, &table, &column))
		return false;

	rel = table_open(AttrDefaultRelationId, AccessShareLock);
	ScanKeyInit(&keys[0], Anum_pg_attrdef_adrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(table));
	ScanKeyInit(&keys[1], Anum_pg_attrdef_adnum, BTEqualStrategyNumber, F_INT2EQ,
				Int16GetDatum((int16) column));
	row = find_row(rel, AttrDefaultIndexId, NULL, 2, keys);
	if (row != NULL)
	{
		bool		is_null;
		Datum		value = heap_getattr(row, Anum_pg_attrdef_adbin, RelationGetDescr(rel), &is_null);

		(void) find_epoch(stringToNode(TextDatumGetCString(value)), &search);
	}
	table_close(rel, AccessShareLock);
	*epoch = search.epoch;
	return search.epoch != OWN_EPOCH;
}

/* A copy of the one row with these keys; NULL if there is none. */
static HeapTuple
find_row(Relation rel, Oid index, Snapshot snapshot, int nkeys, ScanKeyData *keys)
{
	SysScanDesc scan = systable_beginscan(rel, index, OidIsValid(index), snapshot, nkeys, keys);
	HeapTuple	row = heap_copytuple(systable_getnext(scan));

	systable_endscan(scan);
	return row;
}

/* The n-th argument of a call, in whatever notation; NULL without one. */
static void *
find_argument(List *args, int n)
{
	ListCell   *cell;

	foreach(cell, args)
	{
		NamedArgExpr *arg = lfirst(cell);

		if (IsA(arg, NamedArgExpr) ? arg->argnumber == n : foreach_current_index(cell) == n)
			return IsA(arg, NamedArgExpr) ? (void *) arg->arg : (void *) arg;
	}
	return NULL;
}

/* Search an expression for next_id(shard, sequence [, epoch]), with constants. */
static bool
find_epoch(Node *node, EpochSearch *search)
{
	if (node != NULL && IsA(node, FuncExpr))
	{
		List	   *args = ((FuncExpr *) node)->args;
		Oid			function = ((FuncExpr *) node)->funcid;
		char	   *name;
		Const	   *seq = find_argument(args, 1);
		Const	   *epoch = find_argument(args, 2);

		if (seq != NULL && IsA(seq, Const) && DatumGetObjectId(seq->constvalue) == search->seqid &&
			get_func_namespace(function) == get_namespace_oid("snowid", false) &&
			(name = get_func_name(function)) != NULL && strcmp(name, "next_id") == 0)
		{
			if (epoch == NULL)
				search->epoch = DEFAULT_EPOCH;
			else if (IsA(epoch, Const) && !epoch->constisnull)
				search->epoch = DatumGetTimestampTz(epoch->constvalue);
			return true;
		}
	}
	return expression_tree_walker(node, find_epoch, search);
}

/* The trigger on the registry: sessions read their sequences' epochs again. */
Datum
snowid_registry_changed(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function registry_changed() must be called as a trigger")));
	CacheInvalidateRelcache(trigger->tg_relation);
	return PointerGetDatum(NULL);
}
