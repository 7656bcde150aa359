# Ids of the portable edition rise while the clock moves:
# t/005_clock.pl, on that edition.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SnowidTest;

$SnowidTest::edition = 'portable';
do "$FindBin::RealBin/005_clock.pl" or die $@ || $!;
