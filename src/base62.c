/*
 * The text form of an id: base 62, always 11 characters.
 *
 * The digits are in ASCII order and the length is fixed, so that the text
 * sorts under collation "C" as the (unsigned) number does.  It is safe in
 * URLs, and in JavaScript, whose numbers are exact only to 2^53.
 */
#include "postgres.h"

#include "common/int.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"

#include "compat.h"

PG_FUNCTION_INFO_V1(snowid_id_to_base62);
PG_FUNCTION_INFO_V1(snowid_base62_to_id);

#define BASE62_LENGTH	11

static const char digits[] =
"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";


/* id_to_base62(id bigint) → text */
Datum
snowid_id_to_base62(PG_FUNCTION_ARGS)
{
	uint64		rest = (uint64) PG_GETARG_INT64(0);
	char		out[BASE62_LENGTH];

	for (int i = BASE62_LENGTH - 1; i >= 0; i--)
	{
		out[i] = digits[rest % 62];
		rest /= 62;
	}
	PG_RETURN_TEXT_P(cstring_to_text_with_len(out, BASE62_LENGTH));
}

/* base62_to_id(text) → bigint */
Datum
snowid_base62_to_id(PG_FUNCTION_ARGS)
{
	text	   *in = PG_GETARG_TEXT_PP(0);
	char	   *s = VARDATA_ANY(in);
	int			length = VARSIZE_ANY_EXHDR(in);
	uint64		id = 0;

	if (length != BASE62_LENGTH)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
				 errmsg("invalid base-62 id: \"%s\"", text_to_cstring(in)),
				 errdetail("A base-62 id has %d characters.", BASE62_LENGTH)));

	for (int i = 0; i < length; i++)
	{
		const char *digit = memchr(digits, s[i], 62);

		if (digit == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
					 errmsg("invalid base-62 id: \"%s\"", text_to_cstring(in)),
					 errdetail("The digits are 0-9, A-Z and a-z.")));

		/* 62^11 is more than 2^64, so the last digits can overflow. */
		if (pg_mul_u64_overflow(id, 62, &id) ||
			pg_add_u64_overflow(id, (uint64) (digit - digits), &id))
			ereport(ERROR,
					(errcode(ERRCODE_NUMERIC_VALUE_OUT_OF_RANGE),
					 errmsg("base-62 id \"%s\" is out of range", text_to_cstring(in)),
					 errdetail("The largest one is LygHa16AHYF.")));
	}
	PG_RETURN_INT64((int64) id);
}
