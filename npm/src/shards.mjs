// Where shards live, and what a client does when one has moved.
//
//	const shards = pgShards();			// of snowid/pg, or another adapter
//	await shards.of(user, (db, schema, shard) => ...);
//
// The work is one transaction, or one statement.  If the server refuses it since the
// shard has moved, nothing of it has happened, and it is done again at the new home.
import { clean, likeHome, parseHome } from './home.mjs';
import { idParts, shardOf } from './index.mjs';

export { parseHome } from './home.mjs';

// SN001: the shard has moved.  SN002: it is not open there yet.  3F000, 42P01: the
// copy that the move has left has been renamed, or dropped.
const MOVED = ['SN001', 'SN002'];
const REFUSALS = [...MOVED, '3F000', '42P01'];
const LOST = /^(08...|57P0[123]|25006|E(ADDR|AI_|CONN|HOST|NET|NOENT|NOTFOUND|PIPE|TIMEDOUT)\w*|CONNECT\w+|P10(01|02|08|17))$/;

export class Shards {
	#options;
	#pools = new Map();		// by home
	#homes = new Map();		// by shard, where it is not the first server
	#ended = false;

	// open(server) makes a pool of connections, rows(db, sql) asks it, close(db) ends it,
	// use(db, schema) is what the work gets.  known is what the driver's own options say of user,
	// password, database and so on.
	constructor(options) {
		this.#options = { home: '', shards: 2000, schema: (shard) => `insta${shard}`, seconds: 30, use: (db) => db, onMove() {}, ...clean(options) };
	}

	// The key's shard: of a BigInt, a whole number, or a text.
	async of(key, work) {
		return this.in(shardOf(key, this.#options.shards), work);
	}

	// The shard that has made an id.
	async ofId(id, work) {
		return this.in(idParts(id).shard, work);
	}

	async in(shard, work) {
		const { rows, schema, seconds, use, onMove } = this.#options;
		const deadline = Date.now() + seconds * 1000;
		if (!Number.isInteger(shard) || shard < 0 || shard > 8191)
			throw new RangeError(`a shard is a whole number from 0 to 8191, not ${typeof shard} "${shard}"`);
		const name = schema(shard);
		for (;;) {
			const at = this.#homes.get(shard) ?? this.#options.home;
			let db, home;
			try {
				db = await this.#pool(at);
				return await work(await use(db, name), name, shard);
			} catch (error) {
				const state = sqlState(error);
				// Whoever knew this home may know another one by now.
				if (LOST.test(state)) {
					this.#forget(at, db);
					this.#homes.delete(shard);
				}
				if (!REFUSALS.includes(state) || Date.now() > deadline)
					throw error;
				[{ home }] = await rows(db, `SELECT snowid.shard_home(${shard}) AS home`);
				if (home === 'missing' || home === 'here' && !MOVED.includes(state))
					throw error;
				const known = home === 'here' || home === 'closed' || home === at;
				if (!known) {
					this.#homes.set(shard, home);
					onMove(shard, home);
				}
				if (known || state === 'SN002')
					await new Promise((done) => setTimeout(done, 100));
			}
		}
	}

	// All pools that are open.
	async pools() {
		return Promise.all([...this.#pools.values()].map(({ db }) => db));
	}

	async end() {
		const pools = [...this.#pools.values()];
		this.#ended = true;
		this.#pools.clear();
		await Promise.all(pools.map(async ({ db }) => this.#options.close(await db)));
	}

	// The registry's homes have no password, nor how to connect: that is as in the first one.
	#pool(home) {
		const { home: first, known = {} } = this.#options;
		if (this.#ended)
			throw new Error('these shards have been ended: make new ones');
		if (!this.#pools.has(home)) {
			const { servers, wanted } = parseHome(home, process.env, {
				user: known.user ?? known.username, password: known.password, dbname: known.database ?? known.dbName, ...home !== first && likeHome(first),
			});
			const db = this.#open(servers, wanted);
			const pool = { db, several: servers.length > 1 || wanted !== 'any' };
			this.#pools.set(home, pool);
			db.then((opened) => { pool.opened = opened; }, () => this.#pools.get(home) === pool && this.#pools.delete(home));
		}
		return this.#pools.get(home).db;
	}

	// The first of several servers that answers, and is what is wanted of it.
	async #open(servers, wanted) {
		const { open, rows, close } = this.#options;
		if (servers.length === 1 && wanted === 'any')
			return open(servers[0]);
		const passes = wanted === 'prefer-standby' ? ['standby', 'any'] : [wanted];
		let refused = Object.assign(new Error(`no server of the home is ${wanted}`), { code: '08001' });
		for (const pass of passes)
			for (const server of servers) {
				let db;
				try {
					db = await open(server);
					const [state] = await rows(db, `SELECT pg_is_in_recovery() AS standby, current_setting('transaction_read_only') AS read_only`);
					if (suits(pass, state))
						return db;
				} catch (error) {
					refused = error;
				}
				if (db)
					await Promise.resolve(close(db)).catch(() => {});
			}
		throw refused;
	}

	// A home of several servers is asked anew, once.  Others keep their pool, which connects again.
	#forget(home, db) {
		const pool = this.#pools.get(home);
		if (!pool?.several || pool.opened !== db)
			return;
		this.#pools.delete(home);
		Promise.resolve(this.#options.close(db)).catch(() => {});
	}
}

function suits(wanted, { standby, read_only: readOnly }) {
	switch (wanted) {
	case 'any': return true;
	case 'read-write': return readOnly === 'off';
	case 'read-only': return readOnly === 'on';
	case 'primary': return !standby;
	case 'standby': return standby;
	default: throw new Error(`target_session_attrs "${wanted}" is unknown`);
	}
}

// Has the server refused it since the shard has moved, or is not open yet?
export function isMoved(error) {
	return MOVED.includes(sqlState(error));
}

// The SQLSTATE of an error, or a code of Node's.  Libraries wrap the driver's error in
// errors of their own, with codes of their own (Prisma's are P1000 and so on).
export function sqlState(error, seen = new Set()) {
	if (typeof error !== 'object' || error === null || seen.has(error))
		return '';
	seen.add(error);
	for (const key of ['cause', 'driverError', 'original', 'parent', 'previous', 'meta', 'driverAdapterError', 'errors'])
		for (const inner of [error[key]].flat()) {
			const state = sqlState(inner, seen);
			if (state)
				return state;
		}
	for (const code of [error.originalCode, error.code, error.sqlState])
		if (typeof code === 'string' && (LOST.test(code) || /^(?!P[1-9]\d{3})[0-9A-Z]{5}$/.test(code)))
			return code;
	// Of the driver pg, without a code.
	return /^(Connection terminated|timeout e)/.test(error.message) ? '08006' : '';
}
