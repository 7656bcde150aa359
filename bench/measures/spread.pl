# How many transactions a second, by how many sequences they use.
use strict;
use warnings;

use Bench;

measure
	unit => '1/s',
	title => 'One id a transaction, 8 clients, by the number of sequences',
	rounds => [ 3, 5 ], seconds => [ 4, 8 ],
	xs => [ [1024], [ 1, 64, 1024, 8192 ] ],
	run => sub {
		my ($name, $now) = @_;

		make_sequences(@{ $now->{xs} });
		pgbench_rounds($name, $name, $now, 8, "-D k=$_ -D is_warm=0 -P 1", $_) for @{ $now->{xs} };
	};

1;
