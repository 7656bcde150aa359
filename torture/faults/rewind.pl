# A primary that is rewound, and takes over again.
use strict;
use warnings;

use Torture;
use Torture::Servers;

fault 1, sub {
	my $rewinds = $count{rewinds} // 0;

	kill_node($primary, 1);
	$must_rewind = 1;
	my $what = switch_over();
	$must_rewind = 0;
	wait_until('the standby to be synchronous',
		sub { sql('SELECT sync_state FROM pg_stat_replication', 'postgres') eq 'sync' });
	let_ids_flow(random_below(50_000));
	kill_node($primary, 1);
	return ($count{rewinds} > $rewinds ? 'rewound' : 'made anew') . ", $what, and back, " . switch_over();
};

1;
