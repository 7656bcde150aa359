# Several sessions take ids from one sequence at once.  No id comes twice, and
# each id is larger than all ids whose calls had ended before its own call
# began.  Cached blocks of ids would break that, though not the order within
# each session.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SnowidTest;
use Test::More;

my $node = new_node('order');
$node->start;
my $take = make_calls($node, 50);

my $load = start_load($node, 8, 100, $take);
ok($load->finish, 'eight sessions took ids');
strict_order_ok($node, 'eight sessions');

# Rolled back ids stay used, and a savepoint changes nothing.
$load = start_load($node, 8, 50, <<"EOS");
BEGIN;
SELECT snowid.next_id(5, 's');
SAVEPOINT a;
$take
SELECT snowid.next_id(5, 's');
ROLLBACK TO a;
$take
COMMIT;
EOS
ok($load->finish, 'eight sessions took ids and rolled back');
strict_order_ok($node, 'eight sessions that roll back');

$node->stop;
done_testing();
