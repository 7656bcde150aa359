# Nothing that the owner of a shard has planted runs as the superuser who calls
# snowid-each: a ledger of his own, functions and operators in the schemas of
# everybody's search path.  And names may be whatever PostgreSQL allows.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use EachTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $node = new_node('main');
$node->start;
$node->safe_psql('postgres', q{
CREATE EXTENSION snowid;
CREATE ROLE planter LOGIN;
GRANT CREATE ON DATABASE postgres TO planter;
GRANT INSERT, UPDATE, DELETE ON snowid.shard_registry TO planter;
SELECT snowid.create_shard(0), snowid.create_shard(1, 'we"ird $$ (')});

my $superuser = $node->safe_psql('postgres', 'SELECT current_user');

sub as_planter
{
	my ($sql) = @_;
	return $node->safe_psql('postgres', $sql, extra_params => [ '-U', 'planter' ]);
}

# All that the program says, of which nothing may have run planted code.
sub each_harmless
{
	my ($expected, $like, @args) = @_;
	my $from = -s $node->logfile;

	each_ok($node, $expected, $like, @args);
	unlike(slurp_file($node->logfile, $from), qr/LOG:  planted .* as $superuser$/m, '... and runs nothing that was planted');
	return;
}

as_planter(q{
SELECT snowid.create_shard(2), snowid.create_shard(3), snowid.create_shard(4);
CREATE SCHEMA evil;
GRANT USAGE ON SCHEMA evil TO PUBLIC;
CREATE FUNCTION evil.bite(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
	$$BEGIN RAISE LOG 'planted % as %', $1, current_user; RETURN $1; END$$;
CREATE FUNCTION evil.bite() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM evil.bite('trigger'); RETURN NEW; END$$;
CREATE FUNCTION evil.equal(text, text) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RETURN evil.bite('=') = 'x'; END$$;
CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.equal, COMMUTATOR = OPERATOR(evil.=));
CREATE OPERATOR evil.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.equal)});
as_planter("CREATE FUNCTION evil.$_ RETURNS text LANGUAGE sql AS \$\$SELECT evil.bite('$_')\$\$")
  for 'format(text, text)', 'quote_ident(text)', 'set_config(text, text, boolean)', 'concat_ws(text, text, text)', 'quote_ident(name)';
$node->safe_psql('postgres', 'ALTER DATABASE postgres SET search_path = evil, pg_catalog');

# A ledger's columns, and what they may be.
my $columns = 'name text PRIMARY KEY, checksum text, script text, statements int, run_by name, started_at timestamptz, finished_at timestamptz, error text';
as_planter("SET search_path = evil, pg_catalog; $_") for
	"CREATE TABLE insta2.snowid_migrations ($columns);
	CREATE TRIGGER bite BEFORE INSERT OR UPDATE ON insta2.snowid_migrations FOR EACH ROW EXECUTE FUNCTION bite();
	CREATE INDEX ON insta2.snowid_migrations (bite('index'));
	INSERT INTO insta2.snowid_migrations (name, script) VALUES ('planted', 'SELECT 1')",
	"CREATE VIEW insta3.snowid_migrations AS SELECT 'planted'::text AS name, bite('view') AS script, 'x'::text AS checksum,
		1 AS statements, now() AS finished_at, ''::text AS error",
	"CREATE TABLE insta4.snowid_migrations ($columns, CHECK (bite('check') > ''))";

my $file = script_file('CREATE TABLE photos (id bigint)');
my $refused = qr/what is in it is of another role: planter; connect as that role, or say --trust-owners: 3 shards: 2-4/;
my @vacuum = ('--name', 'statements', '--file', script_file("-- no transaction\nVACUUM photos"));
my @trusted = ('--shard', '0-1', '--trust-owners');
each_harmless(1, $refused, '--name', 'table', '--file', $file);
each_harmless(1, qr/schema evil of the search path is of another role: planter; connect as that role, or say --trust-owners: 2 shards: 0-1/,
	'--name', 'table', '--file', $file, '--shard', '0-1');
