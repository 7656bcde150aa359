# Nothing that a shard's owner swaps runs as the superuser, on the portable edition:
# t/core/swapped.pl, on that edition.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SnowidTest;

$SnowidTest::edition = 'portable';
do "$FindBin::RealBin/../core/swapped.pl" or die $@ || $!;
