# Shards of which one needs another, by a foreign key, a view, a trigger or the like: those of one
# set are copied together, and go together; and none goes without those that its keys lead to.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run ();
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b');
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;

# Shard 6 leads to 3, and 3 to 8; 1, which is written, leads to 7.
sub fresh
{
	fresh_set($a, $b);
	$a->safe_psql('postgres', q{
ALTER TABLE insta6.users ADD chief bigint REFERENCES insta3.users ON DELETE CASCADE;
UPDATE insta6.users SET chief = (SELECT max(id) FROM insta3.users);
ALTER TABLE insta3.users ADD firm bigint REFERENCES insta8.users DEFERRABLE;
UPDATE insta3.users SET firm = (SELECT max(id) FROM insta8.users);
ALTER TABLE insta1.photos ADD other bigint REFERENCES insta7.users;
});
	return;
}

sub keys_of
{
	my ($node) = @_;
	return $node->safe_psql('postgres', q{
SELECT string_agg(concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid), convalidated), E'\n' ORDER BY conrelid::regclass::text)
FROM pg_constraint WHERE contype = 'f' AND confrelid::regclass::text ~ '^insta[378]\.users$' AND conrelid::regclass::text !~ '^insta7'});
}

subtest 'a set moves there and back with its keys' => sub {
	fresh();
	my $wanted = keys_of($a);
	my @writers = start_writers('insta1', $a, $b);
	await_writers($writers[0]);
	moves_ok($a, $b, '1-8', ['--reverse'], 0, 'moved');
	is(living($b), '1,2,3,4,5,6,7,8', 'all are there');
	is(keys_of($b), $wanted, '... with their keys');
	await_writers($writers[1]);
	is(sqlstate($b, 'UPDATE insta6.users SET chief = 1'), '23503', 'which are looked at');
	moves_ok($a, $b, '1-8', ['back'], 0, 'back');
	stop_writers(@writers);
	is(living($a), '1,2,3,4,5,6,7,8', 'all are there again');
	is(keys_of($a), $wanted, '... with their keys');
	moves_ok($a, $b, '1-8', ['finish'], 0, 'finished');
	nothing_left_ok($_, 'there and back') for $a, $b;
};

# First to be compared, then to be closed.
subtest 'one cannot be locked' => sub {
	fresh();
	my $holder = $a->background_psql('postgres');
	moves_ok($a, $b, '1-8', [ '--stop-after', 'copied' ], 0, 'copied');
	$holder->query_safe('BEGIN; LOCK TABLE insta8.users IN ROW EXCLUSIVE MODE');
	moves_ok($a, $b, '1-8', [ '--retries', 1 ], 1, 'not to compare it',
		qr/could not lock the shard's tables.*foreign key users_firm_fkey of insta3\.users leads from shard 3 to shard 8, and only one would move.*left where they are: shards 3,6,8/s);
	is(living($a), '3,6,8', '... and what goes with it stays');
	moves_ok($a, $b, '1-8', [ '--verify', 'none', '--retries', 1 ], 1, 'nor to close it', qr/left where they are: shards 3,6,8/);
	is(living($a), '3,6,8', '... and what goes with it stays');
	$holder->query_safe('COMMIT');
	$holder->quit;
	moves_ok($a, $b, '1-8', ['--verbose'], 0, 'in one decision', qr/shards (?=\S*3)(?=\S*6)\S*8\S* now live/);
	is(living($b), '1,2,3,4,5,6,7,8', 'all have moved');

	# Killed after some copies are dropped, and with them keys of the others.
	$holder = $a->background_psql('postgres');
	$holder->query_safe('BEGIN; TABLE insta8_moved.id_seq');
	my $tool = IPC::Run::start([ move_command($a, $b, '1-8', 'finish') ], '>', '/dev/null', '2>&1');
	$a->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'insta8_moved.id_seq'::regclass AND NOT granted)}) or die 'does not wait';
	$tool->kill_kill;
	$holder->quit;
	$a->poll_query_until('postgres', q{SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'snowid-move')}) or die 'does not end';
	is($a->safe_psql('postgres', q{SELECT count(*) FROM pg_namespace WHERE nspname IN ('insta3_moved', 'insta8_moved')}), 1, 'one is dropped');
	moves_ok($a, $b, '1-8', ['finish'], 0, 'finished');
	nothing_left_ok($_, 'cannot be locked') for $a, $b;
};

