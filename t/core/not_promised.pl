# The cases in which ids can repeat, as doc/reliability.md says: they do while the
# clock has not passed them, they don't once it has, and advance() helps.  A
# clock that stands still shows each.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SnowidTest;
use Test::More;

my $now = '2026-06-01 00:00:00';
my $later = '2026-06-01 00:00:01';
my $next = "SELECT snowid.next_id(5, 's')";
my $node = new_node('not_promised');

sub sql
{
	return $node->safe_psql($_[1] // 'postgres', $_[0]);
}

sub new_sequence
{
	set_clock($node, $now);
	sql('DROP SEQUENCE IF EXISTS s; CREATE SEQUENCE s');
	return split /\n/, sql("$next; $next; $next");
}

start_with_clock($node, $now);
sql('CREATE EXTENSION snowid');

my @cases = (
	[ 'setval() backwards', sub { sql("SELECT setval('s', 1)") } ],
	[ 'DROP and CREATE', sub { sql('DROP SEQUENCE s; CREATE SEQUENCE s') } ]);

foreach my $case (@cases)
{
	my ($name, $do) = @$case;
	my @ids = new_sequence();

	$do->();
	is(sql($next), $ids[0], "$name: repeats what the clock has not passed");

	@ids = new_sequence();
	$do->();
	sql("SELECT snowid.advance('s', $ids[2])");
	cmp_ok(sql($next), '>', $ids[2], "$name: no repetition after advance()");

	@ids = new_sequence();
	$do->();
	set_clock($node, $later);
	cmp_ok(sql($next), '>', $ids[2], "$name: no repetition by a clock that went on");
}

# A crash forgets what was not reserved of an unlogged sequence.
my $far = "SELECT snowid.advance('s', snowid.make_id(clock_timestamp() + '1 hour', 5, 0))";
sql("DROP SEQUENCE s; CREATE UNLOGGED SEQUENCE s; $far");
my $seen = sql($next);
crash($node);
start_with_clock($node, $now);
cmp_ok(sql($next), '<', $seen, 'unlogged: a crash takes back what advance() has set');

# RESTART starts above all that is reserved; a sequence that was set was further ahead.
new_sequence();
sql($far);
$seen = sql($next);
sql('ALTER SEQUENCE s RESTART');
cmp_ok(sql($next), '<', $seen, 'RESTART: goes back below what advance() has set');

# A rollback brings back the old file with its state.
new_sequence();
$seen = sql("BEGIN; ALTER SEQUENCE s CACHE 2; $next; ROLLBACK");
is(sql($next), $seen, 'rollback of an ALTER SEQUENCE: repeats what was taken inside');
$seen = sql("BEGIN; $next; ROLLBACK");
cmp_ok(sql($next), '>', $seen, 'rollback of an id alone: no repetition');

# A copy beside the original.
new_sequence();
sql('CREATE DATABASE copy TEMPLATE postgres', 'template1');
# The copy starts above what the original had reserved.
set_clock($node, '2026-06-01 00:01:10');
is(sql($next, 'copy'), sql($next), 'two live copies: the same ids');

# nextval() trusts the log_cnt that a copy has from its original; next_id() doesn't.
foreach my $case ([ "SELECT nextval('s')", 'the same' ], [ $next, 'larger' ])
{
	my ($call, $expected) = @$case;

	new_sequence();
	sql("SELECT nextval('s')");
	sql('CREATE DATABASE copied TEMPLATE postgres STRATEGY wal_log', 'template1');
	my $before = sql($call, 'copied');
	crash($node);
	start_with_clock($node, $now);
	my $after = sql($call, 'copied');
	is($after == $before ? 'the same' : $after > $before ? 'larger' : 'smaller',
		$expected, "$call in a copy, after a crash");
	sql('DROP DATABASE copied', 'template1');
}

# The first record is from before half of the epoch's age.
my $epoch = '2026-06-01 00:00:00+00';
sql('CREATE SEQUENCE young');
foreach my $at ('00:02:00', '00:02:00', '00:03:30', '00:05:00', '00:06:00')
{
	set_clock($node, "2026-06-01 $at");
	$seen = sql("SELECT snowid.next_id(5, 'young', '$epoch')");
}
crash($node);
start_with_clock($node, '2026-06-01 00:06:01');
is(sql("SELECT last_id_at < snowid.id_timestamp($seen, '$epoch') FROM snowid.sequence_state('young', '$epoch')"),
	't', 'an epoch of a few minutes ago: sequence_state() can be behind after a crash');
cmp_ok(sql("SELECT snowid.next_id(5, 'young', '$epoch')"), '>', $seen, '... and next_id() is not');
$node->stop;

# Another synchronous standby, which does not stream: what the former has confirmed
# counts.
my $primary = new_node('primary', allows_streaming => 1);
start_with_clock($primary, '2026-06-01 00:01:00');
$primary->safe_psql('postgres', 'CREATE EXTENSION snowid; CREATE SEQUENCE s');
$primary->backup('backup');
my %standby = map { $_ => PostgreSQL::Test::Cluster->new($_) } 'former', 'latter';
foreach my $name (sort keys %standby)
{
	$standby{$name}->init_from_backup($primary, 'backup', has_streaming => 1);
	$standby{$name}->append_conf('postgresql.conf',
		"primary_conninfo = '" . $primary->connstr . " application_name=$name'");
	start_with_clock($standby{$name}, '2026-05-31 23:00:00');
}
make_synchronous('former');
await_replay($primary, $standby{latter});
kill 'STOP', $standby{latter}->safe_psql('postgres', 'SELECT pid FROM pg_stat_wal_receiver');
set_clock($primary, '2026-06-01 00:01:30');
$primary->safe_psql('postgres', "CREATE TABLE confirmed_$_ AS $next") foreach 1, 2;
make_synchronous('latter');
$seen = $primary->safe_psql('postgres', $next, timeout => $PostgreSQL::Test::Utils::timeout_default);
crash($_) foreach $primary, $standby{latter};
start_with_clock($standby{latter}, '2026-05-31 23:00:00');
$standby{latter}->promote;
cmp_ok($standby{latter}->safe_psql('postgres', $next), '<', $seen,
	'another synchronous standby: an id that the former has confirmed is forgotten');
$_->stop foreach values %standby;

done_testing();

sub make_synchronous
{
	my ($name) = @_;

	$primary->safe_psql('postgres', "ALTER SYSTEM SET synchronous_standby_names = '$name'");
	$primary->reload;
	$primary->poll_query_until('postgres',
		"SELECT sync_state = 'sync' FROM pg_stat_replication WHERE application_name = '$name'") or die "$name is not synchronous";
	return;
}
