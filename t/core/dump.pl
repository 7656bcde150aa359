# A dump carries the sequences, snowid.id_seq of the extension among them, so
# that ids go on above those of the dumped database; and all of it works for
# the owner of a database who is not a superuser.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = new_node('dump');
start_with_clock($node, '+0');
$node->safe_psql('postgres', q{
CREATE ROLE owner LOGIN;
CREATE ROLE other LOGIN;
CREATE DATABASE insta5 OWNER owner;
ALTER DATABASE insta5 SET snowid.shard = 5;
});
my @owner = (dbname => 'insta5', extra_params => [ '-U', 'owner' ]);
my @other = (dbname => 'insta5', extra_params => [ '-U', 'other' ]);

is(sqlstate($node, q{
CREATE EXTENSION snowid;
CREATE SEQUENCE s;
CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT snowid.next_id());
CREATE TABLE users (id bigint PRIMARY KEY DEFAULT snowid.next_id(5, 's'));
}, @owner), '', 'the owner of a database creates the extension');
is(sqlstate($node, 'INSERT INTO photos DEFAULT VALUES', @owner), '',
	'and uses next_id()');
is(sqlstate($node, 'SELECT snowid.next_id()', @other), '42501',
	'nobody else does');
is(sqlstate($node, 'GRANT USAGE ON SEQUENCE snowid.id_seq TO other',
		@owner), '', 'the owner grants it');
is(sqlstate($node, 'SELECT snowid.next_id()', @other), '',
	'and then they do');
is($node->safe_psql('insta5', q{
SET snowid.shard = 6;
SELECT snowid.id_shard(snowid.next_id())}, @owner), '5',
	'but the shard number is not for them to choose');

# Ids up to here are all in the dump.
my $insert = q{
INSERT INTO photos SELECT snowid.next_id() FROM generate_series(1, 3000);
INSERT INTO users SELECT snowid.next_id(5, 's') FROM generate_series(1, 3000);
};
my $rises = q{
SELECT (SELECT max(id) FROM photos) < snowid.next_id(),
	(SELECT max(id) FROM users) < snowid.next_id(5, 's')};
$node->safe_psql('insta5', $insert);

my $dump = $node->basedir . '/insta5.dump';
$node->command_ok([ 'pg_dump', '-Fc', '-U', 'owner', '-f', $dump, 'insta5' ],
	'the owner dumps the database');
set_clock($node, '-3600');

# The same owner restores into an empty database.
$node->safe_psql('postgres', q{
CREATE DATABASE moved OWNER owner;
ALTER DATABASE moved SET snowid.shard = 5;
});
$node->command_ok([ 'pg_restore', '-U', 'owner', '-d', 'moved', $dump ],
	'and restores it');
is($node->safe_psql('moved', $rises), 't|t',
	'ids go on above those of the dump, with the clock behind');

# The whole database, settings included, as a superuser does it.
set_clock($node, '+0');
$node->safe_psql('insta5', $insert);
$node->command_ok([ 'pg_dump', '-Fc', '-C', '-f', "$dump.all", 'insta5' ],
	'a superuser dumps the database');
$node->safe_psql('postgres', 'DROP DATABASE insta5');
set_clock($node, '-3600');
$node->command_ok([ 'pg_restore', '-C', '-d', 'postgres', "$dump.all" ],
	'and restores it after its loss');
is($node->safe_psql('insta5', $rises), 't|t',
	'ids go on above those of the dump here too');
is(sqlstate($node, 'SELECT snowid.next_id()', @other), '',
	'the grant came along');

# The extension is the superuser's now; the database's owner can do as before.
is(sqlstate($node, q{
SELECT snowid.create_shard(7);
SELECT snowid.fence_shard(7), snowid.unfence_shard(7);
SELECT snowid.drop_shard(7);
GRANT INSERT ON snowid.shard_registry TO other;
}, @owner), '', 'its owner makes and closes shards, and grants it');
$node->command_ok([ 'pg_dump', '-Fc', '-U', 'owner', '-f', $dump, 'insta5' ],
	'and dumps the database again');

# Another owner, who does not take the roles over.
$node->safe_psql('postgres', q{
CREATE ROLE another LOGIN;
CREATE DATABASE another OWNER another;
ALTER DATABASE another SET snowid.shard = 5;
});
$node->command_ok([ 'pg_restore', '-O', '-x', '-U', 'another', '-d', 'another',
		$dump ], 'another owner restores it');
my @another = (dbname => 'another', extra_params => [ '-U', 'another' ]);
is($node->safe_psql('another', $rises, @another), 't|t',
	'ids go on above those of the dump for him');
is(sqlstate($node, 'SELECT snowid.create_shard(7); SELECT snowid.drop_shard(7)',
		@another), '', 'who can make shards');
is(sqlstate($node, 'DROP TABLE photos, users; DROP EXTENSION snowid', @another),
	'', 'and drop the extension');
is($node->safe_psql('another',
		q{SELECT count(*) FROM pg_namespace WHERE nspname ~ '^snowid'}), '0',
	'with its schemas');

$node->stop;
done_testing();
