# snowid-move copy: a closed copy beside the shard, from a standby; a shard of another
# number; a file for pg_restore; definitions alone.  The source is not touched.

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

my $a = move_node('a', allows_streaming => 1);
$a->start;
make_shard($a, 7, 'insta7');
$a->safe_psql('postgres', q{
SELECT snowid.set_default('insta7.users', guard => true);
CREATE FUNCTION public.next_id() RETURNS bigint LANGUAGE sql AS 'SELECT -1::bigint';
CREATE TABLE insta7.others (id bigint DEFAULT public.next_id(), at timestamptz DEFAULT now());
CREATE UNLOGGED SEQUENCE insta7.lost START 5; SELECT nextval('insta7.lost');
CREATE TABLE insta7.snowid_migrations (name text PRIMARY KEY); INSERT INTO insta7.snowid_migrations VALUES ('001');
});
$a->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($a, 'b', has_streaming => 1);
$standby->start;
my $b = move_node('b');
$b->start;
$b->safe_psql('postgres', 'CREATE EXTENSION snowid');

sub rows
{
	my ($node, $schema) = @_;
	return $node->safe_psql('postgres', qq{
SELECT relname, query_to_xml(format('SELECT count(*), md5(string_agg(t::text, '';'' ORDER BY t::text)) FROM %I.%I t', nspname, relname), true, true, '')::text
FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = '$schema' AND relkind IN ('r', 'p') ORDER BY 1});
}

my $wanted = rows($a, 'insta7');

# Beside the shard, in its own database.
my ($code, $said) = snowid_move($a, $a, 7, 'copy');
is($code, 0, 'a copy in the same database') or diag $said;
is(rows($a, 'insta7_copy'), $wanted, 'has the rows');
is(rows($a, 'insta7'), $wanted, 'and the shard has them');
is($a->safe_psql('postgres', 'SELECT string_agg(schema, $$ $$) FROM snowid.shards'), 'insta7', 'it is no shard');
for my $sql ('INSERT INTO insta7_copy.users (name) VALUES (1)', 'SELECT insta7_copy.next_id()', 'DELETE FROM insta7_copy.likes')
{
	my ($rc, $out, $err) = $a->psql('postgres', "\\set VERBOSITY verbose\n$sql");
	like($err, qr/SN002/, "closed: $sql") or diag $a->safe_psql('postgres', q{SELECT tgrelid::regclass, tgname, tgenabled FROM pg_trigger WHERE tgname = 'snowid_fence'});
}
like($a->safe_psql('postgres', q{INSERT INTO insta7.users (name) VALUES ('more') RETURNING id}), qr/^\d+$/m, 'the shard is open');
($code, $said) = snowid_move($a, $a, 7, 'copy');
is($code, 1, 'not over one that is there') or diag $said;
like($said, qr/there is a schema "insta7_copy".*--as NAME/s, 'says so');

($code, $said) = snowid_move($a, $a, 7, 'copy', '--as', 'marked');
is($code, 0, 'of another name') or diag $said;

# A row that was left behind closes no schema of its name.
$a->safe_psql('postgres', 'DROP SCHEMA insta7_copy CASCADE; CREATE SCHEMA insta7_copy; CREATE TABLE insta7_copy.t (i int); INSERT INTO insta7_copy.t VALUES (1)');
$a->safe_psql('postgres', 'DROP SCHEMA insta7_copy CASCADE');

