# Before the decision the target has all that pg_dump says of the shard, and nothing
# else: row security, privileges, policies.  What ends a session of pg_restore,
# what the target's default privileges add, and what is changed there
# meanwhile, does not get through.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run ();
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b');
my $said;
my $secured = q{SELECT count(*) FROM pg_class WHERE relrowsecurity AND relnamespace = 'insta5'::regnamespace};

$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid; CREATE ROLE app; CREATE ROLE other') for $a, $b;

# A server says some expressions in another way once it has read its own text.
fresh();
$a->safe_psql('postgres', q{
CREATE TABLE insta5.kinds (id int PRIMARY KEY, kind varchar(9) CHECK (kind IN ('a', '(b)::text', 'c''s,d]')), net cidr CHECK (net IN ('10.0.0.0/8', '11.0.0.0/8')),
	CHECK (kind = ANY (ARRAY[['a', 'x'], ['(b)::text', 'z']]::varchar[])));
CREATE STATISTICS insta5.s ON (kind IN ('a', 'b')), net FROM insta5.kinds;
CREATE FUNCTION insta5.is_kind(x varchar) RETURNS boolean RETURN x IN ('a', 'b');
CREATE FUNCTION insta5.is_text(x varchar) RETURNS boolean LANGUAGE sql AS $$ SELECT x = ANY ((ARRAY['a'])::text[]) $$;
CREATE VIEW insta5.unnamed AS SELECT x.id, x.n FROM (SELECT id, id AS n FROM insta5.kinds UNION ALL SELECT id, NULL FROM insta5.kinds) x});
moves_ok($a, $b, 5, [], 0, 'moved with lists that are cast');
is(sqlstate($b, q{INSERT INTO insta5.kinds VALUES (1, 'b')}), '23514', 'which it has');
moves_ok($a, $b, 5, ['finish'], 0, 'finished');

# What a connection string sets is set in the sessions of pg_restore, too.
fresh();
$a->safe_psql('postgres', q{
CREATE FUNCTION insta5.told(x bigint) RETURNS bigint IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN RAISE LOG 'it has "%"', current_setting('my.option', true); RETURN x; END $$;
CREATE INDEX told ON insta5.users (insta5.told(id))});
{
	my @command = move_command($a, $b, 5);

	$command[-1] .= q{ options='-c my.option=here'};
	IPC::Run::run(\@command, '>&', \$said);
	is($? >> 8, 0, 'moved with options in a connection string') or diag $said;
	my $log = slurp_file($b->logfile);
	like($log, qr/LOG: +it has "here"\n[^\n]*CONTEXT[^\n]*\n[^\n]*STATEMENT: +CREATE INDEX told/, 'which pg_restore has');
	unlike($log, qr/it has ""[^\n]*\n[^\n]*\n[^\n]*STATEMENT: +CREATE/, 'in each session');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
}

# But what somebody has changed is another.
fresh();
$a->safe_psql('postgres', q{CREATE VIEW insta5.typed AS SELECT 'a'::text AS x; CREATE FUNCTION insta5.f() RETURNS text LANGUAGE sql AS $$ SELECT (SELECT 'a') $$});
my $held = hold_at_step($b, 'rows');
my $tool = IPC::Run::start([ move_command($a, $b, 5) ], '>&', \$said);
wait_until_held($b) or die 'does not get there';
$b->safe_psql('postgres', q{DROP VIEW insta5.typed; CREATE VIEW insta5.typed AS SELECT 'a'::varchar AS x; CREATE OR REPLACE FUNCTION insta5.f() RETURNS text LANGUAGE sql AS $$ SELECT (SELECT 'a' AS x) $$});
$held->quit;
$tool->finish;
let_go_steps($b);
is($? >> 8, 1, 'changed by hand');
like($said, qr/this is another: typed; Type: VIEW/, 'of a view');
like($said, qr/this is another: f\(\); Type: FUNCTION/, 'and a function');
moves_ok($a, $b, 5, ['abort'], 0, 'aborted');

