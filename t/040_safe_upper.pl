# A reader that polls up to safe_upper_id() misses no row: under load from
# transactions of every kind, when the clock is set back, and when a session
# hides its start.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = new_node('main', allows_streaming => 1);
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
command_ok([ 'pgbench', '-n', '-c', 6, '-T', 4, @arguments, $node->connstr('postgres') ],
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
	my $id = $node->safe_psql('postgres', q{
BEGIN;
INSERT INTO events DEFAULT VALUES RETURNING id;
PREPARE TRANSACTION 'p';});
	is(bound('= 0'), 't', 'a prepared transaction allows nothing');
	$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});
	is(bound("> $id"), 't', 'until it is committed');

	# The clock is set back within a transaction: its ids are not older than its
	# start.
	my $session = $node->background_psql('postgres');
	$session->query_safe('BEGIN');
	set_clock($node, '-60');
	$id = $session->query_safe('INSERT INTO events DEFAULT VALUES RETURNING id');
	set_clock($node, '+0');
	is(bound("<= $id"), 't', 'the clock set back in a transaction does not lift the bound over its ids');
	$session->quit;
	$node->stop;
	done_testing();
	exit;
}

# A prepared transaction is bounded by its start, also after a restart.
my $id = $node->safe_psql('postgres', q{
BEGIN;
INSERT INTO events DEFAULT VALUES RETURNING id;
PREPARE TRANSACTION 'p';});
my $recent = q{> snowid.min_id(now() - interval '1 minute')};
is(bound("<= $id"), 't', 'a prepared transaction holds the bound back');
is(bound($recent), 't', 'to its start');
crash($node);
# (After a crash, ids are some seconds ahead of the clock at first.)
start_with_clock($node, '+5');
is(bound("<= $id"), 't', 'also after a crash');
is(bound($recent), 't', 'to its start');
$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});
is(bound("> $id"), 't', 'until it is committed');

# One that used the sequence without next_id() has kept no start.
$node->safe_psql('postgres', q{BEGIN; SELECT nextval('s'); PREPARE TRANSACTION 'p';});
is(bound('= 0'), 't', 'a prepared transaction of unknown start allows nothing');
$node->safe_psql('postgres', q{ROLLBACK PREPARED 'p'});

# The clock is set back within a transaction: its ids are older than its start.
for my $end ('COMMIT', q{PREPARE TRANSACTION 'p'})
{
	$node->safe_psql('postgres', 'DROP TABLE events; DROP SEQUENCE s;
CREATE SEQUENCE s; CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowid.next_id(5, $$s$$))');
	my $writer = $node->background_psql('postgres');
	$writer->query_safe('BEGIN; SELECT count(*) FROM events');
	set_clock($node, '-3600');
	$id = $writer->query_safe('INSERT INTO events DEFAULT VALUES RETURNING id');
	set_clock($node, '+5');
	if ($end eq 'COMMIT')
	{
		is(bound("<= $id"), 't', "the bound is below an id that is older than its transaction's start");
		$writer->query_safe('INSERT INTO events DEFAULT VALUES');
		is(bound("<= $id"), 't', 'also once the clock is right again');
		$writer->query_safe($end);
	}
	else
	{
		$writer->query_safe($end);
		is(bound("<= $id"), 't', 'also of a prepared transaction');
		$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});
	}
	is(bound("> $id"), 't', 'until it ends');
	$writer->quit;
}

# A sequence that is ahead of a clock set back takes its ids without it.
$node->safe_psql('postgres', 'CREATE SEQUENCE ahead');
set_clock($node, '-60');
$node->safe_psql('postgres', q{SELECT snowid.next_id(5, 'ahead')});
set_clock($node, '+5');
my $ahead = $node->background_psql('postgres');
$ahead->query_safe('BEGIN; SELECT count(*) FROM events');
set_clock($node, '-3600');
$id = $ahead->query_safe(q{SELECT snowid.next_id(5, 'ahead')});
set_clock($node, '+5');
is(bound("<= $id", 'ahead'), 't', 'the bound is below an id ahead of a clock that was set back');
$ahead->query_safe('COMMIT');
$ahead->quit;

# No later id is below a bound, even if the clock is set back.
my $upper = $node->safe_psql('postgres', q{SELECT snowid.safe_upper_id('s')});
set_clock($node, '-3600');
is($node->safe_psql('postgres', "SELECT snowid.next_id(0, 's') > $upper"),
	't', 'a clock that is set back makes no id below the bound');
set_clock($node, '+5');

# A session that hides its start.
my $writer = $node->background_psql('postgres');
$writer->query_safe('SET track_activities = off');
$writer->query_safe('BEGIN; INSERT INTO events DEFAULT VALUES');
is(bound('= 0'), 't', 'a transaction of unknown start allows nothing');
$writer->query_safe('COMMIT');
is(bound($recent), 't', 'until it ends');
$writer->quit;

# A second call in the same transaction looks at the sessions again.
my $asker = $node->background_psql('postgres');
$writer = $node->background_psql('postgres');
$writer->query_safe('BEGIN; INSERT INTO events DEFAULT VALUES');
$asker->query_safe(q{BEGIN; SELECT snowid.safe_upper_id('s')});
$writer->query_safe('COMMIT');
set_clock($node, '+10');
$writer->query_safe('BEGIN; INSERT INTO events DEFAULT VALUES');
cmp_ok($asker->query_safe(q{SELECT snowid.safe_upper_id('s')}), '>',
	$node->safe_psql('postgres', 'SELECT max(id) FROM events'),
	'the second bound in a transaction is as good as the first');
$asker->query_safe('COMMIT');
$writer->query_safe('COMMIT');
$_->quit for $asker, $writer;

# A standby can't know; what to do there is in the hint.
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
start_with_clock($standby, '+0');
is(sqlstate($standby, q{SELECT snowid.safe_upper_id('s')}), '25006', 'refused on a standby');
($upper, my $lsn) = split /\|/, $node->safe_psql('postgres', q{
INSERT INTO events DEFAULT VALUES;
SELECT snowid.safe_upper_id('s'), pg_current_wal_insert_lsn()});
$standby->poll_query_until('postgres', "SELECT pg_last_wal_replay_lsn() >= '$lsn'");
is($standby->safe_psql('postgres', "SELECT count(*) FROM events WHERE id < $upper"),
	$node->safe_psql('postgres', "SELECT count(*) FROM events WHERE id < $upper"),
	'which has the rows below the bound, once it has replayed up to it');

done_testing();

# Does the comparison hold for the bound now?
sub bound
{
	my ($comparison, $sequence) = @_;
	$sequence //= 's';
	return $node->safe_psql('postgres', "SELECT snowid.safe_upper_id('$sequence') $comparison");
}
