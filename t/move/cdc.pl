# Who reads changes by logical decoding, as Debezium does, and follows the registry
# (doc/moves.md, "Who reads changes"), sees each change of a shard once, in order, while the shard is
# written on both servers, moves, and moves back.  Who does not, sees changes twice.
#
# The consumer here reads slots of pgoutput, and parses what they send.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $from = move_node('a');
my $to = move_node('b');
my $s = 'insta5';

# Before anything moves: publications, and slots, on both servers.
for ($from, $to)
{
	$_->start;
	$_->safe_psql('postgres', 'CREATE EXTENSION snowid');
	$_->safe_psql('postgres', 'CREATE PUBLICATION cdc FOR ALL TABLES');
	$_->safe_psql('postgres', q{SELECT pg_create_logical_replication_slot('cdc', 'pgoutput')});
}
make_shard($from, 5, $s);

# There and back, with writers on both servers.
my @writers = write_on($from, $to);
is_written($from);
moves_ok($from, $to, 5, ['--reverse'], 0, 'moved', qr/now lives at/);
push @writers, write_on($to, $from);
is_written($to);
moves_ok($from, $to, 5, ['back'], 0, 'and back');
push @writers, write_on($from);
is_written($from);
stop_writers(@writers);

my %stream = (a => [ changes($from) ], b => [ changes($to) ]);
my %address = map { $_->name => sprintf('host=%s port=%s dbname=postgres', $_->host, $_->port) } $from, $to;

# The stream of a server begins with what it knew when the slot was made: a has the
# shard, b does not.
my %valid;
for my $name ('a', 'b')
{
	my $here = $name eq 'a';
	my @parts = ([]);
	for my $change (@{ $stream{$name} })
	{
		if ($change->{table} eq 'snowid.shard_registry')
		{
			my $home = $change->{new}{home};
			my $was = $here;
			$here = !defined $home || $home eq $address{$name};
			push @parts, [] if $was && !$here;
		}
		elsif ($change->{table} =~ /^insta5/ && $here)
		{
			push @{ $parts[-1] }, $change;
		}
	}
	pop @parts if !@{ $parts[-1] };
	$valid{$name} = \@parts;
}
is(scalar(@{ $valid{a} }), 2, 'a has the shard twice');
is(scalar(@{ $valid{b} }), 1, 'b once, between');
cmp_ok(scalar(@$_), '>', 0, 'with changes: ' . @$_) for @{ $valid{a} }, @{ $valid{b} };

my @seen = (@{ $valid{a}[0] }, @{ $valid{b}[0] }, @{ $valid{a}[1] });
replays_ok('who follows the registry', @seen);

# What the writers were told.
my %inserted = map { $_->{new}{id} => 1 } grep { $_->{op} eq 'I' } @seen;
my @acknowledged = map { @{ $_->{ids} } } @writers;
my @stored = split /\n/, $from->safe_psql('postgres', "SELECT id FROM $s.users UNION ALL SELECT id FROM $s.photos");
is(scalar(grep { !$inserted{$_} } @stored), 0, 'each row that is there was seen');
cmp_ok(scalar(grep { $inserted{$_} } @acknowledged), '>', 3000, 'and so were the writers\' rows');

# Who reads both servers, and looks at no registry, sees what was copied, too.
my @all = grep { $_->{op} eq 'I' && $_->{table} =~ /^insta5\.users/ } map { @$_ } @stream{ 'a', 'b' };
my %times;
$times{ $_->{new}{id} }++ for @all;
cmp_ok(scalar(grep { $_ > 1 } values %times), '>', 0, 'who does not follow it sees rows twice');

$_->stop for $from, $to;
done_testing();

# Replay changes: each fits what was before it, and the result is what the shard has.
sub replays_ok
{
	my ($name, @changes) = @_;
	my %rows = (users => {}, photos => {});
	my @wrong;

	for my $change (@changes)
	{
		my ($table) = $change->{table} =~ /^insta5\.(users|photos)$/ or next;
		my $rows = $rows{$table};
		my $id = ($change->{new} // $change->{old})->{id};
		my $old = $rows->{$id};
		if ($change->{op} eq 'I')
		{
			push @wrong, "$table $id twice" if $old;
			$rows->{$id} = $change->{new};
		}
		elsif (!$old)
		{
			push @wrong, "$change->{op} of $table $id, which is not there";
		}
		elsif ($change->{op} eq 'U')
		{
			# The writers count up by one.
			push @wrong, "user $id: $old->{photos}, and then $change->{new}{photos}"
			  if $change->{new}{photos} != $old->{photos} + 1;
			$rows->{$id} = $change->{new};
		}
		else
		{
			delete $rows->{$id};
		}
	}
	is_deeply([ @wrong[ 0 .. ($#wrong < 4 ? $#wrong : 4) ] ], [], "$name: no change is missed, seen twice, or out of order");
	is(join("\n", map { "$_ $rows{users}{$_}{photos}" } sort { $a <=> $b } keys %{ $rows{users} }),
		$from->safe_psql('postgres', "SELECT id || ' ' || photos FROM $s.users ORDER BY id"), "$name: has the users");
	is(join("\n", sort { $a <=> $b } keys %{ $rows{photos} }),
		$from->safe_psql('postgres', "SELECT id FROM $s.photos ORDER BY id"), "$name: has the photos");
	return;
}

sub write_on
{
	return start_writers($s, @_);
}

# Wait until the shard has got some hundred more rows on this server.
sub is_written
{
	my ($node) = @_;
	my $last = $node->safe_psql('postgres', "SELECT max(id) FROM $s.photos");

	$node->poll_query_until('postgres', "SELECT count(*) > 500 FROM $s.photos WHERE id > $last") or die 'no writers';
	return;
}

# All that a server's slot sends: the operation, the table, the new row or the old
# one's key.
sub changes
{
	my ($node) = @_;
	my (%tables, @changes);

	for (split /\n/, $node->safe_psql('postgres', q{
SELECT encode(data, 'hex') FROM pg_logical_slot_get_binary_changes('cdc', NULL, NULL,
	'proto_version', '1', 'publication_names', 'cdc')}))
	{
		my ($op, $rest) = unpack 'a1 a*', pack('H*', $_);
		if ($op eq 'R')
		{
			my ($oid, $schema, $table, @columns) = unpack 'N Z* Z* x n/(x Z* x8)', $rest;
			$tables{$oid} = { name => "$schema.$table", columns => \@columns };
		}
		elsif ($op =~ /^[IUD]$/)
		{
			(my $oid, $rest) = unpack 'N a*', $rest;
			my %change = (op => $op, table => $tables{$oid}{name});
			while (length $rest)
			{
				(my $kind, my $n, $rest) = unpack 'a1 n a*', $rest;
				my %row;
				for my $column (@{ $tables{$oid}{columns} }[ 0 .. $n - 1 ])
				{
					(my $format, $rest) = unpack 'a1 a*', $rest;
					($row{$column}, $rest) = unpack 'N/a a*', $rest if $format eq 't';
				}
				$change{ $kind eq 'N' ? 'new' : 'old' } = \%row;
			}
			push @changes, \%change;
		}
	}
	return @changes;
}
