# A shard with one of each kind of object that a schema can have arrives as it
# was, by pg_dump's word and with its casts; and whatever is changed after it
# was copied is noticed, whichever catalog it is in.
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

# What the program asks for the fingerprint is read from the log.
$a->append_conf('postgresql.conf', 'log_statement = all');
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid; CREATE ROLE lesser') for $a, $b;
$a->safe_psql('postgres', 'SELECT snowid.create_shard(5)');
$a->command_ok(
	[ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-v', 'schema=insta5', '-v', 'role=lesser',
		'-f', "$FindBin::RealBin/objects.sql", '-d', $a->connstr('postgres') ], 'a shard with everything');

my $before = definitions($a);
moves_ok($a, $b, 5, [ '--verify', 'checksums', '--trust-owners' ], 0, 'moved', qr/no difference/);
is($b->safe_psql('postgres', 'SELECT (7)::insta5.seven'), '7', 'its casts work');

# Until then, its tables keep the triggers that closed them while they were filled.
moves_ok($a, $b, 5, ['finish'], 0, 'finished');
is(definitions($b), $before, 'it arrives as it was');

# The catalogs that the fingerprint leaves out, since no schema owns their rows
# or they hold no definitions.
my $source = slurp_file("$FindBin::RealBin/../../bin/move/sql/queries.sql");
my @forgotten = grep { $source !~ /\b$_\b/ } split /\n/, $b->safe_psql('postgres', q{
SELECT relname FROM pg_class
WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind = 'r' AND NOT relisshared
AND relname NOT LIKE ALL (ARRAY['pg\_publication%', 'pg\_largeobject%', 'pg\_propgraph%', 'pg\_statistic', 'pg\_statistic\_ext\_data'])
AND relname NOT IN ('pg_am', 'pg_event_trigger', 'pg_extension', 'pg_foreign_data_wrapper', 'pg_foreign_server',
	'pg_init_privs', 'pg_language', 'pg_subscription_rel', 'pg_user_mapping')});
is("@forgotten", '', 'no catalog is forgotten');

# Each change by itself.
my $log = slurp_file($a->logfile);
my ($fingerprint) = $log =~ /statement: PREPARE snowid_fingerprints \(oid\[\]\) AS (WITH c AS MATERIALIZED .*?= namespace GROUP BY 1)$/ms or die 'no fingerprint is taken';
$fingerprint =~ s/\$1/ARRAY['insta5'::regnamespace::oid]/g;
$fingerprint =~ s/, pg_current_snapshot\(\)// or die 'it has no snapshot';
my $print = $b->safe_psql('postgres', $fingerprint);
is($b->safe_psql('postgres', 'ANALYZE; TRUNCATE insta5.notes; VACUUM FULL insta5.facts;'
			. "SELECT nextval('insta5.plain_seq') \\g /dev/null\nREFRESH MATERIALIZED VIEW insta5.moods;\n$fingerprint"),
	$print, 'what changes rows changes no definition');
