# Behind PgBouncer, clients notice nothing of a move: neither those who keep their
# connections, in transaction mode, nor those who connect for each piece of work, in
# session mode.  And whatever ends the program or the pooler, the same command makes the
# pools go on.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PoolerTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

plan skip_all => 'pgbouncer is not installed' unless have_pgbouncer();

my $a = move_node('a');
my $b = move_node('b');
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;
fresh_set($a, $b);
$a->safe_psql('postgres', q{UPDATE snowid.shard_registry SET pool = 'p' || shard % 2 WHERE shard < 7});
my ($home_a, $home_b) = map { "host='" . $_->host . "' port='" . $_->port . "' dbname='postgres'" } $a, $b;

subtest 'route' => sub {
	$a->safe_psql('postgres', "UPDATE snowid.shard_registry SET entry_options = $_->[0] WHERE shard IN ($_->[1])")
	  for [ q{'pool_size=4'}, '2, 3, 8' ], [ q{$$connect_query='SET search_path = %p'$$}, 7 ];
	my $said = entries($a);
	like($said, qr/\A; entries of PgBouncer, from the registry at .* as of .*\n\[databases\]\n/, 'says of what and when');
	is($said =~ s/\A.*\n.*\n//r, join('', map { "$_->[0] = $home_a $_->[1]\n" } [ insta7 => q{connect_query='SET search_path = insta7'} ], map { [ $_, 'pool_size=4' ] } qw(insta8 p0 p1)),
		'an entry for each pool, sorted, with its options');
	is(sqlstate($a, "UPDATE snowid.shard_registry SET entry_options = E'$_'"), '23514', 'no options') for 'x=1\\ny = host=z', 'x=1 password=y', 'USER =z', q{x=''''y''''auth_query=z}, q{x=''};

	my @wrong = (
		(map { [ "pool = '$_' WHERE shard = 3", qr/pool "\Q$_\E" of shard 3 cannot be the name of an entry/ ] } 'a b', '', 'pgbouncer', "a\n", 'x' x 64),
		[ q{home = E'host=''x\ny'' dbname=z' WHERE shard = 1; ALTER SCHEMA insta1 RENAME TO away}, qr/home of shard 1 leads nowhere/ ],
		[ q{home = 'host=x dbname=y' WHERE shard = 1; ALTER SCHEMA insta1 RENAME TO away}, qr/pool "p1" has shards in two places: 3, 5 at .*; 1 at host=x dbname=y/ ],
		[ q{entry_options = 'pool_size=5' WHERE shard = 1}, qr/the shards of pool "p1" have different entry_options in the registry/ ],
		[ q{home = 'host=/nowhere,/too dbname=z' WHERE shard = 1; ALTER SCHEMA insta1 RENAME TO away}, qr/home of shard 1 leads nowhere: host=.nowhere,.too/ ],
		[ q{shard = 1 WHERE shard = 1; ALTER SCHEMA insta1 RENAME TO away}, qr/shard 1 has no home/ ]);
	IPC::Run::run([ 'snowid-move', 'route', '--from', 'host=/nowhere dbname=x' ], '2>', \my $err);
	is($? >> 8, 2, 'no server');
	my @right = (
		[ q{E'host=''it\\\\\'s far'' dbname=''a b''' WHERE shard = 8}, qr/^insta8 = host='it''s far' port='5432' dbname='a b' pool_size=4$/m ],
		[ q{'host=} . join(',', ($b->host) x 2) . ' port=1,' . $b->port . q{ dbname=postgres' WHERE shard = 8}, qr/^insta8 = \Q$home_b\E pool_size=4$/m ]);
	for (@wrong, map { [ "home = $_->[0]; ALTER SCHEMA insta8 RENAME TO away", $_->[1], 1 ] } @right)
	{
		my ($set, $like, $right) = @$_;
		$a->safe_psql('postgres', "CREATE TABLE public.kept AS TABLE snowid.shard_registry; UPDATE snowid.shard_registry SET $set");
		my $text = eval { entries($a) };
		like($right ? $text : $@, $like, $right ? 'an entry' : 'refused, with the reason');
		is($text, undef, '... and no entries') unless $right;
		$a->safe_psql('postgres', q{DELETE FROM snowid.shard_registry; INSERT INTO snowid.shard_registry TABLE public.kept; DROP TABLE public.kept;
DO $$ BEGIN EXECUTE (SELECT 'ALTER SCHEMA away RENAME TO ' || schema FROM snowid.shard_registry WHERE to_regnamespace(schema) IS NULL); EXCEPTION WHEN OTHERS THEN END $$});
	}
};

my $t = start_pooler($a);
my $s = start_pooler($a, 'pool_mode = session', $t->{file});
my @options = pooler_options($t, $s);

subtest 'a move' => sub {
	moves_ok($a, $b, 5, ['plan'], 0, 'no pooler', qr/warning +poolers: the registry names pools, and no --pooler is given\n.*--pooler-file/);
	moves_ok($a, $b, '1-6', [ 'plan', @options ], 0, 'plan', qr/ok +poolers|warning +poolers: pool "p0" is in session mode/);
	# One that the pooler would refuse, for any pool of the file.
	for (7, 2)
	{
		$a->safe_psql('postgres', "CREATE TABLE kept AS TABLE snowid.shard_registry; UPDATE snowid.shard_registry SET entry_options = 'pool_sise=5' WHERE pool IN (SELECT pool FROM kept WHERE shard = $_) OR shard = $_");
		my $pool = $_ == 7 ? 'insta7' : 'p0';
		moves_ok($a, $b, '1-6', [ @$_, @options ], 1, 'options not read yet', qr/pool "$pool" has other entry_options in the registry than in the file: type snowid-move route/) for ['plan'], [];
		$a->safe_psql('postgres', 'UPDATE snowid.shard_registry r SET entry_options = k.entry_options FROM kept k WHERE k.shard = r.shard; DROP TABLE kept');
	}
	my $was = slurp_file($t->{file}) =~ s/\A.*\n//r;
	my @clients = map { (clients($t, $_->[0], 0, @{ $_->[1] }), clients($s, $_->[0], 1, @{ $_->[1] })) } [ p0 => [ 2, 4, 6 ] ], [ p1 => [ 1, 3, 5 ] ];
	my $other = clients($t, 'insta7', 0, 7);
	moves_ok($a, $b, '1-6', [@options], 0, 'moved', qr/6 of 6 shards have moved, 6 of them now.*writes waited \d+ ms at most, clients at the poolers \d+ ms at most/);
	is(living($b), '1,2,3,4,5,6', 'all are there');
	is_deeply([ led_to($_, 'p0'), led_to($_, 'insta7') ], [ $b->port, $a->port ], 'the pooler leads there, and others as before') for $t, $s;
	clients_ok('move', $b, \@clients, qr/^$/);
	clients_ok('move', $a, [$other], qr/^$/);
	is($a->safe_psql('postgres', q{SELECT count(*) FROM snowid.moves WHERE details ? 'poolers'}), 0, 'the journal has forgotten the poolers');
	my $entries = sub { return slurp_file($t->{file}) =~ s/\A.*\n//r };
	is($entries->(), $was =~ s/^(p\d = ).*?(?= \w+=4$)/$1$home_b/mgr, 'entries keep their options');
	moves_ok($a, $b, '1-6', [ 'finish', @options ], 0, 'finish');
	is($b->safe_psql('postgres', 'SELECT pool, entry_options FROM snowid.shard_registry WHERE shard = 3'), 'p1|pool_size=4', '... and move along');
};

subtest 'the search path in transaction mode' => sub {
	my $say = sub {
		my ($pool, $sql) = @_;
		IPC::Run::run([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', pooled($t, $pool), '-c', $sql ], '>', \my $out, '2>', \my $err);
		return $out . $err;
	};
	my $count = 'SELECT current_schema()';

	$a->safe_psql('postgres', q{UPDATE snowid.shard_registry SET entry_options = 'pool_size=1' WHERE shard > 6});
	write_entries($t, $a);
	system_or_bail('psql', '-Xqc', 'RELOAD', console($t));
	$say->('insta7', 'SET search_path = insta7');
	# Servers report it since 18; PgBouncer 1.26 keeps it for each client.
	my $kept = $a->pg_version >= 18 && pgbouncer_version() >= 1026;
	is($say->('insta7', $count), $kept ? "public\n" : "insta7\n", 'SET: the next client gets it, before 1.26');
	is($say->('insta8', "BEGIN; SET LOCAL search_path = insta8; $count; COMMIT") . $say->('insta8', $count), "insta8\npublic\n", 'SET LOCAL: he does not');
	$a->safe_psql('postgres', q{UPDATE snowid.shard_registry SET entry_options = $$pool_size=1 connect_query='SET search_path = %p'$$ WHERE shard > 6});
	write_entries($t, $a);
	system_or_bail('psql', '-Xqc', 'RELOAD', console($t));
	is($say->('insta8', $count), "insta8\n", 'connect_query: each entry has its shard');
};

subtest 'a directory' => sub {
	$a->safe_psql('postgres', 'CREATE DATABASE dir');
	$a->safe_psql('dir', 'CREATE EXTENSION snowid');
	$a->safe_psql('dir', "INSERT INTO snowid.shard_registry (shard, schema, home, pool) VALUES ($_, 'insta$_', \$\$$home_a\$\$, 'all')") for 7, 8;
	my $directory = $a->connstr('dir');
	my $text = `snowid-move route --from "$directory"`;
	is($text =~ s/\A.*\n.*\n//r, "all = $home_a \n", 'its entries');
	$a->safe_psql('postgres', q{UPDATE snowid.shard_registry SET pool = 'all' WHERE shard > 6});
	my $p = start_pooler($a);
	moves_ok($a, $b, '7,8', [ '--registry', $directory, pooler_options($p) ], 1, 'a file of another registry', qr/file .* is not of the registry at .*dir/);
	unlink $p->{file};
	append_to_file($p->{file}, $text);
	system_or_bail('psql', '-Xqc', 'RELOAD', console($p));
	my @clients = clients($p, 'all', 0, 7, 8);
	moves_ok($a, $b, '7,8', [ '--registry', $directory, pooler_options($p) ], 0, 'moved');
	is(led_to($p, 'all'), $b->port, 'the pool leads there');
	clients_ok('directory', $b, \@clients, qr/^$/);
};

$_->stop for $a, $b;
done_testing();
