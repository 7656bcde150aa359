# What the measures share: the session that runs statements, the variants that are
# measured side by side, the figures, and pgbench.
#
# A measure is a file of bench/measures: measure(), with its unit, its title, and what
# it does (run).  Of the numbers that it names (rounds, seconds, ...) the first is that
# of the quick run, and the second of the usual one; without a first one it isn't in
# the quick run.  Figures come under the measure's name, unless record() is told another.
package Bench;

use strict;
use warnings;

use Bench::Session;
use Exporter 'import';
use File::Basename qw(basename dirname);
use File::Temp qw(tempdir);
use List::Util qw(max sum);
use POSIX qw(floor);
use Time::HiRes qw(sleep time);

our @EXPORT = qw($here $quick $full $session %samples %label @order %unit %measure $began
  measure statement_cost keep_awake make_sequences transactions pgbench_rounds in_turn variants
  record median lower_quartile mad slurp spew say_progress run_setup
  floor sleep time);

our $here = dirname(__FILE__) . '/..';
our ($quick, $full);
our $session;
our $began = time;
our %measure;                             # by name

# figures: measure, variant, x (a count that a plot runs over, or '') => samples
our (%samples, %label, @order, %unit);

my $progress = '';
my $scratch = tempdir(CLEANUP => 1);

# What a file of bench/measures says of itself.
sub measure
{
	my (%itself) = @_;
	my $name = basename((caller)[1], '.pl');

	$measure{$name} = { name => $name, %itself };
	return;
}

