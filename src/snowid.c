/*
 * The module: its magic, its start, and a service to create_shards().
 *
 * The library needs no shared memory and no preloading; the first call of any
 * function of the extension loads it.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/inval.h"

#include "setting.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(snowid_forget_catalogs);

void		_PG_init(void);

void
_PG_init(void)
{
	define_setting();
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
