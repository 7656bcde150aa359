# Crashes under load take no id of the portable edition back:
# t/002_crash.pl, on that edition.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SnowidTest;

$SnowidTest::edition = 'portable';
do "$FindBin::RealBin/002_crash.pl" or die $@ || $!;
