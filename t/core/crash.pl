# Crashes under load: ids that clients have seen from a plain SELECT next_id()
# never come again.
#
# The clients keep what they saw outside the server.  The clock is set back by
# an hour before each recovery, so that only the sequence's own state can keep
# the ids rising.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use List::Util qw(max);
use SnowidTest;
use Test::More;

my $node = new_node('crash');
start_with_clock($node, '+0');
$node->safe_psql('postgres', 'CREATE EXTENSION snowid; CREATE SEQUENCE s;');

my %seen;
my $highest = 0;

for my $round (1 .. 6)
{
	my $how = $round % 2 ? 'immediate stop' : 'kill of all processes';
	my @clients = start_clients($node, 4);

	# Move the clock forward under load, so that the clients use up several
	# reservations; then make a checkpoint.
	for my $step (1 .. 4)
	{
		set_clock($node, '+' . (10 * $round + 2 * $step));
		wait_for_clock($node);
		$node->safe_psql('postgres', 'CHECKPOINT') if $step == 4;
	}

	if   ($round % 2) { $node->stop('immediate'); }
	else              { crash($node); }

	my $count = 0;
	my $repeated = 0;
	my $falling = 0;
	for my $client (@clients)
	{
		my $last = 0;

		for my $id (ids_seen($client))
		{
			$count++;
			$repeated++ if $seen{$id}++;
			$falling++ if $id <= $last || $id <= $highest;
			$last = $id;
		}
	}
	$highest = max(keys %seen);

	ok($count > 0, "round $round: clients saw ids before the $how");
	is("$repeated $falling", '0 0', "round $round: ids rise, none repeated");

	start_with_clock($node, '-3600');
	my $next = $node->safe_psql('postgres', "SELECT snowid.next_id(5, 's')");
	cmp_ok($next, '>', $highest, "round $round: and go on rising after the $how");
	$highest = $next;
}

$node->stop;
done_testing();
