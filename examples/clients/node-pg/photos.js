// Photos of a user, in the shard where the user lives.
//
//	node photos.js 31341
'use strict';

const { Pool } = require('pg');

const pool = new Pool();	// from PGHOST, PGPORT and so on

async function main(user) {
	const shard = BigInt(user) % 2000n;
	const photos = `insta${shard}.photos`;	// qualified: no SET search_path
	console.log(`user ${user} lives in shard ${shard}`);

	// A bigint comes as a string; a number would lose its last digits.
	const { rows: [first] } = await pool.query(
		`INSERT INTO ${photos} (user_id, caption) VALUES ($1, $2) RETURNING id`, [user, 'the first']);
	console.log(`inserted ${first.id}`);

	const captions = Array.from({ length: 1000 }, (_, n) => `photo ${n + 1}`);
	const { rows: more } = await pool.query(
		`INSERT INTO ${photos} (user_id, caption) SELECT $1, unnest($2::text[]) RETURNING id`, [user, captions]);
	console.log(`inserted ${more.length} more, the last ${more.at(-1).id}`);

	const { rows: [made] } = await pool.query('SELECT * FROM snowid.id_parts($1)', [first.id]);
	console.log(`made ${made.created_at.toISOString()} in shard ${made.shard}`);

	const until = new Date(made.created_at.getTime() + 60000);
	const { rows: found } = await pool.query(
		`SELECT id, caption FROM ${photos} WHERE snowid.id_between(id, $1, $2) ORDER BY id DESC`,
		[made.created_at, until]);
	console.log(`in the minute from then: ${found.length} photos, the newest ${found[0].id}`);
}

main(process.argv[2]).finally(() => pool.end());
