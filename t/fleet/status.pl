# snowid-fleet status: what the registry and the servers have, also while one is down, while a shard
# moves, and for names that a page must not take for its own; as text, as JSON, and as a page that a
# browser shows.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use Encode 'decode';
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
IPC::Run::run([ 'snowid-fleet', 'status' ], '>&', \my $lacking);
like($lacking, qr/error: --registry is needed\n.*hint: Type the same command with --registry=CONNSTR/, 'what to type where the directory is not said');
is_deeply(decode_json($empty)->{servers}, [], '... as JSON');

$s1->safe_psql('postgres', q{CALL snowid.create_shards(1, 4, ddl => 'CREATE TABLE t (id bigint PRIMARY KEY DEFAULT next_id(), pad text); INSERT INTO t (pad) SELECT repeat(''x'', 1000) FROM generate_series(1, 500); ANALYZE t')});
$s2->safe_psql('postgres', q{SELECT snowid.create_shard(9, '</script><b>"&'); CREATE TABLE "</script><b>""&".t (id bigint)});
fleet_ok([ 'add', $_->name, home_of($_) ], 0, 'add ' . $_->name) for $s1, $s2, $s3;
fleet_ok([ 'add', 's2', '--note', 'rack <b>4</b> & "5"' ], 0, 'a note');
$_->poll_query_until('postgres', 'SELECT count(*) = 5 FROM snowid.shard_registry') or die 'no registry' for $s1, $s2, $s3;

$dir->wait_for_catchup("snowid_registry_$_", 'replay', $dir->lsn('insert')) for qw(s1 s2 s3);
my $said = fleet_ok([ 'status' ], 0, 'three servers', qr/^s1 +4 shards +\d+ kB +2000 rows .* open +registry 0 bytes behind$/m, qr{^s2 .* behind  \(rack <b>4</b> & "5"\)$}m, qr/^s3 +0 shards/m);

