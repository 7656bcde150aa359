/*
 * The 64 bits of an id, and the slots that a sequence counts.
 *
 *		63 . . . . . . . . . . 23 | 22 . . . . 10 | 9 . . . 0
 *		  milliseconds: 41 bits   | shard: 13     | seq: 10
 *
 * A slot is an id without its shard: milliseconds since the epoch, then the
 * sequence number within the millisecond.  The last slot issued is what a
 * sequence keeps in last_value.
 *
 * The widths, shifts, masks and limits of an id and a slot stand here and
 * nowhere else.  Everything is a pure function of plain numbers, so this header
 * needs only c.h (or postgres.h) before it, and a unit test can include it
 * without a server.
 * Decoding is total: the bits of an id are taken as unsigned, so that every
 * int64 has a time, a shard and a sequence number.
 */
#ifndef SNOWID_LAYOUT_H
#define SNOWID_LAYOUT_H

#define MS_BITS				41
#define SHARD_BITS			13
#define SEQ_BITS			10

#define SHARD_SHIFT			SEQ_BITS
#define MS_SHIFT			(SHARD_BITS + SEQ_BITS)

#define SHARD_MAX			((1 << SHARD_BITS) - 1)
#define SEQ_MAX				((1 << SEQ_BITS) - 1)
#define SLOTS_PER_MS		(1 << SEQ_BITS)

/* What the bits can hold, and the last millisecond before the sign bit. */
#define MS_MAX				((INT64CONST(1) << MS_BITS) - 1)
#define MS_LAST_GENERATED	((INT64CONST(1) << (MS_BITS - 1)) - 1)
#define SLOT_LAST_GENERATED ((MS_LAST_GENERATED << SEQ_BITS) | SEQ_MAX)

/*
 * The default epoch, 2011-08-24 21:07:01.721 UTC, in milliseconds since 1970:
 * the constant of the published PL/pgSQL snippet, so that the ids of a system
 * that runs it decode and sort on unchanged.
 */
#define DEFAULT_EPOCH_UNIX_MS	INT64CONST(1314220021721)

StaticAssertDecl(MS_BITS + SHARD_BITS + SEQ_BITS == 64,
				 "the fields of an id must fill 64 bits");
StaticAssertDecl(MS_SHIFT + MS_BITS == 64,
				 "milliseconds must be the highest bits, or ids do not sort by time");
StaticAssertDecl(((uint64) MS_LAST_GENERATED << MS_SHIFT) >> 63 == 0,
				 "the last millisecond generated must leave the sign bit clear");
StaticAssertDecl(((uint64) (MS_LAST_GENERATED + 1) << MS_SHIFT) >> 63 == 1,
				 "the last millisecond generated must be the last positive one");

/* The parts must be in range: callers check them first. */
static inline int64
id_pack(int64 ms, int32 shard, int32 seq)
{
	return (int64) (((uint64) ms << MS_SHIFT) |
					((uint64) shard << SHARD_SHIFT) |
					(uint64) seq);
}

static inline int64
id_ms(int64 id)
{
	return (int64) ((uint64) id >> MS_SHIFT);
}

static inline int32
id_shard(int64 id)
{
	return (int32) (((uint64) id >> SHARD_SHIFT) & SHARD_MAX);
}

static inline int32
id_seq(int64 id)
{
	return (int32) ((uint64) id & SEQ_MAX);
}

static inline int64
slot_pack(int64 ms, int32 seq)
{
	return (int64) (((uint64) ms << SEQ_BITS) | (uint64) seq);
}

/* Rounds down, also for the negative slot that setval can leave. */
static inline int64
slot_ms(int64 slot)
{
	return slot >> SEQ_BITS;
}

static inline int32
slot_seq(int64 slot)
{
	return (int32) (slot & SEQ_MAX);
}

/* The slot must be one that is generated: 0 .. SLOT_LAST_GENERATED. */
static inline int64
slot_to_id(int64 slot, int32 shard)
{
	return id_pack(slot_ms(slot), shard, slot_seq(slot));
}

#endif							/* SNOWID_LAYOUT_H */
