/*
 * The module: its magic, its setting, and a service to create_shards().
 *
 * The library needs no shared memory and no preloading; the first call of any
 * function of the extension loads it.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/guc.h"
#include "utils/inval.h"

#include "compat.h"
#include "layout.h"
#include "setting.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(snowid_forget_catalogs);

void		_PG_init(void);

int			snowid_shard = -1;
bool		snowid_shard_is_of_server = false;


/* Note where a value comes from: the server, or database, role or session. */
static bool
check_shard_setting(int *newval, void **extra, GucSource source)
{
	bool	   *is_of_server = guc_malloc(LOG, sizeof(bool));

	if (is_of_server == NULL)
		return false;
	*is_of_server = source <= PGC_S_ARGV;
	*extra = is_of_server;
	return true;
}

static void
assign_shard_setting(int newval, void *extra)
{
	snowid_shard_is_of_server = *(bool *) extra;
}

/* Only a superuser may set it: it decides which shard all ids of a database name. */
void
_PG_init(void)
{
	DefineCustomIntVariable("snowid.shard",
							"Sets the shard number that next_id() without arguments puts into ids.",
							"-1 means that this database is not a shard.",
							&snowid_shard,
							-1, -1, SHARD_MAX,
							PGC_SUSET, 0,
							check_shard_setting, assign_shard_setting, NULL);
	MarkGUCPrefixReserved("snowid");
}

/*
 * forget_catalogs() → void
 *
 * Empties the session's catalog caches, which keep an entry for every table
 * that the session has made.  PostgreSQL itself empties them in a session that
 * falls behind with invalidation messages.
 */
Datum
snowid_forget_catalogs(PG_FUNCTION_ARGS)
{
	InvalidateSystemCaches();
	PG_RETURN_VOID();
}
