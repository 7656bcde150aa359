# A role that is no superuser may split shards off, once that has been typed which
# plan says.  Its server sorts by ICU, and has room for few locks.
use strict;
use warnings;

use FindBin;
use IPC::Run;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use SplitTest;
use Test::More;

my $all = '1-2';
my ($a, $b) = split_pair('role', [ '--locale-provider=icu', '--icu-locale=en' ], "max_connections = 20\nmax_locks_per_transaction = 10");
$a->safe_psql('postgres', q{UPDATE pg_database SET datcollversion = '0' WHERE datname = 'postgres'});
my $said = '';
for (1 .. 100)
{
	$said = (snowid_move($a, $b, $all, 'plan'))[1];
	last if $said =~ /collation: version/;
}
like($said, qr/warning +collation: version 0 made the indexes, \S+ is there/, 'check: collation');
$a->safe_psql('postgres', 'ALTER DATABASE postgres REFRESH COLLATION VERSION');
check_ok($a, $b, 'locks', qr/FAILED +locks: closing the set takes 3\d\d locks in one transaction, and there is room for 250\n.*max_locks_per_transaction = 1\d;/,
	[ join '', map { "CREATE TABLE insta1.t$_ ();" } 1 .. 300 ], [ join '', map { "DROP TABLE insta1.t$_;" } 1 .. 300 ]);
$a->safe_psql('postgres', q{
CREATE ROLE owner;
CREATE ROLE splitter LOGIN;
DO $$
DECLARE what text;
BEGIN
	FOR what IN
		SELECT format('ALTER SCHEMA %s OWNER TO owner', oid::regnamespace) FROM pg_namespace WHERE nspname ~ '^insta'
		UNION ALL SELECT format('ALTER %s %s OWNER TO owner', CASE relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, oid::regclass)
		FROM pg_class c WHERE relnamespace::regnamespace::text ~ '^insta' AND relkind IN ('r', 'p', 'S') AND NOT EXISTS (
			SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = c.oid AND deptype IN ('a', 'i') AND relkind = 'S')
		UNION ALL SELECT format('ALTER ROUTINE %s OWNER TO owner', oid::regprocedure) FROM pg_proc
		WHERE pronamespace::regnamespace::text ~ '^insta'
	LOOP
		EXECUTE what;
	END LOOP;
END $$});
my @as = ('snowid-move', '--shard', $all, map { ($_->[0], $_->[1]->connstr('postgres') . ' user=splitter') } [ '--from', $a ], [ '--to', $b ]);
my $code;
for (1 .. 10)
{
	$a->wait_for_catchup($b);
	IPC::Run::run([ @as, 'plan' ], '>&', \$said);
	$code = $? >> 8;
	my @wanted = $said =~ /(?:[Tt]ype(?: on the source)?: )((?:GRANT|ALTER ROLE) .*;)$/mg;
	last if !@wanted;
	$a->safe_psql('postgres', $_) for @wanted;
}
is($code, 0, 'a plan passes once that has been typed which it says') or diag $said;
for my $command ([ 'split', @limits ], ['finish'])
{
	IPC::Run::run([ @as, @$command ], '>&', \$said);
	is($? >> 8, 0, "$command->[0] by a role that is no superuser") or diag $said;
}
is($a->safe_psql('postgres', q{SELECT rolsuper FROM pg_roles WHERE rolname = 'splitter'}), 'f', 'it is none');
is(living($a) . ' ' . living($b), '3,4 1,2', 'each server has its own');
$_->stop for $a, $b;

# The owner may be the one that stands for the database's, who is a lesser role.
($a, $b) = split_pair('database_owner');
$a->safe_psql('postgres', q{
CREATE ROLE app;
ALTER SCHEMA insta1 OWNER TO pg_database_owner;
ALTER TABLE insta1.users OWNER TO pg_database_owner;
ALTER SEQUENCE insta1.id_seq OWNER TO pg_database_owner;
ALTER FUNCTION insta1.next_id() OWNER TO pg_database_owner;
ALTER DATABASE postgres OWNER TO app});
$a->wait_for_catchup($b);
for my $command ([ 'split', @limits ], ['finish'])
{
	my ($exit, $out) = snowid_move($a, $b, $all, @$command);
	is($exit, 0, "$command->[0] of the database's owner's") or diag $out;
}
is(living($a) . ' ' . living($b), '3,4 1,2', 'each server has its own');
is($b->safe_psql('postgres', q{SELECT relowner::regrole FROM pg_class WHERE oid = 'insta1.users'::regclass}), 'pg_database_owner', 'and it is his');
$_->stop for $a, $b;

done_testing();
