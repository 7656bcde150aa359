/*
 * Cut the power of a disk on which nothing runs any more (see disk.c).
 *
 *		powercut all|none|torn DIRECTORY [SEED]
 *
 * What was written to the files of DIRECTORY and not flushed is
 *
 *	all		lost
 *	none	kept, as if there had been time to flush it
 *	torn	for each file at random: lost; or kept; or each sector has, by
 *			itself, what it had before any one of the writes, or after the last.
 *			The file's length is any of those that it had.
 *
 * What is then in the files is on the disk: the journal is empty.  Prints
 * counts, one "name value" a line.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk.h"

typedef enum Loss
{
	LOSE_ALL,
	LOSE_NONE,
	LOSE_SECTORS
} Loss;

/* A sector before a write: its old contents, or NULL for zeroes. */
typedef struct Version
{
	int64_t		sector;
	int64_t		number;			/* of the write */
	const char *data;
	size_t		length;			/* of data; less at the file's end */
} Version;

static Version *versions;		/* of one file */
static size_t n_versions;
static size_t versions_size;

static char journal[PATH_MAX + sizeof(JOURNAL_SUFFIX)];
static const char *mode;
static uint64_t random_state;
static uint64_t n_files;
static uint64_t n_sectors;		/* that were not flushed */
static uint64_t n_lost;			/* of these */

static uint64_t
random_below(uint64_t limit)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (random_state >> 16) % limit;
}

static void
check(bool ok, const char *what)
{
	if (!ok)
	{
		perror(what);
		exit(2);
	}
}

static Version *
new_version(void)
{
	if (n_versions == versions_size)
	{
		size_t		size = versions_size * 2 + 1024;
		Version    *grown = realloc(versions, size * sizeof(Version));

		check(grown != NULL, "realloc");
		versions = grown;
		versions_size = size;
	}
	return &versions[n_versions++];
}

static int
compare_versions(const void *a, const void *b)
{
	const Version *x = a;
	const Version *y = b;

	if (x->sector != y->sector)
		return x->sector < y->sector ? -1 : 1;
	return x->number < y->number ? -1 : x->number > y->number;
}

static void
restore(int fd, const Version *version)
{
	char		sector[SECTOR] = {0};

	if (version->length > 0)
		memcpy(sector, version->data, version->length);
	check(pwrite(fd, sector, SECTOR, version->sector * SECTOR) == SECTOR,
		  "cannot restore a sector");
	n_lost++;
}

/* Take back what the file's journal says, or some of it. */
static void
lose(int fd, off_t size_now, const char *map, Loss loss)
{
	const JournalHeader *header = (const JournalHeader *) map;
	int64_t		number = 0;
	int64_t		size = size_now;

	n_versions = 0;
	for (const char *at = map + sizeof(JournalHeader); at < map + header->end;)
	{
		JournalRecord record;

		memcpy(&record, at, sizeof(record));
		at += sizeof(record);
		if (record.ns > header->flushed_ns)
		{
			for (int64_t done = 0; done < record.length; done += SECTOR)
			{
				int64_t		saved = record.saved - done;
				Version    *version = new_version();

				version->sector = (record.offset + done) / SECTOR;
				version->number = number;
				version->length = saved <= 0 ? 0 : saved < SECTOR ? saved : SECTOR;
				version->data = at + done;
			}
			if (loss == LOSE_ALL ? number == 0 :
				loss == LOSE_SECTORS && random_below(number + 2) == 0)
				size = record.file_size;
			number++;
		}
		at += record.saved;
	}

	if (n_versions > 0)
		qsort(versions, n_versions, sizeof(Version), compare_versions);
	for (size_t first = 0, next; first < n_versions; first = next)
	{
		/* A sector that a truncation took has nothing newer than its past. */
		bool		is_gone = versions[first].sector * SECTOR >= size_now;
		size_t		choice;

		next = first + 1;
		while (next < n_versions && versions[next].sector == versions[first].sector)
			next++;
		n_sectors++;
		if (loss == LOSE_NONE)
			continue;
		choice = loss == LOSE_ALL ? 0 : random_below(next - first + !is_gone);
		if (choice < next - first)
			restore(fd, &versions[first + choice]);
	}
	check(ftruncate(fd, size) == 0, "cannot restore the length of a file");
	n_files += number > 0;
}

static int
visit(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	char		name[sizeof(journal) + 32];
	struct stat journal_st;
	int			fd;
	int			journal_fd;
	char	   *map;
	Loss		loss;

	(void) ftw;
	if (type != FTW_F || !S_ISREG(st->st_mode))
		return 0;
	snprintf(name, sizeof(name), "%s/%" PRIuMAX, journal, (uintmax_t) st->st_ino);
	journal_fd = open(name, O_RDONLY);
	if (journal_fd < 0)
		return 0;
	fd = open(path, O_WRONLY);
	check(fd >= 0 && fstat(journal_fd, &journal_st) == 0, path);
	loss = strcmp(mode, "all") == 0 ? LOSE_ALL :
		strcmp(mode, "none") == 0 ? LOSE_NONE : random_below(3);
	if (journal_st.st_size >= (off_t) sizeof(JournalHeader))
	{
		map = mmap(NULL, journal_st.st_size, PROT_READ, MAP_PRIVATE, journal_fd, 0);
		check(map != MAP_FAILED, name);
		lose(fd, st->st_size, map, loss);
		munmap(map, journal_st.st_size);
	}
	close(fd);
	close(journal_fd);
	return 0;
}

static int
remove_journal(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void) st;
	(void) ftw;
	if (type == FTW_F)
		check(unlink(path) == 0, path);
	return 0;
}

int
main(int argc, char **argv)
{
	char		directory[PATH_MAX];

	if (argc < 3 || argc > 4 ||
		(strcmp(argv[1], "all") != 0 && strcmp(argv[1], "none") != 0 &&
		 strcmp(argv[1], "torn") != 0))
	{
		fprintf(stderr, "usage: powercut all|none|torn DIRECTORY [SEED]\n");
		return 2;
	}
	mode = argv[1];
	check(realpath(argv[2], directory) != NULL, argv[2]);
	snprintf(journal, sizeof(journal), "%s" JOURNAL_SUFFIX, directory);
	random_state = (argc == 4 ? strtoull(argv[3], NULL, 10) + 1 : 1) *
		UINT64_C(0x9E3779B97F4A7C15);

	/* A directory that was never written to has no journal. */
	if (access(journal, F_OK) == 0)
	{
		check(nftw(directory, visit, 20, FTW_PHYS) == 0, directory);
		check(nftw(journal, remove_journal, 20, FTW_PHYS) == 0, journal);
	}
	printf("files %" PRIu64 "\nsectors_unflushed %" PRIu64 "\nsectors_lost %" PRIu64 "\n",
		   n_files, n_sectors, n_lost);
	return 0;
}
