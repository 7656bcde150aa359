import type { Pool, PoolConfig } from 'pg';
import type { ShardOptions, Shards } from './shards';
export declare function prismaShards<Client>(
	options: ShardOptions & { PrismaClient: new (options: any) => Client; prisma?: object; pool?: PoolConfig },
): Shards<{ pool: Pool; clients: Map<string, Client> }, Client>;
