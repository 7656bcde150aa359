# A relay between a program and its servers that lets somebody in before the n-th
# statement, as if he had waited for that instant.
#
# It stands in a directory of its own, with sockets called as the servers' own are, and
# passes on what comes.  A statement is a message Query or Parse of whatever session: the
# program's, its workers', pg_dump's.  Before the n-th is passed on, a command is run; what
# waits for a lock goes on to wait, in the middle of the program.
package RaceTest;

use strict;
use warnings;

use Exporter 'import';
use IO::Select;
use IO::Socket::UNIX;
use IPC::Run ();
use POSIX ();
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time);

our @EXPORT = qw(relayed race);

# How long the statement is held back for the command, in seconds.
our $hold = 0.3;

my $dir = PostgreSQL::Test::Utils::tempdir_short();

# How to reach a server through the relay.
sub relayed
{
	my ($node) = @_;
	return "host=$dir port=" . $node->port . ' dbname=postgres';
}

# How many statements are in what has come of a session.
sub statements
{
	my ($side) = @_;
	my $n = 0;

	while (length $side->{in} >= ($side->{begun} ? 5 : 4))
	{
		my $len = $side->{begun} ? 1 + unpack('N', substr($side->{in}, 1, 4)) : unpack('N', $side->{in});
		last if length $side->{in} < $len;
		$n++ if $side->{begun} && substr($side->{in}, 0, 1) =~ /[QP]/ && $len > 6;
		$side->{begun} = 1;
		substr($side->{in}, 0, $len) = '';
	}
	return $n;
}

# Pass on until the process is ended, or its parent has.  Each side has what is still to be
# written to it, and of a program what is not yet a whole message.
sub relay
{
	my ($listeners, $n, $attack, $told) = @_;
	my ($read, $write) = (IO::Select->new(map { $_->{socket} } values %$listeners), IO::Select->new);
	my $parent = getppid();
	my $seen = 0;
	my (%side, @held, $until, $running);

	while (getppid() == $parent)
	{
		my ($readable, $writable) = IO::Select->select($read, $write, undef, @held ? 0.002 : 1);

		for my $socket (@{ $readable // [] })
		{
			if (my $listener = $listeners->{$socket})
			{
				my $client = $socket->accept or next;
				my $server = IO::Socket::UNIX->new(Peer => $listener->{peer}) or next;
				$_->blocking(0) for $client, $server;
				$side{$client} = { socket => $client, other => $server, out => '', in => '', from_client => 1 };
				$side{$server} = { socket => $server, other => $client, out => '', in => '' };
				$read->add($client, $server);
				next;
			}
			my $from = $side{$socket} or next;
			my $to = $side{ $from->{other} };
			my $got = sysread($socket, my $part, 65536);
			next if !defined $got && $!{EAGAIN};
			if (!$got)
			{
				$read->remove($socket);
				$to->{ends} = 1;
				$write->add($to->{socket});
				next;
			}
			if ($from->{from_client})
			{
				$from->{in} .= $part;
				my $before = $seen;
				$seen += statements($from);
				if ($before < $n && $seen >= $n)
				{
					$running = fork() // die;
					exec @$attack or POSIX::_exit(1) if $running == 0;
					syswrite($told, 'n');
					$until = time() + $hold;
					push @held, [ $to, $part ];
					next;
				}
				# What comes after it of the same session comes after it.
				if (grep { $_->[0] == $to } @held)
				{
					push @held, [ $to, $part ];
					next;
				}
			}
			$to->{out} .= $part;
			$write->add($to->{socket});
		}
		if (@held && (waitpid($running, POSIX::WNOHANG) != 0 || time() > $until))
		{
			for (splice @held)
			{
				$_->[0]{out} .= $_->[1];
				$write->add($_->[0]{socket});
			}
		}
		for my $socket (@{ $writable // [] })
		{
			my $to = $side{$socket} or next;
			my $sent = length $to->{out} ? syswrite($socket, $to->{out}) : 0;
			substr($to->{out}, 0, $sent) = '' if $sent;
			next if length $to->{out} && (defined $sent || $!{EAGAIN});
			$write->remove($socket);
			next if !$to->{ends} && defined $sent;
			shutdown($socket, 1);
			if (!$read->exists($socket) || !defined $sent)
			{
				my $other = delete $side{ $to->{other} };
				delete $side{$socket};
				$read->remove($socket, $other->{socket});
				$write->remove($other->{socket});
				close $_ for $socket, $other->{socket};
			}
		}
	}
}

# Run a program whose servers are reached through the relay, with the attack before its
# n-th statement.  Returns whether there was an n-th, its exit code, and what it has said.
sub race
{
	my ($nodes, $n, $attack, @command) = @_;
	my %listeners;
	my $said = '';

	for (@$nodes)
	{
		my $name = '/.s.PGSQL.' . $_->port;
		unlink "$dir$name";
		my $socket = IO::Socket::UNIX->new(Local => "$dir$name", Listen => 100) or die "$dir$name: $!";
		$listeners{$socket} = { socket => $socket, peer => $_->host . $name };
	}
	pipe(my $hear, my $tell) or die;
	my $pid = fork() // die;
	if ($pid == 0)
	{
		$SIG{TERM} = sub { POSIX::_exit(0) };
		relay(\%listeners, $n, $attack, $tell);
		POSIX::_exit(1);
	}
	close $_->{socket} for values %listeners;
	close $tell;
	IPC::Run::run(\@command, '<', \undef, '>&', \$said, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	my $code = $? >> 8;
	kill 'TERM', $pid;
	waitpid($pid, 0);
	return (sysread($hear, my $told, 1) ? 1 : 0, $code, $said);
}

1;
