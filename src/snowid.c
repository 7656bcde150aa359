/*
 * The module: its magic, and its one setting.
 *
 * The library needs no shared memory and no preloading; the first call of any
 * function of the extension loads it.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/guc.h"

#include "compat.h"
#include "snowid.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

int			snowid_shard = -1;

void
_PG_init(void)
{
	/*
	 * Only a superuser sets it: whoever sets it decides which shard the ids
	 * of a whole database name.
	 */
	DefineCustomIntVariable("snowid.shard",
							"Sets the shard number that next_id() without arguments puts into ids.",
							"-1 means that this database is not a shard.",
							&snowid_shard,
							-1, -1, SHARD_MAX,
							PGC_SUSET, 0,
							NULL, NULL, NULL);
	MarkGUCPrefixReserved("snowid");
}
