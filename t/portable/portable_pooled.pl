# Through PgBouncer in transaction mode, where a session of the server is no
# session of the client: the lock of the portable edition lasts for one statement,
# so ids rise and none is left.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my ($pgbouncer) = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin';
plan skip_all => 'pgbouncer is not installed' unless $pgbouncer;

my $node = new_node('pooled');
$node->start;
portable_database($node, 'app');
$node->safe_psql('app', q{
CREATE SEQUENCE s;
CREATE TABLE ids (client int, n int, id bigint PRIMARY KEY DEFAULT snowid.next_id(5, 's'));
-- Who waits for a lock that stays behind shall fail.
ALTER DATABASE app SET statement_timeout = '60s';});

my $dir = PostgreSQL::Test::Utils::tempdir_short();
my $port = PostgreSQL::Test::Cluster::get_free_port();
my $user = getpwuid($<);
append_to_file("$dir/users", qq{"$user" ""\n});
append_to_file("$dir/ini", qq{
[databases]
app = host=@{[$node->host]} port=@{[$node->port]} user=$user
[pgbouncer]
listen_addr =
listen_port = $port
unix_socket_dir = $dir
auth_type = any
auth_file = $dir/users
pool_mode = transaction
default_pool_size = 3
logfile = $dir/log
pidfile = $dir/pid
});
system_or_bail($pgbouncer, '-q', '-d', "$dir/ini");
my $pooled = "host=$dir port=$port dbname=app user=$user";
{
	# In the server's place.
	local @$node{qw(_host _port)} = ($dir, $port);
	ok($node->poll_query_until('app', 'SELECT true'), 'PgBouncer is there') or diag(slurp_file("$dir/log"));
}

append_to_file("$dir/script", q{
INSERT INTO ids (client, n) VALUES (:client_id, 1);
BEGIN;
INSERT INTO ids (client, n) VALUES (:client_id, 2);
INSERT INTO ids (client, n) VALUES (:client_id, 3);
COMMIT;
});
command_ok([ 'pgbench', '-n', '-M', 'simple', '-c', 12, '-t', 50, '-f', "$dir/script", $pooled ],
	'12 clients share 3 sessions');
is($node->safe_psql('app', 'SELECT count(*), count(DISTINCT id) FROM ids'), '1800|1800', 'each has its ids');
is($node->safe_psql('app', q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), '0',
	'no session of the pool has kept a lock');

$node->stop;
done_testing();
END { kill 'TERM', slurp_file("$dir/pid") + 0 if defined $dir && -e "$dir/pid"; }
