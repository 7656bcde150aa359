# What the tool must not do, whatever it is told, and when: undo a move that is
# complete, since that drops the shard; open a second copy, for having been
# sent to the wrong server; tell others its secrets; run others' code.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b');
my $c = move_node('c');
$_->start for $a, $b, $c;
my $s = make_shard($a, 5, 'insta5');
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $b, $c;

# The shard can be written on this server, and not on the other one.
sub lives_ok
{
	my ($here, $there, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(sqlstate($here, "INSERT INTO $s.users (name) VALUES ('guard')"), '', "$name: it is written");
	isnt(sqlstate($there, "INSERT INTO $s.users (name) VALUES ('guard')"), '', "$name: and not there");
	return;
}

# A way back that cannot be finished leaves the shard where it is.
moves_ok($a, $b, 5, ['--reverse'], 0, 'moved');
my $subscription = $a->safe_psql('postgres', 'SELECT subname FROM pg_subscription');
$a->safe_psql('postgres', "ALTER SUBSCRIPTION $subscription DISABLE");
$b->safe_psql('postgres', 'CREATE TABLE big AS SELECT repeat(md5(i::text), 10) FROM generate_series(1, 20000) i');
moves_ok($a, $b, 5, [ 'back', '--max-wal', '2MB' ], 1, 'back, with too much log', qr/stays where it is/);
lives_ok($b, $a, 'too much log');
$a->safe_psql('postgres', "ALTER SUBSCRIPTION $subscription ENABLE");

my $reader = $a->background_psql('postgres');
$reader->query_safe("BEGIN; SELECT count(*) FROM $s.users");
moves_ok($a, $b, 5, [ 'back', '--retries', 0 ], 1, 'back, with a reader in the way', qr/could not lock/);
$reader->query_safe('COMMIT');
$reader->quit;
moves_ok($a, $b, 5, ['status'], 0, 'status', qr/type snowid-move back to go on, or abort/);
moves_ok($a, $b, 5, [], 1, 'no move goes on from there', qr/a way back of shard 5 was begun/);
lives_ok($b, $a, 'a way back that was begun');
moves_ok($a, $b, 5, ['finish'], 1, 'no finish either', qr/not complete/);
moves_ok($a, $b, 5, ['abort'], 0, 'but an abort', qr/way back is undone/);
lives_ok($b, $a, 'an abort of the way back');

# ... which can be stopped half-way, too.
hold_and_kill($a, 'open', 1, 'back', $a, $b);
hold_and_kill($b, 'open', 0, 'abort', $a, $b);
moves_ok($a, $b, 5, ['status'], 0, 'status', qr/an abort of the way back was begun/);
moves_ok($a, $b, 5, ['finish'], 3, 'no finish, half-way through an abort');
moves_ok($a, $b, 5, ['back'], 3, 'no way back', qr/Type: snowid-move abort/);
moves_ok($a, $b, 5, ['abort'], 0, 'the abort goes on', qr/way back is undone/);
lives_ok($b, $a, 'an abort in two halves');

# What a shard was closed with stands in the journal, which finish drops.
$b->safe_psql('postgres', 'SELECT snowid.fence_shard(5)');
moves_ok($a, $b, 5, ['finish'], 1, 'no finish while it is closed by hand', qr/unfence_shard/);
$b->safe_psql('postgres', 'SELECT snowid.unfence_shard(5)');
moves_ok($a, $b, 5, ['finish'], 0, 'finished');
lives_ok($b, $a, 'finished');
nothing_left_ok($_, 'finished') for $a, $b;

# The wrong server.
hold_and_kill($a, 'schema', 0, 'move', $b, $a);
moves_ok($b, $c, 5, [$_], 2, "$_ with the wrong server", qr/with another server/) for 'abort', 'move';
moves_ok($c, $a, 5, ['abort'], 2, 'and the other way round', qr/with another server/);
my ($source, $target) = ($b, $a);
hold_and_kill($target, 'open', 1, 'move', $source, $target);
moves_ok($source, $c, 5, ['abort'], 2, 'when it is decided, too', qr/with another server/);
is(sqlstate($source, "INSERT INTO $s.users (name) VALUES ('guard')"), 'SN001', 'and it stays closed');

# A journal that somebody has emptied says nothing about whether it is open.
$target->safe_psql('postgres', 'CREATE TABLE kept AS SELECT * FROM snowid.moves; DELETE FROM snowid.moves');
moves_ok($source, $target, 5, ['abort'], 3, 'a target that has forgotten', qr/has no row for it/);
is(sqlstate($source, "INSERT INTO $s.users (name) VALUES ('guard')"), 'SN001', 'and it stays closed');
$target->safe_psql('postgres', 'INSERT INTO snowid.moves SELECT * FROM kept; DROP TABLE kept');
moves_ok($source, $target, 5, [], 0, 'the move goes on');
lives_ok($target, $source, 'after all');
moves_ok($source, $target, 5, ['finish'], 0, 'finished');

# When it is open, and the source has not been cleaned up yet.
($source, $target) = ($target, $source);
hold_and_kill($source, 'moved', 0, 'move', $source, $target);
moves_ok($source, $c, 5, ['abort'], 2, 'when it is open, too', qr/with another server/);
lives_ok($target, $source, 'open');
moves_ok($source, $target, 5, [], 0, 'the move goes on');

# A table that was made after all had been copied has its rows nowhere else.
$source->safe_psql('postgres', 'CREATE TABLE insta5_moved.late AS SELECT 1');
moves_ok($source, $target, 5, ['finish'], 1, 'rows that are nowhere else', qr/insta5_moved\.late/);
$source->safe_psql('postgres', 'DROP TABLE insta5_moved.late');
moves_ok($source, $target, 5, ['finish'], 0, 'finished');
($a, $b) = ($target, $source);

# Nor is one moved that is being made.
moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
my $maker = $a->background_psql('postgres');
$maker->query_safe("BEGIN; CREATE TABLE $s.late (id bigint PRIMARY KEY); INSERT INTO $s.late VALUES (1)");
moves_ok($a, $b, 5, [ '--retries', 1 ], 1, 'a table that is being made', qr/another transaction is creating/);
$maker->query_safe('ROLLBACK');

# ... or one that is begun just after the decision: it holds up the renaming,
# but not for ever, and is not dropped.
my $hold = hold_at_step($b, 'open', 1);
my $said = '';
my $tool = IPC::Run::start([ move_command($a, $b, 5, '--pause-limit', 60000, '--lock-timeout', 60000) ], '>&', \$said);
wait_until_held($b) or die 'does not get there';
$maker->query_safe("BEGIN; CREATE TABLE $s.late (id bigint PRIMARY KEY); INSERT INTO $s.late VALUES (1)");
$hold->quit;
$tool->finish;
is($? >> 8, 3, 'a table that is begun just after the decision') or diag $said;
like($said, qr/another transaction is creating/, 'it is told why');
let_go_steps($b);
$maker->query_safe('COMMIT');
moves_ok($a, $b, 5, [], 0, 'the same command goes on');
moves_ok($a, $b, 5, ['finish'], 1, 'its rows are not dropped', qr/insta5_moved\.late/);
$a->safe_psql('postgres', 'DROP TABLE insta5_moved.late');

# ... or one that is being made while the copy is dropped.
$maker->query_safe('BEGIN; CREATE TABLE insta5_moved.late AS SELECT 1');
$tool = IPC::Run::start([ move_command($a, $b, 5, 'finish') ], '>&', \$said);
$a->poll_query_until('postgres', q{
SELECT EXISTS (SELECT FROM pg_locks WHERE classid = 'pg_namespace'::regclass AND NOT granted)})
  or die 'does not wait';
$maker->query_safe('COMMIT');
$maker->quit;
$tool->finish;
is($? >> 8, 1, 'a table that is begun before the copy is dropped') or diag $said;
like($said, qr/insta5_moved\.late/, 'its rows are not dropped');
is($a->safe_psql('postgres', 'TABLE insta5_moved.late'), '1', 'they are there');
$a->safe_psql('postgres', 'DROP TABLE insta5_moved.late');
moves_ok($a, $b, 5, ['finish'], 0, 'finished');
($a, $b) = ($b, $a);
moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');

# Row security is one of the definitions.
$a->safe_psql('postgres', "ALTER TABLE $s.users ENABLE ROW LEVEL SECURITY");
moves_ok($a, $b, 5, [], 1, 'row security', qr/definitions of the shard have changed/);
$a->safe_psql('postgres', "ALTER TABLE $s.users DISABLE ROW LEVEL SECURITY; CREATE ROLE other");
$a->safe_psql('postgres', "GRANT USAGE ON SCHEMA $s TO other");
moves_ok($a, $b, 5, [], 1, 'a grant on the schema', qr/definitions of the shard have changed/);
$a->safe_psql('postgres', "REVOKE USAGE ON SCHEMA $s FROM other");
moves_ok($a, $b, 5, ['abort'], 0, 'aborted');

# No secret is told, and no path of this machine's.
moves_ok($a, $b, 5, [ '--stop-after', 'copied', '--source-for-target', $a->connstr('postgres') . q{ sslpassword='my secret' password=hidden} ],
	0, 'with secrets');
unlike($b->safe_psql('postgres', 'SELECT subconninfo FROM pg_subscription'), qr/secret|hidden/, 'they are not kept');
moves_ok($a, $b, 5, ['abort'], 0, 'aborted');
moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'without');
unlike($b->safe_psql('postgres', 'SELECT subconninfo FROM pg_subscription'), qr/passfile|service/, 'the target has a password file of its own');

