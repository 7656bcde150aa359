# What is reserved does not serve all: a sequence that is far ahead logs for itself;
# one that is unlogged cannot, but is served; and what is in a new file has no log
# until the commit.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use ReservationTest;
use SnowidTest;
use Test::More;
use Time::Local qw(timegm);

start_at_noon('alone');

# A sequence that is far ahead logs its own ids, a second of them at once.
my $hour_ahead = q{snowid.make_id(clock_timestamp() + '1 hour', 5, 0)};
my $take_far = q{SELECT snowid.next_id(5, 'far')};

# Returns a session, which has logged.
sub far_session
{
	sql("SELECT snowid.advance('far', $hour_ahead)");
	my $session = session();
	$session->query_safe($take_far);
	return $session;
}

sub survives_ok
{
	my ($seen) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	take('busy');
	crash($node);
	start_with_clock($node, $noon);
	cmp_ok(take('far'), '>', $seen, 'no repetition after a crash');
	return;
}

subject 'far ahead: a record of its own' => [ 'busy', 'far' ], sub {
	take('busy');
	sql("SELECT snowid.advance('far', $hour_ahead)");
	stop_walwriter($node);
	my $session = session();
	my $before = lsn();
	$session->query_safe("BEGIN; $take_far; ROLLBACK");
	isnt(lsn(), $before, 'it logs for itself');
	is($session->query_safe(
			"BEGIN; SELECT snowid.next_id(5, 'far') IS NULL OR pg_current_xact_id_if_assigned() IS NOT NULL; COMMIT"),
		't', '... and who uses that later waits for it');
	$before = lsn();
	my $seen = $session->query_safe($take_far);
	is(lsn(), $before, '... but does not log again');
	survives_ok($seen);
	take('busy');
	is(sql(q{SELECT ahead < '2.51 s' FROM snowid.sequence_state('busy')}), 't',
		'... nor drag the others along');
};

subject 'far ahead: a checkpoint' => [ 'busy', 'far' ], sub {
	my $session = far_session();
	$session->query_safe('CHECKPOINT');
	survives_ok($session->query_safe($take_far));
};

subject 'far ahead: nextval()' => [ 'busy', 'far' ], sub {
	my $session = far_session();
	$session->query_safe(q{SELECT nextval('far')});
	survives_ok($session->query_safe("SELECT max(snowid.next_id(5, 'far')) FROM generate_series(1, 100)"));
};

subject 'far ahead: more than a second of ids' => [ 'busy', 'far INCREMENT 1024' ], sub {
	sql("SELECT snowid.advance('far', $hour_ahead)");
	survives_ok(sql("SELECT max(snowid.next_id(5, 'far')) FROM generate_series(1, 1010)"));
};

# A crash resets it, and leaves what was reserved.
subject 'unlogged' => ['busy'], sub {
	sql('CREATE UNLOGGED SEQUENCE forgetful');
	take('forgetful');
	my $seen = take('forgetful');
	crash_back();
	my $next = sql(q{SELECT snowid.next_id(5, 'busy'); SELECT snowid.next_id(5, 'forgetful')}) =~ s/.*\n//r;
	cmp_ok($next, '>', $seen, 'no repetition after a crash');
	sql('ALTER SEQUENCE forgetful RESTART');
	cmp_ok(take('forgetful'), '>', $next, '... nor after a restart');

	# Its commit waits for the record that covers it.
	sql('DROP SEQUENCE forgetful; CREATE UNLOGGED SEQUENCE forgetful');
	stop_walwriter($node);
	$seen = take('forgetful');
	crash_back();
	cmp_ok(take('forgetful'), '>', $seen, '... nor if nobody else flushes the log');
};

# A shard's number can be used again when the clock, which goes on here, has
# passed its ids.
subject 'the number of a shard' => [], sub {
	my $goes_on = sprintf '%+d', timegm(0, 0, 12, 1, 0, 2026) - time;
	set_clock($node, $goes_on);
	sql('SELECT snowid.create_shard(12); SELECT insta12.next_id()');
	crash($node);
	start_with_clock($node, $goes_on);
	my ($ret, $stdout, $stderr) = $node->psql($db, 'SELECT snowid.drop_shard(12)');
	is($stderr, '', 'after a crash, drop_shard() waits until the clock has passed its ids');
};

# With wal_level = minimal, which this server has, a new file has no log until its
# commit.
my $once = q{SELECT snowid.next_id(5, 'minimal')};
my $new_clock = 'DROP EXTENSION snowid CASCADE; CREATE EXTENSION snowid';
for (
	[ 'a new sequence', "BEGIN; CREATE SEQUENCE minimal; $once; COMMIT; $once; $once" ],
	[ 'a restarted one', "BEGIN; ALTER SEQUENCE minimal RESTART; $once; COMMIT; $once; $once", 'minimal' ],
	[ 'a new clock, at its commit', "BEGIN; $new_clock; $once; $once; COMMIT", 'minimal' ],
	[ 'a new clock, after its commit', "BEGIN; $new_clock; $once; COMMIT; $once; $once", 'minimal' ])
{
	my ($name, $sql, @sequences) = @$_;

	subject "wal_level = minimal: $name" => \@sequences, sub {
		is(sql('SHOW wal_level'), 'minimal', 'wal_level');
		take($_) for @sequences;
		my $seen = (split /\n/, sql($sql))[-1];
		cmp_ok(next_after_crash('minimal'), '>', $seen, 'no repetition after a crash');
	};
}

# A restore in one transaction sets the clock, too.  A record of what was there before
# would undo that.
subject 'wal_level = minimal: a new clock that is set' => ['minimal'], sub {
	sql("SET wal_skip_threshold = 0; BEGIN; $new_clock; $once; SELECT setval('snowid_internal.reservation', 1767268860000); COMMIT");
	crash_back();
	is(sql('SELECT last_value FROM snowid_internal.reservation'), 1767268860000, 'has that after a crash');
};

$node->stop;
done_testing();
