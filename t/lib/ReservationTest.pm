# What the tests of the database's one clock share: a server whose time stands
# still, so that nothing logs but the rule under test; crashes, after which the time
# is an hour behind; and subtests.  A clock is its database's, so each subtest has a
# database of its own, with a clock that nobody has used, and begins at noon.
package ReservationTest;

use strict;
use warnings;

use Exporter 'import';
use SnowidTest;
use Test::More;

our @EXPORT = qw($node $db $noon start_at_noon subject sql take session waits_ok
  crash_back next_after_crash lsn page_at known_at time_of);

our $node;
our $db;			# of the subtest
our $noon = '2026-01-01 12:00:00';

# Make and start the server.
sub start_at_noon
{
	my ($name) = @_;

	$node = new_node($name);
	$node->append_conf('postgresql.conf', 'max_prepared_transactions = 1');
	start_with_clock($node, $noon);
	return;
}

# A subtest that begins at noon, in a new database with these sequences.
sub subject
{
	my ($name, $sequences, $code) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $n = Test::More->builder->current_test + 1;

	return subtest $name => sub {
		$db = "subject_$n";
		set_clock($node, $noon);
		sql("CREATE DATABASE $db", 'postgres');
		sql(join ';', 'CREATE EXTENSION snowid', map { "CREATE SEQUENCE $_" } @$sequences);
		$code->();
	};
}

# Each of these is of the subtest's database, unless another one is named.
sub sql
{
	my ($sql, $dbname) = @_;
	return $node->safe_psql($dbname || $db, $sql);
}

sub take
{
	my ($seq, $dbname) = @_;
	return sql("SELECT snowid.next_id(5, '$seq')", $dbname);
}

sub session { return $node->background_psql($db); }

# Begin statements in a session, which then waits for something of this type.
sub waits_ok
{
	my ($session, $statements, $type, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $pid = $session->query_safe('SELECT pg_backend_pid()');

	$session->{stdin} .= "$statements;\n";
	$session->{run}->pump_nb;
	$node->poll_query_until('postgres', qq{
SELECT wait_event_type = '$type' OR state = 'idle' AND query !~ 'pg_backend_pid'
FROM pg_stat_activity WHERE pid = $pid}) or die 'the session has not begun';
	is(sql("SELECT wait_event_type FROM pg_stat_activity WHERE pid = $pid", 'postgres'), $type, $name);
	return;
}

# Crash, and go on with the clock an hour behind.
sub crash_back
{
	crash($node);
	start_with_clock($node, '2026-01-01 11:00:00');
	return;
}

# The same, return the next id, and set the clock right.  The server is stopped after
# the recovery.  So only its files tell what there was: in the run that has recovered,
# the clock is believed in no case.
sub next_after_crash
{
	crash_back();
	$node->stop;
	start_with_clock($node, '2026-01-01 11:00:00');
	my $next = take(@_);
	set_clock($node, $noon);
	return $next;
}

sub lsn { return $node->lsn('insert'); }

# What the page has, and what the extension says of it: as times of ids.
sub page_at { return sql("SELECT snowid.id_timestamp(last_value >> 10 << 23) FROM $_[0]"); }
sub known_at { return sql("SELECT last_id_at FROM snowid.sequence_state('$_[0]')"); }
sub time_of { return sql("SELECT snowid.id_timestamp($_[0])"); }

1;
