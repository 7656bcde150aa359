# What snowid-move refuses to do, and what it then says: wrong options, another
# one at work, a shard that is closed by hand, a journal that tells of
# something else, a pg_dump that fails.  Nothing has changed afterwards.
use strict;
use warnings;

use FindBin;
use IPC::Run;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b');
$a->append_conf('postgresql.conf', 'max_prepared_transactions = 1');
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;
my $s = 'insta5';		# each subject begins with shard 5 on a, and nothing on b

# Options.
subtest 'options' => sub {
	fresh_shard($a, $b);
	for (
		[ '--pause-limit', 'soon', qr/invalid value "soon" for option --pause-limit.*must be a number from 1 /s ],
		[ '--lock-timeout', '0', qr/invalid value "0" for option --lock-timeout/ ],
		[ '--retries', '-1', qr/invalid value "-1" for option --retries/ ],
		[ '--verify', 'deeply', qr/invalid value "deeply" for option --verify/ ],
		[ '--stop-after', 'lunch', qr/invalid value "lunch" for option --stop-after/ ],
		[ '--max-wal', '5 parsecs', qr/invalid value "5 parsecs" for option --max-wal.*Units are/s ],
		[ '--max-lag', '9999999TB', qr/invalid value "9999999TB" for option --max-lag/ ],
		[ '--source-for-target', 'password', qr/option --source-for-target: missing "="/ ],
		[ '--registry', 'nonsense=1', qr/option --registry: invalid connection option "nonsense"/ ],
		[ '--target-for-source', 'password', qr/option --target-for-source: missing "="/ ],
		[ 'dance', qr/unknown argument "dance"/ ],
		[ '--dance', qr/Try "snowid-move --help"/ ])
	{
		my @arguments = @$_;
		my $like = pop @arguments;
		moves_ok($a, $b, 5, \@arguments, 2, "@arguments", $like);
	}
	command_like([ 'snowid-move', '-?' ], qr/Usage/, 'help');
	moves_ok($a, $b, 9000, [], 2, 'no such shard number', qr/invalid value "9000" for option --shard/);
	moves_ok($a, $b, 6, [], 2, 'no such shard', qr/shard 6 does not exist on the source/);
	moves_ok($a, $b, 5, [ '--source-for-target', q{host=/nowhere dbname='it\'s \\ not there'} ], 1, 'a name to be quoted', qr/FAILED +connection from the target/);
	nothing_left_ok($_, 'no connection') for $a, $b;
	moves_ok($a, $b, 5, ['back'], 1, 'no way back of nothing', qr/there is no way back for shard 5: nothing is under way/);
};

# Closed by hand, here or there.
subtest 'closed by hand' => sub {
	fresh_shard($a, $b);
	$a->safe_psql('postgres', 'SELECT snowid.fence_shard(5)');
	moves_ok($a, $b, 5, [], 1, 'closed by hand', qr/closed by hand on the source.*unfence_shard\(5\)/s);
	$a->safe_psql('postgres', 'SELECT snowid.unfence_shard(5)');
	$b->safe_psql('postgres', q{SELECT snowid.create_shard(5, 'other'), snowid.fence_shard(5)});
	moves_ok($a, $b, 5, [], 1, 'the same on the target', qr/closed by hand on the target/);
	$b->safe_psql('postgres', 'SELECT snowid.unfence_shard(5), snowid.drop_shard(5)');
};

