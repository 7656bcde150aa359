# The portable edition where a managed server has it: installed by the owner of
# a database, who is no superuser; with the state going over to the C edition and
# back in a dump; and with no lock left behind by whoever is canceled.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = new_node('owner');
start_with_clock($node, '+0');
$node->safe_psql('postgres', q{
CREATE ROLE owner LOGIN;
CREATE ROLE writer LOGIN;
});
portable_database($node, 'app', 'owner');
my @owner = (dbname => 'app', extra_params => [ '-U', 'owner' ]);
my @writer = (dbname => 'app', extra_params => [ '-U', 'writer' ]);

is(sqlstate($node, q{
CALL snowid.create_shards(5, 6, ddl => 'CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id(), who text)');
INSERT INTO insta5.photos (who) SELECT 'owner' FROM generate_series(1, 3000);
INSERT INTO insta6.photos (who) SELECT 'owner' FROM generate_series(1, 3000);
SELECT snowid.fence_shard(6);}, @owner), '', 'an owner makes shards and rows');
is(sqlstate($node, q{INSERT INTO insta6.photos DEFAULT VALUES}, @owner), 'SN002', 'closes one');
is(sqlstate($node, q{SELECT snowid.next_id(6, 'insta6.id_seq')}, @owner), 'SN002', 'and its ids');
is(sqlstate($node, q{SELECT snowid.unfence_shard(6); INSERT INTO insta6.photos DEFAULT VALUES}, @owner), '',
	'and opens it');

# The snippet, in place.
is(sqlstate($node, q{
CREATE SCHEMA old;
CREATE SEQUENCE old.table_id_seq;
CREATE FUNCTION old.next_id(OUT result bigint) LANGUAGE plpgsql AS $f$
DECLARE
    our_epoch bigint := 1314220021721;
    seq_id bigint;
    now_millis bigint;
    shard_id int := 7;
BEGIN
    SELECT nextval('old.table_id_seq') % 1024 INTO seq_id;
    SELECT FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) INTO now_millis;
    result := (now_millis - our_epoch) << 23;
    result := result | (shard_id << 10);
    result := result | (seq_id);
END $f$;
CREATE TABLE old.t (id bigint PRIMARY KEY DEFAULT old.next_id());
INSERT INTO old.t SELECT FROM generate_series(1, 100);
SELECT snowid.adopt_shard(7, 'old');
INSERT INTO old.t SELECT FROM generate_series(1, 100);}, @owner), '', 'and takes over the snippet');

# ---------------------------------------------------------------- privileges

$node->safe_psql('app', q{
GRANT USAGE ON SCHEMA insta5, insta6 TO writer;
GRANT INSERT ON insta5.photos TO writer;
GRANT USAGE ON SEQUENCE insta5.id_seq TO writer;});
my $insert = q{INSERT INTO insta5.photos (who) VALUES ('writer')};
is(sqlstate($node, $insert, @writer), '42501', 'USAGE is not enough');
is(sqlstate($node, 'ALTER FUNCTION insta5.next_id() SECURITY DEFINER', @owner), '', 'unless next_id() of the shard');
is(sqlstate($node, $insert, @writer), '', 'runs as its owner');
is(sqlstate($node, q{SELECT setval('insta5.id_seq', 1)}, @writer), '42501', 'then a writer cannot set the sequence');
is(sqlstate($node, q{SELECT snowid.next_id(6, 'insta6.id_seq')}, @writer), '42501', 'or use that of another shard');
$node->safe_psql('app', q{GRANT UPDATE ON SEQUENCE insta5.id_seq TO writer;
ALTER FUNCTION insta5.next_id() SECURITY INVOKER});
is(sqlstate($node, $insert, @writer), '', 'or else UPDATE');

