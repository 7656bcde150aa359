# Shards are split off to a standby of their server, while clients write to all of
# them: nothing is copied, nothing is lost, and no id comes twice, by the ids that
# clients were told.  The shards that stay are not touched on the source: their
# writers get no error.  And what must be right before is checked.
use strict;
use warnings;

use FindBin;
use IPC::Run;
use lib $FindBin::RealBin;
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use SplitTest;
use Test::More;

my @limits = ('--pause-limit', 60000, '--lock-timeout', 1000);
my ($a, $b) = split_pair('plain');
my $all = '1-2';
my $registry;

# Before: what plan says, and refuses.
moves_ok($a, $b, $all, ['plan'], 0, 'plan', qr/ok +streaming: .*timeline 1.*ok +how far behind: \d+ (?:bytes|kB).*slots of the source: "standby_plain", of the target, keeps .*shards 1-2 would be split off from .* to its standby .*, and 2 shards would stay; nothing was changed/s);
moves_ok($a, $b, 1, ['move'], 1, 'a standby is no target of a move', qr/FAILED +target is a primary/);
moves_ok($a, $b, '1,9', ['split'], 2, 'a shard that is not there', qr/do not live on the source: 9\n/);
moves_ok($a, $b, $all, ['status'], 0, 'status of nothing', qr/nothing is under way/);
moves_ok($a, $b, $all, ['abort'], 0, 'abort of nothing', qr/nothing to abort/);
is($a->safe_psql('postgres', 'SELECT count(*) FROM snowid.moves'), '0', 'nothing was touched');

# What a check finds: statements that make it so, and that undo it, on the source;
# or settings of the target.
sub check_ok
{
	my ($name, $found, $do, $undo) = @_;

	$a->safe_psql('postgres', $_) for @$do;
	$a->wait_for_catchup($b);
	like((snowid_move($a, $b, $all, 'plan'))[1], $found, "check: $name");
	$a->safe_psql('postgres', $_) for @$undo;
	$a->wait_for_catchup($b);
	return;
}

sub setting_ok
{
	my ($node, $setting, $found, $restart) = @_;

	$node->append_conf('postgresql.conf', $setting);
	$restart ? $node->restart : $node->reload;
	my ($name, $value) = $setting =~ /^(\S+) = (.*)/;
	my $said = '';
	for (1 .. 100)
	{
		$said = (snowid_move($a, $b, $all, 'plan'))[1];
		last if $said =~ $found;
	}
	like($said, $found, "check: $setting");
	$node->append_conf('postgresql.conf', "$name = " . ($name eq 'synchronous_standby_names' ? "''" : $name eq 'recovery_min_apply_delay' ? 0 : 'off'));
	$restart ? $node->restart : $node->reload;
	$a->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'async'}) or die 'does not stream';
	return;
}

check_ok('unlogged tables', qr/FAILED +unlogged tables: table insta1\.lost is unlogged.*ALTER TABLE insta1\.lost SET LOGGED/s,
	['CREATE UNLOGGED TABLE insta1.lost (id bigint)'], ['DROP TABLE insta1.lost']);
check_ok('subscriptions', qr/FAILED +subscriptions: subscription "sub" of database "postgres" is enabled.*ALTER SUBSCRIPTION sub DISABLE/s,
	[q{CREATE SUBSCRIPTION sub CONNECTION 'host=/nowhere dbname=x' PUBLICATION p WITH (connect = false)},
		q{ALTER SUBSCRIPTION sub ENABLE}], [q{ALTER SUBSCRIPTION sub DISABLE}, q{ALTER SUBSCRIPTION sub SET (slot_name = NONE)}, 'DROP SUBSCRIPTION sub']);
check_ok('slots', qr/warning +slots of the source: who reads slot "cdc" \(pgoutput\)/,
	[q{SELECT pg_create_logical_replication_slot('cdc', 'pgoutput')}], [q{SELECT pg_drop_replication_slot('cdc')}]) if $a->pg_version >= 19;
check_ok('disk room', qr/warning +disk room: nobody reads slot "idle", which keeps \d+ \S+ of log/,
	[q{SELECT pg_create_physical_replication_slot('idle', true)}], [q{SELECT pg_drop_replication_slot('idle')}]);
$b->safe_psql('postgres', q{SELECT pg_create_physical_replication_slot('idle', true)});
like((snowid_move($a, $b, $all, 'plan'))[1], qr/warning +slots of the target: slot "idle" keeps log there/, 'check: slots of the target');
$b->safe_psql('postgres', q{SELECT pg_drop_replication_slot('idle')});
check_ok('other moves', qr/FAILED +other moves: shard 3 is in a move, or closed by hand/,
	['SELECT snowid.fence_shard(3)'], ['SELECT snowid.unfence_shard(3)']);
