# The primary dies, and its synchronous standby takes over.
use strict;
use warnings;

use Torture;
use Torture::Servers;
use Torture::Writers;

fault 5, sub {
	if (random_below(2))
	{
		kill_node($primary, 1);
		return switch_over();
	}

	# What the primary does in its last moments no longer reaches the
	# standby, and so must not be acknowledged.
	let_ids_flow(20_000);
	my $receiver = $standby->safe_psql('postgres', 'SELECT pid FROM pg_stat_wal_receiver');
	kill 'STOP', $receiver if $receiver;
	my $holder = hold_reservation();
	my $end = clock_gettime(CLOCK_MONOTONIC) + 0.2;
	wait_until('the writers to wait for the standby', sub {
		clock_gettime(CLOCK_MONOTONIC) > $end
		  || sql("SELECT count(*) FROM pg_stat_activity
				   WHERE application_name = 'writer' AND wait_event = 'SyncRep'") == $option{sessions};
	});
	kill_node($primary, 1);
	end_holder($holder);

	# It must not find in its socket what it had not taken before.
	kill 'TERM', $receiver if $receiver;
	kill 'CONT', $receiver if $receiver;
	return 'the standby cut off before, ' . switch_over();
};

1;
