# Crashes under load take no id of the portable edition back:
# t/core/crash.pl, on that edition.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SnowidTest;

$SnowidTest::edition = 'portable';
do "$FindBin::RealBin/../core/crash.pl" or die $@ || $!;
