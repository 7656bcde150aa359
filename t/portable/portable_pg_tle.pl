# As an extension of pg_tle, which needs no file of ours on the server: made,
# updated, dumped, restored and removed as any other, by the owner of a database.
#
# pg_tle is not in Debian.  Where the C edition is installed, its files have the
# name; so this needs a server without them: PG_TLE_CONFIG is its pg_config.
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
CREATE ROLE owner LOGIN;
CREATE ROLE planter LOGIN;
CREATE DATABASE app OWNER owner;});
$node->safe_psql('app', 'CREATE EXTENSION pg_tle; GRANT pgtle_admin TO owner;');
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

my $dump = $node->basedir . '/app.dump';
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, 'app' ], 'a dump');
$node->safe_psql('postgres', 'CREATE DATABASE copy OWNER owner');
$node->command_ok([ 'pg_restore', '-d', 'copy', '-e', $dump ], 'restored, with pg_tle and the extension');
is($node->safe_psql('copy', q{
SELECT (SELECT max(id) FROM insta5.photos) < insta5.next_id(), (SELECT count(*) FROM snowid.shards)}), 't|2',
	'ids go on above those of the dump');
is(sqlstate($node, q{DROP EXTENSION snowid CASCADE; SELECT pgtle.uninstall_extension('snowid')}, @owner), '', 'it is dropped as any other');
is($node->safe_psql('app', q{SELECT count(*) FROM pg_namespace WHERE nspname ~ '^snowid'}), '0', 'and nothing is left');

$node->stop;
done_testing();
