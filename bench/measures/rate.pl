# What one sequence gives when it is asked for more than it may.
use strict;
use warnings;

use Bench;

measure
	unit => '%',
	title => 'One sequence asked for all that it may give',
	rounds => [ 1, 5 ], seconds => [ 2, 3 ],
	xs => [ [ 1, 4 ], [ 1, 2, 4, 8, 16 ] ],
	run => sub {
		my ($name, $now) = @_;

		for my $round (1 .. $now->{rounds})
		{
			for my $x (@{ $now->{xs} })
			{
				say_progress("$name, round $round of $now->{rounds}: $x sessions");
				# It fails if a session could not begin in time.
				my $said;
				for my $attempt (1 .. 3)
				{
					$said = `$here/rate $x $now->{seconds}`;
					last if $? == 0;
					die "$here/rate failed\n" if $attempt == 3;
				}
				my (undef, $by_ids, $by_clock, $ahead) = split /\t/, $said;
				my $variant = { name => 'next_id', label => 'next_id' };
				record($name, $variant, $x, $by_ids);
				record('rate_by_clock', $variant, $x, $by_clock, '%');
				record('ahead', $variant, $x, $ahead, 'ms');
			}
		}
	};

1;
