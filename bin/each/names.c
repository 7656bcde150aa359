/*
 * SQL, token by token: where a script of pg_dump's names its shard, by schema or
 * by number, and what the statements of a script are.
 *
 * pg_dump writes a schema's name before each object's, and PostgreSQL does so in
 * what it has parsed.  What it has not stands in strings: bodies, constants,
 * arguments, search paths.  No renaming of a schema gets there.
 */
#include "each.h"

#include <ctype.h>

static bool
is_word_char(char c)
{
	return isalnum((unsigned char) c) || c == '_' || c == '$' || (c & 0x80) != 0;
}

/* The end of the token that begins there. */
const char *
end_of_token(const char *p, TokenKind *kind)
{
	const char *q = p + 1;
	bool		escapes = tolower((unsigned char) *p) == 'e' && *q == '\'';
	size_t		tag = *p == '$' && !isdigit((unsigned char) *q) ? strcspn(q, "$ \t\n'\"();,") : 0;

	*kind = OTHER;
	if (isspace((unsigned char) *p))
	{
		*kind = SPACE;
		while (isspace((unsigned char) *q))
			q++;
	}
	else if (*p == '-' && *q == '-')
	{
		*kind = COMMENT;
		q = p + strcspn(p, "\n");
	}
	else if (*p == '/' && *q == '*')
	{
		int			depth = 1;

		*kind = COMMENT;
		for (q++; *q != '\0' && depth > 0; q++)
			if ((q[0] == '*' && q[1] == '/') || (q[0] == '/' && q[1] == '*'))
				depth += *q++ == '*' ? -1 : 1;
	}
	else if (*p == '\'' || *p == '"' || escapes)
	{
		char		quote = *p == '"' ? '"' : '\'';

		*kind = quote == '"' ? WORD : STRING;
		for (q += escapes; *q != '\0' && (*q != quote || q[1] == quote); q++)
			q += q[1] != '\0' && (*q == quote || (escapes && *q == '\\'));
		q += *q != '\0';
	}
	else if (*p == '$' && q[tag] == '$')
	{
		char	   *delimiter = pnstrdup(p, tag + 2);
		const char *end = strstr(q + tag + 1, delimiter);

		*kind = STRING;
		q = end != NULL ? end + tag + 2 : p + strlen(p);
		pfree(delimiter);
	}
	else if (is_word_char(*p))
	{
		*kind = isdigit((unsigned char) *p) ? NUMBER : WORD;
		while (is_word_char(*q))
			q++;
	}
	return q;
}

static bool
is_exactly(const char *p, const char *end, const char *text)
{
	return (size_t) (end - p) == strlen(text) && memcmp(p, text, end - p) == 0;
}

bool
is_word(const char *p, const char *end, const char *word)
{
	return (size_t) (end - p) == strlen(word) && pg_strncasecmp(p, word, end - p) == 0;
}

/* How many characters of the name stand there, as a word of a text; 0 if it does not. */
static size_t
name_at(const char *start, const char *p, const ShardName *name)
{
	for (int i = -1; i < (int) lengthof(name->forms); i++)
	{
		const char *form = i < 0 ? name->schema : name->forms[i];
		size_t		n = strlen(form);

		if ((name->folds ? pg_strncasecmp(p, form, n) : strncmp(p, form, n)) == 0 &&
			!(p > start && is_word_char(p[-1]) && is_word_char(*form)) && !(is_word_char(p[n]) && is_word_char(form[n - 1])))
			return n;
	}
	return 0;
}

ShardName
name_of(PGconn *conn, const char *schema, int shard)
{
	ShardName	name = {.schema = query_text(conn, "SELECT quote_ident(%s)", literal(conn, schema)),.shard = shard};

	name.folds = strcmp(name.schema, schema) == 0;

	/* As a text has it; within quotes of an identifier, or of another text. */
	name.forms[0] = schema;
	name.forms[1] = query_text(conn, "SELECT replace(%s, '\"', '\"\"')", literal(conn, schema));
	name.forms[2] = query_text(conn, "SELECT replace(%s, '''', '''''')", literal(conn, schema));
	return name;
}

/* Does a cast to regclass, or the like, follow?  That finds its object by the name of now. */
static bool
is_object(const char *end)
{
	return strncmp(end, "::reg", 5) == 0;
}

static bool
has_name(const char *p, const char *end, const ShardName *name)
{
	const char *start = p;

	while (p < end && name_at(start, p, name) == 0)
		p++;
	return p < end;
}

/* With "#" for the name. */
static void
append_renamed(PQExpBuffer out, const char *p, const char *end, const ShardName *name)
{
	for (const char *start = p; p < end;)
	{
		size_t		n = name_at(start, p, name);

		appendPQExpBufferChar(out, n > 0 ? '#' : *p);
		p += Max(n, 1);
	}
}

/*
 * Append a part of a script of pg_dump's, as it is for another shard: with that
 * one's number where ids are made or checked, and its schema in search paths.
 * Without another, as it is for any: the schema's name is "#" then, or left out
 * before another name.  Returns in how many other texts the name stands.
 */
int
append_for(PQExpBuffer out, const char *p, const char *end, const ShardName *name, const ShardName *other)
{
	const char *own_path = text_of("'%s'", name->forms[2]);
	const char *word = "";
	const char *qualifier = "";
	bool		in_path = false;
	bool		makes_id = false;
	int			checks_id = 0;	/* 1: after id_shard; 2: after its "=" */
	int			n = 0;
	TokenKind	kind;
	const char *next;

	for (; p < end; p = next)
	{
		next = end_of_token(p, &kind);
		if (other == NULL && kind == COMMENT)
			continue;
		if (kind == NUMBER && (makes_id || checks_id == 2) && atoi(p) == name->shard)
			appendPQExpBufferStr(out, other != NULL ? text_of("%d", other->shard) : "#");
		else if (other == NULL && kind == WORD && is_exactly(p, next, name->schema))
		{
			if (*next == '.')
				next++;
			else
				appendPQExpBufferChar(out, '#');
		}
		else if (kind == STRING && other != NULL && in_path && is_exactly(p, next, own_path))
			appendPQExpBuffer(out, "'%s'", other->forms[2]);
		else if (kind == STRING && other == NULL)
			append_renamed(out, p, next, name);
		else
			appendBinaryPQExpBuffer(out, p, next - p);
		n += kind == STRING && !in_path && !is_object(next) && has_name(p, next, name);

		if (kind == SPACE && memchr(p, '\n', next - p) != NULL)
		{
			in_path = false;
			checks_id = 0;
		}
		if (kind == SPACE || kind == COMMENT)
			continue;
		makes_id = *p == '(' && strncmp(word, "next_id", 7) == 0 && strncmp(qualifier, "snowid", 6) == 0;
		if (*p == '=' && checks_id == 1)
			checks_id = 2;
		else if (kind == NUMBER)
			checks_id = 0;
		if (kind == WORD)
		{
			in_path = in_path || (is_exactly(p, next, "TO") && strncmp(word, "search_path", 11) == 0);
			qualifier = p > word && word[0] != '\0' && p[-1] == '.' ? word : "";
			word = p;
			if (is_exactly(p, next, "id_shard") && strncmp(qualifier, "snowid", 6) == 0)
				checks_id = 1;
		}
		else if (kind != OTHER || *p != '.')
			word = qualifier = "";
	}
	return n;
}
