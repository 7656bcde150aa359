// Each adapter writes photos of a user of shard 1341 until the input ends, and says each
// id that it was given: "pg 4035239593305764864"; and each move that it has seen.
//
// With a home as argument, from there: once for each line, and says "pg ok", or "pg failed"
// and what the error is.
import { createInterface } from 'node:readline';
import { EntitySchema as MikroSchema, defineConfig } from '@mikro-orm/postgresql';
import { PrismaClient } from '@prisma/client';
import { DataTypes as DataTypes7 } from '@sequelize/core';
import { sql } from 'drizzle-orm';
import { bigint, pgSchema, text } from 'drizzle-orm/pg-core';
import type { Generated } from 'kysely';
import { DataTypes } from 'sequelize';
import { type Id, asText, parseId, shardOf } from 'snowid';
import { drizzleShards } from 'snowid/drizzle';
import { knexShards } from 'snowid/knex';
import { kyselyShards } from 'snowid/kysely';
import { mikroOrmShards } from 'snowid/mikro-orm';
import { pgShards } from 'snowid/pg';
import { postgresShards } from 'snowid/postgres';
import { prismaShards } from 'snowid/prisma';
import { sequelizeShards } from 'snowid/sequelize';
import { sequelizeShards as sequelize7Shards } from 'snowid/sequelize7';
import { type ShardOptions, sqlState } from 'snowid/shards';
import { typeormShards } from 'snowid/typeorm';
import { EntitySchema } from 'typeorm';

type Insert = (user: bigint) => Promise<Id>;
type Adapter = { insert: Insert; end: () => Promise<void> };
type Photo = { id?: string; userId: string; caption: string };

const caption = 'a';
const Photos = new EntitySchema<Photo>({
	name: 'photo',
	tableName: 'photos',
	columns: {
		id: { type: 'bigint', primary: true, default: () => 'next_id()' },
		userId: { type: 'bigint', name: 'user_id' },
		caption: { type: 'text' },
	},
});
const MikroPhotos = new MikroSchema<Photo>({
	name: 'photo',
	tableName: 'photos',
	schema: '*',
	properties: {
		id: { type: 'string', columnType: 'bigint', primary: true, autoincrement: true },
		userId: { type: 'string', columnType: 'bigint', fieldName: 'user_id' },
		caption: { type: 'text' },
	},
});
type Tables = { photos: { id: Generated<string>; user_id: bigint; caption: string } };

const all: Record<string, (options: ShardOptions) => Adapter> = {
	pg(options) {
		const shards = pgShards(options);
		return { end: () => shards.end(), insert: (user) => shards.of(user, async (db, schema) =>
			(await db.query<{ id: string }>(`INSERT INTO ${schema}.photos (user_id, caption) VALUES ($1, $2) RETURNING id`, [user, caption])).rows[0]!.id) };
	},
	postgres(options) {
		const shards = postgresShards(options);

		// A transaction: elsewhere it would prepare again what another connection does not know.
		return { end: () => shards.end(), insert: (user) => shards.of(user, async (db, schema) => db.begin(async (tx) =>
			(await tx<{ id: string }[]>`INSERT INTO ${tx(schema)}.photos (user_id, caption) VALUES (${String(user)}, ${caption}) RETURNING id`)[0]!.id)) };
	},
	kysely(options) {
		const shards = kyselyShards<Tables>(options);
		return { end: () => shards.end(), insert: (user) => shards.of(user, async (db) =>
			(await db.insertInto('photos').values({ user_id: user, caption }).returning('id').executeTakeFirstOrThrow()).id) };
	},
	drizzle(options) {
		const shards = drizzleShards(options);
		return { end: () => shards.end(), insert: (user) => shards.of(user, async (db, schema) => {
			const photos = pgSchema(schema).table('photos', {
				id: bigint({ mode: 'bigint' }).primaryKey().default(sql`next_id()`),
				userId: bigint('user_id', { mode: 'bigint' }).notNull(),
				caption: text().notNull(),
			});
			return (await db.insert(photos).values({ userId: user, caption }).returning({ id: photos.id }))[0]!.id;
		}) };
	},
	knex(options) {
		const shards = knexShards(options);
		return { end: () => shards.end(), insert: (user) => shards.of(user, async (db, schema) =>
			(await db.withSchema(schema).insert({ user_id: user, caption }).into('photos').returning('id') as { id: string }[])[0]!.id) };
	},
	sequelize(options) {
		const shards = sequelizeShards({ ...options, define: (db) => db.define('photo', {
			id: { type: DataTypes.BIGINT, primaryKey: true, autoIncrement: true },
			user_id: { type: DataTypes.BIGINT, allowNull: false },
			caption: { type: DataTypes.TEXT, allowNull: false },
		}, { tableName: 'photos', timestamps: false }) });
		return { end: () => shards.end(), insert: (user) => shards.of(user, async (db, schema) =>
			(await db.model('photo').schema(schema).create({ user_id: String(user), caption })).get('id') as string) };
	},
	sequelize7(options) {
		const shards = sequelize7Shards({ ...options, define: (db) => db.define('photo', {
			id: { type: DataTypes7.BIGINT, primaryKey: true, autoIncrement: true },
			user_id: { type: DataTypes7.BIGINT, allowNull: false },
			caption: { type: DataTypes7.TEXT, allowNull: false },
		}, { tableName: 'photos', timestamps: false }) });
		return { end: () => shards.end(), insert: (user) => shards.of(user, async (db, schema) =>
			(await db.models.getOrThrow('photo').withSchema(schema).create({ user_id: user, caption })).get('id') as string) };
	},
	typeorm(options) {
		const shards = typeormShards({ ...options, dataSource: { entities: [Photos] } });
		return { end: () => shards.end(), insert: (user) => shards.transaction(user, async (manager) =>
			(await manager.getRepository(Photos).save({ userId: String(user), caption })).id!) };
	},
	mikroOrm(options) {
		const shards = mikroOrmShards({ ...options, mikroOrm: defineConfig({ entities: [MikroPhotos] }) });
		return { end: () => shards.end(), insert: (user) => shards.of(user, async (em) =>
			(await em.insert(MikroPhotos, { userId: String(user), caption })) as string) };
	},
	prisma(options) {
		const shards = prismaShards({ ...options, PrismaClient });
		return { end: () => shards.end(), insert: (user) => shards.of(user, async (db) =>
			(await db.photo.create({ data: { userId: user, caption } })).id) };
	},
};

const [home] = process.argv.slice(2);
const user = (at: number) => 1341n + 2000n * BigInt(at + 1);
if (shardOf(user(0), 2000) !== 1341)
	throw new Error('not of shard 1341');

if (home !== undefined) {
	const adapters = Object.entries(all).map(([name, make]) => ({ name, ...make({ home }) }));
	for await (const _ of createInterface({ input: process.stdin }))
		await Promise.all(adapters.map(async ({ name, insert }, at) => console.log(
			await insert(user(at)).then(() => `${name} ok`, (error) => `${name} failed: ${sqlState(error)}`))));
	await Promise.all(adapters.map(({ end }) => end()));
} else {
	let stopped = false;
	process.stdin.on('end', () => { stopped = true; }).resume();
	await Promise.all(Object.entries(all).map(async ([name, make], at) => {
		const { insert, end } = make({ onMove: (shard, at) => console.log(`${name} moved ${shard} ${at}`) });
		while (!stopped) {
			console.log(`${name} ${JSON.parse(JSON.stringify(parseId(await insert(user(at))), asText))}`);
			await new Promise((done) => setTimeout(done, 5));
		}
		await end();
	}));
}
