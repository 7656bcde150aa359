# What all parts of a torture run share: its options, its servers, their clocks, and
# the table of faults.
#
# A fault is a file of torture/faults: fault(), with how often it comes in a mix, and
# what it does; that returns what to say of it.  It leaves a primary that gives
# ids, and never does what is not promised (doc/reliability.md).
package Torture;

use strict;
use warnings;

our ($terminal, $base);
my $top;

BEGIN
{
	require Cwd;
	require File::Basename;
	require File::Temp;
	$top = Cwd::abs_path(File::Basename::dirname(__FILE__) . '/../..');

	# PostgreSQL::Test::Utils sends STDOUT to its log file.
	open($terminal, '>&', \*STDOUT) or die $!;
	$terminal->autoflush(1);

	my $pg_config = $ENV{PG_CONFIG} // 'pg_config';
	chomp(my $pgxs = `$pg_config --pgxs`);
	chomp(my $bindir = `$pg_config --bindir`);
	die "$pg_config does not work\n" unless $bindir;
	$pgxs =~ s{/makefiles/pgxs\.mk$}{};
	unshift @INC, "$pgxs/test/perl", "$top/t/lib";
	$ENV{PATH} = "$bindir:$ENV{PATH}";
	$ENV{PG_REGRESS} //= "$pgxs/test/regress/pg_regress";
	$base = File::Temp::tempdir('snowid_torture_XXXXXX', TMPDIR => 1);
	$ENV{TESTDIR} = $ENV{TESTDATADIR} = $base;
	$ENV{TESTLOGDIR} = "$base/log";
}

use Exporter 'import';
use File::Basename;
use File::Path qw(rmtree);
use IPC::Run;
use List::Util qw(max shuffle);
use Time::HiRes qw(clock_gettime usleep CLOCK_MONOTONIC);

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest ();

use constant {
	MS => 1_000_000,
	SECOND => 1_000_000_000,
	HOUR => 3_600_000_000_000,
	SEQUENCES => 5,

	# Used seldom: each less than once a second, most once between two crashes.
	SELDOM => 400,

	# Which fault treats which sequence; none treats sequence 0.
	NEXTVAL => 1,
	RESTARTED => 2,
	RECREATED => 3,
	ALTERED => 4,
};

our @EXPORT = qw($terminal $base $source %option %fault @faults $is_lossy $is_portable $is_snowid
  $usage $writers_dir $database $primary $standby $writers $max_offset $n_seldom $last_shard
  $serial $must_rewind %count @failures $start
  MS SECOND HOUR SEQUENCES SELDOM NEXTVAL RESTARTED RECREATED ALTERED
  fault load_faults run_fault say_event now wait_until random_below one_of
  start_clients received_bytes let_ids_flow
  sql sequence seconds_ahead set_clock clock_offset make_clock step_clock random_step
  maybe_step_while_down
  append_to_file clock_gettime max rmtree shuffle slurp_file CLOCK_MONOTONIC);

our $source = "$top/torture";
our %option = (
	seconds => 60,
	seed => int(rand(1_000_000)),
	fault => '',
	sessions => 16,
	disk => '',
	set => [],
	generator => 'snowid');
our (%fault, @faults);                       # all, by name, and those of this run
our ($is_lossy, $is_portable, $is_snowid);
our $usage;                                  # what a caller needs on a sequence
our $writers_dir = "$base/writers";
our $database = 'torture';
our ($primary, $standby, $writers);
our $max_offset = 0;                         # the furthest ahead that a primary's clock has been
our ($n_seldom, $last_shard);
our $serial = 0;                             # for names
our $must_rewind = 0;                        # the next standby
our %count;                                  # what happened
our @failures;
our $start = clock_gettime(CLOCK_MONOTONIC);

my %clock;                                   # of each node, by name: see set_clock()

# ---------------------------------------------------------------- faults

# What a file of torture/faults says of itself: how often it comes in a mix (the
# slow ones seldom), and what it does.
sub fault
{
	my ($weight, $run) = @_;

	$fault{ basename((caller)[1], '.pl') } = { weight => $weight, run => $run };
	return;
}

sub load_faults
{
	require $_ for glob "$source/faults/*.pl";
	return;
}

sub run_fault
{
	return $fault{ $_[0] }->{run}->();
}

# ---------------------------------------------------------------- helpers

sub say_event
{
	printf $terminal "%7.1f  %s\n", clock_gettime(CLOCK_MONOTONIC) - $start, "@_";
	return;
}

