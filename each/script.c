/*
 * The script: read from its file, or from a ledger, and split into statements by
 * psql's own lexer if it cannot run in a transaction.
 */
#include "each.h"

#include "mb/pg_wchar.h"
#include "fe_utils/psqlscan.h"

/* What the first line of such a script says. */
#define NO_TRANSACTION "-- no transaction"

struct Script script;

static char *
read_file(const char *name)
{
	FILE	   *file = fopen(name, "r");
	char	   *text = NULL;
	size_t		size = 0;

	if (file == NULL || getdelim(&text, &size, '\0', file) < 0)
	{
		report_error("could not read file \"%s\": %m", name);
		exit(EXIT_USAGE);
	}
	fclose(file);
	return text;
}

static void
use_ledger(const char *text, const char *unused, int shard)
{
	if (script.text == NULL)
		script.text = pg_strdup(text);
	else if (strcmp(script.text, text) != 0)
	{
		report_error("shard %d has another script \"%s\" than others", shard, options.name);
		report_hint("Say which: --file");
		exit(EXIT_USAGE);
	}
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
		{
			report_error("the script %s", result == PSCAN_BACKSLASH ? "has a command of psql's"
						 : "ends within a statement");
			exit(EXIT_USAGE);
		}
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
	if (options.file != NULL)
		script.text = read_file(options.file);
	else
		read_ledgers("script, NULL", text_of("name = %s AND (finished_at IS NOT NULL OR statements > 0)",
											 literal(registry, options.name)), use_ledger);
	if (script.text == NULL)
	{
		report_error("no shard has done \"%s\"", options.name);
		report_hint("Say where it is: --file");
		exit(EXIT_USAGE);
	}
	script.checksum = query_text(registry, "SELECT encode(sha256(convert_to(%s, 'UTF8')), 'hex')",
								 literal(registry, script.text));
	if (strncmp(script.text, NO_TRANSACTION, strlen(NO_TRANSACTION)) == 0 &&
		strchr("\r\n", script.text[strlen(NO_TRANSACTION)]) != NULL)
		split_script();
}
