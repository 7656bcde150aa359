# A program, such as a team's own tool of migrations, runs once for each shard, and finds
# in its environment where that is.  The ledgers know it as they know a script.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use EachTest;
use MoveTest qw(snowid_move);
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my ($a, $b) = each_pair(allows_streaming => 1);

sub exec_ok
{
	my ($expected, $like, $name, @args) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return each_ok($a, $expected, $like, 'exec', '--name', $name, @args);
}

my @psql = ('--', 'psql', '-Xqc');
exec_ok(0, qr/20 shards done in .*, 0 had it/, 'table', @psql, q{CREATE TABLE by_tool (s text PRIMARY KEY DEFAULT 'it''s 1'); INSERT INTO runs SELECT current_schema});
is(runs($a, $b), '20 20', 'each once');
is(shards_with($a, $b, 'by_tool', 's'), join(',', 0 .. 19), 'where it shall be');
exec_ok(0, qr/0 shards done in .*, 20 had it/, 'table', @psql, q{CREATE TABLE by_tool (s text PRIMARY KEY DEFAULT 'it''s 1'); INSERT INTO runs SELECT current_schema});
exec_ok(1, qr/another script was run under this name: 20 shards/, 'table', @psql, 'SELECT 1');
each_ok($a, 2, qr/"table" is no script, but the command of an exec/, '--name', 'table');
each_ok($a, 0, qr/^table\n  done: 20 shards: 0-19$/m, 'status');

# The whole environment; a name that needs to be quoted.
$a->safe_psql('postgres', q{SELECT snowid.create_shard(30, 'we"ird $$ \ (')});
exec_ok(0, qr/3 shards done/, 'url', '--shard', '3,13,30', '--', 'sh', '-c', q{
psql -XqAtd "$DATABASE_URL" -c "CREATE TABLE url AS SELECT current_schema AS s, '$SNOWID_SHARD' AS n, current_setting('port') = '$PGPORT' AS p" &&
test "$PGDATABASE" = postgres -a -n "$PGUSER" -a -d "$PGHOST" && ! read line});
is($b->safe_psql('postgres', 'TABLE insta13.url'), 'insta13|13|t', 'the environment of a shard');
is($a->safe_psql('postgres', q{SELECT s = 'we"ird $$ \ (', n, p FROM "we""ird $$ \ (".url}), 't|30|t', '... of another');
$a->safe_psql('postgres', 'SELECT snowid.drop_shard(30, true)');

# What fails is told with all that was said, and done by the same command again.
my $fails = 'echo out $SNOWID_SHARD; echo err >&2; case $SNOWID_SHARD in 4) exit 3;; 14) kill -9 $$;; esac';
my $said = exec_ok(1, qr/18 shards done.*^failed\n  ended by signal 9: 1 shard: 14\n  exit status 3: 1 shard: 4$/ms, 'fails', '--', 'sh', '-c', $fails);
like($said, qr/shard 4: the program has said:\nout 4\nerr\n/, 'the output of one that fails');
unlike($said, qr/out 5/, '... alone');
each_ok($a, 1, qr/^fails\n  done: 18 shards: .*\n  not done, failed: ended by signal 9: 1 shard: 14\n  not done, failed: exit status 3: 1 shard: 4$/m, 'status');
exec_ok(1, qr/could not run "\/nowhere".*exit status 127: 20 shards/s, 'nowhere', '--', '/nowhere');
each_ok($a, 2, qr/to exec, --name and a program are needed/, 'exec', '--name', 'x');

# It is asked to run again later.
my $file = PostgreSQL::Test::Utils::tempdir() . '/tried';
exec_ok(0, qr/1 shards done/, 'later', '--shard', 3, '--', 'sh', '-c', "test -e $file || { touch $file; exit 75; }");

# A shard that is moved is left for later.
is((snowid_move($a, $b, 7, '--stop-after', 'copied'))[0], 0, 'a move is under way');
exec_ok(1, qr/19 shards done.*it is under a move.*: 1 shard: 7$/s, 'moved', '--wait', 0, @psql, 'SELECT 1');
is((snowid_move($a, $b, 7, 'abort'))[0], 0, 'it is given up');
exec_ok(0, qr/1 shards done in .*, 19 had it/, 'moved', @psql, 'SELECT 1');

done_testing();
