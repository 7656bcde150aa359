# The server is stopped as "pg_ctl stop -m immediate" does.
use strict;
use warnings;

use Torture;
use Torture::Servers;

fault 6, sub {
	end_node($primary, 'QUIT');
	$count{crashes}++;
	return recover('immediate stop');
};

1;
