# Crash while a checkpoint is under way: its redo point is set, and pages
# are written or not.  Or just after one.
use strict;
use warnings;

use IPC::Run;
use Torture;
use Torture::Servers;

fault 6, sub {
	if (random_below(2))
	{
		sql('CHECKPOINT');
		let_ids_flow(1 + random_below(20_000));
		kill_node($primary, 1);
		return recover('just after a checkpoint');
	}

	# A spread checkpoint, which only a backup can ask for.
	my $from = -s $primary->logfile;
	my $directory = "$base/spread" . ++$serial;
	my $backup = IPC::Run::start(
		[
			'pg_basebackup', '--pgdata' => $directory, '--checkpoint' => 'spread',
			'--wal-method' => 'none', '--dbname' => $primary->connstr('postgres'),
			'--no-sync'
		], '<', \undef, '>', \my $out, '2>', \my $err);
	wait_until('a checkpoint to start',
		sub { slurp_file($primary->logfile, $from) =~ /checkpoint starting/ });
	let_ids_flow(1 + random_below(50_000));
	kill_node($primary, 1);
	$backup->finish;
	rmtree($directory);
	return recover('during a checkpoint');
};

1;
