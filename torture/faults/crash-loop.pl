# Crashes, one right after the other, as under a supervisor; and RESTART of a busy
# sequence and of some that are used seldom, between them.  What is reserved may not run away from a clock
# that nobody touches.
use strict;
use warnings;

use Torture;
use Torture::Servers;
use Torture::Writers;

fault 4, sub {
	my $crashes = 4 + random_below(8);
	my $restarts = 0;
	my $lead = reserved_lead();

	for (1 .. $crashes)
	{
		kill_node($primary, 1);
		start_node($primary);
		my @restarted = $n_seldom ? covered(RESTARTED, map { SEQUENCES + random_below($n_seldom) } 1 .. 3) : ();

		sql_alone(join(';', map { 'ALTER SEQUENCE ' . sequence($_) . ' RESTART' } @restarted)) if @restarted;
		$restarts += @restarted;
		let_ids_flow(random_below(500));
	}
	$count{restarts} += $restarts;
	my $after = reserved_lead();
	push @failures, "reserved $after s ahead after a crash loop, $lead s before" if $after > max(3, $lead);
	return "$crashes crashes, $restarts restarts";
};

sub reserved_lead
{
	return 0 if $is_portable || !$is_snowid;
	return sql('SELECT last_value / 1000.0 - extract(epoch FROM clock_timestamp()) FROM snowid_internal.reservation');
}

1;
