# Commands in an order, or with sides, that nobody had thought of: each is refused with what
# is to be typed instead, or does what it says, and the shard lives on one server.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b');
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;

# What is to be typed, as a message has it: whole, with the sides as the move began.
sub whole
{
	my ($command, $shards) = @_;
	return sprintf q{snowid-move %s --shard %s --from '[^']* port=%s' --to '[^']* port=%s'}, $command, $shards, $a->port, $b->port;
}

subtest 'sides exchanged' => sub {
	for my $reverse (0, 1)
	{
		my @reverse = $reverse ? '--reverse' : ();
		fresh_shard($a, $b);
		my $exchanged = sub {
			my ($name) = @_;
			for my $command (qw(move back abort finish status))
			{
				moves_ok($b, $a, 5, [$command], 2, "$name: $command", qr/are exchanged.*Type: @{[whole($command, 5)]}\n/s);
			}
		};
		moves_ok($a, $b, 5, [ '--stop-after', 'copied', @reverse ], 0, 'copied');
		$exchanged->('copied');
		lives_on_ok($a, $b, 'copied');
		moves_ok($a, $b, 5, [], 0, 'moved');
		$exchanged->('moved');
		lives_on_ok($b, $a, 'moved');
		if ($reverse)
		{
			moves_ok($a, $b, 5, ['back'], 0, 'back');
			$exchanged->('back');
			lives_on_ok($a, $b, 'back');
		}
		moves_ok($a, $b, 5, ['finish'], 0, 'finished');
		nothing_left_ok($_, 'finished') for $a, $b;
	}
};

# The copy that is left behind may be the last one.
subtest 'a target without the shard' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [], 0, 'moved');
	$b->safe_psql('postgres', q{ALTER SCHEMA insta5 RENAME TO kept});
	moves_ok($a, $b, 5, [$_], 1, "$_: its schema is gone", qr/shard 5 does not live at .*may be the last; nothing was dropped/) for 'finish', 'move';
	$b->safe_psql('postgres', q{UPDATE snowid.shard_registry SET home = 'host=third dbname=postgres' WHERE shard = 5});
	my $said = moves_ok($a, $b, 5, ['finish'], 1, 'it has gone on', qr/shard 5 has gone on from .*, which says where: host=third dbname=postgres; the copies at .* were not dropped/);
	unlike($said, qr/unfence_shard/, '... and nobody is told to open it twice');
	$b->safe_psql('postgres', q{CREATE TABLE public.was AS TABLE snowid.moves; DELETE FROM snowid.moves; CREATE TABLE public.had AS TABLE snowid.shard_registry; DELETE FROM snowid.shard_registry});
	moves_ok($a, $b, 5, ['finish'], 1, 'it was restored to before the move', qr/may be the last/);
	is($a->safe_psql('postgres', 'SELECT count(*) > 0 FROM insta5_moved.users'), 't', 'the copy is there');
	$a->safe_psql('postgres', q{UPDATE snowid.moves SET details = details || '{"peer_system": "1"}'});
	moves_ok($a, $b, 5, ['finish'], 1, 'another server at its address', qr/system identifier is \d+, and was 1\n/);
	# pg_upgrade gives a server another one, and leaves it its journal.
	$b->safe_psql('postgres', q{ALTER SCHEMA kept RENAME TO insta5; INSERT INTO snowid.moves TABLE public.was; INSERT INTO snowid.shard_registry TABLE public.had; DROP TABLE public.was, public.had});
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
	nothing_left_ok($_, 'a target without the shard') for $a, $b;
};

# A source that was put back to before the move has the shard as it was then: the copy is newer.
for my $timeline ('the same timeline', 'another timeline')
{
	subtest "a source that was put back, $timeline" => sub {
		fresh_shard($a, $b);
		$a->stop;
		$a->backup_fs_cold($timeline =~ s/ /_/gr);
		$a->start;
		my $id = $a->safe_psql('postgres', q{INSERT INTO insta5.users (name) VALUES ('newer') RETURNING id});
		moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
		put_back($a, $a, $timeline =~ s/ /_/gr);
		$a->safe_psql('postgres', q{INSERT INTO insta5.users (name) SELECT 'since' FROM generate_series(1, 5000)});
		if ($timeline =~ /another/)
		{
			$a->stop;
			$a->set_standby_mode;
			$a->start;
			$a->promote;
			$a->safe_psql('postgres', 'SELECT pg_switch_wal()') for 1 .. 3;
			$a->safe_psql('postgres', 'CREATE TABLE public.later (); DROP TABLE public.later');
		}
		my $said = moves_ok($a, $b, 5, ['abort'], 1, 'abort', qr/does not know the move of shard 5: it was put back.* nothing was dropped\n.*snowid-move abort --cascade --shard 5 /s);
		my $diff = $said =~ /nowhere else: (snowid-move diff .*?);/ ? `$1 2>&1` : 'no command';
		like($diff, qr/users.*1 only at --from/, '... and what it tells shows what would be lost') or diag $diff;
		is($b->safe_psql('postgres', "SELECT count(*) FROM insta5.users WHERE id = $id"), '1', 'the newer copy is there');
		moves_ok($a, $b, 5, [ 'abort', '--cascade' ], 0, 'who has looked may');
		nothing_left_ok($_, 'a source that was put back') for $a, $b;
	};
}

