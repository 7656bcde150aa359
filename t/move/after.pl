# What comes after the cut-over: the registry for all, the way back, what others
# have made of the copy, publications, and a shard without tables.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b');
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;
my $s = 'insta5';		# each subject begins with shard 5 on a, and nothing on b

# A server that keeps the registry for all, but not all of it.
subtest 'a registry for all' => sub {
	fresh_shard($a, $b);
	$a->safe_psql('postgres', 'CREATE DATABASE registry');
	$a->safe_psql('registry', 'CREATE EXTENSION snowid');
	my $said = moves_ok($a, $b, 5, [ '--registry', $a->connstr('registry') ], 0, 'the move goes on', qr/the registry does not have shard 5/);
	my ($insert) = $said =~ /Type there: (.*)/;
	$a->safe_psql('registry', $insert);
	is($a->safe_psql('registry', 'SELECT snowid.shard_home(5)'),
		$a->safe_psql('postgres', 'SELECT snowid.shard_home(5)'), 'what it says to type helps');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
};

# There and back: each command once.
subtest 'there and back' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--reverse', '--verify=counts', '--target-for-source', $b->connstr('postgres') ], 0, 'moved');
	$b->stop;
	moves_ok($a, $b, 5, ['back'], 3, 'without the target, a way back may be half done');
	moves_ok($a, $b, 5, ['abort'], 3, '... or half undone', qr/only the other server knows whether it is on its way back/);
	$b->start;
	my $reader = $a->background_psql('postgres');
	$reader->query_safe("BEGIN; LOCK TABLE $s.users");
	moves_ok($a, $b, 5, [ 'back', '--retries', 0 ], 1, 'back, with somebody in the way', qr/could not lock/);
	$reader->query_safe('COMMIT');
	$reader->quit;
	$b->stop;
	moves_ok($a, $b, 5, ['abort'], 1, 'no abort of the way back without the target', qr/a way back was begun, and is not decided/);
	$b->start;
	moves_ok($a, $b, 5, ['back'], 0, 'back');
	moves_ok($a, $b, 5, ['back'], 0, 'and no further', qr/shard 5: back already/);
	moves_ok($a, $b, 5, [], 1, 'nor there again', qr/shard 5 cannot be moved now: back, and not finished\n.*type: snowid-move finish/);
	moves_ok($a, $b, 5, ['abort'], 1, 'nor to be undone', qr/cannot be aborted now: back, and not finished/);
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
	nothing_left_ok($_, 'finished') for $a, $b;
};

# What other schemas have made of the copy is not dropped unasked.
subtest 'what others have made of the copy' => sub {
	fresh_shard($a, $b);
	$a->safe_psql('postgres', "CREATE PUBLICATION cdc FOR TABLE $s.users, $s.photos");
	moves_ok($a, $b, 5, [], 0, 'moved', qr/publication "cdc".*type there: ALTER PUBLICATION "cdc" ADD TABLE insta5.photos, insta5.users;/s);
	$a->safe_psql('postgres', 'CREATE VIEW names AS SELECT name FROM insta5_moved.users;
	CREATE TABLE faves (id bigint REFERENCES insta5_moved.photos)');
	moves_ok($a, $b, 5, ['finish'], 1, 'a view and a foreign key on the copy',
		qr/use the copy, and would be dropped with it: constraint faves_id_fkey on table public.faves, rule _RETURN on view public.names.*--cascade/s);
	$a->safe_psql('postgres', 'DROP TABLE faves');
	moves_ok($a, $b, 5, ['finish'], 1, 'only a view', qr/view public.names/);
	moves_ok($a, $b, 5, [ 'finish', '--cascade' ], 0, 'dropped when asked');
	is($a->safe_psql('postgres', q{SELECT to_regclass('public.names') IS NULL}), 't', 'the view is gone');
	$a->safe_psql('postgres', 'DROP PUBLICATION cdc');
};

# Each kind of object by itself, since each is in a catalog of its own.
subtest 'kinds of objects of the copy' => sub {
	fresh_shard($a, $b);
	$a->safe_psql('postgres', q{
SET search_path = insta5, public;
CREATE COLLATION plain FROM "C";
CREATE FUNCTION same(int, int) RETURNS bool LANGUAGE sql IMMUTABLE RETURN $1 = $2;
CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = same);
CREATE OPERATOR CLASS ints FOR TYPE int USING hash AS OPERATOR 1 =, FUNCTION 1 hashint4(int);
CREATE OPERATOR FAMILY others USING hash;
CREATE TEXT SEARCH CONFIGURATION words (COPY = simple);
CREATE TEXT SEARCH DICTIONARY stems (TEMPLATE = simple)});
	moves_ok($a, $b, 5, [], 0, 'moved');
	$a->safe_psql('postgres', q{
SET search_path = public, insta5_moved;
CREATE TABLE public.collated (name text COLLATE plain);
CREATE TABLE public.compared (n int CHECK (n === 1));
CREATE TABLE public.hashed (n int);
CREATE INDEX hashed_n ON public.hashed USING hash (n ints);
CREATE OPERATOR CLASS public.own FOR TYPE oid USING hash FAMILY others AS OPERATOR 1 =, FUNCTION 1 hashoid(oid);
CREATE TABLE public.searched (body text);
CREATE INDEX searched_body ON public.searched USING gin (to_tsvector('words', body));
CREATE TEXT SEARCH CONFIGURATION public.own (COPY = simple);
ALTER TEXT SEARCH CONFIGURATION public.own ALTER MAPPING FOR word WITH stems;
CREATE TABLE public.child (CHECK (id > 0)) INHERITS (users)});
	my $said = moves_ok($a, $b, 5, ['finish'], 1, 'used by all of them', qr/use the copy, and would be dropped with it/);
	like($said, qr/[:,] \Q$_\E(,|$)/m, "named: $_")
	  for 'table public.collated', 'constraint compared_n_check on table public.compared', 'index public.hashed_n',
	  'operator class public.own for access method hash', 'index public.searched_body',
	  'text search configuration public.own', 'table public.child';
	$a->safe_psql('postgres', q{
DROP TABLE collated, compared, hashed, searched, child;
DROP OPERATOR CLASS own USING hash;
DROP TEXT SEARCH CONFIGURATION own});
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
};

# A name that has no room for more is clipped.
subtest 'a schema with a long name' => sub {
	my $long = ('x' x 61) . 'é';
	drop_shards($a, $b);
	make_shard($a, 5, $long);
	moves_ok($a, $b, 5, [], 0, 'moved', qr/the closed copy at .* is now schema "x{57}_moved"$/m);
	is($a->safe_psql('postgres', qq{SELECT count(*) FROM pg_namespace WHERE nspname = '$long'}), 0, 'nobody takes the copy for the shard');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
	nothing_left_ok($_, 'a long name') for $a, $b;
};

# A shard without tables.
subtest 'an empty shard' => sub {
	fresh_shard($a, $b);
	$a->safe_psql('postgres', 'SELECT snowid.create_shard(6)');
	command_ok([ 'snowid-move', '--shard', 6, '--from', $a->connstr('postgres') . ' password=unused', '--to', $b->connstr('postgres') ],
		'an empty shard, with a password');
	moves_ok($a, $b, 6, ['finish'], 0, 'finished');
	is($b->safe_psql('postgres', 'SELECT snowid.id_shard(insta6.next_id())'), 6, 'it gives ids there');
};

done_testing();
