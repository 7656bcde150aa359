# Whatever snowid-move waits for longer than some seconds it names, and an abort
# does not wait for it: a transaction that began to write after the move had its
# slot and before the tables have theirs, or before the slot; a lock on the
# target; subscriptions of others that have all the workers; indexes and views.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b');
$b->append_conf('postgresql.conf', q{
max_logical_replication_workers = 3
wal_retrieve_retry_interval = 100ms
});
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;
my $s = 'insta5';		# each subject begins with shard 5 on a, and nothing on b

# Start a move, and wait until it says something.
sub says_ok
{
	my ($pattern, $name, $meanwhile, @options) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $said = '';
	my $tool = IPC::Run::start([ move_command($a, $b, 5, @options) ], '>&', \$said,
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));

	$meanwhile->() if $meanwhile;
	ok(eval { $tool->pump until $said =~ $pattern; 1 }, $name) or diag $said;
	return $tool;
}

# What it has waited for is gone: it comes to its end.
sub goes_on_ok
{
	my ($tool) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$tool->finish;
	is($? >> 8, 0, 'and then it goes on');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
	return;
}

# It writes elsewhere in that server.
subtest 'a transaction that began before the slot' => sub {
	fresh_shard($a, $b);
	my $writer = $a->background_psql('postgres');
	$writer->query_safe('BEGIN; SELECT pg_current_xact_id()');
	my $named = qr/source: waiting for process \d+ of \S+, in a transaction since/;
	says_ok($named, 'it is named')->kill_kill;
	moves_ok($a, $b, 5, ['abort'], 0, 'an abort does not wait for it', qr/is undone/);
	is($writer->query_safe('SELECT 1'), '1', 'which is still open');
	nothing_left_ok($_, 'aborted') for $a, $b;
	my $tool = says_ok($named, 'it is named again');
	$writer->query_safe('COMMIT');
	goes_on_ok($tool);
	$writer->quit;
};

subtest 'a lock on the source' => sub {
	fresh_shard($a, $b);
	my $locker = $a->background_psql('postgres');
	$locker->query_safe("BEGIN; LOCK $s.users IN SHARE UPDATE EXCLUSIVE MODE");
	my $tool = says_ok(qr/source: waiting for process \d+ of \S+, in a transaction since/, 'it is named');
	$locker->query_safe('COMMIT');
	goes_on_ok($tool);
	$locker->quit;
};

subtest 'a lock on the target' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	my $locker = $b->background_psql('postgres');
	$locker->query_safe("BEGIN; LOCK TABLE $s.users");
	$a->safe_psql('postgres', "INSERT INTO $s.users (name) SELECT repeat('x', 1000) FROM generate_series(1, 2000)");
	my $tool = says_ok(qr/target: replication waits for process \d+ of \S+, in a transaction since/, 'it is named',
		undef, '--max-lag', '1kB', '--verify', 'none');
	$locker->query_safe('COMMIT');
	goes_on_ok($tool);
	$locker->quit;
};

# While the move was about to begin, others took all of them.
subtest 'no worker is left' => sub {
	fresh_shard($a, $b);
	$a->safe_psql('postgres', 'CREATE TABLE other (id int PRIMARY KEY); CREATE PUBLICATION other FOR TABLE other');
	$b->safe_psql('postgres', 'CREATE TABLE other (id int PRIMARY KEY)');
	my $from = $a->connstr('postgres') =~ s/'/''/gr;
	my $hold = hold_at_step($b, 'subscribed', 0);
	my $tool = says_ok(qr/target: no worker is free to follow: 3 of max_logical_replication_workers = 3 are at work/,
		'missing workers are named',
		sub {
			wait_until_held($b) or die 'does not get there';
			$b->safe_psql('postgres', "CREATE SUBSCRIPTION o$_ CONNECTION '$from' PUBLICATION other WITH (copy_data = false)") for 1 .. 3;
			$b->poll_query_until('postgres', q{SELECT count(*) = 3 FROM pg_stat_subscription WHERE pid IS NOT NULL})
			  or die 'they do not start';
			$hold->quit;
		});
	let_go_steps($b);
	$b->safe_psql('postgres', "DROP SUBSCRIPTION o$_") for 1 .. 3;
	goes_on_ok($tool);
	$a->safe_psql('postgres', 'DROP PUBLICATION other');
	$_->safe_psql('postgres', 'DROP TABLE other') for $a, $b;
};

# Of what comes after the rows, and of views, which are filled later.
subtest 'an index and a view' => sub {
	fresh_shard($a, $b);
	my $held = $b->background_psql('postgres');
	$_->safe_psql('postgres', 'CREATE FUNCTION public.slow(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RETURN i; END $$') for $a, $b;
	$b->safe_psql('postgres', 'CREATE OR REPLACE FUNCTION public.slow(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(48); RETURN i; END $$');
	$a->safe_psql('postgres', "CREATE INDEX slow ON $s.photos (public.slow(n)); CREATE MATERIALIZED VIEW $s.slows AS SELECT public.slow(n) FROM $s.photos");
	$held->query_safe('SELECT pg_advisory_lock(48)');
	my $tool = says_ok(qr/target: at CREATE INDEX slow .*, since .*, waiting for process \d+ of \S+/, 'an index is named', undef, '--stop-after', 'copied');
	$held->query_safe('SELECT pg_advisory_unlock(48)');
	$tool->finish;
	$held->query_safe('SELECT pg_advisory_lock(48)');
	$tool = says_ok(qr/target: at REFRESH MATERIALIZED VIEW $s\.slows.*, waiting for process/, 'a view is named');
	$held->query_safe('SELECT pg_advisory_unlock(48)');
	$held->quit;
	goes_on_ok($tool);
	$_->safe_psql('postgres', 'DROP FUNCTION public.slow CASCADE') for $a, $b;
};

done_testing();