# Another one is at work: the lock is that of its session.
subtest 'another one at work' => sub {
	fresh_shard($a, $b);
	$a->safe_psql('postgres', 'CREATE ROLE stranger LOGIN');
	my $other = $a->background_psql('postgres', extra_params => [ '-U', 'stranger' ]);
	my $pid = $other->query_safe(sprintf 'SELECT pg_backend_pid() FROM pg_advisory_lock_shared(%d, 5)', 0x534E4F57);
	$a->safe_psql('postgres', sprintf q{BEGIN; SELECT pg_advisory_xact_lock_shared(%d, 5); PREPARE TRANSACTION 'held'}, 0x534E4F57);
	moves_ok($a, $b, 5, [], 1, 'another one is at work', qr/another snowid-move is at work on shard 5.*On the source, it is a prepared transaction, .*, the session with process id $pid\./s);
	$a->safe_psql('postgres', q{ROLLBACK PREPARED 'held'});
	$other->quit;
	my $command = [ 'snowid-move', '--shard', 5, '--from', $a->connstr('template1'), '--to', $b->connstr('postgres') ];
	IPC::Run::run($command, '>&', \my $said);
	like($said, qr/shard 5 does not exist on the source\n.*Its database has no snowid: give --from/, 'a database without snowid');
	moves_ok($a, $a, 5, [], 1, 'source and target are one', qr/error: source and target are the same database\n.*Give --to the other server/s);
	nothing_left_ok($_, 'refused') for $a, $b;

	# What any role can lock is waited for by nobody.
	$b->safe_psql('postgres', 'CREATE ROLE stranger LOGIN');
	$other = $b->background_psql('postgres', extra_params => [ '-U', 'stranger' ]);
	$other->query_safe(sprintf q{SET idle_session_timeout = '60s'; SELECT pg_advisory_lock(%d, n) FROM generate_series(-10, 4) n}, 0x534E4F57);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'locks that any role can take');
	is($b->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'stranger'}), 1, '... and still has');
	$other->quit;
	moves_ok($a, $b, 5, ['abort'], 0, 'abort');
};

# A pg_dump that fails; one that cannot be started; a role that has gone from the
# target since the prechecks; and definitions that are changed after them, which
# nobody has checked.
subtest 'pg_dump' => sub {
	$_->safe_psql('postgres', 'CREATE ROLE reader') for $a, $b;
	fresh_shard($a, $b);
	$a->safe_psql('postgres', "GRANT SELECT ON $s.users TO reader");
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my ($bindir) = run_command([ 'pg_config', '--bindir' ]);
	my $pg_dump = sub {
		my ($script) = @_;
		unlink "$dir/pg_dump";
		append_to_file("$dir/pg_dump", "#!/bin/sh\n[ \"\$1\" != --version ] || exec $bindir/pg_dump \"\$@\"\n$script\n");
		chmod 0755, "$dir/pg_dump";
	};
	my $with = sub { "$bindir/psql -Xq -c '$_[1]' '" . $_[0]->connstr('postgres') . "' && exec $bindir/pg_dump \"\$@\"" };
	append_to_file("$dir/pg_restore", "#!/bin/sh\nexec $bindir/pg_restore \"\$@\"\n");
	chmod 0755, "$dir/pg_restore";
	$pg_dump->('exit 1');
	moves_ok($a, $b, 5, [ '--bindir', $dir ], 1, 'pg_dump fails', qr/pg_dump" has failed/);
	moves_ok($a, $b, 5, [ '--bindir', '/nowhere' ], 1, 'pg_dump is not there', qr{could not run "/nowhere/pg_dump": No such file});
	$pg_dump->('echo nonsense');
	moves_ok($a, $b, 5, [ '--bindir', $dir ], 1, 'what pg_dump writes is no archive', qr/"pg_restore" has failed/);
	$pg_dump->($with->($b, 'DROP ROLE reader'));
	moves_ok($a, $b, 5, [ '--bindir', $dir ], 1, 'a role is missing', qr/cannot be created there: .*"reader" does not exist.*Create the role/s);
	$pg_dump->($with->($a, "CREATE VIEW $s.late AS SELECT 1"));
	moves_ok($a, $b, 5, [ '--bindir', $dir ], 1, 'definitions are changed meanwhile', qr/definitions of shard 5 have changed since they were checked.*snowid-move abort/s);
	moves_ok($a, $b, 5, [], 1, '... for good', qr/definitions of shard 5 have changed since they were checked/);
	moves_ok($a, $b, 5, ['abort'], 0, 'aborted');
	nothing_left_ok($_, 'aborted') for $a, $b;
};

# A server ends our session; a slot waits for who is writing, and says for whom.
subtest 'a session that is ended' => sub {
	fresh_shard($a, $b);
	my $writer = $a->background_psql('postgres');
	$writer->query_safe('BEGIN; CREATE TABLE elsewhere ()');
	my $said = '';
	my $tool = IPC::Run::start([ move_command($a, $b, 5) ], '>&', \$said, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	ok(eval { $tool->pump until $said =~ /source: waiting for process \d+ of/; 1 }, 'it says whose') or diag $said;
	$a->poll_query_until('postgres', q{
	SELECT count(pg_terminate_backend(pid)) = 1 FROM pg_stat_activity WHERE query LIKE 'CREATE_REPLICATION_SLOT%' AND wait_event_type = 'Lock'})
	  or die 'does not wait';
	$tool->finish;
	is($? >> 8, 1, 'a session that is ended') or diag $said;
	like($said, qr/error: source: FATAL: +terminating connection/, '... and of its own');
	$writer->query_safe('ROLLBACK');
	$writer->quit;
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'it goes on after all of them');
	moves_ok($a, $b, 5, ['abort'], 0, 'aborted');
	nothing_left_ok($_, 'aborted') for $a, $b;
};

# A trigger of the fence's name.
subtest 'a trigger in the way' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	$a->safe_psql('postgres', "CREATE TRIGGER snowid_fence BEFORE TRUNCATE ON $s.users EXECUTE FUNCTION snowid_internal.refuse_write()");
	moves_ok($a, $b, 5, [ '--verify', 'none' ], 1, 'a trigger in the way', qr/trigger "snowid_fence" for relation "users" already exists/);
	$a->safe_psql('postgres', "DROP TRIGGER snowid_fence ON $s.users");
	moves_ok($a, $b, 5, ['abort'], 0, 'aborted');
	nothing_left_ok($_, 'aborted') for $a, $b;
};

