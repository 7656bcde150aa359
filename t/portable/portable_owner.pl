# The portable edition where a managed server has it: installed by the owner of
# a database, or by a master user, neither of whom is a superuser.  What they may do
# then, and what others must be granted.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use EachTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = new_node('owner');
$node->start;
$node->safe_psql('postgres', q{
CREATE ROLE owner LOGIN;
CREATE ROLE writer LOGIN;
});

# How sqlstate() connects.
sub as { my ($user, $database) = @_; return (dbname => $database, extra_params => [ '-U', $user ]); }

subtest 'an owner' => sub {
	portable_database($node, 'app', 'owner');
	my @owner = as('owner', 'app');

	is(sqlstate($node, q{
CALL snowid.create_shards(5, 6, ddl => 'CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id(), who text)');
INSERT INTO insta5.photos (who) SELECT 'owner' FROM generate_series(1, 3000);
INSERT INTO insta6.photos (who) SELECT 'owner' FROM generate_series(1, 3000);
SELECT snowid.fence_shard(6);}, @owner), '', 'makes shards and rows');
	is(sqlstate($node, q{INSERT INTO insta6.photos DEFAULT VALUES}, @owner), 'SN002', 'closes one');
	is(sqlstate($node, q{SELECT snowid.next_id(6, 'insta6.id_seq')}, @owner), 'SN002', 'and its ids');
	is(sqlstate($node, q{SELECT snowid.unfence_shard(6); INSERT INTO insta6.photos DEFAULT VALUES}, @owner), '',
		'and opens it');

	# The snippet, in place.
	is(sqlstate($node, snippet('old', 'table_id_seq', 7) . q{
CREATE TABLE old.t (id bigint PRIMARY KEY DEFAULT old.next_id());
INSERT INTO old.t SELECT FROM generate_series(1, 100);
SELECT snowid.adopt_shard(7, 'old');
INSERT INTO old.t SELECT FROM generate_series(1, 100);}, @owner), '', 'and takes over the snippet');
};

subtest 'a writer' => sub {
	portable_database($node, 'written', 'owner');
	my @owner = as('owner', 'written');
	my @writer = as('writer', 'written');
	my $insert = q{INSERT INTO insta5.photos (who) VALUES ('writer')};

	is(sqlstate($node, q{
CALL snowid.create_shards(5, 6, ddl => 'CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id(), who text)');
GRANT USAGE ON SCHEMA insta5, insta6 TO writer;
GRANT INSERT ON insta5.photos TO writer;
GRANT USAGE ON SEQUENCE insta5.id_seq TO writer;}, @owner), '', 'gets USAGE');
	is(sqlstate($node, $insert, @writer), '42501', 'USAGE is not enough');
	is(sqlstate($node, 'ALTER FUNCTION insta5.next_id() SECURITY DEFINER SET search_path = pg_catalog, pg_temp', @owner), '', 'unless next_id() of the shard');
	is(sqlstate($node, $insert, @writer), '', 'runs as its owner');
	is(sqlstate($node, q{SELECT setval('insta5.id_seq', 1)}, @writer), '42501', 'then a writer cannot set the sequence');
	is(sqlstate($node, q{SELECT snowid.next_id(6, 'insta6.id_seq')}, @writer), '42501', 'or use that of another shard');
	is(sqlstate($node, q{
GRANT UPDATE ON SEQUENCE insta5.id_seq TO writer;
ALTER FUNCTION insta5.next_id() SECURITY INVOKER RESET ALL}, @owner), '', 'or else UPDATE');
	is(sqlstate($node, $insert, @writer), '', 'is enough');
};

# What the master user of a managed server has: much, but no superuser, nor the
# database.
subtest 'a master user' => sub {
	$node->safe_psql('postgres', q{
CREATE ROLE master LOGIN CREATEROLE CREATEDB;
GRANT pg_monitor, pg_signal_backend TO master;
CREATE DATABASE managed;
GRANT CREATE ON DATABASE managed TO master;});
	$node->command_ok([ 'psql', '-X', '-q', '-U', 'master', '-d', 'managed', '-f', portable_file('sql') ], 'installs it');
	is(sqlstate($node, q{
SELECT snowid.create_shard(5);
SELECT insta5.next_id() < insta5.next_id();
SELECT snowid.safe_upper_id('insta5.id_seq');
SELECT snowid.drop_shard(5);
DROP SCHEMA snowid, snowid_internal CASCADE;}, as('master', 'managed')), '', 'uses it, and removes it');
};

# Whoever calls the functions trusts who installed them, and so does snowid-each, wherever a
# shard calls them: but no other function of his.
subtest 'a deployer' => sub {
	portable_database($node, 'deployed', 'owner');
	my $file = script_file(q{INSERT INTO photos DEFAULT VALUES});
	my $connection = $node->connstr('deployed');

	my $superuser = $node->safe_psql('postgres', 'SELECT current_user');

	$node->safe_psql('deployed', q{
CREATE ROLE deployer LOGIN;
GRANT CREATE ON DATABASE deployed TO deployer;
GRANT INSERT, UPDATE, DELETE ON snowid.shard_registry TO deployer});
	is(sqlstate($node, q{CREATE FUNCTION public.hers() RETURNS int LANGUAGE sql AS 'SELECT 1'}, as('owner', 'deployed')), '', 'the installer has other functions');
	for ([ 'deployer', 5 ], [ $superuser, 6 ])
	{
		my ($role, $shard) = @$_;
		my @run = ('--registry', "$connection user=$role options='-c search_path=snowid'", '--shard', $shard, '--file', $file);

		is(sqlstate($node, qq{
SELECT snowid.create_shard($shard);
CREATE TABLE insta$shard.photos (id bigint PRIMARY KEY);
SELECT snowid.set_default('insta$shard.photos', own_sequence => true, guard => true), snowid_internal.prepare_table('insta$shard.photos')}, as($role, 'deployed')),
			'', "$role makes a shard");
		my ($code, $said) = snowid_each(@run, '--name', 'calls ours');
		is($code, 0, '... and runs a script there') or diag $said;
		is(sqlstate($node, "ALTER TABLE insta$shard.photos ADD n int DEFAULT public.hers()", as($role, 'deployed')), '', '... and calls one of the others');
		($code, $said) = snowid_each(@run, '--name', 'calls hers');
		is($code, 1, '... where none runs then');
		like($said, qr/of another role: owner, who owns function public\.hers\(\); connect/, '... as it says');
	}
};

$node->stop;
done_testing();
