# One clock reserves ids for all sequences of a database.  So a page can be
# behind what its sequence issued, and the clock must know.  Each case here is a
# crash, or a change of the clock itself, that repeats ids without a rule of
# doc/design.md, "One clock for the database".
#
# The time stands still while ids are taken, so that nothing logs but the rule
# under test.  After the crash it is an hour behind.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PostgreSQL::Test::Utils;
use SnowidTest;
use Test::More;
use Time::Local qw(timegm);

my $noon = '2026-01-01 12:00:00';
my $node = new_node('one_clock');
$node->append_conf('postgresql.conf', 'max_prepared_transactions = 1');
start_with_clock($node, $noon);

sub sql
{
	my ($sql, $dbname) = @_;
	return $node->safe_psql($dbname || 'postgres', $sql);
}

sub take
{
	my ($seq, $dbname) = @_;
	return sql("SELECT snowid.next_id(5, '$seq')", $dbname);
}

# Crash, and go on with the clock an hour behind.
sub crash_back
{
	crash($node);
	start_with_clock($node, '2026-01-01 11:00:00');
	return;
}

# The same, return the next id, and set the clock right.
sub next_after_crash
{
	my (@of) = @_;

	crash_back();
	my $next = take(@of);
	set_clock($node, $noon);
	return $next;
}

sub lsn { return $node->lsn('insert'); }

# What the page has, and what the extension says of it: as times of ids.
sub page_at { return sql("SELECT snowid.id_timestamp(last_value >> 10 << 23) FROM $_[0]"); }
sub known_at { return sql("SELECT last_id_at FROM snowid.sequence_state('$_[0]')"); }
sub time_of { return sql("SELECT snowid.id_timestamp($_[0])"); }

sql(q{
CREATE EXTENSION snowid;
CREATE SEQUENCE busy;
CREATE SEQUENCE seldom;
CREATE SEQUENCE own_epoch;
});

# An id of one sequence is reserved for another, as soon as each has logged its
# first one.
my @first = (take('seldom'), take('busy'));
my $own = "SELECT snowid.next_id(5, 'own_epoch', '2025-12-31 23:59:59.9995+00')";
my @own = (sql($own));
take('busy');
my $before = lsn();
my $seen = take('seldom');
push @own, sql($own);
is(lsn(), $before, 'ids that are reserved log nothing');
cmp_ok(next_after_crash('seldom'), '>', $seen, 'and do not come again after a crash');
cmp_ok(sql($own), '>', $own[1], 'nor with an epoch of its own');

# A page is logged at its first change after a checkpoint, as PostgreSQL expects.
take('busy');
take('seldom');
sql('CHECKPOINT');
take('busy');
$before = lsn();
take('seldom');
isnt(lsn(), $before, 'the first change of a page after a checkpoint is logged');

# Replay of that record alone would set the page back.  A checkpoint may have
# chosen its redo point between the reservation and that record, and not told yet.
$before = lsn();
$seen = take('seldom');
isnt(lsn(), $before, '... and what comes after it is reserved anew');
$before = lsn();
take('seldom');
is(lsn(), $before, '... and no further one');

# The first id is logged, so that the page shows that there are ids; also for
# who takes the second one.
take('busy');
sql('CREATE SEQUENCE called');
kill 'STOP', sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'});
my $opener = $node->background_psql('postgres');
$opener->query_safe(q{BEGIN; SELECT snowid.next_id(5, 'called')});
$seen = take('called');
crash_back();
cmp_ok(known_at('called'), 'ge', time_of($seen), 'a crash does not make a sequence look new');
set_clock($node, $noon);

# The lead after a crash, of all sequences, also of new ones.
set_clock($node, '2026-01-01 12:00:10');
take('seldom');
crash($node);
start_with_clock($node, '2026-01-01 12:00:10');
sql('CREATE SEQUENCE new');
for my $seq ('seldom', 'new')
{
	take($seq);
	is(sql("SELECT ahead BETWEEN '0 s' AND '2.51 s' FROM snowid.sequence_state('$seq')"), 't',
		"a crash leaves $seq at most 2.5 seconds ahead");
}

