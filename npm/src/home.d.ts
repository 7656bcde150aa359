import type { ConnectionOptions } from 'node:tls';
export interface Server {
	host: string;
	port: number;
	database: string;
	user: string;
	password?: string;
	ssl?: false | ConnectionOptions;
	options?: string;
	application_name?: string;
	connectionTimeoutMillis?: number;
}
export declare function parseHome(home: string, env?: Record<string, string | undefined>, lacking?: Record<string, unknown>): { servers: Server[]; wanted: string };
export declare function likeHome(home: string): Record<string, string>;
export declare function clean<T extends object>(object: T): T;
