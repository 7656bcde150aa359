# Ids of the portable edition rise over all sessions:
# t/core/order.pl, on that edition.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SnowidTest;

$SnowidTest::edition = 'portable';
do "$FindBin::RealBin/../core/order.pl" or die $@ || $!;
