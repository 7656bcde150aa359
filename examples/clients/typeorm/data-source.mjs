// The data source of a project that begins, for the command typeorm.
import { DataSource, EntitySchema } from 'typeorm';

const Photo = new EntitySchema({
	name: 'photo',
	tableName: 'photos',
	columns: {
		id: { type: 'bigint', primary: true, default: () => 'next_id()' },
		userId: { type: 'bigint', name: 'user_id' },
		caption: { type: 'text' },
	},
});

const { PGHOST: host, PGPORT: port, PGDATABASE: database, PGUSER: username } = process.env;

export default new DataSource({
	type: 'postgres', host, port: Number(port ?? 5432), database, username,
	entities: [Photo],
	migrations: ['migrations/*'],
});
