# What people do while a copy follows, on either side: it is carried, or named with what
# to type, and stops its shard alone.  Nothing is awaited for ever, and no row is lost.
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

sub follows
{
	my ($shards, @args) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return moves_ok($a, $b, $shards, [ '--stop-after', 'copied', @args ], 0, 'copied');
}

# Publication, slot and subscription have one name.
sub name
{
	return $a->safe_psql('postgres', 'SELECT slot_name FROM pg_replication_slots');
}

# It is given up, and moves then.
sub begins_anew_ok
{
	my ($shards, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	moves_ok($a, $b, $shards, ['abort'], 0, "$name: given up");
	moves_ok($a, $b, $shards, [], 0, "$name: moved after that");
	return;
}

sub ends_ok
{
	my ($shards, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	moves_ok($a, $b, $shards, ['finish'], 0, "$name: finished");
	nothing_left_ok($_, $name) for $a, $b;
	return;
}

# Once rows are compared.
for my $way ('DROP TABLE insta5.users', 'DROP TABLE insta5.users, for a while', q{SET (publish = 'delete')})
{
	subtest "what somebody publishes no more: $way" => sub {
		fresh_shard($a, $b);
		follows(5);
		my $hold = hold_at_step($a, 'verified');
		my $said = '';
		my $tool = IPC::Run::start([ move_command($a, $b, 5) ], '>&', \$said);
		wait_until_held($a) or die 'does not get there';
		my $publication = 'ALTER PUBLICATION ' . name();
		$a->safe_psql('postgres', "$publication " . $way =~ s/,.*//r);
		$a->safe_psql('postgres', q{INSERT INTO insta5.users (name) VALUES ('unpublished')});
		$a->safe_psql('postgres', "$publication ADD TABLE ONLY insta5.users") if $way =~ /while/;
		$a->safe_psql('postgres', "$publication SET (publish = 'insert, update, delete, truncate')") if $way =~ /SET/;
		$hold->quit;
		$tool->finish;
		is($? >> 8, 1, 'it does not move') or diag $said;
		like($said, qr/lack rows of what was not published all the time: .*insta5\.users.*abort/s, 'it says so');
		let_go_steps($a);
		begins_anew_ok(5, 'unpublished');
		is($b->safe_psql('postgres', q{SELECT count(*) FROM insta5.users WHERE name = 'unpublished'}), '1', 'with its row');
		ends_ok(5, 'unpublished');
	};
}

for my $what (qw(publication subscription))
{
	subtest "a $what that is dropped" => sub {
		my $name;
		fresh_shard($a, $b);
		follows(5);
		$name = name();
		$b->safe_psql('postgres', "ALTER SUBSCRIPTION $name DISABLE") if $what eq 'subscription';
		$b->safe_psql('postgres', "ALTER SUBSCRIPTION $name SET (slot_name = NONE)") if $what eq 'subscription';
		($what eq 'publication' ? $a : $b)->safe_psql('postgres', "DROP $what $name");
		$a->safe_psql('postgres', q{INSERT INTO insta5.users (name) VALUES ('unseen')});
		moves_ok($a, $b, 5, [], 1, 'it cannot go on', qr/"$name" of the \w+ is lost: somebody has dropped it.*the move is undone/s);
		moves_ok($a, $b, 5, [], 0, 'moved after that');
		ends_ok(5, "a $what");
	};
}

# By a server that keeps no log for a slot that nobody reads.
for ([ 'max_slot_wal_keep_size', '1MB', $a->pg_version >= 17 ? 'wal_removed' : 'its log is gone' ], [ 'idle_replication_slot_timeout', '1s', 'idle_timeout' ])
{
	my ($setting, $value, $reason) = @$_;
	next if $setting =~ /^idle/ && $a->pg_version < 18;

	subtest "a slot that is lost by $setting" => sub {
		fresh_shard($a, $b);
		follows(5);
		my $name = name();
		$b->safe_psql('postgres', "ALTER SUBSCRIPTION $name DISABLE");
		$a->poll_query_until('postgres', 'SELECT NOT active FROM pg_replication_slots') or die 'still read';
		$a->safe_psql('postgres', $_) for "ALTER SYSTEM SET $setting = '$value'", 'SELECT pg_reload_conf()';
		for (1 .. $PostgreSQL::Test::Utils::timeout_default)
		{
			last if $a->safe_psql('postgres', 'SELECT wal_status FROM pg_replication_slots') eq 'lost';
			$a->safe_psql('postgres', $_) for 'SELECT pg_logical_emit_message(false, $$x$$, $$x$$), pg_switch_wal()', 'CHECKPOINT';
			usleep(100_000) if $setting =~ /^idle/;
		}
		$b->safe_psql('postgres', "ALTER SUBSCRIPTION $name ENABLE");
		moves_ok($a, $b, 5, [], 1, 'it cannot go on', qr/replication slot "$name" of the source is lost: $reason\n.*the move is undone/s);
		$a->safe_psql('postgres', $_) for "ALTER SYSTEM RESET $setting", 'SELECT pg_reload_conf()';
		moves_ok($a, $b, 5, [], 0, 'moved after that');
		ends_ok(5, $setting);
	};
}

subtest 'a copy that is renamed' => sub {
	my $says = qr/the copy of shard 5 has another name on the target.*ALTER SCHEMA insta5_x RENAME TO insta5;/s;
	fresh_shard($a, $b);
	follows(5);
	$b->safe_psql('postgres', 'ALTER SCHEMA insta5 RENAME TO insta5_x');
	moves_ok($a, $b, 5, [], 1, 'it is named', $says);
	$a->safe_psql('postgres', q{INSERT INTO insta5.users (name) VALUES ('cannot be applied')});
	moves_ok($a, $b, 5, [], 1, 'also when nothing can be applied', $says);
	moves_ok($a, $b, 5, ['abort'], 1, 'abort leaves none behind', $says);
	$b->safe_psql('postgres', 'ALTER SCHEMA insta5_x RENAME TO insta5');
	moves_ok($a, $b, 5, [], 0, 'moved with its name');
	is($b->safe_psql('postgres', q{SELECT count(*) FROM insta5.users WHERE name = 'cannot be applied'}), '1', 'with its row');
	ends_ok(5, 'renamed');
};

subtest 'a subscription that is disabled' => sub {
	my $name;
	my $says = qr/subscription "\w+" of the target is disabled.*ALTER SUBSCRIPTION "\w+" ENABLE;/s;
	fresh_set($a, $b);
	follows('1-6');
	$name = name();
	$b->safe_psql('postgres', "ALTER SUBSCRIPTION $name DISABLE");
	moves_ok($a, $b, '1-6', [], 1, 'it is named', $says);
	moves_ok($a, $b, 2, ['abort'], 3, 'by abort of one, too', $says);
	$b->safe_psql('postgres', "ALTER SUBSCRIPTION $name ENABLE");
	moves_ok($a, $b, 2, ['abort'], 0, 'given up');
	moves_ok($a, $b, '1,3-6', [], 0, 'the others have moved');
	ends_ok('1,3-6', 'disabled');
};

subtest 'what is made in the copy' => sub {
	fresh_shard($a, $b);
	follows(5);
	$b->safe_psql('postgres', 'CREATE TABLE insta5.hand (n int)');
	moves_ok($a, $b, 5, [], 1, 'it is named', qr/on the target since they were compared: table insta5\.hand\n.*Drop what is new there, and type the same command again\. Or: Begin again, after: .*abort/s);
	$b->safe_psql('postgres', 'DROP TABLE insta5.hand');
	moves_ok($a, $b, 5, [], 0, 'moved without it');
	ends_ok(5, 'made in the copy');
};

# Some of it nobody sees in the catalogs; the log has it.
subtest 'other names and types, for a while' => sub {
	fresh_set($a, $b);
	follows('1-6');
	my $was = $a->safe_psql('postgres', q{SELECT count(*) FROM insta4.users});
	$a->safe_psql('postgres', q{
ALTER TABLE insta2.users RENAME TO people;
INSERT INTO insta2.people (name) VALUES ('cannot be applied');
ALTER TABLE insta2.people RENAME TO users;
ALTER TABLE insta3.users RENAME name TO "the name";
INSERT INTO insta3.users ("the name") VALUES ('cannot be applied');
ALTER TABLE insta3.users RENAME "the name" TO name;
ALTER SCHEMA insta4 RENAME TO "vierü";
INSERT INTO "vierü".users (name) VALUES ('cannot be applied');
ALTER SCHEMA "vierü" RENAME TO insta4;
ALTER TABLE insta5.users ADD COLUMN soon int;
INSERT INTO insta5.users (soon) VALUES (1);
ALTER TABLE insta5.users DROP COLUMN soon;
ALTER TABLE insta6.users ALTER name TYPE int USING 6;
INSERT INTO insta6.users (name) VALUES (7)});
	moves_ok($a, $b, '1-6', [], 1, 'five cannot',
		qr/followed no more.*vier[^ ]*\.users.*shard 2 have changed.*shard 3 have changed.*shard 5 have changed.*shard 6 have changed.*not published all the time: insta4\.users.*1 of 6 shards have moved.*left where they are: shards 2-6\n/s);
	begins_anew_ok('2-6', 'for a while');
	is($b->safe_psql('postgres', 'SELECT count(*) FROM insta4.users'), $was + 1, 'with the row that nobody saw');
	ends_ok('1-6', 'for a while');
};

# The log's names come in the client's encoding.
subtest 'names in another encoding' => sub {
	local $MoveTest::database = 'latin';
	for ($a, $b)
	{
		$_->safe_psql('postgres', q{CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0});
		$_->safe_psql('latin', 'CREATE EXTENSION snowid');
	}
	$a->safe_psql('latin', q{
SET client_encoding = 'UTF8';
CALL snowid.create_shards(5, 6, ddl => 'CREATE TABLE "ü" (id bigint PRIMARY KEY DEFAULT next_id(), "é" text)')});
	follows('5-6');
	$a->safe_psql('latin', q{
SET client_encoding = 'UTF8';
INSERT INTO insta6."ü" ("é") VALUES ('è');
ALTER SCHEMA insta5 RENAME TO "fünf";
INSERT INTO "fünf"."ü" ("é") VALUES ('cannot be applied');
ALTER SCHEMA "fünf" RENAME TO insta5});
	moves_ok($a, $b, '5-6', [], 1, 'one cannot', qr/followed no more[^\n]*: "fünf"\."ü"\n.*1 of 2 shards have moved.*left where they are: shard 5\n/s);
	is($b->safe_psql('latin', q{SET client_encoding = 'UTF8'; SELECT count(*) FROM insta6."ü"}), '1', 'the other has its row');
	moves_ok($a, $b, 5, ['abort'], 0, 'given up');
	moves_ok($a, $b, 6, ['finish'], 0, 'finished');
	$_->safe_psql('postgres', 'DROP DATABASE latin') for $a, $b;
};

subtest 'changes are named as people know them' => sub {
	fresh_shard($a, $b);
	follows(5);
	$a->safe_psql('postgres', q{
ALTER TABLE insta5.photos ADD CONSTRAINT again FOREIGN KEY (user_id) REFERENCES insta5.users NOT VALID;
CREATE TYPE insta5.mood AS ENUM ('fine'); CREATE VIEW insta5.two AS SELECT 2 AS two});
	my $said = moves_ok($a, $b, 5, [], 1, 'changed', qr/view insta5\.two, .*type insta5\.mood.*constraint again on table insta5\.photos/);
	unlike($said, qr/\[\]|RI_ConstraintTrigger|type insta5\.two/, 'and nothing that nobody has made');
	begins_anew_ok(5, 'named');
	ends_ok(5, 'named');
};

subtest 'what goes with it' => sub {
	fresh_shard($a, $b);
	$a->safe_psql('postgres', 'CREATE TABLE insta5.events (id bigint PRIMARY KEY, what text) PARTITION BY RANGE (id)');
	append_to_file($a->basedir . '/ddl', 'ALTER TABLE users ALTER photos TYPE bigint');
	follows(5);
	$a->safe_psql('postgres', q{
CREATE SEQUENCE insta5.own;
SELECT nextval('insta5.own'), nextval('insta5.own');
CREATE TABLE insta5.kid (PRIMARY KEY (id)) INHERITS (insta5.users);
INSERT INTO insta5.kid (name) VALUES ('kid');
CREATE TABLE insta5.part (id bigint PRIMARY KEY, what text);
INSERT INTO insta5.part VALUES (5, 'before');
ALTER TABLE insta5.events ATTACH PARTITION insta5.part FOR VALUES FROM (0) TO (10);
INSERT INTO insta5.events VALUES (6, 'after');
CREATE TABLE insta5.gone (id bigint PRIMARY KEY); INSERT INTO insta5.gone VALUES (1); DROP TABLE insta5.gone;
TRUNCATE insta5.photos});
	is(sqlstate($a, 'ALTER TABLE insta5.photos SET UNLOGGED'), '55000', 'what is published stays logged');
	is(sqlstate($a, 'SELECT snowid.drop_shard(5, true)'), '55000', 'the shard is not dropped meanwhile');
	moves_ok($a, $b, 5, [], 0, 'moved');
	is($b->safe_psql('postgres', q{SELECT nextval('insta5.own'), (SELECT count(*) FROM insta5.photos), (SELECT string_agg(what, ',' ORDER BY id) FROM insta5.part),
(SELECT tableoid::regclass FROM insta5.users WHERE name = 'kid')}), '3|0|before,after|insta5.kid', 'with all that');
	ends_ok(5, 'goes with it');
};

subtest 'what was brought, and is dropped' => sub {
	fresh_shard($a, $b);
	follows(5);
	$a->safe_psql('postgres', 'CREATE TABLE insta5.fresh (id bigint PRIMARY KEY, n serial); INSERT INTO insta5.fresh VALUES (1)');
	follows(5);
	is($b->safe_psql('postgres', 'TABLE insta5.fresh'), '1|1', 'it was brought');
	$a->safe_psql('postgres', 'INSERT INTO insta5.fresh VALUES (2); DROP TABLE insta5.fresh');
	moves_ok($a, $b, 5, ['status'], 1, 'status', qr/brought before it moves: nothing; what was brought is dropped/);
	moves_ok($a, $b, 5, [], 0, 'moved', qr/brought what is new in shard 5: nothing; what was brought is dropped/);
	is($b->safe_psql('postgres', q{SELECT to_regclass('insta5.fresh')}), '', 'it is dropped there, too');
	ends_ok(5, 'dropped');
};

subtest 'a shared table that is missing there' => sub {
	fresh_shard($a, $b);
	follows(5);
	$a->safe_psql('postgres', q{
CREATE TABLE public.kinds (id int PRIMARY KEY); INSERT INTO public.kinds VALUES (1);
CREATE TABLE insta5.fresh (id bigint PRIMARY KEY, kind int REFERENCES public.kinds); INSERT INTO insta5.fresh VALUES (1, 1)});
	moves_ok($a, $b, 5, [], 1, 'it is named', qr/FAILED +shared tables: public\.kinds is missing.*Make it there.*insta5\.fresh\n.*hint: Correct that, and type the same command again/s);
	$b->safe_psql('postgres', 'CREATE TABLE public.kinds (id int PRIMARY KEY); INSERT INTO public.kinds VALUES (1)');
	moves_ok($a, $b, 5, [], 0, 'moved once it is there');
	is($b->safe_psql('postgres', 'TABLE insta5.fresh'), '1|1', 'with the table that leads to it');
	ends_ok(5, 'a shared table');
};

subtest 'on the way back' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, ['--reverse'], 0, 'moved');
	$b->safe_psql('postgres', 'CREATE TABLE insta5.fresh (id bigint PRIMARY KEY); INSERT INTO insta5.fresh VALUES (1)');
	moves_ok($a, $b, 5, ['back'], 1, 'a new table ends it', qr/changed since they were \w+: table insta5\.fresh, .*no way back any more.*finish/s);
	is($b->safe_psql('postgres', 'INSERT INTO insta5.fresh VALUES (2) RETURNING id'), '2', 'it is written as before');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
	moves_ok($b, $a, 5, [], 0, 'moved back with it');
	is($a->safe_psql('postgres', 'SELECT count(*) FROM insta5.fresh'), '2', 'with its rows');
	moves_ok($b, $a, 5, ['finish'], 0, 'finished');
	nothing_left_ok($_, 'the way back') for $a, $b;

	# What is published there, too.
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, ['--reverse'], 0, 'moved');
	my $publication = 'ALTER PUBLICATION ' . $b->safe_psql('postgres', 'SELECT pubname FROM pg_publication');
	$b->safe_psql('postgres', "$publication DROP TABLE insta5.users");
	$b->safe_psql('postgres', q{INSERT INTO insta5.users (name) VALUES ('unpublished')});
	moves_ok($a, $b, 5, ['back'], 1, 'what somebody publishes no more', qr/lack rows of what was not published all the time: insta5\.users.*no way back any more/s);
	is(living($b), '5', 'it stays');
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
};

subtest 'with --target-ddl' => sub {
	my @ddl = ('--target-ddl', $a->basedir . '/ddl');
	fresh_shard($a, $b);
	follows(5, @ddl);
	$a->safe_psql('postgres', 'CREATE TABLE insta5.fresh (id bigint PRIMARY KEY); INSERT INTO insta5.fresh VALUES (1)');
	moves_ok($a, $b, 5, \@ddl, 1, 'a new table stops it', qr/changed since they were copied: table insta5\.fresh, .*abort/s);
	moves_ok($a, $b, 5, ['abort'], 0, 'given up');
	moves_ok($a, $b, 5, \@ddl, 0, 'moved with it');
	is($b->safe_psql('postgres', 'TABLE insta5.fresh'), '1', 'with its row');
	ends_ok(5, 'with --target-ddl');
};

done_testing();