for my $change (
	'ALTER DOMAIN email SET NOT NULL', q{ALTER DOMAIN email SET DEFAULT 'x@y'},
	'ALTER FUNCTION ignore() VOLATILE COST 3', 'ALTER FUNCTION doubled CALLED ON NULL INPUT',
	'ALTER DEFAULT PRIVILEGES IN SCHEMA insta5 GRANT INSERT ON TABLES TO lesser',
	'CREATE OPERATOR <= (LEFTARG = seven, RIGHTARG = seven, FUNCTION = seven_lt)',
	'CREATE COLLATION other FROM "C"', 'CREATE TEXT SEARCH CONFIGURATION other (COPY = search)',
	'ALTER TEXT SEARCH CONFIGURATION search DROP MAPPING FOR word',
	'CREATE STATISTICS other ON name, old FROM people', 'ALTER STATISTICS other SET STATISTICS 5',
	q{COMMENT ON COLUMN people.old IS 'old'}, 'COMMENT ON SCHEMA insta5 IS NULL',
	'ALTER TABLE people ALTER old SET STATISTICS 12', 'ALTER TABLE people ALTER words SET STORAGE EXTERNAL',
	'ALTER TABLE people SET WITHOUT CLUSTER', 'ALTER TABLE people CLUSTER ON people_pkey',
	'ALTER SEQUENCE plain_seq MAXVALUE 1000', 'ALTER SEQUENCE plain_seq NO CYCLE', 'ALTER SEQUENCE plain_seq OWNED BY people.old',
	'CREATE CAST (seven AS int) WITHOUT FUNCTION', 'DROP CAST (seven AS int)',
	'ALTER TABLE people DISABLE TRIGGER words', 'ALTER TABLE facts DISABLE RULE noted',
	'ALTER POLICY own ON facts USING (false)', q{ALTER TYPE mood ADD VALUE 'fine'},
	'ALTER TABLE people VALIDATE CONSTRAINT later', 'GRANT UPDATE ON typed TO lesser', 'GRANT SELECT (big) ON people TO lesser',
	'ALTER TABLE people SET (fillfactor = 70)', 'ALTER TABLE people SET (toast.autovacuum_enabled = off)', 'ALTER INDEX by_lower SET (fillfactor = 70)',
	'ALTER TABLE typed OWNER TO lesser', 'ALTER VIEW happy ALTER name DROP DEFAULT',
	'ALTER OPERATOR FAMILY sevens USING btree ADD OPERATOR 5 <= (seven, seven)',
	'ALTER TABLE letters DETACH PARTITION letters_rest', 'ALTER TABLE facts REPLICA IDENTITY FULL',
	'ALTER AGGREGATE product(numeric) RENAME TO multiplied', 'CREATE CONVERSION other FOR \'LATIN1\' TO \'UTF8\' FROM iso8859_1_to_utf8')
{
	my $after = $b->safe_psql('postgres', "SET search_path = insta5, public; $change; RESET search_path;\n$fingerprint");

	isnt($after, $print, "noticed: $change");
	$print = $after;
}

# And the program goes by it, back on the server where it began.  It names the object.
for my $change (
	[ q{COMMENT ON TABLE insta5.typed IS 'changed'}, 'table insta5.typed' ],
	[ 'GRANT TRUNCATE ON insta5.facts TO lesser', 'table insta5.facts' ],
	[ 'ALTER TABLE insta5.people ALTER old SET STATISTICS 13', 'table insta5.people' ],
	[ 'ALTER FUNCTION insta5.ignore() STABLE', 'function insta5.ignore\\(\\)' ],
	[ 'CREATE INDEX newer ON insta5.people (old)', 'index insta5.newer.*' ],
	[ 'DROP INDEX insta5.by_lower', 'index insta5.by_lower' ])
{
	moves_ok($b, $a, 5, [ '--stop-after', 'copied', '--trust-owners' ], 0, 'copied');
	$b->safe_psql('postgres', $change->[0]);
	moves_ok($b, $a, 5, [], 1, $change->[0], qr/definitions of shard 5 have changed since they were copied: $change->[1]\n/);
	is($b->safe_psql('postgres', q{INSERT INTO insta5.people (name) VALUES ('here') RETURNING name}), 'here', 'it is where it was, and written');
	moves_ok($b, $a, 5, ['abort'], 0, 'aborted');
}
done_testing();

# A shard's definitions as pg_dump has them, and its casts.
sub definitions
{
	my ($node) = @_;
	my ($script) = run_command([ 'pg_dump', '--schema-only', '--schema=insta5', '-d', $node->connstr('postgres') ]);

	$script =~ s/^\\(un)?restrict .*\n//mg;
	return $script . $node->safe_psql('postgres', q{
SELECT castsource::regtype, casttarget::regtype, castfunc::regprocedure, castcontext, castmethod, obj_description(oid, 'pg_cast')
FROM pg_cast WHERE oid >= 16384 ORDER BY 1, 2});
}
