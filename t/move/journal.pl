# What the two journals decide: which command may go on from where, and what is
# said with only one of the servers, or with a journal that was emptied.
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
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;
my $s = 'insta5';		# each subject begins with shard 5 on a, and nothing on b

# An abort that was begun.
subtest 'an abort that was begun' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	hold_and_kill($a, 'aborted', 0, 'abort', $a, $b);
	moves_ok($a, $b, 5, [], 1, 'no move goes on from an abort', qr/shard 5 cannot be moved now: an abort was begun/);
	moves_ok($a, $b, 5, ['status'], 1, 'status', qr/an abort was begun\n.*type: snowid-move abort/);
	$a->stop;
	moves_ok($a, $b, 5, ['status'], 1, 'status without the source', qr/shard 5: an abort was begun\n.*type: snowid-move abort/);
	$a->start;
	moves_ok($a, $b, 5, ['abort'], 0, 'the abort does', qr/is undone/);
	nothing_left_ok($_, 'aborted') for $a, $b;
};

# A schema that the journal names, whoever may write there, is dropped only if its owner says that it is the shard's.
subtest 'the journal names another schema' => sub {
	fresh_shard($a, $b);
	$_->safe_psql('postgres', q{
CREATE ROLE writer; GRANT CREATE ON DATABASE postgres TO writer;
CREATE SCHEMA fns; CREATE VIEW fns.v AS SELECT 1; GRANT ALL ON SCHEMA fns TO writer;
SET ROLE writer;
CREATE FUNCTION fns.next_id() RETURNS bigint LANGUAGE sql RETURN snowid_internal.next_id_of_shard(5, 0)}) for $a, $b;
	my $name = sub { $_[0]->safe_psql('postgres', "UPDATE snowid.moves SET schema = '$_[1]'" . ($_[0] == $a ? q{, details = details - 'fingerprint'} : '')) };
	my $strange = qr/schema "fns" at .* does not say that it is of shard 5, as snowid\.moves does; nothing was dropped.*COMMENT ON SCHEMA "fns" IS 'snowid: of shard 5'/s;
	$a->safe_psql('postgres', "ALTER SCHEMA $s OWNER TO writer; ALTER FUNCTION $s.next_id() OWNER TO writer");
	moves_ok($a, $b, 5, [ '--stop-after', 'copied', '--trust-owners' ], 0, 'copied');
	$name->($b, 'fns');
	moves_ok($a, $b, 5, ['abort'], 1, 'abort', $strange);
	moves_ok($a, $b, 5, [ 'abort', '--cascade' ], 1, 'abort with --cascade', $strange);
	is($a->safe_psql('postgres', 'SELECT step FROM snowid.moves'), 'copied', 'has done nothing');
	$name->($b, $s);
	moves_ok($a, $b, 5, ['--trust-owners'], 0, 'moved');
	$name->($a, 'fns');
	moves_ok($a, $b, 5, [ 'finish', @$_ ], 1, "finish @$_", $strange) for [], ['--cascade'], ['--dry-run'];
	is($_->safe_psql('postgres', q{SELECT to_regclass('fns.v')}), 'fns.v', 'it is there') for $a, $b;
	is($b->safe_psql('postgres', 'SELECT step FROM snowid.moves'), 'open', 'nothing is finished');
	$name->($a, "${s}_moved");
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
	nothing_left_ok($_, 'finished') for $a, $b;
	$b->safe_psql('postgres', 'SELECT snowid.drop_shard(5, true)');
	$_->safe_psql('postgres', 'DROP SCHEMA fns CASCADE; DROP OWNED BY writer; DROP ROLE writer') for $a, $b;
};

