# Whoever is canceled, or runs into an error, leaves no lock of the portable edition
# behind, and whoever crashes no id that comes again.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run ();
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = new_node('locks');
start_with_clock($node, '+0');
$node->safe_psql('postgres', q{
CREATE ROLE owner LOGIN;
CREATE ROLE writer LOGIN;
});

# A database with a sequence that is an hour ahead of the clock, on which sessions
# wait, with the lock or for it; and one that is not.
sub fresh_database
{
	my ($database) = @_;

	portable_database($node, $database, 'owner');
	$node->safe_psql($database, q{
CREATE SEQUENCE far;
CREATE SEQUENCE near;
SELECT snowid.next_id(5, 'far'), snowid.next_id(5, 'near');
SELECT snowid.advance('far', snowid.make_id(now() + interval '1 hour', 5, 0))});
	return;
}

subtest 'who is canceled' => sub {
	my $dir = PostgreSQL::Test::Utils::tempdir();
	fresh_database('canceled');
	$node->safe_psql('canceled', q{
CREATE SEQUENCE ended;
GRANT USAGE ON SEQUENCE ended TO writer;
SELECT snowid.next_id(5, 'ended');
DO $$ BEGIN EXECUTE 'ALTER SEQUENCE ended MAXVALUE ' || (SELECT last_value FROM ended); END $$;});
	append_to_file("$dir/canceled", "SET application_name = 'canceled';\n" . join '', map {
		"SET statement_timeout = '" . (1 + $_ % 5) . "ms';\n"
		  . "SELECT count(snowid.next_id(5, '" . ($_ % 3 ? 'far' : 'near') . "')) FROM generate_series(1, 1000000);\n"
	} 1 .. 90);
	# And in calls that setval() refuses: to who may not, who only reads, and at the end.
	append_to_file("$dir/canceled", "RESET statement_timeout;\n" . join('', map {
		"SET $_->[0];\n" . "SELECT snowid.next_id(5, '$_->[1]');\n" x 300
	} [ 'SESSION AUTHORIZATION writer', 'ended' ], [ 'SESSION AUTHORIZATION DEFAULT', 'ended' ], [ 'default_transaction_read_only = on', 'near' ]) . q{
RESET default_transaction_read_only;
} . q{SELECT 'left: ' || count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
} x 5);		# a cancel that was sent before can come during the first of these
	my @canceled = map {
		IPC::Run::start([ 'psql', '-XAtq', '-v', 'VERBOSITY=sqlstate', '-f', "$dir/canceled", $node->connstr('canceled') ],
			'>', "$dir/out$_", '2>', "$dir/err$_")
	} 0 .. 3;
	# Another one cancels them at any time, too, twice in a row, until they are done.
	$node->poll_query_until('canceled', q{SELECT count(*) = 4 FROM pg_stat_activity WHERE application_name = 'canceled'})
	  or die 'they do not begin';
	$node->safe_psql('canceled', q{
DO $$
BEGIN
	LOOP
		PERFORM pg_stat_clear_snapshot();
		EXIT WHEN NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'canceled' AND query !~ 'left: ');
		PERFORM pg_cancel_backend(pid), pg_cancel_backend(pid)
		FROM pg_stat_activity WHERE application_name = 'canceled' AND state = 'active' AND query ~ 'next_id' AND random() < 0.05;
	END LOOP;
END $$;});
	$_->finish for @canceled;
	like(slurp_file("$dir/out$_"), qr/^left: 0$/m, 'a session that is canceled leaves no lock behind') for 0 .. 3;
	my %errors;
	$errors{$_}++ for map { slurp_file("$dir/err$_") =~ /ERROR:  (\w{5})/g } 0 .. 3;
	cmp_ok($errors{57014}, '>', 100, 'and they were canceled');
	is_deeply([ sort grep { $errors{$_} > 100 } keys %errors ], [ '2200H', '25006', '42501', '57014' ], 'in calls that fail, too');
	is(sqlstate($node, q{SELECT snowid.next_id(5, 'far'), snowid.next_id(5, 'near')}, dbname => 'canceled'), '',
		'the sequences go on');
};

subtest 'errors' => sub {
	fresh_database('errors');
	$node->safe_psql('errors', q{
SELECT snowid.create_shard(6);
GRANT USAGE ON SCHEMA insta6 TO writer});

	my $session = $node->background_psql('errors', on_error_stop => 0);
	$session->query(q{SET SESSION AUTHORIZATION writer; SELECT snowid.next_id(6, 'insta6.id_seq')});
	$session->query(q{RESET SESSION AUTHORIZATION; BEGIN READ ONLY; SELECT snowid.next_id(5, 'far')});
	$session->query(q{ROLLBACK; BEGIN; SELECT snowid.next_id(5, 'far') FROM generate_series(1, 5); SET TRANSACTION READ ONLY; SELECT snowid.next_id(5, 'far')});
	$session->query(q{ROLLBACK; SELECT snowid.fence_shard(6); SELECT snowid.next_id(6, 'insta6.id_seq')});
	$session->query(q{SELECT snowid.unfence_shard(6); BEGIN; SAVEPOINT a; SELECT snowid.next_id(5, 'far'); ROLLBACK TO a; COMMIT});
	is($session->query(q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}), '0', 'no lock is left');
	$session->quit;
};

