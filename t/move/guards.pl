# What the tool must not do, whatever it is told: undo a move that is complete,
# since that drops the shard; open a second copy, for having been sent to the
# wrong server, or for a journal that was emptied; tell others its secrets; run
# others' code.
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
my $c = move_node('c');
$_->start for $a, $b, $c;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b, $c;
my $s = 'insta5';		# each subject begins with shard 5 on a, and nothing on b

# Before the decision, when it is made, and when the shard is open.
subtest 'the wrong server' => sub {
	fresh_shard($a, $b);
	hold_and_kill($b, 'schema', 0, 'move', $a, $b);
	moves_ok($a, $c, 5, [$_], 2, "$_ with the wrong server", qr/with another server/) for 'abort', 'move';
	moves_ok($c, $b, 5, ['abort'], 2, 'and the other way round', qr/with another server/);
	hold_and_kill($b, 'open', 1, 'move', $a, $b);
	moves_ok($a, $c, 5, ['abort'], 2, 'when it is decided, too', qr/with another server/);
	is(sqlstate($a, "INSERT INTO $s.users (name) VALUES ('guard')"), 'SN001', 'and it stays closed');
	hold_and_kill($a, 'moved', 0, 'move', $a, $b);
	moves_ok($a, $c, 5, ['abort'], 2, 'when it is open, too', qr/with another server/);
	lives_on_ok($b, $a, 'open');
	moves_ok($a, $b, 5, [], 0, 'the move goes on');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
};

# A journal that somebody has emptied says nothing about whether it is open.
subtest 'an emptied journal' => sub {
	fresh_shard($a, $b);
	hold_and_kill($b, 'open', 1, 'move', $a, $b);
	$b->safe_psql('postgres', 'CREATE TABLE kept AS SELECT * FROM snowid.moves; DELETE FROM snowid.moves');
	moves_ok($a, $b, 5, ['abort'], 3, 'a target that has forgotten', qr/has no row of it/);
	is(sqlstate($a, "INSERT INTO $s.users (name) VALUES ('guard')"), 'SN001', 'and it stays closed');
	$b->safe_psql('postgres', 'INSERT INTO snowid.moves SELECT * FROM kept; DROP TABLE kept');
	moves_ok($a, $b, 5, [], 0, 'the move goes on');
	lives_on_ok($b, $a, 'after all');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
};

# Rights on the shard are definitions, too.
subtest 'row security and grants' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	$a->safe_psql('postgres', "ALTER TABLE $s.users ENABLE ROW LEVEL SECURITY");
	moves_ok($a, $b, 5, [], 1, 'row security', qr/definitions of shard 5 have changed/);
	$a->safe_psql('postgres', "ALTER TABLE $s.users DISABLE ROW LEVEL SECURITY; CREATE ROLE other");
	$a->safe_psql('postgres', "GRANT USAGE ON SCHEMA $s TO other");
	moves_ok($a, $b, 5, [], 1, 'a grant on the schema', qr/definitions of shard 5 have changed/);
	$a->safe_psql('postgres', "REVOKE USAGE ON SCHEMA $s FROM other");
	moves_ok($a, $b, 5, ['abort'], 0, 'aborted');
};

# No secret is told, and no path of this machine's.
subtest 'secrets' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied', '--source-for-target', $a->connstr('postgres') . q{ sslpassword='my secret' password=hidden} ],
		0, 'with secrets');
	unlike($b->safe_psql('postgres', 'SELECT subconninfo FROM pg_subscription'), qr/secret|hidden/, 'they are not kept');
	moves_ok($a, $b, 5, ['abort'], 0, 'aborted');
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'without');
	unlike($b->safe_psql('postgres', 'SELECT subconninfo FROM pg_subscription'), qr/passfile|service/, 'the target has a password file of its own');
	moves_ok($a, $b, 5, ['abort'], 0, 'aborted');
};

# All columns are compared, whatever they are called.
subtest 'a column called t' => sub {
	fresh_shard($a, $b);
	$a->safe_psql('postgres', "CREATE TABLE $s.odd (id bigint PRIMARY KEY, t text, x int); INSERT INTO $s.odd VALUES (1, 'same', 1)");
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	$b->safe_psql('postgres', "SET session_replication_role = replica; UPDATE $s.odd SET x = 2");
	moves_ok($a, $b, 5, [ '--verify', 'checksums' ], 1, 'a column called t', qr/table "odd" differs/);
	moves_ok($a, $b, 5, ['abort'], 0, 'aborted');
};

# The checksum of a table runs nobody's code.
subtest 'a cast' => sub {
	fresh_shard($a, $b);
	$a->safe_psql('postgres', qq{
CREATE FUNCTION $s.show($s.users) RETURNS text LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''taken over by %'', current_user; END';
CREATE CAST ($s.users AS text) WITH FUNCTION $s.show($s.users)});
	moves_ok($a, $b, 5, [ '--verify', 'checksums' ], 0, 'a cast is not used');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
};

# All has its name and its text in both.
subtest 'two encodings' => sub {
	$a->safe_psql('postgres', q{CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0});
	$b->safe_psql('postgres', q{CREATE DATABASE utf ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0});
	$a->safe_psql('latin', qq{
SET client_encoding = 'UTF8';
CREATE EXTENSION snowid;
SELECT snowid.create_shard(7, 'gr\xc3\xb6\xc3\x9fe');
CREATE TABLE "gr\xc3\xb6\xc3\x9fe"."\xc3\xa4%s" (id bigint PRIMARY KEY, t text DEFAULT '\xc3\xbc');
INSERT INTO "gr\xc3\xb6\xc3\x9fe"."\xc3\xa4%s" VALUES (1)});
	$b->safe_psql('utf', 'CREATE EXTENSION snowid');
	for ([ '--verify', 'checksums' ], ['finish'])
	{
		my $said = '';
		IPC::Run::run([ 'snowid-move', @$_, '--shard', 7, '--from', $a->connstr('latin'), '--to', $b->connstr('utf') ], '>&', \$said);
		is($? >> 8, 0, "two encodings: @$_") or diag $said;
	}
	is($b->safe_psql('utf', qq{INSERT INTO "gr\xc3\xb6\xc3\x9fe"."\xc3\xa4%s" VALUES (2); SELECT string_agg(t, ' ') FROM "gr\xc3\xb6\xc3\x9fe"."\xc3\xa4%s"}),
		"\xc3\xbc \xc3\xbc", 'all has arrived');
};

done_testing();
