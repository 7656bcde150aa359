# What holds safe_upper_id() back, and for how long: a transaction that is prepared,
# one whose ids are older than its start because the clock was set back, one that
# hides its start.  And what it says on a standby.  safe_upper.pl has the load.
use strict;
use warnings;

use FindBin;
use POSIX qw(strftime);
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = new_node('main', allows_streaming => 1);
$node->append_conf('postgresql.conf', 'max_prepared_transactions = 20');
start_with_clock($node, '+0');
$node->safe_psql('postgres', 'CREATE EXTENSION snowid');

my $forward = 0;
my $recent = q{> snowid.min_id(now() - interval '1 minute')};
my $insert = 'INSERT INTO events DEFAULT VALUES RETURNING id';

# Set the clock on, or right again: after a crash, ids are up to 2.5 seconds ahead.
sub go_forward { return set_clock($node, '+' . ($forward += 5)); }
sub set_right { return set_clock($node, "+$forward"); }

# A subtest with a sequence and a table of its own.
sub subject
{
	my ($name, $code) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return subtest $name => sub {
		go_forward();
		$node->safe_psql('postgres', q{
DROP TABLE IF EXISTS events;
DROP SEQUENCE IF EXISTS s;
CREATE SEQUENCE s;
CREATE TABLE events (id bigint PRIMARY KEY DEFAULT snowid.next_id(5, 's'))});
		$code->();
	};
}

# Does the comparison hold for the bound now?
sub bound
{
	my ($comparison) = @_;
	return $node->safe_psql('postgres', "SELECT snowid.safe_upper_id('s') $comparison");
}

subject 'a prepared transaction' => sub {
	my $id = $node->safe_psql('postgres', "BEGIN; $insert; PREPARE TRANSACTION 'p'");
	is(bound("<= $id"), 't', 'it holds the bound back');
	is(bound($recent), 't', 'to its start');
	crash($node);
	start_with_clock($node, '+' . ($forward += 5));
	is(bound("<= $id"), 't', 'also after a crash');
	is(bound($recent), 't', 'to its start');
	$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});
	is(bound("> $id"), 't', 'until it is committed');
};

# It has kept no start.
subject 'a prepared transaction that used the sequence without next_id()' => sub {
	$node->safe_psql('postgres', q{BEGIN; SELECT nextval('s'); PREPARE TRANSACTION 'p';});
	is(bound('= 0'), 't', 'allows nothing');
	$node->safe_psql('postgres', q{ROLLBACK PREPARED 'p'});
};

# Begin a transaction that sets the clock back, and takes an id older than its start.
sub set_back
{
	my $writer = $node->background_psql('postgres');
	$writer->query_safe('BEGIN; SELECT count(*) FROM events');
	set_clock($node, '-3600');
	my $id = $writer->query_safe($insert);
	set_right();
	return ($writer, $id);
}

subject 'the clock is set back within a transaction' => sub {
	my ($writer, $id) = set_back();
	is(bound("<= $id"), 't', "the bound is below an id that is older than its transaction's start");
	$writer->query_safe('INSERT INTO events DEFAULT VALUES');
	is(bound("<= $id"), 't', 'also once the clock is right again');
	$writer->query_safe('COMMIT');
	is(bound("> $id"), 't', 'until it ends');
	$writer->quit;
};

subject 'the clock is set back within a transaction that is prepared' => sub {
	my ($writer, $id) = set_back();
	$writer->query_safe(q{PREPARE TRANSACTION 'p'});
	is(bound("<= $id"), 't', 'the bound is below an id that is older than its start');
	$node->safe_psql('postgres', q{COMMIT PREPARED 'p'});
	is(bound("> $id"), 't', 'until it ends');
	$writer->quit;
};

# It takes its ids without the clock.
subject 'a sequence that is ahead of a clock set back' => sub {
	set_clock($node, '-60');
	$node->safe_psql('postgres', q{SELECT snowid.next_id(5, 's')});
	set_right();
	my ($writer, $id) = set_back();
	is(bound("<= $id"), 't', 'the bound is below its ids');
	$writer->query_safe('COMMIT');
	$writer->quit;
};

