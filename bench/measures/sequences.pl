# The CPU time of an id, by how many sequences a statement uses in turn.
use strict;
use warnings;

use Bench;

measure
	unit => 'ns',
	title => 'Backend CPU time of an id, by the sequences used in turn in one statement',
	rounds => [ undef, 5 ], rows => [ undef, 300_000 ],
	xs => [ undef, [ 1, 16, 256, 1024, 4096, 8192 ] ],
	run => sub {
		my ($name, $now) = @_;

		make_sequences(@{ $now->{xs} });
		for my $k (@{ $now->{xs} })
		{
			# The first call of each sequence fills the session's caches.
			$session->run("\\set k $k\n\\set n " . 2 * $k);
			$session->run($_->{timed}) for variants($name);
			statement_cost($name, $now, $k);
		}
	};

1;
