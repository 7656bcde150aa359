# A shard moves away from a server where the role that moves it is no superuser.
# Whatever right that takes is a line of plan, with the command that grants it:
# the test types what plan says, until it has nothing more to say, and moves.
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
my $s = make_shard($a, 5, 'insta5');
$b->safe_psql('postgres', 'CREATE EXTENSION snowid');
$_->safe_psql('postgres', 'CREATE ROLE owner; CREATE ROLE mover LOGIN; CREATE ROLE reader LOGIN REPLICATION') for $a, $b;
$a->safe_psql('postgres', q{
ALTER SCHEMA insta5 OWNER TO owner;
DO $$
DECLARE what text;
BEGIN
	FOR what IN
		SELECT format('ALTER TABLE %s OWNER TO owner', oid::regclass) FROM pg_class
		WHERE relnamespace = 'insta5'::regnamespace AND relkind IN ('r', 'p')
		UNION ALL SELECT format('ALTER SEQUENCE %s OWNER TO owner', c.oid::regclass) FROM pg_class c
		WHERE relnamespace = 'insta5'::regnamespace AND relkind = 'S' AND NOT EXISTS (
			SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = c.oid AND deptype IN ('a', 'i'))
		UNION ALL SELECT format('ALTER ROUTINE %s OWNER TO owner', oid::regprocedure) FROM pg_proc
		WHERE pronamespace = 'insta5'::regnamespace
	LOOP
		EXECUTE what;
	END LOOP;
END $$});
my $superuser = $a->safe_psql('postgres', 'SELECT current_user');
my %as = map { $_ => $a->connstr('postgres') . " user=$_" } 'mover', 'reader', $superuser;
my @move = ('snowid-move', '--shard', 5, '--from', $as{mover}, '--to', $b->connstr('postgres'), '--trust-owners');

sub run_move
{
	my (@args) = @_;
	my $said = '';

	IPC::Run::run([ @move, @args ], '>&', \$said, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return ($? >> 8, $said);
}

# Of the roles that the target may connect as, none that the mover may not end.
my ($code, $said);
my %typed;
for (1 .. 10)
{
	($code, $said) = run_move('plan', '--source-for-target', $as{reader});
	my @wanted = $said =~ /(?:[Tt]ype: )((?:GRANT|ALTER ROLE) .*;)$/mg;
	last if !@wanted;
	$a->safe_psql('postgres', join ' ', @wanted);
	$typed{$_} = 1 for @wanted;
}
is($code, 0, 'a plan passes once that has been typed which it says') or diag $said;
unlike($said, qr/^warning +rights/m, '... and does not warn of rights');
is_deeply(
	[ sort keys %typed ],
	[
		'ALTER ROLE mover REPLICATION;',
		'GRANT CREATE ON DATABASE postgres TO mover;',
		'GRANT SELECT ON ALL TABLES IN SCHEMA insta5 TO reader; GRANT USAGE ON SCHEMA insta5 TO reader;',
		'GRANT SELECT, INSERT, UPDATE, DELETE ON snowid.moves TO mover;',
		'GRANT SELECT, INSERT, UPDATE, DELETE ON snowid.shard_registry TO mover;',
		'GRANT SET ON PARAMETER deadlock_timeout TO mover;',
		'GRANT owner TO mover;',
		'GRANT pg_read_all_stats TO mover;',
		'GRANT reader TO mover;'
	],
	'it was these') or diag join "\n", sort keys %typed;
like((run_move('plan'))[1], qr/^ok +rights of that connection$/m, 'a target that connects as the mover may do so too');
like((run_move('plan', '--source-for-target', $as{$superuser}))[1],
	qr/^warning +rights of that connection: role mover may not end sessions of role .*\n.*Name a role that is no superuser/m,
	'the sessions of a superuser are not ended by others');

# A superuser makes the subscription that leads back, too.
($code, $said) = run_move('plan', '--reverse');
is($code, 1, 'no way back with such a role');
like($said, qr/^FAILED +rights on the source: role mover is no superuser, and may not make subscriptions/m, '... says plan');

# For real, while it is written, and a transaction that writes is in the way.
my @before = start_writers($s, $a);
my @after = start_writers($s, $b);
$a->poll_query_until('postgres', "SELECT count(*) > 210 FROM $s.users") or die 'nobody writes';
($code, $said) = run_move('--verify', 'checksums', '--retries', 50, '--source-for-target', $as{reader});
is($code, 0, 'moved') or diag $said;
await_writers(@before, @after);
stop_writers(@before, @after);
writers_ok('no superuser', \@before, \@after);
copies_equal_ok($a, 'insta5_moved', $b, $s, 'no superuser');
is((run_move('finish'))[0], 0, 'finished');
nothing_left_ok($_, 'finished') for $a, $b;

# Back as a superuser, and once more: an abort while tables are copied, for
# which a transaction is in the way.
moves_ok($b, $a, 5, [ $_, '--trust-owners' ], 0, "back: $_") for 'move', 'finish';
my $writer;
for my $user ('reader', $superuser)
{
	my $hold = hold_at_step($b, 'subscribed', 1);
	my $out = '';
	my $tool = IPC::Run::start([ @move, '--source-for-target', $as{$user} ], '>&', \$out, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	wait_until_held($b) or die 'does not get there';
	$writer = $a->background_psql('postgres');
	$writer->query_safe('BEGIN; SELECT pg_current_xact_id()');
	$hold->quit;
	let_go_steps($b);
	ok(eval { $tool->pump until $out =~ /the copy of a table waits for process \d+ of /; 1 }, 'what a copy waits for is named') or diag $out;
	$tool->kill_kill;
	if ($user eq 'reader')
	{
		is((run_move('abort'))[0], 0, 'an abort does not wait for it');
	}
	else
	{
		my $abort = IPC::Run::start([ @move, 'abort' ], '>&', \$out, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
		ok(eval { $abort->pump until $out =~ /warning: source: .*(?:must be a superuser|permission denied to terminate)/; 1 }, 'sessions of a superuser are not ended') or diag $out;
		$writer->query_safe('COMMIT');
		$abort->finish;
		is($? >> 8, 0, 'and an abort waits for their transaction') or diag $out;
	}
	$writer->quit;
	nothing_left_ok($_, 'aborted') for $a, $b;
}
done_testing();
