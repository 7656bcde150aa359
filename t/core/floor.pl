# After a crash, pages can be behind what their sequences issued.  Nobody issues or
# reads less than the floor, which the clock then has: not after checkpoints and
# restarts, not where a sequence is restarted, read, moved, or dumped.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use ReservationTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

start_at_noon('floor');

# Let each maker make two ids, the second half a second later, when it is reserved;
# and crash.  Returns each maker's newest id.  Nobody has used the clock since: who
# reads a page does so after an id of "busy", too.
sub fall_behind
{
	my (@makers) = @_;
	my %newest;

	sql($_) for @makers;
	set_clock($node, '2026-01-01 12:00:00.500');
	$newest{$_} = sql($_) for @makers;
	crash_back();
	return \%newest;
}

sub next_id { return "SELECT snowid.next_id(5, '$_[0]')"; }

# With shard 7 and its table.
sub make_shard
{
	sql(q{
SELECT snowid.create_shard(7);
CREATE TABLE insta7.t (id bigint PRIMARY KEY DEFAULT insta7.next_id())});
	return 'INSERT INTO insta7.t DEFAULT VALUES RETURNING id';
}

subject 'it outlives later sessions, checkpoints, and a clean restart' => [ 'busy', 'seldom' ], sub {
	my $newest = fall_behind(next_id('seldom'));
	sql('CHECKPOINT');
	take('busy');
	sql('CHECKPOINT');
	$node->stop;
	start_with_clock($node, '2026-01-01 11:00:00');
	sql('CHECKPOINT');
	take('busy');
	cmp_ok(page_at('seldom'), 'lt', time_of($newest->{ next_id('seldom') }), 'the page is behind');
	cmp_ok(take('seldom'), '>', $newest->{ next_id('seldom') }, 'the next id is not');
};

subject 'who reads a sequence' => [ 'busy', 'seldom' ], sub {
	my $insert = make_shard();
	sql('SELECT snowid.create_shard(9)');
	my $newest = fall_behind($insert, next_id('seldom'));
	take('busy');
	my $seldom = $newest->{ next_id('seldom') };
	my $row = $newest->{$insert};

	cmp_ok(page_at('insta7.id_seq'), 'lt', time_of($row), 'a page is behind its sequence');
	cmp_ok(known_at('insta7.id_seq'), 'ge', time_of($row), 'sequence_state() is not');
	cmp_ok(known_at('seldom'), 'ge', time_of($seldom), '... of a plain sequence, too');
	is(sql(qq{
SELECT last_id_at >= snowid.id_timestamp($row), ahead > '1 h' FROM snowid.shards WHERE shard = 7}),
		't|t', 'nor is the view shards');
	is(sql('SELECT last_id_at IS NULL FROM snowid.shards WHERE shard = 9'), 't',
		'what was never called still has no id');
	is(sql('SELECT id FROM snowid.newest_rows(NULL::insta7.t, 1)'), $row,
		'newest_rows() finds the newest row');
	cmp_ok(sql(q{SELECT snowid.safe_upper_id('seldom')}), '>', $seldom - 5 * 1024,
		'safe_upper_id() is not below what was seen');
};

