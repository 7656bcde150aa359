# The server that was split off is lost, and put back from the only backup that there is: that of the server that it was.
# What it has is older than the copies; finish drops none of them.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use SnowidTest;
use SplitTest;
use Test::More;

my ($a, $b) = split_pair('plain');
$a->stop;
$a->backup_fs_cold('last_night');
$a->start;
my $id = $a->safe_psql('postgres', q{INSERT INTO insta1.users (name) VALUES ('today') RETURNING id});
$b->poll_query_until('postgres', "SELECT count(*) = 1 FROM insta1.users WHERE id = $id") or die 'it does not come';
moves_ok($a, $b, '1-2', [ 'split', @limits ], 0, 'split');
my $copy = $a->safe_psql('postgres', 'SELECT schema FROM snowid.moves WHERE shard = 1');
put_back($b, $a, 'last_night');
my $said = moves_ok($a, $b, '1-2', ['finish'], 1, 'finish', qr/does not know that shards? 1-2 came to it.* nothing was dropped\n.*snowid-move finish --cascade /s);
is($a->safe_psql('postgres', "SELECT count(*) FROM $copy.users WHERE id = $id"), '1', 'the row is there');
$_->stop for $a, $b;

done_testing();
