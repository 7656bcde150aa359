# pg_rewind brings the page of the clock as it is in use on another server, and
# leaves pages of sequences that are older.  Nobody takes that clock for one in use
# here: not a standby, not after its promotion, not a server that is started as it is.
#
# The primary makes no id after the rewind.  So the log does not tell of the clock.
use strict;
use warnings;

use File::Copy;
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $noon = '2026-01-01 12:00:00';
my $back = '2026-01-01 11:00:00';

my $primary = new_node('primary', allows_streaming => 1);
$primary->append_conf('postgresql.conf', "wal_log_hints = on\nwal_keep_size = 256MB");
start_with_clock($primary, $noon);
$primary->safe_psql('postgres', q{
CREATE EXTENSION snowid;
CREATE SEQUENCE other;
SELECT snowid.create_shard(5);
CREATE TABLE insta5.t (id bigint PRIMARY KEY DEFAULT insta5.next_id())});
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
start_with_clock($standby, $back);

# Only the first id of the sequence is in the log; the checkpoint knows all.
$primary->safe_psql('postgres', 'SELECT insta5.next_id()') for 1 .. 2;
set_clock($primary, '2026-01-01 12:00:00.500');
my $newest = $primary->safe_psql('postgres', 'INSERT INTO insta5.t DEFAULT VALUES RETURNING id');
$primary->safe_psql('postgres', 'CHECKPOINT');
await_replay($primary, $standby);

# The standby is promoted, as a rehearsal, and then rewound.
$standby->promote;
$standby->safe_psql('postgres', q{SELECT snowid.next_id(5, 'other')});
$standby->stop;
$primary->safe_psql('postgres', 'CREATE TABLE something ()');
command_ok([ 'pg_rewind', '--target-pgdata', $standby->data_dir,
		'--source-server', $primary->connstr('postgres') ], 'the standby is rewound');
$standby->append_conf('postgresql.conf', 'port = ' . $standby->port);

# It needs all log that there was, also of hint bits.  While the time stands still, the
# walwriter flushes nothing, but a commit does.
$primary->safe_psql('postgres', q{SELECT pg_logical_emit_message(true, 'flush', '')});
copy($_, $standby->data_dir . '/pg_wal') || die "cannot copy $_: $!" for glob $primary->data_dir . '/pg_wal/' . '[0-9A-F]' x 24;
$standby->backup_fs_cold('rewound');

sub rewound
{
	my ($name, %params) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init_from_backup($standby, 'rewound', %params);
	return $node;
}

subtest 'a standby, its promotion, and a clean restart' => sub {
	my $node = rewound('again');
	$node->append_conf('postgresql.conf', "primary_conninfo = '" . $primary->connstr . " application_name=again'");
	$node->set_standby_mode;
	start_with_clock($node, $back);
	await_replay($primary, $node);
	is($node->safe_psql('postgres', "SELECT last_value < $newest >> 23 << 10 FROM insta5.id_seq"), 't', 'the page is behind');
	is($node->safe_psql('postgres', 'SELECT log_cnt > 0 FROM snowid_internal.reservation'), 't', 'the clock looks as if in use');
	is($node->safe_psql('postgres', qq{
SELECT last_id_at >= snowid.id_timestamp($newest) FROM snowid.sequence_state('insta5.id_seq')}), 't',
		'sequence_state() on the standby is not behind');
	$node->promote;
	$node->stop;
	start_with_clock($node, $back);
	cmp_ok($node->safe_psql('postgres', 'SELECT insta5.next_id()'), '>', $newest, 'ids go on above');
	$node->stop;
};

subtest 'started as it is, while the primary is gone' => sub {
	$primary->stop('immediate');
	for my $is_stopped (0, 1)
	{
		my $node = rewound("alone_$is_stopped", standby => 0);
		start_with_clock($node, $back);
		is($node->safe_psql('postgres', 'SELECT pg_is_in_recovery()'), 'f', 'it is a primary, on the same timeline');
		if ($is_stopped)
		{
			$node->stop;
			start_with_clock($node, $back);
		}
		cmp_ok($node->safe_psql('postgres', 'SELECT insta5.next_id()'), $is_stopped ? '<' : '>', $newest,
			$is_stopped ? 'stopped before the first id, it forgets' : 'ids go on above');
		$node->stop;
	}
};

done_testing();