# Nor does it read a time again that it has just read, as far as ticks tell.
subject 'a clock set back to where it was read last' => sub {
	my ($first, $between, $start) = map { strftime('%Y-%m-%d %H:%M:%S', gmtime(time + $forward + $_)) } -3600, -60, 0;
	set_clock($node, $first);
	my $writer = $node->background_psql('postgres');
	$writer->query_safe(q{CREATE TEMP SEQUENCE other; SELECT snowid.next_id(5, 'other')});
	set_clock($node, $between);
	$node->safe_psql('postgres', q{SELECT snowid.next_id(5, 's')});
	set_clock($node, $start);
	$writer->query_safe('BEGIN; SELECT count(*) FROM events');
	set_clock($node, $first);
	my $id = $writer->query_safe($insert);
	set_right();
	is(bound("<= $id"), 't', 'the bound is below its ids');
	$writer->query_safe('COMMIT');
	$writer->quit;
};

subject 'the clock is set back after the bound' => sub {
	my $upper = $node->safe_psql('postgres', q{SELECT snowid.safe_upper_id('s')});
	set_clock($node, '-3600');
	is($node->safe_psql('postgres', "SELECT snowid.next_id(0, 's') > $upper"), 't', 'no id is below the bound');
};

# Whoever takes its slot while the bound waits for its own holds the bound back, too.
subject 'writers that wait together with the bound' => sub {
	my $owner = $node->background_psql('postgres');
	$owner->query_safe('BEGIN; ALTER SEQUENCE s OWNED BY NONE');
	my @asked = map { $_ < 5 ? "BEGIN;\n$insert;" : q{SELECT snowid.safe_upper_id('s');} } 0 .. 5;
	my @sessions;
	for my $ask (@asked)
	{
		push @sessions, $node->background_psql('postgres');
		$sessions[-1]->query_until(qr/asked/, "\\echo asked\n$ask\n");
		my $n = @sessions;
		$node->poll_query_until('postgres', qq{
SELECT count(*) = $n FROM pg_locks WHERE relation = 's'::regclass AND NOT granted}) or die 'does not wait';
	}
	$owner->query_safe('COMMIT');
	my ($upper, @ids) = reverse map { $_->query_safe('SELECT') =~ /(\d+)/ } @sessions;
	is(scalar(grep { $_ >= $upper } @ids), 5, 'the bound is below their ids');
	$_->quit for $owner, @sessions;
};

subject 'a session that hides its start' => sub {
	my $writer = $node->background_psql('postgres');
	$writer->query_safe('SET track_activities = off');
	$writer->query_safe("BEGIN; $insert");
	is(bound('= 0'), 't', 'allows nothing');
	$writer->query_safe('COMMIT');
	is(bound($recent), 't', 'until its transaction ends');
	$writer->quit;
};

# It looks at the sessions again.
subject 'a second call in the same transaction' => sub {
	my $asker = $node->background_psql('postgres');
	my $writer = $node->background_psql('postgres');
	$writer->query_safe("BEGIN; $insert");
	$asker->query_safe(q{BEGIN; SELECT snowid.safe_upper_id('s')});
	$writer->query_safe('COMMIT');
	go_forward();
	$writer->query_safe("BEGIN; $insert");
	cmp_ok($asker->query_safe(q{SELECT snowid.safe_upper_id('s')}), '>',
		$node->safe_psql('postgres', 'SELECT max(id) FROM events'), 'is as good as the first');
	$asker->query_safe('COMMIT');
	$writer->query_safe('COMMIT');
	$_->quit for $asker, $writer;
};

# It can't know; what to do there is in the hint.
subject 'a standby' => sub {
	$node->backup('backup');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'backup', has_streaming => 1);
	start_with_clock($standby, '+0');
	is(sqlstate($standby, q{SELECT snowid.safe_upper_id('s')}), '25006', 'it is refused');
	my ($upper, $lsn) = split /\|/, $node->safe_psql('postgres', q{
INSERT INTO events DEFAULT VALUES;
SELECT snowid.safe_upper_id('s'), pg_current_wal_insert_lsn()});
	$standby->poll_query_until('postgres', "SELECT pg_last_wal_replay_lsn() >= '$lsn'");
	is($standby->safe_psql('postgres', "SELECT count(*) FROM events WHERE id < $upper"),
		$node->safe_psql('postgres', "SELECT count(*) FROM events WHERE id < $upper"),
		'the rows below the bound are there, once it has replayed up to it');
	$standby->stop;
};

$node->stop;
done_testing();
