# Logical replication that carries sequences, of PostgreSQL 19, and what
# doc/reliability.md says of it: ALTER SUBSCRIPTION ... REFRESH SEQUENCES sets a
# sequence back, like setval(), unless a fence closes it on either side.  Before
# 19 the test is skipped.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use SnowidTest;
use Test::More;

my $publisher = new_node('publisher', allows_streaming => 'logical');
my $subscriber = new_node('subscriber', allows_streaming => 'logical');

$publisher->start;
if ($publisher->safe_psql('postgres', q{
SELECT count(*) FROM pg_attribute
WHERE attrelid = 'pg_stat_subscription_stats'::regclass AND attname = 'sync_seq_error_count'}) == 0)
{
	$publisher->stop;
	plan skip_all => 'this server carries no sequences';
}

# The subscriber's clock stands still, so that nothing but the state counts.
start_with_clock($subscriber, '2026-06-01 12:00:00');
foreach my $node ($publisher, $subscriber)
{
	$node->safe_psql('postgres', q{
CREATE EXTENSION snowid;
SELECT snowid.create_shard(5);
});
}
my $next = 'SELECT insta5.next_id()';
my $synced = q{
SELECT srsubstate = 'r' FROM pg_subscription_rel WHERE srrelid = 'insta5.id_seq'::regclass};
my $errors = q{SELECT sync_seq_error_count FROM pg_stat_subscription_stats};

# As after a move: the publisher has issued ids, the subscriber later ones.
$publisher->safe_psql('postgres', q{
SELECT setval('insta5.id_seq', (snowid.make_id('2026-06-01 12:00+00', 5, 0) >> 23) << 10)});
$publisher->safe_psql('postgres', 'CREATE PUBLICATION everything FOR ALL SEQUENCES');
$subscriber->safe_psql('postgres', sprintf(
	q{CREATE SUBSCRIPTION everything CONNECTION '%s' PUBLICATION everything},
	$publisher->connstr('postgres') =~ s/'/''/gr));
ok($subscriber->poll_query_until('postgres', $synced), 'the sequence is carried');
is($subscriber->safe_psql('postgres', q{SELECT last_value FROM insta5.id_seq}),
	$publisher->safe_psql('postgres', q{SELECT last_value FROM insta5.id_seq}), 'with its state');

my @seen = map { $subscriber->safe_psql('postgres', $next) } 1 .. 3;
$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION everything REFRESH SEQUENCES');
ok($subscriber->poll_query_until('postgres', $synced), 'it is carried again');
is($subscriber->safe_psql('postgres', $next), $seen[0], 'REFRESH SEQUENCES repeats ids');
$subscriber->safe_psql('postgres', "SELECT snowid.advance('insta5.id_seq', $seen[2])");
push @seen, $subscriber->safe_psql('postgres', $next);
cmp_ok($seen[3], '>', $seen[2], 'no repetition after advance()');

# Closed on the publisher, as the source of a move is.
$publisher->safe_psql('postgres', q{SELECT snowid.fence_shard(5, 'host=elsewhere')});
my $before = $subscriber->safe_psql('postgres', $errors);
$subscriber->safe_psql('postgres', 'ALTER SUBSCRIPTION everything REFRESH SEQUENCES');
ok($subscriber->poll_query_until('postgres', "SELECT ($errors) > $before"),
	'of a closed sequence nothing is carried');
cmp_ok($subscriber->safe_psql('postgres', $next), '>', $seen[3], '... and ids rise');

$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION everything');
$_->stop for $publisher, $subscriber;
done_testing();
