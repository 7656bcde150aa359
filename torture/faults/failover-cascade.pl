# The standby of the standby takes over, when both others are gone.  It has all
# that the standby has, so all that was acknowledged.
use strict;
use warnings;

use Torture;
use Torture::Servers;

fault 1, sub {
	my $backup = 'b' . ++$serial;
	my $middle = $standby;

	await_standby();
	$middle->backup($backup);
	my $cascade = new_node_from($middle, $backup, has_streaming => 1);
	make_clock($cascade, clock_offset($primary) + random_step());
	start_node($cascade);
	let_ids_flow(1 + random_below(50_000));
	kill_node($primary, 1);

	wait_until('the standby to have read all that the primary had sent', sub {
		$middle->safe_psql('postgres',
			"SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'") eq '0';
	});
	my $received = $middle->safe_psql('postgres', 'SELECT pg_last_wal_receive_lsn()');
	wait_until('the cascading standby to have caught up', sub {
		$cascade->safe_psql('postgres', "SELECT pg_last_wal_receive_lsn() >= '$received'") eq 't';
	});
	kill_node($middle, 1);
	($primary, my $gone) = shuffle($primary, $middle);
	remove_node($gone);
	$standby = $cascade;
	return 'to a standby of the standby, ' . switch_over();
};

1;
