/*
 * The file in which a writer keeps what it was given, outside the server.
 *
 * Records follow each other: a header, and n ids for IDS_RECEIVED.  Ids are
 * appended before anything is done with them; whether the server then
 * acknowledged the transaction follows as a record of its own, and counts for
 * all IDS_RECEIVED since the last such record.  Times are CLOCK_MONOTONIC, one
 * clock for all writers, which no fault touches.
 */
#ifndef IDLOG_H
#define IDLOG_H

#include <stdint.h>

typedef enum IdLogKind
{
	IDS_RECEIVED = 1,			/* ns: just before the call was sent */
	IDS_ACKNOWLEDGED = 2,		/* ns: just after the commit was reported */
	IDS_ABANDONED = 3			/* rolled back, or the answer never came */
} IdLogKind;

typedef struct IdLogHeader
{
	uint32_t	kind;
	uint32_t	n;
	int64_t		ns;
} IdLogHeader;

#endif							/* IDLOG_H */
