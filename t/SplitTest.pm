# What the tests of the split share: a server with shards and a streaming standby
# of it, and what is true of both afterwards.
package SplitTest;

use strict;
use warnings;

use Exporter 'import';
use MoveTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

our @EXPORT = qw(split_pair check_ok make_standby read_only await_rows errors_of told_ids_ok nothing_left_but);

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

1;
