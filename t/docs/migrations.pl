# The migration tools of Drizzle, TypeORM, knex, Prisma, Rails, Django and Flyway, on a project that
# begins, with either edition: they make the table and what its DEFAULT needs, and find nothing
# to change or drop afterwards.  What the pages warn of does happen.  Those of Node also run what
# "npx snowid migration" writes.
#
# A tool that is missing is skipped; or fails, if CLIENTS is "all".  Flyway is in no package:
# FLYWAY_REPO is a git directory of its source, with tags.
use strict;
use warnings;

use Cwd qw(abs_path);
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $examples = abs_path("$FindBin::RealBin/../../examples/clients");
my $tmp = PostgreSQL::Test::Utils::tempdir();
my %install = (extension => "CREATE EXTENSION snowid;\n", portable => slurp_file(portable_file('sql')));
my $insert = q{INSERT INTO photos (user_id, caption) VALUES (1, 'a') RETURNING snowid.id_shard(id)};

my $node = new_node('main');
$node->append_conf('postgresql.conf', "listen_addresses = '127.0.0.1'");
$node->start;
# What the tools say is compared, so without colours: some add them where CI is set.
%ENV = (%ENV, NO_COLOR => 1, PGHOST => '127.0.0.1', PGPORT => $node->port, PGUSER => getpwuid($<), RAILS_ENV => 'development');

# What any client meets that has prepared a statement.
is(sqlstate($node, 'CREATE TABLE t (a int); PREPARE p AS SELECT * FROM t; EXECUTE p; ALTER TABLE t ADD COLUMN b int; EXECUTE p'),
	'0A000', 'a prepared statement does not outlive ADD COLUMN');
is(sqlstate($node, 'PREPARE p AS SELECT * FROM t; EXECUTE p'), '', 'but in a new connection');

sub write_to
{
	my ($path, $text) = @_;
	unlink $path;
	append_to_file($path, $text);
	return;
}

# Run a command in the directory of the project: all that it says.
sub run_there
{
	my ($dir, $command) = @_;
	my $said = `cd '$dir' && $command 2>&1 </dev/null`;
	return $? ? "exit $?: $said" : $said;
}

