/*
 * Look for an id that was given twice, and for one that came out of order, in
 * the files that writers leave (see idlog.h).
 *
 *		check [-c SHARD] FILE ...
 *
 * A sequence has a shard number of its own here, so an id says which sequence
 * it is from.  What counts as failure:
 *
 *	repeat		the same id in two acknowledged calls, or twice in one
 *	order break	an id that is not larger than the one before it in the same
 *				call, or than every id of each call of that sequence that had
 *				been acknowledged before its own call was sent
 *
 * With -c, that sequence has had a CACHE, which keeps order within a session
 * only; its calls are compared with those of their own session.
 *
 * An id of a call that was never acknowledged must be larger than what was
 * acknowledged before it, too; but it may come again after a crash, when the
 * clock was set back: such repeats are counted apart.
 *
 * Prints counts, one "name value" a line, and to stderr the first repeat and the
 * first order break of some sequences.
 * Ends with 1 if there was a failure.  Needs memory for all ids twice.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "idlog.h"

/* The same layout as src/layout.h, which a checker should not trust. */
#define SHARDS			8192
#define SHARD_OF(id)	((uint32_t) ((uint64_t) (id) >> 10) & (SHARDS - 1))

/* Sequences with a repeat, and with an order break, that are reported. */
#define REPORTS_MAX		5

/* Calls that may have given an id. */
#define CALLS_MAX		4

/* The ids of one shard that one call gave. */
typedef struct Call
{
	int64_t		begin_ns;
	int64_t		end_ns;			/* INT64_MAX if it was not acknowledged */
	int64_t		min;
	int64_t		max;
	uint32_t	shard;
	uint32_t	file;
} Call;

typedef struct LogFile
{
	const char *name;
	const char *data;
	size_t		size;
} LogFile;

typedef struct Shard
{
	bool		is_cached;		/* order holds within each session only */
	uint64_t   *keys;			/* id << 1 | not acknowledged */
	size_t		n_keys;
	size_t		n_calls;
	size_t		first_call;
	uint64_t	repeats;
	uint64_t	order_breaks;
} Shard;

static Call *calls = NULL;
static size_t n_calls = 0;
static size_t calls_size = 0;
static Shard shards[SHARDS];
static LogFile *files;

static uint64_t n_ids;
static uint64_t n_unacknowledged;
static uint64_t repeats;
static uint64_t repeats_unacknowledged;
static uint64_t order_breaks;
static int	repeat_reports;
static int	order_reports;

static void *
allocate(void *old, size_t size)
{
	void	   *new = realloc(old, size > 0 ? size : 1);

	if (new == NULL)
	{
		fprintf(stderr, "out of memory\n");
		exit(2);
	}
	return new;
}

static void
map_file(LogFile *file, const char *name)
{
	struct stat st;
	int			fd = open(name, O_RDONLY);

	if (fd < 0 || fstat(fd, &st) != 0)
	{
		perror(name);
		exit(2);
	}
	file->name = name;
	file->size = st.st_size;
	file->data = "";
	if (file->size > 0)
	{
		void	   *data = mmap(NULL, file->size, PROT_READ, MAP_PRIVATE, fd, 0);

		if (data == MAP_FAILED)
		{
			perror(name);
			exit(2);
		}
		file->data = data;
	}
	close(fd);
}

static void
report_order(const Call *call, int64_t id, int64_t after, const char *where)
{
	order_breaks++;
	if (shards[call->shard].order_breaks++ == 0 && order_reports++ < REPORTS_MAX)
		fprintf(stderr, "order break: shard %u: %" PRId64 " after %" PRId64
				" (%" PRId64 " ms less), %s, call of %s sent at %" PRId64 " ns%s\n",
				call->shard, id, after, (after >> 23) - (id >> 23), where,
				files[call->file].name, call->begin_ns,
				call->end_ns == INT64_MAX ? ", not acknowledged" : "");
}

