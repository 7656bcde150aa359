/*
 * What a disk would lose: the journal that disk.c writes and powercut.c reads.
 *
 * The journal of data directory DIR is DIR.unflushed, which has a file for each
 * file of DIR that was written to and not flushed since.  Its name is the inode
 * number, so that a rename doesn't matter.  It holds a JournalHeader, and then,
 * for each write, a JournalRecord with the old contents of the sectors that the
 * write was about to change.  A file without a journal is on the disk.
 */
#ifndef DISK_H
#define DISK_H

#include <stdint.h>

#define JOURNAL_SUFFIX	".unflushed"

/* What a disk writes as a whole, or not at all. */
#define SECTOR			512

typedef struct JournalHeader
{
	int64_t		flushed_ns;		/* records up to this time are on the disk */
	int64_t		last_ns;		/* time of the last record */
	int64_t		end;			/* of the last record, in bytes from the start */
} JournalHeader;

/* Times are CLOCK_MONOTONIC, taken under the journal's lock: they rise. */
typedef struct JournalRecord
{
	int64_t		ns;
	int64_t		offset;			/* of the first sector changed */
	int64_t		length;			/* whole sectors */
	int64_t		file_size;		/* before the write */
	int64_t		saved;			/* old bytes that follow: up to the file's end */
} JournalRecord;

#endif							/* DISK_H */
