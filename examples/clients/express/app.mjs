// Ids in the answers of a web server: text, which JavaScript keeps exact.
//
//	node app.mjs 31341
import express from 'express';
import { asText } from 'snowid';
import { pgShards } from 'snowid/pg';

const shards = pgShards();
const app = express();

// For BigInts, which Drizzle and Prisma return: res.json() fails without it.
app.set('json replacer', asText);

// A bigint of the driver is a string.
app.get('/:user/first', async ({ params: { user } }, response) => {
	response.json(await firstOf(user));
});

app.get('/:user/first/bigint', async ({ params: { user } }, response) => {
	response.json({ id: BigInt((await firstOf(user)).id) });
});

// The driver parses the server's JSON, where numbers lose digits: cast.
app.get('/:user/album', async ({ params: { user } }, response) => {
	const { rows } = await shards.of(BigInt(user), (db, schema) => db.query(`
		SELECT json_agg(json_build_object('id', id::text, 'caption', caption) ORDER BY id) AS photos
		FROM ${schema}.photos WHERE user_id = $1`, [user]));
	response.json(rows[0].photos);
});

async function firstOf(user) {
	const { rows } = await shards.of(BigInt(user), (db, schema) =>
		db.query(`SELECT id FROM ${schema}.photos WHERE user_id = $1 ORDER BY id LIMIT 1`, [user]));
	return rows[0];
}

const server = app.listen(0, '127.0.0.1', async () => {
	const address = `http://127.0.0.1:${server.address().port}/${process.argv[2]}`;
	for (const path of ['first', 'first/bigint', 'album'])
		console.log(`${path}: ${await (await fetch(`${address}/${path}`)).text()}`);
	server.close();
	await shards.end();
});
