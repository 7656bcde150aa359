# TRUNCATE ... RESTART IDENTITY.
use strict;
use warnings;

use Torture;
use Torture::Writers;

fault 3, sub {
	restart_sequence('TRUNCATE torture.restarted RESTART IDENTITY');
	sql('TRUNCATE torture.rows');
	return 'TRUNCATE RESTART IDENTITY';
};

1;