# What replicates a batch is dropped by the name that the journal has: nothing is that has another one's.
subtest 'the journal names what replicates others' => sub {
	fresh_shard($a, $b);
	my $theirs = q{SELECT (SELECT count(*) FROM pg_publication WHERE pubname = 'prod'), (SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'prod')};
	$_->safe_psql('postgres', q{CREATE PUBLICATION prod; SELECT pg_create_physical_replication_slot('prod')}) for $a, $b;
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	my @names = map { $a->safe_psql('postgres', "SELECT jsonb_build_object('$_', details ->> '$_') FROM snowid.moves") } 'name', 'reverse_name';
	my $give = sub { $_->safe_psql('postgres', "UPDATE snowid.moves SET details = details || '$_[0]'") for $a, $b };
	for my $name ('"prod"', 'null')
	{
		for my $key (0, 1)
		{
			$give->(sprintf '{"%s": %s}', ('name', 'reverse_name')[$key], $name);
			moves_ok($a, $b, 5, [ 'abort' ], 2, "$name: no abort", qr/a name for shard 5 that snowid-move does not give: "(?:prod)?".*Nothing was changed/s);
			moves_ok($a, $b, 5, [], 2, "$name: no move", qr/that snowid-move does not give/);
			$give->($names[$key]);
		}
	}

	# Nor does anything there command the terminal, or begin a line of ours.
	$b->safe_psql('postgres', q{UPDATE snowid.moves SET schema = E'x\n\x1b[2Jy'});
	$a->safe_psql('postgres', q{
UPDATE snowid.shard_registry SET pool = E'p\x1b[2J';
INSERT INTO snowid.shard_registry (shard, schema, home, pool) VALUES (9, 'insta9', 'host=/nowhere', E'p\x1b[2J')});
	unlike(moves_ok($a, $b, 5, ['status'], 1, 'status', qr/schema "x",/), qr/\e|^.*2Jy/m, '... in its own words');
	IPC::Run::run([ 'snowid-move', 'audit', '--registry', $a->connstr("postgres") ], '>&', \my $audit);
	like($audit, qr/pool p\?\[2J leads to shards on several servers/, 'audit, too');
	unlike($audit, qr/\e/, '... and nothing else');
	$a->safe_psql('postgres', 'UPDATE snowid.shard_registry SET pool = NULL; DELETE FROM snowid.shard_registry WHERE shard = 9');
	$b->safe_psql('postgres', "UPDATE snowid.moves SET schema = 'insta5'");
	$b->safe_psql('postgres', 'ALTER TABLE insta5.users DISABLE TRIGGER snowid_fence');
	moves_ok($a, $b, 5, ['abort'], 1, 'what is open is no copy', qr/made after it was closed: insta5\.users/);
	$b->safe_psql('postgres', 'ALTER TABLE insta5.users ENABLE TRIGGER snowid_fence');
	moves_ok($a, $b, 5, [], 0, 'moved');
	$give->('{"reverse_name": "prod"}');
	moves_ok($a, $b, 5, ['finish'], 2, 'no finish', qr/that snowid-move does not give/);
	is($_->safe_psql('postgres', $theirs), '1|1', 'they are there') for $a, $b;
	$give->($names[1]);
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
	$_->safe_psql('postgres', q{DROP PUBLICATION prod; SELECT pg_drop_replication_slot('prod')}) for $a, $b;
	nothing_left_ok($_, 'finished') for $a, $b;
};

# Nor is a schema called as the shard because a journal calls it the copy, which gets its name back after a fail-over.
subtest 'the journal names another copy' => sub {
	fresh_shard($a, $b);
	hold_and_kill($b, 'open', 1, 'move', $a, $b);
	my $timelines = $a->safe_psql('postgres', q{
CREATE SCHEMA fns; ALTER SCHEMA insta5 RENAME TO insta5_moved;
SELECT jsonb_build_object('timelines', details ->> 'timelines') FROM snowid.moves});
	$a->safe_psql('postgres', q{UPDATE snowid.moves SET schema = 'fns', details = details || '{"timelines": "00000009 00000009"}'});
	moves_ok($a, $b, 5, [], 3, 'no move', qr/schema "fns" at .* does not say that it is of shard 5/);
	is($a->safe_psql('postgres', q{SELECT to_regnamespace('fns')}), 'fns', 'it has its name');
	$a->safe_psql('postgres', "ALTER SCHEMA insta5_moved RENAME TO insta5; UPDATE snowid.moves SET schema = 'insta5', details = details || '$timelines'; DROP SCHEMA fns");
	moves_ok($a, $b, 5, [], 0, 'moved');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
};

# Only one server can be reached: status tells what that one knows, and the exit
# code what may have been decided.
subtest 'one server' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	$b->stop;
	moves_ok($a, $b, 5, ['status'], 1, 'status without the target', qr/shard 5: under way, and not decided.*source .*: source, copied, .*target: not reached/s);
	moves_ok($a, $b, 5, [], 1, 'no move without the target, and nothing decided');
	$b->start;
	hold_and_kill($b, 'open', 1, 'move', $a, $b);
	moves_ok($a, $b, 5, ['status'], 1, 'status', qr/decided, but not complete/);
	$b->stop;
	moves_ok($a, $b, 5, ['status'], 1, 'status without the target', qr/shard 5: decided; nobody can write until the other server is reached/);
	moves_ok($a, $b, 5, [], 3, 'no move without the target, but it is decided', qr/not complete/);
	moves_ok($a, $b, 5, ['abort'], 3, 'no abort without the target', qr/cannot be aborted now: decided; nobody can write until the other server is reached/);
	$b->start;
	$a->stop;
	moves_ok($a, $b, 5, ['status'], 1, 'status without the source', qr/shard 5: about to be decided, or decided: only the other server knows/);
	moves_ok($a, $b, 5, [], 3, 'no move without the source, which may have decided');
	$a->start;
	moves_ok($a, $b, 5, [], 0, 'the same command goes on');
	$a->stop;
	moves_ok($a, $b, 5, ['status'], 1, 'moved: status without the source', qr/shard 5: decided, and open here/);
	$a->start;
	$b->stop;
	moves_ok($a, $b, 5, ['status'], 1, 'moved: status without the target', qr/shard 5: moved\n/);
	$b->start;
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
	$b->stop;
	moves_ok($a, $b, 5, ['status'], 1, 'finished: status without the target', qr/that server knows of no move; the other one was not reached/);
	$b->start;
};

# A journal whose row somebody deletes meanwhile.
subtest 'a lost row' => sub {
	fresh_shard($a, $b);
	hold_and_kill($b, 'open', 1, 'move', $a, $b);
	my $hold = hold_at_step($b, 'open', 1);
	my $said = '';
	my $tool = IPC::Run::start([ move_command($a, $b, 5) ], '>&', \$said);
	wait_until_held($b) or die 'does not get there';
	$a->safe_psql('postgres', 'CREATE TABLE kept AS TABLE snowid.moves; DELETE FROM snowid.moves');
	$hold->quit;
	$tool->finish;
	is($? >> 8, 3, 'a lost journal') or diag $said;
	like($said, qr/the journal of the source has lost the row of shard 5/, 'it says so');
	let_go_steps($b);
	$a->safe_psql('postgres', 'INSERT INTO snowid.moves SELECT * FROM kept; DROP TABLE kept');
	moves_ok($a, $b, 5, [], 0, 'the same command goes on');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
};

done_testing();
