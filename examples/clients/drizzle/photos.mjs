// Photos of a user, in the shard where the user lives.
//
//	node photos.mjs 31341
import { and, desc, eq, lt, sql } from 'drizzle-orm';
import { bigint, pgSchema, text } from 'drizzle-orm/pg-core';
import { asText } from 'snowid';
import { drizzleShards } from 'snowid/drizzle';

// The table in a shard's schema, which qualifies it.
const photosOf = (schema) => pgSchema(schema).table('photos', {
	// A BigInt: mode 'number' would lose digits.
	id: bigint({ mode: 'bigint' }).primaryKey().default(sql`next_id()`),
	userId: bigint('user_id', { mode: 'bigint' }).notNull(),
	caption: text().notNull(),
});

const shards = drizzleShards();

async function main(user) {
	const [first] = await shards.of(user, (db, schema, shard) => {
		const photos = photosOf(schema);
		console.log(`user ${user} lives in shard ${shard}`);
		return db.insert(photos).values({ userId: user, caption: 'the first' }).returning({ id: photos.id });
	});
	console.log(`inserted ${first.id}`);
	console.log(`in JSON: ${JSON.stringify(first, asText)}`);

	const captions = Array.from({ length: 1000 }, (_, n) => ({ userId: user, caption: `photo ${n + 1}` }));
	const more = await shards.of(user, (db, schema) => {
		const photos = photosOf(schema);
		return db.insert(photos).values(captions).returning({ id: photos.id });
	});
	console.log(`inserted ${more.length} more, the last ${more.at(-1)?.id}`);

	// What sql`` selects comes as the driver has it, unless mapped: here, a text.
	const { rows: [made] } = await shards.of(user, (db) =>
		db.execute(sql`SELECT created_at::text, shard FROM snowid.id_parts(${first.id})`));
	console.log(`made ${made.created_at} in shard ${made.shard}`);

	const found = await shards.of(user, (db, schema) => {
		const photos = photosOf(schema);
		return db.select().from(photos)
			.where(sql`snowid.id_between(${photos.id}, ${made.created_at}, ${made.created_at}::timestamptz + interval '1 minute')`)
			.orderBy(desc(photos.id));
	});
	console.log(`in the minute from then: ${found.length} photos, the newest ${found[0].id}`);

	// The next page has the ids below the last one of this page.
	let count = 0;
	let page, last;
	do {
		page = await shards.of(user, (db, schema) => {
			const photos = photosOf(schema);
			return db.select({ id: photos.id }).from(photos)
				.where(and(eq(photos.userId, user), last && lt(photos.id, last)))
				.orderBy(desc(photos.id)).limit(400);
		});
		count += page.length;
		last = page.at(-1)?.id ?? last;
	} while (page.length === 400);
	console.log(`in pages of 400: ${count} photos, the oldest ${last}`);
}

main(BigInt(process.argv[2])).finally(() => shards.end());
