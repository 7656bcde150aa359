// Ids outside the database, in a browser or in Node: their time, shard and
// number, their text in base 62, and back.
//
//	import { base62ToId, idParts } from 'snowid';
//	idParts('3800086217995850759');				// { createdAt: 2026-01-01T00:00:00.000Z, shard: 5, seq: 7 }
//	idParts(base62ToId('4WiQyt11R1r')).shard;	// 5
//
// The functions are those of schema snowid, and agree with them on every id.  An
// id is a BigInt or its decimal text, and comes back as a BigInt.  It is never a
// number, which would have lost digits.  What is out of range is a RangeError.

// Of the published snippet, in milliseconds since 1970.  Where ids have an epoch of
// their own, give it as the last argument: a Date, or milliseconds.
export const EPOCH = 1314220021721;

const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

export function idParts(id, epoch = EPOCH) {
	const bits = toBits(id);
	const createdAt = new Date(finite('epoch', epoch) + Number(bits >> 23n));
	finite('time of the id', createdAt);
	return {
		createdAt,
		shard: Number(bits >> 10n & 8191n),
		seq: Number(bits & 1023n),
	};
}

export function makeId(createdAt, shard, seq, epoch = EPOCH) {
	const ms = inRange('milliseconds since the epoch', Math.floor(finite('time', createdAt) - finite('epoch', epoch)), 2 ** 41 - 1);
	return BigInt.asIntN(64, ms << 23n | inRange('shard', shard, 8191) << 10n | inRange('seq', seq, 1023));
}

// The smallest id of a time: id >= minId(since) && id < minId(until).  A time before
// all ids, or after them, gives the first or the last millisecond.
export function minId(at, epoch = EPOCH) {
	const ms = Math.ceil(toMs(at) - finite('epoch', epoch));
	if (Number.isNaN(ms))
		throw new RangeError(`time must be a Date or milliseconds, not ${at}`);
	return BigInt(Math.min(Math.max(ms, 0), 2 ** 40 - 1)) << 23n;
}

// For JSON.stringify(), which refuses BigInts: they become text.
export function asText(key, value) {
	return typeof value === 'bigint' ? String(value) : value;
}

export function idToBase62(id) {
	let text = '';
	for (let rest = toBits(id); text.length < 11; rest /= 62n)
		text = DIGITS[rest % 62n] + text;
	return text;
}

export function base62ToId(text) {
	if (typeof text !== 'string' || !/^[0-9A-Za-z]{11}$/.test(text))
		throw new RangeError(`invalid base-62 id: "${text}"`);
	const bits = [...text].reduce((id, digit) => id * 62n + BigInt(DIGITS.indexOf(digit)), 0n);
	if (bits >= 2n ** 64n)
		throw new RangeError(`base-62 id "${text}" is out of range`);
	return BigInt.asIntN(64, bits);
}

// An id of JSON, a URL or a driver: a BigInt, or a TypeError or RangeError.
export function parseId(id) {
	return BigInt.asIntN(64, toBits(id));
}

// For sort(): the older id first.  Texts in decimal do not sort so.
export function compareIds(a, b) {
	const difference = parseId(a) - parseId(b);
	return difference < 0n ? -1 : Number(difference > 0n);
}

// The last id of a page, as a text for URLs, and back.
export function toCursor(id) {
	return id === undefined || id === null ? null : idToBase62(id);
}

export function fromCursor(text) {
	return text === undefined || text === null || text === '' ? null : base62ToId(text);
}

// As snowid.shard_of() has it: a number's remainder, or of a text the first 8 bytes
// of its MD5.  A text of digits is a text, too.
export function shardOf(key, shards) {
	inRange('number of shards', shards, 8192, 1);
	if (typeof key === 'string')
		return Number(md5Start(new TextEncoder().encode(key)) % BigInt(shards));
	if (typeof key !== 'bigint' && !Number.isSafeInteger(key))
		throw new TypeError(`a key is a text, a BigInt or a whole number, not ${typeof key} "${key}"`);
	if (BigInt.asIntN(64, BigInt(key)) !== BigInt(key))
		throw new RangeError(`key ${key} is out of range`);
	const rest = Number(BigInt(key) % BigInt(shards));
	return rest < 0 ? rest + shards : rest + 0;
}

// The first 8 bytes of an MD5, which browsers do not have.
function md5Start(bytes) {
	const padded = new DataView(new ArrayBuffer((bytes.length + 72) >> 6 << 6));
	bytes.forEach((byte, at) => padded.setUint8(at, byte));
	padded.setUint8(bytes.length, 0x80);
	padded.setBigUint64(padded.byteLength - 8, BigInt(bytes.length) * 8n, true);
	const shifts = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
	let state = [0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476];
	for (let block = 0; block < padded.byteLength; block += 64) {
		let [a, b, c, d] = state;
		for (let i = 0; i < 64; i++) {
			const round = i >> 4;
			const mixed = [b & c | ~b & d, b & d | c & ~d, b ^ c ^ d, c ^ (b | ~d)][round];
			const word = padded.getUint32(block + 4 * ([i, 5 * i + 1, 3 * i + 5, 7 * i][round] & 15), true);
			const sum = a + mixed + word + Math.floor(Math.abs(Math.sin(i + 1)) * 2 ** 32) | 0;
			const shift = shifts[round][i & 3];
			[a, d, c, b] = [d, c, b, b + (sum << shift | sum >>> 32 - shift) | 0];
		}
		state = [state[0] + a | 0, state[1] + b | 0, state[2] + c | 0, state[3] + d | 0];
	}
	const start = new DataView(new ArrayBuffer(8));
	start.setInt32(0, state[0], true);
	start.setInt32(4, state[1], true);
	return start.getBigUint64(0);
}

// The 64 bits of an id, without its sign.
function toBits(id) {
	if (typeof id !== 'bigint' && !/^-?\d+$/.test(typeof id === 'string' ? id : ''))
		throw new TypeError(`an id is a BigInt or its decimal text, not ${typeof id} "${id}"`);
	if (BigInt.asIntN(64, BigInt(id)) !== BigInt(id))
		throw new RangeError(`id ${id} is out of range`);
	return BigInt.asUintN(64, BigInt(id));
}

// Milliseconds of a Date or a number.
function toMs(time) {
	return time instanceof Date || typeof time === 'number' ? Number(time) : NaN;
}

function finite(name, time) {
	if (!Number.isFinite(toMs(time)))
		throw new RangeError(`${name} must be a Date or milliseconds, not ${time}`);
	return toMs(time);
}

function inRange(name, value, max, min = 0) {
	if (!Number.isInteger(value) || value < min || value > max)
		throw new RangeError(`${name} must be a whole number from ${min} to ${max}, not ${value}`);
	return BigInt(value);
}
