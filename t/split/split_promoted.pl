# A split whose standby is promoted, by the tool or by somebody else, before or after
# the decision, and whose source is gone or has failed over.  The set is opened where
# the decision says, and nowhere else; what stays is written on the source only.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use SnowidTest;
use SplitTest;
use Test::More;

my $set = '1-2';

# The source is gone when the target has been promoted: the target gets its set.
subtest 'source gone' => sub {
	my ($a, $b) = fresh_split();
	kill_at([ 'target', 'fenced', 0, 3 ], 'tool');
	crash($a);
	is(sqlstate($b, q{INSERT INTO insta3.users (name) VALUES ('x')}), '25006', 'nobody writes what stays on the target');
	moves_ok($a, $b, $set, ['status'], 1, 'status', qr/promoted, but the split is not complete/);
	moves_ok($a, $b, $set, [ 'split', @limits ], 3, 'the set is opened', qr/now live at .*the source cannot be reached/s);
	is(living($b), '1,2', 'there is nothing else');
	is(sqlstate($b, q{SELECT insta3.next_id()}), 'SN001', 'nor ids of what stays');
	$a->start;
	end_with('split');
};

# Somebody else promotes the standby.
subtest 'promoted before the decision' => sub {
	my ($a, $b) = fresh_split();
	kill_at([ 'source', 'fenced', 0 ], 'tool');
	is(read_only($b), 'on', 'it is read-only');
	$b->promote;
	is(sqlstate($b, q{INSERT INTO insta1.users (name) VALUES ('x')}), '25006', 'it takes no writes');
	moves_ok($a, $b, $set, ['split'], 1, 'split', qr/FAILED +target is a standby of the source: it is a primary/);
	moves_ok($a, $b, $set, ['abort'], 0, 'abort', qr/the split is undone/);
	write_to($a, $_, 'abort') for 1 .. 4;
};

# The decision is undone, of which it has not heard: an old copy is not opened.
subtest 'promoted with an old decision' => sub {
	my ($a, $b) = fresh_split();
	kill_at([ 'source', 'replayed', 1 ], 'tool');
	$a->wait_for_catchup($b);
	$b->append_conf('postgresql.conf', "primary_conninfo = ''");
	$b->reload;
	$b->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_stat_wal_receiver') or die 'it streams';
	moves_ok($a, $b, $set, ['abort'], 0, 'abort', qr/the split is undone/);
	crash($a);
	$b->promote;
	moves_ok($a, $b, $set, ['split'], 3, 'split', qr/was not promoted by this program/);
	is(sqlstate($b, q{INSERT INTO insta1.users (name) VALUES ('x')}), 'SN001', 'the set is closed there');
	$a->start;
	write_to($a, $_, 'the source is back') for 1 .. 4;
	moves_ok($a, $b, $set, ['status'], 1, 'status');
};

# The source fails over, with the set closed, to another standby, which has that.
# This loses the pair, so it is the last.
subtest 'fail-over of the source' => sub {
	my ($a, $b) = fresh_split();
	my $c = make_standby($a, 'c');
	kill_at([ 'source', 'replayed', 1 ], 'tool');
	$a->wait_for_catchup($_) for $b, $c;
	crash($a);
	$c->promote;
	moves_ok($c, $b, $set, [ 'split', @limits ], 0, 'the split goes on with the new one', qr/now live at/);
	is(living($c) . ' ' . living($b), '3,4 1,2', 'each has its own');
	moves_ok($c, $b, $set, ['finish'], 0, 'finish');
	write_to($c, 3, 'new source');
	write_to($b, 1, 'target');
	$_->stop for $b, $c;
};

done_testing();
