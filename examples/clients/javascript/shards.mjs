// Where shards live, and what a client does when one has moved.
//
//	const shards = new Shards({ open, ask });
//	await shards.of(user, (db, schema, shard) => ...);
//
// open(server) makes a pool of connections to { host, port, database, user, password }.
// ask(db, shard) is what SELECT snowid.shard_home(shard) says there.
//
// The work is one transaction, or one statement.  If the server refuses it since the
// shard has moved, nothing of it has happened, and it is done again at the new home.

const SHARDS = 2000n;

// SN001: the shard has moved.  SN002: it is not open there yet.  3F000, 42P01: the
// copy that the move has left has been renamed, or dropped.
const REFUSALS = ['SN001', 'SN002', '3F000', '42P01'];

export class Shards {
	#open;
	#ask;
	#pools = new Map();		// by home
	#homes = new Map();		// by shard, where it is not the first server
	#seconds;

	constructor({ open, ask, seconds = 30 }) {
		this.#open = open;
		this.#ask = ask;
		this.#seconds = seconds;
	}

	async of(user, work) {
		const shard = BigInt(user) % SHARDS;
		const deadline = Date.now() + this.#seconds * 1000;
		for (;;) {
			const db = this.#pool(this.#homes.get(shard) ?? '');
			try {
				return await work(db, `insta${shard}`, shard);
			} catch (error) {
				const state = sqlState(error);
				if (!REFUSALS.includes(state) || Date.now() > deadline)
					throw error;
				const home = await this.#ask(db, shard);
				if (home === 'missing' || home === 'here' && !state.startsWith('SN'))
					throw error;
				if (home !== 'here' && home !== 'closed')
					this.#homes.set(shard, home);
				if (state === 'SN002' || home === 'closed')
					await new Promise((done) => setTimeout(done, 100));
			}
		}
	}

	pools() {
		return [...this.#pools.values()];
	}

	#pool(home) {
		if (!this.#pools.has(home))
			this.#pools.set(home, this.#open(server(home)));
		return this.#pools.get(home);
	}
}

// A connection string as the registry has it; what it lacks is from PGHOST and so on.
function server(home) {
	const { PGHOST, PGPORT, PGDATABASE, PGUSER, PGPASSWORD } = process.env;
	const given = {};
	for (const [, key, quoted, plain] of home.matchAll(/(\w+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|(\S*))/g))
		given[key] = (quoted ?? plain).replace(/\\(.)/g, '$1');
	return {
		host: given.host ?? PGHOST,
		port: Number(given.port ?? PGPORT ?? 5432),
		database: given.dbname ?? PGDATABASE,
		user: given.user ?? PGUSER,
		password: PGPASSWORD,
	};
}

// Libraries wrap the driver's error in errors of their own, with codes of their own.
function sqlState(error) {
	const inner = error.cause ?? error.driverError ?? error.parent ?? error.meta?.driverAdapterError;
	return inner ? sqlState(inner) : error.originalCode ?? error.code ?? '';
}
