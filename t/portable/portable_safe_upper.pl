# A reader up to safe_upper_id() of the portable edition misses no row:
# t/core/safe_upper.pl, on that edition.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SnowidTest;

$SnowidTest::edition = 'portable';
do "$FindBin::RealBin/../core/safe_upper.pl" or die $@ || $!;
