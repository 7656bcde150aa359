# The view shards and newest_rows() go on beside a shard that is being dropped, and
# on a standby that cannot read an unlogged sequence: what is gone, or can't be read,
# has NULLs, or no rows.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SnowidTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', allows_streaming => 1);
$node->start;
$node->safe_psql('postgres', q{
CREATE EXTENSION snowid;
CALL snowid.create_shards(30, 33, ddl => 'CREATE TABLE posts (id bigint PRIMARY KEY DEFAULT next_id())');
INSERT INTO insta30.posts DEFAULT VALUES;
INSERT INTO insta32.posts DEFAULT VALUES;
INSERT INTO insta33.posts DEFAULT VALUES});

my $shards = 'SELECT shard, last_id_at IS NOT NULL, tables FROM snowid.shards ORDER BY shard';
my $newest = 'SELECT count(*) FROM snowid.newest_rows(NULL::insta30.posts, 5)';
my $drop = $node->background_psql('postgres');
my $old = $node->background_psql('postgres');
my ($out, $err) = ('', '');

is($old->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; $newest"), 3, 'an old snapshot is taken');
$old->query_safe('COMMIT; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
$drop->query_safe('SET client_min_messages = error; BEGIN; SELECT snowid.drop_shard(33, true)');
is($node->safe_psql('postgres', "SET statement_timeout = '20 s'; $shards"), "30|t|1\n31|f|1\n32|t|1\n33|f|1", 'the view does not wait for the drop');
my $reader = IPC::Run::start(
	[ 'psql', '-XAtq', '-c', $newest, $node->connstr('postgres') . ' application_name=reader' ], '>', \$out, '2>', \$err);
ok( $node->poll_query_until('postgres',
		q{SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE application_name = 'reader'}),
	'newest_rows() waits for its rows');
$drop->query_safe('COMMIT');
$reader->finish;
is("$out$err", "2\n", '... and does without them');
is($old->query_safe($shards), "30|t|1\n31|f|1\n32|t|1\n33|f|1", 'an old snapshot still has the shard, whose sequence is gone');
is($old->query_safe($newest), 2, '... and whose rows are');
$_->quit foreach $drop, $old;

$node->safe_psql('postgres', 'ALTER SEQUENCE insta32.id_seq SET UNLOGGED');
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
await_replay($node, $standby);
is($standby->safe_psql('postgres', $shards), "30|t|1\n31|f|1\n32|f|1", 'a standby shows the shards whose sequences it has');
is($standby->safe_psql('postgres', $newest), 2, '... and the rows of all');

$standby->stop;
$node->stop;
done_testing();
