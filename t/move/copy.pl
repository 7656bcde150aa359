# The copy: what it brings, what it does when a session ends in it, or a shard
# cannot be copied, and that nobody can plant anything in it.  Where a test needs
# the copy to wait, a CHECK waits on the target.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run;
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b');
$_->start for $a, $b;
for ($a, $b)
{
	my $body = $_ == $a ? 'RETURN true' : 'PERFORM pg_advisory_xact_lock_shared(47); RETURN true';
	my $good = $_ == $a ? 'true' : 'false';
	my $one = $_ == $a ? 'i' : '1';

	$_->safe_psql('postgres', qq{
CREATE EXTENSION snowid;
CREATE ROLE owner;
CREATE ROLE reader;
CREATE FUNCTION public.hold(i int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS 'BEGIN $body; END';
CREATE FUNCTION public.good(i int) RETURNS boolean IMMUTABLE LANGUAGE sql RETURN $good;
CREATE FUNCTION public.one(i int) RETURNS int IMMUTABLE LANGUAGE sql RETURN $one});
}
my $s = 'insta5';

# Shard 5, with a table whose copy waits; and the lock that it waits for.
sub begin_slow
{
	fresh_shard($a, $b);
	$a->safe_psql('postgres', "CREATE TABLE $s.slow (id int PRIMARY KEY CHECK (public.hold(id))); INSERT INTO $s.slow VALUES (1)");
	return hold();
}

sub hold
{
	my $session = $b->background_psql('postgres');
	$session->query_safe('SELECT pg_advisory_lock(47)');
	return $session;
}

sub start_move
{
	my ($said, @args) = @_;
	my $tool = IPC::Run::start([ move_command($a, $b, 5, @args) ], '>&', $said, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));

	wait_until_held($b) or die 'does not get there';
	return $tool;
}

# All kinds of rows, in ranges too, views that read each other, and statistics.
subtest 'what arrives' => sub {
	fresh_shard($a, $b);
	$a->safe_psql('postgres', qq{
CREATE TABLE $s.large (id int, t text, u text GENERATED ALWAYS AS (upper(left(t, 3))) STORED, dropped int, "q "" ""\\" int DEFAULT 7);
ALTER TABLE $s.large DROP dropped, ALTER t SET STORAGE PLAIN, REPLICA IDENTITY FULL;
INSERT INTO $s.large SELECT i, repeat('x', 7500) FROM generate_series(1, 17000) i;
CREATE TABLE $s.pictures (id int PRIMARY KEY, b text);
ALTER TABLE $s.pictures ALTER b SET STORAGE EXTERNAL;
INSERT INTO $s.pictures SELECT i, repeat('x', 1000000) FROM generate_series(1, 20) i;
CREATE TABLE $s.nothing ();
INSERT INTO $s.nothing DEFAULT VALUES;
ALTER TABLE $s.nothing REPLICA IDENTITY FULL;
CREATE TABLE $s.parent (id int PRIMARY KEY, x xml, a text[] DEFAULT '{"a b",NULL,"\\\\"}');
CREATE TABLE $s.child (PRIMARY KEY (id)) INHERITS ($s.parent);
INSERT INTO $s.parent VALUES (1, 'text only'); INSERT INTO $s.child VALUES (2, NULL);
CREATE VIEW $s.between AS SELECT 0::bigint AS n;
CREATE MATERIALIZED VIEW $s.counted_twice AS SELECT 2 * n AS n FROM $s.between;
CREATE MATERIALIZED VIEW $s.counted AS SELECT count(*) AS n FROM $s.large;
CREATE OR REPLACE VIEW $s.between AS SELECT n FROM $s.counted;
CREATE MATERIALIZED VIEW $s.empty AS SELECT 1 WITH NO DATA;
CREATE STATISTICS $s.both ON id, u FROM $s.large;
GRANT USAGE ON SCHEMA $s TO reader WITH GRANT OPTION;
GRANT USAGE ON SCHEMA $s TO PUBLIC;
ALTER SCHEMA $s OWNER TO owner});
	my $rights = q{SELECT nspowner::regrole, (SELECT string_agg(concat_ws(' ', grantee::regrole, privilege_type, is_grantable), ',' ORDER BY 1) FROM aclexplode(nspacl)) FROM pg_namespace WHERE nspname = 'insta5'};
	my $before = $a->safe_psql('postgres', $rights);
	my $said = moves_ok($a, $b, 5, [ '--jobs', 3, '--verify', 'checksums', '--trust-owners' ], 0, 'moved', qr/no difference/);
	like($said, qr/copied 15\d of about 15\d MB/, 'with large values');
	is($b->safe_psql('postgres', "SELECT count(*), count(DISTINCT id), min(u), max(\"q \"\" \"\"\\\") FROM $s.large"), '17000|17000|XXX|7', 'a large table');
	is($b->safe_psql('postgres', "SELECT tableoid::regclass, id, x, a FROM $s.parent ORDER BY id"),
		"$s.parent|1|text only|{\"a b\",NULL,\"\\\\\"}\n$s.child|2||{\"a b\",NULL,\"\\\\\"}", 'parent and child');
	is($b->safe_psql('postgres', "SELECT n FROM $s.counted_twice"), '34000', 'materialized views are filled');
	like($b->safe_psql('postgres', "SELECT relispopulated FROM pg_class WHERE relname = 'empty'"), qr/f/, '... as they were');
	is($b->safe_psql('postgres', q{SELECT count(*) > 5, count(*) FILTER (WHERE tablename = 'likes') FROM pg_stats WHERE schemaname = 'insta5'}), 't|3', 'statistics are there');
	is($b->safe_psql('postgres', q{SELECT count(*) FROM pg_statistic_ext_data}), '1', '... of all kinds');
	is($b->safe_psql('postgres', $rights), $before, 'the schema is whose it was');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
	nothing_left_ok($_, 'finished') for $a, $b;
};