each_harmless(0, qr/2 shards done/, '--name', 'table', '--file', $file, @trusted);
each_harmless(1, $refused, '--name', 'table');
each_harmless(1, $refused, @vacuum);
each_harmless(0, qr/2 shards done/, @vacuum, @trusted);
each_harmless(2, qr/no shard has done "planted"/, '--name', 'planted');
each_harmless(1, qr/warning: ledgers of other roles are not read; connect as that role, or say --trust-owners: shards 2-4\n.*^table\n  done: 2 shards: 0-1\n  not begun: 3 shards: 2-4$/ms, 'status');
each_harmless(2, qr/what is in shard 3 is of another role: planter.*--trust-owners/s, 'create', '--like', 3, '--shard', 5);
each_harmless(1, qr/^definitions$/m, 'diff');

as_planter("CREATE SCHEMA snowid_each; CREATE TABLE snowid_each.snowid_migrations ($columns, CHECK (evil.bite('check') > ''))");
each_harmless(1, qr/schema snowid_each is of another role: planter; connect as that role, or say --trust-owners: 1 server: registry/, '--name', 'server', '--each-server', '--file', script_file('SELECT 1'));

# A cast between a shard's type and his: a name of two lines ends no comment.
my $type = qq{evil."x\nALTER ROLE planter SUPERUSER; --"};
$node->safe_psql('postgres', q{SELECT snowid.create_shard(7); CREATE TYPE insta7.mood AS ENUM ('x'); GRANT USAGE ON SCHEMA insta7 TO PUBLIC});
as_planter("CREATE TYPE $type AS ENUM ('x'); CREATE CAST ($type AS insta7.mood) WITH INOUT");
each_harmless(0, qr/shard 8 is there/, 'create', '--like', 7, '--shard', 8);
is($node->safe_psql('postgres', q{SELECT rolsuper FROM pg_roles WHERE rolname = 'planter'}), 'f', 'his type\'s name has not run');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_cast WHERE casttarget IN ('insta7.mood'::regtype, 'insta8.mood'::regtype)}), 2, '... and the cast is there');
each_harmless(0, qr/^$/, 'diff', '--shard', '7,8');
$node->safe_psql('postgres', 'SET client_min_messages = warning; SELECT snowid.drop_shard(i, true) FROM generate_series(7, 8) i');

# Whoever trusts him says so.
each_ok($node, 0, qr/1 shards done/, '--name', 'trusted', '--file', $file, '--shard', 4, '--trust-owners');
each_ok($node, 0, qr/shard 6 is there/, 'create', '--like', 2, '--shard', 6, '--trust-owners');
$node->safe_psql('postgres', 'SELECT snowid.drop_shard(6, true); DROP TABLE insta4.photos');

# A ledger of ours in his schema is none: he can drop it, and put another in its place.
as_planter('SELECT snowid.create_shard(10)');
$node->safe_psql('postgres', 'CREATE TABLE insta10.snowid_migrations AS TABLE insta0.snowid_migrations');
each_harmless(1, qr/--trust-owners: shards 2-4,10\n.*^table\n  done: 2 shards: 0-1\n  not begun: 4 shards: 2-4,10$/ms, 'status');
each_ok($node, 1, qr/^table\n  done: 3 shards: 0-1,10\n/m, 'status', '--trust-owners');
$node->safe_psql('postgres', 'SELECT snowid.drop_shard(10, true)');

# Their owner may, but reads no other's ledgers; a superuser as the owner may not, since
# his session can be a superuser's again.
my ($code, $said) = snowid_each('--registry', $node->connstr('postgres') . ' user=planter', '--name', 'mine', '--file', $file, '--shard', '2,4');
is($code, 0, 'the owner may run a script') or diag $said;
($code, $said) = snowid_each('--registry', $node->connstr('postgres') . ' user=planter', 'status');
like($said, qr/are not read; .*: shards 0-1\n.*^mine\n  done: 2 shards: 2,4\n/ms, '... and see the status of his shards');

{
	local $ENV{PGOPTIONS} = '-c role=planter';
	each_harmless(1, qr/of another role: planter/, '--name', 'mine', '--file', $file, '--shard', '2,4');
}

