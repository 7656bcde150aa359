# snowid-fleet: servers are added by name, given their share, drained and retired; and what a
# person types wrong is refused before anything is touched.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use FleetTest;
use IO::Socket::UNIX;
use IPC::Run ();
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my ($dir, $s1, $s2, $s3, $s4) = fleet_nodes(qw(s1 s2 s3 s4));
my %nodes = (s1 => $s1, s2 => $s2, s3 => $s3, s4 => $s4);
my %home = map { ($_ => home_of($nodes{$_})) } keys %nodes;

$s1->safe_psql('postgres', q{CALL snowid.create_shards(0, 11, ddl => 'CREATE TABLE t (id bigint PRIMARY KEY DEFAULT next_id(), pad text); INSERT INTO t (pad) SELECT repeat(''x'', 100) FROM generate_series(1, 500)')});
$s2->safe_psql('postgres', q{CALL snowid.create_shards(12, 15, ddl => 'CREATE TABLE t (id bigint PRIMARY KEY DEFAULT next_id(), pad text); INSERT INTO t (pad) SELECT repeat(''x'', 100) FROM generate_series(1, 500)')});

# Wrong words.
fleet_ok([ 'balance' ], 2, 'an empty fleet has nothing to balance', qr/has no servers\n.*snowid-fleet add NAME HOME/);
fleet_ok([ 'add', 's-1', $home{s1} ], 2, 'a hyphen', qr/invalid name of a server: "s-1"/);
fleet_ok([ 'add', 's1', @$_ ], 2, "no home: @$_", qr/its name and home are needed/) for [], [''];
fleet_ok([ 'retire', 'nobody' ], 2, 'an unknown name', qr/has no server "nobody"\n.*It has: none/);
fleet_ok([ 'drain' ], 2, 'no name', qr/drain takes the name of a server/);
fleet_ok([ 'dance' ], 2, 'no such command', qr/unknown argument "dance"/);
fleet_ok([ 'balance', '--weight', '2' ], 2, 'an option of another command', qr/the command balance has no option --weight/);
fleet_ok([ 'balance', '--', '--regis', 'x' ], 2, 'what is ours', qr/--registry is decided by snowid-fleet/);
fleet_ok([ 'balance', '--', @$_ ], 2, "no option: @$_", qr/"s1" after -- is no option of snowid-move/) for ['s1'], [ '--verify', 'none', 's1' ], [ '--verify=none', 's1' ];
fleet_ok([ 'status', '--', '--verify', 'none' ], 2, 'what moves nothing', qr/the command status gives no options to snowid-move/);

# Two servers with shards, of which the directory hears now.
fleet_ok([ 'add', 's1', $home{s1} ], 0, 's1 is added', qr/s1 is in the fleet/);
fleet_ok([ 'add', 's2', $home{s2}, '--weight', '1' ], 0, 's2 is added');
fleet_ok([ 'add', 's2', $home{s2} ], 0, '... and again, which does nothing');
fleet_ok([ 'add', 'other', $home{s2} ], 2, 'under another name', qr/that server is in the fleet, as s2/);
fleet_ok([ 'add', 's2', $home{s3} ], 2, 'the name of another', qr/the name s2 is that of another server/);
homes_ok({ s1 => 12, s2 => 4 }, 'they are known', s1 => $s1, s2 => $s2);
is($dir->safe_psql('postgres', 'SELECT count(*) FROM snowid.shard_registry'), 16, 'the directory has all shards');
$s2->poll_query_until('postgres', 'SELECT count(*) = 16 FROM snowid.shard_registry') or die 'the registry does not come';
is($s2->safe_psql('postgres', 'SELECT string_agg(name, \' \' ORDER BY name) FROM snowid.servers'), 's1 s2', 'members have the servers, too');

# A database of the directory's own server.
$dir->safe_psql('postgres', 'CREATE DATABASE beside');
$dir->safe_psql('beside', 'CREATE EXTENSION snowid');
fleet_ok([ 'add', 'beside', home_of($dir) =~ s/dbname=postgres/dbname=beside/r ], 0, 'beside the directory');
$dir->poll_query_until('beside', 'SELECT count(*) = 16 FROM snowid.shard_registry') or die 'the registry does not come';
fleet_ok([ 'retire', 'beside' ], 0, '... and out again');

