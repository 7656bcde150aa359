# shard_load() sees which shard grows, and the documentation's query makes a set
# of it that snowid-move takes.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run;
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b');
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;
$a->safe_psql('postgres', q{
CALL snowid.create_shards(0, 3, ddl => 'CREATE TABLE photos (id bigint PRIMARY KEY DEFAULT next_id(), body text)');
INSERT INTO insta3.photos (body) SELECT repeat('x', 100) FROM generate_series(1, 2000);
INSERT INTO insta2.photos (body) SELECT repeat('x', 100) FROM generate_series(1, 2000);
INSERT INTO insta0.photos (body) SELECT repeat('x', 100) FROM generate_series(1, 9000)});

my $script = $a->basedir . '/write.sql';
append_to_file($script, "INSERT INTO insta1.photos (body) VALUES ('x');\n");
my $load = IPC::Run::start([ 'pgbench', '-n', '-R', 200, '-T', 600, '-f', $script, $a->connstr('postgres') ], '>&', '/dev/null');
$a->poll_query_until('postgres', q{SELECT pg_stat_get_tuples_inserted('insta1.photos'::regclass) > 0}) or die 'no load';

# Counts come in once a second: a few of them.
my $count = $a->safe_psql('postgres', 'SELECT count(*) FROM insta1.photos');
my %rate = map { split /\|/ } split /\n/, $a->safe_psql('postgres', q{SELECT shard, inserts_per_second FROM snowid.shard_load('5 s')});
my $now = $a->safe_psql('postgres', 'SELECT count(*) FROM insta1.photos');
cmp_ok($rate{1}, '>', 0, 'the shard that grows');
cmp_ok($rate{1} * 5, '<=', $now, 'no more than it has');
is("$rate{0} $rate{2} $rate{3}", '0 0 0', 'and those that do not');
$load->kill_kill;

# The query of doc/moves.md.
my ($query) = slurp_file("$FindBin::RealBin/../../doc/moves.md") =~ /^(SELECT string_agg.*?;)$/ms;
my $set = $a->safe_psql('postgres', $query);
is($set, '1,2,3', 'half of the bytes');
moves_ok($a, $b, $set, [], 0, 'and they move', qr/3 of 3 shards have moved/);
is($b->safe_psql('postgres', q{SELECT string_agg(shard::text, ',') FROM snowid.shard_load()}), $set, 'they are there');
moves_ok($a, $b, $set, ['finish'], 0, 'finished');

# A standby does not count.
$a->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($a, 'backup', has_streaming => 1);
$standby->start;
is($standby->safe_psql('postgres', 'SELECT shard FROM snowid.shard_load()'), '0', 'a standby tells sizes');
is(sqlstate($standby, q{SELECT snowid.shard_load('1 ms')}), '55000', 'but no inserts');
done_testing();