# Until the rows are there, the owner may not make anything there that copying
# them would run; nobody writes; and a session that ends costs its table.
subtest 'a session ends' => sub {
	my $hold = begin_slow();
	$a->safe_psql('postgres', "ALTER SCHEMA $s OWNER TO owner; ALTER TABLE $s.users OWNER TO owner");
	my $said = '';
	my $tool = start_move(\$said, '--trust-owners');
	is(sqlstate($b, "SET ROLE owner; ALTER TABLE $s.users ADD CHECK (true)"), '42501', 'the owner alters nothing');
	is(sqlstate($b, "SET ROLE owner; INSERT INTO $s.users (name) VALUES ('there')"), '42501', '... and writes nothing');
	is(sqlstate($b, "INSERT INTO $s.users (id, name) VALUES (1, 'there')"), 'SN002', '... nor does a superuser');
	is(sqlstate($b, "SELECT $s.next_id()"), 'SN002', 'no id is given');
	$b->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = 47 AND NOT granted});
	ok(eval { $tool->pump until $said =~ /a session has ended; insta5\.slow is begun again/; 1 }, 'the table is copied again') or diag $said;
	wait_until_held($b) or die 'is not';
	$hold->quit;
	ok(eval { $tool->finish; $? == 0 }, 'moved') or diag $said;
	is($b->safe_psql('postgres', "SELECT count(*) FROM $s.slow"), '1', 'once');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
};

