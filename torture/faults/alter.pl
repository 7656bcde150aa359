# The definition of a sequence is altered.
use strict;
use warnings;

use Torture;
use Torture::Writers;

fault 4, sub {
	my $n = ALTERED;
	my $seq = sequence($n);
	my $cache = 1 + random_below(50);
	my $increment = one_of(1, 1, 2, 10, 16);
	my @command = (
		"ALTER SEQUENCE $seq CACHE $cache",
		"ALTER SEQUENCE $seq OWNER TO " . one_of('app', 'CURRENT_USER'),
		"ALTER SEQUENCE $seq INCREMENT $increment;
		 UPDATE torture.seqs SET increment = $increment WHERE n = $n",
		"SAVEPOINT s; ALTER SEQUENCE $seq RESTART; ROLLBACK TO s");
	my $command = one_of(@command);

	if (random_below(5) == 0)
	{
		sql_alone("ALTER SEQUENCE $seq SET UNLOGGED");
		let_ids_flow(random_below(20_000));
		$command = "ALTER SEQUENCE $seq SET LOGGED";
	}
	sql_alone($command);
	return $command =~ s/\s+/ /gr;
};

1;
