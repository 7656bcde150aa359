# Crash after the WAL record of a reservation, whose own transaction has not
# committed, while others use what it reserved.
use strict;
use warnings;

use Torture;
use Torture::Servers;
use Torture::Writers;

fault 6, sub {
	# One that comes later would flush the log.
	wait_until('all writers', sub {
		sql("SELECT count(*) FROM pg_stat_activity
			  WHERE application_name = 'writer'") == $option{sessions};
	});
	sql('CHECKPOINT');
	let_ids_flow(50_000);
	my $holder = hold_reservation();

	# The first that arrive are of before: 4,000 a writer, at most.
	let_ids_flow(4000 * $option{sessions} + random_below(10_000));
	kill_node($primary, 1);
	end_holder($holder);
	set_clock($primary, clock_offset($primary));
	return recover('after a reservation');
};

1;
