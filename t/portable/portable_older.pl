# A session of the portable edition that is stopped between its look at the clock and its slot
# takes none that is older than its transaction: safe_upper_id() would be beyond it.
#
# It takes two sessions that are stopped at a bad time.  One sets the sequence, by what it read
# before others counted up to the clock.  The other has read where they counted to; then it gets
# the slot after the one that was set.  t/lib/points.c stops the second.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $points = points_library();
my $node = new_node('older');
$node->append_conf('postgresql.conf', "session_preload_libraries = '$points'");
start_with_clock($node, '2026-01-01 12:00:00');
$node->safe_psql('postgres', slurp_file(portable_file('sql')) . 'CREATE SEQUENCE s');

my $take = q{SELECT snowid.next_id(5, 's')};
my $lock = q{(1936617335, 's'::regclass::oid::int)};
my $waits = q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND};
my @body = split /\n/, $node->safe_psql('postgres', q{
SELECT prosrc FROM pg_proc WHERE oid = 'snowid.next_id(int, regclass, timestamptz)'::regprocedure});

# The statements that count, in a transaction that has written nothing yet, and in one that has.
my @counts = grep { $body[ $_ - 1 ] =~ /slot := CASE/ && "@body[$_ - 1 .. $_ + 9]" =~ /nextval/ } 1 .. @body;
is(scalar(@counts), 3, 'three statements count') or diag("@counts");
for ([ 'of its own', $counts[1], 'BEGIN' ], [ 'that has written', $counts[2], 'BEGIN; SELECT pg_current_xact_id()' ])
{
	my ($name, $line, $begin) = @$_;
	$node->safe_psql('postgres', 'DROP SEQUENCE s; CREATE SEQUENCE s');
	set_clock($node, '2026-01-01 12:00:00');
	my ($setting, $up, $stopped) = map { $node->background_psql('postgres', on_error_stop => 0) } 1 .. 3;
	for my $session ($up, $stopped)
	{
		$session->query($take) for 1 .. 2;
	}

	# One reads, and has the lock.  Another counts up to the clock, and is gone.
	$setting->query("SELECT pg_advisory_lock(1), pg_advisory_lock$lock");
	my $read = $setting->query('SELECT last_value FROM s');
	set_clock($node, '2026-01-01 12:00:00.001');
	$up->query_until(qr/asked/, "\\echo asked\n$take;\n");
	$node->poll_query_until('postgres', "$waits classid = 1936617335", '1');
	$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted");
	$up->quit;

	$stopped->query($begin);
	$stopped->query("SET points.pause_function = 'next_id'; SET points.pause_line = $line");
	$stopped->query_until(qr/asked/, "\\echo asked\n$take AS id \\gset\n");
	ok($node->poll_query_until('postgres', "$waits classid = 0", '1'), "a transaction $name is stopped where it counts");
	cmp_ok($setting->query("SELECT setval('s', $read + 1), pg_advisory_unlock$lock"), 'ne', '', 'the sequence is set');
	$setting->query('SELECT pg_advisory_unlock(1)');
	is($stopped->query('SELECT :id >= snowid.min_id(now())'), 't', 'its id is not older than its transaction');
	my $bound = $node->safe_psql('postgres', q{SELECT snowid.safe_upper_id('s')});
	is($stopped->query("SELECT $bound <= :id"), 't', 'and the bound for readers not beyond it');
	$_->quit for $setting, $stopped;
}
$node->stop;
done_testing();
