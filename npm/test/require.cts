// The same modules for require(), with the same types.
import { parseId } from 'snowid';
import { pgShards } from 'snowid/pg';
import { isMoved } from 'snowid/shards';

const id: bigint = parseId('1');
const first: Promise<number | null> = pgShards({ seconds: 1 }).of('a text', async (db) => (await db.query('SELECT 1')).rowCount);
first.catch((error: unknown) => console.log(id, isMoved(error)));

// @ts-expect-error: a number loses digits
parseId(1);
