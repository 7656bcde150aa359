// Of Drizzle with pg: db is its database; tables are of pgSchema(schema).
import { sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/node-postgres';
import { openPool } from './pg.mjs';
import { Shards } from './shards.mjs';

export function drizzleShards({ drizzle: given, pool, ...options } = {}) {
	return new Shards({
		open: (server) => drizzle({ ...given, client: openPool(server, pool) }),
		rows: async (db, text) => (await db.execute(sql.raw(text))).rows,
		close: (db) => db.$client.end(),
		known: pool,
		...options,
	});
}
