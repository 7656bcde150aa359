# Nor does a power cut:
# t/core/power_cut.pl, on that edition.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SnowidTest;

$SnowidTest::edition = 'portable';
do "$FindBin::RealBin/../core/power_cut.pl" or die $@ || $!;
