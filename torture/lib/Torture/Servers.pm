# The servers of a torture run: made, started, killed, rewound, made a standby, and
# promoted.
package Torture::Servers;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest qw(end_node);
use Torture;
use Torture::Schema;

our @EXPORT = qw(set_up set_target start_node end_node kill_node recover new_node_from remove_node
  build_standby await_standby switch_over);

sub set_up
{
	mkdir $writers_dir;

	$primary = PostgreSQL::Test::Cluster->new('n' . ++$serial);
	$primary->init(allows_streaming => 1);
	configure($primary);
	make_clock($primary, 0);
	start_node($primary);
	sql('CREATE ROLE app LOGIN', 'postgres');
	sql("CREATE DATABASE $database", 'postgres');
	sql(schema());

	if (grep { /^(failover|rewind)/ } @faults)
	{
		# Each primary waits for its standby, from its first moment on.
		build_standby();
		my $line = "synchronous_standby_names = '*'\n";
		$_->append_conf('postgresql.conf', $line) for $primary, $standby;
		$_->reload for $primary, $standby;
		wait_until('the standby to be synchronous',
			sub { sql('SELECT sync_state FROM pg_stat_replication') eq 'sync' });
	}
	set_target();
	return;
}

sub configure
{
	my ($node) = @_;

	$node->append_conf('postgresql.conf', <<'CONF');
restart_after_crash = on
log_statement = none
log_min_messages = log
log_min_error_statement = panic
log_line_prefix = '%m [%p] '
log_replication_commands = off
log_checkpoints = on
shared_buffers = 32MB
max_connections = 100
max_prepared_transactions = 64
wal_level = replica
wal_log_hints = on
wal_keep_size = 1GB
wal_sender_timeout = 0
wal_receiver_timeout = 0
wal_retrieve_retry_interval = 20ms
# WAL reaches the disk only when a commit asks for it.
wal_writer_delay = 10s
wal_writer_flush_after = 1GB
checkpoint_timeout = 30s
autovacuum_naptime = 5s
deadlock_timeout = 200ms
lock_timeout = 0
hot_standby = on
CONF
	$node->append_conf('postgresql.conf', "fsync = on\nwal_buffers = 64kB\n")
	  if $is_lossy;
	$node->append_conf('postgresql.conf', s/=(.*)/ = '$1'/r . "\n")
	  for @{ $option{set} };
	return;
}

sub start_node
{
	my ($node) = @_;

	local $ENV{LD_PRELOAD} = SnowidTest::clock_library() . ($is_lossy ? ' ' . SnowidTest::disk_library() : '');
	local $ENV{TORTURE_CLOCK} = SnowidTest::clock_file($node);
	local $ENV{TORTURE_DISK} = $node->data_dir;
	wait_until($node->name . ' to start',
		sub { $node->{_pid} = undef; $node->start(fail_ok => 1) });
	return;
}

# kill -9; of all, on a disk that can lose something, a power cut
sub kill_node
{
	my ($node, $all) = @_;

	end_node($node, 'KILL', $all);
	$count{crashes}++;
	$count{power_cuts}++ if $all && $is_lossy;
	lose_unflushed($node, one_of('all', 'torn')) if $all;
	return;
}

# With "none", what was not flushed is there to stay.
sub lose_unflushed
{
	my ($node, $mode) = @_;

	return unless $is_lossy;
	IPC::Run::run(
		[ SnowidTest::build('powercut'), $mode, $node->data_dir, random_below(1_000_000) ],
		'>', \my $counts)
	  or die "powercut failed\n";
	$count{$1} += $2 while $counts =~ /^(\w+) (\d+)$/mg;
	return;
}

sub recover
{
	my ($how) = @_;
	my $clock = maybe_step_while_down($primary);

	start_node($primary);
	return "$how, $clock";
}

sub new_node_from
{
	my ($origin, $backup, %params) = @_;
	my $node = PostgreSQL::Test::Cluster->new('n' . ++$serial);

	$node->init_from_backup($origin, $backup, %params);
	rmtree($origin->backup_dir . "/$backup");
	return $node;
}

sub remove_node
{
	my ($node) = @_;

	$node->clean_node;
	rmtree($node->basedir);
	return;
}

# Make $old, which is down, a standby of the primary; undef: make a new one.
sub build_standby
{
	my ($old) = @_;

	if (defined $old && ($must_rewind || random_below(2) == 0) && rewind($old))
	{
		$standby = $old;
	}
	else
	{
		my $backup = 'b' . ++$serial;

		remove_node($old) if defined $old;
		$primary->backup($backup);
		$standby = new_node_from($primary, $backup, has_streaming => 1);
		make_clock($standby, clock_offset($primary) + random_step());
	}
	start_node($standby);
	return;
}

# pg_rewind brings a primary that was left behind onto the new timeline.
sub rewind
{
	my ($node) = @_;
	my $conf = slurp_file($node->data_dir . '/postgresql.conf');

	# It reads the timeline from the control file, which a checkpoint writes.
	sql('CHECKPOINT', 'postgres');
	my $ok = PostgreSQL::Test::Utils::system_log(
		'pg_rewind', '--no-sync',
		'--target-pgdata' => $node->data_dir,
		'--source-server' => $primary->connstr('postgres')) == 0;

	return 0 unless $ok;
	lose_unflushed($node, 'none');
	open(my $file, '>', $node->data_dir . '/postgresql.conf') or die $!;
	print $file $conf;
	close($file);
	$node->enable_streaming($primary);
	$count{rewinds}++;
	return 1;
}

# Until the standby streams, no clean shutdown sends it anything.
sub await_standby
{
	wait_until('the standby to stream', sub {
		sql("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'", 'postgres') > 0;
	});
	return;
}

sub set_target
{
	my $temporary = "$writers_dir/target.new";

	open(my $file, '>', $temporary) or die $!;
	print $file $primary->connstr($database),
	  " user=app connect_timeout=5 application_name=writer\n";
	close($file);
	rename($temporary, "$writers_dir/target") or die $!;
	return;
}

# The standby takes over; the primary, which is down, becomes its standby, or
# the given node does.
sub switch_over
{
	my ($next_standby) = @_;
	my $old = $primary;
	my $step = one_of(-HOUR(), -5 * SECOND, -5 * SECOND, -SECOND(), -5 * MS, 5 * MS, SECOND, HOUR);

	# What it has confirmed must be on its disk.
	if ($is_lossy && random_below(2))
	{
		kill_node($standby, 1);
		start_node($standby);
	}

	# Behind the old clock, or ahead of it.
	set_clock($standby, clock_offset($old));
	$step = step_clock($standby, $step);
	$standby->promote;
	($primary, $standby) = ($standby, undef);
	set_target();
	$count{failovers}++;
	build_standby($next_standby // $old);
	return "clock $step";
}

1;
