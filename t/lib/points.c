/*
 * Stops PL/pgSQL at its statements, as a debugger does.  For session_preload_libraries.
 *
 * points.cancel = n cancels the n-th statement from now, and with points.times = 2 the
 * one after it, too.  A statement that is run again and again counts once.
 * points.pause_line lets the statement at that line of the function points.pause_function
 * wait for the advisory lock 1, once.
 *
 * With points.names, a function that is called says which operators, functions, types and
 * relations its statements find by the search path, whether they are reached or not.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "parser/parser.h"
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

static bool names;				/* a setting */
static char *reporting;			/* the function */
static int	line;

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

/* The operators of IN, BETWEEN, CASE x WHEN and the like are found by the path, too. */
static bool
report_names(Node *node, void *context)
{
	const char *by_path = NULL;

	if (node == NULL)
		return false;
	if (IsA(node, A_Expr) && list_length(((A_Expr *) node)->name) < 2)
		by_path = strVal(linitial(((A_Expr *) node)->name));
	else if (IsA(node, FuncCall) && list_length(((FuncCall *) node)->funcname) < 2)
		by_path = strVal(linitial(((FuncCall *) node)->funcname));
	else if (IsA(node, TypeName) && list_length(((TypeName *) node)->names) < 2)
		by_path = strVal(linitial(((TypeName *) node)->names));
	else if (IsA(node, SubLink) && ((SubLink *) node)->testexpr != NULL && list_length(((SubLink *) node)->operName) < 2)
		by_path = "IN";
	else if (IsA(node, CaseExpr) && ((CaseExpr *) node)->arg != NULL)
		by_path = "CASE";
	else if (IsA(node, JoinExpr) && (((JoinExpr *) node)->isNatural || ((JoinExpr *) node)->usingClause != NIL))
		by_path = "USING";
	else if (IsA(node, RangeVar) && ((RangeVar *) node)->schemaname == NULL)
		by_path = ((RangeVar *) node)->relname;
	if (by_path != NULL)
		ereport(WARNING, errmsg("by path: %s line %d: %s", reporting, line, by_path));
	return raw_expression_tree_walker(node, report_names, context);
}

static void
report_expression(PLpgSQL_expr *expression)
{
	ListCell   *cell;

	if (expression == NULL)
		return;
	foreach(cell, raw_parser(expression->query, expression->parseMode))
	{
		Node	   *statement = lfirst_node(RawStmt, cell)->stmt;

		/* SET and the like have no names of these kinds */
		if (IsA(statement, SelectStmt) || IsA(statement, PLAssignStmt) || IsA(statement, InsertStmt) ||
			IsA(statement, UpdateStmt) || IsA(statement, DeleteStmt))
			report_names(statement, NULL);
	}
}

static void
report_expressions(List *expressions)
{
	ListCell   *cell;

	foreach(cell, expressions)
		report_expression(lfirst(cell));
}

static void
report_statements(List *statements)
{
	ListCell   *cell;
	ListCell   *inner;

	foreach(cell, statements)
	{
		PLpgSQL_stmt *statement = lfirst(cell);

#define AS(type) ((type *) statement)
		line = statement->lineno;
		switch (statement->cmd_type)
		{
			case PLPGSQL_STMT_BLOCK:
				report_statements(AS(PLpgSQL_stmt_block)->body);
				if (AS(PLpgSQL_stmt_block)->exceptions != NULL)
					foreach(inner, AS(PLpgSQL_stmt_block)->exceptions->exc_list)
						report_statements(((PLpgSQL_exception *) lfirst(inner))->action);
				break;
			case PLPGSQL_STMT_ASSIGN:
				report_expression(AS(PLpgSQL_stmt_assign)->expr);
				break;
			case PLPGSQL_STMT_IF:
				report_expression(AS(PLpgSQL_stmt_if)->cond);
				report_statements(AS(PLpgSQL_stmt_if)->then_body);
				foreach(inner, AS(PLpgSQL_stmt_if)->elsif_list)
				{
					report_expression(((PLpgSQL_if_elsif *) lfirst(inner))->cond);
					report_statements(((PLpgSQL_if_elsif *) lfirst(inner))->stmts);
				}
				report_statements(AS(PLpgSQL_stmt_if)->else_body);
				break;
			case PLPGSQL_STMT_LOOP:
				report_statements(AS(PLpgSQL_stmt_loop)->body);
				break;
			case PLPGSQL_STMT_FORI:
				report_expression(AS(PLpgSQL_stmt_fori)->lower);
				report_expression(AS(PLpgSQL_stmt_fori)->upper);
				report_statements(AS(PLpgSQL_stmt_fori)->body);
				break;
			case PLPGSQL_STMT_FOREACH_A:
				report_expression(AS(PLpgSQL_stmt_foreach_a)->expr);
				report_statements(AS(PLpgSQL_stmt_foreach_a)->body);
				break;
			case PLPGSQL_STMT_EXIT:
				report_expression(AS(PLpgSQL_stmt_exit)->cond);
				break;
			case PLPGSQL_STMT_RETURN:
				report_expression(AS(PLpgSQL_stmt_return)->expr);
				break;
			case PLPGSQL_STMT_PERFORM:
				report_expression(AS(PLpgSQL_stmt_perform)->expr);
				break;
			case PLPGSQL_STMT_EXECSQL:
				report_expression(AS(PLpgSQL_stmt_execsql)->sqlstmt);
				break;
			case PLPGSQL_STMT_RAISE:
				report_expressions(AS(PLpgSQL_stmt_raise)->params);
				foreach(inner, AS(PLpgSQL_stmt_raise)->options)
					report_expression(((PLpgSQL_raise_option *) lfirst(inner))->expr);
				break;
			case PLPGSQL_STMT_DYNEXECUTE:
				report_expression(AS(PLpgSQL_stmt_dynexecute)->query);
				report_expressions(AS(PLpgSQL_stmt_dynexecute)->params);
				break;
			case PLPGSQL_STMT_FORS:
				report_expression(AS(PLpgSQL_stmt_fors)->query);
				report_statements(AS(PLpgSQL_stmt_fors)->body);
				break;
			case PLPGSQL_STMT_COMMIT:
			case PLPGSQL_STMT_GETDIAG:
				break;
			default:
				ereport(WARNING, errmsg("by path: %s line %d: statement of type %d", reporting, line, statement->cmd_type));
		}
	}
}

static void
at_call(PLpgSQL_execstate *estate, PLpgSQL_function *function)
{
	if (!names)
		return;
	reporting = function->fn_signature;
	ereport(WARNING, errmsg("read: %s", reporting));
	for (int i = 0; i < function->ndatums; i++)
		if (function->datums[i]->dtype == PLPGSQL_DTYPE_VAR)
			report_expression(((PLpgSQL_var *) function->datums[i])->default_val);
	report_statements(list_make1(function->action));
}

static PLpgSQL_plugin points;

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
	DefineCustomBoolVariable("points.names", "whether functions say what they find by path", NULL,
							 &names, false, PGC_USERSET, 0, NULL, NULL, NULL);
	points.func_setup = at_call;
	points.stmt_beg = at_statement;
	*find_rendezvous_variable("PLpgSQL_plugin") = &points;
}
