# What doc/working-with-ids.md says of ids outside the database, in Node: a
# number in JSON loses digits, a text does not; and the public id under a key is
# what any program makes of id and key.  And the module that decodes ids, in Node
# and in Chromium: it agrees with the vectors, which were computed elsewhere.
#
# Without Chromium, that part is skipped; or fails, if CLIENTS is "all".
use strict;
use warnings;

use FindBin;
use MIME::Base64;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'package nodejs is not installed'
  unless grep { -x "$_/node" } split /:/, $ENV{PATH};

my $node = PostgreSQL::Test::Cluster->new('main');
$node->init;
$node->start;
my $id = '3800086217995850759';
my $key = '00112233445566778899aabbccddeeff0123456789abcdef';
$node->safe_psql('postgres', 'CREATE EXTENSION snowid; CREATE EXTENSION pgcrypto');

my $number = $node->safe_psql('postgres', "SELECT jsonb_build_object('id', $id)");
my $text = $node->safe_psql('postgres', "SELECT jsonb_build_object('id', '$id'::text)");
is(javascript("JSON.parse('$number').id"), '3800086217995851000', 'a number loses digits');
is(javascript("JSON.parse('$text').id"), $id, 'a text does not');

my $hex = javascript(qq{(() => {
	const cipher = require('crypto').createCipheriv('des-ede3-ecb', Buffer.from('$key', 'hex'), null);
	const block = Buffer.alloc(8);
	cipher.setAutoPadding(false);
	block.writeBigInt64BE(${id}n);
	return Buffer.concat([cipher.update(block), cipher.final()]).toString('hex');
})()});
is($node->safe_psql('postgres', qq{
SELECT encode(encrypt(int8send($id), '\\x$key', '3des-ecb/pad:none'), 'hex')}),
	$hex, 'Node and pgcrypto make the same public id');

# The module, with the vectors of sql/vectors.sql: both ways.
my $module = "$FindBin::RealBin/../../npm/src/index.mjs";
my $vectors = slurp_file("$FindBin::RealBin/../../sql/vectors.sql");
my @vectors = $vectors =~ /^(-?\d+\t\d{4}-.*)$/mg;
cmp_ok(@vectors, '>=', 200, 'there are vectors');
my $checks = sprintf q{
const wrong = [];
const vectors = %s;
for (const [id, at, shard, seq, base62] of vectors) {
	const parts = snowid.idParts(id);
	const time = new Date(at.replace(' ', 'T').replace('+00', 'Z'));
	if (Number(parts.createdAt) !== Number(time) || parts.shard !== Number(shard) || parts.seq !== Number(seq) ||
		snowid.makeId(time, parts.shard, parts.seq) !== BigInt(id) || (time >= snowid.EPOCH && time < snowid.EPOCH + 2 ** 40 && snowid.makeId(time, 0, 0) !== snowid.minId(time)) ||
		snowid.idToBase62(BigInt(id)) !== base62 || snowid.base62ToId(base62) !== BigInt(id))
		wrong.push(id);
}
const fails = (f) => { try { return `${f()}`; } catch (e) { return e.name; } };
const epoch = new Date('2026-01-01T00:00:00Z');
const result = [vectors.length, wrong.length,
	snowid.idParts(snowid.makeId(epoch, 5, 7, epoch), epoch).createdAt.toISOString(),
	fails(() => snowid.idParts(3800086217995850759)),
	fails(() => snowid.idParts('4WiQyt11R1r')),
	fails(() => snowid.idParts('9223372036854775808')),
	fails(() => snowid.makeId(epoch, 8192, 0)),
	fails(() => snowid.makeId(epoch, 0, 1024)),
	fails(() => snowid.makeId(epoch, 0, 1.5)),
	fails(() => snowid.makeId(0, 0, 0)),
	fails(() => snowid.makeId(new Date('2081-04-30T12:54:37.273Z'), 0, 0)),
	fails(() => snowid.base62ToId('4WiQyt11R1')),
	fails(() => snowid.base62ToId('4WiQyt11R1-')),
	fails(() => snowid.base62ToId('LygHa16AHYG')),
].join(' ');
}, '[' . join(', ', map { my @fields = split /\t/; '[' . join(', ', map { "'$_'" } @fields) . ']' } @vectors) . ']';
my $expected = join(' ', scalar(@vectors), 0, '2026-01-01T00:00:00.000Z', ('TypeError') x 2, ('RangeError') x 9);

