import type { EntityManager, MikroORM, Options } from '@mikro-orm/postgresql';
import type { ShardOptions, Shards } from './shards';
export declare function mikroOrmShards(options?: ShardOptions & { mikroOrm?: Options }): Shards<MikroORM, EntityManager>;
