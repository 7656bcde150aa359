/*
 * Key to logical shard: a pure function that every client can repeat.
 *
 * A number's shard is its remainder; a text's is that of the first 8 bytes of
 * the MD5 of its UTF-8 bytes, read as an unsigned big-endian number.  Rows are
 * stored by what this returns, so it may never change.
 */
#include "postgres.h"

#include "common/md5.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "port/pg_bswap.h"

#include "compat.h"
#include "layout.h"

PG_FUNCTION_INFO_V1(snowid_shard_of_bigint);
PG_FUNCTION_INFO_V1(snowid_shard_of_text);

/* 22023 unless the layout has room for so many shards. */
static void
check_shards(int32 shards)
{
	if (shards < 1 || shards > SHARD_MAX + 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of shards %d is out of range", shards),
				 errdetail("The number of logical shards is between 1 and %d.",
						   SHARD_MAX + 1)));
}

/* shard_of(key bigint, shards int) → int */
Datum
snowid_shard_of_bigint(PG_FUNCTION_ARGS)
{
	int64		key = PG_GETARG_INT64(0);
	int32		shards = PG_GETARG_INT32(1);
	int32		remainder;

	check_shards(shards);

	/* C's remainder has the sign of the key. */
	remainder = (int32) (key % shards);
	PG_RETURN_INT32(remainder < 0 ? remainder + shards : remainder);
}

/* shard_of(key text, shards int) → int */
Datum
snowid_shard_of_text(PG_FUNCTION_ARGS)
{
	text	   *key = PG_GETARG_TEXT_PP(0);
	int32		shards = PG_GETARG_INT32(1);
	int			len = VARSIZE_ANY_EXHDR(key);
	char	   *utf8;
	uint64		hash[2];
	const char *reason;

	check_shards(shards);

	/* A key's shard must not depend on the database's encoding. */
	utf8 = pg_server_to_any(VARDATA_ANY(key), len, PG_UTF8);
	if (utf8 != VARDATA_ANY(key))
		len = strlen(utf8);

	if (!pg_md5_binary(utf8, len, (uint8 *) hash, &reason))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not compute %s hash: %s", "MD5", reason)));

	PG_RETURN_INT32((int32) (pg_ntoh64(hash[0]) % (uint64) shards));
}
