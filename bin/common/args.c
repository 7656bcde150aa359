/*
 * Values of options.  One that is wrong ends the program.
 */
#include "base.h"

#include <ctype.h>
#include <getopt.h>
#include <time.h>

void
try_help(void)
{
	fprintf(stderr, "Try \"%s --help\" for more information.\n", progname);
	exit(EXIT_USAGE);
}

/* As a shell takes it. */
char *
shell_word(const char *text)
{
	PQExpBufferData buf;

	initPQExpBuffer(&buf);
	appendPQExpBufferChar(&buf, '\'');
	for (const char *p = text; *p != '\0'; p++)
	{
		if (*p == '\'')
			appendPQExpBufferStr(&buf, "'\\'");
		appendPQExpBufferChar(&buf, *p);
	}
	appendPQExpBufferChar(&buf, '\'');
	return buf.data;
}

static void refuse_value(const char *option, const char *value, const char *fmt,...) pg_attribute_printf(3, 4) NORETURN;

static void
refuse_value(const char *option, const char *value, const char *fmt,...)
{
	va_list		args;

	report_error("invalid value \"%s\" for option --%s", value, option);
	va_start(args, fmt);
	pg_log_generic_v(PG_LOG_ERROR, PG_LOG_DETAIL, fmt, args);
	va_end(args);
	exit(EXIT_USAGE);
}

static int
parse_int(const Option *o, const char *value)
{
	char	   *end;
	long		n;

	errno = 0;
	n = strtol(value, &end, 10);
	if (end == value || *end != '\0' || errno != 0 || n < o->min || n > o->max)
		refuse_value(o->name, value, "It must be a number from %d to %d.", o->min, o->max);
	return (int) n;
}

static int64
parse_size(const Option *o, const char *value)
{
	static const struct
	{
		const char *unit;
		int			shift;
	}			units[] = {{"", 0}, {"B", 0}, {"kB", 10}, {"MB", 20}, {"GB", 30}, {"TB", 40}};
	char	   *end;
	long long	n;

	errno = 0;
	n = strtoll(value, &end, 10);
	if (end != value && errno == 0 && n >= 0)
		for (int i = 0; i < (int) lengthof(units); i++)
			if (strcmp(end, units[i].unit) == 0 && n <= (PG_INT64_MAX >> units[i].shift))
				return (int64) n << units[i].shift;
	refuse_value(o->name, value, "Units are B, kB, MB, GB and TB.");
}

/*
 * Numbers and ranges of shards, "0-999,1500", in any order; with those of an
 * earlier --shard.  Returns how many; they rise, none is there twice.
 */
static int
parse_shards(const Option *o, const char *value, int **shards)
{
	static bool wanted[MAX_SHARD + 1];
	char	   *end = unconstify(char *, value) - 1;
	int			nshards = 0;

	do
	{
		const char *start = end + 1;
		long		first = strtol(start, &end, 10);
		long		last = *end == '-' && isdigit((unsigned char) end[1]) ? strtol(end + 1, &end, 10) : first;

		if (!isdigit((unsigned char) *start) || first > last || last > MAX_SHARD || (*end != ',' && *end != '\0'))
			refuse_value(o->name, value, "It must be numbers from 0 to %d and ranges of them, such as 5 or 0-999,1500.", MAX_SHARD);
		for (int i = first; i <= last; i++)
			wanted[i] = true;
	} while (*end != '\0');
	*shards = pg_malloc(lengthof(wanted) * sizeof(int));
	for (int i = 0; i <= MAX_SHARD; i++)
		if (wanted[i])
			(*shards)[nshards++] = i;
	return nshards;
}

/* The next time that it is so late here: also on a day when the clock is put forward over it, or back before it. */
time_t
next_time(const char *option, const char *value)
{
	const int	day = 24 * 60;
	struct tm	wanted = {0};
	char	   *rest = strptime(value, "%H:%M", &wanted);
	time_t		then = time(NULL) / 60 * 60;
	int			before = 0;

	if (rest == NULL || *rest != '\0')
		refuse_usage("invalid value \"%s\" for option --%s: it must be HH:MM", value, option);
	for (;;)
	{
		struct tm	clock = *localtime(&then);
		int			left = (60 * (wanted.tm_hour - clock.tm_hour) + wanted.tm_min - clock.tm_min + day) % day;

		if (before > 0 && (left == 0 || left - before >= day / 2))
			return then;
		before = left > 0 ? left : day;
		then += 60;
	}
}

