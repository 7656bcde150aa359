# ALTER SEQUENCE ... RESTART of a sequence that is not ahead of its clock.
use strict;
use warnings;

use Torture;
use Torture::Writers;

fault 3, sub {
	restart_sequence('ALTER SEQUENCE ' . sequence(RESTARTED) . ' RESTART');
	return 'ALTER SEQUENCE RESTART';
};

1;
