/*
 * The module: its magic, its one setting, and a service to create_shards().
 *
 * The library needs no shared memory and no preloading; the first call of any
 * function of the extension loads it.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/regproc.h"

#include "compat.h"
#include "snowid.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(snowid_forget_catalogs);

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

/*
 * forget_catalogs() → void
 *
 * Empties the session's caches of the catalogs, as happens to any session
 * that falls behind with others' changes.  They would else keep every table
 * that the session has made.
 */
Datum
snowid_forget_catalogs(PG_FUNCTION_ARGS)
{
	InvalidateSystemCaches();
	PG_RETURN_VOID();
}

/* Refuse a call by a definition that is not of this library. */
void
report_unknown_definition(FunctionCallInfo fcinfo)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("the library of snowid does not know function %s",
					format_procedure_qualified(fcinfo->flinfo->fn_oid)),
			 errdetail("Its arguments are those of another version."),
			 errhint("Install the version of snowid that pg_extension names, and connect again.")));
}
