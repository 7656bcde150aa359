/*
 * The script: read from its file, or from a ledger, and split into statements by
 * psql's own lexer.
 */
#include "each.h"

#include "mb/pg_wchar.h"
#include "fe_utils/psqlscan.h"

#include <fcntl.h>

/* What the first line says of a script that cannot run in a transaction. */
#define NO_TRANSACTION "-- no transaction"

Script		script;

static const PsqlScanCallbacks no_variables = {NULL};

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
	if (strncmp(notes[0].subject, EXEC, strlen(EXEC)) == 0)
		refuse_call("\"%s\" is no script, but the command of an exec", options.name);
	return notes[0].subject;
}

/* The next word of a statement, which ends at *p then; "" at the end. */
static const char *
next_word(const char **p)
{
	TokenKind	kind = OTHER;
	const char *start = *p;

	while (**p != '\0' && kind != WORD)
	{
		start = *p;
		*p = end_of_token(start, &kind);
	}
	return kind == WORD ? start : *p;
}

/* Is that one of the words, "A|B", that a statement has; the first one only? */
static bool
has_word(const char *statement, const char *words, bool first)
{
	const char *end = statement;

	for (const char *word = next_word(&end); *word != '\0'; word = next_word(&end))
	{
		for (const char *w = words; *w != '\0'; w += strcspn(w, "|"), w += *w == '|')
			if (strcspn(w, "|") == (size_t) (end - word) && pg_strncasecmp(w, word, end - word) == 0)
				return true;
		if (first)
			return false;
	}
	return false;
}

bool
is_first_word(const char *statement, const char *words)
{
	return has_word(statement, words, true);
}

/* A statement as it can stand in brackets: what ends it, and comments after that, would be in the way. */
char *
without_semicolon(const char *statement)
{
	PQExpBufferData s;
	TokenKind	kind;

	initPQExpBuffer(&s);
	for (const char *p = statement, *next; *p != '\0'; p = next)
	{
		next = end_of_token(p, &kind);
		if (kind == COMMENT || (kind == OTHER && *p == ';'))
			appendPQExpBufferChar(&s, ' ');
		else
			appendBinaryPQExpBuffer(&s, p, next - p);
	}
	return s.data;
}

/* Does a statement, while it waits for a lock, let all go on that read and write? */
bool
blocks_nobody(const char *statement)
{
	return (has_word(statement, "CREATE|DROP|REINDEX", true) && has_word(statement, "CONCURRENTLY", false)) ||
		(has_word(statement, "VACUUM", true) && !has_word(statement, "FULL", false));
}

/*
 * Does a statement build indexes while others write: 1.  For one with an
 * expression or a condition others like it wait, until it is built: 2.
 */
int
build_of(const char *statement)
{
	int			depth = 0;
	TokenKind	kind;

	if (!has_word(statement, "CONCURRENTLY", false) || has_word(statement, "DROP|ALTER|REFRESH", true))
		return 0;
	if (has_word(statement, "REINDEX", true) || has_word(statement, "WHERE", false))
		return 2;
	for (const char *p = statement; *p != '\0'; p = end_of_token(p, &kind))
	{
		depth += *p == '(' ? 1 : *p == ')' ? -1 : 0;
		if (depth > 1)
			return 2;
	}
	return 1;
}

static int
line_of(const char *text, const char *p)
{
	int			line = 1;

	for (; text <p; text ++)
		line += *text == '\n';
	return line;
}

/* Of an error in a statement: where the server says, as a number of characters, or where it begins. */
int
line_of_error(int i, int position)
{
	const char *p = script.statements[i];
	TokenKind	kind = SPACE;

	for (const char *next = p; position == 0 && *next != '\0' && (kind == SPACE || kind == COMMENT); next = end_of_token(p, &kind))
		p = next;

	/* A character of UTF-8 has one byte that is no continuation. */
	while (position > 1 && *p != '\0')
		position -= (*++p & 0xC0) != 0x80;
	return script.lines[i] + line_of(script.statements[i], p) - 1;
}

Script
split_script(char *text)
{
	PsqlScanState lexer = psql_scan_create(&no_variables);
	PQExpBuffer statement = createPQExpBuffer();
	PsqlScanResult result;
	promptStatus_t prompt;
	const char *at = text;
	size_t		n = strlen(NO_TRANSACTION);
	Script		s = {0};

	s.text = text;

	s.whole = strncmp(text, NO_TRANSACTION, n) != 0 || strchr("\r\n", text[n]) == NULL;
	s.statements = pg_malloc((strlen(text) + 1) * sizeof(char *));
	s.lines = pg_malloc((strlen(text) + 1) * sizeof(int));
	psql_scan_setup(lexer, text, strlen(text), PG_UTF8, true);
	do
	{
		result = psql_scan(lexer, statement, &prompt);
		if (result == PSCAN_BACKSLASH || (result == PSCAN_INCOMPLETE && prompt != PROMPT_READY))
			refuse_call("the script %s", result == PSCAN_BACKSLASH ? "has a command of psql's" : "ends within a statement");
		if (statement->len > 0)
		{
			const char *found = strstr(at, statement->data);

			at = found != NULL ? found : at;
			s.lines[s.nstatements] = line_of(text, at);
			s.statements[s.nstatements++] = pg_strdup(statement->data);
			at += found != NULL ? statement->len : 0;
		}
		resetPQExpBuffer(statement);
	} while (result == PSCAN_SEMICOLON);
	psql_scan_finish(lexer);
	psql_scan_destroy(lexer);
	destroyPQExpBuffer(statement);
	return s;
}

/* Refuse what would end a shard's transaction, or what only the next statement would see. */
static void
check_statements(void)
{
	for (int i = 0; i < script.nstatements; i++)
	{
		const char *statement = script.statements[i];
		const char *end = statement;
		const char *word = next_word(&end);

		if (script.whole && (has_word(statement, "BEGIN|START|COMMIT|END|ABORT", true) ||
							 (has_word(statement, "ROLLBACK", true) && !has_word(statement, "TO", false)) ||
							 (has_word(statement, "PREPARE", true) && has_word(end, "TRANSACTION", true))))
			refuse_call("line %d: %.*s: each shard has its own transaction, which the script cannot end",
						line_of_error(i, 0), (int) (end - word), word);
		if (!script.whole && has_word(statement, "SET", true) && has_word(end, "ROLE|AUTHORIZATION", false))
			refuse_call("line %d: SET ROLE is not kept from one statement to the next; connect as that role", line_of_error(i, 0));
	}
}

void
read_script(PGconn *registry)
{
	int			fd = options.file != NULL ? open(options.file, O_RDONLY) : -1;
	char	   *sql;

	if (options.file != NULL && fd < 0)
		refuse_call("could not read file \"%s\": %m", options.file);
	sql = fd >= 0 ? read_all(fd) : read_script_of_ledgers(registry);

	/* Some editors begin a text with a mark, which is no part of it. */
	if (strncmp(sql, "\xEF\xBB\xBF", 3) == 0)
		sql += 3;

	script = split_script(sql);
	if (sql[0] == '\0')
		refuse_call("the script is empty");
	check_statements();
}
