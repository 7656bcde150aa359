# snowid-each works with the portable edition: t/each/alike.pl, on that edition.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SnowidTest;

$SnowidTest::edition = 'portable';
do "$FindBin::RealBin/../each/alike.pl" or die $@ || $!;
