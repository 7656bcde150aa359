# How many transactions a second insert one row each.
use strict;
use warnings;

use Bench;

measure
	unit => '1/s',
	title => 'One row a transaction, 8 clients, prepared, fsync on',
	rounds => [ 3, 7 ], seconds => [ 1, 2 ],
	run => \&transactions;

1;