# The floor outlives later sessions, checkpoints, and a clean restart.
sql(q{
SELECT snowid.create_shard(7);
CREATE TABLE insta7.t (id bigint PRIMARY KEY DEFAULT insta7.next_id());
SELECT snowid.create_shard(8);
CREATE TABLE insta8.t (id bigint PRIMARY KEY DEFAULT insta8.next_id());
SELECT snowid.create_shard(9);
SELECT snowid.create_shard(6);
CREATE TABLE insta6.t (id bigserial PRIMARY KEY);
} . snippet('old', 's', 10) . q{
SELECT snowid.next_id(6, 'insta6.t_id_seq'), snowid.next_id(10, 'old.s');
INSERT INTO insta7.t DEFAULT VALUES;
INSERT INTO insta8.t DEFAULT VALUES;
});
# The clock is right here, so that each id has a millisecond of its own.
set_clock($node, '2026-01-01 12:00:15');
sql('INSERT INTO insta8.t DEFAULT VALUES');
set_clock($node, '2026-01-01 12:00:15.500');
my $newest = sql('INSERT INTO insta7.t DEFAULT VALUES RETURNING id');
$seen = take('seldom');
my %newest = map { $_ => sql("SELECT snowid.next_id(0, '$_')") } 'insta6.t_id_seq', 'old.s';
crash_back();
sql('CHECKPOINT; SELECT snowid.next_id(5, \'busy\'); CHECKPOINT');
$node->stop;
start_with_clock($node, '2026-01-01 11:00:00');
sql(q{CHECKPOINT; SELECT snowid.next_id(5, 'busy')});

cmp_ok(page_at('insta7.id_seq'), 'lt', time_of($newest), 'a page is behind its sequence');
cmp_ok(page_at($_), 'lt', time_of($newest{$_}), "... $_") for sort keys %newest;
sql(q{SELECT snowid.set_default('insta6.t', 'id')});
cmp_ok(sql('SELECT insta6.next_id() >> 23'), '>', $newest{'insta6.t_id_seq'} >> 23,
	'set_default() goes on above the sequence of before');
sql(q{SELECT snowid.adopt_shard(10, 'old')});
cmp_ok(sql('SELECT old.next_id()'), '>', $newest{'old.s'} + (10 << 10), 'adopt_shard() does, too');
cmp_ok(sql(q{SELECT snowid.safe_upper_id('seldom')}), '>', $seen - 5 * 1024, 'and so does safe_upper_id()');
for my $seq ('insta7.id_seq', 'seldom')
{
	cmp_ok(known_at($seq), 'ge', time_of($seq eq 'seldom' ? $seen : $newest),
		"sequence_state() of $seq is not");
}
is(sql(qq{
SELECT last_id_at >= snowid.id_timestamp($newest), ahead > '1 h' FROM snowid.shards WHERE shard = 7}),
	't|t', 'nor is the view shards');
is(sql('SELECT last_id_at IS NULL FROM snowid.shards WHERE shard = 9'), 't',
	'what was never called still has no id');
is(sql('SELECT id FROM snowid.newest_rows(NULL::insta7.t, 1)'), $newest,
	'newest_rows() finds the newest row');
