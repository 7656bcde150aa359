# Ids of the portable edition rise while the clock moves:
# t/core/clock.pl, on that edition.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SnowidTest;

$SnowidTest::edition = 'portable';
do "$FindBin::RealBin/../core/clock.pl" or die $@ || $!;
