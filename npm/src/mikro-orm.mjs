// Of MikroORM: db is a fork of the entity manager, in the shard's schema.  Entities have
// the schema '*'.
import { MikroORM } from '@mikro-orm/postgresql';
import { Shards } from './shards.mjs';

export function mikroOrmShards({ mikroOrm, ...options } = {}) {
	return new Shards({
		open: ({ database: dbName, ssl, options: settings, application_name, connectionTimeoutMillis, ...server }) => MikroORM.init({
			...mikroOrm,
			...server,
			dbName,
			driverOptions: {
				...mikroOrm?.driverOptions,
				...ssl !== undefined && { ssl },
				...settings && { options: settings },
				...application_name && { application_name },
				...connectionTimeoutMillis && { connectionTimeoutMillis },
			},
		}),
		rows: (db, sql) => db.em.getConnection().execute(sql),
		close: (db) => db.close(true),
		use: (db, schema) => db.em.fork({ schema }),
		known: mikroOrm,
		...options,
	});
}
