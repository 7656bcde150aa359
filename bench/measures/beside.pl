# How long a call for one id takes, alone and beside a session that takes ids of the
# same sequence in bulk, and sleeps when it is too far ahead.
use strict;
use warnings;

use Bench;
use File::Temp;

measure
	unit => 'ms',
	title => 'One id a transaction, the 99th of 100 calls by how long they take',
	rounds => [ undef, 5 ], seconds => [ undef, 3 ],
	run => sub {
		my ($name, $now) = @_;
		my $directory = File::Temp::tempdir(CLEANUP => 1);

		$session->run('CREATE SEQUENCE IF NOT EXISTS beside');
		spew("$directory/script", "SELECT snowid.next_id(5, 'beside');\n");
		for my $round (1 .. $now->{rounds})
		{
			for my $variant ({ name => 'alone', label => 'alone' }, { name => 'bulk', label => 'beside a session in bulk' })
			{
				say_progress("$name, round $round of $now->{rounds}: $variant->{name}");
				my $bulk;
				if ($variant->{name} eq 'bulk')
				{
					$bulk = Bench::Session->new;
					print { $bulk->{to} } "SELECT count(snowid.next_id(5, 'beside')) FROM generate_series(1, 1500000 * $now->{seconds});\n";
				}
				unlink glob "$directory/log*";
				my $said = `cd $directory && pgbench -n -M prepared -T $now->{seconds} -f script -l --log-prefix=log 2>&1`;
				die "pgbench: $said\n" if $?;
				$bulk->run('SELECT 1') if $bulk;
				my @took = sort { $a <=> $b } map { (split / /)[2] } map { split /\n/, slurp($_) } glob "$directory/log*";
				record($name, $variant, '', $took[ 0.99 * $#took ] / 1000);
			}
		}
	};

1;