# The CPU time of the backend in a statement of many calls, a call; what the
# variant row costs is taken off.
sub statement_cost
{
	my ($name, $now, $x, $directory) = @_;
	my @awake = keep_awake();

	for my $round (1 .. $now->{rounds})
	{
		my $row = 0;
		for my $variant (in_turn($round, variants($directory // $name)))
		{
			say_progress("$name, round $round of $now->{rounds}: $variant->{name}");
			my $rows = floor($now->{rows} * $variant->{share});
			$session->run("\\set n $rows");
			my $cost = $session->cost($variant->{timed});
			my $each = $cost->{cpu} / $rows;
			if ($variant->{name} eq 'row')
			{
				$row = $each;
				record($name, $variant, $x, $each);
				next;
			}
			record($name, $variant, $x, ($each - $row) / $variant->{calls});
			next unless $name eq 'bulk';
			record('wall', $variant, $x, $cost->{wall} / $rows, 'ns');
			record('wal', $variant, $x, $cost->{wal} / $rows, 'bytes');
		}
	}
	kill 'KILL', @awake;
	waitpid $_, 0 foreach @awake;
}

# An idle processor is slow for a while when it wakes.  That is no cost of an id,
# so a process of the lowest priority keeps each processor awake.
sub keep_awake
{
	my $parent = $$;
	return map {
		my $pid = fork // die "cannot fork: $!\n";
		if ($pid == 0)
		{
			setpriority(0, 0, 19);
			while (getppid() == $parent) { 1 for 1 .. 1e6 }
			POSIX::_exit(0);
		}
		$pid;
	} 1 .. (split /\n/, `nproc`)[0];
}

sub make_sequences
{
	my @counts = @_;

	say_progress('making sequences');
	$session->run('SET bench.sequences = ' . max(@counts));
	run_setup("$here/many.sql");
}

sub transactions
{
	my ($name, $now) = @_;
	pgbench_rounds($name, $name, $now, 8, '', '');
}

sub pgbench_rounds
{
	my ($name, $directory, $now, $clients, $options, $x) = @_;
	my @variants = variants($directory);

	for my $round (1 .. $now->{rounds})
	{
		for my $variant (in_turn($round, @variants))
		{
			say_progress("$name $x, round $round of $now->{rounds}: $variant->{name}");
			$session->run($variant->{setup});
			$session->run('CHECKPOINT');
			spew("$scratch/script", $variant->{timed});
			my $jobs = $clients < 2 ? 1 : 2;
			my $wal = $session->wal;
			my $said = `pgbench -n -M prepared -c $clients -j $jobs -T $now->{seconds} $options -f $scratch/script 2>&1`;
			# With -P, the second half of the seconds, when all sessions are warm.
			my $line = $options =~ /-P/ ? 'progress: .*?([\d.]+) tps' : 'tps = ([\d.]+)';
			my @tps = $said =~ /^$line/mg or die "pgbench: $said\n";
			@tps = @tps[ @tps / 2 .. $#tps ];
			my $tps = sum(@tps) / @tps;
			my ($done) = $said =~ /^number of transactions actually processed: (\d+)/m;
			record($name, $variant, $x, $tps);
			record("${name}_wal", $variant, $x, ($session->wal - $wal) / $done, 'bytes') if $x eq '';
		}
	}
}

# Each round begins with another variant, so that none always follows the same
# one; the row stays first, since it is taken off the others.
sub in_turn
{
	my ($round, @variants) = @_;
	my @first = grep { $_->{name} eq 'row' } @variants;
	my @rest = grep { $_->{name} ne 'row' } @variants;
	push @rest, shift @rest for 2 .. $round;
	return (@first, @rest);
}

# The files of a directory: a first comment that names the variant, more
# comments with options, statements that set it up, and after "-- timed" what
# is measured.  Those whose condition does not hold are left out.
sub variants
{
	my ($directory) = @_;
	our %known;

	return @{ $known{$directory} } if $known{$directory};
	my @found;
	for my $file (glob "$here/$directory/*.sql")
	{
		my %v = (name => basename($file, '.sql'), calls => 1, share => 1);
		my ($head, $timed) = split /^-- timed\n/m, slurp($file), 2;
		defined $timed or die "$file: no line \"-- timed\"\n";
		($v{label}) = $head =~ /\A-- (.*)/ or die "$file: no name in the first line\n";
		$v{$1} = $2 while $head =~ /^-- (needs|calls|share): (.*)/mg;
		@v{qw(setup timed)} = ($head, $timed);
		next if $v{needs} && ($session->run("SELECT ($v{needs})::int"))[0] ne '1';
		$session->run($v{setup});
		push @found, \%v;
	}
	return @{ $known{$directory} = \@found };
}

sub record
{
	my ($measure, $variant, $x, $value, $unit) = @_;
	$x = '' unless defined $x;
	$unit{$measure} = $unit if $unit;
	$label{$measure}{$variant->{name}} = $variant->{label};
	my $key = "$measure\t$variant->{name}\t$x";
	push @order, $key unless $samples{$key};
	push @{ $samples{$key} }, $value;
}

sub median
{
	my @s = sort { $a <=> $b } @_;
	return @s % 2 ? $s[ $#s / 2 ] : ($s[ @s / 2 - 1 ] + $s[ @s / 2 ]) / 2;
}

sub lower_quartile
{
	my @s = sort { $a <=> $b } @_;
	return $s[ floor($#s / 4) ];
}

# Median absolute deviation: the half of the samples is nearer to the median.
sub mad
{
	my $m = median(@_);
	return median(map { abs($_ - $m) } @_);
}

sub slurp
{
	my ($file) = @_;
	open my $in, '<', $file or die "$file: $!\n";
	local $/;
	return scalar <$in>;
}

sub spew
{
	my ($file, $text) = @_;
	open my $to, '>', $file or die "$file: $!\n";
	print $to $text;
	close $to or die "$file: $!\n";
}

sub say_progress
{
	my ($what) = @_;
	return if $what eq $progress;
	if (-t STDERR)
	{
		printf STDERR "\r\e[K%s", $what ? sprintf('%4d s  %s', time - $began, $what) : '';
	}
	else
	{
		my ($now, $before) = map { (split /\W/, $_)[0] // 'done' } $what, $progress;
		printf STDERR "%4d s  %s\n", time - $began, $now if $now ne $before;
	}
	$progress = $what;
}

sub run_setup
{
	my ($file) = @_;
	$session->run(slurp($file));

	# The portable edition beside the extension, so in a schema of another name.
	return if ($session->run("SELECT count(*) FROM pg_namespace WHERE nspname = 'portable'"))[0];
	my $portable = `'$here/../portable/build' sql`;
	die "portable/build failed\n" if $?;
	$portable =~ s/\bsnowid(?=_internal\b|\b)/portable/g;
	$session->run($portable);
}

1;
