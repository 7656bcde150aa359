// Photos of a user, in the shard where the user lives.
//
//	npx prisma generate
//	node photos.mjs 31341
import { PrismaPg } from '@prisma/adapter-pg';
import { PrismaClient } from '@prisma/client';
import { Pool } from 'pg';
import { Shards } from '../javascript/shards.mjs';
import { asText, idParts, minId } from '../javascript/snowid.mjs';

// A client has one schema, which qualifies all names; clients of a server share
// its connections.
class Server {
	#clients = new Map();

	constructor(server) {
		this.pool = new Pool(server);
	}

	photos(schema) {
		if (!this.#clients.has(schema))
			this.#clients.set(schema, new PrismaClient({ adapter: new PrismaPg(this.pool, { schema }) }));
		return this.#clients.get(schema).photo;
	}
}

const shards = new Shards({
	open: (server) => new Server(server),
	ask: async ({ pool }, shard) => (await pool.query('SELECT snowid.shard_home($1) AS home', [shard])).rows[0].home,
});

async function main(user) {
	const first = await shards.of(user, (server, schema, shard) => {
		console.log(`user ${user} lives in shard ${shard}`);
		return server.photos(schema).create({ data: { userId: user, caption: 'the first' } });
	});
	console.log(`inserted ${first.id}`);
	console.log(`in JSON: ${JSON.stringify({ id: first.id }, asText)}`);

	const captions = Array.from({ length: 1000 }, (_, n) => ({ userId: user, caption: `photo ${n + 1}` }));
	const more = await shards.of(user, (server, schema) =>
		server.photos(schema).createManyAndReturn({ data: captions, select: { id: true } }));
	console.log(`inserted ${more.length} more, the last ${more.at(-1).id}`);

	const { createdAt, shard } = idParts(first.id);
	console.log(`made ${createdAt.toISOString()} in shard ${shard}`);

	const found = await shards.of(user, (server, schema) =>
		server.photos(schema).findMany({
			where: { id: { gte: minId(createdAt), lt: minId(new Date(createdAt.getTime() + 60000)) } },
			orderBy: { id: 'desc' },
		}));
	console.log(`in the minute from then: ${found.length} photos, the newest ${found[0].id}`);

	// The next page has the ids below the last one of this page.
	let count = 0;
	let page, last;
	do {
		page = await shards.of(user, (server, schema) =>
			server.photos(schema).findMany({
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

main(BigInt(process.argv[2])).finally(() => Promise.all(shards.pools().map(({ pool }) => pool.end())));
