// Of postgres.js: db is its sql.  It prepares nothing unless told to, which PgBouncer
// before 1.21 would not stand.
import { isIPv6 } from 'node:net';
import postgres from 'postgres';
import { Shards } from './shards.mjs';

export function postgresShards({ postgres: given, ...options } = {}) {
	return new Shards({
		open: ({ host, port, user, ssl, options: settings, application_name, connectionTimeoutMillis, ...server }) => postgres({
			prepare: false,
			...given,
			...server,
			// Of a text, it takes what is before the first ":".
			...isIPv6(host) ? { host: [host], port: [port] } : { host, port },
			user,
			...ssl !== undefined && { ssl },
			...connectionTimeoutMillis && { connect_timeout: connectionTimeoutMillis / 1000 },
			connection: { ...given?.connection, ...settings && { options: settings }, ...application_name && { application_name } },
		}),
		rows: (db, sql) => db.unsafe(sql),
		close: (db) => db.end(),
		known: given,
		...options,
	});
}
