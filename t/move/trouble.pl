# What can go wrong, with real causes: a change of the tables meanwhile, a copy
# that differs, a slot that keeps too much, a target that cannot reach the source
# or that fills up.  Each ends with the shard where it was, written, and a message
# that says why.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $a = move_node('a');
# Small files of log, so that a limit on file size can spare them.
my $b = move_node('b', extra => ['--wal-segsize=1']);
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;
my $s = 'insta5';		# each subject begins with shard 5 on a, and nothing on b

# A row there that is in the way, each time: it is told, waited for, and nothing is
# undone.
subtest 'a target that does not follow' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	$b->safe_psql('postgres', "SET session_replication_role = replica; INSERT INTO $s.users (id) VALUES (1)");
	$a->safe_psql('postgres', "INSERT INTO $s.users (id) VALUES (1)");
	my $said = '';
	my $tool = IPC::Run::start([ move_command($a, $b, 5) ], '>&', \$said,
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	ok(eval { $tool->pump until $said =~ /waiting: the target is not connected.*log says why/s; 1 }, 'it is told') or diag $said;
	$b->safe_psql('postgres', "SET session_replication_role = replica; DELETE FROM $s.users WHERE id = 1");
	ok(eval { $tool->finish; $? == 0 }, 'and goes on when the row is gone') or diag $said;
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
	nothing_left_ok($_, 'finished') for $a, $b;
};

# Tables that are changed meanwhile would not be the same there.
subtest 'a change of the tables' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	$a->safe_psql('postgres', "ALTER TABLE $s.users ADD COLUMN born date");
	moves_ok($a, $b, 5, [], 1, 'a change of the tables', qr/definitions of shard 5 have changed .*: table insta5\.users/);
	lives_on_ok($a, $b, 'a change');
	moves_ok($a, $b, 5, ['abort'], 0, 'aborted');
	nothing_left_ok($_, 'a change') for $a, $b;
};

# A row there that should not be.
subtest 'a copy that differs' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	$b->safe_psql('postgres', "SET session_replication_role = replica; UPDATE $s.users SET name = 'other' WHERE id = (SELECT min(id) FROM $s.users)");
	moves_ok($a, $b, 5, [ '--verify', 'checksums' ], 1, 'a copy that differs', qr/table "users" differs/);
	lives_on_ok($a, $b, 'a difference');
	moves_ok($a, $b, 5, ['abort'], 0, 'aborted');
};

# The log that a slot keeps has a limit, beyond which the move undoes itself.
subtest 'too much log' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	$b->safe_psql('postgres', 'ALTER SUBSCRIPTION ' . $b->safe_psql('postgres', 'SELECT subname FROM pg_subscription') . q{ CONNECTION 'host=/nowhere dbname=postgres'});
	my $idle = '';
	my $waiting_tool = IPC::Run::start([ move_command($a, $b, 5) ], '>&', \$idle, IPC::Run::timeout(120));
	$waiting_tool->pump until $idle =~ /waiting: the target is not connected/;
	ok($waiting_tool->pumpable, 'it waits for the target, and says so');
	$waiting_tool->kill_kill;
	$a->safe_psql('postgres', 'CREATE TABLE big AS SELECT repeat(md5(i::text), 10) FROM generate_series(1, 20000) i');
	moves_ok($a, $b, 5, [ '--max-wal', '2MB' ], 1, 'too much log', qr/more than --max-wal allows/);
	nothing_left_ok($_, 'too much log') for $a, $b;
	lives_on_ok($a, $b, 'too much log');
};

# It says so, and moves once it has another identity.
subtest 'a table without a primary key' => sub {
	fresh_shard($a, $b);
	$a->safe_psql('postgres', "CREATE TABLE $s.notes (line text); INSERT INTO $s.notes VALUES ('same'), ('same'), (NULL)");
	moves_ok($a, $b, 5, [], 1, 'a table without a primary key', qr/notes.*REPLICA IDENTITY/s);
	nothing_left_ok($_, 'without a primary key') for $a, $b;
	$a->safe_psql('postgres', "ALTER TABLE $s.notes REPLICA IDENTITY FULL");
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	$a->safe_psql('postgres', "UPDATE $s.notes SET line = 'changed' WHERE line IS NULL; INSERT INTO $s.notes VALUES ('same')");
	moves_ok($a, $b, 5, [ '--verify', 'checksums' ], 0, 'moved');
	is($b->safe_psql('postgres', "SELECT string_agg(line, ' ' ORDER BY line) FROM $s.notes"), 'changed same same same', 'with all its rows');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
	moves_ok($b, $a, 5, [], 0, 'and back');
	moves_ok($b, $a, 5, ['finish'], 0, 'finished');
};

# The target cannot reach the source, or we cannot reach the target.
subtest 'a server that is not reached' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--source-for-target', 'host=/nowhere dbname=postgres' ], 1, 'the target does not reach the source',
		qr/from the target to the source: .*could not connect/);
	nothing_left_ok($_, 'not reached') for $a, $b;
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	$b->stop;
	moves_ok($a, $b, 5, [], 1, 'the target refuses connections', qr/target/);
	is($a->safe_psql('postgres', "INSERT INTO $s.users (name) VALUES ('here') RETURNING name"), 'here', 'the shard is written');
	moves_ok($a, $b, 5, ['abort'], 0, 'aborted without the target', qr/could not be reached/);
	like($a->safe_psql('postgres', 'SELECT string_agg(pubname, $$ $$) FROM pg_publication'), qr/^snowid_aborted_5_\w+$/, 'which it has noted');
	$b->start;
	moves_ok($a, $b, 5, ['abort'], 0, 'aborted there, too', qr/is undone/);
	nothing_left_ok($_, 'with the target again') for $a, $b;
};

# No file may be larger than 8 MB there.
subtest 'a target that fills up' => sub {
	fresh_shard($a, $b);
	$a->safe_psql('postgres', "INSERT INTO $s.users (name) SELECT repeat('x', 1000) FROM generate_series(1, 12000)");
	$b->stop;
	system_or_bail('bash', '-c', "ulimit -f 8192; exec pg_ctl -w -s -D '" . $b->data_dir . "' -l '" . $b->logfile . "' start");
	$b->_update_pid(1);
	moves_ok($a, $b, 5, [], 1, 'the target fills up', qr/target: table insta5\.users cannot be copied: .*File too large/);
	lives_on_ok($a, $b, 'fills up');
	$b->restart;
	moves_ok($a, $b, 5, $_, 0, "with room: @$_") for [ '--verify', 'checksums' ], ['finish'];
	nothing_left_ok($_, 'fills up') for $a, $b;
};

done_testing();
