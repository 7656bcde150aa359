# How many transactions a second take one id each.
use strict;
use warnings;

use Bench;

measure
	unit => '1/s',
	title => 'One id a transaction, 8 clients, prepared',
	rounds => [ 3, 11 ], seconds => [ 1, 2 ],
	run => \&transactions;

1;