# From a standby, to another server: a shard of another number.
$b->safe_psql('postgres', q{CREATE FUNCTION public.next_id() RETURNS bigint LANGUAGE sql AS 'SELECT -1::bigint'});
$wanted = rows($a, 'insta7');
$a->wait_for_catchup($standby);
($code, $said) = snowid_move($standby, $b, 7, 'copy', '--number', 9);
is($code, 0, 'a shard of another number') or diag $said;
is(rows($b, 'insta9'), $wanted, 'has the rows');
is($b->safe_psql('postgres', q{
SELECT snowid.id_shard(insta9.next_id());
INSERT INTO insta9.users (name) VALUES ('x') RETURNING snowid.id_shard(id);
INSERT INTO insta9.likes (at) VALUES (now()) RETURNING snowid.id_shard(id);
UPDATE insta9.users SET name = 'old' WHERE name = 'user 7' RETURNING snowid.id_shard(id);
SELECT shard, schema, lives FROM snowid.shards;
}), "9\n9\n9\n7\n9|insta9|here", 'makes ids of its own, and old rows can be changed');
is($b->safe_psql('postgres', q{INSERT INTO insta9.others DEFAULT VALUES RETURNING id; SELECT nextval('insta9.lost')}), "-1\n5",
	'what others call next_id() is theirs, and an unlogged sequence begins anew');
my ($rc, $out, $err) = $b->psql('postgres', 'INSERT INTO insta9.users (id) VALUES (snowid.make_id(now(), 8, 1))');
like($err, qr/violates check constraint/, 'its guard stands');

is($_->[0]->safe_psql('postgres', "SELECT obj_description('$_->[1]'::regnamespace, 'pg_namespace')"), $_->[2], "what schema $_->[1] says of itself")
  for [ $a, 'marked', 'snowid: of shard 7' ], [ $b, 'insta9', '' ];

# Definitions: registry and ledger, no rows.
($code, $said) = snowid_move($a, $b, 7, 'copy', '--definitions');
is($code, 0, 'definitions') or diag $said;
is($b->safe_psql('postgres', q{
SELECT (SELECT count(*) FROM insta7.users), (SELECT count(*) FROM insta7.snowid_migrations), (SELECT lives FROM snowid.shards WHERE shard = 7);
INSERT INTO insta7.users (name) VALUES ('x') RETURNING snowid.id_shard(id)}), "0|1|here\n7", 'with the ledger, and open');

# A file, which pg_restore reads.
my $dir = PostgreSQL::Test::Utils::tempdir() . '/file';
IPC::Run::run([ 'snowid-move', 'copy', '--shard', 7, '--from', $standby->connstr('postgres'), '--to-file', $dir ], '>', \$out, '2>', \$err);
is($? >> 8, 0, 'to a file') or diag $err;
IPC::Run::run([ 'pg_restore', '--list', $dir ], '>', \$out, '2>', \$err);
like($out, qr/TABLE DATA insta7 users/, 'pg_restore reads it');

# Killed on its way: the same command begins anew.
my $hold = $b->background_psql('postgres');
$b->safe_psql('postgres', q{
CREATE FUNCTION public.hold() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(47); END $$;
CREATE EVENT TRIGGER hold ON ddl_command_end WHEN TAG IN ('CREATE INDEX') EXECUTE FUNCTION public.hold()});
$hold->query_safe('SELECT pg_advisory_lock(47)');
my $run = IPC::Run::start([ move_command($a, $b, 7, 'copy', '--as', 'staging') ], '>', '/dev/null', '2>&1');
wait_until_held($b) or die 'does not get there';
$run->signal('KILL');
$run->finish;
$b->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = 47 AND NOT granted});
$hold->quit;
$b->safe_psql('postgres', 'DROP EVENT TRIGGER hold');
is($b->safe_psql('postgres', 'SELECT kind FROM snowid.copies'), 'copying', 'killed in the middle');
($code, $said) = snowid_move($a, $b, 7, 'copy', '--as', 'staging');
is($code, 0, 'the same command begins anew') or diag $said;
is(rows($b, 'staging'), $wanted, 'and has all');
is($b->safe_psql('postgres', 'SELECT kind FROM snowid.copies'), 'copy', 'complete');

