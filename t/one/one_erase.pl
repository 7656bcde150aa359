# snowid-move erase: the shard and its copies are gone wherever they were, with their rows; nothing of
# anybody else is.  It asks, refuses under a move, drops no stranger's view in silence, holds up
# nobody who uses a shared table, and goes on after it was killed.

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
my %address = map { ($_->name => 'host=' . $_->host . ' port=' . $_->port . ' dbname=postgres') } $a, $b, $dir;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid; CREATE TABLE public.countries (code text PRIMARY KEY)') for $a, $b, $dir;

# Shard 20 with what a shard has, and its row in the directory; shard 21 is its neighbour.
sub fresh
{
	make_shard($a, 20, 'insta20');
	$a->safe_psql('postgres', q{
ALTER TABLE insta20.users ADD country text;
CREATE VIEW insta20.names AS SELECT name FROM insta20.users;
CREATE MATERIALIZED VIEW insta20.sums AS SELECT count(*) FROM insta20.names;
});
	$dir->safe_psql('postgres', "INSERT INTO snowid.shard_registry (shard, schema, home, pool) VALUES (20, 'insta20', '$address{a}', 'p20')");
	return;
}

# Run it, with an answer; returns what it says.
sub erase
{
	my ($expected, $name, $answer, @options) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $said = '';

	IPC::Run::run([ 'snowid-move', 'erase', '--shard', 20, @options ], '<', \$answer, '>', \$said, '2>&1');
	is($? >> 8, $expected, $name) or diag $said;
	return $said;
}

sub nothing_of_it_ok
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is($_->safe_psql('postgres', q{
SELECT 'schema ' || nspname FROM pg_namespace WHERE nspname ~ '^insta20(_moved|_before.*)?$'
UNION ALL SELECT 'journal' FROM snowid.moves WHERE shard = 20
UNION ALL SELECT 'registry' FROM snowid.shard_registry WHERE shard = 20}), '', "$name: nothing is left at " . $_->name) for $a, $b, $dir;
	return;
}

fresh();
make_shard($a, 21, 'insta20_moved_too');
my @registry = ('--registry', $address{dir});
my @from = ('--from', $address{a});

