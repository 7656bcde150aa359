# What a shard uses outside of its schema may be another's: parts of its tables, tables that its keys
# lead to, domains, and what the indexes of these call.  Nothing of that runs as a superuser, either.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use EachTest;
use MoveTest;
use PostgreSQL::Test::Utils;
use RaceTest;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b');
$_->start for $a, $b;
$_->safe_psql('postgres', q{
CREATE EXTENSION snowid;
CREATE ROLE app LOGIN;
CREATE SCHEMA own AUTHORIZATION app;
CREATE FUNCTION public.fine(i int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN true; END';
SELECT snowid.create_shard(n) FROM generate_series(1, 5) n UNION ALL SELECT snowid.create_shard(n) FROM generate_series(7, 10) n;
CREATE TABLE insta1.p (id int PRIMARY KEY) PARTITION BY RANGE (id);
ALTER TABLE insta1.p OWNER TO app;
GRANT USAGE ON SCHEMA insta1 TO app;
CREATE TABLE insta2.p (id int, CHECK (public.fine(id))) PARTITION BY RANGE (id);
CREATE TABLE own.p2 PARTITION OF insta2.p (PRIMARY KEY (id)) FOR VALUES FROM (0) TO (100);
ALTER TABLE own.p2 OWNER TO app;
SET ROLE app;
CREATE FUNCTION own.note(place text) RETURNS boolean IMMUTABLE LANGUAGE plpgsql
AS $$BEGIN RAISE LOG 'RAN % as %', place, current_user; RETURN true; END$$;
CREATE TABLE own.p1 PARTITION OF insta1.p FOR VALUES FROM (0) TO (100);
INSERT INTO insta1.p VALUES (1);
CREATE INDEX ON own.p1 ((own.note('part')));
CREATE INDEX ON own.p2 ((own.note('part of a superuser''s')));
CREATE TABLE own.rates (id int PRIMARY KEY);
INSERT INTO own.rates VALUES (1);
CREATE INDEX ON own.rates ((own.note('key')));
CREATE DOMAIN own.email AS text;
CREATE TABLE own.base (id int);
CREATE TYPE own.like_it AS (id int);
CREATE TYPE own.addr AS (street int);
RESET ROLE;
CREATE TABLE public.plans (id int PRIMARY KEY);
CREATE INDEX ON public.plans ((own.note('index of a superuser''s')));
CREATE TABLE insta3.t (id bigint PRIMARY KEY, rate int REFERENCES own.rates);
CREATE TABLE insta4.t (id bigint PRIMARY KEY, mail own.email);
CREATE TABLE insta5.t (id bigint PRIMARY KEY, plan int REFERENCES public.plans);
CREATE TABLE insta7.t () INHERITS (own.base); ALTER TABLE insta7.t OWNER TO app;
CREATE TABLE insta8.t OF own.like_it; ALTER TABLE insta8.t OWNER TO app;
CREATE TABLE insta9.t (id int PRIMARY KEY, home own.addr);
CREATE ROLE reader LOGIN; GRANT pg_read_all_data TO reader;
CREATE TABLE insta10.t (id int PRIMARY KEY); ALTER TABLE insta10.t OWNER TO reader;
SELECT snowid.create_shard(n) FROM generate_series(11, 32) n;
SET ROLE app;
CREATE FUNCTION own.differ(i bigint, j bigint) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$BEGIN RETURN own.note('negator') AND i <> j; END$$;
CREATE OPERATOR own.=== (FUNCTION = pg_catalog.int8eq, LEFTARG = bigint, RIGHTARG = bigint);
CREATE OPERATOR own.!== (FUNCTION = own.differ, LEFTARG = bigint, RIGHTARG = bigint, NEGATOR = OPERATOR(own.===));
CREATE TYPE own.color AS ENUM ('red');
CREATE FUNCTION own.name(c own.color) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$BEGIN PERFORM own.note('cast'); RETURN 'red'; END$$;
CREATE FUNCTION own.compare(i int, j int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$BEGIN PERFORM own.note('class'); RETURN i - j; END$$;
CREATE VIEW own.look AS SELECT id FROM own.base;
CREATE OPERATOR own.=@ (FUNCTION = pg_catalog.int8eq, LEFTARG = bigint, RIGHTARG = bigint);
CREATE OPERATOR own.#== (FUNCTION = pg_catalog.int8eq, LEFTARG = bigint, RIGHTARG = bigint);
CREATE OPERATOR own.#!= (FUNCTION = own.differ, LEFTARG = bigint, RIGHTARG = bigint, NEGATOR = OPERATOR(own.#==));
RESET ROLE;
ALTER OPERATOR own.#==(bigint, bigint) OWNER TO CURRENT_USER;
CREATE TABLE insta25.t (id bigint PRIMARY KEY, CHECK (id OPERATOR(own.=@) 0));
CREATE TABLE insta26.t (id bigint PRIMARY KEY, v text); INSERT INTO insta26.t VALUES (1); GRANT TRIGGER ON insta26.t TO app; GRANT USAGE ON SCHEMA insta26 TO app;
CREATE TABLE public.par (id int, v int) PARTITION BY RANGE (id);
CREATE DOMAIN public.dom AS int CHECK (own.note(VALUE::text));
CREATE TABLE insta28.t (id bigint PRIMARY KEY, n int DEFAULT array_length('{1}'::public.dom[], 1));
CREATE TABLE insta29.t (id bigint PRIMARY KEY, CHECK (NOT (id OPERATOR(own.#==) 0)));
CREATE TYPE public.level AS ENUM ('low');
CREATE FUNCTION own.hash(l public.level) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$BEGIN PERFORM own.note('hash'); RETURN 1; END$$; ALTER FUNCTION own.hash(public.level) OWNER TO app;
CREATE OPERATOR CLASS public.levels DEFAULT FOR TYPE public.level USING hash AS FUNCTION 1 own.hash(public.level);
CREATE TABLE insta30.t (id bigint PRIMARY KEY, l public.level);
CREATE TABLE public.checked (id int PRIMARY KEY, CHECK (own.note('shared check')));
CREATE TABLE insta31.t (id bigint PRIMARY KEY, checked int REFERENCES public.checked);
CREATE MATERIALIZED VIEW insta32.m AS SELECT id FROM public.checked;
CREATE SCHEMA lib;
CREATE OPERATOR lib.=== (FUNCTION = pg_catalog.int8eq, LEFTARG = bigint, RIGHTARG = bigint);
CREATE TABLE insta11.t (id bigint PRIMARY KEY, CHECK (public.fine(1) AND NOT (id OPERATOR(own.===) 0))); INSERT INTO insta11.t VALUES (1);
CREATE TABLE insta12.c (name text PRIMARY KEY); INSERT INTO insta12.c VALUES ('red');
CREATE TABLE insta12.t (id bigint PRIMARY KEY, c own.color, CHECK (public.fine(1) AND c::text <> 'x'));
CREATE CAST (own.color AS text) WITH FUNCTION own.name(own.color) AS IMPLICIT;
ALTER TABLE insta12.t ADD FOREIGN KEY (c) REFERENCES insta12.c;
CREATE TABLE insta13.t (id bigint PRIMARY KEY);
CREATE MATERIALIZED VIEW insta13.m AS SELECT own.note('view') WITH NO DATA;
CREATE VIEW public.look AS SELECT id FROM own.look;
CREATE MATERIALIZED VIEW insta14.m AS SELECT count(*) FROM public.look;
CREATE TABLE insta15.t (id bigint PRIMARY KEY, CHECK (NOT (id OPERATOR(lib.===) 0)));
CREATE TABLE public.colors (c own.color);
CREATE VIEW insta16.v AS SELECT c::text FROM public.colors;
CREATE TABLE insta17.t (id bigint PRIMARY KEY); INSERT INTO insta17.t VALUES (1); ALTER TABLE insta17.t OWNER TO app;
CREATE SCHEMA theirs;
CREATE FUNCTION public.told(i int) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE LOG 'RAN told as %', current_user; RETURN true; END$$;
CREATE OPERATOR theirs.=== (FUNCTION = pg_catalog.int8eq, LEFTARG = bigint, RIGHTARG = bigint);
CREATE TYPE theirs.color AS ENUM ('red');
CREATE TABLE insta18.t (id bigint PRIMARY KEY, CHECK (public.told(1) AND NOT (id OPERATOR(theirs.===) 0)));
CREATE TABLE insta19.t (id bigint PRIMARY KEY, c theirs.color, CHECK (public.told(1) AND c::text <> 'x'));
CREATE FUNCTION public.hue() RETURNS own.color LANGUAGE plpgsql AS $$BEGIN RETURN 'red'; END$$;
CREATE FUNCTION public.shade() RETURNS theirs.color LANGUAGE plpgsql AS $$BEGIN RETURN 'red'; END$$;
CREATE OPERATOR CLASS public.ops FOR TYPE int USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 own.compare(int, int);
CREATE TABLE insta20.t (id bigint PRIMARY KEY, CHECK (public.told(1) AND public.shade()::text <> 'x'));
CREATE TABLE insta21.t (id bigint PRIMARY KEY, CHECK (public.hue()::text <> 'x'));
CREATE TABLE insta22.t (id bigint PRIMARY KEY, n int); CREATE INDEX ON insta22.t (n public.ops); INSERT INTO insta22.t VALUES (1, 1), (2, 2);
CREATE TABLE public.classes (id int PRIMARY KEY); INSERT INTO public.classes VALUES (1), (2); CREATE INDEX ON public.classes (id public.ops);
CREATE TABLE insta23.t (id bigint PRIMARY KEY, class int REFERENCES public.classes);
CREATE MATERIALIZED VIEW insta17.m AS SELECT id, own.note('his own view') FROM insta17.t; ALTER MATERIALIZED VIEW insta17.m OWNER TO app}) for $a, $b;
$a->safe_psql('postgres', q{
CREATE OR REPLACE FUNCTION own.note(place text) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$BEGIN RETURN true; END$$;
REFRESH MATERIALIZED VIEW insta13.m;
ALTER SCHEMA theirs OWNER TO app;
CREATE OR REPLACE FUNCTION own.note(place text) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$BEGIN RAISE LOG 'RAN % as %', place, current_user; RETURN true; END$$});
$a->safe_psql('postgres', q{CREATE EXTENSION citext SCHEMA lib; CREATE TABLE insta27.t PARTITION OF public.par FOR VALUES FROM (0) TO (10); INSERT INTO insta27.t VALUES (1, 1);
SET ROLE app;
CREATE TRIGGER snowid_fence BEFORE UPDATE ON insta26.t FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger('
--
-- Name: zz
DO $$BEGIN RAISE LOG $a$RAN literal as %$a$, current_user; END$$; --')});
$b->safe_psql('postgres', q{CREATE TABLE own.rest PARTITION OF public.par DEFAULT; ALTER TABLE own.rest OWNER TO app; ALTER TABLE own.rest ADD CHECK (own.note('sibling'))});
$b->safe_psql('postgres', 'GRANT CREATE ON SCHEMA lib TO app; GRANT CREATE ON DATABASE postgres TO app; SET ROLE app; CREATE EXTENSION citext SCHEMA lib');
$a->safe_psql('postgres', q{CREATE TABLE insta24.t (id bigint PRIMARY KEY, c lib.citext, CHECK (c OPERATOR(lib.<>) 'x'))});
$b->safe_psql('postgres', 'ALTER SCHEMA lib OWNER TO app; ALTER OPERATOR lib.===(bigint, bigint) OWNER TO app');
my $superuser = $a->safe_psql('postgres', 'SELECT current_user');

# What a command has run as the superuser, after it has ended so, and said so.
sub ran
{
	my ($title, $code, $says, $call) = @_;
	my %since = map { $_->name => -s $_->logfile } $a, $b;
	my ($ended, @said) = $call->();

	is($ended, $code, "$title: exit code") or diag(@said);
	like(join('', @said), $says, '... it says why');
	return join ', ', sort keys %{ { map { $_ => 1 } map { slurp_file($_->logfile, $since{ $_->name }) =~ /RAN (.*?) as \Q$superuser\E$/mg } $a, $b } };
}

sub refused
{
	my ($says, $shard, $code, @command) = @_;

	is(ran("shard $shard: @command", $code, qr/$says.*--trust-owners/s, sub { snowid_move($a, $b, $shard, @command) }), '', '... and nothing of his runs as the superuser');
	return;
}

my $part = qr/table insta\d\.p has the part own\.p\d, whose owner is no superuser/;
my $key = qr/own\.rates is not read: app owns it/;
refused($part, 1, 2, 'diff');
refused($part, 1, 1, 'restore', '--dry-run');
refused($part, 1, 1, 'copy');
is(ran('shard 1: trusted', 0, qr/^insta1\.p: /m, sub { snowid_move($a, $b, 1, 'diff', '--trust-owners') }), 'part', '... and then it does');
refused($key, 3, 1, 'copy');
refused(qr/a table has values of own\.email, whose owner/, 4, 1, 'copy');
refused(qr/public\.plans is not read: app owns it, its schema, or what its indexes call/, 5, 1, 'copy');
# He could give these a CHECK, or a domain for a column, without a right to use their schema.
refused(qr/table insta7\.t has what it has of own\.base, whose owner is no superuser/, 7, 1, 'copy');
refused(qr/table insta8\.t has what it has of own\.like_it, whose owner is no superuser/, 8, 1, 'copy');
# An attribute of that type could become one of his domain; and who may use all schemas needs no right on this one.
refused(qr/a table has values of own\.addr, whose owner is no superuser/, 9, 1, 'copy');
refused(qr/reader may use all schemas, and alter insta10\.t, whose owner is no superuser/, 10, 1, 'copy');
my $operator = qr/constraint t_id_check on table insta11\.t has the operator own\.===\(bigint,bigint\), whose owner is no superuser/;
refused($operator, 11, 1, 'copy');
refused(qr/has the operator own\.=\@\(bigint,bigint\), whose owner is no superuser/, 25, @$_) for [ 1, 'copy' ], [ 2, 'diff' ];
is(ran('a literal that looks like another entry', 0, qr/^/, sub { snowid_move($a, $b, 26, 'copy') }), '', '... is a literal');
refused(qr/table insta27\.t has what it has of public\.par, whose owner is no superuser/, 27, 1, 'copy');
refused(qr/constraint dom_check calls own\.note\(text\), whose owner/, 28, 1, 'copy');
refused(qr/constraint t_id_check on table insta29\.t calls own\.differ\(bigint,bigint\), whose owner/, 29, 1, 'copy');
refused(qr/operator class public\.levels for access method hash calls own\.hash\(public\.level\), whose owner/, 30, 1, 'copy');
refused(qr/public\.checked is not read: app owns/, 31, 1, 'copy');
refused(qr/constraint checked_check on table public\.checked calls own\.note\(text\), whose owner/, 32, 1, 'copy');
refused(qr/a table has values of own\.color, whose owner is no superuser/, @$_) for [ 12, 1, 'copy' ], [ 12, 2, 'diff' ], [ 16, 1, 'copy' ], [ 21, 1, 'copy' ];
refused(qr/operator class public\.ops for access method btree calls own\.compare\(integer,integer\), whose owner/, 22, @$_) for [ 1, 'copy' ], [ 2, 'diff' ];
refused(qr/public\.classes is not read: app owns/, 23, 1, 'copy');
refused(qr/rule _RETURN on materialized view insta13\.m calls own\.note\(text\), whose owner/, 13, 1, 'copy');
refused(qr/materialized views read own\.(base|look), whose owner/, 14, 1, 'copy');
refused(qr/has the operator lib\.===\(bigint,bigint\), whose owner/, 15, 1, 'copy');
is(ran('shard 17', 0, qr/^/, sub { snowid_move($a, $b, 17, 'copy') }), '', 'what fills his own view, does so as him');
is(ran('create --like', 2, qr/is of another role: app, who owns (table|index) own\.rates.*--trust-owners/s, sub { snowid_each(each_args($a), 'create', '--like', 3, '--shard', 6) }), '', '... and nothing runs');

# Who may make a table in a superuser's shard does not get one compared that was not there when it was looked.
my $make = [ 'sh', '-c', join ' ', (map { q(psql -XqAtU app -c 'CREATE TABLE insta6.z (id int PRIMARY KEY)' postgres >/dev/null 2>&1 -h ) . $_->host . ' -p ' . $_->port . ' &' } $a, $b), 'wait' ];
my %said;
$_->safe_psql('postgres', 'SELECT snowid.create_shard(6); CREATE TABLE insta6.t (id int PRIMARY KEY); GRANT USAGE, CREATE ON SCHEMA insta6 TO app') for $a, $b;
for my $n (1 .. 60)
{
	my ($more, $code, $said) = race([ $a, $b ], $n, $make, 'snowid-move', 'diff', '--shard', 6, '--from', relayed($a), '--to', relayed($b));

	last if !$more;
	$said{meanwhile}++ if $said =~ /a table of schema "insta6" was made meanwhile/;
	$said{compared}++ if $said =~ /^insta6\.z: /m;
	$_->safe_psql('postgres', 'SET client_min_messages = error; DROP TABLE IF EXISTS insta6.z') for $a, $b;
}
cmp_ok($said{meanwhile} // 0, '>=', 6, 'a table made meanwhile is told, at each instant on either side') or diag explain \%said;
ok($said{compared}, '... and one made before is compared');

# There it could move to.
$b->safe_psql('postgres', q{SELECT snowid.drop_shard(shard, true) FROM snowid.shards WHERE schema <> 'insta6'});
refused($part, 2, 1, 'plan');
refused($key, 3, 1, 'plan');
refused(qr/a table has values of own\.email, whose owner is no superuser, and the copy could run it as one/, 4, 1, 'plan');
refused(qr/public\.plans is not read/, 5, 1, 'plan');
refused(qr/table insta8\.t has what it has of own\.like_it/, 8, 1, 'plan');
refused($operator, 11, 1, 'plan');
refused(qr/a table has values of own\.color/, $_, 1, 'plan') for 12, 16, 21;
refused(qr/insta13\.m calls own\.note\(text\)/, 13, 1, 'plan');
refused(qr/materialized views read own\./, 14, 1, 'plan');
refused(qr/has the operator lib\.<>\(lib\.citext,lib\.citext\), and app, who owns that extension, is no superuser/, 24, 1, 'plan');
is(ran("shard $_: what could be another in their schema", 0, qr/0 failures/, sub { snowid_move($a, $b, $_, 'plan') }), '', '... is not tried') for 18 .. 20;
refused(qr/has the operator lib\.===\(bigint,bigint\), (and app, who owns that schema|whose owner is no)/, 15, 1, 'plan');

done_testing();
