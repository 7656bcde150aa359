# Recover a base backup with the WAL of the primary, which has died: all of
# it, or up to a point before.  What came after that point is forgotten, so
# then the clock must be beyond it.  Sequences can be ahead of every clock that
# there has been: a crash forgets up to a second of slots, and a fast machine
# crashes more often.
use strict;
use warnings;

use Torture;
use Torture::Servers;

fault 1, sub {
	my $old = $primary;
	my $old_standby = $standby;
	my $backup = 'b' . ++$serial;
	my $to_the_end = random_below(2);
	my $offset = clock_offset($old);

	$old->backup($backup, backup_options => [ '--wal-method', 'none' ]);
	let_ids_flow(50_000);
	sql("SELECT pg_create_restore_point('$backup')");
	let_ids_flow(50_000);
	my $ahead = seconds_ahead() * SECOND;
	kill_node($old, 1);
	if ($old_standby)
	{
		end_node($old_standby, 'QUIT');
		remove_node($old_standby);
	}

	$primary = new_node_from($old, $backup);
	make_clock($primary, $offset);
	my $wal = $old->data_dir . '/pg_wal';
	$primary->append_conf('postgresql.conf', "restore_command = 'cp $wal/%f %p'\n");
	$primary->append_conf('postgresql.conf',
		"recovery_target_name = '$backup'\nrecovery_target_action = promote\n")
	  unless $to_the_end;
	$primary->append_conf('recovery.signal', '');
	my $clock =
		$to_the_end
	  ? maybe_step_while_down($primary)
	  : 'clock ' . step_clock($primary, max($max_offset - $offset, $ahead) + 2 * SECOND);
	start_node($primary);
	wait_until('recovery to end',
		sub { sql('SELECT pg_is_in_recovery()', 'postgres') eq 'f' });

	# The settings must not reach the next node's recovery.
	$primary->append_conf('postgresql.conf', "restore_command = ''\nrecovery_target_name = ''\n");
	$standby = undef;
	build_standby() if $old_standby;

	# A sequence that is next used when the clock has gone back knows nothing of
	# the ids that were forgotten.
	sql('SELECT count(*) FROM torture.seqs s, torture.ids(s.n, 1)') unless $to_the_end;
	set_target();
	remove_node($old);
	return ($to_the_end ? 'to the end' : 'to a restore point') . ", $clock";
};

1;
