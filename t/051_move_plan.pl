# Each precheck of snowid-move finds what it is for, says what to do, and
# fails or warns as it should.  One pair of servers; every case makes one thing
# wrong, looks at the plan, and puts it right again.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use SnowidTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my %node;
$node{a} = new_node('a', allows_streaming => 'logical');
$node{a}->append_conf('postgresql.conf', q{
max_prepared_transactions = 5
max_slot_wal_keep_size = '1GB'
});
$node{a}->start;
$node{b} = new_node('b', allows_streaming => 'logical');
start_with_clock($node{b}, '+0');

sub sql
{
	my ($name, $sql, $dbname) = @_;
	return $node{$name}->safe_psql($dbname // 'postgres', $sql);
}

# The lines of a plan: its findings, each with what to do.  A last argument
# that is a reference has other options.
sub plan_of
{
	my (%options) = (
		'--shard' => 5,
		'--from' => $node{a}->connstr('postgres'),
		'--to' => $node{b}->connstr('postgres'),
		@_);
	my ($stdout, $stderr) = ('', '');
	my $passed = IPC::Run::run(
		[ 'snowid-move', 'plan', map { ($_, $options{$_} // ()) } sort keys %options ],
		'>', \$stdout, '2>', \$stderr);

	return ($passed, $stdout, $stderr);
}

# Make something wrong, and expect a finding.
#
#	name of the check, severity, what it found and what to do (as patterns)
#	do, undo: [ server, statements ... ]
#	options: of the plan
sub case_ok
{
	my ($check, $severity, $what, $to_do, %case) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	foreach my $do (@{ $case{do} || [] })
	{
		sql(@$do);
	}
	my ($passed, $plan, $stderr) = plan_of(@{ $case{options} || [] });
	foreach my $undo (@{ $case{undo} || [] })
	{
		sql(@$undo);
	}
	ok($plan =~ /^\Q$severity\E +\Q$check\E: .*$what.*\n +.*$to_do/m,
		"$check: $severity " . ($what =~ s/\\//gr))
	  or diag($plan, $stderr);
	ok($severity eq 'FAILED' ? !$passed : $passed, '... and the plan '
		  . ($severity eq 'FAILED' ? 'fails' : 'passes')) or diag($plan)
	  unless $case{also_fails};
	return;
}

sql('a', q{
CREATE EXTENSION snowid;
SELECT snowid.create_shard(5);
SELECT snowid.create_shard(6);
CREATE TABLE insta5.photos (id bigint PRIMARY KEY DEFAULT insta5.next_id(), user_id bigint NOT NULL);
CREATE TABLE insta5.likes (id bigint PRIMARY KEY DEFAULT insta5.next_id(), photo_id bigint NOT NULL REFERENCES insta5.photos);
CREATE TABLE public.users (id bigint PRIMARY KEY);
CREATE ROLE app LOGIN;
});
sql('b', 'CREATE EXTENSION snowid; CREATE ROLE app LOGIN');

# A shard that can move: all checks are listed, and all is well.
my ($passed, $plan, $stderr) = plan_of();
ok($passed, 'a plan passes') or diag($plan, $stderr);
unlike($plan, qr/^(warning|FAILED)/m, '... without a warning') or diag($plan);
cmp_ok(scalar(() = $plan =~ /^ok /mg), '>', 35, '... and lists what it has checked');
my $clean = tidy($plan);
my $doc = slurp_file("$FindBin::RealBin/../doc/moving.md");
foreach my $check ((plan_of('--reverse' => undef))[1] =~ /^ok +([^:\n]+)/mg)
{
	$check =~ s/ (?:on|of) the (?:source|target)$//;
	like($doc, qr/`\Q$check\E`/, "the check $check is documented");
}

# Tables that would lose rows, or stop the writers.
case_ok('replica identity', 'FAILED', 'table insta5.log has none', 'ALTER TABLE insta5.log ADD PRIMARY KEY',
	do => [ [ 'a', 'CREATE TABLE insta5.log (line text)' ] ]);
case_ok('replica identity', 'FAILED', 'insta5.log', 'ALTER TABLE insta5.log REPLICA IDENTITY USING INDEX log_n;',
	do => [ [ 'a', 'ALTER TABLE insta5.log ADD n int NOT NULL; CREATE UNIQUE INDEX log_n ON insta5.log (n)' ] ]);
case_ok('replica identity', 'FAILED', 'insta5.log', 'REPLICA IDENTITY',
	do => [ [ 'a', 'ALTER TABLE insta5.log ADD m int PRIMARY KEY DEFERRABLE' ] ],
	undo => [ [ 'a', 'DROP TABLE insta5.log' ] ]);
case_ok('rows without a key', 'FAILED', 'column pages of table insta5.docs has type json, which has no equality', 'ALTER TABLE insta5.docs ADD PRIMARY KEY',
	do => [ [ 'a', q{
CREATE DOMAIN public.page AS json;
CREATE TABLE insta5.docs (pages public.page[], name varchar(9), tag char(3), mood text[], n numeric, at inet);
ALTER TABLE insta5.docs REPLICA IDENTITY FULL} ] ], also_fails => 1);
unlike((plan_of())[1], qr/column (name|tag|mood|n|at) of table insta5\.docs/, 'types that have an equality will do');
sql('a', 'DROP TABLE insta5.docs; DROP DOMAIN public.page');
case_ok('time to close', 'FAILED', '2 tables and 1 sequences take about 5 ms to close, and --pause-limit is 4 ms', '--pause-limit=15',
	options => [ '--pause-limit' => 4 ]);
case_ok('time to close', 'warning', 'about 5 ms to close, and --pause-limit is 8 ms', '--pause-limit=15',
	options => [ '--pause-limit' => 8 ]);
case_ok('unlogged tables', 'FAILED', 'insta5.cache', 'ALTER TABLE insta5.cache SET LOGGED',
	do => [ [ 'a', 'CREATE UNLOGGED TABLE insta5.cache (id int PRIMARY KEY)' ] ],
	undo => [ [ 'a', 'DROP TABLE insta5.cache' ] ]);
case_ok('partitions and inheritance', 'FAILED',
	'public.part is a partition of insta5.whole', 'ALTER TABLE public.part SET SCHEMA insta5; or ALTER TABLE insta5.whole DETACH PARTITION public.part;',
	do => [ [ 'a', 'CREATE TABLE insta5.whole (id int PRIMARY KEY) PARTITION BY RANGE (id);
		CREATE TABLE public.part PARTITION OF insta5.whole DEFAULT' ] ],
	undo => [ [ 'a', 'DROP TABLE insta5.whole' ] ]);
case_ok('partitions and inheritance', 'FAILED',
	'insta5.child is a child of public.users', 'ALTER TABLE public.users SET SCHEMA insta5; or ALTER TABLE insta5.child NO INHERIT public.users;',
	do => [ [ 'a', 'CREATE TABLE insta5.child (PRIMARY KEY (id)) INHERITS (public.users)' ] ],
	undo => [ [ 'a', 'DROP TABLE insta5.child' ] ]);
case_ok('materialized views', 'warning', 'insta5.daily', 'REFRESH MATERIALIZED VIEW insta5.daily;',
	do => [ [ 'a', 'CREATE MATERIALIZED VIEW insta5.daily AS SELECT 1 AS one' ] ],
	undo => [ [ 'a', 'DROP MATERIALIZED VIEW insta5.daily' ] ]);
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

# What leads out of the shard, or into it.
case_ok('foreign keys', 'FAILED', 'from insta5.photos to public.users', 'ALTER TABLE insta5.photos DROP CONSTRAINT leads_out;',
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

# Before 16, replication runs the functions of the tables' owners as a superuser.
my $major = sql('b', 'SHOW server_version_num');
sql('a', 'ALTER TABLE insta5.photos OWNER TO app');
if ($major < 160000)
{
	case_ok('owners', 'FAILED', 'app owns objects of the shard and is no superuser, but replication to PostgreSQL 15 would run', '--trust-owners');
	like((plan_of('--trust-owners' => undef))[1], qr/^ok +owners: trusted$/m, 'they can be trusted');
}
else
{
	like((plan_of())[1], qr/^ok +owners$/m, 'functions of owners run as those');
}
sql('a', 'ALTER TABLE insta5.photos OWNER TO CURRENT_USER');

# A move that was not finished, seen from either end.
my $row = q{INSERT INTO snowid.moves (shard, schema, role, step, details) VALUES (5, '%s', '%s', '%s', '{"move_id": "x", "name": "n", "reverse_name": "r"}')};
case_ok('earlier move', 'FAILED', 'one of shard 5 is complete, but not finished', 'snowid-move finish',
	do => [ [ 'a', sprintf $row, 'insta5', 'target', 'open' ], [ 'b', sprintf $row, 'insta5_moved', 'source', 'moved' ] ],
	undo => [ [ 'b', 'DELETE FROM snowid.moves' ] ], also_fails => 1);
case_ok('earlier move', 'FAILED', 'one of shard 5 is under way', 'snowid-move status',
	undo => [ [ 'a', 'DELETE FROM snowid.moves' ] ], also_fails => 1);

# What the target must have.
foreach my $object (
	[ 'type mood', "CREATE TYPE public.mood AS ENUM ('sad', 'ok')",
		'ALTER TABLE insta5.photos ADD c public.mood', 'DROP TYPE public.mood' ],
	[ 'function twice\(bigint\)', 'CREATE FUNCTION public.twice(bigint) RETURNS bigint IMMUTABLE LANGUAGE sql AS $$SELECT $1 * 2$$',
		'ALTER TABLE insta5.photos ADD c bigint CHECK (public.twice(c) > 5)', 'DROP FUNCTION public.twice(bigint)' ],
	[ 'collation german', q{CREATE COLLATION public.german (LOCALE = 'C')},
		'ALTER TABLE insta5.photos ADD c text COLLATE public.german', 'DROP COLLATION public.german' ],
	[ 'table users', undef, 'CREATE VIEW insta5.c AS SELECT count(*) FROM public.users', undef, 'DROP VIEW insta5.c' ],
	[ 'server elsewhere', 'CREATE FOREIGN DATA WRAPPER w; CREATE SERVER elsewhere FOREIGN DATA WRAPPER w',
		'CREATE FOREIGN TABLE insta5.far (id int) SERVER elsewhere', 'DROP FOREIGN DATA WRAPPER w CASCADE', 'DROP FOREIGN TABLE insta5.far' ],
	[ 'sequence counter', 'CREATE SEQUENCE public.counter',
		q{ALTER TABLE insta5.photos ADD c int DEFAULT nextval('public.counter')}, 'DROP SEQUENCE public.counter' ])
{
	my ($name, $create, $use, $drop, $unuse) = @$object;
	my $drop_use = $unuse // 'ALTER TABLE insta5.photos DROP c';

	sql('a', $create) if $create;
	sql('a', $use);
	my $describes = $name =~ s/^(\S+) (.*)/$1 (public.)?$2/r;
	case_ok('objects of other schemas', 'FAILED', "$describes is missing on the target; .* needs it", 'Create it there');
	case_ok('foreign tables', 'warning', 'insta5.far: its rows stay on server "elsewhere"', 'User mappings', also_fails => 1)
	  if $name eq 'server elsewhere';
	sql('b', $create // 'CREATE TABLE public.users (id bigint)');
	like((plan_of())[1], qr/^ok +objects of other schemas$/m, "... $name is found there");
	sql('b', $drop // 'DROP TABLE public.users');
	sql('a', $drop_use);
	sql('a', $drop) if $drop;
}
foreach my $use (
	[ 'owns', 'ALTER TABLE insta5.photos OWNER TO visitor', 'ALTER TABLE insta5.photos OWNER TO CURRENT_USER' ],
	[ 'is granted', 'GRANT SELECT ON insta5.photos TO visitor', 'REVOKE ALL ON insta5.photos FROM visitor' ],
	[ 'is granted a column', 'GRANT SELECT (id) ON insta5.photos TO visitor', 'REVOKE ALL ON insta5.photos FROM visitor' ],
	[ 'is granted the schema', 'GRANT USAGE ON SCHEMA insta5 TO visitor', 'REVOKE ALL ON SCHEMA insta5 FROM visitor' ],
	[ 'is granted later tables', 'ALTER DEFAULT PRIVILEGES IN SCHEMA insta5 GRANT SELECT ON TABLES TO visitor',
		'ALTER DEFAULT PRIVILEGES IN SCHEMA insta5 REVOKE SELECT ON TABLES FROM visitor' ],
	[ 'is in a policy', 'CREATE POLICY p ON insta5.photos TO visitor USING (true)', 'DROP POLICY p ON insta5.photos' ])
{
	my ($name, $do, $undo) = @$use;

	case_ok('roles on the target', 'FAILED', 'role "visitor" does not exist there', 'CREATE ROLE visitor;',
		do => [ [ 'a', "CREATE ROLE visitor; $do" ] ],
		undo => [ [ 'a', "$undo; DROP OWNED BY visitor; DROP ROLE visitor" ] ]);
}
SKIP:
{
	skip 'no extension citext here', 8
	  if sql('a', q{SELECT count(*) FROM pg_available_extensions WHERE name = 'citext'}) eq '0';

	case_ok('extensions on the target', 'FAILED', 'extension "citext" is missing', 'CREATE EXTENSION citext;',
		do => [ [ 'a', 'CREATE EXTENSION citext; CREATE TABLE insta5.names (name public.citext PRIMARY KEY)' ] ]);
	case_ok('extensions on the target', 'warning', 'extension "citext" is version 0.1', 'ALTER EXTENSION citext UPDATE;',
		do => [ [ 'b', q{CREATE EXTENSION citext; UPDATE pg_extension SET extversion = '0.1' WHERE extname = 'citext'} ] ],
		undo => [ [ 'a', 'DROP TABLE insta5.names; DROP EXTENSION citext' ], [ 'b', 'DROP EXTENSION citext' ] ]);
	case_ok('extensions on the target', 'FAILED', 'extension "unaccent" is missing', 'CREATE EXTENSION unaccent;',
		do => [ [ 'a', q{
CREATE EXTENSION unaccent;
CREATE TEXT SEARCH CONFIGURATION insta5.plain (COPY = simple);
ALTER TEXT SEARCH CONFIGURATION insta5.plain ALTER MAPPING FOR word WITH public.unaccent, simple} ] ],
		undo => [ [ 'a', 'DROP TEXT SEARCH CONFIGURATION insta5.plain; DROP EXTENSION unaccent' ] ]);
	case_ok('extensions within the shard', 'FAILED', 'extension "citext" is in schema "insta5"', 'ALTER EXTENSION citext SET SCHEMA',
		do => [ [ 'a', 'CREATE EXTENSION citext SCHEMA insta5' ] ],
		undo => [ [ 'a', 'DROP EXTENSION citext' ] ]);
}
case_ok('extensions within the shard', 'FAILED', 'table insta5.photos belongs to extension "plpgsql"',
	'ALTER EXTENSION plpgsql DROP TABLE insta5.photos;',
	do => [ [ 'a', 'ALTER EXTENSION plpgsql ADD TABLE insta5.photos' ] ],
	undo => [ [ 'a', 'ALTER EXTENSION plpgsql DROP TABLE insta5.photos' ] ]);
my $place = PostgreSQL::Test::Utils::tempdir();
sql('a', "CREATE TABLESPACE fast LOCATION '$place'");
case_ok('tablespaces on the target', 'FAILED', 'tablespace "fast" is missing', 'CREATE TABLESPACE fast LOCATION',
	do => [ [ 'a', 'CREATE TABLE insta5.hot (id int PRIMARY KEY) TABLESPACE fast' ] ],
	undo => [ [ 'a', 'DROP TABLE insta5.hot' ], [ 'a', 'DROP TABLESPACE fast' ] ]);
case_ok('event triggers on the target', 'warning', '"audit" fires', 'ALTER EVENT TRIGGER audit DISABLE;',
	do => [ [ 'b', 'CREATE FUNCTION audit() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN END$$;
		CREATE EVENT TRIGGER audit ON ddl_command_end EXECUTE FUNCTION audit()' ] ],
	undo => [ [ 'b', 'DROP EVENT TRIGGER audit; DROP FUNCTION audit()' ] ]);

# The extension, the shard, its number and its schema.
case_ok('extension snowid', 'FAILED', "it is not in the target's database", 'CREATE EXTENSION snowid;',
	options => [ '--to' => $node{b}->connstr('template1') ]);
case_ok('extension snowid', 'FAILED', 'version 1.0 on the source and 0.9 on the target', 'ALTER EXTENSION snowid UPDATE;',
	do => [ [ 'b', q{UPDATE pg_extension SET extversion = '0.9' WHERE extname = 'snowid'} ] ],
	undo => [ [ 'b', q{UPDATE pg_extension SET extversion = '1.0' WHERE extname = 'snowid'} ] ]);
(undef, undef, $stderr) = plan_of('--shard' => 77);
like($stderr, qr/shard 77 does not exist on the source/, 'a shard that is not there');
case_ok('shard on the source', 'FAILED', 'sequence "id_seq" of schema "insta5" does not exist', 'snowid.shards',
	do => [ [ 'a', 'ALTER SEQUENCE insta5.id_seq RENAME TO other_seq' ] ],
	undo => [ [ 'a', 'ALTER SEQUENCE insta5.other_seq RENAME TO id_seq' ] ]);
case_ok('number on the target', 'FAILED', 'shard 5 there is schema "other"', 'Give one another number',
	do => [ [ 'b', q{INSERT INTO snowid.shard_registry VALUES (5, 'other')} ] ],
	undo => [ [ 'b', 'DELETE FROM snowid.shard_registry' ] ]);
case_ok('number on the target', 'FAILED', 'schema "insta5" there is shard 9', 'Rename',
	do => [ [ 'b', q{INSERT INTO snowid.shard_registry VALUES (9, 'insta5')} ] ],
	undo => [ [ 'b', 'DELETE FROM snowid.shard_registry' ] ]);
case_ok('number on the target', 'FAILED', 'shard 5 is there already', 'snowid.shards',
	do => [ [ 'b', 'SELECT snowid.create_shard(5)' ] ],
	undo => [ [ 'b', 'SELECT snowid.drop_shard(5)' ] ]);
sql('b', q{INSERT INTO snowid.shard_registry VALUES (5, 'insta5', 'id_seq', NULL, 'host=a')});
like((plan_of())[1], qr/^ok +number on the target$/m, 'a number that is known to live elsewhere will do');
sql('b', 'DELETE FROM snowid.shard_registry');
case_ok('schema on the target', 'FAILED', 'schema "insta5" is there already$', 'ALTER SCHEMA insta5 RENAME TO insta5_old;',
	do => [ [ 'b', 'CREATE SCHEMA insta5' ] ],
	undo => [ [ 'b', 'DROP SCHEMA insta5' ] ]);
case_ok('schema on the target', 'FAILED', 'with foreign tables', 'DROP SCHEMA insta5 CASCADE;',
	do => [ [ 'b', 'CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w;
		CREATE SCHEMA insta5; CREATE FOREIGN TABLE insta5.photos (id bigint) SERVER s' ] ],
	undo => [ [ 'b', 'DROP SCHEMA insta5 CASCADE; DROP FOREIGN DATA WRAPPER w CASCADE' ] ]);
case_ok('leftovers on the source', 'FAILED', 'publication "snowid_move_5_x"', 'DROP PUBLICATION snowid_move_5_x;',
	do => [ [ 'a', 'CREATE PUBLICATION snowid_move_5_x' ] ],
	undo => [ [ 'a', 'DROP PUBLICATION snowid_move_5_x' ] ]);
case_ok('leftovers on the source', 'FAILED', 'replication slot "snowid_move_5_x"', 'pg_drop_replication_slot',
	do => [ [ 'a', q{SELECT pg_create_logical_replication_slot('snowid_move_5_x', 'pgoutput')} ] ],
	undo => [ [ 'a', q{SELECT pg_drop_replication_slot('snowid_move_5_x')} ] ]);
case_ok('leftovers on the source', 'warning', 'schema "insta5_moved"', 'DROP SCHEMA insta5_moved CASCADE;',
	do => [ [ 'a', 'CREATE SCHEMA insta5_moved' ] ],
	undo => [ [ 'a', 'DROP SCHEMA insta5_moved' ] ]);

case_ok('leftovers on the target', 'FAILED', 'subscription "snowid_move_5_x"', 'DROP SUBSCRIPTION snowid_move_5_x;',
	do => [ [ 'b', q{CREATE SUBSCRIPTION snowid_move_5_x CONNECTION '' PUBLICATION p WITH (connect = false, slot_name = NONE)} ] ],
	undo => [ [ 'b', 'DROP SUBSCRIPTION snowid_move_5_x' ] ]);
case_ok('two databases', 'FAILED', 'source and target are the same', '--to',
	options => [ '--to' => $node{a}->connstr('postgres') ]);

# Rights, and the ways between the servers.
sql($_, 'GRANT SELECT ON snowid.moves TO app') foreach 'a', 'b';
my $as_app = $node{b}->connstr('postgres') . ' user=app';
case_ok('rights on the target', 'FAILED', 'role app is no superuser, and may not make subscriptions', 'superuser',
	options => [ '--to' => $as_app ]);
my $from_app = $node{a}->connstr('postgres') . ' user=app';
case_ok('rights on the source', 'FAILED', 'role app may not create replication slots', 'ALTER ROLE app REPLICATION;',
	options => [ '--from' => $from_app ]);
case_ok('rights on the source', 'FAILED', 'role app may not create publications', 'GRANT CREATE ON DATABASE postgres TO app;',
	options => [ '--from' => $from_app ]);
case_ok('rights on the source', 'FAILED', 'role app does not own what', 'GRANT .* TO app;',
	options => [ '--from' => $from_app ]);
case_ok('rights on the source', 'FAILED', 'role app may not see what other sessions do', 'GRANT pg_read_all_stats TO app;',
	options => [ '--from' => $from_app ]);
case_ok('rights on the source', 'FAILED', 'role app may not write snowid.moves',
	'GRANT SELECT, INSERT, UPDATE, DELETE ON snowid.moves TO app;', options => [ '--from' => $from_app ]);
case_ok('rights on the source', 'warning', 'role app may not set deadlock_timeout',
	'GRANT SET ON PARAMETER deadlock_timeout TO app;', options => [ '--from' => $from_app ], also_fails => 1);
case_ok('rights on the source', 'FAILED', 'role app is no superuser, and may not make subscriptions', 'superuser',
	options => [ '--from' => $from_app, '--reverse' => undef ]);
case_ok('row security', 'FAILED', 'insta5.photos', 'NO FORCE ROW LEVEL SECURITY',
	do => [ [ 'a', 'ALTER TABLE insta5.photos ENABLE ROW LEVEL SECURITY; ALTER TABLE insta5.photos FORCE ROW LEVEL SECURITY;
		ALTER TABLE insta5.photos OWNER TO app' ] ],
	undo => [ [ 'a', 'ALTER TABLE insta5.photos DISABLE ROW LEVEL SECURITY; ALTER TABLE insta5.photos NO FORCE ROW LEVEL SECURITY;
		ALTER TABLE insta5.photos OWNER TO CURRENT_USER' ] ],
	options => [ '--to' => $as_app ]);
case_ok('connection from the target to the source', 'FAILED', 'could not connect', '--source-for-target',
	options => [ '--source-for-target' => "host=/nonexistent dbname=postgres" ]);
case_ok('connection from the source to the target', 'FAILED', 'could not connect', '--target-for-source',
	options => [ '--target-for-source' => "host=/nonexistent dbname=postgres", '--reverse' => undef ]);
sql('a', q{CREATE ROLE reader LOGIN REPLICATION;
ALTER TABLE insta5.photos ENABLE ROW LEVEL SECURITY});
my $as_reader = $node{a}->connstr('postgres') . ' user=reader';
case_ok('rights of that connection', 'FAILED', 'role reader may not read insta5.photos', 'GRANT SELECT ON ALL TABLES IN SCHEMA insta5 TO reader;',
	options => [ '--source-for-target' => $as_reader ]);
case_ok('rights of that connection', 'FAILED', 'row security hides rows of insta5.photos from role reader', 'ALTER ROLE reader BYPASSRLS;',
	options => [ '--source-for-target' => $as_reader ]);
sql('a', 'ALTER TABLE insta5.photos DISABLE ROW LEVEL SECURITY; DROP ROLE reader');
case_ok('pg_dump', 'FAILED', 'cannot run "/nonexistent/pg_dump"', '--bindir',
	options => [ '--bindir' => '/nonexistent' ]);
my $old = PostgreSQL::Test::Utils::tempdir();
append_to_file("$old/pg_dump", "#!/bin/sh\necho 'pg_dump (PostgreSQL) 12.22'\n");
chmod 0755, "$old/pg_dump";
case_ok('pg_dump', 'FAILED', 'is of PostgreSQL 12, older than the source', '--bindir',
	options => [ '--bindir' => $old ]);

my $registry = $node{b}->connstr('postgres');
case_ok('registry', 'warning', 'it does not have shard 5', 'before it moves',
	options => [ '--registry' => $registry ]);
case_ok('registry', 'FAILED', 'role app may not change it', 'GRANT SELECT, UPDATE ON snowid.shard_registry TO app;',
	options => [ '--registry' => "$registry user=app" ]);
case_ok('registry', 'FAILED', 'cannot be checked: .*No such file', '--registry',
	options => [ '--registry' => 'host=/nonexistent' ]);

# Other replication of the same tables.
case_ok('other publications', 'warning', 'subscribers of "cdc"', 'subscribe to the target',
	do => [ [ 'a', 'CREATE PUBLICATION cdc FOR ALL TABLES' ] ],
	undo => [ [ 'a', 'DROP PUBLICATION cdc' ] ]);
my $from_b = $node{b}->connstr('postgres');
$from_b =~ s/'/''/g;
case_ok('other subscriptions', 'FAILED', 'insta5.photos is filled by replication', 'End that subscription',
	do => [ [ 'b', 'CREATE SCHEMA insta5 CREATE TABLE photos (id bigint PRIMARY KEY, user_id bigint);
			CREATE PUBLICATION feed FOR TABLE insta5.photos' ],
		[ 'a', "CREATE SUBSCRIPTION feed CONNECTION '$from_b' PUBLICATION feed
			WITH (create_slot = false, slot_name = NONE, enabled = false, copy_data = false)" ] ],
	undo => [ [ 'a', 'DROP SUBSCRIPTION feed' ], [ 'b', 'DROP SCHEMA insta5 CASCADE; DROP PUBLICATION feed' ] ]);

# The databases' encodings and collations.
sql('b', q{CREATE DATABASE narrow ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0});
sql('b', 'CREATE EXTENSION snowid', 'narrow');
case_ok('encoding', 'FAILED', 'UTF8 on the source, LATIN1 on the target', 'the same encoding',
	options => [ '--to' => $node{b}->connstr('narrow') ]);
sql('b', 'SELECT snowid.create_shard(5)', 'narrow');
case_ok('encoding', 'warning', 'LATIN1 on the source, UTF8 on the target', 'converted',
	options => [ '--from' => $node{b}->connstr('narrow') ]);
my $other_locale = sql('b', q{SELECT CASE datcollate WHEN 'C' THEN 'POSIX' ELSE 'C' END FROM pg_database WHERE datname = 'postgres'});
sql('b', qq{CREATE DATABASE sorted ENCODING 'UTF8' LOCALE '$other_locale' TEMPLATE template0});
sql('b', 'CREATE EXTENSION snowid', 'sorted');
case_ok('collation', 'warning', "on the source; LC_COLLATE $other_locale", 'sort differently',
	options => [ '--to' => $node{b}->connstr('sorted') ]);

# Clocks.
set_clock($node{b}, '-60');
case_ok('clocks', 'warning', q{the target's is (59|60)\.\d+ s behind}, '1024 a millisecond');
set_clock($node{b}, '+60');
case_ok('clocks', 'warning', q{the target's is (59|60)\.\d+ s ahead}, 'move back');
set_clock($node{b}, '-90000');
case_ok('clocks', 'FAILED', q{the target's is \d+\.\d+ s behind}, 'Set its clock right');
set_clock($node{b}, '+0');

# Disk room: a table of a petabyte, as far as its file's size goes.
my $file = $node{a}->data_dir . '/' . sql('a', q{
CREATE TABLE insta5.huge (id int PRIMARY KEY);
SELECT pg_relation_filepath('insta5.huge')});
my ($free) = $plan =~ /the target has ([\d.]+) GB free/;
my $segments = int(1.5 * $free) + 2;		# others may make room meanwhile
foreach my $n (0 .. $segments)
{
	my $name = $n ? "$file.$n" : $file;
	open my $fh, '>>', $name or die "cannot write $name: $!";
	truncate $fh, 1 << 30;
	close $fh;
}
case_ok('disk room on the target', 'FAILED', 'GB with indexes; the target has [\d.]+ GB free', 'Make room');
case_ok('disk room on the target', 'warning', 'SQL does not tell', 'df',
	options => [ '--to' => $as_app ], also_fails => 1);
sql('a', 'DROP TABLE insta5.huge');

# Transactions that will not end by themselves: one that has written, one that
# may write in the shard, and a prepared one.
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
$_->quit foreach $writer, $locker;

# Settings, which need a restart.
sub with_settings
{
	my ($name, $settings, @cases) = @_;

	my $file = $node{$name}->data_dir . '/postgresql.conf';
	my $before = slurp_file($file);
	$node{$name}->append_conf('postgresql.conf', $settings);
	$node{$name}->restart;
	case_ok(@$_, also_fails => 1) foreach @cases;
	truncate $file, length $before;
	$node{$name}->restart;
	return;
}

with_settings('a', q{
max_slot_wal_keep_size = -1
wal_sender_timeout = 0
logical_decoding_work_mem = '1MB'
max_replication_slots = 1
max_wal_senders = 1
},
	[ 'WAL kept by slots on the source', 'warning', 'max_slot_wal_keep_size is -1', 'max_slot_wal_keep_size' ],
	[ 'replication settings', 'warning', 'wal_sender_timeout is 0', 'RESET wal_sender_timeout' ],
	[ 'replication settings', 'warning', 'logical_decoding_work_mem is 1MB', 'RESET logical_decoding_work_mem' ],
	[ 'replication slots on the source', 'FAILED', '1 of max_replication_slots = 1 are free', 'The move needs 3. .* max_replication_slots = 3;' ],
	[ 'walsenders on the source', 'FAILED', '1 of max_wal_senders = 1 are free', 'The move needs 3. .* max_wal_senders = 3;' ]);
with_settings('a', q{
max_replication_slots = 2
max_wal_senders = 2
},
	[ 'replication slots on the source', 'warning', '2 of max_replication_slots = 2 are free', 'The move needs 3' ],
	[ 'walsenders on the source', 'warning', '2 of max_wal_senders = 2 are free', 'The move needs 3' ]);
my $version = sql('b', 'SHOW server_version_num');
my $too_low = $version >= 190000 ? 'minimal' : 'replica';
with_settings('a', "wal_level = $too_low\nmax_wal_senders = 0",
	[ 'wal_level on the source', 'FAILED', "it is $too_low", 'ALTER SYSTEM SET wal_level = logical;' ]);
my $origins = $version >= 180000 ? 'max_active_replication_origins' : 'max_replication_slots';
with_settings('b', qq{
$origins = 1
max_logical_replication_workers = 1
max_worker_processes = 2
},
	[ 'replication origins on the target', 'FAILED', "1 of $origins = 1 are free", "The move needs 3. .* $origins = 3;" ],
	[ 'replication workers on the target', 'FAILED', '1 of max_logical_replication_workers = 1 are free', 'The move needs 3. .* max_logical_replication_workers = 3;' ],
	[ 'background workers on the target', 'FAILED', '1 of max_worker_processes = 2 are free', 'The move needs 3. .* max_worker_processes = 4;' ]);
with_settings('a', q{
max_logical_replication_workers = 0
max_worker_processes = 0
},
	[ 'replication workers on the source', 'FAILED', '0 of max_logical_replication_workers = 0 are free', 'The move needs 1. .* max_logical_replication_workers = 1;', options => [ '--reverse' => undef ] ],
	[ 'background workers on the source', 'FAILED', '0 of max_worker_processes = 0 are free', 'The move needs 1. ', options => [ '--reverse' => undef ] ]);
with_settings('a', "$origins = 1",
	[ 'replication origins on the source', 'FAILED', "0 of $origins = 1 are free", "The move needs 1. .* $origins = 2;",
		do => [ [ 'a', q{SELECT pg_replication_origin_create('other')} ] ],
		undo => [ [ 'a', q{SELECT pg_replication_origin_drop('other')} ] ],
		options => [ '--reverse' => undef ] ]);
# Before 16, each table that has been copied keeps an origin for a while.
with_settings('b', "$origins = 3",
	[ 'replication origins on the target', 'warning', "3 of $origins = 3 are free", 'The move needs 7, since each table',
		do => [ [ 'a', 'CREATE TABLE insta5.t1 (id int PRIMARY KEY); CREATE TABLE insta5.t2 (id int PRIMARY KEY);
			CREATE TABLE insta5.t3 (id int PRIMARY KEY); CREATE TABLE insta5.t4 (id int PRIMARY KEY)' ] ],
		undo => [ [ 'a', 'DROP TABLE insta5.t1, insta5.t2, insta5.t3, insta5.t4' ] ] ])
  if $version < 160000;
with_settings('b', qq{
wal_level = $too_low
max_wal_senders = 0
max_replication_slots = 0
max_sync_workers_per_subscription = 0
},
	[ 'wal_level on the target', 'FAILED', "it is $too_low", 'ALTER SYSTEM SET wal_level = logical;', options => [ '--reverse' => undef ] ],
	[ 'walsenders on the target', 'FAILED', '0 of max_wal_senders = 0 are free', 'max_wal_senders = 1;', options => [ '--reverse' => undef ] ],
	[ 'replication slots on the target', 'FAILED', '0 of max_replication_slots = 0 are free', 'max_replication_slots = 1;', options => [ '--reverse' => undef ] ],
	[ 'copying workers on the target', 'FAILED', 'max_sync_workers_per_subscription is 0', 'max_sync_workers_per_subscription = 2;' ]);

# Standbys: as a target, and one that is behind.
$node{b}->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node{b}, 'base', has_streaming => 1);
$standby->start;
case_ok('target is a primary', 'FAILED', 'it is a standby', 'connection of its primary',
	options => [ '--to' => $standby->connstr('postgres') ]);
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
$standby->poll_query_until('postgres', q{SELECT pg_get_wal_replay_pause_state() = 'paused'})
  if $version >= 140000;
case_ok('standbys of the target', 'warning', '"standby" is \d+ .*B behind', '--max-lag',
	do => [ [ 'b', q{CREATE TABLE wal AS SELECT repeat(md5(i::text), 10) FROM generate_series(1, 100000) AS i} ] ],
	undo => [ [ 'b', 'DROP TABLE wal' ] ]);
$standby->stop('immediate');

# All has been put right again.
($passed, $plan, $stderr) = plan_of();
is(tidy($plan), $clean, 'at the end, all is as at the beginning') or diag($stderr);

# What a plan leaves behind: nothing.
is(sql('a', 'SELECT (SELECT count(*) FROM pg_publication) + (SELECT count(*) FROM pg_replication_slots)'),
	0, 'no plan has left a publication or a slot');
is(sql('b', q{SELECT (SELECT count(*) FROM pg_subscription) + (SELECT count(*) FROM pg_namespace WHERE nspname = 'insta5')}),
	0, '... or a subscription or a schema');

$node{$_}->stop foreach sort keys %node;
done_testing();

# A plan, but for what differs from one to the next.
sub tidy
{
	my ($text) = @_;

	$text =~ s/behind|ahead/off/g;
	$text =~ s/\d+/0/g;
	return $text;
}
