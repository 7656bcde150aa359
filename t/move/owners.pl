# Whose rights a shard's own functions get on the servers that it moves between.
# Its owner is no superuser, and whoever moves it is one.  Where they would run as
# a superuser, the move refuses until it is told that the owner is trusted: before
# 16 that is everything which replication evaluates; on all versions, what COPY
# calls, and what is simplified when a query is planned or a partition attached.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run ();
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b');
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid; CREATE ROLE app') for $a, $b;
my $old = $b->safe_psql('postgres', 'SHOW server_version_num') < 160000;

# Each place where a table has an expression writes into the log who ran it.
my $note = q{
CREATE FUNCTION insta5.note(place text) RETURNS boolean IMMUTABLE LANGUAGE plpgsql
AS $$BEGIN RAISE LOG 'RAN % as %', place, current_user; RETURN true; END$$;
};
$a->safe_psql('postgres', q{
SELECT snowid.create_shard(5);
} . $note . q{
CREATE FUNCTION insta5.fire() RETURNS trigger LANGUAGE plpgsql
AS $$BEGIN RAISE LOG 'RAN trigger as %', current_user; RETURN NEW; END$$;
CREATE DOMAIN insta5.checked AS text CHECK (insta5.note('domain ' || VALUE));
CREATE TABLE insta5.t (
	id bigint PRIMARY KEY DEFAULT insta5.next_id(),
	v insta5.checked,
	g boolean GENERATED ALWAYS AS (insta5.note('generated ' || id)) STORED,
	CHECK (insta5.note('check ' || id)));
CREATE INDEX ON insta5.t (insta5.note('index ' || id));
CREATE INDEX ON insta5.t (id) WHERE insta5.note('constant of an index');
CREATE TRIGGER fire BEFORE INSERT ON insta5.t FOR EACH ROW EXECUTE FUNCTION insta5.fire();
CREATE TABLE insta5.p (id bigint, CONSTRAINT given CHECK (insta5.note('constant of a parent'))) PARTITION BY RANGE (id);
CREATE TABLE insta5.p1 (id bigint PRIMARY KEY, CONSTRAINT own CHECK (insta5.note('constant of a partition')),
	CONSTRAINT given CHECK (insta5.note('constant of a parent')));
ALTER TABLE insta5.p ATTACH PARTITION insta5.p1 FOR VALUES FROM (0) TO (100);
CREATE VIEW insta5.look AS SELECT insta5.note('constant of a view') AS seen;
CREATE STATISTICS insta5.s ON (insta5.note('statistics ' || id)), id FROM insta5.t;
INSERT INTO insta5.t (v) SELECT 'x' FROM generate_series(1, 5);
INSERT INTO insta5.p VALUES (1);
ALTER SCHEMA insta5 OWNER TO app;
ALTER TABLE insta5.t OWNER TO app;
ALTER TABLE insta5.p OWNER TO app;
ALTER TABLE insta5.p1 OWNER TO app;
ALTER VIEW insta5.look OWNER TO app;
ALTER DOMAIN insta5.checked OWNER TO app;
ALTER FUNCTION insta5.note(text) OWNER TO app;
ALTER FUNCTION insta5.fire() OWNER TO app;
});

# What ran as a superuser on these servers since.
sub ran_as_superuser
{
	my (%since) = @_;
	my $superuser = $a->safe_psql('postgres', 'SELECT current_user');
	my %ran;

	for my $node ($a, $b)
	{
		for (slurp_file($node->logfile, $since{ $node->name }) =~ /RAN (.*)/g)
		{
			$ran{$1}++ if /^(.*?)(?: [\dx]+)? as \Q$superuser\E$/;
		}
	}
	return join ', ', sort keys %ran;
}

my %since = map { $_->name => -s $_->logfile } $a, $b;
my $said = moves_ok($a, $b, 5, [], 1, 'an owner who is no superuser', qr/FAILED +owners: .*--trust-owners/s);
like($said, qr/owners(?: on the target)?: \Q$_\E/, "it names $_")
  for 'constraint t_id_check on table insta5.t calls', 'constraint checked_check calls', 'default value for column g of table insta5.t calls',
  'constraint given on table insta5.p1 calls insta5.note(text)', 'index insta5.t_note_idx calls',
  'index insta5.t_id_idx calls', 'statistics object insta5.s calls', $old ? 'app owns objects' : ();
