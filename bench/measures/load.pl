# The time of one big INSERT into a new table.
use strict;
use warnings;

use Bench;

measure
	unit => 'ms',
	title => 'INSERT ... SELECT of a million rows, primary key included',
	rounds => [ 3, 5 ], rows => [ 200_000, 1_000_000 ],
	run => sub {
		my ($name, $now) = @_;

		$session->run("\\set n $now->{rows}");
		for my $round (1 .. $now->{rounds})
		{
			for my $variant (in_turn($round, variants($name)))
			{
				say_progress("$name, round $round of $now->{rounds}: $variant->{name}");
				$session->run($variant->{setup});
				$session->run('CHECKPOINT');
				my $cost = $session->cost($variant->{timed});
				my $per_million = 1e6 / $now->{rows} / 1e6;
				record($name, $variant, '', $cost->{wall} * $per_million);
				record('load_cpu', $variant, '', $cost->{cpu} * $per_million, 'ms');
				record('load_wal', $variant, '', $cost->{wal} / $now->{rows}, 'bytes');
			}
		}
		$session->run("TRUNCATE load_$_->{name}") for variants($name);
	};

1;
