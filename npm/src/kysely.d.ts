import type { Kysely, KyselyConfig } from 'kysely';
import type { PoolConfig } from 'pg';
import type { ShardOptions, Shards } from './shards';
export declare function kyselyShards<DB>(options?: ShardOptions & { kysely?: Omit<KyselyConfig, 'dialect'>; pool?: PoolConfig }): Shards<Kysely<DB>>;
