# The portable edition is installed by whatever tool runs somebody's migrations: as
# one statement of plain SQL, in that tool's transaction, leaving its session as it
# was.  A newer version replaces an older one and keeps what users have.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = new_node('install');
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE owner LOGIN; CREATE ROLE writer LOGIN; CREATE ROLE other LOGIN;');
my $script = slurp_file(portable_file('sql'));
my ($version) = $script =~ /version CONSTANT pg_catalog.text := '(.*)'/;

# The same edition as another version, whose next_id() says so.
sub version
{
	my ($other) = @_;
	return $script =~ s/'\Q$version\E'/'$other'/gr =~ s/: \Q$version\E'/: $other'/gr
	  =~ s/(MESSAGE = 'snowid.shard is not set)/$1, says $other/r;
}

sub as { my ($user) = @_; return (connstr => $node->connstr('app') . " user=$user"); }

sub fresh_database
{
	$node->safe_psql('postgres', 'DROP DATABASE IF EXISTS app');
	$node->safe_psql('postgres', 'CREATE DATABASE app OWNER owner');
	return;
}

my $is_there = q{SELECT count(*) FROM pg_namespace WHERE nspname ~ '^snowid'};

subtest 'in one message' => sub {
	fresh_database();
	my $settings = q{SELECT current_setting('search_path'), current_setting('standard_conforming_strings'), current_setting('check_function_bodies')};

	ok($script !~ /^(\\|BEGIN;|COMMIT;)/m, 'no command of psql, and no transaction');
	is($node->safe_psql('app', "BEGIN; CREATE TABLE of_the_tool (); $script ROLLBACK; $is_there; SELECT count(*) FROM pg_class WHERE relname = 'of_the_tool'"),
		"0\n0", 'it is rolled back with the transaction of a tool');
	# Joined by \; they are one message, which is one transaction.
	my ($status, @said) = $node->psql('app', "SET search_path = evil, public\\; $script");
	is("$status@said", '0 ', 'it is installed in one message with others, and says nothing');
	is($node->safe_psql('app', $is_there), '2', 'it is there');
	fresh_database();
	is($node->safe_psql('app', "SET search_path = evil, public; BEGIN; $script $settings; COMMIT; $settings"), "evil, public|on|on\nevil, public|on|on",
		'nothing is left set, in the transaction or after it');
	(undef, undef, my $said) = $node->psql('app', 'CREATE EXTENSION snowid');
	like($said, qr/schema "snowid" already exists.*HINT:  It is the portable edition\. /s, 'whoever wants the extension in its place is not told to drop it');
	SKIP:
	{
		fresh_database();
		skip 'standard_conforming_strings is always on', 1 if sqlstate($node, 'SET standard_conforming_strings = off') ne '';
		is($node->safe_psql('app', q{SET standard_conforming_strings = off; SET escape_string_warning = off; } . snippet('old', 'q', 6) . $script . q{
CREATE TABLE photos (id bigint) PARTITION BY RANGE (id);
SELECT snowid.create_partition('photos', '2026-01-01', '2026-02-01') = snowid.create_partition('photos', '2026-01-01', '2026-02-01');
SELECT snowid.adopt_shard(6, 'old') IS NULL;}), "t\nt", 'where a backslash escapes, too');
	}
};

subtest 'privileges by default' => sub {
	fresh_database();
	is($node->safe_psql('app', "ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC; $script SELECT snowid.create_shard(5)", as('owner')),
		'insta5', 'where functions are granted to nobody');
	is($node->safe_psql('app', 'SELECT snowid.id_shard(5120)', as('writer')), '5', 'others may call them');
	my $use = q{
CREATE TABLE insta5.photos (id bigint PRIMARY KEY DEFAULT insta5.next_id());
GRANT USAGE ON SCHEMA insta5 TO writer; GRANT INSERT ON insta5.photos TO writer; GRANT USAGE, UPDATE ON SEQUENCE insta5.id_seq TO writer;
SET SESSION AUTHORIZATION writer; INSERT INTO insta5.photos DEFAULT VALUES};
	is(sqlstate($node, $use, dbname => 'app'), '', 'the shard\'s by the grants that it needs anyhow');
	is($node->safe_psql('app', 'ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC; DROP SCHEMA snowid, snowid_internal, insta5 CASCADE;
CREATE EXTENSION snowid; SET ROLE writer; SELECT snowid.id_shard(5120)'), '5', 'and those of the extension');
	is(sqlstate($node, "SELECT snowid.create_shard(5); $use", dbname => 'app'), '', '... and its shard\'s');

	# What they grant opens nothing.
	my $rights = q{
SELECT o.name, x.grantee::regrole, x.privilege_type, x.is_grantable
FROM (SELECT oid::regnamespace::text, nspacl, 'n'::"char", nspowner FROM pg_namespace WHERE nspname ~ '^snowid'
	  UNION ALL
	  SELECT oid::regclass::text, relacl, CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", relowner
	  FROM pg_class WHERE relnamespace::regnamespace::text ~ '^snowid' AND relkind IN ('r', 'v', 'S')) o (name, acl, kind, owner),
	aclexplode(coalesce(o.acl, acldefault(o.kind, o.owner))) x ORDER BY 1, 2, 3};
	for (['the portable edition', $script, 'owner'], ['the extension', 'CREATE EXTENSION snowid;', getpwuid($<)])
	{
		my ($name, $install, $role) = @$_;
		fresh_database();
		my $expected = $node->safe_psql('app', $install . $rights, as($role));
		fresh_database();
		my $open = join '', map { qq{ALTER DEFAULT PRIVILEGES FOR ROLE "$role" GRANT ALL ON $_ TO PUBLIC, other, owner;} } qw(SCHEMAS TABLES SEQUENCES);
		is($node->safe_psql('app', $open . $install . $rights, as($role)), $expected, "$name: where much is granted, it is not");
	}
};

subtest 'a newer version' => sub {
	fresh_database();
	$node->safe_psql('app', version('0.9') . q{
CALL snowid.create_shards(5, 5, ddl => 'CREATE TABLE t (id bigint PRIMARY KEY DEFAULT next_id())');
INSERT INTO insta5.t SELECT FROM generate_series(1, 100);
REVOKE EXECUTE ON FUNCTION snowid.drop_shard(int, boolean) FROM PUBLIC;
REVOKE SELECT ON snowid.servers FROM PUBLIC;
GRANT SELECT ON snowid.moves TO writer;
GRANT CREATE ON SCHEMA snowid TO writer;
SELECT setval('snowid_internal.reservation', extract(epoch FROM now())::bigint + 2);
DROP FUNCTION snowid.shard_of(text, int);}, as('owner'));
	my $state = q{
SELECT (SELECT jsonb_agg(r) FROM snowid.shard_registry r), (SELECT last_value FROM snowid_internal.reservation),
	has_function_privilege('writer', 'snowid.drop_shard(int, boolean)', 'EXECUTE'), (SELECT string_agg(relacl::text, ' ' ORDER BY oid) FROM pg_class
		WHERE relnamespace = 'snowid'::regnamespace), 'snowid'::regnamespace::oid, (SELECT nspacl FROM pg_namespace WHERE nspname = 'snowid'), 'insta5.next_id()'::regprocedure::oid,
	(SELECT count(*) FROM insta5.t), (SELECT adbin FROM pg_attrdef WHERE adrelid = 'insta5.t'::regclass), 'snowid.shards'::regclass::oid};
	my $before = $node->safe_psql('app', $state);
	my $call = q{SELECT snowid.next_id()};

	is(sqlstate($node, $script, dbname => 'app', extra_params => [ '-U', 'other' ]), '42501', 'only its owner replaces it');
	like(($node->psql('app', $call))[2], qr/says 0\.9/, 'the old one is there');
	$node->safe_psql('app', $script, as('owner'));
	unlike(($node->psql('app', $call))[2], qr/says 0\.9/, 'its functions are replaced');
	is($node->safe_psql('app', $state), $before, 'tables, DEFAULTs, states and privileges stay');
	is($node->safe_psql('app', 'SELECT snowid.version()'), $version, 'it is the new version');
	is($node->safe_psql('app', q{INSERT INTO insta5.t DEFAULT VALUES RETURNING id = (SELECT max(id) FROM insta5.t) IS NOT TRUE}), 't', 'ids go on');
	is($node->safe_psql('app', q{SELECT snowid.shard_of('x', 5)}, as('writer')), '2', 'what is new is there, for all');

	# Another build of the same version, too: what it has not is made, with its rights.
	fresh_database();
	my $objects = q{
SELECT c.oid::regclass, relkind, relreplident, (SELECT string_agg(format('%s %s %s %s %s', attname, format_type(atttypid, atttypmod), attnotnull, attacl, pg_get_expr(adbin, adrelid)), ',' ORDER BY attname)
		FROM pg_attribute a LEFT JOIN pg_attrdef ON (adrelid, adnum) = (attrelid, attnum) WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped),
	(SELECT string_agg(x::text, ',' ORDER BY x::text) FROM unnest(relacl) x), (SELECT string_agg(concat(tgname, tgenabled), ',' ORDER BY tgname) FROM pg_trigger WHERE tgrelid = c.oid),
	(SELECT string_agg(pg_get_constraintdef(oid), ',' ORDER BY conname) FROM pg_constraint WHERE conrelid = c.oid), obj_description(c.oid)
FROM pg_class c WHERE relnamespace::regnamespace::text ~ '^snowid' ORDER BY c.oid::regclass::text;
SELECT p.oid::regprocedure, p.proacl, md5(prosrc) FROM pg_proc p WHERE pronamespace::regnamespace::text ~ '^snowid' ORDER BY p.oid::regprocedure::text};
	$node->safe_psql('app', $script, as('owner'));
	my $whole = $node->safe_psql('app', $objects);
	fresh_database();
	$node->safe_psql('app', $script . q{
INSERT INTO snowid.shard_registry (shard, schema, pool) VALUES (5, 'insta5', 'p');
DROP VIEW snowid.shards, snowid.shard_homes;
ALTER TABLE snowid.shard_registry DROP homes, DROP pool, DROP CONSTRAINT shard_registry_schema_check, DROP CONSTRAINT home_without_password;
ALTER TABLE snowid.servers DROP CONSTRAINT servers_weight_check, ADD CONSTRAINT servers_weight_check CHECK (weight > -1);
DROP TABLE snowid.placements, snowid.copies, snowid.fleet_moves;
DROP SEQUENCE snowid_internal.flushed;
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC, other;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO PUBLIC, other;
ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;}, as('owner'));
	is(join('', $node->psql('app', $script, as('owner'))), '0', 'the same version is installed again, and says nothing');
	is($node->safe_psql('app', $objects), $whole, 'all that it was without is there, as in a new database');
	is($node->safe_psql('app', 'SELECT shard, schema, pool, homes FROM snowid.shard_registry'), '5|insta5||[]', 'its rows have what is new');

	# A CHECK that an older one has otherwise, or not, is told of the rows that it would not have.
	for ([ 'shard_registry_homes_check', q{homes = '[{"home": null, "since": "9T9"}]'} ],
		[ 'shard_registry_entry_options_check', q{entry_options = 'host=x'} ], [ 'shard_registry_schema_check', q{schema = 'pg_' || shard} ])
	{
		my ($check, $change) = @$_;
		$node->safe_psql('app', qq{
INSERT INTO snowid.shard_registry (shard, schema) VALUES (6, 'insta6'), (7, 'insta7');
ALTER TABLE snowid.shard_registry DROP CONSTRAINT $check;
UPDATE snowid.shard_registry SET $change WHERE shard > 5;}, as('owner'));
		my ($status, undef, $errors) = $node->psql('app', $script, as('owner'));
		like($errors, qr/ERROR:  rows of snowid\.shard_registry are not as version \Q$version\E has them: shard 6, 7$/m, "rows that hinder $check are named");
		my ($see) = $errors =~ /type: (.*);$/m;
		is($node->safe_psql('app', "SELECT string_agg(shard::text, ' ' ORDER BY shard) FROM ($see) x"), '6 7', '... and shown by what is to be typed');
		$node->safe_psql('app', 'DELETE FROM snowid.shard_registry WHERE shard > 5', as('owner'));
		is(join('', $node->psql('app', $script, as('owner'))), '0', '... without them it is installed');
	}
	is($node->safe_psql('app', "SET quote_all_identifiers = on; BEGIN; $script SHOW quote_all_identifiers; COMMIT; SHOW quote_all_identifiers", as('owner')), "on\non",
		'whatever else is quoted');
	is($node->safe_psql('app', $objects), $whole, 'again, all is as in a new database');
	is(sqlstate($node, version('0.10'), dbname => 'app', extra_params => [ '-U', 'owner' ]), '55000', 'an older one is refused');
};

subtest 'what is not ours' => sub {
	fresh_database();
	$node->safe_psql('app', 'CREATE SCHEMA snowid_internal');
	is(sqlstate($node, $script, dbname => 'app'), '42P06', 'a schema of that name');
	$node->safe_psql('app', 'DROP SCHEMA snowid_internal; CREATE EXTENSION snowid');
	is(sqlstate($node, $script, dbname => 'app'), '42P06', 'the extension');
	$node->safe_psql('app', 'DROP EXTENSION snowid');
	$node->safe_psql('app', version('0.9') . 'GRANT CREATE ON SCHEMA snowid TO other');
	$node->safe_psql('app', 'CREATE FUNCTION snowid.next_id(int, int) RETURNS bigint LANGUAGE sql RETURN 1', as('other'));
	is(sqlstate($node, $script, dbname => 'app'), '42501', 'a function that somebody else has made there');

	# One that the installer would call.
	$node->safe_psql('app', 'DROP SCHEMA snowid CASCADE; GRANT CREATE ON DATABASE app TO other');
	$node->safe_psql('app', q{
CREATE SCHEMA snowid;
CREATE FUNCTION snowid.version() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'planted'; END $$}, as('other'));
	my (undef, undef, $errors) = $node->psql('app', $script);
	like($errors, qr/must be owner of schema snowid/, 'it is not called before all is looked at');

	# Sequences of others, which the owner may not read; those that he may, by no view.
	fresh_database();
	$node->safe_psql('app', 'CREATE SCHEMA others AUTHORIZATION other');
	$node->safe_psql('app', q{CREATE SEQUENCE others.unused; CREATE SEQUENCE others.used; SELECT nextval('others.used')}, as('other'));
	is(sqlstate($node, $script, dbname => 'app', extra_params => [ '-U', 'owner' ]), '', 'is left alone');
	like($script, qr/SET restrict_nonsystem_relation_kind.*SELECT pg_catalog.setval\('snowid_internal.reservation'/s, 'nor is a view read in its place');

	# A trigger that somebody has planted, who may: neither run nor kept.
	fresh_database();
	$node->safe_psql('app', $script . q{
INSERT INTO snowid.shard_registry (shard, schema) VALUES (5, 'insta5');
DROP VIEW snowid.shards, snowid.shard_homes;
ALTER TABLE snowid.shard_registry DROP homes;
GRANT ALL ON snowid.shard_registry TO other, PUBLIC;
CREATE SCHEMA own;
CREATE FUNCTION own.note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE FUNCTION own.seen(text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE TRIGGER own BEFORE INSERT ON snowid.shard_registry FOR EACH ROW WHEN (NEW.shard > 0 AND own.seen(NEW.home)) EXECUTE FUNCTION own.note()}, as('owner'));
	$node->safe_psql('app', 'CREATE SCHEMA others AUTHORIZATION other');
	$node->safe_psql('app', q{
CREATE FUNCTION others.bite() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$;
CREATE FUNCTION others.bite(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'planted'; END $$;
CREATE OPERATOR others.@ (rightarg = text, function = others.bite);
CREATE DOMAIN others.word AS text CHECK (others.bite(VALUE));
CREATE TRIGGER bite BEFORE UPDATE ON snowid.shard_registry FOR EACH ROW EXECUTE FUNCTION others.bite();
CREATE TRIGGER bites BEFORE UPDATE ON snowid.shard_registry FOR EACH ROW WHEN (others.bite(NEW.home)) EXECUTE FUNCTION snowid_internal.note_home();
CREATE TRIGGER biting BEFORE UPDATE ON snowid.shard_registry FOR EACH ROW WHEN (OPERATOR(others.@) NEW.home) EXECUTE FUNCTION snowid_internal.note_home();
CREATE TRIGGER bitten BEFORE UPDATE ON snowid.shard_registry FOR EACH ROW WHEN (NEW.home::others.word = '') EXECUTE FUNCTION snowid_internal.note_home();},
		as('other'));
	for my $trigger ('bite', 'bites', 'biting', 'bitten')
	{
		(undef, undef, $errors) = $node->psql('app', $script, as('owner'));
		like($errors, qr/ERROR:  trigger "$trigger" on snowid.shard_registry is not snowid's$/m, "a planted trigger is refused: $trigger");
		my ($type) = $errors =~ /HINT:  Type: (.*)$/m;
		is($type, "DROP TRIGGER $trigger ON snowid.shard_registry;"
			. ($trigger eq 'bite' ? ' REVOKE TRIGGER ON snowid.shard_registry FROM PUBLIC; REVOKE TRIGGER ON snowid.shard_registry FROM other;' : ''),
			'... and who may plant another is named');
		is(sqlstate($node, $type, dbname => 'app', extra_params => [ '-U', 'owner' ]), '', '... what is to be typed can be');
	}
	is(join('', $node->psql('app', $script, as('owner'))), '0', 'without them it is installed, beside one of the owner\'s');

	fresh_database();
	$node->safe_psql('app', 'CREATE ROLE "Own Er"; GRANT CREATE ON DATABASE app TO "Own Er"');
	is(sqlstate($node, 'SET SESSION AUTHORIZATION "Own Er"; ' . version('0.9') . $script, dbname => 'app'), '', 'what an owner with any name has made is his');
};

# Who used the snippet's sequence needs more than that here.
subtest 'writers of the snippet' => sub {
	fresh_database();
	$node->safe_psql('app', $script . snippet('old', 'table_id_seq', 7) . q{
CREATE TABLE old.t (id bigint PRIMARY KEY DEFAULT old.next_id());
GRANT USAGE ON SCHEMA old TO PUBLIC;
GRANT INSERT ON old.t TO writer, other;
GRANT USAGE ON SEQUENCE old.table_id_seq TO writer, other;
GRANT UPDATE ON SEQUENCE old.table_id_seq TO other;
CREATE SEQUENCE old.counter;
GRANT USAGE ON SEQUENCE old.counter TO writer;});
	my $insert = 'INSERT INTO old.t DEFAULT VALUES';
	my $adopt = q{SELECT snowid.adopt_shard(7, 'old')};
	$node->safe_psql('app', $insert, as('writer'));
	is(sqlstate($node, $adopt, dbname => 'app'), '42501', 'would be stopped: refused');
	$node->safe_psql('app', $insert, as('writer'));
	my (undef, undef, $errors) = $node->psql('app', $adopt);
	like($errors, qr/HINT:  Type: GRANT USAGE, UPDATE ON SEQUENCE old.table_id_seq TO writer;$/m, 'with what to type');
	my ($grant) = $errors =~ /Type: (.*)/;
	is(sqlstate($node, "$grant $adopt", dbname => 'app'), '', 'which helps');
	is(sqlstate($node, $insert, dbname => 'app', extra_params => [ '-U', $_ ]), '', "$_ goes on") for qw(writer other);

	# Of a shard that the extension made, and of functions that run as their owner.
	$node->safe_psql('app', q{
CREATE SCHEMA made; CREATE SEQUENCE made.id_seq; GRANT USAGE ON SEQUENCE made.id_seq TO PUBLIC;});
	like(($node->psql('app', q{SELECT snowid.register_shard(8, 'made')}))[2], qr/GRANT USAGE, UPDATE ON SEQUENCE made.id_seq TO PUBLIC;/, 'register_shard() says it, too');
	$node->safe_psql('app', 'CREATE SCHEMA bare; ALTER DEFAULT PRIVILEGES IN SCHEMA bare GRANT USAGE ON SEQUENCES TO writer');
	my $register = q{SELECT snowid.register_shard(10, 'bare')};
	($grant) = ($node->psql('app', $register))[2] =~ /Type: (.*GRANT USAGE, UPDATE ON SEQUENCE bare.id_seq TO writer;)$/m;
	is(sqlstate($node, "$grant $register", dbname => 'app'), '', '... also of a sequence that it makes, which goes with the error');
	$node->safe_psql('app', snippet('owned', 'seq', 9) . q{
GRANT USAGE ON SEQUENCE owned.seq TO writer;
ALTER FUNCTION owned.next_id() SECURITY DEFINER});
	is(sqlstate($node, q{SELECT snowid.adopt_shard(9, 'owned')}, dbname => 'app'), '', 'a function that runs as its owner needs no more');
	is($node->safe_psql('app', q{SELECT prosecdef, proconfig FROM pg_proc WHERE oid = 'owned.next_id()'::regprocedure}),
		't|{"search_path=pg_catalog, pg_temp"}', '... nor its caller\'s search path');
	$node->safe_psql('app', q{REVOKE UPDATE ON SEQUENCE old.table_id_seq FROM writer});
	is($node->safe_psql('app', q{SELECT snowid_internal.missing_grants()}), 'GRANT USAGE, UPDATE ON SEQUENCE old.table_id_seq TO writer;', 'all shards can be asked');
};

# The schema of examples/clients.
subtest 'clients' => sub {
	fresh_database();
	$node->safe_psql('app', $script . slurp_file("$FindBin::RealBin/../../examples/clients/schema.sql"));
	is(sqlstate($node, q{
INSERT INTO insta1340.photos (user_id, caption) VALUES (1340, 'a');
INSERT INTO insta1343.events (user_id, what) VALUES (1343, 'b')}, dbname => 'app', extra_params => [ '-U', 'app' ]), '', 'have what they use');
};

$node->stop;
done_testing();
