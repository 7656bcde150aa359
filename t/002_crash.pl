# Crashes under load: ids that clients have seen from a plain SELECT next_id()
# never come again.
#
# The clients keep what they saw outside the server.  The clock is set back by
# an hour before each recovery, so that only the sequence's own state can keep
# the ids rising.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use IPC::Run ();
use List::Util qw(max);
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = new_node('crash');
start_with_clock($node, '+0');
$node->safe_psql('postgres', 'CREATE EXTENSION snowid; CREATE SEQUENCE s;');

my $script = $node->basedir . '/take.sql';
append_to_file($script, "SELECT snowid.next_id(5, 's');\n" x 50_000);

my %seen;
my $highest = 0;

for my $round (1 .. 6)
{
	my $how = $round % 2 ? 'immediate stop' : 'kill of all processes';
	my @clients;

	for my $i (0 .. 3)
	{
		my $client = { out => $node->basedir . "/seen.$round.$i" };
		$client->{run} = IPC::Run::start(
			[ 'psql', '-XAtq', '-f', $script, $node->connstr('postgres') ],
			'>', $client->{out}, '2>', '/dev/null');
		push @clients, $client;
	}
	$node->poll_query_until('postgres', q{
SELECT count(*) = 4 FROM pg_stat_activity
WHERE query LIKE 'SELECT snowid.next_id%'}) or die 'clients do not start';

	# Forward under load, so that the clients use up reservation after
	# reservation, and a checkpoint at last.
	for my $step (1 .. 4)
	{
		set_clock($node, '+' . (10 * $round + 2 * $step));
		$node->poll_query_until('postgres', q{
SELECT ahead > '-1 s' FROM snowid.sequence_state('s')})
		  or die 'clients do not follow the clock';
		$node->safe_psql('postgres', 'CHECKPOINT') if $step == 4;
	}

	if   ($round % 2) { $node->stop('immediate'); }
	else              { crash($node); }

	my $count = 0;
	my $repeated = 0;
	my $falling = 0;
	my $lowest_new;
	for my $client (@clients)
	{
		my $last = 0;

		ok(!$client->{run}->finish, "round $round: a client lost its server");
		for my $id (split /\n/, slurp_file($client->{out}))
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
