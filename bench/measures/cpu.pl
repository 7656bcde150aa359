# The CPU time of an id, in short statements of each variant in turn.  Of the
# statements of a round the lower quartile counts: what else the machine does
# only makes them slower.  No sequence gives so many ids, nor so soon again, that
# a call waits for the clock: sleeping and waking are not the cost of an id, and
# differ more from one run to the next than the variants do.
use strict;
use warnings;

use Bench;

measure
	unit => 'ns',
	title => 'Backend CPU time of an id in bulk',
	rounds => [ 5, 11 ], statements => [ 50, 100 ], rows => [ 8000, 8000 ],
	run => sub {
		my ($name, $now) = @_;
		my @awake = keep_awake();
		my %ended;

		for my $round (1 .. $now->{rounds})
		{
			say_progress("$name, round $round of $now->{rounds}");
			my %each;
			for my $turn (1 .. $now->{statements})
			{
				for my $variant (in_turn($turn, variants($name)))
				{
					my $v = $variant->{name};
					my $rows = floor($now->{rows} * $variant->{share});
					my $early = ($ended{$v} // 0) + 0.01 - time;
					sleep $early if $early > 0;
					$session->run("\\set n $rows");
					push @{ $each{$v} }, $session->cost($variant->{timed})->{cpu} / $rows;
					$ended{$v} = time;
				}
			}
			my %cost = map { $_ => lower_quartile(@{ $each{$_} }) } keys %each;
			for my $variant (variants($name))
			{
				my $v = $variant->{name};
				record($name, $variant, '', $cost{$v} - ($v eq 'row' ? 0 : $cost{row}));
			}
		}
		kill 'KILL', @awake;
		waitpid $_, 0 foreach @awake;
	};

1;
