# snowid-move restore: a shard as it was on a server that was recovered beside the live
# one, while it and its neighbours are written; undo and finish.  Each thing that went
# wrong by hand has its check: ids given twice, sessions of before, sides exchanged, the
# last copy dropped.

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

my $live = move_node('live');
$live->start;
make_shard($live, $_, "insta$_") for 5, 6;
$live->safe_psql('postgres', q{
CREATE TABLE public.countries (code text PRIMARY KEY);
INSERT INTO public.countries VALUES ('de'), ('fr');
CREATE TABLE insta5.texts (id bigint PRIMARY KEY DEFAULT insta5.next_id(), t text, d text REFERENCES public.countries,
	b bytea, g int GENERATED ALWAYS AS (length(t)) STORED, small serial);
INSERT INTO insta5.texts (t, d, b) SELECT E'\\\\N\t' || repeat('ü', i), 'de', sha256(i::text::bytea) FROM generate_series(1, 100) i;
CREATE MATERIALIZED VIEW insta5.counts AS SELECT count(*) FROM insta5.texts;
CREATE VIEW insta5.newest AS SELECT max(id) FROM insta5.users;
CREATE MATERIALIZED VIEW insta5.of_view AS SELECT * FROM insta5.newest;
CREATE MATERIALIZED VIEW insta5.of_views AS SELECT * FROM insta5.of_view, insta5.counts;
COMMENT ON SCHEMA insta5 IS 'of Ann''s';
CREATE FUNCTION insta5.touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.name := upper(NEW.name); RETURN NEW; END';
CREATE TRIGGER touch BEFORE UPDATE ON insta5.users FOR EACH ROW EXECUTE FUNCTION insta5.touch();
CREATE TABLE insta5.snowid_migrations (name text PRIMARY KEY, checksum text NOT NULL DEFAULT '', script text NOT NULL DEFAULT '',
	statements int NOT NULL DEFAULT 0, run_by name NOT NULL DEFAULT session_user, started_at timestamptz NOT NULL DEFAULT clock_timestamp(), finished_at timestamptz, error text); INSERT INTO insta5.snowid_migrations (name, finished_at) VALUES ('001', now());
CREATE ROLE app; GRANT USAGE ON SCHEMA insta5 TO app; GRANT SELECT ON insta5.texts TO app;
});
my $home = join ' ', map { "$_->[0]=$_->[1]" } [ host => $live->host ], [ port => $live->port ], [ dbname => 'postgres' ];
$live->safe_psql('postgres', "UPDATE snowid.shard_registry SET pool = 'p', entry_options = 'pool_size=4', home = \$\$$home\$\$ WHERE shard = 5");
my $row_sql = 'SELECT pool, entry_options, home, homes FROM snowid.shard_registry WHERE shard = 5';
my $row = $live->safe_psql('postgres', $row_sql);
$live->backup('then');
my $then = PostgreSQL::Test::Cluster->new('then');
$then->init_from_backup($live, 'then');
start_with_clock($then, '-3600');

# All rows, by table.
sub rows
{
	my ($node, $schema) = @_;
	return $node->safe_psql('postgres', qq{
SELECT relname, query_to_xml(format('SELECT count(*), md5(string_agg(t::text, '';'' ORDER BY t::text)) FROM %I.%I t', nspname, relname), true, true, '')::text
FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = '$schema' AND relkind IN ('r', 'p', 'm') ORDER BY 1});
}

sub snowid_to
{
	my ($node, @args) = @_;
	my ($out, $errors) = ('', '');
	IPC::Run::run([ 'snowid-move', @args, '--shard', 5, '--to', $node->connstr('postgres') ], '>', \$out, '2>', \$errors);
	return ($? >> 8, $out . $errors);
}

sub schemas
{
	return $live->safe_psql('postgres', q{SELECT string_agg(nspname, ' ' ORDER BY nspname) FROM pg_namespace WHERE nspname LIKE 'insta5%'});
}
my $wanted = rows($then, 'insta5');

