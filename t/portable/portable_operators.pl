# No operator, function or type that somebody has planted in a search path becomes part of
# either edition.  The SQL bodies, views and CHECKs are parsed while the script runs, also
# where that has public in its path, as pg_tle's do, and extensions whose control file names
# no schema: what they depend on says what they have become.
#
# In public is each operator that PostgreSQL does not have for those very types.
#
# PL/pgSQL resolves names when it runs.  So wherever a function has its caller's path, or a
# script's, its statements must name the schema of each operator, also those of IN, BETWEEN
# and CASE: t/lib/points.c reads them all.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $points = points_library();
my $node = new_node('operators');
$node->append_conf('postgresql.conf', "session_preload_libraries = '$points'");
$node->start;
my $plant = q{
CREATE FUNCTION plant(place name) RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog AS $plant$
DECLARE
	types CONSTANT regtype[] := '{int2,int4,int8,float8,numeric,text,name,oid,regclass,timestamptz,timestamp,boolean,interval,"char"}';
	pair record;
	planted bigint := 0;
BEGIN
	FOR pair IN
		SELECT l, r, o, result FROM unnest(types) l, unnest(types) r, LATERAL (
			SELECT oprname AS o, (coalesce(min(oprresult::regtype::text) FILTER (WHERE l = oprleft AND l = oprright),
				min(oprresult::regtype::text) FILTER (WHERE l = oprleft OR r = oprright)))::regtype AS result
			FROM pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprleft <> 0 AND oprright <> 0 GROUP BY oprname
			HAVING count(*) FILTER (WHERE oprleft = l AND oprright = r) = 0 AND length(oprname) < 3) u
		WHERE result::oid <> ALL (ARRAY(SELECT oid FROM pg_type WHERE typtype = 'p')) AND result <> 'void'::regtype
	LOOP
		EXECUTE format('CREATE OR REPLACE FUNCTION %I.%I(%s, %s) RETURNS %s LANGUAGE plpgsql AS $$BEGIN RAISE ''planted''; END$$',
			place, pair.l || ' ' || pair.r || ' ' || pair.result, pair.l, pair.r, pair.result);
		EXECUTE format('CREATE OPERATOR %I.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = %I.%I)',
			place, pair.o, pair.l, pair.r, place, pair.l || ' ' || pair.r || ' ' || pair.result);
		planted := planted + 1;
	END LOOP;
	RETURN planted;
END $plant$;
SELECT plant('public') > 1000};

# The scripts, as an extension's are run: all in one transaction, with a path for it.
my %scripts = (
	'the extension' => slurp_file("$FindBin::RealBin/../../snowid--1.0.sql") =~ s/^\\echo.*//mr =~ s/MODULE_PATHNAME/\$libdir\/snowid/gr,
	'the portable edition' => slurp_file(portable_file('sql')),
	'that of pg_tle' => slurp_file(portable_file('pg_tle')) =~ s/.*\$_pgtle_\$(.*)\$_pgtle_\$.*/$1/sr);
for my $name (sort keys %scripts)
{
	my $script = $scripts{$name} =~ s/\@extowner\@, //gr =~ s/^SELECT pg_catalog.pg_extension_config_dump.*//mgr;
	$node->safe_psql('postgres', 'CREATE DATABASE planted');
	is($node->safe_psql('planted', $plant), 't', 'each operator is planted');
	is($node->safe_psql('planted', "BEGIN; SET LOCAL search_path = public, pg_temp; SET LOCAL client_min_messages = warning; $script; COMMIT;" . q{
SELECT count(*) FROM snowid.shards}) =~ s/.*\n//sr, '0', "$name is installed");
	is($node->safe_psql('planted', q{
SET search_path = pg_catalog;
SELECT pg_describe_object(d.classid, d.objid, 0), pg_describe_object(d.refclassid, d.refobjid, 0)
FROM pg_depend d, pg_identify_object(d.refclassid, d.refobjid, 0) r, pg_identify_object(d.classid, d.objid, 0) o
WHERE r.schema = 'public' AND o.schema IS DISTINCT FROM 'public'}), '', "$name: nothing has become part of it");
	cmp_ok($node->safe_psql('planted', q{
SET search_path = pg_catalog;
SELECT count(*) FROM pg_depend d JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
WHERE p.pronamespace::regnamespace::text ~ '^snowid' AND p.prosqlbody IS NOT NULL AND d.refclassid = 'pg_proc'::regclass}), '>', 10,
		'which dependencies would show');
	is($node->safe_psql('planted', q{SELECT snowid.min_id('2026-01-01'), snowid.id_timestamp(1)}), '3800086217995845632|2011-08-24 21:07:01.721+00', 'it works');
	names_ok($name);
	$node->safe_psql('postgres', 'DROP DATABASE planted');
}

# Are there statements that find something by a path that is not our own?
sub names_ok
{
	my ($name) = @_;
	my %source = map { /^(.*?)\|(.*)/s } split /\0/, join "\0", map { pack 'H*', $_ } split /\n/, $node->safe_psql('planted', q{
SET search_path = pg_catalog;
SELECT encode(convert_to(concat(p.oid::regprocedure, '|', (p.proconfig::text ~ 'search_path') IS TRUE, p.prosrc), 'UTF8'), 'hex')
FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
WHERE p.pronamespace::regnamespace::text ~ '^snowid' AND l.lanname = 'plpgsql'
  AND ((p.proconfig::text ~ 'search_path') IS NOT TRUE OR p.prosrc ~ 'search_path')}) =~ s/\n(?!\w)//gr;
	my (undef, undef, $said) = $node->psql('planted', q{
SET search_path = pg_catalog;
SET points.names = on;
SET snowid.shard = 5;
SELECT snowid.next_id();
CALL snowid.create_shards(6, 6, ddl => 'CREATE TABLE photos (id pg_catalog.int8)');
CALL snowid.for_each_shard('SELECT');
} . snippet('old', 'table_id_seq', 7) . q{
SELECT snowid.adopt_shard(7, 'old');}, on_error_stop => 0);
	my %read = map { $_ => 1 } $said =~ /WARNING:  read: (.*)/g;
	is(join(' ', grep { !$read{$_} } sort keys %source), '', "$name: all functions are read that have the path of others: " . keys %source);

	my @by_path;
	for my $function (sort keys %source)
	{
		my ($is_ours, @lines) = split /\n/, $source{$function};
		my @ours = own_path($is_ours eq 't', @lines);
		push @by_path, map { "$function $_" }
		  grep { /^line (\d+)/ && !$ours[ $1 - 2 ] } $said =~ /WARNING:  by path: \Q$function\E (.*)/g;
	}
	is("@by_path[0 .. ($#by_path > 9 ? 9 : $#by_path)]", '', "$name: and find nothing by it");
	return;
}

# Is the path our own, when a statement at a line begins?
sub own_path
{
	my ($is_ours, @lines) = @_;
	my (@ours, @before, %begins);

	for (@lines)
	{
		push @ours, $is_ours;
		push @before, $is_ours if /^\s*IF\b/;
		$is_ours = pop(@before) && $is_ours if /^\s*END IF;/;
		$is_ours = 0 if /COMMIT;|^\tLOOP$|run_in_shard\(/;
		$is_ours = /'pg_catalog, pg_temp'/ if /set_config\('search_path'/;
		# An error undoes what was set since the block began.
		$begins{$1} = $is_ours if /^(\t*)BEGIN$/;
		$is_ours = $begins{$1} if /^(\t*)EXCEPTION WHEN/;
	}
	return @ours;
}
$node->stop;
done_testing();
