# The same as select, by the number of clients.
use strict;
use warnings;

use Bench;

measure
	unit => '1/s',
	title => 'One id a transaction, by the number of clients',
	rounds => [ undef, 3 ], seconds => [ undef, 1 ],
	xs => [ undef, [ 1, 2, 4, 8, 16 ] ],
	run => sub {
		my ($name, $now) = @_;
		pgbench_rounds($name, 'select', $now, $_, '', $_) for @{ $now->{xs} };
	};

1;
