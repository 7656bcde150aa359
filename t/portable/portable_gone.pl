# The view shards and newest_rows() of the portable edition go on beside a drop:
# t/shards/gone.pl, on that edition.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SnowidTest;

$SnowidTest::edition = 'portable';
do "$FindBin::RealBin/../shards/gone.pl" or die $@ || $!;
