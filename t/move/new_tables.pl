# Tables and partitions that are made in a shard while it is copied are brought, with
# the rows that were written before anybody looked; any other change stops its
# shard alone, and says what to type.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run;
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::HiRes qw(usleep);

my $a = move_node('a');
my $b = move_node('b');
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;

# Shard 5 on a, with a table by time, and a copy that follows.
sub follows
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	fresh_shard($a, $b);
	$a->safe_psql('postgres', q{
CREATE TABLE insta5.events (id bigint PRIMARY KEY DEFAULT insta5.next_id(), what text) PARTITION BY RANGE (id);
SELECT snowid.create_partition('insta5.events', date_trunc('month', now() - interval '1 month'), date_trunc('month', now()))});
	return moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, "$name: copied");
}

# A session that makes a table, writes to it from the transaction on that makes it, and
# notes what it was given.
sub write_new
{
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my $writer = { ids => "$dir/ids", errors => "$dir/errors" };

	append_to_file("$dir/write", q{
BEGIN;
CREATE TABLE insta5.fresh (id bigint PRIMARY KEY DEFAULT snowid.next_id(5, 'insta5.id_seq'),
	user_id bigint REFERENCES insta5.users ON DELETE CASCADE, n serial, note text CHECK (note <> ''), UNIQUE (n));
INSERT INTO insta5.fresh (note) VALUES ('first') RETURNING id;
COMMIT;
} . (q{
INSERT INTO insta5.fresh (user_id, note) SELECT max(id), 'next' FROM insta5.users RETURNING id;
UPDATE insta5.fresh SET note = 'changed' WHERE id = (SELECT max(id) FROM insta5.fresh);
DO 'BEGIN PERFORM pg_sleep(0.003); END';
} x 20_000));
	$writer->{run} = IPC::Run::start([ 'psql', '-XAtq', '-v', 'VERBOSITY=sqlstate', '-f', "$dir/write", $a->connstr('postgres') ],
		'>', $writer->{ids}, '2>', $writer->{errors});
	usleep(10_000) until (-s $writer->{ids} // 0) > 100;
	return $writer;
}

# Each row that it was told of has come, once, and nothing else.
sub written_ok
{
	my ($writer, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my (@ids, %errors);

	$writer->{run}->kill_kill;
	@ids = split /\n/, slurp_file($writer->{ids});
	my $errors = slurp_file($writer->{errors});
	$errors{$1}++ while $errors =~ /ERROR:\s+(\w{5})/g;
	delete @errors{qw(SN001 SN002 3F000 42P01)};
	is_deeply(\%errors, {}, "$name: the writer gets no other error");
	is($b->safe_psql('postgres', 'SELECT id FROM insta5.fresh ORDER BY id'), join("\n", @ids), "$name: each row has come, once");
	is($b->safe_psql('postgres', "SELECT count(*) - count(DISTINCT n) FROM insta5.fresh"), 0, "$name: no number twice");
	is(sqlstate($b, q{INSERT INTO insta5.fresh (user_id, note) VALUES (1, 'x')}), '23503', "$name: the foreign key is there");
	$b->safe_psql('postgres', q{INSERT INTO insta5.fresh (note) VALUES ('there')});
	is($b->safe_psql('postgres', 'SELECT note FROM insta5.fresh ORDER BY id DESC LIMIT 1'), 'there', "$name: its ids go on");
	is($b->safe_psql('postgres', 'SELECT note FROM insta5.fresh ORDER BY n DESC LIMIT 1'), 'there', "$name: and its numbers");
	return;
}

sub ends_ok
{
	my ($name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	moves_ok($a, $b, 5, ['finish'], 0, "$name: finished");
	nothing_left_ok($_, $name) for $a, $b;
	return;
}

subtest 'made while the copy follows' => sub {
	follows('follows');
	my @writers = start_writers('insta5', $a, $b);
	await_writers($writers[0]);
	my $writer = write_new();
	$a->safe_psql('postgres', q{
SELECT snowid.create_partition('insta5.events', date_trunc('month', now()), date_trunc('month', now() + interval '1 month'));
INSERT INTO insta5.events (what) SELECT 'e' || i FROM generate_series(1, 100) i;
CREATE TABLE insta5."Own ""name""" (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, ids bigint DEFAULT insta5.next_id());
INSERT INTO insta5."Own ""name""" DEFAULT VALUES;
CREATE INDEX ON insta5."Own ""name""" (ids);
COMMENT ON TABLE insta5."Own ""name""" IS 'new';
GRANT SELECT ON insta5."Own ""name""" TO PUBLIC});
	my ($code, undef, $said) = $a->psql('postgres', q{CALL snowid.for_each_shard($$ SELECT snowid.create_partition('events', '2015-01-01', '2015-02-01') $$)});
	is($code, 0, 'a job for all shards');
	like($said, qr/shard 5 is being moved\n.*New tables go with it/, 'it says what goes with it');
	moves_ok($a, $b, 5, ['status'], 1, 'status', qr/made since it was copied, and brought before it moves: .*insta5\.fresh/);
	moves_ok($a, $b, 5, [], 0, 'moved', qr/brought what is new in shard 5: .*insta5\.fresh.*tables compared, no difference/s);
	await_writers($writers[1]);
	stop_writers(@writers);
	writers_ok('the others', [ $writers[0] ], [ $writers[1] ]);
	written_ok($writer, 'the new table');
	copies_equal_ok($a, 'insta5_moved', $b, 'insta5', 'the others');
	is($b->safe_psql('postgres', q{SELECT count(*), count(DISTINCT tableoid) FROM insta5.events WHERE what LIKE 'e%'}), '100|1', 'the partition');
	is($b->safe_psql('postgres', q{SELECT count(*), min(obj_description(tableoid, 'pg_class')), bool_and(has_table_privilege('pg_monitor', tableoid, 'SELECT'))
FROM insta5."Own ""name"""}), '1|new|t', 'what else is of a table');
	is($b->safe_psql('postgres', q{SELECT snowid.create_partition('insta5.events', '2015-01-01', '2015-02-01')}), 'insta5.events_p2015_01', 'that of the job, too');
	is(sqlstate($a, q{SELECT snowid.create_partition('insta5_moved.events', '2015-01-01', '2015-02-01')}), 'SN001', 'a closed copy gets none');
	ends_ok('follows');
};

subtest 'killed before it is published, and as it is copied' => sub {
	follows('killed');
	my $holder = $a->background_psql('postgres');
	my $writer = write_new();
	my $tool;
	$holder->query_safe(q{BEGIN; INSERT INTO insta5.users (name) VALUES ('held'); LOCK insta5.fresh IN ROW EXCLUSIVE MODE});
	$tool = IPC::Run::start([ move_command($a, $b, 5, '--lock-timeout', 60000, '--pause-limit', 60000) ], '>', '/dev/null', '2>&1');
	$a->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'insta5.fresh'::regclass AND mode = 'ShareRowExclusiveLock' AND NOT granted)})
	  or die 'does not wait';
	$tool->kill_kill;
	$holder->query_safe('COMMIT');
	is($b->safe_psql('postgres', q{SELECT to_regclass('insta5.fresh') IS NOT NULL}), 't', 'it was made on the target');

	# The slot of the table's copy waits for this transaction.
	$holder->query_safe(q{BEGIN; INSERT INTO insta5.users (name) VALUES ('held')});
	$tool = IPC::Run::start([ move_command($a, $b, 5) ], '>', '/dev/null', '2>&1');
	$b->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM pg_subscription_rel WHERE srsubstate <> 'r')}) or die 'is not copied';
	$tool->kill_kill;
	$a->safe_psql('postgres', q{ALTER TABLE insta5.fresh ADD COLUMN later int DEFAULT 7; CREATE INDEX ON insta5.fresh (later)});
	$a->safe_psql('postgres', q{CREATE TABLE insta5.another (id bigint PRIMARY KEY); INSERT INTO insta5.another VALUES (1)});
	$holder->query_safe('COMMIT');
	$holder->quit;
	moves_ok($a, $b, 5, [], 0, 'the same command goes on');
	written_ok($writer, 'killed');
	is($b->safe_psql('postgres', 'SELECT count(DISTINCT later), (SELECT count(*) FROM insta5.another) FROM insta5.fresh'), '1|1', 'also what was changed meanwhile');
	ends_ok('killed');
};

