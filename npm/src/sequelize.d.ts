import type { Options, Sequelize } from 'sequelize';
import type { ShardOptions, Shards } from './shards';
export declare function sequelizeShards(options?: ShardOptions & { sequelize?: Options; define?: (db: Sequelize) => unknown }): Shards<Sequelize>;
