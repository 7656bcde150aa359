# kill -9 of the postmaster, or of all processes at once.
use strict;
use warnings;

use Torture;
use Torture::Servers;

fault 12, sub {
	my $all = random_below(2);

	kill_node($primary, $all);
	return recover($all ? 'all processes' : 'the postmaster');
};

1;
