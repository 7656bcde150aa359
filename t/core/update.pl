# ALTER EXTENSION UPDATE: from each version that can be installed, a database
# with shards ends with the same objects as a fresh CREATE EXTENSION, and its
# shards go on above their last ids; and definitions that the library does not
# know are refused.
#
# Besides the scripts of the tree there is always one: this test writes a
# version "next", which replaces each function by itself and adds one.  It
# writes into a private copy of the installation, not into the server's own.
use strict;
use warnings;

use File::Copy;
use File::Path qw(make_path);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# A server finds its share directory from its own place, so a copied bin/ with
# links to the rest is an installation of its own.
my %dir = map { $_ => config($_) } qw(bindir sharedir pkglibdir libdir);
my $prefix = "$PostgreSQL::Test::Utils::tmp_check/installation";
make_path("$prefix$dir{bindir}");
copy_with_mode("$dir{bindir}/$_", "$prefix$dir{bindir}/$_") for qw(postgres initdb pg_ctl pg_config psql);
for my $linked ($dir{pkglibdir}, glob("$dir{sharedir}/*"))
{
	next if $linked eq "$dir{sharedir}/extension" || -e "$prefix$linked";
	make_path("$prefix$linked") && rmdir("$prefix$linked");
	symlink($linked, "$prefix$linked") or die "symlink $linked: $!";
}
my $extensions = "$prefix$dir{sharedir}/extension";
make_path($extensions);
copy($_, $extensions) or die "copy $_: $!" for glob("$dir{sharedir}/extension/{snowid,plpgsql}*");

my $control = slurp_file("$extensions/snowid.control");
my ($current) = $control =~ /^default_version = '(.*)'/m;
my $script = slurp_file("$extensions/snowid--$current.sql");

# The next version: all that can be replaced, and one more.
my $update = join("\n", $script =~ /^(CREATE (?:FUNCTION|PROCEDURE) .*?;\n)(?=\nCOMMENT ON)/gms);
$update =~ s/^CREATE (FUNCTION|PROCEDURE)/CREATE OR REPLACE $1/gm;
# A setting that is only there on some servers.
$update .= join '', $script =~ /^(DO \$\$\n(?:(?!^\$\$;).)*ALTER FUNCTION.*?^\$\$;\n)/gms;
my $added = "CREATE FUNCTION snowid.added() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';\n"
  . "COMMENT ON FUNCTION snowid.added() IS 'only in the next version';\n";
append_to_file("$extensions/snowid--$current--next.sql", $update . $added);
append_to_file("$extensions/snowid--next.sql", $script . $added);

$ENV{PATH} = "$prefix$dir{bindir}:$ENV{PATH}";
my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;

# What there is, as text that must be the same: each member, with all that a
# definition says.  A name that DROP has left behind would show, too.
my $objects = q(
SELECT pg_describe_object(classid, objid, 0), obj_description(objid, classid::regclass::name),
	CASE classid
		WHEN 'pg_proc'::regclass THEN
			(SELECT pg_get_functiondef(objid) || proacl::text FROM pg_proc WHERE oid = objid)
		WHEN 'pg_class'::regclass THEN
			(SELECT row(relkind, relowner::regrole, relacl, reloptions, relpersistence, relrowsecurity,
				CASE relkind
				WHEN 'v' THEN pg_get_viewdef(oid)
				WHEN 'S' THEN (SELECT s::text FROM (
					SELECT seqtypid, seqstart, seqincrement, seqmax, seqmin, seqcache, seqcycle
					FROM pg_sequence WHERE seqrelid = oid) s)
				END,
				(SELECT extcondition[array_position(extconfig, objid)] FROM pg_extension WHERE extname = 'snowid'),
				(SELECT array_agg(row(attname, format_type(atttypid, atttypmod), attnotnull, attacl,
						pg_get_expr(adbin, adrelid), col_description(attrelid, attnum))::text ORDER BY attname)
				 FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
				 WHERE attrelid = objid AND attnum > 0 AND NOT attisdropped),
				(SELECT array_agg(conname || pg_get_constraintdef(oid) ORDER BY conname)
				 FROM pg_constraint WHERE conrelid = objid),
				(SELECT array_agg(pg_get_indexdef(indexrelid) ORDER BY 1) FROM pg_index WHERE indrelid = objid),
				(SELECT array_agg(pg_get_triggerdef(oid) ORDER BY tgname) FROM pg_trigger WHERE tgrelid = objid)
				)::text
			 FROM pg_class WHERE oid = objid)
	END
FROM pg_depend
WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
	AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowid')
UNION ALL
SELECT 'schema', obj_description(oid, 'pg_namespace'), nspacl::text FROM pg_namespace WHERE nspname IN ('snowid', 'snowid_internal')
ORDER BY 1);

