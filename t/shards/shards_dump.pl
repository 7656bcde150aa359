# A dump and restore of a database with shards: every shard goes on above its
# last id, and the registry is there, all of it.
use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;

$node->safe_psql('postgres', 'CREATE DATABASE source');
$node->safe_psql('source', q(
CREATE EXTENSION snowid;
CREATE ROLE maker;
GRANT INSERT, UPDATE, DELETE ON snowid.shard_registry TO maker;
CALL snowid.create_shards(0, 9, ddl => $$
	CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id(), n int);
	CREATE TABLE likes (id bigint PRIMARY KEY, n int);
	SELECT snowid.set_default('likes', own_sequence => true, guard => true);
	INSERT INTO photos (n) SELECT generate_series(1, 100);
	INSERT INTO likes (n) SELECT generate_series(1, 100);
$$);
-- an hour ahead, so that only the sequence's state keeps ids above
CALL snowid.for_each_shard($$
	SELECT snowid.advance('id_seq', snowid.make_id(clock_timestamp() + interval '1 hour', 0, 0));
	SELECT snowid.advance('likes_id_seq', snowid.make_id(clock_timestamp() + interval '1 hour', 0, 0));
	INSERT INTO photos (n) VALUES (0);
	INSERT INTO likes (n) VALUES (0);
$$);
SELECT snowid.create_shard(10, 'Own "epoch"', '2026-01-01');
CREATE TABLE "Own ""epoch""".photos (id bigint PRIMARY KEY DEFAULT "Own ""epoch""".next_id(), n int);
INSERT INTO "Own ""epoch""".photos (n) VALUES (0);
ALTER SCHEMA insta9 RENAME TO insta9_moved;
UPDATE snowid.shard_registry SET home = 'host=b dbname=app' WHERE shard = 9;
));

my $registry = 'SELECT * FROM snowid.shard_registry ORDER BY shard';
my $wanted = $node->safe_psql('source', $registry);
my $dump = "$PostgreSQL::Test::Utils::tmp_check/dump";

for my $format ('plain', 'custom', 'directory')
{
	$node->safe_psql('postgres', "CREATE DATABASE restored_$format");
	my @to = ('-d', $node->connstr("restored_$format"));
	$node->command_ok([ 'pg_dump', '-F', $format, '-f', "$dump.$format", '-d', $node->connstr('source') ],
		"$format: dumped");
	$node->command_ok(
		$format eq 'plain'
		? [ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', "$dump.$format", @to ]
		: [ 'pg_restore', '--exit-on-error', ($format eq 'directory' ? ('-j', 2) : ()), @to, "$dump.$format" ],
		"$format: restored");

	is($node->safe_psql("restored_$format", $registry), $wanted, "$format: the registry is the same");
	$node->safe_psql("restored_$format", q(
CREATE TABLE public.result (schema name, above boolean, right_shard boolean);
DELETE FROM snowid.shard_registry WHERE shard = 10;
CALL snowid.for_each_shard($$
	INSERT INTO photos (n) VALUES (-1);
	INSERT INTO likes (n) VALUES (-1);
	INSERT INTO public.result
	SELECT current_schema,
		(SELECT max(id) FILTER (WHERE n >= 0) < max(id) FILTER (WHERE n < 0) FROM photos) AND
		(SELECT max(id) FILTER (WHERE n >= 0) < max(id) FILTER (WHERE n < 0) FROM likes),
		(SELECT 'insta' || snowid.id_shard(max(id)) = current_schema FROM likes)
$$);
INSERT INTO "Own ""epoch""".photos (n) VALUES (-1);
));
	is($node->safe_psql("restored_$format", 'SELECT count(*) FROM result WHERE above AND right_shard'),
		9, "$format: every shard that lives here goes on above its last id");
	is( $node->safe_psql("restored_$format",
			q(SELECT min(id) FILTER (WHERE n = -1) > min(id) FILTER (WHERE n = 0) FROM "Own ""epoch""".photos)),
		't', "$format: so does one with its own epoch");
	is( $node->safe_psql("restored_$format",
			q(SELECT count(*) FROM pg_constraint WHERE conname = 'likes_id_shard_check' AND convalidated)),
		10, "$format: guards are there");
	is( $node->safe_psql("restored_$format",
			q(SELECT has_table_privilege('maker', 'snowid.shard_registry', 'INSERT'))),
		't', "$format: grants on the registry are there");
	is( $node->safe_psql("restored_$format", 'SELECT snowid.create_shard(20)'),
		'insta20', "$format: and new shards can be made");
}

# One shard alone, as a move takes it.
$node->safe_psql('postgres', 'CREATE DATABASE one');
$node->safe_psql('one', 'CREATE EXTENSION snowid');
$node->command_ok([ 'pg_dump', '-n', 'insta3', '-f', "$dump.one", '-d', $node->connstr('source') ], 'one shard is dumped');
$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', "$dump.one", '-d', $node->connstr('one') ], 'and restored');
is( $node->safe_psql('one', q(
INSERT INTO insta3.photos (n) VALUES (-1);
SELECT max(id) FILTER (WHERE n = -1) > max(id) FILTER (WHERE n >= 0) FROM insta3.photos)),
	't', 'it goes on above its last id');

$node->stop;
done_testing();