# What the master user of a managed server has: much, but no superuser, nor the
# database.
$node->safe_psql('postgres', q{
CREATE ROLE master LOGIN CREATEROLE CREATEDB;
GRANT pg_monitor, pg_signal_backend TO master;
CREATE DATABASE managed;
GRANT CREATE ON DATABASE managed TO master;});
$node->command_ok([ 'psql', '-X', '-q', '-U', 'master', '-d', 'managed', '-f', portable_file('psql') ],
	'a master user installs it');
is(sqlstate($node, q{
SELECT snowid.create_shard(5);
SELECT insta5.next_id() < insta5.next_id();
SELECT snowid.safe_upper_id('insta5.id_seq');
SELECT snowid.drop_shard(5);
DROP SCHEMA snowid, snowid_internal CASCADE;}, dbname => 'managed', extra_params => [ '-U', 'master' ]), '',
	'uses it, and removes it');

# ---------------------------------------------------------------- no lock is left

my $dir = PostgreSQL::Test::Utils::tempdir();
$node->safe_psql('app', q{
CREATE SEQUENCE far;
CREATE SEQUENCE near;
GRANT USAGE, UPDATE ON SEQUENCE far, near TO PUBLIC;
SELECT snowid.next_id(5, 'far'), snowid.next_id(5, 'near');
-- On this one sessions wait, with the lock or for it.
SELECT snowid.advance('far', snowid.make_id(now() + interval '1 hour', 5, 0));});
append_to_file("$dir/canceled", "SET application_name = 'canceled';\n" . join '', map {
	"SET statement_timeout = '" . (1 + $_ % 5) . "ms';\n"
	  . "SELECT count(snowid.next_id(5, '" . ($_ % 3 ? 'far' : 'near') . "')) FROM generate_series(1, 1000000);\n"
} 1 .. 90);
append_to_file("$dir/canceled", q{
RESET statement_timeout;
SELECT 'left: ' || count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
});
my @outs = ('') x 4;
my @errs = ('') x 4;
my @canceled = map {
	IPC::Run::start([ 'psql', '-XAtq', '-f', "$dir/canceled", $node->connstr('app') ],
		'>', \$outs[$_], '2>', \$errs[$_])
} 0 .. 3;
# Another one cancels them at any time, too, twice in a row, and ends one.
$node->safe_psql('app', q{
DO $$
BEGIN
	FOR i IN 1 .. 100 LOOP
		PERFORM pg_cancel_backend(pid), pg_cancel_backend(pid)
		FROM pg_stat_activity WHERE application_name = 'canceled' AND state = 'active' AND query ~ 'next_id';
		PERFORM pg_sleep(0.001);
		PERFORM pg_stat_clear_snapshot();
	END LOOP;
END $$;});
$_->finish for @canceled;
is("@outs", join(' ', ("left: 0\n") x 4), 'sessions that are canceled leave no lock behind');
my $cancels = () = "@errs" =~ /canceling statement/g;
cmp_ok($cancels, '>', 100, 'and they were canceled');
is(sqlstate($node, q{SELECT snowid.next_id(5, 'far'), snowid.next_id(5, 'near')}, dbname => 'app'), '',
	'the sequences go on');

# An error while the lock is held.
my $session = $node->background_psql('app', on_error_stop => 0);
$session->query(q{SET SESSION AUTHORIZATION writer; SELECT snowid.next_id(6, 'insta6.id_seq')});
$session->query(q{RESET SESSION AUTHORIZATION; BEGIN READ ONLY; SELECT snowid.next_id(5, 'far')});
$session->query(q{ROLLBACK; SELECT snowid.fence_shard(6); SELECT snowid.next_id(6, 'insta6.id_seq')});
$session->query(q{SELECT snowid.unfence_shard(6); BEGIN; SAVEPOINT a; SELECT snowid.next_id(5, 'far'); ROLLBACK TO a; COMMIT});
is($session->query(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), '0', 'nor do errors');
$session->quit;

# ---------------------------------------------------------------- crash, and the clock back

my $last = $node->safe_psql('app', q{SELECT max(snowid.next_id(5, 'near')) FROM generate_series(1, 5000)});
crash($node);
start_with_clock($node, '-3600');
cmp_ok($node->safe_psql('app', q{SELECT snowid.next_id(5, 'near')}), '>', $last,
	'an id that was shown does not come again after a crash, with the clock set back');
