// The schema of a project that begins, for drizzle-kit.
import { sql } from 'drizzle-orm';
import { bigint, pgSequence, pgTable, text } from 'drizzle-orm/pg-core';

// Declared, so that generate makes it, and push does not drop it.
export const ids = pgSequence('id_seq');

export const photos = pgTable('photos', {
	// As the server writes it, or push sets it again each time.
	id: bigint({ mode: 'bigint' }).primaryKey().default(sql`snowid.next_id(5, 'id_seq'::regclass)`),
	userId: bigint('user_id', { mode: 'bigint' }).notNull(),
	caption: text().notNull(),
});
