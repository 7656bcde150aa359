# What must be right before shards are split off, what is refused, and what is left
# when a split is held up, is aborted, or has one of its two servers only.
use strict;
use warnings;

use FindBin;
use IPC::Run;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use SplitTest;
use Test::More;

my ($a, $b) = split_pair('checks');
my $all = '1-2';

# A cluster of its own, and not a copy of a data directory, has a number of its own.
my $other;
{
	local $ENV{INITDB_TEMPLATE};
	$other = move_node('other', extra => ['--no-locale']);
}
$other->start;
$other->safe_psql('postgres', 'CREATE EXTENSION snowid');

# A setting that a check finds.
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
	$node->append_conf('postgresql.conf', "$name = " . ($name =~ /_names|_slot_name|_command/ ? "''" : $name eq 'recovery_min_apply_delay' ? 0 : 'off'));
	$restart ? $node->restart : $node->reload;
	$a->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'async'}) or die 'does not stream';
	return;
}

subtest 'nothing is under way' => sub {
	moves_ok($a, $b, $all, ['plan'], 0, 'plan', qr/ok +streaming: .*timeline 1.*ok +how far behind: \d+ (?:bytes|kB).*slots of the source: "standby_checks", of the target, keeps .*shards 1-2 would be split off from .* to its standby .*, and 2 shards would stay; nothing was changed/s);
	moves_ok($a, $b, 1, ['move'], 1, 'a standby is no target of a move', qr/FAILED +target is a primary/);
	moves_ok($a, $b, '1,9', ['split'], 2, 'a shard that is not there', qr/do not live on the source: 9\n/);
	moves_ok($a, $b, $all, ['status'], 0, 'status of nothing', qr/nothing is under way/);
	moves_ok($a, $b, $all, ['abort'], 0, 'abort of nothing', qr/nothing to abort/);
	is($a->safe_psql('postgres', 'SELECT count(*) FROM snowid.moves'), '0', 'nothing was touched');
};

subtest 'what a check finds' => sub {
	check_ok($a, $b, 'unlogged tables', qr/FAILED +unlogged tables: table insta1\.lost is unlogged.*ALTER TABLE insta1\.lost SET LOGGED/s,
		['CREATE UNLOGGED TABLE insta1.lost (id bigint)'], ['DROP TABLE insta1.lost']);
	check_ok($a, $b, 'subscriptions', qr/FAILED +subscriptions: subscription "sub" of database "postgres" is enabled.*ALTER SUBSCRIPTION sub DISABLE/s,
		[q{CREATE SUBSCRIPTION sub CONNECTION 'host=/nowhere dbname=x' PUBLICATION p WITH (connect = false)},
			q{ALTER SUBSCRIPTION sub ENABLE}], [q{ALTER SUBSCRIPTION sub DISABLE}, q{ALTER SUBSCRIPTION sub SET (slot_name = NONE)}, 'DROP SUBSCRIPTION sub']);
	check_ok($a, $b, 'slots', qr/warning +slots of the source: who reads slot "cdc" \(pgoutput\)/,
		[q{SELECT pg_create_logical_replication_slot('cdc', 'pgoutput')}], [q{SELECT pg_drop_replication_slot('cdc')}]) if $a->pg_version >= 19;
	check_ok($a, $b, 'disk room', qr/warning +disk room: nobody reads slot "idle", which keeps \d+ \S+ of log/,
		[q{SELECT pg_create_physical_replication_slot('idle', true)}], [q{SELECT pg_drop_replication_slot('idle')}]);
	$b->safe_psql('postgres', q{SELECT pg_create_physical_replication_slot('idle', true)});
	like((snowid_move($a, $b, $all, 'plan'))[1], qr/warning +slots of the target: slot "idle" keeps log there/, 'check: slots of the target');
	$b->safe_psql('postgres', q{SELECT pg_drop_replication_slot('idle')});
	check_ok($a, $b, 'other moves', qr/FAILED +other moves: shard 3 is in a move, or closed by hand/,
		['SELECT snowid.fence_shard(3)'], ['SELECT snowid.unfence_shard(3)']);
	check_ok($a, $b, 'users elsewhere', qr/warning +users in other schemas: .*uses table insta1\.users.*The two part.*warning +users in other schemas: .*uses table insta3\.users.*Drop it on the target/s,
		[q{CREATE VIEW public.one AS SELECT * FROM insta1.users}, q{CREATE VIEW public.three AS SELECT * FROM insta3.users}],
		['DROP VIEW public.one, public.three']);
	check_ok($a, $b, 'other databases', qr/warning +other databases: other is on both servers afterwards/, ['CREATE DATABASE other'], ['DROP DATABASE other']);
	check_ok($a, $b, 'ids outside of shards', qr/FAILED +ids outside of shards: snowid\.id_seq makes ids, and the target would make the same/,
		['ALTER DATABASE postgres SET snowid.shard = 7', 'SET snowid.shard = 7; SELECT snowid.next_id()'], ['ALTER DATABASE postgres RESET snowid.shard', q{ALTER SEQUENCE snowid.id_seq RESTART}]);
	check_ok($a, $b, 'tables outside', qr/warning +tables outside of shards: 1 table, as public\.world, on both servers/, ['CREATE TABLE world ()'], ['DROP TABLE world']);
	check_ok($a, $b, 'settings of sessions', qr/FAILED +settings of sessions: role writer sets default_transaction_read_only/,
		['CREATE ROLE writer', 'ALTER ROLE writer SET default_transaction_read_only = off'], ['DROP ROLE writer']);
	check_ok($a, $b, 'prepared transactions', qr/FAILED +prepared transactions: 'in' .*It holds locks in the set.*warning +prepared transactions: 'out'/s,
		[q{BEGIN; INSERT INTO insta1.users (name) VALUES ('new'); PREPARE TRANSACTION 'in'}, q{BEGIN; INSERT INTO insta3.users (name) VALUES ('new'); PREPARE TRANSACTION 'out'}],
		[q{COMMIT PREPARED 'in'}, q{COMMIT PREPARED 'out'}]);
};

