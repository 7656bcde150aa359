# The recipe in examples/ticket-servers: two clusters that count odd and even,
# and a client that goes on when one of them is killed.
use strict;
use warnings;

use File::Basename;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $example = dirname(__FILE__) . '/../../examples/ticket-servers';
my @nodes;
for my $n (1, 2)
{
	my $node = PostgreSQL::Test::Cluster->new("ticket$n");
	$node->init;
	$node->start;
	$node->safe_psql('postgres', 'CREATE DATABASE tickets');
	$node->command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', "$example/ticket$n.sql", '-d', $node->connstr('tickets') ],
		"ticket server $n is set up");
	push @nodes, $node;
}
$ENV{TICKET_SERVERS} = join('|', map { $_->connstr('tickets') } @nodes);

my %seen;
sub take
{
	my ($count) = @_;
	my ($odd, $even) = (0, 0);
	for (1 .. $count)
	{
		my ($out, $err);
		IPC::Run::run([ "$example/next-ticket", 'photos' ], '>', \$out, '2>', \$err) or return "none: $err";
		chomp $out;
		return "twice: $out" if $seen{$out}++;
		$out % 2 ? $odd++ : $even++;
	}
	return ($odd ? 'odd' : '') . ($even ? 'even' : '');
}

is(take(30), 'oddeven', 'both servers give numbers, none twice');
$nodes[0]->stop('immediate');
is(take(10), 'even', 'with one killed, the other goes on');
$nodes[0]->start;
$nodes[1]->stop('immediate');
is(take(10), 'odd', 'and the other way round: what the crash forgot is skipped');
$nodes[1]->start;
is(take(30), 'oddeven', 'both are back, still none twice');
$_->stop('immediate') for @nodes;
like(take(1), qr/^none: .*no answer from/s, 'without any there is no number');

done_testing();