is(sqlstate($node, q{
SELECT count(snowid.next_id(5, 'near')) FROM generate_series(1, 50000);}, dbname => 'app'), '',
	'ids go on ahead of the clock');
is($node->safe_psql('app', q{SELECT ahead BETWEEN '59 min' AND '1 hour 1 min' FROM snowid.sequence_state('near')}), 't',
	'and no further than 1024 in a millisecond take');

# ---------------------------------------------------------------- to the C edition, and back

set_clock($node, '+0');
my $rises = join ', ', map { "(SELECT max(id) FROM $_->[0]) < $_->[1]" }
  [ 'insta5.photos', 'insta5.next_id()' ], [ 'insta6.photos', 'insta6.next_id()' ], [ 'old.t', 'old.next_id()' ];
$node->safe_psql('app', 'SET snowid.shard = 9; SELECT snowid.next_id()');
my $database_id = $node->safe_psql('app', 'SET snowid.shard = 9; SELECT snowid.next_id()');
$node->safe_psql('app', "INSERT INTO $_ SELECT FROM generate_series(1, 5000)") for 'insta5.photos', 'insta6.photos', 'old.t';
set_clock($node, '-3600');

$node->safe_psql('postgres', 'CREATE DATABASE in_c OWNER owner');
is(sqlstate($node, 'CREATE EXTENSION snowid', dbname => 'in_c', extra_params => [ '-U', 'owner' ]), '', 'the C edition');
$node->command_ok([ 'pg_dump', '-Fc', '-N', 'snowid', '-N', 'snowid_internal', '-f', "$dir/all", 'app' ], 'a dump without snowid');
$node->command_ok([ 'pg_dump', '-Fc', '-a', '-t', 'snowid.shard_registry', '-t', 'snowid.id_seq', '-f', "$dir/state", 'app' ],
	'and one of its state');
$node->command_ok([ 'pg_restore', '-e', '-d', 'in_c', "$dir/$_" ], "restored: $_") for 'all', 'state';
is($node->safe_psql('in_c', "SELECT $rises"), 't|t|t', 'the C edition goes on above the ids of the portable one');
cmp_ok($node->safe_psql('in_c', 'SET snowid.shard = 9; SELECT snowid.next_id()'), '>', $database_id, 'of all sequences');
is($node->safe_psql('in_c', q{SELECT count(*) FROM snowid.shards WHERE lives = 'here'}), '3', 'all shards are there');
is($node->safe_psql('in_c', q{SELECT count(*) FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
WHERE l.lanname = 'c' AND p.proname = 'next_id'}), '3', 'and it is C that makes the ids');

set_clock($node, '+0');
$node->safe_psql('in_c', "INSERT INTO $_ SELECT FROM generate_series(1, 5000)") for 'insta5.photos', 'insta6.photos', 'old.t';
$database_id = $node->safe_psql('in_c', 'SET snowid.shard = 9; SELECT snowid.next_id()');
set_clock($node, '-3600');
portable_database($node, 'back', 'owner');
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dir/c", 'in_c' ], 'a dump of the C edition');
append_to_file("$dir/list", join '', grep { !/EXTENSION/ } `pg_restore -l '$dir/c'`);
$node->command_ok([ 'pg_restore', '-e', '-L', "$dir/list", '-d', 'back', "$dir/c" ], 'restored where the portable one is');
is($node->safe_psql('back', "SELECT $rises"), 't|t|t', 'the portable edition goes on above the ids of the C one');
cmp_ok($node->safe_psql('back', 'SET snowid.shard = 9; SELECT snowid.next_id()'), '>', $database_id, 'of all sequences');
is($node->safe_psql('back', q{SELECT count(*) FROM snowid.shards WHERE lives = 'here'}), '3', 'with all shards');

$node->stop;
done_testing();
