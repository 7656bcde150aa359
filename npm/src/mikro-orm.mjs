// Of MikroORM: db is a fork of the entity manager, in the shard's schema.  Entities have
// the schema '*'.
import { MikroORM, PostgreSqlConnection } from '@mikro-orm/postgresql';
import { Shards } from './shards.mjs';

// Before version 7 they are Knex's, which has pg's under this name.
const ofKnex = 'getKnex' in PostgreSqlConnection.prototype;

export function mikroOrmShards({ mikroOrm, ...options } = {}) {
	return new Shards({
		open: ({ database: dbName, user, password, host, port, ...rest }) => {
			const given = mikroOrm?.driverOptions;
			return MikroORM.init({
				ensureDatabase: false,
				...mikroOrm,
				dbName, user, ...password !== undefined && { password }, host, port,
				driverOptions: ofKnex ? { ...given, connection: { ...given?.connection, ...rest } } : { ...given, ...rest },
			});
		},
		rows: (db, sql) => db.em.getConnection().execute(sql),
		close: (db) => db.close(true),
		use: (db, schema) => db.em.fork({ schema }),
		known: mikroOrm,
		...options,
	});
}
