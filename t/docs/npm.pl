# The package in npm/, as "npm pack" makes it: for import and for require(); what it says of
# ids, keys and homes is what the server says; its migration installs the portable edition.
#
# With npm/test installed, as .ci/clients does: tsc --strict has nothing to say, and each
# adapter writes while its shard moves, and loses nothing.
use strict;
use warnings;

use Cwd qw(abs_path);
use FindBin;
use IO::Socket::INET;
use IPC::Run;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PoolerTest qw(have_pgbouncer start_pooler);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

for my $program (qw(node npm))
{
	next if grep { -x "$_/$program" } split /:/, $ENV{PATH};
	die "$program is not there" if ($ENV{CLIENTS} // '') eq 'all';
	plan skip_all => "$program is not installed";
}
plan skip_all => 'Node is older than 20' if `node -p 'parseInt(process.version.slice(1))'` < 20 && ($ENV{CLIENTS} // '') ne 'all';

my $top = abs_path("$FindBin::RealBin/../..");
my $tmp = PostgreSQL::Test::Utils::tempdir();

# Without network.
%ENV = (%ENV, npm_config_cache => "$tmp/cache", npm_config_offline => 'true', npm_config_update_notifier => 'false', NO_COLOR => 1);

my $node = move_node('main');
my $other = move_node('other');
# Certificates of the address, and of another name for it.
my $has_tls = grep { -x "$_/openssl" } split /:/, $ENV{PATH};
die 'openssl is not there' if !$has_tls && ($ENV{CLIENTS} // '') eq 'all';
for my $name ($has_tls ? qw(IP:127.0.0.1 DNS:localhost) : ())
{
	my ($out, $errors) = run_command([ qw(openssl req -x509 -nodes -newkey rsa:2048 -days 2 -subj /CN=snowid -addext), "subjectAltName=$name", '-keyout', "$tmp/$name.key", '-out', "$tmp/$name.crt" ]);
	chmod 0600, "$tmp/$name.key" or die $errors;
}
for ($node, $other)
{
	$_->append_conf('postgresql.conf', "ssl = on\nssl_cert_file = '$tmp/IP:127.0.0.1.crt'\nssl_key_file = '$tmp/IP:127.0.0.1.key'") if $has_tls;
	$_->append_conf('postgresql.conf', "listen_addresses = '127.0.0.1'\nlog_line_prefix = '%a '");
	$_->start;
	$_->safe_psql('postgres', 'CREATE DATABASE app');
}
system_or_bail('psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', "$top/examples/clients/schema.sql", '-d', $node->connstr('app'));
$other->safe_psql('app', 'CREATE EXTENSION snowid; CREATE ROLE app LOGIN');
my @address = (PGHOST => '127.0.0.1', PGPORT => $node->port, PGDATABASE => 'app', PGUSER => 'app');

mkdir "$tmp/made";
my ($said, $err) = run_command([ 'npm', 'pack', '--silent', '--pack-destination', "$tmp/made", "$top/npm" ]);
is($said, 'snowid-1.0.0.tgz', 'the package is made') or diag($err);
system_or_bail('sh', '-c', "mkdir -p '$tmp/node_modules' && cd '$tmp/node_modules' && tar -xzf ../made/*.tgz && mv package snowid");

# The file's last expression, as JSON.
sub script
{
	my ($name, $text) = @_;
	local %ENV = (%ENV, @address);
	append_to_file("$tmp/$name", $text);
	my ($out, $errors) = run_command([ 'node', "$tmp/$name" ]);
	diag($errors) if $errors;
	return $out;
}

is(script('both.mjs', q{
import { createRequire } from 'node:module';
const require = createRequire(import.meta.url);
const same = [];
for (const name of ['snowid', 'snowid/shards']) {
	const [made, required] = [await import(name), require(name)];
	same.push(Object.keys(made).filter((key) => key !== 'module.exports' && key !== 'default').sort().join() === Object.keys(required).sort().join());
}
console.log(same.join(), String(require('snowid').base62ToId('4WiQyt11R1r')));
}), 'true,true 3800086217995850759', 'import and require() give the same');

is(script('refused.mjs', q{
import { base62ToId, compareIds, fromCursor, parseId, shardOf, toCursor } from 'snowid';
const refused = (f) => { try { return String(f()); } catch (error) { return error.name; } };
console.log([
	() => parseId(1), () => parseId(['1']), () => parseId('1.0'), () => parseId(''), () => parseId(null), () => parseId('9223372036854775808'),
	() => base62ToId(['4WiQyt11R1r']), () => shardOf(1.5, 10), () => shardOf(2 ** 53, 10), () => shardOf(['1'], 10), () => shardOf(1, 0), () => shardOf(1, 8193), () => shardOf(-5n, '2000'),
	() => parseId('-9223372036854775808'), () => ['10', '9', 9n].sort(compareIds), () => fromCursor(toCursor('-1')), () => [fromCursor(''), toCursor(undefined)],
].map(refused).join(' '));
}), join(' ', ('TypeError') x 5, 'RangeError', 'RangeError', ('TypeError') x 3, ('RangeError') x 3, '-9223372036854775808', '9,9,10', '-1', ','),
	'numbers, arrays and what is out of range are refused');

my $keys = $node->safe_psql('app', q{
SELECT setseed(0.45);
WITH keys AS (
	SELECT n, (('x' || md5(i::text))::bit(64)::bigint >> (i % 64)) * (CASE i % 2 WHEN 0 THEN 1 ELSE -1 END) AS number, 1 + (random() * 8191)::int AS shards,
		left(repeat(md5(i::text) || chr(1 + i % 55000) || 'ü€😀', 1 + i % 5), i % 200) AS word
	FROM generate_series(1, 2000) i, LATERAL (SELECT i AS n) AS l
	WHERE i % 64 <> 0
)
SELECT json_agg(json_build_array(number::text, word, shards, snowid.shard_of(number, shards), snowid.shard_of(word, shards))) FROM keys}) =~ s/^.*?(?=\[)//sr;
is(script('keys.mjs', "const rows = $keys;\n" . q{
import { shardOf } from 'snowid';
const wrong = rows.filter(([number, word, shards, one, two]) => shardOf(BigInt(number), shards) !== one || shardOf(word, shards) !== two);
console.log(rows.length, wrong.length, JSON.stringify(wrong[0] ?? ''));
}), '1969 0 ""', 'a key is of the shard that the server says');

# What libpq makes of the same, by its documentation.
my @homes = (
	[ q{host=a port=5433 dbname=x user=u}, 'a:5433 x u undefined' ],
	[ q{ host = 'a b' dbname='it\'s' user=u\ v port=1 }, q{a b:1 it's u v undefined} ],
	[ q{host=a,b_c port=5433,5434}, 'a:5433,b_c:5434 app app undefined' ],
	[ q{host=a,b port=5433}, 'a:5433,b:5433 app app undefined' ],
	[ q{host=a hostaddr=10.0.0.1 port=1}, '10.0.0.1:1 app app undefined' ],
	[ q{postgresql://u%40v:p@a_1:5433,[::1]:5434/x%20y?sslmode=disable}, 'a_1:5433,::1:5434 x y u@v false' ],
	[ q{postgres:///?host=/tmp&port=7}, '/tmp:7 app app undefined' ],
	[ q{postgres://a,b/x}, 'a:5432,b:5432 x app undefined' ],
	[ q{host=a port=1 sslmode=require}, 'a:1 app app {"rejectUnauthorized":false,"servername":"a"}' ],
	(map { [ "host=a port=1${_}sslrootcert=system", 'a:1 app app {"rejectUnauthorized":true,"servername":"a"}' ] } ' sslmode=verify-full ', ' '),
	[ q{}, '127.0.0.1:' . $node->port . ' app app undefined' ],
	[ q{host=/tmp sslmode=verify-full keepalives=1 gssencmode=prefer}, '/tmp:5432 app app undefined' ],
	(map { [ $_, 'Error' ] } 'host=a sslmode=Require', 'host=a sslmode=verify_full', 'host=a sslmode=verify-ca sslrootcert=system', 'hots=a', 'host=a port=x', 'host=a port=65536', 'host=a connect_timeout=x',
		'host=a channel_binding=require', 'host=a require_auth=scram-sha-256', 'host=a passfile=x', 'postgres://%zz@a/x'),
	[ q{host=a,b port=1,2,3}, 'Error' ], [ q{service=x}, 'Error' ], [ q{nonsense}, 'Error' ], [ q{host='a}, 'Error' ],
);
is(script('homes.mjs', 'const homes = [' . join(', ', map { "String.raw`$_->[0]`" } @homes) . "];\n" . q{
import { parseHome } from 'snowid/shards';
for (const home of homes)
	try {
		const { servers } = parseHome(home);
		console.log(servers.map(({ host, port }) => `${host}:${port}`).join(), servers[0].database, servers[0].user, JSON.stringify(servers[0].ssl));
	} catch (error) {
		console.log(error.name);
	}
}), join("\n", map { $_->[1] =~ s/:5432/':' . $node->port/ger } @homes), 'homes are read as libpq reads them');

is(script('errors.mjs', q{
import { isMoved, sqlState } from 'snowid/shards';
const pg = Object.assign(new Error('moved'), { code: 'SN001' });
const loop = new Error('loop');
loop.cause = loop;
console.log([pg, { cause: pg }, { code: 'P2010', meta: { code: 'SN002' } }, { original: pg }, { driverError: { cause: pg } }, { errors: [pg] },
	{ meta: { driverAdapterError: { cause: { originalCode: 'SN001' } } } }].every(isMoved),
	[loop, undefined, 'SN001', { code: 'P2010' }, { code: '42P01' }, { code: 'EPIPE' }].some(isMoved), sqlState({ code: 'P2010' }), sqlState({ code: 'P0001' }));
}), 'true false  P0001', 'a refusal is seen in what libraries wrap around it');

is(script('options.mjs', q{
import { makeId } from 'snowid';
import { Shards, parseHome } from 'snowid/shards';
const service = (home) => { try { return parseHome(home, { PGSERVICE: 'x' }).servers[0].host; } catch (error) { return error.name; } };
const standby = new Shards({ home: 'host=a target_session_attrs=primary', open: () => 1, rows: () => [{ standby: true }], close() {} });
console.log(service(''), service('dbname=x'), service('host=a'), await standby.in(5, () => 0).catch((error) => error.code));
const shards = new Shards({ home: process.env.NOTHING, onMove: undefined, seconds: undefined, open() {}, rows() {}, close() {} });
const refused = (promise) => promise.catch((error) => error.name);
console.log(await shards.in(5, (db, schema) => schema), await shards.ofId(makeId(new Date(), 7, 1), (db, schema) => schema), await refused(shards.in("0); SELECT ('here'", () => 0)), await refused(shards.in(8192, () => 0)), await refused(shards.of(null, () => 0)));
await shards.end();
console.log(await refused(shards.in(5, () => 0)));
}), "Error Error a 08001\ninsta5 insta7 RangeError RangeError TypeError\nError", 'what is undefined is not given, an id and a number say the shard, and the end is the end');

# Two clients lose a home of several servers, the second when a third has opened it again.
is(script('lost.mjs', q{
import { execFileSync } from 'node:child_process';
import { Shards } from 'snowid/shards';
const open = new Set();
const psql = (db, sql) => {
	try {
		return execFileSync('psql', ['-XAtq', '-v', 'VERBOSITY=sqlstate', '-h', db.host, '-p', db.port, '-c', sql], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }).trim();
	} catch (error) {
		throw Object.assign(error, { code: /\b[0-9A-Z]{5}$/m.exec(error.stderr)?.[0] ?? '08006' });
	}
};
const shards = new Shards({
	home: `host=127.0.0.1,127.0.0.1 port=1,${process.env.PGPORT}`,
	open: (server) => { open.add(server); return server; },
	rows: async (db, sql) => [JSON.parse(psql(db, `SELECT to_json(q) FROM (${sql}) AS q`))],
	close: (db) => open.delete(db),
});
const lose = (db) => psql(db, 'SELECT pg_terminate_backend(pg_backend_pid())');
const ask = (db) => psql(db, `SELECT current_setting('port')`);
const refused = (promise) => promise.catch((error) => error.code);
let goOn;
const second = refused(shards.in(1340, (db) => new Promise((done) => { goOn = done; }).then(() => lose(db))));
const codes = [await refused(shards.in(1340, lose)), await shards.in(1340, ask) === process.env.PGPORT];
goOn();
codes.push(await second, await shards.in(1340, ask) === process.env.PGPORT, open.size);
await shards.end();
console.log(...codes, open.size);
}), '57P01 true 57P01 true 1 0', 'who is late does not forget what has been opened since');

# The migration.
my @snowid = ('node', "$tmp/node_modules/snowid/bin/snowid.mjs");
$node->safe_psql('postgres', 'CREATE DATABASE migrated');
($said, $err) = run_command([ @snowid, 'migration', '--tool', 'sql', '--shard', 5, '--out', "$tmp/sql" ]);
is($said, "$tmp/sql/snowid_1_0.sql", 'a migration is written') or diag($err);
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', $said, $node->connstr('migrated') ], 'and installs the portable edition' . $_) for '', ', again, as after a rollback';
is($node->safe_psql('migrated', 'SELECT snowid.version(), shard FROM snowid.shard_registry'), '1.0|5', 'of this version, with its shard');
for my $wrong ([qw(--tool flyway)], [qw(--tool sql --shard 8192)], [qw(--tool sql --no)], [ '--tool', 'sql', '--shard', 5, '--out', "$tmp/sql" ])
{
	command_fails([ @snowid, 'migration', @$wrong ], "@$wrong is refused");
}

# A directory that cannot be written is an error, at once: /proc made mkdir() of Node try for ever.
mkdir "$tmp/closed";
chmod 0, "$tmp/closed";
for my $out ('/proc/x', '/proc/x/y', '/sys/x', '/dev/null', "$tmp/sql/snowid_1_0.sql/x", "$tmp/closed", "$tmp/closed/x", '/dev/full')
{
	for my $tool (qw(sql prisma))
	{
		my ($in, $stdout, $stderr) = ('', '', '');
		my $run = IPC::Run::start([ 'timeout', 60, @snowid, 'migration', '--tool', $tool, '--out', $out ], \$in, \$stdout, \$stderr);
		$run->finish;
		ok($run->result == 1 && $stdout eq '' && $stderr =~ /^snowid: E[A-Z]+: .*\n\z/, "$tool in $out cannot be written") or diag($run->result, $stdout, $stderr);
	}
}
chmod 0700, "$tmp/closed";

# Nor does a file system that is full get half of one.
for my $tool (qw(sql knex typeorm prisma))
{
	my @full = ('sh', '-c', 'ulimit -f 8; exec "$@"', 'sh', @snowid, 'migration', '--tool', $tool, '--out', "$tmp/full");
	command_fails_like(\@full, qr/^snowid: EFBIG: /, "$tool: a file that cannot be written to its end");
	is(join(' ', glob "$tmp/full/*"), '', '... is removed');
}

SKIP:
{
	my $test = "$top/npm/test";
	if (grep { !-e "$_/node_modules/.bin/prisma" } $test, "$test/lowest")
	{
		fail('npm/test and npm/test/lowest are installed') if ($ENV{CLIENTS} // '') eq 'all';
		skip 'npm install has not been run in npm/test and npm/test/lowest', 1;
	}

	# Also where an older one has been installed.
	system_or_bail('sh', '-c', "cd '$test' && rm -rf node_modules/snowid && cp -r '$tmp/node_modules/snowid' node_modules/ && cp '$top/examples/clients/prisma/schema.prisma' .");

	my ($generated, $errors) = run_command([ 'sh', '-c', "cd '$test' && PRISMA_SCHEMA_ENGINE_BINARY=/bin/true CHECKPOINT_DISABLE=1 node_modules/.bin/prisma generate --schema schema.prisma 2>&1" ]);
	like($generated, qr/Generated Prisma Client/, 'Prisma has its client');

	# Libraries have errors in types of their own.
	my ($typed) = run_command([ 'sh', '-c', "cd '$test' && node_modules/.bin/tsc -p ." ]);
	is(join("\n", grep { m{^(?!node_modules/(?!snowid/))\S} } split /\n/, $typed), '', 'tsc --strict has nothing to say of the adapters');

	# Prisma's has its client when t/docs/clients.pl has made it.
	for my $recipe (qw(node-pg knex drizzle sequelize typeorm express))
	{
		my $dir = "$top/examples/clients/$recipe";
		next if !-e "$dir/node_modules" && ($ENV{CLIENTS} // '') ne 'all';
		my ($wrong) = run_command([ "$test/node_modules/.bin/tsc", qw(--ignoreConfig --noEmit --allowJs --checkJs --strict --noImplicitAny false --skipLibCheck --module nodenext --target es2022 --typeRoots),
			"$test/node_modules/\@types", qw(--types node), glob "$dir/*.mjs" ]);
		is($wrong, '', "nor of the recipe for $recipe");
	}

	my ($in, $out, $stderr) = ('', '', '');
	my @adapters = qw(pg postgres kysely drizzle knex sequelize sequelize7 typeorm mikroOrm prisma);
	my $run = IPC::Run::start([ 'env', (map { "$address[ 2 * $_ ]=$address[ 2 * $_ + 1 ]" } 0 .. 3), 'node', "$test/adapters.mjs" ], '<', \$in, '>', \$out, '2>', \$stderr);
	my $until = sub {
		my ($what, $each) = @_;
		my $end = time + $PostgreSQL::Test::Utils::timeout_default;
		my @lack;
		while (@lack = grep { $out !~ $each->($_) } @adapters)
		{
			$run->pump_nb;
			usleep(50_000);
			last if time > $end || !$run->pumpable;
		}
		is("@lack", '', $what) or diag($stderr);
	};
	$until->('each adapter writes', sub { qr/^$_[0] \d+$/m });
	local $MoveTest::database = 'app';
	local $MoveTest::host = '127.0.0.1';
	local $MoveTest::shard = 1341;
	hold_and_kill($other, 'open', 1, 'move', $node, $other);
	moves_ok($node, $other, 1341, [], 0, 'the shard moves');
	$until->('each adapter follows it, and writes there', sub { qr/^$_[0] moved 1341 .*^$_[0] \d+$/ms });
	ok($run->finish, 'they come to their end') or diag($stderr);
	for my $at (1 .. @adapters)
	{
		my ($name, $user) = ($adapters[ $at - 1 ], 1341 + 2000 * $at);
		my @ids = $out =~ /^$name (\d+)$/mg;
		is($other->safe_psql('app', "SELECT string_agg(id::text, ' ' ORDER BY id) FROM insta1341.photos WHERE user_id = $user"),
			join(' ', sort { $a <=> $b } @ids), "$name: each row is there, once");
	}

	my ($required) = run_command([ 'sh', '-c', qq{cd '$test' && node -e "for (const name of 'pg postgres kysely drizzle knex sequelize sequelize7 typeorm mikro-orm prisma'.split(' ')) console.log(Object.keys(require('snowid/' + name)).join())"} ]);
	is($required, join("\n", 'openPool,pgShards', map { "${_}Shards" } qw(postgres kysely drizzle knex sequelize sequelize typeorm mikroOrm prisma)), 'each adapter can be required');

	# Of each library the newest version, and the lowest that the package allows.
	my @tests = ($test, "$test/lowest");
	system_or_bail('sh', '-c', "cd '$tests[1]' && rm -rf node_modules/snowid && cp -r '$tmp/node_modules/snowid' node_modules/ && cp ../adapters.mjs .");
	append_to_file("$tests[1]/schema.prisma", slurp_file("$test/schema.prisma") =~ s/"postgresql"\K/\n\turl = env("PGHOST")/r);
	($generated) = run_command([ 'sh', '-c', "cd '$tests[1]' && PRISMA_SCHEMA_ENGINE_BINARY=/bin/true PRISMA_QUERY_ENGINE_LIBRARY=/bin/true CHECKPOINT_DISABLE=1 node_modules/.bin/prisma generate --schema schema.prisma 2>&1" ]);
	like($generated, qr/Generated Prisma Client/, '... also its oldest');

	# Each adapter does an INSERT from that home on; before it, and then.
	my $each = sub {
		my ($what, $home, @steps) = @_;
		for my $dir (@tests)
		{
			($in, $out, $stderr) = ('', '', '');
			$run = IPC::Run::start([ 'env', (map { "$address[ 2 * $_ ]=$address[ 2 * $_ + 1 ]" } 0 .. 3), 'node', "$dir/adapters.mjs", $home ],
				'<', \$in, '>', \$out, '2>', \$stderr, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
			for my $step (@steps)
			{
				my ($expected, $sql) = @$step;
				$node->safe_psql('app', $sql) if $sql;
				$out = '';
				$in .= "\n";
				$run->pump while (() = $out =~ /^\w+ (?:ok|failed.*)$/mg) < @adapters && $run->pumpable;
				is(join(' ', grep { $out !~ /^$_ $expected$/m } @adapters), '', "$what: $expected, " . ($dir eq $test ? 'newest' : 'lowest')) or diag("$out$stderr");
			}
			ok($run->finish, 'they come to their end') or diag($stderr);
		}
	};
	# In transaction mode, where the next statement comes by another connection.
	append_to_file("$tmp/entries", "[databases]\napp = host=127.0.0.1 port=" . $other->port . " user=app\n");
	my $pooler = have_pgbouncer() && start_pooler(undef, "listen_addr = 127.0.0.1\nauth_type = any\nserver_round_robin = 1", "$tmp/entries");
	ok($pooler, 'PgBouncer is there') or die if ($ENV{CLIENTS} // '') eq 'all';
	$each->('PgBouncer', "host=127.0.0.1 port=$pooler->{port}", (['ok']) x 5) if $pooler;
	$each->('options', q{options='-c default_transaction_read_only=on'}, ['failed: 25006']);
	# No other server answers in its place, and none makes a database.
	$each->('IPv6', 'host=::1 port=' . $node->port, ['failed: (E[A-Z]+|P1001)']);
	$each->('no database', 'user=' . getpwuid($<) . ' dbname=nowhere', ['failed: (3D000|P1003)']);

	# A home that is no more is forgotten, and each time the first one is asked again.
	my $right = $node->safe_psql('app', 'SELECT snowid.shard_home(1341)');
	my $silent = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 99) or die $!;
	my $move = sub { return "UPDATE snowid.shard_registry SET home = \$\$$_[0]\$\$ WHERE shard = 1341" };
	$each->('lost', '', [ 'failed: (ENOTFOUND|EAI_AGAIN|P1001)', $move->('host=nowhere.invalid dbname=app') ], [ 'failed: ENOENT', $move->('host=/no/such/directory dbname=app') ],
		[ 'failed: (ECONNREFUSED|P1001)', $move->('host=127.0.0.1 port=1 dbname=app') ], [ 'failed: 08001', $move->('target_session_attrs=standby host=127.0.0.1 dbname=app port=' . $node->port) ],
		[ 'failed: (08006|CONNECT_TIMEOUT)', $move->('connect_timeout=1 host=127.0.0.1 dbname=app port=' . $silent->sockport) ], [ 'ok', $move->($right) ]);

	# The home that the registry names has neither user nor TLS: these are as in the first one.
	append_to_file("$test/like.mjs", q{
import { pgShards } from 'snowid/pg';
import { postgresShards } from 'snowid/postgres';
const insert = `INSERT INTO insta1341.photos (user_id, caption) VALUES (1341, '')
	RETURNING concat_ws(' ', current_setting('port'), current_user, (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid())) AS at`;
const [home, user] = process.argv.slice(2);
for (const [shards, ask] of [
	[pgShards({ home, pool: { user } }), async (db) => (await db.query(insert)).rows],
	[postgresShards({ home, postgres: { user } }), (db) => db.unsafe(insert)],
]) {
	console.log(await shards.in(1341, async (db) => (await ask(db))[0].at).catch((error) => error.code));
	await shards.end();
}
});
	for my $case ([ 'sslmode=disable', 'app', 'app f' ], [ 'user=app sslmode=disable', '', 'app f' ],
		$has_tls ? map { [ "user=app sslmode=verify-full sslrootcert=$tmp/$_.crt", '', /IP/ ? 'app t' : '' ] } qw(IP:127.0.0.1 DNS:localhost) : ())
	{
		my ($how, $user, $expected) = @$case;
		if ($expected eq '')
		{
			# Before: the next connections must not have it.
			for ($node, $other)
			{
				$_->append_conf('postgresql.conf', "ssl_cert_file = '$tmp/DNS:localhost.crt'\nssl_key_file = '$tmp/DNS:localhost.key'");
				$_->restart;
			}
		}
		my ($out) = run_command([ 'env', (map { ('-u', "PG$_") } qw(HOST PORT DATABASE USER)), 'node', "$test/like.mjs", 'host=127.0.0.1 port=' . $node->port . " dbname=app $how", $user ]);
		is($out, join("\n", ($expected eq '' ? 'ERR_TLS_CERT_ALTNAME_INVALID' : $other->port . " $expected") x 2), "$how $user: as in the first home");
		$each->($how, $how, [ $expected eq '' ? 'failed: ' : 'ok' ]) if $how =~ /verify/;
	}

	# A home of several servers: the first that answers and can be written.
	my $closed = PostgreSQL::Test::Cluster::get_free_port();
	append_to_file("$test/hosts.mjs", q{
import { pgShards } from 'snowid/pg';
for (const home of process.argv.slice(2)) {
	const shards = pgShards({ home });
	console.log(await shards.of(1340n, async (db) => (await db.query('SELECT current_setting(\'port\') AS port')).rows[0].port));
	await shards.end();
}
});
	my $port = $node->port;
	my $read_only = $other->port;
	$other->safe_psql('app', 'ALTER ROLE app SET default_transaction_read_only = on');
	my ($ports) = run_command([ 'env', 'PGDATABASE=app', 'PGUSER=app', 'node', "$test/hosts.mjs", "host=127.0.0.1,127.0.0.1 port=$closed,$port",
		"postgresql://127.0.0.1:$read_only,127.0.0.1:$port/app?target_session_attrs=read-write", "postgresql://127.0.0.1:$port,127.0.0.1:$read_only/app?target_session_attrs=read-only" ]);
	is($ports, "$port\n$port\n$read_only", 'the first server of a home that answers, and is what is wanted');

	# Where the shard has moved to has another address by now.
	append_to_file("$test/address.mjs", q{
import { createInterface } from 'node:readline';
import { pgShards } from 'snowid/pg';
const shards = pgShards();
for await (const line of createInterface({ input: process.stdin })) {
	if (line === 'end')
		break;
	console.log(await shards.in(1341, async (db) => (await db.query(`INSERT INTO insta1341.photos (user_id, caption) VALUES (1341, '')`)).rowCount).catch((error) => error.code));
}
await shards.end();
process.exit();
});
	$other->safe_psql('app', 'ALTER ROLE app RESET default_transaction_read_only');
	$in = $out = '';
	$run = IPC::Run::start([ 'env', (map { "$address[ 2 * $_ ]=$address[ 2 * $_ + 1 ]" } 0 .. 3), 'node', "$test/address.mjs" ],
		'<', \$in, '>', \$out, '2>', \$stderr, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	my $says = sub {
		my ($expected, $what) = @_;
		$in .= "\n";
		$run->pump while $out !~ /\n/ && $run->pumpable;
		like($out, $expected, $what) or diag($stderr);
		$out = '';
	};
	$says->(qr/^1$/, 'the shard is written where it has moved to');
	$other->stop;
	$says->(qr/^ECONNREFUSED$/, 'that server has gone');
	$other->append_conf('postgresql.conf', "port = $closed");
	$other->{_port} = $closed;
	$other->start;
	$node->safe_psql('app', "UPDATE snowid.shard_registry SET home = replace(home, '$read_only', '$closed') WHERE shard = 1341");
	$says->(qr/^1$/, '... and is found where it is now');
	$in .= "end\n";
	ok($run->finish, 'the program ends');
	unlink map { "$test/$_.mjs" } qw(like hosts address);
	unlink map { "$_/schema.prisma" } @tests;
}

$_->stop for $node, $other;
done_testing();
