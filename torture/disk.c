/*
 * A disk that can lose what was not flushed, for servers that run on it: a
 * library for LD_PRELOAD.
 *
 * A kill -9 loses what a process has not written.  A power cut loses what it
 * has not flushed as well, and nobody sees a missing flush without one.  So
 * for each write to a file below the directory named by TORTURE_DISK, the old
 * contents of its sectors are first put into a journal (see disk.h), and a
 * flush of the file empties that.  When all processes have been killed,
 * powercut takes back what the journal has.
 *
 * On such a disk, fsync() and fdatasync() of a file make all writes to it
 * durable that were done when it was called, by any process.  Nothing else
 * does.  A flush takes a millisecond, if there was something to do, and leaves
 * the machine's own disk alone, whose speed and honesty then don't matter.
 *
 * Kinder than a real disk: what is done to directories (a file made, renamed,
 * removed) is durable at once; so is what is written with stdio, which the
 * server uses for nothing that it needs after a crash, and what is written by
 * programs without this library.
 *
 * These are the calls by which the server changes files, as found with nm -D in
 * 15, 17, 18 and 19, and with strace in 15; posix_fallocate() only lengthens one,
 * and io_uring and the I/O workers of 18 only read.  Not for
 * recovery_init_sync_method = syncfs, wal_sync_method = open_*, file_copy_method
 * = clone, and debug_io_direct.
 *
 * (Why not a file system, with FUSE, as LazyFS does it: that needs root or a
 * setuid program, and /dev/fuse, which tests in containers don't have.)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "disk.h"

#define FLUSH_NS	1000000

static char directory[PATH_MAX];	/* with a slash at its end; or empty */
static char journal[PATH_MAX];
static dev_t device;			/* that the journal's inode numbers are of */
static int	lock_fd = -1;

/* Not to be able to keep the journal must not pass for a good disk. */
static void
give_up(const char *what)
{
	fprintf(stderr, "torture/disk.c: %s: %s\n", what, strerror(errno));
	abort();
}

__attribute__((constructor))
static void
open_journal(void)
{
	const char *name = getenv("TORTURE_DISK");
	char		path[PATH_MAX + 16];
	struct stat st;

	if (name == NULL)
		return;
	if (realpath(name, directory) == NULL ||
		strlen(directory) + sizeof(JOURNAL_SUFFIX) > PATH_MAX - 32)
		give_up(name);
	sprintf(journal, "%s" JOURNAL_SUFFIX, directory);
	strcat(directory, "/");
	if (mkdir(journal, 0700) != 0 && errno != EEXIST)
		give_up(journal);
	sprintf(path, "%s/lock", journal);
	lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (lock_fd < 0 || fstat(lock_fd, &st) != 0)
		give_up(path);
	device = st.st_dev;
}

/*
 * One lock for the whole disk.  It is this process's alone, also after a fork,
 * and ends with it, also by kill -9.
 */
static void
set_lock(short type)
{
	struct flock lock = {.l_type = type,.l_whence = SEEK_SET};

	while (fcntl(lock_fd, F_SETLKW, &lock) != 0)
		if (errno != EINTR)
			give_up("lock");
}

