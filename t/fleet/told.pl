# What snowid-fleet tells, and how: which servers do not reach each other, the note of a server, names that a
# terminal would obey, a rule that names nobody, Ctrl-C while a server does not answer; and how many moves a server is in at once.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use FleetTest;
use IO::Socket::UNIX;
use IPC::Run ();
use JSON::PP;
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my ($dir, $s1, $s2, $s3) = fleet_nodes(qw(s1 s2 s3));
my %nodes = (s1 => $s1, s2 => $s2, s3 => $s3);
$s1->safe_psql('postgres', q{CALL snowid.create_shards(0, 11, ddl => 'CREATE TABLE t (id bigint PRIMARY KEY DEFAULT next_id(), pad text); INSERT INTO t (pad) SELECT repeat(''x'', 100) FROM generate_series(1, 200)')});

# A server that lets a client in, and says nothing more, is given up, while the rest of this test runs.
my $mute = PostgreSQL::Test::Utils::tempdir_short();
my $speaker = IO::Socket::UNIX->new(Type => SOCK_STREAM, Local => "$mute/.s.PGSQL.5432", Listen => 5) or die "no socket: $!";
my $waits = IPC::Run::start([ fleet_command('add', 's9', "host=$mute port=5432 dbname=postgres", '--dry-run') ], '>&', \my $given_up, IPC::Run::timeout(1200));
my $let_in = $speaker->accept;
sysread $let_in, my $hello, 10_000;
syswrite $let_in, pack('aNN aNa', 'R', 8, 0, 'Z', 5, 'I');

# Only we have the password of s1's role: another server is told not to reach it, and which.
$s1->safe_psql('postgres', q{CREATE ROLE pw SUPERUSER LOGIN PASSWORD 'secret'});
my $hba = slurp_file($s1->data_dir . '/pg_hba.conf');
unlink $s1->data_dir . '/pg_hba.conf';
append_to_file($s1->data_dir . '/pg_hba.conf', "local all pw scram-sha-256\n$hba");
$s1->reload;
{
	local $ENV{PGPASSWORD} = 'secret';
	fleet_ok([ 'add', 's1', home_of($s1) . ' user=pw' ], 0, 'add s1');
	my $told = fleet_ok([ 'add', 's2', home_of($s2), '--dry-run' ], 0, 'what the new one does not reach', qr/^warning +s2 does not reach s1: .*password.*\n +There, .* this must work: psql -d '.*user=pw.*' -c ''; a password belongs into/m);
	unlike($told, qr/s1 does not reach s2/, '... the other way is open');
	is($s2->safe_psql('postgres', 'SELECT count(*) FROM pg_subscription'), 0, '... and the trial leaves nothing');
	fleet_ok([ 'add', 's1', home_of($s1) ], 0, 'another home, without a password');
	is($dir->safe_psql('postgres', q{SELECT count(*) FROM snowid.shard_registry WHERE home ~ 'user=pw'}), 0, '... which its shards have, too');
}

# No home holds one: it is refused, and told where it belongs.
fleet_ok([ 'add', 's2', $_ ], 2, "a password in a home: $_", qr/error: a home holds no password\n.*hint: .* in the password file of /) for home_of($s2) . q{ user=pw password='s3kret p'}, 'postgresql://pw:s3kret@127.0.0.1/postgres';