# Nor is a superuser's script run where a lesser role has, or may put, something into a schema
# of the path: what is nearer to the types of a call is called, wherever it is.
$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET search_path; SELECT snowid.create_shard(9); CREATE TABLE insta9.t (v varchar)');
my $near = script_file("INSERT INTO t VALUES ('x'); SELECT v = v, near(v) FROM t");
sub plant
{
	my ($schema) = @_;
	as_planter(qq{
CREATE FUNCTION $schema.near(varchar) RETURNS boolean LANGUAGE sql AS \$\$SELECT evil.bite('near') = ''\$\$;
CREATE FUNCTION $schema.equal(varchar, varchar) RETURNS boolean LANGUAGE sql AS \$\$SELECT evil.bite('=') = ''\$\$;
CREATE OPERATOR $schema.= (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = $schema.equal)});
	return;
}
sub path_refused
{
	my ($schema, $role, $type) = @_;
	my $whose = qr/schema \Q$schema\E of the search path is of another role: \Q$role\E\Q$type\E; connect as that role, or say --trust-owners/;
	each_harmless(1, $whose, '--name', 'near', '--shard', 9, '--file', $near);
	each_harmless(1, $whose, 'exec', '--name', 'near', '--shard', 9, '--', 'psql', '-Xc', 'SELECT v = v FROM t');
	each_harmless(1, $whose, '--name', 'near', '--each-server', '--file', $near);
	each_harmless(2, qr/registry: $whose/, 'query', '--shard', 9, 'SELECT v = v FROM t', '--then', 'TABLE answers');
	return;
}
sub script_refused
{
	my ($whose, $script) = @_;
	each_harmless(1, qr/schema public of the search path is of another role: \Q$whose\E(, who owns [^;]*)?; connect as that role, or say --trust-owners/, '--name', 'near', '--shard', 9, '--file', script_file($script));
	return;
}
$node->safe_psql('postgres', 'SET client_min_messages = warning; DROP SCHEMA snowid_each CASCADE');
as_planter(qq{CREATE SCHEMA "$superuser"; GRANT USAGE ON SCHEMA "$superuser" TO PUBLIC});
plant(qq{"$superuser"});
path_refused($superuser, 'planter', '');
as_planter(qq{SET client_min_messages = warning; DROP SCHEMA "$superuser" CASCADE});
plant('evil');
my @left = map { "CREATE $_" } 'FUNCTION public.near(varchar) RETURNS boolean LANGUAGE sql AS $$SELECT evil.near($1)$$',
  'OPERATOR public.= (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = evil.equal)';
my @drop = map { "DROP $_" } 'FUNCTION public.near(varchar)', 'OPERATOR public.= (varchar, varchar)';
for my $role ('planter', 'PUBLIC')
{
	$node->safe_psql('postgres', "GRANT CREATE ON SCHEMA public TO $role");
	path_refused('public', $role, ", by GRANT (type: REVOKE CREATE ON SCHEMA public FROM $role;)");
	as_planter(shift @left);
	$node->safe_psql('postgres', "REVOKE CREATE ON SCHEMA public FROM $role");
	path_refused('public', 'planter', '');
	$node->safe_psql('postgres', shift @drop);
}
for ([ q{VIEW public.near AS SELECT evil.bite('view') AS v}, 'VIEW public.near' ], [ q{TYPE public.near AS ENUM ('x')}, 'TYPE public.near' ],
	[ q{TABLE public.near (v text); CREATE RULE bites AS ON INSERT TO public.near DO ALSO SELECT evil.bite('rule')}, 'TABLE public.near' ])
{
	$node->safe_psql('postgres', 'GRANT CREATE ON SCHEMA public TO planter');
	as_planter("CREATE $_->[0]");
	$node->safe_psql('postgres', 'REVOKE CREATE ON SCHEMA public FROM planter');
	path_refused('public', 'planter', '');
	$node->safe_psql('postgres', "DROP $_->[1]");
}