# A fresh installation of a version.
my %fresh;
for my $version ($current, 'next')
{
	my $db = "fresh_$version" =~ s/\W/_/gr;
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db, "CREATE EXTENSION snowid VERSION '$version'");
	$fresh{$version} = $node->safe_psql($db, $objects);
}
isnt($fresh{next}, $fresh{$current}, 'the comparison sees a function more');

my @sources = split /\n/, $node->safe_psql('postgres', q(
SELECT source FROM pg_extension_update_paths('snowid')
WHERE path IS NOT NULL AND target = 'next'
  AND source IN (SELECT version FROM pg_available_extension_versions WHERE name = 'snowid')
ORDER BY 1));
my @installable = split /\n/, $node->safe_psql('postgres', q(
SELECT version FROM pg_available_extension_versions WHERE name = 'snowid' AND version <> 'next' ORDER BY 1));
is("@sources", "@installable", 'there is a way from every version');

for my $source (@sources)
{
	my $db = "from_$source" =~ s/\W/_/gr;
	my $insert = 'INSERT INTO insta5.photos DEFAULT VALUES; INSERT INTO here DEFAULT VALUES;';

	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql('postgres', "ALTER DATABASE $db SET snowid.shard = 7");
	$node->safe_psql($db, qq(
CREATE EXTENSION snowid VERSION '$source';
SELECT snowid.create_shard(5);
CREATE TABLE insta5.photos (id bigint PRIMARY KEY DEFAULT insta5.next_id(), n int GENERATED ALWAYS AS IDENTITY);
CREATE TABLE here (id bigint PRIMARY KEY DEFAULT snowid.next_id(), n int GENERATED ALWAYS AS IDENTITY);
SELECT snowid.advance(seq, snowid.make_id(clock_timestamp() + interval '1 hour', 5, 0))
FROM unnest('{insta5.id_seq, snowid.id_seq}'::regclass[]) AS seq;
$insert));

	# First the tree's own scripts, all the way; then the one made here.
	for my $target ($current, 'next')
	{
		$node->safe_psql($db, "ALTER EXTENSION snowid UPDATE TO '$target'; $insert");
		is($node->safe_psql($db, $objects), $fresh{$target}, "$source to $target: the same objects as a fresh one");
	}
	for my $table ('insta5.photos', 'here')
	{
		is($node->safe_psql($db, "SELECT string_agg(n::text, ' ' ORDER BY id) FROM $table"),
			'1 2 3', "$source: ids of $table go on above");
	}
	is($node->safe_psql($db, 'SELECT shard, schema, lives FROM snowid.shards'), '5|insta5|here', "$source: the registry is there");
}

# Definitions that are newer than the library.  If one names a C function that the
# library lacks, the server refuses the update, and nothing changes.  If one has
# arguments that the library does not know, each call is refused.
my $db = "from_$current" =~ s/\W/_/gr;
my ($ret, $stdout, $stderr);
append_to_file("$extensions/snowid--next--newer.sql", q(
CREATE FUNCTION snowid.only_newer() RETURNS int LANGUAGE c AS 'MODULE_PATHNAME', 'snowid_only_newer';
));
$node->psql($db, q(ALTER EXTENSION snowid UPDATE TO 'newer'), stderr => \$stderr);
like($stderr, qr/could not find function "snowid_only_newer" in file/, 'a function that the library has not');
is($node->safe_psql($db, $objects), $fresh{next}, 'the update has changed nothing');

for my $call (
	[ 'next_id', 'int, regclass, timestamptz, bool', q(5, 'insta5.id_seq', now(), true) ],
	[ 'next_id', 'int', '5' ],
	[ 'id_timestamp', 'bigint, timestamptz, bool', '1, now(), true' ])
{
	my ($name, $types, $arguments) = @$call;
	$node->safe_psql($db, qq(
CREATE FUNCTION public.$name($types) RETURNS bigint LANGUAGE c AS '\$libdir/snowid', 'snowid_$name'));
	$node->psql($db, "SELECT public.$name($arguments)", stderr => \$stderr,
		extra_params => [ '-v', 'VERBOSITY=verbose' ]);
	like($stderr, qr/ERROR:  0A000: the library of snowid does not know function public\.$name\(/,
		"$name($types) is refused");
}

$node->stop;
done_testing();

sub config
{
	my ($what) = @_;
	my ($stdout) = run_command([ 'pg_config', "--$what" ]);
	return $stdout;
}

sub copy_with_mode
{
	my ($from, $to) = @_;
	copy($from, $to) or die "copy $from: $!";
	chmod(0755, $to);
}
