// A connection string as the registry has it, or a URI: any that libpq takes, but for
// services, and for what Node's drivers could not keep.
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { userInfo } from 'node:os';
import { checkServerIdentity } from 'node:tls';

const VARIABLES = {
	host: 'PGHOST', hostaddr: 'PGHOSTADDR', port: 'PGPORT', dbname: 'PGDATABASE', user: 'PGUSER', password: 'PGPASSWORD',
	sslmode: 'PGSSLMODE', sslrootcert: 'PGSSLROOTCERT', sslcert: 'PGSSLCERT', sslkey: 'PGSSLKEY', options: 'PGOPTIONS',
	application_name: 'PGAPPNAME', connect_timeout: 'PGCONNECT_TIMEOUT', target_session_attrs: 'PGTARGETSESSIONATTRS',
};

// What makes no difference to what is asked, and to whom.
const IGNORED = /^(client_encoding|fallback_application_name|keepalives\w*|tcp_user_timeout|sslcompression|sslsni|krbsrvname|gsslib|load_balance_hosts|(gssencmode|channel_binding)=(disable|prefer))(=|$)/;
const SSLMODES = ['disable', 'allow', 'prefer', 'require', 'verify-ca', 'verify-full'];

// Its servers, in the order in which they are tried; wanted is what target_session_attrs says.
// What the home lacks is from lacking, or else from PGHOST and so on.
export function parseHome(home, env = process.env, lacking = {}) {
	const given = pairsOf(home);
	// An address of one server is not that of a host given here.
	if (given.host !== undefined)
		given.hostaddr ??= '';
	const get = (key) => given[key] || lacking[key] || env[VARIABLES[key]] || undefined;
	const number = (key, value, max) => {
		if (!/^\d+$/.test(value) || Number(value) > max)
			throw new Error(`${key} of a home must be a number, not "${value}"`);
		return Number(value);
	};
	const addresses = (given.hostaddr === '' ? '' : get('hostaddr') ?? '').split(',');
	const hosts = (get('host') ?? '').split(',');
	const ports = (get('port') ?? '5432').split(',');
	const count = Math.max(hosts.length, addresses.length);
	if (env.PGSERVICE && !addresses.join('') && !hosts.join(''))
		throw new Error('PGSERVICE names a service, which is in a file of libpq: give the host and port instead');
	if (ports.length !== 1 && ports.length !== count)
		throw new Error(`a home has ${count} hosts, and ${ports.length} ports`);
	const user = get('user') ?? userInfo().username;
	const timeout = number('connect_timeout', get('connect_timeout') ?? 0, 2147483) * 1000;
	const servers = Array.from({ length: count }, (_, at) => clean({
		host: addresses[at] || hosts[at] || 'localhost',
		port: number('port', (ports.length === 1 ? ports[0] : ports[at]) || 5432, 65535),
		database: get('dbname') ?? user,
		user,
		password: get('password'),
		ssl: tls(get, hosts[at] || addresses[at] || ''),
		options: get('options'),
		application_name: get('application_name'),
		connectionTimeoutMillis: timeout > 0 ? timeout : undefined,
	}));
	return { servers, wanted: get('target_session_attrs') ?? 'any' };
}

// Of a home, what another one may lack: all but where its server is.
export function likeHome(home) {
	const { host, hostaddr, port, ...rest } = pairsOf(home);
	return rest;
}

function pairsOf(home) {
	const given = /^postgres(ql)?:\/\//.test(home) ? fromUri(home) : fromPairs(home);
	for (const [key, value] of Object.entries(given))
		if (key === 'service')
			throw new Error('a home names a service, which is in a file of libpq: write its host and port instead');
		else if (!Object.hasOwn(VARIABLES, key) && !IGNORED.test(`${key}=${value}`))
			throw new Error(`"${key}" of a home is not known here: leave it out, or give the driver what it means`);
	return given;
}

function fromPairs(home) {
	const given = {};
	const pair = /\s*([A-Za-z_]+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|(?!')((?:[^\s\\]|\\.)*))(?:\s+|$)/sy;
	while (pair.lastIndex < home.length && home.slice(pair.lastIndex).trim()) {
		const at = pair.lastIndex;
		const [, key, quoted, plain] = pair.exec(home) ?? [];
		if (key === undefined)
			throw new Error(`a home is no connection string, from its character ${at + 1} on`);
		given[key] = (quoted ?? plain).replace(/\\(.)/gs, '$1');
	}
	return given;
}

// Not new URL(): that knows one host, and none with a "_".
function fromUri(home) {
	const [, user, password, places, database, query] =
		/^postgres(?:ql)?:\/\/(?:([^:@/?]*)(?::([^@/?]*))?@)?([^/?]*)(?:\/([^?]*))?(?:\?(.*))?$/s.exec(home) ?? [];
	if (places === undefined)
		throw noUri();
	const hosts = places.split(',').map((place) => /^(?:\[([^\]]*)\]|([^:]*))(?::(\d*))?$/.exec(place));
	if (hosts.includes(null))
		throw noUri();
	const given = { user, password, dbname: database };
	if (places) {
		given.host = hosts.map(([, v6, name]) => v6 ?? name).join(',');
		given.port = hosts.some(([, , , port]) => port) ? hosts.map(([, , , port]) => port ?? '').join(',') : undefined;
	}
	for (const [key, value] of Object.entries(given))
		given[key] = value && decode(value);
	for (const pair of query ? query.split('&') : []) {
		const [, key, value] = /^([^=]+)=(.*)$/s.exec(pair) ?? [];
		if (key === undefined)
			throw noUri();
		given[decode(key)] = decode(value);
	}
	if (given.ssl === 'true')
		given.sslmode ??= 'require';
	delete given.ssl;
	return clean(given);
}

// It may have a password.
function noUri() {
	return new Error('a home is no URI as postgresql://user@host:5432/database');
}

function decode(text) {
	try {
		return decodeURIComponent(text);
	} catch {
		throw noUri();
	}
}

// What libpq's sslmode is in Node.  "allow" and "prefer" are without: Node does not try both.
// Nor has a socket TLS.
function tls(get, name) {
	const root = get('sslrootcert');
	const mode = get('sslmode') ?? (root === 'system' ? 'verify-full' : 'prefer');
	const file = (key) => get(key) && readFileSync(get(key));
	if (!SSLMODES.includes(mode))
		throw new Error(`sslmode of a home must be one of ${SSLMODES.join(', ')}, not "${mode}"`);
	if (root === 'system' && mode !== 'verify-full')
		throw new Error(`sslmode "${mode}" of a home is too weak for sslrootcert=system: it must be verify-full`);
	if (mode === 'disable' || mode === 'allow' || mode === 'prefer' || name.startsWith('/'))
		return mode === 'disable' ? false : undefined;
	const checked = mode.startsWith('verify-') || root !== undefined;
	return clean({
		rejectUnauthorized: checked,
		checkServerIdentity: checked ? (_, certificate) => (mode === 'verify-full' ? checkServerIdentity(name, certificate) : undefined) : undefined,
		servername: name && !isIP(name) ? name : undefined,
		ca: root === 'system' ? undefined : file('sslrootcert'),
		cert: file('sslcert'),
		key: file('sslkey'),
	});
}

// Without what is undefined: drivers take that for given.
export function clean(object) {
	return Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined));
}
