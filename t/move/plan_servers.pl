# What a plan of snowid-move finds about the servers: rights on both, the ways to
# them and between them, settings, transactions that will not end by themselves,
# standbys.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PlanTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

start_nodes();
my $version = sql('b', 'SHOW server_version_num');
my $too_low = $version >= 190000 ? 'minimal' : 'replica';	# wal_level
my $origins = $version >= 180000 ? 'max_active_replication_origins' : 'max_replication_slots';
my $as_app = $node{b}->connstr('postgres') . ' user=app';
my $from_app = $node{a}->connstr('postgres') . ' user=app';

subject 'rights on the target' => sub {
	case_ok('rights on the target', 'FAILED', 'role app is no superuser, and may not make subscriptions', 'superuser',
		options => [ '--to' => $as_app ]);
};

subject 'rights on the source' => sub {
	case_ok('rights on the source', 'FAILED', 'role app may not create replication slots', 'ALTER ROLE app REPLICATION;',
		options => [ '--from' => $from_app ]);
	case_ok('rights on the source', 'FAILED', 'role app may not create publications', 'GRANT CREATE ON DATABASE postgres TO app;',
		same_plan => 1);
	case_ok('ownership on the source', 'FAILED', 'role app does not own table insta5.photos, and .*, who does, is a superuser', 'ALTER TABLE insta5.photos OWNER TO app;',
		same_plan => 1);
	case_ok('rights on the source', 'FAILED', 'role app may not see what other sessions do', 'GRANT pg_read_all_stats TO app;',
		same_plan => 1);
	case_ok('rights on the source', 'FAILED', 'role app may not write snowid.moves',
		'GRANT SELECT, INSERT, UPDATE, DELETE ON snowid.moves TO app;', same_plan => 1);
	case_ok('rights on the source', 'warning', 'role app may not set deadlock_timeout',
		'GRANT SET ON PARAMETER deadlock_timeout TO app;', same_plan => 1, also_fails => 1);
	case_ok('rights on the source', 'FAILED', 'role app is no superuser, and may not make subscriptions', 'superuser',
		options => [ '--from' => $from_app, '--reverse' => undef ]);
	sql($_, 'CREATE SCHEMA util; CREATE DOMAIN util.word AS text; CREATE ROLE other LOGIN IN ROLE app; ALTER ROLE other SET role = app') for 'a', 'b';
	sql('a', 'ALTER TABLE insta5.photos ADD word util.word');
	case_ok("rights on the $_", 'FAILED', 'role app may not use schema util', 'GRANT USAGE ON SCHEMA util TO app;',
		options => [ '--from' => $from_app, '--to' => $as_app ], same_plan => $_ eq 'target') for 'source', 'target';
	sql('a', 'ALTER TABLE insta5.photos DROP word');
	case_ok("rights on the $_", 'FAILED', 'sessions of role other go on as role app', 'ALTER ROLE other RESET role; ALTER ROLE other IN DATABASE postgres RESET role;',
		options => [ '--from' => $from_app =~ s/app$/other/r, '--to' => $as_app =~ s/app$/other/r ]) for 'source', 'target';
};

# A superuser is granted to nobody, whichever server asks for it.
subject 'a superuser owns the shard' => sub {
	case_ok('ownership on the target', 'FAILED', 'role app may not make schema insta5 for .*, who is a superuser', 'On the source, type: ALTER SCHEMA insta5 OWNER TO app;',
		options => [ '--to' => $as_app ]);
	my $superuser = sql('a', 'SELECT quote_ident(current_user)');
	unlike(join('', (plan_of('--from' => $from_app, '--to' => $as_app, '--reverse' => undef))[1, 2]), qr/GRANT \Q$superuser\E TO/, 'no hint grants it');
	sql($_, 'CREATE ROLE team') for 'a', 'b';
	sql('a', 'ALTER TABLE insta5.photos OWNER TO team');
	case_ok('ownership on the source', 'FAILED', 'role app does not own what team has there', 'GRANT team TO app;', options => [ '--from' => $from_app ]);
	case_ok('ownership on the target', 'FAILED', 'role app may not make objects for team', 'GRANT team TO app;', options => [ '--to' => $as_app ]);
	sql('a', 'ALTER TABLE insta5.photos OWNER TO CURRENT_USER');
	sql($_, 'DROP ROLE team') for 'a', 'b';
};

