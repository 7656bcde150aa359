# A sequence is dropped and created again; its shard has a new number.
use strict;
use warnings;

use Torture;
use Torture::Writers;

fault 3, sub {
	my $n = RECREATED;
	my $seq = sequence($n);
	my $shard = ++$last_shard;

	sql_alone("DROP SEQUENCE $seq; CREATE SEQUENCE $seq; GRANT $usage ON SEQUENCE $seq TO app;
		UPDATE torture.seqs SET shard = $shard, seq = '$seq' WHERE n = $n;"
		  . ($is_snowid ? '' : SnowidTest::snippet_function("torture.next_id_$n", "torture.q$n", $shard)));
	return 'and CREATE';
};

1;
