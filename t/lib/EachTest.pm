# What the tests of snowid-each share: two servers with ten shards each, of which
# the first has the registry of all.
package EachTest;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest ();
use Test::More;

our @EXPORT = qw(each_pair each_command each_args snowid_each each_ok script_file shards_with runs);

$SnowidTest::keeps_sessions = 1;

# Shards 0 to 9 on the first, 10 to 19 on the second, each with a table; runs is
# where scripts leave a row.
sub each_pair
{
	my (%params) = @_;
	my @nodes;

	for my $first (0, 10)
	{
		my $node = PostgreSQL::Test::Cluster->new($first == 0 ? 'a' : 'b');
		$node->init(%params);
		$node->append_conf('postgresql.conf', "max_connections = 50\nwal_level = logical");
		$node->start;
		$node->safe_psql('postgres', 'CREATE EXTENSION snowid; CREATE TABLE runs (s text)');
		$node->safe_psql('postgres', "CALL snowid.create_shards($first, $first + 9, ddl =>
			'CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id(), n int)')");
		push @nodes, $node;
	}
	my $home = sprintf 'host=%s port=%s dbname=postgres', $nodes[1]->host, $nodes[1]->port;
	$nodes[0]->safe_psql('postgres', qq{
INSERT INTO snowid.shard_registry (shard, schema, home)
SELECT i, 'insta' || i, '$home' FROM generate_series(10, 19) i});
	return @nodes;
}

sub each_args
{
	my ($registry, @args) = @_;
	return ('--registry', $registry->connstr('postgres'), @args);
}

sub each_command
{
	return ('snowid-each', each_args(@_));
}

# Run snowid-each; returns its exit code, and what it has said.
sub snowid_each
{
	my ($stdout, $stderr) = ('', '');

	IPC::Run::run([ 'snowid-each', @_ ], '>', \$stdout, '2>', \$stderr,
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return ($? >> 8, $stderr . $stdout);
}

# Run it with the registry of that server, and expect an exit code and a text.
sub each_ok
{
	my ($registry, $expected, $like, @args) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($code, $said) = snowid_each(each_args($registry, @args));

	ok($code == $expected && $said =~ $like, "@args") or diag "exit code $code, not $expected; said:\n$said";
	return $said;
}

my $scripts = 0;

sub script_file
{
	my ($text) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/' . ++$scripts . '.sql';

	append_to_file($file, $text);
	return $file;
}

# Which shards have a column.
sub shards_with
{
	my ($a, $b, $table, $column) = @_;
	return join ',', map { $_->safe_psql('postgres', qq{
SELECT string_agg(shard::text, ',' ORDER BY shard) FROM snowid.shard_registry r JOIN pg_namespace n ON nspname = schema
JOIN pg_class c ON relnamespace = n.oid AND relname = '$table' JOIN pg_attribute ON attrelid = c.oid AND attname = '$column'
WHERE snowid.shard_home(shard) = 'here'}) } $a, $b;
}

# How many rows scripts have left, and of how many shards.
sub runs
{
	my ($a, $b) = @_;
	my @runs = map { split /\n/, $_->safe_psql('postgres', 'TABLE runs') } $a, $b;
	my %shards = map { $_ => 1 } @runs;
	return @runs . ' ' . keys %shards;
}

1;
