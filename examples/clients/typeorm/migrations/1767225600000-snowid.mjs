// The first migration: snowid.sql beside this directory is a copy of portable/snowid.sql, or
// says CREATE EXTENSION snowid.
import { readFileSync } from 'node:fs';

export class Snowid1767225600000 {
	async up(runner) {
		await runner.query(readFileSync('snowid.sql', 'utf8'));
		await runner.query(`SELECT snowid.register_shard(5, 'public')`);
	}

	async down() {
	}
}
