# A fleet of which something is wrong: settings, a directory that is full, a standby, or has lost its publication, a
# server that has lost the extension or was put back, a role without rights, a drain that nothing can take.  Each is
# told with what to type, nothing is half done, and what is typed helps.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use FleetTest;
use IO::Select;
use IO::Socket::UNIX;
use IPC::Run ();
use MoveTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my ($dir, $s1, $s2, $s3) = fleet_nodes(qw(s1 s2 s3));
my %nodes = (s1 => $s1, s2 => $s2, s3 => $s3);
my $table = q{CREATE TABLE t (id bigint PRIMARY KEY DEFAULT next_id(), pad text); INSERT INTO t (pad) SELECT repeat(''x'', 100) FROM generate_series(1, 500)};
$s1->safe_psql('postgres', "CALL snowid.create_shards(0, 4, ddl => '$table')");
my $new = $dir->safe_psql('postgres', 'SHOW server_version_num') >= 190000;

# Settings of a server, and of the directory: one that is too small forbids it, a small one is told.
my %needed = (max_replication_slots => 2, max_wal_senders => 2, max_logical_replication_workers => 2, max_worker_processes => 3);
my %small = ((map { ($_ => 3) } keys %needed), max_worker_processes => 3);
my %too_small = map { ($_ => $needed{$_} - 1) } keys %needed;
my $type = sub { qr/There, type: ALTER SYSTEM SET $_[0]; and restart it\./ };
for my $case ([ warning => \%small, 0 ], [ FAILED => \%too_small, 1 ])
{
	my ($severity, $settings, $code) = @$case;
	set($s3, %$settings);
	fleet_ok([ 'add', 's3', home_of($s3), '--dry-run' ], $code, "$severity: settings", map { my $is = "$_ is $settings->{$_}"; qr/^$severity +$is; moves need some\n +${\ $type->("$_ = 10")}/m } keys %needed);
}
set($s3, map { ($_ => 10) } keys %needed);
SKIP:
{
	skip 'each server has wal_level = logical when it is needed', 1 if $new;
	for my $node ($dir, $s3)
	{
		my $of = $node == $dir ? ' of the directory' : '';
		set($node, wal_level => 'replica');
		fleet_ok([ 'add', 's3', home_of($s3) ], 1, "wal_level$of", qr/^FAILED +wal_level$of is replica\n +${\ $type->('wal_level = logical')}/m, qr/nothing was changed/);
		set($node, wal_level => 'logical');
	}
}
set($dir, max_replication_slots => 1, max_wal_senders => 1);
fleet_ok([ 'add', 's1', home_of($s1) ], 1, 'a directory without room', map { qr/^FAILED +0 .* of its $_\n +${\ $type->("$_ = 10")}/m } 'max_replication_slots', 'max_wal_senders');
is($s1->safe_psql('postgres', q{SELECT count(*) FROM pg_trigger WHERE tgname = 'directory_is_right'}), 0, '... and nothing is touched');
set($dir, max_replication_slots => 20, max_wal_senders => 20);
fleet_ok([ 'add', 's1', home_of($s1), '--weight', $_ ], 2, "weight $_", qr/invalid value "\Q$_\E" for option --weight/) for '1.2.3', 'Infinity', '9' x 400;

# A directory that has lost its publication, and shards have changed since: the same command has a server follow again.
fleet_ok([ 'add', 's1', home_of($s1) ], 0, 'add s1');
$dir->safe_psql('postgres', 'DROP PUBLICATION shard_registry');
fleet_ok([ 'status' ], 1, 'no publication', qr/^s1 .* registry NOT FOLLOWED: type: snowid-fleet add s1 --registry '.*'$/m);
$dir->safe_psql('postgres', q{UPDATE snowid.shard_registry SET pool = 'changed' WHERE shard = 0; INSERT INTO snowid.shard_registry (shard, schema, home) SELECT 5, 'insta5', home FROM snowid.servers WHERE name = 's1'});
$s1->safe_psql('postgres', "CALL snowid.create_shards(5, 5, ddl => '$table')");

# Before 18 its slot has stopped.
fleet_ok([ 'add', 's1' ], 0, 'it follows again', $s1->pg_version < 18 ? qr/begins anew/ : ());
my $follows = q{SELECT pool = 'changed' FROM snowid.shard_registry WHERE shard = 0};
ok($s1->poll_query_until('postgres', $follows), '... with what was changed');
$dir->wait_for_catchup('snowid_registry_s1', 'replay', $dir->lsn('insert'));
fleet_ok([ 'status' ], 0, 'all is well');

