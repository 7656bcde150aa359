# Moves at once: each batch needs one slot, one origin and one worker, whatever it has
# of shards and tables; and who has no worker says so, and waits.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run;
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b');
$b->append_conf('postgresql.conf', 'max_logical_replication_workers = 2');
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;
make_shard($a, $_, "insta$_") for 1 .. 4;

sub start_move
{
	my ($shard, $said) = @_;
	return IPC::Run::start([ move_command($a, $b, $shard, '--retries', 50) ], '>&', $said, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
}

# Two have all workers, and are held; the third waits for one of them.
my $hold = hold_at_step($b, 'copied');
my %said = map { $_ => '' } 1, '2-3', 4;
my %tools = map { $_ => start_move($_, \$said{$_}) } 1, '2-3';
$b->poll_query_until('postgres', q{SELECT count(*) = 2 FROM pg_stat_subscription WHERE pid IS NOT NULL}) or die 'they do not follow';
is($b->safe_psql('postgres', q{SELECT count(*), (SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'logical replication%worker') FROM pg_replication_origin}), '2|2', 'each has an origin and a worker');
is($a->safe_psql('postgres', 'SELECT count(*) FROM pg_replication_slots'), 2, 'and a slot');
$tools{4} = start_move(4, \$said{4});
ok(eval { $tools{4}->pump until $said{4} =~ /no worker is free to follow: 2 of max_logical_replication_workers = 2 are at work/; 1 },
	'who waits for a worker says so')
  or diag $said{4};
$hold->quit;
let_go_steps($b);
for (1, '2-3', 4)
{
	ok(eval { $tools{$_}->finish; $? == 0 }, "move $_ has ended well") or diag $said{$_};
}
moves_ok($a, $b, '1-4', ['finish'], 0, 'finished');
nothing_left_ok($_, 'finished') for $a, $b;
done_testing();