# The other half of another move.
subtest 'the other half of another move' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	$_->safe_psql('postgres', 'CREATE DATABASE two') for $a, $b;
	$_->safe_psql('two', 'CREATE EXTENSION snowid') for $a, $b;
	$b->safe_psql('two', q{SELECT snowid.create_shard(5)});
	my @two = ('snowid-move', '--shard', 5, '--from', $b->connstr('two'), '--to', $a->connstr('two'));
	command_ok([ @two, '--stop-after', 'copied' ], 'a second shard 5 is on its way');
	command_fails_like([ 'snowid-move', '--shard', 5, '--from', $a->connstr('postgres'), '--to', $b->connstr('two') ],
		qr/the two servers have shard 5 in different moves/, 'the source of one, the source of another');
	command_ok([ @two, 'abort' ], 'aborted');
	moves_ok($a, $b, 5, ['abort'], 0, 'aborted');
	nothing_left_ok($_, 'aborted') for $a, $b;
};

# The journals must agree on what the sequences are, from the comparison on.
subtest 'sequences that differ' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	$b->safe_psql('postgres', q{UPDATE snowid.moves SET details = details #- '{sequences,unused}'});
	moves_ok($a, $b, 5, [], 1, 'a sequence less', qr/shard 5 have changed on the target since they were compared/);
	is(sqlstate($a, "INSERT INTO $s.users (name) VALUES ('here')"), '', 'the shard is open');
	moves_ok($a, $b, 5, ['abort'], 0, 'aborted');
	nothing_left_ok($_, 'aborted') for $a, $b;
};

# A slot that is gone: the copy cannot follow any more.
subtest 'a lost slot' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	my $name = $a->safe_psql('postgres', 'SELECT slot_name FROM pg_replication_slots');
	$b->safe_psql('postgres', "ALTER SUBSCRIPTION $name DISABLE");
	$a->poll_query_until('postgres', 'SELECT NOT active FROM pg_replication_slots') or die 'it stays';
	$a->safe_psql('postgres', "SELECT pg_drop_replication_slot('$name')");
	moves_ok($a, $b, 5, [], 1, 'a lost slot', qr/replication slot "$name" of the source is lost.*the move is undone/s);
	nothing_left_ok($_, 'a lost slot') for $a, $b;
};

done_testing();