# A key that leads out of the shard needs the table, and the row; by a role that is no superuser.
$b->safe_psql('postgres', 'CREATE DATABASE other');
$b->safe_psql('other', 'CREATE EXTENSION snowid');
$_->safe_psql('postgres', 'CREATE ROLE mover LOGIN') for $a, $b;
$a->safe_psql('postgres', q{
CREATE TABLE public.countries (code text PRIMARY KEY); INSERT INTO public.countries VALUES ('de');
SELECT snowid.create_shard(8);
CREATE TABLE insta8.users (id bigint PRIMARY KEY DEFAULT insta8.next_id(), country text DEFAULT 'de' REFERENCES public.countries);
INSERT INTO insta8.users DEFAULT VALUES;
ALTER SCHEMA insta8 OWNER TO mover; ALTER TABLE insta8.users OWNER TO mover; ALTER SEQUENCE insta8.id_seq OWNER TO mover; ALTER FUNCTION insta8.next_id() OWNER TO mover});
my @keyed = ('snowid-move', 'copy', '--shard', 8, '--as', 'keyed', '--from', $a->connstr('postgres') . ' user=mover', '--to', $b->connstr('other') . ' user=mover');
for my $case (
	[ qr/target: role mover may not read snowid\.moves\n.*type: (GRANT .* TO mover;)/, $b, 'GRANT CREATE ON DATABASE other TO mover; GRANT SELECT, INSERT, UPDATE, DELETE ON snowid.copies, snowid.shard_registry TO mover' ],
	[ qr/source: role mover may not read snowid\.moves\n.*type: (GRANT .* TO mover;)/, $a ],
	[ qr/users_country_fkey; .*relation "public\.countries" does not exist/, $b, 'CREATE TABLE public.countries (code text PRIMARY KEY)' ],
	[ qr/users_country_fkey; .*permission denied for table countries/, $b, 'GRANT REFERENCES, SELECT ON public.countries TO mover' ],
	[ qr/a foreign key of shard 8 cannot be made there: .*Key \(country\)=\(de\) is not present/s, $b, q{INSERT INTO public.countries VALUES ('de')} ])
{
	my ($says, $node, $do) = @$case;
	IPC::Run::run(\@keyed, '>', \$out, '2>', \$err);
	is($? >> 8, 1, 'a key out of the shard: it is not copied');
	like($err, $says, '... and that is told');
	$node->safe_psql($node == $a ? 'postgres' : 'other', join(';', $do // (), $err =~ $says && $1 ? $1 : ()));
}
IPC::Run::run(\@keyed, '>', \$out, '2>', \$err);
is($? >> 8, 0, 'a key out of the shard: it is copied') or diag $err;
is($b->safe_psql('other', q{SELECT conrelid::regclass, confrelid::regclass, convalidated, (SELECT count(*) FROM keyed.users) FROM pg_constraint WHERE contype = 'f'}),
	'keyed.users|countries|t|1', 'with its key');

# The owner of the database is a superuser.
$a->safe_psql('postgres', 'ALTER SCHEMA insta7 OWNER TO pg_database_owner');
$a->wait_for_catchup($standby);
($code, $said) = snowid_move($standby, $a, 7, 'diff');
is($code, 0, 'what is all a superuser\'s is compared on a standby') or diag $said;

# What a lesser owner makes while rows are compared cannot be kept out of a standby that replays.
$a->safe_psql('postgres', 'CREATE ROLE app; ALTER TABLE insta7.users OWNER TO app');
$a->wait_for_catchup($standby);
my @diff = ($standby, $a, 7, 'diff');
($code, $said) = snowid_move(@diff);
is($code, 2, "a lesser owner's table on a standby is not compared");
like($said, qr/an index that this would run\n.*pg_wal_replay_pause\(\).*--trust-owners/, '... and what to type is said') or diag $said;
($code, $said) = snowid_move(@diff, '--trust-owners');
is($code, 0, '... but if he is trusted') or diag $said;
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
$standby->poll_query_until('postgres', q(SELECT pg_get_wal_replay_pause_state() = 'paused')) or die 'is not paused';
($code, $said) = snowid_move(@diff);
is($code, 0, '... or nothing comes to it') or diag $said;

$_->stop for $standby, $a, $b;
done_testing();
