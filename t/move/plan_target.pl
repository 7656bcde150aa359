# What a plan of snowid-move finds about the target: what must be there, what
# must not, and whether it is like the source.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PlanTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

start_nodes('+0');

# Objects of other schemas, which do not move along.
subject 'objects of other schemas' => sub {
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
};

# No catalog knows what a text uses.
subject 'texts of functions' => sub {
	sql('a', q{
CREATE FUNCTION public.plain(text) RETURNS text IMMUTABLE LANGUAGE sql AS 'SELECT $1';
CREATE FUNCTION insta5.simplify(text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	-- new.id and insta5.photos are not of other schemas, and nobody has public.nothing
	RETURN Public.plain($1);
END $$});
	case_ok('texts of functions', 'warning', 'public.plain is missing; the text of insta5.simplify\(text\) names it$', 'Create it there');
	is(scalar(() = (plan_of())[1] =~ /warning +texts of functions/g), 1, '... and that is all');
	sql('b', q{CREATE FUNCTION public.plain(text) RETURNS text LANGUAGE sql AS 'SELECT $1'});
	like((plan_of())[1], qr/^ok +texts of functions$/m, '... it is found there');
	sql($_, 'DROP FUNCTION public.plain(text)') foreach 'a', 'b';
};

# What the copy would run as the role that moves, found also behind types of other
# schemas, and where only the target's owner is no superuser.
subject 'owners of functions' => sub {
	sql($_, q{
CREATE FUNCTION public.nice(text) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT true';
CREATE DOMAIN public.word AS text CHECK (public.nice(VALUE));
CREATE DOMAIN public.name AS public.word;
CREATE TYPE public.pair AS (a text, b public.name[])}) foreach 'a', 'b';
	sql('a', 'CREATE TABLE insta5.words (id int PRIMARY KEY, w public.pair)');
	foreach my $name ('a', 'b')
	{
		case_ok('owners', 'FAILED', 'constraint word_check calls public.nice\(text\), whose owner is no superuser', '--trust-owners',
			do => [ [ $name, 'ALTER FUNCTION public.nice(text) OWNER TO app' ] ],
			undo => [ [ $name, 'ALTER FUNCTION public.nice(text) OWNER TO CURRENT_USER' ] ]);
	}
	sql('a', 'DROP TABLE insta5.words');
	sql($_, 'DROP TYPE public.pair; DROP DOMAIN public.name, public.word; DROP FUNCTION public.nice(text)') foreach 'a', 'b';
};

subject 'transforms' => sub {
	case_ok('transforms', 'FAILED', 'transform for insta5.mood language sql would be lost', 'Type: DROP TRANSFORM FOR insta5.mood LANGUAGE sql; and make it again on the target',
		do => [ [ 'a', q{CREATE TYPE insta5.mood AS ENUM ('ok'); CREATE TRANSFORM FOR insta5.mood LANGUAGE sql (FROM SQL WITH FUNCTION prsd_lextype(internal))} ] ],
		undo => [ [ 'a', 'DROP TRANSFORM FOR insta5.mood LANGUAGE sql; DROP TYPE insta5.mood' ] ]);
};

subject 'roles' => sub {
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
};

subject 'extensions' => sub {
	SKIP:
	{
		skip 'no extension citext here', 16
		  if sql('a', q{SELECT count(*) FROM pg_available_extensions WHERE name = 'citext'}) eq '0';

		case_ok('extensions on the target', 'FAILED', 'extension "citext" is missing', 'CREATE EXTENSION citext;',
			do => [ [ 'a', 'CREATE EXTENSION citext; CREATE TABLE insta5.names (name public.citext PRIMARY KEY)' ] ]);
		case_ok('extensions on the target', 'warning', 'extension "citext" is version 0.1', 'ALTER EXTENSION citext UPDATE;',
			do => [ [ 'b', q{CREATE EXTENSION citext; UPDATE pg_extension SET extversion = '0.1' WHERE extname = 'citext'} ] ],
			undo => [ [ 'a', 'DROP TABLE insta5.names; DROP EXTENSION citext' ], [ 'b', 'DROP EXTENSION citext' ] ]);
		case_ok('extensions on the target', 'FAILED', 'extension "citext" is missing', 'Type: CREATE SCHEMA IF NOT EXISTS "Ext"; CREATE EXTENSION citext SCHEMA "Ext";',
			do => [ [ 'a', 'CREATE SCHEMA "Ext"; CREATE EXTENSION citext SCHEMA "Ext"; CREATE TABLE insta5.names (name "Ext".citext PRIMARY KEY)' ] ]);
		case_ok('extensions on the target', 'FAILED', 'extension "citext" is in schema public, and in "Ext" on the source', 'Type: CREATE SCHEMA IF NOT EXISTS "Ext"; ALTER EXTENSION citext SET SCHEMA "Ext";',
			do => [ [ 'b', 'CREATE EXTENSION citext' ] ],
			undo => [ [ 'a', 'DROP TABLE insta5.names; DROP SCHEMA "Ext" CASCADE' ], [ 'b', 'DROP EXTENSION citext' ] ]);
		case_ok('extensions on the target', 'FAILED', 'extension "citext" is missing', 'CREATE EXTENSION citext;',
			do => [ [ 'a', 'CREATE EXTENSION citext; CREATE TABLE insta5.names (names public.citext[])' ] ],
			undo => [ [ 'a', 'DROP TABLE insta5.names; DROP EXTENSION citext' ] ]);
		case_ok('extensions on the target', 'FAILED', 'extension "unaccent" is missing', 'CREATE EXTENSION unaccent;',
			do => [ [ 'a', q{
	CREATE EXTENSION unaccent;
	CREATE TEXT SEARCH CONFIGURATION insta5.plain (COPY = simple);
	ALTER TEXT SEARCH CONFIGURATION insta5.plain ALTER MAPPING FOR word WITH public.unaccent, simple} ] ],
			undo => [ [ 'a', 'DROP TEXT SEARCH CONFIGURATION insta5.plain; DROP EXTENSION unaccent' ] ]);
		case_ok('extensions within the shard', 'FAILED', 'extension "citext" is in schema "insta5"', 'ALTER EXTENSION citext SET SCHEMA',
			do => [ [ 'a', 'CREATE EXTENSION citext SCHEMA insta5' ] ]);
		case_ok('extensions within the shard', 'FAILED', 'extension "citext" is in schema "insta5"', 'It cannot change its schema',
			do => [ [ 'a', q{UPDATE pg_extension SET extrelocatable = false WHERE extname = 'citext'} ] ],
			undo => [ [ 'a', 'DROP EXTENSION citext' ] ]);
	}
};

subject 'tablespaces and event triggers' => sub {
	my $place = PostgreSQL::Test::Utils::tempdir();
	sql('a', "CREATE TABLESPACE fast LOCATION '$place'");
	case_ok('tablespaces on the target', 'FAILED', 'tablespace "fast" is missing', 'CREATE TABLESPACE fast LOCATION',
		do => [ [ 'a', 'CREATE TABLE insta5.hot (id int PRIMARY KEY) TABLESPACE fast' ] ],
		undo => [ [ 'a', 'DROP TABLE insta5.hot' ], [ 'a', 'DROP TABLESPACE fast' ] ]);
	case_ok('event triggers on the target', 'warning', '"audit" fires', 'ALTER EVENT TRIGGER audit DISABLE;',
		do => [ [ 'b', 'CREATE FUNCTION audit() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN END$$;
			CREATE EVENT TRIGGER audit ON ddl_command_end EXECUTE FUNCTION audit()' ] ],
		undo => [ [ 'b', 'DROP EVENT TRIGGER audit; DROP FUNCTION audit()' ] ]);
};

subject 'the extension itself' => sub {
	case_ok('extension snowid', 'FAILED', "it is not in the target's database", 'CREATE EXTENSION snowid;',
		options => [ '--to' => $node{b}->connstr('template1') ]);
	case_ok('extension snowid', 'FAILED', 'version 1.0 on the source and 0.9 on the target', 'ALTER EXTENSION snowid UPDATE;',
		do => [ [ 'b', q{COMMENT ON FUNCTION snowid.version() IS 'version 0.9'} ] ],
		undo => [ [ 'b', q{COMMENT ON FUNCTION snowid.version() IS 'version 1.0'} ] ]);
};

subject 'the shard' => sub {
	my (undef, undef, $stderr) = plan_of('--shard' => 77);
	like($stderr, qr/shard 77 does not exist on the source/, 'a shard that is not there');
	case_ok('shard on the source', 'FAILED', 'sequence "id_seq" of schema "insta5" does not exist', 'snowid.shards',
		do => [ [ 'a', 'ALTER SEQUENCE insta5.id_seq RENAME TO other_seq' ] ],
		undo => [ [ 'a', 'ALTER SEQUENCE insta5.other_seq RENAME TO id_seq' ] ]);
	case_ok('two databases', 'FAILED', 'source and target are the same', '--to',
		options => [ '--to' => $node{a}->connstr('postgres') ]);
};

subject 'its number' => sub {
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
};

subject 'its schema' => sub {
	case_ok('schema on the target', 'FAILED', 'schema "insta5" is there already$', 'ALTER SCHEMA insta5 RENAME TO insta5_old;',
		do => [ [ 'b', 'CREATE SCHEMA insta5' ] ],
		undo => [ [ 'b', 'DROP SCHEMA insta5' ] ]);
	case_ok('schema on the target', 'FAILED', 'with foreign tables', 'DROP SCHEMA insta5 CASCADE;',
		do => [ [ 'b', 'CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w;
			CREATE SCHEMA insta5; CREATE FOREIGN TABLE insta5.photos (id bigint) SERVER s' ] ],
		undo => [ [ 'b', 'DROP SCHEMA insta5 CASCADE; DROP FOREIGN DATA WRAPPER w CASCADE' ] ]);
};

# What an earlier move, or somebody else, has left behind.
subject 'leftovers' => sub {
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
};

# The databases' encodings and collations.
subject 'encodings and collations' => sub {
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
};

subject 'clocks' => sub {
	set_clock($node{b}, '-60');
	case_ok('clocks', 'warning', q{the target's is (59|60)\.\d+ s behind}, '1024 a millisecond');
	set_clock($node{b}, '+60');
	case_ok('clocks', 'warning', q{the target's is (59|60)\.\d+ s ahead}, 'move back');
	set_clock($node{b}, '-90000');
	case_ok('clocks', 'FAILED', q{the target's is \d+\.\d+ s behind}, 'Set its clock right');
	set_clock($node{b}, '+0');
};

# Disk room: a table of a petabyte, as far as its file's size goes.
subject 'disk room' => sub {
	my $file = $node{a}->data_dir . '/' . sql('a', q{
	CREATE TABLE insta5.huge (id int PRIMARY KEY);
	SELECT pg_relation_filepath('insta5.huge')});
	my ($free) = (plan_of())[1] =~ /the target has ([\d.]+) GB free/;
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
		options => [ '--to' => $node{b}->connstr('postgres') . ' user=app' ], also_fails => 1);
	sql('a', 'DROP TABLE insta5.huge');
};

done_planning();