sql(q{SELECT snowid.fence_shard(7)});
is(sql(qq{
SELECT (details #>> '{sequences,id_seq,last}')::bigint >= ($newest >> 23 << 10) FROM snowid.moves}),
	't', 'a move carries it');
sql(q{SELECT snowid.unfence_shard(7)});
cmp_ok(sql('SELECT insta7.next_id()'), '>', $newest, 'and it goes on after a fence');
my ($ret, $stdout, $stderr) = $node->psql('postgres', 'SELECT snowid.drop_shard(8, true)');
like($stderr, qr/are ahead of the clock/, 'drop_shard() says that ids can be ahead');
cmp_ok(take('seldom'), '>', $seen, 'the floor holds after checkpoints and a restart');

# What reads a page without the clock: advance() writes what is known.
sql(q{SELECT snowid.advance('own_epoch', 0, '2025-12-31 23:59:59.9995+00')});
set_clock($node, $noon);
sql('CREATE SCHEMA one; CREATE SEQUENCE one.s');
take('one.s');
set_clock($node, '2026-01-01 12:00:20');
take('busy');
$seen = take('one.s');
crash_back();
sql(q{SELECT snowid.advance('one.s', 0)});
my $dump = $node->basedir . '/one.sql';
$node->command_ok([ 'pg_dump', '-n', 'one', '-f', $dump, $node->connstr('postgres') ],
	'one schema is dumped');
sql('CREATE DATABASE restored', 'postgres');
sql('CREATE EXTENSION snowid', 'restored');
$node->command_ok([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $node->connstr('restored') ],
	'and restored');
cmp_ok(take('one.s', 'restored'), '>', $seen, 'after advance(seq, 0), it goes on above');
sql(q{CREATE SEQUENCE counter; SELECT nextval('counter'); SELECT snowid.advance('counter', 0)});
is(sql(q{SELECT nextval('counter')}), '1024', 'which leaves a plain counter one');

# A whole dump after a crash carries the clock.
set_clock($node, '2026-01-01 12:00:40');
take('seldom');
set_clock($node, '2026-01-01 12:00:41.9');
$seen = take('seldom');
crash_back();
$node->command_ok([ 'pg_dump', '-Fc', '-f', $dump, $node->connstr('postgres') ], 'all is dumped');
sql('CREATE DATABASE whole');
$node->command_ok([ 'pg_restore', '-j', '2', '-d', $node->connstr('whole'), $dump ], 'and restored');
cmp_ok(take('seldom', 'whole'), '>', $seen, 'the restored clock knows what the crash forgot');

# A restart forgets, and the floor does not.
set_clock($node, '2026-01-01 12:01:00');
for my $how ('ALTER SEQUENCE seldom RESTART', 'TRUNCATE photos RESTART IDENTITY')
{
	sql('CREATE TABLE photos (id bigint GENERATED ALWAYS AS IDENTITY)') if $how =~ /photos/;
	my $seq = $how =~ /photos/ ? 'photos_id_seq' : 'seldom';
	take($seq);
	$seen = take($seq);
	sql($how);
	cmp_ok(next_after_crash($seq), '>', $seen, "no repetition after $how and a crash");
	set_clock($node, '2026-01-01 12:01:10');
	take($seq);
	sql($how);
	$seen = take($seq);
	$seen = take($seq);
	cmp_ok(next_after_crash($seq), '>', $seen, "nor of ids taken after $how");
	set_clock($node, '2026-01-01 12:01:20');
}

# What makes a sequence a new file from its page, as the first thing after a crash.
set_clock($node, '2026-01-01 12:01:30');
sql(q{CREATE DATABASE origin});
sql(q{CREATE EXTENSION snowid; CREATE SEQUENCE s}, 'origin');
my %rewrite = (
	unlogged => 'ALTER SEQUENCE %s SET UNLOGGED',
	logged => 'ALTER SEQUENCE %s SET UNLOGGED; ALTER SEQUENCE %1$s SET LOGGED',
	step => 'ALTER SEQUENCE %s INCREMENT 2',
	maximum => 'ALTER SEQUENCE %s MAXVALUE 9000000000000000000 CYCLE',
	again => 'ALTER SEQUENCE %s RESTART',
	anew => 'TRUNCATE %1$s_t RESTART IDENTITY',
	to_unlogged => 'ALTER TABLE %1$s_t SET UNLOGGED',
	to_logged => 'ALTER TABLE %1$s_t SET UNLOGGED; ALTER TABLE %1$s_t SET LOGGED',
	identity => 'ALTER TABLE %1$s_t ALTER id SET INCREMENT BY 3 SET CYCLE',
	state => 'SELECT 1',
	advanced => q{SELECT snowid.advance('%s', 0); ALTER SEQUENCE %1$s SET UNLOGGED});
my %last;
for my $name (sort keys %rewrite)
{
	sql($rewrite{$name} =~ /_t / ? qq{
CREATE TABLE ${name}_t (id bigint GENERATED ALWAYS AS IDENTITY (SEQUENCE NAME $name))} :
		"CREATE SEQUENCE $name");
}
for my $time ('12:01:30', '12:01:30.500')
{
	set_clock($node, "2026-01-01 $time");
	for my $name (sort keys %rewrite)
	{
		take($name);
		$last{$name} = take($name);
	}
	take('s', 'origin');
	$last{origin} = take('s', 'origin');
}
crash_back();
for my $name (sort keys %rewrite)
{
	cmp_ok(page_at($name), 'lt', time_of($last{$name}), "$name: the page is behind");
	sql(sprintf($rewrite{$name}, $name));
	cmp_ok(known_at($name), 'ge', time_of($last{$name}), "... sequence_state() is not")
	  unless $name =~ /^an|again/;
	cmp_ok(take($name), '>', $last{$name}, "no repetition after a crash and $rewrite{$name}");
}
for my $strategy ('wal_log', 'file_copy')
{
	sql("CREATE DATABASE of_$strategy TEMPLATE origin STRATEGY $strategy", 'postgres');
	cmp_ok(take('s', "of_$strategy"), '>', $last{origin}, "nor in a copy by $strategy");
}

# Copies have the page of a clock in use, whose record is not theirs.  Pages are
# copied, and logged, in the order of pg_class.  A sequence that comes after the
# clock has a record after the clock's, so its ids are reserved anew; so look at one
# that comes before.
sql('CREATE DATABASE template_db');
sql(q{
DO $$ BEGIN FOR i IN 1 .. 100 LOOP EXECUTE 'CREATE SEQUENCE s' || i; END LOOP; END $$;
CREATE EXTENSION snowid}, 'template_db');
my $first = sql(q{
SELECT min(relname) FROM (
	SELECT relname, row_number() OVER (ORDER BY ctid) AS n FROM pg_class
	WHERE relkind = 'S' AND (relname LIKE 's%' OR oid = 'snowid_internal.clock'::regclass)) AS s
WHERE n = 1}, 'template_db');
isnt($first, 'clock', 'a sequence that is copied before the clock');
set_clock($node, '2026-01-01 12:01:20');
take($first, 'template_db');
for my $strategy ('wal_log', 'file_copy')
{
	set_clock($node, '2026-01-01 12:01:20');
	sql("CREATE DATABASE $strategy TEMPLATE template_db STRATEGY $strategy", 'postgres');
	take($first, $strategy);
	$seen = take($first, $strategy);
	cmp_ok(next_after_crash($first, $strategy), '>', $seen, "a copy by $strategy, and a crash");
}

# The clock's own file: ALTER copies the tuple of a page in use.
set_clock($node, '2026-01-01 12:02:00');
take($_) for ('busy', 'seldom');
my $session = $node->background_psql('postgres');
$session->query_safe(q{SELECT snowid.next_id(5, 'busy')});
sql('ALTER SEQUENCE snowid_internal.clock INCREMENT 1 CYCLE');
$session->query_safe(q{SELECT snowid.next_id(5, 'seldom')});
$seen = $session->query_safe(q{SELECT snowid.next_id(5, 'seldom')});
cmp_ok(next_after_crash('seldom'), '>', $seen, 'the clock has another file');
set_clock($node, '2026-01-01 12:02:10');
take($_) for ('busy', 'seldom');
sql('ALTER SEQUENCE snowid_internal.clock SET UNLOGGED');
is(sqlstate($node, q{SELECT snowid.next_id(5, 'busy')}), '55000', 'an unlogged clock is refused');
sql('ALTER SEQUENCE snowid_internal.clock SET LOGGED');
$seen = take('seldom');
cmp_ok(next_after_crash('seldom'), '>', $seen, 'and then it is logged again');
set_clock($node, '2026-01-01 12:02:20');
take('seldom');
sql('ALTER SEQUENCE seldom SET UNLOGGED');
sql('ALTER SEQUENCE seldom SET LOGGED');
$seen = take('seldom');
$seen = take('seldom');
cmp_ok(next_after_crash('seldom'), '>', $seen, 'a sequence that was unlogged for a while');

# A prepared transaction, whose id another one has reserved.
set_clock($node, '2026-01-01 12:02:30');
take('seldom');
take('busy');
$seen = sql(q{BEGIN; SELECT snowid.next_id(5, 'seldom'); PREPARE TRANSACTION 'p'});
crash_back();
sql(q{COMMIT PREPARED 'p'});
cmp_ok(take('seldom'), '>', $seen, 'an id of a prepared transaction');

# DROP EXTENSION takes the clock away; what is not lost in a crash is on the
# pages, and a new clock starts from now.
set_clock($node, '2026-01-01 12:03:00');
$session = $node->background_psql('postgres');
$session->query_safe(q{BEGIN; SELECT snowid.next_id(5, 'busy')});
my $dropper = $node->background_psql('postgres');
my $pid = $dropper->query_safe('SELECT pg_backend_pid()');
$dropper->{stdin} .= "BEGIN; DROP EXTENSION snowid CASCADE; SELECT 'gone'; ROLLBACK;\n";
$dropper->{run}->pump_nb;
$node->poll_query_until('postgres', qq{
SELECT wait_event_type = 'Lock' OR state = 'idle' AND query LIKE '%ROLLBACK%'
FROM pg_stat_activity WHERE pid = $pid}) or die 'DROP EXTENSION has not begun';
is(sql("SELECT wait_event_type FROM pg_stat_activity WHERE pid = $pid"), 'Lock',
	'DROP EXTENSION waits for who uses a reservation');
$session->query_safe('COMMIT');
$dropper->quit;
$seen = take('seldom');
$seen = take('seldom');
$dropper = $node->background_psql('postgres');
$dropper->query_safe('SET client_min_messages = warning; BEGIN; DROP EXTENSION snowid CASCADE; CREATE EXTENSION snowid');
my $waiter = $node->background_psql('postgres');
$waiter->{stdin} .= "SELECT snowid.next_id(5, 'busy') > 0;\n";
$waiter->{run}->pump_nb;
$node->poll_query_until('postgres', 'SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)')
  or die 'who has a clock does not wait';
$dropper->query_safe('COMMIT');
$dropper->quit;
is($waiter->query_safe(q{SELECT 'next'}), "t\nnext", 'who has waited for a clock that is gone takes the new one');
$waiter->quit;
set_clock($node, '2026-01-01 11:00:00');
cmp_ok(take('seldom'), '>', $seen, 'no crash: the pages know');
$seen = $session->query_safe(q{SELECT snowid.next_id(5, 'busy')});
$seen = $session->query_safe(q{SELECT snowid.next_id(5, 'busy')});
cmp_ok(next_after_crash('busy'), '>', $seen, 'a session does not go on with the old clock');
set_clock($node, '2026-01-01 12:04:00');
take('seldom');
set_clock($node, '2026-01-01 12:04:01.5');
$seen = take('seldom');
crash($node);
start_with_clock($node, '2026-01-01 12:04:02');
sql('DROP EXTENSION snowid CASCADE; CREATE EXTENSION snowid');
set_clock($node, '2026-01-01 11:00:00');
cmp_ok(take('seldom'), '>', $seen, 'a crash, DROP and CREATE EXTENSION, and the clock set back');

# One that is far ahead goes alone: it logs its own ids, a second of them at once,
# and the others are not dragged along by a crash.
set_clock($node, '2026-01-01 12:04:30');
my $hour_ahead = q{snowid.make_id(clock_timestamp() + '1 hour', 5, 0)};
sql(qq{CREATE SEQUENCE far; SELECT snowid.advance('far', $hour_ahead)});
kill 'STOP', sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'});
$session = $node->background_psql('postgres');
my $take_far = q{SELECT snowid.next_id(5, 'far')};
$before = lsn();
$session->query_safe("BEGIN; $take_far; ROLLBACK");
isnt(lsn(), $before, 'a sequence that is far ahead logs for itself');
is($session->query_safe(
		"BEGIN; SELECT snowid.next_id(5, 'far') IS NULL OR pg_current_xact_id_if_assigned() IS NOT NULL; COMMIT"),
	't', '... and who uses that later waits for it');
$before = lsn();
$seen = $session->query_safe($take_far);
is(lsn(), $before, '... but does not log again');
sub far_survives
{
	take('busy');
	crash($node);
	start_with_clock($node, '2026-01-01 12:04:30');
	cmp_ok(take('far'), '>', $seen, "a sequence that is far ahead: no repetition after a crash$_[0]");
	$session = $node->background_psql('postgres');
	$session->query_safe($take_far);
	return;
}
far_survives('');
take('busy');
is(sql(q{SELECT ahead < '2.51 s' FROM snowid.sequence_state('busy')}), 't',
	'... nor drag the others along');
$session->query_safe('CHECKPOINT');
$seen = $session->query_safe($take_far);
far_survives(' and a checkpoint');
$session->query_safe(q{SELECT nextval('far')});
$seen = $session->query_safe("SELECT max(snowid.next_id(5, 'far')) FROM generate_series(1, 100)");
far_survives(' and nextval()');
sql(qq{CREATE SEQUENCE far_step INCREMENT 1024; SELECT snowid.advance('far_step', $hour_ahead)});
$seen = sql("SELECT max(snowid.next_id(5, 'far_step')) FROM generate_series(1, 1010)");
crash($node);
start_with_clock($node, '2026-01-01 12:04:30');
cmp_ok(take('far_step'), '>', $seen, '... and more than a second of ids');

# An unlogged one does not run ahead of a clock that is right, since the next
# crash would forget that.
sql(q{CREATE UNLOGGED SEQUENCE forgetful});
set_clock($node, '2026-01-01 12:04:40');
take('busy');
crash($node);
start_with_clock($node, '2026-01-01 12:04:40');
$waiter = $node->background_psql('postgres');
my $waiter_pid = $waiter->query_safe('SELECT pg_backend_pid()');
$waiter->{stdin} .= "SELECT snowid.id_timestamp(snowid.next_id(5, 'forgetful'));\n";
$waiter->{run}->pump_nb;
ok($node->poll_query_until('postgres', qq{
SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $waiter_pid}),
	'an unlogged sequence waits until the clock is where ids were reserved');
set_clock($node, '2026-01-01 12:04:42.250');
is($waiter->query_safe('SELECT 1') =~ s/\n1$//r, '2026-01-01 12:04:42.25+00', '... and goes on from there');
$waiter->quit;

# A shard's number can be used again when the clock, which goes on here, has
# passed its ids.
my $goes_on = sprintf '%+d', timegm(50, 4, 12, 1, 0, 2026) - time;
set_clock($node, $goes_on);
sql('SELECT snowid.create_shard(12); SELECT insta12.next_id()');
crash($node);
start_with_clock($node, $goes_on);
($ret, $stdout, $stderr) = $node->psql('postgres', 'SELECT snowid.drop_shard(12)');
is($stderr, '', 'after a crash, drop_shard() waits for that');

# The clock leaps an hour ahead, and comes back.
set_clock($node, '2026-01-01 13:05:00');
take('busy');
$seen = take('seldom');
set_clock($node, '2026-01-01 12:05:00');
my $busy = sql(q{SELECT max(snowid.next_id(5, 'busy')) FROM generate_series(1, 5000)});
cmp_ok(next_after_crash('seldom'), '>', $seen, 'a leap of an hour, and back, and a crash');
cmp_ok(next_after_crash('busy'), '>', $busy, '... also of what was used meanwhile');

# Two days are too far for all, until the clock is reset.
set_clock($node, '2026-01-03 13:00:00');
take('seldom');
set_clock($node, '2026-01-01 13:10:00');
is(sqlstate($node, q{SELECT snowid.next_id(5, 'new')}), '', 'a clock two days ahead does not matter');
crash($node);
start_with_clock($node, '2026-01-01 13:10:00');
for my $call (q{next_id(5, 'busy')}, q{advance('busy', 0)})
{
	is(sqlstate($node, "SELECT snowid.$call"), '55000', "... until a crash: $call is refused");
}
sql(q{SELECT setval('snowid_internal.clock', 1)});
is(sqlstate($node, q{SELECT snowid.next_id(5, 'new')}), '', '... and goes on when the clock is reset');

# It is set, as a restore does, while sessions know it: one that has only read it,
# and one whose reservation has come to its end.
my $set_clock = q{SELECT setval('snowid_internal.clock', extract(epoch FROM timestamptz '2026-01-01 13:10:%d')::bigint)};
sql('CREATE SEQUENCE restored');
my $user = $node->background_psql('postgres');
$user->query_safe(q{SELECT snowid.next_id(5, 'restored')});
$session = $node->background_psql('postgres');
sql(sprintf $set_clock, 20);
like($session->query_safe(q{
SELECT last_id_at FROM snowid.sequence_state('busy');
SELECT snowid.advance('seldom', 0);
} . sprintf($set_clock, 30) . q{;
SELECT last_id_at FROM snowid.sequence_state('busy')}), qr/13:10:19.*13:10:29/s,
	'who has set the clock reads it again');
is($session->query_safe(q{CREATE TEMP TABLE t AS SELECT snowid.next_id(5, 'forgetful') AS id; SELECT snowid.id_timestamp(id) FROM t}),
	'2026-01-01 13:10:30+00', '... also for an unlogged sequence');
set_clock($node, '2026-01-01 13:10:12');
is($user->query_safe(q{SELECT snowid.id_timestamp(snowid.next_id(5, 'restored'))}), '2026-01-01 13:10:30+00',
	'... and so does another, at its next reservation');
$user->quit;
$session->quit;
sql(sprintf $set_clock, 0);
set_clock($node, '2026-01-01 13:10:00');

# Somebody has dropped it.
sql(q{ALTER EXTENSION snowid DROP SEQUENCE snowid_internal.clock;
ALTER SEQUENCE snowid_internal.clock RENAME TO away});
is(sqlstate($node, q{SELECT snowid.next_id(5, 'busy')}), '42P01', 'without a clock there are no ids');
sql(q{ALTER SEQUENCE snowid_internal.away RENAME TO clock;
ALTER EXTENSION snowid ADD SEQUENCE snowid_internal.clock});
take('busy');

# More is reserved before it is needed, and nobody waits for that.
$session = $node->background_psql('postgres');
my $dt = '2026-01-01 13:10:';
set_clock($node, $dt . '10');
$session->query_safe(q{SELECT snowid.next_id(5, 'new')});
kill 'STOP', sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'});
my $take_new = q{BEGIN; SELECT snowid.next_id(5, 'new') IS NULL OR pg_current_xact_id_if_assigned() IS NOT NULL; COMMIT};
$before = lsn();
set_clock($node, $dt . '11.4');
is($session->query_safe($take_new), 'f', 'a reserved id');
is(lsn(), $before, '... logs nothing');
set_clock($node, $dt . '11.6');
is($session->query_safe($take_new), 'f', 'when it runs short, nobody waits');
isnt(lsn(), $before, '... but more is reserved');
$before = lsn();
set_clock($node, $dt . '11.7');
is($session->query_safe($take_new), 'f', '... and who comes later does not wait either');
is(lsn(), $before, '... nor reserve again');
set_clock($node, $dt . '12');
is($session->query_safe($take_new), 't', 'but who needs it waits');
$session->quit;

# With wal_level = minimal, a new file has no log until its commit.
$node->append_conf('postgresql.conf', "wal_level = minimal\nmax_wal_senders = 0");
crash($node);
start_with_clock($node, '2026-01-01 13:20:00');
my $once = q{SELECT snowid.next_id(5, 'minimal')};
$seen = sql("BEGIN; CREATE SEQUENCE minimal; $once; COMMIT; $once; $once");
$seen = (split /\n/, $seen)[-1];
cmp_ok(next_after_crash('minimal'), '>', $seen, 'wal_level = minimal, a new sequence');
set_clock($node, '2026-01-01 13:20:10');
$seen = sql("BEGIN; ALTER SEQUENCE minimal RESTART; $once; COMMIT; $once; $once");
$seen = (split /\n/, $seen)[-1];
cmp_ok(next_after_crash('minimal'), '>', $seen, '... a restarted one');
set_clock($node, '2026-01-01 13:20:20');
take('minimal');
$seen = sql("BEGIN; DROP EXTENSION snowid CASCADE; CREATE EXTENSION snowid; $once; $once; COMMIT");
$seen = (split /\n/, $seen)[-1];
cmp_ok(next_after_crash('minimal'), '>', $seen, '... a new clock, at its commit');
set_clock($node, '2026-01-01 13:20:30');
$seen = sql("BEGIN; DROP EXTENSION snowid CASCADE; CREATE EXTENSION snowid; $once; COMMIT; $once; $once");
$seen = (split /\n/, $seen)[-1];
cmp_ok(next_after_crash('minimal'), '>', $seen, '... and after it');

$node->stop;
done_testing();
