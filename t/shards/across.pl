# doc/across.md on three real servers: one registry for all by logical
# replication, reading a moved shard from its old server, and a time line over
# two servers that fetches no more than it shows.
#
# Its blocks run in order, each on the servers that the comment before it names
# ("<!-- on a b -->" for SQL, "<!-- shell -->"); what they print is compared.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SnowidTest;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my %node;
foreach my $name ('a', 'b', 'dir')
{
	$node{$name} = new_node($name, allows_streaming => 'logical');
	$node{$name}->append_conf('postgresql.conf', "max_slot_wal_keep_size = '1GB'");
	$node{$name}->start;
	$node{$name}->safe_psql('postgres', 'CREATE DATABASE app');
}

sub sql
{
	my ($name, $sql) = @_;
	return $node{$name}->safe_psql('app', $sql);
}

my %home = map { $_ => 'host=' . $node{$_}->host . ' port=' . $node{$_}->port . ' dbname=app' } keys %node;

# The blocks of the page, the servers' names replaced by where they are.
my $doc = slurp_file("$FindBin::RealBin/../../doc/across.md");
my @blocks;
while ($doc =~ /^<!-- (on ([\w ]+)|shell) -->\n(?:<!-- not run[^\n]*-->\n)?```\w+\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?/gms)
{
	my ($where, $text, $expected) = ($2, $3, $4);

	$text =~ s/host=(\w+) dbname=app/$home{$1}/g;
	$text =~ s/host '(\w+)'/"host '" . $node{$1}->host . "', port '" . $node{$1}->port . "'"/ge;
	push @blocks, { where => $where, text => $text, expected => $expected };
}

# Run the next block, which must have the given words in it.
sub run_block
{
	my ($words) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $block = shift @blocks;

	like($block->{text}, qr/\Q$words\E/, "the next block is: $words");
	foreach my $name ($block->{where} ? split(/ /, $block->{where}) : ('shell'))
	{
		my $out = '';
		my $err = '';
		my $text = $block->{text};

		if ($name eq 'b' && $text =~ s/registry_of_a/registry_of_b/)
		{
			$text =~ s/(directory_is_right\(')[^']*/$1$home{b}/;
		}
		my @command = $name eq 'shell' ? ('bash', '-o', 'pipefail', '-ec', $text)
		  : ('psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node{$name}->connstr('app'));

		ok(IPC::Run::run(\@command, '<', \$text, '>', \$out, '2>', \$err), "... it runs on $name")
		  or diag($out, $err);
		is(tidy($out), tidy($block->{expected}), '... and prints what it says')
		  if defined $block->{expected};
	}
	return;
}

sub tidy
{
	my ($text) = @_;

	$text =~ s/[ \t]+$//mg;
	$text =~ s/-{3,}/---/g;
	$text =~ s/^ +QUERY PLAN/QUERY PLAN/mg;
	$text =~ s/ \(returns \$0\)$//mg;	# not from 17 on
	$text =~ s/InitPlan expr_(?=\d)/InitPlan /g;	# so from 19 on
	$text =~ s/\A\n+|\n+\z//g;
	return $text;
}

# Wait until a server's registry says so.
sub registry_ok
{
	my ($name, $what, $query) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	ok($node{$name}->poll_query_until('app', "SELECT coalesce(($query), false)"), "$name: $what")
	  or diag(sql($name, 'SELECT * FROM snowid.shard_registry'));
	return;
}

# Shards on both servers, before there is a directory.  Their rows take turns.
my $tables = q{
CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id(), user_id bigint NOT NULL);
INSERT INTO photos
SELECT snowid.make_id(clock_timestamp() - (500 - i) * interval '1 s', snowid.id_shard(next_id()), 0), i
FROM generate_series(1, 500) AS i;
};
sql('a', 'CREATE EXTENSION snowid');
sql('a', qq{CALL snowid.create_shards(5, 6, ddl => \$\$$tables\$\$)});
sql('b', 'CREATE EXTENSION snowid');
sql('b', qq{CALL snowid.create_shards(7, 7, ddl => \$\$$tables\$\$)});
sql($_, 'ANALYZE') foreach 'a', 'b';

# The directory, and the others subscribed to it.
run_block('CREATE PUBLICATION shard_registry');
my %by_hand = map { $_->{text} =~ /(pg_create_logical|CREATE SUBSCRIPTION)/ ? ($1 => $_->{text}) : () } @blocks[ 0, 1 ];
run_block('pg_create_logical_replication_slot');
run_block('CREATE SUBSCRIPTION registry_of_a');

# Also in a database of the directory's own server, where it must not wait for itself.
$node{dir}->safe_psql('postgres', 'CREATE DATABASE beside');
s/\{a,b\}/{beside}/, s/registry_of_a/registry_of_beside/ foreach values %by_hand;
$node{dir}->safe_psql('app', $by_hand{pg_create_logical});
$node{dir}->safe_psql('beside', "SET statement_timeout = '60s'; CREATE EXTENSION snowid; $by_hand{'CREATE SUBSCRIPTION'}");
my $tell = $blocks[0]{text};
unshift @blocks, $blocks[0];
run_block('COPY') for 'once', 'and again, which changes nothing';
$tell =~ s/\Q$home{a}\E/$home{b}/g;
ok(IPC::Run::run([ 'bash', '-o', 'pipefail', '-ec', $tell ]), 'b tells of its own shard');
foreach my $name ('a', 'b', 'dir')
{
	registry_ok($name, 'has the rows of all', q{
SELECT array_agg(shard ORDER BY shard) = '{5,6,7}' AND bool_and(home IS NOT NULL) FROM snowid.shard_registry});
}
is(sql('a', q{SELECT string_agg(snowid.shard_home(s), ';' ORDER BY s) FROM generate_series(5, 7) s}),
	"here;here;$home{b}", 'a shard is here, or at its home');
is(sql('b', q{SELECT string_agg(lives, ';' ORDER BY shard) FROM snowid.shards}),
	"$home{a};$home{a};here", '... on the other server, too');
is(sqlstate($node{b}, 'SELECT snowid.create_shard(5)', dbname => 'app'), '42710',
	'a number is taken on all servers');
is(sql('a', 'SELECT snowid.id_shard(insta5.next_id())'), 5, 'a shard whose row came back is open');

# Shards that are made later; a number that two servers have made.
sql('a', 'SELECT snowid.create_shard(8); SELECT snowid.create_shard(10)');
sql('b', 'SELECT snowid.create_shard(9); SELECT snowid.create_shard(8)');
my $tell_a = $tell =~ s/\Q$home{b}\E/$home{a}/gr;
ok(IPC::Run::run([ 'bash', '-o', 'pipefail', '-ec', $tell_a ]), 'a tells of later shards');
registry_ok('a', 'has its own row back', 'SELECT home IS NOT NULL FROM snowid.shard_registry WHERE shard = 10');
my $err = '';
ok(!IPC::Run::run([ 'bash', '-o', 'pipefail', '-ec', $tell ], '2>', \$err), 'the directory refuses a number twice');
like($err, qr/Key \(shard\)=\(8\) already exists/, '... and names it');
is(sql('dir', 'SELECT count(*) FROM snowid.shard_registry WHERE shard = 9'), 0, '... and has taken none of them');
# 18 says it in other words.
$node{b}->wait_for_log(qr/(duplicate key value violates unique constraint|Key already exists in unique index) "shard_registry_pkey"/);
is(sql('b', 'SELECT home IS NULL FROM snowid.shard_registry WHERE shard = 8'), 't',
	'the other server keeps its row, and its log tells');
sql('b', 'SELECT snowid.drop_shard(8)');
registry_ok('b', 'goes on once the number is given back', 'SELECT count(*) = 2 FROM snowid.shard_registry WHERE shard IN (8, 10)');
ok(IPC::Run::run([ 'bash', '-o', 'pipefail', '-ec', $tell ]), '... and the directory takes the rest');
sql('a', 'SELECT snowid.drop_shard(8)');
sql('dir', 'DELETE FROM snowid.shard_registry WHERE shard = 8');
registry_ok($_, 'a dropped shard goes', 'SELECT count(*) = 0 FROM snowid.shard_registry WHERE shard = 8')
  foreach 'a', 'b', 'dir';

# A shared table, to which a shard's foreign key leads.
run_block('CREATE TABLE public.countries');
run_block('ALTER PUBLICATION shard_registry ADD TABLE');
run_block('REFRESH PUBLICATION');
registry_ok($_, 'has the shared row', 'SELECT count(*) = 1 FROM public.countries') foreach 'a', 'b';
sql('a', q{ALTER TABLE insta5.photos ADD country text DEFAULT 'de' REFERENCES public.countries});

# A dump has neither publication's table (before 18) nor trigger; pages say so.
my $dump = $node{dir}->basedir . '/dump.sql';
$node{dir}->command_ok([ 'pg_dump', '-f', $dump, $node{dir}->connstr('app') ], 'dump of the directory');
$node{dir}->safe_psql('postgres', 'CREATE DATABASE restored');
$node{dir}->safe_psql('restored', "\\i $dump");
my $is_18 = sql('dir', 'SHOW server_version_num') >= 180000;
is($node{dir}->safe_psql('restored', q{SELECT count(*) FROM pg_publication_tables WHERE schemaname = 'snowid'}), $is_18 ? 1 : 0,
	'restored, the publication has lost the table, before 18');
is($node{dir}->safe_psql('restored', q{SELECT count(*) FROM snowid.shard_registry}), 5, '... but all rows are there');
like($doc, qr/ALTER PUBLICATION shard_registry ADD\s+TABLE snowid.shard_registry/, '... as the page says');

# A move: its two servers and the directory know it, and all others hear of it.
run_block('snowid-move');
registry_ok($_, 'knows the new home', "SELECT home LIKE '%port=" . $node{b}->port . "%' FROM snowid.shard_registry WHERE shard = 5")
  foreach 'a', 'b', 'dir';
is(sql('b', 'SELECT snowid.shard_home(5)'), 'here', 'the shard is at its new home');
isnt(sql('a', 'SELECT snowid.shard_home(5)'), 'here', '... and no longer at the old one');
ok($node{dir}->poll_query_until('app', q{
SELECT bool_and(replay_lsn >= pg_current_wal_lsn()) AND count(*) = 2 FROM pg_stat_replication}),
	'both subscriptions are well');

is(sqlstate($node{b}, q{UPDATE insta5.photos SET country = 'xx'}, dbname => 'app'), '23503', '... with its foreign key');

# Read it from the old server.
run_block('CREATE ROLE reader');
run_block('IMPORT FOREIGN SCHEMA insta5');
my $max = sql('b', 'INSERT INTO insta5.photos (user_id) VALUES (1000) RETURNING id');
is(sql('a', 'SELECT max(id) FROM insta5.photos'), $max, 'the old server sees new rows');
isnt(sqlstate($node{a}, 'INSERT INTO insta5.photos VALUES (1, 1)', dbname => 'app'), '', '... and writes none');
is(sql('a', 'SELECT count(*) FROM insta5_moved.photos'), 500, '... its closed copy is there still');
isnt(sql('a', 'SELECT snowid.shard_home(5)'), 'here', '... and foreign tables do not make the shard live here');
sql('b', 'DELETE FROM insta5.photos WHERE user_id = 1000');

# The time line.
run_block('EXPLAIN');
my ($rows) = sql('a', q{EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF)
(SELECT id, user_id FROM insta5.photos ORDER BY id DESC LIMIT 20)
UNION ALL
(SELECT id, user_id FROM insta6.photos ORDER BY id DESC LIMIT 20)
ORDER BY id DESC LIMIT 20}) =~ /Foreign Scan on photos \(actual rows=(\d+)/;
ok($rows >= 10 && $rows <= 20, 'no more rows come over than are wanted') or diag($rows);
run_block('time_line');
is(sql('a', q{SELECT count(*) FROM (
(SELECT id FROM insta5.photos ORDER BY id DESC LIMIT 600) UNION ALL
(SELECT id FROM insta6.photos ORDER BY id DESC LIMIT 600) ORDER BY id DESC LIMIT 600) t}), 600,
	'a longer one goes through both');
run_block('EXPLAIN');
is(scalar(@blocks), 0, 'all blocks have been run');
unlike(sql('a', q{EXPLAIN (VERBOSE, COSTS OFF)
SELECT count(*) FROM insta5.photos WHERE id >= snowid.min_id(now())}), qr/Remote SQL:.*WHERE/,
	'now() itself is not sent');
like(sql('a', q{EXPLAIN (VERBOSE, COSTS OFF)
SELECT count(*) FROM insta5.photos WHERE snowid.id_between(id, '2026-01-01', '2026-02-01')}), qr/Remote SQL:.*WHERE/,
	'... constants are');

$_->stop foreach values %node;
done_testing();
