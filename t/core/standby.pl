# A standby follows the sequence but issues nothing; once promoted, it goes on
# above all that the primary issued, though its clock is an hour behind.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use List::Util qw(max);
use POSIX qw(strftime);
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $primary = new_node('primary', allows_streaming => 1);
start_with_clock($primary, '+0');
my $take = make_calls($primary, 50);
$primary->backup('backup');

# Asynchronous: what has arrived counts.
my $standby = new_standby('async');
$primary->safe_psql('postgres', 'CREATE UNLOGGED SEQUENCE unlogged');
ok(start_load($primary, 4, 50, $take)->finish, 'the primary issued ids');
await_replay($primary, $standby);

is(sqlstate($standby, "SELECT snowid.next_id(5, 's')"), '25006',
	'a standby refuses next_id');
is(sqlstate($standby, "SELECT snowid.advance('s', 1)"), '25006', 'and advance');
is(sqlstate($standby, "SELECT snowid.sequence_state('unlogged')"),
	'0A000', 'what is not logged has no state on a standby');
is($standby->safe_psql('postgres', q{
SELECT last_id_at >= (SELECT max(snowid.id_timestamp(id)) FROM calls)
FROM snowid.sequence_state('s')}),
	't', 'its sequence_state covers all ids that it has seen');

my $last = $primary->safe_psql('postgres', q{SELECT max(id) FROM calls});
crash($primary);
$standby->promote;
cmp_ok($standby->safe_psql('postgres', "SELECT snowid.next_id(5, 's')"), '>',
	$last, 'promoted, it goes on above the primary');
$standby->stop;

# Synchronous: every id that a client has got counts.
start_with_clock($primary, '+0');
$standby = new_standby('sync');
$primary->append_conf('postgresql.conf', "synchronous_standby_names = '*'");
$primary->reload;
$primary->poll_query_until('postgres', q{
SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'})
  or die 'no synchronous standby';
my @clients = start_clients($primary, 4);
for my $seconds (1 .. 5)
{
	set_clock($primary, '+' . 2 * $seconds);
	wait_for_clock($primary);
}
crash($primary);
$last = max map { ids_seen($_) } @clients;

$standby->promote;
cmp_ok($standby->safe_psql('postgres', "SELECT snowid.next_id(5, 's')"), '>',
	$last, 'after a crash under load, a synchronous standby goes on above');
$standby->stop;

# An open transaction has reserved ids, and the standby does not know it yet.
# Another session that takes one of them must not commit before it does.
start_with_clock($primary, '+30');
$standby = new_standby('open');
my $reader = $primary->background_psql('postgres');
$reader->query_safe("SELECT snowid.next_id(5, 's')");
$standby->stop;
# The clock stands still, so that the reader needs no reservation of its own.
set_clock($primary, strftime('%Y-%m-%d %H:%M:%S', gmtime(time + 40)));

my $writer = $primary->background_psql('postgres');
$writer->query_safe("BEGIN; SELECT snowid.next_id(5, 's')");
$primary->safe_psql('postgres',
	'SET synchronous_commit = local; CREATE TABLE flushes_the_log ()');
my $pid = $reader->query_safe('SELECT pg_backend_pid()');
$reader->{stdin} .= "SELECT 'got', snowid.next_id(5, 's');\n";
$reader->{run}->pump_nb;
ok($primary->poll_query_until('postgres', qq{
SELECT wait_event = 'SyncRep' OR state = 'idle' AND query LIKE '%got%'
FROM pg_stat_activity WHERE pid = $pid}), 'it has asked');
is($primary->safe_psql('postgres',
		"SELECT wait_event FROM pg_stat_activity WHERE pid = $pid"),
	'SyncRep', q{who uses another's reservation waits for the standby});

done_testing();

# A standby of the primary's first backup, an hour behind its clock.
sub new_standby
{
	my ($name) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	$node->init_from_backup($primary, 'backup', has_streaming => 1);
	start_with_clock($node, '-3600');
	await_replay($primary, $node);
	return $node;
}