# To the middle of the move: what has come since is lost there.
subtest 'a source that was put back to the middle' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	$a->stop;
	$a->backup_fs_cold('middle');
	$a->start;
	my $id = $a->safe_psql('postgres', q{INSERT INTO insta5.users (name) VALUES ('newer') RETURNING id});
	$b->poll_query_until('postgres', "SELECT count(*) = 1 FROM insta5.users WHERE id = $id") or die 'it does not come';
	put_back($a, $a, 'middle');
	moves_ok($a, $b, 5, ['abort'], 1, 'abort', qr/has lost changes of shard 5: it was put back.* nothing was dropped\n.*snowid-move abort --cascade --shard 5 /s);
	moves_ok($a, $b, 5, [ 'abort', '--cascade' ], 0, 'who has looked may');
	nothing_left_ok($_, 'a source that was put back to the middle') for $a, $b;
};

# Aborted while the target was away, which is no reason to compare, also after a fail-over.
subtest 'a target that was away' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	$b->stop;
	moves_ok($a, $b, 5, ['abort'], 0, 'aborted without it');
	is($a->safe_psql('postgres', q{SELECT count(*) FROM pg_publication WHERE pubname ^@ 'snowid_aborted_5_'}), '1', 'which is noted');
	$a->stop;
	$a->set_standby_mode;
	$a->start;
	$a->promote;
	$b->start;
	moves_ok($a, $b, 5, ['abort'], 0, 'with it');
	is($a->safe_psql('postgres', 'SELECT count(*) FROM pg_publication'), '0', 'and forgotten');
	nothing_left_ok($_, 'a target that was away') for $a, $b;
};

# A batch, of which one was aborted while the target was away.
subtest 'a target that was away, and a batch' => sub {
	fresh_set($a, $b);
	moves_ok($a, $b, '2-3', [ '--stop-after', 'copied' ], 0, 'copied');
	$b->stop;
	moves_ok($a, $b, 2, ['abort'], 0, 'one is aborted without it');
	$b->start;
	moves_ok($a, $b, $_, ['abort'], 0, "$_ with it") for 2, 3;
	is($a->safe_psql('postgres', 'SELECT count(*) FROM pg_publication'), '0', 'and all is forgotten');
	nothing_left_ok($_, 'a target that was away, and a batch') for $a, $b;
};

# There once, back, and there again: a target that was restored to the first time has it, but as it was then.
subtest 'a target that had the shard before' => sub {
	fresh_shard($a, $b);
	moves_ok(@$_, 0, 'there and back') for [ $a, $b, 5, [] ], [ $a, $b, 5, ['finish'] ];
	$b->stop;
	$b->backup_fs_cold('then');
	$b->start;
	moves_ok(@$_, 0, 'there and back') for [ $b, $a, 5, [] ], [ $b, $a, 5, ['finish'] ];
	my $id = $a->safe_psql('postgres', q{INSERT INTO insta5.users (name) VALUES ('newer') RETURNING id});
	moves_ok($a, $b, 5, [], 0, 'there again');
	put_back($b, $b, 'then');
	for my $command ([ 'finish', '--dry-run' ], ['finish'])
	{
		my $said = moves_ok($a, $b, 5, $command, 1, "@$command", qr/does not know that shard 5 came to it.* nothing was dropped\n.*snowid-move finish --cascade --shard 5 /s);
		my $diff = $said =~ /nowhere else: (snowid-move diff .*?);/ ? `$1 2>&1` : 'no command';
		like($diff, qr/users.*only at --to/, '... and what it tells shows what would be lost');
	}
	is($a->safe_psql('postgres', "SELECT count(*) FROM insta5_moved.users WHERE id = $id"), '1', 'the newer copy is there');
	moves_ok($a, $b, 5, [ 'finish', '--cascade' ], 0, 'who has looked may');
	nothing_left_ok($_, 'a target that had the shard before') for $a, $b;
};