# Under a move that is not done: what it says to type.
moves_ok($a, $b, 20, [ '--stop-after', 'copied', @registry ], 0, 'copied');
like(erase(1, 'under a move', '', @registry, '--yes'), qr/cannot be erased now.*type: snowid-move move --shard 20 .*type: snowid-move abort --shard 20 /s, 'says what to type');
moves_ok($a, $b, 20, [@registry], 0, 'moved');
is($a->safe_psql('postgres', q{SELECT count(*) FROM pg_namespace WHERE nspname = 'insta20_moved'}), '1', 'there is a closed copy');
$b->safe_psql('postgres', q{CREATE SCHEMA insta20_before_x; CREATE SEQUENCE insta20_before_x.id_seq; CREATE TABLE insta20_before_x.t (); COMMENT ON SCHEMA insta20_before_x IS 'snowid: of shard 20';
CREATE SCHEMA insta20_before_launch; CREATE TABLE insta20_before_launch.payroll (id serial); CREATE SCHEMA insta20_copy; CREATE PUBLICATION everything FOR ALL TABLES;
CREATE FUNCTION public.reads() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN count(*) FROM insta20.users; END'});

# Asked for twice.
erase(1, 'without an answer', '', @registry);
like(erase(1, 'with another number', "5\n", @registry), qr/was not confirmed, and nothing was dropped/, 'says so');
my $said = erase(0, 'dry run', '', @registry, '--dry-run');
like($said, qr/^at \Q$address{b}\E: schema insta20 with \d+ tables, \d+ kB, schema insta20_before_x .*, its row in the registry$/m, 'what is where it lives');
like($said, qr/^at \Q$address{a}\E: schema insta20_moved with/m, '... and where it lived');
like($said, qr/^at \Q$address{dir}\E: its row in the registry, with pool p20$/m, '... and the directory');

# A stranger's view.
$b->safe_psql('postgres', 'CREATE VIEW public.theirs AS SELECT name FROM insta20.users');
like(erase(1, 'a view of others', '', @registry, '--yes'), qr/objects of other schemas at \Q$address{b}\E use it.*view public\.theirs/, 'names it');
is($b->safe_psql('postgres', 'SELECT count(*) FROM public.theirs'), '200', 'it is there, and so is the shard');
$b->safe_psql('postgres', 'DROP VIEW public.theirs');

$said = erase(0, 'erased, by the directory', "20\n", @registry);
is(sqlstate($b, 'DROP TABLE insta20_before_launch.payroll; DROP SCHEMA insta20_before_launch'), '', 'what is only called like a copy is there');
nothing_of_it_ok('erased');
like($said, qr/^remains at \Q$address{b}\E: $_/m, "it says what remains: $_")
  for 'what publication everything has sent', 'schema insta20_copy, perhaps a copy', 'schema insta20_before_launch, perhaps a copy', 'routine public\.reads\(\), which mentions it', 'not seen: backups and archived log up to 20\d\d';
is($a->safe_psql('postgres', 'SELECT count(*) FROM insta20_moved_too.users'), '200', 'a shard that is called like a copy is nobody\'s copy');
like(erase(0, 'erased already', '', @registry), qr/no server has it/, 'says so');

# Sequences of tables are not forgotten before the end: ids of a new shard are above theirs.
fresh();
my $last = $a->safe_psql('postgres', q{
SELECT snowid.advance(pg_get_serial_sequence('insta20.likes', 'id'), snowid.make_id(clock_timestamp() + interval '4 s', 20, 0));
INSERT INTO insta20.likes DEFAULT VALUES RETURNING id}) =~ s/.*\n//sr;
erase(0, 'erased, by its server', '', @from, '--yes');
$a->safe_psql('postgres', 'SELECT snowid.create_shard(20)');
cmp_ok($a->safe_psql('postgres', 'SELECT insta20.next_id()'), '>', $last, 'a new shard goes on above the ids of the old one');
erase(0, 'erased, by the directory, which knew it', '', @registry, '--yes');
nothing_of_it_ok('both');

# Who has a shared table for long is not waited for, and nobody behind him.
fresh();
$a->safe_psql('postgres', 'ALTER TABLE insta20.users ADD FOREIGN KEY (country) REFERENCES public.countries');
my $reader = $a->background_psql('postgres');
$reader->query_safe('BEGIN; SELECT * FROM public.countries');
$said = erase(3, 'a shared table in use', '', @from, '--yes', '--retries', 1);
like($said, qr/could not lock what is to be dropped: ALTER TABLE insta20\.users DROP CONSTRAINT.*This is not complete/s, 'is not waited for long');
is(sqlstate($a, q{SET lock_timeout = '50s'; SELECT FROM public.countries}), '', 'and read by others');
isnt(sqlstate($a, 'INSERT INTO insta20.users DEFAULT VALUES'), '', 'the shard is closed meanwhile');
$reader->quit;

# A view that comes while a table is waited for.
my $stranger = $a->background_psql('postgres');
$stranger->query_safe('BEGIN; LOCK TABLE insta20.photos IN ACCESS SHARE MODE');
my ($in, $out) = ('', '');
my $run = IPC::Run::start([ 'snowid-move', 'erase', '--shard', 20, @from, '--yes' ], '<', \$in, '>', \$out, '2>&1');
my $waits = q{SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'};
$a->poll_query_until('postgres', $waits) or die 'does not wait';
$stranger->query_safe('CREATE VIEW public.late AS SELECT user_id FROM insta20.photos; COMMIT');
$run->finish;
is($run->full_result(0) >> 8, 3, 'a view that comes late') or diag $out;
like($out, qr/objects of other schemas at .* use it.*view public\.late/, 'is named');
is($a->safe_psql('postgres', 'SELECT count(*) FROM public.late'), '4000', 'and kept');
$a->safe_psql('postgres', 'DROP VIEW public.late');

# Killed while it waits.
$stranger->query_safe('BEGIN; LOCK TABLE insta20.photos IN ACCESS SHARE MODE');
$run = IPC::Run::start([ 'snowid-move', 'erase', '--shard', 20, @from, '--yes' ], '>', '/dev/null', '2>&1');
$a->poll_query_until('postgres', $waits) or die 'does not wait';
$run->signal('KILL');
$run->finish;
$stranger->query_safe('COMMIT');
$stranger->quit;
$a->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory'});
erase(0, 'killed and typed again', '', @from, '--yes');
erase(0, 'then at the directory', '', @registry, '--yes');
nothing_of_it_ok('killed');

# Ended after each part.
fresh();
moves_ok($a, $b, 20, [@registry], 0, 'moved again');
for my $tables (reverse -1 .. 3)
{
	for my $node ($a, $b)
	{
		$node->safe_psql('postgres', qq{
CREATE OR REPLACE FUNCTION public.ends() RETURNS event_trigger LANGUAGE plpgsql AS \$\$
BEGIN
	IF $tables = (SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname IN ('insta20', 'insta20_moved') AND relkind = 'r')
		OR $tables = -1 AND tg_tag = 'DROP SCHEMA' THEN
		PERFORM pg_terminate_backend(pg_backend_pid());
	END IF;
END \$\$;
DROP EVENT TRIGGER IF EXISTS ends;
CREATE EVENT TRIGGER ends ON ddl_command_end WHEN TAG IN ('DROP TABLE', 'DROP SCHEMA') EXECUTE FUNCTION public.ends();
});
	}
	erase(3, $tables < 0 ? 'ended with its schema' : "ended where $tables tables are left", '', @registry, '--yes');
}
$_->safe_psql('postgres', 'DROP EVENT TRIGGER ends') for $a, $b;
erase(0, '... and typed again', '', @registry, '--yes');
nothing_of_it_ok('ended');
is($_->safe_psql('postgres', 'SELECT count(*) FROM public.countries'), '0', 'the shared table is there') for $a, $b;

# A server that is not reached: the rest is erased, and the row that names it stays.
fresh();
moves_ok($a, $b, 20, [@registry], 0, 'moved once more');
moves_ok($a, $b, 20, [ 'finish', @registry ], 0, 'and finished');
$a->stop;
like(erase(3, 'a server is down', '', @registry, '--yes'), qr/erased, but on servers that were not reached.*DELETE FROM snowid\.shard_registry WHERE shard = 20/s, 'says what to type');
is($b->safe_psql('postgres', q{SELECT to_regnamespace('insta20')}), '', 'what was reached is erased');
$a->start;
erase(0, 'when it is back', '', @registry, '--yes');
nothing_of_it_ok('down');

# A server that only another one's row leads to, and that is down: the row stays until it is back.
fresh();
moves_ok($a, $b, 20, [], 0, 'moved without the directory');
moves_ok($a, $b, 20, ['finish'], 0, 'and finished');
$b->stop;
for my $time ('once', 'again')
{
	like(erase(3, "a server that a row leads to is down: $time", '', @registry, '--yes'), qr/erased, but on servers that were not reached/, 'says so');
}
$b->start;
erase(0, 'when that is back', '', @registry, '--yes');
nothing_of_it_ok('led to');

# Copies that are noted, of any name.
fresh();
$a->safe_psql('postgres', 'DROP MATERIALIZED VIEW insta20.sums');
moves_ok($a, $a, 20, [ 'copy', '--as', 'for_support' ], 0, 'copied beside it');
erase(0, 'erased with a copy', '', @registry, '--yes');
is($a->safe_psql('postgres', q{SELECT to_regnamespace('for_support'), (SELECT count(*) FROM snowid.copies)}), '|0', 'the copy is gone, too');

# Copies whose shard was dropped; one that only a row of anybody's calls so remains.
fresh();
$a->safe_psql('postgres', 'DROP MATERIALIZED VIEW insta20.sums');
moves_ok($a, $a, 20, [ 'copy', '--as', 'for_support' ], 0, 'copied once more');
$a->safe_psql('postgres', q{SELECT snowid.drop_shard(20, true); CREATE SCHEMA theirs; INSERT INTO snowid.copies (schema, shard, kind) VALUES ('theirs', 20, 'copy')});
$a->safe_psql('postgres', 'CREATE VIEW public.theirs AS SELECT name FROM for_support.users');
erase(1, 'a dry run of what would be refused', '', @from, '--dry-run');
$a->safe_psql('postgres', 'DROP VIEW public.theirs');
like(erase(0, 'erased, what is left', '', @from, '--yes'), qr/^remains at .*: schema theirs, perhaps a copy/m, 'says what it has not dropped');
is($a->safe_psql('postgres', q{SELECT to_regnamespace('for_support'), to_regnamespace('theirs')}), '|theirs', 'the copy is gone, and no other');

erase(0, 'and its row in the directory', '', @registry, '--yes');

# Who may write the registry or the journal has nothing of others dropped, whatever they own there.
$_->safe_psql('postgres', q{
CREATE ROLE writer; GRANT SELECT, INSERT, DELETE ON snowid.shard_registry, snowid.moves TO writer; GRANT CREATE ON DATABASE postgres TO writer;
CREATE SCHEMA payroll; CREATE TABLE payroll.p (); GRANT ALL ON SCHEMA payroll TO writer;
SET ROLE writer;
CREATE FUNCTION payroll.next_id() RETURNS bigint LANGUAGE sql RETURN snowid_internal.next_id_of_shard(20, 0);
INSERT INTO snowid.shard_registry (shard, schema) VALUES (20, 'payroll')}) for $a;
my $strange = qr/schema "payroll" at .* does not say that it is of shard 20, as snowid\.\w+ does; nothing was dropped.*COMMENT ON SCHEMA "payroll" IS 'snowid: of shard 20'/s;
like(erase(1, 'a row of the registry', '', @from, '--yes'), $strange, 'is not believed');
$a->safe_psql('postgres', 'DELETE FROM snowid.shard_registry WHERE shard = 20');
fresh();
$a->safe_psql('postgres', q{SET ROLE writer; INSERT INTO snowid.moves (shard, schema, role, step, closed) VALUES (20, 'payroll', 'source', 'moved', true)});
like(erase(1, 'a row of the journal', '', @from, '--yes'), $strange, 'is not, either');
is($a->safe_psql('postgres', q{SELECT to_regclass('payroll.p'), to_regclass('insta20.users')}), 'payroll.p|insta20.users', 'all is there');
$a->safe_psql('postgres', q{DELETE FROM snowid.moves});

# Nor while it is at work.
$stranger = $a->background_psql('postgres');
$stranger->query_safe('BEGIN; LOCK TABLE insta20.photos IN ACCESS SHARE MODE');
$run = IPC::Run::start([ 'snowid-move', 'erase', '--shard', 20, @from, '--yes' ], '>', \$out, '2>&1');
$a->poll_query_until('postgres', $waits) or die 'does not wait';
$stranger->query_safe(q{UPDATE snowid.shard_registry SET schema = 'payroll' WHERE shard = 20; COMMIT});
$stranger->quit;
$run->finish;
is($run->full_result(0) >> 8, 0, 'a row that comes to name another schema') or diag $out;
is($a->safe_psql('postgres', q{SELECT to_regclass('payroll.p'), to_regnamespace('insta20')}), 'payroll.p|', 'is not believed');
$a->safe_psql('postgres', q{DROP SCHEMA payroll CASCADE});
erase(0, 'without them', '', @registry, '--yes');

# Names obey nobody's terminal.
fresh();
$a->safe_psql('postgres', qq{CREATE SCHEMA "insta20_\x1b[2J
at nowhere: x"; INSERT INTO snowid.copies (schema, shard, kind) SELECT nspname, 20, 'copy' FROM pg_namespace WHERE nspname ~ 'nowhere';
COMMENT ON SCHEMA "insta20_\x1b[2J
at nowhere: x" IS 'snowid: of shard 20'});
$said = erase(0, 'a name with control characters', '', @from, '--dry-run');
like($said, qr/schema "insta20_\?\[2J at nowhere: x" with 0 tables/, 'is shown without');
unlike($said, qr/\x1b|^at nowhere/m, '... and begins no line');
erase(0, 'dropped with it', '', @registry, '--yes');

# A server that only the fleet's table names.
fresh();
$b->safe_psql('postgres', 'CREATE SCHEMA insta20_moved; CREATE TABLE insta20_moved.t (); COMMENT ON SCHEMA insta20_moved IS $$snowid: of shard 20$$');
$dir->safe_psql('postgres', "INSERT INTO snowid.servers (name, home) VALUES ('b', '$address{b}')");
erase(0, 'a server that only snowid.servers names', '', @registry, '--yes');
nothing_of_it_ok('by name');

$b->stop;
like(erase(1, 'nothing of it where a server is down', '', @registry, '--yes'), qr/no server has it that was reached/, 'says so');

$_->stop for $a, $dir;
done_testing();