# With each edition, in a directory and a database of its own; a tool of Node also with what
# "npx snowid migration" writes, which $run runs.
sub each_edition
{
	my ($place, $needs, $files, $try, $run) = @_;
	my $name = $place =~ s/\W.*//r;
	my $probe = run_there("$examples/$place", $needs);
	if ($probe =~ /^exit/)
	{
		ok(0, "$name has what it needs") or diag($probe) if ($ENV{CLIENTS} // '') eq 'all';
		SKIP: { skip "$name lacks its migration tool", 1 }
		return;
	}
	for my $edition (sort(keys %install), $run ? 'npx' : ())
	{
		my $dir = "$tmp/$name-$edition";
		local $ENV{PGDATABASE} = "${name}_$edition";
		mkdir $dir;
		run_there("$examples/$place", "cp -r $files '$dir' && { test ! -d node_modules || ln -s \$PWD/node_modules '$dir'; }");
		$node->safe_psql('postgres', "CREATE DATABASE ${name}_$edition");
		my $sql = sub { $node->safe_psql($ENV{PGDATABASE}, @_) };
		if ($edition eq 'npx')
		{
			run_there($dir, 'rm -rf migrations && npx snowid migration --tool ' . $name . ' --shard 5');
			my $said = run_there($dir, $run);
			is($sql->('SELECT snowid.version(), shard, schema, snowid.id_shard(public.next_id()) FROM snowid.shard_registry'), '1.0|5|public|5',
				"$name runs what snowid has written") or diag($said);
			next;
		}
		subtest "$name, $edition" => sub { $try->($dir, $install{$edition}, $sql) };
	}
	return;
}

each_edition('drizzle', 'test -x node_modules/.bin/drizzle-kit', 'drizzle.config.js schema.mjs', sub {
	my ($dir, $install, $sql) = @_;
	my $kit = sub { run_there($dir, "node_modules/.bin/drizzle-kit @_") };

	$kit->('generate --custom --name=snowid');
	write_to("$dir/drizzle/0000_snowid.sql", $install);
	like($kit->('generate --name=photos'), qr/1 tables/, 'a migration for the table');
	like($kit->('migrate'), qr/applied successfully/, 'and it is run');
	is($sql->($insert), '5', 'the DEFAULT makes ids');
	like($kit->('generate --name=more'), qr/No schema changes/, 'nothing is left to generate');
	like($kit->('push'), qr/No changes detected/, 'nor to push');
	$sql->(q{SELECT snowid.register_shard(5, 'public')});
	like($kit->('push'), qr/No changes detected/, 'nor of a registered shard');
	write_to("$dir/forgotten.mjs", slurp_file("$dir/schema.mjs") =~ s/^export const ids.*//mr);
	like($kit->(qq{push --verbose --force --dialect=postgresql --schema=./forgotten.mjs --url="postgresql://\$PGUSER\@\$PGHOST:\$PGPORT/\$PGDATABASE"}),
		qr/DROP SEQUENCE "?public"?."?id_seq"?|cannot drop sequence/i, 'it would drop a sequence that is not declared');
	$kit->('pull');
	like(slurp_file("$dir/drizzle/schema.ts"), qr/id: bigint\(\{ mode: "number" \}\).*next_id/, 'pull makes the id a number');
}, 'npx drizzle-kit migrate');

each_edition('typeorm', 'test -x node_modules/.bin/typeorm', 'data-source.mjs migrations', sub {
	my ($dir, $install, $sql) = @_;
	my $typeorm = sub { my ($do, @more) = @_; run_there($dir, "node_modules/.bin/typeorm $do -d data-source.mjs @more") };

	write_to("$dir/snowid.sql", $install);
	like($typeorm->('migration:run'), qr/Snowid\d+ has been executed successfully/, 'the first migration');
	like($typeorm->('migration:generate', '-o --esm migrations/photos'), qr/generated successfully/, 'a migration for the table');
	my ($made) = glob "$dir/migrations/*-photos.js";
	rename $made, $made =~ s/js$/mjs/r;
	like($typeorm->('migration:run'), qr/Photos\d+ has been executed successfully/, 'and it is run');
	is($sql->($insert), '5', 'the DEFAULT makes ids');
	like($typeorm->('migration:generate', '-o --esm migrations/more'), qr/No changes/, 'nothing is left to generate');
	write_to("$dir/data-source.mjs", slurp_file("$dir/data-source.mjs") =~ s/default: .*?\(\)'/generated: 'increment'/r);
	like($typeorm->('schema:log'), qr/SET DEFAULT nextval/, 'a generated id would replace the DEFAULT');
}, 'npx typeorm migration:run -d data-source.mjs');

each_edition('knex', 'test -x node_modules/.bin/knex', 'knexfile.cjs migrations', sub {
	my ($dir, $install, $sql) = @_;

	write_to("$dir/snowid.sql", $install);
	like(run_there($dir, 'node_modules/.bin/knex migrate:latest --knexfile knexfile.cjs'), qr/1 migrations/, 'the migration is run');
	is($sql->($insert), '5', 'the DEFAULT makes ids');
}, 'npx knex migrate:latest --knexfile knexfile.cjs');

# The engine in JavaScript: the program would be downloaded.
my $prisma = 'CHECKPOINT_DISABLE=1 PRISMA_QUERY_ENGINE_LIBRARY=/bin/true PRISMA_SCHEMA_ENGINE_BINARY=/bin/true node_modules/.bin/prisma';
each_edition('prisma/project', 'test -x node_modules/.bin/prisma', 'prisma prisma.config.ts reset.sql', sub {
	my ($dir, $install, $sql) = @_;
	my $migrate = sub { run_there($dir, "$prisma migrate @_") };
	my $migration = sub {
		my ($name, $text) = @_;
		run_there($dir, "mkdir -p prisma/migrations/$name");
		write_to("$dir/prisma/migrations/$name/migration.sql", $text);
	};

	write_to("$dir/prisma/migrations/migration_lock.toml", qq(provider = "postgresql"\n)) if mkdir "$dir/prisma/migrations";
	$migration->('1_snowid', "$install;SELECT snowid.register_shard(5, 'public');\n");
	$migration->('2_photos', $migrate->('diff --from-empty --to-schema-datamodel prisma/schema.prisma --script') =~ s/^Loaded.*//mr);
	$migration->('3_shard', 'SELECT snowid.create_shard(1340); CREATE TABLE insta1340.photos (id bigint)');
	like($migrate->('deploy'), qr/successfully applied/, 'the migrations are run');
	is($sql->($insert), '5', 'the DEFAULT makes ids');
	like($migrate->('status'), qr/up to date/, 'nothing is left to do');

	my $reset = 'reset --force --skip-generate --skip-seed';
	like($migrate->($reset), qr/^exit/, 'reset alone fails');
	is($sql->(q(SELECT string_agg(shard || ' ' || lives, ', ' ORDER BY shard) FROM snowid.shards)), '5 here, 1340 here', 'since shards and snowid are still there');
	unlike(run_there($dir, 'psql -Xq -v ON_ERROR_STOP=1 -f reset.sql'), qr/^exit/, 'reset.sql drops them');
	like($migrate->($reset), qr/reset successful/i, 'then reset works');
	is($sql->($insert), '5', 'the DEFAULT makes ids again');
}, "$prisma migrate deploy");

my $python = 'PYTHONPATH=. DJANGO_SETTINGS_MODULE=settings /usr/bin/python3 -B';
each_edition('django', "$python -c 'import django, psycopg2'", 'project/*', sub {
	my ($dir, $install, $sql) = @_;
	my $django = sub { run_there($dir, "$python -m django @_") };

	write_to("$dir/snowid.sql", $install);
	like($django->('makemigrations photos --name photo'), qr/Create model Photo/, 'a migration for the table');
	rename "$dir/default.py", "$dir/photos/migrations/0003_default.py";
	like($django->('migrate'), qr/0001_snowid\.\.\. OK.*0003_default\.\.\. OK/s, 'and all are run');
	is($sql->($insert), '5', 'the DEFAULT makes ids');
	like($django->('makemigrations --check'), qr/No changes detected/, 'nothing is left to generate');
});

each_edition('rails', q{ruby -e 'require "rails"; require "pg"; require "rake"'}, 'project/*', sub {
	my ($dir, $install, $sql) = @_;
	my $rake = sub { run_there($dir, "rake @_") };

	write_to("$dir/db/snowid.sql", $install);
	like($rake->('db:migrate'), qr/CreatePhotos: migrated/, 'the migrations are run');
	is($sql->($insert), '5', 'the DEFAULT makes ids');
	unlike($rake->('db:drop db:create'), qr/^exit/, 'the database is made anew');
	unlike($rake->('db:schema:load db:seed'), qr/^exit/, 'from structure.sql');
	is($sql->($insert), '5', 'the DEFAULT makes ids there, too');
	is($sql->('SELECT shard, schema FROM snowid.shard_registry'), '5|public', 'and the shard is registered');

	# Another dump, since this one is now in the environment's format.
	run_there($dir, 'sed -i s/:sql/:ruby/ config/application.rb');
	$rake->('db:schema:dump db:drop db:create');
	like($rake->('db:schema:load'), qr/function next_id\(\) does not exist|schema "snowid" already exists/, 'schema.rb has lost what the DEFAULT calls');
});

# Flyway is built with Debian's libraries.  Those lack what reads TOML and the dates of
# JSON, and one of their methods declares IOException; no migration gets there.
my @parts = ('flyway-core', 'flyway-database/flyway-database-postgresql');
my ($runs, $builds) = map { my @names = split; [ map { "/usr/share/java/$_.jar" } @names ] }
  'postgresql jackson-annotations jackson-core jackson-databind',
  'lombok jsr305 commons-text jboss-vfs log4j-api osgi.core commons-logging slf4j-api';
my $classes = join ':', @$runs, map { "$tmp/flyway/$_" } 'classes', map { "$_/src/main/resources" } @parts;
my $build = join ' && ', "git --git-dir=\"\$FLYWAY_REPO\" archive flyway-12.0.2 lombok.config @parts | tar -x",
  'echo 12.0.2 >flyway-core/src/main/resources/org/flywaydb/core/internal/version.txt',
  q{find . -name '*.java' -exec sed -i '/import .*\(jsr310\|toml\)/d; s/.addModule(new JavaTimeModule())//; s/TomlMapper/JsonMapper/
	s/TomlStreamReadException/com.fasterxml.jackson.core.JsonParseException/; s/\(throws\|final\) JacksonException/\1 java.io.IOException/' {} +},
  "javac -nowarn -d classes -cp $classes:" . join(':', @$builds) . " -processorpath $builds->[0] \$(find . -path '*/src/main/*.java')";
unlike($install{portable}, qr/\$\{/, 'Flyway finds no placeholder');
SKIP:
{
	my ($lacking) = grep { !-e } $ENV{FLYWAY_REPO} // 'FLYWAY_REPO', '/usr/bin/javac', @$runs, @$builds;
	ok(0, "$lacking is there") if $lacking && $ENV{FLYWAY_REPO} && ($ENV{CLIENTS} // '') eq 'all';
	skip "flyway: no $lacking", 1 if $lacking;
	mkdir "$tmp/flyway";
	unlike(run_there("$tmp/flyway", $build), qr/^exit/, 'Flyway is built');
	write_to("$tmp/Migrate.java", 'class Migrate { public static void main(String[] goals) { for (var goal : goals) {
		var flyway = org.flywaydb.core.Flyway.configure().envVars().load();
		if (goal.equals("clean")) flyway.clean(); else flyway.migrate(); } } }');
	each_edition('flyway', 'true', '*', sub {
		my ($dir, $install, $sql) = @_;
		local %ENV = (%ENV, FLYWAY_LOCATIONS => 'filesystem:.', FLYWAY_CLEAN_DISABLED => 'false',
			FLYWAY_URL => "jdbc:postgresql://$ENV{PGHOST}:$ENV{PGPORT}/$ENV{PGDATABASE}?user=$ENV{PGUSER}");
		my $flyway = sub { run_there($dir, "java -cp $classes ../Migrate.java @_") };

		write_to("$dir/V1__snowid.sql", $install);
		like($flyway->('migrate'), qr/Successfully applied 3 migrations/, 'snowid, a table and shards');
		is($sql->($insert), '5', 'the DEFAULT makes ids');
		like($flyway->('migrate'), qr/No migration necessary/, 'nothing is left to do');

		my $version = $sql->('SELECT snowid.version()');
		write_to("$dir/V4__newer.sql", $install =~ s/'\Q$version'/'99.0'/gr =~ s/^CREATE (EXTENSION snowid)/ALTER $1 UPDATE/r);
		write_to("$dir/V5__bad.sql", "DELETE FROM photos;\nSELECT snowid.drop_shard(1340, true);\nSELECT snowid.register_shard(5, 'public')");
		like($flyway->('migrate'), qr/rolled back.*shard 5 is already registered/s, 'a migration fails');
		is($sql->(q{SELECT string_agg(version, ' ' ORDER BY installed_rank) FROM flyway_schema_history WHERE success}),
			'1 2 3 4', 'the one before it has worked');
		is($sql->('SELECT snowid.version(), (SELECT count(*) FROM snowid.shard_registry), count(*) FROM photos'),
			($install =~ /^CREATE/ ? $version : '99.0') . '|4|1', 'of the one that fails, nothing stays');

		unlink "$dir/V5__bad.sql";
		rename "$dir/beforeClean.sql", "$dir/kept";
		like($flyway->('clean', 'migrate'), qr/already exists|99\.0 is installed/, 'clean alone leaves snowid');
		rename "$dir/kept", "$dir/beforeClean.sql";
		like($flyway->('clean', 'migrate'), qr/Successfully applied 4 migrations/, 'beforeClean.sql drops it');
		unlink "$dir/V3__shards.sql.conf";
		like($flyway->('clean', 'migrate'), qr/invalid transaction termination/, 'create_shards needs its .conf');
	});
}

$node->stop;
done_testing();
