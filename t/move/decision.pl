# The servers end sessions around the decision.  It has been made or it hasn't:
# the tool finds out, and goes on.
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

my $end_held = q{
SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = 47 AND NOT granted};
my $end_idle = q{
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'};
my $end_second = q{
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle' AND query ~ 'replay_lsn|emit_message';};
my $undecided = qr/source: connected again.*cut-over: the source has ended the session/s;

# With a new shard, hold the decision, make some trouble, and let go: the move
# goes on by itself.
sub goes_on_ok
{
	my ($name, $message, $trouble, $meanwhile) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return subtest $name => sub {
		fresh_shard($a, $b);
		my $said = '';
		my $hold = hold_at_step($a, 'fenced', 1);
		my $tool = IPC::Run::start(
			[ move_command($a, $b, 5, '--verbose', '--pause-limit', 60000, '--lock-timeout', 60000) ],
			'>&', \$said);

		wait_until_held($a) or die 'does not get there';
		$trouble->();
		$hold->quit;
		$meanwhile->() if $meanwhile;
		$tool->finish;
		is($? >> 8, 0, "$name: it goes on") or diag $said;
		like($said, $message, "$name: says so");
		lives_on_ok($b, $a, $name);
		let_go_steps($a);
		moves_ok($a, $b, 5, ['finish'], 0, "$name: finished");
		nothing_left_ok($_, $name) for $a, $b;
	};
}

goes_on_ok('not decided', $undecided, sub { $a->safe_psql('postgres', $end_held) });

goes_on_ok('not decided, no session at all', $undecided, sub {
	$_->safe_psql('postgres', $end_second . $end_idle) for $b, $a;
	$a->safe_psql('postgres', $end_held);
});

goes_on_ok('not opened', qr/target: connected again/, sub { $b->safe_psql('postgres', $end_idle) });

# Who has decided waits for the standby; and who goes on in his place.
goes_on_ok('not replicated', qr/source: connected again/, sub {
	$a->safe_psql('postgres', q{ALTER SYSTEM SET synchronous_standby_names = 'nobody'});
	$a->reload;

	# Until a commit waits, not all of the server knows of it.
	my $script = PostgreSQL::Test::Utils::tempdir() . '/probe';
	append_to_file($script, "SELECT pg_logical_emit_message(true, 'probe', '') \\watch 0.02\n");
	my $probe = IPC::Run::start([ 'psql', '-X', '-f', $script, $a->connstr('postgres') ], '>&', '/dev/null');
	$a->poll_query_until('postgres', q{
SELECT bool_or(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'}) or die 'does not wait';
	$probe->finish;
}, sub {
	my $waiting = q{FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query};
	$a->poll_query_until('postgres', qq{
SELECT bool_or(pg_terminate_backend(pid)) $waiting = 'COMMIT'}) or die 'does not wait';
	$a->poll_query_until('postgres', qq{
SELECT count(*) > 0 $waiting LIKE '%emit_message%'}) or die 'does not wait again';
	is(journal_step($b), 'ready', 'not replicated: not opened yet');
	$a->safe_psql('postgres', 'ALTER SYSTEM RESET synchronous_standby_names');
	$a->reload;
});

done_testing();