check_ok('users elsewhere', qr/warning +users in other schemas: .*uses table insta1\.users.*The two part.*warning +users in other schemas: .*uses table insta3\.users.*Drop it on the target/s,
	[q{CREATE VIEW public.one AS SELECT * FROM insta1.users}, q{CREATE VIEW public.three AS SELECT * FROM insta3.users}],
	['DROP VIEW public.one, public.three']);
check_ok('other databases', qr/warning +other databases: other is on both servers afterwards/, ['CREATE DATABASE other'], ['DROP DATABASE other']);
check_ok('ids outside of shards', qr/FAILED +ids outside of shards: snowid\.id_seq makes ids, and the target would make the same/,
	['ALTER DATABASE postgres SET snowid.shard = 7', 'SELECT snowid.next_id()'], ['ALTER DATABASE postgres RESET snowid.shard', q{ALTER SEQUENCE snowid.id_seq RESTART}]);
check_ok('tables outside', qr/warning +tables outside of shards: 1 table, as public\.world, on both servers/, ['CREATE TABLE world ()'], ['DROP TABLE world']);
check_ok('settings of sessions', qr/FAILED +settings of sessions: role writer sets default_transaction_read_only/,
	['CREATE ROLE writer', 'ALTER ROLE writer SET default_transaction_read_only = off'], ['DROP ROLE writer']);
check_ok('prepared transactions', qr/FAILED +prepared transactions: 'in' .*It holds locks in the set.*warning +prepared transactions: 'out'/s,
	[q{BEGIN; INSERT INTO insta1.users (name) VALUES ('new'); PREPARE TRANSACTION 'in'}, q{BEGIN; INSERT INTO insta3.users (name) VALUES ('new'); PREPARE TRANSACTION 'out'}],
	[q{COMMIT PREPARED 'in'}, q{COMMIT PREPARED 'out'}]);
setting_ok($a, "synchronous_standby_names = 'standby_plain'", qr/FAILED +synchronous replication: the target is a synchronous standby of the source/);
setting_ok($b, "synchronous_standby_names = 'x'", qr/FAILED +settings of the standby: synchronous_standby_names is x/);
setting_ok($b, 'recovery_min_apply_delay = 1min', qr/FAILED +settings of the standby: recovery_min_apply_delay is 60000/);
setting_ok($b, 'default_transaction_read_only = on', qr/FAILED +settings of the standby: default_transaction_read_only is on/);
setting_ok($b, 'archive_mode = on', qr/warning +settings of the standby: archive_mode is on/, 1);
$b->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
like((snowid_move($a, $b, $all, 'plan'))[1], qr/FAILED +settings of the standby: replay is paused/, 'check: replay is paused');
moves_ok($a, $b, $all, ['split'], 1, 'what has failed a check is not split', qr/shards 1-2 cannot be split off yet; nothing was changed/);
is($a->safe_psql('postgres', 'SELECT count(*) FROM snowid.moves'), '0', 'and nothing was touched');
$b->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
{
	# A cluster of its own, and not a copy of a data directory, has a number of its own.
	local $ENV{INITDB_TEMPLATE};
	my $other = move_node('other', extra => ['--no-locale']);
	$other->start;
	$other->safe_psql('postgres', 'CREATE EXTENSION snowid');
	moves_ok($a, $other, $all, ['split'], 1, 'another server is no standby',
		qr/FAILED +target is a standby of the source: it is another system.*FAILED +target is a standby of the source: it is a primary/s);
	$registry = $other;
}
moves_ok($b, $a, $all, ['split'], 1, 'nor the other way round', qr/FAILED +source is a primary: it is a standby/);

# What is changed after the checks, and would do harm.
for ([ 'a subscription has been enabled',
		[ q{CREATE SUBSCRIPTION sub CONNECTION 'host=/nowhere dbname=x' PUBLICATION p WITH (connect = false)}, 'ALTER SUBSCRIPTION sub ENABLE' ],
		[ 'ALTER SUBSCRIPTION sub DISABLE', 'ALTER SUBSCRIPTION sub SET (slot_name = NONE)', 'DROP SUBSCRIPTION sub' ] ],
	[ 'the target has become a synchronous standby',
		[ q{ALTER SYSTEM SET synchronous_standby_names = 'standby_plain'}, 'SELECT pg_reload_conf()' ],
		[ 'ALTER SYSTEM RESET synchronous_standby_names', 'SELECT pg_reload_conf()' ] ])
{
	my ($found, $do, $undo) = @$_;
	my $hold = hold_at_step($a, 'claimed', 1);
	my $tool = IPC::Run::start([ move_command($a, $b, $all, 'split') ], '>', \my $told, '2>&1', IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	wait_until_held($a) or die "does not get there: $told";
	$a->safe_psql('postgres', $_) for @$do;
	$a->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM pg_subscription) OR EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')}) or die 'as before';
	$hold->quit;
	$tool->finish;
	is($? >> 8, 1, "not split: $found") or die $told;
	like($told, qr/source: $found/, '... it says');
	is($a->safe_psql('postgres', 'SELECT count(*) FROM snowid.moves WHERE closed') . read_only($b), '0off', '... and all is as before');
	$a->safe_psql('postgres', $_) for @$undo;
	$a->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'async'}) or die 'synchronous';
	let_go_steps($a);
	moves_ok($a, $b, $all, ['abort'], 0, '... abort', qr/the split is undone/);
}

