// Of TypeORM: db is a DataSource.  An entity's schema is the same for all, so the search
// path says it: for one transaction, so that it neither gets lost nor stays behind in
// PgBouncer's transaction mode.
import { DataSource } from 'typeorm';
import { Shards } from './shards.mjs';

class TypeormShards extends Shards {
	transaction(key, work) {
		return this.of(key, (db, schema, shard) => db.transaction(async (manager) => {
			await manager.query(`SET LOCAL search_path = "${schema.replaceAll('"', '""')}"`);
			return work(manager, schema, shard);
		}));
	}
}

export function typeormShards({ dataSource, ...options } = {}) {
	return new TypeormShards({
		open: ({ user: username, options: settings, application_name: applicationName, connectionTimeoutMillis, ...server }) => new DataSource({
			...dataSource,
			type: 'postgres',
			...server,
			username,
			...applicationName && { applicationName },
			extra: {
				...dataSource?.extra, ...settings && { options: settings }, ...connectionTimeoutMillis && { connectionTimeoutMillis },
			},
			synchronize: false,
		}).initialize(),
		rows: (db, sql) => db.query(sql),
		close: (db) => db.destroy(),
		known: dataSource,
		...options,
	});
}
