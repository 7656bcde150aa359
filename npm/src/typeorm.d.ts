import type { DataSource, DataSourceOptions, EntityManager } from 'typeorm';
import type { Key, ShardOptions, Shards, Work } from './shards';
type Postgres = Extract<DataSourceOptions, { type: 'postgres' }>;
export declare interface TypeormShards extends Shards<DataSource> {
	transaction<T>(key: Key, work: Work<EntityManager, T>): Promise<T>;
}
export declare function typeormShards(options?: ShardOptions & { dataSource?: Partial<Omit<Postgres, 'type' | 'synchronize'>> }): TypeormShards;
