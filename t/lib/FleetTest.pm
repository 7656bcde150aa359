# What the tests of snowid-fleet share: a directory, and servers with shards.
package FleetTest;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run ();
use MoveTest;
use PoolerTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(usleep);

our @EXPORT = qw(fleet_nodes home_of fleet fleet_command fleet_ok homes_ok paced_clients paced_client more_ids longest_wait stop_clients as_it_was);

my $dir;

# A directory, and servers, all started and with the extension.
sub fleet_nodes
{
	my @nodes = map { move_node($_) } 'dir', @_;
	$_->append_conf('postgresql.conf', "max_replication_slots = 20\nmax_wal_senders = 20\nmax_logical_replication_workers = 10\nmax_worker_processes = 20\nmax_prepared_transactions = 1\n") for @nodes;
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

sub fleet_command
{
	my (@arguments) = @_;
	my ($rest) = grep { $arguments[$_] eq '--' } 0 .. $#arguments;
	my @after = defined $rest ? splice(@arguments, $rest) : ();

	return ('snowid-fleet', @arguments, '--registry', home_of($dir), @after);
}

# Run snowid-fleet on the directory; returns its exit code, and what it has said.
sub fleet
{
	my (@arguments) = @_;
	my ($out, $err) = ('', '');

	IPC::Run::run([ fleet_command(@arguments) ], '>', \$out, '2>', \$err);
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

# Clients of pools, that insert into table t of the pool's shards by turns, some times a second, and note
# each id that they are told, and how long each statement took; connecting again after a loss.
sub paced_clients
{
	my ($pooler, %shards_of) = @_;
	my @clients = map { paced_client(PoolerTest::pooled($pooler, $_), map { "insta$_.t" } @{ $shards_of{$_} }) } sort keys %shards_of;

	more_ids(@clients);
	return @clients;
}

# One of them, of whichever server and tables.
sub paced_client
{
	my ($connstr, @tables) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/client';
	my $rows = join '', map { "INSERT INTO $_ DEFAULT VALUES RETURNING id;\nDO 'BEGIN PERFORM pg_sleep(0.03); END';\n" } @tables;

	append_to_file("$file.sql", "\\timing on\n" . $rows x 2000);
	my $run = IPC::Run::start([ 'sh', '-c', 'while :; do "$@"; done', 'sh', 'psql', '-XAtq', '-v', 'VERBOSITY=verbose', '-d', $connstr, '-f', "$file.sql" ], '>', "$file.out", '2>', "$file.err");
	return { run => $run, out => "$file.out", err => "$file.err" };
}

sub more_ids
{
	for my $client (@_)
	{
		my $size = -s $client->{out} // 0;
		$client->{run}->pump_nb, usleep(20_000) while (-s $client->{out} // 0) <= $size;
	}
	return;
}

# The longest wait of each client so far, in milliseconds.
sub longest_wait
{
	my $longest = 0;
	for my $client (@_)
	{
		for (slurp_file($client->{out}) =~ /^Time: ([\d.]+) ms/mg) { $longest = $_ if $_ > $longest }
	}
	return $longest;
}

# After each has had more ids, they end.  Returns the ids that they were told, and their errors.
sub stop_clients
{
	my (@clients) = @_;
	more_ids(@clients);
	$_->{run}->signal('KILL') for @clients;
	$_->{run}->finish for @clients;
	return ([ map { slurp_file($_->{out}) =~ /^(\d+)$/mg } @clients ], [ map { grep { /ERROR|FATAL|lost/ } split /\n/, slurp_file($_->{err}) } @clients ]);
}

# A server's backup, in its place.
sub as_it_was
{
	my ($node, $name) = @_;
	my $old = PostgreSQL::Test::Cluster->new($name // 'old');
	$old->init_from_backup($node, 'before');
	$old->append_conf('postgresql.conf', 'port = ' . $node->port . "\nunix_socket_directories = '" . $node->host . "'\nlisten_addresses = ''");
	$old->{_port} = $node->port;
	$old->{_host} = $node->host;
	$old->start;
	return $old;
}

1;
