# What the tests of the split share: a server with shards and a streaming standby
# of it, and what is true of both afterwards.
package SplitTest;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run ();
use MoveTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

our @EXPORT = qw(split_pair check_ok make_standby read_only await_rows errors_of told_ids_ok nothing_left_but
  @limits fresh_split kill_at end_with write_to);

# A machine that is busy is no reason to give up.
our @limits = ('--pause-limit', 60000, '--lock-timeout', 1000);

# The pair that fresh_split() has made, and what clients were told of its shards.
my ($source, $target, %newest, %rows);
my $standbys = 0;

# A server with shards 1 to 4, and a standby that streams from it by a slot; with
# options of initdb, and lines of configuration.
sub split_pair
{
	my ($name, $extra, $conf) = @_;
	my $primary = move_node("primary_$name", allows_streaming => 1, $extra ? (extra => $extra) : ());

	$primary->append_conf('postgresql.conf', 'max_prepared_transactions = 5');
	$primary->append_conf('postgresql.conf', $conf // '');
	$primary->start;
	make_shard($primary, 1, 'insta1');
	if ($SnowidTest::edition eq 'portable')
	{
		$primary->safe_psql('postgres', q{CALL snowid.create_shards(2, 4, ddl =>
'CREATE TABLE users (id bigint PRIMARY KEY DEFAULT next_id(), name text)')});
	}
	else
	{
		make_shard($primary, $_, "insta$_") for 2 .. 4;
	}
	return ($primary, make_standby($primary, $name));
}

sub make_standby
{
	my ($primary, $name) = @_;
	my $standby = PostgreSQL::Test::Cluster->new("standby_$name");

	$primary->safe_psql('postgres', "SELECT pg_create_physical_replication_slot('standby_$name', true)");
	$primary->backup("backup_$name");
	$standby->init_from_backup($primary, "backup_$name", has_streaming => 1);
	$standby->append_conf('postgresql.conf', "primary_slot_name = 'standby_$name'\nwal_retrieve_retry_interval = 100ms");
	$standby->start;
	$primary->wait_for_catchup($standby);
	return $standby;
}

# What a check finds: statements that make it so, and that undo it, on the source.
sub check_ok
{
	my ($primary, $standby, $name, $found, $do, $undo) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$primary->safe_psql('postgres', $_) for @$do;
	$primary->wait_for_catchup($standby);
	like((snowid_move($primary, $standby, '1-2', 'plan'))[1], $found, "check: $name");
	$primary->safe_psql('postgres', $_) for @$undo;
	$primary->wait_for_catchup($standby);
	return;
}

# What a server's configuration says.
sub read_only
{
	my ($node) = @_;
	return $node->safe_psql('postgres', q{SELECT reset_val FROM pg_settings WHERE name = 'default_transaction_read_only'});
}

# Wait for users with larger ids.
sub await_rows
{
	my ($node, $shard, $id) = @_;
	$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM insta$shard.users WHERE name = 'new' AND id > $id")
	  or die "no row in $shard";
	return;
}

sub errors_of
{
	my ($writer) = @_;
	my %errors;
	my $errors = slurp_file($writer->{errors});
	$errors{$1}++ while $errors =~ /ERROR:\s+(\w{5})/g;
	return \%errors;
}

# All rows whose ids the writers were told are there, but for the last one of each,
# which it was perhaps about to commit, and for photos that were deleted, the oldest.
sub told_ids_ok
{
	my ($node, $s, @writers) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my %there = map { $_ => 1 } split /\n/, $node->safe_psql('postgres', "SELECT id FROM $s.users UNION ALL SELECT id FROM $s.photos");
	my $oldest = $node->safe_psql('postgres', "SELECT min(id) FROM $s.photos");
	my @lost;
	my $told = 0;

	for my $writer (@writers)
	{
		my @rows = @{ $writer->{rows} };
		pop @rows;
		push @lost, grep { $_ > $oldest && !$there{$_} } @rows;
		$told += grep { $_ > $oldest } @rows;
	}
	cmp_ok($told, '>', 0, "$s: clients were told of rows");
	is_deeply(\@lost, [], "$s: and all are there");
	return;
}

# Nothing that a split makes is left on a server but a slot that was there.
sub nothing_left_but
{
	my ($node, $slot, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	is($node->safe_psql('postgres', q{
SELECT 'slot ' || slot_name FROM pg_replication_slots
UNION ALL SELECT 'trigger on ' || tgrelid::regclass FROM pg_trigger WHERE tgname = 'snowid_fence'
UNION ALL SELECT 'journal of shard ' || shard FROM snowid.moves}), "slot $slot", "$name: nothing is left");
	return;
}

# Begin anew: shards 1 to 4 on a server, and a standby of it, nothing under way.
# What the subject before has left is used if it is so, or can be made so.
sub fresh_split
{
	my $is_new = !defined $source || answer($source, 'SELECT NOT pg_is_in_recovery() AND NOT EXISTS (SELECT FROM snowid.moves)') ne 't';

	if ($is_new)
	{
		$_->stop('immediate', fail_ok => 1) for grep { defined } $target, $source;
		($source, $target) = split_pair('kill' . $standbys++);
		clients_know($_) for 1 .. 4;
		return ($source, $target);
	}
	let_go_steps($source);
	if (living($source) ne '1,2,3,4')
	{
		$source->safe_psql('postgres', 'DELETE FROM snowid.shard_registry WHERE shard IN (1, 2)');
		for (1, 2)
		{
			make_shard($source, $_, "insta$_");
			clients_know($_);
		}
	}
	if (answer($target, q{SELECT pg_is_in_recovery() AND reset_val = 'off' FROM pg_settings WHERE name = 'default_transaction_read_only'}) ne 't')
	{
		$target->stop('immediate', fail_ok => 1);
		$source->safe_psql('postgres', q{SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots});
		$target = make_standby($source, 'kill' . $standbys++);
	}
	$source->wait_for_catchup($target);
	return ($source, $target);
}

# What a server says, if it is there.
sub answer
{
	my ($node, $query) = @_;
	my ($code, $said) = $node->psql('postgres', $query);
	return $code ? '' : $said;
}

sub clients_know
{
	my ($shard) = @_;
	$newest{$shard} = $source->safe_psql('postgres', "SELECT max(id) FROM insta$shard.users");
	$rows{$shard} = 0;
	return;
}

# Run the split of shards 1 and 2 and kill somebody at a step; then start who was
# killed.  Where: side, step, whether in its commit, of which shard.  "replayed" is
# between the fence's commit and its replay.
sub kill_at
{
	my ($where, $victim) = @_;
	my ($side, $step, $in_commit, $shard) = @$where;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $held = $side eq 'source' ? $source : $target;
	my $hold = hold_at_step($source, $step eq 'replayed' ? 'fenced' : $step, $in_commit, $shard);
	my $said = '';

	# What is held on the target is held by a lock that is taken there.
	if ($side eq 'target')
	{
		$hold->quit;
		$source->wait_for_catchup($target);
		$hold = $target->background_psql('postgres');
		$hold->query_safe('SELECT pg_advisory_lock(47)');
	}
	my $tool = IPC::Run::start([ move_command($source, $target, '1-2', 'split', @limits) ], '>', \$said, '2>&1');
	wait_until_held($held) or die "does not get there: $said";
	if ($step eq 'replayed')
	{
		$target->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
		$target->poll_query_until('postgres', q{SELECT pg_get_wal_replay_pause_state() = 'paused'}) or die 'not paused';
		$hold->quit;
		$source->poll_query_until('postgres', q{SELECT bool_and(step = 'fenced') FROM snowid.moves}) or die 'not fenced';
	}
	if ($victim eq 'tool')
	{
		$tool->kill_kill;
	}
	else
	{
		crash($victim eq 'source' ? $source : $target);
	}
	$hold->{run}->kill_kill;
	if ($victim ne 'tool')
	{
		$tool->finish;
		my $code = $? >> 8;

		# Only the source knows whether the set is closed there.
		is($code . read_only($target), '3on', 'the target is left read-only') if $victim eq 'source' && "$side $step" eq 'source fenced';
		($victim eq 'source' ? $source : $target)->start;
		my $is_closed = $source->safe_psql('postgres', 'SELECT count(*) FROM snowid.moves WHERE closed') > 0;
		ok($code == 3 || ($code == 1 && !$is_closed) || ($code == 0 && $side eq 'target'), "$victim killed: exit status $code") or diag $said;
	}
	$target->safe_psql('postgres', 'SELECT CASE WHEN pg_is_in_recovery() THEN pg_wal_replay_resume()::text END');
	for my $node ($source, $target)
	{
		let_go_steps($node) if $node->safe_psql('postgres', 'SELECT pg_is_in_recovery()') eq 'f';
	}

	if ($target->safe_psql('postgres', 'SELECT pg_is_in_recovery()') eq 't')
	{
		$target->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_stat_wal_receiver WHERE status = 'streaming'}) or die 'does not stream';
	}

	# Who is open where.
	for my $shard (1 .. 4)
	{
		my @open = grep { accepts_writes($_, $shard) } $source, $target;
		cmp_ok(scalar @open, '<=', 1, "$victim killed: shard $shard is open on one server, if any");
		ok(@open == 1 && $open[0] == $source, "$victim killed: shard $shard stays open on the source") if $shard > 2;
		write_to($open[0], $shard, "$victim killed") if @open;
	}
	moves_ok($source, $target, '1-2', ['status'], 1, "$victim killed: status");
	return;
}