# The target's default privileges are there before and after, and give nothing.
fresh();
$b->safe_psql('postgres', q{
ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO other WITH GRANT OPTION;
ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
ALTER DEFAULT PRIVILEGES GRANT USAGE ON SEQUENCES TO other;
ALTER DEFAULT PRIVILEGES GRANT CREATE ON SCHEMAS TO other});
my $defaults = $b->safe_psql('postgres', 'SELECT defaclobjtype, defaclacl FROM pg_default_acl ORDER BY 1');
my $privileges = q{
SELECT relname, relacl::text FROM pg_class WHERE relnamespace = 'insta5'::regnamespace AND relkind IN ('r', 'p', 'v', 'S')
UNION ALL SELECT proname, proacl::text FROM pg_proc WHERE pronamespace = 'insta5'::regnamespace
UNION ALL SELECT nspname, nspacl::text FROM pg_namespace WHERE nspname = 'insta5' ORDER BY 1, 2};
my $wanted = $a->safe_psql('postgres', $privileges);
moves_ok($a, $b, 5, [], 0, 'moved beside default privileges');
moves_ok($a, $b, 5, ['finish'], 0, 'finished');
is($b->safe_psql('postgres', $privileges), $wanted, 'the privileges are those of the source');
is($b->safe_psql('postgres', 'SELECT defaclobjtype, defaclacl FROM pg_default_acl ORDER BY 1'), $defaults, 'and the default ones are untouched');

# PUBLIC may use what was "public", of which pg_dump says nothing.
fresh();
$a->safe_psql('postgres', q{
SELECT snowid.drop_shard(5, cascade => true); ALTER SCHEMA public RENAME TO insta5; CREATE SCHEMA public;
CREATE TABLE insta5.users (id bigint PRIMARY KEY); INSERT INTO insta5.users VALUES (1);
CREATE SEQUENCE insta5.id_seq; SELECT snowid.register_shard(5, 'insta5')});
my ($todo) = moves_ok($a, $b, 5, [ 'plan', '--trust-owners' ], 1, 'it was public', qr/FAILED +schema of initdb: schema "insta5" was "public"/) =~ /As a superuser, type: (.*RESET \w+;)/;
$a->safe_psql('postgres', $todo);
moves_ok($a, $b, 5, ['--trust-owners'], 0, 'moved after that');
is($b->safe_psql('postgres', q{SET ROLE app; SELECT has_schema_privilege('insta5', 'USAGE')}), 't', 'PUBLIC may use it');
moves_ok($a, $b, 5, ['finish'], 0, 'finished');

# A session of pg_restore is ended once; and whenever it comes there.
for my $times (1, 100)
{
	fresh();
	my $hold = hold_at_step($b, 'rows');
	my $move = IPC::Run::start([ move_command($a, $b, 5, '--jobs', 1) ], '>', \my $stdout, '2>', \my $stderr);
	wait_until_held($b) or die 'does not get there';
	$b->safe_psql('postgres', qq{
CREATE SEQUENCE public.times;
CREATE FUNCTION public.end_session() RETURNS event_trigger LANGUAGE plpgsql AS \$\$
BEGIN
	IF current_query() ~ 'ENABLE ROW LEVEL' AND nextval('public.times') <= $times THEN
		PERFORM pg_terminate_backend(pg_backend_pid());
	END IF;
END \$\$;
CREATE EVENT TRIGGER end_session ON ddl_command_start EXECUTE FUNCTION public.end_session()});
	$hold->query_safe('SELECT pg_advisory_unlock(47)');
	$hold->quit;
	IPC::Run::finish($move);
	my $code = $? >> 8;
	unlike(moves_ok($a, $b, 5, [], 1, 'another time', qr/missing: users; Type: ROW SECURITY/), qr/already exists/, 'only what is missing is made')
	  if $times == 100;
	$b->safe_psql('postgres', 'DROP FUNCTION public.end_session() CASCADE; DROP SEQUENCE public.times');
	let_go_steps($b);
	if ($times == 1)
	{
		is($code, 0, 'a session was ended once: moved') or diag $stderr;
	}
	else
	{
		is($code, 1, 'a session is ended each time');
		like($stderr, qr/missing: users; Type: ROW SECURITY; Schema: insta5/, 'it says what is missing');
		lives_on_ok($a, $b, 'it stays');
		moves_ok($a, $b, 5, [], 0, 'the same command goes on');
	}
	is($b->safe_psql('postgres', $secured), '2', 'with row security');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
}

# What somebody changes on the target.
fresh();
moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
$b->safe_psql('postgres', 'ALTER TABLE insta5.users DISABLE ROW LEVEL SECURITY');
moves_ok($a, $b, 5, [], 1, 'changed on the target', qr/shard 5 have changed on the target since they were compared: table insta5.users\n/);
lives_on_ok($a, $b, 'it has not moved');
moves_ok($a, $b, 5, ['abort'], 0, 'aborted');

