/*
 * The setting snowid.shard; see setting.h.
 */
#include "postgres.h"

#include "utils/guc.h"

#include "compat.h"
#include "layout.h"
#include "setting.h"

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

/* Make the setting known to the server. */
void
define_setting(void)
{
	/*
	 * Only a superuser may set it: it decides which shard all ids of a
	 * database name.
	 */
	DefineCustomIntVariable("snowid.shard",
							"Sets the shard number that next_id() without arguments puts into ids.",
							"-1 means that this database is not a shard.",
							&snowid_shard,
							-1, -1, SHARD_MAX,
							PGC_SUSET, 0,
							check_shard_setting, assign_shard_setting, NULL);
	MarkGUCPrefixReserved("snowid");
}