# The mistake, and what has changed since: a sequence's name, and one that has outgrown its type.
$live->safe_psql('postgres', q{
DELETE FROM insta5.texts WHERE length(t) > 50;
UPDATE insta5.texts SET t = 'x' WHERE small = 3;
INSERT INTO insta5.texts (t) VALUES ('new');
ALTER SEQUENCE insta5.texts_small_seq RENAME TO other;
ALTER TABLE insta5.texts ALTER small TYPE bigint; ALTER SEQUENCE insta5.other AS bigint; SELECT setval('insta5.other', 3000000000);
ALTER SEQUENCE insta5.id_seq RENAME TO ids; UPDATE snowid.shard_registry SET sequence = 'ids' WHERE shard = 5;
INSERT INTO insta5.snowid_migrations (name, finished_at) VALUES ('002', now());
});

my ($code, $said) = snowid_move($then, $live, 5, 'restore', '--dry-run');
is($code, 0, 'dry run') or diag $said;
like($said, qr/^insta5\.texts: 5[0-9] would come back, 1 would be lost, 1 would change, of \d+ rows$/m, 'says what would be lost') or diag $said;
is(schemas(), 'insta5', 'and changes nothing');

($code, $said) = snowid_move($live, $then, 5, 'restore');
is($code, 1, 'sides exchanged: refused') or diag $said;
my $port = $then->port;
like($said, qr/exchanged.*Type: snowid-move restore --shard 5 --from '[^']*port=$port' --to /s, 'with the right command') or diag $said;

$live->safe_psql('postgres', 'CREATE TABLE public.fans (u bigint REFERENCES insta5.users)');
for my $dry ([], ['--dry-run'])
{
	($code, $said) = snowid_move($then, $live, 5, 'restore', @$dry);
	is($code, 1, 'foreign keys of others: refused') or diag $said;
	like($said, qr/foreign keys of other schemas lead into shard 5: fans_u_fkey of table public\.fans/, 'with the reason');
}
$live->safe_psql('postgres', 'DROP TABLE public.fans');

# One that has looked up next_id(), and prepared its statements, before.
my $session = $live->background_psql('postgres', on_error_stop => 0);
$session->query_safe(q{PREPARE i AS SELECT insta5.next_id(); PREPARE u AS INSERT INTO insta5.users (name) VALUES ('prepared') RETURNING id});
my $last = $session->query_safe('EXECUTE i; EXECUTE u');

my @writers = start_writers('insta5', $live);
my @others = start_writers('insta6', $live);
await_writers(@writers, @others);
($code, $said) = snowid_move($then, $live, 5, 'restore', '--pause-limit', 10000);
is($code, 0, 'restored beside writers') or diag $said;
like($said, qr/its writers waited \d+ ms/, 'says how long they waited');
$last = $session->query_safe('EXECUTE i; EXECUTE u');
like($last, qr/^\d+\n\d+$/, 'a session of before goes on');
my @since = start_writers('insta5', $live);
await_writers(@since);
stop_writers(@writers, @others, @since);

# They went on in what took its place.
my (%seen, %errors);
$seen{$_}++ for map { @{ $_->{ids} } } @writers, @since;
is_deeply([ grep { $seen{$_} > 1 } keys %seen ], [], 'no id was given twice');
$errors{$_}++ for map { slurp_file($_->{errors}) =~ /ERROR:  (\w{5}):/g } @writers, @since;
is_deeply([ grep { !/^(?:SN002|25P02)$/ } keys %errors ], [], 'no error but that it was closed');

my ($former) = schemas() =~ /(insta5_before_\S+)/ or die schemas();
my $ids = join ',', map { @{ $_->{ids} } } @writers;
is($live->safe_psql('postgres', qq{
SELECT (SELECT count(*) FROM insta5.texts WHERE length(t) > 50) || ' ' || (SELECT count(*) FROM insta5.snowid_migrations) || ' ' ||
	(SELECT count(*) FROM insta5.counts) || ' ' || (SELECT sequence FROM snowid.shard_registry WHERE shard = 5) || ' ' ||
	has_schema_privilege('app', 'insta5', 'USAGE') || ' ' || (SELECT count(*) FROM pg_trigger WHERE tgname = 'snowid_fence' AND tgenabled <> 'D' AND tgrelid::regclass::text LIKE 'insta5.%')}),
	'53 1 1 id_seq true 0', 'rows, ledger, views, registry and rights are those of the copy; it is open');
is($live->safe_psql('postgres', $row_sql), $row, 'pool and home are what they were');
is($live->safe_psql('postgres', q{SELECT nextval('insta5.texts_small_seq')}), '3000000001', 'a renamed sequence that has outgrown its type goes on');
is($live->safe_psql('postgres', q{SELECT count(*) FROM pg_constraint WHERE connamespace = 'insta5'::regnamespace AND NOT convalidated}), '0', 'foreign keys are validated');

