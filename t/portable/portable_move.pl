# snowid-move works between two portable databases, and from a portable one to the
# C edition.  What PostgreSQL asks for, it asks for here, too: whoever makes the
# subscription on the target is a superuser.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my ($a, $b, $c) = map { move_node($_) } qw(a b c);
$_->start for $a, $b, $c;
$SnowidTest::edition = 'portable';
make_shard($a, 5, 'insta5');
$b->safe_psql('postgres', 'CREATE EXTENSION snowid;');
$SnowidTest::edition = '';
moves_ok($a, $c, 5, ['plan'], 1, 'without snowid there', qr/FAILED +extension snowid/);
$c->safe_psql('postgres', 'CREATE EXTENSION snowid;');

my @old = start_writers('insta5', $a);
my @new = start_writers('insta5', $b);
moves_ok($a, $b, 5, [], 0, 'between two portable databases');
await_writers(@old, @new);
stop_writers(@old, @new);
writers_ok('the move', \@old, \@new);
lives_on_ok($b, $a, 'moved');
moves_ok($a, $b, 5, ['finish'], 0, 'finished');

my $newest = $b->safe_psql('postgres', q{SELECT insta5.next_id()});
moves_ok($b, $c, 5, [], 0, 'from the portable edition to C');
cmp_ok($c->safe_psql('postgres', q{SELECT insta5.next_id()}), '>', $newest, 'ids go on above');
lives_on_ok($c, $b, 'in C');
moves_ok($b, $c, 5, ['finish'], 0, 'finished there');

$_->stop for $a, $b, $c;
done_testing();
