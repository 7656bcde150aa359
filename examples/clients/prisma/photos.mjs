// Photos of a user, in the shard where the user lives.
//
//	npx prisma generate
//	node photos.mjs 31341
import { PrismaClient } from '@prisma/client';
import { asText, idParts, minId } from 'snowid';
import { prismaShards } from 'snowid/prisma';

const shards = prismaShards({ PrismaClient });

async function main(user) {
	const first = await shards.of(user, (db, schema, shard) => {
		console.log(`user ${user} lives in shard ${shard}`);
		return db.photo.create({ data: { userId: user, caption: 'the first' } });
	});
	console.log(`inserted ${first.id}`);
	console.log(`in JSON: ${JSON.stringify({ id: first.id }, asText)}`);

	const captions = Array.from({ length: 1000 }, (_, n) => ({ userId: user, caption: `photo ${n + 1}` }));
	const more = await shards.of(user, (db) =>
		db.photo.createManyAndReturn({ data: captions, select: { id: true } }));
	console.log(`inserted ${more.length} more, the last ${more.at(-1).id}`);

	const { createdAt, shard } = idParts(first.id);
	console.log(`made ${createdAt.toISOString()} in shard ${shard}`);

	const found = await shards.of(user, (db) =>
		db.photo.findMany({
			where: { id: { gte: minId(createdAt), lt: minId(new Date(createdAt.getTime() + 60000)) } },
			orderBy: { id: 'desc' },
		}));
	console.log(`in the minute from then: ${found.length} photos, the newest ${found[0].id}`);

	// The next page has the ids below the last one of this page.
	let count = 0;
	let page, last;
	do {
		page = await shards.of(user, (db) =>
			db.photo.findMany({
				select: { id: true },
				where: { userId: user, id: { lt: last } },
				orderBy: { id: 'desc' },
				take: 400,
			}));
		count += page.length;
		last = page.at(-1)?.id ?? last;
	} while (page.length === 400);
	console.log(`in pages of 400: ${count} photos, the oldest ${last}`);
}

main(BigInt(process.argv[2])).finally(() => shards.end());
