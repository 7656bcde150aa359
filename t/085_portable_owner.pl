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
is(sqlstate($node, snippet('old', 'table_id_seq', 7) . q{
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

# ---------------------------------------------------------------- what others plant

# In a schema before pg_catalog, each operator for each pair of types, and
# namesakes of all of PostgreSQL's functions that the bodies name.  Whatever runs
# of them fails.
my $bodies = slurp_file("$FindBin::RealBin/../portable/bodies.sql");
my $named = join ',', sort keys %{ { map { $_ => 1 } $bodies =~ /\b([a-z][a-z0-9_]+)\(/g } };
my ($status, $planted) = $node->psql('app', qq{
SET client_min_messages = error;
CREATE SCHEMA evil;
DO \$do\$
DECLARE
	f record;
	arguments text;
	left_type regtype;
	right_type regtype;
	operator text;
BEGIN
	FOR f IN SELECT p.proname, pg_get_function_identity_arguments(p.oid) AS arguments, format_type(p.prorettype, NULL) AS result, p.proretset
		FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND p.proname = ANY ('{$named}')
		  AND p.prorettype <> ALL ('{internal,trigger,anyelement,anyarray,anyrange}'::regtype[]) AND p.pronargs < 6
		  AND NOT p.proargtypes::oid[] && '{internal,anyelement,anyarray,anyrange}'::regtype[]::oid[]
	LOOP
		CONTINUE WHEN f.arguments ~ 'OUT|VARIADIC|any';
		EXECUTE format('CREATE FUNCTION evil.%I(%s) RETURNS %s %s LANGUAGE plpgsql AS \$\$ BEGIN RAISE ''planted %s''; END \$\$',
			f.proname, f.arguments, CASE WHEN f.proretset THEN 'SETOF' END, f.result, f.proname);
	END LOOP;
	FOREACH left_type IN ARRAY '{int2,int4,int8,float8,numeric,text,name,oid,timestamptz,boolean,interval}'::regtype[] LOOP
		FOREACH right_type IN ARRAY '{int2,int4,int8,float8,numeric,text,name,oid,timestamptz,boolean,interval}'::regtype[] LOOP
			arguments := left_type || '_' || right_type;
			EXECUTE format('CREATE FUNCTION evil.%I(%s, %s) RETURNS boolean LANGUAGE plpgsql AS \$\$ BEGIN RAISE ''planted operator''; END \$\$', arguments, left_type, right_type);
			FOREACH operator IN ARRAY '{=,<>,<,>,<=,>=,+,-,*,/,%,<<,>>,&,|,||}'::text[] LOOP
				EXECUTE format('CREATE OPERATOR evil.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = evil.%I)', operator, left_type, right_type, arguments);
			END LOOP;
		END LOOP;
	END LOOP;
END \$do\$;
CREATE SEQUENCE public.mine;
CREATE SEQUENCE public.blocks INCREMENT 10;
SET search_path = evil, pg_catalog;
SET snowid.shard = 5;
SELECT 'called' FROM (SELECT
	snowid.next_id(5, 'public.mine') AS a, snowid.next_id(5, 'public.mine') AS b, snowid.next_id(5, 'public.mine', '2011-08-24 21:07:01.721+00') AS c,
	snowid.next_id(5, 'public.blocks') AS d, snowid.next_id() AS e, snowid.safe_upper_id('public.mine') AS f, snowid.advance('public.mine', 1) AS g,
	snowid.id_parts(1) AS h, snowid.id_parts(-1, '2026-01-01') AS i, snowid.make_id('2026-01-01', 5, 0) AS j, snowid.min_id('2026-01-01') AS k,
	snowid.max_id('2026-01-01') AS l, snowid.id_between(1, '2026-01-01', '2026-01-02') AS m, snowid.base62_to_id(snowid.id_to_base62(-1)) AS n,
	snowid.shard_of('x', 5) AS o, snowid.shard_of(7::int8, 5) AS p, snowid.sequence_state('public.mine') AS q OFFSET 0) AS calls
WHERE (a, b, c, d, e, f, h, i, j, k, l, m, n, o, p, q) IS NOT NULL;
SELECT 1 OPERATOR(evil.=) 1;
SELECT snowid.next_id(8192, 'public.mine');
SELECT snowid.next_id(5, 'snowid.shards');
}, on_error_stop => 0, stderr => \my $errors);
is($planted, 'called', 'all functions work with others before them in the search path');
is(join(' ', $errors =~ /ERROR:  (.*)/g), 'planted operator shard number 8192 is out of range "shards" is not a sequence',
	'nothing runs that was planted, but what is called by name');

# ---------------------------------------------------------------- no lock is left

my $dir = PostgreSQL::Test::Utils::tempdir();
$node->safe_psql('app', q{
CREATE SEQUENCE far;
CREATE SEQUENCE near;
CREATE SEQUENCE ended;
GRANT USAGE, UPDATE ON SEQUENCE far, near TO PUBLIC;
GRANT USAGE ON SEQUENCE ended TO writer;
SELECT snowid.next_id(5, 'far'), snowid.next_id(5, 'near'), snowid.next_id(5, 'ended');
DO $$ BEGIN EXECUTE 'ALTER SEQUENCE ended MAXVALUE ' || (SELECT last_value FROM ended); END $$;
-- On this one sessions wait, with the lock or for it.
SELECT snowid.advance('far', snowid.make_id(now() + interval '1 hour', 5, 0));});
append_to_file("$dir/canceled", "SET application_name = 'canceled';\n" . join '', map {
	"SET statement_timeout = '" . (1 + $_ % 5) . "ms';\n"
	  . "SELECT count(snowid.next_id(5, '" . ($_ % 3 ? 'far' : 'near') . "')) FROM generate_series(1, 1000000);\n"
} 1 .. 90);
# And in calls that setval() refuses: to who may not, who only reads, and at the end.
append_to_file("$dir/canceled", "RESET statement_timeout;\n" . join('', map {
	"SET $_->[0];\n" . "SELECT snowid.next_id(5, '$_->[1]');\n" x 300
} [ 'SESSION AUTHORIZATION writer', 'ended' ], [ 'SESSION AUTHORIZATION DEFAULT', 'ended' ], [ 'default_transaction_read_only = on', 'near' ]) . q{
RESET default_transaction_read_only;
SELECT 'left: ' || count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
});
my @canceled = map {
	IPC::Run::start([ 'psql', '-XAtq', '-v', 'VERBOSITY=sqlstate', '-f', "$dir/canceled", $node->connstr('app') ],
		'>', "$dir/out$_", '2>', "$dir/err$_")
} 0 .. 3;
# Another one cancels them at any time, too, twice in a row, until they are done.
$node->poll_query_until('app', q{SELECT count(*) = 4 FROM pg_stat_activity WHERE application_name = 'canceled'})
  or die 'they do not begin';
$node->safe_psql('app', q{
DO $$
BEGIN
	LOOP
		PERFORM pg_stat_clear_snapshot();
		EXIT WHEN NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'canceled' AND query !~ 'left: ');
		PERFORM pg_cancel_backend(pid), pg_cancel_backend(pid)
		FROM pg_stat_activity WHERE application_name = 'canceled' AND state = 'active' AND query ~ 'next_id' AND random() < 0.05;
	END LOOP;
END $$;});
$_->finish for @canceled;
like(slurp_file("$dir/out$_"), qr/^left: 0$/m, 'a session that is canceled leaves no lock behind') for 0 .. 3;
my %errors;
$errors{$_}++ for map { slurp_file("$dir/err$_") =~ /ERROR:  (\w{5})/g } 0 .. 3;
cmp_ok($errors{57014}, '>', 100, 'and they were canceled');
is_deeply([ sort grep { $errors{$_} > 100 } keys %errors ], [ '2200H', '25006', '42501', '57014' ], 'in calls that fail, too');
is(sqlstate($node, q{SELECT snowid.next_id(5, 'far'), snowid.next_id(5, 'near')}, dbname => 'app'), '',
	'the sequences go on');

# An error while the lock is held: a transaction that has written is asked no more
# whether it only reads.
my $session = $node->background_psql('app', on_error_stop => 0);
$session->query(q{SET SESSION AUTHORIZATION writer; SELECT snowid.next_id(6, 'insta6.id_seq')});
$session->query(q{RESET SESSION AUTHORIZATION; BEGIN READ ONLY; SELECT snowid.next_id(5, 'far')});
$session->query(q{ROLLBACK; BEGIN; SELECT snowid.next_id(5, 'near'); SET TRANSACTION READ ONLY; SELECT snowid.next_id(5, 'near')});
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

# Beyond what a sequence that was ahead of the clock has logged for itself.
set_clock($node, '+10');
$node->safe_psql('in_c', "INSERT INTO $_ SELECT FROM generate_series(1, 5000)") for 'insta5.photos', 'insta6.photos', 'old.t';
$database_id = $node->safe_psql('in_c', 'SET snowid.shard = 9; SELECT snowid.next_id()');
# After a crash, pages are behind.  The dump carries the clock.
crash($node);
start_with_clock($node, '-3600');
is($node->safe_psql('in_c', 'SELECT last_value < (SELECT max(id) FROM insta5.photos) >> 23 << 10 FROM insta5.id_seq'),
	't', 'a page of the C edition is behind');
portable_database($node, 'back', 'owner');
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dir/c", 'in_c' ], 'a dump of the C edition');
append_to_file("$dir/list", join '', grep { !/EXTENSION/ } `pg_restore -l '$dir/c'`);
$node->command_ok([ 'pg_restore', '-e', '-L', "$dir/list", '-d', 'back', "$dir/c" ], 'restored where the portable one is');
is($node->safe_psql('back', "SELECT $rises"), 't|t|t', 'the portable edition goes on above the ids of the C one');
cmp_ok($node->safe_psql('back', 'SET snowid.shard = 9; SELECT snowid.next_id()'), '>', $database_id, 'of all sequences');
is($node->safe_psql('back', q{SELECT count(*) FROM snowid.shards WHERE lives = 'here'}), '3', 'with all shards');

$node->stop;
done_testing();
