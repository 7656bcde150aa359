# The database is dumped, from the primary or from its standby, and restored
# while the clock is behind.
use strict;
use warnings;

use Torture;
use Torture::Writers;

fault 1, sub {
	my $copy = 'torture' . ++$serial;
	my $file = "$base/dump.sql";
	my $from = one_of(grep { defined } $primary, $standby);

	close_database();
	if ($from != $primary)
	{
		my $lsn = sql('SELECT pg_current_wal_insert_lsn()', 'postgres');

		# A record that nobody has asked to be flushed is not sent.
		sql("SELECT pg_logical_emit_message(true, '', '')", 'postgres');
		wait_until('the standby to have caught up', sub {
			$from->safe_psql('postgres', "SELECT pg_last_wal_replay_lsn() >= '$lsn'") eq 't';
		});
	}
	PostgreSQL::Test::Utils::system_log(
		'pg_dump', '--file' => $file, '--dbname' => $from->connstr($database)) == 0
	  or die "pg_dump failed\n";
	my $clock = maybe_step_while_down($primary);
	sql("CREATE DATABASE $copy TEMPLATE template0 CONNECTION LIMIT 0", 'postgres');
	PostgreSQL::Test::Utils::system_log(
		'psql', '-Xq', '--set' => 'ON_ERROR_STOP=1', '--file' => $file,
		'--output' => '/dev/null', '--dbname' => $primary->connstr($copy)) == 0
	  or die "restore failed\n";
	return ($from == $primary ? '' : 'of the standby, ') . "$clock, " . move_to($copy);
};

1;
