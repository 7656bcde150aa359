# The portable edition is the extension in SQL: it has the same functions, and
# the same suites print the same, but for what portable/expected says.  A file
# there is what must differ, as lines of diff.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $top = "$FindBin::RealBin/../..";
my $scratch = PostgreSQL::Test::Utils::tempdir();
# The caller of this edition needs
# UPDATE: so GRANT USAGE is GRANT USAGE, UPDATE in them.
my @suites = qw(layout vectors next_id epochs set_to_id cache errors privileges planner
  shards shards_bulk shards_default shards_adopt shards_names
  shards_privileges shard_of safe_upper_id partitions newest_rows fence);

my $node = new_node('portable');
$node->append_conf('postgresql.conf', "max_prepared_transactions = 10\nwal_level = logical");
$node->start;
# The name is in some hints.
portable_database($node, 'contrib_regression');

# As pg_regress sets them.
$node->safe_psql('postgres', qq{
ALTER DATABASE contrib_regression SET $_;}) for "timezone = 'PST8PDT'", "datestyle = 'Postgres, MDY'",
  "intervalstyle = 'postgres_verbose'", "lc_messages = 'C'";

for my $suite (@suites)
{
	my $path = "$scratch/$suite";
	my $script = slurp_file("$top/sql/$suite.sql");
	my @expected = outcome("$top/expected/$suite.out");
	s/(GRANT|REVOKE) USAGE ON SEQUENCE/$1 USAGE, UPDATE ON SEQUENCE/ for @expected;
	$script =~ s/(GRANT|REVOKE) USAGE ON SEQUENCE/$1 USAGE, UPDATE ON SEQUENCE/g;
	write_lines("$path.sql", $script);
	write_lines("$path.expected", @expected);
	system("psql -X -a -q -d '" . $node->connstr('contrib_regression')
		  . "' <'$path.sql' >'$path.out' 2>&1");
	write_lines("$path.seen", outcome("$path.out"));
	my @diff = grep { !/^(---|\+\+\+|@@)/ } `diff -U0 '$path.expected' '$path.seen'`;
	my $may = "$top/portable/expected/$suite.diff";
	my $expected = -e $may ? slurp_file($may) : '';

	# Before 17, a parallel worker has no subtransactions.
	$expected = '' if $suite eq 'planner' && $node->pg_version >= 17;
	is(join('', @diff), $expected, "suite $suite prints the same"
		  . ($expected ne '' ? ', but for what must differ' : ''));
	write_lines("$ENV{SNOWID_KEEP}/$suite.diff", @diff) if $ENV{SNOWID_KEEP} && @diff;
}

# What C raises has no context of PL/pgSQL.
sub outcome
{
	my ($file) = @_;
	my ($in_context, $count_in, @lines) = (0, 0);

	for (split /^/, slurp_file($file))
	{
		$in_context = $in_context ? !/^(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|BEGIN|COMMIT|ROLLBACK|SET|RESET|CALL|TRUNCATE|\\|--|$)/ : /^CONTEXT: /;
		s/^( 49999 \| t .*\|) +\d+ \| t$/$1 <as many in a ms as the machine makes> | t/;
		# What nextval() has logged ahead depends on the time.
		$count_in = /^ log_cnt/ ? 3 : $count_in - 1;
		s/^ +\d+/ <logged ahead>/ if $count_in == 1;
		push @lines, $_ unless $in_context;
	}
	return @lines;
}

sub write_lines
{
	my ($file, @lines) = @_;
	open my $fh, '>', $file or die "$file: $!";
	print $fh @lines;
	close $fh;
	return;
}

# ---------------------------------------------------------------- the pure functions

