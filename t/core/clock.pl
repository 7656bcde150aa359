# The clock moves while ids are taken: set back and forward, by an hour and by
# milliseconds.  Ids rise all the time.  While the clock is behind, calls are
# slowed to the layout's rate, and all return.  A state too far ahead of the
# clock is an error that says so.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = new_node('clock');
start_with_clock($node, '+0');

# Any move, under load.  A lock holds the load back until the clock can move.
my $calls = make_calls($node, 50);
my $gate = $node->background_psql('postgres');
$gate->query_safe('BEGIN; LOCK TABLE calls');
my $load = start_load($node, 4, 300, $calls);
my $session = $node->background_psql('postgres');
my @clocks = ('-3600', '+3600', '-0.005', '+0.005', '+0');
my ($last, $falling, $moves) = (0, 0, 0);
$node->poll_query_until('postgres', q{
SELECT count(*) = 4 FROM pg_locks WHERE relation = 'calls'::regclass AND NOT granted})
  or die 'no load';
$gate->query_safe('COMMIT');
$gate->quit;
while ($load->pumpable)
{
	set_clock($node, $clocks[ $moves++ % @clocks ]);
	my $id = $session->query_safe("SELECT snowid.next_id(5, 's')");
	$falling++ if $id <= $last;
	$last = $id;
}
$session->quit;
ok($load->finish, 'four sessions took ids while the clock moved');
cmp_ok($moves, '>=', @clocks, 'each way');
is($falling, 0, 'the next id after a move is larger');
strict_order_ok($node, 'four sessions under a moving clock');

# An id has the time at which its call got the lock, not at which the call began
# to wait for it.
set_clock($node, '+0');
$node->safe_psql('postgres', 'CREATE SEQUENCE locked');
my $owner = $node->background_psql('postgres');
$owner->query_safe('BEGIN; ALTER SEQUENCE locked OWNED BY NONE');
my ($waited, $errors) = ('', '');
my $waiter = IPC::Run::start(
	[
		'psql', '-XAtq', '-c', q{
SELECT snowid.id_timestamp(snowid.next_id(5, 'locked')) > now() + '30 min'},
		$node->connstr('postgres')
	], '>', \$waited, '2>', \$errors);
$node->poll_query_until('postgres', q{
SELECT count(*) = 1 FROM pg_locks
WHERE relation = 'locked'::regclass AND NOT granted}) or die 'no waiter';
set_clock($node, '+3600');
$owner->query_safe('COMMIT');
$owner->quit;
$waiter->finish;
is($waited, "t\n", 'the clock is read under the lock') or diag $errors;
set_clock($node, '+0');

# In bulk, a session does not read the clock for each id.  When it slows down, the
# clock passes the ids that it was ahead of, and none is from before its call.
# (A machine that stalls may be late once.  The portable edition reads it for each id, and does not
# need as many rounds.)
$node->safe_psql('postgres', 'CREATE SEQUENCE slows');
cmp_ok($node->safe_psql('postgres', q{
DO $$
DECLARE
	late_rounds int := 0;
	is_late bool;
	began timestamptz;
	slow text;
BEGIN
	FOR round IN 1 .. CASE WHEN EXISTS (SELECT FROM pg_extension WHERE extname = 'snowid') THEN 40 ELSE 5 END LOOP
		PERFORM snowid.next_id(5, 'slows') FROM generate_series(1, 8192);
		is_late := false;
		FOR i IN 1 .. 3000 LOOP
			slow := md5(repeat(i::text, 500));
			began := date_trunc('milliseconds', clock_timestamp());
			is_late := is_late OR snowid.id_timestamp(snowid.next_id(5, 'slows')) < began;
		END LOOP;
		late_rounds := late_rounds + is_late::int;
	END LOOP;
	PERFORM set_config('late.rounds', late_rounds::text, false);
END $$;
SELECT current_setting('late.rounds');
}), '<', 2, 'no id is from before its call, in bulk or after it');

# CACHE serves in bulk what it has taken.
is($node->safe_psql('postgres', q{
CREATE SEQUENCE cached CACHE 64;
SELECT count(*) FILTER (WHERE id = previous + 1) > 0.95 * count(*)
FROM (SELECT id, lag(id) OVER (ORDER BY id) AS previous
	  FROM (SELECT snowid.next_id(5, 'cached') AS id FROM generate_series(1, 30000)) ids) pairs}),
	't', 'ids of CACHE 64 are consecutive');

# Behind by an hour.  Each call opens a millisecond, so a hundred calls take a
# tenth of a second, however many sessions make them.
$node->safe_psql('postgres', q{
CREATE SEQUENCE behind INCREMENT 1024;
CREATE TABLE times (at timestamptz);
SELECT snowid.next_id(5, 'behind');
});
set_clock($node, '-3600');
for my $clients (1, 4)
{
	ok(start_load($node, $clients, 100, q{
INSERT INTO times SELECT clock_timestamp();
SELECT snowid.next_id(5, 'behind');
INSERT INTO times SELECT clock_timestamp();
})->finish, "$clients session(s) took ids with the clock behind");

	my $ms = $node->safe_psql('postgres', q{
WITH all_times AS (DELETE FROM times RETURNING at)
SELECT extract(epoch FROM max(at) - min(at)) * 1000 FROM all_times});
	cmp_ok($ms, '>=', $clients * 100 - 1,
		"$clients session(s) get 1024 ids in a millisecond at most");
	cmp_ok($ms, '<', $clients * 100 * 50, "$clients session(s) wait briefly");
}

# A session that is ahead of the clock sees that it has gone on.
set_clock($node, '2026-02-28 12:00:00');
$session = $node->background_psql('postgres');
$session->query_safe(q{BEGIN; CREATE SEQUENCE ticks; SELECT count(snowid.next_id(5, 'ticks')) FROM generate_series(1, 7000)});
set_clock($node, '2026-02-28 12:00:01');
is($session->query_safe(q{SELECT snowid.id_timestamp(snowid.next_id(5, 'ticks'))}), '2026-02-28 12:00:01+00', 'a tick is seen within a transaction');
$session->quit;

# Ahead by two days, and then right again.
my $right = '2026-03-01 12:00:00';
$node->safe_psql('postgres', 'CREATE SEQUENCE ahead');
set_clock($node, '2026-03-03 12:00:00');
$last = $node->safe_psql('postgres', "SELECT snowid.next_id(5, 'ahead')");
set_clock($node, $right);
is(sqlstate($node, "SELECT snowid.next_id(5, 'ahead')"), '55000',
	'two days ahead is an error');
my ($ret, $stdout, $stderr) =
  $node->psql('postgres', "SELECT snowid.next_id(5, 'ahead')");
like($stderr, qr{last id is of 2026-03-03 12:00:00(\.\d+)?\+00}i,
	'it names the time of the last id');
like($stderr, qr{clock shows 2026-03-01 12:00:00(\.\d+)?\+00}i,
	'and the time of the clock');

set_clock($node, '2026-03-02 12:00:01');
cmp_ok($node->safe_psql('postgres', "SELECT snowid.next_id(5, 'ahead')"),
	'==', $last + 1, 'less than a day ahead is not, and no id was consumed');

$node->stop;
done_testing();
