# What is reserved is never far ahead of a clock that is right, and a sequence that
# has forgotten its ids starts above all of it: after any number of crashes and
# restarts, after a wild reading of the clock, and with a new extension.  Once, it
# grew by a second with each crash, and a restart took it for a clock set back.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use ReservationTest;
use SnowidTest;
use Test::More;

start_at_noon('lead');

my $lead = q{SELECT extract(epoch FROM snowid.id_timestamp(snowid.next_id(5, 's')) - clock_timestamp())};
my $anew = 'SET client_min_messages = warning; DROP EXTENSION snowid CASCADE; CREATE EXTENSION snowid';

# A crash, and the server is up again at a time after noon.
sub crash_until
{
	crash($node);
	start_with_clock($node, "2026-01-01 12:00:$_[0]");
	return;
}

# A leap of 30 seconds, which only sequence x sees, and a crash.
sub leap
{
	take($_) for 'x', 's';
	set_clock($node, '2026-01-01 12:00:30');
	take('x');
	set_clock($node, $noon);
	crash_until('01');
	return;
}

sub rises_after
{
	my ($statement, $seq, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	take($seq);
	my $before = take($seq);
	sql($statement);
	cmp_ok(take($seq), '>', $before, $name);
	return;
}

subject 'a crash loop' => ['s'], sub {
	for my $n (1 .. 12)
	{
		take('s');
		crash_until(sprintf '%06.3f', $n / 10);
	}
	my $after = sql($lead);
	cmp_ok($after, '<=', 3, 'twelve crashes in a second: the lead is that of one');
	rises_after('ALTER SEQUENCE s RESTART', 's', 'RESTART then');
	crash_until('02.500');
	cmp_ok(sql($lead), '<', $after, 'the lead shrinks');
	rises_after('ALTER SEQUENCE s RESTART', 's', '... and RESTART stays right');
};

subject 'restarts' => ['s'], sub {
	my $before = take('s');
	for my $n (1 .. 40)
	{
		set_clock($node, sprintf '2026-01-01 12:00:00.%03d', 4 * $n);
		my $id = sql(q{ALTER SEQUENCE s RESTART; SELECT snowid.next_id(5, 's')});
		fail("id of restart $n") if $id <= $before;
		$before = $id;
	}
	cmp_ok(sql($lead), '<', 2.1, 'forty restarts in 160 ms add nothing to the lead');
};

# Somebody else has reserved since what the session knows.
subject 'a restart, and a session that knows little' => [ 's', 'other' ], sub {
	my $session = session();
	$session->query_safe(q{SELECT snowid.next_id(5, 's')});
	set_clock($node, '2026-01-01 12:00:05');
	take('other');
	my $before = take('s');
	set_clock($node, $noon);
	sql('ALTER SEQUENCE s RESTART');
	cmp_ok($session->query_safe(q{SELECT snowid.next_id(5, 's')}), '>', $before, 'it starts above that');
	$session->quit;
};

# With the clock an hour behind, more is reserved by a millisecond at a time.
subject 'a clock set back, and used to the full' => ['s INCREMENT 1024'], sub {
	take('s');
	set_clock($node, '2026-01-01 11:00:00');
	my $before = sql(q{SELECT max(snowid.next_id(5, 's')) FROM generate_series(1, 2010)});
	sql('ALTER SEQUENCE s RESTART');
	cmp_ok(take('s'), '>', $before, 'a restart starts above it');
};

subject 'a leap of the clock, and a crash' => [ 's', 'x' ], sub {
	leap();
	rises_after('ALTER SEQUENCE s RESTART', 's', 'RESTART of a sequence that did not see it');
	rises_after('ALTER SEQUENCE x RESTART', 'x', '... and of the one that did');
};

subject 'a leap, and a new extension' => [ 's', 'x' ], sub {
	leap();
	my $before = take('s');
	my $x = take('x');
	sql("$anew; ALTER SEQUENCE s RESTART; ALTER SEQUENCE x RESTART");
	cmp_ok(take('s'), '>', $before, 'RESTART after that');
	cmp_ok(take('x'), '>', $x, '... also of who saw it');
};

# By the default epoch, its page shows a time of years ago, which is no reason to raise it.
subject 'advance() with a wrong epoch, after a crash' => ['own'], sub {
	my $own = q{SELECT snowid.next_id(5, 'own', '2016-01-01')};
	my $before = sql("$own; $own") =~ s/.*\n//r;
	crash_until('01');
	sql("SELECT snowid.advance('own', $before)");
	cmp_ok(sql($own), '>', $before, 'ids go on');
	sql("ALTER SEQUENCE own RESTART; SELECT snowid.advance('own', $before)");
	$before = sql($own);
	cmp_ok($before, '>', 0, '... also of a restarted sequence');
};

# As the hint says how to make it again.
subject 'a reader waits while the reservation is made again' => ['s'], sub {
	take('s');
	my $maker = session();
	$maker->query_safe(q{BEGIN;
ALTER EXTENSION snowid DROP SEQUENCE snowid_internal.reservation;
DROP SEQUENCE snowid_internal.reservation;
CREATE SEQUENCE snowid_internal.reservation;
ALTER EXTENSION snowid ADD SEQUENCE snowid_internal.reservation;
SELECT setval('snowid_internal.reservation', (extract(epoch FROM now()) * 1000)::bigint + 3000)});
	my $reader = session();
	waits_ok($reader, q{SELECT last_id_at > '2026-01-01' FROM snowid.sequence_state('s')}, 'Lock', 'it waits');
	$maker->query_safe('COMMIT');
	like($reader->query_safe('SELECT 1'), qr/^t\n1$/, 'and answers');
	$_->quit for $maker, $reader;
};

$node->stop;
done_testing();
