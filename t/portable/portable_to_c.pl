# A database goes over from the portable edition to the C edition, and back, in
# dumps, as doc/portable.md says.  Its ids go on above those of before, though the
# clock of the new server is behind.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = new_node('to_c');
my $dir = PostgreSQL::Test::Utils::tempdir();
start_with_clock($node, '+0');
$node->safe_psql('postgres', 'CREATE ROLE owner LOGIN');
portable_database($node, 'app', 'owner');
is(sqlstate($node, q{
CALL snowid.create_shards(5, 6, ddl => 'CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id(), who text)');
} . snippet('old', 'table_id_seq', 7) . q{
CREATE TABLE old.t (id bigint PRIMARY KEY DEFAULT old.next_id());
SELECT snowid.adopt_shard(7, 'old');}, dbname => 'app', extra_params => [ '-U', 'owner' ]), '', 'shards of the portable edition');

my $rises = join ', ', map { "(SELECT max(id) FROM $_->[0]) < $_->[1]" }
  [ 'insta5.photos', 'insta5.next_id()' ], [ 'insta6.photos', 'insta6.next_id()' ], [ 'old.t', 'old.next_id()' ];
$node->safe_psql('app', 'SET snowid.shard = 9; SELECT snowid.next_id()');
my $database_id = $node->safe_psql('app', 'SET snowid.shard = 9; SELECT snowid.next_id()');
$node->safe_psql('app', "INSERT INTO $_ SELECT FROM generate_series(1, 5000)") for 'insta5.photos', 'insta6.photos', 'old.t';
set_clock($node, '-3600');

$node->safe_psql('postgres', 'CREATE DATABASE in_c OWNER owner');
is(sqlstate($node, 'CREATE EXTENSION snowid', dbname => 'in_c', extra_params => [ '-U', 'owner' ]), '', 'the C edition');
$node->command_ok([ 'pg_dump', '-Fc', '-N', 'snowid', '-N', 'snowid_internal', '-f', "$dir/all", 'app' ], 'a dump without snowid');
$node->command_ok([ 'pg_dump', '-Fc', '-a', '-t', 'snowid.shard_registry', '-t', 'snowid.id_seq', '-f', "$dir/state", 'app' ],
	'and one of its state');
$node->command_ok([ 'pg_restore', '-e', '-d', 'in_c', "$dir/$_" ], "restored: $_") for 'all', 'state';
is($node->safe_psql('in_c', "SELECT $rises"), 't|t|t', 'the C edition goes on above the ids of the portable one');
cmp_ok($node->safe_psql('in_c', 'SET snowid.shard = 9; SELECT snowid.next_id()'), '>', $database_id, 'of all sequences');
is($node->safe_psql('in_c', q{SELECT count(*) FROM snowid.shards WHERE lives = 'here'}), '3', 'all shards are there');
is($node->safe_psql('in_c', q{SELECT count(*) FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
WHERE l.lanname = 'c' AND p.proname = 'next_id'}), '3', 'and it is C that makes the ids');

# And back, from ids beyond what the sequences, which were ahead of the clock, have
# logged for themselves.
set_clock($node, '+10');
$node->safe_psql('in_c', "INSERT INTO $_ SELECT FROM generate_series(1, 5000)") for 'insta5.photos', 'insta6.photos', 'old.t';
$database_id = $node->safe_psql('in_c', 'SET snowid.shard = 9; SELECT snowid.next_id()');
# After a crash, pages are behind.  The dump carries the clock.
crash($node);
start_with_clock($node, '-3600');
is($node->safe_psql('in_c', 'SELECT last_value < (SELECT max(id) FROM insta5.photos) >> 23 << 10 FROM insta5.id_seq'),
	't', 'a page of the C edition is behind');
portable_database($node, 'back', 'owner');
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dir/c", 'in_c' ], 'a dump of the C edition');
append_to_file("$dir/list", join '', grep { !/EXTENSION/ } `pg_restore -l '$dir/c'`);
$node->command_ok([ 'pg_restore', '-e', '-L', "$dir/list", '-d', 'back', "$dir/c" ], 'restored where the portable one is');
is($node->safe_psql('back', "SELECT $rises"), 't|t|t', 'the portable edition goes on above the ids of the C one');
cmp_ok($node->safe_psql('back', 'SET snowid.shard = 9; SELECT snowid.next_id()'), '>', $database_id, 'of all sequences');
is($node->safe_psql('back', q{SELECT count(*) FROM snowid.shards WHERE lives = 'here'}), '3', 'with all shards');

$node->stop;
done_testing();
