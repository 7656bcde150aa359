// Photos of a user, in the shard where the user lives.
//
//	node photos.mjs 31341
import { pgShards } from 'snowid/pg';

const shards = pgShards();

// A shard's schema qualifies all names: no SET search_path.
async function main(user) {
	// A bigint comes as a string; a number would lose its last digits.
	const { rows: [first] } = await shards.of(user, (db, schema, shard) => {
		console.log(`user ${user} lives in shard ${shard}`);
		return db.query(`INSERT INTO ${schema}.photos (user_id, caption) VALUES ($1, $2) RETURNING id`, [user, 'the first']);
	});
	console.log(`inserted ${first.id}`);

	const captions = Array.from({ length: 1000 }, (_, n) => `photo ${n + 1}`);
	const { rows: more } = await shards.of(user, (db, schema) => db.query(
		`INSERT INTO ${schema}.photos (user_id, caption) SELECT $1, unnest($2::text[]) RETURNING id`, [user, captions]));
	console.log(`inserted ${more.length} more, the last ${more.at(-1).id}`);

	const { rows: [made] } = await shards.of(user, (db) => db.query('SELECT * FROM snowid.id_parts($1)', [first.id]));
	console.log(`made ${made.created_at.toISOString()} in shard ${made.shard}`);

	const until = new Date(made.created_at.getTime() + 60000);
	const { rows: found } = await shards.of(user, (db, schema) => db.query(
		`SELECT id, caption FROM ${schema}.photos WHERE snowid.id_between(id, $1, $2) ORDER BY id DESC`,
		[made.created_at, until]));
	console.log(`in the minute from then: ${found.length} photos, the newest ${found[0].id}`);

	// The next page has the ids below the last one of this page.
	let count = 0;
	let page;
	let last = null;
	do {
		({ rows: page } = await shards.of(user, (db, schema) => db.query(
			`SELECT id FROM ${schema}.photos WHERE user_id = $1 AND id < coalesce($2, 9223372036854775807) ORDER BY id DESC LIMIT 400`,
			[user, last])));
		count += page.length;
		last = page.at(-1)?.id ?? last;
	} while (page.length === 400);
	console.log(`in pages of 400: ${count} photos, the oldest ${last}`);
}

main(BigInt(process.argv[2])).finally(() => shards.end());
