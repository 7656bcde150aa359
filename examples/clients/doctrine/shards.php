<?php
// Sends a user's queries to the user's shard.
//
//	in_shard_of($user, fn (Connection $db, string $schema) => $db->fetchOne(...))
use Doctrine\DBAL\Connection;
use Doctrine\DBAL\Driver\Exception as DriverException;
use Doctrine\DBAL\DriverManager;

const SHARDS = 2000;

// SN001: the shard has moved.  SN002: it is not open there yet.  3F000, 42P01: the
// copy that the move has left has been renamed, or dropped.
const REFUSALS = ['SN001', 'SN002', '3F000', '42P01'];

// The remainder that is not negative.
function shard_of(int $user): int
{
	return ($user % SHARDS + SHARDS) % SHARDS;
}

// Returns work(connection, schema), which is one transaction.  If the server refuses it
// since the shard has moved, nothing of it has happened, and it is done again at the new
// home.
function in_shard_of(int $user, callable $work, float $seconds = 30): mixed
{
	static $homes = [];  // by shard, where it is not the first server
	$shard = shard_of($user);
	$deadline = microtime(true) + $seconds;
	while (true) {
		$server = on_server($homes[$shard] ?? '');
		try {
			$server->beginTransaction();
			$result = $work($server, "insta$shard");
			$server->commit();
			return $result;
		} catch (Throwable $e) {
			$server->close();  // which rolls back; the next query connects again
			// DBAL's exceptions have the SQLSTATE; COMMIT's can be one of PDO.
			$state = $e instanceof DriverException ? $e->getSQLState() : ($e instanceof PDOException ? $e->errorInfo[0] ?? '' : '');
			if (preg_match('/^(08|57P|HY|25006)/', $state))
				unset($homes[$shard]);  // that server may be no more; the first one knows
			if (!in_array($state, REFUSALS, true) || microtime(true) > $deadline)
				throw $e;
		}
		$home = $server->fetchOne('SELECT snowid.shard_home(?)', [$shard]);
		if ($home === 'missing' || $home === 'here' && !str_starts_with($state, 'SN'))
			throw $e;
		if ($home !== 'here' && $home !== 'closed')
			$homes[$shard] = $home;
		if ($state === 'SN002' || $home === 'closed')
			usleep(100_000);
	}
}

// A connection to the server of a home, a connection string as the registry has it.
// What it lacks is from PGHOST and so on.
function on_server(string $home): Connection
{
	static $servers = [];
	if (!isset($servers[$home])) {
		$given = given($home);
		// PDO gives libpq what stands there: several hosts, target_session_attrs, sslmode and so on.
		$more = '';
		foreach (array_diff_key($given, array_flip(['host', 'port', 'dbname', 'user', 'password'])) as $key => $value)
			$more .= ";$key='" . addcslashes($value, "'\\") . "'";
		$servers[$home] = DriverManager::getConnection(array_filter([
			'driver' => 'pdo_pgsql',
			'host' => isset($given['host']) ? $given['host'] . $more : null,
			'port' => $given['port'] ?? null,
			'dbname' => $given['dbname'] ?? getenv('PGDATABASE'),
			'user' => $given['user'] ?? getenv('PGUSER'),
			'password' => $given['password'] ?? getenv('PGPASSWORD'),
			// For PgBouncer before 1.21: no statements that have names.
			'driverOptions' => [PDO::PGSQL_ATTR_DISABLE_PREPARES => true],
		]));
	}
	return $servers[$home];
}

// What a connection string says, as the registry has it: pairs, or a URI.
function given(string $home): array
{
	$given = [];
	if (preg_match('~^postgres(?:ql)?://(?:([^:@/?]*)(?::([^@/?]*))?@)?([^/?]*)/?([^?]*)\??(.*)$~s', $home, $uri)) {
		$hosts = preg_replace('/:\d*(?=,|$)|[][]/', '', $uri[3]);
		$ports = preg_replace('/(\[[^]]*]|[^,:]*):?(\d*)/', '$2', $uri[3]);
		foreach (explode('&', "host=$hosts&port=$ports&user=$uri[1]&password=$uri[2]&dbname=$uri[4]&$uri[5]") as $pair)
			if (preg_match('/^(.+?)=(.+)$/s', $pair, $found))
				$given[$found[1]] = rawurldecode($found[2]);
		return $given;
	}
	preg_match_all("/(\w+)\s*=\s*(?:'((?:[^'\\\\]|\\\\.)*)'|(\S+))/", $home, $pairs, PREG_SET_ORDER);
	foreach ($pairs as $pair)
		$given[$pair[1]] = stripslashes($pair[3] ?? $pair[2]);
	return $given;
}
