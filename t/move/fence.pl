# What closes a shard is prepared before writers wait, and is gone after finish
# and abort; or, where somebody is in the way, finish says so.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use MoveTest;
use SnowidTest;
use Test::More;

my $a = move_node('a');
my $b = move_node('b');
$_->start for $a, $b;
$_->safe_psql('postgres', 'CREATE EXTENSION snowid') for $a, $b;
make_shard($a, 5, 'insta5');

# The fence's triggers, by how they are.
sub triggers
{
	my ($node) = @_;
	return $node->safe_psql('postgres', q{
SELECT string_agg(format('%s prepared=%s', CASE tgenabled WHEN 'D' THEN 'disabled' ELSE 'enabled' END, tgnargs), ', ')
FROM (SELECT DISTINCT tgenabled, tgnargs FROM pg_trigger WHERE tgname = 'snowid_fence' ORDER BY 1, 2) t});
}

my $tables = $a->safe_psql('postgres', q{SELECT count(*) FROM snowid_internal.shard_tables('insta5')});
my $prepared = q{SELECT count(*) FROM pg_trigger WHERE tgname = 'snowid_fence'};

# A transaction that has written in one table keeps the shard from being closed,
# and that table from being prepared.
moves_ok($a, $b, 5, [ '--stop-after', 'copied' ], 0, 'copied');
my $writer = $a->background_psql('postgres');
$writer->query_safe(q{BEGIN; INSERT INTO insta5.users (name) VALUES ('open')});
moves_ok($a, $b, 5, [ '--retries', 0, '--verify', 'none' ], 1, 'held up', qr/could not lock the shard/);
is(triggers($a), 'disabled prepared=1', 'prepared, and writers pass');
is($a->safe_psql('postgres', $prepared), $tables - 1, '... but for the table in use');
is(triggers($b), 'enabled prepared=1', 'the target is closed by what can be opened fast');
$writer->query_safe('COMMIT');
$a->safe_psql('postgres', q{INSERT INTO insta5.users (name) VALUES ('free')});
moves_ok($a, $b, 5, ['abort'], 0, 'abort');
nothing_left_ok($_, 'abort') for $a, $b;

# The decision makes no trigger, and drops none.
moves_ok($a, $b, 5, ['--keep-name'], 0, 'move');
is(triggers($a), 'enabled prepared=1', 'the copy is closed by what was prepared');
is($a->safe_psql('postgres', $prepared), $tables, '... each table');
is(triggers($b), 'disabled prepared=1', 'the shard is open');
is($b->safe_psql('postgres', $prepared), $tables, '... each table');

# Who reads a table keeps its trigger from being dropped.
my $reader = $b->background_psql('postgres');
$reader->query_safe('BEGIN; SELECT count(*) FROM insta5.users');
moves_ok($a, $b, 5, ['finish'], 0, 'finish beside a reader', qr/disabled triggers snowid_fence are left.*: insta5\.users\n.*DROP TRIGGER snowid_fence ON/s);
is($b->safe_psql('postgres', $prepared), 1, 'one is left');
$reader->query_safe('COMMIT');
$b->safe_psql('postgres', 'DROP TRIGGER snowid_fence ON insta5.users');
nothing_left_ok($_, 'finish') for $a, $b;
$_->quit for $writer, $reader;

done_testing();
