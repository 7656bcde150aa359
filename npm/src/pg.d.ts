import type { Pool, PoolConfig } from 'pg';
import type { Server, ShardOptions, Shards } from './shards';
export declare function openPool(server: Server, config?: PoolConfig): Pool;
export declare function pgShards(options?: ShardOptions & { pool?: PoolConfig }): Shards<Pool>;
