# Shards are made like one that is there, ledger included, and do not fall behind;
# and it is told which shards' definitions are not as those of the others.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use EachTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my ($a, $b) = each_pair();

each_ok($a, 0, qr/20 shards done/, '--name', 'all', '--file', script_file(q{
CREATE TABLE users (id bigint PRIMARY KEY, other int DEFAULT 15);
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE FUNCTION f(m mood) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE VIEW v AS SELECT * FROM photos JOIN users USING (id);
CREATE TABLE likes (id bigint, m mood) PARTITION BY HASH (id);
CREATE TABLE likes_0 PARTITION OF likes FOR VALUES WITH (MODULUS 1, REMAINDER 0);
COMMENT ON TABLE likes IS 'who likes what';
SELECT snowid.set_default('users', guard => true), snowid.set_default('likes', own_sequence => true, guard => true)}));
each_ok($a, 0, qr/^$/, 'diff');

subtest 'create --like' => sub {
	my $state = q{SELECT n.oid, nspname, string_agg(c.oid || relname, ',' ORDER BY c.oid) FROM pg_namespace n JOIN pg_class c ON relnamespace = n.oid
WHERE nspname = 'insta15' GROUP BY 1};
	my $before = $b->safe_psql('postgres', $state);
	each_ok($a, 0, qr/shard 20 is there\n.*shard 21 is there/, 'create', '--like', 15, '--shard', '20-21');
	is($b->safe_psql('postgres', $state), $before, 'the old one is as it was');
	each_ok($a, 0, qr/^$/, 'diff');
	is($a->safe_psql('postgres', 'SELECT schema, home FROM snowid.shard_registry WHERE shard = 21'),
		$a->safe_psql('postgres', q{SELECT 'insta21', home FROM snowid.shard_registry WHERE shard = 15}), 'the registry knows where');
	is($b->safe_psql('postgres', q{
INSERT INTO insta21.photos DEFAULT VALUES;
INSERT INTO insta21.users DEFAULT VALUES RETURNING snowid.id_shard(id), other}), '21|15', 'its ids name it');
	is($b->safe_psql('postgres', 'INSERT INTO insta21.likes DEFAULT VALUES RETURNING snowid.id_shard(id)'), 21, 'of an own sequence, too');
	is(sqlstate($b, 'INSERT INTO insta21.users VALUES (snowid.make_id(now(), 15, 0))'), '23514', 'and others are refused');
	each_ok($a, 0, qr/0 shards done in .*, 22 had it/, '--name', 'all');
	each_ok($a, 0, qr/shard 21 is there/, 'create', '--like', 15, '--shard', 21);

	each_ok($a, 2, qr/the registry has another shard 5, or schema "insta5"/, 'create', '--like', 15, '--shard', 5);
	each_ok($a, 2, qr/shard 99 is not where the registry says/, 'create', '--like', 99, '--shard', 30);
	each_ok($a, 0, qr/shard 22 is there/, 'create', '--like', 15, '--shard', 22);
	each_ok($a, 2, qr/shard 2 is not where the registry says/, 'create', '--like', 2, '--shard', 23)
	  if $a->safe_psql('postgres', 'SELECT snowid.fence_shard(2)') eq '';
	$a->safe_psql('postgres', 'SELECT snowid.unfence_shard(2)');

	# One that has no ledger yet.
	$a->safe_psql('postgres', 'SELECT snowid.create_shard(40)');
	each_ok($a, 0, qr/shard 41 is there/, 'create', '--like', 40, '--shard', 41);
	each_ok($a, 0, qr/2 shards done/, '--name', 'first', '--shard', '40-41', '--file', script_file('SELECT 1'));
	$a->safe_psql('postgres', "SELECT snowid.drop_shard($_, true)") for 40, 41;
};

subtest 'diff' => sub {
	$b->safe_psql('postgres', q{
ALTER TABLE insta13.photos ADD COLUMN note text;
ALTER TABLE insta14.photos ADD COLUMN note text;
DROP VIEW insta13.v;
CREATE OR REPLACE FUNCTION insta13.f(m insta13.mood) RETURNS int LANGUAGE sql AS 'SELECT count(*) FROM insta14.users';
GRANT SELECT ON insta14.users TO PUBLIC});
	my $said = each_ok($a, 1, qr/^TABLE photos$/m, 'diff');
	like($said, qr/^      note text: 2 shards: 13-14$/m, 'a column that two have');
	like($said, qr/^VIEW v\n(  .*: 22 shards: 0-12,14-22\n)+/m, 'a view that one has not');
	like($said, qr/insta14.users.*: 1 shard: 13$/m, 'a function that names another schema');
	like($said, qr/^ACL TABLE users\n  GRANT SELECT ON TABLE users TO PUBLIC;: 1 shard: 14$/m, 'a privilege');
	like($said, qr/^definitions\n  (\w{16}: (21 shards: 0-12,15-22|1 shard: 1[34])\n  ){2}\w{16}: .*\n/m, 'and who are alike');
	unlike($said, qr/users\n.*other/, 'nothing else');
	each_ok($a, 1, qr/has failed/, 'diff', '--bindir', '/nowhere');
	each_ok($a, 1, qr/has failed/, 'create', '--bindir', '/nowhere', '--like', 0, '--shard', 30);
};

done_testing();