# A move under way, one that has moved, a hung writer, and a server that is down.
moves_ok($s1, $s2, 1, [ '--stop-after', 'copied', '--registry', home_of($dir) ], 0, 'one is copied', qr/follows/);
moves_ok($s1, $s2, 2, [ '--registry', home_of($dir) ], 0, 'one has moved', qr/now lives at/);
$s3->stop;
$said = fleet_ok([ 'status' ], 1, 'at work', qr/^moving +shards 1 from s1 to s2: copied since .*, \d+ kB of \d+ kB, about \d+ s left$/m, qr/^copy +of shards 2 at s1, closed since/m,
	qr/^s3 +0 shards  NO ANSWER: /m, qr/^slot +snowid_move_1_\w+ at s1 keeps /m, qr/^FAILED no program goes on with the move of shards 1: copied since .* type: snowid-move move --shard 1 --from 's1' --to 's2' --registry '/m, qr/^FAILED the copy of shard 2 at .* can go type: snowid-move finish --shard 2 /m);
fleet_ok([ 'balance' ], 1, 'no plan without sizes', qr/s3 gives no answer, so nobody knows how much it has/);
fleet_ok([ 'balance', '--by', 'shards', '--dry-run' ], 1, '... nor by shards', qr/s3 gives no answer/);
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

# What audit finds is told; also why it has found nothing.
my $programs = PostgreSQL::Test::Utils::tempdir();
append_to_file("$programs/snowid-move", "#!/bin/sh\necho 'snowid-move: error: no memory' >&2\nexit 2\n");
chmod 0755, "$programs/snowid-move";
my ($program) = grep { -x } map { "$_/snowid-fleet" } split /:/, $ENV{PATH};
system 'cp', $program, $programs;
{
	local $ENV{PATH} = "$programs:$ENV{PATH}";
	IPC::Run::run([ "$programs/snowid-fleet", 'status', '--registry', home_of($dir) ], '>', \my $out, '2>', \my $err);
	like($out, qr/^snowid-move: error: no memory *$/m, 'an audit that fails') or diag $err;
	append_to_file("$programs/kills", "#!/bin/sh\nkill -TERM \$\$\n");
	chmod 0755, "$programs/kills";
	rename "$programs/kills", "$programs/snowid-move";
	IPC::Run::run([ "$programs/snowid-fleet", 'status', '--registry', home_of($dir) ], '>', \$out, '2>', \$err);
	like($out, qr/^FAILED audit was ended by signal 15; type: snowid-move audit --registry '/m, 'an audit that is killed') or diag $err;
}

# With a period there are inserts a second.
fleet_ok([ 'status', '--period', '0.1s' ], 1, 'a period', qr{^s1 .* rows +0/s  open}m);
like($said, qr{^s1 .* rows +-/s  open}m, '... and without');

# As a page.
my $page = PostgreSQL::Test::Utils::tempdir() . '/fleet.html';
fleet_ok([ 'status', '--html', $page ], 1, 'a page');
fleet_ok([ 'status', '--html', '/dev/full' ], 2, 'a full disk', qr{could not write "/dev/full": No space left on device});
my $text = slurp_file($page);
IPC::Run::run([ 'sh', '-c', 'trap "" 25; ulimit -f 1; exec "$@"', 'sh', fleet_command('status', '--html', $page) ], '>&', \my $why);
is($? >> 8, 2, 'a disk that fills') or diag $why;
is(slurp_file($page), $text, '... leaves the old page');
is_deeply([ glob "$page?*" ], [], '... and nothing beside it');

# It keeps its mode, also behind a symbolic link, which stays; and what another one leads to is not touched.
my $pages = PostgreSQL::Test::Utils::tempdir();
append_to_file($_, 'old') for "$pages/page", "$pages/other";
chmod 0604, "$pages/page";
symlink 'page', "$pages/link";
symlink 'other', "$pages/page.new";
my $umask = umask 077;
fleet_ok([ 'status', '--html', "$pages/link" ], 1, 'a link to a page');
umask $umask;
like(slurp_file("$pages/page"), qr{</html>}, '... is written there');
is(readlink "$pages/link", 'page', '... and stays');
is(sprintf('%o', (stat "$pages/page")[2] & oct 7777), '604', '... with its mode');
is(slurp_file("$pages/other"), 'old', 'what was planted leads nowhere');
truncate "$pages/page", 0;
chmod 0500, $pages;
my ($code) = fleet('status', '--html', "$pages/page");
chmod 0700, $pages;
is($code, 1, 'a directory that cannot be written');
like(slurp_file("$pages/page"), qr{</html>}, '... has a page that can');

is(() = $text =~ m{</script>}g, 1, 'no name ends the script');
unlike($text, qr/(src|href)=|https?:/, 'nothing comes over the network');
my ($browser) = grep { -x } map { "$_/chromium" } split /:/, $ENV{PATH};
SKIP:
{
	skip 'chromium is not installed', 1 unless $browser;
	$document = decode_json($text =~ /^const fleet = (.*);$/m);
	my $dom = in_browser($page, '--dump-dom');
	my @heads = $dom =~ m{<strong>(s\d)</strong><span>(.*?)</span>}g;
	is_deeply(\@heads, [ map { ($_->{name}, "$_->{shards} shards, " . size($_->{bytes}) . ', ' . count($_->{rows}) . ' rows') } @{ $document->{servers} } ],
		'the figures are those of the registry');
	my @rows = map { [ m{<td[^>]*>(.*?)</td>}g ] } $dom =~ m{<tr>(<td.*?)</tr>}g;
	is_deeply([ map { "@$_[0, 3, 5, 6]" } @rows ],
		[ map { join ' ', $_->{shard}, $_->{server}, size($_->{bytes}), count($_->{rows}) } sort { $b->{bytes} <=> $a->{bytes} || $a->{shard} <=> $b->{shard} } @{ $document->{shards} } ],
		'and each shard, the largest first');
	like($dom, qr{<strong>s2</strong><span>[^<]*</span><span class="soft">open, [^<]*rack &lt;b&gt;4&lt;/b&gt; &amp; "5"</span>}, 'a note, as a text');
	unlike($dom =~ s{.*<strong>s2}{}sr =~ s{.*<strong>s3}{<strong>s3}sr =~ s{</header>.*}{}sr, qr{rack}, '... of that server alone');
	like($dom, qr{<td class="">&lt;/script&gt;&lt;b&gt;"&amp;</td>}, 'a name is a text');
	like($dom, qr{<span>s1: shards 1</span><svg.*?<span>s2: copied}s, 'what moves, as an arrow');
	like($dom, qr{<p class="bad">FAILED }, 'what audit finds');

	# A click sorts the table; once more turns it.
	my $click = q{const shards = () => { document.querySelector('th button').click(); return [...document.querySelectorAll('#shards tbody td:first-child')].map(e => e.textContent).join(' '); };
		document.title = shards() + ', ' + shards();};
	like(in_browser(changed_page($page, $click), '--dump-dom'), qr{<title>9 4 3 2 1, 1 2 3 4 9</title>}, 'sorted by shard');

	# Many shards: a bar is as long as its server's part, each shard has a part of it, none is cut off.
	my %server = (waits => [], slots => []);
	my @many = map { { shard => $_, schema => "insta$_", server => $_ < 3000 ? 's1' : 's2', lives => 'here', bytes => 1e9 + $_ * 1e5, inserts => $_ % 7 } } 0 .. 3999;
	my %large = (at => 'now', moves => [], copies => [], findings => [], shards => \@many, servers => [ map { my $name = $_; my $all = 0; $all += $_->{bytes} for grep { $_->{server} eq $name } @many;
		+{ %server, name => $name, shards => 1000, bytes => $all } } 's1', 's2' ]);
	my $measure = q{document.title = [...document.querySelectorAll('.bar')].map(b => { const p = [...b.children].map(i => i.getBoundingClientRect());
		const all = b.getBoundingClientRect(); return [p.length, Math.round(100 * (p.at(-1).right - p[0].left) / all.width), p.every((r, i) => r.width > 0 && (i === 0 || Math.abs(r.left - p[i - 1].right) < 0.1))].join(' '); }).join(', ');};
	my $share = sprintf '%.0f', 100 * $large{servers}[1]{bytes} / $large{servers}[0]{bytes};
	like(in_browser(changed_page($page, $measure, \%large), '--dump-dom'), qr{<title>3000 100 true, 1000 $share true</title>}, 'bars of thousands of shards');

	# Hot ones are dark: the more inserts, the darker, from light to dark; without inserts all are alike.
	my $colours = q{const light = i => { const [r, g, b] = getComputedStyle(i).backgroundColor.match(/\d+/g).map(Number); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
		const hot = {}; for (const i of document.querySelectorAll('.bar i')) (hot[(i.title.match(/(\d+) inserts/) || [0, 0])[1]] ||= new Set()).add(light(i));
		const all = Object.keys(hot).map(Number).sort((a, b) => a - b).map(n => [...hot[n]]);
		document.title = [all.length, all.every((l, n) => l.length === 1 && (n === 0 || l[0] < all[n - 1][0])), all[0][0] > 170, all.at(-1)[0] < 60].join(' ');};
	like(in_browser(changed_page($page, $colours, \%large), '--dump-dom'), qr{<title>7 true true true</title>}, 'hot ones are dark');
	like(in_browser(changed_page($page, $colours), '--dump-dom'), qr{<title>1 true true false</title>}, '... and without inserts none is');

	# In a narrow window nothing but the table is wider than it; in dark mode it is dark.
	my $look = q{document.title = [matchMedia('(prefers-color-scheme: dark)').matches, getComputedStyle(document.body).backgroundColor, document.documentElement.scrollWidth <= innerWidth].join(' ');};
	like(in_browser(changed_page($page, $look), '--dump-dom', '--window-size=420,1200'), qr{<title>false rgb\(255, 255, 255\) true</title>}, 'light, and narrow');
	like(in_browser(changed_page($page, $look), '--dump-dom', '--blink-settings=preferredColorScheme=0'), qr{<title>true rgb\(18, 24, 31\) true</title>}, 'dark');
	for my $mode ('light', 'dark')
	{
		my $picture = "$programs/$mode.png";
		in_browser($page, '--window-size=420,1200', "--screenshot=$picture", $mode eq 'dark' ? '--blink-settings=preferredColorScheme=0' : ());
		cmp_ok(-s $picture // 0, '>', 10_000, "a picture, $mode");
		system 'cp', $picture, $page, $ENV{SNOWID_KEEP} if $ENV{SNOWID_KEEP};
	}
}

$_->stop for $dir, $s1, $s2;
done_testing();

# What a browser makes of a page.
sub in_browser
{
	my ($file, @options) = @_;
	my $profile = PostgreSQL::Test::Utils::tempdir();
	local $ENV{HOME} = $profile;

	IPC::Run::run([ $browser, '--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', "--user-data-dir=$profile", '--virtual-time-budget=2000', @options, "file://$file" ],
		'>', \my $shown, '2>', \my $errors, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return decode('UTF-8', $shown);
}

# A copy of the page that does something more, with other figures if they are given.
sub changed_page
{
	my ($file, $script, $figures) = @_;
	my $html = slurp_file($file);
	my $copy = PostgreSQL::Test::Utils::tempdir() . '/copy.html';

	if ($figures)
	{
		my $json = encode_json($figures);
		$html =~ s/^const fleet = .*;$/const fleet = $json;/m;
	}
	append_to_file($copy, "$html<script>$script</script>");
	return $copy;
}

# As the page writes them.
sub size
{
	my ($n) = @_;
	return "\x{2013}" unless defined $n;
	my @units = qw(B kB MB GB TB);
	my $unit = 0;
	$n /= 1024, $unit++ while $n >= 1024 && $unit < 4;
	return sprintf '%.*f %s', $n < 10 && $unit ? 1 : 0, $n, $units[$unit];
}

sub count
{
	my ($n) = @_;
	return "\x{2013}" unless defined $n;
	$n = sprintf '%.0f', $n;
	$n =~ s/(?<=\d)(?=(\d{3})+$)/,/g;
	return $n;
}