# What was committed before the target was restarted is not copied again; and who
# may write the journal there has nothing by it.
subtest 'the target is restarted' => sub {
	my $hold = begin_slow();
	my $said = '';
	my $tool = start_move(\$said);
	$b->safe_psql('postgres', q{UPDATE snowid.moves SET details = details || '{"owner": "reader", "rights": [{"right": "USAGE; CREATE TABLE public.planted (); --", "to": "reader"}]}'});
	$b->stop('immediate');
	$b->start;
	$hold->{run}->kill_kill;
	ok(eval { $tool->finish; $? == 0 }, 'moved') or diag $said;
	is($b->safe_psql('postgres', q{SELECT nspowner::regrole = 'reader'::regrole, nspacl, obj_description(oid) FROM pg_namespace WHERE nspname = 'insta5'}), 'f||', 'the schema is whose it was');
	like($said, qr/insta5\.slow is begun again/, 'the table that was being copied is copied again');
	is($b->safe_psql('postgres', "SELECT to_regclass('public.planted') IS NULL, (SELECT count(*) FROM $s.slow)"), 't|1', 'once, and nothing else is done');
	unlike($said, qr/what an unfinished copy has left/, 'the others are not');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
};

# Once the rows are there, nobody copies them again.
subtest 'an index fails, or the program' => sub {
	fresh_shard($a, $b);
	$a->safe_psql('postgres', "CREATE TABLE $s.t (id int PRIMARY KEY); INSERT INTO $s.t VALUES (1), (2); CREATE UNIQUE INDEX ON $s.t (public.one(id)); CREATE INDEX other ON $s.t (id)");
	moves_ok($a, $b, 5, [], 1, 'it cannot be made', qr/the target, this is missing: t_one_idx; Type: INDEX.*could not create unique index/s);
	$b->safe_psql('postgres', 'CREATE OR REPLACE FUNCTION public.one(i int) RETURNS int IMMUTABLE LANGUAGE sql RETURN i');
	my $rows = q{SELECT string_agg(ctid || xmin::text, ',' ORDER BY id) FROM insta5.t};
	my $before = $b->safe_psql('postgres', $rows);
	unlike(moves_ok($a, $b, 5, [], 0, 'moved', qr/going on after step "rows"/), qr/already exists/, 'what is there is not told');
	is($b->safe_psql('postgres', $rows), $before, 'with the rows of before');
	$b->safe_psql('postgres', 'CREATE OR REPLACE FUNCTION public.one(i int) RETURNS int IMMUTABLE LANGUAGE sql RETURN 1');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
};

# What it has of the same columns would be taken for the table's rows.
subtest 'another table gets its name' => sub {
	my $hold = begin_slow();
	$a->safe_psql('postgres', qq{
CREATE TABLE $s.late (id int PRIMARY KEY); INSERT INTO $s.late VALUES (1);
CREATE TABLE public.late (id int PRIMARY KEY, more text); INSERT INTO public.late VALUES (2, 'another')});
	my $said = '';
	my $tool = start_move(\$said, '--jobs', 1);
	$a->safe_psql('postgres', "DROP TABLE $s.late; ALTER TABLE public.late SET SCHEMA $s");
	$hold->quit;
	ok(eval { $tool->finish; 1 }, 'ended') or diag $said;
	is($tool->result(0), 1, 'it is not copied');
	like($said, qr/table $s\.late cannot be copied: .*it is another table now/, 'and that is told');
	moves_ok($a, $b, 5, [], 1, 'nor later', qr/definitions of shard 5 have changed since they were checked: table $s\.late.*Begin again, after: snowid-move abort/s);
	moves_ok($a, $b, 5, ['abort'], 0, 'aborted');
	moves_ok($a, $b, 5, [], 0, 'moved');
	is($b->safe_psql('postgres', "SELECT * FROM $s.late"), '2|another', 'with the new one');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
};

