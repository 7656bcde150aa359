# An archiver that streams with a slot (pg_receivewal, Barman) is no standby: nobody
# waits for what it has on its disk, in a move, a finish or a split.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run ();
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use SplitTest;
use Test::More;

my ($a, $standby) = split_pair('archived');
my $b = move_node('b');
$b->start;
$b->safe_psql('postgres', 'CREATE EXTENSION snowid');
my @archivers = map { archive($_) } $a, $b;

my $said = moves_ok($a, $b, 1, ['--reverse'], 0, 'moved');
my ($ms) = $said =~ /writes waited (\d+) ms/;
cmp_ok($ms, '<', 900, 'nobody waits for the archiver');
moves_ok($a, $b, 1, ['finish'], 0, 'finished');
$a->wait_for_catchup($standby);
unlike(moves_ok($a, $standby, '2-3', [ 'split', @limits ], 0, 'split'), qr/"barman"/, 'the archiver is none of the other standbys');
is(living($standby), '2,3', 'to the standby');
$_->kill_kill for @archivers;
done_testing();

# Have what a server logs archived, through a slot.
sub archive
{
	my ($node) = @_;
	my $directory = PostgreSQL::Test::Utils::tempdir();

	$node->safe_psql('postgres', q{SELECT pg_create_physical_replication_slot('barman')});
	my $run = IPC::Run::start([ 'pg_receivewal', '-S', 'barman', '-D', $directory, '-d', $node->connstr('postgres') . ' application_name=barman' ], '>', '/dev/null', '2>&1');
	$node->poll_query_until('postgres', q{SELECT state = 'streaming' FROM pg_stat_replication WHERE application_name = 'barman'});
	return $run;
}
