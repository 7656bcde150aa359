# No commit waits for the standby, so it must have caught up: a clean
# shutdown sends it everything.
use strict;
use warnings;

use Torture;
use Torture::Servers;

fault 3, sub {
	await_standby();
	sql("ALTER SYSTEM SET synchronous_standby_names = ''");
	sql('SELECT pg_reload_conf()');
	let_ids_flow(50_000);
	wait_until('the standby to stream',
		sub { sql('SELECT state FROM pg_stat_replication') =~ /^streaming$/m });
	end_node($primary, 'INT');
	unlink $primary->data_dir . '/postgresql.auto.conf';
	$primary->append_conf('postgresql.auto.conf', '');
	return switch_over();
};

1;
