# A shard that is made like another is that shard with another name and number,
# whatever its definitions name, and whatever is set there: no new shard makes
# the model's ids, writes into it, or reads it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use EachTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = new_node('main');
$node->append_conf('postgresql.conf', 'wal_level = logical');
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION snowid');

sub sql { return $node->safe_psql('postgres', shift) }

# A shard 3 with these definitions, and none else.
sub model
{
	my ($definitions) = @_;
	sql('SET client_min_messages = warning; SELECT snowid.drop_shard(shard, true) FROM snowid.shards');
	sql("SELECT snowid.create_shard(3); SET search_path = insta3; $definitions");
	return;
}

my $clone = sub { my ($expected, $like, @args) = @_; return each_ok($node, $expected, $like, 'create', '--like', 3, '--shard', 4, @args) };

subtest 'settings of the database' => sub {
	for my $setting ('quote_all_identifiers = on', 'standard_conforming_strings = off', "intervalstyle = 'sql_standard'", 'array_nulls = off',
		"bytea_output = 'escape'", "datestyle = 'SQL, DMY'", 'extra_float_digits = -15', "xmloption = 'document'", 'transform_null_equals = on')
	{
		# It is always on there.
		next if $setting =~ /^standard/ && sql('SHOW server_version_num') >= 190000;
		model(q{
CREATE TABLE t (id bigint PRIMARY KEY DEFAULT next_id(), path text DEFAULT 'C:\data', code text CHECK (code ~ '^[^\s]+$'), by bytea DEFAULT '\x00ff',
	i interval DEFAULT '-1 day +02:00', a text[] DEFAULT '{a,NULL}', d date DEFAULT '2026-02-01', f float8 DEFAULT 0.1 + 0.2::float8);
SELECT snowid.set_default('t', own_sequence => true, guard => true);
CREATE VIEW v AS SELECT id, 'a\b' AS k FROM t});
		my $defaults = q{INSERT INTO %s.t DEFAULT VALUES RETURNING path, by, i = '-22 hours'::interval - interval '0', a[2] IS NULL, d, f};
		my $text = q{SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'c' AND conrelid = '%s.t'::regclass ORDER BY conname};
		my $was = sql(sprintf $text, 'insta3');
		my $values = sql(sprintf $defaults, 'insta3');
		sql("ALTER DATABASE postgres SET $setting");
		$clone->(0, qr/shard 4 is there/);
		each_ok($node, 0, qr/^$/, 'diff');
		sql('ALTER DATABASE postgres RESET ALL');
		is(sql(sprintf $text, 'insta4'), $was =~ s/= 3/= 4/r, "$setting: the constraints are as they were");
		is(sql(sprintf $defaults, 'insta4'), $values, "... and the DEFAULTs");
		is(sql('SELECT snowid.id_shard(id), snowid.id_shard(insta4.next_id()) FROM insta4.t'), '4|4', '... and ids are its own');
		each_ok($node, 0, qr/^$/, 'diff');
	}
};

subtest 'it proves itself' => sub {
	model(q{CREATE SEQUENCE s; CREATE TABLE t (id bigint DEFAULT snowid.next_id(1 + 2, 's'))});
	$clone->(1, qr/DEFAULT of insta4.t.id makes ids of shard 3/);
	model(q{CREATE TABLE t (id bigint DEFAULT next_id() CHECK (3 = snowid.id_shard(id)))});
	$clone->(1, qr/constraint t_id_check of insta4.t refuses ids of shard 4/);
	model(q{CREATE OR REPLACE FUNCTION next_id() RETURNS bigint LANGUAGE sql RETURN snowid.next_id(1 + 2, 'insta3.id_seq')});
	$clone->(1, qr/next_id\(\) makes ids of shard 3/);
	is(sql(q{SELECT count(*) FROM pg_namespace WHERE nspname IN ('insta4', 'snowid_each_like')}), 0, 'nothing is left of it');

	# Ids of a sequence that is none of the shard's are as they were.
	model(q{CREATE SEQUENCE public.s; CREATE TABLE t (id bigint DEFAULT snowid.next_id(3, 'public.s'), n serial, other int DEFAULT 3 CHECK (other = 3))});
	$clone->(0, qr/shard 4 is there/);
	is(sql('INSERT INTO insta4.t DEFAULT VALUES RETURNING other, n'), '3|1', 'other numbers stay');
	each_ok($node, 0, qr/^$/, 'diff');
	sql('DROP SEQUENCE public.s CASCADE');
};

