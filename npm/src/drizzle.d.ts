import type { DrizzleConfig } from 'drizzle-orm';
import type { NodePgDatabase } from 'drizzle-orm/node-postgres';
import type { Pool, PoolConfig } from 'pg';
import type { ShardOptions, Shards } from './shards';
export declare function drizzleShards<S extends Record<string, unknown> = Record<string, never>>(
	options?: ShardOptions & { drizzle?: DrizzleConfig<S>; pool?: PoolConfig },
): Shards<NodePgDatabase<S> & { $client: Pool }>;
