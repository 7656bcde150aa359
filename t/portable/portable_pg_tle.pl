# As an extension of pg_tle, which needs no file of ours on the server: made,
# updated, dumped, restored and removed as any other, by the owner of a database,
# who is no superuser, as on RDS and Supabase.
#
# pg_tle is not in Debian.  Where the C edition is installed, its files have the
# name; so this needs a server without them: PG_TLE_CONFIG is its pg_config.
# .ci/pg-tle makes one.
use strict;
use warnings;

my $bindir;

BEGIN
{
	my $config = $ENV{PG_TLE_CONFIG} // '';
	chomp($bindir = $config ? `$config --bindir` : '');
	$ENV{PATH} = "$bindir:$ENV{PATH}" if $bindir;
}

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

plan skip_all => 'no server with pg_tle: PG_TLE_CONFIG is not set' unless $bindir;

my $node = new_node('pg_tle');
$node->append_conf('postgresql.conf', q{shared_preload_libraries = 'pg_tle'});
$node->start;
$node->safe_psql('postgres', q{
CREATE ROLE owner LOGIN CREATEDB CREATEROLE;
CREATE ROLE planter LOGIN;
CREATE ROLE member LOGIN;
CREATE DATABASE app OWNER owner;});

# What RDS and Supabase do as superuser for a role that is none: CREATE EXTENSION pg_tle.  And
# a trigger that looks at whatever is made, as Supabase has for its API.
my $made_for_owner = q{
CREATE EXTENSION pg_tle;
CREATE SCHEMA watch;
CREATE TABLE watch.seen (tag text);
GRANT USAGE ON SCHEMA watch TO PUBLIC;
GRANT INSERT ON watch.seen TO PUBLIC;
CREATE FUNCTION watch.look() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO watch.seen SELECT command_tag FROM pg_event_trigger_ddl_commands(); END $$;
CREATE EVENT TRIGGER look ON ddl_command_end EXECUTE FUNCTION watch.look();};
$node->safe_psql('app', "$made_for_owner GRANT pgtle_admin TO owner;");
# What pg_tle runs has public in its path.
$node->safe_psql('app', q{
GRANT CREATE ON SCHEMA public TO planter;
SET ROLE planter;
CREATE FUNCTION public.bite(numeric, int) RETURNS numeric LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RAISE 'planted'; END $$;
CREATE OPERATOR public.* (LEFTARG = numeric, RIGHTARG = int, FUNCTION = public.bite);});
my @owner = (dbname => 'app', extra_params => [ '-U', 'owner' ]);

$node->command_ok([ 'psql', '-X', '-q', '-U', 'owner', '-d', 'app', '-f', portable_file('pg_tle') ],
	'an owner makes it known to pg_tle');
is(sqlstate($node, q{
CREATE EXTENSION snowid;
CALL snowid.create_shards(5, 6, ddl => 'CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id())');
INSERT INTO insta5.photos SELECT FROM generate_series(1, 1000);
SET snowid.shard = 9;
SELECT snowid.next_id();}, @owner), '', 'creates the extension, and shards');
is($node->safe_psql('app', q{SELECT extversion FROM pg_extension WHERE extname = 'snowid'}), '1.0', 'it is one');
is($node->safe_psql('app', q{SELECT snowid.id_timestamp(snowid.min_id('2026-01-01 00:00:00+00'))}), '2026-01-01 00:00:00+00',
	'without what is planted in public');

# To a next version, which replaces all functions, and has one more.
my $path = q{SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);} . "\n";
my $update = join "\n", slurp_file(portable_file('pg_tle')) =~ /^(CREATE (?:FUNCTION|PROCEDURE) .*?;\n)(?=\n(?:--[^\n]*\n)*COMMENT ON)/gms;
$update =~ s/^CREATE /CREATE OR REPLACE /gm;
my $members = q{SELECT count(*) FROM pg_depend WHERE deptype = 'e' AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowid')};
my ($before, $last) = split /\|/, $node->safe_psql('app', "SELECT ($members), max(id) FROM insta5.photos");
is(sqlstate($node, "SELECT pgtle.install_update_path('snowid', '1.0', 'next', \$_pgtle_\$$path$update"
	. q{CREATE FUNCTION snowid.added() RETURNS int LANGUAGE sql RETURN 1; $_pgtle_$); ALTER EXTENSION snowid UPDATE TO 'next'}, @owner), '', 'updates it');
is($node->safe_psql('app', "SELECT ($members) - $before, insta5.next_id() > $last, snowid.added()"), '1|t|1', 'which keeps its members, and ids go on');

# A copy, in a database that has pg_tle, by its owner.
$node->safe_psql('app', 'DROP FUNCTION public.bite CASCADE');
my $dump = $node->basedir . '/app.dump';
$node->command_ok([ 'pg_dump', '-U', 'owner', '-Fc', '-f', $dump, '-N', 'watch', 'app' ], 'a dump');
$node->command_ok([ 'createdb', '-U', 'owner', 'copy' ], 'another database');
$node->safe_psql('copy', $made_for_owner);
my ($list) = run_command([ 'pg_restore', '-l', $dump ]);
my $wanted = $node->basedir . '/list';
append_to_file($wanted, join "\n", grep { !/EVENT TRIGGER|EXTENSION.* pg_tle| SCHEMA - pgtle / } split /\n/, $list);
$node->command_ok([ 'pg_restore', '-U', 'owner', '-d', 'copy', '-e', '-L', $wanted, $dump ], 'restored, with what pg_tle knows');
is($node->safe_psql('copy', q{
SELECT (SELECT max(id) FROM insta5.photos) < insta5.next_id(), (SELECT count(*) FROM snowid.shards)}), 't|2',
	'ids go on above those of the dump');

# Whom the owner lets create, but who may not install.
is(sqlstate($node, q{DROP SCHEMA insta5, insta6 CASCADE; DROP EXTENSION snowid CASCADE; GRANT CREATE ON DATABASE app TO member}, @owner), '', 'dropped, but still known');
my @member = (dbname => 'app', extra_params => [ '-U', 'member' ]);
is(sqlstate($node, q{SELECT pgtle.uninstall_extension('snowid')}, @member), '42501', 'a member may not remove it');
is(sqlstate($node, q{CREATE EXTENSION snowid VERSION '1.0'; SELECT snowid.create_shard(7)}, @member), '', 'but create it');
is($node->safe_psql('app', q{SELECT extowner::regrole FROM pg_extension WHERE extname = 'snowid'}), 'member', 'and it is his');
is(sqlstate($node, 'DROP SCHEMA insta7 CASCADE; DROP EXTENSION snowid CASCADE', @member), '', 'he drops it');
is(sqlstate($node, q{SELECT pgtle.uninstall_extension('snowid')}, @owner), '', 'the owner removes it');
is($node->safe_psql('app', q{SELECT count(*) FROM pg_namespace WHERE nspname ~ '^snowid'}), '0', 'and nothing is left');
is($node->safe_psql('app', q{SELECT count(*) FROM pgtle.available_extensions() WHERE name = 'snowid'}), '0', 'nor known');

$node->stop;
done_testing();
