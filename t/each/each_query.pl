# A question goes to all shards of two servers, and a second one to all answers.  No
# answer is told as if it were whole when a shard fails, or a server is down.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use EachTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my ($a, $b) = each_pair();
for my $node ($a, $b)
{
	$node->safe_psql('postgres', q{SET client_min_messages = warning;
CALL snowid.for_each_shard('INSERT INTO photos (n) SELECT generate_series(1, 1 + right(current_schema, 1)::int)')});
}

# Its code, and all that it says, errors first.
sub ask
{
	my ($expected, $answer, @args) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return each_ok($a, $expected, $answer, 'query', @args);
}

subtest 'two questions' => sub {
	ask(0, qr/^count \| sum\n20    \| 110\n$/, 'SELECT count(*) AS n FROM photos;', '--then', 'SELECT count(*), sum(n) FROM answers -- all');
	ask(0, qr/^shard \| n\n3     \| 4\n13    \| 4\n$/, 'SELECT max(n) AS n FROM photos', '--shard', '3,13', '--then', 'TABLE answers ORDER BY 1');

	# Types are those of the question, if they are PostgreSQL's own.
	ask(0, qr/^string_agg\nbigint, integer, name, numeric, text\[\]$/m, q{SELECT 1::bigint AS a, 2.5 AS b, current_schema AS c, ARRAY[NULL, 'x	y\\'] AS d}, '--then',
		q{SELECT string_agg(DISTINCT format_type(atttypid, NULL), ', ') FROM pg_attribute WHERE attrelid = 'answers'::regclass AND attnum > 0});
	ask(0, qr/^s,d\ninsta13,t\ninsta3,t\n$/ms, q{SELECT current_schema AS c, ARRAY[NULL, E'x\ty\\\\\n'] AS d}, '--shard', '3,13', '--format', 'csv', '--then',
		q{SELECT c AS s, d[1] IS NULL AND d[2] = E'x\ty\\\\\n' AS d FROM answers ORDER BY 1});
	ask(0, qr/Seq Scan on photos.*\n.*Seq Scan on photos/, 'EXPLAIN SELECT * FROM photos', '--shard', '3,13');
	ask(2, qr/a query is one statement/, 'SELECT 1; SELECT 2');
	ask(2, qr/to query, one argument is needed/);
	ask(2, qr/invalid value "xml" for option --format/, 'SELECT 1', '--format', 'xml');
	ask(1, qr/registry: .*relation "nowhere" does not exist/, 'SELECT 1', '--then', 'TABLE nowhere');
};

subtest 'rows as they come' => sub {
	my $said = ask(0, qr/^shard \| n \| x\n/, 'SELECT n, NULL AS x FROM photos', '--shard', '2,12');
	is(() = $said =~ /^(2 |12)    \| [123] \| $/mg, 6, 'a table');
	ask(0, qr/^shard,n,"a,""b"\n3,1,"x,""\n"\n$/, q{SELECT 1 AS n, E'x,"\n' AS "a,""b"}, '--shard', 3, '--format', 'csv');
	ask(0, qr/^\{"shard":3,"n":1,"t":"x\\n\\\\\\"\\t\xc3\xa4"\}\n$/, q{SELECT 1 AS n, E'x\n\\\\"\tä' AS t}, '--shard', 3, '--format', 'json');
	ask(0, qr/^\{"n":110\}\n$/, 'SELECT count(*) FROM photos', '--format', 'json', '--then', 'SELECT sum(count) AS n FROM answers');
};

subtest 'it only reads' => sub {
	ask(1, qr/error: shard 3: cannot execute DELETE in a read-only transaction\n.*the answer is not whole/s, 'DELETE FROM photos RETURNING n', '--shard', 3, @$_)
	  for [], ['--snapshot'];
	ask(0, qr/^sum\n110\n$/, 'SELECT count(*) FROM photos', '--then', 'SELECT sum(count) FROM answers', '--snapshot', '--jobs', 2);
};

subtest 'an answer that is not whole' => sub {
	$a->safe_psql('postgres', 'INSERT INTO insta3.photos (n) VALUES (0)');
	my @question = ('SELECT 12 / n AS k FROM photos ORDER BY id', '--then', 'SELECT count(*), sum(k) FROM answers');
	for my $snapshot ([], ['--snapshot'])
	{
		my $said = ask(1, qr/error: shard 3: division by zero\n.*error: there is no answer\n/s, @question, @$snapshot);
		unlike($said, qr/^count/m, 'nothing is told');
		ask(1, qr/error: shard 3: division by zero\n.*error: the answer is not whole\n.*^count \| sum\n106   \| \d+\n$/ms, @question, '--partial', @$snapshot);
	}
	$a->safe_psql('postgres', 'DELETE FROM insta3.photos WHERE n = 0; ALTER TABLE insta4.photos ADD COLUMN m int');
	ask(1, qr/error: shard 4: it has 3 columns, where others have 2/, 'SELECT * FROM photos', '--then', 'SELECT count(*) FROM answers');
	ask(2, qr/no shard can answer: column "nix" does not exist/, 'SELECT nix FROM photos');
	$a->safe_psql('postgres', 'SELECT snowid.fence_shard(5)');
	ask(1, qr/error: shard 5: no server has it/, 'SELECT 1', '--then', 'SELECT count(*) FROM answers');
	$a->safe_psql('postgres', 'SELECT snowid.unfence_shard(5); CREATE ROLE lesser; ALTER TABLE insta5.photos OWNER TO lesser');
	ask(1, qr/error: shard 5: what is in it is of another role: lesser; connect as that role, or say --trust-owners/, 'SELECT 1', '--then', 'SELECT count(*) FROM answers');
	ask(0, qr/^count\n20$/m, 'SELECT 1', '--then', 'SELECT count(*) FROM answers', '--trust-owners');
	$a->safe_psql('postgres', 'ALTER TABLE insta5.photos OWNER TO CURRENT_USER');
	$b->stop;
	my $said = ask(1, qr/error: host=.*error: shard 10: its server is down\n.*there is no answer/s, 'SELECT 1', '--then', 'SELECT count(*) FROM answers');
	unlike($said, qr/^count/m, 'nothing is told');
	ask(1, qr/the answer is not whole\n.*^count\n10\n/ms, 'SELECT 1', '--then', 'SELECT count(*) FROM answers', '--partial');
	$b->start;
};

# A snapshot is one of all shards of a server: rows that move from one to another meanwhile are there once.
subtest 'a snapshot' => sub {
	my $said = '';
	my $holder = $a->background_psql('postgres');
	$holder->query_safe('BEGIN; LOCK TABLE insta9.photos IN ACCESS EXCLUSIVE MODE');
	my $run = IPC::Run::start([ each_command($a, 'query', '--snapshot', '--jobs', 1, '--shard', '0-9', 'SELECT count(*) FROM photos',
		'--then', 'SELECT sum(count) FROM answers') ], '>&', \$said);
	$a->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_locks WHERE relation = 'insta9.photos'::regclass AND NOT granted});
	$holder->query_safe('INSERT INTO insta9.photos (n) SELECT n FROM insta0.photos; DELETE FROM insta0.photos; COMMIT');
	ok($run->finish, 'done') or diag $said;
	is($said, "sum\n55\n", 'each row once');
	$holder->quit;
};

done_testing();
