# After a recovery, ids start from the floor, seconds ahead of the clock.  Who
# makes a sequence forget its ids then must not bring them back, nor who sets a
# sequence ahead drag others along, one crash after another.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils;
use SnowidTest;
use POSIX qw(strftime);
use Test::More;
use Time::HiRes qw(time);
use Time::Local qw(timegm);

my $node = new_node('after_recovery');

# What restarts waits for, so the time goes on.
my $goes_on = sprintf '%+.3f', timegm(0, 0, 12, 1, 0, 2026) - time;
start_with_clock($node, $goes_on);
sql('CREATE EXTENSION snowid');

sub sql { return $node->safe_psql($_[1] || 'postgres', $_[0]); }
sub take { return sql("SELECT snowid.next_id(5, '$_[0]')", $_[1]); }

# By the clock, the restart takes no time: what a slow machine finds afterwards is the same.
sub crash_now
{
	crash($node);
	my $now = time + $goes_on;
	start_with_clock($node, strftime('%Y-%m-%d %H:%M:%S', gmtime $now) . sprintf('.%03d', 1000 * ($now - int $now)));
	$goes_on = sprintf '%+.3f', $now - time;
	set_clock($node, $goes_on);
	return;
}

# Makes two ids, the second after a statement, which is later.
sub rises_ok
{
	my ($name, $seq, $statement, $dbname) = @_;
	my $before = take($seq, $dbname);
	sql($statement, $dbname);
	cmp_ok(take($seq, $dbname), '>', $before, $name);
	return;
}

subtest 'restarted after a crash' => sub {
	sql("CREATE SEQUENCE restarted; CREATE SEQUENCE advanced");

	# Half a second or more was reserved.
	my $is_ahead = 'f';
	for (1 .. 20)
	{
		take($_) for 'restarted', 'advanced';
		crash_now();
		$is_ahead = sql("SELECT snowid.id_timestamp(snowid.next_id(5, 'restarted')) > clock_timestamp() + '0.5 s'");
		last if $is_ahead eq 't';
	}
	is($is_ahead, 't', 'after a crash, ids are ahead of the clock');
	rises_ok('advance() after RESTART', 'advanced',
		"ALTER SEQUENCE advanced RESTART; SELECT snowid.advance('advanced', 0)");
	rises_ok('RESTART', 'restarted', 'ALTER SEQUENCE restarted RESTART');

	# By now, the clock has passed all of them.
	my $before = take('restarted');
	my ($id, $hardly_waits) = split /\|/, sql(q{ALTER SEQUENCE restarted RESTART;
		WITH next AS MATERIALIZED (SELECT clock_timestamp() AS since, snowid.next_id(5, 'restarted') AS id)
		SELECT id, clock_timestamp() - since < '2 s' FROM next});
	cmp_ok($id, '>', $before, 'RESTART later');
	is($hardly_waits, 't', '... hardly waits');
};

subtest 'restarted in a copy of a database' => sub {
	sql('CREATE DATABASE original');
	sql('CREATE EXTENSION snowid; CREATE SEQUENCE copied', 'original');
	take('copied', 'original');
	sql('CREATE DATABASE copy TEMPLATE original');
	rises_ok('RESTART', 'copied', 'ALTER SEQUENCE copied RESTART', 'copy');
};

# A lead shrinks, or it would be there when a restart no longer waits for it.
subtest 'used to the full after a crash' => sub {
	sql('CREATE SEQUENCE full_use');
	take('full_use');
	crash_now();
	sql(q{
DO $$
DECLARE stop timestamptz := clock_timestamp() + '5 s';
BEGIN
	WHILE clock_timestamp() < stop LOOP
		PERFORM snowid.next_id(5, 'full_use') FROM generate_series(1, 10000);
	END LOOP;
END
$$});
	is(sql(q{SELECT ahead < '0.05 s' FROM snowid.sequence_state('full_use')}), 't',
		'its ids come back to the clock');
};

subtest 'a shard dropped after a crash' => sub {
	sql(q{
SELECT snowid.create_shard(13);
CREATE TABLE insta13.rows (id bigint PRIMARY KEY);
SELECT snowid.set_default('insta13.rows', own_sequence => true);
INSERT INTO insta13.rows DEFAULT VALUES});
	crash_now();
	my $last = sql('INSERT INTO insta13.rows DEFAULT VALUES RETURNING id');
	sql('SELECT snowid.drop_shard(13, true); SELECT snowid.create_shard(13)');
	cmp_ok(sql('SELECT insta13.next_id()'), '>', $last, 'a new shard of the number');
};

# Each call here would move the clock by a second or two, if it could.
subtest 'somebody who would drag the others along' => sub {
	sql('CREATE SEQUENCE honest; CREATE SEQUENCE dragging');
	take('honest');
	my $beyond = 'SELECT last_value - 1 FROM snowid_internal.reservation';
	for (1 .. 20)
	{
		my $ms = sql($beyond);
		sql(qq{
SELECT setval('dragging', snowid.make_id(to_timestamp($ms / 1000.0), 0, 0) >> 23 << 10);
SELECT snowid.next_id(5, 'dragging')});
		my $epoch = "snowid.id_timestamp(0) + (to_timestamp(($beyond) / 1000.0) - last_at)";
		sql(qq{
SELECT snowid.next_id(5, 'dragging', $epoch)
FROM (SELECT snowid.id_timestamp(last_value >> 10 << 23) AS last_at FROM dragging) d, generate_series(1, 1100)});
	}
	crash_now();
	is(sql(q{SELECT snowid.id_timestamp(snowid.next_id(5, 'honest')) < clock_timestamp() + '4 s'}), 't',
		'the others are not far ahead after a crash');
};

# All sessions would wait for the page of the clock, if each id asked for it.
subtest 'a session that goes on alone' => sub {
	sql('CREATE SEQUENCE alone');
	sql("SELECT snowid.advance('alone', snowid.make_id(clock_timestamp() + '1 minute', 0, 0))");
	my $reads = q{
SELECT pg_stat_force_next_flush();
SELECT blks_hit + blks_read FROM pg_statio_all_sequences WHERE relid = 'snowid_internal.reservation'::regclass;};
	my ($before, $after) = grep { $_ ne '' } split /\n/, sql(qq{
$reads
DO 'BEGIN PERFORM snowid.next_id(5, ''alone'') FROM generate_series(1, 1000); END';
$reads});
	cmp_ok($after - $before, '<', 100, 'does not ask the clock for each id');
};

subtest 'DROP and CREATE EXTENSION before a crash' => sub {
	set_clock($node, '2026-01-01 12:30:01.5');
	sql('CREATE SEQUENCE stays');
	my @seen = (take('stays'), take('stays'));
	sql('SET client_min_messages = warning; DROP EXTENSION snowid CASCADE; CREATE EXTENSION snowid');
	crash($node);
	start_with_clock($node, '2026-01-01 12:00:00');
	cmp_ok(take('stays'), '>', $seen[1], 'with the clock set back');

};

done_testing();
