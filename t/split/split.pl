# Shards are split off to a standby of their server, while clients write to all of
# them: nothing is copied, nothing is lost, and no id comes twice, by the ids that
# clients were told.  The shards that stay are not touched on the source: their
# writers get no error.  split_checks.pl has what must be right before.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use SplitTest;
use Test::More;

my ($a, $b) = split_pair('plain');
my $all = '1-2';
my $registry = move_node('registry');
$registry->start;
$registry->safe_psql('postgres', 'CREATE EXTENSION snowid');

# The split, with writers of all shards on both servers.  What stays is prepared
# on the target, as a copy.
$a->safe_psql('postgres', q{BEGIN; INSERT INTO insta4.likes DEFAULT VALUES; PREPARE TRANSACTION 'copy'});
my @set_before = map { start_writers("insta$_", $a) } 1, 2;
my @set_after = map { start_writers("insta$_", $b) } 1, 2;
my @stay = map { start_writers("insta$_", $a) } 3, 4;
my @strays = map { start_writers("insta$_", $b) } 3, 4;
await_rows($a, $_, 0) for 1 .. 4;
$registry->safe_psql('postgres', q{INSERT INTO snowid.shard_registry (shard, schema) VALUES (1, 'insta1'), (2, 'insta2'), (3, 'insta3')});
my $said = moves_ok($a, $b, $all, [ 'split', @limits, '--registry', $registry->connstr('postgres') ], 0, 'split',
	qr/shards 1-2 now live at .*; writes waited \d+ ms\n.*done; to drop/s);
like($said, qr/rolling back the target's copy of the prepared transaction copy/, 'a copy of a prepared transaction is rolled back');
my $written = $a->safe_psql('postgres', 'SELECT max(id) FROM insta3.users');
await_rows($b, $_, $a->safe_psql('postgres', "SELECT max(id) FROM insta$_.users")) for 1, 2;
await_rows($a, $_, $written) for 3;
stop_writers(@set_before, @set_after, @stay, @strays);
for my $i (0, 1)
{
	my $shard = $i + 1;
	writers_ok("shard $shard", [ $set_before[$i] ], [ $set_after[$i] ], '25006');
	is_deeply(errors_of($stay[$i]), {}, "the writer of shard " . ($shard + 2) . ", which stays, gets no error");
	is_deeply($strays[$i]->{ids}, [], 'and nobody gets an id of it on the target');
	told_ids_ok($b, "insta$shard", $set_before[$i], $set_after[$i]);
	told_ids_ok($a, 'insta' . ($shard + 2), $stay[$i]);
}
$a->safe_psql('postgres', q{COMMIT PREPARED 'copy'});
is(living($a), '3,4', 'these live on the source');
is(living($b), '1,2', 'and these on the target');
is(sqlstate($b, q{SELECT insta3.next_id()}), 'SN001', 'no id of what stays on the target');
is(sqlstate($a, q{SELECT insta1.next_id()}), 'SN001', 'and none of the set on the source');
is(read_only($b), 'off', 'the target takes writes');
is($registry->safe_psql('postgres', q{SELECT string_agg(shard::text, ',' ORDER BY shard) FROM snowid.shard_registry WHERE home LIKE '%port=} . $b->port . q{ %'}),
	'1,2', 'the registry of all knows');
is($a->safe_psql('postgres', 'SELECT count(*) FROM pg_replication_slots'), '0', "the standby's slot is gone");

# No other one, whatever the journal says.
$a->safe_psql('postgres', q{SELECT pg_create_physical_replication_slot('prod'); UPDATE snowid.moves SET step = 'fenced', details = details || '{"slot": "prod"}'});
moves_ok($a, $b, $all, ['split'], 0, 'told again', qr/slot "prod" at .* is not what the target calls its own, and stays/);
is($a->safe_psql('postgres', q{SELECT pg_drop_replication_slot('prod'); SELECT string_agg(DISTINCT step, ' ') FROM snowid.moves}), "\nmoved", 'it is there');
$registry->stop;

moves_ok($a, $b, $all, ['split'], 0, 'again', qr/split off already; type: snowid-move finish/);
moves_ok($a, $b, $all, ['abort'], 1, 'too late to abort', qr/has been promoted, and this cannot be undone/);
moves_ok($a, $b, $all, ['status'], 1, 'status', qr/split off, type: snowid-move finish --shard/);
moves_ok($a, $b, 3, ['move'], 1, 'what stays is not moved before finish', qr/a split was begun/);

# The copies of what the other server has no more may be the last.
for ([ $b, 1 ], [ $a, 3 ])
{
	my ($node, $shard) = @$_;
	$node->safe_psql('postgres', "ALTER SCHEMA insta$shard RENAME TO kept");
	moves_ok($a, $b, $all, ['finish'], 1, "shard $shard was dropped where it lives", qr/shard $shard does not live at .*may be the last; nothing was dropped/);
	$node->safe_psql('postgres', "ALTER SCHEMA kept RENAME TO insta$shard");
}

# What others have made of the copies is told before anything is dropped.
$b->safe_psql('postgres', 'CREATE VIEW public.three AS SELECT * FROM insta3.users');
moves_ok($a, $b, $all, ['finish'], 1, 'a view is in the way', qr/other schemas at .* use the copy.*public\.three|view three/s);
moves_ok($a, $b, $all, [ 'finish', '--cascade', '--dry-run' ], 0, 'what finish would drop', qr/shards 3-4: schemas .* would be dropped.*shards 1-2: schemas .* would be dropped/s);
is($b->safe_psql('postgres', q{SELECT count(*) FROM pg_namespace WHERE nspname ~ '^insta'}), '4', 'nothing is dropped');
moves_ok($a, $b, $all, [ 'finish', '--cascade' ], 0, 'finish', qr/shards 3-4: the copies at .* are dropped.*shards 1-2: the copies at .* are dropped/s);
nothing_left_ok($_, 'finished') for $a, $b;
moves_ok($a, $b, $all, ['finish'], 0, 'and then there is nothing', qr/nothing to finish/);

# They are two servers now: a shard comes back by a move, and is in nobody's way.
SKIP:
{
	skip 'wal_level is replica', 2 if $a->pg_version < 19 && $b->safe_psql('postgres', 'SHOW wal_level') ne 'logical';
	$a->safe_psql('postgres', 'DELETE FROM snowid.shard_registry WHERE shard = 1');
	moves_ok($b, $a, 1, [], 0, 'a shard comes back by a move');
	moves_ok($b, $a, 1, ['finish'], 0, 'finished');
}
$_->stop for $a, $b;

done_testing();
