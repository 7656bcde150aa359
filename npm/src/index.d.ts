/** An id: a BigInt, or its decimal text. Never a number, which loses digits. */
export type Id = bigint | string;
/** A Date, or milliseconds since 1970. */
export type Time = Date | number;
export interface IdParts {
	createdAt: Date;
	shard: number;
	seq: number;
}
export declare const EPOCH: number;
export declare function parseId(id: Id): bigint;
export declare function compareIds(a: Id, b: Id): -1 | 0 | 1;
export declare function idParts(id: Id, epoch?: Time): IdParts;
export declare function makeId(createdAt: Time, shard: number, seq: number, epoch?: Time): bigint;
export declare function minId(at: Time, epoch?: Time): bigint;
export declare function shardOf(key: bigint | number | string, shards: number): number;
export declare function asText(key: string, value: unknown): unknown;
export declare function idToBase62(id: Id): string;
export declare function base62ToId(text: string): bigint;
export declare function toCursor(id: Id | null | undefined): string | null;
export declare function fromCursor(text: string | null | undefined): bigint | null;
