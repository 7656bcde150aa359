# Nor does a power cut:
# t/010_power_cut.pl, on that edition.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SnowidTest;

$SnowidTest::edition = 'portable';
do "$FindBin::RealBin/010_power_cut.pl" or die $@ || $!;