# Slots of the copy that the target has left behind, without it: its own, and no
# other target's.
my $slots = $a->safe_psql('postgres', q{SELECT replace(details ->> 'table_slots', '\', '') FROM snowid.moves});
my $other = ($slots =~ s/_\d+$/_1/r) =~ s/%/1/r;
$a->safe_psql('postgres', "SELECT pg_create_logical_replication_slot('$_', 'pgoutput')") for $slots =~ s/%/1/r, $other;
$b->stop;
moves_ok($a, $b, 5, ['abort'], 0, 'aborted without the target');
is($a->safe_psql('postgres', 'SELECT slot_name FROM pg_replication_slots'), $other, 'its slots are gone');
$a->safe_psql('postgres', "SELECT pg_drop_replication_slot('$other')");
$b->start;
moves_ok($a, $b, 5, ['abort'], 0, 'aborted there');
moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');

# What was not asked for at the beginning is not there.
moves_ok($a, $b, 5, ['--reverse'], 1, 'a way back that comes late', qr/--reverse/);
moves_ok($a, $b, 5, ['abort'], 0, 'aborted');

# All columns are compared, whatever they are called.
$a->safe_psql('postgres', "CREATE TABLE $s.odd (id bigint PRIMARY KEY, t text, x int); INSERT INTO $s.odd VALUES (1, 'same', 1)");
moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
$b->safe_psql('postgres', "SET session_replication_role = replica; UPDATE $s.odd SET x = 2");
moves_ok($a, $b, 5, [ '--verify', 'checksums' ], 1, 'a column called t', qr/table "odd" differs/);
moves_ok($a, $b, 5, ['abort'], 0, 'aborted');

# The checksum of a table runs nobody's code.
$a->safe_psql('postgres', qq{
CREATE FUNCTION $s.show($s.users) RETURNS text LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''taken over by %'', current_user; END';
CREATE CAST ($s.users AS text) WITH FUNCTION $s.show($s.users)});
moves_ok($a, $b, 5, [ '--verify', 'checksums' ], 0, 'a cast is not used');
moves_ok($a, $b, 5, ['finish'], 0, 'finished');

# Two encodings.
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

done_testing();
