# Whoever goes on from another server's log or files knows what the one clock of
# the database has reserved there: standbys, also of standbys, a rewound primary,
# a recovery to a point in time, a base backup, a dump from a standby.  All with
# sequences that are used seldom, whose pages the log does not follow, and with
# the time set back by an hour.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $noon = '2026-01-01 12:00:00';
my $back = '2026-01-01 11:00:00';
my $primary = new_node('primary', allows_streaming => 1, has_archiving => 1);
$primary->append_conf('postgresql.conf', "wal_log_hints = on\nwal_keep_size = 256MB");
start_with_clock($primary, $noon);

sub take
{
	my ($node, $seq) = @_;
	return $node->safe_psql('postgres', "SELECT snowid.next_id(5, '$seq')");
}

sub new_standby
{
	my ($name, $of, $backup) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init_from_backup($primary, $backup, has_streaming => 1);
	$node->append_conf('postgresql.conf', "primary_conninfo = '"
		  . $of->connstr . " application_name=$name'");
	start_with_clock($node, $back);
	return $node;
}

$primary->safe_psql('postgres', q{
CREATE EXTENSION snowid;
SELECT snowid.create_shard(5);
SELECT snowid.create_shard(6);
CREATE TABLE insta5.t (id bigint PRIMARY KEY DEFAULT insta5.next_id());
CREATE TABLE insta6.t (id bigint PRIMARY KEY DEFAULT insta6.next_id());
INSERT INTO insta5.t DEFAULT VALUES;
INSERT INTO insta6.t DEFAULT VALUES;
});
$primary->backup('backup');
my $standby = new_standby('standby', $primary, 'backup');
my $cascade = new_standby('cascade', $standby, 'backup');

# After a checkpoint, a page is logged once; the next id is in the log but as a
# row.
set_clock($primary, '2026-01-01 12:00:10');
$primary->safe_psql('postgres', 'INSERT INTO insta6.t DEFAULT VALUES; INSERT INTO insta5.t DEFAULT VALUES');
set_clock($primary, '2026-01-01 12:00:10.500');
my $newest = $primary->safe_psql('postgres', 'INSERT INTO insta5.t DEFAULT VALUES RETURNING id');
my $other = $primary->safe_psql('postgres', 'INSERT INTO insta6.t DEFAULT VALUES RETURNING id');
await_replay($primary, $standby);
await_replay($primary, $cascade);

for my $node ($standby, $cascade)
{
	my $name = $node->name;
	is($node->safe_psql('postgres', qq{
SELECT last_value < $newest >> 23 << 10 FROM insta5.id_seq}), 't',
		"$name: the page is behind");
	is($node->safe_psql('postgres', qq{
SELECT last_id_at >= snowid.id_timestamp($newest) FROM snowid.shards WHERE shard = 5}),
		't', "$name: the view shards is not");
	is($node->safe_psql('postgres', 'SELECT id FROM snowid.newest_rows(NULL::insta5.t, 1)'),
		$primary->safe_psql('postgres', 'SELECT greatest((SELECT max(id) FROM insta5.t), (SELECT max(id) FROM insta6.t))'),
		"$name: newest_rows() finds the newest row");
}

# A dump from a standby, restored where the clock is behind.
my $dump = $primary->basedir . '/dump';
$cascade->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $cascade->connstr('postgres') ],
	'a standby is dumped');
my $fresh = new_node('fresh');
start_with_clock($fresh, $back);
$fresh->command_ok([ 'pg_restore', '-d', $fresh->connstr('postgres'), $dump ], 'and restored');
cmp_ok($fresh->safe_psql('postgres', 'SELECT insta5.next_id()'), '>', $newest,
	'ids go on above those of the dump');

# Of one schema, without the clock: sequence_state() says from where to go on.
my $at = $cascade->safe_psql('postgres', q{
SELECT last_id_at FROM snowid.sequence_state('insta6.id_seq')});
$cascade->command_ok([ 'pg_dump', '-n', 'insta6', '-f', $dump, $cascade->connstr('postgres') ],
	'one schema is dumped');