# Of the former, and of copies, nothing can be written, nor ids made.
my $dbh = sub { my ($sql) = @_; my ($rc, $out, $err) = $live->psql('postgres', "\\set VERBOSITY verbose\n$sql"); return $err };
like($dbh->("INSERT INTO $former.users (name) VALUES ('x')"), qr/SN002/, 'the former is closed');
like($dbh->("SELECT $former.next_id()"), qr/SN002.*before/s, 'and gives no ids');

($code, $said) = snowid_move($then, $live, 5, 'restore');
is($code, 0, 'again: says that it is done') or diag $said;
like($said, qr/brought back already.*snowid-move finish .*snowid-move undo /s, 'and what can be typed');
($code, $said) = snowid_to($live, 'restore', '--from', $then->connstr('template1'));
is($code, 1, 'of another --from, that it is not') or diag $said;
like($said, qr/error: shard 5 is brought back already, as it is at: .*port=$port.*Type before: snowid-move finish .*; or: snowid-move undo /s, '... but what, and what to type');
($code, $said) = snowid_move($live, $live, 6, 'restore');
is($code, 1, 'of itself: refused') or diag $said;
like($said, qr/the same database/, 'as such');

# Undo: with larger ids, too.
my $newest = $live->safe_psql('postgres', q{SELECT greatest(max(id), insta5.next_id()) FROM insta5.users});
($code, $said) = snowid_to($live, 'undo');
is($code, 0, 'undone') or diag $said;
is(schemas(), 'insta5 insta5_undone', 'the former is back');
is($live->safe_psql('postgres', "SELECT count(*) || ' ' || (insta5.next_id() > $newest) FROM insta5.texts WHERE t = 'new'"), '1 true', 'with its rows, and larger ids');
is($live->safe_psql('postgres', q{SELECT nextval('insta5.other') > 3000000001}), 't', 'undo sets no sequence back');
like($session->query_safe('EXECUTE i; EXECUTE u'), qr/^\d+\n\d+$/, 'a session goes on after it');
$session->quit;

# A script that is half done would go on in what took its place.
my $hold = $live->background_psql('postgres');
$hold->query_safe('SELECT pg_advisory_lock(47)');
append_to_file(my $script = PostgreSQL::Test::Utils::tempdir() . '/half.sql', "-- no transaction\nCREATE TABLE half (); SELECT pg_advisory_xact_lock_shared(47); DROP TABLE half;");
my $each = IPC::Run::start([ 'snowid-each', '--registry', $live->connstr('postgres'), '--shard', 5, '--trust-owners', '--lock-timeout', 600000, '--name', 'half', '--file', $script ], '>', \my $out, '2>&1');
wait_until_held($live) or die 'snowid-each does not get there';
($code, $said) = snowid_move($then, $live, 5, 'restore', '--retries', 0);
is($code, 1, 'snowid-each is at work') or diag $said;
like($said, qr/error: snowid-each is at work on shard 5/, 'is told');
$hold->query_safe('SELECT pg_advisory_unlock(47)');
$hold->quit;
$each->finish;
is($each->full_result(0), 0, 'it comes to its end') or diag $out;

# Once more, without writers: bytes equal.
($code, $said) = snowid_move($then, $live, 5, 'restore');
is($code, 0, 'restored again') or diag $said;
is(rows($live, 'insta5'), $wanted, 'all rows are equal');

# The live one dropped by somebody: the former stays, and its way back is told.
# Its home is called otherwise, as another network does.
my $link = PostgreSQL::Test::Utils::tempdir_short() . '/s';
symlink $live->host, $link or die $!;
$live->safe_psql('postgres', "ALTER DATABASE postgres SET timezone = 'Asia/Kathmandu'");
$live->safe_psql('postgres', "UPDATE snowid.shard_registry SET home = 'host=$link port=" . $live->port . " dbname=postgres' WHERE shard = 5; DROP SCHEMA insta5 CASCADE");
($code, $said) = snowid_to($live, 'finish');
is($code, 1, 'finish drops no last copy') or diag $said;
like($said, qr/nothing was dropped.*snowid-move undo --shard 5 --to /s, 'and says the way back');
($code, $said) = snowid_to($live, 'undo');
is($code, 0, 'the way back') or diag $said;
is($live->safe_psql('postgres', "SELECT count(*) || ' ' || (insta5.next_id() > $newest) FROM insta5.texts WHERE t = 'new'"), '1 true', 'leads there');
$live->safe_psql('postgres', "INSERT INTO insta5.users (name) VALUES ('after')");