subtest 'in the last moment' => sub {
	follows('last');
	my $hold = hold_at_step($a, 'verified');
	my $said = '';
	my $tool = IPC::Run::start([ move_command($a, $b, 5) ], '>&', \$said);
	wait_until_held($a) or die 'does not get there';
	my $writer = write_new();
	$hold->quit;
	$tool->finish;
	is($? >> 8, 0, 'a table that is found when writers wait') or diag $said;
	like($said, qr/brought what is new in shard 5: insta5\.fresh/, 'it is brought');
	let_go_steps($a);
	written_ok($writer, 'the last moment');
	ends_ok('last');
};

# It was brought, and is changed: it is brought anew.
subtest 'changed after it was brought' => sub {
	follows('twice');
	my $writer = write_new();
	my $hold = hold_at_step($a, 'verified');
	my $said = '';
	my $tool = IPC::Run::start([ move_command($a, $b, 5) ], '>&', \$said);
	wait_until_held($a) or die 'does not get there';
	$a->safe_psql('postgres', 'CREATE TABLE insta5.another (id bigint PRIMARY KEY); CREATE INDEX ON insta5.fresh (note)');
	$a->safe_psql('postgres', 'ALTER TABLE insta5.fresh ADD COLUMN later int DEFAULT 7');
	$hold->quit;
	$tool->finish;
	is($? >> 8, 0, 'a table that was brought and is changed') or diag $said;
	let_go_steps($a);
	written_ok($writer, 'twice');
	is($b->safe_psql('postgres', 'SELECT count(DISTINCT later) FROM insta5.fresh'), '1', 'with its column');
	ends_ok('twice');
};

