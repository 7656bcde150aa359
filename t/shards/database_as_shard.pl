# A database as a shard: three databases, each with its number in snowid.shard
# and tables with DEFAULT snowid.next_id(), as doc/shards.md describes.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;

# A template makes them alike; its sequence has issued an id already.
$node->safe_psql('postgres', 'CREATE DATABASE db0');
$node->safe_psql('db0', q(
CREATE EXTENSION snowid;
CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT snowid.next_id(), n int);
));
my ($ret, $out, $err) = $node->psql('db0', 'INSERT INTO photos (n) VALUES (1)');
isnt($ret, 0, 'without a number there is no id');
like($err, qr/HINT:  As a superuser, type: ALTER DATABASE db0 SET snowid\.shard = /, 'and one is told how to set it');

$node->safe_psql('postgres', 'ALTER DATABASE db0 SET snowid.shard = 0');
$node->safe_psql('db0', 'INSERT INTO photos (n) VALUES (1)');
for my $shard (1, 2)
{
	$node->safe_psql('postgres', "CREATE DATABASE db$shard TEMPLATE db0");
	$node->safe_psql('postgres', "ALTER DATABASE db$shard SET snowid.shard = $shard");
	$node->safe_psql("db$shard", 'TRUNCATE photos');
}

# Each in its own database, and unique over all of them.
my %seen;
for my $round (1 .. 3)
{
	for my $shard (0 .. 2)
	{
		my @ids = split /\n/,
		  $node->safe_psql("db$shard", 'INSERT INTO photos (n) SELECT generate_series(1, 2000) RETURNING id');
		$seen{$_}++ for @ids;
	}
}
is(scalar(keys %seen), 18000, 'ids are unique over the databases');
for my $shard (0 .. 2)
{
	is($node->safe_psql("db$shard", 'SELECT DISTINCT snowid.id_shard(id) FROM photos'), $shard, "db$shard: ids name it");
}

# Whoever inserts needs a grant on the sequence, and cannot choose the shard.
$node->safe_psql('db1', q(
CREATE ROLE app LOGIN;
GRANT INSERT, SELECT ON photos TO app;
GRANT USAGE ON SEQUENCE snowid.id_seq TO app;
));
is($node->safe_psql('db1', q(INSERT INTO photos (n) VALUES (0) RETURNING snowid.id_shard(id)), extra_params => [ '-U', 'app' ]),
	1, 'an ordinary role inserts');
($ret, $out, $err) = $node->psql('db1', 'SET snowid.shard = 2; INSERT INTO photos (n) VALUES (0)', extra_params => [ '-U', 'app' ]);
like($err, qr/permission denied to set parameter "snowid\.shard"/, 'but cannot choose the shard');

# A dump carries the sequence, so a restored database goes on above.
$node->safe_psql('db2', q(SELECT snowid.advance('snowid.id_seq', snowid.make_id(clock_timestamp() + interval '1 hour', 0, 0));
INSERT INTO photos (n) VALUES (1)));
$node->safe_psql('postgres', 'CREATE DATABASE again');
$node->safe_psql('postgres', 'ALTER DATABASE again SET snowid.shard = 2');
my $dump = "$PostgreSQL::Test::Utils::tmp_check/db2.dump";
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, '-d', $node->connstr('db2') ], 'a database is dumped');
$node->command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('again'), $dump ], 'and restored');
is($node->safe_psql('again', 'INSERT INTO photos (n) VALUES (-1); SELECT min(id) FILTER (WHERE n < 0) > max(id) FILTER (WHERE n > 0) FROM photos'),
	't', 'it goes on above its last id');

$node->stop;
done_testing();
