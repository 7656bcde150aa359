# Shards with foreign keys between them: those of one set go together, in one decision, with
# their keys; and none goes without those that it is tied to.
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
	moves_ok($a, $b, '1-8', ['plan'], 1, 'a check fails', qr/shards 3,6,8 go together, by foreign keys, and cannot all be moved/);
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

done_testing();
