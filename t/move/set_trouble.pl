# Shards of a set that cannot be handed over, or that the target refuses: each is
# left where it is, the others of its batch go on, and the same command takes it
# along once the reason is gone.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use IPC::Run;
use MoveTest;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b');
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;

subtest 'one is locked, one was changed, the copy of one differs' => sub {
	fresh_set($a, $b);
	moves_ok($a, $b, '1-7', [ '--stop-after', 'copied' ], 0, 'copied', qr/the copy is there and follows/);
	my $writer = $a->background_psql('postgres');
	$writer->query_safe(q{BEGIN; INSERT INTO insta4.users (name) VALUES ('slow')});
	$a->safe_psql('postgres', 'ALTER TABLE insta5.users ADD COLUMN more text');
	$b->safe_psql('postgres', q{SET session_replication_role = replica; DELETE FROM insta6.users WHERE name = 'a'});
	moves_ok($a, $b, '1-7', [ '--retries', 1, '--lock-timeout', 50 ], 1, 'three that cannot', qr/4 of 7 shards have moved.*left where they are: shards 4-6\n/s);
	is(living($a), '4,5,6,8', 'they are where they were');
	$writer->query_safe('COMMIT');
	$writer->quit;
	moves_ok($a, $b, '1-7', ['status'], 1, 'status of the rest', qr/^shards 1-3,7: moved.*^shards 4-6: under way.*slot snowid_move_1_/ms);
	moves_ok($a, $b, '5-6', ['abort'], 0, 'two of them are given up', qr/shards 5-6: the move is undone/);
	is(living($a), '4,5,6,8', 'they are open');
	moves_ok($a, $b, '1-4,7', [], 0, 'one is moved', qr/5 of 5 shards have moved, 1 of them now/);
	is($b->safe_psql('postgres', q{SELECT count(*) FROM insta4.users WHERE name = 'slow'}), '1', 'with what was written last');
	moves_ok($a, $b, '1-7', ['finish'], 0, 'finished', qr/shards 5-6: nothing to finish/);
	nothing_left_ok($_, 'after that') for $a, $b;
};

subtest 'the target refuses definitions' => sub {
	fresh_set($a, $b);
	$b->safe_psql('postgres', q{
	CREATE FUNCTION public.refuse() RETURNS event_trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF EXISTS (SELECT FROM pg_event_trigger_ddl_commands() WHERE object_identity = 'insta5.users') THEN
			RAISE 'not here';
		END IF;
	END $$;
	CREATE EVENT TRIGGER refuse ON ddl_command_end EXECUTE FUNCTION public.refuse()});
	moves_ok($a, $b, '5-6,8', [], 1, 'one that the target refuses',
		qr/not here.*shard 5 is left.*begins anew without shard 5.*left where they are: shard 5\n/s);
	is(living($a), '1,2,3,4,5,7', 'it is where it was');
	is($b->safe_psql('postgres', q{SELECT count(*) FROM pg_namespace WHERE nspname = 'insta5'}), '0', 'nothing of it is there');
	$b->safe_psql('postgres', 'DROP EVENT TRIGGER refuse; DROP FUNCTION public.refuse()');
	moves_ok($a, $b, '5-6,8', [], 0, 'without the reason', qr/3 of 3 shards have moved, 1 of them now/);
	moves_ok($a, $b, '5-6,8', ['finish'], 0, 'finished');
	nothing_left_ok($_, 'refused') for $a, $b;
};

done_testing();
