# Whatever ends a call of the portable edition, at any of its statements, leaves no lock
# behind, and ids rise.  t/lib/points.c cancels each statement in turn, and the one after
# it, too, which is where a handler begins: in the first call of a session and in later
# ones, also in subtransactions.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $points = points_library();
my $node = new_node('points');
$node->append_conf('postgresql.conf', "session_preload_libraries = '$points'\nmax_prepared_transactions = 2");
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE owner SUPERUSER LOGIN; CREATE ROLE writer LOGIN;');
portable_database($node, 'app', 'owner');
my $ids = q{SELECT 'id ' || snowid.next_id(5, 's')};
my $counting = "$ids;" x 3;
$node->safe_psql('app', qq{
CREATE SEQUENCE s;
CREATE SEQUENCE far;
CREATE SEQUENCE held;
$ids;
GRANT SELECT ON SEQUENCE s TO writer;
SELECT snowid.next_id(5, 'far'), snowid.next_id(5, 'held'), snowid.create_shard(7);
SELECT snowid.advance('far', snowid.make_id(now() + interval '1 hour', 5, 0))});
my $far = q{SELECT 'id ' || snowid.next_id(5, 'far')};

# A call, what comes before it, and how it ends when nothing cancels it.
my @cases = (
	[ 'of a new sequence', q{SELECT snowid.next_id(5, 'new')}, before => 'DROP SEQUENCE IF EXISTS new; CREATE SEQUENCE new;' ],
	[ 'of a restarted sequence', q{SELECT snowid.next_id(5, 's')}, before => 'ALTER SEQUENCE s RESTART;' ],
	[ 'in the first call', $ids, fresh => 1 ],
	[ 'in a later call', $ids, before => "$ids;" ],
	[ 'where it counts', $ids, within => $counting ],
	[ 'far ahead', $far, before => "$far;" ],
	[ 'in bulk, far ahead', $far, within => "$far; $far;" ],
	[ 'where it counts, without the privilege', $ids, within => "$counting SET LOCAL ROLE writer;", end => '42501' ],
	[ 'in a later call, without the privilege', $ids, before => "$ids;", within => 'SET LOCAL ROLE writer;', end => '42501' ],
	[ 'where it counts, read only', $ids, within => "$counting SET TRANSACTION READ ONLY;", end => '25006' ],
	[ 'that must wait', q{SELECT snowid.next_id(5, 'held')}, before => "SET lock_timeout = '1ms';", end => '55P03' ],
	[ 'of a database', q{SELECT snowid.next_id()}, before => 'SET snowid.shard = 7;' ],
	[ 'of many', q{SELECT max(i) FROM snowid.next_ids(5, 's', 3) i} ],
	[ 'of advance()', q{SELECT snowid.advance('s', snowid.make_id(now(), 5, 0))} ],
	[ 'of safe_upper_id()', q{SELECT snowid.safe_upper_id('s')} ],
	[ 'of sequence_state()', q{SELECT snowid.sequence_state('s')} ],
	[ 'of a fence', q{SELECT snowid.fence_shard(7)}, within => ' ', ],
	[ 'of a new shard', q{SELECT snowid.create_shard(8), snowid.drop_shard(8)}, within => ' ' ]);

my $holder = $node->background_psql('app');
$holder->query_safe(q{SELECT pg_advisory_lock(1936617335, 'held'::regclass::oid::int)});
my $locks = q{SELECT 'locks ' || count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();};

# What psql runs for a cancel at one statement.
sub script
{
	my ($n, $times, $subtransaction, $call, %o) = @_;
	my ($begin, $end) = defined $o{within} || $subtransaction ? ('BEGIN;', 'ROLLBACK;') : ('', '');
	($begin, $end) = ("BEGIN; $ids; SAVEPOINT a;", 'ROLLBACK TO a; COMMIT;') if $subtransaction;

	return ($o{fresh} ? "\\c\nSET client_min_messages = error;\n" : '') . ($o{before} // '') . qq{
SET points.times = $times;
$begin } . ($o{within} // '') . qq{
SET points.cancel = $n;
$call;
\\echo ended $n :SQLSTATE
$end
SET points.cancel = 0;
$locks
$ids;
\\echo next
};
}

# Cancel each statement until there is none left to cancel.
sub each_statement
{
	my ($times, $subtransaction, $call, %o) = @_;
	my ($first, $step, $last_id, @faults) = (1, 12, 0);

	# One call waits more often for the clock than another.
	for (my $canceled = 1; $canceled; $first += $step)
	{
		my $script = join '', "SET client_min_messages = error;\n", map { script($_, $times, $subtransaction, $call, %o) } $first .. $first + $step - 1;
		my (undef, $out) = $node->psql('app', $script, on_error_stop => 0, extra_params => [ '-U', 'owner' ]);
		for (split /^next\n/m, $out)
		{
			my ($n, $state) = /^ended (\d+) (\w+)$/m or die "no answer:\n$_";
			$canceled = $state eq '57014';
			push @faults, "$n: ends with $state" if !$canceled && $state ne ($o{end} // '00000');
			push @faults, "$n: leaves a lock" if !/^locks 0$/m;
			for my $id (/^id (\d+)$/mg)
			{
				push @faults, "$n: $id after $last_id" if $id <= $last_id && $call !~ /'far'/;
				$last_id = $id if $call !~ /'far'/;
			}
		}
	}
	return ($first - 1, @faults);
}

for (@cases)
{
	my ($name, $call, %o) = @$_;
	for my $subtransaction (0, 1)
	{
		for my $times (1, 2)
		{
			my ($last, @faults) = each_statement($times, $subtransaction, $call, %o);
			is("@faults[0 .. ($#faults > 4 ? 4 : $#faults)]", '', "$name: canceled at each of up to $last statements"
				. ($times > 1 ? ', twice' : '') . ($subtransaction ? ', in a subtransaction' : ''));
		}
	}
}
$holder->quit;
$node->stop;
done_testing();
