// Prisma 6's engine in JavaScript, which needs no program of its own.
import { PrismaPg } from '@prisma/adapter-pg';
import { defineConfig } from 'prisma/config';

const { PGHOST: host, PGPORT: port, PGDATABASE: database, PGUSER: user } = process.env;

export default defineConfig({
	schema: 'prisma/schema.prisma',
	experimental: { adapter: true },
	engine: 'js',
	adapter: async () => {
		const factory = new PrismaPg({ host, port: Number(port), database, user });
		const connect = factory.connect.bind(factory);
		factory.connect = async () => {
			const connection = await connect();
			// The adapter would cut a migration at each semicolon, also in a function;
			// Prisma's program sends it whole.
			connection.executeScript = async (script) => void await connection.client.query(script);
			return connection;
		};
		return factory;
	},
});
