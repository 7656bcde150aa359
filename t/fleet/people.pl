# What people do to a fleet: they type commands for a server that is down, kill a move and go on, keep
# copies, restore a server from before a move, give a role that may not, another address, a limit.  Nothing
# that is the last copy is given up, and the same command ends what was begun.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use FleetTest;
use IPC::Run ();
use MoveTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my ($dir, $s1, $s2, $s3) = fleet_nodes(qw(s1 s2 s3));
my %nodes = (s1 => $s1, s2 => $s2, s3 => $s3);
my %home = map { ($_ => home_of($nodes{$_})) } keys %nodes;
my $table = q{CREATE TABLE t (id bigint PRIMARY KEY DEFAULT next_id(), pad text); INSERT INTO t (pad) SELECT repeat(''x'', 100) FROM generate_series(1, 200)};
$s1->safe_psql('postgres', "CALL snowid.create_shards(0, 8, ddl => '$table')");

# A role that may not: nothing is entered.
$s2->safe_psql('postgres', 'CREATE ROLE joe LOGIN');
fleet_ok([ 'add', 's2', home_of($s2) . ' user=joe' ], 1, 'a role that may not', qr/^FAILED +role joe does not own the tables of snowid there\n +As a superuser, type there: GRANT \w+ TO joe;/m,
	qr/^FAILED +role joe may not make subscriptions there\n +(As a superuser, type there: GRANT pg_create|Give a HOME with a superuser)/m);
fleet_ok([ 'add', 's2', home_of($s2), '--directory-for-servers', 'host=/nowhere port=1 dbname=postgres' ], 1, 'a directory that it does not reach', qr/s2 cannot subscribe to the directory/);
is($dir->safe_psql('postgres', 'SELECT count(*) FROM snowid.servers'), 0, '... nothing is entered');
is($dir->safe_psql('postgres', 'SELECT count(*) FROM pg_replication_slots'), 0, '... nor left');
fleet_ok([ 'add', 's1', home_of($s1), '--weight', $_ ], 2, "weight $_", qr/invalid value "\Q$_\E" for option --weight/) for 'NaN', '-1', '0', 'abc';
fleet_ok([ 'add', $_, home_of($nodes{$_}) ], 0, "add $_") for qw(s1 s2 s3);

# Drained with a limit, until it is.
fleet_ok([ 'balance', '--by', 'shards' ], 0, 'balanced');
homes_ok({ s1 => 3, s2 => 3, s3 => 3 }, 'balanced', %nodes);

