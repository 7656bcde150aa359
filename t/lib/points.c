/*
 * Stops PL/pgSQL at its statements, as a debugger does.  For session_preload_libraries.
 *
 * points.cancel = n cancels the n-th statement from now, and with points.times = 2 the
 * one after it, too.  A statement that is run again and again counts once.
 * points.pause = 'line of text' lets the statement at that line of a function wait for the
 * advisory lock 1, once.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "plpgsql.h"
#include "utils/builtins.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

static int	cancel;				/* the settings */
static int	times = 1;
static int	pause_line;
static char *pause_function;

static int	left;				/* statements until the cancel */
static int	cancels;			/* how many are left then */
static PLpgSQL_stmt *last;

static void
assign_cancel(int value, void *extra)
{
	left = value;
	cancels = times;
	last = NULL;
}

static void
at_statement(PLpgSQL_execstate *estate, PLpgSQL_stmt *stmt)
{
	if (stmt->lineno == pause_line && strstr(estate->func->fn_signature, pause_function) != NULL)
	{
		pause_line = 0;
		DirectFunctionCall1(pg_advisory_lock_shared_int8, Int64GetDatum(1));
		DirectFunctionCall1(pg_advisory_unlock_shared_int8, Int64GetDatum(1));
	}
	if (stmt == last || cancels == 0 || left == 0)
		return;
	last = stmt;
	if (left > 1)
	{
		left--;
		return;
	}
	if (--cancels == 0)
		left = 0;
	InterruptPending = true;
	QueryCancelPending = true;
}

static PLpgSQL_plugin points = {.stmt_beg = at_statement};

void
_PG_init(void)
{
	DefineCustomIntVariable("points.times", "how many statements in a row are canceled", NULL,
							&times, 1, 1, 2, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("points.cancel", "the statement from now that is canceled", NULL,
							&cancel, 0, 0, INT_MAX, PGC_USERSET, 0, NULL, assign_cancel, NULL);
	DefineCustomIntVariable("points.pause_line", "the line of the statement that waits", NULL,
							&pause_line, 0, 0, INT_MAX, PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("points.pause_function", "its function", NULL,
							   &pause_function, "", PGC_USERSET, 0, NULL, NULL, NULL);
	*find_rendezvous_variable("PLpgSQL_plugin") = &points;
}
