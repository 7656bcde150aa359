# snowid-each works with the portable edition: t/each/each_alike.pl, on that edition.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SnowidTest;

$SnowidTest::edition = 'portable';
do "$FindBin::RealBin/../each/each_alike.pl" or die $@ || $!;
