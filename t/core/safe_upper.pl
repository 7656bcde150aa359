# A reader that polls up to safe_upper_id() misses no row, under load from
# transactions of every kind.  safe_upper_bound.pl has the cases one by one, of the C edition.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = new_node('main');
$node->append_conf('postgresql.conf', 'max_prepared_transactions = 20');
start_with_clock($node, '+0');
$node->safe_psql('postgres', q{
CREATE EXTENSION snowid;
CREATE SEQUENCE s;
CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowid.next_id(5, 's'));
CREATE TABLE seen (reader text, id bigint);
CREATE TABLE stop ();
});

# Two readers in one loop: what each sees is noted.  The last round is made
# when nothing is written any more.
$node->safe_psql('postgres', q{
CREATE PROCEDURE read_all() LANGUAGE plpgsql AS $$
DECLARE
	naive_last bigint := 0;
	safe_last bigint := 0;
	upper bigint;
	rounds int := 0;
	is_last boolean := false;
BEGIN
	LOOP
		upper := snowid.safe_upper_id('s');
		INSERT INTO seen SELECT 'safe', id FROM events WHERE id >= safe_last AND id < upper;
		safe_last := greatest(safe_last, upper);
		INSERT INTO seen SELECT 'naive', id FROM events WHERE id > naive_last;
		naive_last := greatest(naive_last, (SELECT max(id) FROM events));
		COMMIT;
		rounds := rounds + 1;
		EXIT WHEN is_last;
		is_last := to_regclass('stop') IS NULL AND
			snowid.safe_upper_id('s') > (SELECT max(id) FROM events);
		COMMIT;
	END LOOP;
	RAISE NOTICE '% rounds', rounds;
END $$;
});

my $reader = IPC::Run::start(
	[ 'psql', '-Xq', '-c', 'CALL read_all()', $node->connstr('postgres') ],
	'2>', \my $rounds);

my %scripts = (
	plain => 'INSERT INTO events DEFAULT VALUES;',
	savepoint => q{
BEGIN;
SAVEPOINT a;
INSERT INTO events DEFAULT VALUES;
ROLLBACK TO a;
INSERT INTO events DEFAULT VALUES;
COMMIT;},
	prepared => q{
\set n random(1, 1000000000)
BEGIN;
INSERT INTO events DEFAULT VALUES;
PREPARE TRANSACTION ':client_id-:n';
SELECT 1;
COMMIT PREPARED ':client_id-:n';},
	long => q{
BEGIN;
INSERT INTO events DEFAULT VALUES;
SELECT count(*) FROM generate_series(1, 20000);
INSERT INTO events DEFAULT VALUES;
COMMIT;});
my @arguments;
for my $name (sort keys %scripts)
{
	my $file = $node->basedir . "/$name.sql";
	append_to_file($file, $scripts{$name});
	push @arguments, '-f', $file;
}
command_ok([ 'pgbench', '-n', '-c', 6, '-T', 2, @arguments, $node->connstr('postgres') ],
	'transactions of every kind');
$node->safe_psql('postgres', 'DROP TABLE stop');
$reader->finish;
note $rounds;

is($node->safe_psql('postgres', q{
SELECT count(*) > 100, count(*) - count(DISTINCT id) FROM seen WHERE reader = 'safe'}),
	't|0', 'the safe reader sees rows, each once');
is($node->safe_psql('postgres', q{
SELECT count(*) FROM (SELECT id FROM events EXCEPT SELECT id FROM seen WHERE reader = 'safe') missed}),
	'0', 'and misses none');
cmp_ok($node->safe_psql('postgres', q{
SELECT count(*) FROM (SELECT id FROM events EXCEPT SELECT id FROM seen WHERE reader = 'naive') missed}),
	'>', 0, 'the naive one misses some');

# The portable edition knows no start of a prepared transaction.
if ($SnowidTest::edition eq 'portable')
{
	subtest 'portable: a prepared transaction' => sub {
		my $id = $node->safe_psql('postgres', q{
BEGIN;
INSERT INTO events DEFAULT VALUES RETURNING id;
PREPARE TRANSACTION 'p';});
		is(bound('= 0'), 't', 'allows nothing');
		$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});
		is(bound("> $id"), 't', 'until it is committed');
	};

	# Its ids are not older than its start.
	subtest 'portable: the clock is set back within a transaction' => sub {
		my $session = $node->background_psql('postgres');
		$session->query_safe('BEGIN');
		set_clock($node, '-60');
		my $id = $session->query_safe('INSERT INTO events DEFAULT VALUES RETURNING id');
		set_clock($node, '+0');
		is(bound("<= $id"), 't', 'the bound is below its ids');
		$session->query_safe('COMMIT');

		# By less than what a session counts ahead of the clock.
		set_clock($node, '2038-01-01 12:00:00.998');
		$session->query_safe('INSERT INTO events DEFAULT VALUES') for 1 .. 3;
		set_clock($node, '2038-01-01 12:00:01');
		$session->query_safe('BEGIN');
		set_clock($node, '2038-01-01 12:00:00.997');
		$id = $session->query_safe('INSERT INTO events DEFAULT VALUES RETURNING id');
		set_clock($node, '2038-01-01 12:00:02');
		is(bound("<= $id"), 't', 'also if that is a little only');
		$session->quit;
	};
}

$node->stop;
done_testing();

# Does the comparison hold for the bound now?
sub bound
{
	my ($comparison) = @_;
	return $node->safe_psql('postgres', "SELECT snowid.safe_upper_id('s') $comparison");
}
