# The clock is an hour ahead for a moment, in which some sequences give ids and
# most don't; then it is right again, before a crash, after one, or without.
use strict;
use warnings;

use Torture;
use Torture::Servers;

fault 3, sub {
	my $when = one_of('before a crash', 'in a crash', 'without a crash');

	step_clock($primary, HOUR);
	let_ids_flow(1 + random_below(20_000));
	if ($when ne 'in a crash')
	{
		step_clock($primary, -HOUR());
		let_ids_flow(1 + random_below(20_000));
	}
	if ($when ne 'without a crash')
	{
		kill_node($primary, 1);
		step_clock($primary, -HOUR()) if $when eq 'in a crash';
		start_node($primary);
	}
	return "an hour, and back $when";
};

1;
