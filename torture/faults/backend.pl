# A backend is killed, so that the server recovers all by itself.
use strict;
use warnings;

use Torture;

fault 8, sub {
	my $pid = sql(q(SELECT pid FROM pg_stat_activity
		 WHERE application_name = 'writer' ORDER BY random() LIMIT 1));

	return 'no writer connected' unless $pid;
	my $from = -s $primary->logfile;
	kill 'KILL', $pid;
	$count{crashes}++;
	wait_until('the server to notice',
		sub { slurp_file($primary->logfile, $from) =~ /reinitializing/ });
	my $clock = maybe_step_while_down($primary);
	wait_until('the server to be back', sub { eval { sql('SELECT 1'); 1 } });
	return "one backend, $clock";
};

1;
