// Photos of a user, in the shard where the user lives.
//
//	node photos.mjs 31341
import { knexShards } from 'snowid/knex';

const shards = knexShards();

async function main(user) {
	// A bigint comes as a string; a number would lose its last digits.
	const [first] = await shards.of(user, (db, schema, shard) => {
		console.log(`user ${user} lives in shard ${shard}`);
		return db.withSchema(schema).insert({ user_id: user, caption: 'the first' }).into('photos').returning('id');
	});
	console.log(`inserted ${first.id}`);

	const captions = Array.from({ length: 1000 }, (_, n) => ({ user_id: user, caption: `photo ${n + 1}` }));
	const more = await shards.of(user, (db, schema) =>
		db.withSchema(schema).insert(captions).into('photos').returning('id'));
	console.log(`inserted ${more.length} more, the last ${more.at(-1).id}`);

	const { rows: [made] } = await shards.of(user, (db) => db.raw('SELECT * FROM snowid.id_parts(?)', [first.id]));
	console.log(`made ${made.created_at.toISOString()} in shard ${made.shard}`);

	const until = new Date(made.created_at.getTime() + 60000);
	const found = await shards.of(user, (db, schema) =>
		db.withSchema(schema).select('id', 'caption').from('photos')
			.whereRaw('snowid.id_between(id, ?, ?)', [made.created_at, until]).orderBy('id', 'desc'));
	console.log(`in the minute from then: ${found.length} photos, the newest ${found[0].id}`);

	// The next page has the ids below the last one of this page.
	let count = 0;
	let page, last;
	do {
		page = await shards.of(user, (db, schema) => {
			const query = db.withSchema(schema).select('id').from('photos').where('user_id', user);
			if (last)
				query.where('id', '<', last);
			return query.orderBy('id', 'desc').limit(400);
		});
		count += page.length;
		last = page.at(-1)?.id ?? last;
	} while (page.length === 400);
	console.log(`in pages of 400: ${count} photos, the oldest ${last}`);
}

main(BigInt(process.argv[2])).finally(() => shards.end());
