# A sequence is set ahead, by setval() or advance().
use strict;
use warnings;

use Torture;
use Torture::Writers;

fault 4, sub {
	my $n = NEXTVAL;
	my $seq = sequence($n);
	my $slots = 1 + random_below(5_000_000);

	if ($is_snowid && random_below(2))
	{
		sql("SELECT snowid.advance('$seq', snowid.max_id(clock_timestamp() + '2 s'))");
		return 'advance';
	}
	sql_alone("SELECT setval('$seq', last_value + $slots) FROM $seq");
	return "setval +$slots";
};

1;