# A note.
my $said = fleet_ok([ 'add', 's2', home_of($s2), '--note', "rack 4\e[31m" ], 0, 'a note');
unlike($said, qr/does not reach/, '... all reach each other');
fleet_ok([ 'add', 's2', '--weight', '0.5' ], 0, 'again, without');
is($dir->safe_psql('postgres', q{SELECT weight FROM snowid.servers WHERE name = 's2'}), '0.5', '... the weight is changed');
fleet_ok([ 'add', 's2', '--weight', '1' ], 0, 'and back');
fleet_ok([ 'add', 's3', home_of($s3) ], 0, 'add s3');
$dir->wait_for_catchup("snowid_registry_$_", 'replay', $dir->lsn('insert')) for qw(s1 s2 s3);
$said = fleet_ok([ 'status' ], 0, 'the note is shown', qr/^s2 .* registry 0 bytes behind  \(rack 4\?\[31m\)$/m, qr/^s1 .* behind$/m);
my ($document) = decode_json((fleet('status', '--json'))[1]);
is($document->{servers}[1]{note}, "rack 4\e[31m", '... as JSON, too');

# A server has another address, and the old one leads nowhere: it is told what to type, for its shards, too.
$dir->safe_psql('postgres', q{UPDATE snowid.servers SET home = 'host=/nowhere dbname=postgres' WHERE name = 's1'; UPDATE snowid.shard_registry SET home = 'dbname=postgres host=/nowhere'});
$said = fleet_ok([ 'add', 's1', home_of($s1) ], 2, 'another address', qr/if s1 has another address now, at the directory: (UPDATE snowid.servers .*; UPDATE snowid.shard_registry .*;)\n/);
$dir->safe_psql('postgres', ($said =~ /at the directory: (UPDATE .*)/)[0]);
fleet_ok([ 'add', 's1' ], 0, '... which was right');
homes_ok({ s1 => 12 }, 'another address', %nodes);
$dir->wait_for_catchup("snowid_registry_$_", 'replay', $dir->lsn('insert')) for qw(s1 s2 s3);
fleet_ok([ 'status' ], 0, '... all is well');

# The address of another; a role that has lost its rights is not another server.
unlike(fleet_ok([ 'add', 's3', home_of($s2) ], 2, 'a server of another name', qr/that server is in the fleet, as s2\n.*Type: snowid-fleet status/), qr/UPDATE/, '... has no new address');
unlike(fleet_ok([ 'add', 's9', home_of($s2) ], 2, 'a new name for it', qr/that server is in the fleet, as s2\n/), qr/UPDATE/, '... nor has it one');
$s2->safe_psql('postgres', 'CREATE ROLE joe LOGIN');
$dir->safe_psql('postgres', q{UPDATE snowid.servers SET home = home || ' user=joe' WHERE name = 's2'});
fleet_ok([ 'add', 's2' ], 1, 'a role without rights', qr/role joe does not own the tables/);
fleet_ok([ 'add', 's2', home_of($s2) ], 0, '... another role of the same server');
$dir->safe_psql('postgres', 'CREATE ROLE joe LOGIN');
for my $command ([ 'balance' ], [ 'drain', 's1' ], [ 'add', 's1' ], [ 'retire', 's3' ])
{
	IPC::Run::run([ 'snowid-fleet', @$command, '--registry', home_of($dir) . ' user=joe' ], '>', \my $none, '2>', \my $why);
	is($? >> 8, 1, "a role without rights at the directory: $command->[0]");
	like($why, qr/role joe may not change the fleet at the directory\n.*hint: As a superuser, type there: GRANT/, '... is told');
}

# Each right that is missing is named, one by one, and a server is added with these.
$dir->safe_psql('postgres', 'GRANT INSERT ON snowid.fleet_moves TO joe; GRANT UPDATE, DELETE ON snowid.servers TO joe');
my $as_joe = sub { IPC::Run::run([ 'snowid-fleet', @_, '--registry', home_of($dir) . ' user=joe' ], '>&', \my $what); return $what };
my $what = $as_joe->('add', 's1');
like($what, qr/type there: (GRANT UPDATE ON snowid\.fleet_moves TO joe; GRANT INSERT ON snowid\.servers TO joe; GRANT INSERT, UPDATE ON snowid\.shard_registry TO joe; ALTER ROLE joe REPLICATION;)$/m, 'what the role lacks');
$dir->safe_psql('postgres', ($what =~ /type there: (.*)$/m)[0] // '');
$dir->safe_psql('postgres', 'GRANT SELECT ON snowid.moves TO joe; ALTER PUBLICATION shard_registry DROP TABLE snowid.poolers');
$what = $as_joe->('add', 's1', home_of($s1));
like($what, qr/error: the directory does not publish the registry: must be owner of .*\n.*hint: As a superuser, type there: (ALTER PUBLICATION .*;)$/m, '... nor may it publish');
$dir->safe_psql('postgres', ($what =~ /type there: (.*)$/m)[0] // '');
like($as_joe->('add', 's1', home_of($s1)), qr/^snowid-fleet: s1 is in the fleet;/m, '... with these it may');
$dir->safe_psql('postgres', q{REVOKE INSERT ON snowid.servers FROM joe});
like($as_joe->('balance'), qr/type there: GRANT INSERT ON snowid\.servers TO joe;$/m, '... but not with one less');
fleet_ok([ 'status', '--period', $_ ], 2, "period $_", qr/invalid value "$_" for option --period/) for 'soon', '-1 s', '0', '2 hours';

# What is published with the registry is to be read by it, too; and by the role of a server's subscription, which add waits for.
$_->safe_psql('postgres', 'CREATE TABLE public.zones (name text PRIMARY KEY)') for $dir, $s1, $s2, $s3;
$dir->safe_psql('postgres', q{GRANT INSERT ON snowid.servers TO joe; INSERT INTO public.zones VALUES ('a'); ALTER PUBLICATION shard_registry ADD TABLE public.zones});
$what = $as_joe->('add', 's1');
like($what, qr/role joe may not change .*\n.*type there: (GRANT USAGE ON SCHEMA public TO joe; GRANT SELECT ON public\.zones TO joe;)$/m, 'a role that may not read a shared table');
fleet_ok([ 'add', $_ ], 0, 'a superuser may') for qw(s1 s2 s3);
is($s1->safe_psql('postgres', 'SELECT name FROM public.zones'), 'a', '... whose rows are there, once it has ended');
$dir->safe_psql('postgres', 'CREATE ROLE registry LOGIN REPLICATION; GRANT USAGE ON SCHEMA snowid TO registry; CREATE TABLE public.late (name text PRIMARY KEY); INSERT INTO public.late VALUES (1); ALTER PUBLICATION shard_registry ADD TABLE public.late');
$_->safe_psql('postgres', 'CREATE TABLE public.late (name text PRIMARY KEY)') for $s1, $s2, $s3;
$dir->safe_psql('postgres', 'CREATE TABLE public.slow (n int PRIMARY KEY); INSERT INTO public.slow SELECT generate_series(1, 14); ALTER PUBLICATION shard_registry ADD TABLE public.slow');
$_->safe_psql('postgres', 'CREATE TABLE public.slow (n int PRIMARY KEY)') for $s1, $s2, $s3;
$s2->safe_psql('postgres', q{CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.9); RETURN NEW; END';
	CREATE TRIGGER slow BEFORE INSERT ON public.slow FOR EACH ROW EXECUTE FUNCTION slow(); ALTER TABLE public.slow ENABLE ALWAYS TRIGGER slow});
fleet_ok([ 'add', 's2' ], 0, 'a table that comes slowly');
is($s2->safe_psql('postgres', 'SELECT count(*) FROM public.slow'), 14, '... is waited for');
$s2->safe_psql('postgres', 'DROP TRIGGER slow ON public.slow');
my @through = ('add', 's1', '--directory-for-servers', home_of($dir) . ' user=registry');
$what = fleet_ok([@through], 1, 'a table that does not come', qr/error: s1 follows the directory, but does not get all of public\.late, public\.slow: [1-9]\d* errors so far\n.*hint: At the directory, as a superuser, type: GRANT .* And then the same command again\.$/m);
fleet_ok([ 'status' ], 1, '... status tells of it', qr/^FAILED .* has not yet got all of public\.late, public\.slow from the directory type: snowid-fleet add s1 --registry '/m);
$dir->safe_psql('postgres', ($what =~ /superuser, type: (GRANT .*;) And then/)[0] // '');
fleet_ok([@through], 0, '... and comes with what was typed');
is($s1->safe_psql('postgres', 'SELECT name FROM public.late'), 1, '... all of it');
$s1->safe_psql('postgres', 'TRUNCATE public.late; ALTER TABLE public.late ADD needed int NOT NULL');
$s1->safe_psql('postgres', 'ALTER SUBSCRIPTION snowid_registry_s1 DISABLE; ALTER SUBSCRIPTION snowid_registry_s1 SET (slot_name = NONE); DROP SUBSCRIPTION snowid_registry_s1; TRUNCATE public.zones, public.slow');
fleet_ok([@through], 1, 'a table that does not come to a new subscription', qr/does not get all of public\.late: [1-9]\d* errors so far\n.*hint: For the reason, see the log of the server of s1; then type the same/m);
$s1->safe_psql('postgres', 'ALTER TABLE public.late DROP needed');
fleet_ok([ 'add', $_ ], 0, 'and then it comes') for qw(s1 s2 s3);
$dir->safe_psql('postgres', 'ALTER TABLE public.late ADD more int');
fleet_ok([ 'add', 's1' ], 1, 'a column that is not there', qr/^FAILED +table public\.late lacks column more of the directory's\n +Add it/m);
$_->safe_psql('postgres', 'ALTER TABLE public.late ADD more int') for $s1, $s2, $s3;

# To read a shared table runs what is constant in indexes of its owner, or of a table that it is part of, as the superuser who adds: so
# such an owner is refused, or trusted.  What the owner of a type has made of it never runs.
$_->safe_psql('postgres', q{CREATE ROLE app; GRANT CREATE ON SCHEMA public TO app; SET ROLE app; CREATE TYPE public.kind AS ENUM ('a', 'b');
	CREATE FUNCTION public.note() RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$BEGIN RAISE LOG 'RAN as %', current_user; RETURN 1; END$$;
	CREATE FUNCTION public.of_kind(public.kind) RETURNS json IMMUTABLE LANGUAGE sql AS 'SELECT to_json(public.note())';
	CREATE CAST (public.kind AS json) WITH FUNCTION public.of_kind(public.kind); RESET ROLE; CREATE TABLE public.kinds (kind public.kind PRIMARY KEY)}) for $dir, $s1, $s2, $s3;
$dir->safe_psql('postgres', q{INSERT INTO public.kinds VALUES ('a'); ALTER PUBLICATION shard_registry ADD TABLE public.kinds});
my $superuser = $dir->safe_psql('postgres', 'SELECT current_user');
my ($planted, $taken_back) = ('OWNER TO app; SET ROLE app; CREATE INDEX planted ON public', 'OWNER TO CURRENT_USER; DROP INDEX public.planted');
for my $case ([ 'a new one', $s1, 'kinds' ], [ 'the directory', $dir, 'zones' ], [ 'a part', $s2, 'all_zones',
	'CREATE TABLE public.all_zones (name text) PARTITION BY LIST (name); ALTER TABLE public.all_zones ATTACH PARTITION public.zones DEFAULT' ])
{
	my ($name, $node, $table, $before) = @$case;
	my $added = $node == $s2 ? 's2' : 's1';
	my $ran = sub { return slurp_file($node->logfile, $_[0]) =~ /RAN as \Q$superuser\E$/m };
	$node->safe_psql('postgres', ($before // 'SELECT') . "; ALTER TABLE public.$table $planted.$table ((public.note()))");
	my $since = -s $node->logfile;
	fleet_ok([ 'add', $added ], 1, "an owner who is no superuser: $name",
		qr/^FAILED +public\.(?:$table|zones) is not read: app owns it, its schema, or what its indexes call, and is no superuser\n +If you trust that role with both servers, say so: --trust-owners\.$/m, qr/nothing was changed/);
	ok(!$ran->($since), '... and nothing of his has run');
	fleet_ok([ 'add', $added, '--trust-owners' ], 0, '... but if he is trusted');
	ok($ran->($since), '... as it would have');
	$node->safe_psql('postgres', "ALTER TABLE public.$table $taken_back");
	$since = -s $node->logfile;
	fleet_ok([ 'add', $added ], 0, '... nor is a superuser refused');
	ok(!$ran->($since), '... when nothing runs');
	$node->safe_psql('postgres', 'ALTER TABLE public.all_zones DETACH PARTITION public.zones; DROP TABLE public.all_zones') if $table eq 'all_zones';
}
# He needs no index there yet.
$s2->safe_psql('postgres', 'CREATE TABLE public.all_zones (name text) PARTITION BY LIST (name); ALTER TABLE public.all_zones ATTACH PARTITION public.zones DEFAULT; ALTER TABLE public.all_zones OWNER TO app');
fleet_ok([ 'add', 's2' ], 1, 'an owner of what it is part of', qr/^FAILED +public\.all_zones is not read: app owns it/m);
$s2->safe_psql('postgres', 'ALTER TABLE public.all_zones DETACH PARTITION public.zones; DROP TABLE public.all_zones');
$dir->safe_psql('postgres', 'ALTER PUBLICATION shard_registry DROP TABLE public.late');
$s3->safe_psql('postgres', 'ALTER TABLE public.late OWNER TO app');
fleet_ok([ 'add', 's3' ], 1, 'of one that is only subscribed to', qr/^FAILED +public\.late is not read: app owns it/m);
$s3->safe_psql('postgres', 'ALTER TABLE public.late OWNER TO CURRENT_USER');

# A home that a terminal would obey.
$dir->safe_psql('postgres', q{INSERT INTO snowid.shard_registry (shard, schema, home) VALUES (99, 'gone', E'host=/nowhere\x1b]0;x\x07\u009b31m dbname=y')});
for my $command ([ 'status' ], [ 'balance', '--dry-run' ])
{
	$said = fleet_ok($command, 1, "a home with control characters: @$command", qr{/nowhere\?\]0;x\?});
	unlike($said, qr/[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]/, '... none is printed');
}
$dir->safe_psql('postgres', 'DELETE FROM snowid.shard_registry WHERE shard = 99');
my $own = $s1->safe_psql('postgres', q{SELECT schema FROM snowid.shards WHERE lives = 'here' LIMIT 1});
$s1->safe_psql('postgres', qq{CREATE ROLE "a\e[31m"; GRANT USAGE ON SCHEMA $own TO "a\e[31m"});
unlike(fleet_ok([ 'add', 's2' ], 0, 'a role with control characters', qr/are not there: a\?\[31m/m), qr/\e/, '... none is printed');
$s1->safe_psql('postgres', qq{DROP OWNED BY "a\e[31m"; DROP ROLE "a\e[31m"});

# Nor of what a server says.
my $publisher = "host=/nowhere\e]0;x\a\xc2\x9b31m port=1 dbname=y";
unlike(fleet_ok([ 'add', 's3', '--directory-for-servers', $publisher ], 1, 'a message with control characters', qr{error: .*/nowhere\?\]0;x\?\?\?31m}), qr/[\e\a]|\xc2\x9b/, '... none is printed');
my $audited = '';
for (my $tries = 0; $audited !~ /is not at work/ && $tries < 600; $tries++)
{
	IPC::Run::run([ 'snowid-move', 'audit', '--registry', home_of($dir) ], '>&', \$audited);
}
like($audited, qr/^FAILED +subscription snowid_registry_s3 of .*, to the registry, is not at work\n +type: snowid-fleet add s3 --registry '/m, '... what audit says to type');
fleet_ok([ 'add', 's3' ], 0, '... and back');

# A server that lets a client in, and goes away at the first query: there is no connection, as with one that is down.
my $flaky = PostgreSQL::Test::Utils::tempdir_short();
my $listener = IO::Socket::UNIX->new(Type => SOCK_STREAM, Local => "$flaky/.s.PGSQL.5432", Listen => 5) or die "no socket: $!";
my $server = fork // die "no fork: $!";
alarm 60 if $server == 0;
while ($server == 0 && (my $here = $listener->accept))
{
	sysread $here, my $startup, 10_000;
	syswrite $here, pack('aNN aNa', 'R', 8, 0, 'Z', 5, 'I');
	sysread $here, my $query, 10_000;
	close $here;
}
fleet_ok([ 'add', 's9', "host=$flaky port=5432 dbname=postgres" ], 2, 'a server that ends the session', qr/error: s9: (it answers: )?server closed the connection unexpectedly$/m);
IPC::Run::run([ 'snowid-fleet', 'status', '--registry', "host=$flaky port=5432 dbname=postgres" ], '>&', \$said);
is($? >> 8, 2, '... as the directory, too') or diag $said;
like($said, qr/error: registry: server closed the connection unexpectedly$/m, '... which is said');
kill 'KILL', $server;
waitpid $server, 0;

# A rule that names nobody, among others.
$dir->safe_psql('postgres', q{INSERT INTO snowid.placements VALUES ('{[0,3]}', 'only', '{s1,s33,s2,x}'), ('{[4,5]}', 'only', '{s1}')});
$said = fleet_ok([ 'balance', '--dry-run' ], 0, 'a rule with a wrong name', qr/^the fleet has no s33, x, which the rule "only" of shards \{\[0,4\)\} names$/m);
is(() = $said =~ /the fleet has no/g, 1, '... only that');
$dir->safe_psql('postgres', 'TRUNCATE snowid.placements');

# Ctrl-C while a server does not answer.
my $path = PostgreSQL::Test::Utils::tempdir_short();
my $silent = IO::Socket::UNIX->new(Type => SOCK_STREAM, Local => "$path/.s.PGSQL.5432", Listen => 5) or die "no socket: $!";
$dir->safe_psql('postgres', qq{INSERT INTO snowid.servers (name, home) VALUES ('silent', 'host=$path port=5432 dbname=postgres')});
my ($out, $err) = ('', '');
my $run = IPC::Run::start([ fleet_command('drain', 's1') ], '>', \$out, '2>', \$err);
my $client = $silent->accept;
sysread $client, my $startup, 1 or die 'it says nothing';
my $start = time;
$run->signal('INT');
$run->finish;
is($run->result(0), 3, 'Ctrl-C while a server does not answer');
like($err, qr/interrupted while the servers were asked\n.*hint: .*same command again/, '... is told as what it is');
unlike($err, qr/no answer|silent/, '... and not as a fault of the server');
cmp_ok(time - $start, '<', 15, '... at once');
is($dir->safe_psql('postgres', q{SELECT string_agg(state, ' ') FROM snowid.servers WHERE name = 's1'}), 'open', '... and nothing is begun');
$dir->safe_psql('postgres', q{DELETE FROM snowid.servers WHERE name = 'silent'});
close $silent;

# A server is in one move at a time, unless more are wanted.
my $together = q{SELECT count(*) FROM snowid.fleet_moves a JOIN snowid.fleet_moves b ON b.at > a.at AND b.at < a.at + a.seconds * interval '1 s'
	AND ARRAY(SELECT (regexp_matches(a.source || a.target, 'port=\'?(\d+)', 'g'))[1]) && ARRAY(SELECT (regexp_matches(b.source || b.target, 'port=\'?(\d+)', 'g'))[1])} =~ s/\\'/''/gr;
fleet_ok([ 'balance', '--by', 'shards' ], 0, 'to two servers', qr/^2 jobs/m);
homes_ok({ s1 => 4, s2 => 4, s3 => 4 }, 'balanced', %nodes);
is($dir->safe_psql('postgres', 'SELECT count(*) FROM snowid.fleet_moves'), 2, 'two jobs of one server');
is($dir->safe_psql('postgres', $together), 0, '... one after the other');
my $holder = $s1->background_psql('postgres');
$holder->query_safe(q{BEGIN; DO $$ BEGIN EXECUTE (SELECT string_agg(format('LOCK TABLE %I.t IN ROW EXCLUSIVE MODE', schema), ';') FROM snowid.shards WHERE lives = 'here'); END $$});
$run = IPC::Run::start([ fleet_command('drain', 's1', '--at-once', 2, '--', '--lock-timeout', 200_000, '--pause-limit', 200_000, '--verify', 'none') ], '>', \$out, '2>', \$err);
ok($s1->poll_query_until('postgres', q{SELECT count(DISTINCT details ->> 'move_id') = 2 FROM snowid.moves WHERE step IN ('copied', 'verified')}), 'two at once, if they are wanted') or diag $err;
my @stats = map { [ split / /, slurp_file("/proc/$_/stat") =~ s/.*\) //sr ] } grep { -e "/proc/$_/stat" } split ' ', slurp_file("/proc/$run->{KIDS}[0]{PID}/task/$run->{KIDS}[0]{PID}/children");
is(scalar(grep { $_->[2] == getpgrp } @stats), 0, '... in groups of their own, so that Ctrl-C does not reach them');
$holder->query_safe('ROLLBACK');
$holder->quit;
$run->finish;
is($run->result(0), 0, '... are done') or diag $err;
homes_ok({ s1 => 0, s2 => 6, s3 => 6 }, 'drained', %nodes);
is($dir->safe_psql('postgres', $together), 1, '... together');
fleet_ok([ 'drain', 's1', '--at-once', 0 ], 2, 'none at once', qr/at-once/);

# Copies that are kept forbid to retire a server, and each message leads on to the next.
my $status = qr/s2 has only closed copies; to see what ends each, type: snowid-fleet status --registry '/;
fleet_ok([ 'drain', 's2', '--keep' ], 0, 'copies are kept', $status);
fleet_ok([ 'drain', 's2' ], 0, '... also by the next', $status);
$dir->wait_for_catchup("snowid_registry_$_", 'replay', $dir->lsn('insert')) for qw(s1 s2 s3);
fleet_ok([ 'status' ], 0, '... which is no fault', qr/^copy +of shards [\d,]+ at s2, closed since .*, kept; to drop it, type: snowid-move finish /m);
fleet_ok([ 'drain', 's3' ], 1, '... nor are the shards moved on before it ends', qr/^insta\d+ stays at s3: an earlier move of it has not ended$/m, qr/^to end the earlier move of shards ([\d,]+), type: snowid-move finish --shard \1 --from 's2' --to 's3' --registry '/m,
	qr/nothing was changed\n.*hint: First end the moves that are named above\.$/m);
fleet_ok([ 'retire', 's2' ], 1, '... so it is not retired', qr/moves of 6 shards are not finished there.*\n.*hint: To see what ends each, type: snowid-fleet status --registry '/);
($out) = (fleet('drain', 's3'))[1];
system('sh', '-c', "$_ 2>/dev/null") == 0 or fail($_) for $out =~ /type: (snowid-move finish .*)$/mg;
is($_->safe_psql('postgres', 'SELECT count(*) FROM snowid.moves'), 0, '... which what is told ends') for $s2, $s3;
$dir->safe_psql('postgres', q{INSERT INTO snowid.placements VALUES ('{[0,3]}', 'only', '{s1,s2,s3}')});
$said = fleet_ok([ 'retire', 's2' ], 1, 'a rule names it', qr/hint: At the directory, type: UPDATE .*;$/m);
$dir->safe_psql('postgres', ($said =~ /type: (UPDATE .*;)$/m)[0] // '');
like($dir->safe_psql('postgres', q{SELECT servers FROM snowid.placements}), qr/^\{s1,s3\}$/, '... and then does not');

# A connection string with quotes, as a shell takes it.
my $quoted = home_of($dir) . q{ passfile='/it\'s so'};
IPC::Run::run([ 'snowid-fleet', 'drain', 's2', '--registry', $quoted ], '>&', \$said);
like($said, qr/type: snowid-fleet retire s2 /, 'a registry with quotes');
system('sh', '-c', ($said =~ /type: (snowid-fleet retire .*)$/m)[0] . ' 2>/dev/null');
is($?, 0, '... can be typed');
is($dir->safe_psql('postgres', q{SELECT count(*) FROM snowid.servers WHERE name = 's2'}), 0, '... and s2 is retired');

# So it is for the directory's own server, which has no name, and for poolers.
$dir->safe_psql('postgres', q{SELECT snowid.create_shard(50); CREATE TABLE insta50.t (id bigint PRIMARY KEY); INSERT INTO snowid.poolers VALUES ('host=/nowhere user=''a b''')});
moves_ok($dir, $s1, 50, [ '--stop-after', 'copied', '--registry', home_of($dir) ], 0, 'a move from the directory');
my $asked = sub { IPC::Run::run([ 'snowid-fleet', 'status', '--registry', $quoted ], '>', \$said, '2>', \$err); return ($said =~ /type: (snowid-move move .*)$/m)[0] // '' };
like($asked->(), qr{ --pooler 'host=/nowhere user='\\''a b'\\''' --pooler-file PATH$}, 'a console with quotes');
$dir->safe_psql('postgres', 'TRUNCATE snowid.poolers');
is(system('sh', '-c', $asked->() . ' 2>/dev/null'), 0, '... and the move can be typed') or diag $said, $err;

$waits->finish;
is($waits->result(0), 2, 'a server that says nothing') or diag $given_up;
like($given_up, qr/^snowid-fleet: error: s9: no answer in 20 s$/m, '... is given up');

$_->stop for $dir, values %nodes;
done_testing();
