/*
 * Whose ids a node of Citus may make.
 *
 * Citus makes a copy of a distributed sequence on every worker, and evaluates
 * a DEFAULT on whatever node it likes.  Two copies can issue the same slot, so
 * only one of them may issue any: the coordinator's, unless somebody has told
 * a worker otherwise.  A copy is known by what Citus has written into its
 * definition, a worker by its group in pg_dist_local_group.
 *
 * Where there is no Citus, this refuses only what looks like such a copy:
 * START = MINVALUE = (group << 48) + 1.
 */
#ifndef SNOWID_CITUS_H
#define SNOWID_CITUS_H

#include "utils/rel.h"

/* What was last seen of pg_dist_local_group; a message about it counts. */
extern Oid	citus_group_table;

extern bool citus_is_here(void);
extern uint32 citus_hash_value(void);
extern bool citus_check_sequence(Relation rel, int32 shard);

#endif							/* SNOWID_CITUS_H */
