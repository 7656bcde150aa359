# The history of homes: whose backup has a shard as it was then?  It is kept through moves there
# and back, and through ones that are undone, with a directory and without; a dump has it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my ($a, $b, $dir) = map { move_node($_) } qw(a b dir);
$_->start for $a, $b, $dir;
my %address = map { ($_->name => 'host=' . $_->host . ' port=' . $_->port . ' dbname=postgres') } $a, $b, $dir;
my %name = reverse %address;

# Where a server says that shard 5 has lived, by the names of this test.
sub homes
{
	my ($node, $database) = @_;
	return join ' ', map { $name{$_} // $_ } split /\n/, $node->safe_psql($database // 'postgres',
		q{SELECT coalesce(home, 'here') FROM snowid.shard_homes WHERE shard = 5 ORDER BY since});
}

$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $b, $dir;
make_shard($a, 5, 'insta5');
is(homes($a), 'here', 'a new shard');
is($a->safe_psql('postgres', q{SELECT since BETWEEN now() - interval '1 hour' AND now() FROM snowid.shard_homes}), 't', '... since now');

moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
is(homes($b), 'a', 'the target learns of it');
moves_ok($a, $b, 5, ['abort'], 0, 'undone');
is(homes($a), 'a', 'a move that is undone is not in it');

my $before = $b->safe_psql('postgres', 'SELECT clock_timestamp()');
moves_ok($a, $b, 5, ['move'], 0, 'moved');
is(homes($_), 'a b', 'after a move, on ' . $_->name) for $a, $b;
is($b->safe_psql('postgres', qq{SELECT home FROM snowid.shard_homes WHERE shard = 5 AND since <= '$before' ORDER BY since DESC LIMIT 1}), $address{a}, 'whose backup to take');
moves_ok($a, $b, 5, ['finish'], 0, 'finished');
is(homes($_), 'a b', 'kept after finish, on ' . $_->name) for $a, $b;

# With a directory: its row is everybody's.
$dir->safe_psql('postgres', q{INSERT INTO snowid.shard_registry SELECT * FROM jsonb_populate_recordset(NULL::snowid.shard_registry, } .
	"'" . $b->safe_psql('postgres', 'SELECT jsonb_agg(r) FROM snowid.shard_registry r') . "')");
$dir->safe_psql('postgres', 'CREATE PUBLICATION shard_registry FOR TABLE snowid.shard_registry');
for ($a, $b)
{
	$_->safe_psql('postgres', q{CREATE SUBSCRIPTION registry_} . $_->name . q{ CONNECTION '} . $address{dir} .
		q{' PUBLICATION shard_registry WITH (copy_data = false)});
}
moves_ok($b, $a, 5, [ 'move', '--registry', $dir->connstr('postgres') ], 0, 'moved back, with a directory');
is(homes($dir), 'a b a', 'the directory');
$dir->wait_for_catchup("registry_" . $_->name) for $a, $b;
my $rows = q{SELECT homes FROM snowid.shard_registry};
is($_->safe_psql('postgres', $rows), $dir->safe_psql('postgres', $rows), 'replicated as it is, to ' . $_->name) for $a, $b;

# By hand, and back: as the registry had it.
$a->safe_psql('postgres', q{SELECT snowid.fence_shard(5, 'host=x'); SELECT snowid.unfence_shard(5)});
is(homes($a), 'a b a host=x a', 'closed by hand and opened again');
$a->safe_psql('postgres', q{UPDATE snowid.shard_registry SET pool = 'p', home = home});
is(homes($a), 'a b a host=x a', 'the same home is no new one');

# A dump, with all that it says.
$a->safe_psql('postgres', 'CREATE DATABASE restored');
$a->command_ok([ 'sh', '-c', 'pg_dump --no-subscriptions -d "$1" | psql -Xq -v ON_ERROR_STOP=1 -d "$2"', 'sh', $a->connstr('postgres'), $a->connstr('restored') ], 'dumped and restored');
is($a->safe_psql('restored', $rows), $a->safe_psql('postgres', $rows), 'the dump has it');

$_->stop for $a, $b, $dir;
done_testing();