subtest 'what a check finds in settings' => sub {
	setting_ok($a, "synchronous_standby_names = 'standby_checks'", qr/FAILED +synchronous replication: the target is a synchronous standby of the source/);
	setting_ok($b, "synchronous_standby_names = 'x'", qr/FAILED +settings of the standby: synchronous_standby_names is x/);
	setting_ok($b, 'recovery_min_apply_delay = 1min', qr/FAILED +settings of the standby: recovery_min_apply_delay is 60000/);
	setting_ok($b, 'default_transaction_read_only = on', qr/FAILED +settings of the standby: default_transaction_read_only is on/);
	setting_ok($b, 'archive_mode = on', qr/warning +settings of the standby: archive_mode is on/, 1);
	$b->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
	like((snowid_move($a, $b, $all, 'plan'))[1], qr/FAILED +settings of the standby: replay is paused/, 'check: replay is paused');
	moves_ok($a, $b, $all, ['split'], 1, 'what has failed a check is not split', qr/shards 1-2 cannot be split off yet; nothing was changed/);
	is($a->safe_psql('postgres', 'SELECT count(*) FROM snowid.moves'), '0', 'and nothing was touched');
	$b->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
};

# A manager would make the promoted target a standby again.
subtest 'what a check finds of a fail-over manager' => sub {
	my $patroni = qr/FAILED +manager of the target: Patroni runs it .*Once it is promoted, that would make it a standby again/s;
	my $session = $b->background_psql('postgres');
	$session->query_safe(q{SET application_name = 'Patroni'});
	moves_ok($a, $b, $all, ['plan'], 1, 'check: a session of Patroni', $patroni);
	$session->query_safe(q{SET application_name = 'repmgr'});
	moves_ok($a, $b, $all, ['plan'], 1, 'check: a session of repmgrd', qr/repmgr runs it \(its session is called "repmgr"\)/);
	$session->quit;
	$b->stop;
	command_ok([ 'pg_ctl', '-w', '-D', $b->data_dir, '-l', $b->logfile, '-o',
			'--cluster-name=standby_checks --wal_level=logical --max_locks_per_transaction=' . $a->safe_psql('postgres', 'SHOW max_locks_per_transaction'), 'start' ], 'as Patroni starts it');
	moves_ok($a, $b, $all, ['plan'], 1, 'check: started by Patroni', $patroni);
	command_ok([ 'pg_ctl', '-w', '-D', $b->data_dir, 'stop' ], 'stopped');
	$b->start;
	append_to_file($b->data_dir . '/patroni.dynamic.json', '{}');
	moves_ok($a, $b, $all, ['plan'], 1, 'check: a file of Patroni', qr/Patroni runs it \(patroni.dynamic.json is in its data directory\)/);
	unlink $b->data_dir . '/patroni.dynamic.json';
	for my $slot (qw(pgautofailover_standby_2 stolon_1a2b _cnpg_b))
	{
		$a->safe_psql('postgres', "SELECT pg_create_physical_replication_slot('$slot', true)");
		setting_ok($b, "primary_slot_name = '$slot'", qr/FAILED +manager of the target: \S+ runs it \(it streams by slot "$slot"\)/);
	}
	# A command that is not there would end the server, whenever it has a look.
	setting_ok($b, q{restore_command = '/controller/manager wal-restore || false'}, qr/FAILED +manager of the target: CloudNativePG runs it \(restore_command\)/);
	check_ok($a, $b, 'manager of the target', qr/FAILED +manager of the target: a managed service runs it \(role rdsadmin\)/, ['CREATE ROLE rdsadmin'], ['DROP ROLE rdsadmin']);
	$b->append_conf('postgresql.conf', q{primary_slot_name = 'standby_checks'});
	$b->reload;
	for my $slot (qw(pgautofailover_standby_2 stolon_1a2b _cnpg_b))
	{
		$a->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_replication_slots WHERE slot_name = '$slot' AND NOT active") or die 'active';
		$a->safe_psql('postgres', "SELECT pg_drop_replication_slot('$slot')");
	}
	moves_ok($a, $b, $all, ['plan'], 0, 'and nothing of it is left');
};

