# Nothing of a shard's owner runs with the rights of a superuser who reads, copies or
# moves it, whatever the owner puts in the place of what a program has just looked at.
#
# A relay lets him in before the n-th statement of a program, for each n: his tables
# become views, foreign tables, tables with code of his or of a type of his, and so on. The
# program may fail; what runs notes as whom in the server's log, after trying to
# be the session's user again.
#
# The suite takes some of these instants, in half a minute.  SNOWID_RACE=all takes all, with the
# swaps by turns: six minutes, and a quarter of an hour more for moves, from 16 on;
# SNOWID_RACE=each, with each swap.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Utils;
use RaceTest;
use SnowidTest;
use Test::More;

my $all = $ENV{SNOWID_RACE} // '';
my $a = move_node('a');
my $b = move_node('b');
$_->start for $a, $b;
my $superuser = $a->safe_psql('postgres', 'SELECT current_user');
my $has_fdw = $a->safe_psql('postgres', q(SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'));
my $script = PostgreSQL::Test::Utils::tempdir() . '/script.sql';
append_to_file($script, 'INSERT INTO a (v) VALUES (current_user)');

for my $node ($a, $b)
{
	my ($host, $port) = ($node->host, $node->port);
	$node->safe_psql('postgres', q{
CREATE EXTENSION snowid;
CREATE ROLE planter LOGIN;
GRANT CREATE ON DATABASE postgres TO planter;
GRANT SELECT, INSERT, UPDATE, DELETE ON snowid.shard_registry, snowid.moves, snowid.copies TO planter;
} . ($has_fdw ? 'CREATE EXTENSION postgres_fdw; GRANT USAGE ON FOREIGN DATA WRAPPER postgres_fdw TO planter;' : ''));
	$node->safe_psql('postgres', q{
CREATE SCHEMA evil;
GRANT USAGE ON SCHEMA evil TO PUBLIC;
CREATE FUNCTION evil.bite(place text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	BEGIN
		PERFORM set_config('role', 'none', false);
	EXCEPTION WHEN OTHERS THEN
		NULL;
	END;
	RAISE LOG 'planted % as %', place, current_user;
	RETURN place;
END $$;
CREATE FUNCTION evil.fire() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM evil.bite('trigger');
	RETURN NEW;
END $$;
CREATE TYPE evil.word AS (v text);
CREATE FUNCTION evil.text(evil.word) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT evil.bite('cast') $$;
CREATE FUNCTION evil.same(evil.word, evil.word) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$ SELECT evil.bite('operator') > '' $$;
CREATE CAST (evil.word AS text) WITH FUNCTION evil.text(evil.word) AS IMPLICIT;
CREATE OPERATOR evil.= (LEFTARG = evil.word, RIGHTARG = evil.word, FUNCTION = evil.same);
CREATE VIEW evil.t AS SELECT bigint '1' AS id, evil.bite('foreign table') AS v;
} . ($has_fdw ? qq{
CREATE SERVER loop FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'postgres');
CREATE USER MAPPING FOR PUBLIC SERVER loop;} : ''), extra_params => [ '-U', 'planter' ]);
}

# Shard 4 is the superuser's, shard 5 planter's, but for its ledger.
my $ledger = 'CREATE TABLE insta5.snowid_migrations (name text PRIMARY KEY, checksum text NOT NULL, script text NOT NULL, statements int NOT NULL DEFAULT 0,
	run_by name NOT NULL DEFAULT session_user, started_at timestamptz NOT NULL DEFAULT clock_timestamp(), finished_at timestamptz, error text)';
sub fresh
{
	$b->safe_psql('postgres', q{
SET client_min_messages = error;
DO $$ DECLARE s name; BEGIN FOR s IN SELECT subname FROM pg_subscription LOOP
	EXECUTE format('ALTER SUBSCRIPTION %I DISABLE', s); EXECUTE format('ALTER SUBSCRIPTION %I SET (slot_name = NONE)', s); EXECUTE format('DROP SUBSCRIPTION %I', s);
END LOOP; END $$});
	$_->safe_psql('postgres', q{
SET client_min_messages = error;
DO $$ DECLARE s text; BEGIN
	PERFORM pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'planter';
	FOR s IN SELECT nspname FROM pg_namespace WHERE nspname ~ '^(insta|trap|twin|snowid_move)' LOOP EXECUTE format('DROP SCHEMA %I CASCADE', s); END LOOP;
	FOR s IN SELECT pubname FROM pg_publication LOOP EXECUTE format('DROP PUBLICATION %I', s); END LOOP;
END $$;
DELETE FROM snowid.shard_registry; DELETE FROM snowid.moves; DELETE FROM snowid.copies;
SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active}) for $a, $b;
	$a->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_replication_slots WHERE active') or die;
	$a->safe_psql('postgres', 'SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots');
	my $tables = q{CREATE DOMAIN word AS text;
CREATE TABLE a (id bigint PRIMARY KEY DEFAULT next_id(), v text);
CREATE TABLE b (id bigint PRIMARY KEY DEFAULT next_id(), v word);
INSERT INTO a (v) VALUES ('x'); INSERT INTO b (v) VALUES ('x');
CREATE MATERIALIZED VIEW m AS SELECT v FROM a;};
	$a->safe_psql('postgres', "SELECT snowid.create_shard(4); SET search_path = insta4; $tables");
	$a->safe_psql('postgres', "SELECT snowid.create_shard(5); SET search_path = insta5; $tables", extra_params => [ '-U', 'planter' ]);
	$a->safe_psql('postgres', $ledger);
	return;
}

# What he does, as far as he can: each line by itself.
my @planted = map { my $t = $_; (
	"ALTER TABLE $t ADD CHECK (evil.bite('check') > '' AND id <> 0);",
	"CREATE TRIGGER fire BEFORE INSERT OR UPDATE OR DELETE ON $t FOR EACH ROW EXECUTE FUNCTION evil.fire(); ALTER TABLE $t ENABLE ALWAYS TRIGGER fire;",
	"CREATE TRIGGER fires BEFORE TRUNCATE ON $t EXECUTE FUNCTION evil.fire(); ALTER TABLE $t ENABLE ALWAYS TRIGGER fires;",
	"CREATE RULE r AS ON INSERT TO $t DO ALSO SELECT evil.bite('rule');",
	"ALTER TABLE $t ADD g text GENERATED ALWAYS AS (evil.bite('generated ' || id::text)) STORED;") } qw(insta5.a insta5.b);
my @new = map { "BEGIN; DROP TABLE insta5.$_ CASCADE; CREATE TABLE insta5.$_ (id bigint PRIMARY KEY, v text DEFAULT evil.bite('default')); COMMIT;" } qw(a b);
my $new_ledger = 'BEGIN; DROP TABLE insta5.snowid_migrations; ' . ($ledger =~ s/name text/name text CHECK (evil.bite('check') > name || '')/r);
my %swaps = (
	view => [ map { "BEGIN; DROP TABLE insta5.$_ CASCADE; CREATE VIEW insta5.$_ AS SELECT bigint '1' AS id, evil.bite('view') AS v; COMMIT;" } qw(a b) ],
	'renamed for a view' => [ map { "BEGIN; ALTER TABLE insta5.$_ RENAME TO old_$_; CREATE VIEW insta5.$_ AS SELECT id, evil.bite('view') AS v FROM insta5.old_$_; COMMIT;" } qw(a b) ],
	'foreign table' => [ map { "BEGIN; DROP TABLE insta5.$_ CASCADE; CREATE FOREIGN TABLE insta5.$_ (id bigint, v text) SERVER loop OPTIONS (schema_name 'evil', table_name 't'); COMMIT;" } qw(a b) ],
	table => [ @new, @planted ],
	type => [ q{ALTER TABLE insta5.a ALTER v TYPE evil.word USING ROW(v)::evil.word;}, q{ALTER DOMAIN insta5.word ADD CHECK (evil.bite('domain') > '');} ],
	code => [ @planted,
		q{CREATE OR REPLACE FUNCTION insta5.next_id() RETURNS bigint LANGUAGE sql AS $$ SELECT length(evil.bite('next_id')) $$;},
		q{BEGIN; DROP MATERIALIZED VIEW insta5.m; CREATE MATERIALIZED VIEW insta5.m AS SELECT evil.bite('materialized view') AS v FROM insta5.a; COMMIT;} ],
	sequence => [ q{BEGIN; DROP SEQUENCE insta5.id_seq CASCADE; CREATE VIEW insta5.id_seq AS SELECT bigint '1' AS last_value, evil.bite('sequence') > '' AS is_called, 0 AS log_cnt; COMMIT;} ],
	registry => [ q{CREATE SCHEMA trap; GRANT USAGE ON SCHEMA trap TO PUBLIC; CREATE SEQUENCE trap.id_seq;},
		q{CREATE VIEW trap.a AS SELECT evil.bite('registry') AS v;}, q{CREATE VIEW trap.snowid_migrations AS SELECT evil.bite('registry') AS name, now() AS finished_at, 1 AS statements, '' AS error;},
		q{UPDATE snowid.shard_registry SET schema = 'trap' WHERE shard = 4;}, q{UPDATE snowid.shard_registry SET home = 'host=/nowhere' WHERE shard = 5;} ],
	ledger => [ q{BEGIN; DROP TABLE insta5.snowid_migrations; CREATE VIEW insta5.snowid_migrations AS
		SELECT evil.bite('ledger') AS name, now() AS finished_at, 0 AS statements, evil.bite('ledger') AS error, '' AS script; COMMIT;} ],
	'ledger with code' => [ "$new_ledger; CREATE TRIGGER fire BEFORE INSERT OR UPDATE OR DELETE ON insta5.snowid_migrations FOR EACH ROW EXECUTE FUNCTION evil.fire(); COMMIT;" ],
	schema => [ 'CREATE SCHEMA twin; ' . (join ' ', map { "CREATE TABLE twin.$_ (id bigint PRIMARY KEY, v text); CREATE INDEX ON twin.$_ ((evil.bite('twin')));" } qw(a b)),
		'BEGIN; ALTER SCHEMA insta5 RENAME TO insta5_old; ALTER SCHEMA twin RENAME TO insta5; COMMIT;' ],
	index => [ map { ("CREATE INDEX ON insta5.$_ ((evil.bite('index')));", "CREATE STATISTICS ON (evil.bite('statistics')), id FROM insta5.$_;") } qw(a b) ],
);
delete $swaps{'foreign table'} if !$has_fdw;

# The command that does it, on both servers.
sub attack
{
	my ($swap) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/' . $swap =~ s/ /_/gr;

	append_to_file($file, join "\n", 'SET client_min_messages = error; SET lock_timeout = 2000;', @{ $swaps{$swap} }, '') if !-e $file;
	return [ 'sh', '-c', join ' ', (map { qq{psql -XqAtU planter -h } . $_->host . ' -p ' . $_->port . " -f $file postgres >/dev/null 2>&1 &" } $a, $b), 'wait' ];
}

my ($at_a, $at_b) = map { relayed($_) } $a, $b;
my @each = ('snowid-each', '--registry', $at_a);
my @move = ('snowid-move', '--shard', 5, '--from', $at_a, '--to', $at_b, '--source-for-target', $a->connstr('postgres'));
my @reads = ('view', 'renamed for a view', 'foreign table', 'type', 'registry', 'ledger');
my @rows = ('view', 'renamed for a view', 'foreign table', 'table', 'type', 'code', 'sequence');

# What is called, and how far apart the instants are in the suite; with what is swapped.
# A move begins where plan ends, or an earlier move.  Until 16, a shard of a lesser role is not moved.
my @calls = (
	[ [ @each, 'status' ], 1, 'ledger' ],
	[ [ @each, 'status' ], 5, 'registry', 'ledger with code' ],
	[ [ @each, 'query', 'SELECT v FROM a', '--partial', '--then', 'TABLE answers' ], 9, @reads ],
	[ [ @each, '--wait', 1, '--name', 'x', '--file', $script ], 8, 'view', 'code', 'registry', 'ledger', 'ledger with code' ],
	[ [ @each, 'diff' ], 23, @reads ],
	[ [ @each, 'create', '--like', 4, '--shard', 6 ], 25, 'registry' ],
	[ [ @each, 'create', '--like', 5, '--shard', 6 ], 5, 'view', 'code', 'ledger with code' ],
	[ [ 'snowid-fleet', 'status', '--registry', $at_a ], 11, @reads, 'sequence' ],
	[ [ 'snowid-move', 'audit', '--registry', $at_a ], 5, @reads, 'sequence' ],
	[ [ @move, 'plan' ], 41, @rows, 'index' ],
	[ [ @move[0 .. 6], 'copy' ], 19, @rows, 'index' ],
	[ [ 'snowid-move', 'diff', '--shard', 5, '--from', $at_a, '--to', $at_a ], 2, 'view', 'type', 'index', 'schema' ],
	$a->pg_version < 16 ? () : ([ [ @move, '--stop-after', 'copied' ], 53, @rows, 'index' ], [ [ @move, '--verify', 'checksums' ], 53, @rows, 'index', 'schema' ])
);

my ($begun, $planned) = (time, 1);		# where a move begins
for my $call (@calls)
{
	my ($command, $stride, @swaps) = @$call;
	my $title = join ' ', grep { !/=/ && !/^--(registry|from|to|source-for-target)$/ } @$command;
	my ($n, $bites, $instants) = ($title =~ /copied|verify/ ? $planned : 1, 0, 0);
	@swaps = grep { $swaps{$_} } @swaps;
	for (my $more = 1; $more; $n += $all ? 1 : $stride)
	{
		for my $swap ($all eq 'each' ? @swaps : $swaps[$instants % @swaps])
		{
			fresh();
			my @from = map { -s $_->logfile } $a, $b;
			($more, my $code, my $said) = race([ $a, $b ], $n, attack($swap), @$command);
			note("$n, $swap: exit code $code") if $all;
			my @ran = map { slurp_file($_->[0]->logfile, $_->[1]) =~ /LOG:  (planted .* as $superuser)$/mg } [ $a, $from[0] ], [ $b, $from[1] ];
			fail("$swap before statement $n of $title: $ran[0]") if @ran;
			$bites += @ran;
			$instants += $more;
			$planned = $n if $more && $title =~ /plan|copied/;
			last if !$more;
		}
	}
	is($bites, 0, "$title: $instants instants");
	diag(sprintf '%s: %d instants, to statement %d, %d s', $title, $instants, $n, time - $begun) if $all;
}

done_testing();