# A server with another version of the extension.
my $comment = $s3->safe_psql('postgres', q{SELECT obj_description('snowid.version()'::regprocedure)});
$s3->safe_psql('postgres', q{COMMENT ON FUNCTION snowid.version() IS 'version 0.9'});
fleet_ok([ 'add', 's3', home_of($s3) ], 2, 'another version', qr/s3 has snowid 0\.9, and this is snowid-fleet 1\.0\n.*ALTER EXTENSION snowid UPDATE;/);
$s3->safe_psql('postgres', "COMMENT ON FUNCTION snowid.version() IS '$comment'");

# The only server, and what others may not take: it is not drained, nor marked so.
my $state = sub { $dir->safe_psql('postgres', q{SELECT string_agg(name || ' ' || state, ', ' ORDER BY name) FROM snowid.servers}) };
fleet_ok([ 'drain', 's1', @$_ ], 1, "the only server @$_", qr/^insta1 stays at s1: no server may take it/m, @$_ ? () : qr/6 pools have to stay; nothing was changed\n.*hint: .*snowid-fleet add NAME HOME/) for ['--dry-run'], [];
is($state->(), 's1 open', '... it is as it was');
fleet_ok([ 'add', 's2', home_of($s2) ], 0, 'add s2');
for my $case ([ 'a full one', q{UPDATE snowid.servers SET state = 'full' WHERE name = 's2'}, q{UPDATE snowid.servers SET state = 'open'} ],
	[ 'all are pinned', q{INSERT INTO snowid.placements VALUES ('{[0,5]}', 'stay')}, 'TRUNCATE snowid.placements' ])
{
	my ($name, $do, $undo) = @$case;
	$dir->safe_psql('postgres', $do);
	my $before = $state->();
	fleet_ok([ 'drain', 's1' ], 1, $name, qr/6 pools have to stay; nothing was changed/);
	is($state->(), $before, '... it is as it was');
	$dir->safe_psql('postgres', $undo);
}

# Limits, and shards that are to be apart, kept on servers.
fleet_ok([ 'add', 's3', home_of($s3) ], 0, 'add s3');
my $size = $s1->safe_psql('postgres', q{SELECT max(bytes) FROM snowid.shard_load()});
fleet_ok([ 'balance', '--max-bytes', int(2.5 * $size / 1024) . 'kB' ], 0, 'at most two of them', qr/^[12] jobs/m);
homes_ok({ s1 => 4 }, 'no more bytes than that', %nodes);
fleet_ok([ 'balance', '--max-bytes', $_ ], 2, "no bytes at all: $_", qr/invalid value "0" for option --max-bytes/) for '0', '0GB';

# Of the four that are left, the first two would go.
my @apart = (split /,/, $s1->safe_psql('postgres', q{SELECT string_agg(shard::text, ',' ORDER BY shard) FROM snowid.shards WHERE lives = 'here'}))[ 1 .. 3 ];
$dir->safe_psql('postgres', "INSERT INTO snowid.placements VALUES (int4multirange(" . join(', ', map { "'[$_,$_]'" } @apart) . "), 'apart')");
fleet_ok([ 'balance', '--by', 'shards' ], 0, 'three that are to be apart');
homes_ok({ s1 => 2, s2 => 2, s3 => 2 }, 'apart', %nodes);
is($dir->safe_psql('postgres', "SELECT count(DISTINCT substring(home FROM 'port=.?(\\d+)')) FROM snowid.shard_registry WHERE shard IN (" . join(', ', @apart) . ')'), 3, 'each is on a server of its own');
$dir->safe_psql('postgres', 'TRUNCATE snowid.placements');

