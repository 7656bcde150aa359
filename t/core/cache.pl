# The promise, over CACHE 1, 8, 64 and 1000, changed while eight sessions take
# ids, and through a crash with the clock set back: no id comes twice, each
# session's own ids rise, and those of different sessions are in order to the
# 10 ms of pacing; with CACHE 1 again, strictly.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SnowidTest;
use Test::More;

my $node = new_node('cache');
start_with_clock($node, '+0');
my $take = make_calls($node, 300);
$node->safe_psql('postgres',
	'ALTER TABLE calls ADD pid int DEFAULT pg_backend_pid(); '
	  . 'ALTER TABLE calls ADD came serial');

sub session_order_ok
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is( $node->safe_psql('postgres', q{
SELECT count(*) > 0, count(*) - count(DISTINCT id) FROM calls}),
		't|0', "$name: no id twice");
	is( $node->safe_psql('postgres', q{
SELECT count(*) FROM (
	SELECT id, lag(id) OVER (PARTITION BY pid ORDER BY came) AS before
	FROM calls) AS c
WHERE id <= before}),
		'0', "$name: each session's ids rise");
	is( $node->safe_psql('postgres', q{
SELECT count(*) FROM (
	SELECT id, begins, max(id) FILTER (WHERE NOT begins) OVER (ORDER BY tick) AS largest
	FROM (SELECT began, id, true FROM calls
		UNION ALL SELECT ended, id, false FROM calls) AS e (tick, id, begins)) AS c
WHERE begins AND (largest >> 23) - (id >> 23) > 11}),
		'0', "$name: order between sessions to 10 ms");
	return;
}

# Mixed in time.
my $load = start_load($node, 8, 75, $take);
my $session = $node->background_psql('postgres');
for my $n ((1, 8, 64, 1000) x 6)
{
	$session->query_safe("ALTER SEQUENCE s CACHE $n; $take");
}
ok($load->finish, 'sessions took ids while CACHE changed');
session_order_ok('CACHE changed');

# Each alone, through a crash with the clock set back, so that a loss shows.
# Of the calls before, only those can be out of order with what follows that are of the last milliseconds.
for my $n (1, 8, 64, 1000)
{
	$session->query_safe(qq{
ALTER SEQUENCE s CACHE $n;
CREATE TEMP TABLE last AS SELECT * FROM calls WHERE id >> 23 >= (SELECT max(id) >> 23 FROM calls) - 11;
TRUNCATE calls;
INSERT INTO calls TABLE last});
	ok(start_load($node, 8, 20, $take)->finish, "sessions took ids, CACHE $n");
	$session->quit;
	crash($node);
	start_with_clock($node, '-' . 5 * $n);
	$session = $node->background_psql('postgres');
	ok(start_load($node, 8, 20, $take)->finish, "sessions took ids after a crash, CACHE $n");
	session_order_ok("CACHE $n");
}

$node->safe_psql('postgres', 'TRUNCATE calls; ALTER SEQUENCE s CACHE 1');
ok(start_load($node, 8, 20, $take)->finish, 'sessions took ids, CACHE 1 again');
strict_order_ok($node, 'CACHE 1 again');

$session->quit;
$node->stop;
done_testing();