subtest 'one fails a check, or goes away' => sub {
	fresh();
	moves_ok($a, $b, 6, ['plan'], 1, 'alone', qr/FAILED +foreign keys: users_chief_fkey leads from insta6\.users to insta3\.users, in another shard/);
	$a->safe_psql('postgres', 'CREATE UNLOGGED TABLE insta8.t (id int PRIMARY KEY)');
	moves_ok($a, $b, '1-8', ['plan'], 1, 'a check fails', qr/shards 3,6,8 go together, by what one has of another, and cannot all be moved/);
	$a->safe_psql('postgres', 'DROP TABLE insta8.t');
	moves_ok($a, $b, '2,4', ['plan'], 0, 'others can');

	# The copies of the three are one batch, of which a part can be given up.
	moves_ok($a, $b, '3,6,8', [ '--stop-after', 'copied' ], 0, 'copied');
	moves_ok($a, $b, '8', ['abort'], 1, 'a copy that others use', qr/objects of other schemas .*use the copy/);
	moves_ok($a, $b, '6', ['abort'], 0, 'one that none uses');
	moves_ok($a, $b, '3,8', [], 1, 'the others do not go',
		qr/definitions of shard 3 have changed on the target.*leads from shard 3 to shard 8, and only one would move\n.*Move both at once, after: snowid-move abort/s);
	is(living($a), '1,2,3,4,5,6,7,8', 'all are where they were');
	moves_ok($a, $b, '3,8', ['abort'], 0, 'aborted');
	nothing_left_ok($_, 'goes away') for $a, $b;
};

# Copied one by one, each would lack what it needs; and it would be refused by the others' trigger.
subtest 'what else one has of another' => sub {
	fresh_set($a, $b);
	$a->safe_psql('postgres', q{
CREATE VIEW insta2.names AS SELECT name FROM insta6.users;
CREATE FUNCTION insta8.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO insta8.users (name) VALUES (NEW.name); RETURN NEW; END $$;
CREATE TRIGGER note AFTER INSERT ON insta1.users FOR EACH ROW EXECUTE FUNCTION insta8.note();
CREATE TYPE insta7.mood AS ENUM ('sad', 'ok');
ALTER TABLE insta3.users ADD mood insta7.mood[] DEFAULT '{ok}';
CREATE SEQUENCE insta5.numbers;
ALTER TABLE insta4.users ADD n bigint DEFAULT nextval('insta5.numbers');
CREATE UNIQUE INDEX ON insta4.users (n)});
	moves_ok($a, $b, 2, ['plan'], 1, 'alone', qr/FAILED +objects of other schemas: .*insta6\.users/);
	$a->safe_psql('postgres', 'CREATE SCHEMA gone; CREATE TYPE gone.t AS (i int); CREATE TABLE insta5.t (id int PRIMARY KEY, t gone.t)');
	moves_ok($a, $b, '1-8', ['plan'], 1, 'a check fails', qr/\nshards 4-5 cannot be moved yet.*shards 4-5 go together, by what one has of another/s);
	$a->safe_psql('postgres', 'DROP TABLE insta5.t; DROP SCHEMA gone CASCADE');
	moves_ok($a, $b, '1-8', [ 'plan', '--batch', 1 ], 0, 'plan', qr/shards 1,8, .*shards 2,6, .*shards 3,7, .*shards 4-5, /s);
	my @writers = start_writers('insta1', $a, $b);
	await_writers($writers[0]);
	moves_ok($a, $b, '1-8', [ '--batch', 1, '--stop-after', 'copied' ], 0, 'copied');
	my $holder = $a->background_psql('postgres');
	$holder->query_safe('BEGIN; LOCK TABLE insta5.users, insta6.users IN ROW EXCLUSIVE MODE');
	moves_ok($a, $b, '1-8', [ '--verify', 'none', '--retries', 1 ], 1, 'two cannot be closed',
		qr/left where they are: shards 4-6\n/);
	$holder->query_safe('COMMIT');
	$holder->quit;
	moves_ok($a, $b, '1-8', ['--verbose'], 0, 'moved', qr/shards 4-5 now live/);
	await_writers($writers[1]);
	stop_writers(@writers);
	writers_ok('what else', [ $writers[0] ], [ $writers[1] ]);
	is($b->safe_psql('postgres', q{SELECT count(*) FROM insta8.users WHERE name = 'new'}), $b->safe_psql('postgres', q{SELECT count(*) FROM insta1.users WHERE name = 'new'}), 'the trigger has fired for each row');
	is($b->safe_psql('postgres', q{INSERT INTO insta4.users DEFAULT VALUES; SELECT count(DISTINCT n) FROM insta4.users}), '4', 'no number twice');
	moves_ok($a, $b, '1-8', ['finish'], 0, 'finished');
	nothing_left_ok($_, 'what else') for $a, $b;
};

# Copied at once they would lock more than there is room for.
subtest 'what all have of one' => sub {
	drop_shards($a, $b);
	$a->safe_psql('postgres', q{
SELECT snowid.create_shard(1);
CREATE FUNCTION insta1.f() RETURNS int LANGUAGE sql RETURN 1;
CALL snowid.create_shards(2, 402, ddl => 'CREATE TABLE t (id int PRIMARY KEY DEFAULT insta1.f())')});
	moves_ok($a, $b, '1-402', ['plan'], 0, 'plan', qr/, 399 tables, .*\nshards 401-402, 2 tables,/);
	moves_ok($a, $b, '401', ['plan'], 1, 'alone', qr/FAILED +objects of other schemas: function insta1\.f\(\) is missing/);
};

done_testing();
