# When snowid-fleet begins a move and when not: --until, --max-lag, Ctrl-C, a shard that cannot move, a server that
# is full, a load that is of inserts; and the time that it foretells from the last moves.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use FleetTest;
use IPC::Run ();
use JSON::PP;
use POSIX 'strftime';
use MoveTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(usleep);

my ($dir, $s1, $s2, $s3) = fleet_nodes(qw(s1 s2 s3));
my %nodes = (s1 => $s1, s2 => $s2, s3 => $s3);
$s1->safe_psql('postgres', q{CALL snowid.create_shards(0, 7, ddl => 'CREATE TABLE t (id bigint PRIMARY KEY DEFAULT next_id(), pad text); INSERT INTO t (pad) SELECT repeat(''x'', 100) FROM generate_series(1, 500)')});

# Settings that moves need.
if ($s3->safe_psql('postgres', 'SHOW server_version_num') < 190000)
{
	$s3->append_conf('postgresql.conf', "wal_level = replica\nmax_replication_slots = 3");
	$s3->restart;
	fleet_ok([ 'add', 's3', home_of($s3) ], 1, 'wal_level', qr/FAILED +wal_level is replica\n.*ALTER SYSTEM SET wal_level = logical/, qr/^warning +max_replication_slots is 3; moves need some\n.*ALTER SYSTEM SET max_replication_slots = 10;/m);
	$s3->append_conf('postgresql.conf', "wal_level = logical\nmax_replication_slots = 10");
	$s3->restart;
}
$s1->safe_psql('postgres', 'CREATE ROLE app; GRANT SELECT ON insta0.t TO app; CREATE ROLE backups');
fleet_ok([ 'add', 's1', home_of($s1) ], 0, 'add s1');
fleet_ok([ 'add', 's2', home_of($s2) ], 0, 'add s2', qr/^warning +roles of shards of other servers are not there: app$/m);
$_->safe_psql('postgres', 'CREATE ROLE app') for $s2, $s3;

# The time that it takes, by the last moves; and --until, which nothing can meet then.
$dir->safe_psql('postgres', q{INSERT INTO snowid.fleet_moves (shards, source, target, bytes, seconds, outcome) VALUES ('1', 'x', 'y', 1000, 100000, 'finished')});
my $said = fleet_ok([ 'balance', '--dry-run' ], 0, 'the time is known', qr/^1 jobs, \d+ kB, about \d{5,} s$/m);
fleet_ok([ 'balance', '--until', '06:00' ], 1, 'until', qr/not begun, to be done at 06:00/, qr/1 job was not done\n.*same command again/);
fleet_ok([ 'balance', '--until', 'dawn' ], 2, 'no time', qr/invalid value "dawn" for option --until: it must be HH:MM/);
homes_ok({ s1 => 8, s2 => 0 }, 'nothing has moved', s1 => $s1, s2 => $s2);

# What small ones have taken says nothing of a byte, and one that was large does.
$dir->safe_psql('postgres', q{TRUNCATE snowid.fleet_moves; INSERT INTO snowid.fleet_moves (shards, source, target, bytes, seconds, outcome) VALUES ('1', 'x', 'y', 1000, 10, 'finished')});
fleet_ok([ 'balance', '--dry-run' ], 0, 'after a small one', qr/^1 jobs, \d+ kB, about 10 s$/m);
$dir->safe_psql('postgres', q{INSERT INTO snowid.fleet_moves (shards, source, target, bytes, seconds, outcome) VALUES ('1', 'x', 'y', 64e6, 64000, 'finished')});
fleet_ok([ 'balance', '--dry-run' ], 0, 'after a large one', qr/^1 jobs, \d+ kB, about \d{3,} s$/m);

# What takes ten hours does not begin for a time in two hours.
$dir->safe_psql('postgres', 'TRUNCATE snowid.fleet_moves; INSERT INTO snowid.fleet_moves (shards, source, target, bytes, seconds, outcome) VALUES (\'1\', \'x\', \'y\', '
	  . $s1->safe_psql('postgres', q{SELECT max(bytes) FROM snowid.shard_load()}) . q{, 36000, 'finished')});
