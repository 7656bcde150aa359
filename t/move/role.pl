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
		'GRANT SELECT, INSERT, UPDATE, DELETE ON snowid.moves TO mover;',
		'GRANT SELECT, INSERT, UPDATE, DELETE ON snowid.shard_registry TO mover;',
		'GRANT SET ON PARAMETER deadlock_timeout TO mover;',
		'GRANT owner TO mover;',
		'GRANT pg_read_all_stats TO mover;'
	],
	'it was these') or diag join "\n", sort keys %typed;
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

done_testing();
