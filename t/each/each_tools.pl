# Tools of migrations run by snowid-each exec: Knex, Drizzle and Django, each with the
# project of examples/clients.  Each makes its tables in the shard, its own ledger with
# them, and finds nothing left to do.
#
# A tool that is missing is skipped; or fails, if CLIENTS is "all".
use strict;
use warnings;

use Cwd qw(abs_path);
use FindBin;
use lib "$FindBin::RealBin/../lib";
use EachTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my ($a, $b) = each_pair();
my $examples = abs_path("$FindBin::RealBin/../../examples/clients");
my $tmp = PostgreSQL::Test::Utils::tempdir();
local $ENV{NO_COLOR} = 1;

# What the tool is, what it needs, its command, the ledger that it keeps; and how to make a project in the directory.
sub tool
{
	my ($name, $needs, $files, $command, $ledger, $make) = @_;
	if (system("cd '$examples/$name' && $needs >/dev/null 2>&1") != 0)
	{
		ok(0, "$name has what it needs") if ($ENV{CLIENTS} // '') eq 'all';
		SKIP: { skip "$name is missing", 1 }
		return;
	}
	my $dir = "$tmp/$name";
	system("mkdir '$dir' && cd '$examples/$name' && cp -r $files '$dir' && { test ! -d node_modules || ln -s \$PWD/node_modules '$dir'; }") == 0 or die;
	$make->($dir);
	subtest $name => sub {
		my @exec = ('exec', '--name', $name, '--shard', '3,13', '--', 'sh', '-c', "cd $dir && $command");

		each_ok($a, 0, qr/2 shards done/, @exec);
		for my $node ($a, $b)
		{
			is($node->safe_psql('postgres', qq{SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
WHERE relname IN ('of_$name', '$ledger') AND nspname ^@ 'insta' AND relkind = 'r'}), 2, 'its tables are in the shards');
		}
		is($b->safe_psql('postgres', qq{INSERT INTO insta13.of_$name (n) VALUES (1) RETURNING snowid.id_shard(id)}), 13, 'ids are of the shard');
		$_->safe_psql('postgres', "DELETE FROM insta" . ($_ == $a ? 3 : 13) . '.snowid_migrations') for $a, $b;
		each_ok($a, 0, qr/2 shards done/, @exec);
		is($a->safe_psql('postgres', qq{SELECT count(*) FROM insta3.$ledger}), 1, 'the tool knows what it has done');
	};
	return;
}

tool('knex', 'test -x node_modules/.bin/knex', 'knexfile.cjs', 'node_modules/.bin/knex migrate:latest --knexfile knexfile.cjs', 'knex_migrations', sub {
	my ($dir) = @_;
	mkdir "$dir/migrations";
	append_to_file("$dir/migrations/1_of_knex.cjs", q{
exports.up = (knex) => knex.schema.createTable('of_knex', (table) => {
	table.bigint('id').primary().defaultTo(knex.raw('next_id()'));
	table.integer('n');
});
exports.down = async () => {};
});
});

# Its ledger would be in a schema of its own, for all shards the same.
tool('drizzle', 'test -x node_modules/.bin/drizzle-kit', 'package.json', 'node_modules/.bin/drizzle-kit migrate', '__drizzle_migrations', sub {
	my ($dir) = @_;
	append_to_file("$dir/drizzle.config.js", q{
const { DATABASE_URL: url, SNOWID_SCHEMA: schema } = process.env;

module.exports = { dialect: 'postgresql', schema: './schema.mjs', dbCredentials: { url }, migrations: { schema } };
});
	append_to_file("$dir/schema.mjs", '');
	system("cd '$dir' && SNOWID_SCHEMA=x DATABASE_URL=postgresql://x/x node_modules/.bin/drizzle-kit generate --custom --name=one >/dev/null 2>&1");
	append_to_file("$dir/drizzle/0000_one.sql", "\nCREATE TABLE of_drizzle (id bigint PRIMARY KEY DEFAULT next_id(), n int);");
});

tool('django', q{/usr/bin/python3 -c 'import django, psycopg2'}, 'project/settings.py', 'PYTHONPATH=. DJANGO_SETTINGS_MODULE=settings /usr/bin/python3 -B -m django migrate',
	'django_migrations', sub {
	my ($dir) = @_;
	mkdir $_ for "$dir/photos", "$dir/photos/migrations";
	append_to_file("$dir/$_", '') for 'photos/__init__.py', 'photos/migrations/__init__.py';
	append_to_file("$dir/photos/migrations/0001_one.py", q{
from django.db import migrations

class Migration(migrations.Migration):
    initial = True
    operations = [migrations.RunSQL("CREATE TABLE of_django (id bigint PRIMARY KEY DEFAULT next_id(), n int)")]
});
});

done_testing();
