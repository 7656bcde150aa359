/*
 * Whose ids a node of Citus may make; see citus.h.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/pg_class.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_sequence.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "citus.h"
#include "setting.h"
#include "slot.h"

#define LOCAL_GROUP_TABLE	"pg_dist_local_group"

Oid			citus_group_table = InvalidOid;

static int32 local_group(void);
static void refuse_copy(Relation rel, int32 group, int32 here);


/* Does this database belong to Citus? */
bool
citus_is_here(void)
{
	citus_group_table = get_relname_relid(LOCAL_GROUP_TABLE, PG_CATALOG_NAMESPACE);
	return OidIsValid(citus_group_table);
}

/* Which syscache message tells that Citus comes or goes? */
uint32
citus_hash_value(void)
{
	return GetSysCacheHashValue2(RELNAMENSP, CStringGetDatum(LOCAL_GROUP_TABLE),
								 ObjectIdGetDatum(PG_CATALOG_NAMESPACE));
}

/*
 * Raise 55000 unless this node may make ids of the shard from the sequence.
 * The relation is open and locked.
 *
 * Returns false if that holds for this shard and setting only, so that the
 * next call has to ask again.
 */
bool
citus_check_sequence(Relation rel, int32 shard)
{
	HeapTuple	tuple = SearchSysCache1(SEQRELID,
										ObjectIdGetDatum(RelationGetRelid(rel)));
	Form_pg_sequence form;
	int32		here = local_group();
	int32		group;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for sequence %u", RelationGetRelid(rel));
	form = (Form_pg_sequence) GETSTRUCT(tuple);
	group = slot_citus_group(form->seqstart, form->seqmin);

	/* The smaller types have no range; Citus closes them by their last value. */
	if (group == 0 && here > 0 && form->seqtypid != INT8OID)
		group = here;
	ReleaseSysCache(tuple);

	if (group > 0)
		refuse_copy(rel, group, here);
	if (here < 0)
		return true;

	/*
	 * A sequence that an extension has made is there on each node, and none
	 * is the first.  What keeps their ids apart is a number of the node's
	 * own: Citus carries ALTER DATABASE to all nodes, but no configuration
	 * file.
	 */
	if (!OidIsValid(getExtensionOfObject(RelationRelationId, RelationGetRelid(rel))))
		return true;
	if (shard != snowid_shard || (here > 0 && !snowid_shard_is_of_server))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this node cannot make ids of shard %d from sequence \"%s\"",
						shard, RelationGetRelationName(rel)),
				 errdetail("Every node of Citus has such a sequence. Its ids need a shard number that only this node has, from its configuration file."),
				 errhint("As a superuser, type on each node, with another number: ALTER SYSTEM SET snowid.shard = number; SELECT pg_reload_conf(); and once: ALTER DATABASE %s RESET snowid.shard;",
						 quote_identifier(get_database_name(MyDatabaseId)))));
	return false;
}

/* The group of this node: 0 for a coordinator, -1 without Citus. */
static int32
local_group(void)
{
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;
	int32		group = 0;

	if (!citus_is_here())
		return -1;

	rel = table_open(citus_group_table, AccessShareLock);
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		is_null;
		Datum		value = heap_getattr(tuple, 1, RelationGetDescr(rel), &is_null);

		if (!is_null)
			group = DatumGetInt32(value);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return group;
}

/* Say that a copy makes no ids, and who does. */
static void
refuse_copy(Relation rel, int32 group, int32 here)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("sequence \"%s\" is a copy that makes no ids on this node",
					RelationGetRelationName(rel)),
			 here != group ?
			 errdetail("It has the range that Citus gives worker group %d.", group) :
			 errdetail("It is the copy of worker group %d of Citus; the coordinator makes these ids.",
					   group),
			 errhint("Connect to the coordinator. For a DEFAULT that Citus evaluates there, type there: SET citus.enable_ddl_propagation TO off; ALTER TABLE name ALTER COLUMN id SET DEFAULT coalesce(snowid.next_id(shard, sequence), nextval(sequence)); "
					 "Only if no other node makes ids of this sequence any more, type here: SET citus.enable_ddl_propagation TO off; ALTER SEQUENCE %s AS bigint START 1 MINVALUE 1 NO MAXVALUE RESTART;",
					 quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
												RelationGetRelationName(rel)))));
}