/* Collect the calls of a file, and check the order within each. */
static void
read_calls(uint32_t file)
{
	const char *at = files[file].data;
	const char *end = at + files[file].size;
	size_t		open_calls = n_calls;	/* whose outcome is still to come */
	IdLogHeader header;

	/* A writer that was killed leaves a last record that is cut off. */
	while ((size_t) (end - at) >= sizeof(header))
	{
		memcpy(&header, at, sizeof(header));
		at += sizeof(header);
		if (header.kind == IDS_RECEIVED)
		{
			const int64_t *ids = (const int64_t *) at;
			Call	   *call = NULL;

			if ((size_t) (end - at) / sizeof(int64_t) < header.n)
				break;
			for (uint32_t i = 0; i < header.n; i++)
			{
				uint32_t	shard = SHARD_OF(ids[i]);

				if (call == NULL || call->shard != shard)
				{
					if (n_calls == calls_size)
					{
						calls_size = calls_size * 2 + 1024;
						calls = allocate(calls, calls_size * sizeof(Call));
					}
					call = &calls[n_calls++];
					call->begin_ns = header.ns;
					call->end_ns = INT64_MAX;
					call->shard = shard;
					call->file = file;
					call->min = call->max = ids[i];
				}
				else
				{
					/* Equal ones are repeats, and are found as such. */
					if (ids[i] < ids[i - 1])
						report_order(call, ids[i], ids[i - 1], "same call");
					if (ids[i] < call->min)
						call->min = ids[i];
					if (ids[i] > call->max)
						call->max = ids[i];
				}
				shards[shard].n_keys++;
			}
			n_ids += header.n;
			at += header.n * sizeof(int64_t);
		}
		else if (header.kind == IDS_ACKNOWLEDGED || header.kind == IDS_ABANDONED)
		{
			if (header.kind == IDS_ACKNOWLEDGED)
				for (size_t i = open_calls; i < n_calls; i++)
					calls[i].end_ns = header.ns;
			open_calls = n_calls;
		}
		else
		{
			fprintf(stderr, "%s: not an id log\n", files[file].name);
			exit(2);
		}
	}
}

/* Collect the ids of a file; read_calls() has found the outcomes. */
static void
read_ids(uint32_t file, size_t *next_call)
{
	const char *at = files[file].data;
	const char *end = at + files[file].size;
	IdLogHeader header;

	while ((size_t) (end - at) >= sizeof(header))
	{
		const int64_t *ids = (const int64_t *) (at + sizeof(header));

		memcpy(&header, at, sizeof(header));
		at += sizeof(header);
		if (header.kind != IDS_RECEIVED)
			continue;
		if ((size_t) (end - at) / sizeof(int64_t) < header.n)
			break;
		for (uint32_t i = 0; i < header.n; i++)
		{
			Shard	   *shard = &shards[SHARD_OF(ids[i])];
			bool		acknowledged;

			if (i == 0 || SHARD_OF(ids[i]) != SHARD_OF(ids[i - 1]))
				(*next_call)++;
			acknowledged = calls[*next_call - 1].end_ns != INT64_MAX;
			if (!acknowledged)
				n_unacknowledged++;
			shard->keys[shard->n_keys++] = (uint64_t) ids[i] << 1 | !acknowledged;
		}
		at += header.n * sizeof(int64_t);
	}
}

/* Sort by bytes, lowest first; a byte that all keys share costs one look. */
static void
sort_keys(uint64_t *keys, uint64_t *space, size_t n)
{
	uint64_t   *from = keys;
	uint64_t   *to = space;

	for (int shift = 0; shift < 64; shift += 8)
	{
		size_t		at[256] = {0};
		size_t		sum = 0;
		uint64_t   *swap;

		for (size_t i = 0; i < n; i++)
			at[(from[i] >> shift) & 255]++;
		if (n == 0 || at[(from[0] >> shift) & 255] == n)
			continue;
		for (int byte = 0; byte < 256; byte++)
		{
			size_t		count = at[byte];

			at[byte] = sum;
			sum += count;
		}
		for (size_t i = 0; i < n; i++)
			to[at[(from[i] >> shift) & 255]++] = from[i];
		swap = from;
		from = to;
		to = swap;
	}
	if (from != keys)
		memcpy(keys, from, n * sizeof(uint64_t));
}

/* An id has all its keys together, acknowledged ones first. */
static void
check_repeats(Shard *shard)
{
	for (size_t i = 1; i < shard->n_keys; i++)
	{
		if (shard->keys[i] >> 1 != shard->keys[i - 1] >> 1)
			continue;
		if (shard->keys[i] & 1)
			repeats_unacknowledged++;
		else
		{
			int64_t		id = (int64_t) (shard->keys[i] >> 1);
			int			found = 0;

			repeats++;
			if (shard->repeats++ > 0 || repeat_reports++ >= REPORTS_MAX)
				continue;
			fprintf(stderr, "repeat: shard %u: %" PRId64 ", in calls that may be:\n",
					SHARD_OF(id), id);
			for (size_t c = 0; c < n_calls && found < CALLS_MAX; c++)
				if (calls[c].shard == SHARD_OF(id) &&
					calls[c].min <= id && id <= calls[c].max &&
					calls[c].end_ns != INT64_MAX)
				{
					fprintf(stderr, "    %s, sent at %" PRId64 " ns, committed at %" PRId64 " ns\n",
							files[calls[c].file].name, calls[c].begin_ns, calls[c].end_ns);
					found++;
				}
		}
	}
}

