// Of Knex: db is a Knex; tables are of db.withSchema(schema).
import knex from 'knex';
import { Shards } from './shards.mjs';

export function knexShards({ knex: given, ...options } = {}) {
	return new Shards({
		open: (server) => knex({ ...given, client: 'pg', connection: { ...given?.connection, ...server } }),
		rows: async (db, sql) => (await db.raw(sql)).rows,
		close: (db) => db.destroy(),
		known: given?.connection,
		...options,
	});
}