# Sides exchanged: nothing is touched.
{
	my ($out, $err);
	IPC::Run::run([ 'snowid-fleet', 'add', 's9', home_of($dir), '--registry', $home{s3} ], '>', \$out, '2>', \$err);
	is($? >> 8, 1, 'sides exchanged');
	like($out, qr/FAILED +it is a directory.*\n.*exchanged/, '... are told');
	IPC::Run::run([ 'snowid-fleet', 'add', 's9', $home{s3}, '--registry', $home{s1} ], '>', \$out, '2>', \$err);
	is($? >> 8, 2, 'a member as directory');
	like($err, qr/is not the directory: it subscribes to one/, '... is told');
	is($dir->safe_psql('postgres', 'SELECT count(*) FROM snowid.servers'), 2, '... and nothing is lost');
	is($s3->safe_psql('postgres', 'SELECT count(*) FROM snowid.servers'), 0, '... or made');
}

# A shard that another server has.
$s3->safe_psql('postgres', 'SELECT snowid.create_shard(13)');
fleet_ok([ 'add', 's3', $home{s3} ], 1, 'a number that is taken', qr/FAILED +shard 13 is there, and at s2/);
$s3->safe_psql('postgres', 'SELECT snowid.drop_shard(13)');
$s3->safe_psql('postgres', q{SELECT snowid.create_shard(99, 'insta13')});
fleet_ok([ 'add', 's3', $home{s3} ], 1, 'a name that is taken', qr/FAILED +shard 99 is insta13 there, and shard 13 is insta13 at s2\n +Drop one of the two/);
$s3->safe_psql('postgres', q{SELECT snowid.drop_shard(99); INSERT INTO snowid.shard_registry (shard, schema, home) VALUES (13, 'old', 'host=x dbname=y')});
my $old = fleet_ok([ 'add', 's3', $home{s3} ], 1, 'an old row', qr/FAILED +shard 13 is old there, and shard 13 is insta13 at s2\n +There, type: DELETE/);
$s3->safe_psql('postgres', ($old =~ /There, type: (.*;)/)[0] // '');
$s3->safe_psql('postgres', q{INSERT INTO snowid.servers (name, home) VALUES ('mine', 'host=x dbname=y')});
fleet_ok([ 'add', 's3', $home{s3} ], 1, 'a directory without members', qr/FAILED +it has servers of its own\n.*TRUNCATE snowid.servers/);
is($s3->safe_psql('postgres', 'SELECT name FROM snowid.servers'), 'mine', '... and they stay');
$s3->safe_psql('postgres', 'TRUNCATE snowid.servers; CREATE DATABASE bare');
fleet_ok([ 'add', 's3', $home{s3} =~ s/dbname=postgres/dbname=bare/r ], 2, 'without snowid', qr/does not have snowid\n.*CREATE EXTENSION snowid;/);
fleet_ok([ 'add', 's3', $home{s3}, '--dry-run' ], 0, 'a dry run');
is($s3->safe_psql('postgres', 'SELECT count(*) FROM pg_subscription'), 0, '... does nothing');

# A shared table: the directory has the rows, also for servers that were there before.
my $countries = 'CREATE TABLE public.countries (code text PRIMARY KEY)';
$dir->safe_psql('postgres', "$countries; INSERT INTO public.countries VALUES ('de'), ('fr'); ALTER PUBLICATION shard_registry ADD TABLE public.countries");
fleet_ok([ 'add', $_, $home{$_} ], 1, "$_ has no shared table", qr/FAILED +the directory publishes table public\.countries, which is not there\n/) foreach 's1', 's3';
$_->safe_psql('postgres', $countries) foreach $s1, $s2, $s3, $s4;
$s3->safe_psql('postgres', q{INSERT INTO public.countries VALUES ('de'); CREATE TABLE cities (country text REFERENCES public.countries); INSERT INTO cities VALUES ('de')});
my $rows = fleet_ok([ 'add', 's3', $home{s3} ], 1, 'nor are there to be rows', qr/FAILED +table public\.countries is not empty/);
$s3->safe_psql('postgres', ($rows =~ /not empty.*\n.*type there: (.*;)/)[0] // '');
is($s3->safe_psql('postgres', 'SELECT (SELECT count(*) FROM cities), (SELECT count(*) FROM countries)'), '1|0', '... which costs none that refer to them');
fleet_ok([ 'add', $_ ], 0, "$_ has them") foreach 's1', 's2';
$_->poll_query_until('postgres', 'SELECT count(*) = 2 FROM public.countries') or die 'no rows' foreach $s1, $s2;
$s1->safe_psql('postgres', q{ALTER TABLE insta0.t ADD country text DEFAULT 'fr' REFERENCES public.countries});
fleet_ok([ 'add', 's3', $home{s3} ], 0, 's3 is added');

# A server that the others do not reach, since only we have the password.
for my $node ($s2, $s4)
{
	$node->safe_psql('postgres', q{CREATE ROLE pw SUPERUSER LOGIN PASSWORD 'secret'});
	my $hba = slurp_file($node->data_dir . '/pg_hba.conf');
	unlink $node->data_dir . '/pg_hba.conf';
	append_to_file($node->data_dir . '/pg_hba.conf', "local all pw scram-sha-256\n$hba");
	$node->reload;
}
{
	local $ENV{PGPASSWORD} = 'secret';
	fleet_ok([ 'add', 's4', "$home{s4} user=pw", '--dry-run' ], 0, 'not reached by others', qr/^warning +s1 does not reach s4: .*password/m);
}

# Balance.
my $said = fleet_ok([ 'balance', '--dry-run' ], 0, 'the plan', qr/^s1 +#+ +75 % +#+ +3\d %$/m, qr/^s3 +0 % +#+ +3\d %$/m, qr/^s1 -> s[23]: .*shards \d/m, qr/there was no move yet/);
fleet_ok([ 'balance' ], 0, 'done', qr/shards [0-9,]+: finished/);
homes_ok({}, 'balanced', s1 => $s1, s2 => $s2, s3 => $s3);
is($s1->safe_psql('postgres', q{SELECT count(*) BETWEEN 5 AND 6 FROM snowid.shards WHERE lives = 'here'}), 't', 's1 has its third');
fleet_ok([ 'balance' ], 0, 'nothing to do', qr/^0 jobs/m);
like((fleet('balance', '--threshold', 0, '--dry-run'))[1], qr/^0 jobs/m, 'nor below the threshold');

# A shard that is nowhere.
$dir->safe_psql('postgres', qq{INSERT INTO snowid.shard_registry (shard, schema, home) VALUES (99, 'gone', '$home{s1}')});
fleet_ok([ 'balance' ], 1, 'a shard is nowhere', qr/shard 99 is open nowhere.*\n.*snowid-move audit/);
fleet_ok([ 'retire', 's3' ], 1, 'nor is anything retired', qr/s3 cannot be retired: /);
$dir->safe_psql('postgres', 'DELETE FROM snowid.shard_registry WHERE shard = 99');

# By name.
my $shard = $s1->safe_psql('postgres', q{SELECT min(shard) FROM snowid.shards WHERE lives = 'here'});
for (1, 2)
{
	IPC::Run::run([ 'snowid-move', '--registry', home_of($dir), '--shard', $shard, '--to', 's2' ], '>', \my $out, '2>', \my $err);
	is($? >> 8, 0, "a move by name, $_") or diag "$out$err";
	like($err, $_ == 1 ? qr/shard $shard now lives at/ : qr/shards \{$shard\} live there already/, '... is told');
}

# Whichever way leads to a server, the directory has its home as snowid.servers has it, and no password that was typed.
my ($host, $port) = ($s2->host, $s2->port);
fleet_ok([ 'add', 's2', "host=/nowhere,$host port=1,$port dbname=postgres" ], 0, 'a home of two hosts');
my $who = 'user=' . getpwuid($<);
for my $case ([ 's1', 's2' ], [ 's1', "postgresql:///postgres?host=$host/&port=$port&password=secret" ], [ "$home{s1} $who", "host=$host,/nowhere port=$port,1 dbname=postgres user=pw password=secret", 'nobody' ])
{
	my ($from, $to, $user) = @$case;
	my $one = $s1->safe_psql('postgres', q{SELECT max(shard) FROM snowid.shards WHERE lives = 'here'});
	for my $command ('move', 'finish')
	{
		local $ENV{PGUSER} = $user if $user;
		IPC::Run::run([ 'snowid-move', $command, '--registry', home_of($dir) . " $who", '--shard', $one, '--from', $from, '--to', $to ], '>&', \my $said);
		is($? >> 8, 0, "$command, to $to") or diag $said;
	}
	is($dir->safe_psql('postgres', "SELECT home FROM snowid.servers WHERE name = 's2' INTERSECT SELECT home FROM snowid.shard_registry WHERE shard = $one"), "dbname=postgres host=/nowhere,$host port=1,$port", '... by its one home');
}
fleet_ok([ 'add', 's2', $home{s2} ], 0, 'and back');

# A password goes to no host but those it was given for, whatever the directory says.
my $spy = PostgreSQL::Test::Utils::tempdir_short();
my $ear = IO::Socket::UNIX->new(Type => SOCK_STREAM, Local => "$spy/.s.PGSQL.1", Listen => 5) or die "no socket: $!";
my $spies = fork // die "no fork: $!";
alarm 60 if $spies == 0;
while ($spies == 0 && (my $here = $ear->accept))
{
	my $heard = '';
	sysread $here, $heard, 10_000;
	syswrite $here, pack('aNN', 'R', 8, 3);
	sysread $here, $heard, 10_000, length $heard;
	append_to_file("$spy/heard", $heard);
}
$dir->safe_psql('postgres', "UPDATE snowid.servers SET home = 'host=$spy,$host port=1,$port dbname=postgres' WHERE name = 's2'");
my $next = $s1->safe_psql('postgres', q{SELECT max(shard) FROM snowid.shards WHERE lives = 'here'});
for my $command ('move', 'finish')
{
	IPC::Run::run([ 'snowid-move', $command, '--registry', home_of($dir), '--shard', $next, '--from', $home{s1}, '--to', "$home{s2} user=pw password=secret" ], '>&', \my $said);
	is($? >> 8, 0, "$command, with a password") or diag $said;
}
kill 'KILL', $spies;
waitpid $spies, 0;
my $heard = slurp_file("$spy/heard");
like($heard, qr/user\0pw\0/, 'another host is asked');
unlike($heard, qr/secret/, '... without the password');
$dir->safe_psql('postgres', "UPDATE snowid.servers SET home = '$home{s2}' WHERE name = 's2'");

IPC::Run::run([ 'snowid-move', '--registry', home_of($dir), '--shard', $shard, '--to', 's7' ], '>', \my $out, '2>', \my $err);
like($err, qr/no server "s7"\n.*s1, s2, s3/, 'a name that is unknown');
IPC::Run::run([ 'snowid-move', '--shard', $shard, '--from', 's1', '--to', 's2' ], '>', \$out, '2>', \$err);
like($err, qr/the name of a server needs --registry/, 'a name without directory');
IPC::Run::run([ 'snowid-move', 'finish', '--registry', home_of($dir), '--shard', $shard, '--from', 's1', '--to', 's2' ], '>', \$out, '2>', \$err);
is($? >> 8, 0, 'finished by name') or diag $err;

# Rules.
$dir->safe_psql('postgres', q{INSERT INTO snowid.placements VALUES ('{[12,12]}', 'stay', NULL), ('{[0,15]}', 'only', '{s1,s2,s3}')});
fleet_ok([ 'retire', 's2' ], 1, 'a server with shards', qr/s2 cannot be retired: \d+ shards live there.*\n.*snowid-fleet drain s2/);
fleet_ok([ 'add', 's4', $home{s4} ], 0, 's4 is added');
fleet_ok([ 'balance', '--by', 'shards' ], 0, 's4 gets nothing by rule', qr/^s4 +0 % +0 %$/m);
$dir->safe_psql('postgres', q{DELETE FROM snowid.placements WHERE rule = 'only'});
fleet_ok([ 'balance', '--by', 'shards' ], 0, 's4 gets its share');
homes_ok({ s4 => 4 }, 'balanced by shards', %nodes);

# What is between other servers goes on beside it.
$dir->safe_psql('postgres', 'TRUNCATE snowid.placements');
for ([ 's1', 's3' ], [ 's2', 's4' ])
{
	my ($from, $to) = @$_;
	my $ranges = $nodes{$from}->safe_psql('postgres', q{SELECT range_agg(int4range(shard, shard + 1)) FROM snowid.shards WHERE lives = 'here'});
	$dir->safe_psql('postgres', "INSERT INTO snowid.placements VALUES ('$ranges', 'only', '{$to}')");
}
my $last = $dir->safe_psql('postgres', 'SELECT max(at) FROM snowid.fleet_moves');
fleet_ok([ 'balance', '--by', 'shards' ], 0, 'two pairs of servers');
homes_ok({}, 'two pairs of servers', %nodes);
is($dir->safe_psql('postgres', qq{
SELECT count(*) > 0 FROM snowid.fleet_moves a JOIN snowid.fleet_moves b ON a.source <> b.source AND a.target <> b.target AND b.at > a.at AND b.at < a.at + a.seconds * interval '1 s'
WHERE a.at > '$last'}), 't', '... at once');
$dir->safe_psql('postgres', 'TRUNCATE snowid.placements');

# Rules that cannot be kept: each is told, with what to type, and nothing moves for them.
for my $case ([ q{('{[12,12]}', 'only', '{s9}')}, qr/^insta12 stays at s\d: its rules "only" have no server of the fleet in common; .*WHERE shards && '\{\[12,13\)\}';$/m ],
	[ q{('{[12,12]}', 'only', '{s1}'), ('{[0,15]}', 'only', '{s2,s3}')}, qr/^insta12 stays at s\d: its rules "only" have no server/m ],
	[ q{('{[12,12]}', 'stay', NULL), ('{[12,12]}', 'only', ARRAY(SELECT name FROM snowid.servers EXCEPT SELECT name FROM snowid.servers s JOIN snowid.shard_registry r ON substring(s.home FROM 'port=\d+') = substring(r.home FROM 'port=\d+') WHERE shard = 12))},
		qr/^insta12 stays at s\d: one rule has it stay, another one live elsewhere; .*type: SELECT/m ],
	[ q{('{[0,15]}', 'apart', NULL)}, qr/^insta\d+ stays at s\d: more pools are to be apart than there are servers; .*type: SELECT/m ],
	[ q{('{[13,14]}', 'apart', NULL)}, qr/^pool p\?\[31m moves whole, so its shards 13,14 cannot be apart; .*type: DELETE FROM snowid.placements WHERE rule = 'apart' AND shards = '\{\[13,15\)\}';$/m ])
{
	$dir->safe_psql('postgres', "UPDATE snowid.shard_registry SET pool = E'p\\x1b[31m' WHERE shard IN (13, 14); INSERT INTO snowid.placements VALUES $case->[0]");
	fleet_ok([ 'balance', '--by', 'shards', '--threshold', 900, '--dry-run' ], $case->[0] =~ /13,14/ ? 0 : 1, $case->[0], $case->[1]);
	$dir->safe_psql('postgres', q{TRUNCATE snowid.placements; UPDATE snowid.shard_registry SET pool = NULL WHERE shard IN (13, 14)});
}
$dir->safe_psql('postgres', q{INSERT INTO snowid.placements VALUES ('{[12,12]}', 'stay', NULL)});

# Two at once.
my $holder = $dir->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(1397641047, -3)');
fleet_ok([ 'balance' ], 1, 'two at once', qr/another snowid-fleet is at work: process \d+ of \w+\n/);
fleet_ok([ 'balance', '--dry-run' ], 0, '... but one that only looks');
$holder->quit;
$dir->safe_psql('postgres', q{BEGIN; SELECT pg_advisory_xact_lock(1397641047, -3); PREPARE TRANSACTION 'held'});
fleet_ok([ 'balance' ], 1, '... also if nobody is', qr/another snowid-fleet is at work: a prepared transaction, which pg_prepared_xacts has\n/);
$dir->safe_psql('postgres', q{ROLLBACK PREPARED 'held'});

# Drain.
my $has12 = $dir->safe_psql('postgres', q{SELECT name FROM snowid.servers s JOIN snowid.shard_registry r ON r.home ~ (substring(s.home FROM 'port=\d+') || '\M') WHERE shard = 12});
fleet_ok([ 'drain', $has12 ], 1, 'with a shard that stays', qr/insta12 stays at $has12: it is pinned.*; to see its rules, at the directory type: SELECT \* FROM snowid.placements WHERE shards && '/, qr/$has12 stays draining.*UPDATE snowid.servers/);
fleet_ok([ 'add', $has12, $home{$has12} ], 0, 'added again');
is($dir->safe_psql('postgres', "SELECT state FROM snowid.servers WHERE name = '$has12'"), 'draining', '... it drains');
$nodes{$has12}->safe_psql('postgres', 'SELECT snowid.create_shard(78)');
fleet_ok([ 'status' ], 1, '... status tells of it', qr/^FAILED shard 78 is open at .*, and the directory does not know it type: snowid-fleet add $has12 --registry '.*'$/m);
fleet_ok([ 'drain', $has12 ], 1, 'a shard that nobody told of', qr/shard 78 lives at $has12, and the directory does not know it; type: snowid-fleet add $has12 --registry '.*'\n/);
$nodes{$has12}->safe_psql('postgres', 'SELECT snowid.drop_shard(78)');
$dir->safe_psql('postgres', 'TRUNCATE snowid.placements');
fleet_ok([ 'drain', $has12 ], 0, 'drained', qr/$has12 has nothing any more; to take it out, type: snowid-fleet retire $has12/);
$nodes{$has12}->safe_psql('postgres', 'SELECT snowid.create_shard(77)');
fleet_ok([ 'retire', $has12 ], 1, 'a shard of which the directory does not know', qr/1 shards live there, the first is 77/);
$nodes{$has12}->safe_psql('postgres', 'SELECT snowid.fence_shard(77)');
fleet_ok([ 'retire', $has12 ], 1, 'a closed copy, which may have rows of its own', qr/closed copies of 1 shards are there, the first of shard 77.*\n.*type: snowid-move audit --registry /);
$nodes{$has12}->safe_psql('postgres', 'SELECT snowid.unfence_shard(77); SELECT snowid.drop_shard(77)');

# Somebody else reads its slot.
my $slot = "snowid_registry_$has12";
$nodes{$has12}->safe_psql('postgres', "ALTER SUBSCRIPTION $slot DISABLE");
$dir->poll_query_until('postgres', "SELECT NOT active FROM pg_replication_slots WHERE slot_name = '$slot'") or die 'it is read';
my @reader = ('pg_recvlogical', '-d', $dir->connstr('postgres'), '--slot', $slot, '--start', '-f', '-', '-o', 'proto_version=1', '-o', 'publication_names=shard_registry');
my $reader = IPC::Run::start([@reader], '>', \my $read, '2>', \my $read_errors);
$dir->poll_query_until('postgres', "SELECT active FROM pg_replication_slots WHERE slot_name = '$slot'") or die 'nobody reads';
fleet_ok([ 'retire', $has12 ], 1, 'its slot is read', qr/$has12 is not retired yet: .*"$slot" is active/, qr/type the same command again/);
$reader->signal('KILL');
$reader->finish;
fleet_ok([ 'retire', $has12 ], 0, 'retired', qr/is no more in the fleet/);
homes_ok({ $has12 => 0 }, 'retired', %nodes);
is($nodes{$has12}->safe_psql('postgres', 'SELECT count(*) FROM pg_subscription'), 0, 'no subscription is left');
is($dir->safe_psql('postgres', q{SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'snowid_registry_} . $has12 . q{'}), 0, 'nor a slot');
is($dir->safe_psql('postgres', q{SELECT count(*) FROM snowid.fleet_moves WHERE outcome <> 'finished'}), 0, 'the log has all as finished');
is($_->safe_psql('postgres', q{SELECT count(*) FROM snowid.moves}), 0, 'no journal is left') for values %nodes;
is($_->safe_psql('postgres', q{SELECT count(*) FROM pg_namespace WHERE nspname ~ '_moved'}), 0, 'no copy is left') for values %nodes;

$_->stop for $dir, values %nodes;
done_testing();