# Each comes once, also one that is made when what is new has been noted, and is looked at.
subtest 'one after the other' => sub {
	follows('many');
	my $made = q{SELECT count(*) > 0 FROM pg_class WHERE relnamespace = 'insta5'::regnamespace AND relname = 'made1'};
	my $said = '';
	my $file = PostgreSQL::Test::Utils::tempdir() . '/write';
	append_to_file($file, join("\n",
		map { ("CREATE TABLE insta5.made$_ (id bigint PRIMARY KEY); INSERT INTO insta5.made$_ VALUES ($_); SELECT pg_sleep(0.003);") } 1 .. 80));
	my $writer = IPC::Run::start([ 'psql', '-Xqo', '/dev/null', '-f', $file, $a->connstr('postgres') ]);
	$a->poll_query_until('postgres', $made) or die 'makes none';
	my $tool = IPC::Run::start([ move_command($a, $b, 5) ], '>&', \$said);
	$_->finish for $writer, $tool;
	is($? >> 8, 0, 'tables that are made one after the other') or diag $said;
	is($b->safe_psql('postgres', q{SELECT string_agg(format('TABLE insta5.made%s', i), ' UNION ALL ') FROM generate_series(1, 80) i \gexec}),
		join("\n", 1 .. 80), 'each row has come');
	ends_ok('many');
};

# The program dies between both notes; the next time ends when it has dropped what it brings anew.
for my $before ('', 'insta5.first')
{
	follows("again $before");
	my $old = q{details - 'brought'};
	if ($before)
	{
		$a->safe_psql('postgres', "CREATE TABLE $before (id bigint PRIMARY KEY)");
		moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'one is brought before', qr/brought what is new in shard 5: $before\n/);
		$old = $a->safe_psql('postgres', q{SELECT format('jsonb_set(details, ''{brought}'', %L)', details -> 'brought') FROM snowid.moves WHERE shard = 5});
	}
	my $writer = write_new();
	my $hold = hold_at_step($a, 'verified');
	my $tool = IPC::Run::start([ move_command($a, $b, 5) ], '>&', '/dev/null');
	wait_until_held($a) or die 'does not get there';
	$tool->kill_kill;
	$hold->quit;
	let_go_steps($a);
	is($b->safe_psql('postgres', q{SELECT count(*) FROM pg_subscription_rel WHERE srrelid = 'insta5.fresh'::regclass AND srsubstate = 'r'}), '1', 'brought');
	is($a->safe_psql('postgres', "UPDATE snowid.moves SET details = $old WHERE shard = 5 AND details ? 'brought' RETURNING 1"), '1', 'the source has noted it');
	my $reader = IPC::Run::start([ 'psql', '-XAtq', $a->connstr('postgres') ], '<', \my $in, '>', \my $out, '2>', \my $err);
	$in = "BEGIN; LOCK TABLE insta5.fresh IN ROW EXCLUSIVE MODE; SELECT 'locked';\n";
	$reader->pump until $out =~ /locked/;
	moves_ok($a, $b, 5, [ '--retries', 1, '--lock-timeout', 10 ], 1, 'it cannot be published', qr/could not publish what is new in shard 5/);
	$in .= "COMMIT;\n";
	$reader->finish;
	moves_ok($a, $b, 5, [], 0, 'the same command');
	written_ok($writer, 'again');
	ends_ok('again');
}

