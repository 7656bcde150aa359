/*
 * Definitions of shards: what pg_dump says of them, and in what they differ.
 */
#include "each.h"

#include "common/hashfn.h"

/* How many shards one pg_dump reads: it locks their tables. */
#define AT_ONCE 100

/*
 * Casts belong to no schema, so pg_dump leaves them out: an entry for each, as it
 * would have one, and as CREATE CAST needs it.  No name ends the line of the comment:
 * one side's type may be anybody's.
 */
#define CASTS \
	"SELECT coalesce(string_agg(format(E'\\n--\\n-- Name: (%%6$s); Type: CAST; Schema: %%3$s; Owner: -\\n--\\n\\n" \
	"CREATE CAST (%%1$s AS %%2$s) %%4$s%%5$s;\\n\\n', castsource::regtype, casttarget::regtype, translate(nspname, E'\\n\\r', '  '), " \
	"CASE castmethod WHEN 'f' THEN 'WITH FUNCTION ' || castfunc::regprocedure WHEN 'i' THEN 'WITH INOUT' ELSE 'WITHOUT FUNCTION' END, " \
	"CASE castcontext WHEN 'a' THEN ' AS ASSIGNMENT' WHEN 'i' THEN ' AS IMPLICIT' END, " \
	"translate(concat_ws(' AS ', castsource::regtype, casttarget::regtype), E'\\n\\r', '  ')), '' ORDER BY castsource, casttarget), '') " \
	"FROM (SELECT DISTINCT ON (c.oid) c.*, nspname FROM pg_cast c LEFT JOIN pg_proc p ON p.oid = castfunc " \
	"JOIN pg_type t ON t.oid IN (castsource, casttarget) JOIN pg_namespace n ON n.oid IN (typnamespace, pronamespace) " \
	"WHERE nspname = ANY (ARRAY[%s]) ORDER BY c.oid, nspname) c"

/* What makes these shards, as a script; fails after saying why. */
char *
dump_shards(PGconn *conn, char *const *schemas, int n)
{
	PQExpBufferData list;
	char	   *dump = dump_definitions(conn, options.bindir, schemas, n);
	char	   *both;

	if (dump == NULL)
		fail();
	initPQExpBuffer(&list);
	for (int i = 0; i < n; i++)
		appendPQExpBuffer(&list, "%s%s", i > 0 ? ", " : "", literal(conn, schemas[i]));
	both = format_of("%s%s", dump, query_text(conn, CASTS, list.data));
	termPQExpBuffer(&list);
	free(dump);
	return both;
}

/* The end of an element of a list, or of what is in brackets: a comma, or a bracket of its own. */
static const char *
end_of_element(const char *p)
{
	int			depth = 0;
	TokenKind	kind;

	while (*p != '\0' && (depth > 0 || (*p != ',' && *p != ']')))
	{
		depth += *p == '[' || *p == '(' ? 1 : *p == ']' || *p == ')' ? -1 : 0;
		p = end_of_token(p, &kind);
	}
	return p;
}

/*
 * Append a definition as PostgreSQL writes it once it has read what it wrote:
 * (ARRAY[a, b])::t[] is ARRAY[(a)::t, (b)::t] in each copy.
 */
static void
append_as_copied(PQExpBuffer out, const char *p, const char *end)
{
	TokenKind	kind;

	for (const char *next; p < end; p = next)
	{
		const char *element = p + strlen("(ARRAY[");
		const char *close = element;
		const char *type;

		next = end_of_token(p, &kind);
		if (strncmp(p, "(ARRAY[", element - p) == 0)
			while (*(close = end_of_element(close)) == ',')
				close++;
		type = close + strlen("])::");
		if (close == element || strncmp(close, "])::", 4) != 0 || type[strcspn(type, "[]'\"\n")] != '[')
		{
			appendBinaryPQExpBuffer(out, p, next - p);
			continue;
		}
		next = strchr(type, '[');
		appendPQExpBufferStr(out, "ARRAY[");
		for (const char *e; element < close; element = e + strspn(e, ", "))
		{
			e = end_of_element(element);
			appendPQExpBufferChar(out, '(');
			append_as_copied(out, element, e);
			appendPQExpBuffer(out, ")::%.*s%s", (int) (next - type), type, *e == ',' ? ", " : "");
		}
		appendPQExpBufferChar(out, ']');
		next += strlen("[]");
	}
}

