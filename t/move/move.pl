# A shard moves from one server to another while it is written on both: the
# old server's writers are refused from one instant on, and the new server's
# from there on are not.  No row is lost, none is there twice, no id is
# repeated, ids rise across the move, and nothing is left behind.
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
$_->append_conf('postgresql.conf', 'wal_retrieve_retry_interval = 5s') for $a, $b;
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;

# The schema has whatever a name can have.
my $schema = q(it's "5" \\ %s);
my ($s, $copy);

# Begin anew: the shard on a, and none on b.
sub fresh
{
	drop_shards($a, $b);
	$s = make_shard($a, 5, $schema);
	$copy = $s =~ s/"$/_moved"/r;
	return;
}

subtest 'the command line' => sub {
	program_help_ok('snowid-move');
	program_version_ok('snowid-move');
	program_options_handling_ok('snowid-move');
	for ([ [], qr/--shard, --from and --to are needed/ ],
		[ [ '--shard', 8192 ], qr/numbers from 0 to 8191/ ],
		[ [ '--max-wal', '3 potatoes' ], qr/invalid value/ ],
		[ [ '--verify', 'a bit' ], qr/none, counts or checksums/ ],
		[ ['levitate'], qr/unknown argument "levitate"/ ])
	{
		my ($args, $like) = @$_;
		my ($stdout, $stderr) = ('', '');
		IPC::Run::run([ 'snowid-move', @$args ], '>', \$stdout, '2>', \$stderr);
		is($? >> 8, 2, "usage: @$args");
		like($stderr, $like, 'it says why');
	}

	# A password is nowhere to be seen.
	my ($stdout, $stderr) = ('', '');
	IPC::Run::run([ 'snowid-move', '-s', 5, '--from', 'host=/nowhere password=secret', '--to', 'dbname=x' ],
		'>', \$stdout, '2>', \$stderr);
	is($? >> 8, 2, 'no connection');
	unlike($stdout . $stderr, qr/secret/, 'the password is not shown');
};

subtest 'a plan changes nothing' => sub {
	my $state = q{
SELECT (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_replication_slots),
	(SELECT count(*) FROM snowid.moves), (SELECT count(*) FROM snowid.shard_registry)};

	fresh();
	my @before = map { $_->safe_psql('postgres', $state) } $a, $b;
	moves_ok($a, $b, 5, ['plan'], 0, 'plan', qr/would move from/);
	is_deeply([ map { $_->safe_psql('postgres', $state) } $a, $b ], \@before, 'all is as it was');
	moves_ok($a, $b, 5, ['status'], 0, 'status', qr/nothing is under way/);
	moves_ok($a, $b, 5, ['abort'], 0, 'nothing to abort', qr/nothing to abort/);
	moves_ok($a, $b, 4, [], 2, 'an unknown shard', qr/shard 4 does not exist/);
};

# The tests' own writers, and pgbench at a thousand inserts a second.
subtest 'under load' => sub {
	fresh();
	my $bench = $a->basedir . '/bench.sql';
	append_to_file($bench, qq{
SET search_path = $s, public;
INSERT INTO photos (user_id, "a ""note""") SELECT max(id), :client_id FROM users;
});
	my $pgbench_log = '';
	my $pgbench = IPC::Run::start(
		[ 'pgbench', '-n', '-c', 2, '-R', 1000, '-T', 100, '-f', $bench, $a->connstr('postgres') ],
		'>', \$pgbench_log, '2>&1');
	my @old = start_writers($s, $a, $a);
	my @new = start_writers($s, $b);
	$a->poll_query_until('postgres', qq{SELECT count(*) > 5000 FROM $s.photos}) or die 'no load';
	my $said = moves_ok($a, $b, 5, [ '--verify', 'checksums', '--verbose' ], 0, 'moved under load', qr/now lives at/);
	my ($pause) = $said =~ /now lives at .*; writes waited (\d+) ms/;
	note $said;
	cmp_ok($pause, '<', 1000, 'writes wait no longer than the limit');
	$pgbench->finish;
	like($pgbench_log, qr/shard 5 has moved/, 'pgbench is refused');
	my ($inserted) = $pgbench_log =~ /transactions actually processed: (\d+)/;
	cmp_ok($inserted, '>', 0, 'after having written');

	await_writers(@old, @new);
	stop_writers(@old, @new);
	writers_ok('under load', \@old, \@new);
	copies_equal_ok($a, $copy, $b, $s, 'under load');
	is($b->safe_psql('postgres', qq{SELECT count(*) FROM $s.photos WHERE "a ""note""" IS NOT NULL}),
		$inserted, 'all rows that pgbench has committed are there');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
};

subtest 'what is where after it, and the end of a move' => sub {
	fresh();
	moves_ok($a, $b, 5, [], 0, 'moved', qr/now lives at/);
	is($b->safe_psql('postgres', qq{
SELECT q.seqmin, q.seqmax = 9223372036854775807, q.seqstart, q.seqcycle, s.last_value, s.is_called
FROM pg_sequence q, $s.unused s WHERE q.seqrelid = (SELECT max(oid) FROM pg_class WHERE relname = 'unused')}),
		'1|t|1|f|1|f', 'a sequence that was never called is so there');

	# Each server, and the shard's old place, know where it is.
	is($_->safe_psql('postgres', 'SELECT home FROM snowid.shard_registry'),
		sprintf('host=%s port=%s dbname=postgres', $b->host, $b->port), 'the registry names the new home')
	  for $a, $b;
	is($b->safe_psql('postgres', 'SELECT snowid.shard_home(5), (SELECT lives FROM snowid.shards)'), 'here|here',
		'which knows that it is that');
	isnt($a->safe_psql('postgres', 'SELECT snowid.shard_home(5)'), 'here', 'the old server does, too');
	is(sqlstate($a, "DELETE FROM $copy.users"), 'SN001', 'the copy is closed');
	is(sqlstate($a, "SELECT snowid.next_id(5, '" . ($copy =~ s/'/''/gr) . ".id_seq')"), 'SN001', 'and gives no ids');

	moves_ok($a, $b, 5, ['status'], 1, 'status', qr/moved\n.*type: snowid-move finish --shard 5 --from/);
	moves_ok($a, $b, 5, [], 0, 'the same command again does no harm', qr/shard 5: moved already/);
	moves_ok($a, $b, 5, ['back'], 1, 'no way back without --reverse', qr/without --reverse/);
	moves_ok($a, $b, 5, ['abort'], 1, 'no abort after the end', qr/cannot be aborted now: moved\n/);
	moves_ok($a, $b, 5, ['finish'], 0, 'finish', qr/is dropped/);
	nothing_left_ok($_, 'finished') for $a, $b;
	moves_ok($a, $b, 5, ['finish'], 0, 'nothing to finish', qr/nothing to finish/);
	moves_ok($a, $b, 5, [], 2, 'there is nothing to move there any more', qr/does not live on the source/);
	nothing_left_ok($_, 'not moved') for $a, $b;
};

subtest 'in two parts, with a write in between, to the place where it came from' => sub {
	fresh();
	moves_ok($a, $b, 5, [], 0, 'moved');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
	moves_ok($b, $a, 5, [ '--stop-after', 'copied' ], 0, 'copied', qr/the copy is there and follows/);
	my $id = $b->safe_psql('postgres', "INSERT INTO $s.users (name) VALUES ('meanwhile') RETURNING id");
	moves_ok($b, $a, 5, ['status'], 1, 'status', qr/under way/);
	is(sqlstate($a, "INSERT INTO $s.users (name) VALUES ('too early')"), 'SN002', 'the copy is not open yet');
	moves_ok($b, $a, 5, [ '--verify', 'none', '--keep-name' ], 0, 'cut over', qr/going on after step "copied"/);
	cmp_ok($a->safe_psql('postgres', "INSERT INTO $s.users (name) VALUES ('later') RETURNING id"), '>', $id,
		'ids go on rising');
	is($a->safe_psql('postgres', "SELECT name FROM $s.users WHERE id = $id"), 'meanwhile', 'and the row has come');
	is(sqlstate($b, "INSERT INTO $s.users (name) VALUES ('old')"), 'SN001', 'the copy has kept its name');
	moves_ok($b, $a, 5, ['finish'], 0, 'finish');
	nothing_left_ok($_, 'in two parts') for $a, $b;
};

subtest 'copied, and then not' => sub {
	fresh();
	my @sequence = $a->safe_psql('postgres', 'SELECT * FROM pg_sequences ORDER BY 1, 2');
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	moves_ok($a, $b, 5, ['abort'], 0, 'aborted', qr/is undone/);
	nothing_left_ok($_, 'aborted') for $a, $b;
	is_deeply([ $a->safe_psql('postgres', 'SELECT * FROM pg_sequences ORDER BY 1, 2') ], \@sequence, 'the sequences are as they were');
	is($a->safe_psql('postgres', "INSERT INTO $s.users (name) VALUES ('open') RETURNING name"), 'open', 'it is written');
};

done_testing();
