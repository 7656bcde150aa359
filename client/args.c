/*
 * Values of options.  One that is wrong ends the program.
 */
#include "base.h"

#include <ctype.h>

void
try_help(void)
{
	fprintf(stderr, "Try \"%s --help\" for more information.\n", progname);
	exit(EXIT_USAGE);
}

int
parse_int(const char *option, const char *value, int min, int max)
{
	char	   *end;
	long		n;

	errno = 0;
	n = strtol(value, &end, 10);
	if (end == value || *end != '\0' || errno != 0 || n < min || n > max)
	{
		report_error("invalid value \"%s\" for option %s", value, option);
		report_detail("It must be a number from %d to %d.", min, max);
		exit(EXIT_USAGE);
	}
	return (int) n;
}

int64
parse_size(const char *option, const char *value)
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
	report_error("invalid size \"%s\" for option %s", value, option);
	report_detail("Units are B, kB, MB, GB and TB.");
	exit(EXIT_USAGE);
}

/*
 * Numbers and ranges of shards, "0-999,1500", in any order; with those of an
 * earlier --shard.  Returns how many; they rise, none is there twice.
 */
int
parse_shards(const char *value, int **shards)
{
	static bool wanted[MAX_SHARD + 1];
	const char *next = value;
	int			nshards = 0;

	for (;;)
	{
		int			first = -1;
		int			last;
		int			length = 0;

		if (isdigit((unsigned char) *next))
			(void) sscanf(next, "%9d%n", &first, &length);
		next += length;
		last = first;
		if (*next == '-' && isdigit((unsigned char) next[1]))
		{
			(void) sscanf(next + 1, "%9d%n", &last, &length);
			next += 1 + length;
		}
		if (first < 0 || first > last || last > MAX_SHARD || (*next != ',' && *next != '\0'))
		{
			report_error("invalid value \"%s\" for option --shard", value);
			report_detail("It must be numbers from 0 to %d and ranges of them, such as 5 or 0-999,1500.", MAX_SHARD);
			exit(EXIT_USAGE);
		}
		for (int i = first; i <= last; i++)
			wanted[i] = true;
		if (*next++ == '\0')
			break;
	}
	*shards = pg_malloc(lengthof(wanted) * sizeof(int));
	for (int i = 0; i <= MAX_SHARD; i++)
		if (wanted[i])
			(*shards)[nshards++] = i;
	return nshards;
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
