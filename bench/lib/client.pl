#!/usr/bin/perl
#
# client.pl GO CONNSTR[,CONNSTR] FIRST LAST PER_POOL KEEP PAUSE
#
# A client that inserts rows into random shards from FIRST to LAST, as long as the file
# GO is there, one each PAUSE seconds.  Writes for each when it began, how long it took, in
# ms, how many errors came before, and the id; or an error.
#
# With two servers, who is refused goes to the other, and tries again every 5 ms, for
# as long as it takes.  With PER_POOL (not 0), the shards have pools of so many, called
# p0, p1, ...; those below 0 have the pool rest.  It keeps its connections if KEEP is 1.

use strict;
use warnings;

use IPC::Open2;
use Time::HiRes qw(time sleep);

my ($go, $servers, $first, $last, $per_pool, $keep, $pause) = @ARGV;
my @servers = split /,/, $servers;
my %psql;
$| = 1;

# What psql says to a statement, in one line.
sub ask
{
	my ($connstr, $sql) = @_;
	my $answer = '';

	if ($keep)
	{
		my ($in, $out) = @{ $psql{$connstr} //= do { open2(my $o, my $i, "psql -XAtq -v VERBOSITY=sqlstate '$connstr' 2>&1"); [ $i, $o ] } };
		print $in "$sql;\n\\echo done\n";
		$in->flush;
		while (defined(my $line = <$out>))
		{
			last if $line eq "done\n";
			$answer .= $line;
		}
	}
	else
	{
		$answer = `psql -XAtq -v VERBOSITY=sqlstate -c "$sql" '$connstr' 2>&1`;
	}
	return $answer =~ s/\s+/ /gr =~ s/ $//r;
}

# It is there before it is needed.
ask($_, 'SELECT 1') for @servers > 1 ? @servers : ();
while (-e $go)
{
	my $shard = $first + int rand($last - $first + 1);
	my $pool = !$per_pool ? '' : $shard < 0 ? ' dbname=rest' : ' dbname=p' . int($shard / $per_pool);
	my ($start, $errors, $answer) = (time, 0);

	for (;;)
	{
		$answer = ask($servers[0] . $pool, 'INSERT INTO insta' . abs($shard) . ".users (name) VALUES ('new') RETURNING id");
		last if $answer =~ /^\d+$/;
		$errors++;
		last if @servers == 1 || $answer !~ /SN00[12]|25006/;
		push @servers, shift @servers;
		sleep 0.005;
	}
	printf "%.3f %.1f %d %s\n", $start, 1000 * (time - $start), $errors, $answer;
	my $rest = $pause - (time - $start);
	sleep $rest if $rest > 0;
}