nothing_left_ok($_, 'refused') for $a, $b;
is(ran_as_superuser(%since), '', 'nothing of his has run as a superuser');

# Without those, nothing does from 16 on.
$a->safe_psql('postgres', q{
DROP INDEX insta5.t_note_idx, insta5.t_id_idx;
DROP STATISTICS insta5.s;
ALTER TABLE insta5.p DROP CONSTRAINT given;
ALTER TABLE insta5.p1 DROP CONSTRAINT own, DROP CONSTRAINT IF EXISTS given;
});
$a->safe_psql('postgres', q{
ALTER TABLE insta5.t DROP CONSTRAINT t_id_check, DROP g;
ALTER DOMAIN insta5.checked DROP CONSTRAINT checked_check}) if !$old;
%since = map { $_->name => -s $_->logfile } $a, $b;
my @trust = $old ? ('--trust-owners') : ();
moves_ok($a, $b, 5, [ @trust, '--stop-after', 'copied' ], 0, 'copied');
$a->safe_psql('postgres', q{INSERT INTO insta5.t (v) VALUES ('x'); UPDATE insta5.t SET v = 'xx'; INSERT INTO insta5.p VALUES (2)});
%since = (a => -s $a->logfile, b => $since{b});

# Nor can he add what the comparison would be planned with, on either side.
my $busy = $b->background_psql('postgres');
$busy->query_safe('BEGIN; LOCK insta5.p1 IN SHARE UPDATE EXCLUSIVE MODE');
my $tool = IPC::Run::start([ move_command($a, $b, 5, @trust, '--verify', 'checksums') ], '>&', \$said, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
if (!$old)
{
	$tool->pump_nb while $tool->pumpable && $b->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE relation = 'insta5.p1'::regclass AND NOT granted}) eq '0';
	ok($tool->pumpable, 'the comparison waits for whoever has locked a table') or diag $said;
	for my $sql (q{CREATE INDEX ON insta5.t ((insta5.note('index later')))}, q{CREATE STATISTICS ON (insta5.note('statistics later')), id FROM insta5.t})
	{
		is(sqlstate($_, "SET lock_timeout = '100ms'; SET ROLE app; $sql"), '55P03', "as its owner would for it: $sql") for $a, $b;
	}
}
$busy->quit;
ok(eval { $tool->finish; $? == 0 }, 'moved') or diag $said;
my $ran = ran_as_superuser(%since);
if ($old)
{
	like($ran, qr/check, /, 'before 16, his functions do run as a superuser');
}
else
{
	is($ran, '', 'nothing of his has run as a superuser');
}
is($b->safe_psql('postgres', 'SELECT count(*) FROM insta5.t'), 6, 'all rows are there');
moves_ok($a, $b, 5, ['finish'], 0, 'finished');
nothing_left_ok($_, 'finished') for $a, $b;

