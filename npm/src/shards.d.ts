import type { Id } from './index';
import type { Server } from './home';
export { parseHome } from './home';
export type { Server } from './home';
export type Key = bigint | number | string;
export interface ShardOptions {
	/** Where shards are that have not moved: a connection string or URI. '' is PGHOST and so on. */
	home?: string;
	/** The number of logical shards: 2000. */
	shards?: number;
	/** A shard's schema: insta1341. */
	schema?: (shard: number) => string;
	/** For how long a shard that is open nowhere is waited for: 30. */
	seconds?: number;
	onMove?: (shard: number, home: string) => void;
}
export interface Driver<Db, Use = Db> {
	open: (server: Server) => Db | Promise<Db>;
	rows: (db: Db, sql: string) => Promise<readonly any[]>;
	close: (db: Db) => unknown;
	use?: (db: Db, schema: string) => Use | Promise<Use>;
	/** What the driver's own options say of these, where the home does not. */
	known?: { user?: unknown; username?: unknown; password?: unknown; database?: unknown; dbName?: unknown };
}
export type Work<Use, T> = (db: Use, schema: string, shard: number) => T | PromiseLike<T>;
export declare class Shards<Db, Use = Db> {
	constructor(options: Driver<Db, Use> & ShardOptions);
	of<T>(key: Key, work: Work<Use, T>): Promise<T>;
	ofId<T>(id: Id, work: Work<Use, T>): Promise<T>;
	in<T>(shard: number, work: Work<Use, T>): Promise<T>;
	pools(): Promise<Db[]>;
	end(): Promise<void>;
}
export declare function isMoved(error: unknown): boolean;
export declare function sqlState(error: unknown): string;
