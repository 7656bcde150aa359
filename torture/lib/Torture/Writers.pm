# The writers of a torture run: started and stopped, held still, sent away from a
# database or a table; and ids that the run takes beside them.
package Torture::Writers;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run;
use SnowidTest ();
use Torture;
use Torture::Servers;

our @EXPORT = qw(start_writers stop_writers while_writers_rest hold_reservation end_holder log_ids
  sql_alone covered restart_sequence close_database move_to);

sub start_writers
{
	my $mode =
		"@faults" eq 'overload' ? 'hot'
	  : !grep({ !/^(power|reservation)$/ } @faults) ? 'select'
	  : 'all';

	$writers = start_clients('writer', $option{sessions}, $option{seed}, $mode, $n_seldom);
	let_ids_flow(10_000);
	return;
}

sub stop_writers
{
	open(my $file, '>', "$writers_dir/stop") or die $!;
	close($file);
	wait_until('the writers to end',
		sub { !grep { ! -e "$writers_dir/counts.$_" } 0 .. $option{sessions} - 1 });
	$writers->finish;
	$writers->result(0) == 0
	  or push @failures, "a writer failed: " . slurp_file("$base/clients.out");
	return;
}

# Do something while no writer can flush the log.  Nor can the walwriter, until
# it is killed: a SELECT that logs hint bits wakes it, whatever its delay.
sub while_writers_rest
{
	my ($what) = @_;
	my @writers = SnowidTest::children($writers->{KIDS}[0]{PID});

	kill 'STOP', @writers;
	eval {
		stop_walwriter();
		wait_until('the writers to rest', sub {
			sql("SELECT count(*) FROM pg_stat_activity
				  WHERE application_name = 'writer' AND state = 'active'
					AND coalesce(wait_event, '') NOT IN ('ClientWrite', 'SyncRep')") == 0;
		});
		$what->();
		1;
	};
	kill 'CONT', @writers;
	die $@ if $@;
	return;
}

# Stop the walwriter where it holds no lock that others need.
sub stop_walwriter
{
	wait_until('the walwriter to be idle', sub {
		my $pid = sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'") || return 0;

		kill 'STOP', $pid;
		wait_until('the walwriter to stop', sub { (SnowidTest::state_of($pid) // 'T') eq 'T' });
		return 1
		  if sql("SELECT wait_event FROM pg_stat_activity WHERE pid = $pid") eq 'WalWriterMain';
		kill 'CONT', $pid;
		return 0;
	});
	return;
}

# Make a reservation in a transaction that stays open, some time after the last
# one, and move the clock close to its end, two seconds later, where the last one
# does not reach.  Meanwhile the clock goes slowly, or a busy machine would be
# past that end.
sub hold_reservation
{
	my ($holder, $out) = (undef, '');

	# An id of a sequence that is used seldom may log, and its commit then
	# flushes what shall be lost.
	append_to_file("$writers_dir/busy_only", '');

	# More than the buffers hold, and the record is written, but not flushed.
	my $more = $is_lossy && random_below(2) ? 200_000 : 0;

	step_clock($primary, seconds_ahead(sequence(0)) * SECOND + 2100 * MS, -950_000);
	while_writers_rest(sub {
		$holder = IPC::Run::start(
			[
				'psql', '-XAtq', '-d' => $primary->connstr($database),
				'-c' => 'BEGIN', '-c' => "SELECT torture.ids(0, 1)",
				'-c' => "SELECT pg_logical_emit_message(true, '', repeat('x', $more))",
				'-c' => 'SELECT pg_sleep(1000)'
			], '<', \undef, '>', \$out, '2>', \my $err);
		wait_until('the reservation', sub { $holder->pump_nb; $out =~ m{/} });
		step_clock($primary, one_of(1800, 1850, 1900) * MS, -950_000);
	});
	return $holder;
}

# The server is down.
sub end_holder
{
	my ($holder) = @_;

	$holder->finish;
	unlink "$writers_dir/busy_only";
	return;
}

# Add ids that we took ourselves to the writers' (see idlog.h).
sub log_ids
{
	my ($begin, @ids) = @_;
	my $end = clock_gettime(CLOCK_MONOTONIC);

	open(my $file, '>>', "$writers_dir/ids.run") or die $!;
	binmode $file;
	print $file pack('LLq', 1, 1, $begin * SECOND), pack('q', $_) for @ids;
	print $file pack('LLq', 2, 0, $end * SECOND);
	close($file);
	return;
}

# Run SQL while no writer is in a transaction with ids, and then more at once.
# Returns what was printed.
sub sql_alone
{
	my ($query, $after) = @_;
	my $output;

	# A writer may have locked something of it first.
	wait_until('the writers to stand aside', sub {
		eval {
			$output = sql("BEGIN; LOCK TABLE torture.rows, torture.restarted, torture.seqs; $query; COMMIT; "
				  . ($after // ''));
			1;
		} || ($@ =~ /deadlock detected/ ? 0 : die $@);
	});
	return $output;
}

# Which of these sequences are below what is reserved, and so may be restarted:
# what is further ahead was set so.
sub covered
{
	my @n = @_;

	return () if $is_portable || !$is_snowid;
	return split /\n/, sql(sprintf q{
SELECT n FROM torture.seqs s, snowid_internal.reservation r
WHERE n IN (%s)
  AND coalesce(CASE WHEN s.epoch IS NULL THEN (snowid.sequence_state(seq)).last_id_at
					ELSE (snowid.sequence_state(seq, s.epoch)).last_id_at END < to_timestamp(r.last_value / 1000.0), true)},
		join(',', @n));
}

# Start a sequence anew.  What it issued is forgotten.  Of the portable edition, and
# of a sequence that was set ahead, it is promised only up to 10 ms ahead of the
# clock.  So ids are taken further ahead, then the clock is waited for until that is
# just so; and the first id after it comes before the clock may be touched again.
sub restart_sequence
{
	my ($command) = @_;
	my $n = RESTARTED;
	my $seq = sequence($n);

	$count{restarts}++;
	unless ($is_snowid)
	{
		sql_alone($command);
		return;
	}
	my $begin = clock_gettime(CLOCK_MONOTONIC);
	if (covered($n))
	{
		log_ids($begin, split /\n/, sql_alone($command, "SELECT torture.ids($n, 100)"));
		return;
	}
	my $ahead = seconds_ahead($seq);
	step_clock($primary, $ahead * SECOND) if $ahead > 0;
	$begin = clock_gettime(CLOCK_MONOTONIC);
	my $ids = sql_alone(<<"SQL", "SELECT torture.ids($n, 100)");
SELECT snowid.advance('$seq', snowid.max_id(clock_timestamp() + '15 ms'))
\\g /dev/null
SELECT torture.ids($n, 3000);
DO \$\$
BEGIN
	WHILE (SELECT ahead > '9 ms' FROM snowid.sequence_state('$seq')) LOOP
	END LOOP;
END
\$\$;
$command
SQL
	log_ids($begin, split /\n/, $ids);
	return;
}

# No writer may be in a database that is copied, nor come back to it.
sub close_database
{
	sql("ALTER DATABASE $database CONNECTION LIMIT 0", 'postgres');
	wait_until('the writers to leave', sub {
		sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			  WHERE datname = '$database' AND backend_type = 'client backend'", 'postgres');
		my $rollback = sql("SELECT format('ROLLBACK PREPARED %L;', gid) FROM pg_prepared_xacts
							 WHERE database = '$database'", 'postgres');
		sql($rollback) if $rollback;
		return sql("SELECT count(*) FROM pg_stat_activity
					 WHERE datname = '$database'", 'postgres') == 0;
	});
	return;
}

# The copy takes the place of its original.  It must hold through a crash soon
# after, and with the clock set back.  (Dropping a database makes a checkpoint,
# so that comes last.)
sub move_to
{
	my ($copy) = @_;
	my $original = $database;

	$database = $copy;
	sql("ALTER DATABASE $database CONNECTION LIMIT -1", 'postgres');
	set_target();
	let_ids_flow(1 + random_below(20_000));
	my $what =
		random_below(3)
	  ? run_fault('postmaster')
	  : 'clock ' . step_clock($primary, random_step());

	# It waits until all backends have taken a signal.  One whose statement
	# was just cancelled may forget that (ProcessInterrupts() throws before it
	# comes to the barrier), and would keep us waiting for ever.
	wait_until('the original to be dropped', sub {
		return 1
		  if eval { sql("SET statement_timeout = '3s'; DROP DATABASE IF EXISTS $original", 'postgres'); 1 };
		sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			  WHERE application_name = 'writer'", 'postgres');
		return 0;
	});
	return "then $what";
}

1;