# Nor an index on a large table, between two ranges of it: those are read only if he is trusted.
if (!$old)
{
	$b->safe_psql('postgres', 'SELECT snowid.drop_shard(5, true)');
	$_->[0]->safe_psql('postgres', "CREATE FUNCTION public.hold(i int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS 'BEGIN $_->[1]; END'")
	  for [ $a, 'RETURN true' ], [ $b, 'PERFORM pg_advisory_xact_lock_shared(47); RETURN true' ];
	for my $trust ('', '--trust-owners')
	{
		$a->safe_psql('postgres', q{
SELECT snowid.create_shard(9);
GRANT USAGE, CREATE ON SCHEMA insta9 TO app;
CREATE FUNCTION insta9.note(place text) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$BEGIN RAISE LOG 'RAN % as %', place, current_user; RETURN true; END$$;
CREATE TABLE insta9.t (id int PRIMARY KEY CHECK (id > 1 OR public.hold(id)), v text);
ALTER TABLE insta9.t ALTER v SET STORAGE PLAIN, OWNER TO app;
INSERT INTO insta9.t SELECT i, repeat('x', 7500) FROM generate_series(1, 17000) i});
		my $hold = $b->background_psql('postgres');
		$hold->query_safe('SELECT pg_advisory_lock(47)');
		%since = map { $_->name => -s $_->logfile } $a, $b;
		$said = '';
		$tool = IPC::Run::start([ move_command($a, $b, 9, '--jobs', 1, '--stop-after', 'copied', $trust || ()) ], '>&', \$said, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
		wait_until_held($b) or die 'does not get there';
		$a->safe_psql('postgres', q{SET ROLE app; CREATE INDEX ON insta9.t ((insta9.note('index of a large table')))});
		$hold->quit;
		$tool->finish;
		like($said, qr/copied 13\d of about 13\d MB/, 'it is copied');
		is(ran_as_superuser(%since), $trust ? 'index of a large table' : '', $trust ? '... in ranges, if he is trusted' : '... and nothing of his has run');
		moves_ok($a, $b, 9, ['abort'], 0, 'aborted');
		$a->safe_psql('postgres', 'SELECT snowid.drop_shard(9, true)');
	}
}

# Whoever owns a schema on the target can put a function of his own in the place of another's.
$_->safe_psql('postgres', q{
CREATE SCHEMA util AUTHORIZATION app;
CREATE FUNCTION util.f(text) RETURNS boolean IMMUTABLE LANGUAGE sql RETURN true}) for $a, $b;
$a->safe_psql('postgres', 'SELECT snowid.create_shard(6); CREATE TABLE insta6.t (id bigint PRIMARY KEY, v text CHECK (util.f(v)))');
my $theirs = qr/FAILED +owners: constraint t_v_check on table insta6.t calls util\.f\(text\), and app, who owns that schema, is no superuser/;
moves_ok($a, $b, 6, ['plan'], 1, 'a schema of a lesser role', $theirs);
moves_ok($a, $b, 6, ['plan', '--trust-owners'], 0, '... who is trusted');
$b->safe_psql('postgres', 'ALTER SCHEMA util OWNER TO pg_database_owner');
moves_ok($a, $b, 6, ['plan'], 0, "the database's owner is a superuser");
# So are the operators of exclusion constraints.
$_->safe_psql('postgres', q{
CREATE FUNCTION util.same(text, text) RETURNS boolean IMMUTABLE LANGUAGE sql RETURN $1 OPERATOR(pg_catalog.=) $2;
CREATE OPERATOR util.=== (FUNCTION = util.same, LEFTARG = text, RIGHTARG = text, COMMUTATOR = OPERATOR(util.===));
CREATE OPERATOR CLASS util.hashed FOR TYPE text USING hash AS OPERATOR 1 util.===, FUNCTION 1 hashtext(text);
ALTER FUNCTION util.same(text, text) OWNER TO app}) for $a, $b;
$a->safe_psql('postgres', 'ALTER TABLE insta6.t ADD EXCLUDE USING hash (v util.hashed WITH OPERATOR(util.===))');
moves_ok($a, $b, 6, ['plan'], 1, 'an operator that excludes', qr/FAILED +owners: constraint t_v_excl on table insta6.t calls util\.same\(text,text\), whose owner is no superuser/);
$a->safe_psql('postgres', 'ALTER TABLE insta6.t DROP CONSTRAINT t_v_excl');
$b->safe_psql('postgres', 'ALTER DATABASE postgres OWNER TO app');
moves_ok($a, $b, 6, ['plan'], 1, '... or is not', $theirs);
$b->safe_psql('postgres', 'ALTER DATABASE postgres OWNER TO CURRENT_USER');
$a->safe_psql('postgres', 'SELECT snowid.drop_shard(6, true)');

# All of a shard can be the database's owner's, by the role that stands for him: a lesser one's
# functions are refused there, too, and what is left moves.
$a->safe_psql('postgres', q{
SELECT snowid.create_shard(7);
CREATE FUNCTION insta7.note(text) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$BEGIN RAISE LOG 'RAN own as %', current_user; RETURN true; END$$;
CREATE TABLE insta7.t (id bigint PRIMARY KEY DEFAULT insta7.next_id(), v text CHECK (insta7.note(v)));
INSERT INTO insta7.t (v) VALUES ('x');
ALTER SCHEMA insta7 OWNER TO pg_database_owner;
ALTER TABLE insta7.t OWNER TO pg_database_owner;
ALTER SEQUENCE insta7.id_seq OWNER TO pg_database_owner;
ALTER FUNCTION insta7.next_id() OWNER TO pg_database_owner;
ALTER FUNCTION insta7.note(text) OWNER TO pg_database_owner});
$_->safe_psql('postgres', 'ALTER DATABASE postgres OWNER TO app') for $a, $b;
%since = map { $_->name => -s $_->logfile } $a, $b;
moves_ok($a, $b, 7, [], 1, "the database's owner's functions", qr/FAILED +owners: constraint t_v_check on table insta7.t calls insta7\.note\(text\)/);
$a->safe_psql('postgres', 'ALTER TABLE insta7.t DROP CONSTRAINT t_v_check') if !$old;
moves_ok($a, $b, 7, [ @trust, '--stop-after', 'copied' ], 0, "the database's owner's shard is copied");
$a->safe_psql('postgres', q{INSERT INTO insta7.t (v) VALUES ('y')});
moves_ok($a, $b, 7, [@trust], 0, '... and moved');
is(ran_as_superuser(%since), '', 'nothing of his has run as a superuser') if !$old;
is($b->safe_psql('postgres', q{SELECT count(*), (SELECT relowner::regrole FROM pg_class WHERE oid = 'insta7.t'::regclass) FROM insta7.t}), '2|pg_database_owner', 'it is his there');
moves_ok($a, $b, 7, ['finish'], 0, 'finished');
$_->safe_psql('postgres', 'ALTER DATABASE postgres OWNER TO CURRENT_USER') for $a, $b;
$b->safe_psql('postgres', 'SELECT snowid.drop_shard(7, true)');

# What calls another after the checks, when pg_dump has begun, or pg_restore makes what follows the rows.
my $dir = PostgreSQL::Test::Utils::tempdir();
my ($bindir) = run_command([ 'pg_config', '--bindir' ]);
append_to_file("$dir/swap.sql", q{
ALTER FUNCTION util.f(text) OWNER TO app;
CREATE OR REPLACE FUNCTION util.f(text) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$BEGIN RAISE LOG 'RAN % as %', $1, current_user; RETURN true; END$$});
my $swap = "$bindir/psql -Xq -d '" . $b->connstr('postgres') . "' -f $dir/swap.sql";
for my $case ([ 'pg_dump', '--version) false', 'CREATE TABLE insta6.t (id bigint PRIMARY KEY, v text CHECK (util.f(v)))', 'constraint t_v_check on table insta6.t' ],
	[ 'pg_restore', '*post-data*) true', 'CREATE TABLE insta6.t (id bigint PRIMARY KEY, v text); CREATE INDEX i ON insta6.t (util.f(v))', 'index insta6.i' ])
{
	my ($program, $when, $table, $caller) = @$case;
	for my $name ('pg_dump', 'pg_restore')
	{
		unlink "$dir/$name";
		append_to_file("$dir/$name", "#!/bin/sh\n"
			. ($name eq $program ? "case \"\$*\" in $when ;; *) " . ($name eq 'pg_dump' ? 'true' : 'false') . " ;; esac && $swap\n" : '')
			. "exec $bindir/$name \"\$@\"\n");
		chmod 0755, "$dir/$name";
	}
	$_->safe_psql('postgres', q{
DROP SCHEMA IF EXISTS util CASCADE;
CREATE SCHEMA util;
CREATE FUNCTION util.f(text) RETURNS boolean IMMUTABLE LANGUAGE sql RETURN true}) for $a, $b;
	$a->safe_psql('postgres', "SELECT snowid.create_shard(6); $table; INSERT INTO insta6.t VALUES (1, 'swapped')");
	%since = map { $_->name => -s $_->logfile } $a, $b;
	moves_ok($a, $b, 6, [ '--bindir', $dir ], 1, "a function that is swapped before $program", qr/(target|owners): \Q$caller\E calls util\.f\(text\), whose owner is no superuser.*--trust-owners/s);
	is(ran_as_superuser(%since), '', 'it has not run as a superuser') if $program eq 'pg_dump';
	moves_ok($a, $b, 6, ['abort'], 0, 'abort');
	$a->safe_psql('postgres', 'SELECT snowid.drop_shard(6, true)');
}

# What a schema says of its owner since before the move is believed by no step: an earlier owner may have had it say so.
unlink "$dir/pg_restore", "$dir/pg_dump";
symlink "$bindir/pg_dump", "$dir/pg_dump";
append_to_file("$dir/pg_restore", "#!/bin/sh\ncase \"\$*\" in *post-data*) exit 1 ;; esac\nexec $bindir/pg_restore \"\$@\"\n");
chmod 0755, "$dir/pg_restore";
for my $trust ('', '--trust-owners')
{
	$a->safe_psql('postgres', q{
SELECT snowid.create_shard(6);
CREATE TABLE insta6.t (id int PRIMARY KEY);
ALTER SCHEMA insta6 OWNER TO app;
SET ROLE app;
COMMENT ON SCHEMA insta6 IS E'snowid: of shard 6\nsnowid: owner {"owner": "app", "rights": [{"right": "ALL ON SCHEMA insta6 TO app; ALTER ROLE app SUPERUSER; GRANT ALL", "to": null}]}\nits own';
RESET ROLE;
ALTER SCHEMA insta6 OWNER TO CURRENT_USER});
	moves_ok($a, $b, 6, [ $trust || (), '--bindir', $dir ], 1, 'keys are not made', qr/this is missing: t t_pkey/);
	moves_ok($a, $b, 6, [ $trust || (), '--stop-after', 'copied' ], 0, 'then they are');
	my $facts = q{SELECT nspowner::regrole, nspacl, obj_description(oid), (SELECT rolsuper FROM pg_roles WHERE rolname = 'app') FROM pg_namespace WHERE nspname = 'insta6'};
	is($b->safe_psql('postgres', $facts), $a->safe_psql('postgres', $facts), '... and the schema is as it was');
	moves_ok($a, $b, 6, ['abort'], 0, 'undone');

	# Nor does it have any statement run, if it is of this move.
	moves_ok($a, $b, 6, [ $trust || (), '--bindir', $dir ], 1, 'again', qr/this is missing: t t_pkey/);
	my $move = $b->safe_psql('postgres', q{SELECT details ->> 'move_id' FROM snowid.moves});
	$b->safe_psql('postgres', qq{COMMENT ON SCHEMA insta6 IS E'snowid: of shard 6\\nsnowid: owner at move $move {"owner": "app", "rights": [{"right": "ALL ON SCHEMA insta6 TO app; ALTER ROLE app SUPERUSER; GRANT ALL"}]}'});
	moves_ok($a, $b, 6, [ $trust || () ], 1, '... a comment', qr/the copy is not as the shard is: on the target, .*Owner: app/);
	is($b->safe_psql('postgres', q{SELECT rolsuper FROM pg_roles WHERE rolname = 'app'}), 'f', '... gives the schema at most');
	moves_ok($a, $b, 6, ['abort'], 0, 'undone');
	$a->safe_psql('postgres', 'SELECT snowid.drop_shard(6, true)');
}

# As long as pg_restore makes foreign keys, which are queries of ours, the owner cannot add what these
# would be planned with; what he adds once he has the schema is looked at before it goes on.
if (!$old)
{
	unlink "$dir/pg_restore", "$dir/pg_dump", "$dir/swap.sql";
	symlink "$bindir/pg_dump", "$dir/pg_dump";
	$_->safe_psql('postgres', q{
CREATE SCHEMA own AUTHORIZATION app;
SET ROLE app;
CREATE FUNCTION own.note(place text) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$BEGIN RAISE LOG 'RAN % as %', place, current_user; RETURN true; END$$}) for $a, $b;
	$a->safe_psql('postgres', q{
SELECT snowid.create_shard(6);
CREATE TABLE insta6.t (id int PRIMARY KEY);
CREATE TABLE insta6.u (id int PRIMARY KEY REFERENCES insta6.t);
INSERT INTO insta6.t VALUES (1); INSERT INTO insta6.u VALUES (1);
COMMENT ON SCHEMA insta6 IS E'snowid: of shard 6\nsnowid: owner {"owner": "app"}\nits own';
GRANT USAGE ON SCHEMA insta6 TO PUBLIC;
ALTER SCHEMA insta6 OWNER TO app; ALTER TABLE insta6.t OWNER TO app; ALTER TABLE insta6.u OWNER TO app});
	append_to_file("$dir/swap.sql", q{SET ROLE app; CREATE INDEX later ON insta6.t ((own.note('index before a key')))});
	append_to_file("$dir/pg_restore", "#!/bin/sh\ncase \"\$*\" in *post-data*) $swap 2>>$dir/said; exit 1 ;; esac\nexec $bindir/pg_restore \"\$@\"\n");
	chmod 0755, "$dir/pg_restore";
	my $facts = q{SELECT nspowner::regrole, nspacl, obj_description(oid) FROM pg_namespace WHERE nspname = 'insta6'};
	%since = map { $_->name => -s $_->logfile } $a, $b;
	moves_ok($a, $b, 6, [ '--bindir', $dir ], 1, 'keys are not made', qr/this is missing: u u_id_fkey/);
	like(slurp_file("$dir/said"), qr/permission denied for schema insta6.*permission denied/s, 'nor is what he tries meanwhile');
	is($b->safe_psql('postgres', $facts), $a->safe_psql('postgres', $facts), 'then it is his again');
	$b->safe_psql('postgres', q{SET ROLE app; CREATE INDEX later ON insta6.t ((own.note('index before a key')))});
	moves_ok($a, $b, 6, [], 1, 'then he can', qr/target: index insta6\.later calls own\.note\(text\), whose owner is no superuser/);
	is(ran_as_superuser(%since), '', 'nothing of his has run as a superuser');
	$b->safe_psql('postgres', 'DROP INDEX insta6.later');
	moves_ok($a, $b, 6, [ '--stop-after', 'copied' ], 0, 'without that it is copied');
	is($b->safe_psql('postgres', $facts), $a->safe_psql('postgres', $facts), 'and his');
	moves_ok($a, $b, 6, ['abort'], 0, 'undone');

	# Nor can he add what a new partition would run as it becomes one: it is looked at before.
	$a->safe_psql('postgres', q{
SET ROLE app;
CREATE TABLE insta6.p (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE insta6.pd PARTITION OF insta6.p DEFAULT; INSERT INTO insta6.p VALUES (20)});
	moves_ok($a, $b, 6, [ '--stop-after', 'copied' ], 0, 'copied with a default partition');
	$a->safe_psql('postgres', 'SET ROLE app; CREATE TABLE insta6.p1 PARTITION OF insta6.p FOR VALUES FROM (0) TO (9)');
	unlink "$dir/pg_restore", "$dir/swap.sql";
	append_to_file("$dir/swap.sql", q{SET ROLE app; ALTER TABLE insta6.pd ADD CHECK (own.note('constant of a default partition'))});
	append_to_file("$dir/pg_restore", "#!/bin/sh\ncase \"\$*\" in *use-list*) $swap ;; esac\nexec $bindir/pg_restore \"\$@\"\n");
	chmod 0755, "$dir/pg_restore";
	%since = map { $_->name => -s $_->logfile } $a, $b;
	moves_ok($a, $b, 6, [ '--bindir', $dir ], 1, 'a new partition', qr/target: constraint pd_\w*check on table insta6\.pd calls own\.note\(text\)/);
	is(ran_as_superuser(%since), '', 'nothing of his has run as a superuser');
	$b->safe_psql('postgres', 'DO $$BEGIN EXECUTE (SELECT format($f$ALTER TABLE insta6.pd DROP CONSTRAINT %I$f$, conname) FROM pg_constraint WHERE conrelid = $r$insta6.pd$r$::regclass AND contype = $r$c$r$); END$$');
	moves_ok($a, $b, 6, ['abort'], 0, 'undone again');
}

# Who may create in the schema of a function that is called with a type of its own could have it found instead, as
# definitions are made again, and as functions are tried.
$_->safe_psql('postgres', q{
CREATE ROLE mal LOGIN; CREATE SCHEMA loose; GRANT USAGE, CREATE ON SCHEMA loose TO mal;
CREATE FUNCTION loose.size(anyarray) RETURNS int IMMUTABLE LANGUAGE sql SET search_path = pg_catalog AS 'SELECT cardinality($1)';
CREATE FUNCTION loose.ok(anyelement) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION loose.same(text, text) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT $1 = $2';
CREATE OPERATOR loose.=== (LEFTARG = text, RIGHTARG = text, FUNCTION = loose.same);
CREATE OPERATOR loose.!== (LEFTARG = text, RIGHTARG = text, FUNCTION = loose.same);
CREATE TYPE loose.pair AS (a int, b int);
CREATE FUNCTION loose.fine(loose.pair) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT true'}) for $a, $b;
$a->safe_psql('postgres', q{
SELECT snowid.create_shard(8);
CREATE TABLE insta8.t (id bigint PRIMARY KEY DEFAULT insta8.next_id(), n int CHECK (loose.ok(n)), tags text[]);
CREATE INDEX t_size ON insta8.t (loose.size(tags));
INSERT INTO insta8.t (n, tags) VALUES (1, '{a,b}');
CREATE TABLE insta8.names (name varchar(9) PRIMARY KEY); INSERT INTO insta8.names VALUES ('x');
CREATE MATERIALIZED VIEW insta8.seen AS SELECT 'x'::text OPERATOR(loose.===) ANY (SELECT name FROM insta8.names) AS seen;
CREATE RULE seldom AS ON UPDATE TO insta8.names WHERE OLD.name::text OPERATOR(loose.!==) ANY (SELECT name FROM insta8.names) DO ALSO NOTHING;
ALTER TABLE insta8.t ADD CONSTRAINT fine CHECK (loose.fine(ROW(n, n)))});
$_->safe_psql('postgres', q{
CREATE FUNCTION loose.size(text[]) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$BEGIN RAISE LOG 'RAN size as %', current_user; RETURN 1; END$$;
CREATE FUNCTION loose.ok(int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$BEGIN RAISE LOG 'RAN ok as %', current_user; RETURN true; END$$},
	extra_params => [ '-U', 'mal' ]) for $a, $b;
$_->safe_psql('postgres', q{
CREATE FUNCTION loose.same(text, varchar) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$BEGIN RAISE LOG 'RAN same as %', current_user; RETURN true; END$$;
CREATE OPERATOR loose.=== (LEFTARG = text, RIGHTARG = varchar, FUNCTION = loose.same);
CREATE OPERATOR loose.!== (LEFTARG = text, RIGHTARG = varchar, FUNCTION = loose.same);
CREATE FUNCTION loose.fine(record) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$BEGIN RAISE LOG 'RAN fine as %', current_user; RETURN true; END$$}, extra_params => [ '-U', 'mal' ]) for $a, $b;
%since = map { $_->name => -s $_->logfile } $a, $b;
for my $side ('source', 'target')
{
	my $node = $side eq 'source' ? $a : $b;
	my $calls = qr/[^\n]+ calls loose\.[^\n]+; mal/;

	# What he may put there; then what he has put there.
	for ([ 'may put in schema loose one that fits better', 'REVOKE CREATE ON SCHEMA loose FROM mal CASCADE' ], [ 'may have in schema loose one that fits better', 'DROP ROUTINE loose.ok(integer)' ],
		map { [ 'may have in schema loose one that fits better', "DROP $_" ] } 'ROUTINE loose.size(text[])', 'ROUTINE loose.fine(record)', map { "OPERATOR loose.$_(text,character varying)" } '===', '!==')
	{
		my ($what, $type) = @$_;
		my $says = qr/FAILED +names on the $side: $calls $what.*\n +As a superuser, type there: \Q$type\E; Or, .*--trust-owners/;
		moves_ok($a, $b, 8, [$_], 1, "$_, and the $side: $type", $says) for $type =~ /REVOKE/ ? ('plan', 'move') : 'plan';
		moves_ok($a, $b, 8, [ 'copy', '--as', 'insta8_copy' ], 1, "copy, and the $side: $type", qr/error: $side: $calls .* in schema loose one that fits better/);
		$node->safe_psql('postgres', $type);
	}
}
# Its owner may give himself the right again.
$_->safe_psql('postgres', 'ALTER SCHEMA loose OWNER TO mal; REVOKE CREATE ON SCHEMA loose FROM mal') for $a, $b;
moves_ok($a, $b, 8, ['plan'], 1, 'the owner of the schema', qr/names on the target: rule .* mal may put in schema loose .*\n.*ALTER SCHEMA loose OWNER TO /);
$_->safe_psql('postgres', 'ALTER SCHEMA loose OWNER TO CURRENT_USER') for $a, $b;
is(ran_as_superuser(%since), '', 'nothing of his has run as a superuser');
moves_ok($a, $b, 8, $_, 0, "@$_, when he may not") for [], ['finish'];
$b->safe_psql('postgres', 'SELECT snowid.drop_shard(8, true); DROP SCHEMA loose CASCADE');

done_testing();
