/*
 * Raises an error in place of the library's n-th call of the server: errors.pl
 * builds the library with it.
 *
 * An error is raised where PostgreSQL could raise one: as an out-of-memory
 * everywhere but in a critical section and in the callbacks at a transaction's
 * end, as a cancel where interrupts are served, or else at the next such place.
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"

#include "seq_session.h"

PG_FUNCTION_INFO_V1(snowid_inject);

extern void inject(void);

static int	calls_left = 0;
static bool is_cancel = false;


void
inject(void)
{
	if (calls_left == 0 || CritSectionCount > 0 || !IsTransactionState() || --calls_left > 0)
		return;
	if (!is_cancel)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("injected")));
	QueryCancelPending = InterruptPending = true;
	ProcessInterrupts();
}

/*
 * inject(n int, cancel boolean) → int
 *
 * Fails the n-th call from now on; returns how many were left, 0 if one failed.
 * Calls come at the begin of a (sub)transaction, where no page can be pinned.
 */
Datum
snowid_inject(PG_FUNCTION_ARGS)
{
	int			left = calls_left;

	if (pinned_sequence != NULL)
		elog(WARNING, "fault: a page is taken for pinned");
	calls_left = PG_GETARG_INT32(0);
	is_cancel = PG_GETARG_BOOL(1);
	PG_RETURN_INT32(left);
}
