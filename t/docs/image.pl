# The images of "make image", without Kubernetes: each blob is what its name says; the
# programs move a shard with the libraries that are in theirs, and no others; and PostgreSQL
# 18 finds the extension in the directories of the other, where CloudNativePG mounts it.
use strict;
use warnings;

use Cwd qw(abs_path);
use Digest::SHA qw(sha256_hex);
use FindBin;
use JSON::PP;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(stat);

# Make's own variables are those of the make that runs this test.
delete @ENV{qw(MAKEFLAGS MAKELEVEL MFLAGS)};

my $top = abs_path("$FindBin::RealBin/../..");
my $tmp = PostgreSQL::Test::Utils::tempdir();
my @make = ('make', '-s', '-C', "$tmp/tree", 'PG_CONFIG=' . abs_path(`which pg_config` =~ s/\n//r), 'with_llvm=no');

# What is there was built for another version.
system_or_bail('sh', '-c', "mkdir '$tmp/tree' && tar -C '$top' --exclude-vcs --exclude=node_modules --exclude=tmp_check -cf - . | tar -C '$tmp/tree' -xf -");
command_ok([ @make, '-j2', 'all' ], 'all is built');
my $built = (stat "$tmp/tree/snowid.so")[9];
unlink "$tmp/tree/.built-for";
append_to_file("$tmp/tree/.built-for", "PostgreSQL 14.0\n");
command_ok([ @make, '-j2', 'image', "IMAGE=$tmp/image" ], 'the images are made');
cmp_ok((stat "$tmp/tree/snowid.so")[9], '>', $built, 'of what has been built for this version');
command_fails_like([ 'make', '-s', '-C', "$tmp/tree", 'image', "PG_CONFIG=$tmp/pg_config", 'PG=1' ], qr/install postgresql-server-dev-1\b/, 'without a server to build for');
my %made = map { $_ => slurp_file("$tmp/image/$_/index.json") } qw(extension programs);
unpack_image($_) for sort keys %made;
command_ok([ @make, 'image', "IMAGE=$tmp/image" ], 'they are made again');
is(slurp_file("$tmp/image/$_/index.json"), $made{$_}, "$_ is the same") for sort keys %made;

# A layout in which everything is there, once; and its files, in a directory.
sub unpack_image
{
	my ($name) = @_;
	my $layout = "$tmp/image/$name";
	my %size = map { m{([^/]*)$} => -s } glob "$layout/blobs/sha256/*";
	my @wrong = grep { sha256_hex(slurp_file("$layout/blobs/sha256/$_")) ne $_ } keys %size;
	is("@wrong", '', "$name: each blob has its digest as its name");

	my $blob = sub {
		my ($of) = @_;
		my ($digest) = $of->{digest} =~ /^sha256:(.*)/;
		is(delete $size{$digest}, $of->{size}, "$name: $of->{mediaType} is there");
		return "$layout/blobs/sha256/$digest";
	};
	my $index = decode_json(slurp_file("$layout/index.json"));
	my $manifest = decode_json(slurp_file($blob->($index->{manifests}[0])));
	my $config = decode_json(slurp_file($blob->($manifest->{config})));
	my $layer = $blob->($manifest->{layers}[0]);
	is(scalar(keys %size), 0, "$name: nothing else is");
	is_deeply($config->{rootfs}{diff_ids}, [ 'sha256:' . sha256_hex(scalar `gzip -dc '$layer'`) ], "$name: the configuration knows the layer");
	mkdir "$tmp/$name";
	command_ok([ 'tar', '-C', "$tmp/$name", '-xpzf', $layer ], "$name is unpacked");
	ok(-s "$tmp/$name/licenses/snowid/LICENSE", "$name: the licence is there");
	return;
}

my $node = move_node('main');
my $other = move_node('other');
$_->append_conf('postgresql.conf', "listen_addresses = '127.0.0.1'") for $node, $other;

# Each program, by the image's own loader, says what it has loaded.
for my $program (qw(snowid-move snowid-each snowid-fleet pg_dump pg_restore))
{
	my ($loader) = glob "$tmp/programs/lib*/ld-linux-*";
	my $directories = join(':', grep { -d } map { "$tmp/programs$_" } `find '$tmp/programs' -name '*.so*' -printf '/%P\n'` =~ m{^(/.*)/}mg);
	my ($list) = run_command([ $loader, '--inhibit-cache', '--library-path', $directories, '--list', "$tmp/programs/usr/bin/$program" ]);
	my @others = grep { !m{=> \Q$tmp\E/|^\s*(/.*/ld-linux-|linux-vdso)} } split /\n/, $list;
	is("@others", '', "$program loads no library from elsewhere");
}

SKIP:
{
	# As a container: with a root directory of its own, in which are the kernel's.
	my @in_image = ('unshare', '--map-root-user', '--mount', 'sh', '-euc', q{
root=$1; shift; mount --rbind /proc "$root/proc"; mount --rbind /dev "$root/dev"; exec chroot "$root" "$@"}, 'sh', "$tmp/programs");
	mkdir "$tmp/programs/$_" for qw(proc dev);
	my ($can, $why) = run_command([ @in_image, 'pg_dump', '--version' ]);
	skip "no user may have a root directory here: $why", 1 if $why =~ /^(unshare|mount|chroot): .*(not permitted|denied)/m;
	$_->start for $node, $other;
	make_shard($node, 5, 'insta5');
	$other->safe_psql('postgres', 'CREATE EXTENSION snowid');
	local $MoveTest::host = '127.0.0.1';
	my ($said, $err) = run_command([ @in_image, map { /port=/ ? "$_ user=" . getpwuid($<) : $_ } move_command($node, $other, 5) ]);
	is(($other->psql('postgres', 'SELECT count(*) FROM insta5.photos'))[1], 4000, 'the programs of the image move a shard') or diag($said, $err);
	$_->stop for $node, $other;
}

SKIP:
{
	skip 'extension_control_path is of PostgreSQL 18', 1 if $node->pg_version < 18;

	# Not what the server has of its own.
	my $volume = "$tmp/extension";
	my $control = slurp_file("$volume/share/extension/snowid.control") =~ s/^comment = .*/comment = 'of the image'/mr;
	unlink "$volume/share/extension/snowid.control";
	append_to_file("$volume/share/extension/snowid.control", $control);
	$node->append_conf('postgresql.conf', qq{
extension_control_path = '$volume/share'
dynamic_library_path = '$volume/lib:\$libdir'
fsync = off
});
	$node->start;
	is($node->safe_psql('postgres', 'SELECT name, comment FROM pg_available_extensions ORDER BY 1'), 'snowid|of the image',
		'the server finds the extension, and only that');
	$node->safe_psql('postgres', 'CREATE DATABASE app');
	$node->safe_psql('app', q(CREATE EXTENSION snowid VERSION '1.0'));
	my $session = $node->background_psql('app');
	$session->query_safe('SELECT snowid.create_shard(5)');
	my ($pid) = $session->query_safe('SELECT pg_backend_pid() FROM insta5.next_id()') =~ /(\d+)/;
	is(join(' ', do { my %seen; grep { !$seen{$_}++ } slurp_file("/proc/$pid/maps") =~ m{(/\S*/snowid\.so)$}mg }), "$volume/lib/snowid.so", 'its library is the one that is loaded');
	$session->quit;
	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port);
	my ($said, $err) = run_command([ @make, 'installcheck', 'ISOLATION=', 'TAP_TESTS=', "EXTRA_REGRESS_OPTS=--outputdir=$tmp" ]);
	like($said, qr/All \d+ tests passed/, 'the regression tests pass') or diag($said, $err);
	$node->stop;
}

# What the example says is what is made.
for my $manifest (map { slurp_file("$top/examples/cloudnativepg/$_.yaml") } qw(cluster database))
{
	like($manifest, qr/\bsnowid:1\.0\.0-18$|^ +version: '1\.0'$/m, 'the manifest has the version');
}
like($made{extension}, qr/"org.opencontainers.image.ref.name":"1\.0\.0-${\ $node->pg_version->major}"/, 'as the image has');

done_testing();