# Who may write the list of copies has nobody drop, or rename, what is none.
$live->safe_psql('postgres', q{
CREATE SCHEMA payroll; CREATE SCHEMA insta5_restoring; CREATE TABLE payroll.t (); CREATE ROLE lesser; GRANT SELECT, INSERT, UPDATE, DELETE ON snowid.copies TO lesser;
SET ROLE lesser; INSERT INTO snowid.copies (schema, shard, kind) VALUES ('insta6', 5, 'before'), ('payroll', 5, 'before'), ('insta5_restoring', 5, 'copying')});
for my $command ('finish', 'undo')
{
	($code, $said) = snowid_to($live, $command);
	is($code, 1, "a row of others: no $command") or diag $said;
	like($said, qr/schema "payroll" does not say that it is of shard 5.*COMMENT ON SCHEMA "payroll" IS 'snowid: of shard 5'/s, '... and why');
}
($code, $said) = snowid_to($live, 'restore', '--from', $then->connstr('postgres'));
is($code, 1, 'nor a restore') or diag $said;
is($live->safe_psql('postgres', q{SELECT string_agg(nspname, ' ' ORDER BY nspname) FROM pg_namespace WHERE nspname IN ('payroll', 'insta6', 'insta5', 'insta5_restoring')}),
	'insta5 insta5_restoring insta6 payroll', 'all is there');
$live->safe_psql('postgres', q{DELETE FROM snowid.copies WHERE schema IN ('payroll', 'insta6')});
($code, $said) = snowid_to($live, 'restore', '--from', $then->connstr('postgres'));
is($code, 1, 'nor over what is in its way') or diag $said;
like($said, qr/schema "insta5_restoring" does not say/, '... and why');
$live->safe_psql('postgres', q{DROP SCHEMA insta5_restoring; CREATE SCHEMA hers AUTHORIZATION lesser; SET ROLE lesser;
UPDATE snowid.copies SET schema = 'hers', kind = 'before', details = '{"poolers": "host=/nowhere\\n"}' WHERE schema = 'insta5_restoring'; COMMENT ON SCHEMA hers IS 'snowid: of shard 5'});
($code, $said) = snowid_to($live, 'undo', '--pooler', 'host=/elsewhere', '--pooler-file', '/dev/null');
is($code, 1, 'a schema of others takes no place') or diag $said;
like($said, qr/schema "hers", which would take the place of shard 5, is lesser's.*--trust-owners/s, '... and why');
unlike($said, qr/nowhere/, 'nor does it lead anybody to a pooler');
$live->safe_psql('postgres', q{DELETE FROM snowid.copies WHERE schema = 'hers'; DROP SCHEMA hers});

# Nor the shard itself, whatever it says.
$live->safe_psql('postgres', q{COMMENT ON SCHEMA insta5 IS 'snowid: of shard 5'; SELECT snowid_internal.prepare_table(t) FROM snowid_internal.shard_tables('insta5') t;
SET ROLE lesser; INSERT INTO snowid.copies (schema, shard, kind) VALUES ('insta5', 5, 'before')});
($code, $said) = snowid_to($live, 'finish');
is($code, 1, 'the shard is no copy') or diag $said;
like($said, qr/schema "insta5" is a shard's, and no copy, as snowid\.copies says/, '... and why');
$live->safe_psql('postgres', q{DELETE FROM snowid.copies WHERE schema = 'insta5'; COMMENT ON SCHEMA insta5 IS NULL});

# Nor is what is open dropped as a copy that is closed.
$live->safe_psql('postgres', q{CREATE SCHEMA twin; CREATE TABLE twin.t (); COMMENT ON SCHEMA twin IS 'snowid: of shard 5'; SELECT snowid_internal.prepare_table('twin.t');
SET ROLE lesser; INSERT INTO snowid.copies (schema, shard, kind) VALUES ('twin', 5, 'before')});
($code, $said) = snowid_to($live, 'finish');
is($code, 1, 'what is open is no copy') or diag $said;
like($said, qr/made after it was closed: twin\.t/, '... and why');
$live->safe_psql('postgres', q{DELETE FROM snowid.copies WHERE schema = 'twin'; DROP SCHEMA twin CASCADE});

($code, $said) = snowid_to($live, 'finish', '--dry-run');
like($said, qr/schema "insta5_undone" would be dropped; nothing was changed/, 'finish --dry-run') or diag $said;

# A table of a transaction that was open then is nowhere else.
$live->safe_psql('postgres', 'CREATE TABLE insta5_undone.late ()');
($code, $said) = snowid_to($live, 'finish');
is($code, 1, 'a newer table: no finish') or diag $said;
like($said, qr/made after it was closed: insta5_undone\.late/, '... and it is named');
my $late = $live->background_psql('postgres');
$late->query_safe('DROP TABLE insta5_undone.late; BEGIN; CREATE TABLE insta5_undone.later ()');
$each = IPC::Run::start([ 'snowid-move', 'finish', '--shard', 5, '--to', $live->connstr('postgres') ], '>', \($out = ''), '2>&1');
$live->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND locktype = 'object'}) or die 'does not wait';
$late->query_safe('COMMIT');
$each->finish;
is($each->full_result(0) >> 8, 1, 'one that comes while finish waits') or diag $out;
like($out, qr/made after it was closed: insta5_undone\.later/, '... is named, too');
$late->query_safe('DROP TABLE insta5_undone.later');
$late->quit;
($code, $said) = snowid_to($live, 'finish');
is($code, 0, 'finish') or diag $said;
like($said, qr/schema "insta5_undone" is dropped/, 'says what it drops');
is(schemas() . $live->safe_psql('postgres', 'SELECT count(*) FROM snowid.copies'), 'insta50', 'nothing is left');

