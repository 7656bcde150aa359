# A script runs once in each shard of two servers, whatever is in its way: a
# shard that fails, others that are locked, or out of reach.  The ledger says so,
# and a shard that is made like another has it, too.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use EachTest;
use JSON::PP ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my ($a, $b) = each_pair();

subtest 'the command line' => sub {
	program_help_ok('snowid-each');
	program_version_ok('snowid-each');
	program_options_handling_ok('snowid-each');
	for ([ [], qr/--registry is needed/ ],
		[ [ '--registry', 'dbname=x' ], qr/to run, --name/ ],
		[ [ 'create', '--registry', 'dbname=x' ], qr/--like and --shard/ ],
		[ [ '--jobs', 0 ], qr/from 1 to 100/ ],
		[ ['levitate'], qr/unknown argument "levitate"/ ],
		[ [ 'run', 'more' ], qr/unknown argument "more"/ ],
		[ [ '--registry', 'host=/nowhere password=secret', '--name', 'x' ], qr/registry: .*nowhere/ ])
	{
		my ($code, $said) = snowid_each(@{ $_->[0] });
		is($code, 2, "usage: @{ $_->[0] }");
		like($said, $_->[1], 'it says why');
		unlike($said, qr/secret/, 'and no password');
	}
	each_ok($a, 2, qr/does not know all of these shards\n.*SELECT \* FROM snowid\.shards;/, '--name', 'x', '--shard', '19-20');
	my ($code, $said) = snowid_each('--registry', $a->connstr('template1'), 'status');
	is($code, 2, 'a database without snowid');
	like($said, qr/registry: relation "snowid\.shard_registry" does not exist\n.*CREATE EXTENSION snowid;/, '... of which it says so');
	each_ok($a, 2, qr/could not read file/, '--name', 'x', '--file', '/nowhere');
	each_ok($a, 2, qr/the script is empty/, '--name', 'x', '--file', script_file(''));
	each_ok($a, 2, qr/no shard has done "x"; say where it is: --file/, '--name', 'x');
};

subtest 'each shard once' => sub {
	my $file = script_file('ALTER TABLE photos ADD COLUMN place text; INSERT INTO runs SELECT current_schema');

	each_ok($a, 0, qr/^snowid-each: 4 shards done .* 0 are left/m, '--name', 'add_place', '--file', $file, '--canary', 2);
	is(shards_with($a, $b, 'photos', 'place'), '0,1,10,11', 'the canaries are the first of each server');
	each_ok($a, 0, qr/16 shards done in .*, 4 had it before, 0 are left/, '--name', 'add_place', '--jobs', 8);
	is(shards_with($a, $b, 'photos', 'place'), join(',', 0 .. 19), 'the rest, by name alone');
	is(runs($a, $b), '20 20', 'each once');
	each_ok($a, 0, qr/0 shards done in .*, 20 had it/, '--name', 'add_place', '--file', $file);
	is(runs($a, $b), '20 20', '... whatever is typed again');
	each_ok($a, 1, qr/another script was run under this name: 20 shards: 0-19/, '--name', 'add_place', '--file', script_file('SELECT 1'));
	is($b->safe_psql('postgres', q{
SELECT name, checksum = encode(sha256(convert_to(script, 'UTF8')), 'hex'), run_by = current_user, finished_at >= started_at, error
FROM insta15.snowid_migrations}), 'add_place|t|t|t|', 'what the ledger says');
};

subtest 'a shard that fails' => sub {
	$b->safe_psql('postgres', 'CREATE INDEX only_here ON insta13.photos (place)');
	my $file = script_file('INSERT INTO runs SELECT current_schema; CREATE INDEX only_here ON photos (place)');
	each_ok($a, 1, qr/19 shards done.*failed\n  statement 2, line 1: relation "only_here" already exists: 1 shard: 13$/s, '--name', 'index', '--file', $file);
	each_ok($a, 1, qr/^add_place\n  done: 20 shards: 0-19\nindex\n  done: 19 shards: 0-12,14-19\n  not done, failed: statement 2, line 1: relation "only_here" already exists: 1 shard: 13$/m, 'status');
	is($b->safe_psql('postgres', "SELECT count(*) FROM runs WHERE s = 'insta13'"), 1, 'nothing of it is left there');
	$b->safe_psql('postgres', 'DROP INDEX insta13.only_here');
	each_ok($a, 0, qr/1 shards done in .*, 19 had it/, '--name', 'index');

	# However long it is.
	each_ok($a, 1, qr/failed\n  statement 1, line 1: xy(\xc3\xa4){244}: 20 shards/, '--name', 'long', '--file', script_file(qq{DO \$\$BEGIN RAISE 'xy@{[ "\xc3\xa4" x 300 ]}'; END\$\$}));
	is($a->safe_psql('postgres', q{SELECT length(error) FROM insta0.snowid_migrations WHERE name = 'long'}), 267, 'a long message is in the ledger');

	# As JSON, for other programs.
	my $json = sub { JSON::PP::decode_json(each_ok(@_, '--json') =~ s/^snowid-each: .*\n//gmr)->{facts} };
	is_deeply($json->($a, 1, qr/facts/, 'status', '--shard', '2,13'), [
		{ subject => 'add_place', what => 'done', shards => [ 2, 13 ] }, { subject => 'index', what => 'done', shards => [ 2, 13 ] },
		map { { subject => 'long', what => "not done, failed: statement 1, line 1: xy" . "\x{e4}" x 244, shards => [ 2, 13 ] } } 1 ], 'status');
	is_deeply($json->($a, 0, qr/facts/, '--name', 'q"\\', '--file', script_file('SELECT 1'), '--shard', '2-3'),
		[ { subject => 'done', what => 'now', shards => [ 2, 3 ] } ], 'the report of run');
	is_deeply($json->($a, 1, qr/facts/, 'status', '--shard', '3-4')->[-1], { subject => 'q"\\', what => 'not begun', shards => [4] }, 'a name with quotes');
	is_deeply($json->($a, 0, qr/facts/, 'diff', '--shard', '2-4'), [], 'diff');
	each_ok($a, 0, qr/2 shards have forgotten/, 'forget', '--name', 'q"\\', '--shard', '2-3');

	# It ends nothing: the script is no part of a transaction of its own making.
	each_ok($a, 2, qr/line 2: $_: each shard has its own transaction/, '--name', 'ends', '--file', script_file("INSERT INTO runs VALUES (5); -- x\n$_ WORK"))
	  for qw(COMMIT END ROLLBACK ABORT BEGIN);
	each_ok($a, 1, qr/not begun: \d+ shards/, '--name', 'stops', '--file', script_file('SELECT 1/0'), '--stop-on-error', '--jobs', 1);
	each_ok($a, 1, qr/^stops\n  not begun: 1[89] shards.*\n  not done, failed: statement 1, line 1: division by zero: [12] shard/m, 'status');

	# By name alone goes on what has worked.
	each_ok($a, 0, qr/1 shards done/, '--name', 'stops', '--file', script_file('SELECT 1'), '--shard', 12);
	each_ok($a, 0, qr/19 shards done in .*, 1 had it/, '--name', 'stops');
	each_ok($a, 0, qr/1 shards done/, '--name', 'two', '--file', script_file("SELECT $_"), '--shard', $_) for 3, 15;
	each_ok($a, 2, qr/shard 15 has another script "two" than others; say which: --file/, '--name', 'two');
};

done_testing();
