/*
 * Messages, texts and the clock.
 */
#include "base.h"

#include <sys/time.h>
#include <time.h>
#include <unistd.h>

const char *progname;
bool		verbose = false;
int			failure_exit_code = EXIT_FAILED;

/* Before each message, for who wants to see each step. */
static void
tell_time(void)
{
	struct timeval now;
	time_t		seconds;
	char text[	16];

	if (!verbose)
		return;
	gettimeofday(&now, NULL);
	seconds = now.tv_sec;
	strftime(text, sizeof(text), "%H:%M:%S", localtime(&seconds));
	fprintf(stderr, "%s.%03d ", text, (int) (now.tv_usec / 1000));
}

void
begin_messages(const char *name)
{
	pg_logging_init(progname = name);
	pg_logging_set_pre_callback(tell_time);
}

char *
without_controls(char *text)
{
	for (char *c = text; *c != '\0'; c++)
		if (c > text &&c[-1] == '\xc2' && (unsigned char) *c < 0xa0)
			c[-1] = *c = '?';
		else if (((unsigned char) *c < ' ' && *c != '\n' && *c != '\t') || *c == 0x7f)
			*c = '?';
	return text;
}

char *
printable(const char *text)
{
	return without_controls(text_of("%.*s", (int) strcspn(text, "\n"), text));
}

void
report(enum pg_log_level level, enum pg_log_part part, const char *fmt,...)
{
	va_list		args;
	char	   *text;

	va_start(args, fmt);
	text = format_text(fmt, args);

	va_end(args);
	pg_log_generic(level, part, "%s", without_controls(text));
	pg_free(text);
}

void
tell_now_and_then(const char *fmt,...)
{
	static int64 told = 0;
	bool		terminal = isatty(STDERR_FILENO);
	va_list		args;
	char	   *text;

	if (now_ms() - told < (terminal ? 1000 : 10000))
		return;
	told = now_ms();
	va_start(args, fmt);
	text = format_text(fmt, args);

	va_end(args);
	fprintf(stderr, "%s%s: %s%s", terminal ? "\r" : "", progname, without_controls(text), terminal ? "   " : "\n");
	pg_free(text);
}

char *
json_text(const char *value)
{
	PQExpBufferData json;

	if (value == NULL)
		return keep_text(pg_strdup("null"));
	initPQExpBuffer(&json);
	appendPQExpBufferChar(&json, '"');
	for (; *value != '\0'; value++)
		appendPQExpBuffer(&json, (unsigned char) *value < ' ' ? "\\u%04x" : *value == '"' || *value == '\\' ? "\\%c" : "%c", *value);
	appendPQExpBufferChar(&json, '"');
	return keep_text(json.data);
}

void
print_fields(const char *name,...)
{
	va_list		args;
	const char *begin = "{";

	va_start(args, name);
	for (; name != NULL; name = va_arg(args, const char *))
	{
		const char *value = va_arg(args, const char *);

		printf("%s%s: %s", begin, json_text(name + (*name == '#')), *name == '#' ? value : json_text(value));
		begin = ", ";
	}
	va_end(args);
	puts("}");
}

/* printf into new memory. */
char *
format_text(const char *fmt, va_list args)
{
	va_list		again;
	char	   *text;
	int			len;

	va_copy(again, args);
	len = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	text = pg_malloc(len + 1);

	vsnprintf(text, len + 1, fmt, args);
	return text;
}

char *
format_of(const char *fmt,...)
{
	va_list		args;
	char	   *text;

	va_start(args, fmt);
	text = format_text(fmt, args);

	va_end(args);
	return text;
}

char *
text_of(const char *fmt,...)
{
	va_list		args;
	char	   *text;

	va_start(args, fmt);
	text = format_text(fmt, args);

	va_end(args);
	return keep_text(text);
}

static char **texts = NULL;
static int	ntexts = 0;
static int	texts_size = 0;

/* Remember a text for free_texts(). */
char *
keep_text(char *text)
{
	if (ntexts == texts_size)
	{
		texts_size = texts_size == 0 ? 64 : 2 * texts_size;
		texts = pg_realloc(texts, texts_size * sizeof(char *));
	}
	texts[ntexts++] = text;
	return text;
}

int
mark_texts(void)
{
	return ntexts;
}

void
free_texts(int mark)
{
	while (ntexts > mark)
		pg_free(texts[--ntexts]);
}

int
failure(void)
{
	if (failure_exit_code == EXIT_INCOMPLETE)
		report_hint("This is not complete. Type the same command again.");
	return failure_exit_code;
}

void
fail(void)
{
	exit(failure());
}

int64
now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64) t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The pause between two looks at a condition on a server. */
void
wait_ms(int ms)
{
	struct timespec t = {ms / 1000, (long) (ms % 1000) * 1000000};

	nanosleep(&t, NULL);
}
