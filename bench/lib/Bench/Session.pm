# A psql that is asked again and again, so that one backend serves all
# variants of a measure, and its CPU time can be read between statements.
package Bench::Session;

use strict;
use warnings;

use IPC::Open2;
use Time::HiRes ();

sub new
{
	my $pid = open2(my $from, my $to, qw(psql -XqAt -v ON_ERROR_STOP=1));
	my $self = bless { to => $to, from => $from }, 'Bench::Session';
	$to->autoflush(1);
	$self->run('SET client_min_messages = warning');
	($self->{backend}) = $self->run('SELECT pg_backend_pid()');
	return $self;
}

# Run SQL or psql commands; returns the lines of the answer.
sub run
{
	my ($self, $sql) = @_;
	$self->ask($sql);
	return $self->answer;
}

# The same in two steps, for what several sessions do at a time.
sub ask
{
	my ($self, $sql) = @_;
	$self->{asked} = $sql;
	print { $self->{to} } "$sql\n;SELECT 'end of answer';\n";
}

sub answer
{
	my ($self) = @_;
	my @lines;
	while (defined(my $line = readline $self->{from}))
	{
		chomp $line;
		return @lines if $line eq 'end of answer';
		push @lines, $line;
	}
	die "psql ended in: $self->{asked}\n";
}

# Run SQL; returns nanoseconds of the backend's CPU, of the wall, bytes of WAL.
sub cost
{
	my ($self, $sql) = @_;
	my $wal = $self->wal;
	my $cpu = $self->cpu_ns;
	my $wall = Time::HiRes::time;
	$self->run($sql);
	my %cost = (wall => (Time::HiRes::time - $wall) * 1e9, cpu => $self->cpu_ns - $cpu);
	$cost{wal} = $self->wal - $wal;
	return \%cost;
}

# Bytes of WAL since the cluster was made.
sub wal
{
	my ($self) = @_;
	return ($self->run("SELECT pg_current_wal_insert_lsn() - '0/0'"))[0];
}

# The scheduler's own count, exact while the backend waits for us; without
# that, the ticks of 10 ms.
sub cpu_ns
{
	my ($self) = @_;
	my $proc = "/proc/$self->{backend}";
	return (split ' ', proc("$proc/schedstat"))[0] if -r "$proc/schedstat";
	my @stat = split ' ', proc("$proc/stat") =~ s/.*\) //sr;
	return ($stat[11] + $stat[12]) * 1e7;
}

sub proc
{
	my ($file) = @_;
	open my $in, '<', $file or die "$file: $!\n";
	local $/;
	return scalar <$in>;
}

1;
