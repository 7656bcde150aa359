# The clock is stepped, again and again, while ids are taken.
use strict;
use warnings;

use Torture;

fault 12, sub {
	my @steps;

	for (1 .. 5 + random_below(15))
	{
		push @steps, step_clock($primary, random_step());
		let_ids_flow(random_below(5000));
	}
	return scalar(@steps) . ' steps';
};

1;
