# Scripts as people write them: with mistakes, with what editors and copies leave in
# them, with settings of a session.  What is wrong is told with its statement and
# line; nothing is cut, kept for the next shard, or done in silence.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use EachTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my ($a, $b) = each_pair();
my $n = 0;

sub run_script
{
	my ($expected, $like, $text, @args) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return each_ok($a, $expected, $like, '--name', 'n' . ++$n, '--file', script_file($text), @args);
}

subtest 'the text' => sub {
	run_script(2, qr/what should be a text has a byte 0/, "INSERT INTO runs VALUES (1);\0INSERT INTO runs VALUES (2)");
	is(runs($a, $b), '0 0', 'nothing of it is run');
	run_script(0, qr/20 shards done/, "\xef\xbb\xbfINSERT INTO runs VALUES (1)");
	run_script(0, qr/20 shards done/, "\xef\xbb\xbf-- no transaction\r\nVACUUM photos;\r\n");
	run_script(0, qr/20 shards done/, "-- only a comment\n");
	$_->safe_psql('postgres', 'TRUNCATE runs') for $a, $b;

	my $second = qr/statement 2, line 4: column "x" does not exist: 20 shards/;
	run_script(1, $second, "SELECT 1;\n/* */ SELECT\n 'ä', 'b;'\n, x;\nSELECT 2");
	run_script(1, $second, "-- no transaction\nSELECT 1; SELECT 'ä',\n'b;',\nx;");
	run_script(1, qr/statement 3, line 6: division by zero: 20 shards/, "-- x;\nSELECT 1; SELECT ';\n';\n\n-- y\nSELECT 1/0;");
	run_script(1, qr/statement 1, line 1: COPY from stdin failed: a script has no rows to read: 20 shards/, 'COPY photos FROM STDIN');
	run_script(1, qr/statement 1, line 2: COPY from stdin failed: a script has no rows to read: 20 shards/, "-- no transaction\nCOPY photos FROM STDIN;");
	run_script(0, qr/20 shards done/, 'COPY photos TO STDOUT; INSERT INTO runs SELECT current_schema');
	is(runs($a, $b), '20 20', 'it goes on after rows that nobody reads');
	my $said = run_script(0, qr/20 shards done/, "DO \$\$ BEGIN RAISE WARNING 'look out'; END \$\$");
	like($said, qr/warning: shard $_: WARNING: look out\n/, "a warning names shard $_") for 0, 19;

	# An error is told in the language of the server.
	run_script(1, qr/statement 1, line 1: ERROR:  1: 20 shards/, q{DO 'BEGIN RAISE ''ERROR:  1''; END'});
};

subtest 'the session' => sub {
	$_->safe_psql('postgres', 'CREATE ROLE app') for $a, $b;
	my $on_shards = "ON SCHEMA %I TO app', schema) FROM snowid.shard_registry WHERE home IS NULL \\gexec";
	$_->safe_psql('postgres', "SELECT format('GRANT CREATE, USAGE $on_shards") for $a, $b;
	run_script(0, qr/20 shards done/, 'SET ROLE app; CREATE TABLE of_app (a int)', '--trust-owners');
	is($b->safe_psql('postgres', q{SELECT relowner::regrole FROM pg_class WHERE oid = 'insta15.of_app'::regclass}), 'app', 'a role is that of the rest of the script');
	run_script(0, qr/20 shards done/, "SET SESSION AUTHORIZATION app; DROP TABLE of_app", '--trust-owners');
	$_->safe_psql('postgres', "SELECT format('REVOKE CREATE $on_shards" =~ s/ TO / FROM /r) for $a, $b;
	run_script(2, qr/line 3: SET ROLE is not kept/, "-- no transaction\nVACUUM photos;\nSET ROLE app;\nCREATE TABLE of_app (a int)");
	$_->safe_psql('postgres', 'TRUNCATE runs') for $a, $b;
	run_script(0, qr/20 shards done/, "SET search_path = pg_catalog; SET work_mem = 64; CREATE TEMP TABLE t (a int); PREPARE p AS SELECT 1", '--jobs', 1);
	run_script(0, qr/20 shards done/, q{DO $$ BEGIN
		IF current_setting('work_mem') = '64kB' OR current_schema NOT LIKE 'insta%' THEN RAISE 'kept'; END IF; END $$}, '--jobs', 1);
};