static int64_t
now_ns(void)
{
	struct timespec ts;

	/* Not the library's function: that is clock.c's. */
	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

/* Is this a file on the disk?  One that has been removed is no longer. */
static bool
is_on_disk(int fd, struct stat *st)
{
	char		link[64];
	char		path[PATH_MAX];
	size_t		length = strlen(directory);

	if (lock_fd < 0)
		return false;
	sprintf(link, "/proc/self/fd/%d", fd);
	return readlink(link, path, sizeof(path)) > (ssize_t) length &&
		memcmp(path, directory, length) == 0 &&
		fstat(fd, st) == 0 && S_ISREG(st->st_mode) && st->st_nlink > 0;
}

static char *
journal_path(const struct stat *st)
{
	static char path[PATH_MAX + 32];

	sprintf(path, "%s/%llu", journal, (unsigned long long) st->st_ino);
	return path;
}

static void
save(const void *data, size_t length, int fd, off_t offset)
{
	if (syscall(SYS_pwrite64, fd, data, length, offset) != (long) length)
		give_up(journal);
}

/* Put what is to be overwritten into the file's journal. */
static void
save_old(int fd, const struct stat *st, off_t offset, off_t length)
{
	static char buffer[1 << 16];
	JournalHeader header = {.end = sizeof(header)};
	JournalRecord record;
	char		link[64];
	int			old_fd;
	int			journal_fd = open(journal_path(st), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	/* The caller's descriptor may be for writing only. */
	sprintf(link, "/proc/self/fd/%d", fd);
	old_fd = open(link, O_RDONLY | O_CLOEXEC);
	if (journal_fd < 0 || old_fd < 0 ||
		pread(journal_fd, &header, sizeof(header), 0) < 0)
		give_up(journal_path(st));

	record.ns = header.last_ns = now_ns();
	record.offset = offset / SECTOR * SECTOR;
	record.length = (offset + length + SECTOR - 1) / SECTOR * SECTOR - record.offset;
	record.file_size = st->st_size;
	record.saved = st->st_size - record.offset;
	if (record.saved < 0)
		record.saved = 0;
	if (record.saved > record.length)
		record.saved = record.length;

	save(&record, sizeof(record), journal_fd, header.end);
	header.end += sizeof(record);
	for (int64_t done = 0; done < record.saved;)
	{
		size_t		want = record.saved - done;
		ssize_t		n = pread(old_fd, buffer,
							  want < sizeof(buffer) ? want : sizeof(buffer),
							  record.offset + done);

		if (n <= 0)
			give_up("cannot read what is to be overwritten");
		save(buffer, n, journal_fd, header.end + done);
		done += n;
	}
	header.end += record.saved;

	/* Last, so that a record counts only if we live to the end of it. */
	save(&header, sizeof(header), journal_fd, 0);
	close(old_fd);
	close(journal_fd);
}

/*
 * The lock is held through the write, so that a flush never counts a record as
 * done whose write is still to come.
 */
static ssize_t
write_journaled(int fd, const struct iovec *iov, int n, off_t offset, bool has_offset)
{
	struct stat st;
	off_t		length = 0;
	ssize_t		result;
	bool		is_journaled;

	if ((is_journaled = is_on_disk(fd, &st)))
	{
		set_lock(F_WRLCK);
		fstat(fd, &st);			/* it may have grown */
		for (int i = 0; i < n; i++)
			length += iov[i].iov_len;
		save_old(fd, &st,
				 has_offset ? offset :
				 fcntl(fd, F_GETFL) & O_APPEND ? st.st_size : lseek(fd, 0, SEEK_CUR),
				 length);
	}
	result = has_offset ?
		syscall(SYS_pwritev, fd, iov, n, offset, 0) :
		syscall(SYS_writev, fd, iov, n);
	if (is_journaled)
		set_lock(F_UNLCK);
	return result;
}

ssize_t
write(int fd, const void *data, size_t length)
{
	struct iovec iov = {(void *) data, length};

	return write_journaled(fd, &iov, 1, 0, false);
}

ssize_t
pwrite(int fd, const void *data, size_t length, off_t offset)
{
	struct iovec iov = {(void *) data, length};

	return write_journaled(fd, &iov, 1, offset, true);
}

ssize_t
pwritev(int fd, const struct iovec *iov, int n, off_t offset)
{
	return write_journaled(fd, iov, n, offset, true);
}

int
ftruncate(int fd, off_t size)
{
	struct stat st;
	bool		is_journaled;
	int			result;

	if ((is_journaled = is_on_disk(fd, &st)))
	{
		set_lock(F_WRLCK);
		fstat(fd, &st);
		save_old(fd, &st, size < st.st_size ? size : st.st_size,
				 size < st.st_size ? st.st_size - size : 0);
	}
	result = syscall(SYS_ftruncate, fd, size);
	if (is_journaled)
		set_lock(F_UNLCK);
	return result;
}

/* Programs that were built for files beyond 2 GB, as Perl, say it so. */
int			ftruncate64(int fd, off_t size) __attribute__((alias("ftruncate")));

int
truncate(const char *path, off_t size)
{
	int			fd = open(path, O_RDWR | O_CLOEXEC);
	int			result;

	if (fd < 0)
		return -1;
	result = ftruncate(fd, size);
	close(fd);
	return result;
}

static int
flush(int fd, int syscall_number)
{
	struct timespec duration = {0, FLUSH_NS};
	struct stat st;
	JournalHeader header = {0};
	int64_t		begin_ns;
	int			journal_fd;

	if (!is_on_disk(fd, &st))
		return lock_fd < 0 ? syscall(syscall_number, fd) : 0;
	if (access(journal_path(&st), F_OK) != 0)
		return 0;

	/* Not until it has ended does it count, for what was written before it. */
	set_lock(F_WRLCK);
	begin_ns = now_ns();
	set_lock(F_UNLCK);
	nanosleep(&duration, NULL);

	/* Another process may have ended a flush meanwhile. */
	set_lock(F_WRLCK);
	journal_fd = open(journal_path(&st), O_RDWR | O_CLOEXEC);
	if (journal_fd >= 0)
	{
		if (pread(journal_fd, &header, sizeof(header), 0) < 0)
			give_up(journal_path(&st));
		if (header.last_ns <= begin_ns)
			syscall(SYS_unlinkat, AT_FDCWD, journal_path(&st), 0);
		else if (header.flushed_ns < begin_ns)
		{
			header.flushed_ns = begin_ns;
			save(&header, sizeof(header), journal_fd, 0);
		}
		close(journal_fd);
	}
	set_lock(F_UNLCK);
	return 0;
}

int
fsync(int fd)
{
	return flush(fd, SYS_fsync);
}

int
fdatasync(int fd)
{
	return flush(fd, SYS_fdatasync);
}

/* A new file may get the inode number: the journal goes with the old one. */
static void
forget(const struct stat *st)
{
	if (S_ISREG(st->st_mode) && st->st_nlink == 1 && st->st_dev == device)
		syscall(SYS_unlinkat, AT_FDCWD, journal_path(st), 0);
}

int
unlink(const char *path)
{
	struct stat st;
	bool		found;
	int			result;

	if (lock_fd < 0)
		return syscall(SYS_unlinkat, AT_FDCWD, path, 0);
	set_lock(F_WRLCK);
	found = lstat(path, &st) == 0;
	result = syscall(SYS_unlinkat, AT_FDCWD, path, 0);
	if (result == 0 && found)
		forget(&st);
	set_lock(F_UNLCK);
	return result;
}

int
rename(const char *from, const char *to)
{
	struct stat st;
	bool		found;
	int			result;

	if (lock_fd < 0)
		return syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
	set_lock(F_WRLCK);
	found = lstat(to, &st) == 0;
	result = syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
	if (result == 0 && found)
		forget(&st);
	set_lock(F_UNLCK);
	return result;
}
