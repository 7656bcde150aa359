# First calls of new sessions are canceled, or run into a time-out, while they wait for a
# lock on a catalog: what a session keeps must be whole, or nothing.
use strict;
use warnings;

use Torture;
use Torture::Servers;

fault 4, sub {
	my $limit = one_of('statement_timeout', 'lock_timeout');
	my $catalog = one_of(qw(pg_class pg_class pg_sequence pg_namespace pg_authid));
	my $end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'writer'";
	my $seen = 0;

	sql("ALTER DATABASE $database SET $limit = '" . (2 + random_below(20)) . "ms'");
	for (1 .. 5)
	{
		# What a new session finds when it connects, it need not read from the catalog.
		my $script = "SET $limit = 0; SET deadlock_timeout = '10ms'; $end AND random() < 0.5; SELECT pg_sleep(0.01);
BEGIN; LOCK TABLE $catalog IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(0.03);
SELECT 'waits' FROM pg_locks WHERE relation = '$catalog'::regclass AND NOT granted LIMIT 1; ROLLBACK";
		$seen++ if (eval { sql($script) } // '') =~ /waits/;
	}
	sql("SET $limit = 0; ALTER DATABASE $database RESET $limit; $end");
	$count{first_calls} += $seen;
	return "$limit, $catalog, $seen of 5 met";
};

1;