subject 'row security' => sub {
	case_ok('row security', 'FAILED', 'insta5.photos', 'NO FORCE ROW LEVEL SECURITY',
		do => [ [ 'a', 'ALTER TABLE insta5.photos ENABLE ROW LEVEL SECURITY; ALTER TABLE insta5.photos FORCE ROW LEVEL SECURITY;
			ALTER TABLE insta5.photos OWNER TO app' ] ],
		undo => [ [ 'a', 'ALTER TABLE insta5.photos DISABLE ROW LEVEL SECURITY; ALTER TABLE insta5.photos NO FORCE ROW LEVEL SECURITY;
			ALTER TABLE insta5.photos OWNER TO CURRENT_USER' ] ],
		options => [ '--to' => $as_app ]);
};

subject 'the connections between them' => sub {
	case_ok('connection from the target to the source', 'FAILED', 'could not connect', '--source-for-target',
		options => [ '--source-for-target' => "host=/nonexistent dbname=postgres" ]);
	case_ok('connection from the source to the target', 'FAILED', 'could not connect', '--target-for-source',
		options => [ '--target-for-source' => "host=/nonexistent dbname=postgres", '--reverse' => undef ]);
};

subject 'pg_dump' => sub {
	case_ok('pg_dump', 'FAILED', 'cannot run "/nonexistent/pg_dump"', '--bindir',
		options => [ '--bindir' => '/nonexistent' ]);
	my $old = PostgreSQL::Test::Utils::tempdir();
	append_to_file("$old/pg_dump", "#!/bin/sh\necho 'pg_dump (PostgreSQL) 12.22'\n");
	chmod 0755, "$old/pg_dump";
	case_ok('pg_dump', 'FAILED', 'is of PostgreSQL 12, older than the source', '--bindir',
		options => [ '--bindir' => $old ]);
};

subject 'the registry for all' => sub {
	my $registry = $node{b}->connstr('postgres');
	case_ok('registry', 'warning', 'it does not have shard 5', 'before it moves',
		options => [ '--registry' => $registry ]);
	case_ok('registry', 'FAILED', 'role app may not change it', 'GRANT SELECT, UPDATE ON snowid.shard_registry TO app;',
		options => [ '--registry' => "$registry user=app" ]);
	case_ok('registry', 'FAILED', 'cannot be checked: .*No such file', '--registry',
		options => [ '--registry' => 'host=/nonexistent' ]);
};

# One that has written, one that may write in the shard, and a prepared one.
subject 'transactions' => sub {
	my $writer = $node{a}->background_psql('postgres');
	$writer->query_safe('BEGIN; SELECT pg_current_xact_id()');
	my $locker = $node{a}->background_psql('postgres');
	$locker->query_safe('BEGIN; LOCK TABLE insta5.photos IN ROW EXCLUSIVE MODE');
	sql('a', q{BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION 'two'});
	$node{a}->poll_query_until('postgres', q{
	SELECT prepared < clock_timestamp() - interval '5 s' FROM pg_prepared_xacts});
	case_ok('prepared transactions', 'FAILED', q{'two' of database "postgres"}, q{ROLLBACK PREPARED 'two';},
		undo => [ [ 'a', q{ROLLBACK PREPARED 'two'} ] ]);
	my ($writer_pid, $locker_pid) = split /\n/, sql('a', q{
	SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction' ORDER BY xact_start});
	case_ok('long transactions', 'warning', "process $_ of \\S+ has had one open for 00:00:", "pg_terminate_backend\\($_\\)")
	  foreach $writer_pid, $locker_pid;
	foreach ($writer, $locker)
	{
		$_->query_safe('ROLLBACK');
		$_->quit;
	}
};

subject 'settings of the source' => sub {
	with_settings('a', q{
	max_slot_wal_keep_size = -1
	wal_sender_timeout = 0
	logical_decoding_work_mem = '1MB'
	max_replication_slots = 0
	max_wal_senders = 0
	},
		[ 'WAL kept by slots on the source', 'warning', 'max_slot_wal_keep_size is -1', 'max_slot_wal_keep_size' ],
		[ 'replication settings', 'warning', 'wal_sender_timeout is 0', 'RESET wal_sender_timeout' ],
		[ 'replication settings', 'warning', 'logical_decoding_work_mem is 1MB', 'RESET logical_decoding_work_mem' ],
		[ 'slots and walsenders on the source', 'FAILED', '0 of max_replication_slots = 0 are free', 'The move needs one. .* max_replication_slots = 1;' ],
		[ 'slots and walsenders on the source', 'FAILED', '0 of max_wal_senders = 0 are free', 'The move needs one. .* max_wal_senders = 1;' ]);
	with_settings('a', "wal_level = $too_low\nmax_wal_senders = 0",
		[ 'wal_level on the source', 'FAILED', "it is $too_low", 'ALTER SYSTEM SET wal_level = logical;' ]);
	with_settings('a', q{
	max_logical_replication_workers = 0
	max_worker_processes = 0
	},
		[ 'origins and workers on the source', 'FAILED', '0 of max_logical_replication_workers = 0 are free', 'The move needs one. .* max_logical_replication_workers = 1;', options => [ '--reverse' => undef ] ],
		[ 'origins and workers on the source', 'FAILED', '0 of max_worker_processes = 0 are free', 'The move needs one. ', options => [ '--reverse' => undef ] ]);
	with_settings('a', "$origins = 1",
		[ 'origins and workers on the source', 'FAILED', "0 of $origins = 1 are free", "The move needs one. .* $origins = 2;",
			do => [ [ 'a', q{SELECT pg_replication_origin_create('other')} ] ],
			undo => [ [ 'a', q{SELECT pg_replication_origin_drop('other')} ] ],
			options => [ '--reverse' => undef ] ]);
};

subject 'settings of the target' => sub {
	with_settings('b', q{
	max_logical_replication_workers = 0
	max_worker_processes = 0
	},
		[ 'origins and workers on the target', 'FAILED', '0 of max_logical_replication_workers = 0 are free', 'The move needs one. .* max_logical_replication_workers = 1;' ],
		[ 'origins and workers on the target', 'FAILED', '0 of max_worker_processes = 0 are free', 'The move needs one. ' ]);
	with_settings('b', "$origins = 0",
		[ 'origins and workers on the target', 'FAILED', "0 of $origins = 0 are free", "The move needs one. .* $origins = 1;" ]);
	with_settings('b', qq{
	wal_level = $too_low
	max_wal_senders = 0
	max_replication_slots = 0
	},
		[ 'wal_level on the target', 'FAILED', "it is $too_low", 'ALTER SYSTEM SET wal_level = logical;', options => [ '--reverse' => undef ] ],
		[ 'slots and walsenders on the target', 'FAILED', '0 of max_wal_senders = 0 are free', 'max_wal_senders = 1;', options => [ '--reverse' => undef ] ],
		[ 'slots and walsenders on the target', 'FAILED', '0 of max_replication_slots = 0 are free', 'max_replication_slots = 1;', options => [ '--reverse' => undef ] ]);
};

# A shard with so many tables that it could not be dropped in one transaction.
# From 18 on, a NOT NULL is one more.
subject 'locks' => sub {
	my $tables = sub {
		my ($n) = @_;
		return map { ($_->[0] => [ [ 'a', "SELECT format('$_->[1]', n) FROM generate_series(1, $n) n \\gexec" ] ]) }
		  [ 'do', 'CREATE TABLE insta5.t%s (id int PRIMARY KEY)' ], [ 'undo', 'DROP TABLE insta5.t%s' ];
	};
	foreach my $name ('a', 'b')
	{
		my $locks = 'locks on the ' . ($name eq 'a' ? 'source' : 'target');

		# Up to 18 there is memory for half as many more.
		my $many = $node{a}->pg_version->major < 19 ? 95 : $name eq 'a' ? 78 : 70;
		with_settings($name, 'max_locks_per_transaction = 10',
			[ $locks, 'warning', '[56]\d\d locks in one transaction, and there is room for 5\d\d$', 'max_locks_per_transaction = [12]\d;', $tables->($many) ],
			[ $locks, 'FAILED', '(?:8\d\d|10\d\d) locks in one transaction, and there is room for 5\d\d$', 'max_locks_per_transaction = [12]\d;', $tables->(140) ]);
	}
};

# As a target, and one that is behind.
subject 'standbys' => sub {
	$node{b}->backup('base');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node{b}, 'base', has_streaming => 1);
	$standby->start;
	case_ok('target is a primary', 'FAILED', 'it is a standby', 'connection of its primary',
		options => [ '--to' => $standby->connstr('postgres') ]);
	$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
	$standby->poll_query_until('postgres', q{SELECT pg_get_wal_replay_pause_state() = 'paused'});
	case_ok('standbys of the target', 'warning', '"standby" is \d+ .*B behind', '--max-lag',
		do => [ [ 'b', q{CREATE TABLE wal AS SELECT repeat(md5(i::text), 10) FROM generate_series(1, 100000) AS i} ] ],
		undo => [ [ 'b', 'DROP TABLE wal' ] ]);
	$standby->stop('immediate');
	$node{b}->poll_query_until('postgres', 'SELECT count(*) = 0 FROM pg_stat_replication') or die 'it stays';
};

done_planning();
