# The figures against the goals of goals.tsv, and as tables.
package Bench::Report;

use strict;
use warnings;

use Bench;
use Exporter 'import';
use List::Util qw(max min);
use POSIX qw(floor strftime);

our @EXPORT = qw(judge report csv);

my ($steal_before, $ticks_before) = steal();
my $load_before = (split ' ', slurp('/proc/loadavg'))[0];

# Hold the figures against goals.tsv.  A ratio is the median of the ratios of
# the rounds: within a round the machine was in much the same mood.
sub judge
{
	my @verdicts;

	for (split /\n/, slurp("$here/goals.tsv"))
	{
		next if /^#/ || !/\S/;
		my ($measure, $variant, $x, $how, $against, $relation, $goal, $what) = split /\t/;
		my $got = $samples{"$measure\t$variant\t$x"} or next;
		my @got = @$got;

		if ($how eq 'highest')
		{
			@got = (max(@got)) x @got;
		}
		elsif ($how ne 'value')
		{
			my $base = $samples{"$measure\t$against\t$x"} or next;
			@got = map { $how eq 'ratio' ? $got[$_] / $base->[$_] : $got[$_] - $base->[$_] }
			  0 .. min($#got, $#$base);
		}
		my $value = median(@got);
		my $mad = mad(@got);
		my $is_met = $relation eq '<=' ? $value <= $goal : $value >= $goal;
		# What the spread could explain is not a gross loss.
		my $is_gross = $relation eq '<=' ? $value - $mad > 1.5 * $goal : $value + $mad < $goal / 1.5;

		push @verdicts,
		  { what    => $what, measure => $measure, goal => "$relation $goal", got => $value, mad => $mad,
			rounds  => scalar @got,
			verdict => $is_met ? 'ok' : $is_gross ? 'missed by far' : 'missed',
			noisy   => @got > 1 && (abs($value - $goal) < $mad || $mad > 0.15 * max(abs $value, $goal)),
			gross   => $is_gross };
	}
	return @verdicts;
}

sub report
{
	my (@verdicts) = @_;
	my $s = "# Results\n\n" . machine() . "\n## Goals\n\n"
	  . "| measure | goal | got | ± | rounds | |\n|---|--:|--:|--:|--:|---|\n";
	for my $v (@verdicts)
	{
		$s .= sprintf "| %s | %s | %s | %s | %d | %s |\n", $v->{what}, $v->{goal},
		  number($v->{got}), number($v->{mad}), $v->{rounds},
		  $v->{verdict} . ($v->{noisy} ? ', noisy' : '');
	}
	$s .= "\n± is the median absolute deviation of the rounds. *noisy*: the goal is within it, "
	  . "or it is over 15 % of figure and goal; measure again on a quieter machine.\n";

	my %title = ((map { $_->{name} => $_->{title} } values %measure),
		wall => 'Time of an id in bulk, the row included',
		wal => 'WAL of an id in bulk',
		quiet_records => 'Records of sequences in the WAL of the same',
		load_cpu => 'Backend CPU time of the same',
		load_wal => 'WAL of a row of the same',
		select_wal => 'WAL of a transaction of the same',
		insert_wal => 'WAL of a transaction of the same',
		grow_cpu => 'Backend CPU time of the same',
		index => 'Size of the primary key\'s index, by millions of rows',
		rate_by_clock => 'The same by the clock when the ids were read',
		ahead => 'The most that an id was ahead of the clock',
		fence_cpu => 'Backend CPU time of the same',
		fence_insert => 'Backend CPU time of an INSERT of a row, one by one');
	my (%variants, %xs);
	for my $key (@order)
	{
		my ($measure, $variant, $x) = split /\t/, $key, -1;
		push @{ $variants{$measure} }, $variant unless grep { $_ eq $variant } @{ $variants{$measure} };
		push @{ $xs{$measure} }, $x unless grep { $_ eq $x } @{ $xs{$measure} };
	}
	for my $measure (sort { measure_rank($a) <=> measure_rank($b) } keys %xs)
	{
		$s .= "\n## $title{$measure} (`$measure`, $unit{$measure})\n\n";
		$s .= $xs{$measure}[0] eq ''
		  ? table($measure, @{ $variants{$measure} })
		  : table_over($measure, $xs{$measure}, $variants{$measure});
	}
	return $s;
}

# A line for each variant.
sub table
{
	my ($measure, @variants) = @_;
	my $s = "| variant | median | ± % | lowest | highest | rounds |\n|---|--:|--:|--:|--:|--:|\n";
	for my $variant (@variants)
	{
		my @v = @{ $samples{"$measure\t$variant\t"} };
		$s .= sprintf "| %s | %s | %s | %s | %s | %d |\n", $label{$measure}{$variant},
		  number(median(@v)), percent(@v), number(min(@v)), number(max(@v)), scalar @v;
	}
	return $s;
}

# A line for each count that the measure runs over, a column for each variant.
sub table_over
{
	my ($measure, $xs, $variants) = @_;
	my $s = '| |' . join('|', map { " $label{$measure}{$_} | ± % " } @$variants) . "|\n"
	  . '|--:|' . '--:|--:|' x @$variants . "\n";
	for my $x (@$xs)
	{
		my @cells = map { my @v = @{ $samples{"$measure\t$_\t$x"} }; (number(median(@v)), percent(@v)) } @$variants;
		$s .= join(' | ', "| $x", @cells) . " |\n";
	}
	return $s;
}

# Measures stay in the order in which they were first recorded.
sub measure_rank
{
	my ($measure) = @_;
	our %rank;
	$rank{(split /\t/, $_)[0]} //= keys %rank for @order;
	return $rank{$measure};
}

sub csv
{
	my $s = "measure,variant,of,unit,median,mad,lowest,highest,rounds\n";
	for my $key (@order)
	{
		my ($measure, $variant, $x) = split /\t/, $key, -1;
		my @v = @{ $samples{$key} };
		my ($low, $high) = (min(@v), max(@v));
		$s .= join(',', $measure, $variant, $x, $unit{$measure},
			(map { number($_) } median(@v), mad(@v), $low, $high), scalar @v) . "\n";
	}
	return $s;
}

# The machine, the server and their noise, without which no figure means much.
sub machine
{
	my ($cpu) = slurp('/proc/cpuinfo') =~ /^model name\s*: (.*)/m;
	my $cores = () = slurp('/proc/cpuinfo') =~ /^processor/mg;
	my ($memory) = slurp('/proc/meminfo') =~ /^MemTotal:\s*(\d+)/m;
	my $system = -r '/etc/os-release' && slurp('/etc/os-release') =~ /^PRETTY_NAME="?([^"\n]*)/m ? $1 : $^O;
	my $kernel = (POSIX::uname())[2];
	my ($version) = $session->run('SHOW server_version');
	my ($extension) = $session->run("SELECT extversion FROM pg_extension WHERE extname = 'snowid'");
	my @settings = map { "$_ = " . ($session->run("SHOW $_"))[0] }
	  qw(shared_buffers max_wal_size checkpoint_timeout fsync synchronous_commit
	  wal_level full_page_writes autovacuum jit work_mem max_locks_per_transaction);
	my ($steal, $ticks) = steal();
	my $stolen = 100 * ($steal - $steal_before) / ($ticks - $ticks_before || 1);

	my $s = sprintf "Measured on %s in %d minutes%s.\n\n", strftime('%Y-%m-%d', gmtime),
	  (time - $began + 59) / 60, $quick ? ', the quick subset' : $full ? ', in full' : '';
	$s .= sprintf "- Machine: %s, %d cores, %.0f GiB of memory, %s, Linux %s\n",
	  $cpu // 'unknown CPU', $cores, $memory / 1048576, $system, $kernel;
	$s .= "- Server: PostgreSQL $version, snowid $extension\n";
	$s .= "- Settings: " . join(', ', @settings) . "\n";
	$s .= sprintf "- Noise: load average before the run %s, now %s; time stolen by the host %.1f %%",
	  $load_before, (split ' ', slurp('/proc/loadavg'))[0], $stolen;
	if (my $row = $samples{"cpu\trow\t"})
	{
		$s .= sprintf "; the same work, counting rows, took %s to %s ns a row",
		  number(min(@$row)), number(max(@$row));
	}
	return "$s\n";
}

# The median absolute deviation, in per cent of the median.
sub percent
{
	my $m = median(@_);
	return @_ > 1 && $m ? number(100 * mad(@_) / abs $m) : '';
}

# Three digits that mean something, no exponent.
sub number
{
	my ($n) = @_;
	return '0' if $n == 0;
	return sprintf '%.0f', $n if abs($n) >= 100;
	my $digits = 2 - floor(log(abs($n)) / log(10));
	return sprintf '%.*f', $digits > 4 ? 4 : $digits, $n;
}

sub steal
{
	my @t = split ' ', (split /\n/, slurp('/proc/stat'))[0];
	my $sum = 0;
	$sum += $_ for @t[ 1 .. 8 ];
	return ($t[8], $sum);
}

1;