static int
compare_shards(const void *a, const void *b)
{
	uint32_t	x = ((const Call *) a)->shard;
	uint32_t	y = ((const Call *) b)->shard;

	return x < y ? -1 : x > y;
}

static int
compare_files(const void *a, const void *b)
{
	uint32_t	x = ((const Call *) a)->file;
	uint32_t	y = ((const Call *) b)->file;

	return x < y ? -1 : x > y;
}

static int
compare_begins(const void *a, const void *b)
{
	int64_t		x = (*(Call *const *) a)->begin_ns;
	int64_t		y = (*(Call *const *) b)->begin_ns;

	return x < y ? -1 : x > y;
}

static int
compare_ends(const void *a, const void *b)
{
	int64_t		x = (*(Call *const *) a)->end_ns;
	int64_t		y = (*(Call *const *) b)->end_ns;

	return x < y ? -1 : x > y;
}

/* Go through the calls as they were sent, with the largest id acknowledged. */
static void
check_order(Call *first, size_t n)
{
	Call	  **begins = allocate(NULL, n * sizeof(Call *));
	Call	  **ends = allocate(NULL, n * sizeof(Call *));
	int64_t		largest = INT64_MIN;
	size_t		ended = 0;

	for (size_t i = 0; i < n; i++)
		begins[i] = ends[i] = &first[i];
	qsort(begins, n, sizeof(Call *), compare_begins);
	qsort(ends, n, sizeof(Call *), compare_ends);

	for (size_t i = 0; i < n; i++)
	{
		while (ends[ended]->end_ns < begins[i]->begin_ns)
		{
			if (ends[ended]->max > largest)
				largest = ends[ended]->max;
			ended++;
		}
		if (begins[i]->min <= largest)
			report_order(begins[i], begins[i]->min, largest, "a call acknowledged before");
	}
	free(begins);
	free(ends);
}

static void
check_order_within_sessions(Call *first, size_t n)
{
	size_t		from = 0;

	qsort(first, n, sizeof(Call), compare_files);
	for (size_t i = 1; i <= n; i++)
	{
		if (i == n || first[i].file != first[from].file)
		{
			check_order(&first[from], i - from);
			from = i;
		}
	}
}

int
main(int argc, char **argv)
{
	size_t		next_call = 0;
	size_t		largest = 0;
	uint64_t   *space;
	int			sequences = 0;
	int			broken = 0;
	int			option;

	while ((option = getopt(argc, argv, "c:")) == 'c')
		shards[atoi(optarg) & (SHARDS - 1)].is_cached = true;
	if (option != -1 || optind == argc)
	{
		fprintf(stderr, "usage: check [-c SHARD] FILE ...\n");
		return 2;
	}
	files = allocate(NULL, argc * sizeof(LogFile));
	for (int i = optind; i < argc; i++)
	{
		map_file(&files[i], argv[i]);
		read_calls(i);
	}

	for (int s = 0; s < SHARDS; s++)
	{
		if (shards[s].n_keys > largest)
			largest = shards[s].n_keys;
		shards[s].keys = allocate(NULL, shards[s].n_keys * sizeof(uint64_t));
		shards[s].n_keys = 0;
	}
	for (int i = optind; i < argc; i++)
		read_ids(i, &next_call);

	qsort(calls, n_calls, sizeof(Call), compare_shards);
	for (size_t i = n_calls; i-- > 0;)
	{
		shards[calls[i].shard].first_call = i;
		shards[calls[i].shard].n_calls++;
	}

	space = allocate(NULL, largest * sizeof(uint64_t));
	for (int s = 0; s < SHARDS; s++)
	{
		if (shards[s].n_keys == 0)
			continue;
		sequences++;
		sort_keys(shards[s].keys, space, shards[s].n_keys);
		check_repeats(&shards[s]);
		if (shards[s].is_cached)
			check_order_within_sessions(&calls[shards[s].first_call], shards[s].n_calls);
		else
			check_order(&calls[shards[s].first_call], shards[s].n_calls);
		broken += shards[s].repeats > 0 || shards[s].order_breaks > 0;
		free(shards[s].keys);
	}

	printf("calls %zu\nsequences %d\nsequences_broken %d\nids %" PRIu64 "\nids_unacknowledged %" PRIu64
		   "\nrepeats %" PRIu64 "\norder_breaks %" PRIu64
		   "\nrepeats_unacknowledged %" PRIu64 "\n",
		   n_calls, sequences, broken, n_ids, n_unacknowledged,
		   repeats, order_breaks, repeats_unacknowledged);
	return repeats > 0 || order_breaks > 0;
}