# Tables are free before they are read and after.  One that is read in ranges is so in
# between, too: then it may be emptied, and a range that has become another is seen.
subtest 'nobody waits for the copy' => sub {
	my $hold = begin_slow();
	$a->safe_psql('postgres', qq{
CREATE TABLE $s.large (id int PRIMARY KEY CHECK (id > 1 OR public.hold(id)), t text) WITH (autovacuum_enabled = off);
ALTER TABLE $s.large ALTER t SET STORAGE PLAIN;
INSERT INTO $s.large SELECT i, repeat('x', 7500) FROM generate_series(1, 17000) i;
DELETE FROM $s.large WHERE id % 2 = 0;
CREATE TABLE $s.early (id int PRIMARY KEY);
INSERT INTO $s.early SELECT generate_series(1, 1000);
CREATE TABLE $s.late (id int PRIMARY KEY);
INSERT INTO $s.late VALUES (1)});
	for my $statement ("VACUUM FULL $s.large", "TRUNCATE $s.large")
	{
		my $said = '';
		my $tool = start_move(\$said, '--jobs', 1);
		is(sqlstate($a, "SET lock_timeout = '5s'; TRUNCATE $s.late"), '', 'a table is free before it is read');
		my $other = IPC::Run::start([ 'psql', '-c', q{SET lock_timeout = '20s'}, '-c', $statement, $a->connstr('postgres') ], '>', '/dev/null', IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
		$a->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_locks WHERE relation = '$s.large'::regclass AND NOT granted") or die 'does not wait';
		$hold->query_safe('SELECT pg_advisory_unlock(47), pg_advisory_lock(47)');
		ok(eval { $other->finish; $? == 0 }, "and after: $statement");
		if ($statement =~ /VACUUM/)
		{
			# It would be held again if it went on.
			$tool->pump_nb while $tool->pumpable && $b->safe_psql('postgres', q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 47 AND NOT granted}) eq '0';
			ok(!$tool->pumpable, 'the ranges have become others') or diag $said;
			$tool->kill_kill;
			is($tool->result(0), 1, 'so it fails');
			like($said, qr/table $s.large was rewritten while it was copied/, 'and that is told');
			next;
		}
		wait_until_held($b) or die 'is not';
		is(sqlstate($a, "SET lock_timeout = '5s'; TRUNCATE $s.early"), '', 'one that was read with others, too');
		$other = $a->background_psql('postgres');
		$other->query_safe("BEGIN; INSERT INTO $s.late VALUES (2); LOCK TABLE $s.late");
		$hold->quit;
		ok(eval { $tool->pump until $said =~ /waiting for process/; 1 }, 'whom the copy waits for is told') or diag $said;
		$other->query_safe('COMMIT');
		$other->quit;
		ok(eval { $tool->finish; $? == 0 }, 'moved') or diag $said;
		like($said, qr/all rows are compared: a table was emptied or rewritten before it was copied.*no difference/s, 'what the log need not have is looked at');
		is($b->safe_psql('postgres', "SELECT (SELECT count(*) FROM $s.large), (SELECT string_agg(id::text, ' ') FROM $s.late)"), '0|2', 'with what was done');
	}
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
};

# Without the session that keeps the snapshot, another's would not be that of the slot.
subtest 'the snapshot ends' => sub {
	my $hold = begin_slow();
	my $said = '';
	my $tool = start_move(\$said);
	$a->poll_query_until('postgres', q{SELECT count(pg_terminate_backend(pid)) > 0 FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND state = 'idle in transaction'}) or die 'no snapshot is kept';
	$hold->quit;
	$tool->finish;
	is($? >> 8, 1, 'the copy fails') or diag $said;
	like($said, qr/snapshot.* (?:was ended|is lost)/, 'and says so');
	moves_ok($a, $b, 5, [], 0, 'the same command begins anew', qr/what an unfinished copy has left at .* is dropped/);
	is($b->safe_psql('postgres', "SELECT count(*) FROM $s.slow"), '1', 'once');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
};

