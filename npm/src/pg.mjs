// Of the driver pg: db is a Pool.
import pg from 'pg';
import { Shards } from './shards.mjs';

export function openPool(server, config) {
	const pool = new pg.Pool({ ...config, ...server });
	// A server that ends idle connections would end the program.
	return pool.on('error', () => {});
}

export function pgShards({ pool, ...options } = {}) {
	return new Shards({
		open: (server) => openPool(server, pool),
		rows: async (db, sql) => (await db.query(sql)).rows,
		close: (db) => db.end(),
		known: pool,
		...options,
	});
}
