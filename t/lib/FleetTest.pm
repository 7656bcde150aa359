# What the tests of snowid-fleet share: a directory, and servers with shards.
package FleetTest;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run ();
use MoveTest;
use SnowidTest;
use Test::More;

our @EXPORT = qw(fleet_nodes home_of fleet fleet_ok homes_ok registry_of);

my $dir;

# A directory, and servers, all started and with the extension.
sub fleet_nodes
{
	my @nodes = map { move_node($_) } 'dir', @_;
	$_->append_conf('postgresql.conf', "max_replication_slots = 20\nmax_wal_senders = 20\nmax_logical_replication_workers = 10\nmax_worker_processes = 20\n") for @nodes;
	$_->start for @nodes;
	$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for @nodes;
	$dir = $nodes[0];
	return @nodes;
}

sub home_of
{
	my ($node) = @_;
	return 'host=' . $node->host . ' port=' . $node->port . ' dbname=postgres';
}

# Run snowid-fleet on the directory; returns its exit code, and what it has said.
sub fleet
{
	my (@arguments) = @_;
	my ($rest) = grep { $arguments[$_] eq '--' } 0 .. $#arguments;
	my @after = defined $rest ? splice(@arguments, $rest) : ();
	my ($out, $err) = ('', '');

	IPC::Run::run([ 'snowid-fleet', @arguments, '--registry', home_of($dir), @after ], '>', \$out, '2>', \$err);
	return ($? >> 8, $out . $err);
}

sub fleet_ok
{
	my ($arguments, $expected, $name, @likes) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($code, $said) = fleet(@$arguments);

	is($code, $expected, "$name: exit status") or diag $said;
	like($said, $_, $name) for @likes;
	return $said;
}

# Which shards live where: "s1: 1-3,5; s2: 4", by what the servers say, which the directory says, too.
sub homes_ok
{
	my ($expected, $name, %nodes) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my %of_directory;

	for my $line (split /\n/, $dir->safe_psql('postgres', q{
SELECT coalesce(home, ''), string_agg(shard::text, ',' ORDER BY shard) FROM snowid.shard_registry GROUP BY 1}))
	{
		my ($home, $shards) = split /\|/, $line;
		for my $node (keys %nodes)
		{
			my $port = $nodes{$node}->port;
			$of_directory{$node} .= ($of_directory{$node} ? ',' : '') . $shards if $home =~ /port=$port\b/;
		}
	}
	for my $node (sort keys %nodes)
	{
		my $lives = $nodes{$node}->safe_psql('postgres', q{
SELECT coalesce(string_agg(shard::text, ',' ORDER BY shard), '') FROM snowid.shards WHERE lives = 'here'});
		my $told = join ',', sort { $a <=> $b } split /,/, $of_directory{$node} // '';
		is($lives, $told, "$name: $node has what the directory says");
		$expected->{$node}->(scalar split /,/, $lives) if ref $expected->{$node};
		is(scalar(my @n = split /,/, $lives), $expected->{$node}, "$name: so many at $node") if defined $expected->{$node} && !ref $expected->{$node};
	}
	return;
}

1;