# A role that may not read: what is missing, and what to type, which helps.
$s2->safe_psql('postgres', 'CREATE ROLE "J oe" LOGIN');
$dir->safe_psql('postgres', q{UPDATE snowid.servers SET home = home || ' user=''J oe''' WHERE name = 's2'});
my $said = fleet_ok([ 'status' ], 1, 'a role without rights', qr/^s2 +\d shards  NOT KNOWN: permission denied for table moves; type there: (GRANT .*;)$/m);
unlike(fleet_ok([ $_, $_ eq 'retire' ? 's2' : () ], 1, "... nor $_", qr/s2 cannot be (retired|asked)/), qr/standby/, '... which is no reason to promote a standby') for 'retire', 'balance';
unlike($said, qr/standby/, '... as audit has it');
unlike(fleet_ok([ 'add', 's2', home_of($s3) ], 2, 'a wrong home for it'), qr/UPDATE/, '... is no new address');
$s2->safe_psql('postgres', ($said =~ /type there: (GRANT .*;)$/m)[0] // '');
fleet_ok([ 'balance', '--dry-run' ], 0, '... what was typed helps');
$dir->safe_psql('postgres', q{UPDATE snowid.servers SET home = replace(home, ' user=''J oe''', '') WHERE name = 's2'});

# Nor is one down that wants a password, or that several hosts lead to.
$s2->safe_psql('postgres', 'CREATE ROLE closed; CREATE ROLE guarded LOGIN');
my $hba = slurp_file($s2->data_dir . '/pg_hba.conf');
unlink $s2->data_dir . '/pg_hba.conf';
append_to_file($s2->data_dir . '/pg_hba.conf', "local all guarded scram-sha-256\n$hba");
$s2->reload;
for my $home (home_of($s2) . ' user=guarded', home_of($s2) =~ s/host=(\S+) port=(\d+)/host=$1,$1 port=$2,1/r . ' user=closed')
{
	$dir->safe_psql('postgres', "UPDATE snowid.servers SET home = '$home' WHERE name = 's2'");
	unlike(fleet_ok([ 'status' ], 1, "a home as $home", qr/^s2 .*  NOT KNOWN: /m), qr/standby/, '... is of a server that is there');
}
$dir->safe_psql('postgres', "UPDATE snowid.servers SET home = '" . home_of($s2) . "' WHERE name = 's2'");

# At the directory, too.
$dir->safe_psql('postgres', 'CREATE ROLE joe LOGIN; REVOKE TEMP ON DATABASE postgres FROM PUBLIC');
for my $needs (qr/at the directory you may make no temporary tables\n.*hint: There, type: (GRANT .*;)$/m, qr/the directory cannot be asked what it has: .*; type there: (GRANT .*;)$/m, undef)
{
	IPC::Run::run([ 'snowid-move', 'audit', '--registry', home_of($dir) . ' user=joe' ], '>&', \$said);
	like($said, $needs, '... so audit') if $needs && $needs =~ /temporary/;
	IPC::Run::run([ 'snowid-fleet', 'status', '--registry', home_of($dir) . ' user=joe' ], '>&', \$said);
	is($? != 0, defined $needs || '', 'a role that may only look') or diag $said;
	next unless $needs;
	like($said, $needs, '... is told what it needs');
	$dir->safe_psql('postgres', ($said =~ $needs)[0] // '');
}

my $homes;

# A slot that a server has left behind; a home of two hosts, of which the first does not answer.
$dir->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('snowid_registry_gone', 'pgoutput')});
$said = fleet_ok([ 'status' ], 1, 'a slot of nobody', qr/^slot snowid_registry_gone of the directory is that of no server, and keeps .*; type there: (SELECT .*;)$/m);
$dir->safe_psql('postgres', ($said =~ /type there: (SELECT .*;)$/m)[0] // '');
{
	local $ENV{PGCONNECT_TIMEOUT} = 2;
	my $path = PostgreSQL::Test::Utils::tempdir_short();
	my $silent = IO::Socket::UNIX->new(Type => SOCK_STREAM, Local => "$path/.s.PGSQL.5432", Listen => 5) or die "no socket: $!";
	$dir->safe_psql('postgres', "UPDATE snowid.servers SET home = 'host=$path," . $s2->host . ' port=5432,' . $s2->port . q{ dbname=postgres' WHERE name = 's2'});
	$dir->wait_for_catchup("snowid_registry_$_", 'replay', $dir->lsn('insert')) for qw(s1 s2 s3);
	fleet_ok([ 'status' ], 0, 'the first of two hosts does not answer', qr/^s2 +2 shards .* open/m);

	# What several such homes cost does not add up: all are tried at once.
	my $mute = PostgreSQL::Test::Utils::tempdir_short();
	my $listener = IO::Socket::UNIX->new(Type => SOCK_STREAM, Local => "$mute/.s.PGSQL.5432", Listen => 5) or die "no socket: $!";
	$homes = $dir->safe_psql('postgres', q{SELECT string_agg(format('UPDATE snowid.servers SET home = %L WHERE name = %L', home, name), ';') FROM snowid.servers});
	$dir->safe_psql('postgres', "UPDATE snowid.servers SET home = 'host=$mute,/nowhere port=5432,' || n || ' dbname=postgres' FROM generate_series(1, 3) n WHERE name = 's' || n");
	$ENV{PGCONNECT_TIMEOUT} = 10;
	my $asks = IPC::Run::start([ fleet_command('balance', '--dry-run') ], '>&', \my $asked);
	my @accepted = map { $listener->accept } 1 .. 3;
	sysread $_, my $hello, 10_000 for @accepted;
	is_deeply([ IO::Select->new(@accepted)->can_read(0) ], [], 'three that do not answer are waited for together');
	$asks->signal('KILL');
	$asks->finish;
	$ENV{PGCONNECT_TIMEOUT} = 2;
	$dir->safe_psql('postgres', $homes);

	# A server's own connections have no such limit.
	fleet_ok([ 'add', 's3', '--dry-run' ], 0, '... another server waits for it', qr/^warning +s3 does not reach s2: canceling statement due to statement timeout$/m);
	$dir->safe_psql('postgres', q{UPDATE snowid.servers SET home = '} . home_of($s2) . q{' WHERE name = 's2'});
}

# A standby of the directory is none.
$dir->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($dir, 'base', has_streaming => 1);
$standby->start;
for my $command ([ 'status' ], [ 'balance' ], [ 'balance', '--dry-run' ], [ 'drain', 's1' ], [ 'retire', 's1' ], [ 'add', 's1' ])
{
	IPC::Run::run([ 'snowid-fleet', @$command, '--registry', home_of($standby) ], '>', \my $none, '2>', \my $why);
	is($? >> 8, 2, "a standby as directory: @$command");
	like($why, qr/--registry is a standby\n.*hint: Give the primary/, '... is told');
}

# Nor does one take anything, if that is where the home of a server leads.
$homes = $dir->safe_psql('postgres', q{SELECT format('UPDATE snowid.servers SET home = %L WHERE name = %L', home, name) FROM snowid.servers WHERE name = 's3'});
$dir->safe_psql('postgres', q{UPDATE snowid.servers SET home = '} . home_of($standby) . q{' WHERE name = 's3'});
fleet_ok([ 'balance', '--by', 'shards', '--dry-run' ], 0, 'a home that leads to a standby', qr/^s3 +0 % +0 %$/m, qr/^s1 .* 50 %$/m);
fleet_ok([ 'status' ], 1, '... is told', qr/^FAILED .* is a standby .*; and the same in snowid\.servers$/m);
$dir->safe_psql('postgres', "$homes; INSERT INTO snowid.servers (name, home) VALUES ('spare', '" . home_of($standby) . "')");
fleet_ok([ 'retire', 'spare' ], 1, '... nor can that be retired', qr/spare cannot be retired: its home leads to a standby\n.*hint: With the hosts of all, type first: snowid-fleet add spare 'HOSTS /);
$dir->safe_psql('postgres', q{DELETE FROM snowid.servers WHERE name = 'spare'});
$standby->stop;

# A server without the extension; with a new one it follows again.
$dir->safe_psql('postgres', q{UPDATE snowid.servers SET state = 'full' WHERE name = 's3'});
fleet_ok([ 'drain', 's2' ], 0, 'drain s2');
$s2->safe_psql('postgres', 'DROP EXTENSION snowid CASCADE');
$s3->safe_psql('postgres', 'ALTER SUBSCRIPTION snowid_registry_s3 DISABLE');
fleet_ok([ 'status' ], 1, 'no extension', qr/^s2 +0 shards  NOT KNOWN: \w+ "snowid\S*" does not exist; type there: CREATE EXTENSION snowid;$/m,
	qr/^snowid-move: error: .* cannot be asked what it has: .*; type there: CREATE EXTENSION snowid;$/m,
	qr/^FAILED .*snowid_registry_s3/m);
$s3->safe_psql('postgres', 'ALTER SUBSCRIPTION snowid_registry_s3 ENABLE');
my $things = q{SELECT (SELECT count(*) FROM pg_subscription), (SELECT count(*) FROM pg_replication_slots)};
my @before = map { $_->safe_psql('postgres', $things) } $dir, $s2;
fleet_ok([ 'retire', 's2' ], 1, 'retire it', qr/s2 cannot be retired: it answers: \w+ "snowid\S*" does not exist.*\n.*If it is lost for ever, type/);
is_deeply([ map { $_->safe_psql('postgres', $things) } $dir, $s2 ], \@before, '... nothing is touched');
like($state->(), qr/s2 draining/, '... nor forgotten');
fleet_ok([ 'add', 's2' ], 2, 'add it', qr/CREATE EXTENSION snowid;/);
$s2->safe_psql('postgres', 'CREATE EXTENSION snowid');
fleet_ok([ 'status' ], 1, 'a new extension', qr/^s2 .* registry NOT FOLLOWED: type: snowid-fleet add s2 --registry '.*'$/m);
fleet_ok([ 'add', 's2' ], 0, '... follows again');
ok($s2->poll_query_until('postgres', $follows), '... with all rows');

# A server as it was before a change, with a shared table that others refer to; and a clone of it.
my $countries = 'CREATE TABLE public.countries (code text PRIMARY KEY)';
$_->safe_psql('postgres', $countries) for $dir, $s1, $s2, $s3;
$dir->safe_psql('postgres', q{INSERT INTO public.countries VALUES ('de'); ALTER PUBLICATION shard_registry ADD TABLE public.countries});
fleet_ok([ 'add', $_ ], 0, "$_ has the table") for qw(s1 s2 s3);
$_->poll_query_until('postgres', q{SELECT count(*) = 1 FROM public.countries}) or die 'no row' for $s1, $s2, $s3;
$s3->safe_psql('postgres', q{CREATE TABLE cities (country text REFERENCES public.countries); INSERT INTO cities VALUES ('de')});
$s3->stop;
$s3->backup_fs_cold('before');
$s3->start;
$s1->safe_psql('postgres', "CALL snowid.create_shards(71, 71, ddl => '$table')");
fleet_ok([ 'add', 's1' ], 0, 'a new shard');
$dir->safe_psql('postgres', q{INSERT INTO public.countries VALUES ('fr')});
$s3->poll_query_until('postgres', q{SELECT count(*) = 1 FROM snowid.shard_registry WHERE shard = 71}) or die 'no shard';
my $lsn = $dir->lsn('insert');
$dir->poll_query_until('postgres', "SELECT confirmed_flush_lsn >= '$lsn' FROM pg_replication_slots WHERE slot_name = 'snowid_registry_s3'") or die 'it does not follow';
$s3->stop;
my $old = as_it_was($s3);
fleet_ok([ 'status' ], 1, 'put back', qr/^FAILED the registry of .* lacks shards of the directory: 71 type: snowid-fleet add s3 --registry '/m);
$said = fleet_ok([ 'add', 's3' ], 1, '... it has rows of shared tables', qr/does not follow the directory, and cannot begin anew/, qr/type there: (SET .*;) and the same command again/);
$old->safe_psql('postgres', ($said =~ /type there: (SET .*;) and the same/)[0] // '');
fleet_ok([ 'add', 's3' ], 0, '... and follows again');
ok($old->poll_query_until('postgres', q{SELECT count(*) = 1 FROM snowid.shard_registry WHERE shard = 71}), '... with all rows');
ok($old->poll_query_until('postgres', q{SELECT count(*) = 2 FROM public.countries}), '... of all tables');

# One that lacks only rows of the registry, or of a shared table.
for my $row ('snowid.shard_registry WHERE shard = 71', q{public.countries WHERE code = 'fr'})
{
	$old->safe_psql('postgres', "SET session_replication_role = replica; DELETE FROM $row");
	$said = fleet_ok([ 'add', 's3' ], 1, "no row in $row", qr/begins anew/, qr/type there: (SET .*;) and the same command again/);
	$old->safe_psql('postgres', ($said =~ /type there: (SET .*;) and the same/)[0] // '');
	fleet_ok([ 'add', 's3' ], 0, '... which helps');
	ok($old->poll_query_until('postgres', "SELECT count(*) = 1 FROM $row"), '... to have it');
	ok($old->poll_query_until('postgres', q{SELECT count(*) = 2 FROM public.countries}), '... and all others');
}

# One that is far behind, but goes on, or waits for a lock, is waited for, for as long as it takes.
$old->safe_psql('postgres', q{CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1); RETURN NEW; END';
	CREATE TRIGGER slow BEFORE INSERT ON public.countries FOR EACH ROW EXECUTE FUNCTION slow(); ALTER TABLE public.countries ENABLE ALWAYS TRIGGER slow});
$old->safe_psql('postgres', 'ALTER SUBSCRIPTION snowid_registry_s3 DISABLE');
$dir->safe_psql('postgres', "INSERT INTO public.countries VALUES ('c$_')") for 1 .. 14;
$old->safe_psql('postgres', 'ALTER SUBSCRIPTION snowid_registry_s3 ENABLE');
unlike(fleet_ok([ 'add', 's3' ], 0, 'a server that is behind', qr/waiting: s3 follows the directory/), qr/anew/, '... does not begin anew');
is($old->safe_psql('postgres', 'SELECT count(*) FROM public.countries'), 16, '... and has all rows then');
$old->safe_psql('postgres', 'DROP TRIGGER slow ON public.countries');
my $holder = $old->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE public.countries IN EXCLUSIVE MODE');
$dir->safe_psql('postgres', q{INSERT INTO public.countries VALUES ('it')});
my $run = IPC::Run::start([ fleet_command('add', 's3') ], '>&', \my $told, IPC::Run::timeout(60));
$run->pump until $told =~ /waiting: s3 follows|anew/;
$holder->quit;
$run->finish;
is($run->result(0), 0, 'a server that waits for a lock') or diag $told;
unlike($told, qr/anew/, '... does not begin anew');

# A directory as it was: its slots are ahead of its log, nothing comes any more, and nobody has an error.
my $ahead = q{SELECT count(*) > 0 FROM pg_replication_slots WHERE slot_name = 'snowid_registry_s1' AND confirmed_flush_lsn > pg_current_wal_lsn()};
$dir->stop;
$dir->backup_fs_cold('before');
$dir->start;
$dir->safe_psql('postgres', q{CREATE TABLE junk AS SELECT repeat('x', 1000) FROM generate_series(1, 10000); INSERT INTO public.countries VALUES ('zz'); UPDATE snowid.shard_registry SET home = 'host=/nowhere dbname=lost' WHERE shard = 71});
$dir->wait_for_catchup("snowid_registry_$_", 'flush', $dir->lsn('insert')) for 's1', 's2', 's3';
$dir->stop;
my $old_dir = as_it_was($dir, 'old_dir');
$old_dir->poll_query_until('postgres', $ahead) or die 'no slot is ahead';
$old_dir->safe_psql('postgres', q{INSERT INTO public.countries VALUES ('after')});
$said = fleet_ok([ 'status' ], 1, 'a directory that was put back', qr/^s1 .* registry NOT FOLLOWED: type: snowid-fleet add s1 /m, qr/^FAILED .* does not follow the directory, which was put back: slot snowid_registry_s1 is ahead of its log type: snowid-fleet add s1 --registry '.*'$/m);
unlike($said, qr/ names host=/, '... and nothing else that follows from it');
$said = fleet_ok([ 'add', 's1' ], 1, '... has it begin anew', qr/cannot begin anew while its copies of shared tables have rows/);
$s1->safe_psql('postgres', ($said =~ /type there: (SET .*;) and the same/)[0] // '');
fleet_ok([ 'add', 's1' ], 0, '... it follows');
is($s1->safe_psql('postgres', q{SELECT string_agg(code, ' ') FROM public.countries WHERE code IN ('zz', 'after')}), 'after', '... and has what the directory has');

# Another has by chance what it should have, as of now.
fleet_ok([ 'add', 's2' ], 1, 'one that has all rows', qr/cannot begin anew while its copies/) if same_rows();
unlike((fleet('status'))[1], qr/slot snowid_registry_s1 is ahead|^s1 .*NOT FOLLOWED/m, '... and status says so');

# Who reads what is ahead keeps it from ending in order.
$old_dir->stop('immediate');
$_->stop for $s1, $s2, $old;
done_testing();

# Has s2 the rows of the directory?
sub same_rows
{
	$s2->safe_psql('postgres', q{SET session_replication_role = replica; DELETE FROM public.countries WHERE code = 'zz'; INSERT INTO public.countries VALUES ('after')});
	$s2->safe_psql('postgres', 'SET session_replication_role = replica; ' . $old_dir->safe_psql('postgres', q{SELECT string_agg(format('UPDATE snowid.shard_registry SET home = %L WHERE shard = %s AND home IS NOT NULL', home, shard), ';') FROM snowid.shard_registry}));
	my ($here, $there) = map { $_->safe_psql('postgres', q{SELECT string_agg(code, ' ' ORDER BY code) FROM public.countries}) } $s2, $old_dir;
	return is($here, $there, 'the same rows');
}

# Give a server settings that need a restart.
sub set
{
	my ($node, %settings) = @_;
	$node->append_conf('postgresql.conf', join '', map { "$_ = $settings{$_}\n" } sort keys %settings);
	$node->restart;
	return;
}
