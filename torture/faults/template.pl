# The database is copied by CREATE DATABASE ... TEMPLATE, and the copy goes on.
use strict;
use warnings;

use Torture;
use Torture::Writers;

fault 1, sub {
	my $copy = 'torture' . ++$serial;
	my $strategy = one_of('wal_log', 'file_copy');

	close_database();
	wait_until('the copy', sub {
		eval { sql("CREATE DATABASE $copy TEMPLATE $database STRATEGY $strategy CONNECTION LIMIT 0", 'postgres'); 1 }
	});
	return move_to($copy);
};

1;
