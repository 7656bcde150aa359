# Files are copied and made anew: by ALTER SEQUENCE, TRUNCATE and SET LOGGED, by
# CREATE DATABASE, also that of the clock itself, and by DROP and CREATE EXTENSION.
# No copy takes a page that a crash has left behind for the truth, nor the clock of
# another file for its own.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use ReservationTest;
use SnowidTest;
use Test::More;

start_at_noon('copies');

# With wal_level minimal, nothing of a copy by "wal_log" is logged then.
$node->append_conf('postgresql.conf', 'wal_skip_threshold = 0');
$node->reload;

# What makes a sequence a new file from its page, as the first thing after a crash.
subject 'a new file from a page that is behind' => [], sub {
	my %rewrite = (
		unlogged => 'ALTER SEQUENCE %s SET UNLOGGED',
		logged => 'ALTER SEQUENCE %s SET UNLOGGED; ALTER SEQUENCE %1$s SET LOGGED',
		step => 'ALTER SEQUENCE %s INCREMENT 2',
		maximum => 'ALTER SEQUENCE %s MAXVALUE 9000000000000000000 CYCLE',
		again => 'ALTER SEQUENCE %s RESTART',
		anew => 'TRUNCATE %1$s_t RESTART IDENTITY',
		to_unlogged => 'ALTER TABLE %1$s_t SET UNLOGGED',
		to_logged => 'ALTER TABLE %1$s_t SET UNLOGGED; ALTER TABLE %1$s_t SET LOGGED',
		identity => 'ALTER TABLE %1$s_t ALTER id SET INCREMENT BY 3 SET CYCLE',
		state => 'SELECT 1',
		advanced => q{SELECT snowid.advance('%s', 0); ALTER SEQUENCE %1$s SET UNLOGGED});
	my @names = sort keys %rewrite;
	my $take_all = join ';', map { "SELECT snowid.next_id(5, '$_')" } @names;
	my %last;

	sql(join ';', map {
		$rewrite{$_} =~ /_t / ? "CREATE TABLE ${_}_t (id bigint GENERATED ALWAYS AS IDENTITY (SEQUENCE NAME $_))" :
		  "CREATE SEQUENCE $_" } @names);
	sql($take_all) for 1 .. 2;
	set_clock($node, '2026-01-01 12:00:00.500');
	sql($take_all);
	@last{@names} = split /\n/, sql($take_all);
	crash_back();
	for my $name (@names)
	{
		cmp_ok(page_at($name), 'lt', time_of($last{$name}), "$name: the page is behind");
		sql(sprintf($rewrite{$name}, $name));
		cmp_ok(known_at($name), 'ge', time_of($last{$name}), "... sequence_state() is not")
		  unless $name =~ /^an|again/;
		cmp_ok(take($name), '>', $last{$name}, "no repetition after a crash and $rewrite{$name}");
	}
};

subject 'a copy of a database with a page that is behind' => ['s'], sub {
	take('s');
	set_clock($node, '2026-01-01 12:00:00.500');
	my $last = take('s');
	crash_back();
	for my $strategy ('wal_log', 'file_copy')
	{
		sql("CREATE DATABASE of_$strategy TEMPLATE $db STRATEGY $strategy", 'postgres');
		cmp_ok(take('s', "of_$strategy"), '>', $last, "no repetition in a copy by $strategy");
	}
};

# Copies have the page of a clock in use, whose record is not theirs.  Pages are
# copied, and logged, in the order of pg_class.  A sequence that comes after the
# clock has a record after the clock's, so its ids are reserved anew; so look at one
# that comes before.
sub copied_first
{
	my $first;

	# Whose row of pg_class is changed more often than a page has room for goes to another page.
	for (1 .. 20)
	{
		$first = sql(q{
SELECT relname FROM pg_class
WHERE relkind = 'S' AND (relname LIKE 's%' OR oid = 'snowid_internal.reservation'::regclass)
ORDER BY ctid LIMIT 1});
		last if $first ne 'reservation';
		sql(q{DO $$ BEGIN FOR i IN 1 .. 60 LOOP
	GRANT USAGE ON SEQUENCE snowid_internal.reservation TO pg_monitor;
	REVOKE USAGE ON SEQUENCE snowid_internal.reservation FROM pg_monitor;
END LOOP; END $$});
	}
	isnt($first, 'reservation', 'a sequence that is copied before the clock');
	return $first;
}

subject 'a copy of a database with a clock in use' => [ map { "s$_" } 1 .. 100 ], sub {
	my $first = copied_first();
	take($first);
	set_clock($node, '2026-01-01 12:00:10');
	take($first);
	for my $strategy ('wal_log', 'file_copy')
	{
		sql("CREATE DATABASE $strategy TEMPLATE $db STRATEGY $strategy", 'postgres');
		take($first, $strategy);
		my $seen = take($first, $strategy);
		cmp_ok(next_after_crash($first, $strategy), '>', $seen, "a copy by $strategy, and a crash");
	}
};

