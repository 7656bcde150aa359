/*
 * The script: read from its file, or from a ledger, and split into statements by
 * psql's own lexer if it cannot run in a transaction.
 */
#include "each.h"

#include "mb/pg_wchar.h"
#include "fe_utils/psqlscan.h"

#include <fcntl.h>

/* What the first line of such a script says. */
#define NO_TRANSACTION "-- no transaction"

struct Script script;

/* The one that all ledgers have which have it. */
static char *
read_script_of_ledgers(PGconn *conn)
{
	read_ledgers("script, NULL", text_of("name = %s AND (finished_at IS NOT NULL OR statements > 0)", literal(conn, options.name)));
	if (nnotes == 0)
		refuse_call("no shard has done \"%s\"; say where it is: --file", options.name);
	for (; nnotes > 0; nnotes--)
		if (strcmp(notes[nnotes - 1].subject, notes[0].subject) != 0)
			refuse_call("shard %d has another script \"%s\" than others; say which: --file", notes[nnotes - 1].shard, options.name);
	return notes[0].subject;
}

static void
split_script(void)
{
	static const PsqlScanCallbacks no_variables = {NULL};
	PsqlScanState lexer = psql_scan_create(&no_variables);
	PQExpBuffer statement = createPQExpBuffer();
	PsqlScanResult result;
	promptStatus_t prompt;

	script.statements = pg_malloc((strlen(script.text) + 1) * sizeof(char *));
	psql_scan_setup(lexer, script.text, strlen(script.text), PG_UTF8, true);
	do
	{
		result = psql_scan(lexer, statement, &prompt);
		if (result == PSCAN_BACKSLASH || (result == PSCAN_INCOMPLETE && prompt != PROMPT_READY))
			refuse_call("the script %s", result == PSCAN_BACKSLASH ? "has a command of psql's" : "ends within a statement");
		if (statement->len > 0)
			script.statements[script.nstatements++] = pg_strdup(statement->data);
		resetPQExpBuffer(statement);
	} while (result == PSCAN_SEMICOLON);
	psql_scan_finish(lexer);
	psql_scan_destroy(lexer);
	destroyPQExpBuffer(statement);
}

void
read_script(PGconn *registry)
{
	int			fd = options.file != NULL ? open(options.file, O_RDONLY) : -1;

	if (options.file != NULL && fd < 0)
		refuse_call("could not read file \"%s\": %m", options.file);
	script.text = fd >= 0 ? read_all(fd) : read_script_of_ledgers(registry);
	if (script.text[0] == '\0')
		refuse_call("the script is empty");
	if (strncmp(script.text, NO_TRANSACTION, strlen(NO_TRANSACTION)) == 0 &&
		strchr("\r\n", script.text[strlen(NO_TRANSACTION)]) != NULL)
		split_script();
}