# What is looked at before the lock refuses nothing under it.  A session that forges what it has
# seen gets there: to a sequence that cannot go on, for each kind of lock.
subtest 'errors under the lock' => sub {
	my $lock = q{(1936617335, 'ended'::regclass::oid::int)};
	my $held = q{SELECT coalesce(string_agg(mode, ' '), 'none') FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()};
	my $forge = q{SELECT set_config('snowid_internal.seen', concat(pg_relation_filepath('ended'), ' ', };
	my $call = q{SELECT snowid.next_id(5, 'ended')};
	my %forged = (
		ShareLock => "BEGIN; $forge pg_current_xact_id()), false); $call; ROLLBACK; $forge NULL), false)",
		ExclusiveLock => "$forge NULL), false); $call");

	fresh_database('forged');
	set_clock($node, '2026-01-01 12:00:00');
	$node->safe_psql('forged', "CREATE SEQUENCE ended; $call; " . q{
DO $$ BEGIN EXECUTE 'ALTER SEQUENCE ended MAXVALUE ' || (SELECT last_value FROM ended); END $$;});
	set_clock($node, '2026-01-01 12:00:00.001');
	my $session = $node->background_psql('forged', on_error_stop => 0);
	for my $mode (sort keys %forged)
	{
		$session->query($forged{$mode});
		is($session->query($held), 'none', "$mode: none is left");
		my $other = $mode eq 'ShareLock' ? '' : '_shared';
		$session->query("SELECT pg_advisory_lock$other$lock");
		$session->query($forged{$mode});
		is($session->query($held), $mode eq 'ShareLock' ? 'ExclusiveLock' : 'ShareLock', "$mode: another one stays");
		$session->query("SELECT pg_advisory_unlock$other$lock");
		my $same = $mode eq 'ShareLock' ? '_shared' : '';
		$session->query("SELECT pg_advisory_lock$same$lock");
		$session->query($forged{$mode});
		is($session->query($held), $mode, "$mode: one that the session has had before stays");
		is($session->query("SELECT pg_advisory_unlock$same$lock"), 't', '... and can be given up');
	}
	$session->quit;

	# What fails before the lock gives up none: the commit's flush cannot be set, or there is no time.
	$node->safe_psql('forged', q{
CREATE SEQUENCE s; SELECT snowid.next_id(5, 's'); GRANT USAGE, UPDATE ON SEQUENCE s TO writer; REVOKE UPDATE ON SEQUENCE snowid_internal.flushed FROM PUBLIC});
	$session = $node->background_psql('forged', on_error_stop => 0, extra_params => [ '-U', 'writer' ]);
	$call = q{SELECT snowid.next_id(5, 's')};
	$lock =~ s/ended/s/;
	set_clock($node, '2026-01-01 12:00:00.002');
	$session->query($call) for 1 .. 2;
	for ([ 'a row of its own', $call ], [ 'after what has written', "BEGIN; SELECT pg_current_xact_id(); $call; COMMIT" ],
		[ 'another epoch', q{SELECT snowid.next_id(5, 's', 'infinity')} ], [ 'none', q{SELECT snowid.next_id(5, 'pg_class')} ])
	{
		my ($name, $calls) = @$_;
		$session->query("SELECT pg_advisory_lock$_$lock") for '', '_shared';
		$session->query($calls);
		is($session->query($held =~ s/string_agg\(mode, ' '/$&  ORDER BY mode/r), 'ExclusiveLock ShareLock', "what fails before it, in $name: a lock stays");
		$session->query("SELECT pg_advisory_unlock$_$lock") for '', '_shared';
	}
	$session->quit;

	# Who has USAGE alone could count, and may not.
	$node->safe_psql('forged', 'REVOKE UPDATE ON SEQUENCE s FROM writer; GRANT UPDATE ON SEQUENCE snowid_internal.flushed TO PUBLIC');
	$session = $node->background_psql('forged', on_error_stop => 0);
	$session->query($call) for 1 .. 2;
	for ([ 'a row of its own', 'BEGIN' ], [ 'after what has written', 'BEGIN; SELECT pg_current_xact_id()' ], [ 'in bulk', "BEGIN; $call; $call; $call" ])
	{
		my ($name, $begin) = @$_;
		$session->query("$begin; SET LOCAL ROLE writer");
		unlike($session->query($call), qr/\d{9}/, "no id without the privilege: $name");
		like($session->{stderr}, qr/permission denied for sequence s/, '... and it says so');
		$session->{stderr} = '';
		$session->query('ROLLBACK');
	}
	$session->quit;
	set_clock($node, '+0');
};

subtest 'a crash, and the clock set back' => sub {
	fresh_database('crashed');
	my $last = $node->safe_psql('crashed', q{SELECT max(snowid.next_id(5, 'near')) FROM generate_series(1, 5000)});
	my $unlogged = q{SELECT snowid.next_id(5, 'unlogged')};
	my $lost = $node->safe_psql('crashed', 'CREATE UNLOGGED SEQUENCE unlogged; CHECKPOINT; ' . $unlogged);
	crash($node);
	start_with_clock($node, '-3600');
	cmp_ok($node->safe_psql('crashed', q{SELECT snowid.next_id(5, 'near')}), '>', $last,
		'an id that was shown does not come again after a crash, with the clock set back');
	cmp_ok($node->safe_psql('crashed', $unlogged), '<', $lost, 'but of an unlogged sequence, it could');
	is(sqlstate($node, q{
SELECT count(snowid.next_id(5, 'near')) FROM generate_series(1, 50000);}, dbname => 'crashed'), '',
		'ids go on ahead of the clock');
	is($node->safe_psql('crashed', q{SELECT ahead BETWEEN '59 min' AND '1 hour 1 min' FROM snowid.sequence_state('near')}), 't',
		'and no further than 1024 in a millisecond take');
	set_clock($node, '+0');
};

$node->stop;
done_testing();
