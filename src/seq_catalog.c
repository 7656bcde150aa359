/*
 * What the catalogs say of a sequence; see seq_catalog.h.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/pg_class.h"
#include "catalog/pg_sequence.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "reservation.h"
#include "seq_catalog.h"
#include "seq_refusal.h"


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
	ReleaseSysCache(tuple);

	if (rules.increment < 1 || rules.increment > SLOTS_PER_MS)
		refuse_increment(RelationGetRelid(rel), rules.increment);
	return rules;
}
