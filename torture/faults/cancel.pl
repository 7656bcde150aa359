# Statements are cancelled and sessions ended, at any time.
use strict;
use warnings;

use Torture;
use Torture::Writers;

fault 4, sub {
	my $function = one_of('pg_cancel_backend', 'pg_cancel_backend', 'pg_terminate_backend');

	for (1 .. 10)
	{
		sql("SELECT $function(pid) FROM pg_stat_activity
			  WHERE application_name = 'writer' AND random() < 0.3");
		$count{cancels}++;
	}
	while_writers_rest(sub {
		my $left = sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'");

		push @failures, "$left locks left behind" if $left;
		$count{locks_left} += $left;
		kill 'CONT', sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'");
	});
	return $function;
};

1;