subject 'a move' => ['busy'], sub {
	my $insert = make_shard();
	my $newest = fall_behind($insert)->{$insert};
	take('busy');

	sql(q{SELECT snowid.fence_shard(7)});
	is(sql(qq{
SELECT (details #>> '{sequences,id_seq,last}')::bigint >= ($newest >> 23 << 10) FROM snowid.moves}),
		't', 'it carries what is known');
	sql(q{SELECT snowid.unfence_shard(7)});
	cmp_ok(sql('SELECT insta7.next_id()'), '>', $newest, 'and it goes on after a fence');
};

subject 'set_default()' => ['busy'], sub {
	sql('SELECT snowid.create_shard(6); CREATE TABLE insta6.t (id bigserial PRIMARY KEY)');
	my $maker = q{SELECT snowid.next_id(6, 'insta6.t_id_seq')};
	my $newest = fall_behind($maker)->{$maker};
	take('busy');

	cmp_ok(page_at('insta6.t_id_seq'), 'lt', time_of($newest), 'the page is behind');
	sql(q{SELECT snowid.set_default('insta6.t', 'id')});
	cmp_ok(sql('SELECT insta6.next_id() >> 23'), '>', $newest >> 23, 'goes on above the sequence of before');
};

subject 'adopt_shard()' => ['busy'], sub {
	sql(snippet('old', 's', 10));
	my $maker = q{SELECT snowid.next_id(10, 'old.s')};
	my $newest = fall_behind($maker)->{$maker};
	take('busy');

	cmp_ok(page_at('old.s'), 'lt', time_of($newest), 'the page is behind');
	sql(q{SELECT snowid.adopt_shard(10, 'old')});
	cmp_ok(sql('SELECT old.next_id()'), '>', $newest, 'goes on above the sequence of before');
};

subject 'drop_shard()' => ['busy'], sub {
	fall_behind(make_shard());
	take('busy');
	my ($ret, $stdout, $stderr) = $node->psql($db, 'SELECT snowid.drop_shard(7, true)');
	like($stderr, qr/are ahead of the clock/, 'says that ids can be ahead');
};

# A restart forgets, and the floor does not.
for my $how ('ALTER SEQUENCE s RESTART', 'TRUNCATE photos RESTART IDENTITY')
{
	subject $how => [], sub {
		sql($how =~ /photos/ ? 'CREATE TABLE photos (id bigint GENERATED ALWAYS AS IDENTITY (SEQUENCE NAME s))' :
			  'CREATE SEQUENCE s');
		take('s');
		my $seen = take('s');
		sql($how);
		cmp_ok(next_after_crash('s'), '>', $seen, 'no repetition after it and a crash');
		set_clock($node, '2026-01-01 12:00:10');
		take('s');
		sql($how);
		take('s');
		$seen = take('s');
		cmp_ok(next_after_crash('s'), '>', $seen, 'nor of ids taken after it');
	};
}

# What reads a page without the clock: advance() writes what is known.
subject 'a dump of one schema' => [], sub {
	my $epoch = '2025-12-31 23:59:59.9995+00';
	my $own = "SELECT snowid.next_id(5, 'one.own', '$epoch')";
	sql('CREATE SCHEMA one; CREATE SEQUENCE one.s; CREATE SEQUENCE one.own');
	my $newest = fall_behind(next_id('one.s'), $own);
	sql("SELECT snowid.advance('one.s', 0); SELECT snowid.advance('one.own', 0, '$epoch')");

	my $dump = $node->basedir . '/one.sql';
	$node->command_ok([ 'pg_dump', '-n', 'one', '-f', $dump, $node->connstr($db) ], 'is made');
	sql('CREATE DATABASE restored');
	sql('CREATE EXTENSION snowid', 'restored');
	$node->command_ok([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $node->connstr('restored') ],
		'and restored');
	cmp_ok(take('one.s', 'restored'), '>', $newest->{ next_id('one.s') }, 'after advance(seq, 0), it goes on above');
	cmp_ok(sql($own, 'restored'), '>', $newest->{$own}, '... with an epoch of its own, too');
	sql(q{CREATE SEQUENCE counter; SELECT nextval('counter'); SELECT snowid.advance('counter', 0)});
	is(sql(q{SELECT nextval('counter')}), '1024', 'which leaves a plain counter one');
};

subject 'a whole dump after a crash carries the clock' => ['s'], sub {
	my $newest = fall_behind(next_id('s'))->{ next_id('s') };
	my $dump = $node->basedir . '/whole';
	$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr($db) ], 'all is dumped');
	sql('CREATE DATABASE whole');
	$node->command_ok([ 'pg_restore', '-j', '2', '-d', $node->connstr('whole'), $dump ], 'and restored');
	cmp_ok(take('s', 'whole'), '>', $newest, 'the restored clock knows what the crash forgot');
};

$node->stop;
done_testing();
