# The cases in which ids can repeat, as doc/reliability.md says: they do while the
# clock has not passed them, they don't once it has, and advance() helps.  A
# clock that stands still shows each.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SnowidTest;
use Test::More;

my $now = '2026-06-01 00:00:00';
my $later = '2026-06-01 00:00:01';
my $next = "SELECT snowid.next_id(5, 's')";
my $node = new_node('not_promised');

sub sql
{
	return $node->safe_psql($_[1] // 'postgres', $_[0]);
}

sub new_sequence
{
	my ($kind) = @_;

	set_clock($node, $now);
	sql("DROP SEQUENCE IF EXISTS s; CREATE $kind SEQUENCE s");
	return split /\n/, sql("$next; $next; $next");
}

start_with_clock($node, $now);
sql('CREATE EXTENSION snowid');

my @cases = (
	[ 'setval() backwards', sub { sql("SELECT setval('s', 1)") } ],
	[ 'RESTART', sub { sql('ALTER SEQUENCE s RESTART') } ],
	[ 'DROP and CREATE', sub { sql('DROP SEQUENCE s; CREATE SEQUENCE s') } ],
	[
		'a crash of an unlogged sequence',
		sub {
			crash($node);
			start_with_clock($node, $now);
			is(sql("SELECT num_nulls(last_id_at, slots_left, ahead) FROM snowid.sequence_state('s')"),
				3, 'a crash of an unlogged sequence: nothing is known of it');
		},
		'UNLOGGED'
	]);

foreach my $case (@cases)
{
	my ($name, $do, $kind) = @$case;

	# An unlogged sequence would wait for the floor that the logged ones leave.
	($now, $later) = ('2026-06-01 00:01:00', '2026-06-01 00:01:01') if $kind;
	my @ids = new_sequence($kind // '');

	$do->();
	is(sql($next), $ids[0], "$name: repeats what the clock has not passed");

	@ids = new_sequence($kind // '');
	$do->();
	sql("SELECT snowid.advance('s', $ids[2])");
	cmp_ok(sql($next), '>', $ids[2], "$name: no repetition after advance()");

	@ids = new_sequence($kind // '');
	$do->();
	set_clock($node, $later);
	cmp_ok(sql($next), '>', $ids[2], "$name: no repetition by a clock that went on");
}

# A rollback brings back the old file with its state.
new_sequence('');
my $seen = sql("BEGIN; ALTER SEQUENCE s CACHE 2; $next; ROLLBACK");
is(sql($next), $seen, 'rollback of an ALTER SEQUENCE: repeats what was taken inside');
$seen = sql("BEGIN; $next; ROLLBACK");
cmp_ok(sql($next), '>', $seen, 'rollback of an id alone: no repetition');

# A copy beside the original.
new_sequence('');
sql('CREATE DATABASE copy TEMPLATE postgres', 'template1');
# The copy starts above what the original had reserved.
set_clock($node, '2026-06-01 00:01:10');
is(sql($next, 'copy'), sql($next), 'two live copies: the same ids');

# nextval() trusts the log_cnt that a copy has from its original; next_id() doesn't.
foreach my $case ([ "SELECT nextval('s')", 'the same' ], [ $next, 'larger' ])
{
	my ($call, $expected) = @$case;

	new_sequence('');
	sql("SELECT nextval('s')");
	sql('CREATE DATABASE copied TEMPLATE postgres STRATEGY wal_log', 'template1');
	my $before = sql($call, 'copied');
	crash($node);
	start_with_clock($node, $now);
	my $after = sql($call, 'copied');
	is($after == $before ? 'the same' : $after > $before ? 'larger' : 'smaller',
		$expected, "$call in a copy, after a crash");
	sql('DROP DATABASE copied', 'template1');
}

$node->stop;
done_testing();
