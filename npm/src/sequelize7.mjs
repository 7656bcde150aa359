// Of Sequelize 7, as sequelize.mjs.
import { Sequelize } from '@sequelize/core';
import { PostgresDialect } from '@sequelize/postgres';
import { Shards } from './shards.mjs';

export function sequelizeShards({ sequelize, define = () => {}, ...options } = {}) {
	return new Shards({
		open: async (server) => {
			const db = new Sequelize({ logging: false, ...sequelize, dialect: PostgresDialect, ...server });
			await define(db);
			return db;
		},
		rows: async (db, sql) => (await db.query(sql))[0],
		close: (db) => db.close(),
		known: sequelize,
		...options,
	});
}
