/*
 * A wall clock that tests can step, slew and stop while servers run on it:
 * a library for LD_PRELOAD.
 *
 * The file named by TORTURE_CLOCK is mapped into each process of a server.
 * Its first word says which of the entries after it counts; a test fills an
 * unused entry first, and then moves the word, so a reader never sees half a
 * change.  The shown time is the machine's, plus an offset, plus a drift since
 * the entry was made; or it stands still.  The monotonic clock is left alone:
 * sleeps and latches stay right.
 *
 * (libfaketime does the same from a text file, but to notice a step at once it
 * must open that file at each call.  That costs more than an id does; and it
 * allocates, which PostgreSQL's handler of SIGALRM, which reads the clock, must
 * not do: now and then a server would hang, or find its heap corrupted.)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define ENTRIES 64

typedef struct ClockFile
{
	volatile uint64_t current;
	struct
	{
		int64_t		offset_ns;
		int64_t		since_ns;	/* CLOCK_MONOTONIC at which the drift began */
		int64_t		drift_ppm;
		int64_t		fixed_ns;	/* the time at which it stands still, if not 0 */
	}			entry[ENTRIES];
} ClockFile;

static const ClockFile *clock_file = NULL;
static int	(*real_clock_gettime) (clockid_t, struct timespec *) = NULL;

__attribute__((constructor))
static void
map_clock_file(void)
{
	const char *path = getenv("TORTURE_CLOCK");
	int			fd;
	void	   *map;

	real_clock_gettime = (int (*) (clockid_t, struct timespec *))
		dlsym(RTLD_NEXT, "clock_gettime");
	if (path == NULL || (fd = open(path, O_RDONLY)) < 0)
		return;
	map = mmap(NULL, sizeof(ClockFile), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (map != MAP_FAILED)
		clock_file = map;
}

static int64_t
read_ns(clockid_t id)
{
	struct timespec ts;

	real_clock_gettime(id, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

static int64_t
shown_ns(clockid_t id)
{
	int64_t		now = read_ns(id);

	if (clock_file != NULL)
	{
		uint64_t	i = clock_file->current % ENTRIES;

		if (clock_file->entry[i].fixed_ns != 0)
			return clock_file->entry[i].fixed_ns;
		now += clock_file->entry[i].offset_ns;
		if (clock_file->entry[i].drift_ppm != 0)
			now += (read_ns(CLOCK_MONOTONIC) - clock_file->entry[i].since_ns) /
				1000 * clock_file->entry[i].drift_ppm / 1000;
	}
	return now;
}

int
clock_gettime(clockid_t id, struct timespec *ts)
{
	int64_t		now;

	if (real_clock_gettime == NULL)
		map_clock_file();
	if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)
		return real_clock_gettime(id, ts);
	now = shown_ns(id);
	ts->tv_sec = now / 1000000000;
	ts->tv_nsec = now % 1000000000;
	return 0;
}

int
gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
	int64_t		now = shown_ns(CLOCK_REALTIME);

	(void) tz;
	tv->tv_sec = now / 1000000000;
	tv->tv_usec = now % 1000000000 / 1000;
	return 0;
}

time_t
time(time_t *t)
{
	time_t		now = shown_ns(CLOCK_REALTIME) / 1000000000;

	if (t != NULL)
		*t = now;
	return now;
}