$fresh->safe_psql('postgres', 'CREATE DATABASE one');
$fresh->safe_psql('one', 'CREATE EXTENSION snowid');
$fresh->command_ok([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $fresh->connstr('one') ],
	'and restored');
$fresh->safe_psql('one', qq{SELECT snowid.advance('insta6.id_seq', snowid.max_id('$at'))});
cmp_ok($fresh->safe_psql('one', 'SELECT insta6.next_id()'), '>', $other,
	'after advance(), ids go on above');
$fresh->stop;

# A backup of a busy server, recovered to a point after it.
$primary->backup('later');
my $seen = take($primary, 'insta5.id_seq');
set_clock($primary, '2026-01-01 12:00:20');
take($primary, 'insta6.id_seq');
$seen = take($primary, 'insta5.id_seq');
$primary->safe_psql('postgres', q{SELECT pg_create_restore_point('here')});
set_clock($primary, '2026-01-01 12:00:30');
take($primary, 'insta5.id_seq');
my $walfile = $primary->safe_psql('postgres', 'SELECT pg_walfile_name(pg_current_wal_lsn())');
$primary->safe_psql('postgres', 'SELECT pg_switch_wal()');
$primary->poll_query_until('postgres',
	"SELECT last_archived_wal >= '$walfile' FROM pg_stat_archiver") or die 'not archived';
my $pitr = PostgreSQL::Test::Cluster->new('pitr');
$pitr->init_from_backup($primary, 'later', has_restoring => 1, standby => 0);
$pitr->append_conf('postgresql.conf', q{
recovery_target_name = 'here'
recovery_target_action = 'promote'
});
start_with_clock($pitr, $back);
$pitr->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()') or die 'still in recovery';
cmp_ok(take($pitr, 'insta5.id_seq'), '>', $seen, 'a recovery to a point in time');
$pitr->stop;

# Fail-over to the standby's standby, by way of the standby; each time the
# clock is behind.  Then back to the first primary, by pg_rewind.
set_clock($primary, '2026-01-01 12:00:40');
take($primary, 'insta6.id_seq');
set_clock($primary, '2026-01-01 12:00:41.5');
$seen = take($primary, 'insta5.id_seq');
await_replay($primary, $standby);
await_replay($primary, $cascade);
crash($primary);
$standby->promote;
my $next = take($standby, 'insta5.id_seq');
cmp_ok($next, '>', $seen, 'fail-over to a standby');
$other = take($standby, 'insta6.id_seq');
$seen = take($standby, 'insta5.id_seq');
cmp_ok($seen, '>', $next, 'which goes on');
await_replay($standby, $cascade);

# The old primary has issued ids that nobody else knows.  It forgets them.
start_with_clock($primary, '2026-01-01 12:00:41.6');
take($primary, 'insta5.id_seq');
$primary->stop;
$standby->safe_psql('postgres', 'CHECKPOINT');
$other = take($standby, 'insta6.id_seq');
$seen = take($standby, 'insta5.id_seq');
command_ok([ 'pg_rewind', '--target-pgdata', $primary->data_dir,
		'--source-server', $standby->connstr('postgres') ], 'the old primary is rewound');

# The rewound server waits for all log that there was, also of hint bits.  While
# the time stands still, the walwriter flushes nothing, but a commit does.
$standby->safe_psql('postgres', q{SELECT pg_logical_emit_message(true, 'flush', '')});
$primary->append_conf('postgresql.conf', 'port = ' . $primary->port . "\nprimary_conninfo = '"
	  . $standby->connstr . " application_name=primary'\nrestore_command = ''");
$primary->set_standby_mode;
start_with_clock($primary, $back);
await_replay($standby, $primary);
$other = take($standby, 'insta6.id_seq');
$seen = take($standby, 'insta5.id_seq');
await_replay($standby, $primary);
await_replay($standby, $cascade);
crash($standby);
$cascade->promote;
cmp_ok(take($cascade, 'insta5.id_seq'), '>', $seen, 'fail-over to its standby');
$cascade->stop;
$primary->promote;
cmp_ok(take($primary, 'insta5.id_seq'), '>', $seen, 'or to the rewound primary');
cmp_ok(take($primary, 'insta6.id_seq'), '>', $other, '... of another sequence, too');
$primary->stop;

done_testing();