# The log that is kept meanwhile has its limit.
subtest '--max-wal' => sub {
	my $hold = begin_slow();
	my $said = '';
	my $tool = start_move(\$said, '--max-wal', '1MB');
	$a->safe_psql('postgres', q{SELECT count(pg_logical_emit_message(true, 'fill', repeat('x', 100000))) FROM generate_series(1, 30)});
	ok(eval { $tool->pump until $said =~ /more than --max-wal allows/; 1 }, 'it is looked at') or diag $said;
	$hold->quit;
	$tool->finish;
	is($? >> 8, 1, 'the move is undone');
	nothing_left_ok($_, 'undone') for $a, $b;
};

# All slots are in use: it waits for one, and says so.
subtest 'no slot' => sub {
	my $said = '';

	fresh_shard($a, $b);
	hold_and_kill($a, 'published', 0, 'move', $a, $b);
	$a->safe_psql('postgres', q{SELECT pg_create_physical_replication_slot('s' || i) FROM generate_series(1, 10) i});
	my $tool = IPC::Run::start([ move_command($a, $b, 5) ], '>&', \$said, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	ok(eval { $tool->pump until $said =~ /waiting for a slot: .*all replication slots are in use/; 1 }, 'it is told') or diag $said;
	$a->safe_psql('postgres', q{SELECT pg_drop_replication_slot('s' || i) FROM generate_series(1, 10) i});
	ok(eval { $tool->finish; $? == 0 }, 'moved') or diag $said;
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
};

# One shard of a batch cannot be made, copied, or indexed on the target.
subtest 'one of a batch' => sub {
	for ([ 'definitions', 'CREATE VIEW v AS SELECT public.only_here()', qr/cannot be created there/ ],
		[ 'rows', 'CREATE TABLE t (id int PRIMARY KEY CHECK (public.good(id))); INSERT INTO t VALUES (1)', qr/table insta6\.t cannot be copied: .*check constraint/ ],
		[ 'indexes', 'CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2); CREATE UNIQUE INDEX ON t (public.one(id))', qr/this is missing: t_one_idx; Type: INDEX; Schema: insta6/ ])
	{
		my ($name, $ddl, $like) = @$_;

		fresh_shard($a, $b);
		$_->safe_psql('postgres', 'CREATE FUNCTION public.only_here() RETURNS int LANGUAGE sql RETURN 1') for $a, $b;
		$a->safe_psql('postgres', "CALL snowid.create_shards(6, 6, ddl => \$\$$ddl\$\$)");
		make_shard($a, 7, 'insta7');
		my $hold = hold_at_step($a, 'published');
		my $said = '';
		my $tool = IPC::Run::start([ move_command($a, $b, '5-7') ], '>&', \$said, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
		wait_until_held($a) or die 'does not get there';
		$b->safe_psql('postgres', 'DROP FUNCTION public.only_here');
		$hold->quit;
		let_go_steps($a);
		$tool->finish;
		is($? >> 8, 1, "$name: one fails") or diag $said;
		like($said, $like, "$name: it is told");
		like($said, qr/the copy begins anew without shard 6/, "$name: the others begin anew");
		is(living($b), '5,7', "$name: and are moved");
		is(living($a), '6', "$name: it is where it was");
		moves_ok($a, $b, '5-7', ['finish'], 0, "$name: finished");
		nothing_left_ok($_, $name) for $a, $b;
		$a->safe_psql('postgres', 'SELECT snowid.drop_shard(6, cascade => true); DROP FUNCTION public.only_here');
	}
};

# Here one that replays, and takes nobody, until it is told to become a primary.
subtest 'a server that is starting' => sub {
	fresh_shard($a, $b);
	$b->stop;
	$b->set_standby_mode;
	$b->append_conf('postgresql.conf', 'hot_standby = off');
	$b->start;
	my $said = '';
	my $tool = IPC::Run::start([ move_command($a, $b, 5) ], '>&', \$said, IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	ok(eval { $tool->pump until $said =~ /target: waiting: /; 1 }, 'it is waited for') or diag $said;
	$b->promote;
	ok(eval { $tool->finish; $? == 0 }, 'moved') or diag $said;
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
};

done_testing();
