# The clock is wrong, or set, or gone: the server's time leaps by an hour and by two
# days and comes back, a restore or an administrator sets the database's clock while
# sessions know it, or drops it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use ReservationTest;
use SnowidTest;
use Test::More;

start_at_noon('clock_set');

# The clock leaps an hour ahead, and comes back.
subject 'a leap of an hour, and back, and a crash' => [ 'busy', 'seldom' ], sub {
	take($_) for 'busy', 'seldom';
	set_clock($node, '2026-01-01 13:05:00');
	take('busy');
	my $seen = take('seldom');
	set_clock($node, '2026-01-01 12:05:00');
	my $busy = sql(q{SELECT max(snowid.next_id(5, 'busy')) FROM generate_series(1, 5000)});
	cmp_ok(next_after_crash('seldom'), '>', $seen, 'no repetition');
	cmp_ok(next_after_crash('busy'), '>', $busy, '... also of what was used meanwhile');
};

# Two days are too far for all, until the clock is reset.
subject 'a leap of two days' => [ 'busy', 'seldom', 'new' ], sub {
	take($_) for 'busy', 'new';
	set_clock($node, '2026-01-03 12:00:00');
	take('seldom');
	set_clock($node, $noon);
	is(state_of(q{next_id(5, 'new')}), '', 'does not matter');
	sql('ALTER SEQUENCE seldom RESTART');
	is(state_of(q{next_id(5, 'seldom')}), '55000', '... but to a sequence that is restarted');
	crash($node);
	start_with_clock($node, $noon);
	for my $call (q{next_id(5, 'busy')}, q{advance('busy', 0)})
	{
		is(state_of($call), '55000', "... until a crash: $call is refused");
	}
	sql(q{SELECT setval('snowid_internal.reservation', 1)});
	is(state_of(q{next_id(5, 'new')}), '', '... and goes on when the clock is reset');
};

# It is set, as a restore does, while sessions know it: one that has only read it,
# and one whose reservation has come to its end.
subject 'setval()' => [ 'busy', 'seldom', 'restored' ], sub {
	my $set_clock = q{SELECT setval('snowid_internal.reservation', 1000 * extract(epoch FROM timestamptz '2026-01-01 12:00:%d')::bigint)};
	take($_) for 'busy', 'seldom';
	my $user = session();
	$user->query_safe(q{SELECT snowid.next_id(5, 'restored')});
	my $session = session();
	sql(sprintf $set_clock, 20);
	like($session->query_safe(q{
SELECT last_id_at FROM snowid.sequence_state('busy');
SELECT snowid.advance('seldom', 0);
} . sprintf($set_clock, 30) . q{;
SELECT last_id_at FROM snowid.sequence_state('busy')}), qr/12:00:19.*12:00:29/s,
		'who has set the clock reads it again');
	$session->query_safe(q{SELECT snowid.advance('seldom', 0)});
	is(page_at('seldom'), '2026-01-01 12:00:29.999+00', '... also to move a sequence on');
	set_clock($node, '2026-01-01 12:00:12');
	is($user->query_safe(q{SELECT snowid.id_timestamp(snowid.next_id(5, 'restored'))}), '2026-01-01 12:00:30+00',
		'... and so does another, at its next reservation');
	$_->quit for $user, $session;
};

# Somebody has dropped it.
subject 'no clock' => ['busy'], sub {
	take('busy');
	sql(q{ALTER EXTENSION snowid DROP SEQUENCE snowid_internal.reservation;
ALTER SEQUENCE snowid_internal.reservation RENAME TO away});
	is(state_of(q{next_id(5, 'busy')}), '42P01', 'no ids');
	sql(q{ALTER SEQUENCE snowid_internal.away RENAME TO reservation;
ALTER EXTENSION snowid ADD SEQUENCE snowid_internal.reservation});
	is(state_of(q{next_id(5, 'busy')}), '', '... until it is there again');
};

# Of a session that knows a reservation, only that matters.
subject 'setval() back' => ['busy'], sub {
	my $session = session();
	$session->query_safe(q{SELECT snowid.next_id(5, 'busy')}) for 1 .. 2;
	sql(q{SELECT setval('snowid_internal.reservation', 1)});
	$session->query_safe(q{SELECT snowid.next_id(5, 'busy')});
	is(sql('SELECT last_value FROM snowid_internal.reservation'), 1, 'who knows the clock goes on');
	my $seen = take('busy');
	cmp_ok(next_after_crash('busy'), '>', $seen, 'a new session reserves anew');
};

# A slot is no time for it, and all would follow.
subject 'the clock taken for a sequence of ids' => ['busy'], sub {
	for my $call (q{next_id(5, 'snowid_internal.reservation')}, q{advance('snowid_internal.reservation', 1)})
	{
		is(state_of($call), '42809', "$call is refused");
	}
	is(state_of(q{next_id(5, 'busy')}), '', 'and the others go on');
};

$node->stop;
done_testing();

# The SQLSTATE of a call.
sub state_of
{
	my ($call) = @_;
	return sqlstate($node, "SELECT snowid.$call", dbname => $db);
}