# The time that nothing changes, in nanoseconds.
sub now
{
	return int(clock_gettime(CLOCK_MONOTONIC) * SECOND);
}

# Wait for a condition, not for a time; dies when it doesn't come.
sub wait_until
{
	my ($what, $condition, $timeout) = @_;
	my $end = clock_gettime(CLOCK_MONOTONIC) + ($timeout // 120);

	until ($condition->())
	{
		die "timed out waiting for $what\n"
		  if clock_gettime(CLOCK_MONOTONIC) > $end;
		usleep(2000);
	}
	return;
}

sub random_below
{
	return int(rand($_[0]));
}

sub one_of
{
	return $_[ random_below(scalar @_) ];
}

# Begin a program of ours that has sessions, with its arguments after its directory.
sub start_clients
{
	my ($name, @arguments) = @_;
	my $pg_config = $ENV{PG_CONFIG} // 'pg_config';
	my ($include, $lib) = split /\n/, `$pg_config --includedir --libdir`;

	return IPC::Run::start(
		[ SnowidTest::build($name, "-I$include", "-L$lib", '-lpq'), $writers_dir, @arguments ],
		'<', \undef, '>', "$base/clients.out", '2>&1');
}

sub received_bytes
{
	my $sum = 0;
	$sum += -s $_ // 0 for glob "$writers_dir/ids.*";
	return $sum;
}

# Let the writers take some ids, as they are after a fault.
sub let_ids_flow
{
	my ($ids) = @_;
	my $from = received_bytes();

	wait_until('ids to be given again',
		sub { received_bytes() > $from + 8 * $ids });
	return;
}

# Run SQL as superuser on the primary, and return what it printed.
sub sql
{
	my ($query, $db) = @_;
	my ($stdout, $stderr, $timed_out);
	my $status = $primary->psql($db // $database, $query,
		stdout => \$stdout, stderr => \$stderr,
		timeout => 120, timed_out => \$timed_out);

	die "\"$query\" timed out\n" if $timed_out;
	die "\"$query\" failed: $stderr\n" if $status != 0;
	return $stdout;
}

sub sequence
{
	return "torture.q$_[0]";
}

# How far a sequence, or any of them, is ahead of the clock, as after this was
# set back.
sub seconds_ahead
{
	my ($seq) = @_;
	my $of = defined $seq ? "snowid.sequence_state('$seq')" : 'torture.ahead() AS ahead';

	return 0 unless $is_snowid;
	return sql("SELECT coalesce(greatest(extract(epoch FROM ahead), 0), 0) FROM $of");
}

# ---------------------------------------------------------------- the clock

# Give a node's clock an offset from the machine's, and a drift.
sub set_clock
{
	my ($node, $offset, $drift) = @_;
	my $c = $clock{ $node->name };

	$c->{offset} = int($offset);
	$c->{drift} = $drift // 0;
	$c->{since} = now();
	SnowidTest::write_clock($node, @$c{qw(offset since drift)}, 0);
	return;
}

sub clock_offset
{
	my ($node) = @_;
	my $c = $clock{ $node->name };

	return $c->{offset} + int((now() - $c->{since}) * $c->{drift} / 1_000_000);
}

sub make_clock
{
	my ($node, $offset) = @_;

	$clock{ $node->name } = {};
	set_clock($node, $offset);
	return;
}

# Step a node's clock.  Never more than three hours behind its furthest, to
# stay far from the state that next_id() refuses to believe.
sub step_clock
{
	my ($node, $step, $drift) = @_;
	my $offset = clock_offset($node);

	$max_offset = max($max_offset, $offset);
	$step = -$step if $offset + $step < $max_offset - 3 * HOUR;
	set_clock($node, $offset + $step, $drift);
	$max_offset = max($max_offset, $offset + $step);
	$count{clock_steps}++;
	return sprintf('%+.3f s', $step / SECOND);
}

sub random_step
{
	return one_of(5 * MS, SECOND, HOUR) * one_of(-1, 1);
}

# With a server down: mostly set its clock, mostly back.
sub maybe_step_while_down
{
	my ($node) = @_;

	return 'clock kept' if random_below(5) == 0;
	return 'clock ' . step_clock($node,
		one_of(-5 * MS, -SECOND(), -SECOND(), -5 * SECOND, -5 * SECOND, -HOUR(), SECOND));
}

1;
