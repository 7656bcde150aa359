# The way back: replication from the new server keeps the copy on the old one
# current, so that `back` returns what was written since, under load, with ids
# that go on rising.  A third server, which keeps the registry for all, is told
# of both.
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
my $s = make_shard($a, 5, 'insta5');
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $b, $c;
$c->safe_psql('postgres', q{INSERT INTO snowid.shard_registry (shard, schema, home) VALUES (5, 'insta5', 'host=a')});

my $home_a = sprintf 'host=%s port=%s dbname=postgres', $a->host, $a->port;
my $home_b = sprintf 'host=%s port=%s dbname=postgres', $b->host, $b->port;
my @registry = ('--registry', $c->connstr('postgres'));

# There, under load.
my @old = start_writers($s, $a);
my @new = start_writers($s, $b);
$a->poll_query_until('postgres', qq{SELECT count(*) > 300 FROM $s.users}) or die 'no load';
moves_ok($a, $b, 5, [ '--reverse', @registry ], 0, 'moved', qr/the source is kept current/);
is($c->safe_psql('postgres', 'SELECT snowid.shard_home(5)'), $home_b, 'the registry of all knows');
await_writers(@old, @new);
stop_writers(@old, @new);
writers_ok('there', \@old, \@new);

# Every kind of change comes back, and only there are they made.
is(sqlstate($a, "DELETE FROM $s.users"), 'SN001', 'the old server is closed');
$b->safe_psql('postgres', qq{
DELETE FROM $s.users WHERE id = (SELECT min(id) FROM $s.users);
UPDATE $s.users SET name = 'changed' WHERE id = (SELECT max(id) FROM $s.users);
TRUNCATE $s.likes;
INSERT INTO $s.likes DEFAULT VALUES;
});
$a->poll_query_until('postgres', "SELECT count(*) = 1 FROM $s.likes") or die 'no replication back';
my $all = qq{
SELECT (SELECT md5(string_agg(t::text, ';' ORDER BY id)) FROM $s.users t),
	(SELECT md5(string_agg(t::text, ';' ORDER BY id)) FROM $s.photos t),
	(SELECT md5(string_agg(t::text, ';' ORDER BY id)) FROM $s.likes t)};
is($a->safe_psql('postgres', $all), $b->safe_psql('postgres', $all), 'the old copy is current');
moves_ok($a, $b, 5, ['status'], 1, 'status', qr/moved, and replicated back\n.*type: snowid-move back --shard 5 .*type: snowid-move finish --shard 5/s);

# Back, under load.
@old = start_writers($s, $b);
@new = start_writers($s, $a);
my $count = $b->safe_psql('postgres', "SELECT count(*) FROM $s.users");
$b->poll_query_until('postgres', qq{SELECT count(*) > $count + 100 FROM $s.users}) or die 'no load';
moves_ok($a, $b, 5, ['back'], 0, 'back', qr/now lives at \Q$home_a\E/);
is($c->safe_psql('postgres', 'SELECT snowid.shard_home(5)'), $home_a, 'the registry of all knows');
await_writers(@old, @new);
stop_writers(@old, @new);
writers_ok('back', \@old, \@new);
copies_equal_ok($b, 'insta5_moved', $a, $s, 'back');
moves_ok($a, $b, 5, ['back'], 0, 'back again does no harm', qr/back already/);
moves_ok($a, $b, 5, ['status'], 1, 'status', qr/back, and not finished\n.*type: snowid-move finish/);
moves_ok($a, $b, 5, ['finish'], 0, 'finished');
nothing_left_ok($_, 'back') for $a, $b;

# The tool dies before the way back is decided: it still lives there.
moves_ok($a, $b, 5, ['--reverse'], 0, 'moved again');
hold_and_kill($a, 'open', 0, 'back', $a, $b);
moves_ok($a, $b, 5, ['abort'], 0, 'the way back is aborted', qr/way back is undone/);
my $id = $b->safe_psql('postgres', "INSERT INTO $s.users (name) VALUES ('x') RETURNING id");

# ... and between the decision and the opening.
hold_and_kill($a, 'open', 1, 'back', $a, $b);
like(sqlstate($_, "INSERT INTO $s.users (name) VALUES ('y')"), qr/SN00[12]/, 'both are closed') for $a, $b;
moves_ok($a, $b, 5, ['abort'], 0, 'the way back is aborted', qr/way back is undone/);
cmp_ok($b->safe_psql('postgres', "INSERT INTO $s.users (name) VALUES ('z') RETURNING id"), '>', $id, 'it lives there');
hold_and_kill($a, 'open', 1, 'back', $a, $b);
moves_ok($a, $b, 5, ['back'], 0, 'or it goes on');
cmp_ok($a->safe_psql('postgres', "INSERT INTO $s.users (name) VALUES ('z') RETURNING id"), '>', $id, 'it lives here');
is($a->safe_psql('postgres', "SELECT count(*) FROM $s.users WHERE name IN ('x', 'z')"), 3, 'with all rows');
moves_ok($a, $b, 5, ['finish'], 0, 'finished');
nothing_left_ok($_, 'back after kills') for $a, $b;

# The registry of all cannot be reached: the shard is open all the same, and
# the same command tells it later.
moves_ok($a, $b, 5, [ @registry, '--stop-after', 'copied' ], 0, 'copied');
$c->stop;
moves_ok($a, $b, 5, \@registry, 3, 'moved, but the registry was not told', qr/same command again/);
is($b->safe_psql('postgres', "INSERT INTO $s.users (name) VALUES ('open') RETURNING name"), 'open', 'it is open');
$c->start;
moves_ok($a, $b, 5, [], 0, 'now it is');
is($c->safe_psql('postgres', 'SELECT snowid.shard_home(5)'), $home_b, 'the registry of all knows');
moves_ok($a, $b, 5, ['finish'], 0, 'finished');
nothing_left_ok($_, 'registry') for $a, $b;

# What is created on the new server before all is cleaned up is not replicated
# back: so there is no way back, and nothing of it is lost.
fresh_shard($a, $b);
moves_ok($a, $b, 5, [ '--reverse', @registry, '--stop-after', 'copied' ], 0, 'copied');
$c->stop;
moves_ok($a, $b, 5, [], 3, 'moved, but the registry was not told');
$b->safe_psql('postgres', "CREATE TABLE $s.later (id bigint PRIMARY KEY); INSERT INTO $s.later VALUES (1)");
$c->start;
moves_ok($a, $b, 5, [], 0, 'now it is', qr/the source is kept current/);
moves_ok($a, $b, 5, ['back'], 1, 'no way back without the new table', qr/definitions of shard 5 have changed.*snowid-move finish/s);
moves_ok($a, $b, 5, ['finish'], 0, 'finished');
is($b->safe_psql('postgres', "SELECT id FROM $s.later"), '1', 'the new table stays');
nothing_left_ok($_, 'no way back') for $a, $b;

done_testing();
