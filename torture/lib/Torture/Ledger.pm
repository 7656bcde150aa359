# What clients of torture/operator were told, and whether it is still true.
#
# A writer for each server inserts and updates in every shard, wherever that lives,
# and notes what the server has acknowledged.  Each row is inserted once, and
# updated at most once, so that no later change hides a lost one.  A row, or
# its update, is owed from then on, unless a restore takes it back.
package Torture::Ledger;

use strict;
use warnings;

use Exporter 'import';
use IPC::Open2;
use POSIX qw(_exit);
use Time::HiRes qw(time usleep);
use Torture;
use Torture::Fleet;

our @EXPORT = qw(begin_writers end_writers hold_writers let_writers_go only_updates read_ledger take_back
  what_is_lost forget_rows newest_id acknowledged);

my %pid;
my %position;    # in each writer's file
my %owed;        # by shard and id: [ inserted on, at, updated on, at ]
my %seen;        # every id that was ever given
my $newest = 0;
my $acknowledged = 0;

sub begin_writers
{
	my @shards = @_;

	mkdir $writers_dir;
	for my $name (@names)
	{
		$pid{$name} = fork() // die $!;
		if ($pid{$name} == 0)
		{
			eval { write_for_ever($name, @shards) };
			_exit(0);
		}
	}
	return;
}

sub end_writers
{
	append_to_file("$writers_dir/stop", '');
	waitpid($_, 0) for values %pid;
	return;
}

sub write_for_ever
{
	my ($name, @shards) = @_;
	my ($in, $out, $psql);
	my $end = sub {
		close $in; close $out; waitpid($psql, 0); undef $psql;
	};

	srand($option{seed});
	$SIG{PIPE} = 'IGNORE';
	open(STDERR, '>>', "$writers_dir/errors.$name") or die $!;
	open(my $ledger, '>>', "$writers_dir/ids.$name") or die $!;
	$ledger->autoflush(1);
	until (-e "$writers_dir/stop")
	{
		if (-e "$writers_dir/hold.$name")
		{
			$end->() if defined $psql;
			append_to_file("$writers_dir/rests.$name", '');
			usleep(20_000);
			next;
		}
		unlink "$writers_dir/rests.$name";
		unless (defined $psql)
		{
			$psql = open2($out, $in, 'psql', '-XqAt', '-v', 'VERBOSITY=sqlstate', '-h', $base, '-p', $server{$name}->{port},
				'-U', 'postgres', '-d', 'app');
			$in->autoflush(1);
		}
		my $shard = one_of(@shards);
		my $table = "insta$shard.rows";
		my $sql = random_below(5) < 3 && !-e "$writers_dir/updates"
		  ? "INSERT INTO $table DEFAULT VALUES RETURNING 'i', $shard, id;"
		  : "UPDATE $table SET v = 1 WHERE id = (SELECT id FROM $table WHERE v = 0 ORDER BY id LIMIT 1) RETURNING 'u', $shard, id;";
		my ($lines, $is_answered) = ('', 0);

		print $in "$sql\n\\echo .\n";
		while (defined(my $line = <$out>))
		{
			$is_answered = 1, last if $line eq ".\n";
			$lines .= sprintf("%.6f|%s", time, $line) if $line =~ /^[iu]\|/;
		}
		print $ledger $lines;
		if (!$is_answered) { $end->(); usleep(50_000); }
		usleep(8_000);
	}
	return;
}

sub hold_writers
{
	my ($name) = @_;

	append_to_file("$writers_dir/hold.$name", '');
	wait_until("the writer of $name to rest", sub { -e "$writers_dir/rests.$name" });
	return;
}

sub let_writers_go
{
	my ($name) = @_;
	unlink "$writers_dir/hold.$name";
	return;
}

sub only_updates
{
	my ($only) = @_;
	$only ? append_to_file("$writers_dir/updates", '') : unlink "$writers_dir/updates";
	return;
}

# Read what was acknowledged since the last time.  Returns ids that came twice.
sub read_ledger
{
	my @twice;

	for my $name (@names)
	{
		my $path = "$writers_dir/ids.$name";
		next unless open(my $file, '<', $path);
		seek($file, $position{$name} // 0, 0);
		while (my $line = <$file>)
		{
			last unless $line =~ /\n$/;
			$position{$name} = tell($file);
			my ($at, $what, $shard, $id) = $line =~ /^([\d.]+)\|([iu])\|(\d+)\|(\d+)$/ or next;
			$acknowledged++;
			if ($what eq 'i')
			{
				push @twice, "$shard: id $id on $name" if $seen{$id}++;
				$owed{$shard}{$id} = [ $name, $at ];
				$newest = $id if $id > $newest;
			}
			elsif ($owed{$shard}{$id})
			{
				@{ $owed{$shard}{$id} }[ 2, 3 ] = ($name, $at);
			}
		}
	}
	return @twice;
}

sub newest_id { return $newest; }
sub acknowledged { return $acknowledged; }

# What a restore of a server to this time takes back of a shard, without more than a look or
# for good: what was acknowledged there after it.
sub take_back
{
	my ($shard, $name, $at, $for_good) = @_;
	my $rows = $owed{$shard};
	my %left;
	my $n = 0;

	while (my ($id, $e) = each %$rows)
	{
		my @e = @$e;

		if ($e[0] eq $name && $e[1] > $at) { $n++; next; }
		if (defined $e[2] && $e[2] eq $name && $e[3] > $at) { $n++; $#e = 1; }
		$left{$id} = \@e;
	}
	$owed{$shard} = \%left if $for_good;
	return (\%left, $n);
}

sub forget_rows
{
	my ($shard) = @_;
	delete $owed{$shard};
	return;
}

# Of what is owed of a shard, what is not in this text of its rows.
sub what_is_lost
{
	my ($shard, $text, $owed) = @_;
	my %v = map { split /,/ } split /\n/, $text;
	my @lost;

	$owed //= $owed{$shard};
	while (my ($id, $e) = each %$owed)
	{
		push @lost, !exists $v{$id} ? "row $id of $e->[0]" : "update of $id of $e->[2]"
		  if !exists $v{$id} || (defined $e->[2] && $v{$id} != 1);
	}
	return @lost;
}

1;