subtest 'what cannot be published' => sub {
	follows('no key');
	$a->safe_psql('postgres', 'CREATE TABLE insta5.no_key (n int); INSERT INTO insta5.no_key VALUES (1)');
	moves_ok($a, $b, 5, [], 1, 'without a key', qr/FAILED +replica identity: table insta5\.no_key has none.*type the same command again/s);
	is(sqlstate($a, 'UPDATE insta5.no_key SET n = 2'), '', 'it is written as before');
	$a->safe_psql('postgres', 'ALTER TABLE insta5.no_key ADD PRIMARY KEY (n)');
	moves_ok($a, $b, 5, [], 0, 'with one');
	is($b->safe_psql('postgres', 'TABLE insta5.no_key'), '2', 'its row has come');
	ends_ok('no key');
};

subtest 'other changes stop their shard' => sub {
	fresh_set($a, $b);
	moves_ok($a, $b, '1-6', [ '--stop-after', 'copied' ], 0, 'copied');
	$a->safe_psql('postgres', q{
ALTER TABLE insta2.users ADD COLUMN more text;
INSERT INTO insta2.users (more) VALUES ('cannot be applied');
DROP TABLE insta3.users;
CREATE TABLE insta4.fresh (id bigint PRIMARY KEY);
INSERT INTO insta4.fresh VALUES (4);
CREATE TABLE insta5.fresh (id bigint PRIMARY KEY);
CREATE VIEW insta5.seen AS SELECT * FROM insta5.fresh});
	moves_ok($a, $b, '1-6', ['status'], 1, 'status',
		qr/shard 2: definitions have changed since they were copied: table insta2\.users.*type: snowid-move abort --shard 2 .*shard 3: .*shard 4: .*insta4\.fresh/s);
	moves_ok($a, $b, '1-6', [], 1, 'three cannot', qr/definitions of shard 2 have changed .*insta2\.users.*abort.*3 of 6 shards have moved.*left where they are: shards 2-3,5\n/s);
	is($b->safe_psql('postgres', 'TABLE insta4.fresh'), '4', 'another one has its new table');
	moves_ok($a, $b, '2,3,5', ['abort'], 0, 'given up');
	moves_ok($a, $b, '2,3,5', [], 0, 'moved after that');
	moves_ok($a, $b, '1-6', ['finish'], 0, 'finished');
	nothing_left_ok($_, 'other changes') for $a, $b;
};

# Rows of a table that comes into another's name would go to what the target has of that.
subtest 'tables that come in, and views' => sub {
	fresh_set($a, $b);
	$a->safe_psql('postgres', q{
CREATE TABLE public.before (id bigint PRIMARY KEY, more text NOT NULL);
CREATE TABLE insta2.same (id bigint PRIMARY KEY, more text NOT NULL, "and" int);
CREATE TABLE insta3.same (id bigint PRIMARY KEY);
CREATE TABLE insta4.before (id bigint PRIMARY KEY);
CREATE VIEW insta5.seen AS SELECT id FROM insta5.users});
	moves_ok($a, $b, '1-6', [ '--stop-after', 'copied' ], 0, 'copied');
	$a->safe_psql('postgres', q{
DROP TABLE insta3.same;
ALTER TABLE insta2.same SET SCHEMA insta3;
INSERT INTO insta3.same VALUES (1, 'cannot be applied', 2);
DROP TABLE insta4.before;
ALTER TABLE public.before SET SCHEMA insta4;
INSERT INTO insta4.before VALUES (1, 'is not published');
CREATE OR REPLACE VIEW insta5.seen AS SELECT id FROM insta5.users WHERE id > 0;
CREATE TABLE insta6.fresh (id bigint PRIMARY KEY);
INSERT INTO insta6.fresh VALUES (6)});
	moves_ok($a, $b, '1-6', ['status'], 1, 'status', qr/shard 4: definitions have changed since they were copied: .*insta4\.before.*shard 5: definitions have changed since they were copied: .*view insta5\.seen/s);
	moves_ok($a, $b, '1-6', [], 1, 'four cannot', qr/2 of 6 shards have moved.*left where they are: shards 2-5\n/s);
	is($b->safe_psql('postgres', 'TABLE insta6.fresh'), '6', 'another one has its new table');
	moves_ok($a, $b, '2-5', ['abort'], 0, 'given up');
	moves_ok($a, $b, '2-5', [], 0, 'moved after that');
	is($b->safe_psql('postgres', q{SELECT (SELECT s::text FROM insta3.same s), (SELECT s::text FROM insta4.before s), pg_get_viewdef('insta5.seen') ~ '> 0'}),
		'(1,"cannot be applied",2)|(1,"is not published")|t', 'with what was changed');
	moves_ok($a, $b, '1-6', ['finish'], 0, 'finished');
	nothing_left_ok($_, 'come in') for $a, $b;
};

