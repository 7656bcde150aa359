# The target's clock is an hour behind, or ahead: ids go on rising all the
# same, since the sequence's state travels with the shard.  When it is set back, the
# launcher of PostgreSQL 15 starts no worker until it is there again.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b');
start_with_clock($a, '+0');
start_with_clock($b, '-3600');
my $s = make_shard($a, 5, 'insta5');
$b->safe_psql('postgres', 'CREATE EXTENSION snowid');

# After a crash, the sequence's page is behind its ids, and they must rise there
# all the same.
my $behind = make_shard($a, 6, 'insta6');
$a->safe_psql('postgres', 'CHECKPOINT');
my $seen = $a->safe_psql('postgres', "SELECT $behind.next_id(); SELECT max($behind.next_id()) FROM generate_series(1, 10)");
$seen =~ s/.*\n//;
crash($a);
start_with_clock($a, '+0');
is($a->safe_psql('postgres', "SELECT last_value < ($seen >> 23 << 10 | ($seen & 1023)) FROM $behind.id_seq"), 't',
	'a page that is behind');
moves_ok($a, $b, 6, [], 0, '... is moved', qr/clock/);
cmp_ok($b->safe_psql('postgres', "SELECT $behind.next_id()"), '>', $seen, '... and its ids rise');
moves_ok($a, $b, 6, ['finish'], 0, '... to the end');

my ($from, $to) = ($a, $b);
for my $clock ('-3600', '+3600')
{
	set_clock($b, $clock);
	for my $way ('there', 'back')
	{
		my @old = start_writers($s, $from);
		my @new = start_writers($s, $to);
		$from->poll_query_until('postgres', qq{SELECT count(*) > 100 FROM $s.users}) or die 'no load';
		my $last = $from->safe_psql('postgres', "SELECT last_value FROM $s.id_seq");
		$from->poll_query_until('postgres', qq{SELECT last_value > $last + 1000 FROM $s.id_seq}) or die 'no load';
		moves_ok($from, $to, 5, [], 0, "$clock s, $way", qr/clock/);
		await_writers(@old, @new);
		stop_writers(@old, @new);
		writers_ok("$clock s, $way", \@old, \@new);
		moves_ok($from, $to, 5, ['finish'], 0, "$clock s, $way: finished");
		($from, $to) = ($to, $from);
	}
}

# Days apart are refused: next_id() would not go on there.
set_clock($b, '-200000');
moves_ok($a, $b, 5, [], 1, 'days apart', qr/clock/);
nothing_left_ok($_, 'clocks') for $a, $b;

SKIP:
{
	skip 'the launcher knows new subscriptions', 2 if $b->pg_version >= 16;
	my $said = '';

	make_shard($a, 7, 'insta7');
	set_clock($b, '-3600');
	my $tool = IPC::Run::start([ move_command($a, $b, 7) ], '>&', \$said, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	my $is_told = eval { $tool->pump until $said =~ /target: no worker has been started.*type there: (SELECT .*;)/; $1 };
	ok($is_told, 'the launcher waits: told') or diag $said;
	$b->safe_psql('postgres', $is_told) if $is_told;
	$tool->kill_kill unless $is_told;
	ok(eval { $tool->finish }, '... with what helps') or diag $said;
}

done_testing();
