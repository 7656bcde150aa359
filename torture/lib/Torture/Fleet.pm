# The servers of torture/operator: made, killed, backed up, restored, cloned, asked.
#
# A server is a directory and a port; its restored state and its clones are other
# directories that take its place, or stand beside it.
package Torture::Fleet;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run;
use Torture;

our @EXPORT = qw(%server @names make_server start_server kill_server remove_server back_up restore clone
  end_clone address name_at query is_up);

our %server;    # by name: name, port, dir
our @names;     # of those that have shards

my $port = 5440 + int(rand(200)) * 10;

sub make_server
{
	my ($name) = @_;
	my $s = $server{$name} = { name => $name, port => ++$port, dir => "$base/$name" };

	system("initdb -D $s->{dir} -U postgres -A trust -E UTF8 --locale=C.UTF-8 -N >$base/initdb.log 2>&1") == 0
	  or die "initdb failed: " . slurp_file("$base/initdb.log");
	append_to_file("$s->{dir}/postgresql.conf", <<"CONF");
listen_addresses = ''
unix_socket_directories = '$base'
fsync = off
wal_level = logical
shared_buffers = 32MB
max_connections = 60
max_wal_senders = 40
max_replication_slots = 40
max_logical_replication_workers = 20
max_worker_processes = 40
wal_retrieve_retry_interval = 200ms
wal_receiver_timeout = 10s
wal_sender_timeout = 10s
restart_after_crash = on
log_line_prefix = '%m [%p] %a '
max_wal_size = 256MB
wal_keep_size = 64MB
restore_command = 'false'
recovery_target = 'immediate'
recovery_target_action = 'promote'
CONF
	start_server($name);
	return $s;
}

# Begin it, also when the last of its processes still have its memory for a moment.
sub start_server
{
	my ($name, $port_now) = @_;
	my $s = $server{$name};
	my $pid = "$s->{dir}/postmaster.pid";

	$port_now //= $s->{port};
	wait_until("$name to start", sub {
		unlink $pid;
		return system("pg_ctl -D $s->{dir} -o '-p $port_now' -l $s->{dir}.log -w -t 60 start >/dev/null 2>&1") == 0;
	});
	wait_until("$name to be a primary", sub {
		(query($s, 'SELECT NOT pg_is_in_recovery()', $port_now, 'postgres') // '') eq 't';
	});
	return;
}

sub kill_server
{
	my ($name, $signal) = @_;

	return unless open(my $file, '<', "$server{$name}->{dir}/postmaster.pid");
	my $pid = <$file> + 0;
	kill $signal // 'KILL', $pid;
	wait_until("$name to end", sub { !kill 0, $pid });
	return;
}

sub remove_server
{
	my ($name) = @_;

	kill_server($name);
	wait_until("the directory of $name to be free", sub { rmtree($server{$name}->{dir}); !-e $server{$name}->{dir} });
	return;
}

sub is_up
{
	my ($name) = @_;
	return defined query($server{$name}, 'SELECT 1', undef, 'postgres');
}

sub address
{
	my ($name) = @_;
	return "host=$base port=$server{$name}->{port} dbname=app user=postgres";
}

# Whose address that is; undef if nobody's.
sub name_at
{
	my ($address) = @_;
	my ($at) = ($address // '') =~ /port='?(\d+)/ or return;

	return (grep { $server{$_}->{port} == $at } keys %server)[0];
}

# What psql prints; undef if it fails.
sub query
{
	my ($s, $sql, $port_now, $db) = @_;
	my ($out, $errors) = ('', '');

	$s = $server{$s} unless ref $s;
	my $ok = eval {
		IPC::Run::run(
			[
				'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-h', $base, '-p', $port_now // $s->{port},
				'-U', 'postgres', '-d', $db // 'app'
			],
			'<', \$sql, '>', \$out, '2>', \$errors, IPC::Run::timeout(60));
	};
	append_to_file("$base/queries.log", "$s->{name}: $sql\n$errors\n") unless $ok;
	chomp $out;
	return $ok ? $out : undef;
}

# A base backup; only the newest of a server is kept.
sub back_up
{
	my ($name) = @_;
	my $s = $server{$name};

	rmtree("$s->{dir}.new");
	system("pg_basebackup -h $base -p $s->{port} -U postgres -c fast -X stream -D $s->{dir}.new >/dev/null 2>&1") == 0
	  or return 0;
	rmtree("$s->{dir}.backup");
	rename("$s->{dir}.new", "$s->{dir}.backup") or die $!;
	return 1;
}

# Bring the backup up in the server's place, at first where no client finds it, until
# $repair has done what is to be done.  With a new timeline, as by point-in-time
# recovery; or with the old one, as from a snapshot of the disk.
sub restore
{
	my ($name, $is_pitr, $repair) = @_;
	my $s = $server{$name};
	my $elsewhere = $s->{port} + 1000;

	remove_server($name);
	system("cp -a $s->{dir}.backup $s->{dir}") == 0 or die "cp failed\n";
	append_to_file("$s->{dir}/recovery.signal", '') if $is_pitr;
	start_server($name, $elsewhere);
	$repair->($elsewhere);
	kill_server($name, 'INT');
	start_server($name);
	return;
}

# A copy of the server as it is now, at another address; with the server down, or
# beside it.
sub clone
{
	my ($name, $is_down) = @_;
	my $s = $server{$name};

	$server{clone} = { name => 'clone', port => $s->{port} + 500, dir => "$base/clone" };
	rmtree("$base/clone");
	system("pg_basebackup -h $base -p $s->{port} -U postgres -c fast -X stream -D $base/clone >/dev/null 2>&1") == 0
	  or die "no clone of $name\n";
	kill_server($name) if $is_down;
	start_server('clone');
	return;
}

sub end_clone
{
	remove_server('clone');
	delete $server{clone};
	return;
}

1;
