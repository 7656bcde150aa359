# What a plan of snowid-move finds about rights on both servers, and about the
# ways from the program to the servers, and between them.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PlanTest;
use PostgreSQL::Test::Utils;
use Test::More;

start_nodes();
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
	sql('a', q{CREATE ROLE reader LOGIN REPLICATION;
	ALTER TABLE insta5.photos ENABLE ROW LEVEL SECURITY});
	my $as_reader = $node{a}->connstr('postgres') . ' user=reader';
	case_ok('rights of that connection', 'FAILED', 'role reader may not read insta5.photos', 'GRANT SELECT ON ALL TABLES IN SCHEMA insta5 TO reader;',
		options => [ '--source-for-target' => $as_reader ]);
	case_ok('rights of that connection', 'FAILED', 'row security hides rows of insta5.photos from role reader', 'ALTER ROLE reader BYPASSRLS;',
		options => [ '--source-for-target' => $as_reader ]);
	sql('a', 'ALTER TABLE insta5.photos DISABLE ROW LEVEL SECURITY; DROP ROLE reader');
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

$node{$_}->stop foreach sort keys %node;
done_testing();
