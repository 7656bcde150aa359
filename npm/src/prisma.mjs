// Of Prisma: db is the client of the shard's schema.  A client has one schema, which
// qualifies all names; clients of a server share its connections.
import { PrismaPg } from '@prisma/adapter-pg';
import { openPool } from './pg.mjs';
import { Shards } from './shards.mjs';

export function prismaShards({ PrismaClient, prisma, pool, ...options }) {
	return new Shards({
		open: (server) => ({ pool: openPool(server, pool), clients: new Map() }),
		rows: async (db, sql) => (await db.pool.query(sql)).rows,
		close: (db) => db.pool.end(),
		use: (db, schema) => {
			if (!db.clients.has(schema))
				// A pool of another copy of pg would be taken for its configuration.
				db.clients.set(schema, new PrismaClient({ ...prisma, adapter: Object.assign(new PrismaPg(db.pool, { schema }), { externalPool: db.pool }) }));
			return db.clients.get(schema);
		},
		known: pool,
		...options,
	});
}