# So may the copy that a move has begun, if the source was restored to before it had the shard.
subtest 'a source without the shard' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	$a->safe_psql('postgres', q{
ALTER SCHEMA insta5 RENAME TO kept;
CREATE TABLE public.was AS TABLE snowid.moves; DELETE FROM snowid.moves;
CREATE TABLE public.had AS TABLE snowid.shard_registry; DELETE FROM snowid.shard_registry});
	moves_ok($a, $b, 5, ['abort'], 1, 'abort', qr/shard 5 does not live at .*may be the last; nothing was dropped/);
	is($b->safe_psql('postgres', 'SELECT count(*) > 0 FROM insta5.users'), 't', 'the copy is there');
	$a->safe_psql('postgres', q{ALTER SCHEMA kept RENAME TO insta5; INSERT INTO snowid.shard_registry TABLE public.had});
	moves_ok($a, $b, 5, [ 'abort', '--cascade' ], 0, 'with the shard, but without the journal');
	$a->safe_psql('postgres', 'DROP TABLE public.was, public.had');
	lives_on_ok($a, $b, 'aborted');
	nothing_left_ok($_, 'a source without the shard') for $a, $b;
};

# One that waits for a lock is killed: the other server still knows all.  It forgets when the copies are gone.
subtest 'a finish that was interrupted' => sub {
	for my $back (0, 1)
	{
		my ($old, $new) = $back ? ($b, $a) : ($a, $b);
		fresh_shard($a, $b);
		moves_ok($a, $b, 5, [ $back ? '--reverse' : () ], 0, 'moved');
		moves_ok($a, $b, 5, ['back'], 0, 'back') if $back;
		my $reader = $old->background_psql('postgres');
		$reader->query_safe('BEGIN; SELECT count(*) FROM insta5_moved.users');
		my $tool = IPC::Run::start([ move_command($a, $b, 5, 'finish') ], '>', '/dev/null', '2>&1');
		$old->poll_query_until('postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'DROP SCHEMA%' AND wait_event_type = 'Lock'}) or die 'does not wait';
		$tool->kill_kill;
		$old->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'DROP SCHEMA%'});
		$reader->quit;
		is($new->safe_psql('postgres', 'SELECT count(*) FROM snowid.moves'), '1', 'the other server knows it');
		moves_ok($a, $b, 5, ['abort'], 1, 'no abort');
		lives_on_ok($new, $old, 'interrupted');
		moves_ok($a, $b, 5, ['finish'], 0, 'finish goes on');
		nothing_left_ok($_, 'a finish in halves') for $a, $b;
	}
};

subtest 'shards of a batch that use each other' => sub {
	fresh_set($a, $b);
	$a->safe_psql('postgres', q{
CREATE FUNCTION insta2.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER t BEFORE INSERT ON insta3.users FOR EACH ROW EXECUTE FUNCTION insta2.f();
CREATE TRIGGER t BEFORE INSERT ON insta2.users FOR EACH ROW EXECUTE FUNCTION insta2.f()});
	moves_ok($a, $b, '2-4', [], 0, 'moved');
	moves_ok($a, $b, '2-4', [ 'finish', '--dry-run' ], 0, 'what finish would drop', qr/shards 2-4: schemas 'insta2_moved', .* would be dropped; nothing was changed/);
	moves_ok($a, $b, '2-4', ['finish'], 0, 'finished', qr/are dropped/);
	nothing_left_ok($_, 'shards that use each other') for $a, $b;
};

# What the checks call a leftover is none while a journal names it.
subtest 'leftovers' => sub {
	fresh_set($a, $b);
	moves_ok($a, $b, '2-4', [ '--stop-after', 'copied' ], 0, 'copied');
	unlike(moves_ok($a, $b, 2, ['plan'], 1, 'plan of one that is under way'), qr/there already/, 'no leftovers');
	moves_ok($a, $b, 2, ['abort'], 0, 'one is aborted');
	unlike(moves_ok($a, $b, 2, ['plan'], 0, 'it can move'), qr/there already/, 'no leftovers');
	moves_ok($a, $b, '3-4', ['abort'], 0, 'aborted');
	nothing_left_ok($_, 'leftovers') for $a, $b;
	$a->safe_psql('postgres', 'CREATE PUBLICATION snowid_move_2_x');
	moves_ok($a, $b, 2, ['plan'], 1, 'one that is', qr/publication "snowid_move_2_x" is there already/);
	$a->safe_psql('postgres', 'DROP PUBLICATION snowid_move_2_x');
};

