// Of Sequelize 6: db is a Sequelize; tables are of Model.schema(schema).  define(db) makes
// the models of each server.
import { Sequelize } from 'sequelize';
import { Shards } from './shards.mjs';

export function sequelizeShards({ sequelize, define = () => {}, ...options } = {}) {
	return new Shards({
		open: async ({ database, user, password, host, port, ssl, ...rest }) => {
			const db = new Sequelize(database, user, password ?? null, {
				logging: false,
				...sequelize,
				dialect: 'postgres', host, port,
				dialectOptions: { ...sequelize?.dialectOptions, ...rest, ...ssl !== undefined && { ssl } },
			});
			await define(db);
			return db;
		},
		rows: async (db, sql) => (await db.query(sql))[0],
		close: (db) => db.close(),
		known: sequelize,
		...options,
	});
}