/* Take note of each line of an entry, and add them to the sum of its shard, which knows no order. */
static void
note_entry(const char *subject, char *text, int shard, uint64 *sum)
{
	PQExpBuffer all = createPQExpBuffer();

	appendPQExpBufferStr(all, subject);
	for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
	{
		size_t		n = strlen(line);

		if (line[n - 1] == ',')
			line[n - 1] = '\0';
		if (line[0] == '\\' || strncmp(line, "SET default_table", 17) == 0)
			continue;
		note(subject, line, shard);
		appendPQExpBuffer(all, "\n%s", line);
	}
	*sum += hash_bytes_extended((unsigned char *) all->data, all->len, 0);
	destroyPQExpBuffer(all);
}

/* Is this the header of an entry of pg_dump's: its name, type and schema? */
static bool
is_header(const char *p, TokenKind kind, char *parts[3])
{
	static const char *const separators[] = {"-- Name: ", "; Type: ", "; Schema: ", "; Owner: "};
	char	   *at;

	if (kind != COMMENT || strncmp(p, separators[0], strlen(separators[0])) != 0)
		return false;
	at = keep_text(pnstrdup(p, strcspn(p, "\n"))) + strlen(separators[0]);
	for (int i = 0; i < 3; i++)
	{
		parts[i] = at;
		at = strstr(at, separators[i + 1]);
		if (at == NULL)
			return false;
		*at = '\0';
		at += strlen(separators[i + 1]);
	}
	return true;
}

/* The entry of a dump that begins at *p, or after it: its parts, and what it says.  False at the end. */
bool
next_entry(const char **p, Entry *entry)
{
	char	   *parts[3];
	TokenKind	kind;
	const char *next;
	bool		found = false;

	for (; **p != '\0'; *p = next)
	{
		next = end_of_token(*p, &kind);
		if (!is_header(*p, kind, parts))
			continue;
		if (found)
			break;
		found = true;
		entry->name = parts[0];
		entry->type = parts[1];
		entry->schema = strcmp(parts[2], "-") != 0 ? parts[2] : strncmp(parts[0], "SCHEMA ", 7) == 0 ? parts[0] + 7 : parts[0];
		entry->text = next;
	}
	entry->end = *p;
	return found;
}

static void
note_shards(const char *dump, const ShardName *names, int n)
{
	uint64		sums[AT_ONCE] = {0};
	PQExpBuffer subject = createPQExpBuffer();
	PQExpBuffer text = createPQExpBuffer();
	PQExpBuffer copied = createPQExpBuffer();
	Entry		entry;

	while (next_entry(&dump, &entry))
		for (int i = 0; i < n; i++)
		{
			size_t		own = strlen(entry.name) - strlen(entry.schema);

			if (strcmp(names[i].forms[0], entry.schema) != 0)
				continue;
			printfPQExpBuffer(subject, "%s ", entry.type);
			if (strlen(entry.name) >= strlen(entry.schema) && strcmp(entry.name + own, entry.schema) == 0)
				appendPQExpBuffer(subject, "%.*s#", (int) own, entry.name);
			else
				(void) append_for(subject, entry.name, entry.name + strlen(entry.name), &names[i], NULL);
			resetPQExpBuffer(text);
			resetPQExpBuffer(copied);
			(void) append_for(text, entry.text, entry.end, &names[i], NULL);
			append_as_copied(copied, text->data, text->data + text->len);
			note_entry(subject->data, copied->data, names[i].shard, &sums[i]);
		}
	for (int i = 0; i < n; i++)
		note("definitions", text_of("%016llx", (unsigned long long) sums[i]), names[i].shard);
	destroyPQExpBuffer(subject);
	destroyPQExpBuffer(text);
	destroyPQExpBuffer(copied);
}

int
command_diff(void)
{
	int			n = 0;

	for (int server = 0; server < nservers; server++)
	{
		PGconn	   *conn = reach_server(server);
		PGresult   *res;
		int			k;

		if (conn == NULL)
			continue;
		res = shards_here(conn, "shard, schema", "");
		for (int row = 0; row < PQntuples(res); row += k)
		{
			int			mark = mark_texts();
			char	   *schemas[AT_ONCE];
			ShardName	names[AT_ONCE];
			char	   *dump;

			for (k = 0; k < AT_ONCE && row + k < PQntuples(res); k++)
			{
				schemas[k] = PQgetvalue(res, row + k, 1);
				names[k] = name_of(conn, schemas[k], atoi(PQgetvalue(res, row + k, 0)));
			}
			dump = dump_shards(conn, schemas, k);
			note_shards(dump, names, k);
			free(dump);
			free_texts(mark);
		}
		n += PQntuples(res);
		PQclear(res);
		PQfinish(conn);
	}
	return tell_notes(n) || is_down(NULL) ? EXIT_FAILED : EXIT_DONE;
}