# A shard that is gone, with its row.
$newest = $live->safe_psql('postgres', 'SELECT insta5.next_id()');
$live->safe_psql('postgres', 'SELECT snowid.drop_shard(5, true)');
($code, $said) = snowid_move($then, $live, 5, 'restore');
is($code, 1, 'a server that does not know it') or diag $said;
like($said, qr/does not know shard 5, which may live elsewhere.*type: snowid-move restore --shard 5 --from '.*' --to '.*' --yes$/sm, 'is told to type --yes');
my $registry = move_node('registry');
$registry->start;
$registry->safe_psql('postgres', "CREATE EXTENSION snowid; INSERT INTO snowid.shard_registry (shard, schema, home) VALUES (5, 'insta5', 'host=elsewhere dbname=postgres')");
my @registry = ('--registry', $registry->connstr('postgres'));
($code, $said) = snowid_move($then, $live, 5, 'restore', '--dry-run', @registry);
is($code, 1, 'nor if the registry has it elsewhere') or diag $said;
like($said, qr/may live elsewhere: host=elsewhere/, '... and where');
$registry->safe_psql('postgres', "UPDATE snowid.shard_registry SET home = \$\$$home\$\$");
($code, $said) = snowid_move($then, $live, 5, 'restore', '--dry-run', @registry);
is($code, 0, 'if it has it there') or diag $said;
$registry->stop;
($code, $said) = snowid_move($then, $live, 5, 'restore', '--yes');
is($code, 0, 'a dropped shard') or diag $said;
is(rows($live, 'insta5'), $wanted, 'is back');
is($live->safe_psql('postgres', $row_sql), $row, 'with its pool and home');
is($live->safe_psql('postgres', "SELECT insta5.next_id() > $newest"), 't', 'with larger ids than it ever had');
($code, $said) = snowid_to($live, 'finish');
is($code, 0, 'nothing to finish') or diag $said;
like($said, qr/nothing to finish/, 'is said');

# Dropped after it was brought back: what it was before is no reason not to do that again.
($code, $said) = snowid_move($then, $live, 5, 'restore');
is($code, 0, 'brought back once more') or diag $said;
$live->safe_psql('postgres', 'SELECT snowid.drop_shard(5, true)');
($code, $said) = snowid_move($then, $live, 5, 'restore', '--yes');
is($code, 0, 'and again, after it was dropped') or diag $said;
is(rows($live, 'insta5'), $wanted, 'is back');
($code, $said) = snowid_to($live, 'finish');
like($said, qr/schema "insta5_before_\d+" is dropped/, 'what it was before can be dropped');
is($live->safe_psql('postgres', q{SELECT obj_description('insta5'::regnamespace, 'pg_namespace')}), q{of Ann's}, 'its own comment is what it was');

$then->stop;
$live->stop;
done_testing();
