# The clock goes slower or faster for a while.
use strict;
use warnings;

use Torture;

fault 3, sub {
	my $drift = one_of(-500_000, -50_000, 50_000, 500_000);

	set_clock($primary, clock_offset($primary), $drift);
	let_ids_flow(50_000 + random_below(100_000));
	$max_offset = max($max_offset, clock_offset($primary));
	set_clock($primary, clock_offset($primary));
	$count{slews}++;
	return sprintf('%+d per cent', $drift / 10_000);
};

1;