my $dir = PostgreSQL::Test::Utils::tempdir();
append_to_file("$dir/check.mjs", "import * as snowid from '$module';\n$checks\nconsole.log(result);\n");
is((run_command([ 'node', "$dir/check.mjs" ]))[0], $expected, 'Node decodes all vectors');

# As the server makes them, from random times and ids, and from all edges.
my $random = $node->safe_psql('postgres', q{
CREATE FUNCTION answer(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE answer text;
BEGIN EXECUTE 'SELECT ' || call INTO answer; RETURN answer; EXCEPTION WHEN OTHERS THEN RETURN 'RangeError'; END $$;
SELECT setseed(0.29);
WITH ms AS (
	SELECT CASE i % 4 WHEN 0 THEN 1314220021721 WHEN 1 THEN 1314220021721 + 1099511627775 WHEN 2 THEN 1314220021721 + 2199023255551
		ELSE (random() * 5e12 - 1e12)::bigint END + CASE WHEN i % 4 < 3 THEN (random() * 8 - 4)::int ELSE 0 END AS ms,
		CASE i % 3 WHEN 0 THEN 1314220021721 WHEN 1 THEN 0 ELSE (random() * 3e12 - 1e12)::bigint END AS epoch,
		('x' || md5(i::text))::bit(64)::bigint >> (i % 64) AS id
	FROM generate_series(1, 4000) i
	UNION ALL VALUES ('-2208988800000'::bigint, 1314220021721::bigint, 0::bigint), (2524608000000, 1314220021721, -1), (253402300799999, 1314220021721, 9223372036854775807)
), at AS (SELECT *, format($$to_timestamp(0) + %s * interval '1 ms'$$, ms) AS t, format($$to_timestamp(0) + %s * interval '1 ms'$$, epoch) AS e FROM ms)
SELECT json_agg(json_build_array(ms, epoch, id::text, answer(format('snowid.min_id(%s, %s)', t, e)), answer(format('snowid.make_id(%s, 5, 7, %s)', t, e)),
	answer(format('extract(epoch FROM snowid.id_timestamp(%s, %s))::numeric * 1000', quote_literal(id), e))))
FROM at;}) =~ s/^.*?(?=\[)//sr;
append_to_file("$dir/random.mjs", "import * as snowid from '$module';\nconst rows = $random;\n" . q{
const get = (f) => { try { return `${f()}`; } catch (e) { return e.name; } };
const edges = [NaN, new Date('x'), '2026-01-01', null].map((at) => get(() => snowid.minId(at)) + get(() => snowid.makeId(at, 0, 0)) + get(() => snowid.idParts(1n, at)));
const wrong = rows.filter(([ms, epoch, id, min, made, at]) => get(() => snowid.minId(new Date(ms), epoch)) !== min
	|| get(() => snowid.makeId(ms, 5, 7, new Date(epoch))) !== made || get(() => Number(snowid.idParts(id, epoch).createdAt)) !== String(Number(at)));
console.log(rows.length, wrong.length, edges.join(' ').replaceAll('RangeError', 'R'), snowid.minId(Infinity) === snowid.minId(new Date(8.64e15)), snowid.minId(-Infinity),
	wrong.slice(0, 3).join(' '));
});
is((run_command([ 'node', "$dir/random.mjs" ]))[0], '4003 0 RRR RRR RRR RRR true 0n ', 'Node makes what the server makes, at every edge');

my ($browser) = grep { -x } map { my $path = $_; map { "$path/$_" } qw(chromium-headless-shell chromium) } split /:/, $ENV{PATH};
SKIP:
{
	if (!$browser)
	{
		fail('Chromium is there') if ($ENV{CLIENTS} // '') eq 'all';
		skip 'package chromium-headless-shell is not installed', 1;
	}

	# A page may not import another file, but may a text.
	my $import = 'data:text/javascript;base64,' . encode_base64(slurp_file($module), '');
	append_to_file("$dir/check.html", qq{<script type="module">
import * as snowid from '$import';
$checks
document.body.textContent = result;
</script>
});
	my ($dom) = run_command([ $browser, '--headless', '--no-sandbox', '--disable-gpu', "--user-data-dir=$dir/chromium",
		'--virtual-time-budget=10000', '--dump-dom', "file://$dir/check.html" ]);
	like($dom, qr{<body>\Q$expected\E</body>}, 'Chromium decodes all vectors');
}

done_testing();

sub javascript
{
	my ($expression) = @_;
	my ($stdout, $stderr) = run_command([ 'node', '-e', "console.log($expression)" ]);
	diag($stderr) if $stderr;
	return $stdout;
}
