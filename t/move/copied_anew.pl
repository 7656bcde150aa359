# A table whose slot on the source is gone before the target has noted that the
# table is complete: it is copied anew, but not while a worker lives that can
# still note that, nor while somebody writes to it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run;
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $source = move_node('a');
my $target = move_node('b');
$_->start for $source, $target;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $source, $target;
my $s = 'insta5';		# each subject begins with lose_slot()

# Type the move of both shards.
sub start_copy
{
	my ($said) = @_;

	return IPC::Run::start([ move_command($source, $target, '5-6', '--stop-after', 'copied') ], '>&', $said,
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
}

# Begin a move of two fresh shards, and take the slot of table t40, whose worker
# has copied it.  That it is gone then is a matter of microseconds, so it is made:
# the table waits to be complete behind a row that is locked.  Returns the tool,
# what it says, and the sessions that hold it up.
sub lose_slot
{
	fresh_shard($source, $target);
	$source->safe_psql('postgres', qq{
SELECT format('CREATE TABLE $s.t%s AS SELECT $s.next_id() AS id, 1 AS n FROM generate_series(1, 3)', i),
	format('ALTER TABLE $s.t%s ADD PRIMARY KEY (id)', i) FROM generate_series(1, 40) i \\gexec});
	$source->safe_psql('postgres', q{CALL snowid.create_shards(6, 6, ddl => 'CREATE TABLE users (id bigint PRIMARY KEY DEFAULT next_id())')});

	my $hold = $target->background_psql('postgres');
	my $said = '';
	my $tool = start_copy(\$said);
	my $state = q{(SELECT srsubstate FROM pg_subscription_rel WHERE srrelid = 'insta5.%s'::regclass)};
	$target->poll_query_until('postgres', q{SELECT to_regclass('insta5.t40') IS NOT NULL}) or die 'no schema';
	$hold->query_safe("BEGIN; LOCK TABLE $s.t40 IN SHARE ROW EXCLUSIVE MODE");
	$target->poll_query_until('postgres', 'SELECT ' . sprintf($state, 'users') . q{ = 'r'}) or die 'not copied';
	my $second = $target->background_psql('postgres');
	$second->query_safe("BEGIN; LOCK TABLE $s.users IN SHARE ROW EXCLUSIVE MODE");
	$source->safe_psql('postgres', "UPDATE $s.users SET photos = 1");
	$hold->query_safe('COMMIT');
	$target->poll_query_until('postgres', 'SELECT ' . sprintf($state, 't40') . q{ = 'f'}) or die 'not in between';

	my $table = $target->safe_psql('postgres', "SELECT '$s.t40'::regclass::oid");
	my $slot = $source->safe_psql('postgres', qq{SELECT slot_name FROM pg_replication_slots WHERE slot_name LIKE 'pg\\_%\\_sync\\_${table}\\_%'});
	$source->safe_psql('postgres', "SELECT pg_drop_replication_slot('$slot')");
	return ($tool, \$said, $hold, $second);
}

# While a worker lives that can still commit that the table is complete, it is
# not copied anew, however often the tool looks.
subtest 'a worker lives' => sub {
	my ($tool, $said, $hold, $second) = lose_slot();
	my $log = -s $target->logfile;

	$target->safe_psql('postgres', $_) for 'ALTER SYSTEM SET log_min_duration_statement = 0', 'SELECT pg_reload_conf()';
	$target->wait_for_log(qr/srsubstate = 'f'.*srsubstate = 'f'/s, $log);
	$tool->pump_nb;
	unlike($$said, qr/copying table .* again/, 'it is waited for');
	$target->safe_psql('postgres', $_) for 'ALTER SYSTEM RESET log_min_duration_statement', 'SELECT pg_reload_conf()';
	$tool->kill_kill;
	$second->query_safe('COMMIT');
	$_->quit for $hold, $second;
	moves_ok($source, $target, '5-6', ['abort'], 0, 'aborted');
	nothing_left_ok($_, 'aborted') for $source, $target;
};

# A crash loses the commit that says that the table is complete.  What is then
# under way is noted for its shard alone, since the others of its batch may go
# on without it.
subtest 'a crash of the target' => sub {
	my ($tool, undef, $hold, $second) = lose_slot();

	# What the worker commits is flushed later: by this at the latest.
	$target->safe_psql('postgres', q{SELECT pg_logical_emit_message(true, 'flush', '')});
	$tool->kill_kill;
	crash($target);
	$_->{run}->kill_kill for $hold, $second;
	$target->start;

	# That others write to a table that is copied already is no progress.
	my $script = PostgreSQL::Test::Utils::tempdir() . '/insert';
	append_to_file($script, "INSERT INTO $s.users (name) VALUES (repeat('x', 1000));\n");
	my $inserter = IPC::Run::start(
		[ 'pgbench', '-n', '-R', 200, '-T', 600, '-f', $script, $source->connstr('postgres') ], '>&', '/dev/null');
	my $open = $source->background_psql('postgres');
	$open->query_safe("BEGIN; UPDATE $s.t40 SET n = 2");
	my $said = '';
	$tool = start_copy(\$said);
	my $anew = qr/copying table insta5\.t40 again.*waiting for transactions that are writing to table insta5\.t40/s;
	ok(eval { $tool->pump until $said =~ $anew; 1 }, 'the table is copied anew, when nobody is writing to it') or diag $said;
	$tool->kill_kill;
	is($source->safe_psql('postgres', q{SELECT string_agg(shard::text, ',') FROM snowid.moves WHERE details ? 'copied_anew'}),
		5, 'noted for its shard');

	$said = '';
	$tool = start_copy(\$said);
	my $waits = qr/waiting for transactions that are writing to table insta5\.t40/;
	ok(eval { $tool->pump until $said =~ $waits; 1 }, 'the same command goes on') or diag $said;
	$open->query_safe('COMMIT');
	$open->quit;
	$tool->finish;
	is($? >> 8, 0, 'copied') or diag $said;
	is($source->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'INSERT %'}), 1, 'while others write');
	$inserter->kill_kill;
	moves_ok($source, $target, '5-6', [ '--verify', 'checksums' ], 0, 'moved', qr/no difference/);
	moves_ok($source, $target, '5-6', ['finish'], 0, 'finished');
	nothing_left_ok($_, 'finished') for $source, $target;
};

done_testing();
