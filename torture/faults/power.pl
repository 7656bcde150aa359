# Everything goes dark, or only the primary; and the clock is behind.
use strict;
use warnings;

use Torture;
use Torture::Servers;
use Torture::Writers;

# Take one id that no earlier reservation covers, and cut the power.
sub cut_after_last_id
{
	while_writers_rest(sub {
		step_clock($primary, seconds_ahead(sequence(0)) * SECOND + 2 * SECOND);
		my $begin = clock_gettime(CLOCK_MONOTONIC);
		log_ids($begin, split /\n/, sql('SELECT torture.ids(0, 1)'));
		kill_node($primary, 1);
	});
	return;
}

fault 12, sub {
	my $what = 'of the primary';

	sql('CHECKPOINT') if random_below(4) == 0;
	if (random_below(2))
	{
		let_ids_flow(1 + random_below(5000));
		kill_node($primary, 1);
	}
	else
	{
		$what .= ' after a last id';
		cut_after_last_id();
	}
	if (defined $standby && random_below(2))
	{
		$what =~ s/primary/primary and the standby/;
		kill_node($standby, 1);
		start_node($standby);
	}
	my $step = step_clock($primary, one_of(-SECOND(), -5 * SECOND, -HOUR()));
	start_node($primary);
	return "$what, clock $step";
} if $is_lossy;

1;