# Nor may it have a table there, of which the script would run CHECKs and the like; nor a trigger on another's table.
$node->safe_psql('postgres', q{GRANT CREATE ON SCHEMA public TO planter});
as_planter(q{CREATE TABLE public.countries (name text PRIMARY KEY CHECK (evil.bite('check') <> ''))});
$node->safe_psql('postgres', q{REVOKE CREATE ON SCHEMA public FROM planter});
script_refused('planter', q{INSERT INTO countries VALUES ('x')});
$node->safe_psql('postgres', 'DROP TABLE public.countries; CREATE TABLE public.countries (name text PRIMARY KEY, id int UNIQUE); INSERT INTO public.countries VALUES (1, 1)');
for ([ 'TRIGGER ON public.countries', 'CREATE TRIGGER bite BEFORE INSERT ON public.countries FOR EACH ROW EXECUTE FUNCTION evil.bite()', 'DROP TRIGGER bite ON public.countries' ],
	[ 'REFERENCES ON public.countries', q{CREATE TABLE evil.child (id int REFERENCES public.countries (id) ON DELETE CASCADE); INSERT INTO evil.child VALUES (1);
		CREATE TRIGGER bite BEFORE DELETE ON evil.child FOR EACH ROW EXECUTE FUNCTION evil.bite()}, 'DROP TABLE evil.child' ],
	[ 'REFERENCES (id) ON public.countries', 'SELECT 1', 'SELECT 1' ],
	[ 'TRIGGER ON side.cities', 'CREATE TRIGGER bite BEFORE DELETE ON side.cities FOR EACH ROW EXECUTE FUNCTION evil.bite()', 'DROP SCHEMA side CASCADE' ])
{
	my ($right, $plants, $uproots) = @$_;
	my ($privilege) = $right =~ /^(\w+)/;
	my $script = q{INSERT INTO countries VALUES ('y', 2); DELETE FROM countries WHERE id = 1};
	my ($schema) = $right =~ / (\w+)\./;
	$node->safe_psql('postgres', 'CREATE SCHEMA side; GRANT USAGE ON SCHEMA side TO planter; CREATE TABLE side.cities (id int REFERENCES public.countries (id) ON DELETE CASCADE)') if $schema eq 'side';
	$node->safe_psql('postgres', "GRANT $right TO planter");
	script_refused("planter, by GRANT (type: REVOKE $privilege ON ALL TABLES IN SCHEMA $schema FROM planter;)", $script);
	as_planter($plants);
	$node->safe_psql('postgres', "REVOKE $right FROM planter");
	script_refused('planter', $script) if $plants =~ /bite/;
	$node->safe_psql('postgres', $uproots);
}
each_harmless(0, qr/1 shards done/, '--name', 'beside a table', '--shard', 9, '--file', script_file(q{INSERT INTO countries VALUES ('y', 2)}));
$node->safe_psql('postgres', 'DROP TABLE public.countries');

