# snowid-move audit: each contradiction is made, as it comes about, and must be named
# with what mends it; and what it names, or --fix types, must mend it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run ();
use MoveTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my ($a, $b, $dir) = map { move_node($_) } qw(a b dir);
$_->start for $a, $b, $dir;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b, $dir;
my %address = map { ($_->name => address($_)) } $a, $b, $dir;

$a->safe_psql('postgres', q{CALL snowid.create_shards(1, 5, ddl => 'CREATE TABLE t (id bigint PRIMARY KEY DEFAULT next_id()); INSERT INTO t DEFAULT VALUES')});
$dir->safe_psql('postgres', "INSERT INTO snowid.shard_registry (shard, schema, sequence, home) SELECT n, 'insta' || n, 'id_seq', '$address{a}' FROM generate_series(1, 5) n");
$b->safe_psql('postgres', 'SELECT snowid.create_shard(6)');
$dir->safe_psql('postgres', "INSERT INTO snowid.shard_registry (shard, schema, sequence, home) VALUES (6, 'insta6', 'id_seq', '$address{b}')");

# Without quotes, for SQL.
sub address
{
	my ($node) = @_;
	return 'host=' . $node->host . ' port=' . $node->port . ' dbname=postgres';
}

# Run it; it exits with 1 if anything is left.
sub audit
{
	my ($expected, $name, $likes, @options) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($out, $errors) = ('', '');

	IPC::Run::run([ 'snowid-move', 'audit', '--registry', $address{dir}, @options ], '>', \$out, '2>', \$errors);
	is($? >> 8, $expected, "$name: exit status") or diag "$out$errors";
	like("$out$errors", $_, "$name: says so") for @$likes;
	return $out;
}

# Found, mended by --fix, and then well.
sub mends
{
	my ($name, $like) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	audit(1, $name, [$like]);
	audit(0, "$name, with --fix", [qr/^mended: /m], '--fix');
	audit(0, "$name, after it", [qr/ 0 contradictions/]);
	return;
}

# Type what it says at a server.
sub type_at
{
	my ($node, $said, $like) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($command) = $said =~ /at [^\n]*, type: ($like[^\n]*;)/;

	ok(defined $command, "it says what to type: $like") or return;
	$node->safe_psql('postgres', $command);
	return;
}

audit(0, 'all is well', [qr/^3 servers looked at, 0 contradictions$/m]);

# A server that was restored says "here" of a shard that lives elsewhere: it is closed, and can go.
$dir->safe_psql('postgres', "UPDATE snowid.shard_registry SET home = '$address{$_}' WHERE shard = 1") for 'b', 'a';
$b->safe_psql('postgres', 'SELECT snowid.create_shard(1)');
audit(1, 'open twice', [qr/shard 1 is open at \Q$address{b}\E, and at \Q$address{a}\E\n.*fence_shard\(1, /]);
my $said = audit(1, 'open twice, with --fix', [ qr/^mended: shard 1 is open/m, qr/closed copy of shard 1/ ], '--fix');
is($a->safe_psql('postgres', 'INSERT INTO insta1.t DEFAULT VALUES RETURNING 1'), '1', 'the right one stays open');
my ($diff) = $said =~ /type: (snowid-move diff --shard 1 [^;\n]*);/;
like(qx{$diff 2>&1}, qr/insta1\.t: .* only at --to/, '... after it was compared');
type_at($b, $said, 'SELECT snowid.drop_shard');
audit(0, 'a stale copy that was dropped', []);
is($b->safe_psql('postgres', q{SELECT to_regnamespace('insta1') IS NULL, snowid.shard_home(1)}), "t|$address{a}", 'and the number stays');

$b->safe_psql('postgres', q{UPDATE snowid.shard_registry SET home = 'host=nowhere'});
mends('a registry that is behind', qr/names host=nowhere/);
$dir->safe_psql('postgres', "UPDATE snowid.shard_registry SET home = '$address{b}' WHERE shard = 3");
mends('a directory that is behind', qr/shard 3 is open at \Q$address{a}\E, and the directory names \Q$address{b}\E/);

$a->safe_psql('postgres', 'SELECT snowid.fence_shard(2)');
type_at($a, audit(1, 'open nowhere', [qr/shard 2 is open nowhere/]), 'SELECT snowid.unfence_shard');
audit(0, 'open again', []);

# A number of which the directory does not know, on two servers.
$_->safe_psql('postgres', q{SELECT snowid.create_shard(50); CREATE TABLE insta50.t (id bigint PRIMARY KEY); INSERT INTO insta50.t VALUES (1)}) for $a, $b;
$b->safe_psql('postgres', 'INSERT INTO insta50.t VALUES (2)');
$said = audit(1, 'open twice, and unknown', [qr/shard 50 is open at \Q$address{a}\E and \Q$address{b}\E, and the directory does not know it/]);
($diff) = $said =~ /type: (snowid-move diff --shard 50 [^;\n]*);/;
like(qx{$diff 2>&1}, qr/insta50\.t: 0 only at --from, 1 only at --to/, '... what is told shows which to keep');
type_at($a, $said, 'SELECT snowid.fence_shard');
audit(0, '... closed', []);
$_->safe_psql('postgres', 'SELECT snowid.drop_shard(50, true)') for $a, $b;

# A move that is not finished; then one that is undone behind its back.
moves_ok($a, $b, 4, [ '--registry', $address{dir} ], 0, 'a shard moves');
$said = audit(1, 'a move that is not finished', [qr/the copy of shard 4 at .* can go\n.*snowid-move finish --shard 4/]);
{
	local $address{dir} = "$address{dir} passfile='/it\\'s so'";
	$said = audit(1, 'a registry with quotes', [qr/snowid-move finish --shard 4/]);
}
$b->safe_psql('postgres', 'CREATE TABLE public.kept AS TABLE snowid.moves; DELETE FROM snowid.moves');
unlike(audit(1, 'one of which the target knows nothing', [qr/moved\), of which .* knows nothing\n.*snowid-move diff --shard 4 .* --as 'insta4_moved'; rows only at --to are nowhere else/]), qr/ can go/, '... is not said to go');
$b->safe_psql('postgres', 'INSERT INTO snowid.moves TABLE public.kept; DROP TABLE public.kept');
my ($finish) = $said =~ /type: (snowid-move finish [^\n]*)/;
is(system("$finish >/dev/null 2>&1"), 0, 'the command that it names does it');
audit(0, 'a move that is finished', []);

