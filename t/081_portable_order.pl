# Ids of the portable edition rise over all sessions:
# t/001_order.pl, on that edition.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SnowidTest;

$SnowidTest::edition = 'portable';
do "$FindBin::RealBin/001_order.pl" or die $@ || $!;
