// A connection string as the registry has it, or a URI: any that libpq takes, but for
// services.  What it lacks is from PGHOST and so on.
import { readFileSync } from 'node:fs';
import { userInfo } from 'node:os';

const VARIABLES = {
	host: 'PGHOST', hostaddr: 'PGHOSTADDR', port: 'PGPORT', dbname: 'PGDATABASE', user: 'PGUSER', password: 'PGPASSWORD',
	sslmode: 'PGSSLMODE', sslrootcert: 'PGSSLROOTCERT', sslcert: 'PGSSLCERT', sslkey: 'PGSSLKEY', options: 'PGOPTIONS',
	application_name: 'PGAPPNAME', connect_timeout: 'PGCONNECT_TIMEOUT', target_session_attrs: 'PGTARGETSESSIONATTRS',
};

// Its servers, in the order in which they are tried; wanted is what target_session_attrs says.
export function parseHome(home, env = process.env) {
	const given = /^postgres(ql)?:\/\//.test(home) ? fromUri(home) : fromPairs(home);
	if (given.service)
		throw new Error(`home "${home}" names a service, which is in a file of libpq: write its host and port instead`);
	// An address of one server is not that of a host given here.
	if (given.host !== undefined)
		given.hostaddr ??= '';
	const get = (key) => given[key] || env[VARIABLES[key]] || undefined;
	const addresses = (given.hostaddr === '' ? '' : get('hostaddr') ?? '').split(',');
	const hosts = (get('host') ?? '').split(',');
	const ports = (get('port') ?? '5432').split(',');
	const count = Math.max(hosts.length, addresses.length);
	if (ports.length !== 1 && ports.length !== count)
		throw new Error(`home "${home}" has ${count} hosts, and ${ports.length} ports`);
	const user = get('user') ?? userInfo().username;
	const timeout = Number(get('connect_timeout') ?? 0) * 1000;
	const servers = Array.from({ length: count }, (_, at) => clean({
		host: addresses[at] || hosts[at] || 'localhost',
		port: Number((ports.length === 1 ? ports[0] : ports[at]) || 5432),
		database: get('dbname') ?? user,
		user,
		password: get('password'),
		ssl: tls(get, hosts[at] || undefined),
		options: get('options'),
		application_name: get('application_name'),
		connectionTimeoutMillis: timeout > 0 ? timeout : undefined,
	}));
	return { servers, wanted: get('target_session_attrs') ?? 'any' };
}

function fromPairs(home) {
	const given = {};
	const pair = /\s*([A-Za-z_]+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|(?!')((?:[^\s\\]|\\.)*))(?:\s+|$)/sy;
	while (pair.lastIndex < home.length && home.slice(pair.lastIndex).trim()) {
		const at = pair.lastIndex;
		const [, key, quoted, plain] = pair.exec(home) ?? [];
		if (key === undefined)
			throw new Error(`home is no connection string: "${home.slice(at)}"`);
		given[key] = (quoted ?? plain).replace(/\\(.)/gs, '$1');
	}
	return given;
}

// Not new URL(): that knows one host, and none with a "_".
function fromUri(home) {
	const [, user, password, places, database, query] =
		/^postgres(?:ql)?:\/\/(?:([^:@/?]*)(?::([^@/?]*))?@)?([^/?]*)(?:\/([^?]*))?(?:\?(.*))?$/s.exec(home) ?? [];
	if (places === undefined)
		throw new Error(`home is no URI: "${home}"`);
	const hosts = places.split(',').map((place) => /^(?:\[([^\]]*)\]|([^:]*))(?::(\d*))?$/.exec(place));
	if (hosts.includes(null))
		throw new Error(`home is no URI: "${home}"`);
	const given = { user, password, dbname: database };
	if (places) {
		given.host = hosts.map(([, v6, name]) => v6 ?? name).join(',');
		given.port = hosts.some(([, , , port]) => port) ? hosts.map(([, , , port]) => port ?? '').join(',') : undefined;
	}
	for (const [key, value] of Object.entries(given))
		given[key] = value && decodeURIComponent(value);
	for (const pair of query ? query.split('&') : []) {
		const [, key, value] = /^([^=]+)=(.*)$/s.exec(pair) ?? [];
		if (key === undefined)
			throw new Error(`home is no URI: "${home}"`);
		given[decodeURIComponent(key)] = decodeURIComponent(value);
	}
	if (given.ssl === 'true')
		given.sslmode ??= 'require';
	return given;
}

// What libpq's sslmode is in Node.  "allow" and "prefer" are without: Node does not try both.
function tls(get, name) {
	const mode = get('sslmode') ?? 'prefer';
	const file = (key) => get(key) && readFileSync(get(key));
	if (mode === 'disable')
		return false;
	if (mode === 'allow' || mode === 'prefer')
		return undefined;
	const root = get('sslrootcert');
	const checked = mode.startsWith('verify-') || root !== undefined;
	return clean({
		rejectUnauthorized: checked,
		checkServerIdentity: checked && mode !== 'verify-full' ? () => undefined : undefined,
		servername: name && !/^[\d.:/]/.test(name) ? name : undefined,
		ca: root === 'system' ? undefined : file('sslrootcert'),
		cert: file('sslcert'),
		key: file('sslkey'),
	});
}

// Without what is undefined: drivers take that for given.
export function clean(object) {
	return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined));
}