# Come to an end, and look that all is there, and nothing else.
sub end_with
{
	my ($end) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	if ($end eq 'abort')
	{
		moves_ok($source, $target, '1-2', ['abort'], 0, $end, qr/the split is undone|nothing to abort/);
		is(living($source), '1,2,3,4', "$end: all live on the source");
		is(read_only($target), 'off', "$end: the standby is as before");
		write_to($source, $_, $end) for 1 .. 4;
		check_rows($source, $_, $end) for 1 .. 4;
		return;
	}
	moves_ok($source, $target, '1-2', [ 'split', @limits ], 0, $end);
	is(living($source) . ' ' . living($target), '3,4 1,2', "$end: each has its own");
	is(read_only($target), 'off', "$end: the target takes writes");
	moves_ok($source, $target, '1-2', ['finish'], 0, "$end: finished");
	nothing_left_ok($_, $end) for $source, $target;
	write_to($target, $_, $end) for 1, 2;
	write_to($source, $_, $end) for 3, 4;
	check_rows($target, $_, $end) for 1, 2;
	check_rows($source, $_, $end) for 3, 4;
	return;
}

# Does the server accept a write now?
sub accepts_writes
{
	my ($node, $shard) = @_;
	return sqlstate($node, "SET lock_timeout = '10s'; BEGIN; INSERT INTO insta$shard.users (name) VALUES ('probe'); ROLLBACK") eq '';
}

# A row whose id must be above all before.
sub write_to
{
	my ($node, $shard, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $id = $node->safe_psql('postgres', "INSERT INTO insta$shard.users (name) VALUES ('row') RETURNING id");

	cmp_ok($id, '>', $newest{$shard}, "$name: ids of shard $shard rise");
	$newest{$shard} = $id;
	$rows{$shard}++;
	return;
}

sub check_rows
{
	my ($node, $shard, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($node->safe_psql('postgres', "SELECT count(*) FROM insta$shard.users WHERE name = 'row'"), $rows{$shard}, "$name: all rows of shard $shard are there");
	return;
}

1;