# What was refreshed after the copy is as new on the target; what cannot be filled
# there holds the shard.
fresh();
$_->safe_psql('postgres', 'CREATE FUNCTION public.one() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN 1; END $$') for $a, $b;
$a->safe_psql('postgres', q{
CREATE MATERIALIZED VIEW insta5.counted AS SELECT count(*) AS n FROM insta5.users;
CREATE MATERIALIZED VIEW insta5.called AS SELECT public.one() AS n});
moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
$b->safe_psql('postgres', q{CREATE OR REPLACE FUNCTION public.one() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE 'not here'; END $$});
my $counted = $a->safe_psql('postgres', q{
INSERT INTO insta5.users (name) VALUES ('later'); REFRESH MATERIALIZED VIEW insta5.counted; SELECT n FROM insta5.counted});
moves_ok($a, $b, 5, [], 1, 'a view that cannot be filled', qr/materialized view insta5.called is filled on the source, and could not be on the target/);
lives_on_ok($a, $b, 'it holds the shard');
$b->safe_psql('postgres', q{CREATE OR REPLACE FUNCTION public.one() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN 1; END $$});
moves_ok($a, $b, 5, [], 0, 'moved');
is($b->safe_psql('postgres', 'SELECT c.n, d.n FROM insta5.counted c, insta5.called d'), $counted + 1 . '|1', 'the views are filled');
moves_ok($a, $b, 5, ['finish'], 0, 'finished');

# What others have made of the copy on the target is not dropped with it.
fresh();
moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
$b->safe_psql('postgres', 'CREATE VIEW public.all_users AS SELECT * FROM insta5.users');
my $used = qr/use the copy, and would be dropped with it: .*view public.all_users/;
moves_ok($a, $b, 5, ['abort'], 1, 'abort with a view of the copy', $used);
$b->safe_psql('postgres', q{UPDATE snowid.moves SET step = 'schema'});
$a->safe_psql('postgres', q{UPDATE snowid.moves SET step = 'published'});
moves_ok($a, $b, 5, [], 1, 'copied anew with a view of the copy', $used);
is($b->safe_psql('postgres', 'SELECT count(*) FROM public.all_users'), '200', 'the view is there');
moves_ok($a, $b, 5, [ 'abort', '--cascade' ], 0, 'unless told so');
nothing_left_ok($_, 'aborted') for $a, $b;

# A shard that is changed while the copy follows holds no other of its set, and never
# moves with a copy that was followed no more.
for my $other (qw(move abort))
{
	fresh();
	$a->safe_psql('postgres', q{CALL snowid.create_shards(6, 6, ddl => 'CREATE TABLE t (id bigint PRIMARY KEY)')});
	moves_ok($a, $b, '5-6', [ '--stop-after', 'copied' ], 0, 'a set: copied');
	$a->safe_psql('postgres', 'ALTER TABLE insta6.t RENAME TO renamed');
	if ($other eq 'move')
	{
		$said = moves_ok($a, $b, '5-6', [], 1, 'one is changed', qr/shard 6 have changed since they were copied: table insta6.renamed/);
		unlike($said, qr/does not exist/, 'no query fails');
		is(living($b), '5', 'the other moves');
	}
	else
	{
		moves_ok($a, $b, 5, ['abort'], 0, 'the other is aborted');
	}
	$a->safe_psql('postgres', 'INSERT INTO insta6.renamed VALUES (1); ALTER TABLE insta6.renamed RENAME TO t');
	moves_ok($a, $b, $other eq 'move' ? '5-6' : 6, [], 1, 'it has its name again', qr/shard 6 have changed since they were copied/);
	is(living($a), $other eq 'move' ? '6' : '5,6', 'it stays');
	moves_ok($a, $b, 6, ['abort'], 0, 'aborted');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished') if $other eq 'move';
	$a->safe_psql('postgres', 'DROP TABLE insta6.t; SELECT snowid.drop_shard(6)');
}
done_testing();

sub fresh
{
	fresh_shard($a, $b);
	$a->safe_psql('postgres', q{
CREATE POLICY own ON insta5.users USING (name = current_user);
ALTER TABLE insta5.users ENABLE ROW LEVEL SECURITY;
ALTER TABLE insta5.photos ENABLE ROW LEVEL SECURITY;
GRANT SELECT, INSERT ON insta5.users TO app, PUBLIC;
GRANT SELECT (id) ON insta5.photos TO app WITH GRANT OPTION;
CREATE FUNCTION insta5.two() RETURNS int LANGUAGE sql AS 'SELECT 2'});
	return;
}
