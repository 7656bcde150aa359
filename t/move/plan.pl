# Each precheck of snowid-move finds what it is for, says what to do, and fails
# or warns as it should: here, what is in the shard, and what leads out of it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PlanTest;
use PostgreSQL::Test::Utils;
use Test::More;

start_nodes();

# A shard that can move: all checks are listed, and all is well.
subject 'a shard that can move' => sub {
	my ($passed, $plan, $stderr) = plan_of();
	ok($passed, 'a plan passes') or diag($plan, $stderr);
	unlike($plan, qr/^(warning|FAILED)/m, '... without a warning') or diag($plan);
	cmp_ok(scalar(() = $plan =~ /^ok /mg), '>', 35, '... and lists what it has checked');
};

# Tables whose rows replication cannot find.
subject 'tables without a key' => sub {
	case_ok('replica identity', 'FAILED', 'table insta5.log has none', 'ALTER TABLE insta5.log ADD PRIMARY KEY',
		do => [ [ 'a', 'CREATE TABLE insta5.log (line text)' ] ]);
	case_ok('replica identity', 'FAILED', 'insta5.log', 'ALTER TABLE insta5.log REPLICA IDENTITY USING INDEX log_n;',
		do => [ [ 'a', 'ALTER TABLE insta5.log ADD n int NOT NULL; CREATE UNIQUE INDEX log_n ON insta5.log (n)' ] ]);
	case_ok('replica identity', 'FAILED', 'insta5.log', 'REPLICA IDENTITY',
		do => [ [ 'a', 'ALTER TABLE insta5.log ADD m int PRIMARY KEY DEFERRABLE' ] ],
		undo => [ [ 'a', 'DROP TABLE insta5.log' ] ]);
	case_ok('replica identity', 'warning', 'a partition of table insta5.days that is made during the move has none', 'ALTER TABLE insta5.days ADD PRIMARY KEY \\(day, ...\\);',
		do => [ [ 'a', 'CREATE TABLE insta5.days (day int, n int) PARTITION BY RANGE (day)' ] ]);
	sql('a', 'ALTER TABLE insta5.days ADD PRIMARY KEY (day)');
	unlike((plan_of())[1], qr/insta5\.days/, 'a key will do');

	# Two keys of partitions, one, and one without what another level is partitioned by.
	my $none = 'Make none until it is done, or with ADD PRIMARY KEY in the same transaction';
	sql('a', q{DROP TABLE insta5.days; CREATE TABLE insta5.days ("a day" int, n int NOT NULL, m int) PARTITION BY RANGE ("a day")});
	case_ok('replica identity', 'warning', 'insta5.days', $none, do => [ [ 'a', 'CREATE TABLE insta5.days_1 PARTITION OF insta5.days (PRIMARY KEY (n, "a day")) FOR VALUES FROM (1) TO (2);
CREATE TABLE insta5.days_2 PARTITION OF insta5.days (PRIMARY KEY ("a day", n)) FOR VALUES FROM (2) TO (3)' ] ]);
	case_ok('replica identity', 'warning', 'insta5.days', $none,
		do => [ [ 'a', 'ALTER TABLE insta5.days_2 DROP CONSTRAINT days_2_pkey; ALTER TABLE insta5.days_2 ADD PRIMARY KEY (n, "a day") INCLUDE (m)' ] ]);
	case_ok('replica identity', 'warning', 'insta5.days', 'Type: ALTER TABLE insta5.days ADD PRIMARY KEY \\(n, "a day"\\);', do => [ [ 'a', 'DROP TABLE insta5.days_2' ] ]);
	sql('a', 'ALTER TABLE insta5.days ADD PRIMARY KEY (n, "a day")');
	unlike((plan_of())[1], qr/insta5\.days/, 'that of all partitions will do');
	case_ok('replica identity', 'warning', 'insta5.days', $none, do => [ [ 'a', 'ALTER TABLE insta5.days DROP CONSTRAINT days_pkey;
CREATE TABLE insta5.days_2 PARTITION OF insta5.days FOR VALUES FROM (2) TO (3) PARTITION BY LIST (m);
CREATE TABLE insta5.days_3 PARTITION OF insta5.days_2 (PRIMARY KEY (n, "a day")) FOR VALUES IN (1)' ] ], undo => [ [ 'a', 'DROP TABLE insta5.days' ] ], also_fails => 1);
	case_ok('rows without a key', 'FAILED', 'column pages of table insta5.docs has type json, which has no equality', 'ALTER TABLE insta5.docs ADD PRIMARY KEY',
		do => [ [ 'a', q{
	CREATE DOMAIN public.page AS json;
	CREATE TABLE insta5.docs (pages public.page[], name varchar(9), tag char(3), mood text[], n numeric, at inet);
	ALTER TABLE insta5.docs REPLICA IDENTITY FULL} ] ], also_fails => 1);
	unlike((plan_of())[1], qr/column (name|tag|mood|n|at) of table insta5\.docs/, 'types that have an equality will do');
	case_ok('replica identity', 'FAILED', 'table insta5.docs has none', 'ALTER TABLE insta5.docs ADD PRIMARY KEY \\(...\\);$',
		do => [ [ 'a', 'ALTER TABLE insta5.docs REPLICA IDENTITY DEFAULT' ] ]);
	sql('a', 'DROP TABLE insta5.docs; DROP DOMAIN public.page');
};

subject 'numbers from elsewhere' => sub {
	case_ok('sequences outside of the shard', 'FAILED', 'default value for column n of table insta5.orders takes numbers from public.other_seq, which does not move',
		'ALTER SEQUENCE public.other_seq SET SCHEMA insta5;',
		do => [ (map { [ $_, 'CREATE SEQUENCE public.other_seq' ] } 'a', 'b'),
			[ 'a', q{CREATE TABLE insta5.orders (id bigint PRIMARY KEY, n bigint DEFAULT nextval('public.other_seq'))} ] ],
		undo => [ [ 'b', 'DROP SEQUENCE public.other_seq' ], [ 'a', 'DROP TABLE insta5.orders; DROP SEQUENCE public.other_seq' ] ]);
};

# Many findings of one kind are a few lines, and a script.
subject 'many tables without a key' => sub {
	my $script = PostgreSQL::Test::Utils::tempdir() . '/fix.sql';
	sql('a', q{SELECT format('CREATE TABLE insta5.log%s (line text)', i) FROM generate_series(1, 110) i \gexec});
	sql('a', 'ALTER TABLE insta5.log7 ADD n int NOT NULL; CREATE UNIQUE INDEX log_n ON insta5.log7 (n)');
	my ($passed, $plan, $stderr) = plan_of('--fix-script' => $script);
	is(scalar(() = $plan =~ /^FAILED +replica identity/mg), 4, '110 tables are four findings');
	like($plan, qr/^FAILED +replica identity: and 107 more\n +Write the commands for all of them to a file, .*--fix-script/m, '... which name the script');
	like($stderr, qr/110 commands for the source are in \Q$script\E; read it, and run it with: psql -f/, 'the script is written');
	like(slurp_file($script), qr/^ALTER TABLE insta5.log7 REPLICA IDENTITY USING INDEX log_n;$/m, '... with an index where there is one');
	$node{a}->command_ok([ 'psql', '-X', '-v', 'ON_ERROR_STOP=1', '-d', $node{a}->connstr('postgres'), '-f', $script ], '... and runs');
	is((plan_of())[0], 1, '... and is all that was needed');
	like((plan_of('--fix-script' => '/nonexistent/fix.sql'))[2], qr/could not write "\/nonexistent\/fix\.sql": No such file/, 'a file that cannot be written is named');
	sql('a', q{SELECT format('DROP TABLE insta5.log%s', i) FROM generate_series(1, 110) i \gexec});
};

# The shard that takes longest counts, whether by tables or by sequences.
subject 'time to close' => sub {
	sql('a', q{SELECT format('CREATE SEQUENCE insta5.s%s', i) FROM generate_series(1, 8) i \gexec});
	sql('a', q{SELECT format('CREATE TABLE insta6.t%s (id int PRIMARY KEY)', i) FROM generate_series(1, 20) i \gexec});
	case_ok('time to close', 'FAILED', '2 tables and 9 sequences take about 10 ms to close, and --pause-limit is 10 ms', '--pause-limit=30',
		options => [ '--shard' => '5-6', '--pause-limit' => 10 ]);
	case_ok('time to close', 'warning', 'about 10 ms to close, and --pause-limit is 15 ms', '--pause-limit=30',
		options => [ '--shard' => '5-6', '--pause-limit' => 15 ]);
	sql('a', 'DROP SEQUENCE insta6.id_seq CASCADE');
	sql('a', q{SELECT format('DROP TABLE insta6.t%s', i) FROM generate_series(1, 20) i \gexec});
	case_ok('shard on the source', 'FAILED', 'sequence "id_seq" of schema "insta6" does not exist', 'snowid.shards',
		options => [ '--shard' => 6 ]);
};

# Tables that would lose rows, or stop the writers.
subject 'tables that do not move' => sub {
	case_ok('unlogged tables', 'FAILED', 'insta5.cache', 'ALTER TABLE insta5.cache SET LOGGED',
		do => [ [ 'a', 'CREATE UNLOGGED TABLE insta5.cache (id int PRIMARY KEY)' ] ],
		undo => [ [ 'a', 'DROP TABLE insta5.cache' ] ]);
	case_ok('jobs', 'warning', "pg_cron's job 3 names the shard: CALL insta5.nightly", 'SELECT cron.unschedule',
		do => [ [ 'a', q{CREATE SCHEMA cron; CREATE TABLE cron.job (jobid bigint, command text, database text);
			INSERT INTO cron.job VALUES (3, 'CALL insta5.nightly()', current_database()), (4, 'CALL insta55.nightly()', current_database()), (5, 'insta5.t', 'other')} ] ],
		undo => [ [ 'a', 'DROP SCHEMA cron CASCADE' ] ]);
	case_ok('jobs', 'warning', 'pg_partman makes partitions of insta5.photos', q{DELETE FROM partman.part_config WHERE parent_table = 'insta5.photos';},
		do => [ [ 'a', q{CREATE SCHEMA partman; CREATE TABLE partman.part_config (parent_table text);
			INSERT INTO partman.part_config VALUES ('insta5.photos'), ('insta6.photos')} ] ],
		undo => [ [ 'a', 'DROP SCHEMA partman CASCADE' ] ]);
	case_ok('large objects', 'warning', 'column image of table insta5.albums', 'bytea',
		do => [ [ 'a', 'CREATE TABLE insta5.albums (id int PRIMARY KEY, image oid)' ] ],
		undo => [ [ 'a', 'DROP TABLE insta5.albums' ] ]);
	foreach my $kind ('ALWAYS', 'REPLICA')
	{
		case_ok('triggers that always fire', 'FAILED', 't on insta5.photos', 'ALTER TABLE insta5.photos ENABLE TRIGGER t;',
			do => [ [ 'a', "CREATE TRIGGER t BEFORE UPDATE ON insta5.photos FOR EACH ROW
					EXECUTE FUNCTION suppress_redundant_updates_trigger();
				ALTER TABLE insta5.photos ENABLE $kind TRIGGER t" ] ],
			undo => [ [ 'a', 'DROP TRIGGER t ON insta5.photos' ] ]);
	}
};

subject 'partitions and children elsewhere' => sub {
	case_ok('partitions and inheritance', 'FAILED',
		'public.part is a partition of insta5.whole', 'ALTER TABLE public.part SET SCHEMA insta5; or ALTER TABLE insta5.whole DETACH PARTITION public.part;',
		do => [ [ 'a', 'CREATE TABLE insta5.whole (id int PRIMARY KEY) PARTITION BY RANGE (id);
			CREATE TABLE public.part PARTITION OF insta5.whole DEFAULT' ] ],
		undo => [ [ 'a', 'DROP TABLE insta5.whole' ] ]);
	case_ok('partitions and inheritance', 'FAILED',
		'insta5.child is a child of public.users', 'ALTER TABLE public.users SET SCHEMA insta5; or ALTER TABLE insta5.child NO INHERIT public.users;',
		do => [ [ 'a', 'CREATE TABLE insta5.child (PRIMARY KEY (id)) INHERITS (public.users)' ] ],
		undo => [ [ 'a', 'DROP TABLE insta5.child' ] ]);
};

# What leads out of the shard, or into it.
subject 'foreign keys and users elsewhere' => sub {
	case_ok('shared tables', 'FAILED', 'public.users is missing, to which leads_out of insta5.photos leads', 'Make it there as it is on the source',
		do => [ [ 'a', 'ALTER TABLE insta5.photos ADD CONSTRAINT leads_out FOREIGN KEY (user_id) REFERENCES public.users' ] ],
		undo => [ [ 'a', 'ALTER TABLE insta5.photos DROP CONSTRAINT leads_out' ] ]);
	case_ok('foreign keys', 'FAILED', 'from public.faves to insta5.photos', 'ALTER TABLE public.faves DROP CONSTRAINT',
		do => [ [ 'a', 'CREATE TABLE public.faves (id bigint REFERENCES insta5.photos)' ] ],
		undo => [ [ 'a', 'DROP TABLE public.faves' ] ]);
	case_ok('users in other schemas', 'warning', 'view public.newest uses table insta5.photos', 'Drop or change it',
		do => [ [ 'a', 'CREATE VIEW public.newest AS SELECT max(id) FROM insta5.photos' ] ],
		undo => [ [ 'a', 'DROP VIEW public.newest' ] ]);
	case_ok('users in other schemas', 'warning', 'default value for column id of table public.users uses sequence insta5.id_seq', 'Drop or change it',
		do => [ [ 'a', q{ALTER TABLE public.users ALTER id SET DEFAULT nextval('insta5.id_seq')} ] ],
		undo => [ [ 'a', 'ALTER TABLE public.users ALTER id DROP DEFAULT' ] ]);
};

# Before 16, replication runs the functions of the tables' owners as a superuser.
subject 'owners' => sub {
	my $major = sql('b', 'SHOW server_version_num');
	sql('a', 'ALTER TABLE insta5.photos OWNER TO app');
	if ($major < 160000)
	{
		case_ok('owners on the target', 'FAILED', 'app owns objects of the shard and is no superuser, but replication to PostgreSQL 15 would run', '--trust-owners');
		like((plan_of('--trust-owners' => undef))[1], qr/^ok +owners: trusted$/m, 'they can be trusted');
	}
	else
	{
		like((plan_of())[1], qr/^ok +owners$/m, 'functions of owners run as those');
	}
	# As minor releases before 15.8 and 16.4 have it.
	my $settings = 'SET allow_system_table_mods = on; CREATE OR REPLACE VIEW pg_catalog.pg_settings AS SELECT * FROM pg_show_all_settings()';
	foreach my $server ([ 'a', 'source' ], [ 'b', 'target' ])
	{
		case_ok("views of owners on the $server->[1]", 'warning', 'app could put a view in the place of a table, and PostgreSQL \d+\S+.* cannot refuse to run it', 'Update it, to 15.8, 16.4',
			do => [ [ $server->[0], "$settings WHERE name <> 'restrict_nonsystem_relation_kind'" ] ],
			undo => [ [ $server->[0], $settings ] ], also_fails => $major < 160000);
	}
	sql('a', 'ALTER TABLE insta5.photos OWNER TO CURRENT_USER');
};

subject 'a table of an extension' => sub {
	case_ok('extensions within the shard', 'FAILED', 'table insta5.photos belongs to extension "plpgsql"',
		'ALTER EXTENSION plpgsql DROP TABLE insta5.photos;',
		do => [ [ 'a', 'ALTER EXTENSION plpgsql ADD TABLE insta5.photos' ] ],
		undo => [ [ 'a', 'ALTER EXTENSION plpgsql DROP TABLE insta5.photos' ] ]);
};

# A move that was not finished, seen from either end.
subject 'an earlier move' => sub {
	my $row = q{INSERT INTO snowid.moves (shard, schema, role, step, details) VALUES (5, '%s', '%s', '%s', '{"move_id": "x", "name": "n", "reverse_name": "r"}')};
	case_ok('earlier move', 'FAILED', 'one of shard 5 is complete, but not finished', 'snowid-move finish',
		do => [ [ 'a', sprintf $row, 'insta5', 'target', 'open' ], [ 'b', sprintf $row, 'insta5_moved', 'source', 'moved' ] ],
		undo => [ [ 'b', 'DELETE FROM snowid.moves' ] ], also_fails => 1);
	case_ok('earlier move', 'FAILED', 'one of shard 5 is under way', 'snowid-move status',
		undo => [ [ 'a', 'DELETE FROM snowid.moves' ] ], also_fails => 1);
};

# Other replication of the same tables.
subject 'other replication' => sub {
	case_ok('other publications', 'warning', 'subscribers of "cdc"', 'subscribe to the target',
		do => [ [ 'a', 'CREATE PUBLICATION cdc FOR ALL TABLES' ] ],
		undo => [ [ 'a', 'DROP PUBLICATION cdc' ] ]);

	# A slot is named if it can show the shard: pgoutput shows what is in a publication.
	case_ok('other slots', 'warning', 'slot "cdc" \(test_decoding\)', 'Make a slot on the target',
		do => [ [ 'a', q{SELECT pg_create_logical_replication_slot('cdc', 'test_decoding')} ] ],
		undo => [ [ 'a', q{SELECT pg_drop_replication_slot('cdc')} ] ]);
	case_ok('other slots', 'warning', 'slot "cdc" \(pgoutput\)', 'Make a slot on the target',
		do => [ [ 'a', q{SELECT pg_create_logical_replication_slot('cdc', 'pgoutput')} ],
			[ 'a', 'CREATE PUBLICATION cdc FOR TABLES IN SCHEMA insta5' ] ],
		undo => [ [ 'a', 'DROP PUBLICATION cdc' ] ]);
	unlike((plan_of())[1], qr/slot "cdc"/, 'a slot of pgoutput without a publication of the shard is not named');
	sql('a', q{SELECT pg_drop_replication_slot('cdc')});

	my $from_b = $node{b}->connstr('postgres');
	$from_b =~ s/'/''/g;
	case_ok('other subscriptions', 'FAILED', 'insta5.photos is filled by replication', 'End that subscription',
		do => [ [ 'b', 'CREATE SCHEMA insta5 CREATE TABLE photos (id bigint PRIMARY KEY, user_id bigint);
				CREATE PUBLICATION feed FOR TABLE insta5.photos' ],
			[ 'a', "CREATE SUBSCRIPTION feed CONNECTION '$from_b' PUBLICATION feed
				WITH (create_slot = false, slot_name = NONE, enabled = false, copy_data = false)" ] ],
		undo => [ [ 'a', 'DROP SUBSCRIPTION feed' ], [ 'b', 'DROP SCHEMA insta5 CASCADE; DROP PUBLICATION feed' ] ]);
};

# What takes long says what it is.
subject 'a check that takes more than a second' => sub {
	my ($said, $hold) = ('', $node{a}->background_psql('postgres'));
	$hold->query_safe('BEGIN; LOCK pg_transform IN ACCESS EXCLUSIVE MODE');
	my $plan = IPC::Run::start([ 'snowid-move', 'plan', '--shard', 5, '--from', $node{a}->connstr('postgres'),
			'--to', $node{b}->connstr('postgres') ], '>&', \$said, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	ok(eval { $plan->pump until $said =~ /still looking: transforms$/m; 1 }, 'it is named') or diag $said;
	$hold->quit;
	ok($plan->finish, '... and the plan goes on') or diag $said;
};

# The files of the checks are read by psql, too, between two servers; but audit.sql, which
# asks what the program has gathered: audit.pl has it run.
subject 'psql runs the checks' => sub {
	sql('a', 'CREATE TABLE insta5.log (line text)');
	my ($passed, $plan) = plan_of('--reverse' => undef);
	foreach my $file (grep { !/audit/ } glob "$FindBin::RealBin/../../bin/move/sql/*.sql")
	{
		my ($stdout, $stderr) = run_command([ 'psql', '-XAtq', '-F', ': ', '-v', 'ON_ERROR_STOP=1',
			(map { ('-v', $_) } 'source=' . $node{a}->connstr('postgres'), 'target=' . $node{b}->connstr('postgres'),
				'shards={5}', 'schemas={insta5}', 'set_schemas={insta5}', 'name=public',
				'max_lag=1000000', 'max_wal=10000000000', 'pause_limit=1000', 'trust_owners=off', 'reverse=on',
				'home=x', 'moved=5', 'here=y', 'columns=[]', 'may_differ=true', 'oids={1}', 'since=10:20:10,14,15', 'names={}',
				'reverse_name=x', 'sent=[]', 'extensions={}', 'shard=5', 'numbers=5', 'again=true', 'states={}', 'what=count',
				'schema=insta5', 'other_schema=insta5', 'facts=[]', 'other_facts=[]', 'keep=false', 'number=5', 'only=false', 'suffix=_x', 'process=1', 'then=y', 'mark=z', 'table=x', 'move=x', 'other=[]'),
			'-d', $node{b}->connstr('postgres'), '-f', $file ]);
		is($stderr, '', "$file has no errors");
		next unless $file =~ /plan\.sql$/;
		my ($finding) = $stdout =~ /^replica identity\n(.*)/m;
		like($finding // '', qr/^FAILED: table insta5\.log has none.*: Type: ALTER TABLE insta5\.log/, 'psql finds the same');

		# A check may find more than one thing.
		my $names = join("\n", $plan =~ /^(?:ok|warning|FAILED) +([^:\n]+)/mg) =~ s/^(.+)\n(?=\1$)//mgr;
		is(join("\n", $stdout =~ /^((?!FAILED|warning|ok|\d)[^:\n]{2,})$/mg), $names, '... in the same order');
	}
	sql('a', 'DROP TABLE insta5.log');
};

done_planning();
