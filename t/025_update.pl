# ALTER EXTENSION UPDATE: from each version that has an update script, a
# database with shards ends with the same objects as a fresh CREATE EXTENSION,
# and its shards go on above their last ids.
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
my $added = "CREATE FUNCTION snowid.added() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';\n"
  . "COMMENT ON FUNCTION snowid.added() IS 'only in the next version';\n";
append_to_file("$extensions/snowid--$current--next.sql", $update . $added);
append_to_file("$extensions/snowid--next.sql", $script . $added);

my $node = PostgreSQL::Test::Cluster->new('main', install_path => "$prefix" . ($dir{bindir} =~ s{/bin$}{}r));
$node->init;
$node->start;

# What there is, as text that must be the same.
my $objects = q(
SELECT pg_describe_object(d.classid, d.objid, 0), p.provolatile, p.proisstrict, p.proparallel, p.proconfig, p.prosrc,
	obj_description(d.objid, d.classid::regclass::name), c.relacl::text, e.extconfig IS NOT NULL
FROM pg_extension e
JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
WHERE e.extname = 'snowid' ORDER BY 1);
my $paths = q(
SELECT source FROM pg_extension_update_paths('snowid')
WHERE path IS NOT NULL AND target = 'next'
  AND source IN (SELECT version FROM pg_available_extension_versions WHERE name = 'snowid')
ORDER BY 1);

$node->safe_psql('postgres', 'CREATE DATABASE fresh');
$node->safe_psql('fresh', q(CREATE EXTENSION snowid VERSION 'next'));
my $wanted = $node->safe_psql('fresh', $objects);
my @sources = split /\n/, $node->safe_psql('postgres', $paths);
ok(scalar(grep { $_ eq $current } @sources), "there is a way from $current");

for my $source (@sources)
{
	my $db = "from_$source" =~ s/\W/_/gr;
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db, qq(
CREATE EXTENSION snowid VERSION '$source';
SELECT snowid.create_shard(5);
CREATE TABLE insta5.photos (id bigint PRIMARY KEY DEFAULT insta5.next_id(), n int);
SELECT snowid.advance('insta5.id_seq', snowid.make_id(clock_timestamp() + interval '1 hour', 5, 0));
INSERT INTO insta5.photos (n) VALUES (1);
ALTER EXTENSION snowid UPDATE TO 'next';
INSERT INTO insta5.photos (n) VALUES (2);
));
	is($node->safe_psql($db, $objects), $wanted, "$source: the same objects as a fresh one");
	is( $node->safe_psql($db, 'SELECT min(id) FILTER (WHERE n = 2) > min(id) FILTER (WHERE n = 1) FROM insta5.photos'),
		't', "$source: ids go on above");
	is($node->safe_psql($db, 'SELECT shard, schema, lives FROM snowid.shards'), '5|insta5|here', "$source: the registry is there");
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