subtest 'other servers' => sub {
	moves_ok($a, $other, $all, ['split'], 1, 'another server is no standby',
		qr/FAILED +target is a standby of the source: it is another system.*FAILED +target is a standby of the source: it is a primary/s);
	moves_ok($b, $a, $all, ['split'], 1, 'nor the other way round', qr/FAILED +source is a primary: it is a standby/);
};

# What is changed after the checks, and would do harm.
for ([ 'subscription "sub" of database "postgres" is enabled',
		[ q{CREATE SUBSCRIPTION sub CONNECTION 'host=/nowhere dbname=x' PUBLICATION p WITH (connect = false)}, 'ALTER SUBSCRIPTION sub ENABLE' ],
		[ 'ALTER SUBSCRIPTION sub DISABLE', 'ALTER SUBSCRIPTION sub SET (slot_name = NONE)', 'DROP SUBSCRIPTION sub' ] ],
	[ 'the target is a synchronous standby',
		[ q{ALTER SYSTEM SET synchronous_standby_names = 'standby_checks'}, 'SELECT pg_reload_conf()' ],
		[ 'ALTER SYSTEM RESET synchronous_standby_names', 'SELECT pg_reload_conf()' ] ])
{
	my ($found, $do, $undo) = @$_;

	subtest "changed after the checks: $found" => sub {
		my $hold = hold_at_step($a, 'claimed', 1);
		my $tool = IPC::Run::start([ move_command($a, $b, $all, 'split') ], '>', \my $told, '2>&1', IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
		wait_until_held($a) or die "does not get there: $told";
		$a->safe_psql('postgres', $_) for @$do;
		$a->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM pg_subscription) OR EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')}) or die 'as before';
		$hold->quit;
		$tool->finish;
		is($? >> 8, 1, "not split: $found") or die $told;
		like($told, qr/^FAILED +[\w ]+: $found.*error: shards 1-2 can no longer be split off/ms, '... it says');
		unlike($told =~ s/.*FAILED//sr, qr/^ok /m, '... and nothing of what is as it was');
		is($a->safe_psql('postgres', 'SELECT count(*) FROM snowid.moves WHERE closed') . read_only($b), '0off', '... and all is as before');
		$a->safe_psql('postgres', $_) for @$undo;
		$a->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'async'}) or die 'synchronous';
		let_go_steps($a);
		moves_ok($a, $b, $all, ['abort'], 0, '... abort', qr/the split is undone/);
	};
}