my $soon = strftime('%H:%M', localtime(time + 2 * 3600));
fleet_ok([ 'balance', '--max-moves', 1, '--until', $soon ], 1, 'until soon', qr/not begun, to be done at $soon/);
homes_ok({ s1 => 8, s2 => 0 }, 'nothing has moved', s1 => $s1, s2 => $s2);
{
	# Half an hour before the clock is put back by one: what was a quarter ago comes again, what is in a quarter comes
	# first, and what was two hours ago comes tomorrow.
	my ($sec, $min, $hour, $day) = (gmtime)[ 0 .. 2, 7 ];
	local $ENV{TZ} = sprintf 'AAA0BBB-1,%d,%d/%d:%02d', ($day + 180) % 365, $day, $hour + 1 + ($min + 30) / 60, ($min + 30) % 60;
	my ($before, $after, $long_ago) = map { strftime('%H:%M', gmtime(time + 3600 + 60 * $_)) } -15, 15, -120;
	fleet_ok([ 'balance', '--max-moves', 1, '--until', $before ], 1, 'an hour that comes twice', qr/not begun, to be done at $before/);
	$dir->safe_psql('postgres', 'UPDATE snowid.fleet_moves SET seconds = 1800');
	fleet_ok([ 'balance', '--max-moves', 1, '--until', $after ], 1, '... for the first time', qr/not begun, to be done at $after/);
	$dir->safe_psql('postgres', 'UPDATE snowid.fleet_moves SET seconds = 36000');
	{
		# It is put forward in half an hour: what would be in three quarters of one does not come, and is that time.
		local $ENV{TZ} = sprintf 'AAA0BBB-1,%d/%d:%02d,%d', $day, $hour + ($min + 30) / 60, ($min + 30) % 60, ($day + 180) % 365;
		my $skipped = strftime('%H:%M', gmtime(time + 60 * 45));
		fleet_ok([ 'balance', '--max-moves', 1, '--until', $skipped ], 1, 'an hour that does not come', qr/not begun, to be done at $skipped/);
	}
	fleet_ok([ 'balance', '--max-moves', 1, '--until', $long_ago ], 0, 'until tomorrow');
}
homes_ok({ s1 => 7, s2 => 1 }, 'one has moved', s1 => $s1, s2 => $s2);
$dir->safe_psql('postgres', 'TRUNCATE snowid.fleet_moves');