moves_ok($a, $b, 5, [ '--stop-after', 'copied', '--registry', $address{dir} ], 0, 'a shard is copied');
audit(0, 'a move that is under way', []);
$b->safe_psql('postgres', 'DELETE FROM snowid.moves');
$said = audit(1, 'a journal that is lost', [ qr/has a move of shard 5 \(source, copied\), of which .* knows nothing/, qr/snowid-move abort --shard 5 / ], '--fix');
unlike($said, qr/mended.*(slot|publication)/, 'nothing that a move uses is dropped');
like($said, qr/shard 5 is open at .*, and at .*\n.*snowid-move diff --shard 5 .* may be newer; .* or the other way round$/m, 'which of the two is right, a person decides');
$b->safe_psql('postgres', "SELECT snowid.fence_shard(5, '$address{a}')");
$said = audit(1, 'it is decided', [qr/has a closed copy of shard 5/]);
type_at($b, $said, 'SELECT snowid.drop_shard');
is(system(($said =~ /type: (snowid-move abort [^\n]*)/)[0] . ' >/dev/null 2>&1'), 0, 'the commands that it names, in this order, do it');
audit(0, 'all is mended', []);

# Leftovers.
$a->safe_psql('postgres', q{CREATE PUBLICATION snowid_move_9_0123abcd});
$a->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('snowid_move_9_0123abcd', 'pgoutput')});
$b->safe_psql('postgres', "CREATE SUBSCRIPTION snowid_move_9_0123abcd CONNECTION '$address{a}' PUBLICATION snowid_move_9_0123abcd WITH (create_slot = false, enabled = false)");
mends('leftovers', qr/has a slot that no move uses: snowid_move_9_0123abcd/);

$b->safe_psql('postgres', 'ALTER SYSTEM SET default_transaction_read_only = on');
$b->reload;
$b->poll_query_until('template1', 'SHOW default_transaction_read_only', 'on');
type_at($b, audit(1, 'a setting that is left', [qr/is read-only by ALTER SYSTEM/]), 'ALTER SYSTEM RESET');
$b->poll_query_until('template1', 'SHOW default_transaction_read_only', 'off');
$b->poll_query_until('postgres', 'SHOW default_transaction_read_only', 'off');
audit(0, 'without it', []);

# What only a person can mend.
$dir->safe_psql('postgres', "UPDATE snowid.shard_registry SET pool = 'p'");
audit(1, 'a pool over two servers', [qr/pool p leads to shards on several servers/]);
$dir->safe_psql('postgres', 'UPDATE snowid.shard_registry SET pool = NULL');

$b->safe_psql('postgres', q{COMMENT ON FUNCTION snowid.version() IS 'version of snowid in this database: 0.9'});
audit(1, 'versions differ', [qr/has snowid 0\.9, and the directory 1\.0/]);
$b->safe_psql('postgres', q{COMMENT ON FUNCTION snowid.version() IS 'version of snowid in this database: 1.0'});

$dir->safe_psql('postgres', 'CREATE PUBLICATION shard_registry FOR TABLE snowid.shard_registry');
$b->safe_psql('postgres', "DELETE FROM snowid.shard_registry WHERE shard = 1");
$b->safe_psql('postgres', "CREATE SUBSCRIPTION registry CONNECTION '$address{dir}' PUBLICATION shard_registry WITH (copy_data = false)");
audit(1, 'a registry that lacks shards', [qr/the registry of \Q$address{b}\E lacks shards of the directory: /]);
$b->safe_psql('postgres', 'ALTER SUBSCRIPTION registry DISABLE');
audit(1, 'a subscription that is disabled', [qr/subscription registry of .* is disabled\n.*ALTER SUBSCRIPTION registry ENABLE/]);
$b->safe_psql('postgres', 'DROP SUBSCRIPTION registry');
audit(0, 'all is well again', []);

$a->backup('a');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($a, 'a', has_streaming => 1);
$standby->start;
$dir->safe_psql('postgres', "UPDATE snowid.shard_registry SET home = '" . address($standby) . "' WHERE shard = 3");
audit(1, 'a home that leads to a standby', [qr/ is a standby$/m]);
audit(1, '... with --fix', [qr/, 0 mended$/m], '--fix');
is($a->safe_psql('postgres', 'SELECT lives FROM snowid.shards WHERE shard = 3'), 'here', '... which closes nothing at its primary');
$dir->safe_psql('postgres', "UPDATE snowid.shard_registry SET home = '$address{a}' WHERE shard = 3");

$b->stop;
audit(1, 'a server that is down', [qr/connection to server .* failed/, qr/^2 servers looked at, 1 contradictions$/m]);
audit(1, 'with --fix nothing is done then', [qr/, 0 mended$/m], '--fix');

IPC::Run::run([ 'snowid-move', 'audit' ], '>', \my $none, '2>', \my $usage);
is($? >> 8, 2, 'it needs the registry');
like($usage, qr/--registry is needed/, 'and says so');

done_testing();
