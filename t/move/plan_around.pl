# What stands around the shard on both servers: settings of the databases, encodings, a synchronous
# standby that is gone, functions that need a search_path, a source that the target does not reach.  Each
# is said before anything is copied, with what to type, which then helps.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my ($a, $b, $c) = map { move_node($_) } qw(a b c);
$_->start for $a, $b, $c;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b, $c;
fresh_shard($a, $b);

# Settings of the database.
$a->safe_psql('postgres', q{ALTER DATABASE postgres SET search_path = insta5, public; ALTER DATABASE postgres SET work_mem = '5MB'});
my $said = moves_ok($a, $b, 5, ['plan'], 0, 'settings of the source',
	qr/^warning +settings of the database: the source has search_path by ALTER DATABASE.*\n +Type there: ALTER DATABASE postgres SET search_path = insta5, public;/m);
my @commands = $said =~ /Type there: (ALTER DATABASE .*;)$/mg;
is(scalar @commands, 2, 'both are told');
$b->safe_psql('postgres', join ' ', @commands);
unlike(moves_ok($a, $b, 5, ['plan'], 0, 'typed'), qr/settings of the database:/, '... which helps');
for my $node ($a, $b)
{
	$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET ALL');
}
$b->safe_psql('postgres', 'ALTER DATABASE postgres SET default_transaction_read_only = on');
moves_ok($a, $b, 5, ['plan'], 0, 'a target that is read only', qr/^warning +settings of the database: default_transaction_read_only is on.*\n.*RESET default_transaction_read_only;/m);
$b->safe_psql('postgres', 'SET default_transaction_read_only = off; ALTER DATABASE postgres RESET default_transaction_read_only');

# A synchronous standby that is gone.
$b->append_conf('postgresql.conf', "synchronous_standby_names = 'gone'");
$b->reload;
$b->poll_query_until('postgres', q{SELECT setting = 'gone' FROM pg_settings WHERE name = 'synchronous_standby_names'}) or die;
moves_ok($a, $b, 5, ['plan'], 1, 'a standby that is gone', qr/^FAILED +synchronous standbys of the target: synchronous_standby_names is gone, .*\n +Start it, or type there: ALTER SYSTEM RESET/m);
$b->append_conf('postgresql.conf', "synchronous_standby_names = ''");
$b->reload;
$b->poll_query_until('postgres', q{SELECT setting = '' FROM pg_settings WHERE name = 'synchronous_standby_names'}) or die;

# A slot that nobody reads.
SKIP:
{
	skip 'before PostgreSQL 18 no slot is lost for that', 2 if $a->safe_psql('postgres', 'SHOW server_version_num') < 180000;
	$a->safe_psql('postgres', q{ALTER SYSTEM SET idle_replication_slot_timeout = '1h'});
	$a->reload;
	$a->poll_query_until('postgres', q{SELECT setting <> '0' FROM pg_settings WHERE name = 'idle_replication_slot_timeout'}) or die;
	moves_ok($a, $b, 5, ['plan'], 0, 'a timeout of slots', qr/^warning +settings of walsenders: idle_replication_slot_timeout is 1h: /m);
	$a->safe_psql('postgres', q{ALTER SYSTEM RESET idle_replication_slot_timeout});
	$a->reload;
}

SKIP:
{
	skip 'before PostgreSQL 17 there is no transaction_timeout', 2 if $a->safe_psql('postgres', 'SHOW server_version_num') < 170000;
	$a->safe_psql('postgres', q{ALTER DATABASE postgres SET transaction_timeout = '5min'});
	moves_ok($a, $b, 5, ['plan'], 0, 'a timeout of transactions', qr/^warning +settings of walsenders: transaction_timeout is 300000ms.*\n.*SET transaction_timeout = 0;/m);
	$a->safe_psql('postgres', q{ALTER DATABASE postgres RESET transaction_timeout});
}

$a->safe_psql('postgres', 'ALTER DATABASE postgres SET exit_on_error = on');
moves_ok($a, $b, 5, ['plan'], 0, 'errors that end sessions', qr/^warning +settings of walsenders: exit_on_error is on .*\n.*SET exit_on_error = off;/m);
$a->safe_psql('postgres', 'ALTER DATABASE postgres RESET exit_on_error');

# A source that the target does not reach, but another server.
my $other = 'host=' . $c->host . ' port=' . $c->port . ' dbname=postgres';
moves_ok($a, $b, 5, [ '--source-for-target', $other ], 1, 'another source', qr/the target reaches another server than the source, by: .*\Q@{[$c->port]}\E.*\n.*--source-for-target=CONNSTR/);
is($b->safe_psql('postgres', q{SELECT count(*) FROM pg_namespace WHERE nspname = 'insta5'}), '0', '... and nothing was copied');
moves_ok($a, $b, 5, [], 0, 'the right one');
moves_ok($a, $b, 5, ['finish'], 0, 'finished');

