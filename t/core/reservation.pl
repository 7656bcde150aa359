# One reservation holds ids for all sequences of a database.  So a page can be
# behind what its sequence issued, and the clock must know.  Here: what is logged,
# and when more is reserved.  Each case is a crash that repeats ids, or a record too
# many, without a rule of doc/design.md, "One reservation for the database".
# floor, reservation_copies, reservation_alone, after_recovery and reservation_set go on from here.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use ReservationTest;
use SnowidTest;
use Test::More;

start_at_noon('reservation');

# An id of one sequence is reserved for another, as soon as each has logged its
# first one.
subject 'what is reserved' => [ 'busy', 'seldom', 'own_epoch' ], sub {
	my $own = "SELECT snowid.next_id(5, 'own_epoch', '2025-12-31 23:59:59.9995+00')";
	take($_) for 'seldom', 'busy';
	sql($own);
	take('busy');
	my $before = lsn();
	my $seen = take('seldom');
	my $own_seen = sql($own);
	is(lsn(), $before, 'ids that are reserved log nothing');
	cmp_ok(next_after_crash('seldom'), '>', $seen, 'and do not come again after a crash');
	cmp_ok(sql($own), '>', $own_seen, 'nor with an epoch of its own');
};

# A page is logged at its first change after a checkpoint, as PostgreSQL expects.
subject 'a checkpoint' => [ 'busy', 'seldom' ], sub {
	take('busy');
	take('seldom');
	sql('CHECKPOINT');
	take('busy');
	my $before = lsn();
	take('seldom');
	isnt(lsn(), $before, 'the first change of a page after a checkpoint is logged');

	# Replay of that record alone would set the page back.  A checkpoint may have
	# chosen its redo point between the reservation and that record, and not told yet.
	$before = lsn();
	take('seldom');
	isnt(lsn(), $before, '... and what comes after it is reserved anew');
	$before = lsn();
	take('seldom');
	is(lsn(), $before, '... and no further one');
};

# The first id is logged, so that the page shows that there are ids; also for
# who takes the second one.
subject 'the first id' => [ 'busy', 'called' ], sub {
	take('busy');
	stop_walwriter($node);
	my $opener = session();
	$opener->query_safe(q{BEGIN; SELECT snowid.next_id(5, 'called')});
	my $seen = take('called');
	crash_back();
	cmp_ok(known_at('called'), 'ge', time_of($seen), 'a crash does not make a sequence look new');
};

# The lead after a crash, of all sequences, also of new ones.
subject 'the lead' => ['seldom'], sub {
	take('seldom');
	crash($node);
	start_with_clock($node, $noon);
	sql('CREATE SEQUENCE new');
	for my $seq ('seldom', 'new')
	{
		take($seq);
		is(sql("SELECT ahead BETWEEN '0 s' AND '2.51 s' FROM snowid.sequence_state('$seq')"), 't',
			"a crash leaves $seq at most 2.5 seconds ahead");
	}
};

# More is reserved before it is needed, and nobody waits for that.
subject 'early' => ['s'], sub {
	my $session = session();
	my $take = q{BEGIN; SELECT snowid.next_id(5, 's') IS NULL OR pg_current_xact_id_if_assigned() IS NOT NULL; COMMIT};
	take('s');
	set_clock($node, '2026-01-01 12:00:10');
	$session->query_safe(q{SELECT snowid.next_id(5, 's')});
	stop_walwriter($node);
	my $before = lsn();
	set_clock($node, '2026-01-01 12:00:11.4');
	is($session->query_safe($take), 'f', 'a reserved id');
	is(lsn(), $before, '... logs nothing');
	set_clock($node, '2026-01-01 12:00:11.6');
	is($session->query_safe($take), 'f', 'when it runs short, nobody waits');
	isnt(lsn(), $before, '... but more is reserved');
	$before = lsn();
	set_clock($node, '2026-01-01 12:00:11.7');
	is($session->query_safe($take), 'f', '... and who comes later does not wait either');
	is(lsn(), $before, '... nor reserve again');
	set_clock($node, '2026-01-01 12:00:12');
	is($session->query_safe($take), 't', 'but who needs it waits');
	crash_back();	# it brings the walwriter back
};

# An id of a transaction that is prepared, and that another one has reserved.
subject 'a prepared transaction' => [ 'busy', 'seldom' ], sub {
	take('seldom');
	take('busy');
	my $seen = sql(q{BEGIN; SELECT snowid.next_id(5, 'seldom'); PREPARE TRANSACTION 'p'});
	crash_back();
	sql(q{COMMIT PREPARED 'p'});
	cmp_ok(take('seldom'), '>', $seen, 'does not come again');
};

$node->stop;
done_testing();
