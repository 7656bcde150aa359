# snowid-fleet status: what the registry and the servers have, also while one is down, while a shard
# moves, and for names that a page must not take for its own; as text, as JSON, and as a page that a
# browser shows.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use FleetTest;
use IPC::Run ();
use JSON::PP;
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my ($dir, $s1, $s2, $s3) = fleet_nodes(qw(s1 s2 s3));

fleet_ok([ 'status' ], 0, 'an empty fleet', qr/no servers and no shards; to begin, type: snowid-fleet add/);
my (undef, $empty) = fleet('status', '--json');
is_deeply(decode_json($empty)->{servers}, [], '... as JSON');

$s1->safe_psql('postgres', q{CALL snowid.create_shards(1, 4, ddl => 'CREATE TABLE t (id bigint PRIMARY KEY DEFAULT next_id(), pad text); INSERT INTO t (pad) SELECT repeat(''x'', 1000) FROM generate_series(1, 500); ANALYZE t')});
$s2->safe_psql('postgres', q{SELECT snowid.create_shard(9, '</script><b>"&'); CREATE TABLE "</script><b>""&".t (id bigint)});
fleet_ok([ 'add', $_->name, home_of($_) ], 0, 'add ' . $_->name) for $s1, $s2, $s3;
$_->poll_query_until('postgres', 'SELECT count(*) = 5 FROM snowid.shard_registry') or die 'no registry' for $s1, $s2, $s3;

my $said = fleet_ok([ 'status' ], 0, 'three servers', qr/^s1 +4 shards +\d+ kB +2000 rows .* open +registry 0 bytes behind$/m, qr/^s3 +0 shards/m);

# A move under way, one that has moved, a hung writer, and a server that is down.
moves_ok($s1, $s2, 1, [ '--stop-after', 'copied', '--registry', home_of($dir) ], 0, 'one is copied', qr/follows/);
moves_ok($s1, $s2, 2, [ '--registry', home_of($dir) ], 0, 'one has moved', qr/now lives at/);
$s3->stop;
$said = fleet_ok([ 'status' ], 1, 'at work', qr/^moving +shards 1 from s1 to s2: copied since .*, \d+ kB of \d+ kB/m, qr/^copy +of shards 2 at s1, closed since/m,
	qr/^s3 +0 shards  NOT REACHED: /m, qr/^slot +snowid_move_1_\w+ at s1 keeps /m, qr/^FAILED .*stale|^FAILED/m);
fleet_ok([ 'balance' ], 1, 'no plan without sizes', qr/s3 is not reached, so nobody knows how much it has/);
fleet_ok([ 'balance', '--by', 'shards', '--dry-run' ], 0, '... but by shards');
my (undef, $json) = fleet('status', '--json');
my $document = decode_json($json =~ s/^snowid-fleet: .*\n(\t.*\n)*//mgr);
is_deeply([ map { $_->{server} } @{ $document->{shards} } ], [ 's1', 's2', 's1', 's1', 's2' ], 'the shards of the registry');
is_deeply($document->{moves}[0]{shards}, [1], 'what moves');

# What it waits for.
my $holder = $s1->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE insta1.t IN ROW EXCLUSIVE MODE');
$s1->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_stat_activity WHERE state = 'idle in transaction' AND clock_timestamp() - xact_start > interval '1.1 s'}) or die;
fleet_ok([ 'status' ], 1, 'who waits', qr/^waiting +at s1: shard 1 is locked by process \d+ of \w+, idle in transaction, in a transaction of \d+ s$/m);
$holder->query_safe('ROLLBACK');
$holder->quit;

# As a page.
my $page = PostgreSQL::Test::Utils::tempdir() . '/fleet.html';
fleet_ok([ 'status', '--html', $page ], 1, 'a page');
my $text = slurp_file($page);
is(() = $text =~ m{</script>}g, 1, 'no name ends the script');
unlike($text, qr/(src|href)=|https?:/, 'nothing comes over the network');
my ($browser) = grep { -x } map { "$_/chromium" } split /:/, $ENV{PATH};
SKIP:
{
	skip 'chromium is not installed', 6 unless $browser;
	my $profile = PostgreSQL::Test::Utils::tempdir();
	my @run = ($browser, '--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', "--user-data-dir=$profile", '--virtual-time-budget=2000');
	local $ENV{HOME} = $profile;
	IPC::Run::run([ @run, '--dump-dom', "file://$page" ], '>', \my $dom, '2>', \my $errors, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	is(() = $dom =~ m{<div class="server">}g, 3, 'each server is shown') or diag $errors;
	is(() = $dom =~ m{<tr><td}g, 5, 'and each shard');
	like($dom, qr{<td class="">&lt;/script&gt;&lt;b&gt;"&amp;</td>}, 'a name is a text');
	like($dom, qr{<span>s1: shards 1</span><svg.*?<span>s2: copied}s, 'what moves, as an arrow');
	my ($bytes) = $document->{servers}[0]{bytes};
	like($dom, qr{<strong>s1</strong><span>3 shards, }, 'the figures are those of the registry');
	IPC::Run::run([ @run, '--window-size=420,1200', "--screenshot=$profile/narrow.png", "file://$page" ], '>', \my $out, '2>', \$errors, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	cmp_ok(-s "$profile/narrow.png" // 0, '>', 10_000, 'a picture of a narrow window');
	system 'cp', "$profile/narrow.png", $page, $ENV{SNOWID_KEEP} if $ENV{SNOWID_KEEP};
}

$_->stop for $dir, $s1, $s2;
done_testing();
