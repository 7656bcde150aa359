# Shards of the portable edition are split off to a standby.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use SnowidTest;
use SplitTest;
use Test::More;

$SnowidTest::edition = 'portable';
my $all = '1-2';
my ($a, $b) = split_pair('portable');

moves_ok($a, $b, $all, [ 'split', @limits ], 0, 'split');
is(living($a) . ' ' . living($b), '3,4 1,2', 'each has its own');
cmp_ok($b->safe_psql('postgres', 'SELECT insta1.next_id()'), '>', $b->safe_psql('postgres', 'SELECT max(id) FROM insta1.users'), 'ids rise');
is(sqlstate($b, q{SELECT insta3.next_id()}), 'SN001', 'no id of what stays on the target');
moves_ok($a, $b, $all, ['finish'], 0, 'finish');
nothing_left_ok($_, 'portable') for $a, $b;
$_->stop for $a, $b;
done_testing();
