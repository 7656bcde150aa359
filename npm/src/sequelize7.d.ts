import type { Options, Sequelize } from '@sequelize/core';
import type { PostgresDialect } from '@sequelize/postgres';
import type { ShardOptions, Shards } from './shards';
export declare function sequelizeShards(
	options?: ShardOptions & { sequelize?: Partial<Omit<Options<PostgresDialect>, 'dialect'>>; define?: (db: Sequelize<PostgresDialect>) => unknown },
): Shards<Sequelize<PostgresDialect>>;