# No encoding.
$a->safe_psql('postgres', q{CREATE DATABASE ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0});
$a->safe_psql('ascii', q{CREATE EXTENSION snowid; SELECT snowid.create_shard(5)});
{
	local $MoveTest::database = 'ascii';
	$b->safe_psql('postgres', q{CREATE DATABASE ascii ENCODING 'UTF8' TEMPLATE template0});
	$b->safe_psql('ascii', q{CREATE EXTENSION snowid});
	moves_ok($a, $b, 5, ['plan'], 1, 'SQL_ASCII', qr/^FAILED +encoding: SQL_ASCII on the source, UTF8 on the target\n +Nobody knows/m);
}

# Functions by bare names: each way to call one, and the commands that help.
fresh_shard($a, $b);
$a->safe_psql('postgres', q{
SET search_path = insta5, public;
CREATE FUNCTION helper(x text) RETURNS text LANGUAGE sql IMMUTABLE AS $$SELECT lower(x)$$;
CREATE FUNCTION in_check(x text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$BEGIN RETURN helper(x) <> '-'; END$$;
CREATE FUNCTION in_column(x text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$BEGIN RETURN helper(x); END$$;
CREATE FUNCTION in_index(x text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$BEGIN RETURN helper(x); END$$;
CREATE FUNCTION in_domain(x text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$BEGIN RETURN helper(x) <> '-'; END$$;
CREATE FUNCTION in_view(x text) RETURNS text LANGUAGE plpgsql STABLE AS $$BEGIN RETURN helper(x); END$$;
CREATE FUNCTION right_one(x text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$BEGIN RETURN insta5.helper(x) <> '-'; END$$;
CREATE DOMAIN word AS text CHECK (in_domain(VALUE));
CREATE TABLE bare (id bigint PRIMARY KEY DEFAULT next_id(), x text CHECK (in_check(x)) CHECK (right_one(x)), w word,
	g text GENERATED ALWAYS AS (in_column(x)) STORED);
CREATE INDEX bare_index ON bare (in_index(x));
CREATE TABLE empty (id bigint PRIMARY KEY, x text CHECK (in_check(x)), w word, y "char");
CREATE MATERIALIZED VIEW bare_view AS SELECT in_view(x) FROM bare;
INSERT INTO bare (x, w) VALUES ('A', 'b')});
$said = moves_ok($a, $b, 5, [ 'plan', '--trust-owners' ], 1, 'bare names', map { qr/^FAILED +functions without a path: $_ fails with an empty search_path, as in the copy: .*function helper\(text\) does not exist\n +Type: ALTER FUNCTION insta5\./m }
	'constraint bare_x_check', 'column g', 'index insta5\.bare_index', 'domain insta5\.word', 'its query', 'constraint empty_x_check');
unlike($said, qr/right_one/, '... and those alone');
is($b->safe_psql('postgres', 'SELECT count(*) FROM snowid.moves'), 0, 'nothing was begun');
my %commands = map { ($_ => 1) } $said =~ /(ALTER FUNCTION \S+ SET search_path = insta5, public;)/g;
is(scalar keys %commands, 5, 'what to type');
$a->safe_psql('postgres', join ' ', sort keys %commands);

# A lesser role's code is not run for that: it would be a superuser's after RESET ROLE.
$a->safe_psql('postgres', q{
CREATE ROLE lesser;
CREATE FUNCTION insta5.bites(x text) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RESET ROLE; RAISE WARNING 'bitten as %', current_user; RETURN true; END$$;
ALTER FUNCTION insta5.bites(text) OWNER TO lesser;
ALTER TABLE insta5.bare ADD CONSTRAINT bites CHECK (insta5.in_check(x) AND insta5.bites(x)) NOT VALID;
CREATE TABLE insta5.theirs (id bigint PRIMARY KEY, x text CHECK (insta5.in_check(x)));
ALTER TABLE insta5.theirs OWNER TO lesser;
GRANT USAGE ON SCHEMA insta5 TO lesser;
ALTER FUNCTION insta5.in_check(text) RESET search_path});
$said = moves_ok($a, $b, 5, ['plan'], 1, 'a lesser role', qr/owner is no superuser/);
unlike($said, qr/bitten|functions without a path: constraint/, '... whose code is not run');
# ... nor is a table of his read that is called as an extension's own.
$a->safe_psql('postgres', q{
GRANT CREATE ON DATABASE postgres TO lesser;
SET SESSION AUTHORIZATION lesser;
CREATE SCHEMA cron;
GRANT USAGE ON SCHEMA cron TO PUBLIC;
CREATE TYPE cron.word AS (w text);
CREATE FUNCTION cron.bites(cron.word) RETURNS text LANGUAGE plpgsql AS $$BEGIN RAISE WARNING 'bitten as %', current_user; RETURN 'insta5.x'; END$$;
CREATE CAST (cron.word AS text) WITH FUNCTION cron.bites(cron.word) AS IMPLICIT;
CREATE TABLE cron.job (jobid bigint, command cron.word, database text);
INSERT INTO cron.job VALUES (3, ROW('x'), current_database());
CREATE TABLE cron.part_config (parent_table cron.word);
INSERT INTO cron.part_config VALUES (ROW('x'))});
unlike((snowid_move($a, $b, 5, 'plan'))[1], qr/bitten|names the shard|pg_partman/, '... nor is a table of his read that is called as an extension\'s');
for ([ 'in a schema of another', 'ALTER SCHEMA cron OWNER TO CURRENT_USER' ],
	[ 'in his schema, where he could put one', 'ALTER SCHEMA cron OWNER TO lesser; ALTER TABLE cron.job OWNER TO CURRENT_USER; ALTER TABLE cron.part_config OWNER TO CURRENT_USER' ])
{
	$a->safe_psql('postgres', $_->[1]);
	unlike((snowid_move($a, $b, 5, 'plan'))[1], qr/bitten|names the shard|pg_partman/, "... nor one $_->[0]");
}
$a->safe_psql('postgres', 'SET client_min_messages = warning; DROP SCHEMA cron CASCADE; REVOKE CREATE ON DATABASE postgres FROM lesser');

# ... nor is what he has called something told as what is to be typed.
$a->safe_psql('postgres', qq{CREATE TABLE insta5."x\n         Type: ALTER ROLE lesser SUPERUSER;" (y int)});
unlike((snowid_move($a, $b, 5, 'plan'))[1], qr/^ *Type: ALTER ROLE lesser/m, 'a name is within its line');
$a->safe_psql('postgres', qq{DROP TABLE insta5."x\n         Type: ALTER ROLE lesser SUPERUSER;"});
like(moves_ok($a, $b, 5, [ 'plan', '--trust-owners' ], 1, 'trusted'), qr/functions without a path: constraint theirs_x_check/, '... it is');
$a->safe_psql('postgres', q{REVOKE USAGE ON SCHEMA insta5 FROM lesser; DROP TABLE insta5.theirs; ALTER TABLE insta5.bare DROP CONSTRAINT bites; DROP FUNCTION insta5.bites(text);
GRANT USAGE ON SCHEMA insta5 TO PUBLIC});

# ... nor is anything cast to a domain in a schema of his, where he can put another at any time.
$_->safe_psql('postgres', 'CREATE SCHEMA util; CREATE DOMAIN util.their AS text') for $a, $b;
$a->safe_psql('postgres', q{
SET search_path = insta5, public;
ALTER DOMAIN util.their ADD CHECK (insta5.in_check(VALUE));
CREATE DOMAIN insta5.over AS util.their CHECK (insta5.in_check(VALUE));
ALTER TABLE insta5.bare ADD t util.their, ADD o insta5.over, ADD CONSTRAINT over CHECK (insta5.in_check(x::insta5.over)) NOT VALID;
CREATE TYPE insta5.pair AS (a insta5.over);
ALTER TABLE insta5.bare ADD CONSTRAINT pair CHECK (insta5.in_check(x) AND NULL::insta5.pair IS NULL) NOT VALID});
$said = moves_ok($a, $b, 5, ['plan'], 1, 'domains', map { qr/functions without a path: $_/ } my @domains = ('domain util.their', 'domain insta5.over', 'constraint over', 'constraint pair'));
$a->safe_psql('postgres', 'ALTER SCHEMA util OWNER TO lesser');
$said = moves_ok($a, $b, 5, ['plan'], 1, 'domains in a schema of a lesser role', qr/functions without a path: constraint bare_x_check/);
unlike($said, qr/functions without a path: \Q$_\E/, "... $_ is not tried") for @domains;
$a->safe_psql('postgres', q{ALTER TABLE insta5.bare DROP CONSTRAINT over, DROP CONSTRAINT pair, DROP t, DROP o; DROP TYPE insta5.pair; DROP DOMAIN insta5.over, util.their; REVOKE USAGE ON SCHEMA insta5 FROM PUBLIC;
ALTER FUNCTION insta5.in_check(text) SET search_path = insta5, public});
moves_ok($a, $b, 5, [], 0, 'typed, it moves');
is($b->safe_psql('postgres', 'SELECT x, w, g FROM insta5.bare'), 'A|b|a', '... with its rows');

$_->stop for $a, $b, $c;
done_testing();
