# As many ids as a session gets, in one statement.
use strict;
use warnings;

use Bench;

measure
	unit => 'ns',
	title => 'The same, in one statement that waits for the clock',
	rounds => [ 1, 5 ], rows => [ 700_000, 2_000_000 ],
	run => sub {
		my ($name, $now) = @_;

		statement_cost($name, $now, '', 'cpu');
	};

1;