subtest 'a script that was half done' => sub {
	my $script = "-- no transaction\nCREATE TABLE h1 (a int);\nCREATE TABLE h2 (a intt);\nINSERT INTO runs SELECT current_schema;";
	my @args = ('--name', 'half', '--file');
	$_->safe_psql('postgres', 'TRUNCATE runs') for $a, $b;
	each_ok($a, 1, qr/statement 2, line 3: type "intt" does not exist: 20 shards/, @args, script_file($script));
	each_ok($a, 1, qr/another script was run under this name: 20 shards/, @args, script_file($script =~ s/h1/h3/r));
	each_ok($a, 1, qr/another script was run under this name: 20 shards/, @args, script_file($script =~ s/^.*\n//r));
	each_ok($a, 0, qr/would run\n  from statement 2 on: 20 shards: 0-19$/, @args, script_file($script =~ s/intt/int/r), '--dry-run');
	is(runs($a, $b), '0 0', 'a dry run does nothing');
	each_ok($a, 0, qr/20 shards done/, @args, script_file($script =~ s/intt/int/r));
	is(runs($a, $b), '20 20', 'what is not done may change');
	each_ok($a, 1, qr/another script was run under this name: 20 shards/, @args, script_file($script), '--dry-run');
	each_ok($a, 0, qr/0 shards would run it .*, 20 had it/, '--name', 'half', '--dry-run');

	# What it is recorded in is gone, so it is not done.
	my $lost = qr/its ledger has lost the row of this script: 20 shards/;
	run_script(1, $lost, "-- no transaction\nDELETE FROM snowid_migrations WHERE finished_at IS NULL;");
	run_script(1, $lost, 'DELETE FROM snowid_migrations WHERE finished_at IS NULL');

	each_ok($a, 0, qr/2 shards have forgotten it .*, 0 had it before, 0 are left/, 'forget', '--name', 'half', '--shard', '3,13');
	each_ok($a, 2, qr/to forget, --name and --shard/, 'forget', '--name', 'half');
	my $said = each_ok($a, 1, qr/^half\n  done: 1 shard: 14\n  not begun: 1 shard: 13$/m, 'status', '--shard', '13-14');
	unlike($said, qr/20 shards/, 'status of some shards alone');
	$a->safe_psql('postgres', 'DROP TABLE insta3.h1, insta3.h2');
	$b->safe_psql('postgres', 'DROP TABLE insta13.h1, insta13.h2');
	each_ok($a, 0, qr/would run\n  from statement 1 on: 2 shards: 3,13$/, '--name', 'half', '--dry-run');
	each_ok($a, 0, qr/2 shards done .*, 18 had it/, '--name', 'half');
};

subtest 'diff of some' => sub {
	$b->safe_psql('postgres', 'ALTER TABLE insta13.photos ADD COLUMN m int');
	each_ok($a, 0, qr/^$/, 'diff', '--shard', '0-12,14-19');
	each_ok($a, 1, qr/  m integer: 1 shard: 13$/m, 'diff', '--shard', '13-14');
};

# As it is after a move there and back: a shard says its home, and lives with the registry.
subtest 'a server has two names' => sub {
	$b->safe_psql('postgres', 'ALTER TABLE insta13.photos DROP COLUMN m');
	$a->safe_psql('postgres', sprintf q{UPDATE snowid.shard_registry SET home = 'host=%s port=%s dbname=postgres' WHERE shard IN (2, 5)}, $a->host, $a->port);
	$a->safe_psql('postgres', 'ALTER TABLE insta5.photos ADD COLUMN only_5 int');
	my $said = each_ok($a, 1, qr/^      only_5 integer: 1 shard: 5$/m, 'diff');
	unlike($said, qr/photos \(|ACL/, 'diff reads it once');
	run_script(0, qr/4 shards done/, 'SELECT 1', '--canary', 2);
	is($a->safe_psql('postgres', "SELECT count(*) FROM insta2.snowid_migrations WHERE name = 'n$n'"), 0, 'and its canaries are two');
};

# What belongs to a server is run once there, though two names lead to one.
subtest 'each server' => sub {
	my $text = q{CREATE ROLE of_server; CREATE TABLE on_server (a int); ALTER DATABASE postgres SET work_mem = '5MB'};
	my @args = ('--name', 'roles', '--each-server');
	each_ok($a, 0, qr/2 servers done in .*, 0 had it before, 0 are left/, @args, '--file', script_file($text));
	is($_->safe_psql('postgres', q{SELECT 'public.on_server'::regclass IS NOT NULL, (SELECT count(*) FROM pg_roles WHERE rolname = 'of_server'),
		(SELECT string_agg(name, ' ') FROM snowid_each.snowid_migrations)}), 't|1|roles', 'once') for $a, $b;
	each_ok($a, 0, qr/0 servers done in .*, 2 had it/, @args, '--file', script_file($text));
	each_ok($a, 1, qr/failed\n  another script was run under this name: 2 servers: registry; host=/, @args, '--file', script_file('SELECT 1'));
	each_ok($a, 0, qr/2 servers done/, '--name', 'vacuum', '--each-server', '--file', script_file("-- no transaction\nVACUUM on_server; VACUUM public.on_server"));
	each_ok($a, 0, qr/20 shards done/, '--name', 'roles', '--file', script_file('SELECT 1'));
	each_ok($a, 2, qr/--each-server is for run/, @args);
	each_ok($a, 2, qr/what is missing: to run, --name/, '--name', '', '--file', script_file('SELECT 1'));
	$b->safe_psql('postgres', 'CREATE DATABASE empty');
	$b->safe_psql('empty', 'CREATE EXTENSION snowid');
	$a->safe_psql('postgres', sprintf q{INSERT INTO snowid.servers (name, home) VALUES ('empty', 'host=%s port=%s dbname=empty'), ('known', 'host=%s port=%s dbname=postgres')}, ($b->host, $b->port) x 2);
	each_ok($a, 0, qr/3 servers done/, '--name', 'fleet', '--each-server', '--file', script_file('SELECT 1'));
	$a->safe_psql('postgres', 'DELETE FROM snowid.servers');
	$b->stop;
	each_ok($a, 1, qr/1 servers done.*connection to server.*: 1 server: host=/s, '--name', 'down', '--each-server', '--wait', 0, '--file', script_file('SELECT 1'));
	$b->start;
};

done_testing();