# A manager that comes after the checks: before the fence, and after it.
for ([ 'claimed', qr/FAILED +manager of the target: Patroni runs it .*error: shards 1-2 can no longer be split off/s ],
	[ 'fenced', qr/error: a fail-over manager runs the target.*The set is open on the source again/s ])
{
	my ($step, $says) = @$_;

	subtest "a manager that comes after step $step" => sub {
		my $hold = hold_at_step($a, $step, 1);
		my $tool = IPC::Run::start([ move_command($a, $b, $all, 'split', '--pause-limit', 60000) ], '>', \my $told, '2>&1', IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
		wait_until_held($a) or die "does not get there: $told";
		my $session = $b->background_psql('postgres');
		$session->query_safe(q{SET application_name = 'Patroni'});
		$hold->quit;
		$tool->finish;
		is($? >> 8, 1, 'not split') or die $told;
		like($told, $says, '... it says');
		is(living($a) . ' ' . $b->safe_psql('postgres', 'SELECT pg_is_in_recovery()') . read_only($b), '1,2,3,4 toff', '... and all is as before');
		$session->quit;
		let_go_steps($a);
		moves_ok($a, $b, $all, ['abort'], 0, '... abort', qr/the split is undone/);
	};
}

subtest 'a split that is begun, and undone' => sub {
	# Somebody writes for too long.
	my $stuck = $a->background_psql('postgres');
	$stuck->query_safe(q{BEGIN; INSERT INTO insta2.users (name) VALUES ('slow')});
	moves_ok($a, $b, $all, [ 'split', '--retries', 1, '--lock-timeout', 50 ], 1, 'a transaction is in the way', qr/could not lock the set.*after 2 attempts/s);
	$stuck->query_safe('COMMIT');
	$stuck->query_safe('BEGIN; CREATE TABLE insta2.coming (id bigint)');
	moves_ok($a, $b, $all, [ 'split', '--retries', 1 ], 1, 'a table is being made', qr/another transaction is creating objects in the set's schemas.*after 2 attempts/s);
	$stuck->query_safe('ROLLBACK');
	is(read_only($b), 'off', 'the target is as before');
	moves_ok($a, $b, $all, ['status'], 1, 'status', qr/under way, and not decided.*source .*: claimed, open for writing.*target .*a standby, has replayed step claimed/s);
	moves_ok($a, $b, 1, ['move'], 1, 'no move meanwhile', qr/a split was begun/);
	moves_ok($a, $b, 1, ['split'], 2, 'nor a part of it', qr/not that of the split.*--shard=1,2/s);
	moves_ok($a, $b, $all, ['finish'], 1, 'too early to finish', qr/the split is not complete.*snowid-move status/s);
	moves_ok($a, $other, $all, [$_], 2, "$_ with another target", qr/begun with another server than that of --to.*The journal says: .*Given was: /s)
	  for 'split', 'abort', 'status', 'finish';

	# With one of the two servers only.
	$a->wait_for_catchup($b);
	$a->stop;
	moves_ok($a, $b, $all, ['split'], 1, 'no source: split', qr/the source must be reachable until the target is promoted/);
	moves_ok($a, $b, $all, ['status'], 1, 'no source: status', qr/not promoted yet; only the source knows more.*source: not reached/s);
	$a->start;
	$b->stop;
	moves_ok($a, $b, $all, ['split'], 1, 'no target: split', qr/the target must be reachable/);
	moves_ok($a, $b, $all, ['abort'], 1, 'no target: abort', qr/the target must be reachable.*only it can tell that it was not promoted/s);
	moves_ok($a, $b, $all, ['status'], 1, 'no target: status', qr/under way.*target: not reached/s);
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
	moves_ok($a, $b, $all, ['status'], 1, 'an abort was begun: status', qr/an abort was begun, type: snowid-move abort --shard/);
	moves_ok($a, $b, $all, ['abort'], 0, 'abort', qr/the split is undone/);
	is(read_only($b), 'off', 'the target is as before');
	nothing_left_but($a, 'standby_checks', 'abort');
};

subtest 'closed by hand' => sub {
	$a->safe_psql('postgres', 'SELECT snowid.fence_shard(1)');
	moves_ok($a, $b, $all, ['split'], 1, 'closed by hand', qr/a move was begun, or it is closed by hand.*snowid-move status/s);
	$a->safe_psql('postgres', 'SELECT snowid.unfence_shard(1)');
};

subtest 'nothing of all that is in the way' => sub {
	moves_ok($a, $b, $all, [ 'split', '--pause-limit', 60000, '--lock-timeout', 1000 ], 0, 'split', qr/shards 1-2 now live at/);
	is(living($a) . ' ' . living($b), '3,4 1,2', 'each has its own');
};

$_->stop for $a, $b, $other;
done_testing();
