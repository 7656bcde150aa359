# Each shard has a next_id(), and the parser looks at all that have the name.
use strict;
use warnings;

use Bench;

measure
	unit => '1/s',
	title => 'One id in each statement that a client types, by the number of shards',
	rounds => [ undef, 5 ], seconds => [ undef, 4 ],
	xs => [ undef, [ 8, 8192 ] ],
	run => sub {
		my ($name, $now) = @_;
		my $made = 0;

		for my $x (@{ $now->{xs} })
		{
			say_progress("$name: making $x shards");
			$session->run("CALL snowid.create_shards($made, $x - 1, 'typed'); VACUUM ANALYZE pg_catalog.pg_proc");
			$made = $x;
			pgbench_rounds($name, $name, $now, 1, '-M simple -D is_warm=0 -P 1', $x);
		}
		$session->run(q{
	DO $$
	DECLARE
		s int;
	BEGIN
		FOR s IN SELECT shard FROM snowid.shard_registry LOOP
			PERFORM snowid.drop_shard(s);
			COMMIT;
		END LOOP;
	END
	$$});
	};

1;