# Changes of a shard that is aborted may be on their way.
subtest 'an abort of one while replication stalls' => sub {
	fresh_set($a, $b);
	moves_ok($a, $b, '2-4', [ '--stop-after', 'copied' ], 0, 'copied');
	my $walsender = $a->safe_psql('postgres', 'SELECT active_pid FROM pg_replication_slots');
	kill 'STOP', $walsender;
	$a->safe_psql('postgres', "INSERT INTO insta$_.users (name) VALUES ('late')") for 2, 3;
	moves_ok($a, $b, 3, ['abort'], 3, 'abort', qr/the target does not follow: changes of shard 3 are still on their way/);
	is($b->safe_psql('postgres', q{SELECT count(*) FROM pg_namespace WHERE nspname = 'insta3'}), '1', 'the table is there for them');
	kill 'CONT', $walsender;
	moves_ok($a, $b, 3, ['abort'], 0, 'abort goes on');
	moves_ok($a, $b, '2,4', [], 0, 'the others follow');
	moves_ok($a, $b, '2,4', ['finish'], 0, 'finished');
	nothing_left_ok($_, 'an abort while it stalls') for $a, $b;
};

# Somebody drops the shard in the middle of its move: the copy is the last.
subtest 'a source whose schema is dropped' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	$a->safe_psql('postgres', 'DROP SCHEMA insta5 CASCADE');
	moves_ok($a, $b, 5, ['abort'], 1, 'abort', qr/schema insta5 is not at .* any more, and the copy at .* may be the last; nothing was dropped\n.*pg_dump --schema.*snowid-move abort --cascade --shard 5 /s);
	$a->safe_psql('postgres', 'CREATE SCHEMA insta5');
	moves_ok($a, $b, 5, ['abort'], 1, 'nor is it the same that was made anew', qr/schema insta5 is not at .* any more/);
	is($b->safe_psql('postgres', 'SELECT count(*) > 0 FROM insta5.users'), 't', 'the copy is there');
	$a->safe_psql('postgres', 'DROP SCHEMA insta5; CREATE TABLE public.had AS TABLE snowid.shard_registry; DELETE FROM snowid.shard_registry');
	moves_ok($a, $b, 5, ['status'], 1, 'status, without the row, too');
	$a->safe_psql('postgres', 'INSERT INTO snowid.shard_registry TABLE public.had; DROP TABLE public.had');
	moves_ok($a, $b, 5, [ 'abort', '--cascade' ], 0, 'dropped on purpose');
	is($b->safe_psql('postgres', q{SELECT count(*) FROM pg_namespace WHERE nspname = 'insta5'}), '0', '... with the copy');
};

# A server that was put back to an earlier move of the same two.
subtest 'two moves of one pair' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [], 0, 'moved');
	$b->safe_psql('postgres', q{UPDATE snowid.moves SET details = details || '{"move_id": "01234567"}'});
	moves_ok($a, $b, 5, [$_], 1, $_, qr/put back to a time before.*snowid-move diff.*DELETE FROM snowid.moves WHERE shard = 5;/s) for 'finish', 'abort';
	$b->safe_psql('postgres', q{UPDATE snowid.moves m SET details = details || jsonb_build_object('move_id', '} . $a->safe_psql('postgres', q{SELECT details ->> 'move_id' FROM snowid.moves}) . q{')});
	moves_ok($a, $b, 5, ['finish'], 0, 'finished');
};

subtest 'options that a command does not have' => sub {
	for (map { [ split / / ] } 'split --reverse', 'split --stop-after copied', 'split --verify checksums', 'finish --target-ddl x', 'move --cascade',
		'back --reverse', 'status --fix-script x', 'abort --batch 1', 'plan --cascade', 'split --max-wal 1GB')
	{
		my ($command, $option) = @$_;
		moves_ok($a, $b, 5, $_, 2, "@$_", qr/the command $command has no option $option\n/);
	}
};

subtest 'a registry that has lost a shard' => sub {
	fresh_shard($a, $b);
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	$a->safe_psql('postgres', 'CREATE TABLE public.had AS TABLE snowid.shard_registry; DELETE FROM snowid.shard_registry');
	moves_ok($a, $b, 5, [$_], 2, $_, qr/the registry of the source has lost shard 5, which is in a move.*INSERT INTO/s) for qw(move abort finish back);
	moves_ok($a, $b, 5, ['status'], 1, 'status', qr/under way/);
	$a->safe_psql('postgres', 'INSERT INTO snowid.shard_registry TABLE public.had; DROP TABLE public.had');
	moves_ok($a, $b, 5, ['abort'], 0, 'aborted');
	moves_ok($a, $b, '5,999', ['plan'], 1, 'plan of one that is not there', qr/shard 5, .* would move.*\n1 of 2 shards can be moved; 0 failures, \d+ warnings\n.*shard 999 does not exist/s);
};

# One batch, named with thousands that are in none.
subtest 'the memory of status' => sub {
	moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
	IPC::Run::run([ 'bash', '-c', 'ulimit -v 200000; exec "$@"', 'sh', move_command($a, $b, '5-8191', 'status') ], '>', \my $out, '2>', \my $err);
	is($? >> 8, 1, 'status of many') or diag $err;
	moves_ok($a, $b, 5, ['abort'], 0, 'aborted');
};

done_testing();