# A standby that lags is waited for; Ctrl-C ends the wait.  A role that may not see the lag is told what it needs.
$s1->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($s1, 'base', has_streaming => 1);
$standby->start;
$s1->safe_psql('postgres', 'CREATE TABLE public.filler (n int)');
lag_behind();
$s1->safe_psql('postgres', 'CREATE ROLE joe LOGIN; GRANT SELECT ON snowid.moves TO joe');
$dir->safe_psql('postgres', q{UPDATE snowid.servers SET home = home || ' user=joe' WHERE name = 's1'});
fleet_ok([ 'balance', '--by', 'shards', '--max-lag', '64kB', '--dry-run' ], 1, 'a role that may not see a lag', qr/the standbys of s1 .*; type there: GRANT pg_monitor TO joe;$/m);
fleet_ok([ 'balance', '--by', 'shards', '--dry-run' ], 0, '... which matters only then');
is(decode_json((fleet('status', '--json'))[1] =~ s/^(?!\{).*\n//mgr)->{servers}[0]{standby_lag}, undef, '... and is not zero');
$s1->safe_psql('postgres', 'GRANT pg_monitor TO joe');
fleet_ok([ 'balance', '--by', 'shards', '--max-lag', '64kB', '--dry-run' ], 0, 'it may');
$dir->safe_psql('postgres', q{UPDATE snowid.servers SET home = replace(home, ' user=joe', '') WHERE name = 's1'});
my ($out, $err) = ('', '');
my $run = IPC::Run::start([ fleet_command('balance', '--max-lag', '64kB', '-v') ], '>', \$out, '2>', \$err, IPC::Run::timeout(120));
$run->pump until $err =~ /waiting for the standbys of s1/;
is($dir->safe_psql('postgres', 'SELECT count(*) FROM snowid.fleet_moves'), 0, 'nothing is begun while a standby lags');
$run->signal('INT');
$run->finish;
is($run->result(0) , 3, 'Ctrl-C ends it');
like($err, qr/no further move is begun; 0 are being ended/, '... and is told');

# So does --until, though it lags; and the server's end, of which the move tells.
($out, $err) = ('', '');
$run = IPC::Run::start([ fleet_command('balance', '--max-lag', '64kB', '--until', $soon) ], '>', \$out, '2>', \$err, IPC::Run::timeout(120));
$run->pump until $err =~ /waiting for the standbys of s1/;
$dir->safe_psql('postgres', q{INSERT INTO snowid.fleet_moves (shards, source, target, bytes, seconds, outcome) VALUES ('1', 'x', 'y', 1, 36000, 'finished')});
$run->finish;
is($run->result(0), 1, '--until ends it');
like($err, qr/not begun, to be done at $soon/, '... and is told');
$dir->safe_psql('postgres', 'TRUNCATE snowid.fleet_moves');
($out, $err) = ('', '');
$run = IPC::Run::start([ fleet_command('balance', '--max-lag', '64kB') ], '>', \$out, '2>', \$err, IPC::Run::timeout(120));
$run->pump until $err =~ /waiting for the standbys of s1/;
$s1->stop('immediate');
$run->finish;
is($run->result(0), 1, 'a server that is down is not waited for');
like($err, qr/not all of shards .* have moved/, '... and is told');
$s1->start;
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
$s1->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_replication WHERE application_name !~ '^snowid_'}) or die 'no standby';
lag_behind();
($out, $err) = ('', '');
$run = IPC::Run::start([ fleet_command('balance', '--max-lag', '64kB', '--max-moves', 1) ], '>', \$out, '2>', \$err, IPC::Run::timeout(120));
$run->pump until $err =~ /waiting for the standbys of s1/;
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
$run->finish;
is($run->result(0), 0, 'it goes on when the standby has followed');
homes_ok({ s1 => 6, s2 => 2 }, 'one more has moved', s1 => $s1, s2 => $s2);
$standby->stop;

# Ctrl-C while a move is under way: that one is ended.
my $holder = $s1->background_psql('postgres');
$holder->query_safe(q{BEGIN; DO $$ BEGIN PERFORM format('SELECT 1'); EXECUTE (SELECT string_agg(format('LOCK TABLE %I.t IN ROW EXCLUSIVE MODE', schema), ';') FROM snowid.shards WHERE lives = 'here'); END $$});
($out, $err) = ('', '');
$run = IPC::Run::start([ fleet_command('balance', '--', '--lock-timeout', 200_000, '--pause-limit', 200_000, '--verify', 'none') ], '>', \$out, '2>', \$err);
$s1->poll_query_until('postgres', q{SELECT count(*) > 0 FROM snowid.moves WHERE step IN ('copied', 'verified')}) or die 'no move';
$run->signal('INT');
$run->pump until $err =~ /1 are being ended/;
$holder->query_safe('ROLLBACK');
$holder->quit;
$run->finish;
is($run->result(0), 0, 'the move under way was ended') or diag $err;
homes_ok({ s1 => 4, s2 => 4 }, 'with all of its shards', s1 => $s1, s2 => $s2);

# One that may be nowhere else, and is most of all, is no measure for the others.
fleet_ok([ 'add', 's3', home_of($s3) ], 0, 'add s3');
my ($giant, @beside) = split /,/, $s1->safe_psql('postgres', q{SELECT string_agg(shard::text, ',') FROM snowid.shards WHERE lives = 'here'});
$s1->safe_psql('postgres', "INSERT INTO insta$giant.t (pad) SELECT repeat('x', 100) FROM generate_series(1, 50000)");
$dir->safe_psql('postgres', "INSERT INTO snowid.placements (shards, rule, servers) VALUES ('{[$giant,$giant]}', 'only', '{s1}'), ('{" . join(',', map { "[$_,$_]" } @beside) . "}', 'stay', NULL)");
fleet_ok([ 'balance', '--dry-run' ], 0, 'a giant', qr/^s2 -> s3: .*, shards \d,\d$/m);
$dir->safe_psql('postgres', q{TRUNCATE snowid.placements; UPDATE snowid.servers SET state = 'full' WHERE name = 's3'});

# A shard that cannot move stops only itself.
my $bad = (split /,/, $s2->safe_psql('postgres', q{SELECT string_agg(shard::text, ',') FROM snowid.shards WHERE lives = 'here'}))[0];
$s2->safe_psql('postgres', "CREATE TABLE insta$bad.without_key (n int)");
fleet_ok([ 'drain', 's2' ], 1, 'one fails', qr/FAILED +replica identity/, qr/not all of shards .* have moved; snowid-move ended with exit status 1/, qr/finished, as far as they have moved/, qr/s2 stays draining/);
homes_ok({ s1 => 7, s2 => 1 }, 'the others have moved', s1 => $s1, s2 => $s2);
$s2->safe_psql('postgres', "ALTER TABLE insta$bad.without_key ADD PRIMARY KEY (n)");
fleet_ok([ 'drain', 's2' ], 0, 'the same command ends it');

# Nor does one that somebody changes on its way: its batch is finished, and what ends its move is said.
$dir->safe_psql('postgres', q{UPDATE snowid.servers SET state = CASE name WHEN 's2' THEN 'open' ELSE state END});
$_->safe_psql('postgres', q{CREATE FUNCTION public.hold(i int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock_shared(47); RETURN true; END'}) for $s1, $s2;
my @held = split /,/, $s1->safe_psql('postgres', q{SELECT string_agg(shard::text, ',') FROM snowid.shards WHERE lives = 'here'});
$s1->safe_psql('postgres', "CREATE TABLE insta$held[0].held (i int PRIMARY KEY CHECK (public.hold(i))); INSERT INTO insta$held[0].held VALUES (1)");
my $hold = $s2->background_psql('postgres');
$hold->query_safe('SELECT pg_advisory_lock(47)');
$said = '';
my $drain = IPC::Run::start([ fleet_command('drain', 's1') ], '>&', \$said, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
$s2->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND objid = 47 AND NOT granted}) or die 'is not held';
$s1->safe_psql('postgres', "ALTER TABLE insta$held[0].t ADD changed int");
$hold->quit;
$drain->finish;
is($drain->result(0), 1, 'one is changed on its way') or diag $said;
is($s1->safe_psql('postgres', q{SELECT string_agg(nspname, ' ') FROM pg_namespace WHERE nspname ~ '^insta'}), "insta$held[0]", 'the others are finished') or diag $said;
my ($abort) = $said =~ /(snowid-move abort .*)$/m;
isnt($abort, undef, '... and what ends its move is said') or diag $said;
is(system("$abort 2>/dev/null"), 0, '... which can be typed');
fleet_ok([ 'drain', 's1' ], 0, '... and then the same command again');
$dir->safe_psql('postgres', q{UPDATE snowid.servers SET state = 'open' WHERE name = 's1'});
fleet_ok([ 'drain', 's2' ], 0, 'and back');

# By inserts: the busy shard counts; a full server gets nothing.
$dir->safe_psql('postgres', q{UPDATE snowid.servers SET state = 'open' WHERE name = 's2'});
my $work = PostgreSQL::Test::Utils::tempdir();
append_to_file("$work/write", join('', map { "INSERT INTO insta$_.t DEFAULT VALUES;\nDO 'BEGIN PERFORM pg_sleep(0.01); END';\nSELECT pg_stat_force_next_flush();\n" } (0, 1) x 20_000));
my $writer = IPC::Run::start([ 'psql', '-XAtq', '-d', $s1->connstr('postgres'), '-f', "$work/write", '-o', '/dev/null' ]);
$s1->poll_query_until('postgres', q{SELECT count(*) = 2 FROM snowid.shard_load('0.5 s') WHERE inserts_per_second > 0}) or die 'nobody writes';
$said = fleet_ok([ 'balance', '--by', 'inserts', '--period', '3s', '--dry-run' ], 0, 'by inserts', qr/^s1 +#+ +100 % +#+ +\d\d %$/m, qr/^s3 +0 % +0 %$/m, qr/^s1 -> s2: .*, shards [01]$/m);
fleet_ok([ 'status', '--period', '1s' ], 0, 'inserts', qr{^s1 .* +[1-9]\d*/s  open}m, qr{^s2 +0 shards +0 bytes +0 rows .* open}m);
$writer->signal('KILL');
$writer->finish;

$_->stop for $dir, $s1, $s2, $s3;
done_testing();

# The standby stops where it is.
sub lag_behind
{
	$s1->wait_for_catchup($standby, 'replay', $s1->lsn('flush'));
	$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
	$standby->poll_query_until('postgres', q{SELECT pg_get_wal_replay_pause_state() = 'paused'}) or die 'replay goes on';
	$s1->safe_psql('postgres', 'INSERT INTO public.filler SELECT generate_series(1, 20000)');
	return;
}
