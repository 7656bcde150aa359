# snowid-move restore, killed with its session at each of its steps, before their commit:
# the shard stays open, with the rows that it had or those that come back, and the same
# command ends it.  A COMMIT whose answer is lost is looked up.  Pools that were paused go on with
# the next command, and those that somebody else has paused stay so.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run ();
use MoveTest;
use PoolerTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $live = move_node('live');
$live->start;
make_shard($live, 5, 'insta5');
$live->backup('then');
my $then = PostgreSQL::Test::Cluster->new('then');
$then->init_from_backup($live, 'then');
$then->start;
$live->safe_psql('postgres', q{
DELETE FROM insta5.users WHERE name LIKE 'user 1%';
CREATE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(47); RETURN NULL; END $$;
});
my $left = $live->safe_psql('postgres', 'SELECT count(*) FROM insta5.users');
my @command = move_command($then, $live, 5, 'restore', '--pause-limit', 60000, '--lock-timeout', 60000);
my $hold = $live->background_psql('postgres');

# Start it, and wait until it is held as a row of that kind is written, or deleted with its COMMIT.
sub held
{
	my ($when) = @_;

	$live->safe_psql('postgres', "CREATE CONSTRAINT TRIGGER hold AFTER INSERT OR UPDATE ON snowid.copies DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN ($when) EXECUTE FUNCTION public.hold()");
	$hold->query_safe('SELECT pg_advisory_lock(47)');
	my $run = IPC::Run::start(\@command, '>', \my $out, '2>&1');
	wait_until_held($live) or die "does not get to $when";
	return ($run, \$out);
}

sub let_go
{
	$hold->query_safe('SELECT pg_advisory_unlock(47)');
	$live->safe_psql('postgres', 'DROP TRIGGER hold ON snowid.copies');
	return;
}

sub terminate
{
	$live->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = 47 AND NOT granted});
	$live->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory' AND objid = 47 AND NOT granted});
	return;
}

for my $kind ('copying', 'copy', 'before')
{
	my ($run) = held("NEW.kind = '$kind'");

	$run->signal('KILL');
	$run->finish;
	terminate();
	let_go();
	is($live->safe_psql('postgres', q{SELECT lives || ' ' || (SELECT count(*) FROM insta5.users) || ' ' || (SELECT count(*) FROM snowid.moves) || ' ' || (insta5.next_id() > 0) FROM snowid.shards}),
		"here $left 0 true", "killed at $kind: the shard is as it was");
}

my ($run, $out, $code, $said);

SKIP: {
	skip 'pgbouncer is not installed', 1 unless have_pgbouncer();
	my $p = start_pooler($live);
	my @plain = @command;
	push @command, pooler_options($p);
	my @finish = ('snowid-move', 'finish', '--shard', 5, '--to', $live->connstr('postgres'));
	for my $next ([ @finish, pooler_options($p) ], [@command])
	{
		($run) = held(q{NEW.kind = 'before'});
		$run->signal('KILL');
		$run->finish;
		terminate();
		let_go();
		like(led_to($p, 'insta5'), qr/ paused/, 'killed in the pause: the pool stays paused');
		IPC::Run::run(\@finish, '>', \$said, '2>&1');
		like($said, qr/may have left the pool of shard 5 paused: type the command with its --pooler/, '... as any command says');
		IPC::Run::run($next, '>', \$said, '2>&1');
		is($?, 0, "next: $next->[1]") or diag $said;
		is(led_to($p, 'insta5'), $live->port, '... lets its clients go on');
		is(login_retry($p), 15, '... and puts server_login_retry back');
	}
	IPC::Run::run([ 'psql', '-Xqc', 'PAUSE insta5', console($p) ]) or die;
	($code, $said) = snowid_move($then, $live, 5, 'undo', pooler_options($p), '--retries', 0);
	is($code, 1, 'paused by somebody else') or diag $said;
	like($said, qr/somebody has paused pool "insta5"/, '... is told');
	like(led_to($p, 'insta5'), qr/ paused/, '... and stays so');
	IPC::Run::run([ 'psql', '-Xqc', 'RESUME insta5', console($p) ]) or die;
	($code, $said) = snowid_move($then, $live, 5, 'undo', pooler_options($p));
	is($code, 0, 'undone') or diag $said;
	is(led_to($p, 'insta5'), $live->port, 'and the pool goes on');
	is($live->safe_psql('postgres', q{SELECT count(*) FROM snowid.copies WHERE details ? 'poolers'}), '0', 'nothing is noted');
	IPC::Run::run(\@finish) or die;
	@command = @plain;
}

# The server goes with the COMMIT: nobody knows.
($run, $out) = held(q{NEW.kind = 'before'});
$live->stop('immediate');
$run->finish;
is($run->full_result(0) >> 8, 3, 'it does not say that nothing was done') or diag $$out;
$live->start;
$hold->quit;
$hold = $live->background_psql('postgres');
$live->safe_psql('postgres', 'DROP TRIGGER hold ON snowid.copies');

# Who has taken an id and goes on is told.
$hold->query_safe('BEGIN; SELECT insta5.next_id()');
($code, $said) = snowid_move($then, $live, 5, 'restore', '--retries', 0);
is($code, 1, 'somebody holds the sequence') or diag $said;
like($said, qr/error: a transaction that has taken ids/, 'is told');
$hold->query_safe('ROLLBACK');

# Its session is ended in the COMMIT, which is rolled back: it tries again.
($run, $out) = held(q{NEW.kind = 'before'});
terminate();
let_go();
$run->finish;
is($run->result(0), 0, 'it goes on after its session was ended in the COMMIT') or diag $$out;
is($live->safe_psql('postgres', 'SELECT count(*) FROM insta5.users'), '200', 'and all rows are back');
is($live->safe_psql('postgres', q{SELECT string_agg(kind, ' ') FROM snowid.copies}), 'before', 'nothing else is left');
$hold->quit;
($code, $said) = snowid_move($then, $live, 5, 'restore');
is($code, 0, 'the same command again') or diag $said;
like($said, qr/brought back already/, 'has nothing to do');

$then->stop;
$live->stop;
done_testing();