# The target, which goes by names, may not follow them to tables of others.
subtest 'tables that have left the schema' => sub {
	fresh_set($a, $b);
	moves_ok($a, $b, '1-6', [ '--stop-after', 'copied' ], 0, 'copied');

	# It looks like what is made for a while, and is not ours.
	my $name = $b->safe_psql('postgres', 'SELECT subname FROM pg_subscription LIMIT 1');
	$b->safe_psql('postgres', qq{
CREATE ROLE mimic; CREATE TABLE public.mimic (); ALTER TABLE public.mimic OWNER TO mimic;
CREATE VIEW public.mimics AS SELECT FROM public.mimic; COMMENT ON TABLE public.mimic IS '$name'});
	$b->safe_psql('postgres', q{CREATE TABLE public.users (id bigint PRIMARY KEY, name text); INSERT INTO public.users VALUES (1, 'of others')});
	$a->safe_psql('postgres', q{
CREATE SCHEMA elsewhere;
ALTER TABLE insta2.users SET SCHEMA elsewhere;
INSERT INTO elsewhere.users (name) VALUES ('cannot be applied');
ALTER SCHEMA insta3 RENAME TO three;
INSERT INTO three.users (name) VALUES ('cannot be applied');
ALTER TABLE insta4.users SET SCHEMA public;
INSERT INTO public.users (name) VALUES ('not there');
ALTER TABLE insta5.users RENAME TO people;
INSERT INTO insta5.people (name) VALUES ('cannot be applied');
CREATE TABLE insta6.fresh (id bigint PRIMARY KEY);
INSERT INTO insta6.fresh VALUES (6)});
	moves_ok($a, $b, '1-6', ['status'], 1, 'status', qr/shard 3: definitions have changed since they were copied: there is no schema "insta3"\n/);
	my $said = moves_ok($a, $b, '1-6', [], 1, 'four cannot', qr/2 of 6 shards have moved.*left where they are: shards 2-5\n/s);
	unlike($said, qr/does not exist/, 'no query fails');
	is($b->safe_psql('postgres', 'TABLE insta6.fresh'), '6', 'another one has its new table');
	is($b->safe_psql('postgres', 'TABLE public.users'), '1|of others', 'the table of others is as it was');
	moves_ok($a, $b, '2-5', ['abort'], 0, 'given up');
	is($b->safe_psql('postgres', q{SELECT count(*) FROM pg_namespace WHERE nspname IN ('elsewhere', 'three')}), '0', 'nothing was made for what they had written');
	$a->safe_psql('postgres', q{ALTER TABLE elsewhere.users SET SCHEMA insta2; ALTER SCHEMA three RENAME TO insta3; ALTER TABLE public.users SET SCHEMA insta4; DROP SCHEMA elsewhere});
	moves_ok($a, $b, '2-5', [], 0, 'moved after that');
	is($b->safe_psql('postgres', "SELECT count(*) FROM insta$_"), '4', "$_ is whole") for '2.users', '3.users', '4.users', '5.people';
	moves_ok($a, $b, '1-6', ['finish'], 0, 'finished');
	nothing_left_ok($_, 'left the schema') for $a, $b;
	$b->safe_psql('postgres', 'DROP TABLE public.users; DROP VIEW public.mimics; DROP TABLE public.mimic; DROP ROLE mimic');
};

done_testing();