subtest 'names in texts' => sub {
	my $paths = q{
CREATE TABLE log (id bigint PRIMARY KEY DEFAULT next_id(), what text);
CREATE FUNCTION note(text) RETURNS void LANGUAGE sql SET search_path = insta3 AS $$ INSERT INTO log (what) VALUES ($1) $$;
CREATE FUNCTION note2(text) RETURNS void LANGUAGE sql SET search_path = pg_catalog, insta3, "insta 3", public AS $$ INSERT INTO log (what) VALUES ($1) $$;
CREATE PROCEDURE note3(text) LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log (what) VALUES ('a search_path TO ''insta30'''); END $$;
CREATE TABLE d (n bigint DEFAULT nextval('log_seq'::regclass), r regclass DEFAULT 'log'::regclass)} =~ s/log_seq/id_seq/r;
	model($paths);
	$clone->(0, qr/shard 4 is there/);
	sql(q{SELECT insta4.note('one'), insta4.note2('two')});
	is(sql('SELECT (SELECT count(*) FROM insta3.log), count(*), count(*) FILTER (WHERE snowid.id_shard(id) = 4) FROM insta4.log'), '0|2|2',
		'functions with a path of their own write where they are');
	is(sql(q{SELECT proconfig FROM pg_proc WHERE oid = 'insta4.note2'::regproc}), '{"search_path=pg_catalog, insta4, \"insta 3\", public"}', 'a path is mapped');
	is(sql('INSERT INTO insta4.d DEFAULT VALUES RETURNING r'), 'insta4.log', 'constants that are objects are renamed');
	each_ok($node, 0, qr/^$/, 'diff');
	sql('ALTER FUNCTION insta4.note(text) SET search_path = insta3');
	each_ok($node, 1, qr/^FUNCTION note\(text\)\n.*'#'.*: 1 shard: 3\n.*'insta3'.*: 1 shard: 4$/m, 'diff');

	my %texts = (
		'FUNCTION f()' => q{CREATE FUNCTION f() RETURNS void LANGUAGE sql AS 'INSERT INTO INSTA3.log (what) VALUES (1)'},
		'TRIGGER log t' => q{CREATE FUNCTION g() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
			CREATE TRIGGER t BEFORE INSERT ON log FOR EACH ROW EXECUTE FUNCTION g('insta3')},
		'VIEW v' => q{CREATE VIEW v AS SELECT 'insta3'::text AS me},
		'TABLE e' => q{CREATE TABLE e (n bigint DEFAULT nextval('insta3.id_seq'::text::regclass))},
		'COMMENT TABLE log' => q{COMMENT ON TABLE log IS 'of insta3'},
		'TYPE mood' => q{CREATE TYPE mood AS ENUM ('insta3')},
		'FUNCTION h()' => q{CREATE FUNCTION h() RETURNS text LANGUAGE sql SET "app.x" = 'insta3' AS 'SELECT 1::text'});
	model("$paths; " . join ';', values %texts);
	my $said = $clone->(2, qr/shard 4 cannot be like shard 3.*--keep-texts/s);
	like($said, qr/error: \Q$_\E: a text in it names "insta3"/, "$_ is named") for keys %texts, 'DEFAULT e n' =~ s/DEFAULT e n/TABLE e/r;
	is(() = $said =~ /a text in it/g, 7, 'and nothing else');
	is(sql(q{SELECT to_regnamespace('insta4') IS NULL AND NOT EXISTS (SELECT FROM snowid.shard_registry WHERE shard = 4)}), 't', 'nothing is made');
	$clone->(0, qr/shard 4 is there/, '--keep-texts');
	is(sql('SELECT me FROM insta4.v'), 'insta3', 'they stay as they are');
	each_ok($node, 1, qr/^VIEW v$/m, 'diff');
};

subtest 'nothing is lost' => sub {
	model(q{
CREATE TYPE money2 AS (a int);
CREATE FUNCTION m2(int) RETURNS money2 LANGUAGE sql IMMUTABLE RETURN ROW($1)::money2;
CREATE CAST (int AS money2) WITH FUNCTION m2(int) AS ASSIGNMENT;
CREATE CAST (money2 AS text) WITH INOUT AS IMPLICIT});
	my $state = q{SELECT string_agg(oid || relname, ' ' ORDER BY oid) FROM pg_class WHERE relnamespace = 'insta3'::regnamespace};
	my $was = sql($state);
	$clone->(0, qr/shard 4 is there/);
	is(sql('SELECT 5::insta4.money2, length((5::insta4.money2)::text)'), '(5)|3', 'casts');
	is(sql($state), $was, 'the model is as it was, without a ledger that nobody asked for');
	each_ok($node, 0, qr/^$/, 'diff');
	sql('DROP CAST (int AS insta4.money2)');
	each_ok($node, 1, qr/^CAST \(integer AS money2\)\n  CREATE CAST .*: 1 shard: 3$/m, 'diff');
};

# PostgreSQL writes some definitions otherwise once it has read what it wrote.
subtest 'what was copied is alike' => sub {
	model(q{
CREATE TABLE t (c varchar CHECK (c IN ('a', 'b,', '('']')), d varchar(10), n numeric(10,2) CHECK (n IN (1, 2.5)), k text CHECK (k NOT IN ('x', 'y')),
	b bigint CHECK (b = ANY (ARRAY[1, 2])), CONSTRAINT many CHECK (c IN ('a', 'b') OR (c, d) IN (('a', 'b'), ('c', 'd')) AND d = ANY (ARRAY['a'::varchar, d])));
CREATE VIEW v AS SELECT * FROM t WHERE d IN ('a', 'b') AND c <> ALL ('{a,b}'::varchar[])});
	$clone->(0, qr/shard 4 is there/);
	isnt(sql(q{SELECT string_agg(pg_get_constraintdef(oid), '' ORDER BY conname) FROM pg_constraint WHERE conrelid = 'insta4.t'::regclass}),
		sql(q{SELECT string_agg(pg_get_constraintdef(oid), '' ORDER BY conname) FROM pg_constraint WHERE conrelid = 'insta3.t'::regclass}), 'it is written otherwise');
	each_ok($node, 0, qr/^$/, 'diff');
	sql(q{ALTER TABLE insta4.t DROP CONSTRAINT t_c_check, ADD CONSTRAINT t_c_check CHECK (c IN ('a', 'b', '('']'))});
	each_ok($node, 1, qr/^TABLE t$/m, 'diff');
};

