// Ids outside the database, in a browser or in Node: their time, shard and
// number, their text in base 62, and back.
//
//	import { base62ToId, idParts } from './snowid.mjs';
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
	if (!/^[0-9A-Za-z]{11}$/.test(text))
		throw new RangeError(`invalid base-62 id: "${text}"`);
	const bits = [...text].reduce((id, digit) => id * 62n + BigInt(DIGITS.indexOf(digit)), 0n);
	if (bits >= 2n ** 64n)
		throw new RangeError(`base-62 id "${text}" is out of range`);
	return BigInt.asIntN(64, bits);
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

function inRange(name, value, max) {
	if (!Number.isInteger(value) || value < 0 || value > max)
		throw new RangeError(`${name} must be a whole number from 0 to ${max}, not ${value}`);
	return BigInt(value);
}
