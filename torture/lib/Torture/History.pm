# The checker of a history: what clients of shards were told (torture/client.c says
# how they note it), held against the rows that are there at the end.
#
# Counts what is not promised apart: acknowledged rows lost while replication was
# asynchronous, and ids of calls that were never acknowledged that came again.
package Torture::History;

use strict;
use warnings;

use Exporter 'import';

our @EXPORT_OK = qw(check_history);

use constant REPORTS => 3;    # of each kind

# What must not be, and what it means.
our %violation = (
	repeats => 'no id was given twice',
	order_breaks => 'every id was larger than those answered before its call',
	rows_lost => 'every row acknowledged by synchronous servers is there',
	rows_in_two_places => 'every row is in one place',
	rows_of_rollbacks => 'no row of a transaction that was rolled back is there',
	rows_missed => 'readers up to safe_upper_id() missed no row',
	rows_vanished => 'no row that a reader saw on synchronous servers is gone');

my (%count, %reported, @details);

# The directory has ids.N of writers, read.N of readers, and rows.SERVER.SHARD, the ids that
# are there at the end.  While any of the windows, [ from, to ] in nanoseconds, replication was
# asynchronous.  Returns counts, by name, and a list of what to say of violations.
sub check_history
{
	my ($directory, @windows) = @_;
	my $in_window = sub {
		my ($at) = @_;
		return scalar grep { $_->[0] <= $at && $at <= $_->[1] } @windows;
	};
	my %writes = by_shard(3, glob "$directory/ids.*");
	my %reads = by_shard(3, glob "$directory/read.*");

	%count = map { $_ => 0 } keys %violation,
	  qw(calls unanswered ids rows rows_lost_asynchronous repeats_unacknowledged reads rows_read);
	%reported = @details = ();
	foreach my $shard (sort { $a <=> $b } keys %writes)
	{
		my $given = check_ids($shard, @{ $writes{$shard} });
		my $there = find_rows($shard, glob "$directory/rows.*.$shard");

		while (my ($id, $call) = each %$given)
		{
			my ($end, $outcome, $kind) = @$call;

			next if $kind ne 'r';
			violated('rows_of_rollbacks', "shard $shard, id $id") if $outcome eq 'no' && $there->{$id};
			next if $outcome ne 'ok' || $there->{$id};
			if ($in_window->($end)) { $count{rows_lost_asynchronous}++ }
			else { violated('rows_lost', "shard $shard, id $id, acknowledged at $end ns") }
		}
		check_reads($shard, $there, $in_window, @{ $reads{$shard} // [] });
	}
	return (\%count, @details);
}

sub violated
{
	my ($what, $detail) = @_;

	$count{$what}++;
	push @details, "$what: $detail" if $reported{$what}++ < REPORTS;
	return;
}

# The lines of files, cut into words, by the word of the shard, with the file at their end.
sub by_shard
{
	my ($word, @files) = @_;
	my %lines;

	foreach my $file (@files)
	{
		open(my $handle, '<', $file) or die "$file: $!";
		while (my $line = <$handle>)
		{
			# What was cut off says nothing.
			push @{ $lines{ (split / /, $line, $word + 1)[ $word - 1 ] } }, "$line$file" if $line =~ /\n$/;
		}
		close($handle);
	}
	return %lines;
}

# Repeats and order.  Returns what is known of each id: [ end, outcome, kind ].
sub check_ids
{
	my ($shard, @lines) = @_;
	my (%given, @calls);

	foreach my $line (@lines)
	{
		my ($begin, $end, undef, $outcome, $kind, @ids) = split / /, $line =~ s/\n.*//sr;
		my $call = [ $end, $outcome, $kind ];

		$count{calls}++;
		$count{unanswered}++ if $outcome eq '?';
		for my $i (0 .. $#ids)
		{
			my $old = $given{ $ids[$i] };

			$count{ids}++;
			violated('order_breaks', "shard $shard, $ids[$i] after $ids[$i - 1] in one call of $begin ns")
			  if $i > 0 && $ids[$i] < $ids[ $i - 1 ];
			if (defined $old && $old->[1] eq 'ok' && $outcome eq 'ok')
			{
				violated('repeats', "shard $shard, $ids[$i], acknowledged at $old->[0] and $end ns");
			}
			elsif (defined $old)
			{
				$count{repeats_unacknowledged}++;
			}
			$given{ $ids[$i] } = $call unless defined $old && $old->[1] eq 'ok';
		}
		push @calls, [ $begin, $end, $outcome, $ids[0], $ids[-1] ] if @ids;
	}

	# As they began, with the largest id that had been acknowledged by then.
	my @ended = sort { $a->[1] <=> $b->[1] } grep { $_->[2] eq 'ok' } @calls;
	my ($largest, $next) = (-1, 0);
	foreach my $call (sort { $a->[0] <=> $b->[0] } @calls)
	{
		for (; $next < @ended && $ended[$next][1] < $call->[0]; $next++)
		{
			$largest = $ended[$next][4] if $ended[$next][4] > $largest;
		}
		violated('order_breaks', sprintf 'shard %d, %s after %s (%d ms less), call of %s ns, %s',
			$shard, $call->[3], $largest, ($largest >> 23) - ($call->[3] >> 23), @$call[ 0, 2 ])
		  if $call->[3] <= $largest;
	}
	return \%given;
}

# Which rows are there at the end: { id => file }.
sub find_rows
{
	my ($shard, @files) = @_;
	my %there;

	foreach my $file (@files)
	{
		open(my $handle, '<', $file) or die "$file: $!";
		while (my $id = <$handle>)
		{
			chomp $id;
			violated('rows_in_two_places', "shard $shard, id $id: $there{$id}, $file") if exists $there{$id};
			$there{$id} = $file;
			$count{rows}++;
		}
		close($handle);
	}
	return \%there;
}

# What is there below the last bound of a reader, it must have seen, and what it saw must
# be there.
sub check_reads
{
	my ($shard, $there, $in_window, @lines) = @_;
	my (%upper, %seen);

	foreach my $line (@lines)
	{
		my ($step, $reader) = split /\n/, $line;
		my (undef, $end, undef, $from, $upper, @ids) = split / /, $step;

		$count{reads}++;
		$count{rows_read} += @ids;
		$from == ($upper{$reader} // 0) or die "$reader: a step begins at $from, not at its bookmark\n";
		$upper{$reader} = $upper;
		foreach my $id (@ids)
		{
			$seen{$reader}{$id} = 1;
			violated('rows_vanished', "shard $shard, id $id, read by $reader until $end ns")
			  if !$there->{$id} && !$in_window->($end);
		}
	}
	foreach my $reader (sort keys %upper)
	{
		violated('rows_missed', "shard $shard, id $_, by $reader")
		  for sort { $a <=> $b } grep { $_ < $upper{$reader} && !$seen{$reader}{$_} } keys %$there;
	}
	return;
}

1;
