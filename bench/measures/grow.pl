# The same again and again into the same tables, and how their indexes grow.
use strict;
use warnings;

use Bench;

measure
	unit => 'ms',
	title => 'The next million rows, by the millions in the table then',
	rounds => [ undef, 1 ], rows => [ undef, 1_000_000 ],
	only => qr/^(bigserial|next_id|gen_random_uuid|uuidv7)$/,
	xs => [ undef, [ 1 .. ($full ? 50 : 10) ] ],
	run => sub {
		my ($name, $now) = @_;
		my @variants = grep { $_->{name} =~ $now->{only} } variants('load');

		$session->run("\\set n $now->{rows}");
		$session->run($_->{setup}) for @variants;
		for my $x (@{ $now->{xs} })
		{
			for my $variant (@variants)
			{
				say_progress("$name, million $x of $now->{xs}[-1]: $variant->{name}");
				$session->run('CHECKPOINT');
				my $cost = $session->cost($variant->{timed});
				record($name, $variant, $x, $cost->{wall} / 1e6);
				record('grow_cpu', $variant, $x, $cost->{cpu} / 1e6, 'ms');
				my ($size) = $session->run("SELECT pg_relation_size('load_$variant->{name}_pkey')");
				record('index', $variant, $x, $size / 1048576, 'MiB');
			}
		}
		$session->run("DROP TABLE load_$_->{name}") for @variants;
	};

1;