# A server that is down, and has a second text of the same address, as others may have written it.
$dir->safe_psql('postgres', q{UPDATE snowid.shard_registry SET home = regexp_replace(home, '^(dbname=\S+) (.*)', '\2 \1') WHERE shard IN (SELECT min(shard) FROM snowid.shard_registry GROUP BY home)});
$s3->stop;
fleet_ok([ 'drain', 's3' ], 1, 'drain what is down', qr/s3 gives no answer, so nobody knows how much it has; bring it back; .* and type: snowid-fleet add s3 NEWHOME --registry '/);
fleet_ok([ 'retire', 's3' ], 1, 'retire what is down', qr/s3 cannot be retired: 3 shards live there.*\n.*hint: It gives no answer\. Bring it back; .* and type: snowid-fleet add s3 NEWHOME --registry '/);
IPC::Run::run([ 'snowid-move', 'audit', '--registry', home_of($dir) ], '>&', \my $audited);
like($audited, qr/^snowid-move: error: .* cannot be asked what it has: .*\n.*hint: Bring it back; or promote its standby, or restore it, and type: snowid-fleet add s3 NEWHOME --registry '/m, '... what audit says to type');
like($audited, qr/^3 servers looked at, /m, '... which counts each of the others once');
my ($lines) = (fleet('status'))[1];
is(() = $lines =~ /NO ANSWER/g, 1, 'one server, by whichever address');
$s3->start;
is($dir->safe_psql('postgres', q{SELECT state FROM snowid.servers WHERE name = 's3'}), 'open', 'it is as it was');

# A move of some, of both addresses, is killed: the same command ends it, whole.
$s2->safe_psql('postgres', "CALL snowid.create_shards(20, 20, ddl => '$table')");
fleet_ok([ 'add', 's2', home_of($s2) ], 0, 'a shard that was made there');
$dir->safe_psql('postgres', 'TRUNCATE snowid.fleet_moves');
my $holder = $s2->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE insta20.t IN ROW EXCLUSIVE MODE');
my $run = IPC::Run::start([ fleet_command('drain', 's2', '--', '--lock-timeout', 100_000, '--pause-limit', 100_000, '--verify', 'none') ], '>', \my $out, '2>', \my $err);
$s2->poll_query_until('postgres', q{SELECT count(*) > 1 FROM snowid.moves WHERE step IN ('copied', 'verified')}) or die "no move: $err";
$run->signal('KILL');
$run->finish;
$_->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory' AND classid = 1397641047}) or die 'it goes on' for values %nodes;
$holder->query_safe('ROLLBACK');
$holder->quit;
fleet_ok([ 'drain', 's2', '--max-moves', 1 ], 1, 'the same again, to a limit', qr/first, what an earlier move has left/, qr/within the limits/, qr/error: 1 pool has to stay$/m);
fleet_ok([ 'drain', 's2', '--max-moves', 1 ], 0, '... and to the end');
homes_ok({ s2 => 0 }, 'drained', %nodes);
is($_->safe_psql('postgres', q{SELECT count(*) FROM snowid.moves}), 0, 'no journal is left') for values %nodes;
is($dir->safe_psql('postgres', q{SELECT count(*), count(DISTINCT s), count(*) FILTER (WHERE outcome <> 'finished') FROM snowid.fleet_moves, unnest(string_to_array(shards, ',')) s}),
	'4|4|0', 'what goes on has its row');

# The directory is restarted while a move is under way: it is told what to type, and that goes on.
$dir->safe_psql('postgres', q{UPDATE snowid.servers SET state = 'open' WHERE name = 's2'});
$holder = $s1->background_psql('postgres');
$holder->query_safe(q{BEGIN; DO $$ BEGIN EXECUTE (SELECT string_agg(format('LOCK TABLE %I.t IN ROW EXCLUSIVE MODE', schema), ';') FROM snowid.shards WHERE lives = 'here'); END $$});
($out, $err) = ('', '');
$run = IPC::Run::start([ fleet_command('drain', 's1', '--', '--lock-timeout', 100_000, '--pause-limit', 100_000, '--verify', 'none') ], '>', \$out, '2>', \$err);
$s1->poll_query_until('postgres', q{SELECT count(*) > 1 FROM snowid.moves WHERE step IN ('copied', 'verified')}) or die "no move: $err";
$dir->restart;
$holder->query_safe('ROLLBACK');
$holder->quit;
$run->finish;
is($run->result(0), 3, 'the directory was restarted') or diag $err;
like($err, qr/registry: .*\n(.*\n)*.*hint: This is not complete\. Type the same command again\.$/m, '... which is told');
$_->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory' AND classid = 1397641047}) or die 'it goes on' for $dir, values %nodes;
fleet_ok([ 'drain', 's1' ], 0, 'the same again');
homes_ok({ s1 => 0 }, 'drained', %nodes);
$dir->safe_psql('postgres', q{UPDATE snowid.servers SET state = CASE name WHEN 's2' THEN 'draining' ELSE 'open' END});
fleet_ok([ 'balance', '--by', 'shards' ], 0, 'balanced again');

# What is kept on purpose stays.
$dir->safe_psql('postgres', q{UPDATE snowid.servers SET state = 'open' WHERE name = 's2'});
fleet_ok([ 'balance', '--by', 'shards', '--keep', '--', '--reverse' ], 0, 'copies are kept');
my $kept = q{SELECT count(*) FROM snowid.moves WHERE step = 'moved'};
my $count = $s1->safe_psql('postgres', $kept) + $s3->safe_psql('postgres', $kept);
cmp_ok($count, '>', 0, 'there are some');
$dir->safe_psql('postgres', q{UPDATE snowid.fleet_moves SET outcome = 'in part, to keep' WHERE outcome = 'kept'});
fleet_ok([ 'balance', '--by', 'shards' ], 0, 'another balance');
is($s1->safe_psql('postgres', $kept) + $s3->safe_psql('postgres', $kept), $count, '... leaves them');
for my $line (split /\n/, (fleet('status'))[1])
{
	next unless $line =~ /type: (snowid-move finish .*)$/;
	system('sh', '-c', "$1 2>/dev/null") == 0 or fail($1);
}
is($_->safe_psql('postgres', q{SELECT count(*) FROM snowid.moves}), 0, 'finished') for values %nodes;

# A move with a way back: the copy is where the shard was, and after the way back at the other.  One whose program was
# killed is told with what goes on, which helps.
my ($gone) = split /,/, $s1->safe_psql('postgres', q{SELECT string_agg(shard::text, ',') FROM snowid.shards WHERE lives = 'here'});
moves_ok($s1, $s2, $gone, [ '--registry', home_of($dir), '--reverse' ], 0, 'with a way back');
fleet_ok([ 'status' ], 0, '... its copy is wanted', qr/^copy +of shards $gone at s1, .*, kept; to drop it, type: snowid-move finish --shard $gone --from 's1' --to 's2' --registry '/m);
$holder = $s2->background_psql('postgres');
$holder->query_safe("BEGIN; LOCK TABLE insta$gone.t IN ROW EXCLUSIVE MODE");
$run = IPC::Run::start([ 'snowid-move', 'back', '--registry', home_of($dir), '--shard', $gone, '--from', 's1', '--to', 's2', '--lock-timeout', 100_000, '--pause-limit', 100_000 ], '>&', \$out);
$s2->poll_query_until('postgres', "SELECT count(*) = 1 FROM snowid.moves WHERE shard = $gone AND role = 'source' AND step IN ('copied', 'verified')") or die "no move: $out";
unlike(fleet_ok([ 'status' ], 0, '... it goes back', qr/^moving +shards $gone from s2 to s1: /m), qr/no program/, '... and is at work');
$run->signal('KILL');
$run->finish;
$holder->query_safe('ROLLBACK');
$holder->quit;
$_->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory' AND classid = 1397641047}) or die 'it goes on' for values %nodes;
my $said = fleet_ok([ 'status' ], 1, '... it was killed', qr/^FAILED no program goes on with the move of shards $gone: .* type: (snowid-move back .*)$/m);
is(system('sh', '-c', ($said =~ /type: (snowid-move back .*)$/m)[0] . ' 2>/dev/null'), 0, '... what is told goes on');
$said = fleet_ok([ 'status' ], 1, '... it is back', qr/^copy +of shards $gone at s2, closed since [^,]*$/m, qr/^FAILED the copy of shard $gone at /m);
is(system('sh', '-c', ($said =~ /type: (snowid-move finish .*)$/m)[0] . ' 2>/dev/null'), 0, '... what is told ends it');
$dir->wait_for_catchup("snowid_registry_$_", 'replay', $dir->lsn('insert')) for keys %nodes;
fleet_ok([ 'status' ], 0, '... and nothing is left');

# A person's own move between the same servers, after one of ours that failed, or was killed before it began, is not ours to end.
my $own = (split /,/, $s1->safe_psql('postgres', q{SELECT string_agg(shard::text, ',') FROM snowid.shards WHERE lives = 'here'}))[0];
$dir->safe_psql('postgres', "TRUNCATE snowid.fleet_moves; INSERT INTO snowid.fleet_moves (at, shards, source, target, bytes, seconds, outcome) VALUES (now() - interval '1 h', '$own', '$home{s1}', '$home{s2}', 1, 1, 'failed')");
moves_ok($s1, $s2, $own, [ '--registry', home_of($dir) ], 0, 'a move by hand');
for my $outcome ('failed', 'begun')
{
	$dir->safe_psql('postgres', "UPDATE snowid.fleet_moves SET outcome = '$outcome' WHERE shards = '$own' AND bytes = 1");
	fleet_ok([ 'balance', '--by', 'shards', '--threshold', 90 ], 0, "balance, after one that is $outcome");
	is($s1->safe_psql('postgres', $kept), 1, '... its copy is there');
}
moves_ok($s1, $s2, $own, [ 'finish', '--registry', home_of($dir) ], 0, 'finished by hand');

# A pool of which one shard could not move comes together again.
my @two = (split /,/, $s3->safe_psql('postgres', q{SELECT string_agg(shard::text, ',' ORDER BY shard) FROM snowid.shards WHERE lives = 'here'}))[ 0, 1 ];
$dir->safe_psql('postgres', "UPDATE snowid.shard_registry SET pool = 'both' WHERE shard IN ($two[0], $two[1])");
moves_ok($s3, $s1, $two[0], [ '--registry', home_of($dir) ], 0, 'torn');
moves_ok($s3, $s1, $two[0], [ 'finish', '--registry', home_of($dir) ], 0, 'finished');
for my $case ([ '', qr/^s3 -> s1: .*, shards $two[1]$/m ], [ "VALUES ('{[$two[1],$two[1]]}', 'stay')", qr/^0 jobs/m ],
	[ "VALUES ('{[$two[0],$two[0]]}', 'only', '{s2,s3}')", qr/^s1 -> s3: .*, shards $two[0]$/m ],
	[ "VALUES ('{[$two[0],$two[0]],[$two[1],$two[1]]}', 'only', '{s2}')", qr/^s\d -> s\d: .*, shards ($two[0]|$two[1])$/m, qr/^both stays at s\d: it first comes together there; then type the same command again; /m ])
{
	my ($rule, $plan, $stays) = @$case;
	$dir->safe_psql('postgres', "INSERT INTO snowid.placements $rule") if $rule;
	$said = fleet_ok([ 'balance', '--by', 'shards', '--threshold', 900, '--dry-run' ], $stays ? 1 : 0, "torn: $rule", $plan, qr/^(?!2 jobs)\d jobs/m, $stays // ());
	my ($have, $all) = split /\|/, $dir->safe_psql('postgres', "SELECT count(*) FILTER (WHERE s.name = 's1'), count(*) FROM snowid.shard_registry r LEFT JOIN snowid.servers s ON substring(s.home FROM 'port=\\d+') = substring(r.home FROM 'port=\\d+')");
	my $now = sprintf '%.0f', 100 * $have / $all;
	like($said, qr/^s1 +#+ +$now % /m, '... each server has what is there');
	unlike($said, qr/both stays/, '... what comes together where it may be does not stay') unless $stays;
	$dir->safe_psql('postgres', 'TRUNCATE snowid.placements');
}
$s1->stop;
fleet_ok([ 'drain', 's3', '--dry-run' ], 0, 'torn, to a server that is down', qr/^(?!.*-> s1: )/s);
$s1->start;
$dir->safe_psql('postgres', "INSERT INTO snowid.placements VALUES ('{[$two[0],$two[0]],[$two[1],$two[1]]}', 'only', '{s2}')");
fleet_ok([ 'balance', '--by', 'shards', '--threshold', 900 ], 1, 'it comes together, and is not yet where it may be', qr/error: 1 pool has to stay\n.*hint: To go on, type the same command again/);
$dir->safe_psql('postgres', 'TRUNCATE snowid.placements');
fleet_ok([ 'drain', 's3' ], 0, 'drained');
my ($where) = $dir->safe_psql('postgres', q{SELECT count(DISTINCT home) FROM snowid.shard_registry WHERE pool = 'both'});
is($where, 1, 'the pool is whole');

# Another address of a server; a shard that is made there then.
$dir->safe_psql('postgres', q{UPDATE snowid.servers SET state = 'open' WHERE name = 's3'});
my $elsewhere = PostgreSQL::Test::Utils::tempdir_short() . '/s3';
symlink $s3->host, $elsewhere or die "no link: $!";
for ([ 41, home_of($s3) =~ s/host=\S+/host=$elsewhere/r ], [ 42, home_of($s3) ])
{
	fleet_ok([ 'add', 's3', $_->[1] ], 0, 'another address');
	$s3->safe_psql('postgres', "SELECT snowid.create_shard($_->[0])");
	fleet_ok([ 'add', 's3' ], 0, 'and again');
	ok($s3->poll_query_until('postgres', "SELECT home IS NOT NULL FROM snowid.shard_registry WHERE shard = $_->[0]"), 'the registry follows');
}
$s3->safe_psql('postgres', 'SELECT snowid.drop_shard(42)');
$dir->safe_psql('postgres', 'DELETE FROM snowid.shard_registry WHERE shard = 42');
$_->poll_query_until('postgres', 'SELECT count(*) = 0 FROM snowid.shard_registry WHERE shard = 42') or die 'it does not go' for $s1, $s2, $s3;
$s3->safe_psql('postgres', 'CREATE TABLE insta41.t (id bigint PRIMARY KEY)');

# One server twice.
$dir->safe_psql('postgres', q{INSERT INTO snowid.servers (name, home) VALUES ('twin', '} . home_of($s3) . q{ application_name=y')});
fleet_ok([ 'balance', '--by', 'shards' ], 1, 'a server twice', qr/s3 and twin are one server|twin and s3 are one server/);
$dir->safe_psql('postgres', q{DELETE FROM snowid.servers WHERE name = 'twin'});
$s3->poll_query_until('postgres', q{SELECT count(*) = 0 FROM snowid.servers WHERE name = 'twin'}) or die 'it does not go';

# A member that has lost its subscription.
$s3->safe_psql('postgres', q{ALTER SUBSCRIPTION snowid_registry_s3 DISABLE; ALTER SUBSCRIPTION snowid_registry_s3 SET (slot_name = NONE); DROP SUBSCRIPTION snowid_registry_s3});
$dir->poll_query_until('postgres', q{SELECT NOT active FROM pg_replication_slots WHERE slot_name = 'snowid_registry_s3'}) or die 'it is read';
fleet_ok([ 'status' ], 1, 'who does not follow', qr/^s3 .* registry NOT FOLLOWED: type: snowid-fleet add s3/m);

# Its slot is still read.
my $reader = IPC::Run::start([ 'pg_recvlogical', '-d', $dir->connstr('postgres'), '--slot', 'snowid_registry_s3', '--start', '-f', '-', '-o', 'proto_version=1', '-o', 'publication_names=shard_registry' ], '>', \$out, '2>', \$err);
$dir->poll_query_until('postgres', q{SELECT active FROM pg_replication_slots WHERE slot_name = 'snowid_registry_s3'}) or die 'nobody reads';
$run = IPC::Run::start([ fleet_command('add', 's3') ], '>&', \my $added);
$dir->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query ~ '^SELECT pg_drop_replication_slot'}) or die "it does not wait: $added";
$reader->signal('KILL');
$reader->finish;
$run->finish;
is($run->result(0), 0, 'it follows again, once the slot is free') or diag $added;

# A server as it was before a move: shards are open twice.
$s2->stop;
$s2->backup_fs_cold('before');
$s2->start;
fleet_ok([ 'drain', 's2' ], 0, 'its shards move away');
$s2->stop;
my $old = as_it_was($s2);
fleet_ok([ 'status' ], 1, 'open twice: status', qr/^FAILED .*shard \d+/m);
fleet_ok([ 'balance', '--by', 'shards' ], 1, 'open twice: no plan', qr/shard \d+ is open at s2, and the directory says .*host=/);
fleet_ok([ 'retire', 's2' ], 1, 'nor is it retired', qr/s2 cannot be retired: \d+ shards live there/);
$said = fleet_ok([ 'add', 's2' ], 1, 'nor does it follow again', qr/^FAILED +shard \d+ is there, and at /m);
my ($closes) = $said =~ /put back from a backup, type: (snowid-move audit --fix --registry '[^']*');/;
isnt(system('sh', '-c', "$closes >/dev/null 2>&1"), 0, '... what is told closes the old ones');
fleet_ok([ 'add', 's2' ], 0, '... and then it does');
is($old->safe_psql('postgres', q{SELECT count(*) FROM snowid.shards WHERE lives = 'here'}), 0, '... without them');

$_->stop for $dir, $s1, $s3, $old;
done_testing();