# Both in one database, the portable edition under another name; called with the
# same arguments, of which many are out of range, they give the same or fail with
# the same SQLSTATE and message.
$node->safe_psql('postgres', 'CREATE DATABASE in_c');
$node->safe_psql('in_c', 'CREATE EXTENSION snowid');
my $renamed = slurp_file(portable_file('sql')) =~ s/\bsnowid(?=_internal\b|\b)/portable/gr;
$node->safe_psql('in_c', $renamed);
$node->safe_psql('in_c', q{
CREATE FUNCTION answer(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answer text;
	message text;
	detail text;
BEGIN
	EXECUTE 'SELECT ' || call INTO answer;
	RETURN coalesce(answer, 'NULL');
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
	RETURN format('%s: %s (%s)', SQLSTATE, message, detail);
END $$;
CREATE FUNCTION any_of(VARIADIC choices text[]) RETURNS text LANGUAGE sql VOLATILE
AS $$ SELECT $1[1 + floor(random() * cardinality($1))::int] $$;
CREATE FUNCTION any_bigint() RETURNS text LANGUAGE sql VOLATILE AS $$
SELECT quote_literal(any_of((('x' || md5(random()::text))::bit(64)::bigint >> (random() * 63)::int)::text,
	'0', '-1', '9223372036854775807', '-9223372036854775808')) || '::bigint' $$;
CREATE FUNCTION any_int() RETURNS text LANGUAGE sql VOLATILE AS $$
SELECT any_of((random() * 9000)::int::text, (random() * 1100)::int::text, '-1', '0', '1', '1023', '1024', '8191', '8192',
	'2147483647', '(-2147483648)') $$;
CREATE FUNCTION any_time() RETURNS text LANGUAGE sql VOLATILE AS $$
SELECT quote_literal(any_of(('2011-08-24 21:07:01.721+00'::timestamptz + random() * 2.3e9 * interval '1 s')::text,
	('2046-06-27 17:00:49.497+00'::timestamptz + (random() * 4000 - 2000) * interval '1 us')::text,
	('2011-08-24 21:07:01.721+00'::timestamptz + (random() * 4000 - 2000) * interval '1 us')::text,
	'infinity', '-infinity', '4713-01-01 BC', '294276-12-31 23:59:59.999999+00', '2000-01-01+00')) || '::timestamptz' $$;
CREATE FUNCTION any_text() RETURNS text LANGUAGE sql VOLATILE AS $$
SELECT quote_literal(any_of(snowid.id_to_base62(('x' || md5(random()::text))::bit(64)::bigint), md5(random()::text), 'LygHa16AHYF',
	'LygHa16AHYG', 'zzzzzzzzzzz', '', 'Küche', '数据', '0000000000 ', '00000000000')) $$;
});
no warnings 'qw';	# commas
my @calls = qw(id_timestamp(b) id_timestamp(b,t) id_shard(b) id_seq(b) id_parts(b) id_parts(b,t) make_id(t,i,i)
  make_id(t,i,i,t) min_id(t) min_id(t,t) max_id(t) max_id(t,t) id_between(b,t,t) id_between(b,t,t,t)
  id_to_base62(b) base62_to_id(x) shard_of(b,i) shard_of(x,i));
my $made = join ' UNION ALL ', map {
	my ($name, $arguments) = /(\w+)\((.*)\)/;
	my %any = (b => 'any_bigint()', t => 'any_time()', i => 'any_int()', x => 'any_text()');
	my $list = join " || ', ' || ", map { $any{$_} } split /,/, $arguments;
	"SELECT '$name(' || $list || ')' AS call FROM generate_series(1, 400)"
} @calls;
is($node->safe_psql('in_c', qq{
SELECT call, answer('snowid.' || call), answer('portable.' || call)
FROM ($made OFFSET 0) AS made
WHERE answer('snowid.' || call) <> answer('portable.' || call) LIMIT 20}), '',
	'the pure functions give the same, and refuse the same');
is($node->safe_psql('in_c', qq{
SELECT count(DISTINCT left(answer('portable.' || call), 5)) > 100, count(*) FROM ($made OFFSET 0) AS made}),
	't|7200', 'of all kinds');
$node->safe_psql('in_c', 'DROP SCHEMA portable, portable_internal CASCADE');

# ---------------------------------------------------------------- rules of its own

# The first call asks nextval(), which makes as many values as CACHE says, and
# can't be cancelled meanwhile.
my $take = "SELECT snowid.next_id(5, 'taken') > snowid.min_id(now() - interval '1 s')";
is(sqlstate($node, "CREATE SEQUENCE taken CACHE 1025; $take", dbname => 'contrib_regression'),
	'22023', 'the first call of a sequence refuses a large CACHE');
is($node->safe_psql('contrib_regression', "ALTER SEQUENCE taken CACHE 1024; $take;
ALTER SEQUENCE taken CACHE 9223372036854775807; $take"), "t\nt", 'later calls ignore it');
$node->safe_psql('contrib_regression', 'DROP SEQUENCE taken');

is(sqlstate($node, "CREATE SEQUENCE large CACHE 1025; SELECT snowid.advance('large', 1)", dbname => 'contrib_regression'),
	'22023', 'so does advance()');
$node->safe_psql('contrib_regression', 'DROP SEQUENCE large');

# What a session has seen of a sequence's definition and of the restored clock
# holds for that sequence, until it is altered.
is($node->safe_psql('contrib_regression', q{
CREATE SEQUENCE seen;
SELECT count(snowid.next_id(5, 'seen')) FROM generate_series(1, 100);
SELECT current_setting('snowid_internal.seen') <> '';
ALTER SEQUENCE seen INCREMENT 7;
SELECT max(snowid.next_id(5, 'seen')) & 1023 AS first FROM generate_series(1, 100) \gset
SELECT (last_value & 1023) - :first FROM seen;
ALTER SEQUENCE seen INCREMENT 1;
SELECT snowid.next_id(5, 'seen') < snowid.next_id(5, 'seen');
CREATE SEQUENCE restored;
SELECT setval('restored', (snowid.min_id(now()) >> 13) - 3600000::bigint * 1024) > 0,
	setval('snowid_internal.reservation', (extract(epoch FROM now()) * 1000)::bigint + 3000) > 0;
SELECT snowid.id_timestamp(snowid.next_id(5, 'restored')) >= now() + interval '1 s';
SELECT snowid.id_timestamp(snowid.next_id(5, 'restored')) >= now() + interval '1 s';
}), "100\nt\n6\nt\nt|t\nt\nt", 'what a session has seen of a sequence holds until it is altered, and for no other one');
$node->safe_psql('contrib_regression', q{DROP SEQUENCE seen, restored; SELECT setval('snowid_internal.reservation', 1, false)});

# A sequence is read beside parallel workers, where 15 and 16 have no subtransactions; and one that
# cannot be read is not said to be gone.
my $forced = $node->pg_version < 16 ? 'force_parallel_mode' : 'debug_parallel_query';
is($node->safe_psql('contrib_regression', qq{
SET $forced = on; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
CREATE SEQUENCE "read";
SELECT max((snowid_internal.sequence_value('read', now())).last) FROM pg_class}), 1, 'a sequence is read beside parallel workers');
is(sqlstate($node, q{CREATE TABLE odd (id int PRIMARY KEY); BEGIN;
UPDATE pg_class SET relfilenode = pg_relation_filenode('odd_pkey') WHERE oid = 'read'::regclass;
SELECT snowid_internal.sequence_value('read', now())}, dbname => 'contrib_regression'), 'XX000', 'one with another\'s file is not said to be gone');
$node->safe_psql('contrib_regression', 'DROP SEQUENCE "read"; DROP TABLE odd');

# ---------------------------------------------------------------- the catalogs

my %catalog = (
	functions => q{
SELECT p.oid::regprocedure, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), p.prokind, p.provolatile,
	p.proisstrict, p.proparallel, p.proretset, p.prosecdef, p.proacl::text IS NULL, obj_description(p.oid, 'pg_proc')
FROM pg_proc p WHERE p.pronamespace = 'snowid'::regnamespace},
	relations => q{
SELECT c.oid::regclass, c.relkind, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
	pg_get_expr(d.adbin, d.adrelid), col_description(c.oid, a.attnum), obj_description(c.oid, 'pg_class')
FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'snowid'::regnamespace},
	'constraints and views' => q{
SELECT conrelid::regclass, conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace = 'snowid'::regnamespace
UNION ALL
SELECT oid::regclass, '', pg_get_viewdef(oid) FROM pg_class WHERE relnamespace = 'snowid'::regnamespace AND relkind = 'v'},
	rights => q{
SELECT c.oid::regclass, x.grantee::regrole, x.privilege_type, x.is_grantable
FROM pg_class c, aclexplode(c.relacl) x WHERE c.relnamespace = 'snowid'::regnamespace AND x.grantee <> c.relowner},
	'schemas' => q{
SELECT nspname, obj_description(oid, 'pg_namespace'), has_schema_privilege('public', oid, 'USAGE'), has_schema_privilege('public', oid, 'CREATE')
FROM pg_namespace WHERE nspname ~ '^snowid' ORDER BY 1},
	# What it needs beyond them is its own, and has other names.
	'internal functions' => q{
SELECT p.oid::regprocedure, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), p.prokind, p.provolatile,
	p.proisstrict, p.proparallel, p.proretset, obj_description(p.oid, 'pg_proc')
FROM pg_proc p WHERE p.pronamespace = 'snowid_internal'::regnamespace
AND p.proname <> ALL ('{missing_grants,check_grants,far_timestamp,sequence_name,iso,slot_at,slot_floor,check_shard,check_epoch,us_since,clamped_ms,open_sequence,qualified_name,refuse_slot,slot_clock,wait,take_slots,holders,known_epoch,sequence_epoch}')});
for my $what (sort keys %catalog)
{
	my ($portable, $c) = map { join "\n", sort split /\n/, $node->safe_psql($_, "SET datestyle = ISO; SET timezone = UTC; $catalog{$what}") }
	  'contrib_regression', 'in_c';
	is($portable, $c, "both editions have the same $what");
}

# As in sql/catalog.sql: nothing without a comment, with its owner's rights, or
# with an open search path, but for what qualifies each name.
is($node->safe_psql('contrib_regression', q{
SELECT p.oid::regprocedure FROM pg_proc p
WHERE p.pronamespace IN ('snowid'::regnamespace, 'snowid_internal'::regnamespace)
  AND (obj_description(p.oid, 'pg_proc') IS NULL OR p.prosecdef OR octet_length(p.prosrc) <> length(p.prosrc)
	   OR (p.prolang = (SELECT oid FROM pg_language WHERE lanname = 'sql') AND p.prosqlbody IS NULL)
	   OR (p.prolang = (SELECT oid FROM pg_language WHERE lanname = 'plpgsql') AND p.prokind <> 'p'
		   AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (p.proconfig), false)))
ORDER BY p.oid::regprocedure::text COLLATE "C"}), "snowid.next_id()\nsnowid.next_id(integer,regclass,timestamp with time zone)",
	'nothing is open to what others plant');
is($node->safe_psql('contrib_regression', q{
SELECT DISTINCT l.lanname FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
WHERE p.pronamespace IN ('snowid'::regnamespace, 'snowid_internal'::regnamespace) ORDER BY 1}),
	"plpgsql\nsql", 'and nothing is C');

$node->stop;
done_testing();