# Nor what a definition, made again as a text, would find in the place of another that it called.
$node->safe_psql('postgres', q{
CREATE SCHEMA util; GRANT USAGE, CREATE ON SCHEMA util TO planter;
CREATE FUNCTION util.size(anyarray) RETURNS int IMMUTABLE LANGUAGE sql SET search_path = pg_catalog AS 'SELECT cardinality($1)';
SELECT snowid.create_shard(60); CREATE TABLE insta60.t (id bigint PRIMARY KEY, tags text[] CHECK (util.size(tags) > 0)); CREATE INDEX ON insta60.t (util.size(tags))});
as_planter(q{CREATE FUNCTION util.size(text[]) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN length(evil.bite($$size$$)); END'});
each_harmless(2, qr/ calls util\.size\(anyarray\); planter may (have|put) in schema util one that fits better.*\n.*Type there: \Q$_\E;/,
	'create', '--like', 60, '--shard', 61), $node->safe_psql('postgres', $_) for 'DROP ROUTINE util.size(text[])', 'REVOKE CREATE ON SCHEMA util FROM planter CASCADE';
$node->safe_psql('postgres', 'ALTER SCHEMA util OWNER TO planter; REVOKE CREATE ON SCHEMA util FROM planter');
each_harmless(2, qr/planter, who owns the schema or extension of function util\.size\(/, 'create', '--like', 60, '--shard', 61);
# Who could be us anyway may own both, but nobody else put something beside.
$node->safe_psql('postgres', qq{CREATE ROLE alike; GRANT "$superuser" TO alike; ALTER SCHEMA util OWNER TO alike; ALTER FUNCTION util.size(anyarray) OWNER TO alike; GRANT CREATE ON SCHEMA util TO planter});
each_harmless(2, qr/planter may put in schema util one/, 'create', '--like', 60, '--shard', 61);
$node->safe_psql('postgres', 'REVOKE CREATE ON SCHEMA util FROM planter');
# Who has passed a right on may be a superuser by now, from whom no REVOKE takes it away.
$node->safe_psql('postgres', q{CREATE ROLE giver; GRANT CREATE ON SCHEMA util TO giver WITH GRANT OPTION; GRANT TRIGGER ON insta60.t TO giver WITH GRANT OPTION;
	GRANT USAGE ON SCHEMA util, insta60 TO giver; SET ROLE giver; GRANT CREATE ON SCHEMA util TO planter; GRANT TRIGGER ON insta60.t TO planter; RESET ROLE; ALTER ROLE giver SUPERUSER});
for ('TRIGGER ON ALL TABLES IN SCHEMA insta60', 'CREATE ON SCHEMA util')
{
	my $type = "ALTER ROLE giver NOSUPERUSER; REVOKE GRANT OPTION FOR $_ FROM giver CASCADE";
	each_harmless(2, qr/[Tt]ype(: | there: )$type;/, 'create', '--like', 60, '--shard', 61);
	$node->safe_psql('postgres', "$type; ALTER ROLE giver SUPERUSER");
}
each_harmless(0, qr/shard 61 is there/, 'create', '--like', 60, '--shard', 61);
$node->safe_psql('postgres', 'SELECT snowid.drop_shard(60, true), snowid.drop_shard(61, true); DROP SCHEMA util CASCADE; DROP OWNED BY alike, giver; DROP ROLE alike, giver');

# Who is no superuser has rights, too, and trusts his groups.
$node->safe_psql('postgres', q{
CREATE ROLE lesser LOGIN; SELECT snowid.create_shard(60); ALTER SCHEMA insta60 OWNER TO lesser; ALTER FUNCTION insta60.next_id() OWNER TO lesser; ALTER SEQUENCE insta60.id_seq OWNER TO lesser;
GRANT USAGE ON SCHEMA snowid, snowid_internal TO lesser; GRANT SELECT ON snowid.shard_registry, snowid.moves TO lesser; GRANT CREATE ON SCHEMA public TO planter});
{
	local $ENV{PGUSER} = 'lesser';
	each_ok($node, 1, qr/schema public of the search path is of another role: planter, by GRANT/, '--name', 'lesser', '--shard', 60, '--file', script_file('SELECT 1'));
	$node->safe_psql('postgres', 'GRANT planter TO lesser', extra_params => [ '-U', $superuser ]);
	each_ok($node, 0, qr/1 shards done/, '--name', 'lesser', '--shard', 60, '--file', script_file('SELECT 1'));
}
$node->safe_psql('postgres', 'REVOKE CREATE ON SCHEMA public FROM planter; SELECT snowid.drop_shard(60, true); DROP OWNED BY lesser; DROP ROLE lesser');

# ... nor of one that comes while the script runs.
each_harmless(0, qr/1 shards done/, '--name', 'later', '--shard', 9, '--file', script_file(
	qq{-- no transaction\nINSERT INTO t VALUES ('x');\nALTER SCHEMA evil RENAME TO "$superuser";\nSELECT v = v FROM t;\nALTER SCHEMA "$superuser" RENAME TO evil}));
$node->safe_psql('postgres', 'SELECT snowid.drop_shard(9, true)');

# What is a predefined role's: the owner of the database, who is a lesser role, has all that
# pg_database_owner has.
$node->safe_psql('postgres', q{
SET client_min_messages = warning;
SELECT snowid.create_shard(9);
CREATE TABLE insta9.t (v text);
ALTER TABLE insta9.t OWNER TO pg_database_owner;
ALTER DATABASE postgres OWNER TO planter});
my @insert = ('--name', 'predefined', '--shard', 9, '--file', script_file("INSERT INTO t VALUES ('x')"));
each_harmless(1, qr/of another role: planter/, @insert);
$node->safe_psql('postgres', 'ALTER DATABASE postgres OWNER TO CURRENT_USER');
each_ok($node, 0, qr/1 shards done/, @insert);
$node->safe_psql('postgres', 'ALTER TABLE insta9.t OWNER TO pg_read_all_data');
each_harmless(1, qr/of another role: pg_read_all_data/, '--name', 'more', '--file', $file, '--shard', 9);

# Nor is what our own tables call run, if it is another role's, by whatever way they come to it.
$node->safe_psql('postgres', 'ALTER TABLE insta9.t OWNER TO CURRENT_USER');
as_planter(q{
CREATE DOMAIN evil.checked AS text CHECK (evil.bite(VALUE) > '');
CREATE VIEW evil.look AS SELECT evil.bite('view') AS v});
$node->safe_psql('postgres', q{
CREATE SCHEMA util;
CREATE DOMAIN util.checked AS text CHECK (evil.bite(VALUE) > '');
CREATE TYPE util.pair AS (a text, b util.checked[]);
CREATE VIEW util.look AS SELECT evil.bite('view') AS v;
CREATE OPERATOR util.=== (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.equal);
CREATE OPERATOR CLASS util.ops FOR TYPE text USING btree AS OPERATOR 3 evil.=, FUNCTION 1 bttextcmp(text, text)});
my $default = 'INSERT INTO t DEFAULT VALUES';
as_planter(q{
CREATE FUNCTION evil.step(a text, b text) RETURNS text LANGUAGE sql AS $$SELECT evil.bite('step')$$;
CREATE TABLE evil.base AS SELECT text 'x' AS v;
CREATE TABLE evil.parent (v text) PARTITION BY LIST ((evil.bite(v)));
CREATE TRIGGER bite BEFORE INSERT OR UPDATE ON evil.base FOR EACH ROW EXECUTE FUNCTION evil.bite();
CREATE TABLE evil.pk (id bigint PRIMARY KEY);
CREATE INDEX ON evil.pk (id) WHERE evil.bite('key') > '';
INSERT INTO evil.pk VALUES (1);
GRANT REFERENCES ON evil.pk TO PUBLIC});
for (
	[ q{ALTER TABLE insta9.t ADD CHECK (evil.bite('check') > '')} ], [ q{ALTER TABLE insta9.t ALTER v SET DEFAULT evil.bite('default')} ],
	[ 'ALTER TABLE insta9.t ADD w evil.checked' ], [ 'ALTER TABLE insta9.t ADD w util.checked', q{INSERT INTO t (w) VALUES ('x')} ],
	[ 'ALTER TABLE insta9.t ADD w util.pair', q{INSERT INTO t (w) VALUES (ROW('a', ARRAY['x']))} ],
	[ q{ALTER TABLE insta9.t ADD CHECK (v OPERATOR(util.===) 'x')}, q{INSERT INTO t VALUES ('x')} ],
	[ q{ALTER TABLE insta9.t ADD CHECK (v OPERATOR(evil.=) 'x')}, q{INSERT INTO t VALUES ('x')} ],
	[ q{ALTER TABLE insta9.t ADD EXCLUDE ((evil.bite('exclude')) WITH =)}, q{INSERT INTO t VALUES ('x')} ],
	[ q{ALTER TABLE insta9.t ADD EXCLUDE (v WITH =) WHERE (evil.bite('where') > '')}, q{INSERT INTO t VALUES ('x')} ],
	[ q{ALTER TABLE insta9.t ADD EXCLUDE (v util.ops WITH OPERATOR(evil.=))}, q{INSERT INTO t VALUES ('x'), ('y')} ],
	[ 'CREATE VIEW insta9.l AS TABLE evil.base', q{UPDATE l SET v = 'y'} ],
	[ 'CREATE RULE r AS ON INSERT TO insta9.t DO ALSO INSERT INTO evil.base VALUES (NEW.v)', q{INSERT INTO t VALUES ('x')} ],
	[ 'ALTER TABLE insta9.t ADD w int REFERENCES evil.pk', 'ALTER TABLE t ALTER w TYPE bigint USING w + 0' ],
	[ 'CREATE VIEW insta9.l AS TABLE util.look', 'SELECT * FROM l' ], [ 'CREATE VIEW insta9.l AS TABLE evil.look', 'SELECT * FROM l' ],
	[ q{CREATE TABLE util.part (v text CHECK (evil.bite('part') > '')); CREATE TABLE insta9.p (v text) PARTITION BY LIST (v);
		ALTER TABLE insta9.p ATTACH PARTITION util.part DEFAULT}, q{INSERT INTO p VALUES ('x')} ],
	[ q{CREATE TABLE insta9.l PARTITION OF evil.parent DEFAULT}, q{INSERT INTO l VALUES ('x')}, 'TABLE' ],
	[ q{CREATE FUNCTION insta9.made() RETURNS evil.checked LANGUAGE sql AS $$SELECT NULL$$; ALTER TABLE insta9.t ADD CHECK (insta9.made() IS NULL)}, q{INSERT INTO t VALUES ('x')} ],
	[ q{CREATE TYPE util.wrapped AS (n int); CREATE FUNCTION evil.wrap(i int) RETURNS util.wrapped LANGUAGE sql AS $$SELECT ROW(1)::util.wrapped$$; ALTER FUNCTION evil.wrap(int) OWNER TO planter; CREATE CAST (int AS util.wrapped) WITH FUNCTION evil.wrap(int) AS IMPLICIT; ALTER TABLE insta9.t ADD w util.wrapped},
		q{INSERT INTO t (w) VALUES (1)}, 'TYPE IF EXISTS util.wrapped CASCADE; DROP VIEW' ],
	[ q{CREATE AGGREGATE util.all_of(text) (sfunc = evil.step, stype = text); CREATE VIEW insta9.l AS SELECT util.all_of(v) FROM insta9.t}, q{SELECT * FROM l} ],
	[ q{CREATE TABLE util.child (CHECK (evil.bite('child') > '')) INHERITS (insta9.t); ALTER TABLE util.child NO INHERIT insta9.t;
		INSERT INTO util.child VALUES ('x'); ALTER TABLE util.child INHERIT insta9.t}, q{UPDATE t SET v = 'y'} ],
	# Until 17, what has been deleted by a cascade fires triggers as who deleted.
	[ q{ALTER TABLE insta9.t ADD PRIMARY KEY (v); INSERT INTO insta9.t VALUES ('x'); GRANT USAGE ON SCHEMA insta9 TO planter;
		GRANT REFERENCES ON insta9.t TO planter; SET SESSION AUTHORIZATION planter;
		CREATE TABLE evil.gone (v text REFERENCES insta9.t ON DELETE CASCADE);
		CREATE TRIGGER bite AFTER DELETE ON evil.gone FOR EACH ROW EXECUTE FUNCTION evil.bite(); INSERT INTO evil.gone VALUES ('x');
		RESET SESSION AUTHORIZATION; REVOKE REFERENCES ON insta9.t FROM planter}, 'DELETE FROM t' ])
{
	my ($make, $script, $kind) = @$_;
	$node->safe_psql('postgres', $make);
	each_harmless(1, qr/of another role: planter/, '--name', $make, '--shard', 9, '--file', script_file($script // $default));
	$node->safe_psql('postgres', 'SET client_min_messages = warning; DROP TABLE IF EXISTS insta9.p, util.child, evil.gone; DROP ' . ($kind // 'VIEW') . ' IF EXISTS insta9.l;
		DROP TABLE insta9.t; DROP FUNCTION IF EXISTS insta9.made(); CREATE TABLE insta9.t (v text)');
}

# ... nor by who could put another in the place of what is a superuser's.
$node->safe_psql('postgres', q{CREATE FUNCTION evil.theirs() RETURNS text LANGUAGE sql AS $$SELECT 'x'$$; ALTER TABLE insta9.t ALTER v SET DEFAULT evil.theirs()});
each_harmless(1, qr/of another role: planter, who owns the schema or extension of function evil\.theirs\(\); connect as/, '--name', 'theirs', '--shard', 9, '--file', script_file($default));
$node->safe_psql('postgres', 'DROP FUNCTION evil.theirs() CASCADE');

# Nor is a script run where a role could put its code while the script waits for a lock.
for ([ 'TRIGGER', 'ALL TABLES IN SCHEMA' ], [ 'REFERENCES', 'ALL TABLES IN SCHEMA' ], [ 'REFERENCES', 'ALL TABLES IN SCHEMA', 'REFERENCES (v) ON insta9.t' ], [ 'CREATE', 'SCHEMA' ])
{
	my ($right, $on, $granted) = @$_;
	for my $role ('planter', 'PUBLIC')
	{
		$node->safe_psql('postgres', 'GRANT ' . ($granted // "$right ON $on insta9") . " TO $role");
		each_harmless(1, qr/of another role: $role, by GRANT \(type: REVOKE $right ON $on insta9 FROM $role;\); connect as/,
			'--name', "by $role", '--shard', 9, '--file', $file);
		$node->safe_psql('postgres', "REVOKE $right ON $on insta9 FROM $role");
	}
}

# ... also on what the script makes, or on the ledger.
for ([ 'TRIGGER ON TABLES', ' IN SCHEMA insta9' ], [ 'TRIGGER ON TABLES', '' ], [ 'REFERENCES ON TABLES', ' IN SCHEMA insta9' ], [ 'CREATE ON SCHEMAS', '' ])
{
	my ($right, $in) = @$_;
	for my $role ('planter', 'PUBLIC')
	{
		my $type = "ALTER DEFAULT PRIVILEGES FOR ROLE $superuser$in REVOKE $right FROM $role;";
		$node->safe_psql('postgres', "ALTER DEFAULT PRIVILEGES$in GRANT $right TO $role");
		each_harmless(1, qr/of another role: $role, by default \(type: \Q$type\E\); connect as/, '--name', "default $role", '--shard', 9, '--file', $file);
		each_harmless(1, qr/of another role: $role, by default \(type: \Q$type\E\)/, '--name', "default $role", '--each-server', '--file', $file) if $in eq '';
		$node->safe_psql('postgres', $type);
	}
}
$node->safe_psql('postgres', 'CREATE ROLE another; ALTER DEFAULT PRIVILEGES FOR ROLE another GRANT TRIGGER ON TABLES TO planter;
	ALTER DEFAULT PRIVILEGES IN SCHEMA evil GRANT TRIGGER ON TABLES TO planter; ALTER DEFAULT PRIVILEGES IN SCHEMA insta9 GRANT SELECT ON TABLES TO planter');

# Who only uses what is in the shard cannot stop it.
$node->safe_psql('postgres', q{
CREATE DOMAIN insta9.plain AS text;
CREATE TABLE insta9.k (v insta9.plain PRIMARY KEY);
GRANT USAGE ON SCHEMA insta9 TO planter;
GRANT SELECT, REFERENCES ON insta9.k TO planter});
as_planter(q{
CREATE DOMAIN evil.over AS insta9.plain CHECK (evil.bite(VALUE) > '');
CREATE TABLE evil.keys (v text REFERENCES insta9.k CHECK (evil.bite(v) > ''));
CREATE TRIGGER t BEFORE TRUNCATE ON evil.keys EXECUTE FUNCTION evil.bite();
CREATE VIEW evil.over_k AS SELECT evil.bite(v) FROM insta9.k});
$node->safe_psql('postgres', 'REVOKE REFERENCES ON insta9.k FROM planter');
each_harmless(1, qr/of another role: planter, who owns table evil\.keys; connect as/, '--name', 'emptied', '--shard', 9, '--file', script_file(q{TRUNCATE k CASCADE}));
as_planter('DROP TABLE evil.keys');
each_harmless(0, qr/1 shards done/, '--name', 'used', '--shard', 9, '--file', script_file(q{INSERT INTO k VALUES ('x'); SELECT * FROM k}));
$node->safe_psql('postgres', 'SET client_min_messages = warning; DROP DOMAIN insta9.plain CASCADE');
$node->safe_psql('postgres', 'SET client_min_messages = warning; SELECT snowid.drop_shard(9, true)');

# Names.
$node->safe_psql('postgres', 'SELECT snowid.drop_shard(i, true) FROM generate_series(2, 4) i');
my $name = q{it's "odd" \\ $$; %s 50%};
each_harmless(0, qr/2 shards done/, '--name', $name, '--file', script_file(q{SELECT '%s%n', $a$'\\$a$; CREATE INDEX "i'" ON photos (id)}));
each_harmless(0, qr/^\Q$name\E\n  done: 2 shards: 0-1$/m, 'status');
each_harmless(0, qr/2 had it/, '--name', $name);
each_harmless(0, qr/2 shards done/, '--name', "$name.", '--file', script_file("-- no transaction\nVACUUM photos"));
each_harmless(0, qr/shard 5 is there/, 'create', '--like', 1, '--shard', 5);
is($node->safe_psql('postgres', 'SELECT schema FROM snowid.shard_registry WHERE shard = 5'), 'we"ird $$ (5', 'a shard like one without its number');
each_harmless(0, qr/^$/, 'diff');

done_testing();
