# The WAL of a row when many shards get one each, and no shard the next one
# within a second; and how many records of it are of sequences, a second.  What
# the first row after a checkpoint logs is not counted.
use strict;
use warnings;

use Bench;

measure
	unit => 'bytes',
	title => 'WAL of a row, by the number of shards, each used once in 1.2 s',
	rounds => [ 2, 5 ], passes => [ 2, 3 ],
	xs => [ [1000], [1000] ],
	run => sub {
		my ($name, $now) = @_;
		my $pass = sub {
			my ($variant) = @_;
			my $end = time + 1.2;
			$session->run($variant->{timed});
			my $left = $end - time;
			sleep $left if $left > 0;
		};

		make_sequences(@{ $now->{xs} });
		$session->run('CREATE EXTENSION IF NOT EXISTS pg_walinspect');
		for my $round (1 .. $now->{rounds})
		{
			for my $x (@{ $now->{xs} })
			{
				$session->run("SET bench.shards = $x");
				for my $variant (in_turn($round, variants($name)))
				{
					say_progress("$name $x, round $round of $now->{rounds}: $variant->{name}");
					$session->run('CHECKPOINT');
					$session->run($variant->{setup});
					$pass->($variant);
					my ($wal, $since) = ($session->wal, time);
					$pass->($variant) for 1 .. $now->{passes};
					my $seconds = time - $since;
					record($name, $variant, $x, ($session->wal - $wal) / $x / $now->{passes});
					my ($records) = $session->run(<<~"SQL");
	SELECT count(*) FROM pg_get_wal_records_info('0/0'::pg_lsn + $wal, pg_current_wal_flush_lsn())
		WHERE resource_manager = 'Sequence'
	SQL
					record('quiet_records', $variant, $x, $records / $seconds, '1/s');
				}
			}
		}
	};

1;
