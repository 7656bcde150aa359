// The first migration: snowid.sql beside this directory is a copy of portable/snowid.sql, or
// says CREATE EXTENSION snowid.
const { readFileSync } = require('node:fs');

exports.up = async (knex) => {
	// Each ? would be a parameter.
	await knex.raw(readFileSync('snowid.sql', 'utf8').replaceAll('?', '\\?'));
	await knex.raw(`SELECT snowid.register_shard(5, 'public')`);
	await knex.schema.createTable('photos', (table) => {
		table.bigint('id').primary().defaultTo(knex.raw('next_id()'));
		table.bigint('user_id').notNullable();
		table.text('caption').notNullable();
	});
};

exports.down = async () => {};
