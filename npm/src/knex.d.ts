import type { Knex } from 'knex';
import type { ShardOptions, Shards } from './shards';
export declare function knexShards(options?: ShardOptions & { knex?: Omit<Knex.Config, 'connection'> & { connection?: Knex.PgConnectionConfig } }): Shards<Knex>;