# Somebody writes for too long.
my $stuck = $a->background_psql('postgres');
$stuck->query_safe(q{BEGIN; INSERT INTO insta2.users (name) VALUES ('slow')});
moves_ok($a, $b, $all, [ 'split', '--retries', 1, '--lock-timeout', 50 ], 1, 'a transaction is in the way', qr/could not lock the set.*after 2 attempts/s);
$stuck->query_safe('COMMIT');
$stuck->query_safe('BEGIN; CREATE TABLE insta2.coming (id bigint)');
moves_ok($a, $b, $all, [ 'split', '--retries', 1 ], 1, 'a table is being made', qr/another transaction is creating objects in the set's schemas.*after 2 attempts/s);
$stuck->query_safe('ROLLBACK');
is(read_only($b), 'off', 'the target is as before');
moves_ok($a, $b, $all, ['status'], 0, 'status', qr/under way, and not decided.*source .*: claimed, open for writing.*target .*a standby, has replayed step claimed/s);
moves_ok($a, $b, 1, ['move'], 1, 'no move meanwhile', qr/a split was begun/);
moves_ok($a, $b, 1, ['split'], 2, 'nor a part of it', qr/not that of the split.*--shard=1,2/s);
moves_ok($a, $b, $all, ['finish'], 1, 'too early to finish', qr/the split is not complete.*snowid-move status/s);
moves_ok($a, $registry, $all, [$_], 2, "$_ with another target", qr/begun with another server than that of --to.*The journal says: .*Given was: /s)
  for 'split', 'abort', 'status', 'finish';

# With one of the two servers only.
$a->wait_for_catchup($b);
$a->stop;
moves_ok($a, $b, $all, ['split'], 1, 'no source: split', qr/the source must be reachable until the target is promoted/);
moves_ok($a, $b, $all, ['status'], 0, 'no source: status', qr/not promoted yet; only the source knows more.*source: not reached/s);
$a->start;
$b->stop;
moves_ok($a, $b, $all, ['split'], 1, 'no target: split', qr/the target must be reachable/);
moves_ok($a, $b, $all, ['abort'], 1, 'no target: abort', qr/the target must be reachable.*only it can tell that it was not promoted/s);
moves_ok($a, $b, $all, ['status'], 0, 'no target: status', qr/under way.*target: not reached/s);
$b->start;

# An abort that was begun is to be completed.  It waits for a writer's table.
$stuck->quit;
$stuck = $a->background_psql('postgres');
$stuck->query_safe(q{BEGIN; INSERT INTO insta2.users (name) VALUES ('slow')});
my $tool = IPC::Run::start([ move_command($a, $b, $all, 'abort') ], '>', \my $aborted, '2>&1');
$a->poll_query_until('postgres', q{SELECT bool_and(step = 'aborted') FROM snowid.moves}) or die "no abort: $aborted";
$tool->kill_kill;
$stuck->query_safe('COMMIT');
$stuck->quit;
moves_ok($a, $b, $all, ['split'], 1, 'an abort was begun', qr/an abort of this split was begun.*snowid-move abort/s);
moves_ok($a, $b, $all, ['status'], 0, 'an abort was begun: status', qr/an abort was begun: type snowid-move abort/);
moves_ok($a, $b, $all, ['abort'], 0, 'abort', qr/the split is undone/);
is(read_only($b), 'off', 'the target is as before');
nothing_left_but($a, 'standby_plain', 'abort');

# A shard that is closed for another reason.
$a->safe_psql('postgres', 'SELECT snowid.fence_shard(1)');
moves_ok($a, $b, $all, ['split'], 1, 'closed by hand', qr/a move was begun, or it is closed by hand.*snowid-move status/s);
$a->safe_psql('postgres', 'SELECT snowid.unfence_shard(1)');

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
$registry->stop;
is($a->safe_psql('postgres', 'SELECT count(*) FROM pg_replication_slots'), '0', "the standby's slot is gone");

moves_ok($a, $b, $all, ['split'], 0, 'again', qr/split off already; type: snowid-move finish/);
moves_ok($a, $b, $all, ['abort'], 1, 'too late to abort', qr/has been promoted, and this cannot be undone/);
moves_ok($a, $b, $all, ['status'], 0, 'status', qr/split off: type snowid-move finish/);
moves_ok($a, $b, 3, ['move'], 1, 'what stays is not moved before finish', qr/a split was begun/);

# What others have made of the copies is told before anything is dropped.
$b->safe_psql('postgres', 'CREATE VIEW public.three AS SELECT * FROM insta3.users');
moves_ok($a, $b, $all, ['finish'], 1, 'a view is in the way', qr/other schemas at .* use the copy.*public\.three|view three/s);
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

# A role that is no superuser may do it, once that has been typed which plan says.
# Its server sorts by ICU, and has room for few locks.
($a, $b) = split_pair('role', [ '--locale-provider=icu', '--icu-locale=en' ], "max_connections = 20\nmax_locks_per_transaction = 10");
$a->safe_psql('postgres', q{UPDATE pg_database SET datcollversion = '0' WHERE datname = 'postgres'});
for (1 .. 100)
{
	$said = (snowid_move($a, $b, $all, 'plan'))[1];
	last if $said =~ /collation: version/;
}
like($said, qr/warning +collation: version 0 made the indexes, \S+ is there/, 'check: collation');
$a->safe_psql('postgres', 'ALTER DATABASE postgres REFRESH COLLATION VERSION');
check_ok('locks', qr/FAILED +locks: closing the set takes 3\d\d locks in one transaction, and there is room for 250\n.*max_locks_per_transaction = 1\d;/,
	[ join '', map { "CREATE TABLE insta1.t$_ ();" } 1 .. 300 ], [ join '', map { "DROP TABLE insta1.t$_;" } 1 .. 300 ]);
$a->safe_psql('postgres', q{
CREATE ROLE owner;
CREATE ROLE splitter LOGIN;
DO $$
DECLARE what text;
BEGIN
	FOR what IN
		SELECT format('ALTER SCHEMA %s OWNER TO owner', oid::regnamespace) FROM pg_namespace WHERE nspname ~ '^insta'
		UNION ALL SELECT format('ALTER %s %s OWNER TO owner', CASE relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, oid::regclass)
		FROM pg_class c WHERE relnamespace::regnamespace::text ~ '^insta' AND relkind IN ('r', 'p', 'S') AND NOT EXISTS (
			SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = c.oid AND deptype IN ('a', 'i') AND relkind = 'S')
		UNION ALL SELECT format('ALTER ROUTINE %s OWNER TO owner', oid::regprocedure) FROM pg_proc
		WHERE pronamespace::regnamespace::text ~ '^insta'
	LOOP
		EXECUTE what;
	END LOOP;
END $$});
my @as = ('snowid-move', '--shard', $all, map { ($_->[0], $_->[1]->connstr('postgres') . ' user=splitter') } [ '--from', $a ], [ '--to', $b ]);
my $code;
for (1 .. 10)
{
	$a->wait_for_catchup($b);
	IPC::Run::run([ @as, 'plan' ], '>&', \$said);
	$code = $? >> 8;
	my @wanted = $said =~ /(?:[Tt]ype(?: on the source)?: )((?:GRANT|ALTER ROLE) .*;)$/mg;
	last if !@wanted;
	$a->safe_psql('postgres', $_) for @wanted;
}
is($code, 0, 'a plan passes once that has been typed which it says') or diag $said;
for my $command ([ 'split', @limits ], ['finish'])
{
	IPC::Run::run([ @as, @$command ], '>&', \$said);
	is($? >> 8, 0, "$command->[0] by a role that is no superuser") or diag $said;
}
is($a->safe_psql('postgres', q{SELECT rolsuper FROM pg_roles WHERE rolname = 'splitter'}), 'f', 'it is none');
is(living($a) . ' ' . living($b), '3,4 1,2', 'each server has its own');
$_->stop for $a, $b;

# The portable edition.
{
	local $SnowidTest::edition = 'portable';
	($a, $b) = split_pair('portable');
}
moves_ok($a, $b, $all, [ 'split', @limits ], 0, 'portable: split');
is(living($a) . ' ' . living($b), '3,4 1,2', 'portable: each has its own');
cmp_ok($b->safe_psql('postgres', 'SELECT insta1.next_id()'), '>', $b->safe_psql('postgres', 'SELECT max(id) FROM insta1.users'), 'portable: ids rise');
is(sqlstate($b, q{SELECT insta3.next_id()}), 'SN001', 'portable: no id of what stays on the target');
moves_ok($a, $b, $all, ['finish'], 0, 'portable: finish');
nothing_left_ok($_, 'portable') for $a, $b;
$_->stop for $a, $b;
done_testing();
