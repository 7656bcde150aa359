# The CPU time of the functions that read an id.
use strict;
use warnings;

use Bench;

measure
	unit => 'ns',
	title => 'Backend CPU time of reading an id',
	rounds => [ 5, 7 ], rows => [ 100_000, 300_000 ],
	run => \&statement_cost;

1;
