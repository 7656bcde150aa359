# The checker of torture/patroni must see each kind of violation: histories that
# are right but for one thing, and the same history without it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../../torture/lib";
use PostgreSQL::Test::Utils;
use Test::More;
use Torture::History qw(check_history);

# Two writers and a reader of shard 1, and what is there at the end.
my %right = (
	'ids.0' => "10 20 1 ok r 100 101\n50 60 1 ok r 130 131\n70 80 1 no r 140\n",
	'ids.1' => "15 30 1 ok s 110\n40 45 1 ? r 120\n90 95 1 ok r 150\n",
	'read.0' => "21 22 1 0 105 100 101\n61 62 1 105 145 120 130 131\n",
	'rows.A.1' => "100\n101\n120\n130\n131\n",
	'rows.B.1' => "150\n");

# The violations that are found, when some of the files are others.
sub violations
{
	my ($windows, %files) = @_;
	my $directory = PostgreSQL::Test::Utils::tempdir();

	%files = (%right, %files);
	append_to_file("$directory/$_", $files{$_}) for keys %files;
	my ($count) = check_history($directory, @$windows);
	return join ' ', map { "$_=$count->{$_}" }
	  grep { $count->{$_} } sort(keys %Torture::History::violation, qw(rows_lost_asynchronous repeats_unacknowledged));
}

is(violations([]), '', 'nothing is wrong');
is(violations([], 'ids.1' => "40 45 1 ? r 120\n90 95 1 ok r 131 150\n"), 'order_breaks=1 repeats=1', 'an id that came twice');
is(violations([], 'ids.1' => "15 30 1 ok s 110\n40 45 1 ? s 120 110\n90 95 1 ok r 150\n"),
	'order_breaks=1 repeats_unacknowledged=1', 'one of a call that was not acknowledged');
is(violations([], 'ids.1' => "40 45 1 ? r 120\n90 95 1 ok s 105\n96 97 1 ok r 150\n"), 'order_breaks=1', 'an id below one answered before');
is(violations([], 'ids.1' => "15 55 1 ok s 105\n40 45 1 ? r 120\n90 95 1 ok r 150\n"), '', '... but not of a call that had begun before');
is(violations([], 'rows.B.1' => ''), 'rows_lost=1', 'a row that is gone');
is(violations([ [ 94, 96 ] ], 'rows.B.1' => ''), 'rows_lost_asynchronous=1', '... while the servers were asynchronous');
is(violations([], 'rows.B.1' => "131\n150\n"), 'rows_in_two_places=1', 'a row on two servers');
is(violations([], 'rows.B.1' => "140\n150\n"), 'rows_missed=1 rows_of_rollbacks=1', 'a row that was rolled back');
is(violations([], 'read.0' => "21 22 1 0 115 100 101\n61 62 1 115 145 130 131\n"), 'rows_missed=1', 'a row below a bookmark');
is(violations([], 'read.0' => "21 22 1 0 125 100 101 119 120\n"), 'rows_vanished=1', 'a row that was read, and is gone');

done_testing();