# Default privileges are for what a role makes anew.  This is as the model is.
subtest 'rights' => sub {
	model(q{
CREATE ROLE reader; CREATE ROLE stranger;
CREATE TYPE mood AS ENUM ('good'); CREATE TYPE pair AS (a int, m mood); CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TABLE t (id bigint PRIMARY KEY DEFAULT next_id(), m mood); CREATE TABLE u (n serial); CREATE VIEW v AS SELECT * FROM t;
CREATE FUNCTION f(mood, text) RETURNS int LANGUAGE sql AS 'SELECT 1';
GRANT SELECT ON t, v TO reader; GRANT INSERT ON u TO reader WITH GRANT OPTION; GRANT USAGE ON SCHEMA insta3 TO reader});
	my $rights = q{SELECT string_agg(what, ' ' ORDER BY what) FROM (
SELECT relname || ' ' || a FROM pg_class, aclexplode(coalesce(relacl, acldefault(CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", relowner))) a WHERE relnamespace = '%1$s'::regnamespace AND relkind NOT IN ('i', 'c')
UNION ALL SELECT proname || ' ' || a FROM pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner))) a WHERE pronamespace = '%1$s'::regnamespace
UNION ALL SELECT typname || ' ' || a FROM pg_type, aclexplode(coalesce(typacl, acldefault('T', typowner))) a WHERE typnamespace = '%1$s'::regnamespace
UNION ALL SELECT 'schema ' || a FROM pg_namespace, aclexplode(coalesce(nspacl, acldefault('n', nspowner))) a WHERE nspname = '%1$s') x (what)};
	my $was = sql(sprintf $rights, 'insta3');
	sql(q{
ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO stranger; ALTER DEFAULT PRIVILEGES GRANT INSERT ON TABLES TO reader; ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO stranger;
ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO stranger; ALTER DEFAULT PRIVILEGES GRANT USAGE ON TYPES TO stranger WITH GRANT OPTION;
ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC; ALTER DEFAULT PRIVILEGES REVOKE DELETE ON TABLES FROM CURRENT_USER});
	$clone->(0, qr/shard 4 is there/);
	is(sql(sprintf $rights, 'insta4'), $was, 'rights are those of the model');
	each_ok($node, 0, qr/^$/, 'diff');
	sql('DROP OWNED BY reader, stranger; DROP ROLE reader, stranger; ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO PUBLIC; ALTER DEFAULT PRIVILEGES GRANT DELETE ON TABLES TO CURRENT_USER');
};

# Who waits for a lock has none meanwhile, for which others would wait.  The other one ends by
# itself if we wait for ever.
subtest 'a lock' => sub {
	sql('CREATE TABLE public.users (id bigint PRIMARY KEY)');
	model('CREATE TABLE t (u bigint REFERENCES public.users)');
	my $other = $node->background_psql('postgres');
	$other->query_safe(q{SET idle_in_transaction_session_timeout = '60s'});
	$other->query_safe('BEGIN; LOCK TABLE public.users IN ROW EXCLUSIVE MODE');
	$clone->(1, qr/shard 4 could not be made: canceling statement due to lock timeout\n.*--wait/, '--lock-timeout', 50, '--wait', 0);
	$other->query_safe('SELECT 1');
	my $said = '';
	my $run = IPC::Run::start([ each_command($node, 'create', '--like', 3, '--shard', 4, '--lock-timeout', 50) ], '>&', \$said);
	$node->poll_query_until('postgres', q{SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND relation = 'users'::regclass});
	$node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_locks WHERE relation = 'users'::regclass AND mode = 'ShareRowExclusiveLock'});
	$other->quit;
	ok($run->finish, 'it is made when the lock is free') or diag $said;
	each_ok($node, 0, qr/^$/, 'diff');
	model('');
	sql('DROP TABLE public.users');
};

# One transaction for all of them ran out of locks.
subtest 'many' => sub {
	model('');
	sql("CREATE TABLE insta3.t$_ (id bigint PRIMARY KEY DEFAULT insta3.next_id(), n int UNIQUE)") for 1 .. 10;
	each_ok($node, 0, qr/shard 499 is there/, 'create', '--like', 3, '--shard', '100-499');
	is(sql('SELECT count(*), count(DISTINCT xmin::text) > 400 FROM snowid.shard_registry'), '401|t', 'each in a transaction of its own');
};

done_testing();