# ALTER copies the tuple of a page in use.
subject 'the clock has another file' => [ 'busy', 'seldom' ], sub {
	take($_) for ('busy', 'seldom');
	my $session = session();
	$session->query_safe(q{SELECT snowid.next_id(5, 'busy')});
	sql('ALTER SEQUENCE snowid_internal.reservation INCREMENT 1 CYCLE');
	$session->query_safe(q{SELECT snowid.next_id(5, 'seldom')});
	my $seen = $session->query_safe(q{SELECT snowid.next_id(5, 'seldom')});
	cmp_ok(next_after_crash('seldom'), '>', $seen, 'no repetition after a crash');
};

subject 'an unlogged clock' => [ 'busy', 'seldom' ], sub {
	take($_) for ('busy', 'seldom');
	sql('ALTER SEQUENCE snowid_internal.reservation SET UNLOGGED');
	is(sqlstate($node, q{SELECT snowid.next_id(5, 'busy')}, dbname => $db), '55000', 'is refused');
	sql('ALTER SEQUENCE snowid_internal.reservation SET LOGGED');
	my $seen = take('seldom');
	cmp_ok(next_after_crash('seldom'), '>', $seen, 'and then it is logged again');
};

subject 'a sequence that was unlogged for a while' => ['seldom'], sub {
	take('seldom');
	sql('ALTER SEQUENCE seldom SET UNLOGGED');
	sql('ALTER SEQUENCE seldom SET LOGGED');
	take('seldom');
	my $seen = take('seldom');
	cmp_ok(next_after_crash('seldom'), '>', $seen, 'no repetition after a crash');
};

# DROP EXTENSION takes the clock away; what is not lost in a crash is on the
# pages, and a new clock starts from now.
my $anew = 'SET client_min_messages = warning; DROP EXTENSION snowid CASCADE; CREATE EXTENSION snowid';

subject 'DROP EXTENSION waits for who uses a reservation' => ['busy'], sub {
	take('busy');
	my $session = session();
	$session->query_safe(q{BEGIN; SELECT snowid.next_id(5, 'busy')});
	my $dropper = session();
	waits_ok($dropper, "BEGIN; DROP EXTENSION snowid CASCADE; SELECT 'gone'; ROLLBACK", 'Lock', 'it waits for a lock');
	$session->query_safe('COMMIT');
	$dropper->quit;
	$session->quit;
};

subject 'a clock that is gone' => [ 'busy', 'seldom' ], sub {
	my $session = session();
	$session->query_safe(q{SELECT snowid.next_id(5, 'busy')});
	take('seldom');
	my $seen = take('seldom');
	my $dropper = session();
	$dropper->query_safe("BEGIN; $anew");
	my $waiter = session();
	$waiter->{stdin} .= "SELECT snowid.next_id(5, 'busy') > 0;\n";
	$waiter->{run}->pump_nb;
	$node->poll_query_until('postgres', 'SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)')
	  or die 'who has a clock does not wait';
	$dropper->query_safe('COMMIT');
	$dropper->quit;
	is($waiter->query_safe(q{SELECT 'next'}), "t\nnext", 'who has waited for it takes the new one');
	$waiter->quit;
	set_clock($node, '2026-01-01 11:00:00');
	cmp_ok(take('seldom'), '>', $seen, 'no crash: the pages know');
	$session->query_safe(q{SELECT snowid.next_id(5, 'busy')});
	$seen = $session->query_safe(q{SELECT snowid.next_id(5, 'busy')});
	cmp_ok(next_after_crash('busy'), '>', $seen, 'a session does not go on with the old clock');
};

subject 'a crash, DROP and CREATE EXTENSION, and the clock set back' => ['seldom'], sub {
	take('seldom');
	set_clock($node, '2026-01-01 12:00:01.5');
	my $seen = take('seldom');
	crash($node);
	start_with_clock($node, '2026-01-01 12:00:02');
	sql($anew);
	set_clock($node, '2026-01-01 11:00:00');
	cmp_ok(take('seldom'), '>', $seen, 'the new clock knows');
};

# The page has the database's OID again, and a record of the copy's own.
$node->stop;
$node->append_conf('postgresql.conf', 'wal_level = replica');
start_with_clock($node, $noon);
subject 'a database that is made again, with its OID, from its copy' => [ map { "s$_" } 1 .. 100 ], sub {
	my $first = copied_first();
	my $oid = sql('SELECT oid FROM pg_database WHERE datname = current_database()');

	take($first);
	sql("CREATE DATABASE aside TEMPLATE $db STRATEGY wal_log", 'postgres');
	sql("DROP DATABASE $db", 'postgres');
	sql("CREATE DATABASE $db TEMPLATE aside STRATEGY wal_log OID $oid", 'postgres');
	take($first);
	my $seen = take($first);
	cmp_ok(next_after_crash($first), '>', $seen, 'no repetition after a crash');
};

$node->stop;
done_testing();
