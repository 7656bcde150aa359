# A table that was made after all had been copied has its rows nowhere else:
# finish does not drop it, and whoever is making one is waited for, whenever
# that is.  Nor does it drop a definition that was changed then.
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
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;
my $s = 'insta5';		# each subject begins with shard 5 on a, and nothing on b

subtest 'made in the closed copy' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [], 0, 'moved');
	$a->safe_psql('postgres', 'CREATE TABLE insta5_moved.late AS SELECT 1');
	moves_ok($a, $b, 5, ['finish'], 1, 'rows that are nowhere else', qr/insta5_moved\.late/);
	$a->safe_psql('postgres', 'DROP TABLE insta5_moved.late');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
};

subtest 'being made before the decision' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	my $maker = $a->background_psql('postgres');
	$maker->query_safe("BEGIN; CREATE TABLE $s.late (id bigint PRIMARY KEY); INSERT INTO $s.late VALUES (1)");
	moves_ok($a, $b, 5, [ '--retries', 1 ], 1, 'a table that is being made', qr/another transaction is creating/);
	$maker->query_safe('ROLLBACK');
	$maker->quit;
	moves_ok($a, $b, 5, ['abort'], 0, 'aborted');
};

# It holds up the renaming, but not for ever, and is not dropped.
subtest 'begun just after the decision' => sub {
	fresh_shard($a, $b);
	my $maker = $a->background_psql('postgres');
	my $hold = hold_at_step($b, 'open', 1);
	my $said = '';
	my $tool = IPC::Run::start([ move_command($a, $b, 5, '--pause-limit', 60000, '--lock-timeout', 60000) ], '>&', \$said);
	wait_until_held($b) or die 'does not get there';
	$maker->query_safe("BEGIN; CREATE TABLE $s.late (id bigint PRIMARY KEY); INSERT INTO $s.late VALUES (1)");
	$hold->quit;
	$tool->finish;
	is($? >> 8, 3, 'a table that is begun just after the decision') or diag $said;
	like($said, qr/another transaction is creating/, 'it is told why');
	let_go_steps($b);
	$maker->query_safe('COMMIT');
	$maker->quit;
	moves_ok($a, $b, 5, [], 0, 'the same command goes on');
	moves_ok($a, $b, 5, ['finish'], 1, 'its rows are not dropped', qr/insta5_moved\.late/);
	$a->safe_psql('postgres', 'DROP TABLE insta5_moved.late');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
};

# A change of which no lock tells, committed after the decision.
subtest 'a function that is altered' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	my $maker = $a->background_psql('postgres');
	$maker->query_safe("BEGIN; ALTER FUNCTION $s.next_id() COST 7");
	moves_ok($a, $b, 5, [], 0, 'moved');
	$maker->query_safe('COMMIT');
	$maker->quit;
	moves_ok($a, $b, 5, ['finish'], 1, 'it is not dropped', qr/a definition in the copy .*"insta5_moved", was changed after it was closed.*--cascade/s);
	moves_ok($a, $b, 5, [ 'finish', '--cascade' ], 0, 'unless told so');
	nothing_left_ok($_, 'a function that is altered') for $a, $b;
};

subtest 'being made while the copy is dropped' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [], 0, 'moved');
	my $maker = $a->background_psql('postgres');
	my $said = '';
	$maker->query_safe('BEGIN; CREATE TABLE insta5_moved.late AS SELECT 1');
	my $tool = IPC::Run::start([ move_command($a, $b, 5, 'finish') ], '>&', \$said);
	$a->poll_query_until('postgres', q{
SELECT EXISTS (SELECT FROM pg_locks WHERE classid = 'pg_namespace'::regclass AND NOT granted)})
	  or die 'does not wait';
	$maker->query_safe('COMMIT');
	$maker->quit;
	$tool->finish;
	is($? >> 8, 1, 'a table that is begun before the copy is dropped') or diag $said;
	like($said, qr/insta5_moved\.late/, 'its rows are not dropped');
	is($a->safe_psql('postgres', 'TABLE insta5_moved.late'), '1', 'they are there');
	$a->safe_psql('postgres', 'DROP TABLE insta5_moved.late');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
};

done_testing();