static bool is_given[64];		/* in the order of the table */

/* An option that a command does not have would be ignored, and something else done than was meant. */
void
refuse_options_but(const Option *table, int command, const char *name)
{
	for (int i = 0; table[i].name != NULL; i++)
		if (is_given[i] && table[i].commands != 0 && (table[i].commands & command) == 0)
			refuse_usage("the command %s has no option --%s", name, table[i].name);
}

/* "5", "0-9,15": as --shard takes them. */
char *
ranges_of(const int *shards, int nshards)
{
	PQExpBufferData list;
	int			last;

	initPQExpBuffer(&list);
	for (int i = 0; i < nshards; i = last + 1)
	{
		for (last = i; last + 1 < nshards && shards[last + 1] == shards[last] + 1;)
			last++;
		appendPQExpBuffer(&list, "%s%d", i > 0 ? "," : "", shards[i]);
		if (last > i)
			appendPQExpBuffer(&list, "-%d", shards[last]);
	}
	return list.data;
}

static void
print_help(const Option *table, const char *synopsis, const char *epilogue)
{
	printf("%s\nOptions:\n", synopsis);
	for (const Option *o = table; o->name != NULL; o++)
	{
		char	   *letter = o->letter != 0 ? text_of("-%c, ", o->letter) : text_of("    ");
		char	   *left = text_of("  %s--%s%s%s", letter, o->name, o->argument != NULL ? "=" : "",
								   o->argument != NULL ? o->argument : "");

		printf(strlen(left) < 25 ? "%-24s " : "%s\n%25s", left, "");
		for (const char *p = o->help; *p != '\0'; p++)
			printf(*p == '\n' ? "\n%25c" : "%c", *p == '\n' ? ' ' : *p);
		putchar('\n');
	}
	printf("  -V, --version          output version information, then exit\n");
	printf("  -?, --help             show this help, then exit\n\n%s", epilogue);
}

static void
take_value(const Option *o, const char *value)
{
	if (o->flag != NULL)
		*o->flag = true;
	if (o->string != NULL)
		*o->string = value;
	if (o->strings != NULL)
	{
		o->strings->items = pg_realloc(o->strings->items, (o->strings->n + 1) * sizeof(char *));
		o->strings->items[o->strings->n++] = value;
	}
	if (o->number != NULL)
		*o->number = parse_int(o, value);
	if (o->size != NULL)
		*o->size = parse_size(o, value);
	if (o->shards != NULL)
		o->shards->n = parse_shards(o, value, &o->shards->numbers);
}

char	  **more_arguments;

void
refuse_more_arguments(void)
{
	if (more_arguments[0] != NULL)
		refuse_usage("unknown argument \"%s\"", more_arguments[0]);
}

char *
parse_command_line(int argc, char *argv[], const Option *table, const char *synopsis, const char *epilogue)
{
	struct option names[64] = {{"version", no_argument, NULL, 'V'}, {"help", no_argument, NULL, 'h'}};
	char		letters[64] = "V";
	int			c;

	for (int i = 0; table[i].name != NULL; i++)
	{
		names[i + 2] = (struct option)
		{
			table[i].name, table[i].argument != NULL, NULL, 256 + i
		};
		if (table[i].letter != 0)
			sprintf(letters + strlen(letters), "%c%s", table[i].letter, table[i].argument != NULL ? ":" : "");
	}
	if (argc > 1 && strcmp(argv[1], "-?") == 0)
		argv[1] = "--help";
	while ((c = getopt_long(argc, argv, letters, names, NULL)) != -1)
	{
		const Option *o = table;

		if (c == 'h')
			print_help(table, synopsis, epilogue);
		else if (c == 'V')
			printf("%s (snowid) %s\n", progname, PROGRAM_VERSION);
		if (c == 'h' || c == 'V')
			exit(0);
		while (o->name != NULL && o->letter != c && o - table != c - 256)
			o++;
		if (o->name == NULL)
			try_help();
		is_given[o - table] = true;
		take_value(o, optarg);
	}
	more_arguments = optind < argc ? argv + optind + 1 : argv + argc;
	return argv[optind];
}
