// Photos of a user, in the shard where the user lives.
//
//	node photos.mjs 31341
import { typeormShards } from 'snowid/typeorm';
import { EntitySchema, LessThan, Raw } from 'typeorm';

const Photo = new EntitySchema({
	name: 'photo',
	tableName: 'photos',
	columns: {
		// A string in JavaScript, which the table's DEFAULT makes.
		id: { type: 'bigint', primary: true, default: () => 'next_id()' },
		userId: { type: 'bigint', name: 'user_id' },
		caption: { type: 'text' },
	},
});

const shards = typeormShards({ dataSource: { entities: [Photo] } });

// A transaction in the user's shard.  An entity's schema is the same for all, so the
// search path says it: for one transaction, so that it neither gets lost nor stays
// behind in PgBouncer's transaction mode.
function transaction(user, work) {
	return shards.transaction(BigInt(user), (manager, schema, shard) => work(manager.getRepository(Photo), shard));
}

async function main(user) {
	const first = await transaction(user, (photos, shard) => {
		console.log(`user ${user} lives in shard ${shard}`);
		return photos.save({ userId: user, caption: 'the first' });
	});
	console.log(`inserted ${first.id}`);

	const captions = Array.from({ length: 1000 }, (_, n) => ({ userId: user, caption: `photo ${n + 1}` }));
	const { identifiers: more } = await transaction(user, (photos) => photos.insert(captions));
	console.log(`inserted ${more.length} more, the last ${more.at(-1).id}`);

	const [made] = await transaction(user, (photos) => photos.query('SELECT * FROM snowid.id_parts($1)', [first.id]));
	console.log(`made ${made.created_at.toISOString()} in shard ${made.shard}`);

	const until = new Date(made.created_at.getTime() + 60000);
	const found = await transaction(user, (photos) => photos.find({
		where: { id: Raw((id) => `snowid.id_between(${id}, :since, :until)`, { since: made.created_at, until }) },
		order: { id: 'DESC' },
	}));
	console.log(`in the minute from then: ${found.length} photos, the newest ${found[0].id}`);

	// The next page has the ids below the last one of this page.
	let count = 0;
	let page, last;
	do {
		page = await transaction(user, (photos) => photos.find({
			select: { id: true },
			where: { userId: user, ...last && { id: LessThan(last) } },
			order: { id: 'DESC' },
			take: 400,
		}));
		count += page.length;
		last = page.at(-1)?.id ?? last;
	} while (page.length === 400);
	console.log(`in pages of 400: ${count} photos, the oldest ${last}`);
}

main(process.argv[2]).finally(() => shards.end());
