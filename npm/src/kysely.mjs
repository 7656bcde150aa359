// Of Kysely: db is a Kysely whose tables are those of the shard's schema.
import { CompiledQuery, Kysely, PostgresDialect } from 'kysely';
import { openPool } from './pg.mjs';
import { Shards } from './shards.mjs';

export function kyselyShards({ kysely, pool, ...options } = {}) {
	return new Shards({
		open: (server) => new Kysely({ ...kysely, dialect: new PostgresDialect({ pool: openPool(server, pool) }) }),
		rows: async (db, sql) => (await db.executeQuery(CompiledQuery.raw(sql))).rows,
		close: (db) => db.destroy(),
		use: (db, schema) => db.withSchema(schema),
		known: pool,
		...options,
	});
}
