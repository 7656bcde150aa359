# No fault, but all sessions ask for as many ids as they can get.
use strict;
use warnings;

use Torture;

fault 1, sub {
	let_ids_flow(100_000 + random_below(200_000));
	return 'nothing';
};

1;
