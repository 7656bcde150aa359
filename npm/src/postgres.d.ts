import type { Options, Sql } from 'postgres';
import type { ShardOptions, Shards } from './shards';
export declare function postgresShards(options?: ShardOptions & { postgres?: Options<{}> }): Shards<Sql<{}>>;
