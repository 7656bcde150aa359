# A reader up to safe_upper_id() of the portable edition misses no row:
# t/040_safe_upper.pl, on that edition.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SnowidTest;

$SnowidTest::edition = 'portable';
do "$FindBin::RealBin/040_safe_upper.pl" or die $@ || $!;
